//! CPU time by state, over all CPUs and per CPU. From `/proc/stat` (proc(5)), in ticks of a hundredth of a second, so
//! that over 100 ms a CPU's share is only known to about 10 %.
//!
//! The rule: shares refer to the time that the kernel accounted for, so they always add up to one.

use std::time::Duration;

use super::figures::{INSTANCES_MAX, Malformed, Rows, Sink, Texts, Ticked, numbers, pairs};
use super::{Metric, Probe, headline, metric_of};

pub struct Cpu;

/// user, nice, system, idle, iowait, irq, softirq, steal. Guest time is already included in user and nice.
const FIELDS: usize = 8;

impl Probe for Cpu {
    const NAME: &'static str = "cpu";
    const HELP: &'static str = "CPU time by state, overall and per CPU";
    const FILES: &'static [&'static str] = &["/proc/stat"];
    const METRICS: &'static [Metric] = &[
        headline("busy_share", "neither idle nor waiting for devices"),
        headline("user_share", "in user mode, including nice"),
        headline("system_share", "in the kernel, except interrupts"),
        headline("interrupt_share", "in hardware and software interrupts"),
        headline("iowait_share", "idle while a task waited for a device"),
        headline("steal_share", "taken by the hypervisor for others"),
        metric_of("idle_share", "idle with nothing to wait for"),
    ];
    type Reading = Ticked<Rows<FIELDS>>;

    fn parse(texts: &Texts<'_>) -> Result<Ticked<Rows<FIELDS>>, Malformed> {
        let mut rows = Rows::new();
        for line in texts.need(0)?.lines() {
            let Some(rest) = line.strip_prefix("cpu") else {
                continue;
            };
            let mut fields = rest.split_ascii_whitespace();
            // `cpu  1 2 …` is the total, `cpu0 1 2 …` is one CPU.
            let name = if rest.starts_with(' ') {
                ""
            } else {
                fields.next().unwrap_or_default()
            };
            let name = if name.is_empty() {
                String::new()
            } else {
                format!("cpu{name}")
            };
            rows.push((name.into(), numbers(fields, line)?));
            if rows.len() > INSTANCES_MAX {
                break;
            }
        }
        match rows.is_empty() {
            true => Err(Malformed::new("no line for a CPU", "")),
            false => Ok(Ticked::new(rows)),
        }
    }

    fn figures(
        before: &Self::Reading,
        now: &Self::Reading,
        elapsed: Duration,
        sink: &mut Sink<'_>,
    ) {
        let Some((before, _)) = before.since(elapsed) else {
            return;
        };
        for (name, before, now) in pairs(before, now.now()) {
            // Idle and iowait may decrease slightly (Documentation/filesystems/proc.rst), which counts as no change.
            let ticks: [u64; FIELDS] =
                std::array::from_fn(|index| now[index].saturating_sub(before[index]));
            let [user, nice, system, idle, iowait, irq, softirq, steal] =
                ticks.map(|count| count as f64);
            let all: f64 = user + nice + system + idle + iowait + irq + softirq + steal;
            if all == 0.0 {
                // The interval is shorter than a tick, or the CPU is offline.
                continue;
            }
            sink.put_of(name, "busy_share", (all - idle - iowait) / all);
            sink.put_of(name, "user_share", (user + nice) / all);
            sink.put_of(name, "system_share", system / all);
            sink.put_of(name, "interrupt_share", (irq + softirq) / all);
            sink.put_of(name, "iowait_share", iowait / all);
            sink.put_of(name, "steal_share", steal / all);
            sink.put_of(name, "idle_share", idle / all);
        }
    }

    fn carry(before: Self::Reading, now: &mut Self::Reading, elapsed: Duration) {
        before.carry(now, elapsed);
    }
}
