//! Selects the rows of a trace to replay: those of the requested devices and time range that affect a device. Used by
//! the survey before the start and by the reader during the run, so that both see the same requests.
//!
//! The rule: every omitted or repaired row is counted, by reason.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use brunt_block::Op;
use brunt_trace::{BlockRequest, Devices, TraceOp};

use super::routes::Routes;
use super::settings::ReplaySettings;

/// Higher addresses indicate damage: no device is that large.
const ADDRESS_MAX: u64 = 1 << 62;

/// A request of the trace to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Selected {
    /// Time since the start of the replayed part, in nanoseconds of the trace; never less than that of the previous
    /// request.
    pub(super) time_ns: u64,
    /// Response time, if known from the trace.
    pub(super) response_ns: Option<u64>,
    /// Number of the request's device in the trace.
    pub(super) device: u32,
    /// Number of the request's target.
    pub(super) target: u16,
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Whether the request has to be on stable storage before it completes.
    pub(super) fua: bool,
    /// Identifies a write's content, if known from the trace.
    pub(super) content: Option<NonZeroU64>,
}

/// The decision about a row.
pub(super) enum Choice {
    /// Replay it.
    Take(Selected),
    /// Omit it.
    Leave,
    /// Omit this row and all later ones.
    Over,
}

/// Selects rows, in order.
pub(super) struct Selection<'a> {
    settings: &'a ReplaySettings,
    routes: &'a Routes,
    /// The target of each device, indexed by device number.
    known: Vec<Option<u16>>,
    /// Time of the first row of the trace.
    first_ns: Option<u64>,
    last_ns: u64,
    pub(super) left_out: BTreeMap<&'static str, u64>,
    pub(super) repaired: BTreeMap<&'static str, u64>,
}

impl<'a> Selection<'a> {
    pub(super) fn new(settings: &'a ReplaySettings, routes: &'a Routes) -> Selection<'a> {
        Selection {
            settings,
            routes,
            known: Vec::new(),
            first_ns: None,
            last_ns: 0,
            left_out: BTreeMap::new(),
            repaired: BTreeMap::new(),
        }
    }

    /// Decides about the next row.
    pub(super) fn choose(&mut self, row: &BlockRequest, devices: &Devices) -> Choice {
        let first = *self.first_ns.get_or_insert(row.time_ns);
        let backwards = row.time_ns < first.saturating_add(self.last_ns);
        let time_ns = row.time_ns.saturating_sub(first).max(self.last_ns);
        self.last_ns = time_ns;
        let from = self.settings.from.as_nanos() as u64;
        let Some(time_ns) = time_ns.checked_sub(from) else {
            return self.leave("before `from`");
        };
        if self
            .settings
            .length
            .is_some_and(|length| u128::from(time_ns) >= length.as_nanos())
        {
            return Choice::Over;
        }
        let Some(target) = self.target(row.device, devices) else {
            return self.leave("of a device that is not replayed here");
        };
        let op = match row.op {
            TraceOp::Read => Op::Read,
            TraceOp::Write => Op::Write,
            TraceOp::Flush => Op::Flush,
            TraceOp::Unmap => Op::Unmap,
            TraceOp::Other => return self.leave("neither read, write, flush nor unmap"),
        };
        let (offset, len) = match op {
            Op::Flush => (0, 0),
            _ if row.len_bytes == 0 => return self.leave("without blocks"),
            _ if row.offset_bytes > ADDRESS_MAX => return self.leave("at an address over 2^62"),
            _ => (row.offset_bytes, u64::from(row.len_bytes)),
        };
        if backwards {
            *self
                .repaired
                .entry("times that ran backwards, set to the latest before")
                .or_default() += 1;
        }
        if row.fua && op == Op::Read {
            *self
                .repaired
                .entry("reads with FUA, sent without")
                .or_default() += 1;
        }
        let fua = row.fua && matches!(op, Op::Write | Op::Unmap);
        let content = row
            .content
            .filter(|_| op == Op::Write)
            .map(|content| content.0);
        let (response_ns, device) = (row.response_ns, row.device);
        Choice::Take(Selected {
            time_ns,
            response_ns,
            device,
            target,
            op,
            offset,
            len,
            fua,
            content,
        })
    }

    fn leave(&mut self, why: &'static str) -> Choice {
        *self.left_out.entry(why).or_default() += 1;
        Choice::Leave
    }

    fn target(&mut self, device: u32, devices: &Devices) -> Option<u16> {
        while self.known.len() < devices.names().len() {
            let name = &devices.names()[self.known.len()];
            self.known.push(self.routes.of(name));
        }
        self.known[device as usize]
    }
}
