//! Roles on a host: targets, sinks and services that its agent starts, drives and ends on behalf of a controller.
//!
//! A target or sink is started immediately ([`RoleOrder::Start`]). A service is first admitted
//! ([`RoleOrder::Admit`]), so that no part of an experiment is started anywhere if one host refuses its part. The
//! service is started once the services that it depends on are ready ([`RoleOrder::Run`]). The output of a service
//! arrives in parts ([`RoleNews::Log`]).
//!
//! The rule: a role keeps its number from start to end; when the connection ends, so does the role. All parts of its
//! log precede its last news.

use std::collections::BTreeMap;

// Addresses are plain data, available from `core` without sockets.
use core::net::{IpAddr, SocketAddr};

use brunt_core::Nanos;
use serde::{Deserialize, Serialize};

use crate::service::ServiceProgram;
use crate::{FailureKind, HostFaultFailure, Proof, Secret};

/// A role for a host to serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostRole {
    /// The controller's name for the role, used in samples.
    pub name: String,
    /// The target's `serve = …` setting, in the experiment's format.
    pub serve: serde_json::Value,
    /// The host's address to listen on, on a port that the host chooses.
    pub address: IpAddr,
    /// The TCP congestion control; `None` leaves the choice to the kernel.
    pub congestion: Option<String>,
    /// The login as `USER:SECRET`; `None` without a login.
    pub login: Option<Secret>,
}

/// A service for a host to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostService {
    /// The controller's name for the service, used in messages and samples.
    pub name: String,
    /// The name of the service's folder, inside the host's folder for the services of this connection.
    pub folder: String,
    /// The host's address that the service listens on.
    pub address: IpAddr,
    /// The program to run, when it counts as ready, and its limits.
    pub program: ServiceProgram,
    /// Whether the service needs root privileges on the host.
    pub needs_root: bool,
}

/// How a role is taken out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleOutage {
    /// It is suspended.
    Freeze,
    /// It is killed, and restarted afterwards.
    Kill,
}

/// An order to a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RoleOrder {
    /// Start the role; answered by [`RoleNews::Listens`] or [`RoleNews::Refused`].
    Start(Box<HostRole>),
    /// Prepare to start this service, if it is allowed; answered by [`RoleNews::Admitted`] or [`RoleNews::Refused`].
    Admit(Box<HostService>),
    /// Start the admitted service, with these additional variables in its environment; answered by
    /// [`RoleNews::Listens`] when it is ready, or by [`RoleNews::Refused`].
    Run(BTreeMap<String, String>),
    /// Write a line to the role's standard input; its output arrives as [`RoleNews::Output`].
    Say(String),
    /// Report whether the role is alive; answered by [`RoleNews::Lives`] or [`RoleNews::Died`].
    Look,
    /// Take the role out of service; answered by [`RoleNews::Away`] or [`RoleNews::NotDone`].
    Break(RoleOutage),
    /// Put the role back into service; answered by [`RoleNews::Back`] or [`RoleNews::NotDone`].
    Mend,
    /// End the role; answered by [`RoleNews::Stopped`], its last news.
    Stop,
}

/// How a role ended on its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleEnd {
    /// The status from wait(2).
    pub status: i32,
    /// When its output ended.
    pub at: Option<Nanos>,
    /// Bytes of memory available on the role's host, if the kernel killed processes because memory ran out while the
    /// role was running.
    pub starved: Option<u64>,
    /// Its last lines of output.
    pub lines: Vec<String>,
}

/// News about a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RoleNews {
    /// The service may be started.
    Admitted {
        /// Its folder on the host.
        folder: String,
    },
    /// It is in service.
    Listens {
        /// Its address.
        address: SocketAddr,
        /// The PID on the role's host; for a service, the PID of its keeper.
        pid: u32,
    },
    /// The role was not started; no further news follows.
    Refused {
        /// The kind of failure, for decisions in code.
        kind: FailureKind,
        /// For users: what failed, where, and what to do.
        what: String,
    },
    /// A line of the role's standard output.
    #[serde(rename = "said")]
    Output(String),
    /// A service's output since the last part, at most [`LOG_BYTES_MAX`].
    ///
    /// [`LOG_BYTES_MAX`]: super::LOG_BYTES_MAX
    Log(#[serde(with = "super::hex")] Vec<u8>),
    /// The role is alive, or out of service as requested.
    Lives,
    /// The role is out of service, as verified on its host.
    Away(Proof),
    /// The role is back in service.
    Back {
        /// The evidence.
        proof: Proof,
        /// Its current PID.
        pid: u32,
    },
    /// The role could not be taken out of service, or put back.
    NotDone {
        /// The kind of failure, for decisions in code.
        kind: HostFaultFailure,
        /// The message for people.
        what: String,
    },
    /// The role ended on its own.
    Died(RoleEnd),
    /// The role has ended; no further news follows.
    Stopped,
}

impl RoleNews {
    /// Whether this is the role's last news.
    pub fn is_last(&self) -> bool {
        matches!(self, RoleNews::Refused { .. } | RoleNews::Stopped)
    }

    /// The same news, with its times converted by `date`.
    #[must_use]
    pub fn dated(self, date: impl Fn(Nanos) -> Nanos) -> RoleNews {
        match self {
            RoleNews::Away(proof) => RoleNews::Away(proof.dated(date)),
            RoleNews::Back { proof, pid } => RoleNews::Back {
                proof: proof.dated(date),
                pid,
            },
            RoleNews::Died(end) => RoleNews::Died(RoleEnd {
                at: end.at.map(date),
                ..end
            }),
            news => news,
        }
    }
}
