//! The CSV form of CloudPhysics' vscsi traces, as in libCacheSim: `version,time,op,size,lbn` under a header with
//! these names. Times are whole seconds, `op` is a SCSI operation code in hexadecimal, sizes are in bytes, addresses
//! in blocks of 512 bytes.

use super::{RowOutcome, TextRow, TextRows};
use crate::field::{DelimitedFields, hex_byte, number};
use crate::format::Format;
use crate::record::{BlockRequest, Devices, TraceOp};

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "cloudphysics",
    help: "CloudPhysics as CSV (libCacheSim): version,time,op,size,lbn",
    note: "times are whole seconds: all requests of a second get the time of its start, in file \
        order",
    checked: true,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: b"version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633898,28,6656,40409911\n",
    decoder: |_| Box::new(TextRows::new(CloudPhysics)),
};

struct CloudPhysics;

impl TextRow for CloudPhysics {
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome {
        if line.starts_with(b"version,") {
            return RowOutcome::Nothing;
        }
        request(line, devices).into()
    }
}

fn request(line: &[u8], devices: &mut Devices) -> Option<BlockRequest> {
    let mut fields = DelimitedFields::new(line, b',');
    if !matches!(fields.next()?, b"1" | b"2") {
        return None;
    }
    let time_ns = number(fields.next()?)?.checked_mul(1_000_000_000)?;
    let op = TraceOp::of_scsi(hex_byte(fields.next()?)?);
    let len_bytes = u32::try_from(number(fields.next()?)?).ok()?;
    let offset_bytes = number(fields.next()?)?.checked_mul(512)?;
    if fields.next().is_some() {
        return None;
    }
    let device = devices.index_of(b"0")?;
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

    /// Rows of libCacheSim's `cloudPhysicsIO.csv`.
    #[test]
    fn rows_of_the_publisher_are_parsed() {
        let (requests, _, damaged) = read(&FORMAT, FORMAT.example);
        let first = BlockRequest::new(
            5_633_898_000_000_000,
            0,
            TraceOp::Write,
            42_932_745 * 512,
            512,
        );
        assert_eq!((requests.len(), requests[0], damaged.len()), (2, first, 0));
        assert_eq!(requests[1].op, TraceOp::Read);
        assert_eq!(
            read(
                &FORMAT,
                b"1,5,zz,512,1\n3,5,2a,512,1\n1,5,2a,512\n1,5,2a,512,1,1\n"
            )
            .2,
            [1, 2, 3, 4]
        );
    }
}
