//! The interface of a subject: its arguments, and how to measure it.

use brunt_bench::BenchResult;
use clap::{ArgMatches, Args};

use super::output::Terminal;

/// A subject's parsed arguments.
pub trait SubjectArgs: Args {
    /// The subject's name on the command line.
    const NAME: &'static str;
    /// Example command lines with their purposes, shown at the end of the help. A test parses each of them.
    const EXAMPLES: &'static [(&'static str, &'static str)];
    /// Measures the subject. Prints only through `output`.
    fn run(self, output: &Terminal) -> BenchResult;
}

/// A line of the table, created by [`entry`].
pub struct SubjectEntry {
    pub name: &'static str,
    #[cfg(test)]
    pub examples: &'static [(&'static str, &'static str)],
    define: fn(clap::Command) -> clap::Command,
    pub run: fn(&ArgMatches, &Terminal) -> BenchResult,
}

impl SubjectEntry {
    /// The subject's description, options and examples.
    pub fn defined(&self) -> clap::Command {
        (self.define)(clap::Command::new(self.name))
    }
}

pub const fn entry<S: SubjectArgs>() -> SubjectEntry {
    SubjectEntry {
        name: S::NAME,
        #[cfg(test)]
        examples: S::EXAMPLES,
        define: define::<S>,
        run: run::<S>,
    }
}

fn define<S: SubjectArgs>(command: clap::Command) -> clap::Command {
    let mut examples = String::from("Examples:");
    for (line, purpose) in S::EXAMPLES {
        examples += &format!("\n  # {purpose}\n  {line}");
    }
    S::augment_args(command).after_help(examples)
}

fn run<S: SubjectArgs>(matches: &ArgMatches, output: &Terminal) -> BenchResult {
    let subject = S::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
    subject.run(output)
}
