//! Settings of `depth_search`, which finds a queue depth before a point's first run. Part of a workload's description;
//! the search itself is in [`crate::decisions::depth`].

use std::time::Duration;

use brunt_core::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Arrival, QUEUE_DEPTH_MAX, Workload};
use crate::load::{Promise, WorkloadError};

/// Searches for a queue depth before a point's first run: the one that saturates the target or, with `percentile` and
/// `limit`, the largest one at which response times stay within the limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DepthSearch {
    /// Maximum queue depth to try. The search starts at `queue_depth` and doubles.
    pub max: u32,
    /// Duration of each trial, after the workload's ramp-up.
    pub time: Span,
    /// With `limit`: percentile of the response time, such as 99.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentile: Option<f64>,
    /// Limit of the percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Span>,
}

impl Default for DepthSearch {
    fn default() -> DepthSearch {
        DepthSearch {
            max: 256,
            time: Span(Duration::from_secs(2)),
            percentile: None,
            limit: None,
        }
    }
}

impl DepthSearch {
    /// Checks whether the search is valid for this workload.
    ///
    /// # Errors
    /// The error names the invalid key, and what would be correct.
    pub fn check(&self, workload: &Workload) -> Result<(), WorkloadError> {
        let wrong = |key, what: String| Err(WorkloadError { key, what });
        if !(workload.queue_depth..=QUEUE_DEPTH_MAX).contains(&self.max) {
            let what = format!(
                "{} is outside {} (queue_depth, the first to be tried) to {QUEUE_DEPTH_MAX}",
                self.max, workload.queue_depth
            );
            return wrong("depth_search.max", what);
        }
        if self.time.0 < Duration::from_millis(10) {
            return wrong(
                "depth_search.time",
                format!("{} is less than 10ms", self.time),
            );
        }
        if self.percentile.is_some() != self.limit.is_some() {
            return wrong(
                "depth_search.limit",
                "percentile and limit go together: percentile = 99, limit = \"5ms\"".into(),
            );
        }
        if let Some(Promise { percentile, limit }) = self.promise()
            && (!(percentile > 0.0 && percentile < 100.0) || limit.is_zero())
        {
            let what = format!(
                "p{percentile} below {} is not a possible limit; write percentile = 99, limit = \"5ms\"",
                Span(limit)
            );
            return wrong("depth_search.limit", what);
        }
        match workload.arrival {
            Arrival::Closed {} => Ok(()),
            _ => wrong("depth_search", "a depth search needs a closed loop".into()),
        }
    }

    /// Returns the latency limit that the depth has to meet, if any.
    pub(in crate::block) fn promise(&self) -> Option<Promise> {
        Some(Promise {
            percentile: self.percentile?,
            limit: self.limit?.0,
        })
    }
}
