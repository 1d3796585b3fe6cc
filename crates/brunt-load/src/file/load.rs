//! Turns each phase on a file system into a load. The phases of a file system share its folder and data file, so that
//! one phase can read what another wrote.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_block::OpenError;
use brunt_block::table::Permit;
use brunt_core::{Nanos, Size};
use brunt_result::Outcome;
use brunt_result::choice::PageCache;

use super::{FilePhase, FileSystem, FileSystemError, FileSystemLoad, Fsync};
use crate::collect::{Post, WorkerMessage};
use crate::commands::{CommandLimits, Commands, LoadCommand, LoadCommandError};
use crate::entry::{LoadEntry, written};
use crate::hosted::{FILE, HostedLoad, OrderedLoad};
use crate::kind::{LoadForm, LoadKind, NamedLoad, OwnTable};
use crate::load::{
    Finished, Load, LoadError, LoadInfo, LoadTarget, MessageSender, PreparedLoad, RunOrder,
    RunningLoad, WorkloadError,
};

/// The load's name in [`crate::LOADS`].
pub const KIND: &str = "file";

/// The load's entry in [`crate::LOADS`].
pub(crate) const LINE: LoadKind = LoadKind {
    name: KIND,
    help: "Bonnie's phases on a mounted file system: characters, blocks, seeks and names",
    example: "directory = \"/tmp\"\nphases = [\"write-blocks\", \"seeks\"]\nfile_size = \"1MiB\"",
    permit: None,
    read: |text, _| {
        let settings: FileSystemLoad = toml::from_str(text).map_err(Box::new)?;
        settings.check()?;
        Ok(settings.loads())
    },
    form: LoadForm::Own(OwnTable::of::<FileSystemLoad>(
        "filesystems",
        "File system benchmarks on mounted directories, by a name of your choice. Each phase is a point; of a `sweep`, \
         only `clients`, `file_size` and links apply.",
    )),
};

impl LoadEntry for FileSystemLoad {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn settings(&self) -> toml::Table {
        written(self)
    }

    fn noun(&self) -> &'static str {
        "file system"
    }

    fn check(&self) -> Result<(), WorkloadError> {
        FileSystemLoad::check(self)
    }

    fn hosts(&self) -> &[String] {
        &self.hosts
    }

    fn on_hosts(&self, hosts: Vec<String>) -> Arc<dyn LoadEntry> {
        Arc::new(FileSystemLoad {
            hosts,
            ..self.clone()
        })
    }

    fn place(&self) -> String {
        self.directory.display().to_string()
    }

    fn describe(&self) -> String {
        format!("files in {}", self.directory.display())
    }

    fn loads(&self) -> Vec<NamedLoad> {
        let named = |load: FileLoad| {
            let name = load.phase.name().to_string();
            (name, Arc::new(load) as Arc<dyn Load>)
        };
        FileLoad::phases(self).into_iter().map(named).collect()
    }

    fn with_file_size(&self, size: Size) -> Option<Arc<dyn LoadEntry>> {
        Some(Arc::new(FileSystemLoad {
            file_size: Some(size),
            ..self.clone()
        }))
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.directory)
    }
}

/// How often a load checks, during preparation, whether it should continue.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A phase on a file system.
#[derive(Clone, Debug)]
pub struct FileLoad {
    phase: FilePhase,
    shared: Arc<Shared>,
}

/// State shared by the phases of one file system.
#[derive(Debug)]
struct Shared {
    settings: FileSystemLoad,
    system: Mutex<Option<FileSystem>>,
}

impl FileLoad {
    /// Returns the phases of a file system, in order.
    pub fn phases(settings: &FileSystemLoad) -> Vec<FileLoad> {
        let shared = Arc::new(Shared {
            settings: settings.clone(),
            system: Mutex::new(None),
        });
        let load = |phase: &FilePhase| FileLoad {
            phase: *phase,
            shared: Arc::clone(&shared),
        };
        settings.phases.iter().map(load).collect()
    }

    /// Returns the phase.
    pub fn phase(&self) -> FilePhase {
        self.phase
    }

    /// Returns the settings shared by all phases of its file system.
    pub fn settings(&self) -> &FileSystemLoad {
        &self.shared.settings
    }

    fn system(&self) -> MutexGuard<'_, Option<FileSystem>> {
        self.shared
            .system
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of a run's thread.
    fn work(
        &self,
        seed: u64,
        inbox: &MessageSender,
        started: &Receiver<Nanos>,
        commands: &Commands,
    ) -> Result<(Outcome, PageCache), LoadError> {
        let mut system = self.system();
        let system = system.as_mut().expect("opened before its first run");
        inbox.send(WorkerMessage::Ready);
        let Ok(start) = started.recv() else {
            return Ok((Outcome::interrupted(), PageCache::default()));
        };
        let mut post = Post::new(0, inbox);
        let (outcome, cache) = system.run(self.phase, seed, start, commands, &mut post)?;
        Ok((
            Outcome {
                recording_wait: post.waited(),
                ..outcome
            },
            cache,
        ))
    }
}

impl From<FileSystemError> for LoadError {
    fn from(error: FileSystemError) -> LoadError {
        LoadError::Own {
            kind: KIND,
            source: Box::new(error),
        }
    }
}

impl Load for FileLoad {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn info(&self) -> LoadInfo {
        let settings = &self.shared.settings;
        LoadInfo {
            kinds: self.phase.kinds().to_vec(),
            workers: if self.phase == FilePhase::Seeks {
                settings.seekers
            } else {
                1
            },
            interval: settings.interval.0,
            // The load only writes to files that it created itself.
            ..LoadInfo::default()
        }
    }

    fn describe(&self) -> String {
        let fsync = match self.shared.settings.fsync {
            Fsync::None => "without fsync",
            Fsync::End => "fsync at the end",
            Fsync::Each => "fsync after every write",
        };
        format!("{}, {fsync}", self.phase.name().replace('-', " "))
    }

    fn keys(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![("phase", self.phase.name().into())]
    }

    fn open(&self, _on: &LoadTarget, _stop: &AtomicBool) -> Result<Vec<String>, LoadError> {
        let mut system = self.system();
        if system.is_none() {
            *system = Some(FileSystem::open(&self.shared.settings)?);
        }
        Ok(system
            .as_ref()
            .map(|system| system.notes().to_vec())
            .unwrap_or_default())
    }

    fn prepare(
        &self,
        _on: &LoadTarget,
        order: &RunOrder,
        inbox: MessageSender,
        stop: &AtomicBool,
    ) -> Result<(PreparedLoad, Box<dyn RunningLoad>), LoadError> {
        let commands = Arc::new(Commands::new());
        self.make_ready(&commands, stop)?;
        let (start, started) = sync_channel(1);
        let (load, seed, told) = (self.clone(), order.seed, Arc::clone(&commands));
        let work = move || {
            let (outcome, cache) = match load.work(seed, &inbox, &started, &told) {
                Ok((outcome, cache)) => (Ok(outcome), Some(cache)),
                Err(error) => (Err(error), None),
            };
            inbox.send(WorkerMessage::Done(0, Box::new(outcome)));
            cache
        };
        let thread = std::thread::Builder::new()
            .name(self.phase.name().into())
            .spawn(work);
        let thread = thread.map_err(|source| LoadError::Io { worker: 0, source })?;
        let running = RunningPhase {
            start: Some(start),
            commands,
            thread: Some(thread),
        };
        Ok((PreparedLoad::alone(1, 1), Box::new(running)))
    }

    fn close(&self) -> Result<(), LoadError> {
        // The first phase to be closed removes everything.
        let system = self.system().take();
        Ok(system.map_or(Ok(()), FileSystem::close)?)
    }

    fn hosted(self: Arc<Self>) -> Option<Arc<dyn HostedLoad>> {
        Some(self)
    }
}

impl HostedLoad for FileLoad {
    fn named_hosts(&self) -> &[String] {
        &self.shared.settings.hosts
    }

    /// # Panics
    /// Panics if its values cannot be serialized; values read from a file always can.
    fn for_host(&self, _order: &RunOrder) -> OrderedLoad {
        let here = FileSystemLoad {
            hosts: Vec::new(),
            ..self.shared.settings.clone()
        };
        OrderedLoad {
            text: toml::to_string(&here).expect("a file system load can be written as TOML"),
            member: self.phase.name().to_string(),
            kinds: self.phase.kinds().to_vec(),
            queue_depth: 1,
            ..OrderedLoad::default()
        }
    }

    /// A single thread reports for all threads of a phase.
    fn reporters(&self) -> u32 {
        1
    }

    /// Each host has its own files and its own sequence of requests.
    fn host_seed(&self, seed: u64, first_worker: u32) -> u64 {
        seed.wrapping_add(u64::from(first_worker) << 32)
    }

    fn keeps_between_runs(&self) -> bool {
        true
    }

    fn drives_device(&self) -> bool {
        false
    }

    fn check_allowed(&self, permit: &dyn Permit) -> Result<(), OpenError> {
        permit.check(FILE, &self.shared.settings.directory.display().to_string())
    }
}

impl FileLoad {
    /// Prepares what the phase needs. Because this may take long, `stop` is forwarded in the meantime.
    fn make_ready(&self, commands: &Commands, stop: &AtomicBool) -> Result<(), LoadError> {
        let mut system = self.system();
        let system = system.as_mut().expect("opened before its first run");
        let ready = std::thread::scope(|scope| {
            let (done, is_done) = sync_channel(1);
            let making = scope.spawn(move || {
                let ready = system.prepare(self.phase, commands);
                let _ = done.send(());
                ready
            });
            while is_done.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                if stop.load(Ordering::Relaxed) {
                    commands.give(LoadCommand::Stop);
                }
            }
            making
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        if ready {
            Ok(())
        } else {
            Err(LoadError::Interrupted)
        }
    }
}

/// A running phase.
struct RunningPhase {
    start: Option<SyncSender<Nanos>>,
    commands: Arc<Commands>,
    thread: Option<JoinHandle<Option<PageCache>>>,
}

impl RunningPhase {
    fn join(&mut self) -> Option<PageCache> {
        self.start = None;
        match self.thread.take()?.join() {
            Ok(cache) => cache,
            Err(_) if std::thread::panicking() => None,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl RunningLoad for RunningPhase {
    fn start(&mut self, at: Nanos) {
        if let Some(start) = self.start.take() {
            let _ = start.send(at);
        }
    }

    fn command(&mut self, command: LoadCommand) -> Result<(), LoadCommandError> {
        CommandLimits::default().check(command)?;
        self.commands.give(command);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Finished {
        Finished {
            page_cache: self.join(),
            ..Finished::default()
        }
    }
}

impl Drop for RunningPhase {
    fn drop(&mut self) {
        self.commands.give(LoadCommand::Stop);
        self.join();
    }
}
