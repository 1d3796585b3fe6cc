//! Settings of `stop.steady`: the criteria for a steady state, and how long to wait for one. Part of a workload's
//! description; the test itself is in [`crate::decisions::steady`].

use std::time::Duration;

use brunt_core::Span;
use brunt_result::steady::{ROUNDS_KEPT, SteadyFigure, SteadyRule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::load::{INTERVAL_MIN, SteadyGoal, WorkloadError, wrong};

/// Maximum number of rounds in a window.
const WINDOW_MAX: u32 = ROUNDS_KEPT as u32;

/// Rounds of the steady-state test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Steady {
    /// Length of a round; a multiple of `interval`.
    pub round: Span,
    /// Maximum rounds (SNIA: 25); a run that is not steady by then ends as `not-steady`.
    #[serde(default = "twenty_five")]
    pub rounds_max: u32,
    /// Number of most recent rounds to consider (SNIA: 5).
    #[serde(default = "five", skip_serializing_if = "is_five")]
    pub window: u32,
    /// Figure that has to be steady.
    #[serde(default, skip_serializing_if = "is_default")]
    pub figure: SteadyFigure,
    /// Largest deviation of a round from the mean of the window, as a share of that mean, instead of SNIA's rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
    /// Largest slope of a linear fit over the window, per round and as a share of the mean, instead of SNIA's rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slope: Option<f64>,
    /// Excludes measurements before this time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub after: Span,
}

impl Steady {
    /// Checks whether the settings are valid with intervals of this length.
    ///
    /// # Errors
    /// The error names the invalid key, and what would be correct.
    pub fn check(&self, interval: Duration) -> Result<(), WorkloadError> {
        if interval.is_zero() {
            wrong(
                "interval",
                "the steady-state test needs intervals; write the length of a round or a fraction of it",
            )?;
        }
        let is_multiple = |time: Span| time.0.as_nanos().is_multiple_of(interval.as_nanos());
        if self.round.0 < INTERVAL_MIN || !is_multiple(self.round) {
            let what = format!(
                "{} is not a multiple of the interval, {}",
                self.round,
                Span(interval)
            );
            wrong("stop.steady.round", what)?;
        }
        if !is_multiple(self.after) {
            let what = format!(
                "{} is not a multiple of the interval, {}",
                self.after,
                Span(interval)
            );
            wrong("stop.steady.after", what)?;
        }
        if !(2..=WINDOW_MAX).contains(&self.window) {
            wrong(
                "stop.steady.window",
                format!("{} rounds; write 2 to {WINDOW_MAX}", self.window),
            )?;
        }
        if self.rounds_max < self.window {
            let what = format!(
                "the steady-state test needs {0} rounds; write at least {0}",
                self.window
            );
            wrong("stop.steady.rounds_max", what)?;
        }
        for (key, limit) in [
            ("stop.steady.deviation", self.deviation),
            ("stop.steady.slope", self.slope),
        ] {
            if limit.is_some_and(|limit| !(limit > 0.0 && limit <= 10.0)) {
                wrong(key, "write a share of the mean above 0, such as 0.05")?;
            }
        }
        Ok(())
    }

    /// Returns the steady-state goal of a run.
    pub fn goal(&self) -> SteadyGoal {
        let Steady {
            window,
            figure,
            deviation,
            slope,
            ..
        } = *self;
        let mut rule = SteadyRule {
            window: window as usize,
            figure,
            ..SteadyRule::default()
        };
        if deviation.is_some() || slope.is_some() {
            rule = SteadyRule {
                range: None,
                rise: None,
                deviation,
                slope,
                ..rule
            };
        }
        SteadyGoal {
            round: self.round.0,
            rounds_max: self.rounds_max,
            after: self.after.0,
            rule,
        }
    }

    /// Returns the duration of a run that is steady from the start.
    pub(super) fn shortest(&self) -> Duration {
        self.after
            .0
            .saturating_add(self.round.0.saturating_mul(self.window))
    }

    /// Returns the duration of a run that never becomes steady.
    pub(super) fn longest(&self) -> Duration {
        self.after
            .0
            .saturating_add(self.round.0.saturating_mul(self.rounds_max))
    }
}

fn five() -> u32 {
    SteadyRule::default().window as u32
}

fn is_five(window: &u32) -> bool {
    *window == five()
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn twenty_five() -> u32 {
    25
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_steady_state_settings_are_refused() {
        let check = |text: &str, key: Option<&str>| {
            let steady: Steady = toml::from_str(text).unwrap();
            let error = steady.check(Duration::from_secs(1)).err();
            assert_eq!(error.map(|error| error.key), key, "{text}");
        };
        check(
            "round = \"2s\"\nwindow = 30\nrounds_max = 30\ndeviation = 0.05\nafter = \"60s\"",
            None,
        );
        check(
            "round = \"1s\"\nfigure = \"service-time\"\nslope = 0.01",
            None,
        );
        check("round = \"1500ms\"", Some("stop.steady.round"));
        check(
            "round = \"1s\"\nafter = \"10ms\"",
            Some("stop.steady.after"),
        );
        check("round = \"1s\"\nwindow = 1", Some("stop.steady.window"));
        check(
            "round = \"1s\"\nwindow = 30",
            Some("stop.steady.rounds_max"),
        );
        check(
            "round = \"1s\"\ndeviation = 0.0",
            Some("stop.steady.deviation"),
        );
        check("round = \"1s\"\nslope = nan", Some("stop.steady.slope"));
    }

    #[test]
    fn a_custom_rule_replaces_snias() {
        let goal = |text: &str| {
            toml::from_str::<Steady>(&format!("round = \"1s\"\n{text}"))
                .unwrap()
                .goal()
        };
        assert_eq!(goal("").rule, SteadyRule::default());
        let rule = goal("deviation = 0.1\nwindow = 30").rule;
        assert_eq!(
            (rule.range, rule.rise, rule.deviation, rule.window),
            (None, None, Some(0.1), 30)
        );
        assert_eq!(goal("slope = 0.1").rule.slope, Some(0.1));
    }
}
