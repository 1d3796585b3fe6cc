//! Reads a result's summary for a report or a comparison. Verdicts about faults from older methods are recomputed
//! from the intervals on disk.
//!
//! The rule: nothing is written, and the summary says which methods produced its verdicts. Rates of phases are
//! recomputed too; all other measurements stay as they are.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use brunt_lake::{LakeError, read_table};
use brunt_result::degradation::{
    IntervalFigures, METHODS, PhaseFigures, WaitingFigures, phases_over_runs,
};
use brunt_result::over_occurrences::recurring_over_runs;
use brunt_result::performability::Performability;
use brunt_result::summary::{RunSummary, Summary, SummaryError, effects_over_runs};
use brunt_result::tables::intervals;

use super::details::LOSSES;

/// The intervals of each run, by the run's number over the whole experiment.
type SeriesByRun = HashMap<i64, Vec<IntervalFigures>>;

/// Reads the summary in `folder`. If the verdicts about faults are from other methods, and the intervals are on disk,
/// the verdicts are recomputed.
///
/// # Errors
/// As [`Summary::read`]. Unreadable intervals are no error: the verdicts then stay unchanged.
pub fn read(folder: &Path) -> Result<Summary, SummaryError> {
    let mut summary = Summary::read(folder)?;
    if summary.effects().any(|effect| effect.methods != METHODS)
        && let Ok(series) = series(folder, &summary)
    {
        judge(&mut summary, &series);
    }
    Ok(summary)
}

/// Recomputes the verdicts of points for which the intervals of all complete runs are available.
fn judge(summary: &mut Summary, series: &SeriesByRun) {
    for point in &mut summary.points {
        let known = |run: &RunSummary| series.contains_key(&i64::from(run.order));
        let complete = |run: &&RunSummary| run.is_complete() && !run.faults.is_empty();
        if point.degradation.is_empty() || !point.runs.iter().filter(complete).all(known) {
            continue;
        }
        for run in &mut point.runs {
            if let Some(series) = series.get(&i64::from(run.order)) {
                run.judge(series);
                run.rate_phases(series);
            }
        }
        let complete = || point.runs.iter().filter(|run| run.is_complete());
        let effects = effects_over_runs(complete());
        point.recurring = recurring_over_runs(complete());
        let phases = phases_over_runs(complete().map(|run| &run.phases[..]));
        let performability = point.performability.as_ref().map(|before| {
            let phases: Vec<&[PhaseFigures]> = complete().map(|run| &run.phases[..]).collect();
            Performability::of(&before.system, &phases)
        });
        point.performability = performability;
        (point.degradation, point.phases) = (effects, phases);
        for effect in &mut point.degradation {
            effect.judged_again = true;
        }
    }
}

/// The intervals of all runs with faults. Times are in seconds from the start of measuring.
fn series(folder: &Path, summary: &Summary) -> Result<SeriesByRun, LakeError> {
    let runs = summary.points.iter().flat_map(|point| &point.runs);
    let trials: HashMap<i64, i64> = runs
        .filter(|run| !run.faults.is_empty())
        .map(|run| (run.order.into(), run.trial.into()))
        .collect();
    let flushes = Flushes::read(folder)?;
    let mut all = SeriesByRun::new();
    let mut origins: HashMap<i64, i64> = HashMap::new();
    let damaged = read_table(folder, &intervals::TABLE, |batch| {
        let int = |column: &'static str| batch.ints(column);
        let (runs, trial) = (int("run"), int("trial"));
        let (number, start, end) = (int("interval"), int("start_ns"), int("end_ns"));
        let (completed, bytes) = (int("completed"), int("bytes"));
        let lost: Vec<&[i64]> = LOSSES.iter().map(|column| int(column)).collect();
        for row in 0..batch.rows() {
            if trials.get(&runs[row]) != Some(&trial[row]) {
                continue;
            }
            let origin = *origins.entry(runs[row]).or_insert(start[row]);
            let seconds = |at: i64| (at - origin) as f64 / 1e9;
            let us = |nanos: f64| nanos / 1e3;
            let float = |name| (!batch.is_null(name, row)).then(|| us(batch.floats(name)[row]));
            let nanos =
                |name| (!batch.is_null(name, row)).then(|| us(batch.ints(name)[row] as f64));
            let waiting = (!batch.is_null("waiting", row)).then(|| WaitingFigures {
                requests: batch.ints("waiting")[row] as u64,
                mean_us: float("waiting_mean_ns"),
                oldest_us: nanos("waiting_max_ns"),
            });
            let mut one = IntervalFigures {
                start_s: seconds(start[row]),
                end_s: seconds(end[row]),
                requests: completed[row] as u64,
                bytes: bytes[row] as u64,
                failed: lost.iter().map(|column| column[row] as u64).sum(),
                response_mean_us: float("response_mean_ns"),
                response_p99_us: nanos("response_p99_ns"),
                response_max_us: nanos("response_max_ns"),
                waiting,
                times: None,
            };
            flushes.take_off((runs[row], trial[row], number[row]), &mut one);
            all.entry(runs[row]).or_default().push(one);
        }
    })?;
    whole(damaged, all)
}

/// Returns what was read, or an error if a part of the table is damaged.
fn whole<T>(damaged: Vec<LakeError>, read: T) -> Result<T, LakeError> {
    damaged.into_iter().next().map_or(Ok(read), Err)
}

/// Flushes per interval. They count as requests only in runs without other requests.
struct Flushes {
    /// Number of flushes and the sum of their response times in microseconds, by run, trial and interval.
    done: HashMap<(i64, i64, i64), (u64, f64)>,
    /// Runs that also make other requests than flushes.
    others: HashSet<i64>,
}

impl Flushes {
    fn read(folder: &Path) -> Result<Flushes, LakeError> {
        let mut flushes = Flushes {
            done: HashMap::new(),
            others: HashSet::new(),
        };
        let damaged = read_table(folder, &intervals::OPS, |batch| {
            let int = |column: &'static str| batch.ints(column);
            let (runs, trial, number) = (int("run"), int("trial"), int("interval"));
            let (completed, mean) = (int("completed"), batch.floats("response_mean_ns"));
            for (row, op) in batch.texts("op").enumerate() {
                if op != brunt_result::OpKind::Flush.name() {
                    flushes.others.insert(runs[row]);
                } else if !batch.is_null("response_mean_ns", row) {
                    let count = completed[row] as u64;
                    let key = (runs[row], trial[row], number[row]);
                    let sum = mean[row] / 1e3 * count as f64;
                    flushes.done.insert(key, (count, sum));
                }
            }
        })?;
        whole(damaged, flushes)
    }

    /// Subtracts an interval's flushes from its requests and corrects the mean.
    fn take_off(&self, key: (i64, i64, i64), one: &mut IntervalFigures) {
        let Some((count, sum_us)) = self.done.get(&key) else {
            return;
        };
        if !self.others.contains(&key.0) {
            return;
        }
        let left = one.requests.saturating_sub(*count);
        let all_us = one.response_mean_us.map(|mean| mean * one.requests as f64);
        one.response_mean_us = all_us
            .map(|all_us| (all_us - sum_us).max(0.0) / left as f64)
            .filter(|_| left > 0);
        if left == 0 {
            (one.response_p99_us, one.response_max_us) = (None, None);
        }
        one.requests = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_core::{Histogram, Nanos};
    use brunt_lake::{TableWriter, WriterOptions};
    use brunt_result::degradation::{OverRuns, PhaseKind};
    use brunt_result::experiment::ExperimentSummary;
    use brunt_result::statistics::Estimate;
    use brunt_result::summary::{FORMAT, FaultSummary, PointSummary};
    use brunt_result::tables::RunOrigin;
    use brunt_result::{Figures, Interval, OpKind, Outcome, Stopped};

    fn fault() -> FaultSummary {
        FaultSummary {
            index: 0,
            name: "slow".into(),
            kind: "storage".into(),
            place: "memory".into(),
            what: "slower".into(),
            start_s: 3.0,
            shown_s: 3.0,
            shown_by: "a read".into(),
            end_s: Some(5.0),
            gone_s: Some(5.0),
            gone_by: "a read".into(),
            gaps: Vec::new(),
            cost: None,
            occurrence: None,
        }
    }

    /// A result of two runs whose rate halves from 3 s to 5 s, with the verdict, by these methods, that nothing was
    /// detected.
    fn result(folder: &Path, methods: u32, has_intervals: bool) {
        let outcome = Outcome {
            stopped: Stopped::Done,
            start: Nanos(0),
            end: Nanos(8_000_000_000),
            ..Outcome::interrupted()
        };
        let during = PhaseFigures {
            kind: PhaseKind::During,
            faults: vec!["slow".into()],
            start_s: 3.0,
            end_s: 5.0,
            requests_per_second: 700.0,
            response_mean_us: Some(1234.0),
            ..PhaseFigures::default()
        };
        let run = |order: u32| RunSummary {
            faults: vec![fault()],
            phases: vec![during.clone()],
            ..RunSummary::of(&outcome, order, order, 1, None)
        };
        let judged = OverRuns {
            fault: "slow".into(),
            runs: 2,
            not_detected: 2,
            methods,
            ..OverRuns::default()
        };
        let point = PointSummary {
            runs: vec![run(0), run(1)],
            degradation: vec![judged],
            ..PointSummary::default()
        };
        let summary = Summary {
            format: FORMAT,
            brunt: "0.0.1".into(),
            complete: true,
            trouble: None,
            experiment: ExperimentSummary::default(),
            points: vec![point],
            indexes: None,
            requirements: Vec::new(),
            interleaved: None,
            waits: Vec::new(),
            label: None,
        };
        summary.write(folder).unwrap();
        let mut writers = [&intervals::TABLE, &intervals::OPS]
            .map(|table| TableWriter::create(folder, table, WriterOptions::default()).unwrap());
        let mut scratch = [Histogram::new(), Histogram::new()];
        for order in 0..if has_intervals { 2 } else { 0 } {
            let origin = RunOrigin {
                run: order,
                trial: 0,
                origin: Nanos(0),
            };
            for index in 0..80u64 {
                let mut figures = Figures::of_kinds(&[OpKind::Write, OpKind::Flush]);
                let writes = if (30..50).contains(&index) { 50 } else { 100 };
                // Twice as many flushes during the fault, so that the total number of requests stays the same.
                for (slot, count, us) in [(0, writes, 1000), (1, 150 - writes, 90_000)] {
                    figures.at(slot).completed = count;
                    (0..count).for_each(|_| figures.at(slot).response.record(Nanos(us * 1000)));
                }
                let interval = Interval {
                    index,
                    start: Nanos(index * 100_000_000),
                    end: Nanos((index + 1) * 100_000_000),
                    figures,
                    waiting: Histogram::new(),
                };
                let [all, ops] = &mut writers;
                intervals::append(all.rows(), ops.rows(), &origin, &interval, &mut scratch);
            }
        }
        writers.iter_mut().for_each(|writer| {
            writer.finish().unwrap();
        });
    }

    fn of(methods: u32, has_intervals: bool) -> (OverRuns, Summary) {
        let folder = tempfile::tempdir().unwrap();
        result(folder.path(), methods, has_intervals);
        let summary = read(folder.path()).unwrap();
        let stored = Summary::read(folder.path()).unwrap();
        assert!(
            !stored.points[0].degradation[0].judged_again,
            "nothing is written"
        );
        (summary.points[0].degradation[0].clone(), summary)
    }

    /// Verdicts of older methods are recomputed from the intervals, as in a run. Verdicts of current methods, and
    /// those whose intervals are missing, stay unchanged. The summary says which case applies.
    #[test]
    fn older_verdicts_are_made_again() {
        let (again, summary) = of(METHODS - 1, true);
        assert_eq!((again.methods, again.judged_again), (METHODS, true));
        assert_eq!(
            (again.runs, again.each.len(), again.not_detected),
            (2, 2, 0)
        );
        let drop = again.drop.unwrap().mean;
        assert!((drop - 0.5).abs() < 1e-6, "{drop}");
        assert_eq!(again.recovered_s.unwrap().mean, 0.0);
        let baseline = again.response_mean.baseline_us.unwrap().mean;
        assert!(
            (baseline - 1000.0).abs() < 1e-3,
            "without flushes: {baseline}"
        );
        assert!(
            summary.points[0]
                .runs
                .iter()
                .all(|run| run.faults[0].cost.is_some())
        );
        assert!(summary.judged_note().unwrap().contains("judged again"));
        let during = &summary.points[0].phases[0];
        let mean = |of: &Option<Estimate>| of.as_ref().map(|of| of.mean);
        assert_eq!(mean(&during.requests_per_second), Some(500.0));
        assert_eq!(mean(&during.response_mean_us), Some(1234.0));

        let (kept, summary) = of(METHODS - 1, false);
        assert_eq!((kept.judged_again, kept.not_detected), (false, 2));
        assert!(summary.judged_note().unwrap().contains("cannot be read"));

        let (current, summary) = of(METHODS, true);
        assert_eq!((current.judged_again, current.not_detected), (false, 2));
        assert_eq!(summary.judged_note(), None);
    }
}
