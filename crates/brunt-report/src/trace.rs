//! The page of a block trace, written by `brunt trace info --html`: its requests, their times, sizes and addresses.

use brunt_core::units::counted;
use brunt_trace::{TraceInfo, TraceOp};

use crate::chart::{Axis, Chart, Scale, Series, SeriesRole};
use crate::format::{Unit, count, plus_minus};
use crate::page::{Bar, Bars, Block, Card, Cell, Glance, Notice, Page, PageTable, Section, Tone};

/// The page of a trace called `name`, written by this version of the program.
pub fn page(info: &TraceInfo, name: &str, version: &str) -> Page {
    Page {
        kind: "Block trace".into(),
        title: name.into(),
        description: String::new(),
        made_by: format!("Brunt {version}"),
        refresh_s: None,
        glance: glance(info),
        sections: vec![
            over_time(info),
            sizes(info),
            working_set(info),
            reuse(info),
            hot(info),
            answers(info),
        ],
    }
}

fn size_of(bytes: u64) -> String {
    Unit::Bytes.show(bytes as f64)
}

fn glance(info: &TraceInfo) -> Glance {
    let l = &info.ledger;
    let mut notices = Vec::new();
    let mut warn = |text: String| notices.push(Notice::new(Tone::Warning, text));
    if let Some(first) = l.damaged_first {
        warn(match l.damaged {
            1 => format!("1 row could not be read and was skipped: row {first}."),
            damaged => {
                let damaged = count(damaged as f64);
                format!(
                    "{damaged} rows could not be read and were skipped; the first is row {first}."
                )
            }
        });
    }
    if l.out_of_order > 0 {
        warn(format!(
            "{} than the previous one. Burstiness, working sets and depth are left out.",
            match l.out_of_order {
                1 => "1 request is earlier".to_string(),
                requests => format!("{} requests are earlier", count(requests as f64)),
            }
        ));
    }
    if !info.format_note.is_empty() {
        notices.push(Notice::new(
            Tone::Note,
            format!("Format {}: {}.", info.format, info.format_note),
        ));
    }
    if notices.is_empty() {
        notices.push(Notice::new(
            Tone::Good,
            "All rows were read, in the order of their times.",
        ));
    }
    Glance {
        facts: facts(info),
        cards: cards(info),
        notices,
    }
}

fn facts(info: &TraceInfo) -> Vec<(String, String)> {
    vec![
        (
            "Trace".into(),
            format!(
                "{} in {}, format {}",
                counted(info.ledger.requests as usize, "request"),
                Unit::Seconds.show(info.span_s),
                info.format
            ),
        ),
        (
            "Devices".into(),
            format!(
                "{}, up to {}",
                count(info.devices as f64),
                size_of(info.footprint.end_bytes)
            ),
        ),
        (
            "Digest".into(),
            format!("{} (times {})", info.digest.requests, info.digest.times),
        ),
    ]
}

fn cards(info: &TraceInfo) -> Vec<Card> {
    let share = |op: TraceOp| {
        let counted = info.ops.get(&op).copied().unwrap_or_default();
        let all = info.ledger.requests;
        let share = (all > 0).then(|| counted.requests as f64 / all as f64);
        let bytes = size_of(counted.bytes);
        format!("{}, {bytes}", Unit::Share.show_known(share))
    };
    let known = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.1}"));
    let rate = info
        .rate
        .mean_per_s
        .map_or("-".to_string(), |rate| Unit::PerSecond.show(rate));
    let others = [TraceOp::Flush, TraceOp::Unmap, TraceOp::Other]
        .into_iter()
        .filter(|op| info.ops.contains_key(op))
        .map(|op| (op.name().to_string(), share(op)));
    let reuse = info.reuse.as_ref();
    vec![
        Card {
            name: "Requests".into(),
            value: rate,
            uncertainty: String::new(),
            details: vec![
                (
                    "maximum per second".into(),
                    count(info.rate.peak_per_s as f64),
                ),
                ("burstiness".into(), known(info.rate.dispersion)),
                (
                    "variation of times between".into(),
                    known(info.rate.interarrival_variation),
                ),
            ],
            parts: Vec::new(),
        },
        Card {
            name: "Reads".into(),
            value: share(TraceOp::Read),
            uncertainty: String::new(),
            details: [("write".to_string(), share(TraceOp::Write))]
                .into_iter()
                .chain(others)
                .collect(),
            parts: Vec::new(),
        },
        Card {
            name: "Footprint".into(),
            value: size_of(info.footprint.bytes),
            uncertainty: plus_minus(info.footprint.standard_error),
            details: vec![
                (
                    "sequential".into(),
                    Unit::Share.show_known(info.sequential_share),
                ),
                (
                    "requests of a run, mean".into(),
                    info.runs
                        .mean_requests
                        .map_or("–".into(), |mean| format!("{mean:.2}")),
                ),
                (
                    "first accesses".into(),
                    reuse.map_or("-".into(), |reuse| Unit::Share.show(reuse.first_use_share)),
                ),
            ],
            parts: Vec::new(),
        },
    ]
}

fn over_time(info: &TraceInfo) -> Section {
    let mut section = Section::new("Over time");
    let Some(first) = info.over_time.first().filter(|_| info.over_time.len() > 1) else {
        section
            .blocks
            .push(Block::Missing("All requests have the same time.".into()));
        return section;
    };
    let xs: Vec<f64> = info
        .over_time
        .iter()
        .map(|stretch| stretch.from_s)
        .collect();
    let time = || Axis::new("time", Unit::Seconds, Scale::Linear);
    let curve = |name: &str, role: usize, get: fn(&brunt_trace::Stretch) -> u64| {
        let values = info
            .over_time
            .iter()
            .map(|stretch| Some(get(stretch) as f64 / stretch.for_s));
        Series::new(name, SeriesRole::Nominal(role), values.collect())
    };
    let arrivals = vec![curve("requests", 0, |stretch| stretch.requests)];
    let y = Axis::new("requests per second", Unit::PerSecond, Scale::FromZero);
    let chart = Chart::curves("Arrivals", time(), y, xs.clone(), arrivals).on("trace", &[]);
    section.chart(chart.caption(format!(
        "Means over intervals of {}.",
        Unit::Seconds.show(first.for_s)
    )));
    let bytes = vec![
        curve("read", 0, |stretch| stretch.read_bytes),
        curve("written", 1, |stretch| stretch.write_bytes),
    ];
    let y = Axis::new("bytes per second", Unit::BytesPerSecond, Scale::FromZero);
    section.chart(Chart::curves("Bytes", time(), y, xs, bytes).on("trace", &[]));
    if !info.rate.burstiness.is_empty() {
        let rows = info.rate.burstiness.iter().map(|burst| {
            vec![
                Cell::text(Unit::Seconds.show(burst.window_s)),
                Cell::number(format!("{:.2}", burst.dispersion)),
            ]
        });
        section.table(PageTable::new(
            "Burstiness",
            &["windows of", "variance over mean"],
            rows,
        ));
        section.prose(
            "Variance over mean of the number of requests per window: 1 for Poisson arrivals.",
        );
    }
    section
}

fn sizes(info: &TraceInfo) -> Section {
    let mut section = Section::new("Sizes");
    let all: u64 = info
        .size_classes
        .iter()
        .map(|class| class.reads + class.writes)
        .sum();
    if all == 0 {
        section.blocks.push(Block::Missing(
            "The trace has no reads and no writes.".into(),
        ));
        return section;
    }
    let bars = info.size_classes.iter().map(|class| {
        let requests = class.reads + class.writes;
        let from = size_of(class.from_bytes);
        Bar {
            name: if class.from_bytes == 0 {
                from
            } else {
                format!("{from} to below {}", size_of(class.from_bytes * 2))
            },
            parts: vec![class.reads as f64, class.writes as f64],
            interval: None,
            shown: count(requests as f64),
            uncertainty: Unit::Share.show(requests as f64 / all as f64),
        }
    });
    section.blocks.push(Block::Bars(Bars {
        title: "Reads and writes by size".into(),
        caption: String::new(),
        bars: bars.collect(),
        parts: vec!["reads".into(), "writes".into()],
    }));
    let rows = info.sizes.iter().map(|size| {
        vec![
            Cell::text(size_of(size.bytes)),
            Cell::number(count(size.requests as f64)),
            Cell::number(Unit::Share.show(size.requests as f64 / all as f64)),
        ]
    });
    section.table(PageTable::new(
        "Most frequent sizes",
        &["size", "requests", "share"],
        rows,
    ));
    section
}

fn working_set(info: &TraceInfo) -> Section {
    let mut section = Section::new("Working set");
    let sets = &info.working_sets;
    if sets.len() < 2 {
        let why = "Needs a trace of at least two seconds whose times do not run backwards.";
        section.blocks.push(Block::Missing(why.into()));
        return section;
    }
    let xs = sets.iter().map(|set| set.from_s).collect();
    let values = sets.iter().map(|set| Some(set.bytes as f64)).collect();
    let chart = Chart::curves(
        "Working set",
        Axis::new("time", Unit::Seconds, Scale::Linear),
        Axis::new("different data", Unit::Bytes, Scale::FromZero),
        xs,
        vec![Series::new("working set", SeriesRole::Nominal(0), values)],
    );
    let caption = format!(
        "Distinct 4 KiB blocks in each {}, ± {:.1} %.",
        Unit::Seconds.show(sets[0].for_s),
        info.footprint.standard_error * 100.0
    );
    section.chart(chart.on("trace", &[]).caption(caption));
    section
}

fn reuse(info: &TraceInfo) -> Section {
    let mut section = Section::new("Reuse");
    let Some(reuse) = info.reuse.as_ref().filter(|reuse| !reuse.caches.is_empty()) else {
        section
            .blocks
            .push(Block::Missing("No block is accessed again.".into()));
        return section;
    };
    let xs: Vec<f64> = reuse
        .caches
        .iter()
        .map(|cache| cache.bytes as f64)
        .collect();
    let values = |each: &dyn Fn(f64) -> f64| {
        reuse
            .caches
            .iter()
            .map(|cache| Some(each(cache.share).clamp(0.0, 1.0)))
            .collect::<Vec<_>>()
    };
    let error = 1.96 * reuse.standard_error;
    let hits = Series {
        low: if error > 0.0 {
            values(&|share| share - error)
        } else {
            Vec::new()
        },
        high: if error > 0.0 {
            values(&|share| share + error)
        } else {
            Vec::new()
        },
        ..Series::new("LRU cache", SeriesRole::Nominal(0), values(&|share| share))
    };
    let chart = Chart::lines(
        "Accesses that a cache would serve",
        Axis::new("cache", Unit::Bytes, Scale::Log),
        Axis::new("uses answered", Unit::Share, Scale::FromZero),
        xs,
        vec![hits],
    );
    let followed = if reuse.sampled_share < 1.0 {
        format!(
            "Based on {} blocks ({} of all), chosen by a hash (SHARDS); standard error of shares at most {}.",
            count(reuse.sampled_blocks as f64),
            Unit::Share.show(reuse.sampled_share),
            Unit::Share.show(reuse.standard_error)
        )
    } else {
        "From all blocks.".to_string()
    };
    section.chart(chart.caption(format!("The distribution of reuse distances. {followed}")));
    let mut before = 0.0;
    let rows = reuse.caches.iter().map(|cache| {
        let share = cache.share - before;
        before = cache.share;
        vec![
            Cell::text(format!("up to {}", size_of(cache.bytes))),
            Cell::number(Unit::Share.show(share)),
            Cell::number(Unit::Share.show(cache.share)),
        ]
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    let columns = ["distance", "share of accesses", "so far"];
    section.table(PageTable::new("Reuse distances", &columns, rows).folded());
    section
}

fn hot(info: &TraceInfo) -> Section {
    let mut section = Section::new("Hot extents");
    let moved: u64 = info
        .size_classes
        .iter()
        .map(|class| class.reads + class.writes)
        .sum();
    let bars: Vec<Bar> = info
        .hot_extents
        .iter()
        .map(|hot| Bar {
            name: format!(
                "device {}, from {}",
                hot.device_name,
                size_of(hot.offset_bytes)
            ),
            parts: vec![hot.requests as f64],
            interval: (hot.error > 0)
                .then(|| (hot.requests as f64, (hot.requests + hot.error) as f64)),
            shown: count(hot.requests as f64),
            uncertainty: Unit::Share.show(hot.requests as f64 / moved.max(1) as f64),
        })
        .collect();
    section.blocks.push(if bars.is_empty() {
        Block::Missing("No extent stands out.".into())
    } else {
        Block::Bars(Bars {
            title: "Extents of 1 MiB".into(),
            caption: "Minimum number of requests that start there; whiskers show the maximum."
                .into(),
            bars,
            parts: Vec::new(),
        })
    });
    section
}

fn answers(info: &TraceInfo) -> Section {
    let mut section = Section::new("Response times and depth");
    if info.response.is_none() {
        section
            .blocks
            .push(Block::Missing("The trace has no response times.".into()));
    }
    let us = |us: f64| Unit::Micros.show(us);
    let mut facts = Vec::new();
    if let Some(response) = &info.response {
        facts.push((
            "Response".to_string(),
            format!(
                "mean {}, median {}, p99 {}, slowest {}",
                us(response.mean_us),
                us(response.p50_us),
                us(response.p99_us),
                us(response.max_us)
            ),
        ));
    }
    if let Some(depth) = &info.depth {
        facts.push((
            "Requests in flight".to_string(),
            format!(
                "mean {:.1}, median {}, p99 {}, max {}",
                depth.mean, depth.p50, depth.p99, depth.max
            ),
        ));
    }
    if !facts.is_empty() {
        section.blocks.push(Block::Facts(facts));
    }
    section
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use brunt_trace::{Summarizer, TraceReader, format_named};

    use super::*;

    fn rendered(text: &str, format: &str) -> String {
        let input = Box::new(Cursor::new(text.as_bytes().to_vec()));
        let mut reader =
            TraceReader::from_reader("x".into(), input, format_named(format), false).unwrap();
        let mut summarizer = Summarizer::default();
        while reader.next_requests().unwrap().is_some() {
            summarizer.add(reader.requests());
        }
        let info = summarizer.finish(&reader);
        crate::html::render(&page(&info, "<a trace>", "0"))
    }

    /// The page has all the figures that researchers ask for first, and shows a name as plain text.
    #[test]
    fn a_trace_has_its_figures_on_the_page() {
        let mut text = String::new();
        for row in 0..400u64 {
            let (second, block) = (row / 20, row % 50 * 8);
            text += &format!(
                "0,{block},4096,{},{second}.{}\n",
                if row % 3 == 0 { 'w' } else { 'R' },
                row % 10
            );
        }
        text += "nonsense\n";
        let html = rendered(&text, "spc");
        for shown in [
            "Arrivals",
            "Reads and writes by size",
            "Working set",
            "Accesses that a cache would serve",
            "Extents of 1 MiB",
            "4 KiB to below 8 KiB",
            "&lt;a trace&gt;",
            "1 row could not be read and was skipped: row 401.",
            "The trace has no response times.",
        ] {
            assert!(html.contains(shown), "{shown}");
        }
        assert!(!html.contains("<a trace>"));
    }

    #[test]
    fn missing_data_is_reported() {
        let html = rendered("0,0,0,R,1.0\n", "spc");
        for shown in [
            "All requests have the same time.",
            "No block is accessed again.",
            "Needs a trace of at least two seconds",
        ] {
            assert!(html.contains(shown), "{shown}");
        }
    }
}
