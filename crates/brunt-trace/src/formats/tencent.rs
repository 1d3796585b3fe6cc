//! Tencent's cloud block storage of 2018 (Zhang and others, ATC '20; SNIA IOTTA 27917): `Timestamp,Offset,Size,IOType,
//! VolumeID`. Whole seconds since 1970, sectors of 512 bytes, 0 for reads and 1 for writes.

use super::{RowOutcome, TextRow, TextRows};
use crate::field::{DelimitedFields, number};
use crate::format::Format;
use crate::record::{BlockRequest, Devices, TraceOp};

/// The line for the table.
pub const FORMAT: Format = Format {
    name: "tencent",
    help: "Tencent CBS 2018: Timestamp,Offset,Size,IOType,VolumeID",
    note: "times are whole seconds: all requests of a second have the time of its start, in the order of the file",
    checked: false,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: b"1538323199,1003027216,16,0,2313\n1538323200,12910952,128,0,1063\n",
    decoder: |_| Box::new(TextRows::new(Tencent)),
};

struct Tencent;

impl TextRow for Tencent {
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome {
        request(line, devices).into()
    }
}

fn request(line: &[u8], devices: &mut Devices) -> Option<BlockRequest> {
    let mut fields = DelimitedFields::new(line, b',');
    let time_ns = number(fields.next()?)?.checked_mul(1_000_000_000)?;
    let offset_bytes = number(fields.next()?)?.checked_mul(512)?;
    let len_bytes = u32::try_from(number(fields.next()?)?.checked_mul(512)?).ok()?;
    let op = match fields.next()? {
        b"0" => TraceOp::Read,
        b"1" => TraceOp::Write,
        _ => return None,
    };
    let name = fields.next()?;
    number(name)?;
    if fields.next().is_some() {
        return None;
    }
    let device = devices.index_of(name)?;
    Some(BlockRequest::new(
        time_ns,
        device,
        op,
        offset_bytes,
        len_bytes,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;

    /// Rows of the archive, as those who read it quote them.
    #[test]
    fn rows_of_the_publisher() {
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
