//! Splits one direction of an iSCSI connection into PDUs (RFC 7143, 11.2): locates headers and data, and
//! resynchronises after a gap or in a session that began before the capture. [`super::Iscsi`] feeds it bytes and
//! takes one event after another. The one rule: after a search, a PDU counts only with further evidence: a waiting
//! task, a command at the start of a segment with consistent lengths, a PDU that ends with its segment, a digest, or
//! a header right after the PDU.

use brunt_wire::iscsi::digest::{RunningDigest, digest};
use brunt_wire::iscsi::pdu::{BHS_BYTES, Bhs, DIGEST_BYTES, Opcode, padded};

use super::digests::{Digests, OpenDigest, Part, header_digest};
use super::headers::{
    self, is_consistent, is_credible, is_credible_but_for_cdb, is_possible, is_search_worthy,
};

/// Bytes searched before other dissectors may claim the connection.
const SEARCH_BYTES_MAX: u64 = 1 << 20;
/// Bytes of one search after which the PDU alignment is dropped, since it was apparently not derived from a real PDU.
const ALIGNED_SEARCH_BYTES_MAX: u64 = 256 << 10;
/// All parts of a PDU are whole words (RFC 7143, 11.2), so all PDUs of a stream have the same alignment within a
/// word.
const WORD_BYTES: usize = 4;

/// The next event in one direction.
#[derive(Clone, Copy, Debug)]
pub enum PduEvent<'a> {
    /// A header was read: [`Half::pdu`].
    Begin,
    /// Bytes of the PDU's data segment, and their offset in it.
    Data(u32, &'a [u8]),
    /// The end of the PDU.
    End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Expects a header.
    #[default]
    Header,
    /// Reads additional headers and their digest, then data, then padding and digest.
    Body,
    /// The position of the next header is unknown.
    Search,
}

/// Reads additional headers and their digest, then data, then padding and digest.
#[derive(Clone, Copy, Debug)]
pub struct Pdu {
    /// Its header.
    pub bhs: Bhs,
    /// When its first byte was captured.
    pub first_ns: u64,
    /// The latest capture time of its packets. If packets were reordered, this may not be the time of its last byte.
    pub last_ns: u64,
    /// Bytes of payload before the PDU in its first packet.
    pub at: u32,
    /// Whether all of the PDU was captured so far.
    pub whole: bool,
    /// Whether there is enough evidence that it is a PDU.
    pub counts: bool,
    /// Length of the PDU on the wire.
    pub len: u32,
}

/// The effect of missing bytes on the PDU being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapInPdu {
    /// Missing bytes of the PDU's data.
    pub data_missing: u32,
    /// Whether the PDU counts from this point on, because it or its header ends where the gap does; this happens if
    /// the snap length cut the segment.
    pub begins: bool,
    /// Whether the rest of the PDU is unreadable.
    pub ended: bool,
}

/// The reading state of one direction.
#[derive(Debug)]
pub struct Half {
    phase: Phase,
    window: [u8; BHS_BYTES],
    have: usize,
    pdu: Pdu,
    /// Remaining bytes of the three parts of the body.
    before_data: usize,
    data: usize,
    after_data: usize,
    data_at: u32,
    /// Bytes searched since the last PDU that counted, and in total.
    searched: u64,
    searched_all: u64,
    /// Whether the PDU boundaries are only known from a search.
    doubtful: bool,
    /// The digest that may come next: of a header, or of data that has ended.
    open: Option<OpenDigest>,
    /// The running digest of the data, while it is unknown whether a digest follows it.
    sum: Option<RunningDigest>,
    /// Whether a PDU began where another one ended, so that all others begin a multiple of a word from there.
    aligned: bool,
    /// During a search, the number of bytes until the next offset where a PDU can begin.
    skip: usize,
}

impl Default for Half {
    fn default() -> Half {
        let bhs = *Bhs::peek(&[0; BHS_BYTES]).expect("48 bytes");
        Half {
            phase: Phase::Header,
            window: [0; BHS_BYTES],
            have: 0,
            pdu: Pdu {
                bhs,
                first_ns: 0,
                last_ns: 0,
                at: 0,
                whole: false,
                counts: false,
                len: 0,
            },
            before_data: 0,
            data: 0,
            after_data: 0,
            data_at: 0,
            searched: 0,
            searched_all: 0,
            doubtful: false,
            open: None,
            sum: None,
            aligned: false,
            skip: 0,
        }
    }
}

impl Half {
    /// The current PDU, or the last one.
    pub fn pdu(&self) -> &Pdu {
        &self.pdu
    }

    /// Whether the PDU boundaries are known.
    pub fn is_framed(&self) -> bool {
        self.phase != Phase::Search && !self.doubtful
    }

    /// Whether a long search found nothing.
    pub fn gave_up(&self) -> bool {
        self.searched > SEARCH_BYTES_MAX
    }

    /// Total bytes searched.
    pub fn searched_all(&self) -> u64 {
        self.searched_all
    }

    /// Takes the next event out of `rest`; `None` if there are no more. `all` is the segment that ends with `rest`;
    /// `waits` returns whether a task with a given tag is waiting.
    pub fn next<'a>(
        &mut self,
        all: &'a [u8],
        rest: &mut &'a [u8],
        time_ns: u64,
        digests: &mut Digests,
        waits: impl Fn(u32) -> bool,
    ) -> Option<PduEvent<'a>> {
        loop {
            match self.phase {
                Phase::Header | Phase::Search => {
                    if self.have == 0 {
                        if self.phase == Phase::Search {
                            self.pass_over(rest);
                        } else if let Some(mut open) = self.open {
                            self.open = (!open.take(rest, digests)).then_some(open);
                        }
                    }
                    if !self.fill_window(all, rest, time_ns) {
                        return None;
                    }
                    if self.begin(all, rest, digests, &waits) && self.pdu.counts {
                        return Some(PduEvent::Begin);
                    }
                }
                // Shortcut: no bytes are left at the last call for each segment of a long PDU.
                Phase::Body if rest.is_empty() && self.data > 0 => return None,
                Phase::Body => {
                    let event = self.continue_pdu(rest, time_ns, digests);
                    if event.is_some() || self.phase == Phase::Body {
                        return event;
                    }
                }
            }
        }
    }

    /// The next event of the current PDU; `None` if more bytes are needed, or if the PDU ended and does not count.
    #[inline]
    fn continue_pdu<'a>(
        &mut self,
        rest: &mut &'a [u8],
        time_ns: u64,
        digests: &mut Digests,
    ) -> Option<PduEvent<'a>> {
        if !rest.is_empty() {
            self.pdu.last_ns = self.pdu.last_ns.max(time_ns);
        }
        if self.before_data > 0 {
            let skipped = self.before_data.min(rest.len());
            *rest = &rest[skipped..];
            self.before_data -= skipped;
            if self.before_data > 0 {
                return None;
            }
        }
        if self.data > 0 {
            self.settle_header(rest, digests);
            let (data, after) = rest.split_at(self.data.min(rest.len()));
            let at = self.data_at;
            *rest = after;
            self.data -= data.len();
            self.data_at += data.len() as u32;
            if let Some(sum) = &mut self.sum {
                sum.add(data);
            }
            if self.pdu.counts && !data.is_empty() {
                return Some(PduEvent::Data(at, data));
            }
            if self.data > 0 {
                return None;
            }
        }
        let (tail, after) = rest.split_at(self.after_data.min(rest.len()));
        *rest = after;
        self.after_data -= tail.len();
        if let Some(sum) = &mut self.sum {
            sum.add(tail);
        }
        if self.after_data > 0 {
            return None;
        }
        self.phase = Phase::Header;
        if let Some(sum) = self.sum.take() {
            let sum = self.pdu.whole.then(|| sum.so_far());
            self.open = Some(OpenDigest::new(Part::Data, sum));
        }
        self.pdu.counts.then_some(PduEvent::End)
    }

    /// Handles the start of the data. If the header ended with its segment, these bytes show whether a digest
    /// follows headers.
    fn settle_header(&mut self, rest: &mut &[u8], digests: &mut Digests) {
        if rest.is_empty() {
            return;
        }
        let Some(mut open) = self.open.take() else {
            return;
        };
        if open.take(rest, digests) {
            self.pdu.len += DIGEST_BYTES as u32;
        } else if open.is_refuted() && self.pdu.counts {
            open.settle(false, digests);
        } else {
            // It is unknown where the data starts, so its digest can't be computed.
            return;
        }
        // This also applies if the other direction has shown that a digest follows data, because this PDU's end was
        // computed without a digest.
        let is_open = digests.data != Some(false) && self.after_data < DIGEST_BYTES;
        self.sum = is_open.then(RunningDigest::default);
    }

    /// Distance in bytes between possible PDU starts in a search.
    fn step(&self) -> usize {
        if self.aligned { WORD_BYTES } else { 1 }
    }

    /// Continues a search to the next offset in `rest` where a header may begin, or to its end.
    fn pass_over(&mut self, rest: &mut &[u8]) {
        let skipped = self.skip.min(rest.len());
        let place = headers::find(&rest[skipped..], self.step()) + skipped;
        let passed = place.min(rest.len());
        self.skip = if skipped < self.skip {
            self.skip - skipped
        } else {
            place - passed
        };
        self.count_searched(passed);
        *rest = &rest[passed..];
    }

    fn count_searched(&mut self, passed: usize) {
        self.searched += passed as u64;
        self.searched_all += passed as u64;
        // Beyond this limit, the alignment is dropped: every offset is searched, even after a gap.
        self.aligned &= self.searched <= ALIGNED_SEARCH_BYTES_MAX;
    }

    /// Collects the 48 bytes of a header or, in a search, moves on to the next ones; `false` if more bytes are
    /// needed.
    fn fill_window(&mut self, all: &[u8], rest: &mut &[u8], time_ns: u64) -> bool {
        if rest.is_empty() {
            return false;
        }
        if self.have == 0 {
            (self.pdu.first_ns, self.pdu.last_ns) = (time_ns, time_ns);
            self.pdu.at = (all.len() - rest.len()) as u32;
        }
        let taken = (BHS_BYTES - self.have).min(rest.len());
        self.window[self.have..self.have + taken].copy_from_slice(&rest[..taken]);
        self.have += taken;
        *rest = &rest[taken..];
        // In a search, the window moves, so its position and time are updated, unless it begins in the previous
        // segment.
        let read = all.len() - rest.len();
        if self.phase == Phase::Search && read >= BHS_BYTES {
            (self.pdu.first_ns, self.pdu.at) = (time_ns, (read - BHS_BYTES) as u32);
            self.pdu.last_ns = time_ns;
        }
        self.pdu.last_ns = self.pdu.last_ns.max(time_ns);
        self.have == BHS_BYTES
    }

    /// The window is not a header: moves to the next possible position, which may lie in `rest` again.
    fn pass_window<'a>(&mut self, all: &'a [u8], rest: &mut &'a [u8]) {
        let (step, read) = (self.step(), all.len() - rest.len());
        let passed = if let Some(at) = read.checked_sub(BHS_BYTES) {
            // The window lies within this segment, which is searched in place.
            *rest = &all[at + step..];
            self.have = 0;
            step
        } else {
            let mut places = (step..BHS_BYTES).step_by(step);
            let passed = places.find(|at| headers::may_begin(&self.window[*at..]));
            let passed = passed.unwrap_or(BHS_BYTES);
            self.window.copy_within(passed.., 0);
            self.have -= passed;
            passed
        };
        self.count_searched(passed);
    }

    /// Checks the header in the window and starts its PDU; returns `false` if it is not a header.
    fn begin<'a>(
        &mut self,
        all: &'a [u8],
        rest: &mut &'a [u8],
        digests: &mut Digests,
        waits: &impl Fn(u32) -> bool,
    ) -> bool {
        let bhs = *Bhs::peek(&self.window).expect("48 bytes");
        let Some(has_digest) = self.accept(&bhs, rest, digests) else {
            self.refuse(digests);
            self.pass_window(all, rest);
            return false;
        };
        // A header here settles whether a digest came between it and the preceding data.
        let is_next = self.phase == Phase::Search && self.searched == DIGEST_BYTES as u64;
        let is_behind_digest = is_next && self.open.is_some_and(|open| !open.is_refuted());
        if let Some(open) = self.open.take()
            && (is_behind_digest || self.phase == Phase::Header)
        {
            open.settle(is_behind_digest, digests);
        }
        let left = self.lay_out(&bhs, has_digest, digests);
        let may_have_digest = self.data > 0 && digests.data.is_none();
        let fits_digest = has_digest == Some(true) || is_behind_digest;
        let counts = self.phase == Phase::Header
            || fits_digest
            || self.is_confirmed(&bhs, left, rest.len(), may_have_digest, waits);
        if has_digest.is_some_and(|has| has || counts) {
            digests.header = digests.header.or(has_digest);
        }
        if digests.header.is_none() && bhs.ahs_len() == 0 && (rest.is_empty() || self.data == 0) {
            self.open = Some(OpenDigest::new(Part::Header, Some(digest(&self.window))));
        }
        // A digest can't be computed for data whose start is uncertain.
        self.sum = (may_have_digest && digests.header.is_some()).then(RunningDigest::default);
        self.pdu = Pdu {
            bhs,
            whole: true,
            counts,
            len: (BHS_BYTES + left) as u32,
            ..self.pdu
        };
        self.doubtful = !counts;
        self.aligned |= self.phase == Phase::Header;
        self.phase = Phase::Body;
        (self.have, self.data_at) = (0, 0);
        if counts {
            self.searched = 0;
        }
        true
    }

    /// Whether the window may be a header: `None` if not; otherwise whether a header digest follows, if that is
    /// known.
    #[inline]
    fn accept(&self, bhs: &Bhs, rest: &[u8], digests: &Digests) -> Option<Option<bool>> {
        let is_due = self.phase == Phase::Header && !self.doubtful && digests.are_known();
        // If the digests were only inferred, a header that is due must also look like one.
        let is_due = is_due
            && if digests.agreed {
                is_possible(bhs)
            } else {
                is_credible_but_for_cdb(bhs)
            };
        let is_likely = is_credible(bhs) && (self.phase == Phase::Header || is_search_worthy(bhs));
        // If digests follow headers, a header found in a search needs a matching digest.
        let is_judged =
            digests.header.is_none() || digests.header == Some(true) && !self.is_framed();
        let has_digest = if is_likely && is_judged {
            header_digest(&self.window, bhs, rest)
        } else {
            None
        };
        let is_refuted = has_digest == Some(false) && digests.header == Some(true);
        (!is_refuted && (is_likely || is_due)).then_some(has_digest)
    }

    /// Sets the lengths of the body's parts and returns their sum.
    #[inline]
    fn lay_out(&mut self, bhs: &Bhs, has_digest: Option<bool>, digests: &Digests) -> usize {
        let header = digests.header.or(has_digest) == Some(true);
        let data = bhs.data_len();
        let with_digest = digests.data == Some(true) && data > 0;
        self.before_data = bhs.ahs_len() + if header { DIGEST_BYTES } else { 0 };
        self.data = data;
        self.after_data = padded(data) - data + if with_digest { DIGEST_BYTES } else { 0 };
        self.before_data + self.data + self.after_data
    }

    /// Whether anything beyond a header's own bytes confirms it; `left` bytes of its PDU and `rest` bytes of the
    /// segment follow.
    #[inline]
    fn is_confirmed(
        &self,
        bhs: &Bhs,
        left: usize,
        rest: usize,
        may_have_digest: bool,
        waits: &impl Fn(u32) -> bool,
    ) -> bool {
        let known = matches!(
            bhs.kind(),
            Opcode::DataIn | Opcode::DataOut | Opcode::R2t | Opcode::ScsiResponse
        ) && waits(bhs.initiator_task_tag.get());
        // The PDU, or its header if the initiator sent the header separately, ends exactly with the segment.
        let ends_here = left == rest
            || may_have_digest && left + DIGEST_BYTES == rest
            || self.pdu.at == 0 && self.before_data == rest;
        // A command at the start of its segment, with a length that matches its block count.
        let begins_here =
            self.pdu.at == 0 && bhs.kind() == Opcode::ScsiCommand && is_consistent(bhs);
        known || ends_here || begins_here
    }

    /// The window is not a header. Starts a search if a header was due.
    fn refuse(&mut self, digests: &mut Digests) {
        if self.phase != Phase::Header {
            return;
        }
        if !self.doubtful && self.open.is_none() {
            digests.on_missing_header();
        }
        self.phase = Phase::Search;
        self.doubtful = true;
        self.searched = 0;
    }

    /// Handles missing bytes (`None`: their number is unknown).
    pub fn on_gap(&mut self, len: Option<u32>) -> GapInPdu {
        let left = self.before_data + self.data + self.after_data;
        self.open = None;
        match len.map(|len| len as usize) {
            Some(len) if self.phase == Phase::Body && len <= left => {
                let ends_here =
                    len == left || self.pdu.at == 0 && self.data_at == 0 && len == self.before_data;
                let begins = !self.pdu.counts && ends_here;
                if begins {
                    self.pdu.counts = true;
                    self.doubtful = false;
                    self.searched = 0;
                }
                let before = self.before_data.min(len);
                let data = self.data.min(len - before);
                self.before_data -= before;
                self.data -= data;
                self.data_at += data as u32;
                self.after_data -= len - before - data;
                self.pdu.whole = false;
                GapInPdu {
                    data_missing: data as u32,
                    begins,
                    ended: false,
                }
            }
            len => {
                let (under_way, data) = (self.phase == Phase::Body, self.data as u32);
                // The first offset after the gap that is a multiple of a word away from a PDU's start.
                let ahead = if under_way {
                    left
                } else {
                    self.skip.wrapping_sub(self.have)
                };
                self.aligned &= len.is_some();
                let behind = len
                    .filter(|_| self.aligned)
                    .map(|len| ahead.wrapping_sub(len) % WORD_BYTES);
                self.skip = behind.unwrap_or(0);
                self.phase = Phase::Search;
                self.doubtful = true;
                self.sum = None;
                (self.have, self.searched) = (0, 0);
                self.pdu.whole = false;
                let data_missing = if under_way { data } else { 0 };
                GapInPdu {
                    data_missing,
                    begins: false,
                    ended: under_way && self.pdu.counts,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use brunt_core::random::Random;

    use super::*;

    /// A stream of `pdus` PDUs from a target with these digests, and where their headers end: R2Ts, responses, and
    /// data of random length, filled by `fill`.
    fn stream(
        random: &mut Random,
        digests: [bool; 2],
        pdus: usize,
        fill: impl Fn(&mut Random, &mut [u8]),
    ) -> (Vec<u8>, Vec<usize>) {
        let (mut stream, mut ends) = (Vec::new(), Vec::new());
        for number in 0..pdus {
            let (opcode, flags, len) = match number % 4 {
                0 => (0x31, 0x80, 0),
                1 => (0x21, 0x80, 0),
                _ => (0x25, 0x81, 1 + random.below(2000) as usize),
            };
            let mut header = [0; BHS_BYTES];
            (header[0], header[1]) = (opcode, flags);
            header[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
            (header[19], header[23], header[46]) = (number as u8, 1, 2);
            stream.extend(header);
            ends.push(stream.len());
            if digests[0] {
                stream.extend(digest(&header));
            }
            let mut data = vec![0; len];
            fill(random, &mut data);
            data.resize(padded(len), 0);
            stream.extend(&data);
            if digests[1] && len > 0 {
                stream.extend(digest(&data));
            }
        }
        (stream, ends)
    }

    fn feed(half: &mut Half, digests: &mut Digests, segment: &[u8], waits: bool) {
        let mut rest = segment;
        while half
            .next(segment, &mut rest, 0, digests, |_| waits)
            .is_some()
        {}
    }

    const ALL: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

    fn told([header, data]: [bool; 2]) -> Digests {
        Digests {
            header: Some(header),
            data: Some(data),
            agreed: false,
        }
    }

    /// Wherever a capture begins and however its segments are cut, even after each header, the use of both digests is
    /// inferred, and nothing false is accepted in the meantime.
    #[test]
    fn digests_are_inferred_wherever_a_capture_begins() {
        let mut random = Random::new(21);
        for round in 0..400 {
            let truth = ALL[round % 4];
            let (stream, ends) = stream(&mut random, truth, 24, |random, data| random.fill(data));
            let begin = if round < 40 {
                0
            } else {
                random.below(ends[6] as u64) as usize
            };
            let (mut half, mut digests) = (Half::default(), Digests::default());
            let segment_max = [1, 5, 53, 400, 1448, 9000][round / 4 % 6];
            let (mut at, waits, by_headers) = (begin, round % 3 == 0, round % 5 == 0);
            while at < stream.len() {
                let end = at + 1 + random.below(segment_max) as usize;
                let cut = ends
                    .iter()
                    .copied()
                    .find(|end| *end > at)
                    .filter(|_| by_headers);
                let end = cut.unwrap_or(end).min(stream.len());
                feed(&mut half, &mut digests, &stream[at..end], waits);
                at = end;
                let is_so =
                    |found: Option<bool>, truth: bool| found.is_none_or(|found| found == truth);
                assert!(
                    is_so(digests.header, truth[0]) && is_so(digests.data, truth[1]),
                    "round {round}: {digests:?} at {at}, but {truth:?}"
                );
            }
            assert_eq!(digests, told(truth), "round {round}");
        }
    }

    /// If a logical unit contains bytes that look like PDUs, and a capture begins among them, the digests inferred
    /// from them are forgotten when they lead to a position without a header.
    #[test]
    fn wrongly_inferred_digests_are_forgotten() {
        let mut random = Random::new(22);
        for round in 0..64 {
            let truth = ALL[1 + round % 3];
            // The data segment of the PDU during which the capture begins.
            let (held, ends) = stream(&mut random, [false; 2], 40, |random, data| {
                random.fill(data)
            });
            let begin = ends[3 + round % 20] - BHS_BYTES;
            let mut bytes = held[begin..].to_vec();
            if truth[1] {
                bytes.extend(digest(&held));
            }
            bytes.extend(stream(&mut random, truth, 40, |random, data| random.fill(data)).0);
            let (mut half, mut digests) = (Half::default(), Digests::default());
            bytes
                .chunks(1448)
                .for_each(|segment| feed(&mut half, &mut digests, segment, true));
            assert_eq!(digests, told(truth), "round {round}");
        }
    }

    /// Digests agreed in a login stay in effect, even if no header follows.
    #[test]
    fn digests_agreed_in_a_login_stay_in_effect() {
        let mut digests = Digests {
            header: Some(true),
            data: Some(false),
            agreed: true,
        };
        let agreed = digests;
        let mut half = Half::default();
        feed(&mut half, &mut digests, &[0xff; 5000], false);
        assert_eq!(digests, agreed);
        assert!(!half.is_framed() && half.searched_all() > 4000);
    }
}
