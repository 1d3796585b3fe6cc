//! The report page of an experiment, written by `brunt run` at its end and again by `brunt report`.
//!
//! The rule: every figure comes from the results on disk; nothing is measured, guessed or smoothed here, and
//! missing data is reported in its place.

mod comparison;
mod cost;
mod depth;
mod details;
mod distribution;
mod faults;
mod glance;
mod hosts;
mod links;
mod losses;
mod method;
mod ops;
mod points;
mod replay;
mod sweep;
mod targets;
mod timeline;

use brunt_result::summary::Summary;

pub use comparison::comparison;
pub use details::{Details, ProbeSeries, RunDetails, StoredInterval};

use crate::page::Page;
use points::Points;

/// The page of a result, with what its tables add to the summary.
pub fn page(summary: &Summary, details: &Details) -> Page {
    let points = Points::of(summary);
    let mut page = Page {
        kind: "Experiment".into(),
        title: summary.experiment.name.clone(),
        description: summary.experiment.description.clone(),
        made_by: format!("Brunt {}", summary.brunt),
        glance: glance::glance(summary, &points, details),
        sections: Vec::new(),
    };
    let sections = [
        Some(sweep::section(&points)),
        depth::section(summary, &points),
        targets::section(summary, &points),
        faults::section(summary, &points),
        replay::section(summary, &points),
        Some(distribution::section(&points, details)),
        Some(timeline::section(summary, details)),
        Some(sweep::table(&points)),
        ops::section(summary, &points),
        Some(losses::section(summary)),
        links::section(summary, &points),
        Some(cost::section(summary)),
        Some(method::section(summary, details)),
        Some(method::reproduce(summary)),
    ];
    page.sections = sections.into_iter().flatten().filter(|section| !section.blocks.is_empty()).collect();
    page
}
