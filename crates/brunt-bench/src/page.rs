//! What do viewers of the live page cost a run? Compares, alternately, the same run without a page, with a page
//! without viewers, and with several viewers: its rate, and the CPU time of its whole process per request. Both vary
//! by more than the cost of viewers, so the CPU time of the page's own threads is measured as well, from the kernel's
//! scheduler statistics.
//!
//! Unlike most real viewers, these run on this machine: the CPU time that they use affects the rate, but is not part
//! of the reported CPU time. A run whose page lost frames is marked.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::ProcessStat;
use brunt_result::statistics::{Ratio, interleaved};
use serde_json::{Value, json};

use super::sample::{median, process_cpu, ratio_words};
use crate::cleanup::Start;
use crate::program;
use crate::scratch::Scratch;
use crate::sockets;
use crate::{BenchError, BenchResult, Console};

/// A viewer that receives nothing for this long fails; the page sends something every ten seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between checks whether a process has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Interval between readings of the CPU times of the page's threads. Work after the last reading is not counted.
const READING: Duration = Duration::from_millis(10);
/// Prefix of the names of the page's threads (brunt-web).
const PAGE_THREADS: &str = "live ";
/// Prefix of the frame that reports how many frames the viewer lost.
const LOST: &[u8] = b"{\"frame\":\"lost\"";
/// The names of the sides.
const SIDES: [&str; 3] = ["no page", "idle page", "page with viewers"];

/// What the live page's viewers cost a run: its rate, and its CPU time per request
#[derive(Clone, Debug)]
pub struct PageBench {
    /// Number of simultaneous viewers
    pub viewers: u32,
    /// Length of each run in seconds
    pub seconds: u32,
    /// Runs per side; with fewer than 4, the ratio's confidence interval is wide
    pub rounds: u32,
}

/// The figures of one run.
#[derive(Clone, Copy, Debug)]
struct PageSample {
    /// Requests per second.
    rate: f64,
    /// CPU time of the process per request, in nanoseconds.
    cpu_ns: f64,
    /// The page threads' share of the process's CPU time.
    page_share: f64,
    /// Frames that viewers missed.
    lost: u64,
}

impl PageBench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// The settings are invalid, or a run failed.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        if self.seconds == 0 || self.rounds == 0 {
            return Err(BenchError::usage(
                "--seconds and --rounds must be at least 1",
            ));
        }
        let scratch = Scratch::new(None, "page")?;
        let experiment = scratch.join("page.toml");
        let text = format!(
            "name = \"page\"\nrepetitions = 1\n[targets.null]\nurl = \"null:1GiB\"\n[workloads.reads]\n\
             interval = \"250ms\"\nstop = {{ time = \"{}s\" }}\n",
            self.seconds
        );
        fs::write(&experiment, text).map_err(BenchError::failed)?;
        let mut sides: [Vec<PageSample>; 3] = Default::default();
        for (number, (side, _)) in interleaved(SIDES.len(), self.rounds as usize, 1)
            .into_iter()
            .enumerate()
        {
            if output.is_interrupted() {
                return Err(BenchError::interrupted("interrupted"));
            }
            let folder = scratch.join(&format!("{number}.results"));
            sides[side].push(self.once(&experiment, &folder, side)?);
        }
        self.report(&sides, output);
        Ok(())
    }

    /// Prints the results of all sides, and their ratios.
    fn report(&self, sides: &[Vec<PageSample>; 3], output: &dyn Console) {
        let viewers = self.viewers;
        output.line(format_args!(
            "{} s of reads on a null device, {viewers} viewers, {} runs per side (medians)",
            self.seconds, self.rounds
        ));
        output.line(
            "                       requests/s   CPU ns/request     page's share       max   frames lost",
        );
        let mut answers = serde_json::Map::new();
        for (name, runs) in SIDES.iter().zip(sides) {
            let of = |get: fn(&PageSample) -> f64| runs.iter().map(get).collect::<Vec<f64>>();
            let (rates, cpu, shares) = (
                of(|run| run.rate),
                of(|run| run.cpu_ns),
                of(|run| run.page_share),
            );
            let most = shares.iter().copied().fold(0.0, f64::max);
            let lost: u64 = runs.iter().map(|run| run.lost).sum();
            output.line(format_args!(
                "{name:<20} {:>12.0} {:>16.0} {:>15.2}% {:>8.2}% {lost:>13}",
                median(&rates),
                median(&cpu),
                100.0 * median(&shares),
                100.0 * most
            ));
            let answer = json!({ "rates": rates, "cpu_ns": cpu, "page_shares": shares, "frames_lost": lost });
            answers.insert((*name).into(), answer);
        }
        let ratios = [("page", 0, 1), ("viewers", 1, 2)];
        for (what, before, with) in ratios {
            let ratio = |get: fn(&PageSample) -> f64| {
                let of = |side: usize| sides[side].iter().map(get).collect::<Vec<f64>>();
                Ratio::of(&of(before), &of(with), 1)
            };
            let (rate, cpu) = (ratio(|run| run.rate), ratio(|run| run.cpu_ns));
            output.line(format_args!(
                "{what}: rate x {}, CPU x {}",
                shown(rate),
                shown(cpu)
            ));
            answers.insert(
                format!("ratio of {what}"),
                json!({ "rate": rate, "cpu": cpu }),
            );
        }
        output.object(&Value::Object(answers));
    }

    /// Runs one side once.
    fn once(
        &self,
        experiment: &Path,
        folder: &Path,
        side: usize,
    ) -> Result<PageSample, BenchError> {
        let mut command = Command::new(program::brunt()?);
        command
            .args(["--json", "run"])
            .arg(experiment)
            .arg("--out")
            .arg(folder);
        if side > 0 {
            command.args(["--serve", "127.0.0.1:0"]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut run = PageRun(command.start().map_err(BenchError::failed)?);
        let threads = PageThreads::of(run.0.id());
        let rest = sockets::drained(run.0.stderr.take().expect("piped"));
        let mut viewers = Vec::new();
        if side > 0 {
            let address = match sockets::wait_for(&mut run.0, "a run", sockets::listens_on) {
                Ok(address) => address,
                Err(error) => {
                    drop(run);
                    return Err(sockets::with_printed(&error, rest));
                }
            };
            let count = if side == 2 { self.viewers } else { 0 };
            viewers.extend((0..count).map(|_| look(address)));
        }
        let mut answer = String::new();
        run.0
            .stdout
            .take()
            .expect("piped")
            .read_to_string(&mut answer)
            .map_err(BenchError::failed)?;
        let cpu = run.ended();
        let cpu = cpu.ok_or_else(|| BenchError::failed("the CPU time of a run is unknown"))?;
        let page = threads.total()?;
        let messages = rest.join().unwrap_or_default();
        let mut lost = 0;
        for viewer in viewers {
            lost += viewer
                .join()
                .map_err(|_| BenchError::failed("a viewer panicked"))??;
        }
        let failed = || BenchError::failed(format!("a run failed: {}", messages.trim()));
        let (rate, completed) = rate_and_count(&answer).ok_or_else(failed)?;
        let cpu_ns = cpu.as_nanos() as f64 / completed.max(1) as f64;
        let page_share = page.as_secs_f64() / cpu.as_secs_f64().max(f64::MIN_POSITIVE);
        Ok(PageSample {
            rate,
            cpu_ns,
            page_share,
            lost,
        })
    }
}

/// The request rate and the number of completed requests in a run's JSON object.
fn rate_and_count(answer: &str) -> Option<(f64, u64)> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    let run = &answer["points"][0]["runs"][0];
    let rate = run["requests_per_second"]
        .as_f64()
        .filter(|rate| *rate > 0.0)?;
    let completed = run["ops"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|op| op["completed"].as_u64())
        .sum();
    Some((rate, completed))
}

fn shown(ratio: Option<Ratio>) -> String {
    ratio_words(ratio.as_ref(), 4)
}

/// Starts a viewer that reads all frames; returns how many it lost.
fn look(address: SocketAddrV4) -> JoinHandle<Result<u64, BenchError>> {
    std::thread::spawn(move || {
        let broken = |error| BenchError::failed(format!("a viewer: {error}"));
        let mut socket = TcpStream::connect(address).map_err(broken)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
        write!(socket, "GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n").map_err(broken)?;
        let (mut lost, mut over) = (0, false);
        for line in BufReader::new(socket).split(b'\n') {
            let line = line.map_err(broken)?;
            // Only the parts to be counted are parsed: a browser's work is not part of the measurement.
            over |= line.starts_with(b"data: {\"frame\":\"ends\"");
            if let Some(text) = line
                .strip_prefix(b"data: ")
                .filter(|text| text.starts_with(LOST))
            {
                let frame: Value = serde_json::from_slice(text).map_err(BenchError::failed)?;
                lost += frame["frames"].as_u64().unwrap_or(0);
            }
        }
        if over {
            Ok(lost)
        } else {
            Err(BenchError::failed(
                "a viewer was disconnected before the end",
            ))
        }
    })
}

/// Reads the CPU time of a process's page threads while it runs, so that threads that end are included.
struct PageThreads {
    stop: Sender<()>,
    reader: JoinHandle<HashMap<String, Duration>>,
}

impl PageThreads {
    fn of(pid: u32) -> PageThreads {
        let (stop, stopped) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut times = HashMap::new();
            while stopped.recv_timeout(READING) == Err(RecvTimeoutError::Timeout) {
                read_times(pid, &mut times);
            }
            times
        });
        PageThreads { stop, reader }
    }

    fn total(self) -> Result<Duration, BenchError> {
        drop(self.stop);
        let times = self
            .reader
            .join()
            .map_err(|_| BenchError::failed("the thread that reads CPU times panicked"))?;
        Ok(times.values().sum())
    }
}

/// CPU times by thread ID, from `/proc/PID/task/TID/schedstat`, whose first field is nanoseconds on a CPU.
fn read_times(pid: u32, times: &mut HashMap<String, Duration>) {
    for task in fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let of = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let spent = of("schedstat")
            .split_whitespace()
            .next()
            .and_then(|field| field.parse().ok());
        if let Some(spent) = spent.filter(|_| of("comm").starts_with(PAGE_THREADS)) {
            times.insert(
                task.file_name().to_string_lossy().into_owned(),
                Duration::from_nanos(spent),
            );
        }
    }
}

/// A running experiment; killed if dropped before its end.
struct PageRun(Child);

impl PageRun {
    /// Waits until it ends; returns the CPU time that it used, if known.
    fn ended(&mut self) -> Option<Duration> {
        // A process that has ended but not been reaped still has its times (proc(5), state Z).
        while ProcessStat::read(self.0.id()).is_some_and(|stat| !stat.is_dead()) {
            std::thread::sleep(POLL_INTERVAL);
        }
        let cpu = process_cpu(self.0.id());
        let _ = self.0.wait();
        cpu
    }
}

impl Drop for PageRun {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
