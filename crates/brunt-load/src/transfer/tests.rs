//! Tests of transfers with a memory device.

use std::sync::{Arc, Mutex};

use super::*;
use brunt_block::backends::memory::MemoryBackend;
use brunt_block::open_url;

fn range(work: Work) -> RangeTransfer {
    RangeTransfer {
        work,
        start: 4096,
        length: 60 << 10,
        block: 8192,
        count: 8,
        random: None,
        depth: 4,
        force_unit_access: false,
        sums: true,
    }
}

fn run(transfer: RangeTransfer, backend: &dyn Backend) -> Result<Moved, TransferError> {
    transfer.run(backend, RingConfig::default(), &mut |_| true)
}

/// An output that the test can inspect.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn written_data_compares_and_reads_back() {
    let backend = MemoryBackend::new(1 << 20, 512).unwrap();
    let (pattern, other) = (Pattern::Seeded(5), Pattern::Seeded(6));
    let wrote = run(range(Work::Write(pattern)), &backend).unwrap();
    assert_eq!(
        (wrote.requests, wrote.bytes, wrote.errors),
        (8, 60 << 10, 0)
    );
    let wrong = |pattern| {
        run(range(Work::Compare(pattern)), &backend)
            .unwrap()
            .wrong_blocks
    };
    assert_eq!((wrong(pattern), wrong(other)), (0, 120));
    let kept = Kept::default();
    let read = run(range(Work::Read(Some(Box::new(kept.clone())))), &backend).unwrap();
    let mut expected = vec![0; 60 << 10];
    pattern.fill(4096, &mut expected);
    assert!(*kept.0.lock().unwrap() == expected);
    let sum: [u8; 32] = Sha256::digest(&expected).into();
    assert_eq!((wrote.checksum, read.checksum), (Some(sum), Some(sum)));
}

#[test]
fn an_input_may_be_shorter_or_longer_than_the_range() {
    let backend = MemoryBackend::new(1 << 20, 512).unwrap();
    let copy = |bytes: usize, whole: bool| {
        let input = Box::new(io::Cursor::new(vec![7; bytes]));
        run(range(Work::Copy { input, whole }), &backend).unwrap()
    };
    let short = copy(10_000, true);
    assert_eq!(
        (short.requests, short.count, short.bytes, short.padded_bytes),
        (2, 2, 10_240, 240)
    );
    assert_eq!(short.checksum, Some(Sha256::digest(vec![7; 10_000]).into()));
    assert!(short.is_complete());
    let (long, part) = (copy((60 << 10) + 1, true), copy((60 << 10) + 1, false));
    assert_eq!(
        (long.input_left, long.is_complete(), long.checksum),
        (true, false, None)
    );
    assert_eq!(
        (part.input_left, part.is_complete(), part.requests),
        (false, true, 8)
    );
    assert_eq!(
        part.checksum,
        Some(Sha256::digest(vec![7; 60 << 10]).into())
    );
}

#[test]
fn a_watcher_that_has_seen_enough_ends_it() {
    let backend = open_url("null:1TiB").unwrap();
    let everything = RangeTransfer {
        start: 0,
        length: 1 << 40,
        count: u64::MAX,
        ..range(Work::Read(None))
    };
    let mut seen = 0;
    let moved = everything.run(&*backend, RingConfig::default(), &mut |done| {
        seen = done;
        done == 0
    });
    let moved = moved.unwrap();
    assert!(
        seen > 0 && moved.requests >= seen,
        "{seen} of {}",
        moved.requests
    );
    assert!(!moved.is_complete() && moved.checksum.is_none());
}

/// An input that fails after a number of bytes.
struct Torn(usize);

impl Read for Torn {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("torn"));
        }
        let len = buf.len().min(self.0);
        self.0 -= len;
        Ok(len)
    }
}

#[test]
fn failing_files_are_reported() {
    let backend = MemoryBackend::new(1 << 20, 512).unwrap();
    let torn = run(
        range(Work::Copy {
            input: Box::new(Torn(20_000)),
            whole: true,
        }),
        &backend,
    );
    assert!(matches!(torn, Err(TransferError::Input(_))));
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let full = run(range(Work::Read(Some(Box::new(full)))), &backend);
    assert!(matches!(full, Err(TransferError::Output(_))));
}

/// The program is stopped while it waits for input: the data written so far is reported as incomplete.
#[test]
fn an_interrupt_while_waiting_for_input_is_incomplete() {
    struct Stops(usize);
    impl Read for Stops {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let got = self.0.min(bytes.len());
            self.0 -= got;
            match got {
                0 => Err(brunt_core::input::stopped()),
                _ => Ok(got),
            }
        }
    }
    let backend = MemoryBackend::new(1 << 20, 512).unwrap();
    let copy = |bytes| {
        let input = Box::new(Stops(bytes));
        let moved = run(range(Work::Copy { input, whole: true }), &backend).unwrap();
        (moved.bytes, moved.is_complete(), moved.checksum.is_some())
    };
    assert_eq!(copy(0), (0, false, false));
    assert_eq!(copy(3 * 8192 + 1), (3 * 8192, false, false));
    assert_eq!(
        copy(60 << 10),
        (60 << 10, true, true),
        "only its end is not known"
    );
}

/// Data processing in this program is the limit if it took more than half of the time, and its most expensive part is
/// named; otherwise the device is the limit.
#[test]
fn the_limit_is_the_most_expensive_part() {
    let cost = |checksum, pattern| DataCost {
        checksum: Duration::from_millis(checksum),
        pattern: Duration::from_millis(pattern),
        ..DataCost::default()
    };
    let elapsed = Duration::from_millis(100);
    assert_eq!(cost(60, 0).limit(elapsed), Some(Limit::Checksum));
    assert_eq!(cost(20, 40).limit(elapsed), Some(Limit::Pattern));
    assert_eq!(cost(20, 30).limit(elapsed), None);
    assert_eq!(DataCost::default().limit(elapsed), None);
    assert_eq!(cost(20, 40).total(), Duration::from_millis(60));
}

/// The cost of data is attributed to the operation performed on it, if any.
#[test]
fn the_cost_of_data_is_attributed_to_its_operation() {
    let backend = MemoryBackend::new(1 << 20, 512).unwrap();
    let cost = |work, sums| {
        run(
            RangeTransfer {
                sums,
                ..range(work)
            },
            &backend,
        )
        .unwrap()
        .spent
    };
    let read = cost(Work::Read(None), true);
    assert!(
        read.checksum > Duration::ZERO && read.total() == read.checksum,
        "{read:?}"
    );
    assert_eq!(cost(Work::Read(None), false).total(), Duration::ZERO);
    let made = cost(Work::Write(Pattern::Seeded(5)), false);
    assert!(
        made.pattern > Duration::ZERO && made.total() == made.pattern,
        "{made:?}"
    );
    let compared = cost(Work::Compare(Pattern::Seeded(5)), false);
    assert!(
        compared.comparison > Duration::ZERO && compared.total() == compared.comparison,
        "{compared:?}"
    );
}
