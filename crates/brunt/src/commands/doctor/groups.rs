//! Describes the limits of control groups on this program: CPU quota, memory, processes, and its set of processors.

use brunt_core::Size;
use brunt_probe::limits::CgroupLimits;

/// Below this much free memory, print a note: buffers, page cache and results need about as much.
const MEMORY_LEFT_NOTE: u64 = 1 << 30;
/// Advice for the limits of a control group.
pub const ADVICE: &str = "raise the limits (cpu.max, memory.max and pids.max; in version 1 cpu.cfs_quota_us, \
     memory.limit_in_bytes), or run it outside of that control group";
/// Below this many remaining threads, print a note.
const PIDS_LEFT_NOTE: u64 = 256;

/// Whether the CPU quota is less than this many processors.
pub fn quota_is_low(limits: &CgroupLimits, processors: usize) -> bool {
    limits.cpus.is_some_and(|cpus| cpus < processors as f64)
}

/// Describes the limits.
pub fn described(limits: &CgroupLimits, processors: usize) -> String {
    let mut parts = Vec::new();
    if let Some(cpus) = limits.cpus {
        let throttled = limits.throttled_periods.unwrap_or(0);
        parts.push(format!(
            "a CPU quota of {cpus:.2} of {processors} processors, exhausted {throttled} times"
        ));
    }
    if let (Some(max), Some(left)) = (limits.memory_max, limits.memory_left) {
        parts.push(format!("{} of memory, {} left", Size(max), Size(left)));
    }
    if let (Some(max), Some(now)) = (limits.pids_max, limits.pids) {
        parts.push(format!("{max} processes and threads, {now} now"));
    }
    if let Some(kills) = limits.oom_kills.filter(|kills| *kills > 0) {
        parts.push(format!("{kills} processes killed because memory ran out"));
    }
    if let Some(set) = &limits.cpuset {
        parts.push(format!("processors {set}"));
    }
    match parts.is_empty() {
        true => "no limits".into(),
        false => parts.join("; "),
    }
}

/// How the limits affect a measurement; empty if nothing is scarce.
pub fn costs(limits: &CgroupLimits) -> Vec<&'static str> {
    let mut costs = Vec::new();
    if limits.cpus.is_some() {
        costs.push(
            "when the quota is used up, every process of this control group stops until the \
         next period, and response times grow",
        );
    }
    if limits
        .memory_left
        .is_some_and(|left| left < MEMORY_LEFT_NOTE)
        || limits.oom_kills.is_some_and(|kills| kills > 0)
    {
        costs.push("the kernel kills processes that need more memory than that");
    }
    let pids_left = limits.pids_max.zip(limits.pids);
    if pids_left.is_some_and(|(max, now)| max.saturating_sub(now) < PIDS_LEFT_NOTE) {
        costs.push("experiments with many workers cannot start all of their threads");
    }
    costs
}
