//! Tests of the service actions, the access that reservations allow, and the saved text.

use super::*;
use ReservationType::*;

fn port(name: &str) -> PortPair {
    PortPair {
        initiator_port: format!("iqn.x:{name},i,0x1"),
        target_port: 1,
    }
}

fn list(key: u64, service_action_key: u64) -> OutList {
    OutList {
        key,
        service_action_key,
        ..OutList::default()
    }
}

/// A reservation of `kind` held by a, with b registered and c not registered.
fn held(kind: ReservationType) -> Reservations {
    let mut r = Reservations::default();
    r.out(&port("a"), out::REGISTER, 0, &list(0, 1), &[1])
        .unwrap();
    r.out(&port("b"), out::REGISTER, 0, &list(0, 2), &[1])
        .unwrap();
    r.out(&port("a"), out::RESERVE, kind as u8, &list(1, 0), &[1])
        .unwrap();
    r
}

/// SPC-4's conflict table, for the holder, a registrant and an unregistered nexus.
#[test]
fn access_follows_the_conflict_table_of_spc_4() {
    // Columns: type, whether registrants may read, whether they may write, whether unregistered nexuses may read
    // (these never write).
    let table = [
        (WriteExclusive, true, false, true),
        (ExclusiveAccess, false, false, false),
        (WriteExclusiveRegistrantsOnly, true, true, true),
        (ExclusiveAccessRegistrantsOnly, true, true, false),
        (WriteExclusiveAllRegistrants, true, true, true),
        (ExclusiveAccessAllRegistrants, true, true, false),
    ];
    for (kind, registrant_reads, registrant_writes, stranger_reads) in table {
        let r = held(kind);
        assert_eq!(
            r.allowed(&port("a")),
            Allowed {
                read: true,
                write: true
            },
            "{kind:?}"
        );
        let registrant = Allowed {
            read: registrant_reads,
            write: registrant_writes,
        };
        assert_eq!(r.allowed(&port("b")), registrant, "{kind:?}");
        assert_eq!(
            r.allowed(&port("c")),
            Allowed {
                read: stranger_reads,
                write: false
            },
            "{kind:?}"
        );
    }
}

/// A wrong key, an unregistered nexus and a second reservation are conflicts that change nothing.
#[test]
fn conflicts_change_nothing() {
    let check = |who: &str, action, scope_type, list: OutList, expected| {
        let mut r = held(WriteExclusive);
        let before = r.clone();
        assert_eq!(
            r.out(&port(who), action, scope_type, &list, &[1]),
            Err(expected)
        );
        assert_eq!(r, before);
    };
    let bad = |asc, ascq| ReservationRefusal::Check(Sense::new(key::ILLEGAL_REQUEST, asc, ascq));
    check(
        "a",
        out::REGISTER,
        0,
        list(9, 5),
        ReservationRefusal::Conflict,
    );
    check(
        "c",
        out::REGISTER,
        0,
        list(9, 5),
        ReservationRefusal::Conflict,
    );
    check(
        "c",
        out::RESERVE,
        1,
        list(0, 0),
        ReservationRefusal::Conflict,
    );
    check(
        "b",
        out::RESERVE,
        1,
        list(2, 0),
        ReservationRefusal::Conflict,
    );
    check(
        "a",
        out::RESERVE,
        3,
        list(1, 0),
        ReservationRefusal::Conflict,
    );
    check("a", out::RELEASE, 3, list(1, 0), bad(0x26, 0x04));
    check("a", out::RESERVE, 2, list(1, 0), bad_cdb(2));
    check("a", out::RESERVE, 0x11, list(1, 0), bad_cdb(2));
    check(
        "b",
        out::PREEMPT,
        1,
        list(2, 7),
        ReservationRefusal::Conflict,
    );
    check("b", out::PREEMPT, 1, list(2, 0), bad_list(8));
    check("c", out::CLEAR, 0, list(0, 0), ReservationRefusal::Conflict);
    check(
        "b",
        out::REGISTER_AND_MOVE,
        0,
        list(2, 5),
        ReservationRefusal::Conflict,
    );
    check("a", out::REGISTER_AND_MOVE, 0, list(1, 0), bad_list(8));
    check("a", 8, 0, list(1, 0), bad_cdb(1));
}

/// A release notifies the other registrants only if the reservation type gives access to registrants.
#[test]
fn a_release_notifies_the_other_registrants_only_with_registrants_types() {
    for kind in ReservationType::ALL {
        let mut r = held(kind);
        let effects = r
            .out(&port("a"), out::RELEASE, kind as u8, &list(1, 0), &[1])
            .unwrap();
        let told = if kind.registrants_allowed() {
            vec![(port("b"), Attention::ReservationsReleased)]
        } else {
            Vec::new()
        };
        assert_eq!((effects.attentions, r.is_held()), (told, false), "{kind:?}");
        // A second release, and a release by another registrant, return GOOD without effect.
        assert!(
            r.out(&port("b"), out::RELEASE, kind as u8, &list(2, 0), &[1])
                .is_ok()
        );
    }
}

/// The reservation ends with its holder's registration or with the last registration.
#[test]
fn a_reservation_ends_with_its_holders_or_the_last_registration() {
    for kind in ReservationType::ALL {
        let mut r = held(kind);
        r.out(&port("a"), out::REGISTER, 0, &list(1, 0), &[1])
            .unwrap();
        assert_eq!(r.is_held(), kind.all_registrants(), "{kind:?}");
        r.out(
            &port("b"),
            out::REGISTER_AND_IGNORE_EXISTING_KEY,
            0,
            &list(0, 0),
            &[1],
        )
        .unwrap();
        assert!(!r.is_held() && !r.any_registered(), "{kind:?}");
    }
}

/// Preempting takes over the reservation or only removes registrations.
#[test]
fn preempting_takes_over_the_reservation_or_removes_registrations() {
    let mut r = held(ExclusiveAccess);
    let effects = r
        .out(&port("b"), out::PREEMPT_AND_ABORT, 1, &list(2, 1), &[1])
        .unwrap();
    assert_eq!(
        effects.attentions,
        [(port("a"), Attention::RegistrationsPreempted)]
    );
    assert_eq!(effects.aborted, [port("a")]);
    assert!(r.is_holder(&port("b")) && !r.is_registered(&port("a")));
    assert!(r.allowed(&port("a")).read);

    let mut r = held(ExclusiveAccess);
    let effects = r
        .out(&port("a"), out::PREEMPT, 3, &list(1, 2), &[1])
        .unwrap();
    assert!(effects.aborted.is_empty() && r.is_holder(&port("a")) && !r.is_registered(&port("b")));

    // With an all-registrants reservation, key zero preempts all other registrants.
    let mut r = held(WriteExclusiveAllRegistrants);
    r.out(&port("b"), out::PREEMPT, 3, &list(2, 0), &[1])
        .unwrap();
    assert!(r.is_holder(&port("b")) && !r.is_registered(&port("a")));
    assert_eq!(r.reservation()[21], 3);

    // The holder may change the type by preempting itself.
    let mut r = held(WriteExclusive);
    r.out(&port("a"), out::PREEMPT, 6, &list(1, 1), &[1])
        .unwrap();
    assert!(r.is_registered(&port("a")) && r.allowed(&port("b")).write);
}

/// REGISTER AND MOVE registers, moves, and unregisters if requested.
#[test]
fn register_and_move_registers_moves_and_unregisters() {
    for unregister in [false, true] {
        let mut r = held(WriteExclusive);
        let list = OutList {
            key: 1,
            service_action_key: 7,
            ports: vec![port("c").initiator_port],
            target_port: 1,
            unregister,
            ..OutList::default()
        };
        r.out(&port("a"), out::REGISTER_AND_MOVE, 0, &list, &[1])
            .unwrap();
        assert!(r.is_holder(&port("c")));
        assert_eq!(r.is_registered(&port("a")), !unregister);
    }
}

/// ALL_TG_PT and SPEC_I_PT multiply registrations, up to the limit.
#[test]
fn registrations_for_many_ports_stay_within_the_limit() {
    let mut r = Reservations::default();
    let mut many = list(0, 5);
    many.all_tg_pt = true;
    many.spec_i_pt = true;
    many.ports = vec![port("b").initiator_port];
    r.out(&port("a"), out::REGISTER, 0, &many, &[1, 2]).unwrap();
    assert_eq!(r.keys().len(), 8 + 4 * 8);
    assert_eq!(
        r.out(
            &port("a"),
            out::REGISTER,
            0,
            &OutList {
                key: 5,
                ..many.clone()
            },
            &[1]
        ),
        Err(bad_list(20))
    );
    many.ports = (0..300)
        .map(|i| port(&i.to_string()).initiator_port)
        .collect();
    let refused = r.out(&port("z"), out::REGISTER, 0, &many, &[1]);
    assert!(matches!(refused, Err(ReservationRefusal::Check(sense)) if sense.asc == 0x55));
}

/// Saved reservations are read back unchanged; an error in the saved text names its line; without APTPL, nothing is saved.
#[test]
fn saved_text_reads_back_equal_and_damaged_text_reports_its_line() {
    let mut r = held(WriteExclusiveRegistrantsOnly);
    assert_eq!(r.to_text(), "");
    let keep = OutList {
        aptpl: true,
        ..list(1, 1)
    };
    assert!(
        r.out(&port("a"), out::REGISTER, 0, &keep, &[1])
            .unwrap()
            .save
    );
    let text = r.to_text();
    assert_eq!(Reservations::from_text(&text), Ok(r));
    assert_eq!(
        Reservations::from_text(&text.replace("held 5", "held 2")),
        Err(5)
    );
    assert_eq!(Reservations::from_text("something else"), Err(1));
    for end in (0..text.len()).filter(|&end| text.is_char_boundary(end)) {
        let _ = Reservations::from_text(&text[..end]);
    }
}
