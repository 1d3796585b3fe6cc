//! Code shared by the commands that move parts to and from an object store: `capture --to`, `lake push` and `lake
//! pull`. `brunt-remote` does the work; this module adds addresses, progress on the terminal, and ways to stop.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brunt_capture::trace::TraceParts;
use brunt_core::units::{counted, format_size};
use brunt_remote::background::Deadline;
use brunt_remote::folder::{self, FolderSource};
use brunt_remote::mover::{MoveTurn, Waiting};
use brunt_remote::{
    BackgroundMover, FolderLock, LakeMark, LocalPart, MoveCounts, MoveOptions, Mover, PartSource,
    RemoteAddress, RemoteError, open_store,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{Failure, Output};

/// How long a starting capture waits for the store, so that settings that can't work are rejected. The capture starts
/// even without an answer.
const PROBE: Duration = Duration::from_secs(5);
/// How often to check while waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maps an error to an exit status.
pub fn failure(error: RemoteError) -> Failure {
    match error {
        RemoteError::Address { .. }
        | RemoteError::NotBuilt { .. }
        | RemoteError::Setup { .. }
        | RemoteError::NoCredentials { .. }
        | RemoteError::NoBucket { .. }
        | RemoteError::Taken { .. }
        | RemoteError::Mark { .. }
        | RemoteError::Compacted { .. }
        | RemoteError::Moved { .. }
        | RemoteError::Hidden { .. }
        | RemoteError::Diverged { .. }
        | RemoteError::TooMany { .. }
        | RemoteError::Busy { .. } => Failure::usage(error),
        RemoteError::Interrupted => Failure::failed(error).advise("run it again to continue"),
        error => Failure::failed(error),
    }
}

/// A progress bar for this many bytes; shown only on a terminal.
pub fn progress(bytes: u64, output: &Output) -> ProgressBar {
    let bar = if output.is_json() {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(bytes)
    };
    let style =
        ProgressStyle::with_template("{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec} {msg}");
    bar.set_style(style.expect("a valid template"));
    output.set_above(Some(bar.clone()));
    bar
}

/// Moves all parts of a source. Ends early when `is_over` returns true.
///
/// # Errors
/// A permanent error, or [`RemoteError::Interrupted`] if ended early.
fn move_all(
    mover: &mut Mover,
    source: &mut FolderSource,
    is_over: &dyn Fn(&Mover) -> bool,
    output: &Output,
) -> Result<(), RemoteError> {
    let Waiting { bytes, .. } = source.waiting();
    let bar = progress(bytes, output);
    let result = loop {
        let turn = mover.turn(source);
        mover
            .take_conflicts()
            .iter()
            .for_each(|conflict| output.note(conflict));
        bar.set_position(bytes - source.waiting().bytes);
        bar.set_message(
            mover
                .trouble()
                .map(|(error, _)| error.to_string())
                .unwrap_or_default(),
        );
        match turn {
            Ok(MoveTurn::Idle) => break Ok(()),
            Err(error) => break Err(error),
            _ if is_over(mover) => break Err(RemoteError::Interrupted),
            Ok(MoveTurn::Went) => {}
            Ok(MoveTurn::Waits(wait)) => std::thread::sleep(wait.min(POLL_INTERVAL)),
        }
    };
    output.set_above(None);
    bar.finish_and_clear();
    result
}

/// Moves all parts of a source until the user interrupts or the store has been silent for longer than `silence_max`.
/// If it ends early, it returns the reason, and some parts may not have been moved.
///
/// # Errors
/// Permanent errors.
pub fn move_while_answered(
    mover: &mut Mover,
    source: &mut FolderSource,
    silence_max: Duration,
    output: &Output,
) -> Result<Option<String>, Failure> {
    let is_over = |mover: &Mover| {
        output.is_interrupted()
            || mover
                .trouble()
                .is_some_and(|(_, silent)| silent > silence_max)
    };
    match move_all(mover, source, &is_over, output) {
        Ok(()) => Ok(None),
        Err(RemoteError::Interrupted) => Ok(Some(
            mover
                .trouble()
                .map_or("interrupted".into(), |(error, _)| error.to_string()),
        )),
        Err(error) => Err(failure(error)),
    }
}

/// Summarizes what happened to the parts.
pub fn describe(counts: &MoveCounts) -> String {
    let mut told = format!(
        "{} moved, {}",
        counted(counts.parts_moved as usize, "part"),
        format_size(counts.bytes_moved)
    );
    if counts.parts_found > 0 {
        told += &format!(
            "; {} already there, {}",
            counts.parts_found,
            format_size(counts.bytes_found)
        );
    }
    if counts.parts_withdrawn > 0 {
        told += &format!(
            "; {} deleted or changed here before they were moved",
            counts.parts_withdrawn
        );
    }
    if counts.parts_refused > 0 {
        told += &format!(
            "; {} rejected because different content is already there",
            counts.parts_refused
        );
    }
    if counts.retries > 0 {
        told += &format!("; {} failed requests, retried", counts.retries);
    }
    told
}

/// The failure if some parts were not moved, otherwise `None`.
pub fn left_behind(
    counts: &MoveCounts,
    why: Option<String>,
    folder: &Path,
    address: &RemoteAddress,
) -> Option<Failure> {
    let left = counts.parts_waiting + counts.parts_refused + counts.parts_withdrawn;
    if left == 0 {
        return None;
    }
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    let what = format!(
        "{} of {} not moved to {address}: {} waiting{why}, {} rejected, {} deleted or changed",
        counted(left as usize, "part"),
        folder.display(),
        counts.parts_waiting,
        counts.parts_refused,
        counts.parts_withdrawn
    );
    let advice = format!(
        "move them later with `brunt lake push {} {address}`",
        folder.display()
    );
    Some(Failure::failed(what).advise(advice))
}

/// The parts of a folder that no process is writing to; prints a note for each part that can't be moved.
pub fn source(folder: &Path, output: &Output) -> Result<FolderSource, Failure> {
    let (parts, odd) = folder::parts(folder).map_err(failure)?;
    for path in odd {
        output.note(format_args!(
            "{}: skipped: a symbolic link, or a name that cannot be a key",
            path.display()
        ));
    }
    Ok(FolderSource::new(parts))
}

/// Parts of a running capture that are waiting to be moved.
struct CaptureSource {
    folder: PathBuf,
    parts: TraceParts,
}

impl PartSource for CaptureSource {
    fn claim(&mut self) -> Option<LocalPart> {
        loop {
            let part = self.parts.claim()?;
            match LocalPart::new(&self.folder, part.path, part.bytes) {
                Some(part) => return Some(part),
                None => self.parts.pass_over_claimed(),
            }
        }
    }

    fn delete(&mut self, _: &LocalPart) -> std::io::Result<()> {
        self.parts.delete_claimed()
    }

    fn done(&mut self, _: &LocalPart) {
        // Has no effect if the part was deleted.
        self.parts.pass_over_claimed();
    }

    fn waiting(&self) -> Waiting {
        let (parts, bytes) = self.parts.movable();
        Waiting { parts, bytes }
    }
}

/// The destination to which a capture moves its parts, before there are any parts.
pub struct Destination {
    folder: PathBuf,
    mover: Mover,
    deadline: Deadline,
    lock: FolderLock,
}

impl Destination {
    /// Opens the destination for the parts in a capture's `folder`, which is created if needed. The capture starts
    /// even if the store doesn't answer, but not if the store rejects the request.
    pub fn open(folder: &Path, to: &str, output: &Output) -> Result<Destination, Failure> {
        let address: RemoteAddress = to.parse().map_err(failure)?;
        let deadline = Deadline::default();
        let store = open_store(&address, deadline.stop()).map_err(failure)?;
        let io = |error| Failure::usage(format!("{}: {error}", folder.display()));
        std::fs::create_dir_all(folder).map_err(io)?;
        let lock = FolderLock::exclusive(folder).map_err(failure)?;
        let mark = LakeMark::read_or_make(folder).map_err(failure)?;
        let mut mover = Mover::new(address, store, mark, MoveOptions { keeps_local: false });
        deadline.set(Some(Instant::now() + PROBE));
        match mover.claim_place() {
            Ok(()) => {}
            Err(error @ (RemoteError::Unreachable { .. } | RemoteError::Interrupted)) => output
                .note(format_args!(
                    "{} does not answer ({error}); parts stay in {} until it does",
                    mover.address(),
                    folder.display()
                )),
            Err(error) => {
                // Remove the mark again: another attempt may use another destination.
                let _ = std::fs::remove_file(folder.join(folder::MARK_NAME));
                return Err(failure(error).prefixed("--to "));
            }
        }
        deadline.set(None);
        Ok(Destination {
            folder: folder.to_path_buf(),
            mover,
            deadline,
            lock,
        })
    }

    /// Starts moving the parts that the capture closes.
    pub fn start(self, parts: TraceParts, output: &Output) -> Result<Movement, Failure> {
        let Destination {
            folder,
            mover,
            deadline,
            lock,
        } = self;
        folder::note_moved(&folder).map_err(failure)?;
        let address = mover.address().clone();
        let source = CaptureSource {
            folder: folder.clone(),
            parts,
        };
        let tell = output.clone();
        let tell = Arc::new(move |what: &str| tell.note(what));
        let background = BackgroundMover::start(mover, Box::new(source), deadline.clone(), tell)
            .map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
        Ok(Movement {
            folder,
            address,
            background,
            deadline,
            _lock: lock,
        })
    }
}

/// The parts of a capture that are being moved.
pub struct Movement {
    folder: PathBuf,
    address: RemoteAddress,
    background: BackgroundMover,
    deadline: Deadline,
    _lock: FolderLock,
}

impl Movement {
    /// Counts of the parts so far.
    pub fn counts(&self) -> MoveCounts {
        self.background.counts()
    }

    /// Moves the remaining parts once the capture is over and all parts are completed, waiting at most `wait`.
    /// Returns the counts, and a failure if some parts were not moved.
    pub fn finish(self, wait: Duration, output: &Output) -> (MoveCounts, Option<Failure>) {
        let Movement {
            folder,
            address,
            background,
            deadline,
            ..
        } = self;
        let mut mover = background.finish();
        let mut source = match source(&folder, output) {
            Ok(source) => source,
            Err(failure) => return (mover.counts(&FolderSource::new(Vec::new())), Some(failure)),
        };
        // Retry parts that the store has rejected so far.
        mover.begin_again();
        output.note(format_args!(
            "{address}: {}, {}, left to move (takes at most {}; Ctrl-C again stops this and leaves them here)",
            counted(source.waiting().parts as usize, "part"),
            format_size(source.waiting().bytes),
            brunt_core::units::format_duration(wait)
        ));
        let end = Instant::now() + wait;
        let was_interrupted = output.is_interrupted();
        deadline.set(Some(end));
        let is_over =
            |_: &Mover| Instant::now() >= end || (output.is_interrupted() && !was_interrupted);
        let result = move_all(&mut mover, &mut source, &is_over, output);
        let counts = mover.counts(&source);
        output.note(format_args!("{address}: {}", describe(&counts)));
        let why = match result {
            Ok(()) => None,
            Err(RemoteError::Interrupted) => Some(
                mover
                    .trouble()
                    .map_or("the time limit was reached".into(), |(error, _)| {
                        error.to_string()
                    }),
            ),
            Err(error) => Some(error.to_string()),
        };
        (counts, left_behind(&counts, why, &folder, &address))
    }
}
