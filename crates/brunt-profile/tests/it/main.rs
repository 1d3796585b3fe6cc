//! Profiles a program that spends a known time in a known function.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brunt_core::{Clock, Nanos, ResourceUsage};
use brunt_profile::{PhaseSpan, ProfileSettings, ProfiledProcess, Profiler, availability};
use brunt_result::profile::{PhaseProfile, RunProfile};

/// Makes this program spin instead of testing.
const SPIN: &str = "BRUNT_PROFILE_SPIN";
/// CPU time to spin.
const SPUN: Duration = Duration::from_millis(1500);

/// The known function: about a millisecond of work without calls.
#[inline(never)]
fn spin_in_a_known_function(seed: u64) -> u64 {
    let (mut number, mut round) = (seed | 1, 0);
    while round < 300_000 {
        number ^= number << 13;
        number ^= number >> 7;
        round += 1;
    }
    number
}

/// In a child process: spins, reports its CPU time in microseconds, and waits for its input to end.
#[test]
fn spins_if_asked() {
    if std::env::var_os(SPIN).is_none() {
        return;
    }
    while ResourceUsage::now().user < SPUN {
        black_box(spin_in_a_known_function(black_box(7)));
    }
    let usage = ResourceUsage::now();
    println!(
        "spun {} {}",
        usage.user.as_micros(),
        usage.system.as_micros()
    );
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Runs the child until it has spun; returns the CPU time that it reports, user and system, in seconds.
fn spun() -> (Child, [f64; 2]) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "spins_if_asked", "--nocapture"])
        .env(SPIN, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut reported = lines.map_while(Result::ok).filter_map(|line| {
        let (_, figures) = line.split_once("spun ")?;
        let (user, system) = figures.split_once(' ')?;
        let seconds = |text: &str| text.parse::<f64>().unwrap() / 1e6;
        Some([seconds(user), seconds(system)])
    });
    let usage = reported.next().expect("the child reports its time");
    (child, usage)
}

/// Profiles the child as a target; also returns the CPU time that the child reports.
fn profiled() -> (RunProfile, [f64; 2]) {
    let pids: Arc<Mutex<Vec<u32>>> = Arc::default();
    let found = Arc::clone(&pids);
    let subjects = move || {
        let pids = found.lock().unwrap();
        let subject = |pid: &u32| ProfiledProcess {
            role: "target".into(),
            pid: *pid,
        };
        pids.iter().map(subject).collect()
    };
    let start = Clock::Monotonic.now();
    let profiler = Profiler::start(ProfileSettings::default(), subjects).unwrap();
    let (mut child, usage) = spun();
    pids.lock().unwrap().push(child.id());
    let recording = profiler.stop();
    let end_s = Clock::Monotonic.now().since(start).as_secs_f64();
    let whole = PhaseSpan {
        kind: None,
        faults: Vec::new(),
        start_s: 0.0,
        end_s,
    };
    let profile = recording.profile(start, &[whole]);
    drop(child.stdin.take());
    child.wait().unwrap();
    (profile, usage)
}

fn can_sample() -> bool {
    let why = availability(ProfileSettings::default()).unwrap();
    let Some(why) = why else { return true };
    assert!(std::env::var_os("BRUNT_REQUIRE_ALL").is_none(), "{why}");
    println!("skipped: needs permission for perf events ({why})");
    false
}

/// A program that only spins is found spinning: by function, stack and time.
#[test]
fn a_spinning_program_is_found_in_its_function() {
    let (profile, [user, system]) = profiled();
    let [phase] = &profile.phases[..] else {
        panic!("{profile:?}")
    };
    let role = phase
        .roles
        .iter()
        .find(|role| role.role == "target")
        .unwrap();
    // The kernel reports times in ticks of 10 ms, and the child starts and ends without spinning.
    let close = |found: Option<f64>, own: f64| (found.unwrap() - own).abs() < 0.03 + own * 0.03;
    assert!(
        close(role.user_s, user) && close(role.system_s, system),
        "{role:?} {user} {system}"
    );
    let machine = phase.machine.unwrap();
    assert!(machine.user_s > user * 0.9, "{machine:?}");
    if !can_sample() {
        assert!(profile.unavailable.is_some() && role.samples == 0);
        return;
    }
    assert_eq!(profile.unavailable, None);
    let hot = &role.hottest[0];
    assert!(
        hot.function.ends_with("spin_in_a_known_function"),
        "{role:?}"
    );
    let expected = (user + system) * f64::from(profile.hz);
    let lost = (profile.lost + profile.dropped) as f64;
    assert!(
        (role.samples as f64 + lost - expected).abs() < expected * 0.1,
        "{expected} {role:?}"
    );
    assert!(hot.samples as f64 > role.samples as f64 * 0.95, "{role:?}");
    assert!(
        profile.stacks.iter().any(
            |stack| stack.role == "target" && stack.stack.ends_with("spin_in_a_known_function")
        )
    );
}

/// Each sample counts for the phase it was taken in.
#[test]
fn phases_divide_samples() {
    let (start, subjects) = (Clock::Monotonic.now(), Vec::<ProfiledProcess>::new);
    let profiler = Profiler::start(ProfileSettings { hz: 997 }, subjects).unwrap();
    while ResourceUsage::now().user < Duration::from_millis(300) {
        black_box(spin_in_a_known_function(7));
    }
    let recording = profiler.stop();
    let end_s = Clock::Monotonic.now().since(start).as_secs_f64();
    let samples = |phases: &[PhaseProfile]| -> Vec<u64> {
        let of = |phase: &PhaseProfile| phase.roles.iter().map(|role| role.samples).sum();
        phases.iter().map(of).collect()
    };
    let span = |start_s, end_s| PhaseSpan {
        kind: None,
        faults: Vec::new(),
        start_s,
        end_s,
    };
    let whole = samples(&recording.profile(start, &[span(0.0, end_s)]).phases);
    let parts = [span(0.0, end_s / 2.0), span(end_s / 2.0, end_s)];
    let halves = samples(&recording.profile(start, &parts).phases);
    assert_eq!(whole[0], halves.iter().sum::<u64>());
    let later = recording.profile(Nanos(start.0 + 3_600_000_000_000), &parts);
    assert_eq!(samples(&later.phases), [0, 0]);
    assert!(later.stacks.is_empty());
    if can_sample() {
        assert!(whole[0] > 0);
    }
}
