//! Compares operations with tshark's counts for the same captures.

mod fields;

use crate::common;
use std::collections::BTreeMap;
use std::path::Path;

use crate::common::tshark;
use brunt_capture::{Body, ChecksumRun, Limits, Operation, Sink, run_file};

/// Complete calls and replies, by procedure and by status.
#[derive(Default)]
struct Counts {
    by_procedure: BTreeMap<String, [u64; 2]>,
    by_status: BTreeMap<(u32, u32), u64>,
}

impl Sink for Counts {
    fn on_operation(&mut self, operation: &Operation<'_>) {
        let Some(Body::Nfs3 { procedure, .. }) = operation.rpc().map(|rpc| *rpc.body) else {
            return;
        };
        let counts = self
            .by_procedure
            .entry(procedure.name().to_string())
            .or_default();
        counts[0] += u64::from(operation.request.whole);
        counts[1] += u64::from(operation.reply.is_some_and(|reply| reply.whole));
        if let (Some(status), true) = (
            operation.summary.status,
            operation.reply.is_some_and(|reply| reply.whole),
        ) {
            *self
                .by_status
                .entry((procedure as u32, status))
                .or_default() += 1;
        }
    }
    fn on_checksums(&mut self, _: &ChecksumRun<'_>) {}
}

fn counts(path: &Path) -> Counts {
    let outcome = run_file(path, Counts::default(), Limits::default(), || false).unwrap();
    outcome.ledger.check().unwrap();
    assert!(outcome.damage.is_none());
    assert_eq!(outcome.ledger.bodies_malformed, 0);
    outcome.sink
}

/// For every procedure, the counts of calls and replies equal tshark's. (tshark counts complete messages, so those
/// cut off by the capture's end are left out.)
#[test]
fn counts_equal_tsharks() {
    for name in ["small-1500", "tput-9000", "retx-small", "retx-tput"] {
        let Some(path) = common::shared(&format!("{name}.pcap.zst")) else {
            return;
        };
        let truth =
            std::fs::read_to_string(path.with_file_name(format!("{name}.truth.tsv"))).unwrap();
        let truth: BTreeMap<String, [u64; 2]> = truth
            .lines()
            .skip(1)
            .map(|line| {
                let fields: Vec<&str> = line.split('\t').collect();
                (
                    fields[0].to_string(),
                    [fields[1].parse().unwrap(), fields[2].parse().unwrap()],
                )
            })
            .collect();
        assert_eq!(counts(&path).by_procedure, truth, "{name}");
    }
}

/// The fields that both brunt and tshark report for a call or a reply, as tshark prints them.
type Fields = BTreeMap<&'static str, String>;

/// The fields of calls and of replies, by client address, port and xid.
#[derive(Default)]
struct Collect {
    calls: BTreeMap<(String, String, u32), Fields>,
    replies: BTreeMap<(String, String, u32), Fields>,
}

const CALL_FIELDS: [&str; 12] = [
    "nfs.procedure_v3",
    "nfs.offset3",
    "nfs.count3",
    "nfs.count3_dircount",
    "nfs.count3_maxcount",
    "nfs.cookie3",
    "nfs.name",
    "nfs.fh.length",
    "nfs.write.stable",
    "nfs.symlink.to",
    "nfs.set_size",
    "rpc.auth.machinename",
];
const REPLY_FIELDS: [&str; 14] = [
    "nfs.status3",
    "nfs.fattr3.type",
    "nfs.fattr3.nlink",
    "nfs.fattr3.size",
    "nfs.fattr3.used",
    "nfs.fattr3.fileid",
    "nfs.wcc_attr.size",
    "nfs.read.eof",
    "nfs.write.committed",
    "nfs.fsinfo.rtmax",
    "nfs.fsinfo.maxfilesize",
    "nfs.fsstat3_resok.tbytes",
    "nfs.pathconf.name_max",
    "nfs.readdir.eof",
];

impl Sink for Collect {
    fn on_operation(&mut self, operation: &Operation<'_>) {
        let Some(Body::Nfs3 {
            procedure,
            args,
            results,
        }) = operation.rpc().map(|rpc| *rpc.body)
        else {
            return;
        };
        let client = operation.peers.client;
        let id = (
            client.address.to_string(),
            client.port.to_string(),
            operation.tag,
        );
        if let Some(args) = args {
            self.calls
                .insert(id.clone(), fields::of_call(operation, procedure, args));
        }
        if let Some(results) = results {
            self.replies
                .insert(id, fields::of_reply(procedure, results));
        }
    }
    fn on_checksums(&mut self, _: &ChecksumRun<'_>) {}
}

fn check_fields(path: &Path, sample_min: usize) {
    let ours = run_file(path, Collect::default(), Limits::default(), || false)
        .unwrap()
        .sink;
    let compare = |filter: &str,
                   port: &str,
                   address: &str,
                   names: &[&'static str],
                   ours: &BTreeMap<_, Fields>| {
        let mut asked = vec![address, port, "rpc.xid"];
        asked.extend(names);
        let rows = tshark(path, filter, &asked)?;
        let mut compared = 0;
        for row in rows {
            // For a frame with several messages, tshark prints their fields together, so they can't be told apart.
            let [address, port, xid] = &row[..3] else {
                continue;
            };
            let Ok(xid) = u32::from_str_radix(xid.trim_start_matches("0x"), 16) else {
                continue;
            };
            let Some(mine) = ours.get(&(address.clone(), port.clone(), xid)) else {
                panic!("tshark has {row:?}, and here it is not")
            };
            for (name, theirs) in names.iter().zip(&row[3..]) {
                let mine = mine.get(name).map_or("", String::as_str);
                assert_eq!(
                    mine, theirs,
                    "{name} of {address}:{port} xid {xid:#x}: ours, then tshark's"
                );
            }
            compared += 1;
        }
        Some(compared)
    };
    let calls = compare(
        "nfs && rpc.msgtyp == 0",
        "tcp.srcport",
        "ip.src",
        &CALL_FIELDS,
        &ours.calls,
    );
    let replies = compare(
        "nfs && rpc.msgtyp == 1",
        "tcp.dstport",
        "ip.dst",
        &REPLY_FIELDS,
        &ours.replies,
    );
    if let (Some(calls), Some(replies)) = (calls, replies) {
        println!(
            "{}: {calls} calls and {replies} replies compared",
            path.display()
        );
        assert!(
            calls >= sample_min && replies >= sample_min,
            "{calls} calls, {replies} replies compared"
        );
    }
}

/// Every field of every operation that tshark shows alone in its frame is equal.
#[test]
fn fields_equal_tsharks_on_the_small_piece() {
    check_fields(&common::small_piece(), 200);
}

/// For tens of thousands of operations, too, every field equals tshark's.
#[test]
fn fields_equal_tsharks() {
    if let Some(path) = common::shared("retx-small.pcap.zst") {
        check_fields(&path, 10_000);
    }
}

/// For every procedure, the counts of statuses equal tshark's.
#[test]
fn statuses_equal_tsharks() {
    let path = common::small_piece();
    let Some(rows) = tshark(
        &path,
        "nfs && rpc.msgtyp == 1",
        &["nfs.procedure_v3", "nfs.status3"],
    ) else {
        return;
    };
    let mut theirs: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for row in rows {
        let list = |text: &str| {
            text.split('|')
                .filter_map(|n| n.parse().ok())
                .collect::<Vec<u32>>()
        };
        let (procedures, statuses) = (list(&row[0]), list(&row[1]));
        // NULL has no status, and the small capture contains no NULL.
        assert_eq!(procedures.len(), statuses.len(), "{row:?}");
        for pair in procedures.into_iter().zip(statuses) {
            *theirs.entry(pair).or_default() += 1;
        }
    }
    // tshark also shows replies to calls from before the capture, but without their procedure.
    assert_eq!(counts(&path).by_status, theirs);
}
