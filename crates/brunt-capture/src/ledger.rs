//! What was seen, what was lost and where. Every stage counts into it; reports print it. What only one protocol
//! loses or does not understand, its dissector counts under names of its own. The one rule: the parts add up
//! ([`Ledger::check`]).

use brunt_lake::Column;
use serde::{Serialize, Serializer};

use crate::dissect::{COUNTER_COUNT, OWN_COUNTERS, Registered};

/// Declares the counters with what each counts: fields, and columns of a trace.
macro_rules! counters {
    ($(#[doc = $doc:literal] $name:ident,)*) => {
        /// Counters since the start of a capture.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Ledger {
            $(#[doc = $doc] pub $name: u64,)*
            /// What protocols count apart.
            pub own: [u64; COUNTER_COUNT],
        }

        impl Ledger {
            /// The counters of all protocols, as columns.
            const SHARED: [Column; [$(stringify!($name)),*].len()] =
                [$(Column::int(stringify!($name), $doc.split_at(1).1)),*];

            fn shared(&self) -> [u64; Ledger::SHARED.len()] {
                [$(self.$name),*]
            }

            fn from_parts(shared: [u64; Ledger::SHARED.len()], own: [u64; COUNTER_COUNT]) -> Ledger {
                let [$($name),*] = shared;
                Ledger { $($name,)* own }
            }
        }
    };
}

counters! {
    /// Packets given to the pipeline.
    packets,
    /// Their bytes on the wire.
    wire_bytes,
    /// Packets that a snap length cut.
    packets_cut,
    /// Packets dropped before the pipeline saw them (ring or NIC).
    packets_dropped,
    /// Packets that are no IP.
    packets_not_ip,
    /// IP packets that carry neither TCP nor UDP.
    packets_other_transport,
    /// Packets whose headers could not be read.
    packets_unreadable,
    /// Fragments of IP packets.
    fragments,
    /// Packets given up because a fragment was missing, overlapped, or found no room.
    fragmented_packets_lost,

    /// Connections begun.
    connections,
    /// Connections forgotten to make room for others.
    connections_evicted,
    /// Segments that came out of order and were put in their place.
    segments_reordered,
    /// Bytes that came again.
    bytes_retransmitted,
    /// Gaps in a stream that were given up.
    holes,
    /// Their bytes: packets lost, or cut by the snap length.
    hole_bytes,
    /// Jumps of a stream too wide to be a hole; read as a new start.
    stream_jumps,

    /// Times a record's start was lost and had to be searched.
    slow_mode_entries,
    /// Bytes searched through.
    slow_mode_bytes,
    /// Bytes of connections and datagrams whose protocol is not known.
    bytes_unclaimed,
    /// Records that were there in part; their operations are kept when the header was there.
    records_damaged,
    /// Records whose RPC header was there in part only, so that nothing is known of them.
    records_lost,
    /// Records larger than is kept, so that their end was not looked at.
    records_oversized,

    /// Calls seen.
    calls,
    /// Calls that came again with the same number while the first waited.
    calls_repeated,
    /// Calls whose reply was seen.
    calls_answered,
    /// Calls given up after the time-out.
    calls_timed_out,
    /// Calls given up to make room for others.
    calls_evicted,
    /// Calls still waiting when the capture ended.
    calls_open_at_end,
    /// Calls waiting now.
    calls_open,
    /// Replies seen.
    replies,
    /// Replies whose call was never seen: calls lost.
    replies_unmatched,
    /// Bodies that could not be read to their end although they were there.
    bodies_malformed,
    /// Bytes of READ and WRITE data that went by.
    data_bytes,
    /// Bytes of READ and WRITE data that lay in holes.
    data_bytes_missing,
    /// Blocks that were summed.
    blocks_summed,
    /// Rows of the trace that found no room, on the disk or on the way to it.
    trace_rows_lost,
    /// Parts of the trace deleted to keep within its size.
    trace_parts_deleted,
    /// Rows of the trace that were in them.
    trace_rows_deleted,
    /// Their bytes on disk.
    trace_bytes_deleted,
    /// Packets that are not in the packet file, for want of room on the disk or on the way to it.
    pcap_packets_lost,
}

impl Ledger {
    /// How many counters there are.
    pub const COUNT: usize = Ledger::SHARED.len() + COUNTER_COUNT;

    /// The columns that keep them: a time, then each counter.
    pub const COLUMNS: [Column; Ledger::COUNT + 1] = {
        let mut own = [Column::int("", ""); COUNTER_COUNT];
        let mut at = 0;
        while at < COUNTER_COUNT {
            own[at] = Column::int(OWN_COUNTERS[at].1.name, OWN_COUNTERS[at].1.doc);
            at += 1;
        }
        brunt_lake::columns(&[&[Column::time("time", "When.")], &Ledger::SHARED, &own])
    };

    /// One of a protocol's own counters, by its place among [`Dissector::COUNTERS`](crate::dissect::Dissector::COUNTERS).
    #[inline]
    pub fn own<D: Registered>(&mut self, place: usize) -> &mut u64 {
        assert!(place < D::COUNTERS.len());
        &mut self.own[D::FIRST_COUNTER + place]
    }

    /// All counters, in the order of the columns.
    pub fn counters(&self) -> [u64; Ledger::COUNT] {
        let (shared, mut all) = (self.shared(), [0; Ledger::COUNT]);
        all[..shared.len()].copy_from_slice(&shared);
        all[shared.len()..].copy_from_slice(&self.own);
        all
    }

    /// All counters with their names.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Ledger::COLUMNS[1..].iter().map(|column| column.name).zip(self.counters())
    }

    /// From all counters.
    pub fn from_counters(counters: [u64; Ledger::COUNT]) -> Ledger {
        let own = |index: usize| counters[Ledger::SHARED.len() + index];
        Ledger::from_parts(std::array::from_fn(|index| counters[index]), std::array::from_fn(own))
    }

    /// Whether the parts add up; the first that do not.
    ///
    /// # Errors
    /// Names the sum that is wrong: a bug of ours, the report is marked invalid.
    pub fn check(&self) -> Result<(), &'static str> {
        let calls = self.calls_answered
            + self.calls_timed_out
            + self.calls_evicted
            + self.calls_repeated
            + self.calls_open_at_end
            + self.calls_open;
        if calls != self.calls {
            return Err("calls are answered, repeated, timed out, evicted or open");
        }
        if self.replies != self.calls_answered + self.replies_unmatched {
            return Err("replies are matched or unmatched");
        }
        Ok(())
    }

    /// Takes in another pipeline's counters.
    pub fn merge(&mut self, other: &Ledger) {
        let (mine, others) = (self.counters(), other.counters());
        *self = Ledger::from_counters(std::array::from_fn(|index| mine[index] + others[index]));
    }
}

/// An object of all counters, by name.
impl Serialize for Ledger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.named())
    }
}
