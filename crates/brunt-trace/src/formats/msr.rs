//! MSR Cambridge (Narayanan and others, FAST '08; SNIA IOTTA 388):
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`. Both times are in Windows filetime units of 100 ns,
//! counted from 1601; offsets and sizes are in bytes.

use super::{RowOutcome, TextRow, TextRows};
use crate::field::{DelimitedFields, number};
use crate::format::Format;
use crate::record::{BlockRequest, Devices, TraceOp};

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "msr",
    help: "MSR Cambridge: Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
    note: "each disk of a host becomes a device, HOST-DISK; a response time of 0 means unknown",
    checked: false,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example:
        b"128166372003061629,hm,0,Write,7014912,4096,26\n128166372016382155,hm,1,Read,1074696192,512,113\n",
    decoder: |_| Box::new(TextRows::new(Msr { name: Vec::new() })),
};

struct Msr {
    /// Buffer for a device's name during lookup.
    name: Vec<u8>,
}

impl TextRow for Msr {
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome {
        if line.starts_with(b"Timestamp,") {
            return RowOutcome::Nothing;
        }
        self.request(line, devices).into()
    }
}

impl Msr {
    fn request(&mut self, line: &[u8], devices: &mut Devices) -> Option<BlockRequest> {
        let mut fields = DelimitedFields::new(line, b',');
        let time_ns = number(fields.next()?)?.checked_mul(100)?;
        let (host, disk) = (fields.next()?, fields.next()?);
        number(disk)?;
        let op = match fields.next()? {
            b"Read" => TraceOp::Read,
            b"Write" => TraceOp::Write,
            _ => return None,
        };
        let offset_bytes = number(fields.next()?)?;
        let len_bytes = u32::try_from(number(fields.next()?)?).ok()?;
        let response_ns =
            Some(number(fields.next()?)?.checked_mul(100)?).filter(|response| *response > 0);
        self.name.clear();
        self.name.extend_from_slice(host);
        self.name.push(b'-');
        self.name.extend_from_slice(disk);
        let device = devices.index_of(&self.name)?;
        Some(BlockRequest {
            response_ns,
            ..BlockRequest::new(time_ns, device, op, offset_bytes, len_bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;

    #[test]
    fn rows_described_in_the_readme_are_parsed() {
        let (requests, devices, damaged) = read(&FORMAT, FORMAT.example);
        assert_eq!(
            (damaged.len(), devices),
            (0, vec!["hm-0".to_string(), "hm-1".into()])
        );
        let second = BlockRequest {
            time_ns: 12_816_637_201_638_215_500,
            device: 1,
            op: TraceOp::Read,
            offset_bytes: 1_074_696_192,
            len_bytes: 512,
            response_ns: Some(11_300),
            fua: false,
            content: None,
        };
        assert_eq!((requests.len(), requests[1]), (2, second));
    }

    #[test]
    fn headers_are_skipped_and_damage_is_reported() {
        let head = b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n1,hm,0,Trim,0,512,1\n1,hm,0,Read,0,512\n\
            2,hm,0,Read,0,512,0\n";
        let (requests, _, damaged) = read(&FORMAT, head);
        assert_eq!(
            (requests.len(), requests[0].response_ns, damaged),
            (1, None, vec![2, 3])
        );
    }
}
