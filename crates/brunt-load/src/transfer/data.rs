//! The data of a transfer's requests: generated from a pattern, taken from the input, passed to the output and the
//! checksum, or compared. Measures the cost of each, which is not part of the device's time.
//!
//! The rule: once data of the range is missing, there is no checksum, and nothing after the gap is output.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::Duration;

use brunt_block::Op;
use brunt_core::Clock;
use brunt_result::RequestStatus;
use sha2::{Digest, Sha256};

use super::DataCost;
use super::input::Input;
use super::order::InOrder;
use crate::block::generator::Planned;
use crate::block::seeded::{Pattern, Wrong};
use crate::content::{Carried, Content};

/// The source or destination of the data.
pub enum DataEnd {
    /// Read in order, and written to a file if there is one.
    Out(InOrder, Option<Box<dyn Write>>),
    /// Read and discarded.
    Nowhere,
    /// Written, generated from a pattern.
    Made(Pattern),
    /// Written, taken from an input.
    Input(Rc<RefCell<Input>>),
    /// Read and compared with a pattern, in blocks of this many bytes.
    Compared(Pattern, usize),
}

/// The data of a transfer's requests.
pub struct Data {
    way: DataEnd,
    pub hash: Option<Sha256>,
    pub spent: DataCost,
    pub wrong_blocks: u64,
    pub first_wrong: Option<Wrong>,
    expected: Vec<u8>,
    /// Error of the output.
    pub failure: Option<io::Error>,
}

impl Data {
    pub fn new(way: DataEnd, hash: Option<Sha256>) -> Data {
        let (expected, spent) = (Vec::new(), DataCost::default());
        Data {
            way,
            hash,
            spent,
            wrong_blocks: 0,
            first_wrong: None,
            expected,
            failure: None,
        }
    }

    /// Processes the data of a completed read.
    fn on_piece(&mut self, request: &Planned, carried: &mut Carried) -> io::Result<()> {
        let Data {
            way,
            hash,
            spent,
            wrong_blocks,
            first_wrong,
            expected,
            ..
        } = self;
        match way {
            DataEnd::Out(order, sink) => order.take(request, carried, |bytes| {
                if let Some(hash) = hash {
                    timed(&mut spent.checksum, || hash.update(bytes));
                }
                match sink {
                    Some(sink) => timed(&mut spent.output, || sink.write_all(bytes)),
                    None => Ok(()),
                }
            }),
            DataEnd::Compared(pattern, block) => {
                let found = &carried.buf[..request.len as usize];
                timed(&mut spent.comparison, || {
                    pattern.compare(*block, request.offset, found, expected, |wrong| {
                        *wrong_blocks += 1;
                        // Keep the first by address, not by time.
                        if first_wrong.is_none_or(|first| wrong.offset < first.offset) {
                            *first_wrong = Some(wrong);
                        }
                    });
                });
                Ok(())
            }
            DataEnd::Nowhere | DataEnd::Made(_) | DataEnd::Input(_) => Ok(()),
        }
    }

    /// Flushes the output.
    pub fn finish(&mut self) -> io::Result<()> {
        match &mut self.way {
            DataEnd::Out(_, Some(sink)) => sink.flush(),
            _ => Ok(()),
        }
    }
}

impl Content for Data {
    type Request = Planned;
    const TAKES_TIME: bool = true;

    fn fill(&mut self, write: &Planned, carried: &mut Carried) {
        let bytes = &mut carried.buf[..write.len as usize];
        match &self.way {
            DataEnd::Made(pattern) => {
                timed(&mut self.spent.pattern, || {
                    pattern.fill(write.offset, bytes)
                });
                if let Some(hash) = &mut self.hash {
                    timed(&mut self.spent.checksum, || hash.update(bytes));
                }
            }
            DataEnd::Input(input) => input.borrow_mut().fill(bytes),
            DataEnd::Out(..) | DataEnd::Nowhere | DataEnd::Compared(..) => {}
        }
    }

    /// Wrong blocks are counted in this program, but their requests succeed.
    fn completed(
        &mut self,
        request: &Planned,
        carried: &mut Carried,
        status: RequestStatus,
    ) -> RequestStatus {
        if status != RequestStatus::Good {
            self.hash = None;
            if let DataEnd::Out(_, None) = self.way {
                self.way = DataEnd::Nowhere;
            }
        } else if request.op == Op::Read
            && let Err(error) = self.on_piece(request, carried)
        {
            self.failure.get_or_insert(error);
        }
        status
    }

    fn flush(&mut self) -> io::Result<()> {
        self.failure
            .as_ref()
            .map_or(Ok(()), |error| Err(error.kind().into()))
    }
}

fn timed<T>(spent: &mut Duration, work: impl FnOnce() -> T) -> T {
    let begin = Clock::Monotonic.now();
    let done = work();
    *spent += Clock::Monotonic.now().since(begin);
    done
}
