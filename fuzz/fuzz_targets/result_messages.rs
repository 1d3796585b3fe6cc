//! Messages between hosts, in both directions: for any bytes in any pieces, the decoder returns messages or an error
//! and buffers no more than it received; a decoded message survives encoding and decoding unchanged.
#![no_main]

use brunt_protocol::{Decoder, FromHost, ToHost, encode};
use libfuzzer_sys::fuzz_target;
use serde::{Serialize, de::DeserializeOwned};

fn feed<M: Serialize + DeserializeOwned>(step: usize, bytes: &[u8]) {
    let mut decoder = Decoder::default();
    for part in bytes.chunks(step) {
        decoder.push(part);
        loop {
            match decoder.take::<M>() {
                Ok(Some(message)) => again(&message),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

fn again<M: Serialize + DeserializeOwned>(message: &M) {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    // A message that was short as text may be longer once encoded: numbers are written out.
    if encode(message, &mut first).is_err() {
        return;
    }
    let mut decoder = Decoder::default();
    decoder.push(&first);
    let read = decoder
        .take::<M>()
        .expect("what was encoded is read")
        .expect("all of it was pushed");
    encode(&read, &mut second).expect("it was encoded before");
    assert_eq!(first, second);
}

fuzz_target!(|bytes: &[u8]| {
    let Some((side, rest)) = bytes.split_first() else {
        return;
    };
    let step = usize::from(side >> 1) + 1;
    match side & 1 {
        0 => feed::<ToHost>(step, rest),
        _ => feed::<FromHost>(step, rest),
    }
});
