//! The calls of the load, and how each is encoded in the offset of a request, from which the device for NFS calls
//! decodes it ([`NfsTarget`]).
//!
//! READ and WRITE have an address in the tree: the file's number above the offset in it. Other
//! calls have a length of 0, so their offset is a code: the operation in the upper bits, then two
//! numbers of 30 bits.
//!
//! The rule: names follow from numbers, and a number is reused only after a billion others.

use std::io::Write;
use std::sync::Arc;

use brunt_block::Op;
use brunt_nfs::calls::write_args;
use brunt_nfs::operations::{NfsAsk, NfsNames, NfsPlan};
use brunt_nfs::v41::{NfsLock, NfsLockOp, NfsRange};
use brunt_wire::nfs::v3::{Args, CreateHow, DirOp, SetAttributes, SetTime, StableHow};

use super::op::{NfsOp, OPS};
use super::settings::{FILE_BYTES_MAX, NfsStable};
use super::tree::{RunFolder, WorkerTree};

/// Bits of a number in a code.
const NUMBER_BITS: u32 = 30;
/// Maximum number of a file or a name.
pub(super) const NUMBER_MAX: u64 = (1 << NUMBER_BITS) - 1;
/// All rights that ACCESS can check (RFC 1813, 3.3.4).
const ACCESS_ALL: u32 = 0x3f;
/// Bytes of names and cookies, and of a whole reply, that READDIRPLUS requests.
const DIR_BYTES: u32 = 8 << 10;
const ENTRIES_BYTES: u32 = 32 << 10;
/// Modes of files and directories.
pub(super) const FILE_MODE: u32 = 0o644;
pub(super) const DIR_MODE: u32 = 0o755;

/// A call without data: its operation, and the numbers of a file, a directory or a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NfsCode {
    pub(super) op: NfsOp,
    pub(super) number: u64,
    /// The new name's number, for RENAME.
    pub(super) other: u64,
}

impl NfsCode {
    pub(super) fn offset(self) -> u64 {
        let NfsCode { op, number, other } = self;
        debug_assert!(number <= NUMBER_MAX && other <= NUMBER_MAX);
        (op as u64) << (2 * NUMBER_BITS) | number << NUMBER_BITS | other
    }

    pub(super) fn of_offset(offset: u64) -> NfsCode {
        NfsCode {
            op: OPS[(offset >> (2 * NUMBER_BITS)) as usize],
            number: offset >> NUMBER_BITS & NUMBER_MAX,
            other: offset & NUMBER_MAX,
        }
    }
}

/// Returns the address of an offset in a file, of at most [`FILE_BYTES_MAX`].
pub(super) fn address(file: u64, offset: u64) -> u64 {
    debug_assert!(offset < FILE_BYTES_MAX);
    (file * FILE_BYTES_MAX) | offset
}

/// Returns the file at an address, and the offset in this file.
pub(super) fn file_at(address: u64) -> (usize, u64) {
    (
        (address / FILE_BYTES_MAX) as usize,
        address % FILE_BYTES_MAX,
    )
}

/// Replaces the content of `out` with the name that has this letter and number: `f17`.
pub(super) fn name(out: &mut Vec<u8>, letter: char, number: u64) {
    out.clear();
    write!(out, "{letter}{number}").expect("a vector takes all bytes");
}

/// The objects to which a worker's calls in a run apply.
#[derive(Clone, Debug)]
pub(super) struct NfsTarget {
    pub(super) tree: Arc<WorkerTree>,
    /// Where names are created and removed.
    pub(super) run: Arc<RunFolder>,
    pub(super) stable: NfsStable,
}

impl NfsTarget {
    /// A call with data.
    fn transfer(&self, ask: NfsAsk) -> Args<'_> {
        let (file, offset) = file_at(ask.offset);
        let (file, count) = (self.tree.files[file].as_handle(), ask.len);
        if ask.op == Op::Read {
            return Args::Read {
                file,
                offset,
                count,
            };
        }
        let stable = match self.stable {
            NfsStable::Unstable => StableHow::Unstable,
            NfsStable::DataSync => StableHow::DataSync,
            NfsStable::FileSync => StableHow::FileSync,
        };
        write_args(file, offset, count, stable)
    }

    /// A call that creates or removes a name.
    fn change<'a>(&'a self, code: NfsCode, names: &'a mut NfsNames) -> Args<'a> {
        let NfsCode { op, number, other } = code;
        let letter = match op {
            NfsOp::Mkdir | NfsOp::Rmdir => 'd',
            _ => 'f',
        };
        name(&mut names.name, letter, number);
        name(&mut names.new_name, letter, other);
        let (files, directories) = (self.run.files.as_handle(), self.run.directories.as_handle());
        let file = DirOp {
            dir: files,
            name: &names.name,
        };
        let directory = DirOp {
            dir: directories,
            name: &names.name,
        };
        let mode = |mode| SetAttributes {
            mode: Some(mode),
            ..SetAttributes::default()
        };
        match op {
            NfsOp::Create => Args::Create {
                place: file,
                how: CreateHow::Guarded(mode(FILE_MODE)),
            },
            NfsOp::Remove => Args::Remove { object: file },
            NfsOp::Rename => Args::Rename {
                from: file,
                to: DirOp {
                    dir: files,
                    name: &names.new_name,
                },
            },
            NfsOp::Mkdir => Args::Mkdir {
                place: directory,
                attributes: mode(DIR_MODE),
            },
            _ => Args::Rmdir { object: directory },
        }
    }
}

impl NfsPlan for NfsTarget {
    fn lock(&self, ask: NfsAsk) -> Option<NfsLock<'_>> {
        if ask.op != Op::Flush {
            return None;
        }
        let code = NfsCode::of_offset(ask.offset);
        let op = match code.op {
            NfsOp::Lock => NfsLockOp::Lock,
            NfsOp::Locku => NfsLockOp::Unlock,
            _ => return None,
        };
        Some(NfsLock {
            op,
            file: self.tree.files[code.number as usize].as_handle(),
            range: NfsRange::WHOLE_FOR_WRITING,
            owner: 0,
        })
    }

    fn call<'a>(&'a self, ask: NfsAsk, names: &'a mut NfsNames) -> Args<'a> {
        if ask.op != Op::Flush {
            return self.transfer(ask);
        }
        let code = NfsCode::of_offset(ask.offset);
        let number = code.number as usize;
        let tree = &self.tree;
        match code.op {
            NfsOp::Getattr => Args::Getattr {
                object: tree.files[number].as_handle(),
            },
            NfsOp::Lookup => {
                let (directory, file) = tree.place_of(number);
                name(&mut names.name, 'f', file as u64);
                Args::Lookup {
                    what: DirOp {
                        dir: tree.directories[directory].as_handle(),
                        name: &names.name,
                    },
                }
            }
            NfsOp::Access => Args::Access {
                object: tree.files[number].as_handle(),
                access: ACCESS_ALL,
            },
            NfsOp::Readlink => Args::Readlink {
                symlink: tree.links[number].as_handle(),
            },
            NfsOp::Commit => Args::Commit {
                file: tree.files[number].as_handle(),
                offset: 0,
                count: 0,
            },
            NfsOp::Readdirplus => Args::Readdirplus {
                dir: tree.directories[number].as_handle(),
                cookie: 0,
                cookie_verifier: 0,
                dir_count: DIR_BYTES,
                max_count: ENTRIES_BYTES,
            },
            NfsOp::Setattr => Args::Setattr {
                object: tree.files[number].as_handle(),
                attributes: SetAttributes {
                    mode: Some(FILE_MODE),
                    mtime: SetTime::ServerTime,
                    ..SetAttributes::default()
                },
                guard: None,
            },
            NfsOp::Create | NfsOp::Remove | NfsOp::Rename | NfsOp::Mkdir | NfsOp::Rmdir => {
                self.change(code, names)
            }
            NfsOp::Read | NfsOp::Write => unreachable!("calls with data have an address"),
            NfsOp::Lock | NfsOp::Locku => unreachable!("lock operations aren't sent as such calls"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_survives_in_an_offset() {
        for (index, op) in OPS.into_iter().enumerate() {
            assert_eq!(op as usize, index);
            for (number, other) in [(0, 0), (1, 2), (NUMBER_MAX, 7), (3, NUMBER_MAX)] {
                let code = NfsCode { op, number, other };
                assert_eq!(NfsCode::of_offset(code.offset()), code);
            }
        }
        // Each operation has its own figures.
        for (index, op) in OPS.iter().enumerate() {
            assert!(OPS[..index].iter().all(|other| other.kind() != op.kind()));
        }
    }
}
