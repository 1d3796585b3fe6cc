//! iSCSI PDUs as tshark dissects them, from PDML: several PDUs can share a frame, and one PDU can span many frames,
//! which tshark's other outputs don't distinguish. Used by the tests of iSCSI captures. The rule: nothing is decoded
//! here; a field's value is what tshark shows.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// A PDU.
#[derive(Clone, Debug, Default)]
pub struct SeenPdu {
    /// Ports of the sender and the receiver.
    pub ports: [u64; 2],
    /// When the first and the last byte of the PDU were captured, in nanoseconds since 1970.
    pub first_ns: u64,
    pub last_ns: u64,
    /// For some PDUs in several frames, `first_ns` is the time of a later part: tshark 4.0 doesn't show where they
    /// begin.
    pub begins_before: bool,
    /// The values of each field by name.
    fields: BTreeMap<String, Vec<String>>,
}

impl SeenPdu {
    /// The text of a field, as shown.
    pub fn text(&self, name: &str) -> Option<&str> {
        Some(self.fields.get(name)?.first()?.as_str())
    }

    /// A numeric field: decimal, hexadecimal, or colon-separated bytes.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.numbers(name).next()
    }

    /// All values of a numeric field.
    pub fn numbers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u64> + 'a {
        self.fields
            .get(name)
            .into_iter()
            .flatten()
            .map(move |text| {
                let number = match text.strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16),
                    None if text.contains(':') => u64::from_str_radix(&text.replace(':', ""), 16),
                    None => text.parse(),
                };
                number.unwrap_or_else(|_| panic!("{name} = {text}"))
            })
    }

    /// The first numeric field whose name starts and ends with these texts.
    pub fn like(&self, start: &str, end: &str) -> Option<u64> {
        let name = self
            .fields
            .keys()
            .find(|name| name.starts_with(start) && name.ends_with(end))?;
        self.number(name)
    }
}

/// Whether a capture file is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureFile {
    Whole,
    /// The file ends in the middle of a packet, or packets are truncated: tshark then exits with status 2, and may
    /// misinterpret what is missing.
    Cut,
}

fn tshark(path: &Path, file: CaptureFile, arguments: &[&str], mut each: impl FnMut(&str)) {
    let mut child = Command::new("tshark")
        .arg("-r")
        .arg(path)
        // Decode as iSCSI regardless of the other port; without the limit, tshark would mistake longer PDUs for
        // something else.
        .args(["-d", "tcp.port==3260,iscsi"])
        .args([
            "-o",
            "iscsi.bogus_pdu_max_data_len:16777216",
            "-o",
            "tcp.reassemble_out_of_order:TRUE",
        ])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("tshark");
    for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
        each(&line.expect("text"));
    }
    let status = child.wait().expect("a child of ours").code();
    let is_done = status == Some(0) || file == CaptureFile::Cut && status == Some(2);
    assert!(is_done, "tshark -r {}: {status:?}", path.display());
}

/// Converts a time in seconds with nine decimals to nanoseconds.
fn nanos(text: &str) -> u64 {
    let (seconds, nanos) = text.split_once('.').expect("seconds.nanoseconds");
    seconds.parse::<u64>().expect("seconds") * 1_000_000_000
        + nanos.parse::<u64>().expect("nanoseconds")
}

/// The value of an attribute in a line of PDML.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(name)?;
    rest.split('"').next()
}

/// The capture time of each frame, in nanoseconds since 1970.
fn frame_times(path: &Path, file: CaptureFile) -> Vec<u64> {
    let mut times = Vec::new();
    tshark(
        path,
        file,
        &["-T", "fields", "-e", "frame.time_epoch"],
        |line| times.push(nanos(line)),
    );
    times
}

/// The largest step back in time from one frame to the next, in nanoseconds; 0 if there is none. If everything runs
/// on one processor, as in `tools/iscsi-captures.sh`, only a clock that is set back can cause one.
pub fn set_back_ns(path: &Path) -> u64 {
    let times = frame_times(path, CaptureFile::Whole);
    times
        .windows(2)
        .map(|pair| pair[0].saturating_sub(pair[1]))
        .max()
        .unwrap_or(0)
}

/// File size in bytes above which a second tshark reads the frames' times. For a smaller file, starting it would take
/// longer than showing all frames.
const LARGE_FILE: u64 = 1 << 20;

/// All PDUs in a capture, in the order in which they end.
pub fn pdus(path: &Path, file: CaptureFile) -> Vec<SeenPdu> {
    let is_large = path.metadata().expect("a file").len() > LARGE_FILE;
    let (mut times, only): (_, &[&str]) = match is_large {
        true => (frame_times(path, file), &["-Y", "iscsi"]),
        false => (Vec::new(), &[]),
    };
    let (mut all, mut current): (Vec<SeenPdu>, Option<SeenPdu>) = (Vec::new(), None);
    let (mut frame, mut ports, mut begins) = (0, [0; 2], VecDeque::new());
    tshark(
        path,
        file,
        &[&["-J", "frame tcp iscsi scsi", "-T", "pdml"], only].concat(),
        |line| {
            let tag = line.trim_start();
            if tag.starts_with("</packet>") {
                all.extend(current.take());
            }
            let (Some(name), Some(show)) =
                (attribute(tag, "field name=\""), attribute(tag, " show=\""))
            else {
                return;
            };
            let number = || show.parse::<u64>().expect("a number");
            match name {
                "frame.number" => {
                    frame = number();
                    begins.clear();
                }
                "frame.time_epoch" if !is_large => times.push(nanos(show)),
                "tcp.srcport" => ports[0] = number(),
                "tcp.dstport" => ports[1] = number(),
                // A PDU from several frames: "3 Reassembled TCP Segments (2096 bytes): #96(48), #97(1448), #99(600)".
                "tcp.segments" => {
                    let list =
                        attribute(tag, "showname=\"").and_then(|text| text.split_once(": #"));
                    let first = list.and_then(|(_, list)| list.split('(').next()?.parse().ok());
                    begins.push_back(first.expect("the number of a frame"));
                }
                "iscsi.opcode" => {
                    all.extend(current.take());
                    // A PDU reassembled from several frames has no position in its own frame.
                    let begins_before = begins.is_empty() && attribute(tag, " pos=\"") == Some("0");
                    let first = begins.pop_front().unwrap_or(frame);
                    let [first_ns, last_ns] = [first, frame].map(|frame| times[frame as usize - 1]);
                    current = Some(SeenPdu {
                        ports,
                        first_ns,
                        last_ns,
                        begins_before,
                        fields: BTreeMap::new(),
                    });
                }
                _ => {}
            }
            if let Some(pdu) = &mut current {
                pdu.fields
                    .entry(name.to_string())
                    .or_default()
                    .push(show.to_string());
            }
        },
    );
    all
}
