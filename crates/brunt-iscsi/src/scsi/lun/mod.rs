//! State shared by the connections of a logical unit: options and mode settings, connected nexuses and their unit
//! attentions, reservations, the medium's state. Connections call it from their own threads. The one rule: the request
//! path reads the atomics here ([`LogicalUnit::gate`], the nexus's flags) and takes no lock unless one of them is set.
//!
//! [`options`] contains a unit's options, [`uuid`] derives its UUID, [`disk`] handles changes of its medium, [`access`]
//! the states of its ports, [`admission`] decides whether a command may proceed, [`reservations`] implements the
//! reservation commands, and [`commands`] the other commands that read or change the state. This file contains the
//! state.

mod access;
mod admission;
mod commands;
mod disk;
mod options;
mod reservations;
mod uuid;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use brunt_block::{Backend, Inline};
use brunt_wire::scsi::alua::PortGroup;
use brunt_wire::scsi::inquiry::{self, DeviceIdentification};
use brunt_wire::scsi::mode::ModeSettings;
use brunt_wire::scsi::opcodes::Which;

pub use access::{AccessReport, NoSuchGroup};
#[cfg(test)]
pub(super) use admission::needs_medium;
pub use disk::DiskEvent;
pub use options::{Alua, LunError, LunOptions};
pub(super) use options::{UNMAP_DESCRIPTORS_MAX, parameter_bytes_max};
pub use uuid::unit_uuid;

use self::disk::DiskWatch;
use self::options::Shape;
use super::attention::{Attention, Attentions};
use super::command::Refused;
use super::locks::RangeLocks;
use super::management::{AbortRequest, Mailbox};
use super::reservation::{PortPair, Reservations};
use super::sanitize::Sanitize;
use super::{LunMap, Nexus};

/// Number of EXTENDED COPY results kept.
const COPIES_MAX: usize = 16;

/// Conditions that affect all commands; the bits of [`LogicalUnit::gate`].
pub(super) mod gate {
    /// The medium is out.
    pub const NO_MEDIUM: u32 = 1;
    /// SANITIZE is running.
    pub const SANITIZING: u32 = 2;
    /// SANITIZE failed, and the failure mode hasn't been exited.
    pub const SANITIZE_FAILED: u32 = 4;
    /// Writes are refused.
    pub const PROTECTED: u32 = 8;
    /// WCE is zero: every write is forced.
    pub const FORCE: u32 = 16;
    /// D_SENSE is one: sense data is sent in descriptor format.
    pub const DESCRIPTOR_SENSE: u32 = 32;
    /// The backing file was deleted or is shorter than a block.
    pub const LOST: u32 = 64;
    /// START STOP UNIT has stopped the unit.
    pub const STOPPED: u32 = 128;
    /// The conditions that affect both READ and WRITE.
    pub const CLOSED: u32 = NO_MEDIUM | SANITIZING | SANITIZE_FAILED | LOST | STOPPED;
}

/// Conditions that affect a nexus; the bits of [`NexusShared::flags`].
pub(super) mod flag {
    /// A unit attention is pending.
    pub const ATTENTION: u32 = 1;
    /// Another nexus's reservation denies reads.
    pub const DENY_READ: u32 = 2;
    /// Another nexus's reservation denies writes.
    pub const DENY_WRITE: u32 = 4;
    /// Another nexus's RESERVE denies nearly everything.
    pub const DENY_ALL: u32 = 8;
    /// The nexus's port is not active.
    pub const UNREACHABLE: u32 = 16;
}

/// The part of a nexus's state that its connections check for each command.
#[derive(Debug)]
pub(super) struct NexusShared {
    pub nexus: Nexus,
    pub flags: AtomicU32,
}

struct NexusEntry {
    shared: Arc<NexusShared>,
    attentions: Attentions,
    prevents_removal: bool,
    task_sets: usize,
}

impl NexusEntry {
    fn pair(&self) -> PortPair {
        pair_of(&self.shared.nexus)
    }
}

fn pair_of(nexus: &Nexus) -> PortPair {
    PortPair {
        initiator_port: nexus.initiator_port.clone(),
        target_port: nexus.target_port,
    }
}

struct CopyRecord {
    nexus: u64,
    list: u8,
    failed: bool,
    segments: u16,
    bytes: u64,
}

struct UnitState {
    nexuses: Vec<NexusEntry>,
    reservations: Reservations,
    /// The nexus that holds RESERVE(6).
    reserved_by: Option<u64>,
    settings: ModeSettings,
    medium_loaded: bool,
    /// START STOP UNIT has stopped the unit.
    stopped: bool,
    /// The backing file was deleted or is shorter than a block.
    medium_lost: bool,
    sanitize_failed: bool,
    /// Whether the last SANITIZE allowed leaving its failure mode (AUSE).
    sanitize_unrestricted: bool,
    copies: VecDeque<CopyRecord>,
    /// Target port groups with their states.
    groups: Vec<PortGroup>,
    mailboxes: Vec<Weak<Mailbox>>,
}

/// A logical unit; see the module's documentation.
pub struct LogicalUnit {
    backend: Arc<dyn Backend>,
    inline: Inline,
    options: LunOptions,
    shape: Shape,
    /// Changed only while `state` is locked, with a unit attention for every nexus.
    blocks: AtomicU64,
    gate: AtomicU32,
    state: Mutex<UnitState>,
    map: OnceLock<Weak<LunMap>>,
    disk: DiskWatch,
    /// Number of commands refused because of a port's state.
    access_refused: AtomicU64,
    /// Number of unit attentions reported about changed port states.
    access_notified: AtomicU64,
    /// Range locks for commands that must not be interleaved.
    pub(super) locks: RangeLocks,
    /// State of a running SANITIZE.
    pub(super) sanitize: Sanitize,
}

impl LogicalUnit {
    /// Creates a unit over `backend`; its saved reservations take effect at once.
    ///
    /// # Errors
    /// The backend doesn't support what the options promise, or the reservation store failed.
    pub fn new(
        backend: Arc<dyn Backend>,
        options: LunOptions,
    ) -> Result<Arc<LogicalUnit>, LunError> {
        let info = backend.info();
        let name = || info.name.clone();
        let blocks = info.size_bytes / u64::from(info.block_bytes.max(1));
        let sound = info.block_bytes.is_power_of_two() && (512..=65536).contains(&info.block_bytes);
        if blocks == 0 || !sound {
            let (size_bytes, block_bytes) = (info.size_bytes, info.block_bytes);
            return Err(LunError::BadShape {
                name: name(),
                size_bytes,
                block_bytes,
            });
        }
        if options.thin && !info.unmap {
            return Err(LunError::NotThin(name()));
        }
        let mut reservations = Reservations::default();
        if let Some(store) = &options.store {
            let text = store.load().map_err(|source| LunError::Store {
                name: name(),
                source,
            })?;
            reservations = Reservations::from_text(&text)
                .map_err(|line| LunError::StoreDamaged { name: name(), line })?;
        }
        let unit = LogicalUnit {
            inline: backend.inline(),
            shape: Shape::of(info),
            blocks: AtomicU64::new(blocks),
            gate: AtomicU32::new(0),
            state: Mutex::new(UnitState {
                nexuses: Vec::new(),
                reservations,
                reserved_by: None,
                settings: default_settings(&options),
                medium_loaded: true,
                stopped: false,
                medium_lost: false,
                sanitize_failed: false,
                sanitize_unrestricted: false,
                copies: VecDeque::new(),
                groups: options.target_ports.clone(),
                mailboxes: Vec::new(),
            }),
            map: OnceLock::new(),
            disk: DiskWatch::default(),
            access_refused: AtomicU64::new(0),
            access_notified: AtomicU64::new(0),
            locks: RangeLocks::default(),
            sanitize: Sanitize::default(),
            backend,
            options,
        };
        unit.refresh(&unit.state());
        Ok(Arc::new(unit))
    }

    /// The unit's backend.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The unit's options.
    pub fn options(&self) -> &LunOptions {
        &self.options
    }

    /// Logical block length in bytes.
    pub fn block_bytes(&self) -> u32 {
        self.shape.block_bytes
    }

    /// Size in blocks, which may change.
    #[inline]
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Whether sense data is returned in descriptor format (D_SENSE of the control mode page).
    pub fn wants_descriptor_sense(&self) -> bool {
        self.gate() & gate::DESCRIPTOR_SENSE != 0
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    pub(super) fn inline(&self) -> &Inline {
        &self.inline
    }

    /// See [`gate`].
    #[inline]
    pub(super) fn gate(&self) -> u32 {
        self.gate.load(Ordering::Acquire)
    }

    /// Stores the map that the unit belongs to; returns false if the unit already belongs to a map.
    pub(super) fn join(&self, map: Weak<LunMap>) -> bool {
        self.map.set(map).is_ok()
    }

    pub(super) fn map(&self) -> Option<Arc<LunMap>> {
        self.map.get()?.upgrade()
    }

    /// The locally assigned NAA identifier (SPC-4, 7.8.6.6.4): 3h and 60 bits of a hash of the names.
    pub(super) fn naa(&self) -> [u8; 8] {
        // FNV-1a: any hash to 60 bits works as long as it never changes.
        let names = [
            self.options.vendor.as_str(),
            &self.options.target_name,
            &self.options.serial,
        ];
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for byte in names.iter().flat_map(|name| name.bytes().chain([0])) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        (hash >> 4 | 3 << 60).to_be_bytes()
    }

    /// Whether a designation descriptor of page 83h (code set, type, reserved, length, designator) identifies this
    /// unit.
    pub(super) fn is_named(&self, designator: &[u8]) -> bool {
        let (Some(kind), Some(value)) = (designator.get(1), designator.get(4..)) else {
            return false;
        };
        match kind & 0x3f {
            0x03 => value == self.naa(),
            0x0a => self
                .options
                .uuid
                .is_some_and(|uuid| value == inquiry::uuid_designator(uuid)),
            // A copy target descriptor has room for only 20 bytes of the name.
            0x01 => {
                let identity = DeviceIdentification {
                    vendor: &self.options.vendor,
                    serial: &self.options.serial,
                    naa: self.naa(),
                    uuid: None,
                    target_name: "",
                    target_port: 0,
                    alua: false,
                };
                let page = inquiry::device_identification(&identity);
                let own = &page[4..4 + usize::from(page[3])];
                own == value || value.len() == 20 && own.starts_with(value)
            }
            _ => false,
        }
    }

    pub(super) fn has(&self, which: Which) -> bool {
        match which {
            Which::All => true,
            Which::Thin => self.options.thin,
            Which::Removable => self.options.removable,
            Which::Alua => self.options.alua != Alua::Off,
            Which::ExplicitAlua => self.options.alua.is_explicit(),
        }
    }

    pub(super) fn default_settings(&self) -> ModeSettings {
        default_settings(&self.options)
    }

    pub(super) fn write_protected(&self, settings: &ModeSettings) -> bool {
        self.options.read_only || self.backend.info().read_only || settings.software_write_protect
    }

    fn state(&self) -> MutexGuard<'_, UnitState> {
        self.state
            .lock()
            .expect("no thread panics while holding a logical unit's state")
    }

    /// Updates the atomics from the state.
    fn refresh(&self, state: &UnitState) {
        let mut bits = 0;
        let mut set = |bit, on: bool| bits |= if on { bit } else { 0 };
        set(gate::NO_MEDIUM, !state.medium_loaded);
        set(gate::STOPPED, state.stopped);
        set(gate::LOST, state.medium_lost);
        set(gate::SANITIZING, self.sanitize.is_running());
        set(gate::SANITIZE_FAILED, state.sanitize_failed);
        set(gate::PROTECTED, self.write_protected(&state.settings));
        set(gate::FORCE, !state.settings.write_cache);
        set(gate::DESCRIPTOR_SENSE, state.settings.descriptor_sense);
        self.gate.store(bits, Ordering::Release);
        for entry in &state.nexuses {
            let mut bits = 0;
            let mut set = |bit, on: bool| bits |= if on { bit } else { 0 };
            let allowed = state.reservations.allowed(&entry.pair());
            let reserved = state
                .reserved_by
                .is_some_and(|id| id != entry.shared.nexus.id);
            set(flag::ATTENTION, !entry.attentions.is_empty());
            set(flag::DENY_READ, !allowed.read || reserved);
            set(flag::DENY_WRITE, !allowed.write || reserved);
            set(flag::DENY_ALL, reserved);
            let access = state.access_of(entry.shared.nexus.target_port);
            set(flag::UNREACHABLE, access::not_accessible(access).is_some());
            entry.shared.flags.store(bits, Ordering::Release);
        }
    }

    /// Registers a connection of `nexus`.
    pub(super) fn attach(&self, nexus: &Nexus, mailbox: &Arc<Mailbox>) -> Arc<NexusShared> {
        let mut state = self.state();
        state.mailboxes.retain(|mailbox| mailbox.strong_count() > 0);
        state.mailboxes.push(Arc::downgrade(mailbox));
        let known = state
            .nexuses
            .iter_mut()
            .find(|entry| entry.shared.nexus.id == nexus.id);
        if let Some(entry) = known {
            entry.task_sets += 1;
            return Arc::clone(&entry.shared);
        }
        let shared = Arc::new(NexusShared {
            nexus: nexus.clone(),
            flags: AtomicU32::new(0),
        });
        let mut attentions = Attentions::default();
        attentions.push(Attention::PowerOnOrReset);
        state.nexuses.push(NexusEntry {
            shared: Arc::clone(&shared),
            attentions,
            prevents_removal: false,
            task_sets: 1,
        });
        self.refresh(&state);
        shared
    }

    /// Called when a connection logs out: releases what its nexus holds if this is the nexus's last connection or the
    /// whole session ends.
    pub(super) fn log_out(&self, nexus: u64, whole_session: bool) {
        let mut state = self.state();
        let mut entries = state.nexuses.iter_mut();
        let Some(entry) = entries.find(|entry| entry.shared.nexus.id == nexus) else {
            return;
        };
        if entry.task_sets > 1 && !whole_session {
            return;
        }
        entry.prevents_removal = false;
        if state.reserved_by == Some(nexus) {
            state.reserved_by = None;
        }
        self.refresh(&state);
    }

    /// Unregisters a connection; with its last connection, the nexus is lost (SAM-5, 6.3.4).
    pub(super) fn detach(&self, nexus: u64) {
        let mut state = self.state();
        let Some(index) = state
            .nexuses
            .iter()
            .position(|entry| entry.shared.nexus.id == nexus)
        else {
            return;
        };
        state.nexuses[index].task_sets -= 1;
        if state.nexuses[index].task_sets == 0 {
            state.nexuses.swap_remove(index);
            state.copies.retain(|copy| copy.nexus != nexus);
            if state.reserved_by == Some(nexus) {
                state.reserved_by = None;
            }
        }
        self.refresh(&state);
    }

    /// Records the result of an EXTENDED COPY for RECEIVE COPY RESULTS.
    pub(super) fn record_copy(
        &self,
        nexus: u64,
        list: u8,
        failed: bool,
        segments: u16,
        bytes: u64,
    ) {
        let mut state = self.state();
        state
            .copies
            .retain(|copy| copy.nexus != nexus || copy.list != list);
        if state.copies.len() == COPIES_MAX {
            state.copies.pop_front();
        }
        state.copies.push_back(CopyRecord {
            nexus,
            list,
            failed,
            segments,
            bytes,
        });
    }

    /// Marks SANITIZE as started; returns false if it is already running.
    pub(super) fn sanitize_begins(&self, unrestricted: bool) -> bool {
        let mut state = self.state();
        if !self.sanitize.begin() {
            return false;
        }
        state.sanitize_failed = false;
        state.sanitize_unrestricted = unrestricted;
        self.refresh(&state);
        true
    }

    /// Marks SANITIZE as ended. Called by the SANITIZE thread.
    pub(super) fn sanitize_ended(&self, failed: bool) {
        let mut state = self.state();
        state.sanitize_failed = failed;
        self.sanitize.end();
        self.refresh(&state);
    }

    /// SANITIZE, EXIT FAILURE MODE.
    pub(super) fn exit_failure_mode(&self) -> Result<(), Refused> {
        let mut state = self.state();
        if state.sanitize_failed && !state.sanitize_unrestricted {
            return Err(Refused::field(1));
        }
        state.sanitize_failed = false;
        self.refresh(&state);
        Ok(())
    }

    /// Called when other units of the target were added or removed.
    pub(super) fn luns_changed(&self) {
        let mut state = self.state();
        for entry in &mut state.nexuses {
            entry.attentions.push(Attention::ReportedLunsDataHasChanged);
        }
        self.refresh(&state);
    }

    /// Called when a nexus has received the list of units.
    pub(super) fn luns_reported_to(&self, nexus: u64) {
        let mut state = self.state();
        if let Some(entry) = state
            .nexuses
            .iter_mut()
            .find(|entry| entry.shared.nexus.id == nexus)
        {
            entry
                .attentions
                .forget(Attention::ReportedLunsDataHasChanged);
        }
        self.refresh(&state);
    }

    /// Wakes every connection to check for work.
    pub(super) fn wake_connections(&self) {
        self.state()
            .mailboxes
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|mailbox| mailbox.wake());
    }

    /// Whether any connection has the unit open.
    pub fn is_open(&self) -> bool {
        !self.state().nexuses.is_empty()
    }

    /// Sends a request to every connection except `except`.
    pub(super) fn broadcast(&self, request: &AbortRequest, except: &Arc<Mailbox>) {
        self.post(&self.state(), request, Some(except));
    }

    fn post(&self, state: &UnitState, request: &AbortRequest, except: Option<&Arc<Mailbox>>) {
        for mailbox in state.mailboxes.iter().filter_map(Weak::upgrade) {
            if !except.is_some_and(|except| Arc::ptr_eq(except, &mailbox)) {
                mailbox.put(request);
            }
        }
    }

    /// CLEAR TASK SET: notifies a nexus that another nexus has cleared its commands.
    pub(super) fn commands_cleared(&self, by: u64, of: u64) {
        if by == of {
            return;
        }
        let mut state = self.state();
        if let Some(entry) = state
            .nexuses
            .iter_mut()
            .find(|entry| entry.shared.nexus.id == of)
        {
            entry
                .attentions
                .push(Attention::CommandsClearedByAnotherInitiator);
        }
        self.refresh(&state);
    }

    /// Applies a reset to the shared state (SAM-5, 6.3.3): RESERVE and PREVENT end, a stopped unit starts, mode
    /// parameters return to their defaults, copy results are dropped, and every nexus gets a unit attention. Persistent
    /// reservations and SANITIZE are not affected.
    pub(super) fn reset(&self, attention: Attention) {
        let mut state = self.state();
        state.reserved_by = None;
        state.stopped = false;
        state.settings = self.default_settings();
        state.copies.clear();
        for entry in &mut state.nexuses {
            entry.prevents_removal = false;
            entry.attentions.push(attention);
        }
        self.refresh(&state);
    }
}

impl std::fmt::Debug for LogicalUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "LogicalUnit({}, {} blocks)",
            self.backend.info().name,
            self.blocks()
        )
    }
}

fn default_settings(options: &LunOptions) -> ModeSettings {
    ModeSettings {
        write_cache: options.write_cache,
        software_write_protect: false,
        descriptor_sense: false,
    }
}
