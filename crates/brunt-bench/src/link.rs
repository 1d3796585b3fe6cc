//! `brunt-bench link`: accuracy and speed of the lab's links, compared with a bare veth pair, netem and a minimal
//! prototype in the same run.
//!
//! Packets are counted on arrival, by sockets on the hosts, not by the link itself. The rule: carriers take turns, so
//! that other load on the machine affects all of them equally; ratios are ratios of medians.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brunt_core::{Clock, Span};
use brunt_lab::link::{BitRate, Settings};
use brunt_lab::{Carrier, Host, Lab, LabError, LinkConfig};
use brunt_result::link::{LinkCounts, LinkReport};
use brunt_result::void::joined;
use serde_json::{Value, json};
use statrs::distribution::{Binomial, DiscreteCDF};

use super::sample::median;
use crate::{BenchError, BenchResult, Console};

/// Configured round trips in milliseconds.
const ROUND_TRIPS_MS: [u64; 4] = [1, 5, 20, 100];
/// A measured round trip may differ from the configured one by this time or this share of it, whichever is greater.
const ROUND_TRIP_SLACK: (Duration, f64) = (Duration::from_micros(100), 0.02);
/// Maximum packets in flight to a receiver. The packets must fit into its socket: each takes up to 2 KiB there, and a
/// socket holds 212992 bytes by default.
const WINDOW_PACKETS: u64 = 64;
/// A packet that has not arrived after this time is lost.
const GONE_AFTER: Duration = Duration::from_millis(100);
/// Bytes per write of a TCP sender and per read of a receiver.
const CHUNK_BYTES: usize = 256 << 10;
/// Number of flows through the link with a delay: a single one is limited by its socket's buffers.
const FLOWS: usize = 8;
/// The baseline for all comparisons.
const BARE: &str = "bare";
/// Timeout, longer than any step here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Accuracy and speed of the lab's links, compared with a bare veth pair
///
/// Needs no root: the hosts are network namespaces.
#[derive(Clone, Debug)]
pub struct LinkBench {
    /// Runs of each speed measurement; the median is reported.
    pub runs: u32,
    /// Duration of each speed measurement in seconds.
    pub seconds: u64,
    /// Number of packets sent to measure loss, delay and other impairments.
    pub packets: u64,
    /// Seed of the random impairments.
    pub seed: u64,
    /// Measure the speed of these carriers only, and of the bare pair.
    pub only: Vec<String>,
    /// Skip the speed measurements.
    pub no_speed: bool,
    /// Skip the accuracy measurements.
    pub no_accuracy: bool,
    /// Skip the rate-limited lines.
    pub no_rates: bool,
}

impl LinkBench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// The settings are invalid, a prerequisite is missing, or the results miss a requirement.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        let mut result = json!({ "seed": self.seed });
        let mut wrong = Vec::new();
        if !self.no_accuracy {
            output.line(
                "round trips (UDP, both ways half)      set ms  median ms   error us  allowed us",
            );
            let mut rows = Vec::new();
            for round_trip_ms in ROUND_TRIPS_MS {
                rows.push(self.round_trip(round_trip_ms, output, &mut wrong)?);
            }
            result["round_trips"] = json!(rows);
            output.line(format_args!(
                "shares of {} packets               set      seen   99% interval",
                self.packets
            ));
            let mut rows = Vec::new();
            for what in ["loss", "corrupt", "duplicate", "reorder"] {
                rows.push(self.share(what, output, &mut wrong)?);
            }
            result["shares"] = json!(rows);
            result["same_seed_same_losses"] = json!(self.same_losses(output, &mut wrong)?);
        }
        if !self.no_speed {
            result["speed"] = self.speed(output, &mut wrong)?;
        }
        if !self.no_rates {
            result["rates"] = self.rates(output, &mut wrong)?;
        }
        result["wrong"] = json!(wrong);
        output.object(&result);
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(BenchError::failed(wrong.join("; "))
                .advise("measure again on an otherwise idle machine; other load delays packets")),
        }
    }
}

/// Two hosts and a link.
pub(super) struct Pair {
    lab: Lab,
    a: Host,
    b: Host,
}

impl Pair {
    pub(super) fn new(settings: &Settings, carrier: Carrier, seed: u64) -> Result<Pair, LabError> {
        let mut lab = Lab::new(["a", "b"], Clock::Monotonic)?;
        if settings.rate.is_some() {
            // Reno fills a rate-limited line whose queue is long enough, and every kernel supports it.
            lab.use_congestion("reno");
        }
        lab.add_link(&LinkConfig {
            name: "wire".into(),
            between: ["a".into(), "b".into()],
            settings: [settings.clone(), settings.clone()],
            mtu: 1500,
            seed,
            carrier,
        })?;
        let (a, b) = (lab.host("a")?.clone(), lab.host("b")?.clone());
        Ok(Pair { lab, a, b })
    }

    pub(super) fn report(&self) -> Result<LinkReport, BenchError> {
        let (_, report) = self.lab.reports().map_err(BenchError::failed)?.remove(0);
        Ok(report)
    }

    /// Connected UDP sockets on both hosts.
    fn sockets(&self) -> io::Result<(UdpSocket, UdpSocket)> {
        let open = |host: &Host| host.run(|| UdpSocket::bind((host.address(), 0)));
        let (first, second) = (open(&self.a)?, open(&self.b)?);
        first.connect(second.local_addr()?)?;
        second.connect(first.local_addr()?)?;
        first.set_read_timeout(Some(Duration::from_secs(1)))?;
        second.set_read_timeout(Some(GONE_AFTER))?;
        Ok((first, second))
    }

    /// Sorted round-trip times of small packets, in seconds. One thread polls both ends and never sleeps: waking a
    /// sleeping thread takes longer than the link's allowed error, and the link isn't to blame for that.
    fn ping(&self, count: u32) -> io::Result<Vec<f64>> {
        let (first, second) = self.sockets()?;
        first.set_nonblocking(true)?;
        second.set_nonblocking(true)?;
        let mut times = Vec::new();
        let mut buffer = [0; 64];
        for _ in 0..count + 3 {
            let start = Instant::now();
            first.send(&buffer[..48])?;
            loop {
                if let Some(bytes) = poll(&second, &mut buffer)? {
                    second.send(&buffer[..bytes])?;
                }
                if poll(&first, &mut buffer)?.is_some() {
                    break;
                }
                if start.elapsed() > PATIENCE {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
            times.push(start.elapsed().as_secs_f64());
            // Let the link go to sleep, as between infrequent requests.
            std::thread::sleep(Duration::from_micros(300));
        }
        // The first round trips run with cold caches.
        let mut times = times.split_off(3);
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// Sends numbered packets from one host to the other; returns which ones arrived.
    fn flood(&self, packets: u64) -> io::Result<Arrived> {
        let (from, to) = self.sockets()?;
        let (highest, done) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&to, packets, &highest, &done));
            let sent = send_numbered(&from, packets, &highest);
            done.store(true, Ordering::Release);
            let arrived = receiver.join().expect("the receiver does not panic")?;
            sent.map(|()| arrived)
        })
    }

    /// TCP throughput of this many flows, in bytes per second.
    pub(super) fn tcp(&self, flows: usize, time: Duration) -> io::Result<f64> {
        let listener = self.b.run(|| TcpListener::bind((self.b.address(), 0)))?;
        let address = listener.local_addr()?;
        let (received, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let mut senders = Vec::new();
            let mut receivers = Vec::new();
            for _ in 0..flows {
                let mut socket = self
                    .a
                    .run(|| TcpStream::connect_timeout(&address, PATIENCE))?;
                let (mut other, _) = listener.accept()?;
                other.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                let (received, stop) = (&received, &stop);
                receivers.push(scope.spawn(move || -> io::Result<()> {
                    let mut buffer = vec![0; CHUNK_BYTES];
                    loop {
                        match other.read(&mut buffer)? {
                            0 => return Ok(()),
                            count => drop(received.fetch_add(count as u64, Ordering::Relaxed)),
                        }
                    }
                }));
                senders.push(scope.spawn(move || -> io::Result<()> {
                    let buffer = vec![0x5a; CHUNK_BYTES];
                    while !stop.load(Ordering::Relaxed) {
                        socket.write_all(&buffer)?;
                    }
                    socket.shutdown(Shutdown::Both)
                }));
            }
            // Let TCP's windows open first.
            std::thread::sleep(time / 4);
            let (start, before) = (Instant::now(), received.load(Ordering::Relaxed));
            std::thread::sleep(time);
            let rate =
                (received.load(Ordering::Relaxed) - before) as f64 / start.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            for thread in senders.into_iter().chain(receivers) {
                thread
                    .join()
                    .expect("a flow does not panic")
                    .or_else(|error| match error.kind() {
                        ErrorKind::ConnectionReset
                        | ErrorKind::BrokenPipe
                        | ErrorKind::NotConnected => Ok(()),
                        _ => Err(error),
                    })?;
            }
            Ok(rate)
        })
    }
}

/// The outcome of the numbered packets.
#[derive(Default)]
struct Arrived {
    missing: BTreeSet<u64>,
    twice: u64,
    /// Arrived after a packet with a higher number (RFC 4737, type-P-reordered).
    overtaken: u64,
}

fn send_numbered(from: &UdpSocket, packets: u64, highest: &AtomicU64) -> io::Result<()> {
    let mut packet = [0; 32];
    for number in 0..packets {
        packet[..8].copy_from_slice(&number.to_le_bytes());
        // Send only as many as the receiver's socket holds; if a whole window is lost, continue after a while.
        if number > highest.load(Ordering::Acquire) + WINDOW_PACKETS {
            let waiting = Instant::now();
            while number > highest.load(Ordering::Acquire) + WINDOW_PACKETS {
                if waiting.elapsed() > GONE_AFTER {
                    break;
                }
                std::thread::yield_now();
            }
        }
        from.send(&packet)?;
    }
    Ok(())
}

fn receive(
    to: &UdpSocket,
    packets: u64,
    highest: &AtomicU64,
    done: &AtomicBool,
) -> io::Result<Arrived> {
    let mut counts = vec![0u8; packets as usize];
    let mut arrived = Arrived::default();
    let mut latest = None;
    let mut packet = [0; 64];
    loop {
        match to.recv(&mut packet) {
            Ok(_) => {}
            Err(error) if is_timeout(&error) && done.load(Ordering::Acquire) => break,
            Err(error) if is_timeout(&error) => continue,
            Err(error) => return Err(error),
        }
        let number = u64::from_le_bytes(packet[..8].try_into().expect("eight bytes"));
        let Some(count) = counts.get_mut(number as usize) else {
            return Err(io::Error::other("a packet arrived that was not sent"));
        };
        *count = count.saturating_add(1);
        match *count {
            1 => arrived.overtaken += u64::from(latest.is_some_and(|latest| number < latest)),
            _ => arrived.twice += 1,
        }
        if latest.is_none_or(|latest| number > latest) {
            latest = Some(number);
            highest.store(number, Ordering::Release);
        }
    }
    arrived.missing = (0..packets)
        .filter(|number| counts[*number as usize] == 0)
        .collect();
    Ok(arrived)
}

/// The length of a received packet, if one has arrived.
fn poll(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match socket.recv(buffer) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if is_timeout(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

impl LinkBench {
    fn round_trip(
        &self,
        set_ms: u64,
        output: &dyn Console,
        wrong: &mut Vec<String>,
    ) -> Result<Value, BenchError> {
        let set = Duration::from_millis(set_ms);
        let settings = Settings {
            delay: Span(set / 2),
            ..Settings::default()
        };
        let pair = Pair::new(&settings, Carrier::Brunt, self.seed).map_err(BenchError::failed)?;
        let times = pair
            .ping(if set_ms > 50 { 40 } else { 200 })
            .map_err(BenchError::failed)?;
        let middle = times[times.len() / 2];
        let error_us = (middle - set.as_secs_f64()) * 1e6;
        let allowed_us =
            (set.as_secs_f64() * ROUND_TRIP_SLACK.1).max(ROUND_TRIP_SLACK.0.as_secs_f64()) * 1e6;
        output.line(format_args!(
            "  {:<36} {set_ms:>6} {:>10.3} {error_us:>10.1} {allowed_us:>11.0}",
            "",
            middle * 1e3
        ));
        if error_us.abs() > allowed_us {
            wrong.push(format!(
                "a round trip of {set_ms} ms is {error_us:.0} us off"
            ));
        }
        Ok(
            json!({ "set_ms": set_ms, "median_ms": middle * 1e3, "error_us": error_us,
            "least_ms": times[0] * 1e3, "most_ms": times[times.len() - 1] * 1e3 }),
        )
    }

    fn share(
        &self,
        what: &str,
        output: &dyn Console,
        wrong: &mut Vec<String>,
    ) -> Result<Value, BenchError> {
        let mut settings = Settings::default();
        let share = match what {
            "loss" => 0.027,
            "corrupt" => 0.0002,
            "duplicate" => 0.01,
            _ => 0.02,
        };
        match what {
            "loss" => settings.loss = share,
            "corrupt" => settings.corrupt = share,
            "duplicate" => settings.duplicate = share,
            _ => settings.reorder = share,
        }
        let pair = Pair::new(&settings, Carrier::Brunt, self.seed).map_err(BenchError::failed)?;
        let arrived = pair.flood(self.packets).map_err(BenchError::failed)?;
        let report = pair.report()?;
        let seen = match what {
            // The receiver's checksum drops corrupted packets.
            "loss" | "corrupt" => arrived.missing.len() as u64,
            "duplicate" => arrived.twice,
            _ => arrived.overtaken,
        };
        let binomial = Binomial::new(share, self.packets).map_err(BenchError::failed)?;
        let (least, most) = (binomial.inverse_cdf(0.005), binomial.inverse_cdf(0.995));
        output.line(format_args!(
            "  {what:<32} {:>8.0} {seen:>8}   {least} to {most}",
            share * self.packets as f64
        ));
        if !(least..=most).contains(&seen) {
            wrong.push(format!(
                "{what}: {seen} of {}, outside {least} to {most}",
                self.packets
            ));
        }
        if report.there.unintended() > 0 {
            wrong.push(format!("{what}: {}", joined(&report.trouble())));
        }
        Ok(
            json!({ "what": what, "share": share, "packets": self.packets, "seen": seen,
            "least": least, "most": most, "unmeant": report.there.unintended() }),
        )
    }

    fn same_losses(
        &self,
        output: &dyn Console,
        wrong: &mut Vec<String>,
    ) -> Result<bool, BenchError> {
        let settings = Settings {
            loss: 0.027,
            ..Settings::default()
        };
        let packets = self.packets / 10;
        let lost = |seed| -> Result<BTreeSet<u64>, BenchError> {
            let pair = Pair::new(&settings, Carrier::Brunt, seed).map_err(BenchError::failed)?;
            Ok(pair.flood(packets).map_err(BenchError::failed)?.missing)
        };
        let (first, again, other) = (
            lost(self.seed)?,
            lost(self.seed)?,
            lost(self.seed.wrapping_add(1))?,
        );
        let same = first == again && first != other;
        output.line(format_args!(
            "with the same seed, the same {} of {packets} packets were lost: {}",
            first.len(),
            if same { "yes" } else { "no" }
        ));
        if !same {
            wrong.push("with the same seed, different packets were lost".into());
        }
        Ok(same)
    }

    // Long because each row of the table has its own settings and verdict.
    fn speed(&self, output: &dyn Console, wrong: &mut Vec<String>) -> Result<Value, BenchError> {
        let time = Duration::from_secs(self.seconds);
        let clear = Settings::default();
        let delayed = Settings {
            delay: Span(Duration::from_millis(10)),
            ..clear.clone()
        };
        let lined = Settings {
            rate: Some(BitRate(1_000_000_000)),
            ..clear.clone()
        };
        let plain = Carrier::Prototype { wire_size: false };
        let subjects = [
            (BARE, Carrier::Bare, &clear, 1),
            ("prototype", plain, &clear, 1),
            ("brunt", Carrier::Brunt, &clear, 1),
            ("netem", Carrier::Netem, &clear, 1),
            (
                "prototype_wire_size",
                Carrier::Prototype { wire_size: true },
                &clear,
                1,
            ),
            ("brunt_wire_size", Carrier::BruntWireSize, &clear, 1),
            ("prototype_10ms_8_flows", plain, &delayed, FLOWS),
            ("brunt_10ms_8_flows", Carrier::Brunt, &delayed, FLOWS),
            ("brunt_1Gb/s", Carrier::Brunt, &lined, 1),
        ]
        .into_iter()
        .filter(|(name, ..)| {
            *name == BARE || self.only.is_empty() || self.only.iter().any(|only| only == name)
        })
        .collect::<Vec<_>>();
        output.line(format_args!(
            "speed, medians of {} runs of {} s, interleaved: TCP Gb/s, packets/s on the wire, \
             ping us",
            self.runs, self.seconds
        ));
        let mut figures = vec![Vec::new(); subjects.len()];
        let mut refused = vec![None; subjects.len()];
        for _ in 0..self.runs {
            for (index, (name, carrier, settings, flows)) in subjects.iter().enumerate() {
                if output.is_interrupted() {
                    return Err(BenchError::interrupted(
                        "interrupted before all runs were done",
                    ));
                }
                let pair = match Pair::new(settings, *carrier, self.seed) {
                    Ok(pair) => pair,
                    Err(error) if *carrier == Carrier::Netem => {
                        refused[index] = Some(error.to_string());
                        continue;
                    }
                    Err(error) => return Err(BenchError::failed(error)),
                };
                figures[index].push(speed_of(&pair, name, *flows, time, wrong)?);
            }
        }
        let bare = Speed::median(&figures[0]);
        let mut rows = Vec::new();
        let mut medians = Vec::new();
        for (index, (name, ..)) in subjects.iter().enumerate() {
            if let Some(refused) = &refused[index] {
                output.line(format_args!("  {name:<22} left out: {refused}"));
                rows.push(json!({ "carrier": name, "left_out": refused }));
                continue;
            }
            let speed = Speed::median(&figures[index]);
            let all = figures[index].iter().map(|run| run.gigabits);
            let (least, most) = (
                all.clone().fold(f64::MAX, f64::min),
                all.fold(0.0, f64::max),
            );
            let (over_bare, added_us) =
                (speed.gigabits / bare.gigabits, speed.ping_us - bare.ping_us);
            output.line(format_args!(
                "  {name:<22} {:>6.2} Gb/s ({least:.2} to {most:.2}, {over_bare:.2}x bare) {:>8.0} packets/s  \
                 ping {:>8.1} us ({added_us:+.1})  busy {:.0}%",
                speed.gigabits,
                speed.packets,
                speed.ping_us,
                speed.busy * 100.0
            ));
            rows.push(json!({ "carrier": name, "tcp_gigabits": speed.gigabits, "least": least, "most": most,
                "over_bare": over_bare, "packets_per_second": speed.packets, "ping_us": speed.ping_us,
                "added_us": added_us, "busy": speed.busy }));
            medians.push((*name, speed));
        }
        let goals = goals(&medians, output, wrong);
        Ok(json!({ "carriers": rows, "goals": goals }))
    }
}

/// Measures TCP and pings over a pair, once.
fn speed_of(
    pair: &Pair,
    name: &str,
    flows: usize,
    time: Duration,
    wrong: &mut Vec<String>,
) -> Result<Speed, BenchError> {
    let bytes = pair.tcp(flows, time).map_err(BenchError::failed)?;
    let report = pair.report()?;
    let seconds = (time + time / 4).as_secs_f64();
    let carried = |counts: &LinkCounts| counts.packets + counts.straight_frames;
    let packets = (carried(&report.there) + carried(&report.back)) as f64 / seconds;
    let times = pair.ping(300).map_err(BenchError::failed)?;
    let unintended = report.there.unintended() + report.back.unintended();
    if unintended > 0 && !name.starts_with("prototype") {
        wrong.push(format!("{name}: {}", joined(&report.trouble())));
    }
    Ok(Speed {
        gigabits: bytes * 8.0 / 1e9,
        packets,
        ping_us: times[times.len() / 2] * 1e6,
        busy: report.busy,
    })
}

/// The results for the goals that can be judged; missed goals are added to `wrong`.
fn goals(medians: &[(&str, Speed)], output: &dyn Console, wrong: &mut Vec<String>) -> Vec<Value> {
    let mut goals = Vec::new();
    for goal in GOALS {
        let of = |name: &str| {
            medians
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, speed)| *speed)
        };
        let (Some(this), Some(peer)) = (of(goal.subject), of(goal.beside)) else {
            continue;
        };
        let (seen, asked) = ((goal.seen)(&this, &peer), (goal.asked)(&peer));
        let reached = if goal.at_most {
            seen <= asked
        } else {
            seen >= asked
        };
        let word = if reached { "reached" } else { "MISSED" };
        let sign = if goal.at_most { "<=" } else { ">=" };
        let text = format!("{}: {seen:.2} {sign} {asked:.2} {}", goal.what, goal.unit);
        output.line(format_args!("  goal {word}: {text}"));
        goals.push(
            json!({ "what": goal.what, "seen": seen, "asked": asked, "unit": goal.unit,
            "reached": reached }),
        );
        if !reached {
            wrong.push(format!("missed: {text}"));
        }
    }
    goals
}

/// The figures of one run, or the medians of several.
#[derive(Clone, Copy, Debug)]
struct Speed {
    gigabits: f64,
    packets: f64,
    ping_us: f64,
    busy: f64,
}

impl Speed {
    fn median(runs: &[Speed]) -> Speed {
        let of = |get: fn(&Speed) -> f64| median(&runs.iter().map(get).collect::<Vec<f64>>());
        Speed {
            gigabits: of(|run| run.gigabits),
            packets: of(|run| run.packets),
            ping_us: of(|run| run.ping_us),
            busy: of(|run| run.busy),
        }
    }
}

/// A goal for one of our carriers, relative to a peer in the same run.
struct Goal {
    what: &'static str,
    subject: &'static str,
    beside: &'static str,
    seen: fn(&Speed, &Speed) -> f64,
    asked: fn(&Speed) -> f64,
    unit: &'static str,
    at_most: bool,
}

const GOALS: &[Goal] = &[
    Goal {
        what: "no impairments, 20 Gb/s or, on slower machines, 95% of the bare pair",
        subject: "brunt",
        beside: BARE,
        seen: |this, _| this.gigabits,
        asked: |bare| (bare.gigabits * 0.95).min(20.0),
        unit: "Gb/s",
        at_most: false,
    },
    Goal {
        what: "no impairments, relative to the prototype",
        subject: "brunt",
        beside: "prototype",
        seen: |this, prototype| this.gigabits / prototype.gigabits,
        asked: |_| 1.0,
        unit: "times",
        at_most: false,
    },
    Goal {
        what: "wire-size packets, TCP, relative to the prototype",
        subject: "brunt_wire_size",
        beside: "prototype_wire_size",
        seen: |this, prototype| this.gigabits / prototype.gigabits,
        asked: |_| 2.0,
        unit: "times",
        at_most: false,
    },
    Goal {
        what: "wire-size packets, packets/s, relative to the prototype",
        subject: "brunt_wire_size",
        beside: "prototype_wire_size",
        seen: |this, prototype| this.packets / prototype.packets,
        asked: |_| 2.0,
        unit: "times",
        at_most: false,
    },
    Goal {
        what: "10 ms each way and 8 flows, slower than the prototype by at most the difference \
            between runs",
        subject: "brunt_10ms_8_flows",
        beside: "prototype_10ms_8_flows",
        seen: |this, prototype| this.gigabits / prototype.gigabits,
        asked: |_| 0.95,
        unit: "times",
        at_most: false,
    },
    Goal {
        what: "added to a round trip, no impairments",
        subject: "brunt",
        beside: BARE,
        seen: |this, bare| this.ping_us - bare.ping_us,
        asked: |_| 50.0,
        unit: "us",
        at_most: true,
    },
    Goal {
        what: "added to a round trip, wire-size packets",
        subject: "brunt_wire_size",
        beside: BARE,
        seen: |this, bare| this.ping_us - bare.ping_us,
        asked: |_| 50.0,
        unit: "us",
        at_most: true,
    },
];
