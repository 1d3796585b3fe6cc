//! Converting a trace between formats preserves its request stream, except for what a format cannot express.

use std::io::Cursor;
use std::sync::{Arc, Mutex};

use crate::{
    BlockRequest, DigestBuilder, StreamDigest, TraceOp, TraceReader, TraceSink, WRITERS,
    WriteLedger, format_named, writer_named,
};

fn read(reader: &mut TraceReader) -> (Vec<BlockRequest>, StreamDigest) {
    let (mut all, mut digest) = (Vec::new(), DigestBuilder::default());
    while let Some(requests) = reader.next_requests().unwrap() {
        digest.add(requests);
        all.extend_from_slice(requests);
    }
    (all, digest.finish())
}

fn open(bytes: &[u8], format: &str) -> TraceReader {
    let input = Box::new(Cursor::new(bytes.to_vec()));
    TraceReader::from_reader("x".into(), input, format_named(format), true).unwrap()
}

/// A shared buffer that a test inspects after writing.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn convert(reader: &mut TraceReader, to: &str) -> (Vec<u8>, WriteLedger) {
    let shared = Shared::default();
    let mut sink = TraceSink::file(
        "y".into(),
        Box::new(shared.clone()),
        writer_named(to).unwrap(),
    );
    while reader.next_requests().unwrap().is_some() {
        sink.write(reader.requests(), reader.devices()).unwrap();
    }
    let ledger = sink.finish(reader.devices()).unwrap();
    let bytes = shared.0.lock().unwrap().clone();
    (bytes, ledger)
}

/// 3,000 vscsi records like CloudPhysics': reads and writes of one device, in microseconds.
fn vscsi() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut random = brunt_core::random::Random::new(7);
    let mut time_us = 5_633_898_000_000u64;
    for serial in 0..3000u32 {
        time_us += random.below(3000);
        bytes.extend(serial.to_le_bytes());
        bytes.extend((512 * (1 + random.below(256)) as u32).to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        let command: u16 = if random.chance(0.3) { 0x28 } else { 0x2a };
        bytes.extend(command.to_le_bytes());
        bytes.extend(0x0100u16.to_le_bytes());
        bytes.extend(random.below(1 << 30).to_le_bytes());
        bytes.extend(time_us.to_le_bytes());
    }
    bytes
}

#[test]
fn every_written_format_gives_the_same_stream() {
    let trace = vscsi();
    let (requests, digest) = read(&mut open(&trace, "vscsi1"));
    assert_eq!(requests.len(), 3000);
    for writer in WRITERS {
        let (text, ledger) = convert(&mut open(&trace, "vscsi1"), writer.name);
        assert_eq!(
            ledger,
            WriteLedger {
                written: 3000,
                ..WriteLedger::default()
            },
            "{}",
            writer.name
        );
        let (again, same) = read(&mut open(&text, writer.name));
        assert_eq!(
            (again.len(), same),
            (3000, digest.clone()),
            "{}",
            writer.name
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let mut sink = TraceSink::table(folder.path()).unwrap();
    let mut reader = open(&trace, "vscsi1");
    while reader.next_requests().unwrap().is_some() {
        sink.write(reader.requests(), reader.devices()).unwrap();
    }
    sink.finish(reader.devices()).unwrap();
    let mut tables = TraceReader::open(folder.path(), None, true).unwrap();
    assert_eq!(
        (tables.format().name, read(&mut tables).1),
        ("block_requests", digest)
    );
}

/// Each target format leaves out the operations, alignments and devices that it cannot express, and counts them.
#[test]
fn requests_that_a_format_cannot_express_are_left_out_and_counted() {
    let text = b"fio version 3 iolog\n0 a b\n0 a add\n5 a read 4096 512\n6 a sync 0 0\n7 c write 1000 512\n8 c trim 0 512\n";
    let reader = || {
        let input = Box::new(Cursor::new(text.to_vec()));
        TraceReader::from_reader("x".into(), input, format_named("iolog3"), false).unwrap()
    };
    let ledger = |written, left_out_operation, left_out_unaligned, left_out_device| WriteLedger {
        written,
        left_out_operation,
        left_out_unaligned,
        left_out_device,
    };
    assert_eq!(convert(&mut reader(), "spc").1, ledger(1, 2, 1, 0));
    assert_eq!(convert(&mut reader(), "msr").1, ledger(2, 2, 0, 0));
    assert_eq!(convert(&mut reader(), "blkreplay").1, ledger(1, 1, 0, 2));
    assert_eq!(convert(&mut reader(), "iolog2").1, ledger(4, 0, 0, 0));
    let (text, _) = convert(&mut reader(), "iolog3");
    let (requests, _) = read(&mut open(&text, "iolog3"));
    let ops: Vec<_> = requests.iter().map(|request| request.op).collect();
    assert_eq!(
        ops,
        [
            TraceOp::Read,
            TraceOp::Flush,
            TraceOp::Write,
            TraceOp::Unmap
        ]
    );
}
