//! Tests the target over real sockets, in this process: with hostile, broken or many peers, and with independent
//! initiators.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brunt_block::open_url;
use brunt_iscsi::chap::Credentials;
use brunt_iscsi::params::DigestPolicy;
use brunt_iscsi::scsi::{LogicalUnit, LunMap, LunOptions};
use brunt_iscsi::target_node::{
    Listener, OpenPortals, Portal, ServedTarget, TargetConfig, TargetServer,
};
use brunt_wire::iscsi::pdu::{
    BHS_BYTES, Bhs, LoginRequest, NopOut, Opcode, RESERVED_TAG, ScsiCommand, U24, padded,
};
use brunt_wire::iscsi::text::push_pair;
use zerocopy::IntoBytes;

use super::many_sessions::eventually;

pub(super) const NAME: &str = "iqn.2026-11.io.brunt:t0";

pub(super) fn target(luns: &[&str], change: impl FnOnce(&mut TargetConfig)) -> TargetServer {
    let mut config = TargetConfig {
        portals: vec![loopback()],
        ..TargetConfig::default()
    };
    change(&mut config);
    TargetServer::start(config, vec![ServedTarget::new(NAME, map(luns))]).unwrap()
}

pub(super) fn loopback() -> Portal {
    SocketAddr::from(([127, 0, 0, 1], 0)).into()
}

pub(super) fn map(luns: &[&str]) -> Arc<LunMap> {
    let units = luns.iter().enumerate().map(|(lun, url)| {
        let options = LunOptions {
            serial: format!("test{lun}"),
            ..LunOptions::default()
        };
        (
            lun as u16,
            LogicalUnit::new(open_url(url).unwrap(), options).unwrap(),
        )
    });
    LunMap::new(units.collect())
}

pub(super) fn connect(server: &TargetServer) -> TcpStream {
    connect_to(server.portals()[0])
}

fn connect_to(at: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(at).unwrap();
    socket.set_nodelay(true).unwrap();
    // Long enough for a busy machine; no test waits for this timeout.
    socket
        .set_read_timeout(Some(Duration::from_secs(120)))
        .unwrap();
    socket
}

pub(super) fn login_bytes(isid: u16) -> Vec<u8> {
    let mut data = Vec::new();
    push_pair(&mut data, "InitiatorName", "iqn.2026-11.io.brunt:test");
    push_pair(&mut data, "TargetName", NAME);
    let request = LoginRequest {
        opcode: 0x43,
        flags: 0x87,
        isid: [0x80, 0, 0, 0, (isid >> 8) as u8, isid as u8],
        data_segment_length: U24::new(data.len() as u32),
        initiator_task_tag: 1.into(),
        cmd_sn: 1.into(),
        ..LoginRequest::default()
    };
    let mut bytes = request.as_bytes().to_vec();
    bytes.extend_from_slice(&data);
    bytes.resize(BHS_BYTES + padded(data.len()), 0);
    bytes
}

pub(super) fn command(cdb0: u8, flags: u8, cmd_sn: u32, len: u32) -> ScsiCommand {
    let mut cdb = [0; 16];
    cdb[0] = cdb0;
    cdb[8] = (len / 512) as u8;
    ScsiCommand {
        flags,
        initiator_task_tag: (cmd_sn + 100).into(),
        expected_data_transfer_length: len.into(),
        cmd_sn: cmd_sn.into(),
        cdb,
        ..ScsiCommand::default()
    }
}

/// Receives one PDU from the target; `None` if it closed the connection.
pub(super) fn receive(socket: &mut TcpStream) -> Option<(Bhs, Vec<u8>)> {
    let mut header = [0; BHS_BYTES];
    socket.read_exact(&mut header).ok()?;
    let bhs = *Bhs::peek(&header).unwrap();
    let mut data = vec![0; padded(bhs.data_len())];
    socket.read_exact(&mut data).ok()?;
    data.truncate(bhs.data_len());
    Some((bhs, data))
}

fn ping() -> Vec<u8> {
    let ping = NopOut {
        opcode: 0x40,
        flags: 0x80,
        initiator_task_tag: 77.into(),
        target_transfer_tag: RESERVED_TAG.into(),
        ..NopOut::default()
    };
    ping.as_bytes().to_vec()
}

/// Class and detail of the response to a login; `None` if there is no response.
fn login_status(at: SocketAddr, isid: u16) -> Option<u16> {
    let mut socket = connect_to(at);
    socket.write_all(&login_bytes(isid)).unwrap();
    let (bhs, _) = receive(&mut socket)?;
    assert_eq!(bhs.kind(), Opcode::LoginResponse);
    Some(u16::from_be_bytes([bhs.rest[16], bhs.rest[17]]))
}

/// Logs in; panics if the target refuses the login.
pub(super) fn log_in(server: &TargetServer, isid: u16) -> TcpStream {
    log_in_at(server.portals()[0], isid)
}

fn log_in_at(at: SocketAddr, isid: u16) -> TcpStream {
    let mut socket = connect_to(at);
    socket.write_all(&login_bytes(isid)).unwrap();
    let (bhs, _) = receive(&mut socket).expect("a login response");
    assert_eq!((bhs.kind(), bhs.rest[16]), (Opcode::LoginResponse, 0));
    socket
}

/// Checks that another session still works.
pub(super) fn assert_alive(socket: &mut TcpStream) {
    socket.write_all(&ping()).unwrap();
    let (bhs, _) = receive(socket).expect("the other session does not notice");
    assert_eq!(
        (bhs.kind(), bhs.initiator_task_tag.get()),
        (Opcode::NopIn, 77)
    );
}

/// A session that is cut off after any of its bytes leaves nothing behind and doesn't affect others.
#[test]
fn a_session_cut_off_at_any_byte_leaves_nothing_behind() {
    let server = target(&["memory:1MiB"], |_| ());
    let mut other = log_in(&server, 1);
    let mut session = login_bytes(2);
    session.extend_from_slice(&ping());
    let mut write = command(0x2a, 0xa0, 1, 512);
    write.data_segment_length = U24::new(512);
    session.extend_from_slice(write.as_bytes());
    session.extend_from_slice(&[7; 512]);
    session.extend_from_slice(command(0x28, 0xc0, 2, 512).as_bytes());
    for end in 0..session.len() {
        let mut socket = connect(&server);
        socket.write_all(&session[..end]).unwrap();
        if end % 64 == 0 {
            assert_alive(&mut other);
        }
    }
    assert_alive(&mut other);
    // The complete session still works after all the incomplete ones.
    let mut socket = connect(&server);
    socket.write_all(&session).unwrap();
    let kinds: Vec<Opcode> = (0..4)
        .map(|_| receive(&mut socket).expect("an answer").0.kind())
        .collect();
    assert_eq!(kinds[..2], [Opcode::LoginResponse, Opcode::NopIn]);
    assert_eq!(kinds[2], Opcode::ScsiResponse);
}

/// Invalid input closes only its own connection.
#[test]
fn invalid_input_closes_only_its_own_connection() {
    let server = target(&["memory:1MiB"], |_| ());
    let mut other = log_in(&server, 1);
    let check = |bytes: &[u8], after_login: bool| {
        let mut socket = if after_login {
            log_in(&server, 9)
        } else {
            connect(&server)
        };
        socket.write_all(bytes).unwrap();
        while receive(&mut socket).is_some() {}
    };
    // Oversized input: a login of 16 MiB, and a write with 16 MiB of immediate data.
    let mut login = login_bytes(3);
    login[5..8].copy_from_slice(&[0xff; 3]);
    check(&login, false);
    let mut write = command(0x2a, 0xa0, 1, 512);
    write.data_segment_length = U24::new(0x00ff_ffff);
    check(write.as_bytes(), true);
    // Input that isn't iSCSI at all.
    check(
        b"GET / HTTP/1.1\r\nHost: storage.example.com\r\nAccept: */*\r\n\r\n",
        false,
    );
    check(&[0xff; 64], false);
    // An AHS that exceeds its length.
    let mut ahs = command(0x00, 0x80, 1, 0);
    ahs.total_ahs_length = 1;
    check(&[ahs.as_bytes(), &[0xff, 0xff, 1, 0]].concat(), true);
    assert_alive(&mut other);
    drop(other);
    let stats = server.shutdown(Duration::ZERO);
    assert_eq!(stats.connections_broken, 2, "{stats:?}");
}

/// Ten thousand connections that never log in cost no threads and only a bounded number of descriptors, and they don't
/// disturb sessions; logins in between succeed.
#[test]
fn half_open_logins_cost_no_threads_and_do_not_disturb_sessions() {
    let server = target(&["memory:1MiB"], |config| {
        config.half_open_max = 64;
        config.login_timeout = Duration::from_secs(3600);
    });
    let mut other = log_in(&server, 1);
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    let mut open = std::collections::VecDeque::new();
    let login = login_bytes(5);
    for index in 0..10_000usize {
        let mut socket = connect(&server);
        // Some connections send nothing, some send part of a login; the target may already have dropped any of them.
        let _ = socket.write_all(&login[..index % login.len()]);
        open.push_back(socket);
        if open.len() > 100 {
            open.pop_front();
        }
        if index % 1000 == 0 {
            assert_alive(&mut other);
            drop(log_in(&server, 2));
        }
    }
    // Other tests in this process have threads, too, but those end; threads of half-open logins would not.
    eventually("there are no more threads than before", || {
        threads() <= before + 4
    });
    assert_alive(&mut other);
    // This login is accepted after all of the above.
    drop(log_in(&server, 2));
    assert!(server.stats().logins_dropped > 9_000);
}

/// A login takes no longer than its limit, whether its peer is silent, stops halfway or sends byte by byte; open
/// sessions are not affected.
#[test]
fn a_login_that_takes_too_long_is_ended() {
    let server = target(&["memory:1MiB"], |config| {
        config.login_timeout = Duration::from_millis(300)
    });
    // On a busy machine, a login may take longer than the limit.
    let logged_in = (0..100).find_map(|_| {
        let mut socket = connect(&server);
        socket.write_all(&login_bytes(1)).ok()?;
        receive(&mut socket).map(|_| socket)
    });
    let mut other = logged_in.expect("a login within the limit");
    let login = login_bytes(2);
    let mut silent = connect(&server);
    let mut half = connect(&server);
    half.write_all(&login[..60]).unwrap();
    let mut trickling = connect(&server);
    // Bytes of a request that never completes: the target closes the connection at some point.
    let mut sent = 0;
    while sent < login.len() - 1 && trickling.write_all(&login[sent..=sent]).is_ok() {
        sent += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    for socket in [&mut silent, &mut half, &mut trickling] {
        let ended = socket.read(&mut [0; 64]);
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
        assert!(
            ended.map_err(|error| error.kind()) != Err(std::io::ErrorKind::WouldBlock),
            "still open"
        );
    }
    assert!(server.stats().logins_dropped >= 3, "{:?}", server.stats());
    assert_alive(&mut other);
}

/// The operator learns the name of each refused initiator, and the status, even if the target name was unknown.
#[test]
fn refused_logins_are_reported() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let server = target(&["null:1MiB"], |config| {
        let heard = Arc::clone(&heard);
        config.listener = Listener::new(move |event| heard.lock().unwrap().push(event.to_string()));
    });
    let other = ServedTarget::new("iqn.2026-11.io.brunt:t1", map(&["null:1MiB"]));
    server.replace(vec![other], None, Duration::ZERO);
    let mut socket = connect(&server);
    socket.write_all(&login_bytes(1)).unwrap();
    assert!(
        receive(&mut socket).is_some(),
        "a login response with a status"
    );
    assert_eq!(
        *heard.lock().unwrap(),
        ["login of \"iqn.2026-11.io.brunt:test\" refused with status 0x0203"]
    );
    assert_eq!(server.stats().logins_refused, 1);
}

/// At shutdown, initiators are asked to log out, and the remaining connections are closed in time.
#[test]
fn shutdown_asks_for_logout() {
    let server = target(&["null:1MiB"], |_| ());
    let mut socket = log_in(&server, 1);
    let thread = std::thread::spawn(move || server.shutdown(Duration::from_secs(4)));
    let (bhs, _) = receive(&mut socket).expect("an asynchronous message");
    assert_eq!((bhs.kind(), bhs.rest[16]), (Opcode::AsyncMessage, 1));
    assert!(receive(&mut socket).is_none(), "closed");
    assert_eq!(thread.join().unwrap().sessions, 1);
}

/// A second login of the same initiator port ends its old session (RFC 7143, 6.3.5).
#[test]
fn a_second_login_of_an_initiator_port_ends_its_old_session() {
    let server = target(&["null:1MiB"], |_| ());
    let mut old = log_in(&server, 1);
    let mut new = log_in(&server, 1);
    assert!(receive(&mut old).is_none());
    assert_alive(&mut new);
    assert_eq!(server.stats().sessions_open, 1);
}

/// A second connection joins a session, and commands run in CmdSN order even if the later command arrives first, on
/// the other connection.
#[test]
fn commands_run_in_order_over_two_connections_of_a_session() {
    let server = target(&["null:1MiB"], |_| ());
    let mut login = login_bytes(1);
    let add = |login: &mut Vec<u8>, key: &str, value: &str| {
        login.truncate(BHS_BYTES + Bhs::peek(login).unwrap().data_len());
        push_pair(login, key, value);
        let len = login.len() - BHS_BYTES;
        login[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
        login.resize(BHS_BYTES + padded(len), 0);
    };
    add(&mut login, "MaxConnections", "2");
    let mut first = connect(&server);
    first.write_all(&login).unwrap();
    let (bhs, data) = receive(&mut first).unwrap();
    assert!(String::from_utf8_lossy(&data).contains("MaxConnections=2"));
    let tsih = &bhs.as_bytes()[14..16];
    let mut join = login_bytes(1);
    join[14..16].copy_from_slice(tsih);
    join[21] = 1; // CID
    let mut second = connect(&server);
    second.write_all(&join).unwrap();
    assert_eq!(receive(&mut second).unwrap().0.rest[16], 0);
    assert_eq!(server.stats().sessions_open, 1);
    // TEST UNIT READY consumes a unit attention; then two commands out of order.
    first
        .write_all(command(0x00, 0x80, 1, 0).as_bytes())
        .unwrap();
    receive(&mut first).unwrap();
    second
        .write_all(command(0x28, 0xc0, 3, 512).as_bytes())
        .unwrap();
    assert_alive(&mut second);
    first
        .write_all(command(0x28, 0xc0, 2, 512).as_bytes())
        .unwrap();
    assert_eq!(receive(&mut first).unwrap().0.kind(), Opcode::DataIn);
    assert_eq!(receive(&mut second).unwrap().0.kind(), Opcode::DataIn);
    // A third connection exceeds the limit.
    let mut third = connect(&server);
    join[21] = 2;
    third.write_all(&join).unwrap();
    assert_eq!(receive(&mut third).unwrap().0.rest[16..18], [2, 6]);
}

/// The command for a program, if it is installed. Otherwise the test is skipped, or fails if all tools are required.
fn tool(name: &str, package: &str) -> Option<Command> {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()));
    if !found {
        assert!(
            std::env::var_os("BRUNT_REQUIRE_ALL").is_none_or(|all| all != "1"),
            "needs {package}"
        );
        println!("skipped: needs {package}");
    }
    found.then(|| Command::new(name))
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}\n{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

fn url(server: &TargetServer, secret: &str, lun: u16) -> String {
    let portal: SocketAddr = server.portals()[0];
    format!("iscsi://{secret}{portal}/{NAME}/{lun}")
}

/// QEMU's initiator reads back what it wrote, both with digests that the target requests and without.
#[test]
fn qemu_reads_what_it_wrote() {
    for policy in [DigestPolicy::Allow, DigestPolicy::Prefer] {
        let server = target(&["memory:64MiB", "memory:64MiB"], |config| {
            config.wishes.header_digest = policy;
            config.wishes.data_digest = DigestPolicy::Allow;
        });
        let Some(mut qemu) = tool("qemu-io", "qemu-utils and qemu-block-extra") else {
            return;
        };
        qemu.args([
            "-f",
            "raw",
            "-c",
            "write -P 17 0 3M",
            "-c",
            "write -P 18 1M 64k",
            "-c",
            "read -P 17 0 1M",
        ]);
        qemu.args([
            "-c",
            "read -P 18 1M 64k",
            "-c",
            "read -P 17 1114112 512",
            "-c",
            "write -z 0 1M",
        ]);
        qemu.args(["-c", "read -P 0 0 1M", "-c", "flush", &url(&server, "", 1)]);
        let text = succeeds(&mut qemu);
        assert!(!text.contains("failed"), "{text}");
        assert_eq!(server.stats().counters.rejects, 0);
    }
}

/// Libiscsi discovers the target, and can log in only with the right secret.
#[test]
fn libiscsi_discovers_and_authenticates() {
    let own = Credentials::new("target", *b"targetsecret1");
    let locked = ServedTarget::new(NAME, map(&["memory:1MiB", "null:1MiB"]))
        .with_chap(Credentials::new("alice", *b"alicesecret12"), Some(own))
        .unwrap();
    let open = ServedTarget::new("iqn.2026-11.io.brunt:open", map(&["null:1MiB"]));
    let advertise = Some("nat.example:3333".to_string());
    let portals = vec![
        loopback(),
        Portal {
            advertise,
            group: 7,
            ..loopback()
        },
    ];
    let config = TargetConfig {
        portals,
        ..TargetConfig::default()
    };
    let server = TargetServer::start(config, vec![locked, open]).unwrap();
    let Some(mut ls) = tool("iscsi-ls", "libiscsi-bin") else {
        return;
    };
    let at = server.portals()[0];
    assert!(
        !ls.arg(format!("iscsi://{at}"))
            .output()
            .unwrap()
            .status
            .success(),
        "discovery asks for CHAP"
    );
    let mut ls = Command::new("iscsi-ls");
    let text = succeeds(ls.arg(format!("iscsi://alice%alicesecret12@{at}")));
    for target in [NAME, "iqn.2026-11.io.brunt:open"] {
        for portal in [format!("{at},1"), "nat.example:3333,7".to_string()] {
            assert!(
                text.contains(&format!("Target:{target} Portal:{portal}\n")),
                "{text}"
            );
        }
    }
    let inquire = |secret: &str, mutual: Option<&str>| {
        let mut inq = Command::new("iscsi-inq");
        if let Some(secret) = mutual {
            inq.env("LIBISCSI_CHAP_TARGET_USERNAME", "target")
                .env("LIBISCSI_CHAP_TARGET_PASSWORD", secret);
        }
        inq.arg(url(&server, secret, 0))
            .output()
            .unwrap()
            .status
            .success()
    };
    assert!(inquire("alice%alicesecret12@", None));
    assert!(inquire("alice%alicesecret12@", Some("targetsecret1")));
    assert!(!inquire("alice%alicesecret13@", None));
    assert!(!inquire("bob%alicesecret12@", None));
    assert!(!inquire("", None));
    let at_open = format!("iscsi://{at}/iqn.2026-11.io.brunt:open/0");
    assert!(
        Command::new("iscsi-inq")
            .arg(at_open)
            .output()
            .unwrap()
            .status
            .success()
    );
    assert!(!inquire("alice%alicesecret12@", Some("wrong")));
    let stats = server.stats();
    assert!(stats.logins_refused >= 3, "{stats:?}");
}

/// Two targets in one process are independent.
#[test]
fn two_targets_in_one_process_are_independent() {
    let one = target(&["memory:1MiB"], |_| ());
    let two = target(&["memory:1MiB"], |_| ());
    let mut first = log_in(&one, 1);
    let mut second = log_in(&two, 1);
    drop(one);
    while receive(&mut first).is_some() {}
    assert_alive(&mut second);
    assert_eq!(two.stats().sessions_open, 1);
}

/// Portals are added, removed and changed while sessions stay; sessions of a removed portal group are closed, and new
/// settings apply to new connections at once.
#[test]
fn portals_can_be_renewed_while_sessions_last() {
    let server = target(&["memory:1MiB"], |config| {
        config.login_timeout = Duration::from_secs(3600)
    });
    let mut stays = log_in(&server, 1);
    let at = server.portals()[0];
    let renew = |portals: &[Portal], change: &dyn Fn(&mut TargetConfig)| {
        let mut config = TargetConfig {
            portals: portals.to_vec(),
            ..TargetConfig::default()
        };
        change(&mut config);
        let open = OpenPortals::open(&config.portals, &server.open_portals()).unwrap();
        server.renew_listeners(open, &config, Duration::from_millis(100));
    };
    let second = Portal {
        group: 2,
        ..loopback()
    };
    renew(&[loopback(), second.clone()], &|_| ());
    assert_eq!((server.portals()[0], server.portals().len()), (at, 2));
    let added = server.portals()[1];
    let (mut late, login) = (connect_to(added), login_bytes(4));
    late.write_all(&login[..60]).unwrap();
    // This later connection can log in, so the previous one was accepted, too.
    let mut goes = log_in_at(added, 2);
    // The limit equals the number of open sessions.
    renew(&[loopback(), second.clone()], &|config| {
        config.sessions_max = 2
    });
    assert_eq!(login_status(at, 3), Some(0x0302));
    renew(&[loopback(), second], &|config| {
        config.wishes.header_digest = DigestPolicy::Require
    });
    assert_eq!(login_status(at, 3), Some(0x0207), "the digest is missing");
    assert_alive(&mut stays);
    assert_alive(&mut goes);
    let before = server.stats();
    renew(&[loopback()], &|_| ());
    // A login in progress through a removed group is refused.
    late.write_all(&login[60..]).unwrap();
    let status =
        receive(&mut late).map(|(bhs, _)| u16::from_be_bytes([bhs.rest[16], bhs.rest[17]]));
    assert_eq!(status, Some(0x0301), "service unavailable");
    assert_eq!(server.stats().sessions, before.sessions);
    while receive(&mut goes).is_some() {}
    // Processes that other tests start have a copy of the listener until they execute their program.
    eventually("nobody listens there", || {
        TcpStream::connect(added).is_err()
    });
    eventually("the address is free", || {
        std::net::TcpListener::bind(added).is_ok()
    });
    assert_alive(&mut stays);
    assert_eq!(login_status(at, 3), Some(0));
}

/// The listener gets events about the backing files of LUNs, without any request to them.
#[test]
fn changes_of_a_backing_file_are_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("disk.img");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    let (heard, hear) = std::sync::mpsc::channel();
    let url = format!("file:{}?direct=no", path.display());
    let _server = target(&["memory:1MiB", &url], |config| {
        config.listener = Listener::new(move |event| drop(heard.send(event.to_string())));
    });
    let next = || hear.recv_timeout(Duration::from_secs(120)).unwrap();
    file.set_len(2 << 20).unwrap();
    assert_eq!(
        next(),
        format!("LUN 1: {} grew from 1MiB to 2MiB", path.display())
    );
    std::fs::remove_file(&path).unwrap();
    assert!(next().contains("deleted"));
}

fn read_command(cmd_sn: u32) -> Vec<u8> {
    command(0x28, 0xc0, cmd_sn, 512).as_bytes().to_vec()
}

/// Status and sense code of the next SCSI response; for a read, the status in its data.
pub(super) fn next_status(socket: &mut TcpStream) -> (u8, Option<(u8, u8)>) {
    loop {
        let (bhs, data) = receive(socket).expect("an answer");
        match bhs.kind() {
            Opcode::ScsiResponse => {
                let sense = data.get(2..).filter(|sense| sense.len() > 13);
                return (bhs.specific[1], sense.map(|sense| (sense[12], sense[13])));
            }
            Opcode::DataIn if bhs.flags & 1 != 0 => return (bhs.specific[1], None),
            _ => {}
        }
    }
}

/// A removed LUN answers its outstanding commands; later commands get "no such LUN", and nexuses are notified through
/// the other LUNs. A LUN that replaces a removed one doesn't get data of commands for the old LUN.
#[test]
fn a_lun_is_removed_under_commands() {
    // The read has to last until the LUN is removed, even if the test pauses in between.
    let luns = map(&["memory:1MiB?delay=const:4s", "memory:1MiB", "null:1MiB"]);
    let config = TargetConfig {
        portals: vec![loopback()],
        ..TargetConfig::default()
    };
    let server =
        TargetServer::start(config, vec![ServedTarget::new(NAME, Arc::clone(&luns))]).unwrap();
    let mut socket = log_in(&server, 1);
    let at = |bytes: Vec<u8>, lun: u8| [&bytes[..9], &[lun], &bytes[10..]].concat();
    // The unit attention of a new nexus, at each LUN.
    for lun in 0..3u8 {
        socket
            .write_all(&at(read_command(u32::from(lun) + 1), lun))
            .unwrap();
        assert_eq!(next_status(&mut socket), (2, Some((0x29, 0x00))));
    }
    // A slow read, and a write to another LUN with its data still missing.
    socket.write_all(&at(read_command(4), 0)).unwrap();
    let write = command(0x2a, 0xa0, 5, 512);
    socket.write_all(&at(write.as_bytes().to_vec(), 1)).unwrap();
    let (r2t, _) = receive(&mut socket).expect("R2T");
    assert_eq!(r2t.kind(), Opcode::R2t);

    let options = LunOptions {
        serial: "second".into(),
        ..LunOptions::default()
    };
    let second = LogicalUnit::new(open_url("memory:1MiB").unwrap(), options).unwrap();
    let left = luns.change(&[0, 1], vec![(1, second)]);
    assert_eq!(next_status(&mut socket), (0, None), "the read");
    let data = brunt_wire::iscsi::pdu::DataOut {
        flags: 0x80,
        data_segment_length: U24::new(512),
        initiator_task_tag: 105.into(),
        target_transfer_tag: brunt_wire::iscsi::pdu::R2t::view(&r2t).target_transfer_tag,
        ..Default::default()
    };
    socket
        .write_all(&[data.as_bytes(), &[9; 512]].concat())
        .unwrap();
    assert_eq!(next_status(&mut socket), (0, None), "the write");
    let inline = |unit: &LogicalUnit| match unit.backend().inline() {
        brunt_block::Inline::Memory(memory) => {
            let mut byte = [0];
            memory.read(0, &mut byte);
            byte[0]
        }
        other => panic!("{other:?}"),
    };
    assert_eq!((inline(&left[1].1), inline(&luns.get(1).unwrap())), (9, 0));

    socket.write_all(&at(read_command(6), 0)).unwrap();
    assert_eq!(
        next_status(&mut socket),
        (2, Some((0x25, 0x00))),
        "there is no such LUN"
    );
    socket.write_all(&at(read_command(7), 1)).unwrap();
    assert_eq!(
        next_status(&mut socket),
        (2, Some((0x29, 0x00))),
        "another disk"
    );
    socket.write_all(&at(read_command(8), 2)).unwrap();
    assert_eq!(
        next_status(&mut socket),
        (2, Some((0x3f, 0x0e))),
        "other LUNs are told"
    );
    socket.write_all(&at(read_command(9), 2)).unwrap();
    assert_eq!(next_status(&mut socket), (0, None));
    assert!(
        left.iter().all(|(_, unit)| !unit.is_open()),
        "nothing is open any more"
    );
}
