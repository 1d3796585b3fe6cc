//! Runs on several hosts, as recorded by a study: how far apart the hosts started and ended, and which were lost.
//!
//! The rules: a run that loses workers is kept with its figures, but is marked and excluded from estimates; if hosts
//! ended at different times, rates cover only the time in which all of them worked.

use std::collections::BTreeMap;
use std::time::Duration;

use brunt_core::units::counted;
use brunt_result::hosts::{CommonTime, HostFigures, JournalsLost, RequestsLost, StartSpread};
use brunt_result::summary::RunSummary;
use brunt_result::{Outcome, Stopped};

use crate::rounded::rounded;

/// Hosts whose ends are further apart than this share of the run did not end together.
const APART: f64 = 0.01;

/// Adds the hosts of a run to its summary. A run that lost a host is incomplete, even if it ran to the end.
pub(super) fn add(run: &mut RunSummary, outcome: &mut Outcome, hosts: Vec<HostFigures>) {
    if hosts.iter().any(|host| host.lost.is_some()) {
        if outcome.is_complete() {
            (outcome.stopped, run.stopped) = (Stopped::HostLost, Stopped::HostLost);
        }
        // The lost host's own rate covers only its short life; adding it would count the host as if it had continued.
        outcome.rate_over_all_of_the_time();
    } else if let Some(common) = outcome
        .common
        .take()
        .filter(|common| is_apart(common, outcome, &hosts))
    {
        match common.seconds > 0.0 {
            true => {
                outcome.requests_per_second = common.requests as f64 / common.seconds;
                outcome.bytes_per_second = common.bytes as f64 / common.seconds;
            }
            false => outcome.rate_over_all_of_the_time(),
        }
        run.common = Some(common);
    }
    run.requests_per_second = outcome.requests_per_second;
    run.bytes_per_second = outcome.bytes_per_second;
    run.hosts = hosts;
    run.doubts.extend(lost(run));
    run.doubts.extend(unrecorded(run));
}

/// Whether hosts ended so far apart that the sum of their rates would be wrong, and further apart than their clocks
/// may differ.
fn is_apart(common: &CommonTime, outcome: &Outcome, hosts: &[HostFigures]) -> bool {
    let measured_s = outcome.end.since(outcome.start).as_secs_f64();
    let clock_error_us = hosts
        .iter()
        .filter_map(|host| host.clock_error_us)
        .fold(0.0, f64::max);
    hosts.len() > 1 && common.ended_apart_s > (APART * measured_s).max(2.0 * clock_error_us / 1e6)
}

/// Requests or journals of acknowledged writes that are missing from the run's record: how many, from which host and
/// why. The run's figures include them.
pub(super) fn unrecorded(run: &RunSummary) -> Option<String> {
    let requests = |host: &HostFigures| {
        let RequestsLost { count, why } = host.requests_lost.as_ref()?;
        let count = counted(usize::try_from(*count).unwrap_or(usize::MAX), "request");
        Some(format!(
            "host {}: {count} missing from the record: {why}",
            host.name
        ))
    };
    let journals = |host: &HostFigures| {
        let JournalsLost { workers, why } = host.journals_lost.as_ref()?;
        let workers = counted(*workers as usize, "worker");
        Some(format!(
            "host {}: the journals of {workers} are missing: {why}",
            host.name
        ))
    };
    let missing = run
        .hosts
        .iter()
        .flat_map(|host| [requests(host), journals(host)]);
    let missing: Vec<String> = missing.flatten().collect();
    (!missing.is_empty()).then(|| missing.join("; "))
}

/// The hosts that a run lost, with the time and the reason of each loss.
pub(super) fn lost(run: &RunSummary) -> Option<String> {
    let lost = run.hosts.iter().filter_map(|host| {
        let loss = host.lost.as_ref()?;
        let when = match loss.after_s > 0.0 {
            true => format!(
                "{} after the start",
                rounded(Duration::from_secs_f64(loss.after_s))
            ),
            false => "before the start".to_string(),
        };
        // The reason begins with the host's name.
        Some(format!("lost {when}: {}", loss.why))
    });
    let lost: Vec<String> = lost.collect();
    (!lost.is_empty()).then(|| lost.join("; "))
}

/// The hosts with failed requests in these runs: how many requests, and one error of each host.
pub(super) fn failures(runs: &[&RunSummary]) -> Option<String> {
    let mut of_hosts: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
    for host in runs
        .iter()
        .flat_map(|run| &run.hosts)
        .filter(|host| host.failed > 0)
    {
        let (failed, error) = of_hosts.entry(&host.name).or_default();
        *failed += host.failed;
        if error.is_empty() {
            *error = host.first_error.as_deref().unwrap_or_default();
        }
    }
    let said = of_hosts
        .iter()
        .map(|(name, (failed, error))| format!("{failed} on {name} ({error})"));
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| format!("requests failed: {}", said.join(", ")))
}

/// The largest difference between the start times of hosts in any of these runs.
pub(super) fn note(runs: &[&RunSummary]) -> Option<String> {
    let spreads = runs.iter().filter_map(|run| StartSpread::of(&run.hosts));
    let StartSpread {
        spread_us,
        error_us,
    } = spreads.max_by(|one, other| one.spread_us.total_cmp(&other.spread_us))?;
    let of = if runs.len() > 1 { " at most" } else { "" };
    Some(format!(
        "hosts started within {spread_us:.0} us{of}, ± {error_us:.0} us (their clocks)"
    ))
}

/// The part of a run that the rates cover if its hosts ended at different times, for the run whose rates leave out
/// the most. Two lines.
pub(super) fn ends(runs: &[&RunSummary]) -> Option<[String; 2]> {
    let apart = runs
        .iter()
        .filter_map(|run| Some((run, run.common.as_ref()?)));
    let (run, common) =
        apart.max_by(|(_, one), (_, other)| one.left_out().total_cmp(&other.left_out()))?;
    let ended = run
        .hosts
        .iter()
        .filter_map(|host| Some((host.ended_s?, host.name.as_str())));
    let first = ended
        .min_by(|one, other| one.0.total_cmp(&other.0))
        .map_or("a host", |(_, name)| name);
    let seconds = |seconds: f64| rounded(Duration::from_millis((seconds * 1e3).round() as u64));
    let of = match common.seconds > 0.0 {
        true => {
            let (time, share) = (seconds(common.seconds), common.left_out() * 100.0);
            format!(
                "rates cover the {time} in which all hosts ran, without {share:.0}% of the requests"
            )
        }
        false => "rates cover the whole run: a host ended in its first interval".to_string(),
    };
    Some([
        of,
        format!(
            "{first} ended first, {} before the last host",
            seconds(common.ended_apart_s)
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_core::Nanos;
    use brunt_result::hosts::HostLoss;
    use brunt_result::{Figures, OpKind};

    fn host(name: &str, began_us: f64, lost: Option<HostLoss>) -> HostFigures {
        let (began_us, clock_error_us) = (Some(began_us), Some(10.0));
        HostFigures {
            name: name.into(),
            began_us,
            clock_error_us,
            lost,
            ..HostFigures::default()
        }
    }

    fn run(hosts: Vec<HostFigures>) -> RunSummary {
        let mut outcome = Outcome {
            stopped: Stopped::Done,
            ..Outcome::interrupted()
        };
        let mut run = RunSummary::of(&outcome, 0, 0, 1, None);
        add(&mut run, &mut outcome, hosts);
        assert_eq!(run.stopped, outcome.stopped);
        run
    }

    #[test]
    fn a_run_that_lacks_a_host_is_marked() {
        let whole = run(vec![host("a", 3.0, None), host("b", 40.0, None)]);
        assert!(whole.is_complete() && whole.doubts.is_empty());
        let loss = HostLoss {
            after_s: 1.5,
            why: "host b: it ended".into(),
        };
        let lacking = run(vec![host("a", 3.0, None), host("b", 40.0, Some(loss))]);
        assert!(!lacking.is_complete() && lacking.stopped == Stopped::HostLost);
        assert_eq!(
            lacking.doubts,
            ["lost 1.5s after the start: host b: it ended"]
        );
    }

    /// Requests that are missing from the record are reported, and the run counts: its figures include all requests.
    #[test]
    fn unrecorded_requests_are_reported() {
        let lost = RequestsLost {
            count: 1,
            why: "less than 64 MiB are free".into(),
        };
        let lacking = run(vec![HostFigures {
            requests_lost: Some(lost),
            ..host("a", 3.0, None)
        }]);
        assert!(lacking.is_complete());
        assert_eq!(
            lacking.doubts,
            ["host a: 1 request missing from the record: less than 64 MiB are free"]
        );
        let lost = JournalsLost {
            workers: 2,
            why: "the disk is full".into(),
        };
        let lacking = run(vec![HostFigures {
            journals_lost: Some(lost),
            ..host("a", 3.0, None)
        }]);
        assert!(lacking.is_complete());
        assert_eq!(
            lacking.doubts,
            ["host a: the journals of 2 workers are missing: the disk is full"]
        );
    }

    /// A host that made 100 requests in the first of ten seconds adds ten per second to the total, not a hundred.
    #[test]
    fn a_lost_host_counts_with_what_it_did() {
        let rates = |lost| {
            let mut figures = Figures::of_kinds(&[OpKind::Read]);
            (
                figures.at(0).completed,
                figures.at(0).bytes,
                figures.at(0).late,
            ) = (1101, 4510, 1);
            let (start, end) = (Nanos(1_000_000_000), Nanos(11_000_000_000));
            let sums = Outcome {
                requests_per_second: 200.0,
                bytes_per_second: 820.0,
                ..Outcome::interrupted()
            };
            let mut outcome = Outcome {
                figures,
                start,
                end,
                stopped: Stopped::Done,
                ..sums
            };
            let mut run = RunSummary::of(&outcome, 0, 0, 1, None);
            add(
                &mut run,
                &mut outcome,
                vec![host("a", 3.0, None), host("b", 40.0, lost)],
            );
            assert_eq!(outcome.requests_per_second, run.requests_per_second);
            [run.requests_per_second, run.bytes_per_second]
        };
        assert_eq!(rates(None), [200.0, 820.0]);
        assert_eq!(
            rates(Some(HostLoss {
                after_s: 1.0,
                why: "host b: it ended".into()
            })),
            [110.0, 451.0]
        );
    }

    /// Two hosts each send 80,000 requests to a target that completes 100,000 per second: one host ends after a
    /// second, and in the next second the other completes its remaining 20,000. The sum of the hosts' own rates,
    /// 130,000, exceeds what the target ever completed in a second.
    #[test]
    fn hosts_that_end_at_different_times_count_while_all_ran() {
        let rates = |common: Option<CommonTime>| {
            let mut figures = Figures::of_kinds(&[OpKind::Read]);
            (figures.at(0).completed, figures.at(0).bytes) = (160_000, 1_600_000);
            let (start, end) = (Nanos(1_000_000_000), Nanos(2_600_000_000));
            let sums = Outcome {
                requests_per_second: 130e3,
                bytes_per_second: 1.3e6,
                ..Outcome::interrupted()
            };
            let mut outcome = Outcome {
                figures,
                start,
                end,
                stopped: Stopped::Done,
                common,
                ..sums
            };
            let mut run = RunSummary::of(&outcome, 0, 0, 1, None);
            let ended = |name: &str, ended_s| HostFigures {
                ended_s: Some(ended_s),
                ..host(name, 3.0, None)
            };
            add(
                &mut run,
                &mut outcome,
                vec![ended("a", 1.6), ended("b", 1.0)],
            );
            assert!(run.is_complete() && outcome.requests_per_second == run.requests_per_second);
            (
                run.requests_per_second,
                run.bytes_per_second,
                ends(&[&run])
                    .map(|lines| lines.join("; "))
                    .unwrap_or_default(),
            )
        };
        let common = |seconds, requests: u64, ended_apart_s| {
            let (bytes, requests_left_out) = (requests * 10, 160_000 - requests);
            Some(CommonTime {
                seconds,
                requests,
                bytes,
                requests_left_out,
                ended_apart_s,
            })
        };
        assert_eq!(rates(None), (130e3, 1.3e6, String::new()));
        let apart = "b ended first, 600ms before the last host";
        let while_all = format!(
            "rates cover the 1s in which all hosts ran, without 38% of the requests; {apart}"
        );
        assert_eq!(rates(common(1.0, 100_000, 0.6)), (100e3, 1e6, while_all));
        let of_all =
            format!("rates cover the whole run: a host ended in its first interval; {apart}");
        assert_eq!(rates(common(0.0, 0, 0.6)), (100e3, 1e6, of_all));
        // These ends count as simultaneous: the difference is less than a hundredth of the run, or less than the
        // clocks may differ.
        assert_eq!(
            rates(common(1.6, 160_000, 0.015)),
            (130e3, 1.3e6, String::new())
        );
    }

    #[test]
    fn hosts_on_which_requests_fail_are_named() {
        let failing = |failed, first_error: &str| HostFigures {
            failed,
            first_error: Some(first_error.into()),
            ..host("b", 1.0, None)
        };
        let runs = [
            run(vec![host("a", 3.0, None), failing(40, "write: full")]),
            run(vec![host("a", 3.0, None), failing(2, "write: still full")]),
        ];
        assert_eq!(
            failures(&runs.each_ref()).unwrap(),
            "requests failed: 42 on b (write: full)"
        );
        assert_eq!(failures(&[&run(vec![host("a", 3.0, None)])]), None);
    }

    #[test]
    fn the_widest_start_is_noted() {
        let (close, wide) = (
            run(vec![host("a", 3.0, None), host("b", 4.0, None)]),
            run(vec![
                host("a", 3.0, None),
                host("b", 90.0, None),
                host("c", 50.0, None),
            ]),
        );
        assert_eq!(note(&[]), None);
        let said = note(&[&close, &wide]).unwrap();
        assert_eq!(
            said,
            "hosts started within 87 us at most, ± 20 us (their clocks)"
        );
    }
}
