//! Metrics of a running target: its work per initiator, its LUNs, and their access states. Counters start at zero
//! with the target; names end in their unit.

use brunt_iscsi::target_node::{ConnectionCounters, TargetServer};

use super::build::port_state;
use crate::metrics::{MetricKind, MetricsPage};

/// The metrics page, rendered on request.
pub fn page(server: &TargetServer) -> String {
    let mut page = MetricsPage::default();
    whole(&mut page, server);
    by_target(&mut page, server);
    luns(&mut page, server);
    page.finish()
}

fn whole(page: &mut MetricsPage, server: &TargetServer) {
    let stats = server.stats();
    let counters = [
        (
            "sessions_opened",
            "Sessions opened, discovery included.",
            stats.sessions,
        ),
        (
            "connections",
            "Connections that logged in.",
            stats.connections,
        ),
        (
            "logins_refused",
            "Logins rejected with a status.",
            stats.logins_refused,
        ),
        (
            "logins_dropped",
            "Logins that were not completed.",
            stats.logins_dropped,
        ),
        (
            "connections_broken",
            "Connections closed because of a protocol error or a failure of the target.",
            stats.connections_broken,
        ),
        (
            "system_calls",
            "System calls of all workers' rings.",
            stats.system_calls,
        ),
    ];
    for (name, help, value) in counters {
        page.single(
            &format!("brunt_target_{name}_total"),
            MetricKind::Counter,
            help,
            value,
        );
    }
    page.single(
        "brunt_target_sessions_open",
        MetricKind::Gauge,
        "Open sessions, including discovery sessions.",
        stats.sessions_open,
    );
}

fn by_target(page: &mut MetricsPage, server: &TargetServer) {
    let targets = server.stats_by_target();
    page.metric(
        "brunt_target_sessions",
        MetricKind::Gauge,
        "Open sessions by target.",
    );
    for (target, _, sessions) in &targets {
        page.sample("brunt_target_sessions", &[("target", target)], sessions);
    }
    type Value = fn(&ConnectionCounters) -> u64;
    let counters: [(&str, &str, Value); 6] = [
        ("commands", "SCSI commands answered.", |c| c.commands),
        ("read_bytes", "Data sent to initiators.", |c| {
            c.data_in_bytes
        }),
        ("written_bytes", "Data received from initiators.", |c| {
            c.data_out_bytes
        }),
        ("rejected_pdus", "PDUs answered with a Reject.", |c| {
            c.rejects
        }),
        ("digest_errors", "Digests that did not match.", |c| {
            c.digest_errors
        }),
        (
            "ignored_commands",
            "Commands outside the command window.",
            |c| c.ignored,
        ),
    ];
    for (name, help, value) in counters {
        let name = format!("brunt_target_{name}_total");
        page.metric(&name, MetricKind::Counter, help);
        for (target, counters, _) in &targets {
            page.sample(&name, &[("target", target)], value(counters));
        }
    }
}

fn luns(page: &mut MetricsPage, server: &TargetServer) {
    let mut luns = Vec::new();
    for target in server.targets() {
        let units = target.luns.units().into_iter();
        luns.extend(units.map(|(lun, unit)| (target.name.clone(), lun.to_string(), unit)));
    }
    page.metric(
        "brunt_target_lun_size_bytes",
        MetricKind::Gauge,
        "Size of a LUN.",
    );
    for (target, lun, unit) in &luns {
        let bytes = unit.blocks() * u64::from(unit.block_bytes());
        page.sample(
            "brunt_target_lun_size_bytes",
            &[("target", target), ("lun", lun)],
            bytes,
        );
    }
    let name = "brunt_target_lun_unreachable_total";
    page.metric(
        name,
        MetricKind::Counter,
        "Commands rejected because of a port group's access state.",
    );
    for (target, lun, unit) in &luns {
        page.sample(
            name,
            &[("target", target), ("lun", lun)],
            unit.access().refused,
        );
    }
    let name = "brunt_target_port_group_state";
    page.metric(
        name,
        MetricKind::Gauge,
        "Access state of a port group: 1 for the current one.",
    );
    for (target, lun, unit) in &luns {
        for group in unit.access().groups {
            let (group, state) = (group.id.to_string(), port_state(group.state).to_string());
            let labels: [(&str, &str); 4] = [
                ("target", target),
                ("lun", lun),
                ("group", &group),
                ("state", &state),
            ];
            page.sample(name, &labels, 1);
        }
    }
}
