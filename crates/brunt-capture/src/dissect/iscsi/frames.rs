//! One direction of an iSCSI connection as PDUs (RFC 7143, 11.2): where headers are, which bytes are data, and the way
//! back after a gap or into a session that began before the capture. Fed by [`super::Iscsi`] with bytes, asked for one
//! event after another. The one rule: after a search a PDU counts only when something else speaks for it: a task that
//! waits, the beginning of its segment (of a command whose lengths agree), its end, or a header right behind it.

use brunt_wire::iscsi::digest::digest;
use brunt_wire::iscsi::pdu::{BHS_BYTES, Bhs, DIGEST_BYTES, Opcode, padded};

use super::headers::{self, is_consistent, is_credible, is_possible, is_search_worthy};

/// Bytes that are searched before the connection is anybody's who wants it.
const SEARCH_BYTES_MAX: u64 = 1 << 20;
/// Bytes of one search after which nothing is believed of where PDUs can begin: what was read before was none.
const ALIGNED_SEARCH_BYTES_MAX: u64 = 256 << 10;
/// All parts of a PDU are as long as some words (RFC 7143, 11.2), so that each begins at the same place in a word of
/// its stream.
const WORD_BYTES: usize = 4;

/// Which digests there are: what the login said, or what the bytes show; `None` while it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// After headers.
    pub header: Option<bool>,
    /// After data.
    pub data: Option<bool>,
}

impl Digests {
    /// None at all, as during a login.
    pub const NONE: Digests = Digests { header: Some(false), data: Some(false) };

    fn are_known(self) -> bool {
        self.header.is_some() && self.data.is_some()
    }
}

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
    /// The last PDU had data and nobody knows whether a digest follows.
    digest_open: bool,
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
            pdu: Pdu { bhs, first_ns: 0, last_ns: 0, at: 0, whole: false, counts: false, len: 0 },
            before_data: 0,
            data: 0,
            after_data: 0,
            data_at: 0,
            searched: 0,
            searched_all: 0,
            doubtful: false,
            digest_open: false,
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
                    if self.phase == Phase::Search && self.have == 0 {
                        self.pass_over(rest);
                    }
                    if !self.fill_window(all, rest, time_ns) {
                        return None;
                    }
                    if self.begin(all, rest, digests, &waits) && self.pdu.counts {
                        return Some(PduEvent::Begin);
                    }
                }
                Phase::Body => {
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
                        let (data, after) = rest.split_at(self.data.min(rest.len()));
                        if data.is_empty() {
                            return None;
                        }
                        let at = self.data_at;
                        *rest = after;
                        self.data -= data.len();
                        self.data_at += data.len() as u32;
                        if self.pdu.counts {
                            return Some(PduEvent::Data(at, data));
                        }
                        continue;
                    }
                    let skipped = self.after_data.min(rest.len());
                    *rest = &rest[skipped..];
                    self.after_data -= skipped;
                    if self.after_data > 0 {
                        return None;
                    }
                    self.phase = Phase::Header;
                    if self.pdu.counts {
                        return Some(PduEvent::End);
                    }
                }
            }
        }
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
        self.skip = if skipped < self.skip { self.skip - skipped } else { place - passed };
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
        let is_likely = is_credible(&bhs) && (self.phase == Phase::Header || is_search_worthy(&bhs));
        if !(is_likely || is_due && is_possible(&bhs)) {
            if self.phase == Phase::Header {
                self.phase = Phase::Search;
                self.doubtful = true;
                self.searched = 0;
            }
            self.pass_window(all, rest);
            return false;
        }
        // Where a header is now says what was between the last data and it.
        let is_behind_digest = self.digest_open && self.searched == DIGEST_BYTES as u64;
        if self.digest_open && (is_behind_digest || self.phase == Phase::Header) {
            digests.data.get_or_insert(is_behind_digest);
        }
        if digests.header.is_none() {
            digests.header = header_digest(&self.window, &bhs, rest);
        }
        let header = digests.header == Some(true);
        let data = bhs.data_len();
        let with_digest = digests.data == Some(true) && data > 0;
        self.before_data = bhs.ahs_len() + if header { DIGEST_BYTES } else { 0 };
        self.data = data;
        self.after_data = padded(data) - data + if with_digest { DIGEST_BYTES } else { 0 };
        self.digest_open = data > 0 && digests.data.is_none();
        let left = self.before_data + self.data + self.after_data;
        let ends_here = left == rest.len() || self.digest_open && left + DIGEST_BYTES == rest.len();
        let known =
            matches!(bhs.kind(), Opcode::DataIn | Opcode::DataOut | Opcode::R2t | Opcode::ScsiResponse)
                && waits(bhs.initiator_task_tag.get());
        // A command that begins with its segment, and asks for as many bytes as it has blocks of.
        let begins_here = self.pdu.at == 0 && bhs.kind() == Opcode::ScsiCommand && is_consistent(&bhs);
        let counts = self.phase == Phase::Header || known || ends_here || begins_here || is_behind_digest;
        self.pdu = Pdu { bhs, whole: true, counts, len: (BHS_BYTES + left) as u32, ..self.pdu };
        self.doubtful = !counts;
        self.aligned |= self.phase == Phase::Header;
        self.phase = Phase::Body;
        (self.have, self.data_at) = (0, 0);
        if counts {
            self.searched = 0;
        }
        true
    }

    /// So many bytes were not seen (`None`: nobody knows how many). Bytes of data among them, and whether the PDU
    /// under way cannot be read to its end.
    pub fn on_gap(&mut self, len: Option<u32>) -> (u32, bool) {
        let left = self.before_data + self.data + self.after_data;
        match len.map(|len| len as usize) {
            Some(len) if self.phase == Phase::Body && len <= left => {
                let before = self.before_data.min(len);
                let data = self.data.min(len - before);
                self.before_data -= before;
                self.data -= data;
                self.data_at += data as u32;
                self.after_data -= len - before - data;
                self.pdu.whole = false;
                (data as u32, false)
            }
            len => {
                let (under_way, data) = (self.phase == Phase::Body, self.data as u32);
                // The next place behind the gap that is words away from where a PDU begins.
                let ahead = if under_way { left } else { self.skip.wrapping_sub(self.have) };
                self.aligned &= len.is_some();
                let behind = len.filter(|_| self.aligned).map(|len| ahead.wrapping_sub(len) % WORD_BYTES);
                self.skip = behind.unwrap_or(0);
                self.phase = Phase::Search;
                self.doubtful = true;
                self.digest_open = false;
                (self.have, self.searched) = (0, 0);
                self.pdu.whole = false;
                (if under_way { data } else { 0 }, under_way && self.pdu.counts)
            }
        }
    }
}

/// Whether a digest follows a header, if enough is at hand to tell.
fn header_digest(window: &[u8; BHS_BYTES], bhs: &Bhs, rest: &[u8]) -> Option<bool> {
    if bhs.ahs_len() > 0 {
        return None;
    }
    match rest.first_chunk::<DIGEST_BYTES>() {
        Some(found) => Some(*found == digest(window)),
        None if rest.is_empty() && bhs.data_len() == 0 => Some(false),
        None => None,
    }
}
