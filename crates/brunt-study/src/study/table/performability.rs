//! The expected service of a point over years of failures and repairs, as shown on a terminal below its faults.
//!
//! The rule: a state that was not measured has a row too, with its share of the time.

use brunt_core::units::counted;
use brunt_result::performability::{Performability, SystemState, part_of_year, share_in_words};
use brunt_result::require::RequirementVerdict;

use super::cells::{count, time, width};

/// Maximum number of states to show; the summary has all.
const STATES_SHOWN: usize = 12;
/// Width of a state's name; a longer name gets its own line.
const NAME: usize = 22;

/// The lines to print; empty if nothing is expected.
pub(super) fn lines(found: Option<&Performability>) -> Vec<String> {
    let Some(found) = found else {
        return Vec::new();
    };
    let threshold = found.system.threshold.as_ref();
    let mut lines = vec![
        "  over years, with the experiment's times to failure and to repair:".to_string(),
        row(
            "",
            ["of the time", "a year", "requests/s", "±", "mean", "p99"].map(String::from),
            "",
        ),
    ];
    for state in found.states.iter().take(STATES_SHOWN) {
        lines.extend(of_state(state));
    }
    let hidden = found.states.get(STATES_SHOWN..).unwrap_or_default();
    if !hidden.is_empty() {
        let share = hidden.iter().map(|state| state.probability).sum();
        let (states, share) = (counted(hidden.len(), "rarer state"), share_in_words(share));
        lines.push(format!("    {states}: {share} of the time together"));
    }
    lines.push(match found.requests_per_second {
        Some(rate) => {
            let mean = found.response_mean_us;
            let mean = mean.map_or(String::new(), |mean| {
                format!(", mean response {}", time(mean.mean))
            });
            format!(
                "    expected: {} requests/s ± {}{mean}",
                count(rate.mean),
                width(Some(rate))
            )
        }
        None => "    expected: unknown, because no run has all measured states".to_string(),
    });
    if found.not_measured > 0.0 {
        let share = share_in_words(found.not_measured);
        let least = found.requests_per_second_least;
        let least = least.map_or(String::new(), |least| {
            format!(
                "; {} requests/s if nothing is served then",
                count(least.mean)
            )
        });
        lines.push(format!("    not measured: {share} of the time{least}"));
    }
    if let (Some(level), Some(share)) = (threshold, found.available) {
        lines.push(format!("    {level}: {} of the time", share.describe()));
    }
    if found.runs_left_out > 0 {
        let runs = counted(found.runs_left_out, "run");
        lines.push(format!(
            "    {runs} left out, without one of the measured states"
        ));
    }
    lines
}

fn of_state(state: &SystemState) -> Vec<String> {
    let (share, year) = (
        share_in_words(state.probability),
        part_of_year(state.probability),
    );
    let mut name = state.name();
    let mut lines = Vec::new();
    if name.chars().count() > NAME {
        lines.push(format!("    {}", std::mem::take(&mut name)));
    }
    let Some(figures) = &state.measured else {
        lines.push(format!(
            "    {name:<NAME$} {share:>12} {year:>8}  not measured"
        ));
        return lines;
    };
    let us = |mean: Option<f64>| mean.map_or("-".to_string(), time);
    let cells = [
        share,
        year,
        count(figures.requests_per_second.mean),
        width(Some(figures.requests_per_second)),
        us(figures.response_mean_us.map(|mean| mean.mean)),
        us(figures.response_p99_us.map(|p99| p99.mean)),
    ];
    lines.push(row(
        &name,
        cells,
        state.service.map_or("", RequirementVerdict::name),
    ));
    lines
}

fn row(
    name: &str,
    [share, year, rate, rate_width, mean, p99]: [String; 6],
    verdict: &str,
) -> String {
    let line = format!(
        "    {name:<NAME$} {share:>12} {year:>8} {rate:>10} {rate_width:>5} {mean:>6} {p99:>6} {verdict}"
    );
    line.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::degradation::{PhaseFigures, PhaseKind};
    use brunt_result::performability::{FailingComponent, FailingSystem};

    #[test]
    fn measured_and_other_states_have_rows() {
        assert_eq!(lines(None), Vec::<String>::new());
        let component = |name: &str, mttf_s: f64| FailingComponent {
            name: name.into(),
            faults: vec![name.into()],
            units: 1,
            mttf_s,
            mttr_s: 10.0,
            repairs_at_once: 1,
        };
        let system = FailingSystem {
            components: vec![
                component("slow link", 990.0),
                component("dead disk", 99_990.0),
            ],
            threshold: Some("iops above 500".parse().unwrap()),
        };
        let phase = |faults: &[&str], requests_per_second: f64| PhaseFigures {
            kind: if faults.is_empty() {
                PhaseKind::Before
            } else {
                PhaseKind::During
            },
            faults: faults.iter().map(|fault| fault.to_string()).collect(),
            intervals: 9,
            end_s: 1.0,
            requests_per_second,
            response_mean_us: Some(150.0),
            ..PhaseFigures::default()
        };
        let run = |rate: f64| vec![phase(&[], rate), phase(&["slow link"], rate / 10.0)];
        let (first, second, short) = (run(1000.0), run(1010.0), vec![phase(&[], 1.0)]);
        let found = Performability::of(&system, &[&first[..], &second, &short]);
        let lines = lines(Some(&found));
        let said = lines.join("\n");
        let words: Vec<&str> = said.split_whitespace().collect();
        let words = words.join(" ");
        for part in [
            "normal 98.99% 362 d 1005 6% 150us - met",
            "slow link 1.000% 3.65 d 100 6% 150us - missed",
            "not measured slow link and dead disk",
            "expected: 996 requests/s ± 6%, mean response 150us",
            "not measured: 0.0100",
            "; 996 requests/s if nothing is served then",
            "iops above 500: 98.99% to 99.000% of the time",
            "1 run left out, without one of the measured states",
        ] {
            assert!(words.contains(part), "{part} in\n{said}");
        }
    }
}
