//! `brunt-bench capture --wire SEND,CAPTURE`: the highest rate at which packets can be taken from an interface
//! without losing any, by a bare packet ring and by `AF_XDP`, both of which only count, and by `brunt capture`, with
//! and without a trace. All readers take turns on the same pair of interfaces in the same run.
//!
//! The rule: a rate counts only if every packet that was sent was seen. Figures for faster networks are extrapolated
//! from CPU times, and labelled as such.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brunt_capture::live::{Origin, PacketCounter};
use brunt_capture::{LiveError, LiveOptions};
use brunt_core::quantity::Span;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::replay::{Frames, Replay, SentPackets};
use super::subject::SubjectCapture;
use crate::program;
use crate::sample::median;
use crate::scratch::Scratch;
use crate::sockets;
use crate::{BenchError, BenchResult, Console};

/// The share of the bare ring's rate that a capture has to reach.
const GOAL: f64 = 0.8;
/// How long packets are sent in each attempt.
const ATTEMPT: Duration = Duration::from_secs(2);
const ATTEMPT_QUICK: Duration = Duration::from_millis(500);
/// Number of bisections of the interval that contains the rate: 6 narrow it to 1/64 of the sender's rate.
const STEPS: u32 = 6;
const STEPS_QUICK: u32 = 3;
/// Network rates to extrapolate to.
const NETWORKS_GBIT: [f64; 2] = [25.0, 100.0];
/// The kernel delivers the last packets within 10 ms, or within twice that to a reader that has to wait for a core;
/// the rest is margin.
const SETTLE: Duration = Duration::from_millis(300);

/// The measurement.
pub struct WireBench {
    /// The interface to send on.
    pub send: String,
    /// The interface connected to it, which receives.
    pub on: String,
    /// How long to send in each attempt.
    pub duration: Option<Span>,
    /// Rounds; each measures every reader in turn.
    pub rounds: u32,
    /// Shorter attempts and a coarser search.
    pub quick: bool,
}

/// What receives the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// A packet ring (`TPACKET_V3`); only counts.
    Ring,
    /// `AF_XDP`; only counts.
    Xdp,
    Capture,
    CaptureWithTrace,
}

impl Reader {
    const ALL: [Reader; 4] = [
        Reader::Ring,
        Reader::Xdp,
        Reader::Capture,
        Reader::CaptureWithTrace,
    ];

    fn name(self) -> &'static str {
        match self {
            Reader::Ring => "packet ring, only counting",
            Reader::Xdp => "AF_XDP, only counting",
            Reader::Capture => "brunt capture",
            Reader::CaptureWithTrace => "brunt capture --out",
        }
    }

    fn is_capture(self) -> bool {
        matches!(self, Reader::Capture | Reader::CaptureWithTrace)
    }
}

/// CPU time in seconds by stage.
type CpuByStage = BTreeMap<String, f64>;

/// One attempt at a rate.
#[derive(Clone, Debug, Default)]
struct Attempt {
    sent: SentPackets,
    seen: u64,
    cpu: CpuByStage,
}

impl Attempt {
    fn lost(&self) -> u64 {
        self.sent.packets.saturating_sub(self.seen)
    }

    fn lost_share(&self) -> f64 {
        self.lost() as f64 / self.sent.packets.max(1) as f64
    }

    /// The stage that used the largest share of a core, and that share.
    fn busiest(&self) -> Option<(&str, f64)> {
        let stages = self.cpu.iter();
        let shares = stages.map(|(stage, spent)| (stage.as_str(), spent / self.sent.seconds));
        shares.max_by(|one, other| one.1.total_cmp(&other.1))
    }
}

/// The result of a search.
#[derive(Clone, Debug)]
struct Fastest {
    /// The attempt at the highest rate without loss; `None` if each attempt lost packets.
    kept: Option<Attempt>,
    /// The attempt at the sender's full speed.
    unlimited: Attempt,
}

impl Fastest {
    /// Gigabits per second without loss; 0 if each attempt lost packets.
    fn gbit(&self) -> f64 {
        self.kept.as_ref().map_or(0.0, |kept| kept.sent.gbit())
    }
}

impl WireBench {
    /// Measures all captures and prints a table for each.
    pub fn run(
        &self,
        subjects: &[SubjectCapture],
        scratch: &Scratch,
        output: &dyn Console,
    ) -> BenchResult {
        let mut tables = Vec::new();
        for subject in subjects {
            let frames = Frames::load(&subject.path)?;
            let packet_bytes = subject.wire_bytes as f64 / subject.packets.max(1) as f64;
            output.line(format_args!(
                "{}: {packet_bytes:.0} bytes per packet",
                subject.name
            ));
            let readers = self.readers(output)?;
            let mut found: Vec<Vec<Fastest>> = vec![Vec::new(); readers.len()];
            for _ in 0..self.rounds {
                for (reader, of) in readers.iter().zip(&mut found) {
                    of.push(self.fastest(*reader, &frames, scratch, output)?);
                }
            }
            let table = WireTable {
                readers: &readers,
                found: &found,
                packet_bytes,
            };
            tables.push(table.print(&subject.name, output));
        }
        output.object(&json!({ "captures": tables, "rounds": self.rounds }));
        Ok(())
    }

    /// The readers that work here; a note says which ones don't, and why.
    fn readers(&self, output: &dyn Console) -> Result<Vec<Reader>, BenchError> {
        let mut readers = Vec::new();
        for reader in Reader::ALL {
            let opened = match reader {
                Reader::Ring => PacketCounter::open(&self.on, &options(Origin::Packet)),
                Reader::Xdp => PacketCounter::open(&self.on, &options(Origin::Xdp)),
                _ => {
                    readers.push(reader);
                    continue;
                }
            };
            match opened {
                Ok(_) => readers.push(reader),
                Err(error @ LiveError::NoInterface(_)) => return Err(BenchError::usage(error)),
                Err(error) if reader == Reader::Xdp => {
                    output.note(format_args!("skipped: AF_XDP: {error}"));
                }
                Err(error) => return Err(BenchError::failed(error)),
            }
        }
        Ok(readers)
    }

    /// Searches for the highest rate without loss.
    fn fastest(
        &self,
        reader: Reader,
        frames: &Frames,
        scratch: &Scratch,
        output: &dyn Console,
    ) -> Result<Fastest, BenchError> {
        let unlimited = self.attempt(reader, None, frames, scratch, output)?;
        if unlimited.lost() == 0 {
            return Ok(Fastest {
                kept: Some(unlimited.clone()),
                unlimited,
            });
        }
        let (mut low, mut high, mut kept) = (0.0, unlimited.sent.gbit(), None);
        for _ in 0..if self.quick { STEPS_QUICK } else { STEPS } {
            let rate = f64::midpoint(low, high);
            let attempt = self.attempt(reader, Some(rate), frames, scratch, output)?;
            if attempt.lost() == 0 {
                low = rate;
                kept = Some(attempt);
            } else {
                high = rate;
            }
        }
        Ok(Fastest { kept, unlimited })
    }

    fn attempt(
        &self,
        reader: Reader,
        rate: Option<f64>,
        frames: &Frames,
        scratch: &Scratch,
        output: &dyn Console,
    ) -> Result<Attempt, BenchError> {
        if output.is_interrupted() {
            return Err(BenchError::interrupted(
                "interrupted: the captures printed so far are complete",
            ));
        }
        let usual = if self.quick { ATTEMPT_QUICK } else { ATTEMPT };
        let replay = Replay {
            interface: &self.send,
            times: 1,
            duration: Some(self.duration.unwrap_or(Span(usual))),
            rate,
        };
        let send = || replay.send(frames, output);
        match reader {
            Reader::Ring => self.count(Origin::Packet, send),
            Reader::Xdp => self.count(Origin::Xdp, send),
            Reader::Capture => self.capture(None, scratch, send),
            Reader::CaptureWithTrace => self.capture(Some("trace"), scratch, send),
        }
    }

    /// Sends packets to a thread that only counts them.
    fn count(
        &self,
        origin: Origin,
        send: impl FnOnce() -> Result<SentPackets, BenchError>,
    ) -> Result<Attempt, BenchError> {
        let counter =
            PacketCounter::open(&self.on, &options(origin)).map_err(BenchError::failed)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let counters = counter.count(|| stop.load(Ordering::Relaxed));
            let spent = clock_gettime(ClockId::ThreadCPUTime);
            (counters, Duration::try_from(spent).unwrap_or_default())
        });
        let sent = send();
        std::thread::sleep(SETTLE);
        is_over.store(true, Ordering::Relaxed);
        let joined = thread.join();
        let (counters, spent) = joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(Attempt {
            sent: sent?,
            seen: counters.map_err(BenchError::failed)?.seen,
            cpu: [("reader".to_string(), spent.as_secs_f64())].into(),
        })
    }

    /// Sends packets to `brunt capture`.
    fn capture(
        &self,
        trace: Option<&str>,
        scratch: &Scratch,
        send: impl FnOnce() -> Result<SentPackets, BenchError>,
    ) -> Result<Attempt, BenchError> {
        let mut command = Command::new(program::brunt()?);
        command.args(["--json", "capture", "--plain", "-i", &self.on]);
        let folder = trace.map(|name| scratch.join(name));
        if let Some(folder) = &folder {
            let _ = std::fs::remove_dir_all(folder);
            command.arg("--out").arg(folder);
        }
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let started = piped.stderr(Stdio::piped()).spawn();
        let mut child = RunningCapture(started.map_err(BenchError::failed)?);
        let said = sockets::drained(child.0.stderr.take().expect("piped"));
        if let Err(error) = sockets::wait_for(&mut child.0, "brunt capture", sockets::is_capturing)
        {
            drop(child);
            return Err(sockets::with_printed(&error, said));
        }
        let sent = send();
        std::thread::sleep(SETTLE);
        let id = i32::try_from(child.0.id()).ok();
        if let Some(process) = id.and_then(Pid::from_raw) {
            kill_process(process, Signal::INT).map_err(BenchError::failed)?;
        }
        let mut text = String::new();
        let mut stdout = child.0.stdout.take().expect("piped");
        stdout
            .read_to_string(&mut text)
            .map_err(BenchError::failed)?;
        child.0.wait().map_err(BenchError::failed)?;
        let _ = said.join();
        if let Some(folder) = &folder {
            let _ = std::fs::remove_dir_all(folder);
        }
        let report: Value = serde_json::from_str(&text).map_err(BenchError::failed)?;
        let cpu = report["pipelines"]["cpu_s"]
            .as_object()
            .into_iter()
            .flatten();
        Ok(Attempt {
            sent: sent?,
            seen: report["ledger"]["packets"].as_u64().unwrap_or(0),
            cpu: cpu
                .filter_map(|(stage, spent)| Some((stage.clone(), spent.as_f64()?)))
                .collect(),
        })
    }
}

/// A capture that is killed if the measurement ends before it does.
struct RunningCapture(std::process::Child);

impl Drop for RunningCapture {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn options(origin: Origin) -> LiveOptions {
    LiveOptions {
        origin,
        ..LiveOptions::default()
    }
}

/// The results for a capture file.
struct WireTable<'a> {
    readers: &'a [Reader],
    found: &'a [Vec<Fastest>],
    packet_bytes: f64,
}

impl WireTable<'_> {
    fn print(&self, name: &str, output: &dyn Console) -> Value {
        output.line(format_args!(
            "  {:<28}{:>10}{:>12}{:>9}   at full speed",
            "without loss", "Gb/s", "packets/s", "of ring"
        ));
        let rows: Vec<Value> = (0..self.readers.len())
            .map(|index| self.row(index, output))
            .collect();
        json!({ "capture": name, "packet_bytes": self.packet_bytes, "readers": rows })
    }

    fn row(&self, index: usize, output: &dyn Console) -> Value {
        let (reader, of) = (self.readers[index], &self.found[index]);
        let gbit = median(&of.iter().map(Fastest::gbit).collect::<Vec<_>>());
        let ratios: Vec<f64> = of.iter().zip(&self.found[0]).map(ratio).collect();
        let ratio = median(&ratios);
        let lost: Vec<f64> = of.iter().map(|one| one.unlimited.lost_share()).collect();
        let last = &of[of.len() - 1].unlimited;
        let busiest = last.busiest();
        let busiest = busiest.map_or_else(String::new, |(stage, share)| {
            format!("; {stage} {:.0} % of a core", 100.0 * share)
        });
        output.line(format_args!(
            "  {:<28}{gbit:>10.3}{:>12.0}{ratio:>9.2}   {:.3} Gb/s, {:.2} % lost{busiest}",
            reader.name(),
            gbit * 1e9 / 8.0 / self.packet_bytes,
            last.sent.gbit(),
            100.0 * median(&lost)
        ));
        // CPU times are per packet that was seen, even if the attempt lost packets.
        let typical = of
            .iter()
            .map(|one| one.kept.as_ref().unwrap_or(&one.unlimited));
        let costs = costs(&typical.cloned().collect::<Vec<_>>());
        let text: Vec<String> = costs.iter().map(|(s, ns)| format!("{s} {ns:.0}")).collect();
        output.line(format_args!(
            "    CPU time, ns per packet: {}",
            text.join(", ")
        ));
        let mut row = json!({
            "reader": reader.name(), "gbit_per_s": gbit, "ratio_to_ring": ratio,
            "lost_at_full_speed": median(&lost), "cpu_ns_per_packet": costs,
        });
        if reader.is_capture() {
            let verdict = if ratio >= GOAL { "reached" } else { "missed" };
            output.line(format_args!(
                "    = goal of {GOAL} of the ring's rate: {verdict}"
            ));
            row["goal_reached"] = json!(ratio >= GOAL);
            let mut needed = Vec::new();
            for network in NETWORKS_GBIT {
                let cores = cores(&costs, network, self.packet_bytes);
                let text: Vec<String> = cores.iter().map(|(s, n)| format!("{s} {n:.2}")).collect();
                output.line(format_args!(
                    "    computed, not measured: cores needed at {network:.0} Gb/s: {}",
                    text.join(", ")
                ));
                needed.push(json!({ "gbit_per_s": network, "cores": cores }));
            }
            row["arithmetic"] = json!(needed);
        }
        row
    }
}

/// The rate of a reader as a share of the ring's in the same round.
fn ratio((reader, ring): (&Fastest, &Fastest)) -> f64 {
    match ring.gbit() {
        0.0 => 0.0,
        gbit => reader.gbit() / gbit,
    }
}

/// CPU time per packet of each stage, in nanoseconds.
fn costs(attempts: &[Attempt]) -> CpuByStage {
    let seen: u64 = attempts.iter().map(|attempt| attempt.seen).sum();
    let mut costs = CpuByStage::new();
    for (stage, spent) in attempts.iter().flat_map(|attempt| &attempt.cpu) {
        *costs.entry(stage.clone()).or_default() += 1e9 * spent / seen.max(1) as f64;
    }
    costs
}

/// Cores that each stage needs at a rate, if its CPU time per packet stays the same.
fn cores(costs: &CpuByStage, gbit: f64, packet_bytes: f64) -> CpuByStage {
    let packets_per_s = gbit * 1e9 / 8.0 / packet_bytes;
    let stages = costs.iter();
    stages
        .map(|(stage, ns)| (stage.clone(), ns * 1e-9 * packets_per_s))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(packets: u64, seen: u64, cpu_s: f64) -> Attempt {
        Attempt {
            sent: SentPackets {
                packets,
                bytes: packets * 1250,
                seconds: 1.0,
                full: 0,
            },
            seen,
            cpu: [("parsers".to_string(), cpu_s), ("reader".to_string(), 0.1)].into(),
        }
    }

    /// 1 us per packet of 1,250 bytes: 25 Gb/s are 2.5 million packets per second, which need 2.5 cores.
    #[test]
    fn cores_follow_from_the_time_per_packet() {
        let costs = costs(&[attempt(1000, 1000, 1e-3), attempt(3000, 3000, 3e-3)]);
        assert!((costs["parsers"] - 1000.0).abs() < 1e-6, "{costs:?}");
        let cores = cores(&costs, 25.0, 1250.0);
        assert!((cores["parsers"] - 2.5).abs() < 1e-9, "{cores:?}");
    }

    /// A rate at which packets were lost doesn't count.
    #[test]
    fn rates_with_losses_do_not_count() {
        let lossy = attempt(1000, 900, 0.9);
        assert_eq!((lossy.lost(), lossy.lost_share()), (100, 0.1));
        assert_eq!(lossy.busiest(), Some(("parsers", 0.9)));
        let none = Fastest {
            kept: None,
            unlimited: lossy.clone(),
        };
        let ring = Fastest {
            kept: Some(attempt(2000, 2000, 0.1)),
            unlimited: lossy,
        };
        assert_eq!(ratio((&none, &ring)), 0.0);
        assert_eq!(ratio((&ring, &ring)), 1.0);
    }
}
