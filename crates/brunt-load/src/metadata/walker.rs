//! One worker of a metadata load: prepares a phase, runs it, and removes what it created.
//!
//! Several workers, on several hosts, prepare a shared tree at the same time without coordination: they use a
//! directory that already exists, and ignore one that another worker has removed or is still filling.
//!
//! The rule: the state of each item is kept across runs, and an operation that failed leaves it unknown.

use std::fmt::Write;
use std::ops::Range;

use brunt_core::random::Random;

use super::place::{MetadataPlace, NameErrorKind, PlaceError, PlaceResult};
use super::settings::{MetadataOrder, MetadataPhase, MetadataSettings, MetadataTrees};
use super::shape::TreeShape;
use crate::block::seeded::Pattern;
use crate::file::meter::PhaseMeter;
use crate::file_sizes::FileSizeSampler;

/// Whether an item exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Absent,
    /// The item exists as this load creates it.
    Present,
    /// The item may or may not exist, and may differ from what this load creates.
    Unknown,
}

/// What a worker has created, kept across runs.
#[derive(Debug, Default)]
pub(super) struct WorkerNames {
    /// Items beyond those of the shape are created by transactions.
    pub(super) files: Vec<Presence>,
    directories: Vec<Presence>,
    /// Whether the tree may exist.
    has_tree: bool,
    /// The worker's number, counted across all hosts.
    pub(super) rank: u32,
}

/// A kind of item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    File,
    Directory,
}

/// Parameters of a worker.
#[derive(Clone, Copy)]
pub(super) struct WalkerJob<'a> {
    pub(super) settings: &'a MetadataSettings,
    /// Name of the load's directory.
    pub(super) tree: &'a str,
    /// Number of workers on all hosts.
    pub(super) workers_of_all: u32,
    pub(super) is_stopped: &'a dyn Fn() -> bool,
}

/// A worker; see the module's docs.
pub(super) struct Walker<'a, P: MetadataPlace> {
    pub(super) job: WalkerJob<'a>,
    pub(super) place: P,
    pub(super) names: &'a mut WorkerNames,
    shape: TreeShape,
    sizes: Option<FileSizeSampler>,
    /// The load's directory.
    base: Option<P::Directory>,
    /// The tree's directories, where they exist.
    directories: Vec<Option<P::Directory>>,
    /// Data of the longest file.
    pub(super) data: Vec<u8>,
    /// Name of the next item.
    pub(super) text: String,
}

impl<'a, P: MetadataPlace> Walker<'a, P> {
    pub(super) fn new(job: WalkerJob<'a>, place: P, names: &'a mut WorkerNames) -> Walker<'a, P> {
        let (settings, shape) = (job.settings, job.settings.shape());
        let numbers = shape.item_numbers();
        let count = (numbers.end - numbers.start) as usize;
        if names.files.len() < count {
            names.files.resize(count, Presence::Absent);
        }
        names.directories.resize(count, Presence::Absent);
        let longest = settings
            .file_size
            .as_ref()
            .map_or(0, |sizes| sizes.largest());
        let mut data = vec![0; longest as usize];
        Pattern::Seeded(names.rank.into()).fill(0, &mut data);
        let sizes = settings.file_size.as_ref();
        Walker {
            sizes: sizes.map(|sizes| FileSizeSampler::new(sizes, names.rank)),
            job,
            place,
            names,
            shape,
            base: None,
            directories: Vec::new(),
            data,
            text: String::new(),
        }
    }

    /// Creates exactly the entries that a phase needs, and removes all others.
    pub(super) fn prepare(&mut self, phase: MetadataPhase) -> PlaceResult<()> {
        use MetadataPhase as Phase;
        let (files, directories) = match phase {
            Phase::FileStat
            | Phase::FileRead
            | Phase::Readdir
            | Phase::Transactions
            | Phase::FileRemoval => (true, false),
            Phase::DirectoryStat | Phase::DirectoryRemoval => (false, true),
            _ => (false, false),
        };
        self.enter()?;
        self.find_tree(phase != Phase::TreeCreation)?;
        for (kind, wanted) in [(ItemKind::File, files), (ItemKind::Directory, directories)] {
            self.settle(kind, wanted)?;
        }
        match phase {
            Phase::TreeCreation => self.remove_tree(),
            _ => Ok(()),
        }
    }

    /// Runs a prepared phase until it is done or stopped.
    pub(super) fn run(
        &mut self,
        phase: MetadataPhase,
        seed: u64,
        meter: &mut PhaseMeter<'_>,
    ) -> PlaceResult<()> {
        let is_first = self.job.settings.trees == MetadataTrees::Unique || self.names.rank == 0;
        match phase {
            MetadataPhase::TreeCreation if is_first => self.create_tree(meter),
            MetadataPhase::TreeRemoval if is_first => self.measure_tree_removal(meter),
            MetadataPhase::TreeCreation | MetadataPhase::TreeRemoval => Ok(()),
            MetadataPhase::Readdir => self.list_all(meter),
            MetadataPhase::Transactions => self.transact(seed, meter),
            phase => {
                for index in self.order(phase, seed) {
                    if meter.is_over() {
                        break;
                    }
                    self.step(phase, index as usize, meter)?;
                }
                Ok(())
            }
        }
    }

    /// Removes everything that this worker created, except the load's directory.
    pub(super) fn clean(&mut self) -> PlaceResult<()> {
        if !self.names.has_tree {
            return Ok(());
        }
        self.enter()?;
        self.find_tree(false)?;
        self.settle(ItemKind::File, false)?;
        self.settle(ItemKind::Directory, false)?;
        self.remove_tree()
    }

    /// Removes the load's directory; on several hosts, only the last one can.
    pub(super) fn remove_base(&mut self, is_shared: bool) -> PlaceResult<()> {
        let top = self.place.top()?;
        let removed = self.place.remove_directory(&top, self.job.tree);
        tolerate(removed, &[NameErrorKind::Missing], is_shared)
    }

    /// Creates or finds the load's directory.
    fn enter(&mut self) -> PlaceResult<()> {
        let top = self.place.top()?;
        self.base = Some(make_or_open(&mut self.place, &top, self.job.tree)?);
        Ok(())
    }

    /// Finds the directories of the tree, and creates missing ones if requested.
    fn find_tree(&mut self, is_wanted: bool) -> PlaceResult<()> {
        let count = self.shape.directories().expect("the shape was checked");
        self.directories = vec![None; count as usize];
        let had_tree = self.names.has_tree;
        self.names.has_tree |= is_wanted;
        for directory in 0..count {
            self.check_stopped()?;
            let Some(at) = self.parent(directory) else {
                continue;
            };
            self.directory_name(directory);
            let mut found = None;
            if had_tree {
                found = match self.place.open(&at, &self.text) {
                    Err(error) if error.is(NameErrorKind::Missing) => None,
                    opened => Some(opened?),
                };
            }
            if found.is_none() && is_wanted {
                found = Some(make_or_open(&mut self.place, &at, &self.text)?);
            }
            self.directories[directory as usize] = found;
        }
        Ok(())
    }

    /// Removes the tree's directories, unless they still have items of other workers.
    fn remove_tree(&mut self) -> PlaceResult<()> {
        let is_shared = self.job.settings.trees == MetadataTrees::Shared;
        for directory in (0..self.directories.len() as u32).rev() {
            self.check_stopped()?;
            if self.directories[directory as usize].take().is_none() {
                continue;
            }
            let at = self.parent(directory).expect("found in its parent");
            self.directory_name(directory);
            let removed = self.place.remove_directory(&at, &self.text);
            tolerate(removed, &[NameErrorKind::Missing], is_shared)?;
        }
        self.names.has_tree = false;
        Ok(())
    }

    fn create_tree(&mut self, meter: &mut PhaseMeter<'_>) -> PlaceResult<()> {
        self.names.has_tree = true;
        for directory in 0..self.directories.len() as u32 {
            if meter.is_over() {
                break;
            }
            let Some(at) = self.parent(directory) else {
                continue;
            };
            self.directory_name(directory);
            let made = self.place.make_directory(&at, &self.text);
            self.directories[directory as usize] = self.count(meter, made)?;
        }
        Ok(())
    }

    fn measure_tree_removal(&mut self, meter: &mut PhaseMeter<'_>) -> PlaceResult<()> {
        for directory in (0..self.directories.len() as u32).rev() {
            if meter.is_over() {
                break;
            }
            let at = self.parent(directory).expect("prepared");
            self.directory_name(directory);
            let removed = self.place.remove_directory(&at, &self.text);
            self.count(meter, removed)?;
        }
        Ok(())
    }

    fn list_all(&mut self, meter: &mut PhaseMeter<'_>) -> PlaceResult<()> {
        let with_items = self.shape.with_items();
        let workers = match self.job.settings.trees {
            MetadataTrees::Shared => self.job.workers_of_all,
            MetadataTrees::Unique => 1,
        };
        let items = u64::from(self.shape.items) * u64::from(workers);
        // Only the deepest level has no subdirectories.
        let deepest = TreeShape {
            leaf_only: true,
            ..self.shape
        };
        let deepest = deepest.with_items();
        for (directory, at) in self.directories.iter().enumerate() {
            if meter.is_over() {
                break;
            }
            let at = at.as_ref().expect("prepared");
            let listed = self.place.list(at);
            meter.calls(self.place.take_calls());
            let directory = directory as u32;
            let mut expected = match with_items.contains(&directory) {
                true => items,
                false => 0,
            };
            if !deepest.contains(&directory) {
                expected += u64::from(self.shape.branch);
            }
            match listed {
                Ok(count) if count >= expected => meter.request(0, 0),
                Ok(count) => meter.wrong(0, format!("listed {count} of {expected} entries")),
                Err(error) => failed(meter, 0, error)?,
            }
        }
        Ok(())
    }

    /// Performs one operation of a phase on an item.
    fn step(
        &mut self,
        phase: MetadataPhase,
        index: usize,
        meter: &mut PhaseMeter<'_>,
    ) -> PlaceResult<()> {
        let kind = match phase {
            MetadataPhase::DirectoryCreation
            | MetadataPhase::DirectoryStat
            | MetadataPhase::DirectoryRemoval => ItemKind::Directory,
            _ => ItemKind::File,
        };
        let (item, at) = self.locate(kind, index);
        match phase {
            MetadataPhase::FileCreation => {
                self.names.files[index] = Presence::Unknown;
                if self.create_file(&at, item, meter)? {
                    self.names.files[index] = Presence::Present;
                }
            }
            MetadataPhase::DirectoryCreation => {
                self.names.directories[index] = Presence::Unknown;
                let made = self.place.make_directory(&at, &self.text);
                if self.count(meter, made)?.is_some() {
                    self.names.directories[index] = Presence::Present;
                }
            }
            MetadataPhase::FileRemoval | MetadataPhase::DirectoryRemoval => {
                self.remember(kind, index, Presence::Unknown);
                let removed = self.remove_item(kind, &at);
                if self.count(meter, removed)?.is_some() {
                    self.remember(kind, index, Presence::Absent);
                }
            }
            MetadataPhase::FileRead => self.read_file(&at, self.len_of(item), 0, meter)?,
            _ => {
                let found = self.place.stat(&at, &self.text);
                self.count(meter, found)?;
            }
        }
        Ok(())
    }

    /// Returns the number of an item and its directory; leaves the item's name in `text`.
    pub(super) fn locate(&mut self, kind: ItemKind, index: usize) -> (u64, P::Directory) {
        let item = self.shape.item_numbers().start + index as u64;
        self.item_name(kind, item);
        let at = self.directories[self.shape.directory_of(item)].clone();
        (item, at.expect("prepared"))
    }

    /// Creates a file whose name is in `text`; returns whether all of its data was written.
    pub(super) fn create_file(
        &mut self,
        at: &P::Directory,
        item: u64,
        meter: &mut PhaseMeter<'_>,
    ) -> PlaceResult<bool> {
        let len = self.len_of(item);
        let file = self.place.create(at, &self.text);
        if len == 0 {
            let fsync = self.job.settings.fsync;
            let made = file.and_then(|file| self.place.finish(file, 0, &[], fsync));
            return Ok(self.count(meter, made)?.is_some());
        }
        let Some(file) = self.count(meter, file)? else {
            return Ok(false);
        };
        let written = self.finish(file, 0, len);
        self.count_write(meter, written, len)
    }

    /// Counts a write of this many bytes; returns whether it succeeded.
    pub(super) fn count_write(
        &mut self,
        meter: &mut PhaseMeter<'_>,
        written: PlaceResult<()>,
        len: usize,
    ) -> PlaceResult<bool> {
        meter.calls(self.place.take_calls());
        match written {
            Ok(()) => meter.request(1, len as u64),
            Err(error) => {
                failed(meter, 1, error)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a file of this length whose name is in `text`; `slot` is the index of its kind.
    pub(super) fn read_file(
        &mut self,
        at: &P::Directory,
        len: usize,
        slot: usize,
        meter: &mut PhaseMeter<'_>,
    ) -> PlaceResult<()> {
        let read = self.place.read(at, &self.text, &mut self.data[..len]);
        meter.calls(self.place.take_calls());
        match read {
            Ok(bytes) if bytes == len as u64 => meter.request(slot, bytes),
            Ok(bytes) => meter.wrong(slot, format!("read {bytes} of {len} bytes")),
            Err(error) => failed(meter, slot, error)?,
        }
        Ok(())
    }

    /// Creates or removes items of a kind until all exist, or none. Items that transactions created are removed.
    fn settle(&mut self, kind: ItemKind, wanted: bool) -> PlaceResult<()> {
        let Range { start: first, end } = self.shape.item_numbers();
        let items = (end - first) as usize;
        let count = match kind {
            ItemKind::File => self.names.files.len(),
            ItemKind::Directory => items,
        };
        for index in 0..count {
            let state = match kind {
                ItemKind::File => self.names.files[index],
                ItemKind::Directory => self.names.directories[index],
            };
            let wanted = wanted && index < items;
            let settled = match wanted {
                true => Presence::Present,
                false => Presence::Absent,
            };
            if state == settled {
                continue;
            }
            self.check_stopped()?;
            let item = first + index as u64;
            let Some(at) = self.directories[self.shape.directory_of(item)].clone() else {
                // Its directory is gone, and so is the item.
                self.remember(kind, index, Presence::Absent);
                continue;
            };
            self.item_name(kind, item);
            if state != Presence::Absent {
                let removed = self.remove_item(kind, &at);
                tolerate(removed, &[NameErrorKind::Missing], false)?;
            }
            if wanted {
                self.remember(kind, index, Presence::Unknown);
                self.make_item(kind, &at, item)?;
            }
            self.remember(kind, index, settled);
        }
        if kind == ItemKind::File {
            self.names.files.truncate(items);
        }
        Ok(())
    }

    fn make_item(&mut self, kind: ItemKind, at: &P::Directory, item: u64) -> PlaceResult<()> {
        match kind {
            ItemKind::File => {
                let file = self.place.create(at, &self.text)?;
                let len = self.len_of(item);
                self.finish(file, 0, len)
            }
            ItemKind::Directory => self.place.make_directory(at, &self.text).map(|_| ()),
        }
    }

    fn remove_item(&mut self, kind: ItemKind, at: &P::Directory) -> PlaceResult<()> {
        match kind {
            ItemKind::File => self.place.remove(at, &self.text),
            ItemKind::Directory => self.place.remove_directory(at, &self.text),
        }
    }

    /// Writes this many bytes at this offset, and closes the file.
    pub(super) fn finish(&mut self, file: P::File, offset: u64, len: usize) -> PlaceResult<()> {
        let fsync = self.job.settings.fsync;
        self.place.finish(file, offset, &self.data[..len], fsync)
    }

    pub(super) fn len_of(&self, item: u64) -> usize {
        let sizes = self.sizes.as_ref();
        sizes.map_or(0, |sizes| sizes.size_of(item) as usize)
    }

    fn remember(&mut self, kind: ItemKind, index: usize, presence: Presence) {
        match kind {
            ItemKind::File => self.names.files[index] = presence,
            ItemKind::Directory => self.names.directories[index] = presence,
        }
    }

    /// Counts an operation without data, of a phase's first kind.
    fn count<T>(
        &mut self,
        meter: &mut PhaseMeter<'_>,
        result: PlaceResult<T>,
    ) -> PlaceResult<Option<T>> {
        self.count_in(0, meter, result)
    }

    /// Counts an operation without data; `slot` is the index of its kind.
    pub(super) fn count_in<T>(
        &mut self,
        slot: usize,
        meter: &mut PhaseMeter<'_>,
        result: PlaceResult<T>,
    ) -> PlaceResult<Option<T>> {
        meter.calls(self.place.take_calls());
        match result {
            Ok(done) => {
                meter.request(slot, 0);
                Ok(Some(done))
            }
            Err(error) => failed(meter, slot, error).map(|()| None),
        }
    }

    /// Returns the indexes of a phase's items, each once.
    fn order(&self, phase: MetadataPhase, seed: u64) -> Vec<u32> {
        use MetadataPhase as Phase;
        let mut order: Vec<u32> = (0..self.names.files.len() as u32).collect();
        let looks = matches!(
            phase,
            Phase::DirectoryStat | Phase::FileStat | Phase::FileRead
        );
        if looks && self.job.settings.order == MetadataOrder::Random {
            let mut random = Random::for_part(seed, self.names.rank.into());
            for end in (1..order.len()).rev() {
                order.swap(end, random.below(end as u64 + 1) as usize);
            }
        }
        order
    }

    /// Returns the parent of one of the tree's directories, if it exists.
    fn parent(&self, directory: u32) -> Option<P::Directory> {
        match self.shape.parent_of(directory) {
            None => self.base.clone(),
            Some(parent) => self.directories[parent as usize].clone(),
        }
    }

    fn directory_name(&mut self, directory: u32) {
        self.text.clear();
        let rank = self.names.rank;
        let written = match self.job.settings.trees {
            MetadataTrees::Shared => write!(self.text, "mdtest_tree.{directory}"),
            MetadataTrees::Unique => write!(self.text, "mdtest_tree.{rank}.{directory}"),
        };
        written.expect("a string takes all characters");
    }

    fn item_name(&mut self, kind: ItemKind, item: u64) {
        self.text.clear();
        let kind = match kind {
            ItemKind::File => "file",
            ItemKind::Directory => "dir",
        };
        let written = write!(self.text, "{kind}.mdtest.{}.{item}", self.names.rank);
        written.expect("a string takes all characters");
    }

    fn check_stopped(&self) -> PlaceResult<()> {
        match (self.job.is_stopped)() {
            true => Err(PlaceError::Stopped),
            false => Ok(()),
        }
    }
}

fn make_or_open<P: MetadataPlace>(
    place: &mut P,
    at: &P::Directory,
    name: &str,
) -> PlaceResult<P::Directory> {
    match place.make_directory(at, name) {
        Err(error) if error.is(NameErrorKind::Exists) => place.open(at, name),
        made => made,
    }
}

/// Counts a failed operation; returns an error if all further operations will fail, too.
fn failed(meter: &mut PhaseMeter<'_>, slot: usize, error: PlaceError) -> PlaceResult<()> {
    match error {
        PlaceError::Failed { error, .. } => {
            meter.failed(slot, error);
            Ok(())
        }
        error => Err(error),
    }
}

/// Ignores errors of these kinds and, in a shared tree, directories that are still in use.
fn tolerate(result: PlaceResult<()>, kinds: &[NameErrorKind], is_shared: bool) -> PlaceResult<()> {
    let is_fine = |error: &PlaceError| {
        kinds.iter().any(|kind| error.is(*kind)) || is_shared && error.is(NameErrorKind::NotEmpty)
    };
    match result {
        Err(error) if is_fine(&error) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use brunt_core::Clock;
    use brunt_result::Outcome;

    use super::super::mounted::Mounted;
    use super::*;
    use crate::NoRecorder;
    use crate::commands::Commands;

    /// Prepares a phase for two workers, calls `between`, then prepares the phase again and runs it for each worker.
    fn run(
        directory: &Path,
        workers: &mut [WorkerNames; 2],
        phase: MetadataPhase,
        between: impl FnOnce(),
    ) -> Vec<Outcome> {
        let text = format!(
            "directory = \"{}\"\nitems = 3\ndepth = 1",
            directory.display()
        );
        let settings: MetadataSettings = toml::from_str(&text).unwrap();
        let job = WalkerJob {
            settings: &settings,
            tree: "t",
            workers_of_all: 2,
            is_stopped: &|| false,
        };
        let (commands, mut nobody) = (Commands::new(), NoRecorder);
        for (rank, names) in (0..).zip(workers.iter_mut()) {
            names.rank = rank;
            let walker = &mut Walker::new(job, Mounted::new(directory), names);
            walker.prepare(phase).unwrap();
        }
        between();
        let work = |names: &mut WorkerNames| {
            let walker = &mut Walker::new(job, Mounted::new(directory), names);
            walker.prepare(phase).unwrap();
            let kinds = settings.kinds(phase);
            let start = Clock::Monotonic.now();
            let mut meter = PhaseMeter::new(kinds, start, Duration::ZERO, &commands, &mut nobody);
            walker.run(phase, 1, &mut meter).unwrap();
            meter.finish(Clock::Monotonic.now())
        };
        workers.iter_mut().map(work).collect()
    }

    fn counts(outcomes: &[Outcome]) -> Vec<(u64, u64)> {
        let count = |outcome: &Outcome| {
            let figures = &outcome.figures;
            (figures.completed(), figures.counts.errors())
        };
        outcomes.iter().map(count).collect()
    }

    /// An item that another program removed causes a failure, and is created again for the next phase. The last
    /// worker to finish removes a shared tree.
    #[test]
    fn a_missing_item_is_counted_and_made_again() {
        let scratch = tempfile::tempdir().unwrap();
        let mut workers = <[WorkerNames; 2]>::default();
        let place = scratch.path();
        let file = place.join("t/mdtest_tree.0/mdtest_tree.1/file.mdtest.1.4");
        let mut phase = |phase, between: &dyn Fn()| run(place, &mut workers, phase, between);
        let remove = || std::fs::remove_file(&file).unwrap();
        let found = phase(MetadataPhase::FileStat, &remove);
        assert_eq!(counts(&found), [(6, 0), (5, 1)]);
        assert_eq!(found[1].causes[0].op, brunt_result::OpKind::GetAttributes);
        let listed = phase(MetadataPhase::Readdir, &|| {});
        assert_eq!(
            counts(&listed),
            [(1, 1), (1, 1)],
            "one of 6 entries is missing"
        );
        assert!(
            listed[0]
                .first_error
                .as_ref()
                .unwrap()
                .text
                .contains("5 of 6")
        );
        let removed = phase(MetadataPhase::FileRemoval, &|| {});
        assert_eq!(counts(&removed), [(6, 0), (5, 1)]);
        let found = phase(MetadataPhase::FileStat, &|| assert!(file.exists()));
        assert_eq!(counts(&found), [(6, 0), (6, 0)]);
        let made = phase(MetadataPhase::TreeCreation, &|| {});
        assert_eq!(
            counts(&made),
            [(2, 0), (0, 0)],
            "the first worker creates it"
        );
    }
}
