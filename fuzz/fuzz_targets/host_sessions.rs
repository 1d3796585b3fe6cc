//! Both sides of a conversation between hosts: whatever bytes come, in whatever pieces, a session answers or ends, an agent
//! does nothing before a greeting, and what a host says of its clock gives bounds in their order or none.
#![no_main]

use std::time::Duration;

use brunt_core::Nanos;
use brunt_host::{AgentSession, ClockTrack, HostNews, HostSession};
use brunt_result::message::{Decoder, FromHost, ToHost};
use libfuzzer_sys::fuzz_target;

fn agent(step: usize, bytes: &[u8]) {
    let mut session = AgentSession::new(Duration::from_secs(1), Nanos(0));
    let (mut decoder, mut now, mut greeted) = (Decoder::default(), 0, false);
    for part in bytes.chunks(step) {
        decoder.push(part);
        now += 1;
        while let Ok(Some(message)) = decoder.take::<ToHost>() {
            let is_greeting = message.check_greeting().is_ok();
            match session.on_message(message, Nanos(now)) {
                Ok(action) => {
                    assert!(greeted || (is_greeting && action.is_none()));
                    greeted = true;
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

fn controller(step: usize, bytes: &[u8]) {
    let mut session = HostSession::default();
    let (mut decoder, mut track, mut now) = (Decoder::default(), ClockTrack::default(), 1_000);
    session.watch(100, Vec::new());
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
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
    if let Some(estimate) = track.estimate(Nanos(now)) {
        assert!(estimate.offset.low <= estimate.offset.high, "{estimate:?}");
        let _ = (estimate.offset.error(), estimate.offset.to_ours(Nanos(now)), estimate.offset.to_theirs(Nanos(0)));
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((side, rest)) = bytes.split_first() else { return };
    let step = usize::from(side >> 1) + 1;
    match side & 1 {
        0 => agent(step, rest),
        _ => controller(step, rest),
    }
});
