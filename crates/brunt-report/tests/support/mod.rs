//! Pages to look at, made from a real experiment against memory, with time lines made up by rule so
//! that each kind of chart has something to show.

pub mod browser;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use brunt_block::Backend;
use brunt_block::backends::memory::MemoryBackend;
use brunt_core::{Histogram, Nanos};
use brunt_report::experiment::{Details, IntervalDetails, Probe, RunDetails};
use brunt_study::experiment::Experiment;
use brunt_study::observe::Company;
use brunt_study::study::Study;
use brunt_study::summary::{FaultSummary, Summary};

/// A folder of a test's own.
pub fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("brunt-report-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs an experiment of two targets in memory.
pub fn run(name: &str, sweep: &str, repetitions: u32) -> Summary {
    let text = format!(
        r#"
        name = "{name}"
        description = "Two memories under a growing queue, to see what a page looks like."
        repetitions = {repetitions}
        [targets.memory]
        url = "memory:16MiB"
        [targets."other <b>memory</b> with a long name"]
        url = "memory:16MiB"
        [workloads.mixed]
        read = 0.5
        stop = {{ requests = 1500 }}
        [sweep]
        {sweep}
    "#
    );
    let experiment = Experiment::parse("test.toml", &text).unwrap();
    let targets = experiment.targets.keys().map(|name| {
        let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::new(16 << 20, 512).unwrap());
        (name.clone(), memory)
    });
    let targets: BTreeMap<_, _> = targets.collect();
    let folder = folder("study");
    let study = Study::new(experiment, targets, "0.0.0-test", &folder, Company::default());
    let summary = study.run(&AtomicBool::new(false)).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    summary
}

/// A fault in every run, to go with the time lines.
pub fn with_faults(mut summary: Summary) -> Summary {
    for run in summary.points.iter_mut().flat_map(|point| &mut point.runs) {
        run.faults.push(FaultSummary {
            index: 0,
            name: "slow".into(),
            kind: "slow".into(),
            place: "memory".into(),
            what: "storage slower, × 12".into(),
            start_s: 50.0,
            shown_s: 50.1,
            shown_by: "a read took 9 ms".into(),
            end_s: Some(70.0),
            gone_s: Some(70.1),
            gone_by: "a read took 80 us".into(),
            cost: None,
        });
    }
    summary
}

/// Time lines for every run: two minutes by the second, with a dip and a peak of latency at a fault.
pub fn details(summary: &Summary) -> Details {
    let environment = vec![
        ("Host".into(), "bench-7".into()),
        ("Kernel".into(), "Linux 6.1.0".into()),
        ("Processor".into(), "2 × Example 9000 at 2.6 GHz, governor performance".into()),
        ("Memory".into(), "8 GiB".into()),
    ];
    let mut details = Details { environment, ..Details::default() };
    for (index, point) in summary.points.iter().enumerate() {
        let mut all = Histogram::new();
        for run in &point.runs {
            details.runs.insert(run.order, time_line(f64::from(run.order), &mut all));
        }
        details.response.insert(index, all);
    }
    details
}

fn time_line(shift: f64, all: &mut Histogram) -> RunDetails {
    let mut run = RunDetails::default();
    let (mut user, mut received) = (Vec::new(), Vec::new());
    for second in 0..120u32 {
        let at = f64::from(second);
        let slow = if (50..70).contains(&second) { 12.0 } else { 1.0 };
        let base = (90.0 + 4.0 * shift + 12.0 * (at / 9.0).sin()) * slow;
        let completed = (200_000.0 / base * 10.0) as u64;
        // An exponential's quantiles, with a second hump of slow requests; rising.
        let mut buckets: Vec<(f64, u64)> = (0..100u32)
            .map(|step| {
                let share = (f64::from(step) + 0.5) / 100.0;
                let hump = if step % 50 == 7 { 25.0 } else { 1.0 };
                (base * (0.4 - 0.5 * (1.0 - share).ln()) * hump, completed / 100)
            })
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (us, count) in &buckets {
            all.record_bucket(Nanos((us * 1e3) as u64), *count);
        }
        let percentile = |rank: usize| buckets[rank].0;
        run.intervals.push(IntervalDetails {
            start_s: at,
            end_s: at + 1.0,
            completed,
            bytes: completed * 4096,
            lost: if slow > 1.0 { 12 } else { 0 },
            retries: if slow > 1.0 { 40 } else { 0 },
            percentiles_us: Some([percentile(49), percentile(97), percentile(98), percentile(99)]),
            buckets,
        });
        user.push((at + 1.0, 0.35 + 0.1 * (at / 7.0).sin()));
        received.push((at + 1.0, completed as f64 * 4096.0));
    }
    let probe = |probe: &str, instance: &str, metric: &str, values: Vec<(f64, f64)>| Probe {
        host: "local".into(),
        probe: probe.into(),
        instance: instance.into(),
        metric: metric.into(),
        values,
    };
    let system = user.iter().map(|(at, value)| (*at, value / 2.5)).collect();
    let switches = received.iter().map(|(at, value)| (*at, value / 4e4)).collect();
    run.probes = vec![
        probe("cpu", "", "user_share", user),
        probe("cpu", "", "system_share", system),
        probe("cpu", "", "context_switches_per_s", switches),
        probe("network", "eth0", "received_bytes_per_s", received),
    ];
    run
}
