//! The comparison page of results, written by `brunt report A B`. Its verdicts are those of `brunt compare`.

use brunt_core::units::counted;
use brunt_result::compare::{Line, compare_summaries};
use brunt_result::failures;
use brunt_result::statistics::{MARGIN, RUNS_MIN, Verdict};
use brunt_result::summary::Summary;

use super::details::Details;
use super::differences::{self, WithEnvironment};
use super::{overlay, targets, when};
use crate::format::{Unit, sentence_case};
use crate::page::{Block, Cell, Glance, Notice, Page, PageTable, Section, Tone};

/// Maximum number of changes listed as explained by the machine.
const EXPLAINED_MAX: usize = 5;
/// Maximum number of lines in the table.
const LINES_MAX: usize = 2000;

/// A result in the comparison.
#[derive(Clone, Copy)]
pub struct ComparedResult<'a> {
    /// Its name on the page.
    pub name: &'a str,
    /// Its summary.
    pub summary: &'a Summary,
    /// Details from its tables.
    pub details: &'a Details,
}

/// The first result compared with one of the others.
struct Pair<'a> {
    a: ComparedResult<'a>,
    b: ComparedResult<'a>,
    lines: Vec<Line>,
    /// Points that only one of the two results has.
    alone: Vec<String>,
}

/// The page that compares the first of these results with each of the others.
pub fn comparison(results: &[ComparedResult<'_>]) -> Page {
    let Some((first, others)) = results.split_first() else {
        return Page::default();
    };
    let pairs: Vec<Pair<'_>> = others
        .iter()
        .map(|other| {
            let (lines, alone) = compare_summaries(first.summary, other.summary, MARGIN, &[]);
            let (a, b) = (*first, *other);
            Pair { a, b, lines, alone }
        })
        .collect();
    let names: Vec<&str> = results.iter().map(|one| one.name).collect();
    let known: Vec<WithEnvironment<'_>> = results
        .iter()
        .map(|one| (one.summary, &one.details.facts[..]))
        .collect();
    let mut sections = vec![differences::section(&names, &known)];
    sections.extend(pairs.iter().map(|pair| verdicts(pair, pairs.len() > 1)));
    sections.extend([
        overlay::side_by_side(results),
        overlay::distributions(results),
        overlay::over_time(results),
    ]);
    sections.extend(pairs.iter().map(|pair| only_one(pair, pairs.len() > 1)));
    Page {
        kind: "Comparison".into(),
        title: names.join(" and "),
        description: "Changes are from the first result to each other one.".into(),
        made_by: format!("Brunt {}", env!("CARGO_PKG_VERSION")),
        refresh_s: None,
        glance: glance(results, &pairs),
        sections: sections
            .into_iter()
            .filter(|section| !section.blocks.is_empty())
            .collect(),
    }
}

/// Caveats about one result: missing runs, recomputed verdicts, failures and doubts.
fn about(ComparedResult { name, summary, .. }: &ComparedResult<'_>) -> Vec<Notice> {
    let mut notices = Vec::new();
    if !summary.complete {
        let text = format!("{name} is incomplete; only its finished runs are compared.");
        notices.push(Notice::new(Tone::Bad, text));
    }
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

fn glance(results: &[ComparedResult<'_>], pairs: &[Pair<'_>]) -> Glance {
    let mut notices: Vec<Notice> = results.iter().flat_map(about).collect();
    for pair in pairs {
        let of = match pairs.len() {
            1 => String::new(),
            _ => format!("{}: ", pair.b.name),
        };
        notices.extend(counts(&of, &pair.lines));
    }
    let facts = results.iter().enumerate().map(|(nth, one)| {
        let word = match (nth, results.len()) {
            (0, _) => "First".to_string(),
            (_, 2) => "Second".to_string(),
            (nth, _) => format!("Result {}", nth + 1),
        };
        (word, described(one))
    });
    Glance {
        facts: facts.collect(),
        notices,
        ..Glance::default()
    }
}

/// A result in a sentence.
fn described(of: &ComparedResult<'_>) -> String {
    let ComparedResult {
        name,
        summary,
        details,
    } = of;
    let runs: usize = summary.points.iter().map(|point| point.runs.len()).sum();
    let (points, runs) = (counted(summary.points.len(), "point"), counted(runs, "run"));
    let label = summary.label.as_ref();
    let label = label.map_or(String::new(), |label| format!(" ({label})"));
    let when = details.span_unix_ns.map(when::span);
    let when = when.map_or(String::new(), |when| format!("; {when}"));
    let (what, seed) = (&summary.experiment.name, summary.experiment.seed);
    format!(
        "{name}{label}: {what}; {points}, {runs}, seed {seed}, Brunt {}{when}",
        summary.brunt
    )
}

/// Number of figures with each verdict.
fn counts(of: &str, lines: &[Line]) -> Vec<Notice> {
    if lines.is_empty() {
        let text = format!("{of}the two results have no points in common.");
        return vec![Notice::new(Tone::Bad, sentence_case(&text))];
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
    let mut notices = Vec::new();
    for (verdict, tone, words) in kinds {
        let found = lines
            .iter()
            .filter(|line| line.comparison.verdict == verdict)
            .count();
        if found > 0 {
            let text = format!(
                "{of}{} of {}: {words}.",
                counted(found, "figure"),
                lines.len()
            );
            notices.push(Notice::new(tone, text));
        }
    }
    notices
}

/// The unit in which a line's values are shown.
fn unit_of(line: &Line) -> Unit {
    match line.unit {
        "us" => Unit::Micros,
        "share" => Unit::Share,
        "s" => Unit::Seconds,
        "times" => Unit::Count,
        _ => Unit::PerSecond,
    }
}

/// The section with this title for a pair; if `named`, the title includes the other result's name.
fn titled(title: &str, pair: &Pair<'_>, named: bool) -> Section {
    Section::new(match named {
        true => format!("{title}: {}", pair.b.name),
        false => title.to_string(),
    })
}

fn verdicts(pair: &Pair<'_>, named: bool) -> Section {
    let mut section = titled("Verdicts", pair, named);
    let lines = &pair.lines;
    if lines.is_empty() {
        return section;
    }
    section.prose(method(pair));
    let columns = [
        "point",
        "figure",
        pair.a.name,
        pair.b.name,
        "change",
        "p (Holm)",
        "verdict",
        "would see",
    ];
    section.table(PageTable::new(
        "Every figure of every common point",
        &columns,
        lines.iter().take(LINES_MAX).map(row),
    ));
    let explained = lines
        .iter()
        .filter_map(|line| Some((line, line.machine_slower?)));
    for (line, slower) in explained.take(EXPLAINED_MAX) {
        let word = if slower > 0.0 { "slower" } else { "faster" };
        let share = Unit::Share.show(slower.abs());
        section.prose(format!(
            "{}, {}: the machine itself was {share} {word} in {}, which may explain the change.",
            line.label, line.metric, pair.b.name
        ));
    }
    if lines.len() > LINES_MAX {
        section.prose(format!("The first {LINES_MAX} of {}.", lines.len()));
    }
    section
}

/// How a pair's verdicts were reached, and the meaning of the table's columns.
fn method(pair: &Pair<'_>) -> String {
    let test = match pair.a.summary.took_turns_with(pair.b.summary) {
        true => "the runs took turns, so a paired t-test",
        false => "Welch's t-test",
    };
    format!(
        "Better and worse: {test} of the ratio (for shares, of the difference), with Holm's \
         correction over all {} metrics; the rate and the mean of a closed loop count as one metric, also for \
         closed loops that run at the same time with the same share of every run. Same: two one-sided tests \
         exclude a change of {} or more. Machines differed: the change is significant, but a difference between \
         the machines, measured during the runs, may explain it. Figures above zero are geometric means, so \
         their ratio is the change. Everything else is inconclusive, and so is any comparison with fewer than \
         {RUNS_MIN} runs per side. Last column: smallest change that would be detected with 80 % power.",
        pair.lines.len(),
        Unit::Share.show(MARGIN)
    )
}

fn row(line: &Line) -> Vec<Cell> {
    let (comparison, unit) = (&line.comparison, unit_of(line));
    let [a, b] = targets::sides(comparison, unit);
    vec![
        Cell::text(&line.label),
        Cell::text(&*line.metric),
        a,
        b,
        targets::change(comparison, unit),
        comparison
            .p_holm
            .map_or(Cell::Empty, |p| Cell::number(format!("{p:.4}"))),
        targets::verdict(comparison.verdict),
        targets::detectable(comparison),
    ]
}

fn only_one(pair: &Pair<'_>, named: bool) -> Section {
    let mut section = titled("In one result only", pair, named);
    if !pair.alone.is_empty() {
        section.blocks.push(Block::Code(
            "Points that could not be compared".into(),
            pair.alone.join("\n"),
        ));
    }
    section
}
