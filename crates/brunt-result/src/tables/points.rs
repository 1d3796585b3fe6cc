//! Tables `points` and `axes`: the points to which the experiment's runs belong.

use brunt_core::{Size, Span};
use brunt_lake::{Batch, Column, Table};

use crate::summary::Summary;

/// Definition of the table; `doc` describes its rows.
pub const TABLE: Table = Table {
    name: "points",
    doc: "One row for each point: a workload against a target, with a value on each axis of the \
     sweep. If several jobs run at once, each job is a point, and all of them together are another. A job's runs \
     have separate rows in the other tables; leave out points with `part_of` when adding up figures.",
    columns: &[
        Column::int("point", "Number of the point, from 0."),
        Column::text("label", "Target, workload and the value on each axis."),
        Column::text("target", "Name of the target."),
        Column::text("workload", "Name of the workload."),
        Column::int(
            "part_of",
            "For one of several jobs: the point with the combined figures of all jobs, in runs of the \
             same `repetition`; null for other points.",
        )
        .nullable(),
    ],
};

/// Definition of the table; `doc` describes its rows.
pub const AXES: Table = Table {
    name: "axes",
    doc: "One row for each point and swept axis.",
    columns: &[
        Column::int("point", "The point."),
        Column::text("axis", "Name of the axis, such as `block_size`."),
        Column::text("value", "The value as written, such as `4k`."),
        Column::float(
            "number",
            "The value as a number, in bytes or seconds if it has a unit; null if it is not a number.",
        )
        .nullable(),
    ],
};

/// Adds all points of an experiment to both tables.
pub fn append(points: &mut Batch, axes: &mut Batch, summary: &Summary) {
    for (index, point) in summary.points.iter().enumerate() {
        let index = index as u64;
        let all = |label: &String| {
            summary
                .points
                .iter()
                .position(|other| other.label == *label)
        };
        points
            .row()
            .count(index)
            .text(&point.label)
            .text(&point.target)
            .text(&point.workload)
            .count_or_null(
                point
                    .part_of
                    .as_ref()
                    .and_then(all)
                    .map(|place| place as u64),
            )
            .end();
        for (axis, value) in &point.axes {
            axes.row()
                .count(index)
                .text(axis)
                .text(value)
                .float_or_null(number(value))
                .end();
        }
    }
}

fn number(value: &str) -> Option<f64> {
    let bytes = || value.parse::<Size>().ok().map(|size| size.0 as f64);
    let seconds = || value.parse::<Span>().ok().map(|span| span.0.as_secs_f64());
    value
        .parse()
        .ok()
        .or_else(bytes)
        .or_else(seconds)
        .filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An axis can be plotted, whatever the unit of its values.
    #[test]
    fn values_are_numbers() {
        let check =
            |value: &str, expected: Option<f64>| assert_eq!(number(value), expected, "{value}");
        check("8", Some(8.0));
        check("0.25", Some(0.25));
        check("4k", Some(4096.0));
        check("10ms", Some(0.01));
        check("memory", None);
        check("nan", None);
    }
}
