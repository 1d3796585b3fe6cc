//! `brunt-bench iscsi`: the cost of a request through Brunt's target and initiator, compared with tgt, SPDK,
//! libiscsi's client, raw TCP and a bare request/response pair, all measured alternately in the same run. Missing
//! peers are reported; nothing is compared with numbers from another day or machine.

use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use brunt_block::{Backend, OpenError, open_url_with};
use serde_json::{Value, json};

use super::bare::{self, PayloadDirection};
use super::drive;
use super::iscsi_sessions::{self, SessionsRow, SessionsTarget};
use super::peers::{self, Medium, Tgt, TgtTuning};
use super::rows::rows_named;
use super::sample::{
    RunSample, extremes, median, median_of, process_cpu, process_cpu_since, ratio_of_rounds,
};
use super::spdk::{self, Spdk};
use crate::cleanup::Start;
use crate::program;
use crate::{BenchError, BenchResult, Console};

/// iSCSI target and initiator on loopback, compared with tgt, SPDK, iperf3 and a bare TCP pair
#[derive(Clone, Debug)]
pub struct IscsiBench {
    /// Rounds; each measures every program in turn, and medians over rounds are reported
    pub rounds: u32,
    /// Duration of each measurement
    pub time: Duration,
    /// One short round of Brunt's target only: a quick look, not a measurement
    pub quick: bool,
    /// Only rows whose name contains this, such as "4k read"
    pub row: Option<String>,
    /// SPDK's `iscsi_tgt`
    pub spdk: Option<PathBuf>,
}

/// A row of the table: the requests to measure with every contestant.
struct Row {
    name: &'static str,
    direction: PayloadDirection,
    size: usize,
    depth: u32,
    /// The figure to compare with, and the ratios to reach with a null LUN and with a memory LUN.
    goal: Goal,
}

enum Goal {
    /// Multiple of the rate of a tuned tgt with the same medium.
    TimesTgt(f64),
    /// Share of raw TCP's throughput, with a null LUN and, if there is a goal for it, with memory.
    OfRawTcp(f64, Option<f64>),
    /// Maximum latency as a multiple of the bare pair's.
    LatencyOfBare(f64),
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { name: "4k read depth 32",   direction: PayloadDirection::Read,  size: 4 << 10,   depth: 32, goal: Goal::TimesTgt(4.0) },
    Row { name: "4k write depth 32",  direction: PayloadDirection::Write, size: 4 << 10,   depth: 32, goal: Goal::TimesTgt(4.0) },
    Row { name: "4k read depth 1",    direction: PayloadDirection::Read,  size: 4 << 10,   depth: 1,  goal: Goal::LatencyOfBare(1.6) },
    Row { name: "4k write depth 1",   direction: PayloadDirection::Write, size: 4 << 10,   depth: 1,  goal: Goal::LatencyOfBare(1.6) },
    Row { name: "64k read depth 32",  direction: PayloadDirection::Read,  size: 64 << 10,  depth: 32, goal: Goal::OfRawTcp(0.85, Some(0.7)) },
    Row { name: "64k write depth 32", direction: PayloadDirection::Write, size: 64 << 10,  depth: 32, goal: Goal::OfRawTcp(0.8, Some(0.6)) },
    Row { name: "256k read depth 8",  direction: PayloadDirection::Read,  size: 256 << 10, depth: 8,  goal: Goal::OfRawTcp(0.85, None) },
    Row { name: "256k write depth 8", direction: PayloadDirection::Write, size: 256 << 10, depth: 8,  goal: Goal::OfRawTcp(0.85, None) },
    Row { name: "1m read depth 8",    direction: PayloadDirection::Read,  size: 1 << 20,   depth: 8,  goal: Goal::OfRawTcp(0.85, None) },
    Row { name: "1m write depth 8",   direction: PayloadDirection::Write, size: 1 << 20,   depth: 8,  goal: Goal::OfRawTcp(0.85, None) },
];

const SIZE_BYTES: u64 = 1 << 30;

/// A program to measure.
struct Contestant {
    name: &'static str,
    kind: Kind,
}

enum Kind {
    Bare,
    RawTcp,
    /// Our initiator, and a target with this PID.
    Device {
        backend: Arc<dyn Backend>,
        pid: u32,
    },
    /// libiscsi's client.
    Qemu {
        url: String,
    },
    /// A contestant of another kind; its target, with this PID, polls and is therefore stopped between measurements.
    Stopped {
        kind: Box<Kind>,
        pid: u32,
    },
}

impl IscsiBench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// The settings are invalid, a prerequisite is missing, or the results miss a requirement.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        let (rounds, time) = if self.quick {
            (1, Duration::from_millis(300))
        } else {
            (self.rounds, self.time)
        };
        let names: Vec<&'static str> = ROWS
            .iter()
            .map(|row| row.name)
            .chain(iscsi_sessions::ROWS.iter().map(|row| row.name))
            .collect();
        let names = rows_named(&names, self.row.as_deref(), |name| *name)?;
        let rows: Vec<&Row> = ROWS
            .iter()
            .filter(|row| names.contains(&&row.name))
            .collect();
        let (mut table, mut calls) = (Vec::new(), None);
        if !rows.is_empty() {
            table = self.one_session(&rows, (rounds, time), output)?;
            if !self.quick {
                calls = Some(target_calls(time).map_err(BenchError::failed)?);
            }
        }
        let sessions = self.sessions(&names, (rounds, time), output)?;
        if let Some(calls) = calls {
            output.line(format!(
                "the target makes {calls:.2} system calls per 4 KiB read at depth 32 (null)"
            ));
        }
        output.object(&json!({
            "rounds": rounds, "seconds": time.as_secs_f64(), "rows": table, "sessions": sessions,
            "target_system_calls": calls,
        }));
        Ok(())
    }

    /// Measures the rows of one session.
    fn one_session(
        &self,
        rows: &[&Row],
        (rounds, time): (u32, Duration),
        output: &dyn Console,
    ) -> Result<Vec<Value>, BenchError> {
        let failed = |error: io::Error| BenchError::failed(error);
        let own = OwnTarget::start(&[]).map_err(failed)?;
        let polling = OwnTarget::start(&["--poll"]).map_err(failed)?;
        let mut tgts = Vec::new();
        let sink = OwnSink::start().map_err(failed)?;
        let mut contestants = contestants_of_ours(&own)?;
        contestants.push(device(DEVICE_TCP, &sink.url, sink.process.id())?);
        let spdk = self.spdk(output);
        if !self.quick {
            let pid = polling.process.id();
            contestants.push(device(POLLING_NULL, &format!("{}/0", polling.url), pid)?);
            add_peers(&mut contestants, &mut tgts, &own, output)?;
            if let Some(spdk) = &spdk {
                add_spdk(&mut contestants, spdk).map_err(failed)?;
            }
        }
        for contestant in &contestants {
            if contestant.name.ends_with("memory") {
                contestant.kind.fill().map_err(failed)?;
            }
        }
        let mut table = Vec::new();
        for row in rows {
            let mut samples: Vec<Vec<RunSample>> = contestants.iter().map(|_| Vec::new()).collect();
            for _ in 0..rounds {
                for (contestant, samples) in contestants.iter().zip(&mut samples) {
                    if output.is_interrupted() {
                        return Err(interrupted());
                    }
                    if let Some(sample) = contestant.measure(row, time).map_err(failed)? {
                        samples.push(sample);
                    }
                }
            }
            table.push(report(row, &contestants, &samples, output));
        }
        Ok(table)
    }

    /// Starts SPDK, if it was named.
    fn spdk(&self, output: &dyn Console) -> Option<Spdk> {
        let program = self.spdk.as_ref().filter(|_| !self.quick);
        if program.is_none() {
            output.note("SPDK is left out: it needs --spdk PATH, the path of its iscsi_tgt");
        }
        Spdk::start(program?, SIZE_BYTES)
            .inspect_err(|error| output.note(format!("SPDK is left out: {error}")))
            .ok()
    }

    /// Measures the rows of many sessions; a quick look measures only the rows of few sessions.
    fn sessions(
        &self,
        names: &[&&'static str],
        (rounds, time): (u32, Duration),
        output: &dyn Console,
    ) -> Result<Vec<Value>, BenchError> {
        let is_wanted = |row: &&SessionsRow| {
            let is_quick = row.sessions <= 64 || self.row.is_some();
            names.contains(&&row.name) && (!self.quick || is_quick)
        };
        let rows: Vec<SessionsRow> = iscsi_sessions::ROWS
            .iter()
            .filter(is_wanted)
            .copied()
            .collect();
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let failed = |error: io::Error| BenchError::failed(error);
        let own = OwnTarget::start(&[]).map_err(failed)?;
        let url = format!("{}/0", own.url);
        let mut targets = vec![SessionsTarget {
            name: OURS_NULL,
            url: &url,
            pid: own.process.id(),
            polls: false,
        }];
        let tgt = (!self.quick && peers::have("tgtd"))
            .then(|| Tgt::start(Medium::Null, TgtTuning::Tuned, SIZE_BYTES))
            .and_then(|started| {
                started
                    .inspect_err(|error| output.note(format!("tgt is left out: {error}")))
                    .ok()
            });
        targets.extend(tgt.as_ref().map(|tgt| SessionsTarget {
            name: TUNED_NULL,
            url: tgt.url(),
            pid: tgt.pid(),
            polls: false,
        }));
        let spdk = self.spdk(output);
        let spdk = spdk
            .as_ref()
            .map(|spdk| (spdk, format!("{}/0", spdk.url())));
        targets.extend(spdk.as_ref().map(|(spdk, url)| SessionsTarget {
            name: SPDK_NULL,
            url,
            pid: spdk.pid(),
            polls: true,
        }));
        let measured = iscsi_sessions::run(&rows, &targets, rounds, time, output);
        measured.map_err(failed)?.ok_or_else(interrupted)
    }
}

impl Contestant {
    /// `None` if the row does not apply to this contestant.
    fn measure(&self, row: &Row, time: Duration) -> io::Result<Option<RunSample>> {
        self.kind
            .measure(row, time)
            .map_err(|error| io::Error::other(format!("{} ({}): {error}", self.name, row.name)))
    }
}

impl Kind {
    /// Writes the whole device.
    fn fill(&self) -> io::Result<()> {
        match self {
            Kind::Device { backend, .. } => drive::fill(backend),
            Kind::Stopped { kind, pid } => {
                let _awake = spdk::awake(*pid)?;
                kind.fill()
            }
            Kind::Bare | Kind::RawTcp | Kind::Qemu { .. } => Ok(()),
        }
    }

    /// `None` if the row does not apply.
    fn measure(&self, row: &Row, time: Duration) -> io::Result<Option<RunSample>> {
        let sample = match self {
            Kind::Stopped { kind, pid } => {
                let _awake = spdk::awake(*pid)?;
                return kind.measure(row, time);
            }
            Kind::Bare => bare::measure(row.direction, row.size, row.depth as usize, time)?,
            Kind::RawTcp if row.size < 64 << 10 => return Ok(None),
            Kind::RawTcp => {
                let bytes = peers::iperf3(row.size, time)?;
                RunSample {
                    requests: (bytes / row.size as f64) as u64,
                    elapsed: Duration::from_secs(1),
                    ..RunSample::default()
                }
            }
            Kind::Device { backend, pid } => {
                let cpu = process_cpu(*pid);
                let sample = drive::measure(backend, row.direction, row.size, row.depth, time)?;
                RunSample {
                    target_cpu: process_cpu_since(*pid, cpu),
                    ..sample
                }
            }
            Kind::Qemu { url } => {
                // A short first run shows how many requests fill the time.
                let write = row.direction == PayloadDirection::Write;
                let probe = peers::qemu_img_bench(url, write, row.size, row.depth, 2000)?;
                let count = (probe * time.as_secs_f64()).max(2000.0) as u64;
                let rate = peers::qemu_img_bench(url, write, row.size, row.depth, count)?;
                RunSample {
                    requests: count,
                    elapsed: Duration::from_secs_f64(count as f64 / rate),
                    ..RunSample::default()
                }
            }
        };
        Ok(Some(sample))
    }
}

fn interrupted() -> BenchError {
    BenchError::interrupted(
        "interrupted: the rows printed so far are complete, and the others were not measured",
    )
}

/// System calls per command, counted by a target in a separate run.
fn target_calls(time: Duration) -> io::Result<f64> {
    let mut target = OwnTarget::start(&["--json"])?;
    let device = open(&format!("{}/0", target.url)).map_err(io::Error::other)?;
    drive::measure(&device, PayloadDirection::Read, 4 << 10, 32, time)?;
    drop(device);
    let pid = i32::try_from(target.process.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(
        pid.expect("a child process has an id"),
        rustix::process::Signal::TERM,
    )?;
    let mut json = String::new();
    target
        .process
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut json)?;
    let stats: Value = serde_json::from_str(&json).map_err(io::Error::other)?;
    match (stats["system_calls"].as_f64(), stats["commands"].as_f64()) {
        (Some(calls), Some(commands)) if commands > 0.0 => Ok(calls / commands),
        _ => Err(io::Error::other("Brunt's target printed no counters")),
    }
}

/// `brunt target` in a separate process, with a null and a memory LUN.
struct OwnTarget {
    process: Child,
    url: String,
}

/// `brunt sink` in a separate process.
struct OwnSink {
    process: Child,
    url: String,
}

impl OwnSink {
    fn start() -> io::Result<OwnSink> {
        let mut process = Command::new(program::brunt().map_err(io::Error::other)?)
            .args(["sink", "--portal", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .start()?;
        let mut portal = String::new();
        BufReader::new(process.stdout.as_mut().expect("piped")).read_line(&mut portal)?;
        Ok(OwnSink {
            process,
            url: format!("tcp://{}", portal.trim()),
        })
    }
}

impl Drop for OwnSink {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl OwnTarget {
    /// With `--json` among the options, it prints a summary on standard output when it is stopped.
    fn start(options: &[&str]) -> io::Result<OwnTarget> {
        const NAME: &str = "iqn.2026-11.io.brunt:bench";
        let size = SIZE_BYTES >> 20;
        let mut process = Command::new(program::brunt().map_err(io::Error::other)?)
            .args(["target", "--portal", "127.0.0.1:0", "--name", NAME])
            .args([
                "--lun",
                &format!("null:{size}MiB"),
                "--lun",
                &format!("memory:{size}MiB"),
            ])
            .args(["--max-sessions", "2048"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(if options.contains(&"--json") {
                Stdio::piped()
            } else {
                Stdio::inherit()
            })
            .start()?;
        let mut portal = String::new();
        // The process prints the address first; with --json, it does so on standard error.
        match process.stderr.take() {
            Some(stderr) => BufReader::new(stderr).read_line(&mut portal)?,
            None => {
                BufReader::new(process.stdout.as_mut().expect("piped")).read_line(&mut portal)?
            }
        };
        let portal = portal.split_whitespace().last().unwrap_or_default();
        if portal.is_empty() {
            let _ = process.kill();
            return Err(io::Error::other(
                "Brunt's target did not start; see its output above",
            ));
        }
        Ok(OwnTarget {
            url: format!("iscsi://{portal}/{NAME}"),
            process,
        })
    }
}

impl Drop for OwnTarget {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(super) fn open(url: &str) -> Result<Arc<dyn Backend>, OpenError> {
    open_url_with(url, brunt_iscsi::BACKENDS, false)
}

fn device(name: &'static str, url: &str, pid: u32) -> Result<Contestant, BenchError> {
    Ok(Contestant {
        name,
        kind: Kind::Device {
            backend: open(url)?,
            pid,
        },
    })
}

const OURS_NULL: &str = "ours, null";
const OURS_MEMORY: &str = "ours, memory";
const POLLING_NULL: &str = "ours with --poll, null";
const SPDK_NULL: &str = "SPDK, our initiator, null";
const SPDK_MEMORY: &str = "SPDK, our initiator, memory";
const TUNED_NULL: &str = "tgt tuned, our initiator, null";
const TUNED_MEMORY: &str = "tgt tuned, our initiator, memory";
const BARE: &str = "bare TCP pair";
const RAW_TCP: &str = "raw TCP (iperf3)";
const DEVICE_TCP: &str = "our tcp device and sink";

fn contestants_of_ours(own: &OwnTarget) -> Result<Vec<Contestant>, BenchError> {
    let pid = own.process.id();
    Ok(vec![
        Contestant {
            name: BARE,
            kind: Kind::Bare,
        },
        device(OURS_NULL, &format!("{}/0", own.url), pid)?,
        device(OURS_MEMORY, &format!("{}/1", own.url), pid)?,
    ])
}

/// Adds the installed peers, and prints a note for the missing ones.
fn add_peers(
    contestants: &mut Vec<Contestant>,
    tgts: &mut Vec<Tgt>,
    own: &OwnTarget,
    output: &dyn Console,
) -> BenchResult {
    let with = |program: &str, package: &str| {
        let there = peers::have(program);
        if !there {
            output.note(format!(
                "{program} is not installed (Debian package {package}): its rows are missing"
            ));
        }
        there
    };
    if with("iperf3", "iperf3") {
        contestants.push(Contestant {
            name: RAW_TCP,
            kind: Kind::RawTcp,
        });
    }
    let qemu = with("qemu-img", "qemu-utils and qemu-block-extra");
    if qemu {
        contestants.push(Contestant {
            name: "libiscsi on ours, null",
            kind: Kind::Qemu {
                url: format!("{}/0", own.url),
            },
        });
    }
    if !with("tgtd", "tgt") {
        return Ok(());
    }
    for (name, medium, tuning) in [
        (
            "tgt shipped, our initiator, null",
            Medium::Null,
            TgtTuning::Shipped,
        ),
        (
            "tgt shipped, our initiator, memory",
            Medium::Memory,
            TgtTuning::Shipped,
        ),
        (TUNED_NULL, Medium::Null, TgtTuning::Tuned),
        (TUNED_MEMORY, Medium::Memory, TgtTuning::Tuned),
    ] {
        let tgt = match Tgt::start(medium, tuning, SIZE_BYTES) {
            Ok(tgt) => tgt,
            Err(error) => {
                output.note(format!("tgt is left out: {error}"));
                return Ok(());
            }
        };
        contestants.push(device(name, tgt.url(), tgt.pid())?);
        if qemu && name == TUNED_NULL {
            let url = tgt.url().to_string();
            contestants.push(Contestant {
                name: "tgt tuned, libiscsi, null",
                kind: Kind::Qemu { url },
            });
        }
        tgts.push(tgt);
    }
    Ok(())
}

/// Adds SPDK with our initiator and with libiscsi.
fn add_spdk(contestants: &mut Vec<Contestant>, spdk: &Spdk) -> io::Result<()> {
    // Opening a device connects to it, so SPDK must not be stopped meanwhile.
    let _awake = spdk::awake(spdk.pid())?;
    let pid = spdk.pid();
    for (name, lun) in [(SPDK_NULL, 0), (SPDK_MEMORY, 1)] {
        let url = format!("{}/{lun}", spdk.url());
        let backend = open(&url).map_err(io::Error::other)?;
        let kind = Box::new(Kind::Device { backend, pid });
        contestants.push(Contestant {
            name,
            kind: Kind::Stopped { kind, pid },
        });
    }
    if peers::have("qemu-img") {
        let url = format!("{}/0", spdk.url());
        let kind = Box::new(Kind::Qemu { url });
        contestants.push(Contestant {
            name: "SPDK, libiscsi, null",
            kind: Kind::Stopped { kind, pid },
        });
    }
    Ok(())
}

/// Prints a row's block and returns it as JSON.
fn report(
    row: &Row,
    contestants: &[Contestant],
    samples: &[Vec<RunSample>],
    output: &dyn Console,
) -> Value {
    output.line(row.name);
    output.line(format!(
        "  {:<34} {:>9} {:>17} {:>9} {:>6} {:>6} {:>6}",
        "", "req/s", "min..max", "MB/s", "µs c", "µs t", "calls"
    ));
    let mut lines = Vec::new();
    for (contestant, samples) in contestants
        .iter()
        .zip(samples)
        .filter(|(_, samples)| !samples.is_empty())
    {
        let rates: Vec<f64> = samples.iter().map(RunSample::rate).collect();
        let each = |pick: fn(&RunSample) -> Option<f64>| {
            median_of(samples, |s| pick(s).map(|value| value / s.requests as f64))
        };
        let client = each(|s| s.client_cpu.map(|cpu| cpu.as_secs_f64() * 1e6));
        let target = each(|s| s.target_cpu.map(|cpu| cpu.as_secs_f64() * 1e6));
        let calls = each(|s| s.client_calls.map(|calls| calls as f64));
        let rate = median(&rates);
        let (low, high) = extremes(&rates);
        let show =
            |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.2}"));
        output.line(format!(
            "  {:<34} {:>9.0} {:>17} {:>9.0} {:>6} {:>6} {:>6}",
            contestant.name,
            rate,
            format!("{low:.0}..{high:.0}"),
            rate * row.size as f64 / 1e6,
            show(client),
            show(target),
            show(calls),
        ));
        lines.push(json!({
            "who": contestant.name, "requests_per_s": rate, "rounds": rates,
            "client_cpu_us": client, "target_cpu_us": target, "client_system_calls": calls,
        }));
    }
    let verdicts = verdicts(row, contestants, samples);
    for verdict in &verdicts {
        output.line(format!("  = {}", verdict.text));
    }
    output.line("");
    let goals: Vec<Value> = verdicts
        .iter()
        .map(|v| json!({ "goal": v.text, "ratio": v.ratio, "reached": v.reached }))
        .collect();
    json!({ "row": row.name, "contestants": lines, "goals": goals })
}

struct Verdict {
    text: String,
    ratio: f64,
    reached: bool,
}

/// The row's goals that can be judged. Ratios are computed per round, because the machine's speed drifts, and their
/// median is judged.
fn verdicts(row: &Row, contestants: &[Contestant], samples: &[Vec<RunSample>]) -> Vec<Verdict> {
    let rates = |name: &str| -> Option<Vec<f64>> {
        let index = contestants
            .iter()
            .position(|contestant| contestant.name == name)?;
        let rates: Vec<f64> = samples[index].iter().map(RunSample::rate).collect();
        (!rates.is_empty()).then_some(rates)
    };
    let ratio = |ours: &str, other: &str| -> Option<f64> {
        ratio_of_rounds(&rates(ours)?, &rates(other)?).map(|(ratio, _)| ratio)
    };
    let at_least = |ours: &str, other: &str, goal: f64| {
        ratio(ours, other).map(|ratio| Verdict {
            text: format!("{ours} is {ratio:.2} of {other}; goal {goal:.2}"),
            ratio,
            reached: ratio >= goal,
        })
    };
    // The bare pair discards payloads, whereas a device copies each into its request's buffer.
    let network = [
        at_least(DEVICE_TCP, BARE, 0.5),
        at_least(DEVICE_TCP, RAW_TCP, 0.85),
    ];
    let spdk = [
        at_least(OURS_NULL, SPDK_NULL, 1.0),
        at_least(OURS_MEMORY, SPDK_MEMORY, 1.0),
        at_least(POLLING_NULL, SPDK_NULL, 1.2),
    ];
    let found = match row.goal {
        Goal::TimesTgt(goal) => {
            vec![
                at_least(OURS_NULL, TUNED_NULL, goal),
                at_least(OURS_MEMORY, TUNED_MEMORY, goal),
                at_least(OURS_NULL, BARE, 0.5),
            ]
        }
        Goal::OfRawTcp(null, memory) => vec![
            at_least(OURS_NULL, RAW_TCP, null),
            memory.and_then(|goal| at_least(OURS_MEMORY, RAW_TCP, goal)),
        ],
        Goal::LatencyOfBare(goal) => vec![ratio(BARE, OURS_NULL).map(|ratio| Verdict {
            text: format!(
                "a request takes {ratio:.2} times as long as on the bare pair; goal at most \
                 {goal:.2}"
            ),
            ratio,
            reached: ratio <= goal,
        })],
    };
    found
        .into_iter()
        .chain(spdk)
        .chain(network)
        .flatten()
        .map(|v| Verdict {
            text: format!(
                "{} ({})",
                v.text,
                if v.reached { "reached" } else { "missed" }
            ),
            ..v
        })
        .collect()
}
