//! Formats of text that a description of their columns says all of. Used by the files of such formats.
//!
//! The rule: every column of a row is there and is what the description says, or the row is damaged.

use super::{RowOutcome, TextRow, TextRows, word};
use crate::field::{find, number, seconds, trimmed};
use crate::format::Decode;
use crate::record::{BlockRequest, Devices, TraceOp};

/// What is between columns.
#[derive(Clone, Copy)]
pub enum Separator {
    /// One byte, with or without blanks around it.
    Byte(u8),
    /// Any number of blanks and tabs.
    Blanks,
}

/// What a column means.
#[derive(Clone, Copy)]
pub enum Meaning {
    /// When the request was made, in units of so many nanoseconds, with or without a fraction.
    Time(u64),
    /// The same, always with a point.
    TimeWithPoint(u64),
    /// The same, a whole number.
    WholeTime(u64),
    /// How long it took, in units of so many nanoseconds; where the operation is [`TraceOp::Other`], not known.
    Response(u64),
    /// Where it begins, in units of so many bytes.
    Offset(u64),
    /// How long it is, in units of so many bytes.
    Length(u64),
    /// What it asks for, by words.
    Op(&'static [(&'static str, TraceOp)]),
    /// The device, a number.
    Device,
}

/// A format of text.
pub struct TextFormat {
    /// Between its columns.
    pub separator: Separator,
    /// How lines begin that are no rows, such as one with names; empty where there are none.
    pub head: &'static str,
    /// Its columns, in order; there are no others.
    pub columns: &'static [Meaning],
}

/// Reads the rows of a format.
pub struct DescribedRows(&'static TextFormat);

impl DescribedRows {
    /// At the beginning of a file.
    pub fn decoder(format: &'static TextFormat) -> Box<dyn Decode + Send> {
        Box::new(TextRows::new(DescribedRows(format)))
    }
}

impl TextFormat {
    /// The first column of a line, and what is behind it; `None` behind the last one.
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
    // The name of a device is looked up last: that of a damaged row makes none.
    request.device = devices.index_of(device.unwrap_or(b"0"))?;
    Some(request)
}

/// A time with or without a fraction, in nanoseconds.
#[inline]
pub fn in_unit(text: &[u8], unit_ns: u64) -> Option<u64> {
    if unit_ns == 1_000_000_000 {
        return seconds(text);
    }
    let end = find(b'.', text).unwrap_or(text.len());
    // The fraction is one of a second here, and the unit's is as many times shorter as the unit.
    let fraction = if end == text.len() {
        0
    } else {
        seconds(&text[end..])?
    };
    let whole = number(&text[..end])?.checked_mul(unit_ns)?;
    whole.checked_add((u128::from(fraction) * u128::from(unit_ns) / 1_000_000_000) as u64)
}
