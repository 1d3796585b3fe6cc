//! Matches replies to their calls. Gets messages from [`super::records`] and, for UDP, from [`super::Rpc`];
//! passes complete exchanges to [`super::programs`]. The one rule: a reply belongs to a call only on the same
//! connection, in the other direction, with the same xid.

use brunt_wire::cursor::padding;
use brunt_wire::{Cursor, ParseError, rpc};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::compound::MovedData;
use super::data::{DataTarget, emit_run, sum_whole};
use super::message::{MessageEnd, Slot, Token};
use super::programs::{self, CompletedCall};
use crate::checksum::BlockSums;
use crate::dissect::{Flow, Out};
use crate::operation::{MessagePlace, Sink};

/// Maximum bytes of a call kept until its reply arrives: enough for a SYMLINK with two long names and a path.
const CALL_BYTES_KEPT_MAX: usize = 8 << 10;
/// A slot's buffer that grew beyond this size is shrunk when the call ends.
const SLOT_BYTES_MAX: usize = 1 << 10;
/// Maximum spare checksum states kept for further READs and WRITEs.
const SPARE_SUMS_MAX: usize = 256;
const NONE: u32 = u32::MAX;

/// Identifies a call: the connection, the call's direction, and its xid.
#[inline]
fn key(flow: &Flow, direction: u8, xid: rpc::Xid) -> u64 {
    (u64::from(flow.connection << 1 | u32::from(direction)) << 32) | u64::from(xid.0)
}

/// The result of parsing the first bytes of a message.
#[derive(Debug)]
pub enum Begun {
    /// At least this many bytes are needed.
    Need(usize),
    /// The bytes are not an RPC message.
    NotRpc,
    /// The whole message is needed; the token is that of a call.
    Whole(Option<Token>),
    /// A reply without a known call: the rest is skipped.
    Skip,
    /// File data follows.
    Data {
        /// The call's token, if this is a call.
        token: Option<Token>,
        /// Where the data starts, in bytes from the start of the message.
        at: usize,
        /// Bytes of file data.
        len: u32,
        /// The operation that the data belongs to.
        target: DataTarget,
    },
}

/// When and where a call was captured.
struct Seen {
    first_ns: u64,
    last_ns: Option<u64>,
    place: MessagePlace,
}

/// The waiting calls.
#[derive(Debug)]
pub struct Matcher {
    by_key: HashMap<u64, u32, FixedState>,
    slots: Vec<Slot>,
    free: u32,
    oldest: u32,
    newest: u32,
    waiting_max: usize,
    timeout_ns: u64,
    sums: BlockSums,
    #[allow(clippy::vec_box)] // the boxes move to connections and back
    spare_sums: Vec<Box<BlockSums>>,
}

/// The offset of the actual arguments or results. RPCSEC_GSS with integrity puts a length and a sequence number
/// before them; with privacy and in RPCSEC_GSS control messages, they can't be read (`None`).
fn body_at(call: &rpc::RpcCall<'_>, header_end: usize) -> Option<usize> {
    match call.credentials.flavor {
        rpc::AuthFlavor::Gss => {
            let control = call.credentials.body.get(4..8)? != [0; 4];
            match call.credentials.gss_service()? {
                1 if !control => Some(header_end),
                2 if !control => Some(header_end + 8),
                _ => None,
            }
        }
        _ => Some(header_end),
    }
}

fn cursor(bytes: &[u8], at: usize, elided_at: Option<usize>) -> Cursor<'_> {
    let body = bytes.get(at..).unwrap_or(&[]);
    match elided_at {
        Some(elided) => Cursor::with_elided_data(body, elided.wrapping_sub(at)),
        None => Cursor::new(body),
    }
}

/// The data in a call, with its offset from the start of the message.
#[inline]
fn written<'a>(
    call: &rpc::RpcCall<'_>,
    message: &'a [u8],
) -> Result<Option<MovedData<'a>>, ParseError> {
    if !programs::moves_data(call) {
        return Ok(None);
    }
    let Some(at) = body_at(call, call.body_at) else {
        return Ok(None);
    };
    place(programs::written(call, cursor(message, at, None)), at)
}

/// Converts an offset within the body into one within the message.
#[inline]
fn place(
    moved: Result<Option<MovedData<'_>>, ParseError>,
    body_at: usize,
) -> Result<Option<MovedData<'_>>, ParseError> {
    match moved {
        Ok(Some(mut moved)) => {
            moved.data.at += body_at;
            Ok(Some(moved))
        }
        Err(ParseError::Incomplete(need)) => Err(ParseError::Incomplete(body_at + need)),
        other => other,
    }
}

/// The data in a reply: the operation it belongs to, its offset in the message, and its length.
#[inline]
fn read(
    slot: &Slot,
    call: &rpc::RpcCall<'_>,
    reply: &rpc::RpcReply<'_>,
    message: &[u8],
) -> Result<Option<(DataTarget, usize, u32)>, ParseError> {
    if reply.status != rpc::ReplyStatus::Success || !programs::moves_data(call) {
        return Ok(None);
    }
    let (Some(at), Some(asked_at)) = (body_at(call, reply.body_at), body_at(call, call.body_at))
    else {
        return Ok(None);
    };
    let asked = cursor(&slot.message, asked_at, slot.elided_at);
    let moved = place(programs::read(call, asked, cursor(message, at, None)), at)?;
    Ok(moved.map(|moved| {
        let target = DataTarget::new(slot.record_id, &slot.peers, &moved, false);
        (target, moved.data.at, moved.data.len)
    }))
}

impl Matcher {
    /// At most `waiting_max` calls wait, each for at most `timeout_ns`.
    pub fn new(waiting_max: usize, timeout_ns: u64) -> Matcher {
        Matcher {
            by_key: HashMap::with_hasher(FixedState::default()),
            slots: Vec::new(),
            free: NONE,
            oldest: NONE,
            newest: NONE,
            waiting_max: waiting_max.clamp(1, NONE as usize - 1),
            timeout_ns,
            sums: BlockSums::default(),
            spare_sums: Vec::new(),
        }
    }

    /// Whether a call with this xid is waiting for a reply on `flow`.
    pub fn awaits(&self, flow: &Flow, xid: rpc::Xid) -> bool {
        self.by_key
            .contains_key(&key(flow, flow.direction ^ 1, xid))
    }

    /// Parses the first bytes of a message that has not fully arrived.
    pub fn begin<S: Sink>(
        &mut self,
        flow: &Flow,
        prefix: &[u8],
        first_ns: u64,
        token: Option<Token>,
        out: &mut Out<'_, S>,
    ) -> Begun {
        let header = match rpc::parse(prefix) {
            Ok(header) => header,
            Err(ParseError::Incomplete(need)) => return Begun::Need(need),
            Err(ParseError::Malformed(_)) => return Begun::NotRpc,
        };
        match header {
            rpc::RpcMessage::Call(call) => {
                self.begin_call(flow, &call, prefix, first_ns, token, out)
            }
            rpc::RpcMessage::Reply(reply) => self.begin_reply(flow, &reply, prefix),
        }
    }

    #[inline]
    fn begin_call<S: Sink>(
        &mut self,
        flow: &Flow,
        call: &rpc::RpcCall<'_>,
        prefix: &[u8],
        first_ns: u64,
        token: Option<Token>,
        out: &mut Out<'_, S>,
    ) -> Begun {
        // Registered early, because the reply may be captured although the call's last packets are lost.
        let mut register = |elided_at, end: usize| {
            let bytes = &prefix[..end];
            match token {
                Some(token) => {
                    self.update(token, bytes, elided_at, true);
                    Some(token)
                }
                None => {
                    let seen = Seen {
                        first_ns,
                        last_ns: None,
                        place: MessagePlace::default(),
                    };
                    self.register(flow, call, bytes, elided_at, true, &seen, out)
                }
            }
        };
        match written(call, prefix) {
            Ok(Some(moved)) => {
                let data_at = moved.data.at;
                let token = register(Some(data_at), data_at);
                let record_id = token.map_or(u64::MAX, |token| token.record_id);
                let target = DataTarget::new(record_id, &flow.forward, &moved, true);
                Begun::Data {
                    token,
                    at: data_at,
                    len: moved.data.len,
                    target,
                }
            }
            Err(ParseError::Incomplete(need)) => Begun::Need(need),
            _ => Begun::Whole(register(None, prefix.len())),
        }
    }

    #[inline]
    fn begin_reply(&self, flow: &Flow, reply: &rpc::RpcReply<'_>, prefix: &[u8]) -> Begun {
        let key = key(flow, flow.direction ^ 1, reply.xid);
        let Some(&slot) = self.by_key.get(&key) else {
            return Begun::Skip;
        };
        let slot = &self.slots[slot as usize];
        let Some(call) = slot.header.of(&slot.message) else {
            return Begun::Whole(None);
        };
        match read(slot, &call, reply, prefix) {
            Ok(Some((target, at, len))) => Begun::Data {
                token: None,
                at,
                len,
                target,
            },
            Err(ParseError::Incomplete(need)) => Begun::Need(need),
            _ => Begun::Whole(None),
        }
    }

    /// Ends a message. Returns `false` if it is not an RPC message.
    pub fn end<S: Sink>(
        &mut self,
        flow: &Flow,
        message: &MessageEnd<'_>,
        out: &mut Out<'_, S>,
    ) -> bool {
        if let Some(call) = rpc::plain_call(message.bytes) {
            self.end_call(flow, message, &call, out);
        } else if let Some(reply) = rpc::plain_reply(message.bytes) {
            self.end_reply(flow, message, &reply, out);
        } else {
            return self.end_other(flow, message, out);
        }
        true
    }

    #[cold]
    fn end_other<S: Sink>(
        &mut self,
        flow: &Flow,
        message: &MessageEnd<'_>,
        out: &mut Out<'_, S>,
    ) -> bool {
        match rpc::parse(message.bytes) {
            Ok(rpc::RpcMessage::Call(call)) => self.end_call(flow, message, &call, out),
            Ok(rpc::RpcMessage::Reply(reply)) => self.end_reply(flow, message, &reply, out),
            Err(ParseError::Incomplete(_)) if message.damaged => out.ledger.records_lost += 1,
            Err(_) => return false,
        }
        true
    }

    fn end_call<S: Sink>(
        &mut self,
        flow: &Flow,
        message: &MessageEnd<'_>,
        call: &rpc::RpcCall<'_>,
        out: &mut Out<'_, S>,
    ) {
        if let Some(token) = message.token {
            self.update(token, message.bytes, message.elided_at, message.damaged);
            if let Some(slot) = self.slot_of(token) {
                slot.data_missing = message.data_missing;
                slot.last_ns = message.last_ns;
                slot.place = message.place;
            }
            return;
        }
        // A message that arrived as a whole is also kept without its data.
        let found = match message.elided_at {
            None => written(call, message.bytes).ok().flatten(),
            Some(_) => None,
        };
        let (bytes, behind) = match &found {
            Some(moved) => {
                let data_end =
                    moved.data.at + moved.data.bytes.len() + padding(moved.data.bytes.len());
                (
                    &message.bytes[..moved.data.at],
                    message.bytes.get(data_end..).unwrap_or(&[]),
                )
            }
            None => (message.bytes, &[][..]),
        };
        let elided_at = found.map(|moved| moved.data.at).or(message.elided_at);
        let seen = Seen {
            first_ns: message.first_ns,
            last_ns: message.last_ns,
            place: message.place,
        };
        let token = self.register(flow, call, bytes, elided_at, message.damaged, &seen, out);
        if let Some(moved) = found {
            if let Some(slot) = token.and_then(|token| self.slot_of(token)) {
                let kept = &behind[..behind.len().min(CALL_BYTES_KEPT_MAX)];
                slot.message.extend_from_slice(kept);
                slot.damaged |= kept.len() < behind.len();
            }
            let record_id = token.map_or(u64::MAX, |token| token.record_id);
            let target = DataTarget::new(record_id, &flow.forward, &moved, true);
            sum_whole(&mut self.sums, &target, moved.data.bytes, out);
        }
    }

    fn end_reply<S: Sink>(
        &mut self,
        flow: &Flow,
        message: &MessageEnd<'_>,
        reply: &rpc::RpcReply<'_>,
        out: &mut Out<'_, S>,
    ) {
        out.ledger.replies += 1;
        let Some(index) = self
            .by_key
            .remove(&key(flow, flow.direction ^ 1, reply.xid))
        else {
            out.ledger.replies_unmatched += 1;
            return;
        };
        out.ledger.calls_answered += 1;
        out.ledger.calls_open -= 1;
        self.unlink(index);
        self.emit(index, Some((message, reply)), out);
        self.put_back(index);
    }

    /// Passes the operation to the sink.
    fn emit<S: Sink>(
        &mut self,
        index: u32,
        reply: Option<(&MessageEnd<'_>, &rpc::RpcReply<'_>)>,
        out: &mut Out<'_, S>,
    ) {
        let Matcher { slots, sums, .. } = self;
        let slot = &slots[index as usize];
        let call = slot
            .header
            .of(&slot.message)
            .expect("only calls with a complete header are registered");
        let args_at = body_at(&call, call.body_at);
        let args = args_at.map(|at| cursor(&slot.message, at, slot.elided_at));
        let answered = reply.filter(|(_, header)| header.status == rpc::ReplyStatus::Success);
        let results = answered
            .zip(args_at)
            .and_then(|((message, header), _)| Some((message, body_at(&call, header.body_at)?)))
            .map(|(message, at)| {
                (
                    cursor(message.bytes, at, message.elided_at),
                    message.damaged,
                )
            });
        programs::complete(
            CompletedCall {
                slot,
                call: &call,
                args,
                results,
                reply,
            },
            sums,
            out,
        );
    }

    /// A checksum state for data that arrives in pieces.
    pub fn start_sums(&mut self, target: &DataTarget) -> Box<BlockSums> {
        let mut sums = self.spare_sums.pop().unwrap_or_default();
        sums.start(target.offset);
        sums
    }

    /// Adds a piece of data.
    #[inline]
    pub fn data<S: Sink>(
        &mut self,
        target: &DataTarget,
        sums: &mut BlockSums,
        bytes: &[u8],
        out: &mut Out<'_, S>,
    ) {
        let (sink, ledger) = (&mut *out.sink, &mut *out.ledger);
        ledger.data_bytes += bytes.len() as u64;
        if !sink.wants_checksums() {
            return;
        }
        sums.update(bytes, |at, run| emit_run(sink, ledger, target, at, run));
    }

    /// Adds a hole in the data.
    pub fn data_hole<S: Sink>(
        &mut self,
        target: &DataTarget,
        sums: &mut BlockSums,
        len: u32,
        out: &mut Out<'_, S>,
    ) {
        out.ledger.data_bytes_missing += u64::from(len);
        sums.hole(u64::from(len), |at, run| {
            emit_run(out.sink, out.ledger, target, at, run)
        });
    }

    /// Ends the data.
    pub fn finish_sums<S: Sink>(
        &mut self,
        target: &DataTarget,
        mut sums: Box<BlockSums>,
        out: &mut Out<'_, S>,
    ) {
        sums.finish(|at, run| emit_run(out.sink, out.ledger, target, at, run));
        if self.spare_sums.len() < SPARE_SUMS_MAX {
            self.spare_sums.push(sums);
        }
    }

    #[allow(clippy::too_many_arguments)] // one caller's view of a call, not worth a struct
    fn register<S: Sink>(
        &mut self,
        flow: &Flow,
        call: &rpc::RpcCall<'_>,
        bytes: &[u8],
        elided_at: Option<usize>,
        damaged: bool,
        seen: &Seen,
        out: &mut Out<'_, S>,
    ) -> Option<Token> {
        out.ledger.calls += 1;
        let key = key(flow, flow.direction, call.xid);
        if self.by_key.len() >= self.waiting_max {
            out.ledger.calls_evicted += 1;
            self.give_up(self.oldest, out);
        }
        // Reserves the slot first, so that the common case needs only one table lookup.
        let index = self.next_free();
        if let Some(other) = self.by_key.insert(key, index) {
            self.by_key.insert(key, other);
            let slot = &self.slots[other as usize];
            let common = slot.message.len().min(bytes.len());
            if slot.message[..common] == bytes[..common] {
                out.ledger.calls_repeated += 1;
                return None;
            }
            // The xid was reused, so the first call's reply was lost.
            out.ledger.calls_timed_out += 1;
            self.give_up(other, out);
            self.by_key.insert(key, self.next_free());
        }
        let index = if self.free == NONE {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        } else {
            let index = self.free;
            self.free = self.slots[index as usize].next;
            index
        };
        let record_id = out.ids.take();
        out.ledger.calls_open += 1;
        let outstanding = self.by_key.len() as u32;
        let (previous, next) = (self.newest, NONE);
        let slot = &mut self.slots[index as usize];
        let kept = &bytes[..bytes.len().min(CALL_BYTES_KEPT_MAX)];
        slot.message.clear();
        slot.message.extend_from_slice(kept);
        slot.key = key;
        slot.record_id = record_id;
        (slot.first_ns, slot.last_ns, slot.place) = (seen.first_ns, seen.last_ns, seen.place);
        slot.peers = flow.forward;
        slot.header = call.layout();
        slot.elided_at = elided_at;
        slot.damaged = damaged || kept.len() < bytes.len();
        slot.data_missing = 0;
        slot.outstanding = outstanding;
        slot.previous = previous;
        slot.next = next;
        match previous {
            NONE => self.oldest = index,
            previous => self.slots[previous as usize].next = index,
        }
        self.newest = index;
        Some(Token {
            slot: index,
            record_id,
        })
    }

    /// The slot for the next call.
    fn next_free(&self) -> u32 {
        if self.free == NONE {
            self.slots.len() as u32
        } else {
            self.free
        }
    }

    fn slot_of(&mut self, token: Token) -> Option<&mut Slot> {
        // The call may already have been answered or abandoned, and its slot reused.
        let slot = self.slots.get_mut(token.slot as usize)?;
        (slot.record_id == token.record_id && self.by_key.get(&slot.key) == Some(&token.slot))
            .then_some(slot)
    }

    fn update(&mut self, token: Token, bytes: &[u8], elided_at: Option<usize>, damaged: bool) {
        if let Some(slot) = self.slot_of(token) {
            let kept = &bytes[..bytes.len().min(CALL_BYTES_KEPT_MAX)];
            slot.message.clear();
            slot.message.extend_from_slice(kept);
            slot.elided_at = elided_at;
            slot.damaged = damaged || kept.len() < bytes.len();
        }
    }

    fn unlink(&mut self, index: u32) {
        let (previous, next) = (
            self.slots[index as usize].previous,
            self.slots[index as usize].next,
        );
        match previous {
            NONE => self.oldest = next,
            previous => self.slots[previous as usize].next = next,
        }
        match next {
            NONE => self.newest = previous,
            next => self.slots[next as usize].previous = previous,
        }
    }

    fn put_back(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.message.clear();
        if slot.message.capacity() > SLOT_BYTES_MAX {
            slot.message.shrink_to(SLOT_BYTES_MAX);
        }
        slot.next = self.free;
        self.free = index;
    }

    /// Passes on a call without its reply. The caller has already counted the reason.
    fn give_up<S: Sink>(&mut self, index: u32, out: &mut Out<'_, S>) {
        out.ledger.calls_open -= 1;
        self.unlink(index);
        self.by_key.remove(&self.slots[index as usize].key);
        self.emit(index, None, out);
        self.put_back(index);
    }

    /// Abandons calls that have waited too long.
    pub fn expire<S: Sink>(&mut self, now_ns: u64, out: &mut Out<'_, S>) {
        while self.oldest != NONE {
            if now_ns.saturating_sub(self.slots[self.oldest as usize].first_ns) <= self.timeout_ns {
                return;
            }
            out.ledger.calls_timed_out += 1;
            self.give_up(self.oldest, out);
        }
    }

    /// Ends the capture: passes on the calls still waiting.
    pub fn finish<S: Sink>(&mut self, out: &mut Out<'_, S>) {
        while self.oldest != NONE {
            out.ledger.calls_open_at_end += 1;
            self.give_up(self.oldest, out);
        }
    }
}
