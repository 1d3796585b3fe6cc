//! `brunt target`: serves devices over iSCSI, and optionally over NBD, until Ctrl-C or SIGTERM.

mod build;
mod file;
mod live;
mod lun;
mod metrics;
mod nbd;
mod orders;
mod reload;

use std::io::{BufRead, Read};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brunt_block::ring::engine::usual_engine;
use brunt_block::ring::polling_threads_max;
use brunt_core::units::format_size;
use brunt_core::{IoEngine, Size};
use brunt_iscsi::target_node::{
    Listener, ServedTarget, StartError, TargetConfig, TargetServer, TargetStats,
};
use brunt_study::control;
use serde_json::{Value, json};

pub(super) use self::build::address;
use self::file::{
    AluaWord, DEFAULT_PORTAL, Digest, DiscoveryEntry, Plan, PortalEntry, TargetEntry, TargetFile,
};
use self::live::Live;
use super::engine::EngineFlag;
use super::role::Role;
use super::sockets::Sockets;
use crate::cli::{Done, Failure, Output, bind_for};
use crate::devices::url_parser;

/// How often to check whether the command should stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long initiators may take to log out at the end.
const GRACE: Duration = Duration::from_secs(2);

/// Flags that --config replaces.
const REPLACED_BY_FILE: [&str; 14] = [
    "alua",
    "luns",
    "portals",
    "advertise",
    "name",
    "chap",
    "mutual_chap",
    "discovery_chap",
    "header_digest",
    "data_digest",
    "max_sessions",
    "send_buffer",
    "receive_buffer",
    "congestion",
];

/// Serve devices as an iSCSI target
///
/// Prints each portal's address on its own line, then serves until Ctrl-C or SIGTERM. It then asks its initiators
/// to log out, closes all connections and prints its counters.
#[derive(clap::Args)]
pub struct Target {
    /// Device to serve; the first one is LUN 0, the next LUN 1, and so on. A device URL (see `brunt help devices`),
    /// then options after commas: thin or thick (provisioning; default thick), ro (read-only), removable, wb or wt
    /// (write-back or write-through cache; default wt), faults (a fault layer on top, unless the URL has one, for
    /// --control), block=512 or block=4096, serial=TEXT, aptpl=FILE (keeps persistent reservations across restarts),
    /// sanitize=SIZE (maximum rate of SANITIZE, per second).
    #[arg(
        long = "lun",
        value_name = "URL[,OPTION…]",
        value_parser = url_parser(),
        required_unless_present = "config"
    )]
    luns: Vec<String>,

    /// Serve the targets described in a TOML file, each with its LUNs and CHAP, and their portals. docs/target.md
    /// lists its keys. The file replaces the corresponding flags. SIGHUP reloads the file.
    #[arg(long, value_name = "FILE", conflicts_with_all = REPLACED_BY_FILE)]
    config: Option<PathBuf>,

    /// Address to listen on; port 0 picks a free port. Can be repeated. Portals in different groups (`,group=2`)
    /// belong to different target ports; the default group is 1. `,state=standby` sets the group's asymmetric access
    /// state, and `,preferred` asks initiators to prefer the group.
    #[arg(long = "portal", value_name = "ADDRESS:PORT[,group=N][,state=STATE][,preferred]", default_value = DEFAULT_PORTAL)]
    portals: Vec<String>,

    /// Address that discovery reports for the portal, if initiators reach it at a different address (NAT, a published
    /// port). The first one applies to the first --portal, and so on.
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Vec<String>,

    /// The target's iSCSI name.
    #[arg(long, default_value = "iqn.2026-11.io.brunt:t0")]
    name: String,

    /// Require CHAP: only initiators with this user and secret may log in. USER:SECRET on the command line is visible
    /// in the process list; prefer @FILE (a file that contains USER:SECRET) or env:VARIABLE.
    #[arg(long, value_name = "USER:SECRET|@FILE|env:VARIABLE")]
    chap: Option<String>,

    /// User and secret with which the target authenticates itself to initiators that ask for it (mutual CHAP).
    #[arg(long, value_name = "USER:SECRET|@FILE|env:VARIABLE", requires = "chap")]
    mutual_chap: Option<String>,

    /// Who may discover the target's name and addresses; none: everyone [default: the users that may log in].
    #[arg(long, value_name = "USER:SECRET|@FILE|env:VARIABLE|none")]
    discovery_chap: Option<String>,

    /// Who changes the asymmetric access states (ALUA) of target port groups: nobody (states don't exist), the target
    /// (implicit: by --control or a fault), initiators (explicit: SET TARGET PORT GROUPS), or both.
    #[arg(long, value_enum, default_value = "implicit", value_name = "WHO")]
    alua: AluaWord,

    /// Header digest (CRC32C): never, only if the initiator requires it (allow), whenever the initiator supports it
    /// (prefer), or always (require).
    #[arg(long, value_enum, default_value = "allow", value_name = "WHEN")]
    header_digest: Digest,

    /// Data digest (CRC32C); same choices as for --header-digest.
    #[arg(long, value_enum, default_value = "allow", value_name = "WHEN")]
    data_digest: Digest,

    /// Maximum number of concurrent sessions.
    #[arg(long, default_value = "128")]
    max_sessions: NonZeroU16,

    #[command(flatten)]
    sockets: Sockets,

    /// Accept commands on standard input while serving: one JSON object per line, answered by one line on standard
    /// output. Commands arm and disarm faults, enable and disable retries, fail and rebuild array members, read
    /// counters, and add, remove and resize LUNs. Example: {"do":"arm","lun":0,"fault":"medium-error,p=0.5"}. For
    /// faults, retries and members, the LUN's URL must include the matching layer, such as memory:1GiB?fault=off.
    #[arg(long)]
    control: bool,

    /// Serve Prometheus metrics at this address (port 0 picks a free port).
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,

    #[command(flatten)]
    nbd: nbd::NbdFlags,

    /// Poll for requests instead of sleeping while sessions exist, which saves the time it takes to wake a thread. A
    /// connection then occupies a core even when idle; at most half of the cores (at least one) are used. iSCSI only;
    /// needs io_uring.
    #[arg(long)]
    poll: bool,

    #[command(flatten)]
    engine: EngineFlag,

    #[command(flatten)]
    role: Role,
}

impl super::Subcommand for Target {
    const NAME: &'static str = "target";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt target --lun null:1TiB",
            "measure the protocol alone: reads return zeros, writes are discarded",
        ),
        (
            "brunt target --lun memory:1GiB,thin --lun disk.img,wb --portal 127.0.0.1:0",
            "serve two LUNs on a free port, which the first line of output reports",
        ),
        (
            "brunt target --lun 'memory:1GiB?fault=medium-error,p=0.01,op=read;name=disk&retry=5' --control",
            "serve a disk with media errors behind a controller that retries; both can be changed while serving",
        ),
        (
            "brunt target --lun 'array:raid5,[a.img],[b.img],[c.img],spare=[d.img]' --control",
            "serve an array of files; {\"do\":\"fail\",\"lun\":0,\"member\":1} on standard input fails a member",
        ),
        (
            "brunt target --lun memory:1GiB --chap @secret.txt --portal 0.0.0.0:3260",
            "require CHAP from initiators on the network; secret.txt contains USER:SECRET and has mode 600",
        ),
        (
            "brunt target --lun disk.img --nbd 127.0.0.1:10809",
            "serve a disk over NBD as well: qemu-system-x86_64 -drive file=nbd://127.0.0.1/0,format=raw",
        ),
        (
            "brunt target --lun disk.img --nbd 0.0.0.0:10809 --nbd-tls /etc/pki/nbd --nbd-tls-verify-peer",
            "serve it over NBD to clients with a certificate only: nbdcopy nbds://host/0 copy.img",
        ),
        (
            "brunt target --config targets.toml",
            "serve several targets; docs/target.md shows such a file",
        ),
    ];

    fn more_help() -> Option<String> {
        Some(super::devices::POINTER.to_string())
    }

    fn run(self, output: &Output) -> Done {
        self.role.bind()?;
        self.engine.state()?;
        raise_open_files();
        if self.control && output.is_json() {
            return Err(Failure::usage(
                "--control and --json cannot be combined: both write to standard output",
            )
            .advise("omit --json: --control answers in JSON anyway"));
        }
        if self.poll {
            announce_polling(output)?;
        }
        // Handle SIGHUP before anything that might send it can learn of the target.
        let hung_up = match self.config {
            Some(_) => output.divert_hangup().map_err(Failure::failed)?,
            None => Arc::default(),
        };
        // Report an unusable address before anything is served.
        let metrics = bind_for("metrics", self.metrics)?;
        let nbd = self.nbd.listen()?;
        let plan = match &self.config {
            Some(path) => Plan::read(path)?,
            None => Plan::of_flags(self.described()?),
        };
        let wrong = |wrong| plan.failure(wrong);
        let config = TargetConfig {
            poll: self.poll,
            ..config(&plan, output)?
        };
        let ports = build::ports(&plan.file).map_err(wrong)?;
        let targets = build::targets(&plan.file, &ports).map_err(wrong)?;
        let served = targets
            .into_iter()
            .map(|target| live::serve(target, output))
            .collect();
        let server = start(config, served, output)?;
        let live = Live::new(server, &plan, ports, self.config.clone(), output);
        let nbd = nbd
            .map(|listener| nbd::serve(listener, &live, output))
            .transpose()?;
        let measured = Arc::clone(&live);
        let _metrics =
            crate::metrics::serve(metrics, output, move || metrics::page(&measured.server))?;
        if self.control {
            take_orders(&live, output)?;
        }
        until_interrupted(&live, &hung_up, output);
        let addresses: Vec<String> = live
            .server
            .portals()
            .iter()
            .map(ToString::to_string)
            .collect();
        let nbd = nbd.map(|server| nbd::summary(&server.shutdown()));
        let stats = live.server.shutdown(GRACE);
        if self.poll {
            let polled = Duration::from_nanos(stats.polled_nanos).as_secs_f64();
            output.line(format_args!("workers polled for {polled:.3} s of CPU time"));
        }
        summarize(&stats, &live.names(), &addresses, nbd, output);
        Ok(())
    }
}

/// Raises the limit on open files as far as an unprivileged process may: each connection needs one, and the usual
/// soft limit of 1024 is meant for programs that use select(2). If that fails, the target serves fewer connections.
fn raise_open_files() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
}

/// The device URL in a `--lun` value.
///
/// # Errors
/// The options in the value are invalid.
pub(super) fn lun_url(text: &str) -> Result<String, Failure> {
    lun::parse(text)
        .map(|words| words.url)
        .map_err(|failure| failure.prefixed("--lun "))
}

impl Target {
    /// The configuration that the flags describe, in the form of a file.
    fn described(&self) -> Result<TargetFile, Failure> {
        if self.advertise.len() > self.portals.len() {
            let what = format!(
                "{} --advertise for {} --portal",
                self.advertise.len(),
                self.portals.len()
            );
            return Err(Failure::usage(what).advise("give each --portal at most one --advertise"));
        }
        let mut portals = Vec::new();
        for (index, text) in self.portals.iter().enumerate() {
            let advertise = self.advertise.get(index).cloned();
            portals.push(PortalEntry {
                advertise,
                ..portal(text)?
            });
        }
        let luns = self
            .luns
            .iter()
            .enumerate()
            .map(|(lun, text)| (lun.to_string(), text.clone()));
        let target = TargetEntry {
            name: self.name.clone(),
            chap: self.chap.clone(),
            mutual_chap: self.mutual_chap.clone(),
            luns: luns.collect(),
        };
        Ok(TargetFile {
            discovery: DiscoveryEntry {
                chap: self.discovery_chap.clone(),
                mutual_chap: None,
            },
            alua: self.alua,
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            max_sessions: self.max_sessions,
            send_buffer: self.sockets.send_buffer.map(Size),
            receive_buffer: self.sockets.receive_buffer.map(Size),
            congestion: self.sockets.congestion,
            ..TargetFile::of(portals, vec![target])
        })
    }
}

/// Parses a `--portal` value.
fn portal(text: &str) -> Result<PortalEntry, Failure> {
    let mut words = text.split(',');
    let mut portal = PortalEntry::at(words.next().unwrap_or_default());
    for word in words {
        let wrong = |advice: &str| {
            Failure::usage(format!("--portal {text}: unknown option '{word}'")).advise(advice)
        };
        match word.split_once('=') {
            Some(("group", group)) => {
                let advice = "write a number from 1 to 65535, such as 127.0.0.1:3261,group=2";
                portal.group = group.parse().map_err(|_| wrong(advice))?;
            }
            None if word == "preferred" => portal.preferred = true,
            Some(("state", state)) => {
                let advice = "write optimized, non-optimized, standby, unavailable, offline or transitioning";
                let parsed = serde_json::from_value(state.into());
                portal.state = parsed.map_err(|_| wrong(advice))?;
            }
            _ => {
                return Err(wrong(
                    "write group=N, state=STATE or preferred after the address",
                ));
            }
        }
    }
    Ok(portal)
}

/// The server's configuration.
fn config(plan: &Plan, output: &Output) -> Result<TargetConfig, Failure> {
    let file = &plan.file;
    let heard = output.clone();
    let mut config = TargetConfig {
        discovery: build::discovery(file).map_err(|wrong| plan.failure(wrong))?,
        listener: Listener::new(move |event| heard.note(event)),
        ..TargetConfig::default()
    };
    build::listeners(file, &mut config).map_err(|wrong| plan.failure(wrong))?;
    Ok(config)
}

/// Starts the server and prints its portals.
fn start(
    config: TargetConfig,
    served: Vec<ServedTarget>,
    output: &Output,
) -> Result<TargetServer, Failure> {
    let server = TargetServer::start(config, served).map_err(|error| match error {
        StartError::Portal(_) => {
            Failure::failed(error).advise("choose another portal; port 0 picks a free one")
        }
        other => Failure::failed(other),
    })?;
    for portal in server.portals() {
        output.line(portal);
    }
    if output.is_json() {
        // With --json, standard output carries only the final object, so the addresses go to standard error.
        for portal in server.portals() {
            output.note(format!("listening on {portal}"));
        }
    }
    Ok(server)
}

/// Reloads the file on SIGHUP until the command is interrupted.
fn until_interrupted(live: &Live, hung_up: &AtomicBool, output: &Output) {
    while !output.is_interrupted() {
        if hung_up.swap(false, Ordering::Relaxed) {
            match live.reload() {
                Ok(changes) => output.note(changes),
                Err(failure) => output.note(format!("{}; nothing changed", failure.in_a_line())),
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Starts a thread that executes commands from standard input until the end of input or process exit.
fn take_orders(live: &Arc<Live>, output: &Output) -> Done {
    let (live, output) = (Arc::clone(live), output.clone());
    let work = move || {
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        let longest = control::LINE_BYTES_MAX as u64 + 1;
        while let Ok(count) = input.by_ref().take(longest).read_until(b'\n', &mut line) {
            if count == 0 {
                return;
            }
            let text = String::from_utf8_lossy(&line);
            if !text.trim().is_empty() {
                output.line(orders::answer(
                    &live.names(),
                    |name| live.local(name),
                    text.trim(),
                ));
            }
            line.clear();
        }
    };
    let thread = std::thread::Builder::new()
        .name("control".into())
        .spawn(work);
    thread
        .map(drop)
        .map_err(|error| Failure::failed(format!("cannot start a thread for --control: {error}")))
}

/// Prints the cost of --poll.
fn announce_polling(output: &Output) -> Done {
    if usual_engine().map_err(Failure::failed)? != IoEngine::IoUring {
        return Err(Failure::usage("--poll requires io_uring")
            .advise("omit --poll: with engine threads, waiting is a system call"));
    }
    let cores = polling_threads_max();
    output.note(format!(
        "polling: while sessions exist, up to {cores} {} fully busy, even without requests",
        if cores == 1 { "core is" } else { "cores are" }
    ));
    Ok(())
}

fn summarize(
    stats: &TargetStats,
    names: &[String],
    portals: &[String],
    nbd: Option<(String, Value)>,
    output: &Output,
) {
    let c = &stats.counters;
    output.line(format_args!(
        "{} sessions, {} commands, {} read, {} written; {} digest errors, {} rejected PDUs, {} refused and {} dropped logins, {} broken connections",
        stats.sessions,
        c.commands,
        format_size(c.data_in_bytes),
        format_size(c.data_out_bytes),
        c.digest_errors,
        c.rejects,
        stats.logins_refused,
        stats.logins_dropped,
        stats.connections_broken,
    ));
    let (line, nbd) = nbd.unzip();
    line.into_iter().for_each(|line| output.line(line));
    output.object(&json!({
        "nbd": nbd,
        "name": names.first(),
        "names": names,
        "portals": portals,
        "sessions": stats.sessions,
        "connections": stats.connections,
        "commands": c.commands,
        "data_in_bytes": c.data_in_bytes,
        "data_out_bytes": c.data_out_bytes,
        "digest_errors": c.digest_errors,
        "rejected_pdus": c.rejects,
        "ignored_commands": c.ignored,
        "refused_logins": stats.logins_refused,
        "dropped_logins": stats.logins_dropped,
        "broken_connections": stats.connections_broken,
        "system_calls": stats.system_calls,
        "polling_ns": stats.polled_nanos,
    }));
}
