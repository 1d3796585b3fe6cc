//! What was seen, what was lost and where. Every stage counts into it; reports print it. The
//! one rule: the parts add up ([`Ledger::check`]).

use serde::Serialize;

/// Counters since the start of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Packets given to the pipeline.
    pub packets: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
    /// Packets that a snap length cut.
    pub packets_cut: u64,
    /// Packets dropped before the pipeline saw them (ring or NIC).
    pub packets_dropped: u64,
    /// Packets that are no IP.
    pub packets_not_ip: u64,
    /// IP packets that carry neither TCP nor UDP.
    pub packets_other_transport: u64,
    /// Packets whose headers could not be read.
    pub packets_unreadable: u64,
    /// Fragments of IP packets.
    pub fragments: u64,
    /// Packets given up because a fragment was missing, overlapped, or found no room.
    pub fragmented_packets_lost: u64,

    /// Connections begun.
    pub connections: u64,
    /// Connections forgotten to make room for others.
    pub connections_evicted: u64,
    /// Segments that came out of order and were put in their place.
    pub segments_reordered: u64,
    /// Bytes that came again.
    pub bytes_retransmitted: u64,
    /// Gaps in a stream that were given up.
    pub holes: u64,
    /// Their bytes: packets lost, or cut by the snap length.
    pub hole_bytes: u64,
    /// Jumps of a stream too wide to be a hole; read as a new start.
    pub stream_jumps: u64,

    /// Times a record's start was lost and had to be searched.
    pub slow_mode_entries: u64,
    /// Bytes searched through.
    pub slow_mode_bytes: u64,
    /// Bytes of connections and datagrams that are no RPC.
    pub not_rpc_bytes: u64,
    /// Records that were there in part; their operations are kept when the header was there.
    pub records_damaged: u64,
    /// Records whose RPC header was there in part only, so that nothing is known of them.
    pub records_lost: u64,
    /// Records larger than is kept, so that their end was not looked at.
    pub records_oversized: u64,

    /// Calls seen.
    pub calls: u64,
    /// Calls that came again with the same number while the first waited.
    pub calls_repeated: u64,
    /// Calls whose reply was seen.
    pub calls_answered: u64,
    /// Calls given up after the time-out.
    pub calls_timed_out: u64,
    /// Calls given up to make room for others.
    pub calls_evicted: u64,
    /// Calls still waiting when the capture ended.
    pub calls_open_at_end: u64,
    /// Calls waiting now.
    pub calls_open: u64,
    /// Replies seen.
    pub replies: u64,
    /// Replies whose call was never seen: calls lost.
    pub replies_unmatched: u64,
    /// Bodies that could not be read to their end although they were there.
    pub bodies_malformed: u64,
    /// NFSv4 compounds with an operation that is not known: what stands behind it was not read.
    pub compounds_unparsed: u64,
    /// NFSv4 attribute lists with an attribute that is not known: what stands behind it was not read.
    pub attributes_unparsed: u64,
    /// Bytes of READ and WRITE data that went by.
    pub data_bytes: u64,
    /// Bytes of READ and WRITE data that lay in holes.
    pub data_bytes_missing: u64,
    /// Blocks that were summed.
    pub blocks_summed: u64,
}

impl Ledger {
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
        macro_rules! add { ($($field:ident)*) => { $(self.$field += other.$field;)* } }
        add!(packets wire_bytes packets_cut packets_dropped packets_not_ip packets_other_transport
            packets_unreadable fragments fragmented_packets_lost connections connections_evicted
            segments_reordered bytes_retransmitted holes hole_bytes stream_jumps slow_mode_entries
            slow_mode_bytes not_rpc_bytes records_damaged records_lost records_oversized calls
            calls_repeated calls_answered calls_timed_out calls_evicted calls_open_at_end calls_open
            replies replies_unmatched bodies_malformed compounds_unparsed
            attributes_unparsed data_bytes data_bytes_missing blocks_summed);
    }
}
