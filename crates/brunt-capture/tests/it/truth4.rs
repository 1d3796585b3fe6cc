//! Compares NFSv4 compounds with tshark's output for the same capture.

use crate::common;
use std::collections::BTreeMap;

use crate::common::tshark;
use brunt_capture::{Analysis, Body, ChecksumRun, Limits, Operation, Sink, run_file};
use brunt_wire::nfs::v4;

/// Each field as tshark prints it, by name.
type Fields = BTreeMap<&'static str, String>;

#[derive(Default)]
struct Collect {
    /// Keyed by the client's port and xid.
    calls: BTreeMap<(String, u32), Fields>,
    replies: BTreeMap<(String, u32), Fields>,
    /// Operations requested and answered, by number.
    counts: BTreeMap<u32, [u64; 2]>,
}

const CALL_FIELDS: [&str; 7] = [
    "nfs.minorversion",
    "nfs.opcode",
    "nfs.fh.length",
    "nfs.offset4",
    "nfs.slotid",
    "nfs.fattr4.size",
    "nfs.write.data_length",
];
const REPLY_FIELDS: [&str; 10] = [
    "nfs.opcode",
    "nfs.status",
    "nfs.fh.length",
    "nfs.slotid",
    "nfs.read.data_length",
    "nfs.fattr4.size",
    "nfs.fattr4.fileid",
    "nfs.fattr4.numlinks",
    "nfs.fattr4.space_used",
    "nfs.entry_name",
];

fn add(fields: &mut Fields, name: &'static str, value: impl ToString) {
    let text = fields.entry(name).or_default();
    if !text.is_empty() {
        text.push('|');
    }
    text.push_str(&value.to_string());
}

fn attributes(fields: &mut Fields, list: &v4::FileAttributes<'_>) {
    let found = list.parse();
    assert_eq!(found.unparsed, None);
    let mut number = |name, value: Option<u64>| {
        if let Some(value) = value {
            add(fields, name, value);
        }
    };
    number("nfs.status", found.rdattr_error.map(u64::from));
    number("nfs.fattr4.size", found.size);
    number("nfs.fattr4.fileid", found.fileid);
    number("nfs.fattr4.numlinks", found.numlinks.map(u64::from));
    number("nfs.fattr4.space_used", found.space_used);
    if let Some(handle) = found.handle {
        add(fields, "nfs.fh.length", handle.0.len());
    }
}

fn of_call(call: &v4::CompoundArgs<'_>) -> Fields {
    let mut fields = Fields::default();
    let f = &mut fields;
    add(f, "nfs.minorversion", call.minor_version);
    for args in call.operations() {
        let args = args.unwrap();
        add(f, "nfs.opcode", args.op().unwrap() as u32);
        match args {
            v4::Args::Putfh { object } => add(f, "nfs.fh.length", object.0.len()),
            v4::Args::Sequence { slot, .. } => add(f, "nfs.slotid", slot),
            v4::Args::Read { offset, .. }
            | v4::Args::Commit { offset, .. }
            | v4::Args::Allocate { offset, .. }
            | v4::Args::Deallocate { offset, .. }
            | v4::Args::Lock { offset, .. }
            | v4::Args::Locku { offset, .. } => add(f, "nfs.offset4", offset),
            v4::Args::Write { offset, data, .. } => {
                add(f, "nfs.offset4", offset);
                add(f, "nfs.write.data_length", data.len);
            }
            v4::Args::Setattr {
                attributes: list, ..
            }
            | v4::Args::Create {
                attributes: list, ..
            } => {
                attributes(f, &list);
            }
            v4::Args::Open {
                create:
                    v4::OpenCreate::Unchecked(list)
                    | v4::OpenCreate::Guarded(list)
                    | v4::OpenCreate::Exclusive(_, Some(list)),
                ..
            } => attributes(f, &list),
            _ => {}
        }
    }
    fields
}

fn of_reply(reply: &v4::CompoundResults<'_>) -> Fields {
    let mut fields = Fields::default();
    let f = &mut fields;
    add(f, "nfs.status", reply.status.0);
    for result in reply.operations() {
        let result = result.unwrap();
        add(f, "nfs.opcode", result.number);
        add(f, "nfs.status", result.status.0);
        match result.body {
            v4::ResultBody::Getattr { attributes: list } => attributes(f, &list),
            v4::ResultBody::Getfh { object } => add(f, "nfs.fh.length", object.0.len()),
            v4::ResultBody::Sequence { slot, .. } => add(f, "nfs.slotid", slot),
            v4::ResultBody::Read { data, .. } => add(f, "nfs.read.data_length", data.len),
            v4::ResultBody::Readdir { entries, .. } => {
                for entry in entries.iter() {
                    add(f, "nfs.entry_name", String::from_utf8_lossy(entry.name));
                    attributes(f, &entry.attributes);
                }
            }
            _ => {}
        }
    }
    fields
}

impl Sink for Collect {
    fn on_operation(&mut self, operation: &Operation<'_>) {
        let Some(Body::Nfs4 {
            call: Some(call),
            reply,
        }) = operation.rpc().map(|rpc| rpc.body)
        else {
            return;
        };
        for args in call.operations() {
            self.counts
                .entry(args.unwrap().op().unwrap() as u32)
                .or_default()[0] += 1;
        }
        let id = (operation.peers.client.port.to_string(), operation.tag);
        self.calls.insert(id.clone(), of_call(call));
        if let Some(reply) = reply {
            for result in reply.operations() {
                self.counts.entry(result.unwrap().number).or_default()[1] += 1;
            }
            self.replies.insert(id, of_reply(reply));
        }
    }
    fn on_checksums(&mut self, _: &ChecksumRun<'_>) {}
}

fn collect() -> Collect {
    let outcome = run_file(
        &common::small_compounds(),
        Collect::default(),
        Limits::default(),
        || false,
    )
    .unwrap();
    let ledger = outcome.ledger;
    ledger.check().unwrap();
    let unparsed = |name: &str| name == "compounds_unparsed" || name == "attributes_unparsed";
    let not_understood: u64 = ledger
        .named()
        .filter(|(name, _)| unparsed(name))
        .map(|(_, count)| count)
        .sum();
    assert_eq!((ledger.bodies_malformed, not_understood), (0, 0));
    assert_eq!((ledger.records_lost, ledger.bytes_unclaimed), (0, 0));
    outcome.sink
}

/// The counts of operations requested and answered equal tshark's.
#[test]
fn counts_equal_tsharks() {
    let truth = include_str!("../../../../testdata/nfs4-small.truth.tsv");
    let truth: BTreeMap<u32, [u64; 2]> = truth
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            (
                fields[0].parse().unwrap(),
                [fields[2].parse().unwrap(), fields[3].parse().unwrap()],
            )
        })
        .collect();
    assert_eq!(collect().counts, truth);
}

/// Every field of every compound that tshark shows alone in its frame is equal.
#[test]
fn fields_equal_tsharks() {
    let ours = collect();
    let compare = |filter: &str, port: &str, names: &[&'static str], ours: &BTreeMap<_, Fields>| {
        let mut asked = vec![port, "rpc.xid"];
        asked.extend(names);
        let mut compared = 0;
        for row in tshark(&common::small_compounds(), filter, &asked)? {
            // For a frame with several messages, tshark prints their fields together, so they can't be told apart.
            let Ok(xid) = u32::from_str_radix(row[1].trim_start_matches("0x"), 16) else {
                continue;
            };
            // NULL has no fields.
            let Some(mine) = ours.get(&(row[0].clone(), xid)) else {
                assert!(
                    row[2..].iter().all(String::is_empty),
                    "tshark has {row:?}, and here it is not"
                );
                continue;
            };
            for (name, theirs) in names.iter().zip(&row[2..]) {
                let mine = mine.get(name).map_or("", String::as_str);
                assert_eq!(
                    mine, theirs,
                    "{name} of port {} xid {xid:#x}: ours, then tshark's",
                    row[0]
                );
            }
            compared += 1;
        }
        Some(compared)
    };
    let calls = compare(
        "nfs && rpc.msgtyp == 0",
        "tcp.srcport",
        &CALL_FIELDS,
        &ours.calls,
    );
    let replies = compare(
        "nfs && rpc.msgtyp == 1",
        "tcp.dstport",
        &REPLY_FIELDS,
        &ours.replies,
    );
    if let (Some(calls), Some(replies)) = (calls, replies) {
        println!("{calls} calls and {replies} replies compared");
        assert!(
            calls >= 500 && replies >= 500,
            "{calls} calls, {replies} replies compared"
        );
    }
}

/// Files have the paths to which their names led, and the bytes that were read and written.
#[test]
fn files_have_their_paths_and_bytes() {
    let path = common::small_compounds();
    let outcome = run_file(&path, Analysis::new(), Limits::default(), || false).unwrap();
    let report = outcome.sink.report(&outcome.ledger);
    let files = report.files.expect("all analyses ran");
    let file = |end: &str| files.top.iter().find(|row| row.name.ends_with(end));
    for minor in 0..3 {
        let big = file(&format!(":/data/v4.{minor}/dir1/big"));
        let big = big.unwrap_or_else(|| panic!("4.{minor}: {:?}", files.top));
        // 60,894 bytes were written, and then read twice.
        assert_eq!(big.bytes, 3 * 60_894, "4.{minor}");
    }
    let row = |name: &str| {
        report
            .by_operation
            .iter()
            .find(|row| row.name == name)
            .unwrap()
    };
    assert_eq!(
        report.profile.expect("not left out").read.operations,
        row("READ").calls
    );
    let duplicates = &report.rows["duplicates"];
    let blocks = ["blocks_read", "blocks_written"].map(|name| duplicates[name].as_u64());
    assert!(
        blocks.iter().all(|blocks| *blocks > Some(300)),
        "{duplicates}"
    );
    assert!(
        duplicates["duplicate_share"].as_f64() > Some(0.5),
        "the same data in three files"
    );
}
