//! The programs that analyse a capture: Brunt, tshark, nfstrace. Each is a separate process, measured from start to
//! end.
//!
//! The rule: a program's results are read from its output, never assumed.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use brunt_capture::trace::extents::{self, ExtentSizes};
use brunt_core::ChildUsage;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use super::subject::SubjectCapture;
use crate::BenchError;
use crate::cleanup::Start;
use crate::peers;
use crate::program;
use crate::scratch::Scratch;

/// The fields that tshark prints: those that identify an operation, without its attributes.
const FIELDS: [&str; 17] = [
    "frame.time_epoch",
    "ip.src",
    "tcp.srcport",
    "ip.dst",
    "tcp.dstport",
    "rpc.xid",
    "rpc.msgtyp",
    "rpc.time",
    "rpc.auth.uid",
    "nfs.procedure_v3",
    "nfs.status3",
    "nfs.fh.hash",
    "nfs.name",
    "nfs.offset3",
    "nfs.count3",
    "nfs.opcode",
    "nfs.status",
];
/// The path of nfstrace's analyzer in Debian.
const BREAKDOWN: &str = "/usr/lib/nfstrace/libbreakdown.so";

/// A program to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `brunt analyze` on one core.
    Analyses,
    /// `brunt capture --out` on two cores.
    Trace,
    /// Like [`Program::Trace`], without some of the trace's tables.
    TraceWithout(TablesLeftOut),
    /// tshark, writing its NFS fields.
    Tshark,
    /// nfstrace, with its latency histograms.
    Nfstrace,
}

/// Tables that can be omitted from a trace, because they can be derived from other tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TablesLeftOut {
    /// `latency_histograms`.
    Histograms,
    /// `sketches`.
    Sketches,
    /// Both.
    Both,
}

impl TablesLeftOut {
    /// The omitted tables.
    pub fn tables(self) -> &'static [&'static str] {
        match self {
            TablesLeftOut::Histograms => &["latency_histograms"],
            TablesLeftOut::Sketches => &["sketches"],
            TablesLeftOut::Both => &["latency_histograms", "sketches"],
        }
    }
}

/// The figures of one run.
#[derive(Clone, Debug)]
pub struct ProgramRun {
    /// From the start to the end of the process.
    pub wall: Duration,
    /// CPU time of all threads.
    pub cpu: Duration,
    /// Peak memory.
    pub resident_bytes_max: u64,
    /// Calls that the program found; for nfstrace and tshark, see [`Program::run`].
    pub calls: u64,
    /// Bytes of the trace, if one was written.
    pub trace_bytes: Option<u64>,
    /// The trace's bytes by content; empty if none was written.
    pub extents: Vec<ExtentSizes>,
}

impl Program {
    /// The programs to compare, ours first.
    pub const ALL: [Program; 4] = [
        Program::Analyses,
        Program::Trace,
        Program::Nfstrace,
        Program::Tshark,
    ];

    /// The program's display name.
    pub fn name(self) -> &'static str {
        match self {
            Program::Analyses => "ours, all analyses, one core",
            Program::Trace => "ours, and the trace, two cores",
            Program::TraceWithout(TablesLeftOut::Histograms) => "the trace without histograms",
            Program::TraceWithout(TablesLeftOut::Sketches) => "the trace without sketches",
            Program::TraceWithout(TablesLeftOut::Both) => "the trace without either",
            Program::Tshark => "tshark, fields",
            Program::Nfstrace => "nfstrace, histograms",
        }
    }

    /// Why the program cannot run on this machine, if it can't.
    pub fn missing(self) -> Option<String> {
        match self {
            Program::Analyses | Program::Trace | Program::TraceWithout(_) => None,
            Program::Tshark => (!peers::have("tshark"))
                .then(|| "tshark is not installed (Debian package tshark)".into()),
            Program::Nfstrace => (!peers::have("nfstrace") || !Path::new(BREAKDOWN).is_file())
                .then(|| {
                    format!("nfstrace with {BREAKDOWN} is not installed (Debian package nfstrace)")
                }),
        }
    }

    /// Whether it finds operations in this capture. nfstrace only supports NFS, and tshark is only asked for NFS
    /// fields.
    pub fn reads(self, subject: &SubjectCapture) -> bool {
        !subject.scsi || !matches!(self, Program::Tshark | Program::Nfstrace)
    }

    /// Maximum number of cores; `None` for all of them.
    fn cores(self) -> Option<usize> {
        match self {
            Program::Analyses => Some(1),
            Program::Trace | Program::TraceWithout(_) => Some(2),
            Program::Tshark | Program::Nfstrace => None,
        }
    }

    /// Processes a capture. tshark's calls are those that it shows as NFS; nfstrace's are the call/reply pairs in its
    /// histograms.
    ///
    /// # Errors
    /// The program doesn't start, it fails, or its output is not as expected.
    pub fn run(self, capture: &Path, scratch: &Scratch) -> Result<ProgramRun, BenchError> {
        let tell = |error: io::Error| BenchError::failed(format!("{}: {error}", self.name()));
        let own = || program::brunt().map(Command::new);
        let folder = scratch.join("run");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(tell)?;
        let (stdout, stderr) = (folder.join("stdout"), folder.join("stderr"));
        let mut command = match self {
            Program::Analyses | Program::Trace | Program::TraceWithout(_) => own()?,
            Program::Tshark => tshark(capture, true),
            Program::Nfstrace => peers::command("nfstrace"),
        };
        match self {
            Program::Analyses => command.args(["--json", "analyze"]).arg(capture),
            Program::Trace | Program::TraceWithout(_) => {
                command
                    .args(["--json", "capture", "-r"])
                    .arg(capture)
                    .arg("--out")
                    .arg(folder.join("trace"));
                if let Program::TraceWithout(left_out) = self {
                    for table in left_out.tables() {
                        command.args(["--without", table]);
                    }
                }
                &mut command
            }
            Program::Tshark => &mut command,
            // nfstrace writes one file per connection into its working directory.
            Program::Nfstrace => command
                .args(["-m", "stat", "-a", BREAKDOWN, "-I"])
                .arg(capture),
        };
        command.current_dir(&folder).stdin(Stdio::null());
        command
            .stdout(File::create(&stdout).map_err(tell)?)
            .stderr(File::create(&stderr).map_err(tell)?);
        let start = Instant::now();
        let child = on_cores(self.cores(), || command.start()).map_err(tell)?;
        let spent = ChildUsage::wait(child).map_err(tell)?;
        let wall = start.elapsed();
        if !spent.status.success() {
            let text = fs::read_to_string(&stderr).unwrap_or_default();
            let last = text.lines().next_back().unwrap_or_default();
            return Err(BenchError::failed(format!(
                "{}: {}: {last}",
                self.name(),
                spent.status
            )));
        }
        let (calls, trace_bytes) = self.read(&stdout).map_err(tell)?;
        let extents = match self {
            Program::Trace | Program::TraceWithout(_) => {
                extents::sizes(&folder.join("trace")).map_err(BenchError::failed)?
            }
            _ => Vec::new(),
        };
        fs::remove_dir_all(&folder).map_err(tell)?;
        let cpu = spent.cost.cpu();
        Ok(ProgramRun {
            wall,
            cpu,
            resident_bytes_max: spent.resident_bytes_max,
            calls,
            trace_bytes,
            extents,
        })
    }

    fn read(self, stdout: &Path) -> io::Result<(u64, Option<u64>)> {
        let lines = || Ok::<_, io::Error>(BufReader::new(File::open(stdout)?).lines());
        match self {
            Program::Analyses | Program::Trace | Program::TraceWithout(_) => {
                let report: Value = serde_json::from_str(&fs::read_to_string(stdout)?)?;
                let calls = report["ledger"]["calls"].as_u64();
                let calls = calls.ok_or_else(|| io::Error::other("its report has no ledger"))?;
                Ok((calls, report["trace"]["bytes"].as_u64()))
            }
            Program::Nfstrace => {
                let lines: io::Result<Vec<String>> = lines()?.collect();
                histogram_operations(&lines?)
                    .map(|calls| (calls, None))
                    .ok_or_else(|| io::Error::other("it does not report operations"))
            }
            Program::Tshark => {
                let mut calls = 0;
                for line in lines()? {
                    calls += messages(&line?)
                        .filter(|(_, _, is_reply)| !is_reply)
                        .count() as u64;
                }
                Ok((calls, None))
            }
        }
    }
}

/// `reorder` makes tshark wait for late segments. Without it, tshark misses some operations of a complete capture; with
/// it, tshark waits forever for lost segments and finds next to nothing in a lossy one.
fn tshark(capture: &Path, reorder: bool) -> Command {
    let mut command = peers::command("tshark");
    command.arg("-n").arg("-r").arg(capture);
    command.args([
        "-o",
        &format!(
            "tcp.reassemble_out_of_order:{}",
            if reorder { "TRUE" } else { "FALSE" }
        ),
    ]);
    command.args(["-Y", "nfs", "-T", "fields"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    command
}

/// The sum of operations in nfstrace's histograms: the total of each protocol, without the totals of its sessions.
fn histogram_operations(lines: &[String]) -> Option<u64> {
    let (mut operations, mut of_session) = (None, false);
    for line in lines {
        of_session |= line.starts_with("Session:");
        let Some(rest) = line.strip_prefix("Total operations: ") else {
            continue;
        };
        if !std::mem::take(&mut of_session) {
            let count: u64 = rest.split('.').next()?.parse().ok()?;
            operations = Some(operations.unwrap_or(0) + count);
        }
    }
    operations
}

/// The NFS messages in a line of [`FIELDS`], that is, in one frame: each with the client's address and port, the xid,
/// and whether it is a reply.
pub fn messages(line: &str) -> impl Iterator<Item = ((&str, &str), u32, bool)> {
    let mut fields = line.split('\t').skip(1);
    let mut next = || fields.next().unwrap_or_default();
    let ends = [(next(), next()), (next(), next())];
    let (xids, kinds) = (next(), next());
    xids.split(',')
        .zip(kinds.split(','))
        .filter_map(move |(xid, kind)| {
            let xid = u32::from_str_radix(xid.trim_start_matches("0x"), 16).ok()?;
            let is_reply = kind == "1";
            Some((ends[usize::from(is_reply)], xid, is_reply))
        })
}

/// Passes tshark's fields for a lossy capture to `take`, line by line.
///
/// # Errors
/// tshark doesn't start or fails, or its output can't be read.
pub fn each_line_of_tshark(
    capture: &Path,
    scratch: &Scratch,
    mut take: impl FnMut(&str),
) -> Result<(), BenchError> {
    let tell = |error: io::Error| BenchError::failed(format!("tshark: {error}"));
    let stdout = scratch.join("fields");
    let mut command = tshark(capture, false);
    let status = command
        .stdout(File::create(&stdout).map_err(tell)?)
        .stderr(Stdio::null())
        .status();
    if !status.map_err(tell)?.success() {
        return Err(BenchError::failed("tshark failed"));
    }
    for line in BufReader::new(File::open(&stdout).map_err(tell)?).lines() {
        take(&line.map_err(tell)?);
    }
    let _ = fs::remove_file(&stdout);
    Ok(())
}

/// Runs `start` restricted to the first `cores` of our CPUs, which its child processes inherit.
fn on_cores<T>(cores: Option<usize>, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some(cores) = cores else { return start() };
    let all = sched_getaffinity(None)?;
    let mut few = CpuSet::new();
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| all.is_set(*cpu))
        .take(cores)
        .for_each(|cpu| few.set(cpu));
    sched_setaffinity(None, &few)?;
    let started = start();
    sched_setaffinity(None, &all)?;
    started
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protocol totals are added up; session totals are not counted again.
    #[test]
    fn nfstraces_protocol_totals_are_added_up() {
        let check = |text: &str, expected: Option<u64>| {
            let lines: Vec<String> = text.lines().map(str::to_string).collect();
            assert_eq!(histogram_operations(&lines), expected, "{text}");
        };
        check(
            "###  Breakdown analyzer  ###\nNFS v3 protocol: Data transmission has not been detected.",
            None,
        );
        let v3 = "Total operations: 247. Per operation:\nNULL Count: 4\nSession: 10.0.0.1:1 --> 10.0.0.2:2049 [TCP]\n\
                  Total operations: 71. Per operation:\nSession: x\nTotal operations: 176. Per operation:";
        check(v3, Some(247));
        check(
            &format!("{v3}\n### Breakdown\nTotal operations: 3. Per operation:"),
            Some(250),
        );
    }

    /// The messages in a frame are separated, and each names its client.
    #[test]
    fn tsharks_messages_are_separated() {
        let check = |line: &str, expected: &[((&str, &str), u32, bool)]| {
            assert_eq!(messages(line).collect::<Vec<_>>(), expected, "{line}");
        };
        check(
            "1.5\t10.0.0.1\t700\t10.0.0.2\t2049\t0x0000000a,0x0000000b\t0,0\t\t\t6,7",
            &[
                (("10.0.0.1", "700"), 10, false),
                (("10.0.0.1", "700"), 11, false),
            ],
        );
        check(
            "1.5\t10.0.0.2\t2049\t10.0.0.1\t700\t0xc82c2173\t1",
            &[(("10.0.0.1", "700"), 0xc82c_2173, true)],
        );
        check("1.5\t10.0.0.2\t2049\t10.0.0.1\t700\t\t", &[]);
        check("", &[]);
    }

    /// A child process gets one core, and our own restriction is lifted afterwards.
    #[test]
    fn a_core_restriction_is_lifted_afterwards() {
        let before = sched_getaffinity(None).unwrap();
        let inside = on_cores(Some(1), || Ok(sched_getaffinity(None)?)).unwrap();
        assert_eq!(inside.count(), 1);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
