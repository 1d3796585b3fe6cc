//! Systor '17, enterprise virtual desktops (Lee and others; SNIA IOTTA 4964):
//! `Timestamp,Response,IOType,LUN,Offset,Size` under a header with these names, one file per hour and LUN. Times are
//! Unix seconds with a fraction that is accurate to microseconds; offsets and sizes are in bytes. A blank IOType
//! means that no response was seen.

use super::described::{DescribedRows, Meaning, Separator, TextFormat};
use crate::format::Format;
use crate::record::TraceOp;

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "systor",
    help: "Systor '17: Timestamp,Response,IOType,LUN,Offset,Size",
    note: "a request without IOType was not answered; its kind is unknown, `other`; each LUN becomes a device",
    checked: false,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: b"Timestamp,Response,IOType,LUN,Offset,Size\n\
        1456095145.133076000,0.000806000,R,0,899056122368,131072\n1456135200.013118000,0.001,,4,4096,512\n",
    decoder: |_| DescribedRows::decoder(&TEXT),
};

const TEXT: TextFormat = TextFormat {
    separator: Separator::Byte(b','),
    head: "Timestamp,",
    columns: &[
        Meaning::Time(1_000_000_000),
        Meaning::Response(1_000_000_000),
        // Without a response, the operation is unknown.
        Meaning::Op(&[
            ("R", TraceOp::Read),
            ("W", TraceOp::Write),
            ("", TraceOp::Other),
        ]),
        Meaning::Device,
        Meaning::Offset(1),
        Meaning::Length(1),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;
    use crate::record::BlockRequest;

    /// A row from the archive, as quoted by its users, and one without a response.
    #[test]
    fn rows_of_the_publisher_are_parsed() {
        let (requests, devices, damaged) = read(&FORMAT, FORMAT.example);
        assert_eq!(
            (damaged.len(), devices),
            (0, vec!["0".to_string(), "4".into()])
        );
        let first = BlockRequest {
            response_ns: Some(806_000),
            ..BlockRequest::new(
                1_456_095_145_133_076_000,
                0,
                TraceOp::Read,
                899_056_122_368,
                131_072,
            )
        };
        assert_eq!((requests.len(), requests[0]), (2, first));
        assert_eq!(
            (requests[1].op, requests[1].response_ns),
            (TraceOp::Other, None)
        );
        let damaged =
            b"1.0,x,R,0,0,512\n1.0,0.1,X,0,0,512\n1.0,0.1,R,0,0,512,9\n1.0,0.1,R,0,-1,512\n";
        assert_eq!(read(&FORMAT, damaged).2, [1, 2, 3, 4]);
    }
}
