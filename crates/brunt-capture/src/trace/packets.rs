//! Packets as they were captured: the table `packets`.

use brunt_lake::{Column, Table};

use super::common::Common;
use super::rows::{Handle, Registry, Tabled, WrittenBy};
use crate::key::Packet;

/// Packets.
pub const PACKETS: Table = Table {
    name: "packets",
    doc: "One row for each packet; within a part, ordered by flow and capture time.",
    columns: &[
        Column::time("time", "Capture time."),
        Column::int(
            "flow",
            "Source and destination: `flows.flow`; null if the packet is not IP.",
        )
        .nullable(),
        Column::int("interface", "The interface's number in the capture."),
        Column::int("pipeline", "Pipeline of the capture that processed the packet."),
        Column::int(
            "source_mac",
            "The source MAC address as a 48-bit number, innermost in tunnels; null if there is none.",
        )
        .nullable(),
        Column::int("destination_mac", "The receiver's MAC address, likewise.").nullable(),
        Column::int("vlan", "The innermost VLAN id; null if there is none.").nullable(),
        Column::int("wire_bytes", "Length on the wire."),
        Column::int("missing_bytes", "Bytes cut off by the snap length."),
        Column::bool("is_fragment", "Whether the packet is a fragment of an IP packet."),
        Column::int(
            "tcp_seq",
            "TCP sequence number of the first byte; null unless TCP.",
        )
        .nullable(),
        Column::int(
            "tcp_flags",
            "TCP flags: 1 FIN, 2 SYN, 4 RST, 8 PSH, 16 ACK; null unless TCP.",
        )
        .nullable(),
        Column::int(
            "payload_bytes",
            "Bytes of TCP or UDP payload; null for other protocols.",
        )
        .nullable(),
        Column::bool(
            "in_message",
            "Whether the packet's data belongs to a message whose header was found.",
        ),
        Column::text(
            "not_understood",
            "The unsupported protocol in the packet, such as `EtherType 0x88b5`; null if there is none.",
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

/// The packet table of a pipeline.
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
