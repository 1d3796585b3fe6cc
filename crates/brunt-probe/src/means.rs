//! Means of a run's samples, for `summary.json`; the samples themselves go to the result's tables.
//!
//! The rule: samples are weighted by their duration, and a value that is undefined in a sample (a share of nothing)
//! doesn't enter the mean.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use brunt_core::Nanos;
use brunt_result::event::Sample;

use super::metric;

/// Means of all sampled figures.
#[derive(Default)]
pub struct Means {
    means: BTreeMap<Key, Mean>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    host: Arc<str>,
    probe: Cow<'static, str>,
    instance: Arc<str>,
    metric: Cow<'static, str>,
}

#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    seconds: f64,
}

/// Probe and figure of each share of counted events, with the rates of the events that it is about, and of the others.
const SHARES_OF_COUNTS: [((&str, &str), &str, &str); 1] = [(
    ("tcp", "retransmitted_share"),
    "retransmitted_segments_per_s",
    "sent_segments_per_s",
)];

impl Means {
    /// Adds the part of a sample after `measured_from`.
    pub fn add(&mut self, sample: &Sample, measured_from: Nanos) {
        let seconds = sample
            .end
            .since(sample.start.max(measured_from))
            .as_secs_f64();
        if seconds == 0.0 {
            return;
        }
        for value in &sample.values {
            let (host, instance) = (Arc::clone(&sample.host), Arc::clone(&value.instance));
            let key = Key {
                host,
                probe: value.probe.clone(),
                instance,
                metric: value.metric.clone(),
            };
            let mean = self.means.entry(key).or_default();
            mean.sum += value.value * seconds;
            mean.seconds += seconds;
        }
    }

    /// Returns the means for the summary, by host and by `probe.metric` or `probe.instance.metric`.
    pub fn by_host(&self) -> BTreeMap<String, BTreeMap<String, f64>> {
        let mut hosts: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
        for (key, mean) in &self.means {
            let wanted = metric(&key.probe, &key.metric).is_some_and(|metric| metric.summary);
            if !wanted || self.is_part_of_a_total(key) || self.is_idle(key) {
                continue;
            }
            let dot = if key.instance.is_empty() { "" } else { "." };
            let name = format!("{}{dot}{}.{}", key.probe, key.instance, key.metric);
            let value = self.share_of_counts(key).unwrap_or(mean.sum / mean.seconds);
            hosts
                .entry(key.host.to_string())
                .or_default()
                .insert(name, value);
        }
        hosts
    }

    /// The mean of a share of counted events, from the rates of these: a mean of the samples' shares would give a sample
    /// with two segments as much weight as one with thousands. `None` for other figures.
    fn share_of_counts(&self, key: &Key) -> Option<f64> {
        let (_, part, rest) = SHARES_OF_COUNTS
            .iter()
            .find(|(share, ..)| *share == (&*key.probe, &*key.metric))?;
        let sum = |metric: &'static str| {
            let mut other = key.clone();
            other.metric = metric.into();
            self.means.get(&other).map(|mean| mean.sum)
        };
        let (part, rest) = (sum(part)?, sum(rest)?);
        (part + rest > 0.0).then(|| part / (part + rest))
    }

    /// Returns true if there is a total over all instances (as for CPUs), which is enough here.
    fn is_part_of_a_total(&self, key: &Key) -> bool {
        let total = Key {
            instance: "".into(),
            ..key.clone()
        };
        !key.instance.is_empty() && self.means.contains_key(&total)
    }

    /// Returns true if the instance was idle: an unused interface or disk.
    fn is_idle(&self, key: &Key) -> bool {
        let first = Key {
            metric: "".into(),
            ..key.clone()
        };
        let of_this = |other: &Key| {
            (&other.host, &other.probe, &other.instance) == (&key.host, &key.probe, &key.instance)
        };
        matches!(&*key.probe, "disk" | "network")
            && self
                .means
                .range(first..)
                .take_while(|(other, _)| of_this(other))
                .all(|(_, m)| m.sum == 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::event::SampleValue;

    /// Means are weighted by time, from the start of measuring; idle instances, parts of totals and details appear only
    /// in the tables.
    #[test]
    fn means_are_weighted_by_time() {
        let mut means = Means::default();
        let value =
            |probe: &'static str, instance: &str, metric: &'static str, value| SampleValue {
                probe: probe.into(),
                instance: instance.into(),
                metric: metric.into(),
                value,
            };
        for (start, end, busy) in [(0, 10, 1.0), (10, 30, 0.1), (30, 40, 0.7)] {
            let values = vec![
                value("cpu", "", "busy_share", busy),
                value("cpu", "cpu0", "busy_share", busy),
                value("cpu", "", "idle_share", 1.0 - busy),
                value("disk", "vda", "reads_per_s", 0.0),
                value("disk", "vdb", "reads_per_s", 7.0),
                value("disk", "vdb", "writes_per_s", 0.0),
            ];
            means.add(
                &Sample {
                    host: "a".into(),
                    start: Nanos(start),
                    end: Nanos(end),
                    values,
                },
                Nanos(10),
            );
        }
        let hosts = means.by_host();
        let names: Vec<_> = hosts["a"].keys().collect();
        assert_eq!(
            names,
            [
                "cpu.busy_share",
                "disk.vdb.reads_per_s",
                "disk.vdb.writes_per_s"
            ]
        );
        assert!((hosts["a"]["cpu.busy_share"] - 0.3).abs() < 1e-12);
        assert!((hosts["a"]["disk.vdb.reads_per_s"] - 7.0).abs() < 1e-12);
    }

    /// The share of a run is that of all its segments, however they are spread over samples.
    #[test]
    fn shares_of_counts_are_weighted_by_count() {
        let mut means = Means::default();
        for (start, sent, again) in [(0, 1.0, 1.0), (1, 979.0, 19.0)] {
            let value = |metric: &'static str, value| SampleValue {
                probe: "tcp".into(),
                instance: "".into(),
                metric: metric.into(),
                value,
            };
            let values = vec![
                value("sent_segments_per_s", sent),
                value("retransmitted_segments_per_s", again),
                value("retransmitted_share", again / (sent + again)),
            ];
            let second = |count: u64| Nanos(count * 1_000_000_000);
            let sample = Sample {
                host: "client".into(),
                start: second(start),
                end: second(start + 1),
                values,
            };
            means.add(&sample, Nanos(0));
        }
        let share = means.by_host()["client"]["tcp.retransmitted_share"];
        assert!((share - 0.02).abs() < 1e-12, "{share}");
    }
}
