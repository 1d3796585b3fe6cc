//! NFSv4 callbacks (RFC 7530, 16; RFC 8881, 20): calls from a server to its client, using a program number that the
//! client chose. The one rule: a call that doesn't parse as a callback belongs to another program.

use brunt_wire::nfs::v4;
use brunt_wire::rpc;

use super::program::{CompletedCall, Program};
use crate::checksum::BlockSums;
use crate::dissect::Out;
use crate::dissect::rpc::exchange::Body;
use crate::dissect::rpc::id::{NFS4, OTHER};
use crate::dissect::rpc::{compound, kinds};
use crate::operation::{OperationSummary, Sink};

/// Callbacks of all minor versions.
pub struct Callback;

impl Program for Callback {
    #[inline]
    fn is_of(call: &rpc::RpcCall<'_>) -> bool {
        compound::may_be_callback(call)
    }

    #[inline(never)]
    fn complete<S: Sink>(received: CompletedCall<'_>, _: &mut BlockSums, out: &mut Out<'_, S>) {
        match received
            .args
            .map(|mut cur| v4::CallbackCompound::parse(&mut cur))
        {
            Some(Ok(call)) => {
                let mut summary = OperationSummary::of(kinds::CALLBACK, NFS4);
                summary.status = received.leading_status();
                received.forward(&summary, &Body::Nfs4Callback { call }, out);
            }
            _ => received.forward(
                &OperationSummary::of(kinds::OTHER, OTHER),
                &Body::Opaque,
                out,
            ),
        }
    }
}
