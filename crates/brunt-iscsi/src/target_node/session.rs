//! State shared by the connections of a session, and the table of all sessions of a target. Called by the acceptor
//! (for logins) and by the workers. The one rule: a connection locks its session's [`CommandWindow`] once per batch
//! of PDUs, and never waits for the peer while holding a lock. A connection may lock the table while it holds its
//! window, but never the reverse.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brunt_block::Waker;
use brunt_wire::iscsi::pdu::{code::login as code, serial_before};

use super::directory::{Directory, ServedTarget};
use super::login::{Admitted, Candidate, JoinableSession, Sessions};
use crate::chap::ChapUser;
use crate::params::Params;
use crate::scsi::Nexus;

/// Maximum outstanding commands of a session: enough for an initiator with a queue depth of 1024.
pub const SESSION_TASKS_MAX: u32 = 1024;
/// Maximum distance of MaxCmdSN from ExpCmdSN: each of these commands may carry FirstBurstLength of unsolicited data,
/// 256 KiB * 256 = 64 MiB in the worst case.
pub const WINDOW_COMMANDS_MAX: u32 = 256;

/// The command numbering of a session (RFC 7143, 4.2.2.1).
#[derive(Debug)]
pub struct CommandWindow {
    exp_cmd_sn: u32,
    max_cmd_sn: u32,
    /// Commands delivered but not answered.
    outstanding: u32,
    /// CmdSNs received before their turn, each with the connection that received it.
    held: BTreeMap<u32, u64>,
}

/// What to do with a numbered command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The command is next; ExpCmdSN has moved past it.
    Now,
    /// Other commands come first: hold this one.
    Later,
    /// The number is outside the window or a duplicate: ignore the command silently (4.2.2.1).
    Never,
}

impl CommandWindow {
    /// Creates a window whose first command carries `cmd_sn`.
    pub fn new(cmd_sn: u32) -> CommandWindow {
        let max_cmd_sn = cmd_sn.wrapping_add(WINDOW_COMMANDS_MAX - 1);
        CommandWindow {
            exp_cmd_sn: cmd_sn,
            max_cmd_sn,
            outstanding: 0,
            held: BTreeMap::new(),
        }
    }

    /// The next expected CmdSN.
    pub fn exp_cmd_sn(&self) -> u32 {
        self.exp_cmd_sn
    }

    /// The highest accepted CmdSN. The value never decreases, and doesn't advance while the session has the maximum
    /// number of outstanding commands.
    pub fn max_cmd_sn(&mut self) -> u32 {
        let room = SESSION_TASKS_MAX
            .saturating_sub(self.outstanding)
            .min(WINDOW_COMMANDS_MAX);
        let max = self.exp_cmd_sn.wrapping_add(room).wrapping_sub(1);
        if serial_before(self.max_cmd_sn, max) {
            self.max_cmd_sn = max;
        }
        self.max_cmd_sn
    }

    /// Decides what to do with a non-immediate command that `connection` received.
    pub fn arrive(&mut self, cmd_sn: u32, connection: u64) -> Turn {
        if cmd_sn == self.exp_cmd_sn && !serial_before(self.max_cmd_sn, cmd_sn) {
            self.exp_cmd_sn = cmd_sn.wrapping_add(1);
            return Turn::Now;
        }
        if serial_before(cmd_sn, self.exp_cmd_sn)
            || serial_before(self.max_cmd_sn, cmd_sn)
            || self.held.contains_key(&cmd_sn)
        {
            return Turn::Never;
        }
        self.held.insert(cmd_sn, connection);
        Turn::Later
    }

    /// Returns the held command that is next if `connection` holds it, and moves ExpCmdSN past it.
    pub fn next_held(&mut self, connection: u64) -> Option<u32> {
        let cmd_sn = self.exp_cmd_sn;
        if self.held.get(&cmd_sn) != Some(&connection) {
            return None;
        }
        self.held.remove(&cmd_sn);
        self.exp_cmd_sn = cmd_sn.wrapping_add(1);
        Some(cmd_sn)
    }

    /// The connection that holds the next command, if that has been received.
    pub fn turn_of(&self) -> Option<u64> {
        self.held.get(&self.exp_cmd_sn).copied()
    }

    /// Whether a command with this number may still arrive (for an ABORT TASK that overtakes its task).
    pub fn may_still_arrive(&self, cmd_sn: u32) -> bool {
        !serial_before(cmd_sn, self.exp_cmd_sn)
            && !serial_before(self.max_cmd_sn, cmd_sn)
            && !self.held.contains_key(&cmd_sn)
    }

    /// Counts a delivered command.
    pub fn delivered(&mut self) {
        self.outstanding += 1;
    }

    /// Counts a delivered command as finished.
    pub fn finished(&mut self) {
        assert!(
            self.outstanding > 0,
            "no more commands end than were delivered"
        );
        self.outstanding -= 1;
    }

    /// Forgets the commands held by a closed connection. The initiator retries those numbers on another connection.
    pub fn forget(&mut self, connection: u64) {
        self.held.retain(|_, holder| *holder != connection);
    }
}

/// A session: an I_T nexus and its command numbering.
#[derive(Debug)]
pub struct TargetSession {
    tsih: u16,
    isid: [u8; 6],
    initiator_name: String,
    /// The session's target; `None` for discovery.
    target: Option<Arc<ServedTarget>>,
    params: Params,
    nexus: Nexus,
    window: Mutex<CommandWindow>,
    /// Connections that were admitted and have not ended.
    connections: AtomicU32,
}

impl TargetSession {
    /// Counts an ended connection. Returns whether it was the last one, in which case the nexus is lost.
    pub fn leave(&self) -> bool {
        self.connections.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The target's part of the session id.
    pub fn tsih(&self) -> u16 {
        self.tsih
    }

    /// The initiator's name.
    pub fn initiator_name(&self) -> &str {
        &self.initiator_name
    }

    /// The session's target; `None` for discovery.
    pub fn target(&self) -> Option<&Arc<ServedTarget>> {
        self.target.as_ref()
    }

    /// The target's name; empty for discovery.
    pub fn target_name(&self) -> &str {
        self.target.as_ref().map_or("", |target| &target.name)
    }

    /// The nexus that the session's commands come from.
    pub fn nexus(&self) -> &Nexus {
        &self.nexus
    }

    /// Locks the session's command numbering, for one batch.
    pub fn window(&self) -> MutexGuard<'_, CommandWindow> {
        lock(&self.window)
    }
}

/// A message to a connection on another thread.
#[derive(Debug)]
pub enum ConnectionMessage {
    /// The connection holds the next command.
    Turn,
    /// Ask the initiator to log out, and close after this many seconds.
    AskLogout(u16),
    /// Close now.
    Close,
}

/// Handle for messages to a connection, which may be on another thread.
#[derive(Clone, Debug)]
pub struct ConnectionHandle {
    mailbox: Arc<ConnectionMailbox>,
}

#[derive(Debug)]
struct ConnectionMailbox {
    /// Whether there may be messages.
    pending: AtomicBool,
    /// `None` once the connection is gone: messages are discarded.
    messages: Mutex<Option<Vec<ConnectionMessage>>>,
    waker: Mutex<Option<Waker>>,
}

impl ConnectionHandle {
    fn new() -> ConnectionHandle {
        ConnectionHandle {
            mailbox: Arc::new(ConnectionMailbox {
                pending: AtomicBool::new(false),
                messages: Mutex::new(Some(Vec::new())),
                waker: Mutex::new(None),
            }),
        }
    }

    /// Sets the ring to wake for messages.
    pub fn set_waker(&self, waker: Waker) {
        waker.wake(); // messages may already be pending
        *lock(&self.mailbox.waker) = Some(waker);
    }

    /// Sends a message. Does nothing if the connection is gone.
    pub fn send(&self, message: ConnectionMessage) {
        match &mut *lock(&self.mailbox.messages) {
            Some(messages) => {
                messages.push(message);
                self.mailbox.pending.store(true, Ordering::Release);
            }
            None => return,
        }
        if let Some(waker) = &*lock(&self.mailbox.waker) {
            waker.wake();
        }
    }

    /// Whether there are messages to take.
    #[inline]
    pub fn has_messages(&self) -> bool {
        self.mailbox.pending.load(Ordering::Acquire)
    }

    /// Takes the pending messages.
    pub fn take(&self, into: &mut Vec<ConnectionMessage>) {
        self.mailbox.pending.store(false, Ordering::Release);
        if let Some(messages) = &mut *lock(&self.mailbox.messages) {
            into.append(messages);
        }
    }

    /// Marks the connection as gone.
    pub fn close(&self) {
        lock(&self.mailbox.messages).take();
    }
}

/// Which connections are affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The connections of the session with this TSIH.
    TargetSession(u16),
    /// The connections of all sessions of this session's target.
    Target,
}

/// All sessions of all targets, and handles to their connections.
#[derive(Debug)]
pub struct SessionTable {
    directory: Directory,
    sessions_max: AtomicUsize,
    inner: Mutex<Table>,
    next_id: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    opened: u64,
    /// Portal groups through which logins are accepted; `None`: all groups.
    groups: Option<Vec<u16>>,
    sessions: BTreeMap<u16, SessionEntry>,
    next_tsih: u16,
}

/// A session and its new connection.
type NewMember = (Arc<TargetSession>, u64, ConnectionHandle);

#[derive(Debug)]
struct SessionEntry {
    session: Arc<TargetSession>,
    connections: Vec<(u16, u64, ConnectionHandle)>,
}

impl SessionTable {
    /// Creates an empty table for up to `sessions_max` sessions with these targets.
    pub fn new(directory: Directory, sessions_max: usize) -> SessionTable {
        SessionTable {
            directory,
            sessions_max: AtomicUsize::new(sessions_max),
            inner: Mutex::default(),
            next_id: AtomicU64::new(1),
        }
    }

    /// Changes the maximum number of sessions; open sessions stay.
    pub fn set_sessions_max(&self, sessions_max: usize) {
        self.sessions_max.store(sessions_max, Ordering::Relaxed);
    }

    /// From now on, admits only logins through portals of these groups, including logins in progress; open sessions
    /// stay.
    pub fn set_groups(&self, groups: &[u16]) {
        lock(&self.inner).groups = Some(groups.to_vec());
    }

    /// Number of open sessions.
    pub fn len(&self) -> usize {
        lock(&self.inner).sessions.len()
    }

    /// Number of sessions ever opened.
    pub fn opened(&self) -> u64 {
        lock(&self.inner).opened
    }

    /// Whether no session is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The handle to a connection.
    pub fn handle(&self, connection: u64) -> Option<ConnectionHandle> {
        let table = lock(&self.inner);
        let mut all = table.sessions.values().flat_map(|entry| &entry.connections);
        all.find(|(_, id, _)| *id == connection)
            .map(|(_, _, handle)| handle.clone())
    }

    /// Removes an ended connection.
    pub fn leave(&self, tsih: u16, connection: u64) {
        let mut table = lock(&self.inner);
        let Some(entry) = table.sessions.get_mut(&tsih) else {
            return;
        };
        entry.connections.retain(|(_, id, _)| *id != connection);
        if entry.connections.is_empty() {
            table.sessions.remove(&tsih);
        }
    }

    /// Closes the connections of the selected sessions, except `from`.
    pub fn close(&self, from: u64, which: impl Fn(&TargetSession) -> bool) {
        for handle in self.handles(from, which) {
            handle.send(ConnectionMessage::Close);
        }
    }

    /// Closes one connection of a session. Returns whether it exists.
    pub fn close_cid(&self, tsih: u16, cid: u16) -> bool {
        let table = lock(&self.inner);
        let connection = table.sessions.get(&tsih).and_then(|entry| {
            entry
                .connections
                .iter()
                .find(|connection| connection.0 == cid)
        });
        connection
            .inspect(|(_, _, handle)| handle.send(ConnectionMessage::Close))
            .is_some()
    }

    /// Notifies a connection that its held command is next.
    pub fn notify_turn(&self, connection: u64) {
        if let Some(handle) = self.handle(connection) {
            handle.send(ConnectionMessage::Turn);
        }
    }

    /// Asks the initiators of the selected sessions to log out.
    pub fn ask_logout(&self, within_seconds: u16, which: impl Fn(&TargetSession) -> bool) {
        for handle in self.handles(0, which) {
            handle.send(ConnectionMessage::AskLogout(within_seconds));
        }
    }

    /// Number of selected sessions.
    pub fn count(&self, which: impl Fn(&TargetSession) -> bool) -> usize {
        lock(&self.inner)
            .sessions
            .values()
            .filter(|entry| which(&entry.session))
            .count()
    }

    fn handles(&self, from: u64, which: impl Fn(&TargetSession) -> bool) -> Vec<ConnectionHandle> {
        let table = lock(&self.inner);
        table
            .sessions
            .values()
            .filter(|entry| which(&entry.session))
            .flat_map(|entry| &entry.connections)
            .filter(|(_, id, _)| *id != from)
            .map(|(_, _, handle)| handle.clone())
            .collect()
    }

    fn join(&self, table: &mut Table, candidate: &Candidate) -> Result<NewMember, u16> {
        let entry = table
            .sessions
            .get_mut(&candidate.tsih)
            .ok_or(code::SESSION_DOES_NOT_EXIST)?;
        // Using the same CID again reinstates the connection: the old one is logged out (RFC 7143, 6.3.4).
        if let Some(at) = entry
            .connections
            .iter()
            .position(|connection| connection.0 == candidate.cid)
        {
            let (_, _, handle) = entry.connections.swap_remove(at);
            handle.send(ConnectionMessage::Close);
        } else if entry.connections.len() >= usize::from(entry.session.params.max_connections) {
            return Err(code::TOO_MANY_CONNECTIONS);
        }
        let connection_id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let handle = ConnectionHandle::new();
        entry
            .connections
            .push((candidate.cid, connection_id, handle.clone()));
        entry.session.connections.fetch_add(1, Ordering::AcqRel);
        Ok((Arc::clone(&entry.session), connection_id, handle))
    }

    fn open(&self, table: &mut Table, candidate: &Candidate) -> Result<NewMember, u16> {
        let target = candidate.target.as_ref();
        end_reinstated(table, candidate);
        if table.sessions.len() >= self.sessions_max.load(Ordering::Relaxed) {
            return Err(code::OUT_OF_RESOURCES);
        }
        let tsih = loop {
            table.next_tsih = table.next_tsih.wrapping_add(1);
            if table.next_tsih != 0 && !table.sessions.contains_key(&table.next_tsih) {
                break table.next_tsih;
            }
        };
        table.opened += 1;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let isid: String = candidate
            .isid
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let session = Arc::new(TargetSession {
            tsih,
            isid: candidate.isid,
            initiator_name: candidate.initiator_name.clone(),
            target: target.cloned(),
            params: candidate.params.clone(),
            nexus: Nexus {
                id,
                initiator_port: format!("{},i,0x{isid}", candidate.initiator_name),
                target_port: candidate.portal_group_tag,
            },
            window: Mutex::new(CommandWindow::new(candidate.cmd_sn)),
            connections: AtomicU32::new(1),
        });
        let connection_id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let handle = ConnectionHandle::new();
        let connections = vec![(candidate.cid, connection_id, handle.clone())];
        table.sessions.insert(
            tsih,
            SessionEntry {
                session: Arc::clone(&session),
                connections,
            },
        );
        Ok((session, connection_id, handle))
    }

    /// The targets of these sessions.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }
}

/// Ends the sessions that the candidate reinstates.
fn end_reinstated(table: &mut Table, candidate: &Candidate) {
    let target = candidate.target.as_ref();
    // The same initiator port at the same target port reinstates its session: the old one ends (RFC 7143, 6.3.5). A
    // target port is a target and a portal group (RFC 7143, 4.4.1).
    let old: Vec<u16> = table
        .sessions
        .values()
        .filter(|entry| {
            entry.session.isid == candidate.isid
                && entry.session.initiator_name == candidate.initiator_name
                && entry.session.nexus.target_port == candidate.portal_group_tag
                && entry.session.target_name() == target.map_or("", |target| &target.name)
        })
        .map(|entry| entry.session.tsih)
        .collect();
    for tsih in old {
        let entry = table.sessions.remove(&tsih).expect("the entry exists");
        for (_, _, handle) in &entry.connections {
            handle.send(ConnectionMessage::Close);
        }
    }
}

impl Sessions for &SessionTable {
    fn target(&self, name: &str) -> Option<Arc<ServedTarget>> {
        self.directory.find(name)
    }

    fn discovery_users(&self) -> Vec<ChapUser> {
        self.directory.discovery_users()
    }

    fn find(&self, tsih: u16) -> Option<JoinableSession> {
        let session = Arc::clone(&lock(&self.inner).sessions.get(&tsih)?.session);
        let mut window = session.window();
        Some(JoinableSession {
            initiator_name: session.initiator_name.clone(),
            isid: session.isid,
            target: session.target.clone(),
            portal_group_tag: session.nexus.target_port,
            params: session.params.clone(),
            window: (window.exp_cmd_sn(), window.max_cmd_sn()),
        })
    }

    fn admit(&mut self, candidate: &Candidate) -> Result<Admitted, u16> {
        let mut table = lock(&self.inner);
        // The target may have been removed since its name was looked up.
        if candidate
            .target
            .as_ref()
            .is_some_and(|target| self.directory.find(&target.name).is_none())
        {
            return Err(code::NOT_FOUND);
        }
        if table
            .groups
            .as_ref()
            .is_some_and(|groups| !groups.contains(&candidate.portal_group_tag))
        {
            return Err(code::SERVICE_UNAVAILABLE);
        }
        let (session, connection_id, handle) = if candidate.tsih == 0 {
            self.open(&mut table, candidate)
        } else {
            self.join(&mut table, candidate)
        }?;
        drop(table);
        let window = {
            let mut window = session.window();
            (window.exp_cmd_sn(), window.max_cmd_sn())
        };
        Ok(Admitted {
            session,
            connection_id,
            handle,
            window,
        })
    }
}

/// Ignores poisoning: a panicking thread breaks only its own connection, because every critical section here leaves its
/// data consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(isid: u8, tsih: u16, cid: u16) -> Candidate {
        Candidate {
            initiator_name: "iqn.2026-11.io.brunt:i".into(),
            isid: [0x80, 0, 0, 0, 0, isid],
            tsih,
            cid,
            cmd_sn: 5,
            target: None,
            portal_group_tag: 1,
            params: Params {
                max_connections: 2,
                ..Params::default()
            },
        }
    }

    /// Commands run in CmdSN order, whichever connection receives them; commands outside the window and duplicates are
    /// ignored.
    #[test]
    fn commands_run_in_cmd_sn_order_on_any_connection() {
        let mut window = CommandWindow::new(u32::MAX);
        assert_eq!(window.arrive(0, 1), Turn::Later);
        assert_eq!(window.arrive(0, 2), Turn::Never);
        assert_eq!(window.arrive(u32::MAX - 1, 1), Turn::Never);
        assert_eq!(
            window.arrive(u32::MAX.wrapping_add(WINDOW_COMMANDS_MAX), 1),
            Turn::Never
        );
        assert_eq!(window.next_held(1), None);
        assert_eq!(window.arrive(u32::MAX, 2), Turn::Now);
        assert_eq!(window.turn_of(), Some(1));
        assert_eq!(window.next_held(2), None);
        assert_eq!(window.next_held(1), Some(0));
        assert_eq!(window.exp_cmd_sn(), 1);
    }

    /// MaxCmdSN never decreases, and stops at the limit on outstanding commands.
    #[test]
    fn max_cmd_sn_never_decreases_and_stops_at_the_limit() {
        let mut window = CommandWindow::new(0);
        let mut sent = 0;
        while !serial_before(window.max_cmd_sn(), sent) {
            assert_eq!(window.arrive(sent, 1), Turn::Now);
            window.delivered();
            sent += 1;
        }
        assert_eq!(sent, SESSION_TASKS_MAX);
        assert_eq!(window.arrive(sent, 1), Turn::Never);
        window.finished();
        assert_eq!(window.max_cmd_sn(), sent);
        assert_eq!(window.arrive(sent, 1), Turn::Now);
    }

    /// A connection that closes other connections locks the table while it holds its window, so a login must not wait
    /// for a window while it holds the table.
    #[test]
    fn logins_do_not_hold_the_table_while_they_wait_for_a_window() {
        let table = SessionTable::new(Directory::new(Vec::new(), None), 2);
        let first = (&mut &table).admit(&candidate(1, 0, 0)).unwrap();
        let tsih = first.session.tsih();
        let window = first.session.window();
        let began = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let login = scope.spawn(|| {
                began.store(true, Ordering::Release);
                (&table).find(tsih).expect("it exists");
                (&mut &table).admit(&candidate(1, tsih, 1))
            });
            while !began.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            for _ in 0..1000 {
                table.close(first.connection_id, |_| true);
                std::thread::yield_now();
            }
            drop(window);
            assert!(login.join().unwrap().is_ok());
        });
    }

    /// Joining, reinstatement of connections and sessions, and the limits.
    #[test]
    fn connections_join_and_reinstate_sessions_within_the_limits() {
        let table = SessionTable::new(Directory::new(Vec::new(), None), 2);
        let mut sessions = &table;
        let first = sessions.admit(&candidate(1, 0, 0)).unwrap();
        let tsih = first.session.tsih();
        let second = sessions.admit(&candidate(1, tsih, 1)).unwrap();
        assert_eq!(
            sessions.admit(&candidate(1, tsih, 2)).unwrap_err(),
            code::TOO_MANY_CONNECTIONS
        );
        assert_eq!(
            sessions.admit(&candidate(1, tsih + 1, 2)).unwrap_err(),
            code::SESSION_DOES_NOT_EXIST
        );
        let old = second.handle;
        let again = sessions.admit(&candidate(1, tsih, 1)).unwrap();
        let mut messages = Vec::new();
        old.take(&mut messages);
        assert!(matches!(messages[..], [ConnectionMessage::Close]));
        table.leave(tsih, again.connection_id);
        assert!(!first.session.leave() && !first.session.leave() && first.session.leave());
        // The same initiator port logs in with TSIH 0, so a new session replaces the old one.
        let renewed = sessions.admit(&candidate(1, 0, 0)).unwrap();
        assert_ne!(renewed.session.nexus().id, first.session.nexus().id);
        assert_eq!(table.len(), 1);
        sessions.admit(&candidate(2, 0, 0)).unwrap();
        assert_eq!(
            sessions.admit(&candidate(3, 0, 0)).unwrap_err(),
            code::OUT_OF_RESOURCES
        );
    }
}
