use super::*;
use crate::choice::RingMode;

/// Operations of one kind, 4 KiB each, that all took this long.
pub(crate) fn op(op: OpKind, completed: u64, us: f64) -> OpSummary {
    let same = Latencies {
        min_us: us,
        mean_us: us,
        p50_us: us,
        p90_us: us,
        p99_us: us,
        p99_9_us: us,
        p99_99_us: us,
        max_us: us,
    };
    let times = (completed > 0).then_some(same);
    let bytes = completed * 4096;
    let (late, late_bytes, retries, timeouts) = Default::default();
    OpSummary {
        op,
        completed,
        bytes,
        late,
        late_bytes,
        retries,
        timeouts,
        response: times,
        response_percentiles_us: PercentilesUs::new(),
        service: times,
    }
}

/// A complete run of two seconds.
pub(crate) fn run(ops: Vec<OpSummary>) -> RunSummary {
    let completed: u64 = ops.iter().map(|op| op.completed).sum();
    let bytes: u64 = ops
        .iter()
        .filter(|op| op.op.moves_bytes())
        .map(|op| op.bytes)
        .sum();
    RunSummary {
        repetition: 0,
        order: 0,
        seed: 1,
        stopped: Stopped::Done,
        measured_s: 2.0,
        requests_per_second: completed as f64 / 2.0,
        bytes_per_second: bytes as f64 / 2.0,
        steady: None,
        rate_found: None,
        trial: 0,
        response: ops.first().and_then(|op| op.response),
        response_percentiles_us: PercentilesUs::new(),
        service: None,
        ops,
        losses: BTreeMap::new(),
        first_error: None,
        causes: Vec::new(),
        verified: None,
        engine: None,
        page_cache: None,
        replay: None,
        cost_per_request: CostPerRequest {
            cpu_ns: Some(0.0),
            polling_ns: None,
            system_calls: 0.0,
            context_switches: 0.0,
        },
        probes: None,
        noise: None,
        profile: None,
        links: BTreeMap::new(),
        link_proofs: BTreeMap::new(),
        health_waits_s: BTreeMap::new(),
        transfer: None,
        recording_wait_s: 0.0,
        doubts: Vec::new(),
        troubles: Vec::new(),
        hosts: Vec::new(),
        common: None,
        faults: Vec::new(),
        phases: Vec::new(),
    }
}

/// A complete experiment without points.
pub(crate) fn empty() -> Summary {
    Summary {
        format: FORMAT,
        brunt: "0.1.0".into(),
        complete: true,
        trouble: None,
        experiment: ExperimentSummary::default(),
        points: Vec::new(),
        indexes: None,
        requirements: Vec::new(),
        interleaved: None,
        waits: Vec::new(),
        label: None,
    }
}

/// A point with these runs and no figures over them.
pub(crate) fn point(label: &str, runs: Vec<RunSummary>) -> PointSummary {
    PointSummary {
        label: label.into(),
        target: "disk".into(),
        workload: "w".into(),
        part_of: None,
        axes: BTreeMap::new(),
        notes: Vec::new(),
        engine: None,
        ring: RingChoice::stated(RingMode::default()),
        depth: None,
        requests_per_second: None,
        bytes_per_second: None,
        response_mean_us: None,
        response_p99_us: None,
        response: None,
        response_percentiles_us: PercentilesUs::new(),
        service: None,
        line_bits_per_second: BTreeMap::new(),
        precision: None,
        degradation: Vec::new(),
        recurring: Vec::new(),
        normal: None,
        sticky: None,
        phases: Vec::new(),
        performability: None,
        transfer: None,
        runs,
    }
}

/// The rates of the kinds add up to the total, without requests completed after the end.
#[test]
fn kinds_add_up() {
    let late = |op: OpSummary| OpSummary {
        late: 32,
        late_bytes: 32 * 4096,
        ..op
    };
    let ops = [
        op(OpKind::Read, 832, 1.0),
        op(OpKind::Write, 232, 1.0),
        op(OpKind::Unmap, 132, 1.0),
    ];
    // 800, 200 and 100 in two seconds.
    let rates = (550.0, 500.0 * 4096.0);
    let run = RunSummary {
        requests_per_second: rates.0,
        bytes_per_second: rates.1,
        ..run(ops.map(late).to_vec())
    };
    let each: Vec<f64> = run
        .ops
        .iter()
        .map(|op| run.requests_per_second_of(op))
        .collect();
    assert_eq!(each, [400.0, 100.0, 50.0]);
    let bytes: Vec<f64> = run
        .ops
        .iter()
        .map(|op| run.bytes_per_second_of(op))
        .collect();
    assert_eq!(bytes, [400.0 * 4096.0, 100.0 * 4096.0, 0.0]);
    assert_eq!(part(1.0, 0, 0), 0.0);
}

/// A log with a flush after each write: the rate is that of the writes; flushes have the same rate.
#[test]
fn flushes_are_no_part_of_the_total() {
    let rates = |ops: Vec<OpSummary>| {
        let run = RunSummary {
            requests_per_second: 100.0,
            ..run(ops)
        };
        let rate = |op| run.requests_per_second_of(op);
        run.ops.iter().map(rate).collect::<Vec<f64>>()
    };
    let (write, flush) = (op(OpKind::Write, 200, 1.0), op(OpKind::Flush, 200, 1.0));
    let reads = op(OpKind::Read, 0, 1.0);
    assert_eq!(
        rates(vec![reads, write, flush.clone()]),
        [0.0, 100.0, 100.0]
    );
    assert_eq!(rates(vec![flush]), [100.0]);
}

#[test]
fn another_format_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let put = |text: &str| std::fs::write(folder.path().join(FILE_NAME), text).unwrap();
    let read = || Summary::read(folder.path()).unwrap_err();
    assert!(matches!(read().kind, SummaryMistake::Io(_)));
    put(r#"{ "format": 1, "brunt": "0.0.9", "complete": true, "points": [] }"#);
    let error = read();
    assert!(
        matches!(error.kind, SummaryMistake::Format { found: 1, .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("format 1") && error.advice().contains("Brunt 0.0.9"),
        "{error}"
    );
    put(r#"{ "format": 2, "brunt": "0.1.0" }"#);
    assert!(matches!(read().kind, SummaryMistake::Json(_)));
    put("nonsense");
    assert!(read().to_string().contains("summary.json: not a summary"));
}
