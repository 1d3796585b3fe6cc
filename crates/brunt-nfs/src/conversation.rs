//! One call at a time to one program of a server. Blocking, with one deadline for all of it; used when a device is
//! opened and, on a separate thread, to restore a lost connection.
//!
//! The one rule: after a call, nothing is unread in the socket, so the connection can be handed on.

use std::io::{self, Read, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

use brunt_block::dial::{self, DialError, left};
use brunt_block::socket::Socket;
use brunt_wire::nfs::v3::{Args, Procedure, Results, Status, parse_results};
use brunt_wire::rpc::{PROGRAM_NFS, ReplyStatus, Xid};
use brunt_wire::{Cursor, ParseError};

use crate::calls::reply_data_max;
use crate::connect_error::NfsConnectError;
use crate::record::NfsRecord;
use crate::rpc::{
    NfsViolation, REPLY_HEAD_BYTES_MAX, bad_results, begin_call, finish_record, parse_reply,
};

/// Delay before a call is made again whose answer is NFS3ERR_JUKEBOX.
const JUKEBOX_PAUSE: Duration = Duration::from_millis(200);
/// Size of one read: replies are short.
const READ_BYTES: usize = 16 << 10;

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
    /// Call from ports below 1024.
    pub reserved_port: bool,
    /// The body of the AUTH_SYS credential in every call.
    pub credentials: &'a [u8],
}

/// A blocking connection with a deadline.
#[derive(Debug)]
pub struct NfsConversation {
    socket: Socket,
    /// The server with its port, for messages.
    server: String,
    deadline: Instant,
    credentials: Vec<u8>,
    xid: Xid,
    call: Vec<u8>,
    reply: Vec<u8>,
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
            socket: socket.into(),
            server,
            deadline,
            credentials: credentials.to_vec(),
            xid: first_xid,
            call: Vec::new(),
            reply: Vec::new(),
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

    /// The connection without a deadline, to be put on a ring.
    ///
    /// # Errors
    /// The socket cannot be set up.
    pub fn into_socket(self) -> Result<Socket, NfsConnectError> {
        let set = self.socket.set_timeouts(None);
        set.map_err(|error| NfsConnectError::Io(self.server, "setting up its socket", error))?;
        Ok(self.socket)
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
        let _ = self.socket.set_timeouts(Some(left(self.deadline)));
        let sent = (&self.socket).write_all(&self.call);
        sent.map_err(|error| self.io_error(name, error))?;
        self.reply = self.receive(name, limit.saturating_add(REPLY_HEAD_BYTES_MAX))?;
        let violation = |violation| NfsConnectError::Violation(self.server.clone(), violation);
        let header = parse_reply(&self.reply, name).map_err(violation)?;
        if header.xid != self.xid {
            return Err(violation(NfsViolation::Xid(header.xid.0)));
        }
        match header.status {
            ReplyStatus::Success => Ok(Cursor::new(&self.reply[header.body_at..])),
            status => Err(NfsConnectError::Refused(self.server.clone(), name, status)),
        }
    }

    /// Calls a procedure of NFSv3. A server that asks to wait (NFS3ERR_JUKEBOX) is asked again until the deadline.
    ///
    /// # Errors
    /// As [`NfsConversation::call`]; any status of the server is a result.
    pub fn nfs(&mut self, args: &Args<'_>) -> Result<Results<'_>, NfsConnectError> {
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
            let _ = self.socket.set_timeouts(Some(left(self.deadline)));
            let wanted = record.wants().min(READ_BYTES);
            match (&self.socket).read(&mut bytes[have..wanted]) {
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
