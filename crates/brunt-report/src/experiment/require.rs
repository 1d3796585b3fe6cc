//! The requirements of the experiment, and whether they are met.

use brunt_result::require::{RequirementOutcome, RequirementVerdict};
use brunt_result::summary::Summary;

use crate::page::{Block, Cell, Notice, PageTable, Section, Tone};

/// Requirements that are missed or undecided, as notices for the top of the page.
pub(super) fn notices(summary: &Summary) -> impl Iterator<Item = Notice> {
    summary.requirements.iter().filter_map(|outcome| {
        let tone = match outcome.verdict {
            RequirementVerdict::Met => return None,
            RequirementVerdict::Missed => Tone::Bad,
            RequirementVerdict::Undecided => Tone::Warning,
        };
        Some(Notice::new(tone, format!("Required of {outcome}.")))
    })
}

/// All requirements; `None` if there are none.
pub(super) fn section(summary: &Summary) -> Option<Section> {
    let row = |outcome: &RequirementOutcome| {
        let runs = outcome.figure.map_or(0, |figure| figure.runs);
        vec![
            Cell::text(&outcome.label),
            Cell::text(&outcome.required),
            Cell::text(outcome.verdict.name()),
            Cell::text(outcome.figure_in_words()),
            Cell::number(runs.to_string()),
        ]
    };
    let columns = ["point", "required", "verdict", "measured", "runs"];
    let rows: Vec<_> = summary.requirements.iter().map(row).collect();
    (!rows.is_empty()).then(|| {
        let mut section = Section::new("Requirements");
        section.prose(
            "A mean over runs meets or misses a threshold if its whole 95 % confidence interval is on \
             one side of it, and is undecided otherwise. The maximum and the share of failed requests must meet \
             their thresholds in every run.",
        );
        let table = PageTable::new("Thresholds of the experiment", &columns, rows);
        section.blocks.push(Block::Table(table));
        section
    })
}
