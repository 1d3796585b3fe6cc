//! Text formats of simulators: DiskSim's ASCII (Bucy and others, CMU-PDL-08-101, 2.3.1), and the format of MQSim
//! (Tavakkol and others, FAST '18; github.com/CMU-SAFARI/MQSim) and SSDSim, which differs from it only in the unit of
//! time. Rows have five columns separated by blanks; addresses and lengths are in sectors of 512 bytes.

use super::described::{DescribedRows, Meaning, Separator, TextFormat};
use crate::format::Format;
use crate::record::TraceOp;

/// 1 for reads (DiskSim's flag B_READ), 0 for writes.
const OPS: Meaning = Meaning::Op(&[("1", TraceOp::Read), ("0", TraceOp::Write)]);

const DISKSIM_TEXT: TextFormat = TextFormat {
    separator: Separator::Blanks,
    head: "#",
    columns: &[
        // With a decimal point; without one, the format is MQSim's.
        Meaning::TimeWithPoint(1_000_000),
        Meaning::Device,
        Meaning::Offset(512),
        Meaning::Length(512),
        OPS,
    ],
};

const MQSIM_TEXT: TextFormat = TextFormat {
    columns: &[
        Meaning::WholeTime(1),
        Meaning::Device,
        Meaning::Offset(512),
        Meaning::Length(512),
        OPS,
    ],
    ..DISKSIM_TEXT
};

/// The formats' table entries.
pub const DISKSIM: Format = Format {
    name: "disksim",
    help: "DiskSim's ASCII: milliseconds device block blocks flags",
    note: "blocks of 512 bytes; flags are 1 for reads and 0 for writes",
    checked: false,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: b"13.191135\t30\t8\t5\t1\n17.829285\t20\t576560\t6\t0\n",
    decoder: |_| DescribedRows::decoder(&DISKSIM_TEXT),
};

/// See [`DISKSIM`].
pub const MQSIM: Format = Format {
    name: "mqsim",
    help: "MQSim and SSDSim: nanoseconds device sector sectors type",
    note: "type 1 is a read, 0 a write; for SSDSim traces with another time unit, give --columns \
        with time-unit",
    example: b"938513000 4 264719034 16 0\n938828000 3 197570570 16 1\n",
    decoder: |_| DescribedRows::decoder(&MQSIM_TEXT),
    ..DISKSIM
};
