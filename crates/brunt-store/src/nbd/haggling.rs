//! A client's side of the handshake, from the greeting to an export or a list of them. Driven by `connect`: it reads
//! as many bytes as [`NbdHaggling::wants`], hands them over, and does what the step says.
//!
//! What is asked for: TLS if wanted, the best headers, block status, then GO; EXPORT_NAME where the server knows no
//! GO. Servers of the oldstyle are taken as they are.
//!
//! The one rule: nothing that was said before TLS is kept, and no more bytes are read before it than its
//! acknowledgement has.

use brunt_wire::nbd::negotiation::{
    self, GREETING_BYTES, NbdGreeting, NbdInfo, NbdOptionReply, OLDSTYLE_BYTES, OPTION_REPLY_BYTES,
    ZEROES_BYTES, handshake_flag, info, option, reply,
};
use brunt_wire::nbd::{NbdHeaders, STRING_BYTES_MAX, allocation, export_flag};
use brunt_wire::{Malformed, ParseError};

use super::export::NbdExport;

/// Data of one reply: two strings and their lengths.
const REPLY_BYTES_MAX: u32 = 2 * STRING_BYTES_MAX as u32 + 8;
/// Replies to one option, the exports of a list apart.
const REPLIES_MAX: u32 = 64;
/// Exports of a list.
const EXPORTS_MAX: u32 = 100_000;
/// What is compared before the kind of greeting is known: both magics.
const MAGICS_BYTES: usize = 16;

/// What a client wants.
#[derive(Clone, Debug)]
pub struct NbdWishes {
    /// The export's name; empty: the default.
    pub export: String,
    /// The best headers to ask for.
    pub headers: NbdHeaders,
    /// TLS, or nothing.
    pub tls: bool,
    /// A list of exports instead of one of them.
    pub list: bool,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum NbdStep {
    /// Read on.
    More,
    /// Send this, then read on.
    Send(Vec<u8>),
    /// Begin TLS, then say so with [`NbdHaggling::on_tls`].
    StartTls,
    /// Transmission.
    Done(Box<NbdExport>),
    /// Names and descriptions. Send this, which is a goodbye, and close.
    Listed(Vec<(String, String)>, Vec<u8>),
}

/// Why there is no export.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NbdRefusal {
    /// Not NBD, or not as its document says.
    #[error("the server breaks the protocol: {0}")]
    Malformed(#[from] Malformed),
    /// A reply to another option, a reply without an end, and so on.
    #[error("the server breaks the protocol: {0}")]
    Unexpected(&'static str),
    /// It says no.
    #[error("the server refuses {option} with {} ({kind:#x}){}", reply::name(*.kind), quoted(.text))]
    Refused {
        /// What was asked.
        option: &'static str,
        /// See [`reply`].
        kind: u32,
        /// In its own words; often none.
        text: String,
    },
    /// The server wants TLS.
    #[error("the server requires TLS; write nbds:// instead of nbd://")]
    TlsRequired,
    /// The server has none.
    #[error("the server does not offer TLS{}; only nbd:// reaches it, unencrypted", quoted(.0))]
    NoTls(String),
    /// Its protocol is from before options.
    #[error("the server's protocol is too old for {0}")]
    TooOld(&'static str),
}

fn quoted(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(": '{text}'")
    }
}

impl NbdRefusal {
    /// Whether it may be otherwise in a while: a server that is starting or going away.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            NbdRefusal::Refused {
                kind: reply::ERR_SHUTDOWN | reply::ERR_UNKNOWN,
                ..
            }
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HagglingState {
    Magics,
    Greeting,
    /// Waiting for the header of a reply to an option.
    Reply,
    Data(NbdOptionReply),
    /// The answer to EXPORT_NAME, with its zeros or without.
    ExportAnswer(usize),
    Tls,
    Over,
}

/// The handshake. See the module.
#[derive(Debug)]
pub struct NbdHaggling {
    wishes: NbdWishes,
    state: HagglingState,
    /// The first bytes, until they are a greeting.
    greeting: Vec<u8>,
    asked: u32,
    replies: u32,
    no_zeroes: bool,
    export: NbdExport,
    has_info: bool,
    listed: Vec<(String, String)>,
}

impl NbdHaggling {
    /// Before the first byte.
    pub fn new(wishes: NbdWishes) -> NbdHaggling {
        NbdHaggling {
            wishes,
            state: HagglingState::Magics,
            greeting: Vec::new(),
            asked: 0,
            replies: 0,
            no_zeroes: false,
            export: NbdExport::unknown(),
            has_info: false,
            listed: Vec::new(),
        }
    }

    /// How many bytes the next [`NbdHaggling::on_bytes`] takes. May be none.
    pub fn wants(&self) -> usize {
        match self.state {
            HagglingState::Magics => MAGICS_BYTES,
            HagglingState::Greeting
                if self.greeting[8..] == negotiation::IHAVEOPT.to_be_bytes() =>
            {
                GREETING_BYTES - MAGICS_BYTES
            }
            HagglingState::Greeting => OLDSTYLE_BYTES - MAGICS_BYTES,
            HagglingState::Reply => OPTION_REPLY_BYTES,
            HagglingState::Data(header) => header.len as usize,
            HagglingState::ExportAnswer(len) => len,
            HagglingState::Tls | HagglingState::Over => 0,
        }
    }

    /// Whether the server can say no only by hanging up.
    pub fn is_silent(&self) -> bool {
        matches!(self.state, HagglingState::ExportAnswer(_))
    }

    /// Takes exactly as many bytes as were wanted.
    ///
    /// # Errors
    /// The server does not do it, or breaks the protocol.
    ///
    /// # Panics
    /// When the number of bytes is another, or all is over.
    pub fn on_bytes(&mut self, bytes: &[u8]) -> Result<NbdStep, NbdRefusal> {
        assert_eq!(bytes.len(), self.wants(), "as many bytes as are wanted");
        match self.state {
            HagglingState::Magics => {
                self.greeting = bytes.to_vec();
                match NbdGreeting::parse(bytes) {
                    Err(ParseError::Malformed(malformed)) => return Err(malformed.into()),
                    _ => self.state = HagglingState::Greeting,
                }
                Ok(NbdStep::More)
            }
            HagglingState::Greeting => {
                self.greeting.extend(bytes);
                self.on_greeting()
            }
            HagglingState::Reply => {
                let header = NbdOptionReply::parse(bytes).map_err(malformed)?;
                if header.option != self.asked {
                    return Err(NbdRefusal::Unexpected(
                        "it answers an option that was not asked",
                    ));
                }
                if header.len > REPLY_BYTES_MAX {
                    return Err(NbdRefusal::Unexpected("a reply is longer than 8 KiB"));
                }
                self.replies += 1;
                let most = if self.wishes.list {
                    EXPORTS_MAX
                } else {
                    REPLIES_MAX
                };
                if self.replies > most {
                    return Err(NbdRefusal::Unexpected("an option has replies without end"));
                }
                self.state = HagglingState::Data(header);
                Ok(NbdStep::More)
            }
            HagglingState::Data(header) => {
                self.state = HagglingState::Reply;
                self.on_reply(header, bytes)
            }
            HagglingState::ExportAnswer(_) => {
                let (size, flags) = (&bytes[..8], &bytes[8..10]);
                self.export.size_bytes = u64::from_be_bytes(size.try_into().expect("8 bytes"));
                self.export.flags = u16::from_be_bytes(flags.try_into().expect("2 bytes"));
                Ok(self.done())
            }
            HagglingState::Tls | HagglingState::Over => panic!("nothing is read here"),
        }
    }

    /// TLS is there: what to send next.
    ///
    /// # Panics
    /// When it was not asked for.
    pub fn on_tls(&mut self) -> Vec<u8> {
        assert_eq!(
            self.state,
            HagglingState::Tls,
            "TLS begins when it was acknowledged"
        );
        self.state = HagglingState::Reply;
        self.first_option()
    }

    fn on_greeting(&mut self) -> Result<NbdStep, NbdRefusal> {
        let (greeting, _) = NbdGreeting::parse(&self.greeting).map_err(malformed)?;
        let flags = match greeting {
            NbdGreeting::Newstyle { flags } => flags,
            NbdGreeting::Oldstyle { .. } if self.wishes.tls => {
                return Err(NbdRefusal::TooOld("TLS"));
            }
            NbdGreeting::Oldstyle { .. } if self.wishes.list => {
                return Err(NbdRefusal::TooOld("a list"));
            }
            NbdGreeting::Oldstyle { size_bytes, flags } => {
                (self.export.size_bytes, self.export.flags) = (size_bytes, flags);
                self.export.oldstyle = true;
                return Ok(self.done());
            }
        };
        let fixed = flags & handshake_flag::FIXED_NEWSTYLE != 0;
        self.no_zeroes = flags & handshake_flag::NO_ZEROES != 0;
        let answer = flags & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        let mut bytes = u32::from(answer).to_be_bytes().to_vec();
        if fixed {
            self.state = HagglingState::Reply;
            bytes.extend(match self.wishes.tls {
                true => self.ask(option::STARTTLS, &[]),
                false => self.first_option(),
            });
        } else if self.wishes.tls || self.wishes.list {
            return Err(NbdRefusal::TooOld(if self.wishes.tls {
                "TLS"
            } else {
                "a list"
            }));
        } else {
            bytes.extend(self.ask_export_name());
        }
        Ok(NbdStep::Send(bytes))
    }

    fn first_option(&mut self) -> Vec<u8> {
        match (self.wishes.list, self.wishes.headers) {
            (true, _) => self.ask(option::LIST, &[]),
            (_, NbdHeaders::Extended) => self.ask(option::EXTENDED_HEADERS, &[]),
            (_, NbdHeaders::Structured) => self.ask(option::STRUCTURED_REPLY, &[]),
            (_, NbdHeaders::Simple) => self.ask_go(),
        }
    }

    fn ask(&mut self, option: u32, data: &[u8]) -> Vec<u8> {
        (self.asked, self.replies) = (option, 0);
        negotiation::encode_option(option, data)
    }

    fn ask_go(&mut self) -> Vec<u8> {
        let data = negotiation::encode_go(
            &self.wishes.export,
            &[info::BLOCK_SIZE, info::NAME, info::DESCRIPTION],
        );
        self.ask(option::GO, &data)
    }

    fn ask_context(&mut self) -> Vec<u8> {
        let data = negotiation::encode_meta_query(&self.wishes.export, &[allocation::CONTEXT]);
        self.ask(option::SET_META_CONTEXT, &data)
    }

    fn ask_export_name(&mut self) -> Vec<u8> {
        let name = self.wishes.export.clone();
        let bytes = self.ask(option::EXPORT_NAME, name.as_bytes());
        let zeroes = if self.no_zeroes { 0 } else { ZEROES_BYTES };
        self.state = HagglingState::ExportAnswer(8 + 2 + zeroes);
        bytes
    }

    fn on_reply(&mut self, header: NbdOptionReply, data: &[u8]) -> Result<NbdStep, NbdRefusal> {
        if header.is_error() {
            return self.on_error(header, data);
        }
        match (self.asked, header.kind) {
            (option::STARTTLS, reply::ACK) => {
                self.state = HagglingState::Tls;
                Ok(NbdStep::StartTls)
            }
            (option::EXTENDED_HEADERS, reply::ACK) => {
                self.export.headers = NbdHeaders::Extended;
                Ok(NbdStep::Send(self.ask_context()))
            }
            (option::STRUCTURED_REPLY, reply::ACK) => {
                self.export.headers = NbdHeaders::Structured;
                Ok(NbdStep::Send(self.ask_context()))
            }
            (option::SET_META_CONTEXT, reply::META_CONTEXT) => {
                let (number, name) = negotiation::parse_meta_context(data).map_err(malformed)?;
                if name == allocation::CONTEXT {
                    self.export.allocation_context = Some(number);
                }
                Ok(NbdStep::More)
            }
            (option::SET_META_CONTEXT, reply::ACK) => Ok(NbdStep::Send(self.ask_go())),
            (option::GO, reply::INFO) => {
                match NbdInfo::parse(data).map_err(malformed)? {
                    NbdInfo::Export(size_bytes, flags) => {
                        (self.export.size_bytes, self.export.flags) = (size_bytes, flags);
                        self.has_info = true;
                    }
                    NbdInfo::Name(name) => {
                        self.export.name = Some(name).filter(|name| *name != self.wishes.export);
                    }
                    NbdInfo::Description(text) => self.export.description = Some(text),
                    NbdInfo::BlockSizes(sizes) => self.export.sizes = Some(sizes),
                    NbdInfo::Other(_) => {}
                }
                Ok(NbdStep::More)
            }
            (option::GO, reply::ACK) if self.has_info => Ok(self.done()),
            (option::GO, reply::ACK) => Err(NbdRefusal::Unexpected("the export has no size")),
            (option::LIST, reply::SERVER) => {
                self.listed
                    .push(negotiation::parse_server(data).map_err(malformed)?);
                Ok(NbdStep::More)
            }
            (option::LIST, reply::ACK) => {
                self.state = HagglingState::Over;
                let goodbye = negotiation::encode_option(option::ABORT, &[]);
                Ok(NbdStep::Listed(std::mem::take(&mut self.listed), goodbye))
            }
            _ => Err(NbdRefusal::Unexpected(
                "a reply of a kind that does not answer the option",
            )),
        }
    }

    /// What an error means: a step back where there is one.
    fn on_error(&mut self, header: NbdOptionReply, data: &[u8]) -> Result<NbdStep, NbdRefusal> {
        let text: String = String::from_utf8_lossy(&data[..data.len().min(STRING_BYTES_MAX)])
            .chars()
            .map(|one| if one.is_control() { ' ' } else { one })
            .collect();
        let refused = |option| {
            Err(NbdRefusal::Refused {
                option,
                kind: header.kind,
                text: text.clone(),
            })
        };
        match (self.asked, header.kind) {
            (option::STARTTLS, _) => Err(NbdRefusal::NoTls(text)),
            (_, reply::ERR_TLS_REQD) => Err(NbdRefusal::TlsRequired),
            (option::EXTENDED_HEADERS, kind) if kind != reply::ERR_SHUTDOWN => {
                Ok(NbdStep::Send(self.ask(option::STRUCTURED_REPLY, &[])))
            }
            (option::STRUCTURED_REPLY, kind) if kind != reply::ERR_SHUTDOWN => {
                Ok(NbdStep::Send(self.ask_go()))
            }
            (option::SET_META_CONTEXT, kind) if kind != reply::ERR_SHUTDOWN => {
                self.export.allocation_context = None;
                Ok(NbdStep::Send(self.ask_go()))
            }
            // Extended headers come with a promise to know GO.
            (option::GO, reply::ERR_UNSUP) if self.export.headers != NbdHeaders::Extended => {
                (self.export.sizes, self.export.name) = (None, None);
                Ok(NbdStep::Send(self.ask_export_name()))
            }
            (option::GO, _) => refused("the export"),
            (option::LIST, _) => refused("a list of its exports"),
            _ => refused("to negotiate"),
        }
    }

    fn done(&mut self) -> NbdStep {
        self.state = HagglingState::Over;
        let export = &mut self.export;
        if !export.has(export_flag::HAS_FLAGS) {
            export.flags = 0;
        }
        NbdStep::Done(Box::new(export.clone()))
    }
}

/// All bytes that were wanted are there: what is cut short now is wrong.
fn malformed(error: ParseError) -> NbdRefusal {
    match error {
        ParseError::Malformed(malformed) => malformed.into(),
        ParseError::Incomplete(needed) => {
            Malformed::new(needed, "more data than the reply has").into()
        }
    }
}

#[cfg(test)]
mod tests;
