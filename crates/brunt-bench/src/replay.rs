//! Does a replay keep a trace's timing, and what does it cost? Sends requests at equal gaps to a null device with
//! Brunt's replay, fio's `read_iolog`, a bare loop that only watches the clock, and replayers that the user names,
//! alternately. Then replays the same trace as fast as possible, and compares the rate with the synthetic load
//! engine's.
//!
//! The bare loop shows what the machine permits at that moment: where it is late, another program had the core.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use brunt_block::{Backend, open_url};
use brunt_core::{Clock, Histogram, Nanos, Size, Span};
use brunt_load::block::workload::{StopCondition, Workload};
use brunt_load::load::{LoadTarget, RunOrder};
use brunt_load::replay::ReplayLoad;
use brunt_load::replay::settings::ReplayTiming;
use brunt_load::{NoRecorder, Session, decisions};
use brunt_result::replay::ReplayFidelity;
use brunt_result::statistics::{Ratio, interleaved};
use brunt_trace::{BlockRequest, TraceOp};
use serde_json::{Value, json};

use super::sample::{median, median_of, memory_peak, ratio_words};
use crate::replay_peers::{KeptTimes, PeerReplayer};
use crate::scratch::Scratch;
use crate::trace_file::{VSCSI, write_trace};
use crate::{BenchError, BenchResult, Console, fio};

/// Offsets in the trace stay below this.
const SPAN_BYTES: u64 = 1 << 30;
/// Size of each request.
const REQUEST_BYTES: u32 = 4096;
/// Outstanding requests when the rate is measured.
const DEPTH: u32 = 32;
/// fio is stopped after this many times the trace's duration.
const FIO_TIMES_MAX: u32 = 20;

/// Timing and rate of a replay, compared with fio, a bare loop on the clock and the load engine
#[derive(Clone, Debug)]
pub struct ReplayBench {
    /// Requests in the timed replay
    pub requests: u32,
    /// Gap between requests, in microseconds
    pub gap_us: u32,
    /// Requests to replay as fast as possible
    pub fast_requests: u32,
    /// Runs per side; with fewer than 4, the ratio's confidence interval is wide
    pub rounds: u32,
    /// The command line of blkreplay
    pub blkreplay: Option<String>,
    /// The command line of hfplayer
    pub hfplayer: Option<String>,
}

/// The program whose timing is measured.
enum Side<'a> {
    Bare,
    Ours(&'a Path),
    Fio(&'a Path),
    Peer(PeerReplayer),
}

impl Side<'_> {
    fn name(&self) -> &'static str {
        match self {
            Side::Bare => "bare clock loop",
            Side::Ours(_) => "brunt replay",
            Side::Fio(_) => "fio read_iolog",
            Side::Peer(peer) => peer.name,
        }
    }
}

impl ReplayBench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// The settings are invalid, or a run failed.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        if self.requests < 2 || self.gap_us == 0 || self.fast_requests < 1000 {
            return Err(BenchError::usage(
                "--requests must be at least 2, --gap-us at least 1 and --fast-requests at least 1000",
            ));
        }
        let scratch = Scratch::new(None, "replay")?;
        let [even, fast, iolog] =
            ["even.vscsi", "fast.vscsi", "even.iolog"].map(|name| scratch.join(name));
        write_trace(&even, VSCSI, reads(self.requests, self.gap_us))?;
        write_trace(&fast, VSCSI, reads(self.fast_requests, 1))?;
        write_trace(&iolog, "iolog3", reads(self.requests, self.gap_us))?;
        let fio = fio::version().ok();
        if fio.is_none() {
            output.note(
                "fio is not installed, so there is no comparison with it: apt-get install fio",
            );
        }
        let mut sides = vec![Side::Bare, Side::Ours(&even)];
        sides.extend(fio.is_some().then_some(Side::Fio(&iolog)));
        let blkreplay = self
            .blkreplay
            .as_deref()
            .map(PeerReplayer::blkreplay)
            .transpose()?;
        let hfplayer = self
            .hfplayer
            .as_deref()
            .map(PeerReplayer::hfplayer)
            .transpose()?;
        for peer in blkreplay.into_iter().chain(hfplayer) {
            peer.prepare(&scratch, SPAN_BYTES, reads(self.requests, self.gap_us))?;
            sides.push(Side::Peer(peer));
        }
        let times = self.times(output, &scratch, &sides)?;
        let rates = self.rates(output, &fast)?;
        let peak = memory_peak();
        if let Some(bytes) = peak {
            output.line(format_args!("peak memory of this process: {}", Size(bytes)));
        }
        output.object(&json!({
            "fio": fio, "rounds": self.rounds, "requests": self.requests, "gap_us": self.gap_us,
            "times": times, "rates": rates, "memory_peak_bytes": peak,
        }));
        Ok(())
    }

    fn times(
        &self,
        output: &dyn Console,
        scratch: &Scratch,
        sides: &[Side],
    ) -> Result<Value, BenchError> {
        let mut kept: Vec<Vec<KeptTimes>> = sides.iter().map(|_| Vec::new()).collect();
        for (side, _) in interleaved(sides.len(), self.rounds as usize, 1) {
            if output.is_interrupted() {
                return Err(BenchError::interrupted("interrupted"));
            }
            kept[side].push(match &sides[side] {
                Side::Bare => self.bare(),
                Side::Ours(trace) => self.ours(trace)?,
                Side::Fio(iolog) => self.fio(iolog)?,
                Side::Peer(peer) => peer.turn(scratch, self.requests, self.span(), output)?,
            });
        }
        output.line(format_args!(
            "{} reads of 4 KiB, {} µs apart, into a null device",
            self.requests, self.gap_us
        ));
        output.line(
            "                      drift   p50 us   p99 us   max us   of issue errors, reordered (medians of runs)",
        );
        let mut answers = Vec::new();
        for (side, runs) in sides.iter().zip(&kept) {
            let of = |figure: fn(&KeptTimes) -> Option<f64>| median_of(runs, figure);
            let (name, drift) = (side.name(), of(|run| Some(run.drift)).unwrap_or(f64::NAN));
            let errors = [
                of(|run| run.p50_us),
                of(|run| run.p99_us),
                of(|run| run.max_us),
            ];
            let shown = errors.map(|error| error.map_or("-".into(), |us| format!("{us:.1}")));
            let reordered = of(|run| run.reordered.map(|requests| requests as f64));
            let [p50, p99, max] = &shown;
            output.line(format_args!(
                "  {name:<15} {:>9.4} % {p50:>7} {p99:>8} {max:>8} {:>9}",
                drift * 100.0,
                reordered.map_or("-".into(), |requests| format!("{requests:.0}"))
            ));
            answers.push(json!({
                "who": name,
                "drift": runs.iter().map(|run| run.drift).collect::<Vec<f64>>(),
                "issue_error_p50_us": errors[0],
                "issue_error_p99_us": errors[1],
                "issue_error_max_us": errors[2],
                "reordered": reordered,
            }));
        }
        Ok(answers.into())
    }

    /// The time from the first request to the last.
    fn span(&self) -> Duration {
        Duration::from_micros(u64::from(self.requests - 1) * u64::from(self.gap_us))
    }

    /// Waits for the same times in a loop that does nothing else.
    fn bare(&self) -> KeptTimes {
        let (mut errors, gap) = (Histogram::new(), u64::from(self.gap_us) * 1000);
        let start = Clock::Monotonic.now().after(Duration::from_millis(2));
        let (mut first, mut last) = (0, 0);
        for request in 0..u64::from(self.requests) {
            let due = start.0 + request * gap;
            let mut now = Clock::Monotonic.now().0;
            while now < due {
                now = Clock::Monotonic.now().0;
            }
            let error = now - due;
            errors.record(Nanos(error));
            first = if request == 0 { error } else { first };
            last = error;
        }
        let us = |percent| errors.percentile(percent).map(|nanos| nanos.0 as f64 / 1e3);
        let span = (u64::from(self.requests) - 1) * gap;
        KeptTimes {
            drift: (last as f64 - first as f64) / span as f64,
            p50_us: us(50.0),
            p99_us: us(99.0),
            max_us: errors.max().map(|nanos| nanos.0 as f64 / 1e3),
            reordered: None,
        }
    }

    fn ours(&self, trace: &Path) -> Result<KeptTimes, BenchError> {
        let (_, fidelity) = replayed(trace, ReplayTiming::Trace)?;
        let error = fidelity.issue_error.as_ref();
        Ok(KeptTimes {
            drift: fidelity.drift.unwrap_or(f64::NAN),
            p50_us: error.map(|error| error.p50_us),
            p99_us: error.map(|error| error.p99_us),
            max_us: error.map(|error| error.max_us),
            reordered: Some(fidelity.reordered),
        })
    }

    /// fio reports how long it took, but not when it sent each request.
    fn fio(&self, iolog: &Path) -> Result<KeptTimes, BenchError> {
        let span_s = self.span().as_secs_f64();
        let limit = (span_s.ceil() as u32).saturating_mul(FIO_TIMES_MAX).max(10);
        let answer = fio::run(&[
            "--ioengine=null".to_string(),
            format!("--runtime={limit}"),
            format!("--read_iolog={}", iolog.display()),
        ])?;
        let took_ms = answer["read"]["runtime"].as_f64();
        let took_ms = took_ms.ok_or_else(|| BenchError::failed("fio reports no run time"))?;
        let drift = took_ms / 1e3 / span_s - 1.0;
        Ok(KeptTimes {
            drift,
            p50_us: None,
            p99_us: None,
            max_us: None,
            reordered: None,
        })
    }

    fn rates(&self, output: &dyn Console, fast: &Path) -> Result<Value, BenchError> {
        let (mut replays, mut engine) = (Vec::new(), Vec::new());
        for (side, _) in interleaved(2, self.rounds as usize, 2) {
            if output.is_interrupted() {
                return Err(BenchError::interrupted("interrupted"));
            }
            match side {
                0 => replays.push(replayed(fast, ReplayTiming::Depth)?.0),
                _ => engine.push(self.synthetic()?),
            }
        }
        let ratio = Ratio::of(&engine, &replays, 1);
        let shown = ratio_words(ratio.as_ref(), 2);
        output.line(format_args!(
            "as fast as possible, depth {DEPTH}: replay {:.0} requests/s, load engine {:.0}, ratio {shown}",
            median(&replays),
            median(&engine)
        ));
        Ok(json!({ "replay": replays, "engine": engine, "ratio": ratio }))
    }

    fn synthetic(&self) -> Result<f64, BenchError> {
        let workload = Workload {
            queue_depth: DEPTH,
            interval: Span(Duration::ZERO),
            stop: StopCondition {
                requests: Some(self.fast_requests.into()),
                ..StopCondition::default()
            },
            ..Workload::default()
        };
        let outcome = Session::new(workload, null()?, 1)
            .run(&AtomicBool::new(false), &mut NoRecorder)
            .map_err(BenchError::failed)?;
        Ok(outcome.requests_per_second)
    }
}

fn null() -> Result<Arc<dyn Backend>, BenchError> {
    open_url(&format!("null:{SPAN_BYTES}?fill=no")).map_err(BenchError::failed)
}

/// Replays a trace into a null device; returns requests per second and the fidelity.
fn replayed(trace: &Path, timing: ReplayTiming) -> Result<(f64, ReplayFidelity), BenchError> {
    let workload = Workload {
        trace: Some(trace.to_path_buf()),
        format: Some(VSCSI.into()),
        timing: Some(timing),
        queue_depth: DEPTH,
        interval: Span(Duration::ZERO),
        ..Workload::default()
    };
    let load = ReplayLoad::new(workload, &[]);
    let on = LoadTarget::of(null()?);
    let order = RunOrder::alone(1);
    let ran = decisions::run(&load, &on, &order, &AtomicBool::new(false), &mut NoRecorder);
    let ran = ran.map_err(BenchError::failed)?;
    let fidelity = ran
        .finished
        .replay
        .expect("a replay reports its timing errors");
    Ok((ran.outcome.requests_per_second, *fidelity))
}

/// Reads of 4 KiB at equal gaps.
fn reads(requests: u32, gap_us: u32) -> impl Iterator<Item = BlockRequest> {
    (0..u64::from(requests)).map(move |request| {
        let offset = request * 2 * u64::from(REQUEST_BYTES) % SPAN_BYTES;
        let time_ns = request * u64::from(gap_us) * 1000;
        BlockRequest::new(time_ns, 0, TraceOp::Read, offset, REQUEST_BYTES)
    })
}
