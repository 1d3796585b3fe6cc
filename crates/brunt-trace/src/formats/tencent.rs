//! Tencent's cloud block storage of 2018 (Zhang and others, ATC '20; SNIA IOTTA 27917):
//! `Timestamp,Offset,Size,IOType,VolumeID`. Times are whole seconds since 1970, offsets and sizes are in sectors of
//! 512 bytes; IOType is 0 for reads and 1 for writes.

use super::described::{DescribedRows, Meaning, Separator, TextFormat};
use crate::format::Format;
use crate::record::TraceOp;

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "tencent",
    help: "Tencent CBS 2018: Timestamp,Offset,Size,IOType,VolumeID",
    note: "times are whole seconds: all requests of a second get the time of its start, in file \
        order",
    checked: false,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: b"1538323199,1003027216,16,0,2313\n1538323200,12910952,128,0,1063\n",
    decoder: |_| DescribedRows::decoder(&TEXT),
};

const TEXT: TextFormat = TextFormat {
    separator: Separator::Byte(b','),
    head: "",
    columns: &[
        Meaning::WholeTime(1_000_000_000),
        Meaning::Offset(512),
        Meaning::Length(512),
        Meaning::Op(&[("0", TraceOp::Read), ("1", TraceOp::Write)]),
        Meaning::Device,
    ],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;
    use crate::record::BlockRequest;

    /// Rows from the archive, as quoted by its users.
    #[test]
    fn rows_of_the_publisher_are_parsed() {
        let (requests, devices, damaged) = read(&FORMAT, FORMAT.example);
        assert_eq!(
            (damaged.len(), devices),
            (0, vec!["2313".to_string(), "1063".into()])
        );
        let second = BlockRequest {
            time_ns: 1_538_323_200_000_000_000,
            device: 1,
            op: TraceOp::Read,
            offset_bytes: 12_910_952 * 512,
            len_bytes: 65_536,
            response_ns: None,
            fua: false,
            content: None,
        };
        assert_eq!((requests.len(), requests[1]), (2, second));
        assert_eq!(
            read(&FORMAT, b"1538323200,8,8,2,1\n1538323200,8,8,1\n").2,
            [1, 2]
        );
    }
}
