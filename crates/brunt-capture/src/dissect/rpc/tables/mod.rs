//! The RPC tables in a trace, one file per group. Called by the recorder for each RPC operation, after its row in
//! `operations` was written.

mod attributes;
mod calls;
mod filesystems;
mod last_written;
mod nfs3;
mod nfs4;
mod time;

use brunt_wire::nfs::mount;

pub use attributes::{ATTRIBUTES, PRE_OP_ATTRIBUTES};
pub use calls::{CALLER_GROUPS, CALLERS, RPC_CALLS};
pub use filesystems::FILESYSTEMS;
pub use nfs3::{ACCESSES, ENTRIES, LISTINGS, SETATTRS, TRANSFERS};
pub use nfs4::{COMPOUND_ATTRIBUTES, COMPOUNDS};

use super::exchange::{Body, Exchange};
use super::id::RpcId;
use crate::dissect::OwnTables;
use crate::operation::Operation;
use crate::trace::common::Common;
use crate::trace::files::{Files, Named};
use crate::trace::rows::Registry;

/// All tables of RPC.
pub struct RpcTables {
    calls: calls::Calls,
    nfs3: nfs3::Nfs3Tables,
    nfs4: nfs4::Nfs4Tables,
}

impl OwnTables<RpcId> for RpcTables {
    fn register(registry: &mut Registry) -> RpcTables {
        RpcTables {
            calls: calls::Calls::register(registry),
            nfs3: nfs3::Nfs3Tables::register(registry),
            nfs4: nfs4::Nfs4Tables::register(registry),
        }
    }

    fn forget(&mut self) {
        self.calls.forget();
        self.nfs3.forget();
        self.nfs4.forget();
    }

    fn settle(&mut self, common: &mut Common) {
        self.nfs3.settle(common);
    }

    #[inline]
    fn record(
        &mut self,
        operation: &Operation<'_>,
        exchange: &Exchange<'_>,
        files: &mut Files,
        common: &mut Common,
    ) {
        let id = common.number(operation.record_id);
        let server = operation.peers.server.address;
        self.calls.record(id, exchange, common);
        match exchange.body {
            Body::Nfs3 { args, results, .. } => {
                let results = results.map(|results| &results.body);
                let of = nfs3::Nfs3Exchange {
                    id,
                    server,
                    file: operation.summary.file,
                    args: *args,
                    results,
                };
                self.nfs3.record(&of, files, common);
            }
            Body::Nfs4 {
                call: Some(call),
                reply,
            } => {
                self.nfs4
                    .record(operation, call, reply.as_ref(), files, common);
            }
            Body::Mount {
                args: Some(mount::Args::Mount(path) | mount::Args::Unmount(path)),
                results,
                ..
            } => {
                let leads_to = match results {
                    Some(mount::Results::Mounted(root)) => {
                        Some(files.handle(server, *root, common))
                    }
                    _ => None,
                };
                files.name(
                    &Named {
                        id,
                        name: Some(path),
                        leads_to,
                        ..Named::default()
                    },
                    common,
                );
            }
            Body::Mount { .. } | Body::Nfs4 { .. } | Body::Nfs4Callback { .. } | Body::Opaque => {}
        }
    }
}
