//! Which digests follow headers and data: what the login said or, in a session that began before the capture, what the
//! bytes show. Used by [`super::frames`]. The one rule: what a login agreed on holds; what was found out is forgotten
//! when no header is where it led to.

use brunt_wire::iscsi::digest::RunningDigest;
use brunt_wire::iscsi::pdu::{BHS_BYTES, Bhs, DIGEST_BYTES};

/// Which digests there are; `None` while it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// After headers.
    pub header: Option<bool>,
    /// After data.
    pub data: Option<bool>,
    /// A login said so.
    pub agreed: bool,
}

impl Digests {
    /// None at all, as during a login.
    pub const NONE: Digests = Digests {
        header: Some(false),
        data: Some(false),
        agreed: true,
    };

    /// Whether both are known.
    pub fn are_known(self) -> bool {
        self.header.is_some() && self.data.is_some()
    }

    /// There was no header where they led to.
    pub fn led_astray(&mut self) {
        if !self.agreed {
            *self = Digests::default();
        }
    }

    fn of(&mut self, part: Part) -> &mut Option<bool> {
        match part {
            Part::Header => &mut self.header,
            Part::Data => &mut self.data,
        }
    }
}

/// What a digest is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A header and its additional segments.
    Header,
    /// A data segment and its padding.
    Data,
}

/// What would be next if a digest were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// These bytes.
    Sum([u8; DIGEST_BYTES]),
    /// Nobody knows: not all bytes that it is computed of were seen.
    Unknown,
    /// Others were there.
    Refuted,
}

/// A place in the stream where a digest is, if there are any of its kind.
#[derive(Clone, Copy, Debug)]
pub struct OpenDigest {
    part: Part,
    expected: Expected,
}

impl OpenDigest {
    /// Of a part, all of which was seen if `sum` is there.
    pub fn new(part: Part, sum: Option<[u8; DIGEST_BYTES]>) -> OpenDigest {
        OpenDigest {
            part,
            expected: sum.map_or(Expected::Unknown, Expected::Sum),
        }
    }

    /// Takes the digest out of `rest`, which begins at its place, and settles that there are some; `false` if it is not
    /// there. Fewer bytes than a digest has say nothing. One that cannot be computed is there when others are.
    pub fn take(&mut self, rest: &mut &[u8], digests: &mut Digests) -> bool {
        let Some((found, behind)) = rest.split_first_chunk::<DIGEST_BYTES>() else {
            return false;
        };
        let is_there = match self.expected {
            Expected::Sum(sum) => *found == sum,
            Expected::Unknown => *digests.of(self.part) == Some(true),
            Expected::Refuted => false,
        };
        match (is_there, self.expected) {
            (true, _) => {
                *digests.of(self.part) = Some(true);
                *rest = behind;
            }
            (false, Expected::Sum(_)) => self.expected = Expected::Refuted,
            (false, _) => {}
        }
        is_there
    }

    /// Whether other bytes were at its place.
    pub fn is_refuted(&self) -> bool {
        self.expected == Expected::Refuted
    }

    /// A header was found behind a digest or, with `follows` false, where the digest would have begun.
    pub fn settle(&self, follows: bool, digests: &mut Digests) {
        digests.of(self.part).get_or_insert(follows);
    }
}

/// Whether the digest of a header is what follows it, if enough is at hand to tell.
pub fn header_digest(window: &[u8; BHS_BYTES], bhs: &Bhs, rest: &[u8]) -> Option<bool> {
    let (segments, behind) = rest.split_at_checked(bhs.ahs_len())?;
    let found = behind.first_chunk::<DIGEST_BYTES>()?;
    let mut sum = RunningDigest::default();
    sum.add(window);
    sum.add(segments);
    Some(*found == sum.so_far())
}
