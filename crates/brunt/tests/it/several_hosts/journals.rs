//! Journals of acknowledged writes that hosts keep, collected for `brunt verify`.

use std::os::unix::fs::FileExt;

use super::*;

/// Runs `brunt verify` on the journals in this folder; returns the exit status, the JSON and the text.
fn verify(journals: &Path, disk: &str) -> (Option<i32>, Value, String) {
    let output = brunt()
        .arg("verify")
        .arg(journals)
        .args([disk, "--json"])
        .output()
        .unwrap();
    let object = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), object, output_text(&output))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().to_string())
        .collect();
    names.sort();
    names
}

/// The journals of all hosts are in one folder, as if all workers had run on this machine, and one command verifies
/// all writes.
#[test]
fn hosts_keep_their_journals_together() {
    let folder = TempDir::new().unwrap();
    let disk = disk(folder.path());
    let journals = folder.path().join("journals");
    let hosts = host_by_ssh(folder.path(), "a", 700_000_000_000)
        + &host_by_ssh(folder.path(), "b", -3_000_000_000);
    let text = format!(
        "name = \"kept\"\nrepetitions = 2\n{hosts}\n[targets.disk]\nurl = \"{disk}\"\n\
         [workloads.w]\nread = 0.2\nqueue_depth = 4\nflush_every = 100\nworkers = 2\nhosts = [\"a\", \"b\"]\n\
         verify = {{ journal = \"{}\" }}\nstop = {{ requests = 4000 }}\n",
        journals.display()
    );
    let (output, results) = run(folder.path(), "kept", &text);
    assert!(output.status.success(), "{}", output_text(&output));
    let wanted: Vec<String> = (0..4)
        .map(|worker| format!("worker-{worker}.journal"))
        .collect();
    for repetition in 0..2 {
        assert_eq!(names(&journals.join(format!("run-{repetition}"))), wanted);
    }
    assert!(summary(&results)["points"][0]["runs"][0]["hosts"][0]["journals_lost"].is_null());
    let last = journals.join("run-1");
    let (code, found, words) = verify(&last, &disk);
    assert_eq!(
        (code, &found["lost"], &found["lost_unflushed"]),
        (Some(0), &0.into(), &0.into()),
        "{words}"
    );
    assert!(found["kept"].as_u64().unwrap() > 100, "{found:#}");
    // The writes of a worker on host b are erased, and its journal detects that.
    let device = std::fs::File::options().write(true).open(&disk).unwrap();
    let last_part = DISK_BYTES / 4 * 3;
    device
        .write_all_at(&vec![0; (DISK_BYTES / 4) as usize], last_part)
        .unwrap();
    let (code, found, words) = verify(&last, &disk);
    let gone = found["lost"].as_u64().unwrap() + found["lost_unflushed"].as_u64().unwrap();
    assert!(
        gone > 20 && code == Some(i32::from(found["lost"] != 0)),
        "{words}"
    );
    assert!(
        found["lost_extents"]
            .as_array()
            .unwrap()
            .iter()
            .all(|extent| {
                extent["offset_bytes"].as_u64().unwrap() >= last_part && extent["found"] == "zeros"
            })
    );
    // An existing journal is never overwritten: it may be the only evidence.
    let (again, _) = run(folder.path(), "again", &text);
    let words = output_text(&again);
    assert!(
        !again.status.success() && words.contains("run-0/worker-0.journal"),
        "{words}"
    );
}

/// The journals of an agent that dies are lost with it. The results, the folder and `brunt verify` report the loss;
/// the journals of the other hosts are complete.
#[test]
fn a_lost_host_has_no_journal() {
    let folder = TempDir::new().unwrap();
    let disk = disk(folder.path());
    let journals = folder.path().join("journals");
    let hosts =
        host_by_ssh(folder.path(), "a", 0) + &host_by_ssh(folder.path(), "b", 250_000_000_000);
    let text = format!(
        "name = \"lost\"\nrepetitions = 1\non_host_failure = \"continue\"\n{hosts}\n[targets.disk]\nurl = \"{disk}\"\n\
         [workloads.w]\nread = 0.0\narrival = {{ kind = \"open\", rate = 3000, process = \"constant\" }}\n\
         workers = 2\nhosts = [\"a\", \"b\"]\nverify = {{ journal = \"{}\" }}\nstop = {{ time = \"10s\" }}\n",
        journals.display()
    );
    let killer = killer(folder.path(), "KILL");
    let (output, results) = run(folder.path(), "lost", &text);
    killer.join().unwrap();
    let words = output_text(&output);
    assert_eq!(output.status.code(), Some(1), "{words}");
    let doubts = &summary(&results)["points"][0]["runs"][0]["doubts"];
    let missing = "host b: the journals of 2 workers are missing: host b: ";
    assert!(
        doubts
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one.as_str().unwrap().contains(missing)),
        "{doubts:#}"
    );
    let run_0 = journals.join("run-0");
    assert_eq!(
        names(&run_0),
        [
            "worker-0.journal",
            "worker-1.journal",
            "worker-2.missing",
            "worker-3.missing"
        ]
    );
    let lost = &summary(&results)["points"][0]["runs"][0]["hosts"][1]["journals_lost"];
    assert!(
        lost["workers"] == 2 && lost["why"].as_str().unwrap().contains("connection ended"),
        "{lost:#}"
    );
    let (code, found, words) = verify(&run_0, &disk);
    assert!(
        code == Some(1) && words.contains("the writes of 2 workers were not checked"),
        "{words}"
    );
    assert!(
        found["kept"].as_u64().unwrap() > 0 && found["lost"] == 0,
        "{found:#}"
    );
    assert_eq!(found["missing_journals"][0]["worker"], 2);
}
