//! A call of NFSv3 as a compound of NFSv4.1: SEQUENCE, the file or directory, and the operations on it.
//!
//! The rule: which operations a compound has follows from the procedure alone ([`operations`]), so a reply can be checked
//! without its call.

use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{self, CreateHow, NodeKind, Procedure, SetAttributes};
use brunt_wire::nfs::v4::{
    ANONYMOUS, Args, AttributeList, Bitmap, CURRENT_STATEID, CompoundArgs, CreateKind,
    FileAttributes, NfsTime, Op, OpenClaim, OpenCreate, bitmap_words, write_set_time, write_time,
};

/// The attributes that NFSv3 has: type, size, fsid, fileid; mode, numlinks, owner, owner_group, rawdev, space_used,
/// time_access, time_metadata, time_modify.
const FILE: [u8; 8] = bitmap_words(&[1, 4, 8, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53]);
/// In directory entries: fileid.
const ENTRY: [u8; 4] = bitmap_words(&[20]);
/// In directory entries with attributes: those of [`FILE`], with rdattr_error and filehandle.
const ENTRY_PLUS: [u8; 8] =
    bitmap_words(&[1, 4, 8, 11, 19, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53]);
/// FSSTAT's: files_avail, files_free, files_total, space_avail, space_free, space_total.
const SPACE: [u8; 8] = bitmap_words(&[21, 22, 23, 42, 43, 44]);
/// FSINFO's: maxfilesize, maxread, maxwrite.
const LIMITS: [u8; 4] = bitmap_words(&[27, 30, 31]);
/// PATHCONF's: case_insensitive, case_preserving, chown_restricted, maxlink, maxname, no_trunc.
const NAMES: [u8; 8] = bitmap_words(&[16, 17, 18, 28, 29, 34]);

/// `OPEN4_SHARE_ACCESS_WRITE`, and `OPEN4_SHARE_ACCESS_WANT_NO_DELEG` (RFC 8881, 18.16.1).
const OPEN_TO_WRITE: u32 = 0x0402;
/// The owner of files while they are created.
const OWNER: &[u8] = b"brunt";

/// The operations of a procedure's compound; PUTROOTFH may take the place of PUTFH, and a SETATTR has a VERIFY only if it
/// has a guard.
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
        Procedure::Read => &[Sequence, Putfh, Read],
        Procedure::Write => &[Sequence, Putfh, Write],
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

/// Whether a server has to keep its reply, because executing the call twice would have a different effect.
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

/// Appends the compound of a call to `out`, without data that is elsewhere. An empty handle means the server's root.
/// Returns where its slot belongs ([`super::put_slot`]).
// Long because it has a case per procedure.
pub(crate) fn encode_call(
    args: &v3::Args<'_>,
    list: &mut AttributeList,
    out: &mut Vec<u8>,
) -> usize {
    let procedure = args.procedure();
    let unguarded = matches!(args, v3::Args::Setattr { guard: None, .. });
    let count = operations(procedure).len() - usize::from(unguarded);
    CompoundArgs::begin(out, 1, count as u32);
    let sequence = Args::Sequence {
        session: &[0; 16],
        sequence: 0,
        slot: 0,
        highest_slot: 0,
        cache: changes(procedure),
    };
    sequence.encode(out);
    // The operation's number, 16 bytes of session, 16 of numbers.
    let slot_at = out.len() - 36 + 4;
    if let Some(handle) = args.handle() {
        put_file(handle, out);
    }
    match *args {
        v3::Args::Read { offset, count, .. } => Args::Read {
            stateid: ANONYMOUS,
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
            stateid: ANONYMOUS,
            offset,
            stable,
            data,
        }
        .encode(out),
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
    slot_at
}

/// A call that only renews the lease, like [`encode_call`].
pub(crate) fn encode_renewal(list: &mut AttributeList, out: &mut Vec<u8>) -> usize {
    encode_call(&v3::Args::Null, list, out)
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
        // EXCLUSIVE4_1, without attributes as in NFSv3.
        CreateHow::Exclusive(verifier) => {
            OpenCreate::Exclusive(verifier, Some(FileAttributes::default()))
        }
    };
    Args::Open {
        access: OPEN_TO_WRITE,
        deny: 0,
        // Servers ignore it: the session says which client it is (RFC 8881, 18.16.3).
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
