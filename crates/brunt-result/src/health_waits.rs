//! How long runs waited for services to be healthy (`[services.NAME.healthy]`), for the terminal and the page.

use std::collections::BTreeMap;

use crate::summary::Summary;

/// The waits for one service.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HealthWaits {
    /// Number of runs that waited.
    pub runs: usize,
    /// Total time waited, in seconds.
    pub total_s: f64,
    /// The longest wait, in seconds.
    pub longest_s: f64,
}

/// The waits of all runs, by service.
pub fn health_waits(summary: &Summary) -> BTreeMap<&str, HealthWaits> {
    let mut services: BTreeMap<&str, HealthWaits> = BTreeMap::new();
    let runs = summary.points.iter().flat_map(|point| &point.runs);
    for (service, waited_s) in runs.flat_map(|run| &run.health_waits_s) {
        let waits = services.entry(service).or_default();
        waits.runs += 1;
        waits.total_s += waited_s;
        waits.longest_s = waits.longest_s.max(*waited_s);
    }
    services
}
