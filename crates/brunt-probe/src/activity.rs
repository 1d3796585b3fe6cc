//! Rates of interrupts, task switches and new tasks, and the number of runnable tasks. From `/proc/stat` (proc(5)).

use std::time::Duration;

use super::figures::{Malformed, Sink, Texts, named};
use super::{Metric, Probe, headline, metric_of};

pub struct Activity;

#[derive(Default)]
pub struct Reading {
    interrupts: Option<u64>,
    soft_interrupts: Option<u64>,
    switches: Option<u64>,
    forks: Option<u64>,
    running: Option<u64>,
    blocked: Option<u64>,
}

impl Probe for Activity {
    const NAME: &'static str = "activity";
    const HELP: &'static str = "interrupts, context switches, tasks";
    const FILES: &'static [&'static str] = &["/proc/stat"];
    const METRICS: &'static [Metric] = &[
        headline("interrupts_per_s", "hardware interrupts of all CPUs"),
        headline("soft_interrupts_per_s", "software interrupts of all CPUs"),
        headline("context_switches_per_s", "of all CPUs"),
        metric_of("forks_per_s", "tasks made"),
        metric_of(
            "runnable_tasks",
            "tasks running, or waiting for a CPU, when the counters were read",
        ),
        metric_of(
            "blocked_tasks",
            "tasks waiting for a device when the counters were read",
        ),
    ];
    type Reading = Reading;

    fn parse(texts: &Texts<'_>) -> Result<Reading, Malformed> {
        let text = texts.need(0)?;
        Ok(Reading {
            interrupts: named(text, "intr")?,
            soft_interrupts: named(text, "softirq")?,
            switches: Some(named(text, "ctxt")?.ok_or(Malformed::new("no line 'ctxt'", ""))?),
            forks: named(text, "processes")?,
            running: named(text, "procs_running")?,
            blocked: named(text, "procs_blocked")?,
        })
    }

    fn figures(before: &Reading, now: &Reading, elapsed: Duration, sink: &mut Sink<'_>) {
        let counters = [
            ("interrupts_per_s", before.interrupts, now.interrupts),
            (
                "soft_interrupts_per_s",
                before.soft_interrupts,
                now.soft_interrupts,
            ),
            ("context_switches_per_s", before.switches, now.switches),
            ("forks_per_s", before.forks, now.forks),
        ];
        for (metric, before, now) in counters {
            if let Some(counters) = before.zip(now) {
                sink.rate(metric, counters, 1.0, elapsed);
            }
        }
        for (metric, gauge) in [
            ("runnable_tasks", now.running),
            ("blocked_tasks", now.blocked),
        ] {
            if let Some(gauge) = gauge {
                sink.put(metric, gauge as f64);
            }
        }
    }
}
