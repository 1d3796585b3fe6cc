//! Decodes text formats that are fully specified by a description of their columns. Used by the modules of such
//! formats.
//!
//! The rule: a row is damaged unless every column is present and matches the description.

use super::{RowOutcome, TextRow, TextRows, word};
use crate::field::{find, number, seconds, trimmed};
use crate::format::Decode;
use crate::record::{BlockRequest, Devices, TraceOp};

/// The separator between columns.
#[derive(Clone, Copy)]
pub enum Separator {
    /// One byte, with or without surrounding blanks.
    Byte(u8),
    /// Any number of blanks and tabs.
    Blanks,
}

/// The meaning of a column.
#[derive(Clone, Copy)]
pub enum Meaning {
    /// The request's time, in units of this many nanoseconds, with or without a fraction.
    Time(u64),
    /// Like `Time`, but always with a decimal point.
    TimeWithPoint(u64),
    /// Like `Time`, but always a whole number.
    WholeTime(u64),
    /// The response time, in units of this many nanoseconds; ignored if the operation is [`TraceOp::Other`].
    Response(u64),
    /// The offset, in units of this many bytes.
    Offset(u64),
    /// The length, in units of this many bytes.
    Length(u64),
    /// The operation, by name.
    Op(&'static [(&'static str, TraceOp)]),
    /// The device, a number.
    Device,
}

/// The description of a text format.
pub struct TextFormat {
    /// The separator between columns.
    pub separator: Separator,
    /// Lines that start with this are skipped, such as a header; empty if there are none.
    pub head: &'static str,
    /// All its columns, in order.
    pub columns: &'static [Meaning],
}

/// Decodes the rows of a format.
pub struct DescribedRows(&'static TextFormat);

impl DescribedRows {
    /// A decoder for the start of a file.
    pub fn decoder(format: &'static TextFormat) -> Box<dyn Decode + Send> {
        Box::new(TextRows::new(DescribedRows(format)))
    }
}

impl TextFormat {
    /// Splits off the first column of a line; `None` after the last one.
    #[inline]
    fn next<'a>(&self, line: Option<&'a [u8]>) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        let line = line?;
        match self.separator {
            Separator::Blanks => word(line).map(|(word, rest)| (word, Some(rest))),
            Separator::Byte(byte) => Some(match find(byte, line) {
                Some(at) => (trimmed(&line[..at]), Some(&line[at + 1..])),
                None => (trimmed(line), None),
            }),
        }
    }
}

impl TextRow for DescribedRows {
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome {
        let format = self.0;
        if !format.head.is_empty() && line.starts_with(format.head.as_bytes()) {
            return RowOutcome::Nothing;
        }
        request(format, line, devices).into()
    }
}

#[inline]
fn request(format: &TextFormat, line: &[u8], devices: &mut Devices) -> Option<BlockRequest> {
    let mut request = BlockRequest::new(0, 0, TraceOp::Other, 0, 0);
    let (mut rest, mut device, mut response) = (Some(line), None, None);
    for meaning in format.columns {
        let (text, behind) = format.next(rest)?;
        rest = behind;
        match *meaning {
            Meaning::Time(unit_ns) => request.time_ns = in_unit(text, unit_ns)?,
            Meaning::TimeWithPoint(unit_ns) => {
                find(b'.', text)?;
                request.time_ns = in_unit(text, unit_ns)?;
            }
            Meaning::WholeTime(unit_ns) => request.time_ns = number(text)?.checked_mul(unit_ns)?,
            Meaning::Response(unit_ns) => response = Some((text, unit_ns)),
            Meaning::Offset(unit) => request.offset_bytes = number(text)?.checked_mul(unit)?,
            Meaning::Length(unit) => {
                request.len_bytes = u32::try_from(number(text)?.checked_mul(unit)?).ok()?;
            }
            Meaning::Op(words) => {
                let known = words.iter().find(|(word, _)| word.as_bytes() == text);
                request.op = known?.1;
            }
            Meaning::Device => {
                number(text)?;
                device = Some(text);
            }
        }
    }
    if format.next(rest).is_some() {
        return None;
    }
    if let Some((text, unit_ns)) = response.filter(|_| request.op != TraceOp::Other) {
        request.response_ns = Some(in_unit(text, unit_ns)?);
    }
    // Look up the device last, so a damaged row doesn't create one.
    request.device = devices.index_of(device.unwrap_or(b"0"))?;
    Some(request)
}

/// Parses a time with or without a fraction into nanoseconds.
#[inline]
pub fn in_unit(text: &[u8], unit_ns: u64) -> Option<u64> {
    if unit_ns == 1_000_000_000 {
        return seconds(text);
    }
    let end = find(b'.', text).unwrap_or(text.len());
    // `seconds` returns the fraction in nanoseconds of a second; scale it to the unit.
    let fraction = if end == text.len() {
        0
    } else {
        seconds(&text[end..])?
    };
    let whole = number(&text[..end])?.checked_mul(unit_ns)?;
    whole.checked_add((u128::from(fraction) * u128::from(unit_ns) / 1_000_000_000) as u64)
}
