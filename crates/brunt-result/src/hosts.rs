//! Figures of each of several hosts in a run, and how far apart they started. Filled by loads whose workers are on
//! other hosts, and stored in the summary of a run.
//!
//! The rules: a time measured across hosts comes with its maximum error; rates that were measured over different
//! times are not added up.

use brunt_core::IoEngine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::part;
use crate::{OpFigures, OpKind, Outcome};

/// A host's part of a run. A host that runs only services is listed only if it was lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostFigures {
    /// The host's name in the experiment.
    pub name: String,
    /// Worker threads.
    pub workers: u32,
    /// Engine that issued the host's requests; `null` for a host without workers or whose load needs none, and in
    /// results written before it was recorded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub engine: Option<IoEngine>,
    /// Requests per second of the host's workers.
    pub requests_per_second: f64,
    /// Bytes per second of the host's workers.
    pub bytes_per_second: f64,
    /// Rates of the host's workers for each kind of operation.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ops: Vec<HostOpRate>,
    /// Requests of the host's workers that failed.
    #[serde(skip_serializing_if = "is_none_failed", default)]
    pub failed: u64,
    /// The first error of one of the failed requests.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_error: Option<String>,
    /// When the host's first worker began, in microseconds after the time at which all hosts should have started;
    /// `null` if no worker began. The first request of an open loop may be due later.
    pub began_us: Option<f64>,
    /// When the host's last worker had measured everything, in seconds after the time at which all hosts should have
    /// started; for a host that was lost, the end of the last interval received.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_s: Option<f64>,
    /// Uncertainty of `began_us` in either direction, because the clocks of host and controller are not known more
    /// accurately.
    pub clock_error_us: Option<f64>,
    /// How many nanoseconds the host's `CLOCK_MONOTONIC` was ahead of the controller's when the host began: lower and
    /// upper bound.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clock_ahead_ns: Option<[i64; 2]>,
    /// Shortest round trip to the host's agent.
    pub round_trip_us: f64,
    /// Bytes sent to the host's agent since the experiment began.
    pub sent_bytes: u64,
    /// Bytes received from the host's agent since the experiment began.
    pub received_bytes: u64,
    /// Set if the host was lost in this run or an earlier one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<HostLoss>,
    /// Requests of the host's workers that are missing from the record (`record_requests`) but included in its
    /// figures.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub requests_lost: Option<RequestsLost>,
    /// Missing journals of acknowledged writes (`verify.journal`) of the host's workers: `brunt verify` cannot check
    /// what these workers wrote.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub journals_lost: Option<JournalsLost>,
}

/// Rates of one kind of operation on one host; the rates of all kinds add up to the host's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostOpRate {
    /// Kind of operation.
    pub op: OpKind,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Bytes per second; 0 for a kind that moves no data.
    pub bytes_per_second: f64,
}

impl HostFigures {
    /// Adds the rates of one of the host's workers.
    pub fn add(&mut self, outcome: &Outcome) {
        self.requests_per_second += outcome.requests_per_second;
        self.bytes_per_second += outcome.bytes_per_second;
        // Each kind's part of the total rate, by requests completed in time, as in a run's summary.
        let requests = |figures: &OpFigures| figures.completed.saturating_sub(figures.late);
        let bytes = |op: OpKind, figures: &OpFigures| match op.moves_bytes() {
            true => figures.bytes.saturating_sub(figures.late_bytes),
            false => 0,
        };
        let (all_requests, all_bytes) = (
            outcome.figures.completed_in_time(),
            outcome.figures.bytes_in_time(),
        );
        for (op, figures) in outcome.figures.ops() {
            let requests = part(outcome.requests_per_second, requests(figures), all_requests);
            let bytes = part(outcome.bytes_per_second, bytes(op, figures), all_bytes);
            match self.ops.iter_mut().find(|rate| rate.op == op) {
                Some(rate) => {
                    rate.requests_per_second += requests;
                    rate.bytes_per_second += bytes;
                }
                None => self.ops.push(HostOpRate {
                    op,
                    requests_per_second: requests,
                    bytes_per_second: bytes,
                }),
            }
        }
    }
}

/// Journals of acknowledged writes that were kept on a host but did not arrive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JournalsLost {
    /// Number of workers whose journals are missing.
    pub workers: u32,
    /// Why the journals are missing.
    pub why: String,
}

/// Requests that were made but are missing from the record of single requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestsLost {
    /// Number of missing requests; for a host that was lost, those counted in its intervals until then.
    pub count: u64,
    /// Why the requests are missing.
    pub why: String,
}

fn is_none_failed(failed: &u64) -> bool {
    *failed == 0
}

/// How a host was lost. The figures exclude the work that the host would have done after its loss.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostLoss {
    /// When the loss was noticed, in seconds after the start of the run; 0 if before.
    pub after_s: f64,
    /// What was noticed.
    pub why: String,
}

/// The time during which all workers of a run were working, for a run whose workers ended at different times. The sum
/// of the workers' own rates would not be the rate at any time: a host that continues alone has the storage to
/// itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommonTime {
    /// Length of this time in seconds, in intervals that all workers measured completely. 0 if there are none; the
    /// rates then cover the whole run.
    pub seconds: f64,
    /// Requests completed in this time.
    pub requests: u64,
    /// Bytes of these requests.
    pub bytes: u64,
    /// Requests completed before and after this time, which the rates do not include.
    pub requests_left_out: u64,
    /// Seconds from the end of the first worker to the end of the last.
    pub ended_apart_s: f64,
}

impl CommonTime {
    /// The share of requests that the rates do not include.
    pub fn left_out(&self) -> f64 {
        self.requests_left_out as f64 / (self.requests + self.requests_left_out).max(1) as f64
    }
}

/// How far apart hosts started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StartSpread {
    /// From the first host's start to the last host's, in microseconds.
    pub spread_us: f64,
    /// Maximum error: the sum of both clocks' errors.
    pub error_us: f64,
}

impl StartSpread {
    /// The spread over hosts that made requests; `None` for fewer than two.
    pub fn of(hosts: &[HostFigures]) -> Option<StartSpread> {
        let began = |host: &HostFigures| Some((host.began_us?, host.clock_error_us?));
        let mut began: Vec<(f64, f64)> = hosts.iter().filter_map(began).collect();
        began.sort_by(|one, other| one.0.total_cmp(&other.0));
        let [(first, first_error), .., (last, last_error)] = began[..] else {
            return None;
        };
        Some(StartSpread {
            spread_us: last - first,
            error_us: first_error + last_error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_has_the_errors_of_both_ends() {
        let host = |began_us, clock_error_us| HostFigures {
            began_us,
            clock_error_us,
            ..HostFigures::default()
        };
        let check = |hosts: &[HostFigures], expected: Option<(f64, f64)>| {
            let found = StartSpread::of(hosts).map(|found| (found.spread_us, found.error_us));
            assert_eq!(found, expected);
        };
        check(&[], None);
        check(&[host(Some(1.0), Some(2.0)), host(None, None)], None);
        let three = [
            host(Some(70.0), Some(3.0)),
            host(Some(-5.0), Some(40.0)),
            host(Some(60.0), Some(99.0)),
        ];
        check(&three, Some((75.0, 43.0)));
    }
}
