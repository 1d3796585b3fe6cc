//! The tables that `brunt run` writes, as their readers see them: every query in docs/results.md in the real DuckDB,
//! even after a SIGKILL and on a full disk.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{TempDir, alone, brunt, busy, eventually, root, run_within, skip};
use brunt_lake::{Table, read_table};
use brunt_result::tables::{TABLES, histograms, intervals, requests, runs};
use serde_json::Value;

fn has_duckdb() -> bool {
    let ready = Command::new(root().join("tools/duckdb.sh"))
        .arg("--ready")
        .status();
    let ready = ready.is_ok_and(|status| status.success());
    if !ready {
        skip("duckdb (tools/duckdb.sh --prepare)");
    }
    ready
}

/// Every ```sql block on the page with its heading: first the views, then the queries.
fn queries() -> Vec<(String, String)> {
    let page = std::fs::read_to_string(root().join("docs/results.md")).expect("the page");
    let mut heading = String::new();
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("### ").or(line.strip_prefix("## ")) {
            heading = title.to_string();
        }
        if line == "```sql" {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push((heading.clone(), block.join("\n")));
        }
    }
    found
}

/// The rows that each statement returns, after creating the page's views.
fn ask(folder: &Path, statements: &[&str]) -> Vec<Vec<Value>> {
    let (_, views) = queries().swap_remove(0);
    let all: Vec<&str> = std::iter::once(views.as_str())
        .chain(statements.iter().copied())
        .collect();
    let mut duckdb = Command::new(root().join("tools/duckdb.sh"))
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the script starts");
    let input = serde_json::to_vec(&all).expect("texts");
    duckdb
        .stdin
        .take()
        .expect("piped")
        .write_all(&input)
        .expect("it reads");
    let output = duckdb.wait_with_output().expect("it ends");
    assert!(output.status.success(), "duckdb refused a statement");
    let answers: Vec<Vec<Value>> = serde_json::from_slice(&output.stdout).expect("a JSON list");
    answers.into_iter().skip(1).collect()
}

fn write(folder: &TempDir, text: &str) -> PathBuf {
    let path = folder.join("x.toml");
    std::fs::write(&path, text).expect("a file");
    path
}

fn summary(folder: &Path) -> Value {
    let text = std::fs::read(folder.join("summary.json")).expect("a summary");
    serde_json::from_slice(&text).expect("JSON")
}

/// Completed requests of a run, all kinds together.
fn completed_of(run: &Value) -> f64 {
    run["ops"]
        .as_array()
        .expect("kinds of operations")
        .iter()
        .map(|op| number(op, "completed"))
        .sum()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key} of {row}"))
}

#[track_caller]
fn close(a: f64, b: f64, share: f64) {
    assert!(
        (a - b).abs() <= share * a.abs().max(b.abs()),
        "{a} is not {b}"
    );
}

/// Each query on the page runs as written, and agrees with `summary.json`.
#[test]
fn queries_agree_with_the_summary() {
    let _alone = alone(); // A fault must happen on time.
    if !has_duckdb() {
        return;
    }
    let folder = TempDir::new("results-queries");
    let experiment = |requests: u32| {
        let text = r#"
        name = "queries"
        repetitions = 3
        probes = { interval = "100ms" }
        [targets.memory]
        url = "memory:16MiB"
        [targets.slow]
        url = "memory:16MiB"
        [workloads.mixed]
        read = 0.5
        queue_depth = 4
        workers = 2
        interval = "50ms"
        record_requests = true
        arrival = { kind = "open", rate = 2000.0 }
        stop = { requests = REQUESTS }
        [sweep]
        block_size = ["4k", "16k"]
        [[fault]]
        target = "slow"
        storage = "medium-error,p=0.5"
        at = "200ms"
        "#;
        write(&folder, &text.replace("REQUESTS", &requests.to_string()))
    };
    let mut out = folder.join("out");
    // On a busy machine, the fault may come too late in a short run, which is then invalid.
    for requests in [1500, 6000, 24_000] {
        out = folder.join(&format!("out-{requests}"));
        let run = run_within(
            brunt()
                .arg("run")
                .arg(experiment(requests))
                .arg("--out")
                .arg(&out),
            120,
        );
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(
            run.status.success() || said.contains("the run is invalid"),
            "{said}"
        );
        if run.status.success() {
            break;
        }
    }
    let summary = summary(&out);
    assert_eq!(summary["complete"], true, "{:?}", summary["trouble"]);
    let points = summary["points"].as_array().expect("points");
    assert_eq!(points.len(), 4);
    let runs = || {
        points
            .iter()
            .flat_map(|point| point["runs"].as_array().expect("runs"))
    };

    let queries = queries();
    let statements: Vec<&str> = queries[1..]
        .iter()
        .map(|(_, query)| query.as_str())
        .collect();
    let answers = ask(&out, &statements);
    let mut rest: Vec<&str> = queries[1..]
        .iter()
        .map(|(heading, _)| heading.as_str())
        .collect();
    let mut answer = |title: &str| -> &[Value] {
        let place = queries[1..]
            .iter()
            .position(|(heading, _)| heading == title);
        rest.retain(|heading| *heading != title);
        let rows = &answers[place.unwrap_or_else(|| panic!("no query is called {title}"))];
        assert!(!rows.is_empty(), "no rows: {title}");
        rows
    };

    let throughput = answer("Throughput of each point, with its 95 % interval");
    let percentiles = answer("Percentiles of each point, over all its runs");
    let costs = answer("What a request cost");
    assert_eq!(
        (throughput.len(), percentiles.len(), costs.len()),
        (4, 4, 4)
    );
    for (index, point) in points.iter().enumerate() {
        let (row, estimate) = (&throughput[index], &point["requests_per_second"]);
        assert_eq!((&row["label"], &row["runs"]), (&point["label"], &3.into()));
        close(number(row, "mean"), number(estimate, "mean"), 1e-9);
        let half_width = number(estimate, "high") - number(estimate, "mean");
        // The query treats the runs as independent; the summary's interval is as wide, or wider if adjacent runs are
        // correlated.
        assert!(
            number(row, "half_width") <= half_width * 1.001,
            "{row} {half_width}"
        );
        let row = &percentiles[index];
        let completed: f64 = point["runs"]
            .as_array()
            .expect("runs")
            .iter()
            .map(completed_of)
            .sum();
        assert_eq!(number(row, "requests"), completed);
        for name in ["p50_us", "p90_us", "p99_us", "p99_9_us"] {
            close(number(row, name), number(&point["response"], name), 0.001);
        }
        let cost = |run: &Value| number(&run["cost_per_request"], "system_calls");
        let each: Vec<f64> = point["runs"]
            .as_array()
            .expect("runs")
            .iter()
            .map(cost)
            .collect();
        let calls = number(&costs[index], "system_calls");
        let (least, most) = each
            .iter()
            .fold((f64::MAX, 0.0_f64), |(a, b), c| (a.min(*c), b.max(*c)));
        assert!(
            (least..=most).contains(&calls),
            "{calls} is not from {least} to {most}"
        );
    }

    let along = answer("Throughput along an axis");
    let sizes: Vec<f64> = along
        .iter()
        .map(|row| number(row, "block_size_bytes"))
        .collect();
    assert_eq!(sizes, [4096.0, 16384.0, 4096.0, 16384.0]);

    // Extents and intervals cover each run completely: nothing is missing or duplicated.
    let completed: f64 = runs().map(completed_of).sum();
    let seconds = answer("p99 over time of each run");
    assert_eq!(
        seconds
            .iter()
            .map(|row| number(row, "requests"))
            .sum::<f64>(),
        completed
    );
    let heat = answer("Heat map of latency over time");
    assert_eq!(
        heat.iter().map(|row| number(row, "requests")).sum::<f64>(),
        completed
    );
    let line = answer("The time line of a run, interval by interval");
    let first = runs().find(|run| run["order"] == 0).expect("a first run");
    let longest = line
        .iter()
        .map(|row| row["max_us"].as_f64().unwrap_or(0.0))
        .fold(0.0, f64::max);
    close(longest, number(&first["response"], "max_us"), 1e-9);
    // A delayed worker may miss some intervals.
    let stored = column(&out, &intervals::TABLE, "run");
    assert_eq!(line.len(), stored.iter().filter(|run| **run == 0).count());

    let cdf = answer("Latency CDF");
    assert!(
        cdf.windows(2)
            .all(|pair| pair[0]["label"] != pair[1]["label"]
                || number(&pair[0], "share_at_or_below") < number(&pair[1], "share_at_or_below"))
    );
    assert_eq!(number(cdf.last().expect("rows"), "share_at_or_below"), 1.0);

    let slowest = answer("The slowest requests");
    let longest = points
        .iter()
        .map(|point| number(&point["response"], "max_us"))
        .fold(0.0, f64::max);
    close(number(&slowest[0], "response_us"), longest, 1e-9);

    // Requests are lost only on the fault's target and only while the fault is active.
    let lost = answer("What was lost");
    let told: f64 = points
        .iter()
        .flat_map(|point| point["runs"].as_array().expect("runs"))
        .flat_map(|run| run["losses"].as_object().expect("losses").values())
        .map(|count| count.as_f64().expect("a count"))
        .sum();
    assert_eq!(
        lost.iter().map(|row| number(row, "requests")).sum::<f64>(),
        told
    );
    let scsi = lost.iter().filter(|row| row["loss"] == "scsi_errors");
    let labels: Vec<&str> = scsi.filter_map(|row| row["label"].as_str()).collect();
    assert!(
        labels.len() == 2 && labels.iter().all(|label| label.starts_with("slow ")),
        "{labels:?}"
    );
    let phases = answer("Throughput before, during and after each fault");
    let during = ask(
        &out,
        &["select run, sum(completed)::double as done, \
           sum(completed + scsi_errors + os_errors + timed_out + gone)::double as asked \
           from faults join intervals using (run) where intervals.end_ns > faults.start_ns \
           and (faults.gone_ns is null or intervals.start_ns < faults.gone_ns) group by run"],
    );
    for row in phases {
        // None if a busy machine completed nothing in that time.
        let Some(share) = row["share_done"].as_f64() else {
            continue;
        };
        if row["phase"] == "during" {
            let of_run = during[0].iter().find(|of| of["run"] == row["run"]);
            let of_run = of_run.unwrap_or_else(|| panic!("{row}: {during:?}"));
            close(
                share,
                number(of_run, "done") / number(of_run, "asked"),
                1e-9,
            );
        } else {
            assert!((1.0..1.01).contains(&share), "{row}");
        }
    }
    // In a single run, a late fault may affect only a few requests, whose share varies widely.
    let sum = |key: &str| during[0].iter().map(|row| number(row, key)).sum::<f64>();
    let share = sum("done") / sum("asked");
    assert!((0.2..0.8).contains(&share), "{share}: {during:?}");
    // A delayed worker may miss all intervals before the fault.
    let before = phases.iter().filter(|row| row["phase"] == "before").count();
    assert!((1..=6).contains(&before), "{phases:?}");
    assert!(
        phases
            .iter()
            .filter(|row| row["phase"] == "during" && row["share_done"].is_f64())
            .count()
            > 0
    );

    let probe = answer("Throughput and a probe");
    assert!(
        probe
            .iter()
            .all(|row| (0.0..=1.01).contains(&number(row, "cpu_busy_share"))),
        "{probe:?}"
    );
    let environment = answer("The machine and its software");
    assert!(environment.iter().any(|row| row["key"] == "kernel"));
    assert_eq!(
        rest,
        Vec::<&str>::new(),
        "queries that nothing is known about"
    );

    // Single requests agree with the histograms and the runs.
    let counted = ask(
        &out,
        &[
            "select run, count(*) as requests, count(*) filter (status = 'good') as good, \
           max(completed_ns - intended_ns) filter (status = 'good') / 1e3 as max_us \
           from requests group by run order by run",
        ],
    );
    let mut all: Vec<&Value> = runs().collect();
    all.sort_by_key(|run| run["order"].as_u64());
    assert_eq!(counted[0].len(), all.len());
    for (row, run) in counted[0].iter().zip(all) {
        let done = completed_of(run);
        assert_eq!(number(row, "good"), done);
        close(
            number(row, "max_us"),
            number(&run["response"], "max_us"),
            1e-9,
        );
    }
}

/// The values of a column in all parts.
fn column(folder: &Path, table: &'static Table, name: &str) -> Vec<i64> {
    let mut values = Vec::new();
    read_table(folder, table, |batch| {
        values.extend_from_slice(batch.ints(name))
    })
    .unwrap_or_else(|error| panic!("{error}"));
    values
}

/// Asserts that all tables are readable, including by DuckDB if it is installed.
fn readable(folder: &Path) {
    let rows = |table: &'static Table| {
        let mut rows = 0;
        read_table(folder, table, |batch| rows += batch.rows())
            .unwrap_or_else(|error| panic!("{error}"));
        rows
    };
    let counted: Vec<usize> = TABLES.iter().map(|table| rows(table)).collect();
    if has_duckdb() {
        let queries: Vec<String> = TABLES
            .iter()
            .map(|table| format!("select count(*) as rows from {}", table.name))
            .collect();
        let answers = ask(
            folder,
            &queries.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        let told: Vec<usize> = answers
            .iter()
            .map(|rows| number(&rows[0], "rows") as usize)
            .collect();
        assert_eq!(told, counted);
    }
}

/// A SIGKILL during a run leaves readable tables, with every row except those in parts that were still open, and a
/// summary marked as incomplete.
#[test]
fn a_kill_leaves_readable_tables() {
    let _busy = busy(); // Makes requests as fast as it can.
    let folder = TempDir::new("results-kill");
    let experiment = write(
        &folder,
        r#"
        name = "killed"
        repetitions = 1
        [targets.nothing]
        url = "null:64MiB"
        [workloads.endless]
        queue_depth = 8
        interval = "10ms"
        record_requests = true
        stop = { time = "10m" }
        "#,
    );
    let out = folder.join("out");
    let mut run = brunt()
        .arg("run")
        .arg(&experiment)
        .arg("--out")
        .arg(&out)
        .spawn()
        .expect("it starts");
    eventually("parts of requests", 60, || {
        out.join("requests/part-000002.parquet").exists()
    });
    run.kill().expect("a process of ours");
    run.wait().expect("it ends");
    readable(&out);
    assert_eq!(summary(&out)["complete"], false);
    assert!(column(&out, &runs::TABLE, "run").is_empty());
    // Completed parts contain a worker's requests in order of completion: with eight outstanding, only the last eight
    // can leave gaps in the sequence.
    let mut sequence = column(&out, &requests::TABLE, "sequence");
    assert!(sequence.len() >= 2 * 122_880, "{}", sequence.len());
    sequence.sort_unstable();
    assert!(
        sequence
            .iter()
            .take(sequence.len() - 8)
            .copied()
            .eq(0..sequence.len() as i64 - 8)
    );
}

/// A run killed after its first intervals has these on disk, starting with the first, and they are readable.
#[test]
fn a_short_run_that_is_killed_has_its_intervals() {
    let folder = TempDir::new("results-kill-early");
    let experiment = write(
        &folder,
        r#"
        name = "killed early"
        repetitions = 1
        [targets.nothing]
        url = "null:64MiB?delay=const:1ms"
        [workloads.endless]
        interval = "100ms"
        stop = { time = "10m" }
        "#,
    );
    let out = folder.join("out");
    let mut run = brunt()
        .arg("run")
        .arg(&experiment)
        .arg("--out")
        .arg(&out)
        .spawn()
        .expect("it starts");
    let indexes = || column(&out, &intervals::TABLE, "interval");
    eventually("a folder", 60, || out.join("summary.json").exists());
    // The first interval is written alone or nearly so, and others follow during the run.
    eventually("the first interval", 60, || !indexes().is_empty());
    let first = indexes().len();
    eventually("later intervals", 60, || indexes().len() > first);
    let before = indexes();
    run.kill().expect("a process of ours");
    run.wait().expect("it ends");
    let found = indexes();
    assert!(
        found.len() >= before.len() && found.iter().copied().eq(0..found.len() as i64),
        "{found:?}"
    );
    readable(&out);
    assert_eq!(summary(&out)["complete"], false);
}

/// Single requests are written promptly, not held back until there are many of them.
#[test]
fn a_killed_run_has_its_requests_at_a_low_rate() {
    let folder = TempDir::new("results-kill-requests");
    let experiment = write(
        &folder,
        r#"
        name = "killed slowly"
        repetitions = 1
        [targets.nothing]
        url = "memory:64MiB"
        [workloads.few]
        arrival = { kind = "open", rate = 50 }
        record_requests = true
        stop = { time = "10m" }
        "#,
    );
    let out = folder.join("out");
    let mut run = brunt()
        .arg("run")
        .arg(&experiment)
        .arg("--out")
        .arg(&out)
        .spawn()
        .expect("it starts");
    let times = || column(&out, &requests::TABLE, "intended_ns");
    eventually("a folder", 60, || out.join("summary.json").exists());
    eventually("some requests", 60, || times().len() > 50);
    // Intervals are a second long and are written within another second. After a pause of the program, requests may
    // be written after them.
    eventually("requests as recent as intervals", 60, || {
        let end = column(&out, &intervals::TABLE, "end_ns").into_iter().max();
        let last = times().into_iter().max();
        last.is_some_and(|last| last > end.unwrap_or(0) - 1_000_000_000)
    });
    let before = times().len();
    run.kill().expect("a process of ours");
    run.wait().expect("it ends");
    assert!(times().len() >= before, "{} of {before}", times().len());
}

/// A full disk ends the experiment with status 1 and a clear message, and the measurements are kept: every request
/// reported to the observer is on disk, and the summary records what happened.
#[test]
fn a_full_disk_keeps_what_was_measured() {
    let _busy = busy(); // Makes requests as fast as it can.
    let folder = TempDir::new("results-full");
    let experiment = write(
        &folder,
        r#"
        name = "full"
        repetitions = 3
        [targets.nothing]
        url = "null:1GiB"
        [workloads.endless]
        queue_depth = 8
        interval = "10ms"
        record_requests = true
        stop = { time = "20m" }
        "#,
    );
    // A disk of 8 MiB that disappears with its mount namespace; its contents are copied out first.
    let script = r#"
        mount -t tmpfs -o size=8m none "$1" || exit 77
        "$2" run "$3" --out "$1/out"; status=$?
        cp -r "$1/out" "$4" || exit 78
        exit $status"#;
    let (disk, kept) = (folder.join("disk"), folder.join("kept"));
    std::fs::create_dir(&disk).expect("a folder");
    let mut unshare = Command::new("unshare");
    unshare.args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
    ]);
    unshare
        .arg(&disk)
        .arg(env!("CARGO_BIN_EXE_brunt"))
        .arg(&experiment)
        .arg(&kept);
    let run = run_within(&mut unshare, 120);
    let said = String::from_utf8_lossy(&run.stderr);
    if run.status.code() == Some(77) || said.contains("unshare failed") {
        return skip("user and mount namespaces with a tmpfs");
    }
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert!(
        said.contains("no space for") && said.contains("everything written so far is kept"),
        "{said}"
    );
    let summary = summary(&kept);
    let trouble = summary["trouble"].as_str().expect("trouble");
    assert!(
        summary["complete"] == false && trouble.contains("no space for"),
        "{trouble}"
    );
    assert!(
        !trouble.contains("rows lost"),
        "the reserve was too small: {trouble}"
    );
    readable(&kept);
    // The run that was cut short by the full disk is in the summary and in the table.
    let points = summary["points"].as_array().expect("points");
    let summed: usize = points
        .iter()
        .map(|point| point["runs"].as_array().expect("runs").len())
        .sum();
    assert_eq!((summed, column(&kept, &runs::TABLE, "run").len()), (1, 1));
    let requests = column(&kept, &requests::TABLE, "sequence").len() as i64;
    let completed: i64 = column(&kept, &intervals::TABLE, "completed").iter().sum();
    let counted: i64 = column(&kept, &histograms::TABLE, "responses").iter().sum();
    assert!(
        requests > 122_880 && completed > 122_880,
        "{requests} {completed}"
    );
    assert_eq!(completed, counted);
    // The observer receives requests in batches of 4096, but intervals every 10 ms, so their numbers may differ by
    // one batch and one interval.
    let longest: i64 = column(&kept, &intervals::TABLE, "completed")
        .into_iter()
        .max()
        .unwrap_or(0);
    assert!(
        (requests - completed).abs() <= 2 * (longest + 4096),
        "{requests} {completed} {longest}"
    );
    let left: Vec<_> = std::fs::read_dir(&kept)
        .expect("a folder")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    assert!(
        left.iter()
            .all(|path| path.extension().is_none_or(|end| end != "reserved")),
        "{left:?}"
    );
}

/// Memory does not grow with the number of recorded requests. A million of them in memory would add 88 MB.
#[test]
fn memory_does_not_grow_with_recorded_requests() {
    let _busy = busy(); // Makes requests as fast as it can.
    let folder = TempDir::new("results-memory");
    let experiment = write(
        &folder,
        r#"
        name = "flat"
        repetitions = 1
        [targets.nothing]
        url = "null:64MiB"
        [workloads.million]
        queue_depth = 8
        record_requests = true
        interval = "0"
        stop = { requests = 1000000 }
        "#,
    );
    let out = folder.join("out");
    let mut run = brunt()
        .arg("run")
        .arg(&experiment)
        .arg("--out")
        .arg(&out)
        .spawn()
        .expect("it starts");
    let status = format!("/proc/{}/status", run.id());
    let mut peak_kib = 0;
    eventually("the end of the run", 240, || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        // The program's own pages, whose number depends on its code size, don't count.
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak_kib = peak_kib.max(kib.unwrap_or(0));
        run.try_wait().expect("a child of ours").is_some()
    });
    assert_eq!(column(&out, &requests::TABLE, "sequence").len(), 1_000_000);
    println!("{peak_kib} KiB for a million requests on record");
    assert!((8 * 1024..72 * 1024).contains(&peak_kib), "{peak_kib} KiB");
}
