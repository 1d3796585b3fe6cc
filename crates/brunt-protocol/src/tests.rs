//! Encoded messages decode unchanged, and invalid bytes are refused.

use super::*;
use crate::service::{KeeperLimits, ReadyPurpose, ReadyWhen, ServiceProgram};
use brunt_result::event::Event;
use brunt_result::op::OpKind;
use brunt_result::record::{RequestStatus, Stopped};
use std::time::Duration;

fn clock() -> ClockName {
    ClockName("monotonic of local since 0b4c".into())
}

fn to_host() -> Vec<ToHost> {
    let assignment = Assignment {
        run: u64::MAX,
        seed: 1,
        first_worker: 2,
        workers_of_all: 8,
        workers_on_device: 2,
        kind: "block".into(),
        load: "read = 0.1\nstop = { time = \"1s\" }".into(),
        member: "seeks".into(),
        step: LoadStep::Close,
        target: Secret("iscsi://me%hush@host/t/0".into()),
        overwrite: true,
        journals: true,
        joined: vec![JoinedTarget {
            name: "log".into(),
            url: Secret("iscsi://me%hush@host/t/1".into()),
            overwrite: false,
        }],
    };
    vec![
        ToHost::Hello {
            version: VERSION,
            program: "brunt 0.1.0".into(),
        },
        ToHost::Prepare(Box::new(assignment)),
        ToHost::TracePart {
            trace: TraceDigest("00".into()),
            bytes: vec![0, 255, 7],
        },
        ToHost::Start(Moment {
            clock: clock(),
            at: Nanos(u64::MAX - 1),
        }),
        ToHost::Rate(0.1 + 0.2),
        ToHost::Depth(7),
        ToHost::Stop,
        ToHost::Renew,
        ToHost::MoreRequests,
        ToHost::MoreJournal,
        ToHost::Release,
        ToHost::AskClock { round: u32::MAX },
        ToHost::Watch {
            name: "array".into(),
            interval_ms: 1000,
            only: vec!["cpu".into()],
            processes: vec!["tgtd".into()],
        },
        ToHost::WatchFrom(Moment {
            clock: clock(),
            at: Nanos(4),
        }),
        ToHost::Unwatch,
        ToHost::PutFault {
            fault: 1,
            what: HostFault::Cpu {
                share: 0.98,
                cores: vec![0, 3],
            },
        },
        ToHost::PutFault {
            fault: 2,
            what: HostFault::Netem {
                interface: "eth1".into(),
                settings: serde_json::json!({ "delay": "10ms", "loss": 0.01 }),
            },
        },
        ToHost::PutFault {
            fault: 3,
            what: HostFault::Kill {
                process: HostProcess::Named("tgtd".into()),
                comes_back: true,
            },
        },
        ToHost::PutFault {
            fault: 4,
            what: HostFault::Bridge {
                interfaces: ["eth0".into(), "eth1".into()],
                seed: u64::MAX,
                capture: Some("/var/tmp/wire.pcapng".into()),
            },
        },
        ToHost::PutFault {
            fault: 5,
            what: HostFault::ProbePath {
                address: "10.0.0.9".parse().unwrap(),
                figure: PathFigure::Rate,
                requests: 64,
                interval_us: 0,
                payload_bytes: 1400,
            },
        },
        ToHost::Count {
            interfaces: vec!["eth0".into()],
        },
        ToHost::CountFrom(Moment {
            clock: ClockName("a".into()),
            at: Nanos(1),
        }),
        ToHost::Uncount,
        ToHost::AskBridge,
        ToHost::RemoveFault { fault: u32::MAX },
        ToHost::Role {
            role: 1,
            order: RoleOrder::Start(Box::new(HostRole {
                name: "disk".into(),
                serve: serde_json::json!(["memory:1GiB", "null:1TiB"]),
                address: "fe80::1".parse().unwrap(),
                congestion: Some("reno".into()),
                login: Some(Secret("me:hush".into())),
            })),
        },
        ToHost::Role {
            role: 1,
            order: RoleOrder::Say("{\"do\":\"status\",\"lun\":0}\n".into()),
        },
        ToHost::Role {
            role: 1,
            order: RoleOrder::Break(RoleOutage::Kill),
        },
        ToHost::Role {
            role: 1,
            order: RoleOrder::Stop,
        },
        ToHost::Role {
            role: 2,
            order: RoleOrder::Admit(Box::new(service())),
        },
        ToHost::Role {
            role: 2,
            order: RoleOrder::Run([("BRUNT_HOST".into(), "a".into())].into()),
        },
    ]
}

fn service() -> HostService {
    let within = Duration::from_millis(1500);
    let ready = ReadyWhen {
        port: Some(0),
        line: None,
        command: Some(vec!["true".into()]),
        purpose: ReadyPurpose::Health,
        within,
    };
    let limits = KeeperLimits {
        memory_bytes: Some(u64::MAX),
        files: None,
        log_bytes: 4096,
    };
    let program = ServiceProgram {
        command: vec!["nbdkit".into(), "memory".into()],
        prepare: None,
        environment: [("LEVEL".into(), "3".into())].into(),
        daemon: false,
        ready,
        limits,
        stop_within: within,
    };
    let (name, folder) = ("service store".into(), "store".into());
    HostService {
        name,
        folder,
        address: "10.0.0.9".parse().unwrap(),
        program,
        needs_root: true,
    }
}

fn from_host() -> Vec<FromHost> {
    let mut outcome = Outcome::interrupted();
    outcome.stopped = Stopped::Done;
    outcome.requests_per_second = 1.0 / 3.0;
    let figures = outcome.figures.clone();
    let interval = Interval {
        index: 3,
        start: Nanos(1),
        end: Nanos(2),
        figures,
        waiting: brunt_core::Histogram::default(),
    };
    let request = RequestRecord {
        worker: 1,
        index: 2,
        op: OpKind::Read,
        offset: 4096,
        len: 512,
        intended: Nanos(5),
        sent: Some(Nanos(6)),
        completed: None,
        retries: 1,
        status: RequestStatus::Hanging,
    };
    vec![
        FromHost::Hello {
            version: VERSION,
            program: "brunt 0.1.0".into(),
            now: Moment {
                clock: clock(),
                at: Nanos(9),
            },
        },
        FromHost::NeedsTrace(TraceDigest("00".into())),
        FromHost::Ready(HostReady::default()),
        FromHost::Interval {
            worker: 4,
            interval: Box::new(interval),
        },
        FromHost::Event(Box::new(Envelope::new(clock(), Event::RunStarts(Nanos(7))))),
        FromHost::Counter {
            name: "sent_bytes".into(),
            value: 17,
        },
        FromHost::Failed {
            kind: FailureKind::LeaseOver,
            what: "heard nothing for 5 s".into(),
        },
        FromHost::Requests(vec![request]),
        FromHost::Recorded(RecordEnd {
            kept: 5,
            lost: 1,
            why: "no space".into(),
        }),
        FromHost::Journals(vec![52, u64::MAX]),
        FromHost::Journal {
            worker: 1,
            bytes: vec![0, 255],
        },
        FromHost::Ended {
            worker: 1,
            outcome: Box::new(outcome),
        },
        FromHost::Done {
            troubles: vec!["worker 0: 2 attempts to connect".into()],
            page_cache: Some(PageCache {
                read_share: Some(0.5),
                flush_s: 0.1,
            }),
            replay: Some("{}".into()),
        },
        FromHost::Released,
        FromHost::Clock {
            round: 3,
            heard: Nanos(1),
            wall_ns: 1 << 60,
            answered: Nanos(2),
        },
        FromHost::Note("the run has no rate".into()),
        FromHost::Counted(vec![InterfaceReading {
            at: Nanos(1),
            bytes: vec![Some([u64::MAX, 0]), None],
        }]),
        FromHost::Bridge(None),
        FromHost::Bridge(Some(Box::new(LinkReport {
            busy: 0.1 + 0.2,
            ..LinkReport::default()
        }))),
        FromHost::FaultPut {
            fault: 1,
            proof: Proof {
                at: Nanos(1),
                seen: Nanos(2),
                what: "97 %".into(),
                value: Some(0.1 + 0.2),
            },
        },
        FromHost::FaultRemoved {
            fault: 1,
            proof: Proof {
                at: Nanos(1),
                seen: Nanos(2),
                what: String::new(),
                value: None,
            },
        },
        FromHost::FaultFailed {
            fault: 2,
            kind: HostFaultFailure::NotGone,
            what: "still there".into(),
        },
        FromHost::Role {
            role: 1,
            news: RoleNews::Listens {
                address: "[fe80::1]:3260".parse().unwrap(),
                pid: 7,
            },
        },
        FromHost::Role {
            role: 1,
            news: RoleNews::Died(RoleEnd {
                status: 9,
                at: Some(Nanos(u64::MAX)),
                starved: None,
                lines: vec!["bye".into()],
            }),
        },
        FromHost::Role {
            role: 2,
            news: RoleNews::Admitted {
                folder: "/tmp/brunt-1-0/store".into(),
            },
        },
        FromHost::Role {
            role: 2,
            news: RoleNews::Log(vec![0, 255, 10]),
        },
        FromHost::WatchNote("no pressure figures".into()),
        FromHost::Watched(WatchReport {
            samples: 7,
            late: 1,
            cpu_nanos: 9,
            ..WatchReport::default()
        }),
    ]
}

fn encoded(messages: &[impl Serialize]) -> Vec<u8> {
    let mut bytes = Vec::new();
    messages
        .iter()
        .for_each(|message| encode(message, &mut bytes).unwrap());
    bytes
}

/// Every message arrives, however its bytes are split.
#[test]
fn messages_arrive_however_their_bytes_are_split() {
    let (to, from) = (to_host(), from_host());
    for step in [1, 3, 4, 5, 64, 1 << 20] {
        let (mut decoder, mut found) = (Decoder::default(), Vec::new());
        for part in encoded(&to).chunks(step) {
            decoder.push(part);
            while let Some(message) = decoder.take::<ToHost>().unwrap() {
                found.push(message);
            }
        }
        assert_eq!(found, to, "in steps of {step}");
        let (mut decoder, mut found) = (Decoder::default(), Vec::new());
        for part in encoded(&from).chunks(step) {
            decoder.push(part);
            while let Some(message) = decoder.take::<FromHost>().unwrap() {
                found.push(message);
            }
        }
        assert_eq!(found, from, "in steps of {step}");
    }
}

#[test]
fn a_truncated_stream_yields_no_further_message() {
    let bytes = encoded(&to_host());
    for len in 0..bytes.len() {
        let mut decoder = Decoder::default();
        decoder.push(&bytes[..len]);
        let mut seen = 0;
        while decoder.take::<ToHost>().unwrap().is_some() {
            seen += 1;
        }
        assert!(seen < to_host().len(), "{len} of {} bytes", bytes.len());
    }
}

#[test]
fn invalid_frames_and_messages_are_refused() {
    let check = |bytes: &[u8]| {
        let mut decoder = Decoder::default();
        decoder.push(bytes);
        decoder.take::<ToHost>().unwrap_err()
    };
    assert!(matches!(
        check(&[0xff; 5]),
        FrameError::TooLong { bytes: 0xffff_ffff }
    ));
    assert!(matches!(check(b"\0\0\0\x02{}"), FrameError::Malformed(_)));
    assert!(matches!(check(b"\0\0\0\0"), FrameError::Malformed(_)));
    let extra = br#"{"hello":{"version":2,"program":"x","more":1}}"#;
    let mut frame = (extra.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(extra);
    assert!(matches!(check(&frame), FrameError::Malformed(_)));
    let long = ToHost::TracePart {
        trace: TraceDigest(String::new()),
        bytes: vec![200; FRAME_BYTES_MAX / 2],
    };
    assert!(matches!(
        encode(&long, &mut Vec::new()),
        Err(FrameError::TooLong { .. })
    ));
}

/// The longest permitted parts fit into a frame.
#[test]
fn parts_fit_into_a_frame() {
    let part = ToHost::TracePart {
        trace: TraceDigest("f".repeat(64)),
        bytes: vec![255; PART_BYTES_MAX],
    };
    let FromHost::Requests(one) = &from_host()[7] else {
        panic!("the eighth is requests")
    };
    let requests = FromHost::Requests(vec![one[0]; REQUESTS_MAX]);
    let mut bytes = Vec::new();
    encode(&part, &mut bytes).unwrap();
    encode(&requests, &mut bytes).unwrap();
    encode(
        &FromHost::Journal {
            worker: 0,
            bytes: vec![0; JOURNAL_BYTES_MAX],
        },
        &mut bytes,
    )
    .unwrap();
    let news = RoleNews::Log(vec![255; LOG_BYTES_MAX]);
    encode(&FromHost::Role { role: 0, news }, &mut bytes).unwrap();
}

#[test]
fn versions_that_differ_are_both_named() {
    assert!(to_host()[0].check_greeting().is_ok() && from_host()[0].check_greeting().is_ok());
    assert!(matches!(
        ToHost::Stop.check_greeting(),
        Err(FrameError::NoGreeting)
    ));
    let other = ToHost::Hello {
        version: VERSION + 1,
        program: "brunt 9".into(),
    };
    let said = other.check_greeting().unwrap_err().to_string();
    assert!(
        said.contains("brunt 9")
            && said.contains(&format!("version {}", VERSION + 1))
            && said.contains(&format!("this side version {VERSION}")),
        "{said}"
    );
}

#[test]
fn a_secret_is_sent_and_not_shown() {
    let prepare = &to_host()[1];
    assert!(!format!("{prepare:?}").contains("hush"));
    assert!(String::from_utf8_lossy(&encoded(&[prepare])).contains("hush"));
}
