//! The trait for commands, and the type of the entries in the table of commands. It is separate from the table, so
//! that commands don't depend on the table.

use clap::{ArgMatches, Args};

use crate::cli::{Done, Output};

/// A command: its parsed arguments, and how to run it.
pub trait Subcommand: Args {
    /// The name that the user types.
    const NAME: &'static str;
    /// Example command lines and their descriptions, printed at the end of the help. A test parses each one.
    const EXAMPLES: &'static [(&'static str, &'static str)];
    /// Additional text for `--help`, after the examples.
    fn more_help() -> Option<String> {
        None
    }
    /// Runs the command. Prints only through `output`.
    fn run(self, output: &Output) -> Done;
}

/// An entry in the table, created by [`entry`].
pub struct Entry {
    pub name: &'static str,
    #[allow(dead_code)] // read by the test that parses them
    pub examples: &'static [(&'static str, &'static str)],
    /// Adds the command's description, options and examples to a definition.
    pub define: fn(clap::Command) -> clap::Command,
    pub run: fn(&ArgMatches, &Output) -> Done,
}

impl Entry {
    /// The command's definition.
    pub fn defined(&self) -> clap::Command {
        (self.define)(clap::Command::new(self.name))
    }

    /// A definition with only the name; clap requests the rest when it needs it.
    pub fn deferred(&self) -> clap::Command {
        clap::Command::new(self.name).defer(self.define)
    }
}

pub(super) const fn entry<C: Subcommand>() -> Entry {
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
