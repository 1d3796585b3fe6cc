//! The interface of a program, and a call as programs receive it. The one rule: a message that can't be parsed
//! becomes `None` and is counted.

use brunt_wire::{Cursor, ParseError, rpc};

use crate::checksum::BlockSums;
use crate::dissect::rpc::compound::MovedData;
use crate::dissect::rpc::exchange::{Body, Exchange};
use crate::dissect::rpc::message::{MessageEnd, Slot};
use crate::dissect::{Detail, Out};
use crate::ledger::Ledger;
use crate::operation::{Message, Operation, OperationSummary, Sink};

/// A call that completed or was abandoned, and its reply. Passed by value so that its parts stay in registers.
#[derive(Clone, Copy)]
pub(crate) struct CompletedCall<'a> {
    pub slot: &'a Slot,
    pub call: &'a rpc::RpcCall<'a>,
    /// Positioned at the arguments; `None` if they are encrypted.
    pub args: Option<Cursor<'a>>,
    /// Positioned at the results, with whether they are damaged; `None` also if the call was not executed.
    pub results: Option<(Cursor<'a>, bool)>,
    pub reply: Option<(&'a MessageEnd<'a>, &'a rpc::RpcReply<'a>)>,
}

impl CompletedCall<'_> {
    /// The status at the start of the results, as in most procedures.
    #[inline]
    pub(super) fn leading_status(&self) -> Option<u32> {
        self.results.and_then(|(mut cur, _)| cur.u32().ok())
    }

    /// Counts a part that was captured but could not be parsed.
    pub(super) fn malformed(error: ParseError, damaged: bool, ledger: &mut Ledger) {
        if !damaged || matches!(error, ParseError::Malformed(_)) {
            ledger.bodies_malformed += 1;
        }
    }

    /// Parses arguments and results with the given functions, and counts malformed ones.
    #[inline]
    pub(super) fn parse<'a, A, R>(
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
    // Always inlined, so that the fields of the operation are stored only once, where the sink reads them.
    #[inline(always)]
    pub(super) fn forward<S: Sink>(
        &self,
        summary: &OperationSummary,
        body: &Body<'_>,
        out: &mut Out<'_, S>,
    ) {
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
    /// Whether a call belongs to this program.
    fn is_of(call: &rpc::RpcCall<'_>) -> bool;

    /// Whether a call can carry or request this program's file data, judging by the call's header alone; also asked
    /// for calls to other programs.
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

    /// Parses the call and its reply, computes checksums of their data, and passes the operation to the sink.
    fn complete<S: Sink>(received: CompletedCall<'_>, sums: &mut BlockSums, out: &mut Out<'_, S>);
}
