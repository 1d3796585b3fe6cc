//! PostMark's transactions on a worker's files: each reads a whole file or appends to it, and creates or removes a file.
//!
//! The rule: every run starts with the same files, so a file that was appended to is marked as unknown and created
//! again.

use brunt_core::random::Random;
use brunt_result::OpKind;

use super::place::{MetadataPlace, PlaceResult};
use super::settings::MetadataTransactions;
use super::walker::{ItemKind, Presence, Walker};
use crate::file::meter::PhaseMeter;

/// Kinds of the phase's requests, in the order of their figures; the phases that create files also begin with
/// `Create` and `Write`.
pub(super) const KINDS: &[OpKind] = &[OpKind::Create, OpKind::Write, OpKind::Read, OpKind::Remove];
const READ: usize = 2;
const REMOVE: usize = 3;

/// A file that exists.
#[derive(Clone, Copy)]
struct PoolFile {
    index: usize,
    len: usize,
}

impl<P: MetadataPlace> Walker<'_, P> {
    /// Runs the prepared phase until it is done or stopped. Choices depend only on the seed.
    pub(super) fn transact(&mut self, seed: u64, meter: &mut PhaseMeter<'_>) -> PlaceResult<()> {
        let settings = self.job.settings.transactions;
        let MetadataTransactions {
            count,
            read,
            create,
        } = settings.expect("checked with the phases");
        let mut random = Random::for_part(seed, self.names.rank.into());
        let mut pool = Vec::with_capacity(self.names.files.len());
        for index in 0..self.names.files.len() {
            let (item, _) = self.locate(ItemKind::File, index);
            let len = self.len_of(item);
            pool.push(PoolFile { index, len });
        }
        for _ in 0..count {
            if meter.is_over() {
                break;
            }
            let is_read = random.chance(read);
            // An empty pool has no file to read, append to or remove.
            if !pool.is_empty() {
                let chosen = random.below(pool.len() as u64) as usize;
                match is_read {
                    true => self.read_one(pool[chosen], meter)?,
                    false => self.append_to(&mut pool, chosen, &mut random, meter)?,
                }
            }
            let is_creation = random.chance(create);
            if is_creation {
                self.create_one(&mut pool, meter)?;
            } else if !pool.is_empty() {
                let chosen = random.below(pool.len() as u64) as usize;
                self.remove_one(pool.swap_remove(chosen), meter)?;
            }
        }
        Ok(())
    }

    fn read_one(&mut self, file: PoolFile, meter: &mut PhaseMeter<'_>) -> PlaceResult<()> {
        let (_, at) = self.locate(ItemKind::File, file.index);
        self.read_file(&at, file.len, READ, meter)
    }

    /// Appends up to the largest size; a file of that size is left unchanged. A file that could not be appended to is
    /// not used again.
    fn append_to(
        &mut self,
        pool: &mut Vec<PoolFile>,
        chosen: usize,
        random: &mut Random,
        meter: &mut PhaseMeter<'_>,
    ) -> PlaceResult<()> {
        let PoolFile { index, len } = pool[chosen];
        let room = self.data.len() - len;
        if room == 0 {
            return Ok(());
        }
        let more = 1 + random.below(room as u64) as usize;
        let (_, at) = self.locate(ItemKind::File, index);
        self.names.files[index] = Presence::Unknown;
        let opened = self.place.open_file(&at, &self.text);
        let written = opened.and_then(|file| self.finish(file, len as u64, more));
        match self.count_write(meter, written, more)? {
            true => pool[chosen].len += more,
            false => drop(pool.swap_remove(chosen)),
        }
        Ok(())
    }

    fn create_one(
        &mut self,
        pool: &mut Vec<PoolFile>,
        meter: &mut PhaseMeter<'_>,
    ) -> PlaceResult<()> {
        let index = self.names.files.len();
        self.names.files.push(Presence::Unknown);
        let (item, at) = self.locate(ItemKind::File, index);
        if self.create_file(&at, item, meter)? {
            self.names.files[index] = Presence::Present;
            let len = self.len_of(item);
            pool.push(PoolFile { index, len });
        }
        Ok(())
    }

    fn remove_one(&mut self, file: PoolFile, meter: &mut PhaseMeter<'_>) -> PlaceResult<()> {
        let (_, at) = self.locate(ItemKind::File, file.index);
        self.names.files[file.index] = Presence::Unknown;
        let removed = self.place.remove(&at, &self.text);
        if self.count_in(REMOVE, meter, removed)?.is_some() {
            self.names.files[file.index] = Presence::Absent;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::time::Duration;

    use brunt_core::Clock;
    use brunt_result::Outcome;

    use super::super::mounted::Mounted;
    use super::super::settings::{MetadataPhase, MetadataSettings};
    use super::super::walker::{WalkerJob, WorkerNames};
    use super::*;
    use crate::NoRecorder;
    use crate::commands::Commands;

    fn run(directory: &Path, settings: &MetadataSettings, names: &mut WorkerNames) -> Outcome {
        let job = WalkerJob {
            settings,
            tree: "t",
            workers_of_all: 1,
            is_stopped: &|| false,
        };
        let (commands, mut nobody) = (Commands::new(), NoRecorder);
        let walker = &mut Walker::new(job, Mounted::new(directory), names);
        walker.prepare(MetadataPhase::Transactions).unwrap();
        let start = Clock::Monotonic.now();
        let mut meter = PhaseMeter::new(KINDS, start, Duration::ZERO, &commands, &mut nobody);
        walker
            .run(MetadataPhase::Transactions, 7, &mut meter)
            .unwrap();
        meter.finish(Clock::Monotonic.now())
    }

    /// Sizes of all files by their names.
    fn files(directory: &Path) -> BTreeMap<String, u64> {
        let found = std::fs::read_dir(directory.join("t/mdtest_tree.0")).unwrap();
        let size = |entry: std::io::Result<std::fs::DirEntry>| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, entry.metadata().unwrap().len())
        };
        found.map(size).collect()
    }

    fn counts(outcome: &Outcome) -> Vec<u64> {
        outcome.figures.ops().map(|(_, op)| op.completed).collect()
    }

    #[test]
    fn a_run_with_the_same_seed_starts_with_the_same_files_and_leaves_the_same() {
        let scratch = tempfile::tempdir().unwrap();
        let place = scratch.path();
        let text = format!(
            "directory = \"{}\"\nitems = 20\nfile_size = {{ kind = \"uniform\", min = \"512\", \
             max = \"10240\" }}\ntransactions = {{ count = 300 }}",
            place.display()
        );
        let settings: MetadataSettings = toml::from_str(&text).unwrap();
        let mut names = WorkerNames::default();
        let first = run(place, &settings, &mut names);
        assert_eq!(first.figures.counts.errors(), 0, "{:?}", first.causes);
        let left = files(place);
        assert!(left.values().all(|size| (512..=10_240).contains(size)));
        let [created, _, _, removed] = counts(&first)[..] else {
            panic!("four kinds");
        };
        assert_eq!(left.len() as u64, 20 + created - removed);
        let again = run(place, &settings, &mut names);
        assert_eq!(again.figures.counts.errors(), 0, "{:?}", again.causes);
        assert_eq!(counts(&again), counts(&first));
        assert_eq!(files(place), left);
        let job = WalkerJob {
            settings: &settings,
            tree: "t",
            workers_of_all: 1,
            is_stopped: &|| false,
        };
        Walker::new(job, Mounted::new(place), &mut names)
            .clean()
            .unwrap();
        assert!(!place.join("t/mdtest_tree.0").exists());
    }

    /// Transactions that only remove files empty the pool, and then nothing is left to do.
    #[test]
    fn an_empty_pool_ends_reads_and_removals() {
        let scratch = tempfile::tempdir().unwrap();
        let place = scratch.path();
        let text = format!(
            "directory = \"{}\"\nitems = 5\nfile_size = \"100\"\ntransactions = {{ count = 9, read = 1, create = 0 }}",
            place.display()
        );
        let settings: MetadataSettings = toml::from_str(&text).unwrap();
        let outcome = run(place, &settings, &mut WorkerNames::default());
        assert_eq!(counts(&outcome), [0, 0, 5, 5]);
        assert!(files(place).is_empty());
    }
}
