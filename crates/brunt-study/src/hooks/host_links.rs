//! Links between other machines during a run (`[links]`): applied and proven with probe packets before the run,
//! removed after it. An inline bridge, or netem on both hosts, applies the settings as faults of the agents, so an
//! agent whose controller dies removes them itself.
//!
//! The rule: a run starts only if probe packets show every setting of its point, and no setting outlives its run.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use brunt_host::{FaultEnd, Fleet};
use brunt_lab::link::Settings;
use brunt_protocol::{HostFault, PathFigure, Proof};
use brunt_result::Outcome;
use brunt_result::link::LinkProof;
use brunt_result::summary::RunSummary;
use brunt_result::void::VoidReason;

use super::{HookError, RunHook};
use crate::experiment::{HostLink, HostLinkCarrier};
use crate::observe::{Hub, RunInfo};

/// Number of echo requests to find the shortest round trip, and the time between two of them.
const ROUND_TRIPS: (u32, Duration) = (10, Duration::from_millis(10));
/// Bytes of data in requests that don't measure a rate.
const SHORT_BYTES: u32 = 32;
/// Bytes of data in requests that measure a rate; with all headers and Ethernet's overhead, the request has 1466
/// bytes on the wire.
const LONG_BYTES: u32 = 1400;
const LONG_WIRE_BITS: f64 = 1466.0 * 8.0;
/// Bits on the wire for a request with [`SHORT_BYTES`] of data.
const SHORT_WIRE_BITS: f64 = 98.0 * 8.0;
/// Expected number of losses: four standard deviations of 20 losses (4 · √20 = 17.9) exclude a link without loss.
const LOSSES: f64 = 20.0;
/// Limits for the number of requests that measure a loss.
const LOSS_REQUESTS: (f64, f64) = (200.0, 20_000.0);
/// Shortest time between requests that measure a loss: no kernel takes that long to reply.
const LOSS_INTERVAL: Duration = Duration::from_micros(500);
/// Number of standard deviations by which the number of losses may differ from the expected number.
const DEVIATIONS: f64 = 4.0;
/// How long a train of requests keeps a line busy: long enough that it hardly matters if a busy agent reads late.
const TRAIN: Duration = Duration::from_millis(200);
/// Maximum number of attempts to measure a rate: an agent that gets no CPU time reads replies late.
const RATE_ATTEMPTS: u32 = 3;
/// Limits for the number of requests in a train.
const TRAIN_REQUESTS: (f64, f64) = (16.0, 2_000.0);
/// A measured rate may be off by these factors from the rate that was set.
const RATE_FACTORS: (f64, f64) = (0.8, 1.25);
/// How much less than the set delay the shortest round trips may show, in seconds: clocks and the path itself vary.
const EARLY_S: f64 = 0.0003;
/// How much more than the set delay they may show, in seconds and as a share of the delay.
const LATE: (f64, f64) = (0.002, 0.05);

/// Applies links for each run; `points` has the settings of all links at each point of the experiment, and each link
/// comes with the address to which its first host sends probe packets.
pub(super) fn host_links(
    fleet: &Arc<Fleet>,
    links: Vec<(HostLink, Ipv4Addr)>,
    points: Vec<BTreeMap<String, [Settings; 2]>>,
) -> Box<dyn RunHook> {
    let (put, proofs) = Default::default();
    Box::new(HostLinks {
        fleet: Arc::clone(fleet),
        links,
        points,
        put,
        proofs,
    })
}

/// The hook.
struct HostLinks {
    fleet: Arc<Fleet>,
    links: Vec<(HostLink, Ipv4Addr)>,
    points: Vec<BTreeMap<String, [Settings; 2]>>,
    /// Settings in effect: the link, the host, and the number of the settings at that host's agent.
    put: Vec<(String, String, u32)>,
    proofs: BTreeMap<String, LinkProof>,
}

/// Probe packets contradict the settings of a link.
#[derive(Debug, thiserror::Error)]
enum NotProven {
    /// The round trip contradicts the settings.
    #[error(
        "a delay of {set_ms:.3} ms there and back is set, but the shortest round trip grew from {before_ms:.3} ms to \
         {seen_ms:.3} ms"
    )]
    Delay {
        set_ms: f64,
        before_ms: f64,
        seen_ms: f64,
    },
    /// The share of requests without a reply contradicts the settings.
    #[error(
        "a loss of {set_percent:.3} % there and back is set, but {seen_percent:.3} % of {requests} echo requests had no \
         reply"
    )]
    Loss {
        set_percent: f64,
        seen_percent: f64,
        requests: u32,
    },
    /// The rate of replies contradicts the settings.
    #[error("a rate of {set_mbps:.3} Mb/s is set, but echo replies arrived at {seen_mbps:.3} Mb/s")]
    Rate { set_mbps: f64, seen_mbps: f64 },
    /// The agent sent no figure.
    #[error("host {0}: its agent reported a probe without a figure")]
    NoFigure(String),
}

impl HostLinks {
    /// Applies and proves a link's settings.
    fn apply(
        &mut self,
        link: &HostLink,
        to: Ipv4Addr,
        settings: &[Settings; 2],
    ) -> Result<LinkProof, HookError> {
        let before = self.probe(link, to, PathFigure::RoundTrip, round_trips())?;
        let mut proof = LinkProof {
            carrier: describe_carrier(&link.carrier),
            set: settings.each_ref().map(describe),
            clear_round_trip_us: before * 1e6,
            ..LinkProof::default()
        };
        if settings.iter().all(Settings::is_clear) {
            return Ok(proof);
        }
        for (host, fault) in impairments(link, settings) {
            let put = self.fleet.put_fault(&host, fault);
            let (number, _) = put.map_err(|error| failed(&link.name, error))?;
            self.put.push((link.name.clone(), host, number));
        }
        let wrong = |error| HookError::not_ready(format!("link {}", link.name), error);
        let seen = self.probe(link, to, PathFigure::RoundTrip, round_trips())?;
        judge_delay(settings, before, seen).map_err(wrong)?;
        proof.round_trip_us = Some(seen * 1e6);
        let loss = loss(settings);
        if loss > 0.0 {
            let requests = losses(settings, loss);
            let seen = self.probe(link, to, PathFigure::Loss, requests)?;
            judge_loss(loss, seen, requests.requests).map_err(wrong)?;
            proof.loss = Some(seen);
        }
        if let Some(rate) = rate(settings) {
            let seen = self.prove_rate(link, to, rate, loss)?;
            proof.bits_per_second = Some(seen);
        }
        Ok(proof)
    }

    /// Measures the rate of a line that is set to `set` bits per second, until a train shows that rate.
    fn prove_rate(
        &self,
        link: &HostLink,
        to: Ipv4Addr,
        set: f64,
        loss: f64,
    ) -> Result<f64, HookError> {
        let mut attempt = 1;
        loop {
            let seen = self.probe(link, to, PathFigure::Rate, train(set))?;
            match judge_rate(set, loss, seen) {
                Ok(()) => return Ok(seen),
                Err(error) if attempt == RATE_ATTEMPTS => {
                    return Err(HookError::not_ready(format!("link {}", link.name), error));
                }
                Err(_) => attempt += 1,
            }
        }
    }

    /// A property of the path, measured with these requests.
    fn probe(
        &self,
        link: &HostLink,
        to: Ipv4Addr,
        figure: PathFigure,
        requests: EchoRequests,
    ) -> Result<f64, HookError> {
        let fault = HostFault::ProbePath {
            address: to.into(),
            figure,
            requests: requests.requests,
            interval_us: requests.interval.as_micros() as u64,
            payload_bytes: requests.payload_bytes,
        };
        let put = self.fleet.put_fault(&link.from, fault);
        let (number, Proof { value, .. }) = put.map_err(|error| failed(&link.name, error))?;
        let removed = self.fleet.remove_fault(&link.from, number);
        removed.map_err(|error| failed(&link.name, error))?;
        value.ok_or_else(|| {
            let error = NotProven::NoFigure(link.from.clone());
            HookError::not_ready(format!("link {}", link.name), error)
        })
    }

    /// Removes everything in effect, even after an error; returns the first error.
    fn clear(&mut self) -> Result<(), HookError> {
        let mut result = Ok(());
        for (link, host, number) in std::mem::take(&mut self.put).into_iter().rev() {
            if let Err(error) = self.fleet.remove_fault(&host, number) {
                let reason = match &error {
                    FaultEnd::Lost(_) => VoidReason::FaultHostLost,
                    FaultEnd::Failed { .. } | FaultEnd::Slow { .. } => VoidReason::FaultNotGone,
                };
                let error = HookError::new(reason, format!("link {link}")).because(error);
                result = result.and(Err(error));
            }
        }
        result
    }
}

impl RunHook for HostLinks {
    fn begin(&mut self, run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
        self.proofs.clear();
        let settings = self.points[run.point as usize].clone();
        for (link, to) in self.links.clone() {
            let proof = self.apply(&link, to, &link.carried(&settings[&link.name]))?;
            self.proofs.insert(link.name, proof);
        }
        Ok(())
    }

    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        self.clear()
    }

    fn sum_up(&mut self, run: &mut RunSummary, _outcome: &Outcome) {
        run.link_proofs = std::mem::take(&mut self.proofs);
    }
}

impl Drop for HostLinks {
    fn drop(&mut self) {
        // The agent of a host that was lost removes the settings itself.
        let _ = self.clear();
    }
}

/// The error for a host that can't apply or probe a link.
fn failed(link: &str, error: FaultEnd) -> HookError {
    let reason = match &error {
        FaultEnd::Lost(_) => VoidReason::FaultHostLost,
        FaultEnd::Failed { .. } | FaultEnd::Slow { .. } => VoidReason::NotReady,
    };
    HookError::new(reason, format!("link {link}")).because(error)
}

/// The request to each host for these settings.
fn impairments(link: &HostLink, settings: &[Settings; 2]) -> Vec<(String, HostFault)> {
    // Settings consist of numbers, strings and booleans, so JSON can represent them.
    let json = |settings: &Settings| serde_json::to_value(settings).unwrap_or_default();
    match &link.carrier {
        HostLinkCarrier::Bridge(host) => {
            let settings = Box::new(settings.each_ref().map(json));
            vec![(host.clone(), HostFault::Impair { settings })]
        }
        HostLinkCarrier::Netem(ends) => {
            let ways = ends.iter().zip(settings);
            let ways = ways.filter(|(_, settings)| !settings.is_clear());
            let netem = |((host, interface), settings): (&(String, String), &Settings)| {
                let interface = interface.clone();
                let settings = json(settings);
                (
                    host.clone(),
                    HostFault::Netem {
                        interface,
                        settings,
                    },
                )
            };
            ways.map(netem).collect()
        }
    }
}

fn describe_carrier(carrier: &HostLinkCarrier) -> String {
    match carrier {
        HostLinkCarrier::Bridge(host) => format!("bridge of host {host}"),
        HostLinkCarrier::Netem([(first, there), (second, back)]) => {
            format!("netem on {there} of host {first} and {back} of host {second}")
        }
    }
}

/// The settings as written in a file; empty if there are none.
fn describe(settings: &Settings) -> String {
    let delay = (!settings.delay.0.is_zero()).then(|| format!("delay {}", settings.delay));
    let loss = (settings.loss > 0.0).then(|| format!("loss {}", settings.loss));
    let rate = settings.rate.map(|rate| format!("rate {rate}"));
    let all = [delay, loss, rate].into_iter().flatten();
    all.collect::<Vec<_>>().join(", ")
}

/// How to send echo requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EchoRequests {
    requests: u32,
    interval: Duration,
    payload_bytes: u32,
}

fn round_trips() -> EchoRequests {
    let (requests, interval) = ROUND_TRIPS;
    EchoRequests {
        requests,
        interval,
        payload_bytes: SHORT_BYTES,
    }
}

/// The requests to measure this loss, there and back. They fill at most half of a rate-limited line.
fn losses(settings: &[Settings; 2], loss: f64) -> EchoRequests {
    let (least, most) = LOSS_REQUESTS;
    let of_line = rate(settings).map(|rate| Duration::from_secs_f64(2.0 * SHORT_WIRE_BITS / rate));
    EchoRequests {
        requests: (LOSSES / loss).ceil().clamp(least, most) as u32,
        interval: LOSS_INTERVAL.max(of_line.unwrap_or_default()),
        payload_bytes: SHORT_BYTES,
    }
}

/// A train of requests for a line with this rate in bits per second.
fn train(rate: f64) -> EchoRequests {
    let (least, most) = TRAIN_REQUESTS;
    let fitting = rate * TRAIN.as_secs_f64() / LONG_WIRE_BITS;
    EchoRequests {
        requests: fitting.ceil().clamp(least, most) as u32,
        interval: Duration::ZERO,
        payload_bytes: LONG_BYTES,
    }
}

/// The expected share of requests without a reply, if packets are lost independently on both ways.
fn loss(settings: &[Settings; 2]) -> f64 {
    let passes: f64 = settings.iter().map(|way| 1.0 - way.loss).product();
    1.0 - passes
}

/// The rate of the slower direction, in bits per second.
fn rate(settings: &[Settings; 2]) -> Option<f64> {
    let rates = settings.iter().filter_map(|way| way.rate);
    rates.map(|rate| rate.0 as f64).reduce(f64::min)
}

/// Compares the shortest round trips, in seconds, before and after the settings were applied.
fn judge_delay(settings: &[Settings; 2], before: f64, seen: f64) -> Result<(), NotProven> {
    let set: f64 = settings.iter().map(|way| way.delay.0.as_secs_f64()).sum();
    // A rate-limited line adds the time that it takes to transmit a request and its reply.
    let lines = settings.iter().filter_map(|way| way.rate);
    let lines: f64 = lines.map(|rate| SHORT_WIRE_BITS / rate.0 as f64).sum();
    let added = seen - before;
    let most = set + lines + LATE.0.max(set * LATE.1);
    let is_proven = set == 0.0 || (set - EARLY_S..=most).contains(&added);
    let error = || NotProven::Delay {
        set_ms: set * 1e3,
        before_ms: before * 1e3,
        seen_ms: seen * 1e3,
    };
    is_proven.then_some(()).ok_or_else(error)
}

/// Compares shares of requests without a reply.
fn judge_loss(set: f64, seen: f64, requests: u32) -> Result<(), NotProven> {
    let count = f64::from(requests);
    let deviation = (set * (1.0 - set) / count).sqrt();
    // Allow half a packet more, because counts are whole numbers.
    let most = DEVIATIONS * deviation + 0.5 / count;
    let error = || NotProven::Loss {
        set_percent: set * 1e2,
        seen_percent: seen * 1e2,
        requests,
    };
    ((seen - set).abs() <= most).then_some(()).ok_or_else(error)
}

/// Compares rates in bits per second; a line also carries the packets that are lost behind it.
fn judge_rate(set: f64, loss: f64, seen: f64) -> Result<(), NotProven> {
    let (least, most) = RATE_FACTORS;
    let is_proven = (set * (1.0 - loss) * least..=set * most).contains(&seen);
    let error = || NotProven::Rate {
        set_mbps: set / 1e6,
        seen_mbps: seen / 1e6,
    };
    is_proven.then_some(()).ok_or_else(error)
}

#[cfg(test)]
mod tests {
    use brunt_core::Span;
    use brunt_lab::link::BitRate;

    use super::*;

    fn both(settings: Settings) -> [Settings; 2] {
        [settings.clone(), settings]
    }

    fn delayed(millis: u64) -> [Settings; 2] {
        both(Settings {
            delay: Span(Duration::from_millis(millis)),
            ..Settings::default()
        })
    }

    #[test]
    fn a_delay_is_proven_by_what_it_adds() {
        let check = |set: u64, before: f64, seen: f64, proven: bool| {
            let judged = judge_delay(&delayed(set), before, seen);
            assert_eq!(judged.is_ok(), proven, "{set} {before} {seen}");
        };
        check(10, 0.0001, 0.0203, true);
        check(10, 0.0050, 0.0250, true);
        // The settings were not applied, applied in only one direction, or applied twice.
        check(10, 0.0001, 0.0001, false);
        check(10, 0.0001, 0.0101, false);
        check(10, 0.0001, 0.0401, false);
        // On a long path, the path's own delay doesn't count as the delay that was set.
        check(10, 0.0200, 0.0200, false);
        check(0, 0.0001, 0.0900, true);
        let slow = both(Settings {
            rate: Some(BitRate(64_000)),
            ..delayed(1)[0].clone()
        });
        // At 64 kb/s, 784 bits take 12.25 ms each way.
        assert!(judge_delay(&slow, 0.0001, 0.0266).is_ok());
    }

    #[test]
    fn a_loss_is_proven_by_its_count() {
        let ways = both(Settings {
            loss: 0.01,
            ..Settings::default()
        });
        let set = loss(&ways);
        assert!((set - 0.0199).abs() < 1e-12);
        let requests = losses(&ways, set).requests;
        assert_eq!(requests, 1006);
        let judge = |lost: f64| judge_loss(set, lost / f64::from(requests), requests);
        assert!(judge(20.0).is_ok() && judge(5.0).is_ok() && judge(37.0).is_ok());
        assert!(judge(0.0).is_err() && judge(60.0).is_err());
        // Even the smallest loss that a file may set can be distinguished from no loss.
        let least = losses(&ways, 0.001).requests;
        assert!(judge_loss(0.001, 0.0, least).is_err(), "{least}");
        let slow = both(Settings {
            loss: 0.5,
            rate: Some(BitRate(100_000)),
            ..Settings::default()
        });
        assert_eq!(losses(&slow, 0.75).interval, Duration::from_micros(15_680));
    }

    #[test]
    fn a_rate_is_proven_by_a_train() {
        let set = 100e6;
        assert_eq!(train(set).requests, 1706);
        assert!(judge_rate(set, 0.0, 99e6).is_ok() && judge_rate(set, 0.5, 49e6).is_ok());
        for seen in [50e6, 1e9] {
            assert!(judge_rate(set, 0.0, seen).is_err(), "{seen}");
        }
        let ways = [BitRate(2_000), BitRate(1_000)].map(|rate| Settings {
            rate: Some(rate),
            ..Settings::default()
        });
        assert_eq!(rate(&ways), Some(1_000.0));
        assert_eq!(rate(&delayed(1)), None);
    }

    #[test]
    fn each_carrier_gets_its_own_settings() {
        let link = |carrier| HostLink {
            name: "wan".into(),
            from: "a".into(),
            to: "b".into(),
            carrier,
        };
        let mut settings = delayed(10);
        settings[1] = Settings::default();
        let bridge = impairments(&link(HostLinkCarrier::Bridge("wire".into())), &settings);
        let [(host, HostFault::Impair { settings: sent })] = &bridge[..] else {
            panic!("{bridge:?}")
        };
        assert_eq!(host, "wire");
        assert_eq!(sent[0]["delay"], "10ms");
        let ends = [("a", "eth1"), ("b", "eth2")];
        let ends = ends.map(|(host, interface)| (host.to_string(), interface.to_string()));
        let netem = impairments(&link(HostLinkCarrier::Netem(ends)), &settings);
        // Nothing is attached where nothing is set.
        let [(host, HostFault::Netem { interface, .. })] = &netem[..] else {
            panic!("{netem:?}")
        };
        assert_eq!((host.as_str(), interface.as_str()), ("a", "eth1"));
        assert_eq!(settings.each_ref().map(describe), ["delay 10ms", ""]);
    }
}
