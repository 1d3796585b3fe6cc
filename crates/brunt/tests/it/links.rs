//! Links of a lab as an experiment sees them: a link fault that happens on time, is proven, takes effect and ends; a
//! link fault that doesn't happen; and storage behind several links.

use crate::support;
use std::process::Command;

use crate::support::{TempDir, alone, run_within};
use serde_json::Value;

/// The summary of an experiment, or its error output; `None`, with a message, if a lab can't be created.
fn run(name: &str, text: &str) -> Option<Result<Value, String>> {
    let folder = TempDir::new(name);
    // Jitter makes each packet early or late, and late twice as often: a delay is judged by the median, which would
    // be arbitrary with two equal halves.
    std::fs::write(folder.join("two.dist"), "-8192 8192 8192\n").expect("a file");
    let mut command: Command = support::experiment(&folder, text);
    let output = run_within(&mut command, 120);
    let words = String::from_utf8_lossy(&output.stderr).to_string();
    if words.contains("namespaces of a lab") || words.contains("/dev/net/tun") {
        support::skip("user namespaces and /dev/net/tun");
        return None;
    }
    if !output.status.success() {
        assert_eq!(output.status.code(), Some(1), "{words}");
        return Some(Err(words));
    }
    Some(Ok(serde_json::from_slice(&output.stdout).expect("JSON")))
}

/// An experiment of 4 s with a link fault from 1 s to 1.8 s, with all times multiplied by `slower`.
fn experiment(link: &str, set: &str, slower: u32) -> String {
    with_fault(link, &format!("link = \"wan\"\nset = {{ {set} }}"), slower)
}

/// An experiment with any fault, with all times multiplied by `slower`.
fn with_fault(link: &str, fault: &str, slower: u32) -> String {
    let ms = |ms: u32| ms * slower;
    format!(
        "name = \"x\"\nrepetitions = 1\n[lab]\nhosts = [\"client\", \"server\"]\n\
         cores = {{ server = [0] }}\n[lab.links.wan]\nbetween = [\"client\", \"server\"]\n{link}\n\
         [targets.san]\nserve = \"memory:8MiB\"\nhost = \"server\"\n\
         [workloads.load]\nqueue_depth = 8\nretry = {{ count = 1000, on = \"any\" }}\n\
         interval = \"{}ms\"\nstop = {{ time = \"{}ms\" }}\n\
         [[fault]]\n{fault}\nat = \"{}ms\"\nfor = \"{}ms\"\n",
        ms(100),
        ms(4000),
        ms(1000),
        ms(800)
    )
}

/// Asserts that these are the errors of a run that a busy machine may have disturbed, so that it is worth repeating: a
/// fault came too late, or couldn't be proven in its time, or a link's thread was too late for its packets.
fn assert_may_be_busy(words: &str, what: &str) {
    let late = [
        "still in effect after its removal",
        "were lost unintentionally",
    ];
    assert!(
        support::came_too_late(words) || late.iter().any(|one| words.contains(one)),
        "{what}: {words}"
    );
}

/// Asserts that a fault can't be proven, and that the error contains all of these words. If the run ended before the
/// fault started, it is repeated with times up to eight times as long. `false`, with a message, if a lab can't be
/// created.
fn fails(name: &str, text: impl Fn(u32) -> String, said: &[&str]) -> bool {
    let mut instead = String::new();
    for slower in [1, 2, 4, 8] {
        let Some(result) = run(name, &text(slower)) else {
            return false;
        };
        let words = result.expect_err("a fault without effect was proven");
        if said.iter().all(|word| words.contains(word)) {
            return true;
        }
        instead = words;
        let is_late = ["before the fault", "were lost unintentionally"];
        if !is_late.iter().any(|late| instead.contains(late)) {
            break;
        }
    }
    panic!("{said:?} is not in: {instead}");
}

fn of_only_run<'a>(summary: &'a Value, key: &str) -> &'a Value {
    &summary["points"][0]["runs"][0][key]
}

/// The MTU of links and the options in a target's URL are axes: runs use the configured values, and points record the
/// granted ones.
#[test]
fn mtus_and_url_options_are_axes() {
    let text = "name = \"x\"\nrepetitions = 1\n[lab]\nhosts = [\"client\", \"server\"]\n\
         [lab.links.wan]\nbetween = [\"client\", \"server\"]\nrate = \"1Gb/s\"\n\
         [targets.san]\nserve = \"memory:8MiB\"\nhost = \"server\"\noptions = \"sessions=1\"\n\
         [workloads.load]\nblocks = [{ size = \"64k\" }]\nstop = { requests = 40 }\n\
         [sweep]\nlink.mtu = [9000, 1500]\n\
         [sweep.options.san]\nreceive_buffer = [\"16KiB\", \"default\"]\n";
    let Some(done) = run("swept-mtu", text) else {
        return;
    };
    let summary = done.expect("it runs");
    let points = summary["points"].as_array().expect("points");
    assert_eq!(points.len(), 4);
    for point in points {
        let axes = &point["axes"];
        let back = &point["runs"][0]["links"]["wan"]["back"];
        let count = |key: &str| back[key].as_f64().expect("a count");
        let mean_bytes = count("bytes") / count("packets");
        let is_small = axes["receive_buffer"] == "16KiB";
        match axes["link_mtu"].as_str() {
            // A small window leaves no room for large segments.
            Some("9000") if is_small => {}
            Some("9000") => assert!(mean_bytes > 1600.0, "{point}"),
            Some("1500") => assert!(mean_bytes < 1600.0, "{point}"),
            other => panic!("{other:?}"),
        }
        let is_granted = point["notes"]
            .to_string()
            .contains("san: socket receive buffer of 16384 bytes, set in the URL");
        assert_eq!(is_granted, is_small, "{point}");
    }
    let folder = TempDir::new("swept-unknown");
    let check = |from: &str, to: &str, words: &[&str]| {
        assert!(text.contains(from));
        std::fs::write(folder.join("x.toml"), text.replace(from, to)).expect("a file");
        let mut check = support::brunt();
        check.args(["run", "--check"]).arg(folder.join("x.toml"));
        let output = check.output().expect("brunt");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    };
    check(
        "receive_buffer =",
        "receive_bufer =",
        &[
            "target san",
            "receive_bufer",
            "first_burst",
            "receive_buffer",
        ],
    );
    check("\"16KiB\"", "\"much\"", &["target san", "much"]);
    check(
        "sessions=1",
        "sesions=1",
        &["target san", "sesions", "sessions"],
    );
    check("[9000, 1500]", "[9000, 150]", &["write 576 to 9000"]);
}

/// Connections use the experiment's congestion control, and it is recorded; without a setting, the kernel's default
/// is recorded. If the kernel lacks it, the error points to its key.
#[test]
fn congestion_control_is_recorded() {
    let text = |congestion: &str| {
        format!(
            "name = \"x\"\nrepetitions = 1\n{congestion}\n[lab]\nhosts = [\"client\", \"server\"]\n\
             [lab.links.wan]\nbetween = [\"client\", \"server\"]\n\
             [targets.line]\nserve = \"tcp\"\nhost = \"server\"\n\
             [targets.san]\nserve = \"memory:8MiB\"\nhost = \"server\"\n\
             [workloads.load]\nstop = {{ requests = 10 }}\n"
        )
    };
    let Some(chosen) = run("congestion-chosen", &text("congestion = \"reno\"")) else {
        return;
    };
    let chosen = chosen.expect("it runs");
    for target in ["line", "san"] {
        let facts = chosen["experiment"]["targets"][target]["facts"].to_string();
        assert!(
            facts.contains("TCP congestion control reno"),
            "{target}: {facts}"
        );
    }
    let expected = serde_json::json!({ "algorithm": "reno", "chosen": true });
    assert_eq!(chosen["experiment"]["congestion"], expected);
    let kernels = run("congestion-kernels", &text(""))
        .expect("namespaces")
        .expect("it runs");
    assert_eq!(kernels["experiment"]["congestion"]["chosen"], false);
    let folder = TempDir::new("congestion-refused");
    std::fs::write(
        folder.join("x.toml"),
        text("congestion = \"no-such-thing\""),
    )
    .expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_brunt"));
    let output = command
        .args(["run", "--check"])
        .arg(folder.join("x.toml"))
        .output()
        .expect("it starts");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(
        words.contains("x.toml:3") && words.contains("reno"),
        "{words}"
    );
}

/// A temporary change to a link is proven to happen and to end, with its real times; the rate falls to the expected
/// range and recovers.
#[test]
fn a_link_fault_takes_effect_and_ends() {
    let _alone = alone(); // Compares rates.
    // The setting, how the probe describes it, and the minimum drop in the rate: eight outstanding requests with 10
    // ms each way are at most 400 requests a second; 100 with the additional delay; 120 at 4 Mb/s.
    'cases: for (set, shown, depth) in [
        ("delay = \"40ms\"", "median latency", 0.4),
        ("rate = \"4Mb/s\"", "packet trains at", 0.4),
        ("loss = 0.1", "missing", 0.3),
    ] {
        let mut instead = String::new();
        // On a busy machine, a fault may come too late, or the rate may be low before it or not recover, whatever the
        // link does; then repeat with more time for everything.
        for slower in [1, 1, 2, 4, 8] {
            let Some(result) = run("felt", &experiment("delay = \"10ms\"", set, slower)) else {
                return;
            };
            let summary = match result {
                Ok(summary) => summary,
                Err(words) => {
                    assert_may_be_busy(&words, set);
                    instead = words;
                    continue;
                }
            };
            let seen = &of_only_run(&summary, "faults")[0];
            let time = |key: &str| {
                seen[key]
                    .as_f64()
                    .unwrap_or_else(|| panic!("{set}: no {key} in {seen}"))
            };
            let (at, until) = (1.0 * f64::from(slower), 1.8 * f64::from(slower));
            assert_eq!(seen["kind"], "link", "{seen}");
            assert!(
                time("start_s") >= at && time("shown_s") >= time("start_s"),
                "{seen}"
            );
            assert!(
                time("end_s") >= until && time("gone_s") >= time("end_s"),
                "{seen}"
            );
            assert!(
                seen["shown_by"].as_str().unwrap().contains(shown),
                "{set}: {seen}"
            );
            assert!(
                seen["gone_by"]
                    .as_str()
                    .unwrap()
                    .contains("probe packets, "),
                "{set}: {seen}"
            );
            let link = &of_only_run(&summary, "links")["wan"];
            assert_eq!(
                link["there"]["lost"].as_u64().unwrap() > 0,
                set.starts_with("loss"),
                "{link}"
            );
            let cost = &seen["cost"];
            if cost["drop"].as_f64() > Some(depth) && cost["recovered"]["after-s"].is_f64() {
                continue 'cases;
            }
            instead = seen.to_string();
        }
        panic!("{set} was never felt and over: {instead}");
    }
}

/// A fault in one direction affects only what one host sends.
#[test]
fn a_fault_of_one_direction_leaves_the_other_unchanged() {
    let _alone = alone(); // Compares rates.
    let mut instead = String::new();
    for slower in [1, 2, 4, 8] {
        let both = experiment("delay = \"1ms\"", "loss = 0.2", slower);
        let text = both.replace(
            "link = \"wan\"\nset",
            "link = \"wan\"\nfrom = \"server\"\nset",
        );
        assert_ne!(text, both);
        let Some(result) = run("one way", &text) else {
            return;
        };
        let summary = match result {
            Ok(summary) => summary,
            Err(words) => {
                assert_may_be_busy(&words, "one way");
                instead = words;
                continue;
            }
        };
        let (seen, link) = (
            &of_only_run(&summary, "faults")[0],
            &of_only_run(&summary, "links")["wan"],
        );
        assert!(
            seen["what"]
                .as_str()
                .unwrap()
                .contains("loss 0.2 from server"),
            "{seen}"
        );
        assert!(link["back"]["lost"].as_u64() > Some(0), "{link}");
        assert_eq!(link["there"]["lost"].as_u64().unwrap_or(0), 0, "{link}");
        return;
    }
    panic!("{instead}");
}

/// The only fault and the only link of a run with this fault, if the fault happened on time and the rate fell by at
/// least this share. On a busy machine, the run is repeated with times up to eight times as long. `None`, with a
/// message, if a lab can't be created.
fn of_fault(name: &str, link: &str, fault: &str, drop: f64) -> Option<(Value, Value)> {
    let mut instead = String::new();
    for slower in [1, 2, 4, 8] {
        let summary = match run(name, &with_fault(link, fault, slower))? {
            Ok(summary) => summary,
            Err(words) => {
                assert_may_be_busy(&words, fault);
                instead = words;
                continue;
            }
        };
        let seen = of_only_run(&summary, "faults")[0].clone();
        let (at, until) = (1.0 * f64::from(slower), 1.8 * f64::from(slower));
        assert!(
            seen["start_s"].as_f64() >= Some(at)
                && seen["shown_s"].as_f64() >= seen["start_s"].as_f64(),
            "{seen}"
        );
        assert!(
            seen["end_s"].as_f64() >= Some(until)
                && seen["gone_s"].as_f64() >= seen["end_s"].as_f64(),
            "{seen}"
        );
        if drop > 0.0 && seen["cost"]["drop"].as_f64() < Some(drop) {
            instead = seen.to_string();
            continue;
        }
        return Some((seen, of_only_run(&summary, "links")["wan"].clone()));
    }
    panic!("{fault} was never there in its time: {instead}");
}

/// All other link keys work in a fault, in one direction and in both, including a delay table from a file in the
/// experiment's folder.
#[test]
fn every_other_key_of_a_link_works_in_a_fault() {
    for (set, from, shown) in [
        ("loss = 1.0, loss_gap = 10", "", " missing"),
        ("loss = 0.2, loss_correlation = 0.5", "server", " missing"),
        (
            "delay = \"50ms\", jitter = \"40ms\", keep_order = false, distribution = \"two.dist\"",
            "",
            "median latency",
        ),
        ("ecn = 0.5", "client", "marked with congestion"),
        ("slow_close = \"700ms\"", "client", "to close"),
    ] {
        let fault = match from {
            "" => format!("link = \"wan\"\nset = {{ {set} }}"),
            host => format!("link = \"wan\"\nset = {{ {set} }}\nfrom = \"{host}\""),
        };
        let Some((seen, link)) = of_fault("keys", "delay = \"10ms\"", &fault, 0.0) else {
            return;
        };
        let shown_by = seen["shown_by"].as_str().unwrap();
        assert!(shown_by.contains(shown), "{set}: {seen}");
        for (way, host) in [("there", "client"), ("back", "server")] {
            let count = |key: &str| link[way][key].as_u64().unwrap_or(0);
            let met = count("lost") + count("ecn_marked") + count("fins_held");
            let meant = !set.contains("dist") && (from.is_empty() || from == host);
            assert_eq!(met > 0, meant, "{set} {way}: {link}");
        }
    }
}

/// Two hosts detect that they are partitioned for a while, over the link in both directions, and the load reaches its
/// target again afterwards.
#[test]
fn a_partition_is_noticed_by_both_hosts_and_ends() {
    let Some((seen, link)) = of_fault(
        "partition",
        "delay = \"1ms\"",
        "partition = [\"client\", \"server\"]",
        0.2,
    ) else {
        return;
    };
    let said = |key: &str| seen[key].as_str().unwrap_or_default().to_string();
    assert_eq!(
        (said("kind"), said("place")),
        ("partition".into(), "client and server".into())
    );
    for way in [
        "from client to server: 256 probe packets, 256 missing",
        "from server to client: 256 ",
    ] {
        assert!(said("shown_by").contains(way), "{seen}");
    }
    assert!(
        said("gone_by").contains(" packets stopped; from client to server: "),
        "{seen}"
    );
    for way in ["there", "back"] {
        assert!(
            link[way]["parted"].as_u64() >= Some(256)
                && link[way]["lost"].as_u64().unwrap_or(0) == 0,
            "{link}"
        );
    }
}

/// Connections reset in the name of one host are counted by the other host, and re-established.
#[test]
fn reset_connections_are_counted_and_reestablished() {
    for (from, to, way) in [("server", "client", "back"), ("client", "server", "there")] {
        let fault = format!("target = \"san\"\nreset = \"{from}\"");
        let Some((seen, link)) = of_fault("reset", "delay = \"1ms\"", &fault, 0.0) else {
            return;
        };
        let said = |key: &str| seen[key].as_str().unwrap_or_default().to_string();
        assert_eq!(
            (said("kind"), said("what")),
            (
                "reset".into(),
                format!("TCP reset from {from} to {to} of port {}", port(&seen))
            )
        );
        assert!(said("shown_by").contains(&format!("; {to}: ")), "{seen}");
        assert!(
            said("gone_by").contains("a new connection carried data both ways"),
            "{seen}"
        );
        assert!(link[way]["tcp_resets"].as_u64() > Some(0), "{link}");
    }
}

/// The port in a reset's description.
fn port(seen: &Value) -> u16 {
    let words = seen["what"].as_str().unwrap_or_default();
    words
        .rsplit(' ')
        .next()
        .and_then(|port| port.parse().ok())
        .unwrap_or_else(|| panic!("no port in {words}"))
}

/// The canary: a partition between hosts that can't reach each other anyway is not proven, nor is a reset if no
/// matching connection sends anything; the run is invalid.
#[test]
fn partitions_and_resets_without_effect_invalidate_the_run() {
    let dead = "[lab.links.dead]\nbetween = [\"client\", \"spare\"]\nloss = 1.0";
    for (link, fault, said) in [
        (
            dead,
            "partition = [\"spare\", \"client\"]",
            "packets are lost that should pass",
        ),
        (
            "",
            "reset = \"client\"\nto = \"server\"\nport = 9",
            "omit port",
        ),
    ] {
        let text = |slower| {
            with_fault(link, fault, slower)
                .replace("\"server\"]\ncores", "\"server\", \"spare\"]\ncores")
        };
        if !fails("not there", text, &[said, "had no visible effect"]) {
            return;
        }
    }
}

/// The canary: a link change without effect makes the experiment fail.
#[test]
fn a_link_change_without_effect_fails_the_experiment() {
    for (set, said) in [
        ("loss = 0.0000001", "had no visible effect"),
        ("rate = \"500Gb/s\"", "had no visible effect"),
        (
            "loss = 0.0000001, loss_gap = 9",
            "write loss = 0.000084 or more",
        ),
        (
            "loss = 0.0000001, loss_correlation = 0.5",
            "had no visible effect",
        ),
        (
            "jitter = \"100ns\", distribution = \"two.dist\"",
            "cannot be distinguished from",
        ),
        ("ecn = 0.0000001", "write ecn = 0.000084 or more"),
        ("slow_close = \"1us\"", "write slow_close = "),
    ] {
        let text = |slower| experiment("delay = \"10ms\"", set, slower);
        if !fails("unfelt", text, &[said, "had no visible effect"]) {
            return;
        }
    }
}

/// A shortened version of the four-sites example measures storage at the same site and behind a gateway 10 ms away.
#[test]
fn the_four_sites_example_measures_near_and_far_storage() {
    let _alone = alone(); // Compares latencies.
    let example = std::fs::read_to_string(support::root().join("examples/four-sites.toml"))
        .expect("the example");
    let short = example
        .replace("repetitions = 4", "repetitions = 1")
        .replace("[1, 16]", "[1]");
    let Some(result) = run("sites", &short) else {
        return;
    };
    let summary = result.unwrap();
    let points = summary["points"].as_array().unwrap();
    assert_eq!(points.len(), 4);
    for point in points {
        let least_us = point["runs"][0]["response"]["min_us"]
            .as_f64()
            .unwrap_or_else(|| panic!("{point}"));
        let near = point["label"].as_str().unwrap().starts_with("here");
        assert_eq!(least_us < 20_000.0, near, "{point}");
    }
}
