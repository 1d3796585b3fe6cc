//! The report page of a capture, written by `brunt analyze --html`: findings first, then activity over time,
//! operations, clients and files, and losses.

mod glance;
mod ledger;
mod live;
mod operations;
mod over_time;
mod ranking;
mod sections;
mod workload;

use brunt_result::capture::Report;

use crate::page::Page;
pub use live::{LiveCapturePage, live};

/// Information about a capture in addition to its figures.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Name of the source: a file or an interface.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Problems encountered while reading it, such as a truncated file.
    pub trouble: Vec<String>,
}

/// The report page.
pub fn page(report: &Report, source: &Source) -> Page {
    let mut sections = vec![over_time::over_time(report), operations::operations(report)];
    sections.extend(report.profile.as_ref().map(workload::workload));
    let rankings = [
        ("Files", &report.files),
        ("Directories", &report.directories),
        ("Clients", &report.clients),
        ("Clients and files", &report.pairs),
    ];
    let rankings = rankings.into_iter();
    sections.extend(rankings.filter_map(|(title, of)| ranking::ranking(title, of.as_ref()?)));
    sections.extend(sections::sections(report));
    sections.push(ledger::ledger(report));
    Page {
        kind: "Capture".into(),
        title: source.name.clone(),
        description: String::new(),
        made_by: format!("Brunt {}", source.version),
        glance: glance::glance(report, source),
        sections,
        refresh_s: None,
    }
}
