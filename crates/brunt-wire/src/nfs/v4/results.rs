//! Results of the operations of a compound; each begins with the operation's number and status.

use super::attributes::{Bitmap, FileAttributes, ace};
use super::fields::{
    SessionChannel, body, channel, elements, handle, implementation, network_address,
    network_location, opaque, protected_operations, stable_how, stateid,
};
use super::{Op, Stateid, Status};
use crate::nfs::v3::StableHow;
use crate::nfs::{DATA_BYTES_MAX, FileHandle, name, path};
use crate::{Cursor, FileData, ParseError};

/// Maximum number of segments in a READ_PLUS reply.
const SEGMENTS_MAX: u32 = 64 << 10;

/// The result of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpResult<'a> {
    /// The operation's number in the reply.
    pub number: u32,
    /// The status.
    pub status: Status,
    /// The results that follow the status.
    pub body: ResultBody<'a>,
}

/// `change_info4`: a directory's change attribute before and after an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ChangeInfo {
    pub atomic: bool,
    pub before: u64,
    pub after: u64,
}

/// The delegation in an OPEN reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delegation<'a> {
    /// No delegation; in 4.1, possibly with the reason (`why_no_delegation4`).
    None(Option<u32>),
    /// A read delegation.
    Read(&'a Stateid),
    /// A write delegation.
    Write(&'a Stateid),
}

/// The results after an operation's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the RFCs' own names
pub enum ResultBody<'a> {
    /// No results, or none that are needed.
    Empty,
    Access {
        supported: u32,
        access: u32,
    },
    Getattr {
        attributes: FileAttributes<'a>,
    },
    Getfh {
        object: FileHandle<'a>,
    },
    /// CREATE, LINK, REMOVE, SETXATTR and REMOVEXATTR.
    Changed {
        directory: ChangeInfo,
    },
    Rename {
        from: ChangeInfo,
        to: ChangeInfo,
    },
    /// LOCK and LOCKT that failed because another owner holds this lock.
    Denied {
        offset: u64,
        length: u64,
        kind: u32,
        client: u64,
        owner: &'a [u8],
    },
    Open {
        stateid: &'a Stateid,
        directory: ChangeInfo,
        flags: u32,
        delegation: Delegation<'a>,
    },
    /// CLOSE, LOCK, LOCKU, OPEN_CONFIRM and OPEN_DOWNGRADE.
    State {
        stateid: &'a Stateid,
    },
    Read {
        eof: bool,
        data: FileData<'a>,
    },
    ReadPlus {
        eof: bool,
        segments: Segments<'a>,
    },
    Readdir {
        verifier: u64,
        entries: Entries<'a>,
        eof: bool,
    },
    Readlink {
        target: &'a [u8],
    },
    Write {
        count: u32,
        committed: StableHow,
        verifier: u64,
    },
    Commit {
        verifier: u64,
    },
    Copy {
        count: u64,
    },
    Seek {
        eof: bool,
        offset: u64,
    },
    ExchangeId {
        client: u64,
        sequence: u32,
        flags: u32,
    },
    CreateSession {
        session: &'a [u8; 16],
        sequence: u32,
        flags: u32,
        fore: SessionChannel,
        back: SessionChannel,
    },
    Setclientid {
        client: u64,
    },
    Sequence {
        session: &'a [u8; 16],
        sequence: u32,
        slot: u32,
        highest_slot: u32,
        target_highest_slot: u32,
        flags: u32,
    },
    Getxattr {
        value: &'a [u8],
    },
    /// An unknown operation, after which nothing can be parsed.
    Unknown,
}

/// The entries of a READDIR reply. They have already been validated, and are parsed again on each iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    count: u32,
}

/// One entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The cookie with which the client continues reading after this entry.
    pub cookie: u64,
    /// Its name.
    pub name: &'a [u8],
    /// The requested attributes.
    pub attributes: FileAttributes<'a>,
}

impl<'a> Entries<'a> {
    /// The number of entries.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// All entries, in the server's order.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let mut cur = Cursor::new(self.bytes);
        // The entries have already been validated, so errors are impossible here.
        (0..self.count)
            .map_while(move |_| cur.boolean().and_then(|_| Entries::entry(&mut cur)).ok())
    }

    fn entry(cur: &mut Cursor<'a>) -> Result<Entry<'a>, ParseError> {
        Ok(Entry {
            cookie: cur.u64()?,
            name: name(cur)?,
            attributes: FileAttributes::read(cur)?,
        })
    }

    /// The list in wire format, including the end marker.
    pub(super) fn wire(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn read(cur: &mut Cursor<'a>) -> Result<Entries<'a>, ParseError> {
        let (bytes, start) = (cur.rest(), cur.at());
        let mut count = 0;
        while cur.boolean()? {
            Entries::entry(cur)?;
            count += 1;
        }
        Ok(Entries {
            bytes: &bytes[..cur.at() - start],
            count,
        })
    }
}

/// A segment of a READ_PLUS reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'a> {
    /// Data at this offset in the file.
    Data(u64, &'a [u8]),
    /// A hole: offset and length.
    Hole(u64, u64),
}

/// The segments of a READ_PLUS reply. They have already been validated, and are parsed again on each iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments<'a> {
    bytes: &'a [u8],
    count: u32,
}

impl<'a> Segments<'a> {
    /// All segments.
    pub fn iter(&self) -> impl Iterator<Item = Segment<'a>> + use<'a> {
        let mut cur = Cursor::new(self.bytes);
        (0..self.count).map_while(move |_| Segments::segment(&mut cur).ok())
    }

    fn segment(cur: &mut Cursor<'a>) -> Result<Segment<'a>, ParseError> {
        Ok(match cur.u32()? {
            0 => Segment::Data(
                cur.u64()?,
                cur.opaque(DATA_BYTES_MAX, "READ_PLUS of more than 16 MiB")?,
            ),
            1 => Segment::Hole(cur.u64()?, cur.u64()?),
            _ => return Err(cur.malformed(4, "data_content4 is neither 0 nor 1")),
        })
    }

    fn read(cur: &mut Cursor<'a>) -> Result<Segments<'a>, ParseError> {
        let count = cur.count(SEGMENTS_MAX, "more than 65536 segments")?;
        let (bytes, start) = (cur.rest(), cur.at());
        for _ in 0..count {
            Segments::segment(cur)?;
        }
        Ok(Segments {
            bytes: &bytes[..cur.at() - start],
            count,
        })
    }
}

#[inline]
fn change(cur: &mut Cursor<'_>) -> Result<ChangeInfo, ParseError> {
    Ok(ChangeInfo {
        atomic: cur.boolean()?,
        before: cur.u64()?,
        after: cur.u64()?,
    })
}

/// Parses the next operation's results.
#[inline]
pub(super) fn parse<'a>(cur: &mut Cursor<'a>) -> Result<OpResult<'a>, ParseError> {
    let (number, status) = (cur.u32()?, Status(cur.u32()?));
    let body = match Op::from_number(number) {
        Some(op) if status == Status::OK => succeeded(op, cur)?,
        Some(op) => failed(op, status, cur)?,
        None => ResultBody::Unknown,
    };
    Ok(OpResult {
        number,
        status,
        body,
    })
}

/// The results that some operations return even if they failed; most are skipped.
fn failed<'a>(op: Op, status: Status, cur: &mut Cursor<'a>) -> Result<ResultBody<'a>, ParseError> {
    match (op, status) {
        // The attributes that were set before the failure.
        (Op::Setattr, _) => {
            Bitmap::read(cur)?;
        }
        (Op::Lock | Op::Lockt, Status::DENIED) => {
            return Ok(ResultBody::Denied {
                offset: cur.u64()?,
                length: cur.u64()?,
                kind: cur.u32()?,
                client: cur.u64()?,
                owner: opaque(cur)?,
            });
        }
        (Op::Setclientid, Status::CLID_INUSE) => network_address(cur)?,
        (Op::Getdeviceinfo, Status::TOOSMALL) | (Op::Layoutget, Status::LAYOUTTRYLATER) => {
            cur.skip(4)?;
        }
        (Op::Copy, Status::OFFLOAD_NO_REQS) => cur.skip(8)?,
        _ => {}
    }
    Ok(ResultBody::Empty)
}

fn succeeded<'a>(op: Op, cur: &mut Cursor<'a>) -> Result<ResultBody<'a>, ParseError> {
    Ok(match op {
        Op::Sequence => ResultBody::Sequence {
            session: cur.view()?,
            sequence: cur.u32()?,
            slot: cur.u32()?,
            highest_slot: cur.u32()?,
            target_highest_slot: cur.u32()?,
            flags: cur.u32()?,
        },
        Op::Getattr => ResultBody::Getattr {
            attributes: FileAttributes::read(cur)?,
        },
        Op::Read => ResultBody::Read {
            eof: cur.boolean()?,
            data: cur.data(DATA_BYTES_MAX, "READ of more than 16 MiB")?,
        },
        Op::Write => ResultBody::Write {
            count: cur.u32()?,
            committed: stable_how(cur)?,
            verifier: cur.u64()?,
        },
        Op::Access => ResultBody::Access {
            supported: cur.u32()?,
            access: cur.u32()?,
        },
        Op::Getfh => ResultBody::Getfh {
            object: handle(cur)?,
        },
        Op::Open => open(cur)?,
        Op::Close | Op::Lock | Op::Locku | Op::OpenConfirm | Op::OpenDowngrade => {
            ResultBody::State {
                stateid: stateid(cur)?,
            }
        }
        Op::Commit => ResultBody::Commit {
            verifier: cur.u64()?,
        },
        Op::Create => {
            let directory = change(cur)?;
            Bitmap::read(cur)?;
            ResultBody::Changed { directory }
        }
        Op::Link | Op::Remove | Op::Setxattr | Op::Removexattr => ResultBody::Changed {
            directory: change(cur)?,
        },
        Op::Rename => ResultBody::Rename {
            from: change(cur)?,
            to: change(cur)?,
        },
        Op::Readdir => ResultBody::Readdir {
            verifier: cur.u64()?,
            entries: Entries::read(cur)?,
            eof: cur.boolean()?,
        },
        Op::Readlink => ResultBody::Readlink { target: path(cur)? },
        Op::Setclientid => {
            let client = cur.u64()?;
            cur.skip(8)?;
            ResultBody::Setclientid { client }
        }
        other => succeeded_later(other, cur)?,
    })
}

/// Parses the results of an operation introduced after NFSv4.0 (RFC 8881, RFC 7862, RFC 8276).
fn succeeded_later<'a>(op: Op, cur: &mut Cursor<'a>) -> Result<ResultBody<'a>, ParseError> {
    Ok(match op {
        Op::ReadPlus => ResultBody::ReadPlus {
            eof: cur.boolean()?,
            segments: Segments::read(cur)?,
        },
        Op::Seek => ResultBody::Seek {
            eof: cur.boolean()?,
            offset: cur.u64()?,
        },
        Op::Copy => {
            let count = write_response(cur)?;
            cur.skip(8)?;
            ResultBody::Copy { count }
        }
        Op::WriteSame => ResultBody::Copy {
            count: write_response(cur)?,
        },
        Op::ExchangeId => exchange_id(cur)?,
        Op::CreateSession => ResultBody::CreateSession {
            session: cur.view()?,
            sequence: cur.u32()?,
            flags: cur.u32()?,
            fore: channel(cur)?,
            back: channel(cur)?,
        },
        Op::Getxattr => ResultBody::Getxattr { value: body(cur)? },
        other => {
            skip(other, cur)?;
            ResultBody::Empty
        }
    })
}

fn open<'a>(cur: &mut Cursor<'a>) -> Result<ResultBody<'a>, ParseError> {
    let (stateid, directory, flags) = (stateid(cur)?, change(cur)?, cur.u32()?);
    Bitmap::read(cur)?;
    Ok(ResultBody::Open {
        stateid,
        directory,
        flags,
        delegation: delegation(cur)?,
    })
}

/// `open_delegation4`.
fn delegation<'a>(cur: &mut Cursor<'a>) -> Result<Delegation<'a>, ParseError> {
    Ok(match cur.u32()? {
        0 => Delegation::None(None),
        1 => {
            let stateid = stateid(cur)?;
            cur.skip(4)?;
            ace(cur)?;
            Delegation::Read(stateid)
        }
        2 => {
            let stateid = stateid(cur)?;
            cur.skip(4)?;
            // Both kinds of limits have 64 bits: a size, or a number of blocks and a block size.
            cur.skip(4 + 8)?;
            ace(cur)?;
            Delegation::Write(stateid)
        }
        3 => {
            let why = cur.u32()?;
            // WND4_CONTENTION and WND4_RESOURCE are followed by a flag that tells whether the server will call back.
            if matches!(why, 1 | 2) {
                cur.skip(4)?;
            }
            Delegation::None(Some(why))
        }
        // Attribute delegations (RFC 9754) have the same layout as other delegations.
        4 => {
            let stateid = stateid(cur)?;
            cur.skip(4)?;
            ace(cur)?;
            Delegation::Read(stateid)
        }
        5 => {
            let stateid = stateid(cur)?;
            cur.skip(4 + 4 + 8)?;
            ace(cur)?;
            Delegation::Write(stateid)
        }
        _ => return Err(cur.malformed(4, "open_delegation_type4 is not 0 to 5")),
    })
}

/// `write_response4`; returns the number of bytes written.
fn write_response(cur: &mut Cursor<'_>) -> Result<u64, ParseError> {
    let ids = cur.count(1, "more than one callback id")?;
    cur.skip(ids as usize * 16)?;
    let count = cur.u64()?;
    cur.skip(4 + 8)?;
    Ok(count)
}

fn exchange_id<'a>(cur: &mut Cursor<'a>) -> Result<ResultBody<'a>, ParseError> {
    let (client, sequence, flags) = (cur.u64()?, cur.u32()?, cur.u32()?);
    match cur.u32()? {
        0 => {}
        1 => protected_operations(cur)?,
        2 => {
            protected_operations(cur)?;
            cur.skip(16)?;
            for _ in 0..elements(cur)? {
                body(cur)?;
            }
        }
        _ => return Err(cur.malformed(4, "state_protect_how4 is not 0 to 2")),
    }
    // The server's owner and scope.
    cur.skip(8)?;
    opaque(cur)?;
    opaque(cur)?;
    implementation(cur)?;
    Ok(ResultBody::ExchangeId {
        client,
        sequence,
        flags,
    })
}

/// The results of SECINFO: security flavors, RPCSEC_GSS (6) with an OID, a quality and a service.
fn skip_flavors(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    for _ in 0..elements(cur)? {
        if cur.u32()? == 6 {
            opaque(cur)?;
            cur.skip(8)?;
        }
    }
    Ok(())
}

/// Skips results that aren't needed.
fn skip(op: Op, cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    match op {
        Op::Secinfo | Op::SecinfoNoName => skip_flavors(cur),
        Op::Setattr => Bitmap::read(cur).map(|_| ()),
        Op::BindConnToSession => cur.skip(24),
        Op::GetDirDelegation => match cur.u32()? {
            0 => {
                cur.skip(8 + 16)?;
                Bitmap::read(cur)?;
                protected_operations(cur)
            }
            _ => cur.skip(4),
        },
        Op::Getdeviceinfo => {
            cur.skip(4)?;
            body(cur)?;
            Bitmap::read(cur).map(|_| ())
        }
        Op::Getdevicelist => {
            cur.skip(16)?;
            let count = elements(cur)?;
            cur.skip(count as usize * 16 + 4)
        }
        Op::Layoutcommit => {
            let size = cur.boolean()?;
            cur.skip(if size { 8 } else { 0 })
        }
        Op::Layoutget => {
            cur.skip(4 + 16)?;
            for _ in 0..elements(cur)? {
                cur.skip(8 + 8 + 4 + 4)?;
                body(cur)?;
            }
            Ok(())
        }
        Op::Layoutreturn => {
            let stateid = cur.boolean()?;
            cur.skip(if stateid { 16 } else { 0 })
        }
        Op::SetSsv => body(cur).map(|_| ()),
        Op::TestStateid => {
            let count = elements(cur)?;
            cur.skip(count as usize * 4)
        }
        Op::WantDelegation => delegation(cur).map(|_| ()),
        Op::CopyNotify => {
            cur.skip(12 + 16)?;
            for _ in 0..elements(cur)? {
                network_location(cur)?;
            }
            Ok(())
        }
        Op::IoAdvise => Bitmap::read(cur).map(|_| ()),
        Op::OffloadStatus => {
            cur.skip(8)?;
            let complete = cur.count(1, "more than one status")?;
            cur.skip(complete as usize * 4)
        }
        Op::Listxattrs => {
            cur.skip(8)?;
            for _ in 0..elements(cur)? {
                name(cur)?;
            }
            cur.skip(4)
        }
        // All other operations return only their status.
        _ => Ok(()),
    }
}
