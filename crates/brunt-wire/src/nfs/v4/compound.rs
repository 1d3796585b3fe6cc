//! Compounds: operations in a row, each working on the file handle that the ones before it left.

use super::args::{self, Args, OpenClaim};
use super::results::{self, OpResult, ResultBody};
use super::{OPAQUE_BYTES_MAX, OPERATIONS_MAX, Status};
use crate::nfs::FileHandle;
use crate::{Cursor, Malformed, ParseError};

/// The arguments of COMPOUND.
#[derive(Clone, Copy, Debug)]
pub struct CompoundArgs<'a> {
    /// What the client calls it; usually empty.
    pub tag: &'a [u8],
    /// 0, 1 or 2.
    pub minor_version: u32,
    /// How many operations there are.
    pub count: u32,
    cur: Cursor<'a>,
}

/// The results of COMPOUND.
#[derive(Clone, Copy, Debug)]
pub struct CompoundResults<'a> {
    /// That of the last operation that was tried.
    pub status: Status,
    /// The call's.
    pub tag: &'a [u8],
    /// How many operations were tried: those behind one that failed are not.
    pub count: u32,
    cur: Cursor<'a>,
}

impl<'a> CompoundArgs<'a> {
    /// Reads up to the first operation.
    ///
    /// # Errors
    /// Cut short, or no COMPOUND.
    #[inline]
    pub fn parse(cur: &mut Cursor<'a>) -> Result<CompoundArgs<'a>, ParseError> {
        let tag = cur.opaque(OPAQUE_BYTES_MAX, "a tag has at most 1024 bytes")?;
        let minor_version = cur.u32()?;
        if minor_version > 2 {
            return Err(cur.malformed(4, "the minor version is 0 to 2"));
        }
        let count = cur.count(OPERATIONS_MAX, "a compound has at most 1024 operations")?;
        Ok(CompoundArgs {
            tag,
            minor_version,
            count,
            cur: *cur,
        })
    }

    /// Its operations, in order; the last may be an error, and nothing follows one that is not known.
    #[inline]
    pub fn operations(&self) -> CompoundOperations<'a> {
        CompoundOperations {
            cur: self.cur,
            left: self.count,
        }
    }
}

impl<'a> CompoundResults<'a> {
    /// Reads up to the first operation's results.
    ///
    /// # Errors
    /// Cut short, or no answer to COMPOUND.
    #[inline]
    pub fn parse(cur: &mut Cursor<'a>) -> Result<CompoundResults<'a>, ParseError> {
        let status = Status(cur.u32()?);
        let tag = cur.opaque(OPAQUE_BYTES_MAX, "a tag has at most 1024 bytes")?;
        let count = cur.count(OPERATIONS_MAX, "a compound has at most 1024 operations")?;
        Ok(CompoundResults {
            status,
            tag,
            count,
            cur: *cur,
        })
    }

    /// Its operations' results, in order; the last may be an error.
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
    /// What lies behind the operations read so far.
    pub fn rest(&self) -> &'a [u8] {
        self.cur.rest()
    }
}

impl<'a> Iterator for CompoundOperations<'a> {
    type Item = Result<Args<'a>, ParseError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let args = args::parse(&mut self.cur);
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
    /// What lies behind the results read so far.
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

/// What the current (or saved) file handle is, as far as the compound tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CurrentFile<'a> {
    /// None was set.
    #[default]
    Unset,
    /// The root of the server, by PUTROOTFH (or PUTPUBFH).
    Root,
    /// This one.
    Handle(FileHandle<'a>),
    /// What a name led to; its handle was not asked for, or not yet.
    Named,
}

impl<'a> CurrentFile<'a> {
    /// The handle, when it is known.
    #[inline]
    pub fn handle(self) -> Option<FileHandle<'a>> {
        match self {
            CurrentFile::Handle(handle) => Some(handle),
            _ => None,
        }
    }
}

/// One operation with its answer, and what it worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompoundStep<'a> {
    /// What was asked.
    pub args: Args<'a>,
    /// What was answered; `None` when the reply was not seen, ended before, or is another's.
    pub result: Option<OpResult<'a>>,
    /// The current file handle before it.
    pub current: CurrentFile<'a>,
    /// The saved file handle before it.
    pub saved: CurrentFile<'a>,
}

/// A compound's operations with their answers.
#[derive(Clone, Copy, Debug)]
pub struct Walk<'a> {
    calls: CompoundOperations<'a>,
    replies: Option<Replies<'a>>,
    current: CurrentFile<'a>,
    saved: CurrentFile<'a>,
    call_end: Option<CompoundEnd>,
    reply_end: Option<CompoundEnd>,
}

/// Why a compound was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompoundEnd {
    /// An operation that is not known.
    Unknown(u32),
    /// One that is cut short or malformed.
    Error(ParseError),
}

impl<'a> Walk<'a> {
    /// Over a call and, if there is one, its reply.
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

    /// Why the call was read no further; `None` while nothing was wrong.
    #[inline]
    pub fn call_end(&self) -> Option<CompoundEnd> {
        self.call_end
    }

    /// Why the reply was read no further; `None` while nothing was wrong.
    #[inline]
    pub fn reply_end(&self) -> Option<CompoundEnd> {
        self.reply_end
    }

    #[inline]
    fn next_result(&mut self, args: &Args<'a>) -> Option<OpResult<'a>> {
        match self.replies.as_mut()?.next()? {
            // A server answers what it was asked, or ILLEGAL.
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
                let what = "the answer is to another operation";
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

    /// Ends before an operation that cannot be read.
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
