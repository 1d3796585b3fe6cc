//! How close to its service time does a delayed device complete? Sends one request at a time through a null device
//! with a constant delay; the mean latency must be within 2 % or 3 us of that delay. Every latency that Brunt
//! measures behind such a device includes the difference.
//!
//!     cargo bench -p brunt-block --bench delayed

use std::collections::VecDeque;

use brunt_block::turn::turn;
use brunt_block::{Op, Request, Ring, RingConfig, open_url};
use brunt_core::Clock;

fn main() {
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>9} {:>8}",
        "delay", "mean us", "p50 us", "p99 us", "error us", "error"
    );
    for (delay, delay_us, count) in [
        ("10us", 10.0, 50_000),
        ("100us", 100.0, 10_000),
        ("1ms", 1000.0, 1500),
        ("10ms", 10_000.0, 200),
    ] {
        let backend =
            open_url(&format!("null:1GiB?delay=const:{delay}")).expect("the URL is right");
        let ring = Ring::new(RingConfig::default()).expect("a ring");
        let mut device = backend.open(&ring, 1).expect("a device");
        let (mut batch, mut done) = (VecDeque::new(), Vec::new());
        let mut nanos = Vec::with_capacity(count);
        let mut buf = ring.pool().take(4096);
        for _ in 0..count {
            let start = Clock::Monotonic.now();
            batch.push_back(Request {
                tag: 0,
                op: Op::Read,
                offset: 0,
                len: 4096,
                buf,
                force_unit_access: false,
            });
            while done.is_empty() {
                turn(&ring, &mut *device, &mut batch, &mut done).expect("the ring works");
            }
            nanos.push(Clock::Monotonic.now().since(start).as_nanos() as u64);
            buf = done.pop().expect("one completion").buf;
        }
        nanos.sort_unstable();
        let mean = nanos.iter().sum::<u64>() as f64 / count as f64 / 1000.0;
        let at = |part: f64| nanos[(part * (count - 1) as f64) as usize] as f64 / 1000.0;
        println!(
            "{delay:>8} {mean:>10.2} {:>10.2} {:>10.2} {:>9.2} {:>7.2}%",
            at(0.5),
            at(0.99),
            mean - delay_us,
            (mean / delay_us - 1.0) * 100.0
        );
    }
}
