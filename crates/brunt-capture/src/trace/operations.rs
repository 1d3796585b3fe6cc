//! Requests with their replies: the table `operations`, common to all protocols. Protocol-specific fields are
//! in separate tables.

use brunt_lake::{Coding, Column, Table};

use super::common::{Common, FILE};
use super::rows::{Handle, Registry, Tabled};
use crate::operation::{Message, Operation, OperationKind, Protocol, TransferDirection};

/// Requests with their replies.
pub const OPERATIONS: Table = Table {
    name: "operations",
    doc: "One row for each request with its reply, in order of completion. Fields specific to some \
     protocols or operations are in other tables.",
    columns: &[
        Column::int(
            "record_id",
            "Number of the request, in order of appearance.",
        ),
        Column::int(
            "completion_id",
            "Number of the request, in order of completion; increases within the rows of one parser.",
        )
        .coded(Coding::Delta),
        Column::text(
            "protocol",
            "The protocol: `NFSv3`, `NFSv4`, `MOUNT`, or `RPC` for other programs.",
        ),
        Column::text(
            "operation",
            "Name of the operation; for an NFSv4 compound, the name of its main operation.",
        ),
        Column::int(
            "flow",
            "The request's flow: source is the client, destination the server.",
        ),
        Column::int(
            "tag",
            "Identifier that pairs request and reply: for RPC, the xid.",
        )
        .coded(Coding::Delta),
        Column::time("request_first", "Time of the request's first byte."),
        Column::int(
            "request_span_ns",
            "Time from the request's first byte to its last; null if the last byte was not captured.",
        )
        .nullable(),
        Column::int(
            "latency_ns",
            "Time from the request's first byte to the reply's first byte; null if no reply was captured.",
        )
        .nullable(),
        Column::int(
            "reply_span_ns",
            "Time from the reply's first byte to its last; null if the last byte was not captured.",
        )
        .nullable(),
        Column::int(
            "status",
            "Status of the operation, where 0 is success; null if the operation has no status or it was not captured.",
        )
        .nullable(),
        FILE.nullable(),
        Column::int(
            "direction",
            "0 for reads, 1 for writes; null for all other operations.",
        )
        .nullable(),
        Column::int(
            "offset_bytes",
            "File offset; null if the operation has no offset.",
        )
        .nullable(),
        Column::int(
            "asked_bytes",
            "Requested bytes; null if the operation has no count.",
        )
        .nullable(),
        Column::int("moved_bytes", "Transferred bytes of file data."),
        Column::int(
            "outstanding",
            "Number of outstanding requests when this one was sent, including itself.",
        ),
        Column::int(
            "missing_bytes",
            "Bytes of the operation's data that were lost in holes.",
        ),
        Column::bool(
            "request_whole",
            "Whether the request was captured completely.",
        ),
        Column::bool("reply_whole", "Whether the reply was captured completely."),
        Column::int(
            "request_at_bytes",
            "Offset of the request's header in the payload of its packet.",
        ),
        Column::int(
            "request_bytes",
            "Length of the request, including its header.",
        ),
        Column::int(
            "reply_at_bytes",
            "Offset of the reply's header in the payload of its packet; null without a reply.",
        )
        .nullable(),
        Column::int(
            "reply_bytes",
            "Length of the reply, including its header; null without a reply.",
        )
        .nullable(),
    ],
};

/// The name for a code: codes of kinds come first, then those of protocols.
fn name(code: i64) -> &'static str {
    let code = code as usize;
    match code.checked_sub(OperationKind::COUNT) {
        None => OperationKind::from_index(code).name(),
        Some(protocol) => Protocol::from_index(protocol).name(),
    }
}

struct OperationsTable;

impl Tabled for OperationsTable {
    const TABLE: &'static Table = &OPERATIONS;
    const CODES: Option<fn(i64) -> &'static str> = Some(name);
}

/// The operation table of a pipeline.
pub struct Operations {
    table: Handle<OperationsTable>,
    completed: u64,
}

impl Operations {
    pub fn register(registry: &mut Registry) -> Operations {
        Operations {
            table: registry.add(),
            completed: 0,
        }
    }

    #[inline]
    pub fn record(&mut self, operation: &Operation<'_>, flow: i64, common: &mut Common) {
        let (id, completion) = (
            common.number(operation.record_id),
            common.number(self.completed),
        );
        self.completed += 1;
        let file = operation.summary.file.map(|file| common.hide.file(file));
        let direction = operation
            .summary
            .direction
            .map(|direction| match direction {
                TransferDirection::Read => 0,
                TransferDirection::Write => 1,
            });
        let (request, reply) = (&operation.request, operation.reply.as_ref());
        let time = |ns: Option<u64>| ns.map(|ns| ns as i64);
        // Stored as a span, which is mostly zero because most messages fit in one packet, and zeros take almost no
        // space, unlike a separate time.
        let span = |of: &Message| {
            of.last_ns
                .map(|last| last.saturating_sub(of.first_ns) as i64)
        };
        common
            .rows
            .line(self.table)
            .int(id)
            .int(completion)
            .int((OperationKind::COUNT + operation.summary.protocol.index()) as i64)
            .int(operation.summary.kind.index() as i64)
            .int(flow)
            .int(operation.tag.into())
            .int(request.first_ns as i64)
            .int_or_null(span(request))
            .int_or_null(time(operation.latency_ns()))
            .int_or_null(reply.and_then(span))
            .int_or_null(operation.summary.status.map(i64::from))
            .int_or_null(file)
            .int_or_null(direction)
            .int_or_null(operation.summary.offset.map(|offset| offset as i64))
            .int_or_null(operation.summary.asked_bytes.map(i64::from))
            .int(operation.summary.moved_bytes.into())
            .int(operation.outstanding.into())
            .int(operation.data_missing.into())
            .bool(request.whole)
            .bool(reply.is_some_and(|reply| reply.whole))
            .int(request.place.at.into())
            .int(request.place.len.into())
            .int_or_null(reply.map(|reply| reply.place.at.into()))
            .int_or_null(reply.map(|reply| reply.place.len.into()))
            .end();
    }
}
