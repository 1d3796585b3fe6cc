//! Tests whether a replay reached the end of its trace, and whether the trace has changed since the survey.

use super::*;

/// One of two workers gets the last request of the trace, which is due just after the end of the run, and returns it
/// once the other worker finds no more. This doesn't count as a changed trace.
#[test]
fn a_request_given_back_is_not_missing_from_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let load = load(
        &trace(
            folder.path(),
            (0..2).map(|at| (0, at * 512, 512, 'R', at * 1000)),
        ),
        "",
    );
    let turns = turns_of_two(&load, memory(1 << 20).info());
    let (mut first, mut second) = (turns.sequence(1), turns.sequence(1));
    let now = Clock::Monotonic.now();
    first.starts(now);
    let mut place = Planned::NOTHING;
    assert_eq!(first.next(now, &mut place), Next::Due(now));
    first.sent(&place, now);
    first.completed(place.index, RequestStatus::Good, now);
    let late = now.after(Duration::from_millis(2));
    let Next::Due(behind) = first.next(late, &mut place) else {
        panic!("the second request is due")
    };
    // Its queue is empty, so it is the other worker's turn.
    first.pause(0);
    let given = place;
    while second.next(late, &mut place) != Next::End {
        // The reader has not reported the end yet.
        second.pause(0);
        std::thread::yield_now();
    }
    second.pause(0);
    first.given_back(given.index, behind);
    drop((first, second));
    let fidelity = judged(&load, turns);
    assert_eq!(
        fidelity.unsent,
        UnsentRequests {
            after_end: 1,
            ..UnsentRequests::default()
        }
    );
    assert_eq!(
        fidelity.verdict,
        ReplayVerdict::Degraded,
        "{:?}",
        fidelity.reasons
    );
    assert!(
        fidelity.reasons[0].starts_with("the replay ended after 1 of 2 requests"),
        "{:?}",
        fidelity.reasons
    );
}

/// A trace that is rewritten between the survey and the run is detected, whatever its new contents.
#[test]
fn a_trace_that_changes_after_the_survey_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let check = |keys: &str, then: [(u32, u64); 3], said: &str| {
        let write = |rows: [(u32, u64); 3]| {
            let rows = rows.into_iter().zip(0..);
            trace(
                folder.path(),
                rows.map(|((device, offset), us)| (device, offset, 512, 'R', us)),
            )
        };
        let load = load(&write([(0, 0), (0, 512), (1, 0)]), keys);
        load.survey().unwrap();
        write(then);
        let (_, fidelity, _) = replayed(&load, memory(4 << 20));
        assert_eq!(fidelity.verdict, ReplayVerdict::NotAReplay, "{said}");
        assert!(
            fidelity.reasons.iter().any(|reason| reason.contains(said)),
            "{:?}",
            fidelity.reasons
        );
        assert_eq!(
            fidelity.sent + fidelity.unsent.total(),
            fidelity.planned,
            "{:?}",
            fidelity.unsent
        );
    };
    check(
        "",
        [(0, 0), (1, 512), (1, 0)],
        "it has 1 request more of device 1",
    );
    check(
        "",
        [(0, 0), (1, 512), (2, 0)],
        "a request on device 2 where there was none",
    );
    check(
        "map = \"pack\"",
        [(0, 0), (0, 1 << 30), (1, 0)],
        "a request on device 0 where there was none",
    );
}

/// Judges the replay of these turns.
fn judged(load: &ReplayLoad, turns: Turns) -> ReplayFidelity {
    let mut stream = turns.into_stream();
    let (counts, failure) = stream.finish_feed();
    assert!(stream.meter.ended, "all of the trace was given away");
    let survey = load.survey().unwrap();
    let plan = ReplayPlan {
        settings: &load.settings,
        survey: &survey,
        routes: &load.routes,
    };
    fidelity::judge(&stream.meter, &plan, &counts, failure.as_ref())
}
