//! Alibaba's block traces of 2020 (Li and others, IISWC '20; github.com/alibaba/block-traces):
//! `device_id,opcode,offset,length,timestamp`. Offsets and lengths are in bytes, times in microseconds since 1970.

use super::described::{DescribedRows, Meaning, Separator, TextFormat};
use crate::format::Format;
use crate::record::TraceOp;

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "alibaba",
    help: "Alibaba Cloud 2020: device_id,opcode,offset,length,timestamp",
    note: "",
    checked: false,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: b"0,R,126703661056,4096,1577808000000046\n1,W,19496058880,77824,1577808000000426\n",
    decoder: |_| DescribedRows::decoder(&TEXT),
};

const TEXT: TextFormat = TextFormat {
    separator: Separator::Byte(b','),
    head: "device_id,",
    columns: &[
        Meaning::Device,
        Meaning::Op(&[("R", TraceOp::Read), ("W", TraceOp::Write)]),
        Meaning::Offset(1),
        Meaning::Length(1),
        Meaning::WholeTime(1000),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;
    use crate::record::BlockRequest;

    /// The first rows of `io_traces.csv`.
    #[test]
    fn rows_of_the_publisher_are_parsed() {
        let (requests, devices, damaged) = read(&FORMAT, FORMAT.example);
        assert_eq!((damaged.len(), devices.len()), (0, 2));
        let second = BlockRequest {
            time_ns: 1_577_808_000_000_426_000,
            device: 1,
            op: TraceOp::Write,
            offset_bytes: 19_496_058_880,
            len_bytes: 77_824,
            response_ns: None,
            fua: false,
            content: None,
        };
        assert_eq!((requests.len(), requests[1]), (2, second));
        let (requests, _, damaged) = read(
            &FORMAT,
            b"device_id,opcode,offset,length,timestamp\n1,X,0,512,1\n1,R,0,512,1,2\n",
        );
        assert_eq!((requests.len(), damaged), (0, vec![2, 3]));
    }
}
