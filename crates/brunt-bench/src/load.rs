//! What does a request cost the load engine, and what does it cost fio? Same job, same file, interleaved in random
//! order within one run; ratios with their confidence intervals.
//!
//! Both sides are measured by rusage, since fio's own CPU figure omits the kernel's workers; the cost of starting and
//! ending fio is measured with a run of one millisecond and subtracted. Both sides record all latencies, ours in
//! interval histograms.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use brunt_block::open_url;
use brunt_core::Span;
use brunt_core::cost::ResourceUsage;
use brunt_load::block::workload::{StopCondition, Workload};
use brunt_load::{NoRecorder, Session};
use brunt_result::statistics::{Ratio, interleaved};
use serde_json::{Value, json};

use super::sample::{median, ratio_words};
use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console, fio};

const FILE_BYTES: u64 = 1 << 30;

/// Load engine against fio: rate, and CPU, system calls and context switches per request
#[derive(Clone, Debug)]
pub struct LoadBench {
    /// Duration of each run in seconds
    pub seconds: f64,
    /// Runs per program; with fewer than 4 the ratio's confidence interval is wide
    pub rounds: u32,
    /// Folders for a 1 GiB test file, created and removed
    pub dir: Vec<PathBuf>,
    /// Run only jobs whose name contains this
    pub only: Option<String>,
}

/// The same work, as configured for both programs.
struct Job {
    name: String,
    url: String,
    depth: u32,
    reap_batch: u32,
    file: Option<PathBuf>,
    fio: Vec<String>,
}

/// The figures of one side's run.
#[derive(Clone, Copy)]
struct Figures {
    per_second: f64,
    cpu_nanos: f64,
    system_calls: Option<f64>,
    switches: f64,
    mean_nanos: f64,
    p99_nanos: f64,
}

impl LoadBench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// The settings are wrong, a prerequisite is missing, or the figures miss a requirement.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        if !(0.01..=3600.0).contains(&self.seconds) {
            return Err(BenchError::usage("--seconds takes 0.01 to 3600"));
        }
        let version = fio::version()?;
        let folders: Result<Vec<Scratch>, BenchError> = self
            .dir
            .iter()
            .map(|dir| Scratch::new(Some(dir), "load"))
            .collect();
        let folders = folders?;
        let jobs = self.jobs(&folders);
        let wanted = |job: &Job| {
            self.only
                .as_ref()
                .is_none_or(|only| job.name.contains(only.as_str()))
        };
        let mut answers = Vec::new();
        for job in jobs.iter().filter(|job| wanted(job)) {
            // Otherwise, fio would create its own file.
            if let Some(path) = &job.file
                && !path.exists()
            {
                write_file(path, FILE_BYTES)?;
            }
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            let base = self
                .fio(job, Duration::from_millis(1), 0.0)
                .map(|(_, cpu)| cpu)
                .unwrap_or(0.0);
            for (side, _) in interleaved(2, self.rounds as usize, 1) {
                if output.is_interrupted() {
                    return Err(BenchError::interrupted("interrupted"));
                }
                match side {
                    0 => ours.push(self.ours(job)?),
                    _ => theirs.push(
                        self.fio(job, Duration::from_secs_f64(self.seconds), base)?
                            .0,
                    ),
                }
            }
            answers.push(print(output, job, &version, &ours, &theirs));
        }
        output.object(&json!({ "fio": version, "rounds": self.rounds, "jobs": answers }));
        Ok(())
    }
}

impl LoadBench {
    fn jobs(&self, folders: &[Scratch]) -> Vec<Job> {
        let words = |line: &str| line.split(' ').map(str::to_string).collect::<Vec<_>>();
        let mut jobs = vec![Job {
            name: "null device, depth 32".into(),
            // fio's null engine doesn't touch the buffer either.
            url: "null:1GiB?fill=no".into(),
            depth: 32,
            reap_batch: 1,
            file: None,
            fio: words("--ioengine=null --iodepth=32 --size=1g"),
        }];
        for (dir, folder) in self.dir.iter().zip(folders) {
            let path = folder.join("file");
            for (depth, reap_batch) in [(32, 1), (32, 8), (1, 1)] {
                let mut fio = words("--ioengine=io_uring --registerfiles --fixedbufs --direct=1");
                fio.push(format!("--filename={}", path.display()));
                fio.push(format!("--size={FILE_BYTES}"));
                fio.push(format!("--iodepth={depth}"));
                if depth > 1 {
                    fio.extend(words(
                        "--iodepth_batch_submit=32 --iodepth_batch_complete_min=1",
                    ));
                    fio.push("--iodepth_batch_complete_max=32".into());
                }
                let reaping = if reap_batch > 1 {
                    format!(", reaping {reap_batch} at a time")
                } else {
                    String::new()
                };
                let name = format!("{}, depth {depth}{reaping}", dir.display());
                let (url, file) = (format!("file:{}", path.display()), Some(path.clone()));
                jobs.push(Job {
                    name,
                    url,
                    depth,
                    reap_batch,
                    file,
                    fio,
                });
            }
        }
        jobs
    }

    fn ours(&self, job: &Job) -> Result<Figures, BenchError> {
        let workload = Workload {
            queue_depth: job.depth,
            reap_batch: job.reap_batch,
            stop: StopCondition {
                time: Some(Span(Duration::from_secs_f64(self.seconds))),
                ..StopCondition::default()
            },
            ..Workload::default()
        };
        let backend = open_url(&job.url).map_err(BenchError::failed)?;
        let before = ResourceUsage::now();
        let outcome = Session::new(workload, backend, 1)
            .run(&AtomicBool::new(false), &mut NoRecorder)
            .map_err(BenchError::failed)?;
        let cost = ResourceUsage::now().since(before);
        let count = outcome.figures.completed() as f64;
        let response = outcome.figures.response();
        Ok(Figures {
            per_second: outcome.requests_per_second,
            cpu_nanos: cost.cpu().as_nanos() as f64 / count,
            system_calls: Some(outcome.figures.cost.system_calls as f64 / count),
            switches: cost.switches() as f64 / count,
            mean_nanos: response.mean().unwrap_or(f64::NAN),
            p99_nanos: response
                .percentile(99.0)
                .map_or(f64::NAN, |nanos| nanos.0 as f64),
        })
    }

    /// Runs fio; returns its figures, and its CPU time in nanoseconds minus `base`.
    fn fio(&self, job: &Job, time: Duration, base: f64) -> Result<(Figures, f64), BenchError> {
        let before = ResourceUsage::of_children();
        let words =
            ["--rw=randread", "--bs=4k", "--norandommap", "--time_based"].map(str::to_string);
        let mut arguments = [&words[..], &job.fio].concat();
        arguments.push(format!("--runtime={}ms", time.as_millis()));
        let answer = fio::run(&arguments)?;
        let cost = ResourceUsage::of_children().since(before);
        let read = &answer["read"];
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let count = number(&read["total_ios"]);
        let cpu = (cost.cpu().as_nanos() as f64 - base).max(0.0);
        let figures = Figures {
            per_second: number(&read["iops"]),
            cpu_nanos: cpu / count,
            system_calls: None,
            switches: cost.switches() as f64 / count,
            mean_nanos: number(&read["lat_ns"]["mean"]),
            p99_nanos: number(&read["clat_ns"]["percentile"]["99.000000"]),
        };
        Ok((figures, cpu))
    }
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

fn print(
    output: &dyn Console,
    job: &Job,
    version: &str,
    ours: &[Figures],
    theirs: &[Figures],
) -> Value {
    let of =
        |runs: &[Figures], get: fn(&Figures) -> f64| runs.iter().map(get).collect::<Vec<f64>>();
    output.line(format_args!("{}: 4 KiB random read", job.name));
    output.line(
        "             requests/s    CPU ns   calls  switches    mean us     p99 us   (medians of runs)",
    );
    let mut sides = Vec::new();
    for (who, runs) in [("brunt", ours), (version, theirs)] {
        let middle = |get: fn(&Figures) -> f64| median(&of(runs, get));
        let calls = runs[0]
            .system_calls
            .map(|_| middle(|run| run.system_calls.unwrap_or(f64::NAN)));
        output.line(format_args!(
            "  {who:<9} {:>11.0} {:>9.0} {:>7} {:>9.4} {:>10.2} {:>10.2}",
            middle(|run| run.per_second),
            middle(|run| run.cpu_nanos),
            calls.map_or("-".to_string(), |calls| format!("{calls:.3}")),
            middle(|run| run.switches),
            middle(|run| run.mean_nanos) / 1e3,
            middle(|run| run.p99_nanos) / 1e3,
        ));
        sides.push(json!({
            "who": who,
            "requests_per_second": of(runs, |run| run.per_second),
            "cpu_nanos_per_request": of(runs, |run| run.cpu_nanos),
            "system_calls_per_request": calls,
            "context_switches_per_request": of(runs, |run| run.switches),
            "latency_mean_nanos": of(runs, |run| run.mean_nanos),
            "latency_p99_nanos": of(runs, |run| run.p99_nanos),
        }));
    }
    let ratio = |get: fn(&Figures) -> f64| Ratio::of(&of(theirs, get), &of(ours, get), 1);
    let show = |ratio: Option<Ratio>| ratio_words(ratio.as_ref(), 2);
    let (rate, cpu) = (ratio(|run| run.per_second), ratio(|run| run.cpu_nanos));
    let mean = ratio(|run| run.mean_nanos);
    output.line(format_args!(
        "  brunt to fio: rate {}, CPU {}, mean latency {}",
        show(rate),
        show(cpu),
        show(mean)
    ));
    json!({ "job": job.name, "sides": sides, "rate_ratio": rate, "cpu_ratio": cpu, "mean_latency_ratio": mean })
}
