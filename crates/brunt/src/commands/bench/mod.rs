//! `brunt bench`: parses the arguments of each subject and calls the crate `brunt-bench`, which measures.
//! One file and one line of the table for each subject.

mod actors;
mod capture;
mod hosts;
mod iscsi;
mod link;
mod load;
mod nbd;
mod page;
mod replay;
mod store;
mod trace;

use clap::{ArgMatches, FromArgMatches};

use super::{Entry, Subcommand, entry};
use crate::cli::{Done, Output};

/// What can be measured, in the order of `brunt bench --help`.
const SUBJECTS: &[Entry] = &[
    entry::<iscsi::Iscsi>(),
    entry::<nbd::Nbd>(),
    entry::<store::Store>(),
    entry::<load::Load>(),
    entry::<link::Link>(),
    entry::<hosts::HostsArgs>(),
    entry::<actors::Actors>(),
    entry::<capture::Capture>(),
    entry::<replay::ReplayArgs>(),
    entry::<trace::Trace>(),
    entry::<page::Page>(),
];

/// Benchmark Brunt itself against comparable tools
pub struct Bench {
    subject: String,
    arguments: ArgMatches,
}

impl FromArgMatches for Bench {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Bench, clap::Error> {
        let (subject, arguments) = matches.subcommand().expect("clap requires a subject");
        Ok(Bench {
            subject: subject.to_string(),
            arguments: arguments.clone(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Bench::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Bench {
    fn augment_args(command: clap::Command) -> clap::Command {
        let command = command
            .about("Benchmark Brunt itself against comparable tools")
            .subcommand_required(true)
            .arg_required_else_help(true);
        SUBJECTS.iter().fold(command, |command, subject| {
            command.subcommand(subject.defined())
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Bench::augment_args(command)
    }
}

impl Subcommand for Bench {
    const NAME: &'static str = "bench";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt bench load --only null",
            "cost of a request in the load engine alone",
        ),
        (
            "brunt bench iscsi --quick",
            "target and initiator on loopback, in a few seconds",
        ),
        (
            "brunt bench actors --runs 1",
            "messages per second between actors, against Go and Erlang",
        ),
        (
            "brunt bench capture --quick",
            "analysis and tracing of captures, against tshark and nfstrace",
        ),
        (
            "brunt bench replay",
            "how well a replay keeps a trace's times, against fio",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        let subject = SUBJECTS.iter().find(|subject| subject.name == self.subject);
        (subject
            .expect("clap knows only the subjects of the table")
            .run)(&self.arguments, output)
    }
}
