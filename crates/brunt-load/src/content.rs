//! The data of requests: the interface between the loop that sends requests and the code that generates
//! written data and checks read data. Complements [`crate::sequence`], which determines only offsets and
//! sizes. The blocks of a described workload ([`crate::block::blocks`]) are one implementation; others can
//! use [`crate::block::seeded`] or any other source.
//!
//! The rule: a worker reports every request to its content exactly once, when it has ended. A buffer belongs
//! to the content during a call, to modify or to exchange for one of the same length; between calls it
//! belongs to the worker or the device.

use std::io;

use brunt_block::Buf;
use brunt_result::RequestStatus;
use brunt_result::wrong::Verified;

/// A request's buffer, and what its content wants to find again when the request ends.
#[derive(Debug, Default)]
pub struct Carried {
    /// As long as the longest request; a request uses the first bytes of it.
    pub buf: Buf,
    /// Something else came into the buffer since a write was made in it.
    pub stale: bool,
    /// The content's own; workers only keep it.
    pub ticket: u64,
}

/// What writes send, and what is made of what reads bring. A worker owns one; calls are static, and those that do nothing
/// cost nothing.
pub trait Content {
    /// What a worker sends.
    type Request;

    /// Whether this takes so long that workers read the clock once more for it: then a request counts as sent when the
    /// contents of its batch are made: that time is none of the device's.
    const TAKES_TIME: bool = false;

    /// Whether requests must not be under way together when they overlap and one of them changes data.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// Makes a buffer ready for its first request; called once for each, before the start.
    fn prepare(&mut self, _carried: &mut Carried) {}

    /// Puts what a write sends into its buffer; called once for each write, however often it is sent.
    fn fill(&mut self, request: &Self::Request, carried: &mut Carried);

    /// A flush is about to be sent for the first time.
    fn flushes(&mut self, _carried: &mut Carried) {}

    /// A request ended for good, in this way as far as the device knows. Answers how it ended with its data
    /// looked at.
    fn completed(
        &mut self,
        request: &Self::Request,
        carried: &mut Carried,
        status: RequestStatus,
    ) -> RequestStatus;

    /// What was wrong with the data of the request that ended last, in words; asked only about the first that
    /// [`Content::completed`] found wrong.
    fn difference(&self) -> String {
        "the data differs from what was written".to_string()
    }

    /// What it found in the data of all reads; `None` if it does not look.
    fn verified(&self) -> Option<Verified> {
        None
    }

    /// Puts on record what has to be there before requests go out; also called at the end.
    ///
    /// # Errors
    /// What was made or looked at is not where it belongs; the worker's run ends with this.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// For whoever wants to look at a content after the run.
impl<C: Content> Content for &mut C {
    type Request = C::Request;
    const TAKES_TIME: bool = C::TAKES_TIME;

    fn is_exclusive(&self) -> bool {
        (**self).is_exclusive()
    }
    fn prepare(&mut self, carried: &mut Carried) {
        (**self).prepare(carried);
    }
    fn fill(&mut self, request: &C::Request, carried: &mut Carried) {
        (**self).fill(request, carried);
    }
    fn flushes(&mut self, carried: &mut Carried) {
        (**self).flushes(carried);
    }
    fn completed(
        &mut self,
        request: &C::Request,
        carried: &mut Carried,
        status: RequestStatus,
    ) -> RequestStatus {
        (**self).completed(request, carried, status)
    }
    fn difference(&self) -> String {
        (**self).difference()
    }
    fn verified(&self) -> Option<Verified> {
        (**self).verified()
    }
    fn flush(&mut self) -> io::Result<()> {
        (**self).flush()
    }
}
