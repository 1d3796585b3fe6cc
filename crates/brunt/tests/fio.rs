//! The same job file with the real fio and with ours: the JSON has the same keys and types wherever a dashboard
//! looks, and the requests are as many.

mod support;

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::{TempDir, brunt, need, succeed};

/// Both documents of a job file: fio's and ours.
fn both(fio: &Path, folder: &TempDir, job: &str, plus: bool) -> (Value, Value) {
    let path = folder.join("job.fio");
    std::fs::write(&path, job).expect("a file");
    let format = if plus { "json+" } else { "json" };
    let theirs = succeed(Command::new(fio).arg(format!("--output-format={format}")).arg(&path), 60);
    let toml = folder.join("job.toml");
    let _ = std::fs::remove_file(&toml);
    succeed(brunt().arg("import-fio").arg(&path).arg("-o").arg(&toml), 20);
    let text =
        std::fs::read_to_string(&toml).expect("the experiment").replace("repetitions = 4", "repetitions = 1");
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
    // In the order of their names; ours are called after target and workload.
    let parse = |text: &str| -> Value {
        let mut document: Value =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let name =
            |job: &Value| job["jobname"].as_str().map(|name| name.rsplit(' ').next().map(str::to_string));
        document["jobs"].as_array_mut().expect("jobs").sort_by_key(name);
        document
    };
    (parse(&theirs), parse(&ours))
}

/// What of `theirs` is missing in `ours`, or is of another type. Keys that name a job's own options, disks,
/// or single latencies differ by nature.
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
                found.push(format!("{place} has {} entries, not {}", ours.len(), theirs.len()));
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

/// The same keys and types, as many requests, as many bytes; for each direction, and several jobs.
#[test]
fn same_shape_and_counts() {
    let Some(fio) = need("fio", "fio") else { return };
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
            let wanted = |job: &&Value| job["jobname"].as_str().is_some_and(|label| label.ends_with(name));
            jobs.iter().find(wanted).cloned().unwrap_or_else(|| panic!("{name} in {document}"))
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
                let sum: u64 = bins.as_object().expect("bins").values().filter_map(Value::as_u64).sum();
                assert_eq!(Some(sum), counted(&ours));
            }
        }
        let mixed = |document: &Value| {
            let job = job(document, "mixed");
            job["read"]["total_ios"].as_u64().zip(job["write"]["total_ios"].as_u64()).expect("counts")
        };
        for (reads, writes) in [mixed(&ours), mixed(&theirs)] {
            assert!(reads + writes <= 300 && (140..270).contains(&reads), "{reads} and {writes}");
        }
    }
}

/// What cannot be translated is told with its line, and the rest is kept; a mistake is status 2.
#[test]
fn remarks_are_told() {
    let folder = TempDir::new("fio");
    let path = folder.join("job.fio");
    std::fs::write(&path, "[a]\nioengine=null\nsize=1m\nfdatasync=1\n").expect("a file");
    let output = brunt().args(["--json", "import-fio"]).arg(&path).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("job.fio:4: fdatasync: write force_unit_access"),
        "{said}"
    );
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["remarks"][0]["key"], "fdatasync");
    std::fs::write(&path, "[a]\nrw=sideways\nsize=1m\n").expect("a file");
    let output = brunt().arg("import-fio").arg(&path).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("job.fio:2: rw=sideways: write read"));
}

/// Unmaps are fio's `trim` section and flushes its `sync`, and the terminal's table has a row for each kind.
#[test]
fn trims_and_flushes_are_shown() {
    let folder = TempDir::new("fio-trim");
    let toml = folder.join("trim.toml");
    let text = "name = \"trim\"\nrepetitions = 1\n[targets.disk]\nurl = \"memory:64MiB\"\n[workloads.w]\nread = 0.5\n\
                trim = 0.25\nflush_every = 10\nblocks = [{ size = \"8k\" }]\nstop = { requests = 2000 }\n";
    std::fs::write(&toml, text).expect("a file");
    let run = |out: &str, more: &[&str]| {
        let mut command = brunt();
        command.arg("run").arg(&toml).arg("--out").arg(folder.join(out)).args(more);
        succeed(&mut command, 60)
    };
    let document = run("fio", &["--output-format", "fio-json"]);
    let job = &serde_json::from_str::<Value>(&document).expect("JSON")["jobs"][0];
    let count = |section: &str, key: &str| job[section][key].as_u64().expect("a count");
    let (reads, writes, trims) =
        (count("read", "total_ios"), count("write", "total_ios"), count("trim", "total_ios"));
    let flushes = count("sync", "total_ios");
    assert_eq!(reads + writes + trims + flushes, 2000, "{job}");
    assert!(trims > 300 && flushes > 10, "{trims} trims, {flushes} flushes");
    assert_eq!(count("trim", "io_bytes"), trims * 8192);
    assert_eq!(job["trim"]["clat_ns"]["N"].as_u64(), Some(trims));
    assert!(job["trim"]["lat_ns"]["mean"].as_f64() > Some(0.0) && job["trim"]["iops"].as_f64() > Some(0.0));
    assert_eq!(job["sync"]["lat_ns"]["N"].as_u64(), Some(flushes));
    let table = run("table", &[]);
    for kind in ["  read ", "  write ", "  unmap ", "  flush "] {
        assert!(table.lines().any(|line| line.starts_with(kind)), "{kind} in {table}");
    }
}
