//! Executes a thread's requests as operations of a client library, for any library.
//!
//! If writes are stable only after a flush, a request with `force_unit_access` becomes the operation followed by a
//! flush.
//!
//! The rule: every accepted request completes exactly once, after the library has completed the last of its operations.

use std::collections::VecDeque;
use std::sync::Arc;

use brunt_block::backends::in_range;
use brunt_block::table::OpenError;
use brunt_block::{
    Bell, Buf, Completion, Device, DeviceError, DeviceInfo, Health, Op, Request, Ring,
};
use brunt_core::Nanos;

use super::inbox::Landed;
use super::slots::{Library, LibraryOp, Slots};

/// Maximum requests of one device.
const DEPTH_MAX: u32 = 4096;

/// A device on an image.
pub(crate) struct LibraryDevice<L: Library> {
    info: DeviceInfo,
    slots: Slots<L>,
    /// The state of each slot.
    flights: Vec<Flight>,
    free: Vec<u32>,
    /// Requests that completed without involving the library.
    ready: Vec<Completion>,
    landed: Vec<Landed>,
    trouble: Option<&'static str>,
    bell: Bell,
}

/// A request that the library is processing; its buffer is in the slot.
struct Flight {
    request: Request,
    step: LibraryOp,
    /// Bytes completed.
    at: u64,
}

impl<L: Library> LibraryDevice<L> {
    /// Opens a device of `library` on this thread's ring.
    ///
    /// # Errors
    /// A polled ring cannot be woken, or no file descriptors are left.
    pub fn open(
        info: &DeviceInfo,
        library: &Arc<L>,
        ring: &Ring,
        depth: u32,
    ) -> Result<Box<dyn Device>, OpenError> {
        if ring.config().iopoll {
            return Err(DeviceError::Unsupported.into());
        }
        let depth = depth.clamp(1, DEPTH_MAX);
        let bell = Bell::new(ring).map_err(|error| OpenError::Failed(Box::new(error)))?;
        Ok(Box::new(LibraryDevice {
            info: info.clone(),
            slots: Slots::new(Arc::clone(library), depth, bell.waker()),
            flights: (0..depth).map(|_| Flight::none()).collect(),
            free: (0..depth).rev().collect(),
            ready: Vec::with_capacity(depth as usize),
            landed: Vec::with_capacity(depth as usize),
            trouble: None,
            bell,
        }))
    }

    /// The first step of a request; `None` if there is nothing to do.
    fn first_step(&self, request: &Request) -> Result<Option<LibraryOp>, DeviceError> {
        in_range(&self.info, request)?;
        if request.len == 0 && request.op != Op::Flush {
            return Ok(None);
        }
        Ok(Some(match request.op {
            Op::Read => LibraryOp::Read,
            Op::Write => LibraryOp::Write,
            Op::Flush => LibraryOp::Flush,
            Op::Unmap => LibraryOp::Discard,
            Op::WriteZeroes => LibraryOp::Zero,
        }))
    }

    /// Starts a slot's step at its current offset.
    fn begin(&mut self, index: u32) -> Result<(), i32> {
        let Flight { request, step, at } = &self.flights[index as usize];
        let (offset, len) = match step {
            LibraryOp::Flush => (0, 0),
            _ => (request.offset + at, request.len - at),
        };
        self.slots.begin(index, *step, offset, *at, len)
    }

    /// Processes the completion of a slot's step; returns the request's result if this was the last step.
    fn advance(&mut self, index: u32, result: i64) -> Option<Result<(), DeviceError>> {
        let flight = &mut self.flights[index as usize];
        if result < 0 {
            return Some(Err(self.refused(-result as i32)));
        }
        if flight.step == LibraryOp::Flush {
            return Some(Ok(()));
        }
        let left = flight.request.len - flight.at;
        let moved = L::moved(flight.step, left, result);
        if moved == 0 || moved > left {
            // The image is shorter than its stated size, or was truncated.
            return Some(Err(DeviceError::Os(libc::EIO)));
        }
        flight.at += moved;
        if flight.at == flight.request.len {
            let changes = flight.step != LibraryOp::Read;
            if !(changes && flight.request.force_unit_access && self.info.volatile_cache) {
                return Some(Ok(()));
            }
            flight.step = LibraryOp::Flush;
        }
        self.begin(index)
            .err()
            .map(|errno| Err(self.refused(errno)))
    }

    fn refused(&mut self, errno: i32) -> DeviceError {
        self.trouble = L::trouble(errno).or(self.trouble);
        DeviceError::Os(errno)
    }

    /// Completes a slot's request.
    fn end(&mut self, index: u32, result: Result<(), DeviceError>) -> Completion {
        let buf = self.slots.swap_buf(index, Buf::empty());
        self.free.push(index);
        Completion {
            tag: self.flights[index as usize].request.tag,
            buf,
            result,
        }
    }
}

impl Flight {
    fn none() -> Flight {
        let request = Request {
            tag: 0,
            op: Op::Flush,
            offset: 0,
            len: 0,
            buf: Buf::empty(),
            force_unit_access: false,
        };
        Flight {
            request,
            step: LibraryOp::Flush,
            at: 0,
        }
    }
}

impl<L: Library> Device for LibraryDevice<L> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        while self.free.len() > self.ready.len() {
            let Some(mut request) = batch.pop_front() else {
                break;
            };
            let step = match self.first_step(&request) {
                Ok(Some(step)) => step,
                nothing => {
                    let result = nothing.map(drop);
                    self.ready.push(Completion {
                        tag: request.tag,
                        buf: request.buf,
                        result,
                    });
                    continue;
                }
            };
            let index = self
                .free
                .pop()
                .expect("more slots are free than completions are ready");
            self.slots.swap_buf(index, std::mem::take(&mut request.buf));
            self.flights[index as usize] = Flight {
                request,
                step,
                at: 0,
            };
            if let Err(errno) = self.begin(index) {
                let error = self.refused(errno);
                let ended = self.end(index, Err(error));
                self.ready.push(ended);
            }
        }
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.ready);
        // Take the bell first, so that later completions wake the thread again.
        self.bell.take();
        let mut landed = std::mem::take(&mut self.landed);
        self.slots.take(&mut landed);
        for (index, result) in landed.drain(..) {
            if let Some(result) = self.advance(index, result) {
                let ended = self.end(index, result);
                done.push(ended);
            }
        }
        self.landed = landed;
    }

    fn outstanding(&self) -> u32 {
        (self.flights.len() - self.free.len() + self.ready.len()) as u32
    }

    fn deadline(&self) -> Nanos {
        if self.ready.is_empty() {
            Nanos::MAX
        } else {
            Nanos(0)
        }
    }

    fn health(&self) -> Health {
        Health {
            trouble: self.trouble.map(str::to_string),
            ..Health::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use brunt_block::RingConfig;
    use brunt_block::turn::turn;

    use super::super::slots::fake::Fake;
    use super::*;

    const SIZE: u64 = 64 << 10;

    fn info(volatile_cache: bool) -> DeviceInfo {
        DeviceInfo {
            name: "fake".to_string(),
            block_bytes: 512,
            size_bytes: SIZE,
            physical_block_bytes: 4096,
            buffer_align: 1,
            transfer_bytes_max: 1 << 20,
            read_only: false,
            volatile_cache,
            unmap: true,
            facts: Vec::new(),
            notes: Vec::new(),
        }
    }

    struct Bench {
        fake: Arc<Fake>,
        ring: Ring,
        device: Box<dyn Device>,
    }

    impl Bench {
        fn new(depth: u32, volatile_cache: bool) -> Bench {
            let fake = Fake::of(SIZE as usize);
            let ring = Ring::new(RingConfig::default()).unwrap();
            let device = LibraryDevice::open(&info(volatile_cache), &fake, &ring, depth).unwrap();
            Bench { fake, ring, device }
        }

        /// Runs these requests to completion and returns them ordered by tag; the library completes `operations`
        /// operations.
        fn run(
            &mut self,
            requests: Vec<Request>,
            operations: usize,
            errno: i32,
        ) -> Vec<Completion> {
            assert_eq!(self.device.outstanding(), 0);
            let mut batch = VecDeque::from(requests);
            let wanted = batch.len();
            let fake = Arc::clone(&self.fake);
            let ender = std::thread::spawn(move || fake.end(operations, errno));
            let mut done = Vec::new();
            while done.len() < wanted {
                turn(&self.ring, &mut *self.device, &mut batch, &mut done).unwrap();
            }
            ender.join().unwrap();
            done.sort_by_key(|completion| completion.tag);
            done
        }
    }

    fn request(tag: u64, op: Op, offset: u64, len: usize, fill: u8) -> Request {
        let mut buf = Buf::zeroed(if matches!(op, Op::Read | Op::Write) {
            len
        } else {
            0
        });
        buf.fill(fill);
        Request {
            tag,
            op,
            offset,
            len: len as u64,
            buf,
            force_unit_access: false,
        }
    }

    #[test]
    fn requests_complete_once_with_their_data_in_any_order() {
        let mut bench = Bench::new(4, false);
        // More requests than slots.
        let writes = (0..16)
            .map(|tag| request(tag, Op::Write, tag * 4096, 4096, tag as u8 + 1))
            .collect();
        assert!(
            bench
                .run(writes, 16, 0)
                .iter()
                .all(|completion| completion.result.is_ok())
        );
        let reads = (0..16)
            .map(|tag| request(tag, Op::Read, tag * 4096, 4096, 0))
            .collect();
        for (tag, completion) in bench.run(reads, 16, 0).iter().enumerate() {
            assert_eq!(completion.result, Ok(()));
            assert!(
                completion.buf.iter().all(|&byte| byte == tag as u8 + 1),
                "request {tag}"
            );
        }
    }

    #[test]
    fn a_short_transfer_continues_where_it_stopped() {
        let mut bench = Bench::new(1, false);
        *bench.fake.at_most.lock().unwrap() = Some(1536);
        let done = bench.run(vec![request(0, Op::Write, 512, 4096, 7)], 3, 0);
        assert_eq!(done[0].result, Ok(()));
        let medium = bench.fake.medium.lock().unwrap();
        assert!(
            medium[512..4608].iter().all(|&byte| byte == 7)
                && medium[511] == 0
                && medium[4608] == 0
        );
    }

    #[test]
    fn a_write_that_must_be_stable_is_followed_by_a_flush_where_there_is_a_cache() {
        for (cache, expected) in [
            (true, vec![LibraryOp::Write, LibraryOp::Flush]),
            (false, vec![LibraryOp::Write]),
        ] {
            let mut bench = Bench::new(1, cache);
            let write = Request {
                force_unit_access: true,
                ..request(0, Op::Write, 0, 512, 1)
            };
            assert_eq!(bench.run(vec![write], expected.len(), 0)[0].result, Ok(()));
            assert_eq!(*bench.fake.ended.lock().unwrap(), expected);
        }
    }

    #[test]
    fn zeros_and_holes_reach_the_library() {
        let mut bench = Bench::new(4, true);
        bench.fake.medium.lock().unwrap().fill(9);
        let zeros = vec![
            request(0, Op::WriteZeroes, 0, 4096, 0),
            request(1, Op::Unmap, 4096, 4096, 0),
        ];
        assert!(
            bench
                .run(zeros, 2, 0)
                .iter()
                .all(|completion| completion.result.is_ok())
        );
        let medium = bench.fake.medium.lock().unwrap();
        assert!(medium[..8192].iter().all(|&byte| byte == 0) && medium[8192] == 9);
    }

    #[test]
    fn errors_keep_their_number_and_return_the_buffer() {
        let mut bench = Bench::new(2, false);
        let done = bench.run(vec![request(5, Op::Read, 0, 512, 0)], 1, libc::ESHUTDOWN);
        assert_eq!(
            (done[0].result, done[0].buf.len()),
            (Err(DeviceError::Os(libc::ESHUTDOWN)), 512)
        );
        assert_eq!(bench.device.health().trouble.as_deref(), Some("shut out"));
        *bench.fake.refuses.lock().unwrap() = Some(libc::ENOMEM);
        let done = bench.run(vec![request(6, Op::Read, 0, 512, 0)], 0, 0);
        assert_eq!(
            (done[0].result, done[0].buf.len()),
            (Err(DeviceError::Os(libc::ENOMEM)), 512)
        );
    }

    #[test]
    fn requests_outside_the_image_never_reach_the_library() {
        let mut bench = Bench::new(2, false);
        let outside = vec![
            request(0, Op::Read, SIZE, 512, 0),
            request(1, Op::Write, 100, 512, 0),
        ];
        for completion in bench.run(outside, 0, 0) {
            assert_eq!(completion.result, Err(DeviceError::OutOfRange));
        }
        assert_eq!(
            bench.run(vec![request(0, Op::Write, 0, 0, 0)], 0, 0)[0].result,
            Ok(())
        );
        assert!(bench.fake.ended.lock().unwrap().is_empty());
    }
}
