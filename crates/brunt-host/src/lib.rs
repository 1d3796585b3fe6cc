//! Agents: this program on another host, working for an experiment or a command here.
//!
//! The side that asks is the controller. It reaches an agent through a [`HostAddress`] (ssh's standard streams, or
//! an [`AgentListener`]'s port behind TLS) and holds it as a [`RemoteHost`]; the agent answers with [`serve`]. The rules of both sides
//! are structs without I/O, [`AgentSession`] and [`HostSession`], which a test or a fuzzer feeds message by message; below
//! them a [`MessageStream`] carries frames of `brunt_result::message`. [`ClockTrack`] makes one time line of several
//! clocks.
//!
//! The rule: an agent that hears nothing for the length of its lease ends what it does, so that nothing is left on a
//! host whatever happens to its controller.
#![forbid(unsafe_code)]

mod address;
mod agent;
mod clock;
mod identity;
mod lines;
mod listen;
mod name;
mod remote;
mod serve;
mod session;
mod ssh;
mod stream;
mod tls;

pub use address::{AddressError, HostAddress};
pub use agent::{AgentAction, AgentEnd, AgentSession};
pub use clock::{
    ClockError, ClockEstimate, ClockOffset, ClockRound, ClockTrack, RATE_MAX, RATE_WANDER, RateModel,
};
pub use identity::{Authority, Identity, IdentityError};
pub use lines::keep_lines;
pub use listen::{AgentListener, ListenStats};
pub use name::clock_name;
pub use remote::{ConnectOptions, HostError, RemoteHost};
pub use serve::{AgentConfig, serve};
pub use session::{HostNews, HostSession, SessionError};
pub use stream::{MessageStream, StreamError, StreamState};
pub use tls::{AgentTls, ControllerTls, TlsError};
