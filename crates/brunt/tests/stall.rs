//! A target that stalls for a second, as loops see it: fio's closed loop, ours, and our open loop.

mod support;

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Target, TempDir, brunt, eventually, need, root, run_within};

/// A process that is gone at the end.
struct Guarded(std::process::Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The goal: fio, in a closed loop, meets the stall of our target once and does not show it in its p99.9.
#[test]
fn fio_does_not_show_it() {
    let Some(fio) = need("fio", "fio") else { return };
    let Some(qemu) = need("qemu-nbd", "qemu-utils and qemu-block-extra") else { return };
    let folder = TempDir::new("stall");
    let target = Target::start(&["--lun", "memory:64MiB"]);
    // fio of Debian speaks NBD and no iSCSI; qemu-nbd stands between.
    let socket = folder.join("nbd.sock");
    let mut nbd = Command::new(qemu);
    nbd.args(["--persistent", "-f", "raw", "-k"]).arg(&socket).arg(target.url(0)).stderr(Stdio::null());
    let _nbd = Guarded(nbd.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("qemu-nbd starts"));
    eventually("qemu-nbd listens", 20, || socket.exists());
    let mut command = Command::new(fio);
    command.args([
        "--name=closed",
        "--ioengine=nbd",
        "--rw=randread",
        "--bs=4k",
        "--size=64m",
        "--time_based",
    ]);
    command.args(["--runtime=4", "--norandommap", "--output-format=json"]);
    command.arg(format!("--uri=nbd+unix:///?socket={}", socket.display()));
    let pid = Pid::from_raw(target.id() as i32).expect("a process's number");
    let stalling = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1500));
        kill_process(pid, Signal::STOP).expect("it is ours");
        std::thread::sleep(Duration::from_secs(1));
        kill_process(pid, Signal::CONT).expect("it is ours");
    });
    let output = run_within(&mut command, 60);
    stalling.join().expect("no panic");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Its NBD engine says hello first.
    let text = String::from_utf8_lossy(&output.stdout);
    let document = &text[text.find('{').unwrap_or_else(|| panic!("no JSON: {text}"))..];
    let document: Value = serde_json::from_str(document).expect("JSON");
    let latencies = &document["jobs"][0]["read"]["clat_ns"];
    let (max, p99_9) = (&latencies["max"], &latencies["percentile"]["99.900000"]);
    println!("fio: {} requests, p99.9 {p99_9} ns, max {max} ns", latencies["N"]);
    assert!(max.as_u64() > Some(500_000_000), "the stall did not reach fio: {latencies}");
    assert!(p99_9.as_u64() < Some(500_000_000), "{latencies}");
}

/// The goal: of the example, our own closed loop does not show the stall either, and the open loop does.
#[test]
fn our_open_loop_shows_it() {
    let folder = TempDir::new("stall");
    let example = std::fs::read_to_string(root().join("examples/stall.toml")).expect("the example");
    let short = example.replace("repetitions = 4", "repetitions = 1").replace("\"4s\"", "\"3s\"");
    // As many requests as the machine can make: one of them is late in the closed loop.
    let short = short.replace("?delay=const:200us", "");
    let path = folder.join("stall.toml");
    std::fs::write(&path, short).expect("a file");
    let output =
        run_within(brunt().args(["--json", "run"]).arg(&path).arg("--out").arg(folder.join("results")), 60);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let p99_9 = |workload: &str| {
        let points = summary["points"].as_array().expect("points");
        let point = points.iter().find(|point| point["workload"] == workload).expect("the workload");
        let response = &point["response"];
        // A busy machine freezes a little late: half of it is enough to tell.
        assert!(response["max_us"].as_f64() > Some(500_000.0), "no stall in {workload}: {response}");
        response["p99_9_us"].as_f64().expect("a figure")
    };
    let (closed, open) = (p99_9("closed"), p99_9("open"));
    println!("ours: closed p99.9 {closed} us, open p99.9 {open} us");
    assert!(closed < 500_000.0 && open > 500_000.0, "closed {closed}, open {open}");
}
