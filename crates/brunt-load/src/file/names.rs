//! Empty files, created, looked up and unlinked by name in our own folder. Names are relative to its file descriptor,
//! so that only our files are unlinked even if the path above changes.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use brunt_core::random::Random;
use rustix::fs::{AtFlags, Mode, OFlags, fsync, openat, statat, unlinkat};

use super::meter::PhaseMeter;
use super::settings::{FilePhase, FileSystemLoad, Fsync};
use crate::commands::Commands;

#[derive(Debug)]
pub(super) struct Names {
    folder: File,
    /// Which of the files exist.
    there: Vec<bool>,
    count: u64,
}

/// A name such as `f00000042`, in a fixed buffer: no allocation per file.
struct Name([u8; 9]);

impl Name {
    fn new(index: u64) -> Name {
        let mut bytes = [0; 9];
        // FILES_MAX has eight digits.
        write!(&mut bytes[..], "f{index:08}").expect("nine bytes hold an f and eight digits");
        Name(bytes)
    }
}

impl Names {
    pub(super) fn new(folder: &Path, count: u64) -> io::Result<Names> {
        Ok(Names {
            folder: File::open(folder)?,
            there: vec![false; count as usize],
            count,
        })
    }

    /// Creates or removes files until all of them exist, or none does. Returns false if interrupted.
    pub(super) fn make(&mut self, there: bool, commands: &Commands) -> io::Result<bool> {
        for index in 0..self.count {
            if self.there[index as usize] == there {
                continue;
            }
            if commands.is_stopped() {
                return Ok(false);
            }
            if there {
                self.create(index, false)?
            } else {
                self.unlink(index)?
            }
        }
        Ok(true)
    }

    /// Flushes the folder's entries to the medium.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    /// Returns the index of every file once, either in name order or shuffled.
    pub(super) fn order(&self, phase: FilePhase, seed: u64) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.count as u32).collect();
        if matches!(
            phase,
            FilePhase::CreateRandom | FilePhase::StatRandom | FilePhase::UnlinkRandom
        ) {
            let mut random = Random::new(seed);
            for end in (1..order.len()).rev() {
                order.swap(end, random.below(end as u64 + 1) as usize);
            }
        }
        order
    }

    /// Performs the phase's operation on every file, in this order.
    pub(super) fn walk(
        &mut self,
        phase: FilePhase,
        order: &[u32],
        load: &FileSystemLoad,
        meter: &mut PhaseMeter<'_>,
    ) -> io::Result<()> {
        let each = load.fsync == Fsync::Each;
        for &index in order {
            let index = u64::from(index);
            if meter.is_over() {
                return Ok(());
            }
            match phase {
                FilePhase::CreateSequential | FilePhase::CreateRandom => {
                    self.create(index, each)?;
                    meter.calls(2 + u64::from(each));
                    meter.request(0, 0);
                }
                FilePhase::StatSequential | FilePhase::StatRandom => {
                    statat(
                        &self.folder,
                        &Name::new(index).0[..],
                        AtFlags::SYMLINK_NOFOLLOW,
                    )?;
                    meter.calls(1);
                    meter.request(0, 0);
                }
                _ => {
                    self.unlink(index)?;
                    if each {
                        self.sync()?;
                    }
                    meter.calls(1 + u64::from(each));
                    meter.request(0, 0);
                }
            }
        }
        Ok(())
    }

    fn create(&mut self, index: u64, sync: bool) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(
            &self.folder,
            &Name::new(index).0[..],
            flags,
            Mode::from_raw_mode(0o600),
        )?;
        self.there[index as usize] = true;
        if sync {
            fsync(&file)?;
        }
        Ok(())
    }

    fn unlink(&mut self, index: u64) -> io::Result<()> {
        unlinkat(&self.folder, &Name::new(index).0[..], AtFlags::empty())?;
        self.there[index as usize] = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A random order visits every file once, and is neither ascending nor descending.
    #[test]
    fn a_random_order_visits_every_file_once() {
        let names = Names {
            folder: File::open("/").unwrap(),
            there: Vec::new(),
            count: 1000,
        };
        let all: Vec<u32> = (0..1000).collect();
        assert_eq!(names.order(FilePhase::StatSequential, 1), all);
        let mut order = names.order(FilePhase::StatRandom, 1);
        let ascents = order.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((400..600).contains(&ascents), "{ascents}");
        assert_eq!(order, names.order(FilePhase::StatRandom, 1));
        order.sort_unstable();
        assert_eq!(order, all);
        assert_eq!(&Name::new(42).0, b"f00000042");
    }
}
