//! Asymmetric logical unit access (SPC-4, 5.15): REPORT and SET TARGET PORT GROUPS. Called by the
//! device server. The one rule: an initiator's list is parsed completely before any of it takes effect.

/// How a logical unit can be accessed through a group of target ports (SPC-4, table 247).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the standard's own names
pub enum AccessState {
    #[default]
    ActiveOptimized,
    ActiveNonOptimized,
    Standby,
    Unavailable,
    Offline,
    Transitioning,
}

impl AccessState {
    /// The code of the state.
    pub const fn code(self) -> u8 {
        match self {
            AccessState::ActiveOptimized => 0x0,
            AccessState::ActiveNonOptimized => 0x1,
            AccessState::Standby => 0x2,
            AccessState::Unavailable => 0x3,
            AccessState::Offline => 0xe,
            AccessState::Transitioning => 0xf,
        }
    }

    /// The state with this code, if an initiator may set it; it cannot set "transitioning" (SPC-4, 6.45).
    pub const fn settable(code: u8) -> Option<AccessState> {
        match code {
            0x0 => Some(AccessState::ActiveOptimized),
            0x1 => Some(AccessState::ActiveNonOptimized),
            0x2 => Some(AccessState::Standby),
            0x3 => Some(AccessState::Unavailable),
            // Offline is the state of a single port, whose relative identifier equals the number of its group.
            0xe => Some(AccessState::Offline),
            _ => None,
        }
    }
}

/// T_SUP, O_SUP, U_SUP, S_SUP, AN_SUP and AO_SUP: all states except LBA dependent.
const STATES_SUPPORTED: u8 = 0xcf;
/// PREF: the group is preferred, regardless of its state.
const PREFERRED: u8 = 0x80;

/// Why a group is in its state (SPC-4, table 298).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusCode {
    /// The state has not changed since the start.
    #[default]
    None,
    /// Set by SET TARGET PORT GROUPS.
    Explicit,
    /// Set by the target itself.
    Implicit,
}

/// A target port group with a single port, whose relative identifier is the group's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// The group's number.
    pub id: u16,
    /// The group's state.
    pub state: AccessState,
    /// PREF: initiators should use the group where possible.
    pub preferred: bool,
    /// Why the group is in its state.
    pub status: StatusCode,
}

impl PortGroup {
    /// Creates a group with this initial state.
    pub const fn new(id: u16, state: AccessState) -> PortGroup {
        PortGroup {
            id,
            state,
            preferred: false,
            status: StatusCode::None,
        }
    }

    fn first_byte(&self) -> u8 {
        self.state.code() | if self.preferred { PREFERRED } else { 0 }
    }
}

/// The parameter data of REPORT TARGET PORT GROUPS (SPC-4, 6.37), with the extended header if `extended`.
pub fn report(groups: &[PortGroup], extended: bool) -> Vec<u8> {
    let mut out = vec![0; 4];
    if extended {
        // Format type 1; the implicit transition time is not reported.
        out.extend_from_slice(&[0x10, 0, 0, 0]);
    }
    for group in groups {
        let [high, low] = group.id.to_be_bytes();
        out.extend_from_slice(&[
            group.first_byte(),
            STATES_SUPPORTED,
            high,
            low,
            0,
            group.status as u8,
            0,
            1,
        ]);
        out.extend_from_slice(&[0, 0, high, low]);
    }
    let length = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

/// The groups and state codes in a SET TARGET PORT GROUPS parameter list (SPC-4, 6.45), in order; `None` if the list
/// ends within its header or a descriptor.
pub fn parse_set(list: &[u8]) -> Option<Vec<(u16, u8)>> {
    let descriptors = list.get(4..)?;
    let (whole, rest) = descriptors.as_chunks::<4>();
    rest.is_empty().then(|| {
        whole
            .iter()
            .map(|[state, _, high, low]| (u16::from_be_bytes([*high, *low]), state & 0x0f))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output matches what sg_rtpg decodes: two groups of one port each.
    #[test]
    fn a_report_of_two_groups_matches_sg_rtpg() {
        let groups = [
            PortGroup {
                preferred: true,
                ..PortGroup::new(1, AccessState::ActiveOptimized)
            },
            PortGroup {
                status: StatusCode::Implicit,
                ..PortGroup::new(0x0102, AccessState::Transitioning)
            },
        ];
        let expected = [
            0, 0, 0, 24, 0x80, 0xcf, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0x0f, 0xcf, 1, 2, 0, 2, 0, 1, 0,
            0, 1, 2,
        ];
        assert_eq!(report(&groups, false), expected);
        let extended = report(&groups, true);
        assert_eq!(
            (extended[3], &extended[4..8], &extended[8..]),
            (28, &[0x10, 0, 0, 0][..], &expected[4..])
        );
    }

    /// A list of any length is parsed completely or not at all.
    #[test]
    fn a_list_is_parsed_completely_or_not_at_all() {
        let list = [0, 0, 0, 0, 0x02, 0, 0, 1, 0x00, 0, 0, 2];
        assert_eq!(parse_set(&list), Some(vec![(1, 2), (2, 0)]));
        for end in 0..list.len() {
            assert_eq!(
                parse_set(&list[..end]).is_some(),
                end >= 4 && end % 4 == 0,
                "{end}"
            );
        }
        assert_eq!(AccessState::settable(0xf), None);
        assert_eq!(AccessState::settable(0xe), Some(AccessState::Offline));
    }
}
