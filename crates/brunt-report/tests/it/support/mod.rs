//! Test pages made from a real experiment in memory, with generated timelines so that each kind of chart has data.

#[allow(dead_code)] // shared with the tests of the live page
pub mod browser;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use brunt_block::Backend;
use brunt_block::backends::memory::MemoryBackend;
use brunt_core::{Histogram, Nanos};
use brunt_report::experiment::{Details, RunDetails, StoredInterval};
use brunt_result::choice::{DepthChoice, DepthTrial};
use brunt_result::degradation::{IntervalFigures, phases_over_runs};
use brunt_result::history::{HistoryChange, HistorySeries};
use brunt_result::link::LinkCounts;
use brunt_result::statistics::{Better, ChangePoint, Verdict};
use brunt_result::summary::{FaultSummary, Summary};
use brunt_study::experiment::Experiment;
use brunt_study::hooks::RunHooks;
use brunt_study::study::Study;

/// Runs an experiment of two targets in memory.
pub fn run(name: &str, sweep: &str, repetitions: u32) -> Summary {
    run_with("", name, sweep, repetitions)
}

/// Runs an experiment of two targets in memory, with these additional keys.
pub fn run_with(keys: &str, name: &str, sweep: &str, repetitions: u32) -> Summary {
    let text = format!(
        r#"
        name = "{name}"
        description = "Two memories under a growing queue, to see what a page looks like."
        repetitions = {repetitions}
        {keys}
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
    run_text(&text)
}

/// Runs an experiment whose targets are 16 MiB memory devices.
pub fn run_text(text: &str) -> Summary {
    let experiment = Experiment::parse("test.toml", text).unwrap();
    let targets = experiment.targets.keys().map(|name| {
        let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::new(16 << 20, 512).unwrap());
        (name.clone(), memory)
    });
    let targets: BTreeMap<_, _> = targets.collect();
    let folder = tempfile::tempdir().unwrap();
    let study = Study::new(
        experiment,
        targets,
        "0.0.0-test",
        folder.path(),
        RunHooks::default(),
    );
    study.run(&AtomicBool::new(false)).unwrap()
}

/// Adds a fault to every run, matching the timelines.
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
            gaps: Vec::new(),
            cost: None,
            occurrence: None,
        });
    }
    summary
}

/// Adds a fault and phases to every run: two minutes in intervals of a second, at 1,000, 250 and 900 requests per
/// second before, during and after the fault.
pub fn with_phases(summary: Summary) -> Summary {
    let mut summary = with_faults(summary);
    let second = |second: u32| {
        let requests = match second {
            0..50 => 1000,
            50..70 => 250,
            _ => 900,
        };
        let response_mean_us = Some(1e6 / requests as f64);
        let (start_s, end_s, bytes) = (f64::from(second), f64::from(second) + 1.0, requests * 4096);
        IntervalFigures {
            start_s,
            end_s,
            requests,
            bytes,
            response_mean_us,
            ..IntervalFigures::default()
        }
    };
    let series: Vec<IntervalFigures> = (0..120).map(second).collect();
    for point in &mut summary.points {
        for run in &mut point.runs {
            run.phases = FaultSummary::phases(&run.faults, &series);
        }
        point.phases = phases_over_runs(point.runs.iter().map(|run| &run.phases[..]));
    }
    summary
}

/// Adds a link, its losses and a doubt to every run, and a queue depth found by search to every point.
pub fn with_lab(mut summary: Summary) -> Summary {
    for point in &mut summary.points {
        let trial = |(queue_depth, bytes_per_second)| DepthTrial {
            queue_depth,
            bytes_per_second,
            kept: None,
        };
        let trials = [
            (1, 2.1e6),
            (2, 4.2e6),
            (4, 8.3e6),
            (8, 11.4e6),
            (16, 11.5e6),
            (32, 11.3e6),
        ];
        point.depth = Some(DepthChoice {
            queue_depth: 8,
            trials: trials.map(trial).to_vec(),
        });
        for run in &mut point.runs {
            let report = run
                .links
                .entry("a link with a long name".into())
                .or_default();
            report.there = LinkCounts {
                packets: 1_000_000,
                lost: 27_013,
                ..LinkCounts::default()
            };
            report.back = LinkCounts {
                packets: 500_000,
                queue_full: 12,
                ..LinkCounts::default()
            };
            run.doubts.push(
                "link a link with a long name: the link emulator was busy for 95% of the time"
                    .into(),
            );
        }
    }
    summary
}

/// Timelines for every run: two minutes in intervals of a second, with a dip in the rate and a peak in latency during
/// a fault.
pub fn details(summary: &Summary) -> Details {
    let environment = vec![
        ("Host".into(), "bench-7".into()),
        ("Kernel".into(), "Linux 6.1.0".into()),
        (
            "Processor".into(),
            "2 × Example 9000 at 2.6 GHz, governor performance".into(),
        ),
        ("Memory".into(), "8 GiB".into()),
    ];
    let mut details = Details {
        environment,
        ..Details::default()
    };
    for (index, point) in summary.points.iter().enumerate() {
        let mut all = Histogram::new();
        for run in &point.runs {
            details
                .runs
                .insert(run.order, time_line(120, f64::from(run.order), &mut all));
        }
        details.response.insert(index, all);
    }
    details
}

/// Timelines for runs of a few seconds.
pub fn short_details(summary: &Summary, seconds: u32) -> Details {
    let runs = summary.points.iter().flat_map(|point| &point.runs);
    let lines = runs.map(|run| (run.order, time_line(seconds, 0.0, &mut Histogram::new())));
    Details {
        runs: lines.collect(),
        ..Details::default()
    }
}

fn time_line(seconds: u32, shift: f64, all: &mut Histogram) -> RunDetails {
    let mut run = RunDetails::new(100);
    for second in 0..seconds {
        let at = f64::from(second);
        let slow = if (50..70).contains(&second) {
            12.0
        } else {
            1.0
        };
        let base = (90.0 + 4.0 * shift + 12.0 * (at / 9.0).sin()) * slow;
        let completed = (200_000.0 / base * 10.0) as u64;
        // Ascending quantiles of an exponential distribution with a second hump of slow requests.
        let mut buckets: Vec<(f64, u64)> = (0..100u32)
            .map(|step| {
                let share = (f64::from(step) + 0.5) / 100.0;
                let hump = if step % 50 == 7 { 25.0 } else { 1.0 };
                (
                    base * (0.4 - 0.5 * (1.0 - share).ln()) * hump,
                    completed / 100,
                )
            })
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        run.map.stretch(at, at + 1.0);
        for (us, count) in &buckets {
            all.record_bucket(Nanos((us * 1e3) as u64), *count).unwrap();
            run.map.count(*us, *count);
        }
        let (lost, retries) = if slow > 1.0 { (12, 40) } else { (0, 0) };
        let response_us = [49, 97, 98, 99].map(|rank| Some(buckets[rank].0));
        run.interval(&StoredInterval {
            start_s: at,
            end_s: at + 1.0,
            completed,
            lost,
            retries,
            response_us,
        });
        let user = 0.35 + 0.1 * (at / 7.0).sin();
        let bytes = completed as f64 * 4096.0;
        let samples = [
            (["local", "cpu", "", "user_share"], user),
            (["local", "cpu", "", "system_share"], user / 2.5),
            (
                ["local", "activity", "", "context_switches_per_s"],
                bytes / 4e4,
            ),
            (["local", "network", "eth0", "received_bytes_per_s"], bytes),
            (["local", "memory", "", "swapped_in_bytes_per_s"], 0.0),
        ];
        for (of, value) in samples {
            run.sample(of, at, at + 1.0, value);
        }
    }
    run
}

/// Returns the names of results and four series over them. The figures are worse by a quarter from the 41st result
/// on, and the fourth result has none.
pub fn history(results: usize) -> (Vec<String>, Vec<HistorySeries>) {
    let names = (0..results).map(|one| {
        format!(
            "{one:02}-a-branch-with-quite-a-long-name-{:x}",
            one * 7919 + 0xabcdef
        )
    });
    let figures = [
        ("iops", "requests/s", Better::Higher, 20_000.0, 0.8),
        ("mean", "us", Better::Lower, 50.0, 1.25),
        ("p99", "us", Better::Lower, 140.0, 1.25),
        ("p99.9", "us", Better::Lower, 900.0, 1.25),
    ];
    let series = figures.map(|(metric, unit, better, level, factor)| {
        let value = |one: usize| {
            let level = if one < 40 { level } else { level * factor };
            (one != 3).then(|| level * (1.0 + 0.01 * (one * 7 % 5) as f64))
        };
        let change = ChangePoint {
            index: 39,
            before: level,
            after: level * factor,
            ratio: Some(factor),
            low: Some(factor * 0.99),
            high: Some(factor * 1.01),
            p: 0.00125,
        };
        let found = HistoryChange {
            result: 40,
            verdict: Verdict::Worse,
            change,
        };
        HistorySeries {
            label: "a target with a long name, random-reads-of-4KiB, queue_depth=16".into(),
            metric: metric.into(),
            unit,
            better,
            values: (0..results).map(value).collect(),
            changes: if results > 40 {
                vec![found]
            } else {
                Vec::new()
            },
        }
    });
    (names.collect(), series.to_vec())
}
