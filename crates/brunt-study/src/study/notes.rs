//! Notes on runs and points, for the results and for the table.

use std::time::Duration;

use brunt_core::units::counted;
use brunt_result::Stopped;
use brunt_result::health_waits::{self, HealthWaits};
use brunt_result::phase_wait::{PhaseWait, WaitOutcome};
use brunt_result::summary::{RunSummary, Summary};

use crate::rounded::rounded;

/// The message about a run that ended because its target was gone, after measuring for `lasted`.
pub(crate) fn target_gone(label: &str, error: &str, lasted: Duration) -> String {
    format!(
        "{label}: {error}; the target was available for {} of the run: a run with stop = {{ time = \"{}\" }} would \
         have ended before that",
        rounded(lasted),
        rounded(lasted / 2)
    )
}

/// Reasons to doubt a run that are evident from its own results.
pub(super) fn doubts(run: &RunSummary) -> Vec<String> {
    untrue(run).into_iter().chain(not_steady(run)).collect()
}

/// A note on a replay that doesn't reproduce its trace.
fn untrue(run: &RunSummary) -> Option<String> {
    let replay = run
        .replay
        .as_ref()
        .filter(|replay| replay.verdict != brunt_result::replay::ReplayVerdict::True)?;
    Some(format!(
        "replay: {}; {}",
        replay.verdict.name(),
        replay.reasons.join("; ")
    ))
}

/// A doubt about a run that did not reach a steady state within its rounds.
fn not_steady(run: &RunSummary) -> Option<String> {
    let rounds = run.steady.as_ref()?;
    (run.stopped == Stopped::NotSteady)
        .then(|| format!("not in a steady state after {rounds}; allow more with rounds_max"))
}

/// A note on how many rounds it took until the runs of a point were steady.
pub(super) fn steady(runs: &[&RunSummary]) -> Option<String> {
    let ended = |run: &&&RunSummary| run.stopped == Stopped::Steady;
    let rounds: Vec<_> = runs
        .iter()
        .filter(ended)
        .filter_map(|run| run.steady.as_ref())
        .collect();
    let fewest = rounds.iter().min_by_key(|rounds| rounds.count)?;
    let most = rounds.iter().max_by_key(|rounds| rounds.count)?;
    if rounds.len() == 1 && runs.len() == 1 {
        return Some(format!("steady after {fewest}"));
    }
    let after = match fewest.count == most.count {
        true => counted(most.count as usize, "round"),
        false => format!("{} to {} rounds", fewest.count, most.count),
    };
    let (steady, all) = (rounds.len(), counted(runs.len(), "run"));
    Some(format!("steady in {steady} of {all}, after {after}"))
}

/// The waits before each phase: how many there were, how long they took, and which conditions were not met.
pub(super) fn waits(summary: &Summary) -> Vec<String> {
    let mut phases: Vec<(&str, Vec<&PhaseWait>)> = Vec::new();
    for wait in &summary.waits {
        match phases.iter_mut().find(|(phase, _)| *phase == wait.phase) {
            Some((_, waits)) => waits.push(wait),
            None => phases.push((&wait.phase, vec![wait])),
        }
    }
    let line = |(phase, waits): (&str, Vec<&PhaseWait>)| {
        let all: f64 = waits.iter().map(|wait| wait.waited_s).sum();
        let most = waits.iter().map(|wait| wait.waited_s).fold(0.0, f64::max);
        let times = counted(waits.len(), "wait");
        let mut line = format!(
            "phase {phase}: {times} for {}, {all:.1} s in total, longest {most:.1} s",
            waits[0].command
        );
        for wait in waits.iter().filter(|wait| wait.outcome != WaitOutcome::Met) {
            line += &format!("; repetition {}: {}", wait.repetition, wait.outcome);
        }
        line
    };
    phases.into_iter().map(line).collect()
}

/// How long runs waited for each service to become healthy.
pub(super) fn health_waits(summary: &Summary) -> Vec<String> {
    let line = |(service, waits): (&str, HealthWaits)| {
        let HealthWaits {
            runs,
            total_s,
            longest_s,
        } = waits;
        let runs = counted(runs, "run");
        format!(
            "service {service}: {runs} waited until it was healthy, {total_s:.1} s in total, longest {longest_s:.1} s"
        )
    };
    let services = health_waits::health_waits(summary);
    services.into_iter().map(line).collect()
}

/// Device problems in these runs: the number of affected runs, and the first problem.
pub(super) fn trouble_note(runs: &[&RunSummary]) -> Option<String> {
    let mut met = runs.iter().filter(|run| !run.troubles.is_empty());
    let first = met.next()?;
    let (some, all, repetition) = (1 + met.count(), runs.len(), first.repetition);
    let what = first.troubles.join("; ");
    Some(format!(
        "devices recovered from errors in {some} of {all} runs; repetition {repetition}, {what}"
    ))
}

/// The page cache's share in these runs, if it affects the figures.
pub(super) fn page_cache_note(runs: &[&RunSummary]) -> Option<String> {
    let shares: Vec<f64> = runs
        .iter()
        .filter_map(|run| run.page_cache?.read_share)
        .collect();
    let flushes: Vec<f64> = runs
        .iter()
        .filter_map(|run| Some(run.page_cache?.flush_s / run.measured_s))
        .collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64 * 100.0;
    let mut said = Vec::new();
    if !shares.is_empty() {
        said.push(format!(
            "{:.1} % of the data read came from it",
            mean(&shares)
        ));
    }
    if flushes.iter().any(|share| *share > 0.0) {
        said.push(format!(
            "fsync at the end took {:.1} % of the time",
            mean(&flushes)
        ));
    }
    (!said.is_empty()).then(|| format!("page cache: {}", said.join("; ")))
}
