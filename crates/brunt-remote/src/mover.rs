//! Executes the steps that [`crate::plan`] decides: looks up, sends, compares, deletes. Moves one part at a time, on
//! the caller's thread.
//!
//! The rule: a missing answer never ends a move. It is counted, and the part stays where it is until the store has
//! answered.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use brunt_core::Nanos;

use crate::address::RemoteAddress;
use crate::error::RemoteError;
use crate::folder::{LakeMark, LocalPart, MARK_BYTES_MAX, MARK_NAME, Stamp};
use crate::plan::{Ending, MoveStep, NextStep, PartPlan, Patience, StepOutcome};
use crate::store::{Fingerprint, ObjectFacts, ObjectMatch, RemoteStore, Sent};

/// A source of parts.
pub trait PartSource {
    /// The part to move next; the same one until it is done. `None` if there is none at the moment. Code that limits
    /// the folder's size must not delete this part.
    fn claim(&mut self) -> Option<LocalPart>;
    /// Deletes the local file of the claimed part.
    ///
    /// # Errors
    /// The file cannot be deleted.
    fn delete(&mut self, part: &LocalPart) -> io::Result<()>;
    /// Finishes the claimed part, whatever the outcome; it must not be returned again.
    fn done(&mut self, part: &LocalPart);
    /// Parts that are not done.
    fn waiting(&self) -> Waiting;
}

/// Parts that are still to be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Number of parts.
    pub parts: u64,
    /// Their total size.
    pub bytes: u64,
}

/// Outcomes of the parts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MoveCounts {
    /// Parts that were sent and that the store has proven to hold.
    pub parts_moved: u64,
    /// Their bytes.
    pub bytes_moved: u64,
    /// Parts that the store already held, byte for byte.
    pub parts_found: u64,
    /// Their bytes.
    pub bytes_found: u64,
    /// Parts that stay here because the object of the same name has different bytes.
    pub parts_refused: u64,
    /// Parts that were deleted or replaced here before the store had them.
    pub parts_withdrawn: u64,
    /// Requests without a useful answer; each is followed by another attempt at the part.
    pub retries: u64,
    /// Bytes that were read back because the store's tag didn't prove anything about them.
    pub bytes_read_back: u64,
    /// Parts that are still to be moved.
    pub parts_waiting: u64,
    /// Their bytes.
    pub bytes_waiting: u64,
}

/// How parts are moved.
#[derive(Clone, Debug)]
pub struct MoveOptions {
    /// Whether to copy only, without deleting local files.
    pub keeps_local: bool,
}

/// Result of [`Mover::turn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveTurn {
    /// Carried out a step; there is more to do.
    Went,
    /// Nothing was done: the store didn't answer, and the next attempt is due after this time.
    Waits(Duration),
    /// Nothing was done: no parts are waiting.
    Idle,
}

/// The part being moved.
struct Current {
    part: LocalPart,
    plan: PartPlan,
    /// The file as it was when its move began.
    stamp: Stamp,
    print: Option<Fingerprint>,
    facts: Option<ObjectFacts>,
}

/// Moves the parts of a folder to its destination.
pub struct Mover {
    address: RemoteAddress,
    store: Box<dyn RemoteStore>,
    mark: LakeMark,
    options: MoveOptions,
    /// Whether the destination is known to carry our mark.
    is_ours: bool,
    current: Option<Current>,
    patience: Patience,
    counts: MoveCounts,
    /// Parts that were replaced here; they are among those counted as withdrawn.
    replaced: Vec<PathBuf>,
    /// The last error that will be retried.
    trouble: Option<RemoteError>,
    /// Conflicts of refused parts, not yet returned by [`Mover::take_conflicts`].
    conflicts: Vec<RemoteError>,
    begun: Instant,
}

impl Mover {
    /// Creates a mover; nothing is sent to the store yet.
    pub fn new(
        address: RemoteAddress,
        store: Box<dyn RemoteStore>,
        mark: LakeMark,
        options: MoveOptions,
    ) -> Mover {
        Mover {
            address,
            store,
            mark,
            options,
            is_ours: false,
            current: None,
            patience: Patience::default(),
            counts: MoveCounts::default(),
            replaced: Vec::new(),
            trouble: None,
            conflicts: Vec::new(),
            begun: Instant::now(),
        }
    }

    /// The destination.
    pub fn address(&self) -> &RemoteAddress {
        &self.address
    }

    /// The store, for objects that aren't parts.
    pub fn store(&self) -> &dyn RemoteStore {
        &*self.store
    }

    /// Outcomes for the parts of a source.
    pub fn counts(&self, source: &dyn PartSource) -> MoveCounts {
        let Waiting { parts, bytes } = source.waiting();
        MoveCounts {
            retries: self.patience.retries + self.store.retries(),
            parts_waiting: parts,
            bytes_waiting: bytes,
            ..self.counts
        }
    }

    /// Why the store is unusable, and for how long; `None` while it answers.
    pub fn trouble(&self) -> Option<(&RemoteError, Duration)> {
        let since = self.patience.silent_since?;
        Some((self.trouble.as_ref()?, self.now().since(since)))
    }

    /// Conflicts of the parts refused since the last call, each a [`RemoteError::Conflict`].
    pub fn take_conflicts(&mut self) -> Vec<RemoteError> {
        std::mem::take(&mut self.conflicts)
    }

    /// Prepares for a new source with all parts that the last one left, including refused and replaced ones, which are
    /// counted again. The next request is sent at once, even during a wait.
    pub fn begin_again(&mut self) {
        // A part that was deleted after its move is not in the next source.
        if let Some(current) = self.current.take()
            && !current.part.path.exists()
            && let NextStep::End(ending) = current.plan.next(&self.patience, self.now())
        {
            self.end(&current, ending);
        }
        self.counts.parts_refused = 0;
        let replaced = std::mem::take(&mut self.replaced).into_iter();
        self.counts.parts_withdrawn -= replaced.filter(|path| path.exists()).count() as u64;
        self.patience.on_answer();
    }

    fn now(&self) -> Nanos {
        Nanos(self.begun.elapsed().as_nanos() as u64)
    }

    /// Carries out the next step. May be called again after an error; the current part then starts over.
    ///
    /// # Errors
    /// A permanent error: the store denies a request, the destination belongs to another folder, or a file cannot be
    /// read or deleted. Missing answers are not errors.
    pub fn turn(&mut self, source: &mut dyn PartSource) -> Result<MoveTurn, RemoteError> {
        if let Some(until) = self.patience.until(self.now()) {
            return Ok(MoveTurn::Waits(until.since(self.now())));
        }
        if !self.is_ours {
            return self
                .claim_place()
                .map(|()| MoveTurn::Went)
                .or_else(|error| self.postpone(error));
        }
        if self.current.is_none() {
            let Some(part) = source.claim() else {
                return Ok(MoveTurn::Idle);
            };
            let Ok(stamp) = Stamp::of(&part.path) else {
                // The process that deleted the part accounts for it.
                self.counts.parts_withdrawn += 1;
                source.done(&part);
                return Ok(MoveTurn::Went);
            };
            let plan = PartPlan::new(self.options.keeps_local);
            self.current = Some(Current {
                part,
                plan,
                stamp,
                print: None,
                facts: None,
            });
        }
        let mut current = self.current.take().expect("the part was just stored");
        match current.plan.next(&self.patience, self.now()) {
            NextStep::WaitUntil(until) => {
                self.current = Some(current);
                Ok(MoveTurn::Waits(until.since(self.now())))
            }
            NextStep::End(ending) => {
                self.end(&current, ending);
                source.done(&current.part);
                Ok(MoveTurn::Went)
            }
            NextStep::Do(step) => {
                let result = self.carry_out(step, &mut current, source);
                let now = self.now();
                let outcome = *result.as_ref().unwrap_or(&StepOutcome::NoAnswer);
                current.plan.on(outcome, &mut self.patience, now);
                self.current = Some(current);
                match result {
                    Ok(_) => Ok(MoveTurn::Went),
                    Err(error) if error.is_passing() => {
                        self.trouble = Some(error);
                        Ok(MoveTurn::Went)
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Schedules another attempt after an error; returns the error unless it is transient.
    fn postpone(&mut self, error: RemoteError) -> Result<MoveTurn, RemoteError> {
        self.patience.on_no_answer(self.now());
        if !error.is_passing() {
            return Err(error);
        }
        self.trouble = Some(error);
        Ok(MoveTurn::Went)
    }

    /// Ensures that the destination belongs to this folder: it carries the same mark, or is empty and gets it.
    ///
    /// # Errors
    /// The destination has a different mark, or objects but no mark; or as for [`Mover::turn`].
    pub fn claim_place(&mut self) -> Result<(), RemoteError> {
        let key = self.address.key(MARK_NAME);
        let taken = |theirs| RemoteError::Taken {
            address: self.address.to_string(),
            theirs,
        };
        if self.store.stat(&key)?.is_none() {
            if let Some(object) = self.store.list(&self.address.prefix, 1)?.first()
                && object.key != key
            {
                return Err(taken(format!(
                    "'{}', which was not written by brunt",
                    object.key
                )));
            }
            // If several folders claim the destination at once, the mark of the first one is read below.
            self.store.send_bytes(&key, &self.mark.to_bytes())?;
        }
        let found = read_mark(&*self.store, &self.address)?;
        if found != self.mark {
            return Err(taken(format!("mark {}", found.lake)));
        }
        self.patience.on_answer();
        self.is_ours = true;
        Ok(())
    }

    fn carry_out(
        &mut self,
        step: MoveStep,
        current: &mut Current,
        source: &mut dyn PartSource,
    ) -> Result<StepOutcome, RemoteError> {
        let Current {
            part,
            stamp,
            print,
            facts,
            ..
        } = current;
        let key = self.address.key(&part.relative);
        if Stamp::of(&part.path).ok() != Some(*stamp) {
            return Ok(StepOutcome::Changed);
        }
        match step {
            MoveStep::Look => {
                *facts = self.store.stat(&key)?;
                Ok(if facts.is_some() {
                    StepOutcome::Present
                } else {
                    StepOutcome::Absent
                })
            }
            MoveStep::Send => Ok(match self.store.send_file(&key, &part.path, part.bytes)? {
                Sent::Stored => StepOutcome::Stored,
                Sent::Exists => StepOutcome::Present,
            }),
            MoveStep::Compare => {
                let print = match print {
                    Some(print) => print,
                    None => {
                        let file = File::open(&part.path).map_err(RemoteError::io(&part.path))?;
                        let read = Fingerprint::read(file, part.bytes)
                            .map_err(RemoteError::io(&part.path))?;
                        print.insert(read)
                    }
                };
                let facts = facts.as_ref().expect("the part was seen before");
                let is_same = match print.likeness(facts) {
                    ObjectMatch::Same => true,
                    ObjectMatch::Different => false,
                    ObjectMatch::Unknown => {
                        let (is_same, bytes) = is_object_same(&*self.store, &key, part)?;
                        self.counts.bytes_read_back += bytes;
                        is_same
                    }
                };
                let is_unchanged = Stamp::of(&part.path).ok() == Some(*stamp);
                Ok(match (is_unchanged, is_same) {
                    (false, _) => StepOutcome::Changed,
                    (true, true) => StepOutcome::Same,
                    (true, false) => StepOutcome::Different,
                })
            }
            MoveStep::Delete => match source.delete(part) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(RemoteError::io(&part.path)(error))
                }
                _ => Ok(StepOutcome::Deleted),
            },
        }
    }

    fn end(&mut self, current: &Current, ending: Ending) {
        let (part, counts) = (&current.part, &mut self.counts);
        match ending {
            Ending::Settled { sent: true } => {
                counts.parts_moved += 1;
                counts.bytes_moved += part.bytes;
            }
            Ending::Settled { sent: false } => {
                counts.parts_found += 1;
                counts.bytes_found += part.bytes;
            }
            Ending::Refused => {
                counts.parts_refused += 1;
                let object = format!(
                    "s3://{}/{}",
                    self.address.bucket,
                    self.address.key(&part.relative)
                );
                self.conflicts.push(RemoteError::Conflict {
                    path: part.path.clone(),
                    object,
                });
            }
            Ending::Withdrawn => {
                counts.parts_withdrawn += 1;
                self.replaced.push(part.path.clone());
            }
        }
    }
}

/// Reads the mark of a destination.
///
/// # Errors
/// The mark is missing or unreadable, or the store doesn't answer.
pub(crate) fn read_mark(
    store: &dyn RemoteStore,
    address: &RemoteAddress,
) -> Result<LakeMark, RemoteError> {
    let key = address.key(MARK_NAME);
    let mut bytes = Vec::new();
    store.read(&key, &mut |piece| {
        bytes.extend_from_slice(&piece[..piece.len().min(MARK_BYTES_MAX + 1 - bytes.len())]);
        Ok(bytes.len() <= MARK_BYTES_MAX)
    })?;
    LakeMark::parse(&bytes, || format!("s3://{}/{key}", address.bucket))
}

/// Compares an object with the local file piece by piece; returns whether they are equal and how many bytes were read.
pub(crate) fn is_object_same(
    store: &dyn RemoteStore,
    key: &str,
    part: &LocalPart,
) -> Result<(bool, u64), RemoteError> {
    let io = |error| RemoteError::io(&part.path)(error);
    let mut file = io::BufReader::new(File::open(&part.path).map_err(io)?);
    let (mut here, mut is_same, mut bytes) = (Vec::new(), true, 0);
    store.read(key, &mut |piece| {
        here.resize(piece.len(), 0);
        is_same = match file.read_exact(&mut here) {
            Ok(()) => here == piece,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
            Err(error) => return Err(io(error)),
        };
        bytes += piece.len() as u64;
        Ok(is_same)
    })?;
    is_same &= bytes == part.bytes && file.read(&mut [0]).map_err(io)? == 0;
    Ok((is_same, bytes))
}
