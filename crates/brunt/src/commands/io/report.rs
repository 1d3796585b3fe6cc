//! The output of `brunt io`: lines for people, one JSON object for programs, and a failure if something went wrong.

use std::fmt::{Arguments, Write};
use std::time::Duration;

use brunt_core::units::format_size;
use brunt_core::{Histogram, Nanos};
use brunt_load::transfer::{Limit, Moved};
use serde_json::json;

use super::run::{Job, Run};
use crate::cli::{Done, Failure};

/// The name of a bottleneck other than the device, and what to do about it.
fn words(limit: Limit) -> (&'static str, &'static str) {
    match limit {
        Limit::Checksum => ("checksum", "use --checksum none"),
        Limit::Pattern => ("pattern", "use --pattern zeros"),
        Limit::Comparison => (
            "comparison",
            "run several commands at once, each on a part of the range",
        ),
        Limit::Input => ("input", "read the input from a faster disk"),
        Limit::Output => ("output", "write the output to a faster disk"),
    }
}

fn limit_line(limit: Limit) -> String {
    let (name, advice) = words(limit);
    format!("  limit      the {name}, not the device; {advice}")
}

/// Figures for all requests; latencies in microseconds.
struct Figures {
    seconds: f64,
    /// Rate of successful requests.
    iops: f64,
    mb_per_s: f64,
    /// Latency of successful requests; `None` if there were none.
    latency: Option<Micros>,
    cpu_us: f64,
    user_us: f64,
    system_calls: f64,
    switches: f64,
    /// CPU time that this program spends on the data of each request.
    data_us: f64,
    limit: Option<Limit>,
}

/// A distribution of times, in microseconds.
#[derive(Clone, Copy, serde::Serialize)]
struct Micros {
    min: f64,
    mean: f64,
    p50: f64,
    p99: f64,
    max: f64,
}

impl Micros {
    fn of(times: &Histogram) -> Option<Micros> {
        let us = |time: Nanos| time.0 as f64 / 1000.0;
        Some(Micros {
            min: us(times.min()?),
            mean: times.mean()? / 1000.0,
            p50: us(times.percentile(50.0)?),
            p99: us(times.percentile(99.0)?),
            max: us(times.max()?),
        })
    }
}

impl Figures {
    fn of(moved: &Moved) -> Figures {
        let seconds = moved.elapsed.as_secs_f64().max(1e-9);
        let requests = moved.requests.max(1) as f64;
        let per_request = |time: Duration| time.as_secs_f64() * 1e6 / requests;
        Figures {
            seconds,
            iops: moved.latency.count() as f64 / seconds,
            mb_per_s: moved.bytes as f64 / seconds / 1e6,
            latency: Micros::of(&moved.latency),
            cpu_us: per_request(moved.cost.cpu()),
            user_us: per_request(moved.cost.user),
            system_calls: moved.system_calls as f64 / requests,
            switches: moved.cost.switches() as f64 / requests,
            data_us: per_request(moved.spent.total()),
            limit: moved.spent.limit(moved.elapsed),
        }
    }
}

/// Prints the results.
///
/// # Errors
/// A request failed, or data was wrong or missing.
pub fn report(run: &Run<'_>, moved: &Moved) -> Done {
    let figures = Figures::of(moved);
    let checksum = moved.checksum.map(|sum| hex(&sum));
    lines(run, moved, &figures, checksum.as_deref());
    object(run, moved, &figures, checksum.as_deref());
    verdict(run, moved)
}

/// Bytes in hexadecimal.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn order(run: &Run<'_>) -> &'static str {
    if run.range.random {
        "random"
    } else {
        "sequential"
    }
}

fn lines(run: &Run<'_>, moved: &Moved, figures: &Figures, checksum: Option<&str>) {
    let Figures {
        seconds,
        iops,
        mb_per_s,
        latency,
        ..
    } = figures;
    let (health, info) = (&moved.health, run.backend.info());
    // With data on standard output, text for people goes to standard error.
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
        if moved.is_complete() {
            ""
        } else {
            " (incomplete)"
        }
    ));
    say(format_args!(
        "  requests   {} of {}, {} in {seconds:.3} s",
        moved.requests,
        moved.count,
        format_size(moved.bytes)
    ));
    say(format_args!(
        "  rate       {iops:.0} IOPS, {mb_per_s:.1} MB/s"
    ));
    match latency {
        Some(us) => say(format_args!(
            "  latency    min {:.1}, mean {:.1}, p50 {:.1}, p99 {:.1}, max {:.1} µs",
            us.min, us.mean, us.p50, us.p99, us.max
        )),
        None => say(format_args!("  latency    none: no request succeeded")),
    }
    say(format_args!(
        "  errors     {}, retries {}, timeouts {}, reconnects {}, repeated connection attempts {}",
        moved.errors, health.retries, health.timeouts, health.reconnects, health.connect_retries
    ));
    say(format_args!(
        "  cost       {:.2} µs CPU ({:.2} user), {:.3} system calls, {:.3} context switches per request",
        figures.cpu_us, figures.user_us, figures.system_calls, figures.switches
    ));
    extra_lines(run, moved, figures, checksum, &say);
}

/// The lines that are printed only for some runs.
fn extra_lines(
    run: &Run<'_>,
    moved: &Moved,
    figures: &Figures,
    checksum: Option<&str>,
    say: &dyn Fn(Arguments<'_>),
) {
    if figures.data_us > 0.0 {
        let share = moved.spent.total().as_secs_f64() * 100.0 / figures.seconds;
        say(format_args!(
            "  data       {:.2} µs per request, {share:.0} % of the time",
            figures.data_us
        ));
    }
    if let Some(limit) = figures.limit {
        say(format_args!("{}", limit_line(limit)));
    }
    if let Some(checksum) = checksum {
        say(format_args!("  sha256     {checksum}"));
    }
    if moved.padded_bytes > 0 {
        say(format_args!(
            "  padding    {} zeros after the end of the input",
            moved.padded_bytes
        ));
    }
    if matches!(run.job, Job::Verify { .. }) {
        say(format_args!("  wrong      {} blocks", moved.wrong_blocks));
    }
    for note in run.backend.info().remarks() {
        say(format_args!("  note       {note}"));
    }
    if let Some(trouble) = &moved.health.trouble {
        say(format_args!("  trouble    {trouble}"));
    }
}

/// Describes the first failed request.
fn first_error(moved: &Moved) -> Option<String> {
    moved
        .first_error
        .as_ref()
        .map(|error| format!("at {}: {}", error.offset, error.text))
}

fn object(run: &Run<'_>, moved: &Moved, figures: &Figures, checksum: Option<&str>) {
    let (health, info) = (&moved.health, run.backend.info());
    let wrong = moved.first_wrong.map(|wrong| {
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
        "complete": moved.is_complete(),
        "requests": moved.requests,
        "bytes": moved.bytes,
        "seconds": figures.seconds,
        "iops": figures.iops,
        "mb_per_s": figures.mb_per_s,
        "latency_us": figures.latency,
        "errors": moved.errors,
        "first_error": first_error(moved),
        "retries": health.retries,
        "timeouts": health.timeouts,
        "reconnects": health.reconnects,
        "connect_retries": health.connect_retries,
        "trouble": health.trouble,
        "cpu_us_per_request": figures.cpu_us,
        "system_calls_per_request": figures.system_calls,
        "context_switches_per_request": figures.switches,
        "data_us_per_request": figures.data_us,
        "limit": figures.limit.map(|limit| words(limit).0),
        "sha256": checksum,
        "wrong_blocks": matches!(run.job, Job::Verify { .. }).then_some(moved.wrong_blocks),
        "first_wrong": wrong,
        "notes": info.remarks().collect::<Vec<_>>(),
    }));
}

fn verdict(run: &Run<'_>, moved: &Moved) -> Done {
    if let Some(wrong) = &moved.first_wrong {
        return Err(Failure::failed(format!(
            "{} blocks are wrong, the first at offset {}: expected {}…, found {}…{}",
            moved.wrong_blocks,
            wrong.offset,
            hex(&wrong.expected),
            hex(&wrong.found),
            if wrong.zeros {
                " (the whole block is zeros)"
            } else {
                ""
            }
        )));
    }
    if let Some(error) = first_error(moved) {
        let failure = Failure::failed(format!(
            "{} requests failed, the first with {error}",
            moved.errors
        ));
        return Err(match &moved.health.trouble {
            Some(trouble) => {
                failure.advise(format!("check the target; the last error was: {trouble}"))
            }
            None => failure,
        });
    }
    if moved.input_left {
        return Err(Failure::failed(format!(
            "the input is longer than the {} bytes of the device after the offset; the rest is not written",
            run.length
        ))
        .advise("use --length to write only part of it"));
    }
    if !moved.is_complete() {
        return Err(Failure::failed(
            "interrupted; the results cover the requests completed so far",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each limit has a line of advice.
    #[test]
    fn every_limit_has_advice() {
        let all = [
            Limit::Checksum,
            Limit::Pattern,
            Limit::Comparison,
            Limit::Input,
            Limit::Output,
        ];
        let lines = all.map(limit_line);
        assert_eq!(
            lines[0],
            "  limit      the checksum, not the device; use --checksum none"
        );
        for (index, line) in lines.iter().enumerate() {
            assert!(
                lines[..index].iter().all(|other| other != line),
                "{line} twice"
            );
        }
    }
}
