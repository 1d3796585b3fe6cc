//! fio and `t/io_uring` as peers of the load engine, in each configuration that is sensible for a job.
//!
//! The rule: a peer records no more than Brunt, and gets every option that makes it faster without changing the requests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use brunt_core::cost::ResourceUsage;
use serde_json::Value;

use super::{FILE_BYTES, Job, LoadFigures};
use crate::{BenchError, fio};

/// The programs that were found.
pub struct LoadPeers {
    fio: PathBuf,
    /// The output of `fio --version`.
    pub version: String,
    t_io_uring: Option<PathBuf>,
}

/// One program in one configuration, for one job.
pub struct LoadPeer {
    /// The name of the program and configuration.
    pub name: String,
    program: PeerProgram,
    arguments: Vec<String>,
}

enum PeerProgram {
    Fio(PathBuf),
    TIoUring(PathBuf),
}

impl LoadPeers {
    /// Checks which programs are installed.
    ///
    /// # Errors
    /// fio is missing, or `t/io_uring` was named and is missing.
    pub fn find(fio: &Path, t_io_uring: Option<&Path>) -> Result<LoadPeers, BenchError> {
        if let Some(path) = t_io_uring.filter(|path| !path.is_file()) {
            return Err(BenchError::usage(format!(
                "--t-io-uring: {} does not exist",
                path.display()
            )));
        }
        Ok(LoadPeers {
            version: fio::version_of(fio)?,
            fio: fio.to_path_buf(),
            t_io_uring: t_io_uring.map(Path::to_path_buf),
        })
    }

    /// The configurations for a job.
    pub fn of(&self, job: &Job) -> Vec<LoadPeer> {
        let mut peers = Vec::new();
        let mut fio = |name: &str, options: &str| {
            peers.push(LoadPeer {
                name: format!("{} {name}", self.version),
                program: PeerProgram::Fio(self.fio.clone()),
                arguments: fio_arguments(job, options),
            });
        };
        let fixed = "--ioengine=io_uring --registerfiles --fixedbufs";
        let batches = "--iodepth_batch_submit=32 --iodepth_batch_complete_min=1 \
                       --iodepth_batch_complete_max=32";
        match (&job.path, job.depth) {
            (None, _) => fio("null", "--ioengine=null"),
            (Some(_), 1) => {
                fio("psync", "--ioengine=psync");
                fio("io_uring", fixed);
            }
            (Some(_), _) => {
                fio("io_uring", fixed);
                fio("io_uring batched", &format!("{fixed} {batches}"));
                fio("libaio batched", &format!("--ioengine=libaio {batches}"));
            }
        }
        // t/io_uring only reads, and has no option that makes reads through the page cache faster.
        if let (Some(program), Some(path), false) = (&self.t_io_uring, &job.path, job.is_write) {
            peers.push(LoadPeer {
                name: "t/io_uring".into(),
                program: PeerProgram::TIoUring(program.clone()),
                arguments: t_io_uring_arguments(job, path),
            });
        }
        peers
    }
}

fn words(line: &str) -> impl Iterator<Item = String> {
    line.split_whitespace().map(str::to_string)
}

fn fio_arguments(job: &Job, options: &str) -> Vec<String> {
    let kind = if job.is_write {
        "randwrite"
    } else {
        "randread"
    };
    let mut all: Vec<String> =
        words("--bs=4k --norandommap --time_based --allow_file_create=0").collect();
    // Latencies start before the submission, like Brunt's response times.
    all.extend(words("--lat_percentiles=1 --clat_percentiles=0"));
    all.push(format!("--rw={kind}"));
    all.push(format!("--iodepth={}", job.depth));
    all.push(format!("--direct={}", u8::from(job.is_direct)));
    all.push(format!("--size={FILE_BYTES}"));
    if let Some(path) = &job.path {
        all.push(format!("--filename={}", path.display()));
    }
    all.extend(words(options));
    all
}

fn t_io_uring_arguments(job: &Job, path: &Path) -> Vec<String> {
    let depth = job.depth;
    let direct = u8::from(job.is_direct);
    // Fixed buffers and registered files, but no polling, because the device has no queues for it.
    let mut all: Vec<String> = words(&format!(
        "-d{depth} -s{depth} -c{depth} -b4096 -p0 -B1 -F1 -n1 -R1 -O{direct} -X1"
    ))
    .collect();
    all.push(path.display().to_string());
    all
}

impl LoadPeer {
    /// CPU time in nanoseconds for starting and ending the program: the minimum of three runs of 1 ms.
    ///
    /// # Errors
    /// The program can't run this job.
    pub fn cpu_to_start(&self) -> Result<f64, BenchError> {
        match self.program {
            PeerProgram::Fio(_) => (0..3).try_fold(f64::INFINITY, |least, _| {
                let (_, cpu) = self.measured(Duration::from_millis(1))?;
                Ok(cpu.min(least))
            }),
            // t/io_uring can't run for less than a second, but it starts at once, so there is nothing to subtract.
            PeerProgram::TIoUring(_) => self.measured(Duration::from_secs(1)).map(|_| 0.0),
        }
    }

    /// Runs the job for this time; `to_start` is subtracted from its CPU time.
    ///
    /// # Errors
    /// The program fails, or its output can't be parsed.
    pub fn run(&self, time: Duration, to_start: f64) -> Result<LoadFigures, BenchError> {
        let (figures, cpu) = self.measured(time)?;
        let count = cpu / figures.cpu_nanos;
        Ok(LoadFigures {
            cpu_nanos: (cpu - to_start).max(0.0) / count,
            ..figures
        })
    }

    /// Runs the job; returns its figures and its CPU time in nanoseconds.
    fn measured(&self, time: Duration) -> Result<(LoadFigures, f64), BenchError> {
        let before = ResourceUsage::of_children();
        let (count, figures) = match &self.program {
            PeerProgram::Fio(program) => self.fio(program, time)?,
            PeerProgram::TIoUring(program) => self.t_io_uring(program, time)?,
        };
        let cost = ResourceUsage::of_children().since(before);
        let cpu = cost.cpu().as_nanos() as f64;
        let figures = LoadFigures {
            cpu_nanos: cpu / count,
            switches: cost.switches() as f64 / count,
            ..figures
        };
        Ok((figures, cpu))
    }

    fn fio(&self, program: &Path, time: Duration) -> Result<(f64, LoadFigures), BenchError> {
        let mut arguments = self.arguments.clone();
        arguments.push(format!("--runtime={}ms", time.as_millis()));
        let answer = fio::run_program(program, &arguments, &[])?;
        let kind = ["read", "write"]
            .into_iter()
            .find(|kind| answer[kind]["total_ios"].as_f64().unwrap_or(0.0) > 0.0);
        let kind =
            kind.ok_or_else(|| BenchError::failed(format!("{}: it made no requests", self.name)))?;
        let side = &answer[kind];
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let percentile = |rank: &str| side["lat_ns"]["percentile"][rank].as_f64();
        let figures = LoadFigures {
            per_second: number(&side["iops"]),
            p50_nanos: percentile("50.000000"),
            p99_nanos: percentile("99.000000"),
            ..LoadFigures::default()
        };
        Ok((number(&side["total_ios"]), figures))
    }

    /// t/io_uring prints the rate of each second but the last; the first second includes its start.
    fn t_io_uring(&self, program: &Path, time: Duration) -> Result<(f64, LoadFigures), BenchError> {
        let seconds = time.as_secs_f64().ceil().max(1.0) as u64 + 2;
        let output = Command::new(program)
            .arg(format!("-r{seconds}"))
            .args(&self.arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| BenchError::failed(format!("{}: {error}", program.display())))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let rates = rates_of_t_io_uring(&text);
        let Some((_, later)) = rates.split_first().filter(|(_, later)| !later.is_empty()) else {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(BenchError::failed(format!(
                "t/io_uring printed no rates: {}{}",
                text.trim(),
                said.trim()
            )));
        };
        let per_second = later.iter().sum::<f64>() / later.len() as f64;
        let figures = LoadFigures {
            per_second,
            ..LoadFigures::default()
        };
        Ok((rates.iter().sum(), figures))
    }
}

/// The rates in lines such as `IOPS=1.23M, BW=4.8GiB/s, IOS/call=32/31`.
fn rates_of_t_io_uring(text: &str) -> Vec<f64> {
    text.lines()
        .filter_map(|line| line.strip_prefix("IOPS=")?.split(',').next())
        .filter_map(|word| {
            let (number, factor) = match word.chars().last()? {
                'K' => (&word[..word.len() - 1], 1e3),
                'M' => (&word[..word.len() - 1], 1e6),
                _ => (word, 1.0),
            };
            Some(number.parse::<f64>().ok()? * factor)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::rates_of_t_io_uring;

    #[test]
    fn rates_of_t_io_uring_are_read_in_each_unit() {
        let text = "submitter=0, tid=1\nIOPS=900, BW=3MiB/s, IOS/call=1/1\nIOPS=12.5K, BW=48MiB/s\n\
                    IOPS=1.50M, BW=5.9GiB/s, IOS/call=32/32\nMaximum IOPS=1.50M\n";
        assert_eq!(rates_of_t_io_uring(text), [900.0, 12_500.0, 1_500_000.0]);
    }
}
