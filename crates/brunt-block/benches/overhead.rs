//! What does one 4 KiB random read through a Brunt device cost, compared with fio's io_uring engine on the same file
//! in the same run? And what do layers that do nothing cost per request, compared with the same device without them?
//! Alternates between the two sides of each comparison, and prints rate, CPU time, system calls and context switches
//! per request, and their ratios.
//!
//!     cargo bench -p brunt-block --bench overhead -- [--seconds 2] [--rounds 3] [--only WORD] [FOLDER…]
//!
//! Default directories: /dev/shm and the temporary directory. Both sides record every latency. fio runs in its fastest
//! configuration: registered file and buffers, batched submission and reaping. `perf` counts its system calls in a
//! separate run, if available. Neither column includes the CPU time of kernel threads (SQPOLL).

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use brunt_block::{Backend, Request, Ring, RingConfig, open_url};
use brunt_block::{Buf, Op};
use brunt_core::random::Random;
use brunt_core::{Clock, units::parse_size};

const FILE_BYTES: &str = "1GiB";
const BLOCK_BYTES: u64 = 4096;

/// The results of one run of Brunt or fio.
#[derive(Clone, Debug, Default)]
struct Figures {
    per_second: f64,
    cpu_us: f64,
    system_calls: Option<f64>,
    context_switches: f64,
    latency_us_mean: f64,
    latency_us_p99: f64,
}

/// A latency recorder as cheap as fio's: 32 buckets per power of two, in nanoseconds.
struct Latencies {
    buckets: Vec<u64>,
    sum: u64,
    count: u64,
}

impl Latencies {
    fn new() -> Latencies {
        Latencies {
            buckets: vec![0; 64 * 32],
            sum: 0,
            count: 0,
        }
    }

    #[inline]
    fn record(&mut self, nanos: u64) {
        let value = nanos.max(32);
        let power = 63 - value.leading_zeros();
        let index = (power as usize) * 32 + ((value >> (power - 5)) & 31) as usize;
        self.buckets[index] += 1;
        self.sum += nanos;
        self.count += 1;
    }

    fn percentile_us(&self, part: f64) -> f64 {
        let rank = (self.count as f64 * part) as u64;
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen > rank {
                let power = index / 32;
                return ((1u64 << power) + ((index as u64 % 32) << (power - 5))) as f64 / 1000.0;
            }
        }
        0.0
    }
}

/// CPU time and context switches of this process (including the kernel workers serving it) or of its child processes.
fn usage(whose: libc::c_int) -> (f64, i64) {
    // SAFETY: an all-zero rusage is valid, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whose, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (
        seconds(usage.ru_utime) + seconds(usage.ru_stime),
        usage.ru_nvcsw + usage.ru_nivcsw,
    )
}

/// The loop of a load engine: refill, submit, wait, reap, record.
fn drive(
    backend: &dyn Backend,
    config: &RingConfig,
    depth: u32,
    batch_count: u32,
    time: Duration,
) -> Figures {
    let ring = Ring::new(config.clone()).expect("a ring");
    let mut device = backend.open(&ring, depth).expect("a device");
    let blocks = backend.info().size_bytes / BLOCK_BYTES;
    let mut random = Random::new(1);
    let mut started = vec![0u64; depth as usize];
    let mut idle: Vec<(u64, Buf)> = (0..u64::from(depth))
        .map(|tag| (tag, ring.pool().take(BLOCK_BYTES as usize)))
        .collect();
    let mut batch = VecDeque::with_capacity(depth as usize);
    let mut done = Vec::with_capacity(depth as usize);
    let mut latencies = Latencies::new();
    let clock = Clock::Monotonic;

    let (cpu, switches) = usage(libc::RUSAGE_SELF);
    let calls = ring.stats().system_calls;
    let begin = clock.now();
    let end = begin.after(time);
    let mut now = begin;
    while now < end {
        for (tag, buf) in idle.drain(..) {
            started[tag as usize] = now.0;
            let offset = random.below(blocks) * BLOCK_BYTES;
            batch.push_back(Request {
                tag,
                op: Op::Read,
                offset,
                len: BLOCK_BYTES,
                buf,
                force_unit_access: false,
            });
        }
        device.submit(&mut batch);
        ring.enter_for(batch_count, device.deadline())
            .expect("the ring works");
        device.poll(&mut done);
        now = clock.now();
        for one in done.drain(..) {
            one.result.expect("a read succeeds");
            latencies.record(now.0 - started[one.tag as usize]);
            idle.push((one.tag, one.buf));
        }
    }
    let seconds = now.since(begin).as_secs_f64();
    let (cpu_after, switches_after) = usage(libc::RUSAGE_SELF);
    let count = latencies.count as f64;
    Figures {
        per_second: count / seconds,
        cpu_us: (cpu_after - cpu) * 1e6 / count,
        system_calls: Some((ring.stats().system_calls - calls) as f64 / count),
        context_switches: (switches_after - switches) as f64 / count,
        latency_us_mean: latencies.sum as f64 / count / 1000.0,
        latency_us_p99: latencies.percentile_us(0.99),
    }
}

fn fio_arguments(file: &Path, depth: u32, time: Duration, batched: bool) -> Vec<String> {
    let mut arguments: Vec<String> = [
        "--name=x --ioengine=io_uring --registerfiles --fixedbufs --rw=randread --bs=4k --direct=1",
        "--norandommap --randrepeat=0 --time_based --output-format=terse --terse-version=3",
    ]
    .iter()
    .flat_map(|line| line.split(' '))
    .map(str::to_string)
    .collect();
    arguments.push(format!("--filename={}", file.display()));
    arguments.push(format!(
        "--size={}",
        parse_size(FILE_BYTES).expect("a size")
    ));
    arguments.push(format!("--iodepth={depth}"));
    arguments.push(format!("--runtime={}ms", time.as_millis()));
    if batched {
        arguments.push(format!("--iodepth_batch_submit={depth}"));
        arguments.push("--iodepth_batch_complete_min=1".to_string());
        arguments.push(format!("--iodepth_batch_complete_max={depth}"));
    }
    arguments
}

/// Parses fio's output and, under perf, its number of `io_uring_enter` calls.
fn fio_figures(output: &Output, cpu_seconds: f64) -> Option<Figures> {
    let text = String::from_utf8_lossy(&output.stdout).to_string();
    let line = text
        .lines()
        .find(|line| line.starts_with("3;"))?
        .to_string();
    let fields: Vec<&str> = line.split(';').collect();
    let number = |index: usize| {
        fields
            .get(index)
            .and_then(|field| field.trim_end_matches('%').parse().ok())
    };
    // Field numbers in terse version 3: 5 total KiB, 7 IOPS, 8 runtime in ms, 39 mean latency in us, 89 context
    // switches.
    let requests = number(5)? * 1024.0 / BLOCK_BYTES as f64;
    let seconds = number(8)? / 1000.0;
    let percentile = fields
        .iter()
        .find_map(|field| field.strip_prefix("99.000000%=")?.parse::<f64>().ok());
    let calls = String::from_utf8_lossy(&output.stderr)
        .lines()
        .find(|line| line.contains("sys_enter_io_uring_enter"))
        .and_then(|line| line.split(',').next()?.parse::<f64>().ok());
    Some(Figures {
        per_second: requests / seconds,
        cpu_us: cpu_seconds * 1e6 / requests,
        system_calls: calls.map(|calls| calls / requests),
        context_switches: number(89)? / requests,
        latency_us_mean: number(39)?,
        latency_us_p99: percentile.unwrap_or(f64::NAN),
    })
}

/// Runs fio on the same file in plain and in batched mode; returns the result with the higher rate.
fn fio(file: &Path, depth: u32, time: Duration) -> Option<Figures> {
    let run = |batched: bool, counted: bool| {
        let arguments = fio_arguments(file, depth, time, batched);
        let mut command = Command::new("perf");
        command.args([
            "stat",
            "-x,",
            "-e",
            "syscalls:sys_enter_io_uring_enter",
            "fio",
        ]);
        // fio's own CPU figure omits kernel workers, so it is measured from outside. A run of one millisecond gives the
        // cost of starting and ending fio, which is subtracted.
        let cpu_of = |arguments: &[String]| {
            let (before, _) = usage(libc::RUSAGE_CHILDREN);
            let output = Command::new("fio").args(arguments).output().ok()?;
            Some((usage(libc::RUSAGE_CHILDREN).0 - before, output))
        };
        let (cpu_seconds, output) = match counted {
            true => (f64::NAN, command.args(&arguments).output().ok()?),
            false => {
                let short: Vec<_> = arguments
                    .iter()
                    .map(|one| {
                        if one.starts_with("--runtime") {
                            "--runtime=1ms".to_string()
                        } else {
                            one.clone()
                        }
                    })
                    .collect();
                let start_seconds = cpu_of(&short)?.0;
                let (seconds, output) = cpu_of(&arguments)?;
                (seconds - start_seconds, output)
            }
        };
        fio_figures(&output, cpu_seconds)
    };
    let plain = run(false, false)?;
    let batched = if depth > 1 { run(true, false) } else { None };
    let batch_wins = batched
        .as_ref()
        .is_some_and(|batched| batched.per_second > plain.per_second);
    let mut best = if batch_wins { batched? } else { plain };
    best.system_calls = run(batch_wins, true).and_then(|figures| figures.system_calls);
    Some(best)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The median of each figure over the rounds.
fn middle(runs: &[Figures]) -> Figures {
    let of = |get: &dyn Fn(&Figures) -> f64| median(runs.iter().map(get).collect());
    Figures {
        per_second: of(&|run| run.per_second),
        cpu_us: of(&|run| run.cpu_us),
        system_calls: runs
            .iter()
            .all(|run| run.system_calls.is_some())
            .then(|| of(&|run| run.system_calls.unwrap_or(0.0))),
        context_switches: of(&|run| run.context_switches),
        latency_us_mean: of(&|run| run.latency_us_mean),
        latency_us_p99: of(&|run| run.latency_us_p99),
    }
}

fn print(who: &str, figures: &Figures) {
    let calls = figures
        .system_calls
        .map_or("     -".to_string(), |calls| format!("{calls:6.3}"));
    println!(
        "  {who:<22} {:>9.1} {:>7.3} {calls:>7} {:>7.4} {:>9.2} {:>9.2}",
        figures.per_second / 1000.0,
        figures.cpu_us,
        figures.context_switches,
        figures.latency_us_mean,
        figures.latency_us_p99
    );
}

struct Job {
    name: String,
    url: String,
    depth: u32,
    /// Number of completions to wait for.
    batch: u32,
    config: RingConfig,
    file: Option<PathBuf>,
}

impl Job {
    /// The job on an array whose members are this many copies of its device.
    fn in_array(mut self, members: usize) -> Job {
        self.url = format!(
            "array:raid0,chunk=64k{}",
            format!(",[{}]", self.url).repeat(members)
        );
        self
    }
}

fn main() {
    let mut seconds = 2.0;
    let mut rounds = 3;
    let mut only = String::new();
    let mut folders = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("the option has a value");
        match argument.as_str() {
            "--bench" => {}
            "--seconds" => seconds = value().parse().expect("a number of seconds"),
            "--rounds" => rounds = value().parse().expect("a number of rounds"),
            "--only" => only = value(),
            folder => folders.push(PathBuf::from(folder)),
        }
    }
    if folders.is_empty() {
        folders = vec![PathBuf::from("/dev/shm"), std::env::temp_dir()];
    }
    let mut jobs = layers();
    let mut files = Vec::new();
    for folder in folders {
        let file = folder.join(format!("brunt-overhead-{}.img", std::process::id()));
        fill(&file);
        files.push(file.clone());
        jobs.extend(of_file(&folder, &file));
    }
    println!(
        "  {:<22} {:>9} {:>7} {:>7} {:>7} {:>9} {:>9}",
        "4 KiB random read", "k req/s", "CPU us", "calls", "switch", "mean us", "p99 us"
    );
    for job in jobs.iter().filter(|job| job.name.contains(&only)) {
        job.measure(rounds, Duration::from_secs_f64(seconds));
    }
    for file in files {
        let _ = std::fs::remove_file(file);
    }
}

/// The cost per request of layers that do nothing, measured on the null device with and without them.
fn layers() -> Vec<Job> {
    let alone = |name: &str, layers: &str| Job {
        name: name.to_string(),
        url: format!("null:{FILE_BYTES}{layers}"),
        depth: 32,
        batch: 32,
        config: RingConfig::default(),
        file: None,
    };
    vec![
        alone("null device", ""),
        alone("null device, idle fault layer", "?fault=off"),
        alone(
            "null device, fault on other operations",
            "?fault=busy,op=write",
        ),
        alone("null device, fault that never hits", "?fault=busy,p=0"),
        alone("null device, retry layer", "?retry=3"),
        alone("null device, raid0 of 2", "").in_array(2),
    ]
}

/// The cost of our ring on a file in this directory.
fn of_file(folder: &Path, file: &Path) -> Vec<Job> {
    let sqpoll = RingConfig {
        sqpoll_idle_ms: Some(100),
        ..RingConfig::default()
    };
    let ways = [
        ("", 32, 1, RingConfig::default()),
        (", waiting for 12", 32, 12, RingConfig::default()),
        ("", 1, 1, RingConfig::default()),
        (", sqpoll", 32, 1, sqpoll),
    ];
    let job = |(what, depth, batch, config)| Job {
        name: format!("{} depth {depth}{what}", folder.display()),
        url: format!("file:{}", file.display()),
        depth,
        batch,
        config,
        file: Some(file.to_path_buf()),
    };
    ways.into_iter().map(job).collect()
}

impl Job {
    /// Prints the job's results next to those of its reference, the bare device for layers and fio for files; the two
    /// alternate.
    fn measure(&self, rounds: u32, time: Duration) {
        let backend = open_url(&self.url).expect("the file opens");
        println!("{} {}", self.name, backend.info().notes.join("; "));
        let bare = self
            .file
            .is_none()
            .then(|| open_url(&format!("null:{FILE_BYTES}")).expect("it opens"));
        let beside = if bare.is_some() { "bare" } else { "fio" };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            theirs.extend(
                bare.iter()
                    .map(|bare| drive(&**bare, &self.config, self.depth, self.batch, time)),
            );
            ours.push(drive(&*backend, &self.config, self.depth, self.batch, time));
            theirs.extend(
                self.file
                    .as_ref()
                    .and_then(|file| fio(file, self.depth, time)),
            );
        }
        let ours = middle(&ours);
        print("brunt", &ours);
        if !theirs.is_empty() {
            let theirs = middle(&theirs);
            print(beside, &theirs);
            println!(
                "  {:<22} {:>8.2}x {:>6.2}x {:>35.3}x",
                format!("brunt / {beside}"),
                ours.per_second / theirs.per_second,
                ours.cpu_us / theirs.cpu_us,
                ours.latency_us_mean / theirs.latency_us_mean
            );
        }
    }
}

/// Creates a file without holes, so that every read transfers data.
fn fill(file: &Path) {
    let begin = Instant::now();
    let size = parse_size(FILE_BYTES).expect("a size");
    let mut out = std::fs::File::create(file).expect("a file can be created in the folder");
    let mut chunk = vec![0; 1 << 20];
    Random::new(7).fill(&mut chunk);
    for _ in 0..size / chunk.len() as u64 {
        std::io::Write::write_all(&mut out, &chunk).expect("the folder has room for the file");
    }
    out.sync_all().expect("the file can be synced");
    eprintln!(
        "{} filled in {:.1} s",
        file.display(),
        begin.elapsed().as_secs_f64()
    );
}
