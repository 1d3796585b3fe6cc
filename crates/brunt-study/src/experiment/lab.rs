//! `[lab]`: the experiment's emulated hosts, and the links between them.
//!
//! ```toml
//! [lab]
//! hosts = ["client", "server"]
//! worker = "client"                     # where requests are issued; the first host by default
//! cores = { client = [0], server = [1] } # where the processes of a host run; anywhere by default
//! [lab.links.wan]
//! between = ["client", "server"]
//! preset = "paxson-wan"
//! delay = "10ms"                        # on top of the preset, both ways
//! back = { rate = "100Mb/s" }           # only from the second host to the first
//!
//! [targets.remote]
//! serve = "memory:1GiB"
//! host = "server"
//!
//! [sweep]
//! link_delay = ["0", "5ms", "20ms"]     # of every link, both ways
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use brunt_core::share::{self, Share};
use brunt_core::{Size, Span};
use brunt_lab::Carrier;
use brunt_lab::link::{
    BitRate, Bursts, Distribution, DistributionError, JitterShape, Settings, preset,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::HostName;

/// An emulated network of hosts and links.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabEntry {
    /// Names of the emulated hosts (network namespaces). Hosts with settings can be listed under `[hosts.NAME]`
    /// instead, or as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostName>,
    /// The host that runs the experiment and the workers of workloads without `hosts`; default: the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<HostName>,
    /// CPU cores, counted from 0, to which the processes of each host are pinned; default: all. Same as `cores` in
    /// `[hosts.NAME]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cores: BTreeMap<HostName, Vec<usize>>,
    /// Time before each run in which no requests are sent, to count what links carry without load; default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Span>,
    /// Links between two hosts each, by a name of your choice. Hosts without a direct link reach each other over the
    /// fewest links.
    #[serde(default)]
    pub links: BTreeMap<String, LinkEntry>,
}

/// What carries a link's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CarrierName {
    /// Brunt's link emulator, with segmentation offload as on a network card; impairments act on single wire-size
    /// packets.
    #[default]
    Brunt,
    /// Brunt's link emulator without segmentation offload: hosts send wire-size packets.
    WireSize,
    /// The kernel's netem; the kernel must support it.
    Netem,
    /// A bare veth pair without emulation.
    Bare,
}

impl CarrierName {
    pub(crate) fn carrier(self) -> Carrier {
        match self {
            CarrierName::Brunt => Carrier::Brunt,
            CarrierName::WireSize => Carrier::BruntWireSize,
            CarrierName::Netem => Carrier::Netem,
            CarrierName::Bare => Carrier::Bare,
        }
    }
}

/// Defines the keys of a link's settings once, for the link and for the way back.
macro_rules! settings_keys {
    ($($(#[$doc:meta])* $key:ident: $type:ty => $set:expr,)*) => {
        /// A link. Its settings apply to both directions.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct LinkEntry {
            /// The two hosts that it connects.
            pub between: [HostName; 2],
            /// Name of predefined settings, which other keys override: lan, paxson-wan or four-sites.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub preset: Option<String>,
            /// Largest IP packet in bytes; default 1500; 9000 for jumbo frames.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub mtu: Option<u32>,
            /// What carries the link's packets.
            #[serde(default)]
            pub carrier: CarrierName,
            /// Settings for the direction from the second host to the first, where they differ.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub back: Option<LinkBack>,
            $($(#[$doc])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $key: Option<$type>,)*
        }

        /// Settings of a link, or of one of its directions.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct LinkBack {
            $($(#[$doc])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $key: Option<$type>,)*
        }

        impl LinkEntry {
            fn apply_to(&self, settings: &mut Settings) {
                $(if let Some(value) = &self.$key { ($set)(settings, value.clone()); })*
            }
        }

        impl LinkBack {
            /// All keys.
            pub const KEYS: &[&str] = &[$(stringify!($key)),*];

            /// Overrides the settings with the keys that are set here.
            pub fn apply_to(&self, settings: &mut Settings) {
                $(if let Some(value) = &self.$key { ($set)(settings, value.clone()); })*
            }
        }
    };
}

settings_keys! {
    /// One-way delay, from the last bit sent to the last bit received.
    delay: Span => |settings: &mut Settings, value| settings.delay = value,
    /// Delay variation; `jitter_shape` defines its meaning.
    jitter: Span => |settings: &mut Settings, value| settings.jitter = value,
    /// Meaning of `jitter`: uniform (delay ± jitter), normal (standard deviation) or pareto (mean of the additional
    /// delay).
    jitter_shape: JitterShape => |settings: &mut Settings, value| settings.jitter_shape = value,
    /// Delay variation according to one of netem's tables, instead of `jitter_shape`: normal, pareto, paretonormal,
    /// or the path of a .dist file. `jitter` scales the table.
    distribution: Distribution => |settings: &mut Settings, value| settings.distribution = Some(value),
    /// Whether packets keep their order under jitter; default: true. A packet that would overtake another waits for
    /// it, so the mean delay grows with the packet rate; the results report by how much. With false, the mean stays
    /// as set.
    keep_order: bool => |settings: &mut Settings, value| settings.keep_order = value,
    /// Share of packets lost, independently, such as 0.01 or "1%".
    #[serde(deserialize_with = "share::optional::loss")]
    #[schemars(with = "Option<Share>")]
    loss: f64 => |settings: &mut Settings, value| settings.loss = value,
    /// Minimum number of packets from one loss to the next: with `loss = 1.0`, exactly every n-th packet is lost.
    loss_gap: u32 => |settings: &mut Settings, value| settings.loss_gap = Some(value),
    /// Correlation of a packet's loss with that of the previous packet, 0 to 0.99 or "99%" (as in netem).
    #[serde(deserialize_with = "share::optional::loss_correlation")]
    #[schemars(with = "Option<Share>")]
    loss_correlation: f64 => |settings: &mut Settings, value| settings.loss_correlation = value,
    /// Bursty loss (Gilbert-Elliott model), instead of `loss`.
    loss_bursts: Bursts => |settings: &mut Settings, value| settings.loss_bursts = Some(value),
    /// Share of packets in which one bit is flipped, such as 0.01 or "1%"; checksums are not updated.
    #[serde(deserialize_with = "share::optional::corrupt")]
    #[schemars(with = "Option<Share>")]
    corrupt: f64 => |settings: &mut Settings, value| settings.corrupt = value,
    /// Share of ECN-capable packets marked with congestion experienced (CE), such as 0.01 or "1%".
    #[serde(deserialize_with = "share::optional::ecn")]
    #[schemars(with = "Option<Share>")]
    ecn: f64 => |settings: &mut Settings, value| settings.ecn = value,
    /// Share of packets delivered twice, such as 0.01 or "1%".
    #[serde(deserialize_with = "share::optional::duplicate")]
    #[schemars(with = "Option<Share>")]
    duplicate: f64 => |settings: &mut Settings, value| settings.duplicate = value,
    /// Share of packets held back so that later packets overtake them, such as 0.01 or "1%".
    #[serde(deserialize_with = "share::optional::reorder")]
    #[schemars(with = "Option<Share>")]
    reorder: f64 => |settings: &mut Settings, value| settings.reorder = value,
    /// How long reordered packets are held back; default 1 ms.
    reorder_by: Span => |settings: &mut Settings, value| settings.reorder_by = value,
    /// Additional delay for the end of TCP connections (FIN); data is not delayed.
    slow_close: Span => |settings: &mut Settings, value| settings.slow_close = value,
    /// Line rate in bits per second, counting all Ethernet overhead; default: unlimited.
    rate: BitRate => |settings: &mut Settings, value| settings.rate = Some(value),
    /// Maximum number of bytes queued at a rate-limited line; packets beyond it are dropped and counted. Default: the
    /// larger of 1 MiB and what the line sends in twice its delay.
    queue: Size => |settings: &mut Settings, value| settings.queue = Some(value),
    /// Additional limit for that queue, in packets; default: none.
    queue_packets: u32 => |settings: &mut Settings, value| settings.queue_packets = Some(value),
}

impl LinkBack {
    /// The settings as text, for reports: `delay 5ms, loss 0.01`.
    pub fn describe(&self) -> String {
        let said = |(key, value): (&String, &toml::Value)| match value {
            toml::Value::String(text) => format!("{key} {text}"),
            value => format!("{key} {value}"),
        };
        toml::Table::try_from(self)
            .unwrap_or_default()
            .iter()
            .map(said)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

impl LinkEntry {
    /// Reads the files with the tables for the link's jitter; relative paths are resolved in the `folder` of the key.
    /// Must be called before the settings are checked.
    ///
    /// # Errors
    /// Returns the key, below the link, whose file cannot be read or contains no table.
    pub(super) fn read_files(
        &mut self,
        folder: &dyn Fn(&[&'static str]) -> PathBuf,
    ) -> Result<(), (&'static [&'static str], DistributionError)> {
        let keys: [&[&str]; 2] = [&["distribution"], &["back", "distribution"]];
        let back = self
            .back
            .as_mut()
            .and_then(|back| back.distribution.as_mut());
        for (key, distribution) in keys.into_iter().zip([self.distribution.as_mut(), back]) {
            if let Some(distribution) = distribution {
                distribution
                    .read(&folder(key))
                    .map_err(|error| (key, error))?;
            }
        }
        Ok(())
    }

    /// Returns the link with another preset. The link's own keys still override it.
    pub(super) fn with_preset(&self, name: &str) -> LinkEntry {
        LinkEntry {
            preset: Some(name.to_string()),
            ..self.clone()
        }
    }

    /// The settings from the first host to the second, and back.
    pub fn settings(&self) -> [Settings; 2] {
        let start = self.preset.as_deref().and_then(preset);
        let mut there = start.map_or_else(Settings::default, |preset| (preset.settings)());
        self.apply_to(&mut there);
        let mut back = there.clone();
        if let Some(other) = &self.back {
            other.apply_to(&mut back);
        }
        [there, back]
    }

    /// Largest IP packet, in bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu.unwrap_or(1500)
    }
}

impl LabEntry {
    /// Whether links connect two hosts, directly or through other hosts.
    pub(crate) fn reaches(&self, first: &HostName, second: &HostName) -> bool {
        let mut reached = BTreeSet::from([first]);
        loop {
            let before = reached.len();
            for link in self.links.values() {
                let [one, other] = &link.between;
                if reached.contains(one) || reached.contains(other) {
                    reached.extend([one, other]);
                }
            }
            if reached.len() == before {
                return reached.contains(second);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::experiment::{Experiment, assert_mistake, changed};

    const GOOD: &str = r#"
name = "a lab"
[lab]
hosts = ["client", "server"]
[lab.links.wan]
between = ["client", "server"]
preset = "paxson-wan"
delay = "10ms"
back = { delay = "20ms", rate = "100Mb/s" }
[targets.remote]
serve = "memory:16MiB"
host = "server"
[workloads.mixed]
stop = { time = "1s" }
[sweep]
link_loss = [0.0, 0.01]
link_delay = ["1ms", "5ms"]
"#;

    /// A link starts from its preset; its own keys override the preset, the keys for the way back override both, and
    /// a sweep overrides all.
    #[test]
    fn later_settings_override_earlier_ones() {
        let experiment = Experiment::parse("lab.toml", GOOD).unwrap();
        let [there, back] = experiment.lab.as_ref().unwrap().links["wan"].settings();
        assert_eq!(
            (there.loss, there.corrupt, there.reorder),
            (0.027, 0.0002, 0.02)
        );
        assert_eq!(
            (there.delay.0, back.delay.0),
            (Duration::from_millis(10), Duration::from_millis(20))
        );
        assert_eq!((there.rate, back.rate), (None, Some(BitRate(100_000_000))));
        let points = experiment.points();
        assert_eq!(points.len(), 4);
        assert_eq!(
            points[3].label,
            "remote mixed link_delay=5ms link_loss=0.01"
        );
        let [there, back] = &points[3].links["wan"];
        assert_eq!(
            (there.loss, back.loss, there.delay.0),
            (0.01, 0.01, Duration::from_millis(5))
        );
        assert_eq!(back.rate, Some(BitRate(100_000_000)));
    }

    /// Every share of a link can be a number or a percentage, also in bursts, faults and sweeps, and the message
    /// about a mistake names the key and both forms.
    #[test]
    fn shares_are_numbers_or_percentages() {
        // Long because it is one list of checks for each key.
        let set = |key: &str, value: &str| match key.split_once('.') {
            Some((table, key)) => {
                let rest = ["to_bad", "to_good"].map(|needed| match needed == key {
                    true => String::new(),
                    false => format!("{needed} = 0.5, "),
                });
                format!("{table} = {{ {}{key} = {value} }}", rest.concat())
            }
            None => format!("{key} = {value}"),
        };
        let (fault, end) = (
            "\n[[fault]]\nlink = \"wan\"\nset = { ",
            " }\nat = \"10ms\"\nfor = \"10ms\"\n",
        );
        let keys = [
            "loss",
            "corrupt",
            "ecn",
            "duplicate",
            "reorder",
            "loss_correlation",
            "loss_bursts.to_bad",
            "loss_bursts.to_good",
            "loss_bursts.loss_good",
            "loss_bursts.loss_bad",
        ];
        for key in keys {
            let link = |value: &str| {
                let more = if key == "loss_correlation" {
                    "loss = 0.1, "
                } else {
                    ""
                };
                let preset = if key.contains('.') {
                    "delay"
                } else {
                    "preset = \"paxson-wan\", delay"
                };
                let line = format!(
                    "wan = {{ between = [\"client\", \"server\"], {more}{}, {preset} = \"1ms\" }}",
                    set(key, value)
                );
                let start = GOOD.find("[lab.links.wan]").unwrap();
                let rest = GOOD.find("[targets.remote]").unwrap();
                let sweep = GOOD.find("[sweep]").unwrap();
                format!(
                    "{}[lab.links]\n{line}\n{}",
                    &GOOD[..start],
                    &GOOD[rest..sweep]
                )
            };
            let settings = |value: &str| {
                let experiment = Experiment::parse("lab.toml", &link(value))
                    .unwrap_or_else(|error| panic!("{key}: {}", error.one_line()));
                experiment.lab.unwrap().links["wan"].settings()
            };
            assert_eq!(settings("\"12.5%\""), settings("0.125"), "{key}");
            assert_ne!(settings("\"12.5%\""), settings("0.25"), "{key}");
            let last = key.rsplit('.').next().unwrap();
            for text in ["\"1 in 8\"", "true"] {
                for text in [
                    link(text),
                    format!("{}{fault}{}{end}", link("0.1"), set(key, text)),
                ] {
                    let said = Experiment::parse("lab.toml", &text).unwrap_err().one_line();
                    let forms = format!("{last}: ");
                    assert!(
                        said.contains(&forms) && said.contains("0.01 or \"1%\""),
                        "{said}"
                    );
                }
            }
            let said = Experiment::parse("lab.toml", &link("\"150%\""))
                .unwrap_err()
                .one_line();
            let named = key.split('.').next().unwrap();
            assert!(
                said.contains(named) && said.contains("1.5 is not a") && said.contains("%\""),
                "{said}"
            );
        }
        let swept = changed(GOOD, "link_loss = [0.0, 0.01]", "link_loss = [0.0, \"1%\"]");
        let points = Experiment::parse("lab.toml", &swept).unwrap().points();
        assert_eq!(
            points[3].label,
            "remote mixed link_delay=5ms link_loss=0.01"
        );
        let wrong = changed(GOOD, "link_loss = [0.0, 0.01]", "link_loss = [\"some\"]");
        assert_mistake(&wrong, 16, "link_loss: 'some' is not a share");
    }

    /// No key of a link or a fault has the schema of a plain number, which would accept no percentages.
    #[test]
    fn no_key_of_a_link_or_fault_is_a_plain_fraction() {
        let schema = serde_json::to_value(Experiment::schema()).unwrap();
        let mut plain = Vec::new();
        for (name, definition) in schema["$defs"].as_object().unwrap() {
            let kinds = std::iter::once(definition)
                .chain(definition["anyOf"].as_array().into_iter().flatten());
            for (key, value) in kinds
                .filter_map(|kind| kind["properties"].as_object())
                .flatten()
            {
                let is_number = value["type"] == "number"
                    || value["type"]
                        .as_array()
                        .is_some_and(|of| of.contains(&"number".into()));
                if is_number {
                    plain.push(format!("{name}.{key}"));
                }
            }
        }
        let of_links = ["LinkEntry.", "LinkBack.", "Bursts.", "Fault", "Cpu."];
        plain.retain(|name| of_links.iter().any(|of| name.starts_with(of)));
        assert_eq!(plain, Vec::<String>::new());
        assert!(schema["$defs"]["Share"].is_object() && schema["$defs"]["Bursts"].is_object());
    }

    /// A jitter table's file is resolved relative to the experiment's file, and a missing file is reported at the
    /// line of its key.
    #[test]
    fn tables_from_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("two.dist"), "-8192 8192\n").unwrap();
        let name = folder.path().join("lab.toml").display().to_string();
        let keys =
            "jitter = \"1ms\"\ndistribution = \"two.dist\"\nback = { distribution = \"normal\", ";
        let text = GOOD.replacen("back = { ", keys, 1);
        let experiment = Experiment::parse(&name, &text).unwrap();
        let [there, back] = experiment.lab.unwrap().links["wan"].settings();
        let table = there.distribution.unwrap().table().unwrap();
        assert_eq!((table.draw(0), table.draw(u64::MAX)), (-1.0, 1.0));
        assert_eq!(back.distribution, Some(Distribution::Normal));
        let error = Experiment::parse(&name, &text.replace("two.dist", "none.dist"))
            .unwrap_err()
            .one_line();
        assert!(
            error.starts_with(&format!("{name}:10: ")) && error.contains("none.dist"),
            "{error}"
        );
        // A fault's jitter table is resolved relative to the file that names it, here an included file.
        std::fs::create_dir(folder.path().join("parts")).unwrap();
        std::fs::write(folder.path().join("parts/near.dist"), "-4096 4096\n").unwrap();
        let fault =
            "[[fault]]\nlink = \"wan\"\nset = { jitter = \"1ms\", distribution = \"near.dist\" }\n";
        std::fs::write(folder.path().join("parts/fault.toml"), fault).unwrap();
        let own = fault.replace("near", "two");
        let text = format!(
            "include = \"parts/fault.toml\"\n{}{own}",
            GOOD.replacen("delay = \"10ms\"", "", 1)
        );
        // The faults come one after the other, because two at once are refused.
        let text = text
            .replace("time = \"1s\"", "time = \"9s\"")
            .replace(&own, &format!("{own}at = \"3s\"\n"));
        let timed = format!("{fault}at = \"1s\"\nfor = \"1s\"\n");
        std::fs::write(folder.path().join("parts/fault.toml"), &timed).unwrap();
        let experiment =
            Experiment::parse(&name, &text).unwrap_or_else(|error| panic!("{}", error.one_line()));
        let drawn = experiment.fault.iter().map(|fault| {
            let crate::fault::FaultKind::LinkSet(link) = &fault.kind else {
                panic!("{fault:?}")
            };
            link.set
                .distribution
                .as_ref()
                .unwrap()
                .table()
                .unwrap()
                .draw(u64::MAX)
        });
        assert_eq!(drawn.collect::<Vec<_>>(), [0.5, 1.0]);
        std::fs::write(
            folder.path().join("parts/fault.toml"),
            timed.replace("near.dist", "two.dist"),
        )
        .unwrap();
        let error = Experiment::parse(&name, &text).unwrap_err().one_line();
        assert!(
            error.contains("fault.toml:3: fault 1: distribution: ") && error.contains("two.dist"),
            "{error}"
        );
    }

    /// A target may be several links away, and hosts may be pinned to cores.
    #[test]
    fn hosts_beyond_hosts() {
        let hosts =
            "hosts = [\"client\", \"middle\", \"server\"]\ncores = { server = [1], client = [0] }";
        let text = GOOD.replace("hosts = [\"client\", \"server\"]", hosts).replace(
            "between = [\"client\", \"server\"]",
            "between = [\"client\", \"middle\"]\n[lab.links.lan]\nbetween = [\"server\", \"middle\"]",
        );
        let lab = Experiment::parse("far.toml", &text).unwrap().lab.unwrap();
        let (client, server) = (HostName::from("client"), HostName::from("server"));
        assert!(lab.reaches(&client, &server) && lab.reaches(&server, &client));
        assert_eq!(lab.cores[&server], [1]);
    }

    /// Every mistake is reported at its line, before a network namespace is created.
    #[test]
    fn mistakes_have_their_line() {
        let check = |from: &str, to: &str, line, said: &str| {
            drop(assert_mistake(&changed(GOOD, from, to), line, said))
        };
        check(
            "hosts = [\"client\", \"server\"]",
            "hosts = [\"a\", \"a\"]",
            4,
            "defined twice",
        );
        check(
            "[\"client\", \"server\"]\n[",
            "[\"client\", \"server\"]\nworker = \"x\"\n[",
            5,
            "unknown host 'x'; the hosts of this experiment are: local, client, server",
        );
        check(
            "between = [\"client\", \"server\"]",
            "between = [\"client\", \"x\"]",
            6,
            "unknown host 'x'; the hosts of this experiment are: local, client, server",
        );
        check(
            "between = [\"client\", \"server\"]",
            "between = [\"client\", \"client\"]",
            6,
            "to itself",
        );
        check(
            "paxson-wan",
            "paxson",
            7,
            "the presets are lan, paxson-wan, four-sites",
        );
        check("delay = \"10ms\"", "delay = \"11s\"", 8, "longer than 10s");
        check(
            "delay = \"10ms\"",
            "delya = \"10ms\"",
            8,
            "did you mean delay?",
        );
        check("delay = \"10ms\"", "loss_gap = 1", 8, "write 2 or more");
        check(
            "delay = \"10ms\"",
            "loss_correlation = 1.0",
            8,
            "from 0 to 0.99 or a percentage",
        );
        check("delay = \"10ms\"", "ecn = 1.5", 8, "is not a share");
        check("delay = \"10ms\"", "slow_close = \"61s\"", 8, "longer than");
        check(
            "delay = \"10ms\"",
            "distribution = \"bell\"",
            8,
            "unknown distribution 'bell'",
        );
        check("delay = \"10ms\"", "mtu = 100", 8, "write 576 to 9000");
        check(
            "delay = \"10ms\"",
            "carrier = \"bare\"",
            8,
            "has no emulation",
        );
        check(
            "host = \"server\"",
            "host = \"x\"",
            12,
            "unknown host 'x'; the hosts of this experiment are: local, client, server",
        );
        let hosts = "hosts = [\"client\", \"server\"]";
        check(
            hosts,
            &format!("{hosts}\ncores = {{ x = [0] }}"),
            5,
            "unknown host 'x'; the hosts of this experiment are: local, client, server",
        );
        check(
            hosts,
            &format!("{hosts}\ncores = {{ server = [] }}"),
            5,
            "an empty list of cores",
        );
        let second = "[lab.links.wan2]\nbetween = [\"server\", \"client\"]";
        check(
            "delay = \"10ms\"",
            second,
            9,
            "wan already connects these hosts",
        );
        check(
            "hosts = [\"client\", \"server\"]",
            "hosts = [\"client\", \"server\", \"far\"]\nworker = \"far\"",
            13,
            "no route from far to server",
        );
        check(
            "hosts = [\"client\", \"server\"]",
            "hosts = [\"client\", \"server\"]\nidle = \"0s\"",
            5,
            "write 100ms to 10min",
        );
        check(
            "host = \"server\"\n",
            "",
            10,
            "does not name a host of the lab",
        );
        check(
            "link_loss = [0.0, 0.01]",
            "link_loss = [0.0, 1.1]",
            16,
            "is not a share",
        );
        let start = GOOD.find("[lab]").unwrap();
        let end = GOOD.find("[targets").unwrap();
        let without = format!("{}{}", &GOOD[..start], &GOOD[end..]);
        let error = Experiment::parse("x", &without).unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown host 'server'; the hosts of this experiment are: local"
        );
        let without = without.replace("host = \"server\"\n", "");
        assert!(
            Experiment::parse("x", &without)
                .unwrap_err()
                .to_string()
                .contains("there is no link")
        );
    }
}
