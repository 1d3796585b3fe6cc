//! Names in a trace: any bytes of a name are recovered from its text, and any text can be read.
#![no_main]

use brunt_core::byte_text;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert_eq!(byte_text::to_bytes(&byte_text::from_bytes(bytes)), bytes);
    if let Ok(said) = std::str::from_utf8(bytes) {
        let _ = byte_text::to_bytes(said);
    }
});
