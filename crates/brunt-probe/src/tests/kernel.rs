//! Probes on this kernel: processes, network namespaces, disks.

use super::*;

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
    let begin = clock.now();
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
    // At least the time between the readings of each file, to which its rates refer.
    let seconds = clock.now().since(begin).as_secs_f64();
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
    assert!(of(&sample, "lo", "received_packets_per_s") * seconds >= 490.0);
    assert!(of(&sample, "lo", "sent_bytes_per_s") * seconds >= 490.0 * 1028.0);
    assert!(of(&sample, "", "context_switches_per_s") * seconds >= 98.0);
    assert!(of(&sample, "", "free_bytes") > 0.0);

    let mine = own.sample(&clock, clock.now()).unwrap();
    let seconds = clock.now().since(begin).as_secs_f64();
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
    // The files of an ended process cannot be opened, so nothing is sampled.
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
    let measured = Clock::Monotonic.now().after(Duration::from_millis(10));
    prober.measure_from(measured);
    let is_measured = |sample: &&Sample| is_machine(sample) && sample.start >= measured;
    let mut seen: Vec<Sample> = Vec::new();
    while seen.iter().filter(is_measured).count() < 4 {
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
    for _ in 0..6000 {
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

/// Returns a disk's counter in sysfs (Documentation/block/stat.rst).
fn disk_counter(name: &str, field: usize) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/sys/block/{name}/stat")).ok()?;
    text.split_ascii_whitespace().nth(field)?.parse().ok()
}
