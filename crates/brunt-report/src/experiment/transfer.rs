//! Data-transfer efficiency: bytes carried by a lab's links, or by interfaces of other hosts, per byte that the load
//! read or wrote.
//!
//! The rule: a value that was not measured is shown as a dash, not as zero.

use brunt_result::statistics::Estimate;
use brunt_result::summary::Summary;
use brunt_result::transfer::{CarriedBytes, TransferEfficiency};

use super::points::Points;
use crate::format::{Unit, plus_minus, three};
use crate::page::{Bar, Bars, Block, Cell, PageTable, Section};

/// Maximum number of bars in the chart; the table has all, and the page says so.
const BARS_MAX: usize = 64;
/// Maximum number of rows in the table; `summary.json` has all, and the page says so.
const ROWS_MAX: usize = 400;

const COLUMNS: [&str; 6] = [
    "point",
    "links",
    "bytes for each useful byte",
    "without idle traffic",
    "within, each run",
    "on links",
];

/// `None` without a lab or interfaces.
pub(super) fn section(summary: &Summary, points: &Points<'_>) -> Option<Section> {
    let found = summary
        .points
        .iter()
        .filter_map(|point| Some((points.full_name(point), point.transfer.as_ref()?)));
    let found: Vec<(String, &TransferEfficiency)> = found.collect();
    if found.is_empty() {
        return None;
    }
    let mut section = Section::new("Data transfer");
    section.prose(
        "Bytes that links carried in both directions, including headers, for each byte that requests \
         read or wrote in the measured time. A packet counts on each link that it crosses. Idle traffic is what \
         the links carried before a run, without load; it is a dash where no idle time was measured. Interfaces \
         of other hosts count what they send; 'within' is how far off both figures of a run may be, because \
         counters are read at intervals and idle traffic varies. Delayed links are those that have a delay at \
         any point of the experiment, like links between sites.",
    );
    section.blocks.push(Block::Bars(bars(&found)));
    let mut rows: Vec<Vec<Cell>> = found
        .iter()
        .flat_map(|(name, transfer)| of_point(name, transfer))
        .collect();
    let all = rows.len();
    rows.truncate(ROWS_MAX);
    section.table(
        PageTable::new(
            "Bytes on links, means over runs with 95 % intervals",
            &COLUMNS,
            rows,
        )
        .folded(),
    );
    if all > ROWS_MAX {
        section.prose(format!(
            "The first {ROWS_MAX} of {all} rows; summary.json has all (points[].transfer)."
        ));
    }
    Some(section)
}

/// A bar for each point, for all links together.
fn bars(found: &[(String, &TransferEfficiency)]) -> Bars {
    let bar = |(name, transfer): &(String, &TransferEfficiency)| match transfer.all.per_useful_byte
    {
        Some(ratio) => Bar {
            name: name.clone(),
            parts: vec![ratio.mean],
            interval: ratio.low.zip(ratio.high),
            shown: three(ratio.mean),
            uncertainty: ratio
                .relative_half_width()
                .map_or(String::new(), plus_minus),
        },
        None => Bar {
            name: name.clone(),
            shown: "nothing read or written".into(),
            ..Bar::default()
        },
    };
    let mut caption = "All links together; means over runs with 95 % intervals.".to_string();
    if found.len() > BARS_MAX {
        caption += &format!(" The first {BARS_MAX} of {}.", found.len());
    }
    let bars = found.iter().take(BARS_MAX).map(bar).collect();
    Bars {
        title: "Bytes on links for each useful byte".into(),
        caption,
        bars,
        parts: Vec::new(),
    }
}

fn of_point(name: &str, transfer: &TransferEfficiency) -> Vec<Vec<Cell>> {
    let mut rows = vec![row(name, "all", &transfer.all)];
    rows.extend(
        transfer
            .delayed
            .iter()
            .map(|delayed| row(name, "delayed", delayed)),
    );
    if transfer.links.len() > 1 {
        rows.extend(
            transfer
                .links
                .iter()
                .map(|(link, carried)| row(name, link, carried)),
        );
    }
    for phase in &transfer.phases {
        let name = format!("{name}, {}", phase.kind.named(&phase.faults));
        rows.push(row(&name, "all", &phase.all));
        rows.extend(
            phase
                .delayed
                .iter()
                .map(|delayed| row(&name, "delayed", delayed)),
        );
    }
    rows
}

fn row(name: &str, links: &str, carried: &CarriedBytes) -> Vec<Cell> {
    vec![
        Cell::text(name),
        Cell::text(links),
        cell(carried.per_useful_byte, three),
        cell(carried.without_idle, three),
        within(carried),
        cell(carried.bytes_per_second, |rate| {
            Unit::BytesPerSecond.show(rate)
        }),
    ]
}

/// Error bounds of a run's two figures: the one with idle traffic, and the one without it.
fn within(carried: &CarriedBytes) -> Cell {
    let Some(error) = carried.per_useful_byte_error else {
        return Cell::Empty;
    };
    let without = carried.without_idle_error;
    let without = without.map_or(String::new(), |error| format!("; {}", three(error)));
    Cell::text(format!("{}{without}", three(error)))
}

fn cell(estimate: Option<Estimate>, show: impl Fn(f64) -> String) -> Cell {
    match estimate {
        Some(found) => {
            let width = found
                .relative_half_width()
                .map_or(String::new(), plus_minus);
            Cell::Estimate(show(found.mean), width)
        }
        None => Cell::Empty,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::summary::PointSummary;

    /// Unknown values are shown as a dash, a point that moved no data has no bar, and each link has its row.
    #[test]
    fn link_traffic_is_drawn() {
        let text = r#"{ "format": 2, "brunt": "", "complete": true, "points": [],
            "experiment": { "name": "", "repetitions": 4, "seed": 1, "targets": {}, "workloads": {}, "toml": "" } }"#;
        let mut summary: Summary = serde_json::from_str(text).expect("a summary");
        let point = |transfer| PointSummary {
            label: "store write".into(),
            transfer,
            ..PointSummary::default()
        };
        summary.points = vec![point(None)];
        assert!(section(&summary, &Points::of(&summary)).is_none());
        let carried = |ratio: &[f64]| CarriedBytes {
            per_useful_byte: Estimate::of(ratio),
            bytes_per_second: Estimate::of(&[2e6, 2e6]),
            per_useful_byte_error: Some(0.0123),
            without_idle_error: Some(0.0456),
            ..CarriedBytes::default()
        };
        let links = [("far", 1.5), ("near", 2.5)]
            .map(|(name, ratio)| (name.to_string(), carried(&[ratio, ratio])));
        let transfer = TransferEfficiency {
            all: carried(&[3.9, 4.1]),
            delayed: Some(carried(&[1.5, 1.5])),
            links: links.into(),
            ..TransferEfficiency::default()
        };
        let still = TransferEfficiency {
            all: carried(&[]),
            ..TransferEfficiency::default()
        };
        summary.points = vec![point(Some(transfer)), point(Some(still))];
        let found = section(&summary, &Points::of(&summary)).expect("a section");
        let said = format!("{:?}", found.blocks);
        for expected in [
            "1.50",
            "2.50",
            "± 32 %",
            "2 MB/s",
            "nothing read or written",
            "Empty",
            "far",
            "delayed",
            "0.012; 0.046",
        ] {
            assert!(said.contains(expected), "{expected} in {said}");
        }
    }
}
