//! The summary box: the measured target and its host, headline figures, and warnings about their reliability.

use std::collections::BTreeMap;

use brunt_core::units::counted;
use brunt_result::experiment::{ArrivalKind, TargetKind};
use brunt_result::noise::NoiseShare;
use brunt_result::statistics::RUNS_MIN;
use brunt_result::summary::{PointSummary, Summary};

use super::details::Details;
use super::points::{Points, told};
use super::{links, losses, phases, require};
use crate::format::{Unit, count, plus_minus};
use crate::page::{Card, Glance, Notice, Tone};

/// Maximum number of headline figures; the table has all.
const CARDS_MAX: usize = 6;
/// Label for the point of a card's figures.
const AT: &str = "at";
/// The same, if the point was chosen for its rate.
const HIGHEST_AT: &str = "highest, at";
/// An interval with a larger half-width, as a share of the mean, gets a warning.
const WIDE: f64 = 0.10;
/// Maximum number of doubts; summary.json has those of each run.
const DOUBTS_MAX: usize = 5;

pub(super) fn glance(summary: &Summary, points: &Points<'_>, details: &Details) -> Glance {
    Glance {
        facts: facts(summary, details),
        cards: cards(summary, points),
        notices: damaged(details).chain(notices(summary, points)).collect(),
    }
}

/// Parts of tables that are missing from the charts.
fn damaged(details: &Details) -> impl Iterator<Item = Notice> {
    let which = details.damaged.join("; ");
    let text = format!(
        "Missing from the charts and tables below: {which}. The figures of runs are not affected."
    );
    (!details.damaged.is_empty())
        .then(|| Notice::new(Tone::Bad, text))
        .into_iter()
}

/// Number of complete runs.
fn complete_runs(summary: &Summary) -> usize {
    summary
        .points
        .iter()
        .flat_map(|point| &point.runs)
        .filter(|run| run.is_complete())
        .count()
}

/// The label of a result, and the results with which its runs took turns.
fn origin(summary: &Summary) -> Vec<(String, String)> {
    let label = summary.label.iter();
    let mut facts: Vec<(String, String)> = label
        .map(|label| ("Label".to_string(), label.clone()))
        .collect();
    if let Some(with) = &summary.interleaved {
        let others = with.results.iter().enumerate();
        let others = others.filter(|(place, _)| *place != with.place as usize);
        let others: Vec<&str> = others.map(|(_, name)| name.as_str()).collect();
        facts.push(("Took turns with".into(), others.join(", ")));
    }
    facts
}

fn facts(summary: &Summary, details: &Details) -> Vec<(String, String)> {
    let experiment = &summary.experiment;
    let mut facts = Vec::new();
    let mut measured = format!(
        "{} × {}",
        counted(experiment.targets.len(), "target"),
        counted(experiment.workloads.len(), "workload")
    );
    let axes: Vec<&String> = summary
        .points
        .first()
        .map_or(Vec::new(), |point| point.axes.keys().collect());
    for axis in axes {
        let mut values: Vec<&String> = summary
            .points
            .iter()
            .filter_map(|point| point.axes.get(axis))
            .collect();
        values.sort();
        values.dedup();
        measured += &format!(
            " × {} of {}",
            counted(values.len(), "value"),
            axis.replace('_', " ")
        );
    }
    let made = complete_runs(summary);
    let planned = planned_runs(summary);
    measured += &format!(
        " = {}, {} each; {made} of {planned} runs complete",
        counted(summary.points.len(), "point"),
        counted(experiment.repetitions as usize, "run"),
    );
    facts.push(("Measured".into(), measured));
    facts.extend(origin(summary));
    for (name, target) in &experiment.targets {
        let host = target
            .host
            .as_ref()
            .map_or(String::new(), |host| format!(" on {host}"));
        let place = match (target.served, target.kind) {
            (true, _) => format!("{} (served{host} for this experiment)", target.place),
            (false, TargetKind::Directory) => format!("{} (a directory)", target.place),
            (false, _) => target.place.clone(),
        };
        facts.push((format!("Target {name}"), place));
    }
    for (name, workload) in &experiment.workloads {
        facts.push((format!("Workload {name}"), workload.description.clone()));
    }
    if let Some(congestion) = &experiment.congestion {
        facts.push(("TCP".into(), congestion.told()));
    }
    if !details.environment.is_empty() {
        let told: Vec<String> = details
            .environment
            .iter()
            .take(4)
            .map(|(_, text)| text.clone())
            .collect();
        facts.push(("On".into(), told.join(" · ")));
    }
    facts
}

/// One card for each target and workload: the point with the highest throughput or, if the rate is given, the latency
/// at the highest rate.
fn cards(summary: &Summary, points: &Points<'_>) -> Vec<Card> {
    let mut groups: BTreeMap<(&str, &str), Vec<&PointSummary>> = BTreeMap::new();
    for point in points.all {
        groups
            .entry((&point.target, &point.workload))
            .or_default()
            .push(point);
    }
    let several = summary.experiment.workloads.len() > 1;
    let cards = groups
        .into_iter()
        .filter_map(|((target, workload), group)| {
            let best = group
                .into_iter()
                .filter(|point| point.requests_per_second.is_some())
                .max_by(|a, b| {
                    let rate =
                        |point: &PointSummary| point.bytes_per_second.map_or(0.0, |rate| rate.mean);
                    rate(a).total_cmp(&rate(b))
                })?;
            let name = if several {
                format!("{target} · {workload}")
            } else {
                target.to_string()
            };
            let open = summary
                .experiment
                .workloads
                .get(workload)
                .is_some_and(|w| w.arrival == ArrivalKind::Open);
            let rate = best.requests_per_second?;
            let (rate, rate_pm) = told(&rate, Unit::PerSecond);
            let rate = rate.replace("/s", " requests/s");
            let mut details = Vec::new();
            let p99 = best.response_p99_us.map(|p99| told(&p99, Unit::Micros));
            let (value, uncertainty) = match (&p99, open) {
                (Some((p99, pm)), true) => {
                    details.push(("throughput".to_string(), format!("{rate} {rate_pm}")));
                    (format!("p99 {p99}"), pm.clone())
                }
                _ => (rate, rate_pm),
            };
            if let Some(bytes) = best.bytes_per_second {
                let (bytes, pm) = told(&bytes, Unit::BytesPerSecond);
                details.push(("transfer".into(), format!("{bytes} {pm}")));
            }
            if let Some(mean) = best.response_mean_us {
                let (mean, pm) = told(&mean, Unit::Micros);
                details.push(("mean response".into(), format!("{mean} {pm}")));
            }
            if let (Some((p99, pm)), false) = (p99, open) {
                details.push(("p99".into(), format!("{p99} {pm}")));
            }
            if let Some(response) = best.response {
                let shown = format!(
                    "{} · {}",
                    Unit::Micros.show(response.p99_9_us),
                    Unit::Micros.show(response.max_us)
                );
                details.push(("p99.9 · maximum, of all requests".into(), shown));
            }
            if let Some(place) = points.place_of(best) {
                details.push((if open { AT } else { HIGHEST_AT }.into(), place));
            }
            let card = Card {
                name,
                value,
                uncertainty,
                details,
                parts: Vec::new(),
            };
            Some(if best.phases.is_empty() {
                card
            } else {
                phased(card, best, open)
            })
        });
    cards.take(CARDS_MAX).collect()
}

/// The card of a point with faults: the figures of each phase, followed by the overall average in words.
fn phased(card: Card, point: &PointSummary, open: bool) -> Card {
    let average = format!("{} {}", card.value, card.uncertainty)
        .trim_end()
        .to_string();
    let place = card
        .details
        .into_iter()
        .filter(|(word, _)| word == AT || word == HIGHEST_AT);
    let mut details: Vec<(String, String)> = phases::answers(point);
    details.push(("whole run, faults included".into(), average));
    details.extend(place);
    Card {
        name: card.name,
        details,
        parts: phases::parts(point, open),
        ..Card::default()
    }
}

/// Points that did not reach the requested precision, and what it would have taken.
fn imprecise(summary: &Summary, points: &Points<'_>) -> Vec<String> {
    let short = summary
        .points
        .iter()
        .filter_map(|point| Some((point, point.precision?)));
    let short = short.filter(|(_, precision)| !precision.reached);
    let said = short.map(|(point, precision)| {
        let wanted = precision.runs_wanted.map_or(String::new(), |runs| {
            format!(
                " About {} would suffice, or longer runs.",
                counted(runs, "run")
            )
        });
        format!(
            "{} did not reach a precision of {}: {} after {}.{wanted}",
            points.full_name(point),
            plus_minus(precision.goal),
            precision
                .half_width
                .map_or("no interval".into(), plus_minus),
            counted(point.runs.len(), "run"),
        )
    });
    said.take(DOUBTS_MAX).collect()
}

/// Number of planned runs; runs added for the sake of precision count once they are made.
fn planned_runs(summary: &Summary) -> usize {
    let least = summary.experiment.repetitions as usize;
    summary
        .points
        .iter()
        .map(|point| point.runs.len().max(least))
        .sum()
}

fn notices(summary: &Summary, points: &Points<'_>) -> Vec<Notice> {
    let mut notices = Vec::new();
    let made = complete_runs(summary);
    let planned = planned_runs(summary);
    if !summary.complete {
        let why = summary
            .trouble
            .as_deref()
            .map_or(String::new(), |why| format!(": {why}"));
        notices.push(Notice::new(
            Tone::Bad,
            format!(
                "Incomplete{why}. {made} of {planned} runs completed; only these are evaluated."
            ),
        ));
    }
    let failures = brunt_result::failures::failures(summary).into_iter();
    notices.extend(failures.map(|what| Notice::new(Tone::Bad, format!("{what}; see Losses."))));
    notices.extend(require::notices(summary));
    let lost = losses::total(summary);
    if lost > 0 {
        let all: u64 = summary
            .points
            .iter()
            .flat_map(|point| &point.runs)
            .map(losses::requests)
            .sum();
        let share = Unit::Share.show(lost as f64 / all.max(1) as f64);
        let text = format!(
            "{} of {} requests ({share}) failed or were lost; see Losses.",
            count(lost as f64),
            count(all as f64)
        );
        notices.push(Notice::new(Tone::Warning, text));
    }
    if summary.experiment.repetitions < RUNS_MIN as u32 {
        let text = format!(
            "Fewer than {RUNS_MIN} runs per point: intervals are wide or missing, and comparisons refuse a \
             verdict. Write repetitions = {RUNS_MIN} or more."
        );
        notices.push(Notice::new(Tone::Warning, text));
    }
    notices.extend(
        imprecise(summary, points)
            .into_iter()
            .map(|text| Notice::new(Tone::Warning, text)),
    );
    if let Some(alike) = brunt_result::drift::drift(summary) {
        let text = format!(
            "Consecutive runs are correlated ({alike:.2}), so the machine drifted; intervals are widened for it. More \
             rounds or longer runs cover more of it."
        );
        notices.push(Notice::new(Tone::Warning, text));
    }
    notices.extend(wide_intervals(summary, points));
    notices.extend(machine_noise(summary, points));
    notices.extend(doubts(summary));
    notices.extend(
        links::full_lines(summary, points)
            .into_iter()
            .map(|text| Notice::new(Tone::Note, text)),
    );
    let mut told: Vec<&String> = summary
        .points
        .iter()
        .flat_map(|point| &point.notes)
        .collect();
    told.sort();
    told.dedup();
    notices.extend(
        told.into_iter()
            .map(|note| Notice::new(Tone::Note, note.clone())),
    );
    if summary.complete && lost == 0 {
        notices.insert(
            0,
            Notice::new(
                Tone::Good,
                format!("Complete: {made} of {planned} runs, no requests lost."),
            ),
        );
    }
    notices
}

/// Number of wide throughput intervals, and the widest.
fn wide_intervals(summary: &Summary, points: &Points<'_>) -> Option<Notice> {
    let widths = summary
        .points
        .iter()
        .filter_map(|point| Some((point, point.requests_per_second?.relative_half_width()?)));
    let mut wide: Vec<(&PointSummary, f64)> = widths.filter(|(_, width)| *width > WIDE).collect();
    wide.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (point, width) = wide.first()?;
    let text = format!(
        "At {} of {} the confidence interval of throughput is wider than {}; the widest is {}, at {}.",
        wide.len(),
        counted(summary.points.len(), "point"),
        plus_minus(WIDE),
        plus_minus(*width),
        points.full_name(point)
    );
    Some(Notice::new(Tone::Warning, text))
}

/// Points for which the machine's noise matters: how many, and the worst.
fn machine_noise(summary: &Summary, points: &Points<'_>) -> Vec<Notice> {
    let noises = summary
        .points
        .iter()
        .filter_map(|point| Some((point, NoiseShare::of(point)?)));
    let noisy: Vec<(&PointSummary, NoiseShare)> =
        noises.filter(|(_, noise)| noise.is_shown()).collect();
    let most = noisy
        .iter()
        .max_by(|a, b| a.1.explains().total_cmp(&b.1.explains()));
    most.and_then(|(point, noise)| {
        let text = format!(
            "The machine's own noise matters at {} of {}; most at {}: {}.",
            noisy.len(),
            counted(summary.points.len(), "point"),
            points.full_name(point),
            noise.said()?
        );
        Some(Notice::new(Tone::Warning, text))
    })
    .into_iter()
    .collect()
}

/// Doubts about runs, and the number of runs affected.
fn doubts(summary: &Summary) -> Vec<Notice> {
    let mut doubts: BTreeMap<&String, usize> = BTreeMap::new();
    for doubt in summary
        .points
        .iter()
        .flat_map(|point| &point.runs)
        .flat_map(|run| &run.doubts)
    {
        *doubts.entry(doubt).or_default() += 1;
    }
    let found = doubts.into_iter().take(DOUBTS_MAX).map(|(doubt, runs)| {
        Notice::new(
            Tone::Warning,
            format!("Doubtful in {}: {doubt}.", counted(runs, "run")),
        )
    });
    found.collect()
}
