//! Runs the same job file with the real fio and with Brunt: the JSON has the same keys and types wherever a dashboard
//! looks, and the numbers of requests match.

use crate::support;
use std::path::Path;
use std::process::Command;

use crate::support::{TempDir, alone, brunt, need, succeed};
use serde_json::Value;

/// The JSON documents of a job file: fio's and Brunt's.
fn both(fio: &Path, folder: &TempDir, job: &str, plus: bool) -> (Value, Value) {
    let path = folder.join("job.fio");
    std::fs::write(&path, job).expect("a file");
    let format = if plus { "json+" } else { "json" };
    let theirs = succeed(
        Command::new(fio)
            .arg(format!("--output-format={format}"))
            .arg(&path),
        60,
    );
    let toml = folder.join("job.toml");
    let _ = std::fs::remove_file(&toml);
    succeed(
        brunt().arg("import-fio").arg(&path).arg("-o").arg(&toml),
        20,
    );
    let text = std::fs::read_to_string(&toml)
        .expect("the experiment")
        .replace("repetitions = 4", "repetitions = 1");
    std::fs::write(&toml, text).expect("a file");
    let results = folder.join("results");
    let _ = std::fs::remove_dir_all(&results);
    let mut command = brunt();
    command
        .arg("run")
        .arg(&toml)
        .arg("--out")
        .arg(&results)
        .args(["--output-format", &format!("fio-{format}")]);
    let ours = succeed(&mut command, 60);
    // Jobs are sorted by name; Brunt's names consist of target and workload.
    let parse = |text: &str| -> Value {
        let mut document: Value =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let name = |job: &Value| {
            job["jobname"]
                .as_str()
                .map(|name| name.rsplit(' ').next().map(str::to_string))
        };
        document["jobs"]
            .as_array_mut()
            .expect("jobs")
            .sort_by_key(name);
        document
    };
    (parse(&theirs), parse(&ours))
}

/// Collects the keys that `ours` lacks or has with another type. Keys for a job's own options, disks, or single
/// latencies differ by design.
fn differences(place: &str, theirs: &Value, ours: &Value, found: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            for (key, value) in theirs {
                let place = format!("{place}.{key}");
                match (key.as_str(), ours.get(key)) {
                    ("job options" | "global options" | "disk_util" | "bins", _) => {}
                    (_, None) => found.push(format!("{place} is missing")),
                    (_, Some(ours)) => differences(&place, value, ours, found),
                }
            }
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            if theirs.len() != ours.len() {
                found.push(format!(
                    "{place} has {} entries, not {}",
                    ours.len(),
                    theirs.len()
                ));
            }
            for (theirs, ours) in theirs.iter().zip(ours) {
                differences(&format!("{place}[]"), theirs, ours, found);
            }
        }
        (Value::Number(theirs), Value::Number(ours)) if theirs.is_f64() == ours.is_f64() => {}
        (Value::String(_), Value::String(_)) => {}
        _ => found.push(format!("{place} is {ours}, not of the type of {theirs}")),
    }
}

/// Both documents have the same keys and types, and the same numbers of requests and bytes, in each direction and
/// with several jobs.
#[test]
fn json_has_fios_keys_types_and_counts() {
    let Some(fio) = need("fio", "fio") else {
        return;
    };
    let folder = TempDir::new("fio");
    let file = folder.join("disk.img");
    let file = file.display();
    let global = format!("[global]\nfilename={file}\nsize=2m\nioengine=psync\n");
    let job = format!(
        "{global}[writes]\nrw=write\nbs=16k\n[reads]\nstonewall\nrw=randread\nbs=4k\nnorandommap\n\
         [mixed]\nstonewall\nrw=randrw\nrwmixread=70\nbssplit=4k/50:8k/50\nnorandommap\nnumber_ios=300\n"
    );
    for plus in [false, true] {
        let (theirs, ours) = both(&fio, &folder, &job, plus);
        let mut found = Vec::new();
        differences("", &theirs, &ours, &mut found);
        assert!(found.is_empty(), "{found:#?}");
        let job = |document: &Value, name: &str| {
            let jobs = document["jobs"].as_array().expect("jobs").clone();
            let wanted = |job: &&Value| {
                job["jobname"]
                    .as_str()
                    .is_some_and(|label| label.ends_with(name))
            };
            jobs.iter()
                .find(wanted)
                .cloned()
                .unwrap_or_else(|| panic!("{name} in {document}"))
        };
        for (name, side) in [("writes", "write"), ("reads", "read")] {
            let of = |document: &Value, key: &str| job(document, name)[side][key].as_u64();
            for key in ["io_bytes", "io_kbytes", "total_ios"] {
                assert_eq!(of(&ours, key), of(&theirs, key), "{name} {key}");
            }
            let counted = |document: &Value| job(document, name)[side]["clat_ns"]["N"].as_u64();
            assert_eq!(counted(&ours), counted(&theirs));
            if plus {
                let bins = &job(&ours, name)[side]["clat_ns"]["bins"];
                let sum: u64 = bins
                    .as_object()
                    .expect("bins")
                    .values()
                    .filter_map(Value::as_u64)
                    .sum();
                assert_eq!(Some(sum), counted(&ours));
            }
        }
        let mixed = |document: &Value| {
            let job = job(document, "mixed");
            job["read"]["total_ios"]
                .as_u64()
                .zip(job["write"]["total_ios"].as_u64())
                .expect("counts")
        };
        for (reads, writes) in [mixed(&ours), mixed(&theirs)] {
            assert!(
                reads + writes <= 300 && (140..270).contains(&reads),
                "{reads} and {writes}"
            );
        }
    }
}

/// The numbers of reads and writes of each job.
fn counts(document: &Value) -> Vec<(u64, u64)> {
    let jobs = document["jobs"].as_array().expect("jobs");
    let count = |job: &Value, side: &str| job[side]["total_ios"].as_u64().expect("a count");
    jobs.iter()
        .map(|job| (count(job, "read"), count(job, "write")))
        .collect()
}

/// Jobs that fio runs concurrently also run concurrently here. Each job makes as many requests as in fio, within the
/// same total time. If the file says so, an open-ended job ends with the first job that ends.
#[test]
fn jobs_of_a_file_run_at_once_as_in_fio() {
    let _alone = alone(); // Compares times.
    let Some(fio) = need("fio", "fio") else {
        return;
    };
    let folder = TempDir::new("fio");
    let file = folder.join("disk.img");
    let file = file.display();
    let global = format!(
        "[global]\nfilename={file}\nsize=4m\nioengine=psync\nbs=4k\nnorandommap\nruntime=2\ntime_based\n"
    );
    let job = format!(
        "{global}[reads]\nrw=randread\nrate_iops=300\n[writes]\nrw=randwrite\nrate_iops=100\nstartdelay=1\n"
    );
    let near = |ours: u64, theirs: u64| (ours as f64 - theirs as f64).abs() <= 0.05 * theirs as f64;
    let is_as_in_fio = || {
        let (theirs, ours) = both(&fio, &folder, &job, false);
        let mut found = Vec::new();
        differences("", &theirs, &ours, &mut found);
        assert!(found.is_empty(), "{found:#?}");
        let (theirs, ours) = (counts(&theirs), counts(&ours));
        assert_eq!((ours.len(), ours[0].1, ours[1].0), (2, 0, 0), "{ours:?}");
        println!("{ours:?}, fio: {theirs:?}");
        near(ours[0].0, theirs[0].0) && near(ours[1].1, theirs[1].1)
    };
    // A pause of the machine near the end of a job leaves fewer requests, in fio or here.
    let is_near = (0..4).any(|_| is_as_in_fio());
    assert!(is_near, "the numbers of requests differ each time");
    let read = || -> Vec<Value> {
        let text = std::fs::read_to_string(folder.join("results/summary.json")).expect("a summary");
        let summary: Value = serde_json::from_str(&text).expect("JSON");
        summary["points"].as_array().expect("points").clone()
    };
    let run = |point: &Value, key: &str| point["runs"][0][key].as_f64().expect("a figure");
    let points = read();
    assert_eq!(points.len(), 3);
    assert_eq!(points[1]["part_of"], points[0]["label"]);
    // Each job takes two seconds, and the second starts a second later: three seconds in total, not four.
    let seconds: Vec<f64> = points
        .iter()
        .map(|point| run(point, "measured_s"))
        .collect();
    assert_eq!(seconds, [3.0, 2.0, 2.0]);
    let all = points
        .iter()
        .map(|point| run(point, "measured_s") * run(point, "requests_per_second"));
    let all: Vec<f64> = all.collect();
    assert!((all[0] - all[1] - all[2]).abs() < 1e-6, "{all:?}");
    // A job without a limit continues until another one ends.
    let job = format!(
        "{global}exitall\n[short]\nrw=randread\nruntime=1\n[long]\nrw=randwrite\nruntime=30\n"
    );
    let (theirs, ours) = both(&fio, &folder, &job, false);
    for document in [theirs, ours] {
        let jobs = document["jobs"].as_array().expect("jobs");
        let long = jobs
            .iter()
            .filter_map(|job| job["job_runtime"].as_u64())
            .max();
        assert!(
            long.is_some_and(|long| (1000..15_000).contains(&long)),
            "{long:?}"
        );
    }
}

/// A file with an option that can't be translated is rejected, with the option's line; --lossy keeps the rest and
/// lists the losses.
#[test]
fn a_lossy_import_is_refused_unless_it_is_requested() {
    let folder = TempDir::new("fio");
    let path = folder.join("job.fio");
    std::fs::write(
        &path,
        "[a]\nioengine=null\nsize=1280m\nprio=7\n[b]\nioengine=cpuio\ncpuload=50\n",
    )
    .expect("a file");
    let refused = brunt()
        .arg("import-fio")
        .arg(&path)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(
        (refused.status.code(), refused.stdout.len()),
        (Some(2), 0),
        "{said}"
    );
    assert!(
        said.contains("job.fio:6: ioengine: engine cpuio burns") && said.contains("--lossy"),
        "{said}"
    );
    let output = brunt()
        .args(["--json", "import-fio", "--lossy"])
        .arg(&path)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("lost: ") && said.contains("job.fio:4: prio: requests have no I/O priority"),
        "{said}"
    );
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let lost = |remark: &&Value| remark["loss"] == true;
    let lost: Vec<&Value> = answer["remarks"]
        .as_array()
        .expect("remarks")
        .iter()
        .filter(lost)
        .collect();
    assert_eq!(
        lost.iter().map(|remark| &remark["key"]).collect::<Vec<_>>(),
        ["ioengine", "prio"]
    );
    assert_eq!(answer["experiment"]["targets"]["a"]["url"], "null:1280MiB");
    std::fs::write(&path, "[a]\nrw=sideways\nsize=1m\n").expect("a file");
    let output = brunt()
        .arg("import-fio")
        .arg(&path)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("job.fio:2: rw=sideways: write read"));
}

/// Each job file in testdata/fio is imported or rejected as its first line says, checked by the tool that does the
/// same for fio's own examples. Imported files can run, and the installed fio accepts them.
#[test]
fn job_files_are_imported_or_refused_for_one_option() {
    let Some(python) = need("python3", "python3") else {
        return;
    };
    let fio = need("fio", "fio");
    let folder = support::root().join("testdata/fio");
    let mut tool = Command::new(python);
    tool.arg(support::root().join("tools/fio-examples.py"))
        .arg(env!("CARGO_BIN_EXE_brunt"))
        .arg(&folder)
        .arg("--json");
    let answer: Value = serde_json::from_str(&succeed(&mut tool, 120)).expect("JSON");
    let files = answer["files"].as_array().expect("files");
    assert!(files.len() >= 17);
    for file in files {
        let path = folder.join(file["file"].as_str().expect("a name"));
        let text = std::fs::read_to_string(&path).expect("a job file");
        let expected = text
            .lines()
            .next()
            .expect("a line")
            .trim_start_matches("; ");
        let found = match file["option"].as_str() {
            Some("") => "imports".to_string(),
            option => {
                format!(
                    "{}: {}",
                    file["outcome"].as_str().expect("an outcome"),
                    option.unwrap_or_default()
                )
            }
        };
        assert_eq!(found, expected, "{file}");
        assert!(
            !file["why"]
                .as_str()
                .expect("a reason")
                .contains("more reason"),
            "{file}"
        );
        if found == "imports" {
            if let Some(fio) = &fio {
                succeed(Command::new(fio).arg("--parse-only").arg(&path), 60);
            }
            let folder = TempDir::new("fio");
            let toml = folder.join("job.toml");
            succeed(
                brunt().arg("import-fio").arg(&path).arg("-o").arg(&toml),
                20,
            );
            succeed(brunt().arg("run").arg(&toml).arg("--check"), 20);
        }
    }
}

/// Jobs whose requests follow an order make as many requests and bytes of each kind as in fio: holes, steps back,
/// zones, streams of reads and writes, separate files, visiting each block once, and jobs that end with others.
#[test]
fn ordered_requests_have_the_same_figures_as_in_fio() {
    let Some(fio) = need("fio", "fio") else {
        return;
    };
    let sides = |document: &Value| -> Vec<u64> {
        let jobs = document["jobs"].as_array().expect("jobs");
        let sum =
            |side: &str, key: &str| jobs.iter().filter_map(|job| job[side][key].as_u64()).sum();
        [
            ("read", "io_bytes"),
            ("read", "total_ios"),
            ("write", "io_bytes"),
            ("write", "total_ios"),
        ]
        .map(|(side, key)| sum(side, key))
        .to_vec()
    };
    for name in [
        "own-files",
        "backwards",
        "holes",
        "strided-zones",
        "each-block-once",
        "mixed-streams",
    ] {
        let folder = TempDir::new("fio");
        let text =
            std::fs::read_to_string(support::root().join(format!("testdata/fio/{name}.fio")));
        // fio puts files without a folder here, as Brunt does.
        let place = format!(
            "[global]\ndirectory={}\nioengine=psync\n",
            folder.join("").display()
        );
        if name == "strided-zones" {
            std::fs::write(folder.join("zones.img"), vec![7; 17 << 20]).expect("a file");
        }
        let (theirs, ours) = both(&fio, &folder, &(place + &text.expect("a job file")), false);
        let (theirs, ours) = (sides(&theirs), sides(&ours));
        if name == "mixed-streams" {
            // Reads and writes are chosen at random, so only their totals match.
            assert_eq!(
                (ours[0] + ours[2], ours[1] + ours[3]),
                (theirs[0] + theirs[2], theirs[1] + theirs[3])
            );
            assert!(
                ours[1] > 2 * ours[3] && theirs[1] > 2 * theirs[3],
                "{ours:?}, fio: {theirs:?}"
            );
        } else {
            assert_eq!(ours, theirs, "{name}");
        }
    }
}

/// fio's syntax and Brunt's agree: what fio accepts is imported, fits its target, and runs; sizes are exact.
#[test]
fn files_that_fio_accepts_are_imported_and_run() {
    let folder = TempDir::new("fio");
    let fio = need("fio", "fio");
    let path = folder.join("job.fio");
    let disk = folder.join("disk.img");
    std::fs::write(&disk, vec![7; 1 << 20]).expect("a disk");
    let file = disk.display();
    for job in [
        "[a]\nioengine=null\nsize=1280m ; exactly\nrw=randread\nnumber_ios=100\n".to_string(),
        "[a]\nioengine=null\nsize=1m\nbs=$pagesize\nrw=randread\nrandom_distribution=zoned:50/5:30/15:20/\n"
            .into(),
        format!("[global]\nfilename={file}\nbs=4k\n[a]\nrw=randwrite\nverify=md5\n[b]\nstonewall\nrw=read\n"),
        format!("[a]\nfilename={file}\nrw=randtrim\nbs=64k\n"),
        format!(
            "[global]\nfilename={file}\n[a]\nrw=write\n[b]\nwait_for=a\nrw=randrw\nbssplit=4k/50:8k/\nnumjobs=2\n"
        ),
        format!("[a]\nfilename={file}\nrate=100m\nnumber_ios=10\nfsync=4\nrw=write\n"),
    ] {
        std::fs::write(&path, &job).expect("a file");
        if let Some(fio) = &fio {
            succeed(Command::new(fio).arg("--parse-only").arg(&path), 60);
        }
        let toml = folder.join("job.toml");
        let _ = std::fs::remove_file(&toml);
        succeed(brunt().arg("import-fio").arg(&path).arg("-o").arg(&toml), 20);
        succeed(brunt().arg("run").arg(&toml).arg("--check"), 20);
        let text = std::fs::read_to_string(&toml).expect("the experiment");
        std::fs::write(&toml, text.replace("repetitions = 4", "repetitions = 1")).expect("a file");
        let results = folder.join("results");
        let _ = std::fs::remove_dir_all(&results);
        succeed(brunt().arg("run").arg(&toml).arg("--out").arg(&results).current_dir(folder.join("")), 60);
    }
}
