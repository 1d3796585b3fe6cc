//! An export as negotiated in a handshake. Created by `handshake`, used by everything that follows.
//!
//! The one rule: a feature is used only if [`NbdExport::has`] its flag.

use brunt_wire::nbd::{NbdBlockSizes, NbdHeaders, PAYLOAD_BYTES_DEFAULT, export_flag};

/// An export's properties, as announced by the server, and the negotiated protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdExport {
    /// Size in bytes; not always a multiple of the block size.
    pub size_bytes: u64,
    /// Transmission flags; see [`export_flag`].
    pub flags: u16,
    /// Block sizes, if announced.
    pub sizes: Option<NbdBlockSizes>,
    /// Headers of requests and replies.
    pub headers: NbdHeaders,
    /// The id of `base:allocation`, if block status can be queried.
    pub allocation_context: Option<u32>,
    /// The canonical name, if different from the requested one.
    pub name: Option<String>,
    /// The description.
    pub description: Option<String>,
    /// Whether the server uses the oldstyle handshake, without options.
    pub oldstyle: bool,
}

impl NbdExport {
    /// An export whose properties are not known yet.
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

    /// The maximum read or write in bytes, rounded down to whole blocks of `block_bytes`.
    pub fn payload_max(&self, block_bytes: u32) -> u32 {
        // Servers may reject requests beyond the default as invalid.
        let announced = self
            .sizes
            .map_or(PAYLOAD_BYTES_DEFAULT, |sizes| sizes.payload_max);
        announced.min(PAYLOAD_BYTES_DEFAULT) / block_bytes * block_bytes
    }

    /// The smallest request size that the server accepts, in bytes.
    pub fn block_bytes_min(&self) -> u32 {
        self.sizes.map_or(1, |sizes| sizes.minimum)
    }

    /// Describes the negotiated protocol.
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
