//! Tests every analysis in the table: merged states equal that of a single pipeline, and a state survives
//! serialization.

use brunt_core::random::Random;
use brunt_core::sketch::spread;
use brunt_wire::net::IpAddress;
use serde_json::Value;

use super::*;
use crate::operation::{OperationKind, Protocol, TransferDirection};

const START_NS: u64 = 1_700_000_000_123_456_789;

/// Feeds one generated operation of a client, with its checksums and names.
fn feed(analysis: &mut Analysis, client: u64, time_ns: u64, random: &mut Random) {
    // Replies arrive slightly out of order.
    let record_id = (time_ns - START_NS) * 16 + random.below(1 << 9);
    let address = IpAddress::v4([10, 0, 0, client as u8]);
    // A file belongs to one client, because pipelines are assigned connections, not files.
    let file = FileKey(spread(client << 32 | random.below(50)));
    let kinds: Vec<_> = OperationKind::all().collect();
    let protocols: Vec<_> = Protocol::all().collect();
    let direction = [
        None,
        Some(TransferDirection::Read),
        Some(TransferDirection::Write),
    ][random.below(3) as usize];
    let error = random.chance(0.1).then(|| 1 + random.below(70) as u32);
    let latency_ns = random.chance(0.9).then(|| random.below(1 << 30));
    let status = latency_ns.map(|_| error.unwrap_or(0));
    let outcome = brunt_core::TransferOutcome::of(status, latency_ns.is_some());
    let moves = direction.filter(|_| outcome.is_transfer());
    let event = OperationEvent {
        record_id,
        time_ns,
        latency_ns,
        client: address,
        // Each file belongs to one client, and each server serves half of the clients.
        server: IpAddress::v4([10, 9, 0, client as u8 % 2]),
        kind: kinds[random.below(kinds.len() as u64) as usize],
        protocol: protocols[random.below(protocols.len() as u64) as usize],
        direction,
        outcome,
        file: random.chance(0.9).then_some(file),
        offset: random.below(64) * 4096,
        bytes: moves.map_or(0, |_| random.below(1 << 17) as u32),
        error: error.filter(|_| status.is_some()),
        outstanding: random.below(9) as u32,
    };
    analysis.feed_packet(time_ns, 100 + event.bytes);
    analysis.feed_event(event);
    if random.chance(0.3) {
        let root = FileKey(spread(client << 32 | 0xffff));
        let name = format!("file{}", file.0 % 1000);
        analysis.feed_name(
            IpAddress::v4([10, 0, 1, 1]),
            file,
            Some(root),
            name.as_bytes(),
        );
        analysis.feed_name(IpAddress::v4([10, 0, 1, 1]), root, None, b"/export");
    }
    let sums: Vec<u64> = (0..random.below(5))
        .map(|_| spread(random.below(500)))
        .collect();
    let offset = random.below(1000) * 512;
    analysis.feed_checksums(&ChecksumRun {
        record_id: 0,
        file,
        write: random.chance(0.5),
        offset,
        sums: &sums,
    });
    analysis.settle_if_full();
}

/// The state of each analysis, by name.
fn states(analysis: &mut Analysis) -> Value {
    analysis.settle();
    serde_json::to_value(&*analysis).unwrap()
}

#[test]
fn every_analysis_has_its_own_name_and_help() {
    for (index, analysis) in ANALYSES.iter().enumerate() {
        let mut before = ANALYSES[..index].iter();
        assert!(!analysis.help.is_empty() && before.all(|before| before.name != analysis.name));
    }
    assert!(ANALYSES.iter().any(|analysis| analysis.name == "largest"));
}

/// Holds for any distribution of clients over pipelines and any order of merging.
#[test]
fn merged_states_equal_that_of_one_pipeline() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let shares = 2 + random.below(4) as usize;
        let (mut whole, mut parts) = (Analysis::new(), Vec::new());
        parts.resize_with(shares, Analysis::new);
        // Some pipelines begin late, some end early, and the intervals of rates have to be merged.
        let step_ns = 1 + random.below(20_000_000);
        for number in 0..3000 {
            let client = random.below(12);
            let operation = random.next_u64();
            let time_ns = START_NS + number * step_ns;
            let part = spread(client ^ seed << 8) as usize % shares;
            for analysis in [&mut whole, &mut parts[part]] {
                feed(analysis, client, time_ns, &mut Random::new(operation));
            }
        }
        let expected = states(&mut whole);
        let mut merged = Analysis::new();
        while !parts.is_empty() {
            // A deserialized state gives the same results as the original.
            let mut part = parts.swap_remove(random.below(parts.len() as u64) as usize);
            let sent = states(&mut part);
            merged.merge(if random.chance(0.5) {
                serde_json::from_value(sent).unwrap()
            } else {
                part
            });
        }
        let found = states(&mut merged);
        for name in ANALYSES.iter().map(|analysis| analysis.name) {
            assert!(found[name] == expected[name], "{name} of seed {seed}");
        }
        let ledger = Ledger::default();
        assert_eq!(merged.report(&ledger), whole.report(&ledger), "seed {seed}");
    }
}

#[test]
fn states_and_reports_survive_serialization() {
    let (mut analysis, mut random) = (Analysis::new(), Random::new(7));
    (0..5000).for_each(|number| {
        feed(
            &mut analysis,
            random.below(12),
            START_NS + number,
            &mut random.clone(),
        )
    });
    let sent = states(&mut analysis);
    let mut back: Analysis = serde_json::from_str(&sent.to_string()).unwrap();
    assert!(states(&mut back) == sent);
    let report = analysis.report(&Ledger::default());
    assert_eq!(back.report(&Ledger::default()), report);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
}

/// Section names become keys of the report, next to its own fields; each column has a separate key and heading.
#[test]
fn sections_do_not_clash() {
    let (mut analysis, mut random) = (Analysis::new(), Random::new(3));
    (0..500).for_each(|number| feed(&mut analysis, 1, START_NS + number, &mut random));
    analysis.settle();
    let mut report = analysis.report(&Ledger::default());
    let sections = std::mem::take(&mut report.sections);
    assert_eq!(report.rows.len(), sections.len(), "names are unique");
    report.rows.clear();
    let fields = serde_json::to_value(&report).unwrap();
    for section in &sections {
        assert!(fields.get(&*section.name).is_none(), "{}", section.name);
        assert!(!section.title.is_empty());
        let keys: std::collections::HashSet<_> = section.columns.iter().map(|c| &c.key).collect();
        assert_eq!(keys.len(), section.columns.len(), "{}", section.name);
    }
}

/// With one file and one table line, an analysis gets rows for programs, a table for people, and a question in SQL.
#[test]
fn an_analysis_brings_its_section_and_its_question() {
    let mut analysis = Analysis::new();
    let mut random = Random::new(5);
    (0..500).for_each(|number| feed(&mut analysis, 1, START_NS + number, &mut random));
    analysis.settle();
    let report = analysis.report(&Ledger::default());
    let layout = report.sections.iter().find(|s| s.name == "largest");
    let row = &report.rows_of(layout.expect("the section"))[0];
    let size = brunt_core::units::format_size(row["bytes"].as_u64().expect("bytes"));
    let operation = row["operation"].as_str().expect("a name");
    let text = report::text(&report);
    let section = text.split("\nLargest transfers\n").nth(1).expect(&text);
    let line = section.lines().nth(2).expect("a row");
    assert!(line.contains(operation) && line.ends_with(&size), "{line}");
    let mut questions = crate::trace::questions::QUESTIONS.iter();
    let question = questions.find(|question| question.name == "largest");
    assert_eq!(
        question.expect("the question").help(),
        "The largest transfer of each operation."
    );
}

/// An inconsistent stored state is rejected, and the sizes it claims are not trusted.
#[test]
fn nonsense_states_are_refused() {
    let mut sent = states(&mut Analysis::new());
    for (at, wrong) in [
        ("/duplicates/contents", serde_json::json!([[60000, 1]])),
        ("/duplicates/contents", serde_json::json!([[1, 200]])),
        ("/hot/files/entries", serde_json::json!(null)),
        ("/hot/files/max", serde_json::json!(-1)),
        ("/rates/width_ns", serde_json::json!(7)),
        ("/rates/first", serde_json::json!(u64::MAX)),
        ("/mix", serde_json::json!([[["rpc", "no such thing"], {}]])),
    ] {
        let right = std::mem::replace(sent.pointer_mut(at).unwrap(), wrong);
        assert!(
            serde_json::from_value::<Analysis>(sent.clone()).is_err(),
            "{at}"
        );
        *sent.pointer_mut(at).unwrap() = right;
    }
}

/// The tables keep the heaviest entries; once they evict entries, the number of entries is estimated.
#[test]
fn evicted_files_and_clients_are_still_counted() {
    let event = |index: u64, client: u64| OperationEvent {
        record_id: index,
        time_ns: START_NS + index,
        latency_ns: Some(1000),
        client: IpAddress(u128::from(client) + (1 << 64)),
        server: IpAddress::default(),
        kind: OperationKind::all().next().unwrap(),
        protocol: Protocol::all().next().unwrap(),
        direction: None,
        outcome: brunt_core::TransferOutcome::Moved,
        file: Some(FileKey(spread(index))),
        offset: 0,
        bytes: 0,
        error: None,
        outstanding: 1,
    };
    let (files, clients) = (200_000u64, 20_000u64);
    let mut halves = [Analysis::new(), Analysis::new()];
    for index in 0..files {
        let half = &mut halves[(index % 2) as usize];
        half.feed_event(event(index, index % clients));
        half.settle_if_full();
    }
    let [mut all, other] = halves;
    all.merge(other);
    let report = all.report(&Ledger::default());
    for (ranking, expected) in [
        (&report.files, files),
        (&report.clients, clients),
        (&report.pairs, files),
    ] {
        let ranking = ranking.as_ref().expect("not left out");
        assert_eq!(ranking.count_kind, report::CountKind::Estimated);
        let error = ranking.count as f64 / expected as f64 - 1.0;
        assert!(error.abs() < 0.03, "{} of {expected}", ranking.count);
    }
    assert!(report::text(&report).contains("Hottest files, of about "));
    let mut few = Analysis::new();
    few.feed_event(event(1, 1));
    few.settle();
    let report = few.report(&Ledger::default());
    let files = report.files.expect("not left out");
    assert_eq!(
        (files.count, files.count_kind),
        (1, report::CountKind::Exact)
    );
}
