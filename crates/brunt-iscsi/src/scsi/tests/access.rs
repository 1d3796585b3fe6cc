//! Asymmetric access: which commands each port state allows, and which nexuses are notified of a change.

use brunt_wire::scsi::alua::{AccessState, PortGroup};

use super::*;
use crate::scsi::Alua;

const CHANGED: (u8, u8, u8) = (key::UNIT_ATTENTION, 0x2a, 0x06);

fn two_ports(alua: Alua) -> Arc<LogicalUnit> {
    let group = PortGroup::new;
    let target_ports = vec![
        group(1, AccessState::ActiveOptimized),
        group(2, AccessState::ActiveNonOptimized),
    ];
    unit(
        true,
        LunOptions {
            target_ports,
            alua,
            ..LunOptions::default()
        },
    )
}

fn not_ready(qualifier: u8) -> (u8, u8, u8) {
    (key::NOT_READY, 0x04, qualifier)
}

fn report_groups() -> [u8; 12] {
    cdb12(op::MAINTENANCE_IN, op::SA_REPORT_TARGET_PORT_GROUPS, 0, 255)
}

/// INQUIRY, page 83h and REPORT TARGET PORT GROUPS describe the ports of a unit with two groups.
#[test]
fn a_unit_describes_its_port_groups() {
    for (alua, tpgs) in [
        (Alua::Off, 0),
        (Alua::Implicit, 1),
        (Alua::Explicit, 2),
        (Alua::Both, 3),
    ] {
        let unit = two_ports(alua);
        let mut c = Client::through(&unit, "a", 2);
        assert_eq!(
            c.good(&[op::INQUIRY, 0, 0, 0, 96, 0], &[])[5] >> 4 & 3,
            tpgs
        );
        let page = c.good(&[op::INQUIRY, 1, 0x83, 4, 0, 0], &[]);
        let designator = |kind: u8| -> Option<Vec<u8>> {
            let mut at = 4;
            while at < page.len() {
                let end = at + 4 + usize::from(page[at + 3]);
                if page[at + 1] & 0x3f == kind {
                    return Some(page[at + 4..end].to_vec());
                }
                at = end;
            }
            None
        };
        assert_eq!(
            designator(0x14),
            Some(vec![0, 0, 0, 2]),
            "relative target port"
        );
        assert_eq!(
            designator(0x15),
            (tpgs > 0).then(|| vec![0, 0, 0, 2]),
            "target port group"
        );
        if tpgs == 0 {
            assert_eq!(c.code(&report_groups()), FIELD);
            continue;
        }
        let groups = c.good(&report_groups(), &[]);
        let expected = [
            0, 0, 0, 24, 0, 0xcf, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0xcf, 0, 2, 0, 0, 0, 1, 0, 0, 0,
            2,
        ];
        assert_eq!(groups, expected);
        let mut extended = report_groups();
        extended[1] |= 0x20;
        assert_eq!(c.good(&extended, &[])[4], 0x10);
        extended[1] |= 0x40;
        assert_eq!(c.code(&extended), FIELD);
    }
}

/// Each state allows what the standard permits, and only at its own port; every nexus is notified of a change once.
#[test]
fn each_state_allows_what_the_standard_says() {
    let unit = two_ports(Alua::Implicit);
    let mut here = Client::through(&unit, "a", 1);
    let mut there = Client::through(&unit, "a", 2);
    let read = [op::READ_10, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let write = [op::WRITE_10, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let unmap = [op::SYNCHRONIZE_CACHE_10, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let capacity = [op::READ_CAPACITY_10, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mode = [op::MODE_SENSE_6, 0x08, 0x3f, 0, 255, 0];
    let report = [op::REPORT_LUNS, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    let mut refused = 0;
    let states = [
        (AccessState::Standby, 0x0b),
        (AccessState::Unavailable, 0x0c),
        (AccessState::Offline, 0x12),
        (AccessState::Transitioning, 0x0a),
    ];
    for (state, qualifier) in states {
        unit.set_access(1, state).unwrap();
        assert_eq!(
            (here.code(&[0; 6]), there.code(&[0; 6])),
            (CHANGED, CHANGED)
        );
        for cdb in [&[0; 6][..], &read, &unmap] {
            assert_eq!(
                (here.code(cdb), there.code(cdb)),
                (not_ready(qualifier), GOOD),
                "{state:?} {cdb:?}"
            );
        }
        assert_eq!(here.code_with(&write, &[1; 512]), not_ready(qualifier));
        assert_eq!(there.code_with(&write, &[1; 512]), GOOD);
        refused += 4;
        for cdb in [&capacity[..], &mode] {
            let standby = state == AccessState::Standby;
            assert_eq!(
                here.code(cdb),
                if standby { GOOD } else { not_ready(qualifier) },
                "{state:?} {cdb:?}"
            );
            refused += u64::from(!standby);
        }
        let always: [&[u8]; 3] = [&[op::INQUIRY, 0, 0, 0, 36, 0], &report, &report_groups()];
        for cdb in always {
            assert_eq!(here.code(cdb), GOOD, "{state:?} {cdb:?}");
        }
        let sense = here.good(&[op::REQUEST_SENSE, 0, 0, 0, 252, 0], &[]);
        assert_eq!((sense[2], sense[12], sense[13]), not_ready(qualifier));
    }
    let told = unit.access();
    assert_eq!((told.refused, told.notified), (refused, 8));
    assert_eq!(
        unit.set_access(1, AccessState::ActiveNonOptimized).unwrap(),
        AccessState::Transitioning
    );
    assert_eq!((here.code(&read), here.code(&read)), (CHANGED, GOOD));
    // Setting the current state again causes no notification.
    assert_eq!(there.code(&read), CHANGED);
    unit.set_access(1, AccessState::ActiveNonOptimized).unwrap();
    assert_eq!((here.code(&read), there.code(&read)), (GOOD, GOOD));
    assert!(unit.set_access(3, AccessState::Standby).is_err());
}

/// Groups are added and removed; remaining groups keep their state unless it is set.
#[test]
fn groups_that_stay_keep_their_state() {
    let unit = two_ports(Alua::Implicit);
    let mut client = Client::through(&unit, "a", 1);
    unit.set_access(2, AccessState::Standby).unwrap();
    assert_eq!(client.code(&[0; 6]), CHANGED);
    let given = [2, 3, 1].map(|id| PortGroup::new(id, AccessState::ActiveOptimized));
    unit.renew_groups(&given, &[]);
    assert_eq!(
        (client.code(&[0; 6]), client.code(&[0; 6])),
        (CHANGED, GOOD)
    );
    let states = |unit: &LogicalUnit| -> Vec<(u16, u8)> {
        unit.access()
            .groups
            .iter()
            .map(|group| (group.id, group.state.code()))
            .collect()
    };
    assert_eq!(states(&unit), [(2, 2), (3, 0), (1, 0)]);
    unit.renew_groups(&given, &[]);
    assert_eq!(client.code(&[0; 6]), GOOD, "no change");
    unit.renew_groups(&given[..2], &[2]);
    assert_eq!(
        (client.code(&[0; 6]), states(&unit)),
        (CHANGED, vec![(2, 0), (3, 0)])
    );
}

/// An initiator changes states if that is allowed, either with the whole list or not at all; other nexuses are
/// notified.
#[test]
fn an_initiator_sets_all_listed_states_or_none() {
    let set = |len: u8| {
        cdb12(
            op::MAINTENANCE_OUT,
            op::SA_SET_TARGET_PORT_GROUPS,
            0,
            u32::from(len),
        )
    };
    let mut refusing = Client::through(&two_ports(Alua::Implicit), "a", 1);
    assert_eq!(
        refusing.code_with(&set(8), &[0; 8]),
        (key::ILLEGAL_REQUEST, 0x20, 0)
    );
    let unit = two_ports(Alua::Both);
    let mut here = Client::through(&unit, "a", 1);
    let mut there = Client::through(&unit, "b", 2);
    let swap = [0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 2];
    assert_eq!(there.code_with(&set(12), &swap), GOOD);
    assert_eq!(
        (here.code(&[0; 6]), here.code(&[0; 6])),
        (CHANGED, not_ready(0x0b))
    );
    assert_eq!(there.code(&[0; 6]), GOOD);
    let groups = there.good(&report_groups(), &[]);
    // The state, and the status code that says it was set by SET TARGET PORT GROUPS.
    assert_eq!((groups[4], groups[9], groups[16], groups[21]), (2, 1, 0, 1));
    let parameter = (key::ILLEGAL_REQUEST, 0x26, 0);
    assert_eq!(
        there.code_with(&set(8), &[0, 0, 0, 0, 0xf, 0, 0, 1]),
        parameter,
        "transitioning"
    );
    assert_eq!(
        there.code_with(&set(8), &[0, 0, 0, 0, 0, 0, 0, 9]),
        parameter,
        "no such group"
    );
    assert_eq!(
        there.code_with(&set(10), &[0; 10]),
        (key::ILLEGAL_REQUEST, 0x1a, 0)
    );
    assert_eq!(
        (unit.access().groups[0].id, unit.access().groups[0].state),
        (1, AccessState::Standby)
    );
    assert_eq!(
        there.code_with(&set(8), &[0, 0, 0, 0, 0xe, 0, 0, 1]),
        GOOD,
        "a port's relative identifier"
    );
    assert_eq!(
        (here.code(&[0; 6]), here.code(&[0; 6])),
        (CHANGED, not_ready(0x12))
    );
}

/// Initiators are notified of a changed preference; a new state leaves the preference unchanged.
#[test]
fn initiators_are_notified_of_a_changed_preference() {
    let unit = two_ports(Alua::Implicit);
    let mut client = Client::through(&unit, "a", 1);
    unit.set_preferred(2, true).unwrap();
    assert_eq!(
        (client.code(&[0; 6]), client.code(&[0; 6])),
        (CHANGED, GOOD)
    );
    unit.set_preferred(2, true).unwrap();
    assert_eq!(client.code(&[0; 6]), GOOD, "no change");
    unit.set_access(2, AccessState::Standby).unwrap();
    assert_eq!(client.code(&[0; 6]), CHANGED);
    let groups = client.good(&report_groups(), &[]);
    // The second group's status code still says that its state was set implicitly.
    assert_eq!((groups[4], groups[16], groups[21]), (0, 0x82, 2));
    assert!(unit.set_preferred(3, true).is_err());
}
