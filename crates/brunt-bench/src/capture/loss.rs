//! Measures how many of a capture's operations are recovered when the tap loses packets. All programs see the same
//! losses; [`brunt_capture::recovery`] counts which operations were still recoverable, as in the tests.
//!
//! The rule: an operation that is invented, or matched with another operation's reply, fails the run.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;

use brunt_capture::recovery::{FoundOperations, Id, Loss, Recovery, numbered};
use brunt_capture::{FileSource, Limits, PacketBatch, Pipeline};
use brunt_core::quantity::Size;
use brunt_wire::net::IpAddress;
use serde_json::{Value, json};

use super::over_time;
use super::programs::{Program, each_line_of_tshark, messages};
use super::speed::{present, readers};
use super::subject::{Keep, SubjectCapture, write_packets};
use crate::sample::median;
use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console};

/// Minimum share of the recoverable operations that must be recovered.
const RECOVERED_MIN: f64 = 0.995;
/// Maximum slowdown compared with the complete capture.
const SLOWER_MAX: f64 = 1.2;

/// Removes packets from all captures and prints a table for each.
pub fn run(
    subjects: &[SubjectCapture],
    shares: &[f64],
    seed: u64,
    rounds: u32,
    part: Size,
    scratch: &Scratch,
    output: &dyn Console,
) -> BenchResult {
    let all = present(output);
    let (mut tables, mut invented) = (Vec::new(), Vec::new());
    for subject in subjects {
        let programs = readers(&all, subject);
        output.line(format_args!(
            "{}: {} packets, {} calls",
            subject.name, subject.packets, subject.calls
        ));
        output.line(format_args!(
            "  {:>6} {:>10} {:>12} {:>12} {:>12} {:>12} {:>10}",
            "lost", "possible", "recovered", "nfstrace", "tshark", "of these", "our time"
        ));
        let truth = found(&subject.path, |_| true)?;
        let mut rows = Vec::new();
        for share in shares {
            if output.is_interrupted() {
                return Err(BenchError::interrupted(
                    "interrupted: the lines printed so far are complete",
                ));
            }
            let lossy = Lossy::new(subject, *share, seed, part, scratch)?;
            let ours = found(&subject.path, |packet| lossy.kept[packet])?;
            let ours = truth.compare(&ours, &lossy.kept, subject.made);
            invented.extend(ours.invented.iter().take(3).cloned());
            let nfstrace = match programs.contains(&Program::Nfstrace) {
                true => Some(Program::Nfstrace.run(&lossy.path, scratch)?.calls),
                false => None,
            };
            let tshark = match programs.contains(&Program::Tshark) {
                true => Some(lossy.tsharks(&truth, scratch)?),
                false => None,
            };
            let slower = slower(subject, &lossy.path, rounds, scratch)?;
            rows.push(print(*share, &ours, nfstrace, tshark, slower, output));
            let _ = std::fs::remove_file(&lossy.path);
        }
        for row in &rows {
            for verdict in row["goals"].as_array().into_iter().flatten() {
                output.line(format_args!(
                    "  = {}",
                    verdict["text"].as_str().unwrap_or_default()
                ));
            }
        }
        let over_time = over_time::run(subject, shares, seed, output)?;
        output.line("");
        tables.push(
            json!({ "capture": subject.name, "packets": subject.packets, "calls": subject.calls,
            "seed": seed, "losses": rows, "over_time": over_time }),
        );
    }
    output.object(&json!({ "captures": tables }));
    match invented.is_empty() {
        true => Ok(()),
        false => Err(BenchError::failed(format!(
            "operations that never occurred: {}",
            invented.join("; ")
        ))),
    }
}

/// The operations that our pipeline finds in the kept packets.
fn found(capture: &Path, keeps: impl Fn(usize) -> bool) -> Result<FoundOperations, BenchError> {
    let mut source = FileSource::open(capture).map_err(BenchError::usage)?;
    let (mut batch, mut pipeline) = (
        PacketBatch::default(),
        Pipeline::new(FoundOperations::default(), Limits::default()),
    );
    let mut index = 0;
    while source.fill(&mut batch).map_err(BenchError::usage)? {
        for packet in batch.packets() {
            if keeps(index) {
                pipeline.on_packet(&numbered(index as u64, &packet));
            }
            index += 1;
        }
    }
    let (found, ledger) = pipeline.finish();
    ledger
        .check()
        .map_err(|what| BenchError::failed(format!("the ledger does not add up: {what}")))?;
    Ok(found)
}

/// Writes a capture without the packets that a tap loses; returns which packets were kept.
pub fn write_lossy(from: &Path, to: &Path, share: f64, seed: u64) -> Result<Vec<bool>, BenchError> {
    let (mut loss, mut kept) = (Loss::new(seed, share), Vec::new());
    write_packets(from, to, |_, _| {
        let keeps = loss.keeps();
        kept.push(keeps);
        if keeps { Keep::Yes } else { Keep::No }
    })?;
    Ok(kept)
}

/// A capture with lost packets.
struct Lossy {
    path: std::path::PathBuf,
    /// Which packets of the complete capture are kept.
    kept: Vec<bool>,
    /// The first part of the lossy capture, for tshark, and how many packets of the complete capture it covers.
    part: std::path::PathBuf,
    part_end: u64,
}

impl Lossy {
    fn new(
        subject: &SubjectCapture,
        share: f64,
        seed: u64,
        part: Size,
        scratch: &Scratch,
    ) -> Result<Lossy, BenchError> {
        let (path, part_path) = (scratch.join("lossy.pcap"), scratch.join("lossy-part.pcap"));
        let kept = write_lossy(&subject.path, &path, share, seed)?;
        let (mut bytes, mut part_end) = (0, 0);
        write_packets(&subject.path, &part_path, |index, packet| {
            let keep = match kept[index as usize] {
                false => Keep::No,
                true if bytes + packet.bytes.len() as u64 + 16 > part.0 => return Keep::End,
                true => Keep::Yes,
            };
            bytes += if keep == Keep::Yes {
                packet.bytes.len() as u64 + 16
            } else {
                0
            };
            part_end = index + 1;
            keep
        })?;
        Ok(Lossy {
            path,
            kept,
            part: part_path,
            part_end,
        })
    }

    /// The operations that tshark recovers in the first part, and the operations that were recoverable there.
    fn tsharks(
        &self,
        truth: &FoundOperations,
        scratch: &Scratch,
    ) -> Result<(u64, u64), BenchError> {
        let (possible, _) = truth.possible(&self.kept, self.part_end);
        let (mut calls, mut replies) = (HashSet::new(), HashSet::new());
        each_line_of_tshark(&self.part, scratch, |line| {
            for ((address, port), xid, is_reply) in messages(line) {
                let Some(id) = id(address, port, xid) else {
                    continue;
                };
                if is_reply {
                    replies.insert(id)
                } else {
                    calls.insert(id)
                };
            }
        })?;
        let recovered = possible
            .iter()
            .filter(|id| calls.contains(*id) && replies.contains(*id))
            .count();
        let _ = std::fs::remove_file(&self.part);
        Ok((recovered as u64, possible.len() as u64))
    }
}

fn id(address: &str, port: &str, xid: u32) -> Option<Id> {
    let address = match address.parse().ok()? {
        IpAddr::V4(v4) => IpAddress::v4(v4.octets()),
        IpAddr::V6(v6) => IpAddress::v6(v6.octets()),
    };
    Some((address.0, port.parse().ok()?, xid))
}

/// How much longer the analyses take per byte on the lossy capture than on the complete one.
fn slower(
    subject: &SubjectCapture,
    lossy: &Path,
    rounds: u32,
    scratch: &Scratch,
) -> Result<f64, BenchError> {
    let bytes = |path: &Path| {
        std::fs::metadata(path)
            .map(|file| file.len() as f64)
            .map_err(BenchError::failed)
    };
    let per_byte = |path: &Path| -> Result<f64, BenchError> {
        Ok(Program::Analyses.run(path, scratch)?.wall.as_secs_f64() / bytes(path)?)
    };
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let whole = per_byte(&subject.path)?;
        ratios.push(per_byte(lossy)? / whole);
    }
    Ok(median(&ratios))
}

fn print(
    share: f64,
    ours: &Recovery,
    nfstrace: Option<u64>,
    tshark: Option<(u64, u64)>,
    slower: f64,
    output: &dyn Console,
) -> Value {
    let percent = |count: u64, of: u64| count as f64 * 100.0 / of.max(1) as f64;
    let show = |share: Option<f64>| share.map_or("-".to_string(), |share| format!("{share:.2} %"));
    let nfstrace_percent = nfstrace.map(|count| percent(count, ours.possible));
    let tshark_percent = tshark.map(|(count, possible)| percent(count, possible));
    output.line(format_args!(
        "  {:>6} {:>10} {:>12} {:>12} {:>12} {:>12} {:>10}",
        format!("{} %", share * 100.0),
        format!("{:.2} %", percent(ours.possible, ours.whole)),
        format!("{:.3} %", ours.share() * 100.0),
        show(nfstrace_percent),
        show(tshark_percent),
        tshark.map_or("-".to_string(), |(_, possible)| possible.to_string()),
        format!("{slower:.2}x")
    ));
    let say = |reached: bool| if reached { "reached" } else { "MISSED" };
    let goals = [
        (
            ours.share(),
            ours.share() >= RECOVERED_MIN,
            format!(
                "{:.3} % of the recoverable operations recovered; goal {:.1} %",
                ours.share() * 100.0,
                RECOVERED_MIN * 100.0
            ),
        ),
        (
            slower,
            slower <= SLOWER_MAX,
            format!(
                "{slower:.2} times the time per byte of the complete capture; goal at most {SLOWER_MAX}"
            ),
        ),
        (
            ours.invented.len() as f64,
            ours.invented.is_empty(),
            format!(
                "{} operations invented or mismatched; goal none",
                ours.invented.len()
            ),
        ),
    ];
    let goals: Vec<Value> = goals
        .into_iter()
        .map(|(value, reached, text)| {
            json!({ "text": format!("{} % lost: {text} ({})", share * 100.0, say(reached)), "value": value, "reached": reached })
        })
        .collect();
    json!({
        "lost_share": share, "operations": ours.whole, "possible": ours.possible, "recovered": ours.recovered,
        "nfstrace_recovered": nfstrace, "tshark_recovered": tshark.map(|(count, _)| count),
        "tshark_possible": tshark.map(|(_, possible)| possible), "times_slower": slower, "goals": goals,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::compose::{CaptureContent, compose};

    /// More than the number of packets in the test's capture.
    const PACKETS_MAX: usize = 1 << 16;

    /// The required share of the recoverable iSCSI commands is recovered, and none is invented.
    #[test]
    fn iscsi_commands_are_recovered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scsi.pcap");
        compose(&path, CaptureContent::Scsi, 1500, 240).unwrap();
        let truth = found(&path, |_| true).unwrap();
        assert_eq!(truth.operations.len(), 240);
        let (mut recovered, mut possible) = (0, 0);
        for (seed, share) in
            (1..=4).flat_map(|seed| [0.005, 0.01, 0.02, 0.05].map(|share| (seed, share)))
        {
            let mut loss = Loss::new(seed, share);
            let kept: Vec<bool> = (0..PACKETS_MAX).map(|_| loss.keeps()).collect();
            let recovery =
                truth.compare(&found(&path, |packet| kept[packet]).unwrap(), &kept, true);
            assert_eq!(
                recovery.invented,
                Vec::<String>::new(),
                "seed {seed}, {share}"
            );
            recovered += recovery.recovered;
            possible += recovery.possible;
        }
        let least = (possible as f64 * RECOVERED_MIN).ceil() as u64;
        assert!(
            recovered >= least && possible > 3000,
            "{recovered} of {possible}"
        );
    }
}
