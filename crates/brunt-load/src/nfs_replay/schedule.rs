//! Which call of a plan is due next, and when. Calls of a client are sent in the order of the trace; a call that has to
//! wait delays only calls of the same client.
//!
//! The rule: no clock and no I/O. A call is handed out once, after everything that it waits for has ended.

use brunt_core::Nanos;

use super::plan::ReplayActions;
use crate::replay::settings::ReplayTiming;

/// Why a call was late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LateCause {
    /// The replay's own thread was busy.
    #[default]
    Worker,
    /// The call waited for another call to complete.
    Dependency,
    /// Too many calls were outstanding.
    Depth,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    /// Send this call, which is due at this time.
    Send {
        action: u32,
        due: Nanos,
        cause: LateCause,
    },
    /// No call is due before this time, unless a call in flight ends.
    At(Nanos),
    /// No call can be sent before one in flight ends.
    AfterCompletion,
    /// All calls have been handed out.
    End,
}

/// The calls of a client.
#[derive(Debug, Default)]
struct Lane {
    actions: Vec<u32>,
    next: usize,
    /// Number of calls that have ended, up to the first one in the order of the trace's replies that has not.
    ended: usize,
    ended_at: Vec<Nanos>,
    cause: LateCause,
}

/// The schedule.
#[derive(Debug)]
pub(super) struct Schedule<'p> {
    plan: &'p ReplayActions,
    timing: ReplayTiming,
    speed: f64,
    start: Nanos,
    /// When a call last ended while no more could be sent.
    full_at: Nanos,
    lanes: Vec<Lane>,
    done: Vec<bool>,
}

impl<'p> Schedule<'p> {
    pub(super) fn new(plan: &'p ReplayActions, timing: ReplayTiming, speed: f64) -> Schedule<'p> {
        let mut lanes: Vec<Lane> = Vec::new();
        lanes.resize_with(plan.clients.len(), Lane::default);
        for (index, action) in plan.actions.iter().enumerate() {
            lanes[action.client as usize].actions.push(index as u32);
        }
        Schedule {
            plan,
            timing,
            speed,
            start: Nanos(0),
            full_at: Nanos(0),
            lanes,
            done: vec![false; plan.actions.len()],
        }
    }

    pub(super) fn start(&mut self, start: Nanos) {
        self.start = start;
    }

    fn scaled(&self, ns: u64) -> u64 {
        (ns as f64 / self.speed) as u64
    }

    /// Returns when the next call of a lane is due; `None` if it waits for earlier calls.
    fn due(&self, lane: &Lane, action: u32, now: Nanos) -> Option<Nanos> {
        let planned = &self.plan.actions[action as usize];
        let by_time = Nanos(self.start.0.saturating_add(self.scaled(planned.start_ns)));
        match (self.timing, planned.ended_before as usize) {
            (ReplayTiming::Trace, _) | (ReplayTiming::Dependency, 0) => Some(by_time),
            (ReplayTiming::Depth, _) => Some(now),
            (ReplayTiming::Dependency, before) => {
                let since = *lane.ended_at.get(before - 1)?;
                let last = self.plan.ends[planned.client as usize][before - 1];
                let ended = self.plan.actions[last as usize].end_ns.unwrap_or(0);
                let think = planned.start_ns.saturating_sub(ended);
                Some(Nanos(since.0.saturating_add(self.scaled(think))))
            }
        }
    }

    /// Finds the lane whose call is due first, among those that don't wait; `Err` if all calls have been handed out.
    /// Records which lanes are late because they wait.
    fn earliest(&mut self, now: Nanos) -> Result<Option<(Nanos, usize)>, NextAction> {
        let mut best: Option<(Nanos, usize)> = None;
        let mut is_over = true;
        for index in 0..self.lanes.len() {
            let lane = &self.lanes[index];
            let Some(action) = lane.actions.get(lane.next).copied() else {
                continue;
            };
            is_over = false;
            let due = self.due(lane, action, now);
            let mut waits = self.plan.waits_of(action).iter();
            let is_held = waits.any(|other| !self.done[*other as usize]);
            match due {
                Some(due) if is_held && due < now => {
                    self.lanes[index].cause = LateCause::Dependency;
                }
                Some(due) if !is_held && best.is_none_or(|(earliest, _)| due < earliest) => {
                    best = Some((due, index));
                }
                _ => {}
            }
        }
        match is_over {
            true => Err(NextAction::End),
            false => Ok(best),
        }
    }

    /// Records why due calls are late, just before a call ends. `is_full` if no more calls could be sent.
    pub(super) fn note_late(&mut self, now: Nanos, is_full: bool) {
        if is_full {
            self.full_at = now;
        }
        let _ = self.earliest(now);
    }

    /// Returns what to do next.
    pub(super) fn next(&mut self, now: Nanos) -> NextAction {
        let best = match self.earliest(now) {
            Ok(best) => best,
            Err(end) => return end,
        };
        match best {
            None => NextAction::AfterCompletion,
            Some((due, _)) if due > now => NextAction::At(due),
            Some((due, index)) => {
                let lane = &mut self.lanes[index];
                let action = lane.actions[lane.next];
                lane.next += 1;
                let cause = match std::mem::take(&mut lane.cause) {
                    LateCause::Worker if due <= self.full_at => LateCause::Depth,
                    cause => cause,
                };
                NextAction::Send { action, due, cause }
            }
        }
    }

    /// Records that a call has ended, or won't be sent.
    pub(super) fn ended(&mut self, action: u32, at: Nanos) {
        self.done[action as usize] = true;
        let client = self.plan.actions[action as usize].client as usize;
        let (lane, ends) = (&mut self.lanes[client], &self.plan.ends[client]);
        while let Some(next) = ends.get(lane.ended)
            && self.done[*next as usize]
        {
            lane.ended += 1;
            lane.ended_at.push(at);
        }
    }

    /// Returns the number of calls that were not handed out.
    pub(super) fn left(&self) -> u64 {
        let left = self.lanes.iter().map(|lane| lane.actions.len() - lane.next);
        left.sum::<usize>() as u64
    }
}
