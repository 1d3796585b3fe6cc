//! The commands. To add one: a file here with a `#[derive(clap::Args)]` struct whose doc comment
//! is the help, an `impl Subcommand` for it with its name and examples, and one line in
//! [`COMMANDS`]. `completions.rs` is a short one to copy.

mod agent;
mod analyze;
mod bench;
mod bridge;
mod capture;
mod compare;
mod completions;
mod detach;
mod devices;
mod doctor;
mod import_fio;
mod io;
mod lab;
mod lake;
mod man;
mod probe;
mod record;
mod remote;
mod replay;
mod report;
mod role;
mod run;
mod run_check;
mod schema;
mod serve;
mod sink;
mod sockets;
mod sql;
mod target;
mod trace;
mod verify;

#[cfg(test)]
pub use capture::no_metrics as capture_metrics;

use clap::{ArgMatches, Args};

use crate::cli::{Done, Output};

/// All commands, in the order of `brunt --help`. One line each.
#[rustfmt::skip]
pub const COMMANDS: &[Entry] = &[
    entry::<target::Target>(),
    entry::<sink::Sink>(),
    entry::<io::Io>(),
    entry::<devices::Devices>(),
    entry::<run::Run>(),
    entry::<serve::Serve>(),
    entry::<lab::Lab>(),
    entry::<bridge::Bridge>(),
    entry::<doctor::Doctor>(),
    entry::<report::Report>(),
    entry::<schema::Schema>(),
    entry::<compare::Compare>(),
    entry::<import_fio::ImportFio>(),
    entry::<verify::Verify>(),
    entry::<capture::Capture>(),
    entry::<analyze::Analyze>(),
    entry::<sql::Sql>(),
    entry::<lake::Lake>(),
    entry::<trace::Trace>(),
    entry::<replay::Replay>(),
    entry::<probe::Probe>(),
    entry::<agent::Agent>(),
    entry::<bench::Bench>(),
    entry::<completions::Completions>(),
    entry::<man::Man>(),
];

/// A command: its parsed arguments, which know how to run.
pub trait Subcommand: Args {
    /// What the user types.
    const NAME: &'static str;
    /// Command lines and what each is for; the help ends with them. A test parses every one.
    const EXAMPLES: &'static [(&'static str, &'static str)];
    /// What `--help` ends with, behind the examples.
    fn more_help() -> Option<String> {
        None
    }
    /// Runs the command. Prints through `output` only.
    fn run(self, output: &Output) -> Done;
}

/// One line of the table, made by [`entry`].
pub struct Entry {
    pub name: &'static str,
    #[allow(dead_code)] // read by the test that tries them
    pub examples: &'static [(&'static str, &'static str)],
    /// Gives a command of this name its description, options and examples.
    pub define: fn(clap::Command) -> clap::Command,
    pub run: fn(&ArgMatches, &Output) -> Done,
}

impl Entry {
    /// The command's definition.
    pub fn defined(&self) -> clap::Command {
        (self.define)(clap::Command::new(self.name))
    }

    /// Its name, and the rest when clap needs it.
    pub fn deferred(&self) -> clap::Command {
        clap::Command::new(self.name).defer(self.define)
    }
}

const fn entry<C: Subcommand>() -> Entry {
    Entry {
        name: C::NAME,
        examples: C::EXAMPLES,
        define: define::<C>,
        run: run::<C>,
    }
}

fn define<C: Subcommand>(command: clap::Command) -> clap::Command {
    let mut examples = String::from("Examples:");
    for (line, purpose) in C::EXAMPLES {
        examples += &format!("\n  # {purpose}\n  {line}");
    }
    let command = C::augment_args(command);
    match C::more_help() {
        Some(more) => command
            .after_long_help(format!("{examples}\n\n{more}"))
            .after_help(examples),
        None => command.after_help(examples),
    }
}

fn run<C: Subcommand>(matches: &ArgMatches, output: &Output) -> Done {
    let command = C::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
    command.run(output)
}
