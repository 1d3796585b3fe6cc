//! A target that stalls for a second, as measured by fio's closed loop, Brunt's closed loop, and Brunt's open loop.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{
    Running, Target, TempDir, alone, brunt, eventually, need, processor_ticks, root, run_within,
    was_in_time,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// In a closed loop, fio encounters the stall of Brunt's target once, and doesn't show it in its p99.9.
#[test]
fn a_stall_does_not_show_in_fios_closed_loop() {
    let _alone = alone(); // Compares latencies.
    let Some(fio) = need("fio", "fio") else {
        return;
    };
    let Some(qemu) = need("qemu-nbd", "qemu-utils and qemu-block-extra") else {
        return;
    };
    let folder = TempDir::new("stall");
    let target = Target::start(&["--lun", "memory:64MiB"]);
    // Debian's fio speaks NBD but not iSCSI; qemu-nbd translates.
    let socket = folder.join("nbd.sock");
    let mut nbd = Command::new(qemu);
    nbd.args(["--persistent", "-f", "raw", "-k"])
        .arg(&socket)
        .arg(target.url(0))
        .stderr(Stdio::null());
    let _nbd = Running(
        nbd.stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("qemu-nbd starts"),
    );
    eventually("qemu-nbd listens", 20, || socket.exists());
    // Stop after a number of requests, not after a time: with fewer than a thousand, a single request would determine
    // the p99.9. If a busy machine makes more than one request late, repeat with a longer stall, so that it stands
    // out, and with more requests, so that only one of them in a thousand is affected.
    let mut seen = String::new();
    for (seconds, megabytes) in [(1, 16), (4, 64), (16, 256)] {
        let mut command = Command::new(&fio);
        command.args([
            "--name=closed",
            "--ioengine=nbd",
            "--rw=randread",
            "--bs=4k",
            "--size=64m",
        ]);
        command.args([
            "--norandommap",
            "--output-format=json",
            &format!("--io_size={megabytes}m"),
        ]);
        command.arg(format!("--uri=nbd+unix:///?socket={}", socket.display()));
        let id = target.id();
        let pid = Pid::from_raw(id as i32).expect("a process's number");
        let idle = processor_ticks(id);
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let stalling = std::thread::spawn(move || {
            // Do this once fio is working, which takes a while. If it has ended already, this attempt shows no stall.
            eventually("fio's requests reach the target", 60, || {
                is_over.load(Ordering::Relaxed) || processor_ticks(id) >= idle + 3
            });
            kill_process(pid, Signal::STOP).expect("it is ours");
            std::thread::sleep(Duration::from_secs(seconds));
            kill_process(pid, Signal::CONT).expect("it is ours");
        });
        let output = run_within(&mut command, 60);
        over.store(true, Ordering::Relaxed);
        stalling.join().expect("no panic");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        // fio's NBD engine prints a greeting first.
        let text = String::from_utf8_lossy(&output.stdout);
        let document = &text[text.find('{').unwrap_or_else(|| panic!("no JSON: {text}"))..];
        let document: Value = serde_json::from_str(document).expect("JSON");
        let latencies = &document["jobs"][0]["read"]["clat_ns"];
        let time = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{latencies}"));
        let (max, p99_9) = (
            time(&latencies["max"]),
            time(&latencies["percentile"]["99.900000"]),
        );
        seen = format!(
            "fio: {} requests, p99.9 {p99_9} ns, max {max} ns",
            latencies["N"]
        );
        println!("{seen}");
        let half = seconds * 500_000_000;
        if max > half && p99_9 < half {
            return;
        }
    }
    panic!("{seen}");
}

/// In the example, Brunt's closed loop doesn't show the stall either, but the open loop does.
#[test]
fn a_stall_shows_in_our_open_loop() {
    let _alone = alone(); // Compares latencies.
    let example = std::fs::read_to_string(root().join("examples/stall.toml")).expect("the example");
    // The closed loop makes as many requests as the machine can, and one of them is late.
    let short = example
        .replace("repetitions = 4", "repetitions = 1")
        .replace("?delay=const:200us", "");
    // On a busy machine, there may be so few requests that a single one determines the p99.9, or the stall may begin
    // late and be short, or after the run, which is then invalid. In all of these cases, repeat with a longer run.
    let mut seen = Vec::new();
    for seconds in [3, 12, 48] {
        let folder = TempDir::new("stall");
        let path = folder.join("stall.toml");
        std::fs::write(&path, short.replace("\"4s\"", &format!("\"{seconds}s\""))).expect("a file");
        let mut command = brunt();
        command
            .args(["--json", "run"])
            .arg(&path)
            .arg("--out")
            .arg(folder.join("results"));
        let output = run_within(&mut command, 60);
        let said = String::from_utf8_lossy(&output.stderr);
        if !was_in_time(output.status.success(), &said) {
            seen.push(said.into_owned());
            continue;
        }
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let of = |workload: &str| {
            let points = summary["points"].as_array().expect("points");
            let point = points
                .iter()
                .find(|point| point["workload"] == workload)
                .expect("the workload");
            let time = |key: &str| point["response"][key].as_f64().expect("a figure");
            let requests = point["runs"][0]["ops"][0]["completed"]
                .as_u64()
                .expect("a count");
            (requests, time("max_us") > 500_000.0, time("p99_9_us"))
        };
        let ((closed_count, closed_stalled, closed), (_, open_stalled, open)) =
            (of("closed"), of("open"));
        let stalled = closed_count > 2000 && closed_stalled && open_stalled;
        if stalled && closed < 500_000.0 && open > 500_000.0 {
            return;
        }
        seen.push(format!(
            "{closed_count} requests, stalled: {closed_stalled} and {open_stalled}, closed p99.9 {closed} us, open \
             p99.9 {open} us"
        ));
    }
    panic!("{seen:#?}");
}
