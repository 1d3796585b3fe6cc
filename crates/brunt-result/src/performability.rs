//! Performability: what a system is expected to do over the years, given the measurements in each of its states and how
//! often it is in each. A study computes it for each point whose experiment has `[performability]`.
//!
//! The method is that of Markov reward models: J. F. Meyer, "On Evaluating the Performability of Degradable Computing
//! Systems", IEEE Transactions on Computers C-29(8), 1980. A state is a set of failed components; its reward is the
//! throughput measured under the faults that emulate their failures. The share of time with at least a given service
//! is the availability of A. Brown and D. Patterson, "Towards Availability Benchmarks: A Case Study of Software RAID
//! Systems", USENIX ATC 2000: they define availability by a level of service instead of by up or down. `chain`
//! computes the probabilities.
//!
//! The rules:
//! - The normal state is the phase before all faults; a degraded state is the phases during exactly its faults. A phase
//!   without a whole interval doesn't count.
//! - Expected figures are computed for each run, then averaged with a t interval: all states of a run come from the
//!   same run, so no assumption about their errors is needed. Times to failure and to repair are assumed to be exact.
//! - A state that was not measured is neither left out nor assumed to be down: it is listed, and its probability is
//!   reported separately.

mod chain;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use chain::FailingComponent;

use crate::degradation::{PhaseFigures, PhaseKind};
use crate::require::{Requirement, RequirementError, RequirementVerdict};
use crate::statistics::Estimate;

/// A year of 365.25 days, in seconds.
const YEAR_S: f64 = 365.25 * 86_400.0;

/// The lowest service that counts as available, such as `iops above 5000`.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceLevel(Requirement);

impl FromStr for ServiceLevel {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<ServiceLevel, RequirementError> {
        let level: Requirement = text.parse()?;
        level.check_for_phases()?;
        Ok(ServiceLevel(level))
    }
}

impl fmt::Display for ServiceLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for ServiceLevel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ServiceLevel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ServiceLevel, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for ServiceLevel {
    fn schema_name() -> Cow<'static, str> {
        "ServiceLevel".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A figure and its bound, such as iops above 5000 or p99 below 2ms",
            "type": "string",
            "pattern": "^ *(iops|bandwidth|mean|p99|max|failed) +(above|below) +[^ ]+ *$"
        })
    }
}

/// The components of a system, and the service it has to provide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailingSystem {
    /// Components of the system.
    pub components: Vec<FailingComponent>,
    /// The lowest service that counts as available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<ServiceLevel>,
}

/// Expected figures of a point over a long time of failures and repairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Performability {
    /// The system that was assumed.
    pub system: FailingSystem,
    /// States of the system, most likely first.
    pub states: Vec<SystemState>,
    /// Share of time in states that were not measured.
    pub not_measured: f64,
    /// Expected requests per second in the time spent in measured states; `null` if none was measured.
    pub requests_per_second: Option<Estimate>,
    /// Expected requests per second of the whole time if states that were not measured serve nothing.
    pub requests_per_second_least: Option<Estimate>,
    /// Expected bytes per second in the time spent in measured states.
    pub bytes_per_second: Option<Estimate>,
    /// Expected mean response time of a request in measured states; `null` if it is unknown in a state that serves
    /// requests.
    pub response_mean_us: Option<Estimate>,
    /// Share of time with the service that `threshold` requires; `null` without a threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<TimeShare>,
    /// Expected requests per second from each run alone, for comparisons with other results.
    pub by_run: Vec<f64>,
    /// Complete runs that lack a state which other runs have, and are therefore left out.
    pub runs_left_out: usize,
}

/// A state of a system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SystemState {
    /// Faults in effect; empty in the normal state.
    pub faults: Vec<String>,
    /// Components with more failed units than the experiment has faults to emulate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<String>,
    /// Share of time that the system spends in the state.
    pub probability: f64,
    /// Figures of the state; `null` if it was not measured.
    pub measured: Option<StateFigures>,
    /// Whether the state has the service that `threshold` requires; `null` without a threshold, or if the state was
    /// not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<RequirementVerdict>,
}

/// Figures of a state, over runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StateFigures {
    /// Requests per second.
    pub requests_per_second: Estimate,
    /// Bytes per second.
    pub bytes_per_second: Estimate,
    /// Mean response time; `null` if no request was answered or due.
    pub response_mean_us: Option<Estimate>,
    /// 99th percentile of the response time; `null` also if a run contains the state several times.
    pub response_p99_us: Option<Estimate>,
    /// Share of requests that failed.
    pub failed_share: Estimate,
}

/// Bounds of a share of time: a state may be unmeasured, or its intervals may contain the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimeShare {
    /// Share of time in states that certainly have the service, judging by their 95 % intervals.
    pub at_least: f64,
    /// Share of time in states that may have the service, including those whose intervals contain the bound and those
    /// that were not measured.
    pub at_most: f64,
}

/// Expected figures computed from one run.
struct Expected {
    requests_per_second: f64,
    bytes_per_second: f64,
    response_mean_us: Option<f64>,
}

impl Performability {
    /// Computes the figures from the phases of each complete run.
    pub fn of(system: &FailingSystem, runs: &[&[PhaseFigures]]) -> Performability {
        let chain = chain::states(&system.components);
        let by_state: Vec<Vec<Option<PhaseFigures>>> = chain
            .iter()
            .map(|state| runs.iter().map(|run| in_run(state, run)).collect())
            .collect();
        let has_all = |run: &usize| {
            let mut found = by_state
                .iter()
                .filter(|each| each.iter().any(Option::is_some));
            found.all(|each| each[*run].is_some())
        };
        let used: Vec<usize> = (0..runs.len()).filter(has_all).collect();
        let figures: Vec<Vec<&PhaseFigures>> = by_state
            .iter()
            .map(|each| used.iter().filter_map(|run| each[*run].as_ref()).collect())
            .collect();
        let level = system.threshold.as_ref();
        let state = |(state, figures): (&chain::ChainState, &Vec<&PhaseFigures>)| SystemState {
            faults: state.faults.clone(),
            more: state.more.clone(),
            probability: state.probability,
            measured: StateFigures::of(figures),
            service: level
                .filter(|_| !figures.is_empty())
                .map(|level| level.0.verdict_of_phases(figures)),
        };
        let states: Vec<SystemState> = chain.iter().zip(&figures).map(state).collect();
        let share = |is_meant: &dyn Fn(&SystemState) -> bool| {
            // Add the smallest first, so that they are not lost in the sum.
            let meant = states.iter().rev().filter(|state| is_meant(state));
            meant.fold(0.0, |sum, state| sum + state.probability)
        };
        let not_measured = share(&|state| state.measured.is_none());
        let measured = share(&|state| state.measured.is_some());
        let by_run: Vec<Expected> = (0..used.len())
            .filter_map(|run| expected(&states, &figures, run))
            .collect();
        let over = |get: &dyn Fn(&Expected) -> Option<f64>| {
            let known: Option<Vec<f64>> = by_run.iter().map(get).collect();
            known.and_then(|known| Estimate::of(&known))
        };
        let verdict = |verdict| share(&|state| state.service == Some(verdict));
        // Computed as the complement of the states without the service, because the sum over all states may be
        // slightly less than 1.
        let at_most = 1.0 - verdict(RequirementVerdict::Missed);
        let open = not_measured + verdict(RequirementVerdict::Undecided);
        let at_least = match open > 0.0 {
            true => verdict(RequirementVerdict::Met),
            false => at_most,
        };
        Performability {
            system: system.clone(),
            not_measured,
            requests_per_second: over(&|run| Some(run.requests_per_second)),
            requests_per_second_least: over(&|run| Some(run.requests_per_second * measured)),
            bytes_per_second: over(&|run| Some(run.bytes_per_second)),
            response_mean_us: over(&|run| run.response_mean_us),
            available: level.map(|_| TimeShare { at_least, at_most }),
            by_run: by_run.iter().map(|run| run.requests_per_second).collect(),
            runs_left_out: runs.len() - used.len(),
            states,
        }
    }
}

/// Combines the phases of a run that show a state; `None` if the run has no such phase.
fn in_run(state: &chain::ChainState, phases: &[PhaseFigures]) -> Option<PhaseFigures> {
    if !state.more.is_empty() {
        return None;
    }
    let sorted = |faults: &[String]| {
        let mut faults = faults.to_vec();
        faults.sort();
        faults
    };
    let wanted = sorted(&state.faults);
    let is_it = |phase: &&PhaseFigures| {
        let kind = match wanted.is_empty() {
            true => PhaseKind::Before,
            false => PhaseKind::During,
        };
        phase.kind == kind && phase.intervals > 0 && sorted(&phase.faults) == wanted
    };
    let found: Vec<&PhaseFigures> = phases.iter().filter(is_it).collect();
    match &found[..] {
        [] => None,
        [one] => Some((*one).clone()),
        several => Some(together(several)),
    }
}

/// Combines several phases under the same faults. Percentiles can't be combined.
fn together(phases: &[&PhaseFigures]) -> PhaseFigures {
    let length = |phase: &PhaseFigures| phase.end_s - phase.start_s;
    let all: f64 = phases.iter().map(|phase| length(phase)).sum();
    let over_time = |get: fn(&PhaseFigures) -> f64| {
        let sum: f64 = phases.iter().map(|phase| get(phase) * length(phase)).sum();
        sum / all
    };
    let requests = |phase: &PhaseFigures| phase.requests_per_second * length(phase);
    let answered = || {
        phases
            .iter()
            .filter(|phase| phase.requests_per_second > 0.0)
    };
    let count: f64 = answered().map(|phase| requests(phase)).sum();
    let waited: Option<f64> = answered()
        .map(|phase| Some(phase.response_mean_us? * requests(phase)))
        .sum();
    // Share of all requests that failed; the answered requests exclude failed ones.
    let attempts = |phase: &PhaseFigures| requests(phase) / (1.0 - phase.failed_share).max(1e-9);
    let tried: f64 = phases.iter().map(|phase| attempts(phase)).sum();
    let failed: f64 = phases
        .iter()
        .map(|phase| attempts(phase) * phase.failed_share)
        .sum();
    let most = |get: fn(&PhaseFigures) -> Option<f64>| {
        let known = phases.iter().filter_map(|phase| get(phase));
        known.reduce(f64::max)
    };
    let shares = || phases.iter().map(|phase| phase.failed_share);
    PhaseFigures {
        intervals: phases.iter().map(|phase| phase.intervals).sum(),
        requests_per_second: over_time(|phase| phase.requests_per_second),
        bytes_per_second: over_time(|phase| phase.bytes_per_second),
        response_mean_us: waited.filter(|_| count > 0.0).map(|waited| waited / count),
        response_p99_us: None,
        response_max_us: most(|phase| phase.response_max_us),
        failed_share: match tried > 0.0 {
            true => failed / tried,
            false => shares().fold(0.0, f64::max),
        },
        waiting_requests: None,
        waiting_oldest_us: None,
        ..phases[0].clone()
    }
}

/// One run's figures for measured states, weighted by their probabilities; `None` if no state was measured.
fn expected(
    states: &[SystemState],
    figures: &[Vec<&PhaseFigures>],
    run: usize,
) -> Option<Expected> {
    let of_run = figures.iter().map(|each| each.get(run).copied());
    let measured: Vec<(f64, &PhaseFigures)> = states
        .iter()
        .zip(of_run)
        .filter_map(|(state, figures)| Some((state.probability, figures?)))
        .collect();
    let time: f64 = measured.iter().map(|(share, _)| share).sum();
    let mean = |get: fn(&PhaseFigures) -> f64| {
        let sum: f64 = measured.iter().map(|(share, one)| share * get(one)).sum();
        sum / time
    };
    // Weighted by requests: a state in which no request is answered doesn't affect this mean.
    let serving = || {
        let serves = |(_, one): &&(f64, &PhaseFigures)| one.requests_per_second > 0.0;
        measured.iter().filter(serves)
    };
    let requests: f64 = serving()
        .map(|(share, one)| share * one.requests_per_second)
        .sum();
    let waited: Option<f64> = serving()
        .map(|(share, one)| Some(share * one.requests_per_second * one.response_mean_us?))
        .sum();
    (time > 0.0).then(|| Expected {
        requests_per_second: mean(|one| one.requests_per_second),
        bytes_per_second: mean(|one| one.bytes_per_second),
        response_mean_us: waited
            .filter(|_| requests > 0.0)
            .map(|waited| waited / requests),
    })
}

impl StateFigures {
    fn of(runs: &[&PhaseFigures]) -> Option<StateFigures> {
        let over = |get: fn(&PhaseFigures) -> Option<f64>| {
            let known: Vec<f64> = runs.iter().filter_map(|run| get(run)).collect();
            Estimate::of(&known)
        };
        Some(StateFigures {
            requests_per_second: over(|run| Some(run.requests_per_second))?,
            bytes_per_second: over(|run| Some(run.bytes_per_second))?,
            response_mean_us: over(|run| run.response_mean_us),
            response_p99_us: over(|run| run.response_p99_us),
            failed_share: over(|run| Some(run.failed_share))?,
        })
    }
}

impl SystemState {
    /// The state's name: `normal`, `slow link and slow disk`, or `more than the faults of disks`.
    pub fn name(&self) -> String {
        let more = self
            .more
            .iter()
            .map(|component| format!("more failures of {component}"));
        let parts: Vec<String> = self.faults.iter().cloned().chain(more).collect();
        match parts.is_empty() {
            true => "normal".into(),
            false => parts.join(" and "),
        }
    }
}

impl TimeShare {
    /// `99.4%`, or `99.4% to 99.9%`.
    pub fn describe(&self) -> String {
        let [least, most] = [self.at_least, self.at_most].map(share_in_words);
        match least == most {
            true => least,
            false => format!("{least} to {most}"),
        }
    }
}

/// A share of time in percent, with three significant digits of the distance to 0 or 100 %: `99.9954%`, because
/// `100%` would hide the difference that matters.
pub fn share_in_words(share: f64) -> String {
    let percent = share * 100.0;
    let distance = percent.min(100.0 - percent);
    match distance {
        _ if distance <= 0.0 => format!("{percent:.0}%"),
        _ if distance >= 1e-9 => {
            // Add a little, so that the logarithm of 10 isn't rounded down to 0.
            let size = (distance.log10() + 1e-9).floor();
            let decimals = (2.0 - size).clamp(0.0, 12.0) as usize;
            format!("{percent:.decimals$}%")
        }
        _ if percent < 50.0 => "<0.000000001%".into(),
        _ => ">99.999999999%".into(),
    }
}

/// A share of time as its part of a year: `363 d`, `48.4 h`, `2.10 min`, `0.50 s`.
pub fn part_of_year(share: f64) -> String {
    let seconds = share * YEAR_S;
    let units = [(86_400.0, "d"), (3600.0, "h"), (60.0, "min")];
    let fits = units.iter().find(|(length, _)| seconds >= 2.0 * length);
    let (length, unit) = fits.copied().unwrap_or((1.0, "s"));
    let value = seconds / length;
    match value {
        _ if value == 0.0 => "0 s".into(),
        _ if value < 0.01 => "<0.01 s".into(),
        _ if value >= 99.95 => format!("{value:.0} {unit}"),
        _ if value >= 9.995 => format!("{value:.1} {unit}"),
        _ => format!("{value:.2} {unit}"),
    }
}

#[cfg(test)]
mod tests;
