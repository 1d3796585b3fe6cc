//! The session rows of `brunt-bench iscsi`: what do many sessions cost a target? One thread of Brunt's initiator
//! opens all sessions and keeps 4 KiB requests in flight: 32 in total over up to 32 sessions, or one per session if
//! there are more. Compared with one session in the same run, and with a tuned tgt and SPDK under the same load.
//!
//! The rule: memory is the growth of the target's process after the first session, divided by the number of further
//! sessions.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use brunt_block::{Buf, Completion, Device, Op, Request, Ring, RingConfig, RingOwner};
use brunt_core::Clock;
use brunt_core::random::Random;
use serde_json::{Value, json};

use super::bare::PayloadDirection;
use super::iscsi::open;
use super::sample::{
    extremes, median, median_of, process_cpu, process_cpu_since, process_memory, ratio_of_rounds,
};
use super::spdk;
use crate::Console;

/// A number of sessions, and their requests.
#[derive(Clone, Copy, Debug)]
pub struct SessionsRow {
    /// The row's name.
    pub name: &'static str,
    /// Number of sessions.
    pub sessions: u32,
    direction: PayloadDirection,
}

/// The rows.
#[rustfmt::skip]
pub const ROWS: &[SessionsRow] = &[
    SessionsRow { name: "1 session read",      sessions: 1,    direction: PayloadDirection::Read },
    SessionsRow { name: "16 sessions read",    sessions: 16,   direction: PayloadDirection::Read },
    SessionsRow { name: "64 sessions read",    sessions: 64,   direction: PayloadDirection::Read },
    SessionsRow { name: "256 sessions read",   sessions: 256,  direction: PayloadDirection::Read },
    SessionsRow { name: "1024 sessions read",  sessions: 1024, direction: PayloadDirection::Read },
    SessionsRow { name: "1 session write",     sessions: 1,    direction: PayloadDirection::Write },
    SessionsRow { name: "16 sessions write",   sessions: 16,   direction: PayloadDirection::Write },
    SessionsRow { name: "64 sessions write",   sessions: 64,   direction: PayloadDirection::Write },
];

const REQUEST_BYTES: usize = 4096;
/// Requests in flight, unless there are more sessions.
const IN_FLIGHT: u32 = 32;
/// How long sessions are idle before memory is read: a target returns a session's memory after it has been idle for a
/// second.
const IDLE_TIME: Duration = Duration::from_millis(2500);
/// Interval at which devices are called even if nothing arrives for them.
const CALL_INTERVAL: Duration = Duration::from_millis(100);

/// A target to measure.
pub struct SessionsTarget<'a> {
    /// The target's name in the table.
    pub name: &'static str,
    /// The URL of the target's null LUN.
    pub url: &'a str,
    /// The PID of the target's process.
    pub pid: u32,
    /// Whether the target polls, and is therefore stopped unless it is measured.
    pub polls: bool,
}

/// The figures of one round of one target.
struct SessionsSample {
    /// Requests per second.
    rate: f64,
    /// CPU time of the target per request, in µs.
    target_cpu_us: Option<f64>,
    /// Resident bytes of the target per session, when the session is new and when it is idle after the load. `None`
    /// with a single session, whose cost includes the process's one-time costs.
    new_bytes: Option<f64>,
    idle_bytes: Option<f64>,
}

/// Measures all rows with all targets, in turn, and prints them. The first target is compared with each of the other
/// targets. `None`: interrupted.
///
/// # Errors
/// A target can't be reached, or a request fails.
pub fn run(
    rows: &[SessionsRow],
    targets: &[SessionsTarget<'_>],
    rounds: u32,
    time: Duration,
    output: &dyn Console,
) -> io::Result<Option<Vec<Value>>> {
    let mut table = Vec::new();
    // Each target's rate with one session, by direction.
    let mut single: Vec<(PayloadDirection, usize, f64)> = Vec::new();
    for row in rows {
        let mut samples: Vec<Vec<SessionsSample>> = targets.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (target, samples) in targets.iter().zip(&mut samples) {
                if output.is_interrupted() {
                    return Ok(None);
                }
                let measured = measure(target, *row, time);
                samples.push(measured.map_err(|error| {
                    io::Error::other(format!("{} ({}): {error}", target.name, row.name))
                })?);
            }
        }
        output.line(row.name.to_string());
        output.line(format!(
            "  {:<34} {:>9} {:>17} {:>8} {:>6} {:>8} {:>8}",
            "", "req/s", "min..max", "of one", "µs t", "KiB new", "KiB idle"
        ));
        let mut lines = Vec::new();
        for (index, (target, samples)) in targets.iter().zip(&samples).enumerate() {
            let rates = rates(samples);
            let rate = median(&rates);
            if row.sessions == 1 {
                single.push((row.direction, index, rate));
            }
            let one = single
                .iter()
                .find(|(direction, of, _)| (*direction, *of) == (row.direction, index));
            let figures = Figures {
                rates,
                of_one: one.map(|(.., one)| rate / one),
                target_cpu_us: median_of(samples, |sample| sample.target_cpu_us),
                new_bytes: median_of(samples, |sample| sample.new_bytes),
                idle_bytes: median_of(samples, |sample| sample.idle_bytes),
            };
            lines.push(figures.print(target.name, output));
        }
        let ratios = ratios(targets, &samples, output);
        output.line(String::new());
        table.push(json!({ "row": row.name, "sessions": row.sessions, "targets": lines, "ratios": ratios }));
    }
    Ok(Some(table))
}

/// A target's medians over the rounds of a row.
struct Figures {
    rates: Vec<f64>,
    of_one: Option<f64>,
    target_cpu_us: Option<f64>,
    new_bytes: Option<f64>,
    idle_bytes: Option<f64>,
}

impl Figures {
    fn print(&self, name: &str, output: &dyn Console) -> Value {
        let show = |value: Option<f64>, decimals: usize| {
            value.map_or("-".to_string(), |value| format!("{value:.decimals$}"))
        };
        let kib = |bytes: Option<f64>| show(bytes.map(|bytes| bytes / 1024.0), 0);
        let (low, high) = extremes(&self.rates);
        let rate = median(&self.rates);
        output.line(format!(
            "  {name:<34} {rate:>9.0} {:>17} {:>8} {:>6} {:>8} {:>8}",
            format!("{low:.0}..{high:.0}"),
            show(self.of_one, 2),
            show(self.target_cpu_us, 2),
            kib(self.new_bytes),
            kib(self.idle_bytes),
        ));
        json!({
            "who": name, "requests_per_s": rate, "rounds": self.rates, "of_one_session": self.of_one,
            "target_cpu_us": self.target_cpu_us, "new_session_bytes": self.new_bytes,
            "idle_session_bytes": self.idle_bytes,
        })
    }
}

fn rates(samples: &[SessionsSample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.rate).collect()
}

/// Prints the first target's rate as a multiple of each other target's.
fn ratios(
    targets: &[SessionsTarget<'_>],
    samples: &[Vec<SessionsSample>],
    output: &dyn Console,
) -> Vec<Value> {
    let [ours, others @ ..] = samples else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for (target, theirs) in targets[1..].iter().zip(others) {
        let Some((ratio, (low, high))) = ratio_of_rounds(&rates(ours), &rates(theirs)) else {
            continue;
        };
        output.line(format!(
            "  = {} is {ratio:.2} of {} ({low:.2} to {high:.2})",
            targets[0].name, target.name
        ));
        all.push(json!({ "of": target.name, "ratio": ratio, "low": low, "high": high }));
    }
    all
}

fn measure(
    target: &SessionsTarget<'_>,
    row: SessionsRow,
    time: Duration,
) -> io::Result<SessionsSample> {
    // Dropped last: closing a session waits for its logout, for which the target must be running.
    let _awake = target.polls.then(|| spdk::awake(target.pid)).transpose()?;
    let backend = open(target.url).map_err(io::Error::other)?;
    let ring = Ring::new(RingConfig::of_connections())?;
    let depth = (IN_FLIGHT / row.sessions).max(1);
    let mut devices = Vec::new();
    let mut resident = None;
    for number in 0..row.sessions {
        ring.work_for(Some(RingOwner(number)));
        devices.push(backend.open(&ring, depth).map_err(io::Error::other)?);
        if number == 0 {
            // The first session may include the process's one-time costs.
            resident = process_memory(target.pid);
        }
    }
    let per_session = || {
        let grown = process_memory(target.pid)?.saturating_sub(resident?);
        (row.sessions > 1).then(|| grown as f64 / f64::from(row.sessions - 1))
    };
    let new_bytes = per_session();
    let cpu = process_cpu(target.pid);
    let mut load = Load {
        ring: &ring,
        op: match row.direction {
            PayloadDirection::Read => Op::Read,
            PayloadDirection::Write => Op::Write,
        },
        random: Random::new(1),
        requests: 0,
    };
    let begin = Instant::now();
    load.run(&mut devices, depth, time)?;
    let elapsed = begin.elapsed();
    let cpu = process_cpu_since(target.pid, cpu);
    let idle_bytes = (row.sessions > 1)
        .then(|| {
            std::thread::sleep(IDLE_TIME);
            per_session()
        })
        .flatten();
    Ok(SessionsSample {
        rate: load.requests as f64 / elapsed.as_secs_f64(),
        target_cpu_us: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / load.requests.max(1) as f64),
        new_bytes,
        idle_bytes,
    })
}

/// A closed loop over many devices on one ring.
struct Load<'a> {
    ring: &'a Ring,
    op: Op,
    random: Random,
    requests: u64,
}

impl Load<'_> {
    fn run(
        &mut self,
        devices: &mut [Box<dyn Device>],
        depth: u32,
        time: Duration,
    ) -> io::Result<()> {
        let begin = Instant::now();
        let (mut ready, mut done) = (Vec::new(), Vec::new());
        for (number, device) in devices.iter_mut().enumerate() {
            self.ring.work_for(Some(RingOwner(number as u32)));
            let mut batch: VecDeque<Request> = (0..depth)
                .map(|_| {
                    self.request(
                        self.ring.pool().take(REQUEST_BYTES),
                        device.info().size_bytes,
                    )
                })
                .collect();
            device.submit(&mut batch);
        }
        let mut outstanding = devices.len() as u64 * u64::from(depth);
        while outstanding > 0 {
            self.ring
                .enter(Clock::Monotonic.now().after(CALL_INTERVAL))?;
            self.ring.take_ready(&mut ready);
            if ready.is_empty() {
                ready.extend((0..devices.len() as u32).map(RingOwner));
            }
            let goes_on = begin.elapsed() < time;
            for owner in ready.drain(..) {
                let device = &mut devices[owner.0 as usize];
                self.ring.work_for(Some(owner));
                device.poll(&mut done);
                outstanding -= self.next(&mut done, &mut **device, goes_on)?;
            }
        }
        Ok(())
    }

    /// Counts completions and, while the load goes on, replaces them with new requests. Returns the number of
    /// requests that were not replaced.
    fn next(
        &mut self,
        done: &mut Vec<Completion>,
        device: &mut dyn Device,
        goes_on: bool,
    ) -> io::Result<u64> {
        let mut batch = VecDeque::new();
        let mut ended = 0;
        for completion in done.drain(..) {
            completion
                .result
                .map_err(|error| io::Error::other(format!("{}: {error}", device.info().name)))?;
            self.requests += 1;
            match goes_on {
                true => batch.push_back(self.request(completion.buf, device.info().size_bytes)),
                false => ended += 1,
            }
        }
        // Called even without new requests, because this is where a device queues its acknowledgements.
        device.submit(&mut batch);
        Ok(ended)
    }

    fn request(&mut self, buf: Buf, size_bytes: u64) -> Request {
        Request {
            tag: 0,
            op: self.op,
            offset: self.random.below(size_bytes / REQUEST_BYTES as u64) * REQUEST_BYTES as u64,
            len: REQUEST_BYTES as u64,
            buf,
            force_unit_access: false,
        }
    }
}
