//! Counts packets that are not understood: protocols other than TCP and UDP that are not decoded. Included in every
//! report, because a capture of unsupported traffic would otherwise look like an idle one.

use std::collections::BTreeMap;

use brunt_result::capture::{AnalysisSection, SectionColumn, SectionUnit};
use brunt_wire::net::NextHeader;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::analyse::Analyse;

/// Protocols counted individually; further ones are counted together.
const KINDS_MAX: usize = 256;

/// Columns of this analysis's section.
const COLUMNS: &[SectionColumn] = &[
    SectionColumn::new("name", "protocol", SectionUnit::Text),
    SectionColumn::new("packets", "packets", SectionUnit::Count),
    SectionColumn::new("bytes", "bytes", SectionUnit::Bytes),
];

/// Number of packets and bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Amount {
    /// Packets.
    pub packets: u64,
    /// Bytes of these packets on the wire.
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, other: &Amount) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Packets and bytes that were not understood, by protocol name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NotUnderstood {
    by_name: BTreeMap<String, Amount>,
    others: Amount,
}

impl NotUnderstood {
    /// All protocols, the one with the most first.
    pub fn amounts(&self) -> Vec<(String, Amount)> {
        let mut rows: Vec<_> = self
            .by_name
            .iter()
            .map(|(name, amount)| (name.clone(), *amount))
            .collect();
        if self.others.packets > 0 {
            rows.push(("others".into(), self.others));
        }
        rows.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.packets));
        rows
    }

    fn of(&mut self, name: String) -> &mut Amount {
        if self.by_name.len() >= KINDS_MAX && !self.by_name.contains_key(&name) {
            return &mut self.others;
        }
        self.by_name.entry(name).or_default()
    }
}

impl Analyse for NotUnderstood {
    const HELP: &'static str = "packets of unsupported protocols";
    const SQL: Option<&'static str> = Some(include_str!("../../sql/not_understood.sql"));

    fn on_not_understood(&mut self, next: NextHeader, wire_len: u32) {
        let name = match next.known_as() {
            Some(known) => format!("{next} ({known})"),
            None => next.to_string(),
        };
        self.of(name).add(&Amount {
            packets: 1,
            bytes: wire_len.into(),
        });
    }

    fn merge(&mut self, other: NotUnderstood) {
        for (name, amount) in other.by_name {
            self.of(name).add(&amount);
        }
        self.others.add(&other.others);
    }

    fn sections(&self) -> Vec<AnalysisSection> {
        let rows = self.amounts().into_iter().map(|(name, amount)| {
            json!({ "name": name, "packets": amount.packets, "bytes": amount.bytes })
        });
        let title = "Unsupported protocols";
        vec![AnalysisSection::table(
            "not_understood",
            title,
            COLUMNS,
            rows,
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All packets are counted, and the table stays small for any number of protocols.
    #[test]
    fn many_kinds_keep_the_table_small_and_every_packet_counted() {
        let (mut one, mut other) = (NotUnderstood::default(), NotUnderstood::default());
        for number in 0..2000 {
            one.on_not_understood(NextHeader::EtherType(0x8000 + number), 64);
            other.on_not_understood(NextHeader::EtherType(0x8000 + number % 7), 64);
        }
        one.merge(other);
        let rows = one.amounts();
        assert_eq!(rows.len(), KINDS_MAX + 1);
        assert_eq!(
            rows.iter().map(|(_, amount)| amount.packets).sum::<u64>(),
            4000
        );
        assert_eq!(
            rows.iter().map(|(_, amount)| amount.bytes).sum::<u64>(),
            4000 * 64
        );
    }
}
