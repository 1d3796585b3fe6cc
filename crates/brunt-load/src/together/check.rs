//! Checks which jobs can run together. Called when a load of several jobs is created, and again when they are open.

use std::time::Duration;

use brunt_core::Span;
use brunt_result::choice::{EngineSetting, RingMode};

use super::{JOBS_MAX, TogetherJob};
use crate::block::workload::WORKERS_MAX;
use crate::load::{EngineNeed, LoadInfo, Pace, WorkloadError, wrong};

/// Checks jobs against each other.
///
/// # Errors
/// The error names the offending key, and what would be correct.
pub(super) fn check(jobs: &[TogetherJob]) -> Result<(), WorkloadError> {
    if !(2..=JOBS_MAX).contains(&jobs.len()) {
        return wrong(
            "jobs",
            format!(
                "{} jobs; write 2 to {JOBS_MAX} that run at once",
                jobs.len()
            ),
        );
    }
    for (index, job) in jobs.iter().enumerate() {
        if jobs[..index].iter().any(|other| other.name == job.name) {
            return wrong(
                "jobs",
                format!("two jobs are called {}; rename one of them", job.name),
            );
        }
        by_itself(job)?;
    }
    let infos: Vec<LoadInfo> = jobs.iter().map(|job| job.load.info()).collect();
    let workers: u64 = infos.iter().map(|info| u64::from(info.workers)).sum();
    if workers > u64::from(WORKERS_MAX) {
        return wrong(
            "jobs",
            format!("{workers} workers in all; at most {WORKERS_MAX} run at once"),
        );
    }
    let interval = infos[0].interval;
    if let Some(other) = infos.iter().position(|info| info.interval != interval) {
        let (first, name) = (&jobs[0].name, &jobs[other].name);
        let (one, two) = (Span(interval), Span(infos[other].interval));
        let what = format!(
            "jobs that run at once need intervals of the same length; {first} has {one}, {name} has {two}: set \
             the same interval in both workloads"
        );
        return wrong("jobs", what);
    }
    apart(jobs, interval)
}

fn by_itself(job: &TogetherJob) -> Result<(), WorkloadError> {
    let TogetherJob { name, load, .. } = job;
    let info = load.info();
    let refused = match info {
        _ if name.is_empty() => "a job has no name; give it one".to_string(),
        LoadInfo {
            pace: Pace::Search(_),
            ..
        } => {
            format!(
                "{name} searches for a rate, which takes many runs: write an open loop with a rate"
            )
        }
        LoadInfo {
            depth_search: Some(_),
            ..
        } => {
            format!("{name} searches for a queue depth, which takes many runs: omit depth_search")
        }
        LoadInfo {
            steady: Some(_), ..
        } => {
            format!(
                "{name} ends in steady state, which the other jobs would disturb: write stop = {{ time = \"30s\" }}"
            )
        }
        LoadInfo {
            engine: EngineNeed::Stated(EngineSetting::Auto),
            ..
        } => {
            format!(
                "{name} has engine = \"auto\", which is measured while nothing else runs: choose io_uring or threads"
            )
        }
        LoadInfo {
            ring: RingMode::Auto,
            ..
        } => {
            format!(
                "{name} has ring = \"auto\", which is measured while nothing else runs: choose interrupt, sqpoll or poll"
            )
        }
        _ => return Ok(()),
    };
    wrong("jobs", refused)
}

/// Checks that the jobs begin measuring a whole number of intervals apart.
fn apart(jobs: &[TogetherJob], interval: Duration) -> Result<(), WorkloadError> {
    if interval.is_zero() {
        return Ok(());
    }
    let first = jobs
        .iter()
        .min_by_key(|job| job.measured_from())
        .expect("a load has at least one job");
    for job in jobs {
        let apart = job.measured_from() - first.measured_from();
        if !apart.as_nanos().is_multiple_of(interval.as_nanos()) {
            let what = format!(
                "{} starts measuring {} after {}, which is not a multiple of their interval of {}: change \
                 start_delay or ramp_up, or set another interval (0 for the whole run) in all workloads",
                job.name,
                Span(apart),
                first.name,
                Span(interval)
            );
            return wrong("start_delay", what);
        }
    }
    Ok(())
}
