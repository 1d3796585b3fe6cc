//! The counts of `profile` by server: the inputs of a sizing tool, which sizes servers one by one. The one rule: the
//! profile of a whole capture is the sum of its servers' profiles, so both share one definition.

use brunt_core::{
    HyperLogLog, LeftOutTransfers, SizerCounts, SizerProfile, SizerTimes, SizerTransfers,
};
use brunt_result::capture::{AnalysisSection, SectionColumn, SectionUnit};
use brunt_wire::net::IpAddress;
use serde::{Deserialize, Serialize, Serializer};

use super::profile::{Transfers, WORKING_SET_BLOCK_BYTES};
use crate::key::address;

/// Servers listed individually in each state. All other servers are counted together, without an address.
const SERVERS_MAX: usize = 64;

/// What was read and written at one server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerFigures {
    /// Reads, then writes.
    pub transfers: [Transfers; 2],
    /// Operations that don't read or write data.
    pub metadata: u64,
    /// READs and WRITEs that don't count as transfers.
    pub left_out: LeftOutTransfers,
    /// When data was read and written, for peak rates.
    pub times: SizerTimes,
    /// A sketch of the blocks touched by non-sequential reads.
    pub random_reads: HyperLogLog,
}

impl ServerFigures {
    /// All operations.
    pub fn operations(&self) -> u64 {
        let [read, written] = &self.transfers;
        read.operations + written.operations + self.metadata + self.left_out.total()
    }

    /// Bytes touched by non-sequential READs, which a cache would have to hold.
    pub fn random_read_working_set_bytes(&self) -> u64 {
        self.random_reads.count() * WORKING_SET_BLOCK_BYTES
    }

    /// The counts from which the profile for sizing tools is computed.
    pub fn counts(&self) -> SizerCounts {
        let [reads, writes] = self.transfers.each_ref().map(|of| SizerTransfers {
            count: of.operations,
            sequential: of.sequential,
            bytes: of.bytes,
        });
        SizerCounts {
            reads,
            writes,
            span_ns: self.times.span_ns(),
            peak_per_s: self.times.peak_per_s(),
            random_read_working_set_bytes: self.random_read_working_set_bytes(),
        }
    }

    pub(super) fn merge(&mut self, other: &ServerFigures) {
        for (mine, theirs) in self.transfers.iter_mut().zip(&other.transfers) {
            mine.merge(theirs);
        }
        self.metadata += other.metadata;
        self.left_out.merge(&other.left_out);
        self.times.merge(&other.times);
        self.random_reads.merge(&other.random_reads);
    }
}

/// The servers of a state.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "Vec<Stored>")]
pub struct Servers {
    /// The individually listed servers, in the order in which they were first seen.
    each: Vec<(Option<IpAddress>, Box<ServerFigures>)>,
}

/// The serialized form, sorted by address, so that equal states serialize equally.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(with = "address")]
    address: IpAddress,
    is_known: bool,
    figures: Box<ServerFigures>,
}

impl Serialize for Servers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all: Vec<_> = self.each.clone();
        all.sort_by_key(|(address, _)| *address);
        serializer.collect_seq(all.into_iter().map(|(address, figures)| Stored {
            address: address.unwrap_or_default(),
            is_known: address.is_some(),
            figures,
        }))
    }
}

/// A stored state with more servers than allowed.
#[derive(Debug, thiserror::Error)]
#[error("a state has more than {SERVERS_MAX} servers")]
pub struct TooManyServers;

impl TryFrom<Vec<Stored>> for Servers {
    type Error = TooManyServers;

    fn try_from(stored: Vec<Stored>) -> Result<Servers, TooManyServers> {
        if stored.len() > SERVERS_MAX + 1 {
            return Err(TooManyServers);
        }
        let each = stored
            .into_iter()
            .map(|one| (one.is_known.then_some(one.address), one.figures));
        Ok(Servers {
            each: each.collect(),
        })
    }
}

impl Servers {
    /// The place of a server, which never changes; created if missing.
    #[inline]
    pub fn place(&mut self, address: IpAddress) -> usize {
        // There are few servers, and most operations go to the first ones.
        let place = self.each.iter().position(|(of, _)| *of == Some(address));
        place.unwrap_or_else(|| self.insert(Some(address)))
    }

    #[cold]
    fn insert(&mut self, address: Option<IpAddress>) -> usize {
        let known = self.each.iter().filter(|(of, _)| of.is_some()).count();
        let address = address.filter(|_| known < SERVERS_MAX);
        if address.is_none()
            && let Some(place) = self.each.iter().position(|(of, _)| of.is_none())
        {
            return place;
        }
        self.each.push((address, Box::default()));
        self.each.len() - 1
    }

    /// The figures at a place.
    #[inline]
    pub fn at(&mut self, place: usize) -> &mut ServerFigures {
        &mut self.each[place].1
    }

    /// All servers; the entry for those counted together has no address.
    pub fn iter(&self) -> impl Iterator<Item = (Option<IpAddress>, &ServerFigures)> {
        self.each.iter().map(|(address, of)| (*address, &**of))
    }

    /// The sum of all servers.
    pub fn total(&self) -> ServerFigures {
        let mut total = ServerFigures::default();
        self.iter().for_each(|(_, of)| total.merge(of));
        total
    }

    pub(super) fn merge(&mut self, other: &Servers) {
        for (address, figures) in other.iter() {
            let place = match address {
                Some(address) => self.place(address),
                None => self.insert(None),
            };
            self.at(place).merge(figures);
        }
    }

    /// The profile of each server, the busiest first.
    pub fn profiles(&self) -> Vec<ServerProfile> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_by_key(|(address, of)| (std::cmp::Reverse(of.operations()), *address));
        all.into_iter()
            .map(|(address, of)| ServerProfile::new(address, of))
            .collect()
    }

    /// The profile of everything, then that of each server.
    pub(super) fn sections(&self) -> Vec<AnalysisSection> {
        let whole = self.total().counts().profile();
        vec![
            AnalysisSection::figures("sizer", "Profile for sizing tools", SIZER, whole)
                .note(SIZER_NOTE),
            AnalysisSection::table(
                "servers",
                "Profile for sizing tools, by server",
                SERVERS,
                self.profiles(),
            ),
        ]
    }
}

/// The profile of one server for sizing tools.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerProfile {
    /// The server's address; `None` for all servers beyond the first 64, which are counted together.
    pub server: Option<String>,
    /// Number of all operations at the server.
    pub operations: u64,
    /// Operations that don't read or write data, as a fraction of all operations.
    pub metadata: Option<f64>,
    /// The profile of the server's reads and writes.
    #[serde(flatten)]
    pub sizer: SizerProfile,
}

impl ServerProfile {
    fn new(address: Option<IpAddress>, figures: &ServerFigures) -> ServerProfile {
        let operations = figures.operations();
        ServerProfile {
            server: address.map(|address| address.to_string()),
            operations,
            metadata: (operations > 0).then(|| figures.metadata as f64 / operations as f64),
            sizer: figures.counts().profile(),
        }
    }
}

const SIZER_NOTE: &str =
    "Covers only successful reads and writes, from first to last; the peak is the busiest second.";

const SIZER: &[SectionColumn] = &[
    SectionColumn::new("mean_per_s", "per second", SectionUnit::Number),
    SectionColumn::new("peak_per_s", "peak", SectionUnit::Count),
    SectionColumn::new("random_read", "random reads", SectionUnit::Share),
    SectionColumn::new("sequential_read", "sequential reads", SectionUnit::Share),
    SectionColumn::new("random_write", "random writes", SectionUnit::Share),
    SectionColumn::new("sequential_write", "sequential writes", SectionUnit::Share),
    SectionColumn::new("read_bytes", "mean read", SectionUnit::Bytes),
    SectionColumn::new("write_bytes", "mean write", SectionUnit::Bytes),
    SectionColumn::new(
        "random_read_working_set_bytes",
        "working set of random reads",
        SectionUnit::Bytes,
    ),
];

const SERVERS: &[SectionColumn] = &[
    SectionColumn::new("server", "server", SectionUnit::Text),
    SectionColumn::new("operations", "ops", SectionUnit::Count),
    SectionColumn::new("metadata", "metadata", SectionUnit::Share).page_only(),
    SectionColumn::new("mean_per_s", "per second", SectionUnit::Number),
    SectionColumn::new("peak_per_s", "peak", SectionUnit::Count).page_only(),
    SectionColumn::new("random_read", "r. reads", SectionUnit::Share),
    SectionColumn::new("sequential_read", "sequential reads", SectionUnit::Share).page_only(),
    SectionColumn::new("random_write", "r. writes", SectionUnit::Share),
    SectionColumn::new("sequential_write", "sequential writes", SectionUnit::Share).page_only(),
    SectionColumn::new("read_bytes", "mean read", SectionUnit::Bytes).page_only(),
    SectionColumn::new("write_bytes", "mean write", SectionUnit::Bytes).page_only(),
    SectionColumn::new(
        "random_read_working_set_bytes",
        "working set",
        SectionUnit::Bytes,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers beyond the limit are counted together, whichever state saw them, and no operation is lost.
    #[test]
    fn any_number_of_servers_keeps_few_and_counts_all() {
        let mut states = [Servers::default(), Servers::default()];
        for number in 0..200_u32 {
            for servers in &mut states {
                let place = servers.place(IpAddress::v4(number.to_be_bytes()));
                servers.at(place).metadata += 1;
            }
        }
        let [mut all, other] = states;
        all.merge(&other);
        assert_eq!(all.iter().count(), SERVERS_MAX + 1);
        assert_eq!(all.total().metadata, 400);
        let others = all.iter().find(|(address, _)| address.is_none());
        let expected = 2 * (200 - SERVERS_MAX as u64);
        assert_eq!(others.map(|(_, of)| of.metadata), Some(expected));
        let sent = serde_json::to_value(&all).unwrap();
        let back: Servers = serde_json::from_value(sent.clone()).unwrap();
        assert_eq!(back.total().metadata, 400);
        let mut list = sent.as_array().unwrap().clone();
        list.push(list[1].clone());
        assert!(serde_json::from_value::<Servers>(list.into()).is_err());
    }
}
