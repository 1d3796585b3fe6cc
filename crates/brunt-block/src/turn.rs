//! The loop of a thread that owns a device: submit due requests, enter the ring once, collect completions. For code
//! that drives only one device. Three callers have their own loop: the load engine's worker, whose clock and waiting
//! are a trait that tests simulate; an array's rebuild, which waits for several devices on one ring; and a target's
//! worker, which waits for the sockets and devices of its connections together.
//!
//! The rule: each submitted request completes exactly once. Builds with assertions check this for all devices driven
//! here.

use std::collections::VecDeque;
use std::io;

use brunt_core::Nanos;

use crate::device::{Completion, Device, Request};
use crate::ring::Ring;

/// One iteration: submits as much of `batch` as the device takes, waits until something happens, and appends the
/// completions to `done`.
///
/// # Errors
/// Waiting on the ring fails.
#[inline]
pub fn turn(
    ring: &Ring,
    device: &mut dyn Device,
    batch: &mut VecDeque<Request>,
    done: &mut Vec<Completion>,
) -> io::Result<()> {
    turn_until(ring, device, batch, done, Nanos::MAX)
}

/// Like [`turn`], but waits no longer than until `until`.
///
/// # Errors
/// Waiting on the ring fails.
#[inline]
pub fn turn_until(
    ring: &Ring,
    device: &mut dyn Device,
    batch: &mut VecDeque<Request>,
    done: &mut Vec<Completion>,
    until: Nanos,
) -> io::Result<()> {
    let (before, queued, known) = (device.outstanding() as usize, batch.len(), done.len());
    device.submit(batch);
    let taken = queued - batch.len();
    debug_assert_eq!(
        device.outstanding() as usize,
        before + taken,
        "an accepted request is outstanding"
    );
    ring.enter(device.deadline().min(until))?;
    device.poll(done);
    let completed = done.len() - known;
    debug_assert_eq!(
        device.outstanding() as usize + completed,
        before + taken,
        "an accepted request completes exactly once"
    );
    Ok(())
}

/// Runs one request to completion on a device with no other requests outstanding.
///
/// # Errors
/// Waiting on the ring fails; the request's own error is in its completion.
///
/// # Panics
/// The device has requests outstanding, or doesn't accept this one.
pub fn one(ring: &Ring, device: &mut dyn Device, request: Request) -> io::Result<Completion> {
    assert_eq!(
        device.outstanding(),
        0,
        "a device with no other outstanding request"
    );
    let tag = request.tag;
    let (mut batch, mut done) = (VecDeque::from([request]), Vec::with_capacity(1));
    while done.is_empty() {
        turn(ring, device, &mut batch, &mut done)?;
        assert!(batch.is_empty(), "an idle device accepts a request");
    }
    let completion = done.pop().expect("the request has completed");
    assert!(
        done.is_empty() && completion.tag == tag,
        "one request has one completion, with its tag"
    );
    Ok(completion)
}
