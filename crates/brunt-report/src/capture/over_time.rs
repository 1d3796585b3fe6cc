//! Rates over time.

use brunt_result::capture::Report;

use crate::chart::{Axis, Chart, Scale, Series, SeriesRole};
use crate::format::{Unit, count};
use crate::page::{Block, Section};
use crate::thin::Thin;

/// Maximum number of points on a timeline.
const PLACES: usize = 400;
/// Figures of the timeline, in the order in which they are pushed.
const OPERATIONS: usize = 0;
const READ: usize = 1;
const WRITTEN: usize = 2;
const WIRE: usize = 3;
const ERRORS: usize = 4;

/// Rates of the whole capture, thinned out for drawing.
struct Timeline {
    line: Thin<5>,
    /// Length of a full interval.
    full_s: f64,
}

impl Timeline {
    fn of(report: &Report) -> Timeline {
        let widths = report.intervals.iter().map(|i| i.width_s);
        let full_s = widths.fold(0.0, f64::max);
        let mut line = Thin::new(PLACES);
        for i in &report.intervals {
            let rate = |amount: u64| Some(amount as f64 / i.width_s.max(1e-9));
            let figures = [
                rate(i.operations),
                rate(i.read_bytes),
                rate(i.write_bytes),
                rate(i.wire_bytes),
                rate(i.errors),
            ];
            // Over a very short last interval, a rate means nothing.
            if i.width_s > full_s * 0.1 {
                line.push(i.from_s, i.from_s + i.width_s, figures);
            }
        }
        Timeline { line, full_s }
    }

    /// A chart of some figures, each with its index, name and colour number.
    fn chart(&self, title: &str, y: Axis, figures: &[(usize, &str, usize)], height: u32) -> Chart {
        let series = figures.iter().map(|(figure, name, role)| {
            let values = self.line.values(*figure);
            Series::new(*name, SeriesRole::Nominal(*role), values)
        });
        let x = Axis::new("time", Unit::Seconds, Scale::Linear);
        let chart = Chart::curves(title, x, y, self.line.places(), series.collect());
        Chart {
            height,
            stretch: self.line.span(),
            ..chart.on("capture", &[])
        }
    }

    /// The time that the timeline covers, and whether it is thinned.
    fn caption(&self) -> String {
        let each = match self.line.each() {
            0 | 1 => String::new(),
            each => format!(" Drawn as the minimum and maximum of every {each} intervals."),
        };
        format!(
            "{} intervals of {}.{each}",
            count(self.line.pushed() as f64),
            Unit::Micros.show(self.full_s * 1e6)
        )
    }
}

pub(super) fn over_time(report: &Report) -> Section {
    let mut section = Section::new("Over time");
    let timeline = Timeline::of(report);
    if timeline.line.pushed() < 2 {
        section.blocks.push(Block::Missing(
            "The capture is too short for a timeline.".into(),
        ));
        return section;
    }
    let axis = |label, unit| Axis::new(label, unit, Scale::FromZero);
    let operations = timeline.chart(
        "Operations",
        axis("operations per second", Unit::PerSecond),
        &[(OPERATIONS, "operations", 0)],
        200,
    );
    section.chart(operations.caption(timeline.caption()));
    section.chart(timeline.chart(
        "Bytes",
        axis("bytes per second", Unit::BytesPerSecond),
        &[
            (WIRE, "on the wire", 5),
            (READ, "data read", 0),
            (WRITTEN, "data written", 1),
        ],
        220,
    ));
    if !timeline.line.is_zero(ERRORS) {
        section.chart(timeline.chart(
            "Errors",
            axis("error replies per second", Unit::PerSecond),
            &[(ERRORS, "errors", 4)],
            160,
        ));
    }
    section
}
