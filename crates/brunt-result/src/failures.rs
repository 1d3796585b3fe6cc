//! Failures that must not pass as success: wrong data and requests that all failed, summed over the runs of a point.
//! They determine exit statuses; tables, reports and comparisons show them. The module also lists doubts about a
//! result's figures.
//!
//! The rule: a fault that the experiment injects may make requests fail, but never excuses wrong data.

use brunt_core::units::format_size;

use crate::RequestStatus;
use crate::summary::{PointSummary, RunSummary, Summary};
use crate::wrong::{ErrorCause, Verified, merge_causes};

impl RunSummary {
    /// Number of reads that returned wrong data.
    pub fn miscompares(&self) -> u64 {
        let lost = self.losses.get(RequestStatus::Miscompare.name());
        lost.copied().unwrap_or(0)
    }

    /// The cause of failures for a kind of operation of which all requests failed.
    pub fn all_failed(&self) -> Option<&ErrorCause> {
        self.causes
            .iter()
            .filter(|cause| self.op(cause.op).is_none_or(|op| op.completed == 0))
            .max_by_key(|cause| cause.count)
    }
}

/// Failures that must not pass as success, one line each: wrong data, and kinds of operations that failed in every
/// request of a run without faults.
pub fn failures(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    for point in points_without_groups(summary) {
        let label = &point.label;
        lines.extend(wrong_data(point).map(|what| format!("{label}: {what}")));
        let runs = point.runs.iter().filter(|run| run.faults.is_empty());
        let failed: Vec<&ErrorCause> = runs.filter_map(RunSummary::all_failed).collect();
        if let Some(first) = failed.first() {
            let (runs, all) = (failed.len(), point.runs.len());
            let (op, status, cause) = (first.op, &first.status, &first.cause);
            lines.push(format!(
                "{label}: every {op} failed in {runs} of {all} runs ({status}: {cause})"
            ));
        }
    }
    lines
}

/// The points, without those that combine several concurrent jobs.
fn points_without_groups(summary: &Summary) -> impl Iterator<Item = &PointSummary> {
    let is_group = |point: &&PointSummary| {
        let label = Some(&point.label);
        let mut parts = summary.points.iter();
        parts.any(|part| part.part_of.as_ref() == label)
    };
    summary.points.iter().filter(move |point| !is_group(point))
}

/// Why figures are doubtful, one line per reason: the number of runs affected, and the message from the first of
/// them.
pub fn doubts(summary: &Summary) -> Vec<String> {
    // Messages about the same reason may differ in their figures.
    let reason =
        |doubt: &str| -> String { doubt.replace(|c: char| c.is_ascii_digit() || c == '.', "") };
    let runs: Vec<&RunSummary> = points_without_groups(summary)
        .flat_map(|point| &point.runs)
        .collect();
    let mut found: Vec<(String, &String, usize)> = Vec::new();
    for run in &runs {
        for doubt in &run.doubts {
            let reason = reason(doubt);
            match found.iter_mut().find(|(known, ..)| *known == reason) {
                Some((.., count)) => *count += 1,
                None => found.push((reason, doubt, 1)),
            }
        }
    }
    found
        .into_iter()
        .map(|(_, doubt, count)| format!("doubtful in {count} of {} runs: {doubt}", runs.len()))
        .collect()
}

/// Wrong data that verification found in the runs of a point.
pub fn wrong_data(point: &PointSummary) -> Option<String> {
    let reads: u64 = point.runs.iter().map(RunSummary::miscompares).sum();
    let verified = verified(point);
    let (wrong, checked) = match &verified {
        Some(verified) => (verified.wrong_bytes, verified.checked_bytes),
        None => (0, 0),
    };
    (reads > 0 || wrong > 0).then(|| {
        let places = verified.map_or_else(String::new, |verified| verified.places());
        format!(
            "wrong data: {reads} reads differ from what was written ({} of {} checked; {places})",
            format_size(wrong),
            format_size(checked)
        )
    })
}

/// What verification found in all runs of a point; `None` if none verified.
pub fn verified(point: &PointSummary) -> Option<Verified> {
    let mut found = point.runs.iter().filter_map(|run| run.verified.as_ref());
    let mut all = found.next()?.clone();
    found.for_each(|verified| all.merge(verified));
    Some(all)
}

/// The causes of failed requests in all runs of a point, the most frequent first.
pub fn causes(point: &PointSummary) -> Vec<ErrorCause> {
    let mut all = Vec::new();
    for run in &point.runs {
        merge_causes(&mut all, &run.causes);
    }
    all.sort_by_key(|cause| std::cmp::Reverse(cause.count));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::{empty, point, run};

    /// Doubts that differ only in their figures share one line with the number of runs; if both a group's run and its
    /// parts have the doubt, it counts once.
    #[test]
    fn doubts_are_counted_by_reason() {
        let doubtful = |doubts: &[&str]| RunSummary {
            doubts: doubts.iter().map(ToString::to_string).collect(),
            ..run(Vec::new())
        };
        let slow = "the CPU quota stopped it for";
        let runs = vec![
            doubtful(&[&format!("{slow} 25.8% of the time")]),
            doubtful(&[&format!("{slow} 3% of the time"), "a link was busy"]),
            doubtful(&[]),
        ];
        let group = point("d g", vec![doubtful(&["a link was busy"])]);
        let part = PointSummary {
            part_of: Some("d g".to_string()),
            ..point("d g/w", runs)
        };
        let summary = Summary {
            points: vec![group, part],
            ..empty()
        };
        assert_eq!(
            doubts(&summary),
            [
                &format!("doubtful in 2 of 3 runs: {slow} 25.8% of the time"),
                "doubtful in 1 of 3 runs: a link was busy"
            ]
        );
        assert!(doubts(&empty()).is_empty());
    }
}
