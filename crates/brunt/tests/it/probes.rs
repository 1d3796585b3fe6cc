//! Probes through the whole program: a lab's effects on packets, and a target's costs, appear in the figures of the
//! right host and process.

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{alone, was_in_time};

fn run(experiment: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("x.toml");
    std::fs::write(&file, experiment).expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_brunt"))
        .args(["--json", "run"])
        .arg(&file)
        .output();
    output.expect("the program runs")
}

fn probes(output: &Output) -> Value {
    let summary: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    summary["points"][0]["runs"][0]["probes"].clone()
}

/// If a link loses one packet in twenty in the direction of the data, the sender, and only the sender, retransmits
/// about that share or more; each lab host reports only its own network.
#[test]
fn loss_shows_as_retransmissions() {
    let _alone = alone(); // Compares rates.
    const LOSS: f64 = 0.05;
    let output = run(&format!(
        "name = \"x\"\nrepetitions = 1\n[lab]\nhosts = [\"client\", \"server\"]\nworker = \"client\"\n\
             [lab.links.wire]\nbetween = [\"client\", \"server\"]\nloss = {LOSS}\n\
             [targets.t]\nserve = \"null:1GiB\"\nhost = \"server\"\n\
             [workloads.w]\nblocks = [{{ size = \"64k\" }}]\nqueue_depth = 4\nstop = {{ requests = 400 }}\n\
             [probes]\ninterval = \"100ms\"\n"
    ));
    if !output.status.success()
        && std::env::var_os("BRUNT_REQUIRE_ALL").is_none_or(|value| value != "1")
    {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("namespace") || said.contains("tun"), "{said}");
        println!("skipped: needs user namespaces and /dev/net/tun");
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let probes = probes(&output);
    let of = |host: &str, key: &str| probes["hosts"][host][key].as_f64();
    // 26 MB are about 18,000 segments, so by chance alone the retransmitted share can't fall to half of the loss.
    // There is no comparable upper bound: on a busy machine, acknowledgements come late, and TCP retransmits segments
    // that were not lost.
    let share = |host| of(host, "tcp.retransmitted_share").expect("both hosts send segments");
    assert!((LOSS / 2.0..1.0).contains(&share("server")), "{probes:#}");
    assert!(share("client") < share("server"), "{probes:#}");
    let bytes = |host, key: &str| of(host, &format!("network.link0.{key}")).expect("a link");
    assert!(bytes("server", "sent_bytes_per_s") > 5.0 * bytes("server", "received_bytes_per_s"));
    assert!(bytes("client", "received_bytes_per_s") > 5.0 * bytes("client", "sent_bytes_per_s"));
    assert!(of("local", "cpu.busy_share").is_some() && of("server", "cpu.busy_share").is_none());
    assert!(of("local", "tcp.sent_segments_per_s").is_none());
    // The server's figures are separate from the client's.
    assert!(
        of("server", "process.t.resident_bytes").is_some_and(|bytes| bytes > 1e5),
        "{probes:#}"
    );
    assert!(
        of("local", "process.runner.voluntary_switches_per_s").is_some_and(|count| count > 0.0)
    );
}

/// Probes can be disabled or selected.
#[test]
fn probes_can_be_turned_off_or_selected() {
    let experiment = |probes: &str| {
        format!(
            "name = \"x\"\nrepetitions = 1\n[targets.t]\nurl = \"null:1GiB\"\n[workloads.w]\n\
             stop = {{ time = \"300ms\" }}\n[probes]\n{probes}\n"
        )
    };
    let output = run(&experiment("interval = \"0s\""));
    assert!(
        output.status.success() && probes(&output).is_null(),
        "{output:?}"
    );
    // A run shorter than its interval has one sample, which covers all of it.
    let output = run(&experiment("only = [\"activity\", \"memory\"]"));
    let some = probes(&output);
    let keys = some["hosts"]["local"].as_object().expect("figures").keys();
    assert!(
        keys.clone()
            .all(|key| key.starts_with("activity.") || key.starts_with("memory.")),
        "{some:#}"
    );
    assert!(
        keys.count() > 5 && some["samples"].as_u64() >= Some(1),
        "{some:#}"
    );
}

/// Statistics of device components are recorded like any probe, even for a served target whose process is killed
/// meanwhile: its counters restart, and that interval has no rate.
#[test]
fn parts_of_served_devices_are_recorded() {
    let text = |slower: u32| {
        let ms = |ms: u32| ms * slower;
        format!(
            "name = \"x\"\nrepetitions = 1\n[targets.t]\nserve = [\"null:1MiB\", \"memory:8MiB?fault=off\"]\nlun = 1\n\
             [workloads.w]\nqueue_depth = 4\nretry = {{ count = 1000, on = \"any\" }}\ninterval = \"100ms\"\n\
             stop = {{ time = \"{}ms\" }}\n[probes]\ninterval = \"50ms\"\nonly = [\"device\"]\n\
             [[fault]]\ntarget = \"t\"\nstorage = \"busy,p=0.5\"\nat = \"{}ms\"\nfor = \"{}ms\"\n\
             [[fault]]\ntarget = \"t\"\nkill = true\nat = \"{}ms\"\nfor = \"{}ms\"\n",
            ms(2000),
            ms(200),
            ms(500),
            ms(1000),
            ms(200)
        )
    };
    let (mut probes, mut instead) = (Value::Null, String::new());
    // On a busy machine, a fault may come too late for its run, or all injections between the two samples before and
    // after the kill; then repeat with more time.
    for slower in [1, 2, 4, 8] {
        let output = run(&text(slower));
        instead = String::from_utf8_lossy(&output.stderr).into_owned();
        if !was_in_time(output.status.success(), &instead) {
            continue;
        }
        probes = self::probes(&output);
        let injected = &probes["hosts"]["local"]["device.t:1/fault.injected_per_s"];
        if injected.as_f64() > Some(0.0) {
            break;
        }
        instead = format!("{probes:#}");
    }
    let figures = probes["hosts"]["local"].as_object();
    let figures = figures.unwrap_or_else(|| panic!("no figures: {instead}"));
    assert!(
        figures["device.t:1/fault.injected_per_s"].as_f64() > Some(0.0),
        "{probes:#}"
    );
    // No other probe was selected, and the other LUN has no components.
    assert!(
        figures
            .keys()
            .all(|key| key.starts_with("device.t:1/fault.")),
        "{probes:#}"
    );
}
