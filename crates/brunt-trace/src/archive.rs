//! Reads traces in an archive, as publishers ship them: the files of a tar or zip, one after
//! another, form one trace. Used by [`crate::reader`].
//!
//! The rule: report by name which files of an archive were read and which were ignored.

use std::io::Read;

use brunt_core::units::counted;
use brunt_unpack::{Archive, Contents, unpacked};

use crate::error::TraceError;
use crate::format::{DamagedRow, EventCounts, Format, FormatOptions};
use crate::record::{BlockRequest, Devices};
use crate::stream::{FileStream, RequestSource};

/// Maximum number of ignored files that are reported by name.
const NAMED_MAX: usize = 8;

/// Opens a file, or all files of an archive, as a stream of requests.
pub(crate) fn open(
    path: String,
    input: Box<dyn Read + Send>,
    format: Option<&'static Format>,
    options: &FormatOptions,
) -> Result<Box<dyn RequestSource>, TraceError> {
    let contents = brunt_unpack::contents(input).map_err(|source| TraceError::Io {
        path: path.clone(),
        source,
    })?;
    Ok(match contents {
        Contents::File(file) => Box::new(FileStream::open(path, file, format, options)?),
        Contents::Archive(archive) => {
            Box::new(ArchivedTraces::open(path, archive, format, *options)?)
        }
    })
}

/// The traces of an archive.
struct ArchivedTraces {
    path: String,
    archive: Archive,
    stated: Option<&'static Format>,
    options: FormatOptions,
    current: FileStream,
    /// Formats of all files so far, without duplicates.
    formats: Vec<&'static Format>,
    files: usize,
    events: Option<EventCounts>,
    cut_files: u64,
    notes: Vec<String>,
    passed_over: Vec<String>,
    passed_over_more: usize,
}

impl ArchivedTraces {
    fn open(
        path: String,
        mut archive: Archive,
        stated: Option<&'static Format>,
        options: FormatOptions,
    ) -> Result<ArchivedTraces, TraceError> {
        let (mut passed_over, mut more) = (Vec::new(), 0);
        let first = next(&path, &mut archive, stated, &options, |name| {
            pass_over(name, &mut passed_over, &mut more);
        })?;
        let Some(current) = first else {
            return Err(TraceError::NoTraceInArchive {
                path,
                archive: archive.kind(),
                files: list(&passed_over, more),
            });
        };
        Ok(ArchivedTraces {
            path,
            archive,
            stated,
            options,
            formats: vec![current.format()],
            current,
            files: 1,
            events: None,
            cut_files: 0,
            notes: Vec::new(),
            passed_over,
            passed_over_more: more,
        })
    }

    /// Adds the current file's counts to the totals.
    fn take_counts(&mut self) {
        if let Some(counts) = self.current.events() {
            self.events.get_or_insert_default().add(counts);
        }
        self.cut_files += self.current.cut_files();
        self.notes.extend(self.current.notes());
    }
}

fn pass_over(name: String, passed_over: &mut Vec<String>, more: &mut usize) {
    if passed_over.len() < NAMED_MAX {
        passed_over.push(name);
    } else {
        *more += 1;
    }
}

fn list(names: &[String], more: usize) -> String {
    match (names.is_empty(), more) {
        (true, _) => "no files".into(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {}", names.join(", "), counted(more, "other")),
    }
}

/// The archive's next file that is a trace; the names of other files are passed to `pass_over`.
fn next(
    path: &str,
    archive: &mut Archive,
    stated: Option<&'static Format>,
    options: &FormatOptions,
    mut pass_over: impl FnMut(String),
) -> Result<Option<FileStream>, TraceError> {
    let io = |path: String| move |source| TraceError::Io { path, source };
    while let Some(member) = archive.next_member().map_err(io(path.to_string()))? {
        let name = format!("{path}: {}", member.name);
        let bytes = unpacked(member.bytes).map_err(io(name.clone()))?;
        match FileStream::open(name, bytes, stated, options) {
            Ok(stream) => return Ok(Some(stream)),
            Err(TraceError::UnknownFormat { .. } | TraceError::PacketCapture { .. }) => {
                pass_over(member.name)
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

impl RequestSource for ArchivedTraces {
    fn read(
        &mut self,
        devices: &mut Devices,
        requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> Result<bool, TraceError> {
        if self.current.read(devices, requests, damaged)? {
            return Ok(true);
        }
        let ArchivedTraces {
            path,
            archive,
            stated,
            options,
            passed_over,
            passed_over_more,
            ..
        } = self;
        let more = next(path, archive, *stated, options, |name| {
            pass_over(name, passed_over, passed_over_more);
        })?;
        let Some(stream) = more else {
            return Ok(false);
        };
        self.take_counts();
        self.files += 1;
        if !self
            .formats
            .iter()
            .any(|known| known.name == stream.format().name)
        {
            self.formats.push(stream.format());
        }
        self.current = stream;
        Ok(true)
    }

    fn format(&self) -> &'static Format {
        self.formats[0]
    }

    fn formats(&self) -> Vec<&'static Format> {
        self.formats.clone()
    }

    fn events(&self) -> Option<EventCounts> {
        match (self.events, self.current.events()) {
            (Some(mut all), Some(counts)) => {
                all.add(counts);
                Some(all)
            }
            (all, counts) => all.or(counts),
        }
    }

    fn cut_files(&self) -> u64 {
        self.cut_files + self.current.cut_files()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!(
            "{} of the {} archive, concatenated",
            counted(self.files, "file"),
            self.archive.kind()
        )];
        if !self.passed_over.is_empty() {
            let names = list(&self.passed_over, self.passed_over_more);
            notes.push(format!("not traces, skipped: {names}"));
        }
        notes.extend(self.notes.iter().cloned());
        notes.extend(self.current.notes());
        notes
    }
}
