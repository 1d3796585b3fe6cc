//! Compares targets point by point: each with the network alone if that was measured, otherwise with the first target.

use brunt_result::compare::in_same_rounds;
use brunt_result::interleaved::reference;
use brunt_result::statistics::{
    Better, Comparison, EffectScale, Estimate, MARGIN, Metric, PERCENT_RATIO_MAX, Verdict, compare,
};
use brunt_result::summary::{PointSummary, RunSummary, Summary};

use super::points::Points;
use crate::format::{Unit, plus_minus, three};
use crate::page::{Cell, PageTable, Section, Tone};

/// Maximum number of lines in the comparison; the page says if more are left out.
const LINES_MAX: usize = 400;

/// A figure that is compared.
struct Figure {
    name: &'static str,
    unit: Unit,
    better: Better,
    get: fn(&RunSummary) -> Option<f64>,
}

/// The figures that are compared for each point.
const FIGURES: [Figure; 2] = [
    Figure {
        name: "requests",
        unit: Unit::PerSecond,
        better: Better::Higher,
        get: |run| Some(run.requests_per_second),
    },
    Figure {
        name: "p99",
        unit: Unit::Micros,
        better: Better::Lower,
        get: |run| Some(run.response?.p99_us),
    },
];

/// A point's figure, compared with the reference's.
struct FigureLine<'a> {
    point: &'a PointSummary,
    figure: &'static Figure,
    comparison: Comparison,
}

/// `None` with a single target.
pub(super) fn section(summary: &Summary, points: &Points<'_>) -> Option<Section> {
    let targets = &summary.experiment.targets;
    let (first, network) = reference(targets)?;
    let lines = compared_with(first, points);
    if lines.is_empty() {
        return None;
    }
    let mut section = Section::new("Targets compared");
    if network {
        section.prose(format!(
            "{first} is the network without storage: ratios show what share of the network's figure \
             each target reaches."
        ));
    }
    section.prose(format!(
        "Each target compared with {first} at the same workload and axes, paired by round, which removes drift common to both. Ratios have 95 % confidence intervals. Better and worse: paired t-test with Holm's correction over all {} lines. Same: a change of {} or more is excluded. Last column: smallest change that would be detected with 80 % power.",
        lines.len(),
        Unit::Share.show(MARGIN)
    ));
    let columns = [
        "point",
        "figure",
        first,
        "this target",
        "change",
        "verdict",
        "would see",
    ];
    let rows = lines.iter().take(LINES_MAX).map(|line| row(line, points));
    section.table(PageTable::new(format!("Against {first}"), &columns, rows));
    if lines.len() > LINES_MAX {
        section.prose(format!("The first {LINES_MAX} of {} lines.", lines.len()));
    }
    Some(section)
}

/// Compares each point of the other targets with the first target's point that has the same workload and axes.
fn compared_with<'a>(first: &str, points: &Points<'a>) -> Vec<FigureLine<'a>> {
    let twin = |point: &PointSummary| {
        points.all.iter().find(|other| {
            other.target == *first && other.workload == point.workload && other.axes == point.axes
        })
    };
    let (mut metrics, mut compared) = (Vec::new(), Vec::new());
    for point in points.all.iter().filter(|point| point.target != *first) {
        let Some(base) = twin(point) else { continue };
        for figure in &FIGURES {
            let (a, b) = in_same_rounds(base, point, &figure.get);
            metrics.push(Metric {
                paired: true,
                ..Metric::new(figure.name, figure.name, figure.better, a, b)
            });
            compared.push((point, figure));
        }
    }
    let line = |((point, figure), comparison)| FigureLine {
        point,
        figure,
        comparison,
    };
    let comparisons = compare(&metrics, MARGIN);
    compared.into_iter().zip(comparisons).map(line).collect()
}

fn row(line: &FigureLine<'_>, points: &Points<'_>) -> Vec<Cell> {
    let FigureLine {
        point,
        figure,
        comparison,
    } = line;
    let [a, b] = sides(comparison, figure.unit);
    vec![
        Cell::text(points.full_name(point)),
        Cell::text(figure.name),
        a,
        b,
        change(comparison, figure.unit),
        verdict(comparison.verdict),
        detectable(comparison),
    ]
}

/// Both sides' figures, by the estimator used for the change and the verdict.
pub(super) fn sides(comparison: &Comparison, unit: Unit) -> [Cell; 2] {
    let mean = |estimate: Option<Estimate>| estimate.map(|estimate| estimate.mean);
    let shown =
        |value: Option<f64>| value.map_or(Cell::Empty, |value| Cell::number(unit.show(value)));
    match comparison.effect {
        Some(effect) => [effect.first, effect.second].map(|value| shown(Some(value))),
        None => [comparison.a, comparison.b].map(|estimate| shown(mean(estimate))),
    }
}

/// The change with its interval: in percent, or as a factor if the ratio is large; in percentage points for shares;
/// and in the stored unit for other figures, which can be zero.
pub(super) fn change(comparison: &Comparison, of: Unit) -> Cell {
    let signed = |percent: f64| {
        let sign = if percent < 0.0 { "−" } else { "+" };
        format!("{sign}{}", three((percent.abs() * 100.0).round() / 100.0))
    };
    comparison.effect.map_or(Cell::Empty, |effect| {
        let all = [effect.value, effect.low, effect.high];
        let (shown, unit) = match effect.scale {
            EffectScale::Ratio if effect.high > PERCENT_RATIO_MAX => (all.map(three), None),
            EffectScale::Ratio => (all.map(|ratio| signed((ratio - 1.0) * 100.0)), Some("%")),
            EffectScale::Difference if of == Unit::Share => {
                (all.map(|share| signed(share * 100.0)), Some("points"))
            }
            EffectScale::Difference => (all.map(signed), Some("")),
        };
        let [value, low, high] = shown;
        let value = match unit {
            Some(unit) => format!("{value} {unit}").trim_end().to_string(),
            None => format!("× {value}"),
        };
        Cell::Estimate(value, format!("{low} to {high}"))
    })
}

/// The smallest change that would have been detected.
pub(super) fn detectable(comparison: &Comparison) -> Cell {
    let share = comparison.effect.and_then(|effect| effect.detectable);
    share.map_or(Cell::Empty, |share| Cell::number(plus_minus(share)))
}

/// A verdict as a cell.
pub(crate) fn verdict(verdict: Verdict) -> Cell {
    let tone = match verdict {
        Verdict::Better | Verdict::Same => Tone::Good,
        Verdict::Worse => Tone::Bad,
        Verdict::Inconclusive => Tone::Note,
        Verdict::MachinesDiffered => Tone::Warning,
        Verdict::TooFewRuns => {
            return Cell::Verdict(Tone::Warning, "inconclusive: too few runs".into());
        }
    };
    Cell::Verdict(tone, verdict.word().into())
}
