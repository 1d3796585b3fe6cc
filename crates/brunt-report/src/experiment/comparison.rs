//! The comparison page of two results, written by `brunt report A B`. Its verdicts are those of `brunt compare`.

use brunt_core::units::counted;
use brunt_result::compare::{Line, compare_summaries};
use brunt_result::failures;
use brunt_result::statistics::{Estimate, MARGIN, RUNS_MIN, Verdict};
use brunt_result::summary::{PointSummary, Summary};

use super::points::Points;
use super::targets;
use crate::chart::{Axis, Chart, Scale, Series, SeriesRole};
use crate::format::Unit;
use crate::page::{Block, Cell, Glance, Notice, Page, PageTable, Section, Tone};

/// Maximum number of charts; the table has every point.
const CHARTS_MAX: usize = 24;
/// Maximum number of changes listed as explained by the machine.
const EXPLAINED_MAX: usize = 5;
/// Maximum number of lines in the table.
const LINES_MAX: usize = 2000;

/// The page for results `a` and `b`, each with its display name.
pub fn comparison(a: (&str, &Summary), b: (&str, &Summary)) -> Page {
    let (lines, alone) = compare_summaries(a.1, b.1, MARGIN, &[]);
    let sections = [
        verdicts(&lines, a.0, b.0, a.1.took_turns_with(b.1)),
        side_by_side(a, b),
        only_one(&alone),
    ];
    Page {
        kind: "Comparison".into(),
        title: format!("{} and {}", a.0, b.0),
        description: "Changes are from the first to the second.".into(),
        made_by: format!("Brunt {}", b.1.brunt),
        glance: glance(a, b, &lines),
        sections: sections
            .into_iter()
            .filter(|section| !section.blocks.is_empty())
            .collect(),
    }
}

/// What is to be known of one result: older verdicts that were made again, failures and doubts.
fn about((name, summary): (&str, &Summary)) -> Vec<Notice> {
    let mut notices = Vec::new();
    let note = summary.judged_note().map(|note| format!("{name}: {note}"));
    notices.extend(note.map(|note| Notice::new(Tone::Note, note)));
    let told = |tone, texts: Vec<String>| {
        texts
            .into_iter()
            .map(move |text| Notice::new(tone, format!("{name}: {text}.")))
    };
    notices.extend(told(Tone::Bad, failures::failures(summary)));
    notices.extend(told(Tone::Warning, failures::doubts(summary)));
    notices
}

fn glance(a: (&str, &Summary), b: (&str, &Summary), lines: &[Line]) -> Glance {
    let mut notices = Vec::new();
    for (name, summary) in [a, b] {
        if !summary.complete {
            let text = format!("{name} is incomplete; only its finished runs are compared.");
            notices.push(Notice::new(Tone::Bad, text));
        }
    }
    notices.extend([a, b].into_iter().flat_map(about));
    if lines.is_empty() {
        notices.push(Notice::new(
            Tone::Bad,
            "The two results have no point in common.",
        ));
    }
    let kinds = [
        (Verdict::Worse, Tone::Bad, "worse"),
        (Verdict::Better, Tone::Good, "better"),
        (Verdict::Same, Tone::Good, "same within the margin"),
        (Verdict::Inconclusive, Tone::Note, "inconclusive"),
        (
            Verdict::MachinesDiffered,
            Tone::Warning,
            "no verdict, because the machines differed; measure both in turns (brunt run --interleave)",
        ),
        (
            Verdict::TooFewRuns,
            Tone::Warning,
            "inconclusive: too few runs",
        ),
    ];
    for (verdict, tone, words) in kinds {
        let found = lines
            .iter()
            .filter(|line| line.comparison.verdict == verdict)
            .count();
        if found > 0 {
            let text = format!("{} of {}: {words}.", counted(found, "figure"), lines.len());
            notices.push(Notice::new(tone, text));
        }
    }
    let facts = [("First", a), ("Second", b)].map(|(word, (name, summary))| {
        let runs: usize = summary.points.iter().map(|point| point.runs.len()).sum();
        let (points, runs) = (counted(summary.points.len(), "point"), counted(runs, "run"));
        let label = summary.label.as_ref();
        let label = label.map_or(String::new(), |label| format!(" ({label})"));
        let (what, seed) = (&summary.experiment.name, summary.experiment.seed);
        (
            word.to_string(),
            format!(
                "{name}{label}: {what}; {points}, {runs}, seed {seed}, Brunt {}",
                summary.brunt
            ),
        )
    });
    Glance {
        facts: facts.to_vec(),
        cards: Vec::new(),
        notices,
    }
}

/// The unit in which a line's figures are shown.
fn unit_of(line: &Line) -> Unit {
    match line.unit {
        "us" => Unit::Micros,
        "share" => Unit::Share,
        "s" => Unit::Seconds,
        "times" => Unit::Count,
        _ => Unit::PerSecond,
    }
}

fn verdicts(lines: &[Line], a: &str, b: &str, paired: bool) -> Section {
    let mut section = Section::new("Verdicts");
    if lines.is_empty() {
        return section;
    }
    let test = match paired {
        true => "the runs took turns, so a paired t-test",
        false => "Welch's t-test",
    };
    section.prose(format!(
        "Better and worse: {test} of the ratio (for shares, of the difference), with Holm's correction over \
         all {} metrics; rate and mean of a closed loop count as one, also of closed loops that run at once for the \
         same share of every run. Same: two one-sided tests exclude a change of {} or more. Machines differed: the \
         change is significant, but a difference between the machines, measured during the runs, may explain it. \
         Figures above zero are geometric means, so that their ratio is the change. Everything else is inconclusive, \
         and so is any comparison with fewer than {RUNS_MIN} runs per side. Last column: smallest change that would \
         be detected with 80 % power.",
        lines.len(),
        Unit::Share.show(MARGIN)
    ));
    let rows = lines.iter().take(LINES_MAX).map(|line| {
        let (comparison, unit) = (&line.comparison, unit_of(line));
        let [a, b] = targets::sides(comparison, unit);
        vec![
            Cell::text(&line.label),
            Cell::text(&*line.metric),
            a,
            b,
            targets::change(comparison),
            comparison
                .p_holm
                .map_or(Cell::Empty, |p| Cell::number(format!("{p:.4}"))),
            targets::verdict(comparison.verdict),
            targets::detectable(comparison),
        ]
    });
    let columns = [
        "point",
        "figure",
        a,
        b,
        "change",
        "p (Holm)",
        "verdict",
        "would see",
    ];
    section.table(PageTable::new(
        "Every figure of every common point",
        &columns,
        rows,
    ));
    for line in lines
        .iter()
        .filter(|line| line.machine_slower.is_some())
        .take(EXPLAINED_MAX)
    {
        let slower = line.machine_slower.unwrap_or_default();
        let word = if slower > 0.0 { "slower" } else { "faster" };
        let share = Unit::Share.show(slower.abs());
        section.prose(format!(
            "{}, {}: the machine itself was {share} {word} in {b}, which may explain the change.",
            line.label, line.metric
        ));
    }
    if lines.len() > LINES_MAX {
        section.prose(format!("The first {LINES_MAX} of {}.", lines.len()));
    }
    section
}

type Get = fn(&PointSummary) -> Option<Estimate>;

/// A chart of throughput and of p99 for each line that both results have.
fn side_by_side(a: (&str, &Summary), b: (&str, &Summary)) -> Section {
    let mut section = Section::new("Side by side");
    let (first, second) = (Points::of(a.1), Points::of(b.1));
    let (Some(across), Some(other)) = (&first.across, &second.across) else {
        return section;
    };
    if (&across.key, &across.values) != (&other.key, &other.values) {
        section.blocks.push(Block::Missing(
            "The two results sweep different values; see the table.".into(),
        ));
        return section;
    }
    let figures: [(&str, &str, Unit, Scale, Get); 2] = [
        (
            "Requests",
            "requests per second",
            Unit::PerSecond,
            Scale::FromZero,
            |point| point.requests_per_second,
        ),
        (
            "p99",
            "p99 of the response time",
            Unit::Micros,
            Scale::Log,
            |point| point.response_p99_us,
        ),
    ];
    let others = second.lines();
    let mut charts = Vec::new();
    for line in first.lines() {
        let Some(twin) = others.iter().find(|twin| twin.name == line.name) else {
            continue;
        };
        for (title, label, unit, scale, get) in figures {
            let series = [(a.0, 0, &line), (b.0, 1, twin)].map(|(name, role, line)| {
                let series = line.series(SeriesRole::Nominal(role), get, 1.0);
                Series {
                    name: name.to_string(),
                    ..series
                }
            });
            let of = if line.name.is_empty() {
                String::new()
            } else {
                format!(": {}", line.name)
            };
            let y = Axis::new(label, unit, scale);
            let chart = Chart::lines(
                format!("{title}{of}"),
                across.axis(),
                y,
                across.values.clone(),
                series.to_vec(),
            );
            charts.push(chart);
        }
    }
    charts.retain(|chart| !chart.is_empty());
    if charts.is_empty() {
        return section;
    }
    section.prose("Markers: means over runs; whiskers: 95 % confidence intervals (Student's t).");
    let left_out = charts.len().saturating_sub(CHARTS_MAX);
    charts.truncate(CHARTS_MAX);
    section.blocks.push(Block::Charts(charts));
    if left_out > 0 {
        section.prose(format!(
            "{left_out} more charts are omitted; the table has every point."
        ));
    }
    section
}

fn only_one(alone: &[String]) -> Section {
    let mut section = Section::new("In one result only");
    if !alone.is_empty() {
        section.blocks.push(Block::Code(
            "Points that could not be compared".into(),
            alone.join("\n"),
        ));
    }
    section
}
