//! `.load` files of blkreplay (Thomas Schoebel-Theuer, github.com/schoebel/blkreplay): a plain-text head up to the
//! line that names the columns, then `start ; sector ; length ; op ; replay_delay ; replay_duration`. Times are in
//! seconds, addresses and lengths in sectors of 512 bytes; `op` begins with R or W and may have more flags (`RA` is
//! read-ahead). A concatenated file may contain further heads, each up to the next line that names the columns.

use super::{RowOutcome, TextRow, TextRows};
use crate::field::{DelimitedFields, number, seconds};
use crate::format::Format;
use crate::record::{BlockRequest, Devices, TraceOp};

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "blkreplay",
    help: "blkreplay's .load: start ; sector ; length ; op ; delay ; duration",
    note: "a duration of 0 means unknown: blkreplay writes it into loads that were not replayed",
    checked: true,
    needs_op: false,
    needs_columns: false,
    takes: &[],
    example: b"An example.\n\nstart ; sector; length ; op ;  replay_delay=0 ; replay_duration=0\n\
        0.000000000 ;     37766853 ;   64 ; W ; 0.0 ; 0.0\n\
        1.692237561 ;     62736768 ;   16 ; R ; 0.0 ; 0.000125\n",
    decoder: |_| Box::new(TextRows::new(Load { in_rows: false })),
};

struct Load {
    /// Whether the line that names the columns, or a row, has been seen.
    in_rows: bool,
}

impl TextRow for Load {
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome {
        if let Some(request) = request(line, devices) {
            self.in_rows = true;
            return RowOutcome::Request(request);
        }
        let mut names = DelimitedFields::new(line, b';');
        if names.next() == Some(b"start") && names.next() == Some(b"sector") {
            self.in_rows = true;
            return RowOutcome::HeadEnds;
        }
        if self.in_rows {
            RowOutcome::Unclear
        } else {
            RowOutcome::Nothing
        }
    }
}

fn request(line: &[u8], devices: &mut Devices) -> Option<BlockRequest> {
    let mut fields = DelimitedFields::new(line, b';');
    let time_ns = seconds(fields.next()?)?;
    let offset_bytes = number(fields.next()?)?.checked_mul(512)?;
    let len_bytes = u32::try_from(number(fields.next()?)?.checked_mul(512)?).ok()?;
    let op = match fields.next()?.first()? {
        b'R' | b'r' => TraceOp::Read,
        b'W' | b'w' => TraceOp::Write,
        _ => return None,
    };
    let _delay = fields.next();
    let response_ns = match fields.next() {
        Some(duration) => Some(seconds(duration)?).filter(|duration| *duration > 0),
        None => None,
    };
    let device = devices.index_of(b"0")?;
    Some(BlockRequest {
        response_ns,
        ..BlockRequest::new(time_ns, device, op, offset_bytes, len_bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::{HEAD_LINES_MAX as HEAD_LINES, read};

    /// Rows of `linux-mysql.load.gz` of blkreplay's examples, under its GNU all-permissive licence.
    #[test]
    fn rows_of_the_publisher_are_parsed() {
        let (requests, _, damaged) = read(&FORMAT, FORMAT.example);
        let first = BlockRequest {
            time_ns: 0,
            device: 0,
            op: TraceOp::Write,
            offset_bytes: 37_766_853 * 512,
            len_bytes: 64 * 512,
            response_ns: None,
            fua: false,
            content: None,
        };
        let second = BlockRequest {
            time_ns: 1_692_237_561,
            op: TraceOp::Read,
            offset_bytes: 62_736_768 * 512,
            len_bytes: 16 * 512,
            response_ns: Some(125_000),
            ..first
        };
        assert_eq!((requests, damaged.len()), (vec![first, second], 0));
    }

    /// Text before the columns is not damage, text after them is; flags of an operation are ignored.
    #[test]
    fn text_is_damage_only_after_the_columns() {
        let (requests, _, damaged) = read(
            &FORMAT,
            b"0.1 ; 8 ; 8 ; RA ; 0.0 ; 0.0\nnonsense\n0.2 ; 8 ; 8 ; X ; 0 ; 0\n",
        );
        assert_eq!(
            (requests.len(), requests[0].op, damaged),
            (1, TraceOp::Read, vec![2, 3])
        );
        assert_eq!(
            read(&FORMAT, b"only a head\nmore of it\n").2,
            Vec::<u64>::new()
        );
    }

    /// The publisher's `windows-mssql.load.gz` contains the end of its head twice; blkreplay itself
    /// accepts concatenated loads in one stream.
    #[test]
    fn a_repeated_head_is_not_damage() {
        let names = "start ; sector; length ; op ;  replay_delay=0 ; replay_duration=0\n";
        let row = "0.1 ; 8 ; 8 ; R ; 0.0 ; 0.0\n";
        let text = "allowed by the following GNU all-permissive license:\n\n";
        let check = |parts: &[&str], requests: usize, damaged: &[u64]| {
            let (found, _, rows) = read(&FORMAT, parts.concat().as_bytes());
            assert_eq!((found.len(), &rows[..]), (requests, damaged), "{parts:?}");
        };
        check(&[text, names, text, names, row, row], 2, &[]);
        check(&[text, names, row, text, text, names, row], 2, &[]);
        // Without the line that names the columns, the text is damaged: before the next row, and at the end.
        check(&[text, names, text, row, text, names, row], 2, &[4]);
        check(&[names, row, text, row, text], 2, &[3, 6]);
        // The number of head lines is limited.
        let many = text.repeat(HEAD_LINES + 2);
        check(&[names, row, &many, names, row], 2, &[3, 5]);
    }
}
