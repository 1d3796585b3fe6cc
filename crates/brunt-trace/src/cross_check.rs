//! Cross-checks against other programs: blkparse reads blktrace's files as we do, fio reads the
//! iologs that we write, and we read the iologs that fio writes.

use std::io::Cursor;
use std::path::Path;
use std::process::Command;

use crate::formats::blktrace::encode;
use crate::{BlockRequest, TraceOp, TraceReader, TraceSink, format_named, writer_named};

/// Runs a program and returns its output; `None` if it is not installed. Panics if it is not installed and no test
/// may be skipped.
fn run(program: &str, folder: &Path, arguments: &[&str]) -> Option<String> {
    let answer = match Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
    {
        Ok(answer) => answer,
        Err(error) => {
            let required = std::env::var_os("BRUNT_REQUIRE_ALL").is_some_and(|value| value == "1");
            assert!(!required, "needs {program}: {error}");
            println!("skipped: needs {program}");
            return None;
        }
    };
    assert!(answer.status.success(), "{program}: {answer:?}");
    Some(String::from_utf8_lossy(&answer.stdout).into_owned())
}

fn all(mut reader: TraceReader) -> Vec<BlockRequest> {
    let mut all = Vec::new();
    while let Some(requests) = reader.next_requests().unwrap() {
        all.extend_from_slice(requests);
    }
    assert_eq!(reader.ledger().damaged, 0);
    all
}

/// Writes, reads, a flush, a discard and FUA, dispatched on one CPU and completed on the other.
#[test]
fn blkparse_reads_the_same_events() {
    const WRITE: u64 = 2 << 16;
    const READ: u64 = 1 << 16;
    const FLUSH: u64 = 1 << 18;
    const DISCARD: u64 = 1 << 29;
    const FUA: u64 = 1 << 31;
    const ISSUE: u64 = 7 | 1 << 22;
    const COMPLETE: u64 = 8 | 1 << 23;
    let kinds = [
        (WRITE, 4096),
        (READ, 8192),
        (WRITE | FUA, 512),
        (WRITE | DISCARD, 65_536),
        (FLUSH, 0),
    ];
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for index in 0..200u64 {
        let (kind, bytes) = kinds[index as usize % kinds.len()];
        let sector = if bytes == 0 { 0 } else { 1000 + index * 128 };
        let event = |cpu: u32, time_ns, action| {
            let mut event = encode(7, false, time_ns, action, sector, bytes);
            // blkparse orders events by sequence number, which each CPU counts separately.
            event[4..8].copy_from_slice(&(index as u32 + 1).to_le_bytes());
            event[40..44].copy_from_slice(&cpu.to_le_bytes());
            event
        };
        first.extend(event(0, 1000 + index * 10_000, ISSUE | kind));
        second.extend(event(1, 4000 + index * 10_000, COMPLETE | kind));
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.blktrace.0"), first).unwrap();
    std::fs::write(folder.path().join("x.blktrace.1"), second).unwrap();
    let Some(text) = run("blkparse", folder.path(), &["-i", "x"]) else {
        return;
    };
    let parsed = Box::new(Cursor::new(text.into_bytes()));
    let parsed =
        all(
            TraceReader::from_reader("text".into(), parsed, format_named("blkparse"), false)
                .unwrap(),
        );
    let mut own = all(TraceReader::open(&folder.path().join("x"), None, true).unwrap());
    // blkparse's clock starts at the first event.
    own.iter_mut().for_each(|request| request.time_ns -= 1000);
    assert_eq!((own.len(), parsed.len()), (200, 200));
    assert_eq!(own, parsed);
    assert!(own.iter().all(|request| request.response_ns == Some(3000)));
    assert_eq!(
        (own[2].fua, own[3].op, own[4].op),
        (true, TraceOp::Unmap, TraceOp::Flush)
    );
}

#[test]
fn fio_reads_what_we_write_and_writes_what_we_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let common = ["--name=x", "--ioengine=null", "--output-format=json"];
    let arguments = [
        &common[..],
        &[
            "--rw=randrw",
            "--bs=4k",
            "--size=4m",
            "--filename=f",
            "--write_iolog=w",
        ],
    ]
    .concat();
    let Some(text) = run("fio", folder.path(), &arguments) else {
        return;
    };
    let total = |text: &str, kind: &str| {
        let json: serde_json::Value =
            serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
        let kind = &json["jobs"][0][kind];
        (
            kind["total_ios"].as_u64().unwrap(),
            kind["io_bytes"].as_u64().unwrap_or(0),
        )
    };
    let sum = |requests: &[BlockRequest], op: TraceOp| {
        let of = requests.iter().filter(|request| request.op == op);
        of.fold((0, 0), |(count, bytes), request| {
            (count + 1, bytes + u64::from(request.len_bytes))
        })
    };
    let written = all(TraceReader::open(&path("w"), None, true).unwrap());
    assert_eq!(written.len(), 1024);
    for (kind, op) in [("read", TraceOp::Read), ("write", TraceOp::Write)] {
        assert_eq!(sum(&written, op), total(&text, kind), "{kind}");
    }
    for version in ["iolog2", "iolog3"] {
        let file = std::fs::File::create(path(version)).unwrap();
        let mut sink = TraceSink::file(
            version.into(),
            Box::new(file),
            writer_named(version).unwrap(),
        );
        let mut reader = TraceReader::open(&path("w"), None, true).unwrap();
        while reader.next_requests().unwrap().is_some() {
            sink.write(reader.requests(), reader.devices()).unwrap();
        }
        sink.finish(reader.devices()).unwrap();
        let arguments = [&common[..], &["--replay_no_stall=1", "--read_iolog"]].concat();
        let iolog = format!("{}={version}", arguments[arguments.len() - 1]);
        let arguments = [&arguments[..arguments.len() - 1], &[iolog.as_str()]].concat();
        let Some(text) = run("fio", folder.path(), &arguments) else {
            return;
        };
        for (kind, op) in [("read", TraceOp::Read), ("write", TraceOp::Write)] {
            assert_eq!(total(&text, kind), sum(&written, op), "{version} {kind}");
        }
    }
}
