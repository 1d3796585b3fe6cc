//! Tests of real loads of every kind, and of the decisions that involve all of their workers.

use super::*;
use std::sync::Arc;

use brunt_block::open_url;
use brunt_core::Span;
use brunt_result::Stopped;

use crate::block::BlockLoad;
use crate::block::processes::ArrivalProcess;
use crate::block::workload::{Arrival, DepthSearch as Search, StopCondition, Workload};
use crate::commands::LoadCommandError;
use crate::file::{FileLoad, FileSystemLoad};
use crate::kind::LoadContext;
use crate::load_kind;
use crate::sleep::SleepLoad;

fn on(url: &str) -> LoadTarget {
    LoadTarget::of(open_url(url).unwrap())
}

fn requests(count: u64) -> StopCondition {
    StopCondition {
        requests: Some(count),
        ..StopCondition::default()
    }
}

/// Runs a load that is known only through its line in the table.
#[test]
fn a_load_known_only_by_its_table_entry_runs() {
    let (_, load) = (load_kind("nap").unwrap().read)("naps = 5", &LoadContext::default())
        .unwrap()
        .remove(0);
    assert_eq!(
        load.open(&LoadTarget::default(), &AtomicBool::new(false))
            .unwrap(),
        ["it only sleeps"]
    );
    let measured = measure(
        &*load,
        &LoadTarget::default(),
        &RunOrder::alone(1),
        None,
        &AtomicBool::new(false),
        &mut NoRecorder,
    )
    .unwrap();
    assert_eq!(
        (
            measured.outcome.figures.completed(),
            measured.outcome.stopped
        ),
        (10, Stopped::Done)
    );
    let kinds: Vec<_> = measured
        .outcome
        .figures
        .ops()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(kinds, load.info().kinds);
    load.close().unwrap();
    let long = SleepLoad {
        naps: u64::MAX,
        workers: 3,
        hosts: Vec::new(),
    };
    let ran = run(
        &long,
        &LoadTarget::default(),
        &RunOrder::alone(1),
        &AtomicBool::new(true),
        &mut NoRecorder,
    );
    assert_eq!(ran.unwrap().outcome.stopped, Stopped::Interrupted);
}

/// A ring mode is chosen even if there are more workers than fit in their inbox.
#[test]
fn a_ring_is_chosen_for_many_workers() {
    let many = Workload {
        workers: 96,
        queue_depth: 1,
        ring: RingMode::Auto,
        stop: requests(96),
        ..Workload::default()
    };
    let stop = AtomicBool::new(false);
    let settled = settle(
        &BlockLoad::new(many),
        &on("null:1MiB?delay=const:50ms,servers=96"),
        1,
        &stop,
    )
    .unwrap();
    assert_ne!(settled.unwrap().ring.unwrap().mode, RingMode::Auto);
}

#[test]
fn a_block_load_needs_a_device() {
    let load = BlockLoad::new(Workload {
        stop: requests(1),
        ..Workload::default()
    });
    let order = RunOrder::alone(1);
    let error = run(
        &load,
        &LoadTarget::default(),
        &order,
        &AtomicBool::new(false),
        &mut NoRecorder,
    )
    .unwrap_err();
    assert!(
        matches!(error, LoadError::NoDevice { kind: "block" }),
        "{error}"
    );
}

#[test]
fn what_a_load_cannot_do_is_refused_by_type() {
    let stop = AtomicBool::new(false);
    let prepared = |load: &dyn Load, on: &LoadTarget| {
        let (messages, inbox) = MessageSender::new();
        let (_, running) = load
            .prepare(on, &RunOrder::alone(1), messages, &stop)
            .unwrap();
        (running, inbox)
    };
    let closed = BlockLoad::new(Workload {
        queue_depth: 8,
        stop: requests(1),
        ..Workload::default()
    });
    let (mut running, _inbox) = prepared(&closed, &on("null:1MiB"));
    assert_eq!(
        running.command(LoadCommand::Rate(10.0)),
        Err(LoadCommandError::NoRate)
    );
    assert_eq!(
        running.command(LoadCommand::Depth(9)),
        Err(LoadCommandError::BadDepth { depth: 9, max: 8 })
    );
    assert_eq!(running.command(LoadCommand::Depth(2)), Ok(()));
    let skip_after = Span(Duration::from_secs(1));
    let arrival = Arrival::Open {
        rate: 10.0,
        process: ArrivalProcess::Constant,
        skip_after,
    };
    let open = BlockLoad::new(Workload {
        arrival,
        stop: requests(1),
        ..Workload::default()
    });
    let (mut running, _inbox) = prepared(&open, &on("null:1MiB"));
    assert_eq!(running.command(LoadCommand::Rate(1e6)), Ok(()));
    assert_eq!(
        running.command(LoadCommand::Rate(-1.0)),
        Err(LoadCommandError::BadRate { rate: -1.0 })
    );
    let folder = tempfile::tempdir().unwrap();
    let file_size = Some(brunt_core::Size(64 << 10));
    let settings = FileSystemLoad {
        file_size,
        files: 10,
        ..FileSystemLoad::new(folder.path())
    };
    let phases = FileLoad::phases(&settings);
    phases[0]
        .open(&LoadTarget::default(), &AtomicBool::new(false))
        .unwrap();
    let (mut running, inbox) = prepared(&phases[0], &LoadTarget::default());
    assert_eq!(
        running.command(LoadCommand::Rate(1.0)),
        Err(LoadCommandError::NoRate)
    );
    assert_eq!(
        running.command(LoadCommand::Depth(1)),
        Err(LoadCommandError::NoDepth)
    );
    drop((running, inbox));
    phases.iter().for_each(|phase| phase.close().unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// The search finds that four requests saturate the array's servers, and that one does not.
#[test]
fn a_depth_search_finds_the_servers_of_an_array() {
    let mut said = String::new();
    // Additional delays on a busy machine matter less when the base delay is longer.
    for slower in [1, 2, 4, 8, 16, 16, 16] {
        let url = format!("memory:16MiB?delay=const:{}ms,servers=4", 2 * slower);
        let search = Search {
            max: 64,
            time: Span(Duration::from_millis(100 * slower)),
            ..Search::default()
        };
        let load = BlockLoad::new(Workload {
            stop: requests(1),
            depth_search: Some(search),
            ..Workload::default()
        });
        let measured = |stop: bool| {
            let stop = AtomicBool::new(stop);
            measure(
                &load,
                &on(&url),
                &RunOrder::alone(1),
                None,
                &stop,
                &mut NoRecorder,
            )
            .unwrap()
        };
        let stopped = measured(true);
        assert!(stopped.depth.is_none() && stopped.outcome.stopped == Stopped::Interrupted);
        let choice = measured(false).depth.unwrap();
        if (3..=8).contains(&choice.queue_depth) {
            return;
        }
        said = choice.describe();
    }
    panic!("{said}");
}

/// One server with a service time of 5 ms answers within 23 ms if at most four requests are outstanding.
#[test]
fn a_depth_search_keeps_a_latency_limit() {
    let search = |limit: u64| {
        let limit = Some(Span(Duration::from_millis(limit)));
        let time = Span(Duration::from_millis(200));
        let search = Search {
            max: 64,
            time,
            percentile: Some(50.0),
            limit,
        };
        let load = BlockLoad::new(Workload {
            stop: requests(1),
            depth_search: Some(search),
            ..Workload::default()
        });
        let on = on("memory:16MiB?delay=const:5ms,servers=1");
        let measured = measure(
            &load,
            &on,
            &RunOrder::alone(1),
            None,
            &AtomicBool::new(false),
            &mut NoRecorder,
        )
        .unwrap();
        measured.depth.unwrap()
    };
    let found = search(23);
    // Additional delays on a busy machine reduce the depth, never increase it.
    assert!((1..=4).contains(&found.queue_depth), "{}", found.describe());
    assert!(
        found.trials.iter().any(|trial| trial.kept == Some(false)),
        "{}",
        found.describe()
    );
    let none = search(1);
    assert_eq!(none.queue_depth, 1);
    assert!(
        none.describe().contains("no depth stays within the limit"),
        "{}",
        none.describe()
    );
}

#[test]
fn a_rate_search_ends_at_what_the_device_can_do() {
    let search = |limit: Duration| {
        let arrival = Arrival::Search {
            percentile: 50.0,
            limit: Span(limit),
            rate: 20.0,
            tolerance: 0.5,
            process: ArrivalProcess::Constant,
        };
        let stop = StopCondition {
            time: Some(Span(Duration::from_millis(200))),
            ..StopCondition::default()
        };
        let load = BlockLoad::new(Workload {
            arrival,
            stop,
            queue_depth: 4,
            ..Workload::default()
        });
        let place = on("memory:16MiB?delay=const:20ms,servers=1");
        measure(
            &load,
            &place,
            &RunOrder::alone(1),
            None,
            &AtomicBool::new(false),
            &mut NoRecorder,
        )
        .unwrap()
    };
    // Fifty requests per second is the maximum for one server with 20 ms; in a short trial at a higher rate, the
    // queue stays short. If the machine pauses during a trial, even the lowest rate is too high, so this tries again.
    let mut found = Vec::new();
    let is_found = (0..20).any(|_| {
        let rate = search(Duration::from_millis(100)).rate_found;
        found.push(rate);
        rate.is_some_and(|rate| (20.0..200.0).contains(&rate))
    });
    assert!(is_found, "{found:?}");
    let none = search(Duration::from_millis(1));
    assert!(none.rate_found.is_none() && none.outcome.figures.completed() > 0 && none.trial > 0);
}

#[test]
fn shares_of_workers_add_up() {
    for (all, workers) in [(0, 1), (10, 3), (2, 5), (u64::MAX, 7)] {
        let sum: u64 = (0..workers).map(|worker| share(all, worker, workers)).sum();
        assert_eq!(sum, all);
    }
}

#[test]
fn one_run_of_a_rate_search_is_refused() {
    let limit = Span(Duration::from_millis(1));
    let process = ArrivalProcess::Constant;
    let arrival = Arrival::Search {
        percentile: 99.0,
        limit,
        rate: 1.0,
        tolerance: 0.1,
        process,
    };
    let load: Arc<dyn Load> = Arc::new(BlockLoad::new(Workload {
        arrival,
        ..Workload::default()
    }));
    let order = RunOrder::alone(1);
    let error = run(
        &*load,
        &on("null:1MiB"),
        &order,
        &AtomicBool::new(false),
        &mut NoRecorder,
    )
    .unwrap_err();
    assert!(error.to_string().starts_with("arrival: "), "{error}");
}
