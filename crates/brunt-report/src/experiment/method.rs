//! How it was measured, where, and how to measure it again.

use brunt_result::statistics::{ALPHA, RUNS_MIN};
use brunt_result::summary::Summary;

use super::details::Details;
use crate::format::Unit;
use crate::page::{Block, Section};

pub(super) fn section(summary: &Summary, details: &Details) -> Section {
    let mut section = Section::new("Method and environment");
    if details.environment.is_empty() {
        let why = details.missing.as_deref().unwrap_or("The result has no table of its environment.");
        section.blocks.push(Block::Missing(format!("On what host it ran is not on record. {why}")));
    } else {
        section.blocks.push(Block::Facts(details.environment.clone()));
    }
    let experiment = &summary.experiment;
    section.prose(format!(
        "The unit of every interval is the run, not the second or the request: seconds of one run are not independent. \
         Each point was meant to run {} times, all points interleaved in an order drawn with seed {}. Intervals are \
         95 % by Student's t over runs; ratios are of geometric means, with the interval of the test that gives the \
         verdict, at {} after Holm's correction, and none under {RUNS_MIN} runs a side.",
        experiment.repetitions,
        experiment.seed,
        Unit::Share.show(ALPHA),
    ));
    section.prose(
        "A p99 with an interval is the mean over runs of each run's p99, here, in the terminal and in comparisons alike. \
         Other percentiles of a point are those of all its runs' requests together: their histograms, merged (three \
         significant figures). Open-loop latencies begin when a request was due, so that a stalled target cannot hide its stall; a \
         closed loop waits for the target, and its latencies say less about a busy system.",
    );
    section
}

pub(super) fn reproduce(summary: &Summary) -> Section {
    let mut section = Section::new("How to reproduce");
    section.prose(format!(
        "With Brunt {} and this file the same requests are made again, in the same order (seed {}): brunt run \
         experiment.toml",
        summary.brunt, summary.experiment.seed
    ));
    section.blocks.push(Block::Code(
        "experiment.toml, with every default written out".into(),
        summary.experiment.toml.clone(),
    ));
    section
}
