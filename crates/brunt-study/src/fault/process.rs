//! The driver for faults of a served target's process or a service's processes: freezes them, or kills and restarts
//! them. The process is looked up when the fault starts, because an earlier fault of the same run may have replaced
//! it.
//!
//! The rule: the role is marked as away before the signal is sent and until it is back, so that faults inside
//! it can distinguish a late answer from one that never comes.

use std::sync::Arc;

use brunt_core::{Clock, Nanos};
use brunt_lab::{Fault, Proof};
use brunt_protocol::HostProcess;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::driver::{DriverError, FaultDriver};
use super::kind::{About, FaultCommon, FaultContext, Mistake, Pair, Stage, Together};
use crate::control::Absence;
use crate::role::{Launch, Role};

/// The driver of a process fault.
pub(super) struct ProcessFault {
    role: Arc<dyn Role>,
    away: Absence,
    fault: Option<Box<dyn Fault>>,
    proof: Option<Proof>,
}

impl ProcessFault {
    /// Creates a driver that freezes or kills the process, according to `away`.
    pub fn new(role: Arc<dyn Role>, away: Absence) -> ProcessFault {
        ProcessFault {
            role,
            away,
            fault: None,
            proof: None,
        }
    }
}

impl FaultDriver for ProcessFault {
    fn describe(&self) -> String {
        self.fault
            .as_ref()
            .map_or_else(|| format!("{:?}", self.away), |fault| fault.describe())
    }

    fn put(&mut self) -> Result<Option<Nanos>, DriverError> {
        // A process has only one fault at a time, and its previous fault may end later than planned.
        if !self.role.mark_away(self.away) {
            return Ok(None);
        }
        // A process that has died unexpectedly must not be restarted silently.
        self.role.check().inspect_err(|_| self.role.comes_back())?;
        let mut fault = Arc::clone(&self.role).outage(self.away);
        let proof = fault.inject(&Clock::Monotonic);
        self.fault = Some(fault);
        match proof {
            Ok(proof) => Ok(Some(self.proof.insert(proof).at)),
            Err(error) => {
                self.fault = None;
                self.role.comes_back();
                Err(error.into())
            }
        }
    }

    fn poll(&mut self) -> Result<Option<Proof>, DriverError> {
        Ok(self.proof.clone())
    }

    fn take_away(&mut self) -> Result<Proof, DriverError> {
        let Some(mut fault) = self.fault.take() else {
            return Err(DriverError::NotThere);
        };
        let proof = fault.remove(&Clock::Monotonic);
        // Only a frozen process is marked as running here: a restarted one already has been, and may be away again in
        // the meantime. If the restart failed, nothing waits for an answer.
        if self.away == Absence::Frozen {
            self.role.comes_back();
        }
        Ok(proof?)
    }
}

impl Drop for ProcessFault {
    fn drop(&mut self) {
        if let (Some(fault), Absence::Frozen) = (self.fault.take(), self.away) {
            drop(fault);
            self.role.comes_back();
        }
    }
}

/// Checks that a separate process serves the target, because only a process can be frozen or killed.
fn served(key: &'static str, common: &FaultCommon, stage: &dyn Stage) -> Result<(), Mistake> {
    let launch = stage.role(&common.target).map(|role| role.launch());
    if matches!(launch, Some(Launch::Process { .. })) {
        return Ok(());
    }
    let name = &common.target;
    let what = format!(
        "{key} needs a target that the experiment starts itself; '{name}' is opened by url"
    );
    let help = "write serve = … instead of url = … for the target, or service = … to name the service that serves it";
    Err(Mistake::new(key, what, help))
}

/// A process on another host, as written in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ProcessKey {
    /// The only process whose program has this name.
    Named(String),
    /// The process with this PID.
    Numbered(u32),
}

impl ProcessKey {
    /// The process as named in the request to its host's agent.
    pub fn of_host(&self) -> HostProcess {
        match self {
            ProcessKey::Named(name) => HostProcess::Named(name.clone()),
            ProcessKey::Numbered(pid) => HostProcess::Numbered(*pid),
        }
    }
}

/// The processes that a fault names.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Whose<'a> {
    /// A service.
    pub service: Option<&'a String>,
    /// A process of another host.
    pub process: Option<&'a ProcessKey>,
}

impl Whose<'_> {
    /// The kind of object that the fault affects.
    pub fn about(self) -> About {
        if self.service.is_some() {
            About::Service
        } else {
            About::Process
        }
    }

    /// The affected place.
    pub fn place(self, common: &FaultCommon) -> String {
        self.service.map_or_else(
            || common.target.clone(),
            |service| format!("service {service}"),
        )
    }

    /// The role that owns the process.
    pub fn role(
        self,
        common: &FaultCommon,
        scene: &FaultContext<'_>,
    ) -> Result<Arc<dyn Role>, DriverError> {
        match self.service {
            Some(service) => scene.service(service),
            None => scene.role(&common.target),
        }
    }
}

/// Checks that the process can be frozen or killed, whether it is that of a target, those of a service, or a named
/// process on another host.
pub(super) fn check(
    key: &'static str,
    whose: Whose<'_>,
    common: &FaultCommon,
    stage: &dyn Stage,
) -> Result<(), Mistake> {
    let Whose { service, process } = whose;
    if let Some(service) = service {
        let wrong = |key, what: &str, help: &str| Err(Mistake::new(key, what, help));
        return match (stage.unknown_service(service), process, &common.host) {
            (Some(what), ..) => wrong("service", &what, "add [services.NAME], or name one of them"),
            (None, Some(_), _) => wrong(
                "process",
                "the fault applies to all processes of the service, but process names one",
                "omit process",
            ),
            (None, None, Some(_)) => wrong(
                "host",
                "the fault applies to the service's own host",
                "omit host",
            ),
            (None, None, None) => Ok(()),
        };
    }
    match (process, &common.host) {
        (None, None) => served(key, common, stage),
        (None, Some(host)) => {
            let what = format!("the fault does not name the process on host {host}");
            Err(Mistake::new(
                "process",
                what,
                "write process = \"tgtd\", its program's name, or its PID",
            ))
        }
        (Some(_), None) => {
            let what = "process applies to other hosts only; on this machine the fault applies to a target's process";
            Err(Mistake::new(
                "process",
                what,
                "omit it, or write host = … from [hosts]",
            ))
        }
        (Some(ProcessKey::Named(name)), Some(_)) if name.is_empty() || name.contains('/') => {
            let what = format!("'{name}' is not a program name");
            Err(Mistake::new(
                "process",
                what,
                "write it as in /proc/PID/comm, without a folder",
            ))
        }
        (Some(_), Some(_)) => Ok(()),
    }
}

/// Whether two faults affect the same process.
pub(super) fn is_same(pair: &Pair<'_>, mine: Whose<'_>, other: Whose<'_>) -> bool {
    let is_named =
        pair.me.common.host.is_some() || mine.service.is_some() || other.service.is_some();
    if is_named {
        mine == other
    } else {
        pair.same_target()
    }
}

/// The refusal of two simultaneous faults of one process.
pub(super) fn away_twice() -> Option<Together> {
    Together::refused(
        "a process that is frozen or dead can be neither frozen nor killed",
        "end one before the other starts",
    )
}
