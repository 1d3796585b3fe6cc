//! Disk space reserved in case the disk becomes full: it is released so that the rows in memory and the last
//! `summary.json` can still be written.
//!
//! The rule: the space is reserved before the first run, released in steps, and gone at the end.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use brunt_core::random::Random;

/// Reserved for the incomplete parts of all tables; the parts of `requests` are the largest, at about 2 MB.
const TABLES_BYTES: usize = 4 << 20;
/// Reserved for `summary.json`.
const SUMMARY_BYTES: usize = 1 << 20;

/// Two placeholder files.
pub struct Room {
    /// The files that are left; the last one is released first.
    files: Vec<PathBuf>,
}

impl Room {
    /// Reserves space in `folder`.
    ///
    /// # Errors
    /// There is not enough space, or the folder cannot be written to.
    pub fn take(folder: &Path) -> io::Result<Room> {
        let mut room = Room { files: Vec::new() };
        for (name, bytes) in [
            ("room-for-summary", SUMMARY_BYTES),
            ("room-for-tables", TABLES_BYTES),
        ] {
            let path = folder.join(format!("{name}.reserved"));
            room.files.push(path.clone());
            // Random bytes, because a compressing file system would store zeros without using space.
            let mut content = vec![0; bytes];
            Random::new(1).fill(&mut content);
            File::create(&path)
                .and_then(|mut file| file.write_all(&content).and_then(|()| file.sync_data()))
                .map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })?;
        }
        Ok(room)
    }

    /// Releases the next part: first the space for the tables, then that for the summary.
    pub fn give_back(&mut self) {
        if let Some(path) = self.files.pop() {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        while !self.files.is_empty() {
            self.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The space is actually allocated, is released in two steps, and leaves nothing behind.
    #[test]
    fn room_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let taken = || -> u64 {
            let entries = std::fs::read_dir(folder.path()).unwrap();
            entries
                .map(|entry| entry.unwrap().metadata().unwrap().len())
                .sum()
        };
        let mut room = Room::take(folder.path()).unwrap();
        assert_eq!(taken(), (TABLES_BYTES + SUMMARY_BYTES) as u64);
        room.give_back();
        assert_eq!(taken(), SUMMARY_BYTES as u64);
        drop(room);
        assert_eq!(taken(), 0);
    }
}
