//! What the connections of a logical unit share: its options and mode settings, who is connected
//! and what they have to be told, reservations, the medium's state. Connections call in from their
//! own threads; the one rule: the request path reads the atomics here ([`LogicalUnit::gate`], the
//! nexus's flags) and takes no lock unless one of them says that something is the matter.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use brunt_block::{Backend, DeviceInfo, Inline};
use brunt_core::Clock;
use brunt_wire::scsi::cdb::{self, Cdb, op};
use brunt_wire::scsi::copy;
use brunt_wire::scsi::inquiry::{self, Identity};
use brunt_wire::scsi::mode::{self, Settings};
use brunt_wire::scsi::opcodes::{Access, Opcode, Which};
use brunt_wire::scsi::persistent::{self, OUT_LIST_BYTES_MAX};
use brunt_wire::scsi::sense::{Sense, key};

use super::answers;
use super::attention::{Attention, Attentions};
use super::command::Refused;
use super::locks::RangeLocks;
use super::management::{AbortRequest, AbortScope, Mailbox};
use super::reservation::{Allowed, PortPair, Refusal, Reservations};
use super::sanitize::Sanitize;
use super::store::ReservationStore;
use super::{DataIn, LunMap, Nexus};

/// UNMAP takes so many descriptors.
pub(super) const UNMAP_DESCRIPTORS_MAX: u32 = 256;
/// Longest WRITE SAME, in bytes: no longer than a WRITE, for it may come down to one.
const WRITE_SAME_BYTES_MAX: u64 = TRANSFER_BYTES_MAX as u64;
/// Longest WRITE ATOMIC, in bytes.
const ATOMIC_BYTES_MAX: u32 = 1 << 20;
/// Longest transfer, in bytes: what one data-out buffer may take.
const TRANSFER_BYTES_MAX: u32 = 16 << 20;
/// EXTENDED COPY results kept.
const COPIES_MAX: usize = 16;

/// What a logical unit is to its initiators.
#[derive(Clone)]
pub struct LunOptions {
    /// T10 vendor identification, 8 characters.
    pub vendor: String,
    /// Product identification, 16 characters.
    pub product: String,
    /// Product revision level, 4 characters.
    pub revision: String,
    /// Unit serial number; the NAA identifier is derived from it, so it differs for each unit.
    pub serial: String,
    /// Thin provisioning: UNMAP works, unmapped blocks read as zeros. The backend has to unmap.
    pub thin: bool,
    /// Writes are refused.
    pub read_only: bool,
    /// The medium can be ejected and loaded.
    pub removable: bool,
    /// WCE after power on: writes are answered before they are on stable storage.
    pub write_cache: bool,
    /// Says to be a disk that turns.
    pub rotational: bool,
    /// iSCSI name of the target, for the device identification page; empty: left out.
    pub target_name: String,
    /// Relative target port identifiers (portal group tags) of the target.
    pub target_ports: Vec<u16>,
    /// Where reservations with APTPL are kept; none: APTPL is refused.
    pub store: Option<Arc<dyn ReservationStore>>,
    /// SANITIZE goes no faster than this, as a disk's does; none: as fast as the backend.
    pub sanitize_bytes_per_second: Option<u64>,
    /// Where time comes from.
    pub clock: Clock,
}

impl Default for LunOptions {
    fn default() -> LunOptions {
        LunOptions {
            vendor: "BRUNT".to_string(),
            product: "VIRTUAL DISK".to_string(),
            revision: env!("CARGO_PKG_VERSION").chars().take(4).collect(),
            serial: "0".to_string(),
            thin: false,
            read_only: false,
            removable: false,
            write_cache: false,
            rotational: false,
            target_name: String::new(),
            target_ports: vec![1],
            store: None,
            sanitize_bytes_per_second: None,
            clock: Clock::Monotonic,
        }
    }
}

/// Why a backend cannot be a logical unit.
#[derive(Debug, thiserror::Error)]
pub enum LunError {
    /// Thin provisioning over a backend without it.
    #[error("{0} cannot unmap, so it cannot be a thin LUN; leave 'thin' out")]
    NotThin(String),
    /// A size or block length that SCSI has no words for.
    #[error(
        "{name}: {size_bytes} bytes in blocks of {block_bytes} cannot be a LUN: it has to have at least one block, of 512 to 65536 bytes"
    )]
    BadShape {
        /// The backend.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// Its block length.
        block_bytes: u32,
    },
    /// The reservations could not be read.
    #[error("the saved reservations of {name} cannot be read")]
    Store {
        /// The backend.
        name: String,
        /// The store's words.
        source: std::io::Error,
    },
    /// The saved reservations make no sense.
    #[error(
        "the saved reservations of {name} are damaged in line {line}; remove the file to start without them"
    )]
    StoreDamaged {
        /// The backend.
        name: String,
        /// Counted from one.
        line: usize,
    },
}

/// Lengths that follow from the backend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub block_bytes: u32,
    physical_bytes: u32,
    pub transfer_blocks_max: u32,
}

impl Shape {
    fn of(info: &DeviceInfo) -> Shape {
        let longest = info.transfer_bytes_max.clamp(info.block_bytes, TRANSFER_BYTES_MAX);
        Shape {
            block_bytes: info.block_bytes,
            physical_bytes: info.physical_block_bytes.max(info.block_bytes),
            transfer_blocks_max: longest / info.block_bytes,
        }
    }

    /// Blocks in a physical block: a power of two.
    pub fn physical_blocks(&self) -> u32 {
        let blocks = self.physical_bytes / self.block_bytes;
        // The exponent has four bits.
        (1 << blocks.max(1).ilog2()).min(1 << 15)
    }

    pub fn write_same_blocks_max(&self) -> u64 {
        WRITE_SAME_BYTES_MAX / u64::from(self.block_bytes)
    }

    pub fn atomic_blocks_max(&self) -> u32 {
        let blocks = self.transfer_blocks_max.min(ATOMIC_BYTES_MAX / self.block_bytes).max(1);
        let physical = self.physical_blocks();
        if blocks < physical { blocks } else { blocks / physical * physical }
    }
}

/// Something concerns every command; the bits of [`LogicalUnit::gate`].
pub(super) mod gate {
    /// The medium is out.
    pub const NO_MEDIUM: u32 = 1;
    /// SANITIZE is at work.
    pub const SANITIZING: u32 = 2;
    /// SANITIZE failed and nobody has left the failure mode.
    pub const SANITIZE_FAILED: u32 = 4;
    /// Writes are refused.
    pub const PROTECTED: u32 = 8;
    /// WCE is zero: every write is forced.
    pub const FORCE: u32 = 16;
    /// D_SENSE is one: sense data goes out in descriptor format.
    pub const DESCRIPTOR_SENSE: u32 = 32;
    /// Concerns READ and WRITE alike.
    pub const CLOSED: u32 = NO_MEDIUM | SANITIZING | SANITIZE_FAILED;
}

/// Something concerns a nexus; the bits of [`NexusShared::flags`].
pub(super) mod flag {
    /// A unit attention is pending.
    pub const ATTENTION: u32 = 1;
    /// Somebody else's reservation refuses reads.
    pub const DENY_READ: u32 = 2;
    /// And writes.
    pub const DENY_WRITE: u32 = 4;
    /// Somebody else's RESERVE refuses nearly everything.
    pub const DENY_ALL: u32 = 8;
}

/// The part of a nexus that its connections look at for each command.
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
    PortPair { initiator_port: nexus.initiator_port.clone(), target_port: nexus.target_port }
}

struct CopyRecord {
    nexus: u64,
    list: u8,
    failed: bool,
    segments: u16,
    bytes: u64,
}

struct State {
    nexuses: Vec<NexusEntry>,
    reservations: Reservations,
    /// Who holds RESERVE(6).
    reserved_by: Option<u64>,
    settings: Settings,
    medium_loaded: bool,
    sanitize_failed: bool,
    /// AUSE of the last SANITIZE.
    sanitize_unrestricted: bool,
    copies: VecDeque<CopyRecord>,
    mailboxes: Vec<Weak<Mailbox>>,
}

/// A logical unit. See the module.
pub struct LogicalUnit {
    backend: Arc<dyn Backend>,
    inline: Inline,
    options: LunOptions,
    shape: Shape,
    blocks: u64,
    gate: AtomicU32,
    state: Mutex<State>,
    map: OnceLock<Weak<LunMap>>,
    /// Commands that must not be interleaved.
    pub(super) locks: RangeLocks,
    /// The SANITIZE at work, if any.
    pub(super) sanitize: Sanitize,
}

impl LogicalUnit {
    /// A unit over `backend`; its saved reservations are in force at once.
    ///
    /// # Errors
    /// The backend does not do what the options promise, or the reservation store fails.
    pub fn new(backend: Arc<dyn Backend>, options: LunOptions) -> Result<Arc<LogicalUnit>, LunError> {
        let info = backend.info();
        let name = || info.name.clone();
        let blocks = info.size_bytes / u64::from(info.block_bytes.max(1));
        let sound = info.block_bytes.is_power_of_two() && (512..=65536).contains(&info.block_bytes);
        if blocks == 0 || !sound {
            let (size_bytes, block_bytes) = (info.size_bytes, info.block_bytes);
            return Err(LunError::BadShape { name: name(), size_bytes, block_bytes });
        }
        if options.thin && !info.unmap {
            return Err(LunError::NotThin(name()));
        }
        let mut reservations = Reservations::default();
        if let Some(store) = &options.store {
            let text = store.load().map_err(|source| LunError::Store { name: name(), source })?;
            reservations = Reservations::from_text(&text)
                .map_err(|line| LunError::StoreDamaged { name: name(), line })?;
        }
        let unit = LogicalUnit {
            inline: backend.inline(),
            shape: Shape::of(info),
            blocks,
            gate: AtomicU32::new(0),
            state: Mutex::new(State {
                nexuses: Vec::new(),
                reservations,
                reserved_by: None,
                settings: default_settings(&options),
                medium_loaded: true,
                sanitize_failed: false,
                sanitize_unrestricted: false,
                copies: VecDeque::new(),
                mailboxes: Vec::new(),
            }),
            map: OnceLock::new(),
            locks: RangeLocks::default(),
            sanitize: Sanitize::default(),
            backend,
            options,
        };
        unit.refresh(&unit.state());
        Ok(Arc::new(unit))
    }

    /// What it stands on.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// How it was made.
    pub fn options(&self) -> &LunOptions {
        &self.options
    }

    /// Logical block length in bytes.
    pub fn block_bytes(&self) -> u32 {
        self.shape.block_bytes
    }

    /// Size in blocks.
    #[inline]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Sense data goes out in descriptor format (D_SENSE of the control mode page).
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

    /// Tells the unit which map it is in; false when it is in one already.
    pub(super) fn join(&self, map: Weak<LunMap>) -> bool {
        self.map.set(map).is_ok()
    }

    pub(super) fn map(&self) -> Option<Arc<LunMap>> {
        self.map.get()?.upgrade()
    }

    /// The locally assigned NAA identifier (SPC-4, 7.8.6.6.4): 3h and 60 bits of the names.
    pub(super) fn naa(&self) -> [u8; 8] {
        // FNV-1a: any spread of the names over 60 bits does, as long as it stays the same for good.
        let names = [self.options.vendor.as_str(), &self.options.target_name, &self.options.serial];
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for byte in names.iter().flat_map(|name| name.bytes().chain([0])) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        (hash >> 4 | 3 << 60).to_be_bytes()
    }

    /// Whether a designation descriptor (code set, type, reserved, length, designator) of page 83h
    /// means this unit.
    pub(super) fn is_named(&self, designator: &[u8]) -> bool {
        let (Some(kind), Some(value)) = (designator.get(1), designator.get(4..)) else { return false };
        match kind & 0x3f {
            0x03 => value == self.naa(),
            // A copy target descriptor has room for 20 bytes of it.
            0x01 => {
                let identity = Identity {
                    vendor: &self.options.vendor,
                    serial: &self.options.serial,
                    naa: self.naa(),
                    target_name: "",
                    target_port: 0,
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
        }
    }

    pub(super) fn default_settings(&self) -> Settings {
        default_settings(&self.options)
    }

    pub(super) fn write_protected(&self, settings: &Settings) -> bool {
        self.options.read_only || self.backend.info().read_only || settings.software_write_protect
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds a logical unit's state")
    }

    /// Brings the atomics in line with the state.
    fn refresh(&self, state: &State) {
        let mut bits = 0;
        let mut set = |bit, on: bool| bits |= if on { bit } else { 0 };
        set(gate::NO_MEDIUM, !state.medium_loaded);
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
            let reserved = state.reserved_by.is_some_and(|id| id != entry.shared.nexus.id);
            set(flag::ATTENTION, !entry.attentions.is_empty());
            set(flag::DENY_READ, !allowed.read || reserved);
            set(flag::DENY_WRITE, !allowed.write || reserved);
            set(flag::DENY_ALL, reserved);
            entry.shared.flags.store(bits, Ordering::Release);
        }
    }

    /// A connection of `nexus` arrives.
    pub(super) fn attach(&self, nexus: &Nexus, mailbox: &Arc<Mailbox>) -> Arc<NexusShared> {
        let mut state = self.state();
        state.mailboxes.retain(|mailbox| mailbox.strong_count() > 0);
        state.mailboxes.push(Arc::downgrade(mailbox));
        let known = state.nexuses.iter_mut().find(|entry| entry.shared.nexus.id == nexus.id);
        if let Some(entry) = known {
            entry.task_sets += 1;
            return Arc::clone(&entry.shared);
        }
        let shared = Arc::new(NexusShared { nexus: nexus.clone(), flags: AtomicU32::new(0) });
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

    /// A connection leaves; with the last one of a nexus, the nexus is lost (SAM-5, 6.3.4).
    pub(super) fn detach(&self, nexus: u64) {
        let mut state = self.state();
        let Some(index) = state.nexuses.iter().position(|entry| entry.shared.nexus.id == nexus) else {
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

    /// Whether a command may go on, by everything but its own fields: unit attentions,
    /// reservations, the medium's state, write protection.
    pub(super) fn admit(&self, nexus: &NexusShared, row: &Opcode, cdb: &Cdb) -> Result<(), Refused> {
        if matches!(cdb[0], op::INQUIRY | op::REPORT_LUNS | op::REQUEST_SENSE) {
            return Ok(());
        }
        let flags = nexus.flags.load(Ordering::Acquire);
        if flags & flag::ATTENTION != 0
            && let Some(attention) = self.take_attention(nexus.nexus.id)
        {
            return Err(Refused::Check(attention.sense()));
        }
        if flags & (flag::DENY_READ | flag::DENY_WRITE | flag::DENY_ALL) != 0 && conflicts(flags, row, cdb) {
            return Err(Refused::Conflict);
        }
        let gate = self.gate();
        if gate & gate::CLOSED != 0 {
            self.closed(gate, cdb)?;
        }
        if gate & gate::PROTECTED != 0 && writes(cdb[0]) {
            // WRITE PROTECTED, or SOFTWARE WRITE PROTECTED when only the initiator asked for it.
            let hard = self.options.read_only || self.backend.info().read_only;
            let ascq = if hard { 0x00 } else { 0x02 };
            return Err(Refused::Check(Sense::new(key::DATA_PROTECT, 0x27, ascq)));
        }
        Ok(())
    }

    fn closed(&self, gate: u32, cdb: &Cdb) -> Result<(), Refused> {
        if gate & gate::SANITIZING != 0 && !allowed_in_sanitize(cdb[0]) {
            return Err(Refused::Check(self.sanitize.sense()));
        }
        if gate & gate::NO_MEDIUM != 0 && needs_medium(cdb[0]) {
            return Err(Refused::Check(answers::no_medium()));
        }
        let leaves = cdb[0] == op::SANITIZE;
        if gate & gate::SANITIZE_FAILED != 0 && needs_medium(cdb[0]) && !leaves {
            // SANITIZE COMMAND FAILED
            return Err(Refused::Check(Sense::new(key::MEDIUM_ERROR, 0x31, 0x03)));
        }
        Ok(())
    }

    fn take_attention(&self, nexus: u64) -> Option<Attention> {
        let mut state = self.state();
        let entry = state.nexuses.iter_mut().find(|entry| entry.shared.nexus.id == nexus)?;
        let attention = entry.attentions.pop();
        self.refresh(&state);
        attention
    }

    /// Whether another unit's copy may read from or write to this one.
    pub(super) fn allowed(&self, nexus: &Nexus) -> Allowed {
        let state = self.state();
        if state.reserved_by.is_some_and(|id| id != nexus.id) {
            return Allowed { read: false, write: false };
        }
        let mut allowed = state.reservations.allowed(&pair_of(nexus));
        let gate = self.gate();
        allowed.read &= gate & gate::CLOSED == 0;
        allowed.write &= gate & (gate::CLOSED | gate::PROTECTED) == 0;
        allowed
    }

    /// Commands that need neither the medium nor data-out.
    pub(super) fn answer(&self, nexus: &Nexus, cdb: &Cdb) -> Result<DataIn, Refused> {
        match cdb[0] {
            op::TEST_UNIT_READY => Ok(DataIn::None),
            op::INQUIRY => answers::inquiry(self, nexus, cdb),
            op::REQUEST_SENSE => Ok(self.request_sense(nexus, cdb)),
            op::REPORT_LUNS => {
                let report = || self.map().map_or_else(|| vec![0; 8], |map| map.report());
                answers::report_luns(cdb, report)
            }
            op::MODE_SENSE_6 | op::MODE_SENSE_10 => {
                let settings = self.state().settings;
                answers::mode_sense(self, &settings, cdb)
            }
            op::READ_CAPACITY_10 => Ok(answers::read_capacity_10(self)),
            op::SERVICE_ACTION_IN_16 if cdb[1] & 0x1f == op::SA_READ_CAPACITY_16 => {
                Ok(answers::read_capacity_16(self, cdb))
            }
            op::SERVICE_ACTION_IN_16 => answers::get_lba_status(self, cdb),
            op::READ_DEFECT_DATA_10 | op::READ_DEFECT_DATA_12 => Ok(answers::read_defect_data(cdb)),
            op::MAINTENANCE_IN if cdb[1] & 0x1f == op::SA_REPORT_SUPPORTED_OPERATION_CODES => {
                answers::supported_opcodes(self, cdb)
            }
            op::MAINTENANCE_IN => answers::supported_task_management(cdb),
            op::RESERVE_6 | op::RESERVE_10 => self.reserve(nexus),
            op::RELEASE_6 | op::RELEASE_10 => self.release(nexus),
            op::PERSISTENT_RESERVE_IN => self.persistent_reserve_in(cdb),
            op::PREVENT_ALLOW_MEDIUM_REMOVAL => self.prevent_allow(nexus, cdb),
            op::RECEIVE_COPY_RESULTS => self.copy_results(nexus, cdb),
            _ => Err(Refused::illegal(0x20, 0x00)),
        }
    }

    fn request_sense(&self, nexus: &Nexus, cdb: &Cdb) -> DataIn {
        let gate = self.gate();
        let sense = match self.take_attention(nexus.id) {
            Some(attention) => attention.sense(),
            None if gate & gate::SANITIZING != 0 => self.sanitize.sense(),
            None if gate & gate::NO_MEDIUM != 0 => answers::no_medium(),
            None => Sense::default(),
        };
        answers::request_sense(cdb, &sense)
    }

    fn reserve(&self, nexus: &Nexus) -> Result<DataIn, Refused> {
        let mut state = self.state();
        if state.reservations.any_registered() {
            // SPC-4, 5.12.3 (CRH): nothing for registrants, a conflict for others.
            let registered = state.reservations.is_registered(&pair_of(nexus));
            return if registered { Ok(DataIn::None) } else { Err(Refused::Conflict) };
        }
        if state.reserved_by.is_some_and(|id| id != nexus.id) {
            return Err(Refused::Conflict);
        }
        state.reserved_by = Some(nexus.id);
        self.refresh(&state);
        Ok(DataIn::None)
    }

    fn release(&self, nexus: &Nexus) -> Result<DataIn, Refused> {
        let mut state = self.state();
        if state.reservations.any_registered() {
            let registered = state.reservations.is_registered(&pair_of(nexus));
            return if registered { Ok(DataIn::None) } else { Err(Refused::Conflict) };
        }
        if state.reserved_by == Some(nexus.id) {
            state.reserved_by = None;
            self.refresh(&state);
        }
        Ok(DataIn::None)
    }

    fn persistent_reserve_in(&self, cdb: &Cdb) -> Result<DataIn, Refused> {
        let state = self.state();
        let answer = match cdb[1] & 0x1f {
            0 => state.reservations.keys(),
            1 => state.reservations.reservation(),
            2 => persistent::report_capabilities(self.options.store.is_some(), state.reservations.aptpl()),
            _ => state.reservations.full_status(),
        };
        Ok(answers::cut(answer, cdb::list_length(cdb)))
    }

    fn prevent_allow(&self, nexus: &Nexus, cdb: &Cdb) -> Result<DataIn, Refused> {
        let mut state = self.state();
        let entry = state.nexuses.iter_mut().find(|entry| entry.shared.nexus.id == nexus.id);
        entry.expect("a command comes from an attached nexus").prevents_removal = match cdb[4] & 3 {
            0 => false,
            1 => true,
            _ => return Err(Refused::field(4)),
        };
        Ok(DataIn::None)
    }

    /// START STOP UNIT. Whether the cache has to be flushed before the answer.
    pub(super) fn start_stop(&self, nexus: &Nexus, cdb: &Cdb) -> Result<bool, Refused> {
        let (power_condition, no_flush) = (cdb[4] >> 4, cdb[4] & 0x04 != 0);
        let (load_eject, start) = (cdb[4] & 0x02 != 0, cdb[4] & 0x01 != 0);
        // There is no power condition page and no motor: power conditions, and stopping without
        // ejecting, are taken and change nothing (SBC-3, 5.25).
        if power_condition != 0 {
            return Ok(false);
        }
        if load_eject {
            if !self.options.removable {
                return Err(Refused::field(4));
            }
            let mut state = self.state();
            let changes = state.medium_loaded != start;
            if (changes || !start) && state.nexuses.iter().any(|entry| entry.prevents_removal) {
                // MEDIUM REMOVAL PREVENTED; a lock that was set while the medium was out holds the tray, too.
                return Err(Refused::illegal(0x53, 0x02));
            }
            if changes {
                state.medium_loaded = start;
                if start {
                    for entry in state.nexuses.iter_mut().filter(|entry| entry.shared.nexus.id != nexus.id) {
                        entry.attentions.push(Attention::MediumMayHaveChanged);
                    }
                }
                self.refresh(&state);
            }
        }
        Ok(!start && !no_flush)
    }

    /// MODE SELECT. Whether the cache has to be flushed before the answer.
    pub(super) fn mode_select(&self, nexus: &Nexus, cdb: &Cdb, list: &[u8]) -> Result<bool, Refused> {
        let mut state = self.state();
        let before = state.settings;
        let ten = cdb[0] == op::MODE_SELECT_10;
        let after = mode::parse_select(ten, list, &before, self.blocks(), self.shape.block_bytes)
            .map_err(Refused::Check)?;
        if after != before {
            state.settings = after;
            for entry in state.nexuses.iter_mut().filter(|entry| entry.shared.nexus.id != nexus.id) {
                entry.attentions.push(Attention::ModeParametersChanged);
            }
            self.refresh(&state);
        }
        Ok(before.write_cache && !after.write_cache)
    }

    /// PERSISTENT RESERVE OUT. Tasks of nexuses that were preempted are aborted.
    pub(super) fn persistent_reserve_out(
        &self,
        nexus: &Nexus,
        cdb: &Cdb,
        list: &[u8],
    ) -> Result<(), Refused> {
        let action = cdb[1] & 0x1f;
        let list = persistent::parse_out(action, list).map_err(Refused::Check)?;
        if list.aptpl && self.options.store.is_none() {
            return Err(Refused::parameter(20));
        }
        let mut state = self.state();
        let mut next = state.reservations.clone();
        let ports = &self.options.target_ports;
        let effects =
            next.out(&pair_of(nexus), action, cdb[2], &list, ports).map_err(|refusal| match refusal {
                Refusal::Conflict => Refused::Conflict,
                Refusal::Check(sense) => Refused::Check(sense),
            })?;
        if let Some(store) = self.options.store.as_ref().filter(|_| effects.save) {
            // Nothing is in force that could not be saved. INSUFFICIENT RESOURCES, for want of a better.
            let failed = Refused::Check(Sense::new(key::HARDWARE_ERROR, 0x44, 0x00));
            store.save(&next.to_text()).map_err(|_| failed)?;
        }
        state.reservations = next;
        for entry in &mut state.nexuses {
            let pair = entry.pair();
            for (who, attention) in &effects.attentions {
                if *who == pair {
                    entry.attentions.push(*attention);
                }
            }
        }
        for who in &effects.aborted {
            self.post(&state, &AbortRequest::new(AbortScope::Ports(who.clone())), None);
        }
        self.refresh(&state);
        Ok(())
    }

    fn copy_results(&self, nexus: &Nexus, cdb: &Cdb) -> Result<DataIn, Refused> {
        let allocation = cdb::be32(cdb, 10);
        if cdb[1] & 0x1f == op::SA_OPERATING_PARAMETERS {
            return Ok(answers::cut(copy::operating_parameters(), allocation));
        }
        let state = self.state();
        let copy = state.copies.iter().rev().find(|copy| copy.nexus == nexus.id && copy.list == cdb[2]);
        let copy = copy.ok_or(Refused::field(2))?;
        Ok(answers::cut(copy::copy_status(copy.failed, copy.segments, copy.bytes), allocation))
    }

    /// Keeps the end of an EXTENDED COPY for RECEIVE COPY RESULTS.
    pub(super) fn record_copy(&self, nexus: u64, list: u8, failed: bool, segments: u16, bytes: u64) {
        let mut state = self.state();
        state.copies.retain(|copy| copy.nexus != nexus || copy.list != list);
        if state.copies.len() == COPIES_MAX {
            state.copies.pop_front();
        }
        state.copies.push_back(CopyRecord { nexus, list, failed, segments, bytes });
    }

    /// SANITIZE begins; false when one is at work.
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

    /// SANITIZE ended. Called by its thread.
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

    /// Sends a request to every connection but `except`.
    pub(super) fn broadcast(&self, request: &AbortRequest, except: &Arc<Mailbox>) {
        self.post(&self.state(), request, Some(except));
    }

    fn post(&self, state: &State, request: &AbortRequest, except: Option<&Arc<Mailbox>>) {
        for mailbox in state.mailboxes.iter().filter_map(Weak::upgrade) {
            if !except.is_some_and(|except| Arc::ptr_eq(except, &mailbox)) {
                mailbox.put(request);
            }
        }
    }

    /// CLEAR TASK SET: tells the nexus that lost commands by somebody else's.
    pub(super) fn commands_cleared(&self, by: u64, of: u64) {
        if by == of {
            return;
        }
        let mut state = self.state();
        if let Some(entry) = state.nexuses.iter_mut().find(|entry| entry.shared.nexus.id == of) {
            entry.attentions.push(Attention::CommandsClearedByAnotherInitiator);
        }
        self.refresh(&state);
    }

    /// What a reset does to the shared state (SAM-5, 6.3.3): RESERVE and PREVENT end, mode
    /// parameters return to their defaults, everybody is told. Persistent reservations and
    /// SANITIZE go on.
    pub(super) fn reset(&self, attention: Attention) {
        let mut state = self.state();
        state.reserved_by = None;
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
        write!(f, "LogicalUnit({}, {} blocks)", self.backend.info().name, self.blocks())
    }
}

fn default_settings(options: &LunOptions) -> Settings {
    Settings { write_cache: options.write_cache, software_write_protect: false, descriptor_sense: false }
}

/// Longest parameter list a command may send.
pub(super) fn parameter_bytes_max(opcode: u8) -> u32 {
    match opcode {
        op::PERSISTENT_RESERVE_OUT => OUT_LIST_BYTES_MAX,
        _ => 65_535,
    }
}

fn conflicts(flags: u32, row: &Opcode, cdb: &Cdb) -> bool {
    let all = flags & flag::DENY_ALL != 0;
    let read = flags & flag::DENY_READ != 0;
    let write = flags & flag::DENY_WRITE != 0;
    match (row.access, cdb[0]) {
        (Access::Always, _) => false,
        (Access::Persistent, op::READ_CAPACITY_10 | op::SERVICE_ACTION_IN_16) => false,
        (Access::Persistent, _) => all,
        (Access::Read, _) => read,
        (Access::Write, _) => write,
        // RESERVE and RELEASE decide for themselves.
        (Access::Own, op::PREVENT_ALLOW_MEDIUM_REMOVAL) => write && cdb[4] & 3 != 0,
        (Access::Own, op::START_STOP_UNIT) => write && (all || cdb[4] & 0xf1 != 0x01),
        (Access::Own, _) => false,
    }
}

/// Commands that change the medium.
fn writes(opcode: u8) -> bool {
    matches!(
        opcode,
        op::WRITE_6
            | op::WRITE_10
            | op::WRITE_12
            | op::WRITE_16
            | op::WRITE_AND_VERIFY_10
            | op::WRITE_AND_VERIFY_12
            | op::WRITE_AND_VERIFY_16
            | op::WRITE_SAME_10
            | op::WRITE_SAME_16
            | op::WRITE_ATOMIC_16
            | op::COMPARE_AND_WRITE
            | op::ORWRITE_16
            | op::UNMAP
            | op::SANITIZE
    )
}

/// Commands that are answered without a medium.
pub(super) fn needs_medium(opcode: u8) -> bool {
    !matches!(
        opcode,
        op::MODE_SENSE_6
            | op::MODE_SENSE_10
            | op::MODE_SELECT_6
            | op::MODE_SELECT_10
            | op::RESERVE_6
            | op::RESERVE_10
            | op::RELEASE_6
            | op::RELEASE_10
            | op::PERSISTENT_RESERVE_IN
            | op::PERSISTENT_RESERVE_OUT
            | op::START_STOP_UNIT
            | op::PREVENT_ALLOW_MEDIUM_REMOVAL
            | op::MAINTENANCE_IN
            | op::RECEIVE_COPY_RESULTS
    )
}

/// Commands that go on beside SANITIZE (SBC-3, 4.11.2), INQUIRY and its like apart.
fn allowed_in_sanitize(opcode: u8) -> bool {
    matches!(opcode, op::MAINTENANCE_IN | op::PERSISTENT_RESERVE_IN | op::READ_CAPACITY_10)
}
