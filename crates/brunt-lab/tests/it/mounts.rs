//! Tests of mounts on lab hosts.
//!
//! The rule: nothing is mounted except on lab hosts.

use std::fs;
use std::path::Path;
use std::process::Command;

use brunt_core::Clock;
use brunt_lab::{Host, Lab};

use crate::Test;

pub const TESTS: [Test; 2] = [
    ("hosts_see_their_own_mounts", hosts_see_their_own_mounts),
    ("hosts_have_separate_names", hosts_have_separate_names),
];

/// The output of a shell on this host.
fn output_text(host: &Host, folder: &Path, line: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(folder);
    host.place(&mut command).unwrap();
    let done = command.output().unwrap();
    assert!(
        done.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).unwrap()
}

/// A mount is visible to processes and threads of its host, whose working folder stays the same, and nowhere else;
/// other processes can remove the folder that it covers.
fn hosts_see_their_own_mounts() {
    let lab = Lab::new(["a", "b"], Clock::default()).unwrap();
    let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().canonicalize().unwrap();
    let place = folder.join("place");
    fs::create_dir(&place).unwrap();
    assert_eq!(
        output_text(
            a,
            &folder,
            "mount -t tmpfs none place && echo inside >place/file && pwd"
        )
        .trim(),
        folder.to_str().unwrap()
    );
    let read = || fs::read_to_string(place.join("file"));
    for number in 0..2 {
        assert_eq!(a.run(read).unwrap(), "inside\n", "thread {number}");
        assert_eq!(
            output_text(a, &place, "cat file"),
            "inside\n",
            "a process that starts in the folder"
        );
    }
    assert!(b.run(read).is_err() && read().is_err());
    assert_eq!(output_text(b, &folder, "ls place"), "");
    let here = std::env::current_dir().unwrap();
    assert_eq!(a.run(std::env::current_dir).unwrap(), here);
    // Processes keep a working folder that is removed after they start in it.
    let gone = folder.join("gone");
    fs::create_dir(&gone).unwrap();
    std::env::set_current_dir(&gone).unwrap();
    fs::remove_dir(&gone).unwrap();
    let mut command = Command::new("cat");
    a.place(command.arg("/proc/self/mountinfo")).unwrap();
    let mounts = String::from_utf8(command.output().unwrap().stdout).unwrap();
    std::env::set_current_dir(here).unwrap();
    let place_text = place.to_str().unwrap();
    assert!(mounts.contains(place_text), "{mounts}");
    let outside = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!outside.contains(place_text), "{outside}");
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(
        output_text(
            a,
            Path::new("/"),
            &format!("test -e {place_text} || echo gone")
        ),
        "gone\n"
    );
}

/// Host names are known only on lab hosts.
fn hosts_have_separate_names() {
    let before = fs::read_to_string("/etc/hosts");
    let Ok(before) = before else {
        return println!("skipped: needs /etc/hosts");
    };
    let lab = Lab::new(["near", "far"], Clock::default()).unwrap();
    lab.publish_names().unwrap();
    for host in ["near", "far"] {
        let names = output_text(lab.host(host).unwrap(), Path::new("/"), "cat /etc/hosts");
        assert_eq!(
            names,
            format!("10.77.0.2\tfar\n10.77.0.1\tnear\n{before}"),
            "on {host}"
        );
    }
    assert_eq!(fs::read_to_string("/etc/hosts").unwrap(), before);
}
