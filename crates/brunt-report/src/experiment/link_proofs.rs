//! What probe packets measured on links between other machines before each run: the evidence that a point's delay,
//! loss and rate were in effect.
//!
//! The rule: a figure that was not measured is shown as a dash.

use std::collections::BTreeMap;

use brunt_result::link::LinkProof;
use brunt_result::summary::Summary;

use super::points::Points;
use crate::format::Unit;
use crate::page::{Cell, PageTable, Section};

/// Columns of the table; [`row`] has a cell for each.
const COLUMNS: [&str; 9] = [
    "point",
    "link",
    "applied by",
    "set, there",
    "set, back",
    "round trip before",
    "round trip",
    "echo requests lost",
    "rate",
];

/// `None` without links between other machines.
pub(super) fn section(summary: &Summary, points: &Points<'_>) -> Option<Section> {
    let mut rows = Vec::new();
    for point in &summary.points {
        let mut links: BTreeMap<&str, Vec<&LinkProof>> = BTreeMap::new();
        for (link, proof) in point.runs.iter().flat_map(|run| &run.link_proofs) {
            links.entry(link).or_default().push(proof);
        }
        let of_point = links
            .into_iter()
            .map(|(link, proofs)| row(points.full_name(point), link, &proofs));
        rows.extend(of_point);
    }
    if rows.is_empty() {
        return None;
    }
    let mut section = Section::new("Links between machines");
    let caption = "Echo requests over each link before the runs of a point: means over runs";
    section.table(PageTable::new(caption, &COLUMNS, rows).folded());
    section.prose(
        "\"There\" is the direction from a link's first host to its second. The round trip of a probe \
         is its shortest one. An echo request counts as lost if it or its reply is lost, so the loss covers both \
         directions. A run whose probes contradict the settings does not begin.",
    );
    Some(section)
}

/// A link at a point, over all runs.
fn row(point: String, link: &str, proofs: &[&LinkProof]) -> Vec<Cell> {
    let mean = |of: &dyn Fn(&LinkProof) -> Option<f64>| {
        let values: Vec<f64> = proofs.iter().filter_map(|proof| of(proof)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let number = |unit: Unit, value| Cell::number(unit.show_known(value));
    let set = |way: usize| match proofs[0].set[way].as_str() {
        "" => Cell::text("nothing"),
        set => Cell::text(set),
    };
    let rate = mean(&|proof| proof.bits_per_second);
    vec![
        Cell::text(point),
        Cell::text(link),
        Cell::text(&proofs[0].carrier),
        set(0),
        set(1),
        number(Unit::Micros, mean(&|proof| Some(proof.clear_round_trip_us))),
        number(Unit::Micros, mean(&|proof| proof.round_trip_us)),
        number(Unit::Share, mean(&|proof| proof.loss)),
        match rate {
            Some(rate) => Cell::number(format!("{:.3} Mb/s", rate / 1e6)),
            None => number(Unit::Count, None),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Means are over the runs that measured a figure; a figure that no run measured is a dash.
    #[test]
    fn every_figure_has_its_cell() {
        let proof = |round_trip_us, loss| LinkProof {
            carrier: "bridge of host wire".into(),
            set: ["delay 10ms".into(), String::new()],
            clear_round_trip_us: 150.0,
            round_trip_us: Some(round_trip_us),
            loss,
            bits_per_second: None,
        };
        let (first, second) = (proof(10_100.0, Some(0.02)), proof(10_300.0, None));
        let row = row("point".into(), "wan", &[&first, &second]);
        let expected = [
            "point",
            "wan",
            "bridge of host wire",
            "delay 10ms",
            "nothing",
            "150 µs",
            "10.2 ms",
            "2 %",
            "–",
        ];
        assert_eq!(row.len(), COLUMNS.len());
        for (cell, expected) in row.iter().zip(expected) {
            assert!(
                format!("{cell:?}").contains(expected),
                "{expected} in {cell:?}"
            );
        }
    }
}
