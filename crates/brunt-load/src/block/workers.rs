//! Runs the threads of a run, one per worker: starts them together and forwards the run's commands. The load defines
//! what each thread does ([`WorkerJob`]).
//!
//! The rule: dropping [`Workers`] stops all workers and waits until they have ended.

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

/// Maximum total size of a worker's registered buffers; buffers beyond it are not registered.
const ARENA_BYTES_MAX: usize = 64 << 20;

/// The state shared by all workers of a run, and the work of each.
pub(crate) trait WorkerJob: Send + Sync + 'static {
    /// Returns the number of workers.
    fn workers(&self) -> u32;

    /// Returns the limits for commands to these workers.
    fn command_limits(&self) -> CommandLimits;

    /// Returns the commands to the workers.
    fn commands(&self) -> &Commands;

    /// The body of a worker's thread. Also returns the health of its device during the run.
    ///
    /// # Errors
    /// The worker could not be prepared, or failed.
    fn work(
        &self,
        worker: u32,
        inbox: &MessageSender,
        started: &Receiver<Nanos>,
    ) -> Result<(Outcome, Health), LoadError>;
}

/// Creates a worker's ring, with buffers for its requests.
///
/// # Errors
/// The kernel rejects the ring or the registration of its buffers.
pub(crate) fn ring_of(workload: &Workload, base: &RingConfig) -> std::io::Result<Ring> {
    let depth = workload.queue_depth;
    let block = (workload.block_bytes_max().max(4096) as usize).next_power_of_two();
    let arena_bytes = (block * depth as usize).min(ARENA_BYTES_MAX);
    let entries = depth.next_power_of_two().max(8);
    let config = ring_config(workload.ring, base.clone());
    let stated = match workload.engine {
        Some(EngineSetting::IoUring) => Some(IoEngine::IoUring),
        Some(EngineSetting::Threads) => Some(IoEngine::Threads),
        // `Auto` has been resolved before a run starts.
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
/// The device could not be opened.
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

/// The workers of a run, each in its own thread.
pub(crate) struct Workers<J: WorkerJob> {
    job: Arc<J>,
    starts: Vec<SyncSender<Nanos>>,
    threads: Vec<JoinHandle<()>>,
    /// Device problems that finished workers reported.
    troubles: Arc<Mutex<Vec<String>>>,
}

impl<J: WorkerJob> Workers<J> {
    /// Starts the workers; each reports to `inbox` when it is ready.
    ///
    /// # Errors
    /// A thread could not be created.
    pub(crate) fn spawn(job: J, inbox: &MessageSender) -> Result<Workers<J>, LoadError> {
        let count = job.workers();
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

    /// Waits for all workers; returns the problems of their devices, sorted by worker.
    pub(crate) fn troubles(&mut self) -> Vec<String> {
        self.join();
        let mut troubles =
            std::mem::take(&mut *self.troubles.lock().unwrap_or_else(PoisonError::into_inner));
        troubles.sort_unstable();
        troubles
    }

    /// Waits for all workers.
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
    /// Returns the limits for commands to workers prepared for this workload.
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
            // Sending fails for a worker that could not be prepared and has ended.
            let _ = start.send(at);
        }
    }

    fn command(&mut self, command: LoadCommand) -> Result<(), LoadCommandError> {
        self.job.command_limits().check(command)?;
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
