//! Bridges on other hosts, for machines in the network path of an experiment (`[hosts.x] bridge = ["eth0",
//! "eth1"]`): they forward packets from before the targets are opened until the experiment is over, and each
//! run records their counts.
//!
//! The rule: a bridge that ends cuts the connection, which invalidates the run that needs it; unintended packet loss
//! makes the run doubtful.

use std::collections::BTreeMap;
use std::sync::Arc;

use brunt_host::{FaultEnd, Fleet, HostBridgeError};
use brunt_protocol::HostFault;
use brunt_result::Outcome;
use brunt_result::link::LinkReport;
use brunt_result::summary::RunSummary;
use brunt_result::void::VoidReason;

use super::{HookError, RunHook};
use crate::host::BridgeHost;
use crate::observe::{Hub, RunInfo};

/// All bridges of an experiment. Dropping this ends them.
pub struct HostBridges {
    fleet: Arc<Fleet>,
    /// For each host, the agent's number for the bridge.
    bridges: BTreeMap<String, u32>,
    notes: Vec<String>,
    before: BTreeMap<String, LinkReport>,
    seen: BTreeMap<String, LinkReport>,
}

impl HostBridges {
    /// Starts a bridge between two interfaces on each of these hosts, which must already be connected.
    ///
    /// # Errors
    /// A bridge cannot be started.
    pub fn start(
        fleet: &Arc<Fleet>,
        bridges: Vec<BridgeHost>,
        seed: u64,
    ) -> Result<HostBridges, FaultEnd> {
        let fleet = Arc::clone(fleet);
        let (notes, before, seen) = Default::default();
        // If a bridge cannot be started, dropping this ends the bridges that have been.
        let mut all = HostBridges {
            fleet,
            bridges: BTreeMap::new(),
            notes,
            before,
            seen,
        };
        for BridgeHost {
            name,
            interfaces,
            capture,
        } in bridges
        {
            let host = name.to_string();
            if let Some(path) = &capture {
                all.notes.push(format!(
                    "host {host}: the packets of its bridge are saved on that host, to {path}"
                ));
            }
            let (number, proof) = all.fleet.put_fault(
                &host,
                HostFault::Bridge {
                    interfaces,
                    seed,
                    capture,
                },
            )?;
            if !proof.what.is_empty() {
                all.notes.push(format!("host {host}: {}", proof.what));
            }
            all.bridges.insert(host, number);
        }
        Ok(all)
    }

    /// Notes for the user about the interfaces.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn reports(&self) -> Result<BTreeMap<String, LinkReport>, HostBridgeError> {
        self.bridges
            .keys()
            .map(|host| Ok((host.clone(), self.fleet.bridge_report(host)?)))
            .collect()
    }
}

impl RunHook for HostBridges {
    fn begin(&mut self, _run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
        let lost = |error| HookError::new(VoidReason::FaultHostLost, "a bridge").because(error);
        self.before = self.reports().map_err(lost)?;
        Ok(())
    }

    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        let unread = |error| HookError::new(VoidReason::FaultHostLost, "a bridge").because(error);
        self.seen = self.reports().map_err(unread)?;
        for (host, report) in &mut self.seen {
            *report = report.since(&self.before.get(host).copied().unwrap_or_default());
        }
        Ok(())
    }

    fn sum_up(&mut self, run: &mut RunSummary, _outcome: &Outcome) {
        for (host, report) in std::mem::take(&mut self.seen) {
            run.doubts.extend(
                report
                    .trouble()
                    .iter()
                    .map(|trouble| format!("bridge {host}: {trouble}")),
            );
            if let Some(lost) = report
                .captured
                .map(|captured| captured.lost)
                .filter(|lost| *lost > 0)
            {
                let why = "that host's disk was full or too slow";
                run.doubts.push(format!(
                    "bridge {host}: {lost} packets are missing from its capture: {why}"
                ));
            }
            run.links.insert(host, report);
        }
    }
}

impl Drop for HostBridges {
    fn drop(&mut self) {
        for (host, number) in std::mem::take(&mut self.bridges) {
            // The bridge of a host that was lost ends by itself.
            let _ = self.fleet.remove_fault(&host, number);
        }
    }
}
