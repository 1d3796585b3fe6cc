//! The effect of the lab's links on packets, and whether a figure is limited by the line rather than by the target.

use std::collections::{BTreeMap, BTreeSet};

use brunt_result::link::LinkCounts;
use brunt_result::summary::{PointSummary, Summary};

use super::points::Points;
use crate::format::{Unit, count};
use crate::page::{Cell, PageTable, Section};

/// Maximum number of rows in the table; the page says if more are left out.
const ROWS_MAX: usize = 200;
/// A line is saturated if payload takes more than this share of its bits: headers, preambles and gaps take 5.1 % at
/// an MTU of 1500.
const FULL: f64 = 0.90;

/// Columns of the table; [`row`] has a cell for each.
const COLUMNS: [&str; 11] = [
    "point",
    "link",
    "frames untouched",
    "packets",
    "lost",
    "queue full",
    "corrupted",
    "duplicated",
    "held back",
    "unintended",
    "emulation busy",
];

/// `None` without a lab.
pub(super) fn section(summary: &Summary, points: &Points<'_>) -> Option<Section> {
    let mut rows = Vec::new();
    for point in &summary.points {
        for link in names(point) {
            let seen = || point.runs.iter().filter_map(|run| run.links.get(link));
            let busy = seen().map(|report| report.busy).fold(0.0, f64::max);
            for (way, back) in [("there", false), ("back", true)] {
                let counts = seen().map(|report| if back { &report.back } else { &report.there });
                let way = format!("{link}, {way}");
                rows.push(row(
                    points.full_name(point),
                    way,
                    &counts.collect::<Vec<_>>(),
                    busy,
                ));
            }
        }
    }
    if rows.is_empty() {
        return None;
    }
    let all = rows.len();
    rows.truncate(ROWS_MAX);
    let mut section = Section::new("Links");
    section.table(
        PageTable::new(
            "Frames and packets, over all runs of a point",
            &COLUMNS,
            rows,
        )
        .folded(),
    );
    section.prose(
        "\"There\" is the direction from a link's first host to its second. Frames untouched bypassed \
         the emulation because no impairment was set for their direction; a frame is a packet or a train of \
         packets. Packets are wire-size packets that the emulation carried. Counters cover whole runs, including \
         ramp-up, faults and the depth search. Losses, corruption, duplicates and held-back packets are intended \
         by the settings, and drops from a full queue are part of a line's rate limit; unintended drops \
         invalidate the run.",
    );
    let usual = summary
        .points
        .iter()
        .flat_map(|point| &point.runs)
        .flat_map(|run| &run.links);
    let usual: BTreeSet<&str> = usual
        .filter(|(_, report)| report.usual_priority)
        .map(|(link, _)| link.as_str())
        .collect();
    if !usual.is_empty() {
        let names = usual.into_iter().collect::<Vec<_>>().join(", ");
        section.prose(format!(
            "The system refused to give the emulation of {names} a high priority, so other work can \
             delay packets. To allow it, run as root or with ulimit -e 40."
        ));
    }
    if all > ROWS_MAX {
        section.prose(format!("The first {ROWS_MAX} of {all} rows."));
    }
    Some(section)
}

/// One direction of a link, over all runs.
fn row(point: String, way: String, runs: &[&LinkCounts], busy: f64) -> Vec<Cell> {
    let sum = |of: fn(&LinkCounts) -> u64| runs.iter().map(|counts| of(counts)).sum::<u64>();
    let packets = sum(|counts| counts.packets);
    let counted = |number: u64| match number {
        0 => Cell::number("0"),
        number => Cell::Estimate(
            count(number as f64),
            Unit::Share.show(number as f64 / packets.max(1) as f64),
        ),
    };
    vec![
        Cell::text(point),
        Cell::text(way),
        Cell::number(count(sum(|counts| counts.straight_frames) as f64)),
        Cell::number(count(packets as f64)),
        counted(sum(|counts| counts.lost)),
        counted(sum(|counts| counts.queue_full)),
        counted(sum(|counts| counts.corrupted)),
        counted(sum(|counts| counts.duplicated)),
        counted(sum(|counts| counts.held)),
        counted(sum(LinkCounts::unintended)),
        Cell::number(Unit::Share.show(busy)),
    ]
}

/// Adds a sentence for each line that payload filled: that line limits the figures of these points.
pub(super) fn full_lines(summary: &Summary, points: &Points<'_>) -> Vec<String> {
    let mut full: BTreeMap<String, Vec<(f64, String)>> = BTreeMap::new();
    for point in &summary.points {
        for (link, rate) in &point.line_bits_per_second {
            let used = point
                .runs
                .iter()
                .filter(|run| run.is_complete())
                .map(|run| {
                    // Reads and writes go in opposite directions. The larger payload is assumed to have used the
                    // slower direction.
                    let bytes = run.ops.iter().map(|op| op.bytes).max().unwrap_or(0) as f64;
                    bytes * 8.0 / run.measured_s.max(f64::MIN_POSITIVE) / rate
                });
            let used: Vec<f64> = used.collect();
            let mean = used.iter().sum::<f64>() / used.len().max(1) as f64;
            if mean >= FULL {
                full.entry(link.clone())
                    .or_default()
                    .push((mean, points.full_name(point)));
            }
        }
    }
    let sentence = |(link, mut at): (String, Vec<(f64, String)>)| {
        at.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (share, name) = &at[0];
        let of = format!("{} of {}", at.len(), summary.points.len());
        format!(
            "Link {link} was saturated at {of} points, so their throughput is that of the link: payload used {} of its rate at {name}.",
            Unit::Share.show(*share)
        )
    };
    full.into_iter().map(sentence).collect()
}

fn names(point: &PointSummary) -> Vec<&String> {
    let mut names: Vec<&String> = point.runs.iter().flat_map(|run| run.links.keys()).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table shows unmodified packets next to impaired ones.
    #[test]
    fn every_count_has_its_cell() {
        let counts = LinkCounts {
            straight_frames: 45_574,
            packets: 135,
            lost: 27,
            ..LinkCounts::default()
        };
        let row = row(
            "point".into(),
            "wan, there".into(),
            &[&counts, &counts],
            0.005,
        );
        let expected = [
            "point",
            "wan, there",
            "91,148",
            "270",
            "54",
            "0",
            "0",
            "0",
            "0",
            "0",
            "0.5",
        ];
        assert_eq!((row.len(), COLUMNS.len()), (expected.len(), expected.len()));
        for (cell, said) in row.iter().zip(expected) {
            assert!(format!("{cell:?}").contains(said), "{said} in {cell:?}");
        }
    }
}
