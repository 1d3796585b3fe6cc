//! NFSv4.0, 4.1 and 4.2 (RFC 7530, 8881, 7862): compounds. The one rule: everything after an unknown
//! operation is ignored.

use brunt_wire::nfs::v4;
use brunt_wire::{Cursor, ParseError, rpc};

use super::program::{CompletedCall, Program};
use crate::checksum::BlockSums;
use crate::dissect::Out;
use crate::dissect::rpc::compound::{self, MovedData};
use crate::dissect::rpc::data::{DataTarget, sum_whole};
use crate::dissect::rpc::exchange::Body;
use crate::dissect::rpc::id::{ATTRIBUTES_UNPARSED, COMPOUNDS_UNPARSED, NFS4, RpcId};
use crate::dissect::rpc::kinds;
use crate::operation::{FileKey, OperationSummary, Sink};

/// NFS version 4: COMPOUND and NULL.
pub struct Nfs4;

impl Program for Nfs4 {
    #[inline]
    fn is_of(call: &rpc::RpcCall<'_>) -> bool {
        // NFSv3's other procedures don't exist in version 4, so such calls don't belong to this program.
        call.program == rpc::PROGRAM_NFS && call.version == 4 && !(2..22).contains(&call.procedure)
    }

    #[inline]
    fn moves_data(call: &rpc::RpcCall<'_>) -> bool {
        compound::is_compound(call)
    }

    #[inline]
    fn written<'a>(
        call: &rpc::RpcCall<'_>,
        cur: Cursor<'a>,
    ) -> Result<Option<MovedData<'a>>, ParseError> {
        if compound::is_compound(call) {
            compound::written(cur)
        } else {
            Ok(None)
        }
    }

    #[inline]
    fn read<'a>(
        call: &rpc::RpcCall<'_>,
        asked: Cursor<'a>,
        reply: Cursor<'a>,
    ) -> Result<Option<MovedData<'a>>, ParseError> {
        if compound::is_compound(call) {
            compound::answered(asked, reply)
        } else {
            Ok(None)
        }
    }

    #[inline(never)]
    fn complete<S: Sink>(received: CompletedCall<'_>, sums: &mut BlockSums, out: &mut Out<'_, S>) {
        let mut summary = OperationSummary::of(kinds::NULL, NFS4);
        if !compound::is_compound(received.call) {
            if received.call.procedure != 0 {
                summary.kind = kinds::OTHER;
            }
            return received.forward(
                &summary,
                &Body::Nfs4 {
                    call: None,
                    reply: None,
                },
                out,
            );
        }
        summary.kind = kinds::OTHER;
        summary.status = received.leading_status();
        let (call, reply) = received.parse(
            received.args,
            received.results,
            out.ledger,
            v4::CompoundArgs::parse,
            v4::CompoundResults::parse,
        );
        if let Some(call) = &call {
            walk(&received, call, reply.as_ref(), sums, out);
            let gist = compound::gist(call, reply.as_ref());
            let server = received.slot.peers.server.address;
            summary.kind = gist.op.map_or(kinds::OTHER, kinds::of_v4);
            summary.file = gist.file.map(|handle| FileKey::new(server, handle));
            summary.direction = gist.direction;
            summary.offset = gist.direction.map(|_| gist.offset);
            summary.asked_bytes = gist.direction.map(|_| gist.asked);
            summary.moved_bytes = gist.bytes;
        }
        received.forward(&summary, &Body::Nfs4 { call, reply }, out);
    }
}

/// Computes checksums of the data within a compound's messages, and counts parts that could not be parsed.
fn walk<S: Sink>(
    received: &CompletedCall<'_>,
    call: &v4::CompoundArgs<'_>,
    reply: Option<&v4::CompoundResults<'_>>,
    sums: &mut BlockSums,
    out: &mut Out<'_, S>,
) {
    let slot = received.slot;
    let message = received.reply.map(|(message, _)| message);
    let mut walk = v4::Walk::new(call, reply);
    let mut streamed = message.is_some_and(|message| message.elided_at.is_some());
    for step in walk.by_ref() {
        if let Some(moved) = compound::read_step(&step) {
            // Data that arrived in pieces belongs to the first READ and has already been summed.
            if !std::mem::take(&mut streamed) && !moved.data.bytes.is_empty() {
                let target = DataTarget::new(slot.record_id, &slot.peers, &moved, false);
                sum_whole(sums, &target, moved.data.bytes, out);
            }
            continue;
        }
        match step.result.map(|result| result.body) {
            Some(v4::ResultBody::ReadPlus { segments, .. }) => {
                for segment in segments.iter() {
                    let v4::Segment::Data(offset, bytes) = segment else {
                        continue;
                    };
                    let target =
                        DataTarget::at(slot.record_id, &slot.peers, step.current.handle(), offset);
                    sum_whole(sums, &target, bytes, out);
                }
            }
            Some(v4::ResultBody::Getattr { attributes }) => {
                *out.ledger.own::<RpcId>(ATTRIBUTES_UNPARSED) +=
                    u64::from(attributes.parse().unparsed.is_some());
            }
            _ => {}
        }
    }
    let damaged = [slot.damaged, message.is_none_or(|message| message.damaged)];
    for (end, damaged) in [walk.call_end(), walk.reply_end()].into_iter().zip(damaged) {
        match end {
            None => {}
            Some(v4::CompoundEnd::Unknown(_)) => *out.ledger.own::<RpcId>(COMPOUNDS_UNPARSED) += 1,
            Some(v4::CompoundEnd::Error(ParseError::Incomplete(_))) if damaged => {}
            Some(v4::CompoundEnd::Error(_)) => out.ledger.bodies_malformed += 1,
        }
    }
}
