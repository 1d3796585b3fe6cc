//! `brunt lab`: makes an experiment's hosts, links and targets available to external commands. It builds a lab for a
//! single command (`once.rs`), or leaves a lab running in the background (`up.rs`) in which its user can run commands
//! repeatedly.

mod build;
mod down;
mod exec;
mod list;
mod once;
mod server;
mod set;
mod up;

use crate::cli::{Done, Failure, Output};

/// Run commands on the hosts of an experiment's lab, with the experiment's targets running
///
/// With a file and a command, builds the hosts, links and targets of the file, runs the command, exits with its
/// status and removes the lab. 'up', 'exec', 'list' and 'down' do the same step by step, for a lab that keeps running
/// until it is removed; 'set' changes its links. No workloads run. For each target, the environment variable
/// BRUNT_TARGET_NAME contains its URL (characters other than letters and digits become "_").
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Lab {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    once: Option<once::OnceArgs>,
}

#[derive(clap::Subcommand)]
enum What {
    Up(up::UpArgs),
    Exec(exec::ExecArgs),
    Set(set::SetArgs),
    List(list::ListArgs),
    Down(down::DownArgs),
}

impl super::Subcommand for Lab {
    const NAME: &'static str = "lab";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt lab lab-wan.toml -- ping -c 3 server",
            "show the delay that the link adds",
        ),
        (
            "brunt lab lab-wan.toml --on server --delay 20ms -- ip address",
            "run the command on another host, with a longer delay",
        ),
        (
            "brunt lab up lab-wan.toml",
            "keep a lab running in the background: hosts, links and targets",
        ),
        (
            "brunt lab exec server -- tcpdump -ni any",
            "watch its packets",
        ),
        ("brunt lab exec client", "run a shell on a host"),
        (
            "brunt lab set wan delay=50ms",
            "change a link while commands run",
        ),
        ("brunt lab down", "remove it"),
    ];

    fn run(self, output: &Output) -> Done {
        match (self.what, self.once) {
            (Some(What::Up(args)), _) => up::run(&args, output),
            (Some(What::Exec(args)), _) => exec::run(args, output),
            (Some(What::Set(args)), _) => set::run(args, output),
            (Some(What::List(args)), _) => list::run(&args, output),
            (Some(What::Down(args)), _) => down::run(&args, output),
            (None, Some(args)) => once::run(&args, output),
            (None, None) => Err(Failure::usage(
                "neither a file nor one of up, exec, set, list and down",
            )
            .advise("see 'brunt lab --help'")),
        }
    }
}
