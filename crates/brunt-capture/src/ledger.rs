//! The loss ledger: what was seen, what was lost and where. Every stage updates it, and reports print it. Losses
//! specific to a protocol are counted by its dissector under its own names (`dissect/counters.rs`). The one rule: the
//! parts add up ([`Ledger::check`]).

use brunt_lake::Column;
use brunt_wire::net::Tunnel;

/// Maximum number of protocol-specific counters, for all protocols together. The table of dissectors is checked
/// against this limit.
pub(crate) const OWN_MAX: usize = 16;

/// Declares the counters with their descriptions, as fields and as columns of a trace. Counters after `later` are
/// null in traces written before these counters were added.
macro_rules! counters {
    ($(#[doc = $doc:literal] $name:ident,)* later: $(#[doc = $later_doc:literal] $later:ident,)*) => {
        /// Counters since the start of a capture.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Ledger {
            $(#[doc = $doc] pub $name: u64,)*
            $(#[doc = $later_doc] pub $later: u64,)*
            /// Protocol-specific counters.
            pub own: [u64; OWN_MAX],
            /// Calls that were already open at the start ([`Ledger::since`]) and count again.
            pub calls_carried: u64,
        }

        impl Ledger {
            /// The counters shared by all protocols, as columns.
            pub(crate) const SHARED: [Column; [$(stringify!($name),)* $(stringify!($later),)*].len()] = [
                $(Column::int(stringify!($name), $doc.split_at(1).1),)*
                $(Column::int(stringify!($later), $later_doc.split_at(1).1).nullable(),)*
            ];

            pub(crate) fn shared(&self) -> [u64; Ledger::SHARED.len()] {
                [$(self.$name,)* $(self.$later,)*]
            }

            pub(crate) fn from_parts(shared: [u64; Ledger::SHARED.len()], own: [u64; OWN_MAX]) -> Ledger {
                let [$($name,)* $($later,)*] = shared;
                Ledger { $($name,)* $($later,)* own, calls_carried: 0 }
            }
        }
    };
}

counters! {
    /// Packets processed by the pipeline.
    packets,
    /// Length on the wire of all packets processed, in bytes.
    wire_bytes,
    /// Packets truncated by a snap length.
    packets_cut,
    /// Packets dropped before processing (by the ring or the NIC).
    packets_dropped,
    /// Packets that are not IP, inside or outside tunnels.
    packets_not_ip,
    /// IP packets that carry neither TCP nor UDP.
    packets_other_transport,
    /// Packets with unreadable headers.
    packets_unreadable,
    /// Packets in more than 8 nested tunnels, which are not decoded.
    packets_tunneled_too_deep,
    /// VXLAN headers removed.
    tunnels_vxlan,
    /// GENEVE headers removed.
    tunnels_geneve,
    /// GRE headers removed, except those of ERSPAN.
    tunnels_gre,
    /// ERSPAN type I headers removed, with their GRE headers.
    tunnels_erspan_1,
    /// ERSPAN type II headers removed, with their GRE headers.
    tunnels_erspan_2,
    /// ERSPAN type III headers removed, with their GRE headers.
    tunnels_erspan_3,
    /// Outer IP headers removed from IP-in-IP packets.
    tunnels_ip_in_ip,
    /// MPLS label stacks removed.
    tunnels_mpls,
    /// PPPoE headers removed.
    tunnels_pppoe,
    /// Fragments of IP packets.
    fragments,
    /// Fragmented packets discarded because a fragment was missing or overlapped another, or due to lack of memory.
    fragmented_packets_lost,

    /// Connections opened.
    connections,
    /// Connections evicted to make room for others.
    connections_evicted,
    /// Segments that arrived out of order and were reordered.
    segments_reordered,
    /// Retransmitted bytes.
    bytes_retransmitted,
    /// Gaps in streams that were skipped.
    holes,
    /// Bytes in skipped gaps: of packets that were lost, or cut off by the snap length.
    hole_bytes,
    /// Gaps skipped because there was no memory for the data after them.
    gaps_no_room,
    /// Bytes in gaps skipped due to lack of memory; these bytes may merely have been late.
    gap_bytes_no_room,
    /// Jumps in a stream that are too wide for a hole and are treated as a new start.
    stream_jumps,

    /// Number of times that the start of a record was lost and had to be searched for.
    slow_mode_entries,
    /// Bytes searched for the start of a record.
    slow_mode_bytes,
    /// Bytes of connections and datagrams of an unknown protocol.
    bytes_unclaimed,
    /// Incomplete records; their operations are kept if the header was captured.
    records_damaged,
    /// Records without a complete header, whose operations are unknown.
    records_lost,
    /// Records larger than the buffer, whose end was not parsed.
    records_oversized,

    /// Calls captured.
    calls,
    /// Calls repeated with the same id while the first call was outstanding.
    calls_repeated,
    /// Calls whose reply was captured.
    calls_answered,
    /// Calls abandoned after the timeout.
    calls_timed_out,
    /// Calls evicted to make room for others.
    calls_evicted,
    /// Calls that another call ended without a reply: tasks aborted by iSCSI task management.
    calls_aborted,
    /// Calls outstanding when the capture ended.
    calls_open_at_end,
    /// Calls that are outstanding now.
    calls_open,
    /// Replies captured.
    replies,
    /// Replies whose call was not captured.
    replies_unmatched,
    /// Message bodies that were captured completely but could not be parsed to the end.
    bodies_malformed,
    /// Bytes of READ and WRITE data.
    data_bytes,
    /// Bytes of READ and WRITE data lost in holes.
    data_bytes_missing,
    /// Blocks with checksums.
    blocks_summed,
    /// Rows of the trace dropped due to lack of disk space or memory.
    trace_rows_lost,
    /// Parts of the trace deleted to keep it within its maximum size.
    trace_parts_deleted,
    /// Rows in the deleted parts of the trace.
    trace_rows_deleted,
    /// Bytes on disk of the deleted parts of the trace.
    trace_bytes_deleted,
    /// Packets missing from the packet file due to lack of disk space or memory.
    pcap_packets_lost,

    later:
    /// Packets with an earlier time than the previous packet on their interface.
    packets_back,
    /// Clock changes: packet times went back by over 100 ms, or ahead by 120 s or more while requests were open.
    clock_steps,
    /// Unanswered requests that waited longer than any answered one, in a capture with gaps: replies likely lost.
    replies_lost,
    /// Number of times that the capture was restarted to continue its trace.
    restarts,
    /// Nanoseconds between the last packet before each restart and the first after it.
    restart_gap_ns,
}

/// A sum in a [`Ledger`] that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unbalanced {
    /// Every call must be answered, repeated, timed out, evicted, aborted or open.
    #[error("not every call is answered, repeated, timed out, evicted, aborted or open")]
    Calls,
    /// Every reply must be matched or unmatched.
    #[error("not every reply is matched or unmatched")]
    Replies,
}

impl Ledger {
    /// Checks that the parts add up.
    ///
    /// # Errors
    /// Returns the first sum that is wrong. A wrong sum is a bug in brunt, and the report is marked invalid.
    pub fn check(&self) -> Result<(), Unbalanced> {
        let calls = self.calls_answered
            + self.calls_timed_out
            + self.calls_evicted
            + self.calls_aborted
            + self.calls_repeated
            + self.calls_open_at_end
            + self.calls_open;
        if calls != self.calls {
            return Err(Unbalanced::Calls);
        }
        if self.replies != self.calls_answered + self.replies_unmatched {
            return Err(Unbalanced::Replies);
        }
        Ok(())
    }

    /// The counters since `before`, an earlier state of the same pipelines. Calls that were open at that time count
    /// as calls of this period, too, so that its parts add up.
    pub fn since(&self, before: &Ledger) -> Ledger {
        let (now, then) = (self.counters(), before.counters());
        let since = std::array::from_fn(|index| now[index].saturating_sub(then[index]));
        let mut since = Ledger::from_counters(since);
        since.calls += before.calls_open;
        since.calls_carried = before.calls_open;
        since.calls_open = self.calls_open;
        since
    }

    /// The counter of headers removed for this tunnel type.
    pub fn tunnel(&mut self, tunnel: Tunnel) -> &mut u64 {
        match tunnel {
            Tunnel::Vxlan => &mut self.tunnels_vxlan,
            Tunnel::Geneve => &mut self.tunnels_geneve,
            Tunnel::Gre => &mut self.tunnels_gre,
            Tunnel::ErspanI => &mut self.tunnels_erspan_1,
            Tunnel::ErspanIi => &mut self.tunnels_erspan_2,
            Tunnel::ErspanIii => &mut self.tunnels_erspan_3,
            Tunnel::IpInIp => &mut self.tunnels_ip_in_ip,
            Tunnel::Mpls => &mut self.tunnels_mpls,
            Tunnel::Pppoe => &mut self.tunnels_pppoe,
        }
    }

    /// Adds another pipeline's counters.
    pub fn merge(&mut self, other: &Ledger) {
        let (mine, others) = (self.counters(), other.counters());
        let calls_carried = self.calls_carried + other.calls_carried;
        *self = Ledger::from_counters(std::array::from_fn(|index| mine[index] + others[index]));
        self.calls_carried = calls_carried;
    }
}
