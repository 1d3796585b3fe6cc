//! `[sweep]`: its axes, and the drafts of points for all of their values.
//!
//! The rule: every draft is replaced with one draft per value of an axis, in the order of the axes below.

use std::collections::BTreeMap;
use std::fmt;

use brunt_core::device_url::OPTION_DEFAULT;
use brunt_core::share::{self, Share};
use brunt_core::{Size, Span};
use brunt_lab::link::{BitRate, Settings as LinkSettings};
use brunt_load::block::sizes::BlockSizes;
use brunt_load::block::workload::{Arrival, Workload};
use brunt_result::impact::{CLIENTS_AXIS, CLIENTS_JOINT, DELAY_AXIS, ON_AXIS};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lab_check::MTU;
use super::plan::{Draft, What};
use super::{LabEntry, LinkOptions};

/// The axis of file sizes.
pub(super) const FILE_SIZE_AXIS: &str = "file_size";

/// Names that the axis of a URL option may not have.
const AXES: &[&str] = &[
    "block_size",
    "queue_depth",
    "workers",
    "read",
    "sequential",
    "rate",
    "speed",
    FILE_SIZE_AXIS,
    CLIENTS_AXIS,
    ON_AXIS,
];

/// Values to sweep over. If a key is absent or empty, the workload's own value stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sweep {
    /// Block size, in place of the workload's `blocks`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub block_size: Vec<Size>,
    /// Outstanding requests per worker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue_depth: Vec<u32>,
    /// Worker threads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<u32>,
    /// Share of reads, 0 to 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<f64>,
    /// Probability of sequential requests, 0 to 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sequential: Vec<f64>,
    /// Requests per second; requires open-loop workloads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rate: Vec<f64>,
    /// Speed relative to the traces' timing, such as 2 for twice as fast; requires workloads that replay traces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub speed: Vec<f64>,
    /// Size of the data file of every file system, or of each file of a metadata load, in place of its `file_size`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub file_size: Vec<Size>,
    /// How many of a workload's `hosts` work at the same time. The hosts are divided into groups of that many, in
    /// their order, and each group is a point: with 1, the hosts work alone, one after another. Used for the
    /// robustness indexes (docs/indexes.md).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<u32>,
    /// One-way delay of every link (`[lab.links.NAME]`, `[links.NAME]`), or only of the links in `links`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link_delay: Vec<Span>,
    /// Packet loss of every link, or only of the links in `links`, in each direction, such as 0.01 or "1%".
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "share::link_loss"
    )]
    #[schemars(with = "Vec<Share>")]
    pub link_loss: Vec<f64>,
    /// Rate of every link, or only of the links in `links`, in each direction.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link_rate: Vec<BitRate>,
    /// Any other key of `[lab.links.NAME]` and its values, such as `mtu`, `queue` or `preset`: each is an axis named
    /// after its key (`link_mtu`), for every link of the lab, or only for the links in `links`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub link: BTreeMap<String, Vec<AxisValue>>,
    /// Options of targets' URLs, by the name of the target and the name of the option (`brunt help devices`): each
    /// option is an axis named after it. The value `"default"` omits the option.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, BTreeMap<String, Vec<AxisValue>>>,
    /// Not an axis: names of the links that `link_delay`, `link_loss`, `link_rate` and `link` vary, such as links
    /// between sites; default: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
}

/// A value of an axis whose type depends on its key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a text, a number, true or false")]
pub enum AxisValue {
    /// `true`
    Switch(bool),
    /// `9000`
    Whole(i64),
    /// `0.01`
    Number(f64),
    /// `"1MiB"`
    Text(String),
}

impl fmt::Display for AxisValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AxisValue::Switch(value) => value.fmt(f),
            AxisValue::Whole(value) => value.fmt(f),
            AxisValue::Number(value) => value.fmt(f),
            AxisValue::Text(value) => value.fmt(f),
        }
    }
}

impl AxisValue {
    /// The value as an MTU in bytes, if it is in range.
    pub(super) fn mtu(&self) -> Option<u32> {
        let AxisValue::Whole(bytes) = self else {
            return None;
        };
        u32::try_from(*bytes)
            .ok()
            .filter(|bytes| MTU.contains(bytes))
    }
}

impl Sweep {
    /// Names of the axes that have values, except those whose names depend on the experiment.
    pub fn swept(&self) -> Vec<&'static str> {
        let axes = [
            ("block_size", self.block_size.is_empty()),
            ("queue_depth", self.queue_depth.is_empty()),
            ("workers", self.workers.is_empty()),
            ("read", self.read.is_empty()),
            ("sequential", self.sequential.is_empty()),
            ("rate", self.rate.is_empty()),
            ("speed", self.speed.is_empty()),
            (FILE_SIZE_AXIS, self.file_size.is_empty()),
            (CLIENTS_AXIS, self.clients.is_empty()),
            ("link_delay", self.link_delay.is_empty()),
            ("link_loss", self.link_loss.is_empty()),
            ("link_rate", self.link_rate.is_empty()),
        ];
        axes.into_iter()
            .filter(|(_, empty)| !empty)
            .map(|(name, _)| name)
            .collect()
    }

    /// Whether the sweep varies settings of links.
    pub(super) fn varies_links(&self) -> bool {
        let axes = [
            self.link_delay.is_empty(),
            self.link_loss.is_empty(),
            self.link_rate.is_empty(),
            self.link.is_empty(),
        ];
        axes.contains(&false)
    }

    /// Number of points that the swept options of a target split each point into.
    pub(super) fn options_of(&self, target: &str) -> usize {
        let axes = self.options.get(target).into_iter().flatten();
        axes.map(|(_, values)| values.len().max(1))
            .fold(1, usize::saturating_mul)
    }

    /// Replaces each draft with one draft per combination of swept values for a workload's keys.
    pub(super) fn vary(&self, drafts: &mut Vec<Draft>) {
        vary(drafts, "block_size", &self.block_size, |workload, size| {
            workload.blocks = BlockSizes::only(*size);
        });
        vary(
            drafts,
            "queue_depth",
            &self.queue_depth,
            |workload, depth| workload.queue_depth = *depth,
        );
        vary(drafts, "workers", &self.workers, |workload, workers| {
            workload.workers = *workers
        });
        vary(drafts, "read", &self.read, |workload, read| {
            workload.read = *read
        });
        vary(drafts, "sequential", &self.sequential, |workload, share| {
            workload.sequential = *share
        });
        vary(drafts, "rate", &self.rate, |workload, new| {
            if let Arrival::Open { rate, .. } = &mut workload.arrival {
                *rate = *new;
            }
        });
        vary(drafts, "speed", &self.speed, |workload, speed| {
            workload.speed = Some(*speed)
        });
        for (target, options) in &self.options {
            for (option, values) in options {
                vary_option(drafts, target, option, values);
            }
        }
    }

    /// Replaces each draft with one draft per combination of values on the axes that are not keys of a workload.
    pub(super) fn vary_surroundings(&self, drafts: &mut Vec<Draft>, lab: Option<&LabEntry>) {
        vary_clients(drafts, &self.clients);
        let links = &self.links;
        // The preset comes first, because it replaces all other settings.
        if let (Some(presets), Some(lab)) = (self.link.get("preset"), lab) {
            vary_drafts(drafts, "link_preset", presets, |draft, preset| {
                for (name, ways) in links_named(draft, links) {
                    if let Some(link) = lab.links.get(name) {
                        *ways = link.with_preset(&preset.to_string()).settings();
                    }
                }
            });
        }
        vary_links(
            drafts,
            links,
            (DELAY_AXIS, &self.link_delay),
            |link, delay| link.delay = *delay,
        );
        vary_links(
            drafts,
            links,
            ("link_loss", &self.link_loss),
            |link, loss| {
                (link.loss, link.loss_bursts) = (*loss, None);
            },
        );
        vary_links(
            drafts,
            links,
            ("link_rate", &self.link_rate),
            |link, rate| link.rate = Some(*rate),
        );
        for (key, values) in &self.link {
            match key.as_str() {
                "preset" => {}
                "mtu" => vary_drafts(drafts, "link_mtu", values, |draft, value| {
                    let is_meant = |name: &String| links.is_empty() || links.contains(name);
                    for (_, mtu) in draft.mtus.iter_mut().filter(|(name, _)| is_meant(name)) {
                        *mtu = value.mtu().unwrap_or(*mtu);
                    }
                }),
                key => vary_drafts(drafts, &format!("link_{key}"), values, |draft, value| {
                    let option = format!("{key}={value}");
                    for (_, ways) in links_named(draft, links) {
                        // Invalid values were reported when the file was read.
                        let _ = LinkOptions::set_on(&option, ways);
                    }
                }),
            }
        }
    }
}

/// The links of a draft with these names; all of them if no names are given.
fn links_named<'a>(
    draft: &'a mut Draft,
    names: &'a [String],
) -> impl Iterator<Item = (&'a String, &'a mut [LinkSettings; 2])> {
    let links = draft.links.iter_mut();
    links.filter(move |(name, _)| names.is_empty() || names.contains(name))
}

/// Replaces each draft on a target with one draft per value of an option of the target's URL.
fn vary_option(drafts: &mut Vec<Draft>, target: &str, option: &str, values: &[AxisValue]) {
    let vary = |draft: Draft| {
        if !draft.targets.iter().any(|name| name == target) {
            return vec![draft];
        }
        let is_clear = draft.targets.len() == 1 && !AXES.contains(&option);
        let axis = match is_clear {
            true => option.to_string(),
            false => format!("{target}.{option}"),
        };
        let mut varied = vec![draft];
        vary_drafts(&mut varied, &axis, values, |draft, value| {
            let value = Some(value.to_string()).filter(|value| value != OPTION_DEFAULT);
            draft.set_option(target, option, value);
        });
        varied
    };
    let all = std::mem::take(drafts).into_iter();
    *drafts = all.flat_map(vary).collect();
}

/// Whether a mistake in a workload's key is due to this axis of a sweep.
pub(super) fn touches(axis: &str, key: &str) -> bool {
    match axis {
        "block_size" => key == "blocks",
        "rate" => key.starts_with("arrival"),
        axis => key == axis,
    }
}

/// Replaces each draft with one draft per value of an axis of the workload.
fn vary<T: fmt::Display>(
    drafts: &mut Vec<Draft>,
    axis: &'static str,
    values: &[T],
    set: impl Fn(&mut Workload, &T),
) {
    vary_drafts(drafts, axis, values, |draft, value| match &mut draft.what {
        What::Block(workload) => set(workload, value),
        What::Together(group) => group
            .jobs
            .iter_mut()
            .for_each(|job| set(&mut job.workload, value)),
        What::Entry(_) => {}
    });
}

/// Replaces each draft with one draft per group of simultaneous clients.
fn vary_clients(drafts: &mut Vec<Draft>, counts: &[u32]) {
    if counts.is_empty() {
        return;
    }
    let with = |draft: &Draft, clients: &[String]| {
        let mut draft = draft.clone();
        match &mut draft.what {
            What::Block(workload) => workload.hosts = clients.to_vec(),
            What::Entry(load) => *load = load.on_hosts(clients.to_vec()),
            What::Together(_) => {}
        }
        draft
            .axes
            .push((CLIENTS_AXIS.to_string(), clients.len().to_string()));
        draft.axes.push((
            ON_AXIS.to_string(),
            clients.join(&CLIENTS_JOINT.to_string()),
        ));
        draft
    };
    let groups = |draft: &Draft| {
        let hosts = match &draft.what {
            What::Block(workload) => &workload.hosts[..],
            What::Entry(load) => load.hosts(),
            What::Together(_) => &[],
        };
        let groups = counts
            .iter()
            .flat_map(|count| hosts.chunks_exact((*count).max(1) as usize));
        groups
            .map(|clients| with(draft, clients))
            .collect::<Vec<Draft>>()
    };
    *drafts = drafts.iter().flat_map(groups).collect();
}

/// Replaces each draft with one draft per value of an axis of these links, or of all links if none is named.
fn vary_links<T: fmt::Display>(
    drafts: &mut Vec<Draft>,
    names: &[String],
    (axis, values): (&'static str, &[T]),
    set: impl Fn(&mut LinkSettings, &T),
) {
    vary_drafts(drafts, axis, values, |draft, value| {
        links_named(draft, names)
            .flat_map(|(_, ways)| ways)
            .for_each(|link| set(link, value));
    });
}

/// Replaces each draft with one draft per value of an axis.
fn vary_drafts<T: fmt::Display>(
    drafts: &mut Vec<Draft>,
    axis: &str,
    values: &[T],
    set: impl Fn(&mut Draft, &T),
) {
    if values.is_empty() {
        return;
    }
    let with = |draft: &Draft, value: &T| {
        let mut draft = draft.clone();
        set(&mut draft, value);
        draft.axes.push((axis.to_string(), value.to_string()));
        draft
    };
    *drafts = drafts
        .iter()
        .flat_map(|draft| values.iter().map(move |value| with(draft, value)))
        .collect();
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Experiment, Point, assert_mistake_at, changed};

    const TEXT: &str = r#"
name = "axes of any key"
[lab]
hosts = ["client", "server"]
[lab.links.wan]
between = ["client", "server"]
jitter = "1ms"
mtu = 1400
[targets.local]
url = "null:1MiB"
[targets.san]
serve = "null:1MiB"
host = "server"
options = "sessions=2&first_burst=64k"
[workloads.w]
stop = { time = "1s" }
[sweep]
link.mtu = [1500, 9000]
[sweep.options.san]
first_burst = ["8k", "default"]
"#;

    fn points(text: &str) -> Vec<Point> {
        Experiment::parse("x.toml", text).unwrap().points()
    }

    fn labels(text: &str) -> Vec<String> {
        points(text).into_iter().map(|point| point.label).collect()
    }

    #[test]
    fn links_and_options_have_an_axis_for_any_key() {
        let points = points(TEXT);
        let labels: Vec<&str> = points.iter().map(|point| point.label.as_str()).collect();
        let expected = [
            "local w link_mtu=1500",
            "local w link_mtu=9000",
            "san w first_burst=8k link_mtu=1500",
            "san w first_burst=8k link_mtu=9000",
            "san w first_burst=default link_mtu=1500",
            "san w first_burst=default link_mtu=9000",
        ];
        assert_eq!(labels, expected);
        let mtus: Vec<u32> = points.iter().map(|point| point.mtus["wan"]).collect();
        assert_eq!(mtus, [1500, 9000, 1500, 9000, 1500, 9000]);
        let devices: Vec<String> = points.iter().map(|point| point.device_of("san")).collect();
        assert_eq!(devices[0], "san");
        assert_eq!(devices[3], "san?first_burst=8k");
        assert_eq!(devices[5], "san?first_burst=default");
        let urls = |url: &str| -> Vec<String> {
            let plan = Experiment::parse("x.toml", TEXT).unwrap().plan();
            let devices = plan.devices_of("san").into_values();
            devices.map(|options| options.applied_to(url)).collect()
        };
        let expected = ["x:?sessions=2&first_burst=8k", "x:?sessions=2"];
        assert_eq!(urls("x:?sessions=2&first_burst=64k"), expected);
    }

    #[test]
    fn a_preset_is_below_all_other_keys() {
        let text = changed(
            TEXT,
            "link.mtu = [1500, 9000]",
            "link.preset = [\"lan\", \"paxson-wan\"]\nlink.queue_packets = [10]",
        );
        let points = points(&text);
        assert_eq!(
            points[1].label,
            "local w link_preset=paxson-wan link_queue_packets=10"
        );
        let [there, back] = &points[1].links["wan"];
        assert!(there.reorder > 0.0 && there == back);
        assert_eq!(
            (there.queue_packets, there.jitter.to_string().as_str()),
            (Some(10), "1ms")
        );
        assert_eq!(points[0].links["wan"][0].reorder, 0.0);
        assert_eq!(points[0].mtus["wan"], 1400);
    }

    #[test]
    fn options_of_joined_targets_name_their_target() {
        let text = changed(
            TEXT,
            "[sweep]",
            "[together.both]\njobs = [{ workload = \"w\", target = \"san\" }, { workload = \"w\", target = \"local\", name = \"x\" }]\n[sweep]",
        );
        let labels = labels(&text);
        assert!(
            labels
                .iter()
                .any(|label| label == "san+local both san.first_burst=8k link_mtu=1500"),
            "{labels:?}"
        );
        let text = changed(TEXT, "first_burst = [\"8k\", \"default\"]", "rate = [1]");
        assert!(
            points(&text)
                .iter()
                .any(|point| point.axes[0].0 == "san.rate")
        );
    }

    #[test]
    fn sizes_of_files_vary_their_phases() {
        let files = "[filesystems.home]\ndirectory = \"/tmp\"\nphases = [\"write-blocks\", \"read-blocks\"]\n[sweep]\nfile_size = [\"1MiB\", \"2MiB\"]";
        let text = changed(TEXT, "[sweep]", files);
        let labels = labels(&text);
        let of_files: Vec<&str> = labels
            .iter()
            .map(String::as_str)
            .filter(|label| label.starts_with("home"))
            .collect();
        assert_eq!(of_files.len(), 8);
        assert_eq!(
            of_files[0],
            "home write-blocks file_size=1MiB link_mtu=1500"
        );
        assert_eq!(of_files[6], "home read-blocks file_size=2MiB link_mtu=1500");
    }

    #[test]
    fn unknown_keys_and_values_are_refused() {
        // Long because it is a list of mistakes.
        let check = |from: &str, to: &str, begin: &str, words: &str| {
            assert_mistake_at(&changed(TEXT, from, to), begin, words);
        };
        let mtu = "link.mtu = [1500, 9000]";
        check(
            mtu,
            "link.mtu = [1500, 90000]",
            "link.mtu",
            "write 576 to 9000",
        );
        check(
            mtu,
            "link.mtu = [\"1500\"]",
            "link.mtu",
            "an MTU of 1500; write",
        );
        check(
            mtu,
            "link.mtv = [1500]",
            "link.mtv",
            "the keys are mtu, preset, delay, jitter",
        );
        check(
            mtu,
            "link.carrier = [\"bare\"]",
            "link.carrier",
            "no key carrier",
        );
        check(mtu, "link.loss = [0.1]", "link.loss", "write link_loss = ");
        check(mtu, "link.ecn = [2]", "link.ecn", "ecn=2: ");
        check(
            mtu,
            "link.distribution = [\"a/b.dist\"]",
            "link.distribution",
            "absolute",
        );
        // These are invalid only in combination with the link's other keys.
        check(
            mtu,
            "link.loss_gap = [7]\nlink.loss_bursts = [\"{ to_bad = 0.1, to_good = 0.5 }\"]",
            "link.loss",
            "loss_",
        );
        let lab = &TEXT[TEXT.find("[lab]").unwrap()..TEXT.find("[targets.local]").unwrap()];
        let alone = changed(&changed(TEXT, lab, ""), "host = \"server\"\n", "");
        assert_mistake_at(
            &alone,
            "link.mtu",
            "mtu of links is swept, but there is no link",
        );
        let table = "[sweep.options.san]";
        check(
            table,
            "[sweep.options.sam]",
            "[sweep.options.sam]",
            "the targets are local, san",
        );
        let values = "first_burst = [\"8k\", \"default\"]";
        check(
            values,
            "target_password = [\"a\"]",
            "target_password",
            "is a secret",
        );
        check(
            values,
            "first_burst = [\"8k&x=1\"]",
            "first_burst",
            "is not a valid option value",
        );
        let fault = "[[fault]]\ntarget = \"local\"\nname = \"x\"\nstorage = \"slow:1ms\"\n[sweep.options.local]";
        check(
            table,
            fault,
            "[sweep.options.local]",
            "a fault affects only one device",
        );
        let sizes = "file_size = [\"1MiB\"]\nlink.mtu = [1500]";
        check(mtu, sizes, "file_size", "there is no file system");
        let many: Vec<String> = (0..2000).map(|value| value.to_string()).collect();
        let many = format!("sessions = [{}]\ntimeout = [{0}]", many.join(", "));
        check(values, &many, "[sweep]", "these axes make");
    }
}
