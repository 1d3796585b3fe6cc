//! What the pipeline and the analyses need from NFSv4 compounds: the position of file data, and the main operation.
//! Called by the NFSv4 program. The one rule: everything after an unknown operation is ignored.

use brunt_wire::nfs::{FileHandle, v4};
use brunt_wire::{Cursor, FileData, ParseError, rpc};

use crate::operation::TransferDirection;

/// The data of a WRITE or of the reply to a READ within a compound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedData<'a> {
    /// The file; `None` if the compound reached it only by name.
    pub file: Option<FileHandle<'a>>,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The data; its position is relative to the cursor's start.
    pub data: FileData<'a>,
}

/// Whether a call is an NFSv4 COMPOUND.
#[inline]
pub fn is_compound(call: &rpc::RpcCall<'_>) -> bool {
    call.program == rpc::PROGRAM_NFS
        && call.version == 4
        && call.procedure == v4::PROCEDURE_COMPOUND
}

/// Whether a call may be a callback from a server to its client, judging by its program number, which the client
/// chose.
#[inline]
pub fn may_be_callback(call: &rpc::RpcCall<'_>) -> bool {
    let transient = rpc::PROGRAM_TRANSIENT_FIRST..=rpc::PROGRAM_TRANSIENT_LAST;
    transient.contains(&call.program) && call.procedure == v4::PROCEDURE_COMPOUND
}

/// The data of the first WRITE in a call whose arguments begin at `cur`.
///
/// # Errors
/// The call is cut short before the data, or malformed.
#[inline]
pub fn written<'a>(mut cur: Cursor<'a>) -> Result<Option<MovedData<'a>>, ParseError> {
    let call = v4::CompoundArgs::parse(&mut cur)?;
    let mut walk = v4::Walk::new(&call, None);
    for step in walk.by_ref() {
        if let v4::Args::Write { offset, data, .. } = step.args {
            return Ok(Some(MovedData {
                file: step.current.handle(),
                offset,
                data,
            }));
        }
    }
    match walk.call_end() {
        Some(v4::CompoundEnd::Error(error)) => Err(error),
        _ => Ok(None),
    }
}

/// The data of the first READ in a call for which the reply contains data.
///
/// # Errors
/// The reply is cut short before the data, or malformed.
#[inline]
pub fn answered<'a>(
    mut call: Cursor<'a>,
    mut reply: Cursor<'a>,
) -> Result<Option<MovedData<'a>>, ParseError> {
    let Ok(call) = v4::CompoundArgs::parse(&mut call) else {
        return Ok(None);
    };
    if !call
        .operations()
        .any(|args| matches!(args, Ok(v4::Args::Read { .. })))
    {
        return Ok(None);
    }
    let reply = v4::CompoundResults::parse(&mut reply)?;
    let mut walk = v4::Walk::new(&call, Some(&reply));
    for step in walk.by_ref() {
        if let Some(moved) = read_step(&step) {
            return Ok(Some(moved));
        }
    }
    match walk.reply_end() {
        Some(v4::CompoundEnd::Error(error)) => Err(error),
        _ => Ok(None),
    }
}

/// The data of a step, if it is a successful READ.
#[inline]
pub fn read_step<'a>(step: &v4::CompoundStep<'a>) -> Option<MovedData<'a>> {
    let v4::Args::Read { offset, .. } = step.args else {
        return None;
    };
    let v4::ResultBody::Read { data, .. } = step.result?.body else {
        return None;
    };
    Some(MovedData {
        file: step.current.handle(),
        offset,
        data,
    })
}

/// A compound reduced to its main operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gist<'a> {
    /// The main operation: the one that moves data, or else the one that the others prepare or follow.
    pub op: Option<v4::Op>,
    /// The file or directory that the main operation works on.
    pub file: Option<FileHandle<'a>>,
    /// Direction of the data; `None` if it moves none.
    pub direction: Option<TransferDirection>,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Bytes requested.
    pub asked: u32,
    /// Bytes of file data that the whole compound moved.
    pub bytes: u32,
}

/// How much an operation reveals about the client's intent: nearly every compound also changes handles and requests
/// attributes.
fn importance(op: v4::Op) -> u8 {
    use v4::Op::*;
    match op {
        Putfh | Putrootfh | Putpubfh | Savefh | Restorefh | Getfh => 1,
        Sequence => 2,
        Getattr => 3,
        Lookup | Lookupp | Access | Verify | Nverify => 4,
        Read | Write | ReadPlus => 6,
        _ => 5,
    }
}

/// Reduces a compound.
#[inline]
pub fn gist<'a>(call: &v4::CompoundArgs<'a>, reply: Option<&v4::CompoundResults<'a>>) -> Gist<'a> {
    let mut gist = Gist::default();
    let mut best = 0;
    for step in v4::Walk::new(call, reply) {
        let Some(op) = step.args.op() else { break };
        let moved = match (step.args, step.result.map(|result| result.body)) {
            (v4::Args::Read { .. }, Some(v4::ResultBody::Read { data, .. })) => data.len,
            (v4::Args::ReadPlus { .. }, Some(v4::ResultBody::ReadPlus { segments, .. })) => {
                segments.iter().fold(0, |sum, segment| match segment {
                    v4::Segment::Data(_, bytes) => sum + bytes.len() as u32,
                    v4::Segment::Hole(..) => sum,
                })
            }
            (v4::Args::Write { .. }, Some(v4::ResultBody::Write { count, .. })) => count,
            // Without a reply, the bytes that the call sent are counted.
            (v4::Args::Write { data, .. }, None) if reply.is_none() => data.len,
            _ => 0,
        };
        gist.bytes = gist.bytes.saturating_add(moved);
        // Among equally important operations, the first counts; among LOOKUPs, the last, which names the file.
        let importance = importance(op);
        if importance < best || (importance == best && op != v4::Op::Lookup) {
            continue;
        }
        best = importance;
        gist.op = Some(op);
        gist.file = step.current.handle();
        (gist.direction, gist.offset, gist.asked) = match step.args {
            v4::Args::Read { offset, count, .. } | v4::Args::ReadPlus { offset, count, .. } => {
                (Some(TransferDirection::Read), offset, count)
            }
            v4::Args::Write { offset, data, .. } => {
                (Some(TransferDirection::Write), offset, data.len)
            }
            _ => (None, 0, 0),
        };
    }
    gist
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// A compound is counted as its main operation.
    #[test]
    fn a_compound_counts_as_its_main_operation() {
        let sequence = [53, 1, 2, 3, 4, 5, 0, 7, 0];
        let putfh = [22, 4, 0x6162_6364];
        let getattr = [9, 1, 0x18];
        let check = |ops: &[&[u32]], expected: v4::Op| {
            let mut message = vec![0, 1, ops.len() as u32];
            ops.iter().for_each(|op| message.extend_from_slice(op));
            let bytes = words(&message);
            let call = v4::CompoundArgs::parse(&mut Cursor::new(&bytes)).unwrap();
            let gist = gist(&call, None);
            assert_eq!(gist.op, Some(expected));
            if expected != v4::Op::Sequence {
                assert_eq!(gist.file, Some(FileHandle(b"abcd")), "{expected:?}");
            }
        };
        check(&[&sequence], v4::Op::Sequence);
        check(&[&sequence, &putfh, &getattr], v4::Op::Getattr);
        check(&[&sequence, &putfh, &[3, 31], &getattr], v4::Op::Access);
        check(
            &[&sequence, &putfh, &[15, 1, 0x6100_0000], &[10], &getattr],
            v4::Op::Lookup,
        );
        check(
            &[&sequence, &putfh, &[25, 0, 0, 0, 0, 0, 4096, 512], &getattr],
            v4::Op::Read,
        );
        check(
            &[&putfh, &[38, 0, 0, 0, 0, 0, 8, 2, 4, 7], &getattr],
            v4::Op::Write,
        );
        check(&[&sequence, &putfh, &[4, 0, 0, 0, 0, 0]], v4::Op::Close);
    }
}
