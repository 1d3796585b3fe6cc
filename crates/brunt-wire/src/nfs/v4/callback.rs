//! Callbacks: the server calls its client (CB_COMPOUND), mostly to recall delegations. In 4.1, they use a connection
//! that the client opened.

use super::attributes::Bitmap;
use super::fields::{body, elements, handle, stateid};
use super::{OPAQUE_BYTES_MAX, OPERATIONS_MAX, Stateid};
use crate::nfs::FileHandle;
use crate::{Cursor, ParseError};

/// The arguments of CB_COMPOUND.
#[derive(Clone, Copy, Debug)]
pub struct CallbackCompound<'a> {
    /// The minor version: 0, 1 or 2.
    pub minor_version: u32,
    /// The number of operations.
    pub count: u32,
    cur: Cursor<'a>,
}

/// The arguments of a callback operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the RFCs' own names
pub enum CallbackArgs<'a> {
    Getattr {
        object: FileHandle<'a>,
        mask: Bitmap<'a>,
    },
    Recall {
        stateid: &'a Stateid,
        truncate: bool,
        object: FileHandle<'a>,
    },
    RecallAny {
        keep: u32,
    },
    RecallSlot {
        target_highest_slot: u32,
    },
    Sequence {
        session: &'a [u8; 16],
        sequence: u32,
        slot: u32,
    },
    /// Recognized only by its number and not parsed, so nothing after it can be parsed, either.
    Other(u32),
}

impl CallbackArgs<'_> {
    /// The name in the RFCs.
    pub fn name(&self) -> &'static str {
        match self {
            CallbackArgs::Getattr { .. } => "CB_GETATTR",
            CallbackArgs::Recall { .. } => "CB_RECALL",
            CallbackArgs::RecallAny { .. } => "CB_RECALL_ANY",
            CallbackArgs::RecallSlot { .. } => "CB_RECALL_SLOT",
            CallbackArgs::Sequence { .. } => "CB_SEQUENCE",
            CallbackArgs::Other(number) => match number {
                5 => "CB_LAYOUTRECALL",
                6 => "CB_NOTIFY",
                7 => "CB_PUSH_DELEG",
                9 => "CB_RECALLABLE_OBJ_AVAIL",
                12 => "CB_WANTS_CANCELLED",
                13 => "CB_NOTIFY_LOCK",
                14 => "CB_NOTIFY_DEVICEID",
                15 => "CB_OFFLOAD",
                _ => "CB_ILLEGAL",
            },
        }
    }
}

impl<'a> CallbackCompound<'a> {
    /// Parses everything up to the first operation.
    ///
    /// # Errors
    /// The arguments are truncated, or not those of a CB_COMPOUND.
    pub fn parse(cur: &mut Cursor<'a>) -> Result<CallbackCompound<'a>, ParseError> {
        cur.opaque(OPAQUE_BYTES_MAX, "tag longer than 1024 bytes")?;
        let minor_version = cur.u32()?;
        if minor_version > 2 {
            return Err(cur.malformed(4, "minor version is not 0 to 2"));
        }
        cur.skip(4)?;
        let count = cur.count(OPERATIONS_MAX, "compound of more than 1024 operations")?;
        Ok(CallbackCompound {
            minor_version,
            count,
            cur: *cur,
        })
    }

    /// The operations of the callback; the iterator ends after the first one that is not parsed.
    pub fn operations(&self) -> CallbackOps<'a> {
        CallbackOps {
            cur: self.cur,
            left: self.count,
        }
    }
}

/// The operations of a callback.
#[derive(Clone, Copy, Debug)]
pub struct CallbackOps<'a> {
    cur: Cursor<'a>,
    left: u32,
}

impl<'a> Iterator for CallbackOps<'a> {
    type Item = Result<CallbackArgs<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let args = parse(&mut self.cur);
        if matches!(args, Err(_) | Ok(CallbackArgs::Other(_))) {
            self.left = 0;
        }
        Some(args)
    }
}

fn parse<'a>(cur: &mut Cursor<'a>) -> Result<CallbackArgs<'a>, ParseError> {
    Ok(match cur.u32()? {
        3 => CallbackArgs::Getattr {
            object: handle(cur)?,
            mask: Bitmap::read(cur)?,
        },
        4 => CallbackArgs::Recall {
            stateid: stateid(cur)?,
            truncate: cur.boolean()?,
            object: handle(cur)?,
        },
        8 => {
            let keep = cur.u32()?;
            Bitmap::read(cur)?;
            CallbackArgs::RecallAny { keep }
        }
        10 => CallbackArgs::RecallSlot {
            target_highest_slot: cur.u32()?,
        },
        11 => {
            let args = CallbackArgs::Sequence {
                session: cur.view()?,
                sequence: cur.u32()?,
                slot: cur.u32()?,
            };
            // highest slot, cachethis
            cur.skip(8)?;
            // The calls on which this one depends, by session.
            for _ in 0..elements(cur)? {
                cur.skip(16)?;
                let calls = elements(cur)?;
                cur.skip(calls as usize * 8)?;
            }
            args
        }
        13 => {
            // CB_NOTIFY_LOCK: the handle, then the owner that waited for the lock.
            handle(cur)?;
            cur.skip(8)?;
            body(cur)?;
            CallbackArgs::Other(13)
        }
        other => CallbackArgs::Other(other),
    })
}
