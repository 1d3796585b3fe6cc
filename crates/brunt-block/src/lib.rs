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
#[allow(unsafe_code, reason = "a call of the ring into memory of the bell")]
pub mod bell;
#[allow(
    unsafe_code,
    reason = "page-aligned memory that is handed to the kernel and back"
)]
pub mod buffer;
pub mod congestion;
pub mod control;
pub mod device;
pub mod dial;
pub mod error;
pub mod layers;
#[allow(
    unsafe_code,
    reason = "dlopen, and the types of functions as a library's headers declare them"
)]
pub mod library;
pub mod open;
mod open_error;
pub mod reception;
pub mod reconnect;
pub mod remote;
#[allow(
    unsafe_code,
    reason = "calls of the kernel on memory of others, by io_uring or by threads"
)]
pub mod ring;
pub mod signature;
pub mod socket;
#[allow(
    unsafe_code,
    reason = "a mapping larger than memory, shared as a disk is"
)]
pub mod sparse;
#[allow(
    unsafe_code,
    reason = "the vectors of sendmsg and receives into memory of others"
)]
pub mod stream;
pub mod table;
pub mod turn;

pub use bell::Bell;
pub use buffer::{Buf, BufPool};
pub use congestion::{Congestion, CongestionError};
pub use control::{Controllable, Handles};
pub use device::{
    Backend, Completion, Device, DeviceInfo, Health, Inline, MediumLook, Op, Request, StorageId,
};
pub use error::{DeviceError, RefusalKind, Said};
pub use open_error::OpenError;
pub use reconnect::{ReconnectError, ReconnectState, Reconnecting, hand_out};
pub use ring::{Port, Ring, RingConfig, RingCpu, RingStats, Waker};
pub use stream::{Lent, PayloadPlace, Stream, StreamEvent};
pub use table::{foresee_url_with, open_url, open_url_with};
