//! Compares a trace's tables of NFSv4 attributes and of callers with tshark's fields.

use crate::common;
use std::collections::BTreeMap;
use std::path::Path;

use crate::common::tshark;
use brunt_capture::trace::pcap::{PacketFiles, PcapOptions};
use brunt_capture::trace::{TraceOptions, TraceRecorder, tables};
use brunt_capture::{Limits, run_file};
use brunt_lake::{Batch, ColumnKind, Table, read_table};
use brunt_wire::pcap::{CapturedPacket, LinkType};
use tempfile::tempdir;

fn record(capture: &Path, folder: &Path) {
    let options = TraceOptions {
        repeats_attributes: true,
        ..TraceOptions::default()
    };
    record_with(capture, folder, &options);
}

fn record_with(capture: &Path, folder: &Path, options: &TraceOptions) {
    let recorder = TraceRecorder::create(folder, options).unwrap();
    let mut outcome = run_file(capture, recorder, Limits::default(), || false).unwrap();
    let (_, error) = outcome.sink.finish(&mut outcome.ledger);
    assert!(error.is_none(), "{error:?}");
}

/// The values of a row by column, without nulls.
type Cells = BTreeMap<&'static str, String>;

fn rows(folder: &Path, table: &'static Table) -> Vec<Cells> {
    let mut all = Vec::new();
    read_table(folder, table, |batch: &Batch| {
        let first = all.len();
        all.resize(first + batch.rows(), Cells::new());
        for column in table.columns {
            let name = column.name;
            let values: Vec<String> = match column.kind {
                ColumnKind::Text => batch.texts(name).map(str::to_string).collect(),
                ColumnKind::Bool => batch.bools(name).iter().map(bool::to_string).collect(),
                _ => batch.ints(name).iter().map(i64::to_string).collect(),
            };
            for (row, value) in values
                .into_iter()
                .enumerate()
                .filter(|(row, _)| !batch.is_null(name, *row))
            {
                all[first + row].insert(name, value);
            }
        }
    })
    .unwrap();
    all
}

/// The client's port and xid of each call, by record id.
fn calls(folder: &Path) -> BTreeMap<String, (String, u32)> {
    let ports: BTreeMap<String, String> = rows(folder, &tables::FLOWS)
        .into_iter()
        .map(|row| {
            (
                row["flow"].clone(),
                row.get("source_port").cloned().unwrap_or_default(),
            )
        })
        .collect();
    let operations = rows(folder, &tables::OPERATIONS);
    operations
        .iter()
        .map(|row| {
            (
                row["record_id"].clone(),
                (ports[&row["flow"]].clone(), row["tag"].parse().unwrap()),
            )
        })
        .collect()
}

/// tshark's name of a field, and the columns that correspond to the field's values, in order.
type Field = (&'static str, &'static [&'static str]);

/// tshark prints each of these fields once per attribute list.
const ATTRIBUTES: [Field; 15] = [
    ("nfs.nfs_ftype4", &["file_type"]),
    ("nfs.changeid4", &["change"]),
    ("nfs.fattr4.size", &["size_bytes"]),
    ("nfs.fsid4.major", &["fsid_major"]),
    ("nfs.fsid4.minor", &["fsid_minor"]),
    ("nfs.fattr4.fileid", &["fileid"]),
    ("nfs.mode", &["mode"]),
    ("nfs.fattr4.numlinks", &["nlink"]),
    ("nfs.fattr4_owner", &["owner"]),
    ("nfs.fattr4_owner_group", &["owner_group"]),
    ("nfs.specdata1", &["device_major"]),
    ("nfs.specdata2", &["device_minor"]),
    ("nfs.fattr4.space_used", &["used_bytes"]),
    ("nfs.nfstime4.seconds", &["atime", "ctime", "mtime"]),
    ("nfs.nfstime4.nseconds", &["atime", "ctime", "mtime"]),
];

/// If tshark shows a compound alone in its frame, each of its attributes is in the table.
#[test]
fn attributes_equal_tsharks() {
    let capture = common::small_compounds();
    let folder = tempdir().unwrap();
    let trace = folder.path().join("trace");
    record(&capture, &trace);
    let calls = calls(&trace);
    let mut ours: BTreeMap<(bool, &(String, u32)), Vec<Cells>> = BTreeMap::new();
    let attributes = rows(&trace, &tables::COMPOUND_ATTRIBUTES);
    assert!(attributes.iter().all(|row| !row.contains_key("unparsed")));
    let entries = attributes
        .iter()
        .filter(|row| row.contains_key("name"))
        .count();
    assert!(entries > 30, "{entries} entries of directories");
    for row in attributes {
        let key = (row["by_client"] == "true", &calls[&row["record_id"]]);
        ours.entry(key).or_default().push(row);
    }
    for (set, filter, port) in [
        (true, "nfs && rpc.msgtyp == 0", "tcp.srcport"),
        (false, "nfs && rpc.msgtyp == 1", "tcp.dstport"),
    ] {
        let mut asked = vec![port, "rpc.xid"];
        asked.extend(ATTRIBUTES.iter().map(|(field, _)| *field));
        let Some(shown) = tshark(&capture, filter, &asked) else {
            return;
        };
        let (mut compared, mut values) = (0, 0);
        for row in shown {
            // For a frame with several messages, tshark prints their fields together, so they can't be told apart.
            let Ok(xid) = u32::from_str_radix(row[1].trim_start_matches("0x"), 16) else {
                continue;
            };
            let id = (row[0].clone(), xid);
            let lists = ours.get(&(set, &id)).map_or(&[][..], Vec::as_slice);
            for ((field, columns), theirs) in ATTRIBUTES.iter().zip(&row[2..]) {
                let of = |cells: &Cells, column| -> Option<String> {
                    let value: &String = cells.get(column)?;
                    Some(match *field {
                        "nfs.nfstime4.seconds" => {
                            (value.parse::<i64>().unwrap() / 1_000_000_000).to_string()
                        }
                        "nfs.nfstime4.nseconds" => {
                            (value.parse::<i64>().unwrap() % 1_000_000_000).to_string()
                        }
                        _ => value.clone(),
                    })
                };
                let mine = lists
                    .iter()
                    .flat_map(|cells| columns.iter().filter_map(|column| of(cells, column)));
                let mine: Vec<String> = mine.collect();
                let theirs: Vec<&str> = theirs
                    .split('|')
                    .filter(|value| !value.is_empty())
                    .collect();
                let place = format!("{field} of port {} xid {xid:#x}", row[0]);
                if field.starts_with("nfs.nfstime4") {
                    // tshark's values also include times of other kinds, such as the time granularity or when a
                    // server was built.
                    let mut rest = theirs.iter();
                    let all = mine.iter().all(|value| rest.any(|other| other == value));
                    assert!(all, "{place}: ours {mine:?}, tshark's {theirs:?}");
                } else {
                    assert_eq!(mine, theirs, "{place}: ours, then tshark's");
                }
                values += mine.len();
            }
            compared += 1;
        }
        println!("{compared} messages with {values} values compared");
        assert!(
            compared >= 500 && values >= if set { 80 } else { 4000 },
            "{compared} messages, {values} values"
        );
    }
}

/// A trace stores a set of attributes only if it differs from the last set stored for the file: filling in the
/// omitted sets gives the attributes of every reply. This holds for both versions of NFS.
#[test]
fn attributes_are_stored_when_they_change() {
    for (capture, table, repeats_last_written) in [
        (
            common::small_piece(),
            &tables::ATTRIBUTES,
            (|_| true) as fn(&Cells) -> bool,
        ),
        (
            common::small_compounds(),
            &tables::COMPOUND_ATTRIBUTES,
            |row| row["by_client"] == "false",
        ),
    ] {
        let folder = tempdir().unwrap();
        let (all, changes) = (folder.path().join("all"), folder.path().join("changes"));
        record(&capture, &all);
        record_with(&capture, &changes, &TraceOptions::default());
        let of_files = |folder: &Path| {
            let mut of_files: BTreeMap<String, Vec<Cells>> = BTreeMap::new();
            for row in rows(folder, table).into_iter().filter(repeats_last_written) {
                if let Some(file) = row.get("file") {
                    of_files.entry(file.clone()).or_default().push(row);
                }
            }
            of_files
        };
        // The attributes stored for a file, without the operation that reported them.
        let told = |row: &Cells| {
            let mut row = row.clone();
            row.retain(|column, _| {
                !["record_id", "role", "entry", "position", "name"].contains(column)
            });
            row
        };
        let (all, changes) = (of_files(&all), of_files(&changes));
        let count =
            |of_files: &BTreeMap<_, Vec<Cells>>| of_files.values().map(Vec::len).sum::<usize>();
        println!("{} of {} sets are stored", count(&changes), count(&all));
        assert!(count(&changes) < count(&all) && changes.len() == all.len());
        for (file, all) in all {
            let mut stored = changes[&file].iter().peekable();
            let mut last = None;
            for row in &all {
                if stored.peek().is_some_and(|next| *next == row) {
                    last = stored.next();
                }
                assert_eq!(last.map(told), Some(told(row)), "file {file}");
            }
            assert_eq!(stored.next(), None);
        }
    }
}

/// The attributes from before an operation are those stored last, unless they are in `pre_op_attributes`.
#[test]
fn attributes_before_an_operation_are_stored_only_if_they_differ() {
    let folder = tempdir().unwrap();
    let (all, changes) = (folder.path().join("all"), folder.path().join("changes"));
    record(&common::small_piece(), &all);
    record_with(&common::small_piece(), &changes, &TraceOptions::default());
    let (all, stored) = (
        rows(&all, &tables::PRE_OP_ATTRIBUTES),
        rows(&changes, &tables::PRE_OP_ATTRIBUTES),
    );
    assert!(stored.len() < all.len() && stored.iter().all(|row| all.contains(row)));
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A NULL call of NFSv3 whose caller has three supplementary groups.
fn a_caller_with_groups() -> Vec<u8> {
    let mut credentials = words(&[0x1234_5678, 6]);
    credentials.extend_from_slice(b"worker\0\0");
    credentials.extend(words(&[1000, 100, 3, 4, 24, 0xffff_fffe]));
    let mut call = words(&[7, 0, 2, 100_003, 3, 0, 1, credentials.len() as u32]);
    call.extend(credentials);
    call.extend(words(&[0, 0]));
    call
}

/// One UDP datagram with an RPC call, in a capture.
fn captured(call: &[u8], file: &Path) {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend(((28 + call.len()) as u16).to_be_bytes());
    frame.extend([
        0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x03, 0x09, 0x08, 0x01,
    ]);
    frame.extend(((8 + call.len()) as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(call);
    let mut writer = PacketFiles::create(PcapOptions::new(file.to_path_buf())).unwrap();
    let packet = CapturedPacket {
        time_ns: 1_700_000_000_000_000_000,
        wire_len: frame.len() as u32,
        interface: 0,
        link: LinkType::Ethernet,
        bytes: &frame,
    };
    writer.write(&packet).unwrap();
    assert!(writer.finish().1.is_none());
}

/// An operation with an undefined number has a row, which is the last row of its compound.
#[test]
fn undefined_operations_have_a_row() {
    let mut call = words(&[7, 0, 2, 100_003, 4, 1, 0, 0, 0, 0]);
    // No tag, minor version 1, three operations: PUTROOTFH, 4711, PUTROOTFH.
    call.extend(words(&[0, 1, 3, 24, 4711, 24]));
    let folder = tempdir().unwrap();
    let (file, trace) = (
        folder.path().join("crafted.pcap"),
        folder.path().join("trace"),
    );
    captured(&call, &file);
    record(&file, &trace);
    let rows = rows(&trace, &tables::COMPOUNDS);
    let rows: Vec<(&str, Option<&str>)> = rows
        .iter()
        .map(|row| (&*row["operation"], row.get("argument").map(String::as_str)))
        .collect();
    assert_eq!(rows, [("PUTROOTFH", None), ("UNKNOWN", Some("4711"))]);
}

/// Each call has the caller that tshark shows: machine, user and all groups.
#[test]
fn callers_equal_tsharks() {
    let folder = tempdir().unwrap();
    let crafted = folder.path().join("crafted.pcap");
    captured(&a_caller_with_groups(), &crafted);
    // `tshark` decompresses its input.
    let packed = folder.path().join("crafted.pcap.zst");
    std::fs::write(
        &packed,
        zstd::encode_all(&std::fs::read(&crafted).unwrap()[..], 1).unwrap(),
    )
    .unwrap();
    for (capture, calls_min, groups) in [
        (packed, 1, 3),
        (common::small_piece(), 200, 0),
        (common::small_compounds(), 500, 0),
    ] {
        let trace = folder.path().join("trace");
        record(&capture, &trace);
        let callers: BTreeMap<String, Cells> = rows(&trace, &tables::CALLERS)
            .into_iter()
            .map(|row| (row["caller"].clone(), row))
            .collect();
        let further = rows(&trace, &tables::CALLER_GROUPS);
        assert_eq!(further.len(), groups);
        let calls = calls(&trace);
        let mut ours = BTreeMap::new();
        for operation in rows(&trace, &tables::RPC_CALLS) {
            let Some(number) = operation.get("caller") else {
                continue;
            };
            let caller = &callers[number];
            assert_eq!(
                (&operation["uid"], &operation["gid"]),
                (&caller["uid"], &caller["gid"])
            );
            let mut gids = vec![caller["gid"].clone()];
            gids.extend(
                further
                    .iter()
                    .filter(|row| &row["caller"] == number)
                    .map(|row| row["gid"].clone()),
            );
            assert_eq!(caller["group_count"], (gids.len() - 1).to_string());
            let shown = [
                caller["machine_name"].clone(),
                caller["uid"].clone(),
                gids.join("|"),
            ];
            ours.insert(calls[&operation["record_id"]].clone(), shown);
        }
        std::fs::remove_dir_all(&trace).unwrap();
        let asked = [
            "tcp.srcport",
            "udp.srcport",
            "rpc.xid",
            "rpc.auth.machinename",
            "rpc.auth.uid",
            "rpc.auth.gid",
        ];
        let Some(shown) = tshark(
            &capture,
            "nfs && rpc.msgtyp == 0 && rpc.auth.flavor == 1",
            &asked,
        ) else {
            return;
        };
        let mut compared = 0;
        for row in shown {
            let Ok(xid) = u32::from_str_radix(row[2].trim_start_matches("0x"), 16) else {
                continue;
            };
            let mine = &ours[&(format!("{}{}", row[0], row[1]), xid)];
            assert_eq!(
                mine[..],
                row[3..6],
                "port {}{} xid {xid:#x}",
                row[0],
                row[1]
            );
            compared += 1;
        }
        println!("{}: {compared} callers compared", capture.display());
        assert!(compared >= calls_min, "{compared} calls compared");
    }
}
