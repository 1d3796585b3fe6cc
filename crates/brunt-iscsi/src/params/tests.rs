//! Tests of the negotiation, from both sides.

use super::*;

fn target() -> Negotiation {
    Negotiation::new(IscsiRole::Target, Preferences::default(), false)
}

/// Every key of section 13 is answered as its row requires.
#[test]
fn target_answers_every_key() {
    let check = |offer: (&str, &str), answer: Option<&str>| {
        let answers = target().on_pairs(&[offer]).unwrap();
        assert_eq!(
            answers.first().map(|a| a.1.as_str()),
            answer,
            "{}={}",
            offer.0,
            offer.1
        );
    };
    check(("HeaderDigest", "CRC32C,None"), Some("CRC32C"));
    check(("HeaderDigest", "None,CRC32C"), Some("None"));
    check(("DataDigest", "X-md5,None"), Some("None"));
    check(("DataDigest", "X-md5"), Some("Reject"));
    check(("MaxConnections", "8"), Some("1"));
    check(("MaxConnections", "0"), Some("Reject"));
    check(("MaxConnections", "65536"), Some("Reject"));
    check(("InitialR2T", "Yes"), Some("Yes"));
    check(("InitialR2T", "No"), Some("No"));
    check(("InitialR2T", "Maybe"), Some("Reject"));
    check(("ImmediateData", "No"), Some("No"));
    check(("ImmediateData", "Yes"), Some("Yes"));
    check(("MaxRecvDataSegmentLength", "262144"), None);
    check(("MaxBurstLength", "0x40000"), Some("262144"));
    check(("FirstBurstLength", "1048576"), Some("262144"));
    check(("DefaultTime2Wait", "2"), Some("2"));
    check(("DefaultTime2Retain", "20"), Some("0"));
    check(("MaxOutstandingR2T", "4"), Some("4"));
    check(("DataPDUInOrder", "No"), Some("Yes"));
    check(("DataSequenceInOrder", "No"), Some("Yes"));
    check(("ErrorRecoveryLevel", "2"), Some("0"));
    check(
        ("TaskReporting", "FastAbort,ResponseFence,RFC3720"),
        Some("RFC3720"),
    );
    check(("iSCSIProtocolLevel", "2"), Some("1"));
    check(("OFMarker", "Yes"), Some("No"));
    check(("IFMarker", "No"), Some("No"));
    check(("OFMarkInt", "2048~8192"), Some("Reject"));
    check(("IFMarkInt", "2048"), Some("Reject"));
    check(("InitiatorAlias", "me"), None);
    check(("X-com.example.key", "1"), Some("NotUnderstood"));
    check(("X-com.example.key", "NotUnderstood"), None);
    check(("SendTargets", "All"), Some("Reject"));
}

/// A value that the table forbids is an error and isn't answered.
#[test]
fn values_that_the_table_forbids_are_refused() {
    let check = |pairs: &[(&str, &str)]| assert!(target().on_pairs(pairs).is_err(), "{pairs:?}");
    check(&[("MaxRecvDataSegmentLength", "511")]);
    check(&[("MaxRecvDataSegmentLength", "16777216")]);
    check(&[("MaxRecvDataSegmentLength", "many")]);
    check(&[("ImmediateData", "Yes"), ("ImmediateData", "Yes")]);
    check(&[("TargetAlias", "not yours to say")]);
    check(&[("SessionType", "Other")]);
    check(&[("MaxBurstLength", "Irrelevant")]);
    let wishes = Preferences {
        header_digest: DigestPolicy::Require,
        ..Preferences::default()
    };
    let mut strict = Negotiation::new(IscsiRole::Target, wishes, false);
    assert!(strict.on_pairs(&[("HeaderDigest", "None")]).is_err());
}

/// FirstBurstLength stays within MaxBurstLength, whatever their order.
#[test]
fn first_burst_length_stays_within_max_burst_length() {
    let mut negotiation = target();
    let pairs = [("FirstBurstLength", "262144"), ("MaxBurstLength", "65536")];
    let answers = negotiation.on_pairs(&pairs).unwrap();
    assert_eq!(
        answers,
        [
            ("FirstBurstLength", "65536".into()),
            ("MaxBurstLength", "65536".into())
        ]
    );
    let mut negotiation = target();
    let pairs = [
        ("FirstBurstLength", "65536"),
        ("InitialR2T", "Yes"),
        ("ImmediateData", "No"),
    ];
    assert_eq!(negotiation.on_pairs(&pairs).unwrap()[0].1, "Irrelevant");
}

/// In discovery, keys for normal sessions are irrelevant, and all other keys are not.
#[test]
fn in_discovery_the_keys_of_normal_sessions_are_irrelevant() {
    let mut negotiation = target();
    let pairs = [
        ("MaxBurstLength", "65536"),
        ("SessionType", "Discovery"),
        ("DefaultTime2Wait", "5"),
    ];
    let answers = negotiation.on_pairs(&pairs).unwrap();
    assert_eq!(
        answers,
        [
            ("MaxBurstLength", "Irrelevant".into()),
            ("DefaultTime2Wait", "5".into())
        ]
    );
}

/// Both sides of this crate agree on the same values.
#[test]
fn both_ends_agree() {
    let wishes = Preferences {
        data_digest: DigestPolicy::Prefer,
        ..Preferences::default()
    };
    let mut initiator = Negotiation::new(IscsiRole::Initiator, wishes, false);
    let mut target = target();
    let offers = initiator.offers();
    let pairs: Vec<(&str, &str)> = offers.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let mut answers = target.on_pairs(&pairs).unwrap();
    answers.push(target.declare_segment());
    let pairs: Vec<(&str, &str)> = answers.iter().map(|(k, v)| (*k, v.as_str())).collect();
    assert_eq!(initiator.on_pairs(&pairs).unwrap(), []);
    assert!(initiator.is_settled() && target.is_settled());
    assert_eq!(initiator.values(), target.values());
    assert!(target.values().data_digest && !target.values().header_digest);
    assert_eq!(target.values().max_outstanding_r2t, 8);
}

/// Offers that determine the result need no answer: "No" if both sides must say Yes, "Yes" if one side suffices.
#[test]
fn offers_that_determine_the_result_need_no_answer() {
    let values = Params {
        immediate_data: false,
        initial_r2t: true,
        ..Params::default()
    };
    let wishes = Preferences {
        values,
        ..Preferences::default()
    };
    let mut initiator = Negotiation::new(IscsiRole::Initiator, wishes, false);
    initiator.offers();
    initiator.on_pairs(&[("MaxBurstLength", "65536")]).unwrap();
    assert!(!initiator.values().immediate_data && initiator.values().initial_r2t);
    // An answer, if sent, must repeat the result.
    initiator.on_pairs(&[("InitialR2T", "Yes")]).unwrap();
    assert!(initiator.on_pairs(&[("ImmediateData", "Yes")]).is_err());
}

/// An answer outside the offer ends the login.
#[test]
fn an_answer_outside_the_offer_ends_the_login() {
    let check = |pair: (&str, &str)| {
        let mut initiator = Negotiation::new(IscsiRole::Initiator, Preferences::default(), false);
        initiator.offers();
        assert!(initiator.on_pairs(&[pair]).is_err(), "{pair:?}");
    };
    check(("MaxBurstLength", "16777215"));
    check(("MaxOutstandingR2T", "9"));
    check(("MaxOutstandingR2T", "Reject"));
    check(("HeaderDigest", "X-other"));
    check(("ErrorRecoveryLevel", "1"));
    check(("DataPDUInOrder", "No"));
    check(("InitialR2T", "perhaps"));
}

/// An additional connection keeps the session's values and negotiates only its own values.
#[test]
fn a_joining_connection_keeps_the_sessions_values() {
    let session = Params {
        max_burst_length: 4096,
        header_digest: true,
        ..Params::default()
    };
    let mut negotiation = Negotiation::joining(IscsiRole::Target, Preferences::default(), &session);
    let answers = negotiation
        .on_pairs(&[("MaxBurstLength", "65536"), ("HeaderDigest", "None")])
        .unwrap();
    assert_eq!(
        answers,
        [
            ("MaxBurstLength", "Reject".into()),
            ("HeaderDigest", "None".into())
        ]
    );
    assert_eq!(negotiation.values().max_burst_length, 4096);
    assert!(!negotiation.values().header_digest);
}

/// The table names each key only once.
#[test]
fn names_are_unique() {
    for (index, key) in KEYS.iter().enumerate() {
        assert_eq!(
            KEYS.iter().position(|other| other.name == key.name),
            Some(index)
        );
        assert_eq!(find(key.name), Some(key));
    }
}
