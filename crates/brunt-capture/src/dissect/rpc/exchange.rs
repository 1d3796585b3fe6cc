//! A call with its reply, parsed: the RPC-specific part of an operation. Created by the programs, read by analyses
//! and tables. The one rule: everything borrows from the messages.

use brunt_wire::nfs::{mount as mount3, v3, v4};
use brunt_wire::rpc;

/// A call with its reply: the RPC-specific part of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The call's header.
    pub call: &'a rpc::RpcCall<'a>,
    /// The reply's header.
    pub reply: Option<&'a rpc::RpcReply<'a>>,
    /// The arguments and results.
    pub body: &'a Body<'a>,
}

/// The arguments and results of a call. A part that was not captured, or could not be parsed, is `None`.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant)] // borrowed views on the stack, one per operation
pub enum Body<'a> {
    /// NFSv3.
    Nfs3 {
        /// The procedure.
        procedure: v3::Procedure,
        /// The arguments.
        args: Option<&'a v3::Args<'a>>,
        /// The results.
        results: Option<&'a v3::Results<'a>>,
    },
    /// MOUNT version 3.
    Mount {
        /// The procedure number.
        procedure: u32,
        /// The arguments.
        args: Option<mount3::Args<'a>>,
        /// The results.
        results: Option<mount3::Results<'a>>,
    },
    /// A compound of NFSv4.0, 4.1 or 4.2: [`v4::Walk`] iterates over its operations. A NULL call has neither
    /// arguments nor results.
    Nfs4 {
        /// The arguments.
        call: Option<v4::CompoundArgs<'a>>,
        /// The results.
        reply: Option<v4::CompoundResults<'a>>,
    },
    /// A call from an NFSv4 server to its client: in this operation, the NFSv4 server is the client.
    Nfs4Callback {
        /// The arguments.
        call: v4::CallbackCompound<'a>,
    },
    /// A program or version that is not dissected, or an encrypted call.
    Opaque,
}
