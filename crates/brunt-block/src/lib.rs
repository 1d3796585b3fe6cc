//! Block devices below all caches: the [`Device`] trait, the backends that implement it, the layers stacked on them,
//! and the ring and buffers they share.
//!
//! A thread that issues or serves requests owns one [`Ring`], opens a [`Device`] from each [`Backend`] on it, and
//! loops: `submit` a batch, [`Ring::enter`] once, `poll` completions. Threads share only the backend. The initiator in
//! `brunt-iscsi` is also a device, and its target drives these devices.
//!
//! Two rules must not be broken. `submit` and `poll` never block and never make system calls: they queue them on the
//! ring. Every accepted request completes exactly once, even when the device dies.

#![deny(unsafe_code)]

pub mod attempts;
pub mod backends;
#[allow(unsafe_code, reason = "the bell's memory is passed to a ring call")]
pub mod bell;
#[allow(
    unsafe_code,
    reason = "page-aligned memory that is passed to the kernel and back"
)]
pub mod buffer;
pub mod congestion;
pub mod control;
pub mod device;
pub mod dial;
pub mod error;
mod idle;
pub mod layers;
#[allow(
    unsafe_code,
    reason = "dlopen, and function types as in the libraries' headers"
)]
pub mod library;
pub mod open;
mod open_error;
pub mod reception;
pub mod reconnect;
pub mod remote;
#[allow(
    unsafe_code,
    reason = "system calls on borrowed memory, by io_uring or by threads"
)]
pub mod ring;
pub mod signature;
pub mod sink;
pub mod socket;
#[allow(
    unsafe_code,
    reason = "a mapping larger than memory, shared like a disk"
)]
pub mod sparse;
#[allow(
    unsafe_code,
    reason = "sendmsg vectors and receives into borrowed memory"
)]
pub mod stream;
pub mod table;
pub mod turn;

pub use bell::Bell;
pub use buffer::{Buf, BufPool};
pub use congestion::{Congestion, CongestionError};
pub use control::{Controllable, Handles};
pub use device::{
    Backend, Completion, Device, DeviceInfo, Health, Inline, MediumState, Op, Request, StorageId,
};
pub use error::{DeviceError, RefusalDetail, RefusalKind};
pub use idle::IdleTimer;
pub use open_error::OpenError;
pub use reconnect::{ReconnectError, ReconnectState, Reconnecting, hand_out};
pub use ring::{Port, Ring, RingConfig, RingCpu, RingOwner, RingStats, Waker};
pub use stream::{Lent, PayloadPlace, Stream, StreamEvent};
pub use table::{open_url, open_url_with, preview_url_with};
