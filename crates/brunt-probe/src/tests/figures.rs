//! Figures computed from captured texts.

use super::*;

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
    // This device never had a request.
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
    // The threads used 2 s and 0.5 s of CPU time in two seconds; ticks split it 200 to 50 between user and system.
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

/// One tick in a short interval does not appear as several CPUs: CPU time is reported once the interval is long enough,
/// and then for all of it. Everything else is reported every time.
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
