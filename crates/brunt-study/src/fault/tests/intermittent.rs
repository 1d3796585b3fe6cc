//! Faults that occur several times in a run, from the experiment's text to the summary.

use super::{again, load, run};
use crate::experiment::Experiment;
use crate::fault::FaultEntry;

/// An experiment whose runs last ten seconds, with this seed, and with these keys for its only fault.
fn text(seed: u64, keys: &str) -> String {
    format!(
        "name = \"x\"\nseed = {seed}\n[targets.disk]\nurl = \"memory:1MiB\"\n[workloads.load]\n\
         stop = {{ time = \"10s\" }}\n[[fault]]\nname = \"slow\"\ntarget = \"disk\"\nstorage = \"slow:1ms\"\n{keys}\n"
    )
}

fn parsed(seed: u64, keys: &str) -> Experiment {
    Experiment::parse("x.toml", &text(seed, keys))
        .unwrap_or_else(|error| panic!("{keys}: {} {:?}", error.one_line(), error.help_text()))
}

fn times(experiment: &Experiment) -> Vec<String> {
    let time = |fault: &FaultEntry| {
        let (at, lasts) = (fault.common.at.unwrap(), fault.common.lasts.unwrap());
        format!("{at}+{lasts}")
    };
    experiment.fault.iter().map(time).collect()
}

#[test]
fn a_file_has_one_fault_and_the_experiment_each_occurrence() {
    let check = |keys: &str, expected: &[&str]| {
        let experiment = parsed(1, keys);
        assert_eq!(times(&experiment), expected, "{keys}");
        let labels: Vec<String> = experiment.fault.iter().map(FaultEntry::label).collect();
        assert_eq!(labels[0], format!("slow (1 of {})", expected.len()));
        // Written out, the experiment has a single fault again, with the same occurrences.
        let written = experiment.written_out();
        assert_eq!(written.matches("[[fault]]").count(), 1, "{written}");
        let again = Experiment::parse("x.toml", &written).unwrap();
        assert_eq!(again.fault, experiment.fault, "{written}");
    };
    check("at = [\"2s\", \"5s\"]\nfor = \"1s\"", &["2s+1s", "5s+1s"]);
    check(
        "at = \"2s\"\nperiod = \"3s\"\nfor = \"1s\"",
        &["2s+1s", "5s+1s", "8s+1s"],
    );
    check(
        "at = \"2s\"\nperiod = \"3s\"\nfor = \"1s\"\ntimes = 2",
        &["2s+1s", "5s+1s"],
    );
}

#[test]
fn random_times_depend_on_the_seed_alone() {
    let keys = "at = \"1s\"\nmtbf = \"2s\"\nmttr = \"200ms\"";
    let first = parsed(1, keys);
    assert_eq!(first.fault, parsed(1, keys).fault);
    assert_ne!(times(&first), times(&parsed(2, keys)));
    let written = first.written_out();
    let again = Experiment::parse("x.toml", &written).unwrap();
    assert_eq!(again.fault, first.fault, "{written}");
    let fixed = parsed(1, "at = \"1s\"\nmtbf = \"2s\"\nfor = \"200ms\"\ntimes = 2");
    assert!(times(&fixed).iter().all(|time| time.ends_with("+200ms")));
    // Two faults with the same keys occur at different times.
    let both = format!(
        "{0}\n[[fault]]\ncpu = 0.1\n{0}",
        "at = \"1s\"\nmtbf = \"2s\"\nfor = \"100ms\""
    );
    let experiment = parsed(1, &both);
    let of = |kind: &str| {
        let faults = experiment
            .fault
            .iter()
            .filter(|fault| fault.kind_name() == kind);
        faults.map(|fault| fault.common.at).collect::<Vec<_>>()
    };
    assert_ne!(of("storage"), of("cpu"));
}

#[test]
fn wrong_keys_are_reported_where_they_are_written() {
    let check = |keys: &str, line: usize, wanted: &str| {
        let error = Experiment::parse("x.toml", &text(1, keys)).expect_err(keys);
        let all = format!(
            "{} {}",
            error.one_line(),
            error.help_text().unwrap_or_default()
        );
        let start = format!("x.toml:{}: ", 10 + line);
        assert!(
            all.starts_with(&start) && all.contains(wanted),
            "{keys}: {all}"
        );
    };
    check("times = 3\nat = \"1s\"", 1, "it needs period or mtbf");
    check("mttr = \"1s\"", 1, "it needs mtbf");
    check(
        "at = \"1s\"\nmtbf = \"2s\"\nperiod = \"2s\"",
        2,
        "either periodic or random",
    );
    check("period = \"2s\"\nfor = \"1s\"", 1, "no first start");
    check("at = [\"1s\"]\nperiod = \"2s\"", 1, "period is set as well");
    check(
        "at = \"1s\"\nperiod = \"2s\"\nmttr = \"1s\"",
        3,
        "only together with mtbf",
    );
    check("at = \"1s\"\nperiod = \"2s\"\nfor = \"2s\"", 2, "no pause");
    check("at = [\"1s\", \"2s\"]", 1, "no duration");
    check("at = [\"1s\", 2]\nfor = \"1s\"", 1, "");
    check(
        "at = \"1s\"\nperiod = \"5s\"\nfor = \"1s\"\ntimes = 3",
        4,
        "ends after 10s",
    );
    check(
        "at = \"9s\"\nmtbf = \"1h\"\nmttr = \"1s\"",
        2,
        "does not occur in a run of 10s",
    );
    // Two intermittent faults that can't be combined overlap in one of their occurrences.
    let member = "at = \"1s\"\nperiod = \"2s\"\nfor = \"1s\"\n[[fault]]\ntarget = \"disk\"\nstorage = \"busy\"\n";
    let both = format!("{member}at = [\"500ms\", \"5500ms\"]\nfor = \"200ms\"");
    check(&both, 6, "cannot be combined with fault 1");
}

/// Each occurrence is injected, proven and removed by itself, after the previous one; costs are computed for each
/// occurrence and for all together.
#[test]
fn each_occurrence_is_proven_and_judged() {
    let (summary, records, slower) = again(|slower| {
        let fault = format!(
            "[[fault]]\ntarget = \"disk\"\nname = \"slow\"\nstorage = \"slow:5ms\"\nat = \"{}ms\"\nperiod = \"{}ms\"\nfor = \"{}ms\"\n",
            400 * slower,
            300 * slower,
            100 * slower
        );
        let url = "memory:16MiB?delay=const:100us";
        let mut ran = run("intermittent", url, &load(slower), &fault, false);
        ran.nothing_is_left();
        let records = std::mem::take(&mut ran.records);
        Ok((ran.summary()?, records, f64::from(slower)))
    });
    assert!(summary.complete, "{:?}", summary.trouble);
    // Two runs with three occurrences, each reported when in effect and when gone.
    assert_eq!(records.len(), 12);
    let point = &summary.points[0];
    for run in &point.runs {
        let names: Vec<&str> = run.faults.iter().map(|fault| fault.name.as_str()).collect();
        assert_eq!(names, ["slow (1 of 3)", "slow (2 of 3)", "slow (3 of 3)"]);
        for (fault, planned) in run.faults.iter().zip([0.4, 0.7, 1.0]) {
            assert!(fault.start_s >= planned * slower, "{fault:?}");
            assert!(fault.shown_by.starts_with("affected ") && fault.gone_s > fault.end_s);
            assert!(fault.cost.is_some());
        }
        for pair in run.faults.windows(2) {
            assert!(Some(pair[1].start_s) >= pair[0].gone_s, "{pair:?}");
        }
    }
    assert_eq!(point.degradation.len(), 3);
    let [total] = point.recurring.as_slice() else {
        panic!("{:?}", point.recurring);
    };
    assert_eq!(
        (total.fault.as_str(), total.occurrences, total.runs),
        ("slow", 3, 2)
    );
    let share = total.time_share.unwrap().mean;
    assert!((0.2..0.5).contains(&share), "{share}");
    // Requests take 5.1 ms instead of 100 us.
    assert!(total.drop.unwrap().mean > 0.5, "{total:?}");
    let table = crate::study::table(&summary).join("\n");
    for wanted in [
        "fault slow, 3 times in a run",
        "of 6 occurrences",
        "occurrence 3: ",
    ] {
        assert!(table.contains(wanted), "{wanted} in {table}");
    }
}
