//! The steady state of a run: the criteria, and how its rounds met them. Loads apply the criteria to end a run;
//! reports show the rounds. The default is the criterion for throughput in SNIA's Solid State Storage Performance
//! Test Specification: over a window of five rounds, the values range within 20 % of their mean, and the slope of the
//! least-squares line accounts for at most 10 % of it. The other criteria are those of fio (`steadystate`).

use std::fmt;

use brunt_core::units::{counted, format_duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of rounds kept in a result, and in a window.
pub const ROUNDS_KEPT: usize = 3600;

/// What has to be steady.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SteadyFigure {
    /// Requests in a round.
    #[default]
    Requests,
    /// Bytes in a round.
    Bytes,
    /// Mean service time of a round's requests.
    ServiceTime,
}

/// Criteria over the most recent rounds, as shares of their mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SteadyRule {
    /// Number of rounds considered.
    pub window: usize,
    /// The figure to compare.
    pub figure: SteadyFigure,
    /// Maximum difference between the largest and the smallest value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<f64>,
    /// Maximum rise or fall of the fitted line over the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rise: Option<f64>,
    /// Maximum distance of any value from the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
    /// Maximum rise or fall of the fitted line per round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slope: Option<f64>,
}

/// SNIA's criteria.
impl Default for SteadyRule {
    fn default() -> SteadyRule {
        let (figure, range, rise) = (SteadyFigure::Requests, Some(0.20), Some(0.10));
        SteadyRule {
            window: 5,
            figure,
            range,
            rise,
            deviation: None,
            slope: None,
        }
    }
}

/// A criterion applied to the rounds of a window. Both numbers are shares of the rounds' mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyCriterion {
    /// What the criterion limits.
    pub what: &'static str,
    /// The criterion's value over the window.
    pub share: f64,
    /// Maximum value that meets the criterion.
    pub limit: f64,
}

impl SteadyCriterion {
    /// Whether the window meets the criterion.
    pub fn is_met(&self) -> bool {
        self.share <= self.limit
    }
}

/// `range 12.3% (limit 20%)`.
impl fmt::Display for SteadyCriterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SteadyCriterion { what, share, limit } = self;
        let limit = (limit * 1e5).round() / 1e3;
        write!(f, "{what} {:.1}% (limit {limit}%)", share * 100.0)
    }
}

/// The least-squares line through the rounds of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyLine {
    /// Mean of the rounds, which is the line's value in the middle.
    pub mean: f64,
    /// Rise per round.
    pub slope: f64,
}

impl SteadyLine {
    /// Fits a line; `None` for no rounds, or if their mean is not positive, because criteria are shares of it.
    pub fn of(values: &[f64]) -> Option<SteadyLine> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        if values.is_empty() || mean <= 0.0 {
            return None;
        }
        let middle = (count - 1.0) / 2.0;
        let (mut cross, mut square) = (0.0, 0.0);
        for (index, value) in values.iter().enumerate() {
            let x = index as f64 - middle;
            cross += x * (value - mean);
            square += x * x;
        }
        let slope = if square > 0.0 { cross / square } else { 0.0 };
        Some(SteadyLine { mean, slope })
    }
}

impl SteadyRule {
    /// Applies each criterion to the rounds of a window; `None` if there are not enough rounds, or nothing to compare.
    pub fn criteria(&self, window: &[f64]) -> Option<Vec<SteadyCriterion>> {
        let SteadyLine { mean, slope } = SteadyLine::of(window)?;
        if window.len() < self.window {
            return None;
        }
        let max = window.iter().copied().fold(f64::MIN, f64::max);
        let min = window.iter().copied().fold(f64::MAX, f64::min);
        let rise = slope.abs() * (window.len() as f64 - 1.0);
        let all = [
            ("range", max - min, self.range),
            ("slope over the window", rise, self.rise),
            ("deviation", (max - mean).max(mean - min), self.deviation),
            ("slope a round", slope.abs(), self.slope),
        ];
        let stated = all.into_iter().filter_map(|(what, value, limit)| {
            let (share, limit) = (value / mean, limit?);
            Some(SteadyCriterion { what, share, limit })
        });
        Some(stated.collect())
    }

    /// Whether the rounds of a window are steady.
    pub fn is_met(&self, window: &[f64]) -> bool {
        self.criteria(window)
            .is_some_and(|all| all.iter().all(SteadyCriterion::is_met))
    }
}

/// The rounds of a run that should end in a steady state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SteadyRounds {
    /// Length of a round in seconds.
    pub round_s: f64,
    /// The criteria.
    pub rule: SteadyRule,
    /// Number of complete rounds.
    pub count: u32,
    /// Figure of each round, in order, for at most the last 3600 rounds: requests or bytes per second, or the mean
    /// service time in microseconds.
    pub values: Vec<f64>,
}

impl SteadyRounds {
    /// The rounds that the criteria apply to at the end of the run; fewer than `rule.window` if the run ended before
    /// it had that many.
    pub fn window(&self) -> &[f64] {
        &self.values[self.values.len().saturating_sub(self.rule.window)..]
    }

    /// The result of each criterion for the last window; `None` if there was no full window.
    pub fn criteria(&self) -> Option<Vec<SteadyCriterion>> {
        self.rule.criteria(self.window())
    }
}

/// `12 rounds of 500ms: range 31.0% (limit 20%), slope over the window 3.0% (limit 10%)`.
impl fmt::Display for SteadyRounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = counted(self.count as usize, "round");
        let length = std::time::Duration::from_secs_f64(self.round_s);
        write!(f, "{rounds} of {}", format_duration(length))?;
        let criteria = self.criteria().unwrap_or_default();
        for (index, criterion) in criteria.iter().enumerate() {
            write!(f, "{} {criterion}", if index == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window covers the end of the run, and the criteria are shares of the window's mean.
    #[test]
    fn the_last_window_is_described() {
        let rounds = |values: &[f64]| SteadyRounds {
            round_s: 0.5,
            rule: SteadyRule::default(),
            count: values.len() as u32,
            values: values.to_vec(),
        };
        let six = rounds(&[900.0, 94.0, 97.0, 100.0, 103.0, 106.0]);
        assert_eq!(six.window().len(), 5);
        assert_eq!(
            six.to_string(),
            "6 rounds of 500ms: range 12.0% (limit 20%), slope over the window 12.0% (limit 10%)"
        );
        assert_eq!(rounds(&[900.0]).to_string(), "1 round of 500ms");
        assert_eq!(rounds(&[0.0; 5]).criteria(), None);
        assert_eq!(rounds(&[]).window(), &[] as &[f64]);
    }
}
