//! How a client gets a session and keeps it across connections: the compounds for that, and their replies.
//! [`crate::conversation`] sends the calls.
//!
//! A seat is one client with one session. The last slot of the session is the seat's own, for calls while a connection
//! is set up; the others belong to [`super::NfsSlots`].
//!
//! The one rule: a seat's client id is as unique as its verifier, so that no other process ends its session.

use std::process;
use std::time::Duration;

use brunt_wire::nfs::v4::{
    Args, Bitmap, CompoundArgs, CompoundResults, Op, ResultBody, SessionChannel, Stateid, Status,
    bitmap_words,
};
use brunt_wire::nfs::{DATA_BYTES_MAX, FileHandle};
use brunt_wire::{Cursor, Malformed, ParseError};

use super::call::begin_compound;
use super::locks::{NfsRange, encode_lock};
use super::opens::{NfsOpenFile, encode_open};
use super::session::{NfsSlot, put_slot};
use crate::rpc::REPLY_HEAD_BYTES_MAX;

/// `EXCHGID4_FLAG_USE_NON_PNFS` (RFC 8881, 18.35.1).
const USE_NON_PNFS: u32 = 0x0001_0000;
/// Maximum bytes of a reply that the server keeps: replies with data or entries are not kept.
const CACHED_BYTES: u32 = REPLY_HEAD_BYTES_MAX + 1024;
/// Bytes of a call beyond its data: an RPC header with a credential, two handles, two names.
const CALL_HEAD_BYTES: u32 = 4096;
/// When a client ends, one compound closes up to this many files, with two operations each after SEQUENCE. Calls need
/// fewer operations, at most 6 (`call::operations`).
const CLOSES: u32 = 31;
const OPERATIONS: u32 = 1 + 2 * CLOSES;
/// Callbacks are not received, but servers require a callback program; libnfs and Linux send one too.
const CALLBACK_PROGRAM: u32 = 0x4000_0000;
/// The lease if the server doesn't state one (RFC 8881 has no default; Linux's server uses this one).
const LEASE: Duration = Duration::from_secs(90);

/// A session that a server granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsGrant {
    /// The client's id.
    pub client: u64,
    /// The session's id.
    pub session: [u8; 16],
    /// Number of slots for calls.
    pub slots: u32,
    /// Maximum data of a WRITE, by the session's limits.
    pub write_bytes_max: u32,
    /// Maximum data of a READ.
    pub read_bytes_max: u32,
    /// Maximum operations of a compound.
    pub operations: u32,
    /// Time without a call after which the server may forget the client.
    pub lease: Duration,
}

/// Why a server granted no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NfsSetupError {
    /// A status.
    Status(Op, Status),
    /// A session that is too small.
    Slots(u32),
    /// Not a reply to this call.
    Parse(Op, ParseError),
}

/// A client and its session.
#[derive(Clone, Debug)]
pub struct NfsSeat {
    owner: Vec<u8>,
    verifier: u64,
    slots: u32,
    grant: Option<NfsGrant>,
    /// The number of the last call executed on the seat's own slot.
    executed: u32,
    /// The files that it had open when its connection was lost, or that it has reclaimed since.
    opens: Vec<NfsOpenFile>,
}

impl NfsSeat {
    /// A client without a session, which will request this many slots for calls. `random` distinguishes it from other
    /// clients.
    pub fn new(slots: u32, random: u64) -> NfsSeat {
        NfsSeat {
            owner: format!("brunt {}-{random:016x}", process::id()).into_bytes(),
            verifier: random,
            slots,
            grant: None,
            executed: 0,
            opens: Vec::new(),
        }
    }

    /// Takes the list of files that are open, or were when the connection was lost.
    pub(crate) fn take_opens(&mut self) -> Vec<NfsOpenFile> {
        std::mem::take(&mut self.opens)
    }

    /// Sets the files that are open.
    pub(crate) fn put_opens(&mut self, files: Vec<NfsOpenFile>) {
        self.opens = files;
    }

    /// The session, if there is one.
    pub fn grant(&self) -> Option<NfsGrant> {
        self.grant
    }

    /// Forgets the session, which no longer exists.
    pub fn forget(&mut self) {
        self.grant = None;
    }

    /// The slot of the seat's next call.
    pub(crate) fn slot(&self) -> Option<NfsSlot> {
        let NfsGrant { session, slots, .. } = self.grant?;
        Some(NfsSlot {
            session,
            slot: slots,
            sequence: self.executed.wrapping_add(1),
            highest: slots,
        })
    }

    /// Records that the server executed a call on the seat's slot.
    pub(crate) fn on_executed(&mut self) {
        self.executed = self.executed.wrapping_add(1);
    }

    /// Appends EXCHANGE_ID, the first call. Each has a new verifier, so the server assumes that the client restarted
    /// and discards the previous session, whatever its state (RFC 8881, 18.35.4).
    pub(crate) fn exchange_id(&mut self, out: &mut Vec<u8>) {
        self.verifier = self.verifier.wrapping_add(1);
        let args = Args::ExchangeId {
            verifier: self.verifier,
            owner: &self.owner,
            flags: USE_NON_PNFS,
        };
        compound(&[args], out);
    }

    /// Parses the results of EXCHANGE_ID: the client's id, and the sequence number for CREATE_SESSION.
    pub(crate) fn on_exchange_id(body: &[u8]) -> Result<(u64, u32), NfsSetupError> {
        match only(Op::ExchangeId, body)? {
            ResultBody::ExchangeId {
                client, sequence, ..
            } => Ok((client, sequence)),
            _ => Err(unexpected(Op::ExchangeId)),
        }
    }

    /// Appends CREATE_SESSION, the second call.
    pub(crate) fn create_session(&self, (client, sequence): (u64, u32), out: &mut Vec<u8>) {
        let fore = SessionChannel {
            request_bytes_max: DATA_BYTES_MAX + CALL_HEAD_BYTES,
            response_bytes_max: DATA_BYTES_MAX + REPLY_HEAD_BYTES_MAX,
            cached_bytes_max: CACHED_BYTES,
            operations_max: OPERATIONS,
            slots: self.slots + 1,
        };
        // The back channel isn't used, but has to be described.
        let back = SessionChannel {
            request_bytes_max: CALL_HEAD_BYTES,
            response_bytes_max: CALL_HEAD_BYTES,
            cached_bytes_max: 0,
            operations_max: 2,
            slots: 1,
        };
        let args = Args::CreateSession {
            client,
            sequence,
            flags: 0,
            fore,
            back,
            callback_program: CALLBACK_PROGRAM,
        };
        compound(&[args], out);
    }

    /// Parses the results of CREATE_SESSION: the session.
    pub(crate) fn on_create_session(
        &mut self,
        client: u64,
        body: &[u8],
    ) -> Result<(), NfsSetupError> {
        let ResultBody::CreateSession { session, fore, .. } = only(Op::CreateSession, body)? else {
            return Err(unexpected(Op::CreateSession));
        };
        let data = |bytes: u32, head: u32| bytes.saturating_sub(head).min(DATA_BYTES_MAX);
        let slots = fore.slots.min(self.slots + 1);
        let grant = NfsGrant {
            client,
            session: *session,
            slots: slots.saturating_sub(1),
            write_bytes_max: data(fore.request_bytes_max, CALL_HEAD_BYTES),
            read_bytes_max: data(fore.response_bytes_max, REPLY_HEAD_BYTES_MAX),
            operations: fore.operations_max.min(OPERATIONS),
            lease: LEASE,
        };
        if grant.slots == 0 {
            return Err(NfsSetupError::Slots(fore.slots));
        }
        (self.grant, self.executed) = (Some(grant), 0);
        Ok(())
    }

    /// Appends a call on the seat's slot that reclaims a file which was open before the server restarted.
    pub(crate) fn reclaim(&self, file: &NfsOpenFile, out: &mut Vec<u8>) {
        let slot = self.slot().expect("a session");
        let slot_at = begin_compound(3, false, out);
        let object = FileHandle(&file.handle);
        Args::Putfh { object }.encode(out);
        encode_open(file.owner, file.access, true, out);
        put_slot(out, slot_at, &slot);
    }

    /// Appends a call on the seat's slot that reclaims a lock on a file that was reclaimed. `held` is the stateid of
    /// the owner's locks that are reclaimed already.
    pub(crate) fn reclaim_lock(
        &self,
        file: &NfsOpenFile,
        (owner, held): (u32, Option<&Stateid>),
        range: NfsRange,
        out: &mut Vec<u8>,
    ) {
        let slot = self.slot().expect("a session");
        let slot_at = begin_compound(3, false, out);
        let object = FileHandle(&file.handle);
        Args::Putfh { object }.encode(out);
        encode_lock(range, owner, (&file.stateid, held), true, out);
        put_slot(out, slot_at, &slot);
    }

    /// Appends the last call of the setup, on the seat's slot: it asks for the lease time, and says that nothing else
    /// will be reclaimed; until then, a server refuses to open files (RFC 8881, 18.51.3).
    pub(crate) fn begin(&self, out: &mut Vec<u8>) {
        const LEASE_TIME: [u8; 4] = bitmap_words(&[10]);
        let slot = self.slot().expect("a session");
        let slot_at = begin_compound(4, false, out);
        let mask = Bitmap::of(&LEASE_TIME);
        let operations = [
            Args::Putrootfh,
            Args::Getattr { mask },
            Args::ReclaimComplete { one_fs: false },
        ];
        operations.iter().for_each(|args| args.encode(out));
        put_slot(out, slot_at, &slot);
    }

    /// Handles the results of the call that [`NfsSeat::begin`] appends.
    pub(crate) fn on_begin(&mut self, body: &[u8]) -> Result<(), NfsSetupError> {
        let parse = |error| NfsSetupError::Parse(Op::ReclaimComplete, error);
        let reply = CompoundResults::parse(&mut Cursor::new(body)).map_err(parse)?;
        self.on_executed();
        let grant = self.grant.as_mut().expect("a session");
        for result in reply.operations() {
            let result = result.map_err(parse)?;
            if let ResultBody::Getattr { attributes } = result.body
                && let Some(Ok(seconds)) = attributes.find(10).map(|mut cur| cur.u32())
                && seconds > 0
            {
                grant.lease = Duration::from_secs(seconds.into());
            }
            match Op::from_number(result.number) {
                // The server knows the client already; only the session is new.
                Some(Op::ReclaimComplete) if result.status == Status::COMPLETE_ALREADY => {}
                Some(op) if result.status != Status::OK => {
                    return Err(NfsSetupError::Status(op, result.status));
                }
                Some(_) => {}
                None => return Err(unexpected(Op::ReclaimComplete)),
            }
        }
        match reply.count {
            0 => Err(NfsSetupError::Status(Op::Sequence, reply.status)),
            _ => Ok(()),
        }
    }
}

fn compound(operations: &[Args<'_>], out: &mut Vec<u8>) {
    CompoundArgs::begin(out, 1, operations.len() as u32);
    operations.iter().for_each(|args| args.encode(out));
}

fn unexpected(op: Op) -> NfsSetupError {
    NfsSetupError::Parse(
        op,
        Malformed::new(0, "result is for another operation").into(),
    )
}

/// The results of a compound with a single operation.
fn only(op: Op, body: &[u8]) -> Result<ResultBody<'_>, NfsSetupError> {
    let parse = |error| NfsSetupError::Parse(op, error);
    let reply = CompoundResults::parse(&mut Cursor::new(body)).map_err(parse)?;
    if reply.status != Status::OK {
        return Err(NfsSetupError::Status(op, reply.status));
    }
    match reply.operations().next() {
        Some(result) => Ok(result.map_err(parse)?.body),
        None => Err(unexpected(op)),
    }
}
