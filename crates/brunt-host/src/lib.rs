//! Agents: this program on another host, working for an experiment or command on this machine.
//!
//! The side that sends requests is the controller. The controller reaches an agent through a [`HostAddress`] (ssh's
//! standard streams, an [`AgentListener`]'s port with TLS, or the standard streams of an agent that it starts for a
//! host in its lab) and represents the agent's host as a [`RemoteHost`]; the agent answers with [`serve`]. The
//! protocol rules of both sides are structs without I/O, [`AgentSession`] and [`HostSession`], which a test or a
//! fuzzer feeds message by message; below them, a [`MessageStream`] carries frames of `brunt_protocol`.
//! [`ClockTrack`] puts several clocks on one timeline.
//!
//! Loads run on other hosts through the same interface as all loads: a [`HostLoad`] is a `brunt_load::Load` whose
//! workers are elsewhere. A [`Fleet`] holds the hosts of an experiment; on each, the agent opens what its
//! [`AllowList`] allows, and runs the load in its own process.
//!
//! The rule: an agent that receives nothing for the duration of its lease ends all its work, so nothing is left on a
//! host, whatever happens to the controller.
#![forbid(unsafe_code)]

mod address;
mod agent;
mod agent_process;
mod agent_run;
mod agent_state;
mod agent_thread;
mod allow;
mod bridge;
mod clock;
mod connect;
mod connection;
mod counting;
mod faults;
mod fleet;
mod host_error;
mod host_news;
mod identity;
mod journals;
mod lines;
mod listen;
mod name;
mod path_probe;
mod plain;
mod remote;
mod role_process;
mod role_rules;
mod roles;
mod run_rules;
mod run_thread;
mod sampling;
mod services;
mod session;
mod spool;
mod ssh;
mod stream;
#[cfg(test)]
mod test_only;
mod tls;

pub use address::{AddressError, HostAddress};
pub use agent::{AgentAction, AgentEnd, AgentSession};
pub use allow::{AllowError, AllowList, FaultNotAllowed};
pub use bridge::{OpenPacketSink, OpenedPacketSink, PacketSink, SavedPackets};
pub use clock::{
    ClockError, ClockEstimate, ClockOffset, ClockRound, ClockTrack, RATE_MAX, RATE_WANDER,
    RateModel,
};
pub use connect::{ConnectOptions, is_plain_word};
pub use connection::{AgentConfig, serve};
pub use fleet::{
    AwaitedCount, CountedInterfaces, FarRole, FarRoleError, FaultEnd, Fleet, FleetError,
    HostBridgeError, HostLoad, HostPlace, HostedTarget, HostedUrl, Lane, RunMembers, SILENCE_MAX,
    TargetUrl, WatchEnd, WatchTask,
};
pub use host_error::HostError;
pub use host_news::HostNews;
pub use identity::{Authority, Identity, IdentityError, read_private};
pub use lines::keep_lines;
pub use listen::{AgentListener, ListenStats};
pub use name::clock_name;
pub use remote::RemoteHost;
pub use role_process::{
    MakeRole, RoleDeath, RoleFailure, RoleLine, RoleManner, RoleProcess, last_lines,
};
pub use roles::{NotServed, RoleProgram, Serving};
pub use run_rules::{HostPart, RunNewsError};
pub use sampling::instance_of_role;
pub use session::{HostSession, SessionError};
pub use stream::{MessageStream, StreamError, StreamState};
pub use tls::{AgentTls, ControllerTls, TlsError};
