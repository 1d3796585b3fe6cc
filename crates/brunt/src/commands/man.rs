//! `brunt man`: generates manual pages from the definition that also produces the help.

use std::path::{Path, PathBuf};

use clap_mangen::Man as Page;

use crate::cli::{Done, Failure, Output, definition};

/// Print brunt's manual page, or write one page per command to a folder
#[derive(clap::Args)]
pub struct Man {
    /// Folder for brunt.1, brunt-io.1 and so on (created if missing) [default: print brunt.1].
    dir: Option<PathBuf>,
}

impl super::Subcommand for Man {
    const NAME: &'static str = "man";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[(
        "brunt man ~/.local/share/man/man1",
        "install all pages; then `man brunt-io` shows a command's page",
    )];

    fn run(self, output: &Output) -> Done {
        // Pages for `brunt help X` would only repeat X's page.
        let root = definition().disable_help_subcommand(true);
        let Some(dir) = self.dir else {
            output.bytes(&render(root));
            return Ok(());
        };
        let complain = |path: &Path, error| {
            Failure::usage(format!("{}: {error}", path.display()))
                .advise("choose a writable folder")
        };
        std::fs::create_dir_all(&dir).map_err(|error| complain(&dir, error))?;
        clap_mangen::generate_to(root, &dir).map_err(|error| complain(&dir, error))?;
        Ok(())
    }
}

fn render(command: clap::Command) -> Vec<u8> {
    let mut page = Vec::new();
    Page::new(command)
        .render(&mut page)
        .expect("writing to a vector cannot fail");
    page
}
