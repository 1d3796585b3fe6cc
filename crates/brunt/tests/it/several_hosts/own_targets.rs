//! A target that each client has separately: lab hosts, each with a file named after it.

use super::lab::run_in_lab;
use super::*;

/// Size of each client's file.
const FILE_BYTES: usize = 1 << 20;

/// Each client writes its whole file once, alone and together with the other client, and never writes to the other's
/// file. Results show a single target, so that the indexes compare a client with itself.
#[test]
fn each_client_writes_only_its_own_target() {
    let folder = TempDir::new().unwrap();
    let file = |client: &str| folder.path().join(format!("{client}.img"));
    for client in ["one", "two", "three"] {
        std::fs::write(file(client), vec![0; FILE_BYTES]).unwrap();
    }
    let text = format!(
        "repetitions = 2\n[lab]\nworker = \"observer\"\n[hosts.observer]\n[hosts.one]\n[hosts.two]\n\
         [lab.links.one]\nbetween = [\"observer\", \"one\"]\n[lab.links.two]\nbetween = [\"observer\", \"two\"]\n\
         [targets.image]\nurl = \"file:{}?direct=no\"\n\
         [workloads.write]\nread = 0\nblocks = [{{ size = \"16k\" }}]\nsequential = 1.0\nworkers = 2\n\
         hosts = [\"one\", \"two\"]\nstop = {{ passes = 1 }}\n[sweep]\nclients = [1, 2]\n",
        file("{client}").display()
    );
    let Some((output, results)) = run_in_lab(folder.path(), "own", &text) else {
        return;
    };
    assert!(output.status.success(), "{}", output_text(&output));
    for (client, is_written) in [("one", true), ("two", true), ("three", false)] {
        let bytes = std::fs::read(file(client)).unwrap();
        let blocks = bytes
            .chunks(16 << 10)
            .filter(|block| block.iter().any(|byte| *byte != 0));
        let expected = if is_written {
            FILE_BYTES / (16 << 10)
        } else {
            0
        };
        assert_eq!(
            (bytes.len(), blocks.count()),
            (FILE_BYTES, expected),
            "{client}"
        );
    }
    let summary = summary(&results);
    let points = summary["points"].as_array().unwrap();
    let labels: Vec<&str> = points
        .iter()
        .map(|point| point["label"].as_str().unwrap())
        .collect();
    assert_eq!(
        labels,
        [
            "image write clients=1 on=one",
            "image write clients=1 on=two",
            "image write clients=2 on=one+two"
        ]
    );
    for run in points
        .iter()
        .flat_map(|point| point["runs"].as_array().unwrap())
    {
        let ops = run["ops"].as_array().unwrap();
        let written: u64 = ops.iter().map(|op| op["completed"].as_u64().unwrap()).sum();
        let clients = run["hosts"].as_array().unwrap().len();
        assert_eq!(
            written,
            (clients * FILE_BYTES / (16 << 10)) as u64,
            "{run:#}"
        );
    }
    let indexes = &summary["indexes"];
    let impact = &indexes["impacts"][0];
    assert_eq!(
        (&impact["kind"], &impact["at_once"]),
        (&"parallelism".into(), &2.into()),
        "{indexes:#}"
    );
    assert_eq!(impact["per_client"]["clients"], 2, "{indexes:#}");
    // Two bars for clients alone, two for both together.
    assert_eq!(
        indexes["clients"].as_array().unwrap().len(),
        4,
        "{indexes:#}"
    );
}
