//! iSCSI's encodings: headers, additional headers, text. Text that is parsed and encoded again parses to the same
//! pairs.
#![no_main]

use brunt_wire::iscsi::ahs::Ahs;
use brunt_wire::iscsi::pdu::{BHS_BYTES, Bhs};
use brunt_wire::iscsi::{digest, text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(bhs) = Bhs::peek(bytes) {
        let total = bhs.total_len(true, true);
        assert!(total >= bhs.data_offset(true) + bhs.data_len());
        let _ = (bhs.kind(), bhs.is_final(), bhs.is_immediate());
        if let Some(ahs) = bytes.get(BHS_BYTES..BHS_BYTES + bhs.ahs_len()) {
            let _ = Ahs::parse(ahs);
        }
    }
    let _ = Ahs::parse(bytes);
    assert_eq!(digest::padded_digest(bytes), {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(4), 0);
        digest::digest(&padded)
    });
    if let Ok(pairs) = text::parse_pairs(bytes) {
        let mut again = Vec::new();
        for (key, value) in &pairs {
            text::push_pair(&mut again, key, value);
            let _ = text::parse_number(value);
            if let Some(binary) = text::parse_binary(value) {
                assert_eq!(
                    text::parse_binary(&text::format_binary(&binary)),
                    Some(binary)
                );
            }
        }
        assert_eq!(text::parse_pairs(&again).expect("what we wrote"), pairs);
    }
});
