//! Detects whether two results used different engines. Called by `brunt compare`.
//!
//! The rule: only recorded engines are compared; older results without them count as unchanged.

use std::collections::BTreeSet;

use brunt_core::IoEngine;
use serde::Serialize;

use crate::summary::{PointSummary, Summary};

/// A point whose runs used different engines in the second result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EngineDifference {
    /// The point.
    pub label: String,
    /// Engines of the first result's complete runs.
    pub first: BTreeSet<IoEngine>,
    /// Engines of the second result's complete runs.
    pub second: BTreeSet<IoEngine>,
}

impl std::fmt::Display for EngineDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = |engines: &BTreeSet<IoEngine>| {
            let names: Vec<&str> = engines.iter().map(|engine| engine.name()).collect();
            names.join(" and ")
        };
        let (first, second) = (names(&self.first), names(&self.second));
        write!(
            f,
            "{}: the first result was measured with engine {first}, the second with {second}; the engine may explain \
             changes",
            self.label
        )
    }
}

/// The engines of a point's complete runs, on all of their hosts.
fn of(point: &PointSummary) -> BTreeSet<IoEngine> {
    let runs = || point.runs.iter().filter(|run| run.is_complete());
    let hosts = runs().flat_map(|run| run.hosts.iter().map(|host| host.engine));
    runs()
        .map(|run| run.engine)
        .chain(hosts)
        .flatten()
        .collect()
}

/// The points that both results have and whose engines are known in both and differ.
pub fn engine_differences(a: &Summary, b: &Summary) -> Vec<EngineDifference> {
    let difference = |point: &PointSummary| {
        let other = b.points.iter().find(|other| other.label == point.label)?;
        let (first, second) = (of(point), of(other));
        let differ = first != second && !first.is_empty() && !second.is_empty();
        differ.then(|| EngineDifference {
            label: point.label.clone(),
            first,
            second,
        })
    };
    a.points.iter().filter_map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::{empty, point, run};

    fn result(engine: Option<IoEngine>) -> Summary {
        let mut summary = empty();
        let mut run = run(Vec::new());
        run.engine = engine;
        summary.points.push(point("disk w", vec![run]));
        summary
    }

    #[test]
    fn engines_differ_only_where_both_are_known() {
        let check = |a, b, expected: usize| {
            let found = engine_differences(&result(a), &result(b));
            assert_eq!(found.len(), expected, "{a:?} {b:?}");
            found
        };
        let (uring, threads) = (Some(IoEngine::IoUring), Some(IoEngine::Threads));
        check(uring, uring, 0);
        check(None, threads, 0);
        check(uring, None, 0);
        let found = check(uring, threads, 1);
        assert!(
            found[0].to_string().starts_with(
                "disk w: the first result was measured with engine io_uring, the second with threads"
            ),
            "{}",
            found[0]
        );
    }
}
