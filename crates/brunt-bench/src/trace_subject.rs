//! Generates a trace in every format for a measurement, and the code with which other programs read it: awk programs
//! and DuckDB queries that know the positions of the columns. Used by [`crate::TraceBench`].
//!
//! The rule: the requests in a file are known before it is measured.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use brunt_core::random::Random;
use brunt_trace::{
    BlockRequest, ColumnMap, Devices, FORMATS, Format, FormatOptions, TraceOp, writer_named,
};

use crate::scratch::Scratch;
use crate::trace_file::write_trace;
use crate::{BenchError, BenchResult};

/// A trace file.
pub struct TraceSubject {
    pub format: &'static Format,
    pub path: PathBuf,
    pub bytes: u64,
    /// Number of requests in the file.
    pub requests: u64,
    /// Whether the file repeats the rows of the format's example, because Brunt cannot write the format.
    pub repeated: bool,
}

/// How other programs read a text format, written as that format's users would.
pub struct TextShape {
    pub format: &'static str,
    /// The column separator for awk; a blank matches any number of blanks.
    pub separator: &'static str,
    /// awk's columns, counted from 1: the operation and its value for reads, then size, address and time.
    pub op: &'static str,
    pub read: &'static str,
    pub numbers: [&'static str; 3],
    /// For DuckDB: the number of lines before the first row, and the same columns counted from 0; `None` if DuckDB's
    /// CSV reader cannot split the columns.
    pub duckdb: Option<(u32, &'static str, [&'static str; 3])>,
}

const fn shape(
    format: &'static str,
    separator: &'static str,
    (op, read): (&'static str, &'static str),
    numbers: [&'static str; 3],
    duckdb: Option<(u32, &'static str, [&'static str; 3])>,
) -> TextShape {
    TextShape {
        format,
        separator,
        op,
        read,
        numbers,
        duckdb,
    }
}

/// All text formats.
pub const SHAPES: &[TextShape] = &[
    shape("blkreplay", ";", ("$4", " R "), ["$3", "$2", "$1"], None),
    shape(
        "spc",
        ",",
        ("$4", "R"),
        ["$3", "$2", "$5"],
        Some((0, "column3", ["column2", "column1", "column4"])),
    ),
    shape(
        "msr",
        ",",
        ("$4", "Read"),
        ["$6", "$5", "$1"],
        Some((0, "column3", ["column5", "column4", "column0"])),
    ),
    shape(
        "alibaba",
        ",",
        ("$2", "R"),
        ["$4", "$3", "$5"],
        Some((0, "column1", ["column3", "column2", "column4"])),
    ),
    shape(
        "tencent",
        ",",
        ("$4", "0"),
        ["$3", "$2", "$1"],
        Some((0, "column3", ["column2", "column1", "column0"])),
    ),
    shape(
        "systor",
        ",",
        ("$3", "R"),
        ["$6", "$5", "$1"],
        Some((1, "column2", ["column5", "column4", "column0"])),
    ),
    shape(
        "k5cloud",
        ",",
        ("$3", "R"),
        ["$5", "$4", "$2"],
        Some((0, "column2", ["column4", "column3", "column1"])),
    ),
    // A process name may contain blanks, so awk counts from the end.
    shape(
        "fiu",
        " ",
        ("$(NF-3)", "R"),
        ["$(NF-4)", "$(NF-5)", "$1"],
        None,
    ),
    shape(
        "cloudphysics",
        ",",
        ("$3", "28"),
        ["$4", "$5", "$2"],
        Some((1, "column2", ["column3", "column4", "column1"])),
    ),
    shape("blkparse", " ", ("$7", "R"), ["$10", "$8", "$4"], None),
    shape("disksim", " ", ("$5", "1"), ["$4", "$3", "$1"], None),
    shape("mqsim", " ", ("$5", "1"), ["$4", "$3", "$1"], None),
    shape("ftrace", " ", ("$7", "R"), ["$8", "$10", "$4"], None),
    // A process name may contain blanks, so awk counts from the end here, too.
    shape(
        "biosnoop",
        " ",
        ("$(NF-3)", "R"),
        ["$(NF-1)", "$(NF-2)", "$1"],
        None,
    ),
    shape("iolog2", " ", ("$2", "read"), ["$4", "$3", "$3"], None),
    shape("iolog3", " ", ("$3", "read"), ["$5", "$4", "$1"], None),
    shape(
        "hfplayer",
        ",",
        ("$9", "0"),
        ["$12", "$11", "$2"],
        Some((1, "column08", ["column11", "column10", "column01"])),
    ),
    shape(
        "csv",
        ",",
        ("$3", "28"),
        ["$4", "$5", "$2"],
        Some((1, "column2", ["column3", "column4", "column1"])),
    ),
];

impl TextShape {
    /// The shape of a format; `None` if it isn't text.
    pub fn of(format: &str) -> Option<&'static TextShape> {
        SHAPES.iter().find(|shape| shape.format == format)
    }

    /// An awk program that computes the same sums as our reader: bytes by operation, addresses and times.
    pub fn awk(&self) -> String {
        let TextShape {
            separator,
            op,
            read,
            numbers: [size, address, time],
            ..
        } = self;
        // awk treats a single blank as any number of blanks.
        format!(
            "BEGIN {{ FS = \"{separator}\" }} {{ if ({op} == \"{read}\") r += {size}; else w += {size}; o += {address}; \
             t += {time} }} END {{ print NR, r, w, o, t }}"
        )
    }

    /// A DuckDB query for the same sums, if DuckDB's reader can split the columns.
    pub fn duckdb(&self, path: &Path) -> Option<String> {
        let (skip, op, [size, address, time]) = self.duckdb?;
        Some(format!(
            "select count(*), count(*) filter ({op}::varchar = '{}'), sum({size}), sum({address}), sum({time}) from \
             read_csv('{}', header = false, skip = {skip}, delim = ',')",
            self.read,
            path.display()
        ))
    }
}

/// Options for formats whose meaning depends on them.
pub fn options() -> FormatOptions {
    FormatOptions {
        op: Some(TraceOp::Read),
        columns: Some(ColumnMap::SAMPLE),
        ..FormatOptions::default()
    }
}

impl TraceSubject {
    /// Generates a file with about `rows` requests in a format, in the scratch folder.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn make(
        format: &'static Format,
        rows: u64,
        scratch: &Scratch,
    ) -> Result<TraceSubject, BenchError> {
        let path = scratch.join(format.name);
        let failed =
            |error: std::io::Error| BenchError::failed(format!("{}: {error}", path.display()));
        let repeated = writer_named(format.name).is_none();
        let requests = if repeated {
            repeat_example(format, rows, &path).map_err(failed)?
        } else {
            write_trace(&path, format.name, requests(rows))?;
            rows
        };
        let bytes = std::fs::metadata(&path).map_err(failed)?.len();
        Ok(TraceSubject {
            format,
            path,
            bytes,
            requests,
            repeated,
        })
    }
}

/// Reads and writes of one device at random times and offsets.
pub fn requests(rows: u64) -> impl Iterator<Item = BlockRequest> + Send {
    let (mut random, mut time_ns) = (Random::new(1), 0);
    (0..rows).map(move |_| {
        time_ns += random.below(2000) * 1000;
        let op = if random.chance(0.6) {
            TraceOp::Read
        } else {
            TraceOp::Write
        };
        let (offset, bytes) = (
            random.below(1 << 30) * 512,
            512 * (1 + random.below(128)) as u32,
        );
        let response_ns = Some(random.below(100_000) * 100);
        BlockRequest {
            response_ns,
            ..BlockRequest::new(time_ns, 0, op, offset, bytes)
        }
    })
}

/// The number of requests and damaged rows in a file.
fn decoded(format: &Format, bytes: &[u8]) -> (usize, usize) {
    let (mut devices, mut requests, mut damaged) = (Devices::default(), Vec::new(), Vec::new());
    (format.decoder)(&options()).decode(bytes, true, &mut devices, &mut requests, &mut damaged);
    (requests.len(), damaged.len())
}

/// The end of an example's header; everything after it can be repeated.
fn head_bytes(format: &Format) -> usize {
    let (example, ends_line) = (format.example, format.example.ends_with(b"\n"));
    let (once, _) = decoded(format, example);
    let fits = |head: &usize| {
        let whole = *head == 0 || !ends_line || example[*head - 1] == b'\n';
        whole && decoded(format, &[example, &example[*head..]].concat()) == (once * 2, 0)
    };
    // Take the last possible position. Our reader skips a header line between rows, so the header could be repeated,
    // but other programs can't handle that.
    (0..example.len())
        .rev()
        .find(fits)
        .expect("examples have rows")
}

/// Writes the rows of the example repeatedly until there are this many requests; returns their number.
fn repeat_example(format: &Format, rows: u64, path: &Path) -> std::io::Result<u64> {
    let (head, body) = format.example.split_at(head_bytes(format));
    let each = decoded(format, format.example).0 as u64;
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    file.write_all(head)?;
    let times = rows.div_ceil(each);
    for _ in 0..times {
        file.write_all(body)?;
    }
    file.flush()?;
    Ok(times * each)
}

/// The formats with these names; all formats if the list is empty.
///
/// # Errors
/// A name is unknown.
pub fn formats_named(names: &[String]) -> Result<Vec<&'static Format>, BenchError> {
    if names.is_empty() {
        return Ok(FORMATS.iter().collect());
    }
    let named = names.iter().map(|name| {
        brunt_trace::format_named(name)
            .ok_or_else(|| BenchError::usage(format!("unknown format {name}")))
    });
    named.collect()
}

/// Writes requests into a pipe as fast as they are read.
///
/// # Errors
/// The pipe cannot be written to.
pub fn write_to(out: Box<dyn Write + Send>, format: &'static str, rows: u64) -> BenchResult {
    crate::trace_file::write_to("a pipe", out, format, requests(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every format can be measured: files contain the stated number of requests, and every text format has its awk
    /// program.
    #[test]
    fn each_format_is_a_subject() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(Some(folder.path()), "x").unwrap();
        for format in FORMATS {
            let subject = TraceSubject::make(format, 1000, &scratch).unwrap();
            let bytes = std::fs::read(&subject.path).unwrap();
            assert!(subject.requests >= 1000 && subject.bytes == bytes.len() as u64);
            assert_eq!(
                decoded(format, &bytes),
                (subject.requests as usize, 0),
                "{}",
                format.name
            );
            assert_eq!(
                TextShape::of(format.name).is_some(),
                bytes.is_ascii() && format.name != "dtb",
                "{}",
                format.name
            );
        }
    }
}
