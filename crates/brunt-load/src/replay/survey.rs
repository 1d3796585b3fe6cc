//! Reads a trace before the start, to find out the number of requests, their kinds, length and addresses, and whether
//! they fit a target. Done once for all runs with a trace.
//!
//! The rule: memory doesn't grow with the trace, except for the extents of `map = "pack"`, which are bounded.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use brunt_block::{DeviceInfo, Op};
use brunt_core::Size;
use brunt_core::units::{counted, format_size};
use brunt_result::OpKind;
use brunt_trace::{Devices, ReadingKey, RowLedger, TraceError, TraceOpenError, TraceReader};

use super::digest::Digest;
use super::place::{DeviceEnd, Extents, Layout};
use super::routes::Routes;
use super::select::{Choice, Selected, Selection};
use super::settings::{AddressMap, ReplaySettings, reading_key, wrong_reading};
use crate::load::WorkloadError;

/// The results of a pass over a trace.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Name of the trace's format.
    pub(super) format: &'static str,
    /// Number of requests replayed in each round.
    pub(super) requests: u64,
    pub(super) writes: u64,
    pub(super) flushes: u64,
    pub(super) unmaps: u64,
    /// Whether data is changed on each target, indexed by target number.
    changes_targets: Vec<bool>,
    /// Number of requests with a response time.
    pub(super) responses: u64,
    /// Time from the start of the replayed part to the last request.
    pub(super) span_ns: u64,
    /// Length of the longest request.
    pub(super) len_max: u64,
    /// The end of each device of the trace, and its target.
    pub(super) devices: Vec<DeviceEnd>,
    /// For each device of the trace, its index in `listed`; [`NOT_MET`] for devices without requests.
    pub(super) listed_index: Vec<u8>,
    /// Devices that have their own figures.
    pub(super) listed: Vec<ListedDevice>,
    /// Number of writes and unmaps that must be on stable storage before they complete.
    pub(super) forced: u64,
    /// Number of writes whose content is known from the trace.
    pub(super) contents: u64,
    /// The extents touched, for packing.
    pub(super) extents: Extents,
    /// Digest of the requests in their original form from the trace.
    pub(super) digest: Digest,
    /// Whether any rows were repaired.
    pub(super) repaired: bool,
    /// Number of omitted or repaired rows, by reason.
    pub(super) rows: BTreeMap<String, u64>,
}

/// The figures of a device of the trace; the last of [`LISTED_MAX`] combines all remaining devices.
#[derive(Debug)]
pub(super) struct ListedDevice {
    /// The device's name; `None` for the remaining devices.
    pub(super) name: Option<String>,
    pub(super) target: u16,
    /// Number of requests in each round.
    pub(super) requests: u64,
    pub(super) digest: Digest,
}

/// A WRITE SAME sends one block, which a replay can't do.
const REPEATED: &str =
    "repaired: one block written repeatedly (WRITE SAME, zeroes), sent as a write of all blocks";

/// Maximum number of devices that have their own figures.
pub(super) const LISTED_MAX: usize = 16;

/// The index of a device without requests.
pub(super) const NOT_MET: u8 = u8::MAX;

/// A survey that is made on first use and shared by the points of a sweep.
pub(super) type SurveyCell = Arc<OnceLock<Result<Arc<Survey>, WorkloadError>>>;

/// Opens the trace with these settings. Errors name the key `trace`, `format` or one of `reading`.
pub(super) fn open(settings: &ReplaySettings) -> Result<TraceReader, WorkloadError> {
    let opened = settings.reading.open(
        std::slice::from_ref(&settings.trace),
        settings.stated_format(),
    );
    opened.map_err(|error| match error {
        TraceOpenError::Reading(error) => wrong_reading(error),
        TraceOpenError::Trace(error) => unreadable(error),
    })
}

/// Returns why a trace can't be read, with the key that has to change.
/// Checks that the trace has every device that the workload names.
fn check_devices(routes: &Routes, known: &[String]) -> Result<(), WorkloadError> {
    let Some(unknown) = routes.named().find(|name| !known.contains(name)) else {
        return Ok(());
    };
    let first: Vec<&str> = known.iter().take(16).map(String::as_str).collect();
    Err(WorkloadError {
        key: "devices",
        what: format!(
            "the trace has no device {unknown}; its first devices are {}",
            first.join(", ")
        ),
    })
}

fn unreadable(error: TraceError) -> WorkloadError {
    let (key, advice) = match &error {
        TraceError::Ambiguous { .. } => ("format", "; name the right one"),
        TraceError::UnknownFormat { .. } => ("format", "; name it if it is one of them"),
        TraceError::PacketCapture { .. } => (
            "trace",
            "; 'brunt analyze' reports on its NFS and iSCSI traffic",
        ),
        TraceError::Doubtful { .. } => ("format", "; name it if it is the right one"),
        TraceError::NoOperation { .. } => (reading_key(ReadingKey::Op), "; specify read or write"),
        TraceError::NoColumns { .. } => (
            reading_key(ReadingKey::Columns),
            "; specify it, such as \"time-col=2, obj-id-col=5, op-col=3\"",
        ),
        TraceError::Damaged { .. } => ("reading.strict", "; omit it to skip and count such rows"),
        _ => ("trace", ""),
    };
    WorkloadError {
        key,
        what: format!("{error}{advice}"),
    }
}

impl Survey {
    /// Surveys the trace.
    ///
    /// # Errors
    /// The trace can't be read, contains nothing to replay, or can't be packed.
    pub(super) fn make(
        settings: &ReplaySettings,
        routes: &Routes,
    ) -> Result<Survey, WorkloadError> {
        let mut reader = open(settings)?;
        let mut survey = Survey {
            format: reader.format().name,
            ..Survey::default()
        };
        let mut selection = Selection::new(settings, routes);
        'reading: loop {
            let more = reader.next_rows().map_err(unreadable)?;
            let Some((rows, devices)) = more else { break };
            for row in rows {
                match selection.choose(row, devices) {
                    Choice::Take(request) => survey.add(settings.map, &request, devices)?,
                    Choice::Leave => {}
                    Choice::Over => break 'reading,
                }
            }
        }
        survey.extents.settle(&survey.devices, routes.count());
        check_devices(routes, reader.devices().names())?;
        survey.count_rows(&selection, reader.ledger());
        survey.check_not_empty(settings)?;
        Ok(survey)
    }

    /// Adds the rows that were left out or repaired, by reason.
    fn count_rows(&mut self, selection: &Selection<'_>, ledger: RowLedger) {
        let counted = selection
            .left_out
            .iter()
            .map(|(why, count)| (format!("left out: {why}"), *count));
        self.rows.extend(counted);
        let counted = selection
            .repaired
            .iter()
            .map(|(why, count)| (format!("repaired: {why}"), *count));
        self.rows.extend(counted);
        self.repaired = !selection.repaired.is_empty();
        if ledger.repeated > 0 {
            self.rows.insert(REPEATED.into(), ledger.repeated);
        }
        if ledger.cut_files > 0 {
            self.rows.insert(
                "left out: the end of a file that cannot be unpacked".into(),
                ledger.cut_files,
            );
        }
        for (why, count) in ledger.left_out.reasons() {
            self.rows.insert(format!("left out: {why}"), count);
        }
        if ledger.damaged > 0 {
            self.rows
                .insert("left out: not readable".into(), ledger.damaged);
        }
        if ledger.details_dropped > 0 {
            self.rows.insert(
                "repaired: FUA or extents not known".into(),
                ledger.details_dropped,
            );
        }
    }

    /// Rejects a trace, or a part of one, that has no requests.
    fn check_not_empty(&self, settings: &ReplaySettings) -> Result<(), WorkloadError> {
        if self.requests == 0 {
            let path = settings.trace.display();
            let (key, what) = match (settings.from.is_zero(), settings.length) {
                (true, None) => ("trace", self.nothing(path, settings.format.is_some())),
                _ => (
                    "from",
                    format!("nothing in {path} is within the time set by `from` and `for`"),
                ),
            };
            return Err(WorkloadError { key, what });
        }
        Ok(())
    }

    /// Explains why there are no requests to replay.
    fn nothing(&self, path: std::path::Display<'_>, stated: bool) -> String {
        let format = self.format;
        let row =
            |(why, rows): (&String, &u64)| format!("{} {why}", counted(*rows as usize, "row"));
        let rows: Vec<String> = self.rows.iter().map(row).collect();
        let advice = if stated {
            "; check that this is the trace's format"
        } else {
            ""
        };
        match rows.is_empty() {
            true => format!("{path} has no requests"),
            false => {
                format!(
                    "nothing in {path}, read as {format}, can be replayed: {}{advice}",
                    rows.join(", ")
                )
            }
        }
    }

    fn add(
        &mut self,
        map: AddressMap,
        request: &Selected,
        known: &Devices,
    ) -> Result<(), WorkloadError> {
        let Selected {
            time_ns,
            device,
            target,
            op,
            offset,
            len,
            response_ns,
            fua,
            content,
        } = *request;
        self.digest.add(self.requests, op, target, offset, len);
        self.meet(device as usize, target, known);
        let told = &mut self.listed[usize::from(self.listed_index[device as usize])];
        told.digest.add(self.requests, op, target, offset, len);
        told.requests += 1;
        self.requests += 1;
        (self.forced, self.contents) = (
            self.forced + u64::from(fua),
            self.contents + u64::from(content.is_some()),
        );
        match op {
            Op::Read => {}
            Op::Write => self.writes += 1,
            Op::Flush => self.flushes += 1,
            Op::Unmap | Op::WriteZeroes => self.unmaps += 1,
        }
        if !matches!(op, Op::Read | Op::Flush) {
            self.changes_targets[usize::from(target)] = true;
        }
        self.responses += u64::from(response_ns.is_some());
        self.span_ns = time_ns;
        if matches!(op, Op::Read | Op::Write) {
            self.len_max = self.len_max.max(len);
        }
        let end = &mut self.devices[device as usize].end;
        *end = (*end).max(offset + len);
        if map == AddressMap::Pack && len > 0 && !self.extents.touch(device, offset, len) {
            let what = "the trace touches too many extents to be packed; choose wrap or scale";
            return Err(WorkloadError {
                key: "map",
                what: what.into(),
            });
        }
        Ok(())
    }

    /// Registers a device that has a request, which may be its first.
    fn meet(&mut self, device: usize, target: u16, known: &Devices) {
        if self.devices.len() <= device {
            self.devices.resize(device + 1, DeviceEnd::default());
            self.listed_index.resize(device + 1, NOT_MET);
        }
        if self.listed_index[device] != NOT_MET {
            return;
        }
        self.devices[device].target = target;
        if self.changes_targets.len() <= usize::from(target) {
            self.changes_targets.resize(usize::from(target) + 1, false);
        }
        if self.listed.len() < LISTED_MAX {
            let name = (self.listed.len() + 1 < LISTED_MAX).then(|| known.names()[device].clone());
            self.listed.push(ListedDevice {
                name,
                target,
                requests: 0,
                digest: Digest::default(),
            });
        }
        self.listed_index[device] = self.listed.len() as u8 - 1;
    }

    /// Returns the kinds of the trace's requests, in the order of their figures.
    pub(super) fn kinds(&self) -> Vec<OpKind> {
        let more = [
            (OpKind::Unmap, self.unmaps > 0),
            (OpKind::Flush, self.flushes > 0),
        ];
        let more = more
            .into_iter()
            .filter(|(_, made)| *made)
            .map(|(kind, _)| kind);
        [OpKind::Read, OpKind::Write]
            .into_iter()
            .chain(more)
            .collect()
    }

    /// Returns true if the replay changes data on a device.
    pub(super) fn changes_data(&self) -> bool {
        self.writes + self.unmaps > 0
    }

    /// Returns true if the replay changes data on the target with this number.
    pub(super) fn changes_target(&self, number: usize) -> bool {
        self.changes_targets.get(number).copied().unwrap_or(false)
    }

    /// Checks that the whole trace fits on this device.
    ///
    /// # Errors
    /// The error names the key that has to change, and what would be correct.
    pub(super) fn fits(
        &self,
        settings: &ReplaySettings,
        info: &DeviceInfo,
        routes: &Routes,
        parts: &[Range<u64>],
    ) -> Result<(), WorkloadError> {
        for (number, part) in parts.iter().enumerate() {
            let name = routes.target(number as u16).unwrap_or(&info.name);
            self.fits_target(
                settings.map,
                info,
                routes,
                (number, name, part.end - part.start),
            )?;
        }
        self.can(info, self.changes_data())
    }

    /// Checks that a device supports the trace's operations. `changes`: whether the device's data is changed.
    ///
    /// # Errors
    /// The device doesn't support an operation of the trace.
    pub(super) fn can(&self, info: &DeviceInfo, changes: bool) -> Result<(), WorkloadError> {
        let wrong = |key: &'static str, what: String| Err(WorkloadError { key, what });
        let name = &info.name;
        if info.read_only && changes {
            return wrong(
                "trace",
                format!("{name} is read-only, and the trace writes"),
            );
        }
        if self.unmaps > 0 && !info.unmap {
            return wrong(
                "trace",
                format!("{name} cannot unmap blocks, but the trace does"),
            );
        }
        Ok(())
    }

    /// Checks that the requests for a target, given by number, name and size, fit on it.
    ///
    /// # Errors
    /// The error names the key that has to change, and what would be correct.
    pub(super) fn fits_target(
        &self,
        map: AddressMap,
        info: &DeviceInfo,
        routes: &Routes,
        (number, name, size_bytes): (usize, &str, u64),
    ) -> Result<(), WorkloadError> {
        let wrong = |key: &'static str, what: String| Err(WorkloadError { key, what });
        let (block, size) = (u64::from(info.block_bytes), Size(size_bytes));
        let needed = match map {
            AddressMap::AsIs => {
                Layout::of(&self.devices, routes.count()).spans[number].next_multiple_of(block)
            }
            AddressMap::Pack => self.extents.bytes(number),
            AddressMap::Wrap | AddressMap::Scale => self.len_max.next_multiple_of(block) + block,
        };
        if needed > size_bytes {
            let end = format_size(needed);
            return match map {
                AddressMap::AsIs => wrong(
                    "map",
                    format!(
                        "the trace goes up to {end}, beyond {name} of {size}; choose pack, wrap or scale, or use a larger target"
                    ),
                ),
                AddressMap::Pack => wrong(
                    "map",
                    format!(
                        "packed, the trace takes {end}, more than {name} of {size}; choose wrap or scale, or use a larger target"
                    ),
                ),
                _ => wrong(
                    "trace",
                    format!("the trace's longest request does not fit {name} of {size}"),
                ),
            };
        }
        Ok(())
    }
}
