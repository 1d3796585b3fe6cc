//! The input of a transfer. A thread reads it ahead of the requests and computes its checksum, so that neither a slow
//! pipe nor the checksum delays requests or the handling of Ctrl-C.
//!
//! The rule: the checksum covers the input's bytes for this range, without the padding of the last block.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::input::is_stopped;
use brunt_core::{Clock, Nanos};
use sha2::{Digest, Sha256};

use crate::sequence::Next;

/// How much to read ahead, subject to a minimum and maximum number of blocks.
const AHEAD_BYTES: u64 = 4 << 20;
const AHEAD_BLOCKS: (u64, u64) = (2, 64);
/// How soon to ask again for a block that is not available yet.
const ASK_AGAIN: Duration = Duration::from_micros(100);

/// What a transfer needs from the input.
pub struct Wanted {
    /// Length of the range in bytes.
    pub length: u64,
    /// Size of a request in bytes.
    pub block: u64,
    /// Number of requests.
    pub count: u64,
    /// The device's block size; each request's length is a multiple of it.
    pub block_bytes: usize,
    /// Whether to compute the checksum.
    pub sums: bool,
    /// Whether to check if the input continues after the range.
    pub checks_end: bool,
}

/// The results of reading the input.
#[derive(Default)]
pub struct Consumed {
    /// The checksum, if requested.
    pub hash: Option<Sha256>,
    /// Time spent on the checksum.
    pub checksum: Duration,
    /// Whether the input continues after the range.
    pub left: bool,
    /// How long requests had to wait for input.
    pub waited: Duration,
    /// Number of zeros that pad the last block.
    pub padded_bytes: u64,
}

/// A padded block of the input, whose first `got` bytes are data.
struct Block {
    bytes: Vec<u8>,
    got: usize,
}

/// The requests' side of the input.
pub struct Input {
    /// Open until all requests have been issued.
    blocks: Option<Receiver<io::Result<Block>>>,
    used: Sender<Vec<u8>>,
    thread: Option<JoinHandle<io::Result<Consumed>>>,
    /// The block for the next request.
    ready: Option<Block>,
    waits_since: Option<Nanos>,
    failure: Option<io::Error>,
    stopped: bool,
    waited: Duration,
    padded_bytes: u64,
}

impl Input {
    /// Starts reading ahead.
    pub fn new(input: Box<dyn Read + Send>, wanted: Wanted) -> io::Result<Input> {
        let ahead = (AHEAD_BYTES / wanted.block).clamp(AHEAD_BLOCKS.0, AHEAD_BLOCKS.1);
        let (sender, blocks) = sync_channel(ahead as usize);
        let (used, unused) = channel();
        let thread = std::thread::Builder::new()
            .name("input".into())
            .spawn(move || read_ahead(input, &wanted, &sender, &unused))?;
        Ok(Input {
            blocks: Some(blocks),
            used,
            thread: Some(thread),
            ready: None,
            waits_since: None,
            failure: None,
            stopped: false,
            waited: Duration::ZERO,
            padded_bytes: 0,
        })
    }

    /// Returns true if the program was stopped before the input ended, so that more input would have followed.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns [`Next::Due`] if the data of the next request is available, and writes its length into `len`.
    pub fn next(&mut self, now: Nanos, len: &mut u64) -> Next {
        assert!(self.ready.is_none(), "each block goes into a request");
        let block = match self
            .blocks
            .as_ref()
            .expect("the input is not queried after its end")
            .try_recv()
        {
            Ok(block) => block,
            Err(TryRecvError::Disconnected) => return Next::End,
            Err(TryRecvError::Empty) => {
                self.waits_since.get_or_insert(now);
                return Next::Later(now.after(ASK_AGAIN));
            }
        };
        self.waited += self
            .waits_since
            .take()
            .map_or(Duration::ZERO, |since| now.since(since));
        match block {
            Ok(block) => {
                *len = block.bytes.len() as u64;
                self.padded_bytes += *len - block.got as u64;
                self.ready = Some(block);
                Next::Due(now)
            }
            Err(error) if is_stopped(&error) => {
                self.stopped = true;
                Next::End
            }
            Err(error) => {
                self.failure = Some(error);
                Next::End
            }
        }
    }

    /// Copies the block announced by [`Input::next`] into a write.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        let block = self
            .ready
            .take()
            .expect("a request is created once its data has arrived");
        bytes.copy_from_slice(&block.bytes);
        // Fails if the reader has finished, which is fine.
        let _ = self.used.send(block.bytes);
    }

    /// Returns the results after all requests are done; incomplete if `goes_on` stops waiting for the end of the input.
    ///
    /// # Errors
    /// The input could not be read.
    pub fn finish(&mut self, goes_on: &mut dyn FnMut() -> bool) -> io::Result<Consumed> {
        // If the thread is still reading ahead, it stops at the next block.
        self.blocks = None;
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let thread = self.thread.take().expect("an input has one end");
        while !thread.is_finished() && goes_on() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let consumed = match thread.is_finished() {
            true => thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?,
            false => Consumed::default(),
        };
        Ok(Consumed {
            waited: self.waited,
            padded_bytes: self.padded_bytes,
            ..consumed
        })
    }
}

fn read_ahead(
    mut input: Box<dyn Read + Send>,
    wanted: &Wanted,
    blocks: &SyncSender<io::Result<Block>>,
    unused: &Receiver<Vec<u8>>,
) -> io::Result<Consumed> {
    let mut consumed = Consumed {
        hash: wanted.sums.then(Sha256::new),
        ..Consumed::default()
    };
    let mut left = wanted.length;
    for _ in 0..wanted.count {
        let mut bytes = unused.try_recv().unwrap_or_default();
        bytes.resize(wanted.block.min(left) as usize, 0);
        let got = match read_full(&mut input, &mut bytes) {
            Ok(0) => return Ok(consumed),
            Ok(got) => got,
            Err(error) => {
                let _ = blocks.send(Err(error));
                return Ok(consumed);
            }
        };
        left -= bytes.len() as u64;
        bytes[got..].fill(0);
        bytes.truncate(got.next_multiple_of(wanted.block_bytes));
        if let Some(hash) = &mut consumed.hash {
            let begin = Clock::Monotonic.now();
            hash.update(&bytes[..got]);
            consumed.checksum += Clock::Monotonic.now().since(begin);
        }
        if blocks.send(Ok(Block { bytes, got })).is_err() {
            // The run ended before the input did.
            return Ok(consumed);
        }
    }
    consumed.left = wanted.checks_end
        && match read_full(&mut input, &mut [0]) {
            Ok(got) => got > 0,
            Err(error) if is_stopped(&error) => false,
            Err(error) => return Err(error),
        };
    Ok(consumed)
}

/// Reads until the buffer is full or the input ends.
fn read_full(input: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < buf.len() {
        match input.read(&mut buf[at..]) {
            Ok(0) => break,
            Ok(count) => at += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}
