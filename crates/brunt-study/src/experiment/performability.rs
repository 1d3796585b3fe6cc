//! `[performability]`: which faults emulate failures of which components, and how often the components fail. Nothing
//! is computed here: [`brunt_result::performability`] weights what was measured.
//!
//! ```toml
//! [performability]
//! threshold = "iops above 5000"
//! [performability.components.wire]
//! faults = ["slow link"]            # the names of [[fault]]
//! mttf = "30d"
//! mttr = "4h"
//! ```

use std::collections::{BTreeMap, BTreeSet};

use brunt_core::Span;
use brunt_result::performability::{FailingComponent, FailingSystem, ServiceLevel};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mistake::{FileError, Source};
use super::{Experiment, Point};
use crate::fault::FaultEntry;

/// Maximum number of a system's states: a longer table would be unreadable.
pub const STATES_MAX: usize = 256;
/// Maximum number of a component's units.
pub const UNITS_MAX: u32 = 100_000;

/// The service to expect from the system over a long time of failures and repairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PerformabilityEntry {
    /// Service that counts as available, such as `iops above 5000`, `p99 below 5ms` or `failed below 1%`: the share
    /// of time with such service is reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<ServiceLevel>,
    /// Components that fail and are repaired independently of each other, by a name of your choice.
    pub components: BTreeMap<String, ComponentEntry>,
}

/// A component of the system, or several identical units of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ComponentEntry {
    /// Names of the faults that emulate its failures: the first fault alone for one failed unit, the first two
    /// together for two failed units, and so on.
    pub faults: Vec<String>,
    /// Number of these units in the system.
    #[serde(default = "one_unit")]
    pub units: u32,
    /// Mean time to failure of a working unit. Times to failure and repair times are assumed to be
    /// exponentially distributed.
    pub mttf: Span,
    /// Mean time to repair a unit, from its failure until the service is normal again.
    pub mttr: Span,
    /// Maximum number of units repaired at the same time; default: all failed units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repairs_at_once: Option<u32>,
}

fn one_unit() -> u32 {
    1
}

/// A mistake in a component: its key, what is wrong, and what would be correct.
type ComponentMistake = (&'static str, String, Option<String>);

impl ComponentEntry {
    fn check(&self) -> Result<(), ComponentMistake> {
        let faults = self.faults.len();
        if faults == 0 {
            let help = "name a fault, such as faults = [\"slow link\"]".to_string();
            return Err(("faults", "it has no fault".into(), Some(help)));
        }
        if !(1..=UNITS_MAX).contains(&self.units) {
            let what = format!("{} units; write 1 to {UNITS_MAX}", self.units);
            return Err(("units", what, None));
        }
        if faults > self.units as usize {
            let what = format!(
                "{faults} faults emulate {faults} failed units, but the component has {}",
                self.units
            );
            let help = "make it several components, or set units".to_string();
            return Err(("faults", what, Some(help)));
        }
        for (key, time, example) in [("mttf", self.mttf, "30d"), ("mttr", self.mttr, "4h")] {
            if time.0.is_zero() {
                let what = format!("{key} is 0");
                return Err((
                    key,
                    what,
                    Some(format!("write for example {key} = \"{example}\"")),
                ));
            }
        }
        match self.repairs_at_once {
            Some(repairs) if !(1..=self.units).contains(&repairs) => {
                let what = format!(
                    "{repairs} repairs at once; write 1 to {} (units)",
                    self.units
                );
                Err(("repairs_at_once", what, None))
            }
            _ => Ok(()),
        }
    }

    fn component(&self, name: &str) -> FailingComponent {
        FailingComponent {
            name: name.to_string(),
            faults: self.faults.clone(),
            units: self.units,
            mttf_s: self.mttf.0.as_secs_f64(),
            mttr_s: self.mttr.0.as_secs_f64(),
            repairs_at_once: self.repairs_at_once.unwrap_or(self.units),
        }
    }

    /// Number of the component's states: one without failed units, one for each number of failed units that `faults`
    /// emulates, and one for all larger numbers.
    fn states(&self) -> usize {
        (self.faults.len() + 2).min(self.units as usize + 1)
    }
}

impl Experiment {
    pub(super) fn check_performability(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let Some(entry) = &self.performability else {
            return Ok(());
        };
        if entry.components.is_empty() {
            let help = "add one, such as\n[performability.components.wire]\nfaults = [\"slow link\"]\nmttf = \"30d\"\nmttr = \"4h\"";
            let what = "performability without components".to_string();
            return Err(source.mistake(&["performability", "components"], what, Some(help.into())));
        }
        let mut taken = BTreeSet::new();
        let mut states = 1usize;
        for (name, component) in &entry.components {
            let checked = component
                .check()
                .and_then(|()| self.check_component_faults(component, &mut taken));
            if let Err((key, what, help)) = checked {
                let path = ["performability", "components", name, key];
                return Err(source.mistake(&path, format!("component {name}: {what}"), help));
            }
            states = states.saturating_mul(component.states());
        }
        if states > STATES_MAX {
            let what = format!(
                "the components have {states} states in total; at most {STATES_MAX} are allowed"
            );
            let help = "leave out components, or name fewer faults for each".to_string();
            return Err(source.mistake(&["performability", "components"], what, Some(help)));
        }
        Ok(())
    }

    /// Checks that each fault exists, emulates failures of only one component and begins during runs, and that all of
    /// them occur in the same runs.
    fn check_component_faults<'a>(
        &self,
        component: &'a ComponentEntry,
        taken: &mut BTreeSet<&'a str>,
    ) -> Result<(), ComponentMistake> {
        let mut target: Option<&str> = None;
        for name in &component.faults {
            let entries: Vec<&FaultEntry> = self.faults_named(name).collect();
            let Some(first) = entries.first() else {
                let is_recurring = |fault: &FaultEntry| fault.name() == *name;
                if self.fault.iter().any(is_recurring) {
                    let what = format!("fault '{name}' occurs several times in a run");
                    let help = "name a fault that occurs only once, long enough for its figures";
                    return Err(("faults", what, Some(help.into())));
                }
                let known: Vec<String> = self.fault.iter().map(FaultEntry::label).collect();
                let help = match known.is_empty() {
                    true => "the experiment has no [[fault]]; add one with that name".to_string(),
                    false => format!("available: {}", known.join(", ")),
                };
                return Err(("faults", format!("no fault named '{name}'"), Some(help)));
            };
            if !taken.insert(name) {
                let what = format!("fault '{name}' already emulates a failure");
                let help = "give each failed unit its own fault".to_string();
                return Err(("faults", what, Some(help)));
            }
            if entries.iter().any(|fault| fault.common.at.is_none()) {
                let what = format!(
                    "fault '{name}' lasts for whole runs, so there is no normal state to compare with"
                );
                let help = "write at for the fault, so that the normal state is measured before it";
                return Err(("faults", what, Some(help.into())));
            }
            let same = |fault: &&FaultEntry| {
                fault.common.target == *target.unwrap_or(first.common.target.as_str())
            };
            if !entries.iter().all(same) {
                let what = format!(
                    "fault '{name}' affects different runs than the faults of the components before it"
                );
                let help =
                    "write the same target for the faults of all components, or none".to_string();
                return Err(("faults", what, Some(help)));
            }
            target = Some(&first.common.target);
        }
        Ok(())
    }

    fn faults_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a FaultEntry> {
        self.fault.iter().filter(move |fault| fault.label() == name)
    }

    /// The system as represented by a point's runs: the components whose faults they contain. `None` if there are no
    /// such components.
    pub fn failing_system(&self, point: &Point) -> Option<FailingSystem> {
        let entry = self.performability.as_ref()?;
        let occurs = |name: &String| {
            let mut faults = self.faults_named(name);
            faults.any(|fault| point.has_fault(fault))
        };
        let components: Vec<FailingComponent> = entry
            .components
            .iter()
            .filter(|(_, component)| component.faults.iter().all(occurs))
            .map(|(name, component)| component.component(name))
            .collect();
        (!components.is_empty()).then(|| FailingSystem {
            components,
            threshold: entry.threshold.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{assert_mistake, changed};

    const GOOD: &str = r#"name = "x"
[targets.disk]
url = "memory:1MiB"
[targets.other]
url = "memory:1MiB"
[workloads.w]
stop = { time = "9s" }
[[fault]]
target = "disk"
name = "slow"
storage = "slow:1ms"
at = "2s"
for = "2s"
[[fault]]
memory = "1MiB"
at = "3s"
for = "2s"
[[fault]]
name = "hog"
cpu = 0.5
[performability]
threshold = "iops above 5000"
[performability.components.disks]
faults = ["slow"]
units = 8
mttf = "1200000h"
mttr = "12h"
repairs_at_once = 2
[performability.components.host]
faults = ["1MiB of memory taken"]
mttf = "30d"
mttr = "90m"
"#;

    #[test]
    fn components_become_the_systems_of_points() {
        let experiment = Experiment::parse("x.toml", GOOD).expect("a good file");
        let again = Experiment::parse("again.toml", &experiment.written_out()).expect("the same");
        assert_eq!(again.performability, experiment.performability);
        let points = experiment.points();
        let of = |target: &str| {
            let point = points.iter().find(|point| point.is_on(target)).unwrap();
            experiment.failing_system(point).expect("a system")
        };
        let disk = of("disk");
        let names = |system: &FailingSystem| -> Vec<String> {
            system
                .components
                .iter()
                .map(|one| one.name.clone())
                .collect()
        };
        assert_eq!(
            (names(&disk), names(&of("other"))),
            (
                vec!["disks".to_string(), "host".to_string()],
                vec!["host".to_string()],
            )
        );
        let disks = &disk.components[0];
        assert_eq!((disks.units, disks.repairs_at_once), (8, 2));
        assert_eq!((disks.mttf_s, disks.mttr_s), (4.32e9, 43_200.0));
        assert_eq!(disk.components[1].repairs_at_once, 1);
        assert_eq!(disk.threshold.unwrap().to_string(), "iops above 5000");
    }

    #[test]
    fn mistakes_have_their_line() {
        let check = |from: &str, to: &str, at: &str, said: &str| {
            let text = changed(GOOD, from, to);
            let line = 1 + text.lines().position(|line| line.contains(at)).expect(at);
            assert_mistake(&text, line, said);
        };
        let slow = "faults = [\"slow\"]";
        check(
            slow,
            "faults = [\"fast\"]",
            "\"fast\"",
            "no fault named 'fast'",
        );
        check(
            "at = \"2s\"\nfor = \"2s\"",
            "at = [\"2s\", \"6s\"]\nfor = \"1s\"",
            slow,
            "occurs several times in a run",
        );
        check(slow, "faults = []", "faults = []", "it has no fault");
        check(
            slow,
            "faults = [\"slow\", \"slow\"]",
            "\"slow\", ",
            "already emulates",
        );
        check("units = 8", "units = 0", "units = 0", "0 units");
        check(
            "mttr = \"12h\"",
            "mttr = \"0s\"",
            "mttr = \"0s\"",
            "mttr is 0",
        );
        check(
            "repairs_at_once = 2",
            "repairs_at_once = 9",
            "repairs_at_once",
            "1 to 8 (units)",
        );
        check(
            "above 5000",
            "above fast",
            "threshold",
            "a number of requests per second",
        );
        check(
            "iops above 5000",
            "p99.9 below 1ms",
            "threshold",
            "is not known for each state",
        );
        check("mttf = \"30d\"", "mtbf = \"30d\"", "mtbf", "mtbf");
        let hog = changed(GOOD, slow, "faults = [\"hog\"]");
        let line = 1 + hog
            .lines()
            .position(|line| line.contains("[\"hog\"]"))
            .unwrap();
        assert_mistake(&hog, line, "lasts for whole runs");
    }
}
