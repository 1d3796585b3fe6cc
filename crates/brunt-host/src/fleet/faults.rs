//! Faults on other hosts: the fault driver injects and removes them, and the host's thread converts times to our clock.
//!
//! The rule: every caller gets a result, even if the host is lost. A lost host removes its faults itself when its
//! agent's lease expires.

use std::collections::BTreeMap;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use brunt_protocol::{HostFault, HostFaultFailure, Proof};
use brunt_result::link::LinkReport;

use super::host_thread::HostThreadOrder;
use super::{Fleet, FleetError, Lane};
use crate::clock::ClockEstimate;
use crate::host_error::HostError;
use crate::host_news::HostNews;
use crate::remote::RemoteHost;

/// Maximum time to verify a fault or its removal: locking the memory of a large host takes minutes.
const ANSWER_MAX: Duration = Duration::from_secs(300);
/// Maximum time to undo a fault that wasn't verified in that time.
const TAKE_BACK_MAX: Duration = Duration::from_secs(60);
/// Maximum wait for a bridge's report: agents send it immediately, and the caller is in the middle of a run.
const BRIDGE_MAX: Duration = Duration::from_secs(10);

/// Why injecting or removing a fault failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FaultEnd {
    /// The host refused, or could not verify the change.
    #[error("host {host}: {what}")]
    Failed {
        /// The host's name in the experiment.
        host: String,
        /// The kind of failure, for decisions in code.
        kind: HostFaultFailure,
        /// The agent's message.
        what: String,
    },
    /// The host was lost. The host's agent removes the faults that it had injected.
    #[error("{0}; its agent removes the fault when its lease expires")]
    Lost(String),
    /// There was no reply in time.
    #[error("host {host}: no reply about the fault within {at_most:?}{}", taken_back(.left))]
    Slow {
        /// The host's name in the experiment.
        host: String,
        /// How long the caller waited.
        at_most: Duration,
        /// For a fault that could not be verified: whether it was undone and, if not, why it may still take effect.
        left: Option<Result<(), Box<FaultEnd>>>,
    },
}

/// Describes the outcome for a fault that timed out.
fn taken_back(left: &Option<Result<(), Box<FaultEnd>>>) -> String {
    match left {
        None => String::new(),
        Some(Ok(())) => "; it was withdrawn".to_string(),
        Some(Err(why)) => {
            format!(
                "; it may still take effect until the host's agent exits, because withdrawing it \
                 failed: {why}"
            )
        }
    }
}

/// Why a bridge's report is missing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HostBridgeError {
    /// The host was lost.
    #[error("{0}; its bridge keeps forwarding until its agent's lease expires")]
    Lost(String),
    /// The host no longer forwards packets.
    #[error("host {0}: its bridge ended because an interface disappeared or was set down")]
    Ended(String),
    /// There was no reply in time.
    #[error("host {host}: its agent did not report the bridge's packets within {at_most:?}")]
    Slow {
        /// The host's name in the experiment.
        host: String,
        /// How long the caller waited.
        at_most: Duration,
    },
}

/// A request to a host about a fault.
#[derive(Debug)]
pub(super) struct FaultTask {
    pub number: u32,
    /// The fault to inject; `None` to remove it.
    pub put: Option<HostFault>,
    /// Receives the result, once.
    pub answer: SyncSender<Result<Proof, FaultEnd>>,
}

impl Fleet {
    /// Injects a fault on a host, and waits until it is verified. The returned number is used to remove it. A fault
    /// that isn't verified in time is undone.
    ///
    /// # Errors
    /// The fault is not in effect, or the host is lost.
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
                    // The fault failed in the meantime, so it isn't in effect either.
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

    /// Removes a fault, and waits until the removal is verified.
    ///
    /// # Errors
    /// The fault is still in effect or never was, or the host is lost.
    pub fn remove_fault(&self, host: &str, number: u32) -> Result<Proof, FaultEnd> {
        self.ask_about(host, number, None, ANSWER_MAX)
    }

    /// The traffic through a host's bridge since the bridge started.
    ///
    /// # Errors
    /// There is no bridge, or the host is lost.
    pub fn bridge_report(&self, host: &str) -> Result<LinkReport, HostBridgeError> {
        let (answer, result) = sync_channel(1);
        let asked = self.tell(host, Lane::default(), HostThreadOrder::AskBridge(answer));
        asked.map_err(|error: FleetError| HostBridgeError::Lost(error.to_string()))?;
        let slow = || HostBridgeError::Slow {
            host: host.to_string(),
            at_most: BRIDGE_MAX,
        };
        result
            .recv_timeout(BRIDGE_MAX)
            .unwrap_or_else(|_| Err(slow()))
    }

    fn ask_about(
        &self,
        host: &str,
        number: u32,
        put: Option<HostFault>,
        at_most: Duration,
    ) -> Result<Proof, FaultEnd> {
        let (answer, result) = sync_channel(1);
        let asked = self.tell(
            host,
            Lane::default(),
            HostThreadOrder::Fault(Box::new(FaultTask {
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
        result.recv_timeout(at_most).unwrap_or_else(|_| Err(slow()))
    }
}

/// Receives a bridge's report, once.
pub(super) type BridgeAnswer = SyncSender<Result<LinkReport, HostBridgeError>>;

/// Requests about a host's faults that are waiting for an answer.
#[derive(Debug, Default)]
pub(super) struct HeldFaults {
    bridge: Option<BridgeAnswer>,
    waiting: BTreeMap<u32, SyncSender<Result<Proof, FaultEnd>>>,
}

impl HeldFaults {
    /// Sends a request to the host.
    pub fn ask(
        &mut self,
        name: &str,
        task: FaultTask,
        host: &mut RemoteHost,
    ) -> Result<(), HostError> {
        if task.put.is_none() && !host.has_fault(task.number) {
            // The host would not reply.
            let (host, what) = (name.to_string(), "the fault had already failed".to_string());
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

    /// Asks the host for its bridge's report. An earlier request that is still unanswered gets no answer.
    pub fn ask_bridge(
        &mut self,
        answer: BridgeAnswer,
        host: &mut RemoteHost,
    ) -> Result<(), HostError> {
        self.bridge = Some(answer);
        host.ask_bridge()
    }

    /// Handles a message about faults; `estimate` is for the host's clock. Returns other messages unchanged.
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
            // The receiver may be gone.
            let _ = waiting.try_send(answer);
        }
        None
    }

    /// Handles the loss of the host.
    pub fn lose(&mut self, why: &str) {
        if let Some(waiting) = self.bridge.take() {
            let _ = waiting.try_send(Err(HostBridgeError::Lost(why.to_string())));
        }
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            let _ = waiting.try_send(Err(FaultEnd::Lost(why.to_string())));
        }
    }
}
