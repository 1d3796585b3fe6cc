//! Tests with loads on hosts that this process serves itself, over loopback.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use brunt_block::table::BackendEntry;
use brunt_core::{Clock, Nanos};
use brunt_load::block::BlockLoad;
use brunt_load::load::{LoadTarget, RunOrder};
use brunt_load::{Load, LoadContext, LoadError, NoRecorder, Workload, decisions, load_kind};
use brunt_protocol::{FromHost, HostFault, HostFaultFailure, Moment, Proof, ToHost, VERSION};
use brunt_result::OpKind;
use brunt_result::event::ClockName;

use super::*;
use crate::stream::StreamState;
use crate::test_only;
use crate::{
    AgentConfig, AgentListener, AgentTls, AllowList, Authority, HostNews, HostPart, MessageStream,
    RemoteHost,
};

/// Timeout, longer than anything here takes even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A backend that panics when opened.
const PANICS: &[BackendEntry] = &[BackendEntry {
    name: "panics",
    help: "For a test",
    example: "panics:x",
    options: &[],
    open: |_, _| panic!("this device breaks its own promises"),
    preview: |_, _| Ok(None),
}];

/// An agent in this process that listens until dropped.
struct Served {
    place: HostPlace,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

/// The certificate file for an agent on loopback, and the path of its controller's identity file.
fn certificates() -> (tempfile::TempDir, AgentTls, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::in_folder(folder.path()).unwrap();
    let controller = authority.controller().unwrap();
    let identity = Identity::read(&authority.agent("127.0.0.1").unwrap()).unwrap();
    (folder, AgentTls::new(&identity).unwrap(), controller)
}

fn place(port: u16, controller: PathBuf) -> HostPlace {
    let address = HostAddress::Agent {
        host: "127.0.0.1".into(),
        port,
    };
    HostPlace {
        address,
        identity: Some(controller),
        ssh: Vec::new(),
        program: None,
    }
}

fn config(allow: AllowList) -> AgentConfig {
    AgentConfig {
        program: "brunt test".into(),
        lease: PATIENCE,
        clock_shift_ns: 0,
        allow,
        serving: |_| Err(crate::NotServed("nothing is served here".into())),
        backends: PANICS,
        packet_sink: crate::bridge::empty_file,
    }
}

impl Served {
    fn start(allow: AllowList) -> Served {
        let (folder, tls, controller) = certificates();
        let config = config(allow);
        let listener = AgentListener::bind((Ipv4Addr::LOCALHOST, 0).into(), tls, config).unwrap();
        let place = place(listener.address().port(), controller);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let _ = listener.run(&stopped, drop);
        });
        Served {
            place,
            stop,
            thread: Some(thread),
            _folder: folder,
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A load with `workers` on each of these hosts.
fn load(places: &[(&str, &HostPlace)], workers: u32, survives_loss: bool) -> HostLoad {
    load_of("memory:1MiB", places, workers, survives_loss)
}

fn load_of(
    url: &str,
    places: &[(&str, &HostPlace)],
    workers: u32,
    survives_loss: bool,
) -> HostLoad {
    let hosts = places.iter().map(|(name, _)| name.to_string()).collect();
    let fleet = fleet(places, survives_loss);
    let mut workload = Workload {
        workers,
        hosts,
        ..Workload::default()
    };
    workload.stop.requests = Some(1000);
    HostLoad::new(Arc::new(BlockLoad::new(workload)), url.into(), false, fleet)
}

fn fleet(places: &[(&str, &HostPlace)], survives_loss: bool) -> Arc<Fleet> {
    let places = places
        .iter()
        .map(|(name, place)| (name.to_string(), (*place).clone()))
        .collect();
    Arc::new(Fleet::new(
        "brunt test".into(),
        places,
        survives_loss,
        PATIENCE,
    ))
}

fn open(load: &HostLoad) -> Result<Vec<String>, LoadError> {
    load.open(&LoadTarget::default(), &AtomicBool::new(false))
}

/// A load that this side and its agents know only through the load table's entry.
#[test]
fn a_load_known_only_by_its_table_entry_runs_on_other_hosts() {
    let served =
        |allowed: &[&str]| Served::start(AllowList::only(allowed.iter().copied(), &[]).unwrap());
    let (a, b, strict) = (served(&["nap:"]), served(&["nap:"]), served(&["memory:"]));
    let text = "naps = 5\nhosts = [\"a\", \"b\"]";
    let (_, load) = (load_kind("nap").unwrap().read)(text, &LoadContext::default())
        .unwrap()
        .remove(0);
    let load = load.hosted().unwrap();
    let on = |places: &[(&str, &HostPlace)]| {
        HostLoad::new(Arc::clone(&load), "".into(), false, fleet(places, false))
    };
    let error = open(&on(&[("a", &a.place), ("b", &strict.place)])).unwrap_err();
    assert!(error.to_string().contains("nap:"), "{error}");
    let load = on(&[("a", &a.place), ("b", &b.place)]);
    assert_eq!(
        (load.kind(), load.describe().as_str()),
        ("nap", "5 naps, on a + b")
    );
    assert_eq!(load.keys(), [("naps", 5.into())]);
    assert_eq!(
        open(&load).unwrap(),
        ["a: it only sleeps", "b: it only sleeps"]
    );
    let ran = decisions::run(
        &load,
        &LoadTarget::default(),
        &RunOrder::alone(1),
        &AtomicBool::new(false),
        &mut NoRecorder,
    )
    .unwrap();
    assert_eq!(ran.outcome.figures.completed(), 5 * 2 * 2);
    assert_eq!(ran.finished.hosts.len(), 2);
    load.close().unwrap();
}

/// With more workers than the collector's channel can hold, each worker's end is still received.
#[test]
fn a_refusal_ends_more_workers_than_the_channel_holds() {
    let host = Served::start(AllowList::only([], &[]).unwrap());
    let load = load(&[("a", &host.place)], 70, false);
    let error = open(&load).unwrap_err().to_string();
    assert!(
        error.contains("host a") && error.contains("without --allow"),
        "{error}"
    );
}

/// An agent that answers clock requests and passes everything else to `other`, until that returns `false` or the
/// controller is gone.
fn answer_by_hand(
    listener: &TcpListener,
    tls: &AgentTls,
    mut other: impl FnMut(ToHost, &mut MessageStream) -> bool,
) {
    let (socket, _) = listener.accept().unwrap();
    let mut stream = MessageStream::sealed(socket, tls.seal().unwrap()).unwrap();
    stream.greet(PATIENCE).unwrap();
    let clock = || Clock::Monotonic.now();
    let now = Moment {
        clock: ClockName("far".into()),
        at: clock(),
    };
    stream
        .send(&FromHost::Hello {
            version: VERSION,
            program: "brunt test".into(),
            now,
        })
        .unwrap();
    while stream.wait(PATIENCE).unwrap() != StreamState::Closed {
        while let Some(message) = stream.take().unwrap() {
            match message {
                ToHost::AskClock { round } => {
                    let Nanos(wall_ns) = clock();
                    let answer = FromHost::Clock {
                        round,
                        heard: clock(),
                        wall_ns,
                        answered: clock(),
                    };
                    stream.send(&answer).unwrap();
                }
                message if !other(message.clone(), &mut stream) => return,
                _ => {}
            }
        }
    }
}

/// An experiment never begins with a host missing, whatever its later runs tolerate.
#[test]
fn a_host_that_is_lost_while_targets_are_opened_is_an_error() {
    let host = Served::start(AllowList::everything());
    let (_folder, tls, controller) = certificates();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let gone = place(listener.local_addr().unwrap().port(), controller);
    let leave_when_asked_for_a_run =
        |message, _: &mut MessageStream| !matches!(message, ToHost::Prepare(_));
    let agent =
        std::thread::spawn(move || answer_by_hand(&listener, &tls, leave_when_asked_for_a_run));
    let load = load(&[("a", &host.place), ("b", &gone)], 1, true);
    let error = open(&load).unwrap_err().to_string();
    assert!(
        error.contains("host b") && error.contains("connection ended"),
        "{error}"
    );
    agent.join().unwrap();
}

/// A fault that isn't verified in time is undone, or reported as possibly still in effect.
#[test]
fn a_fault_that_is_not_verified_is_undone() {
    let proof = || Proof {
        at: Nanos(1),
        seen: Nanos(2),
        what: String::new(),
        value: None,
    };
    let failed = |fault, kind| FromHost::FaultFailed {
        fault,
        kind,
        what: "x".into(),
    };
    let check = |answer: Box<dyn Fn(u32) -> FromHost + Send>, taken_back: bool, words: &str| {
        let (_folder, tls, controller) = certificates();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let place = place(listener.local_addr().unwrap().port(), controller);
        let say = move |message, stream: &mut MessageStream| {
            if let ToHost::RemoveFault { fault } = message {
                stream.send(&answer(fault)).unwrap();
            }
            true
        };
        let agent = std::thread::spawn(move || answer_by_hand(&listener, &tls, say));
        let places = BTreeMap::from([("a".to_string(), place)]);
        let fleet = Fleet::new("brunt test".into(), places, false, PATIENCE);
        assert!(
            fleet
                .connect(&["a".into()], Lane::default(), &AtomicBool::new(false))
                .unwrap()
        );
        let what = HostFault::Memory { bytes: 1 };
        let slow = fleet
            .put_fault_within("a", what, Duration::from_millis(50))
            .unwrap_err();
        assert!(slow.to_string().contains(words), "{slow}");
        let FaultEnd::Slow {
            left: Some(left), ..
        } = slow
        else {
            panic!("{slow}")
        };
        assert_eq!(left.is_ok(), taken_back, "{left:?}");
        drop(fleet);
        agent.join().unwrap();
    };
    check(
        Box::new(move |fault| FromHost::FaultRemoved {
            fault,
            proof: proof(),
        }),
        true,
        "it was withdrawn",
    );
    check(
        Box::new(move |fault| failed(fault, HostFaultFailure::Refused)),
        true,
        "it was withdrawn",
    );
    check(
        Box::new(move |fault| failed(fault, HostFaultFailure::NotGone)),
        false,
        "it may still take effect",
    );
}

/// Removing a fault that isn't in effect sends no request, because the reply would never come.
#[test]
fn a_fault_that_has_failed_is_not_removed() {
    let host = Served::start(AllowList::only([], &[]).unwrap());
    let places = BTreeMap::from([("a".to_string(), host.place.clone())]);
    let fleet = Fleet::new("brunt test".into(), places, false, PATIENCE);
    assert!(
        fleet
            .connect(&["a".into()], Lane::default(), &AtomicBool::new(false))
            .unwrap()
    );
    let refused = fleet
        .put_fault("a", HostFault::Memory { bytes: 1 })
        .unwrap_err();
    assert!(
        matches!(
            refused,
            FaultEnd::Failed {
                kind: HostFaultFailure::NotAllowed,
                ..
            }
        ),
        "{refused}"
    );
    let failed = fleet.remove_fault("a", 0).unwrap_err().to_string();
    assert!(failed.contains("had already failed"), "{failed}");
    let no_bridge = fleet.bridge_report("a").unwrap_err().to_string();
    assert_eq!(
        no_bridge,
        "host a: its bridge ended because an interface disappeared or was set down"
    );
}

/// A host that doesn't become ready delays neither the stop of an experiment nor the timeout for opening a target.
#[test]
fn opening_ends_at_its_time_limit_and_when_stopped() {
    let host = Served::start(AllowList::everything());
    let load = load(&[("a", &host.place)], 2, false);
    let stopped = load.open(&LoadTarget::default(), &AtomicBool::new(true));
    assert!(
        matches!(stopped, Err(LoadError::Interrupted)),
        "{stopped:?}"
    );
    let late = load
        .open_within(Duration::ZERO, &AtomicBool::new(false))
        .unwrap_err()
        .to_string();
    assert!(late.contains("no reply from a within 0ns"), "{late}");
    assert_eq!(
        open(&load).unwrap(),
        Vec::<String>::new(),
        "and the host is there for the next"
    );
}

/// Stopping an experiment doesn't wait for unresponsive hosts, such as a host that never sends a greeting.
#[test]
fn connecting_ends_when_stopped() {
    let (_folder, _, controller) = certificates();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mute = place(listener.local_addr().unwrap().port(), controller);
    let stopped =
        load(&[("a", &mute)], 1, false).open(&LoadTarget::default(), &AtomicBool::new(true));
    assert!(
        matches!(stopped, Err(LoadError::Interrupted)),
        "{stopped:?}"
    );
}

/// A run whose thread is gone can be released like any other.
#[test]
fn a_run_without_a_thread_is_released() {
    let host = Served::start(AllowList::everything());
    let reach = Reach {
        program: "brunt test".into(),
        places: BTreeMap::new(),
        survives_loss: false,
        silence_max: PATIENCE,
        lab: std::sync::OnceLock::new(),
        services: std::sync::OnceLock::new(),
    };
    let mut host =
        RemoteHost::connect(&host.place.address, &reach.options(&host.place).unwrap()).unwrap();
    let assignment = test_only::assignment("stop = { requests = 1 }", "panics:x");
    let kinds = vec![OpKind::Read];
    let part = HostPart {
        workers: 1,
        first_worker: 0,
        kinds,
        records: false,
        journals: false,
    };
    host.prepare(assignment, part).unwrap();
    let until = || Clock::Monotonic.now().after(PATIENCE);
    let panicked = host.receive(until()).unwrap_err().to_string();
    assert!(panicked.contains("thread panicked"), "{panicked}");
    host.release().unwrap();
    assert_eq!(host.receive(until()).unwrap(), Some(HostNews::Released));
}

/// The agent still answers clock requests: only the run's thread is gone.
#[test]
fn a_panic_of_a_run_is_reported() {
    let host = Served::start(AllowList::everything());
    let error = open(&load_of("panics:x", &[("a", &host.place)], 1, false))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("host a") && error.contains("thread panicked"),
        "{error}"
    );
}

/// A guest's agent is reached through the socket in its service's folder once the services are running; a missing
/// socket is reported.
#[test]
fn guests_are_reached_through_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("vm")).unwrap();
    let address = HostAddress::Guest {
        service: "vm".into(),
    };
    let place = HostPlace {
        address,
        identity: None,
        ssh: Vec::new(),
        program: None,
    };
    let places = BTreeMap::from([("guest".to_string(), place)]);
    let fleet = Fleet::new("brunt test".into(), places, false, PATIENCE);
    let connect = || fleet.connect(&["guest".into()], Lane::default(), &AtomicBool::new(false));
    let refused = connect().unwrap_err().to_string();
    assert!(refused.contains("no service is running"), "{refused}");
    fleet.services_run(folder.path().to_path_buf());
    let refused = connect().unwrap_err().to_string();
    assert!(
        refused.contains("cannot connect to the virtual machine's agent at")
            && refused.contains("vm/agent")
    );
    let listener = std::os::unix::net::UnixListener::bind(folder.path().join("vm/agent")).unwrap();
    let agent = std::thread::spawn(move || {
        let (input, _) = listener.accept().unwrap();
        let stream = MessageStream::new(input.try_clone().unwrap().into(), input.into());
        crate::serve(
            stream,
            &config(AllowList::everything()),
            &AtomicBool::new(false),
        )
        .map(drop)
    });
    assert!(connect().unwrap());
    drop(fleet);
    agent.join().unwrap().unwrap();
}
