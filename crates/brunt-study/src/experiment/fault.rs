//! `[[fault]]`: what goes wrong during each run, and when.
//!
//! ```toml
//! [[fault]]                             # transient: from 5 s to 10 s of the measured time
//! target = "disk"
//! storage = "aborted-command,p=0.5"     # the words of a device's fault= option
//! at = "5s"
//! for = "5s"
//!
//! [[fault]]                             # sticky: without a time, for the whole run
//! target = "disk"
//! storage = "slow:1ms"
//!
//! [[fault]]                             # a member of the target's array; over when the array is whole again
//! target = "array"
//! member = 1
//! at = "5s"
//!
//! [[fault]]                             # the controller: 98% of the cores that the target is kept on
//! target = "served"
//! cpu = 0.98
//! cores = [1]
//! at = "5s"
//! for = "5s"
//!
//! [[fault]]                             # a link of the lab, both ways
//! link = "wan"
//! set = { loss = 0.005 }
//! at = "10s"
//! for = "2s"
//! ```
//!
//! Several may be there at once; where one has to do with another, [`super::overlap`] says what comes of it.
//!
//! `memory = "1GiB"` locks memory, `freeze = true` stops the served target's process, `kill = true` kills it
//! and starts it again at the end.

use std::time::Duration;

use brunt_block::backends::array::{self, Level};
use brunt_block::control;
use brunt_block::layers::fault::Fault as StorageFault;
use brunt_core::{Size, Span};
use brunt_lab::link::SettingsError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lab::CarrierName;
use super::mistake::{FileError, Source};
use super::overlap::{Overlap, Together, overlaps};
use super::{Experiment, LinkBack, Point, Target};

/// Most faults of an experiment.
pub const FAULTS_MAX: usize = 64;

/// One fault. Exactly one key says what it is: `storage`, `member`, `cpu`, `memory`, `freeze`,
/// `kill` or `link`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FaultEntry {
    /// What it is called in reports; what it does, by default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// When it begins, from the start of measuring. Without it the fault is sticky: there before the
    /// first request and until after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Span>,
    /// How long it lasts; until the end of the run by default.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Span>,
    /// Which of the experiment's targets it is about; runs against others go on without it. Faults of the
    /// whole machine or lab (`cpu`, `memory`, `link`) may leave it out: then they are about all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// The layer of the target's device, by its name, when there is more than one of that kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// Trouble of the storage, in the words of a device's `fault=` option: `medium-error,p=0.1,op=read`,
    /// `slow:10ms`, `hang`. Without such a layer in the target's URL one is put on top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// Takes this member out of the target's array (raid1 or raid5), from 0. Over when the array is whole again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<usize>,
    /// Takes this share (0 to 1) of the processor away, by competing for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Of these cores; all that the target may use by default. A target that the experiment serves is kept on them, with and
    /// without the fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<usize>,
    /// Takes so much memory away and locks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// Stops the process of a target that the experiment serves; its connections stay open.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub freeze: bool,
    /// Kills the process of a target that the experiment serves, and starts it again when it is over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub kill: bool,
    /// Changes this link of the lab.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// To these settings, in both directions, over those that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<LinkBack>,
}

impl FaultEntry {
    /// What it does, in a word or two.
    pub fn what(&self) -> String {
        match (&self.storage, self.member, self.cpu, self.memory) {
            (Some(storage), ..) => storage.clone(),
            (_, Some(member), ..) => format!("member {member} fails"),
            (_, _, Some(share), _) => format!("{}% of the processor taken", share * 100.0),
            (_, _, _, Some(size)) => format!("{size} of memory taken"),
            _ if self.freeze => "freeze".to_string(),
            _ if self.link.is_some() => self.set.as_ref().map_or(String::new(), LinkBack::said),
            _ => "kill".to_string(),
        }
    }

    /// Its kind, one word: the key that says what it is.
    pub fn kind(&self) -> &'static str {
        self.kinds().first().copied().unwrap_or("none")
    }

    /// All keys of that sort that are there.
    fn kinds(&self) -> Vec<&'static str> {
        let all = [
            ("storage", self.storage.is_some()),
            ("member", self.member.is_some()),
            ("cpu", self.cpu.is_some()),
            ("memory", self.memory.is_some()),
            ("freeze", self.freeze),
            ("kill", self.kill),
            ("link", self.link.is_some()),
        ];
        all.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
    }

    /// Where it is: a target's name, or the machine.
    pub fn place(&self) -> String {
        match &self.link {
            Some(link) => format!("link {link}"),
            None if self.target.is_empty() => "this machine".to_string(),
            None => self.target.clone(),
        }
    }

    /// What reports call it.
    pub fn label(&self) -> String {
        if self.name.is_empty() { self.what() } else { self.name.clone() }
    }

    /// Why this member of the target's array cannot fail and be replaced, and what to write instead. What
    /// arrays there are is read off the URL; which of several is meant is asked when they are opened.
    fn member_mistake(&self, member: usize, target: &Target) -> Option<(String, String)> {
        let arrays = array::named_in(target.place());
        let array = match (&self.layer, arrays.as_slice()) {
            (_, []) => {
                let what = format!("target {} is no array, so that no member of it fails", self.target);
                return Some((
                    what,
                    "write one as its url or serve, such as array:raid1,[…],[…]".to_string(),
                ));
            }
            (None, [(_, only)]) => only,
            (None, _) => return None,
            (Some(name), _) => control::find(&arrays, name)?,
        };
        let last = array.members.checked_sub(1)?;
        if member > last {
            return Some((format!("there is no member {member}"), format!("write one of 0 to {last}")));
        }
        // Whatever lasts until the end of a run is made good before the next one.
        (array.level == Level::Raid0).then(|| {
            let what = format!(
                "member {member} of a RAID 0 cannot fail: nothing makes up for it, and nothing is left to \
                 rebuild it from when the fault is over or the next run begins"
            );
            let help = format!(
                "write raid1 or raid5; or give the device of member {member} a fault layer ([…?fault=off]) and \
                 have that fail, sticky or for a time: storage = \"hardware-error\" with the layer's name, such \
                 as layer = \"{member}/fault\", for member = {member}"
            );
            (what, help)
        })
    }

    /// When it begins and ends, from the start of measuring; `None` for "before" and "after".
    pub fn times(&self) -> (Option<Duration>, Option<Duration>) {
        let at = self.at.map(|at| at.0);
        (at, self.lasts.map(|lasts| at.unwrap_or_default().saturating_add(lasts.0)))
    }
}

impl Experiment {
    pub(super) fn check_faults(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let wrong = |index: usize, what: String, help: &str| {
            let what = format!("fault {}: {what}", index + 1);
            Err(source.mistake(&["fault", &index.to_string()], what, Some(help.to_string())))
        };
        if self.fault.len() > FAULTS_MAX {
            return wrong(FAULTS_MAX, format!("more than {FAULTS_MAX} faults"), "leave some out");
        }
        for (index, fault) in self.fault.iter().enumerate() {
            let kind = match fault.kinds().as_slice() {
                [one] => *one,
                [] => {
                    let help =
                        "write what, such as storage = \"medium-error,p=0.1\", cpu = 0.98 or freeze = true";
                    return wrong(index, "it does nothing".into(), help);
                }
                several => {
                    let what = format!("{} are several faults", several.join(" and "));
                    return wrong(index, what, "write a [[fault]] for each, at the same time if need be");
                }
            };
            if (kind == "link") != fault.set.is_some() {
                return wrong(
                    index,
                    "link and set belong together".into(),
                    "write link = \"wan\" and set = { loss = 0.01 }",
                );
            }
            if let Some(link) = &fault.link
                && !self.lab.as_ref().is_some_and(|lab| lab.links.contains_key(link))
            {
                let what = format!("there is no link '{link}'");
                return wrong(index, what, "write a name from [lab.links.NAME]");
            }
            if fault.cpu.is_some_and(|share| !(0.01..=1.0).contains(&share)) {
                return wrong(index, "cpu is a share, 0.01 to 1".into(), "write cpu = 0.98");
            }
            if !fault.cores.is_empty() && kind != "cpu" {
                return wrong(index, "cores belong to a cpu fault".into(), "write cpu = 0.98 beside them");
            }
            if fault.memory.is_some_and(|size| size.0 == 0) {
                return wrong(index, "no memory is taken".into(), "write memory = \"1GiB\"");
            }
            if fault.layer.is_some() && !matches!(kind, "storage" | "member") {
                return wrong(index, format!("{kind} is about no layer"), "leave layer out");
            }
            if let Some((what, help)) = self.link_mistake(fault) {
                return wrong(index, what, help);
            }
            let machine = matches!(kind, "cpu" | "memory" | "link") && fault.target.is_empty();
            if !machine && fault.target.is_empty() {
                let names: Vec<&str> = self.targets.keys().map(String::as_str).collect();
                let what = format!("it does not say which target's {kind} it is about");
                return wrong(index, what, &format!("write target = one of {}", names.join(", ")));
            }
            let Some(target) = self.targets.get(&fault.target).filter(|_| !machine) else {
                if machine {
                    self.check_times(index, fault, source)?;
                    continue;
                }
                let names: Vec<&str> = self.targets.keys().map(String::as_str).collect();
                let what = format!("there is no target '{}'", fault.target);
                return wrong(index, what, &format!("write target = one of {}", names.join(", ")));
            };
            match fault.storage.as_deref().map(StorageFault::parse) {
                Some(Err(error)) => {
                    return wrong(index, error.to_string(), "the same words as in a device's fault= option");
                }
                Some(Ok(storage)) if storage.does_nothing() => {
                    let what = format!("{storage} hits no request, or does nothing to it");
                    return wrong(index, what, "write p= above 0, or how much slower: slow:10ms, slow:x2");
                }
                _ => {}
            }
            if let Some((what, help)) = fault.member.and_then(|member| fault.member_mistake(member, target)) {
                return wrong(index, what, &help);
            }
            if matches!(kind, "freeze" | "kill") && target.serve.is_none() {
                let what = format!("{kind} is for a process of the experiment's own; this target has a url");
                return wrong(index, what, "write serve = … instead of url = … for the target");
            }
            self.check_times(index, fault, source)?;
        }
        for Overlap { first, second, together } in overlaps(&self.fault) {
            if let Together::Refused { why, instead } = together {
                let (a, b) = (self.fault[first].label(), self.fault[second].label());
                let what =
                    format!("together with fault {} ('{a}') this one ('{b}') cannot be: {why}", first + 1);
                return wrong(second, what, instead);
            }
        }
        Ok(())
    }

    /// Why a link of the lab cannot take these settings, or would not change by them, at any point.
    fn link_mistake(&self, fault: &FaultEntry) -> Option<(String, &'static str)> {
        let (name, set) = (fault.link.as_ref()?, fault.set.as_ref()?);
        let carrier = self.lab.as_ref()?.links.get(name)?.carrier;
        let meant = |point: &Point| fault.target.is_empty() || fault.target == point.target;
        for point in self.points().iter().filter(|point| meant(point)) {
            let before = point.links.get(name)?;
            let mut during = before.clone();
            during.iter_mut().for_each(|settings| set.lay_over(settings));
            if let Some(SettingsError { key, what, .. }) = during.iter().find_map(|way| way.check().err()) {
                let whole = format!("{key}: {what}, together with what the link has at {}", point.label);
                return Some((whole, "these settings are laid over those that the link has"));
            }
            if during == *before {
                let what = format!("link {name} has these settings already at {}", point.label);
                return Some((what, "write settings that differ from those under [lab.links] and [sweep]"));
            }
            if carrier == CarrierName::Bare {
                let what = format!("link {name} is a bare wire, which does nothing to packets");
                return Some((what, "leave carrier out of the link"));
            }
        }
        None
    }

    fn check_times(
        &self,
        index: usize,
        fault: &FaultEntry,
        source: &Source<'_>,
    ) -> Result<(), Box<FileError>> {
        let wrong = |what: String, help: &str| {
            let what = format!("fault {}: {what}", index + 1);
            Err(source.mistake(&["fault", &index.to_string()], what, Some(help.to_string())))
        };
        if fault.lasts.is_some_and(|lasts| lasts.0.is_zero()) {
            return wrong("it lasts no time".into(), "write for = \"5s\", or leave it out");
        }
        if fault.lasts.is_some() && fault.at.is_none() {
            return wrong("it ends, but does not begin".into(), "write at = \"0s\" as well");
        }
        let ends = |time: Duration| {
            let (begin, end) = fault.times();
            begin.is_some_and(|begin| begin >= time) || end.is_some_and(|end| end > time)
        };
        let late = self.workloads.iter().find_map(|(name, workload)| {
            workload.stop.time.filter(|time| ends(time.0)).map(|time| (name, time))
        });
        if let Some((name, time)) = late {
            let what = format!("workload {name} is over after {time}, before the fault is");
            return wrong(
                what,
                "begin and end it within the workload's stop.time, or let it last until the end",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The goal: a member that cannot fail, or cannot be replaced, is refused when the file is read, with a way
    /// out that is taken; what only those can tell who open the device is left to them.
    #[test]
    fn members() {
        let check = |target: &str, fault: &str, said: Option<&str>| {
            let text = format!(
                "name = \"x\"\n[targets.disk]\n{target}\n[workloads.load]\nstop = {{ time = \"10s\" }}\n\
                 [[fault]]\ntarget = \"disk\"\n{fault}"
            );
            match (Experiment::parse("x.toml", &text), said) {
                (Ok(_), None) => {}
                (Err(error), Some(said)) => {
                    let all = format!("{} {}", error.one_line(), error.help_text().unwrap_or_default());
                    assert!(all.contains("fault 1: ") && all.contains(said), "{target} {fault}: {all}");
                }
                (result, said) => panic!("{target} {fault}: {said:?} {:?}", result.err()),
            }
        };
        let m = "[memory:1MiB?fault=off]";
        let timed = "member = 1\nat = \"1s\"\nfor = \"1s\"";
        for array in [format!("array:raid0,{m},{m}"), format!("array:raid0,{m},{m},spare={m}?retry=3")] {
            for target in
                [format!("url = \"{array}\""), format!("serve = [\"null:1MiB\", \"{array},wb\"]\nlun = 1")]
            {
                check(&target, timed, Some("member 1 of a RAID 0 cannot fail"));
                check(&target, "member = 0", Some("layer = \"0/fault\""));
                check(&target, "member = 0\nat = \"1s\"", Some("RAID 0"));
                check(&target, "layer = \"0/fault\"\nstorage = \"hardware-error\"\nat = \"1s\"", None);
            }
        }
        let mirror = format!("url = \"array:raid1,{m},{m}\"");
        check(&mirror, timed, None);
        check(&mirror, "member = 2", Some("one of 0 to 1"));
        check(&format!("url = \"array:raid5,{m},{m},{m}\""), timed, None);
        check("url = \"memory:1MiB\"", timed, Some("disk is no array"));
        check("serve = \"tcp\"", timed, Some("disk is no array"));
        let nested = format!("url = \"array:raid1,{m},[array:raid0,name=low,{m},{m}]\"");
        check(&nested, "layer = \"low\"\nmember = 0", Some("RAID 0"));
        check(&nested, "layer = \"1/low\"\nmember = 0", Some("RAID 0"));
        check(&nested, "layer = \"array\"\nmember = 1", None);
        check(&nested, "member = 1", None);
        check(&nested, "layer = \"else\"\nmember = 1", None);
        check("url = \"array:raid0\"", "member = 0", None);
    }

    /// The goal: a fault that would do nothing, or that nothing can do, is refused when the file is read, at its
    /// own line; what is set on a link is said in words.
    #[test]
    fn faults_that_cannot_be() {
        let check = |link: &str, fault: &str, said: Option<&str>| {
            let text = format!(
                "name = \"x\"\n[lab]\nhosts = [\"a\", \"b\"]\n[lab.links.wan]\nbetween = [\"a\", \"b\"]\n{link}\n\
                 [targets.disk]\nserve = \"memory:1MiB\"\nhost = \"b\"\n[workloads.load]\nstop = {{ time = \"10s\" }}\n\
                 [[fault]]\nmemory = \"1MiB\"\n[[fault]]\n{fault}"
            );
            let line = 1 + text.lines().position(|line| line.starts_with("memory =")).unwrap() + 1;
            match (Experiment::parse("x.toml", &text), said) {
                (Ok(_), None) => {}
                (Err(error), Some(said)) => {
                    let all = format!("{} {}", error.one_line(), error.help_text().unwrap_or_default());
                    let start = format!("x.toml:{line}: fault 2: ");
                    assert!(all.starts_with(&start) && all.contains(said), "{link} {fault}: {all}");
                }
                (result, said) => panic!("{link} {fault}: {said:?} {:?}", result.err()),
            }
        };
        let set = |set: &str| format!("link = \"wan\"\nset = {{ {set} }}");
        check("", &set("delay = \"5ms\""), None);
        check("", &set("rate = \"0b/s\""), Some("rate: 0b/s is out of range"));
        check("", &set("loss = 2.0"), Some("loss: 2 is no share"));
        check("", &set(""), Some("has these settings already"));
        check("delay = \"5ms\"", &set("delay = \"5ms\""), Some("already at disk load"));
        check("carrier = \"bare\"", &set("delay = \"5ms\""), Some("bare wire"));
        check("loss = 0.1", &set("loss_bursts = { to_bad = 0.1, to_good = 0.5 }"), Some("loss already"));
        check("", "cpu = 2.0", Some("cpu is a share"));
        check("", "memory = \"1MiB\"\ncores = [0]", Some("cores belong to a cpu fault"));
        check("", "memory = \"0B\"", Some("no memory is taken"));
        check("", "storage = \"busy\"", Some("write target = one of disk"));
        check("", "target = \"disk\"\nstorage = \"busy,p=0\"", Some("hits no request"));
        check("", "target = \"disk\"\nstorage = \"slow:x1\"", Some("does nothing to it"));
        check("", "target = \"disk\"\nstorage = \"slow:x1.5\"", None);
        let set = |text: &str| toml::from_str::<LinkBack>(text).unwrap().said();
        assert_eq!(set("delay = '5ms'\nloss = 0.01"), "delay 5ms, loss 0.01");
    }
}
