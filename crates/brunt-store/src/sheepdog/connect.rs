//! Connects to a sheep, locks the VDI, and reads its inode. Blocking, with a single deadline; called when a device is
//! opened, and on a separate thread to restore a lost connection.
//!
//! A lock belongs to the VDI and the sheep, not to the connection: it persists until it is released ([`release`]).
//! Clusters have locks only if they were formatted with `dog cluster format -l`; others answer LOCK_VDI without doing
//! anything.
//!
//! The one rule: the resulting connection holds the requested lock, with no unread data in its socket.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use brunt_block::attempts::{Attempted, AttemptsFailed, in_attempts};
use brunt_block::dial::{self, DialError, left};
use brunt_block::socket::Socket;
use brunt_wire::sheepdog::header::{HEADER_BYTES, SheepdogSubject, flag};
use brunt_wire::sheepdog::inode::{DATA_VDI_ID_OFFSET, FIELDS_BYTES, parse_map};
use brunt_wire::sheepdog::{
    SheepdogInode, SheepdogOpcode, SheepdogRequest, SheepdogResponse, encode_names, inode_object,
    result,
};

use super::connect_error::SheepdogConnectError;
use super::url::SheepdogConfig;

/// Time limit for releasing locks, the last thing that a process does.
const RELEASE_TIME: Duration = Duration::from_secs(2);
/// The id of requests that are sent one at a time.
const ID: u32 = 1;

/// Whether to lock the VDI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SheepdogLock {
    /// Lock it; another client's lock is an error.
    Take,
    /// This process had locked it: lock it again in case the cluster has forgotten the lock, for example after a
    /// restart of all sheep. An existing lock is assumed to be ours, since its owner cannot be determined.
    Keep,
    /// Don't lock it.
    Without,
}

/// A connection that is ready for requests.
#[derive(Debug)]
pub struct SheepdogConnection {
    /// The connection's socket.
    pub socket: Socket,
    /// The disk's properties.
    pub inode: SheepdogInode,
    /// Which VDI wrote each of its objects; `None` if the caller already has the map.
    pub map: Option<Vec<u32>>,
    /// Number of failed attempts before this connection.
    pub retries: u32,
    /// Why the last of them failed.
    pub trouble: Option<String>,
}

/// Connects, with as many attempts as fit in the configured timeout. Reads the map unless the disk is VDI `known`.
///
/// # Errors
/// See [`SheepdogConnectError`].
pub fn connect(
    config: &SheepdogConfig,
    lock: SheepdogLock,
    known: Option<u32>,
) -> Result<SheepdogConnection, SheepdogConnectError> {
    let once = |time| connect_once(config, lock, known, time);
    let attempted = in_attempts(
        config.timeout,
        SheepdogConnectError::is_of_the_network,
        once,
    );
    let Attempted {
        value,
        retries,
        trouble,
    } = attempted.map_err(
        |AttemptsFailed {
             last,
             attempts,
             time,
         }| match attempts {
            1 => last,
            _ => SheepdogConnectError::AttemptsFailed {
                attempts,
                time,
                last: Box::new(last),
            },
        },
    )?;
    Ok(SheepdogConnection {
        retries,
        trouble: trouble.map(|trouble| trouble.to_string()),
        ..value
    })
}

/// Like [`connect`], but makes a single attempt, for callers with their own retry rule.
///
/// # Errors
/// See [`SheepdogConnectError`].
pub fn connect_once(
    config: &SheepdogConfig,
    lock: SheepdogLock,
    known: Option<u32>,
    limit: Duration,
) -> Result<SheepdogConnection, SheepdogConnectError> {
    let mut wire = Wire::connect(config, Instant::now() + limit)?;
    let vdi = wire.find(lock)?;
    let read = wire.read_inode(vdi, known);
    if read.is_err() && lock == SheepdogLock::Take {
        // Release the lock; otherwise the VDI would stay locked.
        let _ = wire.release(vdi);
    }
    let (inode, map) = read?;
    let error = |error| SheepdogConnectError::Io(config.address(), "setting up its socket", error);
    wire.socket.set_timeouts(None).map_err(error)?;
    Ok(SheepdogConnection {
        socket: wire.socket,
        inode,
        map,
        retries: 0,
        trouble: None,
    })
}

/// Releases the locks of VDIs over a separate connection. There is more than one lock if snapshots were taken.
///
/// # Errors
/// See [`SheepdogConnectError`]; the VDIs may still be locked.
pub fn release(config: &SheepdogConfig, vdis: &[u32]) -> Result<(), SheepdogConnectError> {
    let mut wire = Wire::connect(config, Instant::now() + RELEASE_TIME)?;
    vdis.iter().try_for_each(|vdi| wire.release(*vdi))
}

/// A blocking connection with a deadline.
struct Wire<'a> {
    socket: Socket,
    config: &'a SheepdogConfig,
    deadline: Instant,
}

impl Wire<'_> {
    fn connect(
        config: &SheepdogConfig,
        deadline: Instant,
    ) -> Result<Wire<'_>, SheepdogConnectError> {
        match dial::tcp(&config.host, config.port, deadline) {
            Ok(socket) => {
                let _ = socket.set_nodelay(true);
                Ok(Wire {
                    socket: socket.into(),
                    config,
                    deadline,
                })
            }
            Err(DialError::Resolve(error)) => {
                Err(SheepdogConnectError::Resolve(config.address(), error))
            }
            Err(DialError::Connect(error)) => {
                Err(SheepdogConnectError::Connect(config.address(), error))
            }
        }
    }

    /// Finds the VDI's id and locks the VDI.
    fn find(&mut self, lock: SheepdogLock) -> Result<u32, SheepdogConnectError> {
        let config = self.config;
        let snapshot = config.snapshot.as_deref().unwrap_or("");
        // As in dog and QEMU: a number is a snapshot number, anything else a tag.
        let (number, tag) = match snapshot.parse::<u32>() {
            Ok(number) if number > 0 => (number, ""),
            _ => (0, snapshot),
        };
        let mut ask = |opcode| {
            let subject = SheepdogSubject::Vdi {
                size_bytes: 0,
                vdi: 0,
                snapshot: number,
            };
            self.exchange(opcode, subject, &encode_names(&config.vdi, tag), 0)
        };
        if lock != SheepdogLock::Without {
            let (locked, _) = ask(SheepdogOpcode::LockVdi)?;
            match (locked.result, lock) {
                (result::SUCCESS, _) => return Ok(locked.vdi),
                (result::VDI_LOCKED, SheepdogLock::Keep) => {}
                (result, _) => return Err(self.refused("LOCK_VDI", result)),
            }
        }
        let (found, _) = ask(SheepdogOpcode::GetVdiInfo)?;
        match found.result {
            result::SUCCESS => Ok(found.vdi),
            result => Err(self.refused("GET_VDI_INFO", result)),
        }
    }

    fn release(&mut self, vdi: u32) -> Result<(), SheepdogConnectError> {
        let subject = SheepdogSubject::Vdi {
            size_bytes: 0,
            vdi,
            snapshot: 0,
        };
        let names = encode_names(&self.config.vdi, "");
        match self
            .exchange(SheepdogOpcode::ReleaseVdi, subject, &names, 0)?
            .0
            .result
        {
            result::SUCCESS => Ok(()),
            result => Err(self.refused("RELEASE_VDI", result)),
        }
    }

    fn read_inode(
        &mut self,
        vdi: u32,
        known: Option<u32>,
    ) -> Result<(SheepdogInode, Option<Vec<u32>>), SheepdogConnectError> {
        let unusable = |what: String| SheepdogConnectError::Vdi(self.config.name(), what);
        let violation = |what: String| {
            SheepdogConnectError::Violation(self.config.address(), format!("the inode: {what}"))
        };
        let fields = self.read_object(inode_object(vdi), 0, FIELDS_BYTES as u32)?;
        let inode = SheepdogInode::parse(&fields).map_err(|error| violation(error.to_string()))?;
        if inode.vdi != vdi || inode.name != self.config.vdi {
            return Err(violation(format!(
                "it is of VDI {:x}, '{}'",
                inode.vdi, inode.name
            )));
        }
        if inode.store_policy != 0 {
            return Err(unusable(
                "hypervolumes (dog vdi create -y) are not supported, only VDIs of at most 1048576 \
                 objects"
                    .to_string(),
            ));
        }
        if known == Some(vdi) {
            return Ok((inode, None));
        }
        let count = inode.objects_count();
        let bytes = match count {
            0 => Vec::new(),
            count => self.read_object(inode_object(vdi), DATA_VDI_ID_OFFSET, 4 * count)?,
        };
        let map = parse_map(&bytes, count).map_err(|error| violation(error.to_string()))?;
        Ok((inode, Some(map)))
    }

    fn read_object(
        &mut self,
        object: u64,
        offset: u32,
        len: u32,
    ) -> Result<Vec<u8>, SheepdogConnectError> {
        let subject = SheepdogSubject::Object {
            object,
            cow_object: 0,
            copies: 0,
            offset,
        };
        let (read, data) = self.exchange(SheepdogOpcode::ReadObj, subject, &[], len)?;
        if read.result != result::SUCCESS {
            return Err(self.refused("READ_OBJ of the inode", read.result));
        }
        match data.len() == len as usize {
            true => Ok(data),
            false => Err(self.violation("the inode is shorter than requested")),
        }
    }

    /// Sends a request and receives its response with at most `expected` bytes of data.
    fn exchange(
        &mut self,
        opcode: SheepdogOpcode,
        subject: SheepdogSubject,
        data: &[u8],
        expected: u32,
    ) -> Result<(SheepdogResponse, Vec<u8>), SheepdogConnectError> {
        let flags = if data.is_empty() {
            flag::DIRECT
        } else {
            flag::WRITE
        };
        let data_len = if data.is_empty() {
            expected
        } else {
            data.len() as u32
        };
        let request = SheepdogRequest {
            opcode,
            flags,
            id: ID,
            data_len,
            subject,
        };
        let during = "the handshake";
        let _ = self.socket.set_timeouts(Some(left(self.deadline)));
        let sent = (&self.socket).write_all(&[&request.encode()[..], data].concat());
        sent.map_err(|error| self.io_error(during, error))?;
        let mut header = [0; HEADER_BYTES];
        self.read(&mut header, during)?;
        let response = SheepdogResponse::parse(&header).expect("a complete header");
        if response.id != ID {
            return Err(self.violation("it replied to an unknown request"));
        }
        // In some versions, error responses carry as much data as the request.
        if response.data_len > expected.max(data.len() as u32) {
            return Err(self.violation("the reply is longer than requested"));
        }
        let mut bytes = vec![0; response.data_len as usize];
        self.read(&mut bytes, during)?;
        Ok((response, bytes))
    }

    fn read(&mut self, bytes: &mut [u8], during: &'static str) -> Result<(), SheepdogConnectError> {
        let mut at = 0;
        while at < bytes.len() {
            // Updated for each piece, so that a server that trickles bytes doesn't get more time.
            let _ = self.socket.set_timeouts(Some(left(self.deadline)));
            match (&self.socket).read(&mut bytes[at..]) {
                Ok(0) => {
                    let ended = io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the server closed the connection",
                    );
                    return Err(self.io_error(during, ended));
                }
                Ok(count) => at += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io_error(during, error)),
            }
        }
        Ok(())
    }

    fn io_error(&self, during: &'static str, error: io::Error) -> SheepdogConnectError {
        // The kernel reports a socket's timeout as "Resource temporarily unavailable".
        let error = match error.kind() {
            io::ErrorKind::WouldBlock => {
                io::Error::new(io::ErrorKind::TimedOut, "timed out waiting for a reply")
            }
            _ => error,
        };
        SheepdogConnectError::Io(self.config.address(), during, error)
    }

    fn refused(&self, during: &'static str, result: u32) -> SheepdogConnectError {
        SheepdogConnectError::Refused {
            name: self.config.name(),
            during,
            result,
        }
    }

    fn violation(&self, what: &str) -> SheepdogConnectError {
        SheepdogConnectError::Violation(self.config.address(), what.to_string())
    }
}
