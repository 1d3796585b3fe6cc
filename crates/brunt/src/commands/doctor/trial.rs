//! Properties that are measured or tried instead of read, in about two seconds.

use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use brunt_block::ring::engine;
use brunt_core::Clock;
use brunt_probe::noise::NoiseMeter;
use brunt_result::noise::MachineNoise;

/// How long to measure the machine's noise.
const NOISE_TIME: Duration = Duration::from_millis(1500);
/// Number of calls over which the cost per call is averaged.
const CALLS: u32 = 50_000;
/// Fresh memory whose first touch is timed: number and size of the pages.
const PAGES: usize = 4096;
const PAGE_BYTES: usize = 4096;

/// Results of the trials; empty if the machine is only read.
#[derive(Default)]
pub struct Trials {
    /// Nanoseconds per clock reading, per system call, and per first touch of a 4 KiB page.
    pub clock_ns: Option<f64>,
    pub call_ns: Option<f64>,
    pub page_ns: Option<f64>,
    pub noise: Option<MachineNoise>,
    /// Why io_uring or namespaces are unavailable; an inner `None` if they work.
    pub ring: Option<Option<String>>,
    pub namespaces: Option<Option<String>>,
    /// Whether this program is linked statically.
    pub is_static: bool,
}

impl Trials {
    /// Runs all trials.
    pub fn make() -> Trials {
        let noise = NoiseMeter::start(Path::new("/proc"))
            .ok()
            .and_then(|meter| {
                std::thread::sleep(NOISE_TIME);
                meter.stop()
            });
        Trials {
            clock_ns: Some(each(CALLS, || touch(Clock::Monotonic.now()))),
            call_ns: Some(each(CALLS, || touch(rustix::process::getppid()))),
            page_ns: Some(first_touch()),
            noise,
            ring: Some(engine::io_uring().err().map(|error| error.to_string())),
            namespaces: Some(namespaces()),
            is_static: cfg!(target_feature = "crt-static"),
        }
    }
}

/// Keeps the optimizer from removing a computation whose result is unused.
fn touch<T>(value: T) {
    black_box(value);
}

/// Mean nanoseconds per call.
fn each(count: u32, mut what: impl FnMut()) -> f64 {
    let begin = Clock::Monotonic.now();
    (0..count).for_each(|_| what());
    Clock::Monotonic.now().since(begin).as_secs_f64() * 1e9 / f64::from(count)
}

/// Nanoseconds to touch a page of fresh memory.
fn first_touch() -> f64 {
    let begin = Clock::Monotonic.now();
    let mut memory: Vec<u8> = Vec::with_capacity(PAGES * PAGE_BYTES);
    memory.resize(PAGES * PAGE_BYTES, 1);
    black_box(&memory);
    Clock::Monotonic.now().since(begin).as_secs_f64() * 1e9 / PAGES as f64
}

/// Tries to create a lab's namespaces with this program; returns why that fails.
fn namespaces() -> Option<String> {
    let tried = std::env::current_exe().and_then(|program| {
        Command::new(program)
            .args(["doctor", "--try-namespaces"])
            .stdin(Stdio::null())
            .output()
    });
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(
            String::from_utf8_lossy(&output.stderr)
                .trim()
                .replace('\n', ";"),
        ),
        Err(error) => Some(error.to_string()),
    }
}
