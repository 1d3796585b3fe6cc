//! The thread that serves a single host: receives its messages, synchronizes its clock, and distributes its news to the
//! run ([`super::task`]), the samples, the faults and the roles.
//!
//! The rule: when the host is lost, everything that waits for it receives the reason.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use brunt_load::LoadCommand;
use brunt_protocol::{REQUESTS_MAX, RoleOrder};

use super::counting::{CountAnswer, HeldCount};
use super::dates::Dates;
use super::error::FleetError;
use super::faults::{BridgeAnswer, FaultEnd, FaultTask, HeldFaults, HostBridgeError};
use super::journals::FetchedJournals;
use super::roles::{HeldRoles, RoleInbox};
use super::task::{HostTask, RunningTask};
use super::watch::{HeldWatch, WatchEnd, WatchTask};
use crate::address::HostAddress;
use crate::clock::ClockEstimate;
use crate::connect::ConnectOptions;
use crate::host_news::HostNews;
use crate::remote::RemoteHost;

/// Clock rounds before the first run.
const BURST: u32 = 16;
/// Interval between later rounds. Each round also renews the agent's lease.
pub(super) const ASK_EVERY: Duration = Duration::from_millis(250);
/// The interval while a start is pending: clocks matter most when the run begins.
const ASK_BEFORE_START: Duration = Duration::from_millis(10);
/// The usual interval resumes this long before a start, so that the host is otherwise idle when its workers wake up.
const LEAVE_BEFORE_START: Duration = Duration::from_millis(20);
/// Maximum time until an order is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A host receives its start time at most this long in advance, because clocks drift, and a job that starts after
/// other jobs may begin hours later.
const START_AHEAD: Duration = Duration::from_secs(5);
/// Maximum time for a host to end a run that was released.
const RELEASE_MAX: Duration = Duration::from_secs(8);

/// An order to a host's thread.
#[derive(Debug)]
pub(super) enum HostThreadOrder {
    /// Prepare this run. The previous run must be over.
    Prepare(Box<HostTask>),
    /// Start the run at this time on our clock.
    Start(Nanos),
    /// Pass this command to the run's workers.
    Command(LoadCommand),
    /// End the run if it is still in progress, and report when nothing of it is left.
    Release,
    /// Sample the host. The previous samples must be over.
    Watch(Box<WatchTask>),
    /// Samples are due from this time on our clock, at each interval.
    WatchFrom(Nanos),
    /// Take a last sample.
    Unwatch,
    /// Read the byte counters of these interfaces.
    Count(Vec<String>),
    /// Readings count from this time on our clock.
    CountFrom(Nanos),
    /// Finish reading, and send the readings here.
    Uncount(CountAnswer),
    /// Inject or remove a fault.
    Fault(Box<FaultTask>),
    /// Ask for the report on the host's bridge.
    AskBridge(BridgeAnswer),
    /// Start or admit a role, whose news goes to this inbox.
    BeginRole(u32, RoleOrder, Arc<RoleInbox>),
    /// Pass an order to a role.
    Role(u32, RoleOrder),
}

/// A handle to a host's thread.
#[derive(Debug)]
pub(super) struct HostThread {
    orders: Option<Sender<HostThreadOrder>>,
    thread: Option<JoinHandle<()>>,
    round_trip: Duration,
    agent_here: Option<u32>,
}

impl HostThread {
    /// Connects to the host and compares clocks.
    pub fn connect(
        name: &str,
        address: &HostAddress,
        options: &ConnectOptions,
        survives_loss: bool,
    ) -> Result<HostThread, FleetError> {
        let failed = |source| FleetError::Host {
            host: name.to_string(),
            source,
        };
        let mut host = RemoteHost::connect(address, options).map_err(failed)?;
        for _ in 0..BURST {
            // There is no run yet, so clock replies are the only news.
            host.clock_round(drop).map_err(failed)?;
        }
        let round_trip = host.monotonic().round_trip_min().unwrap_or_default();
        let agent_here = host.agent_here();
        let (orders, pending) = channel();
        let mut held = HeldHost {
            name: name.to_string(),
            host: Some(host),
            clock: Clock::Monotonic,
            next_ask: Nanos(0),
            dates: Dates::new(),
            survives_loss,
            lost: None,
            task: None,
            watch: None,
            count: HeldCount::default(),
            faults: HeldFaults::default(),
            roles: HeldRoles::default(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("host {name}"))
            .spawn(move || held.serve(&pending));
        let thread = thread.map_err(|source| FleetError::Thread {
            host: name.to_string(),
            source,
        })?;
        Ok(HostThread {
            orders: Some(orders),
            thread: Some(thread),
            round_trip,
            agent_here,
        })
    }

    /// Sends an order, which the thread notices within [`POLL_INTERVAL`].
    pub fn tell(&self, order: HostThreadOrder) {
        if let Some(orders) = &self.orders {
            // The thread lives at least as long as this sender.
            let _ = orders.send(order);
        }
    }

    /// The shortest round trip measured before the first run.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// See [`RemoteHost::agent_here`].
    pub fn agent_here(&self) -> Option<u32> {
        self.agent_here
    }

    /// Ends the agent and the thread; neither gets further orders.
    pub fn leave(&mut self) {
        drop(self.orders.take());
    }
}

impl Drop for HostThread {
    fn drop(&mut self) {
        self.leave();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            assert!(std::thread::panicking(), "a host's thread panicked");
        }
    }
}

/// The state of a host's thread.
struct HeldHost {
    name: String,
    /// The connection; `None` once the host is lost.
    host: Option<RemoteHost>,
    clock: Clock,
    next_ask: Nanos,
    /// Converts the host's times to our clock.
    dates: Dates,
    /// Whether runs continue without this host.
    survives_loss: bool,
    /// Why the host was lost.
    lost: Option<String>,
    task: Option<RunningTask>,
    watch: Option<HeldWatch>,
    count: HeldCount,
    faults: HeldFaults,
    roles: HeldRoles,
}

impl HeldHost {
    fn serve(&mut self, pending: &Receiver<HostThreadOrder>) {
        loop {
            match self.obey(pending) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => self.lose(error),
            }
            match self.listen() {
                Ok(()) => {}
                Err(error) => self.lose(error),
            }
        }
    }

    /// Carries out pending orders; `false` once the sender is gone.
    fn obey(&mut self, pending: &Receiver<HostThreadOrder>) -> Result<bool, FleetError> {
        loop {
            let order = match &self.host {
                Some(_) => match pending.try_recv() {
                    Err(TryRecvError::Empty) => return Ok(true),
                    order => order.ok(),
                },
                // A lost host leaves nothing to wait for but orders.
                None => pending.recv().ok(),
            };
            let Some(order) = order else { return Ok(false) };
            self.carry_out(order)?;
        }
    }

    fn carry_out(&mut self, order: HostThreadOrder) -> Result<(), FleetError> {
        match order {
            HostThreadOrder::Prepare(task) => return self.prepare(*task),
            HostThreadOrder::Watch(task) => return self.watch(*task),
            HostThreadOrder::Fault(task) => return self.fault(*task),
            HostThreadOrder::AskBridge(answer) => return self.ask_bridge(answer),
            HostThreadOrder::BeginRole(role, order, heard) => {
                return self.begin_role(role, order, heard);
            }
            _ => {}
        }
        // Nothing to do: the host was lost, or the run is already over.
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        let name = self.name.clone();
        let failed = |source| FleetError::Host {
            host: name.clone(),
            source,
        };
        match (order, &mut self.task, &mut self.watch) {
            (HostThreadOrder::Start(at), Some(task), _) => {
                (task.start, task.starts) = (Some(at), Some(at));
                self.start_if_due()
            }
            (HostThreadOrder::Command(command), Some(task), _) => {
                // Workers that are waiting for a start time must get one, because workers that never start never end.
                let starts = task.starts.take_if(|_| command == LoadCommand::Stop);
                let sent = host.command(command).map_err(failed);
                sent.and_then(|()| starts.map_or(Ok(()), |at| self.send_start(at)))
            }
            (HostThreadOrder::Release, Some(task), _) => {
                task.release = Some(self.clock.now().after(RELEASE_MAX));
                Ok(())
            }
            (HostThreadOrder::WatchFrom(first), _, Some(watch)) if !watch.ending => {
                let first = theirs(host, self.clock.now(), first)
                    .ok_or(FleetError::ClockSet(name.clone()))?;
                host.watch_from(first).map_err(failed)
            }
            (HostThreadOrder::Unwatch, _, Some(watch)) if !watch.ending => {
                watch.ending = true;
                host.unwatch().map_err(failed)
            }
            (HostThreadOrder::Count(interfaces), ..) => host.count(interfaces).map_err(failed),
            (HostThreadOrder::CountFrom(first), ..) => {
                let first = theirs(host, self.clock.now(), first)
                    .ok_or_else(|| FleetError::ClockSet(name.clone()))?;
                host.count_from(first).map_err(failed)
            }
            (HostThreadOrder::Uncount(answer), ..) => {
                self.count.ask(answer);
                host.uncount().map_err(failed)
            }
            (HostThreadOrder::Role(role, order), ..) => {
                self.roles.ask(role, order, host).map_err(failed)
            }
            _ => Ok(()),
        }
    }

    fn fault(&mut self, task: FaultTask) -> Result<(), FleetError> {
        let Some(host) = &mut self.host else {
            let _ = task
                .answer
                .try_send(Err(FaultEnd::Lost(self.lost.clone().unwrap_or_default())));
            return Ok(());
        };
        let asked = self.faults.ask(&self.name, task, host);
        asked.map_err(|source| FleetError::Host {
            host: self.name.clone(),
            source,
        })
    }

    fn ask_bridge(&mut self, answer: BridgeAnswer) -> Result<(), FleetError> {
        let Some(host) = &mut self.host else {
            let _ = answer.try_send(Err(HostBridgeError::Lost(
                self.lost.clone().unwrap_or_default(),
            )));
            return Ok(());
        };
        let asked = self.faults.ask_bridge(answer, host);
        asked.map_err(|source| FleetError::Host {
            host: self.name.clone(),
            source,
        })
    }

    fn begin_role(
        &mut self,
        role: u32,
        order: RoleOrder,
        heard: Arc<RoleInbox>,
    ) -> Result<(), FleetError> {
        let Some(host) = &mut self.host else {
            heard.lose(&self.lost.clone().unwrap_or_default());
            return Ok(());
        };
        let begun = self.roles.begin(role, order, heard, host);
        begun.map_err(|source| FleetError::Host {
            host: self.name.clone(),
            source,
        })
    }

    fn watch(&mut self, task: WatchTask) -> Result<(), FleetError> {
        assert!(self.watch.is_none(), "one sampling per host at a time");
        let Some(host) = &mut self.host else {
            let end = WatchEnd {
                lost: self.lost.clone(),
                ..WatchEnd::default()
            };
            let _ = task.over.try_send(end);
            return Ok(());
        };
        let over = task.over.clone();
        match HeldWatch::begin(&self.name, task, host) {
            Ok(watch) => {
                self.watch = Some(watch);
                Ok(())
            }
            Err(source) => {
                let error = FleetError::Host {
                    host: self.name.clone(),
                    source,
                };
                let _ = over.try_send(WatchEnd {
                    lost: Some(error.to_string()),
                    ..WatchEnd::default()
                });
                Err(error)
            }
        }
    }

    /// Sends the start time, but not far in advance, because clocks drift apart.
    fn start_if_due(&mut self) -> Result<(), FleetError> {
        let (now, Some(task)) = (self.clock.now(), &mut self.task) else {
            return Ok(());
        };
        let starts = task.starts.take_if(|at| at.since(now) <= START_AHEAD);
        starts.map_or(Ok(()), |at| self.send_start(at))
    }

    fn send_start(&mut self, at: Nanos) -> Result<(), FleetError> {
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        let start = theirs(host, self.clock.now(), at);
        let start = start.ok_or_else(|| FleetError::ClockSet(self.name.clone()))?;
        self.next_ask = Nanos(0);
        let started = host.start(start);
        started.map_err(|source| FleetError::Host {
            host: self.name.clone(),
            source,
        })
    }

    fn prepare(&mut self, task: HostTask) -> Result<(), FleetError> {
        assert!(self.task.is_none(), "one run at a time");
        let (task, assignment, part) = RunningTask::new(&self.name, task);
        self.task = Some(task);
        let Some(host) = &mut self.host else {
            return Err(FleetError::Lost(self.lost.clone().unwrap_or_default()));
        };
        let failed = |source| FleetError::Host {
            host: self.name.clone(),
            source,
        };
        host.prepare(assignment, part).map_err(failed)
    }

    /// Requests the host's clock if due.
    fn ask_if_due(&mut self, now: Nanos) -> Result<(), FleetError> {
        let Some(host) = self.host.as_mut().filter(|_| now >= self.next_ask) else {
            return Ok(());
        };
        let was_sent = |task: &&RunningTask| task.starts.is_none();
        let start = self
            .task
            .as_ref()
            .filter(was_sent)
            .and_then(|task| task.start);
        let is_near = start.is_some_and(|start| now.after(LEAVE_BEFORE_START) < start);
        // Near a start, no request is sent while another is outstanding: it would add no information.
        if !is_near || !host.is_asked() {
            let asked = host.ask_clock();
            asked.map_err(|source| FleetError::Host {
                host: self.name.clone(),
                source,
            })?;
        }
        self.next_ask = now.after(if is_near { ASK_BEFORE_START } else { ASK_EVERY });
        Ok(())
    }

    /// Receives messages for a while, and requests the host's clock if due.
    fn listen(&mut self) -> Result<(), FleetError> {
        self.start_if_due()?;
        let now = self.clock.now();
        self.ask_if_due(now)?;
        let until = now.after(POLL_INTERVAL).min(self.next_ask);
        while let Some(news) = self.receive(until)? {
            let now = self.clock.now();
            self.take(news, now)?;
            if now >= until {
                break;
            }
        }
        self.release_if_wanted()
    }

    fn receive(&mut self, until: Nanos) -> Result<Option<HostNews>, FleetError> {
        let Some(host) = &mut self.host else {
            return Ok(None);
        };
        host.receive(until).map_err(|source| FleetError::Host {
            host: self.name.clone(),
            source,
        })
    }

    /// Handles news that arrived at `now`.
    fn take(&mut self, news: HostNews, now: Nanos) -> Result<(), FleetError> {
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        if let HostNews::Clock { .. } = news {
            self.dates.round();
        }
        if let Some(task) = &mut self.task {
            task.save_start_estimate(host, now);
        }
        let dated = news.is_dated();
        let estimate = match dated {
            true => self.dates.now(host.monotonic(), now),
            false => None,
        };
        self.dates.update(host.monotonic(), now);
        if dated && estimate.is_none() {
            return Err(FleetError::ClockSet(self.name.clone()));
        }
        if let HostNews::Watched(report) = news {
            if let Some(watch) = self.watch.take() {
                watch.conclude(Some(report), Some(host), None);
            }
            return Ok(());
        }
        let news = match &mut self.watch {
            Some(watch) => watch.take(news, estimate),
            None => Some(news),
        };
        let news = news.and_then(|news| self.count.take(news, estimate, &self.dates));
        let news = news.and_then(|news| self.faults.take(&self.name, news, estimate));
        let news = news.and_then(|news| self.roles.take(news, estimate));
        news.map_or(Ok(()), |news| self.take_of_run(news, estimate))
    }

    /// Handles news of the run, and requests the next pieces of its record and journals.
    fn take_of_run(
        &mut self,
        news: HostNews,
        estimate: Option<ClockEstimate>,
    ) -> Result<(), FleetError> {
        let (Some(host), Some(task)) = (&mut self.host, &mut self.task) else {
            return Ok(());
        };
        if let (HostNews::Ended(_, outcome), Some(estimate)) = (&news, &estimate)
            && outcome.began != Nanos::MAX
        {
            // Rounds just before and after the start are more accurate than the current estimate.
            let now = || host.monotonic().estimate(estimate.to_ours(outcome.began));
            let then = task.at_start.or_else(now);
            let then = then.ok_or_else(|| FleetError::ClockSet(self.name.clone()))?;
            task.began(outcome.began, &then);
        }
        let is_over = task.take(news, estimate, &self.dates);
        let failed = |source| FleetError::Host {
            host: self.name.clone(),
            source,
        };
        let requests = task.record.as_mut();
        for _ in 0..requests.map_or(0, |record| record.wants(REQUESTS_MAX as u64)) {
            host.more_requests().map_err(failed)?;
        }
        for _ in 0..task.journals.as_mut().map_or(0, FetchedJournals::wants) {
            host.more_journal().map_err(failed)?;
        }
        if is_over && let Some(mut task) = self.task.take() {
            let figures = &mut task.end.figures;
            let round_trip = host.monotonic().round_trip_min().unwrap_or_default();
            figures.round_trip_us = round_trip.as_nanos() as f64 / 1e3;
            [figures.sent_bytes, figures.received_bytes] = host.bytes();
            task.conclude();
        }
        Ok(())
    }

    /// Releases the run if requested, once the errors of its devices have arrived or can no longer arrive.
    fn release_if_wanted(&mut self) -> Result<(), FleetError> {
        let (Some(host), Some(task)) = (&mut self.host, &mut self.task) else {
            return Ok(());
        };
        let Some(until) = task.release else {
            return Ok(());
        };
        if self.clock.now() >= until {
            return Err(FleetError::Stuck(self.name.clone(), RELEASE_MAX));
        }
        let all_ended = task.unfinished.iter().all(Option::is_none);
        if task.released || (all_ended && !task.done) {
            return Ok(());
        }
        task.released = true;
        host.release().map_err(|source| FleetError::Host {
            host: self.name.clone(),
            source,
        })
    }

    /// Handles the loss of the host: everything that waits for it receives the reason.
    fn lose(&mut self, error: FleetError) {
        let lost = self.host.take();
        let why = error.to_string();
        if let Some(mut task) = self.task.take() {
            task.fail(error, self.survives_loss, self.clock.now());
            task.conclude();
        }
        if let Some(watch) = self.watch.take() {
            watch.conclude(None, lost.as_ref(), Some(why.clone()));
        }
        self.count.lose();
        self.faults.lose(&why);
        self.roles.lose(&why);
        self.lost.get_or_insert(why);
        // This ends the agent, which may take several seconds.
        drop(lost);
    }
}

/// Converts a time on our clock to the host's, using the current estimate. `None` if a clock was set.
fn theirs(host: &RemoteHost, now: Nanos, at: Nanos) -> Option<Nanos> {
    Some(host.monotonic().estimate(now)?.to_theirs(at))
}
