//! `brunt lake manifest`: writes the Delta Lake logs that tell other engines which parts to read.

use std::path::PathBuf;

use brunt_capture::trace::manifest::{ManifestError, write_manifest};
use brunt_lake::DeltaError;
use serde_json::json;

use crate::cli::{Done, Failure, Output};

/// Write the tables' Delta Lake logs, so that Spark, DuckDB and others find the parts
///
/// Adds one version to each table's log (TABLE/_delta_log), with everything compacted since the last version. Times
/// in the tables are integers, in columns whose names end in `_ns`. docs/table-formats.md shows how engines read
/// them.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # write the Delta Lake logs of compacted tables\n  brunt lake manifest LAKE"
)]
pub struct ManifestArgs {
    /// Folder of a compacted trace or lake.
    folder: PathBuf,
}

pub fn run(args: &ManifestArgs, output: &Output) -> Done {
    let tables = write_manifest(&args.folder).map_err(failure)?;
    let mut objects = Vec::new();
    for table in tables
        .iter()
        .filter(|table| table.parts > 0 || table.written.is_some())
    {
        let what = table.written.map_or_else(
            || "nothing new".to_string(),
            |written| {
                format!(
                    "version {}: {} parts added, {} removed",
                    written.version, written.added, written.removed
                )
            },
        );
        output.line(format_args!(
            "{:<20}  {} parts, {} rows; {what}",
            table.name, table.parts, table.rows
        ));
        objects.push(json!({
            "table": table.name,
            "parts": table.parts,
            "rows": table.rows,
            "version": table.written.map(|written| written.version),
            "parts_added": table.written.map_or(0, |written| written.added),
            "parts_removed": table.written.map_or(0, |written| written.removed),
        }));
    }
    output.object(&json!({ "tables": objects }));
    super::changed::note_changed_parts(&args.folder, output);
    Ok(())
}

fn failure(error: ManifestError) -> Failure {
    match &error {
        ManifestError::NotCompacted(folder) => Failure::usage(&error).advise(format!(
            "compact it first: `brunt lake compact {}`",
            folder.display()
        )),
        ManifestError::Delta(DeltaError::Io { .. }) => Failure::failed(&error)
            .advise("run it again: it also completes the logs of the remaining tables"),
        ManifestError::Trace(_) | ManifestError::Lake(_) | ManifestError::Delta(_) => {
            Failure::usage(&error)
        }
    }
}
