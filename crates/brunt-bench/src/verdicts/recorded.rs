//! Experiments recorded on real machines, with effects that a server injected itself (`tools/verdicts-truth.py
//! --record`). Recorded experiments are scored like generated ones, except that the noise is unknown, so there is no
//! ceiling.

use brunt_result::degradation::{
    Degradation, FaultSpan, IntervalFigures, OverRuns, WaitingFigures, of_run, over_runs,
};
use brunt_result::statistics::Estimate;
use serde::Deserialize;
use serde_json::json;

use super::score::right;
use crate::{BenchError, BenchResult, Console};

/// An experiment and its ground truth: a line of the recording.
#[derive(Debug, Deserialize)]
struct Recorded {
    /// What else ran on the machine.
    machine: String,
    /// The tool's name for the case, or the example and its workload or target.
    name: String,
    /// Share of the requests that the fault takes while it lasts; absent if unknown.
    drop: Option<f64>,
    /// Seconds that all requests of a run together wait beyond normal; absent if unknown or without an effect.
    wait_s: Option<f64>,
    /// The earliest and the latest time of recovery, in seconds after the fault's end; absent without an effect.
    back_s: Option<[f64; 2]>,
    /// Whether the load is an open loop: a fault delays its requests but keeps their rate.
    is_open: bool,
    runs: Vec<RecordedRun>,
}

#[derive(Debug, Deserialize)]
struct RecordedRun {
    /// Start and end of the fault in seconds, on the clock of the intervals.
    fault_s: [f64; 2],
    intervals: Vec<RecordedInterval>,
}

/// Start and end in ns, completed requests, their mean response time in ns, requests that were due but unanswered at
/// the end, and the mean and greatest age of those in ns.
#[derive(Debug, Deserialize)]
struct RecordedInterval(u64, u64, u64, Option<f64>, u64, Option<f64>, Option<f64>);

impl RecordedRun {
    fn judge(&self) -> Option<Degradation> {
        let [start_s, end_s] = self.fault_s;
        let series: Vec<IntervalFigures> = self
            .intervals
            .iter()
            .map(RecordedInterval::figures)
            .collect();
        let span = FaultSpan {
            start_s,
            end_s: Some(end_s),
        };
        of_run(&series, &[span], 0)
    }
}

impl RecordedInterval {
    fn figures(&self) -> IntervalFigures {
        let RecordedInterval(start, end, requests, response, waiting, age, oldest) = *self;
        let us = |ns: f64| ns / 1e3;
        IntervalFigures {
            start_s: start as f64 / 1e9,
            end_s: end as f64 / 1e9,
            requests,
            bytes: requests * 4096,
            response_mean_us: response.map(us),
            waiting: Some(WaitingFigures {
                requests: waiting,
                mean_us: age.map(us),
                oldest_us: oldest.map(us),
            }),
            ..IntervalFigures::default()
        }
    }
}

/// The verdicts on one experiment, compared with the truth. `None` means not applicable.
struct RecordedScore {
    detected: bool,
    open: bool,
    drop_right: Option<bool>,
    wait_right: Option<bool>,
    back_right: Option<bool>,
    back_never: Option<bool>,
    back_open: Option<bool>,
    /// Estimates to print if a verdict is wrong: the drop, the wait in seconds, and the time of recovery.
    estimates: [Option<Estimate>; 3],
}

/// The verdict on the rate, or on response times in an open loop: runs with an effect, inconclusive runs, the time of
/// recovery, runs that never recovered, and runs whose recovery is inconclusive.
type Said = (usize, usize, Option<Estimate>, usize, usize);

fn said(all: &OverRuns, is_open: bool) -> Said {
    let seen = |detected: Option<Estimate>| detected.map_or(0, |detected| detected.runs);
    if is_open {
        let of = &all.response_mean;
        let open = of.detection_inconclusive;
        return (
            seen(of.detected_s),
            open,
            of.recovered_s,
            of.not_recovered,
            of.recovery_inconclusive,
        );
    }
    let open = all.detection_inconclusive;
    (
        seen(all.detected_s),
        open,
        all.recovered_s,
        all.not_recovered,
        all.recovery_inconclusive,
    )
}

impl Recorded {
    /// Judges the experiment as `brunt run` does.
    fn score(&self) -> RecordedScore {
        let runs: Vec<Degradation> = self.runs.iter().filter_map(RecordedRun::judge).collect();
        let all = over_runs("fault", &runs);
        let (seen, open, back, never, back_open) = said(&all, self.is_open);
        let interval_s = self.runs.first().and_then(|run| run.intervals.first());
        let interval_s = interval_s.map_or(0.0, |first| (first.1 - first.0) as f64 / 1e9);
        let detected = 2 * seen >= all.runs;
        // Without a detection, there is no verdict on recovery.
        let truth = self.back_s.filter(|_| detected);
        RecordedScore {
            detected,
            open: 2 * open >= all.runs,
            drop_right: self.drop.map(|truth| right(all.drop, truth, 0.02).0),
            wait_right: self
                .wait_s
                .map(|truth| right(all.excess_wait_s, truth, 0.1 * truth).0),
            back_right: truth.map(|[early, late]| {
                let nearest = back.map_or(early, |back| back.mean.clamp(early, late));
                never == 0 && right(back, nearest, 1.001 * interval_s).0
            }),
            back_never: truth.map(|_| never > 0),
            back_open: truth.map(|_| back_open > 0),
            estimates: [all.drop, all.excess_wait_s, back],
        }
    }

    fn print_if_wrong(&self, score: &RecordedScore, console: &dyn Console) {
        let wrong = [
            ("drop", score.drop_right),
            ("wait", score.wait_right),
            ("back", score.back_right),
        ];
        let of = wrong
            .iter()
            .zip(score.estimates)
            .filter(|(wrong, _)| wrong.1 == Some(false));
        let said: Vec<String> = of
            .map(|((figure, _), estimate)| {
                match estimate.and_then(|of| Some((of.mean, of.low?, of.high?))) {
                    Some((mean, low, high)) => {
                        format!("{figure} {mean:.3} ({low:.3} to {high:.3})")
                    }
                    None => format!("{figure} unknown"),
                }
            })
            .collect();
        let detected = score.detected == self.back_s.is_some();
        if !said.is_empty() || !detected && !score.open {
            let seen = if detected { "" } else { "detection; " };
            console.line(format_args!("    {}: {seen}{}", self.name, said.join(", ")));
        }
    }
}

/// Judges a recording (JSON lines, compressed with zstd) and prints a table with one line per machine.
pub(super) fn run(packed: &[u8], console: &dyn Console) -> BenchResult {
    let text = zstd::decode_all(packed).map_err(BenchError::failed)?;
    let lines = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let all: Vec<Recorded> = lines
        .map(serde_json::from_slice)
        .collect::<Result<_, _>>()
        .map_err(BenchError::failed)?;
    let mut machines: Vec<&str> = all.iter().map(|one| one.machine.as_str()).collect();
    machines.dedup();
    console.line(format_args!(
        "machine                          n  false alarms  detected  open  drop  wait  back in time  never  back open"
    ));
    let mut objects = Vec::new();
    for machine in machines {
        let of = || all.iter().filter(|one| one.machine == machine);
        let scores: Vec<(bool, RecordedScore)> = of()
            .map(|one| (one.back_s.is_some(), one.score()))
            .collect();
        objects.push(row(console, machine, &scores));
        for (one, (_, score)) in of().zip(&scores) {
            one.print_if_wrong(score, console);
        }
    }
    console.object(&json!({ "recorded_verdicts": objects }));
    Ok(())
}

/// Prints `yes of all` for each column.
fn row(
    console: &dyn Console,
    machine: &str,
    scores: &[(bool, RecordedScore)],
) -> serde_json::Value {
    let count = |get: &dyn Fn(bool, &RecordedScore) -> Option<bool>| {
        let known: Vec<bool> = scores
            .iter()
            .filter_map(|(effect, score)| get(*effect, score))
            .collect();
        format!(
            "{}/{}",
            known.iter().filter(|yes| **yes).count(),
            known.len()
        )
    };
    let cells = [
        count(&|effect, score| (!effect).then_some(score.detected)),
        count(&|effect, score| effect.then_some(score.detected)),
        count(&|_, score| Some(score.open)),
        count(&|_, score| score.drop_right),
        count(&|_, score| score.wait_right),
        count(&|_, score| score.back_right),
        count(&|_, score| score.back_never),
        count(&|_, score| score.back_open),
    ];
    let [alarms, detected, open, drop, wait, back, never, left] = &cells;
    console.line(format_args!(
        "{machine:<30}{:>4}{alarms:>14}{detected:>10}{open:>6}{drop:>6}{wait:>6}{back:>14}{never:>7}{left:>11}",
        scores.len()
    ));
    json!({ "machine": machine, "experiments": scores.len(), "counts": cells })
}
