//! Runs the documented command lines that need one machine and little time, exactly as written, in a folder with the
//! files that they name. `cli::documented` tests that all other command lines parse.

#[path = "../../src/cli/documented/lines.rs"]
mod lines;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use self::lines::{DocumentedLine, documented};
use crate::sql::engine;
use crate::support::{TempDir, brunt, root, succeed};

/// Commands that finish quickly, so running them checks the files and folders they use.
const QUICK: [&[&str]; 18] = [
    &["agent", "init"],
    &["analyze"],
    &["capture", "-r"],
    &["compare"],
    &["history"],
    &["import-fio"],
    &["lake", "add"],
    &["lake", "check"],
    &["lake", "compact"],
    &["lake", "manifest"],
    &["lake", "repeat"],
    &["report"],
    &["run"],
    &["sql", "--list"],
    &["sql"],
    &["trace", "convert"],
    &["trace", "fit"],
    &["trace", "info"],
];

/// A folder with everything that the command lines may name.
fn place() -> TempDir {
    let place = TempDir::new("documented");
    let at = |name: &str| place.join(name);
    let (examples, data) = (root().join("examples"), root().join("testdata"));
    fs::create_dir(at("examples")).expect("a folder");
    for entry in fs::read_dir(&examples).expect("examples").flatten() {
        symlink(entry.path(), at("examples").join(entry.file_name())).expect("a link");
    }
    symlink(&data, at("testdata")).expect("a link");
    let texts = [
        (
            "job.fio",
            "[job]\nrw=randread\nfilename=disk.img\nsize=1m\nruntime=1\ntime_based\n",
        ),
        (
            "Financial1.spc.gz",
            "0,20941264,8192,W,0.551706\n0,20939840,8192,R,0.554041\n",
        ),
        (
            "day.csv",
            "1538323200,12910952,128,0,1063\n1538323201,5129952,8,1,1063\n",
        ),
        (
            "question.sql",
            "select operation, count(*) from operations group by operation",
        ),
        (
            "few.toml",
            "name = \"few\"\nrepetitions = 4\n[targets.t]\nurl = \"null:1MiB\"\n[workloads.w]\nstop = { requests = 100 }\n",
        ),
    ];
    for (name, text) in texts {
        fs::write(at(name), text).expect("a file");
    }
    symlink(data.join("mysql-minutes.load.gz"), at("mysql.load.gz")).expect("a link");
    symlink(data.join("nfs3-small.pcap.zst"), at("server.pcap.zst")).expect("a link");
    let run = |words: &[&str]| succeed(brunt().args(words).current_dir(place.join("")), 60);
    // The folder in which `brunt run examples/quick.toml` puts its results.
    let plan = run(&["--json", "run", "examples/quick.toml", "--check"]);
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("a plan");
    let results = plan["results"].as_str().expect("a folder").to_string();
    run(&["run", "few.toml", "--out", &results]);
    fs::create_dir(at("nightly")).expect("a folder");
    for name in ["before", "after", "x.results", "nightly/first"] {
        symlink(at(&results), at(name)).expect("a link");
    }
    symlink(at("few.toml"), at("my.toml")).expect("a link");
    run(&["capture", "-r", "server.pcap.zst", "--out", "DIR"]);
    let window = ["--window", "1h", "--reports", "REPORTS"];
    run(&[&["analyze", "server.pcap.zst"], &window[..]].concat());
    place
}

/// Whether to run a line: true if it is quick and the files that it reads are in the folder.
fn is_run(line: &DocumentedLine, place: &Path, duckdb: Option<&Path>) -> bool {
    let words: Vec<&str> = line.words[1..].iter().map(String::as_str).collect();
    let is_page = line
        .file
        .extension()
        .is_some_and(|extension| extension == "md");
    // The cluster examples use a different lake.
    if !is_page || line.is_mention || line.file.ends_with("clusters.md") {
        return false;
    }
    let Some(quick) = QUICK.iter().find(|quick| words.starts_with(quick)) else {
        return false;
    };
    let arguments = &words[quick.len()..];
    let is_elsewhere = arguments
        .iter()
        .any(|word| word.starts_with('/') || word.contains("://"));
    let is_slow = quick == &["run"] && !arguments.contains(&"--check");
    let lacks_engine = quick == &["sql"] && (duckdb.is_none() || arguments.contains(&"--engine"));
    if is_slow || lacks_engine {
        return false;
    }
    let needs_file = quick[0] != "agent" && quick != &["sql", "--list"];
    let has_file = arguments
        .iter()
        .take(2)
        .any(|word| place.join(word).exists());
    !is_elsewhere && (has_file || !needs_file)
}

#[test]
fn documented_commands_run_as_they_are_written() {
    let (place, duckdb) = (place(), engine());
    let mut count = 0;
    for line in documented(&root(), "brunt") {
        if is_run(&line, &place.join(""), duckdb.as_deref()) {
            let mut command = brunt();
            if let Some(folder) = &duckdb {
                command.env("BRUNT_DUCKDB", folder.join("duckdb"));
            }
            succeed(
                command.args(&line.words[1..]).current_dir(place.join("")),
                60,
            );
            count += 1;
        }
    }
    assert!(count >= 25, "only {count} were run");
}
