//! Counts the traffic of other hosts' interfaces during each run, as a hook: agents read the kernel's byte counters
//! before the run, to measure the traffic without load, and during the run. [`brunt_result::transfer`] defines the
//! figures.
//!
//! The rule: bytes count only for the time in which the load was measured, and each figure comes with its error. If a
//! counter isn't known for the whole run, there is no figure, but a reason.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use brunt_core::Nanos;
use brunt_core::readings::ReadingLog;
use brunt_host::{CountedInterfaces, Fleet, FleetError};
use brunt_result::Outcome;
use brunt_result::statistics::Estimate;
use brunt_result::summary::RunSummary;
use brunt_result::transfer::{InterfaceTraffic, UnknownTraffic};
use brunt_result::void::VoidReason;

use super::readings::{
    Bytes, LoadEnd, at, at_end, between, load_end, phase_time, rest, transfer_of,
};
use super::{HookError, RunHook};
use crate::observe::{Hub, RunInfo};

/// Number of parts of the idle time; the differences between their rates show how much the traffic varies.
const IDLE_PARTS: usize = 10;

/// Counts these interfaces of hosts; each run is preceded by the idle time `idle`, unless `interrupted` is set.
pub(super) fn interfaces(
    fleet: &Arc<Fleet>,
    hosts: Vec<(String, Vec<String>)>,
    idle: Option<Duration>,
    interrupted: Arc<AtomicBool>,
) -> Box<dyn RunHook> {
    Box::new(Interfaces {
        fleet: Arc::clone(fleet),
        hosts,
        idle,
        interrupted,
        before: Vec::new(),
        during: Vec::new(),
        is_counting: false,
        has_ramp_up: false,
    })
}

/// The hook.
struct Interfaces {
    fleet: Arc<Fleet>,
    /// Each host and its interfaces.
    hosts: Vec<(String, Vec<String>)>,
    idle: Option<Duration>,
    interrupted: Arc<AtomicBool>,
    /// Each host's readings without load.
    before: Vec<Option<CountedInterfaces>>,
    /// Each host's readings during the last run.
    during: Vec<Option<CountedInterfaces>>,
    is_counting: bool,
    /// Whether the load was already running before measuring began.
    has_ramp_up: bool,
}

/// A counter's readings, in order.
type Log = ReadingLog<Bytes>;

/// A reading: the time, and the bytes in each direction.
type CounterAt = (Nanos, [f64; 2]);

/// The measured time of a run, and how far a host's times may be off.
#[derive(Clone, Copy, Debug)]
struct Measured {
    start: Nanos,
    has_ramp_up: bool,
    end: LoadEnd,
    clock_error: Duration,
}

impl Interfaces {
    fn count(&mut self) -> Result<(), HookError> {
        for (host, interfaces) in &self.hosts {
            let counted = self.fleet.count(host, interfaces);
            counted.map_err(|error| HookError::not_ready("interfaces of other hosts", error))?;
        }
        self.is_counting = true;
        Ok(())
    }

    /// Ends the readings on all hosts; `None` for a host that doesn't answer.
    fn uncount(&mut self) -> Vec<Option<CountedInterfaces>> {
        self.is_counting = false;
        // All hosts are asked to stop before waiting for the first.
        let uncount = |(host, _): &(String, Vec<String>)| self.fleet.uncount(host);
        let asked: Vec<Result<_, FleetError>> = self.hosts.iter().map(uncount).collect();
        asked
            .into_iter()
            .map(|asked| asked.ok().and_then(|asked| asked.wait()))
            .collect()
    }

    /// Checks that the hosts that answer have their interfaces.
    fn check(&self) -> Result<(), HookError> {
        for ((host, interfaces), counted) in self.hosts.iter().zip(&self.before) {
            let last = counted.as_ref().and_then(|counted| counted.readings.last());
            for (index, interface) in interfaces.iter().enumerate() {
                if last.is_some_and(|last| last.bytes[index].is_none()) {
                    let what = format!("host {host} has no interface '{interface}'");
                    return Err(HookError {
                        advice: Some(format!(
                            "correct interfaces under [hosts.{host}]; ip link shows the names there"
                        )),
                        ..HookError::new(VoidReason::NotReady, what)
                    });
                }
            }
        }
        Ok(())
    }

    /// The traffic of an interface during a run, and its readings.
    fn traffic(
        &self,
        (host, interface): (usize, usize),
        outcome: &Outcome,
        end: LoadEnd,
    ) -> Result<(InterfaceTraffic, Log), UnknownTraffic> {
        let during = self.during.get(host).and_then(Option::as_ref);
        let during = during.ok_or(UnknownTraffic::NoAnswer)?;
        let log = log_of(during, interface)?;
        let measured = Measured {
            start: outcome.start,
            has_ramp_up: self.has_ramp_up,
            end,
            clock_error: during.clock_error,
        };
        let idle = match self.idle.and(self.before.get(host)) {
            Some(Some(before)) => log_of(before, interface).ok(),
            _ => None,
        };
        let seconds = end.at.since(outcome.start).as_secs_f64();
        let rate = idle.as_ref().and_then(rate_of);
        let traffic = InterfaceTraffic {
            idle_sent_bytes_per_second: rate,
            idle_sent_error_bytes_per_second: idle
                .as_ref()
                .and_then(|idle| rate_error(idle, seconds)),
            ..measured.traffic(&log, rate)?
        };
        Ok((traffic, log))
    }
}

impl RunHook for Interfaces {
    fn begin(&mut self, _run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
        self.during.clear();
        // If there is no idle time, this is done once, to check the interfaces.
        if self.idle.is_some() || self.before.is_empty() {
            self.count()?;
            rest(self.idle.unwrap_or_default(), &self.interrupted);
            self.before = self.uncount();
            self.check()?;
        }
        self.count()
    }

    fn starts(&mut self, start: Nanos, ramp_up: Duration) {
        self.has_ramp_up = !ramp_up.is_zero();
        for (host, _) in &self.hosts {
            // This can't fail for an unknown host, because its readings began with the run.
            let _ = self.fleet.count_from(host, start.after(ramp_up));
        }
    }

    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        if self.is_counting {
            self.during = self.uncount();
        }
        Ok(())
    }

    fn sum_up(&mut self, run: &mut RunSummary, outcome: &Outcome) {
        if outcome.end <= outcome.start {
            return;
        }
        let end = load_end(run, outcome);
        let mut doubts = Vec::new();
        let transfer = transfer_of(run, outcome);
        for (host, (name, interfaces)) in self.hosts.iter().enumerate() {
            for (index, interface) in interfaces.iter().enumerate() {
                let key = format!("{name}:{interface}");
                match self.traffic((host, index), outcome, end) {
                    Ok((traffic, log)) => {
                        for phase in &mut transfer.phases {
                            let [from, until] =
                                [phase.start_s, phase.end_s].map(|at| phase_time(outcome, at));
                            let sent = between(&log, from, until, end)[0][0];
                            phase.interfaces.insert(key.clone(), sent);
                        }
                        transfer.interfaces.insert(key, traffic);
                    }
                    Err(why) => {
                        doubts.push(format!(
                            "bytes per useful byte are unknown: interface {interface} of host {name}: {}",
                            describe(why)
                        ));
                        transfer.unknown.insert(key, why);
                    }
                }
            }
        }
        run.doubts.extend(doubts);
    }
}

impl Drop for Interfaces {
    fn drop(&mut self) {
        let _ = self.end(false);
    }
}

impl Measured {
    /// The traffic in this time, without the idle traffic; `idle` is its rate, if known.
    fn traffic(&self, log: &Log, idle: Option<f64>) -> Result<InterfaceTraffic, UnknownTraffic> {
        let (start, start_error) = self.at_start(log, idle)?;
        let (end, end_error) = self.at_end(log)?;
        let grown = |way: usize| (end[way] - start[way]).max(0.0).round() as u64;
        Ok(InterfaceTraffic {
            sent_bytes: grown(0),
            sent_error_bytes: (start_error + end_error).round() as u64,
            received_bytes: grown(1),
            ..InterfaceTraffic::default()
        })
    }

    /// The counters at the start, and how far off the first of them may be. Without ramp-up, there is no load before
    /// the start: an early reading is accurate, except for the idle traffic since then.
    fn at_start(&self, log: &Log, idle: Option<f64>) -> Result<([f64; 2], f64), UnknownTraffic> {
        let (low, high) = self.around(log, self.start)?;
        if self.has_ramp_up {
            let found = at(log, self.start)[0];
            let [below, above] = [found[0] - low.1[0], high.1[0] - found[0]];
            return Ok((found, below.min(above).max(0.0)));
        }
        let early = self.start.since(low.0).as_secs_f64();
        let error = idle.map_or(high.1[0] - low.1[0], |idle| idle * early);
        Ok((low.1, error))
    }

    /// The counters at the end of the load, and how far off the first of them may be.
    fn at_end(&self, log: &Log) -> Result<([f64; 2], f64), UnknownTraffic> {
        let (low, high) = self.around(log, self.end.at)?;
        if !self.end.is_quiet {
            return Ok((at_end(log, self.end)[0], (high.1[0] - low.1[0]) / 2.0));
        }
        // By that time the load has certainly ended, whatever the clock's error.
        let end = LoadEnd {
            at: self.end.at.after(self.clock_error),
            ..self.end
        };
        let found = at_end(log, end)[0];
        Ok((found, (high.1[0] - found[0]).max(0.0)))
    }

    /// The last reading certainly before this moment, and the first certainly after it.
    fn around(&self, log: &Log, when: Nanos) -> Result<(CounterAt, CounterAt), UnknownTraffic> {
        let of = |(at, bytes): &(Nanos, Bytes)| (*at, bytes[0].map(|bytes| bytes as f64));
        let all = log.all();
        let before = all.partition_point(|(at, _)| at.after(self.clock_error) <= when);
        let after = all.partition_point(|(at, _)| *at < when.after(self.clock_error));
        let before = before.checked_sub(1).map(|before| of(&all[before]));
        let around = before.zip(all.get(after).map(of));
        around.ok_or(UnknownTraffic::NotRead)
    }
}

/// An interface's readings in order.
fn log_of(counted: &CountedInterfaces, interface: usize) -> Result<Log, UnknownTraffic> {
    let mut log = ReadingLog::new(Duration::ZERO, usize::MAX);
    let mut last = (Nanos(0), [0; 2]);
    for reading in &counted.readings {
        let bytes = reading.bytes.get(interface).copied().flatten();
        let bytes = bytes.ok_or(UnknownTraffic::NoCounter)?;
        if (0..2).any(|way| bytes[way] < last.1[way]) {
            return Err(UnknownTraffic::WentBackwards);
        }
        // Converting times to our clock may move them, by less than the clock's error.
        last = (reading.at.max(last.0), bytes);
        log.add(last.0, vec![bytes]);
    }
    match log.all().is_empty() {
        true => Err(UnknownTraffic::NoCounter),
        false => Ok(log),
    }
}

/// Bytes sent per second from the first reading to the last.
fn rate_of(log: &Log) -> Option<f64> {
    rate_between(log.all().first()?, log.all().last()?)
}

fn rate_between(from: &(Nanos, Bytes), to: &(Nanos, Bytes)) -> Option<f64> {
    let seconds = to.0.since(from.0).as_secs_f64();
    (seconds > 0.0).then(|| (to.1[0][0] - from.1[0][0]) as f64 / seconds)
}

/// Half the width of the interval that contains the rate in a later time of `seconds` with a probability of 95 %:
/// with n parts of the idle time T, whose mean has the half-width h by Student's t, a part of that length varies by
/// h·√n, the mean over a later time t by h·√(T/t), and both means together by h·√(1 + T/t).
fn rate_error(log: &Log, seconds: f64) -> Option<f64> {
    let all = log.all();
    let parts = IDLE_PARTS.min(all.len().checked_sub(1)?);
    let border = |part: usize| &all[part * (all.len() - 1) / parts];
    let rates = (0..parts).map(|part| rate_between(border(part), border(part + 1)));
    let mean = Estimate::of(&rates.collect::<Option<Vec<f64>>>()?)?;
    let idle = all.last()?.0.since(all.first()?.0).as_secs_f64();
    Some((mean.high? - mean.mean) * (1.0 + idle / seconds).sqrt())
}

fn describe(why: UnknownTraffic) -> &'static str {
    match why {
        UnknownTraffic::NoAnswer => "the host was lost or did not answer",
        UnknownTraffic::NoCounter => "the interface disappeared",
        UnknownTraffic::WentBackwards => {
            "its counter went backwards, because it was reset or wraps at 32 bits"
        }
        UnknownTraffic::NotRead => "its counter was not read both before and after the run",
    }
}

#[cfg(test)]
mod tests {
    use brunt_protocol::InterfaceReading;

    use super::*;

    fn at_ms(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    fn counted(readings: &[(u64, Option<u64>)]) -> CountedInterfaces {
        let reading = |&(millis, sent): &(u64, Option<u64>)| InterfaceReading {
            at: at_ms(millis),
            bytes: vec![sent.map(|sent| [sent, 2 * sent])],
        };
        CountedInterfaces {
            readings: readings.iter().map(reading).collect(),
            clock_error: Duration::from_millis(1),
        }
    }

    /// A run of one second that begins at 1 s.
    fn second(has_ramp_up: bool, is_quiet: bool) -> Measured {
        Measured {
            start: at_ms(1_000),
            has_ramp_up,
            end: LoadEnd {
                at: at_ms(2_000),
                is_quiet,
            },
            clock_error: Duration::from_millis(1),
        }
    }

    /// Counters that wrap or vanish, and readings that don't cover the run, give a reason instead of a figure.
    #[test]
    fn what_the_counters_do_not_show_is_unknown() {
        let check = |readings: &[(u64, Option<u64>)], expected| {
            let found = log_of(&counted(readings), 0)
                .and_then(|log| second(false, true).traffic(&log, Some(0.0)));
            assert_eq!(
                found.map(|traffic| traffic.sent_bytes),
                expected,
                "{readings:?}"
            );
        };
        let whole = [
            (990, Some(5)),
            (1_010, Some(7)),
            (2_005, Some(105)),
            (2_025, Some(105)),
        ];
        check(&whole, Ok(100));
        check(&whole[1..], Err(UnknownTraffic::NotRead));
        check(&whole[..2], Err(UnknownTraffic::NotRead));
        check(&[], Err(UnknownTraffic::NoCounter));
        check(
            &[whole[0], (1_500, None), whole[2]],
            Err(UnknownTraffic::NoCounter),
        );
        let wrapped = [
            (990, Some(u64::from(u32::MAX))),
            whole[1],
            whole[2],
            whole[3],
        ];
        check(&wrapped, Err(UnknownTraffic::WentBackwards));
    }

    /// Background traffic of 1 byte per millisecond continues after a load of 10 bytes per millisecond.
    #[test]
    fn the_error_is_what_readings_leave_open() {
        let sent = |now: u64| now + 10 * now.clamp(1_000, 2_000);
        let readings: Vec<_> = (0..3_000)
            .step_by(40)
            .map(|now| (now + 30, Some(sent(now + 30))))
            .collect();
        let log = log_of(&counted(&readings), 0).unwrap();
        let check = |measured: Measured, idle, error: u64| {
            let found = measured.traffic(&log, idle).unwrap();
            let off = found.sent_bytes.abs_diff(11_000);
            assert_eq!(found.sent_error_bytes, error, "{found:?}");
            assert!(off <= error, "{off} {found:?}");
            assert!(
                found.received_bytes.abs_diff(22_000) <= 2 * error,
                "{found:?}"
            );
        };
        // The readings are 10 ms before and 30 ms after the end, at the background's rate.
        check(second(false, true), Some(1_000.0), 10 + 29);
        // Without a known idle rate, the load in the 30 ms after the start is uncertain too.
        check(second(false, true), None, 40 + 300 + 29);
        // With ramp-up, the error at the start is the distance to the nearer reading; if requests are outstanding,
        // the error at the end is half of the growth between two readings.
        check(second(true, false), Some(1_000.0), 85 + 70);
    }

    /// A steady rate has no error. For a rate that varies, the error is larger the shorter the later time is.
    #[test]
    fn an_idle_rate_is_as_certain_as_it_is_steady() {
        let log = |sent: &dyn Fn(u64) -> u64| {
            let readings: Vec<_> = (0..=100)
                .map(|step| (step * 20, Some(sent(step))))
                .collect();
            log_of(&counted(&readings), 0).unwrap()
        };
        let steady = log(&|step| step * 10);
        assert_eq!(rate_of(&steady), Some(500.0));
        assert!(rate_error(&steady, 1.0).unwrap() < 1e-6);
        let bursts = log(&|step| step / 30 * 300);
        assert_eq!(rate_of(&bursts), Some(450.0));
        let [short, long] = [1.0, 1e9].map(|seconds| rate_error(&bursts, seconds).unwrap());
        assert!(
            (short / long - 3f64.sqrt()).abs() < 1e-6 && long > 100.0,
            "{short} {long}"
        );
        assert_eq!(
            rate_error(&log_of(&counted(&[(0, Some(1))]), 0).unwrap(), 1.0),
            None
        );
    }
}
