//! SCSI commands in a capture with everything known about each, as decoded by tshark and as stored in a trace. The
//! rule: neither side is adjusted to match the other, except where a comment here says so.

use std::collections::BTreeMap;
use std::path::Path;

use brunt_capture::trace::tables::{FLOWS, OPERATIONS, SCSI_COMMANDS, SCSI_EXTENTS};
use brunt_lake::{Batch, read_table};

use crate::support::pdml::{CaptureFile, SeenPdu, pdus};

/// Opcodes of PDUs (RFC 7143, 11.2.1.2), as tshark shows them.
const COMMAND: u64 = 0x01;
pub const TASK_MANAGEMENT: u64 = 0x02;
const DATA_OUT: u64 = 0x05;
const RESPONSE: u64 = 0x21;
const TASK_MANAGEMENT_RESPONSE: u64 = 0x22;
const DATA_IN: u64 = 0x25;
const R2T: u64 = 0x31;

/// What is known about a command, by name; unknown facts are absent.
pub type Known = BTreeMap<&'static str, u64>;
/// Commands by the initiator's port and task tag; those with the same key are in capture order.
pub type Commands = BTreeMap<(u64, u64), Vec<Known>>;

fn set(known: &mut Known, name: &'static str, value: Option<u64>) {
    if let Some(value) = value {
        known.insert(name, value);
    }
}

/// The commands in a capture according to tshark.
pub fn tsharks(path: &Path, file: CaptureFile) -> Commands {
    let mut commands = Commands::new();
    for pdu in pdus(path, file) {
        let Some(opcode) = pdu.number("iscsi.opcode") else {
            continue;
        };
        let [source, destination] = pdu.ports;
        let client = if opcode & 0x20 == 0 {
            source
        } else {
            destination
        };
        let Some(tag) = pdu.number("iscsi.initiatortasktag") else {
            continue;
        };
        let key = (client, tag);
        match opcode {
            COMMAND | TASK_MANAGEMENT => commands.entry(key).or_default().push(of_request(&pdu)),
            DATA_OUT | DATA_IN | RESPONSE | TASK_MANAGEMENT_RESPONSE | R2T => {
                // These PDUs carry a command's tag; NOPs and text requests have other tags.
                let Some(known) = commands.get_mut(&key).and_then(|same| same.last_mut()) else {
                    assert_eq!(file, CaptureFile::Cut, "an answer to nothing: {pdu:?}");
                    continue;
                };
                add(known, opcode, &pdu);
                if opcode == TASK_MANAGEMENT_RESPONSE && known.get("response") == Some(&0) {
                    add_ended(&mut commands, key);
                }
            }
            _ => {}
        }
    }
    commands
}

/// Records that a task management function was carried out. The function ended those of the commands it covers (RFC
/// 7143, 11.5.1) that were sent before it and have no response: each of these gets the function's tag.
fn add_ended(commands: &mut Commands, (client, tag): (u64, u64)) {
    let by = commands[&(client, tag)]
        .last()
        .expect("it was answered")
        .clone();
    for ((_, own), same) in commands.iter_mut().filter(|((port, _), _)| *port == client) {
        let Some(known) = same.last_mut() else {
            continue;
        };
        let is_meant = match by.get("function") {
            Some(1) => by.get("referenced_tag") == Some(own),
            Some(2 | 4 | 5) => by.get("lun") == known.get("lun"),
            Some(6 | 7) => true,
            _ => false,
        };
        let has_ended = ["function", "reply_first", "aborted_by"]
            .iter()
            .any(|name| known.contains_key(name));
        if is_meant && !has_ended && known["request_first"] < by["request_first"] {
            known.insert("aborted_by", tag);
        }
    }
}

fn of_request(pdu: &SeenPdu) -> Known {
    let mut known = Known::from([
        ("request_first", pdu.first_ns),
        ("request_last", pdu.last_ns),
    ]);
    let k = &mut known;
    set(k, "lun", pdu.number("scsi.lun"));
    set(k, "opcode", pdu.like("scsi", ".opcode"));
    set(
        k,
        "lba",
        pdu.like("scsi_sbc.rdwr", ".lba")
            .or_else(|| pdu.like("scsi_sbc.verify", ".lba")),
    );
    set(
        k,
        "blocks",
        pdu.like("scsi_sbc.", ".xferlen")
            .or_else(|| pdu.like("scsi_sbc.", ".vlen")),
    );
    set(k, "function", pdu.number("iscsi.taskmanfun.function"));
    set(
        k,
        "referenced_tag",
        pdu.number("iscsi.taskmanfun.referencedtasktag"),
    );
    set(
        k,
        "expected_bytes",
        pdu.number("iscsi.scsicommand.expecteddatatransferlength"),
    );
    known.extend([("data_out_bytes", 0), ("data_in_bytes", 0), ("r2ts", 0)]);
    let immediate = pdu.number("iscsi.datasegmentlength").unwrap_or(0);
    if immediate > 0 {
        add_data(&mut known, "data_out_bytes", immediate, pdu);
    }
    known
}

/// Adds the extents of an UNMAP whose list is in this PDU: their number, and a hash of them all.
fn add_extents(known: &mut Known, extents: impl Iterator<Item = (u64, u64)>) {
    let numbers = extents.fold((0, 0u64), |(count, all), (lba, blocks)| {
        (
            count + 1,
            all.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .wrapping_add(lba << 32 | blocks),
        )
    });
    known.extend([("extents", numbers.0), ("extents_digest", numbers.1)]);
}

fn extents_of(pdu: &SeenPdu) -> impl Iterator<Item = (u64, u64)> + '_ {
    pdu.numbers("scsi_sbc.unmap.lba")
        .zip(pdu.numbers("scsi_sbc.unmap.num_blocks"))
}

fn add_data(known: &mut Known, name: &'static str, bytes: u64, pdu: &SeenPdu) {
    *known.entry(name).or_default() += bytes;
    known.insert("last_data", pdu.last_ns);
    // If a list continues in another PDU, tshark shows it up to the end of the first PDU, while the trace doesn't
    // contain the list.
    if pdu
        .number("scsi_sbc.unmap.block_descriptor_data_length")
        .is_some_and(|len| 8 + len <= bytes)
    {
        add_extents(known, extents_of(pdu));
    }
    // Digest and padding follow the last byte of data, perhaps in a separate packet.
    let has_tail = !bytes.is_multiple_of(4) || pdu.text("iscsi.datadigest32").is_some();
    known.insert(
        "last_data_since",
        if has_tail { pdu.first_ns } else { pdu.last_ns },
    );
}

/// Adds the facts in a PDU about a command seen before.
fn add(known: &mut Known, opcode: u64, pdu: &SeenPdu) {
    let bytes = pdu.number("iscsi.datasegmentlength").unwrap_or(0);
    match opcode {
        R2T => *known.entry("r2ts").or_default() += 1,
        DATA_OUT => add_data(known, "data_out_bytes", bytes, pdu),
        DATA_IN if bytes > 0 => add_data(known, "data_in_bytes", bytes, pdu),
        _ => {}
    }
    let with_status = opcode == DATA_IN && pdu.number("iscsi.scsidata.S") == Some(1);
    if !with_status && !matches!(opcode, RESPONSE | TASK_MANAGEMENT_RESPONSE) {
        return;
    }
    known.extend([("reply_first", pdu.first_ns), ("reply_last", pdu.last_ns)]);
    set(known, "reply_begins_before", pdu.begins_before.then_some(1));
    let response = match opcode {
        RESPONSE => pdu.number("iscsi.scsiresponse.response"),
        TASK_MANAGEMENT_RESPONSE => pdu.number("iscsi.taskmanfun.response"),
        _ => Some(0),
    };
    set(known, "response", response);
    if opcode != TASK_MANAGEMENT_RESPONSE && response == Some(0) {
        set(known, "status", pdu.number("iscsi.scsiresponse.status"));
    }
    for (name, field) in [
        ("sense_key", "scsi.sns.key"),
        ("asc", "scsi.sns.asc"),
        ("ascq", "scsi.sns.ascq"),
    ] {
        set(known, name, pdu.number(field));
    }
}

/// A column's value in a row; `None` if it is null.
pub fn int(batch: &Batch, column: &'static str, row: usize) -> Option<u64> {
    (!batch.is_null(column, row)).then(|| batch.ints(column)[row] as u64)
}

/// The commands in a trace.
pub fn ours(trace: &Path) -> Commands {
    let mut ports = BTreeMap::new();
    let mut damaged = read_table(trace, &FLOWS, |batch| {
        for row in 0..batch.rows() {
            ports.insert(int(batch, "flow", row), int(batch, "source_port", row));
        }
    })
    .unwrap();
    let mut rows: BTreeMap<u64, (u64, u64, Known)> = BTreeMap::new();
    damaged.extend(
        read_table(trace, &OPERATIONS, |batch| {
            for row in 0..batch.rows() {
                let of = |column| int(batch, column, row);
                let first = of("request_first").unwrap();
                let mut known = Known::from([("request_first", first)]);
                set(
                    &mut known,
                    "request_last",
                    of("request_span_ns").map(|span| first + span),
                );
                let reply = of("latency_ns").map(|latency| first + latency);
                set(&mut known, "reply_first", reply);
                set(
                    &mut known,
                    "reply_last",
                    reply
                        .zip(of("reply_span_ns"))
                        .map(|(reply, span)| reply + span),
                );
                set(
                    &mut known,
                    "status",
                    of("status").filter(|status| *status < 0x100),
                );
                let port = ports[&of("flow")].expect("TCP has ports");
                rows.insert(of("record_id").unwrap(), (port, of("tag").unwrap(), known));
            }
        })
        .unwrap(),
    );
    damaged.extend(
        read_table(trace, &SCSI_COMMANDS, |batch| {
            for (row, cdb) in batch.texts("cdb").enumerate() {
                let of = |column| int(batch, column, row);
                let (_, _, known) = rows
                    .get_mut(&of("record_id").unwrap())
                    .expect("its operation");
                for name in [
                    "lun",
                    "lba",
                    "blocks",
                    "extents",
                    "function",
                    "referenced_tag",
                    "aborted_by",
                    "expected_bytes",
                    "data_out_bytes",
                    "data_in_bytes",
                    "r2ts",
                    "response",
                    "sense_key",
                    "asc",
                    "ascq",
                ] {
                    set(known, name, of(name));
                }
                let is_command = !batch.is_null("cdb", row);
                set(
                    known,
                    "opcode",
                    is_command.then(|| u64::from_str_radix(&cdb[..2], 16).unwrap()),
                );
                if !is_command {
                    // In the table for all protocols, "function complete" is a status.
                    known.remove("status");
                }
                // tshark shows sense data only with CHECK CONDITION; tgt also sends the previous sense data with GOOD.
                if known.get("status") == Some(&0) {
                    known.retain(|name, _| !matches!(*name, "sense_key" | "asc" | "ascq"));
                }
                set(
                    known,
                    "last_data",
                    of("last_data_ns").map(|ns| known["request_first"] + ns),
                );
            }
        })
        .unwrap(),
    );
    assert!(damaged.is_empty(), "{damaged:?}");
    let mut extents: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    damaged = read_table(trace, &SCSI_EXTENTS, |batch| {
        for row in 0..batch.rows() {
            let of = |column| int(batch, column, row).unwrap();
            extents
                .entry(of("record_id"))
                .or_default()
                .push((of("lba"), of("blocks")));
        }
    })
    .unwrap();
    assert!(damaged.is_empty(), "{damaged:?}");
    for (id, (_, _, known)) in &mut rows {
        if let Some(count) = known.get("extents").copied() {
            add_extents(known, extents.remove(id).unwrap_or_default().into_iter());
            assert_eq!(known["extents"], count, "rows of extents");
        }
    }
    assert!(extents.is_empty(), "of no command: {extents:?}");
    let tags: BTreeMap<u64, u64> = rows.iter().map(|(id, (_, tag, _))| (*id, *tag)).collect();
    let mut commands = Commands::new();
    for (port, tag, mut known) in rows.into_values() {
        // Record ids are specific to the trace; identify the function that ended the command by its tag.
        if let Some(by) = known.get_mut("aborted_by") {
            *by = tags[by];
        }
        commands.entry((port, tag)).or_default().push(known);
    }
    commands
}
