//! State shared by a target server's threads, with the counters of running and ended connections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::config::TargetConfig;
use super::connection::ConnectionCounters;
use super::driver::{LiveCounters, SharedTarget};

/// A target's counters so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetStats {
    /// Sessions opened, including discovery sessions.
    pub sessions: u64,
    /// Sessions currently open.
    pub sessions_open: u64,
    /// Connections that logged in.
    pub connections: u64,
    /// Sum over all connections.
    pub counters: ConnectionCounters,
    /// System calls of all connections' rings.
    pub system_calls: u64,
    /// Time that all connections' threads spent polling, in nanoseconds.
    pub polled_nanos: u64,
    /// Logins refused with a status.
    pub logins_refused: u64,
    /// Logins that were not completed: dropped because of age or number, or closed by the peer.
    pub logins_dropped: u64,
    /// Connections that ended because the initiator violated the protocol or because of an internal error.
    pub connections_broken: u64,
}

/// State that the server shares with the threads of its logins and connections.
pub(super) struct ServerState {
    pub(super) shared: SharedTarget,
    pub(super) config: TargetConfig,
    pub(super) stop: AtomicBool,
    pub(super) totals: Mutex<ConnectionTotals>,
    /// Signalled when a connection's thread ends.
    pub(super) ended: Condvar,
    pub(super) logins_refused: AtomicU64,
    pub(super) logins_dropped: AtomicU64,
}

/// The counters of running and of ended connections.
#[derive(Default)]
pub(super) struct ConnectionTotals {
    /// Counters of running connections, with their target's name, which is empty for discovery.
    pub(super) live: Vec<(String, Arc<LiveCounters>)>,
    pub(super) past: TargetStats,
    /// Counters of ended connections, by target name.
    pub(super) past_of: BTreeMap<String, ConnectionCounters>,
}

impl ConnectionTotals {
    /// The counters of all connections.
    pub(super) fn sum(&self) -> TargetStats {
        let mut stats = self.past;
        for (_, live) in &self.live {
            add(&mut stats, live);
        }
        stats
    }

    /// The counters of a target's connections.
    pub(super) fn sum_of(&self, target: &str) -> ConnectionCounters {
        let mut counters = self.past_of.get(target).copied().unwrap_or_default();
        for (_, live) in self.live.iter().filter(|(name, _)| name == target) {
            sum(&mut counters, live.get().0);
        }
        counters
    }
}

/// Moves a connection's counters from running to ended connections.
pub(super) struct Settle {
    pub(super) state: Arc<ServerState>,
    pub(super) target: String,
    pub(super) live: Arc<LiveCounters>,
}

impl Drop for Settle {
    fn drop(&mut self) {
        let mut totals = lock(&self.state.totals);
        totals
            .live
            .retain(|(_, live)| !Arc::ptr_eq(live, &self.live));
        add(&mut totals.past, &self.live);
        sum(
            totals
                .past_of
                .entry(std::mem::take(&mut self.target))
                .or_default(),
            self.live.get().0,
        );
        self.state.ended.notify_all();
    }
}

fn add(stats: &mut TargetStats, live: &LiveCounters) {
    let (counters, used) = live.get();
    sum(&mut stats.counters, counters);
    stats.system_calls += used.system_calls;
    stats.polled_nanos += used.polled_nanos;
}

fn sum(all: &mut ConnectionCounters, one: ConnectionCounters) {
    all.commands += one.commands;
    all.data_out_bytes += one.data_out_bytes;
    all.data_in_bytes += one.data_in_bytes;
    all.rejects += one.rejects;
    all.digest_errors += one.digest_errors;
    all.ignored += one.ignored;
}

/// Locks a mutex whose data stays valid if a thread panics.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
