//! Metadata operations on a mounted file system, by system calls with full paths, like mdtest's.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use brunt_block::DeviceError;

use super::place::{MetadataPlace, NameErrorKind, PlaceError, PlaceResult};

/// A mounted file system.
#[derive(Debug)]
pub(super) struct Mounted<'a> {
    directory: &'a Path,
    calls: u64,
}

impl Mounted<'_> {
    pub(super) fn new(directory: &Path) -> Mounted<'_> {
        Mounted {
            directory,
            calls: 0,
        }
    }

    fn made<T>(&mut self, calls: u64, result: io::Result<T>) -> PlaceResult<T> {
        self.calls += calls;
        result.map_err(|error| PlaceError::Failed {
            kind: match error.kind() {
                ErrorKind::NotFound => NameErrorKind::Missing,
                ErrorKind::AlreadyExists => NameErrorKind::Exists,
                ErrorKind::DirectoryNotEmpty => NameErrorKind::NotEmpty,
                _ => NameErrorKind::Other,
            },
            // An error without an errno comes from the standard library, for example when a write accepts no bytes.
            error: DeviceError::Os(error.raw_os_error().unwrap_or(libc::EIO)),
        })
    }
}

/// Reads until the buffer is full or the file ends; returns the bytes read and the number of calls.
fn read_all(file: &mut File, buf: &mut [u8]) -> io::Result<(u64, u64)> {
    let (mut done, mut calls) = (0, 0);
    while done < buf.len() {
        calls += 1;
        match file.read(&mut buf[done..])? {
            0 => break,
            count => done += count,
        }
    }
    Ok((done as u64, calls))
}

impl MetadataPlace for Mounted<'_> {
    type Directory = PathBuf;
    type File = File;

    fn top(&mut self) -> PlaceResult<PathBuf> {
        Ok(self.directory.to_path_buf())
    }

    fn open(&mut self, at: &PathBuf, name: &str) -> PlaceResult<PathBuf> {
        let path = at.join(name);
        let found = fs::metadata(&path);
        self.made(1, found).map(|_| path)
    }

    fn make_directory(&mut self, at: &PathBuf, name: &str) -> PlaceResult<PathBuf> {
        let path = at.join(name);
        let made = fs::create_dir(&path);
        self.made(1, made).map(|()| path)
    }

    fn remove_directory(&mut self, at: &PathBuf, name: &str) -> PlaceResult<()> {
        let removed = fs::remove_dir(at.join(name));
        self.made(1, removed)
    }

    fn create(&mut self, at: &PathBuf, name: &str) -> PlaceResult<File> {
        let mut how = OpenOptions::new();
        let created = how.write(true).create_new(true).open(at.join(name));
        self.made(1, created)
    }

    fn open_file(&mut self, at: &PathBuf, name: &str) -> PlaceResult<File> {
        let opened = OpenOptions::new().write(true).open(at.join(name));
        self.made(1, opened)
    }

    fn finish(&mut self, file: File, offset: u64, data: &[u8], fsync: bool) -> PlaceResult<()> {
        if !data.is_empty() {
            let written = file.write_all_at(data, offset);
            self.made(1, written)?;
        }
        if fsync {
            let synced = file.sync_all();
            self.made(1, synced)?;
        }
        // The error of close(2) is lost here; a file system that delays errors returns them from fsync(2), too.
        drop(file);
        self.calls += 1;
        Ok(())
    }

    fn stat(&mut self, at: &PathBuf, name: &str) -> PlaceResult<()> {
        let found = fs::symlink_metadata(at.join(name));
        self.made(1, found).map(|_| ())
    }

    fn read(&mut self, at: &PathBuf, name: &str, buf: &mut [u8]) -> PlaceResult<u64> {
        let read = File::open(at.join(name)).and_then(|mut file| read_all(&mut file, buf));
        let calls = read.as_ref().map_or(0, |(_, calls)| *calls);
        // Plus two calls for open and close.
        self.made(calls + 2, read).map(|(bytes, _)| bytes)
    }

    fn remove(&mut self, at: &PathBuf, name: &str) -> PlaceResult<()> {
        let removed = fs::remove_file(at.join(name));
        self.made(1, removed)
    }

    fn list(&mut self, at: &PathBuf) -> PlaceResult<u64> {
        let listed = fs::read_dir(at).and_then(|entries| {
            let mut count = 0;
            for entry in entries {
                entry?;
                count += 1;
            }
            Ok(count)
        });
        // open, close and at least two getdents: the last returns nothing.
        self.made(4, listed)
    }

    fn take_calls(&mut self) -> u64 {
        std::mem::take(&mut self.calls)
    }
}
