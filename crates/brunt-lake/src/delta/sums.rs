//! Checksums of a log's files, in a file next to them. Delta Lake has none, and a log whose last version was lost
//! looks like a log that never had that version.
//!
//! The rule: the checksum file is written after the files that it lists. An unlisted version or checkpoint isn't
//! damage: a process may have been killed between the two writes.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::log::{names_in, version_of};
use super::{DeltaError, checkpoint, io_error};
use crate::catalog::{append_sum, check_sum};

/// File name of the checksums. Engines ignore unknown names in a log.
pub(super) const NAME: &str = "_brunt_sums.json";

/// Checksums of a log's files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogSums {
    /// XXH3 of versions and checkpoints, by file name.
    pub files: BTreeMap<String, u64>,
}

impl LogSums {
    /// Reads the checksums from a log's folder; `None` if there are none.
    pub fn read(folder: &Path) -> Result<Option<LogSums>, DeltaError> {
        let path = folder.join(NAME);
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(io_error(&path))?,
        };
        let damaged = |what: String| DeltaError::Damaged {
            path: path.clone(),
            what,
        };
        check_sum(&bytes, true).map_err(|error| damaged(error.to_string()))?;
        let sums = serde_json::from_slice(&bytes);
        sums.map(Some).map_err(|error| damaged(error.to_string()))
    }

    /// Whether a file's bytes match its checksum; `None` if its checksum is unknown.
    pub fn is_same(&self, name: &str, bytes: &[u8]) -> Option<bool> {
        let sum = self.files.get(name)?;
        Some(*sum == XxHash3_64::oneshot(bytes))
    }

    /// Adds unlisted files; `true` if there were any.
    fn add(&mut self, folder: &Path) -> Result<bool, DeltaError> {
        let mut is_changed = false;
        for name in names_in(folder)? {
            let is_summed = version_of(&name).or(checkpoint::version_of(&name));
            if is_summed.is_none() || self.files.contains_key(&name) {
                continue;
            }
            let path = folder.join(&name);
            let bytes = std::fs::read(&path).map_err(io_error(&path))?;
            self.files.insert(name, XxHash3_64::oneshot(&bytes));
            is_changed = true;
        }
        Ok(is_changed)
    }

    fn write(&self, folder: &Path) -> Result<(), DeltaError> {
        let mut bytes = serde_json::to_vec(self).expect("checksums are plain data");
        append_sum(&mut bytes);
        checkpoint::replace(&folder.join(NAME), &bytes)
    }
}

/// Adds the checksums of new versions and checkpoints. A concurrent process may replace the file with one that lists
/// fewer, so the file is read again after writing.
pub(super) fn renew(folder: &Path) -> Result<(), DeltaError> {
    loop {
        let mut sums = LogSums::read(folder)?.unwrap_or_default();
        if !sums.add(folder)? {
            return Ok(());
        }
        sums.write(folder)?;
    }
}

/// Rewrites the checksums from the current files.
pub(super) fn write_all(folder: &Path) -> Result<(), DeltaError> {
    let mut sums = LogSums::default();
    sums.add(folder)?;
    sums.write(folder)
}
