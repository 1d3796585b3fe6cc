//! One request in a session: its state, and which message of it is under way. Used by the other files of `session`.
//!
//! A request goes object by object. Writing to an object that the disk lacks takes two messages: create it with the data, then
//! record it in the inode. Dropping one takes the record and then probes, until the servers have removed the object: they
//! do it later, and would remove as well what was written to it meanwhile.
//!
//! The rule: [`SheepdogTask::plan`] alone decides what comes next, from what was done and what the disk has now, so that it
//! can be asked again after a loss.

use brunt_block::{Buf, DeviceError, Op};
use brunt_core::Nanos;

use crate::sheepdog::objects::{SheepdogDrop, SheepdogObjects, SheepdogWriter};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskState {
    Free,
    /// To be sent.
    Waiting,
    /// For somebody else's claim.
    Parked,
    /// To be sent, but not before this time.
    Pausing(Nanos),
    Sent,
    Answered(Result<(), DeviceError>),
}

/// What a caller asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
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
    /// Create the object with the data, as a copy of that of another VDI if this is not 0.
    Create {
        from: u32,
    },
    /// Have the inode name this VDI for the object.
    Record(u32),
    /// See whether the object is gone.
    Probe,
    Flush,
}

/// A part of a request that lies in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub step: Step,
    /// The object's place in the disk.
    pub index: u32,
    /// The disk when this was planned.
    pub vdi: u32,
    /// Whose object it is.
    pub owner: u32,
    /// In bytes from the object's start.
    pub offset: u32,
    /// In bytes.
    pub len: u32,
}

/// An object that the task alone may create or drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub index: u32,
    pub vdi: u32,
    /// The inode names it no more: it only has to go.
    pub probing: bool,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Send(Piece),
    /// Somebody else makes or drops the object.
    Park,
    Done,
}

#[derive(Debug)]
pub(super) struct SheepdogTask {
    pub state: TaskState,
    pub tag: u64,
    pub ask: Ask,
    /// Bytes that are done.
    pub done_bytes: u64,
    pub flushed: bool,
    pub piece: Piece,
    pub claim: Option<Claim>,
    pub buf: Buf,
    /// Of the message that was sent last.
    pub id: u32,
    /// How often it was sent.
    pub tries: u32,
    /// Order of submission.
    pub sequence: u64,
    pub deadline: Nanos,
    /// When a message that may be sent again later is given up.
    pub patience_end: Nanos,
    /// Not answered in time: the connection is given up for it.
    pub late: bool,
}

impl SheepdogTask {
    pub fn new() -> SheepdogTask {
        SheepdogTask {
            state: TaskState::Free,
            tag: 0,
            ask: Ask {
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

    /// What comes next. Reads of what nobody wrote are done here.
    pub fn plan(&mut self, objects: &SheepdogObjects, object_shift: u8, cache: bool) -> Next {
        if let Some(claim) = self.claim
            && claim.vdi != objects.vdi()
        {
            // A snapshot was taken: what was claimed belongs to it now.
            self.give_back(objects);
        }
        while self.ask.op != Op::Flush && self.done_bytes < self.ask.len {
            let piece = self.piece_at(object_shift);
            let next = match self.ask.op {
                Op::Read => self.read(objects, piece),
                Op::Unmap if u64::from(piece.len) == 1 << object_shift => {
                    self.drop_object(objects, piece)
                }
                // A part of an object that is not there is zeros already.
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

    /// The part of the request that is next, within one object.
    fn piece_at(&self, object_shift: u8) -> Piece {
        let at = self.ask.offset + self.done_bytes;
        let (index, offset) = (at >> object_shift, at & ((1 << object_shift) - 1));
        let len = (self.ask.len - self.done_bytes).min((1 << object_shift) - offset);
        // An object has at most 2 GiB, and a disk 2^20 of them.
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

    /// Ends the claim, if there is one.
    pub fn give_back(&mut self, objects: &SheepdogObjects) {
        if let Some(claim) = self.claim.take() {
            objects.release(claim.index);
        }
    }
}
