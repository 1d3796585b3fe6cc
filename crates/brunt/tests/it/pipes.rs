//! Files that are pipes: their contents are read, and a single Ctrl-C ends the wait for them, even before there is a
//! writer. A single Ctrl-C also ends a wait to write to a full pipe.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{TempDir, eventually, root};

/// Commands that read a file named by the user; `@` is replaced with its name.
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
    // An earlier attempt may have left the file behind.
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

/// Sends one SIGINT once the pipe is open; the process must then end with a failure.
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
    // Do the same with a writer that writes nothing.
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

/// A pipe that is opened before its writer exists isn't mistaken for an empty file.
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

/// Commands that print, and the file that replaces `@`.
const PRINTERS: &[(&str, &str)] = &[
    ("help run", ""),
    ("--help", ""),
    ("schema", ""),
    ("completions bash", ""),
    ("man", ""),
    ("--json devices", ""),
    ("sql --list", ""),
    ("io info null:1MiB", ""),
    ("io read null:1MiB --output -", ""),
    ("io read null:1MiB --output /dev/stdout", ""),
    ("analyze @", "testdata/nfs3-small.pcap.zst"),
    ("--json analyze @", "testdata/nfs4-small.pcap.zst"),
    ("run @ --check", "examples/quick.toml"),
    ("measure null:1MiB --print", ""),
    (
        "measure null:1MiB --time 100ms --reps 1 --out @",
        "results-of-pipes",
    ),
];

/// A full pipe: the end that nothing reads, and the end for writing.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let flags = rustix::fs::fcntl_getfl(&writer).expect("it is open");
    let not_blocking = flags | rustix::fs::OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&writer, not_blocking).expect("it is open");
    while writer.write(&[b'x'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).expect("it is open");
    (reader, writer)
}

/// Whether all threads of a process sleep, checked several times by the state of each in proc_pid_stat(5).
fn sleeps(process: &Child) -> bool {
    (0..5).all(|_| {
        std::thread::sleep(Duration::from_millis(40));
        let threads = std::fs::read_dir(format!("/proc/{}/task", process.id()));
        threads.into_iter().flatten().flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            let state = stat
                .rsplit_once(") ")
                .map(|(_, rest)| rest.starts_with('S'));
            state.unwrap_or(false)
        })
    })
}

#[test]
fn one_interrupt_ends_a_wait_for_a_reader() {
    let folder = TempDir::new("pipes-full");
    for (words, file) in PRINTERS {
        let (reader, writer) = full_pipe();
        let file = match root().join(file) {
            file if file.exists() => file,
            _ => folder.join(file),
        };
        let words_of = words.split(' ').map(|word| match word {
            "@" => file.as_os_str(),
            word => word.as_ref(),
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_brunt"));
        let mut process = command
            .args(words_of)
            .current_dir(folder.join("."))
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        drop(command);
        eventually(&format!("{words} waits"), 60, || sleeps(&process));
        let ended = process.try_wait().expect("a child of ours");
        assert!(ended.is_none(), "{words} did not wait: {ended:?}");
        kill_process(Pid::from_child(&process), Signal::INT).expect("it runs");
        let mut status = None;
        eventually(&format!("{words} ends"), 60, || {
            status = process.try_wait().expect("a child of ours");
            status.is_some()
        });
        let code = status.and_then(|status| status.code());
        assert!(matches!(code, Some(1 | 2 | 130)), "{words}: {code:?}");
        drop(reader);
    }
}

/// A reader that is slower than the command still receives everything.
#[test]
fn a_slow_reader_gets_all_of_an_answer() {
    let mut process = Command::new(env!("CARGO_BIN_EXE_brunt"))
        .arg("schema")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    std::thread::sleep(Duration::from_millis(300));
    let mut slow = Vec::new();
    let mut out = process.stdout.take().expect("a pipe");
    out.read_to_end(&mut slow).expect("it is read");
    assert!(process.wait().expect("a child of ours").success());
    let whole = Command::new(env!("CARGO_BIN_EXE_brunt"))
        .arg("schema")
        .output()
        .expect("it starts");
    assert!(slow.len() > 1 << 16, "longer than a pipe has room for");
    assert!(slow == whole.stdout);
}
