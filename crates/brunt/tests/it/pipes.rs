//! Files that are pipes: their contents are read, and one Ctrl-C ends the wait for them, even before there is a writer.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{TempDir, eventually, root};

/// Commands that read a file named by the user; `@` stands for it.
const READERS: &[&str] = &[
    "trace info @",
    "trace convert @ --to spc --out x.spc",
    "analyze @",
    "capture -r @",
    "import-fio @",
    "run @ --check",
    "replay @ null:1G",
    "io write null:1MiB --input @",
    "sql . -f @",
    "target --config @",
];

fn fifo(folder: &TempDir) -> PathBuf {
    let fifo = folder.join("pipe");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo");
    fifo
}

fn start(folder: &TempDir, words: &str, fifo: &Path) -> Child {
    let words = words.split(' ').map(|word| match word {
        "@" => fifo.as_os_str(),
        word => word.as_ref(),
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_brunt"));
    // An earlier attempt may have left it.
    let _ = std::fs::remove_file(folder.join("x.spc"));
    let folder = fifo
        .parent()
        .unwrap_or(folder.join(".").as_path())
        .to_path_buf();
    command
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().expect("it starts")
}

/// Whether a process has a file open.
fn has_open(process: &Child, file: &Path) -> bool {
    let open = std::fs::read_dir(format!("/proc/{}/fd", process.id()))
        .into_iter()
        .flatten()
        .flatten();
    open.into_iter()
        .any(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == file))
}

/// Sends one SIGINT once the pipe is open; the process must then end, but not with success.
fn assert_ends(mut process: Child, words: &str, fifo: &Path) {
    // A process that waits within open(2) has no descriptor.
    eventually(&format!("{words} opens its file"), 60, || {
        let has_ended = process.try_wait().expect("a child of ours").is_some();
        assert!(!has_ended, "{words} did not wait");
        has_open(&process, fifo)
    });
    kill_process(Pid::from_child(&process), Signal::INT).expect("it runs");
    let mut status = None;
    eventually(&format!("{words} ends"), 60, || {
        status = process.try_wait().expect("a child of ours");
        status.is_some()
    });
    let code = status.and_then(|status| status.code());
    assert!(matches!(code, Some(1 | 2)), "{words}: {code:?}");
}

#[test]
fn one_interrupt_ends_a_wait_for_a_pipe() {
    let folder = TempDir::new("pipes-interrupt");
    let fifo = fifo(&folder).canonicalize().expect("it was made");
    for words in READERS {
        assert_ends(start(&folder, words, &fifo), words, &fifo);
    }
    // The same with a writer that writes nothing.
    let _writer: File = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(0o4000)
        .open(&fifo)
        .expect("Linux opens both ends");
    for words in READERS {
        assert_ends(start(&folder, words, &fifo), words, &fifo);
    }
}

/// Opening a pipe before its writer doesn't look like the end of the file.
#[test]
fn a_pipe_is_read_to_its_end() {
    let folder = TempDir::new("pipes-read");
    let fifo = fifo(&folder).canonicalize().expect("it was made");
    let capture = root().join("testdata/nfs3-small.pcap.zst");
    let mut command = Command::new(env!("CARGO_BIN_EXE_brunt"));
    command
        .args(["--json", "analyze"])
        .arg(&fifo)
        .stdout(Stdio::piped());
    let process = command.spawn().expect("it starts");
    eventually("the pipe is opened", 60, || has_open(&process, &fifo));
    std::fs::copy(&capture, &fifo).expect("it is read");
    let piped = process.wait_with_output().expect("a child of ours");
    let plain = Command::new(env!("CARGO_BIN_EXE_brunt"))
        .args(["--json", "analyze"])
        .arg(&capture)
        .output()
        .expect("it starts");
    assert!(piped.status.success(), "{piped:?}");
    assert_eq!(piped.stdout, plain.stdout);
}
