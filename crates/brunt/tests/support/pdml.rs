//! iSCSI as tshark dissects it, PDU by PDU, from PDML: several PDUs share a frame, and one spans many, which its other
//! outputs do not tell apart. Called by the tests of iSCSI captures. The one rule: nothing is decoded here; what a
//! field is worth is what tshark shows.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// A PDU.
#[derive(Clone, Debug, Default)]
pub struct SeenPdu {
    /// Ports of who sent it and who received it.
    pub ports: [u64; 2],
    /// When its first and its last byte were seen, in nanoseconds since 1970.
    pub first_ns: u64,
    pub last_ns: u64,
    /// The values of each of its fields.
    fields: BTreeMap<String, Vec<String>>,
}

impl SeenPdu {
    /// A field as it is shown.
    pub fn text(&self, name: &str) -> Option<&str> {
        Some(self.fields.get(name)?.first()?.as_str())
    }

    /// A field that is a number: decimal, hexadecimal, or bytes with colons between.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.numbers(name).next()
    }

    /// All of its values.
    pub fn numbers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u64> + 'a {
        self.fields.get(name).into_iter().flatten().map(move |text| {
            let number = match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None if text.contains(':') => u64::from_str_radix(&text.replace(':', ""), 16),
                None => text.parse(),
            };
            number.unwrap_or_else(|_| panic!("{name} = {text}"))
        })
    }

    /// The first field whose name starts and ends so.
    pub fn like(&self, start: &str, end: &str) -> Option<u64> {
        let name = self.fields.keys().find(|name| name.starts_with(start) && name.ends_with(end))?;
        self.number(name)
    }
}

fn tshark(path: &Path, arguments: &[&str], mut each: impl FnMut(&str)) {
    let mut child = Command::new("tshark")
        .arg("-r")
        .arg(path)
        // Whatever the other port is; and longer PDUs it takes for something else.
        .args(["-d", "tcp.port==3260,iscsi"])
        .args(["-o", "iscsi.bogus_pdu_max_data_len:16777216", "-o", "tcp.reassemble_out_of_order:TRUE"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("tshark");
    for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
        each(&line.expect("text"));
    }
    assert!(child.wait().expect("a child of ours").success(), "tshark -r {}", path.display());
}

/// Nanoseconds of a time in seconds with nine decimals.
fn nanos(text: &str) -> u64 {
    let (seconds, nanos) = text.split_once('.').expect("seconds.nanoseconds");
    seconds.parse::<u64>().expect("seconds") * 1_000_000_000 + nanos.parse::<u64>().expect("nanoseconds")
}

/// The value of an attribute in a line of PDML.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(name)?;
    rest.split('"').next()
}

/// All PDUs of a capture, in the order of their ends.
pub fn pdus(path: &Path) -> Vec<SeenPdu> {
    let mut times = Vec::new();
    tshark(path, &["-T", "fields", "-e", "frame.time_epoch"], |line| times.push(nanos(line)));
    let time = |frame: u64| times[frame as usize - 1];
    let (mut all, mut current): (Vec<SeenPdu>, Option<SeenPdu>) = (Vec::new(), None);
    let (mut frame, mut ports, mut begins) = (0, [0; 2], VecDeque::new());
    tshark(path, &["-Y", "iscsi", "-J", "frame tcp iscsi scsi", "-T", "pdml"], |line| {
        let tag = line.trim_start();
        if tag.starts_with("</packet>") {
            all.extend(current.take());
        }
        let (Some(name), Some(show)) = (attribute(tag, "field name=\""), attribute(tag, " show=\"")) else {
            return;
        };
        let number = || show.parse::<u64>().expect("a number");
        match name {
            "frame.number" => {
                frame = number();
                begins.clear();
            }
            "tcp.srcport" => ports[0] = number(),
            "tcp.dstport" => ports[1] = number(),
            // A PDU out of several frames: "3 Reassembled TCP Segments (2096 bytes): #96(48), #97(1448), #99(600)".
            "tcp.segments" => {
                let list = attribute(tag, "showname=\"").and_then(|text| text.split_once(": #"));
                let first = list.and_then(|(_, list)| list.split('(').next()?.parse().ok());
                begins.push_back(first.expect("the number of a frame"));
            }
            "iscsi.opcode" => {
                all.extend(current.take());
                let first = begins.pop_front().unwrap_or(frame);
                let (first_ns, last_ns) = (time(first), time(frame));
                current = Some(SeenPdu { ports, first_ns, last_ns, fields: BTreeMap::new() });
            }
            _ => {}
        }
        if let Some(pdu) = &mut current {
            pdu.fields.entry(name.to_string()).or_default().push(show.to_string());
        }
    });
    all
}
