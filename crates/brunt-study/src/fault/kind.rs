//! The interface of a kind of fault: its keys in a `[[fault]]`, its effect, its checks, its interaction with other
//! faults, and its driver. Implemented by one file per kind under [`super::kinds`]; called by the checks of an
//! experiment file and by the schedule.
//!
//! The rule: everything that can be checked before anything is opened is checked then, by the kind itself; no other
//! code knows its name.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brunt_block::Backend;
use brunt_core::Span;
use brunt_lab::link::Settings;
use brunt_protocol::HostFault;

use super::driver::{DriverError, FaultDriver};
use super::layer::with_fault_layer;
use super::recurrence::{Occurrence, Recurrence};
use crate::control::{Controls, Local};
use crate::experiment::{LabEntry, Target};
use crate::host::{HostName, Hosts};
use crate::lab::BuiltLab;
use crate::role::{Role, RoleKind};

/// Describes a kind of fault, for the table of kinds.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The kind's keys in a `[[fault]]`, without the common ones. The first key selects the kind and is the kind's
    /// name everywhere.
    pub keys: &'static [&'static str],
    /// Whether agents on other hosts can inject it (`host = …`).
    pub on_hosts: bool,
    /// The kind's effect, in one line.
    pub help: &'static str,
    /// How the fault's presence and its end are proven.
    pub proof: &'static str,
    /// An example of a `[[fault]]` of this kind, without its first line.
    pub example: &'static str,
}

/// Settings common to faults of any kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultCommon {
    /// Name shown in reports; default: its effect.
    pub name: String,
    /// Start, counted from the start of measuring. Without it the fault is sticky: in effect from before the first
    /// request until after the last.
    pub at: Option<Span>,
    /// Duration; default: until the end of the run.
    pub lasts: Option<Span>,
    /// The target that the fault affects; it isn't injected into runs against other targets. If empty, the fault is
    /// injected into all runs.
    pub target: String,
    /// The other host that injects it; `None` for the host that runs the experiment.
    pub host: Option<HostName>,
    /// When it occurs, if it occurs several times.
    pub recurrence: Option<Recurrence>,
    /// Which occurrence this is; `at` and `lasts` are the times of this occurrence.
    pub occurrence: Option<Occurrence>,
}

impl FaultCommon {
    /// When the fault begins and ends, counted from the start of measuring. `None` means that it begins before the
    /// start, or ends after the end.
    pub fn times(&self) -> (Option<Duration>, Option<Duration>) {
        let at = self.at.map(|at| at.0);
        (
            at,
            self.lasts
                .map(|lasts| at.unwrap_or_default().saturating_add(lasts.0)),
        )
    }
}

/// What a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// A target of any kind.
    Target,
    /// The process of a target that the experiment serves.
    Process,
    /// The whole machine or the lab; a target only selects the runs.
    Machine,
    /// The processes of a service, on any host; a target only selects the runs.
    Service,
}

/// A fault of one kind, as written in the file.
pub trait Kind: Any + Debug + Send + Sync {
    /// What the fault affects.
    fn about(&self) -> About;

    /// Whether it is injected by the fault layer of its target's device; a device without one gets one on top.
    fn wants_fault_layer(&self) -> bool {
        false
    }

    /// The service whose processes the fault affects, if any.
    fn service(&self) -> Option<&str> {
        None
    }

    /// The fault's effect, in a word or two.
    fn what(&self) -> String;

    /// The affected place: a target's name, a link's name, or the machine.
    fn place(&self, common: &FaultCommon) -> String {
        if common.target.is_empty() {
            "this machine".to_string()
        } else {
            common.target.clone()
        }
    }

    /// The effect to record, if the driver's description doesn't include the place.
    fn recorded_as(&self, common: &FaultCommon) -> Option<String> {
        let _ = common;
        None
    }

    /// Reads the files that the fault names; relative paths are resolved in the `folder` of the key. Called before
    /// [`Self::check`].
    ///
    /// # Errors
    /// Returns the key, below the fault, whose file cannot be used, and why.
    fn read_files(&mut self, folder: &dyn Fn(&[&str]) -> PathBuf) -> Result<(), FileMistake> {
        let _ = folder;
        Ok(())
    }

    /// Checks whether the fault is possible, as far as the experiment's file shows.
    ///
    /// # Errors
    /// Returns the wrong key, and what would be correct.
    fn check(&self, common: &FaultCommon, plan: &dyn Stage) -> Result<(), Mistake>;

    /// The combined effect with another fault, of any kind, that is injected at the same time into the same runs.
    /// `None` if the two don't affect each other, or if the other fault's kind defines the combined effect.
    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        let _ = pair;
        None
    }

    /// Why the fault cannot occur in the same run as another fault, even at different times.
    fn clash(&self, pair: &Pair<'_>) -> Option<Together> {
        let _ = pair;
        None
    }

    /// The request to another host's agent; `None` if agents don't inject this kind.
    fn on_host(&self, common: &FaultCommon) -> Option<HostFault> {
        let _ = common;
        None
    }

    /// The share of CPU time that the fault takes, and the cores (if empty, all cores).
    fn core_share(&self) -> Option<(f64, &[usize])> {
        None
    }

    /// Whether `for` counts from the proof of the effect rather than from the start, for faults that take seconds to
    /// inject.
    fn lasts_once_shown(&self) -> bool {
        false
    }

    /// Checks, before anything is started, that this machine can inject the fault.
    ///
    /// # Errors
    /// The machine lacks something that the fault needs.
    fn check_machine(&self) -> Result<(), DriverError> {
        Ok(())
    }

    /// Finds the object that the fault affects, once targets are open and roles and lab are running.
    ///
    /// # Errors
    /// The object doesn't exist.
    fn prepare(
        &self,
        common: &FaultCommon,
        scene: &mut FaultContext<'_>,
    ) -> Result<Prepared, DriverError>;
}

/// An experiment file's content, for checks.
pub trait Stage {
    /// The target with that name.
    fn target(&self, name: &str) -> Option<&Target>;

    /// The role that serves the target with this name, if the experiment serves it.
    fn role(&self, target: &str) -> Option<Box<dyn RoleKind>> {
        self.target(target).and_then(Target::role)
    }

    /// The names of all targets.
    fn target_names(&self) -> Vec<String>;

    /// The message for an unknown service; `None` if the experiment has the service.
    fn unknown_service(&self, name: &str) -> Option<String>;

    /// Whether a service runs on a remote host.
    fn is_remote_service(&self, name: &str) -> bool;

    /// The lab, if there is one.
    fn lab(&self) -> Option<&LabEntry>;

    /// All hosts, for lookups.
    fn hosts(&self) -> Hosts;

    /// The hosts whose workers send requests to a target.
    fn requesters(&self, target: &str) -> Vec<HostName> {
        let _ = target;
        vec![self.hosts().worker().clone()]
    }

    /// The settings of a link at each point on this target (if empty, at all points), with the point's label.
    fn link_at_points(&self, link: &str, target: &str) -> Vec<(String, [Settings; 2])>;
}

/// Why a file that a fault names cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", .key.join("."))]
pub struct FileMistake {
    /// The key, within the `[[fault]]`.
    pub key: &'static [&'static str],
    /// What is wrong, and what to do.
    pub what: String,
}

/// A mistake in a fault: the key, what is wrong, and what would be correct.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}; {help}")]
pub struct Mistake {
    /// The key in the `[[fault]]`.
    pub key: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub help: String,
}

impl Mistake {
    /// A mistake in the value of `key`.
    pub fn new(key: &'static str, what: impl Into<String>, help: impl Into<String>) -> Mistake {
        Mistake {
            key,
            what: what.into(),
            help: help.into(),
        }
    }
}

/// What is running when the schedule is created.
pub struct FaultContext<'a> {
    /// The open targets; a fault may put a layer on one.
    pub targets: &'a mut BTreeMap<String, Arc<dyn Backend>>,
    /// The targets that the experiment serves itself.
    pub roles: &'a BTreeMap<String, Arc<dyn Role>>,
    /// The services that the experiment started.
    pub services: &'a BTreeMap<String, Arc<dyn Role>>,
    /// The running lab, if the experiment has one.
    pub lab: Option<&'a BuiltLab>,
    /// The LUN to measure on each target.
    pub luns: BTreeMap<String, u16>,
    /// The hosts whose workers send requests to each target.
    pub requesters: BTreeMap<String, Vec<HostName>>,
}

impl FaultContext<'_> {
    /// The process of a target that the experiment serves.
    ///
    /// # Errors
    /// The experiment doesn't serve this target.
    pub fn role(&self, target: &str) -> Result<Arc<dyn Role>, DriverError> {
        let unfit = || {
            let advice =
                "write serve = \"memory:1GiB\", or another device, in place of the target's url";
            DriverError::unfit(
                "the fault needs a target that the experiment serves",
                advice,
            )
        };
        self.roles.get(target).cloned().ok_or_else(unfit)
    }

    /// A service that the experiment started.
    ///
    /// # Errors
    /// The experiment didn't start this service.
    pub fn service(&self, name: &str) -> Result<Arc<dyn Role>, DriverError> {
        let started: Vec<&str> = self.services.keys().map(String::as_str).collect();
        let unfit = || {
            DriverError::unfit(
                "the fault's service was not started",
                format!("the services that were started are {}", started.join(", ")),
            )
        };
        self.services.get(name).cloned().ok_or_else(unfit)
    }

    /// The running lab.
    ///
    /// # Errors
    /// No lab is running.
    pub fn lab(&self) -> Result<BuiltLab, DriverError> {
        let unfit = || {
            DriverError::unfit(
                "there is no lab",
                "write [lab.links.NAME] with between = [\"a\", \"b\"]",
            )
        };
        self.lab.cloned().ok_or_else(unfit)
    }

    /// The controls for the layers of a target's device. With `on_top`, a fault layer is put on a device of this
    /// process that has none.
    ///
    /// # Errors
    /// The target is not open.
    pub fn controls(
        &mut self,
        target: &str,
        on_top: bool,
    ) -> Result<Arc<dyn Controls>, DriverError> {
        if let Some(role) = self.roles.get(target) {
            return Ok(Arc::clone(role) as Arc<dyn Controls>);
        }
        let lun = self.lun(target);
        let open: Vec<&str> = self.targets.keys().map(String::as_str).collect();
        let not_open = DriverError::unfit(
            "the fault's target is not open",
            format!("the open targets are {}", open.join(", ")),
        );
        let backend = self.targets.get_mut(target).ok_or(not_open)?;
        if on_top {
            *backend = with_fault_layer(Arc::clone(backend));
        }
        Ok(Arc::new(Local::new([(lun, backend.handles())])))
    }

    /// The LUN of a target that is measured.
    pub fn lun(&self, target: &str) -> u16 {
        self.luns.get(target).copied().unwrap_or(0)
    }
}

/// Creates a driver for a run.
pub type Make = Box<dyn Fn() -> Result<Box<dyn FaultDriver>, DriverError> + Send>;

/// A fault that has found the object that it affects.
pub struct Prepared {
    /// Creates the fault's driver for each run.
    pub make: Make,
    /// If the fault affects a device: the device's controls and LUN, for repairing its arrays before each run.
    pub device: Option<(Arc<dyn Controls>, u16)>,
}

impl Prepared {
    /// A fault that doesn't affect a device.
    pub fn new(
        make: impl Fn() -> Result<Box<dyn FaultDriver>, DriverError> + Send + 'static,
    ) -> Prepared {
        Prepared {
            make: Box::new(make),
            device: None,
        }
    }
}

/// What happens if two faults are injected at the same time.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Together {
    /// Both are in effect; the text says how.
    Both(String),
    /// Not possible.
    Refused {
        /// The reason.
        why: String,
        /// What to write instead.
        instead: &'static str,
    },
}

impl Together {
    /// Both are in effect, as this text says.
    pub fn both(how: impl Into<String>) -> Option<Together> {
        Some(Together::Both(how.into()))
    }

    /// Not possible.
    pub fn refused(why: impl Into<String>, instead: &'static str) -> Option<Together> {
        Some(Together::Refused {
            why: why.into(),
            instead,
        })
    }
}

/// One fault of a pair, with its kind.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// Its time and target.
    pub common: &'a FaultCommon,
    /// Its kind.
    pub kind: &'a dyn Kind,
}

/// Two faults in the same runs, as seen from one of them.
#[derive(Clone, Copy)]
pub struct Pair<'a> {
    /// The fault from which the pair is seen.
    pub me: Side<'a>,
    /// The other fault.
    pub other: Side<'a>,
    /// The rest of the file.
    pub stage: &'a dyn Stage,
}

impl<'a> Pair<'a> {
    /// The other fault, if it is of this kind.
    pub fn other_as<T: Kind>(&self) -> Option<&'a T> {
        (self.other.kind as &dyn Any).downcast_ref()
    }

    /// Whether both affect the same target.
    pub fn same_target(&self) -> bool {
        !self.me.common.target.is_empty() && self.me.common.target == self.other.common.target
    }

    /// The time of this fault.
    pub fn my_times(&self) -> Times {
        Times::of(self.me.common)
    }

    /// The time of the other fault.
    pub fn other_times(&self) -> Times {
        Times::of(self.other.common)
    }
}

/// The time of a fault, which may start before the run and end after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The start, counted from the start of measuring; `None` if it is before that.
    pub begin: Option<Duration>,
    /// The end; the largest duration if the fault lasts until the end of the run.
    pub end: Duration,
}

impl Times {
    /// The time of a fault.
    pub fn of(common: &FaultCommon) -> Times {
        let (begin, end) = common.times();
        Times {
            begin,
            end: end.unwrap_or(Duration::MAX),
        }
    }

    /// Whether the two overlap. A fault that begins when the other ends doesn't overlap with it.
    pub fn meet(self, other: Times) -> bool {
        let before = |a: Times, b: Times| b.begin.is_none_or(|begin| begin < a.end);
        before(self, other) && before(other, self)
    }

    /// Whether `other` begins or ends within this time.
    pub fn enclose_an_end_of(self, other: Times) -> bool {
        self.meet(other) && !(other.begin <= self.begin && self.end < other.end)
    }

    /// Whether this time includes all of `other`.
    pub fn cover(self, other: Times) -> bool {
        self.begin <= other.begin && other.end <= self.end
    }
}
