//! Percentiles that a summary lacks, computed from the histograms on disk for comparisons that ask for them.
//!
//! The rule: a percentile is added only if the histograms hold every request of the run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use brunt_core::Nanos;
use brunt_lake::read_table;
use brunt_result::percentile::Percentile;
use brunt_result::summary::{RunSummary, Summary, SummaryError};
use brunt_result::tables::histograms;
use brunt_result::{Figures, OpKind};

use super::again;

/// Reads the results of a comparison. Each result gets the percentiles that any of them chose and those in `asked`,
/// as far as its histograms allow.
///
/// # Errors
/// A summary cannot be read.
pub fn read_to_compare(
    folders: &[&Path],
    asked: &[Percentile],
) -> Result<Vec<Summary>, SummaryError> {
    let read: Result<Vec<Summary>, _> = folders.iter().map(|folder| again::read(folder)).collect();
    let mut results = read?;
    let chosen = results.iter().flat_map(|of| &of.experiment.percentiles);
    let wanted: BTreeSet<Percentile> = chosen.chain(asked).copied().collect();
    for (summary, folder) in results.iter_mut().zip(folders) {
        add_percentiles(summary, folder, &wanted);
    }
    Ok(results)
}

/// Adds percentiles that the summary lacks. They stay absent for runs whose histograms are damaged or missing.
fn add_percentiles(summary: &mut Summary, folder: &Path, wanted: &BTreeSet<Percentile>) {
    let kept = &summary.experiment.percentiles;
    let missing = wanted.iter().copied();
    let missing = missing.filter(|one| !one.is_in_every_summary() && !kept.contains(one));
    let missing: Vec<Percentile> = missing.collect();
    if missing.is_empty() {
        return;
    }
    let mut figures = figures(folder, summary);
    for run in summary.points.iter_mut().flat_map(|point| &mut point.runs) {
        let found = figures.remove(&i64::from(run.order));
        if let Some(found) = found.filter(|found| holds_all(found, run)) {
            run.keep_percentiles(&missing, &found);
        }
    }
}

/// Response times of each run by kind of operation, by the run's number. For rate searches, only the trial that the
/// run's figures are from.
fn figures(folder: &Path, summary: &Summary) -> HashMap<i64, Figures> {
    let runs = summary.points.iter().flat_map(|point| &point.runs);
    // Each percentile once, even if the file repeats one.
    let kinds = |run: &RunSummary| {
        let kinds: BTreeSet<OpKind> = run.ops.iter().map(|op| op.op).collect();
        Vec::from_iter(kinds)
    };
    let known: HashMap<i64, (i64, Vec<OpKind>)> = runs
        .map(|run| (run.order.into(), (run.trial.into(), kinds(run))))
        .collect();
    let mut all: HashMap<i64, Figures> = known
        .iter()
        .map(|(run, (_, kinds))| (*run, Figures::of_kinds(kinds)))
        .collect();
    let names: BTreeMap<&str, OpKind> = known
        .values()
        .flat_map(|(_, kinds)| kinds.iter().map(|kind| (kind.name(), *kind)))
        .collect();
    // If damage made rows unreadable, `holds_all` notices the missing requests.
    let _ = read_table(folder, &histograms::TABLE, |batch| {
        let (runs, trials) = (batch.ints("run"), batch.ints("trial"));
        let (high, responses) = (batch.ints("high_ns"), batch.ints("responses"));
        for (row, op) in batch.texts("op").enumerate() {
            let Some((trial, kinds)) = known.get(&runs[row]) else {
                continue;
            };
            let place = names
                .get(op)
                .and_then(|op| kinds.iter().position(|kind| kind == op));
            let figures = all.get_mut(&runs[row]).filter(|_| *trial == trials[row]);
            if let (Some(place), Some(figures)) = (place, figures) {
                let count = responses[row].max(0) as u64;
                let _ = figures
                    .at(place)
                    .response
                    .record_bucket(Nanos(high[row].max(0) as u64), count);
            }
        }
    });
    all
}

/// Whether these histograms hold every completed request of a run.
fn holds_all(figures: &Figures, run: &RunSummary) -> bool {
    let counts: BTreeMap<OpKind, u64> = figures
        .ops()
        .map(|(op, figures)| (op, figures.response.count()))
        .collect();
    run.ops
        .iter()
        .all(|op| counts.get(&op.op).copied().unwrap_or(0) == op.completed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_lake::{TableWriter, WriterOptions};
    use brunt_result::experiment::ExperimentSummary;
    use brunt_result::summary::{FORMAT, PointSummary};
    use brunt_result::tables::RunOrigin;
    use brunt_result::tables::histograms::Extent;
    use brunt_result::{Interval, Outcome, Stopped};

    fn figures_of(requests: u64) -> Figures {
        let mut figures = Figures::of_kinds(&[OpKind::Read, OpKind::Flush]);
        for (slot, us) in [(0, 10), (1, 10_000)] {
            figures.at(slot).completed = requests;
            (1..=requests)
                .for_each(|request| figures.at(slot).response.record(Nanos(request * us * 1000)));
        }
        figures
    }

    /// A result of one run of `requests` reads, of which `written` are in its histograms.
    fn result(folder: &Path, requests: u64, written: u64, percentiles: &[Percentile]) {
        let figures = figures_of(requests);
        let outcome = Outcome {
            stopped: Stopped::Done,
            start: Nanos(0),
            end: Nanos(1_000_000_000),
            figures,
            ..Outcome::interrupted()
        };
        let mut run = RunSummary::of(&outcome, 0, 3, 1, None);
        run.keep_percentiles(percentiles, &outcome.figures);
        let point = PointSummary {
            runs: vec![run],
            ..PointSummary::default()
        };
        let experiment = ExperimentSummary {
            percentiles: percentiles.to_vec(),
            ..ExperimentSummary::default()
        };
        let summary = Summary {
            format: FORMAT,
            brunt: "0.0.1".into(),
            complete: true,
            trouble: None,
            label: None,
            interleaved: None,
            waits: Vec::new(),
            experiment,
            points: vec![point],
            indexes: None,
            requirements: Vec::new(),
        };
        summary.write(folder).unwrap();
        let mut writer =
            TableWriter::create(folder, &histograms::TABLE, WriterOptions::default()).unwrap();
        let mut extent = Extent::default();
        for trial in [1, 0] {
            let origin = RunOrigin {
                run: 3,
                trial,
                origin: Nanos(0),
            };
            let interval = Interval {
                index: 0,
                start: Nanos(0),
                end: Nanos(1_000_000_000),
                figures: figures_of(written),
                waiting: Default::default(),
            };
            extent.add(writer.rows(), &origin, &interval);
            extent.end(writer.rows(), &origin);
        }
        writer.finish().unwrap();
    }

    /// A percentile that only one result chose is computed for the other, without its flushes, unless a request is
    /// missing from its histograms.
    #[test]
    fn percentiles_that_were_not_kept_come_from_the_histograms() {
        let p95 = Percentile::named("p95").unwrap();
        let check = |written: u64, asked: &[Percentile], expected: [Option<f64>; 2]| {
            let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
            let [one, other] = folders.each_ref().map(tempfile::TempDir::path);
            result(one, 1000, 1000, &[p95]);
            result(other, 1000, written, &[]);
            let results = read_to_compare(&[one, other], asked).unwrap();
            for (summary, expected) in results.iter().zip(expected) {
                let found = summary.points[0].runs[0].percentile_us(p95);
                let off = found
                    .zip(expected)
                    .map(|(found, us)| (found / us - 1.0).abs());
                assert!(
                    off.map_or(found == expected, |off| off < 0.002),
                    "{found:?}, not {expected:?}"
                );
            }
        };
        check(1000, &[], [Some(9500.0), Some(9500.0)]);
        check(999, &[], [Some(9500.0), None]);
    }
}
