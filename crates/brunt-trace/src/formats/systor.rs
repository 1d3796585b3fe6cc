//! Systor '17, enterprise virtual desktops (Lee and others; SNIA IOTTA 4964): `Timestamp,Response,IOType,LUN,Offset,Size`
//! under a line with these names, one file an hour and LUN. Unix seconds with a fraction of which microseconds are
//! true; bytes. A blank IOType says that no answer was seen.

use super::{RowOutcome, TextRow, TextRows};
use crate::field::{DelimitedFields, number, seconds};
use crate::format::Format;
use crate::record::{BlockRequest, Devices, TraceOp};

/// The line for the table.
pub const FORMAT: Format = Format {
    name: "systor",
    help: "Systor '17: Timestamp,Response,IOType,LUN,Offset,Size",
    note: "a request without IOType had no answer: its kind is unknown, `other`; a device for each LUN",
    checked: false,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: b"Timestamp,Response,IOType,LUN,Offset,Size\n\
        1456095145.133076000,0.000806000,R,0,899056122368,131072\n1456135200.013118000,0.001,,4,4096,512\n",
    decoder: |_| Box::new(TextRows::new(Systor)),
};

struct Systor;

impl TextRow for Systor {
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome {
        if line.starts_with(b"Timestamp,") {
            return RowOutcome::Nothing;
        }
        request(line, devices).into()
    }
}

fn request(line: &[u8], devices: &mut Devices) -> Option<BlockRequest> {
    let mut fields = DelimitedFields::new(line, b',');
    let time_ns = seconds(fields.next()?)?;
    let response = fields.next()?;
    let op = match fields.next()? {
        b"R" => TraceOp::Read,
        b"W" => TraceOp::Write,
        b"" => TraceOp::Other,
        _ => return None,
    };
    let response_ns = match (op, response) {
        (TraceOp::Other, _) => None,
        (_, response) => Some(seconds(response)?),
    };
    let lun = fields.next()?;
    number(lun)?;
    let offset_bytes = number(fields.next()?)?;
    let len_bytes = u32::try_from(number(fields.next()?)?).ok()?;
    if fields.next().is_some() {
        return None;
    }
    let device = devices.index_of(lun)?;
    Some(BlockRequest {
        response_ns,
        ..BlockRequest::new(time_ns, device, op, offset_bytes, len_bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;

    /// A row of the archive, as those who read it quote it, and one without an answer.
    #[test]
    fn rows_of_the_publisher() {
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
