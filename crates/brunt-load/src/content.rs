//! The data of requests: the interface between the loop that sends requests and the code that generates written data
//! and checks read data. Complements [`crate::sequence`], which only determines offsets and sizes. The blocks of a
//! described workload ([`crate::block::blocks`]) are one implementation; others can use [`crate::block::seeded`] or any
//! other source.
//!
//! The rule: a worker reports every request to its content exactly once, when the request has ended. A buffer belongs
//! to the content during a call, to modify or to exchange for one of the same length; between calls it belongs to the
//! worker or the device.

use std::io;

use brunt_block::Buf;
use brunt_result::RequestStatus;
use brunt_result::wrong::Verified;

/// A request's buffer, and its content's state until the request ends.
#[derive(Debug, Default)]
pub struct Carried {
    /// As long as the longest request; a request uses its first bytes.
    pub buf: Buf,
    /// Whether the buffer was overwritten with other data since it was last filled for a write.
    pub stale: bool,
    /// Belongs to the content; workers only keep it.
    pub ticket: u64,
}

/// Generates data for writes and processes data from reads. Each worker owns one. Empty methods cost nothing, because
/// calls are statically dispatched.
pub trait Content {
    /// The type of a worker's requests.
    type Request;

    /// True if generating or checking data takes so long that workers have to read the clock once more. A request
    /// then counts as sent when the data of its batch has been generated, so that this time isn't attributed to the
    /// device.
    const TAKES_TIME: bool = false;

    /// Returns true if overlapping requests must not be in flight together when one of them changes data.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// Prepares a buffer for its first request; called once per buffer, before the start.
    fn prepare(&mut self, _carried: &mut Carried) {}

    /// Puts a write's data into its buffer; called once per write, even if the write is retried.
    fn fill(&mut self, request: &Self::Request, carried: &mut Carried);

    /// Called when a flush is about to be sent for the first time.
    fn flushes(&mut self, _carried: &mut Carried) {}

    /// Called when a request has ended, without further attempts, with the device's `status`. Returns the status after
    /// checking the data.
    fn completed(
        &mut self,
        request: &Self::Request,
        carried: &mut Carried,
        status: RequestStatus,
    ) -> RequestStatus;

    /// Describes what was wrong with the data of the most recent request. Called only for the first request that
    /// [`Content::completed`] found wrong.
    fn difference(&self) -> String {
        "the data differs from what was written".to_string()
    }

    /// Returns the results of checking all reads; `None` for a content that doesn't check them.
    fn verified(&self) -> Option<Verified> {
        None
    }

    /// Writes out records that must exist before requests are sent. Also called at the end.
    ///
    /// # Errors
    /// The data that was generated or checked could not be stored where it belongs; the worker's run ends with this
    /// error.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lets a caller inspect a content after the run.
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
