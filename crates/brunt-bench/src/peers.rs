//! The peers of `brunt-bench iscsi`: tgt, iperf3 and QEMU's libiscsi client; and how to find and start any other
//! program. Each runs on loopback for one measurement and is stopped afterwards, even if the measurement fails.

use std::io::{self, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cleanup::{Start, Temporary};

/// Whether a program is installed.
pub fn have(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path)
            .chain(["/usr/sbin".into(), "/sbin".into()])
            .any(|dir| dir.join(program).is_file())
    })
}

/// A command for a system program, including those for administrators.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::null());
    command
}

/// A port that was free a moment ago, for peers that cannot choose one themselves.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A process that is killed when this value is dropped.
pub struct Guarded(Child);

impl Guarded {
    /// Guards this child: dropping the value kills it.
    pub fn of(child: Child) -> Guarded {
        Guarded(child)
    }

    /// Its PID.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How tgt is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TgtTuning {
    /// Debian's defaults: 8 KiB segments.
    Shipped,
    /// Segments and bursts as large as ours, and several R2Ts.
    Tuned,
}

/// The storage of a LUN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Drops writes and reads zeros.
    Null,
    /// Memory; for tgt, a file on tmpfs.
    Memory,
}

/// A running tgtd with a single LUN and its own control port.
pub struct Tgt {
    process: Guarded,
    url: String,
    _backing: Option<Temporary>,
}

const TGT_NAME: &str = "iqn.2026-11.io.brunt:peer";

/// Runs tgtadm on the tgtd with this control socket.
fn tgtadm(control: &str, args: &str) -> io::Result<()> {
    let output = command("tgtadm")
        .args(["-C", control, "--lld", "iscsi"])
        .args(args.split(' '))
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "tgtadm {args}: {}",
        stderr.trim()
    )))
}

/// Adds LUN 1 to target 1; returns its backing file, if it has one.
fn add_lun(
    control: &str,
    medium: Medium,
    port: u16,
    size_bytes: u64,
) -> io::Result<Option<Temporary>> {
    match medium {
        Medium::Null => {
            tgtadm(
                control,
                &format!(
                    "--op new --mode logicalunit --tid 1 --lun 1 -b {} --bstype null",
                    size_bytes >> 20
                ),
            )?;
            Ok(None)
        }
        Medium::Memory => {
            let path = Path::new("/dev/shm").join(format!("brunt-bench-tgt-{port}"));
            let backing = Temporary::new(path.clone());
            std::fs::File::create(&path)?.set_len(size_bytes)?;
            tgtadm(
                control,
                &format!(
                    "--op new --mode logicalunit --tid 1 --lun 1 -b {}",
                    path.display()
                ),
            )?;
            Ok(Some(backing))
        }
    }
}

impl Tgt {
    /// Starts tgtd, which must run as root because it locks its memory.
    ///
    /// # Errors
    /// tgtd doesn't start, or rejects its configuration; the error contains its message.
    pub fn start(medium: Medium, tuning: TgtTuning, size_bytes: u64) -> io::Result<Tgt> {
        let port = free_port()?;
        // tgtd numbers its control sockets up to 32,767; derived from a free port, the number is unused, too.
        let control = (port % 32_768).to_string();
        let child = command("tgtd")
            .args([
                "-f",
                "-C",
                &control,
                "--iscsi",
                &format!("portal=127.0.0.1:{port}"),
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .start()?;
        let process = Guarded(child);
        let admin = |args: &str| tgtadm(&control, args);
        let begin = Instant::now();
        while admin("--op show --mode sys").is_err() {
            if begin.elapsed() > Duration::from_secs(5) {
                return Err(io::Error::other(
                    "tgtd did not reply within 5 s (it must run as root)",
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        admin(&format!("--op new --mode target --tid 1 -T {TGT_NAME}"))?;
        let backing = add_lun(&control, medium, port, size_bytes)?;
        if tuning == TgtTuning::Tuned {
            for pair in [
                "MaxRecvDataSegmentLength -v 262144",
                "MaxXmitDataSegmentLength -v 262144",
                "MaxBurstLength -v 1048576",
                "FirstBurstLength -v 262144",
                "InitialR2T -v No",
                "MaxOutstandingR2T -v 8",
            ] {
                admin(&format!("--op update --mode target --tid 1 -n {pair}"))?;
            }
        }
        admin("--op bind --mode target --tid 1 -I ALL")?;
        Ok(Tgt {
            process,
            url: format!("iscsi://127.0.0.1:{port}/{TGT_NAME}/1"),
            _backing: backing,
        })
    }

    /// The URL of the target's LUN.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its PID.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}

/// Raw TCP: `iperf3 -l SIZE`, a single stream on loopback, in bytes per second.
///
/// # Errors
/// iperf3 doesn't run, or its output is not a report.
pub fn iperf3(size: usize, time: Duration) -> io::Result<f64> {
    let port = free_port()?.to_string();
    let server = command("iperf3")
        .args(["-s", "-1", "-p", &port])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .start()?;
    let _server = Guarded(server);
    let begin = Instant::now();
    loop {
        let output = command("iperf3")
            .args([
                "-c",
                "127.0.0.1",
                "-p",
                &port,
                "-J",
                "-l",
                &size.to_string(),
            ])
            .args(["-t", &time.as_secs().max(1).to_string()])
            .output()?;
        let report: serde_json::Value =
            serde_json::from_slice(&output.stdout).map_err(io::Error::other)?;
        if let Some(bits) = report["end"]["sum_received"]["bits_per_second"].as_f64() {
            return Ok(bits / 8.0);
        }
        if begin.elapsed() > Duration::from_secs(3) {
            return Err(io::Error::other(format!("iperf3: {}", report["error"])));
        }
        // The server may not be listening yet.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// libiscsi's client, as used by QEMU: `qemu-img bench` with sequential requests. Returns requests per second.
///
/// # Errors
/// qemu-img doesn't run, or fails on the target.
pub fn qemu_img_bench(
    url: &str,
    write: bool,
    size: usize,
    depth: u32,
    count: u64,
) -> io::Result<f64> {
    let mut bench = command("qemu-img");
    bench.args([
        "bench",
        "-f",
        "raw",
        "-t",
        "none",
        "-c",
        &count.to_string(),
        "-d",
        &depth.to_string(),
    ]);
    bench.args(["-s", &size.to_string()]);
    if write {
        bench.arg("-w");
    }
    let mut child = bench
        .arg(url)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start()?;
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut stdout)?;
    child
        .stderr
        .take()
        .expect("piped")
        .read_to_string(&mut stderr)?;
    child.wait()?;
    // "Run completed in 1.234 seconds."
    let seconds = stdout
        .rsplit_once("completed in ")
        .and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<f64>().ok())
        .ok_or_else(|| io::Error::other(format!("qemu-img bench: {}", stderr.trim())))?;
    Ok(count as f64 / seconds)
}
