//! Finds the tables that a statement names, with their parts in a folder. The rule: an engine receives only parts
//! that this program could read itself, that is, parts in its format version, with its columns and a complete footer.
//! Unless they are too large to check, their checksums also match.

use std::path::Path;

use brunt_capture::trace::{ReplayError, is_trace, notes, tables};
use brunt_capture::windows::tables::{self as window_tables, is_windows};
use brunt_core::units::format_size;
use brunt_lake::integer_times::twin_name;
use brunt_lake::reader::{IntactParts, IntactTable, intact_parts};
use brunt_lake::{Column, ColumnKind, LakeError, LakeSnapshot, Table};
use brunt_result::tables::TABLES;

use crate::cli::Failure;

/// Why a folder cannot be queried.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The folder contains no tables.
    #[error("{0} contains neither a trace nor results")]
    Neither(String),
    /// The folder contains results, but the query is for a trace.
    #[error("{0} contains results, but this analysis is for traces")]
    NoTrace(String),
    /// The folder contains tables of windows, but the query is for a trace.
    #[error("{0} contains reports on windows, but this analysis is for traces")]
    WindowsOnly(String),
    /// The trace has another format version, or parts in several versions.
    #[error(transparent)]
    Trace(#[from] ReplayError),
    /// A table cannot be read.
    #[error(transparent)]
    Lake(#[from] LakeError),
}

impl FolderError {
    /// Converts the error to a failure with advice.
    pub fn into_failure(self) -> Failure {
        let advice = match &self {
            FolderError::Neither(_) => {
                Some("`brunt capture --out` writes a trace, `brunt run` results")
            }
            FolderError::NoTrace(_) => {
                Some("give a SELECT statement; docs/results.md describes the tables")
            }
            FolderError::WindowsOnly(_) => Some(
                "`brunt sql --list` has analyses for windows: over_windows, days, whole and others",
            ),
            FolderError::Lake(LakeError::Malformed { .. }) => Some(
                "read it with the build of Brunt that wrote it: version 4 of traces is still a draft",
            ),
            FolderError::Trace(_) | FolderError::Lake(_) => None,
        };
        let failure = Failure::usage(self);
        advice.into_iter().fold(failure, Failure::advise)
    }
}

/// A table that a statement names.
pub struct LakeTable {
    /// The table's definition.
    pub table: &'static Table,
    /// The table's parts as absolute paths or URLs, grouped by how engines read them.
    pub groups: Vec<IntactParts>,
    /// The total size of the parts in bytes.
    pub bytes: u64,
}

impl LakeTable {
    /// The table's columns, in order, as stored in a group of parts.
    pub fn columns<'a>(
        &self,
        group: &'a IntactParts,
    ) -> impl Iterator<Item = LakeColumn> + use<'a> {
        self.table.columns.iter().map(|column| LakeColumn {
            name: column.name,
            is_time: column.kind == ColumnKind::Time,
            absent: group
                .in_none
                .contains(&column.name)
                .then(|| no_value(column)),
        })
    }

    /// A SELECT statement for the table's columns that returns no rows, in SQL that all engines understand.
    pub fn no_rows(&self) -> String {
        let times = self
            .table
            .columns
            .iter()
            .filter(|column| column.kind == ColumnKind::Time);
        let twins =
            times.map(|column| format!("CAST(NULL AS BIGINT) AS {}", twin_name(column.name)));
        let columns = self
            .table
            .columns
            .iter()
            .map(no_value)
            .chain(twins)
            .collect::<Vec<_>>();
        format!("SELECT {} WHERE 1 = 0", columns.join(", "))
    }

    /// The number of parts of the table.
    pub fn parts(&self) -> usize {
        self.groups.iter().map(|group| group.files.len()).sum()
    }
}

/// A column of a table in a group of parts.
pub struct LakeColumn {
    /// The column's name.
    pub name: &'static str,
    /// Whether the column contains times, which statements can also use as integers.
    pub is_time: bool,
    /// A NULL expression to use instead of the column, if all parts were written by an older program that lacks it.
    pub absent: Option<String>,
}

/// A NULL column in SQL that all engines understand.
fn no_value(column: &Column) -> String {
    let kind = match column.kind {
        ColumnKind::Int => "BIGINT",
        ColumnKind::Time => "TIMESTAMP",
        ColumnKind::Float => "DOUBLE",
        ColumnKind::Bool => "BOOLEAN",
        ColumnKind::Text => "STRING",
        ColumnKind::Bytes => "BINARY",
    };
    format!("CAST(NULL AS {kind}) AS {}", column.name)
}

/// The tables of a query.
pub struct Lake {
    /// The tables that the statement names.
    pub tables: Vec<LakeTable>,
    /// Notes on problems in the folder.
    pub notes: Vec<String>,
    /// Statement that gives DuckDB access to an object store, if the parts are in one.
    pub secret: Option<String>,
    /// Prevents parts from being moved or deleted until the engine has answered.
    _snapshot: Option<LakeSnapshot>,
}

impl Lake {
    /// A lake without any tables.
    pub fn nothing() -> Lake {
        Lake {
            tables: Vec::new(),
            notes: Vec::new(),
            secret: None,
            _snapshot: None,
        }
    }

    /// Opens the requested tables in `folder`.
    pub fn open(folder: &Path, wanted: &WantedTables<'_>) -> Result<Lake, FolderError> {
        let mut damaged = Vec::new();
        let folder = folder.canonicalize().map_err(|source| LakeError::Io {
            path: folder.into(),
            source,
        })?;
        let snapshot = LakeSnapshot::open_whole(&folder)?;
        let tables = if is_trace(&folder) {
            damaged = notes(&folder)?.damaged;
            tables::of_lake()
        } else if is_windows(&folder) {
            if wanted.is_of_traces {
                return Err(FolderError::WindowsOnly(folder.display().to_string()));
            }
            window_tables::TABLES.to_vec()
        } else if has_results(&snapshot)? {
            if wanted.is_of_traces {
                return Err(FolderError::NoTrace(folder.display().to_string()));
            }
            TABLES.to_vec()
        } else {
            return Err(FolderError::Neither(folder.display().to_string()));
        };
        let mut lake = Lake {
            _snapshot: Some(snapshot.clone()),
            ..Lake::nothing()
        };
        let tables: Vec<_> = tables
            .into_iter()
            .filter(|table| wanted.has(table.name))
            .collect();
        let bytes = snapshot.bytes(tables.iter().copied())?;
        let verify = wanted.verify_up_to.is_some_and(|most| bytes <= most);
        for table in tables {
            let IntactTable {
                groups,
                damaged: unsound,
            } = intact_parts(&snapshot, table, verify)?;
            damaged.extend(unsound);
            let files = groups.iter().flat_map(|group| &group.files);
            let bytes = files
                .filter_map(|part| part.metadata().ok())
                .map(|about| about.len())
                .sum();
            lake.tables.push(LakeTable {
                table,
                groups,
                bytes,
            });
        }
        lake.notes = damaged
            .iter()
            .map(|error| format!("left out: {error}"))
            .collect();
        if wanted.verify_up_to.is_some() && !verify {
            lake.notes.push(format!(
                "{} of tables are not compared with their checksums first; --verify does that",
                format_size(bytes)
            ));
        }
        Ok(lake)
    }

    /// The number of parts in all tables.
    pub fn parts(&self) -> usize {
        self.tables.iter().map(LakeTable::parts).sum()
    }

    /// The size of all parts in bytes.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes).sum()
    }
}

fn has_results(snapshot: &LakeSnapshot) -> Result<bool, LakeError> {
    for table in TABLES {
        if !snapshot.parts(table)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Which tables to open.
pub struct WantedTables<'a> {
    /// The statement whose tables are requested; `None` for all tables.
    pub statement: Option<&'a str>,
    /// Whether the query is for traces; results can't answer it.
    pub is_of_traces: bool,
    /// Compare the tables with their checksums if they have at most this many bytes, because engines don't. `None`:
    /// never compare.
    pub verify_up_to: Option<u64>,
}

impl WantedTables<'_> {
    /// Whether this table is requested.
    pub fn has(&self, table: &str) -> bool {
        self.statement
            .is_none_or(|statement| names(statement, table))
    }
}

/// Whether a statement contains this name anywhere: opening a table that isn't needed only costs reading its footers.
fn names(statement: &str, name: &str) -> bool {
    let words = statement.split(|c: char| !c.is_alphanumeric() && c != '_');
    words
        .into_iter()
        .any(|word| word.eq_ignore_ascii_case(name))
}

/// Escapes a path so that no engine interprets it as a pattern: in brackets, each character matches itself.
pub fn plain(path: &Path) -> String {
    let mut plain = String::new();
    for sign in path.to_string_lossy().chars() {
        match sign {
            '*' | '?' | '[' | '{' => plain.extend(['[', sign, ']']),
            sign => plain.push(sign),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name must match a whole word, regardless of case.
    #[test]
    fn a_statement_names_a_table_only_as_a_whole_word() {
        let statement = "WITH a AS (SELECT * FROM Operations) SELECT x.flow FROM a, rpc_calls AS x";
        assert!(names(statement, "operations") && names(statement, "rpc_calls"));
        assert!(!names(statement, "flows") && !names(statement, "calls"));
    }

    #[test]
    fn an_escaped_path_contains_no_pattern() {
        assert_eq!(plain(Path::new("/a/x[1]*.parquet")), "/a/x[[]1][*].parquet");
    }
}
