//! `brunt agent`: runs this program on another host on behalf of a controller; also lets users query such hosts.

mod clock;
mod init;
mod listen;
mod reach;

pub use reach::ReachArgs;

use std::io::IsTerminal;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use brunt_block::{Congestion, CongestionError};
use brunt_core::Span;
use brunt_core::units::format_duration;
use brunt_host::{AgentConfig, AgentEnd, AllowList, MessageStream, NotServed, RoleProgram};
use brunt_protocol::HostRole;
use brunt_study::role::{self, Launch, Serve};

use crate::bridge_capture;
use crate::cli::{Done, Failure, Output};
use crate::devices::BACKENDS;

/// Shortest lease: twice the interval at which a controller sends requests.
const LEASE_MIN: Duration = Duration::from_secs(2);
/// Longest lease.
const LEASE_MAX: Duration = Duration::from_secs(3600);

/// Run parts of experiments on this host for a remote controller, or compare clocks between hosts
///
/// With --stdio it communicates over its standard streams; ssh starts it this way, so users need not. With --listen
/// it serves controllers that present a certificate from its authority; 'init' creates the certificates. For a
/// controller, it runs the workloads of an experiment, serves targets, injects faults, samples the host's counters
/// and compares clocks. All of that ends when the controller ends, or sends nothing for the length of the lease.
/// 'clock' compares the clocks of other hosts with this machine's.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Agent {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(clap::Subcommand)]
enum What {
    Clock(clock::ClockArgs),
    Init(init::InitArgs),
}

#[derive(clap::Args)]
struct ServeArgs {
    /// Communicate with the controller over standard input and output.
    #[arg(long)]
    stdio: bool,

    /// Serve controllers at this address over TLS; port 0 picks a free port
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        conflicts_with = "stdio",
        requires = "identity"
    )]
    listen: Option<String>,

    /// This host's identity, for --listen: a file created by 'brunt agent init'
    #[arg(long, value_name = "FILE", requires = "listen")]
    identity: Option<PathBuf>,

    /// What controllers may do here: open a device, a file or a folder (its path) or a kind of device, such as
    /// iscsi:; inject a fault (fault:cpu, fault:memory, fault:freeze[=PROCESS], fault:kill[=PROCESS],
    /// fault:netem[=INTERFACE], fault:bridge[=INTERFACE], fault:probe); serve targets and sinks at any address
    /// (serve:) or at a given one (serve:10.0.0.9), on devices that are also allowed; start services, which may run
    /// any command (service:). Can be repeated [default: nothing with --listen, everything that this user may do with
    /// --stdio]
    #[arg(long, value_name = "WHAT")]
    allow: Vec<String>,

    /// End after hearing nothing from the controller for this long (2s to 1h).
    #[arg(long, value_name = "TIME", default_value = "8s")]
    lease: Span,

    /// Remove the program's own file and its folder: for a copy that is no longer needed.
    #[arg(long, hide = true)]
    remove_program: bool,

    /// Offset added to all times, for tests with clocks that differ.
    #[arg(
        long,
        hide = true,
        value_name = "NS",
        default_value_t = 0,
        allow_hyphen_values = true
    )]
    clock_shift_ns: i64,
}

/// The name and version of the program, as `brunt --version` prints them.
fn program() -> String {
    format!("brunt {}", env!("CARGO_PKG_VERSION"))
}

impl super::Subcommand for Agent {
    const NAME: &'static str = "agent";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt agent clock ssh:root@node7",
            "measure the offset and drift of its clocks from this machine's; nothing is installed there",
        ),
        (
            "brunt agent init certificates node7",
            "create certificates for node7 and its controller",
        ),
        (
            "brunt agent --listen 0.0.0.0:7420 --identity agent-node7.pem --allow /dev/nvme1n1",
            "run an agent on node7 that lets the controller run workloads on this disk",
        ),
        (
            "brunt agent --stdio",
            "what a controller runs on a host over ssh",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        brunt_block::backends::share_files();
        match self.what {
            Some(What::Clock(args)) => clock::run(&args, output),
            Some(What::Init(args)) => init::run(&args, output),
            None if self.serve.listen.is_some() => listen::run(&self.serve, output),
            None if self.serve.stdio => stdio(&self.serve, output),
            None => {
                Err(Failure::usage("neither --stdio nor --listen")
                    .advise("see 'brunt agent --help'"))
            }
        }
    }
}

impl ServeArgs {
    fn config(&self) -> Result<AgentConfig, Failure> {
        if !(LEASE_MIN..=LEASE_MAX).contains(&self.lease.0) {
            return Err(Failure::usage(format!(
                "--lease {}: write 2s to 1h",
                self.lease
            )));
        }
        let allow = match self.allow.is_empty() && self.stdio {
            true => AllowList::everything(),
            false => AllowList::only(self.allow.iter().map(String::as_str), &BACKENDS)
                .map_err(|error| Failure::usage(format!("--allow {error}")))?,
        };
        Ok(AgentConfig {
            program: program(),
            lease: self.lease.0,
            clock_shift_ns: self.clock_shift_ns,
            allow,
            backends: &BACKENDS,
            serving,
            packet_sink: bridge_capture::open,
        })
    }
}

/// The program and arguments that run a role for a controller, as in a local experiment.
fn serving(wish: &HostRole) -> Result<RoleProgram, NotServed> {
    let serve: Serve =
        serde_json::from_value(wish.serve.clone()).map_err(|error| NotServed(error.to_string()))?;
    let role = role::serving(&serve);
    let Launch::Process { mut arguments, .. } = role.launch() else {
        return Err(NotServed(format!(
            "a {} is not a program",
            role.info().name
        )));
    };
    if let Some(name) = &wish.congestion {
        let _: Congestion = name
            .parse()
            .map_err(|error: CongestionError| NotServed(error.to_string()))?;
    }
    arguments.extend(role::serving_arguments(wish.congestion.clone()));
    Ok(RoleProgram {
        arguments,
        login_option: role.login_option(),
    })
}

/// Communicates over standard input and output until the controller disconnects or its lease expires.
fn stdio(args: &ServeArgs, output: &Output) -> Done {
    let config = args.config()?;
    if args.remove_program {
        remove_program();
    }
    let (input, out) = (std::io::stdin(), std::io::stdout());
    if input.is_terminal() || out.is_terminal() {
        return Err(Failure::usage(
            "--stdio is for a controller, but standard input is a terminal",
        )
        .advise("try 'brunt agent clock ssh:HOST' on the controller"));
    }
    let own = |stream: std::os::fd::BorrowedFd<'_>| -> Result<OwnedFd, Failure> {
        stream
            .try_clone_to_owned()
            .map_err(|error| Failure::failed(format!("standard streams: {error}")))
    };
    let stream = MessageStream::new(own(input.as_fd())?, own(out.as_fd())?);
    match brunt_host::serve(stream, &config, output.interrupt_flag()) {
        Ok(AgentEnd::Closed | AgentEnd::Stopped) => Ok(()),
        Ok(AgentEnd::LeaseOver) => Err(Failure::failed(format!(
            "no message from the controller for {}",
            format_duration(args.lease.0)
        ))),
        Ok(AgentEnd::Greeting(error)) => Err(Failure::failed(error)),
        Err(error) => Err(Failure::failed(error)),
    }
}

/// Removes the copy from which this program was started, and its folder if it is otherwise empty.
fn remove_program() {
    let Ok(own) = std::env::current_exe() else {
        return;
    };
    // The shell that started this program removes the rest.
    let _ = std::fs::remove_file(&own);
    if let Some(folder) = own.parent() {
        let _ = std::fs::remove_dir(folder);
    }
}
