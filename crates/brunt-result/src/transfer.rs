//! Data-transfer efficiency: how many bytes the links of a lab carried for each byte that a load read or wrote. A study
//! counts the bytes ([`RunTransfer`]); [`efficiency`] computes the ratios.
//!
//! ```text
//! bytes per useful byte = bytes on links while measured / bytes that the load read and wrote meanwhile
//! without idle traffic  = (bytes on links - bytes a second without load * time) / the same
//! ```
//!
//! The rule: a value that was not measured, such as traffic without load, is `None`, never zero. A packet counts on
//! each link that it crosses, in both directions, with its Ethernet header.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::degradation::PhaseKind;
use crate::statistics::Estimate;
use crate::summary::RunSummary;

/// Bytes that a lab's links carried while a run was measured, compared with the bytes its load transferred.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunTransfer {
    /// Measured time in seconds, from the start of the earliest worker to the end of the last one.
    pub seconds: f64,
    /// Bytes that requests read and wrote in this time.
    pub useful_bytes: u64,
    /// Bytes that each link carried in this time.
    pub links: BTreeMap<String, LinkTraffic>,
    /// The same for the parts that faults cut the run into; empty without faults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseTransfer>,
}

/// Bytes that a link carried during the measured time of a run, with Ethernet headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkTraffic {
    /// Bytes from its first host to its second.
    pub there_bytes: u64,
    /// Bytes from its second host to its first.
    pub back_bytes: u64,
    /// Bytes per second from the first host to the second before the run, without load; `null` without `idle` in `[lab]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_there_bytes_per_second: Option<f64>,
    /// The same from the second host to the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_back_bytes_per_second: Option<f64>,
    /// Whether it has a delay at any point of the experiment, like links between sites.
    pub delayed: bool,
}

/// Bytes that links carried in a part of a run. Times are in seconds from the start of measuring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseTransfer {
    /// Its position relative to the faults.
    pub kind: PhaseKind,
    /// Names of the faults in effect.
    pub faults: Vec<String>,
    /// Its begin.
    pub start_s: f64,
    /// Its end.
    pub end_s: f64,
    /// Bytes that requests read and wrote in it: the rate of its whole intervals times its length.
    pub useful_bytes: u64,
    /// Bytes that each link carried in it.
    pub links: BTreeMap<String, WayBytes>,
}

/// Bytes in both directions of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WayBytes {
    /// From its first host to its second.
    pub there: u64,
    /// From its second host to its first.
    pub back: u64,
}

/// Data-transfer efficiency of a point, over its complete runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TransferEfficiency {
    /// Efficiency of all links together.
    pub all: CarriedBytes,
    /// Efficiency of the links that have a delay at any point of the experiment, like links between sites; `null` if
    /// none or all of them have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed: Option<CarriedBytes>,
    /// Of each link.
    pub links: BTreeMap<String, CarriedBytes>,
    /// Efficiency of the parts that faults cut runs into.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseEfficiency>,
    /// Runs that do not count: incomplete, or their links were not read.
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
    /// The same without the idle traffic of the links; `null` if that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_idle: Option<Estimate>,
}

/// Data-transfer efficiency during a part of runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseEfficiency {
    /// Its position relative to the faults.
    pub kind: PhaseKind,
    /// Names of the faults in effect.
    pub faults: Vec<String>,
    /// Runs that have it.
    pub runs: u32,
    /// Efficiency of all links together.
    pub all: CarriedBytes,
    /// As that of the point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed: Option<CarriedBytes>,
}

impl RunTransfer {
    /// Bytes on all links per byte that requests read or wrote; `None` if they moved none.
    pub fn per_useful_byte(&self) -> Option<f64> {
        let sum = Part::of_run(self).sum(&|_, _| true);
        sum.per_useful(sum.carried)
    }
}

impl LinkTraffic {
    /// Bytes in both directions.
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
        .collect();
    let parts: Vec<Part<'_>> = counted.iter().map(|run| Part::of_run(run)).collect();
    let whole = |wanted: &Wanted<'_>| CarriedBytes::over(&parts, wanted);
    let apart = delayed_apart(&counted);
    let mut names: Vec<&String> = counted.iter().flat_map(|run| run.links.keys()).collect();
    names.sort();
    names.dedup();
    let links = names
        .into_iter()
        .map(|name| (name.clone(), whole(&|link, _| link == name)))
        .collect();
    Some(TransferEfficiency {
        all: whole(&|_, _| true),
        delayed: apart.then(|| whole(&|_, link| link.delayed)),
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
            delayed: apart.then(|| CarriedBytes::over(&parts, &|_, link| link.delayed)),
        }
    };
    keys.into_iter().map(of).collect()
}

/// Selects links by name and by their traffic in the run.
type Wanted<'a> = dyn Fn(&str, &LinkTraffic) -> bool + 'a;

/// A part of a run.
struct Part<'a> {
    run: &'a RunTransfer,
    seconds: f64,
    useful: u64,
    links: Vec<(&'a str, WayBytes)>,
}

/// Traffic of selected links in a part of a run.
struct Sum {
    seconds: f64,
    useful: f64,
    carried: f64,
    /// Bytes per second without load, if known for all these links.
    idle: Option<f64>,
}

impl<'a> Part<'a> {
    fn of_run(run: &'a RunTransfer) -> Part<'a> {
        let links = run
            .links
            .iter()
            .map(|(name, link)| (name.as_str(), link.bytes()))
            .collect();
        Part {
            run,
            seconds: run.seconds,
            useful: run.useful_bytes,
            links,
        }
    }

    fn of_phase(run: &'a RunTransfer, phase: &'a PhaseTransfer) -> Part<'a> {
        let links = phase
            .links
            .iter()
            .map(|(name, bytes)| (name.as_str(), *bytes))
            .collect();
        Part {
            run,
            seconds: phase.end_s - phase.start_s,
            useful: phase.useful_bytes,
            links,
        }
    }

    fn sum(&self, wanted: &Wanted<'_>) -> Sum {
        let (mut carried, mut idle) = (0, Some(0.0));
        for (name, bytes) in &self.links {
            let Some(link) = self.run.links.get(*name).filter(|link| wanted(name, link)) else {
                continue;
            };
            carried += bytes.both();
            idle = idle
                .zip(link.idle_bytes_per_second())
                .map(|(sum, more)| sum + more);
        }
        Sum {
            seconds: self.seconds,
            useful: self.useful as f64,
            carried: carried as f64,
            idle,
        }
    }
}

impl Sum {
    /// These bytes per useful byte.
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
        CarriedBytes {
            bytes_per_second: estimate(&|sum| {
                (sum.seconds > 0.0).then(|| sum.carried / sum.seconds)
            }),
            per_useful_byte: estimate(&|sum| sum.per_useful(sum.carried)),
            without_idle: estimate(&|sum| sum.per_useful(sum.carried - sum.idle? * sum.seconds)),
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
            phases: Vec::new(),
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
        // 24 and 26 MB for 10.
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

    /// A phase after a fault includes the links' traffic even while the load moved nothing.
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
}
