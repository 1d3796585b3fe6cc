//! Measures the initiator's instructions per request. Run it under an instruction counter with two different numbers of
//! requests: the slope is the cost of a request, without login and logout. The target is a separate process.
//!
//!     valgrind --tool=callgrind target/release/examples/count_iscsi URL read|write REQUESTS
//!
//! 32 requests of 4 KiB are outstanding.

use std::collections::VecDeque;

use brunt_block::table::open_url_with;
use brunt_block::{Op, Request, Ring, RingConfig};

const DEPTH: u32 = 32;
const BYTES: u64 = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = |what: &str| args.next().ok_or(format!("{what} is missing"));
    let (url, op, requests) = (
        next("URL")?,
        next("read or write")?,
        next("REQUESTS")?.parse::<u64>()?,
    );
    let op = if op == "write" { Op::Write } else { Op::Read };
    let backend = open_url_with(&url, brunt_iscsi::BACKENDS, false)?;
    let ring = Ring::new(RingConfig::default())?;
    let mut device = backend.open(&ring, DEPTH)?;
    let places = backend.info().size_bytes / BYTES;
    let (mut batch, mut done) = (VecDeque::new(), Vec::new());
    let (mut made, mut completed) = (0, 0);
    let mut free: Vec<_> = (0..DEPTH)
        .map(|tag| (u64::from(tag), ring.pool().take(BYTES as usize)))
        .collect();
    while completed < requests {
        while made < requests
            && let Some((tag, buf)) = free.pop()
        {
            // Non-sequential offsets: the step is coprime to powers of two.
            let offset = made * 7919 % places * BYTES;
            batch.push_back(Request {
                tag,
                op,
                offset,
                len: BYTES,
                buf,
                force_unit_access: false,
            });
            made += 1;
        }
        device.submit(&mut batch);
        ring.enter(device.deadline())?;
        device.poll(&mut done);
        for completion in done.drain(..) {
            completion.result?;
            completed += 1;
            free.push((completion.tag, completion.buf));
        }
    }
    println!("{completed}");
    Ok(())
}
