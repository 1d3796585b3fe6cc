//! SCSI's encodings: CDBs, parameter lists, sense data.
#![no_main]

use brunt_wire::scsi::inquiry::Capacity;
use brunt_wire::scsi::mode::{self, ModeSettings};
use brunt_wire::scsi::sense::Sense;
use brunt_wire::scsi::{alua, cdb, copy, opcodes, persistent, unmap};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, bytes)) = input.split_first() else {
        return;
    };
    let padded = cdb::pad(bytes);
    let _ = cdb::Transfer::decode(&padded);
    let _ = cdb::list_length(&padded);
    let _ = opcodes::lookup(&padded, |_| choice & 1 != 0);
    let _ = copy::parse(bytes);
    let _ = persistent::parse_out(choice & 0x1f, bytes);
    let _ = persistent::parse_transport_id(bytes);
    let _ = mode::parse_select(
        choice & 1 != 0,
        bytes,
        &ModeSettings {
            write_cache: choice & 2 != 0,
            software_write_protect: choice & 2 != 0,
            descriptor_sense: choice & 2 != 0,
        },
        1 << 20,
        512,
    );
    if let Ok(extents) = unmap::parse(bytes) {
        // An extent takes sixteen bytes: never more than the list holds.
        assert!(extents.count() <= bytes.len() / 16);
    }
    if let Some(groups) = alua::parse_set(bytes) {
        assert!(groups.len() <= bytes.len() / 4);
    }
    let _ = Capacity::parse_16(bytes);
    if let Some(sense) = Sense::parse(bytes) {
        assert_eq!(Sense::parse(&sense.to_descriptor()), Some(sense));
    }
});
