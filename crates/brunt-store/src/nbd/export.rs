//! An export as it was agreed on in a handshake. Made by `haggling`, used by everything after it.
//!
//! The one rule: a feature is used only where [`NbdExport::has`] its flag.

use brunt_wire::nbd::{NbdBlockSizes, NbdHeaders, PAYLOAD_BYTES_DEFAULT, export_flag};

/// What a server told of an export, and how it is talked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdExport {
    /// In bytes; not always whole blocks.
    pub size_bytes: u64,
    /// See [`export_flag`].
    pub flags: u16,
    /// Block sizes, where the server told them.
    pub sizes: Option<NbdBlockSizes>,
    /// Headers of requests and replies.
    pub headers: NbdHeaders,
    /// The number of `base:allocation`, where block status can be asked for.
    pub allocation_context: Option<u32>,
    /// Its proper name, where it has another than it was asked by.
    pub name: Option<String>,
    /// In words.
    pub description: Option<String>,
    /// The server is of the oldstyle: nothing was chosen.
    pub oldstyle: bool,
}

impl NbdExport {
    /// Nothing is known yet.
    pub(super) fn unknown() -> NbdExport {
        NbdExport {
            size_bytes: 0,
            flags: 0,
            sizes: None,
            headers: NbdHeaders::Simple,
            allocation_context: None,
            name: None,
            description: None,
            oldstyle: false,
        }
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// The longest read or write in bytes: whole blocks of `block_bytes`.
    pub fn payload_max(&self, block_bytes: u32) -> u32 {
        // Beyond the default nobody has to take it for an honest request.
        let told = self
            .sizes
            .map_or(PAYLOAD_BYTES_DEFAULT, |sizes| sizes.payload_max);
        told.min(PAYLOAD_BYTES_DEFAULT) / block_bytes * block_bytes
    }

    /// The smallest unit that the server takes, in bytes.
    pub fn block_bytes_min(&self) -> u32 {
        self.sizes.map_or(1, |sizes| sizes.minimum)
    }

    /// What was agreed, in words.
    pub fn words(&self) -> String {
        let headers = match (self.oldstyle, self.headers) {
            (true, _) => "oldstyle handshake, simple replies",
            (_, NbdHeaders::Simple) => "simple replies",
            (_, NbdHeaders::Structured) => "structured replies",
            (_, NbdHeaders::Extended) => "extended headers",
        };
        let flags = export_flag::NAMES
            .iter()
            .filter(|(flag, _)| self.has(*flag))
            .map(|(_, name)| *name);
        let flags: Vec<&str> = flags.collect();
        let flags = if flags.is_empty() {
            "none".to_string()
        } else {
            flags.join(" ")
        };
        let status = if self.allocation_context.is_some() {
            ", block status"
        } else {
            ""
        };
        format!("NBD: {headers}{status}; flags: {flags}")
    }
}
