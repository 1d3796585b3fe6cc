//! Tests the contents of experiment pages as data.

use brunt_report::chart::{Chart, Scale};
use brunt_report::experiment::{Details, page};
use brunt_report::html;
use brunt_report::page::{Block, Cell, Choice, Page, Section};
use brunt_result::statistics::Estimate;
use brunt_result::summary::Summary;

use crate::support;

fn section<'a>(page: &'a Page, title: &str) -> Option<&'a Section> {
    page.sections.iter().find(|section| section.title == title)
}

/// Every chart in a block, including those within choices.
fn charts_of(block: &Block) -> Vec<&Chart> {
    match block {
        Block::Chart(chart) => vec![chart],
        Block::Charts(charts) => charts.iter().collect(),
        Block::Choice(choice) => choice
            .options
            .iter()
            .flat_map(|(_, blocks)| charts(blocks))
            .collect(),
        _ => Vec::new(),
    }
}

fn charts(blocks: &[Block]) -> Vec<&Chart> {
    blocks.iter().flat_map(charts_of).collect()
}

fn without_tables(summary: &Summary) -> Page {
    page(summary, &Details::default())
}

/// A single bar has nothing to be compared with: the figures of a single point are in the summary box and not drawn
/// as bars.
#[test]
fn a_single_point_has_no_bars() {
    let mut summary = support::run("one", "", 2);
    let two = without_tables(&summary);
    let figures = section(&two, "Throughput and response time").unwrap();
    assert!(
        figures
            .blocks
            .iter()
            .any(|block| matches!(block, Block::Bars(_)))
    );
    summary.points.truncate(1);
    let one = without_tables(&summary);
    assert!(section(&one, "Throughput and response time").is_none());
    assert!(
        one.glance.cards[0].value.contains("requests/s"),
        "{:?}",
        one.glance.cards
    );
}

/// The table of all points has the percentiles that the experiment chose, in place of the default ones; the cell of a
/// percentile is empty if there are too few requests for it.
#[test]
fn chosen_percentiles_are_the_columns_of_all_points() {
    let columns = |summary: &Summary| {
        let page = without_tables(summary);
        let section = section(&page, "All points").unwrap();
        let table = section.blocks.iter().find_map(|block| match block {
            Block::Table(table) => Some((table.columns.clone(), table.rows[0].clone())),
            _ => None,
        });
        let (columns, row) = table.unwrap();
        assert_eq!(columns.len(), row.len());
        let is_percentile = |name: &str| name.starts_with('p') && name != "point";
        let cells = columns.into_iter().zip(row);
        cells
            .filter(|(name, _)| is_percentile(name))
            .map(|(name, cell)| (name, !matches!(cell, Cell::Empty)))
            .collect::<Vec<_>>()
    };
    let named = |all: &[(&str, bool)]| -> Vec<(String, bool)> {
        all.iter()
            .map(|(name, known)| (name.to_string(), *known))
            .collect()
    };
    let chosen = support::run_with("percentiles = [95, 99.9, 99.9999]", "chosen", "", 2);
    let expected = [("p95", true), ("p99.9", true), ("p99.9999", false)];
    assert_eq!(columns(&chosen), named(&expected));
    let run = &chosen.points[0].runs[0];
    let kept = serde_json::to_value(&run.response_percentiles_us).unwrap();
    let names: Vec<&String> = kept.as_object().unwrap().keys().collect();
    assert_eq!(names, ["p95", "p99.9"], "in summary.json");
    let usual = columns(&support::run("usual", "", 2));
    let names: Vec<&str> = usual.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["p99", "p50", "p99.9", "p99.99"]);
}

/// If every request has the same size, rates in requests and in bytes are the same figure, and the page shows one;
/// otherwise it shows both.
#[test]
fn one_figure_for_requests_and_bytes() {
    let drawn = |sweep: &str| {
        let page = without_tables(&support::run("sizes", sweep, 2));
        let section = section(&page, "Throughput and response time").unwrap();
        let of = |chart: &&Chart| (chart.title.clone(), chart.caption.clone());
        charts(&section.blocks).iter().map(of).collect::<Vec<_>>()
    };
    let of = |drawn: &[(String, String)], name: &str| {
        drawn
            .iter()
            .find(|(title, _)| title.starts_with(name))
            .map(|(_, caption)| caption.clone())
    };
    let depths = drawn("queue_depth = [1, 16]");
    assert_eq!(of(&depths, "Throughput against"), None, "{depths:?}");
    let said = of(&depths, "Requests against").unwrap();
    assert_eq!(said, "Every request is 4 KiB: 1 k/s are 4.10 MB/s.");
    let long = drawn("block_size = [\"64k\"]\nqueue_depth = [1, 16]");
    assert_eq!(of(&long, "Requests against"), None, "{long:?}");
    assert!(
        of(&long, "Throughput against")
            .unwrap()
            .contains("64 KiB: 1 MB/s are 15.3/s"),
        "{long:?}"
    );
    let sizes = drawn("block_size = [\"4k\", \"64k\"]");
    assert!(of(&sizes, "Throughput against").is_some() && of(&sizes, "Requests against").is_some());
}

/// On an axis of powers of two, ticks are evenly spaced, so its title says that it is logarithmic; a short axis is
/// linear.
#[test]
fn axes_say_that_they_are_logarithmic() {
    let axis = |sweep: &str| {
        let page = without_tables(&support::run("depths", sweep, 2));
        let text = html::render(&page);
        let charts = section(&page, "Throughput and response time")
            .unwrap()
            .blocks
            .clone();
        let charts = self::charts(&charts)
            .into_iter()
            .cloned()
            .collect::<Vec<_>>();
        (charts[0].x.clone(), text)
    };
    let (depths, text) = axis("queue_depth = [1, 2, 4, 8, 16]");
    assert_eq!(
        (depths.scale, depths.title().as_str()),
        (Scale::Log, "queue depth (log scale)")
    );
    assert!(
        text.contains(r#""title":"queue depth (log scale)""#)
            && text.contains("against queue depth (log scale).")
    );
    let (few, text) = axis("queue_depth = [1, 2, 4]");
    assert_eq!(
        (few.scale, few.title().as_str()),
        (Scale::Linear, "queue depth")
    );
    assert!(!text.contains("queue depth (log scale)"));
}

/// Parameters that a target reported when it was opened belong to the method, not to the headlines; a caveat belongs
/// to the headlines.
#[test]
fn negotiation_is_not_at_the_top() {
    let mut summary = support::run("notes", "", 2);
    let said = "iSCSI: digests header none, data none";
    summary
        .experiment
        .targets
        .get_mut("memory")
        .unwrap()
        .facts
        .push(said.into());
    summary.points[0]
        .notes
        .push("direct=no: reads may be served from the page cache".into());
    let page = without_tables(&summary);
    let top = format!("{:?}", page.glance);
    assert!(
        !top.contains("digests") && top.contains("served from the page cache"),
        "{top}"
    );
    let method = section(&page, "Method and environment").unwrap();
    let told = method.blocks.iter().any(|block| match block {
        Block::Facts(facts) => facts.contains(&("Target memory".into(), said.into())),
        _ => false,
    });
    assert!(told, "{method:?}");
}

/// With faults, the page starts with before, during and after. The average over healthy and broken time comes below,
/// and is labelled as such. Charts against an axis have a line for each phase.
#[test]
fn faults_lead_with_before_during_and_after() {
    let summary = support::with_phases(support::run("faults", "queue_depth = [1, 2, 4]", 2));
    let page = without_tables(&summary);
    let card = &page.glance.cards[0];
    let told: Vec<_> = card
        .parts
        .iter()
        .map(|part| (part.name.as_str(), part.value.as_str(), part.broken))
        .collect();
    let expected = [
        ("before", "1 k requests/s", false),
        ("during slow", "250 requests/s", true),
        ("after", "900 requests/s", false),
    ];
    assert_eq!(told, expected);
    assert_eq!(card.parts[1].when, "50 s to 70 s");
    assert!(card.value.is_empty(), "{card:?}");
    let average = card
        .details
        .iter()
        .find(|(word, _)| word == "whole run, faults included");
    assert!(
        average.is_some_and(|(_, figure)| figure.contains("requests/s")),
        "{card:?}"
    );
    assert_eq!(page.sections[0].title, "Faults");
    assert_eq!(page.sections[1].title, "Over time");
    let sweep = section(&page, "Throughput and response time").unwrap();
    let drawn = charts(&sweep.blocks);
    let names: Vec<&str> = drawn[0]
        .series
        .iter()
        .map(|series| series.name.as_str())
        .collect();
    assert!(
        names.contains(&"memory, before") && names.contains(&"memory, during slow"),
        "{names:?}"
    );
    let during = drawn[0]
        .series
        .iter()
        .find(|series| series.name == "memory, during slow")
        .unwrap();
    assert_eq!(during.values, [Some(250.0); 3]);
    let text = html::render(&page);
    assert!(text.contains("Every point, over the whole run, faults included"));
    assert!(
        text.contains(r#"<div class="part broken"><h4>during slow"#),
        "{text}"
    );
}

/// Without an axis, the bars of an experiment with faults show its phases; the page reports a fault shorter
/// than an interval.
#[test]
fn bars_are_of_phases() {
    let mut summary = support::with_phases(support::run("faults", "", 2));
    summary.points[0].phases[1].intervals = 0;
    let page = without_tables(&summary);
    let sweep = section(&page, "Throughput and response time").unwrap();
    let bars = sweep.blocks.iter().find_map(|block| match block {
        Block::Bars(bars) => Some(bars),
        _ => None,
    });
    let names: Vec<&str> = bars
        .unwrap()
        .bars
        .iter()
        .map(|bar| bar.name.as_str())
        .collect();
    assert_eq!(
        names[..3],
        ["memory, before", "memory, during slow", "memory, after"]
    );
    assert!(
        page.glance.cards[0].parts[1]
            .name
            .contains("shorter than an interval"),
        "{:?}",
        page.glance.cards[0]
    );
}

/// Finds a choice with this label at any depth.
fn choice<'a>(blocks: &'a [Block], label: &str) -> Option<&'a Choice> {
    blocks.iter().find_map(|block| match block {
        Block::Choice(found) if found.label == label => Some(found),
        Block::Choice(found) => found
            .options
            .iter()
            .find_map(|(_, blocks)| choice(blocks, label)),
        _ => None,
    })
}

/// All runs of a point are in one chart, each with its own values, with the band of the fault and the rate before it;
/// details of single runs are below, to choose from.
#[test]
fn runs_are_overlaid() {
    let summary = support::with_phases(support::run("overlaid", "", 4));
    let page = page(&summary, &support::details(&summary));
    let time = section(&page, "Over time").unwrap();
    let points = choice(&time.blocks, "Point").unwrap();
    assert_eq!(points.options.len(), 2);
    let drawn: Vec<&Chart> = charts(&points.options[0].1);
    let names = |chart: &Chart| {
        chart
            .series
            .iter()
            .map(|series| series.name.clone())
            .collect::<Vec<_>>()
    };
    for (chart, title) in drawn
        .iter()
        .zip(["Throughput", "99th percentile of the response time"])
    {
        assert_eq!(chart.title, title);
        assert_eq!(
            names(chart)[..4],
            ["run 1", "run 2", "run 3", "run 4"],
            "{title}"
        );
        assert!(
            chart.series[..4]
                .windows(2)
                .all(|pair| pair[0].values != pair[1].values),
            "{title}"
        );
        assert!(
            chart
                .series
                .iter()
                .all(|series| series.values.len() == chart.xs.len()),
            "{title}"
        );
        assert_eq!(
            (chart.spans[0].from, chart.spans[0].to),
            (50.0, 70.0),
            "{title}"
        );
    }
    assert!(
        drawn[0].caption.starts_with("All 4 runs. 120 intervals"),
        "{}",
        drawn[0].caption
    );
    let runs = choice(&points.options[0].1, "Run").unwrap();
    assert_eq!(runs.options.len(), 4);
    assert!(
        runs.options[0].0.ends_with("of 4, of median throughput"),
        "{}",
        runs.options[0].0
    );
    assert!(
        charts(&runs.options[0].1)
            .iter()
            .all(|chart| chart.title != "Throughput")
    );
}

/// For runs with few intervals and samples, sentences say that they are too short, instead of charts of two points.
#[test]
fn short_runs_get_sentences() {
    let summary = support::run("short", "", 2);
    let page = page(&summary, &support::short_details(&summary, 3));
    let time = section(&page, "Over time").unwrap();
    let text = format!("{time:?}");
    assert!(
        text.contains("Response time map: 3 extents of histograms recorded, too few"),
        "{text}"
    );
    assert!(
        text.contains("Hosts: 3 samples from the probes in this run, too few for a chart"),
        "{text}"
    );
    assert!(
        charts(&time.blocks)
            .iter()
            .all(|chart| chart.title != "Processors" && chart.heat.is_none())
    );
    let longer = brunt_report::experiment::page(&summary, &support::short_details(&summary, 4));
    let time = section(&longer, "Over time").unwrap();
    assert!(
        charts(&time.blocks)
            .iter()
            .any(|chart| chart.title == "Processors")
    );
    assert!(
        charts(&time.blocks)
            .iter()
            .any(|chart| chart.heat.is_some())
    );
}

/// If a line levels off, its knee is marked on every chart of the line and explained in a sentence; if it still
/// grows, the page says that there is no knee.
#[test]
fn knees_are_drawn() {
    let estimate = |mean: f64| Estimate {
        mean,
        low: None,
        high: None,
        runs: 2,
    };
    let with = |rate: fn(f64) -> f64| {
        let mut summary = support::run("knee", "queue_depth = [1, 2, 4, 8, 16, 32]", 2);
        for point in &mut summary.points {
            let depth: f64 = point.axes["queue_depth"].parse().unwrap();
            let us = depth / rate(depth) * 1e6;
            point.requests_per_second = Some(estimate(rate(depth)));
            point.bytes_per_second = Some(estimate(rate(depth) * 4096.0));
            point.response_mean_us = Some(estimate(us));
            point.service.as_mut().unwrap().mean_us = us;
        }
        without_tables(&summary)
    };
    let page = with(|depth| depth.min(5.0) / 100e-6);
    let sweep = section(&page, "Throughput and response time").unwrap();
    for chart in charts(&sweep.blocks) {
        assert_eq!(chart.marks.len(), 2, "{}", chart.title);
        assert!(
            chart.marks.iter().all(|mark| (mark.at - 5.0).abs() < 1e-6),
            "{:?}",
            chart.marks
        );
    }
    let text = html::render(&page);
    assert!(text.contains("memory: Knee at queue depth 5"));
    assert!(text.contains("outstanding), by Little's law: the highest rate, 50 k/s, times"));
    assert!(text.contains(r#""label":"knee 5"#));
    let page = with(|depth| depth / 100e-6);
    let text = html::render(&page);
    assert!(text.contains(
        "memory: No knee up to queue depth 32, because the rate is still growing there."
    ));
    assert!(!text.contains(r#""marks""#));
}

/// Runs that should end in a steady state show all their rounds, the window of the criteria, and whether they met
/// them; a run that didn't is doubtful.
#[test]
fn steady_states_show_their_rounds() {
    assert!(
        section(
            &without_tables(&support::run("none", "", 1)),
            "Steady state"
        )
        .is_none()
    );
    let summary = support::run_text(
        "name = \"steady\"\nrepetitions = 1\n[targets.memory]\nurl = \"memory:16MiB\"\n\
         [workloads.once]\ninterval = \"10ms\"\n\
         stop = { steady = { round = \"10ms\", window = 2, rounds_max = 2, slope = 10.0 } }\n\
         [workloads.never]\ninterval = \"10ms\"\n\
         stop = { steady = { round = \"10ms\", rounds_max = 6, deviation = 1e-12 } }\n",
    );
    let page = without_tables(&summary);
    let section = section(&page, "Steady state").unwrap();
    for point in &summary.points {
        let (run, steady) = (&point.runs[0], point.workload == "once");
        let (count, window) = if steady { (2, 2) } else { (6, 5) };
        let rounds = run.steady.as_ref().unwrap();
        assert_eq!((rounds.count, rounds.values.len()), (count, count as usize));
        let doubt = |doubt: &String| doubt.contains(&format!("{count} rounds of 10ms: deviation"));
        assert_eq!(run.doubts.iter().any(doubt), !steady, "{:?}", run.doubts);

        let choice = choice(&section.blocks, "Point").unwrap();
        let of_point = choice
            .options
            .iter()
            .find(|(name, _)| name.contains(&point.workload));
        let chart = charts(&of_point.unwrap().1)[0];
        assert_eq!(chart.xs.len(), count as usize);
        let [measured, others @ ..] = &chart.series[..] else {
            panic!("{chart:?}")
        };
        let all: Vec<_> = rounds.values.iter().copied().map(Some).collect();
        assert_eq!(measured.values, all);
        for other in others {
            assert_eq!(other.values.iter().flatten().count(), window, "{other:?}");
        }
        assert_eq!(others.len(), if steady { 2 } else { 4 }); // lines, mean, and the deviation around it
        let (from, to) = (chart.spans[0].from, chart.spans[0].to);
        assert_eq!((to - from, to), (window as f64, f64::from(count) + 0.5));
    }
    let table = section.blocks.iter().find_map(|block| match block {
        Block::Table(table) => Some(&table.rows),
        _ => None,
    });
    let ended = |row: &Vec<Cell>| matches!(&row[2], Cell::Verdict(_, ended) if ended == "steady");
    let rows = table.unwrap();
    assert_eq!(
        (rows.len(), rows.iter().filter(|row| ended(row)).count()),
        (2, 1)
    );
}
