//! The tables of a result: what happened in an experiment, in Parquet files that DuckDB, pandas and
//! Spark read (docs/results.md). [`Results`] is the observer that writes them as the runs go;
//! `brunt report` reads them with `brunt_lake::read_table`.
//!
//! To add a table: one file here with its `TABLE` and a function that appends rows, one line in
//! [`TABLES`], and the event that fills it in `keeper.rs`.
//!
//! The rule: encoding and disk belong to a thread of their own. The thread that collects a run's
//! figures copies them into a bounded queue. When that stays full, workers wait in the end, and
//! `runs.recording_wait_ns` says for how long.

pub mod degradation;
pub mod environment;
pub mod faults;
mod figures;
pub mod histograms;
pub mod intervals;
mod keeper;
pub mod points;
pub mod probes;
pub mod requests;
mod room;
pub mod runs;

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use brunt_core::Nanos;
use brunt_lake::Table;
use brunt_result::{Figures, Interval, RequestRecord};

use crate::observe::{Event, FaultRecord, Observer, RunInfo, Sample};
use crate::summary::{RunSummary, Summary};
use keeper::Keeper;

/// All tables, each a folder of the result.
#[rustfmt::skip]
pub const TABLES: &[&Table] = &[
    &points::TABLE,
    &points::AXES,
    &runs::TABLE,
    &intervals::TABLE,
    &intervals::OPS,
    &histograms::TABLE,
    &requests::TABLE,
    &probes::TABLE,
    &faults::TABLE,
    &degradation::TABLE,
    &environment::TABLE,
];

/// Messages on their way to the writing thread. An interval is a megabyte, 4096 requests a third
/// of one.
const QUEUE_MAX: usize = 16;

/// Where in the experiment something happened.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The run's place among all.
    pub run: u32,
    /// Of a rate search, from 0.
    pub trial: u32,
    /// The start of the run's workers: the zero of all times in the tables.
    pub origin: Nanos,
}

/// What the writing thread is told; owned, unlike [`Event`].
enum Message {
    Begins(Box<Summary>),
    RunBegins(RunInfo),
    RunStarts(Nanos),
    Interval(Box<Interval>),
    Requests(Vec<RequestRecord>),
    Sample(Sample),
    Fault(FaultRecord),
    RunEnds(Box<(RunInfo, RunSummary, Figures)>),
}

/// Memory on its way back, to be filled again.
enum Spare {
    Interval(Box<Interval>),
    Requests(Vec<RequestRecord>),
}

/// The first trouble of the writing thread.
type Trouble = Arc<Mutex<Option<String>>>;

/// Writes the tables.
pub struct Results {
    queue: Option<SyncSender<Message>>,
    spares: Receiver<Spare>,
    #[allow(clippy::vec_box)] // the box itself goes through the queue and comes back
    intervals: Vec<Box<Interval>>,
    requests: Vec<Vec<RequestRecord>>,
    keeper: Option<JoinHandle<io::Result<()>>>,
    trouble: Trouble,
}

impl Results {
    /// Makes the tables in `folder`, still empty, and takes some room on its disk that a full disk will
    /// not have. `text` is the experiment as its user wrote it.
    ///
    /// # Errors
    /// The folder holds such tables already, or cannot be written to.
    pub fn create(folder: &Path, text: &str) -> io::Result<Results> {
        let (queue, inbox) = sync_channel(QUEUE_MAX);
        let (give_back, spares) = sync_channel(2 * QUEUE_MAX);
        let trouble = Trouble::default();
        let keeper = Keeper::create(folder, text, trouble.clone())?;
        let thread = std::thread::Builder::new().name("results".into());
        let keeper = Some(thread.spawn(move || keeper.keep(&inbox, &give_back))?);
        let (intervals, requests) = (Vec::new(), Vec::new());
        let queue = Some(queue);
        Ok(Results { queue, spares, intervals, requests, keeper, trouble })
    }

    fn send(&mut self, message: Message) -> io::Result<()> {
        let Some(queue) = &self.queue else { return Ok(()) };
        // Full: the collecting thread waits here, and the workers in the end; a run tells for how long.
        if queue.send(message).is_err() {
            return Err(io::Error::other("the thread that writes the results has ended"));
        }
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_ref().map_or(Ok(()), |what| Err(io::Error::other(what.clone())))
    }

    fn collect_spares(&mut self) {
        for spare in self.spares.try_iter() {
            match spare {
                Spare::Interval(interval) => self.intervals.push(interval),
                Spare::Requests(requests) => self.requests.push(requests),
            }
        }
    }

    fn end(&mut self) -> io::Result<()> {
        self.queue = None;
        match self.keeper.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the thread that writes the results panicked")),
        }
    }
}

impl Observer for Results {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.collect_spares();
        let message = match *event {
            Event::Begins(summary) => Message::Begins(Box::new(summary.clone())),
            Event::RunBegins(info) => Message::RunBegins(info.clone()),
            Event::RunStarts(start) => Message::RunStarts(start),
            Event::Interval(interval) => Message::Interval(match self.intervals.pop() {
                // A copy without allocation: the histograms are 270 KiB each.
                Some(mut copy) => {
                    (copy.index, copy.start, copy.end) = (interval.index, interval.start, interval.end);
                    copy.figures.clear();
                    copy.figures.merge(&interval.figures);
                    copy
                }
                None => Box::new(interval.clone()),
            }),
            Event::Requests(requests) => {
                let mut copy = self.requests.pop().unwrap_or_default();
                copy.clear();
                copy.extend_from_slice(requests);
                Message::Requests(copy)
            }
            Event::Sample(sample) => Message::Sample(sample.clone()),
            Event::Fault(fault) => Message::Fault(fault.clone()),
            Event::RunEnds(info, run, figures) => {
                Message::RunEnds(Box::new((info.clone(), run.clone(), figures.clone())))
            }
            Event::Ends(_) => return self.end(),
        };
        self.send(message)
    }
}

impl Drop for Results {
    /// The tables are complete also when the end was never told.
    fn drop(&mut self) {
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests;
