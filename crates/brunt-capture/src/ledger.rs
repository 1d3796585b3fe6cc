//! The loss ledger: what was seen, what was lost and where. Every stage updates it and reports print it. Losses
//! specific to a protocol are counted by its dissector under its own names (`dissect/counters.rs`). The one
//! rule: the parts add up ([`Ledger::check`]).

use brunt_lake::Column;
use brunt_wire::net::Tunnel;

/// Maximum number of protocol-specific counters, all protocols together. The table of dissectors is checked
/// against it.
pub(crate) const OWN_MAX: usize = 16;

/// Declares the counters and their descriptions, as fields and as columns of a trace. Counters after `later`
/// were added after traces had been written without them; in those traces, they are null.
macro_rules! counters {
    ($(#[doc = $doc:literal] $name:ident,)* later: $(#[doc = $later_doc:literal] $later:ident,)*) => {
        /// Counters since the start of a capture.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Ledger {
            $(#[doc = $doc] pub $name: u64,)*
            $(#[doc = $later_doc] pub $later: u64,)*
            /// Protocol-specific counters.
            pub own: [u64; OWN_MAX],
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
                Ledger { $($name,)* $($later,)* own }
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
    /// Packets that are no IP, in whatever tunnels.
    packets_not_ip,
    /// IP packets that carry neither TCP nor UDP.
    packets_other_transport,
    /// Packets whose headers could not be read.
    packets_unreadable,
    /// Packets in more than 8 tunnels, one in the other, which are not looked into.
    packets_tunneled_too_deep,
    /// VXLAN headers taken off.
    tunnels_vxlan,
    /// GENEVE headers taken off.
    tunnels_geneve,
    /// GRE headers taken off that held no ERSPAN.
    tunnels_gre,
    /// ERSPAN headers of type I taken off, with their GRE header.
    tunnels_erspan_1,
    /// ERSPAN headers of type II taken off, with their GRE header.
    tunnels_erspan_2,
    /// ERSPAN headers of type III taken off, with their GRE header.
    tunnels_erspan_3,
    /// IP headers taken off that held an IP packet.
    tunnels_ip_in_ip,
    /// Stacks of MPLS labels taken off.
    tunnels_mpls,
    /// PPPoE headers taken off.
    tunnels_pppoe,
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
    /// Gaps among them that were given up because what waited behind them found no room.
    gaps_no_room,
    /// Their bytes, which were perhaps only late.
    gap_bytes_no_room,
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
    /// Calls that another one ended, so that no answer came: tasks that iSCSI's task management aborted.
    calls_aborted,
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
    /// Packets that are not in the packet file, for lack of room on the disk or on the way to it.
    pcap_packets_lost,

    later:
    /// Packets with a time before that of the packet before them on their interface.
    packets_back,
    /// Times the capture's clock was set: a packet's time went back by more than 100 ms, or jumped ahead by 120 s or more while requests were waiting.
    clock_steps,
    /// Requests without an answer that waited longer than any that has one, in a capture with gaps: the answer was most likely lost.
    replies_lost,
}

/// A sum in a [`Ledger`] that doesn't hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unbalanced {
    /// Calls are answered, repeated, timed out, evicted, aborted or open.
    #[error("calls are answered, repeated, timed out, evicted, aborted or open")]
    Calls,
    /// Replies are matched or unmatched.
    #[error("replies are matched or unmatched")]
    Replies,
}

impl Ledger {
    /// Checks that the parts add up and returns the first sum that doesn't.
    ///
    /// # Errors
    /// Names the sum that is wrong. This is a bug in brunt, and the report is marked invalid.
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

    /// The counter of stripped headers of this tunnel type.
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
        *self = Ledger::from_counters(std::array::from_fn(|index| mine[index] + others[index]));
    }
}
