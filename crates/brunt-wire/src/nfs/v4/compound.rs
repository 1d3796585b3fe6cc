//! Compounds: sequences of operations, each of which acts on the file handle left by the previous ones.

use super::args::{Args, OpenClaim};
use super::parse_args;
use super::results::{self, OpResult, ResultBody};
use super::{OPAQUE_BYTES_MAX, OPERATIONS_MAX, Status};
use crate::nfs::FileHandle;
use crate::{Cursor, Malformed, ParseError};

/// The arguments of COMPOUND.
#[derive(Clone, Copy, Debug)]
pub struct CompoundArgs<'a> {
    /// The client's tag; usually empty.
    pub tag: &'a [u8],
    /// The minor version: 0, 1 or 2.
    pub minor_version: u32,
    /// The number of operations.
    pub count: u32,
    cur: Cursor<'a>,
}

/// The results of COMPOUND.
#[derive(Clone, Copy, Debug)]
pub struct CompoundResults<'a> {
    /// The status of the last operation that was attempted.
    pub status: Status,
    /// The tag of the call.
    pub tag: &'a [u8],
    /// The number of operations attempted; none is attempted after a failure.
    pub count: u32,
    cur: Cursor<'a>,
}

impl<'a> CompoundArgs<'a> {
    /// Parses everything up to the first operation.
    ///
    /// # Errors
    /// The arguments are truncated, or not those of a COMPOUND.
    #[inline]
    pub fn parse(cur: &mut Cursor<'a>) -> Result<CompoundArgs<'a>, ParseError> {
        let tag = cur.opaque(OPAQUE_BYTES_MAX, "tag longer than 1024 bytes")?;
        let minor_version = cur.u32()?;
        if minor_version > 2 {
            return Err(cur.malformed(4, "minor version is not 0 to 2"));
        }
        let count = cur.count(OPERATIONS_MAX, "compound of more than 1024 operations")?;
        Ok(CompoundArgs {
            tag,
            minor_version,
            count,
            cur: *cur,
        })
    }

    /// The operations in order; the last item may be an error, and an unknown operation is always the last.
    #[inline]
    pub fn operations(&self) -> CompoundOperations<'a> {
        CompoundOperations {
            cur: self.cur,
            left: self.count,
        }
    }
}

impl<'a> CompoundResults<'a> {
    /// Parses everything up to the first operation's result.
    ///
    /// # Errors
    /// The results are truncated, or not those of a COMPOUND.
    #[inline]
    pub fn parse(cur: &mut Cursor<'a>) -> Result<CompoundResults<'a>, ParseError> {
        let status = Status(cur.u32()?);
        let tag = cur.opaque(OPAQUE_BYTES_MAX, "tag longer than 1024 bytes")?;
        let count = cur.count(OPERATIONS_MAX, "compound of more than 1024 operations")?;
        Ok(CompoundResults {
            status,
            tag,
            count,
            cur: *cur,
        })
    }

    /// The results of the operations in order; the last item may be an error.
    #[inline]
    pub fn operations(&self) -> Replies<'a> {
        Replies {
            cur: self.cur,
            left: self.count,
        }
    }
}

/// The operations of a call.
#[derive(Clone, Copy, Debug)]
pub struct CompoundOperations<'a> {
    cur: Cursor<'a>,
    left: u32,
}

impl<'a> CompoundOperations<'a> {
    /// The bytes after the operations read so far.
    pub fn rest(&self) -> &'a [u8] {
        self.cur.rest()
    }
}

impl<'a> Iterator for CompoundOperations<'a> {
    type Item = Result<Args<'a>, ParseError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let args = parse_args::parse(&mut self.cur);
        if matches!(args, Err(_) | Ok(Args::Unknown(_))) {
            self.left = 0;
        }
        Some(args)
    }
}

/// The results of a reply.
#[derive(Clone, Copy, Debug)]
pub struct Replies<'a> {
    cur: Cursor<'a>,
    left: u32,
}

impl<'a> Replies<'a> {
    /// The bytes after the results read so far.
    pub fn rest(&self) -> &'a [u8] {
        self.cur.rest()
    }
}

impl<'a> Iterator for Replies<'a> {
    type Item = Result<OpResult<'a>, ParseError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let result = results::parse(&mut self.cur);
        if matches!(
            result,
            Err(_)
                | Ok(OpResult {
                    body: ResultBody::Unknown,
                    ..
                })
        ) {
            self.left = 0;
        }
        Some(result)
    }
}

/// The current (or saved) file handle, as far as it can be inferred from the compound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CurrentFile<'a> {
    /// No handle was set.
    #[default]
    Unset,
    /// The server's root, set by PUTROOTFH (or by PUTPUBFH).
    Root,
    /// This handle.
    Handle(FileHandle<'a>),
    /// The object that a name led to; its handle was not requested, or not yet.
    Named,
}

impl<'a> CurrentFile<'a> {
    /// The handle, if it is known.
    #[inline]
    pub fn handle(self) -> Option<FileHandle<'a>> {
        match self {
            CurrentFile::Handle(handle) => Some(handle),
            _ => None,
        }
    }
}

/// An operation with its result and the file handles that it acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompoundStep<'a> {
    /// The arguments.
    pub args: Args<'a>,
    /// The result; `None` if the reply was not captured, ended earlier, or is for another operation.
    pub result: Option<OpResult<'a>>,
    /// The current file handle before the operation.
    pub current: CurrentFile<'a>,
    /// The saved file handle before the operation.
    pub saved: CurrentFile<'a>,
}

/// Iterates over the operations of a compound, with their results.
#[derive(Clone, Copy, Debug)]
pub struct Walk<'a> {
    calls: CompoundOperations<'a>,
    replies: Option<Replies<'a>>,
    current: CurrentFile<'a>,
    saved: CurrentFile<'a>,
    call_end: Option<CompoundEnd>,
    reply_end: Option<CompoundEnd>,
}

/// Why parsing stopped before the end of a compound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompoundEnd {
    /// An unknown operation.
    Unknown(u32),
    /// A truncated or malformed operation.
    Error(ParseError),
}

impl<'a> Walk<'a> {
    /// Walks a call and, if given, its reply.
    #[inline]
    pub fn new(call: &CompoundArgs<'a>, reply: Option<&CompoundResults<'a>>) -> Walk<'a> {
        let replies = reply.map(CompoundResults::operations);
        let (current, saved) = (CurrentFile::Unset, CurrentFile::Unset);
        Walk {
            calls: call.operations(),
            replies,
            current,
            saved,
            call_end: None,
            reply_end: None,
        }
    }

    /// Why parsing of the call stopped; `None` if there was no error.
    #[inline]
    pub fn call_end(&self) -> Option<CompoundEnd> {
        self.call_end
    }

    /// Why parsing of the reply stopped; `None` if there was no error.
    #[inline]
    pub fn reply_end(&self) -> Option<CompoundEnd> {
        self.reply_end
    }

    #[inline]
    fn next_result(&mut self, args: &Args<'a>) -> Option<OpResult<'a>> {
        match self.replies.as_mut()?.next()? {
            // A server replies with the requested operation or with ILLEGAL.
            Ok(result)
                if args
                    .op()
                    .is_none_or(|op| result.number == op as u32 || result.number == 10044) =>
            {
                if result.body == ResultBody::Unknown {
                    self.reply_end = Some(CompoundEnd::Unknown(result.number));
                    self.replies = None;
                }
                Some(result)
            }
            Ok(_) => {
                let what = "result is for another operation";
                self.reply_end = Some(CompoundEnd::Error(Malformed::new(0, what).into()));
                self.replies = None;
                None
            }
            Err(error) => {
                self.reply_end = Some(CompoundEnd::Error(error));
                self.replies = None;
                None
            }
        }
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = CompoundStep<'a>;

    /// Stops at an operation that cannot be parsed.
    #[inline]
    fn next(&mut self) -> Option<CompoundStep<'a>> {
        let args = match self.calls.next()? {
            Ok(args) => args,
            Err(error) => {
                self.call_end = Some(CompoundEnd::Error(error));
                return None;
            }
        };
        if let Args::Unknown(number) = args {
            self.call_end = Some(CompoundEnd::Unknown(number));
        }
        let result = self.next_result(&args);
        let step = CompoundStep {
            args,
            result,
            current: self.current,
            saved: self.saved,
        };
        if result.is_none_or(|result| result.status == Status::OK) {
            match args {
                Args::Putfh { object } => self.current = CurrentFile::Handle(object),
                Args::Putrootfh | Args::Putpubfh => self.current = CurrentFile::Root,
                Args::Lookup { .. } | Args::Lookupp | Args::Create { .. } => {
                    self.current = CurrentFile::Named
                }
                Args::Open { claim, .. } if claim.name().is_some() => {
                    self.current = CurrentFile::Named
                }
                Args::Open {
                    claim: OpenClaim::Previous(_),
                    ..
                } => {}
                Args::Other(super::Op::Openattr) => self.current = CurrentFile::Named,
                Args::Savefh => self.saved = self.current,
                Args::Restorefh => self.current = self.saved,
                Args::Getfh => {
                    if let Some(OpResult {
                        body: ResultBody::Getfh { object },
                        ..
                    }) = result
                    {
                        self.current = CurrentFile::Handle(object);
                    }
                }
                _ => {}
            }
        }
        Some(step)
    }
}
