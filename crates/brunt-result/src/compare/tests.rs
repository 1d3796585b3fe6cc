use super::*;
use crate::statistics::MARGIN;
use crate::summary::tests::{empty, op, point, run};

fn line(metric: &'static str, better: Better, a: &[f64], b: &[f64]) -> Line {
    let metrics = [Metric::new(metric, metric, better, a.to_vec(), b.to_vec())];
    let comparison = compare(&metrics, 0.5).remove(0);
    let (label, op, machine_slower) = ("x".into(), None, None);
    Line {
        label,
        op,
        is_part: false,
        metric: metric.into(),
        unit: "us",
        better,
        comparison,
        machine_slower,
    }
}

#[test]
fn margins_are_read() {
    assert_eq!("5%".parse(), Ok(Margin::default()));
    assert_eq!("2.5 %".parse(), Ok(Margin(0.025)));
    for text in ["5", "", "%", "-1%", "101%", "x%"] {
        assert_eq!(text.parse::<Margin>(), Err(MarginError(text.into())));
    }
}

#[test]
fn conditions_are_read() {
    assert_eq!(
        "p99 worse by 10%".parse(),
        Ok(FailIf {
            op: None,
            metric: "p99".into(),
            by: 0.1
        })
    );
    assert_eq!(
        "iops worse".parse(),
        Ok(FailIf {
            op: None,
            metric: "iops".into(),
            by: 0.0
        })
    );
    assert_eq!(
        "depth worse by 5%".parse::<FailIf>(),
        "drop worse by 5%".parse()
    );
    let write = FailIf {
        op: Some(OpKind::Write),
        metric: "p99".into(),
        by: 0.1,
    };
    assert_eq!("write p99 worse by 10%".parse(), Ok(write.clone()));
    assert_eq!(write.to_string(), "write p99 worse by 10%");
    let mistake = |text: &str| text.parse::<FailIf>().unwrap_err().kind;
    assert_eq!(mistake("p99 better"), ConditionMistake::Form);
    assert_eq!(
        mistake("p101 worse"),
        ConditionMistake::Metric("p101".into())
    );
    assert_eq!(
        mistake("p99 worse by 10"),
        ConditionMistake::Percentage("10".into())
    );
    assert_eq!(
        mistake("trims p99 worse"),
        ConditionMistake::Kind("trims".into())
    );
    assert_eq!(
        mistake("write drop worse"),
        ConditionMistake::MetricOfKind("drop".into())
    );
    assert_eq!(
        mistake("write iops worse"),
        ConditionMistake::MetricOfKind("iops".into())
    );
    for text in [
        "",
        "p101 worse",
        "p99 better",
        "p99 worse by 10",
        "p99 worse by",
        "p99 worse by -1%",
    ] {
        assert!(
            text.parse::<FailIf>()
                .unwrap_err()
                .to_string()
                .contains("'p99 worse by 10%'"),
            "{text}"
        );
    }
}

/// A gate fails if a figure is shown to be worse by at least the threshold, or if the evidence is inconclusive.
#[test]
fn a_gate_fails_on_a_proven_loss_or_without_evidence() {
    let gate: FailIf = "p99 worse by 10%".parse().unwrap();
    let base = [100.0, 101.0, 99.0, 100.5];
    let times = |by: f64| base.map(|value| value * by);
    let check = |b: &[f64], fails| {
        assert_eq!(
            gate.fails(&line("p99", Better::Lower, &base, b)),
            fails,
            "{b:?}"
        );
    };
    check(&times(1.2), true);
    check(&times(1.05), false); // worse, but not by enough
    check(&times(0.5), false);
    check(&[150.0, 151.0], true); // too few runs to say
    assert!(
        !gate.fails(&line("iops", Better::Higher, &base, &times(0.5))),
        "another metric"
    );
}

/// The result of four runs in which each kind of operation took this long.
fn result(ops: &[(OpKind, f64)]) -> Summary {
    let ops = || ops.iter().map(|(kind, us)| op(*kind, 1000, *us)).collect();
    Summary {
        points: vec![point("disk w", (0..4).map(|_| run(ops())).collect())],
        ..empty()
    }
}

#[test]
fn each_kind_of_a_mixed_load_has_lines_and_gates() {
    let before = result(&[(OpKind::Read, 100.0), (OpKind::Unmap, 300.0)]);
    let after = result(&[(OpKind::Read, 100.0), (OpKind::Unmap, 600.0)]);
    let (lines, _) = compare_summaries(&before, &after, MARGIN, &[]);
    let named: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| (line.label.as_str(), &*line.metric))
        .collect();
    assert!(named.contains(&("disk w, unmap", "p99")) && named.contains(&("disk w, read", "mean")));
    let failed = |gate: &str| {
        let gate: FailIf = gate.parse().unwrap();
        lines
            .iter()
            .filter(|line| gate.fails(line))
            .map(|line| line.label.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(failed("unmap p99 worse by 10%"), ["disk w, unmap"]);
    assert_eq!(failed("read p99 worse by 10%"), Vec::<&str>::new());
    assert_eq!(
        failed("p99 worse by 10%"),
        Vec::<&str>::new(),
        "the total did not change"
    );
}

/// Percentiles that an experiment chose or a condition names have a line for all kinds of operations together and one
/// for each kind.
#[test]
fn any_percentile_that_both_results_have_is_compared() {
    let p95 = Percentile::named("p95").unwrap();
    let with = |us: f64, chosen: &[Percentile]| {
        let mut result = result(&[(OpKind::Read, 100.0), (OpKind::Write, 100.0)]);
        result.experiment.percentiles = chosen.to_vec();
        for run in &mut result.points[0].runs {
            run.response_percentiles_us = [(p95, us)].into();
            for op in &mut run.ops {
                op.response_percentiles_us = [(p95, us)].into();
            }
        }
        result
    };
    let failed = |chosen: &[Percentile], asked: &[Percentile], gate: &str| {
        let gate: FailIf = gate.parse().unwrap();
        let (a, b) = (with(100.0, chosen), with(200.0, chosen));
        let (lines, _) = compare_summaries(&a, &b, MARGIN, asked);
        let about: Vec<&Line> = lines.iter().filter(|line| gate.is_about(line)).collect();
        (about.len(), about.iter().all(|line| gate.fails(line)))
    };
    assert_eq!(failed(&[p95], &[], "p95 worse by 10%"), (1, true));
    assert_eq!(failed(&[], &[p95], "p95 worse by 10%"), (1, true));
    assert_eq!(failed(&[p95], &[], "write p95 worse by 10%"), (1, true));
    assert_eq!(failed(&[], &[], "p95 worse by 10%"), (0, true));
    // A standard percentile is compared even if it wasn't requested, but only with enough requests.
    let (p90, p99_99) = (Percentile::P90, Percentile::P99_99);
    assert_eq!(failed(&[], &[p90], "p90 worse by 10%"), (1, false));
    assert_eq!(failed(&[], &[p99_99], "p99.99 worse by 10%"), (0, true));
    let gate: FailIf = "p99.90 worse".parse().unwrap();
    assert_eq!(gate.percentile(), Some(Percentile::P99_9));
}

/// An index has a separate line, whose sample is the rounds, and a separate gate.
#[test]
fn indexes_have_lines_and_gates() {
    use crate::impact::{ImpactRatio, RobustnessIndexes};
    let with = |ratio: f64, clients: u32| {
        let by_round = vec![ratio, ratio * 1.01, ratio * 0.99, ratio];
        let per_client = ImpactRatio {
            by_round,
            ..ImpactRatio::default()
        };
        let impact = ImpactIndex {
            kind: ImpactKind::Parallelism,
            target: "disk".into(),
            workload: "w".into(),
            axes: BTreeMap::new(),
            op: None,
            at_once: clients,
            link_delay: None,
            per_client,
            aggregate: ImpactRatio::default(),
            rounds: 4,
            rounds_left_out: 0,
        };
        let indexes = Some(RobustnessIndexes {
            impacts: vec![impact],
            ..RobustnessIndexes::default()
        });
        Summary {
            indexes,
            ..result(&[(OpKind::Read, 100.0)])
        }
    };
    let worse = |a: &Summary, b: &Summary| {
        let (lines, _) = compare_summaries(a, b, MARGIN, &[]);
        let gate: FailIf = "parallelism-impact worse by 10%".parse().unwrap();
        let of: Vec<String> = lines
            .iter()
            .filter(|line| gate.fails(line))
            .map(|line| line.label.clone())
            .collect();
        of
    };
    assert_eq!(worse(&with(0.5, 4), &with(0.25, 4)), ["disk w, 4 clients"]);
    assert_eq!(worse(&with(0.5, 4), &with(0.5, 4)), Vec::<String>::new());
    assert_eq!(
        worse(&with(0.5, 4), &with(0.25, 2)),
        Vec::<String>::new(),
        "another number of clients"
    );
}

/// The result of four runs of concurrent jobs, each given by its name and how long its operations took.
fn jobs(jobs: &[(&str, &[(OpKind, f64)])]) -> Summary {
    let point_of = |label: &str, ops: &[(OpKind, f64)]| {
        let made = |variation: u32| {
            let us = |us: f64| us * (1.0 + f64::from(variation) * 0.001);
            run(ops
                .iter()
                .map(|(kind, took)| op(*kind, 1000, us(*took)))
                .collect())
        };
        point(label, (0..4).map(made).collect())
    };
    let all: Vec<(OpKind, f64)> = jobs
        .iter()
        .flat_map(|(_, ops)| ops.iter().copied())
        .collect();
    let mut points = vec![point_of("disk mixed", &all)];
    points.extend(jobs.iter().map(|(name, ops)| PointSummary {
        part_of: Some("disk mixed".into()),
        ..point_of(&format!("disk mixed/{name}"), ops)
    }));
    Summary { points, ..empty() }
}

/// Rate and mean of concurrent jobs count as one figure if each job is a closed loop for the same share of every
/// run, and as two otherwise.
#[test]
fn closed_loops_at_once_count_once() {
    use crate::experiment::WorkloadSummary;
    let made = |second: ArrivalKind| {
        let mut made = jobs(&[
            ("reader", &[(OpKind::Read, 100.0)]),
            ("writer", &[(OpKind::Write, 300.0)]),
        ]);
        let arrivals = [
            ("mixed", ArrivalKind::Several),
            ("reader", ArrivalKind::Closed),
            ("writer", second),
        ];
        for (point, (name, arrival)) in made.points.iter_mut().zip(arrivals) {
            point.workload = name.into();
            let workload = WorkloadSummary {
                arrival,
                ..WorkloadSummary::default()
            };
            made.experiment.workloads.insert(name.into(), workload);
            for (repetition, run) in point.runs.iter_mut().enumerate() {
                run.repetition = repetition as u32;
            }
        }
        made
    };
    // Finds the figure that the mean of all jobs together is tied to.
    let check = |a: &Summary, b: &Summary, expected: Option<usize>| {
        let (compared, _) = metrics(a, b, &[]);
        let mean = compared
            .keys
            .iter()
            .position(|key| (key.label.as_str(), &*key.metric) == ("disk mixed", "mean"));
        assert_eq!(compared.metrics[mean.unwrap()].one_with, expected);
    };
    let closed = made(ArrivalKind::Closed);
    check(&closed, &closed, Some(0));
    check(&closed, &made(ArrivalKind::Open), None);
    // The writer ends at its own pace, in one run after half of the time.
    let mut ends = closed.clone();
    ends.points[2].runs[1].measured_s /= 2.0;
    check(&closed, &ends, None);
    // The job starts late, but by the same time in every run.
    let mut late = closed.clone();
    late.points[2]
        .runs
        .iter_mut()
        .for_each(|run| run.measured_s /= 2.0);
    check(&late, &late, Some(0));
    check(&closed, &late, None);
}

/// Operations of only one job have one line, so Holm's correction and gates count them once.
#[test]
fn what_one_job_does_is_not_repeated_for_all() {
    let made = |read: f64, write: f64| {
        jobs(&[
            ("reader", &[(OpKind::Read, read)]),
            ("writer", &[(OpKind::Write, write)]),
        ])
    };
    let (lines, _) = compare_summaries(&made(100.0, 300.0), &made(200.0, 300.0), MARGIN, &[]);
    let labels: BTreeSet<&str> = lines.iter().map(|line| line.label.as_str()).collect();
    assert_eq!(
        labels,
        ["disk mixed", "disk mixed/reader", "disk mixed/writer"].into()
    );
    assert_eq!(lines.len(), 3 * RunFigure::all(&[]).len());
    let gate: FailIf = "read p99 worse by 10%".parse().unwrap();
    let failed: Vec<&str> = lines
        .iter()
        .filter(|line| gate.fails(line))
        .map(|line| line.label.as_str())
        .collect();
    assert_eq!(failed, ["disk mixed/reader"], "{lines:#?}");
}

/// Two jobs that read each have a line, and there is a third line for all reads.
#[test]
fn figures_of_several_jobs_are_totals() {
    let one = jobs(&[
        ("reader", &[(OpKind::Read, 100.0)]),
        ("mixed", &[(OpKind::Read, 100.0), (OpKind::Write, 300.0)]),
    ]);
    let (lines, _) = compare_summaries(&one, &one, MARGIN, &[]);
    let has = |label: &str| lines.iter().any(|line| line.label == label);
    assert!(
        has("disk mixed, read") && has("disk mixed/mixed, read") && has("disk mixed/mixed, write")
    );
    assert!(!has("disk mixed, write"));
}

#[test]
fn the_line_of_a_load_of_one_kind_is_that_kinds() {
    let (lines, _) = compare_summaries(
        &result(&[(OpKind::Write, 1.0)]),
        &result(&[(OpKind::Write, 2.0)]),
        MARGIN,
        &[],
    );
    assert_eq!(lines.len(), RunFigure::all(&[]).len());
    for gate in ["p99 worse by 10%", "write p99 worse by 10%"] {
        let gate: FailIf = gate.parse().unwrap();
        assert_eq!(
            lines.iter().filter(|line| gate.fails(line)).count(),
            1,
            "{gate}"
        );
    }
    let reads: FailIf = "read p99 worse".parse().unwrap();
    assert!(!lines.iter().any(|line| reads.is_about(line)));
}
