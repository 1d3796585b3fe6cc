use super::super::Experiment;
use super::*;

const MAIN: &str = r#"
name = "a store"
include = ["hosts.toml", { file = "stores/store.toml", with = { replicas = 2, size = "64MiB" } }]
[workloads.read]
stop = { time = "1s" }
[lab]
worker = "client"
"#;
const HOSTS: &str = r#"
[lab]
hosts = ["client"]
"#;
const STORE: &str = r#"
include = "part.toml"
[parameters]
replicas = { default = 3, help = "copies of each object" }
size = { help = "of each disk" }
label = { default = "x" }
depths = { default = [1, 8] }
[lab]
hosts = ["server-${replicas}"]
[lab.links.wire]
between = ["client", "server-${replicas}"]
[targets."copies-${replicas}"]
serve = "memory:${size}"
host = "server-${replicas}"
[sweep]
queue_depth = "${depths}"
"#;
const PART: &str = r#"
allow_overwrite = []
"#;

fn parse(change: impl Fn(&Path, &str) -> String) -> Result<Experiment> {
    let files = [
        ("exp/hosts.toml", HOSTS),
        ("exp/stores/store.toml", STORE),
        ("exp/stores/part.toml", PART),
    ];
    let load = |path: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        found
            .map(|(_, text)| change(path, text))
            .ok_or(io::ErrorKind::NotFound.into())
    };
    Experiment::parse_with(
        "exp/main.toml",
        &change(Path::new("main.toml"), MAIN),
        &load,
    )
}

#[test]
fn files_are_united_with_their_parameters() {
    let experiment = parse(|_, text| text.to_string()).unwrap();
    let lab = experiment.lab.as_ref().unwrap();
    assert_eq!(lab.hosts, ["client", "server-2"]);
    assert_eq!(lab.links["wire"].between, ["client", "server-2"]);
    assert_eq!(experiment.targets["copies-2"].place(), "memory:64MiB");
    assert_eq!(experiment.sweep.queue_depth, [1, 8]);
    // The saved experiment is self-contained.
    let kept = experiment.written_out();
    let again = Experiment::parse("kept.toml", &kept).unwrap();
    assert_eq!(
        again,
        Experiment {
            include: None,
            ..experiment
        }
    );
}

#[test]
fn a_mistake_is_shown_in_the_file_that_has_it() {
    let check = |file: &str, from: &str, to: &str, place: &str, said: &str| {
        let change = |path: &Path, text: &str| match path.ends_with(file) {
            true => {
                assert!(text.contains(from), "{from}");
                text.replacen(from, to, 1)
            }
            false => text.to_string(),
        };
        let error = parse(change).unwrap_err();
        let line = error.one_line();
        let all = format!("{line} {}", error.help_text().unwrap_or_default());
        assert!(
            line.starts_with(&format!("exp/{place}: ")) && all.contains(said),
            "{to}: {all}"
        );
    };
    let (store, hosts) = ("store.toml", "hosts.toml");
    check(
        store,
        "serve =",
        "srve =",
        "stores/store.toml:13",
        "did you mean serve?",
    );
    check(
        store,
        "memory:${size}",
        "memory:${sise}",
        "stores/store.toml:13",
        "available: depths, label,",
    );
    check(
        store,
        "memory:${size}",
        "memory:${size",
        "stores/store.toml:13",
        "without its }",
    );
    check(
        store,
        "\"memory:${size}\"",
        "\"tcp\"\nlun = 1",
        "stores/store.toml:14",
        "no LUNs",
    );
    check(
        store,
        "memory:${size}",
        "memory:${depths}",
        "stores/store.toml:13",
        "an array cannot be part of a string",
    );
    check(
        store,
        "\"${depths}\"",
        "[0]",
        "stores/store.toml:16",
        "1 to 4096",
    );
    check(
        store,
        "part.toml",
        "store.toml",
        "stores/store.toml:2",
        "includes itself",
    );
    check(
        store,
        "part.toml",
        "none.toml",
        "stores/store.toml:2",
        "cannot read exp/stores/none.toml",
    );
    check(store, "[sweep]", "[sweep", "stores/store.toml:15", "");
    check(
        store,
        "help = \"of",
        "hepl = \"of",
        "stores/store.toml:5",
        "did you mean help?",
    );
    check(
        hosts,
        "[lab]",
        "name = 'b'\n[lab]",
        "main.toml:2",
        "name is already set in exp/hosts.toml:2",
    );
    check(
        "main.toml",
        "replicas = 2",
        "replicas = '2'",
        "main.toml:3",
        "a string here, but an integer",
    );
    check(
        "main.toml",
        "replicas = 2",
        "copies = 2",
        "main.toml:3",
        "it has depths, label, replicas, size",
    );
    check(
        "main.toml",
        ", size = \"64MiB\"",
        "",
        "main.toml:3",
        "of each disk",
    );
    check(
        "main.toml",
        "\"hosts.toml\"",
        "7",
        "main.toml:3",
        "expected a file",
    );
    check(
        "main.toml",
        "name =",
        "parameters = {}\nname =",
        "main.toml:2",
        "unknown key",
    );
    check(
        "part.toml",
        "[]",
        "'${size}'",
        "stores/part.toml:2",
        "unknown parameter size",
    );
}

#[test]
fn a_dollar_can_be_written() {
    let change = |path: &Path, text: &str| match path.ends_with("store.toml") {
        true => text.replace("copies-${replicas}", "$${copies}-${label}$"),
        false => text.to_string(),
    };
    let experiment = parse(change).unwrap();
    assert_eq!(experiment.targets.keys().next().unwrap(), "${copies}-x$");
}

#[test]
fn chains_and_numbers_of_files_end() {
    let load = |path: &Path| Ok(format!("include = \"{}x\"", path.display()));
    let error = Experiment::parse_with("x", "include = \"y\"", &load).unwrap_err();
    assert!(
        error.one_line().contains("8 nested files"),
        "{}",
        error.one_line()
    );
    let many = format!("include = [{}]", vec!["\"y\""; FILES_MAX].join(", "));
    let error = Experiment::parse_with("x", &many, &|_| Ok(String::new())).unwrap_err();
    assert!(
        error.one_line().contains("64 in total"),
        "{}",
        error.one_line()
    );
}
