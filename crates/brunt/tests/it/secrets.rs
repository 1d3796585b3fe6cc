//! No secret of a user appears in a result, on a terminal, or on a page, regardless of the characters in it, and even
//! if the text that contains it is invalid.

use crate::support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::support::{TARGET_NAME, Target};
use brunt_lake::read_table;
use brunt_result::tables::environment;

/// Typical passwords; none is part of any other text.
const SECRETS: [&str; 9] = [
    "zQ9plainzQ9x",
    "zQ9/slash/zQ9",
    "zQ9,comma,zQ9",
    "zQ9'single'zQ9",
    "zQ9\"double\"zQ9",
    "zQ9 space zQ9",
    "zQ9@at%25zQ9",
    "zQ9?q=1zQ9xyz",
    "zQ9\\back]zQ9[",
];
/// A part of each secret.
const MARK: &str = "zQ9";

fn holds_no_secret(what: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    assert!(!text.contains(MARK), "{what} has a secret:\n{text}");
}

fn folder_holds_no_secret(folder: &Path) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files += folder_holds_no_secret(&path);
        } else {
            holds_no_secret(&path.display().to_string(), &std::fs::read(&path).unwrap());
            files += 1;
        }
    }
    files
}

fn run_brunt(arguments: &[&str], folder: &Path) -> Output {
    let mut command = support::brunt();
    command
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    holds_no_secret("stdout", &output.stdout);
    holds_no_secret("stderr", &output.stderr);
    output
}

/// A TOML string.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn experiment(url: &str) -> String {
    format!(
        "# before: {}\nname = \"secret\"\nrepetitions = 1\n[targets.t]\nurl = {}\n[workloads.w]\nstop = {{ time = \"100ms\" }}\n",
        url.replace('\n', " "),
        quoted(url)
    )
}

#[test]
fn results_of_a_target_with_passwords_hold_none_of_them() {
    for secret in SECRETS {
        let own = format!("tester:{secret}");
        // In an option, the character that starts options and the bracket that ends a device would have that meaning,
        // so replace them.
        let second = format!("{}-2", secret.replace('?', "+").replace(']', ")"));
        let other = format!("target:{second}");
        let target = Target::start(&[
            "--lun",
            "memory:16MiB",
            "--chap",
            &own,
            "--mutual-chap",
            &other,
        ]);
        let address = target.address();
        let url = format!(
            "iscsi://tester%{secret}@{address}/{TARGET_NAME}/0?target_user=target&target_password={second}"
        );
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("e.toml"), experiment(&url)).unwrap();
        let shown = run_brunt(&["run", "e.toml", "--check"], folder.path());
        assert!(shown.status.success(), "{secret}: {shown:?}");
        let done = run_brunt(&["run", "e.toml", "--out", "results"], folder.path());
        assert!(done.status.success(), "{secret}: {done:?}");
        let results = folder.path().join("results");
        let mode = std::fs::metadata(&results).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(folder_holds_no_secret(&results) > 10);
        // Tables are compressed, so read their rows.
        let mut has_text = false;
        read_table(&results, &environment::TABLE, |rows| {
            for value in rows.texts("value") {
                holds_no_secret("table environment", value.as_bytes());
                has_text |= value.contains("iscsi://tester%***@");
            }
        })
        .unwrap();
        assert!(has_text, "the experiment is kept, with its target");
    }
}

#[test]
fn messages_about_wrong_urls_hold_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    for secret in SECRETS {
        let login = format!("tester%{secret}@127.0.0.1:1");
        for url in [
            format!("iscs://{login}/iqn/0"),
            format!("iscsi:/{login}/iqn/0"),
            format!("iscsi:{login}/iqn/0"),
            format!("iscsi//{login}/iqn/0"),
            format!("iscsi://{login}/iqn/no"),
            format!("iscsi://{login}/iqn/0?sesions=2"),
            format!("iscsi://{login}/iqn/0?target_pasword={secret}&target_password={secret}"),
            format!("iscsi://127.0.0.1:1/iqn/0?target_user=t&target_password={secret}"),
            format!("iscsi://127.0.0.1:1/iqn/0?target_user=t&target_password={secret}&{secret}"),
            format!("array:raid1,[iscs://{login}/iqn/0],[memory:1MiB]"),
        ] {
            let failed = run_brunt(&["io", "read", &url], folder.path());
            assert!(!failed.status.success(), "{url}");
            assert!(!run_brunt(&["io", &url], folder.path()).status.success());
            std::fs::write(folder.path().join("e.toml"), experiment(&url)).unwrap();
            let failed = run_brunt(&["run", "e.toml", "--check=open"], folder.path());
            assert!(!failed.status.success(), "{url}");
        }
    }
}

#[test]
fn messages_about_wrong_files_hold_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    for secret in SECRETS {
        let url = format!("iscsi://tester%{secret}@h/iqn/0?target_password={secret}");
        let good = experiment(&url);
        for (from, to) in [
            // Invalid TOML, in the line with the secret and elsewhere.
            ("url = \"", "url = "),
            ("[workloads.w]", "[workloads.w"),
            // A wrong key next to the secret, wrong types, and the key `password`.
            ("url = ", "uri = "),
            ("[targets.t]\nurl = ", "targets = "),
            ("url = ", "url = [] # "),
            (
                "repetitions = 1",
                &format!("repetitions = {}", quoted(&url)),
            ),
            ("repetitions = 1", &format!("password = {}", quoted(secret))),
            ("stop = {", "stop = { tme = 3, "),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good);
            std::fs::write(folder.path().join("e.toml"), bad).unwrap();
            let failed = run_brunt(&["run", "e.toml", "--check"], folder.path());
            assert!(!failed.status.success(), "{from} -> {to}");
        }
    }
}

#[test]
fn the_token_of_a_detached_runs_page_is_its_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name = \"d\"\nrepetitions = 1\n[targets.t]\nurl = \"null:1GiB\"\n[workloads.w]\nstop = { time = \"100ms\" }\n";
    std::fs::write(folder.path().join("e.toml"), text).unwrap();
    // A results folder created by the user, with its own mode.
    std::fs::create_dir(folder.path().join("results")).unwrap();
    std::fs::write(folder.path().join("results/progress.txt"), "old").unwrap();
    let arguments = [
        "run",
        "e.toml",
        "--out",
        "results",
        "--detach",
        "--serve",
        "127.0.0.1:0",
    ];
    let started = run_brunt(&arguments, folder.path());
    assert!(started.status.success(), "{started:?}");
    let progress = folder.path().join("results/progress.txt");
    let mode = std::fs::metadata(&progress).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(
        !std::fs::read_to_string(&progress)
            .unwrap()
            .starts_with("old")
    );
}

#[test]
fn a_file_with_a_chap_secret_that_others_may_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chap");
    std::fs::write(&file, format!("tester:{}", SECRETS[0])).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let arguments = [
        "target",
        "--lun",
        "memory:1MiB",
        "--portal",
        "127.0.0.1:0",
        "--chap",
        "@chap",
    ];
    let failed = run_brunt(&arguments, folder.path());
    assert_eq!(failed.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&failed.stderr).contains("chmod 600"),
        "{failed:?}"
    );
}
