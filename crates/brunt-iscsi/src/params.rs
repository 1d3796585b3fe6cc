//! The text keys of RFC 7143, section 13, and their negotiation. Used by both sides: the initiator offers, the target
//! answers, and the same [`Negotiation`] checks offers and answers. The one rule: a key is settled once per login; a
//! repeated key is the peer's error, and so is an answer that the offer doesn't allow.

use brunt_wire::iscsi::text::parse_number;

/// The side of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum IscsiRole {
    Initiator,
    Target,
}

/// How a key's value is determined (RFC 7143, 6.2). Ranges are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// One side declares a text, without an answer.
    DeclareText,
    /// One side declares a number, without an answer.
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
    /// How its value is determined.
    pub rule: Rule,
    /// When it may be sent.
    pub phase: KeyPhase,
    /// Who may send it.
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

/// The row of a key; `None` if RFC 7143 doesn't define it.
pub fn find(name: &str) -> Option<&'static TextKey> {
    KEYS.iter().find(|key| key.name == name)
}

/// A side's preference for a digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestPolicy {
    /// No digest.
    #[default]
    Never,
    /// No digest if the peer accepts that, CRC32C otherwise.
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
#[allow(missing_docs)] // the RFC's own names; lengths in bytes, times in seconds
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
#[allow(missing_docs)] // the RFC's own names
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
pub struct Wishes {
    /// Preference for the header digest.
    pub header_digest: DigestPolicy,
    /// Preference for the data digest.
    pub data_digest: DigestPolicy,
    /// Preferences for all other keys.
    pub values: Params,
}

impl Default for Wishes {
    /// Optimized for speed: large segments, and unsolicited data where possible.
    fn default() -> Wishes {
        Wishes {
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

/// The peer violated the negotiation rules, which ends the login.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NegotiationError {
    /// A repeated key.
    #[error("the peer sent {0} twice in one login")]
    Twice(&'static str),
    /// A value that is invalid for the key.
    #[error("the peer declared {0}={1}, which is not a valid value")]
    Illegal(&'static str, String),
    /// An answer that the offer does not allow.
    #[error("the peer responded with {0}={1} to an offer of {2}")]
    BadAnswer(&'static str, String, String),
    /// A key that this side may not send, or not at this time.
    #[error("the peer must not send {0} here")]
    NotAllowed(&'static str),
    /// There is no common value, and the key is required.
    #[error("no common value for {0}: the peer offered {1}")]
    NoAgreement(&'static str, String),
}

/// One side's negotiation of operational keys in a login.
#[derive(Clone, Debug)]
pub struct Negotiation {
    role: IscsiRole,
    wishes: Wishes,
    /// Whether this is a discovery session (known once `SessionType` is).
    discovery: bool,
    /// Whether this is the session's first connection; keys of [`KeyPhase::LeadingOnly`] are negotiated only then.
    leading: bool,
    values: Params,
    /// One bit per row of [`KEYS`]: offered by us and not answered yet.
    offered: u32,
    /// One bit per row of [`KEYS`]: settled.
    settled: u32,
}

const _: () = assert!(KEYS.len() <= 32, "the bit sets hold 32 keys");

impl Negotiation {
    /// Starts a negotiation. For a connection that joins a session, use [`Negotiation::joining`] with the session's
    /// values.
    pub fn new(role: IscsiRole, wishes: Wishes, discovery: bool) -> Negotiation {
        Negotiation {
            role,
            wishes,
            discovery,
            leading: true,
            values: Params::default(),
            offered: 0,
            settled: 0,
        }
    }

    /// Starts a negotiation for an additional connection of a session, whose session-wide values are already settled.
    pub fn joining(role: IscsiRole, wishes: Wishes, session: &Params) -> Negotiation {
        let defaults = Params::default();
        let values = Params {
            header_digest: defaults.header_digest,
            data_digest: defaults.data_digest,
            max_recv_data_segment_length: defaults.max_recv_data_segment_length,
            peer_max_recv_data_segment_length: defaults.peer_max_recv_data_segment_length,
            ..session.clone()
        };
        Negotiation {
            leading: false,
            values,
            ..Negotiation::new(role, wishes, false)
        }
    }

    /// The values so far.
    pub fn values(&self) -> &Params {
        &self.values
    }

    /// Whether all our offers have been answered.
    pub fn is_settled(&self) -> bool {
        self.offered == 0
    }

    /// Whether a digest that this side requires was not negotiated, for example because the peer
    /// didn't offer it.
    pub fn lacks_digest(&self) -> bool {
        let lacks = |wish: DigestPolicy, value: bool| wish == DigestPolicy::Require && !value;
        lacks(self.wishes.header_digest, self.values.header_digest)
            || lacks(self.wishes.data_digest, self.values.data_digest)
    }

    /// The initiator's offers, in sending order. Call once.
    pub fn offers(&mut self) -> Vec<(&'static str, String)> {
        let mut offers = Vec::new();
        for (index, key) in KEYS.iter().enumerate() {
            let Some(value) = self.offer_of(key) else {
                continue;
            };
            if key.rule == Rule::DeclareNumber(512, SEGMENT_MAX) {
                self.values.max_recv_data_segment_length = self
                    .wishes
                    .values
                    .max_recv_data_segment_length
                    .clamp(512, SEGMENT_MAX);
                // A declaration has no answer; the peer makes its own under the same name.
            } else {
                self.offered |= 1 << index;
            }
            // These offers determine the result, so peers needn't answer them (RFC 7143, 6.2.2); the Linux target
            // doesn't.
            match (key.rule, value.as_str()) {
                (Rule::And, "No") => self.store_bool(key.name, false),
                (Rule::Or, "Yes") => self.store_bool(key.name, true),
                _ => {}
            }
            offers.push((key.name, value));
        }
        offers
    }

    /// This side's declaration of `MaxRecvDataSegmentLength`,
    /// for the target's first operational response.
    pub fn declare_segment(&mut self) -> (&'static str, String) {
        let length = self
            .wishes
            .values
            .max_recv_data_segment_length
            .clamp(512, SEGMENT_MAX);
        self.values.max_recv_data_segment_length = length;
        ("MaxRecvDataSegmentLength", length.to_string())
    }

    fn offer_of(&self, key: &TextKey) -> Option<String> {
        if (key.irrelevant_in_discovery && self.discovery)
            || (key.phase == KeyPhase::LeadingOnly && !self.leading)
        {
            return None;
        }
        self.own_value(key)
    }

    /// Our preferred value for a negotiable key, as text.
    fn own_value(&self, key: &TextKey) -> Option<String> {
        let w = &self.wishes.values;
        let yes = |value: bool| if value { "Yes" } else { "No" }.to_string();
        Some(match key.name {
            "HeaderDigest" => self.wishes.header_digest.offer().join(","),
            "DataDigest" => self.wishes.data_digest.offer().join(","),
            "MaxConnections" => w.max_connections.to_string(),
            "InitialR2T" => yes(w.initial_r2t),
            "ImmediateData" => yes(w.immediate_data),
            "MaxRecvDataSegmentLength" => w
                .max_recv_data_segment_length
                .clamp(512, SEGMENT_MAX)
                .to_string(),
            "MaxBurstLength" => w.max_burst_length.to_string(),
            "FirstBurstLength" => w.first_burst_length.min(w.max_burst_length).to_string(),
            "DefaultTime2Wait" => w.default_time2wait.to_string(),
            "DefaultTime2Retain" => w.default_time2retain.to_string(),
            "MaxOutstandingR2T" => w.max_outstanding_r2t.to_string(),
            "DataPDUInOrder" => yes(w.data_pdu_in_order),
            "DataSequenceInOrder" => yes(w.data_sequence_in_order),
            "ErrorRecoveryLevel" => w.error_recovery_level.to_string(),
            // TaskReporting and iSCSIProtocolLevel are not offered: we use their defaults, and RFC 3720-era peers don't
            // know them.
            _ => return None,
        })
    }

    /// Processes all pairs of a request or response and returns the answers, in order. The caller must remove keys that
    /// are not in section 13 (authentication).
    ///
    /// # Errors
    /// See [`NegotiationError`].
    pub fn on_pairs<'a>(
        &mut self,
        pairs: &[(&'a str, &str)],
    ) -> Result<Vec<(&'a str, String)>, NegotiationError> {
        // FirstBurstLength must not exceed MaxBurstLength, so the latter is settled first, regardless of their order in
        // the PDU. Whether FirstBurstLength is relevant also depends on InitialR2T and ImmediateData.
        let rank = |name: &str| match name {
            "SessionType" => 0,
            "FirstBurstLength" => 2,
            _ => 1,
        };
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        order.sort_by_key(|&index| rank(pairs[index].0));
        let mut answers: Vec<Option<String>> = vec![None; pairs.len()];
        for index in order {
            let (name, value) = pairs[index];
            answers[index] = self.on_pair(name, value)?;
        }
        Ok(pairs
            .iter()
            .zip(answers)
            .filter_map(|(pair, answer)| Some((pair.0, answer?)))
            .collect())
    }

    /// Processes one pair and returns the answer, if any.
    fn on_pair(&mut self, name: &str, value: &str) -> Result<Option<String>, NegotiationError> {
        let Some(index) = KEYS.iter().position(|key| key.name == name) else {
            // An unknown key is answered, unless its value is itself such an answer (RFC 7143, 6.2).
            return Ok((!is_reserved(value)).then(|| "NotUnderstood".to_string()));
        };
        let key = &KEYS[index];
        let bit = 1 << index;
        if self.offered & bit != 0 {
            self.offered &= !bit;
            self.settled |= bit;
            return self.on_answer(key, value).map(|()| None);
        }
        if self.settled & bit != 0 {
            return Err(NegotiationError::Twice(key.name));
        }
        self.settled |= bit;
        let peer = if self.role == IscsiRole::Target {
            Sender::Initiator
        } else {
            Sender::Target
        };
        if key.sender != Sender::Both && key.sender != peer {
            return Err(NegotiationError::NotAllowed(key.name));
        }
        if key.phase == KeyPhase::FullFeature {
            return Ok(Some("Reject".to_string()));
        }
        if key.irrelevant_in_discovery && self.discovery {
            return Ok(Some("Irrelevant".to_string()));
        }
        // Additional connections can't change the session (RFC 7143, 6.3).
        if key.phase == KeyPhase::LeadingOnly && !self.leading && key.name != "SessionType" {
            return Ok(Some("Reject".to_string()));
        }
        self.on_offer(key, value)
    }

    /// (Long because it is a table: a few lines for each kind of rule.)
    fn on_offer(
        &mut self,
        key: &'static TextKey,
        value: &str,
    ) -> Result<Option<String>, NegotiationError> {
        match key.rule {
            Rule::DeclareText => {
                if key.name == "SessionType" {
                    self.discovery = match value {
                        "Discovery" => true,
                        "Normal" => false,
                        _ => return Err(NegotiationError::Illegal(key.name, value.to_string())),
                    };
                }
                Ok(None)
            }
            Rule::DeclareNumber(min, max) => {
                let number = number_in(value, min, max)
                    .ok_or_else(|| NegotiationError::Illegal(key.name, value.to_string()))?;
                self.store_number(key.name, number);
                Ok(None)
            }
            Rule::Obsolete(answer) => Ok(Some(answer.to_string())),
            _ if is_reserved(value) => Err(NegotiationError::BadAnswer(
                key.name,
                value.to_string(),
                "nothing".to_string(),
            )),
            Rule::List(known) => {
                let ours: &[&str] = match key.name {
                    "HeaderDigest" => self.wishes.header_digest.offer(),
                    "DataDigest" => self.wishes.data_digest.offer(),
                    // We implement RFC 3720's behaviour: responses to the other commands of a nexus aren't fenced.
                    _ => &known[..1],
                };
                let theirs: Vec<&str> = value.split(',').collect();
                let wants_digest = matches!(ours.first(), Some(&"CRC32C"));
                // The responder takes the first value in the list that it supports. A responder that prefers a digest,
                // and finds it in the list, may act as if it did not support None.
                let chosen = if wants_digest && theirs.contains(&"CRC32C") {
                    Some("CRC32C")
                } else {
                    theirs.iter().find(|name| ours.contains(name)).copied()
                };
                match chosen {
                    Some(chosen) => {
                        self.store_list(key.name, chosen);
                        Ok(Some(chosen.to_string()))
                    }
                    None if key.name.ends_with("Digest") && ours == ["CRC32C"] => {
                        Err(NegotiationError::NoAgreement(key.name, value.to_string()))
                    }
                    None => Ok(Some("Reject".to_string())),
                }
            }
            Rule::And | Rule::Or => {
                let Some(theirs) = yes_no(value) else {
                    return Ok(Some("Reject".to_string()));
                };
                let ours = self.own_value(key).as_deref() == Some("Yes");
                let result = if key.rule == Rule::And {
                    ours && theirs
                } else {
                    ours || theirs
                };
                self.store_bool(key.name, result);
                Ok(Some(if result { "Yes" } else { "No" }.to_string()))
            }
            Rule::Min(min, max) | Rule::Max(min, max) => {
                let Some(theirs) = number_in(value, min, max) else {
                    return Ok(Some("Reject".to_string()));
                };
                if key.name == "FirstBurstLength"
                    && self.values.initial_r2t
                    && !self.values.immediate_data
                {
                    return Ok(Some("Irrelevant".to_string())); // RFC 7143, 13.14
                }
                let ours = match key.name {
                    "iSCSIProtocolLevel" => 1, // RFC 7143 itself
                    "FirstBurstLength" => self
                        .wishes
                        .values
                        .first_burst_length
                        .min(self.values.max_burst_length),
                    _ => self
                        .own_value(key)
                        .and_then(|v| v.parse().ok())
                        .unwrap_or(theirs),
                };
                let result = if matches!(key.rule, Rule::Max(..)) {
                    ours.max(theirs)
                } else {
                    ours.min(theirs)
                };
                let result = result.clamp(min, max);
                self.store_number(key.name, result);
                Ok(Some(result.to_string()))
            }
        }
    }

    /// Processes the peer's answer to one of our offers.
    fn on_answer(&mut self, key: &'static TextKey, value: &str) -> Result<(), NegotiationError> {
        let offer = self.own_value(key).unwrap_or_default();
        let bad = || NegotiationError::BadAnswer(key.name, value.to_string(), offer.clone());
        if value == "Irrelevant" {
            return Ok(()); // the default remains and doesn't matter
        }
        match key.rule {
            Rule::List(_) => {
                if !offer.split(',').any(|name| name == value) {
                    return Err(bad());
                }
                self.store_list(key.name, value);
            }
            Rule::And | Rule::Or => {
                let theirs = yes_no(value).ok_or_else(bad)?;
                let ours = offer == "Yes";
                // Impossible results: No with And gives No, Yes with Or gives Yes.
                if (key.rule == Rule::And && theirs && !ours)
                    || (key.rule == Rule::Or && !theirs && ours)
                {
                    return Err(bad());
                }
                self.store_bool(key.name, theirs);
            }
            Rule::Min(min, max) | Rule::Max(min, max) => {
                let theirs = number_in(value, min, max).ok_or_else(bad)?;
                let ours: u32 = offer.parse().unwrap_or(theirs);
                let fits = if matches!(key.rule, Rule::Max(..)) {
                    theirs >= ours
                } else {
                    theirs <= ours
                };
                if !fits {
                    return Err(bad());
                }
                self.store_number(key.name, theirs);
            }
            Rule::DeclareText | Rule::DeclareNumber(..) | Rule::Obsolete(_) => return Err(bad()),
        }
        Ok(())
    }

    fn store_bool(&mut self, name: &str, value: bool) {
        let v = &mut self.values;
        match name {
            "InitialR2T" => v.initial_r2t = value,
            "ImmediateData" => v.immediate_data = value,
            "DataPDUInOrder" => v.data_pdu_in_order = value,
            "DataSequenceInOrder" => v.data_sequence_in_order = value,
            _ => unreachable!("{name} is not a boolean key of the table"),
        }
    }

    fn store_list(&mut self, name: &str, value: &str) {
        let v = &mut self.values;
        match name {
            "HeaderDigest" => v.header_digest = value == "CRC32C",
            "DataDigest" => v.data_digest = value == "CRC32C",
            "TaskReporting" => {
                v.task_reporting = match value {
                    "ResponseFence" => TaskReporting::ResponseFence,
                    "FastAbort" => TaskReporting::FastAbort,
                    _ => TaskReporting::Rfc3720,
                }
            }
            _ => unreachable!("{name} is not a list key of the table"),
        }
    }

    /// The table's ranges fit in the fields.
    fn store_number(&mut self, name: &str, value: u32) {
        let v = &mut self.values;
        match name {
            "MaxConnections" => v.max_connections = value as u16,
            "MaxRecvDataSegmentLength" => v.peer_max_recv_data_segment_length = value,
            "MaxBurstLength" => v.max_burst_length = value,
            "FirstBurstLength" => v.first_burst_length = value,
            "DefaultTime2Wait" => v.default_time2wait = value as u16,
            "DefaultTime2Retain" => v.default_time2retain = value as u16,
            "MaxOutstandingR2T" => v.max_outstanding_r2t = value as u16,
            "ErrorRecoveryLevel" => v.error_recovery_level = value as u8,
            "iSCSIProtocolLevel" => v.protocol_level = value as u8,
            "TargetPortalGroupTag" => {}
            _ => unreachable!("{name} is not a number key of the table"),
        }
    }
}

/// The reserved answers, which are not values (RFC 7143, 6.2).
fn is_reserved(value: &str) -> bool {
    matches!(value, "NotUnderstood" | "Irrelevant" | "Reject")
}

fn yes_no(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

fn number_in(value: &str, min: u32, max: u32) -> Option<u32> {
    parse_number(value)
        .and_then(|n| u32::try_from(n).ok())
        .filter(|n| (min..=max).contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Negotiation {
        Negotiation::new(IscsiRole::Target, Wishes::default(), false)
    }

    /// Every key of section 13 is answered as its row requires.
    #[test]
    fn target_answers_every_key() {
        let check = |offer: (&str, &str), answer: Option<&str>| {
            let answers = target().on_pairs(&[offer]).unwrap();
            assert_eq!(
                answers.first().map(|a| a.1.as_str()),
                answer,
                "{}={}",
                offer.0,
                offer.1
            );
        };
        check(("HeaderDigest", "CRC32C,None"), Some("CRC32C"));
        check(("HeaderDigest", "None,CRC32C"), Some("None"));
        check(("DataDigest", "X-md5,None"), Some("None"));
        check(("DataDigest", "X-md5"), Some("Reject"));
        check(("MaxConnections", "8"), Some("1"));
        check(("MaxConnections", "0"), Some("Reject"));
        check(("MaxConnections", "65536"), Some("Reject"));
        check(("InitialR2T", "Yes"), Some("Yes"));
        check(("InitialR2T", "No"), Some("No"));
        check(("InitialR2T", "Maybe"), Some("Reject"));
        check(("ImmediateData", "No"), Some("No"));
        check(("ImmediateData", "Yes"), Some("Yes"));
        check(("MaxRecvDataSegmentLength", "262144"), None);
        check(("MaxBurstLength", "0x40000"), Some("262144"));
        check(("FirstBurstLength", "1048576"), Some("262144"));
        check(("DefaultTime2Wait", "2"), Some("2"));
        check(("DefaultTime2Retain", "20"), Some("0"));
        check(("MaxOutstandingR2T", "4"), Some("4"));
        check(("DataPDUInOrder", "No"), Some("Yes"));
        check(("DataSequenceInOrder", "No"), Some("Yes"));
        check(("ErrorRecoveryLevel", "2"), Some("0"));
        check(
            ("TaskReporting", "FastAbort,ResponseFence,RFC3720"),
            Some("RFC3720"),
        );
        check(("iSCSIProtocolLevel", "2"), Some("1"));
        check(("OFMarker", "Yes"), Some("No"));
        check(("IFMarker", "No"), Some("No"));
        check(("OFMarkInt", "2048~8192"), Some("Reject"));
        check(("IFMarkInt", "2048"), Some("Reject"));
        check(("InitiatorAlias", "me"), None);
        check(("X-com.example.key", "1"), Some("NotUnderstood"));
        check(("X-com.example.key", "NotUnderstood"), None);
        check(("SendTargets", "All"), Some("Reject"));
    }

    /// A value that the table forbids is an error and gets no answer.
    #[test]
    fn values_that_the_table_forbids_are_refused() {
        let check =
            |pairs: &[(&str, &str)]| assert!(target().on_pairs(pairs).is_err(), "{pairs:?}");
        check(&[("MaxRecvDataSegmentLength", "511")]);
        check(&[("MaxRecvDataSegmentLength", "16777216")]);
        check(&[("MaxRecvDataSegmentLength", "many")]);
        check(&[("ImmediateData", "Yes"), ("ImmediateData", "Yes")]);
        check(&[("TargetAlias", "not yours to say")]);
        check(&[("SessionType", "Other")]);
        check(&[("MaxBurstLength", "Irrelevant")]);
        let wishes = Wishes {
            header_digest: DigestPolicy::Require,
            ..Wishes::default()
        };
        let mut strict = Negotiation::new(IscsiRole::Target, wishes, false);
        assert!(strict.on_pairs(&[("HeaderDigest", "None")]).is_err());
    }

    /// FirstBurstLength stays within MaxBurstLength, whatever their order.
    #[test]
    fn first_burst_length_stays_within_max_burst_length() {
        let mut negotiation = target();
        let pairs = [("FirstBurstLength", "262144"), ("MaxBurstLength", "65536")];
        let answers = negotiation.on_pairs(&pairs).unwrap();
        assert_eq!(
            answers,
            [
                ("FirstBurstLength", "65536".into()),
                ("MaxBurstLength", "65536".into())
            ]
        );
        let mut negotiation = target();
        let pairs = [
            ("FirstBurstLength", "65536"),
            ("InitialR2T", "Yes"),
            ("ImmediateData", "No"),
        ];
        assert_eq!(negotiation.on_pairs(&pairs).unwrap()[0].1, "Irrelevant");
    }

    /// In discovery, keys for normal sessions are irrelevant, and all other keys are not.
    #[test]
    fn in_discovery_the_keys_of_normal_sessions_are_irrelevant() {
        let mut negotiation = target();
        let pairs = [
            ("MaxBurstLength", "65536"),
            ("SessionType", "Discovery"),
            ("DefaultTime2Wait", "5"),
        ];
        let answers = negotiation.on_pairs(&pairs).unwrap();
        assert_eq!(
            answers,
            [
                ("MaxBurstLength", "Irrelevant".into()),
                ("DefaultTime2Wait", "5".into())
            ]
        );
    }

    /// Both sides of this crate agree on the same values.
    #[test]
    fn both_ends_agree() {
        let wishes = Wishes {
            data_digest: DigestPolicy::Prefer,
            ..Wishes::default()
        };
        let mut initiator = Negotiation::new(IscsiRole::Initiator, wishes, false);
        let mut target = target();
        let offers = initiator.offers();
        let pairs: Vec<(&str, &str)> = offers.iter().map(|(k, v)| (*k, v.as_str())).collect();
        let mut answers = target.on_pairs(&pairs).unwrap();
        answers.push(target.declare_segment());
        let pairs: Vec<(&str, &str)> = answers.iter().map(|(k, v)| (*k, v.as_str())).collect();
        assert_eq!(initiator.on_pairs(&pairs).unwrap(), []);
        assert!(initiator.is_settled() && target.is_settled());
        assert_eq!(initiator.values(), target.values());
        assert!(target.values().data_digest && !target.values().header_digest);
        assert_eq!(target.values().max_outstanding_r2t, 8);
    }

    /// Offers that determine the result need no answer: "No" if both sides must say Yes, "Yes" if one side suffices.
    #[test]
    fn offers_that_determine_the_result_need_no_answer() {
        let values = Params {
            immediate_data: false,
            initial_r2t: true,
            ..Params::default()
        };
        let wishes = Wishes {
            values,
            ..Wishes::default()
        };
        let mut initiator = Negotiation::new(IscsiRole::Initiator, wishes, false);
        initiator.offers();
        initiator.on_pairs(&[("MaxBurstLength", "65536")]).unwrap();
        assert!(!initiator.values().immediate_data && initiator.values().initial_r2t);
        // An answer, if sent, must repeat the result.
        initiator.on_pairs(&[("InitialR2T", "Yes")]).unwrap();
        assert!(initiator.on_pairs(&[("ImmediateData", "Yes")]).is_err());
    }

    /// An answer outside the offer ends the login.
    #[test]
    fn an_answer_outside_the_offer_ends_the_login() {
        let check = |pair: (&str, &str)| {
            let mut initiator = Negotiation::new(IscsiRole::Initiator, Wishes::default(), false);
            initiator.offers();
            assert!(initiator.on_pairs(&[pair]).is_err(), "{pair:?}");
        };
        check(("MaxBurstLength", "16777215"));
        check(("MaxOutstandingR2T", "9"));
        check(("MaxOutstandingR2T", "Reject"));
        check(("HeaderDigest", "X-other"));
        check(("ErrorRecoveryLevel", "1"));
        check(("DataPDUInOrder", "No"));
        check(("InitialR2T", "perhaps"));
    }

    /// An additional connection keeps the session's values and negotiates only its own.
    #[test]
    fn a_joining_connection_keeps_the_sessions_values() {
        let session = Params {
            max_burst_length: 4096,
            header_digest: true,
            ..Params::default()
        };
        let mut negotiation = Negotiation::joining(IscsiRole::Target, Wishes::default(), &session);
        let answers = negotiation
            .on_pairs(&[("MaxBurstLength", "65536"), ("HeaderDigest", "None")])
            .unwrap();
        assert_eq!(
            answers,
            [
                ("MaxBurstLength", "Reject".into()),
                ("HeaderDigest", "None".into())
            ]
        );
        assert_eq!(negotiation.values().max_burst_length, 4096);
        assert!(!negotiation.values().header_digest);
    }

    /// The table names each key only once.
    #[test]
    fn names_are_unique() {
        for (index, key) in KEYS.iter().enumerate() {
            assert_eq!(
                KEYS.iter().position(|other| other.name == key.name),
                Some(index)
            );
            assert_eq!(find(key.name), Some(key));
        }
    }
}
