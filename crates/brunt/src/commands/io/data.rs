//! What the requests of `brunt io` carry: made of a pattern, taken from the input, handed to the output and the checksum,
//! or compared. Measures what each of these costs, because it is no cost of the device.
//!
//! The rule: once data of the range is missing there is no checksum, and nothing behind the hole is put out.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::Duration;

use brunt_block::{BufPool, Op};
use brunt_core::Clock;
use brunt_load::block::generator::Planned;
use brunt_load::block::seeded::{Pattern, Wrong};
use brunt_load::block::transfer::InOrder;
use brunt_load::content::{Carried, Content};
use brunt_result::RequestStatus;
use sha2::{Digest, Sha256};

use super::input::Input;
use crate::cli::Failure;

/// Where data comes from or goes to.
pub enum Way {
    /// Read in order, into a file if there is one.
    Out(InOrder, Option<Box<dyn Write>>),
    /// Read, and nobody wants it.
    Nowhere,
    /// Written, made of a pattern.
    Made(Pattern),
    /// Written, taken from a file.
    Input(Rc<RefCell<Input>>),
    /// Read and compared with a pattern, in blocks of so many bytes.
    Compared(Pattern, usize),
}

/// Time of this program that went into data.
#[derive(Clone, Copy, Default)]
pub struct Spent {
    pub checksum: Duration,
    pub pattern: Duration,
    pub comparison: Duration,
    pub output: Duration,
}

/// The contents of a run's requests.
pub struct Data {
    pub way: Way,
    pub hash: Option<Sha256>,
    pub spent: Spent,
    pub wrong_blocks: u64,
    pub first_wrong: Option<Wrong>,
    expected: Vec<u8>,
    failure: Option<io::Error>,
}

impl Data {
    pub fn new(way: Way, hash: Option<Sha256>) -> Data {
        let (expected, spent) = (Vec::new(), Spent::default());
        Data { way, hash, spent, wrong_blocks: 0, first_wrong: None, expected, failure: None }
    }

    /// Reads go in order to a checksum or a file, or nowhere.
    pub fn of_reads(sink: Option<Box<dyn Write>>, hash: Option<Sha256>, pool: &BufPool) -> Data {
        match (&sink, &hash) {
            (None, None) => Data::new(Way::Nowhere, None),
            _ => Data::new(Way::Out(InOrder::new(pool.clone()), sink), hash),
        }
    }

    /// A read came back.
    fn came(&mut self, request: &Planned, carried: &mut Carried) -> io::Result<()> {
        let Data { way, hash, spent, wrong_blocks, first_wrong, expected, .. } = self;
        match way {
            Way::Out(order, sink) => order.take(request, carried, |bytes| {
                if let Some(hash) = hash {
                    timed(&mut spent.checksum, || hash.update(bytes));
                }
                match sink {
                    Some(sink) => timed(&mut spent.output, || sink.write_all(bytes)),
                    None => Ok(()),
                }
            }),
            Way::Compared(pattern, block) => {
                let found = &carried.buf[..request.len as usize];
                timed(&mut spent.comparison, || {
                    pattern.compare(*block, request.offset, found, expected, |wrong| {
                        *wrong_blocks += 1;
                        // The first by address, not by time.
                        if first_wrong.is_none_or(|first| wrong.offset < first.offset) {
                            *first_wrong = Some(wrong);
                        }
                    });
                });
                Ok(())
            }
            Way::Nowhere | Way::Made(_) | Way::Input(_) => Ok(()),
        }
    }

    /// All of the output is where it belongs.
    pub fn finish(&mut self) -> io::Result<()> {
        match &mut self.way {
            Way::Out(_, Some(sink)) => sink.flush().map_err(no_output),
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
            Way::Made(pattern) => {
                timed(&mut self.spent.pattern, || pattern.fill(write.offset, bytes));
                if let Some(hash) = &mut self.hash {
                    timed(&mut self.spent.checksum, || hash.update(bytes));
                }
            }
            Way::Input(input) => input.borrow_mut().fill(bytes),
            Way::Out(..) | Way::Nowhere | Way::Compared(..) => {}
        }
    }

    /// Wrong blocks are counted here: the request itself went well.
    fn completed(
        &mut self,
        request: &Planned,
        carried: &mut Carried,
        status: RequestStatus,
    ) -> RequestStatus {
        if status != RequestStatus::Good {
            self.hash = None;
            if let Way::Out(_, None) = self.way {
                self.way = Way::Nowhere;
            }
        } else if request.op == Op::Read
            && let Err(error) = self.came(request, carried)
        {
            self.failure.get_or_insert(no_output(error));
        }
        status
    }

    fn flush(&mut self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

fn no_output(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write the output: {error}"))
}

fn timed<T>(spent: &mut Duration, work: impl FnOnce() -> T) -> T {
    let begin = Clock::Monotonic.now();
    let done = work();
    *spent += Clock::Monotonic.now().since(begin);
    done
}

/// A file to read into.
pub fn open_sink(path: &str) -> Result<Box<dyn Write>, Failure> {
    if path == "-" {
        return Ok(Box::new(io::stdout()));
    }
    let file = File::create(path).map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    Ok(Box::new(file))
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
