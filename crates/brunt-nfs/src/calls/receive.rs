//! Replies of a connection: which call they belong to, where their data goes, and their results.
//!
//! The rule: [`NfsCalls::examine`] changes nothing and can be called repeatedly. A record of several fragments is
//! collected first ([`NfsCalls::collect`]); a faster way is not worthwhile, because servers don't send such records.

use brunt_wire::cursor::padding;
use brunt_wire::nfs::v3::{Procedure, ResultBody, Results, Status, parse_results};
use brunt_wire::rpc::{MARK_BYTES, RecordMark, ReplyStatus, parse};
use brunt_wire::{Cursor, FileData, ParseError};

use super::{Call, CallState, INDEX_BITS, NfsCalls};
use crate::rpc::{NfsViolation, REPLY_HEAD_BYTES_MAX, bad_results, parse_reply};
use crate::v41::{NfsOpened, NfsScratch, lock_results, sequenced, translate};

/// What has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NfsIncoming {
    /// Too few bytes to decide.
    More,
    /// A complete reply: a record mark, then `len` bytes.
    Reply {
        /// The call.
        call: u16,
        /// Length of the record, without its mark.
        len: usize,
    },
    /// The beginning of a READ's reply, whose data may go directly to its destination.
    Data(NfsReadData),
    /// A record in several fragments: pass received bytes to [`NfsCalls::collect`].
    Fragments,
}

/// The reply to a READ that has arrived at least up to its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsReadData {
    /// The call.
    pub call: u16,
    /// Bytes before the data, with the record mark.
    pub head_len: usize,
    /// Length of the data.
    pub len: u32,
    /// Zeros after the data.
    pub padding: usize,
    /// Whether the file ends after this data.
    pub eof: bool,
    /// What its OPEN returned, if the call has opened the file (NFSv4.1).
    pub opened: Option<NfsOpened>,
}

/// The result of [`NfsCalls::collect`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsCollected {
    /// Bytes that belong to the record.
    pub consumed: usize,
    /// At the end of the record: its call, and the record.
    pub reply: Option<(u16, Vec<u8>)>,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NfsReply<'a> {
    /// The server executed it, with this result.
    Results(Results<'a>),
    /// RPC rejected the call.
    Refused(ReplyStatus),
}

impl NfsCalls {
    /// The call that a reply with this xid belongs to.
    fn call_of(&self, xid: u32) -> Result<u16, NfsViolation> {
        let index = (xid & ((1 << INDEX_BITS) - 1)) as u16;
        match self.calls.get(usize::from(index)) {
            Some(call) if call.state == CallState::Sent && call.xid.0 == xid => Ok(index),
            _ => Err(NfsViolation::Xid(xid)),
        }
    }

    /// Maximum length of any reply's record.
    fn record_bytes_max(&self) -> u32 {
        self.config
            .data_bytes_max
            .saturating_add(REPLY_HEAD_BYTES_MAX)
    }

    /// Maximum length of the reply to a call.
    fn reply_bytes_max(&self, index: u16) -> u32 {
        let asked = self.calls[usize::from(index)].asked;
        asked
            .saturating_add(REPLY_HEAD_BYTES_MAX)
            .min(self.record_bytes_max())
    }

    /// What the received bytes begin with.
    ///
    /// # Errors
    /// No outstanding call allows these bytes.
    #[inline]
    pub fn examine(&self, bytes: &[u8]) -> Result<NfsIncoming, NfsViolation> {
        if self.record.is_begun() {
            return Ok(NfsIncoming::Fragments);
        }
        let Some(mark) = bytes.first_chunk::<MARK_BYTES>() else {
            return Ok(NfsIncoming::More);
        };
        let mark = RecordMark::from_bytes(*mark);
        let limit = self.record_bytes_max();
        if mark.len > limit {
            return Err(NfsViolation::Long {
                bytes: mark.len.into(),
                limit,
            });
        }
        if !mark.last {
            return Ok(NfsIncoming::Fragments);
        }
        let (record, is_whole) = match bytes[MARK_BYTES..].get(..mark.len as usize) {
            Some(record) => (record, true),
            None => (&bytes[MARK_BYTES..], false),
        };
        let Some(xid) = record.first_chunk::<4>() else {
            return match is_whole {
                true => Err(NfsViolation::NotRpc(ParseError::Incomplete(4))),
                false => Ok(NfsIncoming::More),
            };
        };
        let call = self.call_of(u32::from_be_bytes(*xid))?;
        let limit = self.reply_bytes_max(call);
        if mark.len > limit {
            return Err(NfsViolation::Long {
                bytes: mark.len.into(),
                limit,
            });
        }
        if is_whole {
            return Ok(NfsIncoming::Reply {
                call,
                len: mark.len as usize,
            });
        }
        match self.calls[usize::from(call)].procedure {
            Procedure::Read => self.examine_read(call, record, mark.len),
            _ => Ok(NfsIncoming::More),
        }
    }

    /// Looks for the data at the beginning of a READ's reply of `len` bytes.
    fn examine_read(
        &self,
        call: u16,
        record: &[u8],
        len: u32,
    ) -> Result<NfsIncoming, NfsViolation> {
        let operation = Procedure::Read.name();
        if matches!(parse(record), Err(ParseError::Incomplete(_))) {
            return Ok(NfsIncoming::More);
        }
        let header = parse_reply(record, operation)?;
        if header.status == ReplyStatus::Success {
            let body = &record[header.body_at..];
            self.check_slot(call, body)?;
            match self.parse(Procedure::Read, body, &mut NfsScratch::default()) {
                Ok((
                    Results {
                        status: Status::OK,
                        body:
                            ResultBody::Read {
                                count, eof, data, ..
                            },
                    },
                    _,
                )) => {
                    self.check_read(call, count, data)?;
                    let before = header.body_at + data.at;
                    let after = padding(data.len as usize);
                    check_end(operation, len as usize, before + data.len as usize + after)?;
                    let head_len = MARK_BYTES + before;
                    return Ok(NfsIncoming::Data(NfsReadData {
                        call,
                        head_len,
                        len: data.len,
                        padding: after,
                        eof,
                        opened: self.examine_open(call, body),
                    }));
                }
                Ok(_) | Err(ParseError::Incomplete(_)) => {}
                Err(error) => return Err(bad_results(operation, error)),
            }
        }
        // Only replies with data are long.
        match len > REPLY_HEAD_BYTES_MAX && record.len() >= REPLY_HEAD_BYTES_MAX as usize {
            true => Err(NfsViolation::Long {
                bytes: len.into(),
                limit: REPLY_HEAD_BYTES_MAX,
            }),
            false => Ok(NfsIncoming::More),
        }
    }

    /// With NFSv4.1, checks that the beginning of a reply is for the slot of its call.
    fn check_slot(&self, call: u16, body: &[u8]) -> Result<(), NfsViolation> {
        let call = &self.calls[usize::from(call)];
        match call.slot.as_ref().map(|slot| sequenced(body, slot)) {
            None | Some(Ok(_) | Err(ParseError::Incomplete(_))) => Ok(()),
            Some(Err(error)) => Err(bad_results(call.name(), error)),
        }
    }

    /// Parses results, and returns where they end in the body of a reply.
    fn parse<'a>(
        &self,
        procedure: Procedure,
        body: &'a [u8],
        scratch: &'a mut NfsScratch,
    ) -> Result<(Results<'a>, usize), ParseError> {
        if self.compounds.is_some() {
            return translate(procedure, body, scratch);
        }
        let mut cur = Cursor::new(body);
        Ok((parse_results(procedure, &mut cur)?, cur.at()))
    }

    /// Adds bytes to a record in several fragments.
    ///
    /// # Errors
    /// The record is too long, or belongs to no call.
    pub fn collect(&mut self, bytes: &[u8]) -> Result<NfsCollected, NfsViolation> {
        let consumed = self.record.feed(bytes, self.record_bytes_max())?;
        if !self.record.is_complete() {
            return Ok(NfsCollected {
                consumed,
                reply: None,
            });
        }
        let record = self.record.take();
        let Some(xid) = record.first_chunk::<4>() else {
            return Err(NfsViolation::NotRpc(ParseError::Incomplete(4)));
        };
        let call = self.call_of(u32::from_be_bytes(*xid))?;
        let (bytes, limit) = (record.len() as u64, self.reply_bytes_max(call));
        if bytes > u64::from(limit) {
            return Err(NfsViolation::Long { bytes, limit });
        }
        Ok(NfsCollected {
            consumed,
            reply: Some((call, record)),
        })
    }

    /// The results in a complete record that answers `call`; `scratch` holds results that are not in the record.
    ///
    /// # Errors
    /// The reply violates a protocol.
    #[inline]
    pub fn results<'a>(
        &self,
        call: u16,
        record: &'a [u8],
        scratch: &'a mut NfsScratch,
    ) -> Result<NfsReply<'a>, NfsViolation> {
        let Call {
            procedure, lock, ..
        } = self.calls[usize::from(call)];
        let operation = self.calls[usize::from(call)].name();
        let header = parse_reply(record, operation)?;
        if header.status != ReplyStatus::Success {
            return Ok(NfsReply::Refused(header.status));
        }
        let body = &record[header.body_at..];
        let results = match lock {
            Some(lock) => lock_results(lock.op, body),
            None => self.parse(procedure, body, scratch),
        };
        let (results, end) = results.map_err(|error| bad_results(operation, error))?;
        if let ResultBody::Read { count, data, .. } = results.body {
            self.check_read(call, count, data)?;
            let len = data.len as usize;
            check_end(
                operation,
                record.len(),
                header.body_at + data.at + len + padding(len),
            )?;
        } else {
            check_end(operation, record.len(), header.body_at + end)?;
        }
        Ok(NfsReply::Results(results))
    }

    fn check_read(&self, call: u16, count: u32, data: FileData<'_>) -> Result<(), NfsViolation> {
        let asked = self.calls[usize::from(call)].asked;
        let operation = Procedure::Read.name();
        match data.len {
            len if len != count => Err(NfsViolation::Count {
                operation,
                answered: len,
                asked: count,
            }),
            answered if answered > asked => Err(NfsViolation::Count {
                operation,
                answered,
                asked,
            }),
            _ => Ok(()),
        }
    }
}

/// Checks that a record of `len` bytes ends where its results do, at `end`.
fn check_end(operation: &'static str, len: usize, end: usize) -> Result<(), NfsViolation> {
    match len.checked_sub(end) {
        Some(0) => Ok(()),
        Some(bytes) => Err(NfsViolation::Excess { operation, bytes }),
        None => Err(NfsViolation::Short {
            operation,
            needed: end,
        }),
    }
}
