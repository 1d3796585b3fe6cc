//! The threads of a run: one for each worker, told to start together and obeying the run's commands. What a thread does
//! is its load's ([`WorkerJob`]).
//!
//! The rule: dropped, it stops its workers and waits until they are gone.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use brunt_block::{Backend, Health, Ring, RingConfig};
use brunt_core::{IoEngine, Nanos};
use brunt_result::Outcome;
use brunt_result::choice::EngineSetting;

use super::workload::{Arrival, Workload, ring_config};
use crate::collect::WorkerMessage;
use crate::commands::{CommandLimits, Commands, LoadCommand, LoadCommandError};
use crate::load::{Finished, LoadError, MessageSender, RunningLoad};

/// Registered buffers of a worker at the most; what goes beyond works unregistered.
const ARENA_BYTES_MAX: usize = 64 << 20;

/// What all workers of a run share, and what each does.
pub(crate) trait WorkerJob: Send + Sync + 'static {
    /// How requests are sent.
    fn workload(&self) -> &Workload;

    /// What the workers are told.
    fn commands(&self) -> &Commands;

    /// One worker's thread, from its making to its end; also what its device went through.
    ///
    /// # Errors
    /// It could not be made ready, or failed.
    fn work(
        &self,
        worker: u32,
        inbox: &MessageSender,
        started: &Receiver<Nanos>,
    ) -> Result<(Outcome, Health), LoadError>;
}

/// A worker's ring, with buffers for its requests.
///
/// # Errors
/// The kernel's.
pub(crate) fn ring_of(workload: &Workload, base: &RingConfig) -> std::io::Result<Ring> {
    let depth = workload.queue_depth;
    let block = (workload.block_bytes_max().max(4096) as usize).next_power_of_two();
    let arena_bytes = (block * depth as usize).min(ARENA_BYTES_MAX);
    let entries = depth.next_power_of_two().max(8);
    let config = ring_config(workload.ring, base.clone());
    let stated = match workload.engine {
        Some(EngineSetting::IoUring) => Some(IoEngine::IoUring),
        Some(EngineSetting::Threads) => Some(IoEngine::Threads),
        // Settled before a run.
        Some(EngineSetting::Auto) | None => None,
    };
    Ring::new(RingConfig {
        engine: stated.or(config.engine),
        arena_bytes,
        entries,
        ..config
    })
}

/// Opens a worker's device on its ring.
///
/// # Errors
/// The device's.
pub(crate) fn open_device(
    backend: &dyn Backend,
    ring: &Ring,
    worker: u32,
    depth: u32,
) -> Result<Box<dyn brunt_block::Device>, LoadError> {
    let device = backend.info().name.clone();
    backend.open(ring, depth).map_err(|source| LoadError::Open {
        worker,
        device,
        source: Box::new(source),
    })
}

/// The workers of a run, each in its thread.
pub(crate) struct Workers<J: WorkerJob> {
    job: Arc<J>,
    starts: Vec<SyncSender<Nanos>>,
    threads: Vec<JoinHandle<()>>,
    /// What the devices of workers that are done went through.
    troubles: Arc<Mutex<Vec<String>>>,
}

impl<J: WorkerJob> Workers<J> {
    /// Starts them; each reports to `inbox` when it is ready.
    ///
    /// # Errors
    /// There is no thread for one.
    pub(crate) fn spawn(job: J, inbox: &MessageSender) -> Result<Workers<J>, LoadError> {
        let count = job.workload().workers;
        let mut workers = Workers {
            job: Arc::new(job),
            starts: Vec::new(),
            threads: Vec::new(),
            troubles: Arc::default(),
        };
        for worker in 0..count {
            let (start, started) = sync_channel::<Nanos>(1);
            workers.starts.push(start);
            let (job, inbox) = (Arc::clone(&workers.job), inbox.clone());
            let troubles = Arc::clone(&workers.troubles);
            let work = move || {
                let result = job.work(worker, &inbox, &started).map(|(outcome, health)| {
                    let note = health.note().map(|note| format!("worker {worker}: {note}"));
                    troubles
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .extend(note);
                    outcome
                });
                inbox.send(WorkerMessage::Done(worker, Box::new(result)));
            };
            let thread = std::thread::Builder::new()
                .name(format!("worker-{worker}"))
                .spawn(work);
            workers
                .threads
                .push(thread.map_err(|source| LoadError::Io { worker, source })?);
        }
        Ok(workers)
    }

    /// Waits for all of them; what their devices went through, by worker.
    pub(crate) fn troubles(&mut self) -> Vec<String> {
        self.join();
        let mut troubles =
            std::mem::take(&mut *self.troubles.lock().unwrap_or_else(PoisonError::into_inner));
        troubles.sort_unstable();
        troubles
    }

    /// Waits for all of them.
    pub(crate) fn join(&mut self) {
        self.starts.clear();
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join()
                && !std::thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Workload {
    /// What workers that were made ready for this workload can be told.
    pub(crate) fn command_limits(&self) -> CommandLimits {
        CommandLimits {
            has_rate: matches!(self.arrival, Arrival::Open { .. }),
            depth_max: Some(self.queue_depth),
        }
    }
}

impl<J: WorkerJob> RunningLoad for Workers<J> {
    fn start(&mut self, at: Nanos) {
        for start in self.starts.drain(..) {
            // One that could not be made ready does not listen.
            let _ = start.send(at);
        }
    }

    fn command(&mut self, command: LoadCommand) -> Result<(), LoadCommandError> {
        self.job.workload().command_limits().check(command)?;
        self.job.commands().give(command);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Finished {
        Finished {
            troubles: self.troubles(),
            ..Finished::default()
        }
    }
}

impl<J: WorkerJob> Drop for Workers<J> {
    fn drop(&mut self) {
        self.job.commands().give(LoadCommand::Stop);
        self.join();
    }
}
