//! The figures of one measurement, and statistics over several. CPU time of another process comes from `/proc`.

use std::fs;
use std::time::Duration;

use brunt_core::ProcessStat;
use brunt_result::statistics::Ratio;

/// The figures of one run of one side.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunSample {
    /// Requests completed.
    pub requests: u64,
    /// The time that the requests took.
    pub elapsed: Duration,
    /// CPU time of the client; `None` if unknown.
    pub client_cpu: Option<Duration>,
    /// CPU time of the target.
    pub target_cpu: Option<Duration>,
    /// System calls of the client.
    pub client_calls: Option<u64>,
}

impl RunSample {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}

/// CPU time used by process `pid` so far, including its ended threads, in steps of 10 ms; `None` if it doesn't exist.
pub fn process_cpu(pid: u32) -> Option<Duration> {
    // The unit is USER_HZ, which is 100 on every Linux system (proc(5)).
    ProcessStat::read(pid).map(|stat| Duration::from_millis(stat.ticks() * 10))
}

/// CPU time that process `pid` has used since `before` was read.
pub fn process_cpu_since(pid: u32, before: Option<Duration>) -> Option<Duration> {
    process_cpu(pid)?.checked_sub(before?)
}

/// Peak resident memory of this process, in bytes.
pub fn memory_peak() -> Option<u64> {
    memory("VmHWM:")
}

/// Current resident memory of this process, in bytes.
pub fn memory_now() -> Option<u64> {
    memory("VmRSS:")
}

/// Current resident memory of another process, in bytes.
pub fn process_memory(pid: u32) -> Option<u64> {
    memory_of(&pid.to_string(), "VmRSS:")
}

fn memory(name: &str) -> Option<u64> {
    memory_of("self", name)
}

/// A line of `/proc/PROCESS/status` (proc(5)), in bytes.
fn memory_of(process: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// A ratio with its interval, to this many decimals; `-` if there is no ratio.
pub fn ratio_words(ratio: Option<&Ratio>, decimals: usize) -> String {
    let words = |Ratio {
                     ratio, low, high, ..
                 }: &Ratio| {
        format!("{ratio:.decimals$} ({low:.decimals$} to {high:.decimals$})")
    };
    ratio.map_or_else(|| "-".into(), words)
}

/// The middle value, or the mean of the two middle ones.
///
/// # Panics
/// There are no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// The median of a figure over the runs of one side. `None` if there are no runs, or if a run doesn't have the
/// figure: medians over different rounds can't be compared.
pub fn median_of<T>(runs: &[T], figure: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = runs.iter().map(figure).collect::<Option<_>>()?;
    (!values.is_empty()).then(|| median(&values))
}

/// Ratios of two sides' figures, round by round, because a machine's speed drifts: their median, minimum and maximum.
/// `None` if there is no round that both sides have.
pub fn ratio_of_rounds(ours: &[f64], theirs: &[f64]) -> Option<(f64, (f64, f64))> {
    let all: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
    (!all.is_empty()).then(|| (median(&all), extremes(&all)))
}

/// The minimum and the maximum.
pub fn extremes(values: &[f64]) -> (f64, f64) {
    values
        .iter()
        .fold((f64::MAX, f64::MIN), |(least, most), value| {
            (value.min(least), value.max(most))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The median of odd and even numbers of values, and the extremes of negative values.
    #[test]
    fn medians_of_odd_and_even_counts_are_correct() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(extremes(&[-1.0, -3.0, -2.0]), (-3.0, -1.0));
        assert_eq!(
            median_of(&[3, 1, 2], |run| Some(f64::from(*run))),
            Some(2.0)
        );
    }

    #[test]
    fn a_figure_that_a_run_lacks_has_no_median() {
        assert_eq!(median_of(&[Some(1.0), None, Some(2.0)], |run| *run), None);
        assert_eq!(median_of::<Option<f64>>(&[], |run| *run), None);
    }

    /// CPU time of a busy process is measured.
    #[test]
    fn a_busy_process_has_cpu_time() {
        let used = brunt_core::ResourceUsage::now();
        while brunt_core::ResourceUsage::now().since(used).cpu() < Duration::from_millis(30) {}
        let own = std::process::id();
        assert!(process_cpu(own) >= Some(Duration::from_millis(20)));
        assert!(process_cpu_since(own, process_cpu(own)).is_some());
    }

    /// The CPU time of a process that doesn't exist is not 0.
    #[test]
    fn a_process_that_is_gone_has_no_cpu_time() {
        assert_eq!(process_cpu(u32::MAX), None);
        assert_eq!(process_cpu_since(u32::MAX, Some(Duration::ZERO)), None);
        assert_eq!(process_cpu_since(std::process::id(), None), None);
    }
}
