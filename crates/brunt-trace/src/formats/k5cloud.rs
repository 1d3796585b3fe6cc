//! Fujitsu's K5 cloud of 2018 (SNIA IOTTA 26930): `ID,Timestamp,Type,Offset,Length`. Seconds since the first request of
//! all volumes; bytes.

use super::{RowOutcome, TextRow, TextRows};
use crate::field::{DelimitedFields, number, seconds};
use crate::format::Format;
use crate::record::{BlockRequest, Devices, TraceOp};

/// The line for the table.
pub const FORMAT: Format = Format {
    name: "k5cloud",
    help: "Fujitsu K5 cloud: ID,Timestamp,Type,Offset,Length",
    note: "",
    checked: false,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: b"1157,3.828359000,W,7155568640,4096\n1157,3.833921000,R,7132311552,8192\n",
    decoder: |_| Box::new(TextRows::new(K5Cloud)),
};

struct K5Cloud;

impl TextRow for K5Cloud {
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome {
        if line.starts_with(b"ID,") {
            return RowOutcome::Nothing;
        }
        request(line, devices).into()
    }
}

fn request(line: &[u8], devices: &mut Devices) -> Option<BlockRequest> {
    let mut fields = DelimitedFields::new(line, b',');
    let volume = fields.next()?;
    number(volume)?;
    let time_ns = seconds(fields.next()?)?;
    let op = match fields.next()? {
        b"R" => TraceOp::Read,
        b"W" => TraceOp::Write,
        _ => return None,
    };
    let offset_bytes = number(fields.next()?)?;
    let len_bytes = u32::try_from(number(fields.next()?)?).ok()?;
    if fields.next().is_some() {
        return None;
    }
    let device = devices.index_of(volume)?;
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

    /// The first row is of the archive, as those who read it quote it.
    #[test]
    fn rows_of_the_publisher() {
        let (requests, devices, damaged) = read(&FORMAT, FORMAT.example);
        assert_eq!((damaged.len(), devices), (0, vec!["1157".to_string()]));
        let first = BlockRequest::new(3_828_359_000, 0, TraceOp::Write, 7_155_568_640, 4096);
        assert_eq!((requests.len(), requests[0]), (2, first));
        let damaged = b"1,1.0,X,0,512\n1,1.0,R,0\n1,1.0,R,0,512,1\nx,1.0,R,0,512\n";
        assert_eq!(read(&FORMAT, damaged).2, [1, 2, 3, 4]);
    }
}
