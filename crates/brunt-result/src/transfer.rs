//! Data-transfer efficiency: how many bytes the links of a lab, or the interfaces of other hosts, carried for each byte
//! that a load read or wrote. A study counts the bytes ([`RunTransfer`]); [`efficiency`] computes the ratios.
//!
//! ```text
//! bytes per useful byte = bytes on links while measured / bytes that the load read and wrote meanwhile
//! without idle traffic  = (bytes on links - bytes a second without load * time) / the same
//! ```
//!
//! The rule: a value that was not measured, such as traffic without load, is `None`, never zero; a sum that lacks one
//! of its parts is `None`, too. A packet counts on each link that it crosses, in either direction, with its Ethernet
//! header, and at each interface that sends it. Links of a lab and interfaces of other hosts never carry the same
//! packets.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::degradation::PhaseKind;
use crate::statistics::Estimate;
use crate::summary::RunSummary;

/// Bytes that a lab's links and other hosts' interfaces carried while a run was measured, and the bytes that its load
/// transferred.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunTransfer {
    /// Measured time in seconds, from the start of the earliest worker to the end of the last one.
    pub seconds: f64,
    /// Bytes that requests read and wrote in this time.
    pub useful_bytes: u64,
    /// Bytes that each link carried in this time.
    pub links: BTreeMap<String, LinkTraffic>,
    /// Bytes of the `interfaces` of other hosts in this time, by `HOST:INTERFACE`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub interfaces: BTreeMap<String, InterfaceTraffic>,
    /// Interfaces whose bytes are unknown, and why. If there are any, the run has no ratio.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown: BTreeMap<String, UnknownTraffic>,
    /// Bytes in each part into which faults divide the run; empty without faults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseTransfer>,
}

/// Bytes that a link carried during the measured time of a run, with Ethernet headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkTraffic {
    /// Bytes from the link's first host to its second.
    pub there_bytes: u64,
    /// Bytes from the link's second host to its first.
    pub back_bytes: u64,
    /// Bytes per second from the first host to the second before the run, without load; `null` without `idle` in `[lab]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_there_bytes_per_second: Option<f64>,
    /// Bytes per second from the second host to the first before the run, without load; `null` without `idle` in
    /// `[lab]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_back_bytes_per_second: Option<f64>,
    /// Whether the link has a delay at any point of the experiment, like links between sites.
    pub delayed: bool,
}

/// Bytes of another host's interface during the measured time of a run, from the kernel's counters. Errors are
/// maximum expected errors, not confidence intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceTraffic {
    /// Bytes sent. Ratios include them.
    pub sent_bytes: u64,
    /// How far `sent_bytes` may be off, because counters are read some time before the load begins and some time
    /// after it ends.
    pub sent_error_bytes: u64,
    /// Bytes received. Ratios don't include them, because another host's interface has sent them.
    pub received_bytes: u64,
    /// Bytes per second sent before the run, without load; `null` without `host_idle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_sent_bytes_per_second: Option<f64>,
    /// Half the width of the interval that contains the rate without load during the run with a probability of 95 %,
    /// based on how the rate varied before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_sent_error_bytes_per_second: Option<f64>,
}

/// Why an interface's bytes are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownTraffic {
    /// The host was lost, or did not answer.
    NoAnswer,
    /// The counter disappeared, or appeared during the run.
    NoCounter,
    /// The counter went backwards: it was reset, or wrapped at 32 bits.
    WentBackwards,
    /// The counter was not read both before and after the run.
    NotRead,
}

/// Bytes that links carried in a part of a run. Times are in seconds from the start of measuring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseTransfer {
    /// Position of the part relative to the faults.
    pub kind: PhaseKind,
    /// Names of the faults in effect.
    pub faults: Vec<String>,
    /// Start of the part.
    pub start_s: f64,
    /// End of the part.
    pub end_s: f64,
    /// Bytes that requests read and wrote in this part: the rate in the part's whole intervals times the part's
    /// length.
    pub useful_bytes: u64,
    /// Bytes that each link carried in this part.
    pub links: BTreeMap<String, WayBytes>,
    /// Bytes that each interface of other hosts sent in this part.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub interfaces: BTreeMap<String, u64>,
}

/// Bytes in both directions of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WayBytes {
    /// Bytes from the link's first host to its second.
    pub there: u64,
    /// Bytes from the link's second host to its first.
    pub back: u64,
}

/// Data-transfer efficiency of a point, over its complete runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TransferEfficiency {
    /// Efficiency of all links and interfaces together.
    pub all: CarriedBytes,
    /// Efficiency of the links that have a delay at any point of the experiment, like links between sites; `null` if
    /// none or all of them have a delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed: Option<CarriedBytes>,
    /// Efficiency of each link and of each interface.
    pub links: BTreeMap<String, CarriedBytes>,
    /// Efficiency in each part into which faults divide the runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseEfficiency>,
    /// Runs that were left out because they were incomplete, or because their links or interfaces were not read.
    pub runs_left_out: u32,
}

/// Bytes that links carried, both directions together, over runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CarriedBytes {
    /// Bytes per second.
    pub bytes_per_second: Option<Estimate>,
    /// Bytes for each byte that requests read or wrote; `null` if they moved no bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_useful_byte: Option<Estimate>,
    /// How far `per_useful_byte` of a single run may be off, because interfaces are read at intervals: the largest such error
    /// of all runs. `null` for links of a lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_useful_byte_error: Option<f64>,
    /// `per_useful_byte` without the idle traffic of the links; `null` if that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_idle: Option<Estimate>,
    /// How far `without_idle` of a single run may be off, with the uncertainty of the idle traffic: the largest such error of
    /// all runs. `null` for links of a lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_idle_error: Option<f64>,
}

/// Data-transfer efficiency during a part of runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseEfficiency {
    /// Position of the part relative to the faults.
    pub kind: PhaseKind,
    /// Names of the faults in effect.
    pub faults: Vec<String>,
    /// Number of runs that have the part.
    pub runs: u32,
    /// Efficiency of all links together.
    pub all: CarriedBytes,
    /// Efficiency of the links that have a delay at any point of the experiment; `null` if none or all of them have a
    /// delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed: Option<CarriedBytes>,
}

impl RunTransfer {
    /// Bytes on all links per byte that requests read or wrote; `None` if they moved none.
    pub fn per_useful_byte(&self) -> Option<f64> {
        let sum = self.sum()?;
        sum.per_useful(sum.carried)
    }

    /// Bytes on all links without idle traffic, per byte that requests read or wrote; `None` if that is unknown.
    pub fn without_idle(&self) -> Option<f64> {
        let sum = self.sum()?;
        sum.per_useful(sum.carried - sum.idle? * sum.seconds)
    }

    fn sum(&self) -> Option<Sum> {
        let is_known = self.unknown.is_empty();
        is_known.then(|| Part::of_run(self).sum(&|_, _| true))
    }
}

impl LinkTraffic {
    /// Bytes in both directions together.
    pub fn bytes(&self) -> WayBytes {
        WayBytes {
            there: self.there_bytes,
            back: self.back_bytes,
        }
    }

    /// Bytes per second without load, both directions together.
    pub fn idle_bytes_per_second(&self) -> Option<f64> {
        Some(self.idle_there_bytes_per_second? + self.idle_back_bytes_per_second?)
    }
}

impl WayBytes {
    /// Bytes in both directions together.
    pub fn both(self) -> u64 {
        self.there + self.back
    }
}

/// Efficiency over the runs of a point; `None` if no links were counted.
pub fn efficiency(runs: &[RunSummary]) -> Option<TransferEfficiency> {
    if runs.iter().all(|run| run.transfer.is_none()) {
        return None;
    }
    let counted: Vec<&RunTransfer> = runs
        .iter()
        .filter(|run| run.is_complete())
        .filter_map(|run| run.transfer.as_ref())
        .filter(|transfer| transfer.unknown.is_empty())
        .collect();
    let parts: Vec<Part<'_>> = counted.iter().map(|run| Part::of_run(run)).collect();
    let whole = |wanted: &Wanted<'_>| CarriedBytes::over(&parts, wanted);
    let apart = delayed_apart(&counted);
    let names = |run: &&'_ RunTransfer| {
        let names = run.links.keys().chain(run.interfaces.keys());
        names.cloned().collect::<Vec<String>>()
    };
    let mut names: Vec<String> = counted.iter().flat_map(names).collect();
    names.sort();
    names.dedup();
    let links = names
        .into_iter()
        .map(|name| {
            let carried = whole(&|link, _| link == name);
            (name, carried)
        })
        .collect();
    Some(TransferEfficiency {
        all: whole(&|_, _| true),
        delayed: apart.then(|| whole(&|_, delayed| delayed)),
        links,
        phases: phases(&counted, apart),
        runs_left_out: (runs.len() - counted.len()) as u32,
    })
}

/// Whether some links have a delay and others have none.
fn delayed_apart(runs: &[&RunTransfer]) -> bool {
    let has = |delayed: bool| {
        runs.iter()
            .flat_map(|run| run.links.values())
            .any(|link| link.delayed == delayed)
    };
    has(true) && has(false)
}

/// The phases of runs, in order.
fn phases(runs: &[&RunTransfer], apart: bool) -> Vec<PhaseEfficiency> {
    let mut keys: Vec<(PhaseKind, &[String])> = Vec::new();
    for phase in runs.iter().flat_map(|run| &run.phases) {
        let key = (phase.kind, &phase.faults[..]);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let of = |(kind, faults): (PhaseKind, &[String])| {
        let of_all = runs
            .iter()
            .flat_map(|run| run.phases.iter().map(|phase| (*run, phase)));
        let found = of_all.filter(|(_, phase)| phase.kind == kind && phase.faults == faults);
        let parts: Vec<Part<'_>> = found
            .map(|(run, phase)| Part::of_phase(run, phase))
            .collect();
        PhaseEfficiency {
            kind,
            faults: faults.to_vec(),
            runs: parts.len() as u32,
            all: CarriedBytes::over(&parts, &|_, _| true),
            delayed: apart.then(|| CarriedBytes::over(&parts, &|_, delayed| delayed)),
        }
    };
    keys.into_iter().map(of).collect()
}

/// Selects links and interfaces by name and by whether they have a delay.
type Wanted<'a> = dyn Fn(&str, bool) -> bool + 'a;

/// A part of a run.
struct Part<'a> {
    seconds: f64,
    useful: u64,
    carriers: Vec<Carrier<'a>>,
}

/// A link or an interface in a part of a run.
struct Carrier<'a> {
    name: &'a str,
    delayed: bool,
    bytes: u64,
    /// How far `bytes` may be off, if known.
    error: Option<u64>,
    /// Bytes per second without load, if known.
    idle: Option<f64>,
    /// How far `idle` may be off, if known.
    idle_error: Option<f64>,
}

/// Traffic of selected links and interfaces in a part of a run.
struct Sum {
    seconds: f64,
    useful: f64,
    carried: f64,
    /// How far `carried` may be off, if known for all links and interfaces.
    error: Option<f64>,
    /// Bytes per second without load, if known for all links and interfaces.
    idle: Option<f64>,
    /// How far `idle` may be off, if known for all links and interfaces.
    idle_error: Option<f64>,
}

impl<'a> Part<'a> {
    fn of_run(run: &'a RunTransfer) -> Part<'a> {
        let links = run
            .links
            .iter()
            .map(|(name, link)| Carrier::link(name, link, link.bytes()));
        let interfaces = run.interfaces.iter().map(|(name, interface)| {
            let (bytes, error) = (interface.sent_bytes, interface.sent_error_bytes);
            Carrier::interface(name, interface, bytes, Some(error))
        });
        Part {
            seconds: run.seconds,
            useful: run.useful_bytes,
            carriers: links.chain(interfaces).collect(),
        }
    }

    fn of_phase(run: &'a RunTransfer, phase: &'a PhaseTransfer) -> Part<'a> {
        let link = |(name, bytes): (&'a String, &WayBytes)| {
            Some(Carrier::link(name, run.links.get(name)?, *bytes))
        };
        let interface = |(name, bytes): (&'a String, &u64)| {
            Some(Carrier::interface(
                name,
                run.interfaces.get(name)?,
                *bytes,
                None,
            ))
        };
        let interfaces = phase.interfaces.iter().filter_map(interface);
        Part {
            seconds: phase.end_s - phase.start_s,
            useful: phase.useful_bytes,
            carriers: phase
                .links
                .iter()
                .filter_map(link)
                .chain(interfaces)
                .collect(),
        }
    }

    fn sum(&self, wanted: &Wanted<'_>) -> Sum {
        let all = self.carriers.iter();
        let found: Vec<&Carrier<'_>> = all.filter(|one| wanted(one.name, one.delayed)).collect();
        // A sum is unknown if one of its parts is.
        let sum = |get: &dyn Fn(&Carrier<'_>) -> Option<f64>| {
            found.iter().map(|one| get(one)).sum::<Option<f64>>()
        };
        Sum {
            seconds: self.seconds,
            useful: self.useful as f64,
            carried: found.iter().map(|one| one.bytes).sum::<u64>() as f64,
            error: sum(&|one| Some(one.error? as f64)),
            idle: sum(&|one| one.idle),
            idle_error: sum(&|one| one.idle_error),
        }
    }
}

impl<'a> Carrier<'a> {
    fn link(name: &'a str, link: &LinkTraffic, bytes: WayBytes) -> Carrier<'a> {
        Carrier {
            name,
            delayed: link.delayed,
            bytes: bytes.both(),
            error: None,
            idle: link.idle_bytes_per_second(),
            idle_error: None,
        }
    }

    fn interface(
        name: &'a str,
        interface: &InterfaceTraffic,
        bytes: u64,
        error: Option<u64>,
    ) -> Carrier<'a> {
        Carrier {
            name,
            delayed: false,
            bytes,
            error,
            idle: interface.idle_sent_bytes_per_second,
            idle_error: interface.idle_sent_error_bytes_per_second,
        }
    }
}

impl Sum {
    /// Converts bytes to bytes per useful byte; `None` without useful bytes.
    fn per_useful(&self, bytes: f64) -> Option<f64> {
        (self.useful > 0.0).then(|| bytes / self.useful)
    }
}

impl CarriedBytes {
    fn over(parts: &[Part<'_>], wanted: &Wanted<'_>) -> CarriedBytes {
        let sums: Vec<Sum> = parts.iter().map(|part| part.sum(wanted)).collect();
        let estimate = |get: &dyn Fn(&Sum) -> Option<f64>| {
            let values: Option<Vec<f64>> = sums.iter().map(get).collect();
            Estimate::of(&values.unwrap_or_default())
        };
        let largest = |get: &dyn Fn(&Sum) -> Option<f64>| {
            let values: Option<Vec<f64>> = sums.iter().map(get).collect();
            values.unwrap_or_default().into_iter().reduce(f64::max)
        };
        CarriedBytes {
            bytes_per_second: estimate(&|sum| {
                (sum.seconds > 0.0).then(|| sum.carried / sum.seconds)
            }),
            per_useful_byte: estimate(&|sum| sum.per_useful(sum.carried)),
            per_useful_byte_error: largest(&|sum| sum.per_useful(sum.error?)),
            without_idle: estimate(&|sum| sum.per_useful(sum.carried - sum.idle? * sum.seconds)),
            without_idle_error: largest(&|sum| {
                sum.per_useful(sum.error? + sum.idle_error? * sum.seconds)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpKind;
    use crate::Stopped;
    use crate::summary::tests::{op, run};

    const MB: u64 = 1_000_000;

    fn link(there: u64, back: u64, idle: Option<f64>, delayed: bool) -> LinkTraffic {
        LinkTraffic {
            there_bytes: there,
            back_bytes: back,
            idle_there_bytes_per_second: idle,
            idle_back_bytes_per_second: idle,
            delayed,
        }
    }

    /// A run in which 10 MB were written in two seconds.
    fn of_links(links: &[(&str, LinkTraffic)]) -> RunSummary {
        let links = links
            .iter()
            .map(|(name, link)| ((*name).into(), *link))
            .collect();
        let transfer = RunTransfer {
            seconds: 2.0,
            useful_bytes: 10 * MB,
            links,
            ..RunTransfer::default()
        };
        RunSummary {
            transfer: Some(transfer),
            ..run(vec![op(OpKind::Write, 100, 1.0)])
        }
    }

    fn mean(estimate: Option<Estimate>) -> f64 {
        estimate.expect("an estimate").mean
    }

    /// A mirror over two links, one of them to another site: every figure is known by hand.
    #[test]
    fn bytes_are_divided_by_useful_ones() {
        assert_eq!(efficiency(&[run(Vec::new())]), None);
        let made = |extra: u64| {
            of_links(&[
                ("far", link(11 * MB + extra, MB, Some(250_000.0), true)),
                ("near", link(11 * MB, MB, Some(500_000.0), false)),
            ])
        };
        let found = efficiency(&[made(0), made(2 * MB)]).unwrap();
        // 24 and 26 MB carried for 10 MB.
        assert!((mean(found.all.per_useful_byte) - 2.5).abs() < 1e-12);
        assert!((mean(found.all.bytes_per_second) - 12.5e6).abs() < 1e-6);
        // Without 1.5 MB per second for two seconds: 21 and 23.
        assert!((mean(found.all.without_idle) - 2.2).abs() < 1e-12);
        let delayed = found.delayed.unwrap();
        assert!((mean(delayed.per_useful_byte) - 1.3).abs() < 1e-12);
        assert!((mean(delayed.without_idle) - 1.2).abs() < 1e-12);
        assert!((mean(found.links["near"].per_useful_byte) - 1.2).abs() < 1e-12);
        let interval = found.links["far"].per_useful_byte.unwrap();
        assert!(
            interval.low.unwrap() < 1.2 && interval.high.unwrap() > 1.4,
            "{interval:?}"
        );
        assert_eq!((found.runs_left_out, found.links.len()), (0, 2));
    }

    /// If the idle traffic of one link is unknown, none is subtracted; links of only one kind have no separate sum.
    #[test]
    fn what_is_not_known_is_not_zero() {
        let found = efficiency(&[of_links(&[
            ("a", link(MB, MB, Some(0.0), true)),
            ("b", link(MB, MB, None, true)),
        ])])
        .unwrap();
        assert_eq!((found.all.without_idle, found.delayed), (None, None));
        assert!((mean(found.links["a"].without_idle) - 0.2).abs() < 1e-12);
        assert!((mean(found.all.per_useful_byte) - 0.4).abs() < 1e-12);
        assert_eq!(
            found.all.per_useful_byte.unwrap().low,
            None,
            "one run has no interval"
        );
    }

    /// A run that doesn't count is reported, and a run that transferred nothing has a rate but no ratio.
    #[test]
    fn runs_that_do_not_count() {
        let mut cut = of_links(&[("a", link(MB, MB, None, false))]);
        cut.stopped = Stopped::Interrupted;
        let mut still = of_links(&[("a", link(MB, MB, None, false))]);
        still.transfer.as_mut().unwrap().useful_bytes = 0;
        let found = efficiency(&[cut.clone(), still]).unwrap();
        assert_eq!((found.runs_left_out, found.all.per_useful_byte), (1, None));
        assert!((mean(found.all.bytes_per_second) - 1e6).abs() < 1e-6);
        let none = efficiency(&[cut]).unwrap();
        assert_eq!(
            (none.runs_left_out, none.all, none.links.len()),
            (1, CarriedBytes::default(), 0)
        );
    }

    /// A phase after a fault includes the links' traffic even if the load moved nothing in it.
    #[test]
    fn parts_of_runs() {
        let part = |kind, start_s: f64, end_s: f64, useful_bytes, there| PhaseTransfer {
            kind,
            faults: if kind == PhaseKind::During {
                vec!["killed".into()]
            } else {
                Vec::new()
            },
            start_s,
            end_s,
            useful_bytes,
            links: BTreeMap::from([("a".into(), WayBytes { there, back: 0 })]),
            interfaces: BTreeMap::new(),
        };
        let mut made = of_links(&[("a", link(12 * MB, 0, Some(50_000.0), false))]);
        made.transfer.as_mut().unwrap().phases = vec![
            part(PhaseKind::Before, 0.0, 0.5, 5 * MB, 5 * MB),
            part(PhaseKind::During, 0.5, 1.0, 0, MB),
            part(PhaseKind::After, 1.0, 2.0, 5 * MB, 6 * MB),
        ];
        let found = efficiency(&[made.clone(), made]).unwrap();
        let names: Vec<(PhaseKind, u32)> = found
            .phases
            .iter()
            .map(|phase| (phase.kind, phase.runs))
            .collect();
        assert_eq!(
            names,
            [
                (PhaseKind::Before, 2),
                (PhaseKind::During, 2),
                (PhaseKind::After, 2)
            ]
        );
        assert_eq!(found.phases[1].all.per_useful_byte, None);
        assert!((mean(found.phases[1].all.bytes_per_second) - 2e6).abs() < 1e-6);
        assert!((mean(found.phases[2].all.per_useful_byte) - 1.2).abs() < 1e-12);
        // 100 000 bytes per second in both directions.
        assert!((mean(found.phases[2].all.without_idle) - 1.18).abs() < 1e-12);
    }

    /// A run in which 10 MB were written in two seconds, and two hosts sent the requests and their replies.
    fn of_interfaces(idle_error: Option<f64>) -> RunSummary {
        let interface = |sent_bytes, idle| InterfaceTraffic {
            sent_bytes,
            sent_error_bytes: 50_000,
            received_bytes: 99 * MB,
            idle_sent_bytes_per_second: Some(idle),
            idle_sent_error_bytes_per_second: idle_error,
        };
        let mut made = of_links(&[]);
        made.transfer.as_mut().unwrap().interfaces = BTreeMap::from([
            ("a:eth0".into(), interface(11 * MB, 400_000.0)),
            ("b:eth0".into(), interface(MB, 100_000.0)),
        ]);
        made
    }

    /// Interfaces count what they send, as links do; the error consists of the counters' error and that of the idle
    /// rate over two seconds.
    #[test]
    fn interfaces_have_the_same_figures_as_links_with_their_errors() {
        let found = efficiency(&[of_interfaces(Some(20_000.0))]).unwrap();
        assert!((mean(found.all.per_useful_byte) - 1.2).abs() < 1e-12);
        assert!((mean(found.all.without_idle) - 1.1).abs() < 1e-12);
        let errors = [
            found.all.per_useful_byte_error,
            found.all.without_idle_error,
        ];
        // 100 kB for 10 MB; with the error of the idle rates, 180 kB.
        assert!((errors[0].unwrap() - 0.01).abs() < 1e-12, "{errors:?}");
        assert!((errors[1].unwrap() - 0.018).abs() < 1e-12, "{errors:?}");
        assert!((mean(found.links["a:eth0"].per_useful_byte) - 1.1).abs() < 1e-12);
        let run = of_interfaces(None).transfer.unwrap();
        assert!((run.per_useful_byte().unwrap() - 1.2).abs() < 1e-12);
        assert!((run.without_idle().unwrap() - 1.1).abs() < 1e-12);
        let found = efficiency(&[of_interfaces(None)]).unwrap();
        assert_eq!(found.all.without_idle_error, None);
    }

    /// A sum over only some of the interfaces would be wrong, so it is unknown.
    #[test]
    fn a_run_with_an_unknown_interface_has_no_ratio() {
        let mut lost = of_interfaces(None);
        let transfer = lost.transfer.as_mut().unwrap();
        transfer.interfaces.remove("b:eth0");
        let unknown = ("b:eth0".into(), UnknownTraffic::WentBackwards);
        transfer.unknown = BTreeMap::from([unknown]);
        let ratios = [transfer.per_useful_byte(), transfer.without_idle()];
        assert_eq!(ratios, [None, None]);
        let found = efficiency(&[lost, of_interfaces(None)]).unwrap();
        assert_eq!(found.runs_left_out, 1);
        assert_eq!(found.all.per_useful_byte.unwrap().runs, 1);
    }
}
