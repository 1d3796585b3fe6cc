//! Metadata operations in a folder of an NFS server, one call at a time, without a kernel mount. Handles of directories
//! are kept, as a kernel keeps them in its cache; items are looked up by name each time.
//!
//! The rule: a call that a broken connection left unanswered counts as failed, and is never repeated: it may have
//! been executed.

use std::io;

use brunt_block::DeviceError;
use brunt_nfs::device_errors::NfsRefusal;
use brunt_nfs::{NfsConnectError, NfsFolder};
use brunt_wire::FileData;
use brunt_wire::nfs::v3::{Args, DirOp, Procedure, ResultBody, StableHow, Status};

use super::place::{MetadataPlace, NameErrorKind, PlaceError, PlaceResult};
use crate::nfs::tree::{NfsTreeError, OwnedHandle, TreeMaker};

/// Size of a reply that lists a directory.
const LIST_BYTES: u32 = 32 << 10;
/// System calls of one NFS call: a send and a receive, each preceded by two that set the socket's time limits.
const SYSTEM_CALLS: u64 = 6;

/// A folder of an NFS server.
pub(super) struct Export<'a> {
    folder: &'a NfsFolder,
    stop: &'a (dyn Fn() -> bool + Sync),
    /// `None` before the first call, and after the connection was lost.
    maker: Option<TreeMaker<'a>>,
    calls: u64,
}

impl<'a> Export<'a> {
    pub(super) fn new(folder: &'a NfsFolder, stop: &'a (dyn Fn() -> bool + Sync)) -> Export<'a> {
        Export {
            folder,
            stop,
            maker: None,
            calls: 0,
        }
    }

    fn call<T>(
        &mut self,
        work: impl FnOnce(&mut TreeMaker<'a>) -> Result<T, NfsTreeError>,
    ) -> PlaceResult<T> {
        self.calls += SYSTEM_CALLS;
        let maker = match &mut self.maker {
            Some(maker) => maker,
            None => match TreeMaker::new(self.folder, self.stop) {
                Ok(maker) => self.maker.insert(maker),
                Err(error) => return Err(PlaceError::Lost(Box::new(error))),
            },
        };
        work(maker).map_err(|error| self.failed(error))
    }

    fn failed(&mut self, error: NfsTreeError) -> PlaceError {
        let error = match error {
            NfsTreeError::Refused {
                procedure, status, ..
            } => {
                return PlaceError::Failed {
                    kind: kind_of(status),
                    error: NfsRefusal::Status(procedure, status).error(),
                };
            }
            NfsTreeError::Stopped => return PlaceError::Stopped,
            NfsTreeError::Server(NfsConnectError::Io(_, _, error)) => match error.kind() {
                io::ErrorKind::TimedOut => DeviceError::TimedOut,
                _ => DeviceError::Gone,
            },
            error => return PlaceError::Lost(Box::new(error)),
        };
        self.maker = None;
        PlaceError::Failed {
            kind: NameErrorKind::Other,
            error,
        }
    }

    fn look_up(&mut self, at: &OwnedHandle, name: &str) -> PlaceResult<(OwnedHandle, bool)> {
        let what = at_name(at, name);
        self.call(|maker| {
            let found = match maker.call(&Args::Lookup { what })? {
                ResultBody::Lookup {
                    object, attributes, ..
                } => OwnedHandle::of(object.0).map(|handle| (handle, attributes.is_some())),
                _ => None,
            };
            found.ok_or_else(|| maker.no_handle(Procedure::Lookup))
        })
    }
}

fn kind_of(status: Status) -> NameErrorKind {
    match status {
        // The handle of a directory that another worker has removed is stale.
        Status::NOENT | Status::STALE => NameErrorKind::Missing,
        Status::EXIST => NameErrorKind::Exists,
        Status::NOTEMPTY => NameErrorKind::NotEmpty,
        _ => NameErrorKind::Other,
    }
}

fn at_name<'a>(at: &'a OwnedHandle, name: &'a str) -> DirOp<'a> {
    DirOp {
        dir: at.as_handle(),
        name: name.as_bytes(),
    }
}

impl MetadataPlace for Export<'_> {
    type Directory = OwnedHandle;
    type File = OwnedHandle;

    fn top(&mut self) -> PlaceResult<OwnedHandle> {
        let folder = self.folder;
        let handle = OwnedHandle::of(&folder.place().handle);
        self.call(|maker| handle.ok_or_else(|| maker.no_handle(Procedure::Lookup)))
    }

    fn open(&mut self, at: &OwnedHandle, name: &str) -> PlaceResult<OwnedHandle> {
        self.look_up(at, name).map(|(handle, _)| handle)
    }

    fn make_directory(&mut self, at: &OwnedHandle, name: &str) -> PlaceResult<OwnedHandle> {
        self.call(|maker| maker.directory(at, name.as_bytes()))
    }

    fn remove_directory(&mut self, at: &OwnedHandle, name: &str) -> PlaceResult<()> {
        let object = at_name(at, name);
        self.call(|maker| maker.call(&Args::Rmdir { object }).map(|_| ()))
    }

    fn create(&mut self, at: &OwnedHandle, name: &str) -> PlaceResult<OwnedHandle> {
        self.call(|maker| maker.file(at, name.as_bytes(), 0))
    }

    fn open_file(&mut self, at: &OwnedHandle, name: &str) -> PlaceResult<OwnedHandle> {
        self.open(at, name)
    }

    fn finish(
        &mut self,
        file: OwnedHandle,
        offset: u64,
        data: &[u8],
        fsync: bool,
    ) -> PlaceResult<()> {
        let step = self.folder.place().write_bytes_max as usize;
        let mut done = 0;
        while done < data.len() {
            let bytes = &data[done..data.len().min(done + step)];
            let count = bytes.len() as u32;
            let write = Args::Write {
                file: file.as_handle(),
                offset: offset + done as u64,
                count,
                stable: StableHow::Unstable,
                data: FileData {
                    at: 0,
                    len: count,
                    bytes,
                },
            };
            done += self.call(|maker| match maker.call(&write)? {
                ResultBody::Write { count: moved, .. } if (1..=count).contains(&moved) => {
                    Ok(moved as usize)
                }
                _ => Err(maker.no_handle(Procedure::Write)),
            })?;
        }
        if fsync {
            let commit = Args::Commit {
                file: file.as_handle(),
                offset: 0,
                count: 0,
            };
            self.call(|maker| maker.call(&commit).map(|_| ()))?;
        }
        Ok(())
    }

    fn stat(&mut self, at: &OwnedHandle, name: &str) -> PlaceResult<()> {
        let (handle, has_attributes) = self.look_up(at, name)?;
        if has_attributes {
            return Ok(());
        }
        // The attributes are optional in the reply (RFC 1813, 3.3.3).
        let object = handle.as_handle();
        self.call(|maker| maker.call(&Args::Getattr { object }).map(|_| ()))
    }

    fn read(&mut self, at: &OwnedHandle, name: &str, buf: &mut [u8]) -> PlaceResult<u64> {
        let (handle, _) = self.look_up(at, name)?;
        let step = self.folder.place().read_bytes_max as usize;
        let mut done = 0;
        while done < buf.len() {
            let count = (buf.len() - done).min(step) as u32;
            let read = Args::Read {
                file: handle.as_handle(),
                offset: done as u64,
                count,
            };
            let rest = &mut buf[done..];
            let (moved, is_end) = self.call(|maker| match maker.call(&read)? {
                ResultBody::Read { data, eof, .. } if data.bytes.len() <= rest.len() => {
                    let len = data.bytes.len();
                    rest[..len].copy_from_slice(data.bytes);
                    Ok((len, eof || len == 0))
                }
                _ => Err(maker.no_handle(Procedure::Read)),
            })?;
            done += moved;
            if is_end {
                break;
            }
        }
        Ok(done as u64)
    }

    fn remove(&mut self, at: &OwnedHandle, name: &str) -> PlaceResult<()> {
        let object = at_name(at, name);
        self.call(|maker| maker.call(&Args::Remove { object }).map(|_| ()))
    }

    fn list(&mut self, at: &OwnedHandle) -> PlaceResult<u64> {
        let (mut cookie, mut cookie_verifier, mut count) = (0, 0, 0);
        loop {
            let readdir = Args::Readdir {
                dir: at.as_handle(),
                cookie,
                cookie_verifier,
                count: LIST_BYTES,
            };
            let (next, verifier, is_end) = self.call(|maker| match maker.call(&readdir)? {
                ResultBody::Readdir {
                    entries,
                    cookie_verifier,
                    eof,
                    ..
                } => {
                    let is_own = |name: &[u8]| !matches!(name, b"." | b"..");
                    count += entries.iter().filter(|entry| is_own(entry.name)).count() as u64;
                    let last = entries.iter().last().map(|entry| entry.cookie);
                    // A reply without entries that isn't the last would be requested forever.
                    Ok((
                        last.unwrap_or(cookie),
                        cookie_verifier,
                        eof || last.is_none(),
                    ))
                }
                _ => Err(maker.no_handle(Procedure::Readdir)),
            })?;
            if is_end {
                return Ok(count);
            }
            (cookie, cookie_verifier) = (next, verifier);
        }
    }

    fn take_calls(&mut self) -> u64 {
        std::mem::take(&mut self.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_the_error_that_a_local_file_system_would_return() {
        for (status, expected) in [
            (Status::NOENT, NameErrorKind::Missing),
            (Status::STALE, NameErrorKind::Missing),
            (Status::EXIST, NameErrorKind::Exists),
            (Status::NOTEMPTY, NameErrorKind::NotEmpty),
            (Status::IO, NameErrorKind::Other),
        ] {
            assert_eq!(kind_of(status), expected, "{:?}", status.name());
        }
    }
}
