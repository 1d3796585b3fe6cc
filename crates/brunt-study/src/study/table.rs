//! What a terminal gets of an experiment: the plan before it, the table after it, 80 columns wide.

use std::collections::BTreeMap;

use brunt_core::Size;

use crate::experiment::{Experiment, Plan};
use crate::summary::Summary;

/// The table at the end of `brunt run`, 80 columns wide at the most.
pub fn table(summary: &Summary) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<33} {:>10} {:>5} {:>9} {:>9} {:>9}",
        "", "requests/s", "±", "MB/s", "mean us", "p99 us"
    )];
    for point in &summary.points {
        let label: String = match point.label.char_indices().nth(80) {
            Some((end, _)) => point.label[..end].to_string(),
            None => point.label.clone(),
        };
        // A long label has a line of its own.
        let label = if label.chars().count() > 33 {
            lines.push(label);
            String::new()
        } else {
            label
        };
        let Some(requests) = point.requests_per_second else {
            lines.push(format!("{label:<33} no complete run"));
            continue;
        };
        let width =
            requests.relative_half_width().map_or("-".into(), |share| format!("{:.0}%", share * 100.0));
        let bytes = point.bytes_per_second.map_or(0.0, |bytes| bytes.mean / 1e6);
        let (mean, p99) =
            point.response.map_or((f64::NAN, f64::NAN), |response| (response.mean_us, response.p99_us));
        lines.push(format!(
            "{label:<33} {:>10.0} {width:>5} {bytes:>9.1} {mean:>9.1} {p99:>9.1}",
            requests.mean
        ));
        let mut losses: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, count) in point.runs.iter().flat_map(|run| &run.losses) {
            *losses.entry(name).or_default() += count;
        }
        if !losses.is_empty() {
            let told: Vec<String> = losses.iter().map(|(name, count)| format!("{count} {name}")).collect();
            lines.push(format!("  losses: {}", told.join(", ")));
        }
    }
    lines
}

/// What `--check` says: what would run, how long, what would be written.
pub fn describe(experiment: &Experiment, plan: &Plan) -> Vec<String> {
    let (points, runs) = (plan.points.len(), plan.runs.len());
    let mut lines = vec![format!(
        "{}: {points} points, {} repetitions, {runs} runs (seed {})",
        experiment.name, experiment.repetitions, experiment.seed
    )];
    let (seconds, more) =
        (plan.time_min.as_secs(), if plan.open_ended { " and what runs without a time need" } else { "" });
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    lines.push(format!("takes about {hours}:{minutes:02}:{seconds:02}{more}"));
    for (name, url, allowed) in &plan.written {
        let what = match allowed {
            true => "is overwritten whatever it holds (allow_overwrite)",
            false => "is written; refused if it holds a file system or partition table",
        };
        lines.push(format!("target {name} ({url}) {what}"));
    }
    for point in &plan.points {
        let workload = &point.workload;
        let blocks: Vec<String> =
            workload.blocks.iter().map(|block| Size(block.size.0).to_string()).collect();
        lines.push(format!(
            "  {}: {} blocks, {:.0}% reads, depth {} x {}",
            point.label,
            blocks.join("/"),
            workload.read * 100.0,
            workload.queue_depth,
            workload.workers
        ));
    }
    lines
}
