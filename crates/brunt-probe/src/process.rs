//! What one process used: the runner itself, or a target that is ours, so that the cost of each is
//! told apart. From its `stat` (CPU time of all threads, ended ones too, in ticks; memory) and the
//! `status` of its threads (context switches).
//!
//! The rule: switches of a thread that ended are lost with it, since the kernel tells only those of
//! threads that there are. The runner's own come from getrusage, which keeps them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::figures::{Malformed, Sink, Texts, numbers};
use super::{Metric, Probe, Scope, headline};

pub struct Process;

pub struct Reading {
    user_ticks: u64,
    system_ticks: u64,
    threads: u64,
    resident_pages: u64,
    /// Voluntary and involuntary, by thread.
    switches: BTreeMap<u64, [u64; 2]>,
}

impl Probe for Process {
    const NAME: &'static str = "process";
    const HELP: &'static str = "CPU time, memory and context switches of the runner and of our targets";
    const SCOPE: Scope = Scope::Process;
    const FILES: &'static [&'static str] = &["{process}/stat", "{process}/task/*/status"];
    const METRICS: &'static [Metric] = &[
        headline("user_cpus", "CPU seconds a second in user mode; 2 is two CPUs all the time"),
        headline("system_cpus", "CPU seconds a second in the kernel on its behalf"),
        headline("voluntary_switches_per_s", "context switches because a thread waited"),
        headline("involuntary_switches_per_s", "context switches because a thread's time was up"),
        headline("resident_bytes", "memory that is in RAM"),
        headline("threads", "when the counters were read"),
    ];
    type Reading = Reading;

    fn parse(texts: &Texts<'_>) -> Result<Reading, Malformed> {
        let stat = texts.need(0)?;
        // The name stands in parentheses and may hold anything, parentheses and spaces too.
        let (_, rest) = stat.rsplit_once(')').ok_or_else(|| Malformed::new("no name", stat))?;
        let mut fields = rest.split_ascii_whitespace();
        // proc_pid_stat(5): state is field 3, utime 14, stime 15, num_threads 20, rss 24.
        let mut field = |skip: usize| numbers::<1>(fields.nth(skip).into_iter(), stat);
        let [user_ticks] = field(11)?;
        let [system_ticks] = field(0)?;
        let [threads] = field(4)?;
        let [resident_pages] = field(3)?;
        Ok(Reading { user_ticks, system_ticks, threads, resident_pages, switches: switches(texts.get(1))? })
    }

    fn figures(before: &Reading, now: &Reading, elapsed: Duration, sink: &mut Sink<'_>) {
        let second = 1.0 / rustix::param::clock_ticks_per_second() as f64;
        sink.rate("user_cpus", (before.user_ticks, now.user_ticks), second, elapsed);
        sink.rate("system_cpus", (before.system_ticks, now.system_ticks), second, elapsed);
        sink.put("threads", now.threads as f64);
        sink.put("resident_bytes", now.resident_pages as f64 * rustix::param::page_size() as f64);
        if now.switches.is_empty() {
            return;
        }
        let mut made = [0; 2];
        for (thread, counters) in &now.switches {
            // A thread that was not there before made all of its switches since then.
            let earlier = before.switches.get(thread).copied().unwrap_or_default();
            for ((sum, now), before) in made.iter_mut().zip(counters).zip(earlier) {
                *sum += now.saturating_sub(before);
            }
        }
        sink.rate("voluntary_switches_per_s", (0, made[0]), 1.0, elapsed);
        sink.rate("involuntary_switches_per_s", (0, made[1]), 1.0, elapsed);
    }
}

/// Of every thread in a text of several `status` files, one after the other.
fn switches(text: Option<&str>) -> Result<BTreeMap<u64, [u64; 2]>, Malformed> {
    let mut threads: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
    let mut thread = None;
    for line in text.unwrap_or_default().lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
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
