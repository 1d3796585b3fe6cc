//! Reads a trace as a stream of requests, from a single file, the files of several CPUs, or a
//! folder of tables. Called by `brunt trace` and by replays.
//!
//! The rule: only one piece and its requests are in memory, however long the file is.

use std::io::Read;
use std::path::{Path, PathBuf};

use brunt_core::LeftOutTransfers;
use brunt_core::input::InputFile;
use serde::Serialize;

use crate::archive;
use crate::cpus::{MergedCpus, files_of, gaps};
use crate::error::TraceError;
use crate::format::{DamagedRow, EventCounts, Format, FormatOptions};
use crate::merge::MergedTraces;
use crate::record::{BlockRequest, Devices};
use crate::sort::{SORT_WINDOW, Sorter};
use crate::stream::RequestSource;
use crate::tables::{TableSource, table_in};

/// How to read a trace.
#[derive(Clone, Copy, Default)]
pub struct ReadOptions {
    /// Its format; detected if not given.
    pub format: Option<&'static Format>,
    /// Whether to fail on the first unreadable row.
    pub strict: bool,
    /// Whether to sort requests by time, within a window of [`SORT_WINDOW`] requests.
    pub sorted: bool,
    /// Values that the format doesn't record.
    pub options: FormatOptions,
}

/// Counts of a trace's rows by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RowLedger {
    /// Requests that were read.
    pub requests: u64,
    /// Rows that could not be read.
    pub damaged: u64,
    /// The number of the first such row, from 1.
    pub damaged_first: Option<u64>,
    /// Requests with an earlier time than the request before them in the file.
    pub backwards: u64,
    /// Requests that are returned after a later one. In file order these are all backwards
    /// requests; if sorted, those that came too late for the sort window.
    pub out_of_order: u64,
    /// Writes that represent a command that writes one block repeatedly (WRITE SAME, zeroes); each covers all blocks of
    /// its command.
    pub repeated: u64,
    /// Files whose compressed data is truncated or damaged; the rest of each is unknown.
    pub cut_files: u64,
    /// Requests of a captured trace that are left out because they failed or their success was not seen.
    pub left_out: LeftOutTransfers,
    /// Events other than requests, for formats that have them.
    pub events: Option<EventCounts>,
    /// SCSI commands of a captured trace whose details were dropped before their requests arrived. Whether they force
    /// data to stable storage, or what they unmap, is unknown.
    pub details_dropped: u64,
}

/// An open trace.
pub struct TraceReader {
    path: String,
    source: Box<dyn RequestSource>,
    strict: bool,
    requests: Vec<BlockRequest>,
    damaged: Vec<DamagedRow>,
    devices: Devices,
    ledger: RowLedger,
    last_ns: u64,
    sorter: Option<Sorter>,
    notes: Vec<String>,
}

impl TraceReader {
    /// Opens a trace: a plain or compressed file or an archive of traces, detected by its first bytes, or `-` for
    /// standard input. For one of blktrace's files, or the name before `.blktrace.`, opens the files of all CPUs. For a
    /// folder, opens the table in it: `block_requests`, a result's `requests`, or a captured trace's `operations`; the
    /// last two are sorted by time. Without a format, it is detected. With `strict`, the first unreadable row is an
    /// error.
    ///
    /// # Errors
    /// The trace cannot be read, or its format is not supported.
    pub fn open(
        path: &Path,
        format: Option<&'static Format>,
        strict: bool,
    ) -> Result<TraceReader, TraceError> {
        TraceReader::open_with(
            path,
            &ReadOptions {
                format,
                strict,
                ..ReadOptions::default()
            },
        )
    }

    /// Like [`TraceReader::open`], with all options.
    ///
    /// # Errors
    /// See [`TraceReader::open`]; or the format doesn't record operations and the options don't specify one.
    pub fn open_with(path: &Path, options: &ReadOptions) -> Result<TraceReader, TraceError> {
        let name = path.display().to_string();
        let io = |source| TraceError::Io {
            path: name.clone(),
            source,
        };
        if let Some(format) = table_in(path) {
            let source = TableSource::open(path, format)?;
            return Ok(TraceReader::of(name, Box::new(source), options));
        }
        let mut notes = Vec::new();
        let input: Box<dyn Read + Send> = if name == "-" {
            Box::new(InputFile::stdin().map_err(io)?)
        } else {
            let cpus = files_of(path).map_err(io)?;
            if cpus.is_empty() {
                Box::new(InputFile::open(path).map_err(io)?)
            } else {
                notes.extend(gaps(&cpus));
                Box::new(MergedCpus::open(&cpus).map_err(io)?)
            }
        };
        let source = archive::open(name.clone(), input, options.format, &options.options)?;
        let mut reader = TraceReader::of(name, source, options);
        reader.notes = notes;
        Ok(reader)
    }

    /// Opens several traces as one, in time order; devices of the same name are the same device.
    ///
    /// # Errors
    /// See [`TraceReader::open_with`].
    ///
    /// # Panics
    /// Panics if `paths` is empty.
    pub fn open_all(paths: &[PathBuf], options: &ReadOptions) -> Result<TraceReader, TraceError> {
        if let [path] = paths {
            return TraceReader::open_with(path, options);
        }
        let opened: Result<Vec<TraceReader>, TraceError> = paths
            .iter()
            .map(|path| TraceReader::open_with(path, options))
            .collect();
        let name = format!("{} and others", paths[0].display());
        Ok(TraceReader::of(
            name,
            Box::new(MergedTraces::new(opened?)),
            options,
        ))
    }

    /// Like [`TraceReader::open`], from any reader.
    ///
    /// # Errors
    /// See [`TraceReader::open`].
    pub fn from_reader(
        path: String,
        input: Box<dyn Read + Send>,
        format: Option<&'static Format>,
        strict: bool,
    ) -> Result<TraceReader, TraceError> {
        TraceReader::from_reader_with(
            path,
            input,
            &ReadOptions {
                format,
                strict,
                ..ReadOptions::default()
            },
        )
    }

    /// Like [`TraceReader::open_with`], from any reader.
    ///
    /// # Errors
    /// See [`TraceReader::open_with`].
    pub fn from_reader_with(
        path: String,
        input: Box<dyn Read + Send>,
        options: &ReadOptions,
    ) -> Result<TraceReader, TraceError> {
        let source = archive::open(path.clone(), input, options.format, &options.options)?;
        Ok(TraceReader::of(path, source, options))
    }

    fn of(path: String, source: Box<dyn RequestSource>, options: &ReadOptions) -> TraceReader {
        let sorted = options.sorted || source.by_completion();
        TraceReader {
            path,
            source,
            strict: options.strict,
            requests: Vec::new(),
            damaged: Vec::new(),
            devices: Devices::default(),
            ledger: RowLedger::default(),
            last_ns: 0,
            sorter: sorted.then(|| Sorter::new(SORT_WINDOW)),
            notes: Vec::new(),
        }
    }

    /// Its format.
    pub fn format(&self) -> &'static Format {
        self.source.format()
    }

    /// The formats of all traces that are read as one.
    pub fn formats(&self) -> Vec<&'static Format> {
        self.source.formats()
    }

    /// Notes on how the trace was read, in whole sentences.
    pub fn notes(&self) -> Vec<String> {
        [self.notes.clone(), self.source.notes()].concat()
    }

    /// The devices so far.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Counts of the rows so far, by outcome.
    pub fn ledger(&self) -> RowLedger {
        let (events, repeated) = (self.source.events(), self.source.repeated());
        RowLedger {
            events,
            repeated,
            cut_files: self.source.cut_files(),
            left_out: self.source.left_out(),
            details_dropped: self.source.details_dropped(),
            ..self.ledger
        }
    }

    /// Whether requests are in time order instead of file order.
    pub fn is_sorted(&self) -> bool {
        self.sorter.is_some()
    }

    /// The next requests, in file order unless sorted; `None` at the end.
    ///
    /// # Errors
    /// Reading fails, or a row is damaged and damaged rows must not be skipped.
    pub fn next_requests(&mut self) -> Result<Option<&[BlockRequest]>, TraceError> {
        self.requests.clear();
        while self.requests.is_empty() {
            self.damaged.clear();
            let more =
                self.source
                    .read(&mut self.devices, &mut self.requests, &mut self.damaged)?;
            self.count()?;
            if let Some(sorter) = &mut self.sorter {
                self.ledger.out_of_order = sorter.sort(&mut self.requests, !more);
            }
            if !more && self.requests.is_empty() {
                if self.strict && self.source.cut_files() > 0 {
                    let path = self.path.clone();
                    return Err(TraceError::Cut { path });
                }
                return Ok(None);
            }
        }
        Ok(Some(&self.requests))
    }

    /// The result of the last [`TraceReader::next_requests`].
    pub fn requests(&self) -> &[BlockRequest] {
        &self.requests
    }

    /// Like [`TraceReader::next_requests`], and also returns the devices.
    ///
    /// # Errors
    /// See [`TraceReader::next_requests`].
    pub fn next_rows(&mut self) -> Result<Option<(&[BlockRequest], &Devices)>, TraceError> {
        let more = self.next_requests()?.is_some();
        Ok(more.then_some((&self.requests[..], &self.devices)))
    }

    fn count(&mut self) -> Result<(), TraceError> {
        if let Some(DamagedRow { row }) = self.damaged.first() {
            if self.strict {
                let (path, row, format) = (self.path.clone(), *row, self.format().name);
                return Err(TraceError::Damaged { path, row, format });
            }
            self.ledger.damaged_first.get_or_insert(*row);
            self.ledger.damaged += self.damaged.len() as u64;
        }
        self.ledger.requests += self.requests.len() as u64;
        let (mut backwards, mut last_ns) = (0, self.last_ns);
        for request in &self.requests {
            backwards += u64::from(request.time_ns < last_ns);
            last_ns = request.time_ns;
        }
        self.ledger.backwards += backwards;
        self.last_ns = last_ns;
        if self.sorter.is_none() {
            self.ledger.out_of_order = self.ledger.backwards;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use super::*;
    use crate::stream::PIECE_BYTES;
    use crate::{FORMATS, format_named};

    fn open(bytes: Vec<u8>, strict: bool) -> Result<TraceReader, TraceError> {
        let options = FormatOptions {
            op: Some(crate::TraceOp::Read),
            ..FormatOptions::default()
        };
        let options = ReadOptions {
            strict,
            options,
            ..ReadOptions::default()
        };
        TraceReader::from_reader_with("x".into(), Box::new(io::Cursor::new(bytes)), &options)
    }

    fn all(mut reader: TraceReader) -> (Vec<BlockRequest>, RowLedger) {
        let mut requests = Vec::new();
        while let Some(more) = reader.next_requests().unwrap() {
            requests.extend_from_slice(more);
        }
        (requests, reader.ledger())
    }

    #[test]
    fn compression_does_not_change_the_requests() {
        for format in FORMATS.iter().filter(|format| !format.needs_columns) {
            let plain = all(open(format.example.to_vec(), true).unwrap());
            assert_eq!(plain.1.requests, plain.0.len() as u64);
            let mut gzip =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            gzip.write_all(format.example).unwrap();
            assert_eq!(
                all(open(gzip.finish().unwrap(), true).unwrap()),
                plain,
                "{}",
                format.name
            );
            let packed = zstd::encode_all(format.example, 1).unwrap();
            assert_eq!(all(open(packed, true).unwrap()), plain, "{}", format.name);
        }
    }

    /// Reads a file longer than a piece, with a damaged row and a time that runs backwards.
    #[test]
    fn long_files_are_read_in_pieces() {
        let mut text = String::new();
        for row in 0..100_000u64 {
            text += &format!(
                "0,{},4096,R,{}.5\n",
                row * 8,
                if row == 70_000 { 1 } else { row }
            );
        }
        text.insert_str(0, "0,0,512,W,0.0\n");
        text += &format!(
            "nonsense\n{}\n0,8,512,w,100000",
            "x".repeat(PIECE_BYTES * 2)
        );
        let (requests, ledger) = all(open(text.clone().into_bytes(), false).unwrap());
        assert_eq!(requests.len(), 100_002);
        let expected = RowLedger {
            requests: 100_002,
            damaged: 2,
            damaged_first: Some(100_002),
            backwards: 1,
            out_of_order: 1,
            repeated: 0,
            cut_files: 0,
            left_out: LeftOutTransfers::default(),
            events: None,
            details_dropped: 0,
        };
        assert_eq!(ledger, expected);
        let mut strict = open(text.into_bytes(), true).unwrap();
        let error = loop {
            match strict.next_requests() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended"),
                Err(error) => break error,
            }
        };
        assert!(
            matches!(
                error,
                TraceError::Damaged {
                    row: 100_002,
                    format: "spc",
                    ..
                }
            ),
            "{error}"
        );
    }

    /// The payload of a blktrace event may be longer than the decode window.
    #[test]
    fn rows_longer_than_a_window_are_read_whole() {
        let short = crate::formats::blktrace::encode(7, false, 1, 7 | 2 << 16, 8, 512);
        let mut long = short[..48].to_vec();
        long[46..].copy_from_slice(&60_000u16.to_le_bytes());
        long.resize(48 + 60_000, 0);
        let bytes = [&long[..], &short, &short, &long, &long, &short]
            .concat()
            .repeat(3);
        let (requests, ledger) = all(open(bytes.clone(), true).unwrap());
        assert_eq!(
            (requests.len(), ledger.requests, ledger.damaged),
            (18, 18, 0)
        );
        let cut = bytes[..bytes.len() - short.len() - 1].to_vec();
        let (requests, ledger) = all(open(cut, false).unwrap());
        assert_eq!(
            (requests.len(), ledger.damaged, ledger.damaged_first),
            (16, 1, Some(17))
        );
    }

    #[test]
    fn packet_captures_are_named() {
        let pcap = b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00\0\0\0\0\0\0\0\0\0\0\x04\0\x01\0\0\0";
        let pcapng = b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0";
        let snoop = b"snoop\0\0\0\0\0\0\x02\0\0\0\x04";
        for head in [&pcap[..], pcapng, snoop] {
            let error = open([head, &[7; 4096]].concat(), false).err();
            assert!(
                matches!(error, Some(TraceError::PacketCapture { .. })),
                "{head:?}"
            );
        }
        let error = open(b"\xd4\xc3\xb2\xa1\x07".repeat(99), false).err();
        assert!(matches!(error, Some(TraceError::UnknownFormat { .. })));
    }

    #[test]
    fn files_that_are_not_traces_are_refused() {
        for bytes in [&b""[..], b"hello\n", &[0; 4096]] {
            assert!(matches!(
                open(bytes.to_vec(), false),
                Err(TraceError::UnknownFormat { .. })
            ));
        }
        let oracle = FORMATS.iter().find(|format| format.needs_op).unwrap();
        let input = Box::new(io::Cursor::new(oracle.example));
        let error = TraceReader::from_reader("x".into(), input, None, false)
            .err()
            .unwrap();
        assert!(matches!(error, TraceError::NoOperation { .. }), "{error}");
        let csv = format_named("csv");
        let open_csv = |columns: Option<&str>| {
            let columns = columns.map(|columns| crate::ColumnMap::parse(columns).unwrap());
            let options = FormatOptions {
                columns,
                ..FormatOptions::default()
            };
            let input = Box::new(io::Cursor::new(csv.unwrap().example));
            TraceReader::from_reader_with(
                "x".into(),
                input,
                &ReadOptions {
                    format: csv,
                    options,
                    ..ReadOptions::default()
                },
            )
        };
        assert!(matches!(
            open_csv(None).err(),
            Some(TraceError::NoColumns { .. })
        ));
        assert!(matches!(
            open_csv(Some("obj-id-col=5")).err(),
            Some(TraceError::NoOperation { .. })
        ));
        assert_eq!(
            all(open_csv(Some("obj-id-col=5,op-col=3")).unwrap())
                .1
                .requests,
            2
        );
        match open(flate2_cut(), false) {
            Err(error) => assert!(matches!(error, TraceError::Io { .. })),
            Ok(reader) => assert_eq!(all(reader).1.cut_files, 1),
        }
        let ambiguous = TraceError::Ambiguous {
            path: "x".into(),
            candidates: vec!["spc", "msr"],
        };
        assert_eq!(ambiguous.to_string(), "x may be spc or msr");
    }

    /// Everything before the cut is read, and the cut is counted; with `strict` it is an error.
    #[test]
    fn a_truncated_compressed_file_is_read_up_to_the_cut() {
        let rows = format_named("spc").unwrap().example.repeat(20_000);
        let whole = all(open(rows.clone(), true).unwrap()).1.requests;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&rows).unwrap();
        let packed = gzip.finish().unwrap();
        let cut = packed[..packed.len() / 2].to_vec();
        let reader = open(cut.clone(), false).unwrap();
        assert!(reader.notes().is_empty());
        let (requests, ledger) = all(reader);
        assert!(requests.len() as u64 > whole / 3 && (requests.len() as u64) < whole);
        assert_eq!(ledger.cut_files, 1);
        let mut strict = open(cut, true).unwrap();
        let error = loop {
            match strict.next_requests() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("a cut file ends without an error"),
                Err(error) => break error,
            }
        };
        // The last row may be truncated, too.
        assert!(matches!(
            error,
            TraceError::Cut { .. } | TraceError::Damaged { .. }
        ));
    }

    /// The traces of an archive are read one after another, and other files are named.
    #[test]
    fn archives_of_traces_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let rows = format_named("alibaba").unwrap().example;
        std::fs::write(folder.path().join("a.csv"), rows.repeat(10)).unwrap();
        std::fs::write(folder.path().join("b.csv"), rows.repeat(20)).unwrap();
        std::fs::write(folder.path().join("README"), "see the paper\n").unwrap();
        let out = std::process::Command::new("sh")
            .args([
                "-c",
                "gzip -k b.csv && tar czf x a.csv README b.csv.gz && tar cf none README",
            ])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
        let mut reader = TraceReader::open(&folder.path().join("x"), None, true).unwrap();
        let mut requests = 0;
        while let Some(more) = reader.next_requests().unwrap() {
            requests += more.len();
        }
        assert_eq!((requests, reader.devices().names().len()), (60, 2));
        assert_eq!(
            reader.notes(),
            [
                "2 files of the tar archive, concatenated",
                "not traces, skipped: README"
            ]
        );
        assert!(matches!(
            TraceReader::open(&folder.path().join("none"), None, true).err(),
            Some(TraceError::NoTraceInArchive { .. })
        ));
    }

    fn flate2_cut() -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(FORMATS[0].example).unwrap();
        let mut bytes = gzip.finish().unwrap();
        bytes.truncate(bytes.len() / 2);
        bytes
    }
}
