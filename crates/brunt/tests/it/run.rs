//! `brunt run` and `brunt verify` as a user runs them: a file in, figures out, mistakes reported, losses found.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Running, eventually};

fn brunt(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_brunt"))
        .args(arguments)
        .output()
        .expect("the program runs")
}

fn experiment(folder: &Path, url: &str, more: &str) -> String {
    let path = folder.join("x.toml");
    let text = format!(
        "name = \"x\"\nrepetitions = 2\n[targets.t]\nurl = \"{url}\"\n\
         [workloads.w]\nread = 0.5\nalign = \"4k\"\nqueue_depth = 4\nstop = {{ requests = 3000 }}\n{more}\n"
    );
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("a plain path").to_string()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// `--check` touches nothing, a run leaves its summary, and a second run doesn't overwrite it.
#[test]
fn a_run_leaves_its_summary_and_overwrites_none() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path();
    let file = experiment(folder, "memory:16MiB", "[sweep]\nworkers = [1, 2]");
    let results = folder.join("results");
    let out = results.to_str().expect("a plain path");
    let checked = json(&brunt(&["--json", "run", &file, "--out", out, "--check"]));
    assert_eq!(
        (&checked["runs"], checked["written"][0][1].as_str()),
        (&4.into(), Some("memory:16MiB"))
    );
    assert!(!results.exists());
    let run = brunt(&["--json", "run", &file, "--out", out]);
    assert!(run.status.success(), "{run:?}");
    let summary = json(&run);
    assert_eq!(
        (
            &summary["complete"],
            summary["points"].as_array().map(Vec::len)
        ),
        (&true.into(), Some(2))
    );
    for point in summary["points"].as_array().expect("points") {
        for run in point["runs"].as_array().expect("runs") {
            let ops = run["ops"].as_array().expect("kinds of operations");
            let done: u64 = ops
                .iter()
                .map(|op| op["completed"].as_u64().expect("a count"))
                .sum();
            assert_eq!(done, 3000);
        }
    }
    let again = brunt(&["run", &file, "--out", out]);
    assert_eq!(again.status.code(), Some(2));
    // The report page of a run is the same as the page generated from the files on disk.
    let page = std::fs::read_to_string(results.join("report.html")).expect("a page");
    assert!(
        page.contains("Complete: 4 of 4 runs")
            && page.contains("workers 2")
            && page.contains("Cumulative")
    );
    let elsewhere = folder.join("again.html");
    let made = json(&brunt(&[
        "--json",
        "report",
        out,
        "-o",
        elsewhere.to_str().expect("a plain path"),
    ]));
    assert_eq!(made["bytes"].as_u64(), Some(page.len() as u64));
    assert_eq!(std::fs::read_to_string(&elsewhere).expect("a page"), page);
    assert_eq!(
        brunt(&["report", folder.to_str().expect("a plain path")])
            .status
            .code(),
        Some(2)
    );
}

/// `--check` rejects what doesn't fit a target whose size is known without opening it, and creates nothing;
/// `--check=open` opens targets of unknown size.
#[test]
fn a_check_refuses_regions_that_do_not_fit() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path();
    let check = |url: &str, more: &str, how: &str| {
        let file = experiment(folder, url, more);
        let answer = brunt(&["run", &file, how]);
        let said = String::from_utf8_lossy(&answer.stdout).to_string()
            + &String::from_utf8_lossy(&answer.stderr);
        (answer.status.code(), said)
    };
    let region = "region = { length = \"1280m\" }";
    for url in [
        "null:1279MiB",
        "memory:1.2GiB",
        "file:/nowhere/disk.img?size=1GiB&create=yes",
    ] {
        let (status, said) = check(url, region, "--check");
        assert_eq!(status, Some(2), "{said}");
        assert!(
            said.contains("region: 1280MiB from offset 0B exceeds"),
            "{said}"
        );
    }
    let (status, said) = check("null:1280MiB", region, "--check");
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("duration depends on its requests and bytes"),
        "{said}"
    );
    assert!(said.contains("results would go to"), "{said}");
    assert!(
        !said.contains("0:00:00") && !said.contains("are written"),
        "{said}"
    );
    let (status, said) = check("null:1GiB?delay=nonsense", "", "--check");
    assert_eq!(status, Some(2), "{said}");
    // These facts are known only once the target is opened.
    let disk = folder.join("disk.img");
    let url = format!("file:{}?size=1MiB&create=yes", disk.display());
    let (status, said) = check("/nowhere/disk", "", "--check");
    assert!(
        status == Some(0) && said.contains("/nowhere/disk does not exist on this machine"),
        "{said}"
    );
    assert_eq!(check("/nowhere/disk", "", "--check=open").0, Some(2));
    assert_eq!(check(&url, "", "--check").0, Some(0));
    assert!(!disk.exists());
    let (status, said) = check(&url, "", "--check=open");
    assert!(status == Some(0) && disk.exists(), "{said}");
    let array = "array:raid1,[memory:1MiB],[memory:1MiB]";
    assert_eq!(check(array, region, "--check").0, Some(0));
    assert_eq!(check(array, region, "--check=open").0, Some(2));
    assert!(!folder.join("experiment.results").exists());
}

/// Trims, write-zeroes requests and flushes are made in the configured proportions, counted separately with the bytes
/// that they cover, and rejected if the target doesn't support them.
#[test]
fn other_kinds_of_requests_are_made_and_counted() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path();
    let disk = folder.join("disk.img");
    std::fs::write(&disk, vec![7; 1 << 20]).expect("a disk");
    for (name, url) in [
        ("memory", "memory:1MiB"),
        ("file", disk.to_str().expect("a plain path")),
    ] {
        let kinds = "trim = 0.2\nwrite_zeroes = 0.1\nflush_every = 10\nrecord_requests = true";
        let file = experiment(folder, url, kinds);
        let out = folder.join(name);
        let out = out.to_str().expect("a plain path");
        let plan = brunt(&["run", &file, "--check"]);
        let said = String::from_utf8_lossy(&plan.stdout).to_string();
        assert!(
            said.contains("50 % reads, 20 % trims, 10 % zeroes, a flush after 10 changes"),
            "{said}"
        );
        let run = brunt(&["--json", "run", &file, "--out", out]);
        assert!(run.status.success(), "{run:?}");
        let summary = json(&run);
        for run in summary["points"][0]["runs"].as_array().expect("runs") {
            let ops = run["ops"].as_array().expect("kinds of operations");
            let of = |kind: &str, what: &str| {
                let op = ops
                    .iter()
                    .find(|op| op["op"] == kind)
                    .unwrap_or_else(|| panic!("{kind} in {ops:?}"));
                op[what].as_u64().expect("a count")
            };
            let done = ["read", "write", "unmap", "write-zeroes", "flush"]
                .map(|kind| of(kind, "completed"));
            assert_eq!(done.iter().sum::<u64>(), 3000, "{name}: {ops:?}");
            let [reads, writes, trims, zeroes, flushes] = done;
            assert!(
                (1200..1700).contains(&reads) && (450..700).contains(&trims),
                "{done:?}"
            );
            assert!((200..400).contains(&zeroes) && writes > 400, "{done:?}");
            assert_eq!(flushes, (writes + trims + zeroes) / 10, "{done:?}");
            assert_eq!(
                [
                    of("unmap", "bytes"),
                    of("flush", "bytes"),
                    of("read", "bytes")
                ],
                [trims * 4096, 0, reads * 4096]
            );
            let moved =
                ((reads + writes) * 4096) as f64 / run["measured_s"].as_f64().expect("a time");
            let told = run["bytes_per_second"].as_f64().expect("a rate");
            assert!(
                (told / moved - 1.0).abs() < 0.05,
                "throughput is what was moved: {told}, not {moved}"
            );
        }
    }
    assert!(
        std::fs::read(&disk).expect("a disk").contains(&0),
        "what was trimmed reads as zeros"
    );
    let file = experiment(folder, "tcp://127.0.0.1:1", "trim = 0.6");
    let answer = brunt(&["run", &file]);
    let said = String::from_utf8_lossy(&answer.stderr);
    assert_eq!(answer.status.code(), Some(2), "{said}");
    assert!(
        said.contains("read, trim and write_zeroes sum to 1.1"),
        "{said}"
    );
}

/// A mistake is reported with file, line and a correction, and with exit status 2.
#[test]
fn a_mistake_is_reported_with_its_line_and_a_correction() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path();
    let file = experiment(folder, "memory:16MiB", "[sweep]\nqueue_dept = [1]");
    let answer = brunt(&["run", &file]);
    let said = String::from_utf8_lossy(&answer.stderr);
    assert_eq!(answer.status.code(), Some(2));
    assert!(
        said.contains("x.toml:11: ") && said.contains("did you mean queue_depth?"),
        "{said}"
    );
}

/// Acknowledged writes that were lost are found, and intact writes aren't reported.
#[test]
fn verify_finds_lost_writes() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path();
    let disk = folder.join("disk.img");
    let journals = folder.join("journals");
    let verify = format!("verify = {{ journal = \"{}\" }}", journals.display());
    let url = format!("file:{}?size=4MiB&create=yes&write_back=no", disk.display());
    let run = brunt(&["run", &experiment(folder, &url, &verify)]);
    assert!(run.status.success(), "{run:?}");
    // The second run overwrote the blocks of the first, so only its journal can be checked.
    let journal = journals.join("run-1");
    let device = format!("file:{}", disk.display());
    // Passing the folder of all runs is a likely mistake: the advice names the folder of a single run.
    let folder = journal.parent().expect("a folder");
    let told = brunt(&["verify", folder.to_str().expect("a plain path"), &device]);
    assert_eq!(told.status.code(), Some(2));
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(
        said.contains(&format!("such as {}", journal.display())),
        "{said}"
    );
    let judge = || {
        brunt(&[
            "--json",
            "verify",
            journal.to_str().expect("a plain path"),
            &device,
        ])
    };
    let good = judge();
    assert!(
        good.status.success() && json(&good)["kept"].as_u64() > Some(100),
        "{good:?}"
    );
    let mut bytes = std::fs::read(&disk).expect("the disk");
    bytes[..1 << 20].fill(0);
    std::fs::write(&disk, bytes).expect("the disk");
    let bad = judge();
    assert_eq!(bad.status.code(), Some(1));
    let verdict = json(&bad);
    assert!(verdict["lost"].as_u64() > Some(100), "{bad:?}");
    let extents = verdict["lost_extents"].as_array().expect("extents");
    assert!(
        extents
            .iter()
            .all(|one| one["found"] == "zeros" && one["stable"] == true),
        "{extents:?}"
    );
}

/// If a write-back cache loses writes, the unflushed ones are reported but aren't a failure, while lost flushed
/// writes are.
#[test]
fn verify_distinguishes_flushed_from_unflushed_writes() {
    let scratch = tempfile::tempdir().expect("a folder");
    for (flush_every, code) in [(0, 0), (50, 1)] {
        let folder = scratch.path().join(flush_every.to_string());
        std::fs::create_dir(&folder).expect("a folder");
        let (disk, journals) = (folder.join("disk.img"), folder.join("journals"));
        let url = format!(
            "file:{}?size=4MiB&create=yes&write_back=yes",
            disk.display()
        );
        let verify = format!(
            "flush_every = {flush_every}\nverify = {{ journal = \"{}\" }}",
            journals.display()
        );
        let run = brunt(&["run", &experiment(&folder, &url, &verify)]);
        assert!(run.status.success(), "{run:?}");
        // Simulates a power cut that lost the whole cache.
        std::fs::write(&disk, vec![0; 4 << 20]).expect("the disk");
        let journal = journals.join("run-1");
        let answer = brunt(&[
            "--json",
            "verify",
            journal.to_str().expect("a plain path"),
            &url,
        ]);
        assert_eq!(answer.status.code(), Some(code), "{answer:?}");
        let verdict = json(&answer);
        let count = |key: &str| verdict[key].as_u64().expect("a count");
        assert_eq!(
            (count("kept"), count("lost") > 0),
            (0, code == 1),
            "{verdict:#}"
        );
        // With flushes, few or no writes followed the last flush.
        assert!(
            flush_every > 0 || count("lost_unflushed") > 0,
            "{verdict:#}"
        );
    }
}

/// Rings work as specified in the file, which is visible in the number of system calls per request. If the file
/// leaves the mode open, the choice and its reason are recorded.
#[test]
fn rings_work_as_configured() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path();
    let disk = folder.join("disk.img");
    std::fs::write(&disk, vec![7; 1 << 20]).expect("a disk");
    let url = format!("file:{}", disk.display());
    let system_calls = |mode: &str| {
        let text = format!(
            "name = \"x\"\nrepetitions = 1\n[targets.t]\nurl = \"{url}\"\n[workloads.w]\n\
             ring = \"{mode}\"\nstop = {{ requests = 2000 }}\n[probes]\ninterval = \"0s\"\n"
        );
        let file = folder.join(format!("{mode}.toml"));
        std::fs::write(&file, text).expect("a file");
        let run = brunt(&["--json", "run", file.to_str().expect("a plain path")]);
        assert!(run.status.success(), "{run:?}");
        let point = &json(&run)["points"][0];
        let calls = point["runs"][0]["cost_per_request"]["system_calls"].as_f64();
        (point["ring"].clone(), calls.expect("a figure"))
    };
    let (ring, calls) = system_calls("interrupt");
    assert!(ring["mode"] == "interrupt" && calls > 0.9, "{calls}");
    let (ring, calls) = system_calls("sqpoll");
    assert!(ring["mode"] == "sqpoll" && calls < 0.5, "{calls}");
    let (ring, _) = system_calls("auto");
    assert_eq!(ring["trials"].as_array().map(Vec::len), Some(3), "{ring:#}");
    assert!(
        ring["mode"] != "auto"
            && ring["why"]
                .as_str()
                .is_some_and(|why| why.contains("interrupt "))
    );
}

/// One file under two names is the same storage: if both targets are used concurrently and at least one is written,
/// they are rejected, and the message names both.
#[test]
fn two_targets_with_one_storage_are_refused_if_one_is_written_at_the_same_time() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (file, link) = (scratch.path().join("f"), scratch.path().join("link"));
    std::fs::write(&file, vec![7; 1 << 20]).expect("a file");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    let together = "[together.g]\njobs = [{ workload = \"w\", target = \"a\" }, { workload = \"x\", target = \"b\" }]\n";
    let run = |first_reads: f64, second_reads: f64, group: &str| {
        let path = scratch.path().join("x.toml");
        let text = format!(
            "name = \"x\"\nrepetitions = 1\n[targets.a]\nurl = \"{}\"\n[targets.b]\nurl = \"{}\"\n\
             [workloads.w]\nread = {first_reads:?}\nstop = {{ requests = 10 }}\n\
             [workloads.x]\nread = {second_reads:?}\nstop = {{ requests = 10 }}\n\
             {group}",
            file.display(),
            link.display()
        );
        let text = match group {
            "" => text
                .replace("[targets.b]", "workloads = [\"w\"]\n[targets.b]")
                .replace("[workloads.w]", "workloads = [\"x\"]\n[workloads.w]"),
            _ => text,
        };
        std::fs::write(&path, text).expect("a file");
        let out = scratch
            .path()
            .join(format!("{first_reads}-{second_reads}-{}", group.len()));
        let run = brunt(&[
            "run",
            path.to_str().expect("plain"),
            "--out",
            out.to_str().expect("plain"),
        ]);
        (
            run.status.code(),
            String::from_utf8_lossy(&run.stderr).into_owned(),
        )
    };
    let (code, both) = run(0.0, 0.0, together);
    assert_eq!(code, Some(1), "{both}");
    assert!(
        both.contains("two targets or devices name the same storage"),
        "{both}"
    );
    let (code, one) = run(0.0, 1.0, together);
    assert_eq!(code, Some(2), "{one}");
    assert!(
        one.contains("targets 'a' and 'b' are the same storage"),
        "{one}"
    );
    let (code, none) = run(1.0, 1.0, together);
    assert_eq!(code, Some(0), "{none}");
    // Targets used one after the other are accepted.
    let (code, turns) = run(0.0, 1.0, "");
    assert_eq!(code, Some(0), "{turns}");
}

/// Exports with a small maximum request size are checked in pieces, and can be written.
#[test]
fn a_device_with_short_requests_is_checked_and_written() {
    let scratch = tempfile::tempdir().expect("a folder");
    let socket = scratch.path().join("socket");
    let server = Command::new("nbdkit")
        .args(["--foreground", "-U"])
        .arg(&socket)
        .args([
            "--filter=blocksize-policy",
            "memory",
            "64M",
            "blocksize-maximum=64K",
            "blocksize-error-policy=error",
        ])
        .spawn();
    let Ok(server) = server else {
        assert!(
            std::env::var_os("BRUNT_REQUIRE_ALL").is_none_or(|value| value != "1"),
            "needs nbdkit"
        );
        return println!("skipped: needs nbdkit");
    };
    let url = format!("nbd+unix:///?socket={}", socket.display());
    let server = Running(server);
    eventually("nbdkit listens", 20, || {
        UnixStream::connect(&socket).is_ok()
    });
    let write = |more: &[&str]| {
        brunt(&[&["io", "write", &url, "--bs", "64k", "--count", "4"], more].concat())
    };
    let first = write(&[]);
    let label = scratch.path().join("label");
    std::fs::write(&label, [[0; 32].as_slice(), b"ORCLDISK"].concat()).expect("a file");
    let marked = Command::new("nbdcopy").arg(&label).arg(&url).status();
    let second = write(&[]);
    drop(server);
    assert!(first.status.success(), "{first:?}");
    if marked.is_ok_and(|status| status.success()) {
        let told = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(
            !second.status.success() && told.contains("contains an Oracle ASM disk"),
            "{told}"
        );
    }
}
