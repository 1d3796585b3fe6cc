//! RPC programs: how a call and its reply are parsed, which data they carry, and which kind of operation they are.
//! Called by [`super::matcher`]. A program is one file and one line in the table below; a call goes to the first
//! program whose `is_of` accepts it. The one rule: a message that can't be parsed becomes `None` and is counted.

mod callback;
mod mount;
mod nfs3;
mod nfs4;
mod program;

use brunt_wire::{Cursor, ParseError, rpc};

pub(super) use program::CompletedCall;

use super::compound::MovedData;
use super::exchange::Body;
use super::id::OTHER;
use super::kinds;
use crate::checksum::BlockSums;
use crate::dissect::Out;
use crate::operation::{OperationSummary, Sink};
use program::Program;

/// All other programs.
struct Opaque;

impl Program for Opaque {
    #[inline]
    fn is_of(_: &rpc::RpcCall<'_>) -> bool {
        true
    }

    fn complete<S: Sink>(received: CompletedCall<'_>, _: &mut BlockSums, out: &mut Out<'_, S>) {
        received.forward(
            &OperationSummary::of(kinds::OTHER, OTHER),
            &Body::Opaque,
            out,
        );
    }
}

macro_rules! programs {
    ($($variant:ident: $program:ty,)*) => {
        /// The program of a call.
        #[derive(Clone, Copy)]
        enum Which { $($variant),* }

        #[inline]
        fn which(call: &rpc::RpcCall<'_>) -> Which {
            $(if <$program>::is_of(call) {
                return Which::$variant;
            })*
            unreachable!("the last program accepts all calls")
        }

        /// Whether a call can carry or request file data.
        #[inline(always)]
        pub(super) fn moves_data(call: &rpc::RpcCall<'_>) -> bool {
            $(<$program>::moves_data(call))||*
        }

        /// The data in a call.
        ///
        /// # Errors
        /// The call is cut short before the data, or malformed.
        #[inline]
        pub(super) fn written<'a>(
            call: &rpc::RpcCall<'_>,
            cur: Cursor<'a>,
        ) -> Result<Option<MovedData<'a>>, ParseError> {
            match which(call) {
                $(Which::$variant => <$program>::written(call, cur)),*
            }
        }

        /// The data in a reply.
        ///
        /// # Errors
        /// The reply is cut short before the data, or malformed.
        #[inline]
        pub(super) fn read<'a>(
            call: &rpc::RpcCall<'_>,
            asked: Cursor<'a>,
            reply: Cursor<'a>,
        ) -> Result<Option<MovedData<'a>>, ParseError> {
            match which(call) {
                $(Which::$variant => <$program>::read(call, asked, reply)),*
            }
        }

        /// Parses the call and its reply, and passes the operation to the sink.
        #[inline]
        pub(super) fn complete<S: Sink>(received: CompletedCall<'_>, sums: &mut BlockSums, out: &mut Out<'_, S>) {
            match which(received.call) {
                $(Which::$variant => <$program>::complete(received, sums, out)),*
            }
        }
    };
}

// The most frequent programs come first.
programs! {
    Nfs3: nfs3::Nfs3,
    Nfs4: nfs4::Nfs4,
    Callback: callback::Callback,
    Mount: mount::Mount,
    Opaque: Opaque,
}
