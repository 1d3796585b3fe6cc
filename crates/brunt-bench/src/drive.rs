//! A closed loop over a device: `depth` random requests of one size, for a given time. Just enough load to compare
//! targets; real workloads are in `brunt-load`.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brunt_block::turn::turn;
use brunt_block::{Backend, Buf, Device, Op, Request, Ring, RingConfig};
use brunt_core::ResourceUsage;
use brunt_core::random::Random;

use super::bare::PayloadDirection;
use super::sample::RunSample;

/// Keeps `depth` requests of `size` bytes at random offsets in flight for `time`.
///
/// # Errors
/// The device can't be opened, or a request fails: a measurement with errors is invalid.
pub fn measure(
    backend: &Arc<dyn Backend>,
    direction: PayloadDirection,
    size: usize,
    depth: u32,
    time: Duration,
) -> io::Result<RunSample> {
    let ring = Ring::new(RingConfig::default())?;
    let mut device = backend
        .open(&ring, depth)
        .map_err(|error| failed(backend, error))?;
    let places = device.info().size_bytes / size as u64;
    let op = match direction {
        PayloadDirection::Read => Op::Read,
        PayloadDirection::Write => Op::Write,
    };
    let mut random = Random::new(1);
    let request = |buf| Request {
        tag: 0,
        op,
        offset: random.below(places) * size as u64,
        len: size as u64,
        buf,
        force_unit_access: false,
    };
    let bufs = (0..depth).map(|_| ring.pool().take(size)).collect();
    keep_busy((&ring, &mut *device), bufs, time, request)
}

/// Keeps one request in flight for each of these buffers for `time`; `request` makes the next one.
///
/// # Errors
/// A request fails: a measurement with errors is invalid.
pub fn keep_busy(
    (ring, device): (&Ring, &mut dyn Device),
    bufs: Vec<Buf>,
    time: Duration,
    mut request: impl FnMut(Buf) -> Request,
) -> io::Result<RunSample> {
    let (mut none, mut done) = (VecDeque::new(), Vec::with_capacity(bufs.len()));
    let mut batch: VecDeque<Request> = bufs.into_iter().map(&mut request).collect();
    // CPU time of this thread and of those that work for its ring; `None` if these cannot be found.
    let cpu = || {
        let workers = ring.cpu().workers_nanos?;
        Some(ResourceUsage::of_thread().cpu() + Duration::from_nanos(workers))
    };
    let (begin, before, calls) = (Instant::now(), cpu(), ring.stats().system_calls);
    let mut requests = 0;
    let mut elapsed = Duration::ZERO;
    while elapsed < time || device.outstanding() > 0 {
        let due = if elapsed < time {
            &mut batch
        } else {
            &mut none
        };
        turn(ring, &mut *device, due, &mut done)?;
        elapsed = begin.elapsed();
        for completion in done.drain(..) {
            completion
                .result
                .map_err(|error| io::Error::other(format!("{}: {error}", device.info().name)))?;
            requests += 1;
            batch.push_back(request(completion.buf));
        }
    }
    Ok(RunSample {
        requests,
        elapsed,
        client_cpu: cpu()
            .zip(before)
            .map(|(now, before)| now.saturating_sub(before)),
        client_calls: Some(ring.stats().system_calls - calls),
        ..RunSample::default()
    })
}

/// Writes the whole device once, so that reads access real memory rather than the shared zero page.
///
/// # Errors
/// The device can't be opened, or a request fails.
pub fn fill(backend: &Arc<dyn Backend>) -> io::Result<()> {
    const SIZE: u64 = 256 << 10;
    let ring = Ring::new(RingConfig::default())?;
    let mut device = backend
        .open(&ring, 8)
        .map_err(|error| failed(backend, error))?;
    let mut offset = 0;
    let mut batch = VecDeque::new();
    let mut free: Vec<_> = (0..8).map(|_| ring.pool().take(SIZE as usize)).collect();
    free.iter_mut().for_each(|buf| Random::new(2).fill(buf));
    let mut done = Vec::new();
    while offset < device.info().size_bytes || device.outstanding() > 0 {
        while offset < device.info().size_bytes
            && let Some(buf) = free.pop()
        {
            batch.push_back(Request {
                tag: 0,
                op: Op::Write,
                offset,
                len: SIZE,
                buf,
                force_unit_access: false,
            });
            offset += SIZE;
        }
        turn(&ring, &mut *device, &mut batch, &mut done)?;
        for completion in done.drain(..) {
            completion.result.map_err(|error| failed(backend, error))?;
            free.push(completion.buf);
        }
    }
    Ok(())
}

fn failed(backend: &Arc<dyn Backend>, error: impl Display) -> io::Error {
    io::Error::other(format!("{}: {error}", backend.info().name))
}
