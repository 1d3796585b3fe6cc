//! `brunt lake check`: finds missing and damaged parts of a trace or lake, and repairs its catalog.

use std::path::PathBuf;

use brunt_capture::trace::lake;
use brunt_core::units::counted;
use brunt_lake::check::{Problem, Repaired};
use serde_json::json;

use crate::cli::{Done, Failure, Output};

/// Find missing and damaged parts of a trace or lake
///
/// Reads everything, compares it with its checksums and with the catalog, and names what is wrong, with exit status 1 then.
/// Nothing is changed without --repair, and nothing is deleted with it.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # is everything there, and as it was written?\n  brunt lake check LAKE\n\n  # bring back a catalog that was lost or damaged\n  brunt lake check LAKE --repair"
)]
pub struct CheckArgs {
    /// Folder of a trace or lake.
    folder: PathBuf,

    /// Bring back the catalog: from one of its copies (_catalog_copies), or else from what the parts say about themselves.
    #[arg(long)]
    repair: bool,

    /// Also remove parts that are missing or cut from the catalog, so that the lake can be used again. Their rows are lost:
    /// restore the files instead if you can.
    #[arg(long, requires = "repair")]
    without_lost: bool,
}

pub fn run(args: &CheckArgs, output: &Output) -> Done {
    let folder = &args.folder;
    let mut repaired = None;
    if args.repair {
        let _lock = super::while_nobody_moves(folder)?;
        let done = lake::repair(folder, args.without_lost).map_err(super::failure)?;
        output.line(told(&done));
        repaired = Some(done);
    }
    let checked = lake::check(folder).map_err(super::failure)?;
    for problem in &checked.problems {
        output.note(problem);
    }
    let version = checked.version.map_or("no catalog".to_string(), |version| {
        format!("version {version}")
    });
    output.line(format_args!(
        "checked     {version}: {} in order, {}",
        counted(checked.parts as usize, "part"),
        counted(checked.rows as usize, "row"),
    ));
    let problems: Vec<_> = checked.problems.iter().map(Problem::to_string).collect();
    output.object(&json!({
        "version": checked.version,
        "parts": checked.parts,
        "rows": checked.rows,
        "problems": problems,
        "repaired": repaired.as_ref().map(told),
    }));
    if problems.is_empty() {
        return Ok(());
    }
    let found = counted(problems.len(), "problem");
    let failure = Failure::failed(format_args!("{}: {found} found", folder.display()));
    let is_of_catalog = checked.problems.iter().any(Problem::is_of_catalog);
    Err(match is_of_catalog && !args.repair {
        true => failure.advise("`brunt lake check --repair` brings back a catalog"),
        false => failure,
    })
}

/// Describes what a repair did.
fn told(repaired: &Repaired) -> String {
    match repaired {
        Repaired::Whole => "repaired    nothing: the catalog and its parts are whole".to_string(),
        Repaired::SetAside => {
            "repaired    versions and copies of the catalog that can't be read were renamed *.damaged"
                .to_string()
        }
        Repaired::Restored(version) => {
            format!("repaired    version {version} of the catalog was restored from its copy")
        }
        Repaired::Rebuilt {
            version,
            parts,
            rows,
        } => format!(
            "repaired    version {version} of the catalog was rebuilt from the parts: {}, {}; a part that is missing \
             altogether can't be noticed this way",
            counted(*parts, "part"),
            counted(*rows as usize, "row")
        ),
        Repaired::WithoutLost { version, lost } => format!(
            "repaired    version {version} of the catalog is without {}: {}",
            counted(lost.len(), "lost part"),
            lost.join(", ")
        ),
    }
}
