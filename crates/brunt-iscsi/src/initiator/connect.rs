//! Creates a session: connects, logs in, follows redirects, queries the LUN. Blocking, with an overall deadline; called
//! when a device is opened, and on a separate thread to restore a lost session, so that the device's thread never
//! waits.
//!
//! The one rule: the result is ready for full-feature phase, with no unread data in its sockets. Failures that the
//! network may have caused are retried and counted; rejections by the target aren't.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use brunt_block::attempts::{Attempted, AttemptsFailed, in_attempts};
use brunt_block::dial::{self, DialError, left};
use brunt_block::table::OpenError;
use brunt_block::{Buf, BufPool, DeviceError, ReconnectError, RefusalKind};
use brunt_core::{Clock, Nanos};
use brunt_wire::iscsi::digest;
use brunt_wire::iscsi::pdu::{BHS_BYTES, Bhs, DIGEST_BYTES, padded};
use brunt_wire::scsi::cdb::{be16, be32, be64, op};
use brunt_wire::scsi::inquiry::{Capacity, page};
use brunt_wire::scsi::sense::key;
use brunt_wire::scsi::unit_names::{self, UnitNames};
use zerocopy::IntoBytes;

use super::command::{Facts, UnmapBy};
use super::discovery::{Discovery, DiscoveryStep, TargetRecord};
use super::login::{
    ConnectionPlace, InitiatorLogin, LOGIN_SEGMENT_BYTES_MAX, Login, LoginConfig, LoginStep,
};
use super::login_error::LoginError;
use super::session::{
    Attachment, DataDestination, InitiatorSession, SessionConfig, TagKind, Violation,
};
use super::url::{InitiatorConfig, PortalAddress};
use crate::chap::Challenge;
use crate::device_errors;

/// Maximum number of redirects; a longer chain is a loop.
const REDIRECTS_MAX: u32 = 4;
/// The first CmdSN of a session.
const FIRST_CMD_SN: u32 = 1;
/// Longest request if the LUN reports no limit, and the upper limit for any request.
const TRANSFER_BYTES_MAX: u32 = 16 << 20;
/// Maximum time that a LUN may report "becoming ready".
const READY_WAIT: Duration = Duration::from_secs(10);

/// A session that is ready for use.
#[derive(Debug)]
pub struct Established {
    /// One socket per connection, in the attachment's order.
    pub sockets: Vec<TcpStream>,
    /// For [`InitiatorSession::attach`].
    pub attachment: Attachment,
    /// The LUN's properties.
    pub facts: Facts,
    /// Number of failed attempts.
    pub retries: u32,
    /// Error of the last failed attempt.
    pub trouble: Option<String>,
}

/// Why a session could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host name can't be resolved.
    #[error("{0}: cannot resolve the host: {1}")]
    Resolve(PortalAddress, io::Error),
    /// The TCP connection failed.
    #[error("{0}: cannot connect: {1}")]
    Connect(PortalAddress, io::Error),
    /// The connection broke or timed out.
    #[error("{0}: the connection failed during {1}: {2}")]
    Io(PortalAddress, &'static str, io::Error),
    /// The login failed.
    #[error("{0}: {1}")]
    Login(PortalAddress, LoginError),
    /// The target violated the protocol after login.
    #[error("{0}: {1}")]
    Violation(PortalAddress, Violation),
    /// A digest was wrong.
    #[error("{0}: wrong {1} digest: the data was corrupted in transit")]
    Digest(PortalAddress, &'static str),
    /// The LUN can't be used.
    #[error("{0}")]
    Lun(String),
    /// All attempts failed.
    #[error("{last}; {attempts} attempts in {:.1} s", .time.as_secs_f64())]
    AttemptsFailed {
        /// Number of attempts.
        attempts: u32,
        /// Total time of the attempts.
        time: Duration,
        /// Error of the last attempt.
        last: Box<ConnectError>,
    },
}

impl ReconnectError for ConnectError {
    fn is_transient(&self) -> bool {
        match self {
            ConnectError::Login(_, error) => error.is_transient(),
            ConnectError::AttemptsFailed { last, .. } => last.is_transient(),
            // Transient: for example, a starting target opens its portal slightly before its LUNs are available.
            _ => true,
        }
    }
}

impl ConnectError {
    /// Whether the network may be the cause, so that an immediate retry may help. A target that has rejected the
    /// login would reject it again.
    fn is_of_the_network(&self) -> bool {
        match self {
            // An error such as "connection refused" or "host unreachable" is an answer that the network delivered, so
            // only timeouts count.
            ConnectError::Connect(_, error) => {
                matches!(
                    error.kind(),
                    io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
                )
            }
            ConnectError::Io(..) | ConnectError::Digest(..) => true,
            ConnectError::Resolve(..)
            | ConnectError::Login(..)
            | ConnectError::Violation(..)
            | ConnectError::Lun(_)
            | ConnectError::AttemptsFailed { .. } => false,
        }
    }
}

impl From<ConnectError> for OpenError {
    fn from(error: ConnectError) -> OpenError {
        OpenError::Failed(Box::new(error))
    }
}

/// Creates a session with `config.connections` connections and reads the LUN's properties, with as many attempts as
/// fit in the configured timeout. All attempts use the same ISID, so that a session left over from an earlier attempt
/// is replaced.
///
/// # Errors
/// See [`ConnectError`].
pub fn establish(config: &InitiatorConfig, isid: [u8; 6]) -> Result<Established, ConnectError> {
    let deadline = Instant::now() + config.timeout;
    let Attempted {
        value,
        retries,
        trouble,
    } = over_the_network(config.timeout, |time| attempt(config, isid, time, deadline))?;
    Ok(Established {
        retries,
        trouble: trouble.map(|trouble| trouble.to_string()),
        ..value
    })
}

/// Retries failures that the network may have caused.
fn over_the_network<T>(
    limit: Duration,
    once: impl FnMut(Duration) -> Result<T, ConnectError>,
) -> Result<Attempted<T, ConnectError>, ConnectError> {
    in_attempts(limit, ConnectError::is_of_the_network, once).map_err(
        |AttemptsFailed {
             last,
             attempts,
             time,
         }| {
            match attempts {
                1 => last,
                _ => ConnectError::AttemptsFailed {
                    attempts,
                    time,
                    last: Box::new(last),
                },
            }
        },
    )
}

/// Like [`establish`], but makes a single attempt, for callers with their own retry policy.
///
/// # Errors
/// See [`ConnectError`].
pub fn establish_once(
    config: &InitiatorConfig,
    isid: [u8; 6],
    limit: Duration,
) -> Result<Established, ConnectError> {
    attempt(config, isid, limit, Instant::now() + limit)
}

/// `time` limits each login; a LUN that is becoming ready may take until `deadline`.
fn attempt(
    config: &InitiatorConfig,
    isid: [u8; 6],
    time: Duration,
    deadline: Instant,
) -> Result<Established, ConnectError> {
    let soon = || deadline.min(Instant::now() + time);
    let login = LoginConfig {
        initiator_name: config.initiator.clone(),
        target_name: Some(config.target.clone()),
        credentials: config.credentials.clone(),
        target_credentials: config.target_credentials.clone(),
        wishes: config.wishes.clone(),
        isid,
    };
    let first_place = ConnectionPlace {
        cmd_sn: FIRST_CMD_SN,
        ..ConnectionPlace::default()
    };
    let (mut wire, logged_in) = log_in(&config.address, &login, &first_place, soon())?;
    wire.deadline = deadline;
    let allowed = logged_in.params.max_connections;
    if allowed < config.connections {
        return Err(ConnectError::Lun(format!(
            "{}: the target allows {allowed} connection(s) per session instead of {}; use \
             sessions={} instead",
            config.name(),
            config.connections,
            config.connections
        )));
    }
    let mut probe = LunProber::new(config, wire, &logged_in);
    let facts = probe.facts(config)?;
    let mut attachment = Attachment {
        cmd_sn: probe.session.cmd_sn(),
        max_cmd_sn: probe.session.max_cmd_sn(),
        connections: vec![(0, logged_in.params.clone(), probe.session.exp_stat_sn(0))],
    };
    // Further connections go to the first connection's address, after redirects.
    let address = probe.wire.address.clone();
    let mut sockets = vec![probe.wire.socket];
    for cid in 1..config.connections {
        let place = ConnectionPlace {
            tsih: logged_in.tsih,
            cid,
            cmd_sn: attachment.cmd_sn,
            session: Some(logged_in.params.clone()),
        };
        let (wire, joined) = log_in(&address, &login, &place, soon())?;
        attachment
            .connections
            .push((cid, joined.params, joined.exp_stat_sn));
        sockets.push(wire.socket);
    }
    for socket in &sockets {
        let _ = socket.set_read_timeout(None);
        let _ = socket.set_write_timeout(None);
    }
    Ok(Established {
        sockets,
        attachment,
        facts,
        retries: 0,
        trouble: None,
    })
}

/// Lists the targets behind a portal (SendTargets), with as many attempts as fit in the configured timeout.
///
/// # Errors
/// See [`ConnectError`].
pub fn discover(
    config: &InitiatorConfig,
) -> Result<Attempted<Vec<TargetRecord>, ConnectError>, ConnectError> {
    let isid = random_isid();
    over_the_network(config.timeout, |time| {
        discover_once(config, isid, Instant::now() + time)
    })
}

fn discover_once(
    config: &InitiatorConfig,
    isid: [u8; 6],
    deadline: Instant,
) -> Result<Vec<TargetRecord>, ConnectError> {
    let login = LoginConfig {
        initiator_name: config.initiator.clone(),
        target_name: None,
        credentials: config.credentials.clone(),
        target_credentials: config.target_credentials.clone(),
        wishes: config.wishes.clone(),
        isid,
    };
    let place = ConnectionPlace {
        cmd_sn: FIRST_CMD_SN,
        ..ConnectionPlace::default()
    };
    let (mut wire, logged_in) = log_in(&config.address, &login, &place, deadline)?;
    wire.header_digest = logged_in.params.header_digest;
    wire.data_digest = logged_in.params.data_digest;
    let (mut discovery, mut request) = Discovery::start(&logged_in, FIRST_CMD_SN);
    loop {
        wire.send_whole(&request, "discovery")?;
        let limit = logged_in.params.max_recv_data_segment_length as usize;
        let (bhs, data) = wire.receive(limit, "discovery")?;
        match discovery
            .on_response(&bhs, &data)
            .map_err(|error| wire.login_error(error))?
        {
            DiscoveryStep::Send(next) => request = next,
            DiscoveryStep::Done(targets) => return Ok(targets),
        }
    }
}

/// A random ISID for a session (RFC 7143, 11.12.5).
pub fn random_isid() -> [u8; 6] {
    let mut isid = [0x80, 0, 0, 0, 0, 0];
    getrandom::fill(&mut isid[1..]).expect("random numbers from the kernel");
    isid
}

/// Logs in on one connection, following redirects.
fn log_in(
    address: &PortalAddress,
    config: &LoginConfig,
    place: &ConnectionPlace,
    deadline: Instant,
) -> Result<(Wire, InitiatorLogin), ConnectError> {
    let mut address = address.clone();
    for _ in 0..=REDIRECTS_MAX {
        let mut wire = Wire::connect(address, deadline)?;
        let (mut login, mut request) =
            Login::start(config.clone(), place.clone(), Challenge::random())
                .map_err(|error| wire.login_error(error))?;
        address = loop {
            wire.send_whole(&request, "login")?;
            let (bhs, data) = wire.receive(LOGIN_SEGMENT_BYTES_MAX, "login")?;
            match login
                .on_response(&bhs, &data)
                .map_err(|error| wire.login_error(error))?
            {
                LoginStep::Send(next) => request = next,
                LoginStep::Done(logged_in) => return Ok((wire, *logged_in)),
                LoginStep::Moved { address, .. } => match PortalAddress::parse(&address) {
                    Some(address) => break address,
                    None => {
                        return Err(
                            wire.login_error(LoginError::Protocol("a redirect without an address"))
                        );
                    }
                },
            }
        };
    }
    Err(ConnectError::Login(
        address,
        LoginError::Protocol("too many redirects"),
    ))
}

/// A blocking connection with a deadline.
struct Wire {
    socket: TcpStream,
    address: PortalAddress,
    deadline: Instant,
    header_digest: bool,
    data_digest: bool,
}

impl Wire {
    fn connect(address: PortalAddress, deadline: Instant) -> Result<Wire, ConnectError> {
        match dial::tcp(&address.host, address.port, deadline) {
            Ok(socket) => {
                let _ = socket.set_nodelay(true);
                Ok(Wire {
                    socket,
                    address,
                    deadline,
                    header_digest: false,
                    data_digest: false,
                })
            }
            Err(DialError::Resolve(error)) => Err(ConnectError::Resolve(address, error)),
            Err(DialError::Connect(error)) => Err(ConnectError::Connect(address, error)),
        }
    }

    fn login_error(&self, error: LoginError) -> ConnectError {
        ConnectError::Login(self.address.clone(), error)
    }

    fn send_whole(&mut self, bytes: &[u8], during: &'static str) -> Result<(), ConnectError> {
        if !self.header_digest && !self.data_digest {
            return self.write(bytes, during);
        }
        let (header, rest) = bytes.split_at(BHS_BYTES);
        let mut wire = header.to_vec();
        if self.header_digest {
            wire.extend_from_slice(&digest::digest(header));
        }
        wire.extend_from_slice(rest);
        if self.data_digest && !rest.is_empty() {
            wire.extend_from_slice(&digest::digest(rest));
        }
        self.write(&wire, during)
    }

    fn write(&mut self, bytes: &[u8], during: &'static str) -> Result<(), ConnectError> {
        let _ = self.socket.set_write_timeout(Some(left(self.deadline)));
        self.socket
            .write_all(bytes)
            .map_err(|error| ConnectError::Io(self.address.clone(), during, plain(error)))
    }

    fn read(&mut self, bytes: &mut [u8], during: &'static str) -> Result<(), ConnectError> {
        let mut at = 0;
        while at < bytes.len() {
            // Updated for each read, so that a target that sends byte by byte doesn't get more time.
            let _ = self.socket.set_read_timeout(Some(left(self.deadline)));
            let failed = match self.socket.read(&mut bytes[at..]) {
                Ok(0) => io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the target closed the connection",
                ),
                Ok(count) => {
                    at += count;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => plain(error),
            };
            return Err(ConnectError::Io(self.address.clone(), during, failed));
        }
        Ok(())
    }

    /// Receives a PDU's header and data; digests are verified and removed.
    fn receive(
        &mut self,
        limit: usize,
        during: &'static str,
    ) -> Result<(Bhs, Vec<u8>), ConnectError> {
        // TotalAHSLength is one byte: at most 255 words.
        let mut header = vec![0; BHS_BYTES];
        self.read(&mut header, during)?;
        let bhs = *Bhs::peek(&header).expect("48 bytes are a header");
        header.resize(BHS_BYTES + bhs.ahs_len(), 0);
        self.read(&mut header[BHS_BYTES..], during)?;
        if self.header_digest {
            let mut sent = [0; DIGEST_BYTES];
            self.read(&mut sent, during)?;
            if sent != digest::digest(&header) {
                return Err(ConnectError::Digest(self.address.clone(), "header"));
            }
        }
        let len = bhs.data_len();
        if len > limit {
            return Err(self.login_error(LoginError::Protocol(
                "a data segment longer than MaxRecvDataSegmentLength",
            )));
        }
        let mut data = vec![0; padded(len)];
        self.read(&mut data, during)?;
        if self.data_digest && len > 0 {
            let mut sent = [0; DIGEST_BYTES];
            self.read(&mut sent, during)?;
            if sent != digest::digest(&data) {
                return Err(ConnectError::Digest(self.address.clone(), "data"));
            }
        }
        data.truncate(len);
        Ok((bhs, data))
    }
}

/// The kernel reports a socket timeout as "Resource temporarily unavailable".
fn plain(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, "timed out waiting for a reply")
        }
        _ => error,
    }
}

/// Queries a LUN's properties, one command at a time.
struct LunProber {
    session: InitiatorSession,
    wire: Wire,
    clock: Clock,
}

/// The answer to a command: its data, or an error with sense data.
type ProbeAnswer = Result<Vec<u8>, DeviceError>;

/// LOGICAL UNIT IS IN PROCESS OF BECOMING READY.
fn is_becoming_ready(error: &DeviceError) -> bool {
    let sense = device_errors::status_of(error).and_then(|(_, sense)| sense);
    sense.is_some_and(|sense| (sense.key, sense.asc, sense.ascq) == (key::NOT_READY, 0x04, 0x01))
}

impl LunProber {
    fn new(config: &InitiatorConfig, mut wire: Wire, logged_in: &InitiatorLogin) -> LunProber {
        let clock = Clock::Monotonic;
        let session_config = SessionConfig {
            lun: config.lun_field(),
            depth: 1,
            timeout: config.timeout,
            keepalive: config.timeout,
            tries: 1,
            attribute: TagKind::Simple,
        };
        let mut session = InitiatorSession::new(session_config, Facts::default(), BufPool::new(0));
        let attachment = Attachment {
            cmd_sn: FIRST_CMD_SN,
            max_cmd_sn: logged_in.max_cmd_sn,
            connections: vec![(0, logged_in.params.clone(), logged_in.exp_stat_sn)],
        };
        session.attach(attachment, Facts::default(), clock.now());
        wire.header_digest = logged_in.params.header_digest;
        wire.data_digest = logged_in.params.data_digest;
        LunProber {
            session,
            wire,
            clock,
        }
    }

    /// Runs one command, and repeats it after unit attentions.
    fn run(&mut self, cdb: &[u8], answer_len: usize) -> Result<ProbeAnswer, ConnectError> {
        let mut padded_cdb = [0; 16];
        padded_cdb[..cdb.len()].copy_from_slice(cdb);
        // Limit on queued unit attentions; beyond it, they are assumed to be endless.
        for _ in 0..16 {
            let answer = self.run_once(padded_cdb, answer_len)?;
            match answer {
                Err(DeviceError::Refused {
                    kind: RefusalKind::Attention,
                    ..
                }) => {}
                other => return Ok(other),
            }
        }
        Err(ConnectError::Lun(format!(
            "{}: too many unit attentions",
            self.wire.address
        )))
    }

    fn run_once(&mut self, cdb: [u8; 16], answer_len: usize) -> Result<ProbeAnswer, ConnectError> {
        self.session
            .submit_control(cdb, Buf::zeroed(answer_len), self.now());
        loop {
            let now = self.now();
            self.session.schedule(now);
            while let Some(outgoing) = self.session.pull(0) {
                // The prober's commands and ping responses carry no data.
                self.wire.send_whole(outgoing.bhs.as_bytes(), "a command")?;
            }
            if let Some(task) = self.session.next_answered() {
                let retired = self
                    .session
                    .retire(task, now)
                    .expect("probe commands complete at once");
                return Ok(retired
                    .result
                    .map(|()| retired.buf[..retired.received as usize].to_vec()));
            }
            let limit = 1 << 20;
            let (bhs, data) = self.wire.receive(limit, "a command")?;
            let violation =
                |violation| ConnectError::Violation(self.wire.address.clone(), violation);
            match self.session.on_header(0, &bhs).map_err(violation)? {
                DataDestination::Task(piece) => {
                    self.session.data(piece.task)[piece.start..piece.start + piece.len]
                        .copy_from_slice(&data);
                    self.session.on_pdu(0, &bhs, &[], now).map_err(violation)?;
                }
                DataDestination::Short => self
                    .session
                    .on_pdu(0, &bhs, &data, now)
                    .map_err(violation)?,
            }
            if let Some(loss) = self.session.lost() {
                let error = io::Error::new(io::ErrorKind::ConnectionAborted, loss.why);
                return Err(ConnectError::Io(
                    self.wire.address.clone(),
                    "a command",
                    error,
                ));
            }
        }
    }

    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn facts(&mut self, config: &InitiatorConfig) -> Result<Facts, ConnectError> {
        let name = config.name();
        let lun = |what: &str| ConnectError::Lun(format!("{name}: {what}"));
        let failed =
            |what: &str, error: DeviceError| ConnectError::Lun(format!("{name}: {what}: {error}"));
        let inquiry = self
            .run(&[op::INQUIRY, 0, 0, 0, 96], 96)?
            .map_err(|error| failed("INQUIRY failed", error))?;
        if inquiry.len() < 36 {
            return Err(lun("the INQUIRY data is too short"));
        }
        match (inquiry[0] >> 5, inquiry[0] & 0x1f) {
            (0, 0x00) => {}
            (0, kind) => {
                return Err(lun(&format!(
                    "LUN {} is not a disk (device type {kind:#04x})",
                    config.lun
                )));
            }
            _ => return Err(lun(&format!("LUN {} does not exist", config.lun))),
        }
        self.wait_ready(&name)?;
        let mut facts = Facts {
            vendor: ascii(&inquiry[8..16]),
            product: ascii(&inquiry[16..32]),
            revision: ascii(&inquiry[32..36]),
            unmap_blocks_max: u32::MAX,
            write_same_blocks_max: u32::MAX,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            ..Facts::default()
        };
        self.capacity(&mut facts, &failed)?;
        if facts.block_bytes < 512
            || facts.block_bytes > 1 << 16
            || !facts.block_bytes.is_power_of_two()
            || facts.size_bytes == 0
        {
            return Err(lun(&format!(
                "unsupported block size of {} bytes",
                facts.block_bytes
            )));
        }
        self.pages(&mut facts)?;
        self.mode(&mut facts)?;
        Ok(facts)
    }

    /// Sends TEST UNIT READY until the LUN is ready; some LUNs spin up first.
    fn wait_ready(&mut self, name: &str) -> Result<(), ConnectError> {
        let deadline = Instant::now() + READY_WAIT.min(left(self.wire.deadline));
        loop {
            match self.run(&[op::TEST_UNIT_READY], 0)? {
                Ok(_) => return Ok(()),
                // Another nexus holds a reservation, which may still allow reads.
                Err(DeviceError::Refused {
                    kind: RefusalKind::Conflict,
                    ..
                }) => return Ok(()),
                Err(error) if is_becoming_ready(&error) && Instant::now() < deadline => {}
                Err(error) => {
                    return Err(ConnectError::Lun(format!(
                        "{name}: the LUN is not ready: {error}"
                    )));
                }
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn capacity(
        &mut self,
        facts: &mut Facts,
        failed: &dyn Fn(&str, DeviceError) -> ConnectError,
    ) -> Result<(), ConnectError> {
        let mut cdb = [0; 16];
        cdb[0] = op::SERVICE_ACTION_IN_16;
        cdb[1] = op::SA_READ_CAPACITY_16;
        cdb[13] = 32;
        let (last_lba, block_bytes) = match self.run(&cdb, 32)? {
            Ok(bytes) if bytes.len() >= 12 => {
                let capacity = Capacity::parse_16(&bytes).expect("the data is long enough");
                facts.physical_block_bytes = capacity
                    .block_bytes
                    .checked_shl(capacity.physical_exponent.into())
                    .unwrap_or(0);
                facts.unmapped_reads_zeros = capacity.unmapped_reads_zeros;
                (capacity.last_lba, capacity.block_bytes)
            }
            // Old and small LUNs support only the short form of READ CAPACITY.
            _ => {
                let bytes = self
                    .run(&[op::READ_CAPACITY_10, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8)?
                    .map_err(|error| failed("READ CAPACITY failed", error))?;
                (u64::from(be32(&bytes, 0)), be32(&bytes, 4))
            }
        };
        facts.block_bytes = block_bytes;
        facts.size_bytes = last_lba
            .checked_add(1)
            .and_then(|blocks| blocks.checked_mul(u64::from(block_bytes)))
            .ok_or_else(|| failed("invalid capacity", DeviceError::OutOfRange))?;
        facts.physical_block_bytes = facts.physical_block_bytes.max(block_bytes);
        Ok(())
    }

    /// Reads the vital product data: serial number, block limits, provisioning. A LUN may lack any of these pages.
    fn pages(&mut self, facts: &mut Facts) -> Result<(), ConnectError> {
        let vpd = |code: u8| [op::INQUIRY, 1, code, 1, 0];
        let Ok(supported) = self.run(&vpd(page::SUPPORTED), 256)? else {
            return Ok(());
        };
        let has = |code: u8| {
            supported
                .get(4..)
                .is_some_and(|codes| codes.contains(&code))
        };
        if has(page::UNIT_SERIAL_NUMBER)
            && let Ok(serial) = self.run(&vpd(page::UNIT_SERIAL_NUMBER), 256)?
        {
            facts.serial = unit_names::serial(&serial);
        }
        if has(page::DEVICE_IDENTIFICATION)
            && let Ok(names) = self.run(&vpd(page::DEVICE_IDENTIFICATION), 256)?
        {
            facts.names = UnitNames::parse(&names);
        }
        if has(page::BLOCK_LIMITS)
            && let Ok(limits) = self.run(&vpd(page::BLOCK_LIMITS), 256)?
        {
            // SBC-3, 6.6.4; zero means that no limit is reported.
            let transfer = u64::from(be32(&limits, 8)) * u64::from(facts.block_bytes);
            if transfer > 0 {
                facts.transfer_bytes_max = transfer.min(u64::from(TRANSFER_BYTES_MAX)) as u32;
            }
            if be32(&limits, 20) > 0 {
                facts.unmap_blocks_max = be32(&limits, 20);
            }
            let write_same = be64(&limits, 36);
            if write_same > 0 {
                facts.write_same_blocks_max = u32::try_from(write_same).unwrap_or(u32::MAX);
            }
        }
        if has(page::LOGICAL_BLOCK_PROVISIONING)
            && let Ok(provisioning) = self.run(&vpd(page::LOGICAL_BLOCK_PROVISIONING), 256)?
        {
            let flags = provisioning.get(5).copied().unwrap_or(0);
            facts.unmap_by = match flags {
                flags if flags & 0x80 != 0 => UnmapBy::Unmap,
                flags if flags & 0x40 != 0 => UnmapBy::WriteSame,
                _ => UnmapBy::Nothing,
            };
        }
        Ok(())
    }

    /// Reads the caching page, and the device-specific byte of the header.
    fn mode(&mut self, facts: &mut Facts) -> Result<(), ConnectError> {
        // Without block descriptors (DBD), the page follows the header.
        let six = self.run(&[op::MODE_SENSE_6, 0x08, 0x08, 0, 192, 0], 192)?;
        let (bytes, specific, start) = match six {
            Ok(bytes) if bytes.len() >= 4 => {
                let (specific, start) = (bytes[2], 4 + usize::from(bytes[3]));
                (bytes, specific, start)
            }
            _ => match self.run(&[op::MODE_SENSE_10, 0x08, 0x08, 0, 0, 0, 0, 0, 192, 0], 192)? {
                Ok(bytes) if bytes.len() >= 8 => {
                    let (specific, start) = (bytes[3], 8 + usize::from(be16(&bytes, 6)));
                    (bytes, specific, start)
                }
                _ => return Ok(()),
            },
        };
        facts.read_only = specific & 0x80 != 0;
        facts.fua = specific & 0x10 != 0;
        if let Some([code, _, flags, ..]) = bytes.get(start..)
            && code & 0x3f == 0x08
        {
            facts.volatile_cache = flags & 0x04 != 0;
        }
        Ok(())
    }
}

/// Printable text without the padding.
fn ascii(bytes: &[u8]) -> String {
    let text: String = bytes
        .iter()
        .map(|&b| {
            if (0x20..0x7f).contains(&b) {
                char::from(b)
            } else {
                ' '
            }
        })
        .collect();
    text.trim().to_string()
}
