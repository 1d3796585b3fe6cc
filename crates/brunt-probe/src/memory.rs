//! Memory usage and swap traffic. From `/proc/meminfo` (current sizes) and `/proc/vmstat` (page counters).

use std::time::Duration;

use super::figures::{Malformed, Sink, Texts, named};
use super::{Metric, Probe, headline, metric_of};

pub struct Memory;

pub struct Reading {
    /// In bytes, in the order of [`SIZES`].
    sizes: [Option<u64>; SIZES.len()],
    swap_free: Option<u64>,
    /// In the order of [`RATES`].
    counters: [Option<u64>; RATES.len()],
}

/// A line of `/proc/meminfo` and its metric.
const SIZES: [(&str, &str); 9] = [
    ("MemFree", "free_bytes"),
    ("MemAvailable", "available_bytes"),
    ("Shmem", "shared_bytes"),
    ("Buffers", "buffered_bytes"),
    ("Cached", "cached_bytes"),
    ("Dirty", "dirty_bytes"),
    ("Writeback", "written_back_bytes"),
    ("AnonPages", "anonymous_bytes"),
    ("SwapTotal", "swap_total_bytes"),
];

/// A line of `/proc/vmstat`, its metric, and whether it counts pages (as opposed to events).
const RATES: [(&str, &str, bool); 4] = [
    ("pswpin", "swapped_in_bytes_per_s", true),
    ("pswpout", "swapped_out_bytes_per_s", true),
    ("pgfault", "faults_per_s", false),
    ("pgmajfault", "major_faults_per_s", false),
];

impl Probe for Memory {
    const NAME: &'static str = "memory";
    const HELP: &'static str = "free, shared, buffered and cached memory, swap usage and swap rate";
    const FILES: &'static [&'static str] = &["/proc/meminfo", "/proc/vmstat"];
    const METRICS: &'static [Metric] = &[
        headline("free_bytes", "unused"),
        headline("available_bytes", "available to programs without swapping"),
        metric_of("shared_bytes", "shared memory and tmpfs"),
        metric_of("buffered_bytes", "page cache of block devices"),
        metric_of("cached_bytes", "page cache of files, including tmpfs"),
        metric_of("dirty_bytes", "in the page cache, waiting to be written"),
        metric_of("written_back_bytes", "being written from the page cache"),
        metric_of(
            "anonymous_bytes",
            "memory of programs that is not backed by files",
        ),
        metric_of("swap_total_bytes", "total swap"),
        headline("swap_used_bytes", "swap in use"),
        headline("swapped_in_bytes_per_s", "read back from swap"),
        headline("swapped_out_bytes_per_s", "written to swap"),
        metric_of("faults_per_s", "page faults of all kinds"),
        metric_of("major_faults_per_s", "page faults that read from a device"),
    ];
    type Reading = Reading;

    fn parse(texts: &Texts<'_>) -> Result<Reading, Malformed> {
        let (memory, pages) = (texts.need(0)?, texts.get(1).unwrap_or_default());
        let size = |name: &str| Ok(named(memory, name)?.map(|kib| kib.saturating_mul(1024)));
        let mut reading = Reading {
            sizes: [None; SIZES.len()],
            swap_free: size("SwapFree")?,
            counters: [None; RATES.len()],
        };
        for (value, (name, _)) in reading.sizes.iter_mut().zip(SIZES) {
            *value = size(name)?;
        }
        for (value, (name, _, _)) in reading.counters.iter_mut().zip(RATES) {
            *value = named(pages, name)?;
        }
        match reading.sizes[0] {
            None => Err(Malformed::new("no line 'MemFree'", "")),
            Some(_) => Ok(reading),
        }
    }

    fn figures(before: &Reading, now: &Reading, elapsed: Duration, sink: &mut Sink<'_>) {
        for (value, (name, metric)) in now.sizes.iter().zip(SIZES) {
            let Some(bytes) = value else { continue };
            sink.put(metric, *bytes as f64);
            if let ("SwapTotal", Some(free)) = (name, now.swap_free) {
                sink.put("swap_used_bytes", bytes.saturating_sub(free) as f64);
            }
        }
        let page = rustix::param::page_size() as f64;
        for ((before, now), (_, metric, pages)) in
            before.counters.iter().zip(&now.counters).zip(RATES)
        {
            if let Some(counters) = before.zip(*now) {
                sink.rate(metric, counters, if pages { page } else { 1.0 }, elapsed);
            }
        }
    }
}
