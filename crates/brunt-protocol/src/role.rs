//! Roles on a host: targets, sinks and services that its agent starts for a controller, drives for it, and ends.
//!
//! A target or sink is started at once ([`RoleOrder::Start`]). A service is admitted first ([`RoleOrder::Admit`]), so that
//! nothing of an experiment is started anywhere if one host refuses its part, and started when those are ready that it
//! waits for ([`RoleOrder::Run`]). What it says comes in parts ([`RoleNews::Log`]).
//!
//! The rule: a role has one number from its start to its end; whatever ends the conversation ends the role. All parts of
//! its log come before its last news.

use std::collections::BTreeMap;

// Addresses are plain data, which `core` has without sockets.
use core::net::{IpAddr, SocketAddr};

use brunt_core::Nanos;
use serde::{Deserialize, Serialize};

use crate::service::ServiceProgram;
use crate::{FailureKind, HostFaultFailure, Proof, Secret};

/// What a host is to serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostRole {
    /// What the controller calls it, for samples.
    pub name: String,
    /// `serve = …` of a target, as experiments have it.
    pub serve: serde_json::Value,
    /// The address of the host at which it listens, on a port of the host's choice.
    pub address: IpAddr,
    /// The kernel's congestion control, if it is not to choose.
    pub congestion: Option<String>,
    /// `USER:SECRET`: who may log in. `None` where there is no login.
    pub login: Option<Secret>,
}

/// A service that a host is to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostService {
    /// What the controller calls it, for messages and samples.
    pub name: String,
    /// The name of its folder, in the folder that the services of a conversation have on the host.
    pub folder: String,
    /// The address of the host at which it listens.
    pub address: IpAddr,
    /// What is kept.
    pub program: ServiceProgram,
    /// It needs root's rights over the host.
    pub needs_root: bool,
}

/// How a role is put out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleOutage {
    /// It stands still.
    Freeze,
    /// It dies, and is started again afterwards.
    Kill,
}

/// What is to be done with a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RoleOrder {
    /// Start it; answered by [`RoleNews::Listens`] or [`RoleNews::Refused`].
    Start(Box<HostRole>),
    /// Make ready to start this service, if it is allowed; answered by [`RoleNews::Admitted`] or [`RoleNews::Refused`].
    Admit(Box<HostService>),
    /// Start the service that was admitted, with these further variables in its environment; answered by
    /// [`RoleNews::Listens`] when it is ready, or [`RoleNews::Refused`].
    Run(BTreeMap<String, String>),
    /// A line for its standard input; what it answers comes as [`RoleNews::Said`].
    Say(String),
    /// Does it live? Answered by [`RoleNews::Lives`] or [`RoleNews::Died`].
    Look,
    /// Put it out of service; answered by [`RoleNews::Away`] or [`RoleNews::NotDone`].
    Break(RoleOutage),
    /// Put it back; answered by [`RoleNews::Back`] or [`RoleNews::NotDone`].
    Mend,
    /// End it; answered by [`RoleNews::Stopped`], the last of it.
    Stop,
}

/// How a role ended that nobody had ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleEnd {
    /// As wait(2) gives it.
    pub status: i32,
    /// When its output ended.
    pub at: Option<Nanos>,
    /// Bytes that are available there, if the kernel killed processes for want of memory while it lived.
    pub starved: Option<u64>,
    /// What it said last.
    pub lines: Vec<String>,
}

/// What there is to know of a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RoleNews {
    /// The service may be started.
    Admitted {
        /// Its folder on the host.
        folder: String,
    },
    /// It serves.
    Listens {
        /// Where.
        address: SocketAddr,
        /// Its process on its host: of a service that of its keeper.
        pid: u32,
    },
    /// It was not started; nothing more comes of it.
    Refused {
        /// For a decision.
        kind: FailureKind,
        /// For people: what, where, and what to do.
        what: String,
    },
    /// A line of its standard output.
    Said(String),
    /// What a service wrote since the last part, [`LOG_BYTES_MAX`] at most.
    ///
    /// [`LOG_BYTES_MAX`]: super::LOG_BYTES_MAX
    Log(#[serde(with = "super::hex")] Vec<u8>),
    /// It lives, or is away because that was asked for.
    Lives,
    /// It is out of service, as seen there.
    Away(Proof),
    /// It is back, as seen there.
    Back {
        /// What was seen.
        proof: Proof,
        /// Its process now.
        pid: u32,
    },
    /// It is not away, or not back.
    NotDone {
        /// For a decision.
        kind: HostFaultFailure,
        /// For people.
        what: String,
    },
    /// It ended, and nobody had ended it.
    Died(RoleEnd),
    /// It has ended, and nothing more comes of it.
    Stopped,
}

impl RoleNews {
    /// Whether nothing more comes of the role.
    pub fn is_last(&self) -> bool {
        matches!(self, RoleNews::Refused { .. } | RoleNews::Stopped)
    }

    /// The same with other times: `date` puts each on another clock.
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
