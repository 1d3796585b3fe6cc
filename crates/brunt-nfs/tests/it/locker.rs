//! A client that makes lock operations on a file, one at a time.

use std::collections::VecDeque;

use brunt_block::turn::turn;
use brunt_block::{Backend, Buf, Device, Op, Request, Ring, RingConfig};
use brunt_nfs::NfsFolder;
use brunt_nfs::device_errors::{NfsRefusal, from_error};
use brunt_nfs::operations::{NfsAsk, NfsNames, NfsPlan};
use brunt_nfs::v41::{NfsLock, NfsLockOp, NfsRange};
use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::Args;

pub const LOCK: u64 = 0;
pub const TEST: u64 = 1;
pub const UNLOCK: u64 = 2;

/// The digits of a request's offset are the operation, the lock type and the owner.
#[derive(Clone, Debug)]
struct Locks(Vec<u8>);

impl NfsPlan for Locks {
    fn call<'a>(&'a self, _ask: NfsAsk, _names: &'a mut NfsNames) -> Args<'a> {
        unreachable!("all requests are on locks")
    }

    fn lock(&self, ask: NfsAsk) -> Option<NfsLock<'_>> {
        let ops = [NfsLockOp::Lock, NfsLockOp::Test, NfsLockOp::Unlock];
        Some(NfsLock {
            op: ops[(ask.offset / 100) as usize],
            file: FileHandle(&self.0),
            range: NfsRange {
                kind: (ask.offset / 10 % 10) as u32,
                offset: 1000,
                length: 200,
            },
            owner: (ask.offset % 10) as u32,
        })
    }
}

pub struct Locker {
    // Declared before the ring, so that it is dropped first.
    device: Box<dyn Device>,
    ring: Ring,
}

impl Locker {
    /// A client for the file with this handle.
    pub fn new(backend: &dyn Backend, handle: &[u8]) -> Locker {
        let folder: &NfsFolder = backend.concrete().unwrap().downcast_ref().unwrap();
        let ring = Ring::new(RingConfig::default()).unwrap();
        let device = folder.operations(Locks(handle.to_vec()), &ring, 2).unwrap();
        Locker { device, ring }
    }

    /// The status of an operation by this owner, with a lock of this type.
    pub fn ask(&mut self, op: u64, kind: u64, owner: u64) -> u32 {
        let request = Request {
            tag: 1,
            op: Op::Flush,
            offset: op * 100 + kind * 10 + owner,
            len: 0,
            buf: Buf::empty(),
            force_unit_access: false,
        };
        let (mut batch, mut done) = (VecDeque::from([request]), Vec::new());
        while done.is_empty() {
            turn(&self.ring, &mut *self.device, &mut batch, &mut done).unwrap();
        }
        match done[0].result {
            Ok(()) => 0,
            Err(error) => match from_error(&error) {
                Some(NfsRefusal::Lock(_, status)) => status.0,
                other => panic!("{other:?}: {error}"),
            },
        }
    }
}
