//! A request in a session: its state and its current message. Used by the other files of `session`.
//!
//! A request is processed object by object. Writing to an object that the disk lacks takes two messages: create it with
//! the data, then record it in the inode. Dropping an object takes a record message, then probes until the servers have
//! removed the object: they do so later, and would also remove data written to it in the meantime.
//!
//! The rule: only [`SheepdogTask::plan`] decides what comes next, based on what is complete and what the disk currently
//! has, so that it can be called again after a loss.

use brunt_block::{Buf, DeviceError, Op};
use brunt_core::Nanos;
use brunt_wire::sheepdog::header::{SheepdogSubject, flag};
use brunt_wire::sheepdog::inode::DATA_VDI_ID_OFFSET;
use brunt_wire::sheepdog::{SheepdogOpcode, SheepdogRequest, data_object, inode_object};

use crate::sheepdog::objects::{SheepdogDrop, SheepdogObjects, SheepdogWriter};

/// Bytes read by a probe.
pub(super) const PROBE_BYTES: u32 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskState {
    Free,
    /// Ready to be sent.
    Waiting,
    /// Waits for another task's claim.
    Parked,
    /// Must not be sent before this time.
    Pausing(Nanos),
    Sent,
    Answered(Result<(), DeviceError>),
}

/// The caller's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallerRequest {
    pub op: Op,
    pub offset: u64,
    pub len: u64,
    pub force_unit_access: bool,
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Read,
    Write,
    /// Creates the object with the data, as a copy of VDI `from`'s object unless `from` is 0.
    Create {
        from: u32,
    },
    /// Records this VDI in the inode as the object's owner.
    Record(u32),
    /// Checks whether the object is gone.
    Probe,
    Flush,
}

/// The part of a request within one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub step: Step,
    /// The object's index in the disk.
    pub index: u32,
    /// The disk's VDI when this was planned.
    pub vdi: u32,
    /// The VDI that owns the object.
    pub owner: u32,
    /// Offset in bytes from the object's start.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

impl Piece {
    /// The request for this part's step.
    #[inline]
    pub(super) fn request(&self, id: u32, cache_flag: u16, copies: u8) -> SheepdogRequest {
        let data = data_object(self.owner, self.index);
        let inode = inode_object(self.vdi);
        let mut cow_object = 0;
        let (opcode, flags, object, offset, data_len) = match self.step {
            Step::Read => (SheepdogOpcode::ReadObj, 0, data, self.offset, self.len),
            Step::Write => (
                SheepdogOpcode::WriteObj,
                flag::WRITE,
                data,
                self.offset,
                self.len,
            ),
            Step::Create { from } => {
                let mut flags = flag::WRITE;
                if from != 0 {
                    flags |= flag::COW;
                    cow_object = data_object(from, self.index);
                }
                let opcode = SheepdogOpcode::CreateAndWriteObj;
                (opcode, flags, data, self.offset, self.len)
            }
            Step::Record(_) => {
                let offset = DATA_VDI_ID_OFFSET + 4 * self.index;
                (SheepdogOpcode::WriteObj, flag::WRITE, inode, offset, 4)
            }
            Step::Probe => (SheepdogOpcode::ReadObj, 0, data, 0, PROBE_BYTES),
            Step::Flush => (SheepdogOpcode::FlushVdi, 0, inode, 0, 0),
        };
        SheepdogRequest {
            opcode,
            flags: flags | cache_flag,
            id,
            data_len,
            subject: SheepdogSubject::Object {
                object,
                cow_object,
                copies,
                offset,
            },
        }
    }
}

/// An object that only this task may create or drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub index: u32,
    pub vdi: u32,
    /// Whether the inode no longer refers to it, so that only its removal is outstanding.
    pub probing: bool,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Send(Piece),
    /// Another task is creating or dropping the object.
    Park,
    Done,
}

#[derive(Debug)]
pub(super) struct SheepdogTask {
    pub state: TaskState,
    pub tag: u64,
    pub ask: CallerRequest,
    /// Bytes completed.
    pub done_bytes: u64,
    pub flushed: bool,
    pub piece: Piece,
    pub claim: Option<Claim>,
    pub buf: Buf,
    /// The id of the last message sent.
    pub id: u32,
    /// Number of times that it was sent.
    pub tries: u32,
    /// Order of submission.
    pub sequence: u64,
    pub deadline: Nanos,
    /// When to give up on a message that may be sent again later.
    pub patience_end: Nanos,
    /// Whether it timed out, so that the connection is dropped.
    pub late: bool,
}

impl SheepdogTask {
    pub fn new() -> SheepdogTask {
        SheepdogTask {
            state: TaskState::Free,
            tag: 0,
            ask: CallerRequest {
                op: Op::Flush,
                offset: 0,
                len: 0,
                force_unit_access: false,
            },
            done_bytes: 0,
            flushed: false,
            piece: Piece {
                step: Step::Flush,
                index: 0,
                vdi: 0,
                owner: 0,
                offset: 0,
                len: 0,
            },
            claim: None,
            buf: Buf::empty(),
            id: 0,
            tries: 0,
            sequence: 0,
            deadline: Nanos::MAX,
            patience_end: Nanos::MAX,
            late: false,
        }
    }

    /// Plans the next step. Reads of unallocated objects are completed here.
    pub fn plan(&mut self, objects: &SheepdogObjects, object_shift: u8, cache: bool) -> Next {
        if let Some(claim) = self.claim
            && claim.vdi != objects.vdi()
        {
            // A snapshot was taken, to which the claimed object now belongs.
            self.give_back(objects);
        }
        while self.ask.op != Op::Flush && self.done_bytes < self.ask.len {
            let piece = self.piece_at(object_shift);
            let next = match self.ask.op {
                Op::Read => self.read(objects, piece),
                Op::Unmap if u64::from(piece.len) == 1 << object_shift => {
                    self.drop_object(objects, piece)
                }
                // Part of a missing object already reads as zeros.
                Op::Unmap if objects.reader(piece.index).0 == 0 && self.claim.is_none() => None,
                _ => Some(self.write(objects, piece)),
            };
            match next {
                Some(next) => return next,
                None => {
                    self.give_back(objects);
                    self.done_bytes += u64::from(piece.len);
                }
            }
        }
        let wanted =
            self.ask.op == Op::Flush || (self.ask.force_unit_access && self.ask.op != Op::Read);
        if wanted && cache && !self.flushed {
            let vdi = objects.vdi();
            return Next::Send(Piece {
                step: Step::Flush,
                index: 0,
                vdi,
                owner: vdi,
                offset: 0,
                len: 0,
            });
        }
        Next::Done
    }

    /// The next part of the request, within one object.
    fn piece_at(&self, object_shift: u8) -> Piece {
        let at = self.ask.offset + self.done_bytes;
        let (index, offset) = (at >> object_shift, at & ((1 << object_shift) - 1));
        let len = (self.ask.len - self.done_bytes).min((1 << object_shift) - offset);
        // An object has at most 2 GiB, and a disk has at most 2^20 objects.
        let (index, offset, len) = (index as u32, offset as u32, len as u32);
        Piece {
            step: Step::Read,
            index,
            vdi: 0,
            owner: 0,
            offset,
            len,
        }
    }

    fn read(&mut self, objects: &SheepdogObjects, piece: Piece) -> Option<Next> {
        let (owner, vdi) = objects.reader(piece.index);
        if owner == 0 {
            let start = self.done_bytes as usize;
            self.buf[start..start + piece.len as usize].fill(0);
            return None;
        }
        Some(Next::Send(Piece {
            step: Step::Read,
            vdi,
            owner,
            ..piece
        }))
    }

    fn write(&mut self, objects: &SheepdogObjects, piece: Piece) -> Next {
        let (way, vdi) = objects.writer(piece.index, self.claim.is_some());
        let step = match way {
            SheepdogWriter::Wait => return Next::Park,
            SheepdogWriter::InPlace => Step::Write,
            SheepdogWriter::Create { from } => {
                self.claim = Some(Claim {
                    index: piece.index,
                    vdi,
                    probing: false,
                });
                Step::Create { from }
            }
        };
        Next::Send(Piece {
            step,
            vdi,
            owner: vdi,
            ..piece
        })
    }

    fn drop_object(&mut self, objects: &SheepdogObjects, piece: Piece) -> Option<Next> {
        if let Some(Claim {
            probing: true, vdi, ..
        }) = self.claim
        {
            return Some(Next::Send(Piece {
                step: Step::Probe,
                vdi,
                owner: vdi,
                ..piece
            }));
        }
        let (way, vdi) = objects.dropper(piece.index, self.claim.is_some());
        match way {
            SheepdogDrop::Hole => None,
            SheepdogDrop::Wait => Some(Next::Park),
            SheepdogDrop::Of(owner) => {
                self.claim = Some(Claim {
                    index: piece.index,
                    vdi,
                    probing: false,
                });
                Some(Next::Send(Piece {
                    step: Step::Record(0),
                    vdi,
                    owner,
                    ..piece
                }))
            }
        }
    }

    /// Releases the claim, if any.
    pub fn give_back(&mut self, objects: &SheepdogObjects) {
        if let Some(claim) = self.claim.take() {
            objects.release(claim.index);
        }
    }
}
