//! Default intervals of reports and probes. Short runs are sampled more often than once a second, because there would
//! otherwise be only one or two figures over time.

use std::time::Duration;

use brunt_core::Span;

use super::mistake::Source;
use super::{Experiment, TogetherEntry};
use crate::fault::FaultEntry;

/// Number of intervals in a run of known length, unless a limit applies.
const LOOKS: u32 = 20;
/// Shortest default interval: CPU time is counted in ticks of up to 10 ms.
const SHORTEST: Duration = Duration::from_millis(50);
/// Longest default interval, used in runs of at least `LOOKS` times that length.
const LONGEST: Duration = Duration::from_secs(1);

impl Experiment {
    /// Sets the intervals of reports and probes that the file leaves open, based on the lengths of runs and the start
    /// and end times of their faults.
    pub(super) fn settle_intervals(&mut self, source: &Source<'_>) {
        let faults: Vec<Duration> = self.fault.iter().flat_map(edges).collect();
        let of_run = |time: Duration| Span(meeting(&faults, fitting(time)));
        let mut shortest: Option<Duration> = None;
        for (name, workload) in self.workloads.on_targets_mut() {
            let Some(Span(time)) = workload.stop.time else {
                continue;
            };
            shortest = Some(shortest.map_or(time, |known| known.min(time)));
            // The rounds of a steady state are counted in intervals, so the default interval stays.
            if workload.stop.steady.is_none() && !source.has(&["workloads", name, "interval"]) {
                workload.interval = of_run(time);
            }
        }
        self.settle_together(&faults, source);
        if let Some(time) = shortest.filter(|_| !source.has(&["probes", "interval"])) {
            self.probes.interval = of_run(time);
        }
    }

    /// Gives simultaneous jobs a common interval: the one that a job sets; otherwise the shortest of the jobs'
    /// intervals, reduced where possible so that delayed jobs and faults start and end at its multiples.
    fn settle_together(&mut self, faults: &[Duration], source: &Source<'_>) {
        let is_stated = |name: &str| source.has(&["workloads", name, "interval"]);
        // A workload may be in several groups; all of these then share one interval.
        let groups: Vec<TogetherEntry> = self
            .workloads
            .groups()
            .map(|(_, group)| group.clone())
            .collect();
        for _ in 0..groups.len() {
            for group in &groups {
                let names = || group.jobs.iter().map(|job| job.workload.as_str());
                let intervals = |stated: bool| {
                    let of = names().filter(move |name| is_stated(name) == stated);
                    of.filter_map(|name| self.workloads.on_target(name))
                        .map(|workload| workload.interval.0)
                        .min()
                };
                let begins = group.jobs.iter().filter_map(|job| job.start_delay);
                let edges: Vec<Duration> = begins
                    .map(|delay| delay.0)
                    .chain(faults.iter().copied())
                    .collect();
                let Some(interval) =
                    intervals(true).or_else(|| Some(meeting(&edges, intervals(false)?)))
                else {
                    continue;
                };
                for name in names().filter(|name| !is_stated(name)) {
                    if let Some(workload) = self.workloads.on_target_mut(name) {
                        workload.interval = Span(interval);
                    }
                }
            }
        }
    }
}

/// When a fault starts and ends, as far as these times are known.
fn edges(fault: &FaultEntry) -> impl Iterator<Item = Duration> + use<> {
    let (begin, end) = fault.common.times();
    begin.into_iter().chain(end)
}

/// The longest interval in whole milliseconds, up to `interval`, of which each of these times is a multiple; `interval`
/// itself if that would be shorter than `SHORTEST`.
fn meeting(edges: &[Duration], interval: Duration) -> Duration {
    let divides = |millis: &u128| {
        let nanos = millis * 1_000_000;
        edges
            .iter()
            .all(|edge| edge.as_nanos().is_multiple_of(nanos))
    };
    (SHORTEST.as_millis()..=interval.as_millis())
        .rev()
        .find(divides)
        .map_or(interval, |millis| Duration::from_millis(millis as u64))
}

/// The interval for a run of this length, in multiples of 10 ms.
fn fitting(time: Duration) -> Duration {
    let hundredths = (time / LOOKS).as_millis() / 10;
    Duration::from_millis(hundredths as u64 * 10).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Short runs have shorter intervals, and long runs have one-second intervals; an interval set in the file is
    /// kept.
    #[test]
    fn intervals_by_length() {
        let check = |workload: &str, probes: &str, expected: (&str, &str)| {
            let text = format!(
                "name = \"x\"\n[targets.m]\nurl = \"memory:1MiB\"\n[workloads.w]\n{workload}\n{probes}\n"
            );
            let experiment = Experiment::parse("x.toml", &text).expect(workload);
            let (report, probe) = (
                experiment.workloads["w"].interval,
                experiment.probes.interval,
            );
            assert_eq!(
                (report.to_string().as_str(), probe.to_string().as_str()),
                expected,
                "{workload} {probes}"
            );
        };
        check("stop = { time = \"1500ms\" }", "", ("70ms", "70ms"));
        check("stop = { time = \"300ms\" }", "", ("50ms", "50ms"));
        check("stop = { time = \"6s\" }", "", ("300ms", "300ms"));
        check("stop = { time = \"1h\" }", "", ("1s", "1s"));
        check("stop = { requests = 100 }", "", ("1s", "1s"));
        check(
            "interval = \"1s\"\nstop = { time = \"2s\" }",
            "",
            ("1s", "100ms"),
        );
        check(
            "stop = { time = \"2s\" }",
            "[probes]\ninterval = \"0s\"",
            ("100ms", "0"),
        );
    }

    /// Intervals are chosen so that faults start and end at their boundaries, unless that would make them too short.
    #[test]
    fn faults_begin_and_end_with_intervals() {
        let check = |time: &str, keys: &str, expected: &str| {
            let text = format!(
                "name = \"x\"\n[targets.m]\nurl = \"memory:1MiB\"\n[workloads.w]\nstop = {{ time = \"{time}\" }}\n\
                 [[fault]]\ncpu = 0.5\n{keys}\n"
            );
            let experiment = Experiment::parse("x.toml", &text).expect(keys);
            let interval = experiment.workloads["w"].interval;
            assert_eq!(interval.to_string(), expected, "{time} {keys}");
            assert_eq!(experiment.probes.interval, interval);
        };
        check("6s", "", "300ms");
        check("6s", "at = \"2s\"\nfor = \"2s\"", "250ms");
        check("1h", "at = \"20m\"\nfor = \"90s\"", "1s");
        check("20s", "at = \"5500ms\"", "550ms");
        check("3s", "at = \"1s\"\nfor = \"1300ms\"", "100ms");
        check("6s", "at = \"2s\"\nfor = \"1001ms\"", "300ms");
    }

    /// Simultaneous jobs have one interval, whatever their lengths and whichever of them sets it.
    #[test]
    fn jobs_at_once_have_one_interval() {
        let check = |time: &str, stated: &str, delay: &str, expected: &str| {
            let text = format!(
                "name = \"x\"\n[targets.m]\nurl = \"memory:1MiB\"\n[workloads.a]\nstop = {{ time = \"{time}\" }}\n\
                 [workloads.b]\nstop = {{ time = \"4s\" }}\n{stated}[together.t]\njobs = [\n\
                 {{ workload = \"a\", target = \"m\"{delay} }},\n{{ workload = \"b\", target = \"m\" }},\n]\n"
            );
            let experiment = Experiment::parse("x.toml", &text).expect(stated);
            let intervals = ["a", "b"].map(|name| experiment.workloads[name].interval.to_string());
            assert_eq!(intervals, [expected; 2], "{time} {stated} {delay}");
        };
        check("2s", "", "", "100ms");
        check("2s", "interval = \"500ms\"\n", "", "500ms");
        check("1500ms", "", "", "70ms");
        check("1500ms", "", ", start_delay = \"1s\"", "50ms");
    }
}
