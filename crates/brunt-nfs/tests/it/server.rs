//! nfs-ganesha, a user-space server, in separate namespaces, so its network and port mapper don't interfere with
//! anything else on the machine or with other tests.
//!
//! A test begins with [`Server::within`], which starts this program again in new namespaces, for this test alone, and
//! waits for it. There, the same call starts the servers.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The ports of the server.
pub const NFS_PORT: u16 = 12_049;
pub const MOUNT_PORT: u16 = 12_048;
/// No grace period after a start, during which nothing new could be opened.
const NO_GRACE: &str = "Graceless = true;";
/// Marks the process in the namespaces.
const INSIDE: &str = "BRUNT_NFS_INSIDE";

/// Whether these programs exist; if not, the test is skipped, or fails with `BRUNT_REQUIRE_ALL=1`.
pub fn need(programs: &[(&str, &str)]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .collect();
    let is_missing = |program: &str| !folders.iter().any(|folder| folder.join(program).is_file());
    match programs.iter().find(|(program, _)| is_missing(program)) {
        Some((_, package)) => {
            skip(package);
            false
        }
        None => true,
    }
}

fn skip(what: &str) {
    assert!(
        std::env::var_os("BRUNT_REQUIRE_ALL").is_none_or(|value| value != "1"),
        "needs {what}"
    );
    println!("skipped: needs {what}");
}

/// The servers, and the folder that they export.
pub struct Server {
    ganesha: Option<Child>,
    rpcbind: Child,
    folder: TempDir,
}

impl Server {
    /// Starts a separate process for a test, and returns the servers there. `None` in the process that waited for
    /// that process, or if the test is skipped.
    pub fn within(test: &str) -> Option<Server> {
        if std::env::var_os(INSIDE).is_some() {
            return Some(Server::start());
        }
        run_inside(test);
        None
    }

    /// Starts the servers. Their state is in memory, which vanishes with the namespace.
    fn start() -> Server {
        run("ip", &["link", "set", "lo", "up"]);
        for folder in ["/run", "/var/lib/nfs"] {
            run("mount", &["-t", "tmpfs", "tmpfs", folder]);
        }
        fs::create_dir_all("/run/ganesha").unwrap();
        fs::create_dir_all("/var/lib/nfs/ganesha").unwrap();
        // On a disk, even if the temporary folder is in memory: its file system has to support handles.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for name in ["export", "reserved"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let rpcbind = quiet(Command::new("rpcbind").args(["-w", "-f"]));
        wait_for(111);
        let mut server = Server {
            ganesha: None,
            rpcbind,
            folder,
        };
        fs::write(
            server.folder.path().join("conf"),
            server.configuration(NO_GRACE),
        )
        .unwrap();
        server.restart();
        server
    }

    /// Restarts the server with a grace period after each start, in which clients reclaim what they had open.
    pub fn restart_with_grace(&mut self) {
        let grace = "Graceless = false; Grace_Period = 15; Lease_Lifetime = 10;";
        fs::write(self.folder.path().join("conf"), self.configuration(grace)).unwrap();
        self.restart();
    }

    /// Two exports: `export`, and `reserved` for calls from ports below 1024.
    fn configuration(&self, grace: &str) -> String {
        let mut text = format!(
            "NFS_CORE_PARAM {{ Protocols = 3, 4; NFS_Port = {NFS_PORT}; MNT_Port = {MOUNT_PORT}; Enable_NLM = false; \
               Enable_RQUOTA = false; Enable_UDP = false; mount_path_pseudo = false; }}\n\
             NFSV4 {{ {grace} RecoveryBackend = fs; }}\n"
        );
        for (id, name, privileged) in [(1, "export", false), (2, "reserved", true)] {
            let path = self.folder.path().join(name);
            text += &format!(
                "EXPORT {{ Export_Id = {id}; Path = {path}; Pseudo = /{name}; Filesystem_Id = 192.{id}; Protocols = 3, 4; \
                   Transports = TCP; Access_Type = RW; MaxRead = 1048576; MaxWrite = 1048576; \
                   PrivilegedPort = {privileged}; Squash = No_Root_Squash; SecType = sys; \
                   FSAL {{ Name = VFS; }} }}\n",
                path = path.display()
            );
        }
        text
    }

    /// Kills the server, and starts it again.
    pub fn restart(&mut self) {
        self.kill();
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let [conf, log, pid] = ["conf", "log", "pid"].map(path);
        let mut ganesha = Command::new("ganesha.nfsd");
        ganesha.args(["-F", "-f", &conf, "-L", &log, "-p", &pid, "-N", "NIV_EVENT"]);
        self.ganesha = Some(quiet(&mut ganesha));
        wait_for(MOUNT_PORT);
        wait_for(NFS_PORT);
    }

    pub fn kill(&mut self) {
        if let Some(mut ganesha) = self.ganesha.take() {
            ganesha.kill().unwrap();
            ganesha.wait().unwrap();
        }
    }

    /// Stops or resumes the server's process.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(self.ganesha.as_ref().expect("a server"));
        rustix::process::kill_process(pid, signal).unwrap();
        // The signal takes effect a moment later.
        let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
        let is_stopped = || fs::read_to_string(&stat).unwrap().contains(") T ");
        while is_stopped() != (signal == rustix::process::Signal::STOP) {
            sleep(Duration::from_millis(5));
        }
    }

    /// The exported folder.
    pub fn export(&self) -> PathBuf {
        self.folder.path().join("export")
    }

    /// The URL of a file in the folder that is exported to ports below 1024.
    pub fn reserved_url(&self, file: &str, options: &str) -> String {
        self.url(file, options).replace("/export/", "/reserved/")
    }

    /// The NFSv4.1 URL of a file or folder in the export, which has another path in NFSv4.1.
    pub fn url41(&self, file: &str, options: &str) -> String {
        let join = if options.is_empty() { "" } else { "&" };
        format!("nfs://127.0.0.1:{NFS_PORT}/export/{file}?version=4.1{join}{options}")
    }

    /// The URL of a file in the export, with the server's ports.
    pub fn url(&self, file: &str, options: &str) -> String {
        let export = self.export();
        let join = if options.is_empty() { "" } else { "&" };
        format!(
            "nfs://127.0.0.1:{NFS_PORT}{}/{file}?mountport={MOUNT_PORT}{join}{options}",
            export.display()
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = self.rpcbind.kill();
        let _ = self.rpcbind.wait();
    }
}

/// Runs a test in new namespaces if this machine has everything it needs.
fn run_inside(test: &str) {
    let programs = [
        ("ganesha.nfsd", "nfs-ganesha"),
        ("rpcbind", "rpcbind"),
        ("ip", "iproute2"),
        ("unshare", "util-linux"),
    ];
    if !need(&programs) {
        return;
    }
    let folder = Path::new("/usr/lib");
    let plugin = |entry: fs::DirEntry| entry.path().join("ganesha/libfsalvfs.so").is_file();
    if !fs::read_dir(folder)
        .unwrap()
        .any(|entry| entry.is_ok_and(plugin))
    {
        return skip("nfs-ganesha-vfs");
    }
    if !rustix::process::geteuid().is_root() {
        return skip("root, for a server that opens files by their handles");
    }
    let program = std::env::current_exe().unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args([
        "--net",
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    unshare
        .arg(program)
        .args([test, "--exact", "--nocapture", "--test-threads=1"]);
    let output = unshare.env(INSIDE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} failed"
    );
}

fn quiet(command: &mut Command) -> Child {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn wait_for(port: u16) {
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(
            begin.elapsed() < Duration::from_secs(120),
            "nothing listens on port {port}"
        );
        sleep(Duration::from_millis(20));
    }
}

/// Runs a program that must succeed; returns its output.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).to_string()
}
