//! Converts the results of a compound to those of the NFSv3 call that it replaces.
//!
//! NFSv4.1 has no counterpart for some fields: attributes from before a change are absent, and a user or group that is
//! not a number is [`NOBODY`].
//!
//! The one rule: a reply has the operations of its call, in their order, up to the first that failed; anything else is
//! malformed.

use brunt_wire::nfs::v3::{self, FileType, Procedure, Status, Wcc};
use brunt_wire::nfs::v4::{
    Attributes, CompoundResults, Entries, FileAttributes, Op, OpResult, ResultBody,
    Status as Status4,
};
use brunt_wire::nfs::{FILE_HANDLE_V3_BYTES_MAX, FileHandle};
use brunt_wire::{Cursor, Malformed, ParseError};

use super::call::{is_optional, operations};

/// The id of a user or group whose name is unknown here, as on Linux.
const NOBODY: u32 = 65534;

/// Storage for data that results refer to and a reply doesn't contain.
#[derive(Debug, Default)]
pub struct NfsScratch {
    attributes: v3::Attributes,
    entries: Vec<v3::Attributes>,
    list: Vec<u8>,
}

/// What the operations of a compound returned.
#[derive(Default)]
struct Found<'a> {
    handle: Option<FileHandle<'a>>,
    attributes: Option<FileAttributes<'a>>,
    /// The result of the operation that the compound is for.
    main: Option<ResultBody<'a>>,
}

/// The results of a call, from the body of its reply, and where they end.
///
/// # Errors
/// The reply is truncated or malformed, or belongs to another call.
pub(crate) fn translate<'a>(
    procedure: Procedure,
    body: &'a [u8],
    scratch: &'a mut NfsScratch,
) -> Result<(v3::Results<'a>, usize), ParseError> {
    let is_optional = |op| is_optional(procedure, op);
    let Walked {
        status,
        last,
        found,
        end,
    } = walk(operations(procedure), is_optional, body)?;
    // If only CLOSE failed, the operation that the file was opened for has succeeded.
    let results = match status == Status4::OK || last == Some(Op::Close) {
        true => v3::Results {
            status: Status::OK,
            body: succeeded(procedure, found, scratch)?,
        },
        false => v3::Results {
            status: Status(status.0),
            body: failed(procedure),
        },
    };
    Ok((results, end))
}

/// A compound's results.
pub(super) struct Walked<'a> {
    /// The compound's status.
    pub(super) status: Status4,
    /// The last operation that was executed.
    last: Option<Op>,
    found: Found<'a>,
    /// Where they end.
    pub(super) end: usize,
}

/// Reads the results of a compound with these operations, of which some may be absent.
///
/// # Errors
/// The reply is truncated or malformed, or belongs to another call.
pub(super) fn walk<'a>(
    expected: &[Op],
    is_optional: impl Fn(Op) -> bool,
    body: &'a [u8],
) -> Result<Walked<'a>, ParseError> {
    let reply = CompoundResults::parse(&mut Cursor::new(body))?;
    let mut results = reply.operations();
    let (mut found, mut end) = (Found::default(), None);
    let mut next = 0;
    for result in results.by_ref() {
        let OpResult {
            number,
            status,
            body: result,
        } = result?;
        let op = loop {
            let op = expected.get(next).copied();
            let op = op.ok_or_else(|| wrong("more results than operations"))?;
            next += 1;
            if is_result_of(op, number) || !is_optional(op) {
                break op;
            }
        };
        if !is_result_of(op, number) {
            return Err(wrong("result is for another operation"));
        }
        end = Some((op, status));
        match result {
            ResultBody::Getfh { object } => found.handle = Some(object),
            ResultBody::Getattr { attributes } => found.attributes = Some(attributes),
            // CLOSE is never a compound's main operation.
            ResultBody::Empty | ResultBody::State { .. } | ResultBody::Sequence { .. } => {}
            result => found.main = Some(result),
        }
    }
    let is_done = expected[next..].iter().all(|op| is_optional(*op));
    match end {
        Some((_, last)) if last != reply.status => {
            return Err(wrong(
                "the compound's status is not that of its last operation",
            ));
        }
        None if reply.status.0 == 0 => return Err(wrong("no results")),
        _ if reply.status.0 == 0 && !is_done => return Err(wrong("fewer results than operations")),
        _ => {}
    }
    Ok(Walked {
        status: reply.status,
        last: end.map(|(op, _)| op),
        found,
        end: body.len() - results.rest().len(),
    })
}

fn wrong(what: &'static str) -> ParseError {
    Malformed::new(0, what).into()
}

/// Whether the result numbered `number` may be that of `op`: PUTROOTFH may replace PUTFH, and ILLEGAL any operation
/// (RFC 8881, 15.2).
fn is_result_of(op: Op, number: u32) -> bool {
    number == op as u32
        || number == Op::Illegal as u32
        || op == Op::Putfh && number == Op::Putrootfh as u32
}

fn failed(procedure: Procedure) -> v3::ResultBody<'static> {
    match procedure {
        Procedure::Null | Procedure::Getattr => v3::ResultBody::Empty,
        _ => v3::ResultBody::Failed {
            attributes: None,
            wcc: [Wcc::default(); 2],
        },
    }
}

/// The body of a call that succeeded.
// Long because it has a case per procedure.
fn succeeded<'a>(
    procedure: Procedure,
    found: Found<'a>,
    scratch: &'a mut NfsScratch,
) -> Result<v3::ResultBody<'a>, ParseError> {
    let none = Wcc::default();
    let missing = || wrong("attributes that were asked for are missing");
    let attributes = match found.attributes.and_then(|list| attributes(&list.parse())) {
        Some(attributes) => {
            scratch.attributes = attributes;
            Some(())
        }
        None => None,
    };
    Ok(match (procedure, found.main) {
        (Procedure::Null, _) => v3::ResultBody::Empty,
        (Procedure::Fsstat | Procedure::Fsinfo | Procedure::Pathconf, _) => {
            let list = found.attributes.ok_or_else(missing)?;
            limits(procedure, &list).ok_or_else(missing)?
        }
        (Procedure::Getattr, _) => {
            attributes.ok_or_else(missing)?;
            v3::ResultBody::Getattr {
                attributes: &scratch.attributes,
            }
        }
        (Procedure::Setattr | Procedure::Remove | Procedure::Rmdir, _) => {
            v3::ResultBody::Changed { wcc: none }
        }
        (Procedure::Lookup, _) => v3::ResultBody::Lookup {
            object: found.handle.ok_or_else(|| wrong("no handle"))?,
            attributes: attributes.map(|()| &scratch.attributes),
            dir: None,
        },
        (Procedure::Create | Procedure::Mkdir | Procedure::Symlink | Procedure::Mknod, _) => {
            v3::ResultBody::Created {
                object: found.handle,
                attributes: attributes.map(|()| &scratch.attributes),
                dir: none,
            }
        }
        (_, Some(ResultBody::Access { access, .. })) => v3::ResultBody::Access {
            attributes: None,
            access,
        },
        (_, Some(ResultBody::Readlink { target })) => v3::ResultBody::Readlink {
            attributes: None,
            target,
        },
        (_, Some(ResultBody::Read { eof, data })) => v3::ResultBody::Read {
            attributes: None,
            count: data.len,
            eof,
            data,
        },
        (
            _,
            Some(ResultBody::Write {
                count,
                committed,
                verifier,
            }),
        ) => v3::ResultBody::Write {
            wcc: none,
            count,
            committed,
            verifier,
        },
        (_, Some(ResultBody::Commit { verifier })) => v3::ResultBody::Commit {
            wcc: none,
            verifier,
        },
        (_, Some(ResultBody::Rename { .. })) => v3::ResultBody::Rename {
            from: none,
            to: none,
        },
        (Procedure::Link, Some(ResultBody::Changed { .. })) => v3::ResultBody::Link {
            attributes: None,
            dir: none,
        },
        (
            _,
            Some(ResultBody::Readdir {
                verifier,
                entries,
                eof,
            }),
        ) => v3::ResultBody::Readdir {
            dir: None,
            cookie_verifier: verifier,
            entries: listed(entries, procedure == Procedure::Readdirplus, scratch)?,
            eof,
        },
        _ => return Err(wrong("results of another operation")),
    })
}

/// The attributes of a file as NFSv3's; `None` without those that every server has.
fn attributes(from: &Attributes<'_>) -> Option<v3::Attributes> {
    let time = |time: Option<brunt_wire::nfs::v4::NfsTime>| {
        let time = time.unwrap_or_default();
        v3::NfsTime {
            // NFSv3 counts from 1970 in 32 bits.
            seconds: u32::try_from(time.seconds.max(0))
                .unwrap_or(u32::MAX)
                .into(),
            nseconds: time.nseconds.into(),
        }
    };
    let [major, minor] = from.fsid?;
    let size = from.size?;
    Some(v3::Attributes {
        // Named attributes and their directories (8 and 9) occur only if they are requested.
        file_type: FileType::from_number(from.kind?).number().into(),
        mode: from.mode.unwrap_or(0).into(),
        nlink: from.numlinks.unwrap_or(1).into(),
        uid: id(from.owner).into(),
        gid: id(from.owner_group).into(),
        size: size.into(),
        used: from.space_used.unwrap_or(size).into(),
        rdev: from.rawdev.unwrap_or_default().map(Into::into),
        fsid: (major.rotate_left(32) ^ minor).into(),
        fileid: from.fileid?.into(),
        atime: time(from.time_access),
        mtime: time(from.time_modify),
        ctime: time(from.time_metadata),
    })
}

/// The id of a user or group whose name is a number or root (RFC 8881, 5.9).
fn id(name: Option<&[u8]>) -> u32 {
    let Some(name) = name.and_then(|name| std::str::from_utf8(name).ok()) else {
        return NOBODY;
    };
    match name.split('@').next() {
        Some("root") => 0,
        _ => name.parse().unwrap_or(NOBODY),
    }
}

/// The entries of a directory, with attributes and handles if `plus`.
fn listed<'a>(
    from: Entries<'_>,
    plus: bool,
    scratch: &'a mut NfsScratch,
) -> Result<v3::Entries<'a>, ParseError> {
    let NfsScratch { entries, list, .. } = scratch;
    entries.clear();
    entries.extend(from.iter().map(|entry| {
        let found = entry.attributes.parse();
        attributes(&found).unwrap_or(v3::Attributes {
            fileid: found.fileid.unwrap_or(0).into(),
            ..v3::Attributes::default()
        })
    }));
    let translated: Vec<v3::Entry<'_>> = from
        .iter()
        .zip(&*entries)
        .map(|(entry, attributes)| v3::Entry {
            fileid: attributes.fileid.get(),
            name: entry.name,
            cookie: entry.cookie,
            // A type of 0 means attributes that the server could not read.
            attributes: (plus && attributes.file_type.get() != 0).then_some(attributes),
            handle: match plus {
                true => short_handle(&entry.attributes.parse()),
                false => None,
            },
        })
        .collect();
    v3::Entries::of(&translated, plus, list)
}

/// A handle that fits into NFSv3's entries; others have to be looked up.
fn short_handle<'a>(attributes: &Attributes<'a>) -> Option<FileHandle<'a>> {
    let handle = attributes.handle?;
    (handle.0.len() <= FILE_HANDLE_V3_BYTES_MAX as usize).then_some(handle)
}

/// The bodies of FSSTAT, FSINFO and PATHCONF; `None` if the server doesn't have the attributes.
fn limits(procedure: Procedure, list: &FileAttributes<'_>) -> Option<v3::ResultBody<'static>> {
    let long = |number| list.find(number).and_then(|mut cur| cur.u64().ok());
    let word = |number| list.find(number).and_then(|mut cur| cur.u32().ok());
    let flag = |number| list.find(number).and_then(|mut cur| cur.boolean().ok());
    let bytes = |number| {
        let bytes = long(number)?;
        Some(u32::try_from(bytes).unwrap_or(u32::MAX))
    };
    Some(match procedure {
        Procedure::Fsstat => v3::ResultBody::Fsstat {
            attributes: None,
            total_bytes: long(44)?,
            free_bytes: long(43)?,
            available_bytes: long(42)?,
            total_files: long(23)?,
            free_files: long(22)?,
            available_files: long(21)?,
            invariant_sec: 0,
        },
        Procedure::Fsinfo => v3::ResultBody::Fsinfo {
            attributes: None,
            read_max: bytes(30)?,
            read_preferred: bytes(30)?,
            read_multiple: 1,
            write_max: bytes(31)?,
            write_preferred: bytes(31)?,
            write_multiple: 1,
            dir_preferred: 0,
            file_size_max: long(27)?,
            time_delta: v3::NfsTime::default(),
            properties: 0,
        },
        _ => v3::ResultBody::Pathconf {
            attributes: None,
            link_max: word(28)?,
            name_max: word(29)?,
            no_trunc: flag(34)?,
            chown_restricted: flag(18)?,
            case_insensitive: flag(16)?,
            case_preserving: flag(17)?,
        },
    })
}
