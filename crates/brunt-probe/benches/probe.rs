//! What does a sample of a host cost, and how much of that does the kernel spend on generating the texts? Prints the
//! CPU time of one sample of each probe, and of all together, compared with just reading the same files; the two
//! measurements are interleaved, and their ratio is printed.
//!
//!     cargo bench -p brunt-probe --bench probe

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use brunt_core::Clock;
use brunt_core::cost::ResourceUsage;
use brunt_probe::{Entry, PROBES, Sampler, Scope, Subject};

const ROUNDS: usize = 5;
/// Enough samples that the kernel's CPU time ticks don't matter.
const SAMPLES: u32 = 5000;

fn main() {
    let machine = Subject::Machine {
        host: "here".into(),
        with_network: true,
    };
    let runner = Subject::Process {
        host: "here".into(),
        name: "runner".into(),
        pid: std::process::id(),
    };
    println!(
        "{:<10} {:>12} {:>14} {:>8}",
        "probe", "us a sample", "of it reading", "ratio"
    );
    let all: Vec<&'static Entry> = PROBES
        .iter()
        .filter(|entry| entry.scope != Scope::Process)
        .collect();
    let mut whole = 0.0;
    for entry in PROBES {
        let subject = if entry.scope == Scope::Process {
            &runner
        } else {
            &machine
        };
        let cost = measure(entry.name, subject, &[entry]);
        if entry.scope == Scope::Process {
            whole += cost;
        }
    }
    whole += measure("machine", &machine, &all);
    println!(
        "machine and runner: {:.4}% of a CPU once a second, {:.3}% ten times a second",
        whole / 1e4,
        whole / 1e3
    );
}

/// Prints a row; returns the median cost of a sample in microseconds.
fn measure(name: &str, subject: &Subject, probes: &[&'static Entry]) -> f64 {
    let mut sampler = Sampler::open(subject, probes).expect("this machine can be sampled");
    let paths: BTreeSet<String> = probes
        .iter()
        .flat_map(|entry| entry.files)
        .map(|file| {
            file.replace("{net}", "/proc/thread-self/net")
                .replace("{process}", "/proc/self")
        })
        .filter(|file| !file.contains('*'))
        .collect();
    let files: Vec<File> = paths
        .iter()
        .filter_map(|path| File::open(path).ok())
        .collect();
    let mut text = vec![0; 1 << 20];
    let (mut samples, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        samples.push(cost_us(|| {
            std::hint::black_box(sampler.sample(&Clock::Monotonic, Clock::Monotonic.now()));
        }));
        reads.push(cost_us(|| {
            for file in &files {
                let mut offset = 0;
                while let Ok(count @ 1..) = file.read_at(&mut text[..16 << 10], offset) {
                    offset += count as u64;
                }
            }
        }));
    }
    let (sample, read) = (median(samples), median(reads));
    println!(
        "{name:<10} {sample:>12.1} {read:>14.1} {:>8.2}",
        sample / read
    );
    sample
}

/// Returns the CPU time per call of `work`, over many calls.
fn cost_us(mut work: impl FnMut()) -> f64 {
    let before = ResourceUsage::of_thread();
    (0..SAMPLES).for_each(|_| work());
    ResourceUsage::of_thread().since(before).cpu().as_secs_f64() * 1e6 / f64::from(SAMPLES)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
