//! Who and what is hot: files, directories, clients, and pairs of client and file, by
//! operations, bytes and time. One lookup for each table and operation.

use brunt_wire::net::Address;

use super::bounded::{Bounded, Weight};
use super::names::Name;
use super::sketch::spread;
use super::{Event, Kind, Latency};
use crate::operation::FileKey;

const FILES_MAX: usize = 64 << 10;
const CLIENTS_MAX: usize = 8 << 10;
const PAIRS_MAX: usize = 64 << 10;
/// A file's latencies are kept from its 32nd operation on: a quantile of fewer says little.
const LATENCY_FROM: u64 = 32;
/// Files whose latencies are kept: 16 MiB of histograms.
const LATENCIES_MAX: usize = 16 << 10;
/// The block size that storage wants offsets to be multiples of.
const ALIGNMENT: u64 = 4096;

/// What everything hot is ranked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Operations.
    pub operations: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// Time spent waiting for replies, in nanoseconds, summed over operations.
    pub time_ns: u64,
}

impl Load {
    #[inline]
    fn add(&mut self, event: &Event) {
        self.operations += 1;
        self.bytes += u64::from(event.bytes);
        self.time_ns += event.latency_ns.unwrap_or(0);
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Load) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.time_ns += other.time_ns;
    }
}

/// One weight for eviction out of the three rankings: an operation counts as much as 16 KiB or
/// as 64 us of waiting.
impl Weight for Load {
    fn weight(&self) -> u64 {
        self.operations + (self.bytes >> 14) + (self.time_ns >> 16)
    }
}

/// A file or directory.
#[derive(Debug, Default)]
pub struct FileEntry {
    /// How much is done to it.
    pub load: Load,
    /// How long that takes.
    pub latency: Option<Latency>,
    /// How it is called, when that was seen.
    pub name: Option<Name>,
}

/// A client.
#[derive(Debug, Default)]
pub struct ClientEntry {
    /// Its address.
    pub address: Address,
    /// How much it does.
    pub load: Load,
    /// How long that takes.
    pub latency: Latency,
    /// READs and WRITEs.
    pub transfers: u64,
    /// Those whose offset is no multiple of 4,096 bytes.
    pub misaligned: u64,
    /// Operations that failed.
    pub errors: u64,
}

/// A client's use of a file.
#[derive(Debug, Default)]
pub struct PairEntry {
    /// The client.
    pub client: Address,
    /// The file.
    pub file: FileKey,
    /// How much the one does to the other.
    pub load: Load,
    /// GETATTRs among them.
    pub getattrs: u64,
    /// Where the last READ and the last WRITE ended.
    next: [Option<u64>; 2],
}

impl Weight for FileEntry {
    fn weight(&self) -> u64 {
        // A name alone keeps no place against one that is used.
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
fn client_key(client: Address) -> u64 {
    spread(client.0 as u64 ^ ((client.0 >> 64) as u64).rotate_left(32))
}

/// The tables.
#[derive(Debug)]
pub struct Hot {
    pub(super) files: Bounded<FileEntry>,
    pub(super) clients: Bounded<ClientEntry>,
    pub(super) pairs: Bounded<PairEntry>,
    pub(super) total: Load,
    latencies: usize,
}

impl Hot {
    pub(super) fn new() -> Hot {
        Hot {
            files: Bounded::new(FILES_MAX),
            clients: Bounded::new(CLIENTS_MAX),
            pairs: Bounded::new(PAIRS_MAX),
            total: Load::default(),
            latencies: 0,
        }
    }

    /// Adds what another pipeline saw.
    pub(super) fn merge(&mut self, other: Hot) {
        self.total.merge(&other.total);
        self.clients.merge(other.clients, |mine, theirs| {
            mine.address = theirs.address;
            mine.load.merge(&theirs.load);
            mine.latency.merge(&theirs.latency);
            mine.transfers += theirs.transfers;
            mine.misaligned += theirs.misaligned;
            mine.errors += theirs.errors;
        });
        self.files.merge(other.files, |mine, theirs| {
            mine.load.merge(&theirs.load);
            match (&mut mine.latency, theirs.latency) {
                (Some(mine), Some(theirs)) => mine.merge(&theirs),
                (mine @ None, Some(theirs)) => *mine = Some(theirs),
                (_, None) => {}
            }
            if mine.name.is_none() {
                mine.name = theirs.name;
            }
        });
        self.pairs.merge(other.pairs, |mine, theirs| {
            mine.client = theirs.client;
            mine.file = theirs.file;
            mine.load.merge(&theirs.load);
            mine.getattrs += theirs.getattrs;
        });
    }

    /// Looks at the entries that these events will change, and at nothing else: looks that do not
    /// depend on one another wait for memory together.
    pub(super) fn warm(&self, events: &[Event]) {
        let mut seen = 0;
        for event in events {
            let Some(key) = event.file else { continue };
            if let Some(file) = self.files.get(key.0) {
                seen ^= file.load.operations;
                if let (Some(latency), Some(ns)) = (&file.latency, event.latency_ns) {
                    seen ^= latency.peek(ns);
                }
            }
            if let Some(pair) = self.pairs.get(key.0 ^ client_key(event.client)) {
                seen ^= pair.getattrs;
            }
        }
        std::hint::black_box(seen);
    }

    /// Adds an operation. For READ and WRITE: whether it begins where the same client's last
    /// one on the file ended.
    #[inline]
    pub(super) fn on_event(&mut self, event: &Event) -> bool {
        self.total.add(event);
        let client_key = client_key(event.client);
        let client = self.clients.entry(client_key);
        client.address = event.client;
        client.load.add(event);
        client.errors += u64::from(event.error.is_some());
        if let Some(ns) = event.latency_ns {
            client.latency.record(ns);
        }
        if event.kind != Kind::Other {
            client.transfers += 1;
            client.misaligned += u64::from(!event.offset.is_multiple_of(ALIGNMENT));
        }
        let Some(key) = event.file else { return false };
        let file = self.files.entry(key.0);
        file.load.add(event);
        if let Some(ns) = event.latency_ns {
            if let Some(latency) = &mut file.latency {
                latency.record(ns);
            } else if file.load.operations >= LATENCY_FROM && self.latencies < LATENCIES_MAX {
                self.latencies += 1;
                file.latency.insert(Latency::default()).record(ns);
            }
        }
        let pair = self.pairs.entry(key.0 ^ client_key);
        pair.client = event.client;
        pair.file = key;
        pair.load.add(event);
        pair.getattrs += u64::from(event.operation == 1);
        if event.kind == Kind::Other {
            return false;
        }
        let next = &mut pair.next[usize::from(event.kind == Kind::Write)];
        let sequential = *next == Some(event.offset);
        *next = Some(event.offset.wrapping_add(u64::from(event.bytes)));
        sequential
    }
}
