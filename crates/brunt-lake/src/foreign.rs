//! Reads Parquet files whose columns aren't known in advance: results of SQL engines. Used by `brunt sql`.
//!
//! The rule: values keep their full precision, and memory doesn't grow with the number of rows.

use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as PhysicalType};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;
use serde_json::Value;

use crate::error::LakeError;
use crate::place::date;

/// Nanoseconds per second.
const SECOND_NS: i128 = 1_000_000_000;
/// Seconds per day.
const DAY_S: i128 = 86_400;
/// Bytes of a UUID.
const UUID_BYTES: usize = 16;

/// A column of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignColumn {
    /// Its name, unique in the file.
    pub name: String,
    /// Whether its values are numbers or null.
    pub is_number: bool,
}

/// A value of any supported type.
#[derive(Clone, Debug, PartialEq)]
pub enum ForeignValue {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer of at most 64 bits.
    Int(i128),
    /// An exact decimal number.
    Decimal(String),
    /// A 32-bit floating-point number.
    Single(f32),
    /// A 64-bit floating-point number.
    Double(f64),
    /// Text; also dates, times (in UTC) and UUIDs in their usual notation.
    Text(String),
    /// Bytes that are not text.
    Bytes(Vec<u8>),
    /// A list.
    List(Vec<ForeignValue>),
    /// Named values: a struct, or a map whose keys are the names.
    Group(Vec<(String, ForeignValue)>),
}

/// Reads a file row by row.
pub struct ForeignRows {
    path: PathBuf,
    schema: Arc<Type>,
    columns: Vec<ForeignColumn>,
    rows: RowIter<'static>,
    rows_count: u64,
}

impl ForeignRows {
    /// Opens a file and reads its footer.
    ///
    /// # Errors
    /// The file cannot be opened, isn't a Parquet file, has two columns of the same name, or has a column of an
    /// unsupported type: an interval or a 96-bit time.
    pub fn open(path: &Path) -> Result<ForeignRows, LakeError> {
        let file = File::open(path).map_err(LakeError::io(path))?;
        let reader = SerializedFileReader::new(file).map_err(|error| damaged(path, error))?;
        let metadata = reader.metadata().file_metadata();
        let rows_count = u64::try_from(metadata.num_rows())
            .map_err(|_| damaged(path, "number of rows is negative"))?;
        let schema = metadata.schema_descr().root_schema_ptr();
        for leaf in metadata.schema_descr().columns() {
            let is_read = leaf.converted_type() != ConvertedType::INTERVAL
                && leaf.physical_type() != PhysicalType::INT96;
            if !is_read {
                let what = format!("column {} has an unsupported type", leaf.path());
                return Err(damaged(path, what));
            }
        }
        let columns: Vec<_> = schema
            .get_fields()
            .iter()
            .map(|kind| column(kind))
            .collect();
        let mut names: Vec<_> = columns.iter().map(|column| &column.name).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(damaged(path, format!("column {} appears twice", twice[0])));
        }
        Ok(ForeignRows {
            path: path.to_path_buf(),
            columns,
            schema,
            rows: RowIter::from_file_into(Box::new(reader)),
            rows_count,
        })
    }

    /// The columns, in file order.
    pub fn columns(&self) -> &[ForeignColumn] {
        &self.columns
    }

    /// Number of rows in the file.
    pub fn rows_count(&self) -> u64 {
        self.rows_count
    }
}

impl Iterator for ForeignRows {
    type Item = Result<Vec<ForeignValue>, LakeError>;

    /// Values of the next row, one for each column.
    fn next(&mut self) -> Option<Self::Item> {
        let row = self.rows.next()?;
        let values = row.map(|row| {
            let fields = row.into_columns().into_iter().map(|(_, field)| field);
            fields
                .zip(self.schema.get_fields())
                .map(|(field, kind)| value(field, Some(kind)))
                .collect()
        });
        Some(values.map_err(|error| damaged(&self.path, error)))
    }
}

fn damaged(path: &Path, what: impl ToString) -> LakeError {
    LakeError::Damaged {
        path: path.to_path_buf(),
        what: what.to_string(),
    }
}

fn column(kind: &Type) -> ForeignColumn {
    let is_number = kind.is_primitive() && {
        let is_bare = kind
            .get_basic_info()
            .logical_type_ref()
            .is_none_or(|logical| {
                matches!(
                    logical,
                    LogicalType::Integer(_)
                        | LogicalType::Decimal(_)
                        | LogicalType::Float16
                        | LogicalType::Unknown
                )
            });
        let is_decimal = kind.get_basic_info().converted_type() == ConvertedType::DECIMAL;
        match kind.get_physical_type() {
            PhysicalType::INT32
            | PhysicalType::INT64
            | PhysicalType::FLOAT
            | PhysicalType::DOUBLE => is_bare,
            PhysicalType::BYTE_ARRAY | PhysicalType::FIXED_LEN_BYTE_ARRAY => {
                is_decimal
                    || kind.get_basic_info().logical_type_ref() == Some(&LogicalType::Float16)
            }
            PhysicalType::BOOLEAN | PhysicalType::INT96 => false,
        }
    };
    ForeignColumn {
        name: kind.name().to_string(),
        is_number,
    }
}

/// Converts a value of this type. For lists in the legacy form, the element type is ignored.
fn value(field: Field, kind: Option<&Arc<Type>>) -> ForeignValue {
    let logical = kind.and_then(|kind| kind.get_basic_info().logical_type_ref());
    let child = |index: usize| {
        kind.filter(|kind| kind.is_group())
            .and_then(|kind| kind.get_fields().get(index))
    };
    match field {
        Field::Null => ForeignValue::Null,
        Field::Bool(value) => ForeignValue::Bool(value),
        Field::Byte(value) => ForeignValue::Int(value.into()),
        Field::Short(value) => ForeignValue::Int(value.into()),
        Field::Int(value) => ForeignValue::Int(value.into()),
        Field::Long(value) => long(value, logical),
        Field::UByte(value) => ForeignValue::Int(value.into()),
        Field::UShort(value) => ForeignValue::Int(value.into()),
        Field::UInt(value) => ForeignValue::Int(value.into()),
        Field::ULong(value) => ForeignValue::Int(value.into()),
        Field::Float16(value) => ForeignValue::Single(value.to_f32()),
        Field::Float(value) => ForeignValue::Single(value),
        Field::Double(value) => ForeignValue::Double(value),
        Field::Decimal(_) => {
            // Text of a number without a fraction ends with the decimal point, so remove that.
            ForeignValue::Decimal(field.to_string().trim_end_matches('.').to_string())
        }
        Field::Str(value) => ForeignValue::Text(value),
        Field::Bytes(value) if logical == Some(&LogicalType::Uuid) => uuid(value.data()),
        Field::Bytes(value) => ForeignValue::Bytes(value.data().to_vec()),
        Field::Date(day) => ForeignValue::Text(day_text(day.into())),
        Field::TimeMillis(value) => time_of_day(i128::from(value) * 1_000_000),
        Field::TimeMicros(value) => time_of_day(i128::from(value) * 1_000),
        Field::TimestampMillis(value) => timestamp(i128::from(value) * 1_000_000),
        Field::TimestampMicros(value) => timestamp(i128::from(value) * 1_000),
        Field::Group(row) => {
            let fields = row.into_columns().into_iter().enumerate();
            ForeignValue::Group(
                fields
                    .map(|(index, (name, field))| (name, value(field, child(index))))
                    .collect(),
            )
        }
        Field::ListInternal(list) => {
            let repeated = child(0).filter(|repeated| repeated.is_group());
            let element = repeated.and_then(|repeated| repeated.get_fields().first());
            let elements = list.elements().iter().cloned();
            ForeignValue::List(elements.map(|field| value(field, element)).collect())
        }
        Field::MapInternal(map) => {
            let pair = child(0).filter(|pair| pair.is_group());
            let part = |index: usize| pair.and_then(|pair| pair.get_fields().get(index));
            let entries = map.entries().iter().cloned();
            ForeignValue::Group(
                entries
                    .map(|(key, field)| (value(key, part(0)).to_string(), value(field, part(1))))
                    .collect(),
            )
        }
    }
}

fn long(value: i64, logical: Option<&LogicalType>) -> ForeignValue {
    match logical {
        Some(LogicalType::Timestamp(kind)) if kind.unit == TimeUnit::NANOS => {
            timestamp(value.into())
        }
        Some(LogicalType::Time(kind)) if kind.unit == TimeUnit::NANOS => time_of_day(value.into()),
        _ => ForeignValue::Int(value.into()),
    }
}

fn uuid(bytes: &[u8]) -> ForeignValue {
    if bytes.len() != UUID_BYTES {
        return ForeignValue::Bytes(bytes.to_vec());
    }
    let hex = |range: std::ops::Range<usize>| hex(&bytes[range]);
    let parts = [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)];
    ForeignValue::Text(parts.join("-"))
}

/// Bytes in hexadecimal.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `2026-11-27`.
fn day_text(day: i64) -> String {
    let [year, month, day] = date(day);
    format!("{year:04}-{month:02}-{day:02}")
}

/// `2026-11-27 08:15:00.5`, from nanoseconds since 1970.
fn timestamp(ns: i128) -> ForeignValue {
    let day = ns.div_euclid(DAY_S * SECOND_NS);
    // At most 1.1e8 days, because `ns` is 64-bit nanoseconds or 64-bit microseconds times 1,000.
    let day = day_text(i64::try_from(day).unwrap_or(i64::MAX));
    let time = clock_text(ns.rem_euclid(DAY_S * SECOND_NS));
    ForeignValue::Text(format!("{day} {time}"))
}

fn time_of_day(ns: i128) -> ForeignValue {
    ForeignValue::Text(clock_text(ns))
}

/// `08:15:00.5`, with as many decimals as necessary.
fn clock_text(ns: i128) -> String {
    let (second, fraction) = (ns / SECOND_NS, ns % SECOND_NS);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let clock = format!("{hour:02}:{minute:02}:{second:02}");
    match fraction {
        0 => clock,
        fraction => format!("{clock}.{}", format!("{fraction:09}").trim_end_matches('0')),
    }
}

impl Display for ForeignValue {
    /// The value as text: numbers in digits, `true` and `false`, `NaN`, `Infinity` and `-Infinity`, bytes in
    /// hexadecimal, and lists and groups as JSON; null is empty.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ForeignValue::Null => Ok(()),
            ForeignValue::Text(text) => f.write_str(text),
            ForeignValue::Bytes(bytes) => f.write_str(&hex(bytes)),
            value => match not_finite(value) {
                Some(word) => f.write_str(word),
                None => Json(value).fmt(f),
            },
        }
    }
}

/// The name of a floating-point number that JSON can't represent.
fn not_finite(value: &ForeignValue) -> Option<&'static str> {
    let number = match value {
        ForeignValue::Single(number) => f64::from(*number),
        ForeignValue::Double(number) => *number,
        _ => return None,
    };
    match number {
        number if number.is_nan() => Some("NaN"),
        f64::INFINITY => Some("Infinity"),
        f64::NEG_INFINITY => Some("-Infinity"),
        _ => None,
    }
}

/// A value as JSON. Numbers keep all digits; NaN and the infinities, which JSON lacks, are the strings `NaN`,
/// `Infinity` and `-Infinity`; bytes are hexadecimal strings.
struct Json<'a>(&'a ForeignValue);

impl Display for Json<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(word) = not_finite(self.0) {
            return write!(f, "\"{word}\"");
        }
        match self.0 {
            ForeignValue::Null => f.write_str("null"),
            ForeignValue::Bool(value) => write!(f, "{value}"),
            ForeignValue::Int(value) => write!(f, "{value}"),
            ForeignValue::Decimal(digits) => f.write_str(digits),
            ForeignValue::Single(value) => write!(f, "{value:?}"),
            ForeignValue::Double(value) => write!(f, "{value:?}"),
            ForeignValue::Text(text) => write!(f, "{}", Value::from(text.as_str())),
            ForeignValue::Bytes(bytes) => write!(f, "\"{}\"", hex(bytes)),
            ForeignValue::List(values) => {
                f.write_str("[")?;
                for (index, value) in values.iter().enumerate() {
                    let between = if index == 0 { "" } else { "," };
                    write!(f, "{between}{}", Json(value))?;
                }
                f.write_str("]")
            }
            ForeignValue::Group(fields) => {
                JsonObject(fields.iter().map(|(name, value)| (name.as_str(), value))).fmt(f)
            }
        }
    }
}

/// Named values as a JSON object, in order. Numbers keep all digits; NaN and the infinities, which JSON lacks, are the
/// strings `NaN`, `Infinity` and `-Infinity`; bytes are hexadecimal strings.
pub struct JsonObject<I>(pub I);

impl<'a, I: Iterator<Item = (&'a str, &'a ForeignValue)> + Clone> Display for JsonObject<I> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, (name, value)) in self.0.clone().enumerate() {
            let between = if index == 0 { "" } else { "," };
            write!(f, "{between}{}:{}", Value::from(name), Json(value))?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use parquet::data_type::{
        ByteArrayType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, FloatType, Int32Type,
        Int64Type,
    };
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// A file with the given schema and one row; `write` gets each column's writer in turn.
    fn one_row(
        schema: &str,
        mut write: impl FnMut(usize, &mut parquet::file::writer::SerializedColumnWriter<'_>),
    ) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = Arc::new(WriterProperties::default());
        let mut writer =
            SerializedFileWriter::new(file.reopen().unwrap(), schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut index = 0;
        while let Some(mut column) = group.next_column().unwrap() {
            write(index, &mut column);
            column.close().unwrap();
            index += 1;
        }
        group.close().unwrap();
        writer.close().unwrap();
        file
    }

    /// Every type that an engine may return keeps its precision, as text and as JSON.
    #[test]
    fn values_keep_their_precision() {
        let schema = "message answer {
            required int64 small (INTEGER(64, false));
            required fixed_len_byte_array(16) wide (DECIMAL(38, 0));
            required int32 money (DECIMAL(5, 2));
            required double nan;
            required double below;
            required float single;
            required int32 day (DATE);
            required int64 nanos (TIMESTAMP(NANOS, true));
            required int64 micros (TIMESTAMP(MICROS, false));
            required int64 clock (TIME(NANOS, false));
            required fixed_len_byte_array(16) id (UUID);
            required binary bytes;
            required binary text (UTF8);
            required group l (LIST) { repeated group list { required int64 element (TIMESTAMP(NANOS, true)); } }
            required group m (MAP) { repeated group key_value { required binary key (UTF8); required double value; } }
            required group s { required int64 b; required int64 a; }
        }";
        let wide = 99_999_999_999_999_999_999_999_999_999_999_999_999_i128;
        let file = one_row(schema, |index, column| {
            let long = |column: &mut parquet::file::writer::SerializedColumnWriter<'_>,
                        value: i64| {
                column
                    .typed::<Int64Type>()
                    .write_batch(&[value], Some(&[1]), Some(&[0]))
                    .unwrap();
            };
            let fixed = |column: &mut parquet::file::writer::SerializedColumnWriter<'_>,
                         value: &[u8]| {
                let value = FixedLenByteArray::from(value.to_vec());
                column
                    .typed::<FixedLenByteArrayType>()
                    .write_batch(&[value], None, None)
                    .unwrap();
            };
            let double = |column: &mut parquet::file::writer::SerializedColumnWriter<'_>,
                          value: f64| {
                column
                    .typed::<DoubleType>()
                    .write_batch(&[value], Some(&[1]), Some(&[0]))
                    .unwrap();
            };
            let bytes = |column: &mut parquet::file::writer::SerializedColumnWriter<'_>,
                         value: &[u8]| {
                let value = parquet::data_type::ByteArray::from(value.to_vec());
                column
                    .typed::<ByteArrayType>()
                    .write_batch(&[value], Some(&[1]), Some(&[0]))
                    .unwrap();
            };
            match index {
                0 => long(column, -1),
                1 => fixed(column, &(-wide).to_be_bytes()),
                2 => drop(
                    column
                        .typed::<Int32Type>()
                        .write_batch(&[-5], None, None)
                        .unwrap(),
                ),
                3 => double(column, f64::NAN),
                4 => double(column, f64::NEG_INFINITY),
                5 => drop(
                    column
                        .typed::<FloatType>()
                        .write_batch(&[1.1], None, None)
                        .unwrap(),
                ),
                6 => drop(
                    column
                        .typed::<Int32Type>()
                        .write_batch(&[-1], None, None)
                        .unwrap(),
                ),
                7 => long(column, 1_795_767_300_123_456_789),
                8 => long(column, -1),
                9 => long(column, 3_600_000_000_001),
                10 => fixed(column, &[0xab; 16]),
                11 => bytes(column, &[0, 255]),
                12 => bytes(column, "a\"\n".as_bytes()),
                13 => long(column, 1),
                14 => bytes(column, b"k"),
                15 => double(column, f64::INFINITY),
                16 | 17 => long(column, index as i64),
                _ => unreachable!(),
            }
        });
        let mut rows = ForeignRows::open(file.path()).unwrap();
        let columns = rows.columns().to_vec();
        let numbers: Vec<_> = columns
            .iter()
            .filter(|column| column.is_number)
            .map(|column| column.name.as_str())
            .collect();
        assert_eq!(
            numbers,
            ["small", "wide", "money", "nan", "below", "single"]
        );
        let row = rows.next().unwrap().unwrap();
        assert!(rows.next().is_none());
        let names = columns.iter().map(|column| column.name.as_str());
        let json = JsonObject(names.zip(&row)).to_string();
        let expected = format!(
            "{{\"small\":18446744073709551615,\"wide\":-{wide},\"money\":-0.05,\"nan\":\"NaN\",\"below\":\"-Infinity\",\
             \"single\":1.1,\"day\":\"1969-12-31\",\"nanos\":\"2026-11-27 08:15:00.123456789\",\
             \"micros\":\"1969-12-31 23:59:59.999999\",\"clock\":\"01:00:00.000000001\",\
             \"id\":\"abababab-abab-abab-abab-abababababab\",\"bytes\":\"00ff\",\"text\":\"a\\\"\\n\",\
             \"l\":[\"1970-01-01 00:00:00.000000001\"],\"m\":{{\"k\":\"Infinity\"}},\"s\":{{\"b\":16,\"a\":17}}}}"
        );
        assert_eq!(json, expected);
        let texts: Vec<String> = row.iter().map(ToString::to_string).collect();
        assert_eq!(
            (texts[3].as_str(), texts[11].as_str(), texts[12].as_str()),
            ("NaN", "00ff", "a\"\n")
        );
    }

    /// Two columns of the same name are rejected: reading by name would return one column's values for both.
    #[test]
    fn columns_of_one_name_are_refused() {
        let schema = "message answer { required int64 a; required int64 a; }";
        let file = one_row(schema, |index, column| {
            column
                .typed::<Int64Type>()
                .write_batch(&[index as i64], None, None)
                .unwrap();
        });
        assert!(matches!(
            ForeignRows::open(file.path()),
            Err(LakeError::Damaged { .. })
        ));
    }

    #[test]
    fn a_file_that_is_not_parquet_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "PAR1 nonsense").unwrap();
        assert!(matches!(
            ForeignRows::open(file.path()),
            Err(LakeError::Damaged { .. })
        ));
    }
}
