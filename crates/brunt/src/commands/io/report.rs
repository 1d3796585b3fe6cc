//! What `brunt io` says of the requests that it made: lines for people, one object for programs, and the failure
//! that ends it when something was wrong.

use std::fmt::Arguments;
use std::time::Duration;

use brunt_block::Health;
use brunt_core::units::format_size;
use brunt_core::{Cost, Nanos};
use serde_json::json;
use sha2::Digest;

use super::content::hex;
use super::run::{Job, Run, Seen};
use crate::cli::{Done, Failure};

/// What the requests of a run came to, beside what it saw of each.
pub struct Came {
    /// From the first request to the last completion, or that of the flush.
    pub elapsed: Duration,
    /// Of this process.
    pub cost: Cost,
    /// Of the ring.
    pub system_calls: u64,
    /// Of the device.
    pub health: Health,
    /// Every request was made and answered.
    pub complete: bool,
}

/// Figures of all requests; latencies in microseconds.
struct Figures {
    seconds: f64,
    iops: f64,
    mb_per_s: f64,
    min: f64,
    mean: f64,
    p50: f64,
    p99: f64,
    max: f64,
    cpu_us: f64,
    user_us: f64,
    system_calls: f64,
    switches: f64,
}

impl Figures {
    fn of(seen: &Seen, came: &Came) -> Figures {
        let seconds = came.elapsed.as_secs_f64().max(1e-9);
        let requests = seen.requests.max(1) as f64;
        let us = |time: Option<Nanos>| time.unwrap_or_default().0 as f64 / 1000.0;
        Figures {
            seconds,
            iops: seen.requests as f64 / seconds,
            mb_per_s: seen.bytes as f64 / seconds / 1e6,
            min: us(seen.latency.min()),
            mean: seen.latency.mean().unwrap_or(0.0) / 1000.0,
            p50: us(seen.latency.percentile(50.0)),
            p99: us(seen.latency.percentile(99.0)),
            max: us(seen.latency.max()),
            cpu_us: came.cost.cpu().as_secs_f64() * 1e6 / requests,
            user_us: came.cost.user.as_secs_f64() * 1e6 / requests,
            system_calls: came.system_calls as f64 / requests,
            switches: came.cost.switches() as f64 / requests,
        }
    }
}

/// Prints it, and fails when a request did, or data was wrong or missing.
///
/// # Errors
/// See above.
pub fn report(mut run: Run<'_>, came: Came) -> Done {
    let hash = run.hash.take().filter(|_| came.complete);
    let checksum = hash.map(|hash| hex(&hash.finalize()));
    let figures = Figures::of(&run.seen, &came);
    lines(&run, &came, &figures, checksum.as_deref());
    object(&run, &came, &figures, checksum.as_deref());
    verdict(&run, &came)
}

fn order(run: &Run<'_>) -> &'static str {
    if run.range.random { "random" } else { "sequential" }
}

fn lines(run: &Run<'_>, came: &Came, figures: &Figures, checksum: Option<&str>) {
    let Figures { seconds, iops, mb_per_s, min, mean, p50, p99, max, .. } = figures;
    let (seen, health, info) = (&run.seen, &came.health, run.backend.info());
    // With data on standard output, what is for people goes to standard error.
    let data_on_stdout = matches!(&run.job, Job::Read { file: Some(path) } if path == "-");
    let say = |text: Arguments<'_>| match data_on_stdout {
        true => run.output.note(text),
        false => run.output.line(text),
    };
    say(format_args!(
        "{} {}: {} {}, depth {}{}",
        run.job.name(),
        info.name,
        format_size(run.range.bs),
        order(run),
        run.range.depth,
        if came.complete { "" } else { " (incomplete)" }
    ));
    say(format_args!(
        "  requests   {} of {}, {} in {seconds:.3} s",
        seen.requests,
        run.count,
        format_size(seen.bytes)
    ));
    say(format_args!("  rate       {iops:.0} IOPS, {mb_per_s:.1} MB/s"));
    say(format_args!(
        "  latency    min {min:.1}, mean {mean:.1}, p50 {p50:.1}, p99 {p99:.1}, max {max:.1} µs"
    ));
    say(format_args!(
        "  errors     {}, retries {}, time-outs {}, reconnects {}",
        seen.errors, health.retries, health.timeouts, health.reconnects
    ));
    say(format_args!(
        "  cost       {:.2} µs CPU ({:.2} user), {:.3} system calls, {:.3} context switches a request",
        figures.cpu_us, figures.user_us, figures.system_calls, figures.switches
    ));
    if let Some(checksum) = checksum {
        say(format_args!("  sha256     {checksum}"));
    }
    if seen.padded_bytes > 0 {
        say(format_args!("  padding    {} zeros behind the input's end", seen.padded_bytes));
    }
    if matches!(run.job, Job::Verify) {
        say(format_args!("  wrong      {} blocks", seen.wrong_blocks));
    }
    for note in &info.notes {
        say(format_args!("  note       {note}"));
    }
    if let Some(trouble) = &health.trouble {
        say(format_args!("  trouble    {trouble}"));
    }
}

/// The first failed request.
fn first_error(seen: &Seen) -> Option<String> {
    seen.first_error.as_ref().map(|(offset, error)| format!("at {offset}: {error}"))
}

fn object(run: &Run<'_>, came: &Came, figures: &Figures, checksum: Option<&str>) {
    let (seen, health, info) = (&run.seen, &came.health, run.backend.info());
    let wrong = seen.first_wrong.as_ref().map(|wrong| {
        json!({
            "offset": wrong.offset, "expected": hex(&wrong.expected), "found": hex(&wrong.found),
            "zeros": wrong.zeros,
        })
    });
    run.output.object(&json!({
        "action": run.job.name(),
        "device": info.name,
        "order": order(run),
        "offset": run.range.offset,
        "length": run.length,
        "block_size": run.range.bs,
        "depth": run.range.depth,
        "seed": run.range.seed,
        "complete": came.complete,
        "requests": seen.requests,
        "bytes": seen.bytes,
        "seconds": figures.seconds,
        "iops": figures.iops,
        "mb_per_s": figures.mb_per_s,
        "latency_us": {
            "min": figures.min, "mean": figures.mean, "p50": figures.p50, "p99": figures.p99, "max": figures.max,
        },
        "errors": seen.errors,
        "first_error": first_error(seen),
        "retries": health.retries,
        "timeouts": health.timeouts,
        "reconnects": health.reconnects,
        "trouble": health.trouble,
        "cpu_us_per_request": figures.cpu_us,
        "system_calls_per_request": figures.system_calls,
        "context_switches_per_request": figures.switches,
        "sha256": checksum,
        "wrong_blocks": matches!(run.job, Job::Verify).then_some(seen.wrong_blocks),
        "first_wrong": wrong,
        "notes": info.notes,
    }));
}

fn verdict(run: &Run<'_>, came: &Came) -> Done {
    let seen = &run.seen;
    if let Some(wrong) = &seen.first_wrong {
        return Err(Failure::failed(format!(
            "{} blocks are wrong, the first at offset {}: expected {}…, found {}…{}",
            seen.wrong_blocks,
            wrong.offset,
            hex(&wrong.expected),
            hex(&wrong.found),
            if wrong.zeros { " (the whole block is zeros)" } else { "" }
        )));
    }
    if let Some(error) = first_error(seen) {
        let failure = Failure::failed(format!("{} requests failed, the first {error}", seen.errors));
        return Err(match &came.health.trouble {
            Some(trouble) => failure.advise(format!("look at the target; the last trouble was: {trouble}")),
            None => failure,
        });
    }
    if seen.input_left {
        return Err(Failure::failed(format!(
            "the input is longer than the {} bytes of the device from the offset on; the rest is not written",
            run.length
        ))
        .advise("give --length to write a part of it on purpose"));
    }
    if !came.complete {
        return Err(Failure::failed("interrupted; what is printed is of the requests made so far"));
    }
    Ok(())
}
