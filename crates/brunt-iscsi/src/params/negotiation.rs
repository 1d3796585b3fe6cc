//! The negotiation of operational keys (RFC 7143, 6.2), from either side: what to offer, how to answer an offer, and
//! which answers to accept.

use brunt_wire::iscsi::text::parse_number;

use super::{DigestPolicy, TaskReporting};
use super::{IscsiRole, KEYS, KeyPhase, Params, Preferences, Rule, SEGMENT_MAX, Sender, TextKey};

/// A violation of the negotiation rules by the peer, which ends the login.
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
    /// No common value exists, and the key is required.
    #[error("no common value for {0}: the peer offered {1}")]
    NoAgreement(&'static str, String),
}

/// One side's negotiation of operational keys in a login.
#[derive(Clone, Debug)]
pub struct Negotiation {
    role: IscsiRole,
    wishes: Preferences,
    /// Whether this is a discovery session (known once `SessionType` is known).
    discovery: bool,
    /// Whether this is the session's first connection; keys of [`KeyPhase::LeadingOnly`] are negotiated only then.
    leading: bool,
    values: Params,
    /// One bit per row of [`KEYS`]: offered by us and not answered yet.
    offered: u32,
    /// One bit per row of [`KEYS`]: settled.
    settled: u32,
}

const _: () = assert!(KEYS.len() <= 32, "the bit sets have room for 32 keys");

impl Negotiation {
    /// Starts a negotiation. For a connection that joins a session, use [`Negotiation::joining`] with the session's
    /// values.
    pub fn new(role: IscsiRole, wishes: Preferences, discovery: bool) -> Negotiation {
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
    pub fn joining(role: IscsiRole, wishes: Preferences, session: &Params) -> Negotiation {
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
                // A declaration has no answer; the peer makes its own declaration under the same name.
            } else {
                self.offered |= 1 << index;
            }
            // These offers determine the result, so peers needn't answer them (RFC 7143, 6.2.2), and the Linux target
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
            // An unknown key is answered with `NotUnderstood`, unless its value is itself such an answer (RFC 7143,
            // 6.2).
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

    /// Processes an offer by the rule of its key.
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
            Rule::List(known) => self.on_list_offer(key, known, value),
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
            Rule::Min(min, max) | Rule::Max(min, max) => self.on_number_offer(key, min, max, value),
        }
    }

    fn on_list_offer(
        &mut self,
        key: &'static TextKey,
        known: &'static [&'static str],
        value: &str,
    ) -> Result<Option<String>, NegotiationError> {
        let ours: &[&str] = match key.name {
            "HeaderDigest" => self.wishes.header_digest.offer(),
            "DataDigest" => self.wishes.data_digest.offer(),
            // We implement RFC 3720's behaviour: responses to the nexus's other commands aren't fenced.
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

    fn on_number_offer(
        &mut self,
        key: &'static TextKey,
        min: u32,
        max: u32,
        value: &str,
    ) -> Result<Option<String>, NegotiationError> {
        let Some(theirs) = number_in(value, min, max) else {
            return Ok(Some("Reject".to_string()));
        };
        if key.name == "FirstBurstLength" && self.values.initial_r2t && !self.values.immediate_data
        {
            return Ok(Some("Irrelevant".to_string())); // RFC 7143, 13.14
        }
        let ours = match key.name {
            "iSCSIProtocolLevel" => 1, // the value that stands for RFC 7143 itself
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
                // Impossible results: the offer No with the rule And gives No; Yes with Or gives Yes.
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
