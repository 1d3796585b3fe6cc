//! A trace file as a stream of requests: unpacked, its format found out, read a piece after another.
//! Called by `brunt trace`.
//!
//! The rule: what is held in memory is one piece and its requests, however long the file is.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Serialize;

use crate::format::{DamagedRow, Decode, Format};
use crate::record::{BlockRequest, Devices};
use crate::table::{Candidates, HEAD_BYTES, detect, format_named};

/// Bytes that are unpacked and read at a time: half of a core's L2 cache.
const PIECE_BYTES: usize = 512 << 10;

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system, or who unpacks, said no.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What it said.
        source: io::Error,
    },
    /// No format fits.
    #[error("{path} is no block trace that is known here")]
    UnknownFormat {
        /// The file.
        path: String,
    },
    /// Several formats fit.
    #[error("{path} may be {}", candidates.join(" or "))]
    Ambiguous {
        /// The file.
        path: String,
        /// Their names.
        candidates: Vec<&'static str>,
    },
    /// A row cannot be read, and none was to be skipped.
    #[error("{path}: row {row} cannot be read as {format}")]
    Damaged {
        /// The file.
        path: String,
        /// From 1.
        row: u64,
        /// As which format.
        format: &'static str,
    },
}

/// What became of the rows of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RowLedger {
    /// Requests that were read.
    pub requests: u64,
    /// Rows that could not be read.
    pub damaged: u64,
    /// The first of them, from 1.
    pub damaged_first: Option<u64>,
    /// Requests with a time before that of the one before them; they stay in the order of the file.
    pub backwards: u64,
}

/// A trace file that is open.
pub struct TraceReader {
    path: String,
    input: Box<dyn Read + Send>,
    format: &'static Format,
    decoder: Box<dyn Decode + Send>,
    strict: bool,
    /// Bytes that were read and not decoded yet.
    piece: Vec<u8>,
    requests: Vec<BlockRequest>,
    damaged: Vec<DamagedRow>,
    devices: Devices,
    ledger: RowLedger,
    last_ns: u64,
    ended: bool,
}

impl TraceReader {
    /// Opens a trace, plain, gzip or zstd, told by its first bytes; `-` is standard input. Without a format it is found
    /// out. `strict`: the first row that cannot be read is an error.
    ///
    /// # Errors
    /// It cannot be read, or its format is not one.
    pub fn open(
        path: &Path,
        format: Option<&'static Format>,
        strict: bool,
    ) -> Result<TraceReader, TraceError> {
        let name = path.display().to_string();
        let input: Box<dyn Read + Send> = if name == "-" {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(path).map_err(|source| TraceError::Io { path: name.clone(), source })?)
        };
        TraceReader::from_reader(name, input, format, strict)
    }

    /// The same from anything.
    ///
    /// # Errors
    /// See [`TraceReader::open`].
    pub fn from_reader(
        path: String,
        input: Box<dyn Read + Send>,
        format: Option<&'static Format>,
        strict: bool,
    ) -> Result<TraceReader, TraceError> {
        let mut input = unpacked(input).map_err(|source| TraceError::Io { path: path.clone(), source })?;
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let head = (&mut input).take(HEAD_BYTES as u64).read_to_end(&mut piece);
        head.map_err(|source| TraceError::Io { path: path.clone(), source })?;
        let format = match format {
            Some(format) => format,
            None => match detect(&piece, piece.len() < HEAD_BYTES) {
                Candidates::One(name) => format_named(name).expect("detected by its line in the table"),
                Candidates::None => return Err(TraceError::UnknownFormat { path }),
                Candidates::Several(candidates) => return Err(TraceError::Ambiguous { path, candidates }),
            },
        };
        Ok(TraceReader {
            path,
            input,
            format,
            decoder: (format.decoder)(),
            strict,
            piece,
            requests: Vec::new(),
            damaged: Vec::new(),
            devices: Devices::default(),
            ledger: RowLedger::default(),
            last_ns: 0,
            ended: false,
        })
    }

    /// Its format.
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// The devices so far.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// What became of the rows so far.
    pub fn ledger(&self) -> RowLedger {
        self.ledger
    }

    /// The next requests, in the order of the file; `None` at its end.
    ///
    /// # Errors
    /// It cannot be read on, or a row is damaged and none is to be skipped.
    pub fn next_requests(&mut self) -> Result<Option<&[BlockRequest]>, TraceError> {
        self.requests.clear();
        while self.requests.is_empty() {
            if self.ended {
                return Ok(None);
            }
            self.fill()?;
            self.damaged.clear();
            let used = self.decoder.decode(
                &self.piece,
                self.ended,
                &mut self.devices,
                &mut self.requests,
                &mut self.damaged,
            );
            assert!(!self.ended || used == self.piece.len(), "a decoder leaves nothing of the end");
            self.piece.drain(..used);
            self.count()?;
        }
        Ok(Some(&self.requests))
    }

    /// Reads on until the piece is full or the file at its end.
    fn fill(&mut self) -> Result<(), TraceError> {
        let room = PIECE_BYTES.saturating_sub(self.piece.len());
        assert!(room > 0, "a decoder takes a piece apart, or gives a row up");
        let read = (&mut self.input).take(room as u64).read_to_end(&mut self.piece);
        let read = read.map_err(|source| TraceError::Io { path: self.path.clone(), source })?;
        self.ended = read < room;
        Ok(())
    }

    fn count(&mut self) -> Result<(), TraceError> {
        if let Some(DamagedRow { row }) = self.damaged.first() {
            if self.strict {
                let (path, row, format) = (self.path.clone(), *row, self.format.name);
                return Err(TraceError::Damaged { path, row, format });
            }
            self.ledger.damaged_first.get_or_insert(*row);
            self.ledger.damaged += self.damaged.len() as u64;
        }
        self.ledger.requests += self.requests.len() as u64;
        for request in &self.requests {
            self.ledger.backwards += u64::from(request.time_ns < self.last_ns);
            self.last_ns = request.time_ns;
        }
        Ok(())
    }
}

/// What gzip or zstd packed, or the bytes as they are.
fn unpacked(mut input: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = Vec::with_capacity(4);
    (&mut input).take(4).read_to_end(&mut magic)?;
    let packed = magic.clone();
    let whole = io::Cursor::new(magic).chain(input);
    Ok(match packed.as_slice() {
        // RFC 1952, 2.3.1; several members may follow each other.
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        // RFC 8878, 3.1.1.
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::new(whole)?),
        _ => Box::new(whole),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::FORMATS;

    fn open(bytes: Vec<u8>, strict: bool) -> Result<TraceReader, TraceError> {
        TraceReader::from_reader("x".into(), Box::new(io::Cursor::new(bytes)), None, strict)
    }

    fn all(mut reader: TraceReader) -> (Vec<BlockRequest>, RowLedger) {
        let mut requests = Vec::new();
        while let Some(more) = reader.next_requests().unwrap() {
            requests.extend_from_slice(more);
        }
        (requests, reader.ledger())
    }

    #[test]
    fn packed_or_not_the_requests_are_the_same() {
        for format in FORMATS {
            let plain = all(open(format.example.to_vec(), true).unwrap());
            assert_eq!(plain.1.requests, plain.0.len() as u64);
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            gzip.write_all(format.example).unwrap();
            assert_eq!(all(open(gzip.finish().unwrap(), true).unwrap()), plain, "{}", format.name);
            let packed = zstd::encode_all(format.example, 1).unwrap();
            assert_eq!(all(open(packed, true).unwrap()), plain, "{}", format.name);
        }
    }

    /// Longer than a piece, with a damaged row in it and a time that runs backwards.
    #[test]
    fn long_files_are_read_in_pieces() {
        let mut text = String::new();
        for row in 0..100_000u64 {
            text += &format!("0,{},4096,R,{}.5\n", row * 8, if row == 70_000 { 1 } else { row });
        }
        text.insert_str(0, "0,0,512,W,0.0\n");
        text += &format!("nonsense\n{}\n0,8,512,w,100000", "x".repeat(PIECE_BYTES * 2));
        let (requests, ledger) = all(open(text.clone().into_bytes(), false).unwrap());
        assert_eq!(requests.len(), 100_002);
        let expected =
            RowLedger { requests: 100_002, damaged: 2, damaged_first: Some(100_002), backwards: 1 };
        assert_eq!(ledger, expected);
        let mut strict = open(text.into_bytes(), true).unwrap();
        let error = loop {
            match strict.next_requests() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, TraceError::Damaged { row: 100_002, format: "spc", .. }), "{error}");
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        for bytes in [&b""[..], b"hello\n", &[0; 4096]] {
            assert!(matches!(open(bytes.to_vec(), false), Err(TraceError::UnknownFormat { .. })));
        }
        let cut = flate2_cut();
        assert!(matches!(open(cut, false), Err(TraceError::Io { .. })));
        let ambiguous = TraceError::Ambiguous { path: "x".into(), candidates: vec!["spc", "msr"] };
        assert_eq!(ambiguous.to_string(), "x may be spc or msr");
    }

    fn flate2_cut() -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(FORMATS[0].example).unwrap();
        let mut bytes = gzip.finish().unwrap();
        bytes.truncate(bytes.len() / 2);
        bytes
    }
}
