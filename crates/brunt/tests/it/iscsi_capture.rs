//! Checks `brunt analyze` on iSCSI traffic against tshark. The traffic goes through a relay that records both
//! directions. The relay needs no privileges, and the packets are those that a tap between initiator and target would
//! show.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::support::{Target, TempDir, brunt, need, succeed};
use brunt_capture::trace::tables::SCSI_COMMANDS;
use brunt_lake::read_table;
use serde_json::Value;

/// The targets' port, by which tshark recognizes iSCSI.
const PORT: u16 = 3260;
const DIGESTS: &str = "?header_digest=crc32c&data_digest=crc32c";

/// Recorded pieces of traffic: connection, whether the piece came from the target, bytes.
type Record = Arc<Mutex<Vec<(u16, bool, Vec<u8>)>>>;

/// Copies one direction until the end of the stream, and records it.
fn copy(connection: u16, back: bool, mut from: TcpStream, mut to: TcpStream, record: &Record) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        // Record before forwarding, so that a reply can't precede its request.
        record
            .lock()
            .unwrap()
            .push((connection, back, buffer[..len].to_vec()));
        if to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Opens a port that forwards to `target`; returns its address and the recorded traffic.
fn relay(target: SocketAddr) -> (SocketAddr, Record) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let record = Record::default();
    let shared = record.clone();
    std::thread::spawn(move || {
        for (number, client) in (0..).zip(listener.incoming().map_while(Result::ok)) {
            let Ok(server) = TcpStream::connect(target) else {
                return;
            };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let ends = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let (one, other) = (shared.clone(), shared.clone());
            std::thread::spawn(move || copy(number, false, client, server, &one));
            std::thread::spawn(move || copy(number, true, ends.1, ends.0, &other));
        }
    });
    (address, record)
}

/// Writes the recorded traffic as packets with at most `segment` bytes of data, omitting those that `keep` doesn't
/// accept.
fn write_pcap(record: &Record, segment: usize, keep: impl Fn(usize) -> bool, path: &Path) {
    let mut file: Vec<u8> = Vec::new();
    for word in [0xa1b2_3c4du32, 2 | 4 << 16, 0, 0, 1 << 18, 1] {
        file.extend(word.to_le_bytes());
    }
    let mut sent: BTreeMap<(u16, bool), u32> = BTreeMap::new();
    let mut number = 0;
    for (connection, back, bytes) in record.lock().unwrap().iter() {
        for data in bytes.chunks(segment) {
            let seq = sent.get(&(*connection, *back)).copied().unwrap_or(1);
            let ack = sent.get(&(*connection, !*back)).copied().unwrap_or(1);
            sent.insert((*connection, *back), seq.wrapping_add(data.len() as u32));
            number += 1;
            if keep(number) {
                let packet = packet(*connection, *back, [seq, ack], data);
                let time = number as u32 * 1000;
                for word in [
                    1_700_000_000 + time / 1_000_000_000,
                    time,
                    packet.len() as u32,
                    packet.len() as u32,
                ] {
                    file.extend(word.to_le_bytes());
                }
                file.extend(packet);
            }
        }
    }
    std::fs::write(path, file).unwrap();
}

fn packet(connection: u16, back: bool, [seq, ack]: [u32; 2], data: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x2a, 0, 0, 0, 0, 1, 0x2a, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    packet.extend(((40 + data.len()) as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    let ends = [
        ([10u8, 0, 0, 1], 40_000 + connection),
        ([10, 0, 0, 2], PORT),
    ];
    let [from, to] = if back { [ends[1], ends[0]] } else { ends };
    packet.extend(from.0);
    packet.extend(to.0);
    packet.extend(from.1.to_be_bytes());
    packet.extend(to.1.to_be_bytes());
    packet.extend(seq.to_be_bytes());
    packet.extend(ack.to_be_bytes());
    packet.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
    packet.extend(data);
    packet
}

/// Reads and writes by Brunt's initiator, in several sizes and orders, on a Brunt target.
fn traffic(options: &str) -> Record {
    let target = Target::start(&["--lun", "memory:16MiB", "--lun", "memory:16MiB,block=4096"]);
    let (address, record) = relay(target.address());
    for (lun, work) in [
        (
            0,
            &["write", "--bs", "64k", "--count", "40", "--depth", "4"][..],
        ),
        (
            0,
            &[
                "read", "--bs", "4k", "--count", "200", "--depth", "16", "--random",
            ],
        ),
        (
            1,
            &["write", "--bs", "256k", "--count", "8", "--depth", "2"],
        ),
        (1, &["read", "--bs", "8k", "--count", "50"]),
    ] {
        let url = target
            .url(lun)
            .replace(&target.address().to_string(), &address.to_string())
            + options;
        succeed(brunt().args(["io", work[0], &url]).args(&work[1..]), 120);
    }
    record
}

/// All values of a field in a capture, in order, as tshark decodes them.
fn tshark(path: &Path, filter: &str, field: &str) -> Vec<String> {
    let mut command = Command::new("tshark");
    command
        .arg("-r")
        .arg(path)
        .args(["-o", "iscsi.bogus_pdu_max_data_len:16777216"]);
    command.args([
        "-Y",
        filter,
        "-T",
        "fields",
        "-e",
        field,
        "-E",
        "occurrence=a",
        "-E",
        "aggregator=|",
    ]);
    let text = succeed(&mut command, 120);
    text.lines()
        .flat_map(|line| line.split('|'))
        .filter(|value| !value.is_empty())
        .map(str::to_string)
        .collect()
}

fn analyze(path: &Path) -> Value {
    serde_json::from_str(&succeed(brunt().args(["analyze", "--json"]).arg(path), 120)).unwrap()
}

fn calls(report: &Value, name: &str) -> u64 {
    let rows = report["by_operation"].as_array().unwrap();
    rows.iter()
        .find(|row| row["name"] == name)
        .map_or(0, |row| row["calls"].as_u64().unwrap())
}

/// The blocks and the response of every command match what tshark decodes, with and without digests, at any packet
/// size.
#[test]
fn commands_equal_tsharks() {
    if need("tshark", "tshark").is_none() {
        return;
    }
    let folder = TempDir::new("iscsi-capture");
    let path = folder.join("x.pcap");
    for options in ["", DIGESTS] {
        let record = traffic(options);
        for segment in [1448, 8948, 65_000] {
            write_pcap(&record, segment, |_| true, &path);
            let report = analyze(&path);
            let opcodes = tshark(&path, "iscsi", "iscsi.opcode");
            let count =
                |opcode: &str| opcodes.iter().filter(|found| *found == opcode).count() as u64;
            let ledger = |name: &str| report["ledger"][name].as_u64().unwrap();
            assert_eq!(report["operations"], count("0x01"), "{options} {segment}");
            assert_eq!(
                (ledger("calls"), ledger("calls_answered")),
                (count("0x01"), count("0x01"))
            );
            assert_eq!(
                ledger("replies_unmatched")
                    + ledger("slow_mode_entries")
                    + ledger("bytes_unclaimed"),
                0
            );
            // Opening a device also makes requests, to look for a partition table.
            assert!(calls(&report, "SCSI READ") >= 250 && calls(&report, "SCSI WRITE") == 48);
            // Blocks, command by command.
            let trace = folder.join(&format!("trace-{segment}-{}", options.len()));
            succeed(
                brunt()
                    .args(["capture", "-r"])
                    .arg(&path)
                    .arg("--out")
                    .arg(&trace),
                120,
            );
            let rows = commands_of(&trace);
            // tshark shows short addresses as decimal numbers, and long addresses as bytes.
            let short = tshark(&path, "iscsi", "scsi_sbc.rdwr10.lba")
                .into_iter()
                .map(|lba| lba.parse().unwrap());
            let bytes = |lba: String| i64::from_str_radix(&lba.replace(':', ""), 16).unwrap();
            let long = tshark(&path, "iscsi", "scsi_sbc.rdwr16.lba")
                .into_iter()
                .map(bytes);
            let mut theirs: Vec<i64> = short.chain(long).collect();
            let mut ours: Vec<i64> = rows.values().filter_map(|row| row.lba).collect();
            ours.sort_unstable();
            theirs.sort_unstable();
            assert!(ours.len() >= 298);
            assert_eq!(ours, theirs, "{options} {segment}");
            let bytes: i64 = rows.values().map(|row| row.bytes).sum();
            assert!(bytes >= 40 * (64 << 10) + 200 * 4096 + 8 * (256 << 10) + 50 * 8192);
        }
    }
}

/// A command's blocks and bytes.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// `None` if a command specifies no blocks.
    lba: Option<i64>,
    blocks: i64,
    /// Bytes of captured data, if the command transfers blocks.
    bytes: i64,
}

/// The commands of a trace by CDB and index among equal CDBs.
fn commands_of(trace: &Path) -> BTreeMap<(String, usize), Row> {
    let mut rows = BTreeMap::new();
    let mut same: BTreeMap<String, usize> = BTreeMap::new();
    let damaged = read_table(trace, &SCSI_COMMANDS, |batch| {
        let ints = |column| batch.ints(column);
        for (row, cdb) in batch.texts("cdb").enumerate() {
            let place = same.entry(cdb.to_string()).or_default();
            let moves = !batch.is_null("block_bytes", row);
            let bytes = ints("data_in_bytes")[row] + ints("data_out_bytes")[row];
            let of = Row {
                lba: (!batch.is_null("lba", row)).then(|| ints("lba")[row]),
                blocks: ints("blocks")[row],
                bytes: if moves { bytes } else { 0 },
            };
            rows.insert((cdb.to_string(), *place), of);
            *place += 1;
        }
    });
    assert!(damaged.unwrap().is_empty());
    rows
}

/// A case's name, the packets to keep, and the minimum percentage of commands to find.
type Case = (&'static str, fn(usize) -> bool, usize);

/// After losses, and in a session that began before the capture, commands are recognized again, and none is invented.
#[test]
fn commands_are_found_again_after_losses_and_late_starts() {
    let folder = TempDir::new("iscsi-losses");
    let path = folder.join("x.pcap");
    for options in ["", DIGESTS] {
        let record = traffic(options);
        write_pcap(&record, 1448, |_| true, &path);
        let whole = folder.join(&format!("whole-{}", options.len()));
        succeed(
            brunt()
                .args(["capture", "-r"])
                .arg(&path)
                .arg("--out")
                .arg(&whole),
            120,
        );
        let whole = commands_of(&whole);
        let cases: [Case; 2] = [
            ("loss", |number| number % 97 != 13, 85),
            ("late", |number| number > 30, 60),
        ];
        for (case, keep, percent) in cases {
            write_pcap(&record, 1448, keep, &path);
            let report = analyze(&path);
            assert_eq!(report["valid"], true);
            let trace = folder.join(&format!("{case}-{}", options.len()));
            succeed(
                brunt()
                    .args(["capture", "-r"])
                    .arg(&path)
                    .arg("--out")
                    .arg(&trace),
                120,
            );
            let found = commands_of(&trace);
            for (key, row) in &found {
                let of = whole
                    .get(key)
                    .unwrap_or_else(|| panic!("{case}: {key:?} {row:?} was made up"));
                assert_eq!((row.lba, row.blocks), (of.lba, of.blocks), "{case}");
            }
            println!(
                "{case} {options}: {} of {} commands",
                found.len(),
                whole.len()
            );
            assert!(
                found.len() * 100 >= whole.len() * percent,
                "{case} {options}: {} of {}",
                found.len(),
                whole.len()
            );
        }
    }
}
