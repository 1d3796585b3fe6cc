//! A trace contains what the packets contained, and nothing that it should not.

use crate::common;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use brunt_capture::trace::{
    Anonymizer, ReplayError, TraceOptions, TraceRecorder, TraceSummary, replay, tables,
};
use brunt_capture::{Analysis, Ledger, Limits, Pipeline, run_file, run_file_parallel};
use brunt_lake::{Table, TableWriter, WriterOptions, read_table, reader};
use brunt_wire::pcap::CapturedPacket;
use tempfile::{TempDir, tempdir};

/// Writes a capture's trace; returns the report on the packets as JSON, and the totals of what was written.
fn record(
    capture: &Path,
    folder: &Path,
    options: &TraceOptions,
) -> (serde_json::Value, Ledger, TraceSummary) {
    let recorder = TraceRecorder::create(folder, options).unwrap();
    let mut outcome = run_file(
        capture,
        (Analysis::new(), recorder),
        Limits::default(),
        || false,
    )
    .unwrap();
    let (analysis, recorder) = outcome.sink;
    let (summary, error) = recorder.finish(&mut outcome.ledger);
    assert!(error.is_none(), "{error:?}");
    (
        serde_json::to_value(analysis.report(&outcome.ledger)).unwrap(),
        outcome.ledger,
        summary,
    )
}

fn captures() -> Vec<PathBuf> {
    let mut all = vec![
        common::small_piece(),
        common::small_piece().with_file_name("nfs4-small.pcap.zst"),
    ];
    all.retain(|path| path.exists());
    let names = ["tput-9000", "retx-small"];
    all.extend(
        names
            .iter()
            .filter_map(|name| common::shared(&format!("{name}.pcap.zst"))),
    );
    all
}

/// The analyses report the same from the tables as from the packets, to the last digit, and the tables have a
/// row for each packet, call and block that the ledger counts.
#[test]
fn the_tables_give_the_same_report_as_the_packets() {
    for capture in captures() {
        let folder = tempdir().unwrap();
        let (expected, ledger, summary) = record(&capture, folder.path(), &TraceOptions::default());
        let replayed = replay(folder.path()).unwrap();
        assert_eq!(replayed.notes, Vec::<String>::new());
        let found = serde_json::to_value(replayed.analysis.report(&replayed.ledger)).unwrap();
        for (part, value) in expected.as_object().unwrap() {
            assert_eq!(&found[part], value, "{part} of {}", capture.display());
        }
        let count = |table| {
            let mut rows = 0;
            read_table(folder.path(), table, |batch| rows += batch.rows() as u64).unwrap();
            rows
        };
        assert_eq!(count(&tables::PACKETS), ledger.packets);
        assert_eq!(count(&tables::CHECKSUMS), ledger.blocks_summed);
        assert_eq!(
            count(&tables::OPERATIONS) + ledger.calls_repeated,
            ledger.calls
        );
        assert_eq!((summary.rows_lost, summary.parts_deleted), (0, 0));
    }
}

/// Like `record`, with several parallel parsers.
fn record_by(
    workers: usize,
    capture: &Path,
    folder: &Path,
    options: &TraceOptions,
) -> (serde_json::Value, Ledger, TraceSummary) {
    let recorders = TraceRecorder::create_shared(folder, options, workers).unwrap();
    let sinks = recorders
        .into_iter()
        .map(|recorder| (Analysis::new(), recorder))
        .collect();
    let mut outcome = run_file_parallel(capture, sinks, Limits::default(), None, || false)
        .unwrap()
        .shares;
    let (mut analyses, recorders): (Vec<_>, Vec<_>) = outcome.sinks.into_iter().unzip();
    let (summary, error) = TraceRecorder::finish_shared(recorders, &mut outcome.ledger);
    assert!(error.is_none(), "{error:?}");
    let mut all = analyses.remove(0);
    analyses
        .into_iter()
        .for_each(|analysis| all.merge(analysis));
    (
        serde_json::to_value(all.report(&outcome.ledger)).unwrap(),
        outcome.ledger,
        summary,
    )
}

/// A trace of the previous version is rejected with its version and the program that can read it.
#[test]
fn another_version_is_refused_with_advice() {
    let folder = tempdir().unwrap();
    let mut note =
        TableWriter::create(folder.path(), &tables::NOTES, WriterOptions::default()).unwrap();
    note.rows()
        .row()
        .int(2)
        .text("brunt 0.1.0")
        .bool(false)
        .end();
    note.finish().unwrap();
    let error = replay(folder.path()).unwrap_err();
    assert!(
        matches!(&error, ReplayError::Version { found: 2, program } if program == "brunt 0.1.0")
    );
    let told = error.to_string();
    assert!(
        told.contains("version 2") && told.contains("brunt 0.1.0") && told.contains("capture"),
        "{told}"
    );
}

/// Each operation has the times of its first and last byte in each direction, as far as they were captured.
#[test]
fn operations_have_the_times_of_their_first_and_last_bytes() {
    let folder = tempdir().unwrap();
    record(
        &common::small_piece(),
        folder.path(),
        &TraceOptions::default(),
    );
    let (mut rows, mut longer) = (0, 0);
    read_table(folder.path(), &tables::OPERATIONS, |batch| {
        let (request_span, reply_span) =
            (batch.ints("request_span_ns"), batch.ints("reply_span_ns"));
        let (request_whole, reply_whole) =
            (batch.bools("request_whole"), batch.bools("reply_whole"));
        for row in 0..batch.rows() {
            let has = |column| !batch.is_null(column, row);
            assert!(!request_whole[row] || has("request_span_ns"));
            assert!(!reply_whole[row] || has("reply_span_ns") && has("latency_ns"));
            assert!(request_span[row] >= 0 && reply_span[row] >= 0);
            longer += usize::from(request_span[row] + reply_span[row] > 0);
            rows += 1;
        }
    })
    .unwrap();
    assert!(
        rows > 300 && longer > 0,
        "{rows} rows, {longer} over several packets"
    );
}

/// All values of an integer column, except nulls.
fn ints(folder: &Path, table: &'static Table, column: &str) -> Vec<i64> {
    let mut all = Vec::new();
    read_table(folder, table, |batch| {
        let values = batch.ints(column).iter().enumerate();
        all.extend(
            values
                .filter(|(row, _)| !batch.is_null(column, *row))
                .map(|(_, value)| *value),
        );
    })
    .unwrap();
    all
}

/// No two calls or flows have the same id, and all references resolve.
fn rows_refer_to_existing_rows(folder: &Path) {
    let ids = ints(folder, &tables::OPERATIONS, "record_id");
    let known: HashSet<i64> = ids.iter().copied().collect();
    assert_eq!(known.len(), ids.len());
    for table in [
        &tables::NAMES,
        &tables::ATTRIBUTES,
        &tables::COMPOUNDS,
        &tables::COMPOUND_ATTRIBUTES,
        &tables::CHECKSUMS,
    ] {
        for id in ints(folder, table, "record_id") {
            assert!(known.contains(&id), "{id} of {}", table.name);
        }
    }
    let flows = ints(folder, &tables::FLOWS, "flow");
    let told: HashSet<i64> = flows.iter().copied().collect();
    assert_eq!(told.len(), flows.len());
    for table in [&tables::OPERATIONS, &tables::PACKETS] {
        assert!(
            ints(folder, table, "flow")
                .iter()
                .all(|flow| told.contains(flow))
        );
    }
    let handles: HashSet<i64> = ints(folder, &tables::HANDLES, "file").into_iter().collect();
    assert!(
        ints(folder, &tables::OPERATIONS, "file")
            .iter()
            .all(|file| handles.contains(file))
    );
}

/// A trace written by several parsers has the same rows as a trace written by one, with unique ids and intact
/// references. Its report equals that of the parsers, and that of a single parser.
#[test]
fn several_parsers_write_one_trace() {
    for capture in captures() {
        let (alone, together) = (tempdir().unwrap(), tempdir().unwrap());
        let (expected, ..) = record(&capture, alone.path(), &TraceOptions::default());
        let replayed = replay(alone.path()).unwrap();
        let from_one = serde_json::to_value(replayed.analysis.report(&replayed.ledger)).unwrap();
        // Connections are assigned to parsers by a hash that differs in each run, so one parser may get all of them.
        let rings_of = |folder: &TempDir| {
            let ids = ints(folder.path(), &tables::OPERATIONS, "record_id");
            ids.iter()
                .map(|id| id >> 48)
                .collect::<HashSet<i64>>()
                .len()
        };
        let (mut found, mut ledger, mut summary) =
            record_by(3, &capture, together.path(), &TraceOptions::default());
        for _ in 0..50 {
            if rings_of(&together) > 1 {
                break;
            }
            std::fs::remove_dir_all(together.path()).unwrap();
            (found, ledger, summary) =
                record_by(3, &capture, together.path(), &TraceOptions::default());
        }
        assert!(rings_of(&together) > 1, "the work was never shared");
        let replayed = replay(together.path()).unwrap();
        assert_eq!(
            (replayed.notes, &replayed.ledger),
            (Vec::<String>::new(), &ledger)
        );
        let stored = serde_json::to_value(replayed.analysis.report(&ledger)).unwrap();
        for (part, value) in expected.as_object().unwrap() {
            let by_three = without_concurrency(part, &stored[part]);
            assert_eq!(stored[part], found[part], "{part} of {}", capture.display());
            assert_eq!(
                by_three,
                without_concurrency(part, value),
                "{part} of {}",
                capture.display()
            );
            assert_eq!(
                by_three,
                without_concurrency(part, &from_one[part]),
                "{part}"
            );
        }
        assert_eq!((summary.rows_lost, summary.parts_deleted), (0, 0));
        let count = |folder: &TempDir, table: &'static Table| {
            let mut rows = 0;
            read_table(folder.path(), table, |batch| rows += batch.rows()).unwrap();
            rows
        };
        // Tables to which more than one parser wrote rows.
        let told_again = [
            tables::HANDLES,
            tables::CALLERS,
            tables::CALLER_GROUPS,
            tables::FLOWS,
            tables::LATENCY_HISTOGRAMS,
            tables::SKETCHES,
        ];
        assert_eq!(latencies(together.path()), latencies(alone.path()));
        // Each parser omits only attributes that it has written itself: this gives more rows than one parser, or
        // fewer if attributes alternate between connections of different parsers. The rows of statistics depend on
        // the time.
        let not_compared = [
            tables::ATTRIBUTES,
            tables::PRE_OP_ATTRIBUTES,
            tables::COMPOUND_ATTRIBUTES,
            tables::STATISTICS,
        ];
        for table in tables::all() {
            let (rows, by_one) = (count(&together, table), count(&alone, table));
            if told_again.contains(table) {
                assert!(rows >= by_one, "{}: {rows} of {by_one}", table.name);
            } else if !not_compared.contains(table) {
                assert_eq!(rows, by_one, "{}", table.name);
            }
        }
        rows_refer_to_existing_rows(together.path());
        // The sum of all parsers was written during the capture and at its end.
        let totals = ints(together.path(), &tables::STATISTICS, "packets");
        assert!(
            totals
                .iter()
                .all(|packets| *packets as u64 <= ledger.packets)
        );
        assert!(totals.contains(&(ledger.packets as i64)));
    }
}

/// The sums of the rows of `latency_histograms`.
fn latencies(folder: &Path) -> BTreeMap<(i64, String, i64), i64> {
    let mut sums = BTreeMap::new();
    read_table(folder, &tables::LATENCY_HISTOGRAMS, |batch| {
        let rows = batch
            .ints("second")
            .iter()
            .zip(batch.texts("procedure"))
            .zip(batch.ints("bucket"));
        for (((second, procedure), bucket), count) in rows.zip(batch.ints("count")) {
            *sums
                .entry((*second, procedure.to_string(), *bucket))
                .or_default() += count;
        }
    })
    .unwrap();
    assert!(!sums.is_empty());
    sums
}

/// A part of a report, without the figures that depend on which connections were analysed together.
fn without_concurrency(part: &str, value: &serde_json::Value) -> serde_json::Value {
    let mut value = value.clone();
    match part {
        "profile" => drop(
            value
                .as_object_mut()
                .unwrap()
                .remove("outstanding_max")
                .unwrap(),
        ),
        "files" => {
            for row in value["top"].as_array_mut().unwrap() {
                row.as_object_mut().unwrap().remove("latency").unwrap();
            }
        }
        _ => {}
    }
    value
}

/// Writes a capture several times, each time with later packet times and new connections, using `workers` in turn.
fn record_rounds(
    workers: usize,
    rounds: u64,
    folder: &Path,
    options: &TraceOptions,
) -> (Ledger, TraceSummary) {
    let packets = common::packets(&common::small_piece());
    let mut recorders = TraceRecorder::create_shared(folder, options, workers).unwrap();
    let mut ledger = Ledger::default();
    for round in 0..rounds {
        let turn = round as usize % workers;
        let limits = Limits {
            record_ids: (round * 1_000_000, 1),
            ..Limits::default()
        };
        let mut pipeline = Pipeline::new(recorders.remove(turn), limits);
        let later = |time_ns: u64| time_ns + round * 10_000_000_000;
        for some in packets.chunks(100) {
            pipeline.on_packets(some.iter().map(|(time_ns, wire_len, link, bytes)| {
                CapturedPacket {
                    time_ns: later(*time_ns),
                    wire_len: *wire_len,
                    interface: 0,
                    link: *link,
                    bytes,
                }
            }));
        }
        let (recorder, mine) = pipeline.finish();
        recorders.insert(turn, recorder);
        ledger.merge(&mine);
    }
    let (summary, error) = TraceRecorder::finish_shared(recorders, &mut ledger);
    assert!(error.is_none(), "{error:?}");
    (ledger, summary)
}

/// With a budget, the oldest parts of every table are deleted, and all deletions are counted. The remaining data is
/// within the budget, refers to nothing that was deleted, and can still be analysed, with a note on what is missing.
#[test]
fn a_budget_deletes_the_oldest_parts_of_every_table() {
    for workers in [1, 2] {
        let folder = common::folder_in_memory();
        let rounds = 16;
        let (_, whole) = record_rounds(workers, rounds, folder.path(), &TraceOptions::default());
        std::fs::remove_dir_all(folder.path()).unwrap();
        let keep = whole.bytes * 3 / 4;
        // Open parts are never deleted and could exceed the budget on their own, so they are kept small.
        let options = TraceOptions {
            rows_max: 1000,
            chunk_bytes: 32 << 10,
            keep_bytes: Some(keep),
            ..TraceOptions::default()
        };
        let (ledger, summary) = record_rounds(workers, rounds, folder.path(), &options);
        let note = folder.path().join("trace");
        let all = files(folder.path());
        let parts = all.iter().filter(|(path, _)| !path.starts_with(&note));
        let on_disk: u64 = parts.map(|(_, bytes)| bytes.len() as u64).sum();
        assert!(
            summary.parts_deleted > 0 && on_disk <= keep,
            "{on_disk} of {keep}, {summary:?}"
        );
        assert_eq!(
            (
                ledger.trace_parts_deleted,
                ledger.trace_rows_deleted,
                ledger.trace_bytes_deleted
            ),
            (
                summary.parts_deleted,
                summary.rows_deleted,
                summary.bytes_deleted
            )
        );
        let mut rows = 0;
        for table in tables::all() {
            if *table != tables::NOTES {
                read_table(folder.path(), table, |batch| rows += batch.rows() as u64).unwrap();
            }
        }
        // The last row of `statistics` is written after everything else was counted, and the total includes it.
        assert_eq!(rows, summary.rows);
        for table in [
            &tables::FLOWS,
            &tables::HANDLES,
            &tables::STATISTICS,
            &tables::PACKETS,
        ] {
            let parts = reader::parts(folder.path(), table).unwrap();
            let begins_late = (0..workers as u16).filter(|ring| {
                let first = parts
                    .iter()
                    .find_map(|part| part.captured.filter(|(series, _)| series == ring));
                first.is_some_and(|(_, number)| number > 0)
            });
            // Only one worker at a time writes the row of `statistics`, so some workers may write none.
            let expected = if *table == tables::STATISTICS {
                1
            } else {
                workers
            };
            assert!(
                begins_late.count() >= expected,
                "{} of {workers}",
                table.name
            );
        }
        let told = |table, column| {
            ints(folder.path(), table, column)
                .into_iter()
                .collect::<HashSet<i64>>()
        };
        let (flows, handles) = (told(&tables::FLOWS, "flow"), told(&tables::HANDLES, "file"));
        let callers = told(&tables::CALLERS, "caller");
        for (table, column, told) in [
            (&tables::PACKETS, "flow", &flows),
            (&tables::OPERATIONS, "flow", &flows),
            (&tables::OPERATIONS, "file", &handles),
            (&tables::RPC_CALLS, "caller", &callers),
            (&tables::NAMES, "file", &handles),
            (&tables::NAMES, "leads_to", &handles),
            (&tables::ENTRIES, "file", &handles),
        ] {
            let rows = ints(folder.path(), table, column);
            assert!(rows.len() > 20, "{} rows of {}", rows.len(), table.name);
            assert!(
                rows.iter().all(|id| told.contains(id)),
                "{column} of {}",
                table.name
            );
        }
        let replayed = replay(folder.path()).unwrap();
        assert!(
            replayed.notes[0].contains("were deleted"),
            "{:?}",
            replayed.notes
        );
        assert_eq!(replayed.ledger, ledger);
        let report = serde_json::to_value(replayed.analysis.report(&ledger)).unwrap();
        let files = report["files"]["top"].as_array().unwrap();
        assert!(
            files
                .iter()
                .any(|file| file["name"].as_str().unwrap().contains('/')),
            "{files:?}"
        );
    }
}

/// The contents of all files in a folder.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            all.push((path, bytes));
        }
    }
    all
}

/// Every text of every table, and every integer in columns that identify people or machines.
fn contents(folder: &Path) -> (Vec<String>, Vec<(String, i64)>) {
    let (mut texts, mut numbers) = (Vec::new(), Vec::new());
    for table in tables::all() {
        read_table(folder, table, |batch| {
            for column in table.columns {
                let name = column.name;
                match column.kind {
                    brunt_lake::ColumnKind::Text
                        if !["protocol", "operation", "procedure", "program", "what"]
                            .contains(&name) =>
                    {
                        texts.extend(
                            batch
                                .texts(name)
                                .filter(|text| !text.is_empty())
                                .map(str::to_string),
                        );
                    }
                    brunt_lake::ColumnKind::Int
                        if ["uid", "gid", "cookie", "file", "leads_to"].contains(&name)
                            || ["fileid", "fsid"].iter().any(|part| name.contains(part))
                            || name.ends_with("_mac")
                            || name.starts_with("verifier") =>
                    {
                        let values = batch.ints(name).iter().enumerate();
                        numbers.extend(
                            values
                                .filter(|(row, value)| !batch.is_null(name, *row) && **value != 0)
                                .map(|(_, value)| (name.to_string(), *value)),
                        );
                    }
                    _ => {}
                }
            }
        })
        .unwrap();
    }
    texts.sort_unstable();
    texts.dedup();
    numbers.sort_unstable();
    numbers.dedup();
    (texts, numbers)
}

/// An anonymous trace contains no name, address, handle or id from the capture, in any column or anywhere in the
/// bytes of its files. The same key gives the same pseudonyms, and the figures are unchanged.
#[test]
fn an_anonymous_trace_reveals_no_identifying_data() {
    let (clear, hidden, again) = (tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap());
    let options = || TraceOptions {
        anonymizer: Some(Anonymizer::new(b"0123456789abcdef0123").unwrap()),
        ..TraceOptions::default()
    };
    for capture in captures().into_iter().take(2) {
        let (plain, ..) = record(&capture, clear.path(), &TraceOptions::default());
        record(&capture, hidden.path(), &options());
        record(&capture, again.path(), &options());
        let (texts, numbers) = contents(clear.path());
        let (hidden_texts, hidden_numbers) = contents(hidden.path());
        assert!(
            texts.len() > 50 && numbers.len() > 50,
            "{} {}",
            texts.len(),
            numbers.len()
        );
        let known = |text: &String| text == "." || text == "..";
        let both: Vec<_> = texts
            .iter()
            .filter(|text| hidden_texts.contains(text) && !known(text))
            .collect();
        assert_eq!(both, Vec::<&String>::new());
        let both: Vec<_> = numbers
            .iter()
            .filter(|number| hidden_numbers.contains(number))
            .collect();
        assert_eq!(both, Vec::<&(String, i64)>::new());
        // Short names occur by chance in any compressed file, so only long ones are searched for.
        let long: Vec<_> = texts.iter().filter(|text| text.len() >= 7).collect();
        for (path, bytes) in files(hidden.path()) {
            let leak = long
                .iter()
                .find(|text| memchr::memmem::find(&bytes, text.as_bytes()).is_some());
            assert_eq!(leak, None, "{}", path.display());
        }
        assert_eq!(contents(again.path()), (hidden_texts, hidden_numbers));
        let replayed = replay(hidden.path()).unwrap();
        let found = serde_json::to_value(replayed.analysis.report(&replayed.ledger)).unwrap();
        for part in [
            "operations",
            "by_operation",
            "ledger",
            "intervals",
            "duration_s",
        ] {
            assert_eq!(found[part], plain[part], "{part}");
        }
        for folder in [&clear, &hidden, &again] {
            std::fs::remove_dir_all(folder.path()).unwrap();
        }
    }
}

/// A trace with damaged files is read as far as possible, and the damage is reported; nothing panics.
#[test]
fn damaged_files_are_read_as_far_as_possible_and_named() {
    let folder = tempdir().unwrap();
    record(
        &common::small_piece(),
        folder.path(),
        &TraceOptions::default(),
    );
    let mut random = brunt_core::random::Random::new(17);
    let mut noted = 0;
    for (path, whole) in files(folder.path()) {
        for cut in [true, false] {
            let mut bytes = whole.clone();
            let at = random.below(bytes.len() as u64) as usize;
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1 << random.below(8);
            }
            std::fs::write(&path, &bytes).unwrap();
            noted += usize::from(
                replay(folder.path()).map_or(true, |replayed| !replayed.damaged.is_empty()),
            );
        }
        std::fs::write(&path, whole).unwrap();
    }
    assert!(noted > 5, "{noted}");
    assert!(replay(folder.path()).unwrap().damaged.is_empty());
}

/// When the disk is full, the trace ends with an error that says so; closed parts are readable, and every missing row
/// is counted. (A removed folder stands in for the full disk.)
#[test]
fn a_full_disk_is_reported_and_missing_rows_are_counted() {
    let folder = tempdir().unwrap();
    let options = TraceOptions {
        rows_max: 200,
        age_max: Duration::from_secs(3600),
        ..TraceOptions::default()
    };
    let recorder = TraceRecorder::create(folder.path(), &options).unwrap();
    let status = recorder.status();
    std::fs::remove_dir_all(folder.path().join("packets")).unwrap();
    let mut outcome = run_file(&common::small_piece(), recorder, Limits::default(), || {
        status.has_failed()
    })
    .unwrap();
    let (summary, error) = outcome.sink.finish(&mut outcome.ledger);
    assert!(
        error
            .unwrap()
            .to_string()
            .contains("packets/part-000000.parquet")
    );
    assert!(outcome.ledger.trace_rows_lost > 0);
    assert_eq!(summary.rows_lost, outcome.ledger.trace_rows_lost);
    let replayed = replay(folder.path()).unwrap();
    assert_eq!(replayed.ledger, outcome.ledger);
    assert!(
        replayed
            .notes
            .iter()
            .any(|note| note.contains("rows were dropped")),
        "{:?}",
        replayed.notes
    );
    assert!(
        TraceRecorder::create(folder.path(), &options).is_err(),
        "a folder with a trace is taken"
    );
}

/// A damaged part costs only its own rows: it is left out, counted and named, and the rest is read.
#[test]
fn damaged_parts_are_left_out() {
    let folder = tempdir().unwrap();
    let options = TraceOptions {
        rows_max: 2000,
        ..TraceOptions::default()
    };
    let (_, ledger, _) = record(&common::small_piece(), folder.path(), &options);
    let whole = replay(folder.path()).unwrap();
    assert!(whole.damaged.is_empty());
    for table in tables::all()
        .into_iter()
        .filter(|table| **table != tables::NOTES)
    {
        for part in reader::parts(folder.path(), table).unwrap() {
            let bytes = std::fs::read(&part.path).unwrap();
            std::fs::write(&part.path, &bytes[..bytes.len() / 2]).unwrap();
            let replayed = replay(folder.path()).unwrap();
            std::fs::write(&part.path, &bytes).unwrap();
            let read_by_replay = [
                "packets",
                "operations",
                "checksums",
                "flows",
                "names",
                "entries",
                "statistics",
            ];
            let expected = usize::from(read_by_replay.contains(&table.name));
            assert_eq!(
                replayed.damaged.len(),
                expected,
                "{}: {:?}",
                table.name,
                replayed.damaged
            );
            for named in &replayed.damaged {
                let name = format!(
                    "{}/{}",
                    table.name,
                    part.path.file_name().unwrap().to_str().unwrap()
                );
                assert!(named.contains(&name), "{named}");
                assert!(replayed.notes.contains(named));
            }
            if table.name != "statistics" {
                assert_eq!(replayed.ledger, ledger, "{}", table.name);
            }
        }
    }
}

/// `docs/trace.md` shows the tables as they are. With `BRUNT_WRITE_DOCS=1`, the test rewrites the page instead of
/// comparing it.
#[test]
fn the_documentation_shows_all_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/trace.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let described = brunt_lake::markdown::sections(&tables::of_lake());
    let written = brunt_lake::markdown::between_marks(&page).unwrap();
    if std::env::var_os("BRUNT_WRITE_DOCS").is_some() {
        let marks = |text: &str| format!("<!-- tables: begin -->\n\n{text}<!-- tables: end -->");
        std::fs::write(&path, page.replacen(&marks(written), &marks(&described), 1)).unwrap();
    } else {
        assert!(
            written == described,
            "docs/trace.md is behind: run this test with BRUNT_WRITE_DOCS=1"
        );
    }
}
