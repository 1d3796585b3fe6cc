//! The thread that serves a single host: receives its messages, synchronizes its clock, and forwards its workers'
//! reports, with times converted to our clock.
//!
//! The rule: the owner of a run always learns that it has ended, even if the host is lost: each worker ends once, and
//! so does the run.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use brunt_load::collect::WorkerMessage;
use brunt_load::load::MessageSender;
use brunt_load::{LoadCommand, LoadError};
use brunt_protocol::{Assignment, REQUESTS_MAX, RoleOrder};
use brunt_result::choice::{EngineChoice, PageCache, RingChoice};
use brunt_result::hosts::{HostFigures, HostLoss};
use brunt_result::{Figures, Interval, OpKind, Outcome, Stopped};

use super::dates::{Dates, dated_interval, dated_outcome};
use super::faults::{BridgeAnswer, FaultEnd, FaultTask, HeldFaults, HostBridgeError};
use super::journals::{FetchedJournals, WantedJournals};
use super::members::RunMembers;
use super::record::FetchedRecord;
use super::roles::{HeardRole, HeldRoles};
use super::watch::{HeldWatch, WatchEnd, WatchTask};
use super::{FleetError, Lane};
use crate::address::HostAddress;
use crate::clock::ClockEstimate;
use crate::remote::{ConnectOptions, RemoteHost};
use crate::run_rules::HostPart;
use crate::session::HostNews;

/// Clock rounds before the first run.
const BURST: u32 = 16;
/// Interval between later rounds. Each round also renews the agent's lease.
pub(super) const ASK_EVERY: Duration = Duration::from_millis(250);
/// The interval while a start is pending: the clock matters most at the moment the run begins.
const ASK_BEFORE_START: Duration = Duration::from_millis(10);
/// The usual interval resumes this long before a start, so that the host is otherwise idle when its workers wake up.
const LEAVE_BEFORE_START: Duration = Duration::from_millis(20);
/// A few rounds have been completed this long after a start.
const AFTER_START: Duration = Duration::from_secs(2);
/// Maximum time until an order is noticed.
const LOOK: Duration = Duration::from_millis(20);
/// A host is given its start time this long in advance: a job that starts after others may begin hours later.
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
    /// Inject or remove a fault.
    Fault(Box<FaultTask>),
    /// Ask for the report of the host's bridge.
    AskBridge(BridgeAnswer),
    /// Start or admit a role, whose news goes here.
    BeginRole(u32, RoleOrder, Arc<HeardRole>),
    /// Pass an order to a role.
    Role(u32, RoleOrder),
}

/// A host's part of a run.
#[derive(Debug)]
pub(super) struct HostTask {
    /// The assignment sent to the host.
    pub assignment: Assignment,
    /// Its workers, and what they do.
    pub part: HostPart,
    /// The load's kind.
    pub kind: &'static str,
    /// Where its workers' journals go, if there are any.
    pub journals: Option<WantedJournals>,
    /// Where its workers' messages go, numbered across all workers.
    pub inbox: MessageSender,
    /// Notified once, when nothing of the run is left on the host.
    pub over: SyncSender<HostEnd>,
    /// The lane of its job, among jobs that run concurrently.
    pub lane: Lane,
    /// All members of the run.
    pub members: Arc<RunMembers>,
}

/// The outcome of a host's part of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HostEnd {
    /// Remarks for the user.
    pub notes: Vec<String>,
    /// Errors of its devices.
    pub troubles: Vec<String>,
    /// Its figures, and how accurate its times are.
    pub figures: HostFigures,
    /// The engine of its requests.
    pub engine: Option<EngineChoice>,
    /// The mode of its rings, if it was measured.
    pub ring: Option<RingChoice>,
    /// A digest of the trace it replays.
    pub trace: Option<String>,
    /// Its part of a replay.
    pub replay: Option<String>,
    /// The page cache's share, if the page cache was used.
    pub page_cache: Option<PageCache>,
    /// Bytes that its workers read.
    pub read_bytes: u64,
    /// Whether the host was ready to start.
    pub ready: bool,
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
        goes_on: bool,
    ) -> Result<HostThread, FleetError> {
        let failed = |source| FleetError::Host {
            host: name.to_string(),
            source,
        };
        let mut host = RemoteHost::connect(address, options).map_err(failed)?;
        for _ in 0..BURST {
            // There is no run yet, so there is no other news.
            host.clock_round(drop).map_err(failed)?;
        }
        let round_trip = host.monotonic().round_trip_min().unwrap_or_default();
        let agent_here = host.agent_here();
        let (orders, told) = channel();
        let mut held = HeldHost {
            name: name.to_string(),
            host: Some(host),
            clock: Clock::Monotonic,
            next_ask: Nanos(0),
            dates: Dates::new(),
            goes_on,
            lost: None,
            task: None,
            watch: None,
            faults: HeldFaults::default(),
            roles: HeldRoles::default(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("host {name}"))
            .spawn(move || held.hold(&told));
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

    /// Sends an order, which the thread notices within [`LOOK`].
    pub fn tell(&self, order: HostThreadOrder) {
        if let Some(orders) = &self.orders {
            // The thread lives as long as this sender.
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
            assert!(std::thread::panicking(), "the thread of a host panicked");
        }
    }
}

/// The state of a host's thread.
struct HeldHost {
    name: String,
    /// `None` once lost.
    host: Option<RemoteHost>,
    clock: Clock,
    next_ask: Nanos,
    /// Converts its times to our clock.
    dates: Dates,
    /// Whether runs continue without this host.
    goes_on: bool,
    /// Why it was lost.
    lost: Option<String>,
    task: Option<RunningTask>,
    watch: Option<HeldWatch>,
    faults: HeldFaults,
    roles: HeldRoles,
}

/// A run that has not ended on this host.
struct RunningTask {
    /// `None` once all workers have ended: the collector waits until the last sender is dropped.
    inbox: Option<MessageSender>,
    kind: &'static str,
    over: SyncSender<HostEnd>,
    /// Workers that have not ended, and what they have reported.
    going: Vec<Option<Reported>>,
    /// Whether all workers are waiting for the start.
    ready: bool,
    /// The start time, if one was given.
    start: Option<Nanos>,
    /// An estimate of the host's clock at the start, once there were rounds after it.
    at_start: Option<ClockEstimate>,
    /// A start time not yet sent to the host.
    starts: Option<Nanos>,
    lane: Lane,
    members: Arc<RunMembers>,
    /// The request record, if the load keeps one.
    record: Option<FetchedRecord>,
    /// Its workers' journals, if they keep any.
    journals: Option<FetchedJournals>,
    /// Requests completed by the workers that have ended.
    completed: u64,
    /// Whether all workers have ended and the errors of their devices are known.
    done: bool,
    /// The deadline for releasing the run, once it is to be released.
    release: Option<Nanos>,
    /// Whether the release was sent to the host.
    released: bool,
    end: HostEnd,
}

/// What a worker has reported so far, which is all that is known about it if its host is lost.
#[derive(Clone, Debug, Default)]
struct Reported {
    figures: Figures,
    /// From the start of its first interval to the end of its last.
    time: Option<(Nanos, Nanos)>,
}

impl Reported {
    fn add(&mut self, interval: &Interval) {
        self.figures.merge(&interval.figures);
        let start = self.time.map_or(interval.start, |(start, _)| start);
        self.time = Some((start, interval.end));
    }

    /// The worker's outcome, as if it had ended with its last reported interval.
    fn outcome(self, stopped: Stopped) -> Outcome {
        let Some((start, end)) = self.time else {
            return Outcome {
                stopped,
                ..Outcome::interrupted()
            };
        };
        let mut outcome = Outcome {
            figures: self.figures,
            start,
            end,
            stopped,
            ..Outcome::interrupted()
        };
        outcome.rate_over_all_of_the_time();
        outcome
    }
}

impl HeldHost {
    fn hold(&mut self, told: &Receiver<HostThreadOrder>) {
        loop {
            match self.obey(told) {
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
    fn obey(&mut self, told: &Receiver<HostThreadOrder>) -> Result<bool, FleetError> {
        loop {
            let order = match &self.host {
                Some(_) => match told.try_recv() {
                    Err(TryRecvError::Empty) => return Ok(true),
                    order => order.ok(),
                },
                // Without a host, there is nothing to wait for except orders.
                None => told.recv().ok(),
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
        // The host was lost, or the run is already over.
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
                // Workers that never start would not end.
                let starts = task.starts.take_if(|_| command == LoadCommand::Stop);
                let told = host.command(command).map_err(failed);
                told.and_then(|()| starts.map_or(Ok(()), |at| self.tell_start(at)))
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
        heard: Arc<HeardRole>,
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
        starts.map_or(Ok(()), |at| self.tell_start(at))
    }

    fn tell_start(&mut self, at: Nanos) -> Result<(), FleetError> {
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
        let HostTask {
            assignment,
            part,
            kind,
            journals,
            inbox,
            over,
            lane,
            members,
        } = task;
        let workers = part.workers;
        let going = vec![Some(Reported::default()); workers as usize];
        let figures = HostFigures {
            name: self.name.clone(),
            workers,
            ..HostFigures::default()
        };
        self.task = Some(RunningTask {
            inbox: Some(inbox),
            kind,
            over,
            going,
            ready: false,
            start: None,
            at_start: None,
            starts: None,
            lane,
            members,
            record: part.records.then(FetchedRecord::default),
            journals: journals.map(FetchedJournals::new),
            completed: 0,
            done: false,
            release: None,
            released: false,
            end: HostEnd {
                figures,
                ..HostEnd::default()
            },
        });
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
        let told = |task: &&RunningTask| task.starts.is_none();
        let start = self.task.as_ref().filter(told).and_then(|task| task.start);
        let is_near = start.is_some_and(|start| now.after(LEAVE_BEFORE_START) < start);
        // Near a start, no request is sent while one is outstanding: it would add no information.
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
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        let name = self.name.clone();
        let failed = |source| FleetError::Host {
            host: name.clone(),
            source,
        };
        let until = now.after(LOOK).min(self.next_ask);
        while let Some(news) = host.hear(until).map_err(failed)? {
            let now = self.clock.now();
            if let HostNews::Clock { .. } = news {
                self.dates.round();
            }
            if let Some(task) = &mut self.task {
                task.look_back(host, now);
            }
            let dated = news.is_dated();
            let estimate = match dated {
                true => self.dates.now(host.monotonic(), now),
                false => None,
            };
            self.dates.look(host.monotonic(), now);
            if dated && estimate.is_none() {
                return Err(FleetError::ClockSet(name));
            }
            if let HostNews::Watched(report) = news {
                if let Some(watch) = self.watch.take() {
                    watch.conclude(Some(report), Some(host), None);
                }
                continue;
            }
            let news = match &mut self.watch {
                Some(watch) => watch.take(news, estimate),
                None => Some(news),
            };
            let news = news.and_then(|news| self.faults.take(&name, news, estimate));
            let news = news.and_then(|news| self.roles.take(news, estimate));
            let (Some(task), Some(news)) = (&mut self.task, news) else {
                continue;
            };
            if let (HostNews::Ended(_, outcome), Some(estimate)) = (&news, &estimate)
                && outcome.began != Nanos::MAX
            {
                // Rounds just before and after that time are more accurate than the current estimate.
                let now = || host.monotonic().estimate(estimate.to_ours(outcome.began));
                let then = task.at_start.or_else(now);
                task.began(
                    outcome.began,
                    &then.ok_or(FleetError::ClockSet(name.clone()))?,
                );
            }
            let is_over = task.take(news, estimate, &self.dates);
            for _ in 0..task
                .record
                .as_mut()
                .map_or(0, |record| record.wants(REQUESTS_MAX as u64))
            {
                host.more_requests().map_err(failed)?;
            }
            for _ in 0..task.journals.as_mut().map_or(0, FetchedJournals::wants) {
                host.more_journal().map_err(failed)?;
            }
            if is_over {
                let mut task = self.task.take().expect("it existed above");
                let figures = &mut task.end.figures;
                let round_trip = host.monotonic().round_trip_min().unwrap_or_default();
                figures.round_trip_us = round_trip.as_nanos() as f64 / 1e3;
                [figures.sent_bytes, figures.received_bytes] = host.bytes();
                task.conclude();
            }
            if now >= until {
                break;
            }
        }
        self.release_if_wanted()
    }

    /// Releases the run if requested, once the errors of its devices are known or will never be.
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
        let all_ended = task.going.iter().all(Option::is_none);
        if task.released || (all_ended && !task.done) {
            return Ok(());
        }
        task.released = true;
        host.release().map_err(|source| FleetError::Host {
            host: self.name.clone(),
            source,
        })
    }

    /// Handles the loss of the host: everything that waits for it is given the reason.
    fn lose(&mut self, error: FleetError) {
        let lost = self.host.take();
        let why = error.to_string();
        if let Some(mut task) = self.task.take() {
            task.fail(error, self.goes_on, self.clock.now());
            task.conclude();
        }
        if let Some(watch) = self.watch.take() {
            watch.conclude(None, lost.as_ref(), Some(why.clone()));
        }
        self.faults.lose(&why);
        self.roles.lose(&why);
        self.lost.get_or_insert(why);
        // This ends the agent, which may take several seconds.
        drop(lost);
    }
}

impl RunningTask {
    /// Handles a message about the run; `true` once nothing of the run is left on the host.
    fn take(&mut self, news: HostNews, estimate: Option<ClockEstimate>, dates: &Dates) -> bool {
        match (news, estimate) {
            (HostNews::Ready(ready), _) => {
                let engine = ready.engine;
                self.end.figures.engine = engine.as_ref().map(|choice| choice.engine);
                (self.end.engine, self.end.ring) = (engine, ready.ring);
                (self.end.notes, self.end.trace) = (ready.notes, ready.trace);
                self.end.ready = true;
                self.tell_ready();
            }
            (HostNews::Interval(worker, interval), Some(estimate)) => {
                let interval = dated_interval(interval, &estimate);
                if let Some(reported) = &mut self.going[worker as usize] {
                    reported.add(&interval);
                }
                self.send(WorkerMessage::Interval(worker, interval));
            }
            (HostNews::Ended(worker, outcome), Some(estimate)) => {
                self.completed += outcome.figures.completed();
                self.ended(worker as usize, Ok(dated_outcome(*outcome, &estimate)));
            }
            (HostNews::Recorded(end), _) => {
                if let Some(record) = &mut self.record {
                    record.announce(end);
                }
                self.let_go();
            }
            (HostNews::Requests(mut requests), Some(estimate)) => {
                dates.requests(&mut requests, estimate);
                if let Some(record) = &mut self.record {
                    record.take(requests.len() as u64);
                }
                self.send(WorkerMessage::Requests(0, requests));
                self.let_go();
            }
            (HostNews::Journals(lengths), _) => {
                if let Some(journals) = &mut self.journals {
                    journals.announce(lengths);
                }
            }
            (HostNews::Journal(worker, bytes), _) => {
                if let Some(journals) = &mut self.journals {
                    journals.take(worker, &bytes);
                }
                self.let_go();
            }
            (HostNews::Done(troubles, page_cache, replay), _) => {
                (self.done, self.end.page_cache, self.end.replay) = (true, page_cache, replay);
                self.end.troubles.extend(troubles);
            }
            (HostNews::Note(note), _) => self.end.troubles.push(note),
            (HostNews::Released, _) => return true,
            _ => {}
        }
        false
    }

    /// Reports that all workers are waiting for the start.
    fn tell_ready(&mut self) {
        self.ready = true;
        self.going
            .iter()
            .for_each(|_| self.send(WorkerMessage::Ready));
    }

    /// Saves an estimate of the host's clock at the start before the rounds around it are discarded.
    fn look_back(&mut self, host: &RemoteHost, now: Nanos) {
        if let Some(start) = self
            .start
            .filter(|start| self.at_start.is_none() && start.after(AFTER_START) <= now)
        {
            self.at_start = host.monotonic().estimate(start);
        }
    }

    /// Records when a worker started; `theirs` is on the host's clock, and `estimate` is for that time.
    fn began(&mut self, theirs: Nanos, estimate: &ClockEstimate) {
        let Some(start) = self.start else { return };
        let began = estimate.to_ours(theirs);
        let after_us = (i128::from(began.0) - i128::from(start.0)) as f64 / 1e3;
        let figures = &mut self.end.figures;
        if figures
            .began_us
            .is_some_and(|earliest| earliest <= after_us)
        {
            return;
        }
        figures.began_us = Some(after_us);
        figures.clock_error_us = Some(estimate.offset.error().as_nanos() as f64 / 1e3);
        figures.clock_ahead_ns = Some([estimate.offset.low, estimate.offset.high]);
    }

    /// Ends the remaining workers when the host is lost: if the run has begun or continues without them, with what they
    /// had reported, otherwise with an error.
    fn fail(&mut self, error: FleetError, goes_on: bool, now: Nanos) {
        // A refusal is not a loss: the experiment or the host's limits are wrong.
        let goes_on = goes_on
            && !error.is_refusal()
            && self.members.lose(&self.end.figures.name, self.lane.0);
        let after_s = self
            .start
            .map_or(0.0, |start| now.since(start).as_secs_f64());
        self.end.figures.lost = Some(HostLoss {
            after_s,
            why: error.to_string(),
        });
        let stopped = if goes_on {
            Stopped::Done
        } else {
            Stopped::HostLost
        };
        let mut why = (!goes_on && self.start.is_none()).then(|| LoadError::Own {
            kind: self.kind,
            source: Box::new(error),
        });
        let is_error = why.is_some();
        if !is_error && !self.ready {
            self.tell_ready();
        }
        for worker in 0..self.going.len() {
            let Some(reported) = self.going[worker].clone() else {
                continue;
            };
            let result = match is_error {
                true => Err(why.take().unwrap_or(LoadError::Interrupted)),
                false => Ok(reported.outcome(stopped)),
            };
            if let Ok(outcome) = &result {
                self.completed += outcome.figures.completed();
            }
            self.ended(worker, result);
        }
        // No more of its record will arrive.
        let lost = self.end.figures.lost.as_ref().map(|lost| lost.why.clone());
        self.count_lost(lost.as_deref());
        self.count_journals(lost.as_deref());
        self.inbox = None;
    }

    /// Counts the missing journals, and leaves a note in place of each. A run that never began has nothing to verify.
    fn count_journals(&mut self, lost: Option<&str>) {
        let Some(journals) = self.journals.take().filter(|_| self.start.is_some()) else {
            return;
        };
        self.end.figures.journals_lost = journals.conclude(&self.end.figures.name, lost);
    }

    /// Counts the missing requests among those recorded.
    fn count_lost(&mut self, lost: Option<&str>) {
        let Some(record) = self.record.take().filter(|_| self.start.is_some()) else {
            return;
        };
        self.end.figures.requests_lost = record.lost(self.completed, lost);
    }

    /// Releases the collector once all workers have ended and the record and journals are complete.
    fn let_go(&mut self) {
        let whole = self.record.as_ref().is_none_or(FetchedRecord::is_whole)
            && self.journals.as_ref().is_none_or(FetchedJournals::is_over);
        if whole && self.going.iter().all(Option::is_none) {
            self.inbox = None;
            self.count_lost(None);
            self.count_journals(None);
        }
    }

    fn send(&self, message: WorkerMessage<LoadError>) {
        if let Some(inbox) = &self.inbox {
            inbox.send(message);
        }
    }

    fn ended(&mut self, worker: usize, result: Result<Outcome, LoadError>) {
        self.going[worker] = None;
        if let Ok(outcome) = &result {
            let figures = &mut self.end.figures;
            figures.add(outcome);
            figures.failed += outcome.figures.counts.errors();
            if let Some(start) = self.start.filter(|_| outcome.end > outcome.start) {
                let after_s = outcome.end.since(start).as_secs_f64();
                figures.ended_s = Some(figures.ended_s.map_or(after_s, |last| last.max(after_s)));
            }
            if let (None, Some(error)) = (&figures.first_error, &outcome.first_error) {
                figures.first_error = Some(error.to_string());
            }
            self.end.read_bytes += outcome
                .figures
                .op(OpKind::Read)
                .map_or(0, |reads| reads.bytes);
        }
        self.send(WorkerMessage::Done(worker as u32, Box::new(result)));
        self.let_go();
    }

    /// Reports that the run is over. The receiver may already be gone.
    fn conclude(mut self) {
        // A run that ended early never reached `let_go`.
        self.count_journals(None);
        let _ = self.over.try_send(self.end);
    }
}

/// Converts a time on our clock to the host's, using the current estimate. `None` if a clock was set.
fn theirs(host: &RemoteHost, now: Nanos, at: Nanos) -> Option<Nanos> {
    Some(host.monotonic().estimate(now)?.to_theirs(at))
}
