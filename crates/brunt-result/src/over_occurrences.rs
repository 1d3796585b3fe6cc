//! Computes the effect of intermittent faults over all of their occurrences ([`crate::recurring`]). A study calls
//! [`recurring_over_runs`] for each point.
//!
//! The rule: a total is unknown if an occurrence is missing; it is never the sum of the other occurrences.

use std::collections::BTreeMap;

use crate::degradation::{Answer, Degradation, together};
use crate::recurring::{FaultOccurrence, RecurringOverRuns};
use crate::statistics::Estimate;
use crate::summary::{PointSummary, RunSummary};

impl PointSummary {
    /// Which occurrence of an intermittent fault the fault with this name is; `None` if it isn't one.
    pub fn occurrence(&self, name: &str) -> Option<&FaultOccurrence> {
        let mut faults = self.runs.iter().flat_map(|run| &run.faults);
        let fault = faults.find(|fault| fault.name == name)?;
        fault.occurrence.as_ref()
    }
}

/// An occurrence in one run.
struct InRun<'a> {
    run: &'a RunSummary,
    seconds: f64,
    cost: Degradation,
}

/// The effect of each intermittent fault over these runs of a point.
pub fn recurring_over_runs<'a>(
    runs: impl Iterator<Item = &'a RunSummary>,
) -> Vec<RecurringOverRuns> {
    let runs: Vec<&RunSummary> = runs.collect();
    let mut faults: BTreeMap<u32, &FaultOccurrence> = BTreeMap::new();
    for fault in runs.iter().flat_map(|run| &run.faults) {
        if let Some(first) = fault.occurrence.as_ref().filter(|one| one.number == 1) {
            faults.entry(fault.index).or_insert(first);
        }
    }
    let faults = faults.into_iter();
    faults
        .map(|(index, first)| of_fault(&runs, index, first))
        .collect()
}

/// `first` is the fault at `index` in the experiment's list of faults; its other occurrences follow it.
fn of_fault(runs: &[&RunSummary], index: u32, first: &FaultOccurrence) -> RecurringOverRuns {
    let indexes = index..index + first.count;
    // Include only runs that have a cost for every occurrence: a total over fewer occurrences would be too small.
    let whole: Vec<&RunSummary> = runs
        .iter()
        .copied()
        .filter(|run| indexes.clone().all(|index| cost(run, index).is_some()))
        .collect();
    let mut by_run: Vec<Vec<InRun<'_>>> = whole.iter().map(|_| Vec::new()).collect();
    for index in indexes {
        let costs: Vec<Degradation> = whole.iter().filter_map(|run| cost(run, index)).collect();
        // The costs are judged by the evidence of all runs, as for each single occurrence.
        for ((run, cost), all) in whole.iter().zip(together(&costs)).zip(&mut by_run) {
            let seconds = seconds(run, index);
            all.push(InRun { run, seconds, cost });
        }
    }
    summed(first, &by_run)
}

fn cost(run: &RunSummary, index: u32) -> Option<Degradation> {
    let fault = run.faults.iter().find(|fault| fault.index == index)?;
    fault.cost.clone()
}

/// How long a fault was in effect within the measured time.
fn seconds(run: &RunSummary, index: u32) -> f64 {
    let fault = run.faults.iter().find(|fault| fault.index == index);
    fault.map_or(0.0, |fault| {
        let end = fault.end_s.unwrap_or(run.measured_s).min(run.measured_s);
        (end - fault.start_s.max(0.0)).max(0.0)
    })
}

fn summed(first: &FaultOccurrence, by_run: &[Vec<InRun<'_>>]) -> RecurringOverRuns {
    let over = |figure: &dyn Fn(&[InRun<'_>]) -> Option<f64>| {
        let figures = by_run.iter().filter_map(|all| figure(all));
        Estimate::of(&figures.collect::<Vec<f64>>())
    };
    let count = |answer: fn(&Degradation) -> bool| {
        let all = by_run.iter().flatten();
        all.filter(|one| answer(&one.cost)).count()
    };
    let duration = |all: &[InRun<'_>]| all.iter().map(|one| one.seconds).sum::<f64>();
    let lost = |all: &[InRun<'_>]| {
        all.iter()
            .map(|one| one.cost.lost_requests)
            .sum::<Option<f64>>()
    };
    RecurringOverRuns {
        fault: first.fault.clone(),
        occurrences: first.count,
        runs: by_run.len(),
        time_share: over(&|all| {
            let measured_s = all.first()?.run.measured_s;
            (measured_s > 0.0).then(|| duration(all) / measured_s)
        }),
        drop: over(&|all| {
            let lost = all.iter().map(|one| one.cost.drop * one.seconds);
            (duration(all) > 0.0).then(|| lost.sum::<f64>() / duration(all))
        }),
        lost_requests: over(&lost),
        lost_unknown: by_run.iter().filter(|all| lost(all).is_none()).count(),
        excess_wait_s: over(&|all| all.iter().map(|one| one.cost.excess_wait_s).sum()),
        detected: count(|cost| cost.detected.seconds().is_some()),
        not_detected: count(|cost| cost.detected == Answer::Never),
        detection_inconclusive: count(|cost| cost.detected == Answer::Inconclusive),
        recovered_s: over(&|all| {
            let each: Vec<f64> = all
                .iter()
                .filter_map(|one| one.cost.recovered.seconds())
                .collect();
            (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
        }),
        not_recovered: count(|cost| cost.recovered == Answer::Never),
        recovery_inconclusive: count(|cost| cost.recovered == Answer::Inconclusive),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::degradation::IntervalFigures;
    use crate::summary::FaultSummary;
    use crate::summary::tests::run;

    const COUNT: u32 = 3;

    /// A run of 20 s at 1,000 requests per second, which loses the share `drop` for half a second at 4, 8 and 12 s.
    fn faulty(drop: f64) -> RunSummary {
        let starts = [4.0, 8.0, 12.0];
        let is_faulty = |at: f64| {
            starts
                .iter()
                .any(|start| (*start..start + 0.45).contains(&at))
        };
        let series: Vec<IntervalFigures> = (0..200)
            .map(|index| {
                let start_s = f64::from(index) / 10.0;
                let level = if is_faulty(start_s + 0.001) {
                    1.0 - drop
                } else {
                    1.0
                };
                IntervalFigures {
                    start_s,
                    end_s: f64::from(index + 1) / 10.0,
                    requests: (100.0 * level).round() as u64,
                    ..IntervalFigures::default()
                }
            })
            .collect();
        let faults = starts.iter().zip(0..).map(|(start, index)| FaultSummary {
            index,
            name: format!("slow ({} of 3)", index + 1),
            kind: "storage".into(),
            place: "disk".into(),
            what: "slower".into(),
            start_s: *start,
            shown_s: *start,
            shown_by: "a read".into(),
            end_s: Some(start + 0.5),
            gone_s: Some(start + 0.5),
            gone_by: "a read".into(),
            gaps: Vec::new(),
            cost: None,
            occurrence: Some(FaultOccurrence {
                fault: "slow".into(),
                number: index + 1,
                count: COUNT,
            }),
        });
        let mut run = RunSummary {
            measured_s: 20.0,
            faults: faults.collect(),
            ..run(Vec::new())
        };
        run.judge(&series);
        run
    }

    fn near(found: Option<Estimate>, expected: f64) {
        let found = found.map_or(f64::NAN, |estimate| estimate.mean);
        assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
    }

    #[test]
    fn totals_add_up_over_all_occurrences() {
        let runs = [faulty(0.4), faulty(0.6)];
        let all = recurring_over_runs(runs.iter());
        let [total] = all.as_slice() else {
            panic!("{all:?}");
        };
        assert_eq!(
            (total.fault.as_str(), total.occurrences, total.runs),
            ("slow", 3, 2)
        );
        near(total.time_share, 1.5 / 20.0);
        near(total.drop, 0.5);
        // Half of 1,000 requests per second is lost for half a second, three times.
        near(total.lost_requests, 750.0);
        assert_eq!(
            (total.detected, total.not_detected, total.lost_unknown),
            (6, 0, 0)
        );
        near(total.recovered_s, 0.0);
        let point = PointSummary {
            runs: runs.to_vec(),
            ..PointSummary::default()
        };
        assert_eq!(
            point.occurrence("slow (2 of 3)").map(|one| one.number),
            Some(2)
        );
        assert_eq!(point.occurrence("other"), None);
    }

    /// A run that lacks the cost of an occurrence has no totals, rather than smaller ones.
    #[test]
    fn a_run_without_an_occurrence_has_no_totals() {
        let mut lacking = faulty(0.6);
        lacking.faults.remove(1);
        let all = recurring_over_runs([faulty(0.4), lacking].iter());
        assert_eq!(all[0].runs, 1);
        near(all[0].drop, 0.4);
        near(all[0].lost_requests, 600.0);
    }

    /// If the recovery from an occurrence isn't known, its cost is unknown, and so is the run's total.
    #[test]
    fn a_total_with_an_unknown_part_is_unknown() {
        let mut open = faulty(0.4);
        let cost = open.faults[1].cost.as_mut().unwrap();
        (cost.lost_requests, cost.recovered) = (None, Answer::Inconclusive);
        let all = recurring_over_runs([open].iter());
        assert_eq!((all[0].lost_requests, all[0].lost_unknown), (None, 1));
        assert_eq!(all[0].recovery_inconclusive, 1);
        near(all[0].drop, 0.4);
    }

    #[test]
    fn other_faults_have_no_totals() {
        let mut run = faulty(0.4);
        run.faults
            .iter_mut()
            .for_each(|fault| fault.occurrence = None);
        assert_eq!(recurring_over_runs([run].iter()), []);
    }
}
