//! The experiment file: targets, workloads, sweep, repetitions. Read by `brunt run`; `brunt schema`
//! describes it for editors.
//!
//! The rule: a mistake is reported with the file, the line and what would be correct; unknown keys are mistakes.
//! Nothing is opened here: everything that can be checked without the devices is checked before any of them is
//! accessed.

mod clients;
mod defaults;
mod entries;
mod fault;
mod host_interfaces;
mod host_links;
mod hosts;
mod include;
mod interleave;
mod intervals;
mod lab;
mod lab_check;
mod link_options;
mod mistake;
mod names;
mod normal;
mod own_targets;
mod parse;
mod percentiles;
mod performability;
mod phase;
mod plan;
mod precision;
mod probed_hosts;
mod ready_made;
mod remote_check;
mod remote_workloads;
mod replays;
mod require;
mod secrets;
mod service_hosts;
mod services;
mod summary;
mod sweep;
mod sweep_check;
mod target;
mod together;
pub(crate) mod wording;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use brunt_block::Congestion;
use brunt_core::Span;
use brunt_result::require::Requirement;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::role::{Serve, TARGET_NAME};
pub use defaults::DefaultsVersion;
pub use fault::FAULTS_MAX;
pub use host_links::{
    HOST_LINKS_MAX, HostLink, HostLinkCarrier, HostLinkEntry, ProbedAddressError, probed_address,
};
pub use include::{COLLECTED, DEPTH_MAX, FILES_MAX, Include, IncludeWith, Includes};
pub use interleave::{
    InterleaveConflict, InterleaveError, InterleavedExperiment, check_interleaved,
};
pub use lab::{CarrierName, LabEntry, LinkBack, LinkEntry};
pub use link_options::{LinkOptionError, LinkOptionMistake, LinkOptions};
#[cfg(test)]
pub(crate) use mistake::tests::{assert_mistake, assert_mistake_at, changed};
pub use mistake::{FileError, mistake_in, read_toml};
pub use percentiles::{Percentiles, PercentilesError};
pub use performability::{ComponentEntry, PerformabilityEntry, STATES_MAX, UNITS_MAX};
pub use phase::{PhaseEntry, WaitFor};
pub use plan::{Plan, PlanError, Point};
pub use precision::{Precision, PrecisionGoal};
pub use remote_workloads::OnHostFailure;
pub use secrets::toml_without_secrets;
pub use services::{
    SERVICES_MAX, ServiceCommand, ServiceCycle, ServiceEntry, ServiceHealthy, ServiceLimits,
    ServicePlace, ServiceReady,
};
pub use sweep::{AxisValue, Sweep};
pub use target::{LUNS_MAX, Target};
pub use together::{JobEntry, TogetherEntry};
pub use workloads::{WorkloadEntry, Workloads};

use crate::fault::{FaultEntry, serialize_written};
use crate::host::{HostMistake, HostName, HostSettings, Hosts};
use crate::role::{self, Cast, PlannedRole};
use brunt_probe::Probes;
use brunt_profile::ProfileSettings;

/// Maximum number of runs in an experiment: a larger sweep is probably a mistake.
pub const RUNS_MAX: usize = 100_000;
/// Maximum repetitions of a point.
pub const REPETITIONS_MAX: u32 = 1000;
/// Largest experiment file in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// URL schemes of devices reached over TCP, which take the option `congestion`.
const TCP_SCHEMES: [&str; 5] = ["iscsi://", "tcp://", "nbd://", "nbds://", "nfs://"];

/// An experiment as written. Serializing it omits workloads that are written in their own tables: use
/// [`Experiment::table`] or [`Experiment::written_out`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Files to include, with parameters: for example hosts, stores or faults that several experiments share. The
    /// results keep the expanded experiment.
    #[serde(default, skip_serializing)]
    pub include: Option<Includes>,
    /// Name of the experiment, shown in reports.
    pub name: String,
    /// Purpose of the experiment, in a sentence or two.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The version of Brunt for whose defaults the experiment was written; only versions that changed defaults are
    /// valid. Notes list the defaults that have changed since that version or, without this key, since the first
    /// version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_for: Option<DefaultsVersion>,
    /// Seed from which the order of runs and every request are derived.
    #[serde(default = "one")]
    pub seed: u64,
    /// Number of runs of each point. `brunt compare` gives no verdict with fewer than four runs per side.
    #[serde(default = "five")]
    pub repetitions: u32,
    /// Target precision: repeats each point beyond `repetitions` until half of its 95 % confidence interval is at
    /// most this share of the mean (of the rate, or in an open loop of the mean response time). At least seven runs
    /// are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// With `precision`: maximum number of runs of a point; default 30, or 1000 with `time_max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repetitions_max: Option<u32>,
    /// With `precision`: starts no further round of runs after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_max: Option<Span>,
    /// Percentiles of response times that the table, `summary.json` and the page show and `brunt compare` compares;
    /// default: `[50, 99, 99.9]`. A percentile is omitted where there are too few requests for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentiles: Option<Percentiles>,
    /// TCP congestion control, such as cubic or reno, for every connection in the lab; without a lab, for connections
    /// to targets that are served or opened by iscsi, nbd, nfs or tcp URLs. Default: the kernel's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub congestion: Option<Congestion>,
    /// URLs of devices that may be overwritten although they hold recognized data: a file system, a partition table,
    /// a RAID member or another signature that wipefs knows.
    #[serde(default)]
    pub allow_overwrite: Vec<String>,
    /// Targets to measure, by a name of your choice.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub targets: BTreeMap<String, Target>,
    /// Workloads, by a name of your choice. Each workload runs against each target, unless its `kind` has a table of
    /// its own below, such as `filesystems`: `[filesystems.NAME]` is the same as `[workloads.NAME]` with `kind =
    /// "file"`.
    #[serde(default, skip_serializing_if = "workloads::none_on_targets")]
    pub workloads: Workloads,
    /// Settings of hosts, by name. Names are shared with `lab.hosts`; `local` is the machine that runs the
    /// experiment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<HostName, HostSettings>,
    /// What to do when a host that runs workloads is lost: `abort` (default) ends the experiment; `continue` keeps
    /// the other hosts running and marks each run that lacks a host, which is then excluded from means. Results
    /// measured so far are kept in both cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_host_failure: Option<OnHostFailure>,
    /// A host that runs workloads is considered lost if it does not answer for this long; default:
    /// 1.5s. Increase it if the hosts' CPUs are saturated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_silence: Option<Span>,
    /// Time before each run in which no requests are sent, to count what the `interfaces` of hosts carry without
    /// load; default: 1s if a host has `interfaces`. `0s` switches it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_idle: Option<Span>,
    /// Emulated network of hosts and links on which the experiment runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lab: Option<LabEntry>,
    /// Links between other machines, by a name of your choice: what applies their delay, loss and rate, and the hosts
    /// that prove these settings. In a sweep, `link_delay`, `link_loss` and `link_rate` vary them like the links of a
    /// lab.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, HostLinkEntry>,
    /// Programs that are not part of Brunt, such as storage servers, by a name of your choice; the experiment starts
    /// them before it opens targets and ends them after its last run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, ServiceEntry>,
    /// Parameters to vary over all workloads: every combination of values is a point.
    #[serde(default)]
    pub sweep: Sweep,
    /// Host counters to record during runs: CPU, memory, network, disks and others.
    #[serde(default)]
    pub probes: Probes,
    /// Records where the CPU goes during each run: user, system and interrupt time and the hottest functions, for each
    /// phase and role. An empty table switches it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileSettings>,
    /// Faults to inject into each run, and when.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "serialize_written"
    )]
    pub fault: Vec<FaultEntry>,
    /// How often the failures emulated by the faults occur, to compute expected figures over years (docs/results.md).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub performability: Option<PerformabilityEntry>,
    /// Steps of every repetition that run in order, such as filling, preconditioning and measuring. Without phases,
    /// all points of a repetition run in random order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phase: Vec<PhaseEntry>,
    /// Thresholds for figures. `brunt run` exits with 1 if a threshold is missed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub require: Vec<Requirement>,
}

impl Experiment {
    /// The URL to open a target with. If the experiment serves the target, `address` is where its role listens.
    pub fn url_of(&self, target: &Target, address: Option<SocketAddr>) -> String {
        let url = address.map_or_else(|| target.url.clone(), |address| target.url_at(address));
        let ours = TCP_SCHEMES.iter().any(|scheme| url.starts_with(scheme));
        match self.congestion {
            // In a lab, the routes set the congestion control instead.
            Some(congestion) if self.lab.is_none() && ours && !url.contains("congestion=") => {
                let join = if url.contains('?') { '&' } else { '?' };
                format!("{url}{join}congestion={congestion}")
            }
            _ => url,
        }
    }

    /// What a target serves: its `serve` key, plus a fault layer if one of its faults needs it. `None` for a target
    /// with a URL.
    pub fn served(&self, name: &str) -> Option<Serve> {
        let target = self.targets.get(name)?;
        let serve = target.serve.clone()?;
        let wants_layer = |fault: &FaultEntry| {
            fault.common.target == name && fault.kind.as_kind().wants_fault_layer()
        };
        Some(match self.fault.iter().any(wants_layer) {
            true => serve.with_fault_layer(target.lun.unwrap_or(0)),
            false => serve,
        })
    }

    /// Additional arguments of the command that serves a target.
    pub fn serving_arguments(&self) -> Vec<String> {
        role::serving_arguments(self.serving_congestion())
    }

    /// The congestion control for serving targets, unless the lab's routes set it.
    pub fn serving_congestion(&self) -> Option<String> {
        self.congestion
            .filter(|_| self.lab.is_none())
            .map(|congestion| congestion.to_string())
    }

    /// Warnings about link settings that probably won't have the intended effect, without duplicates.
    pub fn link_warnings(&self) -> Vec<String> {
        let mut warnings = BTreeSet::new();
        for (link, settings) in self.points().iter().flat_map(|point| &point.links) {
            let of_ways = settings
                .iter()
                .filter_map(|settings| settings.queue_warning());
            warnings.extend(of_ways.map(|warning| format!("link {link}: {warning}")));
        }
        warnings.into_iter().collect()
    }

    /// The roles that the experiment starts.
    pub fn roles(&self) -> Vec<PlannedRole> {
        role::planned(self)
    }

    /// The experiment's hosts, for lookups.
    ///
    /// # Errors
    /// Two hosts share a name, or a host can't be located; an experiment that was read from a file has no such
    /// mistake.
    pub fn hosts(&self) -> Result<Hosts, HostMistake> {
        Hosts::of(&self.hosts, self.lab.as_ref())
    }

    /// The experiment as the table that its file contains, with all defaults.
    ///
    /// # Errors
    /// A value can't be written as TOML; values read from a file always can.
    pub fn table(&self) -> Result<toml::Table, toml::ser::Error> {
        let mut table = toml::Table::try_from(self)?;
        table.extend(self.workloads.tables());
        Ok(table)
    }

    /// The experiment as one file, with all defaults; the tables of load kinds come last.
    pub fn written_out(&self) -> String {
        let can_be = "what was read from such a file can be written to one";
        let text = toml::to_string_pretty(self).expect(can_be);
        let tables = toml::to_string_pretty(&self.workloads.tables()).expect(can_be);
        match tables.is_empty() {
            true => text,
            false => format!("{text}\n{tables}"),
        }
    }

    /// The file's JSON Schema, for editors.
    pub fn schema() -> schemars::Schema {
        workloads::schema()
    }
}

impl Cast for Experiment {
    fn served(&self) -> Vec<(String, &Serve, HostName)> {
        let host = |target: &Target| target.host.clone().unwrap_or_else(HostName::local);
        let targets = self.targets.iter();
        targets
            .filter_map(|(name, target)| Some((name.clone(), target.serve.as_ref()?, host(target))))
            .collect()
    }

    fn services(&self) -> Vec<(String, HostName)> {
        let service = |(name, service): (&String, &ServiceEntry)| {
            (name.clone(), self.host_of_service(service))
        };
        self.services.iter().map(service).collect()
    }

    fn worker(&self) -> HostName {
        self.hosts()
            .map_or_else(|_| HostName::local(), |hosts| hosts.worker().clone())
    }

    fn probes(&self) -> &Probes {
        &self.probes
    }
}

fn one() -> u64 {
    1
}
fn five() -> u32 {
    5
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const GOOD: &str = r#"
name = "block sizes"
repetitions = 4
allow_overwrite = ["/dev/sdx"]

[targets.disk]
url = "/dev/sdx"
[targets.diskless]
url = "null:1GiB"

[workloads.mixed]
read = 0.7
ramp_up = { time = "1s" }
stop = { time = "10s" }

[sweep]
block_size = ["4k", "64k"]
queue_depth = [1, 8, 32]
"#;

    /// A sweep covers every combination of values, each repeated, in interleaved order.
    #[test]
    fn a_sweep_is_every_combination() {
        let experiment = Experiment::parse("good.toml", GOOD).unwrap();
        let plan = experiment.plan();
        assert_eq!((plan.points.len(), plan.runs.len()), (12, 48));
        assert_eq!(
            plan.points[0].label,
            "disk mixed block_size=4KiB queue_depth=1"
        );
        assert_eq!(plan.points[11].workload().unwrap().queue_depth, 32);
        assert_eq!(plan.points[11].workload().unwrap().block_bytes_max(), 65536);
        assert_eq!(
            (plan.time_min, plan.open_ended),
            (Duration::from_secs(48 * 11), false)
        );
        let disk = ("disk".to_string(), "/dev/sdx".to_string(), true);
        let diskless = ("diskless".to_string(), "null:1GiB".to_string(), false);
        assert_eq!(plan.written, [disk, diskless]);
        assert_eq!(plan.runs, experiment.plan().runs);
    }

    /// The minimum duration includes idle time and a rate search's trials for each run, and a depth search's trials
    /// for each point.
    #[test]
    fn the_minimum_duration_has_all_parts() {
        let least = |lab: &str, workload: &str| {
            let text = format!(
                "name = \"x\"\nrepetitions = 3\n[lab]\nhosts = [\"client\", \"server\"]\n{lab}\n[lab.links.wire]\n\
                 between = [\"client\", \"server\"]\n[targets.disk]\nserve = \"memory:1MiB\"\nhost = \"server\"\n\
                 [workloads.w]\nstop = {{ time = \"2s\" }}\n{workload}\n"
            );
            let experiment = Experiment::parse("x.toml", &text);
            let experiment = experiment.unwrap_or_else(|error| panic!("{}", error.one_line()));
            experiment.plan().time_min.as_millis()
        };
        assert_eq!(least("", ""), 3 * 2000);
        assert_eq!(least("", "ramp_up = { time = \"1s\" }"), 3 * 3000);
        assert_eq!(least("idle = \"500ms\"", ""), 3 * 2500);
        // The depth search makes three trials, each with a ramp-up, before the first of the runs.
        let depth = "depth_search = { max = 64, time = \"1s\" }";
        assert_eq!(least("", depth), 3 * 2000 + 3 * 1500);
        let ramp_up = "\nramp_up = { time = \"1s\" }";
        assert_eq!(least("", &format!("{depth}{ramp_up}")), 3 * 3000 + 3 * 2000);
        // The rate search tries a rate that is too high, half of it, and two bisections.
        let search =
            "arrival = { kind = \"search\", percentile = 99, limit = \"5ms\", tolerance = 0.2 }";
        assert_eq!(least("", search), 3 * 4 * 2000);
    }

    /// Every mistake is reported at its line, with what would be correct.
    #[test]
    fn mistakes_have_their_line() {
        let check = |from: &str, to: &str, line, said: &str| {
            let error = assert_mistake(&changed(GOOD, from, to), line, said);
            let shown = format!("{:?}", miette::Report::new(*error));
            assert!(shown.contains("bad.toml"), "{shown}");
        };
        check("read = 0.7", "raed = 0.7", 12, "did you mean read?");
        check("read = 0.7", "read = 7", 12, "from 0 to 1");
        check("read = 0.7", "read = \"much\"", 12, "expected");
        check("time = \"10s\"", "time = \"10\"", 14, "use ns, us, ms");
        check("time = \"10s\"", "tiem = \"10s\"", 14, "did you mean time?");
        check(
            "block_size = [\"4k\", \"64k\"]",
            "block_size = [\"4k\", \"100\"]",
            17,
            "multiple of 512",
        );
        check(
            "queue_depth = [1, 8, 32]",
            "queue_depth = [1, 0]",
            18,
            "1 to 4096",
        );
        check(
            "queue_depth = [1, 8, 32]",
            "rate = [100]",
            18,
            "not an open loop",
        );
        check("[\"/dev/sdx\"]", "[\"/dev/sdy\"]", 4, "/dev/sdx, null:1GiB");
        check("repetitions = 4", "repetitions = 0", 3, "1 to 1000");
        check(
            "repetitions = 4",
            "congestion = \"no-such-thing\"",
            3,
            "available: ",
        );
        check(
            "repetitions = 4",
            "congestion = \"two words\"",
            3,
            "cubic or reno",
        );
        check(
            "repetitions = 4",
            "repetitions_max = 9",
            3,
            "without a precision",
        );
        check("repetitions = 4", "precision = \"5\"", 3, "5%");
        check(
            "repetitions = 4",
            "precision = \"5%\"\nrepetitions_max = 2",
            4,
            "5 (repetitions) to 1000",
        );
        check(
            "url = \"null:1GiB\"",
            "uri = \"null:1GiB\"",
            9,
            "did you mean url?",
        );
        let probes = "[probes]\ninterval = \"1ms\"\n[sweep]";
        check("[sweep]", probes, 17, "write 10ms to 1h");
        check(
            "[sweep]",
            "[probes]\nonly = [\"gpu\"]\n[sweep]",
            17,
            "the probes are cpu, activity",
        );
        check("name = \"block sizes\"", "", 1, "key 'name' is missing");
        check("read = 0.7", "read = ", 12, "");
        check("url = \"null:1GiB\"", "serve = 7", 9, "a LUN such as");
        check(
            "url = \"null:1GiB\"",
            "serve = \"tcp\"\nlun = 2",
            10,
            "no LUNs",
        );
        check("url = \"null:1GiB\"", "", 8, "neither url");
        let only = "url = \"null:1GiB\"\nworkloads = [\"mixt\"]";
        check("url = \"null:1GiB\"", only, 10, "no workload named mixt");
    }

    /// Each phase of a file system is a point, with or without points of targets; sweeps don't vary it.
    #[test]
    fn phases_are_points() {
        let folder =
            "[filesystems.home]\ndirectory = \"/home\"\nphases = [\"seeks\", \"rewrite\"]\n";
        let experiment = Experiment::parse("x.toml", &format!("{GOOD}{folder}")).unwrap();
        let plan = experiment.plan();
        assert_eq!(
            (plan.points.len(), plan.runs.len(), plan.open_ended),
            (14, 56, true)
        );
        assert_eq!(
            (
                plan.points[12].label.as_str(),
                plan.points[13].label.as_str()
            ),
            ("home seeks", "home rewrite")
        );
        assert_eq!(
            Experiment::parse("x.toml", &format!("name = \"x\"\n{folder}"))
                .unwrap()
                .points()
                .len(),
            2
        );
        let error = |text: String| Experiment::parse("x.toml", &text).unwrap_err().one_line();
        let clash = error(format!("{GOOD}{}", folder.replace("home]", "disk]")));
        assert!(
            clash.contains("x.toml:19: disk is both a target and a file system"),
            "{clash}"
        );
        let seekers = error(format!("{GOOD}{folder}seekers = 0"));
        assert!(seekers.contains("x.toml:22: seekers: "), "{seekers}");
    }

    /// The shipped examples are valid.
    #[test]
    fn shipped_examples_are_valid() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "toml")
            {
                let text = std::fs::read_to_string(&path).unwrap();
                let parsed = Experiment::parse(&path.display().to_string(), &text);
                assert!(parsed.is_ok(), "{}", parsed.unwrap_err().one_line());
                count += 1;
            }
        }
        assert!(count >= 2);
    }

    /// A sweep that would run for a year is refused.
    #[test]
    fn endless_sweeps_are_refused() {
        let axis = |name: &str| format!("{name} = [{}]\n", vec!["0.5"; 200].join(", "));
        let text = format!("{GOOD}{}{}", axis("read"), axis("sequential"));
        assert!(
            Experiment::parse("x.toml", &text)
                .unwrap_err()
                .to_string()
                .contains("runs, more than")
        );
    }

    /// Without a lab, each network URL and each server gets the congestion control; in a lab, the routes get it.
    #[test]
    fn congestion_reaches_every_socket() {
        let text = format!("congestion = \"reno\"{GOOD}");
        let mut experiment = Experiment::parse("x.toml", &text).unwrap();
        let at = Some("127.0.0.1:9".parse().unwrap());
        let url = |experiment: &Experiment, target: &str, at| {
            experiment.url_of(&toml::from_str(target).unwrap(), at)
        };
        let check =
            |target: &str, at, expected: &str| assert_eq!(url(&experiment, target, at), expected);
        check("url = \"tcp://h:1\"", None, "tcp://h:1?congestion=reno");
        check(
            "url = \"iscsi://h/n/0?sessions=2\"",
            None,
            "iscsi://h/n/0?sessions=2&congestion=reno",
        );
        check(
            "url = \"tcp://h:1?congestion=bbr\"",
            None,
            "tcp://h:1?congestion=bbr",
        );
        check("url = \"memory:1MiB\"", None, "memory:1MiB");
        check("serve = \"tcp\"", at, "tcp://127.0.0.1:9?congestion=reno");
        assert_eq!(experiment.serving_arguments(), ["--congestion", "reno"]);
        experiment.lab = Some(LabEntry::default());
        assert_eq!(url(&experiment, "serve = \"tcp\"", at), "tcp://127.0.0.1:9");
        assert!(experiment.serving_arguments().is_empty());
    }

    /// The schema has every key, and forbids all others.
    #[test]
    fn schema_is_strict() {
        let schema = serde_json::to_string(&Experiment::schema()).unwrap();
        for key in [
            "allow_overwrite",
            "queue_depth",
            "hot-zones",
            "skip_after",
            "dedupable",
            "rounds_max",
        ] {
            assert!(schema.contains(key), "{key}");
        }
        assert!(schema.contains("\"additionalProperties\":false"));
    }
}
