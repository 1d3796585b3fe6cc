//! `brunt lake check`: finds missing and damaged parts of a trace or lake, and repairs its catalog.

use std::path::PathBuf;

use brunt_capture::trace::lake;
use brunt_core::units::counted;
use brunt_lake::check::{Problem, Repaired};
use brunt_lake::delta::LogRepair;
use serde_json::json;

use crate::cli::{Done, Failure, Output};

/// Find missing and damaged parts of a trace or lake
///
/// Reads everything, compares it with the checksums and the catalog, and reports what is wrong; the exit status is
/// then 1. Nothing is changed without --repair, and --repair deletes nothing.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # is everything present and unchanged?\n  brunt lake check LAKE\n\n  # restore a lost \
                  or damaged catalog, or a Delta Lake log\n  brunt lake check LAKE --repair"
)]
pub struct CheckArgs {
    /// Folder of a trace or lake.
    folder: PathBuf,

    /// Restore the catalog from one of its copies (_catalog_copies) or, failing that, from the metadata in the parts;
    /// also rewrite damaged Delta Lake logs from the catalog.
    #[arg(long)]
    repair: bool,

    /// Also remove missing or truncated parts from the catalog, so that the lake can be used again. Their rows are
    /// lost, so restore the files instead if you can.
    #[arg(long, requires = "repair")]
    without_lost: bool,
}

pub fn run(args: &CheckArgs, output: &Output) -> Done {
    let folder = &args.folder;
    let (mut repaired, mut logs) = (None, Vec::new());
    if args.repair {
        let _lock = super::while_no_mover_runs(folder)?;
        let done = lake::repair(folder, args.without_lost).map_err(super::failure)?;
        output.line(describe(&done));
        repaired = Some(done);
        logs = lake::repair_logs(folder).map_err(Failure::failed)?;
        for log in &logs {
            output.line(describe_log(log));
        }
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
        "repaired": repaired.as_ref().map(describe),
        "repaired_logs": logs.iter().map(of_log).collect::<Vec<_>>(),
    }));
    if problems.is_empty() {
        return Ok(());
    }
    let found = counted(problems.len(), "problem");
    let failure = Failure::failed(format_args!("{}: {found} found", folder.display()));
    let is_of_catalog = checked.problems.iter().any(Problem::is_of_catalog);
    let is_of_log = checked.problems.iter().any(Problem::is_of_log);
    Err(match (is_of_catalog, is_of_log) {
        _ if args.repair => failure,
        (true, _) => failure.advise("`brunt lake check --repair` restores a catalog"),
        (false, true) => {
            failure.advise("`brunt lake check --repair` rewrites Delta Lake logs from the catalog")
        }
        (false, false) => failure,
    })
}

/// How a Delta Lake log was repaired, as a value for scripts.
fn of_log(repaired: &LogRepair) -> serde_json::Value {
    match repaired {
        LogRepair::Mended { table } => json!({ "table": table, "rewritten": false }),
        LogRepair::Rewritten { table, aside } => {
            json!({ "table": table, "rewritten": true, "old_log": aside })
        }
    }
}

/// Describes what a repair did with a Delta Lake log.
fn describe_log(repaired: &LogRepair) -> String {
    match repaired {
        LogRepair::Mended { table } => format!(
            "repaired    {table}: the checkpoint and checksums of its Delta Lake log were written again"
        ),
        LogRepair::Rewritten { table, aside } => format!(
            "repaired    {table}: its Delta Lake log was rewritten from the catalog; the old one is {}",
            aside.display()
        ),
    }
}

/// Describes the result of a repair.
fn describe(repaired: &Repaired) -> String {
    match repaired {
        Repaired::Whole => "repaired    nothing: the catalog and its parts are intact".to_string(),
        Repaired::SetAside => {
            "repaired    older versions or copies of the catalog that can't be read were renamed to *.damaged"
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
            "repaired    version {version} of the catalog was rebuilt from the parts: {}, {}; missing parts can't be \
             detected this way",
            counted(*parts, "part"),
            counted(*rows as usize, "row")
        ),
        Repaired::WithoutLost { version, lost } => format!(
            "repaired    version {version} of the catalog no longer lists {}: {}",
            counted(lost.len(), "lost part"),
            lost.join(", ")
        ),
    }
}
