//! Reads the files of one subject and turns two readings into a sample. A sampler has no thread and no timer: a
//! [`super::Prober`] calls it, or a role in its own process.
//!
//! The rule: each figure refers to the time between two readings of the same file, so that a prober preempted between
//! two files doesn't report a wrong rate.
//!
//! Cost: some 40 system calls per sample. All files are read first and parsed afterwards.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use brunt_core::{Clock, Nanos};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::AsFd;

use super::figures::{Sink, Texts};
use super::source::Source;
use super::watch::{Network, Subject};
use super::{Entry, Running, Scope};
use brunt_result::event::{Sample, SampleValue};

/// The running probes of one subject.
pub struct Sampler {
    host: Arc<str>,
    /// The instance for figures that have none.
    owner: Arc<str>,
    sources: Vec<Source>,
    slots: Vec<Slot>,
    last: Option<Nanos>,
    notes: Vec<String>,
    misreadings: Misreadings,
}

/// Counts of failed readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misreadings {
    /// Counters that went backwards; each invalidates one value.
    pub resets: u64,
    /// Texts that could not be parsed; each cost a probe's figures for two intervals.
    pub unreadable: u64,
}

impl Misreadings {
    /// Adds the counts of another subject.
    pub fn add(&mut self, other: Misreadings) {
        self.resets += other.resets;
        self.unreadable += other.unreadable;
    }
}

struct Slot {
    entry: &'static Entry,
    running: Box<dyn Running>,
    /// The source of each file, in order; `None` if it does not exist.
    sources: Vec<Option<usize>>,
    last: Option<Nanos>,
    /// Whether an unreadable text was already reported.
    complained: bool,
}

impl Sampler {
    /// Opens the files of those `probes` that apply to the subject. [`Sampler::take_notes`] reports missing files.
    ///
    /// # Errors
    /// The subject's namespace cannot be entered.
    pub fn open(subject: &Subject, probes: &[&'static Entry]) -> io::Result<Sampler> {
        let Subject::Host {
            network: Network::Namespace(namespace),
            ..
        } = subject
        else {
            return Ok(Sampler::open_here(subject, probes));
        };
        // A short-lived thread enters the namespace; files that it opened keep referring to it.
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(Sampler::open_here(subject, probes))
            });
            there.join().expect("opening files does not panic")
        })
    }

    fn open_here(subject: &Subject, probes: &[&'static Entry]) -> Sampler {
        let (scopes, network, process): (&[Scope], _, _) = match subject {
            Subject::Machine {
                with_network: false,
                ..
            } => (&[Scope::Machine], String::new(), String::new()),
            Subject::Machine { .. } => (
                &[Scope::Machine, Scope::Namespace],
                thread_network(),
                String::new(),
            ),
            Subject::Host {
                network: Network::OfProcess(pid),
                ..
            } => (
                &[Scope::Namespace],
                format!("/proc/{pid}/net"),
                String::new(),
            ),
            Subject::Host { .. } => (&[Scope::Namespace], thread_network(), String::new()),
            Subject::Process { pid, .. } if *pid == std::process::id() => {
                (&[Scope::Process], String::new(), "/proc/self".into())
            }
            Subject::Process { pid, .. } => {
                (&[Scope::Process], String::new(), format!("/proc/{pid}"))
            }
        };
        let owner = match subject {
            Subject::Process { name, .. } => Arc::clone(name),
            _ => "".into(),
        };
        let mut sampler = Sampler {
            host: Arc::clone(subject.host()),
            owner,
            sources: Vec::new(),
            slots: Vec::new(),
            last: None,
            notes: Vec::new(),
            misreadings: Misreadings::default(),
        };
        for entry in probes.iter().filter(|entry| scopes.contains(&entry.scope)) {
            let file = |file: &&str| {
                PathBuf::from(
                    file.replace("{net}", &network)
                        .replace("{process}", &process),
                )
            };
            let sources: Vec<_> = entry
                .files
                .iter()
                .map(file)
                .map(|path| sampler.source(entry, path))
                .collect();
            if sources.iter().any(Option::is_some) {
                let running = (entry.make)();
                sampler.slots.push(Slot {
                    entry,
                    running,
                    sources,
                    last: None,
                    complained: false,
                });
            }
        }
        sampler
    }

    /// Returns the index of a file's source, which is shared by all probes that read the file.
    fn source(&mut self, entry: &Entry, path: PathBuf) -> Option<usize> {
        if let Some(index) = self.sources.iter().position(|source| source.path() == path) {
            return Some(index);
        }
        let source = Source::open(&path).and_then(|mut source| {
            source.read(&Clock::Monotonic)?;
            Ok(source)
        });
        match source {
            Ok(source) => {
                self.sources.push(source);
                Some(self.sources.len() - 1)
            }
            Err(error) => {
                self.note(format_args!(
                    "no {} figures for {}: {error}",
                    entry.name,
                    path.display()
                ));
                None
            }
        }
    }

    fn note(&mut self, text: std::fmt::Arguments<'_>) {
        self.notes.push(format!("{}: {text}", self.host));
    }

    /// Returns the notes since the last call: each missing file, once.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Returns the failed readings so far.
    pub fn misreadings(&self) -> Misreadings {
        self.misreadings
    }

    /// Returns true if there is nothing to read, or nothing left to read.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Reads everything and returns the figures since the last call; the first call returns none. The sample ends at
    /// `now`.
    pub fn sample(&mut self, clock: &Clock, now: Nanos) -> Option<Sample> {
        self.read_sources(clock);
        let mut values: Vec<SampleValue> = Vec::new();
        for slot in &mut self.slots {
            let sources = slot
                .sources
                .iter()
                .map(|index| index.map(|index| &self.sources[index]));
            let read_at = sources
                .clone()
                .flatten()
                .map(Source::read_at)
                .next()
                .unwrap_or(now);
            let texts: Vec<_> = sources.map(|source| source.map(Source::text)).collect();
            let elapsed = read_at.since(slot.last.unwrap_or(read_at));
            slot.last = Some(read_at);
            let owner = Arc::clone(&self.owner);
            let mut sink = Sink::new(
                slot.entry.name,
                owner,
                &mut values,
                &mut self.misreadings.resets,
            );
            if let Err(error) = slot.running.step(&Texts(&texts), elapsed, &mut sink) {
                self.misreadings.unreadable += 1;
                if !std::mem::replace(&mut slot.complained, true) {
                    self.notes.push(format!(
                        "{}: {} cannot be read: {error}",
                        self.host, slot.entry.name
                    ));
                }
            }
        }
        let start = self.last.replace(now)?;
        (!values.is_empty()).then(|| Sample {
            host: Arc::clone(&self.host),
            start,
            end: now,
            values,
        })
    }

    /// Reads all files. Files that can't be read any more are dropped, and noted unless their process has ended.
    fn read_sources(&mut self, clock: &Clock) {
        let mut gone = Vec::new();
        for (index, source) in self.sources.iter_mut().enumerate() {
            if let Err(error) = source.read(clock) {
                gone.push((
                    index,
                    format!("{} can no longer be read: {error}", source.path().display()),
                ));
            }
        }
        for (index, what) in gone {
            // An ended process is not an error, and the note on its first file covers all of them.
            if self
                .slots
                .iter()
                .any(|slot| slot.sources.contains(&Some(index)))
            {
                self.note(format_args!("{what}"));
            }
            for slot in &mut self.slots {
                if slot.entry.scope == Scope::Process {
                    slot.sources.clear();
                }
                slot.sources
                    .iter_mut()
                    .filter(|source| **source == Some(index))
                    .for_each(|source| *source = None);
            }
        }
        self.slots
            .retain(|slot| slot.sources.iter().any(Option::is_some));
    }
}

/// `/proc/net` refers to the main thread, whose namespace may differ from ours.
fn thread_network() -> String {
    "/proc/thread-self/net".into()
}
