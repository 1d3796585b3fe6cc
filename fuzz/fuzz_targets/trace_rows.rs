//! Block traces of every format: whatever the bytes, and wherever they are cut, the same requests come out, and every row
//! is read or counted.
#![no_main]

use brunt_trace::{BlockRequest, DamagedRow, Devices, FORMATS, Format, FormatOptions, Summarizer, detect};
use libfuzzer_sys::fuzz_target;

fn decode(format: &Format, bytes: &[u8], cut: usize) -> (Vec<BlockRequest>, Vec<DamagedRow>, Devices) {
    let (mut requests, mut damaged, mut devices) = (Vec::new(), Vec::new(), Devices::default());
    let mut decoder = (format.decoder)(&FormatOptions::default());
    let used = decoder.decode(&bytes[..cut], false, &mut devices, &mut requests, &mut damaged);
    let rest = &bytes[used..];
    assert_eq!(decoder.decode(rest, true, &mut devices, &mut requests, &mut damaged), rest.len());
    (requests, damaged, devices)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let cut = bytes.len() * usize::from(*cut) / 256;
    let _ = detect(bytes, true);
    for format in FORMATS {
        let (requests, damaged, devices) = decode(format, bytes, cut);
        let whole = decode(format, bytes, 0);
        assert_eq!((&requests, damaged), (&whole.0, whole.1));
        assert!(requests.iter().all(|request| (request.device as usize) < devices.names().len()));
        // Long requests take their time in a footprint.
        let mut short = requests;
        short.iter_mut().for_each(|request| request.len_bytes &= 0xffff);
        let mut summarizer = Summarizer::default();
        summarizer.add(&short);
    }
});
