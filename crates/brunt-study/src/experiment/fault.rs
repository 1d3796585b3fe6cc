//! Checks an experiment's faults against the rest of its file: targets, links, times and other faults. Checks that
//! concern a single kind of fault are with that kind, in [`crate::fault`].

use std::time::Duration;

use brunt_lab::link::Settings;
use toml::Spanned;
use toml::de::DeValue;

use super::mistake::{FileError, Source};
use super::{Experiment, LabEntry, Point, Target};
use crate::fault::{
    About, EntryError, FaultEntry, Mistake, OCCURRENCES_MAX, Overlap, Stage, Together, overlaps,
};
use crate::host::{BridgeHost, HostName, Hosts};

/// Maximum number of faults in an experiment.
pub const FAULTS_MAX: usize = 64;

impl Stage for Experiment {
    fn target(&self, name: &str) -> Option<&Target> {
        self.targets.get(name)
    }

    fn target_names(&self) -> Vec<String> {
        self.targets.keys().cloned().collect()
    }

    fn unknown_service(&self, name: &str) -> Option<String> {
        (!self.services.contains_key(name)).then(|| self.no_service(name))
    }

    fn is_remote_service(&self, name: &str) -> bool {
        self.remote_services()
            .iter()
            .any(|(service, _)| service == name)
    }

    fn lab(&self) -> Option<&LabEntry> {
        self.lab.as_ref()
    }

    fn hosts(&self) -> Hosts {
        // Mistakes in the hosts themselves are reported before faults are checked.
        Experiment::hosts(self).unwrap_or_default()
    }

    fn requesters(&self, target: &str) -> Vec<HostName> {
        Experiment::requesters(self, target)
    }

    fn link_at_points(&self, link: &str, target: &str) -> Vec<(String, [Settings; 2])> {
        let meant = |point: &Point| target.is_empty() || point.is_on(target);
        let points = self.points().into_iter().filter(meant);
        points
            .filter_map(|mut point| Some((point.label, point.links.remove(link)?)))
            .collect()
    }
}

/// The first entry under `[[fault]]` that is not a valid fault, as a mistake at its key. Deserializing the whole file
/// would lose the position.
pub(super) fn unreadable(source: &Source<'_>) -> Option<Box<FileError>> {
    let root = source.root();
    let (_, faults) = root
        .get_ref()
        .iter()
        .find(|(key, _)| key.get_ref() == "fault")?;
    let DeValue::Array(faults) = faults.get_ref() else {
        return None;
    };
    faults.iter().enumerate().find_map(|(index, fault)| {
        let DeValue::Table(keys) = fault.get_ref() else {
            return None;
        };
        match FaultEntry::read(Spanned::new(fault.span(), keys.clone())) {
            Ok(_) => None,
            Err(EntryError::Key { place, what, help }) => {
                let what = format!("fault {}: {what}", index + 1);
                Some(source.mistake_at(
                    Some(place.unwrap_or_else(|| fault.span())),
                    what,
                    Some(help),
                ))
            }
            Err(EntryError::Value { place, error }) => Some(source.unreadable_at(place, &error)),
        }
    })
}

impl Experiment {
    /// Replaces faults that occur several times with their occurrences ([`FaultEntry::expand`]).
    pub(super) fn settle_faults(&mut self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        if self.fault.len() > FAULTS_MAX {
            let what = format!("more than {FAULTS_MAX} faults");
            let mistake = Mistake::new("", what, "remove some");
            return Err(self.fault_mistake(source, FAULTS_MAX, mistake));
        }
        let workloads = self.workloads.on_targets();
        let times = workloads.filter_map(|(_, one)| one.stop.time);
        let shortest = times.map(|time| time.0).min();
        let expanded = FaultEntry::expand(self.fault.clone(), self.seed, shortest);
        self.fault =
            expanded.map_err(|(index, mistake)| self.fault_mistake(source, index, mistake))?;
        if self.fault.len() > OCCURRENCES_MAX {
            let recurs = self
                .fault
                .iter()
                .position(|one| one.common.recurrence.is_some());
            let what = format!(
                "all faults together occur {} times in a run",
                self.fault.len()
            );
            let help = format!("the maximum is {OCCURRENCES_MAX}");
            let mistake = Mistake::new("at", what, help);
            return Err(self.fault_mistake(source, recurs.unwrap_or_default(), mistake));
        }
        Ok(())
    }

    /// The index in the file of the fault at `index`, which may be one occurrence of that fault.
    pub(super) fn fault_in_file(&self, index: usize) -> usize {
        let until = self.fault.iter().take(index.saturating_add(1));
        until
            .filter(|fault| fault.is_written())
            .count()
            .saturating_sub(1)
    }

    fn fault_mistake(
        &self,
        source: &Source<'_>,
        index: usize,
        Mistake { key, what, help }: Mistake,
    ) -> Box<FileError> {
        let in_file = self.fault_in_file(index);
        let what = format!("fault {}: {what}", in_file + 1);
        let index_text = in_file.to_string();
        // A missing key is reported at the key that selects the fault's kind.
        let named = self.fault.get(index).map_or("", FaultEntry::kind_name);
        let key = if source.has(&["fault", &index_text, key]) {
            key
        } else {
            named
        };
        source.mistake(&["fault", &index_text, key], what, Some(help))
    }

    pub(super) fn check_faults(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let wrong = |index, mistake| Err(self.fault_mistake(source, index, mistake));
        for (index, fault) in self.fault.iter().enumerate() {
            let checked = self
                .check_fault_host(fault)
                .and_then(|()| self.check_target(fault))
                .and_then(|()| fault.kind.as_kind().check(&fault.common, self))
                .and_then(|()| self.check_times(fault));
            if let Err(mistake) = checked {
                return wrong(index, mistake);
            }
        }
        for Overlap {
            first,
            second,
            together,
        } in overlaps(&self.fault, self)
        {
            if let Together::Refused { why, instead } = together {
                let (a, b) = (self.fault[first].label(), self.fault[second].label());
                let what = format!(
                    "it ('{b}') cannot be combined with fault {} ('{a}'): {why}",
                    self.fault_in_file(first) + 1
                );
                return wrong(
                    second,
                    Mistake::new(self.fault[second].kind_name(), what, instead),
                );
            }
        }
        Ok(())
    }

    /// Checks that a fault on another host is of a kind that agents inject, and that the host has an agent.
    fn check_fault_host(&self, fault: &FaultEntry) -> Result<(), Mistake> {
        let Some(name) = &fault.common.host else {
            return self.check_far_target(fault);
        };
        let hosts = Stage::hosts(self);
        let wrong = |what: String, help: &str| Err(Mistake::new("host", what, help));
        match hosts.find(name) {
            Err(error) => return wrong(error.to_string(), "name a host of [hosts]"),
            Ok(_) if !hosts.is_remote(name) => {
                let what = format!("host '{name}' is not a remote host");
                return wrong(what, "name a host that has ssh or agent, or omit host");
            }
            Ok(_) => {}
        }
        if !fault.kind.entry().info.on_hosts {
            let what = format!(
                "{} faults cannot be injected on other hosts",
                fault.kind_name()
            );
            return wrong(
                what,
                "write cpu, memory, freeze, kill, netem or bridge, or omit host",
            );
        }
        Ok(())
    }

    /// If another host serves the target, faults on this machine can affect the target's process and devices, but not
    /// the other host's hardware. For a service, the target only selects the runs in which it fails, so the service
    /// may be on another host than the target.
    fn check_far_target(&self, fault: &FaultEntry) -> Result<(), Mistake> {
        let is_about_machine = fault.kind.as_kind().about() == About::Machine;
        let far = self.served_remotely();
        match far
            .iter()
            .find(|(target, _)| is_about_machine && *target == fault.common.target)
        {
            Some((target, host)) => {
                let what = format!("target {target} is not on this machine: host {host} serves it");
                let help = match fault.kind.entry().info.on_hosts {
                    true => format!("write host = \"{host}\" as well, or omit target"),
                    false => "omit target, or serve it on this machine or in a lab".to_string(),
                };
                Err(Mistake::new("host", what, help))
            }
            None => Ok(()),
        }
    }

    /// Other hosts that act as bridges.
    pub fn bridges(&self) -> Vec<BridgeHost> {
        Stage::hosts(self).bridges()
    }

    /// Other hosts that must be contacted before the first run for anything but workloads.
    pub fn reached_hosts(&self) -> Vec<String> {
        let faults = self
            .fault
            .iter()
            .filter_map(|fault| fault.common.host.as_ref())
            .map(|host| host.to_string());
        let mut hosts = self.probed_hosts();
        hosts.extend(faults);
        hosts.extend(self.hosts_of_links());
        let counted = self.counted_interfaces();
        hosts.extend(counted.into_iter().map(|(host, _)| host));
        hosts.extend(
            self.bridges()
                .into_iter()
                .map(|bridge| bridge.name.to_string()),
        );
        hosts.extend(
            self.served_remotely()
                .into_iter()
                .map(|(_, host)| host.to_string()),
        );
        hosts.extend(
            self.remote_services()
                .into_iter()
                .map(|(_, host)| host.to_string()),
        );
        hosts.sort();
        hosts.dedup();
        hosts
    }

    /// Checks that the fault's target exists; faults of the whole machine or lab may omit it.
    fn check_target(&self, fault: &FaultEntry) -> Result<(), Mistake> {
        let target = &fault.common.target;
        let names = || {
            let names: Vec<&str> = self.targets.keys().map(String::as_str).collect();
            format!("write target = one of {}", names.join(", "))
        };
        if target.is_empty() {
            let about = fault.kind.as_kind().about();
            if fault.common.host.is_some() || matches!(about, About::Machine | About::Service) {
                return Ok(());
            }
            let what = format!(
                "it does not name the target whose {} it affects",
                fault.kind_name()
            );
            return Err(Mistake::new("target", what, names()));
        }
        let Some(entry) = self.targets.get(target) else {
            return Err(Mistake::new(
                "target",
                format!("unknown target '{target}'"),
                names(),
            ));
        };
        match self.opened_by(target) {
            Some(host)
                if entry.serve.is_none() && fault.kind.as_kind().about() == About::Target =>
            {
                let what = format!(
                    "host {host} opens target {target} itself, so the fault would not apply there"
                );
                let help = "have the experiment serve the target (serve = …), or omit the workload's hosts";
                Err(Mistake::new("target", what, help))
            }
            _ => Ok(()),
        }
    }

    fn check_times(&self, fault: &FaultEntry) -> Result<(), Mistake> {
        let common = &fault.common;
        if common.lasts.is_some_and(|lasts| lasts.0.is_zero()) {
            return Err(Mistake::new(
                "for",
                "its duration is 0",
                "write for = \"5s\", or omit it",
            ));
        }
        if common.lasts.is_some() && common.at.is_none() {
            return Err(Mistake::new(
                "for",
                "it has an end but no start",
                "write at = \"0s\" as well",
            ));
        }
        let (begin, end) = common.times();
        let begins_after = |time: Duration| begin.is_some_and(|begin| begin >= time);
        let ends_after = |time: Duration| end.is_some_and(|end| end > time);
        let late = self.workloads.on_targets().find_map(|(name, workload)| {
            let time = workload.stop.time?;
            (begins_after(time.0) || ends_after(time.0)).then_some((name, time))
        });
        if let Some((name, time)) = late {
            let key = match &common.recurrence {
                Some(recurrence) => recurrence.key_of_last(),
                None if begins_after(time.0) => "at",
                None => "for",
            };
            let what = format!("workload {name} ends after {time}, before the fault does");
            let help = "make it start and end within the workload's stop.time, or omit for to let it last until the end";
            return Err(Mistake::new(key, what, help));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::LinkBack;

    /// A storage fault of a served target finds a layer that injects it, whatever the target serves.
    #[test]
    fn served_targets_get_layers_for_their_faults() {
        let check = |serve: &str, fault: &str, expected: &str| {
            let text = format!(
                "name = \"x\"\n[targets.t]\nserve = {serve}\n[targets.u]\nserve = \"null:1MiB\"\n\
                 [workloads.w]\nstop = {{ time = \"1s\" }}\n[[fault]]\ntarget = \"t\"\n{fault}\n"
            );
            let experiment = Experiment::parse("x.toml", &text).expect(&text);
            let words = |name| {
                experiment
                    .served(name)
                    .expect("it is served")
                    .words()
                    .join(" ")
            };
            assert_eq!(words("t"), expected, "{text}");
            assert_eq!(words("u"), "null:1MiB");
        };
        let slow = "storage = \"slow:5ms\"";
        check("\"memory:1MiB\"", slow, "memory:1MiB,faults");
        check("\"memory:1MiB,wb\"", slow, "memory:1MiB,wb,faults");
        check("\"memory:1MiB,faults\"", slow, "memory:1MiB,faults");
        check(
            "[\"null:1MiB\", \"memory:1MiB\"]\nlun = 1",
            slow,
            "null:1MiB memory:1MiB,faults",
        );
        let named = "storage = \"slow:5ms\"\nlayer = \"low\"";
        let url = "memory:1MiB?fault=off;name=low";
        check(&format!("{url:?}"), named, url);
        check("\"memory:1MiB\"", "freeze = true", "memory:1MiB");
    }

    /// A fault of a member that cannot fail or cannot be replaced is refused when the file is read, with advice that
    /// works; checks that need the open device are made later.
    #[test]
    fn members_that_cannot_fail_are_refused_with_advice() {
        let check = |target: &str, fault: &str, said: Option<&str>| {
            let text = format!(
                "name = \"x\"\n[targets.disk]\n{target}\n[workloads.load]\nstop = {{ time = \"10s\" }}\n\
                 [[fault]]\ntarget = \"disk\"\n{fault}"
            );
            match (Experiment::parse("x.toml", &text), said) {
                (Ok(_), None) => {}
                (Err(error), Some(said)) => {
                    let all = format!(
                        "{} {}",
                        error.one_line(),
                        error.help_text().unwrap_or_default()
                    );
                    assert!(
                        all.contains("fault 1: ") && all.contains(said),
                        "{target} {fault}: {all}"
                    );
                }
                (result, said) => panic!("{target} {fault}: {said:?} {:?}", result.err()),
            }
        };
        let m = "[memory:1MiB?fault=off]";
        let timed = "member = 1\nat = \"1s\"\nfor = \"1s\"";
        for array in [
            format!("array:raid0,{m},{m}"),
            format!("array:raid0,{m},{m},spare={m}?retry=3"),
        ] {
            for target in [
                format!("url = \"{array}\""),
                format!("serve = [\"null:1MiB\", \"{array},wb\"]\nlun = 1"),
            ] {
                check(&target, timed, Some("member 1 of a RAID 0 cannot fail"));
                check(&target, "member = 0", Some("layer = \"0/fault\""));
                check(&target, "member = 0\nat = \"1s\"", Some("RAID 0"));
                check(
                    &target,
                    "layer = \"0/fault\"\nstorage = \"hardware-error\"\nat = \"1s\"",
                    None,
                );
            }
        }
        let mirror = format!("url = \"array:raid1,{m},{m}\"");
        check(&mirror, timed, None);
        check(&mirror, "member = 2", Some("one of 0 to 1"));
        check(&format!("url = \"array:raid5,{m},{m},{m}\""), timed, None);
        check("url = \"memory:1MiB\"", timed, Some("disk is not an array"));
        check("serve = \"tcp\"", timed, Some("disk is not an array"));
        check(
            "serve = \"tcp\"",
            "storage = \"busy\"",
            Some("disk is a sink, which has no storage"),
        );
        check(
            "serve = \"tcp\"",
            "freeze = true\nat = \"1s\"\nfor = \"1s\"",
            None,
        );
        let nested = format!("url = \"array:raid1,{m},[array:raid0,name=low,{m},{m}]\"");
        check(&nested, "layer = \"low\"\nmember = 0", Some("RAID 0"));
        check(&nested, "layer = \"1/low\"\nmember = 0", Some("RAID 0"));
        check(&nested, "layer = \"array\"\nmember = 1", None);
        check(&nested, "member = 1", None);
        check(&nested, "layer = \"else\"\nmember = 1", None);
        check("url = \"array:raid0\"", "member = 0", None);
    }

    /// A fault that would have no effect, or that cannot be injected, is refused when the file is read, at the
    /// offending key; a link's settings are described in words.
    #[test]
    fn faults_that_cannot_be() {
        let check = |link: &str, fault: &str, key: usize, said: Option<&str>| {
            let text = format!(
                "name = \"x\"\n[lab]\nhosts = [\"a\", \"b\"]\n[lab.links.wan]\nbetween = [\"a\", \"b\"]\n{link}\n\
                 [targets.disk]\nserve = \"memory:1MiB\"\nhost = \"b\"\n[workloads.load]\nstop = {{ time = \"10s\" }}\n\
                 [[fault]]\nmemory = \"1MiB\"\n[[fault]]\n{fault}"
            );
            let line = 1
                + text
                    .lines()
                    .position(|line| line.starts_with("memory ="))
                    .unwrap()
                + 1
                + key;
            match (Experiment::parse("x.toml", &text), said) {
                (Ok(_), None) => {}
                (Err(error), Some(said)) => {
                    let all = format!(
                        "{} {}",
                        error.one_line(),
                        error.help_text().unwrap_or_default()
                    );
                    let start = format!("x.toml:{line}: ");
                    assert!(
                        all.starts_with(&start) && all.contains(said),
                        "{link} {fault}: {all}"
                    );
                }
                (result, said) => panic!("{link} {fault}: {said:?} {:?}", result.err()),
            }
        };
        let set = |set: &str| format!("link = \"wan\"\nset = {{ {set} }}");
        check("", &set("delay = \"5ms\""), 0, None);
        check(
            "",
            &set("rate = \"0b/s\""),
            2,
            Some("rate: 0b/s is out of range"),
        );
        check("", &set("loss = 2.0"), 2, Some("loss: 2 is not a share"));
        check("", &set(""), 2, Some("already has these settings"));
        check("", &set("los = 0.5"), 2, Some("did you mean loss?"));
        check(
            "delay = \"5ms\"",
            &set("delay = \"5ms\""),
            2,
            Some("these settings at disk load"),
        );
        check(
            "carrier = \"bare\"",
            &set("delay = \"5ms\""),
            1,
            Some("is bare"),
        );
        check(
            "loss = 0.1",
            &set("loss_bursts = { to_bad = 0.1, to_good = 0.5 }"),
            2,
            Some("loss is set as well"),
        );
        check(
            "",
            "link = \"wam\"\nset = { loss = 0.5 }",
            1,
            Some("unknown link 'wam'"),
        );
        check("", "link = \"wan\"", 1, Some("add set = …"));
        check("", "cpu = 2.0", 1, Some("cpu is a share"));
        check(
            "",
            "memory = \"1MiB\"\ncores = [0]",
            2,
            Some("cores is a key of cpu faults"),
        );
        check("", "memory = \"0B\"", 1, Some("it takes no memory"));
        check("", "memroy = \"1MiB\"", 0, Some("it does nothing"));
        check(
            "",
            "at = \"1s\"\nmemory = \"1MiB\"\ncpu = 0.5",
            2,
            Some("memory are separate faults"),
        );
        check("", "memory = \"1MiB\"\nkill = false", 0, None);
        check("", "name = \"x\"\nmemory = true", 2, Some("expected"));
        check(
            "",
            "at = \"1x\"\nmemory = \"1MiB\"",
            1,
            Some("use ns, us, ms"),
        );
        check("", "memory = \"1MiB\"\nfro = \"1s\"", 2, Some("fro"));
        check("", "memory = \"1MiB\"\nfor = \"1s\"", 2, Some("no start"));
        check(
            "",
            "memory = \"1MiB\"\nat = \"11s\"",
            2,
            Some("ends after 10s"),
        );
        check(
            "",
            "name = \"x\"\nstorage = \"busy\"",
            2,
            Some("write target = one of disk"),
        );
        check(
            "",
            "storage = \"busy\"\ntarget = \"disc\"",
            2,
            Some("unknown target 'disc'"),
        );
        check(
            "",
            "target = \"disk\"\nstorage = \"busy,p=0\"",
            2,
            Some("affects no request"),
        );
        check(
            "",
            "target = \"disk\"\nstorage = \"slow:x1\"",
            2,
            Some("affects no request"),
        );
        check("", "target = \"disk\"\nstorage = \"slow:x1.5\"", 0, None);
        let set = |text: &str| toml::from_str::<LinkBack>(text).unwrap().describe();
        assert_eq!(set("delay = '5ms'\nloss = 0.01"), "delay 5ms, loss 0.01");
    }

    /// Faults that would separate hosts or reset connections where that is impossible are rejected, alone and
    /// combined with other faults, if the file alone shows the problem.
    #[test]
    fn hosts_and_connections() {
        // Long because it is one list of cases, best read in one place.
        let check = |faults: &[&str], said: Result<&str, &str>| {
            let mut text = "name = \"x\"\n[lab]\nhosts = [\"a\", \"b\", \"c\", \"d\", \"e\"]\n\
                [lab.links.wan]\nbetween = [\"a\", \"b\"]\n[lab.links.lan]\nbetween = [\"b\", \"c\"]\n\
                [lab.links.kernel]\nbetween = [\"a\", \"e\"]\ncarrier = \"netem\"\n\
                [targets.disk]\nserve = \"memory:1MiB\"\nhost = \"c\"\n\
                [targets.here]\nurl = \"memory:1MiB\"\n[workloads.load]\nstop = { time = \"10s\" }\n"
                .to_string();
            faults
                .iter()
                .for_each(|fault| text += &format!("[[fault]]\n{}\n", fault.replace("; ", "\n")));
            match (Experiment::parse("x.toml", &text), said) {
                (Ok(experiment), Ok(how)) => {
                    let together = overlaps(&experiment.fault, &experiment);
                    assert!(
                        how.is_empty() == together.is_empty(),
                        "{faults:?}: {together:?}"
                    );
                    let both = |one: &Overlap| matches!(&one.together, Together::Both(said) if said.contains(how));
                    assert!(together.iter().all(both), "{faults:?}: {together:?}");
                }
                (Err(error), Err(said)) => {
                    let all = format!(
                        "{} {}",
                        error.one_line(),
                        error.help_text().unwrap_or_default()
                    );
                    assert!(all.contains(said), "{faults:?}: {all}");
                }
                (Err(error), Ok(_)) => panic!("{faults:?}: {}", error.one_line()),
                (Ok(_), Err(said)) => panic!("{faults:?}: not {said}"),
            }
        };
        let timed = "at = \"2s\"; for = \"2s\"";
        let parts = |hosts: &str| format!("partition = {hosts}; {timed}");
        check(&[&parts("[\"a\", \"c\"]")], Ok(""));
        check(&[&parts("[[\"a\", \"b\"], \"c\"]")], Ok(""));
        check(
            &[&parts("[\"a\", \"x\"]")],
            Err("unknown host 'x'; the hosts of this experiment are: local, a, b, c"),
        );
        check(&[&parts("[\"a\", \"a\"]")], Err("a is on both sides"));
        check(
            &[&parts("[[\"a\", \"b\", \"a\"], \"c\"]")],
            Err("a and c are paired twice"),
        );
        check(&[&parts("[[], \"c\"]")], Err("separates 0 pairs"));
        check(&[&parts("[\"a\", \"d\"]")], Err("no route from a to d"));
        check(
            &[&parts("[\"a\", \"e\"]")],
            Err("link kernel is carried by the kernel"),
        );
        check(&[&parts("\"a\"")], Err("expected"));
        check(
            &[&parts("[\"a\", 1]")],
            Err("the name of a host, or a list of names"),
        );
        check(
            &["partition = [\"a\", \"c\"]"],
            Err("separates target disk from a for the whole run"),
        );
        check(&["partition = [\"a\", \"c\"]; target = \"here\""], Ok(""));
        check(&["partition = [\"a\", \"b\"]"], Ok(""));
        check(
            &[&format!("reset = \"c\"; target = \"disk\"; {timed}")],
            Ok(""),
        );
        check(
            &[&format!("reset = \"a\"; to = \"b\"; port = 3260; {timed}")],
            Ok(""),
        );
        check(
            &[&format!("reset = \"b\"; target = \"disk\"; {timed}")],
            Err("are between a and c, not 'b'"),
        );
        check(
            &[&format!("reset = \"a\"; target = \"here\"; {timed}")],
            Err("the connections to reset"),
        );
        check(
            &[&format!("reset = \"a\"; {timed}")],
            Err("the connections to reset"),
        );
        check(
            &[&format!("reset = \"a\"; to = \"x\"; {timed}")],
            Err("unknown host 'x'"),
        );
        check(
            &[&format!("reset = \"a\"; to = \"b\"; port = 0; {timed}")],
            Err("port 0 is not valid"),
        );
        check(
            &["reset = \"a\"; to = \"b\""],
            Err("no connection would be left"),
        );
        // Combinations with other faults.
        let apart = parts("[\"a\", \"b\"]");
        let link = |at: u32, lasts: u32| {
            format!("link = \"wan\"; set.delay = \"1ms\"; at = \"{at}s\"; for = \"{lasts}s\"")
        };
        check(&[&apart, &parts("[\"c\", \"a\"]")], Ok(""));
        check(
            &[&apart, &parts("[\"b\", [\"c\", \"a\"]]")],
            Err("the fault that ends first would reconnect a and b"),
        );
        check(
            &[&apart, &link(3, 3)],
            Err("probe packets over link wan must show"),
        );
        check(
            &[&apart, &link(1, 2)],
            Err("probe packets over link wan must show"),
        );
        check(
            &[&apart, &link(1, 5)],
            Ok("the link carries nothing between the hosts"),
        );
        check(&[&apart, &link(5, 1)], Ok(""));
        check(&[&parts("[\"a\", \"c\"]"), &link(3, 3)], Ok(""));
        let lost = "link = \"wan\"; set.loss = 1.0; at = \"1s\"; for = \"5s\"";
        check(&[&apart, lost], Err("nothing passes over link wan"));
        let reset = |at: u32, lasts: u32| {
            format!("reset = \"a\"; to = \"b\"; at = \"{at}s\"; for = \"{lasts}s\"")
        };
        check(
            &[&apart, &reset(3, 3)],
            Err("neither the reset nor its end could be proven"),
        );
        check(
            &[&apart, &reset(1, 5)],
            Ok("no connection between the hosts is reset"),
        );
        check(&[&parts("[\"a\", \"c\"]"), &reset(3, 3)], Ok(""));
        check(&[&reset(3, 3), &reset(1, 5)], Err("which of two faults"));
        let disk = |fault: &str, at: u32, lasts: u32| {
            format!("target = \"disk\"; {fault}; at = \"{at}s\"; for = \"{lasts}s\"")
        };
        check(
            &[&disk("reset = \"c\"", 3, 1), &disk("freeze = true", 2, 3)],
            Err("serves no requests"),
        );
        check(
            &[&disk("reset = \"c\"", 3, 3), &disk("kill = true", 2, 2)],
            Ok(""),
        );
        let cut_off = parts("[\"c\", \"a\"]");
        check(
            &[&cut_off, &disk("storage = \"busy\"", 3, 1)],
            Err("serves no requests"),
        );
        check(
            &[&cut_off, &disk("storage = \"busy\"", 3, 5)],
            Ok("busy affects no request while"),
        );
        check(&[&apart, &disk("storage = \"busy\"", 3, 1)], Ok(""));
    }
}
