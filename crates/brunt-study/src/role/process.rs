//! The process behind a role: started on its host, its output read, stopped. Its standard error is kept for
//! messages; its standard output answers commands.
//!
//! The rule: neither side ever waits forever for the other: all output is read, and bounded.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use brunt_host::keep_lines;
use rustix::process::Pid;

use super::RoleError;
use super::death::starved_processes;
use crate::host::Launcher;

/// A role that does not listen after this is given up: a large memory LUN takes a moment, and so does a program
/// that comes from a slow disk.
const START_TIME: Duration = Duration::from_secs(60);
/// A longer line of its standard output is no answer.
const ANSWER_BYTES_MAX: usize = 1 << 16;

/// The process that plays a role.
pub(super) struct Process {
    pub child: Child,
    /// Somebody ended it on purpose, and has not started it again.
    pub ended: bool,
    pub frozen: bool,
    /// Reads what it says, until it closes its ends.
    pub readers: Vec<JoinHandle<()>>,
    /// Since when it has closed its standard output: since its death.
    pub silent_since: Arc<OnceLock<Nanos>>,
    /// What the kernel had counted when it started, see [`starved_processes`].
    pub starved_before: u64,
}

/// Where a role takes orders, and what it says on its standard output after its first line. Apart from the
/// process, which has to be thawed while somebody waits for an answer.
pub(super) struct ControlLine {
    pub orders: Option<ChildStdin>,
    pub answers: Receiver<String>,
}

impl Process {
    /// Kills it if it still runs, and waits for all that it said.
    pub fn end(&mut self) {
        self.ended = true;
        self.frozen = false;
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.readers.drain(..).for_each(|reader| drop(reader.join()));
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Starts the process of a role, and waits until it says where it listens.
pub(super) fn launch(
    name: &str,
    arguments: &[String],
    launcher: &dyn Launcher,
    port: u16,
    lines: &Arc<Mutex<VecDeque<String>>>,
) -> Result<(Process, ControlLine, SocketAddr), RoleError> {
    let os = |what, source| RoleError::Os { name: name.to_string(), what, source };
    let program = launcher.program().map_err(|error| os("find this program", error))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .args(["--portal", &SocketAddr::new(launcher.address(), port).to_string()])
        .args(["--parent", &std::process::id().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C is for the experiment, which ends its roles when it has no more use for them.
        .process_group(0);
    launcher.place(&mut command).map_err(|error| os("be placed on its host", error))?;
    let starved_before = starved_processes();
    let mut child = spawn(command).map_err(|error| os("be started", error))?;
    lock(lines).clear();
    let stderr = child.stderr.take().expect("piped");
    let kept = Arc::clone(lines);
    let mut readers = vec![std::thread::spawn(move || keep_lines(BufReader::new(stderr), &kept))];
    let (sender, first) = channel();
    let stdout = child.stdout.take().expect("piped");
    let silent_since = Arc::new(OnceLock::new());
    let silent = Arc::clone(&silent_since);
    readers.push(std::thread::spawn(move || {
        tell_lines(BufReader::new(stdout), &sender);
        let _ = silent.set(Clock::Monotonic.now());
    }));
    let orders = child.stdin.take();
    let process = Process { child, ended: false, frozen: false, readers, silent_since, starved_before };
    let fail = |mut process: Process, what: String| {
        process.end();
        let lines = lock(lines).iter().cloned().collect();
        Err(RoleError::Start { name: name.to_string(), what, lines })
    };
    let line = match first.recv_timeout(START_TIME) {
        Ok(line) => line,
        Err(RecvTimeoutError::Timeout) => {
            return fail(process, format!("it does not listen within {START_TIME:?}"));
        }
        Err(RecvTimeoutError::Disconnected) => {
            return fail(process, "it ended before it listened".to_string());
        }
    };
    match line.trim().parse() {
        Ok(address) => Ok((process, ControlLine { orders, answers: first }, address)),
        Err(_) => fail(process, format!("its first line is not an address: '{}'", line.trim())),
    }
}

/// Sends every whole line, and reads on until the end, so that the role never waits for us.
fn tell_lines(mut stdout: impl BufRead, sender: &Sender<String>) {
    let mut line = Vec::new();
    while let Ok(count) = stdout.by_ref().take(ANSWER_BYTES_MAX as u64).read_until(b'\n', &mut line) {
        if count == 0 {
            return;
        }
        if line.ends_with(b"\n") {
            let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
        }
        line.clear();
    }
}

/// Starts processes from one thread that lives as long as this program: the kernel ends a role (PR_SET_PDEATHSIG)
/// with the *thread* that started it, and a fault's thread is gone after its run.
static SPAWNER: LazyLock<Mutex<Sender<Birth>>> = LazyLock::new(|| {
    let (sender, orders): (_, Receiver<Birth>) = channel();
    let work = move || {
        for (mut command, answer) in orders {
            let _ = answer.send(command.spawn());
        }
    };
    // When there is no thread to be had, the receiver is dropped and every order fails.
    let _ = std::thread::Builder::new().name("roles".into()).spawn(work);
    Mutex::new(sender)
});

type Birth = (Command, Sender<io::Result<Child>>);

fn spawn(command: Command) -> io::Result<Child> {
    let (sender, answer) = channel();
    let failed = || io::Error::other("the thread that starts processes is gone");
    lock(&SPAWNER).send((command, sender)).map_err(|_| failed())?;
    answer.recv().map_err(|_| failed())?
}
