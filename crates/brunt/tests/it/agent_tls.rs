//! Listening agents: a controller with the right certificate is served; anyone else gets nothing. Checked with
//! openssl's s_client.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::support::agents::{Listening, certificates, init};
use crate::support::{brunt, need};
use brunt_protocol::{Decoder, FromHost, ToHost, VERSION, encode};
use serde_json::Value;

/// Runs `brunt agent clock` for one host; returns the exit status and the host's entry.
fn clock(host: &str, identity: Option<PathBuf>) -> (Option<i32>, Value) {
    let mut command = brunt();
    command.args([
        "agent",
        "clock",
        "--json",
        "--for",
        "100ms",
        "--silence",
        "60s",
        host,
    ]);
    if let Some(identity) = identity {
        command.arg("--identity").arg(identity);
    }
    let output = command.output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), found["hosts"][0].clone())
}

#[test]
fn a_controller_with_a_certificate_is_served() {
    let folder = certificates();
    let agent = Listening::start(&folder.path().join("agent-127.0.0.1.pem"), &[]);
    let host = format!("agent:{}", agent.address);
    let (status, found) = clock(&host, Some(folder.path().join("controller.pem")));
    assert_eq!(status, Some(0), "{found:#}");
    let [low, high] = ["low", "high"].map(|end| found["offset_ns"][end].as_i64().unwrap());
    assert!(low <= 0 && 0 <= high, "{found:#}");
    // Without an identity there is no connection, and the host's name must match the certificate.
    let (status, found) = clock(&host, None);
    assert!(
        status == Some(1) && found["error"].as_str().unwrap().contains("--identity"),
        "{found:#}"
    );
    let by_name = format!("agent:localhost:{}", agent.address.port());
    let (status, found) = clock(&by_name, Some(folder.path().join("controller.pem")));
    assert!(
        status == Some(1) && found["error"].as_str().unwrap().contains("certificate"),
        "{found:#}"
    );
    let (last, _) = agent.end();
    assert!(
        last.starts_with("1 controller sessions; 1 unauthenticated"),
        "{last}"
    );
}

/// Returns what s_client, run with these arguments, receives from the agent inside the TLS connection.
fn s_client(openssl: &Path, agent: &Listening, arguments: &[&str]) -> Vec<u8> {
    s_client_says(openssl, agent, arguments, b"\0\0\0\x06\"stop\"")
}

/// Like [`s_client`], but sends `says`.
fn s_client_says(openssl: &Path, agent: &Listening, arguments: &[&str], says: &[u8]) -> Vec<u8> {
    let mut child = Command::new(openssl)
        .args(["s_client", "-quiet", "-connect", &agent.address.to_string()])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Sends bytes, waits for the greeting or the end of the connection, and closes it.
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(says);
    let mut heard = Vec::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut heard)
        .unwrap();
    child.wait().unwrap();
    heard
}

/// A PEM file's parts for openssl: certificate and key.
fn parts(folder: &Path, identity: &str) -> [String; 2] {
    let file = folder.join(identity).display().to_string();
    [file.clone(), file]
}

#[test]
fn a_peer_without_a_valid_certificate_gets_nothing() {
    let Some(openssl) = need("openssl", "openssl") else {
        return;
    };
    let (folder, other) = (certificates(), certificates());
    let agent = Listening::start(&folder.path().join("agent-127.0.0.1.pem"), &[]);
    let hears = |arguments: &[&str]| {
        let heard = s_client(&openssl, &agent, arguments);
        String::from_utf8_lossy(&heard).contains("\"hello\"")
    };
    let with = |[certificate, key]: &[String; 2], more: &[&str]| {
        let mut arguments = vec!["-cert", certificate, "-key", key];
        arguments.extend(more);
        hears(&arguments)
    };
    // First, show that s_client can receive a greeting at all.
    let ours = parts(folder.path(), "controller.pem");
    assert!(
        with(&ours, &[]),
        "s_client with the controller's certificate is greeted"
    );
    assert!(!hears(&[]), "no certificate");
    assert!(
        !with(&parts(other.path(), "controller.pem"), &[]),
        "another authority's controller"
    );
    assert!(
        !with(&parts(folder.path(), "agent-localhost.pem"), &[]),
        "an agent's certificate"
    );
    assert!(!with(&ours, &["-tls1_2"]), "an older TLS");
    assert!(!with(&ours, &["-alpn", "h2"]), "another protocol");
    // Plain-text and silent connections are closed.
    let mut plain = TcpStream::connect(agent.address).unwrap();
    plain
        .write_all(b"GET / HTTP/1.1\r\nHost: agent\r\n\r\n")
        .unwrap();
    let mut heard = Vec::new();
    let _ = plain.read_to_end(&mut heard);
    assert!(!String::from_utf8_lossy(&heard).contains("hello"));
    let mut silent = TcpStream::connect(agent.address).unwrap();
    assert_eq!(silent.read(&mut [0; 16]).unwrap_or(0), 0);
    let (last, notes) = agent.end();
    assert!(
        last.starts_with("1 controller sessions; 7 unauthenticated and 0 excess connections"),
        "{last}\n{notes}"
    );
    assert!(
        notes.contains("did not send a certificate within 5s"),
        "{notes}"
    );
}

/// Forwards a single connection and records what the client sent. `change` receives each piece and the number of
/// bytes before it, and returns the bytes to forward.
fn relay(
    to: SocketAddr,
    change: impl Fn(&[u8], usize) -> Vec<u8> + Send + 'static,
) -> (SocketAddr, Arc<Mutex<Vec<u8>>>, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, said) = (
        listener.local_addr().unwrap(),
        Arc::new(Mutex::new(Vec::new())),
    );
    let kept = Arc::clone(&said);
    let work = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut agent = TcpStream::connect(to).unwrap();
        let (mut back, mut there) = (agent.try_clone().unwrap(), client.try_clone().unwrap());
        let answers = std::thread::spawn(move || {
            let _ = std::io::copy(&mut back, &mut there);
            let _ = there.shutdown(Shutdown::Write);
        });
        let mut part = [0; 4096];
        while let Ok(count) = client.read(&mut part) {
            if count == 0 {
                break;
            }
            let mut kept = kept.lock().unwrap();
            // The agent may have closed the connection.
            let _ = agent.write_all(&change(&part[..count], kept.len()));
            kept.extend_from_slice(&part[..count]);
        }
        let _ = agent.shutdown(Shutdown::Write);
        answers.join().unwrap();
    });
    (address, said, work)
}

/// Replaying the bytes of a valid session starts nothing.
#[test]
fn a_replayed_session_gets_nothing() {
    let folder = certificates();
    let agent = Listening::start(&folder.path().join("agent-127.0.0.1.pem"), &[]);
    let (address, said, work) = relay(agent.address, |said, _| said.to_vec());
    let (status, found) = clock(
        &format!("agent:{address}"),
        Some(folder.path().join("controller.pem")),
    );
    assert_eq!(status, Some(0), "{found:#}");
    work.join().unwrap();
    let said = said.lock().unwrap().clone();
    assert!(said.len() > 2000, "{} bytes of a session", said.len());
    let mut again = TcpStream::connect(agent.address).unwrap();
    // The agent may close the connection midway.
    let _ = again.write_all(&said);
    let mut heard = Vec::new();
    let _ = again.read_to_end(&mut heard);
    let (last, _) = agent.end();
    assert!(
        last.starts_with("1 controller sessions; 1 unauthenticated"),
        "{last}"
    );
}

/// A peer with the controller's certificate that speaks another version, or sends no valid messages, gets a greeting
/// and nothing else; the agent keeps serving others.
#[test]
fn a_peer_without_valid_messages_gets_only_a_greeting() {
    let Some(openssl) = need("openssl", "openssl") else {
        return;
    };
    let folder = certificates();
    let agent = Listening::start(
        &folder.path().join("agent-127.0.0.1.pem"),
        &["--allow", "memory:"],
    );
    let file = folder.path().join("controller.pem").display().to_string();
    let frame = |message: &ToHost| {
        let mut bytes = Vec::new();
        encode(message, &mut bytes).unwrap();
        bytes
    };
    let hello = |version| {
        frame(&ToHost::Hello {
            version,
            program: "brunt 9.9".into(),
        })
    };
    let cases: [(Vec<u8>, String); 6] = [
        (hello(VERSION + 7), format!("version {}", VERSION + 7)),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            "exceeds the maximum".into(),
        ),
        (vec![0xff; 4096], "exceeds the maximum".into()),
        (
            frame(&ToHost::AskClock { round: 1 }),
            "not a greeting".into(),
        ),
        (vec![0, 0, 0, 2, b'{', b'}'], "malformed".into()),
        (
            [hello(VERSION), vec![0, 0, 0, 3, b'x', b'y', b'z']].concat(),
            "malformed".into(),
        ),
    ];
    for (bytes, expected) in &cases {
        let heard = s_client_says(&openssl, &agent, &["-cert", &file, "-key", &file], bytes);
        let mut decoder = Decoder::default();
        decoder.push(&heard);
        let messages: Vec<FromHost> = std::iter::from_fn(|| decoder.take().unwrap()).collect();
        assert!(
            matches!(
                messages[..],
                [FromHost::Hello {
                    version: VERSION,
                    ..
                }]
            ),
            "{expected}: {messages:?}"
        );
    }
    let (status, found) = clock(
        &format!("agent:{}", agent.address),
        Some(folder.path().join("controller.pem")),
    );
    assert_eq!(status, Some(0), "{found:#}");
    let (last, notes) = agent.end();
    assert!(
        last.starts_with("7 controller sessions; 0 unauthenticated"),
        "{last}\n{notes}"
    );
    for (_, expected) in &cases {
        assert!(notes.contains(expected), "{expected}: {notes}");
    }
}

/// If a man in the middle repeats or changes the controller's bytes, the connection ends and nothing is done twice.
#[test]
fn a_repeated_or_changed_record_ends_the_connection() {
    type Change = fn(&[u8]) -> Vec<u8>;
    let repeated: Change = |said| [said, said].concat();
    let changed: Change = |said| {
        let mut said = said.to_vec();
        let last = said.len() - 1;
        said[last] ^= 1;
        said
    };
    for change in [repeated, changed] {
        let folder = certificates();
        let agent = Listening::start(&folder.path().join("agent-127.0.0.1.pem"), &[]);
        // The certificates and the greeting pass unchanged.
        let (address, _, work) = relay(agent.address, move |said, before| match before > 3000 {
            true => change(said),
            false => said.to_vec(),
        });
        let mut command = brunt();
        command.args([
            "agent",
            "clock",
            "--json",
            "--for",
            "600s",
            "--silence",
            "60s",
            &format!("agent:{address}"),
            "--identity",
        ]);
        let output = command
            .arg(folder.path().join("controller.pem"))
            .output()
            .unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{found:#}");
        assert!(found["hosts"][0]["error"].is_string(), "{found:#}");
        work.join().unwrap();
        let (last, notes) = agent.end();
        assert!(last.starts_with("1 controller sessions"), "{last}");
        assert!(notes.contains("TLS: "), "{notes}");
    }
}

/// A controller rejects an agent certified by another authority.
#[test]
fn a_controller_rejects_agents_of_another_authority() {
    let (folder, other) = (certificates(), certificates());
    let agent = Listening::start(&other.path().join("agent-127.0.0.1.pem"), &[]);
    let (status, found) = clock(
        &format!("agent:{}", agent.address),
        Some(folder.path().join("controller.pem")),
    );
    assert!(
        status == Some(1) && found["error"].as_str().unwrap().contains("certificate"),
        "{found:#}"
    );
    drop(agent);
    // It also rejects an agent with a controller's certificate.
    let agent = Listening::start(&folder.path().join("controller.pem"), &[]);
    let (status, found) = clock(
        &format!("agent:{}", agent.address),
        Some(folder.path().join("controller.pem")),
    );
    assert!(
        status == Some(1) && found["error"].as_str().unwrap().contains("certificate"),
        "{found:#}"
    );
}

#[test]
fn keys_are_private_and_never_overwritten() {
    let folder = certificates();
    let path = |name: &str| folder.path().join(name);
    for name in ["authority.pem", "controller.pem", "agent-localhost.pem"] {
        assert_eq!(
            std::fs::metadata(path(name)).unwrap().permissions().mode() & 0o777,
            0o600,
            "{name}"
        );
    }
    let before = std::fs::read(path("agent-localhost.pem")).unwrap();
    // A host that is added later by the same authority works with the existing controller, and an existing host keeps
    // its key.
    let more = init(folder.path(), &["localhost", "::1"]);
    assert!(more.status.success() && path("agent-::1.pem").exists());
    assert_eq!(std::fs::read(path("agent-localhost.pem")).unwrap(), before);
    for host in ["", "a/b", "..", "-x"] {
        let said = init(folder.path(), &[host]);
        assert!(!said.status.success(), "{host}");
    }
    let refused = |file: &str, expected: &str| {
        let output = brunt()
            .args(["agent", "--listen", "127.0.0.1:0", "--identity"])
            .arg(path(file))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(2) && said.contains(expected),
            "{said}"
        );
    };
    std::fs::set_permissions(
        path("agent-localhost.pem"),
        std::fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    refused("agent-localhost.pem", "other users can read it (mode 644)");
    refused("nothing.pem", "No such file");
    refused("authority.pem", "not an identity");
}
