//! Findings as they appear: printed, kept for metrics and the live page, and passed to a hook. They are reported by
//! the watching thread and by the windows' thread; each kind is announced once per window. The rule: nothing here
//! delays a capture; a slow hook misses findings, which are counted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brunt_report::format::date_time;
use brunt_result::capture::Finding;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::cli::{Failure, Output};

/// Maximum number of findings kept for the live page.
const KEPT: usize = 50;
/// Number of windows whose announced kinds are remembered; findings for older windows no longer arrive.
const WINDOWS_KEPT: usize = 4;
/// Maximum number of findings that wait for the hook.
const WAITING: usize = 16;
/// How long a hook may run before it is killed.
const HOOK_TIME: Duration = Duration::from_secs(60);
/// How long waiting findings may take at the end of a capture.
const END_TIME: Duration = Duration::from_secs(10);
/// How often to check whether a hook has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A finding, and when it appeared.
#[derive(Clone, Debug)]
pub struct Found {
    /// Capture time, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Start of the window in which the finding appeared; `None` without windows.
    pub window_ns: Option<u64>,
    /// The finding.
    pub finding: Finding,
}

impl Found {
    /// The time as text.
    pub fn time(&self) -> String {
        date_time((self.time_ns / 1_000_000_000) as i64)
    }

    /// The finding as a JSON object.
    pub fn json(&self) -> Value {
        json!({
            "time": self.time(),
            "time_ns": self.time_ns,
            "window_ns": self.window_ns,
            "kind": self.finding.kind,
            "text": self.finding.text,
            "advice": self.finding.advice,
        })
    }
}

/// The findings so far.
#[derive(Clone, Debug, Default)]
pub struct FoundSoFar {
    /// The latest findings, oldest first.
    pub latest: VecDeque<Found>,
    /// For each kind: the number of announcements, and the time of the last one, in nanoseconds since 1970.
    pub kinds: BTreeMap<String, (u64, u64)>,
    /// Counts of hook runs; `None` without a hook.
    pub hook: Option<HookCounts>,
}

/// What happened to the findings passed to the hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookCounts {
    /// Number of commands that were run.
    pub runs: u64,
    /// Number of commands that failed, or were killed after a minute.
    pub failed: u64,
    /// Number of findings for which no command was run, because earlier commands had not ended.
    pub skipped: u64,
}

/// Announces findings; clones share their state.
#[derive(Clone)]
pub struct FindingBoard(Arc<Board>);

struct Board {
    state: Mutex<BoardState>,
    output: Output,
    /// Set while the live view shows the findings, because printed lines would garble its screen.
    is_quiet: AtomicBool,
    hook: Option<Hook>,
}

#[derive(Default)]
struct BoardState {
    found: FoundSoFar,
    /// The kinds announced in each of the latest windows, in the order in which the windows appeared: timestamps may
    /// go back when a clock is set back.
    announced: VecDeque<(Option<u64>, BTreeSet<String>)>,
}

impl BoardState {
    /// The findings whose kinds have not been announced for this window.
    fn new_ones(&mut self, window_ns: Option<u64>, findings: &[Finding]) -> Vec<Finding> {
        let known = self.announced.iter().position(|(of, _)| *of == window_ns);
        let place = known.unwrap_or_else(|| {
            if self.announced.len() == WINDOWS_KEPT {
                self.announced.pop_front();
            }
            self.announced.push_back((window_ns, BTreeSet::new()));
            self.announced.len() - 1
        });
        let kinds = &mut self.announced[place].1;
        let is_new = |finding: &&Finding| kinds.insert(finding.kind.to_string());
        findings.iter().filter(is_new).cloned().collect()
    }
}

impl FindingBoard {
    /// Creates a board that prints to `output` and runs a shell command for each finding.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn new(hook: Option<&str>, output: &Output) -> Result<FindingBoard, Failure> {
        let hook = hook.map(Hook::start).transpose();
        let hook =
            hook.map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
        Ok(FindingBoard(Arc::new(Board {
            state: Mutex::default(),
            output: output.clone(),
            is_quiet: AtomicBool::new(false),
            hook,
        })))
    }

    fn state(&self) -> MutexGuard<'_, BoardState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops printing while the live view has the screen.
    pub fn set_quiet(&self, is_quiet: bool) {
        self.0.is_quiet.store(is_quiet, Ordering::Relaxed);
    }

    /// Prints a line, unless the live view has the screen.
    pub fn note(&self, text: impl std::fmt::Display) {
        if !self.0.is_quiet.load(Ordering::Relaxed) {
            self.0.output.note(text);
        }
    }

    /// Announces the findings whose kinds have not been announced for this window.
    pub fn add(&self, window_ns: Option<u64>, time_ns: u64, findings: &[Finding]) {
        let mut state = self.state();
        for finding in state.new_ones(window_ns, findings) {
            let found = Found {
                time_ns,
                window_ns,
                finding,
            };
            let kind = found.finding.kind.to_string();
            let of_kind = state.found.kinds.entry(kind).or_default();
            *of_kind = (of_kind.0 + 1, time_ns);
            self.note(format_args!(
                "finding at {}: {} ({})",
                found.time(),
                found.finding.text,
                found.finding.kind
            ));
            if let Some(hook) = &self.0.hook {
                hook.offer(&found);
            }
            state.found.latest.push_back(found);
            if state.found.latest.len() > KEPT {
                state.found.latest.pop_front();
            }
        }
    }

    /// Whether findings are passed to a command.
    pub fn has_hook(&self) -> bool {
        self.0.hook.is_some()
    }

    /// The findings so far.
    pub fn so_far(&self) -> FoundSoFar {
        FoundSoFar {
            hook: self.0.hook.as_ref().map(Hook::counts),
            ..self.state().found.clone()
        }
    }

    /// Waits up to [`END_TIME`] until the hook has run for all waiting findings. Returns the hook's counts.
    pub fn finish(&self) -> Option<HookCounts> {
        let hook = self.0.hook.as_ref()?;
        hook.finish();
        Some(hook.counts())
    }
}

/// Runs a command for each finding, one at a time, on a separate thread.
struct Hook {
    to: Mutex<Option<SyncSender<String>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    shared: Arc<HookShared>,
}

#[derive(Default)]
struct HookShared {
    runs: AtomicU64,
    failed: AtomicU64,
    skipped: AtomicU64,
    /// When the capture has ended, the thread ends after [`END_TIME`].
    ended: Mutex<Option<Instant>>,
}

impl HookShared {
    fn is_late(&self) -> bool {
        let ended = *self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.is_some_and(|ended| ended.elapsed() >= END_TIME)
    }
}

impl Hook {
    fn start(command: &str) -> std::io::Result<Hook> {
        let (to, from) = sync_channel(WAITING);
        let shared = Arc::new(HookShared::default());
        let (mine, command) = (Arc::clone(&shared), command.to_string());
        let thread = std::thread::Builder::new()
            .name("finding hook".into())
            .spawn(move || run_hooks(&command, &from, &mine))?;
        Ok(Hook {
            to: Mutex::new(Some(to)),
            thread: Mutex::new(Some(thread)),
            shared,
        })
    }

    fn offer(&self, found: &Found) {
        let to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!("{}\n", found.json());
        if to.as_ref().is_none_or(|to| to.try_send(text).is_err()) {
            self.shared.skipped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> HookCounts {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        HookCounts {
            runs: count(&self.shared.runs),
            failed: count(&self.shared.failed),
            skipped: count(&self.shared.skipped),
        }
    }

    fn finish(&self) {
        let mut ended = (self.shared.ended.lock()).unwrap_or_else(PoisonError::into_inner);
        *ended = Some(Instant::now());
        drop(ended);
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn run_hooks(command: &str, from: &Receiver<String>, shared: &HookShared) {
    while let Ok(text) = from.recv() {
        if shared.is_late() {
            shared.skipped.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        shared.runs.fetch_add(1, Ordering::Relaxed);
        if !run_hook(command, text, shared) {
            shared.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs the command once; `false` if it fails or takes too long.
fn run_hook(command: &str, text: String, shared: &HookShared) -> bool {
    // Run the command in a separate process group, which is killed as a whole, so that Ctrl-C ends only the capture.
    let child = Command::new("sh")
        .process_group(0)
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return false };
    // A finding fits into the pipe's buffer (64 KiB), so this never waits, even if the command doesn't read its
    // input.
    if let Some(mut to) = child.stdin.take() {
        let _ = to.write_all(text.as_bytes());
    }
    is_successful(&mut child, shared)
}

fn is_successful(child: &mut Child, shared: &HookShared) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < HOOK_TIME && !shared.is_late() {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(POLL_INTERVAL),
            Err(_) => break,
        }
    }
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each kind is announced once per window, even in an earlier window after the clock was set back.
    #[test]
    fn each_kind_is_announced_once_per_window() {
        let mut state = BoardState::default();
        let finding = Finding {
            kind: "slow".into(),
            text: String::new(),
            advice: "".into(),
        };
        let mut count = |window| {
            let new = state.new_ones(Some(window), std::slice::from_ref(&finding));
            new.len()
        };
        for window in [10, 11, 12, 13, 14, 3, 4] {
            assert_eq!([count(window), count(window)], [1, 0], "window {window}");
        }
    }
}
