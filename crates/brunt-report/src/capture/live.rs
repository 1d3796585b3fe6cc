//! The page of a running capture: rates of the last minutes, operations, hot files and clients, findings, and the
//! health of the capture itself.

use brunt_result::capture::Report;

use super::{Source, glance, ledger, operations, over_time, ranking};
use crate::page::{Block, Notice, Page, Section};

/// What a live page shows in addition to a report.
#[derive(Clone, Debug, Default)]
pub struct LiveCapturePage {
    /// Seconds between updates.
    pub refresh_s: u32,
    /// What the figures cover, in a sentence.
    pub description: String,
    /// Findings so far, latest first.
    pub findings: Vec<Notice>,
    /// The capture's own health, as labels and values.
    pub health: Vec<(String, String)>,
}

/// The page of a running capture; `report` has the figures so far.
pub fn live(report: &Report, source: &Source, page: &LiveCapturePage) -> Page {
    let mut found = Section::new("Findings");
    found.blocks.push(match page.findings.is_empty() {
        true => Block::Missing("Nothing so far.".into()),
        false => Block::Notices(page.findings.clone()),
    });
    let mut health = Section::new("The capture itself");
    health.blocks.push(Block::Facts(page.health.clone()));
    let mut sections = vec![
        over_time::over_time(report),
        found,
        operations::operations(report),
    ];
    let rankings = [("Files", &report.files), ("Clients", &report.clients)];
    let rankings = rankings.into_iter();
    sections.extend(rankings.filter_map(|(title, of)| ranking::ranking(title, of.as_ref()?)));
    sections.extend([health, ledger::ledger(report)]);
    Page {
        kind: "Live capture".into(),
        title: source.name.clone(),
        description: page.description.clone(),
        made_by: format!("Brunt {}", source.version),
        glance: glance::glance(report, source),
        sections,
        refresh_s: Some(page.refresh_s),
    }
}
