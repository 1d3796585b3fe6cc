//! Golden texts, malformed texts, and the whole crate against a real kernel.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::Clock;

use super::sampler::Misreadings;
use super::*;
use brunt_result::event::{Sample, SampleValue};

/// Captured texts, by the file names that probes use.
fn golden(file: &str) -> &'static str {
    match file {
        "/proc/stat" => include_str!("../testdata/proc/stat"),
        "/proc/meminfo" => include_str!("../testdata/proc/meminfo"),
        "/proc/vmstat" => include_str!("../testdata/proc/vmstat"),
        "/proc/diskstats" => include_str!("../testdata/proc/diskstats"),
        "/proc/pressure/cpu" => include_str!("../testdata/proc/pressure-cpu"),
        "/proc/pressure/memory" => include_str!("../testdata/proc/pressure-memory"),
        "/proc/pressure/io" => include_str!("../testdata/proc/pressure-io"),
        "/sys/fs/cgroup" => include_str!("../testdata/proc/control-group"),
        "/sys/class/hwmon" => include_str!("../testdata/proc/hwmon"),
        "{net}/dev" => include_str!("../testdata/proc/net-dev"),
        "{net}/snmp" => include_str!("../testdata/proc/net-snmp"),
        "{net}/netstat" => include_str!("../testdata/proc/net-netstat"),
        "{process}/stat" => include_str!("../testdata/proc/process-stat"),
        "{process}/task/*/status" => include_str!("../testdata/proc/process-status"),
        "{process}/task/*/schedstat" => include_str!("../testdata/proc/process-schedstat"),
        "{process}/cgroup" => include_str!("../testdata/proc/process-cgroup-cpu-stat"),
        other => panic!("{other} has no captured text in testdata/proc"),
    }
}

/// The figures between two sets of texts, read two seconds apart.
fn between(entry: &Entry, before: &[String], now: &[String]) -> (Vec<SampleValue>, u64) {
    let (values, resets) = steps(entry, &[(before, 2_000_000), (now, 2_000_000)]);
    (values.into_iter().next_back().unwrap(), resets)
}

/// The figures of several sets of texts, each read this many microseconds after the previous one.
fn steps(entry: &Entry, texts: &[(&[String], u64)]) -> (Vec<Vec<SampleValue>>, u64) {
    let (mut told, mut resets) = (Vec::new(), 0);
    let mut probe = (entry.make)();
    for (texts, micros) in texts {
        let texts: Vec<_> = texts
            .iter()
            .map(|text| Some(Cow::from(text.as_str())))
            .collect();
        let mut values = Vec::new();
        let mut sink = Sink::new(entry.name, "".into(), &mut values, &mut resets);
        probe
            .step(&Texts(&texts), Duration::from_micros(*micros), &mut sink)
            .unwrap();
        told.push(values);
    }
    (told, resets)
}

fn texts(entry: &Entry) -> Vec<String> {
    entry
        .files
        .iter()
        .map(|file| golden(file).to_string())
        .collect()
}

/// A golden text with replacements, each of which must match.
fn changed(file: &str, changes: &[(&str, &str)]) -> String {
    changes
        .iter()
        .fold(golden(file).to_string(), |text, (from, to)| {
            assert!(text.contains(from), "{file} lacks {from}");
            text.replacen(from, to, 1)
        })
}

fn find<'a>(values: &'a [SampleValue], instance: &str, metric: &str) -> Option<&'a SampleValue> {
    values
        .iter()
        .find(|value| &*value.instance == instance && value.metric == metric)
}

#[track_caller]
fn check(values: &[SampleValue], instance: &str, metric: &str, expected: f64) {
    let found = find(values, instance, metric).unwrap_or_else(|| panic!("no {instance} {metric}"));
    let error = (found.value - expected).abs();
    assert!(
        error <= 1e-9 * expected.abs().max(1.0),
        "{instance} {metric}: {} not {expected}",
        found.value
    );
}

fn entry_of(name: &str) -> &'static Entry {
    PROBES.iter().find(|entry| entry.name == name).unwrap()
}

/// Every entry in the table is usable: names are unique, help exists, each file has a captured text, and that text
/// yields only declared figures, with zero rates if nothing changed.
#[test]
fn the_table_is_whole() {
    let mut names = std::collections::HashSet::new();
    for entry in PROBES {
        assert!(names.insert(entry.name), "{} is there twice", entry.name);
        assert!(!entry.help.is_empty() && !entry.help.contains('\n') && !entry.files.is_empty());
        let mut metrics = std::collections::HashSet::new();
        for metric in entry.metrics {
            assert!(
                metrics.insert(metric.name) && !metric.help.is_empty(),
                "{}",
                metric.name
            );
            let units = [
                "_per_s",
                "_share",
                "_bytes",
                "_us",
                "_cpus",
                "_tasks",
                "queue_mean",
                "in_flight",
                "threads",
                "celsius",
            ];
            assert!(
                units.iter().any(|unit| metric.name.ends_with(unit)),
                "{} has no unit",
                metric.name
            );
        }
        let (values, resets) = between(entry, &texts(entry), &texts(entry));
        assert_eq!(resets, 0);
        // No CPU time has passed, so there are no shares of it.
        assert_eq!(values.is_empty(), entry.name == "cpu", "{}", entry.name);
        for value in &values {
            assert!(
                metrics.contains(&*value.metric),
                "{} {} is not declared",
                entry.name,
                value.metric
            );
            assert!(
                !value.metric.ends_with("_per_s") || value.value == 0.0,
                "{value:?}"
            );
            assert!(super::metric(entry.name, &value.metric).is_some());
        }
    }
}

/// Figures match hand-computed differences between two texts.
#[test]
fn figures_by_hand() {
    // Long because it is one list of cases, best read in one place.
    let cpu = entry_of("cpu");
    let now = changed(
        "/proc/stat",
        &[(
            "cpu0 514107 40259 151912 422681 49096 0 21902 883",
            "cpu0 514147 40269 151932 422701 49106 0 21907 880",
        )],
    );
    let (values, _) = between(cpu, &texts(cpu), &[now]);
    // 40 user, 10 nice, 20 system, 20 idle, 10 iowait, 5 softirq; steal went backwards and counts as zero.
    check(&values, "cpu0", "user_share", 50.0 / 105.0);
    check(&values, "cpu0", "busy_share", 75.0 / 105.0);
    check(&values, "cpu0", "interrupt_share", 5.0 / 105.0);
    check(&values, "cpu0", "steal_share", 0.0);
    assert!(find(&values, "cpu1", "user_share").is_none());

    let network = entry_of("network");
    let now = changed(
        "{net}/dev",
        &[("eth0: 1772288513   56661", "eth0: 1772290513   56671")],
    );
    let (values, _) = between(network, &texts(network), &[now]);
    check(&values, "eth0", "received_bytes_per_s", 1000.0);
    check(&values, "eth0", "received_packets_per_s", 5.0);
    check(&values, "lo", "sent_bytes_per_s", 0.0);

    let tcp = entry_of("tcp");
    let now = changed(
        "{net}/snmp",
        &[("184993300 184850207 128464", "184993300 184850297 128474")],
    );
    let (values, _) = between(tcp, &texts(tcp), &[now, golden("{net}/netstat").into()]);
    check(&values, "", "sent_segments_per_s", 45.0);
    check(&values, "", "retransmitted_segments_per_s", 5.0);
    check(&values, "", "retransmitted_share", 0.1);
    check(&values, "", "timeouts_per_s", 0.0);

    let disk = entry_of("disk");
    let vda =
        "vda 10997712 122215 146402252 3648640 1291308 412374 218822829 1560933 0 252572 5267919";
    let later =
        "vda 10997812 122215 146403052 3648840 1291308 412374 218822829 1560933 7 254072 5268919";
    let (values, _) = between(
        disk,
        &texts(disk),
        &[changed("/proc/diskstats", &[(vda, later)])],
    );
    check(&values, "vda", "reads_per_s", 50.0);
    check(&values, "vda", "read_bytes_per_s", 800.0 * 512.0 / 2.0);
    check(&values, "vda", "read_time_mean_us", 2000.0);
    check(&values, "vda", "busy_share", 0.75);
    check(&values, "vda", "queue_mean", 0.5);
    check(&values, "vda", "in_flight", 7.0);
    assert!(find(&values, "vda", "write_time_mean_us").is_none());
    // It never had a request.
    assert!(find(&values, "loop1", "reads_per_s").is_none());

    let pressure = entry_of("pressure");
    let mut now = texts(pressure);
    now[2] = changed(
        "/proc/pressure/io",
        &[("total=2599796572", "total=2600296572")],
    );
    let (values, _) = between(pressure, &texts(pressure), &now);
    check(&values, "io", "some_share", 0.25);

    let memory = entry_of("memory");
    let mut now = texts(memory);
    now[1] = changed("/proc/vmstat", &[("pswpout 0", "pswpout 10")]);
    let (values, _) = between(memory, &texts(memory), &now);
    check(&values, "", "free_bytes", 11_594_888.0 * 1024.0);
    check(&values, "", "shared_bytes", 352_892.0 * 1024.0);
    check(&values, "", "swap_used_bytes", 0.0);
    check(
        &values,
        "",
        "swapped_out_bytes_per_s",
        5.0 * rustix::param::page_size() as f64,
    );

    let process = entry_of("process");
    // One thread ended, and a new one appeared with its counts since then.
    let now = [
        changed("{process}/stat", &[(" 1100 300 ", " 1300 350 ")]),
        changed(
            "{process}/task/*/status",
            &[
                ("Pid:\t4243", "Pid:\t4299"),
                ("switches:\t90", "switches:\t100"),
            ],
        ),
        changed(
            "{process}/task/*/schedstat",
            &[
                ("4243 9000000000", "4299 500000000"),
                ("4242 4000", "4242 6000"),
            ],
        ),
        String::new(),
    ];
    let (values, _) = between(process, &texts(process), &now);
    // 2 s and 0.5 s in two seconds; ticks divide them 200 to 50.
    check(&values, "", "total_cpus", 1.25);
    check(&values, "", "user_cpus", 1.0);
    check(&values, "", "system_cpus", 0.25);
    check(&values, "", "threads", 3.0);
    check(&values, "", "voluntary_switches_per_s", (10.0 + 7.0) / 2.0);
}

/// CPU time of threads that ended between two readings is not lost: the process's own cgroup counts it to the
/// microsecond and, without one, ticks include it.
#[test]
fn cpu_time_of_ended_threads_is_not_lost() {
    let process = entry_of("process");
    // Threads that came and went used 2 s; the remaining one used 10 ms.
    let mut now = texts(process);
    now[0] = changed("{process}/stat", &[(" 1100 300 ", " 1250 350 ")]);
    now[2] = changed(
        "{process}/task/*/schedstat",
        &[("4242 4000000000", "4242 4010000000")],
    );
    now[3] = String::new();
    let (values, _) = between(process, &texts(process), &now);
    check(&values, "", "total_cpus", 1.0);
    check(&values, "", "user_cpus", 0.75);
    now[3] = changed(
        "{process}/cgroup",
        &[
            ("usage_usec 14100000", "usage_usec 16111000"),
            ("user_usec 11050000", "user_usec 12550100"),
        ],
    );
    let (values, _) = between(process, &texts(process), &now);
    check(&values, "", "total_cpus", 2.011 / 2.0);
    check(&values, "", "user_cpus", 1.5001 / 2.0);
    check(&values, "", "system_cpus", 0.0);
    // A mere rounding difference of ticks doesn't override nanoseconds.
    now[0] = changed("{process}/stat", &[(" 1100 300 ", " 1102 301 ")]);
    now[3] = String::new();
    let (values, _) = between(process, &texts(process), &now);
    check(&values, "", "total_cpus", 0.005);
}

/// A tick in a short interval is not reported as many CPUs: CPU time is reported once the interval is long enough, and
/// then for all of it. Everything else is reported every time.
#[test]
fn a_tick_in_a_short_interval_is_not_many_cpus() {
    let process = entry_of("process");
    let tick = vec![
        changed("{process}/stat", &[(" 1100 300 ", " 1100 301 ")]),
        golden("{process}/task/*/status").into(),
        changed(
            "{process}/task/*/schedstat",
            &[("4242 4000000000", "4242 4010000000")],
        ),
        String::new(),
    ];
    let texts_of = texts(process);
    let (told, _) = steps(
        process,
        &[
            (&texts_of, 0),
            (&tick, 600),
            (&tick, 39_400),
            (&tick, 60_000),
            (&tick, 60_000),
        ],
    );
    for short in &told[..3] {
        assert!(
            !short.iter().any(|value| value.metric.ends_with("_cpus")),
            "{short:?}"
        );
    }
    assert!(find(&told[1], "", "threads").is_some());
    check(&told[3], "", "total_cpus", 0.1);
    check(&told[3], "", "system_cpus", 0.1);
    check(&told[3], "", "user_cpus", 0.0);
    check(&told[4], "", "total_cpus", 0.0);

    let cpu = entry_of("cpu");
    let line = "cpu0 514107 40259 151912 422681 49096 0 21902 883";
    let [one, two] = ["514108", "514110"]
        .map(|user| changed("/proc/stat", &[(line, &line.replace("514107", user))]));
    let [before, one, two] = [texts(cpu), vec![one], vec![two.replace("422681", "422683")]];
    let (told, _) = steps(cpu, &[(&before, 0), (&one, 600), (&two, 50_000)]);
    assert!(told[1].is_empty(), "{:?}", told[1]);
    check(&told[2], "cpu0", "busy_share", 3.0 / 5.0);

    // A kernel that only counts ticks.
    let ticks = |texts: &[String]| {
        vec![
            Some(Cow::from(texts[0].clone())),
            Some(Cow::from(texts[1].clone())),
            None,
        ]
    };
    let (mut values, mut resets, mut probe) = (Vec::new(), 0, (process.make)());
    for (texts, micros) in [(&texts_of, 0), (&tick, 100_000)] {
        let mut sink = Sink::new(process.name, "".into(), &mut values, &mut resets);
        probe
            .step(
                &Texts(&ticks(texts)),
                Duration::from_micros(micros),
                &mut sink,
            )
            .unwrap();
    }
    check(&values, "", "system_cpus", 0.1);
}

/// All samples of a round have the same times, so that their figures line up.
#[test]
fn all_samples_of_a_round_have_the_same_times() {
    let probes = Probes {
        interval: "10ms".parse().unwrap(),
        ..Probes::default()
    };
    let watch = Watch::default();
    let _other = watch.process(LOCAL, "other", std::process::id());
    let mut prober = Prober::new(&probes, &watch);
    let (told, samples) = std::sync::mpsc::channel();
    prober
        .start(move |sample: &Sample| told.send(sample.clone()).unwrap())
        .unwrap();
    let mut times: std::collections::BTreeMap<brunt_core::Nanos, usize> = Default::default();
    while times.values().filter(|count| **count == 3).count() < 3 {
        *times.entry(samples.recv().unwrap().end).or_default() += 1;
    }
    prober.stop();
    assert!(times.len() <= 4, "{times:?}");
}

/// Counters continue after a 32-bit wrap; a reset loses its figure and is counted.
#[test]
fn resets_are_counted() {
    let network = entry_of("network");
    let (values, resets) = between(
        network,
        &[changed(
            "{net}/dev",
            &[("eth0: 1772288513   56661", "eth0: 4294967290   56661")],
        )],
        &[changed(
            "{net}/dev",
            &[("eth0: 1772288513   56661", "eth0: 14   12")],
        )],
    );
    check(&values, "eth0", "received_bytes_per_s", 10.0);
    assert!(find(&values, "eth0", "received_packets_per_s").is_none());
    assert_eq!(resets, 1);
}

/// Texts that are truncated at any byte, lack any line, or have garbage in place of numbers are parsed or refused,
/// without panics, and figures stay finite.
#[test]
fn broken_texts() {
    let nonsense = [
        "",
        "-1",
        "x",
        "18446744073709551616",
        "1e9",
        ":",
        "(",
        "total=",
        "\u{fffd}",
    ];
    for entry in PROBES {
        let whole = texts(entry);
        let try_it = |broken: Vec<String>| {
            let (mut values, mut resets) = (Vec::new(), 0);
            let mut probe = (entry.make)();
            for texts in [&whole, &broken, &whole] {
                let texts: Vec<_> = texts
                    .iter()
                    .map(|text| Some(Cow::from(text.as_str())))
                    .collect();
                let mut sink = Sink::new(entry.name, "".into(), &mut values, &mut resets);
                let _ = probe.step(&Texts(&texts), Duration::from_secs(1), &mut sink);
            }
            assert!(values.iter().all(|value| value.value.is_finite()));
        };
        for (index, text) in whole.iter().enumerate() {
            let with = |new: String| {
                let mut broken = whole.clone();
                broken[index] = new;
                try_it(broken);
            };
            for end in 0..text.len().min(2000) {
                with(text[..end].to_string());
            }
            for gone in 0..text.lines().count() {
                let keep = text.lines().enumerate().filter(|(line, _)| *line != gone);
                with(keep.map(|(_, line)| format!("{line}\n")).collect());
            }
            for (place, word) in text
                .split_ascii_whitespace()
                .enumerate()
                .step_by(3)
                .take(200)
            {
                for other in nonsense {
                    let words = text.split(' ').enumerate();
                    with(
                        words
                            .map(|(at, w)| format!("{} ", if at == place { other } else { w }))
                            .collect(),
                    );
                }
                assert!(!word.is_empty());
            }
            // A file that has disappeared.
            let missing: Vec<_> = whole
                .iter()
                .enumerate()
                .map(|(at, t)| (at != index).then(|| Cow::from(t.as_str())))
                .collect();
            let (mut values, mut resets) = (Vec::new(), 0);
            let mut sink = Sink::new(entry.name, "".into(), &mut values, &mut resets);
            let _ = (entry.make)().step(&Texts(&missing), Duration::from_secs(1), &mut sink);
        }
    }
}

/// Samples stay on schedule, late ones are counted, and missed ones are not made up for.
#[test]
fn schedules_do_not_drift() {
    let millis = |millis: u64| brunt_core::Nanos(millis * 1_000_000);
    let mut schedule = Schedule::new(millis(100), Duration::from_millis(100));
    let mut check = |now: u64, late: u64, missed: u64, due: u64| {
        schedule.taken(millis(now));
        assert_eq!(
            (schedule.late, schedule.missed, schedule.due()),
            (late, missed, millis(due)),
            "{now}"
        );
    };
    check(100, 0, 0, 200);
    check(205, 0, 0, 300);
    check(315, 1, 0, 400);
    check(750, 2, 3, 800);
    check(800, 2, 3, 900);
}

fn machine(probes: &[&'static Entry]) -> Sampler {
    Sampler::open(
        &Subject::Machine {
            host: "here".into(),
            with_network: true,
        },
        probes,
    )
    .unwrap()
}

/// On this kernel, everything can be read, and what this test does is visible: a busy CPU, packets over loopback, and a
/// process's own CPU time and switches.
#[test]
fn real_work_is_visible() {
    let all: Vec<_> = PROBES.iter().collect();
    let mut here = machine(&all);
    let pid = std::process::id();
    let mut own = Sampler::open(
        &Subject::Process {
            host: "here".into(),
            name: "test".into(),
            pid,
        },
        &all,
    )
    .unwrap();
    let clock = Clock::Monotonic;
    assert!(
        here.sample(&clock, clock.now()).is_none() && own.sample(&clock, clock.now()).is_none()
    );

    // 200 ms of this thread's CPU time, 500 datagrams, 100 sleeps.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(socket.local_addr().unwrap()).unwrap();
    let (mut buf, payload) = ([0; 2000], [7; 1000]);
    for _ in 0..500 {
        assert_eq!(socket.send(&payload).unwrap(), 1000);
        assert_eq!(socket.recv(&mut buf).unwrap(), 1000);
    }
    for _ in 0..100 {
        std::thread::sleep(Duration::from_micros(50));
    }
    let spent = brunt_core::cost::ResourceUsage::of_thread();
    while brunt_core::cost::ResourceUsage::of_thread()
        .since(spent)
        .cpu()
        < Duration::from_millis(200)
    {
        std::hint::black_box(payload.iter().map(|byte| u64::from(*byte)).sum::<u64>());
    }

    let sample = here.sample(&clock, clock.now()).unwrap();
    let seconds = sample.end.since(sample.start).as_secs_f64();
    let of = |sample: &Sample, instance: &str, metric: &str| {
        find(&sample.values, instance, metric)
            .unwrap_or_else(|| panic!("no {instance} {metric}"))
            .value
    };
    // Other processes may have been active, too, so this is a lower bound. A tick is 10 ms. All of the machine's CPUs
    // count, even if this process may only use some of them.
    let cpus = sample
        .values
        .iter()
        .filter(|one| one.metric == "busy_share" && one.instance.starts_with("cpu"));
    let cpus = cpus.count() as f64;
    assert!(
        of(&sample, "", "busy_share") * seconds * cpus >= 0.15,
        "{sample:?}"
    );
    // Rates refer to the time between the readings of their file, which differs slightly from the sample's.
    assert!(of(&sample, "lo", "received_packets_per_s") * seconds >= 490.0);
    assert!(of(&sample, "lo", "sent_bytes_per_s") * seconds >= 490.0 * 1028.0);
    assert!(of(&sample, "", "context_switches_per_s") * seconds >= 98.0);
    assert!(of(&sample, "", "free_bytes") > 0.0);

    let mine = own.sample(&clock, clock.now()).unwrap();
    let seconds = mine.end.since(mine.start).as_secs_f64();
    assert!((of(&mine, "test", "user_cpus") + of(&mine, "test", "system_cpus")) * seconds >= 0.15);
    assert!(of(&mine, "test", "voluntary_switches_per_s") * seconds >= 98.0);
    assert_eq!((here.misreadings(), own.misreadings()), Default::default());
    assert_eq!(here.misreadings(), Misreadings::default());
}

/// A process that doesn't exist is noted once and yields no figures; one that ends yields no more.
#[test]
fn an_ended_process_yields_no_more_figures() {
    let all: Vec<_> = PROBES.iter().collect();
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let subject = Subject::Process {
        host: "here".into(),
        name: "child".into(),
        pid: child.id(),
    };
    let mut sampler = Sampler::open(&subject, &all).unwrap();
    assert!(
        sampler
            .sample(&Clock::Monotonic, Clock::Monotonic.now())
            .is_none()
    );
    let sample = sampler
        .sample(&Clock::Monotonic, Clock::Monotonic.now())
        .unwrap();
    assert!(
        sample
            .values
            .iter()
            .all(|value| &*value.instance == "child")
    );
    assert_eq!(find(&sample.values, "child", "threads").unwrap().value, 1.0);
    assert!(find(&sample.values, "child", "voluntary_switches_per_s").is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        sampler
            .sample(&Clock::Monotonic, Clock::Monotonic.now())
            .is_none()
            && sampler.is_empty()
    );
    assert_eq!(sampler.take_notes().len(), 1);
    // The files of an ended process cannot be opened, which has no other consequences.
    let mut nobody = Sampler::open(&subject, &all).unwrap();
    assert!(
        nobody.is_empty()
            && nobody
                .sample(&Clock::Monotonic, Clock::Monotonic.now())
                .is_none()
    );
}

/// A prober covers all of the time from its start to its stop without gaps or overlaps, and the record's means cover
/// the measured part.
#[test]
fn a_prober_covers_its_run() {
    let probes = Probes {
        interval: "20ms".parse().unwrap(),
        ..Probes::default()
    };
    let watch = Watch::default();
    let mut prober = Prober::new(&probes, &watch);
    let (told, samples) = std::sync::mpsc::channel();
    let begin = Clock::Monotonic.now();
    prober
        .start(move |sample: &Sample| told.send(sample.clone()).unwrap())
        .unwrap();
    prober.measure_from(Clock::Monotonic.now().after(Duration::from_millis(10)));
    let mut seen: Vec<Sample> = Vec::new();
    while seen.iter().filter(|sample| is_machine(sample)).count() < 4 {
        seen.push(samples.recv().unwrap());
    }
    let end = Clock::Monotonic.now();
    let record = prober.stop().unwrap();
    seen.extend(samples.iter());
    let machine: Vec<_> = seen.iter().filter(|sample| is_machine(sample)).collect();
    assert!(machine[0].start >= begin && machine.last().unwrap().end >= end);
    assert!(
        machine
            .windows(2)
            .all(|pair| pair[0].end == pair[1].start && pair[1].start < pair[1].end)
    );
    assert_eq!(record.samples, machine.len() as u64);
    assert!(
        record.cpu_us_per_sample > 0.0 && record.cpu_share < 1.0,
        "{record:?}"
    );
    let here = &record.hosts[LOCAL];
    assert!((0.0..=1.0).contains(&here["cpu.busy_share"]) && here["process.runner.threads"] >= 1.0);
    assert!(!here.keys().any(|key| key.contains("cpu0")));
    assert!(prober.stop().is_none());
}

fn is_machine(sample: &Sample) -> bool {
    sample.values.iter().any(|value| value.probe == "memory")
}

/// A lab host has its own interfaces and counters, separate from the machine's.
#[test]
fn a_lab_host_has_its_own_network_counters() {
    let child = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "sleep", "60"])
        .stdout(std::process::Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        assert!(
            std::env::var_os("BRUNT_REQUIRE_ALL").is_none_or(|value| value != "1"),
            "unshare is missing"
        );
        println!("skipped: needs util-linux");
        return;
    };
    let pid = child.id();
    let other = || {
        let own = std::fs::read_link("/proc/self/ns/net").ok();
        std::fs::read_link(format!("/proc/{pid}/ns/net")).ok() != own
    };
    for _ in 0..500 {
        if other() || child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    if child.try_wait().unwrap().is_some() || !other() {
        let _ = child.kill();
        let _ = child.wait();
        assert!(
            std::env::var_os("BRUNT_REQUIRE_ALL").is_none_or(|value| value != "1"),
            "no user namespaces here"
        );
        println!("skipped: needs user namespaces");
        return;
    }
    let probes: Vec<_> = PROBES.iter().collect();
    let namespace = std::fs::File::open(format!("/proc/{pid}/ns/net")).unwrap();
    for network in [
        Network::OfProcess(pid),
        Network::Namespace(Arc::new(namespace.into())),
    ] {
        let subject = Subject::Host {
            host: "other".into(),
            network: network.clone(),
        };
        let mut sampler = match Sampler::open(&subject, &probes) {
            Ok(sampler) => sampler,
            // Entering a namespace needs privileges; reading a process's counters doesn't.
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
                assert!(matches!(network, Network::Namespace(_)));
                continue;
            }
        };
        sampler.sample(&Clock::Monotonic, Clock::Monotonic.now());
        let sample = sampler
            .sample(&Clock::Monotonic, Clock::Monotonic.now())
            .unwrap();
        let interfaces: std::collections::BTreeSet<_> = sample
            .values
            .iter()
            .filter(|value| value.probe == "network")
            .map(|v| &*v.instance)
            .collect();
        assert_eq!(
            interfaces
                .into_iter()
                .filter(|name| *name != "lo" && !name.contains("tunl") && !name.starts_with("ifb"))
                .count(),
            0,
            "{network:?}"
        );
        assert!(
            sample
                .values
                .iter()
                .all(|value| matches!(&*value.probe, "network" | "tcp"))
        );
        assert_eq!(&*sample.host, "other");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Rates agree with other kernel counters. A sysfs counter and the clock are read before and after each sample, so the
/// sample's count must lie between those bounds, whatever else happens on this machine.
#[test]
fn rates_agree_with_sysfs() {
    let disk = std::fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten()
        .find_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            (disk_counter(&name, 0)? > 0).then_some(name)
        });
    let clock = Clock::Monotonic;
    let mut samplers = ["network", "disk"].map(|name| machine(&[entry_of(name)]));
    type Counter = Box<dyn Fn() -> u64>;
    let mut checks: Vec<(String, &str, Counter)> = Vec::new();
    for (metric, file) in [
        ("received_packets_per_s", "rx_packets"),
        ("received_bytes_per_s", "rx_bytes"),
        ("sent_packets_per_s", "tx_packets"),
        ("sent_bytes_per_s", "tx_bytes"),
    ] {
        let path = format!("/sys/class/net/lo/statistics/{file}");
        let read = move || {
            std::fs::read_to_string(&path)
                .unwrap()
                .trim()
                .parse::<u64>()
                .unwrap()
        };
        checks.push(("lo".into(), metric, Box::new(read)));
    }
    if let Some(disk) = disk {
        for (metric, field) in [("reads_per_s", 0), ("writes_per_s", 4)] {
            let name = disk.clone();
            checks.push((
                disk.clone(),
                metric,
                Box::new(move || disk_counter(&name, field).unwrap()),
            ));
        }
    }
    let read_all = || {
        checks
            .iter()
            .map(|(_, _, read)| read())
            .collect::<Vec<u64>>()
    };
    let before_first = read_all();
    let mut times = vec![clock.now()];
    samplers
        .iter_mut()
        .for_each(|sampler| assert!(sampler.sample(&clock, clock.now()).is_none()));
    times.push(clock.now());
    let after_first = read_all();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(socket.local_addr().unwrap()).unwrap();
    for _ in 0..3000 {
        socket.send(&[1; 100]).unwrap();
        socket.recv(&mut [0; 200]).unwrap();
    }
    let before_second = read_all();
    times.push(clock.now());
    let samples = samplers
        .each_mut()
        .map(|sampler| sampler.sample(&clock, clock.now()));
    times.push(clock.now());
    let after_second = read_all();
    let shortest = times[2].since(times[1]).as_secs_f64();
    let longest = times[3].since(times[0]).as_secs_f64();
    for (place, (instance, metric, _)) in checks.iter().enumerate() {
        let of = |sample: &Sample| find(&sample.values, instance, metric).map(|found| found.value);
        let rate = samples
            .iter()
            .flatten()
            .find_map(of)
            .unwrap_or_else(|| panic!("no {metric}"));
        let least = before_second[place] - after_first[place];
        let most = after_second[place] - before_first[place];
        let counted = (rate * shortest).floor() as u64..=(rate * longest).ceil() as u64;
        let agrees = *counted.start() <= most && *counted.end() >= least;
        assert!(
            agrees,
            "{instance} {metric}: {counted:?} not in {least} to {most}"
        );
    }
}

/// A disk's counter in sysfs (Documentation/block/stat.rst).
fn disk_counter(name: &str, field: usize) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/sys/block/{name}/stat")).ok()?;
    text.split_ascii_whitespace().nth(field)?.parse().ok()
}

/// The documentation lists exactly the figures in the table. `BRUNT_BLESS=1` rewrites it.
#[test]
fn documentation_is_complete() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/probes.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (head, _) = text
        .split_once("## Figures\n")
        .expect("docs/probes.md has a part 'Figures'");
    let mut expected = format!("{head}## Figures\n");
    for entry in PROBES {
        let files = entry
            .files
            .join("`, `")
            .replace("{net}", "/proc/net")
            .replace("{process}", "/proc/PID");
        let instance = match entry.name {
            "cpu" => "empty for all CPUs together, `cpu0`, `cpu1`, …",
            "network" => "the interface",
            "disk" => "the block device or partition",
            "pressure" => "`cpu`, `memory`, `io`",
            "process" => {
                "`runner`, the target's name, `agent` of a lab's host with workers, or a name of `processes`"
            }
            "temperature" => "the device and its sensor",
            _ => "always empty",
        };
        expected += &format!(
            "\n### {}\n\n{}. From `{files}`. Instance: {instance}.\n\n| metric | what | mean in summary.json |\n\
             |---|---|---|\n",
            entry.name,
            entry.help[..1].to_uppercase() + &entry.help[1..]
        );
        for metric in entry.metrics {
            let summary = if metric.summary { "yes" } else { "" };
            expected += &format!("| `{}` | {} | {summary} |\n", metric.name, metric.help);
        }
    }
    expected += &format!(
        "\n### {}\n\nFigures that parts of a device report themselves. Instance: the target and the part, `disk/stics`; \
         of a LUN that the experiment serves, `disk:0/array`.\n\n| metric | part and what | mean in summary.json |\n|---|---|---|\n",
        DEVICE.name
    );
    for metric in DEVICE.metrics {
        let summary = if metric.summary { "yes" } else { "" };
        expected += &format!("| `{}` | {} | {summary} |\n", metric.name, metric.help);
    }
    if std::env::var_os("BRUNT_BLESS").is_some() {
        std::fs::write(path, &expected).unwrap();
    }
    assert!(
        text == expected,
        "docs/probes.md is old; BRUNT_BLESS=1 cargo test -p brunt-probe writes it anew"
    );
}
