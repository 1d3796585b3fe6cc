//! How often a run is looked at, where its file does not say: a short run more often than once a second, which would
//! leave one or two figures over time.

use std::time::Duration;

use brunt_core::Span;

use super::Experiment;
use super::mistake::Source;
use super::together::TogetherEntry;

/// Looks at a run of a known length.
const LOOKS: u32 = 20;
/// Between two looks at the least: processor time is counted in ticks of up to 10 ms.
const SHORTEST: Duration = Duration::from_millis(50);
/// And at the most, in runs as long as this many of them and longer.
const LONGEST: Duration = Duration::from_secs(1);

impl Experiment {
    /// Sets the intervals of reports and of probes that the file leaves open, by how long runs last.
    pub(super) fn settle_intervals(&mut self, source: &Source<'_>) {
        let mut shortest: Option<Duration> = None;
        for (name, workload) in &mut self.workloads {
            let Some(Span(time)) = workload.stop.time else {
                continue;
            };
            shortest = Some(shortest.map_or(time, |known| known.min(time)));
            // Rounds of a steady state are counted in intervals.
            if workload.stop.steady.is_none() && !source.has(&["workloads", name, "interval"]) {
                workload.interval = Span(fitting(time));
            }
        }
        self.settle_together(source);
        if let Some(time) = shortest.filter(|_| !source.has(&["probes", "interval"])) {
            self.probes.interval = Span(fitting(time));
        }
    }

    /// Jobs that run at once are looked at together: at the interval that one of them states, otherwise at that of the
    /// shortest, or at a round one below it that delayed jobs begin at.
    fn settle_together(&mut self, source: &Source<'_>) {
        let is_stated = |name: &str| source.has(&["workloads", name, "interval"]);
        // A workload may be in several groups, whose intervals are one then.
        for _ in 0..self.together.len() {
            for group in self.together.values() {
                let names = || group.jobs.iter().map(|job| job.workload.as_str());
                let intervals = |stated: bool| {
                    let of = names().filter(move |name| is_stated(name) == stated);
                    of.filter_map(|name| self.workloads.get(name))
                        .map(|workload| workload.interval)
                        .min()
                };
                let Some(interval) =
                    intervals(true).or_else(|| Some(beginning(group, intervals(false)?)))
                else {
                    continue;
                };
                for name in names().filter(|name| !is_stated(name)) {
                    if let Some(workload) = self.workloads.get_mut(name) {
                        workload.interval = interval;
                    }
                }
            }
        }
    }
}

/// The longest round interval up to this one at whose multiples all jobs of a group begin, if some begin later.
fn beginning(group: &TogetherEntry, interval: Span) -> Span {
    let delays = || group.jobs.iter().filter_map(|job| job.start_delay);
    let fits = |millis: &u64| {
        let round = Duration::from_millis(*millis);
        round <= interval.0
            && delays().all(|delay| delay.0.as_nanos().is_multiple_of(round.as_nanos()))
    };
    match [1000, 500, 250, 200, 100, 50].into_iter().find(fits) {
        Some(millis) if delays().next().is_some() => Span(Duration::from_millis(millis)),
        _ => interval,
    }
}

/// Between two looks at a run of this length, in whole hundredths of a second.
fn fitting(time: Duration) -> Duration {
    let hundredths = (time / LOOKS).as_millis() / 10;
    Duration::from_millis(hundredths as u64 * 10).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Short runs are looked at more often, long ones once a second; what the file says stands.
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

    /// Jobs that run at once have one interval, whatever their lengths and whichever of them states it.
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
