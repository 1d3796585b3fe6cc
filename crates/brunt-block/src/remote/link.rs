//! A connection on the ring, its session, which outlives it, and reconnection. Driven by the device.
//!
//! The one rule: the protocol's own functions move bytes between channel and session; when either fails, all buffers
//! are returned and the session waits.

use std::fmt::{self, Debug};
use std::io;
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use super::protocol::{RemoteChannel, RemoteProtocol, RemoteSession};
use crate::{Completion, DeviceError, Health, Lent, ReconnectState, Reconnecting, Request, Ring};

/// What is needed to open a link.
#[derive(Debug)]
pub struct Opening<P: RemoteProtocol> {
    /// The protocol's driver.
    pub protocol: P,
    /// A session without a connection.
    pub session: P::Session,
    /// Maximum concurrent tasks of the session.
    pub depth: u32,
    /// An established connection.
    pub connection: P::Connection,
    /// Number of failed attempts before the connection was established.
    pub connect_retries: u32,
    /// Why the last failed attempt failed.
    pub connect_trouble: Option<String>,
}

/// A connection and its session.
pub struct RemoteLink<P: RemoteProtocol> {
    protocol: P,
    session: P::Session,
    channel: Option<P::Channel>,
    /// For each task: where its data is while the channel holds it.
    lent: Vec<Option<Lent>>,
    /// Completed tasks whose data is still being sent.
    stuck: Vec<u16>,
    /// Requests that need no server, that no server would accept, or that arrived after the link gave up.
    at_once: Vec<Completion>,
    reconnect: ReconnectState<P::Connection, P::Error>,
    ring: Ring,
    connect_retries: u64,
    connect_trouble: Option<String>,
}

impl<P: RemoteProtocol> Debug for RemoteLink<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.protocol.name();
        f.debug_struct("RemoteLink")
            .field("name", &name)
            .finish_non_exhaustive()
    }
}

impl<P: RemoteProtocol> RemoteLink<P> {
    /// A link on an established connection; `reconnect` restores it after a loss.
    ///
    /// # Errors
    /// The socket cannot be set up.
    pub fn new(
        opening: Opening<P>,
        reconnect: ReconnectState<P::Connection, P::Error>,
        ring: &Ring,
    ) -> io::Result<RemoteLink<P>> {
        let Opening {
            mut protocol,
            mut session,
            depth,
            connection,
            connect_retries,
            connect_trouble,
        } = opening;
        let channel = bring_up(
            &mut protocol,
            &mut session,
            connection,
            ring,
            Clock::Monotonic.now(),
        )?;
        Ok(RemoteLink {
            protocol,
            session,
            channel: Some(channel),
            lent: vec![None; depth as usize],
            stuck: Vec::with_capacity(depth as usize),
            at_once: Vec::new(),
            reconnect,
            ring: ring.clone(),
            connect_retries: connect_retries.into(),
            connect_trouble,
        })
    }

    /// Accepts a request that the device has checked.
    #[inline]
    pub fn submit(&mut self, request: Request, now: Nanos) {
        if self.reconnect.is_dead() {
            return self.answer(request, Err(DeviceError::Gone));
        }
        if self.session.submit(request, now).is_err() {
            panic!("only sessions with a free slot are chosen");
        }
    }

    /// Completes a request without its session.
    pub fn answer(&mut self, request: Request, result: Result<(), DeviceError>) {
        let Request { tag, buf, .. } = request;
        self.at_once.push(Completion { tag, buf, result });
    }

    /// Asks to cancel a request.
    pub fn cancel(&mut self, tag: u64) {
        self.session.cancel(tag);
    }

    /// Number of requests taken but not yet completed.
    pub fn outstanding(&self) -> u32 {
        self.session.outstanding() + self.at_once.len() as u32
    }

    /// When [`RemoteLink::poll`] has to be called next.
    pub fn deadline(&self) -> Nanos {
        if !self.at_once.is_empty() {
            return Nanos(0);
        }
        self.reconnect.deadline().min(self.session.deadline())
    }

    /// Adds this link's events to a device's.
    pub fn add_health(&self, health: &mut Health) {
        let events = self.session.events();
        health.retries += events.replays;
        health.timeouts += events.timeouts;
        health.reconnects += self.reconnect.reconnects();
        health.connect_retries += self.connect_retries;
        let trouble = self.reconnect.trouble().cloned().or(events.words);
        health.trouble = trouble
            .or_else(|| self.connect_trouble.clone())
            .or(health.trouble.take());
    }

    /// Sends everything that is ready.
    #[inline]
    pub fn send(&mut self) {
        let Some(channel) = &mut self.channel else {
            return;
        };
        self.protocol
            .send(&mut self.session, channel, &mut self.lent);
        channel.flush();
        channel.arm();
    }

    /// Processes completions from the ring, and appends completed requests to `done`.
    pub fn poll(&mut self, clock: &Clock, done: &mut Vec<Completion>) {
        done.append(&mut self.at_once);
        let now = clock.now();
        self.protocol.before_poll(&mut self.session, now);
        if !self.reconnect.is_up() {
            if !self.reconnect.is_dead() {
                self.continue_reconnecting(now);
            }
            self.complete(done);
            self.send();
            return;
        }
        let mut trouble = None;
        if let Some(channel) = &mut self.channel {
            let event = channel.poll();
            if event.received
                && let Err(violation) = self.protocol.receive(&mut self.session, channel, now)
            {
                trouble = Some(violation.to_string());
            } else if event.ended && self.session.lost().is_none() {
                trouble = Some(channel.why_ended());
            }
        }
        self.session.on_time(now);
        let trouble = trouble.or_else(|| self.session.lost().map(|loss| loss.to_string()));
        if let Some(why) = trouble {
            self.lose(&why, now);
        }
        self.complete(done);
        self.send();
    }

    /// Retires completed tasks whose data has been returned.
    fn complete(&mut self, done: &mut Vec<Completion>) {
        for _ in 0..self.stuck.len() {
            let task = self.stuck.remove(0);
            self.finish(task, done);
        }
        while let Some(task) = self.session.next_answered() {
            self.finish(task, done);
        }
    }

    fn finish(&mut self, task: u16, done: &mut Vec<Completion>) {
        let lent = &mut self.lent[usize::from(task)];
        if lent.is_some()
            && let Some(channel) = &mut self.channel
            && !channel.give_back(lent, self.session.data(task))
        {
            // Answered before it was sent completely; the channel still holds its data.
            return self.stuck.push(task);
        }
        done.push(self.session.retire(task));
    }

    /// Takes back all data from the connection and starts reconnecting.
    fn lose(&mut self, why: &str, now: Nanos) {
        if let Some(mut channel) = self.channel.take() {
            let placed = channel.abort();
            self.protocol.on_loss(&mut self.session, placed);
            for (task, lent) in self.lent.iter_mut().enumerate() {
                let back = channel.give_back(lent, self.session.data(task as u16));
                assert!(back, "an aborted stream returns its buffers");
            }
        }
        self.session.detach();
        self.start_reconnecting(why, Duration::ZERO, now);
    }
}

/// Starts receiving first, so that a disconnect is noticed before the first message.
fn bring_up<P: RemoteProtocol>(
    protocol: &mut P,
    session: &mut P::Session,
    connection: P::Connection,
    ring: &Ring,
    now: Nanos,
) -> io::Result<P::Channel> {
    let mut channel = protocol.bring_up(session, connection, ring, now)?;
    channel.flush();
    channel.arm();
    Ok(channel)
}

impl<P: RemoteProtocol> Reconnecting for RemoteLink<P> {
    type Connection = P::Connection;
    type Error = P::Error;

    fn reconnect(&self) -> &ReconnectState<P::Connection, P::Error> {
        &self.reconnect
    }

    fn reconnect_mut(&mut self) -> &mut ReconnectState<P::Connection, P::Error> {
        &mut self.reconnect
    }

    fn name(&self) -> String {
        self.protocol.name()
    }

    fn changed(&self, connection: &P::Connection) -> Option<String> {
        self.protocol.changed(connection)
    }

    fn bring_up(&mut self, connection: P::Connection, now: Nanos) -> io::Result<()> {
        let channel = bring_up(
            &mut self.protocol,
            &mut self.session,
            connection,
            &self.ring,
            now,
        )?;
        self.channel = Some(channel);
        Ok(())
    }

    fn fail_all(&mut self) {
        self.session.fail_all(DeviceError::Gone);
    }

    fn room(&self) -> usize {
        self.session.room()
    }

    fn in_session(&self) -> u32 {
        self.session.outstanding()
    }
}

impl<P: RemoteProtocol> Drop for RemoteLink<P> {
    /// Lets the protocol close the session, so that the server frees the connection immediately.
    fn drop(&mut self) {
        if self.session.outstanding() == 0
            && let Some(channel) = &mut self.channel
        {
            self.protocol
                .say_goodbye(&mut self.session, channel, &self.ring);
        }
    }
}
