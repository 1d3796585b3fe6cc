//! The share of time for which tasks were stalled waiting for a CPU, memory or I/O. From `/proc/pressure`
//! (Documentation/accounting/psi.rst), which some kernels lack or disable.

use std::sync::Arc;
use std::time::Duration;

use super::figures::{Malformed, Sink, Texts};
use super::{Metric, Probe, headline};

pub struct Pressure;

/// The instances, in the order of the files.
const RESOURCES: [&str; 3] = ["cpu", "memory", "io"];

/// Microseconds for which some tasks, and all tasks, were stalled.
#[derive(Clone, Copy, Default)]
pub struct Stalls {
    some: Option<u64>,
    full: Option<u64>,
}

impl Probe for Pressure {
    const NAME: &'static str = "pressure";
    const HELP: &'static str = "time that tasks were stalled waiting for a CPU, memory or a device";
    const FILES: &'static [&'static str] = &[
        "/proc/pressure/cpu",
        "/proc/pressure/memory",
        "/proc/pressure/io",
    ];
    const METRICS: &'static [Metric] = &[
        headline(
            "some_share",
            "share of time in which at least one task was stalled",
        ),
        headline(
            "full_share",
            "share of time in which all tasks with work to do were stalled",
        ),
    ];
    type Reading = [Stalls; RESOURCES.len()];

    fn parse(texts: &Texts<'_>) -> Result<Self::Reading, Malformed> {
        let mut reading = [Stalls::default(); RESOURCES.len()];
        for (index, stalls) in reading.iter_mut().enumerate() {
            for line in texts.get(index).unwrap_or_default().lines() {
                let mut fields = line.split_ascii_whitespace();
                let kind = fields.next();
                let total = fields
                    .find_map(|field| field.strip_prefix("total="))
                    .and_then(|total| total.parse().ok())
                    .ok_or_else(|| Malformed::new("no total", line))?;
                match kind {
                    Some("some") => stalls.some = Some(total),
                    Some("full") => stalls.full = Some(total),
                    _ => return Err(Malformed::new("neither some nor full", line)),
                }
            }
        }
        Ok(reading)
    }

    fn figures(
        before: &Self::Reading,
        now: &Self::Reading,
        elapsed: Duration,
        sink: &mut Sink<'_>,
    ) {
        for ((before, now), resource) in before.iter().zip(now).zip(RESOURCES) {
            let resource: Arc<str> = resource.into();
            let kinds = [
                ("some_share", before.some, now.some),
                ("full_share", before.full, now.full),
            ];
            for (metric, before, now) in kinds {
                if let Some(counters) = before.zip(now) {
                    sink.rate_of(&resource, metric, counters, 1e-6, elapsed);
                }
            }
        }
    }
}
