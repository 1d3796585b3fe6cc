//! The client side of the handshake, from the greeting to an export or a list of exports. Driven by `connect`, which
//! reads [`NbdHandshake::wants`] bytes, passes them in, and executes the resulting step.
//!
//! Requests TLS if wanted, then the best headers, block status, and GO, or EXPORT_NAME if the server doesn't support
//! GO. Oldstyle servers are accepted as they are.
//!
//! The one rule: nothing from before TLS is kept, and before TLS no bytes are read beyond its acknowledgement.

use brunt_wire::nbd::negotiation::{
    self, GREETING_BYTES, NbdGreeting, NbdInfo, NbdOptionReply, OLDSTYLE_BYTES, OPTION_REPLY_BYTES,
    ZEROES_BYTES, handshake_flag, info, option, reply,
};
use brunt_wire::nbd::{NbdHeaders, STRING_BYTES_MAX, allocation, export_flag};
use brunt_wire::{Malformed, ParseError};

use super::export::NbdExport;

/// Maximum data of one reply: two strings and their lengths.
const REPLY_BYTES_MAX: u32 = 2 * STRING_BYTES_MAX as u32 + 8;
/// Maximum replies to one option, not counting the exports of a list.
const REPLIES_MAX: u32 = 64;
/// Maximum exports in a list.
const EXPORTS_MAX: u32 = 100_000;
/// Number of bytes that identify the kind of greeting: both magics.
const MAGICS_BYTES: usize = 16;

/// What the client requests.
#[derive(Clone, Debug)]
pub struct NbdHandshakeOptions {
    /// The export's name; empty for the default.
    pub export: String,
    /// The best headers to request.
    pub headers: NbdHeaders,
    /// Whether TLS is required.
    pub tls: bool,
    /// Whether to list the exports instead of choosing one.
    pub list: bool,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum NbdStep {
    /// Continue reading.
    More,
    /// Send this, then continue reading.
    Send(Vec<u8>),
    /// Start TLS, then call [`NbdHandshake::on_tls`].
    StartTls,
    /// The transmission phase starts.
    Done(Box<NbdExport>),
    /// Names and descriptions of the exports. Send the bytes, which say goodbye, and close.
    Listed(Vec<(String, String)>, Vec<u8>),
}

/// Why the handshake failed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NbdRefusal {
    /// The bytes are not NBD, or not as specified.
    #[error("the server violated the protocol: {0}")]
    Malformed(#[from] Malformed),
    /// A reply to a different option, a reply without an end, or a similar violation.
    #[error("the server violated the protocol: {0}")]
    Unexpected(&'static str),
    /// The server refused an option.
    #[error("the server refused {option} with {} ({kind:#x}){}", reply::name(*.kind), quoted(.text))]
    Refused {
        /// The request.
        option: &'static str,
        /// See [`reply`].
        kind: u32,
        /// The server's text; often empty.
        text: String,
    },
    /// The server requires TLS.
    #[error("the server requires TLS; write nbds:// instead of nbd://")]
    TlsRequired,
    /// The server doesn't support TLS.
    #[error("the server does not offer TLS{}; use nbd:// (unencrypted)", quoted(.0))]
    NoTls(String),
    /// The server's protocol predates options.
    #[error("the server's protocol version does not support {0}")]
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
    /// Whether a later attempt may succeed because the server is starting or shutting down.
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
enum HandshakeState {
    Magics,
    Greeting,
    /// Waiting for the header of a reply to an option.
    Reply,
    Data(NbdOptionReply),
    /// Waiting for the reply to EXPORT_NAME, with or without its zeros.
    ExportAnswer(usize),
    Tls,
    Over,
}

/// The client's handshake; see the module's docs.
#[derive(Debug)]
pub struct NbdHandshake {
    wishes: NbdHandshakeOptions,
    state: HandshakeState,
    /// The bytes received so far, until they are a complete greeting.
    greeting: Vec<u8>,
    asked: u32,
    replies: u32,
    no_zeroes: bool,
    export: NbdExport,
    has_info: bool,
    listed: Vec<(String, String)>,
}

impl NbdHandshake {
    /// The state before the first byte.
    pub fn new(wishes: NbdHandshakeOptions) -> NbdHandshake {
        NbdHandshake {
            wishes,
            state: HandshakeState::Magics,
            greeting: Vec::new(),
            asked: 0,
            replies: 0,
            no_zeroes: false,
            export: NbdExport::unknown(),
            has_info: false,
            listed: Vec::new(),
        }
    }

    /// Number of bytes that the next call of [`NbdHandshake::on_bytes`] takes. May be 0.
    pub fn wants(&self) -> usize {
        match self.state {
            HandshakeState::Magics => MAGICS_BYTES,
            HandshakeState::Greeting
                if self.greeting[8..] == negotiation::IHAVEOPT.to_be_bytes() =>
            {
                GREETING_BYTES - MAGICS_BYTES
            }
            HandshakeState::Greeting => OLDSTYLE_BYTES - MAGICS_BYTES,
            HandshakeState::Reply => OPTION_REPLY_BYTES,
            HandshakeState::Data(header) => header.len as usize,
            HandshakeState::ExportAnswer(len) => len,
            HandshakeState::Tls | HandshakeState::Over => 0,
        }
    }

    /// Whether the server can refuse only by closing the connection.
    pub fn is_silent(&self) -> bool {
        matches!(self.state, HandshakeState::ExportAnswer(_))
    }

    /// Takes exactly the requested number of bytes.
    ///
    /// # Errors
    /// The server refuses an option or violates the protocol.
    ///
    /// # Panics
    /// Panics if the number of bytes differs or the handshake is over.
    pub fn on_bytes(&mut self, bytes: &[u8]) -> Result<NbdStep, NbdRefusal> {
        assert_eq!(bytes.len(), self.wants(), "exactly the wanted bytes");
        match self.state {
            HandshakeState::Magics => {
                self.greeting = bytes.to_vec();
                match NbdGreeting::parse(bytes) {
                    Err(ParseError::Malformed(malformed)) => return Err(malformed.into()),
                    _ => self.state = HandshakeState::Greeting,
                }
                Ok(NbdStep::More)
            }
            HandshakeState::Greeting => {
                self.greeting.extend(bytes);
                self.on_greeting()
            }
            HandshakeState::Reply => {
                let header = NbdOptionReply::parse(bytes).map_err(malformed)?;
                if header.option != self.asked {
                    return Err(NbdRefusal::Unexpected("a reply to another option"));
                }
                if header.len > REPLY_BYTES_MAX {
                    return Err(NbdRefusal::Unexpected("a reply longer than 8 KiB"));
                }
                self.replies += 1;
                let most = if self.wishes.list {
                    EXPORTS_MAX
                } else {
                    REPLIES_MAX
                };
                if self.replies > most {
                    return Err(NbdRefusal::Unexpected("too many replies to an option"));
                }
                self.state = HandshakeState::Data(header);
                Ok(NbdStep::More)
            }
            HandshakeState::Data(header) => {
                self.state = HandshakeState::Reply;
                self.on_reply(header, bytes)
            }
            HandshakeState::ExportAnswer(_) => {
                let (size, flags) = (&bytes[..8], &bytes[8..10]);
                self.export.size_bytes = u64::from_be_bytes(size.try_into().expect("8 bytes"));
                self.export.flags = u16::from_be_bytes(flags.try_into().expect("2 bytes"));
                Ok(self.done())
            }
            HandshakeState::Tls | HandshakeState::Over => {
                panic!("the handshake reads nothing in this state")
            }
        }
    }

    /// Continues after TLS is established; returns what to send next.
    ///
    /// # Panics
    /// Panics if TLS was not requested.
    pub fn on_tls(&mut self) -> Vec<u8> {
        assert_eq!(
            self.state,
            HandshakeState::Tls,
            "TLS starts after it is acknowledged"
        );
        self.state = HandshakeState::Reply;
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
                return Err(NbdRefusal::TooOld("listing exports"));
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
            self.state = HandshakeState::Reply;
            bytes.extend(match self.wishes.tls {
                true => self.ask(option::STARTTLS, &[]),
                false => self.first_option(),
            });
        } else if self.wishes.tls || self.wishes.list {
            return Err(NbdRefusal::TooOld(if self.wishes.tls {
                "TLS"
            } else {
                "listing exports"
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
        self.state = HandshakeState::ExportAnswer(8 + 2 + zeroes);
        bytes
    }

    fn on_reply(&mut self, header: NbdOptionReply, data: &[u8]) -> Result<NbdStep, NbdRefusal> {
        if header.is_error() {
            return self.on_error(header, data);
        }
        match (self.asked, header.kind) {
            (option::STARTTLS, reply::ACK) => {
                self.state = HandshakeState::Tls;
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
            (option::GO, reply::ACK) => Err(NbdRefusal::Unexpected("no size for the export")),
            (option::LIST, reply::SERVER) => {
                self.listed
                    .push(negotiation::parse_server(data).map_err(malformed)?);
                Ok(NbdStep::More)
            }
            (option::LIST, reply::ACK) => {
                self.state = HandshakeState::Over;
                let goodbye = negotiation::encode_option(option::ABORT, &[]);
                Ok(NbdStep::Listed(std::mem::take(&mut self.listed), goodbye))
            }
            _ => Err(NbdRefusal::Unexpected(
                "a reply type that does not match the option",
            )),
        }
    }

    /// Handles an error reply, falling back if possible.
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
            // A server with extended headers must support GO.
            (option::GO, reply::ERR_UNSUP) if self.export.headers != NbdHeaders::Extended => {
                (self.export.sizes, self.export.name) = (None, None);
                Ok(NbdStep::Send(self.ask_export_name()))
            }
            (option::GO, _) => refused("access to the export"),
            (option::LIST, _) => refused("a list of its exports"),
            _ => refused("to negotiate"),
        }
    }

    fn done(&mut self) -> NbdStep {
        self.state = HandshakeState::Over;
        let export = &mut self.export;
        if !export.has(export_flag::HAS_FLAGS) {
            export.flags = 0;
        }
        NbdStep::Done(Box::new(export.clone()))
    }
}

/// Converts a parse error; since all requested bytes are present, truncated data counts as malformed.
fn malformed(error: ParseError) -> NbdRefusal {
    match error {
        ParseError::Malformed(malformed) => malformed.into(),
        ParseError::Incomplete(needed) => {
            Malformed::new(needed, "more data than in the reply").into()
        }
    }
}

#[cfg(test)]
mod tests;
