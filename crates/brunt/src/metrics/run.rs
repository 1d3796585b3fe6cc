//! Metrics of the current run, for `brunt run` and `brunt replay`: an observer of an experiment's events. Counters
//! cover the current run; they restart with the next run, under its label. The previous run's counters are kept next
//! to them, so that a client that polls once a second sees the run's last figures.
//!
//! The rule: an event only updates numbers, under a lock that is held for about a millisecond while a page is
//! rendered.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use brunt_core::Histogram;
use brunt_load::decisions::steady::SteadyState;
use brunt_probe::DEVICE;
use brunt_result::{Figures, Interval, OpFigures, RequestStatus, Stopped};
use brunt_study::experiment::{Experiment, Plan};
use brunt_study::observe::{Event, Observer, Sample};

use super::histogram::bounds;
use super::{Labels, MetricKind, MetricsPage};

/// Length of a round for the steady-state check.
const ROUND: Duration = Duration::from_secs(1);
/// Percentiles of response times that are exported.
const PERCENTILES: [(&str, f64); 4] = [("50", 50.0), ("90", 90.0), ("99", 99.0), ("99.9", 99.9)];

/// Figures of the runs; clones share the same state.
#[derive(Clone)]
pub struct RunMetrics(Arc<Mutex<RunState>>);

/// A fault of the experiment.
struct FaultState {
    name: String,
    kind: String,
    place: String,
    active: bool,
}

/// A run's figures so far.
struct RunFigures {
    point: String,
    run: u32,
    figures: Figures,
    measured: Duration,
    ended: bool,
}

/// The current run, or the last one if none is running.
struct RunState {
    experiment: String,
    planned: u32,
    ended: BTreeMap<Stopped, u64>,
    current: RunFigures,
    /// The previous run.
    before: Option<RunFigures>,
    ready: SystemTime,
    under_way: bool,
    faults: BTreeMap<u32, FaultState>,
    steady: Rounds,
    /// Latest values of device components, by host, component and metric.
    devices: BTreeMap<[String; 3], f64>,
}

/// Rounds of one second, judged like those of the stop condition `steady`.
#[derive(Default)]
struct Rounds {
    state: SteadyState,
    completed: u64,
    length: Duration,
    is_steady: bool,
}

impl Rounds {
    fn interval(&mut self, interval: &Interval) {
        self.completed += interval.figures.completed();
        self.length += interval.end.since(interval.start);
        if self.length >= ROUND {
            let rate = std::mem::take(&mut self.completed) as f64 / self.length.as_secs_f64();
            self.length = Duration::ZERO;
            self.is_steady = self.state.round(rate);
        }
    }
}

impl RunMetrics {
    /// Metrics for an experiment's planned runs.
    pub fn of(experiment: &Experiment, plan: &Plan) -> RunMetrics {
        let metrics = RunMetrics::alone(
            &experiment.name,
            plan.points.first().map_or("", |point| &point.label),
        );
        let fault = |(index, entry): (usize, &brunt_study::fault::FaultEntry)| {
            let (name, kind) = (entry.label(), entry.kind_name().to_string());
            (
                index as u32,
                FaultState {
                    name,
                    kind,
                    place: entry.place(),
                    active: false,
                },
            )
        };
        let mut state = metrics.lock();
        state.planned = plan.runs.len() as u32;
        state.faults = experiment.fault.iter().enumerate().map(fault).collect();
        drop(state);
        metrics
    }

    /// Metrics of a single run.
    pub fn alone(experiment: &str, point: &str) -> RunMetrics {
        RunMetrics(Arc::new(Mutex::new(RunState {
            experiment: experiment.to_string(),
            planned: 1,
            ended: BTreeMap::new(),
            current: RunFigures::of(point, 0),
            before: None,
            ready: SystemTime::now(),
            under_way: false,
            faults: BTreeMap::new(),
            steady: Rounds::default(),
            devices: BTreeMap::new(),
        })))
    }

    /// The page with the current figures.
    pub fn page(&self) -> String {
        let mut page = MetricsPage::default();
        self.lock().write(&mut page);
        page.finish()
    }

    fn lock(&self) -> MutexGuard<'_, RunState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for RunMetrics {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let mut state = self.lock();
        match event {
            Event::RunBegins(info) => {
                state.ready = info.wall;
                state.planned = state.planned.max(info.runs);
                state.begin(RunFigures::of(&info.label, info.order));
            }
            Event::RunStarts(_) => state.start(),
            Event::Interval(interval) => state.interval(interval),
            Event::Fault(record) => {
                let fault = state
                    .faults
                    .entry(record.index)
                    .or_insert_with(|| FaultState {
                        name: record.name.clone(),
                        kind: record.kind.to_string(),
                        place: record.place.clone(),
                        active: false,
                    });
                fault.active = record.end.is_none();
            }
            Event::RunEnds(_, run, figures) => state.end(run.stopped, figures),
            Event::Sample(sample) => state.sample(sample),
            Event::Begins(_) | Event::Requests(_) | Event::Job(..) | Event::Ends(_) => {}
        }
        Ok(())
    }
}

impl RunFigures {
    fn of(point: &str, run: u32) -> RunFigures {
        RunFigures {
            point: point.to_string(),
            run,
            figures: Figures::default(),
            measured: Duration::ZERO,
            ended: false,
        }
    }
}

impl RunState {
    fn begin(&mut self, run: RunFigures) {
        self.under_way = false;
        self.devices.clear();
        self.steady = Rounds::default();
        let last = std::mem::replace(&mut self.current, run);
        if last.ended {
            self.before = Some(last);
        }
    }

    fn sample(&mut self, sample: &Sample) {
        for value in sample
            .values
            .iter()
            .filter(|value| value.probe == DEVICE.name)
        {
            let key = [&*sample.host, &*value.instance, &*value.metric].map(str::to_string);
            self.devices.insert(key, value.value);
        }
    }

    /// Resets the figures: a search for a rate or a depth starts its workload several times, and earlier attempts
    /// don't count.
    fn start(&mut self) {
        self.under_way = true;
        self.steady = Rounds::default();
        let RunFigures {
            figures, measured, ..
        } = &mut self.current;
        (*figures, *measured) = Default::default();
    }

    fn interval(&mut self, interval: &Interval) {
        self.current.figures.merge(&interval.figures);
        self.current.measured += interval.end.since(interval.start);
        self.steady.interval(interval);
    }

    fn end(&mut self, stopped: Stopped, figures: &Figures) {
        self.under_way = false;
        self.current.figures = figures.clone();
        self.current.ended = true;
        *self.ended.entry(stopped).or_default() += 1;
        self.faults
            .values_mut()
            .for_each(|fault| fault.active = false);
    }

    fn write(&self, page: &mut MetricsPage) {
        let runs: Vec<(String, &RunFigures)> = self
            .before
            .iter()
            .chain([&self.current])
            .map(|run| (run.run.to_string(), run))
            .collect();
        let runs: Vec<([(&str, &str); 2], &Figures)> = runs
            .iter()
            .map(|(number, run)| {
                let labels = [("point", run.point.as_str()), ("run", number.as_str())];
                (labels, &run.figures)
            })
            .collect();
        let (labels, _) = runs.last().expect("there is a current one");
        self.write_experiment(page, labels);
        write_counts(page, &runs);
        write_latencies(page, &runs);
        self.write_devices(page);
    }

    fn write_devices(&self, page: &mut MetricsPage) {
        for metric in DEVICE.metrics {
            let mut values = self
                .devices
                .iter()
                .filter(|([.., name], _)| name == metric.name)
                .peekable();
            if values.peek().is_none() {
                continue;
            }
            let name = format!("brunt_device_{}", metric.name);
            page.metric(&name, MetricKind::Gauge, metric.help);
            for ([host, part, _], value) in values {
                page.sample(&name, &[("host", host), ("part", part)], *value);
            }
        }
    }

    fn write_experiment(&self, page: &mut MetricsPage, labels: Labels<'_>) {
        let mut gauge = |name: &str, help: &str, labels: Labels<'_>, value: f64| {
            page.metric(name, MetricKind::Gauge, help);
            page.sample(name, labels, value);
        };
        let experiment = [&[("experiment", self.experiment.as_str())], labels].concat();
        gauge(
            "brunt_run_info",
            "The current run, or the last one.",
            &experiment,
            1.0,
        );
        gauge(
            "brunt_runs_planned",
            "Runs of the experiment.",
            &[],
            f64::from(self.planned),
        );
        let ready = self
            .ready
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        gauge(
            "brunt_run_ready_time_seconds",
            "When setup of the run began, in seconds since 1970.",
            labels,
            ready.as_secs_f64(),
        );
        gauge(
            "brunt_run_under_way",
            "1 while workers send requests.",
            labels,
            f64::from(u8::from(self.under_way)),
        );
        gauge(
            "brunt_run_measured_seconds",
            "Time measured so far.",
            labels,
            self.current.measured.as_secs_f64(),
        );
        gauge(
            "brunt_run_steady",
            "1 while the rate of the last five seconds is steady (SNIA: within 20 %, its slope within 10 %).",
            labels,
            f64::from(u8::from(self.steady.is_steady)),
        );
        self.write_faults(page);
        self.write_ended(page);
    }

    fn write_faults(&self, page: &mut MetricsPage) {
        let (name, help) = (
            "brunt_fault_active",
            "1 while the fault is confirmed to be in effect.",
        );
        page.metric(name, MetricKind::Gauge, help);
        for fault in self.faults.values() {
            let labels = [
                ("fault", &*fault.name),
                ("kind", &*fault.kind),
                ("place", &*fault.place),
            ];
            page.sample(name, &labels, u8::from(fault.active));
        }
    }

    fn write_ended(&self, page: &mut MetricsPage) {
        let (name, help) = (
            "brunt_runs_ended_total",
            "Finished runs, by the reason for their end.",
        );
        page.metric(name, MetricKind::Counter, help);
        let kinds = [
            Stopped::Done,
            Stopped::Steady,
            Stopped::NotSteady,
            Stopped::Interrupted,
            Stopped::DeviceGone,
            Stopped::HostLost,
        ];
        for stopped in kinds {
            let count = self.ended.get(&stopped).copied().unwrap_or(0);
            page.sample(name, &[("stopped", stopped_name(stopped))], count);
        }
    }
}

/// Figures of runs, with their labels.
type ShownRuns<'a> = &'a [([(&'a str, &'a str); 2], &'a Figures)];

fn write_counts(page: &mut MetricsPage, runs: ShownRuns<'_>) {
    type Value = fn(&OpFigures) -> u64;
    let by_op: [(&str, &str, Value); 5] = [
        ("brunt_run_requests_total", "Requests completed.", |op| {
            op.completed
        }),
        (
            "brunt_run_bytes_total",
            "Bytes of completed requests.",
            |op| op.bytes,
        ),
        (
            "brunt_run_late_requests_total",
            "Requests that completed after the measurement ended.",
            |op| op.late,
        ),
        (
            "brunt_run_retries_total",
            "Attempts after the first.",
            |op| op.retries,
        ),
        (
            "brunt_run_timeouts_total",
            "Attempts that timed out.",
            |op| op.timeouts,
        ),
    ];
    for (name, help, value) in by_op {
        page.metric(name, MetricKind::Counter, help);
        for (labels, figures) in runs {
            for (kind, op) in figures.ops() {
                let labels = [&labels[..], &[("op", kind.name())]].concat();
                page.sample(name, &labels, value(op));
            }
        }
    }
    write_errors(page, runs);
}

fn write_errors(page: &mut MetricsPage, runs: ShownRuns<'_>) {
    let (name, help) = (
        "brunt_run_errors_total",
        "Failed requests, by kind of failure.",
    );
    page.metric(name, MetricKind::Counter, help);
    let not_errors = [
        RequestStatus::Good,
        RequestStatus::Hanging,
        RequestStatus::Skipped,
    ];
    for (labels, figures) in runs {
        for status in RequestStatus::ALL
            .into_iter()
            .filter(|status| !not_errors.contains(status))
        {
            let labels = [&labels[..], &[("status", status.name())]].concat();
            page.sample(name, &labels, figures.counts.of(status));
        }
    }
    for (name, help, status) in [
        (
            "brunt_run_hanging_requests_total",
            "Requests that never completed.",
            RequestStatus::Hanging,
        ),
        (
            "brunt_run_skipped_requests_total",
            "Requests that were due but not sent.",
            RequestStatus::Skipped,
        ),
    ] {
        page.metric(name, MetricKind::Counter, help);
        for (labels, figures) in runs {
            page.sample(name, labels, figures.counts.of(status));
        }
    }
}

fn write_latencies(page: &mut MetricsPage, runs: ShownRuns<'_>) {
    type Value = fn(&OpFigures) -> &Histogram;
    let kinds: [(&str, &str, Value); 2] = [
        (
            "brunt_run_response_seconds",
            "From the intended time to the completion.",
            |op| &op.response,
        ),
        (
            "brunt_run_service_seconds",
            "From the last submission to the completion.",
            |op| &op.service,
        ),
    ];
    for (name, help, value) in kinds {
        page.metric(name, MetricKind::Histogram, help);
        for (labels, figures) in runs {
            for (kind, op) in figures.ops() {
                let labels = [&labels[..], &[("op", kind.name())]].concat();
                let histogram = value(op);
                let sum = histogram.sum_nanos() as f64 * 1e-9;
                let below = histogram.counts_up_to(bounds());
                page.latencies(name, &labels, below, histogram.count(), sum);
            }
        }
    }
    let name = "brunt_run_response_percentile_seconds";
    page.metric(
        name,
        MetricKind::Gauge,
        "Percentile of the response times of the run so far, at most 0.1 % off.",
    );
    for (labels, figures) in runs {
        for (kind, op) in figures.ops() {
            for (text, percent) in PERCENTILES {
                let Some(nanos) = op.response.percentile(percent) else {
                    continue;
                };
                let own = [("op", kind.name()), ("percentile", text)];
                let labels = [&labels[..], &own].concat();
                page.sample(name, &labels, nanos.0 as f64 * 1e-9);
            }
        }
    }
}

fn stopped_name(stopped: Stopped) -> &'static str {
    match stopped {
        Stopped::Done => "done",
        Stopped::Steady => "steady",
        Stopped::NotSteady => "not-steady",
        Stopped::Interrupted => "interrupted",
        Stopped::DeviceGone => "device-gone",
        Stopped::HostLost => "host-lost",
    }
}
