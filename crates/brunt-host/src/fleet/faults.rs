//! Faults on other hosts: put in and removed by whoever drives one, with times put on our clock by the thread that holds the
//! host.
//!
//! The rule: whoever asked hears how it went, whatever becomes of the host. A host that is lost removes its faults itself: its
//! agent's lease ends.

use std::collections::BTreeMap;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use brunt_protocol::{HostFault, HostFaultFailure, Proof};
use brunt_result::link::LinkReport;

use super::keeper::KeeperOrder;
use super::{Fleet, FleetError, Lane};
use crate::clock::ClockEstimate;
use crate::remote::{HostError, RemoteHost};
use crate::session::HostNews;

/// Longest time for a fault to show or to be gone: locking the memory of a large host takes minutes.
const ANSWER_MAX: Duration = Duration::from_secs(300);
/// The same for one that is taken back because it did not show in that time.
const TAKE_BACK_MAX: Duration = Duration::from_secs(60);
/// An agent says at once what went through its bridge; whoever asks is in the middle of a run.
const BRIDGE_MAX: Duration = Duration::from_secs(10);

/// How putting a fault in, or removing it, ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FaultEnd {
    /// The host says no, or that it does not show.
    #[error("host {host}: {what}")]
    Failed {
        /// Its name in the experiment.
        host: String,
        /// For a decision.
        kind: HostFaultFailure,
        /// In the agent's words.
        what: String,
    },
    /// The host was lost. Its agent removes what it had put in.
    #[error("{0}; its agent removes the fault when its lease runs out")]
    Lost(String),
    /// There is no answer.
    #[error("host {host}: no answer about the fault within {at_most:?}{}", taken_back(.left))]
    Slow {
        /// Its name in the experiment.
        host: String,
        /// How long it was waited for.
        at_most: Duration,
        /// Of a fault that was to be put in and did not show: whether it may still come, and why it was not taken back.
        left: Option<Result<(), Box<FaultEnd>>>,
    },
}

/// What became of a fault that came too late.
fn taken_back(left: &Option<Result<(), Box<FaultEnd>>>) -> String {
    match left {
        None => String::new(),
        Some(Ok(())) => "; it was taken back".to_string(),
        Some(Err(why)) => {
            format!(
                "; it may still come, until the host's agent ends, because it was not taken back: {why}"
            )
        }
    }
}

/// Why nothing is known of a bridge.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HostBridgeError {
    /// The host was lost.
    #[error("{0}; its bridge keeps forwarding until its agent's lease runs out")]
    Lost(String),
    /// It does not forward any more.
    #[error("host {0}: its bridge has ended: an interface is gone, or was taken down")]
    Ended(String),
    /// There is no answer.
    #[error("host {host}: its agent did not say within {at_most:?} what went through the bridge")]
    Slow {
        /// Its name in the experiment.
        host: String,
        /// How long it was waited for.
        at_most: Duration,
    },
}

/// What is asked of a host about a fault.
#[derive(Debug)]
pub(super) struct FaultTask {
    pub number: u32,
    /// `None`: it is to be removed.
    pub put: Option<HostFault>,
    /// Told once.
    pub answer: SyncSender<Result<Proof, FaultEnd>>,
}

impl Fleet {
    /// Puts a fault in on a host, and waits until it shows. It is removed by its number. One that does not show in time is taken
    /// back.
    ///
    /// # Errors
    /// It is not there, or the host is lost.
    pub fn put_fault(&self, host: &str, what: HostFault) -> Result<(u32, Proof), FaultEnd> {
        self.put_fault_within(host, what, ANSWER_MAX)
    }

    pub(super) fn put_fault_within(
        &self,
        host: &str,
        what: HostFault,
        at_most: Duration,
    ) -> Result<(u32, Proof), FaultEnd> {
        let number = self.next_fault();
        match self.ask_about(host, number, Some(what), at_most) {
            Ok(proof) => Ok((number, proof)),
            Err(FaultEnd::Slow {
                host: name,
                at_most,
                ..
            }) => {
                let left = match self.ask_about(host, number, None, TAKE_BACK_MAX) {
                    Ok(_) => Ok(()),
                    // It has failed since, and is not there either.
                    Err(FaultEnd::Failed { kind, .. }) if kind != HostFaultFailure::NotGone => {
                        Ok(())
                    }
                    Err(why) => Err(Box::new(why)),
                };
                Err(FaultEnd::Slow {
                    host: name,
                    at_most,
                    left: Some(left),
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Removes a fault, and waits until it is gone.
    ///
    /// # Errors
    /// It is not gone, or had not been in effect, or the host is lost.
    pub fn remove_fault(&self, host: &str, number: u32) -> Result<Proof, FaultEnd> {
        self.ask_about(host, number, None, ANSWER_MAX)
    }

    /// What went through a host's bridge since it began.
    ///
    /// # Errors
    /// There is none, or the host is lost.
    pub fn bridge_report(&self, host: &str) -> Result<LinkReport, HostBridgeError> {
        let (answer, told) = sync_channel(1);
        let asked = self.tell(host, Lane::default(), KeeperOrder::AskBridge(answer));
        asked.map_err(|error: FleetError| HostBridgeError::Lost(error.to_string()))?;
        let slow = || HostBridgeError::Slow {
            host: host.to_string(),
            at_most: BRIDGE_MAX,
        };
        told.recv_timeout(BRIDGE_MAX)
            .unwrap_or_else(|_| Err(slow()))
    }

    fn ask_about(
        &self,
        host: &str,
        number: u32,
        put: Option<HostFault>,
        at_most: Duration,
    ) -> Result<Proof, FaultEnd> {
        let (answer, told) = sync_channel(1);
        let asked = self.tell(
            host,
            Lane::default(),
            KeeperOrder::Fault(Box::new(FaultTask {
                number,
                put,
                answer,
            })),
        );
        asked.map_err(|error: FleetError| FaultEnd::Lost(error.to_string()))?;
        let slow = || FaultEnd::Slow {
            host: host.to_string(),
            at_most,
            left: None,
        };
        told.recv_timeout(at_most).unwrap_or_else(|_| Err(slow()))
    }
}

/// Told once what went through a bridge.
pub(super) type BridgeAnswer = SyncSender<Result<LinkReport, HostBridgeError>>;

/// Faults of a host that somebody waits for.
#[derive(Debug, Default)]
pub(super) struct HeldFaults {
    bridge: Option<BridgeAnswer>,
    waiting: BTreeMap<u32, SyncSender<Result<Proof, FaultEnd>>>,
}

impl HeldFaults {
    /// Asks the host.
    pub fn ask(
        &mut self,
        name: &str,
        task: FaultTask,
        host: &mut RemoteHost,
    ) -> Result<(), HostError> {
        if task.put.is_none() && !host.has_fault(task.number) {
            // Nothing would be heard of it.
            let (host, what) = (name.to_string(), "the fault had failed before".to_string());
            let _ = task.answer.try_send(Err(FaultEnd::Failed {
                host,
                kind: HostFaultFailure::Refused,
                what,
            }));
            return Ok(());
        }
        self.waiting.insert(task.number, task.answer);
        match task.put {
            Some(what) => host.put_fault(task.number, what),
            None => host.remove_fault(task.number),
        }
    }

    /// Asks the host what went through its bridge. Whoever asked before and has no answer gets none.
    pub fn ask_bridge(
        &mut self,
        answer: BridgeAnswer,
        host: &mut RemoteHost,
    ) -> Result<(), HostError> {
        self.bridge = Some(answer);
        host.ask_bridge()
    }

    /// Takes what the host says, if it is about faults; `estimate` is of its clock. What is not is handed back.
    pub fn take(
        &mut self,
        name: &str,
        news: HostNews,
        estimate: Option<ClockEstimate>,
    ) -> Option<HostNews> {
        let news = match news {
            HostNews::Bridge(report) => {
                let gone = || HostBridgeError::Ended(name.to_string());
                let answer = report.map(|report| *report).ok_or_else(gone);
                self.bridge
                    .take()
                    .into_iter()
                    .for_each(|waiting| drop(waiting.try_send(answer.clone())));
                return None;
            }
            news => news,
        };
        let (number, answer) = match (news, estimate) {
            (HostNews::FaultProven(number, proof), Some(estimate)) => {
                (number, Ok(proof.dated(|at| estimate.to_ours(at))))
            }
            (HostNews::FaultFailed(number, kind, what), _) => (
                number,
                Err(FaultEnd::Failed {
                    host: name.to_string(),
                    kind,
                    what,
                }),
            ),
            (news, _) => return Some(news),
        };
        if let Some(waiting) = self.waiting.remove(&number) {
            // Whoever asked may have gone.
            let _ = waiting.try_send(answer);
        }
        None
    }

    /// The host was lost.
    pub fn lose(&mut self, why: &str) {
        if let Some(waiting) = self.bridge.take() {
            let _ = waiting.try_send(Err(HostBridgeError::Lost(why.to_string())));
        }
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            let _ = waiting.try_send(Err(FaultEnd::Lost(why.to_string())));
        }
    }
}
