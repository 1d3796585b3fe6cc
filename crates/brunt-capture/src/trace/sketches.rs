//! Mergeable sketches: the table `sketches` estimates how many distinct blocks a client read and wrote in a minute,
//! and in how many files, in a format that Spark, Sail and every Apache DataSketches library can read. When
//! `operations` has too many rows to read, the working set of any clients in any hours can be found by merging a few
//! rows.
//!
//! ```text
//!   parser ──rows of `operations` and `flows`──► lane: SketchMaker ──► rows of `sketches`
//! ```
//!
//! The parsers are not involved: the lane that writes `operations` builds the sketches from the rows passing through
//! it.
//!
//! The one rule: a sketch contains only what SQL could compute from `operations` joined with `flows`, so an engine's
//! own sketch of these rows has the same registers.

use std::time::{Duration, Instant};

use brunt_lake::{Batch, Coding, Column, Table};
use datasketches::hll::{HllSketch, HllType};
use datasketches::theta::{ThetaSketch, ThetaSketchBuilder};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::flows::{FLOWS, FLOWS_MAX};
use super::operations::OPERATIONS;
use super::rows::{Chunk, Registry, TableEntry, Tabled};
use crate::analysis::working_set_blocks;

/// Estimated counts of distinct blocks and files.
pub const SKETCHES: Table = Table {
    name: "sketches",
    doc: "Estimates of the distinct blocks and files that a client used, by minute, as mergeable \
     sketches. A combination may have several rows, which have to be merged, also across parsers, captures and \
     traces.",
    columns: &[
        Column::int(
            "minute",
            "Minute in which the requests were sent, since 1970.",
        )
        .coded(Coding::Delta),
        Column::text("server", "The server's address."),
        Column::text("client", "The client's address."),
        Column::text(
            "what",
            "What is counted: `blocks_read` and `blocks_written` count blocks of 4,096 bytes, each as \
             the integer `file` + block number; `files` counts the files of all operations, each as the integer \
             `file`.",
        ),
        Column::bytes(
            "sketch",
            "HyperLogLog sketch of Apache DataSketches: 2^12 registers of 8 bits (or a list, if there \
             are few items), with a standard error of 1.6 %.",
        ),
        Column::bytes(
            "theta",
            "Theta sketch of Apache DataSketches, over the same integers: at most 2^10 hashes, with a \
             standard error of 3.1 %. It can also estimate the overlap of two groups of rows. Null in older \
             traces.",
        )
        .nullable(),
    ],
};

/// Base-2 logarithm of the number of registers in a HyperLogLog sketch, as in Spark by default. Registers have 8
/// bits, like Spark's, because pysail 0.7.2 merges two sketches with 4-bit registers wrongly, without an error.
const LOG_REGISTERS: u8 = 12;
/// Base-2 logarithm of the number of hashes in a theta sketch. Hashes can't be compressed: with 2^12, Spark's
/// default, a sketch would take 32 KiB.
const LOG_HASHES: u8 = 10;
/// Maximum keys in memory, each with a HyperLogLog sketch of 4 KiB and a theta sketch of up to 16 KiB; when it is
/// reached, all sketches are written.
const SKETCHES_MAX: usize = 4 << 10;
/// Sketches are written after this time even if the capture is idle.
const AGE_MAX: Duration = Duration::from_secs(60);
const MINUTE_NS: i64 = 60_000_000_000;

struct SketchesTable;

impl Tabled for SketchesTable {
    const TABLE: &'static Table = &SKETCHES;
}

/// Registers the table.
pub fn register(registry: &mut Registry) {
    registry.add::<SketchesTable>();
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Counted {
    BlocksRead,
    BlocksWritten,
    Files,
}

impl Counted {
    fn name(self) -> &'static str {
        match self {
            Counted::BlocksRead => "blocks_read",
            Counted::BlocksWritten => "blocks_written",
            Counted::Files => "files",
        }
    }
}

/// Server and client.
type Pair = [Box<str>; 2];

/// The endpoints of a flow.
struct KnownFlow {
    ends: Pair,
    /// The index of the flow's pair in `pairs`, after the value of `writings` for which it is valid.
    pair: Option<(u64, usize)>,
}

/// Identifies a sketch: minute, pair and what is counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place {
    minute: i64,
    /// The pair's index in `pairs`.
    pair: usize,
    counted: Counted,
}

/// Both kinds of sketches for one key.
struct Sketches {
    registers: HllSketch,
    hashes: ThetaSketch,
}

impl Sketches {
    fn new() -> Sketches {
        Sketches {
            registers: HllSketch::new(LOG_REGISTERS, HllType::Hll8)
                .expect("a valid number of registers"),
            hashes: ThetaSketchBuilder::default()
                .lg_k(LOG_HASHES)
                .build()
                .expect("a valid number of hashes"),
        }
    }

    fn update(&mut self, item: i64) {
        self.registers.update(item);
        self.hashes.update(item);
    }
}

/// Creates sketches from a parser's rows.
pub struct SketchMaker {
    operations: usize,
    flows: usize,
    sketches: usize,
    /// Columns of `operations`: time, flow, file, direction, offset, bytes.
    columns: [usize; 6],
    known: HashMap<i64, KnownFlow, FixedState>,
    /// Server-client pairs that have sketches, and their indexes.
    pairs: Vec<Pair>,
    pair_at: HashMap<Pair, usize, FixedState>,
    kept: HashMap<Place, Sketches, FixedState>,
    minute: i64,
    /// When all sketches were last written, and how many times that has happened.
    written: Instant,
    writings: u64,
}

impl SketchMaker {
    /// Creates the sketch maker for the lane that writes these tables; `None` if `operations` is not among them.
    pub fn of(tables: &[TableEntry]) -> Option<SketchMaker> {
        let place = |table: &Table| {
            tables
                .iter()
                .position(|entry| entry.table.name == table.name)
        };
        let columns = [
            "request_first",
            "flow",
            "file",
            "direction",
            "offset_bytes",
            "moved_bytes",
        ];
        Some(SketchMaker {
            operations: place(&OPERATIONS)?,
            flows: place(&FLOWS)?,
            sketches: place(&SKETCHES)?,
            columns: columns.map(|column| OPERATIONS.index_of(column)),
            known: HashMap::with_hasher(FixedState::default()),
            pairs: Vec::new(),
            pair_at: HashMap::with_hasher(FixedState::default()),
            kept: HashMap::with_hasher(FixedState::default()),
            minute: 0,
            written: Instant::now(),
            writings: 0,
        })
    }

    /// The index of the `sketches` table.
    pub fn place(&self) -> usize {
        self.sketches
    }

    /// Processes the lane's rows, one chunk per table, and writes due sketches into `rows`.
    pub fn take(&mut self, chunks: &[Chunk], rows: &mut Batch) {
        self.learn(chunks[self.flows].rows());
        let columns = self.columns;
        for [first, flow, file, direction, offset, bytes] in chunks[self.operations].words(columns)
        {
            let (Some(first), Some(flow), Some(file)) = (first, flow, file) else {
                continue;
            };
            let minute = first / MINUTE_NS;
            if minute > self.minute || self.kept.len() >= SKETCHES_MAX {
                self.write(rows);
                self.minute = self.minute.max(minute);
            }
            let Some(pair) = self.pair(flow) else {
                continue;
            };
            self.sketch(Place {
                minute,
                pair,
                counted: Counted::Files,
            })
            .update(file);
            let counted = match direction {
                Some(0) => Counted::BlocksRead,
                Some(_) => Counted::BlocksWritten,
                None => continue,
            };
            let (offset, bytes) = (offset.unwrap_or(0) as u64, bytes.unwrap_or(0) as u32);
            let sketch = self.sketch(Place {
                minute,
                pair,
                counted,
            });
            working_set_blocks(offset, bytes)
                .for_each(|block| sketch.update(file.wrapping_add(block as i64)));
        }
    }

    /// Called periodically: writes the sketches if they were last written long ago.
    pub fn on_time(&mut self, rows: &mut Batch) {
        if self.written.elapsed() >= AGE_MAX {
            self.write(rows);
        }
    }

    /// Writes all sketches, in order.
    pub fn write(&mut self, rows: &mut Batch) {
        self.written = Instant::now();
        let mut sketches: Vec<_> = self.kept.drain().collect();
        sketches.sort_unstable_by_key(|(place, _)| *place);
        for (
            Place {
                minute,
                pair,
                counted,
            },
            Sketches {
                registers,
                mut hashes,
            },
        ) in sketches
        {
            if registers.is_empty() {
                continue;
            }
            hashes.trim();
            let [server, client] = &self.pairs[pair];
            let row = rows
                .row()
                .int(minute)
                .text(server)
                .text(client)
                .text(counted.name());
            row.bytes(&registers.serialize())
                .bytes(&hashes.compact(true).serialize())
                .end();
        }
        self.pairs.clear();
        self.pair_at.clear();
        self.writings += 1;
    }

    fn sketch(&mut self, place: Place) -> &mut Sketches {
        self.kept.entry(place).or_insert_with(Sketches::new)
    }

    /// The index of a flow's server-client pair; `None` if the flow's row was lost.
    fn pair(&mut self, flow: i64) -> Option<usize> {
        let flow = self.known.get_mut(&flow)?;
        match flow.pair {
            Some((writings, pair)) if writings == self.writings => Some(pair),
            _ => {
                let pair = *self.pair_at.entry(flow.ends.clone()).or_insert_with(|| {
                    self.pairs.push(flow.ends.clone());
                    self.pairs.len() - 1
                });
                flow.pair = Some((self.writings, pair));
                Some(pair)
            }
        }
    }

    /// Learns the endpoints of flows. A flow in use is among the last [`FLOWS_MAX`] written, so older ones are
    /// dropped.
    fn learn(&mut self, flows: &Batch) {
        let ends = flows.texts("destination").zip(flows.texts("source"));
        for (flow, (server, client)) in flows.ints("flow").iter().zip(ends) {
            self.known.insert(
                *flow,
                KnownFlow {
                    ends: [server.into(), client.into()],
                    pair: None,
                },
            );
            if self.known.len() > 2 * FLOWS_MAX {
                self.known
                    .retain(|known, _| flow - known < FLOWS_MAX as i64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use datasketches::common::NumStdDev;
    use datasketches::hll::HllUnion;
    use datasketches::theta::{CompactThetaSketch, ThetaIntersection};

    use super::*;
    use crate::trace::rows::{Handle, Rows, WrittenBy};

    struct Operations;

    impl Tabled for Operations {
        const TABLE: &'static Table = &OPERATIONS;
    }

    struct Flows;

    impl Tabled for Flows {
        const TABLE: &'static Table = &FLOWS;
    }

    /// A sketch maker with a parser's chunks.
    struct Lane {
        maker: SketchMaker,
        tables: Vec<TableEntry>,
        rows: Rows,
        operations: Handle<Operations>,
        flows: Handle<Flows>,
        out: Batch,
    }

    impl Lane {
        fn new() -> Lane {
            let mut registry = Registry::default();
            let (operations, flows) = (registry.add(), registry.add());
            register(&mut registry);
            let lanes = registry.into_lanes();
            let rows = Rows::new(
                lanes
                    .each_ref()
                    .map(|tables| tables.iter().map(Chunk::new).collect()),
            );
            let [_, tables] = lanes;
            let maker = SketchMaker::of(&tables).expect("the lane has them");
            Lane {
                maker,
                tables,
                rows,
                operations,
                flows,
                out: Batch::new(&SKETCHES),
            }
        }

        fn flow(&mut self, flow: i64, server: &str, client: &str) {
            let row = self.rows.row(self.flows).int(flow).int(6);
            row.text(client)
                .int_or_null(None)
                .text(server)
                .int_or_null(None)
                .end();
        }

        fn operation(&mut self, second: i64, flow: i64, file: i64, block: i64, bytes: i64) {
            let mut line = self.rows.line(self.operations);
            for column in OPERATIONS.columns {
                line = match column.name {
                    "request_first" => line.int(second * 1_000_000_000),
                    "flow" => line.int(flow),
                    "file" => line.int(file),
                    "direction" if bytes == 0 => line.null(),
                    "direction" => line.int(0),
                    "offset_bytes" => line.int(block * 4096),
                    "moved_bytes" => line.int(bytes),
                    _ => line.int(0),
                };
            }
            line.end();
        }

        fn take(&mut self) {
            let lane = WrittenBy::Rest as usize;
            let chunks = self
                .rows
                .take(lane, self.tables.iter().map(Chunk::new).collect());
            self.maker.take(&chunks, &mut self.out);
        }

        /// Both kinds of sketches from the rows that count `counted`, in order.
        fn pairs(&self, counted: &str) -> Vec<(HllSketch, CompactThetaSketch)> {
            let both = self
                .out
                .byte_strings("sketch")
                .zip(self.out.byte_strings("theta"));
            let of_these = self
                .out
                .texts("what")
                .zip(both)
                .filter(|(what, _)| *what == counted);
            let read = of_these.map(|(_, (registers, hashes))| {
                let registers = HllSketch::deserialize(registers).expect("a sketch");
                (
                    registers,
                    CompactThetaSketch::deserialize(hashes).expect("a sketch"),
                )
            });
            read.collect()
        }

        /// Sketches by minute, client and what they count; several rows with the same key are merged.
        fn sketches(&mut self) -> BTreeMap<(i64, String, String), HllUnion> {
            self.take();
            self.maker.write(&mut self.out);
            let (clients, whats) = (self.out.texts("client"), self.out.texts("what"));
            let names = self.out.ints("minute").iter().zip(clients).zip(whats);
            let mut merged = BTreeMap::new();
            for (((minute, client), what), bytes) in names.zip(self.out.byte_strings("sketch")) {
                let sketch = HllSketch::deserialize(bytes).expect("a sketch");
                let union = merged.entry((*minute, client.to_string(), what.to_string()));
                union
                    .or_insert_with(|| HllUnion::new(LOG_REGISTERS).expect("registers"))
                    .update(&sketch);
            }
            merged
        }
    }

    fn name(minute: i64, client: &str, what: &str) -> (i64, String, String) {
        (minute, client.to_string(), what.to_string())
    }

    /// Merged sketches estimate the number of distinct blocks: per minute, in total, and for clients with some blocks
    /// in common.
    #[test]
    fn merged_sketches_estimate_distinct_blocks() {
        let mut lane = Lane::new();
        lane.flow(1, "s", "one");
        lane.flow(2, "s", "one");
        lane.flow(3, "s", "two");
        let mut exact: BTreeMap<_, BTreeSet<i64>> = BTreeMap::new();
        for number in 0..30_000i64 {
            // Three minutes. The last minute also has late replies to requests from the first minute.
            let (second, flow) = (
                number / 100 - if number % 1000 == 999 { 100 } else { 0 },
                1 + number % 3,
            );
            let (file, block) = (spread_file(number % 50), number * 7 % 40_000);
            lane.operation(
                second.max(0),
                flow,
                file,
                block,
                if number % 10 == 0 { 0 } else { 3 * 4096 },
            );
            let client = if flow == 3 { "two" } else { "one" };
            let mut count = |what: &str, item: i64| {
                exact
                    .entry(name(second.max(0) / 60, client, what))
                    .or_default()
                    .insert(item);
            };
            count("files", file);
            if number % 10 != 0 {
                (block..block + 3).for_each(|block| count("blocks_read", file.wrapping_add(block)));
            }
            if number % 5_000 == 0 {
                lane.take();
            }
        }
        let merged = lane.sketches();
        assert_eq!(
            merged.keys().collect::<Vec<_>>(),
            exact.keys().collect::<Vec<_>>()
        );
        let mut all = HllUnion::new(LOG_REGISTERS).expect("registers");
        let close = |union: &HllUnion, exact: usize, what: &str| {
            let bounds = union.lower_bound(NumStdDev::Three)..=union.upper_bound(NumStdDev::Three);
            assert!(
                bounds.contains(&(exact as f64)),
                "{what}: {exact}, {bounds:?}"
            );
        };
        for (name, union) in &merged {
            close(union, exact[name].len(), &format!("{name:?}"));
            if name.2 == "blocks_read" {
                all.update(&union.to_sketch(HllType::Hll8));
            }
        }
        let of_blocks = exact.iter().filter(|(name, _)| name.2 == "blocks_read");
        let union: BTreeSet<i64> = of_blocks
            .flat_map(|(_, items)| items.iter().copied())
            .collect();
        assert!(union.len() > 50_000, "{}", union.len());
        close(&all, union.len(), "all blocks");
    }

    /// Intersections of two minutes are exact for few blocks and estimates for many; no sketch exceeds the stated
    /// size.
    #[test]
    fn theta_sketches_estimate_intersections() {
        let mut lane = Lane::new();
        lane.flow(1, "s", "c");
        // Each minute has half of its blocks in common with the previous one.
        for (minute, blocks) in [0..40_000i64, 20_000..60_000, 59_990..60_100]
            .into_iter()
            .enumerate()
        {
            for block in blocks {
                lane.operation(60 * minute as i64, 1, 5, block, 4096);
            }
            lane.take();
        }
        lane.sketches();
        let minutes = lane.pairs("blocks_read");
        let sizes: Vec<_> = lane.out.byte_strings("theta").map(<[u8]>::len).collect();
        assert!(
            sizes.iter().all(|size| *size <= (8 << LOG_HASHES) + 24),
            "{sizes:?}"
        );
        for (pair, common) in minutes.windows(2).zip([20_000, 10]) {
            let [(registers, one), (_, other)] = pair else {
                panic!("pairs")
            };
            let mut both = ThetaIntersection::default();
            both.update(one).expect("of one seed");
            both.update(other).expect("of one seed");
            let both = both.to_sketch(true).expect("of two");
            let bounds = both.lower_bound(NumStdDev::Three)..=both.upper_bound(NumStdDev::Three);
            assert!(bounds.contains(&f64::from(common)), "{common}: {bounds:?}");
            assert!(
                (one.estimate() / registers.estimate() - 1.0).abs() < 0.12,
                "the same blocks"
            );
        }
        assert_eq!(minutes[2].1.estimate(), 110.0, "few are exact");
    }

    /// A file key with bits spread like those of a hash, as in real keys.
    fn spread_file(number: i64) -> i64 {
        brunt_core::sketch::spread(number as u64 + 1) as i64
    }

    /// Only the latest flows are remembered, and operations of a lost flow are left out, as in a join.
    #[test]
    fn only_the_latest_flows_are_remembered() {
        let mut lane = Lane::new();
        let count = 2 * FLOWS_MAX as i64 + 10;
        (0..count).for_each(|flow| lane.flow(flow, "s", "c"));
        lane.operation(0, count - 1, 5, 0, 4096);
        lane.operation(0, count - FLOWS_MAX as i64 / 2, 6, 0, 4096);
        lane.operation(0, count + 7, 7, 0, 4096);
        let merged = lane.sketches();
        assert_eq!(merged[&name(0, "c", "files")].estimate().round(), 2.0);
        assert!(lane.maker.known.len() <= 2 * FLOWS_MAX);
    }

    /// Sketches are written when there are many, or when another minute begins, but not after a short pause.
    #[test]
    fn sketches_are_written_each_minute_or_when_there_are_many() {
        let mut lane = Lane::new();
        for client in 0..SKETCHES_MAX as i64 {
            lane.flow(client, "s", &client.to_string());
            lane.operation(0, client, 5, 0, 4096);
        }
        lane.take();
        // Each client has two sketches, so the limit was reached halfway through, and all sketches up to then were
        // written.
        assert!(
            (SKETCHES_MAX..2 * SKETCHES_MAX).contains(&lane.out.rows()),
            "{}",
            lane.out.rows()
        );
        lane.maker.on_time(&mut lane.out);
        assert_eq!(lane.out.rows(), SKETCHES_MAX);
        lane.operation(61, 0, 5, 0, 4096);
        lane.take();
        assert_eq!(lane.out.rows(), 2 * SKETCHES_MAX);
    }
}
