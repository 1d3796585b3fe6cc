//! One call at a time to one program of a server. Blocking, with one deadline for all of it; used when a device is
//! opened and, on a separate thread, to restore a lost connection.
//!
//! The one rule: after a call, nothing is unread in the socket, so the connection can be passed on.

use std::io::{self, Read, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

use brunt_block::dial::{self, DialError, left};
use brunt_block::socket::Socket;
use brunt_wire::nfs::v3::{Args, Procedure, Results, Status, parse_results};
use brunt_wire::nfs::v4::{AttributeList, Op, PROCEDURE_COMPOUND, Status as Status4};
use brunt_wire::rpc::{PROGRAM_NFS, ReplyStatus, Xid};
use brunt_wire::{Cursor, ParseError};

use crate::calls::reply_data_max;
use crate::connect_error::NfsConnectError;
use crate::record::NfsRecord;
use crate::rpc::{
    NfsViolation, REPLY_HEAD_BYTES_MAX, bad_results, begin_call, finish_record, parse_reply,
};
use crate::url::NfsVersion;
use crate::v41::{
    NfsEncoded, NfsFarewell, NfsFileAccess, NfsGrant, NfsOpenFile, NfsScratch, NfsSeat,
    NfsSetupError, Sequenced, asks_to_wait, encode_call, locked, opened, put_slot, sequenced,
    translate,
};

/// Delay before a call is repeated after NFS3ERR_JUKEBOX.
const JUKEBOX_PAUSE: Duration = Duration::from_millis(200);
/// How long closing a session may take.
pub(crate) const GOODBYE_TIME: Duration = Duration::from_secs(1);
/// Number of consecutive sessions that a server may end before a call is abandoned.
const SESSIONS_MAX: u32 = 2;
/// Size of one read: replies are short.
const READ_BYTES: usize = 16 << 10;

/// The result of reclaiming a file or a lock.
enum Reclaimed<T> {
    /// The client has it again.
    Done(T),
    /// The server refused this file or lock.
    Refused,
    /// The server allows no reclaims: it did not restart, or its grace period is over.
    Never,
}

/// A procedure of a program, by its numbers and its name.
#[derive(Clone, Copy, Debug)]
pub struct RpcProcedure {
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub number: u32,
    /// The procedure's name.
    pub name: &'static str,
}

/// A server and how to call it.
#[derive(Clone, Copy, Debug)]
pub struct NfsCallee<'a> {
    /// The host.
    pub host: &'a str,
    /// Whether to call from ports below 1024.
    pub reserved_port: bool,
    /// The body of the AUTH_SYS credential in every call.
    pub credentials: &'a [u8],
}

/// A blocking connection with a deadline.
#[derive(Debug)]
pub struct NfsConversation {
    /// `None` once it has been passed on.
    socket: Option<Socket>,
    /// The server with its port, for messages.
    server: String,
    deadline: Instant,
    credentials: Vec<u8>,
    xid: Xid,
    call: Vec<u8>,
    reply: Vec<u8>,
    /// With NFSv4.1, the client and its session.
    seat: Option<NfsSeat>,
    /// Whether the last call failed or got an invalid reply.
    is_lost: bool,
    list: AttributeList,
    scratch: NfsScratch,
}

impl NfsConversation {
    /// Connects to a port of a server; calls have xids from `first_xid` on.
    ///
    /// # Errors
    /// The host cannot be resolved, or the port cannot be reached.
    pub fn connect(
        callee: NfsCallee<'_>,
        port: u16,
        deadline: Instant,
        first_xid: Xid,
    ) -> Result<NfsConversation, NfsConnectError> {
        let NfsCallee {
            host,
            reserved_port,
            credentials,
        } = callee;
        let server = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let dialled = match reserved_port {
            true => dial::tcp_from_reserved_port(host, port, deadline),
            false => dial::tcp(host, port, deadline),
        };
        let socket = match dialled {
            Ok(socket) => socket,
            Err(DialError::Resolve(error)) => return Err(NfsConnectError::Resolve(server, error)),
            Err(DialError::Connect(error)) => return Err(NfsConnectError::Connect(server, error)),
        };
        let _ = socket.set_nodelay(true);
        Ok(NfsConversation {
            socket: Some(socket.into()),
            server,
            deadline,
            credentials: credentials.to_vec(),
            xid: first_xid,
            call: Vec::new(),
            reply: Vec::new(),
            seat: None,
            is_lost: false,
            list: AttributeList::default(),
            scratch: NfsScratch::default(),
        })
    }

    /// The server with its port, for messages.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sets another deadline, for the calls from now on.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// The connection without a deadline, to be put on a ring, and with NFSv4.1 its client.
    ///
    /// # Errors
    /// The socket cannot be set up.
    ///
    /// # Panics
    /// Never: this consumes the conversation, so its socket is passed on only once.
    pub fn into_socket(mut self) -> Result<(Socket, Option<NfsSeat>), NfsConnectError> {
        let socket = self.socket.take().expect("a socket is handed on once");
        let seat = self.seat.take();
        match socket.set_timeouts(None) {
            Ok(()) => Ok((socket, seat)),
            Err(error) => {
                let server = std::mem::take(&mut self.server);
                Err(NfsConnectError::Io(server, "setting up its socket", error))
            }
        }
    }

    fn socket(&self) -> &Socket {
        self.socket.as_ref().expect("it is not handed on yet")
    }

    /// Uses NFSv4.1 from now on, as this client. The client gets a session unless it has one.
    ///
    /// # Errors
    /// The server grants no session.
    pub fn sit_down(&mut self, mut seat: NfsSeat) -> Result<(), NfsConnectError> {
        let done = match seat.grant() {
            Some(_) => Ok(()),
            None => self.establish(&mut seat),
        };
        self.seat = Some(seat);
        done
    }

    /// The session, with NFSv4.1.
    pub fn grant(&self) -> Option<NfsGrant> {
        self.seat.as_ref().and_then(NfsSeat::grant)
    }

    /// Calls a procedure with the arguments that `encode` appends. Returns the results, of at most `limit` bytes.
    ///
    /// # Errors
    /// The connection failed, the server refused the call, or it violated the protocol.
    pub fn call(
        &mut self,
        procedure: RpcProcedure,
        encode: impl FnOnce(&mut Vec<u8>),
        limit: u32,
    ) -> Result<Cursor<'_>, NfsConnectError> {
        let RpcProcedure {
            program,
            version,
            number,
            name,
        } = procedure;
        self.xid = Xid(self.xid.0.wrapping_add(1));
        begin_call(
            &mut self.call,
            self.xid,
            [program, version, number],
            &self.credentials,
        );
        encode(&mut self.call);
        finish_record(&mut self.call, 0);
        let _ = self.socket().set_timeouts(Some(left(self.deadline)));
        self.is_lost = true;
        let sent = self.socket().write_all(&self.call);
        sent.map_err(|error| self.io_error(name, error))?;
        self.reply = self.receive(name, limit.saturating_add(REPLY_HEAD_BYTES_MAX))?;
        let violation = |violation| NfsConnectError::Violation(self.server.clone(), violation);
        let header = parse_reply(&self.reply, name).map_err(violation)?;
        if header.xid != self.xid {
            return Err(violation(NfsViolation::Xid(header.xid.0)));
        }
        match header.status {
            ReplyStatus::Success => {
                self.is_lost = false;
                Ok(Cursor::new(&self.reply[header.body_at..]))
            }
            ReplyStatus::ProgMismatch if program == PROGRAM_NFS => Err(NfsConnectError::Version {
                server: self.server.clone(),
                operation: name,
                version: match version {
                    3 => NfsVersion::V3,
                    _ => NfsVersion::V41,
                },
            }),
            status => Err(NfsConnectError::Refused(self.server.clone(), name, status)),
        }
    }

    /// Makes an NFSv3 call, or sends the equivalent NFSv4.1 compound. Repeats it until the deadline if the server
    /// asks to wait (NFS3ERR_JUKEBOX; NFS4ERR_DELAY, NFS4ERR_GRACE).
    ///
    /// # Errors
    /// As for [`NfsConversation::call`]; any status from the server is a result.
    pub fn nfs(&mut self, args: &Args<'_>) -> Result<Results<'_>, NfsConnectError> {
        if let Some(seat) = self.seat.take() {
            return self.compound(args, seat);
        }
        let procedure = args.procedure();
        let name = procedure.name();
        let rpc = RpcProcedure {
            program: PROGRAM_NFS,
            version: 3,
            number: procedure as u32,
            name,
        };
        let body_at = loop {
            let body = self.call(rpc, |out| args.encode(out), reply_data_max(args))?;
            let (len, status) = (body.rest().len(), Cursor::new(body.rest()).u32());
            let is_late = left(self.deadline) <= JUKEBOX_PAUSE;
            if procedure == Procedure::Null || status != Ok(Status::JUKEBOX.0) || is_late {
                break self.reply.len() - len;
            }
            sleep(JUKEBOX_PAUSE);
        };
        let mut cur = Cursor::new(&self.reply[body_at..]);
        let results = parse_results(procedure, &mut cur).map_err(|error| bad_results(name, error));
        let results = results.and_then(|results| match cur.rest().len() {
            0 => Ok(results),
            bytes => Err(NfsViolation::Excess {
                operation: name,
                bytes,
            }),
        });
        results.map_err(|violation| NfsConnectError::Violation(self.server.clone(), violation))
    }

    /// Builds the compound that is equivalent to an NFSv3 call.
    fn compound(
        &mut self,
        args: &Args<'_>,
        mut seat: NfsSeat,
    ) -> Result<Results<'_>, NfsConnectError> {
        let asked = self.ask_compound(args, &mut seat);
        self.seat = Some(seat);
        let body_at = asked?;
        let operation = args.procedure().name();
        let body = &self.reply[body_at..];
        let results = translate(args.procedure(), body, &mut self.scratch);
        let violation = match results {
            Ok((results, end)) if end == body.len() => return Ok(results),
            Ok((_, end)) => NfsViolation::Excess {
                operation,
                bytes: body.len() - end,
            },
            Err(error) => bad_results(operation, error),
        };
        Err(NfsConnectError::Violation(self.server.clone(), violation))
    }

    /// Sends the compound until the server has answered it. Returns where the body is in the reply.
    fn ask_compound(
        &mut self,
        args: &Args<'_>,
        seat: &mut NfsSeat,
    ) -> Result<usize, NfsConnectError> {
        let name = args.procedure().name();
        let mut sessions = 0;
        loop {
            let Some(slot) = seat.slot() else {
                self.establish(seat)?;
                continue;
            };
            let mut compound = Vec::new();
            let access = NfsFileAccess::Within;
            let NfsEncoded { slot_at, .. } =
                encode_call(args, access, &mut self.list, &mut compound);
            put_slot(&mut compound, slot_at, &slot);
            let body = self.call_compound(name, &compound, reply_data_max(args))?;
            let len = body.len();
            let verdict = sequenced(body, &slot).map_err(|error| bad_results(name, error));
            let violation = |found| NfsConnectError::Violation(self.server.clone(), found);
            let verdict = verdict.map_err(violation)?;
            let is_late = left(self.deadline) <= JUKEBOX_PAUSE;
            match verdict {
                Sequenced::Executed(status, _) => {
                    seat.on_executed();
                    if is_late || !asks_to_wait(status) {
                        return Ok(self.reply.len() - len);
                    }
                    sleep(JUKEBOX_PAUSE);
                }
                Sequenced::Uncached => seat.on_executed(),
                Sequenced::Later(_) if !is_late => sleep(JUKEBOX_PAUSE),
                Sequenced::Over(status) => {
                    seat.forget();
                    sessions += 1;
                    if sessions > SESSIONS_MAX {
                        let error = NfsSetupError::Status(Op::Sequence, status);
                        return Err(self.setup_error(error));
                    }
                }
                Sequenced::Later(_) | Sequenced::Refused(_) => return Ok(self.reply.len() - len),
            }
        }
    }

    fn call_compound(
        &mut self,
        name: &'static str,
        compound: &[u8],
        limit: u32,
    ) -> Result<&[u8], NfsConnectError> {
        let rpc = RpcProcedure {
            program: PROGRAM_NFS,
            version: 4,
            number: PROCEDURE_COMPOUND,
            name,
        };
        let body = self.call(rpc, |out| out.extend_from_slice(compound), limit)?;
        Ok(body.rest())
    }

    /// Gets a client id and a session, and begins to use it.
    fn establish(&mut self, seat: &mut NfsSeat) -> Result<(), NfsConnectError> {
        let mut call = Vec::new();
        seat.exchange_id(&mut call);
        let (client, sequence) = self.set_up(Op::ExchangeId, &call, NfsSeat::on_exchange_id)?;
        call.clear();
        seat.create_session((client, sequence), &mut call);
        self.set_up(Op::CreateSession, &call, |body| {
            seat.on_create_session(client, body)
        })?;
        self.reclaim(seat)?;
        call.clear();
        seat.begin(&mut call);
        self.set_up(Op::ReclaimComplete, &call, |body| seat.on_begin(body))
    }

    /// Reclaims the files that were open before the server restarted, and their locks, as long as the server allows
    /// that. Files that it refuses are opened by the next call that needs them; locks that it refuses are lost.
    fn reclaim(&mut self, seat: &mut NfsSeat) -> Result<(), NfsConnectError> {
        let mut reclaimed = Vec::new();
        for mut file in seat.take_opens() {
            // Call as the file's owner.
            let credentials = file.credentials.clone();
            let usual = credentials.map(|own| std::mem::replace(&mut self.credentials, own));
            let answer = self.reclaim_file(seat, &mut file);
            if let Some(usual) = usual {
                self.credentials = usual;
            }
            match answer? {
                Reclaimed::Done(()) => reclaimed.push(file),
                Reclaimed::Refused => {}
                Reclaimed::Never => break,
            }
        }
        seat.put_opens(reclaimed);
        Ok(())
    }

    /// Reclaims a file and the locks on it.
    fn reclaim_file(
        &mut self,
        seat: &mut NfsSeat,
        file: &mut NfsOpenFile,
    ) -> Result<Reclaimed<()>, NfsConnectError> {
        let open = |seat: &NfsSeat, call: &mut Vec<u8>| seat.reclaim(file, call);
        let stateid = |body: &[u8]| opened(body).map(|found| found.stateid);
        match self.reclaim_one(seat, Op::Open, open, stateid)? {
            Reclaimed::Done(stateid) => file.stateid = stateid,
            Reclaimed::Refused => return Ok(Reclaimed::Refused),
            Reclaimed::Never => return Ok(Reclaimed::Never),
        }
        for mut held in std::mem::take(&mut file.locks) {
            let mut stateid = None;
            for range in std::mem::take(&mut held.ranges) {
                let owner = (held.owner, stateid);
                let lock = |seat: &NfsSeat, call: &mut Vec<u8>| {
                    seat.reclaim_lock(file, (owner.0, owner.1.as_ref()), range, call);
                };
                if let Reclaimed::Done(found) = self.reclaim_one(seat, Op::Lock, lock, locked)? {
                    stateid = Some(found);
                    held.ranges.push(range);
                }
            }
            if let Some(stateid) = stateid {
                held.stateid = stateid;
                file.locks.push(held);
            }
        }
        Ok(Reclaimed::Done(()))
    }

    /// Makes a call that reclaims something, and repeats it while the server asks to wait; `read` extracts the
    /// result.
    fn reclaim_one<T>(
        &mut self,
        seat: &mut NfsSeat,
        op: Op,
        encode: impl Fn(&NfsSeat, &mut Vec<u8>),
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Reclaimed<T>, NfsConnectError> {
        while left(self.deadline) > JUKEBOX_PAUSE
            && let Some(slot) = seat.slot()
        {
            let mut call = Vec::new();
            encode(seat, &mut call);
            let name = op.name();
            let body = self.call_compound(name, &call, 0)?.to_vec();
            let verdict = sequenced(&body, &slot);
            match verdict.map_err(|error| self.bad_results(name, error))? {
                Sequenced::Executed(status, _) => {
                    seat.on_executed();
                    match read(&body) {
                        Some(found) => return Ok(Reclaimed::Done(found)),
                        None if status == Status4::NO_GRACE => return Ok(Reclaimed::Never),
                        None if !asks_to_wait(status) => return Ok(Reclaimed::Refused),
                        None => sleep(JUKEBOX_PAUSE),
                    }
                }
                Sequenced::Later(_) => sleep(JUKEBOX_PAUSE),
                Sequenced::Uncached | Sequenced::Over(_) | Sequenced::Refused(_) => break,
            }
        }
        Ok(Reclaimed::Never)
    }

    /// Makes a call without a slot, or the first call with one, and repeats it while the server asks to wait.
    fn set_up<T>(
        &mut self,
        op: Op,
        compound: &[u8],
        mut read: impl FnMut(&[u8]) -> Result<T, NfsSetupError>,
    ) -> Result<T, NfsConnectError> {
        loop {
            match read(self.call_compound(op.name(), compound, 0)?) {
                Ok(done) => return Ok(done),
                Err(NfsSetupError::Status(_, status))
                    if asks_to_wait(status)
                        && op != Op::ReclaimComplete
                        && left(self.deadline) > JUKEBOX_PAUSE =>
                {
                    sleep(JUKEBOX_PAUSE);
                }
                Err(error) => return Err(self.setup_error(error)),
            }
        }
    }

    fn setup_error(&self, error: NfsSetupError) -> NfsConnectError {
        let server = self.server.clone();
        match error {
            NfsSetupError::Status(op, status) => NfsConnectError::Session {
                server,
                operation: op.name(),
                status,
            },
            NfsSetupError::Slots(_) => NfsConnectError::Nonsense(
                server,
                Op::CreateSession.name(),
                "a session with fewer than two slots",
            ),
            NfsSetupError::Parse(op, error) => {
                NfsConnectError::Violation(server, bad_results(op.name(), error))
            }
        }
    }

    /// An error in the results of a call.
    pub fn bad_results(&self, name: &'static str, error: ParseError) -> NfsConnectError {
        NfsConnectError::Violation(self.server.clone(), bad_results(name, error))
    }

    fn receive(&mut self, name: &'static str, limit: u32) -> Result<Vec<u8>, NfsConnectError> {
        let mut record = NfsRecord::default();
        let mut bytes = [0; READ_BYTES];
        let mut have = 0;
        while !record.is_complete() {
            // Updated for each piece, so that a server that trickles bytes doesn't get more time.
            let _ = self.socket().set_timeouts(Some(left(self.deadline)));
            let wanted = record.wants().min(READ_BYTES);
            match self.socket().read(&mut bytes[have..wanted]) {
                Ok(0) => {
                    let ended = io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the server closed the connection",
                    );
                    return Err(self.io_error(name, ended));
                }
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.io_error(name, error)),
            }
            let consumed = record.feed(&bytes[..have], limit);
            let consumed = consumed
                .map_err(|violation| NfsConnectError::Violation(self.server.clone(), violation))?;
            // The rest is an incomplete record mark.
            bytes.copy_within(consumed..have, 0);
            have -= consumed;
        }
        Ok(record.take())
    }

    fn io_error(&self, during: &'static str, error: io::Error) -> NfsConnectError {
        // The kernel reports a socket's timeout as "Resource temporarily unavailable".
        let error = match error.kind() {
            io::ErrorKind::WouldBlock => {
                io::Error::new(io::ErrorKind::TimedOut, "timed out waiting for a reply")
            }
            _ => error,
        };
        NfsConnectError::Io(self.server.clone(), during, error)
    }
}

impl Drop for NfsConversation {
    /// Ends the session, unless the connection was passed on with it.
    fn drop(&mut self) {
        if let (Some(socket), Some(grant)) = (&self.socket, self.grant()) {
            let farewell = NfsFarewell::new(grant, self.xid, &self.credentials);
            let limit = match self.is_lost {
                true => Duration::ZERO,
                false => GOODBYE_TIME,
            };
            say_goodbye(socket, farewell, limit);
        }
    }
}

/// Sends a connection's last messages and waits at most this long for the answers, so that the server frees
/// everything at once rather than when the lease expires.
pub(crate) fn say_goodbye(socket: &Socket, mut farewell: NfsFarewell, limit: Duration) {
    let (deadline, mut socket) = (Instant::now() + limit, socket);
    let (mut bytes, mut have) = ([0; READ_BYTES], 0);
    while let Some(records) = farewell.next_calls() {
        let _ = socket.set_timeouts(Some(GOODBYE_TIME));
        if records.iter().any(|call| socket.write_all(call).is_err()) {
            return;
        }
        while farewell.is_waiting() && Instant::now() < deadline {
            let _ = socket.set_timeouts(Some(left(deadline)));
            match socket.read(&mut bytes[have..]) {
                Ok(0) => return,
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Send the next messages anyway.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return,
            }
            let Some(consumed) = farewell.receive(&bytes[..have]) else {
                return;
            };
            // The rest is an incomplete record mark.
            bytes.copy_within(consumed..have, 0);
            have -= consumed;
        }
    }
}
