//! Block traces of every format: for any bytes, the result is the same wherever they are cut, and every row
//! is read or counted.
#![no_main]

use brunt_trace::{
    BlockRequest, ColumnMap, DamagedRow, Devices, FORMATS, Format, FormatOptions, Summarizer,
    detect,
};
use libfuzzer_sys::fuzz_target;

fn decode(
    format: &Format,
    options: &FormatOptions,
    bytes: &[u8],
    cut: usize,
) -> (Vec<BlockRequest>, Vec<DamagedRow>, Devices) {
    let (mut requests, mut damaged, mut devices) = (Vec::new(), Vec::new(), Devices::default());
    let mut decoder = (format.decoder)(options);
    let used = decoder.decode(
        &bytes[..cut],
        false,
        &mut devices,
        &mut requests,
        &mut damaged,
    );
    let rest = &bytes[used..];
    assert_eq!(
        decoder.decode(rest, true, &mut devices, &mut requests, &mut damaged),
        rest.len()
    );
    (requests, damaged, devices)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((cut, bytes)) = bytes.split_first() else {
        return;
    };
    let cut = bytes.len() * usize::from(*cut) / 256;
    let _ = detect(bytes, true);
    // The first line may be a column map.
    let line = bytes
        .split(|byte| *byte == b'\n')
        .next()
        .and_then(|line| std::str::from_utf8(line).ok());
    let columns = line.and_then(|line| ColumnMap::parse(line).ok());
    let options = FormatOptions {
        columns,
        ..FormatOptions::default()
    };
    for format in FORMATS {
        let (requests, damaged, devices) = decode(format, &options, bytes, cut);
        let whole = decode(format, &options, bytes, 0);
        assert_eq!((&requests, damaged), (&whole.0, whole.1));
        assert!(
            requests
                .iter()
                .all(|request| (request.device as usize) < devices.names().len())
        );
        // Long requests would make the footprint slow.
        let mut short = requests;
        short
            .iter_mut()
            .for_each(|request| request.len_bytes &= 0xffff);
        let mut summarizer = Summarizer::default();
        summarizer.add(&short);
    }
});
