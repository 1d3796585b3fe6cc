//! Warnings about runs whose workers waited for their results to be recorded.
//!
//! The rule: advice names only settings that the workload has, with values that make a difference.

use brunt_core::Span;
use brunt_load::load::{LoadInfo, Pace};
use brunt_result::Outcome;
use brunt_result::void::{Doubt, VoidReason};

use crate::experiment::Point;

/// If workers waited for the recorder for more than this share of the run, the rates are too low.
const WAIT_MAX: f64 = 0.01;

/// A warning if the workers of a point waited for the recorder.
pub(super) fn slow_record(outcome: &Outcome, point: &Point) -> Option<Doubt> {
    let waited = outcome.recording_wait.as_secs_f64();
    let measured = outcome.end.since(outcome.start).as_secs_f64();
    if waited <= WAIT_MAX * measured {
        return None;
    }
    let advice = advice(outcome, &point.load.info(), point.workload().is_some());
    let what = format!(
        "workers waited {waited:.2} s because results could not be recorded faster: {advice}"
    );
    Some(Doubt::new(VoidReason::RecordSlow, what))
}

/// Advice on settings that produce fewer results to record. `has_arrival` says whether the workload's arrival can be
/// set (a replay's can't).
fn advice(outcome: &Outcome, info: &LoadInfo, has_arrival: bool) -> String {
    let mut choices = Vec::new();
    if info.records_requests {
        choices.push("record_requests = false".to_string());
    } else if !info.interval.is_zero() {
        choices.push(format!("interval = \"{}\"", Span(info.interval * 2)));
    }
    if has_arrival && !matches!(info.pace, Pace::Search(_)) {
        let half = (outcome.requests_per_second / 2.0).max(1.0) as u64;
        choices.push(format!("arrival = {{ kind = \"open\", rate = {half} }}"));
    }
    match choices.is_empty() {
        true => "put the results on a faster disk".to_string(),
        false => format!("write {}", choices.join(", or ")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brunt_load::load::{Promise, RateGoal};

    use super::*;

    /// Each setting is named only if it is set, or would make a difference.
    #[test]
    fn only_settings_that_would_help_are_named() {
        let outcome = Outcome {
            requests_per_second: 1000.0,
            ..Outcome::interrupted()
        };
        let search = Pace::Search(RateGoal {
            promise: Promise {
                percentile: 99.0,
                limit: Duration::from_millis(1),
            },
            rate: 1.0,
            tolerance: 0.1,
        });
        let (record, interval) = ("record_requests = false", "interval = \"2s\"");
        let rate = "arrival = { kind = \"open\", rate = 500 }";
        let cases = [
            (true, 1, Pace::Closed, true, vec![record, rate]),
            (true, 1, Pace::Closed, false, vec![record]),
            (true, 0, search, true, vec![record]),
            (false, 1, Pace::Closed, true, vec![interval, rate]),
            (false, 1, Pace::Open { rate: 9.0 }, false, vec![interval]),
            (false, 1, search, true, vec![interval]),
            (false, 0, Pace::Open { rate: 9.0 }, true, vec![rate]),
            (false, 0, Pace::Closed, false, vec!["a faster disk"]),
        ];
        for (records_requests, seconds, pace, has_arrival, named) in cases {
            let info = LoadInfo {
                records_requests,
                interval: Duration::from_secs(seconds),
                pace,
                ..LoadInfo::default()
            };
            let said = advice(&outcome, &info, has_arrival);
            for one in [record, interval, rate, "a faster disk"] {
                assert_eq!(said.contains(one), named.contains(&one), "{one}: {said}");
            }
            let has_setting = !named.contains(&"a faster disk");
            assert_eq!(
                VoidReason::RecordSlow.is_named_in(&said),
                has_setting,
                "{said}"
            );
        }
    }
}
