//! A live page on the test's own socket, and events for it.

// Shared with the tests of report pages, so not all of it is used here.
#[allow(dead_code)]
#[path = "../../../../brunt-report/tests/it/support/browser.rs"]
pub mod browser;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::SystemTime;

use brunt_core::{Histogram, Nanos};
use brunt_result::event::{Event, FaultRecord, RunInfo, Sample, SampleValue};
use brunt_result::{Figures, Interval, OpKind, RequestStatus};
use brunt_study::observe::Observer;
use brunt_web::api::RunControl;
use brunt_web::live::{LivePage, LivePlan, LivePoint};

pub fn at(millis: u64) -> Nanos {
    Nanos(millis * 1_000_000)
}

pub fn serve() -> (LivePage, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let point = LivePoint {
        label: "disk w".into(),
        stated_s: Some(40.0),
    };
    let plan = LivePlan {
        experiment: "watched".into(),
        folder: "/x/results".into(),
        runs: 2,
        order: vec![0, 0],
        points: vec![point],
        // Four buckets per octave, as in the program.
        heat_bounds_us: (0..97)
            .map(|row| 1.024 * 2f64.powf(f64::from(row) / 4.0))
            .collect(),
        ..LivePlan::default()
    };
    let control = RunControl::new("results", || {}).expect("random numbers");
    (
        LivePage::start_at(listener, plan, control, Nanos(0)).expect("threads"),
        address,
    )
}

pub fn info(order: u32) -> Arc<RunInfo> {
    Arc::new(RunInfo {
        order,
        runs: 2,
        point: 0,
        label: "disk w".into(),
        repetition: order,
        seed: 1,
        wall: SystemTime::UNIX_EPOCH,
        ready: at(0),
    })
}

/// A second with three reads of 2 ms, half of that in the device, and one timeout.
pub fn second(index: u64) -> Event {
    let mut figures = Figures::of_kinds(&[OpKind::Read]);
    let op = figures.at(0);
    (op.completed, op.bytes) = (3, 3 * 4096);
    for _ in 0..3 {
        op.response.record(Nanos(2_000_000));
        op.service.record(Nanos(1_000_000));
    }
    figures.counts.by_status[RequestStatus::TimedOut as usize] = 1;
    figures.in_flight_nanos = 3_000_000;
    let (start, end) = (at(index * 1000), at(index * 1000 + 1000));
    Event::Interval(Arc::new(Interval {
        index,
        start,
        end,
        figures,
        waiting: Histogram::default(),
    }))
}

pub fn fault(end: Option<Nanos>) -> Event {
    Event::Fault(Arc::new(FaultRecord {
        index: 3,
        name: "far".into(),
        kind: "link".into(),
        place: "wire".into(),
        what: "5 ms more delay".into(),
        start: at(1500),
        shown: at(1510),
        shown_by: "a round trip of 10 ms".into(),
        end,
        gone: end,
        gone_by: String::new(),
        gaps: Vec::new(),
    }))
}

pub fn tell(observer: &mut dyn Observer, events: impl IntoIterator<Item = Event>) {
    events
        .into_iter()
        .for_each(|event| observer.event(&event).expect("it never fails"));
}

/// The host's CPUs over one second: half busy.
pub fn sample(index: u64) -> Event {
    let value = SampleValue {
        probe: "cpu".into(),
        instance: "".into(),
        metric: "busy_share".into(),
        value: 0.5,
    };
    let (start, end) = (at(index * 1000), at(index * 1000 + 1000));
    Event::Sample(Arc::new(Sample {
        host: "local".into(),
        start,
        end,
        values: vec![value],
    }))
}
