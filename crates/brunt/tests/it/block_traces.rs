//! `brunt trace` as a user runs it: figures, damaged rows, files that aren't traces, and conversions.

use std::process::{Command, Output};

fn info(arguments: &[&str]) -> Output {
    trace("info", arguments)
}

fn trace(command: &str, arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_brunt"));
    program
        .args(["--json", "trace", command])
        .args(arguments)
        .output()
        .expect("the program runs")
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Thirty sequential reads, a write, and a damaged row.
#[test]
fn figures_match_the_requests_and_a_damaged_row_is_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.spc");
    let mut text = String::new();
    for row in 0..30 {
        text += &format!("0,{},4096,R,{row}.25\n", row * 8);
    }
    text += "1,0,8192,w,40.25\n";
    let damaged = text + "0,0,512,X,41\n";
    std::fs::write(&path, damaged).expect("a file");
    let name = path.to_str().expect("a plain path");
    let answer = info(&[name]);
    assert!(answer.status.success(), "{answer:?}");
    let found = json(&answer);
    assert_eq!(
        (&found["format"], &found["requests"], &found["damaged"]),
        (&"spc".into(), &31.into(), &1.into())
    );
    assert_eq!(
        (&found["damaged_first"], &found["devices"]),
        (&32.into(), &2.into())
    );
    assert_eq!(
        (
            &found["ops"]["read"]["bytes"],
            &found["ops"]["write"]["requests"]
        ),
        (&122_880.into(), &1.into())
    );
    assert_eq!(
        (found["span_s"].as_f64(), &found["rate"]["peak_per_s"]),
        (Some(40.0), &1.into())
    );
    assert!(
        found["sequential_share"]
            .as_f64()
            .is_some_and(|share| (share - 29.0 / 31.0).abs() < 1e-9)
    );
    let strict = info(&[name, "--strict"]);
    assert_eq!(strict.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&strict.stderr).contains("cannot parse row 32 as spc"),
        "{strict:?}"
    );
    let stated = info(&[name, "--format", "msr"]);
    assert_eq!(json(&stated)["requests"], 0);
}

#[test]
fn a_file_that_is_no_trace_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x");
    std::fs::write(&path, "this is no trace\n").expect("a file");
    let answer = info(&[path.to_str().expect("a plain path")]);
    let said = String::from_utf8_lossy(&answer.stderr);
    assert_eq!(answer.status.code(), Some(2), "{said}");
    assert!(
        said.contains("not a supported block trace")
            && said.contains("--columns; formats are blkreplay, vscsi1"),
        "{said}"
    );
    assert_eq!(info(&["/nowhere/at/all"]).status.code(), Some(2));
}

/// A packet capture, compressed or not, is rejected, and the message names the command that reads it.
#[test]
fn a_packet_capture_is_refused_with_the_command_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let packed = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../testdata/nfs3-small.pcap.zst"
    );
    let mut pcap = b"\xd4\xc3\xb2\xa1\x02\0\x04\0".to_vec();
    pcap.resize(4096, 0);
    let plain = folder.path().join("x.pcap");
    std::fs::write(&plain, pcap).expect("a file");
    for path in [packed, plain.to_str().expect("a plain path")] {
        let answer = info(&[path]);
        let said = String::from_utf8_lossy(&answer.stderr);
        assert_eq!(answer.status.code(), Some(2), "{said}");
        assert!(
            said.contains("packet capture") && said.contains(&format!("brunt analyze {path}")),
            "{said}"
        );
    }
}

/// The same trace as SPC, iolog, MSR, .load and Parquet yields the same requests; slices are smaller.
#[test]
fn every_format_yields_the_same_requests() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| {
        folder
            .path()
            .join(name)
            .to_str()
            .expect("a plain path")
            .to_string()
    };
    let text: String = (0..500)
        .map(|row| format!("0,{},4096,R,{}.25\n", row * 800 % 999, row))
        .collect();
    std::fs::write(path("x.spc"), text).expect("a file");
    let digest = json(&info(&[&path("x.spc")]))["digest"].clone();
    assert_eq!(digest["requests"].as_str().map(str::len), Some(16));
    for format in [
        "parquet",
        "spc",
        "iolog2",
        "iolog3",
        "msr",
        "blkreplay",
        "hfplayer",
    ] {
        let out = path(&format!("out-{format}"));
        let answer = trace("convert", &[&path("x.spc"), "--to", format, "--out", &out]);
        assert_eq!(
            (&json(&answer)["written"], &json(&answer)["digest"]),
            (&500.into(), &digest),
            "{answer:?}"
        );
        assert_eq!(
            json(&info(&[&out, "--strict"]))["digest"],
            digest,
            "{format}"
        );
        let again = trace("convert", &[&path("x.spc"), "--to", format, "--out", &out]);
        assert_eq!(again.status.code(), Some(2), "{again:?}");
    }
    let (first, second, out) = (path("x.spc"), path("out-iolog3"), path("y"));
    let mut arguments = vec![
        first.as_str(),
        &second,
        "--from",
        "100s",
        "--for",
        "50s",
        "--merge-devices",
    ];
    arguments.extend(["--anonymize", "--to", "msr", "--out", &out]);
    let answer = json(&trace("convert", &arguments));
    // The 50 s that begin 100 s after the start contain 50 requests of each trace. The first trace's times begin at
    // 0.25 s.
    assert_eq!(
        (&answer["requests"], &answer["written"]),
        (&1000.into(), &100.into()),
        "{answer}"
    );
    let refused = trace(
        "convert",
        &[
            &path("x.spc"),
            "--to",
            "spc",
            "--out",
            &path("z"),
            "--share",
            "0",
        ],
    );
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

/// The experiment generated from a trace can be run.
#[test]
fn a_model_of_a_trace_can_be_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| {
        folder
            .path()
            .join(name)
            .to_str()
            .expect("a plain path")
            .to_string()
    };
    let text: String = (0..2000)
        .map(|row| {
            format!(
                "0,{},4096,R,{}.{:03}\n",
                row * 7919 % 9999 * 8,
                row / 100,
                row % 100
            )
        })
        .collect();
    std::fs::write(path("x.spc"), text).expect("a file");
    let answer = trace("fit", &[&path("x.spc"), "--out", &path("model.toml")]);
    let model = json(&answer);
    let parts: Vec<_> = model["distances"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|part| part["part"].clone())
        .collect();
    assert_eq!(
        parts,
        ["mix", "sizes", "runs", "arrivals", "locality", "reuse"]
    );
    assert_eq!(
        (&model["read"], &model["sizes"][0][0]),
        (&1.0.into(), &4096.into())
    );
    let mut program = Command::new(env!("CARGO_BIN_EXE_brunt"));
    let checked = program
        .args(["run", "--check", &path("model.toml")])
        .output()
        .expect("the program runs");
    assert!(
        checked.status.success(),
        "{checked:?}\n{}",
        std::fs::read_to_string(path("model.toml")).expect("text")
    );
}

/// A file that could be in either of two formats is rejected; it is read once the format is given.
#[test]
fn an_ambiguous_file_names_its_candidates() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x");
    std::fs::write(&path, "1,5,28,1,9\n1,6,28,0,9\n").expect("a file");
    let name = path.to_str().expect("a plain path");
    let answer = info(&[name]);
    let said = String::from_utf8_lossy(&answer.stderr);
    assert_eq!(answer.status.code(), Some(2), "{said}");
    assert!(
        said.contains("may be tencent or cloudphysics") && said.contains("--format"),
        "{said}"
    );
    assert_eq!(json(&info(&[name, "--format", "tencent"]))["requests"], 2);
    let without = info(&[name, "--format", "oracleGeneral"]);
    assert_eq!(without.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&without.stderr).contains("--op"),
        "{without:?}"
    );
}

/// Timestamps that run backwards are counted, and sorted on request.
#[test]
fn times_that_run_backwards_are_kept_or_sorted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x");
    std::fs::write(&path, "0,0,512,R,3\n0,8,512,R,1\n0,16,512,R,2\n").expect("a file");
    let name = path.to_str().expect("a plain path");
    let (kept, sorted) = (json(&info(&[name])), json(&info(&[name, "--sort"])));
    assert_eq!(
        (&kept["backwards"], &kept["out_of_order"], &kept["sorted"]),
        (&1.into(), &1.into(), &false.into())
    );
    assert_eq!(
        (&sorted["backwards"], &sorted["out_of_order"]),
        (&1.into(), &0.into())
    );
    assert_ne!(kept["digest"]["requests"], sorted["digest"]["requests"]);
}
