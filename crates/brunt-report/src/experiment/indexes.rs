//! Robustness indexes: how much of a client's throughput remains with many concurrent clients and with long network
//! paths, and a bar for each client.
//!
//! The rule: a ratio without an interval has no bar; the table says why.

use std::collections::BTreeMap;

use brunt_result::impact::{
    CLIENTS_AXIS, ClientEvenness, ClientThroughput, ImpactIndex, ImpactKind, ImpactRatio, ON_AXIS,
    RobustnessIndexes,
};
use brunt_result::summary::Summary;

use crate::format::{Unit, plus_minus, three};
use crate::page::{Bar, Bars, Block, Cell, Notice, PageTable, Section, Tone};

/// Maximum number of bars in a chart; the table has all, and the page says so.
const BARS_MAX: usize = 64;
/// Maximum number of client charts; `summary.json` has all, and the page says so.
const FIGURES_MAX: usize = 24;
/// Maximum number of left-out runs that are listed.
const LEFT_OUT_MAX: usize = 10;

/// `None` if neither clients nor delays are swept.
pub(super) fn section(summary: &Summary) -> Option<Section> {
    let indexes = summary.indexes.as_ref()?;
    let mut section = Section::new("Robustness");
    for kind in [ImpactKind::Parallelism, ImpactKind::Latency] {
        let found: Vec<&ImpactIndex> = indexes
            .impacts
            .iter()
            .filter(|impact| impact.kind == kind)
            .collect();
        if found.is_empty() {
            continue;
        }
        section.prose(match kind {
            ImpactKind::Parallelism => {
                "ParallelismImpactRatio: mean throughput of a client with X clients at once, divided by that of the \
                 same clients one after another. 1: not affected; 1/X: together they have the throughput of one \
                 client alone."
            }
            ImpactKind::Latency => {
                "LatencyImpactRatio: mean throughput of a client with the delay, divided by that \
                 without the delay. 1: not affected."
            }
        });
        section.blocks.push(Block::Bars(ratios(kind, &found)));
        section.table(table(kind, &found));
    }
    if !indexes.evenness.is_empty() {
        section.prose(
            "Evenness of clients that work at once: (sum of their throughputs)² / (number × sum of squares), Jain's index of \
             fairness. 1: all have the same; 1/X: one of X has everything.",
        );
        let row = |one: &ClientEvenness| vec![Cell::text(one.label()), Cell::text(one.describe())];
        let rows = indexes.evenness.iter().map(row);
        section.table(PageTable::new("Evenness", &["", "over rounds"], rows));
    }
    let mut notices: Vec<Notice> = indexes
        .notes
        .iter()
        .map(|note| Notice::new(Tone::Note, format!("{note}.")))
        .collect();
    for run in indexes.left_out.iter().take(LEFT_OUT_MAX) {
        notices.push(Notice::new(
            Tone::Warning,
            format!(
                "Left out of the ratios, with the rest of the round: {}.",
                run.describe()
            ),
        ));
    }
    if indexes.left_out.len() > LEFT_OUT_MAX {
        let more = indexes.left_out.len() - LEFT_OUT_MAX;
        notices.push(Notice::new(
            Tone::Warning,
            format!("{more} more runs are left out of the ratios."),
        ));
    }
    if !notices.is_empty() {
        section.blocks.push(Block::Notices(notices));
    }
    clients(&mut section, indexes);
    Some(section)
}

/// Draws a bar for each ratio over all kinds of operations that has an interval.
fn ratios(kind: ImpactKind, found: &[&ImpactIndex]) -> Bars {
    let with_interval =
        |impact: &&&ImpactIndex| impact.op.is_none() && impact.per_client.interval.is_some();
    let all: Vec<&&ImpactIndex> = found.iter().filter(with_interval).collect();
    let bar = |impact: &&&ImpactIndex| {
        let ratio = impact.per_client.interval?;
        Some(Bar {
            name: impact.label(),
            parts: vec![ratio.ratio],
            interval: Some((ratio.low, ratio.high)),
            shown: three(ratio.ratio),
            uncertainty: format!("{} to {}", three(ratio.low), three(ratio.high)),
        })
    };
    let mut caption = "Means over clients and rounds with 95 % intervals.".to_string();
    if all.len() > BARS_MAX {
        caption += &format!(" The first {BARS_MAX} of {}.", all.len());
    }
    let bars = all.iter().take(BARS_MAX).filter_map(bar).collect();
    Bars {
        title: kind.name().into(),
        caption,
        bars,
        parts: Vec::new(),
    }
}

fn table(kind: ImpactKind, found: &[&ImpactIndex]) -> PageTable {
    let cell = |ratio: &ImpactRatio| match ratio.interval {
        Some(found) => Cell::Estimate(
            three(found.ratio),
            format!("{} to {}", three(found.low), three(found.high)),
        ),
        None => Cell::text(ratio.describe()),
    };
    let row = |impact: &&ImpactIndex| {
        vec![
            Cell::text(impact.label()),
            cell(&impact.per_client),
            cell(&impact.aggregate),
            Cell::number(Unit::Count.show(f64::from(impact.per_client.clients))),
            Cell::number(Unit::Count.show(f64::from(impact.rounds))),
            Cell::number(Unit::Count.show(f64::from(impact.rounds_left_out))),
        ]
    };
    let columns = [
        "",
        "each client",
        "all together",
        "clients",
        "rounds",
        "rounds left out",
    ];
    PageTable::new(kind.name(), &columns, found.iter().map(row))
}

/// Draws the clients' bars: a chart for each workload and combination of axis values, apart from the axes that only
/// select clients.
fn clients(section: &mut Section, indexes: &RobustnessIndexes) {
    let mut figures: Vec<(String, Vec<&ClientThroughput>)> = Vec::new();
    for client in indexes.clients.iter().filter(|client| client.op.is_none()) {
        let title = title(client);
        match figures.iter_mut().find(|(known, _)| *known == title) {
            Some((_, bars)) => bars.push(client),
            None => figures.push((title, vec![client])),
        }
    }
    if figures.is_empty() {
        return;
    }
    section
        .blocks
        .push(Block::Heading("Throughput of each client".into()));
    if figures.len() > FIGURES_MAX {
        let (all, shown) = (figures.len(), FIGURES_MAX);
        section.prose(format!(
            "The first {shown} of {all} figures; summary.json has all (indexes.clients)."
        ));
    }
    for (title, clients) in figures.into_iter().take(FIGURES_MAX) {
        let bar = |client: &&ClientThroughput| {
            let Some(rate) = client.bytes_per_second else {
                return Bar {
                    name: name(client),
                    shown: "no complete run".into(),
                    ..Bar::default()
                };
            };
            Bar {
                name: name(client),
                parts: vec![rate.mean],
                interval: rate.low.zip(rate.high),
                shown: Unit::BytesPerSecond.show(rate.mean),
                uncertainty: rate.relative_half_width().map_or(String::new(), plus_minus),
            }
        };
        let mut caption = "Means over rounds with 95 % intervals.".to_string();
        if clients.len() > BARS_MAX {
            caption += &format!(" The first {BARS_MAX} of {}.", clients.len());
        }
        let bars = clients.iter().take(BARS_MAX).map(bar).collect();
        section.blocks.push(Block::Bars(Bars {
            title,
            caption,
            bars,
            parts: Vec::new(),
        }));
    }
}

/// The axes that don't just select clients, with their values.
fn others(axes: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    axes.iter()
        .filter(|(axis, _)| ![CLIENTS_AXIS, ON_AXIS].contains(&axis.as_str()))
}

fn title(client: &ClientThroughput) -> String {
    let mut title = format!("{} {}", client.target, client.workload);
    for (axis, value) in others(&client.axes) {
        title += &format!(", {axis}={value}");
    }
    title
}

fn name(client: &ClientThroughput) -> String {
    match client.axes.get(CLIENTS_AXIS).map(String::as_str) {
        None => client.client.clone(),
        Some("1") => format!("{} alone", client.client),
        Some(count) => format!("{}, {count} at once", client.client),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::impact::{NoInterval, RunLeftOut};
    use brunt_result::statistics::{Estimate, Ratio};

    fn summary(indexes: Option<RobustnessIndexes>) -> Summary {
        let text = r#"{ "format": 2, "brunt": "", "complete": true, "points": [],
            "experiment": { "name": "", "repetitions": 4, "seed": 1, "targets": {}, "workloads": {}, "toml": "" } }"#;
        Summary {
            indexes,
            ..serde_json::from_str(text).expect("a summary")
        }
    }

    /// Ratios and clients have bars; for a ratio without an interval the table has the reason instead.
    #[test]
    fn ratios_and_clients_are_drawn() {
        assert!(section(&summary(None)).is_none());
        let interval = Some(Ratio {
            ratio: 0.5,
            low: 0.4,
            high: 0.625,
        });
        let ratio = |interval, missing| ImpactRatio {
            interval,
            clients: 2,
            missing,
            ..ImpactRatio::default()
        };
        let impact = |at_once, interval, missing| ImpactIndex {
            kind: ImpactKind::Parallelism,
            target: "store".into(),
            workload: "write".into(),
            axes: BTreeMap::new(),
            op: None,
            at_once,
            link_delay: None,
            per_client: ratio(interval, missing),
            aggregate: ratio(interval, missing),
            rounds: 3,
            rounds_left_out: 0,
        };
        let client = |name: &str, clients: &str| ClientThroughput {
            client: name.into(),
            target: "store".into(),
            workload: "write".into(),
            axes: BTreeMap::from([
                ("clients".into(), clients.into()),
                ("on".into(), name.into()),
            ]),
            op: None,
            bytes_per_second: Estimate::of(&[1e6, 3e6]),
        };
        let found = RobustnessIndexes {
            impacts: vec![
                impact(2, interval, None),
                impact(4, None, Some(NoInterval::OneRound)),
            ],
            clients: vec![client("a", "1"), client("b", "2")],
            left_out: vec![RunLeftOut {
                point: "store write".into(),
                repetition: 1,
                absent: vec!["b".into()],
            }],
            notes: Vec::new(),
            evenness: vec![ClientEvenness {
                target: "store".into(),
                workload: "write".into(),
                axes: BTreeMap::new(),
                op: None,
                at_once: 2,
                index: Estimate::of(&[0.75, 0.85]),
            }],
        };
        let section = section(&summary(Some(found))).expect("a section");
        let bars: Vec<&Bars> = section
            .blocks
            .iter()
            .filter_map(|block| match block {
                Block::Bars(bars) => Some(bars),
                _ => None,
            })
            .collect();
        assert_eq!(bars.len(), 2);
        assert_eq!((bars[0].bars.len(), bars[0].bars[0].parts[0]), (1, 0.5));
        let names: Vec<&str> = bars[1].bars.iter().map(|bar| bar.name.as_str()).collect();
        assert_eq!(names, ["a alone", "b, 2 at once"]);
        let page = format!("{:?}", section.blocks);
        assert!(
            page.contains("Evenness")
                && page.contains("0.800")
                && page.contains("no interval: one round")
                && page.contains("repetition 1: without b"),
            "{page}"
        );
    }
}
