use super::*;

fn component(name: &str, faults: &[&str], mttf_s: f64, mttr_s: f64) -> FailingComponent {
    FailingComponent {
        name: name.into(),
        faults: faults.iter().map(|fault| fault.to_string()).collect(),
        units: faults.len() as u32,
        mttf_s,
        mttr_s,
        repairs_at_once: faults.len() as u32,
    }
}

fn system(components: Vec<FailingComponent>, threshold: Option<&str>) -> FailingSystem {
    FailingSystem {
        components,
        threshold: threshold.map(|text| text.parse().expect("a threshold")),
    }
}

/// A phase of a second under these faults; without faults, it is the phase before all faults.
fn phase(faults: &[&str], requests_per_second: f64, mean_us: Option<f64>) -> PhaseFigures {
    PhaseFigures {
        kind: match faults.is_empty() {
            true => PhaseKind::Before,
            false => PhaseKind::During,
        },
        faults: faults.iter().map(|fault| fault.to_string()).collect(),
        start_s: 1.0,
        end_s: 2.0,
        intervals: 10,
        requests_per_second,
        bytes_per_second: requests_per_second * 4096.0,
        response_mean_us: mean_us,
        response_p99_us: mean_us.map(|mean| mean * 3.0),
        ..PhaseFigures::default()
    }
}

fn of(system: &FailingSystem, runs: &[Vec<PhaseFigures>]) -> Performability {
    let runs: Vec<&[PhaseFigures]> = runs.iter().map(Vec::as_slice).collect();
    Performability::of(system, &runs)
}

fn close(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() < 1e-9 * expected.abs(),
        "{found} is not {expected}"
    );
}

/// One component that works for 9 hours of 10: figures of each run are weighted 9 to 1, and the interval is that of
/// Student's t over the runs.
#[test]
fn one_component_by_hand() {
    let wire = system(
        vec![component("wire", &["slow"], 9.0, 1.0)],
        Some("iops above 500"),
    );
    let run = |normal: f64, slow: f64| {
        let after = PhaseFigures {
            kind: PhaseKind::After,
            ..phase(&[], 7.0, Some(1.0))
        };
        vec![
            phase(&[], normal, Some(100.0)),
            phase(&["slow"], slow, Some(900.0)),
            after,
        ]
    };
    let found = of(
        &wire,
        &[run(1000.0, 100.0), run(1100.0, 200.0), run(1200.0, 300.0)],
    );
    // 0.9 * 1000 + 0.1 * 100, and so on.
    for (found, expected) in found.by_run.iter().zip([910.0, 1010.0, 1110.0]) {
        close(*found, expected);
    }
    let rate = found.requests_per_second.expect("measured");
    close(rate.mean, 1010.0);
    // t(0.975, 2) = 4.302653, deviation 100, three runs.
    let half = 4.302_652_729_749_462 * 100.0 / 3f64.sqrt();
    assert!((rate.high.unwrap() - 1010.0 - half).abs() < 1e-6);
    close(found.requests_per_second_least.unwrap().mean, 1010.0);
    close(found.bytes_per_second.unwrap().mean, 1010.0 * 4096.0);
    // Requests: 900 of 100 us and 10 of 900 us in the first run.
    let waited = [(900.0, 10.0), (990.0, 20.0), (1080.0, 30.0)]
        .map(|(normal, slow)| (normal * 100.0 + slow * 900.0) / (normal + slow));
    close(
        found.response_mean_us.unwrap().mean,
        waited.iter().sum::<f64>() / 3.0,
    );
    let names: Vec<String> = found.states.iter().map(SystemState::name).collect();
    assert_eq!(names, ["normal", "slow"]);
    let slow = found.states[1].measured.as_ref().expect("measured");
    close(slow.requests_per_second.mean, 200.0);
    close(slow.response_p99_us.unwrap().mean, 2700.0);
    let verdicts: Vec<_> = found
        .states
        .iter()
        .filter_map(|state| state.service)
        .collect();
    assert_eq!(
        verdicts,
        [RequirementVerdict::Met, RequirementVerdict::Missed]
    );
    let available = found.available.expect("a threshold");
    close(available.at_least, 0.9);
    assert_eq!(available.at_least, available.at_most);
    assert_eq!((found.not_measured, found.runs_left_out), (0.0, 0));
}

/// A state that no run shows keeps its probability, and neither lowers the expectation nor counts as available.
#[test]
fn what_was_not_measured_is_reported() {
    let parts = vec![
        component("a", &["a"], 8.0, 2.0),
        component("b", &["b"], 9.0, 1.0),
    ];
    let both = system(parts, Some("iops above 10"));
    let run = |rate: f64| {
        let mixed = PhaseFigures {
            intervals: 0,
            ..phase(&["b", "a"], 1.0, None)
        };
        vec![
            phase(&[], rate, None),
            phase(&["a"], rate / 2.0, None),
            mixed,
        ]
    };
    let found = of(&both, &[run(100.0), run(100.0)]);
    let of_state = |name: &str| {
        found
            .states
            .iter()
            .find(|state| state.name() == name)
            .unwrap()
    };
    close(of_state("normal").probability, 0.72);
    close(of_state("a").probability, 0.18);
    close(of_state("b").probability, 0.08);
    close(of_state("a and b").probability, 0.02);
    assert!(of_state("b").measured.is_none() && of_state("a and b").measured.is_none());
    assert_eq!(of_state("b").service, None);
    close(found.not_measured, 0.1);
    close(found.requests_per_second.unwrap().mean, (72.0 + 9.0) / 0.9);
    close(found.requests_per_second_least.unwrap().mean, 81.0);
    assert_eq!(found.response_mean_us, None);
    let available = found.available.unwrap();
    close(available.at_least, 0.9);
    close(available.at_most, 1.0);
    assert_eq!(available.describe(), "90.0% to 100%");

    let nothing = of(&both, &[vec![phase(&["c"], 1.0, None)]]);
    close(nothing.not_measured, 1.0);
    assert_eq!(
        (nothing.requests_per_second, nothing.by_run),
        (None, Vec::new())
    );
}

/// A run that lacks a state would weigh the others differently, so it doesn't count.
#[test]
fn a_run_without_one_of_the_states_is_left_out() {
    let wire = system(vec![component("wire", &["slow"], 3.0, 1.0)], None);
    let whole = vec![phase(&[], 100.0, None), phase(&["slow"], 20.0, None)];
    let found = of(&wire, &[whole, vec![phase(&[], 5000.0, None)]]);
    assert_eq!(found.by_run, [80.0]);
    assert_eq!((found.runs_left_out, found.available), (1, None));
    let normal = found.states[0].measured.as_ref().unwrap();
    assert_eq!(normal.requests_per_second.mean, 100.0);
}

/// Two disks of a mirror: the second failure stops it, which is a state with a rate of zero; a third failure is
/// impossible.
#[test]
fn a_mirror_stops_with_its_second_disk() {
    let mirror = component("disks", &["first", "second"], 99.0, 1.0);
    let mirror = system(vec![mirror], Some("iops above 50"));
    let run = vec![
        phase(&[], 100.0, Some(10.0)),
        phase(&["first"], 80.0, Some(20.0)),
        phase(&["first", "second"], 0.0, None),
    ];
    let found = of(&mirror, &[run.clone(), run]);
    let normal = 0.99 * 0.99;
    let degraded = 2.0 * 0.99 * 0.01;
    close(
        found.requests_per_second.unwrap().mean,
        normal * 100.0 + degraded * 80.0,
    );
    close(found.available.unwrap().at_least, normal + degraded);
    let requests = [normal * 100.0, degraded * 80.0];
    let waited = requests[0] * 10.0 + requests[1] * 20.0;
    close(
        found.response_mean_us.unwrap().mean,
        waited / (requests[0] + requests[1]),
    );
}

/// If a state's interval contains the bound, the state may or may not have the service; a single run can't decide it.
#[test]
fn noisy_states_are_undecided() {
    let wire = system(
        vec![component("wire", &["slow"], 3.0, 1.0)],
        Some("iops above 90"),
    );
    let run = |slow: f64| vec![phase(&[], 1000.0, None), phase(&["slow"], slow, None)];
    let check = |runs: &[Vec<PhaseFigures>], least: f64, most: f64| {
        let available = of(&wire, runs).available.unwrap();
        let error = (available.at_least - least).abs() + (available.at_most - most).abs();
        assert!(error < 1e-12, "{available:?}");
    };
    check(&[run(80.0), run(120.0)], 0.75, 1.0);
    check(&[run(100.0), run(100.1), run(100.2)], 1.0, 1.0);
    check(&[run(80.0), run(80.1), run(80.2)], 0.75, 0.75);
    check(&[run(100.0)], 0.0, 1.0);
}

/// A fault that occurs several times in a run contributes a single state, weighted by duration and by the number of
/// requests served.
#[test]
fn occurrences_count_as_one_state() {
    let wire = system(vec![component("wire", &["slow"], 1.0, 1.0)], None);
    let longer = PhaseFigures {
        start_s: 3.0,
        end_s: 6.0,
        ..phase(&["slow"], 20.0, Some(100.0))
    };
    let run = vec![
        phase(&[], 100.0, Some(1.0)),
        phase(&["slow"], 40.0, Some(50.0)),
        longer,
    ];
    let found = of(&wire, &[run]);
    let slow = found
        .states
        .iter()
        .find(|state| !state.faults.is_empty())
        .unwrap();
    let slow = slow.measured.as_ref().unwrap();
    close(slow.requests_per_second.mean, (40.0 + 3.0 * 20.0) / 4.0);
    close(
        slow.response_mean_us.unwrap().mean,
        (40.0 * 50.0 + 60.0 * 100.0) / 100.0,
    );
    assert_eq!(slow.response_p99_us, None);
}

#[test]
fn thresholds_are_figures_that_phases_have() {
    for text in [
        "iops above 5000",
        "bandwidth above 10MB/s",
        "mean below 2ms",
        "p99 below 5ms",
    ] {
        let level: ServiceLevel = text.parse().expect(text);
        assert_eq!(level.to_string(), text);
        let json = serde_json::to_string(&level).unwrap();
        assert_eq!(serde_json::from_str::<ServiceLevel>(&json).unwrap(), level);
    }
    for text in [
        "p99.9 below 5ms",
        "write p99 below 5ms",
        "read iops above 5",
    ] {
        let error = text.parse::<ServiceLevel>().unwrap_err();
        assert!(
            matches!(error, RequirementError::FigureOfPhase(_)),
            "{error}"
        );
    }
    assert_eq!("fast".parse::<ServiceLevel>(), Err(RequirementError::Form));
}

#[test]
fn shares_of_time_keep_their_nines() {
    let check = |share: f64, percent: &str, year: &str| {
        assert_eq!(
            (share_in_words(share).as_str(), part_of_year(share).as_str()),
            (percent, year)
        );
    };
    check(1.0, "100%", "365 d");
    check(0.994_476, "99.448%", "363 d");
    check(0.005_524, "0.552%", "2.02 d");
    check(0.999_954, "99.99540%", "365 d");
    check(4.6e-5, "0.00460%", "24.2 min");
    check(0.5, "50.0%", "183 d");
    check(2e-7, "0.0000200%", "6.31 s");
    check(1e-13, "<0.000000001%", "<0.01 s");
    check(0.0, "0%", "0 s");
}
