//! Encodes calls and replies: the counterpart of `parse_args` and `parse_results`.
//!
//! The rule: `parse(encode(x)) == x` for all values within the limits of RFC 1813. Longer handles are encoded, too,
//! and the peer rejects them.

use super::{
    Args, Attributes, CreateHow, DirOp, Entries, Entry, NodeKind, Procedure, ResultBody, Results,
    SetAttributes, SetTime, StableHow, Wcc,
};
use crate::nfs::FileHandle;
use crate::{Cursor, ParseError, XdrWriter};

impl StableHow {
    /// The number on the wire.
    pub const fn number(self) -> u32 {
        match self {
            StableHow::Unstable => 0,
            StableHow::DataSync => 1,
            StableHow::FileSync => 2,
        }
    }
}

impl Args<'_> {
    /// The procedure to which these arguments belong.
    pub const fn procedure(&self) -> Procedure {
        match self {
            Args::Null => Procedure::Null,
            Args::Getattr { .. } => Procedure::Getattr,
            Args::Setattr { .. } => Procedure::Setattr,
            Args::Lookup { .. } => Procedure::Lookup,
            Args::Access { .. } => Procedure::Access,
            Args::Readlink { .. } => Procedure::Readlink,
            Args::Read { .. } => Procedure::Read,
            Args::Write { .. } => Procedure::Write,
            Args::Create { .. } => Procedure::Create,
            Args::Mkdir { .. } => Procedure::Mkdir,
            Args::Symlink { .. } => Procedure::Symlink,
            Args::Mknod { .. } => Procedure::Mknod,
            Args::Remove { .. } => Procedure::Remove,
            Args::Rmdir { .. } => Procedure::Rmdir,
            Args::Rename { .. } => Procedure::Rename,
            Args::Link { .. } => Procedure::Link,
            Args::Readdir { .. } => Procedure::Readdir,
            Args::Readdirplus { .. } => Procedure::Readdirplus,
            Args::Fsstat { .. } => Procedure::Fsstat,
            Args::Fsinfo { .. } => Procedure::Fsinfo,
            Args::Pathconf { .. } => Procedure::Pathconf,
            Args::Commit { .. } => Procedure::Commit,
        }
    }

    /// Appends the arguments to `out`. If the data bytes of a WRITE are elsewhere, the data and its padding are
    /// omitted.
    // Long because it has a case per procedure.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let out = &mut XdrWriter::new(out);
        if let Some(handle) = self.handle() {
            out.opaque(handle.0);
        }
        match *self {
            Args::Null
            | Args::Getattr { .. }
            | Args::Readlink { .. }
            | Args::Fsstat { .. }
            | Args::Fsinfo { .. }
            | Args::Pathconf { .. } => {}
            Args::Setattr {
                attributes, guard, ..
            } => {
                set_attributes(out, &attributes);
                out.optional(guard, XdrWriter::view);
            }
            Args::Lookup { what: place }
            | Args::Remove { object: place }
            | Args::Rmdir { object: place } => out.opaque(place.name),
            Args::Access { access, .. } => out.u32(access),
            Args::Read { offset, count, .. } | Args::Commit { offset, count, .. } => {
                range(out, offset, count)
            }
            Args::Write {
                offset,
                count,
                stable,
                data,
                ..
            } => {
                range(out, offset, count);
                out.u32(stable.number());
                out.data(data);
            }
            Args::Create { place, how } => {
                out.opaque(place.name);
                create_how(out, &how);
            }
            Args::Mkdir { place, attributes } => {
                out.opaque(place.name);
                set_attributes(out, &attributes);
            }
            Args::Symlink {
                place,
                attributes,
                target,
            } => {
                out.opaque(place.name);
                set_attributes(out, &attributes);
                out.opaque(target);
            }
            Args::Mknod { place, what } => {
                out.opaque(place.name);
                node_kind(out, &what);
            }
            Args::Rename { from, to } => {
                out.opaque(from.name);
                dir_op(out, &to);
            }
            Args::Link { link, .. } => dir_op(out, &link),
            Args::Readdir {
                cookie,
                cookie_verifier,
                count,
                ..
            } => {
                out.u64(cookie);
                range(out, cookie_verifier, count);
            }
            Args::Readdirplus {
                cookie,
                cookie_verifier,
                dir_count,
                max_count,
                ..
            } => {
                out.u64(cookie);
                range(out, cookie_verifier, dir_count);
                out.u32(max_count);
            }
        }
    }
}

fn range(out: &mut XdrWriter<'_>, offset: u64, count: u32) {
    out.u64(offset);
    out.u32(count);
}

fn dir_op(out: &mut XdrWriter<'_>, place: &DirOp<'_>) {
    out.opaque(place.dir.0);
    out.opaque(place.name);
}

fn set_attributes(out: &mut XdrWriter<'_>, attributes: &SetAttributes<'_>) {
    for value in [attributes.mode, attributes.uid, attributes.gid] {
        out.optional(value, XdrWriter::u32);
    }
    out.optional(attributes.size, XdrWriter::u64);
    for time in [attributes.atime, attributes.mtime] {
        match time {
            SetTime::DontChange => out.u32(0),
            SetTime::ServerTime => out.u32(1),
            SetTime::ClientTime(time) => {
                out.u32(2);
                out.view(time);
            }
        }
    }
}

fn create_how(out: &mut XdrWriter<'_>, how: &CreateHow<'_>) {
    match how {
        CreateHow::Unchecked(attributes) => {
            out.u32(0);
            set_attributes(out, attributes);
        }
        CreateHow::Guarded(attributes) => {
            out.u32(1);
            set_attributes(out, attributes);
        }
        CreateHow::Exclusive(verifier) => {
            out.u32(2);
            out.u64(*verifier);
        }
    }
}

fn node_kind(out: &mut XdrWriter<'_>, what: &NodeKind<'_>) {
    match what {
        NodeKind::Device(kind, attributes, numbers) => {
            out.u32(kind.number());
            set_attributes(out, attributes);
            numbers.iter().for_each(|number| out.u32(*number));
        }
        NodeKind::Pipe(kind, attributes) => {
            out.u32(kind.number());
            set_attributes(out, attributes);
        }
        NodeKind::Other(kind) => out.u32(kind.number()),
    }
}

impl Results<'_> {
    /// Appends the results of `procedure` to `out`.
    ///
    /// # Panics
    /// Panics if the body doesn't match this procedure and status.
    // Long because it has a case per kind of body.
    pub fn encode(&self, procedure: Procedure, out: &mut Vec<u8>) {
        if procedure == Procedure::Null {
            return;
        }
        let out = &mut XdrWriter::new(out);
        out.u32(self.status.0);
        match self.body {
            ResultBody::Empty => {}
            ResultBody::Failed { attributes, wcc } => failed(out, procedure, attributes, &wcc),
            ResultBody::Getattr { attributes } => out.view(attributes),
            ResultBody::Changed { wcc: change } => wcc(out, &change),
            ResultBody::Lookup {
                object,
                attributes,
                dir,
            } => {
                out.opaque(object.0);
                post_op(out, attributes);
                post_op(out, dir);
            }
            ResultBody::Access { attributes, access } => {
                post_op(out, attributes);
                out.u32(access);
            }
            ResultBody::Readlink { attributes, target } => {
                post_op(out, attributes);
                out.opaque(target);
            }
            ResultBody::Read {
                attributes,
                count,
                eof,
                data,
            } => {
                post_op(out, attributes);
                out.u32(count);
                out.boolean(eof);
                out.data(data);
            }
            ResultBody::Write {
                wcc: change,
                count,
                committed,
                verifier,
            } => {
                wcc(out, &change);
                out.u32(count);
                out.u32(committed.number());
                out.u64(verifier);
            }
            ResultBody::Created {
                object,
                attributes,
                dir,
            } => {
                post_op_handle(out, object);
                post_op(out, attributes);
                wcc(out, &dir);
            }
            ResultBody::Rename { from, to } => {
                wcc(out, &from);
                wcc(out, &to);
            }
            ResultBody::Link { attributes, dir } => {
                post_op(out, attributes);
                wcc(out, &dir);
            }
            ResultBody::Readdir {
                dir,
                cookie_verifier,
                entries,
                eof,
            } => {
                post_op(out, dir);
                out.u64(cookie_verifier);
                out.raw(entries.wire());
                out.boolean(eof);
            }
            ResultBody::Fsstat { .. } | ResultBody::Fsinfo { .. } | ResultBody::Pathconf { .. } => {
                limits(out, &self.body)
            }
            ResultBody::Commit {
                wcc: change,
                verifier,
            } => {
                wcc(out, &change);
                out.u64(verifier);
            }
        }
    }
}

fn failed(
    out: &mut XdrWriter<'_>,
    procedure: Procedure,
    attributes: Option<&Attributes>,
    wccs: &[Wcc<'_>; 2],
) {
    match procedure {
        Procedure::Null | Procedure::Getattr => panic!("a failed {} has no body", procedure.name()),
        Procedure::Lookup
        | Procedure::Access
        | Procedure::Readlink
        | Procedure::Read
        | Procedure::Readdir
        | Procedure::Readdirplus
        | Procedure::Fsstat
        | Procedure::Fsinfo
        | Procedure::Pathconf => post_op(out, attributes),
        Procedure::Setattr
        | Procedure::Write
        | Procedure::Create
        | Procedure::Mkdir
        | Procedure::Symlink
        | Procedure::Mknod
        | Procedure::Remove
        | Procedure::Rmdir
        | Procedure::Commit => wcc(out, &wccs[0]),
        Procedure::Rename => wccs.iter().for_each(|change| wcc(out, change)),
        Procedure::Link => {
            post_op(out, attributes);
            wcc(out, &wccs[0]);
        }
    }
}

/// The bodies of FSSTAT, FSINFO and PATHCONF.
// Long because rustfmt puts each of the 26 fields on its own line.
fn limits(out: &mut XdrWriter<'_>, body: &ResultBody<'_>) {
    match *body {
        ResultBody::Fsstat {
            attributes,
            total_bytes,
            free_bytes,
            available_bytes,
            total_files,
            free_files,
            available_files,
            invariant_sec,
        } => {
            post_op(out, attributes);
            for value in [
                total_bytes,
                free_bytes,
                available_bytes,
                total_files,
                free_files,
                available_files,
            ] {
                out.u64(value);
            }
            out.u32(invariant_sec);
        }
        ResultBody::Fsinfo {
            attributes,
            read_max,
            read_preferred,
            read_multiple,
            write_max,
            write_preferred,
            write_multiple,
            dir_preferred,
            file_size_max,
            time_delta,
            properties,
        } => {
            post_op(out, attributes);
            let reads = [read_max, read_preferred, read_multiple];
            for value in
                reads
                    .into_iter()
                    .chain([write_max, write_preferred, write_multiple, dir_preferred])
            {
                out.u32(value);
            }
            out.u64(file_size_max);
            out.view(&time_delta);
            out.u32(properties);
        }
        ResultBody::Pathconf {
            attributes,
            link_max,
            name_max,
            no_trunc,
            chown_restricted,
            case_insensitive,
            case_preserving,
        } => {
            post_op(out, attributes);
            out.u32(link_max);
            out.u32(name_max);
            for value in [
                no_trunc,
                chown_restricted,
                case_insensitive,
                case_preserving,
            ] {
                out.boolean(value);
            }
        }
        _ => unreachable!("the caller passes only these procedures"),
    }
}

fn post_op(out: &mut XdrWriter<'_>, attributes: Option<&Attributes>) {
    out.optional(attributes, XdrWriter::view);
}

fn post_op_handle(out: &mut XdrWriter<'_>, handle: Option<FileHandle<'_>>) {
    out.optional(handle, |out, handle| out.opaque(handle.0));
}

fn wcc(out: &mut XdrWriter<'_>, wcc: &Wcc<'_>) {
    out.optional(wcc.before, XdrWriter::view);
    post_op(out, wcc.after);
}

impl<'a> Entries<'a> {
    /// Builds a list of entries for READDIR, or for READDIRPLUS if `plus`, in the memory of `out`.
    ///
    /// # Errors
    /// A name or a handle is too long.
    pub fn of(
        entries: &[Entry<'_>],
        plus: bool,
        out: &'a mut Vec<u8>,
    ) -> Result<Entries<'a>, ParseError> {
        out.clear();
        let mut list = XdrWriter::new(out);
        for entry in entries {
            list.boolean(true);
            list.u64(entry.fileid);
            list.opaque(entry.name);
            list.u64(entry.cookie);
            if plus {
                post_op(&mut list, entry.attributes);
                post_op_handle(&mut list, entry.handle);
            }
        }
        list.boolean(false);
        Entries::list(&mut Cursor::new(out), plus)
    }
}
