//! Summarizes a host's state in a few words, for `brunt probe` and the terminal of `brunt run`: the whole machine, and
//! its busiest interfaces and disks.

use brunt_core::units::format_size;

/// Names and figures in a sample, as probe, instance, metric and value.
pub fn host_figures<'a>(
    values: impl Iterator<Item = (&'a str, &'a str, &'a str, f64)> + Clone,
) -> Vec<String> {
    let value = |probe: &str, instance: &str, metric: &str| {
        let found =
            |one: &(&str, &str, &str, f64)| (one.0, one.1, one.2) == (probe, instance, metric);
        values.clone().find(found).map(|one| one.3)
    };
    let busiest = |probe: &str, metric: &str| {
        let all = values
            .clone()
            .filter(|one| one.0 == probe && one.2 == metric && one.1 != "lo");
        all.max_by(|one, other| one.3.total_cmp(&other.3))
            .map(|one| one.1)
    };
    let percent = |value: f64| format!("{:.1} %", value * 100.0);
    let rate = |value: f64| format!("{}/s", format_size(value.max(0.0) as u64));
    let mut figures = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            figures.push(format!("{name} {value}"));
        }
    };
    add("cpu", value("cpu", "", "busy_share").map(percent));
    add("iowait", value("cpu", "", "iowait_share").map(percent));
    add(
        "runnable",
        value("activity", "", "runnable_tasks").map(|count| format!("{count:.0}")),
    );
    add(
        "available",
        value("memory", "", "available_bytes").map(|bytes| format_size(bytes as u64)),
    );
    if let Some(name) = busiest("network", "received_bytes_per_s") {
        add(
            &format!("{name} in"),
            value("network", name, "received_bytes_per_s").map(rate),
        );
        add("out", value("network", name, "sent_bytes_per_s").map(rate));
    }
    add(
        "retransmits",
        value("tcp", "", "retransmitted_segments_per_s").map(|count| format!("{count:.1}/s")),
    );
    if let Some(name) = busiest("disk", "busy_share") {
        add(name, value("disk", name, "busy_share").map(percent));
        add("read", value("disk", name, "read_bytes_per_s").map(rate));
        add(
            "written",
            value("disk", name, "written_bytes_per_s").map(rate),
        );
    }
    if let Some(name) = busiest("pressure", "some_share") {
        add(
            &format!("{name} pressure"),
            value("pressure", name, "some_share").map(percent),
        );
    }
    let hottest = values
        .clone()
        .filter(|one| one.2 == "celsius")
        .map(|one| one.3)
        .reduce(f64::max);
    add("hottest", hottest.map(|celsius| format!("{celsius:.0} °C")));
    for process in values.filter(|one| one.2 == "total_cpus") {
        add(process.1, Some(format!("{:.3} CPUs", process.3)));
    }
    figures
}
