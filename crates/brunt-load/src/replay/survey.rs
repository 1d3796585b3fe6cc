//! The pass over a trace before the start: how many requests there are, of which kinds, how long and where, and whether
//! they fit a target. Made once for all runs on a trace.
//!
//! The rule: memory does not grow with the trace, but for the extents of `map = "pack"`, which are bounded.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use brunt_block::{DeviceInfo, Op};
use brunt_core::Size;
use brunt_result::OpKind;
use brunt_trace::TraceReader;

use super::digest::Digest;
use super::place::{Extents, bases};
use super::select::{Choice, Selected, Selection};
use super::settings::{AddressMap, ReplaySettings};
use crate::load::WorkloadError;

/// What is known of a trace when it was read once.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Of its format.
    pub(super) format: &'static str,
    /// Requests that are replayed, each time through.
    pub(super) requests: u64,
    pub(super) writes: u64,
    pub(super) flushes: u64,
    pub(super) unmaps: u64,
    /// Requests with a response time.
    pub(super) responses: u64,
    /// From the begin of the replayed part to the last request.
    pub(super) span_ns: u64,
    /// The longest request.
    pub(super) len_max: u64,
    /// Where each device of the trace ends; 0 for those that are not replayed.
    pub(super) ends: Vec<u64>,
    /// What is touched, for packing.
    pub(super) extents: Extents,
    /// Of the requests as they are in the trace.
    pub(super) digest: Digest,
    /// Some rows were repaired.
    pub(super) repaired: bool,
    /// Rows that are left out or repaired, by reason.
    pub(super) rows: BTreeMap<String, u64>,
}

/// A survey that is made when it is first asked for, and shared by the points of a sweep.
pub(super) type SurveyCell = Arc<OnceLock<Result<Arc<Survey>, WorkloadError>>>;

/// Opens the trace as the settings say. A mistake is at the key `trace` or `format`.
pub(super) fn open(settings: &ReplaySettings) -> Result<TraceReader, WorkloadError> {
    TraceReader::open(Path::new(&settings.trace), settings.stated_format(), false).map_err(|error| {
        let ambiguous = matches!(error, brunt_trace::TraceError::Ambiguous { .. });
        let (key, advice) = if ambiguous {
            ("format", "; write which it is, such as format = \"spc\"")
        } else {
            ("trace", "")
        };
        WorkloadError { key, what: format!("{error}{advice}") }
    })
}

impl Survey {
    /// Reads the trace.
    ///
    /// # Errors
    /// It cannot be read, nothing of it is replayed, or it cannot be packed.
    pub(super) fn make(
        settings: &ReplaySettings,
        wanted: Option<&[String]>,
    ) -> Result<Survey, WorkloadError> {
        let wrong = |key: &'static str, what: String| WorkloadError { key, what };
        let mut reader = open(settings)?;
        let mut survey = Survey { format: reader.format().name, ..Survey::default() };
        let mut selection = Selection::new(settings, wanted);
        'reading: loop {
            let more = reader.next_rows().map_err(|error| wrong("trace", error.to_string()))?;
            let Some((rows, devices)) = more else { break };
            for row in rows {
                match selection.choose(row, devices) {
                    Choice::Take(request) => survey.add(settings.map, &request)?,
                    Choice::Leave => {}
                    Choice::Over => break 'reading,
                }
            }
        }
        survey.extents.settle();
        let known = reader.devices().names();
        if let Some(unknown) = wanted.unwrap_or_default().iter().find(|name| !known.contains(name)) {
            let devices = known.iter().take(16).map(String::as_str).collect::<Vec<&str>>().join(", ");
            return Err(wrong(
                "devices",
                format!("the trace has no device {unknown}; those it has begin with {devices}"),
            ));
        }
        let counted = selection.left_out.iter().map(|(why, count)| (format!("left out: {why}"), *count));
        survey.rows.extend(counted);
        let counted = selection.repaired.iter().map(|(why, count)| (format!("repaired: {why}"), *count));
        survey.rows.extend(counted);
        survey.repaired = !selection.repaired.is_empty();
        if reader.ledger().damaged > 0 {
            survey.rows.insert("left out: not readable".into(), reader.ledger().damaged);
        }
        if survey.requests == 0 {
            let path = settings.trace.display();
            let (key, what) = match (settings.from.is_zero(), settings.length) {
                (true, None) => ("trace", format!("nothing in {path} can be replayed")),
                _ => ("from", format!("nothing of {path} is in the time that `from` and `for` name")),
            };
            return Err(wrong(key, what));
        }
        Ok(survey)
    }

    fn add(&mut self, map: AddressMap, request: &Selected) -> Result<(), WorkloadError> {
        let Selected { time_ns, device, op, offset, len, response_ns } = *request;
        self.digest.add(self.requests, op, offset, len);
        self.requests += 1;
        match op {
            Op::Read => {}
            Op::Write => self.writes += 1,
            Op::Flush => self.flushes += 1,
            Op::Unmap | Op::WriteZeroes => self.unmaps += 1,
        }
        self.responses += u64::from(response_ns.is_some());
        self.span_ns = time_ns;
        if matches!(op, Op::Read | Op::Write) {
            self.len_max = self.len_max.max(len);
        }
        let device = device as usize;
        if self.ends.len() <= device {
            self.ends.resize(device + 1, 0);
        }
        self.ends[device] = self.ends[device].max(offset + len);
        if map == AddressMap::Pack && len > 0 && !self.extents.touch(device as u32, offset, len) {
            let what = "the trace touches too many places to be packed; write \"wrap\" or \"scale\"";
            return Err(WorkloadError { key: "map", what: what.into() });
        }
        Ok(())
    }

    /// The kinds of its requests, in the order of their figures.
    pub(super) fn kinds(&self) -> Vec<OpKind> {
        let more = [(OpKind::Unmap, self.unmaps > 0), (OpKind::Flush, self.flushes > 0)];
        let more = more.into_iter().filter(|(_, made)| *made).map(|(kind, _)| kind);
        [OpKind::Read, OpKind::Write].into_iter().chain(more).collect()
    }

    /// Whether it changes what is on a device.
    pub(super) fn changes_data(&self) -> bool {
        self.writes + self.unmaps > 0
    }

    /// Whether all of it can go to this device.
    ///
    /// # Errors
    /// The key that has to be another, and what would be right.
    pub(super) fn fits(&self, map: AddressMap, info: &DeviceInfo) -> Result<(), WorkloadError> {
        let (name, size) = (&info.name, Size(info.size_bytes));
        let wrong = |key: &'static str, what: String| Err(WorkloadError { key, what });
        let block = u64::from(info.block_bytes);
        let needed = match map {
            AddressMap::AsIs => bases(&self.ends).1.next_multiple_of(block),
            AddressMap::Pack => self.extents.bytes(),
            AddressMap::Wrap | AddressMap::Scale => self.len_max.next_multiple_of(block) + block,
        };
        if needed > info.size_bytes {
            let end = Size(needed);
            return match map {
                AddressMap::AsIs => wrong(
                    "map",
                    format!(
                        "the trace goes up to {end}, beyond {name} of {size}; write map = \"pack\", \"wrap\" or \"scale\", or use a larger target"
                    ),
                ),
                AddressMap::Pack => wrong(
                    "map",
                    format!(
                        "packed, the trace takes {end}, more than {name} of {size}; write map = \"wrap\" or \"scale\", or use a larger target"
                    ),
                ),
                _ => wrong("trace", format!("its longest request does not fit {name} of {size}")),
            };
        }
        if info.read_only && self.changes_data() {
            return wrong("trace", format!("{name} is read-only, and the trace writes"));
        }
        if self.unmaps > 0 && !info.unmap {
            return wrong("trace", format!("{name} cannot unmap blocks, and the trace does"));
        }
        Ok(())
    }
}
