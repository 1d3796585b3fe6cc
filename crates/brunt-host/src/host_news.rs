//! The news that a controller gets from an agent: its messages after [`crate::HostSession`] has checked them.

use std::sync::Arc;

use brunt_protocol::{
    FailureKind, HostFaultFailure, HostReady, InterfaceReading, Proof, RecordEnd, RoleNews,
    WatchReport,
};
use brunt_result::choice::PageCache;
use brunt_result::event::Sample;
use brunt_result::link::LinkReport;
use brunt_result::{Interval, Outcome, RequestRecord};

use crate::ClockRound;

/// A checked message from an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum HostNews {
    /// The agent's greeting, with its program. [`crate::session::HostSession::clock`] returns the name of its clock.
    Greeted(String),
    /// The reply to [`crate::session::HostSession::ask`]: rounds with the host's monotonic clock and with its wall
    /// clock, whose times are nanoseconds since 1970.
    Clock {
        /// Of `CLOCK_MONOTONIC`.
        monotonic: ClockRound,
        /// Of `CLOCK_REALTIME`.
        wall: ClockRound,
    },
    /// A sample of the host, with times on the host's clock.
    Sample(Arc<Sample>),
    /// A remark for the user.
    Note(String),
    /// A remark for the user about the samples.
    WatchNote(String),
    /// No further samples follow.
    Watched(WatchReport),
    /// The readings of the host's byte counters for interfaces, with times on the host's clock.
    Counted(Vec<InterfaceReading>),
    /// A fault is in effect, or gone, with times on the host's clock.
    FaultProven(u32, Box<Proof>),
    /// The report of the host's bridge.
    Bridge(Option<Box<LinkReport>>),
    /// A fault is not in effect, or has not been removed.
    FaultFailed(u32, HostFaultFailure, String),
    /// News of a role, with times on the host's clock.
    Role(u32, RoleNews),
    /// A counter kept by the agent.
    Counter(String, u64),
    /// An error in the agent.
    Failed(FailureKind, String),
    /// All workers of the host's part of the run are waiting for the start.
    Ready(HostReady),
    /// An interval of a worker, counted from 0, with times on the host's clock.
    Interval(u32, Box<Interval>),
    /// A worker has ended.
    Ended(u32, Box<Outcome>),
    /// The number of requests that the host has recorded.
    Recorded(RecordEnd),
    /// Some of the recorded requests, with times on the host's clock.
    Requests(Vec<RequestRecord>),
    /// The length in bytes of each worker's journal of acknowledged writes.
    Journals(Vec<u64>),
    /// Part of this worker's journal; workers are counted from 0.
    Journal(u32, Vec<u8>),
    /// All workers have ended. Contains the errors of the workers' devices, the page cache's share if it was used,
    /// and the host's part of a replay, for the load to parse.
    Done(Vec<String>, Option<PageCache>, Option<String>),
    /// Nothing of the host's run is left.
    Released,
    /// A message about a run that has already been released.
    Late,
}

impl HostNews {
    /// Whether the message contains times on the host's clock.
    pub(crate) fn is_dated(&self) -> bool {
        matches!(
            self,
            HostNews::Interval(..)
                | HostNews::Ended(..)
                | HostNews::Requests(_)
                | HostNews::Sample(_)
                | HostNews::Counted(_)
                | HostNews::FaultProven(..)
                | HostNews::Role(
                    _,
                    RoleNews::Away(_) | RoleNews::Back { .. } | RoleNews::Died(_)
                )
        )
    }
}
