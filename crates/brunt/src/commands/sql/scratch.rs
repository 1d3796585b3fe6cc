//! A folder for the temporary files of one query: its script, its answer, and the notes from an object store. The
//! folder is deleted with the query.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::cli::Failure;

/// Number of names to try: killed processes may have left their folders behind.
const NAMES_MAX: u32 = 1000;

/// The folder, in $TMPDIR or /tmp. Other users can't read it.
pub struct SqlScratch(PathBuf);

impl SqlScratch {
    pub fn make() -> Result<SqlScratch, Failure> {
        let parent = std::env::temp_dir();
        let failed = |error: io::Error| Failure::failed(format!("{}: {error}", parent.display()));
        // The path is absolute, for engines that change their directory.
        let parent = std::path::absolute(&parent).map_err(failed)?;
        for number in 0..NAMES_MAX {
            let folder = parent.join(format!("brunt-sql-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return Ok(SqlScratch(folder)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(ErrorKind::AlreadyExists.into()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SqlScratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
