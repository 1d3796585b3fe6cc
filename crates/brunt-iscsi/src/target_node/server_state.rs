//! State shared by a target server's threads, with the counters of running and ended connections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use brunt_block::Ring;

use super::config::TargetConfig;
use super::connection::ConnectionCounters;
use super::counters::{LiveCounters, LiveRing};
use super::driver::SharedTarget;
use super::session::{ConnectionHandle, TargetSession};
use super::workers::Workers;

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
    /// System calls of all workers' rings.
    pub system_calls: u64,
    /// Time that all workers spent polling, in nanoseconds.
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
    pub(super) workers: Workers,
    pub(super) stop: AtomicBool,
    pub(super) totals: Mutex<ConnectionTotals>,
    /// Signalled when a connection ends.
    pub(super) ended: Condvar,
    pub(super) logins_refused: AtomicU64,
    pub(super) logins_dropped: AtomicU64,
}

/// The counters of running and of ended connections.
#[derive(Default)]
pub(super) struct ConnectionTotals {
    /// Counters of running connections, with their target's name, which is empty for discovery.
    pub(super) live: Vec<(String, Arc<LiveCounters>)>,
    /// Resources used by the rings of running workers.
    pub(super) rings: Vec<Arc<LiveRing>>,
    pub(super) past: TargetStats,
    /// Counters of ended connections, by target name.
    pub(super) past_of: BTreeMap<String, ConnectionCounters>,
}

impl ConnectionTotals {
    /// The counters of all connections.
    pub(super) fn sum(&self) -> TargetStats {
        let mut stats = self.past;
        for (_, live) in &self.live {
            sum(&mut stats.counters, live.get());
        }
        for ring in &self.rings {
            stats.system_calls += ring.system_calls();
            stats.polled_nanos += ring.polled_nanos();
        }
        stats
    }

    /// The counters of a target's connections.
    pub(super) fn sum_of(&self, target: &str) -> ConnectionCounters {
        let mut counters = self.past_of.get(target).copied().unwrap_or_default();
        for (_, live) in self.live.iter().filter(|(name, _)| name == target) {
            sum(&mut counters, live.get());
        }
        counters
    }
}

/// A logged-in connection's place in its session and in the server's counters. Dropping it releases both, whether the
/// connection ended, failed, panicked, or never got a thread.
pub(super) struct Seat {
    state: Arc<ServerState>,
    session: Arc<TargetSession>,
    connection: u64,
    handle: ConnectionHandle,
    live: Arc<LiveCounters>,
}

impl Seat {
    /// Counts a connection that has logged in.
    pub(super) fn take(
        state: &Arc<ServerState>,
        session: &Arc<TargetSession>,
        connection: u64,
        handle: &ConnectionHandle,
    ) -> Seat {
        let live = Arc::new(LiveCounters::default());
        let mut totals = lock(&state.totals);
        totals.past.connections += 1;
        totals
            .live
            .push((session.target_name().to_string(), Arc::clone(&live)));
        drop(totals);
        Seat {
            state: Arc::clone(state),
            session: Arc::clone(session),
            connection,
            handle: handle.clone(),
            live,
        }
    }

    /// The connection's counters.
    pub(super) fn live(&self) -> &Arc<LiveCounters> {
        &self.live
    }

    /// Number of the connection since the target's start.
    pub(super) fn connection(&self) -> u64 {
        self.connection
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let table = &self.state.shared.table;
        table.leave(self.session.tsih(), self.connection);
        self.session.window().forget(self.connection);
        self.handle.close();
        self.session.leave();
        let mut totals = lock(&self.state.totals);
        totals
            .live
            .retain(|(_, live)| !Arc::ptr_eq(live, &self.live));
        let counters = self.live.get();
        sum(&mut totals.past.counters, counters);
        let target = self.session.target_name().to_string();
        sum(totals.past_of.entry(target).or_default(), counters);
        drop(totals);
        self.state.ended.notify_all();
    }
}

/// Counts a worker's ring usage, and keeps the count after the worker has ended.
pub(super) struct CountedRing<'a> {
    state: &'a ServerState,
    live: Arc<LiveRing>,
}

impl CountedRing<'_> {
    pub(super) fn new(state: &ServerState) -> CountedRing<'_> {
        let live = Arc::new(LiveRing::default());
        lock(&state.totals).rings.push(Arc::clone(&live));
        CountedRing { state, live }
    }

    /// Updates the counters.
    pub(super) fn set(&self, ring: &Ring) {
        self.live.set(ring);
    }
}

impl Drop for CountedRing<'_> {
    fn drop(&mut self) {
        let mut totals = lock(&self.state.totals);
        totals.rings.retain(|live| !Arc::ptr_eq(live, &self.live));
        totals.past.system_calls += self.live.system_calls();
        totals.past.polled_nanos += self.live.polled_nanos();
    }
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
