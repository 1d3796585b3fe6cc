//! `brunt-bench nfs`: the cost of a call through Brunt's NFS client, compared with libnfs and with a bare TCP pair
//! that exchanges messages of the same lengths, measured alternately in the same run. Both clients use one thread and
//! one connection to `brunt sink --nfs`, a server without data in a separate process, and to nfs-ganesha where it can
//! run. libnfs is driven by its raw asynchronous interface, which copies least, by a C program that is compiled here.
//!
//! The rule: the time that a program takes to start is not part of its measurement.

mod ganesha;
mod libnfs;

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use brunt_block::{Backend, Buf, Op, Request, Ring, RingConfig, open_url_with};
use brunt_nfs::NfsFolder;
use brunt_nfs::operations::{NfsAsk, NfsNames, NfsPlan};
use brunt_nfs::rpc::{begin_call, sys_credentials};
use brunt_nfs::server::{DISK, EXPORT};
use brunt_result::statistics::{Ratio, interleaved};
use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::Args;
use brunt_wire::rpc::{PROGRAM_NFS, Xid};
use serde_json::{Value, json};

use self::ganesha::Ganesha;
use super::bare::{self, PayloadDirection};
use super::drive;
use super::peers::Guarded;
use super::rows::rows_named;
use super::sample::{RunSample, extremes, median, process_cpu, process_cpu_since, ratio_words};
use crate::cleanup::Start;
use crate::program;
use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console};

/// Lengths of replies without their data: a record mark, the RPC header and the status, then attributes, which in a
/// READ reply are preceded by a flag and followed by count, EOF and length.
const GETATTR_REPLY_BYTES: usize = 4 + 24 + 4 + 84;
const READ_REPLY_BYTES: usize = 4 + 24 + 4 + 88 + 12;
/// A handle as long as the server's.
const HANDLE: [u8; 16] = [0; 16];

/// NFS client compared with libnfs and a bare TCP pair, on a server without data, and on nfs-ganesha
#[derive(Clone, Debug)]
pub struct NfsBench {
    /// Rounds; each measures every program in turn, in random order
    pub rounds: u32,
    /// Duration of each measurement
    pub time: Duration,
    /// Only rows whose name contains this, such as "getattr"
    pub row: Option<String>,
}

/// A row of the table: the calls to measure with every contestant.
struct NfsRow {
    name: &'static str,
    /// Bytes of a READ; 0 for GETATTR.
    size: usize,
    depth: u32,
    /// The ratios that our client's rate has to reach, relative to libnfs and to the bare pair.
    of_libnfs: Option<f64>,
    of_bare: Option<f64>,
}

#[rustfmt::skip]
const NFS_ROWS: &[NfsRow] = &[
    NfsRow { name: "getattr depth 32",  size: 0,        depth: 32, of_libnfs: Some(3.0), of_bare: Some(0.5) },
    NfsRow { name: "64k read depth 32", size: 64 << 10, depth: 32, of_libnfs: Some(2.0), of_bare: Some(0.5) },
    NfsRow { name: "getattr depth 1",   size: 0,        depth: 1,  of_libnfs: None,      of_bare: None },
    NfsRow { name: "64k read depth 1",  size: 64 << 10, depth: 1,  of_libnfs: None,      of_bare: None },
];

/// A program to measure.
enum Contestant {
    /// Our client, on one of the servers.
    Ours(usize),
    /// libnfs, on one of the servers.
    Libnfs(usize),
    Bare,
}

/// A server in a separate process, and our client's backends for it.
struct NfsServer {
    /// Suffix of a client's name in the results.
    suffix: &'static str,
    process: ServerProcess,
    address: SocketAddr,
    mount_port: u16,
    export: String,
    disk: Arc<dyn Backend>,
    folder: Arc<dyn Backend>,
}

enum ServerProcess {
    /// `brunt sink --nfs`.
    Null(Guarded),
    Ganesha(Ganesha),
}

impl ServerProcess {
    fn id(&self) -> u32 {
        match self {
            ServerProcess::Null(process) => process.id(),
            ServerProcess::Ganesha(ganesha) => ganesha.id(),
        }
    }
}

/// The contestants and their servers.
struct Contest {
    servers: Vec<NfsServer>,
    libnfs: Option<PathBuf>,
    contestants: Vec<Contestant>,
}

impl NfsBench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// The settings are invalid, or a call fails.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        let rows = rows_named(NFS_ROWS, self.row.as_deref(), |row| row.name)?;
        if let Some(done) = ganesha::run_inside(output) {
            return done;
        }
        let folder = Scratch::new(None, "nfs")?;
        let contest = Contest::start(folder.path(), output)?;
        let mut table = Vec::new();
        for row in rows {
            let contestants = &contest.contestants;
            let mut samples: Vec<Vec<RunSample>> = contestants.iter().map(|_| Vec::new()).collect();
            for (index, _) in interleaved(contestants.len(), self.rounds as usize, 1) {
                if output.is_interrupted() {
                    return Err(BenchError::interrupted(
                        "interrupted: the rows printed so far are complete, and the others were not measured",
                    ));
                }
                let who = &contestants[index];
                let sample = contest.measure(who, row, self.time).map_err(|error| {
                    BenchError::failed(format!("{} ({}): {error}", contest.name(who), row.name))
                })?;
                samples[index].push(sample);
            }
            table.push(report(row, &contest, &samples, output));
        }
        output.object(
            &json!({ "rounds": self.rounds, "seconds": self.time.as_secs_f64(), "rows": table }),
        );
        Ok(())
    }
}

/// GETATTR of one object.
#[derive(Clone, Debug)]
struct Getattr(Vec<u8>);

impl NfsPlan for Getattr {
    fn call<'a>(&'a self, _ask: NfsAsk, _names: &'a mut NfsNames) -> Args<'a> {
        Args::Getattr {
            object: FileHandle(&self.0),
        }
    }
}

impl Contest {
    fn start(folder: &Path, output: &dyn Console) -> Result<Contest, BenchError> {
        let mut servers = Vec::new();
        if ganesha::is_inside() {
            // Started first, because it sets up the network of these namespaces.
            servers.push(NfsServer::ganesha()?);
        }
        servers.insert(0, NfsServer::null()?);
        let libnfs = libnfs::compile(folder, output)?;
        let mut contestants = vec![Contestant::Ours(0), Contestant::Bare];
        if libnfs.is_some() {
            contestants.extend((0..servers.len()).map(Contestant::Libnfs));
        }
        contestants.extend((1..servers.len()).map(Contestant::Ours));
        Ok(Contest {
            servers,
            libnfs,
            contestants,
        })
    }

    fn name(&self, who: &Contestant) -> String {
        match who {
            Contestant::Ours(server) => format!("ours{}", self.servers[*server].suffix),
            Contestant::Libnfs(server) => format!("libnfs{}", self.servers[*server].suffix),
            Contestant::Bare => "bare TCP pair".to_string(),
        }
    }

    fn measure(&self, who: &Contestant, row: &NfsRow, time: Duration) -> io::Result<RunSample> {
        let (Contestant::Ours(server) | Contestant::Libnfs(server)) = who else {
            let (request, response) = message_bytes(row.size);
            return bare::measure_messages(request, response, row.depth as usize, time);
        };
        let server = &self.servers[*server];
        let before = process_cpu(server.process.id());
        let sample = match (who, &self.libnfs) {
            (Contestant::Libnfs(_), Some(program)) => server.libnfs(program, row, time),
            _ if row.size == 0 => server.getattr(row.depth, time),
            _ => {
                let direction = PayloadDirection::Read;
                drive::measure(&server.disk, direction, row.size, row.depth, time)
            }
        };
        Ok(RunSample {
            target_cpu: process_cpu_since(server.process.id(), before),
            ..sample?
        })
    }
}

impl NfsServer {
    fn null() -> Result<NfsServer, BenchError> {
        let failed = |error: io::Error| BenchError::failed(format!("brunt sink --nfs: {error}"));
        let mut child = Command::new(program::brunt()?)
            .args(["sink", "--nfs", "--portal", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .start()
            .map_err(failed)?;
        let stdout = child.stdout.take().expect("piped");
        let process = ServerProcess::Null(Guarded::of(child));
        // `brunt sink` prints its address and then a URL; read both, because it ends if its output is closed early.
        let mut lines = BufReader::new(stdout).lines();
        let address = lines.next().transpose().map_err(failed)?;
        let address = address.and_then(|line| line.trim().parse().ok());
        let address: SocketAddr = address.ok_or_else(|| {
            BenchError::failed("brunt sink --nfs did not start; see its output above")
        })?;
        lines.next().transpose().map_err(failed)?;
        NfsServer::open("", process, address, address.port(), EXPORT.to_string())
    }

    fn ganesha() -> Result<NfsServer, BenchError> {
        let ganesha = Ganesha::start()?;
        let (address, mount_port) = (ganesha.address, ganesha.mount_port);
        let export = ganesha.export();
        let process = ServerProcess::Ganesha(ganesha);
        NfsServer::open(" on ganesha", process, address, mount_port, export)
    }

    fn open(
        suffix: &'static str,
        process: ServerProcess,
        address: SocketAddr,
        mount_port: u16,
        export: String,
    ) -> Result<NfsServer, BenchError> {
        let open = |path: &str| {
            let url = format!("nfs://{address}{export}/{path}?mountport={mount_port}");
            open_url_with(&url, brunt_nfs::BACKENDS, false)
        };
        Ok(NfsServer {
            suffix,
            disk: open(DISK)?,
            folder: open("")?,
            process,
            address,
            mount_port,
            export,
        })
    }

    fn getattr(&self, depth: u32, time: Duration) -> io::Result<RunSample> {
        let folder = self.folder.concrete().and_then(|any| any.downcast_ref());
        let folder: &NfsFolder = folder.expect("a URL with '/' at its end is a folder");
        let ring = Ring::new(RingConfig::default())?;
        let plan = Getattr(folder.place().handle.clone());
        let device = folder.operations(plan, &ring, depth);
        let mut device = device.map_err(io::Error::other)?;
        let bufs = (0..depth).map(|_| Buf::empty()).collect();
        drive::keep_busy((&ring, &mut *device), bufs, time, |buf| Request {
            tag: 0,
            op: Op::Flush,
            offset: 0,
            len: 0,
            buf,
            force_unit_access: false,
        })
    }

    fn libnfs(&self, program: &Path, row: &NfsRow, time: Duration) -> io::Result<RunSample> {
        let (host, port) = (self.address.ip().to_string(), self.address.port());
        let mut command = Command::new(program);
        command.args([&host, &port.to_string(), &self.mount_port.to_string()]);
        command.args([&self.export, DISK]);
        command.args([row.size.to_string(), row.depth.to_string()]);
        let done = command.arg(time.as_secs_f64().to_string()).output()?;
        let text = String::from_utf8_lossy(&done.stdout);
        let figures: Vec<f64> = text
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        match figures[..] {
            [requests, elapsed, cpu] if done.status.success() => Ok(RunSample {
                requests: requests as u64,
                elapsed: Duration::from_secs_f64(elapsed),
                client_cpu: Some(Duration::from_secs_f64(cpu)),
                ..RunSample::default()
            }),
            _ => Err(io::Error::other(
                String::from_utf8_lossy(&done.stderr).trim().to_string(),
            )),
        }
    }
}

/// Bytes of a call and of its reply.
fn message_bytes(size: usize) -> (usize, usize) {
    let (object, mut call) = (FileHandle(&HANDLE), Vec::new());
    let (args, reply) = match size {
        0 => (Args::Getattr { object }, GETATTR_REPLY_BYTES),
        size => {
            let args = Args::Read {
                file: object,
                offset: 0,
                count: size as u32,
            };
            (args, READ_REPLY_BYTES + size)
        }
    };
    let numbers = [PROGRAM_NFS, 3, args.procedure() as u32];
    begin_call(&mut call, Xid(0), numbers, &sys_credentials(0, 0));
    args.encode(&mut call);
    (call.len(), reply)
}

/// Prints a row and returns it as an object.
fn report(
    row: &NfsRow,
    contest: &Contest,
    samples: &[Vec<RunSample>],
    output: &dyn Console,
) -> Value {
    output.line(format_args!("{}", row.name));
    let of_each = |samples: &[RunSample]| samples.iter().map(RunSample::rate).collect();
    let rates: Vec<Vec<f64>> = samples.iter().map(|all| of_each(all)).collect();
    let mut who = Vec::new();
    for ((contestant, samples), rates) in contest.contestants.iter().zip(samples).zip(&rates) {
        let (least, most) = extremes(rates);
        let cpu_us = |side: fn(&RunSample) -> Option<Duration>| {
            let each = samples.iter().filter_map(|sample| {
                side(sample).map(|cpu| cpu.as_secs_f64() * 1e6 / sample.requests as f64)
            });
            each.collect::<Vec<f64>>()
        };
        let client = cpu_us(|sample| sample.client_cpu);
        let server = cpu_us(|sample| sample.target_cpu);
        let shown = |cpu: &[f64]| match cpu {
            [] => "unknown".to_string(),
            cpu => format!("{:.2}", median(cpu)),
        };
        output.line(format_args!(
            "  {:<17} {:>9.0} calls/s ({least:.0} to {most:.0}), CPU us per call: client {}, server \
             {}",
            contest.name(contestant),
            median(rates),
            shown(&client),
            shown(&server),
        ));
        who.push(json!({
            "who": contest.name(contestant), "calls_per_second": rates,
            "client_cpu_us": client, "server_cpu_us": server,
        }));
    }
    let mut ratios = Vec::new();
    for (contestant, theirs) in contest.contestants.iter().zip(&rates) {
        let (server, goal) = match contestant {
            Contestant::Ours(_) => continue,
            Contestant::Libnfs(0) => (0, row.of_libnfs),
            // On nfs-ganesha, the server is the bottleneck, so there is no goal.
            Contestant::Libnfs(server) => (*server, None),
            Contestant::Bare => (0, row.of_bare),
        };
        // Our client on the same server.
        let is_ours = |who: &Contestant| matches!(who, Contestant::Ours(on) if *on == server);
        let ours = contest.contestants.iter().position(is_ours);
        let ours = &rates[ours.expect("our client is on each server")];
        let Some(ratio) = Ratio::of(theirs, ours, 1) else {
            continue;
        };
        let goal_text = match goal {
            Some(goal) if ratio.ratio >= goal => format!("; goal {goal:.2} (reached)"),
            Some(goal) => format!("; goal {goal:.2} (missed)"),
            None => String::new(),
        };
        let (name, words) = (contest.name(contestant), ratio_words(Some(&ratio), 2));
        output.line(format_args!("  ours is {words} of {name}{goal_text}"));
        ratios.push(json!({ "of": name, "ratio": ratio, "goal": goal }));
    }
    json!({ "row": row.name, "who": who, "ratios": ratios })
}
