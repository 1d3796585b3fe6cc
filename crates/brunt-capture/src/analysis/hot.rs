//! The hottest files, directories, clients, and pairs of client and file, by operations, bytes and time. Each
//! operation costs one lookup per table.

use std::cmp::Reverse;

use brunt_core::HyperLogLog;
use brunt_core::sketch::spread;
use brunt_result::capture::{AnalysisSection, CountKind, SectionColumn, SectionUnit};
use brunt_wire::net::IpAddress;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;

use super::Latency;
use super::analyse::Analyse;
use super::bounded::{Bounded, NOWHERE, Weight};
use super::event::OperationEvent;
use super::names::{Name, Names, StoredName};
use crate::dissect::rpc::GETATTR;
use crate::key::address;
use crate::operation::FileKey;

const FILES_MAX: usize = 64 << 10;
const CLIENTS_MAX: usize = 8 << 10;
const PAIRS_MAX: usize = 64 << 10;
/// A file's latencies are recorded from its 32nd operation on: quantiles of fewer samples are not meaningful.
const LATENCY_FROM: u64 = 32;
/// Maximum files with recorded latencies: 16 MiB of histograms.
const LATENCIES_MAX: usize = 16 << 10;
/// Names collected before a batched lookup.
const DEFERRED_MAX: usize = 64;
/// Storage expects offsets to be multiples of this number of bytes.
const ALIGNMENT: u64 = 4096;
/// Maximum clients in the section on misaligned transfers.
const MISALIGNED_MAX: usize = 25;
/// Columns of the section on misaligned transfers.
const MISALIGNED: &[SectionColumn] = &[
    SectionColumn::new("client", "client", SectionUnit::Text),
    SectionColumn::new("transfers", "transfers", SectionUnit::Count),
    SectionColumn::new("misaligned", "misaligned", SectionUnit::Count),
    SectionColumn::new("share", "share", SectionUnit::Share),
];
/// Indexes into [`Hot::seen`].
const FILES: usize = 0;
const CLIENTS: usize = 1;
const PAIRS: usize = 2;

/// The figures that entries are ranked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotLoad {
    /// Operations.
    pub operations: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// Time spent waiting for replies, in nanoseconds, summed over operations.
    pub time_ns: u64,
}

impl HotLoad {
    #[inline]
    fn add(&mut self, event: &OperationEvent) {
        self.operations += 1;
        self.bytes += u64::from(event.bytes);
        self.time_ns += event.latency_ns.unwrap_or(0);
    }

    /// Adds another load.
    pub fn merge(&mut self, other: &HotLoad) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.time_ns += other.time_ns;
    }
}

/// A single weight for eviction, covering all three rankings: an operation counts as much as 16 KiB of data or 64 us
/// of waiting.
impl Weight for HotLoad {
    fn weight(&self) -> u64 {
        self.operations + (self.bytes >> 14) + (self.time_ns >> 16)
    }
}

/// A file or directory. Together with its key, it fills a cache line.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FileEntry {
    /// Operations on this file or directory.
    pub load: HotLoad,
    /// Latency of its operations, recorded from the 32nd on.
    pub latency: Option<Latency>,
    /// A hash of its name in [`Hot::names`]; zero until a name is seen. Names repeat often, and comparing the
    /// hash avoids a lookup.
    name_hash: u64,
}

/// The likely places of an operation's entries in the tables, and the key of its client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    client_key: u64,
    file: usize,
    pair: usize,
}

/// A name that is yet to be stored.
#[derive(Clone, Copy, Debug)]
struct DeferredName {
    file: FileKey,
    parent: FileKey,
    name_hash: u64,
    /// Where the name ends in `deferred_bytes`.
    end: usize,
    place: usize,
}

/// A client.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ClientEntry {
    /// Its address.
    #[serde(with = "address")]
    pub address: IpAddress,
    /// Its operations.
    pub load: HotLoad,
    /// Latency of these operations.
    pub latency: Latency,
    /// READs and WRITEs.
    pub transfers: u64,
    /// READs and WRITEs at offsets that are not a multiple of 4,096 bytes.
    pub misaligned: u64,
    /// Operations that failed.
    pub errors: u64,
}

/// A client's use of a file. Together with its key, it fills a cache line.
#[repr(C)]
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct PairEntry {
    /// The client's operations on the file.
    pub load: HotLoad,
    /// The file.
    pub file: FileKey,
    /// GETATTRs among these operations.
    pub getattrs: u32,
    /// The client.
    client: [u64; 2],
}

impl PairEntry {
    /// The client.
    pub fn client(&self) -> IpAddress {
        IpAddress(u128::from(self.client[0]) << 64 | u128::from(self.client[1]))
    }

    /// Copies client and file from `other`.
    fn name_as(&mut self, other: &PairEntry) {
        (self.client, self.file) = (other.client, other.file);
    }

    #[cold]
    fn name(&mut self, client: IpAddress, file: FileKey) {
        self.client = [(client.0 >> 64) as u64, client.0 as u64];
        self.file = file;
    }
}

impl Weight for FileEntry {
    fn weight(&self) -> u64 {
        // An entry that has only a name is evicted before one with operations.
        self.load.weight()
    }
}
impl Weight for ClientEntry {
    fn weight(&self) -> u64 {
        self.load.weight()
    }
}
impl Weight for PairEntry {
    fn weight(&self) -> u64 {
        self.load.weight()
    }
}

#[inline]
pub(super) fn client_key(client: IpAddress) -> u64 {
    spread(client.0 as u64 ^ ((client.0 >> 64) as u64).rotate_left(32))
}

/// The tables.
#[derive(Debug, Deserialize)]
#[serde(from = "Stored")]
pub struct Hot {
    pub(super) files: Bounded<FileEntry>,
    pub(super) clients: Bounded<ClientEntry>,
    pub(super) pairs: Bounded<PairEntry>,
    pub(super) total: HotLoad,
    /// Sketches of all files, clients and pairs that ever had an entry, because the tables evict entries.
    seen: [HyperLogLog; 3],
    latencies: usize,
    /// The names that `name_hash` refers to, by place in `files`.
    names: Names,
    deferred: Vec<DeferredName>,
    deferred_bytes: Vec<u8>,
    /// Place of the last operation's client.
    last_client: usize,
    /// Places for the upcoming events.
    places: Vec<Places>,
}

/// The serialized form: each name is stored with its file.
#[derive(Deserialize)]
struct Stored {
    files: Bounded<FileEntry>,
    clients: Bounded<ClientEntry>,
    pairs: Bounded<PairEntry>,
    total: HotLoad,
    seen: [HyperLogLog; 3],
    names: Vec<(FileKey, u64, StoredName)>,
}

#[derive(Serialize)]
struct StoredRef<'a> {
    files: &'a Bounded<FileEntry>,
    clients: &'a Bounded<ClientEntry>,
    pairs: &'a Bounded<PairEntry>,
    total: HotLoad,
    seen: &'a [HyperLogLog; 3],
    names: Vec<(FileKey, u64, Name<'a>)>,
}

impl Serialize for Hot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(self.deferred.is_empty(), "deferred names are stored first");
        let places = self.files.iter().enumerate();
        let mut names: Vec<_> = places
            .filter_map(|(place, (key, file))| {
                Some((FileKey(key), file.name_hash, self.name_at(place)?))
            })
            .collect();
        names.sort_by_key(|(file, ..)| *file);
        let Hot {
            files,
            clients,
            pairs,
            total,
            seen,
            ..
        } = self;
        StoredRef {
            files,
            clients,
            pairs,
            total: *total,
            seen,
            names,
        }
        .serialize(serializer)
    }
}

impl From<Stored> for Hot {
    fn from(stored: Stored) -> Hot {
        let Stored {
            files,
            clients,
            pairs,
            total,
            seen,
            names,
        } = stored;
        let latencies = files
            .iter()
            .filter(|(_, file)| file.latency.is_some())
            .count();
        let mut hot = Hot {
            files,
            clients,
            pairs,
            total,
            seen,
            latencies,
            ..Hot::default()
        };
        hot.files.values_mut().for_each(|file| file.name_hash = 0);
        hot.take_names(
            names
                .iter()
                .map(|(file, hash, name)| (*file, *hash, name.as_name())),
        );
        hot
    }
}

impl Default for Hot {
    fn default() -> Hot {
        Hot {
            files: Bounded::new(FILES_MAX),
            clients: Bounded::new(CLIENTS_MAX),
            pairs: Bounded::new(PAIRS_MAX),
            total: HotLoad::default(),
            seen: Default::default(),
            latencies: 0,
            names: Names::default(),
            deferred: Vec::with_capacity(DEFERRED_MAX),
            deferred_bytes: Vec::new(),
            last_client: 0,
            places: Vec::new(),
        }
    }
}

impl Analyse for Hot {
    const HELP: &'static str = "which files, clients and client-file pairs are hot";

    /// Finds the entries that these events will update, and prefetches them and their counters.
    fn prefetch(&mut self, events: &[OperationEvent]) {
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        places.extend(events.iter().map(|event| {
            let client_key = client_key(event.client);
            let (file, pair) = event.file.map_or((NOWHERE, NOWHERE), |key| {
                (
                    self.files.guess(key.0),
                    self.pairs.guess(key.0 ^ client_key),
                )
            });
            Places {
                client_key,
                file,
                pair,
            }
        }));
        for places in &places {
            self.files.prefetch(places.file);
            self.pairs.prefetch(places.pair);
        }
        for (event, places) in events.iter().zip(&places) {
            if let Some(file) = self.files.try_at(places.file)
                && let (Some(latency), Some(ns)) = (&file.latency, event.latency_ns)
            {
                latency.prefetch(ns);
            }
        }
        self.places = places;
    }

    /// Adds an operation that was passed to [`Analyse::prefetch`].
    #[inline]
    fn on_event(&mut self, event: &OperationEvent, place: usize) {
        let places = self.places[place];
        self.total.add(event);
        self.last_client = self.clients.place_near(places.client_key, self.last_client);
        let client = self.clients.at_mut(self.last_client);
        if client.load.operations == 0 {
            self.seen[CLIENTS].insert(places.client_key);
        }
        client.address = event.client;
        client.load.add(event);
        client.errors += u64::from(event.error.is_some());
        if let Some(ns) = event.latency_ns {
            client.latency.record(ns);
        }
        if event.transfer().is_some() {
            client.transfers += 1;
            client.misaligned += u64::from(!event.offset.is_multiple_of(ALIGNMENT));
        }
        let Some(key) = event.file else { return };
        let place = self.files.place_near(key.0, places.file);
        let file = self.files.at_mut(place);
        if file.load.operations == 0 {
            self.seen[FILES].insert(key.0);
        }
        file.load.add(event);
        if let Some(ns) = event.latency_ns {
            if let Some(latency) = &mut file.latency {
                latency.record(ns);
            } else if file.load.operations >= LATENCY_FROM && self.latencies < LATENCIES_MAX {
                self.latencies += 1;
                file.latency.insert(Latency::default()).record(ns);
            }
        }
        let place = self
            .pairs
            .place_near(key.0 ^ places.client_key, places.pair);
        let pair = self.pairs.at_mut(place);
        if pair.load.operations == 0 {
            self.seen[PAIRS].insert(key.0 ^ places.client_key);
            pair.name(event.client, key);
        }
        pair.load.add(event);
        pair.getattrs = pair
            .getattrs
            .saturating_add(u32::from(event.kind == GETATTR));
    }

    fn on_name(&mut self, server: IpAddress, file: FileKey, parent: Option<FileKey>, name: &[u8]) {
        self.learn_of(server, file, parent, name);
    }

    fn settle(&mut self) {
        self.store_deferred();
    }

    fn merge(&mut self, mut other: Hot) {
        self.total.merge(&other.total);
        for (mine, theirs) in self.seen.iter_mut().zip(&other.seen) {
            mine.merge(theirs);
        }
        self.clients.merge(other.clients, |mine, theirs| {
            mine.address = theirs.address;
            mine.load.merge(&theirs.load);
            mine.latency.merge(&theirs.latency);
            mine.transfers += theirs.transfers;
            mine.misaligned += theirs.misaligned;
            mine.errors += theirs.errors;
        });
        let theirs = other.files.iter().enumerate();
        let names: Vec<_> = theirs
            .filter(|(_, (_, file))| file.name_hash != 0)
            .filter_map(|(place, (key, file))| {
                Some((FileKey(key), file.name_hash, other.names.get(place)?))
            })
            .collect();
        // Names are stored by place, and a file has different places in the two tables, so its name is stored again.
        other.files.values_mut().for_each(|file| file.name_hash = 0);
        self.latencies += other.latencies;
        self.files.merge(other.files, |mine, theirs| {
            mine.load.merge(&theirs.load);
            match (&mut mine.latency, theirs.latency) {
                (Some(mine), Some(theirs)) => mine.merge(&theirs),
                (mine @ None, Some(theirs)) => *mine = Some(theirs),
                (_, None) => {}
            }
        });
        self.take_names(names.into_iter());
        self.pairs.merge(other.pairs, |mine, theirs| {
            mine.name_as(&theirs);
            mine.load.merge(&theirs.load);
            mine.getattrs = mine.getattrs.saturating_add(theirs.getattrs);
        });
    }

    /// The section has only misaligned transfers; the rankings have their own columns and charts in the report.
    fn sections(&self) -> Vec<AnalysisSection> {
        let clients = self.clients.iter().map(|(_, client)| client);
        let mut clients: Vec<_> = clients.filter(|client| client.misaligned > 0).collect();
        clients.sort_by_key(|client| (Reverse(client.misaligned), client.address));
        let rows = clients.into_iter().take(MISALIGNED_MAX).map(|client| {
            json!({
                "client": client.address.to_string(),
                "transfers": client.transfers,
                "misaligned": client.misaligned,
                "share": client.misaligned as f64 / client.transfers.max(1) as f64,
            })
        });
        let title = "Misaligned transfers";
        vec![
            AnalysisSection::table("misaligned", title, MISALIGNED, rows)
                .note("READs and WRITEs at offsets that are not multiples of 4,096 bytes."),
        ]
    }
}

impl Hot {
    /// Number of files and directories with operations.
    pub(super) fn file_count(&self) -> (u64, CountKind) {
        let kept = self.files.iter().filter(|(_, f)| f.load.operations > 0);
        self.count(FILES, kept.count(), self.files.evicted().0)
    }

    /// Number of clients.
    pub(super) fn client_count(&self) -> (u64, CountKind) {
        self.count(
            CLIENTS,
            self.clients.iter().count(),
            self.clients.evicted().0,
        )
    }

    /// Number of pairs of client and file.
    pub(super) fn pair_count(&self) -> (u64, CountKind) {
        self.count(PAIRS, self.pairs.iter().count(), self.pairs.evicted().0)
    }

    /// Exact as long as the table has evicted nothing; afterwards estimated by a sketch.
    fn count(&self, which: usize, kept: usize, forgotten: u64) -> (u64, CountKind) {
        match forgotten {
            0 => (kept as u64, CountKind::Exact),
            _ => (
                self.seen[which].count().max(kept as u64),
                CountKind::Estimated,
            ),
        }
    }

    /// Stores these names for files that are in the table without a name.
    fn take_names<'a>(&mut self, names: impl Iterator<Item = (FileKey, u64, Name<'a>)>) {
        for (file, hash, name) in names {
            if let Some(place) = self.files.find(file.0)
                && self.files.at(place).name_hash == 0
            {
                self.set_name(place, hash, &name);
            }
        }
    }

    /// Adds a name to those that are stored later in a batch. `hash` covers only the name.
    #[inline]
    pub(super) fn defer_name(&mut self, file: FileKey, parent: FileKey, hash: u64, name: &[u8]) {
        if self.deferred.len() >= DEFERRED_MAX {
            self.store_deferred();
        }
        self.deferred_bytes.extend_from_slice(name);
        let name_hash = (hash ^ spread(parent.0)) | 1;
        self.deferred.push(DeferredName {
            file,
            parent,
            name_hash,
            end: self.deferred_bytes.len(),
            place: NOWHERE,
        });
    }

    /// Stores the deferred names; prefetches their entries first, like [`Hot::prefetch`].
    pub(super) fn store_deferred(&mut self) {
        for deferred in &mut self.deferred {
            deferred.place = self.files.guess(deferred.file.0);
            self.files.prefetch(deferred.place);
            self.names.prefetch(deferred.place);
        }
        let (deferred, bytes) = (
            std::mem::take(&mut self.deferred),
            std::mem::take(&mut self.deferred_bytes),
        );
        let mut start = 0;
        for deferred in &deferred {
            let place = self.files.place_near(deferred.file.0, deferred.place);
            if self.files.at(place).name_hash != deferred.name_hash {
                let name = Name {
                    parent: Some(deferred.parent),
                    name: &bytes[start..deferred.end],
                };
                self.set_name(place, deferred.name_hash, &name);
            }
            start = deferred.end;
        }
        // Clears the buffers but keeps their memory.
        (self.deferred, self.deferred_bytes) = (deferred, bytes);
        self.deferred.clear();
        self.deferred_bytes.clear();
    }

    #[inline]
    pub(super) fn set_name(&mut self, place: usize, name_hash: u64, name: &Name<'_>) {
        self.names.set(place, name);
        self.files.at_mut(place).name_hash = name_hash;
    }

    /// Files with their names, where known.
    pub(super) fn named_files(&self) -> impl Iterator<Item = (&FileEntry, Option<Name<'_>>)> {
        self.files
            .iter()
            .enumerate()
            .map(|(place, (_, file))| (file, self.name_at(place)))
    }

    /// The name of a file.
    pub(super) fn name_of(&self, file: FileKey) -> Option<Name<'_>> {
        self.name_at(self.files.find(file.0)?)
    }

    fn name_at(&self, place: usize) -> Option<Name<'_>> {
        // The name of an evicted entry is still stored at its place.
        if self.files.at(place).name_hash == 0 {
            None
        } else {
            self.names.get(place)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each entry that an operation updates fits in a cache line.
    #[test]
    fn hot_entries_fit_in_a_cache_line() {
        assert_eq!(size_of::<FileEntry>() + 8, 64);
        assert_eq!(size_of::<PairEntry>() + 8, 64);
    }

    /// A deferred name is stored by `settle`, can be replaced and merged, and isn't inherited by a new entry in the
    /// same place.
    #[test]
    fn a_name_is_stored_replaced_and_merged_but_not_inherited() {
        let mut hot = Hot::default();
        let root = FileKey(spread(1));
        let defer_name = |hot: &mut Hot, file: u64, name: &str| {
            hot.defer_name(
                FileKey(spread(file)),
                root,
                twox_hash::XxHash3_64::oneshot(name.as_bytes()),
                name.as_bytes(),
            );
        };
        defer_name(&mut hot, 2, "old");
        defer_name(&mut hot, 2, "new");
        defer_name(&mut hot, 3, "three");
        hot.store_deferred();
        let name = |hot: &Hot, file: u64| {
            hot.name_of(FileKey(spread(file)))
                .map(|name| String::from_utf8_lossy(name.name).into_owned())
        };
        assert_eq!(
            (name(&hot, 2).as_deref(), name(&hot, 3).as_deref()),
            (Some("new"), Some("three"))
        );
        let mut other = Hot::default();
        defer_name(&mut other, 3, "other");
        defer_name(&mut other, 4, "four");
        other.store_deferred();
        hot.merge(other);
        assert_eq!(
            (name(&hot, 3).as_deref(), name(&hot, 4).as_deref()),
            (Some("three"), Some("four"))
        );
        // Entries without operations are the lightest: a flood of new entries evicts them.
        for file in 0..2 * FILES_MAX as u64 {
            hot.files.entry(spread(1_000_000 + file)).load.operations = 5;
        }
        assert_eq!(
            (name(&hot, 2), hot.name_of(FileKey(spread(1_000_000)))),
            (None, None)
        );
    }

    /// The root of a server has a readable path, and paths below it have a single slash.
    #[test]
    fn the_root_of_a_server_has_a_readable_path() {
        let server = IpAddress::v4([10, 0, 0, 1]);
        for root in ["", "/"] {
            let mut hot = Hot::default();
            let (top, file) = (FileKey(spread(1)), FileKey(spread(2)));
            hot.learn_of(server, top, None, root.as_bytes());
            hot.learn_of(server, file, Some(top), b"file");
            hot.store_deferred();
            assert_eq!(
                (hot.path(top).as_str(), hot.path(file).as_str()),
                ("10.0.0.1:/", "10.0.0.1:/file")
            );
        }
    }
}
