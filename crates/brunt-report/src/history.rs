//! The page of `brunt history -o`: each figure over results, with its changes.
//!
//! The rule: the changes are the ones that the terminal shows; nothing is computed here.

use brunt_core::units::counted;
use brunt_result::history::{HistoryChange, HistorySeries};
use brunt_result::statistics::{FALSE_ALARMS, SIDE_MIN, Verdict};

use crate::chart::{Axis, Chart, Mark, Scale, Series, SeriesRole};
use crate::format::Unit;
use crate::page::{Block, Cell, Glance, Notice, Page, PageTable, Section, Tone};

/// Maximum number of charts. Figures that changed come first.
const CHARTS_MAX: usize = 60;

/// The page of these series, whose results have these names, oldest first. `skipped` says which results are missing,
/// and why.
pub fn history(results: &[String], series: &[HistorySeries], skipped: &[String]) -> Page {
    let sections = [
        changes(results, series),
        figures(series),
        self::results(results),
    ];
    Page {
        kind: "History".into(),
        title: "History".into(),
        description: format!("{}, oldest first.", counted(results.len(), "result")),
        made_by: format!("Brunt {}", env!("CARGO_PKG_VERSION")),
        refresh_s: None,
        glance: glance(results, series, skipped),
        sections: sections
            .into_iter()
            .filter(|section| !section.blocks.is_empty())
            .collect(),
    }
}

/// Every change of every series.
fn all(series: &[HistorySeries]) -> impl Iterator<Item = (&HistorySeries, &HistoryChange)> {
    series
        .iter()
        .flat_map(|one| one.changes.iter().map(move |change| (one, change)))
}

fn glance(results: &[String], series: &[HistorySeries], skipped: &[String]) -> Glance {
    let mut notices = Vec::new();
    for (verdict, tone, word) in [
        (Verdict::Worse, Tone::Bad, "for the worse"),
        (Verdict::Better, Tone::Good, "for the better"),
    ] {
        let found = all(series)
            .filter(|(_, change)| change.verdict == verdict)
            .count();
        if found > 0 {
            let text = format!("{} {word}.", counted(found, "change"));
            notices.push(Notice::new(tone, text));
        }
    }
    if all(series).next().is_none() {
        let text = format!("No change in {}.", counted(series.len(), "figure"));
        notices.push(Notice::new(Tone::Note, text));
    }
    let skipped = skipped
        .iter()
        .map(|problem| Notice::new(Tone::Warning, format!("Left out: {problem}")));
    notices.extend(skipped);
    let ends = [("Oldest", results.first()), ("Newest", results.last())];
    let facts = ends.map(|(word, name)| (word.to_string(), name.cloned().unwrap_or_default()));
    Glance {
        facts: facts.to_vec(),
        cards: Vec::new(),
        notices,
    }
}

/// The unit in which a series is shown.
pub fn unit_of(series: &HistorySeries) -> Unit {
    match series.unit {
        "us" => Unit::Micros,
        _ => Unit::PerSecond,
    }
}

/// "−8.2 %".
fn percent(ratio: f64) -> String {
    let sign = if ratio > 1.0 { "+" } else { "" };
    format!("{sign}{}", Unit::Share.show(ratio - 1.0))
}

fn changes(results: &[String], series: &[HistorySeries]) -> Section {
    let mut section = Section::new("Changes");
    let rows: Vec<Vec<Cell>> = all(series)
        .map(|(series, found)| {
            let (change, unit) = (&found.change, unit_of(series));
            let share = match (change.ratio, change.low, change.high) {
                (Some(ratio), Some(low), Some(high)) => Cell::Estimate(
                    percent(ratio),
                    format!("{} to {}", percent(low), percent(high)),
                ),
                _ => Cell::Empty,
            };
            let tone = match found.verdict {
                Verdict::Worse => Tone::Bad,
                _ => Tone::Good,
            };
            vec![
                Cell::text(&series.label),
                Cell::text(&*series.metric),
                Cell::text(format!("{}: {}", found.result + 1, results[found.result])),
                Cell::number(unit.show(change.before)),
                Cell::number(unit.show(change.after)),
                share,
                Cell::number(confidence(found)),
                Cell::Verdict(tone, found.verdict.word().into()),
            ]
        })
        .collect();
    if rows.is_empty() {
        return section;
    }
    section.prose(format!(
        "E-divisive (Matteson and James, 2014) splits each series where its level changes, and a \
         permutation test decides whether chance explains the change: at most {} of unchanged series are \
         reported with one. A change needs {SIDE_MIN} results on each side, and small changes need more. Before \
         and after are geometric means between changes, with the 95 % interval of their ratio (Welch).",
        Unit::Share.show(FALSE_ALARMS)
    ));
    let columns = [
        "point",
        "figure",
        "since result",
        "before",
        "after",
        "change",
        "confidence",
        "verdict",
    ];
    section.table(PageTable::new("Every change", &columns, rows));
    section
}

/// "99.9 %", never rounded up to 100 %.
pub fn confidence(change: &HistoryChange) -> String {
    format!("{:.1} %", (change.confidence() * 1000.0).floor() / 10.0)
}

fn figures(series: &[HistorySeries]) -> Section {
    let mut section = Section::new("Figures");
    if series.is_empty() {
        return section;
    }
    section.prose(
        "Means over the runs of each result, by the result's number in the table. A dashed line marks \
         a change, before the first result at the new level.",
    );
    let mut shown: Vec<usize> = (0..series.len()).collect();
    shown.sort_by_key(|index| series[*index].changes.is_empty());
    let left_out = shown.len().saturating_sub(CHARTS_MAX);
    shown.truncate(CHARTS_MAX);
    shown.sort_unstable();
    let mut label = "";
    let mut charts = Vec::new();
    for one in shown.into_iter().map(|index| &series[index]) {
        if one.label != label {
            flush(&mut charts, &mut section);
            section.blocks.push(Block::Heading(one.label.clone()));
            label = &one.label;
        }
        charts.push(chart(one));
    }
    flush(&mut charts, &mut section);
    if left_out > 0 {
        section.prose(format!(
            "{} without a change are omitted.",
            counted(left_out, "more chart")
        ));
    }
    section
}

fn flush(charts: &mut Vec<Chart>, section: &mut Section) {
    if !charts.is_empty() {
        section.blocks.push(Block::Charts(std::mem::take(charts)));
    }
}

fn chart(series: &HistorySeries) -> Chart {
    let (title, label) = match &*series.metric {
        "iops" => ("Requests", "requests per second".to_string()),
        "mean" => ("Mean", "mean response time".to_string()),
        metric => (metric, format!("{metric} of the response time")),
    };
    let role = SeriesRole::Nominal(0);
    let xs: Vec<f64> = (1..=series.values.len())
        .map(|number| number as f64)
        .collect();
    let marks = series.changes.iter().map(|found| Mark {
        // `result` counts from 0, and numbers on the axis from 1: the mark is halfway to the previous result.
        at: found.result as f64 + 0.5,
        label: found
            .change
            .ratio
            .map_or_else(|| "change".to_string(), percent),
        role: SeriesRole::Reference(0),
    });
    let values = Series::new(label.clone(), role, series.values.clone());
    let chart = Chart::lines(
        title,
        Axis::new("result", Unit::Count, Scale::Linear),
        Axis::new(label, unit_of(series), Scale::Linear),
        xs,
        vec![values],
    );
    Chart {
        marks: marks.collect(),
        ..chart
    }
}

fn results(results: &[String]) -> Section {
    let mut section = Section::new("Results");
    let rows = results
        .iter()
        .enumerate()
        .map(|(index, name)| vec![Cell::number((index + 1).to_string()), Cell::text(name)]);
    section.table(PageTable::new("Results, oldest first", &["number", "result"], rows).folded());
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::statistics::{Better, ChangePoint};

    fn series(changes: Vec<HistoryChange>) -> HistorySeries {
        HistorySeries {
            label: "disk randread".into(),
            metric: "p99".into(),
            unit: "us",
            better: Better::Lower,
            values: vec![Some(100.0), None, Some(120.0)],
            changes,
        }
    }

    fn worse() -> HistoryChange {
        let change = ChangePoint {
            index: 1,
            before: 100.0,
            after: 120.0,
            ratio: Some(1.2),
            low: Some(1.1),
            high: Some(1.3),
            p: 0.00125,
        };
        HistoryChange {
            result: 2,
            verdict: Verdict::Worse,
            change,
        }
    }

    fn names() -> Vec<String> {
        ["a", "b", "c"].map(String::from).to_vec()
    }

    #[test]
    fn a_change_is_a_row_and_a_mark_before_its_result() {
        let page = history(&names(), &[series(vec![worse()])], &["d: gone".into()]);
        let titles: Vec<&str> = page
            .sections
            .iter()
            .map(|section| &section.title[..])
            .collect();
        assert_eq!(titles, ["Changes", "Figures", "Results"]);
        let Block::Table(table) = &page.sections[0].blocks[1] else {
            panic!("{page:?}");
        };
        let row = format!("{:?}", table.rows[0]);
        for part in [
            "3: c",
            "100 µs",
            "120 µs",
            "+20.0 %",
            "+10.0 % to +30.0 %",
            "99.8 %",
            "worse",
        ] {
            assert!(row.contains(part), "{part} in {row}");
        }
        let Block::Charts(charts) = &page.sections[1].blocks[2] else {
            panic!("{page:?}");
        };
        assert_eq!((charts[0].marks[0].at, charts[0].xs[2]), (2.5, 3.0));
        assert_eq!(charts[0].series[0].values[1], None);
        let notices = format!("{:?}", page.glance.notices);
        assert!(
            notices.contains("1 change for the worse.") && notices.contains("Left out: d: gone")
        );
    }

    #[test]
    fn an_unchanged_history_is_reported() {
        let page = history(&names(), &[series(Vec::new())], &[]);
        assert_eq!(page.glance.notices[0].text, "No change in 1 figure.");
        assert_eq!(page.sections[0].title, "Figures");
    }
}
