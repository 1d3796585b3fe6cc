//! A load on other hosts, used like any other load: its workers are the workers of all its hosts.
//!
//! Each host opens the target itself, and sends the requests that its workers would send if all workers were on one
//! machine: their share of a rate or of a number of requests, from the same seed. As for every load, decisions that
//! need all workers (steady state, searching a rate or depth) are made where the experiment runs.
//!
//! The rule: workers start at the same time on our clock, which each host receives in advance, never "when the
//! message arrives".

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use brunt_core::Nanos;
use brunt_load::block::{calibrate, journals};
use brunt_load::collect::WorkerMessage;
use brunt_load::hosted::{HostedLoad, OrderedLoad};
use brunt_load::load::{
    EngineNeed, Finished, LoadInfo, LoadTarget, MessageSender, PreparedLoad, RunOrder, RunningLoad,
};
use brunt_load::{Load, LoadCommand, LoadCommandError, LoadError, WorkloadError};
use brunt_protocol::{Assignment, JoinedTarget, LoadStep};
use brunt_result::choice::{EngineChoice, EngineSetting, PageCache, RingChoice, RingMode};
use brunt_result::replay::ReplayFidelity;

use super::host_thread::HostThreadOrder;
use super::journals::WantedJournals;
use super::members::RunMembers;
use super::task::{HostEnd, HostTask};
use super::{Fleet, FleetError, HostedUrl, Lane, POLL_INTERVAL};
use crate::run_rules::HostPart;

/// Time for a start order to reach a host's workers, excluding the network: several times the polling intervals of
/// our thread and of the host's.
const NOTICE: Duration = Duration::from_millis(200);
/// Additional time for the network, in round trips.
const NOTICE_ROUND_TRIPS: u32 = 4;
/// Maximum time for hosts to open the target before the first run: longer than any login to a responsive target.
const OPEN_MAX: Duration = Duration::from_secs(60);
/// Maximum time for hosts to read a trace.
const TRACE_MAX: Duration = Duration::from_secs(3600);
/// Maximum time for hosts to remove what they created, which may be millions of files.
const CLOSE_MAX: Duration = Duration::from_secs(600);

/// A target that all hosts of a load open.
#[derive(Clone, Debug)]
pub struct HostedTarget {
    /// The target's name in the experiment.
    pub name: String,
    /// The URL that each host opens.
    pub url: HostedUrl,
    /// Whether the target may be written to although it contains a file system or partition table.
    pub overwrite: bool,
}

impl HostedTarget {
    /// The target as this host opens it, with the current URL.
    fn now(&self, host: &str) -> JoinedTarget {
        JoinedTarget {
            name: self.name.clone(),
            url: self.url.of(host),
            overwrite: self.overwrite,
        }
    }
}

/// A load on the hosts that it names.
#[derive(Clone, Debug)]
pub struct HostLoad {
    hosted: Arc<dyn HostedLoad>,
    target: HostedUrl,
    overwrite: bool,
    /// The targets, for a replay that uses several.
    joined: Vec<HostedTarget>,
    fleet: Arc<Fleet>,
    lane: Lane,
    members: Arc<RunMembers>,
}

impl HostLoad {
    /// A load on this device, as each host opens it; empty for a load without a device. With `overwrite`, the device
    /// may be written to although it contains a file system or partition table.
    ///
    /// # Panics
    /// The load names no hosts.
    pub fn new(
        hosted: Arc<dyn HostedLoad>,
        target: HostedUrl,
        overwrite: bool,
        fleet: Arc<Fleet>,
    ) -> HostLoad {
        let hosts = hosted.named_hosts().len();
        assert!(hosts > 0, "a load on other hosts names its hosts");
        HostLoad {
            hosted,
            target,
            overwrite,
            joined: Vec::new(),
            fleet,
            lane: Lane::default(),
            members: Arc::new(RunMembers::new(hosts)),
        }
    }

    /// Returns this load for these targets, combined into one device: the targets that the trace's devices map to.
    #[must_use]
    pub fn on_targets(self, joined: Vec<HostedTarget>) -> HostLoad {
        HostLoad { joined, ..self }
    }

    /// Returns this load as one of several that run concurrently, each in its own lane.
    #[must_use]
    pub fn together(self, lane: Lane, members: Arc<RunMembers>) -> HostLoad {
        HostLoad {
            lane,
            members,
            ..self
        }
    }

    fn workers_of_all(&self) -> u32 {
        self.hosted.reporters() * self.hosts().len() as u32
    }

    /// How far hosts go before the first run: a load that can be opened separately is only opened, because opening
    /// may take very long and all hosts need the same input.
    fn first_step(&self) -> LoadStep {
        match self.hosted.is_opened() {
            true => LoadStep::Open,
            false => LoadStep::Run,
        }
    }

    /// Makes all hosts open the target and close it again, within `at_most` each.
    pub(super) fn open_within(
        &self,
        at_most: Duration,
        stop: &AtomicBool,
    ) -> Result<Vec<String>, LoadError> {
        if !self
            .fleet
            .connect(self.hosts(), self.lane, stop)
            .map_err(|error| self.own(error))?
        {
            return Err(LoadError::Interrupted);
        }
        let order = self.unmeasured();
        let digest = self.hosted.input_digest()?;
        let at_most = if digest.is_some() { TRACE_MAX } else { at_most };
        let ends = self.rehearse(&order, self.first_step(), at_most, stop)?;
        if let Some((host, _)) = ends.iter().find(|(_, end)| end.trace != digest) {
            return Err(self.own(FleetError::OtherTrace(host.clone())));
        }
        let note = |host: String, end: HostEnd| {
            end.notes
                .into_iter()
                .map(move |note| format!("{host}: {note}"))
        };
        Ok(ends
            .into_iter()
            .flat_map(|(host, end)| note(host, end))
            .collect())
    }

    /// An order for a run in which rings and engines are not measured: they are measured only when needed. A ring
    /// mode that the workload leaves open becomes interrupt mode, and an engine that it leaves open becomes the
    /// `threads` engine, which every host has.
    fn unmeasured(&self) -> RunOrder {
        let mut order = RunOrder::alone(0);
        if !self.hosted.measures_rings() {
            return order;
        }
        let info = self.hosted.info();
        order.ring = Some(match info.ring {
            RingMode::Auto => RingMode::Interrupt,
            stated => stated,
        });
        order.engine = match (info.engine, order.ring) {
            // A fixed engine, so that no host measures engines.
            (EngineNeed::Stated(EngineSetting::Auto), Some(RingMode::Interrupt)) => {
                Some(EngineSetting::Threads)
            }
            (EngineNeed::Stated(stated), _) => Some(stated),
            (EngineNeed::Usual | EngineNeed::None, _) => None,
        };
        order
    }

    /// Makes all hosts measure the engines concurrently, as they will run; the engine with the highest total rate is
    /// chosen.
    fn choose_engine(
        &self,
        order: &RunOrder,
        stop: &AtomicBool,
    ) -> Result<Option<EngineChoice>, LoadError> {
        let order = RunOrder {
            ring: self.unmeasured().ring,
            ..order.clone()
        };
        let ends = self.rehearse(&order, LoadStep::Run, OPEN_MAX, stop)?;
        let choices: Option<Vec<EngineChoice>> =
            ends.into_iter().map(|(_, end)| end.engine).collect();
        Ok(choices.map(|choices| calibrate::choose_engine_together(&choices)))
    }

    /// Makes all hosts measure the ring modes concurrently, as they will run; the mode with the highest total rate is
    /// chosen.
    fn choose_ring(&self, order: &RunOrder, stop: &AtomicBool) -> Result<RingChoice, LoadError> {
        let order = RunOrder {
            ring: Some(RingMode::Auto),
            ..order.clone()
        };
        let ends = self.rehearse(&order, LoadStep::Run, OPEN_MAX, stop)?;
        let choices: Option<Vec<RingChoice>> = ends.into_iter().map(|(_, end)| end.ring).collect();
        Ok(calibrate::choose_together(&choices.unwrap_or_default()))
    }

    /// Makes all hosts go as far as this step, and releases the run; returns how each host ended.
    fn rehearse(
        &self,
        order: &RunOrder,
        step: LoadStep,
        at_most: Duration,
        stop: &AtomicBool,
    ) -> Result<Vec<(String, HostEnd)>, LoadError> {
        let (inbox, messages) = MessageSender::new();
        let mut run = self
            .give(order, step, &inbox)
            .map_err(|error| self.own(error))?;
        drop(inbox);
        let all_ready = wait_for_all(&messages, self.workers_of_all(), at_most, stop);
        // Dropped before the release, which waits for the hosts' threads: these may be blocked on a full channel.
        drop(messages);
        let ends = run.release();
        if !all_ready? {
            let late = ends
                .iter()
                .filter(|(_, end)| !end.ready)
                .map(|(host, _)| host.as_str());
            let late: Vec<&str> = late.collect();
            // All hosts may have become ready in the meantime.
            let hosts = if late.is_empty() {
                self.hosts().join(", ")
            } else {
                late.join(", ")
            };
            return Err(self.own(FleetError::Slow { hosts, at_most }));
        }
        // A run may continue without a host, but must not begin without one.
        if let Some(lost) = ends.iter().find_map(|(_, end)| end.figures.lost.as_ref()) {
            return Err(self.own(FleetError::Lost(lost.why.clone())));
        }
        Ok(ends)
    }

    fn own(&self, source: FleetError) -> LoadError {
        LoadError::Own {
            kind: self.hosted.kind(),
            source: Box::new(source),
        }
    }

    /// Sends each host its part of the run.
    fn give(
        &self,
        order: &RunOrder,
        step: LoadStep,
        inbox: &MessageSender,
    ) -> Result<RunOfHosts, FleetError> {
        let (workers, ordered) = (self.hosted.reporters(), self.hosted.for_host(order));
        let mut run = RunOfHosts {
            fleet: Arc::clone(&self.fleet),
            lane: self.lane,
            load: ordered.clone(),
            hosted: Arc::clone(&self.hosted),
            hosts: Vec::new(),
            stopped: false,
        };
        for (host, first_worker) in self.hosts().iter().zip((0..).step_by(workers as usize)) {
            let (over, end) = sync_channel(1);
            let assignment = Assignment {
                run: order.run,
                seed: self.hosted.host_seed(order.seed, first_worker),
                first_worker,
                workers_of_all: self.workers_of_all(),
                workers_on_device: if self.target.is_own() {
                    workers
                } else {
                    self.workers_of_all()
                },
                kind: self.hosted.kind().to_string(),
                load: ordered.text.clone(),
                member: ordered.member.clone(),
                step,
                target: self.target.of(host),
                overwrite: self.overwrite,
                journals: ordered.journals.is_some(),
                joined: self.joined.iter().map(|target| target.now(host)).collect(),
            };
            let inbox = inbox.of_job(first_worker, 0);
            let (kinds, records) = (ordered.kinds.clone(), ordered.records);
            let journals = ordered.journals.clone();
            let part = HostPart {
                workers,
                first_worker,
                kinds,
                records,
                journals: journals.is_some(),
            };
            let journals = journals.map(|folder| WantedJournals {
                folder,
                run: order.run,
                first_worker,
                workers,
            });
            let task = HostTask {
                assignment,
                part,
                kind: self.hosted.kind(),
                journals,
                inbox,
                over,
                lane: self.lane,
                members: Arc::clone(&self.members),
            };
            self.fleet
                .tell(host, self.lane, HostThreadOrder::Prepare(Box::new(task)))?;
            run.hosts.push((host.clone(), end));
        }
        Ok(run)
    }
}

/// Waits until `workers` are ready; `false` if they don't become ready in time.
fn wait_for_all(
    messages: &Receiver<WorkerMessage<LoadError>>,
    mut workers: u32,
    at_most: Duration,
    stop: &AtomicBool,
) -> Result<bool, LoadError> {
    let begin = Instant::now();
    while workers > 0 {
        if stop.load(Ordering::Relaxed) {
            return Err(LoadError::Interrupted);
        }
        if begin.elapsed() >= at_most {
            return Ok(false);
        }
        match messages.recv_timeout(POLL_INTERVAL) {
            Ok(WorkerMessage::Ready) => workers -= 1,
            Ok(WorkerMessage::Done(_, result)) => drop((*result)?),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(true)
}

impl Load for HostLoad {
    fn kind(&self) -> &'static str {
        self.hosted.kind()
    }

    fn info(&self) -> LoadInfo {
        self.hosted.info_of_all()
    }

    fn describe(&self) -> String {
        self.hosted.describe_all()
    }

    fn keys(&self) -> Vec<(&'static str, serde_json::Value)> {
        self.hosted.keys()
    }

    fn hosts(&self) -> &[String] {
        self.hosted.named_hosts()
    }

    /// Connects to the hosts and makes each open the target, so that errors show before the first run.
    fn open(&self, _on: &LoadTarget, stop: &AtomicBool) -> Result<Vec<String>, LoadError> {
        self.open_within(OPEN_MAX, stop)
    }

    fn prepare(
        &self,
        _on: &LoadTarget,
        order: &RunOrder,
        inbox: MessageSender,
        stop: &AtomicBool,
    ) -> Result<(PreparedLoad, Box<dyn RunningLoad>), LoadError> {
        if stop.load(Ordering::Relaxed) {
            return Err(LoadError::Interrupted);
        }
        let ordered = self.hosted.for_host(order);
        // For loads that don't measure rings, hosts choose the engine without measuring.
        let measured = self.hosted.measures_rings();
        let engine = match ordered.engine {
            Some(EngineSetting::Auto) if measured => self.choose_engine(order, stop)?,
            _ => None,
        };
        let order = &RunOrder {
            engine: engine
                .as_ref()
                .map_or(order.engine, |choice| Some(choice.engine.into())),
            ..order.clone()
        };
        let ring = match ordered.ring {
            Some(RingMode::Auto) => Some(self.choose_ring(order, stop)?),
            stated => stated.map(RingChoice::stated),
        };
        let order = RunOrder {
            ring: ring.as_ref().map(|ring| ring.mode),
            ..order.clone()
        };
        if let Some(folder) = self.hosted.for_host(&order).journals {
            let reserved = journals::reserve(&folder, 0..self.workers_of_all());
            let wrong = |error: std::io::Error| WorkloadError {
                key: "verify.journal",
                what: error.to_string(),
            };
            reserved.map_err(wrong)?;
        }
        let run = self
            .give(&order, LoadStep::Run, &inbox)
            .map_err(|error| self.own(error))?;
        let (workers, depth) = (self.workers_of_all(), run.load.queue_depth);
        let network = self.fleet.round_trip_max(self.hosts(), self.lane) * NOTICE_ROUND_TRIPS;
        let prepared = PreparedLoad {
            notice: NOTICE + network,
            engine,
            ring,
            ..PreparedLoad::alone(workers, depth)
        };
        Ok((prepared, Box::new(run)))
    }

    fn changes_target(&self, target: &str) -> Result<bool, WorkloadError> {
        self.hosted.changes_target(target)
    }

    fn close(&self) -> Result<(), LoadError> {
        if !self.hosted.keeps_between_runs() {
            return Ok(());
        }
        let never = AtomicBool::new(false);
        self.rehearse(&RunOrder::alone(0), LoadStep::Close, CLOSE_MAX, &never)
            .map(drop)
    }
}

/// A run on several hosts. Dropping this ends the run on all hosts.
struct RunOfHosts {
    fleet: Arc<Fleet>,
    lane: Lane,
    /// The load as ordered.
    load: OrderedLoad,
    /// Judges the hosts' results.
    hosted: Arc<dyn HostedLoad>,
    /// The hosts that received their part, and where each reports how it ended.
    hosts: Vec<(String, Receiver<HostEnd>)>,
    /// Whether a stop was sent, so that it is not repeated.
    stopped: bool,
}

impl RunOfHosts {
    fn tell(&self, order: impl Fn() -> HostThreadOrder) {
        for (host, _) in &self.hosts {
            // The host received its part, so it exists.
            let _ = self.fleet.tell(host, self.lane, order());
        }
    }

    /// Ends the run on all hosts, and waits until nothing of it is left on each host, or the host is lost.
    fn release(&mut self) -> Vec<(String, HostEnd)> {
        self.tell(|| HostThreadOrder::Release);
        let ended = |(host, end): (String, Receiver<HostEnd>)| (host, wait(&end));
        self.hosts.drain(..).map(ended).collect()
    }
}

/// Each part reports its end exactly once: the host's thread does so even if the host is lost.
fn wait(end: &Receiver<HostEnd>) -> HostEnd {
    end.recv().unwrap_or_default()
}

impl RunningLoad for RunOfHosts {
    fn start(&mut self, at: Nanos) {
        self.tell(|| HostThreadOrder::Start(at));
    }

    fn command(&mut self, command: LoadCommand) -> Result<(), LoadCommandError> {
        self.load.commands.check(command)?;
        if command == LoadCommand::Stop && std::mem::replace(&mut self.stopped, true) {
            return Ok(());
        }
        self.tell(|| HostThreadOrder::Command(command));
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Finished {
        let (mut troubles, mut hosts) = (Vec::new(), Vec::new());
        let ends = self.release();
        let page_cache = page_cache(
            ends.iter()
                .filter_map(|(_, end)| Some((end.page_cache?, end.read_bytes))),
        );
        let replay = judged(&*self.hosted, &ends, &mut troubles);
        for (host, end) in ends {
            troubles.extend(
                end.troubles
                    .into_iter()
                    .map(|trouble| format!("{host}: {trouble}")),
            );
            hosts.push(end.figures);
        }
        Finished {
            page_cache,
            replay,
            troubles,
            hosts,
            ..Finished::default()
        }
    }
}

/// Judges a run on several hosts as a whole, from how it ended on each.
fn judged(
    load: &dyn HostedLoad,
    ends: &[(String, HostEnd)],
    troubles: &mut Vec<String>,
) -> Option<Box<ReplayFidelity>> {
    let parts: Vec<String> = ends
        .iter()
        .filter_map(|(_, end)| end.replay.clone())
        .collect();
    let lost = ends.iter().filter(|(_, end)| end.replay.is_none());
    let lost: Vec<String> = lost
        .map(|(host, end)| {
            end.figures
                .lost
                .as_ref()
                .map_or_else(|| format!("host {host}"), |lost| lost.why.clone())
        })
        .collect();
    match load.judge(&parts, &lost) {
        Ok(fidelity) => fidelity.map(Box::new),
        Err(error) => {
            troubles.push(error.to_string());
            None
        }
    }
}

/// Combines the page caches of several hosts: the share of all bytes read, and the mean flush time of a host.
fn page_cache(each: impl Iterator<Item = (PageCache, u64)>) -> Option<PageCache> {
    let each: Vec<(PageCache, u64)> = each.collect();
    let bytes: u64 = each.iter().map(|(_, bytes)| bytes).sum();
    let cached = each
        .iter()
        .map(|(cache, bytes)| Some(cache.read_share? * *bytes as f64))
        .sum::<Option<f64>>();
    let read_share = cached
        .filter(|_| bytes > 0)
        .map(|cached| cached / bytes as f64);
    let flush_s = each.iter().map(|(cache, _)| cache.flush_s).sum::<f64>() / each.len() as f64;
    (!each.is_empty()).then_some(PageCache {
        read_share,
        flush_s,
    })
}

impl Drop for RunOfHosts {
    fn drop(&mut self) {
        self.release();
    }
}
