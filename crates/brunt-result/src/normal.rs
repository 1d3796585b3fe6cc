//! The cost of sticky faults. A run under a fault that lasts throughout the run has no baseline, so the baseline is
//! the point without faults that has the same workload and axes on a target that is defined in the same way. A study
//! finds that point.
//!
//! The rule: only complete runs of the same round are compared, so that drift of the machine affects both sides
//! equally.

use crate::require::failed_share;
use crate::statistics::Estimate;
use crate::sticky::StickyCost;
use crate::summary::{PointSummary, RunSummary};

/// The cost of a point's sticky faults; `None` if it has no sticky faults, has other faults as well, or has no known
/// normal point.
pub fn sticky_cost(point: &PointSummary, points: &[PointSummary]) -> Option<StickyCost> {
    let label = point.normal.as_ref()?;
    let normal = points.iter().find(|other| other.label == *label)?;
    let run = point.runs.iter().find(|run| run.is_complete())?;
    let is_sticky = run.faults.iter().all(|fault| {
        let to_the_end = fault.end_s.is_none_or(|end_s| end_s >= run.measured_s);
        fault.start_s <= 0.0 && to_the_end
    });
    if run.faults.is_empty() || !is_sticky {
        return None;
    }
    let rounds: Vec<(&RunSummary, &RunSummary)> = complete(normal)
        .filter_map(|run| {
            let twin = complete(point).find(|twin| twin.repetition == run.repetition)?;
            Some((run, twin))
        })
        .collect();
    let over = |get: &dyn Fn(&RunSummary) -> Option<f64>, of: fn(f64, f64) -> f64| {
        let each = rounds
            .iter()
            .filter_map(|(before, during)| Some(of(get(before)?, get(during)?)));
        Estimate::of(&each.filter(|value| value.is_finite()).collect::<Vec<f64>>())
    };
    let rate = |run: &RunSummary| Some(run.requests_per_second);
    Some(StickyCost {
        faults: run.faults.iter().map(|fault| fault.name.clone()).collect(),
        normal: label.clone(),
        rounds: rounds.len(),
        baseline: over(&rate, |before, _| before),
        drop: over(&rate, |before, during| 1.0 - during / before),
        lost_requests_per_second: over(&rate, |before, during| before - during),
        response_mean_factor: over(&|run| Some(run.response?.mean_us), |before, during| {
            during / before
        }),
        response_p99_factor: over(&|run| Some(run.response?.p99_us), |before, during| {
            during / before
        }),
        failed_share_before: over(&failed_share, |before, _| before),
        failed_share: over(&failed_share, |_, during| during),
    })
}

fn complete(point: &PointSummary) -> impl Iterator<Item = &RunSummary> {
    point.runs.iter().filter(|run| run.is_complete())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpKind;
    use crate::summary::FaultSummary;
    use crate::summary::tests::{op, point, run};

    fn fault(start_s: f64, end_s: Option<f64>) -> FaultSummary {
        FaultSummary {
            index: 0,
            name: "far".into(),
            kind: "link".into(),
            place: "wire".into(),
            what: "delay 5ms".into(),
            start_s,
            shown_s: start_s,
            shown_by: String::new(),
            end_s,
            gone_s: None,
            gone_by: String::new(),
            gaps: Vec::new(),
            cost: None,
            occurrence: None,
        }
    }

    fn of(label: &str, rates: &[u64], us: f64, fault: Option<FaultSummary>) -> PointSummary {
        let run_of = |(repetition, rate): (usize, &u64)| RunSummary {
            repetition: repetition as u32,
            faults: fault.clone().into_iter().collect(),
            // Runs last two seconds.
            ..run(vec![op(OpKind::Read, 2 * rate, us)])
        };
        PointSummary {
            normal: fault.as_ref().map(|_| "normal reads".into()),
            ..point(label, rates.iter().enumerate().map(run_of).collect())
        }
    }

    /// Each round has its own ratio: 0.5 and 0.75 of the rate are lost, and a round without a partner doesn't count.
    #[test]
    fn a_sticky_fault_is_compared_with_the_normal_point() {
        let normal = of("normal reads", &[1000, 2000], 100.0, None);
        let sticky = of("far reads", &[500, 500, 1], 300.0, Some(fault(-0.1, None)));
        let points = [normal, sticky];
        let cost = sticky_cost(&points[1], &points).expect("a cost");
        assert_eq!((cost.rounds, cost.name().as_str()), (2, "far"));
        assert_eq!(cost.baseline.unwrap().mean, 1500.0);
        assert_eq!(cost.drop.unwrap().mean, 0.625);
        assert_eq!(cost.lost_requests_per_second.unwrap().mean, 1000.0);
        assert_eq!(cost.response_mean_factor.unwrap().mean, 3.0);
        assert_eq!(cost.failed_share.unwrap().mean, 0.0);
        assert_eq!(sticky_cost(&points[0], &points), None);
    }

    #[test]
    fn other_faults_have_their_own_baseline() {
        let normal = of("normal reads", &[1000, 2000], 100.0, None);
        let transient = of("far reads", &[500, 500], 300.0, Some(fault(0.5, Some(1.0))));
        let points = [normal, transient];
        assert_eq!(sticky_cost(&points[1], &points), None);
    }
}
