//! The login phase of one connection, from the target's side (RFC 7143, sections 6 and 12): which
//! target, who asks, are they who they say, and with which parameters do we talk. Called by
//! the acceptor with each login request; gives the response's bytes. The one rule: nothing of
//! a session exists before the last response; until then a login is this struct and no more.

use std::sync::Arc;

use brunt_wire::iscsi::Opcode;
use brunt_wire::iscsi::pdu::{
    BHS_BYTES, Bhs, LoginRequest, LoginResponse, OPCODE_IMMEDIATE, U24, code::login as code, padded,
};
use brunt_wire::iscsi::text::{parse_pairs, push_pair};
use zerocopy::IntoBytes;

use super::session::{ConnectionHandle, TargetSession};
use crate::chap::{self, Challenge, Credentials};
use crate::params::{IscsiRole, Negotiation, Params, Wishes};

/// What a login request's data segment may hold: nothing larger was declared yet (RFC 7143, 13.12).
pub const LOGIN_SEGMENT_BYTES_MAX: usize = 8192;
/// Text gathered over a chain of continued requests. RFC 7143, 6.2 wants 16 KiB at least, and 64 KiB
/// for exchanges with large authentication items.
pub const TEXT_BYTES_MAX: usize = 65536;
/// Requests in one login; security takes four at most, and no negotiation needs many more.
const REQUESTS_MAX: u32 = 64;
/// The longest iSCSI name, in bytes (RFC 7143, 4.2.7.1).
const NAME_BYTES_MAX: usize = 223;

/// Who this target is, and who may come in.
#[derive(Clone, Debug)]
pub struct TargetIdentity {
    /// Its iSCSI name.
    pub name: String,
    /// What people call it.
    pub alias: Option<String>,
    /// Of all its portals: sessions may span them.
    pub portal_group_tag: u16,
    /// What an initiator has to know; `None` lets everyone in.
    pub chap: Option<Credentials>,
    /// What the target answers when the initiator asks back.
    pub mutual_chap: Option<Credentials>,
    /// Operational parameters.
    pub wishes: Wishes,
}

/// What the acceptor has to do.
#[derive(Debug)]
pub enum TargetLoginStep {
    /// Send these bytes; the login goes on.
    Reply(Vec<u8>),
    /// Send these bytes; full-feature phase begins.
    Done(Vec<u8>, Box<LoggedInConnection>),
    /// Send these bytes and close: class and detail are the status in them.
    Refuse(Vec<u8>, u16),
    /// Close without a word: this is no iSCSI initiator.
    Close,
}

/// A connection at the door of full-feature phase.
#[derive(Debug)]
pub struct LoggedInConnection {
    /// The session it belongs to.
    pub session: Arc<TargetSession>,
    /// The connection's id within it, the initiator's choice.
    pub cid: u16,
    /// Unique for the life of the process.
    pub connection_id: u64,
    /// Its mailbox.
    pub handle: ConnectionHandle,
    /// What was negotiated for this connection and its session.
    pub params: Params,
    /// The next response's.
    pub stat_sn: u32,
}

/// A session that a connection asks to join.
#[derive(Clone, Debug)]
pub struct JoinableSession {
    /// Its initiator.
    pub initiator_name: String,
    /// Its ISID.
    pub isid: [u8; 6],
    /// A discovery session takes no second connection.
    pub discovery: bool,
    /// Its session-wide parameters.
    pub params: Params,
    /// The next CmdSN it expects, and the last it takes.
    pub window: (u32, u32),
}

/// What a login amounts to, for the table of sessions to judge.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The initiator's name.
    pub initiator_name: String,
    /// The initiator's part of the session id.
    pub isid: [u8; 6],
    /// The session to join, or zero for a new one.
    pub tsih: u16,
    /// The connection's id.
    pub cid: u16,
    /// Of the login requests: the first command's.
    pub cmd_sn: u32,
    /// A discovery session.
    pub discovery: bool,
    /// What was negotiated.
    pub params: Params,
}

/// The table of sessions, as a login sees it.
pub trait Sessions {
    /// The session with this TSIH.
    fn find(&self, tsih: u16) -> Option<JoinableSession>;
    /// Lets the candidate in: opens a session (ending the one it reinstates), or adds or replaces
    /// a connection. The error is a login status.
    fn admit(&mut self, candidate: &Candidate) -> Result<Admitted, u16>;
}

/// A place in a session.
#[derive(Debug)]
pub struct Admitted {
    /// The session.
    pub session: Arc<TargetSession>,
    /// The connection's process-wide id.
    pub connection_id: u64,
    /// Its mailbox.
    pub handle: ConnectionHandle,
    /// The next CmdSN it expects, and the last it takes.
    pub window: (u32, u32),
}

/// One login.
#[derive(Debug)]
pub struct TargetLogin {
    identity: Arc<TargetIdentity>,
    chap: chap::ChapTarget,
    first: Option<LoginRequest>,
    requests: u32,
    stage: u8,
    stat_sn: u32,
    text: Vec<u8>,
    security: Security,
    /// Names and session type were looked at.
    introduced: bool,
    initiator_name: String,
    discovery: bool,
    found: Option<JoinableSession>,
    negotiation: Negotiation,
    segment_declared: bool,
    tag_declared: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Security {
    /// AuthMethod was not spoken of.
    Open,
    /// CHAP was agreed on; CHAP_A comes next.
    Method,
    /// Our challenge is out.
    Challenged,
    /// Nothing more to prove.
    Passed,
}

/// A refusal: a login status.
struct Refusal(u16);

impl TargetLogin {
    /// A login about to begin. The challenge is this one's alone.
    pub fn new(identity: Arc<TargetIdentity>, challenge: Challenge) -> TargetLogin {
        let negotiation = Negotiation::new(IscsiRole::Target, identity.wishes.clone(), false);
        TargetLogin {
            identity,
            chap: chap::ChapTarget::new(challenge),
            first: None,
            requests: 0,
            stage: code::STAGE_SECURITY,
            stat_sn: 0,
            text: Vec::new(),
            security: Security::Open,
            introduced: false,
            initiator_name: String::new(),
            discovery: false,
            found: None,
            negotiation,
            segment_declared: false,
            tag_declared: false,
        }
    }

    /// Who asks, when that was said already: for messages.
    pub fn initiator_name(&self) -> &str {
        &self.initiator_name
    }

    /// How long the PDU that starts with `bhs` is; `None` when no login sends such a PDU, and the
    /// connection should be answered with [`TargetLogin::on_pdu`] and no data.
    pub fn pdu_len(bhs: &Bhs) -> Option<usize> {
        let acceptable = bhs.kind() == Opcode::LoginRequest
            && bhs.total_ahs_length == 0
            && bhs.data_len() <= LOGIN_SEGMENT_BYTES_MAX;
        // Digests begin after login.
        acceptable.then(|| BHS_BYTES + padded(bhs.data_len()))
    }

    /// Takes one PDU: its header, and its data segment without padding.
    pub fn on_pdu(&mut self, bhs: &Bhs, data: &[u8], sessions: &mut dyn Sessions) -> TargetLoginStep {
        let request = *LoginRequest::view(bhs);
        if bhs.kind() != Opcode::LoginRequest {
            // RFC 7143, 6.3: anything but a login first, and the connection is dropped.
            return match self.first {
                None => TargetLoginStep::Close,
                Some(_) => self.refuse(&request, code::INVALID_DURING_LOGIN),
            };
        }
        match self.on_request(&request, data, sessions) {
            Ok(step) => step,
            Err(Refusal(status)) => self.refuse(&request, status),
        }
    }

    fn on_request(
        &mut self,
        request: &LoginRequest,
        data: &[u8],
        sessions: &mut dyn Sessions,
    ) -> Result<TargetLoginStep, Refusal> {
        self.check_header(request, data)?;
        self.text.extend_from_slice(data);
        if request.flags & code::CONTINUE != 0 {
            // More of the same text follows: an empty response asks for it.
            return Ok(TargetLoginStep::Reply(self.response(request, request.flags & 0x0c, &[], None)));
        }
        let text = std::mem::take(&mut self.text);
        let pairs = parse_pairs(&text).map_err(|_| Refusal(code::INITIATOR_ERROR))?;
        let mut answer = Vec::new();
        if !self.introduced {
            self.introduce(request, &pairs, sessions)?;
            if !self.discovery && request.tsih.get() == 0 && has(&pairs, "TargetName") {
                push_pair(&mut answer, "TargetPortalGroupTag", &self.identity.portal_group_tag.to_string());
                self.tag_declared = true;
            }
            if let Some(alias) = self.identity.alias.as_deref().filter(|_| !self.discovery) {
                push_pair(&mut answer, "TargetAlias", alias);
            }
        }
        let (security, operational): (Vec<_>, Vec<_>) =
            pairs.into_iter().partition(|(key, _)| *key == "AuthMethod" || key.starts_with("CHAP_"));
        let stage = (request.flags >> 2) & 3;
        if stage == code::STAGE_SECURITY {
            self.on_security(&security, &mut answer)?;
        } else {
            if !security.is_empty() {
                return Err(Refusal(code::INITIATOR_ERROR));
            }
            if self.security != Security::Passed {
                // Straight to the operational stage, or past CHAP: only where nobody has to prove
                // anything (RFC 7143, 6.3.2).
                if self.must_authenticate() {
                    return Err(Refusal(code::AUTHENTICATION_FAILURE));
                }
                self.security = Security::Passed;
            }
        }
        let operational: Vec<(&str, &str)> =
            operational.into_iter().filter(|(key, _)| !INTRODUCTION.contains(key)).collect();
        let answers = self.negotiation.on_pairs(&operational).map_err(|_| Refusal(code::INITIATOR_ERROR))?;
        for (key, value) in &answers {
            push_pair(&mut answer, key, value);
        }
        if stage == code::STAGE_OPERATIONAL && !self.segment_declared {
            let (key, value) = self.negotiation.declare_segment();
            push_pair(&mut answer, key, &value);
            self.segment_declared = true;
        }
        self.move_on(request, &answer, sessions)
    }

    /// What does not depend on the text (RFC 7143, 11.12).
    fn check_header(&mut self, request: &LoginRequest, data: &[u8]) -> Result<(), Refusal> {
        let bad = Refusal(code::INITIATOR_ERROR);
        self.requests += 1;
        if self.requests > REQUESTS_MAX
            || request.opcode & OPCODE_IMMEDIATE == 0
            || request.total_ahs_length != 0
            || data.len() > LOGIN_SEGMENT_BYTES_MAX
            || data.len() != request.data_segment_length.get() as usize
            || self.text.len() + data.len() > TEXT_BYTES_MAX
        {
            return Err(bad);
        }
        if request.version_min > 0 {
            return Err(Refusal(code::UNSUPPORTED_VERSION));
        }
        let transit = request.flags & code::TRANSIT != 0;
        let (current, next) = ((request.flags >> 2) & 3, request.flags & 3);
        if transit && request.flags & code::CONTINUE != 0 {
            return Err(bad);
        }
        if current > code::STAGE_OPERATIONAL || (transit && (next <= current || next == 2)) {
            return Err(bad);
        }
        match &self.first {
            None => {
                self.stage = current;
                self.first = Some(*request);
            }
            Some(first) => {
                let same = first.isid == request.isid
                    && first.tsih == request.tsih
                    && first.cid == request.cid
                    && first.initiator_task_tag == request.initiator_task_tag
                    && first.cmd_sn == request.cmd_sn;
                if !same || current != self.stage {
                    return Err(bad);
                }
            }
        }
        Ok(())
    }

    /// Names, session type, and the session to join (RFC 7143, 6.3.1).
    fn introduce(
        &mut self,
        request: &LoginRequest,
        pairs: &[(&str, &str)],
        sessions: &dyn Sessions,
    ) -> Result<(), Refusal> {
        let get = |name: &str| -> Result<Option<&str>, Refusal> {
            let mut found = pairs.iter().filter(|(key, _)| *key == name);
            let value = found.next().map(|pair| pair.1);
            if found.next().is_some() { Err(Refusal(code::INITIATOR_ERROR)) } else { Ok(value) }
        };
        let initiator = get("InitiatorName")?.ok_or(Refusal(code::MISSING_PARAMETER))?;
        if initiator.is_empty() || initiator.len() > NAME_BYTES_MAX {
            return Err(Refusal(code::INITIATOR_ERROR));
        }
        self.initiator_name = initiator.to_string();
        self.discovery = match get("SessionType")? {
            None | Some("Normal") => false,
            Some("Discovery") => true,
            Some(_) => return Err(Refusal(code::SESSION_TYPE_NOT_SUPPORTED)),
        };
        match get("TargetName")? {
            None if !self.discovery => return Err(Refusal(code::MISSING_PARAMETER)),
            Some(name) if !name.eq_ignore_ascii_case(&self.identity.name) => {
                return Err(Refusal(code::NOT_FOUND));
            }
            _ => {}
        }
        let wishes = self.identity.wishes.clone();
        self.negotiation = if request.tsih.get() == 0 {
            Negotiation::new(IscsiRole::Target, wishes, self.discovery)
        } else {
            let found = sessions.find(request.tsih.get()).ok_or(Refusal(code::SESSION_DOES_NOT_EXIST))?;
            if found.initiator_name != initiator || found.isid != request.isid {
                return Err(Refusal(code::SESSION_DOES_NOT_EXIST));
            }
            if found.discovery || self.discovery {
                return Err(Refusal(code::CANNOT_INCLUDE_IN_SESSION));
            }
            let negotiation = Negotiation::joining(IscsiRole::Target, wishes, &found.params);
            self.found = Some(found);
            negotiation
        };
        self.introduced = true;
        Ok(())
    }

    /// Discovery tells names and addresses only: those who can reach the port may know them.
    fn must_authenticate(&self) -> bool {
        self.identity.chap.is_some() && !self.discovery
    }

    /// The security stage (RFC 7143, 12.1).
    fn on_security(&mut self, pairs: &[(&str, &str)], answer: &mut Vec<u8>) -> Result<(), Refusal> {
        let bad = Refusal(code::INITIATOR_ERROR);
        let denied = Refusal(code::AUTHENTICATION_FAILURE);
        let get = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|pair| pair.1);
        for (index, (key, _)) in pairs.iter().enumerate() {
            if pairs[..index].iter().any(|(other, _)| other == key) {
                return Err(bad);
            }
        }
        match self.security {
            Security::Open => {
                let Some(methods) = get("AuthMethod") else {
                    return if pairs.is_empty() { Ok(()) } else { Err(bad) };
                };
                let chap = self.identity.chap.is_some();
                let must = self.must_authenticate();
                let choice = methods.split(',').find(|method| match *method {
                    "CHAP" => chap,
                    "None" => !must,
                    _ => false,
                });
                push_pair(answer, "AuthMethod", choice.unwrap_or("Reject"));
                self.security = match choice {
                    Some("CHAP") => Security::Method,
                    Some(_) => Security::Passed,
                    None => return Err(denied),
                };
                Ok(())
            }
            Security::Method => {
                let keys = self.chap.on_offer(pairs).map_err(|_| denied)?;
                push_all(answer, &keys);
                self.security = Security::Challenged;
                Ok(())
            }
            Security::Challenged => {
                let users = self.identity.chap.as_slice();
                let own = self.identity.mutual_chap.as_ref();
                let (_, keys) = self.chap.on_response(pairs, users, own).map_err(|_| denied)?;
                push_all(answer, &keys);
                self.security = Security::Passed;
                Ok(())
            }
            // Nothing was agreed on that could still have keys.
            Security::Passed if pairs.is_empty() => Ok(()),
            Security::Passed => Err(bad),
        }
    }

    /// Answers, and follows the initiator to the next stage when nothing is open here.
    fn move_on(
        &mut self,
        request: &LoginRequest,
        answer: &[u8],
        sessions: &mut dyn Sessions,
    ) -> Result<TargetLoginStep, Refusal> {
        let stages = request.flags & 0x0f;
        if request.flags & code::TRANSIT == 0 {
            return Ok(TargetLoginStep::Reply(self.response(request, stages & 0x0c, answer, None)));
        }
        match self.security {
            Security::Passed => {}
            // The security stage without AuthMethod is a login without authentication.
            Security::Open if !self.must_authenticate() => self.security = Security::Passed,
            Security::Open => return Err(Refusal(code::AUTHENTICATION_FAILURE)),
            // The initiator is ready, we are not: T stays clear.
            Security::Method | Security::Challenged => {
                return Ok(TargetLoginStep::Reply(self.response(request, stages & 0x0c, answer, None)));
            }
        }
        let next = request.flags & 3;
        if next != code::STAGE_FULL_FEATURE {
            self.stage = next;
            return Ok(TargetLoginStep::Reply(self.response(request, code::TRANSIT | stages, answer, None)));
        }
        let candidate = Candidate {
            initiator_name: self.initiator_name.clone(),
            isid: request.isid,
            tsih: request.tsih.get(),
            cid: request.cid.get(),
            cmd_sn: request.cmd_sn.get(),
            discovery: self.discovery,
            params: self.negotiation.values().clone(),
        };
        let admitted = sessions.admit(&candidate).map_err(Refusal)?;
        let bytes = self.response(request, code::TRANSIT | stages, answer, Some(&admitted));
        let logged_in = LoggedInConnection {
            session: admitted.session,
            cid: candidate.cid,
            connection_id: admitted.connection_id,
            handle: admitted.handle,
            params: candidate.params,
            stat_sn: self.stat_sn,
        };
        Ok(TargetLoginStep::Done(bytes, Box::new(logged_in)))
    }

    fn response(
        &mut self,
        request: &LoginRequest,
        flags: u8,
        data: &[u8],
        admitted: Option<&Admitted>,
    ) -> Vec<u8> {
        // The login's commands are immediate: CmdSN is the one the first command will carry.
        let cmd_sn = request.cmd_sn.get();
        let (exp, max) = match (admitted, &self.found) {
            (Some(admitted), _) => admitted.window,
            (None, Some(found)) => found.window,
            (None, None) => (cmd_sn, cmd_sn),
        };
        let response = LoginResponse {
            flags,
            data_segment_length: U24::new(data.len() as u32),
            isid: request.isid,
            tsih: admitted.map_or(request.tsih, |admitted| admitted.session.tsih().into()),
            initiator_task_tag: request.initiator_task_tag,
            stat_sn: self.stat_sn.into(),
            exp_cmd_sn: exp.into(),
            max_cmd_sn: max.into(),
            ..LoginResponse::default()
        };
        self.stat_sn = self.stat_sn.wrapping_add(1);
        let mut bytes = response.as_bytes().to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(BHS_BYTES + padded(data.len()), 0);
        bytes
    }

    fn refuse(&mut self, request: &LoginRequest, status: u16) -> TargetLoginStep {
        // StatSN, ExpCmdSN and MaxCmdSN mean nothing with a status class other than zero.
        let response = LoginResponse {
            flags: request.flags & 0x0c,
            isid: request.isid,
            tsih: request.tsih,
            initiator_task_tag: request.initiator_task_tag,
            status_class: (status >> 8) as u8,
            status_detail: status as u8,
            ..LoginResponse::default()
        };
        TargetLoginStep::Refuse(response.as_bytes().to_vec(), status)
    }
}

/// Keys that [`TargetLogin::introduce`] has dealt with; they are not for the negotiation.
const INTRODUCTION: [&str; 4] = ["InitiatorName", "SessionType", "TargetName", "InitiatorAlias"];

fn push_all(out: &mut Vec<u8>, keys: &chap::Keys) {
    for (key, value) in keys {
        push_pair(out, key, value);
    }
}

fn has(pairs: &[(&str, &str)], name: &str) -> bool {
    pairs.iter().any(|(key, _)| *key == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target_node::session::SessionTable;

    const NAMES: &[(&str, &str)] =
        &[("InitiatorName", "iqn.2026-11.io.brunt:i"), ("TargetName", "iqn.2026-11.io.brunt:t0")];

    fn identity(chap: bool, mutual: bool) -> Arc<TargetIdentity> {
        Arc::new(TargetIdentity {
            name: "iqn.2026-11.io.brunt:t0".into(),
            alias: None,
            portal_group_tag: 1,
            chap: chap.then(|| Credentials::new("alice", *b"alice's secret")),
            mutual_chap: mutual.then(|| Credentials::new("target", *b"target's secret")),
            wishes: Wishes::default(),
        })
    }

    struct Bench {
        login: TargetLogin,
        table: SessionTable,
        request: LoginRequest,
    }

    impl Bench {
        fn new(chap: bool, mutual: bool) -> Bench {
            let request = LoginRequest {
                opcode: 0x43,
                isid: [0x80, 1, 2, 3, 4, 5],
                initiator_task_tag: 7.into(),
                cmd_sn: 100.into(),
                ..LoginRequest::default()
            };
            Bench {
                login: TargetLogin::new(identity(chap, mutual), Challenge::random()),
                table: SessionTable::new("iqn.2026-11.io.brunt:t0", 1, 4),
                request,
            }
        }

        fn send(&mut self, flags: u8, pairs: &[(&str, &str)]) -> TargetLoginStep {
            let mut data = Vec::new();
            for (key, value) in pairs {
                push_pair(&mut data, key, value);
            }
            self.request.flags = flags;
            self.request.data_segment_length = U24::new(data.len() as u32);
            self.login.on_pdu(self.request.bhs(), &data, &mut &self.table)
        }

        fn status(&mut self, flags: u8, pairs: &[(&str, &str)]) -> u16 {
            match self.send(flags, pairs) {
                TargetLoginStep::Reply(_) | TargetLoginStep::Done(..) => 0,
                TargetLoginStep::Refuse(_, status) => status,
                TargetLoginStep::Close => u16::MAX,
            }
        }
    }

    fn answer_of(bytes: &[u8]) -> (LoginResponse, Vec<(String, String)>) {
        let bhs = Bhs::peek(bytes).unwrap();
        let pairs = parse_pairs(&bytes[BHS_BYTES..BHS_BYTES + bhs.data_len()]).unwrap();
        let own = pairs.into_iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        (*LoginResponse::view(bhs), own)
    }

    fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        NAMES.iter().copied().chain(more.iter().copied()).collect()
    }

    /// The shortest login there is, and the numbers that full-feature phase goes on with.
    #[test]
    fn one_request() {
        let mut bench = Bench::new(false, false);
        let TargetLoginStep::Done(bytes, done) = bench.send(0x87, &with(&[("MaxBurstLength", "65536")]))
        else {
            panic!("not in")
        };
        let (response, pairs) = answer_of(&bytes);
        assert_eq!((response.flags, response.status_class), (0x87, 0));
        assert_eq!(response.exp_cmd_sn.get(), 100);
        assert_eq!(response.tsih.get(), done.session.tsih());
        assert_ne!(response.tsih.get(), 0);
        let value = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|pair| pair.1.as_str());
        assert_eq!(value("TargetPortalGroupTag"), Some("1"));
        assert_eq!(value("MaxBurstLength"), Some("65536"));
        assert_eq!(value("MaxRecvDataSegmentLength"), Some("1048576"));
        assert_eq!(done.stat_sn, 1);
        assert_eq!(done.params.max_burst_length, 65536);
        assert_eq!(done.session.nexus().initiator_port, "iqn.2026-11.io.brunt:i,i,0x800102030405");
    }

    /// What is wrong gets its status of RFC 7143, 11.13.5.
    #[test]
    fn refusals() {
        let check = |chap: bool, flags: u8, pairs: &[(&str, &str)], status: u16| {
            assert_eq!(Bench::new(chap, false).status(flags, pairs), status, "{flags:#x} {pairs:?}");
        };
        check(false, 0x87, &[("TargetName", "iqn.2026-11.io.brunt:t0")], code::MISSING_PARAMETER);
        check(false, 0x87, &NAMES[..1], code::MISSING_PARAMETER);
        check(false, 0x87, &[NAMES[0], ("TargetName", "iqn.other")], code::NOT_FOUND);
        check(false, 0x87, &with(&[("SessionType", "Odd")]), code::SESSION_TYPE_NOT_SUPPORTED);
        check(false, 0x87, &with(&[NAMES[0]]), code::INITIATOR_ERROR);
        check(false, 0x87, &with(&[("MaxRecvDataSegmentLength", "1")]), code::INITIATOR_ERROR);
        check(false, 0x87, &with(&[("AuthMethod", "None")]), code::INITIATOR_ERROR);
        check(false, 0x81, &with(&[("AuthMethod", "KRB5")]), code::AUTHENTICATION_FAILURE);
        check(false, 0x81, &with(&[("AuthMethod", "CHAP")]), code::AUTHENTICATION_FAILURE);
        check(true, 0x87, NAMES, code::AUTHENTICATION_FAILURE);
        check(true, 0x81, NAMES, code::AUTHENTICATION_FAILURE);
        check(true, 0x81, &with(&[("AuthMethod", "None")]), code::AUTHENTICATION_FAILURE);
        // Transit to the same or a reserved stage, transit with continue, a stage that is none.
        check(false, 0x80, NAMES, code::INITIATOR_ERROR);
        check(false, 0x86, NAMES, code::INITIATOR_ERROR);
        check(false, 0xc7, NAMES, code::INITIATOR_ERROR);
        check(false, 0x0c, NAMES, code::INITIATOR_ERROR);
    }

    /// The header's own rules.
    #[test]
    fn header_rules() {
        let check = |change: fn(&mut LoginRequest), status: u16| {
            let mut bench = Bench::new(false, false);
            change(&mut bench.request);
            assert_eq!(bench.status(0x87, NAMES), status);
        };
        check(|r| r.version_min = 1, code::UNSUPPORTED_VERSION);
        check(|r| r.opcode = 0x03, code::INITIATOR_ERROR);
        check(|r| r.tsih = 9.into(), code::SESSION_DOES_NOT_EXIST);
        check(|r| r.opcode = 0x41, u16::MAX);
        let second = |change: fn(&mut LoginRequest), status: u16| {
            let mut bench = Bench::new(false, false);
            assert_eq!(bench.status(0x04, NAMES), 0);
            change(&mut bench.request);
            assert_eq!(bench.status(0x87, &[]), status);
        };
        second(|_| (), 0);
        second(|r| r.cid = 3.into(), code::INITIATOR_ERROR);
        second(|r| r.isid[5] = 9, code::INITIATOR_ERROR);
        second(|r| r.initiator_task_tag = 8.into(), code::INITIATOR_ERROR);
        second(|r| r.opcode = 0x40, code::INVALID_DURING_LOGIN);
        // A stage that was not moved to.
        let mut bench = Bench::new(false, false);
        assert_eq!(bench.status(0x04, NAMES), 0);
        assert_eq!(bench.status(0x81, &[]), code::INITIATOR_ERROR);
    }

    /// Text may come in pieces, and not without end.
    #[test]
    fn continued_text() {
        let mut data = Vec::new();
        NAMES.iter().for_each(|(key, value)| push_pair(&mut data, key, value));
        let mut bench = Bench::new(false, false);
        let (first, rest) = data.split_at(20);
        bench.request.flags = 0x44;
        bench.request.data_segment_length = U24::new(20);
        let TargetLoginStep::Reply(bytes) = bench.login.on_pdu(bench.request.bhs(), first, &mut &bench.table)
        else {
            panic!("no reply")
        };
        let (response, pairs) = answer_of(&bytes);
        assert_eq!((response.flags, pairs.len()), (0x04, 0));
        bench.request.flags = 0x87;
        bench.request.data_segment_length = U24::new(rest.len() as u32);
        assert!(matches!(
            bench.login.on_pdu(bench.request.bhs(), rest, &mut &bench.table),
            TargetLoginStep::Done(..)
        ));
        let mut bench = Bench::new(false, false);
        bench.request.flags = 0x44;
        let piece = vec![b'x'; 8192];
        bench.request.data_segment_length = U24::new(8192);
        let refused = (0..20).any(|_| {
            matches!(
                bench.login.on_pdu(bench.request.bhs(), &piece, &mut &bench.table),
                TargetLoginStep::Refuse(..)
            )
        });
        assert!(refused, "text without end was taken");
    }

    /// CHAP, one way and mutual, with the initiator of this crate; a wrong secret stays out.
    #[test]
    fn chap_both_ways() {
        let check = |secret: &'static [u8], mutual: bool, status: u16| {
            let mut bench = Bench::new(true, true);
            assert_eq!(bench.status(0x81, &with(&[("AuthMethod", "CHAP,None")])), 0);
            let proof =
                mutual.then(|| (Credentials::new("target", *b"target's secret"), Challenge::random()));
            let mut initiator = chap::ChapInitiator::new(Credentials::new("alice", secret), proof).unwrap();
            let own = |keys: &chap::Keys| -> Vec<(String, String)> {
                keys.iter().map(|(key, value)| (key.to_string(), value.clone())).collect()
            };
            let keys = own(&initiator.offer());
            let pairs: Vec<(&str, &str)> = keys.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let TargetLoginStep::Reply(bytes) = bench.send(0x00, &pairs) else { panic!("no challenge") };
            let (_, pairs) = answer_of(&bytes);
            let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let keys = own(&initiator.on_challenge(&pairs).unwrap());
            let pairs: Vec<(&str, &str)> = keys.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            match bench.send(0x81, &pairs) {
                TargetLoginStep::Reply(bytes) => {
                    assert_eq!(status, 0);
                    let (response, pairs) = answer_of(&bytes);
                    assert_eq!(response.flags, 0x81);
                    let pairs: Vec<(&str, &str)> =
                        pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                    initiator.on_response(&pairs).unwrap();
                    assert!(matches!(bench.send(0x87, &[]), TargetLoginStep::Done(..)));
                }
                TargetLoginStep::Refuse(_, refused) => assert_eq!(refused, status),
                other => panic!("{other:?}"),
            }
        };
        check(b"alice's secret", false, 0);
        check(b"alice's secret", true, 0);
        check(b"bob's secret", false, code::AUTHENTICATION_FAILURE);
    }

    /// Discovery needs no target name and no secret, and has no normal keys.
    #[test]
    fn discovery() {
        let mut bench = Bench::new(true, false);
        let pairs = [NAMES[0], ("SessionType", "Discovery"), ("MaxBurstLength", "65536")];
        let TargetLoginStep::Done(bytes, done) = bench.send(0x87, &pairs) else { panic!("not in") };
        assert!(done.session.is_discovery());
        let (_, pairs) = answer_of(&bytes);
        assert!(pairs.contains(&("MaxBurstLength".into(), "Irrelevant".into())));
    }

    /// Whatever a header says, at any length, there is an answer or a close.
    #[test]
    fn any_header() {
        let mut random = brunt_core::random::Random::new(1);
        for _ in 0..20_000 {
            let mut bench = Bench::new(random.chance(0.5), false);
            let mut data = Vec::new();
            with(&[("AuthMethod", "CHAP,None")]).iter().for_each(|(k, v)| push_pair(&mut data, k, v));
            for _ in 0..3 {
                let mut bytes = bench.request.as_bytes().to_vec();
                let at = random.below(48) as usize;
                bytes[at] = random.next_u64() as u8;
                if random.chance(0.7) {
                    bytes[0] = 0x43;
                }
                let at = random.below(data.len() as u64) as usize;
                data[at] = random.next_u64() as u8;
                let bhs = Bhs::peek(&bytes).unwrap();
                if matches!(
                    bench.login.on_pdu(bhs, &data, &mut &bench.table),
                    TargetLoginStep::Refuse(..) | TargetLoginStep::Close
                ) {
                    break;
                }
            }
        }
    }
}
