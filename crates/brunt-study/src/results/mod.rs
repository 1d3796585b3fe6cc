//! Writes the tables of a result during the runs (see docs/results.md; `brunt_result::tables` defines them).
//! [`Results`] is the observer that does this; `brunt report` reads the tables with `brunt_lake::read_table`.
//!
//! The rule: encoding and disk access happen on a separate thread. The thread that collects a run's figures passes
//! them to a bounded queue. If the queue stays full, workers eventually wait, and `runs.recording_wait_ns` has the
//! total.

mod claim;
mod environment;
mod room;
mod writer;

use std::io;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use brunt_result::event::Event;

use crate::observe::Observer;
pub use claim::{ClaimError, ClaimedFolder, make_private};
use writer::ResultWriter;

/// Maximum number of events queued for the writing thread. An interval takes a megabyte, and 4096 requests a third of
/// a megabyte.
const QUEUE_MAX: usize = 16;

/// The writing thread's first error.
type Trouble = Arc<Mutex<Option<String>>>;

/// Writes the tables.
pub struct Results {
    queue: Option<SyncSender<Event>>,
    writer: Option<JoinHandle<io::Result<()>>>,
    trouble: Trouble,
}

impl Results {
    /// Creates empty tables in `folder`, and reserves some disk space in case the disk becomes full. `text` is the
    /// experiment file as its user wrote it.
    ///
    /// # Errors
    /// The folder already contains such tables, or cannot be written to.
    pub fn create(folder: &Path, text: &str) -> io::Result<Results> {
        let (queue, inbox) = sync_channel(QUEUE_MAX);
        let trouble = Trouble::default();
        let writer = ResultWriter::create(folder, text, trouble.clone())?;
        let thread = std::thread::Builder::new().name("results".into());
        let writer = Some(thread.spawn(move || writer.keep(&inbox))?);
        Ok(Results {
            queue: Some(queue),
            writer,
            trouble,
        })
    }

    fn send(&mut self, event: Event) -> io::Result<()> {
        let Some(queue) = &self.queue else {
            return Ok(());
        };
        // If the queue is full, the collecting thread waits here, and eventually so do the workers; runs record for
        // how long.
        if queue.send(event).is_err() {
            return Err(io::Error::other(
                "the thread that writes the results has ended",
            ));
        }
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble
            .as_ref()
            .map_or(Ok(()), |what| Err(io::Error::other(what.clone())))
    }

    fn end(&mut self) -> io::Result<()> {
        self.queue = None;
        match self.writer.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other(
                "the thread that writes the results panicked",
            )),
        }
    }
}

impl Observer for Results {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Ends(_) => {
                // `end` reports what stopped the thread.
                let _ = self.send(event.clone());
                self.end()
            }
            event => self.send(event.clone()),
        }
    }
}

impl Drop for Results {
    /// Completes the tables even if no event reported the end.
    fn drop(&mut self) {
        let _ = self.end();
    }
}
