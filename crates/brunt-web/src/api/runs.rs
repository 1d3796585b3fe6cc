//! Starts and stops the current run, which is a separate `brunt run` process of this program. The server is not
//! affected by the run's crashes or by a lab's namespaces, and the run ends as if it had been started in a terminal.
//!
//! The process has one socket to the server (`live::relay`). The socket carries frames; closing it means "stop".
//!
//! The rule: one run at a time, and none without a server. The socket is the process's lease: when the server is gone
//! for any reason, the run ends and writes its report. The state is locked only briefly, never while waiting for a
//! folder or a process: a run can be stopped even if something else hangs.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use brunt_study::experiment::toml_without_secrets;
use rustix::process::{Pid, Signal, kill_process};

use super::results::{EXPERIMENT_FILE, ResultsFolder};
use super::{CheckedExperiment, ExperimentActions};
use crate::live::relay::receive;
use crate::live::viewers::Viewers;
use crate::live::{LiveEnd, LiveFrame, LivePlan};

/// File with the output of a process without a terminal, in its results folder; `--detach` uses the same file.
pub const OUTPUT_FILE: &str = "output.txt";
/// Name of the file with the process's progress messages.
pub const PROGRESS_FILE: &str = "progress.txt";
/// Maximum number of bytes of a failed run's last messages that the page receives.
const SAID_BYTES_MAX: usize = 4096;

/// Starts runs, one at a time.
pub struct ServedRuns {
    viewers: Arc<Viewers>,
    workshop: Arc<dyn ExperimentActions>,
    state: Mutex<StartState>,
    /// Signalled when a run has begun or ended.
    changed: Condvar,
}

/// Whether a run is starting or running.
#[derive(Default)]
enum StartState {
    #[default]
    Idle,
    /// A run with this name is being set up.
    Starting(String),
    Running(ServedRun),
}

/// The exclusive right to start a run, until the run begins or this is dropped.
struct StartTurn<'a> {
    runs: &'a ServedRuns,
    begun: bool,
}

impl StartTurn<'_> {
    fn begins(mut self, run: ServedRun) {
        self.begun = true;
        self.runs.turn_to(StartState::Running(run));
    }
}

impl Drop for StartTurn<'_> {
    fn drop(&mut self) {
        if !self.begun {
            self.runs.turn_to(StartState::Idle);
        }
    }
}

/// The current run.
struct ServedRun {
    id: String,
    socket: UnixStream,
    process: Arc<Mutex<Child>>,
    /// A stop was requested.
    stopping: bool,
}

/// Why a run was not started.
#[derive(Debug, thiserror::Error)]
pub enum ServedStartError {
    /// A run is already in progress.
    #[error("run '{0}' is in progress")]
    Busy(String),
    /// The operating system reported an error.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// A file that is deleted on drop: an experiment as received, with its secrets, until its process has read it.
struct PassingFile(PathBuf);

impl Drop for PassingFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ServedRuns {
    /// Starts without a run; frames will go to these viewers.
    pub fn new(viewers: Arc<Viewers>, workshop: Arc<dyn ExperimentActions>) -> ServedRuns {
        ServedRuns {
            viewers,
            workshop,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The id of the current run.
    pub fn running(&self) -> Option<String> {
        match &*lock(&self.state) {
            StartState::Running(run) => Some(run.id.clone()),
            StartState::Idle | StartState::Starting(_) => None,
        }
    }

    /// Starts an experiment whose results go to a new folder; returns its id.
    ///
    /// # Errors
    /// See [`ServedStartError`].
    pub fn start(
        self: &Arc<Self>,
        results: &ResultsFolder,
        experiment: &CheckedExperiment,
        name: Option<&str>,
    ) -> Result<String, ServedStartError> {
        let system = |what| move |source| ServedStartError::System { what, source };
        let name = name.unwrap_or(&experiment.experiment.name);
        let turn = self.take_turn(name)?;
        let (id, folder) = results
            .begin(name)
            .map_err(system("create a folder for the results"))?;
        let started = self.spawn(results.path(), &id, &folder, experiment);
        let (file, socket, child) = started.inspect_err(|_| {
            // The folder contains only files created here.
            let _ = std::fs::remove_dir_all(&folder);
        })?;
        let plan = LivePlan::of(
            &experiment.experiment,
            &experiment.plan,
            env!("CARGO_PKG_VERSION"),
            &folder,
        );
        let process = Arc::new(Mutex::new(child));
        let heard = socket.try_clone().map_err(system("share a socket"));
        let (runs, watched) = (Arc::clone(self), Arc::clone(&process));
        // Set this before watching starts, because the process may end at once.
        let run = ServedRun {
            id: id.clone(),
            socket,
            process: Arc::clone(&process),
            stopping: false,
        };
        turn.begins(run);
        let watch = heard.and_then(|heard| {
            let watch = move || runs.watch(&heard, &watched, file, plan, &folder);
            std::thread::Builder::new()
                .name("served run".into())
                .spawn(watch)
                .map_err(system("start a thread"))
        });
        if let Err(error) = watch {
            // Without this thread, the process's frames would be lost.
            let _ = lock(&process).kill();
            let _ = lock(&process).wait();
            self.turn_to(StartState::Idle);
            return Err(error);
        }
        Ok(id)
    }

    /// Takes the right to start a run with this name.
    fn take_turn(&self, name: &str) -> Result<StartTurn<'_>, ServedStartError> {
        let mut state = lock(&self.state);
        match &*state {
            StartState::Idle => {}
            StartState::Starting(name) => return Err(ServedStartError::Busy(name.clone())),
            StartState::Running(run) => return Err(ServedStartError::Busy(run.id.clone())),
        }
        *state = StartState::Starting(name.to_string());
        Ok(StartTurn {
            runs: self,
            begun: false,
        })
    }

    fn turn_to(&self, next: StartState) {
        *lock(&self.state) = next;
        self.changed.notify_all();
    }

    fn spawn(
        &self,
        results: &Path,
        id: &str,
        folder: &Path,
        experiment: &CheckedExperiment,
    ) -> Result<(PassingFile, UnixStream, Child), ServedStartError> {
        let system = |what| move |source| ServedStartError::System { what, source };
        let kept = toml_without_secrets(&experiment.text);
        std::fs::write(folder.join(EXPERIMENT_FILE), kept)
            .map_err(system("keep the experiment"))?;
        let file = PassingFile(results.join(format!(".{id}.toml")));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options
            .open(&file.0)
            .and_then(|mut to| to.write_all(experiment.text.as_bytes()));
        written.map_err(system("pass on the experiment"))?;
        let (ours, theirs) = UnixStream::pair().map_err(system("make a socket"))?;
        let open = |name: &str| File::create(folder.join(name)).map_err(system("create a file"));
        let mut command = self
            .workshop
            .command(&file.0, folder)
            .map_err(system("find this program"))?;
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        command
            .stdout(open(OUTPUT_FILE)?)
            .stderr(open(PROGRESS_FILE)?);
        // Ctrl-C in the server's terminal reaches only the server, which passes it on once.
        command.process_group(0);
        let child = command
            .spawn()
            .map_err(system("start this program again"))?;
        Ok((file, ours, child))
    }

    /// Forwards frames until the process has ended.
    fn watch(
        &self,
        socket: &UnixStream,
        process: &Mutex<Child>,
        file: PassingFile,
        plan: LivePlan,
        folder: &Path,
    ) {
        let began = Instant::now();
        let (mut has_plan, mut end, mut file) = (false, None, Some(file));
        let take = |frame| match frame {
            LiveFrame::Ends(ends) => end = Some(ends),
            // These frames introduce the process's own history; the server sends its viewers its own.
            LiveFrame::Past(_) | LiveFrame::Now => {}
            frame => {
                if matches!(frame, LiveFrame::Plan(_)) {
                    has_plan = true;
                    // The process has read the file; remove it, because it contains secrets.
                    file = None;
                }
                self.viewers.publish(&frame);
            }
        };
        let broken = receive(socket, take, || {
            lock(process)
                .try_wait()
                .is_ok_and(|status| status.is_some())
        });
        let status = wait(process);
        drop(file);
        if !has_plan {
            self.viewers.publish(&LiveFrame::Plan(plan));
        }
        let mut end = end.unwrap_or_else(|| {
            let ended = ended_how(status.as_ref());
            // The run failed before its page began: show the messages that a terminal would have shown.
            let said = if has_plan {
                String::new()
            } else {
                last_lines(&folder.join(PROGRESS_FILE))
            };
            let at_s = began.elapsed().as_secs_f64();
            for text in said.lines() {
                self.viewers.publish(&LiveFrame::Note {
                    at_s,
                    text: text.to_string(),
                });
            }
            let trouble = if said.trim().is_empty() {
                ended
            } else {
                said.trim().to_string()
            };
            LiveEnd {
                trouble: Some(trouble),
                folder: folder.display().to_string(),
                ..LiveEnd::default()
            }
        });
        let losses = self.viewers.losses(end.events_missed);
        end.viewers = losses.viewers;
        end.frames_lost += losses.frames + broken;
        self.viewers.publish(&LiveFrame::Ends(end));
        self.turn_to(StartState::Idle);
    }

    /// Asks the run with this id to stop, like Ctrl-C; a second request ends it at once. Returns whether there is
    /// such a run.
    pub fn stop(&self, id: &str) -> bool {
        match &mut *lock(&self.state) {
            StartState::Running(run) if run.id == id => run.stop(),
            _ => return false,
        }
        true
    }

    /// Stops the current run and waits for its end.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        loop {
            match &mut *state {
                StartState::Idle => return,
                StartState::Starting(_) => {}
                StartState::Running(run) if run.stopping => {}
                StartState::Running(run) => run.stop(),
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl ServedRun {
    fn stop(&mut self) {
        let first = !std::mem::replace(&mut self.stopping, true);
        if first {
            let _ = self.socket.shutdown(Shutdown::Write);
            return;
        }
        let mut process = lock(&self.process);
        // Nothing else reaps the process, so its pid has not been reused.
        if let Ok(None) = process.try_wait()
            && let Some(pid) = i32::try_from(process.id()).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// Waits for a process that has closed its socket or ended.
fn wait(process: &Mutex<Child>) -> Option<ExitStatus> {
    loop {
        // Hold the lock only briefly each time, because a second stop needs it.
        match lock(process).try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) => std::thread::sleep(std::time::Duration::from_millis(20)),
            Err(_) => return None,
        }
    }
}

fn ended_how(status: Option<&ExitStatus>) -> String {
    match status {
        Some(status) => {
            format!(
                "the run's process ended before its results were complete ({status}); see {PROGRESS_FILE} in its folder"
            )
        }
        None => "its process ended unexpectedly".into(),
    }
}

/// The end of a run's messages.
fn last_lines(file: &Path) -> String {
    let bytes = std::fs::read(file).unwrap_or_default();
    let from = bytes.len().saturating_sub(SAID_BYTES_MAX);
    String::from_utf8_lossy(&bytes[from..]).into_owned()
}
