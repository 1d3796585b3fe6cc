//! Resource usage of a process: the runner itself or a served target, so that the cost of each is known. From its
//! `stat` (CPU time of all threads, including ended ones, in ticks; memory) and the `status` of its threads (context
//! switches).
//!
//! CPU time comes from the most precise counter that covers all of it: the process's own cgroup, its threads'
//! `schedstat`, or ticks if threads ended in between.
//!
//! The rule: context switches of ended threads are lost, because the kernel only lists existing threads. The runner's
//! own context switches come from getrusage, which includes those of ended threads.

use std::collections::BTreeMap;
use std::time::Duration;

use brunt_core::ProcessStat;

use super::figures::{Malformed, Sink, Texts, Ticked, named, numbers};
use super::{Metric, Probe, Scope, headline};

pub struct Process;

/// CPU time.
struct Times {
    user_ticks: u64,
    system_ticks: u64,
    /// Nanoseconds by thread; `None` if the kernel does not provide them.
    threads: Option<BTreeMap<u64, u64>>,
    /// For a process that has a cgroup to itself.
    cgroup: Option<CgroupTimes>,
}

/// Microseconds used by a cgroup.
struct CgroupTimes {
    usage: u64,
    user: u64,
    system: u64,
}

/// Rounding may make the sum of user and system ticks this many too large: each is truncated to a tick in both
/// readings.
const TICKS_OFF: f64 = 2.0;

pub struct Reading {
    times: Ticked<Times>,
    threads: u64,
    resident_pages: u64,
    /// Voluntary and involuntary switches, by thread.
    switches: BTreeMap<u64, [u64; 2]>,
}

impl Probe for Process {
    const NAME: &'static str = "process";
    const HELP: &'static str =
        "CPU time, memory and context switches of the runner and of our targets";
    const SCOPE: Scope = Scope::Process;
    const FILES: &'static [&'static str] = &[
        "{process}/stat",
        "{process}/task/*/status",
        "{process}/task/*/schedstat",
        "{process}/cgroup",
    ];
    const METRICS: &'static [Metric] = &[
        headline(
            "total_cpus",
            "CPU seconds per second; 2 is two CPUs all the time",
        ),
        headline(
            "user_cpus",
            "total_cpus spent in user mode, split by ticks or by the process's own cgroup",
        ),
        headline(
            "system_cpus",
            "total_cpus spent in the kernel on behalf of the process, split the same way",
        ),
        headline(
            "voluntary_switches_per_s",
            "context switches because a thread waited",
        ),
        headline(
            "involuntary_switches_per_s",
            "context switches because a thread's time slice ended",
        ),
        headline("resident_bytes", "memory that is in RAM"),
        headline("threads", "threads when the counters were read"),
    ];
    type Reading = Reading;

    fn parse(texts: &Texts<'_>) -> Result<Reading, Malformed> {
        let stat = texts.need(0)?;
        let stat = ProcessStat::parse(stat).ok_or_else(|| Malformed::new("no stat", stat))?;
        let (threads_nanos, cgroup) = (cpu_nanos(texts.get(2))?, cgroup_times(texts.get(3))?);
        let times = Ticked::new(Times {
            user_ticks: stat.user_ticks,
            system_ticks: stat.system_ticks,
            threads: threads_nanos,
            cgroup,
        });
        Ok(Reading {
            times,
            threads: stat.threads,
            resident_pages: stat.resident_pages,
            switches: switches(texts.get(1))?,
        })
    }

    fn figures(before: &Reading, now: &Reading, elapsed: Duration, sink: &mut Sink<'_>) {
        if let Some((earlier, stretch)) = before.times.since(elapsed) {
            cpus(earlier, now.times.now(), stretch, sink);
        }
        sink.put("threads", now.threads as f64);
        sink.put(
            "resident_bytes",
            now.resident_pages as f64 * rustix::param::page_size() as f64,
        );
        if now.switches.is_empty() {
            return;
        }
        let mut made = [0; 2];
        for (thread, counters) in &now.switches {
            // A new thread made all of its switches since the last reading.
            let earlier = before.switches.get(thread).copied().unwrap_or_default();
            for ((sum, now), before) in made.iter_mut().zip(counters).zip(earlier) {
                *sum += now.saturating_sub(before);
            }
        }
        sink.rate("voluntary_switches_per_s", (0, made[0]), 1.0, elapsed);
        sink.rate("involuntary_switches_per_s", (0, made[1]), 1.0, elapsed);
    }

    fn carry(before: Reading, now: &mut Reading, elapsed: Duration) {
        before.times.carry(&mut now.times, elapsed);
    }
}

/// Reports how many CPUs were used, in total and by mode.
fn cpus(before: &Times, now: &Times, stretch: Duration, sink: &mut Sink<'_>) {
    if let (Some(before), Some(now)) = (&before.cgroup, &now.cgroup) {
        let micro = 1e-6;
        sink.rate("total_cpus", (before.usage, now.usage), micro, stretch);
        sink.rate("user_cpus", (before.user, now.user), micro, stretch);
        sink.rate("system_cpus", (before.system, now.system), micro, stretch);
        return;
    }
    let ticks = |before: u64, now: u64| now.saturating_sub(before) as f64;
    let (user, system) = (
        ticks(before.user_ticks, now.user_ticks),
        ticks(before.system_ticks, now.system_ticks),
    );
    let tick_s = 1.0 / rustix::param::clock_ticks_per_second() as f64;
    // Ticks cover all threads but are coarse; nanoseconds only cover threads that still exist.
    let told = threads_seconds(before, now);
    let missed_none = |seconds: &f64| (user + system - TICKS_OFF) * tick_s <= *seconds;
    let Some(seconds) = told.filter(missed_none) else {
        sink.rate("total_cpus", (0, (user + system) as u64), tick_s, stretch);
        sink.rate("user_cpus", (0, user as u64), tick_s, stretch);
        sink.rate("system_cpus", (0, system as u64), tick_s, stretch);
        return;
    };
    let total = seconds / stretch.as_secs_f64();
    sink.put("total_cpus", total);
    if total == 0.0 || user + system > 0.0 {
        let share = |part: f64| total * part / (user + system).max(1.0);
        sink.put("user_cpus", share(user));
        sink.put("system_cpus", share(system));
    }
}

/// Returns the seconds used by the current threads; `None` if the kernel does not provide them.
fn threads_seconds(before: &Times, now: &Times) -> Option<f64> {
    let (earlier, threads) = (before.threads.as_ref()?, now.threads.as_ref()?);
    // A new thread used all of its time since the last reading.
    let used = |(thread, nanos): (&u64, &u64)| {
        nanos.saturating_sub(earlier.get(thread).copied().unwrap_or(0))
    };
    Some(threads.iter().map(used).sum::<u64>() as f64 / 1e9)
}

/// Parses a cgroup's `cpu.stat` (cgroup-v2.rst); `None` for an empty text.
fn cgroup_times(text: Option<&str>) -> Result<Option<CgroupTimes>, Malformed> {
    let text = text.unwrap_or_default();
    let figures = (
        named(text, "usage_usec")?,
        named(text, "user_usec")?,
        named(text, "system_usec")?,
    );
    Ok(match figures {
        (Some(usage), Some(user), Some(system)) => Some(CgroupTimes {
            usage,
            user,
            system,
        }),
        _ => None,
    })
}

/// Parses the CPU time in nanoseconds by thread, from lines with a thread's ID and its `schedstat`.
fn cpu_nanos(text: Option<&str>) -> Result<Option<BTreeMap<u64, u64>>, Malformed> {
    let Some(text) = text else { return Ok(None) };
    let of = |line: &str| {
        numbers(line.split_ascii_whitespace(), line).map(|[thread, nanos]| (thread, nanos))
    };
    text.lines().map(of).collect::<Result<_, _>>().map(Some)
}

/// Parses the context switches by thread, from several concatenated `status` files.
fn switches(text: Option<&str>) -> Result<BTreeMap<u64, [u64; 2]>, Malformed> {
    let mut threads: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
    let mut thread = None;
    for line in text.unwrap_or_default().lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let place = match name {
            "Pid" => None,
            "voluntary_ctxt_switches" => Some(0),
            "nonvoluntary_ctxt_switches" => Some(1),
            _ => continue,
        };
        let [value] = numbers(value.split_ascii_whitespace(), line)?;
        match place {
            None => thread = Some(value),
            Some(place) => {
                let thread = thread.ok_or_else(|| Malformed::new("switches of no thread", line))?;
                threads.entry(thread).or_default()[place] = value;
            }
        }
    }
    Ok(threads)
}
