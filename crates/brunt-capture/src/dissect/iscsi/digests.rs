//! Tracks whether digests follow headers and data: as agreed in the login or, in a session that began before the
//! capture, as inferred from the bytes. Used by [`super::frames`]. The one rule: digests agreed in a login stay in
//! effect; inferred ones are dropped if they lead to a position without a header.

use brunt_wire::iscsi::digest::RunningDigest;
use brunt_wire::iscsi::pdu::{BHS_BYTES, Bhs, DIGEST_BYTES};

/// Which digests are in use; `None` while unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// After headers.
    pub header: Option<bool>,
    /// After data.
    pub data: Option<bool>,
    /// Whether the digests were agreed in a login.
    pub agreed: bool,
}

impl Digests {
    /// No digests, as during a login.
    pub const NONE: Digests = Digests {
        header: Some(false),
        data: Some(false),
        agreed: true,
    };

    /// Whether the use of both digests is known.
    pub fn are_known(self) -> bool {
        self.header.is_some() && self.data.is_some()
    }

    /// The digests led to a position without a header: forgets them unless they were agreed in a login.
    pub fn on_missing_header(&mut self) {
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

/// The part that a digest covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A header and its additional segments.
    Header,
    /// A data segment and its padding.
    Data,
}

/// The bytes expected at the position of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// These bytes.
    Sum([u8; DIGEST_BYTES]),
    /// Unknown because not all covered bytes were captured.
    Unknown,
    /// Other bytes were found at that position.
    Refuted,
}

/// A position in the stream where a digest follows if digests of this kind are in use.
#[derive(Clone, Copy, Debug)]
pub struct OpenDigest {
    part: Part,
    expected: Expected,
}

impl OpenDigest {
    /// The position of a part's digest; `sum` is present if all of the part was captured.
    pub fn new(part: Part, sum: Option<[u8; DIGEST_BYTES]>) -> OpenDigest {
        OpenDigest {
            part,
            expected: sum.map_or(Expected::Unknown, Expected::Sum),
        }
    }

    /// Takes the digest from the start of `rest`, which settles that digests are in use; returns `false` if it is not
    /// there. With too few bytes, nothing is settled. A digest that can't be verified is taken only if digests are
    /// known to be in use.
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

    /// Whether bytes other than the digest were found at its position.
    pub fn is_refuted(&self) -> bool {
        self.expected == Expected::Refuted
    }

    /// Settles whether digests are in use: a header was found after the digest or, with `follows` false, where
    /// the digest would have begun.
    pub fn settle(&self, follows: bool, digests: &mut Digests) {
        digests.of(self.part).get_or_insert(follows);
    }
}

/// Whether a header is followed by its digest, if there are enough bytes to tell.
pub fn header_digest(window: &[u8; BHS_BYTES], bhs: &Bhs, rest: &[u8]) -> Option<bool> {
    let (segments, behind) = rest.split_at_checked(bhs.ahs_len())?;
    let found = behind.first_chunk::<DIGEST_BYTES>()?;
    let mut sum = RunningDigest::default();
    sum.add(window);
    sum.add(segments);
    Some(*found == sum.so_far())
}
