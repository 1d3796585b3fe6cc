//! Packets as they were captured: the table `packets`.

use brunt_lake::{Column, Table};

use super::common::Common;
use super::rows::{Handle, Registry, Tabled, WrittenBy};
use crate::key::Packet;

/// Packets.
pub const PACKETS: Table = Table {
    name: "packets",
    doc: "One row for each packet; within a part ordered by flow and capture time.",
    columns: &[
        Column::time("time", "When it was captured."),
        Column::int("flow", "Sender and receiver: `flows.flow`; null if it is not IP.").nullable(),
        Column::int("interface", "The interface's number in the capture."),
        Column::int("pipeline", "Pipeline of the capture that processed it."),
        Column::int(
            "source_mac",
            "The sender's MAC address, as a number of 48 bits, in a tunnel the innermost one; null where there is none.",
        )
        .nullable(),
        Column::int("destination_mac", "The receiver's.").nullable(),
        Column::int("vlan", "The innermost VLAN's number; null without one.").nullable(),
        Column::int("wire_bytes", "Its length on the wire."),
        Column::int("missing_bytes", "Bytes cut off by the snap length."),
        Column::bool("is_fragment", "Whether it is a fragment of an IP packet."),
        Column::int("tcp_seq", "The sequence number of its first byte; null unless it is TCP.").nullable(),
        Column::int(
            "tcp_flags",
            "TCP's control bits: 1 FIN, 2 SYN, 4 RST, 8 PSH, 16 ACK; null unless it is TCP.",
        )
        .nullable(),
        Column::int("payload_bytes", "Bytes of data above TCP or UDP; null for other protocols.").nullable(),
        Column::bool("in_message", "Whether its data belongs to a message whose header was found."),
        Column::text(
            "not_understood",
            "What it carries that is not understood, such as `EtherType 0x88b5`; null for all else.",
        )
        .nullable(),
    ],
};

struct PacketsTable;

impl Tabled for PacketsTable {
    const TABLE: &'static Table = &PACKETS;
    const BY: WrittenBy = WrittenBy::Bulk;
    const ORDER: Option<&'static str> = Some("flow");
}

/// The packets of a pipeline.
pub struct Packets {
    table: Handle<PacketsTable>,
}

fn mac(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Packets {
    pub fn register(registry: &mut Registry) -> Packets {
        Packets {
            table: registry.add(),
        }
    }

    #[inline]
    pub fn record(&mut self, packet: &Packet, flow: Option<i64>, common: &mut Common) {
        let macs = packet.macs.map(|macs| {
            let (destination, source) = macs.split_at(6);
            [
                common.hide.mac(mac(source)),
                common.hide.mac(mac(destination)),
            ]
        });
        let pipeline = common.pipeline as i64;
        let not_understood = packet
            .not_understood
            .map(|next| common.rows.words(self.table).text(&next.to_string()));
        common
            .rows
            .line(self.table)
            .int(packet.time_ns as i64)
            .int_or_null(flow)
            .int(packet.interface.into())
            .int(pipeline)
            .int_or_null(macs.map(|macs| macs[0]))
            .int_or_null(macs.map(|macs| macs[1]))
            .int_or_null(packet.vlan.map(i64::from))
            .int(packet.wire_len.into())
            .int(packet.missing.into())
            .bool(packet.is_fragment)
            .int_or_null(packet.tcp.map(|(seq, _)| seq.into()))
            .int_or_null(packet.tcp.map(|(_, flags)| flags.into()))
            .int_or_null(packet.payload_len.map(i64::from))
            .bool(packet.in_message)
            .int_or_null(not_understood)
            .end();
    }
}
