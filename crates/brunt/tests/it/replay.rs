//! `brunt replay` and replayed workloads, as a user runs them: figures, verdicts, mistakes, results.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::{bench, brunt, root, run_within, succeed};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A real trace: 4,031 requests from a MySQL server.
fn trace() -> PathBuf {
    root().join("testdata/mysql-minutes.load.gz")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The exit status of an interrupted replay says so, even if the replay was flawless, or empty, until then.
#[test]
fn an_interrupted_replay_does_not_succeed() {
    let mut child = brunt()
        .args(["--json", "replay"])
        .arg(trace())
        .arg("null:64GiB")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut notes = BufReader::new(child.stderr.take().expect("piped")).lines();
    let note = notes.next().expect("a note").expect("text");
    assert!(note.contains("4,031 requests"), "{note}");
    kill_process(Pid::from_child(&child), Signal::INT).expect("it replays for three minutes");
    let said: Vec<String> = notes.map(|line| line.expect("text")).collect();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{said:?}");
    let found = json(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(found["run"]["stopped"], "interrupted");
    // On a busy machine it may be late, and then it doesn't count as a replay.
    let verdict = found["verdict"].as_str().expect("a verdict");
    let reason = match verdict {
        "degraded" => format!("interrupted after {} of 4031 requests", found["requests"]),
        _ => "not a replay".to_string(),
    };
    assert!(said.iter().any(|line| line.contains(&reason)), "{said:?}");
    let first = found["fidelity"]["reasons"][0].as_str().expect("a reason");
    assert_eq!(
        first.contains("at this rate"),
        found["requests"].as_u64() > Some(1),
        "{first}"
    );
}

/// Standard error of a command that fails with this status.
fn refused(arguments: &[&str], status: i32) -> String {
    let output = brunt().args(arguments).output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{said}");
    said
}

/// Every timing mode sends the same requests; a busy machine affects at most the verdict.
#[test]
fn a_real_trace_is_replayed() {
    let trace = trace();
    let mut digests = Vec::new();
    for timing in [
        &["--speed", "100"][..],
        &["--as-fast-as-possible"],
        &["--timing", "dependency", "--speed", "100"],
    ] {
        let mut command = brunt();
        command
            .args(["--json", "replay"])
            .arg(&trace)
            .args(["null:64GiB", "--workers", "2"])
            .args(timing);
        // On a busy machine it may be late, which affects the verdict: the exit status is then 1.
        let answer = command.output().expect("the program runs");
        let found = json(&String::from_utf8_lossy(&answer.stdout));
        let fidelity = &found["fidelity"];
        assert_eq!(
            (&found["requests"], &fidelity["planned"]),
            (&4031.into(), &4031.into()),
            "{timing:?}"
        );
        assert_eq!(fidelity["completed"], 4031);
        assert_eq!(fidelity["digests"]["trace"], fidelity["digests"]["sent"]);
        digests.push(fidelity["digests"]["sent"].clone());
    }
    assert!(
        digests.iter().all(|digest| *digest == digests[0]),
        "{digests:?}"
    );
    // This one may be late, too.
    let packed = run_within(
        brunt().arg("replay").arg(&trace).args([
            "memory:1GiB",
            "--map",
            "pack",
            "--speed",
            "100",
            "--for",
            "60s",
        ]),
        60,
    );
    let text = String::from_utf8_lossy(&packed.stdout);
    assert!(
        text.contains("moved: packed") && text.contains("verdict      "),
        "{text}"
    );
    assert!(
        text.contains(", equal to that of the planned requests\n"),
        "{text}"
    );
    assert!(
        text.contains(" for the unmodified trace: the rows above show which requests were moved"),
        "{text}"
    );
    let text = succeed(
        brunt()
            .arg("replay")
            .arg(&trace)
            .args(["null:64GiB", "--as-fast-as-possible"]),
        60,
    );
    assert!(
        text.contains(", equal to the trace's\n") && !text.contains("not sent"),
        "{text}"
    );
    // This trace has no response times.
    assert!(
        text.contains("depth        ") && text.contains("(trace not known)"),
        "{text}"
    );
}

#[test]
fn mistakes_are_named_with_their_option() {
    let trace = trace();
    let trace = trace.to_str().expect("a plain path");
    let said = refused(&["replay", trace, "null:1GiB"], 2);
    assert!(
        said.contains("--map") && said.contains("pack") && said.contains("1GiB"),
        "{said}"
    );
    let said = refused(&["replay", trace, "null:64GiB", "--speed", "0"], 2);
    assert!(said.contains("--speed"), "{said}");
    let said = refused(&["replay", "/nowhere/at/all", "null:64GiB"], 2);
    assert!(said.contains("/nowhere/at/all"), "{said}");
    let said = refused(&["replay", trace, "null:64GiB", "--from", "1h"], 2);
    assert!(said.contains("--from"), "{said}");
    let said = refused(&["replay", trace, "null:64GiB", "--block", "4k"], 2);
    assert!(
        said.contains("--block: has no effect on blkreplay"),
        "{said}"
    );
    let said = refused(&["replay", trace, "null:64GiB", "--format", "spc"], 2);
    assert!(
        said.contains("read as spc") && said.contains("rows left out: not readable"),
        "{said}"
    );
    let said = refused(&["trace", "info", trace, "--event", "queued"], 2);
    assert!(
        said.contains("--event: has no effect on blkreplay"),
        "{said}"
    );
}

/// Options for details that a format leaves open have the same effect in `trace info`, in a replay and in an
/// experiment.
#[test]
fn options_settle_what_a_format_leaves_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("requests.csv");
    let rows: String = (0..50)
        .map(|row| format!("{},{},{}\n", row * 100, row * 7, 4096))
        .collect();
    std::fs::write(&path, rows + "not a row\n").expect("a file");
    let trace = path.to_str().expect("a plain path");
    let columns = "time-col=1, obj-id-col=2, obj-size-col=3, time-unit=us";
    let stated = ["--columns", columns, "--op", "write", "--block", "4k"];
    let mut command = brunt();
    let looked = json(&succeed(
        command
            .args(["--json", "trace", "info", trace])
            .args(stated),
        20,
    ));
    let end = 49 * 7 * 4096 + 4096;
    assert_eq!(
        (
            &looked["ops"]["write"]["requests"],
            &looked["footprint"]["end_bytes"]
        ),
        (&50.into(), &end.into())
    );
    let replay = |options: &[&str]| {
        let mut command = brunt();
        command
            .args(["--json", "replay", trace, "memory:1432KiB"])
            .args(options);
        let answer = command.output().expect("the program runs");
        json(&String::from_utf8_lossy(&answer.stdout))
    };
    let replayed = replay(&stated);
    assert_eq!(replayed["requests"], 50, "{replayed}");
    assert_eq!(
        replayed["fidelity"]["rows"]["left out: not readable"], 1,
        "{replayed}"
    );
    for (target, options, option, what) in [
        ("memory:1MiB", &stated[..], "--map: ", "pack"),
        ("memory:2MiB", &stated[..2], "--op: ", "read or write"),
        (
            "memory:2MiB",
            &["--format", "csv"],
            "--columns: ",
            "obj-id-col",
        ),
        (
            "memory:2MiB",
            &["--columns", columns, "--op", "read", "--strict"],
            "--strict: ",
            "row 51",
        ),
    ] {
        let said = refused(&[&["replay", trace, target], options].concat(), 2);
        assert!(said.contains(option) && said.contains(what), "{said}");
    }

    let experiment = |reading: &str| {
        let file = folder.path().join("stated.toml");
        let text = format!(
            "name = \"stated\"\nrepetitions = 1\n[targets.memory]\nurl = \"memory:2MiB\"\n[workloads.w]\n\
             trace = \"requests.csv\"\nreading = {{ columns = \"{columns}\"{reading} }}\n"
        );
        std::fs::write(&file, text).expect("a file");
        file
    };
    let (file, out) = (
        experiment(", op = \"write\", block = \"4k\""),
        folder.path().join("out"),
    );
    succeed(brunt().arg("run").arg(&file).arg("--out").arg(&out), 60);
    let summary = json(&std::fs::read_to_string(out.join("summary.json")).expect("a summary"));
    let digests = &summary["points"][0]["runs"][0]["replay"]["digests"];
    assert_eq!(
        digests["sent"], replayed["fidelity"]["digests"]["sent"],
        "{summary}"
    );
    for (reading, said) in [
        ("", "reading.op"),
        (
            ", op = \"write\", jiffies = 250",
            "reading.jiffies: has no effect on csv",
        ),
        (", op = \"write\", strict = true", "reading.strict"),
        (", opp = \"write\"", "did you mean op?"),
    ] {
        let file = experiment(reading);
        let answer = refused(&["run", "--check", file.to_str().expect("a plain path")], 2);
        assert!(answer.contains(said), "{reading}: {answer}");
    }
}

fn experiment(folder: &Path, keys: &str) -> PathBuf {
    let path = folder.join("replay.toml");
    let text = format!(
        "name = \"replayed\"\nrepetitions = 2\n[targets.memory]\nurl = \"memory:64GiB\"\n\
         [workloads.database]\ntrace = {:?}\nfor = \"30s\"\n{keys}\n[sweep]\nspeed = [50, 100]\n",
        trace()
    );
    std::fs::write(&path, text).expect("a file");
    path
}

/// An experiment with a replay records each run's fidelity in `summary.json`, in the table and on the page.
#[test]
fn an_experiment_records_the_fidelity_of_each_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, out) = (experiment(folder.path(), ""), folder.path().join("out"));
    succeed(
        brunt()
            .args(["--json", "run"])
            .arg(&file)
            .arg("--out")
            .arg(&out),
        120,
    );
    let summary = json(&std::fs::read_to_string(out.join("summary.json")).expect("a summary"));
    let points = summary["points"].as_array().expect("points");
    assert_eq!(points.len(), 2);
    for run in points
        .iter()
        .flat_map(|point| point["runs"].as_array().expect("runs"))
    {
        let replay = &run["replay"];
        assert_eq!(replay["planned"], replay["completed"], "{replay}");
        assert_eq!(replay["digests"]["trace"], replay["digests"]["sent"]);
        assert!(!replay["over_time"].as_array().expect("moments").is_empty());
    }
    assert!(out.join("replay").is_dir());
    let page = std::fs::read_to_string(out.join("report.html")).expect("the page");
    assert!(page.contains("Replay fidelity") && page.contains("Verdicts"));
}

/// The same 500 requests as a table, as SPC and in each format to which SPC can be converted: the requests sent are
/// the requests in the trace, and all formats agree. (Times are in microseconds, which all formats support.)
#[test]
fn one_trace_in_every_format_is_the_same_replay() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| {
        folder
            .path()
            .join(name)
            .to_str()
            .expect("a plain path")
            .to_string()
    };
    let (mut table, mut spc) = (String::new(), String::new());
    for row in 0..500u64 {
        let (time, block, bytes) = (row * row * 10, row * 7919 % 9973, 512 * (1 + row % 64));
        let op = if row % 3 == 0 { "R" } else { "W" };
        table += &format!("{time},{op},{bytes},{block}\n");
        spc += &format!(
            "0,{block},{bytes},{op},{}.{:06}\n",
            time / 1_000_000,
            time % 1_000_000
        );
    }
    std::fs::write(path("x.csv"), table).expect("a file");
    std::fs::write(path("x.spc"), spc).expect("a file");
    let columns = "time-col=1, op-col=2, obj-size-col=3, obj-id-col=4, time-unit=us";
    let mut forms = vec![
        (path("x.csv"), vec!["--columns", columns]),
        (path("x.spc"), vec![]),
    ];
    for form in [
        "vscsi1",
        "iolog2",
        "iolog3",
        "msr",
        "blkreplay",
        "hfplayer",
        "parquet",
    ] {
        let out = path(form);
        succeed(
            brunt().args([
                "trace",
                "convert",
                &path("x.spc"),
                "--to",
                form,
                "--out",
                &out,
            ]),
            20,
        );
        forms.push((out, vec![]));
    }
    let replay = |(trace, options): &(String, Vec<&str>)| {
        let mut command = brunt();
        command
            .args([
                "--json",
                "replay",
                trace,
                "null:1GiB",
                "--as-fast-as-possible",
            ])
            .args(options);
        let found = json(&succeed(&mut command, 20));
        assert_eq!(
            (&found["requests"], &found["verdict"]),
            (&500.into(), &"true".into()),
            "{trace}"
        );
        let digests = &found["fidelity"]["digests"];
        assert_eq!(
            (&digests["trace"], &digests["trace"]),
            (&digests["planned"], &digests["sent"]),
            "{trace}"
        );
        digests["sent"].clone()
    };
    let first = replay(&forms[0]);
    for form in &forms[1..] {
        assert_eq!(replay(form), first, "{}", form.0);
    }
}

/// A trace that alternates between three devices: 60 requests each.
fn three_devices(folder: &Path) -> String {
    let path = folder.join("server.iolog");
    let mut text = String::from("fio version 3 iolog\n");
    for device in ["/dev/a", "/dev/b", "/dev/c"] {
        text += &format!("0 {device} add\n0 {device} open\n");
    }
    for at in 0..180u64 {
        let device = ["a", "b", "c"][at as usize % 3];
        text += &format!("{} /dev/{device} write {} 4096\n", at * 100, at / 3 * 4096);
    }
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("a plain path").to_string()
}

/// The devices of a trace are routed to the targets named for them, in one replay.
#[test]
fn devices_of_a_trace_go_to_their_targets() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = three_devices(folder.path());
    let file = folder.path().join("a.img");
    std::fs::File::create(&file)
        .and_then(|file| file.set_len(1 << 20))
        .expect("a file");
    let to_file = format!("/dev/a={}", file.display());
    let mut command = brunt();
    command.args([
        "--json",
        "replay",
        &trace,
        "--device",
        &to_file,
        "--device",
        "/dev/c=memory:2MiB",
    ]);
    let answer = command.output().expect("the program runs");
    let found = json(&String::from_utf8_lossy(&answer.stdout));
    assert_eq!(found["target"], format!("{} + memory:2MiB", file.display()));
    let fidelity = &found["fidelity"];
    assert_eq!(
        (&found["requests"], &fidelity["completed"]),
        (&120.into(), &120.into()),
        "{found}"
    );
    assert_eq!(
        fidelity["rows"]["left out: of a device that is not replayed here"], 60,
        "{found}"
    );
    assert_eq!(fidelity["digests"]["trace"], fidelity["digests"]["sent"]);
    let told = fidelity["devices"].as_array().expect("devices");
    let of = |at: usize| {
        (
            told[at]["device"].as_str(),
            told[at]["target"].as_str(),
            told[at]["sent"].as_u64(),
        )
    };
    assert_eq!(told.len(), 2);
    assert_eq!(of(0), (Some("/dev/a"), file.to_str(), Some(60)));
    assert_eq!(of(1), (Some("/dev/c"), Some("memory:2MiB"), Some(60)));
    let written = std::fs::read(&file).expect("a file");
    assert!(
        written[..60 * 4096]
            .chunks(4096)
            .all(|block| block.iter().any(|byte| *byte != 0))
    );
    assert!(written[60 * 4096..].iter().all(|byte| *byte == 0));

    // A target that is only read is opened read-only, regardless of its contents and of writes to other targets.
    let path = folder.path().join("mixed.iolog");
    let mut text = String::from("fio version 3 iolog\n0 /dev/a add\n0 /dev/b add\n");
    for at in 0..20u64 {
        let (device, action) = if at % 2 == 0 {
            ("a", "read")
        } else {
            ("b", "write")
        };
        text += &format!("{} /dev/{device} {action} {} 4096\n", at * 100, at * 4096);
    }
    std::fs::write(&path, text).expect("a file");
    let mixed = path.to_str().expect("a plain path");
    let mut held = vec![0; 1 << 20];
    // Looks like an ext4 file system because of its magic number.
    (held[1080], held[1081]) = (0x53, 0xef);
    std::fs::write(&file, &held).expect("a file");
    let read_only = format!("{to_file}?read_only=yes");
    for read in [&to_file, &read_only] {
        let mut command = brunt();
        command.args([
            "--json",
            "replay",
            mixed,
            "--device",
            read,
            "--device",
            "/dev/b=memory:1MiB",
        ]);
        let answer = command.output().expect("the program runs");
        let found = json(&String::from_utf8_lossy(&answer.stdout));
        assert_eq!(found["fidelity"]["completed"], 20, "{read}: {found}");
    }
    assert_eq!(std::fs::read(&file).expect("a file"), held);
    let written = to_file.replace("/dev/a=", "/dev/b=");
    let said = refused(
        &[
            "replay",
            mixed,
            "--device",
            "/dev/a=memory:1MiB",
            "--device",
            &written,
        ],
        2,
    );
    assert!(said.contains("--overwrite"), "{said}");
    std::fs::write(&file, vec![0; 1 << 20]).expect("a file");
    let written = read_only.replace("/dev/a=", "/dev/b=");
    let said = refused(
        &[
            "replay",
            mixed,
            "--device",
            "/dev/a=memory:1MiB",
            "--device",
            &written,
        ],
        2,
    );
    assert!(said.contains("read-only"), "{said}");

    let replay = |arguments: &[&str]| refused(&[&["replay", &trace], arguments].concat(), 2);
    for (arguments, said) in [
        (&["--device", "/dev/a"][..], "NAME=TARGET"),
        (
            &["--device", "/dev/z=null:1GiB"],
            "--device: the trace has no device /dev/z; its first devices are /dev/a",
        ),
        (
            &[
                "--device",
                "/dev/a=null:1GiB",
                "--device",
                "/dev/a=null:2GiB",
            ],
            "/dev/a is named twice",
        ),
        (
            &["null:1GiB", "--device", "/dev/a=null:1GiB"],
            "cannot be used with",
        ),
        (
            &[
                "--device",
                "/dev/a=null:1GiB",
                "--device",
                "/dev/b=memory:64KiB",
            ],
            "beyond memory:64KiB",
        ),
        (
            &[
                "--device",
                "/dev/a=memory:512B",
                "--device",
                "/dev/b=memory:1MiB?block=4096",
            ],
            "less than one block of",
        ),
        (&[], "TARGET"),
    ] {
        let answer = replay(arguments);
        assert!(answer.contains(said), "{arguments:?}: {answer}");
    }
}

/// An experiment opens a target for writing only if the trace writes to it, regardless of writes to other targets.
#[test]
fn a_target_that_is_only_read_is_opened_read_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut text = String::from("fio version 3 iolog\n0 /dev/a add\n0 /dev/b add\n");
    for at in 0..20u64 {
        let (device, action) = if at % 2 == 0 {
            ("a", "read")
        } else {
            ("b", "write")
        };
        text += &format!("{} /dev/{device} {action} {} 4096\n", at * 100, at * 4096);
    }
    std::fs::write(folder.path().join("mixed.iolog"), text).expect("a file");
    let image = folder.path().join("a.img");
    let mut held = vec![0; 1 << 20];
    // Looks like an ext4 file system because of its magic number.
    (held[1080], held[1081]) = (0x53, 0xef);
    std::fs::write(&image, &held).expect("a file");
    let experiment = |read: &str, write: &str| {
        let file = folder.path().join("x.toml");
        let text = format!(
            "name = \"x\"\nrepetitions = 1\n[targets.read]\nurl = \"{read}\"\n[targets.write]\nurl = \"{write}\"\n\
             [workloads.w]\ntrace = \"mixed.iolog\"\n\
             devices = {{ \"/dev/a\" = \"read\", \"/dev/b\" = \"write\" }}\n"
        );
        std::fs::write(&file, text).expect("a file");
        file.to_str().expect("a plain path").to_string()
    };
    let url = image.to_str().expect("a plain path");
    for (number, read) in [url.to_string(), format!("{url}?read_only=yes")]
        .iter()
        .enumerate()
    {
        let file = experiment(read, "memory:1MiB");
        for check in ["--check", "--check=open"] {
            let plan = json(&succeed(brunt().args(["--json", "run", check, &file]), 20));
            assert_eq!(
                plan["written"],
                serde_json::json!([["write", "memory:1MiB", false]]),
                "{plan}"
            );
        }
        let out = folder.path().join(format!("out-{number}"));
        succeed(brunt().args(["run", &file, "--out"]).arg(&out), 60);
        let summary = json(&std::fs::read_to_string(out.join("summary.json")).expect("a summary"));
        assert_eq!(
            summary["points"][0]["runs"][0]["replay"]["completed"], 20,
            "{summary}"
        );
    }
    assert_eq!(std::fs::read(&image).expect("a file"), held);
    let said = refused(&["run", &experiment("memory:1MiB", url)], 2);
    assert!(said.contains("allow_overwrite"), "{said}");
}

/// The check and the run reject a trace that doesn't fit in the same way, and the run leaves no folder behind.
#[test]
fn a_run_refuses_what_its_check_refuses() {
    let folder = tempfile::tempdir().expect("a folder");
    three_devices(folder.path());
    for (a, b, said) in [
        ("memory:64KiB", "memory:1MiB", "beyond a of 64KiB"),
        (
            "memory:512B",
            "memory:1MiB?block=4096",
            "less than one block of",
        ),
    ] {
        let file = folder.path().join("x.toml");
        let text = format!(
            "name = \"x\"\nrepetitions = 1\n[targets.a]\nurl = \"{a}\"\n[targets.b]\nurl = \"{b}\"\n\
             [workloads.w]\ntrace = \"server.iolog\"\nmap = \"{}\"\n\
             devices = {{ \"/dev/a\" = \"a\", \"/dev/b\" = \"b\" }}\n",
            if said.contains("beyond") {
                "as-is"
            } else {
                "pack"
            }
        );
        std::fs::write(&file, text).expect("a file");
        let (file, out) = (
            file.to_str().expect("a plain path"),
            folder.path().join("out"),
        );
        let out_text = out.to_str().expect("a plain path");
        for arguments in [
            &["run", "--check", file][..],
            &["run", "--check=open", file],
            &["run", file, "--out", out_text],
        ] {
            let answer = refused(arguments, 2);
            assert!(answer.contains(said), "{arguments:?}: {answer}");
        }
        assert!(!out.exists());
    }
}

/// `--check` reads the trace and compares it with the targets.
#[test]
fn a_check_compares_the_trace_with_the_targets() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = experiment(folder.path(), "");
    succeed(brunt().args(["--json", "run", "--check"]).arg(&good), 20);
    let text = std::fs::read_to_string(&good)
        .expect("a file")
        .replace("64GiB", "1GiB");
    std::fs::write(&good, text).expect("a file");
    let said = refused(&["run", "--check", good.to_str().expect("a plain path")], 2);
    assert!(said.contains("map") && said.contains("wrap"), "{said}");
}

/// The benchmark reports how well times were kept, and how fast a replay is; the figures themselves depend on this
/// machine. A long trace is replayed within 64 MiB.
#[test]
fn the_benchmark_measures_both_sides() {
    let mut command = bench();
    command.args([
        "--json",
        "replay",
        "--requests",
        "200",
        "--fast-requests",
        "1000000",
        "--rounds",
        "2",
    ]);
    let found = json(&succeed(&mut command, 120));
    let times = found["times"].as_array().expect("sides");
    assert!(
        times.len() >= 2 && times.iter().all(|side| side["drift"][0].is_number()),
        "{found}"
    );
    assert!(found["rates"]["replay"][0].as_f64() > Some(0.0), "{found}");
    // If the trace's million requests were all in memory at once, they would take up 56 MB in addition to the
    // buffers.
    assert!(
        found["memory_peak_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes <= 64 << 20),
        "{found}"
    );
}
