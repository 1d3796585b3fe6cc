//! What does a request cost the load engine, compared with fio and `t/io_uring`? All programs run the same job on the
//! same file or device, alternately; every peer runs in each of its sensible configurations, and ratios are relative
//! to the fastest.
//!
//! CPU time is measured by rusage on both sides, since fio's own figure omits the kernel's workers; the cost of starting
//! and ending a peer is measured with a run of one millisecond and subtracted. Brunt and fio record all latencies;
//! `t/io_uring` records none.

mod peers;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use brunt_block::open_url;
use brunt_core::Span;
use brunt_core::cost::ResourceUsage;
use brunt_load::NoRecorder;
use brunt_load::block::workload::{StopCondition, Workload};
use brunt_load::block::{BlockLoad, Session};
use brunt_load::decisions;
use brunt_load::load::LoadTarget;
use brunt_result::choice::{EngineSetting, RingMode};
use brunt_result::statistics::interleaved;
use serde_json::{Value, json};

use self::peers::{LoadPeer, LoadPeers};
use super::sample::{extremes, median_of, ratio_of_rounds};
use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console};

const FILE_BYTES: u64 = 1 << 30;

/// Load engine compared with fio and t/io_uring: rate, and CPU time, system calls and context switches per request
#[derive(Clone, Debug)]
pub struct LoadBench {
    /// Duration of each run in seconds
    pub seconds: f64,
    /// Rounds, in each of which every program runs once
    pub rounds: u32,
    /// Folders for a 1 GiB test file, created and removed
    pub dir: Vec<PathBuf>,
    /// Block devices to read
    pub device: Vec<PathBuf>,
    /// Run only jobs whose name contains this
    pub only: Option<String>,
    /// Path or name of fio
    pub fio: PathBuf,
    /// Path of `t/io_uring`, which fio's sources contain
    pub t_io_uring: Option<PathBuf>,
}

/// The work that all programs are configured to do.
#[derive(Clone, Debug)]
struct Job {
    name: String,
    /// The file or device; `None` for the null device.
    path: Option<PathBuf>,
    /// Whether `path` is a file that this benchmark created.
    is_file: bool,
    is_write: bool,
    is_direct: bool,
    depth: u32,
}

/// The figures of one run. CPU time, calls and switches are per request.
#[derive(Clone, Copy, Debug, Default)]
struct LoadFigures {
    per_second: f64,
    cpu_nanos: f64,
    switches: f64,
    system_calls: Option<f64>,
    p50_nanos: Option<f64>,
    p99_nanos: Option<f64>,
}

impl LoadBench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// The settings are invalid, a prerequisite is missing, or a run fails.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        if !(0.01..=3600.0).contains(&self.seconds) {
            return Err(BenchError::usage("--seconds must be 0.01 to 3600"));
        }
        let peers = LoadPeers::find(&self.fio, self.t_io_uring.as_deref())?;
        if self.t_io_uring.is_none() {
            output.line("skipped: t/io_uring needs --t-io-uring PATH (fio's sources contain it)");
        }
        let folders = self
            .dir
            .iter()
            .map(|dir| Scratch::new(Some(dir), "load"))
            .collect::<Result<Vec<Scratch>, BenchError>>()?;
        let jobs = self.jobs(&folders);
        let wanted = |job: &&Job| {
            self.only
                .as_ref()
                .is_none_or(|only| job.name.contains(only.as_str()))
        };
        let mut answers = Vec::new();
        for job in jobs.iter().filter(wanted) {
            if let (Some(path), true) = (&job.path, job.is_file)
                && !path.exists()
            {
                write_file(path, FILE_BYTES)?;
            }
            answers.push(self.compare(job, &peers, output)?);
        }
        output.object(&json!({ "fio": peers.version, "rounds": self.rounds, "jobs": answers }));
        Ok(())
    }

    fn jobs(&self, folders: &[Scratch]) -> Vec<Job> {
        let null = Job {
            name: "null device, read, depth 32".into(),
            path: None,
            is_file: false,
            is_write: false,
            is_direct: false,
            depth: 32,
        };
        let mut jobs = vec![null];
        let files = self.dir.iter().zip(folders);
        let files = files.map(|(dir, folder)| (dir, folder.join("file"), true));
        let devices = self.device.iter();
        for (shown, path, is_file) in
            files.chain(devices.map(|device| (device, device.clone(), false)))
        {
            for (words, is_write, is_direct, depth) in [
                ("read, depth 32", false, true, 32),
                ("read, depth 1", false, true, 1),
                ("write, depth 32", true, true, 32),
                ("cached read, depth 1", false, false, 1),
            ] {
                if is_write && !is_file {
                    continue;
                }
                jobs.push(Job {
                    name: format!("{}, {words}", shown.display()),
                    path: Some(path.clone()),
                    is_file,
                    is_write,
                    is_direct,
                    depth,
                });
            }
        }
        jobs
    }

    /// Runs all programs alternately.
    fn compare(
        &self,
        job: &Job,
        peers: &LoadPeers,
        output: &dyn Console,
    ) -> Result<Value, BenchError> {
        let time = Duration::from_secs_f64(self.seconds);
        let (workload, chosen) = self.ours(job)?;
        let mut sides: Vec<(String, Vec<LoadFigures>)> = vec![(chosen, Vec::new())];
        let mut contestants: Vec<(LoadPeer, f64)> = Vec::new();
        for peer in peers.of(job) {
            match peer.cpu_to_start() {
                Ok(cpu) => {
                    sides.push((peer.name.clone(), Vec::new()));
                    contestants.push((peer, cpu));
                }
                Err(error) => output.line(format_args!("skipped: {}: {error}", peer.name)),
            }
        }
        for (side, _) in interleaved(sides.len(), self.rounds as usize, 1) {
            if output.is_interrupted() {
                return Err(BenchError::interrupted("interrupted"));
            }
            let figures = match side.checked_sub(1) {
                None => run_ours(job, &workload)?,
                Some(peer) => contestants[peer].0.run(time, contestants[peer].1)?,
            };
            sides[side].1.push(figures);
        }
        Ok(print(output, job, &sides))
    }

    /// The workload with the engine and ring mode that `engine = "auto"` and `ring = "auto"` choose, and its name.
    fn ours(&self, job: &Job) -> Result<(Workload, String), BenchError> {
        let workload = Workload {
            read: if job.is_write { 0.0 } else { 1.0 },
            queue_depth: job.depth,
            engine: Some(EngineSetting::Auto),
            ring: RingMode::Auto,
            stop: StopCondition {
                time: Some(Span(Duration::from_secs_f64(self.seconds))),
                ..StopCondition::default()
            },
            ..Workload::default()
        };
        let load = BlockLoad::new(workload.clone());
        let on = LoadTarget::of(open_url(&job.url()).map_err(BenchError::failed)?);
        let choices = decisions::settle(&load, &on, 1, &AtomicBool::new(false))
            .map_err(BenchError::failed)?
            .ok_or_else(|| BenchError::interrupted("interrupted"))?;
        let engine = choices.engine.map(|choice| choice.engine);
        let ring = choices
            .ring
            .map_or(RingMode::Interrupt, |choice| choice.mode);
        let named = engine.map_or("brunt".to_string(), |engine| {
            format!("brunt, {}, {}", engine.name(), ring.name())
        });
        let workload = Workload {
            engine: engine.map(EngineSetting::from),
            ring,
            ..workload
        };
        Ok((workload, named))
    }
}

impl Job {
    /// The device as Brunt opens it.
    fn url(&self) -> String {
        match &self.path {
            // fio's null engine doesn't touch the buffer either.
            None => "null:1GiB?fill=no".into(),
            Some(path) => {
                let direct = if self.is_direct { "yes" } else { "no" };
                format!("file:{}?direct={direct}", path.display())
            }
        }
    }
}

fn run_ours(job: &Job, workload: &Workload) -> Result<LoadFigures, BenchError> {
    let backend = open_url(&job.url()).map_err(BenchError::failed)?;
    let before = ResourceUsage::now();
    let outcome = Session::new(workload.clone(), backend, 1)
        .run(&AtomicBool::new(false), &mut NoRecorder)
        .map_err(BenchError::failed)?;
    let cost = ResourceUsage::now().since(before);
    let count = outcome.figures.completed() as f64;
    let response = outcome.figures.response();
    let percentile = |percent| response.percentile(percent).map(|nanos| nanos.0 as f64);
    Ok(LoadFigures {
        per_second: outcome.requests_per_second,
        cpu_nanos: cost.cpu().as_nanos() as f64 / count,
        switches: cost.switches() as f64 / count,
        system_calls: Some(outcome.figures.cost.system_calls as f64 / count),
        p50_nanos: percentile(50.0),
        p99_nanos: percentile(99.0),
    })
}

/// Writes a file of real data, because reads of holes would not reach the medium. `bytes` is a multiple of 1 MiB.
pub fn write_file(path: &Path, bytes: u64) -> BenchResult {
    let failed = |error: std::io::Error| BenchError::failed(format!("{}: {error}", path.display()));
    let mut file = std::fs::File::create_new(path).map_err(failed)?;
    let mut block = vec![0; 1 << 20];
    brunt_core::random::Random::new(1).fill(&mut block);
    for _ in 0..bytes / block.len() as u64 {
        std::io::Write::write_all(&mut file, &block).map_err(failed)?;
    }
    file.sync_all().map_err(failed)
}

/// Picks a figure from a run; `None` if the run doesn't have it.
type GetFigure = fn(&LoadFigures) -> Option<f64>;

/// One figure from each run of one side; empty if a run doesn't have it.
fn values(runs: &[LoadFigures], get: GetFigure) -> Vec<f64> {
    runs.iter()
        .map(get)
        .collect::<Option<Vec<f64>>>()
        .unwrap_or_default()
}

fn rate(runs: &[LoadFigures]) -> f64 {
    median_of(runs, |run| Some(run.per_second)).unwrap_or(0.0)
}

fn print(output: &dyn Console, job: &Job, sides: &[(String, Vec<LoadFigures>)]) -> Value {
    output.line(format_args!("{}, 4 KiB, random", job.name));
    output.line(format_args!(
        "  {:<32} {:>10} {:>19} {:>8} {:>7} {:>8} {:>8} {:>8}",
        "", "requests/s", "min..max", "CPU ns", "calls", "switches", "p50 us", "p99 us"
    ));
    let mut lines = Vec::new();
    for (name, runs) in sides {
        let show = |get: GetFigure, scale: f64, decimals: usize| {
            median_of(runs, get).map_or("-".to_string(), |value| {
                format!("{:.decimals$}", value / scale)
            })
        };
        let rates = values(runs, |run| Some(run.per_second));
        let (low, high) = extremes(&rates);
        output.line(format_args!(
            "  {name:<32} {:>10.0} {:>19} {:>8} {:>7} {:>8} {:>8} {:>8}",
            rate(runs),
            format!("{low:.0}..{high:.0}"),
            show(|run| Some(run.cpu_nanos), 1.0, 0),
            show(|run| run.system_calls, 1.0, 3),
            show(|run| Some(run.switches), 1.0, 4),
            show(|run| run.p50_nanos, 1e3, 2),
            show(|run| run.p99_nanos, 1e3, 2),
        ));
        lines.push(json!({
            "who": name,
            "requests_per_second": rates,
            "cpu_nanos_per_request": values(runs, |run| Some(run.cpu_nanos)),
            "system_calls_per_request": median_of(runs, |run| run.system_calls),
            "context_switches_per_request": values(runs, |run| Some(run.switches)),
            "latency_p50_nanos": values(runs, |run| run.p50_nanos),
            "latency_p99_nanos": values(runs, |run| run.p99_nanos),
        }));
    }
    let ratios = ratios(output, sides);
    output.line("");
    json!({ "job": job.name, "sides": lines, "ratios": ratios })
}

/// Prints Brunt's figures as multiples of the fastest peer's: medians of the rounds' ratios.
fn ratios(output: &dyn Console, sides: &[(String, Vec<LoadFigures>)]) -> Option<Value> {
    let ((_, ours), peers) = sides.split_first()?;
    let (name, theirs) = peers
        .iter()
        .max_by(|a, b| rate(&a.1).total_cmp(&rate(&b.1)))?;
    let ratio = |get: GetFigure| ratio_of_rounds(&values(ours, get), &values(theirs, get));
    let figures: [(&str, GetFigure); 4] = [
        ("rate", |run| Some(run.per_second)),
        ("CPU", |run| Some(run.cpu_nanos)),
        ("p50", |run| run.p50_nanos),
        ("p99", |run| run.p99_nanos),
    ];
    let mut words = Vec::new();
    let mut object = serde_json::Map::new();
    for (figure, get) in figures {
        if let Some((ratio, (low, high))) = ratio(get) {
            words.push(format!("{figure} {ratio:.2} [{low:.2}..{high:.2}]"));
            object.insert(
                figure.to_lowercase(),
                json!({ "ratio": ratio, "low": low, "high": high }),
            );
        }
    }
    output.line(format_args!("  = brunt / {name}: {}", words.join(", ")));
    object.insert("of".into(), json!(name));
    Some(Value::Object(object))
}
