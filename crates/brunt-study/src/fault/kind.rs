//! The interface of a kind of fault: its keys in a `[[fault]]`, its effect, its checks, its interaction with
//! other faults, and its creation. Implemented by one file per kind under [`super::kinds`]; called by the
//! check of an experiment file and by the schedule.
//!
//! The rule: everything that can be checked before opening anything is checked then, by the kind itself: no
//! other code knows its name.

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
use crate::control::{Controls, Local};
use crate::experiment::{LabEntry, Target};
use crate::host::{HostName, Hosts};
use crate::lab::BuiltLab;
use crate::role::{Role, RoleKind};

/// What a kind of fault is, for its table.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Its keys in a `[[fault]]` beside the common ones. The first one says that a fault is of this kind, and
    /// is its name everywhere.
    pub keys: &'static [&'static str],
    /// Whether agents of other hosts inject it (`host = …`).
    pub on_hosts: bool,
    /// What it does, in a line.
    pub help: &'static str,
    /// What is seen when it is there, and when it is gone.
    pub proof: &'static str,
    /// A `[[fault]]` of this kind, without its first line.
    pub example: &'static str,
}

/// What may be said of a fault of any kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultCommon {
    /// Name shown in reports; default: its effect.
    pub name: String,
    /// Start, counted from the start of measuring. Without it the fault is sticky: present from before the first
    /// request until after the last.
    pub at: Option<Span>,
    /// Duration; default: until the end of the run.
    pub lasts: Option<Span>,
    /// Which of the experiment's targets it is about; runs against others go on without it. Empty for all.
    pub target: String,
    /// The other host on which it is injected; `None`: where the experiment runs.
    pub host: Option<HostName>,
}

impl FaultCommon {
    /// When it begins and ends, from the start of measuring; `None` for "before" and "after".
    pub fn times(&self) -> (Option<Duration>, Option<Duration>) {
        let at = self.at.map(|at| at.0);
        (
            at,
            self.lasts
                .map(|lasts| at.unwrap_or_default().saturating_add(lasts.0)),
        )
    }
}

/// What a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// A target, whatever it is.
    Target,
    /// The process of a target that the experiment serves.
    Process,
    /// The whole machine or the lab: a target only says in which runs.
    Machine,
    /// The processes of a service, wherever that is: a target only says in which runs.
    Service,
}

/// A fault of one kind, as it is written.
pub trait Kind: Any + Debug + Send + Sync {
    /// Purpose of the experiment.
    fn about(&self) -> About;

    /// Whether it is injected at the fault layer of its target's device, which gets one on top if it has none.
    fn wants_fault_layer(&self) -> bool {
        false
    }

    /// The service whose processes it is about, if it is about one.
    fn service(&self) -> Option<&str> {
        None
    }

    /// What it does, in a word or two.
    fn what(&self) -> String;

    /// Where it is: a target's name, a link's, the machine.
    fn place(&self, common: &FaultCommon) -> String {
        if common.target.is_empty() {
            "this machine".to_string()
        } else {
            common.target.clone()
        }
    }

    /// What a record says that it does, when the driver's own words leave out where.
    fn recorded_as(&self, common: &FaultCommon) -> Option<String> {
        let _ = common;
        None
    }

    /// Reads the files that it names; relative paths count from the folder that is asked for a key's. Called before
    /// its check.
    ///
    /// # Errors
    /// The key, below that of the fault, whose file cannot be used, and why.
    fn read_files(&mut self, folder: &dyn Fn(&[&str]) -> PathBuf) -> Result<(), FileMistake> {
        let _ = folder;
        Ok(())
    }

    /// Whether it can be, as far as the experiment's file says.
    ///
    /// # Errors
    /// The key that is wrong, and what would be right.
    fn check(&self, common: &FaultCommon, plan: &dyn Stage) -> Result<(), Mistake>;

    /// What comes of it and another one that is there at the same time, of any kind, in runs that both are in;
    /// `None` when they have nothing to do with each other, or when the other one knows.
    fn overlap(&self, pair: &Pair<'_>) -> Option<Together> {
        let _ = pair;
        None
    }

    /// Why it cannot be in one run with another one at all, even at different times.
    fn clash(&self, pair: &Pair<'_>) -> Option<Together> {
        let _ = pair;
        None
    }

    /// What the agent of another host is asked for; `None`: it is not for other hosts.
    fn on_host(&self, common: &FaultCommon) -> Option<HostFault> {
        let _ = common;
        None
    }

    /// The share of a core that it takes, and of which cores (none named: of all).
    fn core_share(&self) -> Option<(f64, &[usize])> {
        None
    }

    /// Whether `for` counts from when it shows rather than from its begin: of one that takes seconds to be put in place.
    fn lasts_once_shown(&self) -> bool {
        false
    }

    /// Whether this machine can do it, asked before anything is started.
    ///
    /// # Errors
    /// What it lacks.
    fn check_machine(&self) -> Result<(), DriverError> {
        Ok(())
    }

    /// Finds what it is about, once targets are open and roles and lab are there.
    ///
    /// # Errors
    /// What it is about is not there.
    fn prepare(&self, common: &FaultCommon, scene: &mut Scene<'_>)
    -> Result<Prepared, DriverError>;
}

/// What an experiment's file says, for checks.
pub trait Stage {
    /// The target of that name.
    fn target(&self, name: &str) -> Option<&Target>;

    /// The role that serves the target of that name, if the experiment has it served.
    fn role(&self, target: &str) -> Option<Box<dyn RoleKind>> {
        self.target(target).and_then(Target::role)
    }

    /// The names of all targets.
    fn target_names(&self) -> Vec<String>;

    /// What is to be said of a service that the experiment does not have.
    fn unknown_service(&self, name: &str) -> Option<String>;

    /// Whether a service runs on another machine.
    fn is_service_elsewhere(&self, name: &str) -> bool;

    /// The lab, if there is one.
    fn lab(&self) -> Option<&LabEntry>;

    /// The hosts, for looking them up.
    fn hosts(&self) -> Hosts;

    /// The hosts whose workers send requests to a target.
    fn requesters(&self, target: &str) -> Vec<HostName> {
        let _ = target;
        vec![self.hosts().worker().clone()]
    }

    /// The settings of a link at each point of this target (empty: of all), with the point's label.
    fn link_at_points(&self, link: &str, target: &str) -> Vec<(String, [Settings; 2])>;
}

/// A file that a fault names and that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", .key.join("."))]
pub struct FileMistake {
    /// Of the `[[fault]]`, and below it.
    pub key: &'static [&'static str],
    /// What is wrong, and what to do.
    pub what: String,
}

/// What cannot be, at which key, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}; {help}")]
pub struct Mistake {
    /// Of the `[[fault]]`.
    pub key: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub help: String,
}

impl Mistake {
    /// Something wrong with the value of `key`.
    pub fn new(key: &'static str, what: impl Into<String>, help: impl Into<String>) -> Mistake {
        Mistake {
            key,
            what: what.into(),
            help: help.into(),
        }
    }
}

/// What stands when the schedule is made.
pub struct Scene<'a> {
    /// The open targets; a fault may put a layer on one.
    pub targets: &'a mut BTreeMap<String, Arc<dyn Backend>>,
    /// The targets that the experiment serves itself.
    pub roles: &'a BTreeMap<String, Arc<dyn Role>>,
    /// The services that it started.
    pub services: &'a BTreeMap<String, Arc<dyn Role>>,
    /// An emulated network of hosts and links.
    pub lab: Option<&'a BuiltLab>,
    /// Which LUN of each target is measured.
    pub luns: BTreeMap<String, u16>,
    /// The hosts whose workers send requests to each target.
    pub requesters: BTreeMap<String, Vec<HostName>>,
}

impl Scene<'_> {
    /// The process of a target that the experiment serves.
    ///
    /// # Errors
    /// It is not one of those.
    pub fn role(&self, target: &str) -> Result<Arc<dyn Role>, DriverError> {
        let unfit = || {
            let advice =
                "write serve = \"memory:1GiB\", or another device, in place of the target's url";
            DriverError::unfit("it needs a target that the experiment serves", advice)
        };
        self.roles.get(target).cloned().ok_or_else(unfit)
    }

    /// A service that the experiment started.
    ///
    /// # Errors
    /// It did not.
    pub fn service(&self, name: &str) -> Result<Arc<dyn Role>, DriverError> {
        let started: Vec<&str> = self.services.keys().map(String::as_str).collect();
        let unfit = || {
            DriverError::unfit(
                "its service was not started",
                format!("started are {}", started.join(", ")),
            )
        };
        self.services.get(name).cloned().ok_or_else(unfit)
    }

    /// The lab as it stands.
    ///
    /// # Errors
    /// There is none.
    pub fn lab(&self) -> Result<BuiltLab, DriverError> {
        let unfit = || {
            DriverError::unfit(
                "there is no lab",
                "write [lab.links.NAME] with between = [\"a\", \"b\"]",
            )
        };
        self.lab.cloned().ok_or_else(unfit)
    }

    /// Whoever drives the layers of a target's device. With `on_top`, a device of this process that has no
    /// layer for faults gets one.
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
            "its target is not open",
            format!("open are {}", open.join(", ")),
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

/// Makes a driver for a run.
pub type Make = Box<dyn Fn() -> Result<Box<dyn FaultDriver>, DriverError> + Send>;

/// A fault that has found what it is about.
pub struct Prepared {
    /// Makes its driver for each run.
    pub make: Make,
    /// Who drives the layers of its device, and its LUN, if it is about a device: its arrays are made whole
    /// before each run.
    pub device: Option<(Arc<dyn Controls>, u16)>,
}

impl Prepared {
    /// A fault that is not about a device.
    pub fn new(
        make: impl Fn() -> Result<Box<dyn FaultDriver>, DriverError> + Send + 'static,
    ) -> Prepared {
        Prepared {
            make: Box::new(make),
            device: None,
        }
    }
}

/// What comes of two faults at once.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Together {
    /// Both are there; how.
    Both(String),
    /// Not possible.
    Refused {
        /// Why.
        why: String,
        /// What to write instead.
        instead: &'static str,
    },
}

impl Together {
    /// Both are there; how.
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

/// A fault in a pair.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// When, and against which target.
    pub common: &'a FaultCommon,
    /// What.
    pub kind: &'a dyn Kind,
}

/// Two faults that are in the same runs, seen from one of them.
#[derive(Clone, Copy)]
pub struct Pair<'a> {
    /// The one that is asked.
    pub me: Side<'a>,
    /// The other one.
    pub other: Side<'a>,
    /// The rest of the file.
    pub stage: &'a dyn Stage,
}

impl<'a> Pair<'a> {
    /// The other one, if it is of this kind.
    pub fn other_as<T: Kind>(&self) -> Option<&'a T> {
        (self.other.kind as &dyn Any).downcast_ref()
    }

    /// Whether both are about one and the same target.
    pub fn same_target(&self) -> bool {
        !self.me.common.target.is_empty() && self.me.common.target == self.other.common.target
    }

    /// From when to when this one is there.
    pub fn my_times(&self) -> Times {
        Times::of(self.me.common)
    }

    /// From when to when the other one is there.
    pub fn other_times(&self) -> Times {
        Times::of(self.other.common)
    }
}

/// From when to when; before everything and after it, where a fault does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From the start of measuring; `None`: before it.
    pub begin: Option<Duration>,
    /// The longest there is where a fault lasts until the end.
    pub end: Duration,
}

impl Times {
    /// Of a fault.
    pub fn of(common: &FaultCommon) -> Times {
        let (begin, end) = common.times();
        Times {
            begin,
            end: end.unwrap_or(Duration::MAX),
        }
    }

    /// Whether there is a time in both. One that begins when the other ends comes after it.
    pub fn meet(self, other: Times) -> bool {
        let before = |a: Times, b: Times| b.begin.is_none_or(|begin| begin < a.end);
        before(self, other) && before(other, self)
    }

    /// Whether `other` begins or ends while this one is there.
    pub fn hold_an_end_of(self, other: Times) -> bool {
        self.meet(other) && !(other.begin <= self.begin && self.end < other.end)
    }

    /// Whether all of `other` is in this one.
    pub fn cover(self, other: Times) -> bool {
        self.begin <= other.begin && other.end <= self.end
    }
}
