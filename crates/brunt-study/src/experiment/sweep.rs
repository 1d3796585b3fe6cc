//! `[sweep]`: its axes, and the drafts of points that differ in their values.
//!
//! The rule: every draft is replaced by one for each value of an axis, in the order of the axes below.

use brunt_core::share::{self, Share};
use brunt_core::{Size, Span};
use brunt_lab::link::{BitRate, Settings as LinkSettings};
use brunt_load::block::workload::{Arrival, BlockSize, Workload};
use brunt_result::impact::{CLIENTS_AXIS, CLIENTS_JOINT, DELAY_AXIS, ON_AXIS};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plan::{Draft, What};

/// Values to sweep over. A key that is absent or empty leaves the workload's own value.
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
    /// How many times as fast as their traces; the workloads have to replay some.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub speed: Vec<f64>,
    /// How many of a workload's `hosts` work at once. The hosts are divided into groups of that many, in their order, and
    /// each group is a point: with 1, every host works alone, one after another. For indexes of robustness (docs/indexes.md).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<u32>,
    /// One-way delay of every link of the lab, or of those in `links`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link_delay: Vec<Span>,
    /// Packet loss of every link of the lab, or of those in `links`, in each direction, such as 0.01 or "1%".
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "share::link_loss"
    )]
    #[schemars(with = "Vec<Share>")]
    pub link_loss: Vec<f64>,
    /// Rate of every link of the lab, or of those in `links`, in each direction.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link_rate: Vec<BitRate>,
    /// No axis: names of the links that `link_delay`, `link_loss` and `link_rate` vary, such as those between sites; default:
    /// all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
}

impl Sweep {
    /// Names of the axes that have values.
    pub fn swept(&self) -> Vec<&'static str> {
        let axes = [
            ("block_size", self.block_size.is_empty()),
            ("queue_depth", self.queue_depth.is_empty()),
            ("workers", self.workers.is_empty()),
            ("read", self.read.is_empty()),
            ("sequential", self.sequential.is_empty()),
            ("rate", self.rate.is_empty()),
            ("speed", self.speed.is_empty()),
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

    /// Replaces each draft by one for each combination of values of a workload's keys.
    pub(super) fn vary(&self, drafts: &mut Vec<Draft>) {
        vary(drafts, "block_size", &self.block_size, |workload, size| {
            workload.blocks = vec![BlockSize {
                size: *size,
                weight: 1.0,
            }];
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
    }

    /// Does the same for the axes that are not keys of a workload.
    pub(super) fn vary_surroundings(&self, drafts: &mut Vec<Draft>) {
        vary_clients(drafts, &self.clients);
        let links = &self.links;
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
    }
}

/// Whether a mistake in a workload's key is due to this axis of a sweep.
pub(super) fn touches(axis: &str, key: &str) -> bool {
    match axis {
        "block_size" => key == "blocks",
        "rate" => key.starts_with("arrival"),
        axis => key == axis,
    }
}

/// Replaces each draft by one for each value of an axis of the workload.
fn vary<T: std::fmt::Display>(
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
        What::Files(..) => {}
    });
}

/// Replaces each draft by one for each group of simultaneous clients.
fn vary_clients(drafts: &mut Vec<Draft>, counts: &[u32]) {
    if counts.is_empty() {
        return;
    }
    let with = |draft: &Draft, clients: &[String]| {
        let mut draft = draft.clone();
        match &mut draft.what {
            What::Block(workload) => workload.hosts = clients.to_vec(),
            What::Files(load, _) => *load = load.on_hosts(clients.to_vec()),
            What::Together(_) => {}
        }
        draft.axes.push((CLIENTS_AXIS, clients.len().to_string()));
        draft
            .axes
            .push((ON_AXIS, clients.join(&CLIENTS_JOINT.to_string())));
        draft
    };
    let groups = |draft: &Draft| {
        let hosts = match &draft.what {
            What::Block(workload) => &workload.hosts[..],
            What::Files(load, _) => &load.settings().hosts[..],
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

/// Replaces each draft by one for each value of an axis of these links, or of every link if none is named.
fn vary_links<T: std::fmt::Display>(
    drafts: &mut Vec<Draft>,
    names: &[String],
    (axis, values): (&'static str, &[T]),
    set: impl Fn(&mut LinkSettings, &T),
) {
    vary_drafts(drafts, axis, values, |draft, value| {
        let links = draft
            .links
            .iter_mut()
            .filter(|(name, _)| names.is_empty() || names.contains(name));
        links
            .flat_map(|(_, ways)| ways)
            .for_each(|link| set(link, value));
    });
}

/// Replaces each draft by one for each value of an axis.
fn vary_drafts<T: std::fmt::Display>(
    drafts: &mut Vec<Draft>,
    axis: &'static str,
    values: &[T],
    set: impl Fn(&mut Draft, &T),
) {
    if values.is_empty() {
        return;
    }
    let with = |draft: &Draft, value: &T| {
        let mut draft = draft.clone();
        set(&mut draft, value);
        draft.axes.push((axis, value.to_string()));
        draft
    };
    *drafts = drafts
        .iter()
        .flat_map(|draft| values.iter().map(move |value| with(draft, value)))
        .collect();
}
