//! The initiator side of a login (RFC 7143, 6 and 13).
//!
//! [`Login`] processes the target's PDUs and returns the next PDU to send; `connect` moves the bytes. Pure. The one
//! rule: nothing from the target is trusted: tags, stages, answers and lengths are checked against the requests, and
//! a login has a limited number of exchanges.

use brunt_wire::iscsi::pdu::{self, Bhs, LoginRequest, LoginResponse, Opcode, U24, code, padded};
use brunt_wire::iscsi::text::{parse_pairs, push_pair};
use zerocopy::IntoBytes;

use super::login_error::LoginError;
use crate::chap::{self, Challenge, Credentials};
use crate::params::{IscsiRole, Negotiation, Params, Preferences};

/// Maximum number of exchanges in a login: two for security, one or two for operational keys, and some more for targets
/// that send their keys one by one.
const EXCHANGES_MAX: u32 = 32;
/// Limit on the keys of one logical message, across all its PDUs with the C bit.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Limit on a data segment during login, before anything is negotiated (RFC 7143, 13.12).
pub const LOGIN_SEGMENT_BYTES_MAX: usize = 8192;
/// The tag of login and text requests: only one is outstanding at a time.
pub(super) const TAG: u32 = 1;

/// Settings of a login.
#[derive(Clone, Debug)]
pub struct LoginConfig {
    /// Our iSCSI name.
    pub initiator_name: String,
    /// The target's name; `None` for a discovery session.
    pub target_name: Option<String>,
    /// Credentials for the target, if it requires authentication.
    pub credentials: Option<Credentials>,
    /// Credentials with which the target must authenticate itself (mutual CHAP).
    pub target_credentials: Option<Credentials>,
    /// Operational keys.
    pub wishes: Preferences,
    /// Identifies the session, together with the initiator's name.
    pub isid: [u8; 6],
}

/// The connection and session of a login.
#[derive(Clone, Debug, Default)]
pub struct ConnectionPlace {
    /// The session's handle; 0 for a new session.
    pub tsih: u16,
    /// The connection's id in its session.
    pub cid: u16,
    /// The session's next CmdSN.
    pub cmd_sn: u32,
    /// The session's negotiated values, for a connection that joins it.
    pub session: Option<Params>,
}

/// The result of a login.
#[derive(Clone, Debug)]
pub struct InitiatorLogin {
    /// The negotiated values.
    pub params: Params,
    /// The target's session handle.
    pub tsih: u16,
    /// The next expected StatSN of this connection.
    pub exp_stat_sn: u32,
    /// ExpCmdSN of the last response.
    pub exp_cmd_sn: u32,
    /// MaxCmdSN of the last response.
    pub max_cmd_sn: u32,
}

/// What to do next.
#[derive(Debug)]
pub enum LoginStep {
    /// Send these bytes and wait for a response.
    Send(Vec<u8>),
    /// The login is complete.
    Done(Box<InitiatorLogin>),
    /// The target has moved: close the connection and log in at the new address.
    Moved {
        /// `host[:port][,portal group]`, as sent by the target.
        address: String,
        /// Whether the move is permanent and should be remembered.
        permanently: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoginStage {
    /// AuthMethod was sent.
    Method,
    /// `CHAP_A` was sent.
    Offer,
    /// `CHAP_R` was sent.
    Response,
    /// The target accepted the authentication; the end of the stage was requested.
    SecurityEnd,
    /// Operational keys were sent.
    Operational,
}

/// One connection's login.
#[derive(Debug)]
pub struct Login {
    config: LoginConfig,
    place: ConnectionPlace,
    chap: Option<chap::ChapInitiator>,
    proven: bool,
    negotiation: Negotiation,
    stage: LoginStage,
    exp_stat_sn: u32,
    message: Vec<u8>,
    exchanges: u32,
}

impl Login {
    /// Starts a login; also returns the first request. `challenge` is for the target, in mutual CHAP.
    pub fn start(
        config: LoginConfig,
        place: ConnectionPlace,
        challenge: Challenge,
    ) -> Result<(Login, Vec<u8>), LoginError> {
        let chap = match (&config.credentials, &config.target_credentials) {
            (Some(own), target) => {
                let target = target.clone().map(|target| (target, challenge));
                Some(chap::ChapInitiator::new(own.clone(), target)?)
            }
            (None, Some(_)) => return Err(LoginError::CredentialsNeeded),
            (None, None) => None,
        };
        let discovery = config.target_name.is_none();
        let negotiation = match &place.session {
            Some(session) => {
                Negotiation::joining(IscsiRole::Initiator, config.wishes.clone(), session)
            }
            None => Negotiation::new(IscsiRole::Initiator, config.wishes.clone(), discovery),
        };
        let mut keys = vec![("InitiatorName", config.initiator_name.clone())];
        match &config.target_name {
            Some(name) => {
                keys.push(("TargetName", name.clone()));
                keys.push(("SessionType", "Normal".to_string()));
            }
            None => keys.push(("SessionType", "Discovery".to_string())),
        }
        // With credentials but without mutual CHAP, the target decides whether to use CHAP.
        keys.push((
            "AuthMethod",
            match &chap {
                None => "None",
                Some(chap) if chap.is_mutual() => "CHAP",
                Some(_) => "CHAP,None",
            }
            .to_string(),
        ));
        let transit = chap.is_none();
        let login = Login {
            config,
            place,
            chap,
            proven: false,
            negotiation,
            stage: LoginStage::Method,
            exp_stat_sn: 0,
            message: Vec::new(),
            exchanges: 0,
        };
        let next = transit.then_some(code::login::STAGE_OPERATIONAL);
        let first = login.request(code::login::STAGE_SECURITY, next, &keys);
        Ok((login, first))
    }

    /// Processes a response: its header and its data segment without padding.
    ///
    /// # Errors
    /// The login failed; close the connection.
    pub fn on_response(&mut self, bhs: &Bhs, data: &[u8]) -> Result<LoginStep, LoginError> {
        let response = self.check_sequence(bhs)?;
        let status = u16::from_be_bytes([response.status_class, response.status_detail]);
        if response.status_class == 1 {
            return redirection(status, data);
        }
        if status != code::login::SUCCESS {
            return Err(LoginError::Refused(status));
        }
        if response.version_active != 0 {
            return Err(LoginError::Protocol("a version other than 0"));
        }
        let current = (response.flags >> 2) & 3;
        if current != self.stage_number() {
            return Err(LoginError::Protocol("a response for a different stage"));
        }
        if self.message.len() + data.len() > MESSAGE_BYTES_MAX {
            return Err(LoginError::Protocol("more than 64 KiB of keys"));
        }
        self.message.extend_from_slice(data);
        let transit = response.flags & code::login::TRANSIT != 0;
        if response.flags & code::login::CONTINUE != 0 {
            if transit {
                return Err(LoginError::Protocol("transit and continue in one response"));
            }
            return Ok(LoginStep::Send(self.request(current, None, &[])));
        }
        let message = std::mem::take(&mut self.message);
        let pairs = parse_pairs(&message)?;
        let next_stage = response.flags & 3;
        match (transit, current, next_stage) {
            (false, ..) => self.within_stage(&pairs),
            (true, code::login::STAGE_SECURITY, code::login::STAGE_OPERATIONAL) => {
                self.end_of_security(&pairs)?;
                let offers = self.negotiation.offers();
                self.stage = LoginStage::Operational;
                let next = Some(code::login::STAGE_FULL_FEATURE);
                Ok(LoginStep::Send(self.request(
                    code::login::STAGE_OPERATIONAL,
                    next,
                    &offers,
                )))
            }
            (true, code::login::STAGE_OPERATIONAL, code::login::STAGE_FULL_FEATURE) => {
                self.end_of_login(response, &pairs)
            }
            _ => Err(LoginError::Protocol(
                "a transit to a different stage than requested",
            )),
        }
    }

    /// Checks that a PDU is the next response of this login.
    fn check_sequence<'a>(&mut self, bhs: &'a Bhs) -> Result<&'a LoginResponse, LoginError> {
        if bhs.kind() != Opcode::LoginResponse {
            return Err(LoginError::Protocol("a PDU other than a login response"));
        }
        let response = LoginResponse::view(bhs);
        if response.initiator_task_tag.get() != TAG {
            return Err(LoginError::Protocol("a wrong initiator task tag"));
        }
        // The target should return the ISID unchanged, but this isn't checked: the tag identifies
        // the response, and tgt sends a different ISID.
        self.exchanges += 1;
        if self.exchanges > EXCHANGES_MAX {
            return Err(LoginError::Protocol("no end after 32 exchanges"));
        }
        let stat_sn = response.stat_sn.get();
        if self.exchanges > 1 && stat_sn != self.exp_stat_sn && response.status_class == 0 {
            return Err(LoginError::Protocol("a StatSN out of sequence"));
        }
        self.exp_stat_sn = stat_sn.wrapping_add(1);
        Ok(response)
    }

    fn stage_number(&self) -> u8 {
        match self.stage {
            LoginStage::Operational => code::login::STAGE_OPERATIONAL,
            _ => code::login::STAGE_SECURITY,
        }
    }

    /// Processes a response that doesn't end its stage.
    fn within_stage(&mut self, pairs: &[(&str, &str)]) -> Result<LoginStep, LoginError> {
        let (keys, transit): (Vec<(&str, String)>, bool) = match self.stage {
            LoginStage::Method => match find(pairs, "AuthMethod") {
                Some("CHAP") => {
                    let chap = self.chap.as_ref().ok_or(LoginError::CredentialsNeeded)?;
                    self.stage = LoginStage::Offer;
                    (chap.offer(), false)
                }
                Some("None") => (Vec::new(), true),
                Some(other) => return Err(LoginError::Method(other.to_string())),
                None => return Err(LoginError::Protocol("a response without AuthMethod")),
            },
            LoginStage::Offer => {
                let chap = self.chap.as_mut().ok_or(LoginError::CredentialsNeeded)?;
                self.stage = LoginStage::Response;
                (chap.on_challenge(pairs)?, true)
            }
            LoginStage::Response => {
                // The target accepted the authentication, but expects another request to end the stage.
                self.check_proof(pairs)?;
                self.stage = LoginStage::SecurityEnd;
                (Vec::new(), true)
            }
            LoginStage::SecurityEnd => (Vec::new(), true),
            LoginStage::Operational => {
                let answers = self.answers(pairs)?;
                (answers, true)
            }
        };
        let next = match self.stage {
            LoginStage::Operational => code::login::STAGE_FULL_FEATURE,
            _ => code::login::STAGE_OPERATIONAL,
        };
        Ok(LoginStep::Send(self.request(
            self.stage_number(),
            transit.then_some(next),
            &keys,
        )))
    }

    /// Processes the response that starts the operational stage.
    fn end_of_security(&mut self, pairs: &[(&str, &str)]) -> Result<(), LoginError> {
        match self.stage {
            LoginStage::Response => self.check_proof(pairs)?,
            LoginStage::Method => match find(pairs, "AuthMethod") {
                // A target that requires no authentication may omit the key.
                Some("None") | None => {}
                Some("CHAP") if self.chap.is_none() => return Err(LoginError::CredentialsNeeded),
                Some(other) => return Err(LoginError::Method(other.to_string())),
            },
            LoginStage::Offer => {
                return Err(LoginError::Protocol(
                    "the end of the security stage before CHAP is complete",
                ));
            }
            LoginStage::SecurityEnd | LoginStage::Operational => {}
        }
        let mutual = self
            .chap
            .as_ref()
            .is_some_and(chap::ChapInitiator::is_mutual);
        if mutual && !self.proven {
            return Err(LoginError::NotMutual);
        }
        Ok(())
    }

    /// Processes the response that starts full-feature phase.
    fn end_of_login(
        &mut self,
        response: &LoginResponse,
        pairs: &[(&str, &str)],
    ) -> Result<LoginStep, LoginError> {
        assert!(
            self.stage == LoginStage::Operational,
            "a login ends in its operational stage"
        );
        if !self.answers(pairs)?.is_empty() {
            return Err(LoginError::Protocol(
                "an offer in the response that ends the login",
            ));
        }
        let tsih = response.tsih.get();
        let wrong = if self.place.tsih == 0 {
            tsih == 0
        } else {
            tsih != self.place.tsih
        };
        if wrong && self.config.target_name.is_some() {
            return Err(LoginError::Protocol("a wrong TSIH in the last response"));
        }
        Ok(LoginStep::Done(Box::new(InitiatorLogin {
            params: self.negotiation.values().clone(),
            tsih,
            exp_stat_sn: self.exp_stat_sn,
            exp_cmd_sn: response.exp_cmd_sn.get(),
            max_cmd_sn: response.max_cmd_sn.get(),
        })))
    }

    fn check_proof(&mut self, pairs: &[(&str, &str)]) -> Result<(), LoginError> {
        if let Some(chap) = self.chap.as_ref().filter(|chap| chap.is_mutual()) {
            if find(pairs, "CHAP_R").is_none() {
                return Err(LoginError::NotMutual);
            }
            chap.on_response(pairs)?;
            self.proven = true;
        }
        Ok(())
    }

    /// Our answers to the target's keys; keys from other sections aren't part of the negotiation.
    fn answers<'a>(
        &mut self,
        pairs: &[(&'a str, &str)],
    ) -> Result<Vec<(&'a str, String)>, LoginError> {
        let operational: Vec<(&str, &str)> = pairs
            .iter()
            .filter(|(key, _)| {
                !matches!(*key, "AuthMethod" | "TargetAddress" | "TargetAlias")
                    && !key.starts_with("CHAP_")
            })
            .copied()
            .collect();
        Ok(self.negotiation.on_pairs(&operational)?)
    }

    fn request(&self, current: u8, next: Option<u8>, keys: &[(&str, String)]) -> Vec<u8> {
        let mut data = Vec::new();
        for (key, value) in keys {
            push_pair(&mut data, key, value);
        }
        let mut request = LoginRequest {
            isid: self.config.isid,
            tsih: self.place.tsih.into(),
            initiator_task_tag: TAG.into(),
            cid: self.place.cid.into(),
            cmd_sn: self.place.cmd_sn.into(),
            exp_stat_sn: self.exp_stat_sn.into(),
            data_segment_length: U24::new(data.len() as u32),
            ..LoginRequest::default()
        };
        request.opcode |= pdu::OPCODE_IMMEDIATE;
        request.flags = current << 2;
        if let Some(next) = next {
            request.flags |= code::login::TRANSIT | next;
        }
        whole_pdu(request.as_bytes(), &data)
    }
}

/// Header, data and padding; login and discovery PDUs have no digests.
pub(super) fn whole_pdu(header: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(header.len() + padded(data.len()));
    bytes.extend_from_slice(header);
    bytes.extend_from_slice(data);
    bytes.resize(header.len() + padded(data.len()), 0);
    bytes
}

fn find<'a>(pairs: &[(&str, &'a str)], key: &str) -> Option<&'a str> {
    pairs
        .iter()
        .find(|(name, _)| *name == key)
        .map(|(_, value)| *value)
}

/// The target asks for a login at another address.
fn redirection(status: u16, data: &[u8]) -> Result<LoginStep, LoginError> {
    let pairs = parse_pairs(data)?;
    let address = find(&pairs, "TargetAddress").ok_or(LoginError::Refused(status))?;
    Ok(LoginStep::Moved {
        address: address.to_string(),
        permanently: status == code::login::TARGET_MOVED_PERMANENTLY,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISID: [u8; 6] = [0x80, 1, 2, 3, 0, 0];
    const OURS: Challenge = Challenge::new(3, [0x33; 32]);
    const THEIRS: Challenge = Challenge::new(4, [0x44; 32]);

    fn config() -> LoginConfig {
        LoginConfig {
            initiator_name: "iqn.2026-11.io.brunt:test".to_string(),
            target_name: Some("iqn.2026-11.io.brunt:t0".to_string()),
            credentials: None,
            target_credentials: None,
            wishes: Preferences::default(),
            isid: ISID,
        }
    }

    fn with_chap(mutual: bool) -> LoginConfig {
        LoginConfig {
            credentials: Some(Credentials::new("alice", *b"secret of alice")),
            target_credentials: mutual.then(|| Credentials::new("target", *b"secret of target")),
            ..config()
        }
    }

    /// A target's response in a test.
    #[derive(Clone)]
    struct Say {
        flags: u8,
        status: u16,
        keys: Vec<(&'static str, String)>,
        tsih: u16,
        tag: u32,
        stat_sn: Option<u32>,
    }

    fn say(flags: u8, keys: &[(&'static str, &str)]) -> Say {
        let keys = keys
            .iter()
            .map(|(key, value)| (*key, value.to_string()))
            .collect();
        Say {
            flags,
            status: 0,
            keys,
            tsih: 9,
            tag: TAG,
            stat_sn: None,
        }
    }

    const SECURITY: u8 = 0;
    const TO_OPERATIONAL: u8 = 0x81;
    const TO_FULL_FEATURE: u8 = 0x87;

    /// Runs a login with these responses, one per request; returns the outcome and the keys of our last request.
    fn run(
        config: LoginConfig,
        answers: &[Say],
    ) -> (Result<LoginStep, LoginError>, Vec<(String, String)>) {
        let place = ConnectionPlace {
            cmd_sn: 1,
            ..ConnectionPlace::default()
        };
        let (mut login, mut sent) = match Login::start(config, place, OURS) {
            Ok(started) => started,
            Err(error) => return (Err(error), Vec::new()),
        };
        let mut outcome = Err(LoginError::Protocol("no answer"));
        for (index, answer) in answers.iter().enumerate() {
            let mut data = Vec::new();
            for (key, value) in &answer.keys {
                push_pair(&mut data, key, value);
            }
            let [class, detail] = answer.status.to_be_bytes();
            let bhs: Bhs = LoginResponse {
                flags: answer.flags,
                isid: ISID,
                tsih: answer.tsih.into(),
                initiator_task_tag: answer.tag.into(),
                stat_sn: answer.stat_sn.unwrap_or(100 + index as u32).into(),
                exp_cmd_sn: 1.into(),
                max_cmd_sn: 32.into(),
                status_class: class,
                status_detail: detail,
                ..LoginResponse::default()
            }
            .into();
            outcome = login.on_response(&bhs, &data);
            match &outcome {
                Ok(LoginStep::Send(bytes)) => sent = bytes.clone(),
                _ => break,
            }
        }
        let data = &sent[48..48 + Bhs::peek(&sent).unwrap().data_len()];
        let keys = parse_pairs(data).unwrap();
        (
            outcome,
            keys.iter()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
        )
    }

    /// Without authentication, two exchanges lead to full-feature phase with the negotiated values.
    #[test]
    fn a_login_without_authentication_takes_two_exchanges() {
        let answers = [
            say(
                TO_OPERATIONAL,
                &[("AuthMethod", "None"), ("TargetPortalGroupTag", "1")],
            ),
            say(
                TO_FULL_FEATURE,
                &[
                    ("MaxBurstLength", "65536"),
                    ("MaxRecvDataSegmentLength", "131072"),
                    ("InitialR2T", "Yes"),
                ],
            ),
        ];
        let (outcome, keys) = run(config(), &answers);
        let Ok(LoginStep::Done(done)) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(done.tsih, 9);
        assert_eq!(done.exp_stat_sn, 102);
        assert_eq!(done.max_cmd_sn, 32);
        assert_eq!(done.params.max_burst_length, 65536);
        assert_eq!(done.params.peer_max_recv_data_segment_length, 131_072);
        assert!(done.params.initial_r2t);
        assert!(
            keys.iter()
                .any(|(key, value)| key == "ImmediateData" && value == "Yes")
        );
    }

    /// CHAP, one-way and mutual, with the target's side from `chap`.
    #[test]
    fn chap_works_one_way_and_mutual() {
        let check = |mutual: bool| {
            let own = Some(Credentials::new("target", *b"secret of target"));
            let users = [chap::ChapUser {
                initiator: Credentials::new("alice", *b"secret of alice"),
                own,
            }];
            let mut target = chap::ChapTarget::new(THEIRS);
            let (_, keys) = run(
                with_chap(mutual),
                &[say(SECURITY, &[("AuthMethod", "CHAP")])],
            );
            let offer: Vec<(&str, &str)> =
                keys.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let challenge = Say {
                keys: target.on_offer(&offer).unwrap(),
                ..say(SECURITY, &[])
            };
            let so_far = [say(SECURITY, &[("AuthMethod", "CHAP")]), challenge.clone()];
            let (_, keys) = run(with_chap(mutual), &so_far);
            let response: Vec<(&str, &str)> =
                keys.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let (_, proof) = target.on_response(&response, &users).unwrap();
            assert_eq!(proof.len(), if mutual { 2 } else { 0 });
            let mut answers = so_far.to_vec();
            answers.push(Say {
                keys: proof,
                ..say(TO_OPERATIONAL, &[])
            });
            answers.push(say(TO_FULL_FEATURE, &[]));
            assert!(matches!(
                run(with_chap(mutual), &answers).0,
                Ok(LoginStep::Done(_))
            ));
            // Without the target's CHAP response, a mutual login fails and a one-way login succeeds.
            answers[2] = say(TO_OPERATIONAL, &[]);
            let outcome = run(with_chap(mutual), &answers).0;
            match mutual {
                true => assert_eq!(outcome.unwrap_err(), LoginError::NotMutual),
                false => assert!(matches!(outcome, Ok(LoginStep::Done(_)))),
            }
        };
        check(false);
        check(true);
    }

    /// A redirect returns the address that the target gave.
    #[test]
    fn a_redirect_returns_the_address_from_the_target() {
        let moved = Say {
            status: 0x0102,
            ..say(0, &[("TargetAddress", "192.0.2.7:3261,1")])
        };
        let (outcome, _) = run(config(), &[moved]);
        let Ok(LoginStep::Moved {
            address,
            permanently: true,
        }) = outcome
        else {
            panic!("{outcome:?}")
        };
        assert_eq!(address, "192.0.2.7:3261,1");
    }

    /// A message split over several PDUs is reassembled.
    #[test]
    fn a_message_over_several_pdus_is_reassembled() {
        let answers = [
            say(0x40, &[("TargetPortalGroupTag", "1")]),
            say(TO_OPERATIONAL, &[("AuthMethod", "None")]),
            say(0x44, &[("MaxBurstLength", "4096")]),
            say(TO_FULL_FEATURE, &[("FirstBurstLength", "4096")]),
        ];
        let (outcome, _) = run(config(), &answers);
        let Ok(LoginStep::Done(done)) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(
            (done.params.max_burst_length, done.params.first_burst_length),
            (4096, 4096)
        );
    }

    /// Rejections are worded as sentences that include the status; transient ones are distinguished from permanent
    /// ones.
    #[test]
    fn transient_refusals_are_distinguished_from_permanent_ones() {
        let check = |status, words: &str, transient| {
            let error = run(
                config(),
                &[Say {
                    status,
                    ..say(0, &[])
                }],
            )
            .0
            .unwrap_err();
            assert_eq!(error, LoginError::Refused(status));
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(error.is_transient(), transient, "{error}");
        };
        check(0x0201, "secret is wrong", false);
        check(0x0202, "access list", true);
        check(0x0203, "no target with this name", true);
        check(0x0301, "unavailable", true);
        check(0x0102, "without an address", false);
        check(0x02ff, "gave no reason", false);
    }

    /// Anything that a hostile or broken target sends ends the login with an error.
    #[test]
    fn anything_from_a_hostile_target_ends_the_login() {
        let check = |config: LoginConfig, answers: &[Say]| {
            let (outcome, _) = run(config, answers);
            assert!(outcome.is_err(), "{outcome:?}");
        };
        let first = || say(TO_OPERATIONAL, &[("AuthMethod", "None")]);
        check(config(), &[Say { tag: 7, ..first() }]);
        check(
            config(),
            &[
                first(),
                Say {
                    stat_sn: Some(7),
                    ..say(TO_FULL_FEATURE, &[])
                },
            ],
        );
        check(
            config(),
            &[
                first(),
                Say {
                    tsih: 0,
                    ..say(TO_FULL_FEATURE, &[])
                },
            ],
        );
        check(config(), &[say(TO_FULL_FEATURE, &[])]);
        check(config(), &[say(0xc1, &[])]);
        check(config(), &[say(0x83, &[])]);
        check(config(), &[say(SECURITY, &[])]);
        check(config(), &[say(SECURITY, &[("AuthMethod", "CHAP")])]);
        check(config(), &[say(SECURITY, &[("AuthMethod", "KRB5")])]);
        check(
            config(),
            &[
                first(),
                say(TO_FULL_FEATURE, &[("MaxBurstLength", "99999999")]),
            ],
        );
        check(
            config(),
            &[first(), say(TO_FULL_FEATURE, &[("DataDigest", "X")])],
        );
        check(
            with_chap(false),
            &[say(SECURITY, &[("AuthMethod", "CHAP")]), say(SECURITY, &[])],
        );
        check(
            with_chap(false),
            &[
                say(SECURITY, &[("AuthMethod", "CHAP")]),
                say(TO_OPERATIONAL, &[]),
            ],
        );
        check(
            with_chap(true),
            &[say(TO_OPERATIONAL, &[("AuthMethod", "None")])],
        );
        check(
            with_chap(true),
            &[
                say(SECURITY, &[("AuthMethod", "None")]),
                say(TO_OPERATIONAL, &[]),
            ],
        );
        // Endless continuations, and a repeated stage.
        check(config(), &vec![say(0x40, &[("X-a", "b")]); 40]);
        check(
            config(),
            &vec![say(SECURITY, &[("AuthMethod", "None")]); 40],
        );
        let no_secret = LoginConfig {
            credentials: None,
            ..with_chap(true)
        };
        check(no_secret, &[]);
    }

    /// No PDU makes the state machine panic, whatever its opcode and length.
    #[test]
    fn no_header_makes_the_login_panic() {
        for byte in 0..=255 {
            for flags in [0, 0x40, 0x80, 0x81, 0x87, 0xff] {
                let (mut login, _) =
                    Login::start(with_chap(true), ConnectionPlace::default(), OURS).unwrap();
                let mut bhs: Bhs = LoginResponse::default().into();
                bhs.opcode = byte;
                bhs.flags = flags;
                let _ = login.on_response(&bhs, b"AuthMethod=CHAP\0CHAP_A");
            }
        }
    }
}
