use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use brunt_core::{Histogram, Nanos};
use brunt_result::event::{Event, RunInfo};
use brunt_result::summary::RunSummary;
use brunt_result::{Figures, Interval, OpKind, Outcome};
use brunt_study::observe::Observer;

use super::run::RunMetrics;

/// A one-second interval in which one read took 3 ms.
fn second(index: u64) -> Arc<Interval> {
    let mut figures = Figures::of_kinds(&[OpKind::Read]);
    let op = figures.at(0);
    (op.completed, op.bytes) = (1, 4096);
    op.response.record(Nanos(3_000_000));
    op.service.record(Nanos(2_000_000));
    let at = |second: u64| Nanos(second * 1_000_000_000);
    Arc::new(Interval {
        index,
        start: at(index),
        end: at(index + 1),
        figures,
        waiting: Histogram::default(),
    })
}

/// The value of the first sample whose line begins with `name`.
fn value(page: &str, name: &str) -> f64 {
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} in\n{page}"))
        .parse()
        .expect("a number")
}

/// The page shows the events of a run at once; the next run starts from zero.
#[test]
fn a_page_shows_a_runs_events_at_once() {
    let mut metrics = RunMetrics::alone("x", "disk \"w\"");
    let info = |order| {
        Arc::new(RunInfo {
            order,
            runs: 2,
            point: 0,
            label: "disk \"w\"".into(),
            repetition: order,
            seed: 1,
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(77),
            ready: Nanos(0),
        })
    };
    let labels = |run: u32| format!("{{point=\"disk \\\"w\\\"\",run=\"{run}\"");
    metrics.event(&Event::RunBegins(info(0))).unwrap();
    assert_eq!(
        value(
            &metrics.page(),
            &format!("brunt_run_under_way{}}}", labels(0))
        ),
        0.0
    );
    metrics.event(&Event::RunStarts(Nanos(0))).unwrap();
    for index in 0..5 {
        assert_eq!(
            value(&metrics.page(), &format!("brunt_run_steady{}}}", labels(0))),
            0.0,
            "{index}"
        );
        metrics.event(&Event::Interval(second(index))).unwrap();
    }
    let page = metrics.page();
    let of = |name: &str, more: &str| value(&page, &format!("{name}{}{more}}}", labels(0)));
    assert_eq!(
        (of("brunt_run_under_way", ""), of("brunt_run_steady", "")),
        (1.0, 1.0)
    );
    assert_eq!(
        (
            of("brunt_run_measured_seconds", ""),
            of("brunt_run_ready_time_seconds", "")
        ),
        (5.0, 77.0)
    );
    let op = ",op=\"read\"";
    assert_eq!(
        (
            of("brunt_run_requests_total", op),
            of("brunt_run_bytes_total", op)
        ),
        (5.0, 20480.0)
    );
    assert_eq!(of("brunt_run_response_seconds_count", op), 5.0);
    assert!((of("brunt_run_response_seconds_sum", op) - 0.015).abs() < 1e-9);
    // 3 ms is between 2.097 and 4.194 ms.
    assert_eq!(
        of(
            "brunt_run_response_seconds_bucket",
            ",op=\"read\",le=\"0.002097152\""
        ),
        0.0
    );
    assert_eq!(
        of(
            "brunt_run_response_seconds_bucket",
            ",op=\"read\",le=\"0.004194304\""
        ),
        5.0
    );
    assert_eq!(
        of(
            "brunt_run_service_seconds_bucket",
            ",op=\"read\",le=\"+Inf\""
        ),
        5.0
    );
    let median = of(
        "brunt_run_response_percentile_seconds",
        ",op=\"read\",percentile=\"50\"",
    );
    assert!((median - 0.003).abs() < 3e-6, "{median}");
    // Requests that drain after the last interval count, and remain visible during the next run.
    let mut all = Figures::of_kinds(&[OpKind::Read]);
    all.at(0).completed = 1388;
    let run = RunSummary::of(&Outcome::interrupted(), 0, 0, 1, None);
    let ends = Event::RunEnds(info(0), Arc::new(run), Arc::new(all));
    metrics.event(&ends).unwrap();
    let requests = |page: &str| {
        value(
            page,
            &format!("brunt_run_requests_total{},op=\"read\"}}", labels(0)),
        )
    };
    assert_eq!(requests(&metrics.page()), 1388.0);
    metrics.event(&Event::RunBegins(info(1))).unwrap();
    metrics.event(&Event::RunStarts(Nanos(0))).unwrap();
    metrics.event(&Event::Interval(second(0))).unwrap();
    let page = metrics.page();
    assert_eq!(requests(&page), 1388.0);
    let of_next = format!("brunt_run_requests_total{},op=\"read\"}}", labels(1));
    assert_eq!(value(&page, &of_next), 1.0);
    let info_line = page
        .lines()
        .filter(|line| line.starts_with("brunt_run_info{"))
        .collect::<Vec<_>>();
    assert!(
        matches!(info_line[..], [line] if line.contains("run=\"1\"")),
        "{page}"
    );
}

#[test]
fn the_last_figures_wait_for_a_regular_reader() {
    let readings = super::Readings::default();
    let begin = std::time::Instant::now();
    assert_eq!(readings.wanted(), None);
    readings.note(begin);
    assert_eq!(readings.wanted(), None, "read once by hand");
    readings.note(begin + Duration::from_secs(15));
    readings.note(begin + Duration::from_secs(16));
    assert_eq!(readings.wanted(), Some(Duration::from_secs(30)));
    readings.note(begin + Duration::from_secs(500));
    assert_eq!(readings.wanted(), Some(Duration::from_secs(60)));
    let stop = AtomicBool::new(true);
    assert!(!readings.wait_for_next(Duration::from_secs(3600), &stop));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| readings.wait_for_next(Duration::from_secs(3600), &stop));
        while !waits.is_finished() {
            readings.note(std::time::Instant::now());
            std::thread::yield_now();
        }
        assert!(waits.join().unwrap());
    });
}

/// The sample names of a page's metrics; a histogram has three.
fn exported(page: &str) -> BTreeSet<String> {
    let kinds = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let names = |(name, kind): (&str, &str)| match kind {
        "histogram" => ["_bucket", "_sum", "_count"]
            .map(|part| format!("{name}{part}"))
            .to_vec(),
        _ => vec![name.to_string()],
    };
    kinds.flat_map(names).collect()
}

/// The dashboard queries only exported metrics, and covers every metric of a run except its ready time.
#[test]
fn the_dashboard_queries_only_exported_metrics() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/grafana.json");
    let text = std::fs::read_to_string(path).expect("docs/grafana.json");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let mut asked = BTreeSet::new();
    let panels = dashboard["panels"].as_array().expect("panels");
    for target in panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten()
    {
        let query = target["expr"].as_str().expect("a query");
        for (at, _) in query.match_indices("brunt_") {
            let name: String = query[at..]
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            asked.insert(name);
        }
    }
    let run = exported(&RunMetrics::alone("x", "w").page());
    let all: BTreeSet<String> = run
        .iter()
        .cloned()
        .chain(exported(&crate::commands::capture_metrics()))
        .collect();
    // The metrics of a target need a running target: tests/it/metrics.rs checks the dashboard against it.
    let is_target = |name: &&String| name.starts_with("brunt_target_");
    let unknown: Vec<_> = asked
        .difference(&all)
        .filter(|name| !is_target(name))
        .collect();
    assert!(
        unknown.is_empty(),
        "docs/grafana.json asks for {unknown:?}, which nothing exports"
    );
    let family = |name: &String| {
        ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|part| name.strip_suffix(part))
            .unwrap_or(name)
            .to_string()
    };
    let asked: BTreeSet<String> = asked.iter().map(family).collect();
    let missing: Vec<_> = run
        .iter()
        .map(family)
        .filter(|name| !asked.contains(name) && name != "brunt_run_ready_time_seconds")
        .collect();
    assert!(
        missing.is_empty(),
        "docs/grafana.json does not show {missing:?}"
    );
}
