//! The rounds of runs that should end in a steady state: the convergence plot and the measurement window of SNIA's
//! Solid State Storage Performance Test Specification, in one chart for each run.

use brunt_result::Stopped;
use brunt_result::steady::{SteadyCriterion, SteadyFigure, SteadyLine, SteadyRounds};
use brunt_result::summary::RunSummary;

use super::points::Points;
use crate::chart::{Axis, Chart, ChartKind, Scale, Series, SeriesRole, ShadedSpan};
use crate::format::Unit;
use crate::page::{Block, Cell, Choice, PageTable, Section, Tone};

/// Maximum number of charts for a point; the table has all runs.
const CHARTS_MAX: usize = 4;
/// In a chart with more rounds than this, lines have no markers.
const MARKS_MAX: usize = 60;

/// A run with its rounds.
type Judged<'a> = (&'a RunSummary, &'a SteadyRounds);

/// `None` if no run should have ended in a steady state.
pub(super) fn section(points: &Points<'_>) -> Option<Section> {
    let (mut rows, mut options) = (Vec::new(), Vec::new());
    for point in points.all {
        let judged: Vec<Judged<'_>> = point
            .runs
            .iter()
            .filter_map(|run| Some((run, run.steady.as_ref()?)))
            .collect();
        let name = points.full_name(point);
        rows.extend(judged.iter().map(|run| row(&name, run)));
        let drawn = judged.iter().filter(|(_, rounds)| rounds.count > 0);
        let charts: Vec<Chart> = drawn.take(CHARTS_MAX).map(chart).collect();
        if !charts.is_empty() {
            options.push((name, vec![Block::Charts(charts)]));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let mut section = Section::new("Steady state");
    section.prose(
        "These runs ended when the last rounds, the window, met the criteria of their workload (by default those of SNIA), or after \
         the maximum number of rounds. Percentages are shares of the mean of the window.",
    );
    section.blocks.extend(match options.len() {
        0 => None,
        1 => options.pop().and_then(|(_, mut blocks)| blocks.pop()),
        _ => Some(Block::Choice(Choice {
            label: "Point".into(),
            options,
        })),
    });
    let columns = [
        "point", "run", "ended", "rounds", "length", "mean", "window",
    ];
    section.table(PageTable::new("Rounds until the end", &columns, rows));
    Some(section)
}

/// Name and unit of the compared quantity.
fn quantity(figure: SteadyFigure) -> (&'static str, Unit) {
    match figure {
        SteadyFigure::Requests => ("requests/s", Unit::PerSecond),
        SteadyFigure::Bytes => ("transfer", Unit::BytesPerSecond),
        SteadyFigure::ServiceTime => ("mean service time", Unit::Micros),
    }
}

fn row(name: &str, (run, rounds): &Judged<'_>) -> Vec<Cell> {
    let ended = match run.stopped {
        Stopped::Steady => Cell::Verdict(Tone::Good, "steady".into()),
        Stopped::NotSteady => Cell::Verdict(Tone::Warning, "not steady".into()),
        _ => Cell::text("interrupted"),
    };
    let criteria = rounds.criteria();
    let mean = criteria.as_ref().and(SteadyLine::of(rounds.window()));
    let (_, unit) = quantity(rounds.rule.figure);
    let said: Vec<String> = criteria
        .iter()
        .flatten()
        .map(SteadyCriterion::to_string)
        .collect();
    vec![
        Cell::text(name),
        Cell::number((run.repetition + 1).to_string()),
        ended,
        Cell::number(rounds.count.to_string()),
        Cell::number(Unit::Seconds.show(rounds.round_s)),
        mean.map_or(Cell::Empty, |line| Cell::number(unit.show(line.mean))),
        Cell::text(said.join(", ")),
    ]
}

/// Draws all rounds and, over the window's rounds, their mean, the range around it and the fitted line.
fn chart((run, rounds): &Judged<'_>) -> Chart {
    let values = &rounds.values;
    let before = values.len() - rounds.window().len();
    let first = f64::from(rounds.count) - values.len() as f64 + 1.0;
    let xs: Vec<f64> = (0..values.len()).map(|at| first + at as f64).collect();
    let over_window = |of: &dyn Fn(f64) -> f64| -> Vec<Option<f64>> {
        let at = |at: usize| at.checked_sub(before).map(|at| of(at as f64));
        (0..values.len()).map(at).collect()
    };
    let (name, unit) = quantity(rounds.rule.figure);
    let measured = values.iter().copied().map(Some).collect();
    let mut series = vec![Series::new(name, SeriesRole::Nominal(0), measured)];
    if let (Some(_), Some(SteadyLine { mean, slope })) =
        (rounds.criteria(), SteadyLine::of(rounds.window()))
    {
        let middle = (rounds.rule.window as f64 - 1.0) / 2.0;
        let fitted = over_window(&|at| mean + slope * (at - middle));
        series.push(Series::new("fitted line", SeriesRole::Nominal(1), fitted));
        let level = |name: String, value: f64| {
            Series::new(name, SeriesRole::Reference(0), over_window(&|_| value))
        };
        series.push(level("mean".into(), mean));
        // SNIA draws its range of 20 % as lines 10 % above and below the mean.
        let half = rounds.rule.range.map(|range| range / 2.0);
        if let Some(share) = half.or(rounds.rule.deviation) {
            let percent = Unit::Share.show(share);
            series.push(level(format!("mean + {percent}"), mean * (1.0 + share)));
            series.push(level(format!("mean − {percent}"), mean * (1.0 - share)));
        }
    }
    let window = ShadedSpan {
        from: first + before as f64 - 0.5,
        to: f64::from(rounds.count) + 0.5,
        label: "window".into(),
    };
    let x = Axis::new("round", Unit::Count, Scale::Linear);
    let y = Axis::new(name, unit, Scale::FromZero);
    let title = format!("Run {}: {name} by round", run.repetition + 1);
    Chart {
        kind: match values.len() > MARKS_MAX {
            true => ChartKind::Curves,
            false => ChartKind::Lines,
        },
        spans: vec![window],
        stretch: Some((first - 0.5, f64::from(rounds.count) + 0.5)),
        ..Chart::lines(title, x, y, xs, series)
    }
}
