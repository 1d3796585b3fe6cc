//! Judges from its measurements how faithful a replay was. Called once, when a run is over.
//!
//! The rule: the limits are those of [`brunt_result::replay`]; every exceeded limit is explained in a sentence.

use std::collections::BTreeMap;
use std::time::Duration;

use brunt_core::units::counted;
use brunt_core::{Histogram, Nanos, Span};
use brunt_result::replay::{
    DRIFT_DEGRADED_MAX, DRIFT_TRUE_MAX, DeviceFidelity, ForcedWrites, GAP_SLACK_US, GapDistance,
    ISSUE_ERROR_DEGRADED_MAX_US, ISSUE_ERROR_TRUE_MAX_US, LOST_DEGRADED_MAX, ReplayConflicts,
    ReplayDigests, ReplayFidelity, ReplayVerdict, UnsentRequests,
};
use brunt_result::summary::Latencies;

use super::feeder::{RowChange, RowCounts};
use super::meter::Meter;
use super::routes::Routes;
use super::settings::{AddressMap, ReplaySettings, ReplayTiming};
use super::survey::Survey;
use crate::load::WorkloadError;

/// 1.36 √((n + m) / nm): in 95 of 100 cases, the distance between two samples of one distribution stays below this
/// limit (Smirnov 1948; the asymptotic quantile of Kolmogorov's distribution).
const KS_QUANTILE_95: f64 = 1.358;

/// The replay as planned.
pub(super) struct ReplayPlan<'a> {
    pub(super) settings: &'a ReplaySettings,
    pub(super) survey: &'a Survey,
    pub(super) routes: &'a Routes,
}

/// Judges a replay from its measurements.
pub(super) fn judge(
    meter: &Meter,
    plan: &ReplayPlan<'_>,
    counts: &RowCounts,
    failure: Option<&WorkloadError>,
) -> ReplayFidelity {
    let ReplayPlan {
        settings, survey, ..
    } = *plan;
    let drift = match settings.timing {
        ReplayTiming::Trace => drift(meter),
        ReplayTiming::Depth | ReplayTiming::Dependency => None,
    };
    let issue_error = match settings.timing {
        // With a fixed depth, requests are due when they are sent.
        ReplayTiming::Depth => None,
        _ => Latencies::of(&meter.errors),
    };
    let mut fidelity = ReplayFidelity {
        verdict: ReplayVerdict::True,
        reasons: Vec::new(),
        timing: settings.timing.name().into(),
        speed: settings.speed,
        planned: survey.requests * u64::from(settings.repeat),
        sent: meter.fates.sent,
        unsent: meter
            .fates
            .unsent(survey.requests * u64::from(settings.repeat)),
        pieces: meter.sent.count(),
        completed: meter.completed,
        digests: ReplayDigests {
            trace: survey.digest.text(),
            planned: meter.planned.text(),
            sent: meter.sent.text(),
        },
        issue_error,
        drift,
        drift_us: drift.map(|drift| drift * span_us(meter)),
        late: meter.late,
        reordered: meter.reordered,
        reordered_overlapping: meter.reordered_overlapping,
        conflicts: ReplayConflicts {
            rule: settings.conflicts.name().into(),
            requests: meter.conflicts,
        },
        gaps: match settings.timing {
            ReplayTiming::Trace => gaps(&meter.gaps_due, &meter.gaps_sent),
            _ => None,
        },
        forced: ForcedWrites {
            planned: meter.forced_planned,
            sent: meter.forced_sent,
        },
        devices: devices(meter, plan),
        rows: changed_rows(survey, counts),
        over_time: meter.moments(),
    };
    let mut reasons = Reasons {
        worst: ReplayVerdict::True,
        said: Vec::new(),
    };
    reasons.of_requests(&fidelity, meter, settings, survey, failure);
    reasons.of_devices(meter, survey, settings);
    reasons.of_places(counts);
    reasons.of_times(&fidelity, span_us(meter));
    (fidelity.verdict, fidelity.reasons) = (reasons.worst, reasons.said);
    fidelity
}

/// Returns the counts of rows that were left out, repaired or changed.
fn changed_rows(survey: &Survey, counts: &RowCounts) -> BTreeMap<String, u64> {
    let mut rows = survey.rows.clone();
    rows.extend(
        counts
            .iter()
            .map(|(change, count)| (change.describe().to_string(), *count)),
    );
    rows
}

/// Judges each device of the trace, if there are several.
fn devices(meter: &Meter, plan: &ReplayPlan<'_>) -> Vec<DeviceFidelity> {
    let ReplayPlan {
        settings,
        survey,
        routes,
    } = *plan;
    let by_time = settings.timing != ReplayTiming::Depth;
    let told = survey.listed.iter().zip(&meter.devices);
    told.map(|(told, device)| DeviceFidelity {
        device: told.name.clone(),
        target: told
            .name
            .as_ref()
            .and_then(|_| routes.target(told.target))
            .map(str::to_string),
        planned: told.requests * u64::from(settings.repeat),
        sent: device.fates.sent,
        unsent: device
            .fates
            .unsent(told.requests * u64::from(settings.repeat)),
        completed: device.completed,
        late: device.late,
        issue_error: Latencies::of(&device.errors).filter(|_| by_time),
        digests: ReplayDigests {
            trace: told.digest.text(),
            planned: device.planned.text(),
            sent: device.sent.text(),
        },
    })
    .collect()
}

/// Reasons why a replay isn't faithful.
struct Reasons {
    worst: ReplayVerdict,
    said: Vec<String>,
}

impl Reasons {
    fn say(&mut self, verdict: ReplayVerdict, what: String) {
        self.worst = self.worst.max(verdict);
        self.said.push(what);
    }

    /// Records that the replay is degraded, or not a replay at all if it is `beyond` the limit.
    fn say_beyond(&mut self, beyond: bool, what: String) {
        self.say(
            if beyond {
                ReplayVerdict::NotAReplay
            } else {
                ReplayVerdict::Degraded
            },
            what,
        );
    }

    fn of_requests(
        &mut self,
        fidelity: &ReplayFidelity,
        meter: &Meter,
        settings: &ReplaySettings,
        survey: &Survey,
        failure: Option<&WorkloadError>,
    ) {
        let ReplayFidelity {
            unsent,
            pieces,
            completed,
            ..
        } = *fidelity;
        self.of_end(fidelity, meter, settings.speed, failure);
        self.of_lost(unsent, meter.fates.reached());
        if completed < pieces {
            let failed = pieces - completed;
            let what = format!(
                "{} failed; in an experiment, retry = {{ count = 3 }} sends {} again",
                counted(failed as usize, "request"),
                if failed == 1 { "it" } else { "them" }
            );
            self.say_beyond(
                failed as f64 / pieces.max(1) as f64 > LOST_DEGRADED_MAX,
                what,
            );
        }
        if meter.planned.count() == meter.sent.count() && meter.planned != meter.sent {
            self.say(
                ReplayVerdict::NotAReplay,
                "the requests sent are not those that were planned".into(),
            );
        }
        let once = settings.repeat == 1 && settings.map == AddressMap::AsIs;
        let untouched = !survey.repaired && fidelity.rows == survey.rows;
        if unsent.total() == 0 && once && untouched && meter.sent != survey.digest {
            self.say(
                ReplayVerdict::NotAReplay,
                "the requests sent are not those in the trace".into(),
            );
        }
        if unsent.lost() == 0 && fidelity.forced.sent < fidelity.forced.planned {
            let what = format!(
                "{} of {} writes with FUA were sent without it",
                fidelity.forced.planned - fidelity.forced.sent,
                fidelity.forced.planned
            );
            self.say(ReplayVerdict::NotAReplay, what);
        }
        if fidelity.reordered_overlapping > 0 {
            let (were, are) = match fidelity.reordered_overlapping {
                1 => ("was", "it is"),
                _ => ("were", "they are"),
            };
            let what = format!(
                "{} {were} overtaken by a later one on the same blocks; with conflicts = \"hold-back\" {are} not",
                counted(fidelity.reordered_overlapping as usize, "request")
            );
            self.say(ReplayVerdict::Degraded, what);
        }
    }

    /// Checks whether the replay reached the end of the trace.
    fn of_end(
        &mut self,
        fidelity: &ReplayFidelity,
        meter: &Meter,
        speed: f64,
        failure: Option<&WorkloadError>,
    ) {
        let ReplayFidelity {
            planned,
            sent,
            unsent,
            ..
        } = *fidelity;
        let missing = if meter.ended {
            meter.fates.missing(planned)
        } else {
            0
        };
        if let Some(failure) = failure {
            let what = format!(
                "the trace could not be read to the end: {}; for = \"{}\" replays what comes before",
                failure.what,
                replayed(meter, speed)
            );
            self.say(ReplayVerdict::NotAReplay, what);
        } else if missing > 0 {
            let what = format!(
                "the trace was changed after the start: it has {} fewer; for = \"{}\" replays the remaining ones",
                counted(missing as usize, "request"),
                replayed(meter, speed)
            );
            self.say(ReplayVerdict::NotAReplay, what);
        } else if unsent.after_end > 0 {
            let mut what =
                format!("the replay ended after {sent} of {planned} requests of the trace");
            if let Some(time) = needed(meter, sent, planned) {
                what += &format!(
                    "; at this rate, the whole trace takes stop = {{ time = \"{time}\" }}"
                );
            }
            self.say(ReplayVerdict::Degraded, what);
        }
    }

    /// Checks that no device has more requests than the survey found.
    fn of_devices(&mut self, meter: &Meter, survey: &Survey, settings: &ReplaySettings) {
        for (told, device) in survey.listed.iter().zip(&meter.devices) {
            let beyond = device
                .fates
                .beyond(told.requests * u64::from(settings.repeat));
            if beyond > 0 {
                let what = format!(
                    "the trace was changed after the start: it has {} more of {}; replay it again \
                     while nothing writes to the file",
                    counted(beyond as usize, "request"),
                    told.name
                        .as_ref()
                        .map_or("other devices".into(), |name| format!("device {name}"))
                );
                self.say(ReplayVerdict::NotAReplay, what);
            }
        }
    }

    /// Reports requests that should have been sent, as a share of those that the run got to.
    fn of_lost(&mut self, unsent: UnsentRequests, reached: u64) {
        let causes = [
            (
                unsent.dropped,
                "dropped because another was in flight on the same blocks; conflicts = \"hold-back\" waits instead",
            ),
            (
                unsent.skipped,
                "due but not sent before the run ended; drain sets how long to wait for late requests",
            ),
            (
                unsent.not_taken,
                "not accepted by the device before the run ended",
            ),
        ];
        for (lost, why) in causes.into_iter().filter(|(lost, _)| *lost > 0) {
            let beyond = unsent.lost() as f64 / reached.max(1) as f64 > LOST_DEGRADED_MAX;
            let were = if lost == 1 { "was" } else { "were" };
            self.say_beyond(
                beyond,
                format!("{} {were} {why}", counted(lost as usize, "request")),
            );
        }
    }

    fn of_places(&mut self, counts: &RowCounts) {
        for (change, done) in [
            (RowChange::Wrapped, "wrapped"),
            (RowChange::Scaled, "scaled"),
        ] {
            if let Some(count) = counts.get(&change) {
                let what = format!(
                    "{} {} {done}: blocks that were apart share places; map = \"pack\" keeps them apart",
                    counted(*count as usize, "request"),
                    if *count == 1 { "was" } else { "were" }
                );
                self.say(ReplayVerdict::Degraded, what);
            }
        }
    }

    /// `span_us` is the time from the first request to the last.
    fn of_times(&mut self, fidelity: &ReplayFidelity, span_us: f64) {
        // In a short trace, a single late request is not drift.
        if let Some(drift) = fidelity.drift
            && drift.abs() > DRIFT_TRUE_MAX
            && drift.abs() * span_us > ISSUE_ERROR_TRUE_MAX_US
        {
            // If the replay ran ahead, a lower speed doesn't help.
            let slower = match drift > 0.0 {
                true => format!(
                    "; replay it at a speed of {}",
                    slower(fidelity.speed / (1.0 + drift))
                ),
                false => String::new(),
            };
            let what = format!(
                "the replay drifted by {:.2} %, more than {:.1} %{slower}",
                drift * 100.0,
                DRIFT_TRUE_MAX * 100.0
            );
            self.say_beyond(drift.abs() > DRIFT_DEGRADED_MAX, what);
        }
        if let Some(error) = &fidelity.issue_error
            && error.p99_us > ISSUE_ERROR_TRUE_MAX_US
        {
            let late = &fidelity.late;
            let causes = [
                (late.worker, "a busy worker"),
                (late.reader, "a slow reader of the trace"),
                (late.device, "a device that did not accept requests in time"),
                (late.depth, "a queue that was full (queue_depth)"),
                (late.conflict, "requests on the same blocks"),
            ];
            let main = causes
                .iter()
                .max_by_key(|(count, _)| *count)
                .map_or("", |(_, cause)| cause);
            let instead = match late.conflict * 2 > late.total() {
                true => "let them through".to_string(),
                false => format!("replay it at a speed of {}", slower(fidelity.speed / 2.0)),
            };
            let what = format!(
                "one in 100 requests was sent more than {:.1} ms late, mostly because of {main}; {instead}",
                error.p99_us / 1e3
            );
            self.say_beyond(error.p99_us > ISSUE_ERROR_DEGRADED_MAX_US, what);
        }
    }
}

/// Returns how much of the trace's own time was replayed, rounded down to milliseconds.
fn replayed(meter: &Meter, speed: f64) -> Span {
    Span(Duration::from_millis((span_us(meter) * speed / 1e3) as u64))
}

/// Returns the estimated time for all requests, at the rate of those that were sent, plus ten percent.
fn needed(meter: &Meter, sent: u64, planned: u64) -> Option<Span> {
    let (_, first) = meter.first?;
    let took = meter.last.1.0.saturating_sub(first.0) as f64;
    let all = took * planned as f64 / sent.max(1) as f64 * 1.1;
    // A single request has no rate.
    (took > 0.0).then(|| Span(Duration::from_millis((all / 1e6).ceil() as u64)))
}

/// Rounds a speed down to three digits.
fn slower(speed: f64) -> f64 {
    let unit = 10f64.powi(speed.log10().floor() as i32 - 2);
    // A whole number of units; the small term compensates for the error of the division.
    let units = (speed / unit + 1e-9).floor();
    format!("{:.9}", units * unit).parse().unwrap_or(speed)
}

/// Returns the time between the first and the last request's due times, in microseconds.
fn span_us(meter: &Meter) -> f64 {
    meter.first.map_or(0.0, |(first, _)| {
        meter.last.0.0.saturating_sub(first.0) as f64 / 1e3
    })
}

fn drift(meter: &Meter) -> Option<f64> {
    let (first_due, first_sent) = meter.first?;
    let (last_due, last_sent) = meter.last;
    let span = last_due
        .0
        .checked_sub(first_due.0)
        .filter(|span| *span > 0)?;
    let late = |due: Nanos, sent: Nanos| sent.0 as f64 - due.0 as f64;
    Some((late(last_due, last_sent) - late(first_due, first_sent)) / span as f64)
}

fn gaps(due: &Histogram, sent: &Histogram) -> Option<GapDistance> {
    let count = due.count().min(sent.count()) as f64;
    let slack = (GAP_SLACK_US * 1e3) as u64;
    (count > 0.0).then(|| GapDistance {
        ks: ks(due, sent, 0),
        ks_beyond_slack: ks(due, sent, slack),
        by_chance: (KS_QUANTILE_95 * (2.0 / count).sqrt()).min(1.0),
    })
}

/// Returns the maximum difference between two cumulative distributions, comparing each with the other shifted by up to
/// `slack` in either direction.
fn ks(a: &Histogram, b: &Histogram, slack: u64) -> f64 {
    let beyond = |from: &Histogram, to: &Histogram| {
        let (all, mut below, mut worst) = (from.count().max(1) as f64, 0, 0.0f64);
        let other: Vec<(u64, u64)> = to
            .buckets()
            .map(|(value, count)| (value.0, count))
            .collect();
        let (mut at, mut reached, whole) = (0, 0u64, to.count().max(1) as f64);
        for (value, count) in from.buckets() {
            below += count;
            // A bucket's edge is off by at most 0.1 %.
            let limit = value.0.saturating_add(slack + value.0 / 1000);
            while at < other.len() && other[at].0 <= limit {
                reached += other[at].1;
                at += 1;
            }
            worst = worst.max(below as f64 / all - reached as f64 / whole);
        }
        worst
    };
    beyond(a, b).max(beyond(b, a))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: impl Iterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        values.for_each(|value| histogram.record(Nanos(value)));
        histogram
    }

    #[test]
    fn speeds_are_rounded_down_to_three_digits() {
        for (speed, said) in [
            (1.0, 1.0),
            (0.5, 0.5),
            (1.0 / 1.37, 0.729),
            (123_456.0, 123_000.0),
            (0.001_239, 0.001_23),
        ] {
            assert_eq!(slower(speed), said);
        }
    }

    #[test]
    fn distances_of_gaps_are_known() {
        let even = histogram((1..=1000).map(|value| value * 1000));
        assert!(ks(&even, &even, 0) < 1e-9);
        let late = histogram((1..=1000).map(|value| value * 1000 + 250_000));
        let distance = ks(&even, &late, 0);
        assert!((distance - 0.25).abs() < 0.01, "{distance}");
        let slack = ks(&even, &late, 50_000);
        assert!((slack - 0.2).abs() < 0.01, "{slack}");
        assert!(ks(&even, &late, 300_000) < 0.01);
        let chance = gaps(&even, &late).unwrap().by_chance;
        assert!((chance - 0.0607).abs() < 0.001, "{chance}");
    }
}
