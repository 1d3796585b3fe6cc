//! RPC programs: how a call and its reply are parsed, which data they carry, and which operation they are.
//! Called by [`super::matcher`]. A program is one file and one line in the table below; a call goes to the
//! first program whose `is_of` accepts it. The one rule: unparsable messages are `None` and counted.

mod callback;
mod mount;
mod nfs3;
mod nfs4;

use brunt_wire::nfs::{mount as mount3, v3, v4};
use brunt_wire::{Cursor, ParseError, rpc};

use super::compound::MovedData;
use super::matcher::{MessageEnd, Slot};
use super::{Exchange, Rpc, kinds};
use crate::checksum::BlockSums;
use crate::dissect::{Detail, Out, ProtocolInfo};
use crate::ledger::Ledger;
use crate::operation::{Message, Operation, OperationSummary, Protocol, Sink};

/// The arguments and results of a call. A part that was not seen, or could not be parsed, is `None`.
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
    /// A compound of NFSv4.0, 4.1 or 4.2: [`v4::Walk`] iterates over its operations. NULL has neither.
    Nfs4 {
        /// The arguments.
        call: Option<v4::CompoundArgs<'a>>,
        /// The results.
        reply: Option<v4::CompoundResults<'a>>,
    },
    /// A call from an NFSv4 server to its client: the NFSv4 server is the client of this operation.
    Nfs4Callback {
        /// The arguments.
        call: v4::CallbackCompound<'a>,
    },
    /// A program or version that is not dissected, or encrypted.
    Opaque,
}

/// The programs with their own statuses, and all others.
pub const PROTOCOLS: &[ProtocolInfo] = &[
    ProtocolInfo {
        name: "NFSv3",
        status_name: |status| v3::Status(status).name(),
    },
    ProtocolInfo {
        name: "NFSv4",
        status_name: |status| v4::Status(status).name(),
    },
    ProtocolInfo {
        name: "MOUNT",
        status_name: |status| v3::Status(status).name(),
    },
    ProtocolInfo {
        name: "RPC",
        status_name: |_| None,
    },
];
const NFS3: Protocol = Protocol::of::<Rpc>(0);
const NFS4: Protocol = Protocol::of::<Rpc>(1);
const MOUNT: Protocol = Protocol::of::<Rpc>(2);
/// Programs that are not dissected.
pub const OTHER: Protocol = Protocol::of::<Rpc>(3);

/// A call that completed or was given up, and its reply. Passed by value so that its parts stay in registers.
#[derive(Clone, Copy)]
pub(super) struct Received<'a> {
    pub slot: &'a Slot,
    pub call: &'a rpc::RpcCall<'a>,
    /// At the arguments; `None` if they are encrypted.
    pub args: Option<Cursor<'a>>,
    /// At the results, and whether they are damaged; `None` also if the call was not executed.
    pub results: Option<(Cursor<'a>, bool)>,
    pub reply: Option<(&'a MessageEnd<'a>, &'a rpc::RpcReply<'a>)>,
}

impl Received<'_> {
    /// The status at the start of most procedures' results.
    #[inline]
    fn leading_status(&self) -> Option<u32> {
        self.results.and_then(|(mut cur, _)| cur.u32().ok())
    }

    /// Counts a part that was captured but could not be parsed.
    fn malformed(error: ParseError, damaged: bool, ledger: &mut Ledger) {
        if !damaged || matches!(error, ParseError::Malformed(_)) {
            ledger.bodies_malformed += 1;
        }
    }

    /// Parses arguments and results with these functions, and counts malformed ones.
    #[inline]
    fn parse<'a, A, R>(
        &self,
        args: Option<Cursor<'a>>,
        results: Option<(Cursor<'a>, bool)>,
        ledger: &mut Ledger,
        of_args: impl FnOnce(&mut Cursor<'a>) -> Result<A, ParseError>,
        of_results: impl FnOnce(&mut Cursor<'a>) -> Result<R, ParseError>,
    ) -> (Option<A>, Option<R>) {
        let args = args.and_then(|mut cur| {
            of_args(&mut cur)
                .map_err(|error| Self::malformed(error, self.slot.damaged, ledger))
                .ok()
        });
        let results = results.and_then(|(mut cur, damaged)| {
            of_results(&mut cur)
                .map_err(|error| Self::malformed(error, damaged, ledger))
                .ok()
        });
        (args, results)
    }

    /// Passes the operation to the sink.
    // Always inlined: the fields of the operation are then stored only once, where the sink reads them.
    #[inline(always)]
    fn hand_on<S: Sink>(&self, summary: &OperationSummary, body: &Body<'_>, out: &mut Out<'_, S>) {
        let slot = self.slot;
        let clock_was_set = out.on_complete(
            slot.record_id,
            slot.first_ns,
            self.reply.map(|(message, _)| message.first_ns),
        );
        let reply_missing = self.reply.map_or(0, |(message, _)| message.data_missing);
        let exchange = Exchange {
            call: self.call,
            reply: self.reply.map(|(_, header)| header),
            body,
        };
        out.sink.on_operation(&Operation {
            record_id: slot.record_id,
            summary: *summary,
            peers: slot.peers,
            tag: self.call.xid.0,
            request: Message {
                first_ns: slot.first_ns,
                last_ns: slot.last_ns,
                whole: !slot.damaged && slot.data_missing == 0,
                place: slot.place,
            },
            reply: self.reply.map(|(message, _)| Message {
                first_ns: message.first_ns,
                last_ns: message.last_ns,
                whole: !message.damaged && message.data_missing == 0,
                place: message.place,
            }),
            outstanding: slot.outstanding,
            data_missing: slot.data_missing + reply_missing,
            clock_was_set,
            detail: &Detail::Rpc(exchange),
        });
    }
}

/// A program or one of its versions.
pub(super) trait Program {
    /// Whether a call belongs to it.
    fn is_of(call: &rpc::RpcCall<'_>) -> bool;

    /// Whether a call of any program can carry or request file data, judging by its header alone.
    #[inline]
    fn moves_data(_call: &rpc::RpcCall<'_>) -> bool {
        false
    }

    /// The first file data in a call whose arguments begin at `cur`.
    ///
    /// # Errors
    /// The arguments are cut short before the data, or malformed.
    fn written<'a>(
        _call: &rpc::RpcCall<'_>,
        _cur: Cursor<'a>,
    ) -> Result<Option<MovedData<'a>>, ParseError> {
        Ok(None)
    }

    /// The first file data in a reply whose results begin at `reply`; the arguments of its call begin at
    /// `asked`.
    ///
    /// # Errors
    /// The results are cut short before the data, or malformed.
    fn read<'a>(
        _call: &rpc::RpcCall<'_>,
        _asked: Cursor<'a>,
        _reply: Cursor<'a>,
    ) -> Result<Option<MovedData<'a>>, ParseError> {
        Ok(None)
    }

    /// Parses both sides, sums the data within them, and passes the operation to the sink.
    fn complete<S: Sink>(received: Received<'_>, sums: &mut BlockSums, out: &mut Out<'_, S>);
}

/// All other programs.
struct Opaque;

impl Program for Opaque {
    #[inline]
    fn is_of(_: &rpc::RpcCall<'_>) -> bool {
        true
    }

    fn complete<S: Sink>(received: Received<'_>, _: &mut BlockSums, out: &mut Out<'_, S>) {
        received.hand_on(
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
            unreachable!("the last program takes every call")
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

        /// Parses both sides and passes the operation to the sink.
        #[inline]
        pub(super) fn complete<S: Sink>(received: Received<'_>, sums: &mut BlockSums, out: &mut Out<'_, S>) {
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
