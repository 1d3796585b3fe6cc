//! Parses the arguments of operations into [`Args`]. Arguments that are not needed are skipped ([`Args::Other`]), but
//! they still have to be parsed, because the next operation begins where they end.

use super::Op;
use super::args::{Args, CreateKind, Locker, OpenClaim, OpenCreate};
use super::attributes::{Bitmap, FileAttributes};
use super::fields::{
    body, channel, elements, handle, implementation, network_address, network_location, opaque,
    protected_operations, stable_how, stateid,
};
use crate::nfs::{DATA_BYTES_MAX, name, path};
use crate::{Cursor, ParseError};

/// Parses the arguments of the next operation.
#[inline]
pub(super) fn parse<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let number = cur.u32()?;
    let Some(op) = Op::from_number(number) else {
        return Ok(Args::Unknown(number));
    };
    Ok(match op {
        Op::Putfh => Args::Putfh {
            object: handle(cur)?,
        },
        Op::Sequence => Args::Sequence {
            session: cur.view()?,
            sequence: cur.u32()?,
            slot: cur.u32()?,
            highest_slot: cur.u32()?,
            cache: cur.boolean()?,
        },
        Op::Getattr => Args::Getattr {
            mask: Bitmap::read(cur)?,
        },
        Op::Read => Args::Read {
            stateid: stateid(cur)?,
            offset: cur.u64()?,
            count: cur.u32()?,
        },
        Op::Write => Args::Write {
            stateid: stateid(cur)?,
            offset: cur.u64()?,
            stable: stable_how(cur)?,
            data: cur.data(DATA_BYTES_MAX, "WRITE of more than 16 MiB")?,
        },
        Op::Open => open(cur)?,
        Op::Close => {
            cur.skip(4)?;
            Args::Close {
                stateid: stateid(cur)?,
            }
        }
        Op::Commit => Args::Commit {
            offset: cur.u64()?,
            count: cur.u32()?,
        },
        Op::Access => Args::Access { access: cur.u32()? },
        Op::Lookup => Args::Lookup { name: name(cur)? },
        Op::Getfh => Args::Getfh,
        Op::Lookupp => Args::Lookupp,
        Op::Putpubfh => Args::Putpubfh,
        Op::Putrootfh => Args::Putrootfh,
        Op::Readlink => Args::Readlink,
        Op::Restorefh => Args::Restorefh,
        Op::Savefh => Args::Savefh,
        Op::Illegal => Args::Other(op),
        other => parse_infrequent(other, cur)?,
    })
}

/// Parses the arguments of the NFSv4.0 operations that are rare compared with reads and writes (RFC 7530).
fn parse_infrequent<'a>(op: Op, cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    Ok(match op {
        Op::Create => create(cur)?,
        Op::Delegreturn => Args::Delegreturn {
            stateid: stateid(cur)?,
        },
        Op::Link => Args::Link { name: name(cur)? },
        Op::Lock => lock(cur)?,
        Op::Lockt => lockt(cur)?,
        Op::Locku => locku(cur)?,
        Op::OpenDowngrade => open_downgrade(cur)?,
        Op::Readdir => Args::Readdir {
            cookie: cur.u64()?,
            verifier: cur.u64()?,
            dir_count: cur.u32()?,
            max_count: cur.u32()?,
            mask: Bitmap::read(cur)?,
        },
        Op::Remove => Args::Remove { name: name(cur)? },
        Op::Rename => Args::Rename {
            from: name(cur)?,
            to: name(cur)?,
        },
        Op::Renew => Args::Renew { client: cur.u64()? },
        Op::Secinfo => Args::Secinfo { name: name(cur)? },
        Op::Setattr => Args::Setattr {
            stateid: stateid(cur)?,
            attributes: FileAttributes::read(cur)?,
        },
        Op::Verify => Args::Verify {
            attributes: FileAttributes::read(cur)?,
        },
        Op::Setclientid => setclientid(cur)?,
        other => parse_later(other, cur)?,
    })
}

/// Parses the arguments of an operation introduced after NFSv4.0 (RFC 8881, RFC 7862, RFC 8276).
fn parse_later<'a>(op: Op, cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    Ok(match op {
        Op::ExchangeId => exchange_id(cur)?,
        Op::CreateSession => create_session(cur)?,
        Op::DestroySession => Args::DestroySession {
            session: cur.view()?,
        },
        Op::DestroyClientid => Args::DestroyClientid { client: cur.u64()? },
        Op::Layoutget => layoutget(cur)?,
        Op::ReclaimComplete => Args::ReclaimComplete {
            one_fs: cur.boolean()?,
        },
        Op::Allocate => Args::Allocate {
            stateid: stateid(cur)?,
            offset: cur.u64()?,
            length: cur.u64()?,
        },
        Op::Deallocate => Args::Deallocate {
            stateid: stateid(cur)?,
            offset: cur.u64()?,
            length: cur.u64()?,
        },
        Op::Copy => copy(cur)?,
        Op::Clone => {
            cur.skip(32)?;
            Args::Clone {
                from_offset: cur.u64()?,
                to_offset: cur.u64()?,
                count: cur.u64()?,
            }
        }
        Op::IoAdvise => {
            cur.skip(16)?;
            let args = Args::IoAdvise {
                offset: cur.u64()?,
                count: cur.u64()?,
            };
            Bitmap::read(cur)?;
            args
        }
        Op::ReadPlus => Args::ReadPlus {
            stateid: stateid(cur)?,
            offset: cur.u64()?,
            count: cur.u32()?,
        },
        Op::Seek => Args::Seek {
            stateid: stateid(cur)?,
            offset: cur.u64()?,
            hole: cur.u32()? == 1,
        },
        Op::WriteSame => write_same(cur)?,
        Op::Getxattr => Args::Getxattr { name: name(cur)? },
        Op::Setxattr => {
            cur.skip(4)?;
            Args::Setxattr {
                name: name(cur)?,
                value: body(cur)?,
            }
        }
        Op::Removexattr => Args::Removexattr { name: name(cur)? },
        other => {
            skip(other, cur)?;
            Args::Other(other)
        }
    })
}

fn lockt<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    Ok(Args::Lockt {
        kind: cur.u32()?,
        offset: cur.u64()?,
        length: cur.u64()?,
        client: cur.u64()?,
        owner: opaque(cur)?,
    })
}

fn locku<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let kind = cur.u32()?;
    cur.skip(4)?;
    Ok(Args::Locku {
        kind,
        stateid: stateid(cur)?,
        offset: cur.u64()?,
        length: cur.u64()?,
    })
}

fn open_downgrade<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let stateid = stateid(cur)?;
    cur.skip(4)?;
    Ok(Args::OpenDowngrade {
        stateid,
        access: cur.u32()?,
        deny: cur.u32()?,
    })
}

fn setclientid<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let (verifier, id, callback_program) = (cur.u64()?, opaque(cur)?, cur.u32()?);
    network_address(cur)?;
    cur.skip(4)?;
    Ok(Args::Setclientid {
        verifier,
        id,
        callback_program,
    })
}

fn open<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    cur.skip(4)?;
    let (access, deny, client, owner) = (cur.u32()?, cur.u32()?, cur.u64()?, opaque(cur)?);
    let create = match cur.u32()? {
        0 => OpenCreate::No,
        1 => match cur.u32()? {
            0 => OpenCreate::Unchecked(FileAttributes::read(cur)?),
            1 => OpenCreate::Guarded(FileAttributes::read(cur)?),
            2 => OpenCreate::Exclusive(cur.u64()?, None),
            3 => OpenCreate::Exclusive(cur.u64()?, Some(FileAttributes::read(cur)?)),
            _ => return Err(cur.malformed(4, "createmode4 is not 0 to 3")),
        },
        _ => return Err(cur.malformed(4, "opentype4 is neither 0 nor 1")),
    };
    let claim = match cur.u32()? {
        0 => OpenClaim::Null(name(cur)?),
        1 => OpenClaim::Previous(cur.u32()?),
        2 => OpenClaim::DelegateCur(stateid(cur)?, name(cur)?),
        3 => OpenClaim::DelegatePrev(name(cur)?),
        4 => OpenClaim::Fh,
        5 => OpenClaim::DelegCurFh(stateid(cur)?),
        6 => OpenClaim::DelegPrevFh,
        _ => return Err(cur.malformed(4, "open_claim_type4 is not 0 to 6")),
    };
    Ok(Args::Open {
        access,
        deny,
        client,
        owner,
        create,
        claim,
    })
}

fn create<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let kind = match cur.u32()? {
        3 => CreateKind::Block([cur.u32()?, cur.u32()?]),
        4 => CreateKind::Character([cur.u32()?, cur.u32()?]),
        5 => CreateKind::Link(path(cur)?),
        other => CreateKind::Plain(other),
    };
    Ok(Args::Create {
        kind,
        name: name(cur)?,
        attributes: FileAttributes::read(cur)?,
    })
}

fn lock<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let (kind, reclaim, offset, length) = (cur.u32()?, cur.boolean()?, cur.u64()?, cur.u64()?);
    let locker = if cur.boolean()? {
        cur.skip(4)?;
        let open = stateid(cur)?;
        cur.skip(4)?;
        Locker::New {
            open,
            client: cur.u64()?,
            owner: opaque(cur)?,
        }
    } else {
        let held = stateid(cur)?;
        cur.skip(4)?;
        Locker::Old(held)
    };
    Ok(Args::Lock {
        kind,
        reclaim,
        offset,
        length,
        locker,
    })
}

fn exchange_id<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let args = Args::ExchangeId {
        verifier: cur.u64()?,
        owner: opaque(cur)?,
        flags: cur.u32()?,
    };
    match cur.u32()? {
        0 => {}
        1 => protected_operations(cur)?,
        2 => {
            protected_operations(cur)?;
            for _ in 0..2 {
                for _ in 0..elements(cur)? {
                    opaque(cur)?;
                }
            }
            cur.skip(8)?;
        }
        _ => return Err(cur.malformed(4, "state_protect_how4 is not 0 to 2")),
    }
    implementation(cur)?;
    Ok(args)
}

fn create_session<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let (client, sequence, flags) = (cur.u64()?, cur.u32()?, cur.u32()?);
    let (fore, back) = (channel(cur)?, channel(cur)?);
    let callback_program = cur.u32()?;
    security_parameters(cur)?;
    Ok(Args::CreateSession {
        client,
        sequence,
        flags,
        fore,
        back,
        callback_program,
    })
}

fn layoutget<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    cur.skip(4)?;
    let (kind, iomode, offset, length) = (cur.u32()?, cur.u32()?, cur.u64()?, cur.u64()?);
    // minlength, stateid, maxcount
    cur.skip(8 + 16 + 4)?;
    Ok(Args::Layoutget {
        kind,
        iomode,
        offset,
        length,
    })
}

fn copy<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    cur.skip(32)?;
    let args = Args::Copy {
        from_offset: cur.u64()?,
        to_offset: cur.u64()?,
        count: cur.u64()?,
    };
    cur.skip(8)?;
    for _ in 0..elements(cur)? {
        network_location(cur)?;
    }
    Ok(args)
}

fn write_same<'a>(cur: &mut Cursor<'a>) -> Result<Args<'a>, ParseError> {
    let stateid = stateid(cur)?;
    stable_how(cur)?;
    let args = Args::WriteSame {
        stateid,
        offset: cur.u64()?,
        block_size: cur.u64()?,
        block_count: cur.u64()?,
    };
    cur.skip(8 + 4 + 8)?;
    body(cur)?;
    Ok(args)
}

/// Skips arguments that aren't needed.
fn skip(op: Op, cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    match op {
        Op::Delegpurge => cur.skip(8),
        Op::Nverify => FileAttributes::read(cur).map(|_| ()),
        Op::Openattr | Op::SecinfoNoName => cur.skip(4),
        Op::OpenConfirm => cur.skip(20),
        Op::SetclientidConfirm | Op::FreeStateid | Op::OffloadCancel | Op::OffloadStatus => {
            cur.skip(16)
        }
        Op::ReleaseLockowner => {
            cur.skip(8)?;
            opaque(cur).map(|_| ())
        }
        Op::BackchannelCtl => {
            cur.skip(4)?;
            security_parameters(cur)
        }
        Op::BindConnToSession => cur.skip(24),
        Op::GetDirDelegation => {
            cur.skip(4)?;
            Bitmap::read(cur)?;
            cur.skip(24)?;
            protected_operations(cur)
        }
        Op::Getdeviceinfo => {
            cur.skip(24)?;
            Bitmap::read(cur).map(|_| ())
        }
        Op::Getdevicelist => cur.skip(24),
        Op::Layoutcommit => skip_layoutcommit(cur),
        Op::Layoutreturn => {
            cur.skip(12)?;
            if cur.u32()? == 1 {
                cur.skip(8 + 8 + 16)?;
                body(cur)?;
            }
            Ok(())
        }
        Op::SetSsv => {
            body(cur)?;
            body(cur).map(|_| ())
        }
        Op::TestStateid => {
            let count = elements(cur)?;
            cur.skip(count as usize * 16)
        }
        Op::WantDelegation => {
            cur.skip(4)?;
            if cur.u32()? == 1 {
                cur.skip(4)?;
            }
            Ok(())
        }
        Op::CopyNotify => {
            cur.skip(16)?;
            network_location(cur)
        }
        Op::Layouterror => {
            cur.skip(8 + 8 + 16)?;
            let errors = elements(cur)?;
            cur.skip(errors as usize * 24)
        }
        Op::Layoutstats => {
            cur.skip(8 + 8 + 16 + 16 + 16 + 16 + 4)?;
            body(cur).map(|_| ())
        }
        Op::Listxattrs => cur.skip(12),
        _ => unreachable!("{} is read above", op.name()),
    }
}

fn skip_layoutcommit(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    cur.skip(8 + 8 + 4 + 16)?;
    if cur.boolean()? {
        cur.skip(8)?;
    }
    if cur.boolean()? {
        cur.skip(12)?;
    }
    cur.skip(4)?;
    body(cur).map(|_| ())
}

/// `callback_sec_parms4<>`.
fn security_parameters(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    for _ in 0..elements(cur)? {
        match cur.u32()? {
            0 => {}
            1 => {
                cur.skip(4)?;
                opaque(cur)?;
                cur.skip(8)?;
                let groups = elements(cur)?;
                cur.skip(groups as usize * 4)?;
            }
            6 => {
                cur.skip(4)?;
                body(cur)?;
                body(cur)?;
            }
            _ => {
                return Err(cur.malformed(
                    4,
                    "callback flavor is not AUTH_NONE, AUTH_SYS or RPCSEC_GSS",
                ));
            }
        }
    }
    Ok(())
}
