//! `partition`: two hosts of the lab, or two groups of hosts, cannot reach each other over any path,
//! while all other hosts can.
//!
//! The rule: while a host is cut off, no fault is injected or removed whose proof depends on reaching that host.

use brunt_lab::LabError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::link::LinkSet;
use super::reset::Reset;
use super::storage::{Storage, serves_no_client};
use crate::experiment::{CarrierName, LabEntry};
use crate::fault::driver::{DriverError, LabDriver};
use crate::fault::kind::{
    About, FaultCommon, FaultContext, Info, Kind, Mistake, Pair, Prepared, Stage, Together,
};
use crate::host::HostName;

/// Maximum number of pairs that one fault can separate, because all are probed in both directions at the same time.
const PAIRS_MAX: usize = 32;

pub(super) const INFO: Info = Info {
    keys: &["partition"],
    on_hosts: false,
    help: "drops all packets between two hosts of the lab, or between two groups of hosts, in both directions",
    proof: "probe packets between all pairs pass before, none passes during the fault (by the counters of hosts and links), and they pass again afterwards",
    example: "partition = [\"client\", \"server\"]\nat = \"5s\"\nfor = \"2s\"",
};

/// The keys of a `partition` fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// Drops all packets between these two hosts of the lab. For groups of hosts, use lists in place of names:
    /// `[["client", "gateway"], "server"]`.
    pub partition: [PartitionSide; 2],
}

/// One side of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected the name of a host, or a list of names"
)]
pub enum PartitionSide {
    /// One host.
    One(HostName),
    /// Several hosts, which can still reach each other.
    Several(Vec<HostName>),
}

impl PartitionSide {
    fn names(&self) -> &[HostName] {
        match self {
            PartitionSide::One(name) => std::slice::from_ref(name),
            PartitionSide::Several(names) => names,
        }
    }

    fn listed(&self) -> String {
        HostName::listed(self.names())
    }
}

impl Partition {
    /// Each host on the first side, paired with each host on the second.
    fn pairs(&self) -> impl Iterator<Item = (&HostName, &HostName)> {
        let [first, second] = &self.partition;
        first
            .names()
            .iter()
            .flat_map(|one| second.names().iter().map(move |other| (one, other)))
    }

    /// Whether the fault separates these two hosts.
    pub(super) fn parts(&self, one: &HostName, other: &HostName) -> bool {
        self.pairs()
            .any(|pair| pair == (one, other) || pair == (other, one))
    }

    /// The hosts that send requests to this target and are cut off from its host, and whether no other host sends
    /// requests to it.
    fn cut_off(&self, target: &str, stage: &dyn Stage) -> (Vec<HostName>, bool) {
        let Some(host) = stage.target(target).and_then(|target| target.host.as_ref()) else {
            return (Vec::new(), false);
        };
        let (cut, others): (Vec<HostName>, Vec<HostName>) = stage
            .requesters(target)
            .into_iter()
            .partition(|requester| self.parts(requester, host));
        (cut, others.is_empty())
    }

    /// The combined effect with a link's fault, if the link is between two separated hosts.
    fn with_link(&self, other: &LinkSet, pair: &Pair<'_>) -> Option<Together> {
        let [one, two] = &pair.stage.lab()?.links.get(&other.link)?.between;
        if !self.parts(one, two) {
            return None;
        }
        if pair.my_times().enclose_an_end_of(pair.other_times()) {
            return Together::refused(
                format!(
                    "probe packets over link {} must show the change, but none passes",
                    other.link
                ),
                "start and end the link's fault outside the partition",
            );
        }
        if other.set.loss.is_some_and(|loss| loss >= 1.0) {
            return Together::refused(
                format!(
                    "nothing passes over link {} while it loses all packets, with or without the partition",
                    other.link
                ),
                "end one before the other starts",
            );
        }
        Together::both("during the partition the link carries nothing between the hosts")
    }
}

impl Kind for Partition {
    fn about(&self) -> About {
        About::Machine
    }

    fn what(&self) -> String {
        "partition".to_string()
    }

    fn place(&self, _common: &FaultCommon) -> String {
        let [first, second] = &self.partition;
        format!("{} and {}", first.listed(), second.listed())
    }

    fn check(&self, common: &FaultCommon, stage: &dyn Stage) -> Result<(), Mistake> {
        let wrong = |what: String, help: &str| Err(Mistake::new("partition", what, help));
        let Some(lab) = stage.lab() else {
            return wrong("there is no lab".into(), "add [lab] with hosts and links");
        };
        let count = self.pairs().count();
        if !(1..=PAIRS_MAX).contains(&count) {
            let what = format!("the fault separates {count} pairs of hosts");
            return wrong(
                what,
                &format!(
                    "name 1 to {PAIRS_MAX} pairs (the number of hosts on one side times the number on the other)"
                ),
            );
        }
        let mut seen: Vec<(&HostName, &HostName)> = Vec::new();
        for (one, other) in self.pairs() {
            joined("partition", one, other, lab, &stage.hosts())?;
            if seen
                .iter()
                .any(|pair| *pair == (one, other) || *pair == (other, one))
            {
                return wrong(
                    format!("{one} and {other} are paired twice"),
                    "name each host once",
                );
            }
            seen.push((one, other));
        }
        let targets = match common.target.as_str() {
            "" => lab_targets(stage),
            target => vec![target.to_string()],
        };
        let cut_off =
            |target: String| Some((self.cut_off(&target, stage).0.into_iter().next()?, target));
        match targets.into_iter().find_map(cut_off) {
            Some((requester, target)) if common.at.is_none() => {
                let what = format!(
                    "the fault separates target {target} from {requester} for the whole run"
                );
                Err(Mistake::new("partition", what, "write at = … and for = …"))
            }
            _ => Ok(()),
        }
    }

    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        if let Some(other) = pair.other_as::<Partition>() {
            let (one, two) = self.pairs().find(|(one, two)| other.parts(one, two))?;
            return Together::refused(
                format!("the fault that ends first would reconnect {one} and {two}"),
                "make the faults consecutive, or remove these hosts from one of them",
            );
        }
        if let Some(other) = pair.other_as::<LinkSet>() {
            return self.with_link(other, pair);
        }
        if let Some(other) = pair.other_as::<Reset>() {
            let (from, to) = other.hosts(pair.other.common, pair.stage)?;
            if !self.parts(&from, &to) {
                return None;
            }
            if pair.my_times().enclose_an_end_of(pair.other_times()) {
                return Together::refused(
                    format!(
                        "{from} and {to} are partitioned, so neither the reset nor its end could be proven"
                    ),
                    "start and end the reset outside the partition",
                );
            }
            return Together::both("during the partition no connection between the hosts is reset");
        }
        let other = pair.other_as::<Storage>()?;
        let (cut_off, all) = self.cut_off(&pair.other.common.target, pair.stage);
        if cut_off.is_empty() {
            return None;
        }
        if !all {
            let from = HostName::listed(&cut_off);
            return Together::both(format!(
                "during the partition, {} affects no request from {from}",
                other.storage
            ));
        }
        if pair.my_times().cover(pair.other_times()) {
            return serves_no_client(&Pair {
                me: pair.other,
                other: pair.me,
                stage: pair.stage,
            });
        }
        Together::both(format!(
            "{} affects no request while the target's host is unreachable",
            other.storage
        ))
    }

    fn prepare(
        &self,
        _common: &FaultCommon,
        scene: &mut FaultContext<'_>,
    ) -> Result<Prepared, DriverError> {
        let (fault, lab) = (self.clone(), scene.lab()?);
        let make = move || -> Result<brunt_lab::Partition, LabError> {
            let [first, second]: [Vec<&str>; 2] = [0, 1].map(|side: usize| {
                fault.partition[side]
                    .names()
                    .iter()
                    .map(HostName::as_str)
                    .collect()
            });
            lab.lab().partition(&first, &second)
        };
        // Errors in the lab's links are reported before the first run.
        make()?;
        Ok(Prepared::new(move || Ok(LabDriver::boxed(make()?))))
    }
}

/// The targets on lab hosts.
fn lab_targets(stage: &dyn Stage) -> Vec<String> {
    stage
        .target_names()
        .into_iter()
        .filter(|name| {
            stage
                .target(name)
                .is_some_and(|target| target.host.is_some())
        })
        .collect()
}

/// Checks that links connect these hosts; a direct link between them must be able to act on hosts and connections.
pub(super) fn joined(
    key: &'static str,
    one: &HostName,
    other: &HostName,
    lab: &LabEntry,
    hosts: &crate::host::Hosts,
) -> Result<(), Mistake> {
    for host in [one, other] {
        let known = hosts.find(host);
        known.map_err(|error| {
            Mistake::new(
                key,
                error.to_string(),
                "write the name of a host of the lab",
            )
        })?;
    }
    if one == other {
        let what = format!("{one} is on both sides");
        return Err(Mistake::new(key, what, "write two different hosts"));
    }
    if !lab.reaches(one, other) {
        let what = format!("no route from {one} to {other}");
        return Err(Mistake::new(
            key,
            what,
            "choose hosts that reach each other, or add a link under [lab.links]",
        ));
    }
    let direct = lab.links.iter().find(|(_, link)| {
        [one, other]
            .iter()
            .all(|host| link.between.iter().any(|end| end == *host))
    });
    match direct {
        Some((name, link))
            if !matches!(link.carrier, CarrierName::Brunt | CarrierName::WireSize) =>
        {
            let what = format!(
                "link {name} is carried by the kernel, which cannot act on hosts or connections"
            );
            Err(Mistake::new(key, what, "omit the link's carrier"))
        }
        _ => Ok(()),
    }
}
