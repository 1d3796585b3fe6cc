//! The flush that ends a run with `end_fsync`.

use super::*;

fn writes(stop: StopCondition) -> Workload {
    Workload {
        read: 0.0,
        queue_depth: 4,
        end_fsync: true,
        stop,
        ..Workload::default()
    }
}

/// Returns a device on which four writes complete each millisecond, and a flush takes this long.
fn flushes_in(flush: Duration) -> Simulated {
    Simulated {
        flush,
        ..Simulated::new(&Clock::manual(), 4, MS)
    }
}

fn flushes(outcome: &Outcome) -> u64 {
    let ops = outcome.figures.ops();
    ops.filter(|(kind, _)| *kind == OpKind::Flush)
        .map(|(_, op)| op.completed)
        .sum()
}

/// fio's runtime, and so its bandwidth, includes the final fsync; Brunt's does, too, whatever ends the run.
#[test]
fn the_last_flush_is_part_of_the_run() {
    for stop in [for_time(1000 * MS), for_requests(4000)] {
        let outcome = run(&writes(stop), &mut flushes_in(3000 * MS));
        assert_eq!(outcome.end.since(outcome.start), 4000 * MS);
        assert_eq!(flushes(&outcome), 1);
        // Writes that completed just after the time limit count, as in fio.
        let count = outcome.figures.completed_in_time();
        assert!((4000..=4004).contains(&count), "{count}");
        assert_eq!(outcome.stopped, Stopped::Done);
    }
}

#[test]
fn an_open_loop_sends_nothing_after_its_time() {
    let workload = Workload {
        arrival: open(1000.0),
        ..writes(for_time(100 * MS))
    };
    let outcome = run(&workload, &mut flushes_in(500 * MS));
    assert_eq!(outcome.figures.completed_in_time(), 100);
    assert_eq!(flushes(&outcome), 1);
    assert!(outcome.end.since(outcome.start) >= 600 * MS);
}

#[test]
fn intervals_go_on_until_the_flush_completes() {
    struct Ends(Vec<u64>);
    impl Recorder for Ends {
        fn interval(&mut self, interval: &Interval) {
            self.0.push(interval.end.0 / 1_000_000);
        }
    }
    let workload = Workload {
        interval: Span(1000 * MS),
        ..writes(for_time(1000 * MS))
    };
    let mut ends = Ends(Vec::new());
    run_with(&workload, &mut flushes_in(2500 * MS), &mut ends);
    assert_eq!(ends.0, [1000, 2000, 3000, 3500]);
}

#[test]
fn a_flush_that_never_completes_is_hanging() {
    let mut device = flushes_in(Duration::from_secs(1_000_000));
    let outcome = run(&writes(for_time(10 * MS)), &mut device);
    assert_eq!(flushes(&outcome), 0);
    assert_eq!(
        outcome.figures.counts.by_status[RequestStatus::Hanging as usize],
        1
    );
}
