//! A sweep of two axes as two matrices, one of rates and one of p99: rows are values of the first axis, columns
//! values of the second.

use brunt_result::summary::{PointSummary, Summary};

use super::cells;

/// The matrices of each pair of target and workload that has exactly two axes with several values.
pub(super) fn lines(summary: &Summary) -> Vec<String> {
    let mut groups: Vec<(&str, &str)> = Vec::new();
    for point in &summary.points {
        let group = (point.target.as_str(), point.workload.as_str());
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let of = |(target, workload): (&str, &str)| {
        let points = summary.points.iter();
        let points: Vec<&PointSummary> = points
            .filter(|point| point.target == target && point.workload == workload)
            .collect();
        matrices(&format!("{target} {workload}"), &points)
    };
    groups.into_iter().flat_map(of).collect()
}

fn matrices(name: &str, points: &[&PointSummary]) -> Vec<String> {
    let Some([(rows_axis, rows), (columns_axis, columns)]) = two_axes(points) else {
        return Vec::new();
    };
    let find = |row: &String, column: &String| {
        points.iter().find(|point| {
            point.axes.get(&rows_axis) == Some(row) && point.axes.get(&columns_axis) == Some(column)
        })
    };
    let rate = |point: &PointSummary| Some(cells::count(point.requests_per_second?.mean));
    let p99 = |point: &PointSummary| Some(cells::time(point.response_p99_us?.mean));
    type Figure<'a> = &'a dyn Fn(&PointSummary) -> Option<String>;
    let figures: [(&str, Figure<'_>); 2] = [("requests/s", &rate), ("p99", &p99)];
    let mut lines = Vec::new();
    for (what, figure) in figures {
        lines.push(format!("{name}: {what} by {rows_axis} and {columns_axis}"));
        let line = |first: &str, rest: Vec<String>| {
            let rest: String = rest.iter().map(|cell| format!(" {cell:>10}")).collect();
            format!("  {first:<14}{rest}")
        };
        lines.push(line("", columns.clone()));
        for row in &rows {
            let cell = |column: &String| find(row, column).and_then(|point| figure(point));
            let cells = columns
                .iter()
                .map(|column| cell(column).unwrap_or("-".into()));
            lines.push(line(row, cells.collect()));
        }
    }
    lines
}

/// The names of the two axes that vary, each with its values in the order of the points; `None` unless exactly two
/// vary.
fn two_axes(points: &[&PointSummary]) -> Option<[(String, Vec<String>); 2]> {
    let mut axes: Vec<(String, Vec<String>)> = Vec::new();
    for point in points {
        for (axis, value) in &point.axes {
            match axes.iter_mut().find(|(name, _)| name == axis) {
                Some((_, values)) if !values.contains(value) => values.push(value.clone()),
                Some(_) => {}
                None => axes.push((axis.clone(), vec![value.clone()])),
            }
        }
    }
    axes.retain(|(_, values)| values.len() > 1);
    axes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::statistics::Estimate;

    #[test]
    fn two_axes_make_a_matrix_and_other_numbers_do_not() {
        let point = |size: &str, depth: &str, rate: f64| PointSummary {
            target: "disk".into(),
            workload: "w".into(),
            axes: [
                ("block_size".into(), size.into()),
                ("queue_depth".into(), depth.into()),
            ]
            .into(),
            requests_per_second: Some(Estimate {
                mean: rate,
                low: None,
                high: None,
                runs: 1,
            }),
            ..PointSummary::default()
        };
        let points = [
            point("4k", "1", 10.0),
            point("4k", "16", 20.0),
            point("64k", "1", 30.0),
            point("64k", "16", 40.0),
        ];
        let all: Vec<&PointSummary> = points.iter().collect();
        let lines = matrices("disk w", &all);
        assert_eq!(lines[0], "disk w: requests/s by block_size and queue_depth");
        let words = |line: &String| {
            line.split_whitespace()
                .map(String::from)
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&lines[1]), ["1", "16"]);
        assert_eq!(words(&lines[3]), ["64k", "30", "40"]);
        assert!(lines[4].contains("p99"));
        assert!(matrices("disk w", &all[..2]).is_empty());
    }
}
