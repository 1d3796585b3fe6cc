//! The NBD server of `brunt target` with independent clients (nbdinfo, nbdcopy, qemu-img, qemu-io, a booting machine)
//! and with Brunt's own, the only one here that requests extended headers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::support::pki::certificates;
use crate::support::{Running, Target, brunt, need, run_within, succeed};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const MIB: usize = 1 << 20;

/// A target with these LUNs, and its NBD URLs.
struct Served {
    target: Target,
    folder: TempDir,
}

impl Served {
    fn start(luns: &[&str]) -> Served {
        Served::start_in(
            tempfile::Builder::new().prefix("nbd").tempdir().unwrap(),
            luns,
            &[],
        )
    }

    /// Starts a target with an existing folder and additional flags.
    fn start_in(folder: TempDir, luns: &[&str], more: &[&str]) -> Served {
        let nbd = format!("unix:{}", folder.path().join("socket").display());
        let mut args = vec!["--nbd", &nbd];
        luns.iter().for_each(|lun| args.extend(["--lun", lun]));
        args.extend(more);
        Served {
            target: Target::start(&args),
            folder,
        }
    }

    fn url(&self, export: &str) -> String {
        format!(
            "nbd+unix:///{export}?socket={}",
            self.folder.path().join("socket").display()
        )
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 + at / 4096 * 3) as u8).collect()
}

fn qemu_io(url: &str, commands: &[&str]) -> String {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]);
    for one in commands {
        command.args(["-c", one]);
    }
    let output = run_within(command.arg(url), 60);
    [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .concat()
}

/// libnbd sees the exports, and can copy data in and out.
#[test]
fn libnbd_lists_exports_and_copies_data() {
    if need("nbdcopy", "libnbd-bin").is_none() {
        return;
    }
    let served = Served::start(&["memory:16MiB", "memory:8MiB,block=4096,ro"]);
    let info = |words: &[&str]| -> Value {
        let text = succeed(Command::new("nbdinfo").arg("--json").args(words), 30);
        serde_json::from_str(&text).unwrap()
    };
    let listed = info(&["--list", &served.url("")]);
    let exports = listed["exports"].as_array().unwrap();
    assert_eq!(exports.len(), 2, "{listed}");
    let first = &exports[0];
    assert_eq!(
        (&first["export-name"], &first["export-size"]),
        (&"0".into(), &(16 * MIB).into())
    );
    for (flag, is) in [
        ("is_read_only", false),
        ("can_flush", true),
        ("can_fua", true),
        ("can_multi_conn", true),
        ("can_zero", true),
        ("can_df", true),
    ] {
        assert_eq!(first[flag], is, "{flag}: {first}");
    }
    assert_eq!(exports[1]["is_read_only"], true);
    assert_eq!(exports[1]["block_size_minimum"], 4096, "{}", exports[1]);

    let bytes = pattern(16 * MIB);
    let from = served.file("from", &bytes);
    let to = served.file("to", &[]);
    succeed(Command::new("nbdcopy").args([&from, &served.url("0")]), 60);
    succeed(Command::new("nbdcopy").args([&served.url("0"), &to]), 60);
    assert!(fs::read(&to).unwrap() == bytes);
    // The disk is the same over iSCSI.
    let out = succeed(
        brunt().args(["--json", "io", "read", &served.target.url(0), "--bs", "1M"]),
        60,
    );
    let read: Value = serde_json::from_str(&out).unwrap();
    let sum = succeed(Command::new("sha256sum").arg(&from), 30);
    assert_eq!(read["sha256"], sum[..64]);
    // Holes are reported as such.
    let map = succeed(
        Command::new("nbdinfo").args(["--map", "--json", &served.url("1")]),
        30,
    );
    let map: Value = serde_json::from_str(&map).unwrap();
    assert_eq!(map[0]["length"], 8 * MIB, "{map}");
    assert_eq!(map[0]["description"], "hole,zero");
}

/// QEMU's client: data, write-zeroes, discards, flushes, errors, and rejected requests.
#[test]
fn qemu_reads_and_writes() {
    if need("qemu-io", "qemu-utils").is_none() {
        return;
    }
    let served = Served::start(&[
        "memory:64MiB,thin",
        "memory:1MiB,ro",
        "memory:1MiB?fault=medium-error,p=1,op=read",
    ]);
    let said = qemu_io(
        &served.url("0"),
        &[
            "write -P 5 0 1M",
            "write -P 6 1M 20M",
            "write -z 64k 64k",
            "discard 128k 64k",
            "flush",
            "write -f -P 7 512 512",
            "read -P 7 512 512",
            "read -P 5 1024 64512",
            "read -P 0 64k 64k",
            "read -P 6 1M 20M",
            "read -P 5 192k 832k",
        ],
    );
    assert!(
        !said.contains("failed") && said.contains("read 20971520/20971520 bytes"),
        "{said}"
    );
    let said = qemu_io(&served.url("2"), &["read 0 4096", "write 0 4096"]);
    assert!(
        said.contains("read failed: Input/output error") && said.contains("wrote 4096/4096"),
        "{said}"
    );
    let said = qemu_io(&served.url("1"), &["write 0 512"]);
    assert!(
        said.contains("read-only") || said.contains("Permission denied"),
        "{said}"
    );
    let said = qemu_io(&served.url("7"), &["read 0 512"]);
    assert!(said.contains("no such export"), "{said}");

    let bytes = pattern(64 * MIB);
    let from = served.file("from", &bytes);
    let convert = ["convert", "-n", "-f", "raw", "-O", "raw", "-m", "8", "-W"];
    succeed(
        Command::new("qemu-img")
            .args(convert)
            .args([&from, &served.url("0")]),
        120,
    );
    let same = succeed(
        Command::new("qemu-img").args([
            "compare",
            "-f",
            "raw",
            "-F",
            "raw",
            &from,
            &served.url("0"),
        ]),
        120,
    );
    assert!(same.contains("identical"), "{same}");
}

/// Brunt's client and server negotiate extended headers, even over TCP; the data matches its seed.
#[test]
fn our_client_and_server_negotiate_extended_headers() {
    let served = Served::start(&["memory:64MiB"]);
    for (options, bs, depth) in [
        ("", "4k", "64"),
        ("&headers=structured", "1M", "4"),
        ("&headers=extended", "60k", "16"),
    ] {
        let url = format!("{}{options}", served.url("0"));
        succeed(
            brunt().args([
                "io", "write", &url, "--bs", bs, "--depth", depth, "--seed", "5",
            ]),
            60,
        );
        succeed(
            brunt().args([
                "io", "verify", &url, "--bs", "256k", "--depth", "8", "--seed", "5",
            ]),
            60,
        );
    }
    let best = format!("{}&headers=extended", served.url("0"));
    let info = succeed(brunt().args(["io", "info", &best]), 30);
    assert!(
        info.contains("NBD: extended headers, block status") && info.contains("CAN_MULTI_CONN"),
        "{info}"
    );
    let listed = succeed(brunt().args(["io", "targets", &served.url("")]), 30);
    assert!(listed.starts_with("0\tLUN 0 of "), "{listed}");
}

/// Creates a folder with certificates; returns it and its path.
fn papers() -> (TempDir, String) {
    let folder = tempfile::Builder::new().prefix("nbd").tempdir().unwrap();
    certificates(folder.path());
    let path = folder.path().display().to_string();
    (folder, path)
}

/// TLS with libnbd and QEMU: encrypted data is correct, the errors for clients without TLS or without a certificate
/// say what is missing, and Brunt's own client negotiates extended headers over TLS.
#[test]
fn tls_refuses_clients_without_a_certificate() {
    let programs = [
        ("openssl", "openssl"),
        ("nbdcopy", "libnbd-bin"),
        ("qemu-img", "qemu-utils"),
    ];
    if programs
        .iter()
        .any(|(program, package)| need(program, package).is_none())
    {
        return;
    }
    let (folder, pki) = papers();
    let luns = ["memory:16MiB", "memory:1MiB"];
    let served = Served::start_in(folder, &luns, &["--nbd-tls", &pki, "--nbd-tls-verify-peer"]);
    let secret = |export: &str, pki: &str| {
        let url = served.url(export).replacen("nbd+unix", "nbds+unix", 1);
        format!("{url}&tls-certificates={pki}")
    };
    let fails = |command: &mut Command, words: &str| {
        let output = run_within(command, 30);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(words),
            "{command:?}: {said}"
        );
    };

    let bytes = pattern(16 * MIB);
    let from = served.file("from", &bytes);
    let to = served.file("to", &[]);
    succeed(
        Command::new("nbdcopy").args([&from, &secret("0", &pki)]),
        60,
    );
    succeed(Command::new("nbdcopy").args([&secret("0", &pki), &to]), 60);
    assert!(fs::read(&to).unwrap() == bytes);
    let listed = succeed(
        Command::new("nbdinfo").args(["--json", "--list", &secret("", &pki)]),
        30,
    );
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(
        (
            listed["TLS"].as_bool(),
            listed["exports"].as_array().map(Vec::len)
        ),
        (Some(true), Some(2))
    );
    // QEMU's client, by host name and by socket.
    let credentials = format!("tls-creds-x509,id=tls0,endpoint=client,dir={pki}");
    let socket = served.folder.path().join("socket").display().to_string();
    let image = format!(
        "driver=nbd,server.type=unix,server.path={socket},export=0,tls-creds=tls0,tls-hostname=localhost"
    );
    let wanted = format!("driver=raw,file.driver=file,file.filename={from}");
    let compare = [
        "compare",
        "--object",
        &credentials,
        "--image-opts",
        &wanted,
        &image,
    ];
    assert!(succeed(Command::new("qemu-img").args(compare), 60).contains("identical"));

    // Without TLS, without a certificate, and with an unknown certificate. libnbd 1.14 has the same message for this
    // reply as for unknown options.
    fails(
        Command::new("nbdinfo").arg(served.url("0")),
        "not supported",
    );
    fails(
        Command::new("qemu-img").args(["info", &served.url("0")]),
        "TLS",
    );
    let output = run_within(brunt().args(["io", "info", &served.url("0")]), 30);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("requires TLS; write nbds://"),
        "{output:?}"
    );
    let (stranger, theirs) = papers();
    fs::copy(
        served.folder.path().join("ca-cert.pem"),
        stranger.path().join("ca-cert.pem"),
    )
    .unwrap();
    let read = |pki: &str| run_within(brunt().args(["io", "info", &secret("0", pki)]), 30);
    assert!(!read(&theirs).status.success());
    fails(Command::new("nbdinfo").arg(secret("0", &theirs)), "nbdinfo");
    for file in ["client-cert.pem", "client-key.pem"] {
        fs::remove_file(stranger.path().join(file)).unwrap();
    }
    assert!(!read(&theirs).status.success());

    // Many requests concurrently, with sizes below and above a TLS record.
    let ours = secret("0", &pki);
    for (options, bs, depth) in [
        ("", "4k", "64"),
        ("&headers=structured", "1M", "4"),
        ("&headers=extended", "60k", "16"),
    ] {
        let url = format!("{ours}{options}");
        succeed(
            brunt().args([
                "io", "write", &url, "--bs", bs, "--depth", depth, "--seed", "5",
            ]),
            60,
        );
        succeed(
            brunt().args([
                "io", "verify", &url, "--bs", "256k", "--depth", "8", "--seed", "5",
            ]),
            60,
        );
    }
    let info = succeed(
        brunt().args(["io", "info", &format!("{ours}&headers=extended")]),
        30,
    );
    assert!(
        info.contains("NBD: extended headers, block status") && info.contains("TLS 1.3"),
        "{info}"
    );
}

/// With `on`, clients with and without TLS are served; without `--nbd-tls-verify-peer`, no client needs a certificate.
#[test]
fn optional_tls_serves_clients_with_and_without_it() {
    if need("openssl", "openssl").is_none() || need("nbdinfo", "libnbd-bin").is_none() {
        return;
    }
    let (folder, pki) = papers();
    for file in ["client-cert.pem", "client-key.pem"] {
        fs::remove_file(folder.path().join(file)).unwrap();
    }
    let mut served = Served::start_in(
        folder,
        &["memory:1MiB"],
        &["--nbd-tls", &pki, "--nbd-tls-mode", "on"],
    );
    let secret = format!(
        "{}&tls-certificates={pki}",
        served.url("0").replacen("nbd+", "nbds+", 1)
    );
    for (url, protected) in [(&secret, true), (&served.url("0"), false)] {
        let info = succeed(Command::new("nbdinfo").args(["--json", url]), 30);
        let info: Value = serde_json::from_str(&info).unwrap();
        assert_eq!(info["TLS"], protected, "{info}");
        succeed(brunt().args(["io", "write", url, "--seed", "1"]), 30);
    }
    // Plain text after STARTTLS is rejected, and closes only the connection on which it was sent.
    let mut socket = UnixStream::connect(served.folder.path().join("socket")).unwrap();
    let start = b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0";
    let list = b"IHAVEOPT\0\0\0\x03\0\0\0\0";
    socket.write_all(&[&start[..], list].concat()).unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let reply_of_list = b"\x00\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x03";
    assert!(
        !answer
            .windows(reply_of_list.len())
            .any(|part| part == reply_of_list),
        "{answer:?}"
    );
    assert!(served.target.is_alive());
    succeed(Command::new("nbdinfo").arg(&secret), 30);
}

/// A machine boots from the target: the first sector prints to the serial line and ends the machine.
#[test]
fn a_machine_boots_from_the_target() {
    if need("qemu-system-x86_64", "qemu-system-x86").is_none() {
        return;
    }
    let served = Served::start(&["memory:1MiB"]);
    // For each letter: mov al, letter; out dx, al. Before them: mov dx, 0x3f8 (the serial line); after them: mov dx,
    // 0x501; mov al, 0x10; out dx, al (isa-debug-exit).
    let letters = b"booted\n".iter().flat_map(|letter| [0xb0, *letter, 0xee]);
    let mut sector: Vec<u8> = [0xba, 0xf8, 0x03].into_iter().chain(letters).collect();
    sector.extend([0xba, 0x01, 0x05, 0xb0, 0x10, 0xee, 0xf4]);
    sector.resize(510, 0);
    sector.extend([0x55, 0xaa]);
    let image = served.file("image", &sector);
    succeed(
        brunt().args([
            "io",
            "write",
            &served.url("0"),
            "--bs",
            "512",
            "--input",
            &image,
        ]),
        30,
    );
    let mut machine = Command::new("qemu-system-x86_64");
    machine.args([
        "-accel", "tcg", "-display", "none", "-monitor", "none", "-serial", "stdio", "-net", "none",
    ]);
    machine.args([
        "-device",
        "isa-debug-exit,iobase=0x501",
        "-m",
        "32",
        "-no-reboot",
    ]);
    let output = run_within(
        machine.args([
            "-drive",
            &format!("file={},format=raw,if=ide", served.url("0")),
        ]),
        60,
    );
    let said = String::from_utf8_lossy(&output.stdout);
    // QEMU exits with twice the value written to the port, plus one.
    assert!(
        said.contains("booted") && output.status.code() == Some(33),
        "{said} {:?}",
        output
    );
}

/// Clients that break the protocol lose their connection, without affecting others.
#[test]
fn hostile_clients_lose_only_their_own_connection() {
    let mut served = Served::start(&["memory:1MiB"]);
    let path = served.folder.path().join("socket");
    let go = b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";
    let request = |kind: u8, offset: u64, len: u32| {
        let head = [
            b"\x25\x60\x95\x13\0\0\0".as_slice(),
            &[kind],
            &7_u64.to_be_bytes(),
        ]
        .concat();
        [&head[..], &offset.to_be_bytes(), &len.to_be_bytes()].concat()
    };
    let talk = |bytes: &[u8]| {
        let mut socket = UnixStream::connect(&path).unwrap();
        let _ = socket.write_all(bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        answer
    };
    let flags = b"\0\0\0\x03";
    assert_eq!(talk(b""), b"NBDMAGICIHAVEOPT\0\x03");
    for nonsense in [
        &b"\0\0\0\x07"[..],
        &[0xff; 1000],
        b"\0\0\0\x03IHAVEOPT\0\0\0\x07\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        assert_eq!(
            talk(nonsense).len(),
            18,
            "{nonsense:?}: nothing but the greeting"
        );
    }
    let served_then = |requests: &[u8]| talk(&[&flags[..], go, requests].concat());
    let quiet = served_then(&[]).len();
    // Simple replies: magic, error, cookie.
    let errors =
        |answer: &[u8]| -> Vec<u8> { answer[quiet..].chunks(16).map(|reply| reply[7]).collect() };
    let refused = served_then(
        &[
            request(0, 1 << 20, 512),
            request(9, 0, 0),
            request(0, 1, 512),
            request(7, 0, 512),
        ]
        .concat(),
    );
    assert_eq!(errors(&refused), [22, 22, 22, 22]);
    let write_past = [request(1, 1 << 20, 512), vec![1; 512], request(3, 0, 0)].concat();
    assert_eq!(
        errors(&served_then(&write_past)),
        [28, 0],
        "the payload is stepped over"
    );
    // A request that is longer than any client needs, one that is cut off in the middle, and bytes that aren't a
    // request.
    assert!(served_then(&request(1, 0, u32::MAX)).len() <= quiet);
    assert!(served_then(&[request(1, 0, 65536), vec![1; 100]].concat()).len() <= quiet);
    assert!(served_then(&[0xff; 28]).len() <= quiet);
    assert!(served.target.is_alive());
    succeed(
        brunt().args(["io", "write", &served.url("0"), "--seed", "1"]),
        30,
    );
}

/// A client that aborts the handshake gets its reply and breaks nothing; the target doesn't wait for the client to
/// disconnect.
#[test]
fn an_aborted_handshake_gets_its_reply() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let nbd = format!("unix:{}", path.display());
    let target = brunt()
        .args([
            "target",
            "--portal",
            "127.0.0.1:0",
            "--lun",
            "null:1MiB",
            "--nbd",
            &nbd,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut target = Running(target.unwrap());
    // The target prints its address once it serves.
    let mut stdout = BufReader::new(target.0.stdout.take().unwrap());
    let mut summary = String::new();
    while !summary.contains("nbd+unix:") {
        assert_ne!(stdout.read_line(&mut summary).unwrap(), 0, "{summary}");
    }
    for after in [&b""[..], b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0"] {
        let mut socket = UnixStream::connect(&path).unwrap();
        socket
            .write_all(&[b"\0\0\0\x03IHAVEOPT\0\0\0\x02\0\0\0\0", after].concat())
            .unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap();
        assert_eq!(
            answer.len(),
            18 + 20,
            "the greeting and that it was heard: {answer:?}"
        );
    }
    kill_process(Pid::from_child(&target.0), Signal::INT).unwrap();
    stdout.read_to_string(&mut summary).unwrap();
    let mut said = String::new();
    target
        .0
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(
        target.0.wait().unwrap().success() && !said.contains("panicked"),
        "{said}"
    );
    assert!(
        summary.contains("NBD: 2 connections") && summary.contains("and 0 broken"),
        "{summary}"
    );
}

/// A port that isn't available is reported before anything is served, as is an invalid address or certificate.
#[test]
fn mistakes_are_reported_before_anything_is_served() {
    if need("openssl", "openssl").is_none() {
        return;
    }
    let check = |nbd: &str, words: &str| {
        let output = run_within(
            brunt().args([
                "target",
                "--portal",
                "127.0.0.1:0",
                "--lun",
                "null:1MiB",
                "--nbd",
                nbd,
            ]),
            30,
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(words),
            "{nbd}: {said}"
        );
    };
    let (folder, pki) = papers();
    let tls = |more: &[&str], words: &str| {
        let all = [
            "target",
            "--portal",
            "127.0.0.1:0",
            "--lun",
            "null:1MiB",
            "--nbd",
            "127.0.0.1:0",
        ];
        let output = run_within(brunt().args(all).args(more), 30);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(words),
            "{more:?}: {said}"
        );
    };
    tls(&["--nbd-tls", "/nowhere"], "/nowhere/server-cert.pem");
    tls(&["--nbd-tls-verify-peer"], "--nbd-tls <FOLDER>");
    // The key of another certificate, no certificate, no authority.
    fs::copy(
        folder.path().join("client-key.pem"),
        folder.path().join("server-key.pem"),
    )
    .unwrap();
    tls(&["--nbd-tls", &pki], "does not match server-cert.pem");
    fs::write(folder.path().join("server-cert.pem"), "nothing").unwrap();
    tls(
        &["--nbd-tls", &pki],
        "server-cert.pem: it has no certificate",
    );
    fs::remove_file(folder.path().join("ca-cert.pem")).unwrap();
    tls(&["--nbd-tls", &pki, "--nbd-tls-verify-peer"], "ca-cert.pem");
    check("nowhere", "not an address");
    check(
        "unix:/nowhere/at/all",
        "cannot listen on unix:/nowhere/at/all",
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    check(&taken.local_addr().unwrap().to_string(), "cannot listen on");
}

/// Runs an experiment that writes to one of two URLs and reads the other at the same time, each as a separate target.
/// Returns the exit status and the messages.
fn run_on_both(one: &str, other: &str) -> (Option<i32>, String) {
    let text = format!(
        "name = \"x\"\nrepetitions = 1\n[targets.a]\nurl = \"{one}\"\n[targets.b]\nurl = \"{other}\"\n\
         [workloads.w]\nread = 0.0\nstop = {{ requests = 10 }}\n[workloads.x]\nstop = {{ requests = 10 }}\n\
         [together.g]\njobs = [{{ workload = \"w\", target = \"a\" }}, \
         {{ workload = \"x\", target = \"b\" }}]\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    fs::write(&file, text).unwrap();
    let mut command = brunt();
    command.arg("run").arg(&file);
    let run = run_within(command.arg("--out").arg(folder.path().join("out")), 60);
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    (run.status.code(), told)
}

fn check_is_one_storage(one: &str, other: &str) {
    let (code, told) = run_on_both(one, other);
    assert_eq!(code, Some(2), "{one} {other}: {told}");
    assert!(
        told.contains("targets 'a' and 'b' are the same storage"),
        "{told}"
    );
}

/// A LUN or an export that is behind two targets is detected even if its server's address, its socket or its name is
/// written in two ways.
#[test]
fn one_export_under_two_names_is_one_storage() {
    let served = Served::start(&["memory:1MiB"]);
    let link = served.folder.path().join("link");
    std::os::unix::fs::symlink(served.folder.path().join("socket"), &link).unwrap();
    let by_name = format!("localhost:{}", served.target.address().port());
    let lun = served.target.url(0);
    check_is_one_storage(
        &lun,
        &lun.replace(&served.target.address().to_string(), &by_name),
    );
    check_is_one_storage(
        &served.url("0"),
        &format!("nbd+unix:///0?socket={}", link.display()),
    );
    check_is_one_storage(&served.url("0"), &served.url(""));
}

/// A LUN behind two targets is detected even if each target reaches it through a different portal. Two LUNs of the
/// same target, and LUNs with the same number on two targets with the same name, are different storage.
#[test]
fn one_lun_through_two_portals_is_one_storage() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::write(&disk, vec![0; MIB]).unwrap();
    let disk = disk.to_str().unwrap();
    #[rustfmt::skip]
    let target = Target::start(&[
        "--lun", "memory:1MiB", "--lun", "memory:1MiB", "--lun", disk,
        "--portal", "127.0.0.1:0", "--portal", "127.0.0.2:0", "--portal", "127.0.0.1:0,group=2",
    ]);
    let namesake = Target::start(&["--lun", "memory:1MiB"]);
    check_is_one_storage(&target.url_at(0, 0), &target.url_at(1, 0));
    check_is_one_storage(&target.url_at(1, 2), &target.url_at(2, 2));
    for (one, other) in [
        (target.url_at(0, 0), target.url_at(1, 1)),
        (target.url_at(0, 0), target.url_at(0, 2)),
        (target.url(0), namesake.url(0)),
    ] {
        let (code, told) = run_on_both(&one, &other);
        assert_eq!(code, Some(0), "{one} {other}: {told}");
    }
}
