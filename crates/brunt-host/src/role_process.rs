//! The process of a role (a target, a sink, or the keeper of a service): starts it, reads its output, sends it
//! commands, and ends it. The experiment has one such process for each role that it starts itself, and an agent has
//! one for each role that it starts for a controller.
//!
//! The rule: neither side ever waits forever for the other: all output is read, and what is kept of it is bounded.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brunt_core::{Clock, Nanos};
use brunt_lab::faults::kill_below;
use brunt_lab::service::ServiceProgram;
use rustix::process::{Pid, Signal, kill_process};

use crate::lines::keep_lines;

/// A role that doesn't listen within this time has failed. The limit is generous: allocating a large memory LUN takes a
/// moment, and so does loading a program from a slow disk.
pub(crate) const START_TIME: Duration = Duration::from_secs(60);
/// How long a role may take to end after being asked to; after that, it is killed.
pub(crate) const END_TIME: Duration = Duration::from_secs(5);
/// Polling interval while waiting for the end.
const END_POLL: Duration = Duration::from_millis(5);
/// Interval between checks for cancellation while waiting for the first line.
pub(crate) const START_POLL: Duration = Duration::from_millis(20);
/// Extra time for a keeper, which becomes ready and ends at most this long after its service.
const KEEPER_TIME: Duration = Duration::from_secs(30);
/// Maximum length of a line on the role's standard output that can be an answer.
const ANSWER_BYTES_MAX: usize = 1 << 16;

/// How a process plays a role.
#[derive(Clone, Copy, Debug)]
pub struct RoleManner {
    /// Whether the process is only a keeper of other processes, which play the role ([`brunt_lab::service`]).
    pub keeps: bool,
    /// If the process doesn't listen within this time, it has failed.
    pub start_time: Duration,
    /// How long the process may take to end after being asked to; after that, it is killed.
    pub end_time: Duration,
}

impl Default for RoleManner {
    /// A process that plays the role itself.
    fn default() -> RoleManner {
        RoleManner {
            keeps: false,
            start_time: START_TIME,
            end_time: END_TIME,
        }
    }
}

impl RoleManner {
    /// A keeper process of this program.
    pub fn of_service(program: &ServiceProgram) -> RoleManner {
        RoleManner {
            keeps: true,
            start_time: program.ready.within.saturating_add(KEEPER_TIME),
            end_time: program.stop_within.saturating_add(KEEPER_TIME),
        }
    }
}

/// Creates the command for a role that listens on this port (0 picks a free one), on any host.
pub type MakeRole = Box<dyn Fn(u16) -> io::Result<Command> + Send + Sync>;

/// Why a role's process failed.
#[derive(Debug, thiserror::Error)]
pub enum RoleFailure {
    /// The process could not be started or signalled.
    #[error("cannot {what}: {source}")]
    Os {
        /// The operation, such as "be started".
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The process ended before it listened, or didn't listen in time.
    #[error("{what}{}", last_lines(.lines))]
    Start {
        /// What happened instead.
        what: String,
        /// The last lines of the role's standard error.
        lines: Vec<String>,
    },
}

/// The last lines of a role's output, to append to the description of how it ended.
pub fn last_lines(lines: &[String]) -> String {
    if lines.is_empty() {
        ", without output".to_string()
    } else {
        format!(": {}", lines.join("; "))
    }
}

/// How a role ended on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleDeath {
    /// The status from wait(2).
    pub status: ExitStatus,
    /// When the role's output ended.
    pub at: Option<Nanos>,
    /// Bytes of memory available now, if the kernel killed processes for lack of memory while the role was running.
    pub starved: Option<u64>,
}

/// A process that plays a role. Dropping this ends the process.
pub struct RoleProcess {
    make: MakeRole,
    manner: RoleManner,
    /// Set when the role is canceled; it is then neither started nor restarted.
    unwanted: Arc<AtomicBool>,
    address: SocketAddr,
    process: Mutex<Process>,
    control: Mutex<ControlLine>,
    lines: Arc<Mutex<VecDeque<String>>>,
}

/// The current process.
struct Process {
    child: Child,
    /// See [`RoleManner::keeps`].
    keeps: bool,
    /// Whether the process was ended on purpose and not restarted.
    ended: bool,
    frozen: bool,
    /// Threads that read the process's output until it closes its ends of the pipes.
    readers: Vec<JoinHandle<()>>,
    /// When the process closed its standard output, which means that it died.
    silent_since: Arc<OnceLock<Nanos>>,
    /// The kernel's count of killed processes at the start; see [`starved_processes`].
    starved_before: u64,
}

/// A role's standard input, and its standard output after the first line. Separate from the process, which may have to
/// be thawed while a caller waits for an answer.
struct ControlLine {
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl RoleProcess {
    /// Starts the role on a free port, and waits for its first line, which states the address.
    ///
    /// # Errors
    /// The role doesn't start; the error includes its output.
    pub fn start(make: MakeRole) -> Result<RoleProcess, RoleFailure> {
        RoleProcess::start_in(make, RoleManner::default(), Arc::default())
    }

    /// Like [`RoleProcess::start`], for a role with its own time limits, or a keeper. Setting `unwanted` cancels the
    /// wait, both now and during a restart (but see [`RoleProcess::set_wanted`]).
    ///
    /// # Errors
    /// The role doesn't start; the error includes its output.
    pub fn start_in(
        make: MakeRole,
        manner: RoleManner,
        unwanted: Arc<AtomicBool>,
    ) -> Result<RoleProcess, RoleFailure> {
        let lines = Arc::default();
        let (process, control, address) = launch(&make, manner, 0, &lines, &unwanted)?;
        let (process, control) = (Mutex::new(process), Mutex::new(control));
        Ok(RoleProcess {
            make,
            manner,
            unwanted,
            address,
            process,
            control,
            lines,
        })
    }

    /// From now on, a restart waits for the role, regardless of the flag passed at its start.
    pub fn set_wanted(&mut self) {
        self.unwanted = Arc::default();
    }

    /// The role's address, which doesn't change when it restarts.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The role's PID, which changes when it restarts.
    pub fn pid(&self) -> u32 {
        self.process().child.id()
    }

    /// The last lines of the role's standard error, oldest first.
    pub fn log(&self) -> Vec<String> {
        lock(&self.lines).iter().cloned().collect()
    }

    /// How the role died, if it ended on its own.
    ///
    /// # Errors
    /// The kernel cannot report the role's status.
    pub fn death(&self) -> io::Result<Option<RoleDeath>> {
        let mut process = self.process();
        if process.ended {
            return Ok(None);
        }
        let Some(status) = process.child.try_wait()? else {
            return Ok(None);
        };
        process
            .readers
            .drain(..)
            .for_each(|reader| drop(reader.join()));
        let starved = (starved_processes() > process.starved_before)
            .then(brunt_lab::available_memory)
            .flatten();
        Ok(Some(RoleDeath {
            status,
            at: process.silent_since.get().copied(),
            starved,
        }))
    }

    /// Suspends or resumes the role.
    ///
    /// # Errors
    /// The process is gone.
    pub fn freeze(&self, frozen: bool) -> io::Result<()> {
        let mut process = self.process();
        let gone = || io::Error::new(io::ErrorKind::NotFound, "it was stopped");
        let pid = pid_of(&process.child)
            .filter(|_| !process.ended)
            .ok_or_else(gone)?;
        kill_process(pid, if frozen { Signal::STOP } else { Signal::CONT })?;
        process.frozen = frozen;
        Ok(())
    }

    /// Whether the role is frozen.
    pub fn is_frozen(&self) -> bool {
        self.process().frozen
    }

    /// Kills the role, as a power failure would. It is not an error if the role is already gone.
    pub fn kill(&self) {
        self.process().end();
    }

    /// Restarts the role at its previous address.
    ///
    /// # Errors
    /// The role doesn't start; the error includes its output.
    pub fn restart(&self) -> Result<(), RoleFailure> {
        let mut process = self.process();
        process.end();
        let (next, control, _) = launch(
            &self.make,
            self.manner,
            self.address.port(),
            &self.lines,
            &self.unwanted,
        )?;
        *process = next;
        *lock(&self.control) = control;
        Ok(())
    }

    /// Asks the role to end, and waits; kills it when the time limit expires.
    pub fn stop(&self) {
        let mut process = self.process();
        if !process.ended && matches!(process.child.try_wait(), Ok(None)) {
            if let Some(pid) = pid_of(&process.child) {
                let _ = kill_process(pid, Signal::TERM);
                // A frozen process handles no signals except SIGCONT and SIGKILL.
                let _ = kill_process(pid, Signal::CONT);
            }
            let begin = Instant::now();
            while begin.elapsed() < self.manner.end_time
                && matches!(process.child.try_wait(), Ok(None))
            {
                std::thread::sleep(END_POLL);
            }
        }
        process.end();
    }

    /// Locks the role's input and answers. Other users, including a restart, wait until the guard is dropped.
    pub fn line(&self) -> RoleLine<'_> {
        RoleLine(lock(&self.control))
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        lock(&self.process)
    }
}

impl Drop for RoleProcess {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sends commands to a role, and reads its answers.
pub struct RoleLine<'a>(MutexGuard<'a, ControlLine>);

impl RoleLine<'_> {
    /// Sends the role a line. Discards earlier answers that have not been read.
    ///
    /// # Errors
    /// The process is gone, or accepts no commands.
    pub fn say(&mut self, line: &[u8]) -> io::Result<()> {
        // Discards late answers to earlier commands.
        while self.0.answers.try_recv().is_ok() {}
        let orders = self
            .0
            .orders
            .as_mut()
            .ok_or_else(|| io::Error::other("it does not accept commands"))?;
        orders.write_all(line)
    }

    /// Waits for the next line that the role prints.
    ///
    /// # Errors
    /// No line arrives in this time, or none will follow.
    pub fn next_line(&mut self, at_most: Duration) -> Result<String, RecvTimeoutError> {
        self.0.answers.recv_timeout(at_most)
    }
}

impl Process {
    /// Kills the process if it is still running, and waits for all of its output.
    fn end(&mut self) {
        self.ended = true;
        self.frozen = false;
        // Until the process has been waited for, its PID cannot be reused.
        if self.keeps && matches!(self.child.try_wait(), Ok(None)) {
            kill_below(self.child.id());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.readers
            .drain(..)
            .for_each(|reader| drop(reader.join()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Starts a role's process, and waits until it reports its address.
fn launch(
    make: &MakeRole,
    manner: RoleManner,
    port: u16,
    lines: &Arc<Mutex<VecDeque<String>>>,
    unwanted: &AtomicBool,
) -> Result<(Process, ControlLine, SocketAddr), RoleFailure> {
    let mut command = make(port).map_err(|source| RoleFailure::Os {
        what: "be placed on its host",
        source,
    })?;
    command
        .args(["--parent", &std::process::id().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C must only reach the experiment, which ends its roles when it no longer needs them.
        .process_group(0);
    let starved_before = starved_processes();
    let mut child = spawn(command).map_err(|source| RoleFailure::Os {
        what: "be started",
        source,
    })?;
    lock(lines).clear();
    let orders = child.stdin.take();
    let silent_since = Arc::new(OnceLock::new());
    let (readers, answers) = read_output(&mut child, lines, &silent_since);
    let RoleManner {
        keeps, start_time, ..
    } = manner;
    let (ended, frozen) = (false, false);
    let mut process = Process {
        child,
        keeps,
        ended,
        frozen,
        readers,
        silent_since,
        starved_before,
    };
    match first_address(&answers, start_time, keeps, unwanted) {
        Ok(address) => Ok((process, ControlLine { orders, answers }, address)),
        Err(what) => {
            process.end();
            let lines = lock(lines).iter().cloned().collect();
            Err(RoleFailure::Start {
                what: what.to_string(),
                lines,
            })
        }
    }
}

/// Starts threads that read the process's output: its standard error into `lines`, and the lines of its standard
/// output into the channel that is returned. `silent_since` is set when standard output ends.
fn read_output(
    child: &mut Child,
    lines: &Arc<Mutex<VecDeque<String>>>,
    silent_since: &Arc<OnceLock<Nanos>>,
) -> (Vec<JoinHandle<()>>, Receiver<String>) {
    let stderr = child.stderr.take().expect("piped");
    let kept = Arc::clone(lines);
    let errors = std::thread::spawn(move || keep_lines(BufReader::new(stderr), &kept));
    let (sender, answers) = channel();
    let stdout = child.stdout.take().expect("piped");
    let silent = Arc::clone(silent_since);
    let output = std::thread::spawn(move || {
        send_lines(BufReader::new(stdout), &sender);
        let _ = silent.set(Clock::Monotonic.now());
    });
    (vec![errors, output], answers)
}

/// Why the first line of a role's output is not its address.
#[derive(Debug, thiserror::Error)]
enum NotListening {
    #[error("it was canceled before it was listening")]
    Canceled,
    #[error("it was not listening within {0:?}")]
    Late(Duration),
    #[error("it did not start")]
    KeeperEnded,
    #[error("it ended before it was listening")]
    Ended,
    #[error("its first line of output is not an address: '{0}'")]
    NoAddress(String),
}

/// The address in the first line of a role's output; `keeps` is [`RoleManner::keeps`].
fn first_address(
    lines: &Receiver<String>,
    start_time: Duration,
    keeps: bool,
    unwanted: &AtomicBool,
) -> Result<SocketAddr, NotListening> {
    let line = first_line(lines, start_time, unwanted).map_err(|error| match error {
        RecvTimeoutError::Timeout if unwanted.load(Ordering::Relaxed) => NotListening::Canceled,
        RecvTimeoutError::Timeout => NotListening::Late(start_time),
        RecvTimeoutError::Disconnected if keeps => NotListening::KeeperEnded,
        RecvTimeoutError::Disconnected => NotListening::Ended,
    })?;
    let line = line.trim();
    line.parse()
        .map_err(|_| NotListening::NoAddress(line.to_string()))
}

/// The first line, if it arrives within this time and the wait isn't canceled.
fn first_line(
    lines: &Receiver<String>,
    at_most: Duration,
    unwanted: &AtomicBool,
) -> Result<String, RecvTimeoutError> {
    let begin = Instant::now();
    loop {
        match lines.recv_timeout(START_POLL) {
            Err(RecvTimeoutError::Timeout)
                if begin.elapsed() < at_most && !unwanted.load(Ordering::Relaxed) => {}
            heard => return heard,
        }
    }
}

/// Sends every complete line, and keeps reading until the end, so that the role never blocks on us.
fn send_lines(mut stdout: impl BufRead, sender: &Sender<String>) {
    let mut line = Vec::new();
    while let Ok(count) = stdout
        .by_ref()
        .take(ANSWER_BYTES_MAX as u64)
        .read_until(b'\n', &mut line)
    {
        if count == 0 {
            return;
        }
        if line.ends_with(b"\n") {
            let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
        }
        line.clear();
    }
}

/// How many processes the kernel has killed for lack of memory since boot.
fn starved_processes() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

/// Starts processes from a thread that lives as long as this program: the kernel kills a role (PR_SET_PDEATHSIG) when
/// the *thread* that started it ends, and the threads of faults and connections end earlier.
static SPAWNER: LazyLock<Mutex<Sender<Birth>>> = LazyLock::new(|| {
    let (sender, orders): (_, Receiver<Birth>) = channel();
    let work = move || {
        for (mut command, answer) in orders {
            let _ = answer.send(command.spawn());
        }
    };
    // If the thread cannot be started, the receiver is dropped and every order fails.
    let _ = std::thread::Builder::new().name("roles".into()).spawn(work);
    Mutex::new(sender)
});

type Birth = (Command, Sender<io::Result<Child>>);

fn spawn(command: Command) -> io::Result<Child> {
    let (sender, answer) = channel();
    let failed = || io::Error::other("the thread that starts processes has ended");
    lock(&SPAWNER)
        .send((command, sender))
        .map_err(|_| failed())?;
    answer.recv().map_err(|_| failed())?
}
