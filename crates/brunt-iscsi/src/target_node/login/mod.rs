//! The target side of a connection's login phase (RFC 7143, sections 6 and 12): selects the target, identifies and
//! authenticates the initiator, and negotiates parameters. The acceptor calls it with each login request and sends
//! the response. The one rule: nothing of a session exists before the last response; until then, a login consists
//! only of this struct.

use std::sync::Arc;

use brunt_wire::iscsi::Opcode;
use brunt_wire::iscsi::pdu::{
    BHS_BYTES, Bhs, LoginRequest, LoginResponse, OPCODE_IMMEDIATE, U24, code::login as code, padded,
};
use brunt_wire::iscsi::text::{parse_pairs, push_pair};
use zerocopy::IntoBytes;

use super::directory::ServedTarget;
use super::session::{ConnectionHandle, TargetSession};
use crate::chap::{self, Challenge, ChapUser};
use crate::params::{IscsiRole, Negotiation, Params, Preferences};

/// Limit on a login request's data segment: nothing larger has been declared yet (RFC 7143, 13.12).
pub const LOGIN_SEGMENT_BYTES_MAX: usize = 8192;
/// Limit on the text of continued requests. RFC 7143, 6.2 requires at least 16 KiB, and 64 KiB for exchanges with large
/// authentication items.
pub const TEXT_BYTES_MAX: usize = 65536;
/// Limit on the requests of a login; security takes at most four, and no negotiation needs many more.
const REQUESTS_MAX: u32 = 64;
/// The longest iSCSI name, in bytes (RFC 7143, 4.2.7.1).
const NAME_BYTES_MAX: usize = 223;

/// The acceptor's next step.
#[derive(Debug)]
pub enum TargetLoginStep {
    /// Send these bytes; the login continues.
    Reply(Vec<u8>),
    /// Send these bytes; full-feature phase begins.
    Done(Vec<u8>, Box<LoggedInConnection>),
    /// Send these bytes and close. The status is class and detail.
    Refuse(Vec<u8>, u16),
    /// Close without a response: the peer is not an iSCSI initiator.
    Close,
}

/// A connection that is ready for full-feature phase.
#[derive(Debug)]
pub struct LoggedInConnection {
    /// Its session.
    pub session: Arc<TargetSession>,
    /// The connection's id within the session, chosen by the initiator.
    pub cid: u16,
    /// The connection's number, unique for the life of the process.
    pub connection_id: u64,
    /// Handle for messages to the connection.
    pub handle: ConnectionHandle,
    /// The negotiated parameters of this connection and its session.
    pub params: Params,
    /// StatSN of the next response.
    pub stat_sn: u32,
}

/// A session that a connection asks to join.
#[derive(Clone, Debug)]
pub struct JoinableSession {
    /// The initiator's name.
    pub initiator_name: String,
    /// The ISID.
    pub isid: [u8; 6],
    /// The session's target; `None`: a discovery session, which accepts no second connection.
    pub target: Option<Arc<ServedTarget>>,
    /// The portal group that the session uses.
    pub portal_group_tag: u16,
    /// The session-wide parameters.
    pub params: Params,
    /// ExpCmdSN and MaxCmdSN.
    pub window: (u32, u32),
}

/// A completed login, for the session table to accept or refuse.
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
    /// CmdSN of the login requests, which is also the CmdSN of the first command.
    pub cmd_sn: u32,
    /// The target; `None`: a discovery session.
    pub target: Option<Arc<ServedTarget>>,
    /// The group of the portal that was used: a target and a portal group form an iSCSI target port.
    pub portal_group_tag: u16,
    /// The negotiated parameters.
    pub params: Params,
}

/// The targets and their sessions, as needed by a login.
pub trait Sessions {
    /// Finds a target by name.
    fn target(&self, name: &str) -> Option<Arc<ServedTarget>>;
    /// Users who may run discovery; empty: everyone.
    fn discovery_users(&self) -> Vec<ChapUser>;
    /// Finds a session by TSIH.
    fn find(&self, tsih: u16) -> Option<JoinableSession>;
    /// Admits the candidate: opens a session (ending the session that it reinstates), or adds or replaces a
    /// connection. The error is a login status.
    fn admit(&mut self, candidate: &Candidate) -> Result<Admitted, u16>;
}

/// A connection that was admitted to a session.
#[derive(Debug)]
pub struct Admitted {
    /// The session.
    pub session: Arc<TargetSession>,
    /// The connection's process-wide id.
    pub connection_id: u64,
    /// Handle for messages to the connection.
    pub handle: ConnectionHandle,
    /// ExpCmdSN and MaxCmdSN.
    pub window: (u32, u32),
}

/// One login in progress.
#[derive(Debug)]
pub struct TargetLogin {
    wishes: Arc<Preferences>,
    portal_group_tag: u16,
    /// Known once the names have been processed; `None` for discovery.
    target: Option<Arc<ServedTarget>>,
    /// Users who may log in; empty: everyone.
    users: Vec<ChapUser>,
    chap: chap::ChapTarget,
    first: Option<LoginRequest>,
    requests: u32,
    stage: u8,
    stat_sn: u32,
    text: Vec<u8>,
    security: Security,
    /// Whether names and session type have been processed.
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
    /// AuthMethod has not been negotiated.
    Open,
    /// CHAP was chosen; CHAP_A comes next.
    Method,
    /// Our challenge was sent.
    Challenged,
    /// Authentication is complete.
    Passed,
}

/// A refusal, with its login status.
struct Refusal(u16);

impl TargetLogin {
    /// Starts a login through a portal of this group. The challenge must be used for this login only.
    pub fn new(
        wishes: Arc<Preferences>,
        portal_group_tag: u16,
        challenge: Challenge,
    ) -> TargetLogin {
        let negotiation = Negotiation::new(IscsiRole::Target, (*wishes).clone(), false);
        TargetLogin {
            wishes,
            portal_group_tag,
            target: None,
            users: Vec::new(),
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

    /// The initiator's name, if it is already known, for messages.
    pub fn initiator_name(&self) -> &str {
        &self.initiator_name
    }

    /// Length of the PDU that starts with `bhs`; `None` if such a PDU isn't valid during login. In that case, call
    /// [`TargetLogin::on_pdu`] without data.
    pub fn pdu_len(bhs: &Bhs) -> Option<usize> {
        let acceptable = bhs.kind() == Opcode::LoginRequest
            && bhs.total_ahs_length == 0
            && bhs.data_len() <= LOGIN_SEGMENT_BYTES_MAX;
        // Digests start after the login.
        acceptable.then(|| BHS_BYTES + padded(bhs.data_len()))
    }

    /// Processes one PDU: its header, and its data segment without padding.
    pub fn on_pdu(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        sessions: &mut dyn Sessions,
    ) -> TargetLoginStep {
        let request = *LoginRequest::view(bhs);
        if bhs.kind() != Opcode::LoginRequest {
            // The first PDU must be a login request; otherwise drop the connection (RFC 7143, 6.3).
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
            // An empty response requests the rest of the text.
            return Ok(TargetLoginStep::Reply(self.response(
                request,
                request.flags & 0x0c,
                &[],
                None,
            )));
        }
        let text = std::mem::take(&mut self.text);
        let pairs = parse_pairs(&text).map_err(|_| Refusal(code::INITIATOR_ERROR))?;
        let mut answer = Vec::new();
        if !self.introduced {
            self.introduce(request, &pairs, sessions)?;
            self.describe_target(request, &pairs, &mut answer);
        }
        let (security, operational): (Vec<_>, Vec<_>) = pairs
            .into_iter()
            .partition(|(key, _)| *key == "AuthMethod" || key.starts_with("CHAP_"));
        let stage = (request.flags >> 2) & 3;
        if stage == code::STAGE_SECURITY {
            self.on_security(&security, &mut answer)?;
        } else {
            if !security.is_empty() {
                return Err(Refusal(code::INITIATOR_ERROR));
            }
            self.skip_security()?;
        }
        let operational: Vec<(&str, &str)> = operational
            .into_iter()
            .filter(|(key, _)| !INTRODUCTION.contains(key))
            .collect();
        let answers = self
            .negotiation
            .on_pairs(&operational)
            .map_err(|_| Refusal(code::INITIATOR_ERROR))?;
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

    /// Answers the initiator's introduction with the target's portal group and alias.
    fn describe_target(
        &mut self,
        request: &LoginRequest,
        pairs: &[(&str, &str)],
        answer: &mut Vec<u8>,
    ) {
        if !self.discovery && request.tsih.get() == 0 && has(pairs, "TargetName") {
            push_pair(
                answer,
                "TargetPortalGroupTag",
                &self.portal_group_tag.to_string(),
            );
            self.tag_declared = true;
        }
        if let Some(alias) = self
            .target
            .as_ref()
            .and_then(|target| target.alias.as_deref())
        {
            push_pair(answer, "TargetAlias", alias);
        }
    }

    /// The initiator starts with the operational stage, or leaves the security stage early.
    fn skip_security(&mut self) -> Result<(), Refusal> {
        if self.security != Security::Passed {
            // Skips the security stage or the rest of CHAP: allowed only if no authentication is required (RFC
            // 7143, 6.3.2).
            if self.must_authenticate() {
                return Err(Refusal(code::AUTHENTICATION_FAILURE));
            }
            self.security = Security::Passed;
        }
        Ok(())
    }

    /// Checks that don't depend on the text (RFC 7143, 11.12).
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

    /// Processes names, session type, and the session to join (RFC 7143, 6.3.1).
    fn introduce(
        &mut self,
        request: &LoginRequest,
        pairs: &[(&str, &str)],
        sessions: &dyn Sessions,
    ) -> Result<(), Refusal> {
        let get = |name: &str| -> Result<Option<&str>, Refusal> {
            let mut found = pairs.iter().filter(|(key, _)| *key == name);
            let value = found.next().map(|pair| pair.1);
            if found.next().is_some() {
                Err(Refusal(code::INITIATOR_ERROR))
            } else {
                Ok(value)
            }
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
        let named = match get("TargetName")? {
            None if !self.discovery => return Err(Refusal(code::MISSING_PARAMETER)),
            None => None,
            Some(name) => Some(sessions.target(name).ok_or(Refusal(code::NOT_FOUND))?),
        };
        self.target = named.filter(|_| !self.discovery);
        self.users = match &self.target {
            Some(target) => target.users.clone(),
            None => sessions.discovery_users(),
        };
        let wishes = (*self.wishes).clone();
        self.negotiation = if request.tsih.get() == 0 {
            Negotiation::new(IscsiRole::Target, wishes, self.discovery)
        } else {
            let found = sessions
                .find(request.tsih.get())
                .ok_or(Refusal(code::SESSION_DOES_NOT_EXIST))?;
            if found.initiator_name != initiator || found.isid != request.isid {
                return Err(Refusal(code::SESSION_DOES_NOT_EXIST));
            }
            let name = |target: &Option<Arc<ServedTarget>>| {
                target.as_ref().map(|target| target.name.clone())
            };
            let joins = !self.discovery
                && name(&found.target) == name(&self.target)
                && found.portal_group_tag == self.portal_group_tag;
            if !joins {
                return Err(Refusal(code::CANNOT_INCLUDE_IN_SESSION));
            }
            let negotiation = Negotiation::joining(IscsiRole::Target, wishes, &found.params);
            self.found = Some(found);
            negotiation
        };
        self.introduced = true;
        Ok(())
    }

    fn must_authenticate(&self) -> bool {
        !self.users.is_empty()
    }

    /// Processes the security stage (RFC 7143, 12.1).
    fn on_security(&mut self, pairs: &[(&str, &str)], answer: &mut Vec<u8>) -> Result<(), Refusal> {
        let bad = Refusal(code::INITIATOR_ERROR);
        let denied = Refusal(code::AUTHENTICATION_FAILURE);
        let get = |name: &str| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|pair| pair.1)
        };
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
                let must = self.must_authenticate();
                let choice = methods.split(',').find(|method| match *method {
                    "CHAP" => must,
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
                let (_, keys) = self
                    .chap
                    .on_response(pairs, &self.users)
                    .map_err(|_| denied)?;
                push_all(answer, &keys);
                self.security = Security::Passed;
                Ok(())
            }
            // The negotiated method, if any, expects no further keys.
            Security::Passed if pairs.is_empty() => Ok(()),
            Security::Passed => Err(bad),
        }
    }

    /// Responds, and follows the initiator to the next stage if the current one is complete.
    fn move_on(
        &mut self,
        request: &LoginRequest,
        answer: &[u8],
        sessions: &mut dyn Sessions,
    ) -> Result<TargetLoginStep, Refusal> {
        let stages = request.flags & 0x0f;
        if request.flags & code::TRANSIT == 0 {
            return Ok(TargetLoginStep::Reply(self.response(
                request,
                stages & 0x0c,
                answer,
                None,
            )));
        }
        match self.security {
            Security::Passed => {}
            // A security stage without AuthMethod is a login without authentication.
            Security::Open if !self.must_authenticate() => self.security = Security::Passed,
            Security::Open => return Err(Refusal(code::AUTHENTICATION_FAILURE)),
            // The initiator is ready, but we are not: T stays clear.
            Security::Method | Security::Challenged => {
                return Ok(TargetLoginStep::Reply(self.response(
                    request,
                    stages & 0x0c,
                    answer,
                    None,
                )));
            }
        }
        let next = request.flags & 3;
        if next != code::STAGE_FULL_FEATURE {
            self.stage = next;
            return Ok(TargetLoginStep::Reply(self.response(
                request,
                code::TRANSIT | stages,
                answer,
                None,
            )));
        }
        if self.negotiation.lacks_digest() {
            return Err(Refusal(code::MISSING_PARAMETER));
        }
        let candidate = Candidate {
            initiator_name: self.initiator_name.clone(),
            isid: request.isid,
            tsih: request.tsih.get(),
            cid: request.cid.get(),
            cmd_sn: request.cmd_sn.get(),
            target: self.target.clone(),
            portal_group_tag: self.portal_group_tag,
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
        // Login requests are immediate, so their CmdSN is that of the first command.
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
        // StatSN, ExpCmdSN and MaxCmdSN are meaningless unless the status class is zero.
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

/// Keys that [`TargetLogin::introduce`] processes; they are not part of the negotiation.
const INTRODUCTION: [&str; 4] = [
    "InitiatorName",
    "SessionType",
    "TargetName",
    "InitiatorAlias",
];

fn push_all(out: &mut Vec<u8>, keys: &chap::Keys) {
    for (key, value) in keys {
        push_pair(out, key, value);
    }
}

fn has(pairs: &[(&str, &str)], name: &str) -> bool {
    pairs.iter().any(|(key, _)| *key == name)
}

#[cfg(test)]
mod tests;
