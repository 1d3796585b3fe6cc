//! Results of NFSv3 calls.

use super::args::{StableHow, handle};
use super::attributes::{post_op, wcc};
use super::{Attributes, NfsTime, Procedure, Status, Wcc};
use crate::nfs::{DATA_BYTES_MAX, FileHandle, name, path};
use crate::{Cursor, FileData, ParseError};

/// The results of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Results<'a> {
    /// The status. NULL has no status, which counts as [`Status::OK`].
    pub status: Status,
    /// The results that follow the status.
    pub body: ResultBody<'a>,
}

impl Default for Results<'_> {
    /// The results of NULL.
    fn default() -> Self {
        Results {
            status: Status::OK,
            body: ResultBody::Empty,
        }
    }
}

/// The results after the status. Failures contain attributes where the RFC allows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the RFC's own names
pub enum ResultBody<'a> {
    /// NULL, and GETATTR if it failed.
    Empty,
    /// Any other failure; LINK has `attributes` and one `wcc`, RENAME has two.
    Failed {
        attributes: Option<&'a Attributes>,
        wcc: [Wcc<'a>; 2],
    },
    Getattr {
        attributes: &'a Attributes,
    },
    /// SETATTR, REMOVE and RMDIR.
    Changed {
        wcc: Wcc<'a>,
    },
    Lookup {
        object: FileHandle<'a>,
        attributes: Option<&'a Attributes>,
        dir: Option<&'a Attributes>,
    },
    Access {
        attributes: Option<&'a Attributes>,
        access: u32,
    },
    Readlink {
        attributes: Option<&'a Attributes>,
        target: &'a [u8],
    },
    Read {
        attributes: Option<&'a Attributes>,
        count: u32,
        eof: bool,
        data: FileData<'a>,
    },
    Write {
        wcc: Wcc<'a>,
        count: u32,
        committed: StableHow,
        verifier: u64,
    },
    /// CREATE, MKDIR, SYMLINK and MKNOD.
    Created {
        object: Option<FileHandle<'a>>,
        attributes: Option<&'a Attributes>,
        dir: Wcc<'a>,
    },
    Rename {
        from: Wcc<'a>,
        to: Wcc<'a>,
    },
    Link {
        attributes: Option<&'a Attributes>,
        dir: Wcc<'a>,
    },
    /// READDIR and READDIRPLUS.
    Readdir {
        dir: Option<&'a Attributes>,
        cookie_verifier: u64,
        entries: Entries<'a>,
        eof: bool,
    },
    Fsstat {
        attributes: Option<&'a Attributes>,
        total_bytes: u64,
        free_bytes: u64,
        available_bytes: u64,
        total_files: u64,
        free_files: u64,
        available_files: u64,
        invariant_sec: u32,
    },
    Fsinfo {
        attributes: Option<&'a Attributes>,
        read_max: u32,
        read_preferred: u32,
        read_multiple: u32,
        write_max: u32,
        write_preferred: u32,
        write_multiple: u32,
        dir_preferred: u32,
        file_size_max: u64,
        time_delta: NfsTime,
        properties: u32,
    },
    Pathconf {
        attributes: Option<&'a Attributes>,
        link_max: u32,
        name_max: u32,
        no_trunc: bool,
        chown_restricted: bool,
        case_insensitive: bool,
        case_preserving: bool,
    },
    Commit {
        wcc: Wcc<'a>,
        verifier: u64,
    },
}

/// The entries of a READDIR or READDIRPLUS reply. They have already been validated, and are parsed again on each
/// iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    plus: bool,
    count: u32,
}

/// One entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The file's id within its file system.
    pub fileid: u64,
    /// Its name.
    pub name: &'a [u8],
    /// The cookie with which the client continues reading after this entry.
    pub cookie: u64,
    /// The file's attributes (READDIRPLUS).
    pub attributes: Option<&'a Attributes>,
    /// The file's handle (READDIRPLUS).
    pub handle: Option<FileHandle<'a>>,
}

impl<'a> Entries<'a> {
    /// The number of entries.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// All entries, in the server's order.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let mut cur = Cursor::new(self.bytes);
        let plus = self.plus;
        // The entries have already been validated, so errors are impossible here.
        (0..self.count).map_while(move |_| cur.boolean().and_then(|_| entry(&mut cur, plus)).ok())
    }

    /// The list in wire format, including the end marker.
    pub(super) fn wire(&self) -> &'a [u8] {
        self.bytes
    }

    fn read(cur: &mut Cursor<'a>, plus: bool) -> Result<(Entries<'a>, bool), ParseError> {
        Ok((Entries::list(cur, plus)?, cur.boolean()?))
    }

    /// Parses a list up to its end, which validates the entries.
    pub(super) fn list(cur: &mut Cursor<'a>, plus: bool) -> Result<Entries<'a>, ParseError> {
        let bytes = cur.rest();
        let start = cur.at();
        let mut count = 0;
        while cur.boolean()? {
            entry(cur, plus)?;
            count += 1;
        }
        let bytes = &bytes[..cur.at() - start];
        Ok(Entries { bytes, plus, count })
    }
}

#[inline]
fn entry<'a>(cur: &mut Cursor<'a>, plus: bool) -> Result<Entry<'a>, ParseError> {
    let (fileid, name, cookie) = (cur.u64()?, name(cur)?, cur.u64()?);
    let attributes = if plus { post_op(cur)? } else { None };
    let handle = if plus { post_op_handle(cur)? } else { None };
    Ok(Entry {
        fileid,
        name,
        cookie,
        attributes,
        handle,
    })
}

/// Parses the results of `procedure`.
///
/// # Errors
/// The results are truncated, or violate RFC 1813.
#[inline]
pub fn parse_results<'a>(
    procedure: Procedure,
    cur: &mut Cursor<'a>,
) -> Result<Results<'a>, ParseError> {
    let mut results = Results::default();
    read_results(procedure, cur, &mut results)?;
    Ok(results)
}

/// Like [`parse_results`], but writes the results in place, like [`super::read_args`]. After an error, the contents
/// of `results` are unspecified.
///
/// # Errors
/// As [`parse_results`].
#[inline]
pub fn read_results<'a>(
    procedure: Procedure,
    cur: &mut Cursor<'a>,
    results: &mut Results<'a>,
) -> Result<(), ParseError> {
    if procedure == Procedure::Null {
        *results = Results::default();
        return Ok(());
    }
    results.status = Status(cur.u32()?);
    if results.status == Status::OK {
        success(procedure, cur, &mut results.body)
    } else {
        results.body = failure(procedure, cur)?;
        Ok(())
    }
}

fn failure<'a>(procedure: Procedure, cur: &mut Cursor<'a>) -> Result<ResultBody<'a>, ParseError> {
    let (mut attributes, mut wccs) = (None, [Wcc::default(); 2]);
    match procedure {
        Procedure::Null | Procedure::Getattr => return Ok(ResultBody::Empty),
        Procedure::Lookup
        | Procedure::Access
        | Procedure::Readlink
        | Procedure::Read
        | Procedure::Readdir
        | Procedure::Readdirplus
        | Procedure::Fsstat
        | Procedure::Fsinfo
        | Procedure::Pathconf => attributes = post_op(cur)?,
        Procedure::Setattr
        | Procedure::Write
        | Procedure::Create
        | Procedure::Mkdir
        | Procedure::Symlink
        | Procedure::Mknod
        | Procedure::Remove
        | Procedure::Rmdir
        | Procedure::Commit => wccs[0] = wcc(cur)?,
        Procedure::Rename => wccs = [wcc(cur)?, wcc(cur)?],
        Procedure::Link => {
            attributes = post_op(cur)?;
            wccs[0] = wcc(cur)?;
        }
    }
    Ok(ResultBody::Failed {
        attributes,
        wcc: wccs,
    })
}

// Long because it has a case per procedure.
#[inline]
fn success<'a>(
    procedure: Procedure,
    cur: &mut Cursor<'a>,
    body: &mut ResultBody<'a>,
) -> Result<(), ParseError> {
    match procedure {
        Procedure::Null => *body = ResultBody::Empty,
        Procedure::Getattr => {
            *body = ResultBody::Getattr {
                attributes: cur.view()?,
            }
        }
        Procedure::Setattr | Procedure::Remove | Procedure::Rmdir => {
            *body = ResultBody::Changed { wcc: wcc(cur)? }
        }
        Procedure::Lookup => {
            *body = ResultBody::Lookup {
                object: handle(cur)?,
                attributes: post_op(cur)?,
                dir: post_op(cur)?,
            }
        }
        Procedure::Access => {
            *body = ResultBody::Access {
                attributes: post_op(cur)?,
                access: cur.u32()?,
            }
        }
        Procedure::Readlink => {
            *body = ResultBody::Readlink {
                attributes: post_op(cur)?,
                target: path(cur)?,
            }
        }
        Procedure::Read => {
            *body = ResultBody::Read {
                attributes: post_op(cur)?,
                count: cur.u32()?,
                eof: cur.boolean()?,
                data: cur.data(DATA_BYTES_MAX, "READ of more than 16 MiB")?,
            }
        }
        Procedure::Write => {
            *body = ResultBody::Write {
                wcc: wcc(cur)?,
                count: cur.u32()?,
                committed: StableHow::read(cur)?,
                verifier: cur.u64()?,
            }
        }
        Procedure::Create | Procedure::Mkdir | Procedure::Symlink | Procedure::Mknod => {
            *body = ResultBody::Created {
                object: post_op_handle(cur)?,
                attributes: post_op(cur)?,
                dir: wcc(cur)?,
            }
        }
        Procedure::Rename => {
            *body = ResultBody::Rename {
                from: wcc(cur)?,
                to: wcc(cur)?,
            }
        }
        Procedure::Link => {
            *body = ResultBody::Link {
                attributes: post_op(cur)?,
                dir: wcc(cur)?,
            }
        }
        Procedure::Readdir | Procedure::Readdirplus => {
            let (dir, cookie_verifier) = (post_op(cur)?, cur.u64()?);
            let (entries, eof) = Entries::read(cur, procedure == Procedure::Readdirplus)?;
            *body = ResultBody::Readdir {
                dir,
                cookie_verifier,
                entries,
                eof,
            }
        }
        Procedure::Fsstat => *body = fsstat(cur)?,
        Procedure::Fsinfo => *body = fsinfo(cur)?,
        Procedure::Pathconf => *body = pathconf(cur)?,
        Procedure::Commit => {
            *body = ResultBody::Commit {
                wcc: wcc(cur)?,
                verifier: cur.u64()?,
            }
        }
    }
    Ok(())
}

fn fsstat<'a>(cur: &mut Cursor<'a>) -> Result<ResultBody<'a>, ParseError> {
    Ok(ResultBody::Fsstat {
        attributes: post_op(cur)?,
        total_bytes: cur.u64()?,
        free_bytes: cur.u64()?,
        available_bytes: cur.u64()?,
        total_files: cur.u64()?,
        free_files: cur.u64()?,
        available_files: cur.u64()?,
        invariant_sec: cur.u32()?,
    })
}

fn fsinfo<'a>(cur: &mut Cursor<'a>) -> Result<ResultBody<'a>, ParseError> {
    Ok(ResultBody::Fsinfo {
        attributes: post_op(cur)?,
        read_max: cur.u32()?,
        read_preferred: cur.u32()?,
        read_multiple: cur.u32()?,
        write_max: cur.u32()?,
        write_preferred: cur.u32()?,
        write_multiple: cur.u32()?,
        dir_preferred: cur.u32()?,
        file_size_max: cur.u64()?,
        time_delta: *cur.view()?,
        properties: cur.u32()?,
    })
}

fn pathconf<'a>(cur: &mut Cursor<'a>) -> Result<ResultBody<'a>, ParseError> {
    Ok(ResultBody::Pathconf {
        attributes: post_op(cur)?,
        link_max: cur.u32()?,
        name_max: cur.u32()?,
        no_trunc: cur.boolean()?,
        chown_restricted: cur.boolean()?,
        case_insensitive: cur.boolean()?,
        case_preserving: cur.boolean()?,
    })
}

#[inline]
fn post_op_handle<'a>(cur: &mut Cursor<'a>) -> Result<Option<FileHandle<'a>>, ParseError> {
    if cur.boolean()? {
        handle(cur).map(Some)
    } else {
        Ok(None)
    }
}
