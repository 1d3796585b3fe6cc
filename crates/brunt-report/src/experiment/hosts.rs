//! Host counters during a run: one panel for each common question. The table `probes` has all counters.

use super::details::ProbeSeries;
use crate::chart::{Axis, Chart, Scale, Series, SeriesRole};
use crate::format::Unit;

/// Minimum number of samples for a line.
const SAMPLES_MIN: u64 = 4;
/// Maximum number of lines in a panel; the lines with the highest values are kept.
const LINES_MAX: usize = 6;

/// Figures shown in one chart: title, unit, label of the values, and metrics with their names.
struct Panel {
    title: &'static str,
    unit: Unit,
    label: &'static str,
    probe: &'static str,
    metrics: &'static [(&'static str, &'static str)],
}

#[rustfmt::skip]
const PANELS: &[Panel] = &[
    Panel { title: "Processors", unit: Unit::Share, label: "share of total CPU time", probe: "cpu", metrics: &[("user_share", "user"), ("system_share", "system"), ("interrupt_share", "interrupts"), ("iowait_share", "waiting for devices"), ("steal_share", "taken by the hypervisor")] },
    Panel { title: "Interrupts and context switches", unit: Unit::PerSecond, label: "a second", probe: "activity", metrics: &[("interrupts_per_s", "interrupts"), ("context_switches_per_s", "context switches")] },
    Panel { title: "Our processes", unit: Unit::Count, label: "processors in use", probe: "process", metrics: &[("total_cpus", "in all"), ("user_cpus", "user"), ("system_cpus", "system")] },
    Panel { title: "Network", unit: Unit::BytesPerSecond, label: "bytes per second", probe: "network", metrics: &[("received_bytes_per_s", "received"), ("sent_bytes_per_s", "sent")] },
    Panel { title: "Packets", unit: Unit::PerSecond, label: "packets per second", probe: "network", metrics: &[("received_packets_per_s", "received"), ("sent_packets_per_s", "sent"), ("receive_drops_per_s", "dropped on receive"), ("send_drops_per_s", "dropped on send")] },
    Panel { title: "TCP segments retransmitted", unit: Unit::PerSecond, label: "a second", probe: "tcp", metrics: &[("retransmitted_segments_per_s", "retransmitted"), ("timeouts_per_s", "time-outs")] },
    Panel { title: "Disks", unit: Unit::BytesPerSecond, label: "bytes per second", probe: "disk", metrics: &[("read_bytes_per_s", "read"), ("written_bytes_per_s", "written")] },
    Panel { title: "Disks' busy time", unit: Unit::Share, label: "share of the time", probe: "disk", metrics: &[("busy_share", "busy")] },
    Panel { title: "Memory", unit: Unit::Bytes, label: "bytes", probe: "memory", metrics: &[("free_bytes", "free"), ("shared_bytes", "shared"), ("buffered_bytes", "buffered"), ("cached_bytes", "cached"), ("swap_used_bytes", "swap in use")] },
    Panel { title: "Swap", unit: Unit::BytesPerSecond, label: "bytes per second", probe: "memory", metrics: &[("swapped_in_bytes_per_s", "read back"), ("swapped_out_bytes_per_s", "written")] },
    Panel { title: "Caches' room", unit: Unit::Bytes, label: "bytes", probe: "device", metrics: &[("dirty_bytes", "not on the device"), ("log_bytes", "of the log in use"), ("log_room_bytes", "of the log free")] },
    Panel { title: "Caches' hits", unit: Unit::Share, label: "share of bytes read", probe: "device", metrics: &[("hit_share", "")] },
    Panel { title: "Caches' destage lag", unit: Unit::Count, label: "ms", probe: "device", metrics: &[("destage_lag_ms", "")] },
    Panel { title: "Caches' logging and destaging", unit: Unit::BytesPerSecond, label: "bytes per second", probe: "device", metrics: &[("logged_bytes_per_s", "to the log"), ("destaged_bytes_per_s", "to the device")] },
    Panel { title: "Caches' overflow", unit: Unit::PerSecond, label: "a second", probe: "device", metrics: &[("waits_per_s", "writes waiting for space"), ("destage_retries_per_s", "batches retried")] },
    Panel { title: "Arrays", unit: Unit::PerSecond, label: "a second", probe: "device", metrics: &[("degraded_requests_per_s", "degraded requests"), ("read_errors_per_s", "read errors")] },
    Panel { title: "Arrays' rebuilds", unit: Unit::Share, label: "share of a member", probe: "device", metrics: &[("rebuilt_share", "")] },
    Panel { title: "Faults and retries", unit: Unit::PerSecond, label: "a second", probe: "device", metrics: &[("injected_per_s", "requests affected"), ("retries_per_s", "retries"), ("failures_per_s", "failures reported")] },
    Panel { title: "Pressure", unit: Unit::Share, label: "share of time with stalled tasks", probe: "pressure", metrics: &[("some_share", "")] },
];

/// Whether a panel shows this figure.
pub(super) fn is_shown(probe: &str, metric: &str) -> bool {
    PANELS
        .iter()
        .any(|panel| panel.probe == probe && panel.metrics.iter().any(|(name, _)| *name == metric))
}

/// Charts of host counters, and what they leave out.
pub(super) struct Panels {
    /// Panels that have data, by host.
    pub charts: Vec<Chart>,
    /// Titles of panels whose values were all zero.
    pub idle: Vec<String>,
    /// Number of samples of the longest series that was too short for a chart.
    pub few: usize,
}

/// The panels for these probe values.
pub(super) fn panels(probes: &[ProbeSeries]) -> Panels {
    let mut hosts: Vec<&str> = probes.iter().map(|probe| probe.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let (mut charts, mut idle) = (Vec::new(), Vec::new());
    for host in &hosts {
        for panel in PANELS {
            let of = if hosts.len() > 1 {
                format!(" of {host}")
            } else {
                String::new()
            };
            let members: Vec<(&ProbeSeries, &str)> = probes
                .iter()
                .filter(|probe| {
                    probe.host == *host
                        && probe.probe == panel.probe
                        && probe.line.pushed() >= SAMPLES_MIN
                })
                .filter_map(|probe| {
                    let (_, name) = panel
                        .metrics
                        .iter()
                        .find(|(metric, _)| *metric == probe.metric)?;
                    Some((probe, *name))
                })
                .collect();
            // If there is a line for all processors together, lines for single processors add little.
            let whole = members.iter().any(|(probe, _)| probe.instance.is_empty());
            let members: Vec<(&ProbeSeries, &str)> = members
                .into_iter()
                .filter(|(probe, _)| !whole || probe.instance.is_empty())
                .collect();
            if members.is_empty() {
                continue;
            }
            let (zero, members): (Vec<_>, Vec<_>) = members
                .into_iter()
                .partition(|(probe, _)| probe.line.is_zero(0));
            if members.is_empty() {
                idle.push(format!("{}{of}", panel.title));
                continue;
            }
            charts.push(chart(panel, &of, members, zero.len()));
        }
    }
    let short = probes
        .iter()
        .map(|probe| probe.line.pushed())
        .filter(|samples| *samples < SAMPLES_MIN);
    Panels {
        charts,
        idle,
        few: short.max().unwrap_or(0) as usize,
    }
}

fn chart(panel: &Panel, of: &str, mut members: Vec<(&ProbeSeries, &str)>, zero: usize) -> Chart {
    let most = |probe: &ProbeSeries| {
        probe
            .line
            .values(0)
            .into_iter()
            .flatten()
            .fold(0.0, f64::max)
    };
    let left_out = members.len().saturating_sub(LINES_MAX);
    if left_out > 0 {
        members.sort_by(|a, b| most(b.0).total_cmp(&most(a.0)));
        members.truncate(LINES_MAX);
    }
    // All figures in a panel share one list of times; a line has a gap where it has no value.
    let mut xs: Vec<f64> = members
        .iter()
        .flat_map(|(probe, _)| probe.line.places())
        .collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup_by(|a, b| (*a - *b).abs() < 1e-6);
    let series = members.iter().enumerate().map(|(index, (probe, name))| {
        let name = match (probe.instance.as_str(), *name) {
            ("", name) => name.to_string(),
            (instance, "") => instance.to_string(),
            (instance, name) => format!("{instance} {name}"),
        };
        let mut known = probe
            .line
            .places()
            .into_iter()
            .zip(probe.line.values(0))
            .peekable();
        let values = xs.iter().map(|x| {
            known
                .next_if(|(at, _)| *at < x + 1e-6)
                .and_then(|(_, value)| value)
        });
        Series::new(name, SeriesRole::Nominal(index), values.collect())
    });
    let series: Vec<Series> = series.collect();
    // A single line has no legend, so the axis has its name.
    let label = match &series[..] {
        [only] => format!("{}, {}", only.name, panel.label),
        _ => panel.label.to_string(),
    };
    let mut caption = String::new();
    if left_out > 0 {
        caption += &format!(
            "Only the {LINES_MAX} with the highest values of {}. ",
            LINES_MAX + left_out
        );
    }
    if zero > 0 {
        caption += &format!("Zero throughout: {zero} more.");
    }
    let x = Axis::new("time", Unit::Seconds, Scale::Linear);
    let y = Axis::new(label, panel.unit, Scale::FromZero);
    Chart::curves(format!("{}{of}", panel.title), x, y, xs, series).caption(caption)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panels use only metrics that exist.
    #[test]
    fn panels_name_what_there_is() {
        for panel in PANELS {
            for (metric, _) in panel.metrics {
                assert!(
                    brunt_probe::metric(panel.probe, metric).is_some(),
                    "{} {metric}",
                    panel.title
                );
            }
        }
    }
}
