//! One direction of an iSCSI connection as PDUs (RFC 7143, 11.2): where headers are, which bytes are data, and the way
//! back after a gap or into a session that began before the capture. Fed by [`super::Iscsi`] with bytes, asked for one
//! event after another. The one rule: after a search a PDU counts only when something else speaks for it: a task that
//! waits, the beginning of its segment (of a command whose lengths agree), its end, or a header right behind it.

use brunt_wire::iscsi::digest::digest;
use brunt_wire::iscsi::pdu::{self, BHS_BYTES, Bhs, DIGEST_BYTES, FLAG_FINAL, Opcode, RESERVED_TAG, padded};
use brunt_wire::scsi::cdb::{Transfer, op};

/// The longest data segment that is believed: targets and initiators announce 256 KiB, and seldom 1 MiB or more.
const DATA_BYTES_MAX: usize = 8 << 20;
/// Additional header segments in four-byte words: a CDB of 260 bytes and a bidirectional length (11.2.2).
const AHS_WORDS_MAX: u8 = 66;
/// The longest data segment of other PDUs in a search: MaxRecvDataSegmentLength where nothing was said (13.12).
const TEXT_BYTES_MAX: usize = 8 << 10;
/// Bytes that are searched before the connection is anybody's who wants it.
const SEARCH_BYTES_MAX: u64 = 1 << 20;

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
        }
    }
}

/// Whether these can be the first 48 bytes of a PDU where one has to begin. What is reserved is not looked at:
/// libiscsi 1.19 leaves bytes of an earlier CDB behind a shorter one.
fn is_possible(bhs: &Bhs) -> bool {
    bhs.opcode & 0x80 == 0
        && !matches!(bhs.kind(), Opcode::Other(_))
        && bhs.total_ahs_length <= AHS_WORDS_MAX
        && bhs.data_len() <= DATA_BYTES_MAX
}

/// Whether these may be the first 48 bytes of a PDU: what the RFC reserves is zero, and lengths make sense.
pub fn is_credible(bhs: &Bhs) -> bool {
    if !is_possible(bhs) {
        return false;
    }
    let (b, tag) = (bhs.flags, bhs.initiator_task_tag.get());
    let no_ahs = bhs.total_ahs_length == 0;
    let tagged = tag != RESERVED_TAG;
    let lun = bhs.lun[2..] == [0; 6];
    match bhs.kind() {
        Opcode::ScsiCommand => {
            let command = pdu::ScsiCommand::view(bhs);
            b & 0x18 == 0
                && b & 0x07 <= 4
                && bhs.specific == [0; 2]
                && lun
                && tagged
                && bhs.data_len() as u64 <= u64::from(command.expected_data_transfer_length.get())
                && brunt_wire::scsi::cdb::length(command.cdb[0])
                    .is_some_and(|len| command.cdb[usize::from(len)..].iter().all(|byte| *byte == 0))
        }
        Opcode::DataOut => {
            let data = pdu::DataOut::view(bhs);
            b & 0x7f == 0
                && no_ahs
                && bhs.specific == [0; 2]
                && tagged
                && bhs.data_len() > 0
                && (data.reserved2, data.reserved3, data.reserved4) == ([0; 4], [0; 4], [0; 4])
        }
        Opcode::DataIn => no_ahs && tagged && b & 0x38 == 0 && bhs.specific[0] == 0 && lun,
        Opcode::R2t => {
            let r2t = pdu::R2t::view(bhs);
            b == FLAG_FINAL
                && no_ahs
                && tagged
                && bhs.data_len() == 0
                && r2t.desired_data_transfer_length.get() > 0
                && r2t.target_transfer_tag.get() != RESERVED_TAG
        }
        Opcode::ScsiResponse => no_ahs && tagged && b & 0xe1 == FLAG_FINAL && bhs.lun == [0; 8],
        Opcode::TaskManagementRequest | Opcode::TaskManagementResponse => {
            no_ahs && tagged && b & FLAG_FINAL != 0 && bhs.data_len() == 0
        }
        Opcode::NopOut | Opcode::NopIn => b == FLAG_FINAL && no_ahs && bhs.specific == [0; 2],
        Opcode::LoginRequest | Opcode::LoginResponse => {
            no_ahs && b & 0x30 == 0 && tagged && bhs.specific == [0; 2]
        }
        Opcode::TextRequest | Opcode::TextResponse => no_ahs && b & 0x3f == 0 && tagged,
        Opcode::LogoutRequest | Opcode::LogoutResponse => {
            no_ahs && b & FLAG_FINAL != 0 && bhs.data_len() == 0
        }
        Opcode::SnackRequest => no_ahs && b & 0xf0 == FLAG_FINAL && bhs.data_len() == 0,
        Opcode::AsyncMessage | Opcode::Reject => no_ahs && b == FLAG_FINAL && tag == RESERVED_TAG,
        Opcode::Other(_) => false,
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
                    if !self.fill_window(all, rest, time_ns) {
                        return None;
                    }
                    if self.begin(rest, digests, &waits) && self.pdu.counts {
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

    /// Gathers the 48 bytes of a header, or the next byte of a search; `false` when more are needed.
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

    /// Looks at the header that was gathered; whether it is one.
    fn begin(&mut self, rest: &[u8], digests: &mut Digests, waits: &impl Fn(u32) -> bool) -> bool {
        let bhs = *Bhs::peek(&self.window).expect("48 bytes");
        let is_due = self.phase == Phase::Header && !self.doubtful && digests.are_known();
        let is_likely = is_credible(&bhs) && (self.phase == Phase::Header || is_search_worthy(&bhs));
        if !(is_likely || is_due && is_possible(&bhs)) {
            // One byte further.
            if self.phase == Phase::Header {
                self.phase = Phase::Search;
                self.doubtful = true;
                self.searched = 0;
            }
            // At once to the next place in the window where a header can begin.
            let passed = (1..BHS_BYTES).find(|at| may_begin(&self.window[*at..])).unwrap_or(BHS_BYTES);
            self.searched += passed as u64;
            self.searched_all += passed as u64;
            self.window.copy_within(passed.., 0);
            self.have -= passed;
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
            Some(len) if self.phase == Phase::Body && len <= left && self.before_data == 0 => {
                let data = self.data.min(len);
                self.data -= data;
                self.data_at += data as u32;
                self.after_data -= len - data;
                self.pdu.whole = false;
                (data as u32, false)
            }
            _ => {
                let (under_way, data) = (self.phase == Phase::Body, self.data as u32);
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

/// Whether a search may stop at a credible header. Little of text, logins and NOPs is reserved, and they are short: what
/// looks like a long one in data would have megabytes passed over.
fn is_search_worthy(bhs: &Bhs) -> bool {
    let is_io = matches!(
        bhs.kind(),
        Opcode::ScsiCommand | Opcode::DataOut | Opcode::DataIn | Opcode::R2t | Opcode::ScsiResponse
    );
    is_io || bhs.data_len() <= TEXT_BYTES_MAX
}

/// Whether a header may begin with these bytes: most others are passed over by their first five.
fn may_begin(bytes: &[u8]) -> bool {
    let opcode = bytes[0] & 0x3f;
    let is_opcode = bytes[0] & 0x80 == 0 && matches!(opcode, 0..=6 | 0x10 | 0x20..=0x26 | 0x31 | 0x32 | 0x3f);
    let is_final = opcode & 0x1f > 0 || bytes.get(1).is_none_or(|flags| *flags == FLAG_FINAL);
    is_opcode && is_final && bytes.get(4).is_none_or(|words| *words <= AHS_WORDS_MAX)
}

/// Whether a command reads or writes blocks of a length that blocks have.
fn is_consistent(bhs: &Bhs) -> bool {
    let command = pdu::ScsiCommand::view(bhs);
    let blocks = match command.cdb[0] {
        op::READ_10 | op::READ_12 | op::READ_16 | op::WRITE_10 | op::WRITE_12 | op::WRITE_16 => {
            Transfer::decode(&command.cdb).blocks
        }
        _ => return false,
    };
    let bytes = command.expected_data_transfer_length.get();
    let is_length = |bytes| matches!(bytes, 512 | 520 | 528 | 2048 | 4096 | 4160 | 8192);
    blocks > 0 && bytes.is_multiple_of(blocks) && is_length(bytes / blocks)
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
