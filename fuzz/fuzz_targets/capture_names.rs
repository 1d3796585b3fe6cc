//! Names in a trace: any bytes of a name are recovered from its text, and any text can be read.
#![no_main]

use brunt_capture::trace::text;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert_eq!(text::to_bytes(&text::from_bytes(bytes)), bytes);
    if let Ok(said) = std::str::from_utf8(bytes) {
        let _ = text::to_bytes(said);
    }
});
