//! The options of a logical unit, and the limits imposed by its backend. Set when a unit is opened, read by every
//! command. The one rule: all length limits of commands are defined here.

use std::sync::Arc;

use brunt_block::DeviceInfo;
use brunt_core::Clock;
use brunt_wire::scsi::alua::{AccessState, PortGroup};
use brunt_wire::scsi::cdb::op;
use brunt_wire::scsi::persistent::OUT_LIST_BYTES_MAX;

use crate::scsi::store::ReservationStore;

/// Maximum number of UNMAP descriptors.
pub(in crate::scsi) const UNMAP_DESCRIPTORS_MAX: u32 = 256;
/// Longest WRITE SAME, in bytes: the same as for a WRITE, because a WRITE SAME may be executed as one.
const WRITE_SAME_BYTES_MAX: u64 = TRANSFER_BYTES_MAX as u64;
/// Longest WRITE ATOMIC, in bytes.
const ATOMIC_BYTES_MAX: u32 = 1 << 20;
/// Longest transfer, in bytes: the limit on a Data-Out buffer.
const TRANSFER_BYTES_MAX: u32 = 16 << 20;

/// Who may change the states of port groups (TPGS of INQUIRY, SPC-4, table 165).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alua {
    /// No asymmetric access: all ports are equal.
    Off,
    /// Only the target.
    #[default]
    Implicit,
    /// Only initiators, with SET TARGET PORT GROUPS.
    Explicit,
    /// The target and initiators.
    Both,
}

impl Alua {
    /// Bits 5 and 4 of byte 5 of the standard INQUIRY data.
    pub(in crate::scsi) fn tpgs(self) -> u8 {
        match self {
            Alua::Off => 0,
            Alua::Implicit => 1,
            Alua::Explicit => 2,
            Alua::Both => 3,
        }
    }

    pub(in crate::scsi) fn is_explicit(self) -> bool {
        matches!(self, Alua::Explicit | Alua::Both)
    }
}

/// Options of a logical unit.
#[derive(Clone)]
pub struct LunOptions {
    /// T10 vendor identification, 8 characters.
    pub vendor: String,
    /// Product identification, 16 characters.
    pub product: String,
    /// Product revision level, 4 characters.
    pub revision: String,
    /// Unit serial number; it must be unique, because the NAA identifier is derived from it.
    pub serial: String,
    /// The UUID, see [`super::unit_uuid`]; `None`: omitted.
    pub uuid: Option<[u8; 16]>,
    /// Thin provisioning: UNMAP works, and unmapped blocks read as zeros. The backend must support unmapping.
    pub thin: bool,
    /// Writes are refused.
    pub read_only: bool,
    /// The medium can be ejected and loaded.
    pub removable: bool,
    /// WCE after power on: writes are answered before they are on stable storage.
    pub write_cache: bool,
    /// Whether to report a rotating disk.
    pub rotational: bool,
    /// iSCSI name of the target, for the device identification page; empty: omitted.
    pub target_name: String,
    /// The target's port groups, each with its initial state. Each group has one port, and the portal group tag is both
    /// the relative target port identifier and the group's number.
    pub target_ports: Vec<PortGroup>,
    /// Who may change the groups' states.
    pub alua: Alua,
    /// Where reservations with APTPL are saved; `None`: APTPL is refused.
    pub store: Option<Arc<dyn ReservationStore>>,
    /// Maximum speed of SANITIZE, to mimic a disk; `None`: as fast as the backend.
    pub sanitize_bytes_per_second: Option<u64>,
    /// Source of time.
    pub clock: Clock,
}

impl Default for LunOptions {
    fn default() -> LunOptions {
        LunOptions {
            vendor: "BRUNT".to_string(),
            product: "VIRTUAL DISK".to_string(),
            revision: env!("CARGO_PKG_VERSION").chars().take(4).collect(),
            serial: "0".to_string(),
            uuid: None,
            thin: false,
            read_only: false,
            removable: false,
            write_cache: false,
            rotational: false,
            target_name: String::new(),
            target_ports: vec![PortGroup::new(1, AccessState::ActiveOptimized)],
            alua: Alua::default(),
            store: None,
            sanitize_bytes_per_second: None,
            clock: Clock::Monotonic,
        }
    }
}

/// Why a backend cannot be a logical unit.
#[derive(Debug, thiserror::Error)]
pub enum LunError {
    /// Thin provisioning is requested, but the backend doesn't support it.
    #[error("{0} does not support unmap, so it cannot be a thin LUN; omit 'thin'")]
    NotThin(String),
    /// A size or block length that SCSI can't represent.
    #[error(
        "{name}: {size_bytes} bytes with blocks of {block_bytes} bytes cannot be a LUN; it needs \
         at least one block of 512 to 65536 bytes"
    )]
    BadShape {
        /// The backend.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// The block length in bytes.
        block_bytes: u32,
    },
    /// The saved reservations could not be read.
    #[error("cannot read the saved reservations of {name}")]
    Store {
        /// The backend.
        name: String,
        /// The store's error.
        source: std::io::Error,
    },
    /// The saved reservations are invalid.
    #[error(
        "the saved reservations of {name} are damaged in line {line}; remove the file to start \
         without reservations"
    )]
    StoreDamaged {
        /// The backend.
        name: String,
        /// Line number, from 1.
        line: usize,
    },
}

/// Sizes derived from the backend.
#[derive(Clone, Copy, Debug)]
pub(in crate::scsi) struct Shape {
    pub block_bytes: u32,
    physical_bytes: u32,
    pub transfer_blocks_max: u32,
}

impl Shape {
    pub(super) fn of(info: &DeviceInfo) -> Shape {
        let longest = info
            .transfer_bytes_max
            .clamp(info.block_bytes, TRANSFER_BYTES_MAX);
        Shape {
            block_bytes: info.block_bytes,
            physical_bytes: info.physical_block_bytes.max(info.block_bytes),
            transfer_blocks_max: longest / info.block_bytes,
        }
    }

    /// Number of blocks in a physical block: a power of two.
    pub fn physical_blocks(&self) -> u32 {
        let blocks = self.physical_bytes / self.block_bytes;
        // The field for the exponent has four bits.
        (1 << blocks.max(1).ilog2()).min(1 << 15)
    }

    pub fn write_same_blocks_max(&self) -> u64 {
        WRITE_SAME_BYTES_MAX / u64::from(self.block_bytes)
    }

    pub fn atomic_blocks_max(&self) -> u32 {
        let blocks = self
            .transfer_blocks_max
            .min(ATOMIC_BYTES_MAX / self.block_bytes)
            .max(1);
        let physical = self.physical_blocks();
        if blocks < physical {
            blocks
        } else {
            blocks / physical * physical
        }
    }
}

/// Longest parameter list that a command may send.
pub(in crate::scsi) fn parameter_bytes_max(opcode: u8) -> u32 {
    match opcode {
        op::PERSISTENT_RESERVE_OUT => OUT_LIST_BYTES_MAX,
        _ => 65_535,
    }
}
