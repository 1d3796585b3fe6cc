//! The numbers that a dissector's position in the table determines. The one rule: a dissector uses them through its id,
//! and never names the table, which names all dissectors.

use super::DissectorId;
use crate::operation::{OperationKind, Protocol};

/// A dissector's numbers: those of its kinds, protocols and counters.
pub trait Registered: DissectorId {
    /// The number of its first kind of operation.
    const FIRST_KIND: u16;
    /// Number of its kinds.
    const KIND_COUNT: usize;
    /// The number of its first protocol.
    const FIRST_PROTOCOL: u8;
    /// Number of its protocols.
    const PROTOCOL_COUNT: usize;
    /// The number of its first counter.
    const FIRST_COUNTER: usize;
    /// Number of its counters.
    const COUNTER_COUNT: usize;
}

impl OperationKind {
    /// A dissector's kind, by its index among that dissector's kinds.
    pub(crate) const fn of<D: Registered>(place: u16) -> OperationKind {
        assert!((place as usize) < D::KIND_COUNT);
        OperationKind::numbered(D::FIRST_KIND + place)
    }
}

impl Protocol {
    /// A dissector's protocol, by its index among that dissector's protocols.
    pub(crate) const fn of<D: Registered>(place: u8) -> Protocol {
        assert!((place as usize) < D::PROTOCOL_COUNT);
        Protocol::numbered(D::FIRST_PROTOCOL + place)
    }
}
