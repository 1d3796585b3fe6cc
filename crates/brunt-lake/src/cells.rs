//! In-memory values of one column. A batch consists of these; the encoder writes them and the reader fills them.
//!
//! The rule: a null occupies a slot with an arbitrary value, so all columns of a batch have the same length.

use crate::packing::all_same;
use crate::table::ColumnKind;

/// Makes room for `more` values; if the vector has to grow, it grows fourfold. Growing a column to the size of a part
/// then copies a third of its values in total instead of all of them (as doubling would), and untouched memory costs
/// nothing.
pub(crate) fn make_room<T>(values: &mut Vec<T>, more: usize) {
    if values.capacity() - values.len() < more {
        values.reserve(more.max(3 * values.capacity()));
    }
}

/// One column's values; a null occupies a slot with an arbitrary value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cells {
    pub values: Values,
    /// Parquet definition levels, 1 for a value and 0 for a null; empty unless nullable.
    pub levels: Vec<i16>,
    pub nulls: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    Bools(Vec<bool>),
    Texts(Texts),
    Bytes(ByteStrings),
    /// Text values, stored as codes.
    Codes(Codes),
}

impl Values {
    fn new(kind: ColumnKind) -> Values {
        match kind {
            ColumnKind::Int | ColumnKind::Time => Values::Ints(Vec::new()),
            ColumnKind::Float => Values::Floats(Vec::new()),
            ColumnKind::Bool => Values::Bools(Vec::new()),
            ColumnKind::Text => Values::Texts(Texts::default()),
            ColumnKind::Bytes => Values::Bytes(ByteStrings::default()),
        }
    }

    /// An empty column of the same type.
    fn none_of_these(&self) -> Values {
        match self {
            Values::Ints(_) => Values::Ints(Vec::new()),
            Values::Floats(_) => Values::Floats(Vec::new()),
            Values::Bools(_) => Values::Bools(Vec::new()),
            Values::Texts(_) => Values::Texts(Texts::default()),
            Values::Bytes(_) => Values::Bytes(ByteStrings::default()),
            Values::Codes(Codes { name, .. }) => Values::Codes(Codes {
                codes: Vec::new(),
                name: *name,
            }),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Values::Ints(values) => values.len(),
            Values::Floats(values) => values.len(),
            Values::Bools(values) => values.len(),
            Values::Texts(texts) => texts.ends.len(),
            Values::Bytes(strings) => strings.ends.len(),
            Values::Codes(Codes { codes, .. }) => codes.len(),
        }
    }

    /// The codes of a text column. Converts an empty column of texts to codes.
    ///
    /// # Panics
    /// The column has texts or isn't a text column, a bug in this program.
    pub fn codes_of(&mut self, name: fn(i64) -> &'static str) -> &mut Codes {
        if matches!(self, Values::Texts(texts) if texts.ends.is_empty()) {
            *self = Values::Codes(Codes {
                codes: Vec::new(),
                name,
            });
        }
        match self {
            Values::Codes(codes) => codes,
            _ => panic!("texts were appended before codes"),
        }
    }
}

/// Text values with few distinct texts, stored as codes.
#[derive(Clone, Debug)]
pub(crate) struct Codes {
    pub codes: Vec<u16>,
    name: fn(i64) -> &'static str,
}

impl Codes {
    /// Appends codes.
    ///
    /// # Panics
    /// A code doesn't fit in 16 bits.
    pub fn extend(&mut self, words: &[i64]) {
        let all = words.iter().fold(0, |all, word| all | *word);
        assert!(u16::try_from(all).is_ok(), "codes are 16-bit numbers");
        self.codes.extend(words.iter().map(|word| *word as u16));
    }

    /// The text of a row.
    pub fn name(&self, row: usize) -> &'static str {
        self.name_of(self.codes[row])
    }

    /// The text of a code.
    pub fn name_of(&self, code: u16) -> &'static str {
        (self.name)(code.into())
    }
}

/// Two columns are equal if their texts are.
impl PartialEq for Codes {
    fn eq(&self, other: &Codes) -> bool {
        let mut codes = self.codes.iter().zip(&other.codes);
        self.codes.len() == other.codes.len()
            && codes.all(|(one, another)| self.name_of(*one) == other.name_of(*another))
    }
}

/// Text values, concatenated.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Texts {
    pub bytes: String,
    /// End offset of each text in `bytes`.
    pub ends: Vec<usize>,
}

impl Texts {
    pub fn push(&mut self, text: &str) {
        self.bytes.push_str(text);
        self.ends.push(self.bytes.len());
    }

    pub fn range(&self, row: usize) -> std::ops::Range<usize> {
        (if row == 0 { 0 } else { self.ends[row - 1] })..self.ends[row]
    }
}

/// Byte strings, concatenated.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ByteStrings {
    pub bytes: Vec<u8>,
    /// End offset of each string in `bytes`.
    pub ends: Vec<usize>,
}

impl ByteStrings {
    pub fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    pub fn string(&self, row: usize) -> &[u8] {
        &self.bytes[if row == 0 { 0 } else { self.ends[row - 1] }..self.ends[row]]
    }
}

impl Cells {
    pub fn new(kind: ColumnKind) -> Cells {
        Cells {
            values: Values::new(kind),
            levels: Vec::new(),
            nulls: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn clear(&mut self) {
        match &mut self.values {
            Values::Ints(values) => values.clear(),
            Values::Floats(values) => values.clear(),
            Values::Bools(values) => values.clear(),
            Values::Texts(texts) => {
                texts.bytes.clear();
                texts.ends.clear();
            }
            Values::Bytes(strings) => {
                strings.bytes.clear();
                strings.ends.clear();
            }
            Values::Codes(codes) => codes.codes.clear(),
        }
        self.levels.clear();
        self.nulls = 0;
    }

    /// Reserves room for `more` rows.
    pub fn make_room(&mut self, more: usize, nullable: bool) {
        match &mut self.values {
            Values::Ints(values) => make_room(values, more),
            Values::Floats(values) => make_room(values, more),
            Values::Bools(values) => make_room(values, more),
            Values::Texts(texts) => make_room(&mut texts.ends, more),
            Values::Bytes(strings) => make_room(&mut strings.ends, more),
            Values::Codes(codes) => make_room(&mut codes.codes, more),
        }
        if nullable {
            make_room(&mut self.levels, more);
        }
    }

    pub fn append(&mut self, other: &Cells) {
        match (&mut self.values, &other.values) {
            (Values::Ints(own), Values::Ints(more)) => own.extend_from_slice(more),
            (Values::Floats(own), Values::Floats(more)) => own.extend_from_slice(more),
            (Values::Bools(own), Values::Bools(more)) => own.extend_from_slice(more),
            (Values::Texts(own), Values::Texts(more)) => {
                let base = own.bytes.len();
                own.bytes.push_str(&more.bytes);
                own.ends.extend(more.ends.iter().map(|end| base + end));
            }
            (Values::Bytes(own), Values::Bytes(more)) => {
                let base = own.bytes.len();
                own.bytes.extend_from_slice(&more.bytes);
                own.ends.extend(more.ends.iter().map(|end| base + end));
            }
            (Values::Codes(own), Values::Codes(more)) => own.codes.extend_from_slice(&more.codes),
            // A column that is still empty may not have been converted between texts and codes yet.
            (_, more) if more.len() == 0 => {}
            (own, Values::Codes(more)) if own.len() == 0 => {
                *own = Values::Codes(more.clone());
            }
            _ => unreachable!("batches of one table have the same columns"),
        }
        self.levels.extend_from_slice(&other.levels);
        self.nulls += other.nulls;
    }

    /// Whether all rows are equal, which in practice holds for half of all columns.
    pub fn are_all_same(&self) -> bool {
        let values = || match &self.values {
            Values::Ints(values) => all_same(values),
            Values::Bools(values) => values.iter().all(|value| *value == values[0]),
            Values::Codes(Codes { codes, .. }) => codes.iter().all(|code| *code == codes[0]),
            Values::Floats(_) | Values::Texts(_) | Values::Bytes(_) => false,
        };
        self.nulls == self.len() || (self.nulls == 0 && values())
    }

    /// Copies these cells into others, in the given row order.
    pub fn in_order(&self, order: &[u32], into: &mut Cells) {
        fn gather<T: Copy>(values: &[T], order: &[u32], into: &mut Vec<T>) {
            into.clear();
            into.extend(order.iter().map(|row| values[*row as usize]));
        }
        match (&self.values, &mut into.values) {
            (Values::Ints(values), Values::Ints(into)) => gather(values, order, into),
            (Values::Floats(values), Values::Floats(into)) => gather(values, order, into),
            (Values::Bools(values), Values::Bools(into)) => gather(values, order, into),
            (Values::Texts(texts), Values::Texts(into)) => {
                into.bytes.clear();
                into.ends.clear();
                order
                    .iter()
                    .for_each(|row| into.push(&texts.bytes[texts.range(*row as usize)]));
            }
            (Values::Bytes(strings), Values::Bytes(into)) => {
                into.bytes.clear();
                into.ends.clear();
                order
                    .iter()
                    .for_each(|row| into.push(strings.string(*row as usize)));
            }
            (Values::Codes(from), Values::Codes(to)) => {
                to.name = from.name;
                gather(&from.codes, order, &mut to.codes);
            }
            (values, _) => {
                into.values = values.none_of_these();
                return self.in_order(order, into);
            }
        }
        gather(
            &self.levels,
            if self.levels.is_empty() { &[] } else { order },
            &mut into.levels,
        );
        into.nulls = self.nulls;
    }

    /// Sets the contents to `rows` nulls.
    pub fn fill_nulls(&mut self, rows: usize) {
        match &mut self.values {
            Values::Ints(values) => values.resize(rows, 0),
            Values::Floats(values) => values.resize(rows, 0.0),
            Values::Bools(values) => values.resize(rows, false),
            Values::Texts(texts) => texts.ends.resize(rows, 0),
            Values::Bytes(strings) => strings.ends.resize(rows, 0),
            Values::Codes(_) => unreachable!("only text columns have codes"),
        }
        self.levels.resize(rows, 0);
    }

    /// Completes the cells after a reader has filled `values` and, for a nullable column, possibly `levels`.
    pub fn complete(&mut self, rows: usize, nullable: bool) {
        if nullable {
            self.levels.resize(rows, 1);
        }
        self.nulls = self.levels.iter().filter(|level| **level == 0).count();
    }

    pub fn bytes(&self) -> usize {
        let values = match &self.values {
            Values::Ints(values) => values.len() * 8,
            Values::Floats(values) => values.len() * 8,
            Values::Bools(values) => values.len(),
            Values::Texts(texts) => texts.ends.len() * 8 + texts.bytes.len(),
            Values::Bytes(strings) => strings.ends.len() * 8 + strings.bytes.len(),
            Values::Codes(codes) => codes.codes.len() * 2,
        };
        values + self.levels.len() * 2
    }
}
