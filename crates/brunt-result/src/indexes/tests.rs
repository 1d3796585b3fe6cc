use super::*;
use crate::Stopped;
use crate::hosts::{HostFigures, HostLoss, HostOpRate};
use crate::statistics::Ratio;
use crate::summary::tests::{op, point, run};

const MB: f64 = 1e6;

/// A run of these clients with their throughput in MB/s.
fn of_clients(round: u32, rates: &[(&str, f64)]) -> RunSummary {
    let host = |(name, rate): &(&str, f64)| HostFigures {
        name: (*name).into(),
        workers: 1,
        bytes_per_second: rate * MB,
        ops: vec![HostOpRate {
            op: OpKind::Write,
            requests_per_second: 1.0,
            bytes_per_second: rate * MB,
        }],
        began_us: Some(0.0),
        ..HostFigures::default()
    };
    RunSummary {
        repetition: round,
        bytes_per_second: rates.iter().map(|(_, rate)| rate * MB).sum(),
        hosts: rates.iter().map(host).collect(),
        ..run(vec![op(OpKind::Write, 100, 1.0)])
    }
}

/// A point of these clients with this delay, with one run per row of rates.
fn at(delay: &str, names: &[&str], rounds: &[&[f64]]) -> PointSummary {
    let runs = rounds.iter().zip(0..).map(|(rates, round)| {
        let rates: Vec<(&str, f64)> = names.iter().copied().zip(rates.iter().copied()).collect();
        of_clients(round, &rates)
    });
    let label = format!(
        "disk w clients={} on={} link_delay={delay}",
        names.len(),
        names.join("+")
    );
    let mut made = point(&label, runs.collect());
    made.axes = [
        (CLIENTS_AXIS, names.len().to_string()),
        (ON_AXIS, names.join("+")),
        (DELAY_AXIS, delay.to_string()),
    ]
    .map(|(axis, value)| (axis.to_string(), value))
    .into();
    made
}

/// The index of this kind with this many concurrent clients.
fn find<'a>(
    found: &'a RobustnessIndexes,
    kind: ImpactKind,
    at_once: u32,
    delay: &str,
) -> &'a ImpactIndex {
    let is = |impact: &&ImpactIndex| {
        let of = impact
            .link_delay
            .as_deref()
            .or(impact.axes.get(DELAY_AXIS).map(String::as_str));
        impact.kind == kind && impact.at_once == at_once && of == Some(delay)
    };
    found
        .impacts
        .iter()
        .find(is)
        .unwrap_or_else(|| panic!("{kind:?} {at_once} {delay} in {found:#?}"))
}

fn near(ratio: Ratio, expected: f64) {
    assert!(
        (ratio.ratio - expected).abs() < 1e-9,
        "{ratio:?} is not {expected}"
    );
    assert!(ratio.low <= expected && ratio.high >= expected, "{ratio:?}");
}

/// Two clients, alone and together, without and with delay: all ratios are known by hand.
fn known() -> Vec<PointSummary> {
    vec![
        at("0", &["a"], &[&[80.0], &[84.0], &[76.0]]),
        at("10ms", &["a"], &[&[40.0], &[42.0], &[38.0]]),
        at("0", &["b"], &[&[40.0], &[42.0], &[38.0]]),
        at("10ms", &["b"], &[&[10.0], &[11.0], &[9.0]]),
        at(
            "0",
            &["a", "b"],
            &[&[30.0, 30.0], &[31.0, 31.0], &[29.0, 29.0]],
        ),
        at(
            "10ms",
            &["a", "b"],
            &[&[15.0, 5.0], &[15.0, 5.0], &[15.0, 5.0]],
        ),
    ]
}

#[test]
fn ratios_are_those_of_the_paper() {
    let found = robustness(&known()).unwrap();
    assert_eq!(
        (found.impacts.len(), found.notes.len(), found.left_out.len()),
        (4, 0, 0)
    );
    // Equation 1: the mean throughput of a client is 30 with two clients at once and 60 alone.
    let two = find(&found, ImpactKind::Parallelism, 2, "0");
    near(two.per_client.interval.unwrap(), 0.5);
    // Aggregate throughput: 60 together, 60 alone.
    near(two.aggregate.interval.unwrap(), 1.0);
    assert_eq!(
        (two.rounds, two.rounds_left_out, two.per_client.clients),
        (3, 0, 2)
    );
    // The ratio of mean throughputs, 10 / 25, not the mean of ratios (0.375 and 0.5).
    near(
        find(&found, ImpactKind::Parallelism, 2, "10ms")
            .per_client
            .interval
            .unwrap(),
        0.4,
    );
    // Equation 2: 25 / 60 alone, 10 / 30 together.
    near(
        find(&found, ImpactKind::Latency, 1, "10ms")
            .per_client
            .interval
            .unwrap(),
        25.0 / 60.0,
    );
    let latency = find(&found, ImpactKind::Latency, 2, "10ms");
    near(latency.per_client.interval.unwrap(), 1.0 / 3.0);
    near(latency.aggregate.interval.unwrap(), 1.0 / 3.0);
    assert!(
        found.impacts.iter().all(|impact| impact.op.is_none()),
        "one kind has no rows of its own"
    );
    // Every client has a separate bar.
    let bar = |client: &str, clients: &str, delay: &str| {
        let is = |bar: &&ClientThroughput| {
            bar.client == client
                && bar.axes[CLIENTS_AXIS] == clients
                && bar.axes[DELAY_AXIS] == delay
        };
        found
            .clients
            .iter()
            .find(is)
            .unwrap()
            .bytes_per_second
            .unwrap()
    };
    assert_eq!(
        (bar("b", "1", "0").mean, bar("b", "2", "10ms").mean),
        (40.0 * MB, 5.0 * MB)
    );
    assert_eq!((found.clients.len(), bar("a", "2", "0").runs), (8, 3));
}

/// Two clients with the same throughput have an index of 1; with 15 and 5 it is 20² / (2 × 250).
#[test]
fn evenness_is_that_of_clients_at_once() {
    let mut points = known();
    let uneven = points.last_mut().unwrap();
    uneven.runs[2].hosts[1].lost = Some(HostLoss {
        after_s: 1.0,
        why: "gone".into(),
    });
    let found = robustness(&points).unwrap().evenness;
    let of = |delay: &str| {
        let is = |one: &&ClientEvenness| one.axes[DELAY_AXIS] == delay;
        let found = found.iter().find(is).unwrap();
        (found.at_once, found.index.unwrap())
    };
    assert_eq!(found.len(), 2, "clients alone have none: {found:#?}");
    let (at_once, even) = of("0");
    assert_eq!((at_once, even.runs, even.high), (2, 3, Some(1.0)));
    assert!((even.mean - 1.0).abs() < 1e-12, "{even:?}");
    let (_, uneven) = of("10ms");
    assert_eq!(uneven.runs, 2, "a round without one of them doesn't count");
    assert!((uneven.mean - 0.8).abs() < 1e-12, "{uneven:?}");
    assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), Some(0.25));
    assert_eq!(jain(&[0.0, 0.0]), None);
}

/// The ratios are from the paper's text: with 44 clients, GlusterFS read blocks 164 times as fast as Ceph and 48
/// times as fast as Sheepdog; with a single client, 8 and 18 times as fast. The number of clients did not affect
/// GlusterFS. So the indexes of Ceph and Sheepdog are 8/164 and 18/48 of GlusterFS's index.
#[test]
fn the_papers_text_agrees_with_its_index() {
    let names: Vec<String> = (0..4).map(|client| format!("vm{client}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let system = |target: &str, alone: f64, together: f64| {
        let mut points: Vec<PointSummary> = names
            .iter()
            .map(|name| at("0", &[name], &[&[alone], &[alone]]))
            .collect();
        let rates = [together; 4];
        points.push(at("0", &names, &[&rates, &rates]));
        points
            .iter_mut()
            .for_each(|point| point.target = target.into());
        points
    };
    let gluster = 164.0;
    let points = [
        system("gluster", gluster, gluster),
        system("ceph", gluster / 8.0, gluster / 164.0),
        system("sheepdog", gluster / 18.0, gluster / 48.0),
    ];
    let found = robustness(&points.concat()).unwrap();
    let of = |target: &str| {
        let is = |impact: &&ImpactIndex| impact.target == target;
        found
            .impacts
            .iter()
            .find(is)
            .unwrap()
            .per_client
            .interval
            .unwrap()
    };
    near(of("gluster"), 1.0);
    near(of("ceph"), 8.0 / 164.0);
    near(of("sheepdog"), 18.0 / 48.0);
}

/// A round in which a client was absent is left out everywhere and reported.
#[test]
fn a_round_without_a_client_is_left_out() {
    let mut points = known();
    points[4].runs[1].hosts[1].lost = Some(HostLoss {
        after_s: 0.5,
        why: "it went".into(),
    });
    let found = robustness(&points).unwrap();
    let two = find(&found, ImpactKind::Parallelism, 2, "0");
    assert_eq!((two.rounds, two.rounds_left_out), (2, 1));
    // The remaining rounds: 29.5 each together, 78 and 39 alone.
    near(two.per_client.interval.unwrap(), 29.5 / 58.5);
    assert_eq!(find(&found, ImpactKind::Parallelism, 2, "10ms").rounds, 3);
    assert_eq!(found.left_out.len(), 1);
    assert!(
        found.left_out[0]
            .describe()
            .ends_with("repetition 1: without b"),
        "{:?}",
        found.left_out
    );
    // A client that never started, one that is not listed, and a run that ended early.
    points[4].runs[0].hosts[0].began_us = None;
    points[4].runs[2].hosts.remove(0);
    points[0].runs[0].stopped = Stopped::Interrupted;
    let found = robustness(&points).unwrap();
    let two = find(&found, ImpactKind::Parallelism, 2, "0");
    assert_eq!(
        (two.per_client.interval, two.per_client.missing),
        (None, Some(NoInterval::NoRound))
    );
    let said: Vec<String> = found.left_out.iter().map(RunLeftOut::describe).collect();
    assert!(
        said.len() == 4 && said[0].ends_with("repetition 0: incomplete"),
        "{said:?}"
    );
}

/// Without an interval there is no number.
#[test]
fn no_number_without_an_interval() {
    let mut points = known();
    points.iter_mut().for_each(|point| point.runs.truncate(1));
    let found = robustness(&points).unwrap();
    for impact in &found.impacts {
        for ratio in [&impact.per_client, &impact.aggregate] {
            assert_eq!(
                (ratio.interval, ratio.missing),
                (None, Some(NoInterval::OneRound))
            );
        }
    }
    let idle = [
        at("0", &["a"], &[&[0.0], &[0.0]]),
        at("10ms", &["a"], &[&[1.0], &[1.0]]),
    ];
    let found = robustness(&idle).unwrap();
    assert_eq!(
        found.impacts[0].per_client.missing,
        Some(NoInterval::NothingMoved)
    );
}

/// A client measured only together with others is compared with itself, and a sweep that lacks the reference reports
/// that.
#[test]
fn only_the_same_clients_are_compared() {
    let mut points = known();
    // A third client, measured only alone and ten times as fast, is not in any group of two.
    points.push(at("0", &["c"], &[&[800.0], &[800.0], &[800.0]]));
    let found = robustness(&points).unwrap();
    near(
        find(&found, ImpactKind::Parallelism, 2, "0")
            .per_client
            .interval
            .unwrap(),
        0.5,
    );
    let together: Vec<PointSummary> = known().drain(4..).collect();
    let found = robustness(&together).unwrap();
    assert!(
        found
            .impacts
            .iter()
            .all(|impact| impact.kind == ImpactKind::Latency)
    );
    assert!(
        matches!(&found.notes[..], [note] if note.contains("add 1 to clients")),
        "{:?}",
        found.notes
    );
    let mut delayed = known();
    delayed
        .iter_mut()
        .filter(|point| point.axes[DELAY_AXIS] == "0")
        .for_each(|point| {
            point.axes.insert(DELAY_AXIS.into(), "5ms".into());
        });
    let found = robustness(&delayed).unwrap();
    assert!(
        found
            .impacts
            .iter()
            .all(|impact| impact.kind == ImpactKind::Parallelism)
    );
    assert!(
        matches!(&found.notes[..], [note] if note.contains("add \"0\" to link_delay")),
        "{:?}",
        found.notes
    );
}

/// A workload without hosts has one client, whose interval is over rounds; each of several kinds has its own ratio.
#[test]
fn one_client_and_kinds() {
    let with = |delay: &str, reads: u64, writes: u64| {
        let ops = || vec![op(OpKind::Read, reads, 1.0), op(OpKind::Write, writes, 1.0)];
        let runs = (0..3).map(|repetition| RunSummary {
            repetition,
            ..run(ops())
        });
        let mut made = point(&format!("disk w link_delay={delay}"), runs.collect());
        made.axes.insert(DELAY_AXIS.into(), delay.into());
        made
    };
    let found = robustness(&[with("0ns", 400, 100), with("1ms", 100, 50)]).unwrap();
    let of = |op: Option<OpKind>| {
        let impact = found.impacts.iter().find(|impact| impact.op == op).unwrap();
        assert_eq!((impact.per_client.clients, impact.at_once), (1, 1));
        impact.per_client.interval.unwrap()
    };
    near(of(None), 0.3);
    near(of(Some(OpKind::Read)), 0.25);
    near(of(Some(OpKind::Write)), 0.5);
    assert!(found.clients.iter().all(|bar| bar.client == LOCAL) && found.clients.len() == 6);
    assert_eq!(robustness(&[with("0", 1, 1)]), None);
}
