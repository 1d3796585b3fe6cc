//! `brunt completions`: generates a shell's completion script from the definition that also produces the help.

use clap_complete::Shell;

use crate::cli::{Done, Output, definition};

/// Print a completion script for a shell
#[derive(clap::Args)]
pub struct Completions {
    /// Which shell.
    shell: Shell,
}

impl super::Subcommand for Completions {
    const NAME: &'static str = "completions";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[(
        "brunt completions bash >> ~/.bash_completion",
        "enable completion in every new bash",
    )];

    fn run(self, output: &Output) -> Done {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut definition(), "brunt", &mut script);
        output.bytes(&script);
        Ok(())
    }
}
