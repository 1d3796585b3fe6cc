//! Maps the columns of a text trace to their meanings, in the syntax of libCacheSim's `--trace-type-params`,
//! such as `time-col=2, obj-id-col=5, obj-size-col=4`. Parsed by the command line, used by the format `csv`.
//!
//! The rule: never guess; missing, duplicate and unknown keys are rejected.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum columns of a row; later ones are ignored.
pub const COLUMNS_MAX: u8 = 64;

/// The meaning of each column. Columns count from 0 here, and from 1 in the text that users write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ColumnMap {
    /// Column of the request's time, if any.
    pub time: Option<u8>,
    /// Nanoseconds per unit of time.
    pub time_unit_ns: u64,
    /// Column of the block number.
    pub object: u8,
    /// Column of the size in bytes; if none, each request is one block.
    pub size: Option<u8>,
    /// Column of the operation's name.
    pub op: Option<u8>,
    /// Column of the device.
    pub tenant: Option<u8>,
    /// Bytes per unit of [`ColumnMap::object`]; `None` means the block size from `--block`.
    pub object_unit: Option<u32>,
    /// Bytes per unit of [`ColumnMap::size`].
    pub size_unit: u32,
    /// The words for reads and writes, if they aren't the built-in ones.
    pub op_words: [Option<OpWord>; 2],
    /// The delimiter between columns; a blank matches any run of blanks and tabs.
    pub delimiter: u8,
    /// Whether the first line is a header; `None` means it is if its object isn't a number.
    pub header: Option<bool>,
}

/// The word for an operation, in lower case and padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpWord([u8; OP_WORD_BYTES]);

const OP_WORD_BYTES: usize = 12;

impl OpWord {
    fn parse(key: &'static str, value: &str) -> Result<OpWord, ColumnsError> {
        let mut word = [0; OP_WORD_BYTES];
        let bytes = value.as_bytes();
        if bytes.is_empty() || bytes.len() > OP_WORD_BYTES || !value.is_ascii() {
            return Err(wrong(key, value, "a word of at most 12 letters and digits"));
        }
        word[..bytes.len()].copy_from_slice(&value.to_ascii_lowercase().into_bytes());
        Ok(OpWord(word))
    }

    fn as_str(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0);
        std::str::from_utf8(&self.0[..end.unwrap_or(OP_WORD_BYTES)])
            .expect("ASCII was checked on parsing")
    }

    /// Whether a field is this word, ignoring case.
    pub fn is(&self, field: &[u8]) -> bool {
        self.as_str().as_bytes().eq_ignore_ascii_case(field)
    }
}

/// Why a column map is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// A part isn't `key=value`.
    #[error("'{0}' is not of the form key=value")]
    NoValue(String),
    /// An unknown key.
    #[error(
        "unknown key '{0}'; use time-col, obj-id-col, obj-size-col, op-col, tenant-col, \
         delimiter, has-header, obj-id-is-num, time-unit, obj-id-unit, obj-size-unit, op-read, \
         op-write"
    )]
    UnknownKey(String),
    /// An invalid value.
    #[error("{key}={value} is invalid; it takes {takes}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// The valid values.
        takes: &'static str,
    },
    /// A duplicate key.
    #[error("{0} is given twice")]
    Twice(&'static str),
    /// A column with two meanings.
    #[error("column {0} is used twice")]
    Shared(u8),
    /// No column contains the addresses.
    #[error("obj-id-col, the column with the block number, is missing")]
    NoObject,
}

impl ColumnMap {
    /// The layout of libCacheSim's sample: time, operation, size, block.
    pub const SAMPLE: ColumnMap = ColumnMap {
        time: Some(1),
        time_unit_ns: 1_000_000_000,
        object: 4,
        size: Some(3),
        op: Some(2),
        tenant: None,
        object_unit: None,
        size_unit: 1,
        op_words: [None; 2],
        delimiter: b',',
        header: None,
    };

    /// Parses comma-separated `key=value` pairs.
    ///
    /// # Errors
    /// The first mistake in the text.
    pub fn parse(text: &str) -> Result<ColumnMap, ColumnsError> {
        let mut found = Found::default();
        // Only this value may itself be a comma.
        let text = text.replace("delimiter=,", "delimiter=comma");
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| ColumnsError::NoValue(part.into()))?;
            found.set(key.trim(), value.trim())?;
        }
        found.finish()
    }

    /// Minimum number of columns that a row must have.
    pub fn columns(&self) -> usize {
        let all = [
            self.time,
            Some(self.object),
            self.size,
            self.op,
            self.tenant,
        ];
        all.into_iter()
            .flatten()
            .max()
            .map_or(0, |last| usize::from(last) + 1)
    }
}

impl FromStr for ColumnMap {
    type Err = ColumnsError;
    fn from_str(text: &str) -> Result<ColumnMap, ColumnsError> {
        ColumnMap::parse(text)
    }
}

impl TryFrom<String> for ColumnMap {
    type Error = ColumnsError;
    fn try_from(text: String) -> Result<ColumnMap, ColumnsError> {
        ColumnMap::parse(&text)
    }
}

impl From<ColumnMap> for String {
    fn from(map: ColumnMap) -> String {
        map.to_string()
    }
}

/// Writes the map in the syntax that [`ColumnMap::parse`] reads.
impl fmt::Display for ColumnMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "obj-id-col={}", self.object + 1)?;
        let others = [
            ("time-col", self.time),
            ("obj-size-col", self.size),
            ("op-col", self.op),
            ("tenant-col", self.tenant),
        ];
        for (key, column) in others {
            column.map_or(Ok(()), |column| write!(f, ", {key}={}", column + 1))?;
        }
        let unit = TIME_UNITS
            .iter()
            .find(|(_, unit_ns)| *unit_ns == self.time_unit_ns);
        unit.map_or(Ok(()), |(name, _)| write!(f, ", time-unit={name}"))?;
        if let Some(unit) = self.object_unit {
            write!(f, ", obj-id-unit={unit}")?;
        }
        if self.size_unit != 1 {
            write!(f, ", obj-size-unit={}", self.size_unit)?;
        }
        for (key, word) in ["op-read", "op-write"].iter().zip(&self.op_words) {
            if let Some(word) = word {
                write!(f, ", {key}={}", word.as_str())?;
            }
        }
        match self.delimiter {
            b'\t' => f.write_str(", delimiter=tab")?,
            b' ' => f.write_str(", delimiter=blanks")?,
            b',' => {}
            other => write!(f, ", delimiter={}", char::from(other))?,
        }
        self.header
            .map_or(Ok(()), |header| write!(f, ", has-header={header}"))
    }
}

/// Nanoseconds of each unit of time.
const TIME_UNITS: [(&str, u64); 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// The keys parsed so far.
#[derive(Default)]
struct Found {
    columns: [Option<u8>; 5],
    unit: Option<u64>,
    delimiter: Option<u8>,
    header: Option<bool>,
    is_number: Option<bool>,
    object_unit: Option<u32>,
    size_unit: Option<u32>,
    op_words: [Option<OpWord>; 2],
}

/// In the same order as [`Found::columns`].
const COLUMN_KEYS: [&str; 5] = [
    "time-col",
    "obj-id-col",
    "obj-size-col",
    "op-col",
    "tenant-col",
];

impl Found {
    fn set(&mut self, key: &str, value: &str) -> Result<(), ColumnsError> {
        if let Some(at) = COLUMN_KEYS.iter().position(|known| *known == key) {
            let number = value
                .parse::<u8>()
                .ok()
                .filter(|number| (1..=COLUMNS_MAX).contains(number));
            let number =
                number.ok_or_else(|| wrong(COLUMN_KEYS[at], value, "a number from 1 to 64"))?;
            return once(&mut self.columns[at], number - 1, COLUMN_KEYS[at]);
        }
        match key {
            "delimiter" => {
                let byte = match value {
                    "comma" => b',',
                    "\\t" | "tab" => b'\t',
                    "blank" | "blanks" => b' ',
                    _ => match value.as_bytes() {
                        [byte] if byte.is_ascii_punctuation() && !matches!(byte, b'.' | b'-') => {
                            *byte
                        }
                        _ => return Err(wrong("delimiter", value, "one of , ; | : \\t or blanks")),
                    },
                };
                once(&mut self.delimiter, byte, "delimiter")
            }
            "has-header" => once(
                &mut self.header,
                boolean("has-header", value)?,
                "has-header",
            ),
            "obj-id-is-num" => {
                if !boolean("obj-id-is-num", value)? {
                    return Err(wrong(
                        "obj-id-is-num",
                        value,
                        "true; object ids that are not numbers have no address",
                    ));
                }
                once(&mut self.is_number, true, "obj-id-is-num")
            }
            "time-unit" => {
                let unit = TIME_UNITS.iter().find(|(name, _)| *name == value);
                let (_, unit_ns) =
                    unit.ok_or_else(|| wrong("time-unit", value, "s, ms, us or ns"))?;
                once(&mut self.unit, *unit_ns, "time-unit")
            }
            "obj-id-unit" => once(
                &mut self.object_unit,
                bytes_of("obj-id-unit", value)?,
                "obj-id-unit",
            ),
            "obj-size-unit" => once(
                &mut self.size_unit,
                bytes_of("obj-size-unit", value)?,
                "obj-size-unit",
            ),
            "op-read" => {
                let word = OpWord::parse("op-read", value)?;
                once(&mut self.op_words[0], word, "op-read")
            }
            "op-write" => {
                let word = OpWord::parse("op-write", value)?;
                once(&mut self.op_words[1], word, "op-write")
            }
            _ => Err(ColumnsError::UnknownKey(key.into())),
        }
    }

    fn finish(self) -> Result<ColumnMap, ColumnsError> {
        let mut seen = 0u64;
        for column in self.columns.into_iter().flatten() {
            if seen & 1 << column != 0 {
                return Err(ColumnsError::Shared(column + 1));
            }
            seen |= 1 << column;
        }
        let [time, object, size, op, tenant] = self.columns;
        Ok(ColumnMap {
            time,
            time_unit_ns: self.unit.unwrap_or(1_000_000_000),
            object: object.ok_or(ColumnsError::NoObject)?,
            size,
            op,
            tenant,
            object_unit: self.object_unit,
            size_unit: self.size_unit.unwrap_or(1),
            op_words: self.op_words,
            delimiter: self.delimiter.unwrap_or(b','),
            header: self.header,
        })
    }
}

/// Parses the number of bytes in a unit.
fn bytes_of(key: &'static str, value: &str) -> Result<u32, ColumnsError> {
    match value {
        "byte" | "bytes" => return Ok(1),
        "sector" | "sectors" => return Ok(512),
        "kib" | "KiB" => return Ok(1024),
        _ => {}
    }
    let bytes = value.parse().ok().filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| wrong(key, value, "bytes, sectors, KiB or a number of bytes"))
}

fn once<T>(place: &mut Option<T>, value: T, key: &'static str) -> Result<(), ColumnsError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(ColumnsError::Twice(key)),
    }
}

fn boolean(key: &'static str, value: &str) -> Result<bool, ColumnsError> {
    match value {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(wrong(key, value, "true or false")),
    }
}

fn wrong(key: &'static str, value: &str, takes: &'static str) -> ColumnsError {
    ColumnsError::Value {
        key,
        value: value.into(),
        takes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts the parameters of libCacheSim's own examples, and rejects invalid ones.
    #[test]
    fn column_maps_parse_as_in_libcachesim() {
        let plain = ColumnMap {
            op: None,
            ..ColumnMap::SAMPLE
        };
        let check = |text: &str, expected: Result<ColumnMap, ColumnsError>| {
            assert_eq!(ColumnMap::parse(text), expected, "{text}");
            if let Ok(map) = expected {
                assert_eq!(ColumnMap::parse(&map.to_string()), Ok(map), "{map}");
            }
        };
        check(
            "time-col=2, obj-id-col=5, obj-size-col=4, obj-id-is-num=true",
            Ok(plain),
        );
        check(
            "time-col=2,obj-id-col=5,obj-size-col=4,op-col=3,delimiter=,,has-header=true",
            Ok(ColumnMap {
                header: Some(true),
                ..ColumnMap::SAMPLE
            }),
        );
        check(
            "obj-id-col=1,delimiter=\\t,time-unit=us",
            Ok(ColumnMap {
                time: None,
                size: None,
                object: 0,
                delimiter: b'\t',
                time_unit_ns: 1000,
                ..plain
            }),
        );
        check(
            "obj-id-col=3,time-col=1,obj-size-col=4,op-col=5,delimiter=blanks,obj-id-unit=bytes,obj-size-unit=sectors,\
             op-read=LOAD,op-write=0",
            Ok(ColumnMap {
                time: Some(0),
                object: 2,
                size: Some(3),
                op: Some(4),
                delimiter: b' ',
                object_unit: Some(1),
                size_unit: 512,
                op_words: [
                    Some(OpWord::parse("", "load").unwrap()),
                    Some(OpWord::parse("", "0").unwrap()),
                ],
                ..plain
            }),
        );
        check("time-col=1,obj-size-col=2", Err(ColumnsError::NoObject));
        check("obj-id-col=2,time-col=2", Err(ColumnsError::Shared(2)));
        check(
            "obj-id-col=2,obj-id-col=3",
            Err(ColumnsError::Twice("obj-id-col")),
        );
        check(
            "obj-id-col",
            Err(ColumnsError::NoValue("obj-id-col".into())),
        );
        check("id=1", Err(ColumnsError::UnknownKey("id".into())));
        for text in [
            "obj-id-col=0",
            "obj-id-col=65",
            "obj-id-col=x",
            "delimiter=ab",
            "delimiter=5",
            "obj-id-is-num=0",
        ] {
            assert!(
                matches!(ColumnMap::parse(text), Err(ColumnsError::Value { .. })),
                "{text}"
            );
        }
    }
}
