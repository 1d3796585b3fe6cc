//! Applies the rules of ARCHITECTURE.md to the workspace.
//!
//! The lists here contain exemptions and their reasons; a test fails when one is no longer needed.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use brunt_invariants::costs::{self, PlugInSample};
use brunt_invariants::layers::{self, Owned};
use brunt_invariants::names::{self, Shared};
use brunt_invariants::pages::{self, Pages};
use brunt_invariants::plain::{self, Banned};
use brunt_invariants::workspace::{self, Metadata};
use brunt_invariants::{cycles, error_types, headings, length, load_kinds, message_text, unsafety};

/// The violations of each rule. Parsed sources can't leave the thread that parsed them, so all rules are applied at
/// once.
struct Found {
    crates: usize,
    unsafety: Vec<String>,
    io: Vec<String>,
    protocols: Vec<String>,
    error_types: Vec<String>,
    message_text: Vec<String>,
    long: Vec<String>,
    headings: Vec<String>,
    names: Vec<String>,
    load_kinds: Vec<String>,
    cycles: Vec<(String, Vec<String>)>,
}

static FOUND: LazyLock<Found> = LazyLock::new(|| {
    // This crate's sources and tests quote forbidden code only in strings, so the rules apply to it, too.
    let crates = workspace::crates();
    let of_all = |rule: fn(&_) -> Vec<String>| crates.iter().flat_map(rule).collect();
    let re_exports = plain::re_exports(&crates);
    let banned = |list: &[Banned]| {
        let one = |banned: &Banned| {
            let sources = crates.iter().find(|one| one.name == banned.name);
            plain::violations(sources.expect(banned.name), banned, &re_exports)
        };
        list.iter().flat_map(one).collect()
    };
    Found {
        crates: crates.len(),
        unsafety: of_all(unsafety::violations),
        io: banned(WITHOUT_IO),
        protocols: banned(&[WITHOUT_PROTOCOL]),
        error_types: of_all(error_types::violations),
        message_text: of_all(message_text::violations),
        long: of_all(length::violations),
        headings: of_all(headings::violations),
        names: names::violations(&crates, SHARED_NAMES),
        load_kinds: load_kinds::violations(&crates),
        cycles: crates
            .iter()
            .flat_map(|one| {
                let found = cycles::cycles(one).into_iter();
                found.map(|cycle| (one.name.clone(), cycle))
            })
            .collect(),
    }
});

static METADATA: LazyLock<Metadata> = LazyLock::new(workspace::metadata);

fn assert_none(found: &[String], rule: &str) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

/// Fails for violations that aren't listed, and for list entries that aren't needed.
fn assert_listed(found: &[String], listed: &[&str], rule: &str) {
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let listed: BTreeSet<&str> = listed.iter().copied().collect();
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "{rule}: {new:#?}");
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(
        gone.is_empty(),
        "no longer needed on the list of exemptions ({rule}): {gone:#?}"
    );
}

const WITHOUT_IO: &[Banned] = &[
    Banned {
        name: "brunt-wire",
        paths: &[
            "std::net",
            "std::fs",
            "std::os",
            "std::env",
            "std::thread",
            "std::process",
            "std::time",
            "std::io",
            "libc",
            "rustix",
            "io_uring",
            "tokio",
        ],
        except: &[
            "std::net::IpAddr",
            "std::net::Ipv4Addr",
            "std::net::Ipv6Addr",
            "std::net::SocketAddr",
            "std::time::Duration",
        ],
    },
    Banned {
        name: "brunt-protocol",
        ..PLAIN_DATA
    },
    Banned {
        name: "brunt-protocol",
        paths: &["std::fs"],
        except: &[],
    },
    PLAIN_DATA,
];

/// `brunt-result` does access files, but only those of a result.
const PLAIN_DATA: Banned = Banned {
    name: "brunt-result",
    paths: &[
        "std::net",
        "std::thread",
        "std::process",
        "libc",
        "rustix",
        "io_uring",
        "tokio",
    ],
    except: &["std::net::IpAddr", "std::net::SocketAddr"],
};

const WITHOUT_PROTOCOL: Banned = Banned {
    name: "brunt-block",
    paths: &["brunt_wire", "brunt_iscsi", "brunt_nfs", "brunt_store"],
    except: &[],
};

const OWNED: &[Owned] = &[
    Owned {
        library: "parquet",
        owners: &["brunt-lake"],
    },
    Owned {
        library: "maud",
        owners: &["brunt-report"],
    },
    Owned {
        library: "axum",
        owners: &["brunt-web"],
    },
    Owned {
        library: "hyper",
        owners: &["brunt-web"],
    },
    // brunt-remote uses it only with its feature `s3`, for an asynchronous library.
    Owned {
        library: "tokio",
        owners: &["brunt-remote", "brunt-web"],
    },
    Owned {
        library: "object_store",
        owners: &["brunt-remote"],
    },
    Owned {
        library: "reqwest",
        owners: &["brunt-remote"],
    },
];

const SHARED_NAMES: &[Shared] = &[
    Shared {
        folder: "brunt/src/commands/",
        names: &[
            "Answer",
            "Check",
            "Destination",
            "Devices",
            "Digest",
            "Entry",
            "Job",
            "Lab",
            "Lake",
            "Plan",
            "Probe",
            "Registry",
            "Replay",
            "Report",
            "Request",
            "Role",
            "Run",
            "Serve",
            "Sink",
            "State",
            "Target",
            "Watch",
        ],
        reason: "a subcommand's arguments are called after it and named with their module: `report::Report`",
    },
    Shared {
        folder: "brunt-probe/src/",
        names: &[
            "Malformed",
            "Memory",
            "Metric",
            "Network",
            "Process",
            "Reading",
            "Rows",
            "Sink",
            "Source",
            "Texts",
        ],
        reason: "a probe is called after what it reads and named with its module: `disk::Disk`; the others are private words of one probe or of the sampler",
    },
    Shared {
        folder: "brunt-study/src/fault/kinds/",
        names: &[
            "Access",
            "Cpu",
            "Disk",
            "Freeze",
            "Kill",
            "Memory",
            "Netem",
            "Partition",
            "Reset",
        ],
        reason: "a kind of fault is called after itself and named with its module: `kill::Kill`",
    },
    Shared {
        folder: "brunt-wire/src/nfs/",
        names: &[
            "Args",
            "Attributes",
            "Entries",
            "Entry",
            "NfsTime",
            "ResultBody",
            "Results",
            "SetTime",
            "Status",
            "Walk",
        ],
        reason: "named with the version of the protocol: `v3::Args` and `v4::Args`",
    },
];

/// Functions that are allowed to examine the text of a message.
const BY_TEXT: &[&str] = &[
    // Omits the part of a cause that repeats the message above it: this affects the wording, not the behaviour.
    "brunt-remote/src/error.rs with_causes",
    // Used in tests of messages: whether a message names the right setting.
    "brunt-result/src/void.rs is_named_in",
    // serde reports unknown and missing fields only as text; the result is a hint for the user.
    "brunt-study/src/experiment/wording.rs reworded",
    // Prints the messages of the background process again, in the same parts: affects wording, not behaviour.
    "brunt/src/commands/lab/up.rs explain",
    // DuckDB has no code for this error; if its text changes, the error is reported unchanged.
    "brunt/src/commands/sql/duckdb.rs is_too_wide",
];

#[test]
fn a_crate_depends_only_on_crates_below_it() {
    let page = std::fs::read_to_string(workspace::root().join("ARCHITECTURE.md")).unwrap();
    let found = layers::upward(&METADATA.declared, &layers::order(&page));
    assert_none(
        &found,
        "a crate depends only on those below it in the table of ARCHITECTURE.md",
    );
}

#[test]
fn a_library_is_used_by_the_crates_that_own_it() {
    let found = layers::trespassing(&METADATA.declared, OWNED);
    assert_none(&found, "only the crates that own a library depend on it");
}

#[test]
fn results_and_reports_need_no_engine() {
    let engines = [
        "io-uring",
        "brunt-block",
        "brunt-capture",
        "brunt-iscsi",
        "brunt-lab",
        "brunt-load",
        "brunt-probe",
        "brunt-study",
    ];
    for name in ["brunt-result", "brunt-report"] {
        assert!(METADATA.resolved[name].contains("brunt-lake"), "{name}");
        let found = layers::needless(&METADATA.resolved, name, &engines);
        assert_none(&found, "results are read without what makes them");
    }
}

/// The agent's program supplies the code that saves a bridge's packets.
#[test]
fn experiments_need_no_captures() {
    for name in ["brunt-host", "brunt-study", "brunt-web"] {
        let found = layers::needless(&METADATA.resolved, name, &["brunt-capture"]);
        assert_none(&found, "experiments run without what reads packets");
    }
}

#[test]
fn brunt_block_knows_no_protocol() {
    let banned = ["brunt-wire", "brunt-iscsi", "brunt-nfs", "brunt-store"];
    let found = layers::needless(&METADATA.resolved, "brunt-block", &banned);
    assert_none(&found, "brunt-block knows no protocol");
    assert_none(&FOUND.protocols, "brunt-block knows no protocol");
}

#[test]
fn plain_data_and_parsers_do_no_io() {
    assert_none(
        &FOUND.io,
        "brunt-wire, brunt-protocol and brunt-result do no I/O and hold no clock",
    );
}

#[test]
fn unsafe_code_is_only_in_allowed_modules() {
    assert_none(
        &FOUND.unsafety,
        "crates without unsafe forbid it, others declare the modules that own it",
    );
}

#[test]
fn errors_have_types() {
    assert_none(&FOUND.error_types, "no error is a bare string");
}

#[test]
fn nothing_is_decided_by_the_text_of_a_message() {
    assert_listed(
        &FOUND.message_text,
        BY_TEXT,
        "no code decides by the text of a message",
    );
}

#[test]
fn a_load_is_known_in_its_own_module_only() {
    assert_none(
        &FOUND.load_kinds,
        "code outside a load's module asks the traits of loads, not which load it is",
    );
}

#[test]
fn files_and_functions_are_short() {
    let rule = "no file has more than 800 lines, and no function more than 70, or 100 where a comment says \
                \"Long because\" and why";
    assert_none(&FOUND.long, rule);
}

#[test]
fn headings_of_documentation_have_their_own_lines() {
    let rule = "a heading such as \"# Errors\" has no other text on its line";
    assert_none(&FOUND.headings, rule);
}

/// Maximum number of files in an import cycle.
const CYCLE_FILES_MAX: usize = 5;

#[test]
fn import_cycles_are_small() {
    assert!(FOUND.crates > 20, "all crates");
    assert!(!FOUND.cycles.is_empty(), "some files do import each other");
    let found = cycles::violations(&FOUND.cycles, CYCLE_FILES_MAX);
    assert_none(
        &found,
        "no more than five files of a crate import each other",
    );
}

#[test]
fn a_public_type_has_a_name_to_itself() {
    assert_none(
        &FOUND.names,
        "public types of two meanings share a name, or a private type hides a public one of its crate \
         (docs/style.md, Names)",
    );
}

fn text_of(page: &str) -> String {
    std::fs::read_to_string(workspace::root().join(page)).expect(page)
}

#[test]
fn links_between_pages_lead_somewhere() {
    let pages: Pages = workspace::files(&["", "docs", "examples", "python", "tools"])
        .into_iter()
        .filter(|file| file.ends_with(".md"))
        .map(|file| (file.clone(), text_of(&file)))
        .collect();
    assert!(pages.len() > 30, "all pages");
    let broken = pages::broken_links(&pages, |path| workspace::root().join(path).exists());
    assert_none(&broken, "links lead to files and headings that exist");
}

#[test]
fn the_book_and_the_index_of_tools_are_complete() {
    let of_book = workspace::files(&["docs"])
        .into_iter()
        .filter(|file| file.ends_with(".md") && file != "docs/SUMMARY.md")
        .collect();
    let tools = workspace::files(&["tools"])
        .into_iter()
        .filter(|file| file != "tools/README.md")
        .collect();
    let mut missing = pages::unlisted("docs/SUMMARY.md", &text_of("docs/SUMMARY.md"), &of_book);
    missing.extend(pages::unlisted(
        "tools/README.md",
        &text_of("tools/README.md"),
        &tools,
    ));
    assert_none(&missing, "an index lists each file once");
}

/// The plug-ins that only tests use, one of each kind.
const SAMPLES: &[PlugInSample] = &[
    PlugInSample {
        kind: "fault",
        file: "crates/brunt-study/src/fault/kinds/test_only.rs",
        folder: "crates/brunt-study/src/fault/",
        name: "TestOnly",
    },
    PlugInSample {
        kind: "access pattern",
        file: "crates/brunt-load/src/block/patterns/test_only.rs",
        folder: "crates/brunt-load/src/block/patterns/",
        name: "LastOffset",
    },
    PlugInSample {
        kind: "distribution of sizes",
        file: "crates/brunt-load/src/block/sizes/test_only.rs",
        folder: "crates/brunt-load/src/block/sizes/",
        name: "SectorSizes",
    },
    PlugInSample {
        kind: "arrival process",
        file: "crates/brunt-load/src/block/processes/test_only.rs",
        folder: "crates/brunt-load/src/block/processes/",
        name: "Pairs",
    },
    PlugInSample {
        kind: "load with its own keys",
        file: "crates/brunt-load/src/sleep.rs",
        folder: "crates/",
        name: "SleepLoad",
    },
    PlugInSample {
        kind: "analysis, with columns, a section in the terminal and on the page, and SQL",
        file: "crates/brunt-capture/src/analysis/largest.rs",
        folder: "crates/brunt-capture/src/analysis/",
        name: "Largest",
    },
];

#[test]
fn plug_ins_cost_what_the_table_says() {
    let sources = workspace::files(&["crates"])
        .into_iter()
        .filter(|file| file.ends_with(".rs") && file.contains("/src/"))
        .filter(|file| !file.starts_with("crates/brunt-invariants/"))
        .map(|file| (file.clone(), text_of(&file)))
        .collect();
    let page = text_of("docs/extending.md");
    let found = costs::differences(SAMPLES, &sources, &page);
    assert_none(
        &found,
        "docs/extending.md says what each kind of plug-in costs",
    );
}
