//! Measures an analysis over time while a tap repeatedly loses packets (Figure 8 of the Chronicle paper). Packets
//! arrive at a set pace, in phases with and without losses. For each interval, counts the operations found, the
//! packets that have arrived but not been analysed (the backlog), and the data that is held back because earlier data
//! is missing.
//!
//! The rule: a clock sets the arrival times, not the reader. A packet is due when the line would have carried
//! everything before it; a packet that is due but not analysed is backlog, however late the analysis is.

use std::time::{Duration, Instant};

use brunt_capture::recovery::Loss;
use brunt_capture::{
    Analysis, ChecksumRun, FileSource, Limits, Operation, PacketBatch, Pipeline, Sink,
};
use serde_json::{Value, json};

use super::subject::SubjectCapture;
use crate::{BenchError, Console};

/// Packets arrive at this share of the maximum rate of the analysis without losses: the paper's 10 of 14 Gb/s.
const PACE: f64 = 0.7;
/// Number of unpaced passes, the fastest of which gives the maximum rate: a pass takes less than a second, and
/// interference can only make it slower.
const TRIALS: u32 = 3;
/// Number of intervals.
const INTERVALS: u32 = 120;
/// Shorter waits spin instead of sleeping.
const SPIN: Duration = Duration::from_micros(200);

/// Counts operations.
#[derive(Default)]
struct Count(u64);

impl Sink for Count {
    fn on_operation(&mut self, _operation: &Operation<'_>) {
        self.0 += 1;
    }
    fn on_checksums(&mut self, _run: &ChecksumRun<'_>) {}
}

/// The phases of losses: equal shares of the packets, with a phase without losses before, between and after those with
/// losses.
struct Turns {
    shares: Vec<f64>,
    /// Packets per phase.
    each: u64,
}

impl Turns {
    fn of(shares: &[f64], packets: u64) -> Turns {
        let all: Vec<f64> = shares
            .iter()
            .flat_map(|share| [0.0, *share])
            .chain([0.0])
            .collect();
        let each = packets.div_ceil(all.len() as u64).max(1);
        Turns { shares: all, each }
    }

    fn at(&self, packet: u64) -> usize {
        ((packet / self.each) as usize).min(self.shares.len() - 1)
    }
}

/// Counters at the end of an interval, since the start of the run.
#[derive(Clone, Copy, Default)]
struct Seen {
    at_s: f64,
    wire_bytes: u64,
    packets: u64,
    lost: u64,
    operations: u64,
    backlog_bytes: f64,
    kept_bytes: usize,
}

/// A pass over a capture, either at a pace in bytes per second or as fast as possible.
struct Pass<'a> {
    turns: &'a Turns,
    losses: Vec<Loss>,
    pipeline: Pipeline<(Analysis, Count)>,
    started: Instant,
    pace: Option<f64>,
    interval_s: f64,
    now: Seen,
    intervals: Vec<Seen>,
    /// When each phase started.
    begins: Vec<f64>,
}

impl Pass<'_> {
    fn new(turns: &Turns, seed: u64, pace: Option<f64>, interval_s: f64) -> Pass<'_> {
        let losses = turns.shares.iter().enumerate();
        let losses = losses
            .map(|(turn, share)| Loss::new(seed.wrapping_add(turn as u64), *share))
            .collect();
        let sink = (Analysis::new(), Count::default());
        let pipeline = Pipeline::new(sink, Limits::default());
        let (now, intervals, begins) = (Seen::default(), Vec::new(), Vec::new());
        Pass {
            turns,
            losses,
            pipeline,
            started: Instant::now(),
            pace,
            interval_s,
            now,
            intervals,
            begins,
        }
    }

    /// Analyses the file; returns how long that took.
    fn run(&mut self, subject: &SubjectCapture, output: &dyn Console) -> Result<f64, BenchError> {
        let mut source = FileSource::open(&subject.path).map_err(BenchError::usage)?;
        let mut batch = PacketBatch::default();
        self.started = Instant::now();
        while source.fill(&mut batch).map_err(BenchError::usage)? {
            if output.is_interrupted() {
                return Err(BenchError::interrupted(
                    "interrupted: the lines printed so far are complete",
                ));
            }
            for packet in batch.packets() {
                self.wait_for(self.now.wire_bytes);
                let turn = self.turns.at(self.now.packets);
                if self.begins.len() <= turn {
                    self.begins.push(self.started.elapsed().as_secs_f64());
                }
                self.now.packets += 1;
                self.now.wire_bytes += u64::from(packet.wire_len);
                match self.losses[turn].keeps() {
                    true => self.pipeline.on_packet(&packet),
                    false => self.now.lost += 1,
                }
                // Reading the clock for each packet would affect the measurement.
                if self.now.packets.is_multiple_of(64) {
                    self.look();
                }
            }
            self.pipeline.on_packets(std::iter::empty());
        }
        self.look();
        Ok(self.started.elapsed().as_secs_f64())
    }

    /// Waits until a line at the pace has carried this many bytes.
    fn wait_for(&self, bytes: u64) {
        let Some(pace) = self.pace else { return };
        let due = Duration::from_secs_f64(bytes as f64 / pace);
        // Checked only every 16 packets: many packets have accumulated after a wait, so most are already late.
        if self.now.packets.is_multiple_of(16) {
            while let Some(early) = due.checked_sub(self.started.elapsed()) {
                if early.is_zero() {
                    break;
                }
                if early > SPIN {
                    std::thread::sleep(early - SPIN)
                } else {
                    std::hint::spin_loop()
                }
            }
        }
    }

    /// Records an interval once it is over.
    fn look(&mut self) {
        let at_s = self.started.elapsed().as_secs_f64();
        if at_s < (self.intervals.len() + 1) as f64 * self.interval_s {
            return;
        }
        let arrived = self.pace.map_or(0.0, |pace| pace * at_s);
        self.intervals.push(Seen {
            at_s,
            operations: self.pipeline.sink().1.0,
            backlog_bytes: (arrived - self.now.wire_bytes as f64).max(0.0),
            kept_bytes: self.pipeline.kept_bytes(),
            ..self.now
        });
    }
}

/// Processes a capture as fast as possible, then at a pace with phases of losses; returns the figures for the JSON.
pub fn run(
    subject: &SubjectCapture,
    shares: &[f64],
    seed: u64,
    output: &dyn Console,
) -> Result<Value, BenchError> {
    let whole = Turns::of(&[], subject.packets);
    let mut unpaced = f64::INFINITY;
    for _ in 0..TRIALS {
        unpaced = unpaced.min(Pass::new(&whole, seed, None, f64::INFINITY).run(subject, output)?);
    }
    let capacity = subject.wire_bytes as f64 / unpaced;
    let pace = capacity * PACE;
    let interval_s = subject.wire_bytes as f64 / pace / f64::from(INTERVALS);
    let turns = Turns::of(shares, subject.packets);
    let mut pass = Pass::new(&turns, seed, Some(pace), interval_s);
    let took = pass.run(subject, output)?;
    let gbit = |bytes_per_s: f64| bytes_per_s * 8.0 / 1e9;
    let turn = |(index, share): (usize, &f64)| {
        let to_s = pass.begins.get(index + 1).copied().unwrap_or(took);
        let from_s = pass.begins.get(index).copied().unwrap_or(to_s);
        json!({ "lost_share": share, "from_s": from_s, "to_s": to_s })
    };
    let most = pass
        .intervals
        .iter()
        .map(|seen| seen.backlog_bytes)
        .fold(0.0, f64::max);
    let kept = pass
        .intervals
        .iter()
        .map(|seen| seen.kept_bytes)
        .max()
        .unwrap_or(0);
    output.line(format_args!(
        "  over time: {:.2} Gb/s arriving, maximum {:.2} without losses; peak backlog {:.2} MB, peak kept {:.2} MB",
        gbit(pace),
        gbit(capacity),
        most / 1e6,
        kept as f64 / 1e6
    ));
    Ok(json!({
        "capacity_bits_per_s": capacity * 8.0,
        "arriving_bits_per_s": pace * 8.0,
        "elapsed_s": took,
        "backlog_bytes_max": most,
        "kept_bytes_max": kept,
        "turns": turns.shares.iter().enumerate().map(turn).collect::<Vec<Value>>(),
        "intervals": intervals(&pass.intervals),
    }))
}

/// The counters as figures per interval.
fn intervals(seen: &[Seen]) -> Vec<Value> {
    let before = std::iter::once(Seen::default()).chain(seen.iter().copied());
    let figure = |(before, seen): (Seen, &Seen)| {
        let each = |count: u64| count as f64 / (seen.at_s - before.at_s);
        json!({
            "start_s": before.at_s,
            "end_s": seen.at_s,
            "bits_per_s": each(seen.wire_bytes - before.wire_bytes) * 8.0,
            "packets": seen.packets - before.packets,
            "lost": seen.lost - before.lost,
            "operations_per_s": each(seen.operations - before.operations),
            "backlog_bytes": seen.backlog_bytes,
            "kept_bytes": seen.kept_bytes,
        })
    };
    before.zip(seen).map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Unread;
    use crate::scratch::Scratch;

    /// Losses occur only in their phases, which are surrounded by phases of the same length without losses.
    #[test]
    fn losses_occur_only_in_their_phases() {
        let turns = Turns::of(&[0.01, 0.05], 1000);
        assert_eq!(turns.shares, [0.0, 0.01, 0.0, 0.05, 0.0]);
        assert_eq!(
            [0, 199, 200, 400, 999, 5000].map(|packet| turns.at(packet)),
            [0, 0, 1, 2, 4, 4]
        );
    }

    /// If every packet in the middle phase is lost, no packet in the other phases is; every packet and operation is
    /// counted in some interval, except for those in the last, unfinished interval.
    #[test]
    fn intervals_account_for_every_packet_and_operation() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../testdata/nfs3-small.pcap.zst"
        );
        let scratch = Scratch::new(None, "over-time").unwrap();
        let subject = SubjectCapture::of_file(std::path::Path::new(file), &scratch).unwrap();
        let figures = run(&subject, &[1.0], 1, &Unread).unwrap();
        let turns = figures["turns"].as_array().unwrap();
        assert_eq!(turns.len(), 3, "{turns:?}");
        let intervals = figures["intervals"].as_array().unwrap();
        assert!(intervals.len() > 1, "{intervals:?}");
        let sum = |key: &str| {
            intervals
                .iter()
                .map(|one| one[key].as_u64().unwrap())
                .sum::<u64>()
        };
        assert!(
            sum("packets") <= subject.packets && sum("packets") * 2 > subject.packets,
            "{}",
            sum("packets")
        );
        assert!(
            sum("lost") <= subject.packets.div_ceil(3),
            "{}",
            sum("lost")
        );
        let operations: f64 = intervals
            .iter()
            .map(|one| {
                one["operations_per_s"].as_f64().unwrap()
                    * (one["end_s"].as_f64().unwrap() - one["start_s"].as_f64().unwrap())
            })
            .sum();
        assert!(
            operations > 0.0 && operations <= subject.calls as f64 + 0.5,
            "{operations}"
        );
    }
}
