//! Reads one file as a stream of requests. A piece is read and decoded one window at a time; the
//! next piece is appended to the undecoded rest. Used by [`crate::reader`].
//!
//! The rule: only one piece is in memory, however long the file is.

use std::io::{self, Read};

use brunt_core::LeftOutTransfers;

use crate::error::TraceError;
use crate::format::{DamagedRow, Decode, EventCounts, Format, FormatOptions, MissingInfo};
use crate::record::{BlockRequest, Devices};
use crate::table::{Candidates, HEAD_BYTES, detect, format_named};
use crate::text::as_utf8;

/// Bytes unpacked and read at a time; a piece stays in a core's L2 cache.
pub(crate) const PIECE_BYTES: usize = 128 << 10;
/// Bytes decoded at a time. Their requests take up to four times as much memory, and are used
/// before they leave the caches closest to the core.
const WINDOW_BYTES: usize = 16 << 10;

/// A source of requests.
pub(crate) trait RequestSource: Send {
    /// Appends more requests and unreadable rows; `false` after the last ones.
    fn read(
        &mut self,
        devices: &mut Devices,
        requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> Result<bool, TraceError>;

    /// The format.
    fn format(&self) -> &'static Format;

    /// The formats of everything that is read.
    fn formats(&self) -> Vec<&'static Format> {
        vec![self.format()]
    }

    /// Events other than requests.
    fn events(&self) -> Option<EventCounts>;

    /// Writes so far that represent a command that writes one block repeatedly.
    fn repeated(&self) -> u64 {
        0
    }

    /// Requests of a captured trace that are left out because they moved nothing.
    fn left_out(&self) -> LeftOutTransfers {
        LeftOutTransfers::default()
    }

    /// Files whose compressed data is truncated or damaged.
    fn cut_files(&self) -> u64 {
        0
    }

    /// Notes on how the trace was read, in whole sentences.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Commands whose details were dropped before their requests arrived.
    fn details_dropped(&self) -> u64 {
        0
    }

    /// Whether requests are in completion order, so they must be sorted by time.
    fn by_completion(&self) -> bool {
        false
    }
}

/// Whether a file begins like a packet capture: pcap in either byte order, pcapng, or snoop (RFC 1761).
fn is_packet_capture(head: &[u8]) -> bool {
    let word = |at: usize| head.get(at..at + 4).unwrap_or_default();
    // The magic number for times in microseconds or in nanoseconds; version 2.4 follows.
    let big = [[0xa1, 0xb2, 0xc3, 0xd4], [0xa1, 0xb2, 0x3c, 0x4d]];
    let pcap = big.into_iter().any(|magic| {
        let mut little = magic;
        little.reverse();
        (word(0) == magic && word(4) == [0, 2, 0, 4])
            || (word(0) == little && word(4) == [2, 0, 4, 0])
    });
    // The byte-order magic of the first section.
    let pcapng = word(0) == [0x0a, 0x0d, 0x0d, 0x0a]
        && (word(8) == [0x1a, 0x2b, 0x3c, 0x4d] || word(8) == [0x4d, 0x3c, 0x2b, 0x1a]);
    pcap || pcapng || head.starts_with(b"snoop\0\0\0")
}

/// A file being decoded.
pub(crate) struct FileStream {
    path: String,
    input: Box<dyn Read + Send>,
    format: &'static Format,
    decoder: Box<dyn Decode + Send>,
    /// Bytes read, and how many of them are decoded.
    piece: Vec<u8>,
    used: usize,
    /// Bytes to decode next: more than usual if a row is longer.
    window: usize,
    /// `ended`: the file ends with this piece; `finished`: all of it is decoded.
    ended: bool,
    finished: bool,
    /// Why the rest of the file could not be unpacked.
    cut: Option<io::Error>,
}

impl FileStream {
    /// Opens a file at its start; detects the format if none is given.
    pub fn open(
        path: String,
        input: Box<dyn Read + Send>,
        format: Option<&'static Format>,
        options: &FormatOptions,
    ) -> Result<FileStream, TraceError> {
        let io = |source| TraceError::Io {
            path: path.clone(),
            source,
        };
        let mut input = as_utf8(input).map_err(io)?;
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let read = (&mut input).take(HEAD_BYTES as u64).read_to_end(&mut piece);
        let cut = cut_of(read, &piece).map_err(io)?;
        let format = match format {
            Some(format) => format,
            None if is_packet_capture(&piece) => return Err(TraceError::PacketCapture { path }),
            None => match detect(&piece, piece.len() < HEAD_BYTES) {
                Candidates::One(name) => format_named(name).expect("detected by its table entry"),
                // Too little was unpacked to detect a format.
                Candidates::None(_) if cut.is_some() => {
                    return Err(io(cut.expect("a row was just seen")));
                }
                Candidates::None(closest) => {
                    return Err(TraceError::UnknownFormat { path, closest });
                }
                Candidates::Doubtful { format, backwards } => {
                    return Err(TraceError::Doubtful {
                        path,
                        format,
                        backwards_percent: (100.0 * backwards).round() as u32,
                    });
                }
                Candidates::Several(candidates) => {
                    return Err(TraceError::Ambiguous { path, candidates });
                }
            },
        };
        match format.unstated(options) {
            Some(MissingInfo::Operation) => {
                return Err(TraceError::NoOperation {
                    path,
                    format: format.name,
                });
            }
            Some(MissingInfo::Columns) => {
                return Err(TraceError::NoColumns {
                    path,
                    format: format.name,
                });
            }
            None => {}
        }
        let decoder = (format.decoder)(options);
        let window = WINDOW_BYTES;
        Ok(FileStream {
            path,
            input,
            format,
            decoder,
            piece,
            used: 0,
            window,
            ended: cut.is_some(),
            cut,
            finished: false,
        })
    }

    /// Reads until the piece is full or the file ends.
    fn fill(&mut self) -> Result<(), TraceError> {
        self.piece.drain(..self.used);
        self.used = 0;
        let room = PIECE_BYTES.saturating_sub(self.piece.len());
        assert!(room > 0, "a decoder consumes input or skips a row");
        let read = (&mut self.input)
            .take(room as u64)
            .read_to_end(&mut self.piece);
        let is_full = matches!(read, Ok(count) if count == room);
        self.cut = cut_of(read, &self.piece).map_err(|source| TraceError::Io {
            path: self.path.clone(),
            source,
        })?;
        self.ended = !is_full;
        Ok(())
    }
}

/// Returns the error that shows a compressed file to be truncated or damaged, if some of the file could be read; fails
/// with any other error.
fn cut_of(read: io::Result<usize>, before: &[u8]) -> io::Result<Option<io::Error>> {
    match read {
        Ok(_) => Ok(None),
        Err(error)
            if !before.is_empty()
                && matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof
                        | io::ErrorKind::InvalidData
                        | io::ErrorKind::InvalidInput
                ) =>
        {
            Ok(Some(error))
        }
        Err(error) => Err(error),
    }
}

impl RequestSource for FileStream {
    fn read(
        &mut self,
        devices: &mut Devices,
        requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> Result<bool, TraceError> {
        if self.finished {
            return Ok(false);
        }
        if self.piece.len() - self.used < self.window && !self.ended {
            self.fill()?;
        }
        let end = self.piece.len().min(self.used + self.window);
        self.finished = self.ended && end == self.piece.len();
        let bytes = &self.piece[self.used..end];
        let used = self
            .decoder
            .decode(bytes, self.finished, devices, requests, damaged);
        assert!(
            !self.finished || used == bytes.len(),
            "a decoder consumes all input at the end"
        );
        self.used += used;
        self.window = if used == 0 {
            self.window * 2
        } else {
            WINDOW_BYTES
        };
        Ok(true)
    }

    fn format(&self) -> &'static Format {
        self.format
    }

    fn events(&self) -> Option<EventCounts> {
        self.decoder.events()
    }

    fn cut_files(&self) -> u64 {
        self.cut.is_some().into()
    }

    fn notes(&self) -> Vec<String> {
        let note = |error| {
            format!(
                "{} could not be decompressed to the end: {error}",
                self.path
            )
        };
        self.cut.iter().map(note).collect()
    }

    fn by_completion(&self) -> bool {
        self.decoder.by_completion()
    }
}
