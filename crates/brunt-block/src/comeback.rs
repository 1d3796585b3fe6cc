//! The way back to a lost connection, as every device behind a network goes it: at once (or when the other side asks
//! for it), then every 100 ms, doubling to 2 s, for as long as its URL says. Owned by a device's link, which asks for
//! the next step at each poll.
//!
//! The one rule: connecting happens on another thread, which hands over what it made and rings a bell; a device's
//! thread never waits.

use std::collections::VecDeque;
use std::fmt::{self, Debug, Display};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use crate::bell::Bell;
use crate::device::Request;
use crate::ring::Ring;

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Why a link could not be made.
pub trait ReconnectError: Display + Send + 'static {
    /// Whether trying again later may help.
    fn is_transient(&self) -> bool;
}

/// A link that is made again when it was lost. Protocols say how they take up their work and end it; the way is the same
/// for all of them, and so is which of several links a request goes to.
pub trait Returning {
    /// What a thread brings that connected.
    type Came: Send + 'static;
    /// Why it could not.
    type Error: ReconnectError;

    /// How far it is on its way.
    fn comeback(&self) -> &Comeback<Self::Came, Self::Error>;

    /// The same, to go on.
    fn comeback_mut(&mut self) -> &mut Comeback<Self::Came, Self::Error>;

    /// What it leads to, for people.
    fn name(&self) -> String;

    /// Why what came leads to something else than before, if it does; so would any other.
    fn changed(&self, came: &Self::Came) -> Option<String>;

    /// Takes up its work on what came.
    ///
    /// # Errors
    /// The kernel's; another attempt may do better.
    fn bring_up(&mut self, came: Self::Came, now: Nanos) -> io::Result<()>;

    /// Ends all requests: the link will not be there again.
    fn fail_all(&mut self);

    /// How many more requests it takes.
    fn room(&self) -> usize;

    /// How many requests its session has.
    fn in_session(&self) -> u32;

    /// It was lost and has all its buffers back: makes the first attempt after `wait`, unless none is wanted.
    fn start_over(&mut self, why: &str, wait: Duration, now: Nanos) {
        let why = format!("{}: {why}", self.name());
        self.comeback_mut().lost(why, wait, now);
        match self.comeback().is_dead() {
            true => self.fail_all(),
            false => self.come_back(now),
        }
    }

    /// The next step of the way.
    fn come_back(&mut self, now: Nanos) {
        match self.comeback_mut().step(now) {
            Step::Wait => {}
            Step::Came(came) => match self.changed(&came) {
                None => match self.bring_up(came, now) {
                    Ok(()) => self.comeback_mut().arrived(),
                    Err(error) => self.comeback_mut().try_later(error.to_string(), now),
                },
                Some(what) => {
                    let why = format!("{}: {what}", self.name());
                    self.comeback_mut().give_up(Some(why));
                }
            },
            Step::Failed(error) if error.is_transient() => {
                self.comeback_mut().try_later(error.to_string(), now);
            }
            Step::Failed(error) => self.comeback_mut().give_up(Some(error.to_string())),
        }
        if self.comeback().is_dead() {
            self.fail_all();
        }
    }
}

/// Which link a request goes to: of those with room the one with the fewest requests, and one that is being made again
/// only when all are.
#[inline]
fn least_busy<L: Returning>(links: &mut [L]) -> Option<&mut L> {
    let with_room = links.iter_mut().filter(|link| link.room() > 0);
    with_room.min_by_key(|link| (link.comeback().rank(), link.in_session()))
}

/// Hands the requests of a batch to the links that should have them, in order; what finds no room stays in the batch.
#[inline]
pub fn hand_out<L: Returning>(
    links: &mut [L],
    batch: &mut VecDeque<Request>,
    mut submit: impl FnMut(&mut L, Request),
) {
    while let Some(request) = batch.pop_front() {
        let Some(link) = least_busy(links) else {
            batch.push_front(request);
            break;
        };
        submit(link, request);
    }
}

/// Whether a link is there, and how it comes back: `T` is what a thread brings, `E` why it cannot.
pub struct Comeback<T, E> {
    state: State<T, E>,
    /// For how long to try.
    limit: Duration,
    /// How long one attempt may take.
    timeout: Duration,
    /// Where a bell rings when an attempt has come to something.
    ring: Ring,
    connect: Arc<Connect<T, E>>,
    trouble: Option<String>,
    reconnects: u64,
}

type Connect<T, E> = dyn Fn(Duration) -> Result<T, E> + Send + Sync;

impl<T, E> Debug for Comeback<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Comeback")
            .field("trouble", &self.trouble)
            .finish_non_exhaustive()
    }
}

enum State<T, E> {
    Up,
    /// A thread is connecting.
    Connecting {
        answer: Receiver<Result<T, E>>,
        /// None if there was no descriptor left: the answer is seen at the deadline then.
        bell: Option<Bell>,
        lost: Nanos,
        backoff: Duration,
    },
    /// The next attempt is due at a time.
    Waiting {
        until: Nanos,
        lost: Nanos,
        backoff: Duration,
    },
    Dead,
}

/// What [`Comeback::step`] came to.
#[derive(Debug)]
enum Step<T, E> {
    /// Nothing new, or the time is over.
    Wait,
    /// A connection.
    Came(T),
    /// The attempt failed.
    Failed(E),
}

impl<T: Send + 'static, E: Send + 'static> Comeback<T, E> {
    /// A link that is up. When it is lost it may try for `limit`; zero: never. `connect` runs on its own thread and is
    /// told how long it may take, at most `timeout`.
    pub fn up(
        limit: Duration,
        timeout: Duration,
        ring: &Ring,
        connect: impl Fn(Duration) -> Result<T, E> + Send + Sync + 'static,
    ) -> Comeback<T, E> {
        let (ring, connect) = (ring.clone(), Arc::new(connect));
        Comeback {
            state: State::Up,
            limit,
            timeout,
            ring,
            connect,
            trouble: None,
            reconnects: 0,
        }
    }

    /// Why it was lost, or did not come back, the last time.
    pub fn trouble(&self) -> Option<&String> {
        self.trouble.as_ref()
    }

    /// How often it came back.
    pub fn reconnects(&self) -> u64 {
        self.reconnects
    }

    /// Whether it is there.
    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up)
    }

    /// Whether it will never be there again.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, State::Dead)
    }

    /// Which of several to prefer: one that works, one that will, none.
    pub fn rank(&self) -> u8 {
        match self.state {
            State::Up => 0,
            State::Connecting { .. } | State::Waiting { .. } => 1,
            State::Dead => 2,
        }
    }

    /// When [`Returning::come_back`] has something to do.
    pub fn deadline(&self) -> Nanos {
        match self.state {
            State::Up | State::Dead => Nanos::MAX,
            // The thread rings the bell; this is for where there is none.
            State::Connecting { .. } => Clock::Monotonic.now().after(BACKOFF_MIN),
            State::Waiting { until, .. } => until,
        }
    }

    /// It was lost; the first attempt is due after `wait`. It is dead at once where no attempt is wanted.
    fn lost(&mut self, why: String, wait: Duration, now: Nanos) {
        self.trouble = Some(why);
        self.state = match self.limit.is_zero() {
            true => State::Dead,
            false => State::Waiting {
                until: now.after(wait),
                lost: now,
                backoff: BACKOFF_MIN,
            },
        };
    }

    /// The next step. It is dead when the time is over.
    fn step(&mut self, now: Nanos) -> Step<T, E> {
        match &mut self.state {
            State::Waiting {
                until,
                lost,
                backoff,
            } if now >= *until => {
                let (lost, backoff) = (*lost, *backoff);
                let left = lost.after(self.limit).since(now);
                if left.is_zero() {
                    self.give_up(None);
                    return Step::Wait;
                }
                let (sender, answer) = channel();
                // Not the ring's own waker: nobody but a target's driver asks whether that was called, and a ring that was
                // woken never sleeps until somebody does.
                let bell = Bell::new(&self.ring).ok();
                let (connect, waker) = (Arc::clone(&self.connect), bell.as_ref().map(Bell::waker));
                let time = self.timeout.min(left);
                std::thread::spawn(move || {
                    // The device may be gone by then; then so is the receiver.
                    let _ = sender.send(connect(time));
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                });
                self.state = State::Connecting {
                    answer,
                    bell,
                    lost,
                    backoff,
                };
                Step::Wait
            }
            State::Connecting { answer, bell, .. } => {
                // Before the answer is looked for, which is there before it rings.
                if let Some(bell) = bell {
                    bell.take();
                }
                match answer.try_recv() {
                    Ok(Ok(came)) => Step::Came(came),
                    Ok(Err(error)) => Step::Failed(error),
                    Err(TryRecvError::Empty) => Step::Wait,
                    Err(TryRecvError::Disconnected) => {
                        self.give_up(None);
                        Step::Wait
                    }
                }
            }
            _ => Step::Wait,
        }
    }

    /// The connection that came is in use.
    fn arrived(&mut self) {
        self.state = State::Up;
        self.reconnects += 1;
    }

    /// The attempt came to nothing; another may. It is dead when the time is over.
    fn try_later(&mut self, why: String, now: Nanos) {
        self.trouble = Some(why);
        let State::Connecting { lost, backoff, .. } = self.state else {
            panic!("an attempt is under way when it fails");
        };
        self.state = match now >= lost.after(self.limit) {
            true => State::Dead,
            false => {
                let backoff_next = (2 * backoff).min(BACKOFF_MAX);
                State::Waiting {
                    until: now.after(backoff),
                    lost,
                    backoff: backoff_next,
                }
            }
        };
    }

    /// No attempt will help, or the time is over.
    fn give_up(&mut self, why: Option<String>) {
        self.trouble = why.or(self.trouble.take());
        self.state = State::Dead;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ring, RingConfig};

    fn at(time: Duration) -> Nanos {
        Nanos(0).after(time)
    }

    fn comeback(
        ring: &Ring,
        limit: Duration,
        outcome: Result<u32, &'static str>,
    ) -> Comeback<u32, &'static str> {
        Comeback::up(limit, Duration::from_secs(9), ring, move |_| outcome)
    }

    /// Attempts follow one another with growing pauses until the time is over; one that succeeds ends it.
    #[test]
    fn attempts_until_the_time_is_over() {
        let ring = Ring::new(RingConfig::default()).unwrap();
        let mut link = comeback(&ring, Duration::from_secs(1), Err("no"));
        assert_eq!(
            (link.is_up(), link.rank(), link.deadline()),
            (true, 0, Nanos::MAX)
        );
        let step = |link: &mut Comeback<u32, &'static str>, now: Nanos| loop {
            match link.step(now) {
                Step::Wait if matches!(link.state, State::Connecting { .. }) => {
                    ring.enter(link.deadline()).unwrap();
                }
                other => break other,
            }
        };
        link.lost("cut".into(), Duration::from_millis(10), at(Duration::ZERO));
        assert!(matches!(
            step(&mut link, at(Duration::from_millis(9))),
            Step::Wait
        ));
        let mut now = at(Duration::from_millis(10));
        let mut pauses = Vec::new();
        while !link.is_dead() {
            match step(&mut link, now) {
                Step::Failed("no") => link.try_later("no".into(), now),
                Step::Wait if link.is_dead() => break,
                other => panic!("{other:?}"),
            }
            pauses.push(link.deadline().since(now).as_millis());
            now = link.deadline();
        }
        assert_eq!(pauses, [100, 200, 400, 800]);
        assert!(link.is_dead() && link.rank() == 2);

        let mut link = comeback(&ring, Duration::from_secs(1), Ok(7));
        link.lost("cut".into(), Duration::ZERO, now);
        assert!(matches!(step(&mut link, now), Step::Came(7)));
        link.arrived();
        assert!(link.is_up());
        assert!(
            !ring.take_woken(),
            "a worker's ring could never sleep again"
        );
        let mut never = comeback(&ring, Duration::ZERO, Ok(7));
        never.lost("cut".into(), Duration::ZERO, now);
        assert!(never.is_dead(), "no attempt is wanted");
    }
}
