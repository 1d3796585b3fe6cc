//! The text keys of RFC 7143, section 13, and their negotiation. Used by both sides: the initiator offers, the target
//! answers, and the same [`Negotiation`] checks offers and answers. The one rule: a key is settled once per login; a
//! repeated key is the peer's error, and so is an answer that the offer doesn't allow.

mod negotiation;
#[cfg(test)]
mod tests;

pub use negotiation::{Negotiation, NegotiationError};

/// A side of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum IscsiRole {
    Initiator,
    Target,
}

/// How a key's value is determined (RFC 7143, 6.2). Ranges are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// One side declares a text; there is no answer.
    DeclareText,
    /// One side declares a number; there is no answer.
    DeclareNumber(u32, u32),
    /// The first of the offered values that the other side supports.
    List(&'static [&'static str]),
    /// Yes if both sides say Yes.
    And,
    /// Yes if at least one side says Yes.
    Or,
    /// The smaller number.
    Min(u32, u32),
    /// The larger number.
    Max(u32, u32),
    /// A key of RFC 3720 that RFC 7143 made obsolete (13.25): answered with this value, never with `NotUnderstood`.
    Obsolete(&'static str),
}

/// When a key may be sent (the use column of RFC 7143, section 13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPhase {
    /// In the first PDUs of a login ("IO").
    InitialOnly,
    /// During login of a session's leading connection ("LO").
    LeadingOnly,
    /// At any time ("ALL").
    Any,
    /// Only in full-feature phase ("FFPO").
    FullFeature,
}

/// Who may send a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Sender {
    Initiator,
    Target,
    Both,
}

/// One row of the key table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextKey {
    /// The key's name on the wire.
    pub name: &'static str,
    /// How the key's value is determined.
    pub rule: Rule,
    /// When the key may be sent.
    pub phase: KeyPhase,
    /// Who may send the key.
    pub sender: Sender,
    /// The key is irrelevant in a discovery session and answered `Irrelevant` there.
    pub irrelevant_in_discovery: bool,
}

const fn key(
    name: &'static str,
    rule: Rule,
    phase: KeyPhase,
    sender: Sender,
    normal_only: bool,
) -> TextKey {
    TextKey {
        name,
        rule,
        phase,
        sender,
        irrelevant_in_discovery: normal_only,
    }
}

/// The largest data segment length that the key can express.
const SEGMENT_MAX: u32 = 0x00ff_ffff;
const DIGESTS: Rule = Rule::List(&["None", "CRC32C"]);

/// All keys of RFC 7143, section 13 (for the authentication keys of section 12, see `chap`).
pub const KEYS: &[TextKey] = {
    use KeyPhase::*;
    use Rule::*;
    use Sender::*;
    &[
        key("HeaderDigest", DIGESTS, InitialOnly, Both, false),
        key("DataDigest", DIGESTS, InitialOnly, Both, false),
        key("MaxConnections", Min(1, 65535), LeadingOnly, Both, true),
        key("SendTargets", DeclareText, FullFeature, Initiator, false),
        key("TargetName", DeclareText, InitialOnly, Both, false),
        key("InitiatorName", DeclareText, InitialOnly, Initiator, false),
        key("TargetAlias", DeclareText, Any, Target, false),
        key("InitiatorAlias", DeclareText, Any, Initiator, false),
        key("TargetAddress", DeclareText, Any, Target, false),
        key(
            "TargetPortalGroupTag",
            DeclareNumber(0, 65535),
            InitialOnly,
            Target,
            false,
        ),
        key("InitialR2T", Or, LeadingOnly, Both, true),
        key("ImmediateData", And, LeadingOnly, Both, true),
        key(
            "MaxRecvDataSegmentLength",
            DeclareNumber(512, SEGMENT_MAX),
            Any,
            Both,
            false,
        ),
        key(
            "MaxBurstLength",
            Min(512, SEGMENT_MAX),
            LeadingOnly,
            Both,
            true,
        ),
        key(
            "FirstBurstLength",
            Min(512, SEGMENT_MAX),
            LeadingOnly,
            Both,
            true,
        ),
        key("DefaultTime2Wait", Max(0, 3600), LeadingOnly, Both, false),
        key("DefaultTime2Retain", Min(0, 3600), LeadingOnly, Both, false),
        key("MaxOutstandingR2T", Min(1, 65535), LeadingOnly, Both, true),
        key("DataPDUInOrder", Or, LeadingOnly, Both, true),
        key("DataSequenceInOrder", Or, LeadingOnly, Both, true),
        key("ErrorRecoveryLevel", Min(0, 2), LeadingOnly, Both, false),
        key("SessionType", DeclareText, LeadingOnly, Initiator, false),
        key(
            "TaskReporting",
            List(&["RFC3720", "ResponseFence", "FastAbort"]),
            LeadingOnly,
            Both,
            true,
        ),
        key("iSCSIProtocolLevel", Min(0, 31), LeadingOnly, Both, true),
        // RFC 7143, 13.25 permits "No" as an alternative to "Reject", which makes RFC 3720-era initiators give up.
        key("OFMarker", Obsolete("No"), LeadingOnly, Both, false),
        key("IFMarker", Obsolete("No"), LeadingOnly, Both, false),
        key("OFMarkInt", Obsolete("Reject"), LeadingOnly, Both, false),
        key("IFMarkInt", Obsolete("Reject"), LeadingOnly, Both, false),
    ]
};

/// The table row of a key; `None` if RFC 7143 doesn't define the key.
pub fn find(name: &str) -> Option<&'static TextKey> {
    KEYS.iter().find(|key| key.name == name)
}

/// A side's preference for a digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestPolicy {
    /// No digest.
    #[default]
    Never,
    /// No digest if that is acceptable to the peer, CRC32C otherwise.
    Allow,
    /// CRC32C if the peer supports it.
    Prefer,
    /// CRC32C or no session.
    Require,
}

impl DigestPolicy {
    /// The values to offer, most preferred first.
    const fn offer(self) -> &'static [&'static str] {
        match self {
            DigestPolicy::Never => &["None"],
            DigestPolicy::Allow => &["None", "CRC32C"],
            DigestPolicy::Prefer => &["CRC32C", "None"],
            DigestPolicy::Require => &["CRC32C"],
        }
    }
}

/// The values of a session and its connection. `default()` returns RFC 7143's defaults, which apply without
/// negotiation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the RFC's names; lengths in bytes, times in seconds
pub struct Params {
    pub header_digest: bool,
    pub data_digest: bool,
    pub max_connections: u16,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    /// The longest data segment that this side accepts.
    pub max_recv_data_segment_length: u32,
    /// The longest data segment that the peer accepts.
    pub peer_max_recv_data_segment_length: u32,
    pub max_burst_length: u32,
    pub first_burst_length: u32,
    pub default_time2wait: u16,
    pub default_time2retain: u16,
    pub max_outstanding_r2t: u16,
    pub data_pdu_in_order: bool,
    pub data_sequence_in_order: bool,
    pub error_recovery_level: u8,
    pub task_reporting: TaskReporting,
    pub protocol_level: u8,
}

/// How aborted tasks are reported (RFC 7143, 13.23).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the RFC's names
pub enum TaskReporting {
    #[default]
    Rfc3720,
    ResponseFence,
    FastAbort,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            header_digest: false,
            data_digest: false,
            max_connections: 1,
            initial_r2t: true,
            immediate_data: true,
            max_recv_data_segment_length: 8192,
            peer_max_recv_data_segment_length: 8192,
            max_burst_length: 262_144,
            first_burst_length: 65_536,
            default_time2wait: 2,
            default_time2retain: 20,
            max_outstanding_r2t: 1,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            task_reporting: TaskReporting::Rfc3720,
            protocol_level: 1,
        }
    }
}

/// A side's preferred values. Digests have an order of preference, other keys a single value; `header_digest` and
/// `data_digest` in `values` are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferences {
    /// Preference for the header digest.
    pub header_digest: DigestPolicy,
    /// Preference for the data digest.
    pub data_digest: DigestPolicy,
    /// Preferences for all other keys.
    pub values: Params,
}

impl Default for Preferences {
    /// Optimized for speed: large segments, and unsolicited data where possible.
    fn default() -> Preferences {
        Preferences {
            header_digest: DigestPolicy::Allow,
            data_digest: DigestPolicy::Allow,
            values: Params {
                initial_r2t: false,
                immediate_data: true,
                // 1 MiB: the overhead of one header per megabyte is negligible, and the data of different commands
                // still interleaves.
                max_recv_data_segment_length: 1 << 20,
                max_burst_length: SEGMENT_MAX & !0xfff,
                first_burst_length: 262_144,
                default_time2wait: 0,
                default_time2retain: 0,
                max_outstanding_r2t: 8,
                ..Params::default()
            },
        }
    }
}
