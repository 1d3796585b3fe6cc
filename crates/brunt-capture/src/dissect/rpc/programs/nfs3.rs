//! NFSv3 (RFC 1813). The one rule: arguments and results are parsed in place, once.

use brunt_wire::nfs::v3;
use brunt_wire::{Cursor, ParseError, rpc};

use super::program::{CompletedCall, Program};
use crate::checksum::BlockSums;
use crate::dissect::Out;
use crate::dissect::rpc::compound::MovedData;
use crate::dissect::rpc::data::{DataTarget, sum_whole};
use crate::dissect::rpc::exchange::Body;
use crate::dissect::rpc::id::NFS3;
use crate::dissect::rpc::kinds;
use crate::operation::{FileKey, OperationSummary, Sink, TransferDirection};

/// The offset of data whose READ call was not fully captured. The file is unknown as well, so the checksums of this
/// data are discarded.
const OFFSET_UNKNOWN: u64 = u64::MAX;

/// NFS version 3.
pub struct Nfs3;

fn is(call: &rpc::RpcCall<'_>, procedure: v3::Procedure) -> bool {
    call.procedure == procedure as u32
}

impl Program for Nfs3 {
    #[inline]
    fn is_of(call: &rpc::RpcCall<'_>) -> bool {
        call.program == rpc::PROGRAM_NFS
            && call.version == 3
            && v3::Procedure::from_number(call.procedure).is_some()
    }

    #[inline]
    fn moves_data(call: &rpc::RpcCall<'_>) -> bool {
        call.program == rpc::PROGRAM_NFS
            && call.version == 3
            && (is(call, v3::Procedure::Read) || is(call, v3::Procedure::Write))
    }

    #[inline]
    fn written<'a>(
        call: &rpc::RpcCall<'_>,
        mut cur: Cursor<'a>,
    ) -> Result<Option<MovedData<'a>>, ParseError> {
        if !is(call, v3::Procedure::Write) {
            return Ok(None);
        }
        Ok(match v3::parse_args(v3::Procedure::Write, &mut cur)? {
            v3::Args::Write {
                file, offset, data, ..
            } => Some(MovedData {
                file: Some(file),
                offset,
                data,
            }),
            _ => None,
        })
    }

    #[inline]
    fn read<'a>(
        call: &rpc::RpcCall<'_>,
        mut asked: Cursor<'a>,
        mut reply: Cursor<'a>,
    ) -> Result<Option<MovedData<'a>>, ParseError> {
        if !is(call, v3::Procedure::Read) {
            return Ok(None);
        }
        let v3::Results {
            body: v3::ResultBody::Read { data, .. },
            ..
        } = v3::parse_results(v3::Procedure::Read, &mut reply)?
        else {
            return Ok(None);
        };
        let (file, offset) = match v3::parse_args(v3::Procedure::Read, &mut asked) {
            Ok(v3::Args::Read { file, offset, .. }) => (Some(file), offset),
            _ => (None, OFFSET_UNKNOWN),
        };
        Ok(Some(MovedData { file, offset, data }))
    }

    // Inlined into the matcher, where the reply's fields are available.
    #[inline(always)]
    fn complete<S: Sink>(
        mut received: CompletedCall<'_>,
        sums: &mut BlockSums,
        out: &mut Out<'_, S>,
    ) {
        let slot = received.slot;
        let procedure =
            v3::Procedure::from_number(received.call.procedure).expect("a procedure of NFSv3");
        let mut summary = OperationSummary::of(kinds::of_v3(procedure), NFS3);
        if procedure != v3::Procedure::Null {
            summary.status = received.leading_status();
        }
        let (mut args, mut results) = (v3::Args::Null, v3::Results::default());
        let ledger = &mut *out.ledger;
        let has_args = received.args.as_mut().is_some_and(|cur| {
            let handle = v3::leading_handle(procedure, *cur);
            let read = v3::read_args(procedure, cur, &mut args);
            let read = read
                .map_err(|error| CompletedCall::malformed(error, slot.damaged, ledger))
                .is_ok();
            let handle = handle.filter(|_| read);
            summary.file = handle.map(|handle| FileKey::new(slot.peers.server.address, handle));
            read
        });
        let has_results = received.results.as_mut().is_some_and(|(cur, damaged)| {
            let read = v3::read_results(procedure, cur, &mut results);
            read.map_err(|error| CompletedCall::malformed(error, *damaged, ledger))
                .is_ok()
        });
        let answer = has_results.then_some(&results);
        if has_args {
            say(&args, answer, &mut summary);
        }
        // The data of a small READ arrived within its message.
        if let Some((message, _)) = received.reply
            && let Some(v3::Results {
                body: v3::ResultBody::Read { data, .. },
                ..
            }) = answer
            && message.elided_at.is_none()
            && data.len > 0
        {
            let (file, offset) = match (summary.file, args) {
                (Some(file), v3::Args::Read { offset, .. }) => (file, offset),
                _ => (FileKey(0), OFFSET_UNKNOWN),
            };
            let target = DataTarget {
                record_id: slot.record_id,
                file,
                offset,
                write: false,
            };
            sum_whole(sums, &target, data.bytes, out);
        }
        let body = Body::Nfs3 {
            procedure,
            args: has_args.then_some(&args),
            results: answer,
        };
        received.forward(&summary, &body, out);
    }
}

/// Fills the protocol-independent summary from the arguments and results.
#[inline]
fn say(args: &v3::Args<'_>, results: Option<&v3::Results<'_>>, summary: &mut OperationSummary) {
    match args {
        v3::Args::Read { offset, count, .. } => {
            (summary.direction, summary.offset) = (Some(TransferDirection::Read), Some(*offset));
            summary.asked_bytes = Some(*count);
            if let Some(v3::Results {
                body: v3::ResultBody::Read { count, .. },
                ..
            }) = results
            {
                summary.moved_bytes = *count;
            }
        }
        v3::Args::Write { offset, count, .. } => {
            (summary.direction, summary.offset) = (Some(TransferDirection::Write), Some(*offset));
            summary.asked_bytes = Some(*count);
            summary.moved_bytes = match results {
                Some(v3::Results {
                    body: v3::ResultBody::Write { count, .. },
                    ..
                }) => *count,
                Some(_) => 0,
                // Without a reply, the bytes that the call sent are counted.
                None => *count,
            };
        }
        v3::Args::Commit { offset, count, .. } => {
            (summary.offset, summary.asked_bytes) = (Some(*offset), Some(*count));
        }
        _ => {}
    }
}
