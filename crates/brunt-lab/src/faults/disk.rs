//! A slow disk: the kernel limits what a service's processes may request of the device that holds their folder, using a
//! separate cgroup ([`crate::io_group`]). Requests over the limit wait in the kernel, before they reach the device.
//!
//! The proof is a probe process that joins the cgroup first and writes to that folder with O_DIRECT: its writes must
//! be as slow as the limits demand while they apply, and faster without them. The rule: a limit above what the device
//! can do is not a fault.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use brunt_core::{Clock, Nanos};
use rustix::fs::{Mode, OFlags};

use crate::io_group::{DiskLimits, IoGroup, name_of};
use crate::start_again::{DISK_PROBE_MARK, start_again};
use crate::{Fault, FaultError, Proof};

/// The probe's first line; a program that ignores [`DISK_PROBE_MARK`] prints something else.
const HELLO: &str = "brunt disk probe";
/// The file that the probe writes, in the service's folder.
const FILE: &str = ".brunt-disk-probe";
/// Minimum duration of a probe's writes under the limits, so that the initial burst that the kernel lets through is
/// negligible.
const PROBE_TIME: Duration = Duration::from_millis(500);
/// Minimum and maximum writes per probe.
const WRITES: [u64; 2] = [4, 4096];
/// Minimum and maximum size of a write in bytes; devices require multiples of the minimum.
const WRITE_BYTES: [u64; 2] = [4096, 1 << 20];
/// Maximum attempts of a probe without limits.
const TRIES: u32 = 3;
/// Share of the expected duration after which limited writes count as slow: the kernel accounts in time slices, so a
/// few requests may pass early.
const TOLERANCE: f64 = 0.6;

/// How long a process may take to end, and the polling interval.
const ENDING_MAX: Duration = Duration::from_secs(2);
const ENDING_POLL: Duration = Duration::from_millis(5);

/// Returns the processes to limit at the time of the call.
pub type Processes = Box<dyn Fn() -> Vec<u32> + Send>;

/// Slows down the disk of a service.
pub struct SlowDisk {
    processes: Processes,
    /// The service's folder, inside the folder of all services.
    folder: PathBuf,
    limits: DiskLimits,
    active: Option<Active>,
}

struct Active {
    group: IoGroup,
    probe: Probe,
    since: Nanos,
    /// Requests that the probe had made in the cgroup when the fault was proven.
    before: u64,
}

/// The writes of one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Series {
    writes: u64,
    bytes: u64,
    /// Minimum duration under the limits.
    least: Duration,
}

impl Series {
    fn of(limits: DiskLimits) -> Series {
        let bytes = match limits {
            DiskLimits {
                requests: None,
                bytes: Some(bytes),
            } => bytes / 16 / WRITE_BYTES[0] * WRITE_BYTES[0],
            _ => WRITE_BYTES[0],
        };
        let bytes = bytes.clamp(WRITE_BYTES[0], WRITE_BYTES[1]);
        let by_requests = limits
            .requests
            .map_or(0.0, |requests| 1.0 / requests as f64);
        let by_bytes = limits
            .bytes
            .map_or(0.0, |limit| bytes as f64 / limit as f64);
        let each = by_requests.max(by_bytes);
        let writes = ((PROBE_TIME.as_secs_f64() / each).ceil() as u64).clamp(WRITES[0], WRITES[1]);
        Series {
            writes,
            bytes,
            least: Duration::from_secs_f64(writes as f64 * each * TOLERANCE),
        }
    }
}

impl SlowDisk {
    /// Limits reads and writes, separately, on the device that holds `folder`, the service's own folder.
    pub fn new(processes: Processes, folder: &Path, limits: DiskLimits) -> SlowDisk {
        SlowDisk {
            processes,
            folder: folder.to_path_buf(),
            limits,
            active: None,
        }
    }

    /// Checks whether this process can slow the disk below a folder.
    ///
    /// # Errors
    /// The kernel lacks such cgroups, this process may not create one, or the folder is not on a block device.
    pub fn check(folder: &Path) -> Result<(), FaultError> {
        let limits = DiskLimits {
            requests: Some(1),
            bytes: None,
        };
        let fault = || format!("a slow disk below {}", folder.display());
        // In labs, processes of different experiments may have the same PID, so the name also contains the time.
        let name = format!(
            "brunt-try-{}-{}",
            std::process::id(),
            Clock::Monotonic.now().0
        );
        let mut group =
            IoGroup::new(&name, folder, limits).map_err(|error| refused(fault(), error))?;
        group.remove().map_err(|error| refused(fault(), error))
    }

    fn not_shown(&self, seen: String) -> FaultError {
        FaultError::NotShown {
            fault: self.describe(),
            seen,
        }
    }

    fn begin(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let series = Series::of(self.limits);
        let Series { writes, least, .. } = series;
        let io = |error| refused(self.describe(), error);
        let mut probe = Probe::start(&self.folder).map_err(io)?;
        let fast = probe.write_fast(series).map_err(io)?;
        if fast >= least {
            let seen = format!(
                "without the limit, the disk takes {fast:.1?} for {writes} writes; set a lower limit"
            );
            return Err(self.not_shown(seen));
        }
        let mut group =
            IoGroup::new(&name_of(&self.folder), &self.folder, self.limits).map_err(io)?;
        group.take(probe.child.id()).map_err(io)?;
        let slow = probe.write(series).map_err(io)?;
        if slow < least {
            return Err(self.not_shown(format!(
                "{writes} writes took {slow:.1?}, and {fast:.1?} without the limit"
            )));
        }
        let before = group.requests().map_err(io)?;
        let at = clock.now();
        let found = take_all(&mut group, &self.processes).map_err(io)?;
        if found == 0 {
            return Err(self.not_shown("the service has no processes".into()));
        }
        let what = format!(
            "{writes} writes took {slow:.1?} in the cgroup instead of {fast:.1?}; it contains \
             {found} processes of the service"
        );
        self.active = Some(Active {
            group,
            probe,
            since: at,
            before,
        });
        Ok(Proof {
            at,
            seen: clock.now(),
            what,
            value: Some(writes as f64 / slow.as_secs_f64()),
        })
    }

    fn end(&mut self, active: Active, clock: &Clock) -> Result<Proof, FaultError> {
        let Active {
            mut group,
            mut probe,
            since,
            before,
        } = active;
        let io = |error| refused(self.describe(), error);
        // A process started in the meantime is a descendant of one in the cgroup.
        let strangers = strangers(&group, &self.processes);
        let at = clock.now();
        let made = group.requests().map_err(io)?.saturating_sub(before);
        let seconds = at.since(since).as_secs_f64();
        group.remove().map_err(io)?;
        let series = Series::of(self.limits);
        let Series { writes, least, .. } = series;
        let fast = probe.write_fast(series).map_err(io)?;
        if fast >= least {
            let seen = format!("{writes} writes take {fast:.1?}");
            return Err(FaultError::NotGone {
                fault: self.describe(),
                seen,
            });
        }
        if strangers > 0 {
            return Err(self.not_shown(format!(
                "{strangers} processes of the service were outside the cgroup at the end of the \
                 fault"
            )));
        }
        let rate = made as f64 / seconds;
        let what = format!(
            "the service made {made} requests to the disk in {seconds:.1} s ({rate:.1}/s); without the \
             limit, {writes} writes take {fast:.1?} again"
        );
        Ok(Proof {
            at,
            seen: clock.now(),
            what,
            value: Some(rate),
        })
    }
}

fn refused(fault: String, source: io::Error) -> FaultError {
    let (what, advice) = match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => (
            "cannot create a cgroup",
            "run as root, with a writable /sys/fs/cgroup",
        ),
        io::ErrorKind::Unsupported => (
            "no device to limit",
            "set TMPDIR to a folder on a disk, or omit the fault",
        ),
        _ => return FaultError::refused(fault, "cannot limit the device", source),
    };
    FaultError::Refused {
        fault,
        what: what.into(),
        source,
        advice: advice.into(),
    }
}

/// Counts the processes outside the cgroup. A process that is about to end belongs to no cgroup, so the check is
/// repeated for a while.
fn strangers(group: &IoGroup, processes: &Processes) -> usize {
    let begin = Instant::now();
    let mut found = processes();
    found.retain(|pid| !group.holds(*pid));
    while !found.is_empty() && begin.elapsed() < ENDING_MAX {
        std::thread::sleep(ENDING_POLL);
        let now = processes();
        found.retain(|pid| now.contains(pid) && !group.holds(*pid));
    }
    found.len()
}

/// Moves all processes into the cgroup, including those started in the meantime, and returns their number.
fn take_all(group: &mut IoGroup, processes: &Processes) -> io::Result<usize> {
    loop {
        let found = processes();
        let new: Vec<u32> = found
            .iter()
            .copied()
            .filter(|pid| !group.holds(*pid))
            .collect();
        if new.is_empty() {
            return Ok(found.len());
        }
        new.into_iter().try_for_each(|pid| group.take(pid))?;
    }
}

impl Fault for SlowDisk {
    fn describe(&self) -> String {
        format!(
            "disk of {} limited to {}",
            self.folder.display(),
            self.limits
        )
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        match self.active {
            Some(_) => Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it is already injected",
            }),
            None => self.begin(clock),
        }
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        match self.active.take() {
            Some(active) => self.end(active, clock),
            None => Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it is not injected",
            }),
        }
    }
}

/// A process that writes on request. Dropping the probe ends its process.
#[derive(Debug)]
struct Probe {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Probe {
    fn start(folder: &Path) -> io::Result<Probe> {
        let mut child = start_again(DISK_PROBE_MARK, &folder.to_string_lossy())?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("piped"));
        let mut probe = Probe {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        };
        match probe.hear()?.as_str() {
            HELLO => Ok(probe),
            answer => Err(io::Error::other(format!(
                "the restarted program is not a probe: {answer}"
            ))),
        }
    }

    fn hear(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim_end().to_string())
    }

    /// How long the writes take without limits: the shortest of several attempts, since the device is shared.
    fn write_fast(&mut self, series: Series) -> io::Result<Duration> {
        let mut shortest = self.write(series)?;
        for _ in 1..TRIES {
            if shortest < series.least {
                break;
            }
            shortest = shortest.min(self.write(series)?);
        }
        Ok(shortest)
    }

    /// How long these writes take.
    fn write(&mut self, series: Series) -> io::Result<Duration> {
        let Some(stdin) = &mut self.stdin else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        writeln!(stdin, "{} {}", series.writes, series.bytes)?;
        let answer = self.hear()?;
        match answer.split_once(' ') {
            Some(("took", nanos)) => nanos
                .parse()
                .map(Duration::from_nanos)
                .map_err(io::Error::other),
            Some(("error", number)) => Err(number
                .parse()
                .map_or_else(io::Error::other, io::Error::from_raw_os_error)),
            _ => Err(io::Error::other("the disk probe ended")),
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}

/// Runs as a probe if this process was started as one, and returns the exit status.
pub(crate) fn serve_if_asked() -> Option<u8> {
    let folder = std::env::var(DISK_PROBE_MARK).ok()?;
    let path = Path::new(&folder).join(FILE);
    let served = serve(&path);
    let _ = std::fs::remove_file(&path);
    Some(u8::from(served.is_err()))
}

fn serve(path: &Path) -> io::Result<()> {
    println!("{HELLO}");
    for line in io::stdin().lines() {
        let line = line?;
        let order = line
            .split_once(' ')
            .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let Some((writes, bytes)) = order else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        match write(path, writes, bytes) {
            Ok(took) => println!("took {}", took.as_nanos()),
            Err(error) => println!("error {}", error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
    Ok(())
}

/// Writes repeatedly to the same place in a file, bypassing the page cache.
fn write(path: &Path, writes: u64, bytes: u64) -> io::Result<Duration> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))?);
    let bytes = bytes.clamp(WRITE_BYTES[0], WRITE_BYTES[1]) as usize;
    let align = WRITE_BYTES[0] as usize;
    let space = vec![0u8; bytes + align];
    let from = space.as_ptr().align_offset(align);
    let block = &space[from..from + bytes];
    let begin = Clock::Monotonic.now();
    for _ in 0..writes {
        std::os::unix::fs::FileExt::write_all_at(&file, block, 0)?;
    }
    Ok(Clock::Monotonic.now().since(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A probe lasts long enough to be conclusive at any limit, and not much longer.
    #[test]
    fn probes_are_long_enough() {
        let check = |requests, bytes, expected: (u64, u64)| {
            let series = Series::of(DiskLimits { requests, bytes });
            assert_eq!((series.writes, series.bytes), expected);
            let each = Duration::from_millis(500).mul_f64(TOLERANCE);
            assert!(
                series.least >= each.mul_f64(0.9) || series.writes == WRITES[1],
                "{series:?}"
            );
        };
        check(Some(20), None, (10, 4096));
        check(Some(1), None, (4, 4096));
        check(None, Some(16 << 20), (8, 1 << 20));
        check(None, Some(1 << 20), (8, 64 << 10));
        check(Some(100), Some(40 << 10), (5, 4096));
        check(Some(1_000_000), None, (4096, 4096));
    }
}
