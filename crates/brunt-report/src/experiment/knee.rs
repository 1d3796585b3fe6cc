//! Finds the knee, where more outstanding requests no longer raise the rate. By Little's law (outstanding = rate ×
//! time), the knee is at the highest rate × the service time of a request that does not wait for others.
//!
//! The rule: a knee is drawn only if the rate has levelled off within the measured range; otherwise the highest rate
//! says nothing about the maximum.

use brunt_result::summary::PointSummary;

use super::points::{Line, Points};
use crate::chart::{Mark, SeriesRole};
use crate::format::{Unit, three};

/// The rate has levelled off if it grows by less than this power of the load: a power of 1 is proportional, 0 is
/// constant.
const LEVEL: f64 = 0.3;

/// The knee of one line.
#[derive(Debug, PartialEq)]
pub(super) enum Knee {
    /// The position of the knee.
    At {
        /// Position on the axis.
        at: f64,
        /// Outstanding requests at the knee, over all workers.
        outstanding: f64,
        /// The highest rate, in requests per second.
        rate: f64,
        /// The service time at the lowest load, in microseconds.
        service_us: f64,
    },
    /// The rate still grows at the end of the axis.
    Beyond,
}

/// The knee for ascending positions on the axis, each with its rate and its mean response and service times in
/// microseconds; `None` for fewer than three positions.
fn knee(places: &[(f64, f64, f64, f64)]) -> Option<Knee> {
    let [(first, rate, response_us, service_us), .., before, last] = *places else {
        return None;
    };
    let highest = places.iter().map(|place| place.1).fold(0.0, f64::max);
    let growth = (last.1 / before.1).ln() / (last.0 / before.0).ln();
    let outstanding = highest * service_us / 1e6;
    // The measurement also shows how many requests one unit of the axis (its workers, or its depth) keeps outstanding.
    let at = first * outstanding / (rate * response_us / 1e6);
    // At a position without a rate, `growth` is NaN, so there is no knee.
    if growth < LEVEL && at <= last.0 {
        return Some(Knee::At {
            at,
            outstanding,
            rate: highest,
            service_us,
        });
    }
    Some(Knee::Beyond)
}

/// The knees of the lines across a load axis, with a sentence for each; empty for other axes, open loops and points
/// with faults.
pub(super) fn knees(points: &Points<'_>, lines: &[Line<'_>]) -> (Vec<Mark>, String) {
    let (mut marks, mut said) = (Vec::new(), Vec::new());
    let Some(across) = points.across.as_ref().filter(|across| across.is_load()) else {
        return (marks, String::new());
    };
    for (index, line) in lines.iter().enumerate() {
        let place = |(at, point): (&f64, &Option<&PointSummary>)| {
            let point = point.filter(|point| points.is_closed(point) && point.phases.is_empty())?;
            let service_us = point.service?.mean_us;
            Some((
                *at,
                point.requests_per_second?.mean,
                point.response_mean_us?.mean,
                service_us,
            ))
        };
        let places: Vec<_> = across
            .values
            .iter()
            .zip(&line.points)
            .filter_map(place)
            .collect();
        let of = match line.name.as_str() {
            "" => String::new(),
            name => format!("{name}: "),
        };
        match knee(&places) {
            None => {}
            Some(Knee::Beyond) => said.push(format!(
                "{of}No knee up to {} {}, because the rate is still growing there.",
                across.label,
                across.unit.show(places[places.len() - 1].0)
            )),
            Some(Knee::At {
                at,
                outstanding,
                rate,
                service_us,
            }) => {
                said.push(format!(
                    "{of}Knee at {} {} ({} outstanding), by Little's law: the highest rate, {}, times \
                     the service time at the lowest load, {}. Beyond the knee, requests only wait.",
                    across.label,
                    three(at),
                    three(outstanding),
                    Unit::PerSecond.show(rate),
                    Unit::Micros.show(service_us),
                ));
                let role = if lines.len() > 1 {
                    SeriesRole::Nominal(index)
                } else {
                    SeriesRole::Reference(0)
                };
                marks.push(Mark {
                    at,
                    label: format!("knee {}", three(at)),
                    role,
                });
            }
        }
    }
    (marks, said.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device with eight servers of 100 us each: if more than eight requests are outstanding, the others only wait,
    /// whether one worker or two issue them. A rate that still grows has no knee yet, and neither do two measured
    /// positions.
    #[test]
    fn servers_and_their_knee() {
        let places = |depths: &[u32], workers: f64| -> Vec<(f64, f64, f64, f64)> {
            let place = |depth: &u32| {
                let outstanding = f64::from(*depth) * workers;
                let rate = outstanding.min(8.0) / 100e-6;
                // Waiting inside the device is part of the service time, so only the service time at the lowest load
                // counts.
                let us = outstanding / rate * 1e6;
                (f64::from(*depth), rate, us, us)
            };
            depths.iter().map(place).collect()
        };
        let check = |depths: &[u32], workers: f64, expected: Option<f64>| match knee(&places(
            depths, workers,
        )) {
            Some(Knee::At {
                at,
                outstanding,
                rate,
                service_us,
            }) => {
                assert!((at - expected.unwrap()).abs() < 1e-6, "{at}");
                assert!(
                    (outstanding - 8.0).abs() < 1e-6 && (rate - 80e3).abs() < 1e-3,
                    "{outstanding} {rate}"
                );
                assert!((service_us - 100.0).abs() < 1e-6);
            }
            found => assert_eq!((found, expected), (Some(Knee::Beyond), None), "{depths:?}"),
        };
        check(&[1, 2, 4, 8, 16, 32], 1.0, Some(8.0));
        check(&[1, 2, 4, 8, 16, 32], 2.0, Some(4.0));
        check(&[2, 8, 16], 1.0, Some(8.0));
        check(&[1, 2, 4, 8], 1.0, None);
        check(&[1, 2, 4], 1.0, None);
        assert_eq!(knee(&places(&[1, 32], 1.0)), None);
        assert_eq!(knee(&[]), None);
        assert_eq!(
            knee(&[
                (1.0, 0.0, 1.0, 1.0),
                (2.0, 0.0, 1.0, 1.0),
                (4.0, 0.0, 1.0, 1.0)
            ]),
            Some(Knee::Beyond)
        );
    }
}
