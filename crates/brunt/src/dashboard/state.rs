//! The state of a running experiment, for the displays of `brunt run`. It turns events into numbers; it does not use
//! the terminal, and receives the time as an argument.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use brunt_core::{Histogram, Nanos};
use brunt_probe::LOCAL;
use brunt_result::summary::RunSummary;
use brunt_result::{Counts, Interval, OpKind, RequestStatus};
use brunt_study::experiment::{Plan, Point};
use brunt_study::observe::{Event, JobEvent, RunInfo, Sample};

/// Number of intervals kept for the sparklines: more than a terminal has columns.
const HISTORY_MAX: usize = 256;
/// Minimum length of an interval: computing a percentile costs a tenth of a millisecond.
const STRETCH_MIN: Duration = Duration::from_millis(100);
/// Numbers cover about this much time: with less, they would flicker and show only one of many intervals.
const SHOWN_MIN: Duration = Duration::from_secs(1);

/// The progress and current figures of an experiment.
pub struct State {
    /// The experiment's name.
    pub name: String,
    /// Planned number of runs.
    pub runs: usize,
    /// Number of finished runs.
    pub done: usize,
    /// The current run, or the last one if none is running.
    pub run: Option<RunInfo>,
    /// When the run's workers started.
    pub started: Option<Nanos>,
    /// The run's recent rates.
    pub history: VecDeque<RecentRates>,
    /// Rates over about the last second; `None` until the first interval.
    pub shown: Option<RecentRates>,
    /// Rates by kind of operation over that second, if the load has several kinds.
    pub kinds: Vec<KindRate>,
    /// The current run's requests by outcome.
    pub counts: Counts,
    /// Retries in the current run.
    pub retries: u64,
    /// Requests that completed after the end of the run.
    pub late: u64,
    /// Active faults by index, with name and place.
    pub faults: BTreeMap<u32, String>,
    /// Busy share of this machine's CPUs.
    pub cpu: Option<f64>,
    /// CPUs used by this program.
    pub runner_cpus: Option<f64>,
    begin: Nanos,
    run_began: Nanos,
    /// The point of each run, in order.
    order: Vec<usize>,
    /// The planned duration of each point.
    stated: Vec<Option<Duration>>,
    /// Number and total duration of finished runs, by point.
    took: BTreeMap<usize, (u32, Duration)>,
    open: Open,
    /// The current second, and whether a whole second has passed.
    second: Open,
    has_second: bool,
}

/// Rates over part of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecentRates {
    /// Requests per second.
    pub requests_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// 99th percentile of the response time; `None` without responses.
    pub p99_us: Option<f64>,
}

/// Rates of one kind of operation over part of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KindRate {
    /// The kind of operation.
    pub op: OpKind,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Mean response time; `None` without responses.
    pub mean_us: Option<f64>,
}

/// An interval assembled from shorter ones.
#[derive(Default)]
struct Open {
    requests: u64,
    bytes: u64,
    length: Duration,
    response: Histogram,
    /// For each kind: completed requests, those that completed in time, and the sum of their response times.
    kinds: Vec<(OpKind, [u64; 2], f64)>,
}

impl Open {
    fn add(&mut self, interval: &Interval) {
        let figures = &interval.figures;
        self.requests += figures.completed_in_time();
        self.bytes += figures.bytes_in_time();
        self.length += interval.end.since(interval.start);
        for (kind, op) in figures.ops() {
            self.response.merge(&op.response);
            let nanos = op.response.mean().unwrap_or(0.0) * op.completed as f64;
            self.add_kind(kind, [op.completed, op.completed - op.late], nanos);
        }
    }

    fn add_kind(&mut self, kind: OpKind, counts: [u64; 2], more_nanos: f64) {
        let index = self
            .kinds
            .iter()
            .position(|(known, ..)| *known == kind)
            .unwrap_or_else(|| {
                self.kinds.push((kind, [0; 2], 0.0));
                self.kinds.len() - 1
            });
        let (_, [done, in_time], nanos) = &mut self.kinds[index];
        *done += counts[0];
        *in_time += counts[1];
        *nanos += more_nanos;
    }

    /// Adds the next interval.
    fn merge(&mut self, other: &Open) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.length += other.length;
        self.response.merge(&other.response);
        other
            .kinds
            .iter()
            .for_each(|(kind, counts, nanos)| self.add_kind(*kind, *counts, *nanos));
    }

    fn rates(&self) -> RecentRates {
        let seconds = self.length.as_secs_f64();
        RecentRates {
            requests_per_second: self.requests as f64 / seconds,
            bytes_per_second: self.bytes as f64 / seconds,
            p99_us: self
                .response
                .percentile(99.0)
                .map(|nanos| nanos.0 as f64 / 1e3),
        }
    }

    /// Rates by kind of operation; empty if there is only one kind.
    fn several_kinds(&self) -> Vec<KindRate> {
        let kind = |&(op, [done, in_time], nanos): &(OpKind, [u64; 2], f64)| KindRate {
            op,
            requests_per_second: in_time as f64 / self.length.as_secs_f64(),
            mean_us: (done > 0).then(|| nanos / done as f64 / 1e3),
        };
        if self.kinds.len() < 2 {
            Vec::new()
        } else {
            self.kinds.iter().map(kind).collect()
        }
    }

    fn clear(&mut self) {
        (self.requests, self.bytes, self.length) = (0, 0, Duration::ZERO);
        self.response.clear();
        self.kinds.clear();
    }
}

impl State {
    /// The state at the start of an experiment.
    pub fn new(name: &str, plan: &Plan, now: Nanos) -> State {
        // Runs of concurrent jobs are numbered after the run of the whole point, and take no extra time.
        let order: Vec<usize> = plan
            .runs
            .iter()
            .flat_map(|(point, _)| std::iter::once(*point).chain(plan.jobs_of(*point)))
            .collect();
        let stated = |point: &Point| match point.part_of {
            Some(_) => Some(Duration::ZERO),
            None => point.time(),
        };
        State {
            name: name.to_string(),
            runs: order.len(),
            done: 0,
            run: None,
            started: None,
            history: VecDeque::new(),
            shown: None,
            kinds: Vec::new(),
            counts: Counts::default(),
            retries: 0,
            late: 0,
            faults: BTreeMap::new(),
            cpu: None,
            runner_cpus: None,
            begin: now,
            run_began: now,
            order,
            stated: plan.points.iter().map(stated).collect(),
            took: BTreeMap::new(),
            open: Open::default(),
            second: Open::default(),
            has_second: false,
        }
    }

    /// Updates the state from an event.
    pub fn event(&mut self, event: &Event, now: Nanos) {
        match event {
            Event::RunBegins(info) => {
                self.run = Some((**info).clone());
                // Points with insufficient precision get additional runs.
                self.runs = self.runs.max(info.runs as usize);
                while self.order.len() <= info.order as usize {
                    self.order.push(info.point as usize);
                }
                (self.started, self.run_began) = (None, now);
                (self.counts, self.retries, self.late) = (Counts::default(), 0, 0);
                self.history.clear();
                self.shown = None;
                self.kinds.clear();
                (self.open, self.second, self.has_second) = Default::default();
            }
            Event::RunStarts(start) => self.started = self.started.or(Some(*start)),
            Event::Interval(interval) => self.interval(interval),
            Event::Sample(sample) => self.sample(sample),
            Event::Fault(fault) => {
                let name = format!("{} at {}", fault.name, fault.place);
                match fault.end {
                    None => self.faults.insert(fault.index, name),
                    Some(_) => self.faults.remove(&fault.index),
                };
            }
            Event::RunEnds(info, _, _) => {
                self.faults.clear();
                self.done = info.order as usize + 1;
                let took = self.took.entry(info.point as usize).or_default();
                *took = (took.0 + 1, took.1 + now.since(self.run_began));
            }
            Event::Job(_, JobEvent::RunEnds(info, ..)) => self.done = info.order as usize + 1,
            Event::Begins(_) | Event::Requests(_) | Event::Job(..) | Event::Ends(_) => {}
        }
    }

    fn interval(&mut self, interval: &Interval) {
        let figures = &interval.figures;
        for (sum, count) in self
            .counts
            .by_status
            .iter_mut()
            .zip(figures.counts.by_status)
        {
            *sum += count;
        }
        self.retries += figures.retries();
        self.late += figures.late();
        let open = &mut self.open;
        open.add(interval);
        if open.length < STRETCH_MIN {
            return;
        }
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(open.rates());
        let second = &mut self.second;
        second.merge(open);
        open.clear();
        let is_whole = second.length >= SHOWN_MIN;
        // Until a whole second has passed, show the rates so far.
        if is_whole || !self.has_second {
            (self.shown, self.kinds) = (Some(second.rates()), second.several_kinds());
        }
        if is_whole {
            self.has_second = true;
            second.clear();
        }
    }

    fn sample(&mut self, sample: &Sample) {
        if &*sample.host != LOCAL {
            return;
        }
        let mut own = None;
        for value in &sample.values {
            match (&*value.probe, &*value.instance, &*value.metric) {
                ("cpu", "", "busy_share") => self.cpu = Some(value.value),
                ("process", "runner", "user_cpus" | "system_cpus") => {
                    own = Some(own.unwrap_or(0.0) + value.value);
                }
                _ => {}
            }
        }
        self.runner_cpus = own.or(self.runner_cpus);
    }

    /// Time since the experiment began.
    pub fn elapsed(&self, now: Nanos) -> Duration {
        now.since(self.begin)
    }

    /// Remaining time: estimated from finished runs of the same point; otherwise from the workload's planned time and
    /// the average excess of finished runs over theirs; otherwise from all runs so far. `None` while unknown.
    pub fn left(&self, now: Nanos) -> Option<Duration> {
        let mut left = Duration::ZERO;
        for (place, point) in self.order.iter().enumerate().skip(self.done) {
            let expected = self.expected(*point)?;
            let under_way = self
                .run
                .as_ref()
                .is_some_and(|run| run.order as usize == place);
            let spent = if under_way {
                now.since(self.run_began)
            } else {
                Duration::ZERO
            };
            left += expected.saturating_sub(spent);
        }
        Some(left)
    }

    fn expected(&self, point: usize) -> Option<Duration> {
        if let Some((count, sum)) = self.took.get(&point) {
            return Some(*sum / *count);
        }
        if let Some(stated) = self.stated[point] {
            // Jobs have a planned time of zero: they run together with the others in their group, whose time is only
            // counted once.
            let excess = match stated.is_zero() {
                true => Duration::ZERO,
                false => self.excess(),
            };
            return Some(stated + excess);
        }
        let (count, sum) = self.took.values().fold((0, Duration::ZERO), |all, took| {
            (all.0 + took.0, all.1 + took.1)
        });
        (count > 0).then(|| sum / count)
    }

    /// Average time by which finished runs exceeded their planned time: for connections, links, faults and idle time.
    fn excess(&self) -> Duration {
        let (mut runs, mut all) = (0, Duration::ZERO);
        for (point, (count, sum)) in &self.took {
            let stated = self.stated[*point].filter(|stated| !stated.is_zero());
            if let Some(stated) = stated {
                runs += count;
                all += sum.saturating_sub(stated * *count);
            }
        }
        all / runs.max(1)
    }

    /// Progress of the experiment from 0 to 1: by time, or by runs while the time is unknown.
    pub fn progress(&self, now: Nanos) -> f64 {
        match self.left(now) {
            Some(left) if self.done < self.runs => {
                let (elapsed, left) = (self.elapsed(now).as_secs_f64(), left.as_secs_f64());
                // A run that takes longer than expected isn't finished yet.
                (elapsed / (elapsed + left).max(1e-9)).min(0.99)
            }
            _ => self.done as f64 / self.runs.max(1) as f64,
        }
    }

    /// Failures in the current run, each with its count; counts of zero are omitted.
    pub fn losses(&self) -> Vec<(&'static str, u64)> {
        let of = |status| self.counts.of(status);
        [
            ("errors", self.counts.errors()),
            ("skipped", of(RequestStatus::Skipped)),
            ("hanging", of(RequestStatus::Hanging)),
            ("retries", self.retries),
            ("late", self.late),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect()
    }

    /// A plain line for a run in progress.
    pub fn interval_line(&self, now: Nanos) -> String {
        let Some(run) = &self.run else {
            return self.name.clone();
        };
        let (place, all) = (run.order + 1, run.runs);
        let seconds = self.started.map_or(0, |start| now.since(start).as_secs());
        let mut line = format!("[{place}/{all}] {}: {seconds} s", run.label);
        if let Some(stretch) = self.shown {
            line += &format!(", {:.0} requests/s", stretch.requests_per_second);
            line += &in_brackets(
                self.kinds
                    .iter()
                    .map(|kind| (kind.op, kind.requests_per_second)),
            );
            if let Some(p99) = stretch.p99_us {
                line += &format!(", p99 {p99:.1} us");
            }
        }
        for (what, count) in self.losses() {
            line += &format!(", {count} {what}");
        }
        for fault in self.faults.values() {
            line += &format!(", under {fault}");
        }
        line
    }
}

/// The rate of each kind of operation, if there are several, as in ` (read 700, write 300)`.
fn in_brackets(kinds: impl ExactSizeIterator<Item = (OpKind, f64)>) -> String {
    if kinds.len() < 2 {
        return String::new();
    }
    let each: Vec<String> = kinds.map(|(op, rate)| format!("{op} {rate:.0}")).collect();
    format!(" ({})", each.join(", "))
}

/// The line for a finished run.
pub fn run_line(info: &RunInfo, run: &RunSummary) -> String {
    let (done, all, rate) = (info.order + 1, info.runs, run.requests_per_second);
    let mut line = format!("[{done}/{all}] {}: {rate:.0} requests/s", info.label);
    line += &in_brackets(
        run.ops
            .iter()
            .map(|op| (op.op, run.requests_per_second_of(op))),
    );
    if let Some(response) = run.response {
        line += &format!(", p99 {:.1} us", response.p99_us);
    }
    if !run.is_complete() {
        line += ", cut short";
    }
    for (what, count) in &run.losses {
        line += &format!(", {count} {what}");
    }
    line
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use brunt_result::{Figures, OpKind};
    use brunt_study::experiment::Experiment;
    use std::time::SystemTime;

    pub const TEXT: &str = "name = \"block sizes\"\nrepetitions = 2\n[targets.disk]\nurl = \"null:1GiB\"\n\
                            [workloads.w]\nstop = { time = \"10s\" }\n[sweep]\nqueue_depth = [1, 8]\n";

    pub fn at(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    pub fn info(order: u32, point: u32) -> RunInfo {
        RunInfo {
            order,
            runs: 4,
            point,
            label: format!("disk w queue_depth={point}"),
            repetition: 0,
            seed: 1,
            wall: SystemTime::UNIX_EPOCH,
            ready: Nanos(0),
        }
    }

    /// An interval with this many reads of 4 KiB, each of which took this many microseconds.
    pub fn interval(index: u64, millis: u64, reads: u64, us: u64) -> Interval {
        let mut figures = Figures::of_kinds(&[OpKind::Read]);
        for _ in 0..reads {
            figures.at(0).response.record(Nanos(us * 1000));
        }
        (figures.at(0).completed, figures.at(0).bytes) = (reads, reads * 4096);
        figures.counts.by_status[RequestStatus::Good as usize] = reads;
        Interval {
            index,
            start: at(index * millis),
            end: at((index + 1) * millis),
            figures,
            waiting: Histogram::default(),
        }
    }

    pub fn state() -> State {
        State::new(
            "block sizes",
            &Experiment::parse("x.toml", TEXT).unwrap().plan(),
            at(0),
        )
    }

    /// Short intervals are merged into one, with the percentile over all of them.
    #[test]
    fn short_intervals_are_merged() {
        let mut state = state();
        state.event(&Event::RunBegins(info(0, 0).into()), at(0));
        for index in 0..20 {
            let us = if index % 10 == 9 { 5000 } else { 100 };
            state.event(
                &Event::Interval(interval(index, 10, 50, us).into()),
                at(index * 10),
            );
        }
        assert_eq!(state.history.len(), 2);
        assert!((state.history[0].requests_per_second - 5000.0).abs() < 1.0);
        assert!(state.history[0].p99_us.unwrap() > 4900.0);
        assert!((state.history[1].bytes_per_second - 5000.0 * 4096.0).abs() < 4096.0);
    }

    /// Figures cover about a second, however short the intervals; in the first second, they cover the time so far.
    #[test]
    fn numbers_cover_about_a_second() {
        let mut state = state();
        state.event(&Event::RunBegins(info(0, 0).into()), at(0));
        let mut shown = Vec::new();
        for index in 0..250 {
            // Every second interval of 100 ms is idle.
            let reads = if index / 10 % 2 == 0 { 50 } else { 0 };
            state.event(
                &Event::Interval(interval(index, 10, reads, 100).into()),
                at(index * 10),
            );
            shown.push(state.shown.map(|rates| rates.requests_per_second.round()));
        }
        assert_eq!(
            (shown[8], shown[9], shown[19]),
            (None, Some(5000.0), Some(2500.0))
        );
        assert!(
            shown[99..].iter().all(|rate| *rate == Some(2500.0)),
            "{shown:?}"
        );
        assert!(
            state
                .interval_line(at(2500))
                .contains("2500 requests/s, p99 100")
        );
    }

    /// Each of two kinds has its own figure, over a whole second; with a single kind, there is only the total.
    #[test]
    fn each_of_several_kinds_has_its_own_figure() {
        let mut state = state();
        state.event(&Event::RunBegins(info(0, 0).into()), at(0));
        state.event(
            &Event::Interval(interval(0, 1000, 500, 100).into()),
            at(1000),
        );
        assert_eq!(state.kinds, []);
        assert!(!state.interval_line(at(1000)).contains('('));
        for (index, us) in [(2, 100), (3, 300)] {
            let mut both = interval(index, 500, 500, 100);
            let mut trims = Figures::of_kinds(&[OpKind::Unmap]);
            (0..100).for_each(|_| trims.at(0).response.record(Nanos(us * 1000)));
            trims.at(0).completed = 100;
            both.figures.merge(&trims);
            state.event(&Event::Interval(both.into()), at(2000));
        }
        let kind = |op, requests_per_second, us| KindRate {
            op,
            requests_per_second,
            mean_us: Some(us),
        };
        assert_eq!(
            state.kinds,
            [
                kind(OpKind::Read, 1000.0, 100.0),
                kind(OpKind::Unmap, 200.0, 200.0)
            ]
        );
        assert!(
            state
                .interval_line(at(2000))
                .contains("1200 requests/s (read 1000, unmap 200)")
        );
    }

    /// The remaining time is the planned time until runs give a better estimate, and never reaches zero early.
    #[test]
    fn remaining_time_is_corrected_by_finished_runs() {
        let mut state = state();
        assert_eq!(state.left(at(0)), Some(Duration::from_secs(40)));
        let first = info(0, state.order[0] as u32);
        state.event(&Event::RunBegins(first.clone().into()), at(0));
        assert_eq!(state.left(at(4000)), Some(Duration::from_secs(36)));
        assert!((state.progress(at(4000)) - 0.1).abs() < 1e-9);
        // The run took longer than planned, so the other runs are expected to as well.
        let (stated, took) = (Duration::from_secs(10), Duration::from_secs(14));
        assert_eq!(state.left(at(14_000)), Some(stated * 3));
        let mut took_point = state.took.clone();
        took_point.insert(first.point as usize, (1, took));
        (state.took, state.done) = (took_point, 1);
        assert_eq!(state.left(at(14_000)), Some(took * 3));
        assert!(state.progress(at(10_000_000)) <= 0.99);
    }
}
