//! What `brunt io` says of the requests that it made: lines for people, one object for programs, and the failure
//! that ends it when something was wrong.

use std::fmt::Arguments;
use std::time::Duration;

use brunt_core::Nanos;
use brunt_core::units::format_size;
use serde_json::json;
use sha2::Digest;

use super::data::hex;
use super::run::{Came, Job, Run};
use crate::cli::{Done, Failure};

/// What could have been the limit beside the device: its name, how to be rid of it, and the time that it took.
struct Own {
    name: &'static str,
    advice: &'static str,
    time: Duration,
}

impl Own {
    fn all(came: &Came) -> [Own; 5] {
        let spent = &came.data.spent;
        let own = |name, advice, time| Own { name, advice, time };
        [
            own("checksum", "--checksum none leaves it out", spent.checksum.max(came.consumed.checksum)),
            own("pattern", "--pattern zeros takes less", spent.pattern),
            own("comparison", "a smaller range, or several at once, takes less time", spent.comparison),
            own("output", "write to a faster place", spent.output),
            own("input", "read from a faster place", came.waited.saturating_sub(came.consumed.checksum)),
        ]
    }
}

/// Figures of all requests; latencies in microseconds.
struct Figures {
    /// Answered, well or not.
    requests: u64,
    bytes: u64,
    errors: u64,
    complete: bool,
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
    /// Time of this program that went into the data of a request.
    data_us: f64,
    /// It took more than half of the time.
    limit: Option<Own>,
}

impl Figures {
    fn of(came: &Came) -> Figures {
        let figures = &came.outcome.figures;
        let failed = figures.counts.errors();
        let (answered, service) = (figures.completed() + failed, figures.service());
        let seconds = came.elapsed.as_secs_f64().max(1e-9);
        let requests = answered.max(1) as f64;
        let us = |time: Option<Nanos>| time.unwrap_or_default().0 as f64 / 1000.0;
        let per_request = |time: Duration| time.as_secs_f64() * 1e6 / requests;
        let own = Own::all(came);
        let data = own.iter().filter(|own| own.name != "input").map(|own| own.time).sum();
        Figures {
            requests: answered,
            bytes: figures.bytes(),
            errors: failed + u64::from(came.flush_error.is_some()),
            complete: answered == came.count && !came.consumed.left,
            seconds,
            iops: answered as f64 / seconds,
            mb_per_s: figures.bytes() as f64 / seconds / 1e6,
            min: us(service.min()),
            mean: service.mean().unwrap_or(0.0) / 1000.0,
            p50: us(service.percentile(50.0)),
            p99: us(service.percentile(99.0)),
            max: us(service.max()),
            cpu_us: per_request(came.cost.cpu()),
            user_us: per_request(came.cost.user),
            system_calls: came.system_calls as f64 / requests,
            switches: came.cost.switches() as f64 / requests,
            data_us: per_request(data),
            limit: own.into_iter().max_by_key(|own| own.time).filter(|own| own.time > came.elapsed / 2),
        }
    }
}

/// Prints it, and fails when a request did, or data was wrong or missing.
///
/// # Errors
/// See above.
pub fn report(run: &Run<'_>, mut came: Came) -> Done {
    let figures = Figures::of(&came);
    let hash = came
        .data
        .hash
        .take()
        .or(came.consumed.hash.take())
        .filter(|_| figures.complete && figures.errors == 0);
    let checksum = hash.map(|hash| hex(&hash.finalize()));
    lines(run, &came, &figures, checksum.as_deref());
    object(run, &came, &figures, checksum.as_deref());
    verdict(run, &came, &figures)
}

fn order(run: &Run<'_>) -> &'static str {
    if run.range.random { "random" } else { "sequential" }
}

fn lines(run: &Run<'_>, came: &Came, figures: &Figures, checksum: Option<&str>) {
    let Figures { seconds, iops, mb_per_s, min, mean, p50, p99, max, .. } = figures;
    let (health, info) = (&came.health, run.backend.info());
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
        if figures.complete { "" } else { " (incomplete)" }
    ));
    say(format_args!(
        "  requests   {} of {}, {} in {seconds:.3} s",
        figures.requests,
        came.count,
        format_size(figures.bytes)
    ));
    say(format_args!("  rate       {iops:.0} IOPS, {mb_per_s:.1} MB/s"));
    say(format_args!(
        "  latency    min {min:.1}, mean {mean:.1}, p50 {p50:.1}, p99 {p99:.1}, max {max:.1} µs"
    ));
    say(format_args!(
        "  errors     {}, retries {}, time-outs {}, reconnects {}",
        figures.errors, health.retries, health.timeouts, health.reconnects
    ));
    say(format_args!(
        "  cost       {:.2} µs CPU ({:.2} user), {:.3} system calls, {:.3} context switches a request",
        figures.cpu_us, figures.user_us, figures.system_calls, figures.switches
    ));
    if figures.data_us > 0.0 {
        let share = figures.data_us * figures.requests as f64 / 1e4 / seconds;
        say(format_args!("  data       {:.2} µs a request, {share:.0} % of the time", figures.data_us));
    }
    if let Some(Own { name, advice, .. }) = &figures.limit {
        say(format_args!("  limit      the {name}, not the device; {advice}"));
    }
    if let Some(checksum) = checksum {
        say(format_args!("  sha256     {checksum}"));
    }
    if came.padded_bytes > 0 {
        say(format_args!("  padding    {} zeros behind the input's end", came.padded_bytes));
    }
    if matches!(run.job, Job::Verify { .. }) {
        say(format_args!("  wrong      {} blocks", came.data.wrong_blocks));
    }
    for note in &info.notes {
        say(format_args!("  note       {note}"));
    }
    if let Some(trouble) = &health.trouble {
        say(format_args!("  trouble    {trouble}"));
    }
}

/// The first failed request.
fn first_error(came: &Came) -> Option<String> {
    let request = came.outcome.first_error.as_ref();
    let flush = came.flush_error.as_ref().map(|error| format!("at 0: {error}"));
    request.map(|error| format!("at {}: {}", error.offset, error.text)).or(flush)
}

fn object(run: &Run<'_>, came: &Came, figures: &Figures, checksum: Option<&str>) {
    let (health, info) = (&came.health, run.backend.info());
    let wrong = came.data.first_wrong.map(|wrong| {
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
        "complete": figures.complete,
        "requests": figures.requests,
        "bytes": figures.bytes,
        "seconds": figures.seconds,
        "iops": figures.iops,
        "mb_per_s": figures.mb_per_s,
        "latency_us": {
            "min": figures.min, "mean": figures.mean, "p50": figures.p50, "p99": figures.p99, "max": figures.max,
        },
        "errors": figures.errors,
        "first_error": first_error(came),
        "retries": health.retries,
        "timeouts": health.timeouts,
        "reconnects": health.reconnects,
        "trouble": health.trouble,
        "cpu_us_per_request": figures.cpu_us,
        "system_calls_per_request": figures.system_calls,
        "context_switches_per_request": figures.switches,
        "data_us_per_request": figures.data_us,
        "limit": figures.limit.as_ref().map(|own| own.name),
        "sha256": checksum,
        "wrong_blocks": matches!(run.job, Job::Verify { .. }).then_some(came.data.wrong_blocks),
        "first_wrong": wrong,
        "notes": info.notes,
    }));
}

fn verdict(run: &Run<'_>, came: &Came, figures: &Figures) -> Done {
    if let Some(wrong) = &came.data.first_wrong {
        return Err(Failure::failed(format!(
            "{} blocks are wrong, the first at offset {}: expected {}…, found {}…{}",
            came.data.wrong_blocks,
            wrong.offset,
            hex(&wrong.expected),
            hex(&wrong.found),
            if wrong.zeros { " (the whole block is zeros)" } else { "" }
        )));
    }
    if let Some(error) = first_error(came) {
        let failure = Failure::failed(format!("{} requests failed, the first {error}", figures.errors));
        return Err(match &came.health.trouble {
            Some(trouble) => failure.advise(format!("look at the target; the last trouble was: {trouble}")),
            None => failure,
        });
    }
    if came.consumed.left {
        return Err(Failure::failed(format!(
            "the input is longer than the {} bytes of the device from the offset on; the rest is not written",
            run.length
        ))
        .advise("give --length to write a part of it on purpose"));
    }
    if !figures.complete {
        return Err(Failure::failed("interrupted; what is printed is of the requests made so far"));
    }
    Ok(())
}
