//! Devices whose paths contain non-UTF-8 bytes, or characters with a meaning in URLs: every command that takes a
//! device accepts them as bare paths and as `file:` URLs, and shows them in a form that names the same file again.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::BufRead;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use brunt_core::device_path;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::TempDir;

const SIZE_BYTES: u64 = 1 << 20;
const NAMES: &[&[u8]] = &[
    b"plain.img",
    b"disk\xff.img",
    b"\xc3\xbc.img",
    b"a?b.img",
    b"a#b.img",
    b"a%b.img",
    b"a%41b.img",
    b"a,b.img",
    b"a b.img",
    b"a\nb.img",
    b"a[b].img",
    b"a&b=c.img",
    b"\xfe?d\xff,e%41.img",
];

fn brunt(folder: &TempDir, words: &[&OsStr]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_brunt"))
        .args(words)
        .current_dir(folder.join("."))
        .stdin(Stdio::null())
        .output()
        .expect("it starts")
}

fn with(prefix: &str, name: &[u8], suffix: &str) -> OsString {
    OsString::from_vec([prefix.as_bytes(), name, suffix.as_bytes()].concat())
}

/// The arguments that name a file in the working directory.
fn words_for(name: &[u8]) -> [OsString; 3] {
    let encoded = device_path::encode(Path::new(OsStr::from_bytes(name)));
    [
        with("", name, ""),
        with("./", name, ""),
        format!("file:{encoded}").into(),
    ]
}

/// The JSON object that a command printed.
fn object(output: &Output) -> Value {
    let text = std::str::from_utf8(&output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_str(text).expect("one object")
}

fn names(folder: &TempDir) {
    for name in NAMES {
        let file =
            File::create_new(folder.join(".").join(OsStr::from_bytes(name))).expect("it is new");
        file.set_len(SIZE_BYTES).expect("there is room");
    }
}

/// The file to which a displayed path or URL refers.
fn file_of(shown: &str) -> OsString {
    let path = match shown.strip_prefix("file:") {
        Some(place) => device_path::decode(place),
        None => shown.into(),
    };
    path.file_name().expect("a file").to_os_string()
}

#[test]
fn io_takes_any_path() {
    let folder = TempDir::new("names-io");
    names(&folder);
    for name in NAMES {
        for word in words_for(name) {
            let info = ["--json", "io", "info"].map(OsStr::new);
            let found = object(&brunt(&folder, &[&info[..], &[&word]].concat()));
            assert_eq!(found["size_bytes"], SIZE_BYTES, "{word:?}");
            let shown = found["device"].as_str().expect("a text");
            assert!(!shown.contains(char::is_control), "{shown:?}");
            assert_eq!(file_of(shown).as_bytes(), *name, "{shown}");
        }
        let [bare, _, url] = words_for(name);
        let write = ["io", "write"].map(OsStr::new);
        let verify = ["io", "verify"].map(OsStr::new);
        let written = brunt(&folder, &[&write[..], &[&bare]].concat());
        assert!(written.status.success(), "{bare:?}: {written:?}");
        let verified = brunt(&folder, &[&verify[..], &[&url]].concat());
        assert!(verified.status.success(), "{url:?}: {verified:?}");
    }
    // Nothing else was created.
    let found = std::fs::read_dir(folder.join(".")).expect("it is there");
    assert_eq!(found.count(), NAMES.len());
}

#[test]
fn measurements_take_any_path() {
    let folder = TempDir::new("names-measure");
    names(&folder);
    for name in NAMES {
        let [bare, _, url] = words_for(name);
        // The printed experiment is valid text, and names the same file.
        let print = ["measure", "--print"].map(OsStr::new);
        let printed = brunt(&folder, &[&print[..], &[&bare]].concat());
        assert!(printed.status.success(), "{printed:?}");
        std::fs::write(folder.join("x.toml"), &printed.stdout).expect("there is room");
        let check = ["run", "x.toml", "--check=open"].map(OsStr::new);
        let checked = brunt(&folder, &check);
        assert!(checked.status.success(), "{bare:?}: {checked:?}");
        let check = ["measure", "--print"].map(OsStr::new);
        let printed = brunt(&folder, &[&check[..], &[&url]].concat());
        assert!(printed.status.success(), "{url:?}: {printed:?}");
    }
    let measured = with("", NAMES[1], "");
    let words = ["--json", "measure", "--time", "500ms", "--reps", "1"].map(OsStr::new);
    let found = brunt(&folder, &[&words[..], &[&measured]].concat());
    assert!(
        object(&found).to_string().contains("disk%FF.img"),
        "{found:?}"
    );
}

#[test]
fn targets_serve_any_path() {
    let folder = TempDir::new("names-target");
    names(&folder);
    for name in NAMES {
        let encoded = words_for(name)[2].clone();
        for lun in [
            with("./", name, ""),
            encoded.clone(),
            with("", encoded.as_bytes(), ",ro"),
        ] {
            let mut target = Command::new(env!("CARGO_BIN_EXE_brunt"))
                .args(["target", "--portal", "127.0.0.1:0", "--lun"])
                .arg(&lun)
                .current_dir(folder.join("."))
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("it starts");
            let mut line = String::new();
            let out = target.stdout.take().expect("a pipe");
            let _ = std::io::BufReader::new(out).read_line(&mut line);
            let _ = kill_process(Pid::from_child(&target), Signal::TERM);
            let output = target.wait_with_output().expect("a child of ours");
            assert!(line.contains("127.0.0.1"), "{lun:?}: {line:?} {output:?}");
        }
    }
}

/// A `%` in a `file:` URL that is meant literally doesn't refer to another file; the message says what to write.
#[test]
fn a_literal_percent_sign_is_not_taken_for_another_file() {
    let folder = TempDir::new("names-literal");
    File::create_new(folder.join("a%41.img")).expect("it is new");
    for suffix in ["", "?size=1MiB&create=yes"] {
        let url = format!("file:a%41.img{suffix}");
        let output = brunt(&folder, &["io", "info", &url].map(OsStr::new));
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("file:a%2541.img"), "{said}");
        assert!(!folder.join("aA.img").exists());
    }
}
