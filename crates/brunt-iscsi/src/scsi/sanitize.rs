//! SANITIZE (SBC-3, 4.11 and 5.24): runs on its own thread with its own ring and device, because it outlives the
//! command, resets, and the connection that started it. SANITIZE uses ordinary device requests, so it takes as long
//! as the backend needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use brunt_block::{Buf, Device, Op, Request, Ring, RingConfig, turn};
use brunt_wire::scsi::cdb::be16;
use brunt_wire::scsi::sense::{Sense, key};

use super::LogicalUnit;
use super::command::Refused;
use super::locks::Hold;

/// Size of one write request, in bytes.
const CHUNK_BYTES: u64 = 256 << 10;
/// Size of one request that unmaps blocks, in bytes.
const UNMAP_BYTES: u64 = 64 << 20;
/// How long the thread waits for commands that began earlier.
const DRAIN: Duration = Duration::from_secs(60);

/// Whether SANITIZE is running, and its progress.
#[derive(Debug, Default)]
pub(super) struct Sanitize {
    running: AtomicBool,
    /// The progress, in units of 1/65536.
    progress: AtomicU32,
}

impl Sanitize {
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    pub fn begin(&self) -> bool {
        self.progress.store(0, Ordering::Relaxed);
        !self.running.swap(true, Ordering::AcqRel)
    }

    pub fn end(&self) {
        self.running.store(false, Ordering::Release);
    }

    /// SANITIZE IN PROGRESS, with the progress indication.
    pub fn sense(&self) -> Sense {
        let [high, low] = (self.progress.load(Ordering::Relaxed).min(0xffff) as u16).to_be_bytes();
        Sense {
            specific: Some([0x80, high, low]),
            ..Sense::new(key::NOT_READY, 0x04, 0x1b)
        }
    }
}

/// What to do to the medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Write this block everywhere, `passes` times, inverted in every other pass if `invert` is set.
    Overwrite {
        block: Vec<u8>,
        passes: u8,
        invert: bool,
    },
    /// Unmap everything: for block erase, and for cryptographic erase, because there is no real key. Thin units
    /// support both erase methods, and none of the old data can be read afterwards.
    Erase,
}

/// Parses the parameter list of OVERWRITE.
pub(super) fn parse_overwrite(list: &[u8], block_bytes: u32) -> Result<Method, Refused> {
    let length = usize::from(be16(list, 2));
    // The length of the list itself is in the CDB.
    if list.len() < 5 || list.len() > block_bytes as usize + 4 {
        return Err(Refused::field(7));
    }
    let passes = list[0] & 0x1f;
    // TEST is vendor specific, so it isn't supported.
    if passes == 0 || list[0] & 0x60 != 0 {
        return Err(Refused::parameter(0));
    }
    if length == 0 || length > block_bytes as usize {
        return Err(Refused::parameter(2));
    }
    let Some(pattern) = list.get(4..4 + length) else {
        return Err(Refused::LIST_LENGTH);
    };
    let block = pattern
        .iter()
        .copied()
        .cycle()
        .take(block_bytes as usize)
        .collect();
    Ok(Method::Overwrite {
        block,
        passes,
        invert: list[0] & 0x80 != 0,
    })
}

/// Starts the thread; [`LogicalUnit::sanitize_begins`] must have returned true before.
pub(super) fn spawn(unit: &Arc<LogicalUnit>, method: Method) {
    let shared = Arc::clone(unit);
    let work = move || {
        let failed = run(&shared, &method).is_err();
        shared.sanitize_ended(failed);
    };
    if std::thread::Builder::new()
        .name("sanitize".to_string())
        .spawn(work)
        .is_err()
    {
        unit.sanitize_ended(true);
    }
}

/// SANITIZE failed. Initiators receive no details.
struct Failed;

fn run(unit: &LogicalUnit, method: &Method) -> Result<(), Failed> {
    let hold = drain(unit)?;
    let result = work(unit, method);
    unit.locks.release(hold);
    result
}

/// Waits for all commands that began earlier; new ones are already refused.
fn drain(unit: &LogicalUnit) -> Result<Hold, Failed> {
    let clock = &unit.options().clock;
    let start = clock.now();
    let mut hold = Hold::NONE;
    loop {
        match unit.locks.exclude(0, u64::MAX, hold) {
            Ok(all) => return Ok(all),
            Err(part) => hold = part,
        }
        if clock.now().since(start) > DRAIN {
            unit.locks.release(hold);
            return Err(Failed);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn work(unit: &LogicalUnit, method: &Method) -> Result<(), Failed> {
    let config = RingConfig {
        entries: 8,
        arena_bytes: 0,
        ..RingConfig::default()
    };
    let ring = Ring::new(config).map_err(|_| Failed)?;
    let mut device = unit.backend().open(&ring, 1).map_err(|_| Failed)?;
    let info = unit.backend().info().clone();
    let clock = unit.options().clock.clone();
    let block_bytes = u64::from(info.block_bytes);
    let (passes, chunk) = match method {
        Method::Overwrite { passes, .. } => {
            let longest = CHUNK_BYTES.min(u64::from(info.transfer_bytes_max));
            (
                u64::from(*passes),
                (longest / block_bytes).max(1) * block_bytes,
            )
        }
        _ => (1, UNMAP_BYTES),
    };
    let size_bytes = unit.blocks() * block_bytes;
    let total = size_bytes * passes;
    let mut buf = Buf::empty();
    let start = clock.now();
    let mut sent = 0u64;
    for pass in 0..passes {
        if let Method::Overwrite { block, invert, .. } = method {
            buf = ring.pool().take(chunk as usize);
            let flip = if *invert && pass % 2 == 1 { 0xff } else { 0 };
            for (out, byte) in buf.iter_mut().zip(block.iter().cycle()) {
                *out = byte ^ flip;
            }
        }
        let mut offset = 0;
        while offset < size_bytes {
            let len = chunk.min(size_bytes - offset);
            let op = match method {
                Method::Overwrite { .. } => Op::Write,
                Method::Erase => Op::Unmap,
            };
            let request = Request {
                tag: 0,
                op,
                offset,
                len,
                buf,
                force_unit_access: false,
            };
            let completion = turn::one(&ring, &mut *device, request).map_err(|_| Failed)?;
            completion.result.map_err(|_| Failed)?;
            buf = completion.buf;
            offset += len;
            sent += len;
            let progress = u128::from(sent) * 65536 / u128::from(total.max(1));
            unit.sanitize
                .progress
                .store(progress as u32, Ordering::Relaxed);
            if let Some(rate) = unit.options().sanitize_bytes_per_second {
                let due = Duration::from_secs_f64(sent as f64 / rate.max(1) as f64);
                std::thread::sleep(due.saturating_sub(clock.now().since(start)));
            }
        }
    }
    flush(&ring, &mut *device)
}

fn flush(ring: &Ring, device: &mut dyn Device) -> Result<(), Failed> {
    let request = Request {
        tag: 0,
        op: Op::Flush,
        offset: 0,
        len: 0,
        buf: Buf::empty(),
        force_unit_access: false,
    };
    turn::one(ring, device, request)
        .map_err(|_| Failed)?
        .result
        .map_err(|_| Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SBC-3's limits on the overwrite list, and the repeated pattern.
    #[test]
    fn overwrite_lists_are_checked_and_their_pattern_is_repeated() {
        let check = |list: &[u8], byte: Option<(u8, u8)>| {
            let asc = match parse_overwrite(list, 512) {
                Err(Refused::Check(sense)) => {
                    Some((sense.asc, sense.specific.unwrap_or_default()[2]))
                }
                Err(other) => panic!("{other:?}"),
                Ok(_) => None,
            };
            assert_eq!(asc, byte, "{list:?}");
        };
        check(&[1, 0, 0, 1, 7], None);
        check(&[0, 0, 0, 1, 7], Some((0x26, 0)));
        check(&[0x21, 0, 0, 1, 7], Some((0x26, 0)));
        check(&[1, 0, 0, 0, 7], Some((0x26, 2)));
        check(&[1, 0, 2, 4, 7], Some((0x26, 2)));
        check(&[1, 0, 0, 2, 7], Some((0x1a, 0)));
        check(&[1, 0, 0, 1], Some((0x24, 7)));
        check(&[1; 517], Some((0x24, 7)));
        for end in 0..5 {
            assert!(parse_overwrite(&[1, 0, 0, 1, 7][..end], 512).is_err());
        }
        let Ok(Method::Overwrite {
            block,
            passes,
            invert,
        }) = parse_overwrite(&[0x83, 0, 0, 3, 1, 2, 3], 512)
        else {
            panic!("a good list");
        };
        assert_eq!(
            (block.len(), &block[509..], passes, invert),
            (512, &[3, 1, 2][..], 3, true)
        );
    }
}
