//! Fujitsu's K5 cloud of 2018 (SNIA IOTTA 26930): `ID,Timestamp,Type,Offset,Length`. Times are in seconds since the
//! first request of all volumes, offsets and lengths in bytes.

use super::described::{DescribedRows, Meaning, Separator, TextFormat};
use crate::format::Format;
use crate::record::TraceOp;

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "k5cloud",
    help: "Fujitsu K5 cloud: ID,Timestamp,Type,Offset,Length",
    note: "",
    checked: false,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: b"1157,3.828359000,W,7155568640,4096\n1157,3.833921000,R,7132311552,8192\n",
    decoder: |_| DescribedRows::decoder(&TEXT),
};

const TEXT: TextFormat = TextFormat {
    separator: Separator::Byte(b','),
    head: "ID,",
    columns: &[
        Meaning::Device,
        Meaning::Time(1_000_000_000),
        Meaning::Op(&[("R", TraceOp::Read), ("W", TraceOp::Write)]),
        Meaning::Offset(1),
        Meaning::Length(1),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;
    use crate::record::BlockRequest;

    /// The first row is from the archive, as quoted by its users.
    #[test]
    fn rows_of_the_publisher_are_parsed() {
        let (requests, devices, damaged) = read(&FORMAT, FORMAT.example);
        assert_eq!((damaged.len(), devices), (0, vec!["1157".to_string()]));
        let first = BlockRequest::new(3_828_359_000, 0, TraceOp::Write, 7_155_568_640, 4096);
        assert_eq!((requests.len(), requests[0]), (2, first));
        let damaged = b"1,1.0,X,0,512\n1,1.0,R,0\n1,1.0,R,0,512,1\nx,1.0,R,0,512\n";
        assert_eq!(read(&FORMAT, damaged).2, [1, 2, 3, 4]);
    }
}
