//! Faults that an agent injects for its controller, each on a separate thread, because injecting one may take seconds.
//!
//! The rule: a fault lasts until its controller removes it or the connection ends, whichever comes first; a fault
//! that would otherwise outlive this program has a guard (`brunt_lab::faults`).

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::time::Duration;

use brunt_block::OpenError;
use brunt_core::Clock;
use brunt_lab::faults::{
    CpuHog, FreezeOther, KillOther, MemoryHog, Netem, OtherProcess, ProcessError,
};
use brunt_lab::link::Settings;
use brunt_lab::{Fault, FaultError};
use brunt_protocol::{FromHost, HostFault, HostFaultFailure, HostProcess};
use serde::Deserialize;

use crate::agent_thread::AgentThread;
use crate::allow::{AllowList, FaultNotAllowed};
use crate::bridge::{AgentBridge, Forwarding, Impairment};
use crate::clock::moved;
use crate::path_probe::{INTERVAL_US_MAX, PAYLOAD_BYTES, PathProbe, REQUESTS_MAX};

/// Size of an interface name including the terminator (linux/if.h).
const INTERFACE_BYTES_MAX: usize = 16;

/// A fault, from its request until it is gone. Dropping this removes the fault.
#[derive(Debug)]
pub(crate) struct AgentFault {
    /// Dropping this removes the fault without reporting it.
    remove: Sender<()>,
    news: Receiver<FromHost>,
    number: u32,
    /// Whether the fault has been reported as in effect.
    shown: bool,
    thread: AgentThread,
}

/// Why a fault is not injected.
#[derive(Debug, thiserror::Error)]
enum BreakError {
    #[error(transparent)]
    NotAllowed(#[from] FaultNotAllowed),
    #[error(transparent)]
    PathNotAllowed(#[from] OpenError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("invalid share {0}; use 0.01 to 1")]
    Share(f64),
    #[error("core {0} is not available to this agent; available: {1:?}")]
    Core(usize, Vec<usize>),
    #[error("the amount of memory must not be 0")]
    NoMemory,
    #[error("'{0}' is not a valid interface name")]
    Interface(String),
    #[error("'{0}' depends on the agent's working directory; write an absolute path")]
    Relative(String),
    #[error(
        "invalid probe of {requests} requests of {payload_bytes} bytes, {interval_us} us apart; use 1 \
         to {} requests of {} to {} bytes, at most {} us apart",
        REQUESTS_MAX,
        PAYLOAD_BYTES.start(),
        PAYLOAD_BYTES.end(),
        INTERVAL_US_MAX
    )]
    Probe {
        requests: u32,
        payload_bytes: u32,
        interval_us: u64,
    },
    #[error("cannot probe the path to {0}; use an IPv4 address")]
    ProbeAddress(IpAddr),
    #[error("cannot parse the link's settings: {0}")]
    Settings(String),
    #[error(transparent)]
    Fault(#[from] FaultError),
}

impl BreakError {
    fn kind(&self) -> HostFaultFailure {
        match self {
            BreakError::NotAllowed(_) | BreakError::PathNotAllowed(_) => {
                HostFaultFailure::NotAllowed
            }
            BreakError::Fault(error) => failure(error),
            _ => HostFaultFailure::Refused,
        }
    }
}

/// The kind of a fault's error, as sent to a controller.
pub(crate) fn failure(error: &FaultError) -> HostFaultFailure {
    match error {
        FaultError::NotShown { .. } => HostFaultFailure::NotShown,
        FaultError::NotGone { .. } => HostFaultFailure::NotGone,
        _ => HostFaultFailure::Refused,
    }
}

impl AgentFault {
    /// Starts injecting the fault; `shift_ns` is added to times on this host's clock.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn begin(
        number: u32,
        what: HostFault,
        allow: &Arc<AllowList>,
        bridge: &AgentBridge,
        shift_ns: i64,
    ) -> std::io::Result<AgentFault> {
        let (remove, removal) = channel();
        // At most two messages: that the fault is in effect, and that it is gone.
        let (sender, news) = sync_channel(2);
        let (allow, bridge) = (Arc::clone(allow), bridge.clone());
        let work = move || {
            let shifted = |at| moved(at, shift_ns);
            let failed = |error: BreakError| FromHost::FaultFailed {
                fault: number,
                kind: error.kind(),
                what: error.to_string(),
            };
            let put = make(&what, &allow, &bridge).and_then(|mut fault| {
                let proof = fault.inject(&Clock::Monotonic)?;
                Ok((fault, proof))
            });
            let mut fault = match put {
                Ok((fault, proof)) => {
                    let _ = sender.send(FromHost::FaultPut {
                        fault: number,
                        proof: proof.dated(shifted),
                    });
                    fault
                }
                Err(error) => return drop(sender.send(failed(error))),
            };
            if removal.recv().is_err() {
                // The result has no receiver any more.
                return;
            }
            let news = match fault.remove(&Clock::Monotonic) {
                Ok(proof) => FromHost::FaultRemoved {
                    fault: number,
                    proof: proof.dated(shifted),
                },
                Err(error) => failed(error.into()),
            };
            // Clean up before reporting, even if the removal couldn't be verified.
            drop(fault);
            let _ = sender.send(news);
        };
        let thread = AgentThread::spawn("fault", work)?;
        Ok(AgentFault {
            remove,
            news,
            number,
            shown: false,
            thread,
        })
    }

    /// Returns the fault's thread, which thereby removes the fault without reporting it.
    pub fn into_thread(self) -> AgentThread {
        self.thread
    }

    /// Removes the fault; has no effect if it could not be injected.
    pub fn remove(&self) {
        let _ = self.remove.send(());
    }

    /// The news since the last call, and whether it includes the last message. If the thread ended without a last
    /// message, it panicked, and an error takes the message's place.
    pub fn news(&mut self) -> (Vec<FromHost>, bool) {
        // Checked before receiving, so that the thread's last message is received below.
        let is_over = self.thread.is_over();
        let mut news: Vec<FromHost> = self.news.try_iter().collect();
        let is_proof = |one: &FromHost| matches!(one, FromHost::FaultPut { .. });
        self.shown |= news.iter().any(is_proof);
        let last = news.iter().any(|one| !is_proof(one));
        if is_over && !last {
            news.push(panicked(self.number, self.shown));
        }
        (news, is_over || last)
    }
}

/// The message for a fault whose thread panicked, before or after the fault was proven.
fn panicked(fault: u32, shown: bool) -> FromHost {
    let (kind, when) = match shown {
        false => (HostFaultFailure::Refused, "before it took effect"),
        true => (
            HostFaultFailure::NotGone,
            "during removal; check whether it is still in effect",
        ),
    };
    let what = format!("the fault's thread panicked {when}; see the agent's standard error");
    FromHost::FaultFailed { fault, kind, what }
}

/// The message for a fault whose thread could not be started.
pub(crate) fn no_thread(fault: u32, error: &std::io::Error) -> FromHost {
    let what = format!("cannot start a thread for the fault: {error}");
    FromHost::FaultFailed {
        fault,
        kind: HostFaultFailure::Refused,
        what,
    }
}

/// Creates a requested fault, if it is allowed here.
fn make(
    what: &HostFault,
    allow: &AllowList,
    bridge: &AgentBridge,
) -> Result<Box<dyn Fault>, BreakError> {
    // Long because it is one match over all kinds of fault.
    Ok(match what {
        HostFault::Cpu { share, cores } => {
            allow.check_fault("cpu", None)?;
            Box::new(CpuHog::new(*share, &check_cores(*share, cores)?))
        }
        HostFault::Memory { bytes } => {
            allow.check_fault("memory", None)?;
            if *bytes == 0 {
                return Err(BreakError::NoMemory);
            }
            Box::new(MemoryHog::new(*bytes))
        }
        HostFault::Freeze { process } => {
            let process = find("freeze", process, allow)?;
            Box::new(FreezeOther::new(process))
        }
        HostFault::Kill {
            process,
            comes_back,
        } => {
            let process = find("kill", process, allow)?;
            Box::new(KillOther::new(process, *comes_back))
        }
        HostFault::Netem {
            interface,
            settings,
        } => {
            allow.check_fault("netem", Some(interface))?;
            check_name(interface)?;
            Box::new(Netem::new(interface, read_settings(settings)?))
        }
        HostFault::Bridge {
            interfaces,
            seed,
            capture,
        } => {
            allow.check_fault("bridge", Some(&interfaces[0]))?;
            interfaces
                .iter()
                .try_for_each(|interface| check_name(interface))?;
            let capture = capture
                .as_deref()
                .map(|path| check_new_file(path, allow))
                .transpose()?;
            Box::new(Forwarding::new(
                bridge.clone(),
                interfaces.clone(),
                *seed,
                capture,
            ))
        }
        HostFault::Impair { settings } => {
            allow.check_kind("bridge")?;
            let settings = [read_settings(&settings[0])?, read_settings(&settings[1])?];
            Box::new(Impairment::new(bridge.clone(), settings))
        }
        HostFault::ProbePath {
            address,
            figure,
            requests,
            interval_us,
            payload_bytes,
        } => {
            allow.check_fault("probe", None)?;
            let IpAddr::V4(address) = *address else {
                return Err(BreakError::ProbeAddress(*address));
            };
            check_probe(*requests, *payload_bytes, *interval_us)?;
            Box::new(PathProbe {
                address,
                figure: *figure,
                requests: *requests,
                interval: Duration::from_micros(*interval_us),
                payload_bytes: *payload_bytes,
            })
        }
    })
}

/// Checks the share of CPU time, and returns the cores to occupy: `cores`, or all cores if it is empty.
fn check_cores(share: f64, cores: &[usize]) -> Result<Vec<usize>, BreakError> {
    if !(0.01..=1.0).contains(&share) {
        return Err(BreakError::Share(share));
    }
    let all = brunt_lab::usable_cores();
    if let Some(core) = cores.iter().find(|core| !all.contains(core)) {
        return Err(BreakError::Core(*core, all));
    }
    Ok(if cores.is_empty() {
        all
    } else {
        cores.to_vec()
    })
}

/// Checks that a probe is finite, and that its packets fit into Ethernet frames.
fn check_probe(requests: u32, payload_bytes: u32, interval_us: u64) -> Result<(), BreakError> {
    let is_fit = (1..=REQUESTS_MAX).contains(&requests)
        && PAYLOAD_BYTES.contains(&payload_bytes)
        && interval_us <= INTERVAL_US_MAX;
    is_fit.then_some(()).ok_or(BreakError::Probe {
        requests,
        payload_bytes,
        interval_us,
    })
}

/// Checks that this is a valid interface name.
fn check_name(interface: &str) -> Result<(), BreakError> {
    let is_odd = |one: char| one == '/' || one.is_whitespace() || one.is_control();
    match (1..INTERFACE_BYTES_MAX).contains(&interface.len()) && !interface.contains(is_odd) {
        true => Ok(()),
        false => Err(BreakError::Interface(interface.to_string())),
    }
}

/// Checks that this file may be created here.
fn check_new_file(path: &str, allow: &AllowList) -> Result<PathBuf, BreakError> {
    if !path.starts_with('/') {
        return Err(BreakError::Relative(path.to_string()));
    }
    allow.check_path(Path::new(path))?;
    Ok(path.into())
}

fn read_settings(settings: &serde_json::Value) -> Result<Settings, BreakError> {
    let settings =
        Settings::deserialize(settings).map_err(|error| BreakError::Settings(error.to_string()))?;
    settings
        .check()
        .map_err(|error| BreakError::Settings(error.to_string()))?;
    Ok(settings)
}

/// Finds a process, and checks its name against the allow list even if the process was requested by PID.
fn find(
    fault: &'static str,
    wanted: &HostProcess,
    allow: &AllowList,
) -> Result<OtherProcess, BreakError> {
    allow.check_kind(fault)?;
    let process = OtherProcess::find(wanted)?;
    allow.check_fault(fault, Some(process.name()))?;
    Ok(process)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use brunt_core::Nanos;
    use brunt_protocol::Proof;

    use super::*;
    use crate::agent_thread::END_POLL;
    use crate::bridge::empty_file;

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// The first message of a fault.
    fn first(what: HostFault, allow: &AllowList) -> FromHost {
        let fault = AgentFault::begin(
            3,
            what,
            &Arc::new(allow.clone()),
            &AgentBridge::new(empty_file),
            0,
        )
        .unwrap();
        fault.news.recv().unwrap()
    }

    /// A fault is injected, verified, removed and verified again, with times on a clock that is 1000 s ahead.
    #[test]
    fn a_fault_is_injected_and_removed_with_proofs() {
        let child = Sleeper(Command::new("sleep").arg("60").spawn().unwrap());
        let process = HostProcess::Numbered(child.0.id());
        let what = HostFault::Kill {
            process,
            comes_back: false,
        };
        let allow = Arc::new(AllowList::everything());
        let before = Clock::Monotonic.now();
        let fault = AgentFault::begin(
            7,
            what,
            &allow,
            &AgentBridge::new(empty_file),
            1_000_000_000_000,
        )
        .unwrap();
        let FromHost::FaultPut { fault: 7, proof } = fault.news.recv().unwrap() else {
            panic!("it is put in")
        };
        let ahead = proof.at.since(before).as_secs();
        assert!(
            (1000..1100).contains(&ahead) && proof.what.ends_with("is dead"),
            "{proof:?}"
        );
        fault.remove();
        assert!(matches!(
            fault.news.recv().unwrap(),
            FromHost::FaultRemoved { fault: 7, .. }
        ));
    }

    /// A fault whose thread ended without a message has failed; its host continues.
    #[test]
    fn a_fault_without_a_thread_has_failed() {
        let fault = |news: Vec<FromHost>| {
            let (sender, receiver) = sync_channel(2);
            news.into_iter().for_each(|one| sender.send(one).unwrap());
            let thread = AgentThread::spawn("over", || {}).unwrap();
            while !thread.is_over() {
                std::thread::sleep(END_POLL);
            }
            AgentFault {
                remove: channel().0,
                news: receiver,
                number: 5,
                shown: false,
                thread,
            }
        };
        let kind = |news: &FromHost| match news {
            FromHost::FaultFailed {
                fault: 5,
                kind,
                what,
            } if what.contains("panicked") => Some(*kind),
            _ => None,
        };
        let (news, over) = fault(Vec::new()).news();
        assert!(
            over && news.len() == 1 && kind(&news[0]) == Some(HostFaultFailure::Refused),
            "{news:?}"
        );
        let proof = Proof {
            at: Nanos(1),
            seen: Nanos(2),
            what: String::new(),
            value: None,
        };
        let (news, over) = fault(vec![FromHost::FaultPut {
            fault: 5,
            proof: proof.clone(),
        }])
        .news();
        assert!(
            over && news.len() == 2 && kind(&news[1]) == Some(HostFaultFailure::NotGone),
            "{news:?}"
        );
        let (news, over) = fault(vec![FromHost::FaultRemoved { fault: 5, proof }]).news();
        assert!(
            over && news.len() == 1 && kind(&news[0]).is_none(),
            "{news:?}"
        );
    }

    #[test]
    fn disallowed_and_impossible_faults_are_refused() {
        let child = Sleeper(Command::new("sleep").arg("60").spawn().unwrap());
        let pid = child.0.id();
        let check = |what: HostFault, allow: &[&str], expected: HostFaultFailure, words: &str| {
            let allow = match allow {
                ["everything"] => AllowList::everything(),
                some => AllowList::only(some.iter().copied(), &[]).unwrap(),
            };
            let FromHost::FaultFailed {
                fault: 3,
                kind,
                what,
            } = first(what, &allow)
            else {
                panic!("{words}")
            };
            assert!(
                kind == expected && what.contains(words),
                "{words}: {kind:?} {what}"
            );
        };
        use HostFaultFailure::{NotAllowed, Refused};
        let cpu = |share| HostFault::Cpu {
            share,
            cores: vec![],
        };
        let freeze = |process| HostFault::Freeze { process };
        let numbered = HostProcess::Numbered(pid);
        check(cpu(0.5), &[], NotAllowed, "--allow fault:cpu");
        check(
            cpu(0.5),
            &["memory:", "fault:kill"],
            NotAllowed,
            "--allow fault:cpu",
        );
        check(
            HostFault::Memory { bytes: 1 },
            &["fault:cpu"],
            NotAllowed,
            "fault:memory",
        );
        check(
            freeze(numbered.clone()),
            &["fault:kill"],
            NotAllowed,
            "fault:freeze",
        );
        check(
            freeze(numbered),
            &["fault:freeze=tgtd"],
            NotAllowed,
            "fault:freeze=sleep",
        );
        let named = HostProcess::Named("no such process".into());
        check(
            freeze(named),
            &["fault:freeze"],
            Refused,
            "no process is called",
        );
        check(
            freeze(HostProcess::Numbered(1)),
            &["everything"],
            Refused,
            "which faults never affect",
        );
        check(cpu(7.0), &["everything"], Refused, "0.01 to 1");
        let cores = HostFault::Cpu {
            share: 0.5,
            cores: vec![100_000],
        };
        check(cores, &["fault:cpu"], Refused, "core 100000");
        let netem = |interface: &str, settings: &str| HostFault::Netem {
            interface: interface.into(),
            settings: settings.into(),
        };
        check(
            netem("eth0", "x"),
            &["fault:netem=eth1"],
            NotAllowed,
            "fault:netem=eth0",
        );
        check(
            netem("eth0/../x", "x"),
            &["fault:netem"],
            Refused,
            "not a valid interface name",
        );
        check(
            netem("eth0", "x"),
            &["fault:netem=eth0"],
            Refused,
            "cannot parse",
        );
        let interfaces = ["nosuch0".to_string(), "nosuch1".to_string()];
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("kept.pcapng");
        let allowed = folder.path().display().to_string();
        let bridge = |capture: Option<&str>| HostFault::Bridge {
            interfaces: interfaces.clone(),
            seed: 1,
            capture: capture.map(str::to_string),
        };
        check(
            bridge(None),
            &["fault:bridge=eth0"],
            NotAllowed,
            "fault:bridge=nosuch0",
        );
        check(
            bridge(None),
            &["fault:bridge"],
            Refused,
            "unknown interface nosuch0",
        );
        check(
            bridge(Some("kept.pcapng")),
            &["fault:bridge", &allowed],
            Refused,
            "absolute path",
        );
        let at = kept.to_str().unwrap();
        check(
            bridge(Some(at)),
            &["fault:bridge", "/nosuch"],
            NotAllowed,
            "may not be opened here",
        );
        check(
            bridge(Some(at)),
            &["fault:bridge", &allowed],
            Refused,
            "unknown interface nosuch0",
        );
        assert!(!kept.exists(), "no empty capture is left");
        std::fs::write(&kept, "precious").unwrap();
        check(
            bridge(Some(at)),
            &["fault:bridge", &allowed],
            Refused,
            "cannot save packets",
        );
        assert_eq!(std::fs::read(&kept).unwrap(), b"precious");
        let impair = HostFault::Impair {
            settings: Box::new([serde_json::json!({}), serde_json::json!({})]),
        };
        check(
            impair,
            &["fault:bridge=eth0"],
            Refused,
            "there is no bridge",
        );
        let probe = |requests, payload_bytes| HostFault::ProbePath {
            address: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
            figure: brunt_protocol::PathFigure::Loss,
            requests,
            interval_us: 0,
            payload_bytes,
        };
        check(probe(1, 32), &["fault:bridge"], NotAllowed, "fault:probe");
        let of_six = HostFault::ProbePath {
            address: IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
            figure: brunt_protocol::PathFigure::Loss,
            requests: 1,
            interval_us: 0,
            payload_bytes: 32,
        };
        check(of_six, &["fault:probe"], Refused, "use an IPv4 address");
        check(
            probe(0, 32),
            &["fault:probe"],
            Refused,
            "invalid probe of 0",
        );
        check(probe(1, 7), &["fault:probe"], Refused, "8 to 1400 bytes");
        assert!(child.0.id() == pid && std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
