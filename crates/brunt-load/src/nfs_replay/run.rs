//! Sends the calls of a plan at their times, with one device per client of the trace, and compares the answers. The
//! plan is a worker's sequence, as in other loads: one thread and one ring.
//!
//! The rule: a call that can't be sent is counted, and no longer delays the calls that wait for it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use brunt_block::{Device, Health, Op, RingConfig};
use brunt_core::{Clock, Histogram, Nanos, Size};
use brunt_nfs::NfsFolder;
use brunt_nfs::url::NfsVersion;
use brunt_result::replay::LATE_AFTER_US;
use brunt_result::{Outcome, RequestStatus, Stopped};
use brunt_wire::nfs::v3::{Procedure, Status};

use super::calls::{ReplayCalls, ReplayState, TargetAnswer};
use super::clients::ClientDevices;
use super::namespace::NONE;
use super::plan::{Action, ReplayActions};
use super::report::{
    LateCalls, NfsProcedureCalls, NoLocks, StatusCause, StatusDifference, UnsentCause,
};
use super::schedule::{LateCause, NextAction, Schedule};
use super::{NfsReplayError, NfsReplayOptions};
use crate::block::generator::Planned;
use crate::block::sizes::BlockSizes;
use crate::block::synthetic::WorkerId;
use crate::block::worker::Worker;
use crate::block::workers::ring_of;
use crate::block::workload::Workload;
use crate::commands::Commands;
use crate::nfs::requests::NfsData;
use crate::nfs::tree::OwnedHandle;
use crate::record::Recorder;
use crate::replay::settings::ReplayTiming;
use crate::replay::spin::SpinTime;
use crate::sequence::{Next, Sequence};

/// Maximum number of devices; further clients share them.
pub(super) const DEVICES_MAX: usize = 64;
/// Maximum memory for the data of outstanding calls; if calls are long, fewer are outstanding.
const BUFFER_BYTES_MAX: u64 = 256 << 20;
/// How soon to look for a call again if none can be sent and none is outstanding.
const LOOK_NANOS: u64 = 1_000_000;

/// Counters and latencies of a run.
#[derive(Debug, Default)]
pub(super) struct RunMeasures {
    pub(super) sent: u64,
    pub(super) answered: u64,
    pub(super) unsent: BTreeMap<UnsentCause, u64>,
    /// Calls that the target doesn't allow.
    pub(super) left_out: BTreeMap<NoLocks, u64>,
    pub(super) failed: BTreeMap<String, u64>,
    pub(super) procedures: BTreeMap<&'static str, NfsProcedureCalls>,
    /// Number of differing statuses, by operation, both statuses and cause.
    differences: BTreeMap<(&'static str, String, String, StatusCause), u64>,
    pub(super) sizes_differ: u64,
    pub(super) shortened: u64,
    pub(super) moved_bytes: [u64; 2],
    pub(super) issue_error: Histogram,
    pub(super) response: Histogram,
    pub(super) late: LateCalls,
    /// When the first and the last call were due and sent.
    first: Option<(Nanos, Nanos)>,
    last: Option<(Nanos, Nanos)>,
    pub(super) seconds: f64,
    pub(super) interrupted: bool,
    pub(super) connections: u64,
    /// The version of NFS used with the target.
    target: NfsVersion,
}

impl RunMeasures {
    /// Returns the measures of a run before its first call.
    fn planned(plan: &ReplayActions, connections: usize) -> RunMeasures {
        let mut measures = RunMeasures {
            connections: connections as u64,
            ..RunMeasures::default()
        };
        for action in &plan.actions {
            let of = measures.procedures.entry(action.name());
            of.or_default().planned += 1;
        }
        measures
    }

    /// Returns by how much the delay of the last call exceeded that of the first, in nanoseconds, and as a share of
    /// the time between the two.
    pub(super) fn drift(&self) -> Option<(f64, Option<f64>)> {
        let ((first_due, first_sent), (last_due, last_sent)) = self.first.zip(self.last)?;
        let between = |from: Nanos, to: Nanos| to.0 as f64 - from.0 as f64;
        let due = between(first_due, last_due);
        let later = between(first_sent, last_sent) - due;
        Some((later, (due > 0.0).then_some(later / due)))
    }

    pub(super) fn statuses(&self) -> Vec<StatusDifference> {
        let differences = self.differences.iter();
        let mut statuses: Vec<StatusDifference> = differences
            .map(
                |((operation, trace, target, cause), calls)| StatusDifference {
                    operation: (*operation).to_string(),
                    trace: trace.clone(),
                    target: target.clone(),
                    cause: *cause,
                    calls: *calls,
                },
            )
            .collect();
        statuses.sort_by_key(|difference| std::cmp::Reverse(difference.calls));
        statuses
    }
}

/// A call that was handed out and has not ended.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    due: Nanos,
    sent: Option<Nanos>,
    cause: LateCause,
}

/// The calls of a run, as a worker's requests.
struct CallSequence<'p> {
    plan: &'p ReplayActions,
    state: Rc<ReplayState>,
    schedule: Schedule<'p>,
    timing: ReplayTiming,
    in_flight: HashMap<u64, InFlight>,
    measures: RunMeasures,
    /// Objects and names (with their directories) for which a status differed.
    tainted: HashSet<(u32, u32)>,
    depth: usize,
    /// Why no operations on locks are sent.
    no_locks: Option<NoLocks>,
}

/// The resources of a run, besides its options.
pub(super) struct RunParts<'a> {
    pub(super) folder: &'a NfsFolder,
    pub(super) plan: &'a Arc<ReplayActions>,
    /// Number of objects, and the target's handles of those that exist.
    pub(super) objects: (usize, &'a [(u32, OwnedHandle)]),
    /// How requests are recorded and retried, and when the run ends.
    pub(super) workload: &'a Workload,
    pub(super) commands: &'a Commands,
}

/// The results of a run.
pub(super) struct CallsSent {
    pub(super) measures: RunMeasures,
    pub(super) outcome: Outcome,
    pub(super) health: Health,
}

/// Returns the workload with the queue and the buffers that a plan needs.
pub(super) fn fitted(workload: &Workload, plan: &ReplayActions, limits: (u32, u32)) -> Workload {
    let bytes = |action: &Action| match action.procedure {
        Procedure::Read => action.asked_bytes.min(limits.0),
        Procedure::Write => action.asked_bytes.min(limits.1),
        _ => 0,
    };
    let longest = plan.actions.iter().map(bytes).max().unwrap_or(0).max(512);
    let most = (BUFFER_BYTES_MAX / u64::from(longest)) as u32;
    let queue_depth = workload.queue_depth.min(most.max(1));
    Workload {
        blocks: BlockSizes::only(Size(longest.into())),
        queue_depth,
        reap_batch: workload.reap_batch.min(queue_depth),
        ..workload.clone()
    }
}

/// Replays all calls. Once everything is ready, `start` returns the time of the first one, or `None` to cancel the run.
///
/// # Errors
/// The server can't be reached, or the ring failed.
pub(super) fn run(
    parts: &RunParts<'_>,
    options: &NfsReplayOptions,
    start: impl FnOnce() -> Option<Nanos>,
    recorder: &mut dyn Recorder,
) -> Result<CallsSent, NfsReplayError> {
    let RunParts {
        folder,
        plan,
        objects: (objects, known),
        commands,
        ..
    } = *parts;
    let place = folder.place();
    let limits = (place.read_bytes_max, place.write_bytes_max);
    let workload = fitted(parts.workload, plan, limits);
    let as_traced = options.callers.as_traced();
    let state = ReplayState::new(Arc::clone(plan), objects, known, limits, as_traced);
    let state = Rc::new(state);
    let ring = ring_of(&workload, &RingConfig::default()).map_err(NfsReplayError::Ring)?;
    let count = plan.clients.len().clamp(1, DEVICES_MAX);
    let depth = workload.queue_depth;
    let open = |_| folder.operations(ReplayCalls(Rc::clone(&state)), &ring, depth);
    let devices: Result<Vec<_>, _> = (0..count).map(open).collect();
    let devices = devices.map_err(|error| NfsReplayError::Open(Box::new(error)))?;
    let mut device = ClientDevices::new(devices, Arc::clone(plan));
    let mut sequence = CallSequence {
        plan,
        state,
        schedule: Schedule::new(plan, options.timing, options.speed),
        timing: options.timing,
        in_flight: HashMap::new(),
        measures: RunMeasures {
            target: folder.version(),
            ..RunMeasures::planned(plan, count * folder.connections() as usize)
        },
        tainted: HashSet::new(),
        depth: depth as usize,
        no_locks: match (folder.version(), folder.connections()) {
            (NfsVersion::V3, _) => Some(NoLocks::Nfs3),
            (NfsVersion::V41, 1) => None,
            (NfsVersion::V41, _) => Some(NoLocks::Connections),
        },
    };
    let (id, data) = (WorkerId::alone(options.seed), NfsData::seeded(options.seed));
    let kinds = plan.kinds();
    let worker = Worker::of_kinds(&mut sequence, data, &workload, &kinds, id, ring.pool());
    let Some(start) = start() else {
        drop(worker);
        return Ok(CallsSent {
            measures: sequence.measures,
            outcome: Outcome::interrupted(),
            health: device.health(),
        });
    };
    let mut time = SpinTime {
        ring: &ring,
        spin: options.spin.as_nanos() as u64,
    };
    let outcome = worker.run(&mut device, &mut time, start, commands, recorder);
    let outcome = outcome.map_err(NfsReplayError::Ring)?;
    let nanos = Clock::Monotonic.now().0.saturating_sub(start.0);
    sequence.measures.seconds = nanos as f64 / 1e9;
    sequence.end(outcome.stopped);
    Ok(CallsSent {
        measures: sequence.measures,
        outcome,
        health: device.health(),
    })
}

impl Sequence for CallSequence<'_> {
    type Request = Planned;
    const WATCHES: bool = true;

    fn starts(&mut self, start: Nanos) {
        self.schedule.start(start);
    }

    fn next(&mut self, now: Nanos, place: &mut Planned) -> Next {
        loop {
            match self.schedule.next(now) {
                NextAction::Send { action, due, cause } => {
                    if !self.take(action, (due, cause), now, place) {
                        continue;
                    }
                    return Next::Due(match self.timing {
                        ReplayTiming::Trace => due,
                        // The response time doesn't include the wait for earlier calls.
                        ReplayTiming::Dependency | ReplayTiming::Depth => now,
                    });
                }
                NextAction::At(due) => return Next::Later(due),
                NextAction::AfterCompletion => {
                    let own = self.in_flight.keys().next();
                    return own.map_or(Next::Later(Nanos(now.0 + LOOK_NANOS)), |index| {
                        Next::WaitFor(*index)
                    });
                }
                NextAction::End => return Next::End,
            }
        }
    }

    fn sent(&mut self, request: &Planned, at: Nanos) {
        let Some(flight) = self.in_flight.get_mut(&request.index) else {
            return;
        };
        // A retry is not a new call.
        if flight.sent.is_some() {
            return;
        }
        flight.sent = Some(at);
        let InFlight { due, cause, .. } = *flight;
        if self.timing != ReplayTiming::Depth {
            self.measure_lateness(due, at, cause);
        }
        self.measures.sent += 1;
        self.procedure(request.index as u32).sent += 1;
    }

    fn given_back(&mut self, index: u64, at: Nanos) {
        self.in_flight.remove(&index);
        self.not_sent(index as u32, UnsentCause::Ended, at);
    }

    fn completed(&mut self, index: u64, status: RequestStatus, at: Nanos) {
        let is_full = self.in_flight.len() >= self.depth;
        self.schedule.note_late(at, is_full);
        let answer = self.state.take_answer(index as u32);
        let flight = self.in_flight.remove(&index).expect("a call ends once");
        let Some(sent) = flight.sent else {
            return self.not_sent(index as u32, UnsentCause::Late, at);
        };
        let since = match self.timing {
            ReplayTiming::Trace => flight.due,
            _ => sent,
        };
        let response = Nanos(at.0.saturating_sub(since.0));
        self.measures.response.record(response);
        match (status, answer) {
            (RequestStatus::Good | RequestStatus::Scsi, Some(answer)) => {
                self.compare(index as u32, answer);
            }
            _ => self.fail(&self.plan.actions[index as usize], status),
        }
        self.schedule.ended(index as u32, at);
    }
}

impl CallSequence<'_> {
    /// Turns a call into a request; `false` if it can't be sent.
    fn take(
        &mut self,
        index: u32,
        (due, cause): (Nanos, LateCause),
        now: Nanos,
        place: &mut Planned,
    ) -> bool {
        let action = &self.plan.actions[index as usize];
        if let (Some(_), Some(why)) = (action.lock(), self.no_locks) {
            self.leave_out(index, why, now);
            return false;
        }
        if !self.state.can_send(action) {
            self.taint(action);
            self.not_sent(index, UnsentCause::NoHandle, now);
            return false;
        }
        let (len, is_shortened) = self.state.transfer(action);
        self.measures.shortened += u64::from(is_shortened);
        let op = match (action.procedure, len) {
            (_, 0) => Op::Flush,
            (Procedure::Read, _) => Op::Read,
            _ => Op::Write,
        };
        *place = Planned {
            kind: action.kind(),
            ..Planned::new(index.into(), op, index.into(), len.into())
        };
        let flight = InFlight {
            due,
            sent: None,
            cause,
        };
        self.in_flight.insert(index.into(), flight);
        true
    }

    fn not_sent(&mut self, index: u32, why: UnsentCause, at: Nanos) {
        *self.measures.unsent.entry(why).or_default() += 1;
        self.schedule.ended(index, at);
    }

    fn leave_out(&mut self, index: u32, why: NoLocks, at: Nanos) {
        *self.measures.left_out.entry(why).or_default() += 1;
        self.procedure(index).planned -= 1;
        self.schedule.ended(index, at);
    }

    fn procedure(&mut self, index: u32) -> &mut NfsProcedureCalls {
        let name = self.plan.actions[index as usize].name();
        self.measures.procedures.entry(name).or_default()
    }

    /// The run is over: counts calls not sent or not answered.
    fn end(&mut self, stopped: Stopped) {
        self.measures.interrupted = stopped == Stopped::Interrupted;
        let unanswered = std::mem::take(&mut self.in_flight);
        for (index, _) in unanswered.iter().filter(|(_, one)| one.sent.is_some()) {
            self.measures.sent -= 1;
            self.procedure(*index as u32).sent -= 1;
        }
        let left = self.schedule.left() + unanswered.len() as u64;
        if left > 0 {
            let why = match self.measures.interrupted {
                true => UnsentCause::Interrupted,
                false => UnsentCause::Ended,
            };
            *self.measures.unsent.entry(why).or_default() += left;
        }
    }

    fn measure_lateness(&mut self, due: Nanos, sent: Nanos, cause: LateCause) {
        let measures = &mut self.measures;
        let late = sent.0.saturating_sub(due.0);
        measures.issue_error.record(Nanos(late));
        measures.first.get_or_insert((due, sent));
        measures.last = Some((due, sent));
        if late as f64 / 1e3 > LATE_AFTER_US {
            match cause {
                LateCause::Worker => measures.late.worker += 1,
                LateCause::Dependency => measures.late.dependency += 1,
                LateCause::Depth => measures.late.depth += 1,
            }
        }
    }

    fn fail(&mut self, action: &Action, status: RequestStatus) {
        let why = match status {
            // Any NFS status is an answer.
            RequestStatus::Scsi => "rejected by RPC",
            status => status.name(),
        };
        *self.measures.failed.entry(why.to_string()).or_default() += 1;
        let of = self.measures.procedures.entry(action.name());
        of.or_default().failed += 1;
        self.taint(action);
    }

    fn compare(&mut self, index: u32, answer: TargetAnswer) {
        let cause = self.cause(index, answer.status);
        let action = &self.plan.actions[index as usize];
        let measures = &mut self.measures;
        measures.answered += 1;
        let name = action.name();
        let of = measures.procedures.entry(name).or_default();
        let Some(status) = action.status else {
            of.unknown += 1;
            return;
        };
        let moves = matches!(action.procedure, Procedure::Read | Procedure::Write);
        if moves {
            let moved = [action.moved_bytes, answer.moved_bytes.into()];
            measures.moved_bytes[0] += moved[0];
            measures.moved_bytes[1] += moved[1];
            let succeeded = status == Status::OK && answer.status == Status::OK;
            measures.sizes_differ += u64::from(succeeded && moved[0] != moved[1]);
        }
        if answer.status == status {
            of.same += 1;
            return;
        }
        of.differ += 1;
        // Only NFSv4 has locks.
        let traced = NfsVersion::with_session(action.lock().is_some());
        let trace = traced.status_text(status);
        let target = measures.target.status_text(answer.status);
        let difference = (name, trace, target, cause);
        *measures.differences.entry(difference).or_default() += 1;
        self.taint(action);
    }

    /// Returns the names and objects of a call; names are relative to their directories.
    fn places(action: &Action) -> impl Iterator<Item = (u32, u32)> {
        let objects = action.objects;
        let directory = match action.procedure {
            Procedure::Link => objects.other,
            _ => objects.object,
        };
        let new_name = match action.procedure {
            Procedure::Rename => (objects.other, action.new_name),
            _ => (NONE, NONE),
        };
        let object = match action.name {
            NONE => (objects.object, NONE),
            name => (directory, name),
        };
        let all = [
            object,
            new_name,
            (objects.result, NONE),
            (objects.victim, NONE),
        ];
        all.into_iter().filter(|(id, _)| *id != NONE)
    }

    fn taint(&mut self, action: &Action) {
        self.tainted.extend(Self::places(action));
    }

    fn cause(&self, index: u32, status: Status) -> StatusCause {
        let action = &self.plan.actions[index as usize];
        let is_any = |wanted: &[Status]| {
            wanted.contains(&status) || action.status.is_some_and(|traced| wanted.contains(&traced))
        };
        if is_any(&[Status::JUKEBOX]) {
            StatusCause::Busy
        } else if is_any(&[Status::PERM, Status::ACCES]) {
            StatusCause::Permission
        } else if is_any(&[Status::NOTSUPP]) {
            StatusCause::Unsupported
        } else if Self::places(action).any(|place| self.tainted.contains(&place)) {
            StatusCause::Follows
        } else if self.plan.races.contains(&index) {
            StatusCause::Race
        } else {
            StatusCause::Other
        }
    }
}
