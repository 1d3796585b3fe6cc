//! The cumulative distribution of response times, to as many nines as were measured.

use brunt_core::{Histogram, Nanos};

use super::details::Details;
use super::points::Points;
use crate::chart::{Axis, Chart, Scale, Series, SeriesRole};
use crate::format::Unit;
use crate::page::{Block, Section};

/// Maximum number of curves per chart; more are spread over several charts.
const CURVES_MAX: usize = 8;
/// Maximum number of charts; the table of all points has the rest.
const CHARTS_MAX: usize = 12;
/// Maximum number of points shown.
pub(super) const POINTS_MAX: usize = CURVES_MAX * CHARTS_MAX;
/// Points on the x axis per factor of ten; each step is 3 %.
const PLACES_PER_DECADE: f64 = 80.0;

/// How to read the curves.
pub(super) const CAPTION: &str = "Share of requests completed within a given time. The upper end is stretched: each step is ten times rarer. A \
     curve ends at its slowest request.";

pub(super) fn section(points: &Points<'_>, details: &Details) -> Section {
    let mut section = Section::new("Distribution of response times");
    let known: Vec<(usize, &Histogram)> = details
        .response
        .iter()
        .filter(|(index, histogram)| **index < points.all.len() && !histogram.is_empty())
        .map(|(index, histogram)| (*index, histogram))
        .collect();
    if known.is_empty() {
        let why = details
            .missing
            .as_deref()
            .unwrap_or("The results have no histograms of complete runs.");
        section.blocks.push(Block::Missing(format!(
            "{why} See All points for the recorded percentiles."
        )));
        return section;
    }
    let parts: Vec<&[(usize, &Histogram)]> = known.chunks(CURVES_MAX).collect();
    let mut charts = Vec::new();
    for (index, part) in parts.iter().enumerate().take(CHARTS_MAX) {
        let of = if parts.len() > 1 {
            format!(" ({} of {})", index + 1, parts.len())
        } else {
            String::new()
        };
        charts.push(chart(points, part, &of));
    }
    let last = charts.pop().map(|chart| chart.caption(CAPTION));
    if points.all.iter().any(|point| !point.phases.is_empty()) {
        section.prose("Whole runs, including faults.");
    }
    section
        .blocks
        .extend(charts.into_iter().chain(last).map(Block::of));
    if points.all.len() > POINTS_MAX {
        let more = points.all.len() - POINTS_MAX;
        section.prose(format!(
            "{more} more points are in the table of all points."
        ));
    }
    section
}

fn chart(points: &Points<'_>, part: &[(usize, &Histogram)], of: &str) -> Chart {
    let named: Vec<(String, &Histogram)> = part
        .iter()
        .map(|(point, histogram)| (points.full_name(&points.all[*point]), *histogram))
        .collect();
    curves(format!("Cumulative distribution{of}"), &named)
}

/// Draws a curve for each of these distributions.
pub(super) fn curves(title: impl Into<String>, named: &[(String, &Histogram)]) -> Chart {
    let edge = |get: fn(&Histogram) -> Option<Nanos>| {
        named
            .iter()
            .filter_map(move |(_, histogram)| get(histogram))
            .map(|nanos| (nanos.0.max(1)) as f64)
    };
    let (low, high) = (
        edge(Histogram::min).fold(f64::MAX, f64::min),
        edge(Histogram::max).fold(1.0, f64::max),
    );
    let places = (((high / low).log10() * PLACES_PER_DECADE).ceil() as usize).max(2);
    let xs: Vec<f64> = (0..=places)
        .map(|place| low * (high / low).powf(place as f64 / places as f64))
        .collect();
    let series = named.iter().enumerate().map(|(index, (name, histogram))| {
        let values = cumulative(histogram, &xs);
        Series::new(name, SeriesRole::Nominal(index), values)
    });
    let x = Axis::new("response time", Unit::Micros, Scale::Log);
    let y = Axis::new(
        "share of requests completed within that time",
        Unit::Nines,
        Scale::Linear,
    );
    let series = series.collect();
    let xs = xs.iter().map(|nanos| nanos / 1e3).collect();
    let chart = Chart::curves(title, x, y, xs, series);
    Chart {
        height: 340,
        ..chart
    }
}

/// The cumulative share, in nines, at each position from the one before the fastest request to the slowest request.
/// The slowest request has a share of 1, which has infinitely many nines; the curve ends at 1 - 0.5/n instead, for n
/// requests.
fn cumulative(histogram: &Histogram, xs: &[f64]) -> Vec<Option<f64>> {
    let all = histogram.count() as f64;
    let top = -(0.5 / all).log10();
    let (mut below, mut buckets) = (0u64, histogram.buckets().peekable());
    let mut ended = false;
    xs.iter()
        .map(|x| {
            // A bucket counts once x reaches its upper end, with a tolerance of 0.1 %.
            while let Some((_, count)) = buckets.next_if(|(nanos, _)| nanos.0 as f64 <= x * 1.001) {
                below += count;
            }
            let above = all - below as f64;
            if above <= 0.0 {
                return (!std::mem::replace(&mut ended, true)).then_some(top);
            }
            Some((-(above / all).log10()).max(0.0).min(top))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares at known positions, in nines; the curve ends at the slowest request.
    #[test]
    fn curves_end_at_the_slowest() {
        let mut histogram = Histogram::new();
        for value in 1..=1000u64 {
            histogram.record(Nanos(value * 1000));
        }
        let curve = cumulative(
            &histogram,
            &[
                500.0,
                500_000.0,
                900_000.0,
                990_000.0,
                1_000_000.0,
                2_000_000.0,
            ],
        );
        let check = |index: usize, share: f64| {
            let nines = curve[index].unwrap();
            assert!(
                (1.0 - 10f64.powf(-nines) - share).abs() < 0.0021,
                "{index}: {nines}"
            );
        };
        check(0, 0.0);
        check(1, 0.5);
        check(2, 0.9);
        check(3, 0.99);
        check(4, 0.9995);
        assert_eq!(curve[5], None);
    }
}
