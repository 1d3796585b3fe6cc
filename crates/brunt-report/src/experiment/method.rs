//! How it was measured, where, and how to measure it again.

use brunt_load::Workload;
use brunt_load::block::workload::{Arrival, Process};
use brunt_result::statistics::{ALPHA, RESAMPLES, RUNS_MIN};
use brunt_study::experiment::Experiment;
use brunt_study::results::environment::without_secrets;
use brunt_study::summary::Summary;

use super::details::Details;
use crate::format::Unit;
use crate::page::{Block, Section};

/// A workload in a line; what is swept over is left out.
pub(super) fn workload(workload: &Workload, experiment: &Experiment) -> String {
    let sweep = &experiment.sweep;
    let mut words = Vec::new();
    if sweep.block_size.is_empty() {
        let weights: f64 = workload.blocks.iter().map(|block| block.weight).sum();
        let blocks = workload.blocks.iter().map(|block| match workload.blocks.len() {
            1 => Unit::Bytes.show(block.size.0 as f64),
            _ => format!(
                "{} ({})",
                Unit::Bytes.show(block.size.0 as f64),
                Unit::Share.show(block.weight / weights)
            ),
        });
        words.push(blocks.collect::<Vec<String>>().join(" + "));
    }
    if sweep.read.is_empty() {
        words.push(match workload.read {
            1.0 => "reads".into(),
            0.0 => "writes".into(),
            share => format!("{} reads", Unit::Share.show(share)),
        });
    }
    if sweep.sequential.is_empty() {
        words.push(match workload.sequential {
            0.0 => "random".into(),
            1.0 => "sequential".into(),
            share => format!("{} sequential", Unit::Share.show(share)),
        });
    }
    if sweep.queue_depth.is_empty() {
        words.push(format!("{} outstanding", workload.queue_depth));
    }
    if sweep.workers.is_empty() && workload.workers > 1 {
        words.push(format!("{} workers", workload.workers));
    }
    let law = |process: Process| match process {
        Process::Constant => "evenly",
        Process::Poisson => "Poisson",
    };
    words.push(match workload.arrival {
        Arrival::Closed {} => "closed loop".into(),
        Arrival::Open { process, .. } if !sweep.rate.is_empty() => format!("open loop, {}", law(process)),
        Arrival::Open { rate, process, .. } => {
            format!("open loop, {}, {}", Unit::PerSecond.show(rate), law(process))
        }
        Arrival::Search { percentile, limit, .. } => {
            let limit = Unit::Micros.show(limit.0.as_secs_f64() * 1e6);
            format!("highest rate with p{percentile} under {limit}")
        }
    });
    words.join(", ")
}

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
         95 % by Student's t over runs; ratios by {} bootstrap resamples of the log ratio; verdicts by Welch's test at \
         {} after Holm's correction, and none under {RUNS_MIN} runs a side.",
        experiment.repetitions,
        experiment.seed,
        crate::format::count(RESAMPLES as f64),
        Unit::Share.show(ALPHA),
    ));
    section.prose(
        "Percentiles are never averaged: those of a point come from its runs' histograms, merged (three significant \
         figures). Open-loop latencies begin when a request was due, so that a stalled target cannot hide its stall; a \
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
    match toml::to_string_pretty(&summary.experiment) {
        Ok(text) => section.blocks.push(Block::Code(
            "experiment.toml, with every default written out".into(),
            without_secrets(&text),
        )),
        Err(error) => section
            .blocks
            .push(Block::Missing(format!("It cannot be written as TOML ({error}); see summary.json."))),
    }
    section
}
