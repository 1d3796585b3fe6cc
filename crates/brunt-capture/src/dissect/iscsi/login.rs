//! Extracts from a login what the rest of a connection depends on: initiator, target, and whether digests follow
//! headers and data (RFC 7143, 6 and 13). [`super::Iscsi`] feeds it the data of login PDUs. The one rule: digests are
//! in use only if agreed on, and only after the response that ends the login.

use brunt_wire::iscsi::pdu::{LoginRequest, LoginResponse, code};
use brunt_wire::iscsi::text::parse_pairs;

use super::digests::Digests;

/// Maximum login text kept per side: keys take a few hundred bytes.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// A login in progress or completed.
#[derive(Debug, Default)]
pub struct CapturedLogin {
    /// Text that is not parsed yet, from the initiator and from the target.
    said: [Vec<u8>; 2],
    /// Whether the latest value of each digest key, an offer or a choice, is CRC32C.
    header: Option<bool>,
    data: Option<bool>,
    /// The target's name, as requested by the initiator.
    pub target: Option<String>,
    /// A hash of the initiator's name, the initiator's part of the session id (ISID), and the target's name; set when
    /// the login ends.
    pub session: Option<u64>,
    initiator: Option<String>,
    isid: [u8; 6],
}

impl CapturedLogin {
    /// Adds the text of a request (0) or a response (1).
    pub fn on_text(&mut self, side: usize, bytes: &[u8]) {
        let said = &mut self.said[side];
        let room = TEXT_BYTES_MAX.saturating_sub(said.len());
        said.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Ends a request.
    pub fn on_request(&mut self, request: &LoginRequest) {
        self.isid = request.isid;
        if request.flags & code::login::CONTINUE == 0 {
            self.read(0);
        }
    }

    /// Ends a response; if it ended the login, returns the digests in use from here on.
    pub fn on_response(&mut self, response: &LoginResponse) -> Option<Digests> {
        if response.flags & code::login::CONTINUE == 0 {
            self.read(1);
        }
        let into_full_feature = response.flags & code::login::TRANSIT != 0
            && response.flags & 3 == code::login::STAGE_FULL_FEATURE;
        if !into_full_feature || response.status_class != 0 {
            return None;
        }
        self.session = self.initiator.as_ref().map(|initiator| {
            let mut name = initiator.clone().into_bytes();
            name.extend(self.isid);
            name.extend(self.target.iter().flat_map(|target| target.bytes()));
            twox_hash::XxHash3_64::oneshot(&name)
        });
        Some(Digests {
            header: Some(self.header == Some(true)),
            data: Some(self.data == Some(true)),
            agreed: true,
        })
    }

    fn read(&mut self, side: usize) {
        let said = std::mem::take(&mut self.said[side]);
        let Ok(pairs) = parse_pairs(&said) else {
            return;
        };
        for (key, value) in pairs {
            // An offer lists the preferred value first; the choice is a single value.
            let crc = || Some(value.split(',').next() == Some("CRC32C"));
            match key {
                "HeaderDigest" => self.header = crc(),
                "DataDigest" => self.data = crc(),
                "TargetName" if side == 0 => self.target = Some(value.to_string()),
                "InitiatorName" if side == 0 => self.initiator = Some(value.to_string()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The target's choice takes effect, but only after the end of the login.
    #[test]
    fn the_digests_chosen_by_the_target_take_effect_after_the_login() {
        let check = |offers: &str, chosen: &str, expected: Digests| {
            let mut login = CapturedLogin::default();
            login.on_text(0, b"InitiatorName=iqn.a\0TargetName=iqn.b\0");
            login.on_text(0, offers.as_bytes());
            login.on_request(&LoginRequest {
                flags: 0x87,
                ..LoginRequest::default()
            });
            login.on_text(1, chosen.as_bytes());
            let under_way = LoginResponse {
                flags: 0x04,
                ..LoginResponse::default()
            };
            assert_eq!(login.on_response(&under_way), None);
            assert_eq!(
                login.on_response(&LoginResponse {
                    flags: 0x87,
                    ..under_way
                }),
                Some(expected)
            );
            assert_eq!(login.target.as_deref(), Some("iqn.b"));
            assert!(login.session.is_some());
        };
        let digests = |header, data| Digests {
            header: Some(header),
            data: Some(data),
            agreed: true,
        };
        check(
            "HeaderDigest=CRC32C,None\0DataDigest=None\0",
            "HeaderDigest=CRC32C\0DataDigest=None\0",
            digests(true, false),
        );
        check(
            "HeaderDigest=CRC32C,None\0DataDigest=CRC32C\0",
            "HeaderDigest=None\0DataDigest=CRC32C\0",
            digests(false, true),
        );
        check("", "", digests(false, false));
    }
}
