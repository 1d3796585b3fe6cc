//! Arms and disarms a layer's faults while requests run, and counts their effects. Shared by the layer's devices (one
//! per thread) and the fault schedule.
//!
//! The rule: a device reads one number per batch and takes the lock only if the number changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use brunt_core::Nanos;

use super::blocks::BlockSet;
use super::kind::FaultEffect;
use super::spec::{DeviceFault, touched};
use crate::control::{
    Arguments, CommandEntry, CommandError, Controllable, Fields, PartFigure, PartFigures, Value,
};
use crate::{DeviceError, DeviceInfo, Op, RefusalDetail, RefusalKind, Request};

/// Maximum number of armed faults per layer.
pub const ARMED_MAX: usize = 64;

/// A fault that is or was armed.
#[derive(Debug)]
pub struct Armed {
    /// The fault's number in this switch; never reused.
    pub id: u64,
    /// The fault.
    pub fault: DeviceFault,
    /// Requests that the fault applied to.
    pub(super) seen: AtomicU64,
    /// Requests that the fault hit.
    pub(super) injected: AtomicU64,
    /// Number of bad blocks that were written.
    cured: AtomicU64,
    /// The blocks that were written.
    written: OnceLock<BlockSet>,
    /// When a device first checked for this fault.
    since: OnceLock<Nanos>,
}

impl Armed {
    /// Requests that the fault applied to, before probability and counts.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Requests that the fault hit.
    pub fn injected(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
    }

    /// Bad blocks cured by a write.
    pub fn cured(&self) -> u64 {
        self.cured.load(Ordering::Relaxed)
    }

    /// When the fault began, which is when a device first checked for it.
    pub(super) fn since(&self, now: Nanos) -> Nanos {
        *self.since.get_or_init(|| now)
    }

    /// A request's first bad block that has not been cured.
    pub(super) fn first_bad(&self, request: &Request, info: &DeviceInfo) -> Option<u64> {
        if request.len == 0 {
            return None;
        }
        let (first, last) = touched(request, info.block_bytes);
        let is_cured = |block: u64| self.written.get().is_some_and(|written| written.has(block));
        (first..=last).find(|block| self.fault.is_bad(*block) && !is_cured(*block))
    }

    /// Blocks from `first` to `last` were written: marks the bad ones among them as good.
    pub(super) fn cure(&self, first: u64, last: u64, info: &DeviceInfo) {
        let blocks = info.size_bytes / u64::from(info.block_bytes);
        let written = self.written.get_or_init(|| BlockSet::new(blocks));
        let cured = (first..=last)
            .filter(|block| self.fault.is_bad(*block) && written.add(*block))
            .count();
        self.cured.fetch_add(cured as u64, Ordering::Relaxed);
    }

    /// The error for a request, if the effect is an error.
    pub(super) fn error(&self, request: &Request, info: &DeviceInfo) -> Option<DeviceError> {
        if !matches!(self.fault.kind, FaultEffect::BadBlocks { .. }) || request.op != Op::Read {
            return self.fault.error(request, info.block_bytes);
        }
        // This request fails even if another thread has cured the block in the meantime.
        let block = self.first_bad(request, info);
        let detail = block.map_or(RefusalDetail::Nothing, RefusalDetail::Block);
        Some(DeviceError::Refused {
            kind: RefusalKind::MediumError,
            detail,
        })
    }

    /// Counts a request; returns whether it is an n-th one (`every`).
    #[inline]
    pub(super) fn counts_in(&self) -> bool {
        let number = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        self.fault.every == 1 || number.is_multiple_of(self.fault.every)
    }

    /// Uses one of the remaining hits; `false` if none is left.
    #[inline]
    pub(super) fn take(&self) -> bool {
        let Some(times) = self.fault.times else {
            self.injected.fetch_add(1, Ordering::Relaxed);
            return true;
        };
        self.injected
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count < times).then_some(count + 1)
            })
            .is_ok()
    }
}

/// Arms and disarms a layer's faults while requests run.
#[derive(Debug)]
pub struct FaultSwitch {
    name: String,
    /// A number that changes whenever the table does.
    generation: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last_id: u64,
    armed: Vec<Arc<Armed>>,
    /// Counts of faults that are no longer armed.
    injected_before: u64,
    cured_before: u64,
}

impl FaultSwitch {
    /// Creates a switch with no faults armed. The switch's name distinguishes it from others on the same device.
    pub fn new(name: &str) -> Arc<FaultSwitch> {
        Arc::new(FaultSwitch {
            name: name.to_string(),
            generation: AtomicU64::new(0),
            table: Mutex::default(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Arms a fault, which applies to requests from now on; `None` if [`ARMED_MAX`] faults are armed.
    pub fn arm(&self, fault: DeviceFault) -> Option<Arc<Armed>> {
        let mut table = self.lock();
        if table.armed.len() >= ARMED_MAX {
            return None;
        }
        table.last_id += 1;
        let id = table.last_id;
        let (seen, injected, cured) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let (written, since) = (OnceLock::new(), OnceLock::new());
        let armed = Arc::new(Armed {
            id,
            fault,
            seen,
            injected,
            cured,
            written,
            since,
        });
        table.armed.push(Arc::clone(&armed));
        self.generation.fetch_add(1, Ordering::Release);
        Some(armed)
    }

    /// Disarms a fault and releases its hanging requests. Returns whether it was armed.
    pub fn disarm(&self, id: u64) -> bool {
        let mut table = self.lock();
        let Some(index) = table.armed.iter().position(|armed| armed.id == id) else {
            return false;
        };
        let gone = table.armed.remove(index);
        table.injected_before += gone.injected();
        table.cured_before += gone.cured();
        self.generation.fetch_add(1, Ordering::Release);
        true
    }

    /// Disarms all faults; returns their number.
    pub fn clear(&self) -> usize {
        let mut table = self.lock();
        let gone = std::mem::take(&mut table.armed);
        table.injected_before += gone.iter().map(|armed| armed.injected()).sum::<u64>();
        table.cured_before += gone.iter().map(|armed| armed.cured()).sum::<u64>();
        self.generation.fetch_add(1, Ordering::Release);
        gone.len()
    }

    /// The armed faults, oldest first: if two faults apply to a request, the older one hits it.
    pub fn armed(&self) -> Vec<Arc<Armed>> {
        self.lock().armed.clone()
    }

    /// Requests hit so far, by any fault.
    pub fn injected(&self) -> u64 {
        let table = self.lock();
        table.injected_before
            + table
                .armed
                .iter()
                .map(|armed| armed.injected())
                .sum::<u64>()
    }

    /// Bad blocks cured by writes so far, for all faults.
    pub fn cured(&self) -> u64 {
        let table = self.lock();
        table.cured_before + table.armed.iter().map(|armed| armed.cured()).sum::<u64>()
    }

    /// A number that changes whenever the result of [`FaultSwitch::armed`] does.
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Finds an armed fault by its number.
    ///
    /// # Errors
    /// No fault with this number is armed.
    pub fn find(&self, id: u64) -> Result<Arc<Armed>, CommandError> {
        let found = self
            .lock()
            .armed
            .iter()
            .find(|armed| armed.id == id)
            .cloned();
        found.ok_or_else(|| CommandError::NotThere(format!("fault {id} is not armed")))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const ID: (&str, &str) = ("id", "the fault's number, from 'arm'");

impl Controllable for FaultSwitch {
    fn kind(&self) -> &'static str {
        "fault"
    }

    fn commands(&self) -> &'static [CommandEntry] {
        &[
            CommandEntry {
                name: "arm",
                help: "arms a fault; returns its number",
                arguments: &[("fault", "the fault, written as in the fault= option")],
            },
            CommandEntry {
                name: "look",
                help: "returns a fault's counters",
                arguments: &[ID],
            },
            CommandEntry {
                name: "disarm",
                help: "disarms a fault; returns its counters",
                arguments: &[ID],
            },
            CommandEntry {
                name: "clear",
                help: "disarms all faults",
                arguments: &[],
            },
        ]
    }

    fn command(&self, name: &str, arguments: &Arguments) -> Result<Fields, CommandError> {
        match name {
            "arm" => {
                let fault = DeviceFault::parse(arguments.text("fault")?)
                    .map_err(|error| CommandError::argument("fault", &error.to_string()))?;
                let armed = self.arm(fault).ok_or_else(|| {
                    CommandError::NotNow(format!(
                        "{ARMED_MAX} faults are armed, which is the maximum; disarm some first"
                    ))
                })?;
                Ok(vec![("id", Value::Count(armed.id))])
            }
            "clear" => {
                self.clear();
                Ok(Vec::new())
            }
            look_or_disarm => {
                let armed = self.find(arguments.count("id")?)?;
                if look_or_disarm == "disarm" {
                    self.disarm(armed.id);
                }
                Ok(vec![
                    ("seen", Value::Count(armed.seen())),
                    ("injected", Value::Count(armed.injected())),
                    ("cured", Value::Count(armed.cured())),
                ])
            }
        }
    }

    fn status(&self) -> Fields {
        let armed = self.armed();
        vec![
            (
                "armed",
                Value::texts(armed.iter().map(|armed| armed.fault.to_string())),
            ),
            ("injected", Value::Count(self.injected())),
            ("cured", Value::Count(self.cured())),
        ]
    }

    fn figures(&self) -> PartFigures {
        vec![
            ("armed_faults", PartFigure::Gauge(self.armed().len() as f64)),
            ("injected_per_s", PartFigure::Counter(self.injected())),
        ]
    }
}
