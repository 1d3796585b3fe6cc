//! `brunt-bench nbd`: the cost of a request through Brunt's NBD client and server, compared with QEMU's client and
//! fio's nbd engine, measured alternately in the same run. All clients use the same server on a Unix socket: nbdkit's
//! null plug-in, which reads zeros and drops writes. Brunt's own server with a null LUN is measured, too. A client
//! that ignores its replies is the baseline for nbdkit.
//!
//! The CPU time of both sides is measured along with the rate. CPU time shows whether a client, its server or the
//! waiting between them limits the rate, and it depends less on other load on the machine.
//!
//! The rule: the time that a program takes to start is not part of its measurement.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use brunt_block::{Backend, open_url_with};
use brunt_core::ResourceUsage;
use brunt_result::statistics::{Ratio, interleaved};
use brunt_store::nbd::url::NbdConfig;
use serde_json::{Value, json};

use super::bare::PayloadDirection;
use super::bare_nbd;
use super::peers::{self, Guarded};
use super::rows::rows_named;
use super::sample::{RunSample, extremes, median, process_cpu, process_cpu_since, ratio_words};
use super::{drive, fio};
use crate::cleanup::Start;
use crate::program;
use crate::scratch::Scratch;
use crate::sockets;
use crate::{BenchError, BenchResult, Console};

/// NBD client compared with QEMU's and fio's on nbdkit, and Brunt's server compared with nbdkit
#[derive(Clone, Debug)]
pub struct NbdBench {
    /// Rounds; each measures every program in turn, in random order
    pub rounds: u32,
    /// Duration of each measurement
    pub time: Duration,
    /// Only rows whose name contains this, such as "4k read"
    pub row: Option<String>,
}

/// A row of the table: the requests to measure with every contestant.
struct NbdRow {
    name: &'static str,
    direction: PayloadDirection,
    size: usize,
    depth: u32,
    /// The ratios that our client's rate has to reach, relative to QEMU's and to fio's.
    of_qemu: Option<f64>,
    of_fio: f64,
}

#[rustfmt::skip]
const NBD_ROWS: &[NbdRow] = &[
    NbdRow { name: "4k read depth 32",   direction: PayloadDirection::Read,  size: 4 << 10,  depth: 32, of_qemu: Some(2.0), of_fio: 1.0 },
    NbdRow { name: "4k write depth 32",  direction: PayloadDirection::Write, size: 4 << 10,  depth: 32, of_qemu: Some(2.0), of_fio: 1.0 },
    NbdRow { name: "64k read depth 32",  direction: PayloadDirection::Read,  size: 64 << 10, depth: 32, of_qemu: Some(2.0), of_fio: 1.0 },
    NbdRow { name: "64k write depth 32", direction: PayloadDirection::Write, size: 64 << 10, depth: 32, of_qemu: Some(2.0), of_fio: 1.0 },
    NbdRow { name: "4k read depth 1",    direction: PayloadDirection::Read,  size: 4 << 10,  depth: 1,  of_qemu: None,      of_fio: 0.9 },
    NbdRow { name: "4k write depth 1",   direction: PayloadDirection::Write, size: 4 << 10,  depth: 1,  of_qemu: None,      of_fio: 0.9 },
    NbdRow { name: "64k read depth 1",   direction: PayloadDirection::Read,  size: 64 << 10, depth: 1,  of_qemu: None,      of_fio: 0.9 },
];

const SIZE: &str = "1G";
/// Requests in QEMU's short first run.
const FIRST_REQUESTS: u64 = 2000;

/// A program to measure.
struct Contestant {
    name: &'static str,
    client: Client,
    url: String,
    /// The PID of the program's server.
    server: u32,
}

enum Client {
    Ours(Arc<dyn Backend>),
    Bare(Box<NbdConfig>),
    Qemu,
    Fio,
}

const OURS: &str = "ours on nbdkit";
const BARE: &str = "bare client on nbdkit";
const QEMU: &str = "qemu-img bench on nbdkit";
const FIO: &str = "fio's nbd engine on nbdkit";

impl NbdBench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// The settings are invalid, nbdkit is missing, or a request fails.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        let rows = rows_named(NBD_ROWS, self.row.as_deref(), |row| row.name)?;
        if !peers::have("nbdkit") {
            return Err(BenchError::failed("cannot run nbdkit")
                .advise("install it: apt-get install nbdkit"));
        }
        let failed = |error: io::Error| BenchError::failed(error);
        let folder = Scratch::new(None, "nbd")?;
        let (theirs, own) = (folder.join("nbdkit"), folder.join("brunt"));
        let nbdkit = start_nbdkit(&theirs).map_err(failed)?;
        let server = OwnNbdServer::start(&own).map_err(failed)?;
        let contestants = contestants((&theirs, nbdkit.id()), (&own, server.0.id()), output)?;
        let mut table = Vec::new();
        for row in rows {
            let mut samples: Vec<Vec<RunSample>> = contestants.iter().map(|_| Vec::new()).collect();
            for (index, _) in interleaved(contestants.len(), self.rounds as usize, 1) {
                if output.is_interrupted() {
                    return Err(BenchError::interrupted(
                        "interrupted: the rows printed so far are complete, and the others were not measured",
                    ));
                }
                let contestant = &contestants[index];
                let sample = contestant.measure(row, self.time).map_err(failed)?;
                samples[index].push(sample);
            }
            table.push(report(row, &contestants, &samples, output));
        }
        output.object(
            &json!({ "rounds": self.rounds, "seconds": self.time.as_secs_f64(), "rows": table }),
        );
        Ok(())
    }
}

/// Our client on both servers, and the installed peers; prints a note for the missing ones.
fn contestants(
    theirs: (&Path, u32),
    own: (&Path, u32),
    output: &dyn Console,
) -> Result<Vec<Contestant>, BenchError> {
    let url = |socket: &Path| format!("nbd+unix:///?socket={}", socket.display());
    let on = |(socket, server): (&Path, u32), name, client| Contestant {
        name,
        client,
        url: url(socket),
        server,
    };
    let ours = |server: (&Path, u32), name, options: &str| -> Result<Contestant, BenchError> {
        let url = format!("{}{options}", url(server.0));
        let backend = open_url_with(&url, brunt_store::BACKENDS, false)?;
        Ok(on(server, name, Client::Ours(backend)))
    };
    let bare = NbdConfig::of_url(&url(theirs.0)).expect("the URL is NBD's")?;
    let mut all = vec![
        ours(theirs, OURS, "")?,
        ours(theirs, "ours, structured, on nbdkit", "&headers=structured")?,
        ours(own, "ours on ours", "")?,
        on(theirs, BARE, Client::Bare(Box::new(bare))),
    ];
    if peers::have("qemu-img") {
        all.push(on(theirs, QEMU, Client::Qemu));
        all.push(on(own, "qemu-img bench on ours", Client::Qemu));
    } else {
        output.note("qemu-img is not installed (Debian package qemu-utils): its rows are missing");
    }
    match fio::has_engine("nbd") {
        true => all.push(on(theirs, FIO, Client::Fio)),
        false => output.note("fio has no nbd engine (Debian package fio): its rows are missing"),
    }
    Ok(all)
}

impl Contestant {
    fn measure(&self, row: &NbdRow, time: Duration) -> io::Result<RunSample> {
        let before = process_cpu(self.server);
        let sample = match &self.client {
            Client::Ours(backend) => {
                drive::measure(backend, row.direction, row.size, row.depth, time)
            }
            Client::Bare(export) => {
                let depth = row.depth as usize;
                bare_nbd::measure(export, row.direction, row.size, depth, time)
            }
            // `measure_qemu` itself measures the server's CPU time, for QEMU's second run only.
            Client::Qemu => return self.named(row, self.measure_qemu(row, time)),
            Client::Fio => self.measure_fio(row, time),
        };
        let sample = self.named(row, sample)?;
        Ok(RunSample {
            target_cpu: process_cpu_since(self.server, before),
            ..sample
        })
    }

    /// An error that names this program and row.
    fn named<T>(&self, row: &NbdRow, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| io::Error::other(format!("{} ({}): {error}", self.name, row.name)))
    }

    fn measure_qemu(&self, row: &NbdRow, time: Duration) -> io::Result<RunSample> {
        let write = row.direction == PayloadDirection::Write;
        let run = |count| {
            let before = ResourceUsage::of_children();
            let rate = peers::qemu_img_bench(&self.url, write, row.size, row.depth, count);
            rate.map(|rate| (rate, ResourceUsage::of_children().since(before).cpu()))
        };
        // A short first run shows how many requests fill the time, and what starting costs.
        let (rate, first) = run(FIRST_REQUESTS)?;
        let count = ((rate * time.as_secs_f64()) as u64).max(2 * FIRST_REQUESTS);
        let before = process_cpu(self.server);
        let (rate, cpu) = run(count)?;
        let more = cpu.saturating_sub(first).as_secs_f64() / (count - FIRST_REQUESTS) as f64;
        let cpu = Duration::from_secs_f64(more * count as f64);
        Ok(RunSample {
            target_cpu: process_cpu_since(self.server, before),
            ..sample(count, rate, Some(cpu))
        })
    }

    fn measure_fio(&self, row: &NbdRow, time: Duration) -> io::Result<RunSample> {
        let direction = match row.direction {
            PayloadDirection::Write => "write",
            PayloadDirection::Read => "read",
        };
        let answer = fio::run(&[
            "--ioengine=nbd".to_string(),
            format!("--uri={}", self.url),
            format!("--rw=rand{direction}"),
            format!("--bs={}", row.size),
            format!("--iodepth={}", row.depth),
            format!("--size={SIZE}"),
            "--norandommap".to_string(),
            "--randrepeat=0".to_string(),
            "--time_based".to_string(),
            format!("--runtime={}ms", time.as_millis()),
        ])
        .map_err(io::Error::other)?;
        let figures = &answer[direction];
        match (figures["total_ios"].as_u64(), figures["iops"].as_f64()) {
            (Some(count), Some(rate)) if count > 0 && answer["error"] == 0 => {
                // fio reports CPU time as a percentage of the job's time.
                let busy = [&answer["usr_cpu"], &answer["sys_cpu"]].map(Value::as_f64);
                let cpu = busy[0].zip(busy[1]).map(|(user, system)| {
                    Duration::from_secs_f64((user + system) / 100.0 * count as f64 / rate)
                });
                Ok(sample(count, rate, cpu))
            }
            _ => Err(io::Error::other(format!(
                "fio completed nothing: error {}",
                answer["error"]
            ))),
        }
    }
}

/// The sample of another program's run, without the server's CPU time.
fn sample(count: u64, rate: f64, client_cpu: Option<Duration>) -> RunSample {
    RunSample {
        requests: count,
        elapsed: Duration::from_secs_f64(count as f64 / rate),
        client_cpu,
        target_cpu: None,
        client_calls: None,
    }
}

/// Starts nbdkit with its null plug-in on a Unix socket.
fn start_nbdkit(socket: &Path) -> io::Result<Guarded> {
    let mut command = peers::command("nbdkit");
    command.args(["-f", "-U"]).arg(socket).args(["null", SIZE]);
    let mut child = command.stdout(Stdio::null()).start()?;
    let ready = sockets::wait_for_path(&mut child, "nbdkit", socket);
    let child = Guarded::of(child);
    ready.map(|()| child).map_err(io::Error::other)
}

/// `brunt target --nbd` in a separate process, with a null LUN.
struct OwnNbdServer(Child);

impl OwnNbdServer {
    fn start(socket: &Path) -> io::Result<OwnNbdServer> {
        let mut child = Command::new(program::brunt().map_err(io::Error::other)?)
            .args(["target", "--portal", "127.0.0.1:0", "--lun", "null:1GiB"])
            .arg("--nbd")
            .arg(format!("unix:{}", socket.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .start()?;
        let ready = sockets::wait_for_path(&mut child, "brunt target", socket);
        let server = OwnNbdServer(child);
        ready.map(|()| server).map_err(io::Error::other)
    }
}

impl Drop for OwnNbdServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prints a row and returns it as an object.
fn report(
    row: &NbdRow,
    contestants: &[Contestant],
    samples: &[Vec<RunSample>],
    output: &dyn Console,
) -> Value {
    output.line(format_args!("{}", row.name));
    let rates: Vec<Vec<f64>> = samples
        .iter()
        .map(|all| all.iter().map(RunSample::rate).collect())
        .collect();
    let mut who = Vec::new();
    for ((contestant, samples), rates) in contestants.iter().zip(samples).zip(&rates) {
        let (least, most) = extremes(rates);
        let client = cpu_us(samples, |sample| sample.client_cpu);
        let server = cpu_us(samples, |sample| sample.target_cpu);
        let shown = |cpu: &[f64]| match cpu {
            [] => "unknown".to_string(),
            cpu => format!("{:.2}", median(cpu)),
        };
        output.line(format_args!(
            "  {:<28} {:>9.0} requests/s ({least:.0} to {most:.0}), CPU us per request: client \
             {}, server {}",
            contestant.name,
            median(rates),
            shown(&client),
            shown(&server),
        ));
        who.push(json!({
            "who": contestant.name, "requests_per_second": rates,
            "client_cpu_us": client, "server_cpu_us": server,
        }));
    }
    let of = |name: &str| {
        contestants
            .iter()
            .position(|contestant| contestant.name == name)
            .map(|index| &rates[index])
    };
    let ours = of(OURS).expect("ours is always measured");
    let mut ratios = Vec::new();
    if let Some(ratio) = of(BARE).and_then(|bare| Ratio::of(bare, ours, 1)) {
        output.line(format_args!(
            "  {OURS} is {} of {BARE}",
            ratio_words(Some(&ratio), 2)
        ));
        ratios.push(json!({ "of": BARE, "ratio": ratio }));
    }
    for (name, goal) in [(QEMU, row.of_qemu), (FIO, Some(row.of_fio))] {
        let (Some(theirs), Some(goal)) = (of(name), goal) else {
            continue;
        };
        let Some(ratio) = Ratio::of(theirs, ours, 1) else {
            continue;
        };
        let reached = if ratio.ratio >= goal {
            "reached"
        } else {
            "missed"
        };
        output.line(format_args!(
            "  {OURS} is {} of {name}; goal {goal:.2} ({reached})",
            ratio_words(Some(&ratio), 2)
        ));
        ratios.push(json!({ "of": name, "ratio": ratio, "goal": goal }));
    }
    json!({ "row": row.name, "who": who, "ratios": ratios })
}

/// CPU time of one side in microseconds per request, for each round in which it is known.
fn cpu_us(samples: &[RunSample], side: impl Fn(&RunSample) -> Option<Duration>) -> Vec<f64> {
    let each = samples.iter().filter_map(|sample| {
        side(sample).map(|cpu| cpu.as_secs_f64() * 1e6 / sample.requests as f64)
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPU time is divided by the requests of its own round; a round without CPU time yields no value.
    #[test]
    fn cpu_time_is_divided_by_the_requests_of_its_round() {
        let sample = |requests, millis: Option<u64>| RunSample {
            requests,
            elapsed: Duration::from_secs(1),
            client_cpu: millis.map(Duration::from_millis),
            ..RunSample::default()
        };
        let samples = [
            sample(1000, Some(2)),
            sample(500, None),
            sample(100, Some(1)),
        ];
        assert_eq!(cpu_us(&samples, |sample| sample.client_cpu), [2.0, 10.0]);
        assert!(cpu_us(&samples, |sample| sample.target_cpu).is_empty());
    }
}
