//! Commands to a running load. They reach its workers without a lock: the controlling side writes them, and workers
//! check once per iteration.
//!
//! The rule: only the latest command of each kind counts; a worker may miss one that was replaced.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A command to a running load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadCommand {
    /// Issue no further requests; outstanding requests may still complete.
    Stop,
    /// Change the rate of all workers combined to this many requests per second.
    Rate(f64),
    /// Change the queue depth to this many outstanding requests per worker.
    Depth(u32),
}

/// Why a command is rejected. The load continues unchanged.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum LoadCommandError {
    /// This load has no rate.
    #[error("this load is a closed loop, so its rate cannot be changed; use an open loop")]
    NoRate,
    /// The rate is out of range.
    #[error("{rate} requests per second is out of range (above 0, at most 1e9)")]
    BadRate {
        /// Requests per second.
        rate: f64,
    },
    /// This load has no queue depth.
    #[error("this load has one request outstanding at a time, so it has no queue depth to change")]
    NoDepth,
    /// This load consists of several jobs.
    #[error(
        "this load consists of several jobs, each with its own rate and queue depth, which cannot be changed together"
    )]
    Several,
    /// Buffers and the ring were sized for a smaller depth.
    #[error("a queue depth of {depth} is outside 1 to {max}, the range this load was prepared for")]
    BadDepth {
        /// The requested depth.
        depth: u32,
        /// The maximum depth that was prepared for.
        max: u32,
    },
}

/// Which commands a running load accepts, apart from stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandLimits {
    /// Whether the load's rate can be changed.
    pub has_rate: bool,
    /// Maximum outstanding requests per worker; `None` if the load has no queue depth.
    pub depth_max: Option<u32>,
}

impl CommandLimits {
    /// Checks whether a command is acceptable.
    ///
    /// # Errors
    /// The error is the reason for rejecting the command.
    pub fn check(self, command: LoadCommand) -> Result<(), LoadCommandError> {
        match (command, self.depth_max) {
            (LoadCommand::Stop, _) => Ok(()),
            (LoadCommand::Rate(_), _) if !self.has_rate => Err(LoadCommandError::NoRate),
            (LoadCommand::Rate(rate), _) if !(rate > 0.0 && rate <= 1e9) => {
                Err(LoadCommandError::BadRate { rate })
            }
            (LoadCommand::Depth(_), None) => Err(LoadCommandError::NoDepth),
            (LoadCommand::Depth(depth), Some(max)) if !(1..=max).contains(&depth) => {
                Err(LoadCommandError::BadDepth { depth, max })
            }
            (LoadCommand::Rate(_) | LoadCommand::Depth(_), _) => Ok(()),
        }
    }
}

/// The latest commands to the workers of a run.
#[derive(Debug, Default)]
pub struct Commands {
    stop: AtomicBool,
    /// Counts changes of rate or depth.
    changes: AtomicU32,
    /// The bits of an `f64`; 0 if none has been set.
    rate: AtomicU64,
    /// 0 if none has been set.
    depth: AtomicU32,
}

impl Commands {
    /// Starts without any commands.
    pub fn new() -> Commands {
        Commands::default()
    }

    /// Gives the workers a command.
    ///
    /// # Panics
    /// Panics if a rate or depth is zero; callers have ruled that out.
    pub fn give(&self, command: LoadCommand) {
        match command {
            LoadCommand::Stop => self.stop.store(true, Ordering::Relaxed),
            LoadCommand::Rate(rate) => {
                assert!(rate > 0.0, "a rate of {rate}");
                self.rate.store(rate.to_bits(), Ordering::Relaxed);
                self.changes.fetch_add(1, Ordering::Release);
            }
            LoadCommand::Depth(depth) => {
                assert!(depth > 0, "a depth of zero");
                self.depth.store(depth, Ordering::Relaxed);
                self.changes.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// Returns true if no further requests should be issued.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns a number that changes with each new rate or depth.
    #[inline]
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns the latest rate.
    pub(crate) fn rate(&self) -> Option<f64> {
        Some(f64::from_bits(self.rate.load(Ordering::Relaxed))).filter(|rate| *rate > 0.0)
    }

    /// Returns the latest depth.
    pub(crate) fn depth(&self) -> Option<u32> {
        Some(self.depth.load(Ordering::Relaxed)).filter(|depth| *depth > 0)
    }
}
