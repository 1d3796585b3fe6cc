//! Matches replies with their calls and hands complete operations on. Fed with messages by
//! [`crate::records`] and, for UDP, by the pipeline. The one rule: a reply belongs to a call
//! only on the same connection, in the other direction, with the same xid.

use brunt_wire::cursor::padding;
use brunt_wire::nfs::{FileHandle, mount, v3, v4};
use brunt_wire::{Cursor, ParseError, rpc};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::checksum::BlockSums;
use crate::compound::{self, Moved};
use crate::ledger::Ledger;
use crate::operation::{Body, ChecksumRun, FileKey, Operation, Peers, Place, Sink};

/// Bytes of a call's head that are kept until its reply comes. SYMLINK with two long names
/// and a path stays below it.
const CALL_BYTES_KEPT_MAX: usize = 8 << 10;
/// A slot's buffer that grew beyond this is given back when the call is done.
const SLOT_BYTES_MAX: usize = 1 << 10;
const NONE: u32 = u32::MAX;
/// Of a call cut short by a hole: where the data lies in its file is not known, and an offset that is never
/// aligned within the data keeps it from being summed.
const NO_PLACE: (FileKey, u64) = (FileKey(0), u64::MAX);

/// The connection and direction that a message came on.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// Sender and receiver, as if the sender were a client.
    pub forward: Peers,
    /// The connection's number: never that of another one within the time-out.
    pub connection: u32,
    /// Which of its two directions.
    pub direction: u8,
}

impl Context {
    fn key(&self, direction: u8, xid: rpc::Xid) -> u64 {
        (u64::from(self.connection << 1 | u32::from(direction)) << 32) | u64::from(xid.0)
    }
}

/// A call that was registered before it had arrived as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    slot: u32,
    record_id: u64,
}

/// What the first bytes of a message say about the rest of it.
#[derive(Debug)]
pub enum Begun {
    /// At least so many bytes are needed to say.
    Need(usize),
    /// This is no RPC message.
    NotRpc,
    /// All of it is wanted.
    Whole(Option<Token>),
    /// A reply to a call that was not seen: nothing of it is wanted.
    Skip,
    /// File data follows.
    Data {
        /// The call's, when this is a call.
        token: Option<Token>,
        /// Where the data starts, in bytes from the start of the message.
        at: usize,
        /// Its bytes.
        len: u32,
        /// Whose it is.
        target: DataTarget,
    },
}

/// Which operation's data goes by.
#[derive(Clone, Copy, Debug)]
pub struct DataTarget {
    record_id: u64,
    file: FileKey,
    offset: u64,
    write: bool,
}

impl DataTarget {
    fn new(record_id: u64, peers: &Peers, moved: &Moved<'_>, write: bool) -> DataTarget {
        DataTarget { write, ..DataTarget::at(record_id, peers, moved.file, moved.offset) }
    }

    /// Data that was read. What belongs to no known file has no place.
    fn at(record_id: u64, peers: &Peers, file: Option<FileHandle<'_>>, offset: u64) -> DataTarget {
        let file = file.map_or(FileKey(0), |file| FileKey::new(peers.server.address, file));
        DataTarget { record_id, file, offset, write: false }
    }
}

/// A message that is over.
#[derive(Clone, Copy, Debug)]
pub struct MessageEnd<'a> {
    /// Its bytes, without the file data when that was elided.
    pub bytes: &'a [u8],
    /// Where file data was left out.
    pub elided_at: Option<usize>,
    /// Its end, or a part of it, was not seen.
    pub damaged: bool,
    /// Bytes of file data not seen.
    pub data_missing: u32,
    /// When its first byte was seen.
    pub time_ns: u64,
    /// Where it lay.
    pub place: Place,
    /// Set when [`Matcher::begin`] registered it.
    pub token: Option<Token>,
}

#[derive(Debug, Default)]
struct Slot {
    key: u64,
    record_id: u64,
    time_ns: u64,
    place: Place,
    peers: Peers,
    /// The header in `message`, read when the call was registered.
    header: rpc::CallLayout,
    message: Vec<u8>,
    elided_at: Option<usize>,
    damaged: bool,
    data_missing: u32,
    outstanding: u32,
    /// Neighbours in the order of arrival; `next` also chains free slots.
    previous: u32,
    next: u32,
}

/// Calls that wait, and the sink for what is complete.
#[derive(Debug)]
pub struct Matcher<S> {
    /// Who takes the operations.
    pub sink: S,
    by_key: HashMap<u64, u32, FixedState>,
    slots: Vec<Slot>,
    free: u32,
    oldest: u32,
    newest: u32,
    waiting_max: usize,
    timeout_ns: u64,
    next_record_id: u64,
    record_id_step: u64,
    sums: BlockSums,
    #[allow(clippy::vec_box)] // the boxes move to connections and back
    spare_sums: Vec<Box<BlockSums>>,
}

/// Where the arguments or results proper start: RPCSEC_GSS with integrity puts a length and
/// a sequence number before them; with privacy, and in its own exchanges, there are none.
fn body_at(call: &rpc::Call<'_>, header_end: usize) -> Option<usize> {
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

fn is(call: &rpc::Call<'_>, procedure: v3::Procedure) -> bool {
    call.program == rpc::PROGRAM_NFS && call.version == 3 && call.procedure == procedure as u32
}

fn cursor(bytes: &[u8], at: usize, elided_at: Option<usize>) -> Cursor<'_> {
    let body = bytes.get(at..).unwrap_or(&[]);
    match elided_at {
        Some(elided) => Cursor::with_elided_data(body, elided.wrapping_sub(at)),
        None => Cursor::new(body),
    }
}

/// The data that a call carries; its place counts from the start of the message.
#[inline]
fn written<'a>(call: &rpc::Call<'_>, message: &'a [u8]) -> Result<Option<Moved<'a>>, ParseError> {
    let v3 = is(call, v3::Procedure::Write);
    if !v3 && !compound::is_compound(call) {
        return Ok(None);
    }
    let Some(at) = body_at(call, call.body_at) else { return Ok(None) };
    let mut cur = cursor(message, at, None);
    let moved = match v3 {
        true => v3::parse_args(v3::Procedure::Write, &mut cur).map(|args| match args {
            v3::Args::Write { file, offset, data, .. } => Some(Moved { file: Some(file), offset, data }),
            _ => None,
        }),
        false => compound::written(cur),
    };
    place(moved, at)
}

/// Counts from the start of the message what counted from the start of its body.
#[inline]
fn place(
    moved: Result<Option<Moved<'_>>, ParseError>,
    body_at: usize,
) -> Result<Option<Moved<'_>>, ParseError> {
    match moved {
        Ok(Some(mut moved)) => {
            moved.data.at += body_at;
            Ok(Some(moved))
        }
        Err(ParseError::Incomplete(need)) => Err(ParseError::Incomplete(body_at + need)),
        other => other,
    }
}

/// The data that a reply carries: whose it is, its place in the message, and its length.
#[inline]
fn read(
    slot: &Slot,
    call: &rpc::Call<'_>,
    reply: &rpc::Reply<'_>,
    message: &[u8],
) -> Result<Option<(DataTarget, usize, u32)>, ParseError> {
    let v3 = is(call, v3::Procedure::Read);
    if reply.status != rpc::ReplyStatus::Success || !(v3 || compound::is_compound(call)) {
        return Ok(None);
    }
    let (Some(at), Some(asked_at)) = (body_at(call, reply.body_at), body_at(call, call.body_at)) else {
        return Ok(None);
    };
    let mut cur = cursor(message, at, None);
    if !v3 {
        let asked = cursor(&slot.message, asked_at, slot.elided_at);
        let moved = place(compound::answered(asked, cur), at)?;
        return Ok(moved.map(|moved| {
            let target = DataTarget::new(slot.record_id, &slot.peers, &moved, false);
            (target, moved.data.at, moved.data.len)
        }));
    }
    match v3::parse_results(v3::Procedure::Read, &mut cur) {
        Ok(v3::Results { body: v3::ResultBody::Read { data, .. }, .. }) => {
            Ok(Some((read_target(slot, call), at + data.at, data.len)))
        }
        Err(ParseError::Incomplete(need)) => Err(ParseError::Incomplete(at + need)),
        Ok(_) => Ok(None),
        Err(error) => Err(error),
    }
}

impl<S: Sink> Matcher<S> {
    /// At most `waiting_max` calls wait, each at most `timeout_ns`. Records are numbered from the first
    /// of `record_ids`, the second apart.
    pub fn new(sink: S, waiting_max: usize, timeout_ns: u64, record_ids: (u64, u64)) -> Matcher<S> {
        Matcher {
            sink,
            by_key: HashMap::with_hasher(FixedState::default()),
            slots: Vec::new(),
            free: NONE,
            oldest: NONE,
            newest: NONE,
            waiting_max: waiting_max.clamp(1, NONE as usize - 1),
            timeout_ns,
            next_record_id: record_ids.0,
            record_id_step: record_ids.1,
            sums: BlockSums::default(),
            spare_sums: Vec::new(),
        }
    }

    /// Whether a call with this xid waits for a reply that would come on `context`.
    pub fn awaits(&self, context: &Context, xid: rpc::Xid) -> bool {
        self.by_key.contains_key(&context.key(context.direction ^ 1, xid))
    }

    /// Looks at the first bytes of a message that is not yet there as a whole.
    pub fn begin(
        &mut self,
        context: &Context,
        prefix: &[u8],
        time_ns: u64,
        token: Option<Token>,
        ledger: &mut Ledger,
    ) -> Begun {
        let header = match rpc::parse(prefix) {
            Ok(header) => header,
            Err(ParseError::Incomplete(need)) => return Begun::Need(need),
            Err(ParseError::Malformed(_)) => return Begun::NotRpc,
        };
        match header {
            rpc::Message::Call(call) => {
                // Registered now: its last packets may be lost and its reply come all the same.
                let mut register = |elided_at, end: usize| {
                    let bytes = &prefix[..end];
                    match token {
                        Some(token) => {
                            self.update(token, bytes, elided_at, true);
                            Some(token)
                        }
                        None => {
                            let seen = (time_ns, Place::default());
                            self.register(context, &call, bytes, elided_at, true, seen, ledger)
                        }
                    }
                };
                match written(&call, prefix) {
                    Ok(Some(moved)) => {
                        let data_at = moved.data.at;
                        let token = register(Some(data_at), data_at);
                        let record_id = token.map_or(u64::MAX, |token| token.record_id);
                        let target = DataTarget::new(record_id, &context.forward, &moved, true);
                        Begun::Data { token, at: data_at, len: moved.data.len, target }
                    }
                    Err(ParseError::Incomplete(need)) => Begun::Need(need),
                    _ => Begun::Whole(register(None, prefix.len())),
                }
            }
            rpc::Message::Reply(reply) => {
                let key = context.key(context.direction ^ 1, reply.xid);
                let Some(&slot) = self.by_key.get(&key) else { return Begun::Skip };
                let slot = &self.slots[slot as usize];
                let Some(call) = slot.header.of(&slot.message) else { return Begun::Whole(None) };
                match read(slot, &call, &reply, prefix) {
                    Ok(Some((target, at, len))) => Begun::Data { token: None, at, len, target },
                    Err(ParseError::Incomplete(need)) => Begun::Need(need),
                    _ => Begun::Whole(None),
                }
            }
        }
    }

    /// A message is over. `false`: it is no RPC message.
    pub fn end(&mut self, context: &Context, message: &MessageEnd<'_>, ledger: &mut Ledger) -> bool {
        if let Some(call) = rpc::plain_call(message.bytes) {
            self.end_call(context, message, &call, ledger);
        } else if let Some(reply) = rpc::plain_reply(message.bytes) {
            self.end_reply(context, message, &reply, ledger);
        } else {
            return self.end_other(context, message, ledger);
        }
        true
    }

    #[cold]
    fn end_other(&mut self, context: &Context, message: &MessageEnd<'_>, ledger: &mut Ledger) -> bool {
        match rpc::parse(message.bytes) {
            Ok(rpc::Message::Call(call)) => self.end_call(context, message, &call, ledger),
            Ok(rpc::Message::Reply(reply)) => self.end_reply(context, message, &reply, ledger),
            Err(ParseError::Incomplete(_)) if message.damaged => ledger.records_lost += 1,
            Err(_) => return false,
        }
        true
    }

    fn end_call(
        &mut self,
        context: &Context,
        message: &MessageEnd<'_>,
        call: &rpc::Call<'_>,
        ledger: &mut Ledger,
    ) {
        if let Some(token) = message.token {
            self.update(token, message.bytes, message.elided_at, message.damaged);
            if let Some(slot) = self.slot_of(token) {
                slot.data_missing = message.data_missing;
                slot.place = message.place;
            }
            return;
        }
        // What came as a whole is kept without its data, too.
        let found = match message.elided_at {
            None => written(call, message.bytes).ok().flatten(),
            Some(_) => None,
        };
        let (bytes, behind) = match &found {
            Some(moved) => {
                let data_end = moved.data.at + moved.data.bytes.len() + padding(moved.data.bytes.len());
                (&message.bytes[..moved.data.at], message.bytes.get(data_end..).unwrap_or(&[]))
            }
            None => (message.bytes, &[][..]),
        };
        let elided_at = found.map(|moved| moved.data.at).or(message.elided_at);
        let seen = (message.time_ns, message.place);
        let token = self.register(context, call, bytes, elided_at, message.damaged, seen, ledger);
        if let Some(moved) = found {
            if let Some(slot) = token.and_then(|token| self.slot_of(token)) {
                let kept = &behind[..behind.len().min(CALL_BYTES_KEPT_MAX)];
                slot.message.extend_from_slice(kept);
                slot.damaged |= kept.len() < behind.len();
            }
            let record_id = token.map_or(u64::MAX, |token| token.record_id);
            let target = DataTarget::new(record_id, &context.forward, &moved, true);
            sum_whole(&mut self.sums, &mut self.sink, &target, moved.data.bytes, ledger);
        }
    }

    fn end_reply(
        &mut self,
        context: &Context,
        message: &MessageEnd<'_>,
        reply: &rpc::Reply<'_>,
        ledger: &mut Ledger,
    ) {
        ledger.replies += 1;
        let Some(index) = self.by_key.remove(&context.key(context.direction ^ 1, reply.xid)) else {
            ledger.replies_unmatched += 1;
            return;
        };
        ledger.calls_answered += 1;
        ledger.calls_open -= 1;
        self.unlink(index);
        self.emit(index, Some((message, reply)), ledger);
        self.put_back(index);
    }

    /// Parses both sides and hands the operation on.
    fn emit(&mut self, index: u32, reply: Option<(&MessageEnd<'_>, &rpc::Reply<'_>)>, ledger: &mut Ledger) {
        let Matcher { sink, slots, sums, .. } = self;
        let slot = &slots[index as usize];
        let call = slot.header.of(&slot.message).expect("only calls with a whole header are registered");
        let mut malformed = |error: ParseError, damaged: bool| {
            if !damaged || matches!(error, ParseError::Malformed(_)) {
                ledger.bodies_malformed += 1;
            }
        };
        let args_at = body_at(&call, call.body_at);
        let args = args_at.map(|at| cursor(&slot.message, at, slot.elided_at));
        let answered = reply.filter(|(_, header)| header.status == rpc::ReplyStatus::Success);
        let results = answered
            .zip(args_at)
            .and_then(|((message, header), _)| Some((message, body_at(&call, header.body_at)?)))
            .map(|(message, at)| (cursor(message.bytes, at, message.elided_at), message.damaged));
        let mut status = None;
        let procedure = v3::Procedure::from_number(call.procedure);
        let (mut args3, mut results3) = (v3::Args::Null, v3::Results::default());
        let mut file = None;
        let body = match (call.program, call.version, procedure) {
            (rpc::PROGRAM_NFS, 3, Some(procedure)) => {
                if procedure != v3::Procedure::Null {
                    status = results.and_then(|(mut cur, _)| cur.u32().ok());
                }
                let args = args.is_some_and(|mut cur| {
                    let handle = v3::leading_handle(procedure, cur);
                    let read = v3::read_args(procedure, &mut cur, &mut args3);
                    let read = read.map_err(|e| malformed(e, slot.damaged)).is_ok();
                    let handle = handle.filter(|_| read);
                    file = handle.map(|handle| FileKey::new(slot.peers.server.address, handle));
                    read
                });
                let results = results.is_some_and(|(mut cur, damaged)| {
                    let read = v3::read_results(procedure, &mut cur, &mut results3);
                    read.map_err(|e| malformed(e, damaged)).is_ok()
                });
                Body::Nfs3 { procedure, args: args.then_some(&args3), results: results.then_some(&results3) }
            }
            (rpc::PROGRAM_NFS, 4, _) if compound::is_compound(&call) => {
                status = results.and_then(|(mut cur, _)| cur.u32().ok());
                let asked = args.and_then(|mut cur| {
                    v4::Call::parse(&mut cur).map_err(|e| malformed(e, slot.damaged)).ok()
                });
                let answered = results.and_then(|(mut cur, damaged)| {
                    v4::Reply::parse(&mut cur).map_err(|e| malformed(e, damaged)).ok()
                });
                Body::Nfs4 { call: asked, reply: answered }
            }
            (rpc::PROGRAM_NFS, 4, None | Some(v3::Procedure::Null)) => Body::Nfs4 { call: None, reply: None },
            _ if compound::may_be_callback(&call) => {
                match args.map(|mut cur| v4::Callback::parse(&mut cur)) {
                    Some(Ok(callback)) => {
                        status = results.and_then(|(mut cur, _)| cur.u32().ok());
                        Body::Nfs4Callback { call: callback }
                    }
                    _ => Body::Opaque,
                }
            }
            (rpc::PROGRAM_MOUNT, 3, _) => {
                if call.procedure == 1 {
                    status = results.and_then(|(mut cur, _)| cur.u32().ok());
                }
                let args = args.and_then(|mut cur| {
                    mount::parse_args(call.procedure, &mut cur).map_err(|e| malformed(e, slot.damaged)).ok()
                });
                let results = results.and_then(|(mut cur, damaged)| {
                    mount::parse_results(call.procedure, &mut cur).map_err(|e| malformed(e, damaged)).ok()
                });
                Body::Mount { procedure: call.procedure, args, results }
            }
            _ => Body::Opaque,
        };
        let mut data_missing = slot.data_missing;
        if let Some((message, _)) = reply {
            data_missing += message.data_missing;
            // The data of a small READ came with its message.
            if let Body::Nfs3 {
                results: Some(v3::Results { body: v3::ResultBody::Read { data, .. }, .. }),
                ..
            } = &body
                && message.elided_at.is_none()
                && data.len > 0
            {
                let (file, offset) = match (file, args3) {
                    (Some(file), v3::Args::Read { offset, .. }) => (file, offset),
                    _ => NO_PLACE,
                };
                let target = DataTarget { record_id: slot.record_id, file, offset, write: false };
                sum_whole(sums, sink, &target, data.bytes, ledger);
            }
        }
        if let Body::Nfs4 { call: Some(asked), reply: answered } = &body {
            let message = reply.map(|(message, _)| message);
            walk_compound(sums, sink, slot, asked, answered.as_ref(), message, ledger);
        }
        sink.on_operation(&Operation {
            record_id: slot.record_id,
            call_time_ns: slot.time_ns,
            reply_time_ns: reply.map(|(message, _)| message.time_ns),
            peers: slot.peers,
            call: &call,
            reply: reply.map(|(_, header)| header),
            status,
            body: &body,
            file,
            outstanding: slot.outstanding,
            data_missing,
            call_whole: !slot.damaged && slot.data_missing == 0,
            reply_whole: reply.is_some_and(|(message, _)| !message.damaged && message.data_missing == 0),
            call_place: slot.place,
            reply_place: reply.map(|(message, _)| message.place),
        });
    }

    /// Sums for data that comes in pieces.
    pub fn start_sums(&mut self, target: &DataTarget) -> Box<BlockSums> {
        let mut sums = self.spare_sums.pop().unwrap_or_default();
        sums.start(target.offset);
        sums
    }

    /// A piece of data.
    #[inline]
    pub fn data(&mut self, target: &DataTarget, sums: &mut BlockSums, bytes: &[u8], ledger: &mut Ledger) {
        ledger.data_bytes += bytes.len() as u64;
        let sink = &mut self.sink;
        sums.update(bytes, |at, run| emit_run(sink, ledger, target, at, run));
    }

    /// A piece of data that was not seen.
    pub fn data_hole(&mut self, target: &DataTarget, sums: &mut BlockSums, len: u32, ledger: &mut Ledger) {
        ledger.data_bytes_missing += u64::from(len);
        let sink = &mut self.sink;
        sums.hole(u64::from(len), |at, run| emit_run(sink, ledger, target, at, run));
    }

    /// The data is over.
    pub fn finish_sums(&mut self, target: &DataTarget, mut sums: Box<BlockSums>, ledger: &mut Ledger) {
        let sink = &mut self.sink;
        sums.finish(|at, run| emit_run(sink, ledger, target, at, run));
        if self.spare_sums.len() < 256 {
            self.spare_sums.push(sums);
        }
    }

    #[allow(clippy::too_many_arguments)] // one caller's view of a call, not worth a struct
    fn register(
        &mut self,
        context: &Context,
        call: &rpc::Call<'_>,
        bytes: &[u8],
        elided_at: Option<usize>,
        damaged: bool,
        (time_ns, place): (u64, Place),
        ledger: &mut Ledger,
    ) -> Option<Token> {
        ledger.calls += 1;
        let key = context.key(context.direction, call.xid);
        if self.by_key.len() >= self.waiting_max {
            ledger.calls_evicted += 1;
            self.give_up(self.oldest, ledger);
        }
        // The place is reserved first: one look into the table for the common case.
        let index = self.next_free();
        if let Some(other) = self.by_key.insert(key, index) {
            self.by_key.insert(key, other);
            let slot = &self.slots[other as usize];
            let common = slot.message.len().min(bytes.len());
            if slot.message[..common] == bytes[..common] {
                ledger.calls_repeated += 1;
                return None;
            }
            // The number was used again: the first call's reply was lost.
            ledger.calls_timed_out += 1;
            self.give_up(other, ledger);
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
        let record_id = self.next_record_id;
        self.next_record_id += self.record_id_step;
        ledger.calls_open += 1;
        let outstanding = self.by_key.len() as u32;
        let (previous, next) = (self.newest, NONE);
        let slot = &mut self.slots[index as usize];
        let kept = &bytes[..bytes.len().min(CALL_BYTES_KEPT_MAX)];
        slot.message.clear();
        slot.message.extend_from_slice(kept);
        slot.key = key;
        slot.record_id = record_id;
        slot.time_ns = time_ns;
        slot.place = place;
        slot.peers = context.forward;
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
        Some(Token { slot: index, record_id })
    }

    /// The slot that the next call will have.
    fn next_free(&self) -> u32 {
        if self.free == NONE { self.slots.len() as u32 } else { self.free }
    }

    fn slot_of(&mut self, token: Token) -> Option<&mut Slot> {
        // Answered, given up, and perhaps used for another call by now.
        let slot = self.slots.get_mut(token.slot as usize)?;
        (slot.record_id == token.record_id && self.by_key.get(&slot.key) == Some(&token.slot)).then_some(slot)
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
        let (previous, next) = (self.slots[index as usize].previous, self.slots[index as usize].next);
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

    /// Hands a call on without its reply. The caller has counted why.
    fn give_up(&mut self, index: u32, ledger: &mut Ledger) {
        ledger.calls_open -= 1;
        self.unlink(index);
        self.by_key.remove(&self.slots[index as usize].key);
        self.emit(index, None, ledger);
        self.put_back(index);
    }

    /// Gives up calls that have waited too long.
    pub fn expire(&mut self, now_ns: u64, ledger: &mut Ledger) {
        while self.oldest != NONE {
            if now_ns.saturating_sub(self.slots[self.oldest as usize].time_ns) <= self.timeout_ns {
                return;
            }
            ledger.calls_timed_out += 1;
            self.give_up(self.oldest, ledger);
        }
    }

    /// The capture is over: hands on what still waits.
    pub fn finish(&mut self, ledger: &mut Ledger) {
        while self.oldest != NONE {
            ledger.calls_open_at_end += 1;
            self.give_up(self.oldest, ledger);
        }
    }
}

/// Sums the data that came within a compound's messages, and counts what could not be read.
fn walk_compound<S: Sink>(
    sums: &mut BlockSums,
    sink: &mut S,
    slot: &Slot,
    call: &v4::Call<'_>,
    reply: Option<&v4::Reply<'_>>,
    message: Option<&MessageEnd<'_>>,
    ledger: &mut Ledger,
) {
    let mut walk = v4::Walk::new(call, reply);
    let mut streamed = message.is_some_and(|message| message.elided_at.is_some());
    for step in walk.by_ref() {
        if let Some(moved) = compound::read_step(&step) {
            // The first READ's data went by in pieces, when any did.
            if !std::mem::take(&mut streamed) && !moved.data.bytes.is_empty() {
                let target = DataTarget::new(slot.record_id, &slot.peers, &moved, false);
                sum_whole(sums, sink, &target, moved.data.bytes, ledger);
            }
            continue;
        }
        match step.result.map(|result| result.body) {
            Some(v4::ResultBody::ReadPlus { segments, .. }) => {
                for segment in segments.iter() {
                    let v4::Segment::Data(offset, bytes) = segment else { continue };
                    let target = DataTarget::at(slot.record_id, &slot.peers, step.current.handle(), offset);
                    sum_whole(sums, sink, &target, bytes, ledger);
                }
            }
            Some(v4::ResultBody::Getattr { attributes }) => {
                ledger.attributes_unparsed += u64::from(attributes.parse().unparsed.is_some());
            }
            _ => {}
        }
    }
    let damaged = [slot.damaged, message.is_none_or(|message| message.damaged)];
    for (end, damaged) in [walk.call_end(), walk.reply_end()].into_iter().zip(damaged) {
        match end {
            None => {}
            Some(v4::End::Unknown(_)) => ledger.compounds_unparsed += 1,
            Some(v4::End::Error(ParseError::Incomplete(_))) if damaged => {}
            Some(v4::End::Error(_)) => ledger.bodies_malformed += 1,
        }
    }
}

fn read_target(slot: &Slot, call: &rpc::Call<'_>) -> DataTarget {
    let at = body_at(call, call.body_at).unwrap_or(call.body_at);
    let (file, offset) =
        match v3::parse_args(v3::Procedure::Read, &mut cursor(&slot.message, at, slot.elided_at)) {
            Ok(v3::Args::Read { file, offset, .. }) => {
                (FileKey::new(slot.peers.server.address, file), offset)
            }
            _ => NO_PLACE,
        };
    DataTarget { record_id: slot.record_id, file, offset, write: false }
}

/// Sums data that is there as a whole.
fn sum_whole<S: Sink>(
    sums: &mut BlockSums,
    sink: &mut S,
    target: &DataTarget,
    bytes: &[u8],
    ledger: &mut Ledger,
) {
    ledger.data_bytes += bytes.len() as u64;
    if bytes.len() < crate::checksum::BLOCK_BYTES {
        return;
    }
    sums.start(target.offset);
    sums.update(bytes, |at, run| emit_run(sink, ledger, target, at, run));
    sums.finish(|at, run| emit_run(sink, ledger, target, at, run));
}

#[inline]
fn emit_run<S: Sink>(sink: &mut S, ledger: &mut Ledger, target: &DataTarget, offset: u64, sums: &[u64]) {
    // An unknown place: no block of it is anybody's.
    if target.file == FileKey(0) {
        return;
    }
    ledger.blocks_summed += sums.len() as u64;
    sink.on_checksums(&ChecksumRun {
        record_id: target.record_id,
        file: target.file,
        write: target.write,
        offset,
        sums,
    });
}
