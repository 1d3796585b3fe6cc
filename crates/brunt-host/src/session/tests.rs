use std::sync::Arc;

use super::*;
use crate::plain::TEXT_CHARS_MAX;
use crate::test_only;
use brunt_protocol::{HostFaultFailure, RoleNews, TraceDigest};
use brunt_result::OpKind;
use brunt_result::event::{Sample, SampleValue};

fn name(text: &str) -> ClockName {
    ClockName(text.into())
}

fn hello(version: u32) -> FromHost {
    FromHost::Hello {
        version,
        program: "brunt 1".into(),
        now: Moment {
            clock: name("a"),
            at: Nanos(1),
        },
    }
}

fn part() -> HostPart {
    let kinds = vec![OpKind::Read];
    HostPart {
        workers: 1,
        first_worker: 0,
        kinds,
        records: false,
        journals: false,
    }
}

fn greeted() -> HostSession {
    let mut session = HostSession::default();
    assert_eq!(
        session.on_message(hello(VERSION), Nanos(1)).unwrap(),
        HostNews::Greeted("brunt 1".into())
    );
    session
}

fn sampled(clock: &str) -> FromHost {
    sampled_of(clock, "eth0")
}

fn sampled_of(clock: &str, instance: &str) -> FromHost {
    let value = SampleValue {
        probe: "network".into(),
        instance: instance.into(),
        metric: "received_bytes_per_s".into(),
        value: 1.0,
    };
    let sample = Sample {
        host: "local".into(),
        start: Nanos(1),
        end: Nanos(2),
        values: vec![value],
    };
    FromHost::Event(Box::new(Envelope::new(
        name(clock),
        Event::Sample(Arc::new(sample)),
    )))
}

#[test]
fn a_clock_request_and_its_reply_make_a_round() {
    let mut session = greeted();
    let ToHost::AskClock { round } = session.ask(Nanos(10)) else {
        panic!("a question")
    };
    let answer = FromHost::Clock {
        round,
        heard: Nanos(500),
        wall_ns: 9000,
        answered: Nanos(501),
    };
    let HostNews::Clock { monotonic, wall } =
        session.on_message(answer.clone(), Nanos(20)).unwrap()
    else {
        panic!("a round")
    };
    assert_eq!(
        monotonic,
        ClockRound {
            sent: Nanos(10),
            heard: Nanos(500),
            answered: Nanos(501),
            back: Nanos(20)
        }
    );
    assert_eq!((wall.heard, wall.answered), (Nanos(9000), Nanos(9000)));
    assert!(matches!(
        session.on_message(answer, Nanos(21)),
        Err(SessionError::Unasked(_))
    ));
}

/// News of a fault says that it is in effect, and later that it is gone, each only on request.
#[test]
fn news_of_a_fault_must_arrive_in_order() {
    let proof = |what: &str| Proof {
        at: Nanos(1),
        seen: Nanos(2),
        what: what.into(),
        value: None,
    };
    let put = |fault| FromHost::FaultPut {
        fault,
        proof: proof("there\x1b"),
    };
    let removed = |fault| FromHost::FaultRemoved {
        fault,
        proof: proof("gone"),
    };
    let failed = |fault| {
        let (kind, what) = (HostFaultFailure::NotShown, "no".to_string());
        FromHost::FaultFailed { fault, kind, what }
    };
    let mut session = greeted();
    let hear = |session: &mut HostSession, message| session.on_message(message, Nanos(3));
    for message in [put(1), removed(1), failed(1)] {
        assert!(matches!(
            hear(&mut session, message),
            Err(SessionError::Unasked(_))
        ));
    }
    session.put_fault(1, HostFault::Memory { bytes: 1 });
    assert!(
        hear(&mut session, removed(1)).is_err(),
        "its removal was not requested"
    );
    session.put_fault(2, HostFault::Memory { bytes: 1 });
    let HostNews::FaultProven(2, shown) = hear(&mut session, put(2)).unwrap() else {
        panic!("it is in effect")
    };
    assert_eq!(shown.what, "there");
    assert!(hear(&mut session, put(2)).is_err(), "once");
    session.remove_fault(2);
    assert!(matches!(
        hear(&mut session, removed(2)),
        Ok(HostNews::FaultProven(2, _))
    ));
    session.put_fault(3, HostFault::Memory { bytes: 1 });
    session.remove_fault(3);
    assert_eq!(hear(&mut session, put(3)).unwrap(), HostNews::Late);
    assert!(matches!(
        hear(&mut session, failed(3)),
        Ok(HostNews::FaultFailed(3, HostFaultFailure::NotShown, _))
    ));
}

#[test]
fn unrequested_messages_are_refused() {
    let check = |mut session: HostSession, message: FromHost, expected: &str| {
        let error = session
            .on_message(message, Nanos(5))
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    };
    let watching = || {
        let mut session = greeted();
        session.watch("a", &Probes::default());
        session
    };
    check(HostSession::default(), sampled("a"), "not a greeting");
    check(HostSession::default(), hello(99), "protocol version 99");
    check(greeted(), hello(VERSION), "a second greeting");
    check(greeted(), sampled("a"), "an event");
    check(
        watching(),
        sampled_of("a", "eth0\u{1b}[2J"),
        "control characters",
    );
    check(
        watching(),
        sampled("b"),
        "clock 'b' after a greeting with 'a'",
    );
    check(
        watching(),
        FromHost::Done {
            troubles: vec![],
            page_cache: None,
            replay: None,
        },
        "about a run",
    );
    check(watching(), FromHost::Requests(vec![]), "about a run");
    check(
        watching(),
        FromHost::Role {
            role: 0,
            news: RoleNews::Lives,
        },
        "about a role",
    );
    check(
        watching(),
        FromHost::Journal {
            worker: 0,
            bytes: vec![],
        },
        "about a run",
    );
    check(
        watching(),
        FromHost::NeedsTrace(TraceDigest(String::new())),
        "a part of a run",
    );
    let mut asked = greeted();
    asked.ask(Nanos(1));
    let answer = FromHost::Clock {
        round: 77,
        heard: Nanos(2),
        wall_ns: 0,
        answered: Nanos(2),
    };
    check(asked, answer, "a reply about its clock");
    assert!(matches!(
        watching().on_message(sampled("a"), Nanos(5)),
        Ok(HostNews::Sample(_))
    ));
}

/// After a run's release, the only news about it is its end; then another run may follow.
#[test]
fn news_of_a_released_run_is_ignored_except_its_end() {
    let assignment = || test_only::assignment("", "memory:1MiB");
    let mut session = greeted();
    session.prepare(assignment(), part());
    let ready = |text: &str| HostReady {
        notes: vec![text.into()],
        engine: None,
        ring: None,
        trace: None,
    };
    let heard = session
        .on_message(FromHost::Ready(ready("a\u{1b}b")), Nanos(2))
        .unwrap();
    assert_eq!(heard, HostNews::Ready(ready("ab")));
    let early = session
        .on_message(FromHost::Released, Nanos(2))
        .unwrap_err();
    assert!(matches!(early, SessionError::Unasked(_)), "{early}");
    session.release();
    let nonsense = FromHost::Done {
        troubles: vec![],
        page_cache: None,
        replay: None,
    };
    assert_eq!(
        session.on_message(nonsense, Nanos(3)).unwrap(),
        HostNews::Late
    );
    let failed = |kind| FromHost::Failed {
        kind,
        what: String::new(),
    };
    let mut kept = |kind| session.on_message(failed(kind), Nanos(3)).unwrap() != HostNews::Late;
    use FailureKind::{Broken, LeaseOver, NotAllowed, Refused, Version};
    assert_eq!(
        [Broken, NotAllowed, Refused, LeaseOver, Version].map(&mut kept),
        [false, false, false, true, true]
    );
    assert_eq!(
        session.on_message(FromHost::Released, Nanos(4)).unwrap(),
        HostNews::Released
    );
    assert!(
        session
            .on_message(FromHost::Ready(ready("c")), Nanos(5))
            .is_err()
    );
    session.prepare(assignment(), part());
    assert!(
        session
            .on_message(FromHost::Ready(ready("c")), Nanos(6))
            .is_ok()
    );
}

#[test]
fn passwords_are_not_passed_on() {
    let what = "'iscsi://me%hush@host/t/0': no login".to_string();
    let failed = FromHost::Failed {
        kind: FailureKind::Refused,
        what,
    };
    let HostNews::Failed(_, text) = greeted().on_message(failed, Nanos(1)).unwrap() else {
        panic!("it failed")
    };
    assert_eq!(text, "'iscsi://me%***@host/t/0': no login");
}

#[test]
fn texts_are_truncated_and_lose_control_characters() {
    let note = FromHost::Note("\u{1b}ä\n".repeat(10_000));
    let HostNews::Note(text) = greeted().on_message(note, Nanos(1)).unwrap() else {
        panic!("a note")
    };
    assert_eq!(text, "ä".repeat(TEXT_CHARS_MAX));
    let now = Moment {
        clock: name("\u{1b}c"),
        at: Nanos(1),
    };
    let hello = FromHost::Hello {
        version: 99,
        program: "\u{1b}[2Jbrunt".into(),
        now,
    };
    let error = HostSession::default()
        .on_message(hello, Nanos(1))
        .unwrap_err()
        .to_string();
    assert!(error.contains("([2Jbrunt)"), "{error}");
}
