//! The report page of an experiment, written by `brunt run` at its end and again by `brunt report`.
//!
//! The rule: every figure comes from the results on disk; nothing is measured, guessed or smoothed here, and missing
//! data is reported in its place.

mod again;
mod comparison;
mod conditions;
mod cost;
mod depth;
mod details;
mod differences;
mod distribution;
mod faults;
mod glance;
mod hosts;
mod indexes;
mod knee;
mod link_proofs;
mod links;
mod losses;
mod method;
mod ops;
mod overlay;
mod performability;
mod phases;
mod points;
mod profile;
mod recount;
mod recurring;
mod replay;
mod require;
mod steady;
mod sweep;
mod targets;
mod timeline;
mod transfer;
mod verdicts;
mod when;

use std::path::Path;

use brunt_result::summary::Summary;

pub use again::read;
pub use comparison::{ComparedResult, comparison};
pub use details::{Details, ProbeSeries, RunDetails, StoredInterval};
pub use differences::{
    DifferenceSubject, EnvironmentFact, ResultDifference, WithEnvironment, differences,
    read_environment,
};
pub use profile::Flames;
pub use recount::read_to_compare;

use crate::html::render;
use crate::page::{Page, Section};
use points::Points;

/// Name of the page in a result's folder.
pub const FILE_NAME: &str = "report.html";

/// The page of the result in `folder`, as HTML.
pub fn text(summary: &Summary, folder: &Path) -> String {
    render(&page(summary, &Details::read(folder, summary)))
}

/// The section about faults: their effects, each load under its conditions, and what the verdicts are based on.
fn with_verdicts(summary: &Summary, points: &Points<'_>, details: &Details) -> Option<Section> {
    let mut section = faults::section(summary, points)?;
    let conditions = conditions::blocks(summary, points, details);
    section.blocks.extend(conditions);
    section
        .blocks
        .extend(verdicts::block(summary, points, details));
    Some(section)
}

/// The page of a result, with details from its tables.
pub fn page(summary: &Summary, details: &Details) -> Page {
    let points = Points::of(summary);
    let mut page = Page {
        kind: "Experiment".into(),
        title: summary.experiment.name.clone(),
        description: summary.experiment.description.clone(),
        made_by: format!("Brunt {}", summary.brunt),
        refresh_s: None,
        glance: glance::glance(summary, &points, details),
        sections: Vec::new(),
    };
    let sweep = Some(sweep::section(&points));
    let (depth, targets) = (
        depth::section(summary, &points),
        targets::section(summary, &points),
    );
    let robustness = indexes::section(summary);
    let over_years = performability::section(summary, &points);
    let faults = with_verdicts(summary, &points, details);
    let replay = replay::section(summary, &points);
    let distribution = Some(distribution::section(&points, details));
    let timeline = Some(timeline::section(summary, details));
    // With faults, figures by phase come first, and averages over whole runs after them.
    let opening = match phases::any(summary) {
        true => [
            faults,
            over_years,
            timeline,
            robustness,
            sweep,
            depth,
            targets,
            replay,
            distribution,
        ],
        false => [
            robustness,
            sweep,
            depth,
            targets,
            faults,
            over_years,
            replay,
            distribution,
            timeline,
        ],
    };
    let rest = [
        steady::section(&points),
        Some(sweep::table(&points)),
        ops::section(summary, &points),
        Some(losses::section(summary)),
        transfer::section(summary, &points),
        links::section(summary, &points),
        link_proofs::section(summary, &points),
        profile::section(summary, &points, details),
        Some(cost::section(summary)),
        Some(method::section(summary, details)),
        Some(method::reproduce(summary)),
    ];
    let sections = opening.into_iter().chain(rest).flatten();
    page.sections = require::section(summary)
        .into_iter()
        .chain(glance::section(summary, &points))
        .chain(sections)
        .filter(|section| !section.blocks.is_empty())
        .collect();
    page
}
