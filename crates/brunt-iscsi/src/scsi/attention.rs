//! Unit attention conditions (SAM-5, 5.14), which an initiator must receive before its next command is executed. Each
//! nexus has a short queue; when it is full, the most general condition is reported, so that nothing is lost
//! silently.

use brunt_wire::scsi::sense::{Sense, key};

/// Maximum number of conditions queued per nexus.
pub const ATTENTIONS_MAX: usize = 16;

/// A condition to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the standard's names
pub enum Attention {
    PowerOnOrReset,
    ScsiBusReset,
    LogicalUnitReset,
    MediumMayHaveChanged,
    ModeParametersChanged,
    CapacityDataHasChanged,
    ReportedLunsDataHasChanged,
    AsymmetricAccessStateChanged,
    ReservationsPreempted,
    ReservationsReleased,
    RegistrationsPreempted,
    CommandsClearedByAnotherInitiator,
}

impl Attention {
    /// Additional sense code and qualifier.
    pub const fn code(self) -> (u8, u8) {
        match self {
            Attention::PowerOnOrReset => (0x29, 0x00),
            Attention::ScsiBusReset => (0x29, 0x02),
            Attention::LogicalUnitReset => (0x29, 0x03),
            Attention::MediumMayHaveChanged => (0x28, 0x00),
            Attention::ModeParametersChanged => (0x2a, 0x01),
            Attention::CapacityDataHasChanged => (0x2a, 0x09),
            Attention::ReportedLunsDataHasChanged => (0x3f, 0x0e),
            Attention::AsymmetricAccessStateChanged => (0x2a, 0x06),
            Attention::ReservationsPreempted => (0x2a, 0x03),
            Attention::ReservationsReleased => (0x2a, 0x04),
            Attention::RegistrationsPreempted => (0x2a, 0x05),
            Attention::CommandsClearedByAnotherInitiator => (0x2f, 0x00),
        }
    }

    /// The condition as sense data.
    pub const fn sense(self) -> Sense {
        let (asc, ascq) = self.code();
        Sense::new(key::UNIT_ATTENTION, asc, ascq)
    }
}

/// The conditions of one nexus, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Attentions {
    queue: Vec<Attention>,
}

impl Attentions {
    /// Adds a condition. A condition that is already pending isn't queued twice; a reset replaces the conditions that
    /// it makes moot.
    pub fn push(&mut self, attention: Attention) {
        if self.queue.contains(&attention) {
            return;
        }
        if attention.code().0 == 0x29 {
            self.queue.clear();
        }
        if self.queue.len() == ATTENTIONS_MAX {
            self.queue.clear();
            self.queue.push(Attention::PowerOnOrReset);
            return;
        }
        self.queue.push(attention);
    }

    /// Removes and returns the oldest condition.
    pub fn pop(&mut self) -> Option<Attention> {
        if self.queue.is_empty() {
            None
        } else {
            Some(self.queue.remove(0))
        }
    }

    /// Removes a condition that has become moot.
    pub fn forget(&mut self, attention: Attention) {
        self.queue.retain(|pending| *pending != attention);
    }

    /// Whether no condition is pending.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conditions keep their order and aren't queued twice; resets replace other conditions.
    #[test]
    fn conditions_keep_their_order_and_resets_replace_others() {
        let mut a = Attentions::default();
        a.push(Attention::ModeParametersChanged);
        a.push(Attention::ReservationsReleased);
        a.push(Attention::ModeParametersChanged);
        assert_eq!(a.pop(), Some(Attention::ModeParametersChanged));
        a.push(Attention::LogicalUnitReset);
        assert_eq!(a.pop(), Some(Attention::LogicalUnitReset));
        assert!(a.is_empty() && a.pop().is_none());
    }
}
