//! How a capture itself is doing: CPU time per stage, memory, bytes written, time in zstd and checksums. The watching
//! thread reads it from `/proc` once per second. The rule: no stage of the capture spends time per packet on these
//! counters; those that would need it are estimated and labelled as estimates.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use brunt_capture::checksum;
use brunt_capture::trace::TraceHealth;
use brunt_core::units::format_size;

use super::picture::Picture;

/// Number of blocks summed to measure the cost of one.
const BLOCKS: u32 = 20_000;

/// The state of the capture's process.
#[derive(Clone, Debug, Default)]
pub struct CaptureHealth {
    /// CPU time per stage since the start, as far as the system reports it.
    pub cpu: BTreeMap<&'static str, Duration>,
    /// Resident memory.
    pub memory_bytes: Option<u64>,
    /// Bytes written to storage.
    pub written_bytes: Option<u64>,
    /// Time in zstd; included in the writers' CPU time.
    pub compression: Duration,
    /// CPUs on which the threads of each stage may run, in the kernel's list format.
    pub cpus: BTreeMap<&'static str, Vec<String>>,
}

impl CaptureHealth {
    /// The current state.
    pub fn now() -> CaptureHealth {
        CaptureHealth {
            cpu: cpu(),
            memory_bytes: memory_bytes(),
            written_bytes: written_bytes(),
            compression: brunt_lake::compression_time(),
            cpus: cpus_by_stage(),
        }
    }
}

/// Resident memory of this process, in bytes.
pub fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn written_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes:"))?;
    line.trim().parse().ok()
}

/// The stage that a thread belongs to, by its name; the main thread reads packets. `None` for other threads.
fn stage(name: &str, is_main: bool) -> Option<&'static str> {
    Some(match name {
        _ if is_main => "reader",
        name if name.starts_with("scheduler-") => "parsers",
        name if name.starts_with("trace-") => "trace writers",
        "pcap" => "packet files",
        "windows" => "window reports",
        "watch" => "watch",
        _ => return None,
    })
}

/// The CPUs on which the threads of each stage may run, in the order of the threads' names.
pub fn cpus_by_stage() -> BTreeMap<&'static str, Vec<String>> {
    let mut threads = Vec::new();
    let process = std::process::id().to_string();
    for task in std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
    {
        // A thread may end before its file is read.
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else {
            continue;
        };
        let field = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| Some(line.strip_prefix(name)?.trim().to_string()))
        };
        let (Some(name), Some(cpus)) = (field("Name:"), field("Cpus_allowed_list:")) else {
            continue;
        };
        if let Some(stage) = stage(&name, *task.file_name() == *process) {
            threads.push((stage, name, cpus));
        }
    }
    threads.sort();
    let mut all: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for (stage, _, cpus) in threads {
        all.entry(stage).or_default().push(cpus);
    }
    all
}

/// CPU time per stage since the start.
pub fn cpu_s() -> BTreeMap<&'static str, f64> {
    let all = cpu().into_iter();
    all.map(|(stage, spent)| (stage, spent.as_secs_f64()))
        .collect()
}

fn cpu() -> BTreeMap<&'static str, Duration> {
    let mut all = BTreeMap::new();
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return all;
    };
    let process = std::process::id().to_string();
    for task in tasks.flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).ok();
        // The first number in schedstat is the time on a CPU in nanoseconds. A thread may end before its file is
        // read.
        let (Some(name), Some(times)) = (read("comm"), read("schedstat")) else {
            continue;
        };
        let spent = times
            .split_whitespace()
            .next()
            .and_then(|ns| ns.parse().ok());
        let is_main = *task.file_name() == *process;
        if let Some(stage) = stage(name.trim(), is_main) {
            *all.entry(stage).or_default() += Duration::from_nanos(spent.unwrap_or(0));
        }
    }
    // The process's time includes threads that have ended.
    let process = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let process = Duration::try_from(process).unwrap_or_default();
    let known = all.values().sum();
    all.insert("other", process.saturating_sub(known));
    all
}

/// CPU time that the parsers spent on `blocks` checksums: their number times the cost of one, measured at the first
/// call.
pub fn checksum_time(blocks: u64) -> Duration {
    static BLOCK_NS: OnceLock<f64> = OnceLock::new();
    let block_ns = BLOCK_NS.get_or_init(|| {
        let mut block = [7; checksum::BLOCK_BYTES];
        let begun = Instant::now();
        for number in 0..BLOCKS {
            block[..4].copy_from_slice(&number.to_le_bytes());
            black_box(checksum::sum(black_box(&block)));
        }
        begun.elapsed().as_nanos() as f64 / f64::from(BLOCKS)
    });
    Duration::from_nanos((blocks as f64 * block_ns) as u64)
}

/// The row for the trace.
pub fn row(picture: &Picture) -> TraceHealth {
    let health = &picture.health;
    let ns = |spent: Duration| spent.as_nanos() as u64;
    let of = |stage| ns(health.cpu.get(stage).copied().unwrap_or_default());
    let allowed = |stage| health.cpus.get(stage).map(|each| each.join(";"));
    let (reader, parsers, writers) = (of("reader"), of("parsers"), of("trace writers"));
    TraceHealth {
        reader_cpu_ns: reader,
        parsers_cpu_ns: parsers,
        writers_cpu_ns: writers,
        other_cpu_ns: ns(health.cpu.values().sum()) - reader - parsers - writers,
        compression_ns: ns(health.compression),
        checksum_estimated_ns: ns(checksum_time(picture.glance.ledger.blocks_summed)),
        ring_used_bytes: picture.live.ring_used_bytes,
        ring_bytes: picture.live.ring_bytes,
        queued_parcels: picture.queued.iter().map(|queued| u64::from(*queued)).sum(),
        memory_bytes: health.memory_bytes,
        written_bytes: health.written_bytes,
        reader_cpus: allowed("reader"),
        parsers_cpus: allowed("parsers"),
        writers_cpus: allowed("trace writers"),
    }
}

/// Labels and values for display; rates are computed from an earlier snapshot.
pub fn facts(now: &Picture, before: &Picture) -> Vec<(String, String)> {
    let elapsed = (now.at_s - before.at_s).max(1e-3);
    let share = |now: Duration, before: Duration| {
        let spent = now.saturating_sub(before).as_secs_f64();
        format!("{:.1} % of a core", 100.0 * spent / elapsed)
    };
    let (health, earlier) = (&now.health, &before.health);
    let mut facts: Vec<(String, String)> = health
        .cpu
        .iter()
        .map(|(stage, spent)| {
            let then = earlier.cpu.get(stage).copied().unwrap_or_default();
            (format!("CPU, {stage}"), share(*spent, then))
        })
        .collect();
    for (stage, each) in &health.cpus {
        facts.push((format!("CPUs allowed, {stage}"), each.join("; ")));
    }
    let blocks = |picture: &Picture| checksum_time(picture.glance.ledger.blocks_summed);
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".into(), format_size);
    let rings = match now.live.ring_bytes {
        0 => "unknown".into(),
        all => format!(
            "{} of {} hold packets",
            format_size(now.live.ring_used_bytes),
            format_size(all)
        ),
    };
    let mut add = |label: &str, value: String| facts.push((label.into(), value));
    add(
        "of it, zstd",
        share(health.compression, earlier.compression),
    );
    add(
        "of it, checksums (estimated)",
        share(blocks(now), blocks(before)),
    );
    add("Rings", rings);
    add("Queues", format!("{:?} parcels by parser", now.queued));
    add(
        "Reader waited for memory",
        format!("{} times", now.live.pool_waits),
    );
    add("Memory", size(health.memory_bytes));
    add("Written to storage", size(health.written_bytes));
    if let Some(hook) = now.found.hook {
        let text = format!(
            "{} run, {} failed, {} skipped",
            hook.runs, hook.failed, hook.skipped
        );
        add("Commands for findings", text);
    }
    facts
}
