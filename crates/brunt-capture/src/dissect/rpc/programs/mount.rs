//! MOUNT version 3 (RFC 1813, appendix I): gives NFSv3 clients the first handle of a file system.

use brunt_wire::nfs::mount;
use brunt_wire::rpc;

use super::program::{CompletedCall, Program};
use crate::checksum::BlockSums;
use crate::dissect::Out;
use crate::dissect::rpc::exchange::Body;
use crate::dissect::rpc::id::MOUNT;
use crate::dissect::rpc::kinds;
use crate::operation::{OperationSummary, Sink};

/// The procedure that mounts an export; the only one whose results begin with a status.
const MNT: u32 = 1;

/// MOUNT.
pub struct Mount;

impl Program for Mount {
    #[inline]
    fn is_of(call: &rpc::RpcCall<'_>) -> bool {
        call.program == rpc::PROGRAM_MOUNT && call.version == 3
    }

    #[inline(never)]
    fn complete<S: Sink>(received: CompletedCall<'_>, _: &mut BlockSums, out: &mut Out<'_, S>) {
        let procedure = received.call.procedure;
        let mut summary = OperationSummary::of(kinds::MOUNT, MOUNT);
        if procedure == MNT {
            summary.status = received.leading_status();
        }
        let (args, results) = received.parse(
            received.args,
            received.results,
            out.ledger,
            |cur| mount::parse_args(procedure, cur),
            |cur| mount::parse_results(procedure, cur),
        );
        received.forward(
            &summary,
            &Body::Mount {
                procedure,
                args,
                results,
            },
            out,
        );
    }
}
