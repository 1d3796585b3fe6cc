//! Sends the calls of a plan at their times, with a connection for each client of the trace, and compares the answers.
//! One thread and one ring, like a worker of a replay of block requests.
//!
//! The rule: a call that can't be sent is counted, and no longer delays the calls that wait for it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use brunt_block::{Buf, Completion, Device, DeviceError, Op, Request, Ring, RingConfig};
use brunt_core::{Clock, Histogram, Nanos};
use brunt_nfs::NfsFolder;
use brunt_nfs::device_errors::NfsStatusText;
use brunt_result::replay::LATE_AFTER_US;
use brunt_wire::nfs::v3::{Procedure, Status};

use super::calls::{ReplayCalls, ReplayState, TargetAnswer};
use super::namespace::NONE;
use super::plan::{Action, ReplayActions};
use super::report::{LateCalls, NfsProcedureCalls, StatusCause, StatusDifference};
use super::schedule::{LateCause, NextAction, Schedule};
use super::{NfsReplayError, NfsReplayOptions};
use crate::block::seeded::Pattern;
use crate::nfs::tree::OwnedHandle;
use crate::replay::settings::ReplayTiming;

/// Maximum connections; more clients share them.
pub(super) const CONNECTIONS_MAX: usize = 64;
/// Maximum delay before a stop is noticed.
const LOOK_NANOS: u64 = 50_000_000;
/// Before a call is due, the thread watches the clock instead of sleeping for this long: timers are late.
const SPIN_NANOS: u64 = 200_000;
/// Maximum wait for outstanding calls after an interrupt.
const DRAIN_NANOS: u64 = 10_000_000_000;
/// NFS statuses (RFC 1813, 2.6).
const PERM: Status = Status(1);
const ACCES: Status = Status(13);
const NOTSUPP: Status = Status(10004);

/// Counters and latencies of a run.
#[derive(Debug, Default)]
pub(super) struct RunMeasures {
    pub(super) sent: u64,
    pub(super) answered: u64,
    pub(super) unsent: BTreeMap<String, u64>,
    pub(super) failed: BTreeMap<String, u64>,
    pub(super) procedures: BTreeMap<&'static str, NfsProcedureCalls>,
    differences: BTreeMap<(&'static str, Status, Status, StatusCause), u64>,
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
}

impl RunMeasures {
    /// How much the delay of calls grew from the first to the last, in nanoseconds and as a share of the time between
    /// them.
    pub(super) fn drift(&self) -> Option<(f64, Option<f64>)> {
        let ((first_due, first_sent), (last_due, last_sent)) = self.first.zip(self.last)?;
        let between = |from: Nanos, to: Nanos| to.0 as f64 - from.0 as f64;
        let due = between(first_due, last_due);
        let later = between(first_sent, last_sent) - due;
        Some((later, (due > 0.0).then_some(later / due)))
    }

    pub(super) fn statuses(&self) -> Vec<StatusDifference> {
        let text = |status: &Status| NfsStatusText(*status).to_string();
        let differences = self.differences.iter();
        let mut statuses: Vec<StatusDifference> = differences
            .map(
                |((operation, trace, target, cause), calls)| StatusDifference {
                    operation: (*operation).to_string(),
                    trace: text(trace),
                    target: text(target),
                    cause: *cause,
                    calls: *calls,
                },
            )
            .collect();
        statuses.sort_by_key(|difference| std::cmp::Reverse(difference.calls));
        statuses
    }
}

/// A call in flight.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    due: Nanos,
    sent: Nanos,
}

struct Runner<'p> {
    plan: &'p ReplayActions,
    state: Rc<ReplayState>,
    schedule: Schedule<'p>,
    ring: &'p Ring,
    devices: Vec<Box<dyn Device>>,
    batches: Vec<VecDeque<Request>>,
    in_flight: HashMap<u64, InFlight>,
    measures: RunMeasures,
    /// Objects and names (with their directories) for which a status differed.
    tainted: HashSet<(u32, u32)>,
    is_timed: bool,
    depth: usize,
    seed: u64,
}

/// Sends all calls. `known` are the target's handles of objects that exist.
///
/// # Errors
/// The server can't be reached, or the ring failed.
pub(super) fn run(
    folder: &NfsFolder,
    plan: &Arc<ReplayActions>,
    (objects, known): (usize, &[(u32, OwnedHandle)]),
    options: &NfsReplayOptions,
    is_stopped: &(dyn Fn() -> bool + Sync),
) -> Result<RunMeasures, NfsReplayError> {
    let place = folder.place();
    let limits = (place.read_bytes_max, place.write_bytes_max);
    let as_traced = options.callers.as_traced();
    let state = ReplayState::new(Arc::clone(plan), objects, known, limits, as_traced);
    let state = Rc::new(state);
    let ring = Ring::new(RingConfig::default()).map_err(NfsReplayError::Ring)?;
    let count = plan.clients.len().clamp(1, CONNECTIONS_MAX);
    let open = |_| folder.operations(ReplayCalls(Rc::clone(&state)), &ring, options.depth);
    let devices: Result<Vec<_>, _> = (0..count).map(open).collect();
    let devices = devices.map_err(|error| NfsReplayError::Open(Box::new(error)))?;
    let mut runner = Runner {
        plan,
        state,
        schedule: Schedule::new(plan, options.timing, options.speed),
        ring: &ring,
        batches: devices.iter().map(|_| VecDeque::new()).collect(),
        devices,
        in_flight: HashMap::new(),
        measures: RunMeasures {
            connections: count as u64,
            ..RunMeasures::default()
        },
        tainted: HashSet::new(),
        is_timed: options.timing != ReplayTiming::Depth,
        depth: options.depth as usize,
        seed: options.seed,
    };
    runner.run(is_stopped, options.timing)?;
    Ok(runner.measures)
}

impl Runner<'_> {
    fn run(
        &mut self,
        is_stopped: &(dyn Fn() -> bool + Sync),
        timing: ReplayTiming,
    ) -> Result<(), NfsReplayError> {
        for action in &self.plan.actions {
            let of = self.measures.procedures.entry(action.procedure.name());
            of.or_default().planned += 1;
        }
        let start = Clock::Monotonic.now();
        self.schedule.start(start);
        let mut done: Vec<Completion> = Vec::new();
        let mut drain_until = Nanos::MAX;
        loop {
            let now = Clock::Monotonic.now();
            if drain_until == Nanos::MAX && is_stopped() {
                (self.measures.interrupted, drain_until) = (true, Nanos(now.0 + DRAIN_NANOS));
            }
            let next = match drain_until {
                Nanos::MAX => self.send_due(),
                _ => NextAction::End,
            };
            if next == NextAction::End && self.in_flight.is_empty() || now >= drain_until {
                break;
            }
            for (device, batch) in self.devices.iter_mut().zip(&mut self.batches) {
                device.submit(batch);
            }
            self.wait(next, now)?;
            for device in &mut self.devices {
                device.poll(&mut done);
            }
            let now = Clock::Monotonic.now();
            for completion in done.drain(..) {
                self.completed(completion, now, timing);
            }
        }
        let left = self.schedule.left() + self.in_flight.len() as u64;
        if left > 0 {
            let unsent = &mut self.measures.unsent;
            *unsent.entry("interrupted".into()).or_default() += left;
            self.measures.sent -= self.in_flight.len() as u64;
            for index in self.in_flight.keys() {
                let name = self.plan.actions[*index as usize].procedure.name();
                self.measures.procedures.entry(name).or_default().sent -= 1;
            }
        }
        let nanos = Clock::Monotonic.now().0 - start.0;
        self.measures.seconds = nanos as f64 / 1e9;
        Ok(())
    }

    /// Sends what is due; returns why nothing more is sent now.
    fn send_due(&mut self) -> NextAction {
        loop {
            let now = Clock::Monotonic.now();
            let has_room = self.in_flight.len() < self.depth;
            match self.schedule.next(now, has_room) {
                NextAction::Send { action, due, cause } => self.send(action, due, cause, now),
                other => return other,
            }
        }
    }

    fn send(&mut self, index: u32, due: Nanos, cause: LateCause, now: Nanos) {
        let action = &self.plan.actions[index as usize];
        if !self.state.can_send(action) {
            let why = "no handle, because the call that returns it had a different result";
            *self.measures.unsent.entry(why.into()).or_default() += 1;
            self.taint(action);
            self.schedule.ended(index, now);
            return;
        }
        let (len, is_shortened) = self.state.transfer(action);
        self.measures.shortened += u64::from(is_shortened);
        let (op, buf) = match (action.procedure, len) {
            (_, 0) => (Op::Flush, Buf::empty()),
            (Procedure::Read, len) => (Op::Read, self.ring.pool().take(len as usize)),
            (_, len) => {
                let mut buf = self.ring.pool().take(len as usize);
                let seed = self.seed.wrapping_add(index.into());
                Pattern::Seeded(seed).fill(0, &mut buf[..len as usize]);
                (Op::Write, buf)
            }
        };
        // Taken after the data was generated, which takes time.
        let sent = Clock::Monotonic.now();
        if self.is_timed {
            self.measure_lateness(due, sent, cause);
        }
        self.measures.sent += 1;
        let of = self.measures.procedures.entry(action.procedure.name());
        of.or_default().sent += 1;
        self.in_flight.insert(index.into(), InFlight { due, sent });
        let connection = action.client as usize % self.devices.len();
        self.batches[connection].push_back(Request {
            tag: index.into(),
            op,
            offset: index.into(),
            len: len.into(),
            buf,
            force_unit_access: false,
        });
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

    fn wait(&mut self, next: NextAction, now: Nanos) -> Result<(), NfsReplayError> {
        let deadline = self.devices.iter().map(|device| device.deadline()).min();
        let look = now.0.saturating_add(LOOK_NANOS);
        let mut until = deadline.unwrap_or(Nanos::MAX).0.min(look);
        if let NextAction::At(due) = next {
            until = until.min(due.0.saturating_sub(SPIN_NANOS));
        }
        // Don't wait for a time that has passed.
        let until = if until <= now.0 {
            Nanos(0)
        } else {
            Nanos(until)
        };
        self.ring.enter_for(1, until).map_err(NfsReplayError::Ring)
    }

    fn completed(&mut self, completion: Completion, now: Nanos, timing: ReplayTiming) {
        let index = completion.tag as u32;
        let flight = self.in_flight.remove(&completion.tag);
        let flight = flight.expect("a call ends once");
        let since = match timing {
            ReplayTiming::Trace => flight.due,
            _ => flight.sent,
        };
        self.measures
            .response
            .record(Nanos(now.0.saturating_sub(since.0)));
        let action = &self.plan.actions[index as usize];
        match (self.state.take_answer(index), completion.result) {
            (Some(answer), Ok(())) => self.compare(index, answer),
            (_, result) => self.fail(action, result),
        }
        self.schedule.ended(index, now);
    }

    fn fail(&mut self, action: &Action, result: Result<(), DeviceError>) {
        let why = result.map_or_else(|error| error.to_string(), |()| "no answer".into());
        *self.measures.failed.entry(why).or_default() += 1;
        let of = self.measures.procedures.entry(action.procedure.name());
        of.or_default().failed += 1;
        self.taint(action);
    }

    fn compare(&mut self, index: u32, answer: TargetAnswer) {
        let cause = self.cause(index, answer.status);
        let action = &self.plan.actions[index as usize];
        let measures = &mut self.measures;
        measures.answered += 1;
        let name = action.procedure.name();
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
        let difference = (name, status, answer.status, cause);
        *measures.differences.entry(difference).or_default() += 1;
        self.taint(action);
    }

    /// Names and objects of a call; names are relative to their directories.
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
        } else if is_any(&[PERM, ACCES]) {
            StatusCause::Permission
        } else if is_any(&[NOTSUPP]) {
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
