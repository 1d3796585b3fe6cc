//! Arranges the points of an experiment for charts: which axis is the x axis, which axes distinguish lines, and the
//! axis values as numbers.

use std::collections::BTreeSet;

use brunt_core::units;
use brunt_result::experiment::ArrivalKind;
use brunt_result::percentile::Percentile;
use brunt_result::statistics::Estimate;
use brunt_result::summary::{PointSummary, Summary};

use crate::chart::{Axis, Scale, Series};
use crate::format::{Unit, plus_minus};

/// Axes suited as the x axis, in order of preference.
const ACROSS: &[&str] = &[
    "block_size",
    "queue_depth",
    "rate",
    "workers",
    "read",
    "sequential",
    "clients",
    "link_delay",
    "link_loss",
];

/// Name and unit of an axis, by its key.
fn known(key: &str) -> (&str, Unit) {
    match key {
        "block_size" => ("block size", Unit::Bytes),
        "queue_depth" => ("queue depth", Unit::Count),
        "workers" => ("workers", Unit::Count),
        "read" => ("share of reads", Unit::Share),
        "sequential" => ("share of sequential requests", Unit::Share),
        "rate" => ("requested rate", Unit::PerSecond),
        "clients" => ("clients at once", Unit::Count),
        "link_delay" => ("one-way link delay", Unit::Micros),
        "link_loss" => ("packet loss", Unit::Share),
        _ => (key, Unit::Count),
    }
}

/// A value of an axis as a number with its unit; `None` for words.
fn number(key: &str, value: &str) -> Option<(f64, Unit)> {
    let (_, unit) = known(key);
    if unit == Unit::Bytes {
        return Some((units::parse_size(value).ok()? as f64, unit));
    }
    if unit == Unit::Micros {
        // "0" has no unit by which to recognize its kind.
        return Some((units::parse_duration(value).ok()?.as_secs_f64() * 1e6, unit));
    }
    if let Ok(number) = value.parse::<f64>() {
        return number.is_finite().then_some((number, unit));
    }
    // The values of any other axis are times or sizes: "20ms", "64KiB".
    if let Ok(time) = units::parse_duration(value) {
        return Some((time.as_secs_f64() * 1e6, Unit::Micros));
    }
    units::parse_size(value)
        .ok()
        .map(|bytes| (bytes as f64, Unit::Bytes))
}

/// The points, and the x axis of their charts.
pub(super) struct Points<'a> {
    /// All points, in the order of the summary.
    pub all: &'a [PointSummary],
    /// The percentiles that the experiment chose to show; empty for the default ones.
    pub percentiles: &'a [Percentile],
    /// Key and values of the x axis.
    pub across: Option<Across>,
    /// Other dimensions with more than one value: these distinguish points.
    pub others: Vec<String>,
    /// Closed-loop workloads: they send a request when another one completes.
    closed: BTreeSet<&'a str>,
}

/// An x axis.
pub(super) struct Across {
    /// Its key in the experiment.
    pub key: String,
    /// Display name.
    pub label: String,
    /// The unit of its values.
    pub unit: Unit,
    /// Values, ascending.
    pub values: Vec<f64>,
}

impl Across {
    /// Whether its values are numbers of outstanding requests, or of workers that issue them.
    pub fn is_load(&self) -> bool {
        matches!(self.key.as_str(), "queue_depth" | "workers")
    }

    /// The axis as a chart draws it.
    pub fn axis(&self) -> Axis {
        let (first, last) = (self.values[0], self.values[self.values.len() - 1]);
        // Over less than a factor of five, a linear scale is easier to read.
        let scale = if first > 0.0 && last / first >= 5.0 {
            Scale::Log
        } else {
            Scale::Linear
        };
        Axis {
            ticks: self.values.clone(),
            ..Axis::new(&self.label, self.unit, scale)
        }
    }

    /// Index of a point's value on the axis.
    fn place(&self, point: &PointSummary) -> Option<usize> {
        let (value, _) = number(&self.key, point.axes.get(&self.key)?)?;
        self.values.iter().position(|known| *known == value)
    }
}

/// Points that form one line.
pub(super) struct Line<'a> {
    /// What distinguishes the line from others; empty if there is only one.
    pub name: String,
    /// Points by their index on the axis.
    pub points: Vec<Option<&'a PointSummary>>,
}

impl<'a> Points<'a> {
    pub fn of(summary: &'a Summary) -> Points<'a> {
        let all = &summary.points[..];
        let distinct = |of: &dyn Fn(&PointSummary) -> String| {
            let mut values: Vec<String> = all.iter().map(of).collect();
            values.sort();
            values.dedup();
            values.len()
        };
        let mut keys: Vec<String> = all
            .iter()
            .flat_map(|point| point.axes.keys().cloned())
            .collect();
        keys.sort();
        keys.dedup();
        let rank = |key: &String| {
            ACROSS
                .iter()
                .position(|known| known == key)
                .unwrap_or(ACROSS.len())
        };
        keys.sort_by_key(|key| rank(key));
        let across = keys.iter().find_map(|key| {
            let numbers: Option<Vec<(f64, Unit)>> = all
                .iter()
                .map(|point| number(key, point.axes.get(key)?))
                .collect();
            let numbers = numbers?;
            let unit = numbers.first()?.1;
            let mut values: Vec<f64> = numbers.iter().map(|(value, _)| *value).collect();
            values.sort_by(f64::total_cmp);
            values.dedup();
            let label = known(key).0.to_string();
            (values.len() > 1 && numbers.iter().all(|(_, other)| *other == unit)).then(|| Across {
                key: key.clone(),
                label,
                unit,
                values,
            })
        });
        let mut others = Vec::new();
        if distinct(&|point| point.target.clone()) > 1 {
            others.push("target".to_string());
        }
        if distinct(&|point| point.workload.clone()) > 1 {
            others.push("workload".to_string());
        }
        for key in keys {
            let is_across = across.as_ref().is_some_and(|across| across.key == key);
            if !is_across
                && distinct(&|point| point.axes.get(&key).cloned().unwrap_or_default()) > 1
            {
                others.push(key);
            }
        }
        let closed = summary.experiment.workloads.iter();
        let closed = closed.filter(|(_, workload)| workload.arrival == ArrivalKind::Closed);
        Points {
            percentiles: &summary.experiment.percentiles,
            all,
            across,
            others,
            closed: closed.map(|(name, _)| name.as_str()).collect(),
        }
    }

    /// Whether a point's load is a closed loop.
    pub fn is_closed(&self, point: &PointSummary) -> bool {
        self.closed.contains(point.workload.as_str())
    }

    /// A point's value of a dimension.
    fn value<'p>(point: &'p PointSummary, dimension: &str) -> &'p str {
        match dimension {
            "target" => &point.target,
            "workload" => &point.workload,
            key => point.axes.get(key).map_or("", String::as_str),
        }
    }

    /// What distinguishes a point from the others, apart from the x axis.
    pub fn name(&self, point: &PointSummary) -> String {
        let words = self.others.iter().map(|dimension| {
            let value = Self::value(point, dimension);
            match dimension.as_str() {
                "target" | "workload" => value.to_string(),
                key => format!("{} {}", short(key), shown(key, value)),
            }
        });
        words.collect::<Vec<String>>().join(", ")
    }

    /// What distinguishes a point from the others, including the x axis.
    pub fn full_name(&self, point: &PointSummary) -> String {
        let name = self.name(point);
        let place = self.place_of(point);
        match (name.is_empty(), place) {
            (false, Some(place)) => format!("{name}, {place}"),
            (true, Some(place)) => place,
            (false, None) => name,
            (true, None) => format!("{} {}", point.target, point.workload),
        }
    }

    /// A point's value on the x axis: "block size 4 KiB".
    pub fn place_of(&self, point: &PointSummary) -> Option<String> {
        let across = self.across.as_ref()?;
        let value = point.axes.get(&across.key)?;
        Some(format!(
            "{} {}",
            short(&across.key),
            shown(&across.key, value)
        ))
    }

    /// Bytes per request, if all points have the same: then rates in requests and in bytes express the same fact.
    pub fn bytes_per_request(&self) -> Option<f64> {
        let sizes = self.all.iter().filter_map(|point| {
            let (bytes, requests) = (
                point.bytes_per_second?.mean,
                point.requests_per_second?.mean,
            );
            (requests > 0.0).then_some(bytes / requests)
        });
        let sizes: Vec<f64> = sizes.collect();
        // If all requests have one size and are transferred in full, bytes divided by requests give this size, except
        // for rounding.
        let first = sizes.first()?.round();
        (first > 0.0 && sizes.iter().all(|size| (size / first - 1.0).abs() < 1e-6)).then_some(first)
    }

    /// The lines along the x axis, in the order of the experiment.
    pub fn lines(&self) -> Vec<Line<'a>> {
        let Some(across) = &self.across else {
            return Vec::new();
        };
        let mut lines: Vec<Line<'a>> = Vec::new();
        for point in self.all {
            let Some(place) = across.place(point) else {
                continue;
            };
            let name = self.name(point);
            let index = lines
                .iter()
                .position(|line| line.name == name)
                .unwrap_or_else(|| {
                    lines.push(Line {
                        name,
                        points: vec![None; across.values.len()],
                    });
                    lines.len() - 1
                });
            lines[index].points[place] = Some(point);
        }
        lines
    }
}

impl Line<'_> {
    /// The estimates for the line's points as a series.
    pub fn series(
        &self,
        role: crate::chart::SeriesRole,
        get: impl Fn(&PointSummary) -> Option<Estimate>,
        factor: f64,
    ) -> Series {
        let estimates: Vec<Option<Estimate>> = self
            .points
            .iter()
            .map(|point| point.and_then(&get))
            .collect();
        let of = |part: &dyn Fn(&Estimate) -> Option<f64>| {
            let values = estimates
                .iter()
                .map(|estimate| estimate.as_ref().and_then(part));
            values
                .map(|value| value.map(|value| value * factor))
                .collect::<Vec<Option<f64>>>()
        };
        let name = if self.name.is_empty() {
            "all".to_string()
        } else {
            self.name.clone()
        };
        let (low, high) = (of(&|e| e.low), of(&|e| e.high));
        Series {
            low,
            high,
            ..Series::new(name, role, of(&|e| Some(e.mean)))
        }
    }
}

/// Short name of a dimension.
fn short(key: &str) -> String {
    match key {
        "queue_depth" => "depth".into(),
        "read" => "reads".into(),
        key => key.replace('_', " "),
    }
}

/// An axis value, formatted for display.
fn shown(key: &str, value: &str) -> String {
    number(key, value).map_or(value.to_string(), |(number, unit)| unit.show(number))
}

/// An estimate's mean with its unit, and its half-width, such as "± 0.4 %".
pub(super) fn with_uncertainty(estimate: &Estimate, unit: Unit) -> (String, String) {
    (
        unit.show(estimate.mean),
        estimate
            .relative_half_width()
            .map_or(String::new(), plus_minus),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Axis values in results are numbers with one unit, zero included; words are not numbers.
    #[test]
    fn values_of_axes() {
        let check = |key: &str, value: &str, expected: Option<(f64, Unit)>, said: &str| {
            assert_eq!(number(key, value), expected, "{key}={value}");
            assert_eq!(shown(key, value), said, "{key}={value}");
        };
        check("link_delay", "0", Some((0.0, Unit::Micros)), "0 ns");
        check("link_delay", "250us", Some((250.0, Unit::Micros)), "250 µs");
        check(
            "link_delay",
            "20ms",
            Some((20_000.0, Unit::Micros)),
            "20 ms",
        );
        check(
            "link_loss",
            "0.0005",
            Some((0.0005, Unit::Share)),
            "0.050 %",
        );
        check("link_rate", "100Mb/s", None, "100Mb/s");
        check(
            "block_size",
            "64KiB",
            Some((65536.0, Unit::Bytes)),
            "64 KiB",
        );
        check("queue_depth", "8", Some((8.0, Unit::Count)), "8");
    }
}
