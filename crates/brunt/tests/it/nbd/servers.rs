//! Servers for tests of the NBD client, and a handle for sending requests to them.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use crate::support::{brunt, eventually, need, run_within};
use brunt_block::{
    Backend, Completion, Device, DeviceError, Op, Request, Ring, RingConfig, open_url_with, turn,
};
use serde_json::Value;
use tempfile::TempDir;

pub(super) const MIB: u64 = 1 << 20;

/// A server in the foreground on a Unix socket; its folder contains a file `disk`.
pub(super) struct Server {
    pub(super) child: Child,
    pub(super) command: Vec<String>,
    pub(super) folder: TempDir,
}

/// Socket paths must be short, so they aren't in the build folder.
pub(super) fn folder() -> TempDir {
    tempfile::Builder::new().prefix("nbd").tempdir().unwrap()
}

pub(super) fn disk(folder: &TempDir, bytes: u64) -> PathBuf {
    let path = folder.path().join("disk");
    fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

impl Server {
    /// `SOCKET` and `DISK` are replaced with paths in the folder.
    pub(super) fn start(folder: TempDir, words: &[&str]) -> Server {
        let path = |name: &str| folder.path().join(name).display().to_string();
        let word = |word: &&str| {
            word.replace("SOCKET", &path("socket"))
                .replace("DISK", &path("disk"))
        };
        let command: Vec<String> = words.iter().map(word).collect();
        let child = Server::spawn(&command);
        let mut server = Server {
            child,
            command,
            folder,
        };
        server.wait();
        server
    }

    pub(super) fn spawn(command: &[String]) -> Child {
        let mut started = Command::new(&command[0]);
        // Servers print each injected error.
        started
            .args(&command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        started
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    pub(super) fn wait(&mut self) {
        // The path exists before the server listens, and some servers serve only one connection, so ask the kernel
        // instead of connecting.
        let line_end = format!(" {}", self.folder.path().join("socket").display());
        let listens =
            |line: &str| line.ends_with(&line_end) && line.split(' ').nth(3) == Some("00010000");
        let child = &mut self.child;
        eventually("a server's socket", 20, || {
            assert!(child.try_wait().unwrap().is_none(), "the server ended");
            fs::read_to_string("/proc/net/unix")
                .unwrap()
                .lines()
                .any(listens)
        });
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let _ = fs::remove_file(self.folder.path().join("socket"));
    }

    pub(super) fn restart(&mut self) {
        self.child = Server::spawn(&self.command);
        self.wait();
    }

    pub(super) fn url(&self, export: &str, options: &str) -> String {
        let socket = self.folder.path().join("socket");
        let join = if options.is_empty() { "" } else { "&" };
        format!(
            "nbd+unix:///{export}?socket={}{join}{options}",
            socket.display()
        )
    }

    pub(super) fn disk(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    pub(super) fn open(&self, options: &str) -> Arc<dyn Backend> {
        let url = self.url("", options);
        open_url_with(&url, brunt_store::BACKENDS, false)
            .unwrap_or_else(|error| panic!("{url}: {error}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// nbdkit with these arguments, listening on a socket.
pub(super) fn nbdkit(folder: TempDir, words: &[&str]) -> Option<Server> {
    need("nbdkit", "nbdkit")?;
    Some(Server::start(
        folder,
        &[&["nbdkit", "-f", "-U", "SOCKET"], words].concat(),
    ))
}

pub(super) fn qemu_nbd(folder: TempDir, words: &[&str]) -> Option<Server> {
    need("qemu-nbd", "qemu-utils")?;
    let fixed = ["qemu-nbd", "-t", "-e", "8", "-k", "SOCKET", "-f", "raw"];
    Some(Server::start(folder, &[&fixed, words, &["DISK"]].concat()))
}

pub(super) fn storage_daemon(folder: TempDir) -> Option<Server> {
    need("qemu-storage-daemon", "qemu-system-common")?;
    let file = "driver=file,node-name=f,filename=DISK,discard=unmap";
    let null = "driver=null-co,node-name=n,size=1048576,read-zeroes=on";
    let listen = "addr.type=unix,addr.path=SOCKET,max-connections=16";
    let words = [
        "qemu-storage-daemon",
        "--blockdev",
        file,
        "--blockdev",
        null,
        "--nbd-server",
        listen,
        "--export",
        "type=nbd,id=e,node-name=f,name=,writable=on,description=a file",
        "--export",
        "type=nbd,id=m,node-name=n,name=other",
    ];
    let mut server = Server::start(folder, &words);
    // The server listens before its exports exist.
    eventually("the exports", 20, || {
        assert!(server.child.try_wait().unwrap().is_none());
        open_url_with(&server.url("other", ""), brunt_store::BACKENDS, false).is_ok()
    });
    Some(server)
}

pub(super) fn io(words: &[&str]) -> Value {
    let mut command = brunt();
    command.args(["--json", "io"]).args(words);
    let output = run_within(&mut command, 60);
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{words:?}: {}\n{text}\n{error}",
        output.status
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

pub(super) fn sha256sum(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_string()
}

/// A per-thread handle to a backend.
pub(super) struct Hand {
    pub(super) ring: Ring,
    pub(super) device: Box<dyn Device>,
}

impl Hand {
    pub(super) fn on(backend: &dyn Backend, depth: u32) -> Hand {
        let ring = Ring::new(RingConfig::default()).unwrap();
        let device = backend.open(&ring, depth).unwrap();
        Hand { ring, device }
    }

    pub(super) fn request(&self, tag: u64, op: Op, offset: u64, len: u64) -> Request {
        let moves_data = matches!(op, Op::Read | Op::Write);
        let buf = if moves_data {
            self.ring.pool().take(len as usize)
        } else {
            brunt_block::Buf::empty()
        };
        Request {
            tag,
            op,
            offset,
            len,
            buf,
            force_unit_access: false,
        }
    }

    /// Runs all requests to completion; returns the completions by tag.
    pub(super) fn run(&mut self, requests: Vec<Request>) -> Vec<Completion> {
        let (mut batch, mut done) = (VecDeque::from(requests), Vec::new());
        while !batch.is_empty() || self.device.outstanding() > 0 {
            turn::turn(&self.ring, &mut *self.device, &mut batch, &mut done).unwrap();
        }
        done.sort_by_key(|one| one.tag);
        done
    }

    pub(super) fn one(&mut self, op: Op, offset: u64, len: u64) -> Completion {
        let request = self.request(0, op, offset, len);
        self.run(vec![request]).pop().unwrap()
    }

    /// Fills the range from `offset` to `offset + len` with `byte`.
    pub(super) fn write(
        &mut self,
        offset: u64,
        len: u64,
        byte: u8,
        fua: bool,
    ) -> Result<(), DeviceError> {
        let mut request = self.request(0, Op::Write, offset, len);
        request.buf.fill(byte);
        request.force_unit_access = fua;
        self.run(vec![request]).pop().unwrap().result
    }
}
