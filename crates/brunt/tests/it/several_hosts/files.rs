//! Phases on the file systems of several hosts.

use super::*;

/// Each host runs whole phases in its own folder; their results are added up, and nothing is left there.
#[test]
fn hosts_run_phases_on_their_file_systems() {
    let (folder, certificates) = (TempDir::new().unwrap(), certificates());
    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let identity = certificates.path().join("agent-127.0.0.1.pem");
    let agent = Listening::start(&identity, &["--allow", files.to_str().unwrap()]);
    let hosts = host_by_ssh(folder.path(), "a", 300_000_000_000)
        + &host_by_agent(certificates.path(), "b", &agent);
    let text = format!(
        "name = \"files\"\nrepetitions = 2\n{hosts}\n[filesystems.both]\ndirectory = \"{}\"\nhosts = [\"a\", \"b\"]\n\
         phases = [\"write-blocks\", \"read-blocks\", \"seeks\", \"create-random\", \"stat-random\"]\n\
         file_size = \"2MiB\"\nseeks = 200\nfiles = 150\n",
        files.display()
    );
    let (output, results) = run(folder.path(), "files", &text);
    assert!(output.status.success(), "{}", output_text(&output));
    let summary = summary(&results);
    let expected = [
        ("write-blocks", 512),
        ("read-blocks", 512),
        ("seeks", 440),
        ("create-random", 300),
        ("stat-random", 300),
    ];
    let points = summary["points"].as_array().unwrap();
    assert_eq!(points.len(), expected.len());
    for (phase, requests) in expected {
        let point = points
            .iter()
            .find(|point| point["workload"] == phase)
            .unwrap();
        for run in point["runs"].as_array().unwrap() {
            let ops = run["ops"].as_array().unwrap();
            let completed: u64 = ops.iter().map(|op| op["completed"].as_u64().unwrap()).sum();
            assert_eq!(completed, requests, "{phase}: {run:#}");
            assert!(
                run["page_cache"].is_object() && run["hosts"].as_array().unwrap().len() == 2,
                "{run:#}"
            );
            assert!(
                run["measured_s"].as_f64().unwrap() < 100.0,
                "clocks are 300 s apart: {run:#}"
            );
        }
    }
    assert_eq!(
        std::fs::read_dir(&files).unwrap().count(),
        0,
        "nothing is left"
    );
    let outside = text
        .replace(&files.display().to_string(), "/tmp")
        .replace("name = \"files\"", "name = \"out\"");
    let (output, _) = run(folder.path(), "out", &outside);
    let said = output_text(&output);
    assert!(
        !output.status.success() && said.contains("host b") && said.contains("may not be opened"),
        "{said}"
    );
}
