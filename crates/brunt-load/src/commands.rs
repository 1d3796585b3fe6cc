//! Commands to a running load, and how they reach its workers without a lock: the deciding side writes them,
//! and workers check once per loop.
//!
//! The rule: the latest command of each kind counts; a worker may miss one that was replaced.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Told to a load that runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadCommand {
    /// Make no more requests; what is outstanding may still complete.
    Stop,
    /// So many requests a second from now on, all workers together.
    Rate(f64),
    /// So many requests outstanding for each worker from now on.
    Depth(u32),
}

/// Why a command cannot be obeyed. The load goes on as before.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum LoadCommandError {
    /// This load has no rate.
    #[error("this load is a closed loop, so its rate cannot be changed; use an open loop")]
    NoRate,
    /// Not a rate.
    #[error("{rate} requests per second is not above 0 and at most 1e9")]
    BadRate {
        /// Requests a second.
        rate: f64,
    },
    /// This load has no queue depth.
    #[error("this load has one request outstanding at a time, so it has no queue depth to change")]
    NoDepth,
    /// This load is several.
    #[error(
        "this load is several jobs at once, each with its own rate and queue depth, which cannot be changed together"
    )]
    Several,
    /// Buffers and the ring were made for less.
    #[error("a queue depth of {depth} is outside 1 to {max}, for which the load was prepared")]
    BadDepth {
        /// Asked for.
        depth: u32,
        /// Deepest that was prepared.
        max: u32,
    },
}

/// What a load can be told while it runs, beside to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandLimits {
    /// Whether it has a rate.
    pub has_rate: bool,
    /// Most requests that each worker may keep outstanding; `None`: it has no queue depth.
    pub depth_max: Option<u32>,
}

impl CommandLimits {
    /// Whether a command can be obeyed.
    ///
    /// # Errors
    /// Why not.
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
    /// Counts rates and depths.
    changes: AtomicU32,
    /// Bits of an `f64`; 0 for none yet.
    rate: AtomicU64,
    /// 0 for none yet.
    depth: AtomicU32,
}

impl Commands {
    /// None yet.
    pub fn new() -> Commands {
        Commands::default()
    }

    /// Tells the workers.
    ///
    /// # Panics
    /// At a rate or depth of nothing: whoever passes a command on has checked it.
    pub fn give(&self, command: LoadCommand) {
        match command {
            LoadCommand::Stop => self.stop.store(true, Ordering::Relaxed),
            LoadCommand::Rate(rate) => {
                assert!(rate > 0.0, "a rate of {rate}");
                self.rate.store(rate.to_bits(), Ordering::Relaxed);
                self.changes.fetch_add(1, Ordering::Release);
            }
            LoadCommand::Depth(depth) => {
                assert!(depth > 0, "a depth of nothing");
                self.depth.store(depth, Ordering::Relaxed);
                self.changes.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// Whether to make no more requests.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Changes whenever there is another rate or depth.
    #[inline]
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    /// The latest rate.
    pub(crate) fn rate(&self) -> Option<f64> {
        Some(f64::from_bits(self.rate.load(Ordering::Relaxed))).filter(|rate| *rate > 0.0)
    }

    /// The latest depth.
    pub(crate) fn depth(&self) -> Option<u32> {
        Some(self.depth.load(Ordering::Relaxed)).filter(|depth| *depth > 0)
    }
}
