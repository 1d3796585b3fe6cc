//! One direction of an iSCSI connection as PDUs (RFC 7143, 11.2): where headers are, which bytes are data, and the way
//! back after a gap or into a session that began before the capture. Fed by [`super::Iscsi`] with bytes, asked for one
//! event after another. The one rule: after a search a PDU counts only when something else speaks for it: a task that
//! waits, the beginning of its segment (of a command whose lengths agree), its end, a digest, or a header right behind it.

use brunt_wire::iscsi::digest::{RunningDigest, digest};
use brunt_wire::iscsi::pdu::{BHS_BYTES, Bhs, DIGEST_BYTES, Opcode, padded};

use super::digests::{Digests, OpenDigest, Part, header_digest};
use super::headers::{
    self, is_consistent, is_credible, is_credible_but_for_cdb, is_possible, is_search_worthy,
};

/// Bytes that are searched before the connection is anybody's who wants it.
const SEARCH_BYTES_MAX: u64 = 1 << 20;
/// Bytes of one search after which nothing is believed of where PDUs can begin: what was read before was none.
const ALIGNED_SEARCH_BYTES_MAX: u64 = 256 << 10;
/// All parts of a PDU are as long as some words (RFC 7143, 11.2), so that each begins at the same place in a word of
/// its stream.
const WORD_BYTES: usize = 4;

/// What comes next in a direction.
#[derive(Clone, Copy, Debug)]
pub enum PduEvent<'a> {
    /// A header is there: [`Half::pdu`].
    Begin,
    /// Bytes of its data segment, this far from its start.
    Data(u32, &'a [u8]),
    /// The PDU is over.
    End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// A header comes.
    #[default]
    Header,
    /// Additional headers and their digest; then data, then padding and digest.
    Body,
    /// Nobody knows where the next header is.
    Search,
}

/// A PDU under way.
#[derive(Clone, Copy, Debug)]
pub struct Pdu {
    /// Its header.
    pub bhs: Bhs,
    /// When its first byte was seen.
    pub first_ns: u64,
    /// When the last packet of it was: not that of its last byte where packets came out of order.
    pub last_ns: u64,
    /// Bytes before it in its first packet's data.
    pub at: u32,
    /// All of it was seen so far.
    pub whole: bool,
    /// What is needed to be sure that it is one was seen.
    pub counts: bool,
    /// Its length on the wire.
    pub len: u32,
}

/// What bytes that were not seen mean for the PDU under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapInPdu {
    /// Bytes of its data among them.
    pub data_missing: u32,
    /// It counts from here on: it, or its header, ends where the gap does, as those do whose segment was cut by the snap
    /// length.
    pub begins: bool,
    /// It cannot be read to its end.
    pub ended: bool,
}

/// How far a direction is read.
#[derive(Debug)]
pub struct Half {
    phase: Phase,
    window: [u8; BHS_BYTES],
    have: usize,
    pdu: Pdu,
    /// Bytes of the three parts of the body that are still to come.
    before_data: usize,
    data: usize,
    after_data: usize,
    data_at: u32,
    /// Bytes searched through since the last PDU that counted, and all.
    searched: u64,
    searched_all: u64,
    /// Whether a search, and nothing since, says where PDUs begin.
    doubtful: bool,
    /// What the next bytes may be, of a header or of data that are over.
    open: Option<OpenDigest>,
    /// What the digest of the data so far is, where nobody knows whether one will follow.
    sum: Option<RunningDigest>,
    /// A PDU was where one ended: whatever is lost, others begin whole words from there.
    aligned: bool,
    /// Bytes until the next place in a search where a PDU can begin.
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
    /// The PDU under way, or the last one.
    pub fn pdu(&self) -> &Pdu {
        &self.pdu
    }

    /// Whether it is known where PDUs begin.
    pub fn is_framed(&self) -> bool {
        self.phase != Phase::Search && !self.doubtful
    }

    /// Whether it was searched for long and in vain.
    pub fn gave_up(&self) -> bool {
        self.searched > SEARCH_BYTES_MAX
    }

    /// All bytes that were searched through.
    pub fn searched_all(&self) -> u64 {
        self.searched_all
    }

    /// The next event in `rest`, out of which it takes what it has read; `None` when nothing more is in it. `all` is
    /// the segment that `rest` is the end of; `waits` says whether a task with that tag does.
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
                // So it is asked after each segment of a long one.
                Phase::Body if rest.is_empty() && self.data > 0 => return None,
                Phase::Body => {
                    let event = self.go_on(rest, time_ns, digests);
                    if event.is_some() || self.phase == Phase::Body {
                        return event;
                    }
                }
            }
        }
    }

    /// The next event of the PDU under way; `None` when more of it is needed, or it is over and does not count.
    #[inline]
    fn go_on<'a>(
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

    /// Data comes. Where its header ended with a segment, it is now that it shows whether a digest follows headers.
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
            // Nobody knows where its data begins.
            return;
        }
        // Also where the other direction has shown that one follows data: this one's end was computed without.
        let is_open = digests.data != Some(false) && self.after_data < DIGEST_BYTES;
        self.sum = is_open.then(RunningDigest::default);
    }

    /// From one place in a search where a PDU can begin to the next, in bytes.
    fn step(&self) -> usize {
        if self.aligned { WORD_BYTES } else { 1 }
    }

    /// Goes on with a search to the next place in `rest` where a header may begin, or to its end.
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
        // Beyond that every place is looked at, and where the next gap leaves the search says nothing of words.
        self.aligned &= self.searched <= ALIGNED_SEARCH_BYTES_MAX;
    }

    /// Gathers the 48 bytes of a header, or the next ones of a search; `false` when more are needed.
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
        // In a search the window moves; one that begins in the segment before keeps that one's time.
        let read = all.len() - rest.len();
        if self.phase == Phase::Search && read >= BHS_BYTES {
            (self.pdu.first_ns, self.pdu.at) = (time_ns, (read - BHS_BYTES) as u32);
            self.pdu.last_ns = time_ns;
        }
        self.pdu.last_ns = self.pdu.last_ns.max(time_ns);
        self.have == BHS_BYTES
    }

    /// What was gathered is no header: on to the next place where one can be, which may be in `rest` again.
    fn pass_window<'a>(&mut self, all: &'a [u8], rest: &mut &'a [u8]) {
        let (step, read) = (self.step(), all.len() - rest.len());
        let passed = if let Some(at) = read.checked_sub(BHS_BYTES) {
            // It lies in this segment, which is searched without gathering.
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

    /// Looks at the header that was gathered; whether it is one.
    fn begin<'a>(
        &mut self,
        all: &'a [u8],
        rest: &mut &'a [u8],
        digests: &mut Digests,
        waits: &impl Fn(u32) -> bool,
    ) -> bool {
        let bhs = *Bhs::peek(&self.window).expect("48 bytes");
        let is_due = self.phase == Phase::Header && !self.doubtful && digests.are_known();
        // Where digests were only found out, what is due has to look like a header too.
        let is_due = is_due
            && if digests.agreed {
                is_possible(&bhs)
            } else {
                is_credible_but_for_cdb(&bhs)
            };
        let is_likely =
            is_credible(&bhs) && (self.phase == Phase::Header || is_search_worthy(&bhs));
        // Where digests follow headers, what a search has found is none without one that fits.
        let is_judged =
            digests.header.is_none() || digests.header == Some(true) && !self.is_framed();
        let has_digest = if is_likely && is_judged {
            header_digest(&self.window, &bhs, rest)
        } else {
            None
        };
        let is_refuted = has_digest == Some(false) && digests.header == Some(true);
        if is_refuted || !(is_likely || is_due) {
            self.refuse(digests);
            self.pass_window(all, rest);
            return false;
        }
        // Where a header is now says what was between the last data and it.
        let is_next = self.phase == Phase::Search && self.searched == DIGEST_BYTES as u64;
        let is_behind_digest = is_next && self.open.is_some_and(|open| !open.is_refuted());
        if let Some(open) = self.open.take()
            && (is_behind_digest || self.phase == Phase::Header)
        {
            open.settle(is_behind_digest, digests);
        }
        let header = digests.header.or(has_digest) == Some(true);
        let data = bhs.data_len();
        let with_digest = digests.data == Some(true) && data > 0;
        self.before_data = bhs.ahs_len() + if header { DIGEST_BYTES } else { 0 };
        self.data = data;
        self.after_data = padded(data) - data + if with_digest { DIGEST_BYTES } else { 0 };
        let left = self.before_data + self.data + self.after_data;
        let may_have_digest = data > 0 && digests.data.is_none();
        // The PDU, or its header, which initiators send on its own, is all of its segment's end.
        let ends_here = left == rest.len()
            || may_have_digest && left + DIGEST_BYTES == rest.len()
            || self.pdu.at == 0 && self.before_data == rest.len();
        let known = matches!(
            bhs.kind(),
            Opcode::DataIn | Opcode::DataOut | Opcode::R2t | Opcode::ScsiResponse
        ) && waits(bhs.initiator_task_tag.get());
        // A command that begins with its segment, and asks for as many bytes as it has blocks of.
        let begins_here =
            self.pdu.at == 0 && bhs.kind() == Opcode::ScsiCommand && is_consistent(&bhs);
        let fits_digest = has_digest == Some(true) || is_behind_digest;
        let counts =
            self.phase == Phase::Header || fits_digest || known || ends_here || begins_here;
        if has_digest.is_some_and(|has| has || counts) {
            digests.header = digests.header.or(has_digest);
        }
        if digests.header.is_none() && bhs.ahs_len() == 0 && (rest.is_empty() || data == 0) {
            self.open = Some(OpenDigest::new(Part::Header, Some(digest(&self.window))));
        }
        // Of data whose beginning is not certain no digest can be computed.
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

    /// What was gathered is no header. Where one had to be, a search begins.
    fn refuse(&mut self, digests: &mut Digests) {
        if self.phase != Phase::Header {
            return;
        }
        if !self.doubtful && self.open.is_none() {
            digests.led_astray();
        }
        self.phase = Phase::Search;
        self.doubtful = true;
        self.searched = 0;
    }

    /// So many bytes were not seen (`None`: nobody knows how many).
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
                // The next place behind the gap that is words away from where a PDU begins.
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

    /// What a target sends with these digests, `pdus` PDUs, and where their headers end: R2Ts, answers, and data of any
    /// length that `fill` makes.
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

    /// Wherever a capture begins and however its segments are cut, also behind each header: both digests are found out,
    /// and nothing wrong is believed on the way.
    #[test]
    fn digests_are_found_out() {
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

    /// Where a logical unit holds what looks like PDUs, and a capture begins among them, what they show of digests is
    /// forgotten when it leads to no header.
    #[test]
    fn what_led_astray_is_forgotten() {
        let mut random = Random::new(22);
        for round in 0..64 {
            let truth = ALL[1 + round % 3];
            // The data of a PDU that was under way.
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

    /// What a login agreed on holds, also where no header follows.
    #[test]
    fn agreed_digests_hold() {
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
