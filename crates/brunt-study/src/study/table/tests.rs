use super::cost::cost;
use super::*;
use brunt_result::degradation::{OverRuns, ResponseOverRuns};
use brunt_result::sticky::StickyCost;

/// What probes could not measure is counted, in the singular or plural.
#[test]
fn trouble_of_probes() {
    assert_eq!(probe_trouble(39, [0; 4]), None);
    assert_eq!(
        probe_trouble(39, [1, 0, 1, 0]).unwrap(),
        "probes: 39 samples; 1 late, 1 counter was reset"
    );
    let many = probe_trouble(1, [2, 1, 3, 2]).unwrap();
    assert_eq!(
        many,
        "probes: 1 sample; 2 late, 1 missed, 3 counters were reset, 2 texts unreadable"
    );
}

/// The notes from a host's probes are one line, over all runs and metrics.
#[test]
fn each_host_has_one_line_of_samples_and_all_have_one_of_what_is_missing() {
    use brunt_result::{Outcome, Stopped};
    let run = |late: u64, notes: &[&str]| {
        let near = HostProbes {
            samples: 10,
            late,
            ..HostProbes::default()
        };
        let record = ProbeRecord {
            notes: notes.iter().map(|note| note.to_string()).collect(),
            elsewhere: [("near".to_string(), near)].into(),
            hosts: [("far".to_string(), BTreeMap::new())].into(),
            ..ProbeRecord::default()
        };
        let outcome = Outcome {
            stopped: Stopped::Done,
            ..Outcome::interrupted()
        };
        RunSummary {
            probes: Some(record),
            ..RunSummary::of(&outcome, 0, 0, 1, None)
        }
    };
    let runs = vec![
        run(1, &["near: no disk", "far: no network"]),
        run(2, &["near: no disk", "near: no memory"]),
    ];
    let point = PointSummary {
        runs,
        ..PointSummary::default()
    };
    let summary = Summary {
        points: vec![point],
        ..empty()
    };
    let expected = [
        "probes: near: 20 samples; 3 late",
        "probes: far: no network; near: no disk; near: no memory",
    ];
    assert_eq!(probes(&summary), expected);
}

/// A sticky fault has a line that compares it with the normal point, in place of a cost without a baseline.
#[test]
fn sticky_faults_are_held_against_the_normal_point() {
    let each = |values: &[f64]| Estimate::of(values);
    let fault = OverRuns {
        fault: "far".into(),
        ..OverRuns::default()
    };
    let mut point = PointSummary {
        degradation: vec![fault],
        ..PointSummary::default()
    };
    assert!(costs(&point)[1].contains("no baseline"));
    point.sticky = Some(StickyCost {
        faults: vec!["far".into()],
        normal: "normal reads".into(),
        rounds: 2,
        baseline: each(&[1000.0, 2000.0]),
        drop: each(&[0.5, 0.5]),
        lost_requests_per_second: each(&[500.0, 1000.0]),
        response_mean_factor: each(&[2.0, 2.0]),
        response_p99_factor: each(&[3.0, 3.0]),
        failed_share_before: each(&[0.0, 0.0]),
        failed_share: each(&[0.01, 0.01]),
    });
    let expected = [
        "  fault far, against normal reads, 2 rounds:",
        "    50.0% ± 0.0 of the rate lost",
        "    response: mean x 2.00 ± 0.00, p99 x 3.00 ± 0.00",
        "    1.00% of requests failed, 0.00% without the fault",
    ];
    assert_eq!(costs(&point), expected);
}

/// The table has a column for each chosen percentile, filled in for points and for kinds of operations.
#[test]
fn chosen_percentiles_are_columns() {
    use brunt_core::Nanos;
    use brunt_result::percentile::Percentile;
    use brunt_result::{Figures, OpKind, Outcome, Stopped};
    let mut figures = Figures::of_kinds(&[OpKind::Read, OpKind::Write]);
    for slot in 0..2 {
        let of = figures.at(slot);
        of.completed = 1000;
        (1..=1000).for_each(|us| of.response.record(Nanos(us * 1000)));
    }
    let outcome = Outcome {
        figures,
        stopped: Stopped::Done,
        ..Outcome::interrupted()
    };
    let chosen: Vec<Percentile> = ["p25", "p95", "p99.99"]
        .map(|name| Percentile::named(name).unwrap())
        .to_vec();
    let mut run = RunSummary::of(&outcome, 0, 0, 1, None);
    run.keep_percentiles(&chosen, &outcome.figures);
    let response = outcome.figures.response();
    let point = PointSummary {
        label: "disk".into(),
        requests_per_second: Estimate::of(&[1.0]),
        response_percentiles_us: Percentile::of_each(&chosen, &response),
        response: run.response,
        runs: vec![run],
        ..PointSummary::default()
    };
    let mut summary = Summary {
        points: vec![point],
        ..empty()
    };
    let words = |lines: &[String], at: usize| -> Vec<String> {
        lines[at].split_whitespace().map(String::from).collect()
    };
    let usual = table(&summary);
    assert!(
        words(&usual, 1)
            .join(" ")
            .ends_with("mean p50 p99 ± p99.9 max")
    );
    summary.experiment.percentiles = chosen;
    let lines = table(&summary);
    let head = "requests/s ± MB/s mean p25 p95 p99.99 max";
    assert_eq!(words(&lines, 1).join(" "), head);
    assert!(
        lines[2].ends_with("250us  950us      - 1.00ms"),
        "{lines:#?}"
    );
    assert!(
        lines[3].contains("read") && lines[3].ends_with("250us  950us      - 1.00ms"),
        "{lines:#?}"
    );
}

/// The waits before a phase are in one line, which also says whose condition was not met.
#[test]
fn waits_are_below_the_table() {
    use brunt_result::phase_wait::{PhaseWait, WaitOutcome};
    let wait = |phase: &str, repetition, waited_s, outcome| PhaseWait {
        phase: phase.into(),
        repetition,
        command: "./healthy.sh".into(),
        waited_s,
        outcome,
    };
    let summary = Summary {
        waits: vec![
            wait("fill", 0, 0.04, WaitOutcome::Met),
            wait("measure", 0, 1.5, WaitOutcome::Met),
            wait("measure", 1, 60.0, WaitOutcome::TimedOut),
        ],
        ..empty()
    };
    let lines = table(&summary);
    for line in [
        "phase fill: 1 wait for ./healthy.sh, 0.0 s in total, longest 0.0 s",
        "phase measure: 2 waits for ./healthy.sh, 61.5 s in total, longest 60.0 s; repetition 1: timed out",
    ] {
        assert!(lines.iter().any(|of| of == line), "{lines:#?}");
    }
    let has_none = |line: &String| !line.contains("wait");
    assert!(table(&empty()).iter().all(has_none));
}

/// The waits for a service to become healthy are in one line.
#[test]
fn waits_for_health_are_below_the_table() {
    let run = |waited_s| RunSummary {
        health_waits_s: BTreeMap::from([("volume".to_string(), waited_s)]),
        ..RunSummary::of(&brunt_result::Outcome::interrupted(), 0, 0, 1, None)
    };
    let point = PointSummary {
        runs: vec![run(0.5), run(12.25)],
        ..PointSummary::default()
    };
    let summary = Summary {
        points: vec![point],
        ..empty()
    };
    let line =
        "service volume: 2 runs waited until it was healthy, 12.8 s in total, longest 12.2 s";
    let lines = table(&summary);
    assert!(lines.iter().any(|of| of == line), "{lines:#?}");
}

/// The summary of a complete experiment without points.
fn empty() -> Summary {
    Summary {
        format: brunt_result::summary::FORMAT,
        brunt: String::new(),
        complete: true,
        trouble: None,
        experiment: brunt_result::experiment::ExperimentSummary::default(),
        points: Vec::new(),
        indexes: None,
        requirements: Vec::new(),
        interleaved: None,
        waits: Vec::new(),
        label: None,
    }
}

/// Too few runs for a comparison are reported, with the setting and a sufficient value.
#[test]
fn too_few_runs_are_reported() {
    let mut summary = Summary {
        format: brunt_result::summary::FORMAT,
        brunt: String::new(),
        complete: true,
        trouble: None,
        experiment: brunt_result::experiment::ExperimentSummary::default(),
        points: Vec::new(),
        indexes: None,
        requirements: Vec::new(),
        interleaved: None,
        waits: Vec::new(),
        label: None,
    };
    summary.experiment.repetitions = 1;
    let said = table(&summary).join("\n");
    assert!(
        said.contains("one run a point") && said.contains("repetitions = 4"),
        "{said}"
    );
    summary.experiment.repetitions = 4;
    assert!(!table(&summary).join("\n").contains("repetitions"));
}

/// A point with faults starts with its phases, each in a separate row; the average over all of them comes last.
#[test]
fn a_point_with_faults_starts_with_its_phases() {
    use brunt_result::degradation::PhaseKind;
    use brunt_result::{Figures, OpKind, Outcome, Stopped};
    let estimate = |mean: f64| {
        Some(Estimate {
            mean,
            low: Some(mean),
            high: Some(mean),
            runs: 4,
        })
    };
    let phase = |kind, fault: &str, rate| PhaseOverRuns {
        kind,
        faults: if fault.is_empty() {
            Vec::new()
        } else {
            vec![fault.into()]
        },
        requests_per_second: estimate(rate),
        ..PhaseOverRuns::default()
    };
    let long = "a delay of the wide-area network";
    let mut figures = Figures::of_kinds(&[OpKind::Read, OpKind::Write]);
    (0..2).for_each(|slot| figures.at(slot).completed = 10);
    let outcome = Outcome {
        figures,
        stopped: Stopped::Done,
        ..Outcome::interrupted()
    };
    let point = PointSummary {
        label: "disk".into(),
        requests_per_second: estimate(1555.0),
        phases: vec![
            phase(PhaseKind::Before, "", 2001.0),
            PhaseOverRuns {
                response_max_us: Some(998_000.0),
                waiting_requests: Some(8),
                waiting_oldest_us: Some(998_000.0),
                ..phase(PhaseKind::During, long, 111.0)
            },
            phase(PhaseKind::After, "", 2002.0),
        ],
        runs: vec![RunSummary::of(&outcome, 0, 0, 1, None)],
        ..PointSummary::default()
    };
    let summary = Summary {
        format: brunt_result::summary::FORMAT,
        brunt: String::new(),
        complete: true,
        trouble: None,
        experiment: brunt_result::experiment::ExperimentSummary::default(),
        points: vec![point],
        indexes: None,
        requirements: Vec::new(),
        interleaved: None,
        waits: Vec::new(),
        label: None,
    };
    let lines = table(&summary);
    let place = |part: &str| {
        let found = lines.iter().position(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("{part} in {lines:#?}"))
    };
    let order = [
        "disk",
        "before ",
        "during a delay",
        "111",
        "8 requests without an answer at its end, the oldest for 998ms",
        "after ",
        "whole run ",
    ]
    .map(place);
    assert!(
        order.is_sorted() && lines[place("whole run ")].contains("1555"),
        "{lines:#?}"
    );
    // Only the row of the stall's phase has the stall as its maximum; the other line with 998 ms is about unanswered
    // requests.
    assert!(lines[place("111")].ends_with("998ms"), "{lines:#?}");
    assert_eq!(
        lines.iter().filter(|line| line.contains("998ms")).count(),
        2
    );
    // Kinds of operations are indented below the whole run, as parts of it.
    assert!(
        lines[place("whole run ")].starts_with("  whole")
            && lines[place("read ")].starts_with("    read")
    );
    assert!(place("read ") > place("whole run "));
    assert!(lines[place("before ")].contains("2001") && lines[place("after ")].contains("2002"));
}

/// The machine's noise in runs of simultaneous jobs is reported once for the group, not again for each job.
#[test]
fn noise_is_reported_once() {
    use brunt_result::noise::MachineNoise;
    use brunt_result::{Outcome, Stopped};
    let noisy = |others_cpus| {
        let outcome = Outcome {
            stopped: Stopped::Done,
            ..Outcome::interrupted()
        };
        let noise = MachineNoise {
            others_cpus: Some(others_cpus),
            samples: 40,
            ..MachineNoise::default()
        };
        RunSummary {
            noise: Some(noise),
            ..RunSummary::of(&outcome, 0, 0, 1, None)
        }
    };
    let all = PointSummary {
        runs: vec![noisy(0.5), noisy(1.5)],
        ..PointSummary::default()
    };
    let said = |point: &PointSummary| costs(point).iter().any(|line| line.contains("machine: "));
    assert!(said(&all));
    assert!(!said(&PointSummary {
        part_of: Some("all".into()),
        ..all
    }));
}

/// The cost of a fault fits a terminal in all cases, and says what is known and what isn't.
#[test]
fn the_cost_of_a_fault_fits_a_terminal() {
    // Long because it is one list of cases, best read in one place.
    let estimate = |mean: f64| {
        Some(Estimate {
            mean,
            low: Some(mean / 2.0),
            high: Some(mean * 1.5),
            runs: 4,
        })
    };
    let response = ResponseOverRuns {
        baseline_us: estimate(1e6),
        factor: estimate(12_345.6),
        detected_s: estimate(0.1),
        recovered_s: estimate(123.4),
        not_recovered: 3,
        ..ResponseOverRuns::default()
    };
    let all = OverRuns {
        fault: "x".repeat(100),
        runs: 4,
        drop: estimate(0.999),
        lost_requests: estimate(123_456_789.0),
        not_detected: 4,
        not_recovered: 4,
        response_mean: response.clone(),
        response_p99: response,
        excess_wait_s: estimate(123_456.7),
        failed_share_before: estimate(0.0),
        failed_share: estimate(0.5),
        ..OverRuns::default()
    };
    let lines = cost(&all);
    assert!(
        lines.iter().all(|line| line.chars().count() <= WIDTH),
        "{lines:#?}"
    );
    let said = lines.join("\n");
    for part in [
        "99.9% ± 49.9 of the rate lost",
        "not seen, not back",
        "x 12346 ± 6173",
        "50.00% of requests failed",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let of_one = |mean: f64| {
        Some(Estimate {
            mean,
            low: None,
            high: None,
            runs: 1,
        })
    };
    let alone = OverRuns {
        drop: of_one(0.999),
        response_mean: ResponseOverRuns {
            factor: of_one(12_345.6),
            ..all.response_mean.clone()
        },
        ..all.clone()
    };
    let said = cost(&alone).join("\n");
    assert!(
        said.contains("99.9% of the rate lost") && said.contains("mean x 12346, p99"),
        "{said}"
    );
    // Noise is reported as such, with a remedy, and not as a cost of zero.
    let noisy = cost(&OverRuns {
        detected_s: None,
        not_detected: 0,
        detection_inconclusive: 4,
        recovered_s: estimate(0.5),
        not_recovered: 1,
        recovery_inconclusive: 3,
        noticeable_drop: Some(0.9),
        drop: estimate(0.2),
        ..all.clone()
    });
    assert!(
        noisy.iter().all(|line| line.chars().count() <= WIDTH),
        "{noisy:#?}"
    );
    let said = noisy.join("\n");
    for part in [
        "seen: inconclusive, back after 0.50 s (not in 1 run, inconclusive in 3)",
        "noise hides drops under 90%",
        "about 22 times as many intervals",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let quiet = cost(&OverRuns {
        failed_share: estimate(0.0),
        response_mean: ResponseOverRuns::default(),
        ..all
    });
    assert!(
        quiet
            .iter()
            .all(|line| !line.contains("failed") && !line.contains("response")),
        "{quiet:#?}"
    );
}
