//! Explains the verdict about each fault, so that readers can check it: the rate of all runs with the fault, the band
//! of the baseline and the conclusions, the rule in a sentence, and the evidence from each run.

use brunt_core::units::counted;
use brunt_result::degradation::{Answer, BACK, HOLD, OverRuns, RunVerdict, VerdictBasis};
use brunt_result::summary::{PointSummary, RunSummary, Summary};

use super::details::{Details, REQUESTS, RunDetails};
use super::points::Points;
use crate::chart::{Axis, Chart, Mark, Scale, Series, SeriesRole};
use crate::format::{Unit, three};
use crate::page::{Block, Cell, Choice, PageTable, Tone};

/// Maximum number of explained faults; summary.json has all.
const FAULTS_MAX: usize = 120;
/// Maximum number of runs in a chart; with more, their marks could not be distinguished.
const RUNS_MAX: usize = 6;

/// A choice with an option for each fault; `None` without any verdict.
pub(super) fn block(summary: &Summary, points: &Points<'_>, details: &Details) -> Option<Block> {
    let faults = summary
        .points
        .iter()
        .flat_map(|point| point.degradation.iter().map(move |fault| (point, fault)))
        .filter(|(_, fault)| fault.verdict.is_some());
    let option = |(point, fault): (&PointSummary, &OverRuns)| {
        let name = format!("{}, {}", points.full_name(point), fault.fault);
        (name, explained(point, fault, details))
    };
    let options: Vec<(String, Vec<Block>)> = faults.take(FAULTS_MAX).map(option).collect();
    (!options.is_empty()).then(|| {
        Block::Choice(Choice {
            label: "Why this verdict".into(),
            options,
        })
    })
}

/// The complete runs that were judged (those with a baseline), in order, each with its verdict.
fn judged<'a>(
    point: &'a PointSummary,
    fault: &'a OverRuns,
) -> impl Iterator<Item = (&'a RunSummary, &'a RunVerdict)> {
    let name = &fault.fault;
    let runs = point.runs.iter().filter(move |run| {
        let mut costs = run.faults.iter().filter(|of| of.name == *name);
        run.is_complete() && costs.any(|of| of.cost.is_some())
    });
    runs.zip(&fault.each)
}

fn explained(point: &PointSummary, fault: &OverRuns, details: &Details) -> Vec<Block> {
    let mut blocks: Vec<Block> = chart(point, fault, details)
        .map(Block::of)
        .into_iter()
        .collect();
    let Some(basis) = &fault.verdict else {
        return blocks;
    };
    blocks.push(Block::Prose(sentence(fault, basis)));
    let rows = judged(point, fault).map(|(run, verdict)| row(run, fault, verdict));
    let columns = [
        "run",
        "baseline",
        "band",
        "drop",
        "effect alone",
        "chance alone",
        "seen after",
        "recovered after",
    ];
    blocks.push(Block::Table(PageTable::new(
        "Evidence of each run",
        &columns,
        rows,
    )));
    blocks
}

/// The rates of the runs in one chart, with the baseline band of the first run and the conclusions about each run.
fn chart(point: &PointSummary, fault: &OverRuns, details: &Details) -> Option<Chart> {
    let shown: Vec<(&RunSummary, &RunVerdict, &RunDetails)> = judged(point, fault)
        .filter_map(|(run, verdict)| Some((run, verdict, details.runs.get(&run.order)?)))
        .filter(|(.., details)| details.line.pushed() > 1)
        .take(RUNS_MAX)
        .collect();
    let (first, ..) = shown.first()?;
    let lines = || shown.iter().map(|(.., details)| &details.line);
    let places = lines().map(|line| line.places()).max_by_key(Vec::len)?;
    let ends = lines().filter_map(|line| line.span());
    let (begin, end) = ends.fold((0.0, 0.0), |(begin, end), span| {
        (span.0.min(begin), span.1.max(end))
    });
    let of = |(index, (run, _, details)): (usize, &(&RunSummary, &RunVerdict, &RunDetails))| {
        let values = details.line.at(REQUESTS, &places);
        Series::new(run_name(run), SeriesRole::Run(index), values)
    };
    let mut series: Vec<Series> = shown.iter().enumerate().map(of).collect();
    let baseline = cost_of(first, fault)?.baseline;
    let edges = [
        (baseline.low, "lower edge of the band"),
        (baseline.high, "upper edge"),
    ];
    for (index, (edge, name)) in edges.into_iter().enumerate() {
        let values = places.iter().map(|_| Some(edge.max(0.0))).collect();
        series.push(Series::new(name, SeriesRole::Reference(index), values));
    }
    let count = series.len();
    let marks = shown.iter().enumerate();
    let marks = marks.flat_map(|(index, (run, verdict, _))| marks_of(run, fault, verdict, index));
    let x = Axis::new("time", Unit::Seconds, Scale::Linear);
    let y = Axis::new("requests per second", Unit::PerSecond, Scale::FromZero);
    let summaries: Vec<&RunSummary> = shown.iter().map(|(run, ..)| *run).collect();
    let chart = Chart::curves(
        format!("Rate and verdict: {}", fault.fault),
        x,
        y,
        places,
        series,
    );
    let chart = Chart {
        fills: vec![(count - 2, count - 1)],
        marks: marks.collect(),
        spans: super::faults::spans_of_runs(&summaries, end),
        stretch: Some((begin, end)),
        height: 200,
        ..chart
    };
    let runs = counted(shown.len(), "run");
    Some(chart.caption(format!(
        "{runs} with the time of the fault, the band of the baseline of {}, and the times at which \
         the fault was seen and the rate had recovered.",
        run_name(first)
    )))
}

fn run_name(run: &RunSummary) -> String {
    format!("run {}", run.repetition + 1)
}

fn cost_of<'a>(
    run: &'a RunSummary,
    fault: &OverRuns,
) -> Option<&'a brunt_result::degradation::Degradation> {
    let found = run.faults.iter().find(|of| of.name == fault.fault)?;
    found.cost.as_ref()
}

/// When a run's fault was detected, and when its rate recovered.
fn marks_of(run: &RunSummary, fault: &OverRuns, verdict: &RunVerdict, index: usize) -> Vec<Mark> {
    let Some(times) = run.faults.iter().find(|of| of.name == fault.fault) else {
        return Vec::new();
    };
    let mark = |from_s: f64, answer: Answer, word: &str| {
        Some(Mark {
            at: from_s + answer.seconds()?,
            label: word.to_string(),
            role: SeriesRole::Run(index),
        })
    };
    let seen = mark(times.start_s, verdict.detected, "seen");
    let back = times
        .end_s
        .filter(|_| verdict.detected.seconds().is_some())
        .and_then(|end_s| mark(end_s, verdict.recovered, "back"));
    seen.into_iter().chain(back).collect()
}

/// Describes what all runs together show, and the rule that decides whether it counts as an effect.
fn sentence(fault: &OverRuns, basis: &VerdictBasis) -> String {
    let percent = |share: f64| format!("{} %", three(share * 100.0));
    let chance = |chance: f64| match chance {
        chance if chance < 1e-6 => "less than one in a million".to_string(),
        chance => percent(chance),
    };
    let over = match basis.first_intervals {
        Some(intervals) => format!("over its first {}", counted(intervals, "interval")),
        None => "over the whole fault".to_string(),
    };
    let rule = match basis.chance < basis.limit {
        true => "so an effect is reported",
        false if fault.detection_inconclusive > 0 => {
            "so no effect is reported, but one may be hidden"
        }
        false => "so none is reported",
    };
    let mut noise = format!(
        "an interval deviates by {}, neighbouring intervals have a correlation of {}",
        percent(basis.noise),
        three(basis.neighbours)
    );
    if basis.drifts {
        noise += "; the level drifts";
    }
    if let Some(period) = basis.period_intervals {
        noise += &format!(
            "; it oscillates with a period of {} intervals",
            three(period)
        );
    }
    format!(
        "{} judged together: {over}, {} ± {} of the usual rate was missing (one standard error). The \
         chance of this much missing without an effect is {}; the limit is {}, {rule}. Noise: {noise}. Seen: the \
         end of the first interval that differs. Recovered: the likeliest change point after the fault from \
         which less than {} is missing for at least {} s. The band only shows the noise of the baseline; the \
         verdict does not depend on it.",
        counted(basis.runs, "run"),
        percent(basis.size),
        percent(basis.error),
        chance(basis.chance),
        percent(basis.limit),
        percent(BACK),
        HOLD.as_secs(),
    )
}

fn row(run: &RunSummary, fault: &OverRuns, verdict: &RunVerdict) -> Vec<Cell> {
    let rate = |value: f64| Unit::PerSecond.show(value);
    let share = |value: f64| Unit::Share.show(value);
    let answer = |answer: Answer| match answer {
        Answer::AfterS(seconds) => Cell::number(Unit::Seconds.show(seconds)),
        Answer::Never => Cell::Verdict(Tone::Warning, answer.word().into()),
        Answer::Inconclusive => Cell::Verdict(Tone::Note, answer.word().into()),
    };
    let baseline = cost_of(run, fault).map(|cost| cost.baseline);
    let alone = verdict.alone;
    vec![
        Cell::number(run.repetition.saturating_add(1).to_string()),
        baseline.map_or(Cell::Empty, |of| Cell::number(rate(of.requests_per_second))),
        baseline.map_or(Cell::Empty, |of| {
            Cell::text(format!("{} to {}", rate(of.low), rate(of.high)))
        }),
        Cell::number(share(verdict.drop)),
        alone.map_or(Cell::Empty, |of| {
            Cell::Estimate(share(of.size), format!("± {}", three(of.error * 100.0)))
        }),
        alone.map_or(Cell::Empty, |of| Cell::number(share(of.chance))),
        answer(verdict.detected),
        answer(verdict.recovered),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::details::StoredInterval;
    use brunt_core::Nanos;
    use brunt_result::degradation::IntervalFigures;
    use brunt_result::experiment::ExperimentSummary;
    use brunt_result::summary::{FORMAT, FaultSummary, effects_over_runs};
    use brunt_result::{Outcome, Stopped};

    /// An interval of 0.1 s in a run of 10 s whose rate is halved from 4 s to 6 s and recovers half a second later.
    fn interval(index: usize) -> IntervalFigures {
        IntervalFigures {
            start_s: index as f64 / 10.0,
            end_s: (index + 1) as f64 / 10.0,
            requests: if (40..65).contains(&index) { 50 } else { 100 },
            ..IntervalFigures::default()
        }
    }

    /// Two runs with a fault; the second has no timeline.
    fn result() -> (Summary, Details) {
        let outcome = Outcome {
            stopped: Stopped::Done,
            start: Nanos(0),
            end: Nanos(10_000_000_000),
            ..Outcome::interrupted()
        };
        let fault = FaultSummary {
            index: 0,
            name: "slow".into(),
            kind: "storage".into(),
            place: "memory".into(),
            what: "slower".into(),
            start_s: 4.0,
            shown_s: 4.0,
            shown_by: "a read".into(),
            end_s: Some(6.0),
            gone_s: Some(6.0),
            gone_by: "a read".into(),
            gaps: Vec::new(),
            cost: None,
            occurrence: None,
        };
        let series: Vec<IntervalFigures> = (0..100).map(interval).collect();
        let run = |order: u32| {
            let mut run = RunSummary {
                faults: vec![fault.clone()],
                ..RunSummary::of(&outcome, order, order, 1, None)
            };
            run.judge(&series);
            run
        };
        let runs = vec![run(0), run(1)];
        let point = PointSummary {
            degradation: effects_over_runs(runs.iter()),
            runs,
            ..PointSummary::default()
        };
        let mut line = RunDetails::new(200);
        for one in &series {
            line.interval(&StoredInterval {
                start_s: one.start_s,
                end_s: one.end_s,
                completed: one.requests,
                lost: 0,
                retries: 0,
                response_us: [None; 4],
            });
        }
        let details = Details {
            runs: [(0, line)].into(),
            ..Details::default()
        };
        let summary = Summary {
            format: FORMAT,
            brunt: String::new(),
            complete: true,
            trouble: None,
            experiment: ExperimentSummary::default(),
            points: vec![point],
            indexes: None,
            requirements: Vec::new(),
            interleaved: None,
            waits: Vec::new(),
            label: None,
        };
        (summary, details)
    }

    /// The page shows the series, the fault, the band, the times of detection and recovery, the rule with its
    /// numbers, and the evidence from each run; without a timeline it shows everything except the chart.
    #[test]
    fn a_verdict_is_explained() {
        let (summary, details) = result();
        let points = Points::of(&summary);
        let Some(Block::Choice(Choice { options, .. })) = block(&summary, &points, &details) else {
            panic!("a fault to choose");
        };
        let [(_, blocks)] = &options[..] else {
            panic!("one fault: {options:?}");
        };
        let [Block::Chart(chart), Block::Prose(rule), Block::Table(table)] = &blocks[..] else {
            panic!("{blocks:?}");
        };
        assert_eq!((chart.series.len(), chart.fills.len()), (3, 1));
        assert_eq!((chart.spans[0].from, chart.spans[0].to), (4.0, 6.0));
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
        let [seen, back] = &chart.marks[..] else {
            panic!("{:?}", chart.marks);
        };
        assert!(seen.label == "seen" && near(seen.at, 4.1), "{seen:?}");
        assert!(back.label == "back" && near(back.at, 6.5), "{back:?}");
        for part in [
            "2 runs judged together",
            "an effect is reported",
            "limit is 1 %",
        ] {
            assert!(rule.contains(part), "{part} in {rule}");
        }
        assert_eq!(
            (table.rows.len(), table.rows[0].len()),
            (2, table.columns.len())
        );
        let bare = block(&summary, &points, &Details::default());
        let Some(Block::Choice(Choice { options, .. })) = bare else {
            panic!("a fault to choose");
        };
        assert!(matches!(
            &options[0].1[..],
            [Block::Prose(_), Block::Table(_)]
        ));
    }
}
