//! Stores persistent reservations across power loss (APTPL, SPC-4, 5.12.5).

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Stores a logical unit's reservations. Called with the unit locked, before the answer to the command that changed
/// the reservations: once `save` returns, the text is on stable storage.
pub trait ReservationStore: Send + Sync {
    /// The most recently saved text; empty if there is none.
    ///
    /// # Errors
    /// The storage failed.
    fn load(&self) -> io::Result<String>;

    /// Replaces the text; empty text removes it.
    ///
    /// # Errors
    /// The storage failed; the old text is unchanged.
    fn save(&self, text: &str) -> io::Result<()>;
}

/// A small file next to the LUN's file: written completely, renamed into place, and synced together with its folder.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
}

impl FileStore {
    /// Stores the text at `path`; nothing is created before the first save.
    pub fn new(path: impl Into<PathBuf>) -> FileStore {
        FileStore { path: path.into() }
    }

    fn sync_folder(&self) -> io::Result<()> {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        File::open(folder)?.sync_all()
    }
}

impl ReservationStore for FileStore {
    fn load(&self) -> io::Result<String> {
        match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            other => other,
        }
    }

    fn save(&self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => self.sync_folder(),
            };
        }
        let mut name = self.path.clone().into_os_string();
        name.push(".new");
        let new = PathBuf::from(name);
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        self.sync_folder()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Saved text can be loaded, a second save replaces it, and empty text removes it.
    #[test]
    fn saved_text_can_be_loaded_and_is_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        let store = FileStore::new(folder.join("lun0.pr"));
        assert_eq!(store.load().unwrap(), "");
        for text in ["one", "two"] {
            store.save(text).unwrap();
            assert_eq!(store.load().unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
        store.save("").unwrap();
        store.save("").unwrap();
        assert_eq!(
            (
                store.load().unwrap().as_str(),
                fs::read_dir(folder).unwrap().count()
            ),
            ("", 0)
        );
        assert!(FileStore::new(folder.join("gone/x")).save("text").is_err());
    }
}
