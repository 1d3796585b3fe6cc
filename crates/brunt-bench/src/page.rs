//! What do viewers of the live page cost a run? The same run without a page, with one that nobody looks at, and with one
//! that several look at, in turns: its rate, and the processor time of its whole process for each request. Both vary by more
//! than viewers cost, so the processor time of the page's own threads is counted besides, as the kernel's scheduler has it.
//!
//! The viewers read on this machine, as none would on another: what they take of a core is in the rate, not in the
//! processor time. A run whose page lost frames says so.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_result::statistics::{Ratio, interleaved};
use serde_json::{Value, json};

use super::sample::{median, process_cpu, ratio_words};
use crate::program;
use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console};

/// A viewer that gets nothing for so long is cut off; the page says something every ten seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether a process has ended.
const LOOK: Duration = Duration::from_millis(5);
/// How often the times of the page's threads are read. What a thread does after the last reading is not counted.
const READING: Duration = Duration::from_millis(10);
/// How the names of the page's threads begin (brunt-web).
const PAGE_THREADS: &str = "live ";
/// How a frame begins that says how many the viewer lost.
const LOST: &[u8] = b"{\"frame\":\"lost\"";
/// What the sides are called.
const SIDES: [&str; 3] = ["no page", "page, nobody looks", "page, viewers"];

/// What viewers of the live page cost a run
#[derive(Clone, Debug)]
pub struct PageBench {
    /// Browsers that look at once
    pub viewers: u32,
    /// Length of each run
    pub seconds: u32,
    /// Runs of each side; under 4 the ratio's interval is wide
    pub rounds: u32,
}

/// What one run gave.
#[derive(Clone, Copy, Debug)]
struct PageSample {
    /// Requests a second.
    rate: f64,
    /// Processor time of the process for each request, in nanoseconds.
    cpu_ns: f64,
    /// The share of the page's threads in that.
    page_share: f64,
    /// Frames that viewers did not get.
    lost: u64,
}

impl PageBench {
    /// Measures and prints.
    ///
    /// # Errors
    /// The settings are wrong, or a run failed.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        if self.seconds == 0 || self.rounds == 0 {
            return Err(BenchError::usage("--seconds and --rounds take 1 or more"));
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
        let viewers = self.viewers;
        output.line(format_args!(
            "{} s of reads on a null device, {viewers} viewers, {} runs a side (medians)",
            self.seconds, self.rounds
        ));
        output.line(
            "                       requests/s   CPU ns/request   of it the page   at most   frames lost",
        );
        let mut answers = serde_json::Map::new();
        for (name, runs) in SIDES.iter().zip(&sides) {
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
        Ok(())
    }

    /// One run of a side.
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
        let mut run = PageRun(command.spawn().map_err(BenchError::failed)?);
        let threads = PageThreads::of(run.0.id());
        let mut said = BufReader::new(run.0.stderr.take().expect("piped"));
        let mut viewers = Vec::new();
        if side > 0 {
            let address = address(&mut said)?;
            let count = if side == 2 { self.viewers } else { 0 };
            viewers.extend((0..count).map(|_| look(address.clone())));
        }
        // What else it says has to go somewhere.
        let rest = std::thread::spawn(move || {
            let mut text = String::new();
            said.read_to_string(&mut text)
                .map(|_| text)
                .unwrap_or_default()
        });
        let mut answer = String::new();
        run.0
            .stdout
            .take()
            .expect("piped")
            .read_to_string(&mut answer)
            .map_err(BenchError::failed)?;
        let cpu = run.ended();
        let page = threads.total()?;
        let said = rest.join().unwrap_or_default();
        let mut lost = 0;
        for viewer in viewers {
            lost += viewer
                .join()
                .map_err(|_| BenchError::failed("a viewer panicked"))??;
        }
        let failed = || BenchError::failed(format!("a run failed: {}", said.trim()));
        let answer: Value = serde_json::from_str(&answer).map_err(|_| failed())?;
        let run = &answer["points"][0]["runs"][0];
        let rate = run["requests_per_second"]
            .as_f64()
            .filter(|rate| *rate > 0.0)
            .ok_or_else(failed)?;
        let completed: u64 = run["ops"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|op| op["completed"].as_u64())
            .sum();
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

fn shown(ratio: Option<Ratio>) -> String {
    ratio_words(ratio.as_ref(), 4)
}

/// Where the page is, as the run says first.
fn address(said: &mut impl BufRead) -> Result<String, BenchError> {
    let mut first = String::new();
    said.read_line(&mut first).map_err(BenchError::failed)?;
    let rest = first.split_once("http://").map(|(_, rest)| rest);
    let address = rest
        .and_then(|rest| rest.split('/').next())
        .filter(|address| !address.is_empty());
    address
        .map(str::to_string)
        .ok_or_else(|| BenchError::failed(format!("no live page: {}", first.trim())))
}

/// A viewer: reads all frames; how many it lost.
fn look(address: String) -> JoinHandle<Result<u64, BenchError>> {
    std::thread::spawn(move || {
        let broken = |error| BenchError::failed(format!("a viewer: {error}"));
        let mut socket = TcpStream::connect(&address).map_err(broken)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
        write!(socket, "GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n").map_err(broken)?;
        let (mut lost, mut over) = (0, false);
        for line in BufReader::new(socket).split(b'\n') {
            let line = line.map_err(broken)?;
            // Not parsed, but for what is counted: a browser's work is not to be measured here.
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
            Err(BenchError::failed("a viewer was cut off before the end"))
        }
    })
}

/// The processor time of the page's threads of a process, read while it runs: those that ended are not forgotten.
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
            .map_err(|_| BenchError::failed("a reader of threads' times panicked"))?;
        Ok(times.values().sum())
    }
}

/// Times by a thread's id, from `/proc/PID/task/TID/schedstat`, whose first field is nanoseconds on a processor.
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

/// A run under way; killed when it is dropped before its end.
struct PageRun(Child);

impl PageRun {
    /// Waits for its end; the processor time that it took.
    fn ended(&mut self) -> Duration {
        let stat = format!("/proc/{}/stat", self.0.id());
        // Whoever has ended and was not waited for yet still has its times (proc(5), state Z).
        loop {
            let text = fs::read_to_string(&stat).unwrap_or_default();
            let state = text
                .rsplit_once(')')
                .and_then(|(_, rest)| rest.split_whitespace().next());
            if state.is_none_or(|state| state == "Z") {
                break;
            }
            std::thread::sleep(LOOK);
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
