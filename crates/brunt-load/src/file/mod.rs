//! Load on a mounted file system, in the role of Bonnie (Aiken and Grunwald, 2003, Figure 8; SPEK, 2005,
//! Figure 1): writes, rewrites and reads characters and blocks, seeks at random, and creates, looks up and unlinks
//! files. Each [`FilePhase`] is a separate run with the usual figures, and reports the influence of the page cache
//! ([`PageCache`]).
//!
//! Called by experiments with `[filesystems.NAME]`. The rule: it touches only files that it created. All files are in a
//! new folder; the data file is unlinked as soon as it is open, so that not even SIGKILL leaves it behind.

pub(crate) mod cache;
mod load;
pub(crate) mod meter;
mod names;
mod settings;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use brunt_block::Buf;
use brunt_core::random::Random;
use brunt_core::units::format_size;
use brunt_core::{Clock, Nanos};
use brunt_result::choice::PageCache;
use brunt_result::{OpKind, Outcome};
use rustix::fs::{Advice, OFlags, fadvise, statvfs};

use cache::ThreadIo;
pub(crate) use load::LINE;
pub use load::{FileLoad, KIND};
use meter::PhaseMeter;
use names::Names;
pub use settings::{FilePhase, FileSystemLoad, Fsync};

use crate::commands::Commands;
use crate::record::Recorder;

/// Size of the buffer for character I/O, as in a C library; a multiple of any disk's block size.
const CHARACTERS_BYTES: usize = 4096;
/// Size of writes that are not measured.
const FILL_BYTES: usize = 1 << 20;

/// Why a phase failed or could not start.
#[derive(Debug, thiserror::Error)]
pub enum FileSystemError {
    /// A system call failed.
    #[error("{}: cannot {what}: {source}", path.display())]
    Os {
        /// The directory.
        path: PathBuf,
        /// The operation, such as "create a file".
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// Not enough free space.
    #[error(
        "{}: a file of {} does not fit because only {} are free; write a smaller file_size",
        path.display(),
        format_size(*.wanted),
        format_size(*.free)
    )]
    Full {
        /// The directory.
        path: PathBuf,
        /// Required space in bytes.
        wanted: u64,
        /// Free space in bytes.
        free: u64,
    },
}

type Result<T> = std::result::Result<T, FileSystemError>;

/// A newly created folder on the file system, and the files in it.
#[derive(Debug)]
pub struct FileSystem {
    load: FileSystemLoad,
    folder: PathBuf,
    file: File,
    /// Number of bytes of the file written so far.
    written_bytes: u64,
    size_bytes: u64,
    names: Names,
    notes: Vec<String>,
}

impl FileSystem {
    /// Creates the folder and the data file.
    ///
    /// # Errors
    /// The directory does not exist, is not writable, or has too little space.
    pub fn open(load: &FileSystemLoad) -> Result<FileSystem> {
        let directory = &load.directory;
        let os = |what| {
            move |source| FileSystemError::Os {
                path: directory.clone(),
                what,
                source,
            }
        };
        let memory_bytes = cache::memory_bytes();
        let block = load.block.0;
        let size_bytes = match load.file_size {
            Some(size) => size.0,
            None => (memory_bytes as f64 * load.times_memory) as u64,
        } / block
            * block;
        let room = statvfs(directory.as_path()).map_err(|error| os("be used")(error.into()))?;
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        if load.phases.iter().any(|phase| phase.uses_file()) && size_bytes > free {
            return Err(FileSystemError::Full {
                path: directory.clone(),
                wanted: size_bytes,
                free,
            });
        }
        let folder = own_folder(directory).map_err(os("create a folder"))?;
        let made = make_file(&folder, load.direct)
            .and_then(|file| Ok((file, Names::new(&folder, load.files)?)));
        let (file, names) = match made {
            Ok(made) => made,
            Err(source) => {
                let _ = std::fs::remove_dir(&folder);
                return Err(os(if load.direct {
                    "create a file with O_DIRECT"
                } else {
                    "create a file"
                })(source));
            }
        };
        Ok(FileSystem {
            load: load.clone(),
            folder,
            file,
            written_bytes: 0,
            size_bytes,
            names,
            notes: notes(load, size_bytes, memory_bytes),
        })
    }

    /// Notes for the user, in addition to the figures.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Runs a prepared phase from `start` until it is done or stopped. A request is a block (also in character phases),
    /// a seek, or a file.
    ///
    /// # Errors
    /// The file system failed, which makes the phase's figures meaningless.
    pub fn run(
        &mut self,
        phase: FilePhase,
        seed: u64,
        start: Nanos,
        commands: &Commands,
        recorder: &mut dyn Recorder,
    ) -> Result<(Outcome, PageCache)> {
        let path = self.load.directory.clone();
        let os = |what| {
            move |source| FileSystemError::Os {
                path: path.clone(),
                what,
                source,
            }
        };
        let order = if phase.uses_file() {
            Vec::new()
        } else {
            self.names.order(phase, seed)
        };
        if let Some(early) = Duration::from_nanos(start.0).checked_sub(since_epoch()) {
            std::thread::sleep(early);
        }
        if phase == FilePhase::Seeks {
            return self
                .seek(seed, start, commands, recorder)
                .map_err(os(phase.doing()));
        }
        let before = ThreadIo::now();
        let mut meter = PhaseMeter::new(
            phase.kinds(),
            start,
            self.load.interval.0,
            commands,
            recorder,
        );
        match phase {
            FilePhase::WriteCharacters => self.write_characters(&mut meter),
            FilePhase::WriteBlocks => self.write_blocks(&mut meter),
            FilePhase::Rewrite => self.rewrite(&mut meter),
            FilePhase::ReadCharacters => self.read_characters(&mut meter),
            FilePhase::ReadBlocks => self.read_blocks(&mut meter),
            FilePhase::Seeks => unreachable!("seeks have their own threads"),
            _ => self.names.walk(phase, &order, &self.load, &mut meter),
        }
        .map_err(os.clone()(phase.doing()))?;
        let flush_begin = Clock::Monotonic.now();
        if phase.writes() && self.load.fsync == Fsync::End && !meter.is_over() {
            let flushed = if phase.uses_file() {
                self.file.sync_all()
            } else {
                self.names.sync()
            };
            flushed.map_err(os("fsync"))?;
            meter.calls(1);
        }
        let end = Clock::Monotonic.now();
        let flush_s = end.since(flush_begin).as_secs_f64();
        let outcome = meter.finish(end);
        let read_share = ThreadIo::cached_share(before, ThreadIo::now(), read_bytes(&outcome));
        Ok((
            outcome,
            PageCache {
                read_share: read_share.filter(|_| phase.uses_file()),
                flush_s,
            },
        ))
    }

    /// Closes the folder and removes everything that was created in it.
    ///
    /// # Errors
    /// Something could not be removed, or another process put a file into our folder, in which case the folder stays.
    pub fn close(mut self) -> Result<()> {
        self.clean()
    }

    fn clean(&mut self) -> Result<()> {
        if self.folder.as_os_str().is_empty() {
            return Ok(());
        }
        let path = std::mem::take(&mut self.folder);
        let emptied = self.names.make(false, &Commands::new()).map(drop);
        let removed = emptied.and_then(|()| std::fs::remove_dir(&path));
        removed.map_err(|source| FileSystemError::Os {
            path,
            what: "be removed",
            source,
        })
    }

    /// Prepares what a phase needs, without measuring; returns `false` if it was stopped.
    ///
    /// # Errors
    /// The file system failed.
    pub fn prepare(&mut self, phase: FilePhase, commands: &Commands) -> Result<bool> {
        let path = self.load.directory.clone();
        self.make_ready(phase, commands)
            .map_err(|source| FileSystemError::Os {
                path,
                what: "prepare a phase",
                source,
            })
    }

    fn make_ready(&mut self, phase: FilePhase, commands: &Commands) -> io::Result<bool> {
        if !phase.uses_file() {
            let there = !matches!(phase, FilePhase::CreateSequential | FilePhase::CreateRandom);
            return self.names.make(there, commands);
        }
        if matches!(phase, FilePhase::WriteCharacters | FilePhase::WriteBlocks) {
            self.file.set_len(0)?;
            self.file.sync_all()?;
            self.written_bytes = 0;
            return Ok(true);
        }
        let mut chunk = Buf::zeroed(FILL_BYTES);
        Random::new(1).fill(&mut chunk);
        while self.written_bytes < self.size_bytes {
            if commands.is_stopped() {
                return Ok(false);
            }
            let len = (self.size_bytes - self.written_bytes).min(FILL_BYTES as u64) as usize;
            chunk[..8].copy_from_slice(&self.written_bytes.to_le_bytes());
            self.file.write_all_at(&chunk[..len], self.written_bytes)?;
            self.written_bytes += len as u64;
        }
        if self.load.drop_cache {
            // Only clean pages can be dropped, so flush first.
            self.file.sync_all()?;
            fadvise(&self.file, 0, None, Advice::DontNeed)?;
        }
        Ok(true)
    }

    fn blocks(&self) -> u64 {
        self.size_bytes / self.load.block.0
    }

    fn block(&self) -> Buf {
        let mut block = Buf::zeroed(self.load.block.0 as usize);
        Random::new(2).fill(&mut block);
        block
    }

    fn after_write(&self, meter: &mut PhaseMeter<'_>) -> io::Result<()> {
        if self.load.fsync == Fsync::Each {
            self.file.sync_data()?;
            meter.calls(1);
        }
        Ok(())
    }

    fn write_characters(&mut self, meter: &mut PhaseMeter<'_>) -> io::Result<()> {
        let block = self.block();
        let mut out = Characters {
            buf: Buf::zeroed(CHARACTERS_BYTES),
            at: 0,
            offset: 0,
            calls: 0,
        };
        for index in 0..self.blocks() {
            if meter.is_over() {
                break;
            }
            for &byte in block.iter() {
                out.put(&self.file, byte)?;
            }
            if self.load.fsync == Fsync::Each {
                out.flush(&self.file)?;
            }
            self.after_write(meter)?;
            self.written_bytes = (index + 1) * block.len() as u64;
            meter.calls(std::mem::take(&mut out.calls));
            meter.request(0, block.len() as u64);
        }
        out.flush(&self.file)?;
        meter.calls(out.calls);
        Ok(())
    }

    fn write_blocks(&mut self, meter: &mut PhaseMeter<'_>) -> io::Result<()> {
        self.each_block(meter, true, |system, block, offset| {
            block[..8].copy_from_slice(&offset.to_le_bytes());
            system.file.write_all_at(block, offset)?;
            system.written_bytes = offset + block.len() as u64;
            Ok(1)
        })
    }

    fn rewrite(&mut self, meter: &mut PhaseMeter<'_>) -> io::Result<()> {
        self.each_block(meter, true, |system, block, offset| {
            system.file.read_exact_at(block, offset)?;
            block[0] = block[0].wrapping_add(1);
            system.file.write_all_at(block, offset)?;
            Ok(2)
        })
    }

    fn read_characters(&mut self, meter: &mut PhaseMeter<'_>) -> io::Result<()> {
        let len = self.load.block.0;
        let mut from = Characters {
            buf: Buf::zeroed(CHARACTERS_BYTES),
            at: CHARACTERS_BYTES,
            offset: 0,
            calls: 0,
        };
        let mut counts = [0u64; 256];
        for _ in 0..self.blocks() {
            if meter.is_over() {
                break;
            }
            for _ in 0..len {
                // Uses each character, as Bonnie does, so that the compiler can't remove the loop.
                counts[usize::from(from.get(&self.file)?)] += 1;
            }
            meter.calls(std::mem::take(&mut from.calls));
            meter.request(0, len);
        }
        std::hint::black_box(counts);
        Ok(())
    }

    fn read_blocks(&mut self, meter: &mut PhaseMeter<'_>) -> io::Result<()> {
        self.each_block(meter, false, |system, block, offset| {
            system.file.read_exact_at(block, offset)?;
            Ok(1)
        })
    }

    /// Issues one request per block of the file, in order, until the phase is over. `work` is given a buffer and the
    /// block's offset, and returns the number of system calls that it made.
    fn each_block(
        &mut self,
        meter: &mut PhaseMeter<'_>,
        writes: bool,
        mut work: impl FnMut(&mut FileSystem, &mut [u8], u64) -> io::Result<u64>,
    ) -> io::Result<()> {
        let mut block = self.block();
        let len = block.len() as u64;
        for index in 0..self.blocks() {
            if meter.is_over() {
                break;
            }
            let calls = work(self, &mut block, index * len)?;
            if writes {
                self.after_write(meter)?;
            }
            meter.calls(calls);
            meter.request(0, len);
        }
        Ok(())
    }

    /// Several threads seek and read, and write back every tenth block, like Bonnie's seekers.
    fn seek(
        &mut self,
        seed: u64,
        start: Nanos,
        commands: &Commands,
        recorder: &mut dyn Recorder,
    ) -> io::Result<(Outcome, PageCache)> {
        let seekers = u64::from(self.load.seekers);
        let this = &*self;
        let parts: io::Result<Vec<(Outcome, Option<f64>)>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..seekers)
                .map(|seeker| {
                    let seeks =
                        this.load.seeks / seekers + u64::from(seeker < this.load.seeks % seekers);
                    let random = Random::for_part(seed, seeker);
                    scope.spawn(move || this.seeker(random, seeks, start, commands))
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a seeker does not panic"))
                .collect()
        });
        let parts = parts?;
        let bytes: u64 = parts.iter().map(|(outcome, _)| read_bytes(outcome)).sum();
        let cached = parts
            .iter()
            .map(|(outcome, share)| share.map(|s| s * read_bytes(outcome) as f64));
        let read_share = cached
            .sum::<Option<f64>>()
            .map(|cached| cached / bytes.max(1) as f64);
        let mut whole: Option<Outcome> = None;
        for (outcome, _) in parts {
            match &mut whole {
                None => whole = Some(outcome),
                Some(whole) => whole.merge(&outcome),
            }
        }
        let mut outcome = whole.expect("there is a seeker");
        let flush_begin = Clock::Monotonic.now();
        if self.load.fsync == Fsync::End && outcome.is_complete() {
            self.file.sync_all()?;
        }
        outcome.end = Clock::Monotonic.now();
        let seconds = outcome.end.since(start).as_secs_f64();
        outcome.requests_per_second = outcome.figures.completed() as f64 / seconds;
        outcome.bytes_per_second = outcome.figures.bytes_in_time() as f64 / seconds;
        recorder.interval(&meter::interval_of(&outcome, start));
        let flush_s = outcome.end.since(flush_begin).as_secs_f64();
        Ok((
            outcome,
            PageCache {
                read_share,
                flush_s,
            },
        ))
    }

    fn seeker(
        &self,
        mut random: Random,
        seeks: u64,
        start: Nanos,
        commands: &Commands,
    ) -> io::Result<(Outcome, Option<f64>)> {
        let before = ThreadIo::now();
        let mut nobody = crate::NoRecorder;
        let mut meter = PhaseMeter::new(
            FilePhase::Seeks.kinds(),
            start,
            Duration::ZERO,
            commands,
            &mut nobody,
        );
        let mut block = self.block();
        for seek in 0..seeks {
            if meter.is_over() {
                break;
            }
            let offset = random.below(self.blocks()) * block.len() as u64;
            self.file.read_exact_at(&mut block, offset)?;
            meter.calls(1);
            meter.request(0, block.len() as u64);
            if seek % 10 == 9 {
                block[0] = block[0].wrapping_add(1);
                self.file.write_all_at(&block, offset)?;
                self.after_write(&mut meter)?;
                meter.calls(1);
                meter.request(1, block.len() as u64);
            }
        }
        let outcome = meter.finish(Clock::Monotonic.now());
        let share = ThreadIo::cached_share(before, ThreadIo::now(), read_bytes(&outcome));
        Ok((outcome, share))
    }
}

/// Returns the current time on the clock used for start times.
fn since_epoch() -> Duration {
    Duration::from_nanos(Clock::Monotonic.now().0)
}

fn read_bytes(outcome: &Outcome) -> u64 {
    outcome
        .figures
        .op(OpKind::Read)
        .map_or(0, |reads| reads.bytes)
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        let _ = self.clean();
    }
}

/// Reads and writes characters through a small buffer, like a C library's `putc` and `getc`.
struct Characters {
    buf: Buf,
    at: usize,
    offset: u64,
    calls: u64,
}

impl Characters {
    /// Not inlined, because this phase measures the cost of a call per character.
    #[inline(never)]
    fn put(&mut self, file: &File, byte: u8) -> io::Result<()> {
        self.buf[self.at] = byte;
        self.at += 1;
        if self.at < self.buf.len() {
            return Ok(());
        }
        self.flush(file)
    }

    fn flush(&mut self, file: &File) -> io::Result<()> {
        if self.at > 0 {
            file.write_all_at(&self.buf[..self.at], self.offset)?;
            self.offset += self.at as u64;
            self.calls += 1;
            self.at = 0;
        }
        Ok(())
    }

    #[inline(never)]
    fn get(&mut self, file: &File) -> io::Result<u8> {
        if self.at == self.buf.len() {
            file.read_exact_at(&mut self.buf, self.offset)?;
            self.offset += self.buf.len() as u64;
            self.calls += 1;
            self.at = 0;
        }
        self.at += 1;
        Ok(self.buf[self.at - 1])
    }
}

/// Returns what readers of the results should know about the file system, the file and the page cache.
fn notes(load: &FileSystemLoad, size_bytes: u64, memory_bytes: u64) -> Vec<String> {
    let times = size_bytes as f64 / memory_bytes.max(1) as f64;
    let mut notes = vec![
        format!(
            "{}: {}, file of {} ({times:.2} of this machine's memory), {}",
            load.directory.display(),
            cache::kind_of(&load.directory),
            format_size(size_bytes),
            if load.direct {
                "O_DIRECT: bypasses the page cache"
            } else {
                "through the page cache"
            },
        ),
        match load.fsync {
            Fsync::None => {
                "no fsync: written data may still be in the page cache when a phase ends".into()
            }
            Fsync::End => "fsync at the end of a phase is part of its time".to_string(),
            Fsync::Each => "fsync after every write".into(),
        },
    ];
    notes.extend(cache::virtual_processor().map(|name| format!("in a virtual machine: {name}")));
    notes
}

/// Creates a folder with a name that is not in use yet.
fn own_folder(directory: &Path) -> io::Result<PathBuf> {
    for number in 0..1000 {
        let folder = directory.join(format!(".brunt-{}-{number}", std::process::id()));
        match std::fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok(folder),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        "a thousand folders of that name already exist",
    ))
}

/// Creates a file and unlinks it immediately.
fn make_file(folder: &Path, direct: bool) -> io::Result<File> {
    let path = folder.join("data");
    let flags = if direct {
        OFlags::DIRECT.bits() as i32
    } else {
        0
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(flags)
        .open(&path);
    // Some file systems create the file before they reject O_DIRECT, so always unlink it.
    match (file, std::fs::remove_file(&path)) {
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        (Ok(file), Ok(())) => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoRecorder;
    use crate::commands::LoadCommand;
    use brunt_core::Size;
    use brunt_result::Stopped;
    use tempfile::tempdir;

    fn small(directory: &Path) -> FileSystemLoad {
        FileSystemLoad {
            file_size: Some(Size(256 << 10)),
            seeks: 101,
            files: 50,
            ..FileSystemLoad::new(directory)
        }
    }

    fn run(system: &mut FileSystem, phase: FilePhase, commands: &Commands) -> (Outcome, PageCache) {
        if !system.prepare(phase, commands).unwrap() {
            return (Outcome::interrupted(), PageCache::default());
        }
        system
            .run(phase, 7, Clock::Monotonic.now(), commands, &mut NoRecorder)
            .unwrap()
    }

    /// Every phase does its work, in any order, and leaves nothing behind.
    #[test]
    fn every_phase_works_in_any_order() {
        let scratch = tempdir().unwrap();
        let directory = scratch.path();
        std::fs::write(directory.join("theirs"), "untouched").unwrap();
        for fsync in [Fsync::None, Fsync::End, Fsync::Each] {
            let load = FileSystemLoad {
                fsync,
                ..small(directory)
            };
            let mut system = FileSystem::open(&load).unwrap();
            let going = Commands::new();
            // Also in reverse order: each phase makes its own preparations.
            for phase in FilePhase::ALL
                .into_iter()
                .chain(FilePhase::ALL.into_iter().rev())
            {
                let (outcome, cache) = run(&mut system, phase, &going);
                assert_eq!(outcome.stopped, Stopped::Done, "{phase:?}");
                let (done, bytes) = (outcome.figures.completed(), outcome.figures.bytes());
                let expected = match phase {
                    FilePhase::Seeks => (101 + 10, 111 * 8192),
                    _ if phase.uses_file() => (32, 256 << 10),
                    _ => (50, 0),
                };
                assert_eq!((done, bytes), expected, "{phase:?} {fsync:?}");
                let kinds: Vec<OpKind> = outcome.figures.ops().map(|(kind, _)| kind).collect();
                assert_eq!(kinds, phase.kinds());
                assert!(
                    outcome.figures.ops().all(|(_, op)| op.completed > 0),
                    "{phase:?}"
                );
                assert_eq!(outcome.figures.response().count(), done);
                assert!(
                    outcome.began >= outcome.start && outcome.began < outcome.end,
                    "{phase:?}"
                );
                assert!(
                    outcome.requests_per_second > 0.0
                        && outcome.figures.cost.system_calls >= done / 2
                );
                assert!(
                    cache
                        .read_share
                        .is_none_or(|share| (0.0..=1.0).contains(&share))
                );
            }
            system.close().unwrap();
        }
        let left: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .flatten()
            .map(|e| e.file_name())
            .collect();
        assert_eq!(left, ["theirs"]);
        assert_eq!(
            std::fs::read(directory.join("theirs")).unwrap(),
            b"untouched"
        );
    }

    /// An interrupted phase is reported as such, and leaves nothing behind either.
    #[test]
    fn an_interrupted_phase_is_reported_and_leaves_nothing_behind() {
        let scratch = tempdir().unwrap();
        let directory = scratch.path();
        let mut system = FileSystem::open(&small(directory)).unwrap();
        let stopped = Commands::new();
        stopped.give(LoadCommand::Stop);
        for phase in FilePhase::ALL {
            let (outcome, _) = run(&mut system, phase, &stopped);
            assert_eq!(outcome.stopped, Stopped::Interrupted, "{phase:?}");
        }
        drop(system);
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0);
    }

    /// A file that someone else put into our folder is kept and reported.
    #[test]
    fn a_file_of_another_process_is_kept_and_reported() {
        let scratch = tempdir().unwrap();
        let directory = scratch.path();
        let system = FileSystem::open(&small(directory)).unwrap();
        let theirs = system.folder.join("theirs");
        std::fs::write(&theirs, "x").unwrap();
        assert!(
            system
                .close()
                .unwrap_err()
                .to_string()
                .contains("cannot be removed")
        );
        assert!(theirs.exists());
    }

    /// An unusable directory is reported before anything is measured.
    #[test]
    fn an_unusable_directory_is_reported_before_anything_is_measured() {
        let error = |load: &FileSystemLoad| FileSystem::open(load).err().unwrap().to_string();
        assert!(
            error(&FileSystemLoad::new(Path::new("/nowhere"))).contains("/nowhere: cannot be used")
        );
        let scratch = tempdir().unwrap();
        let directory = scratch.path();
        let load = FileSystemLoad {
            file_size: Some(Size(1 << 60)),
            ..small(directory)
        };
        assert!(error(&load).contains("does not fit"));
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0);
    }
}
