use super::*;
use crate::AllowList;
use crate::agent_thread::END_POLL;
use crate::test_only;
use brunt_load::LOADS;
use brunt_protocol::{FailureKind, LoadStep};
use brunt_result::{Outcome, RequestRecord};

fn assignment(kind: &str, load: &str) -> Assignment {
    Assignment {
        workers_of_all: 2,
        workers_on_device: 2,
        kind: kind.into(),
        ..test_only::assignment(load, "")
    }
}

/// Runs this load on this device, with an agent that may open `allow`. Returns all messages until the release.
fn run(
    load: &str,
    target: &str,
    allow: &AllowList,
    change: impl FnOnce(&mut Assignment),
) -> Vec<FromHost> {
    let target = brunt_protocol::Secret(target.into());
    let mut assignment = Assignment {
        target,
        ..assignment("block", load)
    };
    change(&mut assignment);
    let agent_state = Arc::new(AgentState::new(
        Arc::new(allow.clone()),
        &[],
        1_000_000_000_000,
    ));
    let records = load.contains("record_requests");
    until_release(
        AgentRun::begin(assignment, &agent_state).unwrap(),
        records,
        LoadStep::Run,
    )
}

/// Starts the run when it is ready, and fetches the request record if there is one.
fn until_release(run: AgentRun, records: bool, step: LoadStep) -> Vec<FromHost> {
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(run.news());
        for news in &all[before..] {
            match news {
                // A load that isn't run sends no further messages.
                FromHost::Ready(_) if step != LoadStep::Run => run.tell(AgentOrder::Release),
                FromHost::Ready(_) => {
                    run.tell(AgentOrder::Start(brunt_core::Clock::Monotonic.now()))
                }
                FromHost::Recorded(_) => run.tell(AgentOrder::SendRequests),
                FromHost::Requests(piece) if piece.is_empty() => run.tell(AgentOrder::Release),
                FromHost::Requests(_) => run.tell(AgentOrder::SendRequests),
                FromHost::Done { .. } if !records => run.tell(AgentOrder::Release),
                FromHost::Failed { .. } => run.tell(AgentOrder::Release),
                FromHost::Released => return all,
                _ => {}
            }
        }
        std::thread::sleep(END_POLL);
    }
}

const LOAD: &str = "workers = 2\nstop = { requests = 100 }";

fn failure(news: &[FromHost]) -> (FailureKind, &str) {
    match &news[0] {
        FromHost::Failed { kind, what } => (*kind, what),
        other => panic!("{other:?}"),
    }
}

/// A run's messages: ready first, then each worker's figures on the agent's clock, then the workers' ends, once each.
#[test]
fn a_run_reports_ready_then_figures_then_ends() {
    let before = brunt_core::Clock::Monotonic.now();
    let news = run(LOAD, "memory:1MiB", &AllowList::everything(), |_| {});
    assert!(matches!(news[0], FromHost::Ready(_)), "{news:?}");
    let ended: Vec<(u32, &Outcome)> = news
        .iter()
        .filter_map(|news| match news {
            FromHost::Ended { worker, outcome } => Some((*worker, &**outcome)),
            _ => None,
        })
        .collect();
    assert_eq!(ended.len(), 2);
    assert_eq!(
        ended
            .iter()
            .map(|(_, outcome)| outcome.figures.completed())
            .sum::<u64>(),
        100
    );
    for (_, outcome) in &ended {
        let shift = outcome.start.since(before).as_secs();
        assert!(
            (1000..1100).contains(&shift),
            "on a clock that is 1000 s ahead: {shift} s"
        );
    }
    assert!(
        matches!(
            news[news.len() - 2..],
            [FromHost::Done { .. }, FromHost::Released]
        ),
        "{news:?}"
    );
}

/// The record stays on the host until it is requested. The record's times are on the host's clock, and workers are
/// numbered across all hosts.
#[test]
fn a_record_is_kept_until_it_is_asked_for() {
    let load = "record_requests = true\nverify = {}\nread = 0.5\nstop = { requests = 3001 }";
    let before = brunt_core::Clock::Monotonic.now();
    let news = run(
        load,
        "memory:1MiB",
        &AllowList::everything(),
        |assignment| {
            assignment.first_worker = 1;
        },
    );
    let end = news.iter().find_map(|news| match news {
        FromHost::Recorded(end) => Some(end.clone()),
        _ => None,
    });
    assert_eq!(
        end,
        Some(brunt_protocol::RecordEnd {
            kept: 1500,
            ..Default::default()
        })
    );
    let pieces: Vec<&Vec<RequestRecord>> = news
        .iter()
        .filter_map(|news| match news {
            FromHost::Requests(requests) => Some(requests),
            _ => None,
        })
        .collect();
    assert_eq!(
        pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>(),
        [1024, 476, 0]
    );
    let requests = pieces.into_iter().flatten();
    for (index, request) in requests.enumerate() {
        assert_eq!((request.worker, request.index), (1, index as u64));
        let shift = request.completed.unwrap().since(before).as_secs();
        assert!(
            (1000..1100).contains(&shift) && request.sent >= Some(request.intended),
            "{request:?}"
        );
    }
}

/// With half of the workers, the requests are those workers' share, not the requests of a separate run.
#[test]
fn a_part_sends_its_share_of_the_requests() {
    let completed = |first| {
        let news = run(
            "stop = { requests = 101 }",
            "null:1MiB",
            &AllowList::everything(),
            |assignment| {
                assignment.first_worker = first;
            },
        );
        news.iter()
            .map(|news| match news {
                FromHost::Ended { outcome, .. } => outcome.figures.completed(),
                _ => 0,
            })
            .sum::<u64>()
    };
    assert_eq!([completed(0), completed(1)], [51, 50]);
}

#[test]
fn what_cannot_be_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let mut held = vec![0; 1 << 20];
    held[510..512].copy_from_slice(b"\x55\xaa");
    std::fs::write(&disk, held).unwrap();
    let disk = disk.display().to_string();
    let all = AllowList::everything();
    let memory = AllowList::only(["memory:"], &[]).unwrap();
    let writes = format!("{LOAD}\nread = 0.5");
    let check = |load: &str, target: &str, allow: &AllowList, kind, words: &str| {
        let news = run(load, target, allow, |_| {});
        let (found, what) = failure(&news);
        assert!(
            found == kind && what.contains(words),
            "{words}: {found:?} {what}"
        );
    };
    check(LOAD, &disk, &memory, FailureKind::NotAllowed, "memory:");
    check(
        &writes,
        &disk,
        &all,
        FailureKind::NotAllowed,
        "an MBR partition table",
    );
    check(
        LOAD,
        "memory:4KiB?nonsense=1",
        &all,
        FailureKind::Refused,
        "no option",
    );
    check(
        "nonsense = 1",
        "memory:1MiB",
        &all,
        FailureKind::Refused,
        "unknown field",
    );
    check(
        &format!("{LOAD}\nblocks = [{{ size = \"4MiB\" }}]"),
        "memory:1MiB",
        &all,
        FailureKind::Refused,
        "region",
    );
    let journal = format!("{writes}\nverify = {{ journal = \"/tmp/never\" }}");
    check(
        &journal,
        "memory:1MiB",
        &all,
        FailureKind::Refused,
        "verify.journal",
    );
    let other = |change: fn(&mut Assignment)| {
        let news = run(LOAD, "memory:1MiB", &all, change);
        failure(&news).0
    };
    for kind in LOADS {
        let load = format!("hosts = [\"a\"]\n{}", kind.example);
        let news = run(&load, "memory:1MiB", &all, |assignment| {
            assignment.kind = kind.name.into();
        });
        let (found, what) = failure(&news);
        assert!(
            found == FailureKind::Refused && what.contains("hosts"),
            "{}: {what}",
            kind.name
        );
    }
    assert_eq!(
        other(|assignment| assignment.kind = "file".into()),
        FailureKind::Refused
    );
    assert_eq!(
        other(|assignment| assignment.kind = "nonsense".into()),
        FailureKind::Refused
    );
    assert_eq!(
        other(|assignment| assignment.first_worker = 1),
        FailureKind::Refused
    );
    assert_eq!(
        other(|assignment| assignment.first_worker = u32::MAX),
        FailureKind::Refused
    );
    assert_eq!(
        other(|assignment| assignment.workers_on_device = 0),
        FailureKind::Refused
    );
    let news = run(&writes, &disk, &all, |assignment| {
        assignment.overwrite = true
    });
    assert!(matches!(news[0], FromHost::Ready(_)), "{news:?}");
}

/// Phases on a file system share their folder from the first to the last, inside an allowed folder.
#[test]
fn phases_of_a_file_system_share_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let there = || std::fs::read_dir(folder.path()).unwrap().count();
    let text = format!(
        "directory = \"{}\"\nphases = [\"write-blocks\", \"read-blocks\"]\nfile_size = \"1MiB\"",
        folder.path().display()
    );
    let allow = AllowList::only([folder.path().to_str().unwrap()], &[]).unwrap();
    let agent_state =
        |allow: &AllowList| Arc::new(AgentState::new(Arc::new(allow.clone()), &[], 0));
    let shared = agent_state(&allow);
    let news = |agent_state: &Arc<AgentState>, member: &str, step| {
        let assignment = Assignment {
            member: member.into(),
            step,
            ..assignment("file", &text)
        };
        until_release(
            AgentRun::begin(assignment, agent_state).unwrap(),
            false,
            step,
        )
    };
    let open = news(&shared, "write-blocks", LoadStep::Open);
    // In a virtual machine, there is an additional note about the CPU.
    assert!(
        matches!(&open[..], [FromHost::Ready(ready), FromHost::Released] if ready.notes.len() >= 2)
    );
    assert_eq!(there(), 1);
    for phase in ["write-blocks", "read-blocks"] {
        let news = news(&shared, phase, LoadStep::Run);
        let completed = news.iter().find_map(|news| match news {
            FromHost::Ended { outcome, .. } => Some(outcome.figures.completed()),
            _ => None,
        });
        assert_eq!(completed, Some(128), "{news:?}");
        assert!(news.iter().any(|news| matches!(
            news,
            FromHost::Done {
                page_cache: Some(_),
                ..
            }
        )));
    }
    assert_eq!(there(), 1, "one folder for all");
    assert!(matches!(
        news(&shared, "", LoadStep::Close)[0],
        FromHost::Ready(_)
    ));
    assert_eq!(there(), 0, "nothing is left");
    assert_eq!(
        failure(&news(&shared, "seeks", LoadStep::Open)).0,
        FailureKind::Refused
    );
    let elsewhere = AllowList::only(["/proc"], &[]).unwrap();
    let refused = news(&agent_state(&elsewhere), "write-blocks", LoadStep::Open);
    assert_eq!(failure(&refused).0, FailureKind::NotAllowed);
    assert_eq!(there(), 0);
}

/// Dropping a run in progress ends its workers.
#[test]
fn a_dropped_run_ends() {
    let assignment = test_only::assignment(
        "interval = \"10ms\"\nstop = { time = \"1h\" }",
        "memory:1MiB",
    );
    let agent_state = Arc::new(AgentState::new(Arc::new(AllowList::everything()), &[], 0));
    let run = AgentRun::begin(assignment, &agent_state).unwrap();
    let wait = |wanted: fn(&FromHost) -> bool| {
        while !run.news().any(|news| wanted(&news)) {
            std::thread::sleep(END_POLL);
        }
    };
    wait(|news| matches!(news, FromHost::Ready(_)));
    run.tell(AgentOrder::Start(brunt_core::Clock::Monotonic.now()));
    wait(|news| matches!(news, FromHost::Interval { .. }));
    drop(run);
    assert_eq!(agent_state.holders(), Some(1), "no worker has the device");
}
