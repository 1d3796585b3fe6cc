//! What a terminal gets of an experiment: the plan before it, the table after it, 80 columns wide.

use std::collections::BTreeMap;

use brunt_core::Size;
use brunt_load::calibrate::RingMode;

use crate::degradation::OverRuns;
use crate::experiment::{Experiment, Plan};
use crate::statistics::Estimate;
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
        if !point.ring.trials.is_empty() || point.ring.mode != RingMode::default() {
            let said = format!("  ring: {}, {}", point.ring.mode.name(), point.ring.why);
            lines.push(said.chars().take(80).collect());
        }
        let mut losses: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, count) in point.runs.iter().flat_map(|run| &run.losses) {
            *losses.entry(name).or_default() += count;
        }
        if !losses.is_empty() {
            let told: Vec<String> = losses.iter().map(|(name, count)| format!("{count} {name}")).collect();
            lines.push(format!("  losses: {}", told.join(", ")));
        }
        let mut doubts: Vec<&String> = point.runs.iter().flat_map(|run| &run.doubts).collect();
        doubts.dedup();
        lines.extend(doubts.first().map(|doubt| format!("  doubtful: {doubt}")));
        for fault in &point.degradation {
            lines.extend(cost(fault));
        }
    }
    lines
}

/// What a fault cost, in two lines.
fn cost(fault: &OverRuns) -> [String; 2] {
    let name: String = fault.fault.chars().take(70).collect();
    let (Some(depth), Some(lost)) = (fault.depth, fault.lost_requests) else {
        return [format!("  fault {name}:"), "    no baseline before it to compare with".to_string()];
    };
    let half = |estimate: &Estimate| estimate.high.map_or(0.0, |high| high - estimate.mean);
    let share = format!("{:.1}% ± {:.1} of the rate lost", depth.mean * 100.0, half(&depth) * 100.0);
    let answer = |what: &str, seconds: &Option<Estimate>, never: usize| match (seconds, never) {
        (Some(seconds), 0) => format!("{what} after {:.2} s", seconds.mean),
        (Some(seconds), never) => format!("{what} after {:.2} s (not in {never} runs)", seconds.mean),
        (None, _) => format!("not {what}"),
    };
    let seen = answer("seen", &fault.detected_s, fault.not_detected);
    let back = answer("back", &fault.recovered_s, fault.not_recovered);
    [format!("  fault {name}:"), format!("    {share}, {:.0} requests; {seen}, {back}", lost.mean)]
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
    for (name, target) in &experiment.targets {
        match &target.serve {
            Some(serve) if serve.is_sink() => {
                lines.push(format!("target {name} is a sink of its own (brunt sink)"))
            }
            Some(serve) => lines.push(format!(
                "target {name} is served by a process of its own (brunt target): {}",
                serve.luns().join(" ")
            )),
            None => {}
        }
    }
    for (name, url, allowed) in &plan.written {
        let what = match allowed {
            true => "is overwritten whatever it holds (allow_overwrite)",
            false => "is written; refused if it holds a file system or partition table",
        };
        lines.push(format!("target {name} ({url}) {what}"));
    }
    for point in &plan.points {
        let workload = &point.workload;
        if point.phase.is_some() {
            lines.push(format!("  {}: in {}", point.label, point.url));
            continue;
        }
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
    for fault in &experiment.fault {
        let time = |time: Option<brunt_core::Span>| time.map(|time| time.to_string());
        let when = match (time(fault.at), time(fault.lasts)) {
            (None, _) => "for the whole run".to_string(),
            (Some(at), None) => format!("from {at} on"),
            (Some(at), Some(lasts)) => format!("at {at} for {lasts}"),
        };
        lines.push(format!("fault on {}: {} {when}", fault.place(), fault.what()));
    }
    lines
}
