//! The numbers that follow from a dissector's position in the table. The one rule: a dissector gets them through its
//! id and never refers to the table, which refers to all dissectors.

use super::DissectorId;
use crate::operation::{OperationKind, Protocol};

/// The numbers of a dissector's kinds, protocols and counters.
pub trait Registered: DissectorId {
    /// The number of its first kind of operation.
    const FIRST_KIND: u16;
    /// The number of kinds.
    const KIND_COUNT: usize;
    /// The number of its first protocol.
    const FIRST_PROTOCOL: u8;
    /// The number of protocols.
    const PROTOCOL_COUNT: usize;
    /// The number of its first counter.
    const FIRST_COUNTER: usize;
    /// The number of counters.
    const COUNTER_COUNT: usize;
}

impl OperationKind {
    /// A kind of this dissector, by its index among the dissector's kinds.
    pub(crate) const fn of<D: Registered>(place: u16) -> OperationKind {
        assert!((place as usize) < D::KIND_COUNT);
        OperationKind::numbered(D::FIRST_KIND + place)
    }
}

impl Protocol {
    /// A protocol of this dissector, by its index among the dissector's protocols.
    pub(crate) const fn of<D: Registered>(place: u8) -> Protocol {
        assert!((place as usize) < D::PROTOCOL_COUNT);
        Protocol::numbered(D::FIRST_PROTOCOL + place)
    }
}
