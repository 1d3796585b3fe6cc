//! The initiator side of SendTargets in a discovery session (RFC 7143, appendix C). Called by `connect` after logging
//! in to such a session. The one rule: a target's list is bounded in bytes and in records.

use brunt_wire::iscsi::pdu::{self, Bhs, Opcode, RESERVED_TAG, TextRequest, TextResponse, U24};
use brunt_wire::iscsi::text::{parse_pairs, push_pair};
use zerocopy::IntoBytes;

use super::login::{InitiatorLogin, TAG, whole_pdu};
use super::login_error::LoginError;

/// Maximum number of target records in one discovery.
const TARGETS_MAX: usize = 65_536;

/// A target and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// The target's iSCSI name.
    pub name: String,
    /// `host[:port],portal group`, as sent by the target.
    pub addresses: Vec<String>,
}

/// SendTargets in a discovery session (RFC 7143, appendix C).
#[derive(Debug)]
pub struct Discovery {
    cmd_sn: u32,
    exp_stat_sn: u32,
    message: Vec<u8>,
}

/// The next step of a discovery.
#[derive(Debug)]
pub enum DiscoveryStep {
    /// Send these bytes and wait for a response.
    Send(Vec<u8>),
    /// All targets.
    Done(Vec<TargetRecord>),
}

impl Discovery {
    /// Limit on the total text of all responses: 64 Ki targets with their addresses.
    const MESSAGE_BYTES_MAX: usize = 16 << 20;

    /// Starts a discovery after the login that returned `login`; also returns the first request.
    pub fn start(login: &InitiatorLogin, cmd_sn: u32) -> (Discovery, Vec<u8>) {
        let discovery = Discovery {
            cmd_sn,
            exp_stat_sn: login.exp_stat_sn,
            message: Vec::new(),
        };
        let mut data = Vec::new();
        push_pair(&mut data, "SendTargets", "All");
        let first = discovery.request(RESERVED_TAG, &data);
        (discovery, first)
    }

    /// Processes a text response: its header and its data segment without padding.
    pub fn on_response(&mut self, bhs: &Bhs, data: &[u8]) -> Result<DiscoveryStep, LoginError> {
        if bhs.kind() != Opcode::TextResponse {
            return Err(LoginError::Protocol(
                "a PDU other than a text response to SendTargets",
            ));
        }
        let response = TextResponse::view(bhs);
        if response.initiator_task_tag.get() != TAG {
            return Err(LoginError::Protocol("a wrong initiator task tag"));
        }
        if self.message.len() + data.len() > Self::MESSAGE_BYTES_MAX {
            return Err(LoginError::Protocol("target lists of more than 16 MiB"));
        }
        // An endless sequence of empty responses would block the discovery forever.
        if data.is_empty() && !bhs.is_final() {
            return Err(LoginError::Protocol(
                "an empty text response that is not the last one",
            ));
        }
        self.message.extend_from_slice(data);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        self.exp_stat_sn = response.stat_sn.get().wrapping_add(1);
        if !bhs.is_final() {
            return Ok(DiscoveryStep::Send(
                self.request(response.target_transfer_tag.get(), &[]),
            ));
        }
        let mut targets: Vec<TargetRecord> = Vec::new();
        for (key, value) in parse_pairs(&self.message)? {
            match key {
                "TargetName" if targets.len() == TARGETS_MAX => {
                    return Err(LoginError::Protocol("more than 65,536 targets"));
                }
                "TargetName" => targets.push(TargetRecord {
                    name: value.to_string(),
                    addresses: Vec::new(),
                }),
                "TargetAddress" => match targets.last_mut() {
                    Some(target) => target.addresses.push(value.to_string()),
                    None => {
                        return Err(LoginError::Protocol("an address without a target name"));
                    }
                },
                _ => {}
            }
        }
        Ok(DiscoveryStep::Done(targets))
    }

    fn request(&self, target_transfer_tag: u32, data: &[u8]) -> Vec<u8> {
        let request = TextRequest {
            flags: pdu::FLAG_FINAL,
            initiator_task_tag: TAG.into(),
            target_transfer_tag: target_transfer_tag.into(),
            cmd_sn: self.cmd_sn.into(),
            exp_stat_sn: self.exp_stat_sn.into(),
            data_segment_length: U24::new(data.len() as u32),
            ..TextRequest::default()
        };
        whole_pdu(request.as_bytes(), data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;

    /// Targets and addresses are returned in order, across several responses; an endless text ends the discovery.
    #[test]
    fn targets_and_addresses_are_returned_in_order() {
        let login = InitiatorLogin {
            params: Params::default(),
            tsih: 1,
            exp_stat_sn: 5,
            exp_cmd_sn: 1,
            max_cmd_sn: 1,
        };
        let respond = |last: bool| -> Bhs {
            TextResponse {
                flags: if last { 0x80 } else { 0 },
                initiator_task_tag: TAG.into(),
                target_transfer_tag: 0x77.into(),
                stat_sn: 5.into(),
                ..TextResponse::default()
            }
            .into()
        };
        let (mut discovery, first) = Discovery::start(&login, 1);
        assert_eq!(&first[48..63], b"SendTargets=All");
        let half = b"TargetName=iqn.a\0TargetAddress=192.0.2.1:3260,1\0Target";
        let Ok(DiscoveryStep::Send(more)) = discovery.on_response(&respond(false), half) else {
            panic!("not asked for more")
        };
        assert_eq!(
            TextRequest::view(Bhs::peek(&more).unwrap())
                .target_transfer_tag
                .get(),
            0x77
        );
        let rest = b"Address=[2001:db8::1]:3260,1\0TargetName=iqn.b\0";
        let Ok(DiscoveryStep::Done(targets)) = discovery.on_response(&respond(true), rest) else {
            panic!("not done")
        };
        assert_eq!(targets.len(), 2);
        assert_eq!(
            targets[0].addresses,
            ["192.0.2.1:3260,1", "[2001:db8::1]:3260,1"]
        );
        assert!(targets[1].addresses.is_empty());

        let (mut endless, _) = Discovery::start(&login, 1);
        assert!(endless.on_response(&respond(false), b"").is_err());
        let (mut lost, _) = Discovery::start(&login, 1);
        assert!(
            lost.on_response(&respond(true), b"TargetAddress=x\0")
                .is_err()
        );
    }
}
