//! Encodes the operations that an NFSv4.1 client needs (RFC 8881) and their results: the counterpart of `parse_args`
//! and `results`.
//!
//! A compound begins with [`CompoundArgs::begin`] or [`CompoundResults::begin`], followed by its operations. Fields
//! that the parser skips get the value that NFSv4.1 prescribes (sequence numbers of owners are 0) or the simplest
//! value (no state protection, no implementation id).
//!
//! The rule: `parse(encode(x)) == x` for every operation that is encoded; operations that exist only in NFSv4.0 are
//! not.

use super::args::{Args, CreateKind, Locker, OpenClaim, OpenCreate};
use super::attributes::{Bitmap, FileAttributes, NfsTime};
use super::compound::{CompoundArgs, CompoundResults};
use super::results::{ChangeInfo, Delegation, Entries, Entry, OpResult, ResultBody};
use super::{Op, SessionChannel, Stateid, Status};
use crate::{Cursor, ParseError, XdrWriter};

/// AUTH_NONE, the callback flavor of a client that accepts no callbacks.
const AUTH_NONE: u32 = 0;

impl CompoundArgs<'_> {
    /// Appends the beginning of a call with `count` operations, which the caller then appends.
    pub fn begin(out: &mut Vec<u8>, minor_version: u32, count: u32) {
        let mut out = XdrWriter::new(out);
        out.opaque(&[]);
        out.u32(minor_version);
        out.u32(count);
    }
}

impl CompoundResults<'_> {
    /// Appends the beginning of a reply with `count` results, which the caller then appends.
    pub fn begin(out: &mut Vec<u8>, status: Status, count: u32) {
        let mut out = XdrWriter::new(out);
        out.u32(status.0);
        out.opaque(&[]);
        out.u32(count);
    }
}

impl Args<'_> {
    /// Appends the operation. If the data bytes of a WRITE are elsewhere, the data and its padding are omitted.
    ///
    /// # Panics
    /// Panics if an NFSv4.1 client has no use for the operation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let op = self.op().expect("an unknown operation cannot be encoded");
        let out = &mut XdrWriter::new(out);
        out.u32(op as u32);
        match *self {
            Args::Getfh
            | Args::Lookupp
            | Args::Putpubfh
            | Args::Putrootfh
            | Args::Readlink
            | Args::Restorefh
            | Args::Savefh => {}
            Args::Putfh { object } => out.opaque(object.0),
            Args::Access { access } => out.u32(access),
            Args::Getattr { mask } => bitmap(out, mask),
            Args::Lookup { name }
            | Args::Remove { name }
            | Args::Link { name }
            | Args::Secinfo { name } => out.opaque(name),
            Args::Rename { from, to } => {
                out.opaque(from);
                out.opaque(to);
            }
            Args::Create {
                kind,
                name,
                attributes,
            } => {
                create_kind(out, kind);
                out.opaque(name);
                attribute_list(out, attributes);
            }
            Args::Verify { attributes } => attribute_list(out, attributes),
            Args::Setattr {
                stateid,
                attributes,
            } => {
                out.raw(stateid);
                attribute_list(out, attributes);
            }
            Args::Readdir {
                cookie,
                verifier,
                dir_count,
                max_count,
                mask,
            } => {
                out.u64(cookie);
                out.u64(verifier);
                out.u32(dir_count);
                out.u32(max_count);
                bitmap(out, mask);
            }
            _ => self.encode_state(op, out),
        }
    }

    /// The arguments of operations on data and on the state of files.
    // Long because it has a case per operation.
    fn encode_state(&self, op: Op, out: &mut XdrWriter<'_>) {
        match *self {
            Args::Read {
                stateid,
                offset,
                count,
            } => {
                out.raw(stateid);
                out.u64(offset);
                out.u32(count);
            }
            Args::Write {
                stateid,
                offset,
                stable,
                data,
            } => {
                out.raw(stateid);
                out.u64(offset);
                out.u32(stable.number());
                out.data(data);
            }
            Args::Commit { offset, count } => {
                out.u64(offset);
                out.u32(count);
            }
            Args::Open {
                access,
                deny,
                client,
                owner,
                create,
                claim,
            } => {
                [0, access, deny].into_iter().for_each(|word| out.u32(word));
                out.u64(client);
                out.opaque(owner);
                open_create(out, create);
                open_claim(out, claim);
            }
            Args::Close { stateid } => {
                out.u32(0);
                out.raw(stateid);
            }
            Args::Delegreturn { stateid } => out.raw(stateid),
            Args::Lock {
                kind,
                reclaim,
                offset,
                length,
                locker,
            } => {
                out.u32(kind);
                out.boolean(reclaim);
                out.u64(offset);
                out.u64(length);
                lock_owner(out, locker);
            }
            Args::Lockt {
                kind,
                offset,
                length,
                client,
                owner,
            } => {
                out.u32(kind);
                out.u64(offset);
                out.u64(length);
                out.u64(client);
                out.opaque(owner);
            }
            Args::Locku {
                kind,
                stateid,
                offset,
                length,
            } => {
                out.u32(kind);
                out.u32(0);
                out.raw(stateid);
                out.u64(offset);
                out.u64(length);
            }
            _ => self.encode_session(op, out),
        }
    }

    /// The arguments of operations on clients and sessions.
    fn encode_session(&self, op: Op, out: &mut XdrWriter<'_>) {
        match *self {
            Args::Sequence {
                session,
                sequence,
                slot,
                highest_slot,
                cache,
            } => {
                out.raw(session);
                [sequence, slot, highest_slot]
                    .into_iter()
                    .for_each(|word| out.u32(word));
                out.boolean(cache);
            }
            Args::ExchangeId {
                verifier,
                owner,
                flags,
            } => {
                out.u64(verifier);
                out.opaque(owner);
                // Neither state protection (SP4_NONE) nor an implementation id.
                [flags, 0, 0].into_iter().for_each(|word| out.u32(word));
            }
            Args::CreateSession {
                client,
                sequence,
                flags,
                fore,
                back,
                callback_program,
            } => {
                out.u64(client);
                out.u32(sequence);
                out.u32(flags);
                channel(out, fore);
                channel(out, back);
                [callback_program, 1, AUTH_NONE]
                    .into_iter()
                    .for_each(|word| out.u32(word));
            }
            Args::DestroySession { session } => out.raw(session),
            Args::DestroyClientid { client } => out.u64(client),
            Args::ReclaimComplete { one_fs } => out.boolean(one_fs),
            _ => panic!("{} is not encoded", op.name()),
        }
    }
}

fn bitmap(out: &mut XdrWriter<'_>, mask: Bitmap<'_>) {
    let words = mask.as_bytes();
    out.u32(words.len() as u32 / 4);
    out.raw(words);
}

fn attribute_list(out: &mut XdrWriter<'_>, attributes: FileAttributes<'_>) {
    bitmap(out, attributes.mask);
    out.opaque(attributes.values);
}

fn create_kind(out: &mut XdrWriter<'_>, kind: CreateKind<'_>) {
    let (kind, numbers) = match kind {
        CreateKind::Link(target) => {
            out.u32(5);
            return out.opaque(target);
        }
        CreateKind::Block(numbers) => (3, Some(numbers)),
        CreateKind::Character(numbers) => (4, Some(numbers)),
        CreateKind::Plain(kind) => (kind, None),
    };
    out.u32(kind);
    let numbers = numbers.into_iter().flatten();
    numbers.for_each(|number| out.u32(number));
}

fn open_create(out: &mut XdrWriter<'_>, create: OpenCreate<'_>) {
    let (how, verifier, attributes) = match create {
        OpenCreate::No => return out.u32(0),
        OpenCreate::Unchecked(attributes) => (0, None, Some(attributes)),
        OpenCreate::Guarded(attributes) => (1, None, Some(attributes)),
        OpenCreate::Exclusive(verifier, None) => (2, Some(verifier), None),
        OpenCreate::Exclusive(verifier, attributes) => (3, Some(verifier), attributes),
    };
    out.u32(1);
    out.u32(how);
    if let Some(verifier) = verifier {
        out.u64(verifier);
    }
    if let Some(attributes) = attributes {
        attribute_list(out, attributes);
    }
}

fn open_claim(out: &mut XdrWriter<'_>, claim: OpenClaim<'_>) {
    let (number, stateid) = match claim {
        OpenClaim::Null(_) => (0, None),
        OpenClaim::Previous(_) => (1, None),
        OpenClaim::DelegateCur(stateid, _) => (2, Some(stateid)),
        OpenClaim::DelegatePrev(_) => (3, None),
        OpenClaim::Fh => (4, None),
        OpenClaim::DelegCurFh(stateid) => (5, Some(stateid)),
        OpenClaim::DelegPrevFh => (6, None),
    };
    out.u32(number);
    if let OpenClaim::Previous(delegation) = claim {
        out.u32(delegation);
    }
    if let Some(stateid) = stateid {
        out.raw(stateid);
    }
    if let Some(name) = claim.name() {
        out.opaque(name);
    }
}

fn lock_owner(out: &mut XdrWriter<'_>, locker: Locker<'_>) {
    match locker {
        Locker::New {
            open,
            client,
            owner,
        } => {
            out.boolean(true);
            out.u32(0);
            out.raw(open);
            out.u32(0);
            out.u64(client);
            out.opaque(owner);
        }
        Locker::Old(held) => {
            out.boolean(false);
            out.raw(held);
            out.u32(0);
        }
    }
}

/// `channel_attrs4`, without header padding and RDMA.
fn channel(out: &mut XdrWriter<'_>, channel: SessionChannel) {
    let SessionChannel {
        request_bytes_max,
        response_bytes_max,
        cached_bytes_max,
        operations_max,
        slots,
    } = channel;
    let words = [0, request_bytes_max, response_bytes_max, cached_bytes_max];
    let words = words.into_iter().chain([operations_max, slots, 0]);
    words.for_each(|word| out.u32(word));
}

impl OpResult<'_> {
    /// Appends the result.
    ///
    /// # Panics
    /// Panics if an NFSv4.1 server has no use for the body, or if it is a failure that consists of more than a
    /// status.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let out = &mut XdrWriter::new(out);
        out.u32(self.number);
        out.u32(self.status.0);
        match self.body {
            // The attributes that were set: none.
            ResultBody::Empty if self.number == Op::Setattr as u32 => out.u32(0),
            ResultBody::Empty => {}
            ResultBody::Access { supported, access } => {
                out.u32(supported);
                out.u32(access);
            }
            ResultBody::Getattr { attributes } => attribute_list(out, attributes),
            ResultBody::Getfh { object } => out.opaque(object.0),
            ResultBody::Changed { directory } => {
                change(out, directory);
                if self.number == Op::Create as u32 {
                    out.u32(0);
                }
            }
            ResultBody::Rename { from, to } => {
                change(out, from);
                change(out, to);
            }
            ResultBody::State { stateid } => out.raw(stateid),
            ResultBody::Read { eof, data } => {
                out.boolean(eof);
                out.data(data);
            }
            ResultBody::Readdir {
                verifier,
                entries,
                eof,
            } => {
                out.u64(verifier);
                out.raw(entries.wire());
                out.boolean(eof);
            }
            ResultBody::Readlink { target } => out.opaque(target),
            ResultBody::Write {
                count,
                committed,
                verifier,
            } => {
                out.u32(count);
                out.u32(committed.number());
                out.u64(verifier);
            }
            ResultBody::Commit { verifier } => out.u64(verifier),
            ResultBody::Denied {
                offset,
                length,
                kind,
                client,
                owner,
            } => {
                out.u64(offset);
                out.u64(length);
                out.u32(kind);
                out.u64(client);
                out.opaque(owner);
            }
            _ => self.encode_state(out),
        }
    }

    /// The results of operations on the state of files, on clients and on sessions.
    fn encode_state(&self, out: &mut XdrWriter<'_>) {
        match self.body {
            ResultBody::Open {
                stateid,
                directory,
                flags,
                delegation,
            } => {
                out.raw(stateid);
                change(out, directory);
                // The attributes that were set: none.
                out.u32(flags);
                out.u32(0);
                match delegation {
                    Delegation::None(None) => out.u32(0),
                    _ => panic!("delegations are not encoded"),
                }
            }
            ResultBody::ExchangeId {
                client,
                sequence,
                flags,
            } => {
                out.u64(client);
                // No state protection, an empty owner and scope, no implementation id.
                [sequence, flags, 0, 0, 0, 0, 0, 0]
                    .into_iter()
                    .for_each(|word| out.u32(word));
            }
            ResultBody::CreateSession {
                session,
                sequence,
                flags,
                fore,
                back,
            } => {
                out.raw(session);
                out.u32(sequence);
                out.u32(flags);
                channel(out, fore);
                channel(out, back);
            }
            ResultBody::Sequence {
                session,
                sequence,
                slot,
                highest_slot,
                target_highest_slot,
                flags,
            } => {
                out.raw(session);
                [sequence, slot, highest_slot, target_highest_slot, flags]
                    .into_iter()
                    .for_each(|word| out.u32(word));
            }
            other => panic!("{other:?} is not encoded"),
        }
    }
}

fn change(out: &mut XdrWriter<'_>, change: ChangeInfo) {
    out.boolean(change.atomic);
    out.u64(change.before);
    out.u64(change.after);
}

impl<'a> Entries<'a> {
    /// Builds a list of entries in the memory of `out`.
    ///
    /// # Errors
    /// A name or an attribute list is too long.
    pub fn of(entries: &[Entry<'_>], out: &'a mut Vec<u8>) -> Result<Entries<'a>, ParseError> {
        out.clear();
        let mut list = XdrWriter::new(out);
        for entry in entries {
            list.boolean(true);
            list.u64(entry.cookie);
            list.opaque(entry.name);
            attribute_list(&mut list, entry.attributes);
        }
        list.boolean(false);
        Entries::read(&mut Cursor::new(out))
    }
}

/// Attributes to be sent, with their values; appended in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub struct AttributeList {
    mask: Vec<u8>,
    values: Vec<u8>,
    next: u32,
}

impl AttributeList {
    /// Removes all attributes.
    pub fn clear(&mut self) {
        self.mask.clear();
        self.values.clear();
        self.next = 0;
    }

    /// Appends an attribute, whose value is written by `write`.
    ///
    /// # Panics
    /// Panics if this attribute or one with a higher number has already been appended.
    pub fn put(&mut self, number: u32, write: impl FnOnce(&mut XdrWriter<'_>)) {
        assert!(number >= self.next, "attributes are in ascending order");
        self.next = number + 1;
        let words = number as usize / 32 + 1;
        if self.mask.len() < words * 4 {
            self.mask.resize(words * 4, 0);
        }
        // Words are big-endian: bit 0 is in the last of their four bytes.
        self.mask[words * 4 - 1 - number as usize % 32 / 8] |= 1 << (number % 8);
        write(&mut XdrWriter::new(&mut self.values));
    }

    /// The attributes in wire format.
    pub fn as_attributes(&self) -> FileAttributes<'_> {
        FileAttributes {
            mask: Bitmap::of(&self.mask),
            values: &self.values,
        }
    }
}

/// Writes `settime4`: the server's time, or the given one.
pub fn write_set_time(out: &mut XdrWriter<'_>, time: Option<NfsTime>) {
    out.u32(time.is_some().into());
    if let Some(time) = time {
        write_time(out, time);
    }
}

/// Writes `nfstime4`.
pub fn write_time(out: &mut XdrWriter<'_>, time: NfsTime) {
    out.u64(time.seconds as u64);
    out.u32(time.nseconds);
}

/// The stateid for no open file (RFC 8881, 8.2.3): a server checks the caller's permissions on every access.
pub const ANONYMOUS: &Stateid = &[0; 16];

/// The stateid that was last returned in the same compound (RFC 8881, 16.2.3.1.2).
pub const CURRENT_STATEID: &Stateid = &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
