//! Both sides of a connection between hosts: for any bytes in any pieces, a session responds or ends, an agent does
//! nothing before a greeting, and a host's clock messages result in ordered bounds or none.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use brunt_core::Nanos;
use brunt_host::{AgentAction, AgentSession, ClockTrack, HostNews, HostPart, HostSession};
use brunt_probe::Probes;
use brunt_protocol::{Assignment, Decoder, FromHost, HostFault, LoadStep, Secret, ToHost};
use brunt_result::{Figures, OpKind};
use libfuzzer_sys::fuzz_target;

fn agent(step: usize, bytes: &[u8]) {
    let mut session = AgentSession::new(Duration::from_secs(1), Nanos(0));
    let (mut decoder, mut now, mut greeted) = (Decoder::default(), 0, false);
    let mut faults = BTreeSet::new();
    for part in bytes.chunks(step) {
        decoder.push(part);
        now += 1;
        while let Ok(Some(message)) = decoder.take::<ToHost>() {
            let is_greeting = message.check_greeting().is_ok();
            match session.on_message(message, Nanos(now)) {
                Ok(action) => {
                    assert!(greeted || (is_greeting && action.is_none()));
                    greeted = true;
                    match action {
                        Some(AgentAction::Release) => session.released(),
                        // A fault's number is not reused until the fault is removed.
                        Some(AgentAction::PutFault(fault, _)) => {
                            assert!(faults.insert(fault) && faults.len() <= 64)
                        }
                        Some(AgentAction::RemoveFault(fault)) => {
                            assert!(faults.remove(&fault));
                            session.fault_over(fault);
                        }
                        _ => {}
                    }
                    assert_eq!(session.deadline(), Nanos(now).after(Duration::from_secs(1)));
                }
                Err(_) => {
                    assert!(!greeted && !is_greeting);
                    return;
                }
            }
        }
    }
}

fn assignment() -> Assignment {
    Assignment {
        run: 1,
        seed: 1,
        first_worker: 0,
        workers_of_all: 2,
        workers_on_device: 2,
        kind: "block".into(),
        load: String::new(),
        member: String::new(),
        step: LoadStep::Run,
        target: Secret("memory:1MiB".into()),
        overwrite: false,
        journals: false,
        joined: Vec::new(),
    }
}

fn controller(step: usize, bytes: &[u8]) {
    let mut session = HostSession::default();
    let (mut decoder, mut track, mut now) = (Decoder::default(), ClockTrack::default(), 1_000);
    session.watch("host", &Probes::default());
    session.put_fault(0, HostFault::Memory { bytes: 1 });
    session.put_fault(
        1,
        HostFault::Cpu {
            share: 0.5,
            cores: vec![0],
        },
    );
    session.remove_fault(1);
    session.ask_bridge();
    session.prepare(
        assignment(),
        HostPart {
            workers: 2,
            first_worker: 0,
            kinds: vec![OpKind::Read],
            records: true,
            journals: true,
        },
    );
    let (mut waits, mut journals) = (0, 0);
    let mut figures = Figures::of_kinds(&[OpKind::Read]);
    for part in bytes.chunks(step) {
        decoder.push(part);
        now += 1_000;
        if session.asked_since().is_none() {
            session.ask(Nanos(now - 500));
        }
        while let Ok(Some(message)) = decoder.take::<FromHost>() {
            match session.on_message(message, Nanos(now)) {
                Ok(HostNews::Clock { monotonic, wall }) => {
                    let _ = (track.add(monotonic), track.add(wall));
                }
                // Check that reported figures can be merged.
                Ok(HostNews::Interval(_, interval)) => figures.merge(&interval.figures),
                Ok(HostNews::Ended(_, outcome)) => figures.merge(&outcome.figures),
                Ok(HostNews::Recorded(end)) => {
                    waits = end.kept;
                    session.more_requests();
                }
                Ok(HostNews::Requests(requests)) => {
                    waits = waits
                        .checked_sub(requests.len() as u64)
                        .expect("not more than it has");
                    session.more_requests();
                }
                Ok(HostNews::Journals(lengths)) => {
                    journals = lengths.iter().map(|length| u128::from(*length)).sum();
                    session.more_journal();
                }
                Ok(HostNews::Journal(worker, bytes)) => {
                    assert!(worker < 2);
                    journals = journals
                        .checked_sub(bytes.len() as u128)
                        .expect("not more than it has");
                    session.more_journal();
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
    if let Some(estimate) = track.estimate(Nanos(now)) {
        assert!(estimate.offset.low <= estimate.offset.high, "{estimate:?}");
        let _ = (
            estimate.offset.error(),
            estimate.offset.to_ours(Nanos(now)),
            estimate.offset.to_theirs(Nanos(0)),
        );
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((side, rest)) = bytes.split_first() else {
        return;
    };
    let step = usize::from(side >> 1) + 1;
    match side & 1 {
        0 => agent(step, rest),
        _ => controller(step, rest),
    }
});
