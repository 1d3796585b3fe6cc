//! The percentiles that summaries keep: of runs, of their kinds of operations, and of points.
//!
//! The rule: a percentile that wasn't kept is absent, not zero; see [`crate::percentile`].

use crate::Figures;
use crate::percentile::Percentile;
use crate::summary::{OpSummary, PointSummary, RunSummary};

impl RunSummary {
    /// Keeps these percentiles of the response time, of all kinds together and of each kind, in addition to those kept
    /// before.
    pub fn keep_percentiles(&mut self, percentiles: &[Percentile], figures: &Figures) {
        if percentiles.is_empty() {
            return;
        }
        let all = Percentile::of_each(percentiles, &figures.response());
        self.response_percentiles_us.extend(all);
        for (op, figures) in figures.ops() {
            if let Some(kept) = self.ops.iter_mut().find(|kept| kept.op == op) {
                let of_kind = Percentile::of_each(percentiles, &figures.response);
                kept.response_percentiles_us.extend(of_kind);
            }
        }
    }

    /// A percentile of the response time of all kinds together, in microseconds; `None` if it wasn't kept or there
    /// were too few requests.
    pub fn percentile_us(&self, percentile: Percentile) -> Option<f64> {
        let row = self.response.as_ref();
        percentile.find(&self.response_percentiles_us, row, self.completed())
    }
}

impl OpSummary {
    /// A percentile of the kind's response time, under the same conditions as [`RunSummary::percentile_us`].
    pub fn percentile_us(&self, percentile: Percentile) -> Option<f64> {
        let row = self.response.as_ref();
        percentile.find(&self.response_percentiles_us, row, self.completed)
    }
}

impl PointSummary {
    /// A percentile of the response times of all complete runs, under the same conditions as
    /// [`RunSummary::percentile_us`].
    pub fn percentile_us(&self, percentile: Percentile) -> Option<f64> {
        let complete = self.runs.iter().filter(|run| run.is_complete());
        let requests = complete.map(RunSummary::completed).sum();
        let row = self.response.as_ref();
        percentile.find(&self.response_percentiles_us, row, requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpKind;
    use crate::summary::tests::{op, point, run};
    use brunt_core::Nanos;

    #[test]
    fn a_run_has_what_was_kept_and_what_each_summary_has() {
        let mut one = run(vec![op(OpKind::Read, 1000, 100.0)]);
        let p95 = Percentile::named("p95").unwrap();
        assert_eq!(one.percentile_us(p95), None);
        assert_eq!(one.percentile_us(Percentile::P99_9), Some(100.0));
        assert_eq!(one.percentile_us(Percentile::P99_99), None, "too few");
        let mut figures = Figures::of_kinds(&[OpKind::Read]);
        (1..=1000).for_each(|us| figures.at(0).response.record(Nanos(us * 1000)));
        one.keep_percentiles(&[p95], &figures);
        let about = |us: Option<f64>| us.is_some_and(|us| (us - 950.0).abs() < 1.0);
        assert!(about(one.percentile_us(p95)) && about(one.ops[0].percentile_us(p95)));
        let text = serde_json::to_string(&one).unwrap();
        assert!(
            text.contains("\"response_percentiles_us\":{\"p95\":"),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<RunSummary>(&text).unwrap(), one);
        assert_eq!(
            point("x", vec![one]).percentile_us(p95),
            None,
            "not kept for all runs together"
        );
    }
}
