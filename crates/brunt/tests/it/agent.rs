//! Agents: what a controller learns from them through a child's pipes and through Debian's sshd, and that they leave
//! nothing behind, however they end.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::agents::ssh_to_here;
use crate::support::{brunt, need, processes_with, words_of};
use brunt_protocol::{Decoder, FromHost, ToHost, VERSION, encode};
use serde_json::Value;
use tempfile::TempDir;

/// Waits for something that happens soon on any machine, so only a failing test waits long.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs `brunt agent clock … --json`; returns its output and its JSON object.
fn clock(arguments: &[&str]) -> (Output, Value) {
    let output = brunt()
        .args(["agent", "clock", "--json", "--silence", "60s"])
        .args(arguments)
        .output()
        .unwrap();
    let object = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output, object)
}

fn between(value: &Value) -> [i64; 2] {
    [
        value["low"].as_i64().unwrap(),
        value["high"].as_i64().unwrap(),
    ]
}

/// Asserts that the measured clocks of a host are off by `shift`, which the host's agent adds to them. The
/// measurement started at `begin`.
fn assert_shifted(host: &Value, shift: i64, begin: Instant) {
    let elapsed = begin.elapsed().as_nanos() as f64;
    let drift = host["drift_ppm"][1].as_f64().unwrap() - host["drift_ppm"][0].as_f64().unwrap();
    // The shortest round trip bounds the offset; over time, the bound widens by the uncertainty of the drift, and by
    // 1 ppm in either direction because the drift may change.
    let round_trip = host["round_trip_ns"].as_f64().unwrap();
    let monotonic_max = 1.01 * round_trip + (drift + 2.0) * 1e-6 * elapsed + 1000.0;
    // A wall-clock round also includes the host's processing time, so all that is certain about the shortest one is
    // that it is shorter than the measurement.
    let wall_max = elapsed;
    for (offset, width_max) in [
        (&host["offset_ns"], monotonic_max),
        (&host["wall_offset_ns"], wall_max),
    ] {
        let [low, high] = between(offset);
        assert!(
            low <= shift && shift <= high,
            "{shift} is not in {low} to {high}: {host:#}"
        );
        let width = (high - low) as f64;
        assert!(
            width <= width_max,
            "{width} ns wide, at most {width_max}: {host:#}"
        );
    }
    let [low, high] = [0, 1].map(|index| host["drift_ppm"][index].as_f64().unwrap());
    assert!(
        low <= 0.0 && 0.0 <= high,
        "this machine's clock runs as fast as itself: {host:#}"
    );
}

#[test]
fn a_clock_shift_is_measured() {
    for shift in [0, 500_000_000, -500_000_000, 1_234_567] {
        let begin = Instant::now();
        let (output, found) = clock(&[
            "local",
            "--for",
            "200ms",
            &format!("--clock-shift-ns={shift}"),
        ]);
        assert!(output.status.success());
        assert_shifted(&found["hosts"][0], shift, begin);
    }
    let output = brunt()
        .args(["agent", "clock", "local", "--for", "100ms"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "local (brunt ",
        "wall clock  +",
        "monotonic ",
        "drift ",
        "round trip ",
        "of 3",
    ] {
        assert!(
            text.contains(part) || text.contains(&part.replace('+', "-")),
            "{part}: {text}"
        );
    }
}

/// An agent on its standard streams; the test plays the controller.
struct Bare(Child);

impl Bare {
    fn start(arguments: &[&str]) -> Bare {
        let mut command = brunt();
        command.args(["agent", "--stdio"]).args(arguments);
        Bare(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    fn say(&mut self, bytes: &[u8]) {
        // The agent may have ended already.
        let _ = self.0.stdin.as_mut().unwrap().write_all(bytes);
    }

    /// Waits until the agent ends on its own and returns all its output.
    fn end(mut self) -> (ExitStatus, Vec<u8>, String) {
        let (mut out, mut error) = (Vec::new(), String::new());
        let mut stdout = self.0.stdout.take().unwrap();
        let reader = std::thread::spawn(move || stdout.read_to_end(&mut out).map(|_| out).unwrap());
        self.0
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut error)
            .unwrap();
        let status = self.0.wait().unwrap();
        (status, reader.join().unwrap(), error)
    }
}

fn frame(message: &ToHost) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes).unwrap();
    bytes
}

fn messages(bytes: &[u8]) -> Vec<FromHost> {
    let mut decoder = Decoder::default();
    decoder.push(bytes);
    std::iter::from_fn(|| decoder.take().unwrap()).collect()
}

/// A peer that isn't a controller of this version achieves nothing; the agent reports the reason on standard error.
#[test]
fn an_unknown_peer_on_the_standard_streams_ends_the_agent() {
    let check = |bytes: &[u8], expected: &[&str]| {
        let mut agent = Bare::start(&[]);
        agent.say(bytes);
        let (status, out, error) = agent.end();
        assert_eq!(status.code(), Some(1), "{error}");
        expected
            .iter()
            .for_each(|part| assert!(error.contains(part), "{part}: {error}"));
        assert!(
            matches!(
                messages(&out)[..],
                [FromHost::Hello {
                    version: VERSION,
                    ..
                }]
            ),
            "a greeting and no more"
        );
    };
    let hello = |version| {
        frame(&ToHost::Hello {
            version,
            program: "brunt 9.9".into(),
        })
    };
    check(
        &hello(VERSION + 7),
        &[
            "brunt 9.9",
            &format!("version {}", VERSION + 7),
            &format!("this side version {VERSION}"),
        ],
    );
    check(
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &["exceeds the maximum"],
    );
    check(&frame(&ToHost::AskClock { round: 1 }), &["not a greeting"]);
    check(&[0, 0, 0, 2, b'{', b'}'], &["malformed"]);
}

/// The agent ends when its controller ends, and when the controller has been silent for the length of the lease.
#[test]
fn an_agent_ends_with_its_controller_or_its_lease() {
    let hello = frame(&ToHost::Hello {
        version: VERSION,
        program: "test".into(),
    });
    let mut agent = Bare::start(&[]);
    agent.say(&hello);
    drop(agent.0.stdin.take());
    let (status, _, error) = agent.end();
    assert!(status.success(), "{error}");

    let mut agent = Bare::start(&["--lease", "6s"]);
    agent.say(&hello);
    agent.say(&frame(&ToHost::Watch {
        name: "a".into(),
        interval_ms: 100,
        only: vec!["cpu".into()],
        processes: vec![],
    }));
    let stdin = agent.0.stdin.take();
    let (status, out, error) = agent.end();
    drop(stdin);
    assert_eq!(status.code(), Some(1));
    assert!(
        error.contains("no message from the controller for 6s"),
        "{error}"
    );
    let said = messages(&out);
    assert!(
        said.iter().any(|one| matches!(one, FromHost::Event(_))),
        "samples while it lasted"
    );
    assert!(
        matches!(said.last(), Some(FromHost::Failed { .. })),
        "{:?}",
        said.last()
    );
    // The lease has a minimum and a maximum.
    let output = brunt()
        .args(["agent", "--stdio", "--lease", "1s"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// Messages about a failing host say what to do.
#[test]
fn messages_about_a_failing_host_give_advice() {
    let folder = TempDir::new().unwrap();
    let check = |ssh: &str, more: &[&str], expected: &str| {
        let arguments: Vec<&str> = ["ssh:far", "--for", "100ms", "--ssh", ssh]
            .iter()
            .chain(more)
            .copied()
            .collect();
        let (output, found) = clock(&arguments);
        let said = found["hosts"][0]["error"].as_str().unwrap_or_default();
        assert_eq!(output.status.code(), Some(1), "{found:#}");
        assert!(said.contains(expected), "{expected}: {said}");
    };
    check("/nonexistent/ssh", &[], "cannot start the agent or ssh");
    check("false", &[], "connection ended (exit status: 1)");
    let here = ssh_to_here(folder.path(), "echo 'no route to host' >&2; exit 255");
    check(&here, &[], "(exit status: 255): no route to host");
    let here = ssh_to_here(folder.path(), "yes 'a chatty login script'");
    check(&here, &[], "prints too much");
    let here = ssh_to_here(folder.path(), "exec sleep 1000");
    check(
        &here,
        &["--connect-timeout", "300ms"],
        "the agent didn't start within 300ms",
    );
    let here = ssh_to_here(folder.path(), "");
    check(&here, &["--far-program", "/nonexistent/brunt"], "not found");
    check(
        &here,
        &["--far-program", "brunt; reboot"],
        "characters with a special meaning",
    );
    // A host with another architecture is detected before anything is copied.
    std::fs::create_dir(folder.path().join("bin")).unwrap();
    let uname = folder.path().join("bin/uname");
    std::fs::write(&uname, "#!/bin/sh\necho riscv64\n").unwrap();
    std::fs::set_permissions(&uname, std::fs::Permissions::from_mode(0o755)).unwrap();
    let paths = format!(
        "export PATH={0}/bin:$PATH TMPDIR={0}",
        folder.path().display()
    );
    let here = ssh_to_here(folder.path(), &paths);
    check(
        &here,
        &[],
        "the host's architecture is riscv64, but this program was built for",
    );
    until("the far folder goes away", || {
        let names = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        !names
            .into_iter()
            .any(|name| name.to_string_lossy().starts_with("brunt-agent"))
    });
    // The message about a version mismatch names both versions.
    let mut hello = Vec::new();
    let now = brunt_protocol::Moment {
        clock: brunt_result::event::ClockName("x".into()),
        at: brunt_core::Nanos(1),
    };
    encode(
        &FromHost::Hello {
            version: 99,
            program: "brunt 9.9".into(),
            now,
        },
        &mut hello,
    )
    .unwrap();
    std::fs::write(folder.path().join("hello"), hello).unwrap();
    let before = format!(
        "echo brunt-agent-begins; cat {}/hello; exec sleep 1",
        folder.path().display()
    );
    check(
        &ssh_to_here(folder.path(), &before),
        &[],
        "(brunt 9.9) speaks protocol version 99, this side",
    );
}

/// Debian's sshd with its own key, on the standard streams of ssh: no port, no network. The processes that it starts
/// are identified by their temporary folder, which no other process has. Their home directory has no login scripts:
/// the user's scripts may wait for a lock that a killed login left behind.
struct Sshd {
    folder: TempDir,
    ssh: String,
}

impl Sshd {
    fn new(extra: &str) -> Option<Sshd> {
        let sshd = need("sshd", "openssh-server")?;
        let keygen = need("ssh-keygen", "openssh-client")?;
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        for key in ["host", "user"] {
            let made = Command::new(&keygen)
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path(key))
                .status();
            assert!(made.unwrap().success());
        }
        std::fs::copy(path("user.pub"), path("authorized")).unwrap();
        std::fs::create_dir(path("tmp")).unwrap();
        // The privilege separation folder, which Debian's service creates at startup.
        let _ = std::fs::create_dir_all("/run/sshd");
        let at = folder.path().display();
        let config = format!(
            "HostKey {at}/host\nAuthorizedKeysFile {at}/authorized\nPidFile none\nUsePAM no\nStrictModes no\n\
             PermitRootLogin yes\nPasswordAuthentication no\nSetEnv TMPDIR={at}/tmp HOME={at}\n{extra}\n"
        );
        std::fs::write(path("sshd_config"), config).unwrap();
        let config = format!(
            "Host far\n  ProxyCommand {} -i -f {at}/sshd_config -E {at}/log\n  IdentityFile {at}/user\n  IdentitiesOnly yes\n  \
             StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
            sshd.display()
        );
        std::fs::write(path("ssh_config"), config).unwrap();
        let ssh = format!("ssh -F {at}/ssh_config");
        Some(Sshd { folder, ssh })
    }

    fn tmp(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    fn is_tidy(&self) -> bool {
        std::fs::read_dir(self.tmp()).unwrap().next().is_none()
    }

    /// Processes started by this sshd.
    fn processes(&self) -> Vec<String> {
        let mark = format!("TMPDIR={}", self.tmp().display());
        let pids = processes_with(|variable| variable == mark.as_bytes());
        pids.into_iter()
            .map(|pid| words_of(pid).join(" "))
            .collect()
    }
}

/// The program copies itself to a host that doesn't have it, measures the host's clocks, and leaves nothing there.
#[test]
fn a_host_behind_sshd_needs_nothing_installed() {
    let Some(sshd) = Sshd::new("") else { return };
    let arguments = [
        "ssh:far",
        "--for",
        "300ms",
        // The program is large, and a busy machine is slow to encrypt it.
        "--connect-timeout",
        "600s",
        "--ssh",
        &sshd.ssh,
        "--clock-shift-ns=-250000000",
    ];
    let begin = Instant::now();
    let (output, found) = clock(&arguments);
    let log = || std::fs::read_to_string(sshd.folder.path().join("log")).unwrap_or_default();
    assert!(output.status.success(), "{found:#}\n{}", log());
    assert_shifted(&found["hosts"][0], -250_000_000, begin);
    until("processes are left on the host", || {
        sshd.processes().is_empty()
    });
    until("files are left on the host", || sshd.is_tidy());
}

/// The host's own program is run if its path is given, even behind a login that prints text; a failing host doesn't
/// affect the others.
#[test]
fn neither_a_chatty_login_nor_a_failing_host_affects_the_others() {
    let Some(sshd) = Sshd::new("ForceCommand echo Welcome to far; sh -c \"$SSH_ORIGINAL_COMMAND\"")
    else {
        return;
    };
    let program = env!("CARGO_BIN_EXE_brunt");
    let arguments = [
        "ssh:far",
        "local",
        "ssh:nobody@far",
        "--for",
        "100ms",
        "--ssh",
        &sshd.ssh,
        "--far-program",
        program,
    ];
    let begin = Instant::now();
    let (output, found) = clock(&arguments);
    assert_eq!(output.status.code(), Some(1));
    assert_shifted(&found["hosts"][0], 0, begin);
    assert_shifted(&found["hosts"][1], 0, begin);
    let said = found["hosts"][2]["error"].as_str().unwrap();
    assert!(
        said.contains("Permission denied") || said.contains("connection ended"),
        "{said}"
    );
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 of 3 hosts could not be reached"));
}

/// A killed controller leaves no process and no file on the host.
#[test]
fn nothing_is_left_of_a_killed_controller() {
    let Some(sshd) = Sshd::new("") else { return };
    let mut controller = brunt()
        .args(["agent", "clock", "ssh:far", "--for", "1h"])
        .args(["--connect-timeout", "600s", "--silence", "60s"])
        .args(["--ssh", &sshd.ssh])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the agent starts", || {
        sshd.processes()
            .iter()
            .any(|words| words.contains("agent --stdio --remove"))
    });
    until("its program is removed while it runs", || {
        !std::fs::read_dir(sshd.tmp())
            .unwrap()
            .any(|entry| entry.unwrap().path().join("brunt").exists())
    });
    controller.kill().unwrap();
    controller.wait().unwrap();
    until("processes are left on the host", || {
        sshd.processes().is_empty()
    });
    until("files are left on the host", || sshd.is_tidy());
}

/// Runs `brunt probe … --json`; returns the exit status and the object.
fn probe(arguments: &[&str]) -> (Option<i32>, Value) {
    let output = brunt()
        .args(["probe", "--json", "--interval", "50ms"])
        .args(arguments)
        .output()
        .unwrap();
    let object = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), object)
}

/// Samples from hosts whose clocks are a quarter of an hour off get timestamps of this machine's clock.
#[test]
fn samples_of_hosts_are_on_one_timeline() {
    let folder = TempDir::new().unwrap();
    let here = ssh_to_here(folder.path(), "");
    let begin = Instant::now();
    let program = env!("CARGO_BIN_EXE_brunt");
    let (status, found) = probe(&[
        "local",
        "ssh:far",
        "--for",
        "5s",
        "--only",
        "cpu,memory",
        "--silence",
        "60s",
        "--clock-shift-ns=900000000000",
        "--ssh",
        &here,
        "--far-program",
        program,
    ]);
    let most = begin.elapsed().as_secs_f64();
    assert_eq!(status, Some(0), "{found:#}");
    for host in found["hosts"].as_array().unwrap() {
        let samples = host["samples"].as_array().unwrap();
        assert!(
            !samples.is_empty() && host["clock_error_ns"].as_u64().unwrap() < 1_000_000_000,
            "{host:#}"
        );
        let mut last = 0.0;
        for sample in samples {
            let [start, end] = ["start_s", "end_s"].map(|key| sample[key].as_f64().unwrap());
            assert!(
                0.0 < start && start < end && end < most,
                "{start} to {end} of {most}"
            );
            assert!(end > last, "in order");
            last = end;
            let values = sample["values"].as_array().unwrap();
            let probes: std::collections::BTreeSet<&str> = values
                .iter()
                .map(|value| value["probe"].as_str().unwrap())
                .collect();
            assert!(
                probes.contains("memory")
                    && probes.iter().all(|name| ["cpu", "memory"].contains(name)),
                "{probes:?}"
            );
        }
    }
    let output = brunt()
        .args(["probe", "local", "--for", "5s", "--interval", "100ms"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.lines().all(|line| line.contains(" s  local  ")),
        "{text}"
    );
    // After a late sample, the next interval can be shorter than the kernel's unit of CPU time.
    assert!(
        text.contains(" s  local  cpu ") && text.contains("available "),
        "{text}"
    );
    for wrong in [
        &["local", "--interval", "1ms"][..],
        &["local", "--only", "gpu"],
        &["local", "local"],
        &["local", "--json"],
    ] {
        let output = brunt().arg("probe").args(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

/// A host whose agent dies or freezes is reported as lost; its samples are kept, and the other hosts continue.
#[test]
fn a_lost_host_is_reported_and_its_samples_are_kept() {
    let program = env!("CARGO_BIN_EXE_brunt");
    let check = |folder: &TempDir, trouble: &str, expected: &str| {
        let at = folder.path().display();
        // Wait until the agent has sent samples.
        let script = format!(
            "exec 3<&0; : >{at}/out; sh -c \"echo \\$\\$ >{at}/pid; $last\" <&3 | tee {at}/out &\n\
             while [ $(wc -c <{at}/out) -lt 8000 ]; do sleep 0.05; done\n\
             kill -{trouble} $(cat {at}/pid); wait"
        );
        let file = folder.path().join("ssh");
        std::fs::write(
            &file,
            format!("#!/bin/sh\nfor last; do :; done\n{script}\n"),
        )
        .unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let ssh = file.display().to_string();
        let arguments = [
            "ssh:far",
            "local",
            "--for",
            "20s",
            "--silence",
            "5s",
            "--only",
            "cpu",
            "--ssh",
            &ssh,
            "--far-program",
            program,
        ];
        let (status, found) = probe(&arguments);
        let [far, local] = [0, 1].map(|index| &found["hosts"][index]);
        assert_eq!(status, Some(1));
        let said = far["error"].as_str().unwrap();
        assert!(said.contains(expected), "{expected}: {said}");
        assert!(
            !far["samples"].as_array().unwrap().is_empty(),
            "its samples are kept"
        );
        assert!(
            local["error"].is_null() && !local["samples"].as_array().unwrap().is_empty(),
            "{local:#}"
        );
    };
    let [killed, frozen] = [(); 2].map(|()| TempDir::new().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| check(&killed, "KILL", "connection ended"));
        scope.spawn(|| check(&frozen, "STOP", "no message from it within 5s"));
    });
    // The frozen agent ends when it resumes, unless the kernel has already ended it with its orphaned process group.
    let pid = std::fs::read_to_string(frozen.path().join("pid"))
        .unwrap()
        .trim()
        .to_string();
    let _ = Command::new("kill")
        .args(["-CONT", &pid])
        .stderr(Stdio::null())
        .status();
    until("a frozen agent ends when it wakes up", || {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    });
}
