//! Code shared by the integration tests: a running target, external programs, temporary files. Used by every file in
//! this folder. The rule: nothing that a test starts outlives it, even if the test fails, and no port is fixed.

pub mod agents;
pub mod controlled;
pub mod guest;
pub mod hosts;
pub mod live_events;
pub mod marked;
pub mod pdml;
pub mod pki;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use brunt_core::ProcessStat;

/// Callers give the maximum number of seconds on an otherwise idle machine. A machine that is busy, or first has to
/// read every program from a slow disk, is allowed this many times as long. Only a failing test waits that long.
const BUSY: u64 = 10;

/// The target's name in every test.
pub const TARGET_NAME: &str = "iqn.2026-11.io.brunt:t0";
/// CHAP user and secret (12 bytes: the shortest that RFC 7143, 12.1.3 permits without IPsec).
pub const CHAP: (&str, &str) = ("brunt-user", "brunt-secret1");

/// The path of `program`; `None`, with a message, if its Debian package is missing.
///
/// # Panics
/// The program is missing and `BRUNT_REQUIRE_ALL=1`, because in CI nothing may be skipped.
pub fn need(program: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|file| file.is_file());
    if found.is_none() {
        skip(&format!("the Debian package {package} ({program})"));
    }
    found
}

/// Prints what is missing.
///
/// # Panics
/// `BRUNT_REQUIRE_ALL=1` is set.
pub fn skip(what: &str) {
    assert!(
        std::env::var_os("BRUNT_REQUIRE_ALL").is_none_or(|value| value != "1"),
        "needs {what}"
    );
    println!("skipped: needs {what}");
}

/// Writes a file that contains a secret, readable only by its owner.
pub fn write_secret(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).expect("a file");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("its owner");
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace's root")
}

/// Rounds of a repeated test: few by default, more in CI (`CI=true`), and for a soak test as many as `BRUNT_ROUNDS`
/// says.
pub fn rounds(default: usize, ci: usize) -> usize {
    match std::env::var("BRUNT_ROUNDS") {
        Ok(text) => text.parse().expect("BRUNT_ROUNDS is a number"),
        Err(_) if std::env::var_os("CI").is_some() => ci,
        Err(_) => default,
    }
}

/// Held by tests that compare times or rates: none of them runs at the same time as another, or as a test that holds
/// [`busy`]. Each caller states the reason in a comment.
pub fn alone() -> Share {
    Share::take(BUSY_MAX)
}

/// Held by tests that keep a core busy for long, but don't compare times or rates: at most as many run at a time as a
/// small machine has cores. Each caller states the reason in a comment.
pub fn busy() -> Share {
    Share::take(1)
}

const BUSY_MAX: usize = 2;
static TAKEN: Mutex<usize> = Mutex::new(0);
static RETURNED: Condvar = Condvar::new();

/// A share of the machine; returned on drop.
pub struct Share(usize);

impl Share {
    fn take(share: usize) -> Share {
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = RETURNED
            .wait_while(taken, |taken| *taken + share > BUSY_MAX)
            .unwrap_or_else(PoisonError::into_inner);
        *taken += share;
        Share(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= self.0;
        RETURNED.notify_all();
    }
}

/// A seed to print, with which a run can be repeated (`BRUNT_SEED`).
pub fn seed() -> u64 {
    let seed = std::env::var("BRUNT_SEED")
        .ok()
        .map(|text| text.parse().expect("BRUNT_SEED is a number"));
    let seed = seed.unwrap_or_else(|| {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("after 1970")
            .as_nanos() as u64
    });
    println!("seed {seed} (repeat with BRUNT_SEED={seed})");
    seed
}

/// A command that runs `brunt`.
pub fn brunt() -> Command {
    Command::new(env!("CARGO_BIN_EXE_brunt"))
}

/// The program `brunt-bench`, which also replays captures on interfaces. Cargo builds it together with the tests of
/// the whole workspace; if it is missing, it is built now.
pub fn bench_program() -> &'static Path {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| {
        let path = Path::new(env!("CARGO_BIN_EXE_brunt")).with_file_name("brunt-bench");
        if !path.exists() {
            let release = path
                .parent()
                .is_some_and(|folder| folder.ends_with("release"));
            let built = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "-p", "brunt-bench"])
                .args(release.then_some("--release"))
                .current_dir(root())
                .status();
            assert!(
                built.expect("cargo").success() && path.exists(),
                "cargo build -p brunt-bench"
            );
        }
        path
    });
    &PATH
}

/// A command that runs `brunt-bench`.
pub fn bench() -> Command {
    Command::new(bench_program())
}

/// A running `brunt target`, killed on drop.
pub struct Target {
    child: Child,
    /// Kept open, because a target may stop when its standard output is closed.
    _stdout: BufReader<ChildStdout>,
    /// The portals' addresses in the order of the `--portal` arguments.
    pub portals: Vec<SocketAddr>,
    credentials: bool,
}

impl Target {
    /// Starts `brunt target` with `args` and waits until it listens. Without a `--portal`, the target gets one on a
    /// free port.
    pub fn start<S: AsRef<OsStr>>(args: &[S]) -> Target {
        Target::start_by(brunt(), args)
    }

    /// Like [`Target::start`], with a command that runs the program in a changed environment.
    pub fn start_by<S: AsRef<OsStr>>(mut program: Command, args: &[S]) -> Target {
        let mut args: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
        if !args.contains(&OsStr::new("--portal")) {
            args.extend([OsStr::new("--portal"), OsStr::new("127.0.0.1:0")]);
        }
        let portals_wanted = args.iter().filter(|&&arg| arg == "--portal").count();
        let credentials = args.iter().any(|&arg| arg == "--chap");
        let mut child = program
            .arg("target")
            .args(["--name", TARGET_NAME])
            .args(&args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("brunt starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut portals = Vec::new();
        while portals.len() < portals_wanted {
            let mut line = String::new();
            if stdout.read_line(&mut line).expect("a line") == 0 {
                panic!("the target ended before it listened: {:?}", child.wait());
            }
            portals.extend(
                line.split_whitespace()
                    .filter_map(|word| word.parse::<SocketAddr>().ok()),
            );
        }
        Target {
            child,
            _stdout: stdout,
            portals,
            credentials,
        }
    }

    /// The address of the first portal.
    pub fn address(&self) -> SocketAddr {
        self.portals[0]
    }

    /// The URL of `lun` at portal `portal`, in libiscsi's form.
    pub fn url_at(&self, portal: usize, lun: u16) -> String {
        let user = if self.credentials {
            format!("{}%{}@", CHAP.0, CHAP.1)
        } else {
            String::new()
        };
        format!("iscsi://{user}{}/{TARGET_NAME}/{lun}", self.portals[portal])
    }

    /// The URL of `lun` at the first portal.
    pub fn url(&self, lun: u16) -> String {
        self.url_at(0, lun)
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        tasks.expect("alive").count()
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("alive");
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .expect("VmRSS");
        line.split_whitespace()
            .nth(1)
            .expect("kB")
            .parse::<u64>()
            .expect("a number")
            * 1024
    }

    /// The number of open file descriptors.
    pub fn descriptors_count(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .expect("alive")
            .count()
    }

    /// Whether the target is still running.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_none()
    }

    /// The target's process id, for signals.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL, and waits until the process is gone.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a child of ours");
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that ends with its test, even if the test fails.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `command` to completion, within `seconds` on an idle machine.
///
/// # Panics
/// The command takes longer; the message contains its output so far.
pub fn run_within(command: &mut Command, seconds: u64) -> Output {
    let seconds = seconds * BUSY;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = drain(child.stdout.take().expect("piped"));
    let stderr = drain(child.stderr.take().expect("piped"));
    let end = Instant::now() + Duration::from_secs(seconds);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break Some(status);
        }
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let (stdout, stderr) = (stdout.join().expect("read"), stderr.join().expect("read"));
    let Some(status) = status else {
        panic!(
            "{command:?} took more than {seconds} s\n{}\n{}",
            last_lines(&stdout),
            last_lines(&stderr)
        );
    };
    Output {
        status,
        stdout,
        stderr,
    }
}

/// Like [`run_within`], but the command must succeed; returns its standard output.
pub fn succeed(command: &mut Command, seconds: u64) -> String {
    let output = run_within(command, seconds);
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{command:?}: {}\n{out}\n{err}",
        output.status
    );
    out.into_owned()
}

fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

fn drain(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

/// Waits until `done` returns true, for at most `seconds` on an idle machine: for states that another process
/// reaches.
pub fn eventually(what: &str, seconds: u64, mut done: impl FnMut() -> bool) {
    let seconds = seconds * BUSY;
    let end = Instant::now() + Duration::from_secs(seconds);
    while !done() {
        assert!(Instant::now() < end, "{what}: not within {seconds} s");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a run with short times succeeded. If a busy machine was too late for them, what the run said is printed, and
/// it is worth repeating with longer times.
///
/// # Panics
/// The run failed for another reason.
pub fn was_in_time(succeeded: bool, said: &str) -> bool {
    if !succeeded {
        assert!(came_too_late(said), "{said}");
        println!("{said}");
    }
    succeeded
}

/// Whether these are the messages of a run in which a fault came too late to be proven, or a link's thread didn't
/// respond.
pub fn came_too_late(said: &str) -> bool {
    let known = [
        "the run is invalid",
        "this run is invalid",
        "had no visible effect",
    ];
    known.iter().any(|words| said.contains(words))
}

/// Processor time of a process, in the kernel's ticks of 10 ms.
pub fn processor_ticks(pid: u32) -> u64 {
    ProcessStat::read(pid).expect("alive").ticks()
}

/// The processes with a matching variable in their environment.
pub fn processes_with(is: impl Fn(&[u8]) -> bool) -> Vec<u32> {
    // A process that has ended but was not waited for no longer has an environment.
    let environment = |pid: u32| std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let has = |pid: &u32| environment(*pid).split(|byte| *byte == 0).any(&is);
    processes().filter(has).collect()
}

/// All processes.
pub fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The words of a process's command line; none if it has ended.
pub fn words_of(pid: u32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line)
        .split_terminator('\0')
        .map(str::to_string)
        .collect()
}

/// `brunt --json run` with an experiment's text; its results are in "results" in `folder`.
pub fn experiment(folder: &TempDir, text: &str) -> Command {
    let path = folder.join("x.toml");
    std::fs::write(&path, text).expect("a file");
    let mut command = brunt();
    command
        .args(["--json", "run"])
        .arg(&path)
        .arg("--out")
        .arg(folder.join("results"));
    command
}

/// A folder that is removed on drop.
pub struct TempDir(tempfile::TempDir);

impl TempDir {
    /// Creates a folder, named after `what`.
    pub fn new(what: &str) -> TempDir {
        let within = env!("CARGO_TARGET_TMPDIR");
        TempDir(
            tempfile::Builder::new()
                .prefix(what)
                .tempdir_in(within)
                .expect("a temporary folder"),
        )
    }

    /// A path in the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
