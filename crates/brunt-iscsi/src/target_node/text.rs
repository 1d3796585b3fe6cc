//! Text requests in full-feature phase (RFC 7143, 11.10): SendTargets, and keys that may change at any time. Called by
//! `connection`. The one rule: the collected request and the rest of a response are bounded and belong to one exchange
//! at a time.

use brunt_wire::iscsi::pdu::{FLAG_FINAL, RESERVED_TAG, TextRequest, TextResponse, U24, code};
use brunt_wire::iscsi::text::{parse_number, parse_pairs, push_pair};

use super::connection::ConnectionIo;
use super::login::TEXT_BYTES_MAX;
use crate::params::{self, KeyPhase, Params, Rule};

/// The exchange in progress, if any.
#[derive(Debug, Default)]
pub struct TextExchange {
    /// The text of continued requests so far.
    request: Vec<u8>,
    /// The part of the response that didn't fit in one PDU.
    rest: Vec<u8>,
    /// The tag with which the initiator continues.
    ttt: Option<u32>,
}

impl TextExchange {
    /// Processes a request; returns the response (without sequence numbers) and its data. `ttt` is
    /// an unused tag.
    ///
    /// # Errors
    /// The reason for rejecting the request (RFC 7143, 11.17.1).
    pub fn on_request(
        &mut self,
        request: &TextRequest,
        data: &[u8],
        ttt: u32,
        discovery: bool,
        params: &mut Params,
        io: &impl ConnectionIo,
    ) -> Result<(TextResponse, Vec<u8>), u8> {
        let given = request.target_transfer_tag.get();
        let continues = given != RESERVED_TAG;
        if continues && self.ttt != Some(given) {
            return Err(code::reject::INVALID_PDU_FIELD);
        }
        if !continues {
            // A new request ends the old exchange (11.10.4).
            *self = TextExchange::default();
        }
        if self.request.len() + data.len() > TEXT_BYTES_MAX {
            *self = TextExchange::default();
            return Err(code::reject::PROTOCOL_ERROR);
        }
        self.request.extend_from_slice(data);
        let mut response = TextResponse {
            lun: request.lun,
            initiator_task_tag: request.initiator_task_tag,
            target_transfer_tag: RESERVED_TAG.into(),
            ..TextResponse::default()
        };
        if request.flags & code::text::CONTINUE != 0 {
            self.ttt = Some(ttt);
            response.target_transfer_tag = ttt.into();
            return Ok((response, Vec::new()));
        }
        if self.rest.is_empty() {
            let text = std::mem::take(&mut self.request);
            self.rest = answer(&text, discovery, params, io)?;
        }
        let room = params.peer_max_recv_data_segment_length as usize;
        let mut data = std::mem::take(&mut self.rest);
        if data.len() > room {
            self.rest = data.split_off(room);
            self.ttt = Some(ttt);
            response.flags = code::text::CONTINUE;
            response.target_transfer_tag = ttt.into();
        } else {
            self.ttt = None;
            response.flags = FLAG_FINAL;
        }
        response.data_segment_length = U24::new(data.len() as u32);
        Ok((response, data))
    }
}

fn answer(
    text: &[u8],
    discovery: bool,
    params: &mut Params,
    io: &impl ConnectionIo,
) -> Result<Vec<u8>, u8> {
    let pairs = parse_pairs(text).map_err(|_| code::reject::PROTOCOL_ERROR)?;
    let mut out = Vec::new();
    let mut understood = pairs.is_empty();
    for (name, value) in pairs {
        if name == "SendTargets" {
            send_targets(value, discovery, io, &mut out)?;
            understood = true;
            continue;
        }
        understood |= params::find(name).is_some();
        match params::find(name) {
            None if matches!(value, "NotUnderstood" | "Irrelevant" | "Reject") => {}
            None => push_pair(&mut out, name, "NotUnderstood"),
            Some(key) if key.name == "MaxRecvDataSegmentLength" => {
                let Rule::DeclareNumber(min, max) = key.rule else {
                    unreachable!("the key table declares a number for this key")
                };
                match parse_number(value)
                    .and_then(|n| u32::try_from(n).ok())
                    .filter(|n| (min..=max).contains(n))
                {
                    Some(length) => params.peer_max_recv_data_segment_length = length,
                    None => return Err(code::reject::PROTOCOL_ERROR),
                }
            }
            Some(key) if key.phase == KeyPhase::Any => {}
            // This key was negotiated at login, and can't be negotiated again (RFC 7143, 6.4).
            Some(_) => push_pair(&mut out, name, "Reject"),
        }
    }
    // NotUnderstood is meant for one key among others (RFC 7143, 6.2). A request that has only such keys is rejected:
    // initiators that send a single key understand no other response (libiscsi drops the connection when it receives
    // a key that it did not expect).
    if !understood && !out.is_empty() {
        return Err(code::reject::PROTOCOL_ERROR);
    }
    Ok(out)
}

/// In a normal session, an empty value asks about the session's target (RFC 7143, appendix C). `All` is for discovery
/// sessions, but some peers use it in normal sessions and other targets respond to it; in that case, the response
/// contains only the session's target.
///
/// # Errors
/// The reason for the reject: the value is invalid for this key, or empty in a discovery session.
fn send_targets(
    value: &str,
    discovery: bool,
    io: &impl ConnectionIo,
    out: &mut Vec<u8>,
) -> Result<(), u8> {
    let mut targets = io.describe_targets();
    let is_name = ["iqn.", "eui.", "naa."].iter().any(|kind| {
        value
            .get(..4)
            .is_some_and(|start| start.eq_ignore_ascii_case(kind))
    });
    match value {
        "All" => {}
        "" if !discovery => {}
        // An unknown name returns no records.
        wanted if is_name => targets.retain(|(name, _)| name.eq_ignore_ascii_case(wanted)),
        _ => return Err(code::reject::PROTOCOL_ERROR),
    }
    for (name, addresses) in targets {
        push_pair(out, "TargetName", &name);
        for address in addresses {
            push_pair(out, "TargetAddress", &address);
        }
    }
    Ok(())
}
