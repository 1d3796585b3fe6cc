//! nfs-ganesha, a user-space server with a file system, as a second server for `brunt-bench nfs`. nfs-ganesha
//! registers with the port mapper and keeps its state in fixed folders, so the whole benchmark is started again in
//! namespaces that have their own port mapper and folders.
//!
//! The rule: nothing outside these namespaces and the scratch folder is changed.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use brunt_nfs::server::DISK;

use crate::cleanup::Start;
use crate::peers::{Guarded, command, free_port, have};
use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console};

/// Marks the process inside the namespaces.
const INSIDE: &str = "BRUNT_BENCH_NFS_INSIDE";
/// How long a server may take to start.
const START_MAX: Duration = Duration::from_secs(30);
/// Length of the file, which has no data.
const FILE_BYTES: u64 = 1 << 30;
/// The programs, with their Debian packages.
const PROGRAMS: [(&str, &str); 4] = [
    ("ganesha.nfsd", "nfs-ganesha and nfs-ganesha-vfs"),
    ("rpcbind", "rpcbind"),
    ("unshare", "util-linux"),
    ("ip", "iproute2"),
];

/// Starts this program again in new namespaces and waits for it; `None` if this process is already in them, or if
/// ganesha can't run here.
pub(super) fn run_inside(output: &dyn Console) -> Option<BenchResult> {
    if is_inside() {
        return None;
    }
    if let Some((_, package)) = PROGRAMS.iter().find(|(program, _)| !have(program)) {
        output.note(format!(
            "left out: nfs-ganesha needs the Debian package {package}"
        ));
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        output.note("left out: nfs-ganesha needs root, since it opens files by their handles");
        return None;
    }
    Some(
        run_again()
            .map_err(|error| BenchError::failed(format!("unshare: {error}")))
            .and_then(|is_complete| match is_complete {
                true => Ok(()),
                false => Err(BenchError::failed(
                    "the benchmark in its own namespaces failed; see its message above",
                )),
            }),
    )
}

/// Whether this process is in namespaces made for ganesha.
pub(super) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

fn run_again() -> io::Result<bool> {
    let mut unshare = command("unshare");
    unshare.args(["--net", "--mount", "--propagation", "private"]);
    unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    unshare.arg(std::env::current_exe()?);
    unshare.args(std::env::args_os().skip(1)).env(INSIDE, "1");
    Ok(unshare.start()?.wait()?.success())
}

/// The server and its port mapper, which are stopped when this value is dropped.
pub(super) struct Ganesha {
    process: Guarded,
    _port_mapper: Guarded,
    folder: Scratch,
    /// The address for NFS calls.
    pub(super) address: SocketAddr,
    /// The port for MOUNT.
    pub(super) mount_port: u16,
}

impl Ganesha {
    /// Starts the server and its port mapper in separate namespaces.
    pub(super) fn start() -> Result<Ganesha, BenchError> {
        let failed = |error: io::Error| BenchError::failed(format!("nfs-ganesha: {error}"));
        let folder = Scratch::new(None, "ganesha")?;
        prepare(folder.path()).map_err(failed)?;
        let port_mapper = quiet(&["rpcbind", "-w", "-f"]).map_err(failed)?;
        wait_for(111).map_err(failed)?;
        let (port, mount_port) = (free_port().map_err(failed)?, free_port().map_err(failed)?);
        let text = configuration(&folder.join("export"), port, mount_port);
        let path = |name: &str| folder.join(name).display().to_string();
        let [conf, log, pid] = ["conf", "log", "pid"].map(path);
        fs::write(&conf, text).map_err(failed)?;
        let ganesha = ["ganesha.nfsd", "-F", "-f", &conf, "-L", &log, "-p", &pid];
        let process = quiet(&ganesha).map_err(failed)?;
        for port in [mount_port, port] {
            wait_for(port).map_err(failed)?;
        }
        Ok(Ganesha {
            process,
            _port_mapper: port_mapper,
            folder,
            address: ([127, 0, 0, 1], port).into(),
            mount_port,
        })
    }

    /// Its PID.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The exported folder, with the file [`DISK`].
    pub(super) fn export(&self) -> String {
        self.folder.join("export").display().to_string()
    }
}

/// Sets up the namespaces, and makes the exported folder with its file.
fn prepare(folder: &Path) -> io::Result<()> {
    succeed(&["ip", "link", "set", "lo", "up"])?;
    for place in ["/run", "/var/lib/nfs"] {
        succeed(&["mount", "-t", "tmpfs", "tmpfs", place])?;
        fs::create_dir(Path::new(place).join("ganesha"))?;
    }
    let export = folder.join("export");
    fs::create_dir(&export)?;
    File::create(export.join(DISK))?.set_len(FILE_BYTES)
}

fn configuration(export: &Path, port: u16, mount_port: u16) -> String {
    let path = export.display();
    format!(
        "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {port}; MNT_Port = {mount_port}; Enable_NLM = false; \
           Enable_RQUOTA = false; Enable_UDP = false; mount_path_pseudo = false; }}\n\
         NFSV4 {{ Graceless = true; RecoveryBackend = fs; }}\n\
         EXPORT {{ Export_Id = 1; Path = {path}; Pseudo = /export; Filesystem_Id = 192.1; Protocols = 3; \
           Transports = TCP; Access_Type = RW; MaxRead = 1048576; MaxWrite = 1048576; \
           PrivilegedPort = false; Squash = No_Root_Squash; SecType = sys; FSAL {{ Name = VFS; }} }}\n"
    )
}

fn succeed(words: &[&str]) -> io::Result<()> {
    let done = command(words[0]).args(&words[1..]).output()?;
    match done.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{}: {}",
            words.join(" "),
            String::from_utf8_lossy(&done.stderr).trim()
        ))),
    }
}

fn quiet(words: &[&str]) -> io::Result<Guarded> {
    let mut command = command(words[0]);
    command.args(&words[1..]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.start().map(Guarded::of)
}

fn wait_for(port: u16) -> io::Result<()> {
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if begin.elapsed() > START_MAX {
            let what = format!("nothing listens on port {port} after {START_MAX:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}
