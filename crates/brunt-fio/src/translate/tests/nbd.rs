//! Tests of engine nbd.

use super::*;

/// An export becomes the target and keeps its size; errors name the fio options that aren't supported.
#[test]
fn an_nbd_export_becomes_the_target() {
    let import = |text: &str| {
        let import = of(&format!("[global]\nioengine=nbd\nrw=randrw\n{text}")).unwrap();
        let urls = urls(&import);
        let regions = import
            .experiment
            .workloads
            .on_targets()
            .map(|(_, workload)| workload.region);
        (
            urls,
            regions
                .map(|region| (region.start.0, region.length))
                .collect::<Vec<_>>(),
            import.remarks,
        )
    };
    let uri = "nbd+unix:///disk?socket=/run/nbd.sock";
    // As in fio's examples/nbd.fio: from the offset to the end of the export.
    let (urls, regions, _) = import(&format!(
        "uri={uri}\ntime_based\nruntime=60\n[a]\noffset=0\n[b]\noffset=64m\n"
    ));
    assert_eq!(
        (urls, regions),
        (vec![uri.to_string()], vec![(0, None), (64 << 20, None)])
    );
    let tls = "nbds://host:9/disk?tls-certificates=/etc/pki&tls-hostname=h";
    let (urls, regions, remarks) = import(&format!(
        "[a]\nuri={tls}\nsize=1m\nnumjobs=3\nsync=1\niodepth=64\n"
    ));
    assert_eq!(
        (urls, regions),
        (vec![tls.to_string()], vec![(0, Some(Size(1 << 20)))])
    );
    let note = |key: &str| {
        remarks
            .iter()
            .any(|remark| remark.key == key && !remark.loss)
    };
    assert!(
        note("numjobs") && note("sync") && !note("iodepth"),
        "{remarks:?}"
    );

    let lost = |settings: &str| match of(&format!("[job]\nsize=1m\n{settings}\n"))
        .unwrap_err()
        .cause
    {
        Cause::Loss { option, why, more } if option == "uri" && more.is_empty() => why,
        other => panic!("{settings}: {other}"),
    };
    assert!(lost("ioengine=nbd\nuri=nbd+vsock://2/disk").contains("nbds+unix exports"));
    assert!(lost("ioengine=nbd\nuri=nbds://h/disk?tls-psk-file=/k").contains("pre-shared"));
    assert!(lost("ioengine=psync\nfilename=/x/y\nuri=nbd://h/disk").contains("only engine nbd"));
    let missing = of("[job]\nioengine=nbd\nsize=1m\n").unwrap_err();
    assert!(
        matches!(missing.cause, Cause::NoUri { .. }) && missing.advice().is_some(),
        "{missing}"
    );
    let odd = of("[job]\nioengine=nbd\nuri=host/disk\n").unwrap_err();
    assert!(matches!(odd.cause, Cause::Value { .. }), "{odd}");
}
