//! `brunt target`: serves devices over iSCSI until Ctrl-C or SIGTERM.

mod build;
mod file;
mod lun;
mod orders;

use std::collections::BTreeMap;
use std::io::{BufRead, Read};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use brunt_block::Congestion;
use brunt_block::socket::SocketOptions;
use brunt_core::Size;
use brunt_core::units::{format_size, parse_size};
use brunt_iscsi::scsi::LunMap;
use brunt_iscsi::target_node::{Listener, ServedTarget, StartError, TargetConfig, TargetServer, TargetStats};
use brunt_study::control::{self, Local};
use serde_json::json;

use self::build::BuiltTarget;
pub(super) use self::build::address;
use self::file::{DEFAULT_PORTAL, Digest, DiscoveryEntry, Plan, PortalEntry, TargetEntry, TargetFile};
use super::role::Role;
use crate::cli::{Done, Failure, Output};

/// How often the command checks whether it should stop.
const LOOK: Duration = Duration::from_millis(50);
/// How long initiators have to log out at the end.
const GRACE: Duration = Duration::from_secs(2);

/// Flags whose place a file takes.
const SAID_BY_FILE: [&str; 13] = [
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
    /// Device to serve; the first is LUN 0, the next LUN 1 and so on. A device URL (see `brunt help devices`), then options after
    /// commas: thin or thick (provisioning; default thick), ro (read-only), removable, wb or wt (write-back or
    /// write-through cache; default wt), block=512 or block=4096, serial=TEXT, aptpl=FILE (keeps persistent
    /// reservations across restarts), sanitize=SIZE (maximum rate of SANITIZE, per second).
    #[arg(long = "lun", value_name = "URL[,OPTION…]", required_unless_present = "config")]
    luns: Vec<String>,

    /// Serve what a TOML file describes: several targets, each with its LUNs and CHAP, and portals. docs/target.md
    /// lists its keys. Replaces the flags that say the same.
    #[arg(long, value_name = "FILE", conflicts_with_all = SAID_BY_FILE)]
    config: Option<PathBuf>,

    /// Address to listen on; port 0 picks a free port. Can be repeated. Portals of different groups (`,group=2`) lead
    /// to different target ports; without it the group is 1.
    #[arg(long = "portal", value_name = "ADDRESS:PORT[,group=N]", default_value = DEFAULT_PORTAL)]
    portals: Vec<String>,

    /// Address that discovery gives for the portal, where initiators reach it under another one (NAT, a published
    /// port). The first is for the first --portal, and so on.
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

    /// Who may ask for the target's name and addresses (discovery); none: everyone [default: who may log in].
    #[arg(long, value_name = "USER:SECRET|@FILE|env:VARIABLE|none")]
    discovery_chap: Option<String>,

    /// Header digest (CRC32C): never, only if the initiator requires it (allow), whenever the initiator supports it
    /// (prefer), or always (require).
    #[arg(long, value_enum, default_value = "allow", value_name = "WHEN")]
    header_digest: Digest,

    /// Data digest (CRC32C); same choices as --header-digest.
    #[arg(long, value_enum, default_value = "allow", value_name = "WHEN")]
    data_digest: Digest,

    /// Maximum number of concurrent sessions.
    #[arg(long, default_value = "128")]
    max_sessions: NonZeroU16,

    /// Socket send buffer of each connection [default: chosen by the kernel].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    send_buffer: Option<u64>,

    /// Socket receive buffer of each connection [default: chosen by the kernel].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    receive_buffer: Option<u64>,

    /// TCP congestion control of each connection, such as cubic; default: chosen by the kernel.
    #[arg(long, value_name = "NAME", value_parser = Congestion::usable)]
    congestion: Option<Congestion>,

    /// Accept commands on standard input while serving: one JSON object per line, answered by one line on standard
    /// output. Commands arm and disarm faults, switch retries on and off, fail and rebuild array members, and read
    /// counters. Example: {"do":"arm","lun":0,"fault":"medium-error,p=0.5"}. The LUN's URL must include the matching
    /// layer, such as memory:1GiB?fault=off.
    #[arg(long)]
    control: bool,

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
            "serve two LUNs on a free port, which the first line of output names",
        ),
        (
            "brunt target --lun 'memory:1GiB?fault=medium-error,p=0.01,op=read;name=disk&retry=5' --control",
            "a disk with media errors behind a controller that retries; change both while serving",
        ),
        (
            "brunt target --lun 'array:raid5,[a.img],[b.img],[c.img],spare=[d.img]' --control",
            "an array of files; {\"do\":\"fail\",\"lun\":0,\"member\":1} on standard input fails a member",
        ),
        (
            "brunt target --lun memory:1GiB --chap @secret.txt --portal 0.0.0.0:3260",
            "require CHAP from initiators on the network; secret.txt contains USER:SECRET",
        ),
        ("brunt target --config targets.toml", "serve several targets; docs/target.md shows such a file"),
    ];

    fn more_help() -> Option<String> {
        Some(super::devices::POINTER.to_string())
    }

    fn run(self, output: &Output) -> Done {
        self.role.bind()?;
        if self.control && output.is_json() {
            return Err(Failure::usage(
                "--control and --json cannot be combined: both write to standard output",
            )
            .advise("omit --json: --control answers in JSON anyway"));
        }
        let plan = match &self.config {
            Some(path) => Plan::read(path)?,
            None => Plan::of_flags(self.described()?),
        };
        let wrong = |wrong| plan.failure(wrong);
        let config = config(&plan, output)?;
        let mut targets = build::targets(&plan.file).map_err(wrong)?;
        let handles = handles(&targets, output);
        let served = targets.drain(..).map(serve).collect();
        let server = TargetServer::start(config, served).map_err(|error| match error {
            StartError::Listen { .. } => {
                Failure::failed(error).advise("choose another portal; port 0 picks a free one")
            }
            other => Failure::failed(other),
        })?;
        for portal in server.portals() {
            output.line(portal);
        }
        if output.is_json() {
            // Standard output carries only the one object at the end, so addresses go to standard error.
            for portal in server.portals() {
                output.note(format!("listening on {portal}"));
            }
        }
        if self.control {
            take_orders(handles, output)?;
        }
        while !output.is_interrupted() {
            std::thread::sleep(LOOK);
        }
        let addresses: Vec<String> = server.portals().iter().map(ToString::to_string).collect();
        let stats = server.shutdown(GRACE);
        summarize(&stats, &plan.file, &addresses, output);
        Ok(())
    }
}

/// The device URL of a LUN as `--lun` takes it.
///
/// # Errors
/// Its options are wrong.
pub(super) fn lun_url(text: &str) -> Result<String, Failure> {
    lun::parse(text).map(|words| words.url).map_err(|failure| failure.prefixed("--lun "))
}

impl Target {
    /// What the flags describe, as a file would.
    fn described(&self) -> Result<TargetFile, Failure> {
        if self.advertise.len() > self.portals.len() {
            let what = format!("{} --advertise for {} --portal", self.advertise.len(), self.portals.len());
            return Err(Failure::usage(what).advise("give each --portal one --advertise at most"));
        }
        let mut portals = Vec::new();
        for (index, text) in self.portals.iter().enumerate() {
            let (listen, group) = text.split_once(",group=").unwrap_or((text, "1"));
            let group = group.parse().map_err(|_| {
                Failure::usage(format!("--portal {text}: '{group}' is not a group"))
                    .advise("write a number from 1 to 65535, such as 127.0.0.1:3261,group=2")
            })?;
            let advertise = self.advertise.get(index).cloned();
            portals.push(PortalEntry { listen: listen.to_string(), advertise, group });
        }
        let luns = self.luns.iter().enumerate().map(|(lun, text)| (lun.to_string(), text.clone()));
        let target = TargetEntry {
            name: self.name.clone(),
            chap: self.chap.clone(),
            mutual_chap: self.mutual_chap.clone(),
            luns: luns.collect(),
        };
        Ok(TargetFile {
            discovery: DiscoveryEntry { chap: self.discovery_chap.clone(), mutual_chap: None },
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            max_sessions: self.max_sessions,
            send_buffer: self.send_buffer.map(Size),
            receive_buffer: self.receive_buffer.map(Size),
            congestion: self.congestion,
            ..TargetFile::of(portals, vec![target])
        })
    }
}

/// How the server is made.
fn config(plan: &Plan, output: &Output) -> Result<TargetConfig, Failure> {
    let file = &plan.file;
    let heard = output.clone();
    let mut config = TargetConfig {
        portals: build::portals(file).map_err(|wrong| plan.failure(wrong))?,
        discovery: build::discovery(file).map_err(|wrong| plan.failure(wrong))?,
        sessions_max: usize::from(file.max_sessions.get()),
        sockets: SocketOptions {
            send_buffer_bytes: file.send_buffer.map(|Size(bytes)| bytes as usize),
            receive_buffer_bytes: file.receive_buffer.map(|Size(bytes)| bytes as usize),
            congestion: file.congestion,
            ..SocketOptions::default()
        },
        listener: Listener::new(move |event| heard.note(event)),
        ..TargetConfig::default()
    };
    config.wishes.header_digest = file.header_digest.policy();
    config.wishes.data_digest = file.data_digest.policy();
    Ok(config)
}

/// What can be driven in each target's LUNs, by the target's name.
fn handles(targets: &[BuiltTarget], output: &Output) -> BTreeMap<String, Local> {
    let mut all = BTreeMap::new();
    for target in targets {
        for (lun, unit) in &target.units {
            for note in unit.backend().info().remarks() {
                output.note(format!("LUN {lun}: {note}"));
            }
        }
        let handles = target.units.iter().map(|(lun, unit)| (*lun, unit.backend().handles()));
        all.insert(target.name.clone(), Local::new(handles));
    }
    all
}

fn serve(target: BuiltTarget) -> ServedTarget {
    let map = LunMap::new(target.units.into_iter().collect());
    ServedTarget { users: target.users, ..ServedTarget::new(target.name, map) }
}

/// Starts a thread that executes commands from standard input until end of file or process exit.
fn take_orders(devices: BTreeMap<String, Local>, output: &Output) -> Done {
    let output = output.clone();
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
                output.line(orders::answer(&devices, text.trim()));
            }
            line.clear();
        }
    };
    let thread = std::thread::Builder::new().name("control".into()).spawn(work);
    thread.map(drop).map_err(|error| Failure::failed(format!("cannot start a thread for --control: {error}")))
}

fn summarize(stats: &TargetStats, file: &TargetFile, portals: &[String], output: &Output) {
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
    output.object(&json!({
        "name": file.targets.first().map(|target| &target.name),
        "names": file.targets.iter().map(|target| &target.name).collect::<Vec<_>>(),
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
    }));
}
