//! SPDK's `iscsi_tgt` as a peer of `brunt-bench iscsi`: one core, which polls, without huge pages, with a null LUN and
//! a memory LUN.
//!
//! The rule: a polling process takes a core from everything else, so it is stopped (SIGSTOP) unless it is measured.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::cleanup::{Start, Temporary};
use crate::iscsi::open;
use crate::peers::{Guarded, free_port};

const NODE: &str = "iqn.2016-06.io.spdk";
const BLOCK_BYTES: u64 = 512;
const START_MAX: Duration = Duration::from_secs(20);

/// An `iscsi_tgt` that is stopped unless it is measured.
pub struct Spdk {
    process: Guarded,
    url: String,
    // Removed here, because SPDK leaves its files behind when it is killed.
    _files: [Temporary; 2],
}

/// Stops the process again when dropped.
pub struct Awake(Pid);

impl Spdk {
    /// Starts the program at this path with two LUNs of this size, and stops it once they can be opened.
    ///
    /// # Errors
    /// The program doesn't start, or its LUNs can't be opened within 20 seconds.
    pub fn start(program: &Path, size_bytes: u64) -> io::Result<Spdk> {
        let port = free_port()?;
        let folder = Temporary::new(format!("/dev/shm/brunt-bench-spdk-{port}").into());
        std::fs::create_dir(folder.path())?;
        let config = folder.path().join("config.json");
        std::fs::write(&config, configuration(port, size_bytes).to_string())?;
        // SPDK's pools for 2,048 sessions need much of this memory.
        let memory_mib = (size_bytes >> 20) * 2 + 2048;
        let mut command = Command::new(program);
        command
            .args(["--no-huge", "-s", &memory_mib.to_string()])
            // SPDK gets the last core, so that the client has the first.
            .arg("-m")
            .arg(format!("[{}]", last_core()))
            .arg("-r")
            .arg(folder.path().join("socket"))
            .arg("-c")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = Guarded::of(command.start()?);
        let trace = format!("/dev/shm/iscsi_trace.pid{}", process.id());
        let trace = Temporary::new(trace.into());
        let url = format!("iscsi://127.0.0.1:{port}/{NODE}:bench");
        let begin = Instant::now();
        // SPDK listens before its target exists.
        while let Err(error) = open(&format!("{url}/1")) {
            if begin.elapsed() > START_MAX {
                return Err(io::Error::other(format!(
                    "{} has no LUN after {START_MAX:?}: {error}; start it by hand to see why",
                    program.display()
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let spdk = Spdk {
            process,
            url,
            _files: [folder, trace],
        };
        drop(awake(spdk.pid())?);
        Ok(spdk)
    }

    /// The URL of the target; LUN 0 is null, LUN 1 memory.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its PID.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}

/// Lets a stopped process run until the result is dropped.
///
/// # Errors
/// The process has ended.
pub fn awake(pid: u32) -> io::Result<Awake> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::NotFound)?;
    kill_process(pid, Signal::CONT)?;
    Ok(Awake(pid))
}

impl Drop for Awake {
    fn drop(&mut self) {
        // Fails if the process has ended.
        let _ = kill_process(self.0, Signal::STOP);
    }
}

fn last_core() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) - 1
}

/// What `iscsi_tgt -c` reads: SPDK's JSON-RPC calls in order.
fn configuration(port: u16, size_bytes: u64) -> Value {
    let blocks = size_bytes / BLOCK_BYTES;
    let disk = |name| json!({ "name": name, "num_blocks": blocks, "block_size": BLOCK_BYTES });
    let call = |method, params| json!({ "method": method, "params": params });
    json!({ "subsystems": [
        { "subsystem": "bdev", "config": [
            call("bdev_null_create", disk("Null0")),
            call("bdev_malloc_create", disk("Malloc0")),
        ] },
        { "subsystem": "iscsi", "config": [
            call("iscsi_set_options", json!({
                "node_base": NODE, "max_sessions": 2048, "immediate_data": true,
            })),
            call("iscsi_create_portal_group", json!({
                "tag": 1, "portals": [{ "host": "127.0.0.1", "port": port.to_string() }],
            })),
            call("iscsi_create_initiator_group", json!({
                "tag": 1, "initiators": ["ANY"], "netmasks": ["ANY"],
            })),
            call("iscsi_create_target_node", json!({
                "name": "bench", "alias_name": "bench", "queue_depth": 128, "disable_chap": true,
                "luns": [
                    { "bdev_name": "Null0", "lun_id": 0 },
                    { "bdev_name": "Malloc0", "lun_id": 1 },
                ],
                "pg_ig_maps": [{ "pg_tag": 1, "ig_tag": 1 }],
            })),
        ] },
    ] })
}
