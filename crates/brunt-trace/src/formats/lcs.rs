//! libCacheSim's lcs (`generalReader/lcs.h`): a head of 1024 bytes that describes the fields of the
//! records in the syntax of Python's `struct`, then records of that layout, little-endian. The head
//! contains the number of each field.

use super::{NumberedDevices, read_records};
use crate::format::{DamagedRow, Decode, Format, FormatOptions, ReadingKey};
use crate::record::{BlockRequest, Devices, TraceOp};

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "lcs",
    help: "libCacheSim's lcs: a 1024-byte header that describes the records",
    note: "object ids are numbers of 512-byte blocks unless --block says otherwise; all requests have \
     the operation given by --op; times are whole seconds; each tenant becomes a device",
    checked: true,
    needs_op: true,
    needs_columns: false,
    takes: &[ReadingKey::Op, ReadingKey::Block],
    example: &EXAMPLE,
    decoder: |options| Box::new(Lcs::new(options)),
};

const HEAD_BYTES: usize = 1024;
const MAGIC: u64 = 0x1234_5678_9abc_def0;
/// Bytes of the text that describes a record.
const WORDS_BYTES: usize = 240;
/// Offset of the field numbers: object, size, time, two unused ones, operation, another unused one, tenant.
const FIELDS_AT: usize = 8 + WORDS_BYTES;
/// Offset of the field count and the record size: after 64 statistics of eight bytes each.
const COUNTS_AT: usize = FIELDS_AT + 9 + 231 + 64 * 8;

/// A head for `<IQIq`, and one record.
const EXAMPLE: [u8; HEAD_BYTES + 24] = {
    let mut bytes = [0; HEAD_BYTES + 24];
    let magic = MAGIC.to_le_bytes();
    let mut index = 0;
    while index < 8 {
        (bytes[index], bytes[HEAD_BYTES - 8 + index]) = (magic[index], magic[index]);
        index += 1;
    }
    let words = b"<IQIq";
    index = 0;
    while index < words.len() {
        bytes[8 + index] = words[index];
        index += 1;
    }
    (
        bytes[FIELDS_AT],
        bytes[FIELDS_AT + 1],
        bytes[FIELDS_AT + 2],
        bytes[FIELDS_AT + 4],
    ) = (2, 3, 1, 4);
    (bytes[COUNTS_AT], bytes[COUNTS_AT + 4]) = (4, 24);
    // Second 7, block 16, 4096 bytes.
    (
        bytes[HEAD_BYTES],
        bytes[HEAD_BYTES + 4],
        bytes[HEAD_BYTES + 13],
    ) = (7, 16, 16);
    bytes
};

/// A number in a record: its offset and size in bytes.
#[derive(Clone, Copy)]
struct Slot {
    at: usize,
    bytes: usize,
}

impl Slot {
    #[inline]
    fn read(self, record: &[u8]) -> u64 {
        // Only these sizes are read: a copy of variable size would be a function call per number.
        match (self.bytes, &record[self.at..]) {
            (8, [a, b, c, d, e, f, g, h, ..]) => {
                u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h])
            }
            (4, [a, b, c, d, ..]) => u32::from_le_bytes([*a, *b, *c, *d]).into(),
            (2, [a, b, ..]) => u16::from_le_bytes([*a, *b]).into(),
            (1, [a, ..]) => (*a).into(),
            (bytes, _) => unreachable!("a number of {bytes} bytes at {} of a record", self.at),
        }
    }
}

#[derive(Clone, Copy)]
struct Layout {
    bytes: usize,
    object: Slot,
    size: Option<Slot>,
    time: Option<Slot>,
    tenant: Option<Slot>,
}

struct Lcs {
    options: FormatOptions,
    layout: Option<Layout>,
    number: u64,
    numbered: NumberedDevices,
    /// Whether the head could not be read, so that nothing else can be.
    failed: bool,
}

impl Decode for Lcs {
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        devices: &mut Devices,
        requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> usize {
        let mut used = 0;
        if self.layout.is_none() && !self.failed {
            if bytes.len() < HEAD_BYTES && !last {
                return 0;
            }
            self.layout = bytes.get(..HEAD_BYTES).and_then(layout);
            self.failed = self.layout.is_none();
            if self.failed && !bytes.is_empty() {
                damaged.push(DamagedRow { row: 1 });
            }
            used = HEAD_BYTES.min(bytes.len());
        }
        let Some(layout) = self.layout else {
            return bytes.len();
        };
        let records = bytes[used..].chunks_exact(layout.bytes);
        let cut = records.remainder().len();
        let mut number = self.number;
        read_records(records, &mut number, requests, damaged, |record| {
            self.request(&layout, record, devices)
        });
        self.number = number;
        if last && cut > 0 {
            damaged.push(DamagedRow {
                row: self.number + 1,
            });
            return bytes.len();
        }
        bytes.len() - cut
    }
}

impl Lcs {
    fn new(options: &FormatOptions) -> Lcs {
        Lcs {
            options: *options,
            layout: None,
            number: 0,
            numbered: NumberedDevices::new(),
            failed: false,
        }
    }

    #[inline]
    fn request(
        &mut self,
        layout: &Layout,
        record: &[u8],
        devices: &mut Devices,
    ) -> Option<BlockRequest> {
        let seconds = layout.time.map_or(0, |slot| slot.read(record));
        let offset_bytes = layout
            .object
            .read(record)
            .checked_mul(self.options.block_bytes.into())?;
        let len_bytes = u32::try_from(layout.size.map_or(0, |slot| slot.read(record))).ok()?;
        let tenant = layout.tenant.map_or(0, |slot| slot.read(record));
        let device = self
            .numbered
            .index_of(tenant, devices, |tenant| tenant.to_string())?;
        let op = self.options.op.unwrap_or(TraceOp::Read);
        Some(BlockRequest::new(
            seconds.checked_mul(1_000_000_000)?,
            device,
            op,
            offset_bytes,
            len_bytes,
        ))
    }
}

/// Parses the layout from a head; `None` if it is inconsistent.
fn layout(head: &[u8]) -> Option<Layout> {
    let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| head[at + byte])) as usize;
    let magic = MAGIC.to_le_bytes();
    if head[..8] != magic || head[HEAD_BYTES - 8..] != magic {
        return None;
    }
    let words = &head[8..8 + WORDS_BYTES];
    let words = &words[..words.iter().position(|byte| *byte == 0)?];
    let fields = words.strip_prefix(b"<")?;
    if fields.len() != word(COUNTS_AT) {
        return None;
    }
    let mut slots = Vec::with_capacity(fields.len());
    let mut at = 0;
    for field in fields {
        let bytes = match field {
            b'c' | b'b' | b'B' => 1,
            b'h' | b'H' => 2,
            b'i' | b'I' | b'f' => 4,
            b'q' | b'Q' | b'd' => 8,
            _ => return None,
        };
        // A float cannot be an address, size or time.
        slots.push((!matches!(field, b'f' | b'd')).then_some(Slot { at, bytes }));
        at += bytes;
    }
    if at != word(COUNTS_AT + 4) || at == 0 {
        return None;
    }
    // Fields are numbered from 1; 0 means none.
    let slot = |place: usize| match usize::from(head[FIELDS_AT + place]) {
        0 => Some(None),
        number => slots.get(number - 1).copied().flatten().map(Some),
    };
    Some(Layout {
        bytes: at,
        object: slot(0)??,
        size: slot(1)?,
        time: slot(2)?,
        tenant: slot(7)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read;

    #[test]
    fn fields_are_located_by_the_head() {
        let (requests, _, damaged) = read(&FORMAT, FORMAT.example);
        let first = BlockRequest::new(7_000_000_000, 0, TraceOp::Read, 16 * 512, 4096);
        assert_eq!((requests, damaged.len()), (vec![first], 0));
        for (at, byte) in [
            (0, 1),
            (9, b'?'),
            (COUNTS_AT, 5),
            (COUNTS_AT + 4, 25),
            (FIELDS_AT, 9),
            (FIELDS_AT, 0),
        ] {
            let mut bytes = EXAMPLE;
            bytes[at] = byte;
            let (requests, _, damaged) = read(&FORMAT, &bytes);
            assert_eq!((requests.len(), damaged), (0, vec![1]), "{at}");
        }
        let mut cut = EXAMPLE.to_vec();
        cut.push(0);
        assert_eq!(read(&FORMAT, &cut).2, [2]);
    }
}
