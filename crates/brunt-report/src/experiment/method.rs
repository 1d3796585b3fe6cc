//! How and where the experiment was measured, and how to repeat it.

use std::collections::{BTreeMap, BTreeSet};

use brunt_result::health_waits::{HealthWaits, health_waits};
use brunt_result::phase_wait::PhaseWait;
use brunt_result::statistics::{ALPHA, RUNS_MIN};
use brunt_result::summary::Summary;

use super::details::Details;
use super::differences::keys_below;
use crate::format::Unit;
use crate::page::{Block, Cell, PageTable, Section};

pub(super) fn section(summary: &Summary, details: &Details) -> Section {
    let mut section = Section::new("Method and environment");
    if details.environment.is_empty() {
        let why = details
            .missing
            .as_deref()
            .unwrap_or("The results have no table of the environment.");
        section
            .blocks
            .push(Block::Missing(format!("The host is not recorded. {why}")));
    } else {
        section
            .blocks
            .push(Block::Facts(details.environment.clone()));
    }
    let engines = engines(summary);
    if !engines.is_empty() {
        let what = "Engines that sent the requests, and why they were used".to_string();
        section.blocks.push(Block::Heading(what));
        section.blocks.push(Block::Facts(engines));
    }
    let experiment = &summary.experiment;
    let reported = experiment
        .targets
        .iter()
        .filter(|(_, target)| !target.facts.is_empty());
    let reported: Vec<(String, String)> = reported
        .map(|(name, target)| (format!("Target {name}"), target.facts.join(" · ")))
        .collect();
    if !reported.is_empty() {
        section.blocks.push(Block::Heading(
            "What targets reported when they were opened".into(),
        ));
        section.blocks.push(Block::Facts(reported));
    }
    if !summary.waits.is_empty() {
        section.table(waits(&summary.waits));
    }
    let waits_for_health = health_waits(summary);
    if !waits_for_health.is_empty() {
        section.table(health_table(waits_for_health));
    }
    for (name, workload) in &experiment.workloads {
        let settings = keys_below(summary, &["workloads", name]);
        if settings.is_empty() {
            continue;
        }
        let rows = settings
            .into_iter()
            .map(|(key, value)| vec![Cell::text(key), Cell::text(value)]);
        let caption = format!("All settings of workload {name} ({})", workload.kind);
        let table = PageTable::new(caption, &["key", "value"], rows);
        section.table(table.folded());
    }
    section.prose(format!(
        "All confidence intervals are computed over runs, not over seconds or requests, because the seconds of a run are not independent. {} runs were planned for each point, with all points interleaved in a random order (seed {}). Intervals are 95 % (Student's t), widened as far as consecutive runs resemble each other. Ratios compare geometric means; their intervals belong to the test that gives the verdict, at a level of {} after Holm's correction, and are omitted below {RUNS_MIN} runs per side.",
        experiment.repetitions,
        experiment.seed,
        Unit::Share.show(ALPHA),
    ));
    section.prose(
        "A p99 with an interval is the mean of the runs' p99 values, on this page, in the terminal and in comparisons. Other percentiles of a point are computed from the requests of all its runs (merged histograms, three significant figures). Open-loop latencies count from when a request was due, so a stalled target cannot hide its stall. A closed loop waits for the target, so its latencies say less about a busy system.",
    );
    section
}

/// What runs waited for before phases, and for how long.
fn waits(waits: &[PhaseWait]) -> PageTable {
    let rows = waits.iter().map(|wait| {
        vec![
            Cell::text(&wait.phase),
            Cell::number(wait.repetition.to_string()),
            Cell::text(&wait.command),
            Cell::number(format!("{:.2} s", wait.waited_s)),
            Cell::text(wait.outcome.to_string()),
        ]
    });
    let columns = ["phase", "repetition", "condition", "waited", "outcome"];
    PageTable::new("Waits for the conditions of phases", &columns, rows)
}

/// How long runs waited for services to become healthy.
fn health_table(waits: BTreeMap<&str, HealthWaits>) -> PageTable {
    let rows = waits.into_iter().map(|(service, waits)| {
        let mean_s = waits.total_s / waits.runs as f64;
        vec![
            Cell::text(service),
            Cell::number(waits.runs.to_string()),
            Cell::number(format!("{mean_s:.2} s")),
            Cell::number(format!("{:.2} s", waits.longest_s)),
        ]
    });
    let columns = ["service", "runs", "mean", "longest"];
    PageTable::new("Waits until services were healthy", &columns, rows)
}

/// Each engine and its reason, with its points; for points whose hosts used different engines, the engine of each host.
fn engines(summary: &Summary) -> Vec<(String, String)> {
    let mut engines: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for point in &summary.points {
        let hosts = point.runs.iter().flat_map(|run| &run.hosts);
        let hosts: BTreeSet<String> = hosts
            .filter_map(|host| Some(format!("{} on {}", host.engine?, host.name)))
            .collect();
        let engine = match &point.engine {
            Some(choice) => format!("{} ({})", choice.engine, choice.why),
            None if hosts.is_empty() => continue,
            None => Vec::from_iter(hosts).join(", "),
        };
        engines.entry(engine).or_default().push(&point.label);
    }
    engines
        .into_iter()
        .map(|(engine, points)| {
            let points = match points.len() == summary.points.len() {
                true => "all points".to_string(),
                false => points.join(" · "),
            };
            (engine, points)
        })
        .collect()
}

pub(super) fn reproduce(summary: &Summary) -> Section {
    let mut section = Section::new("How to reproduce");
    section.prose(format!(
        "Brunt {} repeats the same requests in the same order from this file (seed {}): brunt run experiment.toml",
        summary.brunt, summary.experiment.seed
    ));
    section.blocks.push(Block::Code(
        "experiment.toml with all defaults".into(),
        summary.experiment.toml.clone(),
    ));
    section
}

#[cfg(test)]
mod tests {
    use brunt_result::phase_wait::WaitOutcome;

    use super::*;

    /// Each wait has a row, in chronological order.
    #[test]
    fn waits_have_a_table() {
        let wait = |repetition, waited_s, outcome| PhaseWait {
            phase: "measure".into(),
            repetition,
            command: "./healthy.sh".into(),
            waited_s,
            outcome,
        };
        let all = [
            wait(0, 1.25, WaitOutcome::Met),
            wait(1, 60.0, WaitOutcome::TimedOut),
        ];
        let rows = waits(&all).rows;
        let row = |repetition: &str, waited: &str, outcome: &str| {
            vec![
                Cell::text("measure"),
                Cell::number(repetition),
                Cell::text("./healthy.sh"),
                Cell::number(waited),
                Cell::text(outcome),
            ]
        };
        let expected = [row("0", "1.25 s", "met"), row("1", "60.00 s", "timed out")];
        assert_eq!(format!("{rows:?}"), format!("{expected:?}"));
    }
}
