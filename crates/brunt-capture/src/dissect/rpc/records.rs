//! Splits one direction of a connection into RPC records. In *fast mode*, record marks lead from header to header,
//! and file data is only checksummed; a hole inside a record of known length is skipped. If a header was lost, *slow
//! mode* searches for the next plausible header. Fed by [`super::Rpc`], feeds [`super::matcher`]. The one rule: a
//! mark is accepted only if an RPC header follows it.

use std::ops::ControlFlow;

use brunt_wire::cursor::padding;
use brunt_wire::rpc::{self, MARK_BYTES, RecordMark};
use memchr::memmem;

use super::data::DataTarget;
use super::id::{REPLIES_ALONE, RpcId};
use super::matcher::{Begun, Matcher};
use super::message::{MessageEnd, Token};
use crate::checksum::BlockSums;
use crate::dissect::{Flow, FramingState, Gap, Out};
use crate::operation::{MessagePlace, Sink};

/// The longest plausible fragment: 16 MiB of data and the bytes before it.
const FRAGMENT_BYTES_MAX: u32 = (16 << 20) + (64 << 10);
/// Maximum bytes buffered for a message that spans segments; on all known servers, a READDIRPLUS reply has at most 1
/// MiB.
const HEAD_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// After this many bytes without an RPC header, a connection is not considered RPC.
const SEARCH_BYTES_MAX: u64 = 256 << 10;
/// The shortest call: a header with empty credentials and verifier.
const CALL_BYTES_MIN: u32 = 40;
/// The shortest reply: a rejection.
const REPLY_BYTES_MIN: u32 = 20;
/// Bytes needed to accept a record: its mark, and a call's header up to the length of the credentials.
const EVIDENCE_BYTES: usize = MARK_BYTES + 32;
/// "Call, RPC version 2, a program numbered 1000xx to 1003xx", eight bytes into a record.
const CALL_PATTERN: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86];
/// "Reply, accepted", eight bytes into a record.
const REPLY_PATTERN: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 0];
const PATTERN_AT: usize = MARK_BYTES + 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing seen yet: accepts the first bytes if they are plausible.
    #[default]
    Start,
    /// At or within a record mark.
    Mark,
    /// Within a fragment.
    Fragment,
    /// Slow mode.
    Search,
    /// Not RPC.
    Ignored,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// No message is open.
    #[default]
    Closed,
    /// Buffering until the message's first bytes show what it is.
    Opening,
    /// Buffering the whole message.
    Gathering,
    /// Passing on file data.
    Data,
    /// Skipping the rest of the message.
    Skipping,
}

#[derive(Debug, Default)]
struct Open {
    phase: Phase,
    head: Vec<u8>,
    /// Length of `head` at which the message is parsed again.
    want: usize,
    first_ns: u64,
    place: MessagePlace,
    token: Option<Token>,
    damaged: bool,
    data_missing: u32,
    elided_at: Option<usize>,
    data: Option<(DataTarget, Box<BlockSums>)>,
    data_left: u32,
    padding_left: u32,
}

/// The state of one direction.
#[derive(Debug, Default)]
pub struct Records {
    state: State,
    mark: [u8; MARK_BYTES],
    mark_len: u8,
    fragment_left: u32,
    fragment_last: bool,
    /// Length of the current piece, used to locate messages in it, and when it was captured.
    piece_len: usize,
    piece_ns: u64,
    open: Open,
    /// The end of the searched bytes, in which a header may begin.
    tail: Vec<u8>,
    searched: u64,
    found: bool,
}

/// State shared by the stages while a chunk is processed.
pub struct RecordContext<'a, 'o, S> {
    /// The next stage.
    pub matcher: &'a mut Matcher,
    /// The connection and direction.
    pub flow: &'a Flow,
    /// Where results go.
    pub out: &'a mut Out<'o, S>,
}

impl Records {
    /// Handles bytes that were not captured.
    pub fn on_gap<S: Sink>(&mut self, gap: Gap, step: &mut RecordContext<'_, '_, S>) {
        match gap {
            Gap::Hole(len) => self.on_hole(len, step),
            Gap::Jump => {
                self.abandon(step);
                self.reset(State::Start);
            }
        }
    }

    fn reset(&mut self, state: State) {
        self.state = state;
        self.mark_len = 0;
        self.fragment_left = 0;
        self.tail.clear();
    }

    /// The framing state; `Framed` while record marks lead from header to header.
    #[inline]
    pub fn framing_state(&self) -> FramingState {
        if self.found && matches!(self.state, State::Mark | State::Fragment) {
            return FramingState::Framed;
        }
        if self.state == State::Ignored {
            FramingState::GaveUp
        } else {
            FramingState::Searching
        }
    }

    /// Processes the next bytes.
    #[inline]
    pub fn on_data<S: Sink>(
        &mut self,
        mut bytes: &[u8],
        time_ns: u64,
        step: &mut RecordContext<'_, '_, S>,
    ) {
        self.piece_len = bytes.len();
        self.piece_ns = time_ns;
        while !bytes.is_empty() {
            bytes = match self.state {
                State::Fragment => self.in_fragment(bytes, step),
                State::Mark => self.at_mark(bytes, time_ns, step),
                State::Start => {
                    // A new connection begins with a record. If the capture began mid-connection, the first bytes may
                    // happen to start a record, but usually don't.
                    let lucky = credible(bytes, step.matcher, step.flow) != Some(false);
                    self.state = if lucky { State::Mark } else { State::Search };
                    step.out.ledger.slow_mode_entries += u64::from(!lucky);
                    bytes
                }
                State::Search => self.search(bytes, time_ns, step),
                State::Ignored => {
                    step.out.ledger.bytes_unclaimed += bytes.len() as u64;
                    return;
                }
            };
        }
    }

    /// Processes a record mark; returns the bytes after it.
    #[inline]
    fn at_mark<'a, S: Sink>(
        &mut self,
        bytes: &'a [u8],
        time_ns: u64,
        step: &mut RecordContext<'_, '_, S>,
    ) -> &'a [u8] {
        let (mark, rest) = if self.mark_len == 0
            && let Some((mark, rest)) = bytes.split_first_chunk::<MARK_BYTES>()
        {
            (RecordMark::from_bytes(*mark), rest)
        } else {
            let had = usize::from(self.mark_len);
            if had == 0 && self.open.phase == Phase::Closed {
                self.open.first_ns = time_ns;
            }
            let taken = (MARK_BYTES - had).min(bytes.len());
            self.mark[had..had + taken].copy_from_slice(&bytes[..taken]);
            self.mark_len += taken as u8;
            if usize::from(self.mark_len) < MARK_BYTES {
                return &[];
            }
            self.mark_len = 0;
            (RecordMark::from_bytes(self.mark), &bytes[taken..])
        };
        let first = self.open.phase == Phase::Closed;
        let place = MessagePlace {
            at: self.piece_len.saturating_sub(rest.len()) as u32,
            len: mark.len,
        };
        if mark.len > FRAGMENT_BYTES_MAX || (first && mark.last && mark.len < REPLY_BYTES_MIN - 4) {
            self.lose(step);
            return rest;
        }
        if first && mark.last && rest.len() >= mark.len as usize {
            // The common case: a message within one segment, parsed in place.
            let (message, after) = rest.split_at(mark.len as usize);
            let end = MessageEnd {
                bytes: message,
                elided_at: None,
                damaged: false,
                data_missing: 0,
                first_ns: time_ns,
                last_ns: Some(time_ns),
                place,
                token: None,
            };
            if !step.matcher.end(step.flow, &end, step.out) {
                self.lose(step);
                return rest;
            }
            self.found = true;
            return after;
        }
        if first {
            self.open.phase = Phase::Opening;
            self.open.first_ns = time_ns;
            self.open.place = place;
            self.open.want = 8;
        } else {
            self.open.place.len = self.open.place.len.saturating_add(mark.len);
        }
        self.fragment_left = mark.len;
        self.fragment_last = mark.last;
        self.state = State::Fragment;
        if mark.len == 0 {
            self.end_fragment(Some(time_ns), step);
        }
        rest
    }

    /// Processes the bytes of the current fragment; returns the bytes after it.
    #[inline]
    fn in_fragment<'a, S: Sink>(
        &mut self,
        bytes: &'a [u8],
        step: &mut RecordContext<'_, '_, S>,
    ) -> &'a [u8] {
        let (mut mine, after) = bytes.split_at(bytes.len().min(self.fragment_left as usize));
        self.fragment_left -= mine.len() as u32;
        while !mine.is_empty() {
            mine = match self.open.phase {
                Phase::Data => self.in_data(mine, step),
                Phase::Opening => self.in_opening(mine, step),
                Phase::Gathering => {
                    self.gather(mine, step);
                    &[]
                }
                Phase::Skipping => &[],
                // What looked like a header was not one: slow mode began within the fragment.
                Phase::Closed => return &bytes[bytes.len() - after.len() - mine.len()..],
            };
        }
        if self.fragment_left == 0 && self.state == State::Fragment {
            self.end_fragment(Some(self.piece_ns), step);
        }
        after
    }

    /// Ends the fragment; `last_ns` is when its last byte was captured.
    fn end_fragment<S: Sink>(&mut self, last_ns: Option<u64>, step: &mut RecordContext<'_, '_, S>) {
        self.state = State::Mark;
        if self.fragment_last && !self.end_message(last_ns, step) {
            self.lose(step);
        }
    }

    fn in_opening<'a, S: Sink>(
        &mut self,
        bytes: &'a [u8],
        step: &mut RecordContext<'_, '_, S>,
    ) -> &'a [u8] {
        let had = self.open.head.len();
        // Parsed in place unless earlier bytes were buffered.
        let (begun, available) = if had == 0 {
            let (first_ns, token) = (self.open.first_ns, self.open.token);
            let begun = step
                .matcher
                .begin(step.flow, bytes, first_ns, token, step.out);
            (begun, bytes)
        } else {
            match self.begin_buffered(bytes, step) {
                ControlFlow::Continue(begun) => (begun, &bytes[(self.open.head.len() - had)..]),
                ControlFlow::Break(rest) => return rest,
            }
        };
        let open = &mut self.open;
        match begun {
            Begun::Need(need) => {
                open.want = need;
                self.gather(available, step);
                &[]
            }
            Begun::NotRpc => {
                self.abandon(step);
                self.reset(State::Search);
                step.out.ledger.slow_mode_entries += 1;
                available
            }
            Begun::Whole(token) => {
                self.found = true;
                open.token = token;
                open.phase = Phase::Gathering;
                available
            }
            Begun::Skip => {
                self.found = true;
                self.gather(&available[..available.len().min(64)], step);
                self.open.phase = Phase::Skipping;
                &[]
            }
            Begun::Data {
                token,
                at,
                len,
                target,
            } => {
                self.found = true;
                let buffered = if had == 0 { 0 } else { open.head.len() };
                let from_available = at - buffered;
                let (head, data) = available.split_at(from_available);
                if !step.out.memory.append(&mut open.head, head) {
                    return self.skip_rest(step);
                }
                open.token = token;
                open.elided_at = Some(at);
                open.data_left = len;
                open.padding_left = padding(len as usize) as u32;
                open.data = Some((target, step.matcher.start_sums(&target)));
                open.phase = Phase::Data;
                data
            }
        }
    }

    /// Parses the opening from the buffered bytes plus the new bytes up to the wanted length; breaks with the
    /// remaining bytes if more are needed.
    #[inline]
    fn begin_buffered<'a, S: Sink>(
        &mut self,
        bytes: &'a [u8],
        step: &mut RecordContext<'_, '_, S>,
    ) -> ControlFlow<&'a [u8], Begun> {
        let open = &mut self.open;
        let taken = open.want.saturating_sub(open.head.len()).min(bytes.len());
        if !step.out.memory.append(&mut open.head, &bytes[..taken]) {
            return ControlFlow::Break(self.skip_rest(step));
        }
        if open.head.len() < open.want {
            return ControlFlow::Break(&[]);
        }
        match step
            .matcher
            .begin(step.flow, &open.head, open.first_ns, open.token, step.out)
        {
            Begun::Need(need) => {
                open.want = need;
                ControlFlow::Break(&bytes[taken..])
            }
            begun => ControlFlow::Continue(begun),
        }
    }

    #[inline]
    fn in_data<'a, S: Sink>(
        &mut self,
        bytes: &'a [u8],
        step: &mut RecordContext<'_, '_, S>,
    ) -> &'a [u8] {
        let open = &mut self.open;
        let (data, rest) = bytes.split_at(bytes.len().min(open.data_left as usize));
        open.data_left -= data.len() as u32;
        if let Some((target, sums)) = &mut open.data {
            step.matcher.data(target, sums, data, step.out);
        }
        let (padding, rest) = rest.split_at(rest.len().min(open.padding_left as usize));
        open.padding_left -= padding.len() as u32;
        if open.data_left == 0 && open.padding_left == 0 {
            open.phase = Phase::Gathering;
        }
        rest
    }

    fn gather<S: Sink>(&mut self, bytes: &[u8], step: &mut RecordContext<'_, '_, S>) {
        let open = &mut self.open;
        if open.head.len() + bytes.len() > HEAD_BYTES_MAX
            || !step.out.memory.append(&mut open.head, bytes)
        {
            self.skip_rest(step);
        }
    }

    fn skip_rest<S: Sink>(&mut self, step: &mut RecordContext<'_, '_, S>) -> &'static [u8] {
        step.out.ledger.records_oversized += 1;
        self.open.damaged = true;
        self.open.phase = Phase::Skipping;
        &[]
    }

    fn on_hole<S: Sink>(&mut self, len: u32, step: &mut RecordContext<'_, '_, S>) {
        match self.state {
            State::Fragment if len <= self.fragment_left => {
                self.fragment_left -= len;
                self.hole_in_message(len, step);
                if self.fragment_left == 0 {
                    self.end_fragment(None, step);
                }
            }
            State::Fragment | State::Mark => {
                if self.open.phase != Phase::Closed {
                    self.hole_in_message(self.fragment_left, step);
                }
                self.lose(step);
            }
            State::Search => self.tail.clear(),
            State::Start | State::Ignored => {}
        }
    }

    fn hole_in_message<S: Sink>(&mut self, len: u32, step: &mut RecordContext<'_, '_, S>) {
        let open = &mut self.open;
        match open.phase {
            Phase::Data if len <= open.data_left + open.padding_left => {
                let data = len.min(open.data_left);
                if let Some((target, sums)) = &mut open.data {
                    step.matcher.data_hole(target, sums, data, step.out);
                }
                open.data_missing += data;
                open.data_left -= data;
                open.padding_left -= len - data;
                if open.data_left == 0 && open.padding_left == 0 {
                    open.phase = Phase::Gathering;
                }
            }
            Phase::Closed => {}
            _ => {
                if open.phase == Phase::Data {
                    open.data_missing += open.data_left;
                    step.out.ledger.data_bytes_missing += u64::from(open.data_left);
                }
                open.damaged = true;
                open.phase = Phase::Skipping;
            }
        }
    }

    /// Ends the message, whether it is complete or not. Returns `false` if it was not an RPC message.
    fn end_message<S: Sink>(
        &mut self,
        last_ns: Option<u64>,
        step: &mut RecordContext<'_, '_, S>,
    ) -> bool {
        let open = std::mem::take(&mut self.open);
        if let Some((target, sums)) = open.data {
            step.matcher.finish_sums(&target, sums, step.out);
        }
        if open.phase == Phase::Closed {
            return true;
        }
        let damaged = open.damaged || open.data_missing > 0;
        step.out.ledger.records_damaged += u64::from(damaged);
        let end = MessageEnd {
            bytes: &open.head,
            elided_at: open.elided_at,
            damaged: open.damaged,
            data_missing: open.data_missing,
            first_ns: open.first_ns,
            last_ns,
            place: open.place,
            token: open.token,
        };
        let rpc = step.matcher.end(step.flow, &end, step.out);
        step.out.memory.release(open.head);
        rpc
    }

    /// Ends a message that will not be completed.
    fn abandon<S: Sink>(&mut self, step: &mut RecordContext<'_, '_, S>) {
        if self.open.phase == Phase::Opening && self.open.head.is_empty() {
            self.open = Open::default();
            return;
        }
        self.open.damaged = true;
        if self.open.phase == Phase::Data {
            self.open.data_missing += self.open.data_left;
            step.out.ledger.data_bytes_missing += u64::from(self.open.data_left);
        }
        self.end_message(None, step);
    }

    /// Enters slow mode, because the next record's start is unknown.
    fn lose<S: Sink>(&mut self, step: &mut RecordContext<'_, '_, S>) {
        self.abandon(step);
        self.reset(State::Search);
        step.out.ledger.slow_mode_entries += 1;
    }

    /// Searches for a record; returns the bytes from the start of the record.
    fn search<'a, S: Sink>(
        &mut self,
        bytes: &'a [u8],
        time_ns: u64,
        step: &mut RecordContext<'_, '_, S>,
    ) -> &'a [u8] {
        step.out.ledger.slow_mode_bytes += bytes.len() as u64;
        self.searched += bytes.len() as u64;
        if !self.found && is_like_a_reply(bytes) {
            *step.out.ledger.own::<RpcId>(REPLIES_ALONE) += 1;
        }
        if !self.tail.is_empty() {
            // A header may begin in the tail of the previous piece.
            let had = self.tail.len();
            let mut joint = std::mem::take(&mut self.tail);
            joint.extend_from_slice(&bytes[..bytes.len().min(EVIDENCE_BYTES)]);
            if let Some(at) = find(&joint, had, step) {
                self.state = State::Mark;
                self.on_data(&joint[at..had], time_ns, step);
                return bytes;
            }
            if bytes.len() < EVIDENCE_BYTES {
                let from = joint.len().saturating_sub(EVIDENCE_BYTES - 1);
                joint.drain(..from);
                self.tail = joint;
                return &[];
            }
            joint.clear();
            self.tail = joint;
        }
        if let Some(at) = find(bytes, bytes.len(), step) {
            self.state = State::Mark;
            return &bytes[at..];
        }
        self.tail
            .extend_from_slice(&bytes[bytes.len().saturating_sub(EVIDENCE_BYTES - 1)..]);
        if !self.found && self.searched > SEARCH_BYTES_MAX {
            self.reset(State::Ignored);
            self.tail = Vec::new();
            step.out.ledger.bytes_unclaimed += self.searched;
        }
        &[]
    }

    /// Ends the stream.
    pub fn finish<S: Sink>(&mut self, step: &mut RecordContext<'_, '_, S>) {
        if self.open.phase != Phase::Closed {
            self.abandon(step);
        }
        self.reset(State::Start);
    }
}

/// The first plausible record that starts before `end`.
fn find<S: Sink>(bytes: &[u8], end: usize, step: &RecordContext<'_, '_, S>) -> Option<usize> {
    let first = |pattern: &'static [u8]| {
        let from = bytes.get(PATTERN_AT..)?;
        memmem::find_iter(from, pattern)
            .take_while(|at| *at < end)
            .find(|at| credible(&bytes[*at..], step.matcher, step.flow) == Some(true))
    };
    match (first(CALL_PATTERN), first(REPLY_PATTERN)) {
        (Some(call), Some(reply)) => Some(call.min(reply)),
        (call, reply) => call.or(reply),
    }
}

/// Whether these bytes start like a reply, even without a matching call: a single fragment, status "accepted", and an
/// empty verifier.
#[cold]
fn is_like_a_reply(bytes: &[u8]) -> bool {
    let word = |at: usize| {
        bytes
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .map(|word| u32::from_be_bytes(*word))
    };
    let Some(mark) = bytes
        .first_chunk()
        .map(|mark| RecordMark::from_bytes(*mark))
    else {
        return false;
    };
    let is_long_enough = mark.last && (REPLY_BYTES_MIN..=FRAGMENT_BYTES_MAX).contains(&mark.len);
    let verifier_is_empty = word(16) == Some(0) && word(20) == Some(0);
    is_long_enough
        && word(8) == Some(1)
        && word(12) == Some(0)
        && verifier_is_empty
        && word(24) <= Some(5)
}

/// The first bytes of a message that consists of small fragments, starting at a record mark; later marks are removed.
fn across_fragments(bytes: &[u8]) -> ([u8; MARK_BYTES + CALL_BYTES_MIN as usize], usize) {
    let mut head = [0; MARK_BYTES + CALL_BYTES_MIN as usize];
    let (mut len, mut rest) = (MARK_BYTES, bytes);
    while let Some((mark, behind)) = rest.split_first_chunk::<MARK_BYTES>() {
        let mark = RecordMark::from_bytes(*mark);
        let fragment = &behind[..behind.len().min(mark.len as usize)];
        let taken = fragment.len().min(head.len() - len);
        head[len..len + taken].copy_from_slice(&fragment[..taken]);
        len += taken;
        if len == head.len() || mark.last || mark.len == 0 {
            break;
        }
        rest = &behind[fragment.len()..];
    }
    (head, len)
}

/// Whether a record starts here; `None` if there are too few bytes to decide.
pub fn credible(bytes: &[u8], matcher: &Matcher, flow: &Flow) -> Option<bool> {
    let mark = RecordMark::from_bytes(*bytes.first_chunk()?);
    if mark.len > 0 && mark.len < CALL_BYTES_MIN && !mark.last {
        // A record may consist of fragments of any size (RFC 5531, 11).
        let (head, len) = across_fragments(bytes);
        return begins_message(&head[..len], FRAGMENT_BYTES_MAX, false, matcher, flow);
    }
    if mark.len < REPLY_BYTES_MIN || mark.len > FRAGMENT_BYTES_MAX {
        return Some(false);
    }
    begins_message(bytes, mark.len, mark.last, matcher, flow)
}

/// Whether a message of `message_len` bytes starts after a record mark and, if this is the `last` fragment, is
/// followed by another message.
fn begins_message(
    bytes: &[u8],
    message_len: u32,
    last: bool,
    matcher: &Matcher,
    flow: &Flow,
) -> Option<bool> {
    let word = |at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let flavor_and_length = |at: usize| {
        let (flavor, len) = (word(at)?, word(at + 4)?);
        Some(
            match flavor {
                0 | 7 => len <= 400,
                1 => (20..=400).contains(&len),
                2 | 6 => len <= 400,
                _ => false,
            } && len % 4 == 0,
        )
    };
    let good = match word(MARK_BYTES + 4)? {
        0 => {
            let (program, version, procedure) = (word(16)?, word(20)?, word(24)?);
            let known = match program {
                rpc::PROGRAM_NFS => version <= 4 && procedure <= 21,
                rpc::PROGRAM_PORTMAP
                | rpc::PROGRAM_MOUNT
                | rpc::PROGRAM_NLM
                | rpc::PROGRAM_NSM
                | rpc::PROGRAM_NFS_ACL => version <= 4 && procedure <= 32,
                rpc::PROGRAM_TRANSIENT_FIRST..=rpc::PROGRAM_TRANSIENT_LAST => {
                    version <= 1 && procedure <= 1
                }
                _ => false,
            };
            word(12)? == 2 && message_len >= CALL_BYTES_MIN && known && flavor_and_length(28)?
        }
        1 => {
            let xid = rpc::Xid(word(MARK_BYTES)?);
            match word(12)? {
                0 => matcher.awaits(flow, xid) && flavor_and_length(16)?,
                1 => matcher.awaits(flow, xid) && word(16)? <= 1,
                _ => false,
            }
        }
        _ => false,
    };
    if !good {
        return Some(false);
    }
    // The next record starts where this one ends, and must be a call or a reply.
    Some(!last || word(MARK_BYTES + message_len as usize + 8).is_none_or(|kind| kind <= 1))
}
