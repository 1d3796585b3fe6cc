//! Results in the format of fio's JSON (`--output-format=json` of fio 3.33 to 3.42), for dashboards and scripts that
//! read it. Called by `brunt run --output-format`. Each point becomes a job. A point with several concurrent jobs
//! becomes one job for each of them, in a common group. The complete runs of a point are combined: bytes, requests
//! and times are added, and histograms are merged.
//!
//! Unmaps appear in fio's `trim` section, and flushes in the `sync` section.
//!
//! fio's figures that Brunt lacks are present but empty (`slat_ns` with `N: 0`, `iodepth_submit`); nothing is made up.
//! `clat_ns` is the service time; `lat_ns` starts when a request was due.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brunt_core::Histogram;
use brunt_load::block::sizes::{BlockSize, BlockSizes};
use brunt_load::block::workload::{Arrival, Workload};
use brunt_result::summary::RunSummary;
use brunt_result::{Figures, Interval, OpFigures, OpKind};
use brunt_study::experiment::{Plan, Point};
use brunt_study::observe::{Event, JobEvent, Observer, RunInfo};
use serde_json::{Map, Value, json};

/// fio's default list of percentiles.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];
/// Upper bounds of fio's coarse buckets, in each unit.
const LATENCIES: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
const DEPTHS: [(u32, &str); 7] = [
    (1, "1"),
    (2, "2"),
    (4, "4"),
    (8, "8"),
    (16, "16"),
    (32, "32"),
    (u32::MAX, ">=64"),
];
const SUBMITTED: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];

/// fio's sections, and the operations that they count. Writes of zeros that transfer no data have no section.
const DIRECTIONS: [(&str, OpKind); 3] = [
    ("read", OpKind::Read),
    ("write", OpKind::Write),
    ("trim", OpKind::Unmap),
];

/// (iops, bytes/s) in each direction within an interval.
type Sample = [(f64, f64); DIRECTIONS.len()];

/// Collects the data for fio's JSON document. Clones share this data: one observes the run while the caller keeps
/// another to write the document.
#[derive(Clone)]
pub struct FioJson(Arc<Mutex<State>>);

struct State {
    /// By point index; a point with several concurrent jobs has no entry of its own, only those of its jobs.
    jobs: BTreeMap<usize, ReportedJob>,
    /// The number of the current run.
    current: u32,
    /// When the current run started, in milliseconds since 1970.
    began_ms: u64,
    /// The intervals so far, by run.
    open: BTreeMap<u32, Vec<Sample>>,
    /// Whether to include every bucket of the histograms (json+).
    bins: bool,
}

struct ReportedJob {
    point: Point,
    group: usize,
    figures: Figures,
    measured_s: f64,
    samples: Vec<Sample>,
    error: bool,
    /// When the job's first run started.
    start_ms: Option<u64>,
}

impl FioJson {
    /// Collects the runs of a plan, with or without the bins of the histograms (fio's `json+`).
    pub fn new(plan: &Plan, bins: bool) -> FioJson {
        let job = |(index, group): (usize, usize)| {
            let point = plan.points[index].clone();
            let job = ReportedJob {
                point,
                group,
                figures: Figures::default(),
                measured_s: 0.0,
                samples: Vec::new(),
                error: false,
                start_ms: None,
            };
            (index, job)
        };
        let groups = plan
            .heads()
            .into_iter()
            .enumerate()
            .flat_map(|(group, head)| {
                let jobs = plan.jobs_of(head);
                let points = if jobs.is_empty() {
                    head..head + 1
                } else {
                    jobs
                };
                points.map(move |point| (point, group))
            });
        let jobs = groups.map(job).collect();
        let (current, open) = (0, BTreeMap::new());
        FioJson(Arc::new(Mutex::new(State {
            jobs,
            current,
            began_ms: 0,
            open,
            bins,
        })))
    }

    /// The document for the runs so far.
    pub fn document(&self, version: &str) -> Value {
        let state = self.state();
        let now = since_1970();
        let jobs: Vec<Value> = state
            .jobs
            .values()
            .map(|job| job.json(state.bins))
            .collect();
        json!({
            "fio version": format!("brunt-{version}"),
            "timestamp": now.as_secs(),
            "timestamp_ms": now.as_millis() as u64,
            "time": calendar(now.as_secs()),
            "global options": {},
            "jobs": jobs,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for FioJson {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let mut state = self.state();
        let state = &mut *state;
        match event {
            Event::RunBegins(info) => {
                state.current = info.order;
                state.began_ms = since_1970().as_millis() as u64;
                state.open.clear();
            }
            Event::Interval(interval) => state.interval(state.current, interval),
            Event::Job(run, JobEvent::Interval(interval)) => state.interval(*run, interval),
            Event::RunEnds(info, run, figures)
            | Event::Job(_, JobEvent::RunEnds(info, run, figures)) => {
                state.ends(info, run, figures);
            }
            _ => {}
        }
        Ok(())
    }
}

impl State {
    fn interval(&mut self, run: u32, interval: &Interval) {
        let seconds = interval.end.since(interval.start).as_secs_f64();
        if seconds > 0.0 {
            let rates = |kind| match interval.figures.op(kind) {
                Some(op) => (op.completed as f64 / seconds, op.bytes as f64 / seconds),
                None => (0.0, 0.0),
            };
            self.open
                .entry(run)
                .or_default()
                .push(DIRECTIONS.map(|(_, kind)| rates(kind)));
        }
    }

    fn ends(&mut self, info: &RunInfo, run: &RunSummary, figures: &Figures) {
        let samples = self.open.remove(&info.order).unwrap_or_default();
        let Some(job) = self.jobs.get_mut(&(info.point as usize)) else {
            return;
        };
        job.error |= run.first_error.is_some();
        job.start_ms.get_or_insert(self.began_ms);
        if run.is_complete() {
            job.figures.merge(figures);
            job.measured_s += run.measured_s;
            job.samples.extend(samples);
        }
    }
}

impl ReportedJob {
    fn json(&self, bins: bool) -> Value {
        let ReportedJob {
            point,
            figures,
            measured_s,
            ..
        } = self;
        let thread_s = (measured_s * f64::from(workload(point).workers_of_all())).max(1e-9);
        let share = |nanos: u64| nanos as f64 / 1e9 / thread_s * 100.0;
        let all = figures.response();
        let mut job = json!({
            "jobname": point.label,
            "groupid": self.group,
            "error": if self.error { 5 } else { 0 }, // EIO, as if a device had failed
            "eta": 0,
            "elapsed": measured_s.ceil() as u64,
            "job options": options(point),
            "sync": self.sync(bins),
            "job_start": self.start_ms.unwrap_or(0),
            "job_runtime": milliseconds(*measured_s),
            "usr_cpu": share(figures.cost.cpu_user_nanos),
            "sys_cpu": share(figures.cost.cpu_system_nanos),
            "ctx": figures.cost.switches(),
            "majf": 0,
            "minf": 0,
            "iodepth_level": depths(point),
            "iodepth_submit": nothing(SUBMITTED),
            "iodepth_complete": nothing(SUBMITTED),
            "latency_depth": workload(point).queue_depth,
        });
        let (target_ns, percentile, window_us) = latency_search(&workload(point));
        job["latency_target"] = target_ns.into();
        job["latency_target_ns"] = target_ns.into();
        job["latency_percentile"] = percentile.into();
        job["latency_window"] = window_us.into();
        job["latency_window_us"] = window_us.into();
        for (direction, (name, _)) in DIRECTIONS.iter().enumerate() {
            job[*name] = self.direction(direction, bins);
        }
        let shares = coarse(&all);
        for (unit, shares) in ["latency_ns", "latency_us", "latency_ms"]
            .into_iter()
            .zip(shares)
        {
            job[unit] = Value::Object(shares);
        }
        job
    }

    /// The section for flushes, with bins only where fio has them.
    fn sync(&self, bins: bool) -> Value {
        match self.figures.op(OpKind::Flush) {
            Some(op) => {
                json!({ "total_ios": op.completed, "lat_ns": latency(&op.response, Some(true), bins) })
            }
            None => {
                json!({ "total_ios": 0, "lat_ns": latency(&Histogram::new(), Some(false), false) })
            }
        }
    }

    /// The section for one of [`DIRECTIONS`].
    fn direction(&self, direction: usize, bins: bool) -> Value {
        let none = OpFigures::default();
        let op = self.figures.op(DIRECTIONS[direction].1).unwrap_or(&none);
        let seconds = if op.completed > 0 {
            self.measured_s
        } else {
            0.0
        };
        let rate = |count: u64| {
            if seconds > 0.0 {
                count as f64 / seconds
            } else {
                0.0
            }
        };
        let samples = |pick: fn(&(f64, f64)) -> f64| -> Vec<f64> {
            let all = self.samples.iter().filter(|_| op.completed > 0);
            all.map(|sample| pick(&sample[direction])).collect()
        };
        let (iops, bw) = (
            spread(&samples(|sample| sample.0)),
            spread(&samples(|sample| sample.1 / 1024.0)),
        );
        json!({
            "io_bytes": op.bytes,
            "io_kbytes": op.bytes / 1024,
            "bw_bytes": rate(op.bytes) as u64,
            "bw": (rate(op.bytes) / 1024.0) as u64,
            "iops": rate(op.completed),
            "runtime": milliseconds(seconds),
            "total_ios": op.completed,
            "short_ios": 0,
            "drop_ios": 0,
            "slat_ns": latency(&Histogram::new(), None, false),
            "clat_ns": latency(&op.service, Some(true), bins),
            "lat_ns": latency(&op.response, Some(false), bins),
            "bw_min": bw.min as u64,
            "bw_max": bw.max as u64,
            // Share of the aggregate bandwidth: all of it, because the figures cover all workers.
            "bw_agg": if bw.count > 0 { 100.0 } else { 0.0 },
            "bw_mean": bw.mean,
            "bw_dev": bw.deviation,
            "bw_samples": bw.count,
            "iops_min": iops.min as u64,
            "iops_max": iops.max as u64,
            "iops_mean": iops.mean,
            "iops_stddev": iops.deviation,
            "iops_samples": iops.count,
        })
    }
}

/// A histogram in fio's format, with percentiles where fio has them and with bins where json+ has them.
fn latency(histogram: &Histogram, percentiles: Option<bool>, bins: bool) -> Value {
    let at = |nanos: Option<brunt_core::Nanos>| nanos.map_or(0, |nanos| nanos.0);
    let mean = histogram.mean().unwrap_or(0.0);
    let count = histogram.count();
    let squares: f64 = histogram
        .buckets()
        .map(|(nanos, count)| (nanos.0 as f64 - mean).powi(2) * count as f64)
        .sum();
    let mut told = json!({
        "min": at(histogram.min()),
        "max": at(histogram.max()),
        "mean": mean,
        "stddev": if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 },
        "N": count,
    });
    if percentiles == Some(true) && count > 0 {
        let each = |percent: &f64| {
            (
                format!("{percent:.6}"),
                json!(at(histogram.percentile(*percent))),
            )
        };
        told["percentile"] = Value::Object(PERCENTILES.iter().map(each).collect());
        if bins {
            let bins = histogram
                .buckets()
                .map(|(nanos, count)| (nanos.0.to_string(), json!(count)));
            told["bins"] = Value::Object(bins.collect());
        }
    }
    told
}

/// Percentage of requests in fio's coarse buckets of nanoseconds, microseconds and milliseconds.
fn coarse(histogram: &Histogram) -> [Map<String, Value>; 3] {
    let mut ends: Vec<(usize, String, u64)> = Vec::new();
    for (unit, nanos) in [1, 1_000, 1_000_000].into_iter().enumerate() {
        ends.extend(
            LATENCIES
                .iter()
                .map(|end| (unit, end.to_string(), end * nanos)),
        );
    }
    ends.push((2, "2000".to_string(), 2_000_000_000));
    ends.push((2, ">=2000".to_string(), u64::MAX));
    let mut counts = vec![0u64; ends.len()];
    for (nanos, count) in histogram.buckets() {
        let index = ends
            .partition_point(|(_, _, end)| *end <= nanos.0)
            .min(ends.len() - 1);
        counts[index] += count;
    }
    let mut shares = [Map::new(), Map::new(), Map::new()];
    for ((unit, name, _), count) in ends.into_iter().zip(counts) {
        shares[unit].insert(
            name,
            json!(count as f64 * 100.0 / histogram.count().max(1) as f64),
        );
    }
    shares
}

/// The distribution of queue depths: a closed loop keeps its depth; an open loop's depth is not recorded.
fn depths(point: &Point) -> Value {
    let Workload {
        queue_depth: depth,
        arrival,
        ..
    } = workload(point);
    let closed = matches!(arrival, Arrival::Closed {});
    // fio counts a depth at the highest of these levels that does not exceed it.
    let level = DEPTHS
        .iter()
        .rposition(|(level, _)| *level <= depth)
        .unwrap_or(0);
    let level = if depth >= 64 { DEPTHS.len() - 1 } else { level };
    let share = |index| if closed && index == level { 100.0 } else { 0.0 };
    Value::Object(
        DEPTHS
            .iter()
            .enumerate()
            .map(|(index, (_, name))| (name.to_string(), json!(share(index))))
            .collect(),
    )
}

fn nothing<const N: usize>(names: [&str; N]) -> Value {
    Value::Object(
        names
            .into_iter()
            .map(|name| (name.to_string(), json!(0.0)))
            .collect(),
    )
}

/// The workload of a point; fio has no equivalent for other kinds of load.
fn workload(point: &Point) -> Workload {
    point.workload().cloned().unwrap_or_default()
}

/// The point's options, in job file notation.
fn options(point: &Point) -> Value {
    let workload = workload(point);
    let sequential = workload.sequential > 0.5;
    let rw = match (workload.read, workload.trim, sequential) {
        (1.0, _, true) => "read",
        (1.0, _, false) => "randread",
        (_, 1.0, true) => "trim",
        (_, 1.0, false) => "randtrim",
        (0.0, 0.0, true) => "write",
        (0.0, 0.0, false) => "randwrite",
        // The closest equivalents to mixes that fio cannot express; the sections contain the exact counts.
        (_, _, true) => "rw",
        (_, _, false) => "randrw",
    };
    json!({
        "name": point.label,
        "filename": point.url,
        "rw": rw,
        "bs": block_sizes(&workload.blocks),
        "iodepth": workload.queue_depth.to_string(),
        "numjobs": workload.workers_of_all().to_string(),
    })
}

/// In fio's notation: `4096` or `4096/25:8192/75`; for other distributions, the range `512-65536`.
fn block_sizes(sizes: &BlockSizes) -> String {
    let list = sizes.list().unwrap_or_default();
    let total: f64 = list.iter().map(|block| block.weight).sum();
    let share = |block: &BlockSize| {
        let percent = block.weight / total * 100.0;
        format!("{}/{percent:.0}", block.size.0)
    };
    match list {
        [one] => one.size.0.to_string(),
        [] => {
            let all = sizes.corners().into_iter().map(|size| size.0);
            let (least, most) = all.fold((u64::MAX, 0), |(least, most), size| {
                (least.min(size), most.max(size))
            });
            format!("{least}-{most}")
        }
        many => many.iter().map(share).collect::<Vec<String>>().join(":"),
    }
}

struct Spread {
    min: f64,
    max: f64,
    mean: f64,
    deviation: f64,
    count: usize,
}

fn spread(values: &[f64]) -> Spread {
    let count = values.len();
    let mean = values.iter().sum::<f64>() / count.max(1) as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Spread {
        min: values.iter().copied().reduce(f64::min).unwrap_or(0.0),
        max: values.iter().copied().reduce(f64::max).unwrap_or(0.0),
        mean,
        deviation: if count > 1 {
            (squares / (count - 1) as f64).sqrt()
        } else {
            0.0
        },
        count,
    }
}

/// The goal of a depth search: latency in nanoseconds, the percentage of requests that must meet it, and the window
/// in microseconds. fio's defaults if there is no goal.
fn latency_search(workload: &Workload) -> (u64, f64, u64) {
    let goal = workload
        .depth_search
        .and_then(|search| Some((search.limit?, search.percentile?, search.time)));
    goal.map_or((0, 100.0, 0), |(limit, percentile, time)| {
        (
            limit.0.as_nanos() as u64,
            percentile,
            time.0.as_micros() as u64,
        )
    })
}

fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1e3).round() as u64
}

/// A UTC time as `Sun Nov 22 01:17:52 2026`; the date is computed with Howard Hinnant's civil_from_days.
fn calendar(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]; // 1 January 1970 was a Thursday
    const MONTHS: [&str; 12] = [
        "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb",
    ];
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = day + 719_468; // days since 1 March of year 0
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era + u64::from(month >= 10);
    format!(
        "{} {} {date:2} {:02}:{:02}:{:02} {year}",
        DAYS[(day % 7) as usize],
        MONTHS[month as usize],
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_core::Nanos;

    /// Checks that dates are in the format of ctime(3).
    #[test]
    fn dates_have_the_format_of_ctime() {
        assert_eq!(calendar(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(calendar(951_782_399), "Mon Feb 28 23:59:59 2000");
        assert_eq!(calendar(951_782_400), "Tue Feb 29 00:00:00 2000");
        assert_eq!(calendar(1_795_310_272), "Sun Nov 22 01:17:52 2026");
    }

    /// Checks that the goal of a depth search is in fio's units.
    #[test]
    fn depth_search_goals_are_in_fios_units() {
        let check = |text: &str, expected| {
            assert_eq!(
                latency_search(&toml::from_str(text).unwrap()),
                expected,
                "{text}"
            );
        };
        check("queue_depth = 4", (0, 100.0, 0));
        check("depth_search = { max = 64, time = \"2s\" }", (0, 100.0, 0));
        let goal =
            "depth_search = { max = 64, time = \"100ms\", percentile = 99, limit = \"5ms\" }";
        check(goal, (5_000_000, 99.0, 100_000));
    }

    /// Checks that every latency is counted in exactly one coarse bucket, and in the right one.
    #[test]
    fn every_latency_is_in_exactly_one_coarse_bucket() {
        let mut histogram = Histogram::new();
        for nanos in [1, 3, 1_500, 3_000_000, 5_000_000_000] {
            histogram.record(Nanos(nanos));
        }
        let [ns, us, ms] = coarse(&histogram);
        assert_eq!(
            (&ns["2"], &ns["4"], &us["2"]),
            (&json!(20.0), &json!(20.0), &json!(20.0))
        );
        assert_eq!(
            (&ms["4"], &ms[">=2000"], &ms["2000"]),
            (&json!(20.0), &json!(20.0), &json!(0.0))
        );
        let told = latency(&histogram, Some(true), true);
        assert_eq!(told["N"], json!(5));
        assert_eq!(told["percentile"].as_object().map(Map::len), Some(17));
        assert_eq!(told["bins"].as_object().map(Map::len), Some(5));
    }
}
