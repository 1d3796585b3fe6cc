//! Agents that listen: a controller with the right certificate is served, and a stranger gets nothing. Judged with
//! openssl's s_client.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use support::{brunt, need};
use tempfile::TempDir;

/// What `brunt agent init` makes for these hosts.
fn init(folder: &Path, hosts: &[&str]) -> Output {
    brunt().args(["agent", "init"]).arg(folder).args(hosts).output().unwrap()
}

/// A folder of certificates for agents on this machine.
fn certificates() -> TempDir {
    let folder = TempDir::new().unwrap();
    let made = init(folder.path(), &["127.0.0.1", "localhost"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    folder
}

/// A listening agent.
struct Listening {
    child: Child,
    address: SocketAddr,
}

impl Listening {
    fn start(identity: &Path) -> Listening {
        let mut child = brunt()
            .args(["agent", "--listen", "127.0.0.1:0", "--identity"])
            .arg(identity)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        child.stdout = Some(lines.into_inner());
        Listening { address: line.trim().parse().expect("an address"), child }
    }

    /// Its last line and its notes, after SIGTERM.
    fn end(mut self) -> (String, String) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let (mut out, mut notes) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut notes).unwrap();
        assert!(self.child.wait().unwrap().success(), "{notes}");
        (out.trim().to_string(), notes)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `brunt agent clock` of one host: exit status, its entry.
fn clock(host: &str, identity: Option<PathBuf>) -> (Option<i32>, Value) {
    let mut command = brunt();
    command.args(["agent", "clock", "--json", "--for", "100ms", host]);
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
    let agent = Listening::start(&folder.path().join("agent-127.0.0.1.pem"));
    let host = format!("agent:{}", agent.address);
    let (status, found) = clock(&host, Some(folder.path().join("controller.pem")));
    assert_eq!(status, Some(0), "{found:#}");
    let [low, high] = ["low", "high"].map(|end| found["offset_ns"][end].as_i64().unwrap());
    assert!(low <= 0 && 0 <= high, "{found:#}");
    // Without an identity there is no way, and a name has to be the certificate's.
    let (status, found) = clock(&host, None);
    assert!(status == Some(1) && found["error"].as_str().unwrap().contains("--identity"), "{found:#}");
    let by_name = format!("agent:localhost:{}", agent.address.port());
    let (status, found) = clock(&by_name, Some(folder.path().join("controller.pem")));
    assert!(status == Some(1) && found["error"].as_str().unwrap().contains("certificate"), "{found:#}");
    let (last, _) = agent.end();
    assert!(last.starts_with("1 conversations with controllers; 1 strangers"), "{last}");
}

/// What s_client hears of the agent within its connection, with these arguments.
fn s_client(openssl: &Path, agent: &Listening, arguments: &[&str]) -> Vec<u8> {
    let mut child = Command::new(openssl)
        .args(["s_client", "-quiet", "-connect", &agent.address.to_string()])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Says something, waits for the greeting or the end, and closes.
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(b"\0\0\0\x06\"stop\"");
    let mut heard = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut heard).unwrap();
    child.wait().unwrap();
    heard
}

/// A PEM file's parts for openssl: certificate and key.
fn parts(folder: &Path, identity: &str) -> [String; 2] {
    let file = folder.join(identity).display().to_string();
    [file.clone(), file]
}

#[test]
fn a_stranger_gets_nothing() {
    let Some(openssl) = need("openssl", "openssl") else { return };
    let (folder, other) = (certificates(), certificates());
    let agent = Listening::start(&folder.path().join("agent-127.0.0.1.pem"));
    let hears = |arguments: &[&str]| {
        let heard = s_client(&openssl, &agent, arguments);
        String::from_utf8_lossy(&heard).contains("\"hello\"")
    };
    let with = |[certificate, key]: &[String; 2], more: &[&str]| {
        let mut arguments = vec!["-cert", certificate, "-key", key];
        arguments.extend(more);
        hears(&arguments)
    };
    // First that it can hear something at all.
    let ours = parts(folder.path(), "controller.pem");
    assert!(with(&ours, &[]), "s_client with the controller's certificate is greeted");
    assert!(!hears(&[]), "no certificate");
    assert!(!with(&parts(other.path(), "controller.pem"), &[]), "another authority's controller");
    assert!(!with(&parts(folder.path(), "agent-localhost.pem"), &[]), "an agent's certificate");
    assert!(!with(&ours, &["-tls1_2"]), "an older TLS");
    assert!(!with(&ours, &["-alpn", "h2"]), "another protocol");
    // Plain text, and somebody who says nothing, are closed.
    let mut plain = TcpStream::connect(agent.address).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: agent\r\n\r\n").unwrap();
    let mut heard = Vec::new();
    let _ = plain.read_to_end(&mut heard);
    assert!(!String::from_utf8_lossy(&heard).contains("hello"));
    let mut silent = TcpStream::connect(agent.address).unwrap();
    assert_eq!(silent.read(&mut [0; 16]).unwrap_or(0), 0);
    let (last, notes) = agent.end();
    assert!(
        last.starts_with("1 conversations with controllers; 7 strangers and 0 connections"),
        "{last}\n{notes}"
    );
    assert!(notes.contains("did not show a certificate within 5s"), "{notes}");
}

/// Forwards one connection and keeps what the client said.
fn relay(to: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, said) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
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
            kept.lock().unwrap().extend_from_slice(&part[..count]);
            agent.write_all(&part[..count]).unwrap();
        }
        let _ = agent.shutdown(Shutdown::Write);
        answers.join().unwrap();
    });
    (address, said, work)
}

/// The bytes of a good session, sent again, start nothing.
#[test]
fn a_replayed_session_gets_nothing() {
    let folder = certificates();
    let agent = Listening::start(&folder.path().join("agent-127.0.0.1.pem"));
    let (address, said, work) = relay(agent.address);
    let (status, found) = clock(&format!("agent:{address}"), Some(folder.path().join("controller.pem")));
    assert_eq!(status, Some(0), "{found:#}");
    work.join().unwrap();
    let said = said.lock().unwrap().clone();
    assert!(said.len() > 2000, "{} bytes of a session", said.len());
    let mut again = TcpStream::connect(agent.address).unwrap();
    // It may be closed in the middle.
    let _ = again.write_all(&said);
    let mut heard = Vec::new();
    let _ = again.read_to_end(&mut heard);
    let (last, _) = agent.end();
    assert!(last.starts_with("1 conversations with controllers; 1 strangers"), "{last}");
}

/// Another authority's agent is no agent of ours.
#[test]
fn a_controller_believes_its_own_agents_only() {
    let (folder, other) = (certificates(), certificates());
    let agent = Listening::start(&other.path().join("agent-127.0.0.1.pem"));
    let (status, found) =
        clock(&format!("agent:{}", agent.address), Some(folder.path().join("controller.pem")));
    assert!(status == Some(1) && found["error"].as_str().unwrap().contains("certificate"), "{found:#}");
    drop(agent);
    // Nor is a controller one.
    let agent = Listening::start(&folder.path().join("controller.pem"));
    let (status, found) =
        clock(&format!("agent:{}", agent.address), Some(folder.path().join("controller.pem")));
    assert!(status == Some(1) && found["error"].as_str().unwrap().contains("certificate"), "{found:#}");
}

#[test]
fn keys_are_private_and_never_overwritten() {
    let folder = certificates();
    let path = |name: &str| folder.path().join(name);
    for name in ["authority.pem", "controller.pem", "agent-localhost.pem"] {
        assert_eq!(std::fs::metadata(path(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    let before = std::fs::read(path("agent-localhost.pem")).unwrap();
    let again = init(folder.path(), &["localhost"]);
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(std::fs::read(path("agent-localhost.pem")).unwrap(), before);
    // Another host of the same authority works with the controller that was there.
    assert!(init(folder.path(), &["::1"]).status.success());
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
        assert!(output.status.code() == Some(2) && said.contains(expected), "{said}");
    };
    std::fs::set_permissions(path("agent-localhost.pem"), std::fs::Permissions::from_mode(0o644)).unwrap();
    refused("agent-localhost.pem", "others may read it (mode 644)");
    refused("nothing.pem", "No such file");
    refused("authority.pem", "not an identity");
}
