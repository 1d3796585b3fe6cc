//! Reconnects a lost link, in the same way for all networked devices: at once (or when the peer asks for it), then
//! after 100 ms, doubling up to 2 s, until the limit in the device's URL. Owned by a device's link, which requests the
//! next step at each poll.
//!
//! The one rule: another thread connects, delivers its result and rings a bell; a device's thread never waits.

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

/// Why a connection attempt failed.
pub trait ReconnectError: Display + Send + 'static {
    /// Whether another attempt may succeed.
    fn is_transient(&self) -> bool;
}

/// A link that reconnects after it is lost. Protocols implement how a link resumes its work and how it ends; all share
/// the reconnect schedule and the choice among several links.
pub trait Reconnecting {
    /// The result of a successful attempt.
    type Connection: Send + 'static;
    /// Why an attempt failed.
    type Error: ReconnectError;

    /// The reconnect state.
    fn reconnect(&self) -> &ReconnectState<Self::Connection, Self::Error>;

    /// The reconnect state, mutable.
    fn reconnect_mut(&mut self) -> &mut ReconnectState<Self::Connection, Self::Error>;

    /// The link's destination, for messages.
    fn name(&self) -> String;

    /// If the new connection leads to a different device than before: how that device differs. If so, the link gives
    /// up, because any further attempt would lead there too.
    fn changed(&self, connection: &Self::Connection) -> Option<String>;

    /// Resumes work on the new connection.
    ///
    /// # Errors
    /// A system call fails; another attempt may succeed.
    fn bring_up(&mut self, connection: Self::Connection, now: Nanos) -> io::Result<()>;

    /// Fails all requests: the link will not come back.
    fn fail_all(&mut self);

    /// Number of further requests that the link accepts.
    fn room(&self) -> usize;

    /// Number of requests in the link's session.
    fn in_session(&self) -> u32;

    /// Call this when the link is lost and all its buffers have been returned. Makes the first attempt after `wait`, or
    /// fails all requests if reconnecting is disabled.
    fn start_reconnecting(&mut self, why: &str, wait: Duration, now: Nanos) {
        let why = format!("{}: {why}", self.name());
        self.reconnect_mut().lost(why, wait, now);
        match self.reconnect().is_dead() {
            true => self.fail_all(),
            false => self.continue_reconnecting(now),
        }
    }

    /// Takes the next reconnection step.
    fn continue_reconnecting(&mut self, now: Nanos) {
        match self.reconnect_mut().step(now) {
            Step::Wait => {}
            Step::Connected(connection) => match self.changed(&connection) {
                None => match self.bring_up(connection, now) {
                    Ok(()) => self.reconnect_mut().arrived(),
                    Err(error) => self.reconnect_mut().try_later(error.to_string(), now),
                },
                Some(what) => {
                    let why = format!("{}: {what}", self.name());
                    self.reconnect_mut().give_up(Some(why));
                }
            },
            Step::Failed(error) if error.is_transient() => {
                self.reconnect_mut().try_later(error.to_string(), now);
            }
            Step::Failed(error) => self.reconnect_mut().give_up(Some(error.to_string())),
        }
        if self.reconnect().is_dead() {
            self.fail_all();
        }
    }
}

/// The link for the next request: among those with room, the one with the fewest requests. A reconnecting link is
/// chosen only if none is up.
#[inline]
fn least_busy<L: Reconnecting>(links: &mut [L]) -> Option<&mut L> {
    let with_room = links.iter_mut().filter(|link| link.room() > 0);
    with_room.min_by_key(|link| (link.reconnect().rank(), link.in_session()))
}

/// Distributes the requests of a batch over the links, in order; requests that don't fit stay in the batch.
#[inline]
pub fn hand_out<L: Reconnecting>(
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

/// The state of a link and its reconnection: an attempt delivers a `T` or fails with an `E`.
pub struct ReconnectState<T, E> {
    state: State<T, E>,
    /// How long to keep trying.
    limit: Duration,
    /// Time limit of one attempt.
    timeout: Duration,
    /// When an attempt ends, a bell ends the wait of this ring.
    ring: Ring,
    connect: Arc<Connect<T, E>>,
    trouble: Option<String>,
    reconnects: u64,
}

type Connect<T, E> = dyn Fn(Duration) -> Result<T, E> + Send + Sync;

impl<T, E> Debug for ReconnectState<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReconnectState")
            .field("trouble", &self.trouble)
            .finish_non_exhaustive()
    }
}

enum State<T, E> {
    Up,
    /// A thread is connecting.
    Connecting {
        answer: Receiver<Result<T, E>>,
        /// `None` if no descriptor was available: the answer is then picked up at the next deadline.
        bell: Option<Bell>,
        lost: Nanos,
        backoff: Duration,
    },
    /// The next attempt starts at `until`.
    Waiting {
        until: Nanos,
        lost: Nanos,
        backoff: Duration,
    },
    Dead,
}

/// The result of [`ReconnectState::step`].
#[derive(Debug)]
enum Step<T, E> {
    /// Nothing has changed, or the time limit has passed.
    Wait,
    /// A new connection.
    Connected(T),
    /// The attempt failed.
    Failed(E),
}

impl<T: Send + 'static, E: Send + 'static> ReconnectState<T, E> {
    /// A link that is up. When it is lost, it tries to reconnect for `limit`; zero disables reconnecting. `connect`
    /// runs on its own thread and is passed its time limit, at most `timeout`.
    pub fn up(
        limit: Duration,
        timeout: Duration,
        ring: &Ring,
        connect: impl Fn(Duration) -> Result<T, E> + Send + Sync + 'static,
    ) -> ReconnectState<T, E> {
        let (ring, connect) = (ring.clone(), Arc::new(connect));
        ReconnectState {
            state: State::Up,
            limit,
            timeout,
            ring,
            connect,
            trouble: None,
            reconnects: 0,
        }
    }

    /// Why the link was last lost, or why the last attempt failed.
    pub fn trouble(&self) -> Option<&String> {
        self.trouble.as_ref()
    }

    /// Number of successful reconnects.
    pub fn reconnects(&self) -> u64 {
        self.reconnects
    }

    /// Whether the link is up.
    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up)
    }

    /// Whether the link is lost permanently.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, State::Dead)
    }

    /// Preference among several links, lowest first: up, reconnecting, dead.
    pub fn rank(&self) -> u8 {
        match self.state {
            State::Up => 0,
            State::Connecting { .. } | State::Waiting { .. } => 1,
            State::Dead => 2,
        }
    }

    /// When [`Reconnecting::continue_reconnecting`] has to be called next.
    pub fn deadline(&self) -> Nanos {
        match self.state {
            State::Up | State::Dead => Nanos::MAX,
            // The bell ends the wait; this deadline is for a link without one.
            State::Connecting { .. } => Clock::Monotonic.now().after(BACKOFF_MIN),
            State::Waiting { until, .. } => until,
        }
    }

    /// The link was lost: the first attempt is due after `wait`. If reconnecting is disabled, the link is dead at once.
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

    /// Takes the next step. The link is dead once its time limit has passed.
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
                // Not the ring's own waker: only a target's driver clears that one, and a woken ring doesn't sleep
                // until its waker is cleared.
                let bell = Bell::new(&self.ring).ok();
                let (connect, waker) = (Arc::clone(&self.connect), bell.as_ref().map(Bell::waker));
                let time = self.timeout.min(left);
                std::thread::spawn(move || {
                    // The device, and with it the receiver, may already be gone.
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
                // Clear the bell before checking for the answer: the answer is sent before the bell rings, so none is
                // missed.
                if let Some(bell) = bell {
                    bell.take();
                }
                match answer.try_recv() {
                    Ok(Ok(connection)) => Step::Connected(connection),
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

    /// The new connection is in use.
    fn arrived(&mut self) {
        self.state = State::Up;
        self.reconnects += 1;
    }

    /// The attempt failed; schedules another one. The link is dead once its time limit has passed.
    fn try_later(&mut self, why: String, now: Nanos) {
        self.trouble = Some(why);
        let State::Connecting { lost, backoff, .. } = self.state else {
            panic!("only attempts that have begun fail");
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

    /// Gives up: no further attempt would help, or the time limit has passed.
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

    fn reconnect(
        ring: &Ring,
        limit: Duration,
        outcome: Result<u32, &'static str>,
    ) -> ReconnectState<u32, &'static str> {
        ReconnectState::up(limit, Duration::from_secs(9), ring, move |_| outcome)
    }

    /// Attempts follow one another with increasing pauses until the time limit; a success ends them.
    #[test]
    fn attempts_continue_until_the_time_limit() {
        let ring = Ring::new(RingConfig::default()).unwrap();
        let mut link = reconnect(&ring, Duration::from_secs(1), Err("no"));
        assert_eq!(
            (link.is_up(), link.rank(), link.deadline()),
            (true, 0, Nanos::MAX)
        );
        let step = |link: &mut ReconnectState<u32, &'static str>, now: Nanos| loop {
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

        let mut link = reconnect(&ring, Duration::from_secs(1), Ok(7));
        link.lost("cut".into(), Duration::ZERO, now);
        assert!(matches!(step(&mut link, now), Step::Connected(7)));
        link.arrived();
        assert!(link.is_up());
        assert!(
            !ring.take_woken(),
            "a worker's ring could never sleep again"
        );
        let mut never = reconnect(&ring, Duration::ZERO, Ok(7));
        never.lost("cut".into(), Duration::ZERO, now);
        assert!(never.is_dead(), "no attempt is wanted");
    }
}
