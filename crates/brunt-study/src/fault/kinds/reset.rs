//! `reset`: resets TCP connections between two hosts of the lab on behalf of one of them, like a firewall or
//! load balancer that has lost its state.
//!
//! The rule: a connection is reset when it next sends data, so the run's own requests provide the proof.

use std::time::Duration;

use brunt_core::{Clock, Nanos};
use brunt_lab::link::ResetPorts;
use brunt_lab::{Fault as _, Proof, TcpReset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::freeze::Freeze;
use super::kill::Kill;
use super::partition::joined;
use super::storage::serves_no_client;
use crate::fault::driver::{DriverError, FaultDriver};
use crate::fault::kind::{
    About, FaultCommon, FaultContext, Info, Kind, Mistake, Pair, Prepared, Stage, Together,
};
use crate::host::HostName;
use crate::rounded::rounded;

pub(super) const INFO: Info = Info {
    keys: &["reset", "to", "port"],
    on_hosts: false,
    help: "resets TCP connections between two hosts of the lab on behalf of the named host: those of a target, all connections to the host `to`, or those of a `port`",
    proof: "the other host's TCP counts the resets (EstabResets) while the named host's TCP sent none itself (OutRsts); later a new connection carries data both ways",
    example: "target = \"disk\"\nreset = \"server\"\nat = \"5s\"\nfor = \"100ms\"",
};

/// The keys of a `reset` fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reset {
    /// Resets TCP connections on behalf of this host of the lab: connections that are open, when they next send data,
    /// and connections opened while the fault lasts.
    pub reset: HostName,
    /// With `reset`: the host that receives the resets; default: the peer of the target's connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<HostName>,
    /// With `reset`: only connections with this port at either end; default: the target's port or, without a target,
    /// all connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl Reset {
    /// The host on whose behalf connections are reset, and the host that receives the resets; `None` if the file is
    /// invalid.
    pub(super) fn hosts(
        &self,
        common: &FaultCommon,
        stage: &dyn Stage,
    ) -> Option<(HostName, HostName)> {
        let host = stage
            .target(&common.target)
            .and_then(|target| target.host.clone());
        stage.lab()?;
        let to = self.other_end(host.as_ref(), &stage.requesters(&common.target))?;
        Some((self.reset.clone(), to))
    }

    /// The host that receives the resets, given the target's `host` and its `requesters`.
    fn other_end(&self, host: Option<&HostName>, requesters: &[HostName]) -> Option<HostName> {
        match (&self.to, host, requesters) {
            (Some(to), ..) => Some(to.clone()),
            (None, Some(host), [only]) if self.reset == *host => Some(only.clone()),
            (None, Some(host), _) if requesters.contains(&self.reset) => Some(host.clone()),
            (None, ..) => None,
        }
    }

    /// Why it is unclear which connections to reset, for a target on `host`, or without a target.
    fn unnamed(&self, common: &FaultCommon, host: Option<&HostName>, stage: &dyn Stage) -> Mistake {
        let Some(host) = host else {
            let what = "the fault does not name the connections to reset";
            let help = "write target = a target on a host of the lab, or to = the other host";
            return Mistake::new("reset", what, help);
        };
        let target = &common.target;
        let names = HostName::listed(&stage.requesters(target));
        if self.reset == *host {
            let what = format!(
                "connections of {target} come from {names}, but the fault resets connections of only one of them"
            );
            return Mistake::new("reset", what, format!("write to = one of {names}"));
        }
        let what = format!(
            "connections of {target} are between {names} and {host}, not '{}'",
            self.reset
        );
        Mistake::new(
            "reset",
            what,
            format!("write one of {names}, {host}, or to = the other host"),
        )
    }
}

impl Kind for Reset {
    fn about(&self) -> About {
        About::Machine
    }

    fn what(&self) -> String {
        format!("TCP reset from {}", self.reset)
    }

    fn place(&self, common: &FaultCommon) -> String {
        match &self.to {
            Some(to) => format!("{} and {to}", self.reset),
            None => common.target.clone(),
        }
    }

    fn check(&self, common: &FaultCommon, stage: &dyn Stage) -> Result<(), Mistake> {
        let Some(lab) = stage.lab() else {
            return Err(Mistake::new(
                "reset",
                "there is no lab",
                "add [lab] with hosts and links",
            ));
        };
        let Some((from, to)) = self.hosts(common, stage) else {
            let host = stage
                .target(&common.target)
                .and_then(|target| target.host.as_ref());
            return Err(self.unnamed(common, host, stage));
        };
        let hosts = stage.hosts();
        let key = if self.to.is_some() && hosts.find(&from).is_ok() {
            "to"
        } else {
            "reset"
        };
        joined(key, &from, &to, lab, &hosts)?;
        if self.port == Some(0) {
            return Err(Mistake::new(
                "port",
                "port 0 is not valid",
                "write 1 to 65535, or omit it",
            ));
        }
        if common.at.is_none() {
            let what = "no connection would be left to measure with";
            return Err(Mistake::new(
                "reset",
                what,
                "write at = … and for = …: the fault cannot last for the whole run",
            ));
        }
        Ok(())
    }

    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        if pair.other_as::<Reset>().is_some() {
            return Together::refused(
                "hosts do not count which of two faults reset a connection, and a link runs only one reset at a time",
                "make them consecutive",
            );
        }
        let away = pair.other_as::<Kill>().is_some() || pair.other_as::<Freeze>().is_some();
        (away && pair.same_target() && pair.other_times().cover(pair.my_times()))
            .then(|| serves_no_client(pair))
            .flatten()
    }

    fn prepare(
        &self,
        common: &FaultCommon,
        scene: &mut FaultContext<'_>,
    ) -> Result<Prepared, DriverError> {
        let lab = scene.lab()?;
        let role = scene.roles.get(&common.target);
        let unfit = || {
            let advice = format!(
                "write to = \"{}\", or another host of the lab",
                lab.worker()
            );
            DriverError::unfit("the fault does not name the connections to reset", advice)
        };
        let requesters = scene
            .requesters
            .get(&common.target)
            .map_or(&[][..], Vec::as_slice);
        let to = self
            .other_end(role.map(|role| role.host()), requesters)
            .ok_or_else(unfit)?;
        let ports = match (self.port, role) {
            (Some(port), _) => ResetPorts::Either(port),
            (None, Some(role)) => ResetPorts::Either(role.address().port()),
            (None, None) => ResetPorts::All,
        };
        let from = self.reset.clone();
        let make = move || lab.lab().tcp_reset(from.as_str(), to.as_str(), ports);
        // Errors in the lab's links are reported before the first run.
        make()?;
        let listens = role
            .map(|role| role.address().port())
            .filter(|_| self.port.is_some());
        Ok(Prepared::new(move || {
            Ok(Box::new(ResetFault {
                fault: make()?,
                listens,
                seen: String::new(),
            }))
        }))
    }
}

/// Drives a reset: armed at its time, proven once it has reset a connection.
struct ResetFault {
    fault: TcpReset,
    /// The port of the fault's target, if the file may name another port.
    listens: Option<u16>,
    /// The hosts' counts at the latest check.
    seen: String,
}

impl FaultDriver for ResetFault {
    fn describe(&self) -> String {
        self.fault.describe()
    }

    fn put(&mut self) -> Result<Option<Nanos>, DriverError> {
        Ok(Some(self.fault.arm()?))
    }

    fn poll(&mut self) -> Result<Option<Proof>, DriverError> {
        match self.fault.check(&Clock::Monotonic)? {
            Ok(proof) => Ok(Some(proof)),
            Err(not_yet) => {
                self.seen = not_yet.counted;
                Ok(None)
            }
        }
    }

    fn seen_instead(&self) -> String {
        self.seen.clone()
    }

    fn advice(&self, looked: Duration) -> Option<String> {
        let longer = rounded((looked * 2).max(Duration::from_millis(100)));
        let port = match self.listens {
            Some(port) => format!("write port = {port}, which the target listens on, or omit port"),
            None => "omit port if it is set".to_string(),
        };
        Some(format!(
            "a connection must send data during the fault: {port}, or make the fault last longer (for = \"{longer}\")"
        ))
    }

    fn take_away(&mut self) -> Result<Proof, DriverError> {
        Ok(self.fault.remove(&Clock::Monotonic)?)
    }
}
