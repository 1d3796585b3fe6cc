//! SPC trace files, revision 1.0.1 (Storage Performance Council; UMass's Financial and WebSearch):
//! `ASU,LBA,Size,Opcode,Timestamp` and optional fields, which are ignored. Times are in seconds, sizes in bytes;
//! blanks and either case are allowed.

use super::{RowOutcome, TextRow, TextRows};
use crate::field::{DelimitedFields, number, seconds};
use crate::format::{Format, ReadingKey};
use crate::record::{BlockRequest, Devices, TraceOp};

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "spc",
    help: "SPC 1.0.1 (UMass Financial, WebSearch): ASU,LBA,Size,Opcode,Timestamp",
    note: "the block size is not in the file: 512 bytes unless --block says otherwise; each ASU becomes a device",
    checked: false,
    needs_op: false,
    needs_columns: false,
    takes: &[ReadingKey::Block],
    example: b"0,20941264,8192,W,0.551706,Alpha/NT\n0,20939840,8192,W,0.554041\n\
        1,3436288,15872,W,1.250720,0x123,5.99,test\n0,7695360,4096,R,2.346628\n",
    decoder: |options| {
        Box::new(TextRows::new(Spc {
            block_bytes: options.block_bytes.into(),
        }))
    },
};

struct Spc {
    /// Bytes per LBA, which the format doesn't record.
    block_bytes: u64,
}

impl TextRow for Spc {
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome {
        request(line, self.block_bytes, devices).into()
    }
}

fn request(line: &[u8], block_bytes: u64, devices: &mut Devices) -> Option<BlockRequest> {
    let mut fields = DelimitedFields::new(line, b',');
    let unit = fields.next()?;
    number(unit)?;
    let offset_bytes = number(fields.next()?)?.checked_mul(block_bytes)?;
    let len_bytes = u32::try_from(number(fields.next()?)?).ok()?;
    let op = match fields.next()? {
        b"R" | b"r" => TraceOp::Read,
        b"W" | b"w" => TraceOp::Write,
        _ => return None,
    };
    let time_ns = seconds(fields.next()?)?;
    let device = devices.index_of(unit)?;
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

    /// The example of the specification, clause "Trace file example".
    #[test]
    fn rows_of_the_specification_are_parsed() {
        let (requests, devices, damaged) = read(&FORMAT, FORMAT.example);
        assert_eq!(
            (requests.len(), damaged.len(), devices),
            (4, 0, vec!["0".to_string(), "1".into()])
        );
        let third = BlockRequest {
            time_ns: 1_250_720_000,
            device: 1,
            op: TraceOp::Write,
            offset_bytes: 3_436_288 * 512,
            len_bytes: 15872,
            response_ns: None,
            fua: false,
            content: None,
        };
        assert_eq!(requests[2], third);
    }

    #[test]
    fn blanks_and_case_are_allowed_and_damage_is_reported() {
        let (requests, _, damaged) = read(
            &FORMAT,
            b" 0 , 8 , 0 , r , 1\r\n\n0,8,512,X,1.0\n0,8,512,w\n-1,8,512,w,1.0\n",
        );
        assert_eq!(
            (requests.len(), requests[0].len_bytes, damaged),
            (1, 0, vec![3, 4, 5])
        );
    }
}
