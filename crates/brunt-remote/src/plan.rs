//! Decides how a part gets to a store: the next step, when to retry, when the part is settled. [`crate::mover`] carries
//! out the steps; this module uses no files, stores or clocks.
//!
//! ```text
//!           ┌── nothing there ──► Send ──stored──┐
//!   Look ───┤                       │            ▼
//!     ▲     │                       └─exists──► Look        same ──► Delete ──► settled
//!     │     └── something there ────────────► Compare ──────┤
//!     │                                                     different ──► refused
//!     └── no answer, at any step: the outcome is unknown, so the store is asked again
//! ```
//!
//! An object that was just sent is looked up and compared like any other. So a part sent before a crash takes the same
//! path as one sent a moment ago, and the move can stop in any state.
//!
//! The one rule: [`MoveStep::Delete`] comes only after [`StepOutcome::Same`].

use std::time::Duration;

use brunt_core::Nanos;

/// The first wait after a missing answer; each further wait is twice as long.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// The longest wait.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The step for the current part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// Look up the part's key in the store.
    Look,
    /// Send the part, unless the object exists.
    Send,
    /// Find out whether the object has the same bytes.
    Compare,
    /// Delete the local file.
    Delete,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// Look: no such object.
    Absent,
    /// Look: the object exists. Send: it already existed.
    Present,
    /// Send: the store accepted it.
    Stored,
    /// Compare: the same bytes.
    Same,
    /// Compare: different bytes.
    Different,
    /// Delete: the file is gone.
    Deleted,
    /// Any step: no answer, or an answer that may change later.
    NoAnswer,
    /// Any step: the local file is gone or has changed since it was examined.
    Changed,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Carry out this step and report its outcome.
    Do(MoveStep),
    /// Wait until this time: the store did not answer.
    WaitUntil(Nanos),
    /// The part is finished.
    End(Ending),
}

/// How a part ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The store has the part and has proven that.
    Settled {
        /// Whether it was sent now rather than found in the store.
        sent: bool,
    },
    /// The object of the same name has different bytes. The local file is unchanged.
    Refused,
    /// The local file was deleted or replaced before the store had it.
    Withdrawn,
}

/// The progress of one part.
#[derive(Clone, Debug)]
pub struct PartPlan {
    state: State,
    /// Whether to keep the local file.
    keeps_local: bool,
    sent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    To(MoveStep),
    Ended(Ending),
}

impl PartPlan {
    /// The plan for a part whose file exists; nothing else is known. With `keeps_local`, the local file isn't deleted.
    pub fn new(keeps_local: bool) -> PartPlan {
        PartPlan {
            state: State::To(MoveStep::Look),
            keeps_local,
            sent: false,
        }
    }

    /// What to do at `now`.
    pub fn next(&self, patience: &Patience, now: Nanos) -> NextStep {
        match (self.state, patience.until) {
            (State::Ended(ending), _) => NextStep::End(ending),
            (State::To(_), Some(until)) if now < until => NextStep::WaitUntil(until),
            (State::To(step), _) => NextStep::Do(step),
        }
    }

    /// Handles the outcome of the step that [`PartPlan::next`] returned.
    ///
    /// # Panics
    /// The step cannot have this outcome.
    pub fn on(&mut self, outcome: StepOutcome, patience: &mut Patience, now: Nanos) {
        let State::To(step) = self.state else {
            panic!("{outcome:?} for a part that is done")
        };
        let settled = State::Ended(Ending::Settled {
            sent: self.sent || outcome == StepOutcome::Stored,
        });
        self.state = match (step, outcome) {
            (MoveStep::Look, StepOutcome::Absent) => State::To(MoveStep::Send),
            (MoveStep::Look, StepOutcome::Present) => State::To(MoveStep::Compare),
            (MoveStep::Send, StepOutcome::Stored | StepOutcome::Present) => {
                State::To(MoveStep::Look)
            }
            (MoveStep::Compare, StepOutcome::Same) if self.keeps_local => settled,
            (MoveStep::Compare, StepOutcome::Same) => State::To(MoveStep::Delete),
            (MoveStep::Compare, StepOutcome::Different) => State::Ended(Ending::Refused),
            (MoveStep::Delete, StepOutcome::Deleted) => settled,
            // The object was compared with a file that no longer exists.
            (_, StepOutcome::Changed) => State::Ended(Ending::Withdrawn),
            (_, StepOutcome::NoAnswer) => State::To(MoveStep::Look),
            (step, outcome) => panic!("{step:?} cannot end with {outcome:?}"),
        };
        self.sent |= outcome == StepOutcome::Stored;
        match outcome {
            StepOutcome::NoAnswer => patience.on_no_answer(now),
            StepOutcome::Changed | StepOutcome::Deleted => {}
            _ => patience.on_answer(),
        }
    }
}

/// How long to wait for a store that didn't answer. Shared by all parts, because they use the same link.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    until: Option<Nanos>,
    wait: Duration,
    /// Steps without an answer; each is retried.
    pub retries: u64,
    /// When the store stopped answering.
    pub silent_since: Option<Nanos>,
}

impl Patience {
    /// Records that a step had no answer at `now`.
    pub fn on_no_answer(&mut self, now: Nanos) {
        self.wait = (self.wait * 2).clamp(WAIT_MIN, WAIT_MAX);
        self.until = Some(Nanos(now.0.saturating_add(self.wait.as_nanos() as u64)));
        self.retries += 1;
        self.silent_since.get_or_insert(now);
    }

    /// Records that the store answered.
    pub fn on_answer(&mut self) {
        (self.until, self.wait, self.silent_since) = (None, Duration::ZERO, None);
    }

    /// When the store may be asked again; `None` means now.
    pub fn until(&self, now: Nanos) -> Option<Nanos> {
        self.until.filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERS: [StepOutcome; 8] = [
        StepOutcome::Absent,
        StepOutcome::Present,
        StepOutcome::Stored,
        StepOutcome::Same,
        StepOutcome::Different,
        StepOutcome::Deleted,
        StepOutcome::NoAnswer,
        StepOutcome::Changed,
    ];

    /// A local file and an object, reduced to what a plan can distinguish.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct World {
        local: bool,
        /// `None` if there is no object, otherwise whether it has the part's bytes.
        object: Option<bool>,
    }

    impl World {
        /// Carries out a step; `heard` says whether its answer arrives.
        fn carry_out(&mut self, step: MoveStep, heard: bool) -> StepOutcome {
            let outcome = match step {
                MoveStep::Look if self.object.is_some() => StepOutcome::Present,
                MoveStep::Look => StepOutcome::Absent,
                MoveStep::Send if self.object.is_some() => StepOutcome::Present,
                MoveStep::Send => {
                    self.object = Some(true);
                    StepOutcome::Stored
                }
                MoveStep::Compare if self.object == Some(true) => StepOutcome::Same,
                MoveStep::Compare => StepOutcome::Different,
                MoveStep::Delete => {
                    assert_eq!(self.object, Some(true), "deleted before the store had it");
                    self.local = false;
                    return StepOutcome::Deleted;
                }
            };
            if heard {
                outcome
            } else {
                StepOutcome::NoAnswer
            }
        }
    }

    /// Runs to the end or for `steps_max` steps; the answers to steps whose bit in `lost` is set are lost.
    fn run(world: &mut World, keeps_local: bool, steps_max: usize, lost: u32) -> Option<Ending> {
        let (mut plan, mut patience, mut now) =
            (PartPlan::new(keeps_local), Patience::default(), Nanos(0));
        let mut steps = 0;
        while steps < steps_max {
            match plan.next(&patience, now) {
                NextStep::End(ending) => return Some(ending),
                NextStep::WaitUntil(until) => now = until,
                NextStep::Do(step) => {
                    let heard = steps >= 32 || lost >> steps & 1 == 0;
                    let outcome = world.carry_out(step, heard);
                    plan.on(outcome, &mut patience, now);
                    steps += 1;
                }
            }
            let is_safe = world.local || world.object == Some(true);
            assert!(is_safe, "lost: {world:?}");
        }
        None
    }

    /// A move is killed after each step, with any answers lost before and after. The remaining state is consistent, and
    /// the next attempt settles the part.
    #[test]
    fn a_move_killed_at_any_step_loses_nothing_and_is_settled_by_the_next() {
        for keeps_local in [false, true] {
            for (killed_after, lost) in
                (0..8).flat_map(|steps| (0..256).map(move |lost| (steps, lost)))
            {
                let mut world = World {
                    local: true,
                    object: None,
                };
                let first = run(&mut world, keeps_local, killed_after, lost);
                let second = if world.local {
                    run(&mut world, keeps_local, 64, lost.rotate_left(3))
                } else {
                    first
                };
                let settled = matches!(second, Some(Ending::Settled { .. })) || !world.local;
                assert!(
                    settled,
                    "killed after {killed_after}, lost {lost:b}: {second:?}"
                );
                assert_eq!(
                    world,
                    World {
                        local: keeps_local,
                        object: Some(true)
                    }
                );
            }
        }
    }

    /// An object with different bytes ends the move, regardless of what is lost; neither side changes.
    #[test]
    fn an_object_with_other_bytes_is_refused_and_stays() {
        for lost in 0..256 {
            let before = World {
                local: true,
                object: Some(false),
            };
            let mut world = before;
            assert_eq!(run(&mut world, false, 64, lost), Some(Ending::Refused));
            assert_eq!(world, before);
        }
    }

    /// Each step accepts its possible outcomes, and no others.
    #[test]
    fn a_step_has_its_own_outcomes() {
        let at = |step| PartPlan {
            state: State::To(step),
            keeps_local: false,
            sent: false,
        };
        for (step, own) in [
            (
                MoveStep::Look,
                &[StepOutcome::Absent, StepOutcome::Present][..],
            ),
            (MoveStep::Send, &[StepOutcome::Stored, StepOutcome::Present]),
            (
                MoveStep::Compare,
                &[StepOutcome::Same, StepOutcome::Different],
            ),
            (MoveStep::Delete, &[StepOutcome::Deleted]),
        ] {
            for outcome in ANSWERS {
                let taken = std::panic::catch_unwind(|| {
                    at(step).on(outcome, &mut Patience::default(), Nanos(0));
                });
                let is_own = own.contains(&outcome)
                    || matches!(outcome, StepOutcome::NoAnswer | StepOutcome::Changed);
                assert_eq!(taken.is_ok(), is_own, "{step:?} with {outcome:?}");
            }
        }
    }

    #[test]
    fn waits_grow_until_the_store_answers() {
        let mut patience = Patience::default();
        let mut waits = Vec::new();
        for _ in 0..8 {
            patience.on_no_answer(Nanos(0));
            waits.push(patience.until(Nanos(0)).unwrap().0 / 1_000_000_000);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(
            (patience.retries, patience.silent_since),
            (8, Some(Nanos(0)))
        );
        patience.on_answer();
        assert_eq!(
            (patience.until(Nanos(0)), patience.silent_since),
            (None, None)
        );
        patience.on_no_answer(Nanos(0));
        assert_eq!(patience.until(Nanos(0)), Some(Nanos(1_000_000_000)));
    }
}
