//! Messages as they pass from framing to the matcher and on to programs.

use brunt_wire::rpc;

use crate::operation::{MessagePlace, Peers};

/// A call that was registered before all of it had arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub(super) slot: u32,
    pub(super) record_id: u64,
}

/// A message whose end was reached.
#[derive(Clone, Copy, Debug)]
pub struct MessageEnd<'a> {
    /// The message's bytes, without any file data that was elided.
    pub bytes: &'a [u8],
    /// The offset at which file data was elided.
    pub elided_at: Option<usize>,
    /// Whether any part of the message, such as its end, was not captured.
    pub damaged: bool,
    /// Bytes of file data that were not captured.
    pub data_missing: u32,
    /// When the first byte was captured.
    pub first_ns: u64,
    /// When the last byte was captured; `None` if it was not captured.
    pub last_ns: Option<u64>,
    /// The message's position in the packets.
    pub place: MessagePlace,
    /// Set if [`super::matcher::Matcher::begin`] registered the message.
    pub token: Option<Token>,
}

/// A call waiting for its reply.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) key: u64,
    pub record_id: u64,
    pub first_ns: u64,
    pub last_ns: Option<u64>,
    pub place: MessagePlace,
    pub peers: Peers,
    /// Layout of the header in `message`, parsed when the call was registered.
    pub(super) header: rpc::CallLayout,
    pub(super) message: Vec<u8>,
    pub(super) elided_at: Option<usize>,
    pub damaged: bool,
    pub data_missing: u32,
    pub outstanding: u32,
    /// Neighbours in order of arrival; `next` also links the free slots.
    pub(super) previous: u32,
    pub(super) next: u32,
}
