//! An NFSv3 call as an NFSv4.1 compound: SEQUENCE, the file or directory, and the operations on it.
//!
//! The rule: which operations a compound has follows from the procedure alone ([`operations`]), so a reply can be
//! checked without its call.

use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{self, CreateHow, NodeKind, Procedure, SetAttributes};
use brunt_wire::nfs::v4::{
    ANONYMOUS, Args, AttributeList, Bitmap, CURRENT_STATEID, CompoundArgs, CreateKind,
    FileAttributes, NfsTime, Op, OpenClaim, OpenCreate, bitmap_words, write_set_time, write_time,
};

use super::opens::{ACCESS_READ, ACCESS_WRITE, WANT_NO_DELEGATION, encode_open};

/// The attributes that NFSv3 has: type, size, fsid, fileid; mode, numlinks, owner, owner_group, rawdev, space_used,
/// time_access, time_metadata, time_modify.
const FILE: [u8; 8] = bitmap_words(&[1, 4, 8, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53]);
/// In directory entries: fileid.
const ENTRY: [u8; 4] = bitmap_words(&[20]);
/// In directory entries with attributes: those of [`FILE`], with rdattr_error and filehandle.
const ENTRY_PLUS: [u8; 8] =
    bitmap_words(&[1, 4, 8, 11, 19, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53]);
/// For FSSTAT: files_avail, files_free, files_total, space_avail, space_free, space_total.
const SPACE: [u8; 8] = bitmap_words(&[21, 22, 23, 42, 43, 44]);
/// For FSINFO: maxfilesize, maxread, maxwrite.
const LIMITS: [u8; 4] = bitmap_words(&[27, 30, 31]);
/// For PATHCONF: case_insensitive, case_preserving, chown_restricted, maxlink, maxname, no_trunc.
const NAMES: [u8; 8] = bitmap_words(&[16, 17, 18, 28, 29, 34]);

/// The owner of files while they are created.
const OWNER: &[u8] = b"brunt";

/// The operations of a procedure's compound; PUTROOTFH may take the place of PUTFH, and [`is_optional`] says which may
/// be absent.
pub(super) const fn operations(procedure: Procedure) -> &'static [Op] {
    use Op::{
        Access, Close, Commit, Create, Getattr, Getfh, Link, Lookup, Open, Putfh, Read, Readdir,
        Readlink, Remove, Rename, Savefh, Sequence, Setattr, Verify, Write,
    };
    match procedure {
        Procedure::Null => &[Sequence],
        Procedure::Getattr | Procedure::Fsstat | Procedure::Fsinfo | Procedure::Pathconf => {
            &[Sequence, Putfh, Getattr]
        }
        Procedure::Setattr => &[Sequence, Putfh, Verify, Setattr],
        Procedure::Lookup => &[Sequence, Putfh, Lookup, Getfh, Getattr],
        Procedure::Access => &[Sequence, Putfh, Access],
        Procedure::Readlink => &[Sequence, Putfh, Readlink],
        Procedure::Read => &[Sequence, Putfh, Open, Read, Close],
        Procedure::Write => &[Sequence, Putfh, Open, Write, Close],
        Procedure::Create => &[Sequence, Putfh, Open, Getfh, Getattr, Close],
        Procedure::Mkdir | Procedure::Symlink | Procedure::Mknod => {
            &[Sequence, Putfh, Create, Getfh, Getattr]
        }
        Procedure::Remove | Procedure::Rmdir => &[Sequence, Putfh, Remove],
        Procedure::Rename => &[Sequence, Putfh, Savefh, Putfh, Rename],
        Procedure::Link => &[Sequence, Putfh, Savefh, Putfh, Link],
        Procedure::Readdir | Procedure::Readdirplus => &[Sequence, Putfh, Readdir],
        Procedure::Commit => &[Sequence, Putfh, Commit],
    }
}

/// A SETATTR has a VERIFY only if it has a guard; READ and WRITE have an OPEN only if the file isn't open, and a CLOSE
/// only if it doesn't stay open.
pub(super) const fn is_optional(procedure: Procedure, op: Op) -> bool {
    matches!(
        (procedure, op),
        (Procedure::Setattr, Op::Verify)
            | (Procedure::Read | Procedure::Write, Op::Open | Op::Close)
    )
}

/// What the compound of a READ or WRITE does to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NfsFileAccess {
    /// Opens and closes it.
    Within,
    /// Nothing: the caller adds a stateid, or an OPEN before the operation.
    Elsewhere,
}

/// Offsets of the parts of an encoded compound that become known later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NfsEncoded {
    /// The slot ([`super::put_slot`]).
    pub slot_at: usize,
    /// The operation that has a stateid of the file: READ, WRITE, or a SETATTR of the length.
    pub io_at: Option<usize>,
}

/// Begins a compound with `count` operations by a SEQUENCE. Returns the slot's offset.
pub(super) fn begin_compound(count: u32, cache: bool, out: &mut Vec<u8>) -> usize {
    CompoundArgs::begin(out, 1, count);
    let sequence = Args::Sequence {
        session: &[0; 16],
        sequence: 0,
        slot: 0,
        highest_slot: 0,
        cache,
    };
    sequence.encode(out);
    // SEQUENCE consists of the operation's number, a 16-byte session id and 16 bytes of numbers.
    out.len() - 36 + 4
}

/// Whether a server has to keep the reply, because executing the call twice differs from executing it once.
const fn changes(procedure: Procedure) -> bool {
    matches!(
        procedure,
        Procedure::Setattr
            | Procedure::Create
            | Procedure::Mkdir
            | Procedure::Symlink
            | Procedure::Mknod
            | Procedure::Remove
            | Procedure::Rmdir
            | Procedure::Rename
            | Procedure::Link
    )
}

/// Appends the compound of a call to `out`, without data that is elsewhere. An empty handle stands for the server's
/// root.
// Long because it has a case per procedure.
pub(crate) fn encode_call(
    args: &v3::Args<'_>,
    access: NfsFileAccess,
    list: &mut AttributeList,
    out: &mut Vec<u8>,
) -> NfsEncoded {
    let procedure = args.procedure();
    let absent = match args {
        v3::Args::Setattr { guard: None, .. } => 1,
        v3::Args::Read { .. } | v3::Args::Write { .. } if access == NfsFileAccess::Elsewhere => 2,
        _ => 0,
    };
    let count = operations(procedure).len() - absent;
    let slot_at = begin_compound(count as u32, changes(procedure), out);
    if let Some(handle) = args.handle() {
        put_file(handle, out);
    }
    let mut io_at = None;
    match *args {
        v3::Args::Read { .. } | v3::Args::Write { .. } => io_at = Some(data(args, access, out)),
        v3::Args::Commit { offset, count, .. } => Args::Commit { offset, count }.encode(out),
        v3::Args::Lookup { what } => {
            Args::Lookup { name: what.name }.encode(out);
            handle_and_attributes(out);
        }
        v3::Args::Access { access, .. } => Args::Access { access }.encode(out),
        v3::Args::Readlink { .. } => Args::Readlink.encode(out),
        v3::Args::Setattr {
            attributes, guard, ..
        } => {
            if let Some(ctime) = guard {
                list.clear();
                list.put(52, |out| write_time(out, nfs_time(ctime)));
                let attributes = list.as_attributes();
                Args::Verify { attributes }.encode(out);
            }
            settable(&attributes, list);
            io_at = attributes.size.map(|_| out.len());
            Args::Setattr {
                stateid: ANONYMOUS,
                attributes: list.as_attributes(),
            }
            .encode(out);
        }
        v3::Args::Readdir { .. } | v3::Args::Readdirplus { .. } => readdir(args, out),
        v3::Args::Null => {}
        v3::Args::Getattr { .. } => getattr(&FILE, out),
        v3::Args::Fsstat { .. } => getattr(&SPACE, out),
        v3::Args::Fsinfo { .. } => getattr(&LIMITS, out),
        v3::Args::Pathconf { .. } => getattr(&NAMES, out),
        _ => change(args, list, out),
    }
    NfsEncoded { slot_at, io_at }
}

/// READ or WRITE. Returns where that operation begins.
fn data(args: &v3::Args<'_>, access: NfsFileAccess, out: &mut Vec<u8>) -> usize {
    let is_within = access == NfsFileAccess::Within;
    if is_within {
        encode_open(0, access_of(args.procedure()), false, out);
    }
    let (at, stateid) = (out.len(), CURRENT_STATEID);
    match *args {
        v3::Args::Read { offset, count, .. } => Args::Read {
            stateid,
            offset,
            count,
        }
        .encode(out),
        v3::Args::Write {
            offset,
            stable,
            data,
            ..
        } => Args::Write {
            stateid,
            offset,
            stable,
            data,
        }
        .encode(out),
        _ => unreachable!("the caller passes only these procedures"),
    }
    if is_within {
        Args::Close { stateid }.encode(out);
    }
    at
}

/// How a file has to be open for READ or WRITE.
pub(crate) fn access_of(procedure: Procedure) -> u32 {
    match procedure {
        Procedure::Read => ACCESS_READ,
        _ => ACCESS_WRITE,
    }
}

/// Appends a call that only renews the lease, like [`encode_call`].
pub(crate) fn encode_renewal(list: &mut AttributeList, out: &mut Vec<u8>) -> usize {
    encode_call(&v3::Args::Null, NfsFileAccess::Elsewhere, list, out).slot_at
}

/// The operations that create, move and remove names.
fn change(args: &v3::Args<'_>, list: &mut AttributeList, out: &mut Vec<u8>) {
    match *args {
        v3::Args::Create { place, how } => {
            open(place.name, how, list, out);
            handle_and_attributes(out);
            Args::Close {
                stateid: CURRENT_STATEID,
            }
            .encode(out);
        }
        v3::Args::Mkdir { place, attributes } => {
            create(CreateKind::Plain(2), place.name, &attributes, list, out);
        }
        v3::Args::Symlink {
            place,
            attributes,
            target,
        } => create(CreateKind::Link(target), place.name, &attributes, list, out),
        v3::Args::Mknod { place, what } => {
            let none = SetAttributes::default();
            let (kind, attributes) = match what {
                NodeKind::Device(kind, attributes, numbers) => match kind.number() {
                    3 => (CreateKind::Block(numbers), attributes),
                    _ => (CreateKind::Character(numbers), attributes),
                },
                NodeKind::Pipe(kind, attributes) => (CreateKind::Plain(kind.number()), attributes),
                NodeKind::Other(kind) => (CreateKind::Plain(kind.number()), none),
            };
            create(kind, place.name, &attributes, list, out);
        }
        v3::Args::Remove { object } | v3::Args::Rmdir { object } => {
            Args::Remove { name: object.name }.encode(out);
        }
        v3::Args::Rename { from, to } => {
            Args::Savefh.encode(out);
            put_file(to.dir, out);
            let (from, to) = (from.name, to.name);
            Args::Rename { from, to }.encode(out);
        }
        v3::Args::Link { link, .. } => {
            Args::Savefh.encode(out);
            put_file(link.dir, out);
            Args::Link { name: link.name }.encode(out);
        }
        _ => unreachable!("the caller passes only these procedures"),
    }
}

fn put_file(object: FileHandle<'_>, out: &mut Vec<u8>) {
    match object.0.is_empty() {
        true => Args::Putrootfh.encode(out),
        false => Args::Putfh { object }.encode(out),
    }
}

fn getattr(mask: &[u8], out: &mut Vec<u8>) {
    let mask = Bitmap::of(mask);
    Args::Getattr { mask }.encode(out);
}

fn handle_and_attributes(out: &mut Vec<u8>) {
    Args::Getfh.encode(out);
    getattr(&FILE, out);
}

fn readdir(args: &v3::Args<'_>, out: &mut Vec<u8>) {
    let (cookie, verifier, dir_count, max_count, mask) = match *args {
        v3::Args::Readdirplus {
            cookie,
            cookie_verifier,
            dir_count,
            max_count,
            ..
        } => (
            cookie,
            cookie_verifier,
            dir_count,
            max_count,
            &ENTRY_PLUS[..],
        ),
        v3::Args::Readdir {
            cookie,
            cookie_verifier,
            count,
            ..
        } => (cookie, cookie_verifier, count, count, &ENTRY[..]),
        _ => unreachable!("the caller passes only these procedures"),
    };
    Args::Readdir {
        cookie,
        verifier,
        dir_count,
        max_count,
        mask: Bitmap::of(mask),
    }
    .encode(out);
}

fn open(name: &[u8], how: CreateHow<'_>, list: &mut AttributeList, out: &mut Vec<u8>) {
    let create = match how {
        CreateHow::Unchecked(attributes) => {
            settable(&attributes, list);
            OpenCreate::Unchecked(list.as_attributes())
        }
        CreateHow::Guarded(attributes) => {
            settable(&attributes, list);
            OpenCreate::Guarded(list.as_attributes())
        }
        // EXCLUSIVE4_1 without attributes, as in NFSv3.
        CreateHow::Exclusive(verifier) => {
            OpenCreate::Exclusive(verifier, Some(FileAttributes::default()))
        }
    };
    Args::Open {
        access: ACCESS_WRITE | WANT_NO_DELEGATION,
        deny: 0,
        // Servers ignore it: the session identifies the client (RFC 8881, 18.16.3).
        client: 0,
        owner: OWNER,
        create,
        claim: OpenClaim::Null(name),
    }
    .encode(out);
}

fn create(
    kind: CreateKind<'_>,
    name: &[u8],
    attributes: &SetAttributes<'_>,
    list: &mut AttributeList,
    out: &mut Vec<u8>,
) {
    settable(attributes, list);
    Args::Create {
        kind,
        name,
        attributes: list.as_attributes(),
    }
    .encode(out);
    handle_and_attributes(out);
}

/// The attributes to set, in `list`. Users and groups are their numbers in decimal (RFC 8881, 5.9).
fn settable(attributes: &SetAttributes<'_>, list: &mut AttributeList) {
    list.clear();
    if let Some(size) = attributes.size {
        list.put(4, |out| out.u64(size));
    }
    if let Some(mode) = attributes.mode {
        list.put(33, |out| out.u32(mode));
    }
    for (number, id) in [(36, attributes.uid), (37, attributes.gid)] {
        if let Some(id) = id {
            list.put(number, |out| out.opaque(id.to_string().as_bytes()));
        }
    }
    for (number, time) in [(48, attributes.atime), (54, attributes.mtime)] {
        let time = match time {
            v3::SetTime::DontChange => continue,
            v3::SetTime::ServerTime => None,
            v3::SetTime::ClientTime(time) => Some(nfs_time(time)),
        };
        list.put(number, |out| write_set_time(out, time));
    }
}

fn nfs_time(time: &v3::NfsTime) -> NfsTime {
    NfsTime {
        seconds: time.seconds.get().into(),
        nseconds: time.nseconds.get(),
    }
}
