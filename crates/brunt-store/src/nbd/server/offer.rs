//! The server side of the handshake, from its greeting to an export. Driven by `connection`, which reads
//! [`NbdOffer::wants`] bytes, passes them in, sends the answer, and executes the resulting step.
//!
//! Offers everything in the protocol. The one rule: an unknown option is answered and skipped; an option with an
//! invalid length ends the connection. Whatever was negotiated unencrypted is forgotten when TLS starts.

use brunt_wire::nbd::negotiation::{
    self, NbdGreeting, NbdInfo, NbdOptionReply, OPTION_BYTES, ZEROES_BYTES, handshake_flag, info,
    option, reply,
};
use brunt_wire::nbd::{NbdBlockSizes, NbdHeaders, STRING_BYTES_MAX, allocation};
use brunt_wire::{Malformed, ParseError};

/// Maximum data of an option: a name and some queries.
const OPTION_BYTES_MAX: u32 = 4 * STRING_BYTES_MAX as u32;
/// Maximum number of options in a handshake, and how many more are allowed per export, since a client that lists
/// exports may ask about each. More than that is treated as endless.
const OPTIONS_MAX: usize = 1024;
const OPTIONS_OF_EXPORT_MAX: usize = 16;

/// The properties of an export as announced to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdOffered {
    /// Its name.
    pub name: String,
    /// The description.
    pub description: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Transmission flags; DF is added for structured replies.
    pub flags: u16,
    /// The request sizes that it accepts.
    pub sizes: NbdBlockSizes,
}

/// Whether handshakes use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdTlsPolicy {
    /// No TLS.
    Absent,
    /// TLS if the client requests it.
    Offered,
    /// TLS is required: no other option is accepted before it.
    Required,
}

/// What to do after sending the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdOfferStep {
    /// Continue reading.
    More,
    /// Start TLS; the handshake continues inside it.
    StartTls,
    /// The transmission phase starts.
    Serve(NbdAgreement),
    /// The client disconnects.
    Close,
}

/// The result of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdAgreement {
    /// Index of the export.
    pub export: usize,
    /// Headers of requests and replies.
    pub headers: NbdHeaders,
    /// Whether block status may be queried.
    pub block_status: bool,
}

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NbdOfferError {
    /// The bytes are not an option.
    #[error("the client violated the protocol: {0}")]
    Malformed(#[from] Malformed),
    /// Flags that were not offered.
    #[error("the client requested handshake flags {0:#x}, which were not offered")]
    Flags(u32),
    /// An option longer than any valid one.
    #[error("the client sent an option of {0} bytes")]
    Long(u32),
    /// Too many options.
    #[error("the client sent too many options")]
    Endless,
    /// EXPORT_NAME for an unknown export; the protocol has no reply to refuse it.
    #[error("the client requested export '{0}', which does not exist")]
    NoExport(String),
    /// EXPORT_NAME without the required TLS.
    #[error("the client requested an export without TLS, which is required")]
    InTheClear,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferState {
    Flags,
    Option,
    Data { option: u32, len: u32 },
    Over,
}

/// The id of `base:allocation`, the only context.
pub const ALLOCATION_CONTEXT: u32 = 1;

/// The server's handshake; see the module's docs.
#[derive(Debug)]
pub struct NbdOffer {
    exports: Vec<NbdOffered>,
    tls: NbdTlsPolicy,
    /// Whether TLS has started.
    encrypted: bool,
    state: OfferState,
    no_zeroes: bool,
    options: u32,
    headers: NbdHeaders,
    /// The export for which block status was requested.
    status_of: Option<usize>,
}

impl NbdOffer {
    /// Starts a handshake for these exports; also returns the greeting to send first.
    pub fn new(exports: Vec<NbdOffered>, tls: NbdTlsPolicy) -> (NbdOffer, Vec<u8>) {
        let offer = NbdOffer {
            exports,
            tls,
            encrypted: false,
            state: OfferState::Flags,
            no_zeroes: false,
            options: 0,
            headers: NbdHeaders::Simple,
            status_of: None,
        };
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        (offer, NbdGreeting::Newstyle { flags }.encode())
    }

    /// Number of bytes that the next call of [`NbdOffer::on_bytes`] takes. May be 0.
    pub fn wants(&self) -> usize {
        match self.state {
            OfferState::Flags => 4,
            OfferState::Option => OPTION_BYTES,
            OfferState::Data { len, .. } => len as usize,
            OfferState::Over => 0,
        }
    }

    /// Takes exactly the requested number of bytes; appends the reply to `answer`.
    ///
    /// # Errors
    /// The client violates the protocol, or requests something that can't be refused by a reply.
    ///
    /// # Panics
    /// Panics if the number of bytes differs or the handshake is over.
    pub fn on_bytes(
        &mut self,
        bytes: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<NbdOfferStep, NbdOfferError> {
        assert_eq!(bytes.len(), self.wants(), "exactly the wanted bytes");
        match self.state {
            OfferState::Flags => {
                let flags = u32::from_be_bytes(bytes.try_into().expect("4 bytes"));
                let known = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
                if flags & !known != 0 {
                    return Err(NbdOfferError::Flags(flags));
                }
                self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
                self.state = OfferState::Option;
                Ok(NbdOfferStep::More)
            }
            OfferState::Option => {
                let (option, len) = negotiation::parse_option(bytes).map_err(malformed)?;
                self.options += 1;
                if len > OPTION_BYTES_MAX {
                    return Err(NbdOfferError::Long(len));
                }
                let most = OPTIONS_MAX + OPTIONS_OF_EXPORT_MAX * self.exports.len();
                if self.options as usize > most {
                    return Err(NbdOfferError::Endless);
                }
                self.state = OfferState::Data { option, len };
                Ok(NbdOfferStep::More)
            }
            OfferState::Data { option, .. } => {
                self.state = OfferState::Option;
                self.on_option(option, bytes, answer)
            }
            OfferState::Over => panic!("the handshake reads nothing in this state"),
        }
    }

    fn on_option(
        &mut self,
        option: u32,
        data: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<NbdOfferStep, NbdOfferError> {
        let mut say =
            |kind: u32, data: &[u8]| answer.extend(NbdOptionReply::encode(option, kind, data));
        let bare = data.is_empty();
        match option {
            option::STARTTLS => return Ok(self.on_starttls(bare, answer)),
            option::ABORT => {}
            option::EXPORT_NAME if self.lacks_tls() => return Err(NbdOfferError::InTheClear),
            _ if self.lacks_tls() => {
                say(reply::ERR_TLS_REQD, b"this server requires TLS");
                return Ok(NbdOfferStep::More);
            }
            _ => {}
        }
        match option {
            option::EXPORT_NAME => return self.on_export_name(data, answer),
            option::GO | option::INFO => return Ok(self.on_go(option, data, answer)),
            option::ABORT => {
                say(reply::ACK, &[]);
                self.state = OfferState::Over;
                return Ok(NbdOfferStep::Close);
            }
            option::LIST if bare => {
                for export in &self.exports {
                    say(
                        reply::SERVER,
                        &negotiation::encode_server(&export.name, &export.description),
                    );
                }
                say(reply::ACK, &[]);
            }
            option::STRUCTURED_REPLY if bare && self.headers == NbdHeaders::Extended => {
                say(reply::ERR_EXT_HEADER_REQD, b"extended headers are in use");
            }
            option::STRUCTURED_REPLY if bare => {
                self.headers = NbdHeaders::Structured;
                say(reply::ACK, &[]);
            }
            option::EXTENDED_HEADERS if bare => {
                self.headers = NbdHeaders::Extended;
                say(reply::ACK, &[]);
            }
            option::LIST | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => {
                say(reply::ERR_INVALID, b"this option has no data");
            }
            option::SET_META_CONTEXT | option::LIST_META_CONTEXT => {
                self.on_meta(option, data, answer)
            }
            _ => say(reply::ERR_UNSUP, &[]),
        }
        Ok(NbdOfferStep::More)
    }

    fn lacks_tls(&self) -> bool {
        self.tls == NbdTlsPolicy::Required && !self.encrypted
    }

    fn on_starttls(&mut self, bare: bool, answer: &mut Vec<u8>) -> NbdOfferStep {
        let mut say = |kind: u32, data: &[u8]| {
            answer.extend(NbdOptionReply::encode(option::STARTTLS, kind, data));
        };
        match self.tls {
            NbdTlsPolicy::Absent => say(reply::ERR_POLICY, b"this server has no TLS"),
            _ if !bare => say(reply::ERR_INVALID, b"this option has no data"),
            _ if self.encrypted => say(reply::ERR_INVALID, b"TLS has begun already"),
            NbdTlsPolicy::Offered | NbdTlsPolicy::Required => {
                say(reply::ACK, &[]);
                // A man in the middle may have sent the unencrypted options.
                self.headers = NbdHeaders::Simple;
                self.status_of = None;
                self.encrypted = true;
                return NbdOfferStep::StartTls;
            }
        }
        NbdOfferStep::More
    }

    /// The export with this name; the first export for an empty name.
    fn find(&self, name: &str) -> Option<usize> {
        let found = self.exports.iter().position(|export| export.name == name);
        found.or((name.is_empty() && !self.exports.is_empty()).then_some(0))
    }

    fn flags(&self, export: &NbdOffered) -> u16 {
        let df = brunt_wire::nbd::export_flag::SEND_DF;
        if self.headers > NbdHeaders::Simple {
            export.flags | df
        } else {
            export.flags
        }
    }

    fn agreed(&mut self, export: usize) -> NbdOfferStep {
        self.state = OfferState::Over;
        let block_status = self.status_of == Some(export);
        NbdOfferStep::Serve(NbdAgreement {
            export,
            headers: self.headers,
            block_status,
        })
    }

    fn on_export_name(
        &mut self,
        data: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<NbdOfferStep, NbdOfferError> {
        let name = String::from_utf8_lossy(data);
        let Some(index) = self
            .find(&name)
            .filter(|_| self.headers < NbdHeaders::Extended)
        else {
            return Err(NbdOfferError::NoExport(name.chars().take(80).collect()));
        };
        let export = &self.exports[index];
        answer.extend(export.size_bytes.to_be_bytes());
        answer.extend(self.flags(export).to_be_bytes());
        if !self.no_zeroes {
            answer.resize(answer.len() + ZEROES_BYTES, 0);
        }
        Ok(self.agreed(index))
    }

    fn on_go(&mut self, option: u32, data: &[u8], answer: &mut Vec<u8>) -> NbdOfferStep {
        let mut say =
            |kind: u32, data: &[u8]| answer.extend(NbdOptionReply::encode(option, kind, data));
        let Ok((name, wanted)) = negotiation::parse_go(data) else {
            say(reply::ERR_INVALID, b"the option's lengths do not fit");
            return NbdOfferStep::More;
        };
        let Some(index) = self.find(&name) else {
            say(reply::ERR_UNKNOWN, b"no such export");
            return NbdOfferStep::More;
        };
        let export = &self.exports[index];
        say(reply::INFO, &NbdInfo::BlockSizes(export.sizes).encode());
        // Like nbdkit, accept clients that don't request block sizes: the kernel's client gets them from its user. A
        // request in smaller units is refused, and no data is lost.
        say(
            reply::INFO,
            &NbdInfo::Export(export.size_bytes, self.flags(export)).encode(),
        );
        if wanted.contains(&info::NAME) {
            say(reply::INFO, &NbdInfo::Name(export.name.clone()).encode());
        }
        if wanted.contains(&info::DESCRIPTION) {
            say(
                reply::INFO,
                &NbdInfo::Description(export.description.clone()).encode(),
            );
        }
        say(reply::ACK, &[]);
        if option == option::INFO {
            NbdOfferStep::More
        } else {
            self.agreed(index)
        }
    }

    fn on_meta(&mut self, option: u32, data: &[u8], answer: &mut Vec<u8>) {
        let mut say =
            |kind: u32, data: &[u8]| answer.extend(NbdOptionReply::encode(option, kind, data));
        let set = option == option::SET_META_CONTEXT;
        if set {
            self.status_of = None;
        }
        if self.headers == NbdHeaders::Simple {
            return say(reply::ERR_INVALID, b"structured replies come first");
        }
        let Ok((name, queries)) = negotiation::parse_meta_query(data) else {
            return say(reply::ERR_INVALID, b"the option's lengths do not fit");
        };
        let Some(index) = self.find(&name) else {
            return say(reply::ERR_UNKNOWN, b"no such export");
        };
        let meant = |query: &String| query == allocation::CONTEXT || (!set && query == "base:");
        if queries.iter().any(meant) || (!set && queries.is_empty()) {
            let number = if set { ALLOCATION_CONTEXT } else { 0 };
            say(
                reply::META_CONTEXT,
                &[&number.to_be_bytes()[..], allocation::CONTEXT.as_bytes()].concat(),
            );
            if set {
                self.status_of = Some(index);
            }
        }
        say(reply::ACK, &[]);
    }
}

fn malformed(error: ParseError) -> NbdOfferError {
    match error {
        ParseError::Malformed(malformed) => malformed.into(),
        ParseError::Incomplete(needed) => {
            Malformed::new(needed, "more data than in the option").into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::handshake::{NbdHandshake, NbdHandshakeOptions, NbdStep};
    use brunt_wire::nbd::export_flag;

    fn exports() -> Vec<NbdOffered> {
        let export = |name: &str, minimum| NbdOffered {
            name: name.to_string(),
            description: format!("{name} in words"),
            size_bytes: 1 << 30,
            flags: export_flag::HAS_FLAGS | export_flag::SEND_FLUSH,
            sizes: NbdBlockSizes {
                minimum,
                preferred: 4096,
                payload_max: 16 << 20,
            },
        };
        vec![export("0", 512), export("1", 4096)]
    }

    /// Runs a handshake between our client and our server, byte by byte in both directions.
    fn negotiate(wishes: NbdHandshakeOptions) -> (NbdStep, Option<NbdAgreement>) {
        let (mut offer, mut to_client) = NbdOffer::new(exports(), NbdTlsPolicy::Absent);
        let mut handshake = NbdHandshake::new(wishes);
        let (mut to_server, mut agreed) = (Vec::new(), None);
        loop {
            while to_client.len() >= handshake.wants() {
                let rest = to_client.split_off(handshake.wants());
                let now = std::mem::replace(&mut to_client, rest);
                match handshake.on_bytes(&now).unwrap() {
                    NbdStep::More => {}
                    NbdStep::Send(bytes) => to_server.extend(bytes),
                    over => return (over, agreed),
                }
            }
            while agreed.is_none() && to_server.len() >= offer.wants() {
                let rest = to_server.split_off(offer.wants());
                let now = std::mem::replace(&mut to_server, rest);
                match offer.on_bytes(&now, &mut to_client).unwrap() {
                    NbdOfferStep::More => {}
                    NbdOfferStep::Serve(agreement) => agreed = Some(agreement),
                    NbdOfferStep::Close => panic!("nobody said goodbye"),
                    NbdOfferStep::StartTls => panic!("nobody asked for TLS"),
                }
            }
        }
    }

    fn wishes(export: &str, headers: NbdHeaders) -> NbdHandshakeOptions {
        NbdHandshakeOptions {
            export: export.to_string(),
            headers,
            tls: false,
            list: false,
        }
    }

    #[test]
    fn both_ends_agree() {
        for headers in [
            NbdHeaders::Simple,
            NbdHeaders::Structured,
            NbdHeaders::Extended,
        ] {
            let (step, agreed) = negotiate(wishes("1", headers));
            let NbdStep::Done(export) = step else {
                panic!("{step:?}")
            };
            let status = headers > NbdHeaders::Simple;
            assert_eq!(
                agreed,
                Some(NbdAgreement {
                    export: 1,
                    headers,
                    block_status: status
                })
            );
            assert_eq!(
                (export.headers, export.allocation_context.is_some()),
                (headers, status)
            );
            assert_eq!(
                (export.size_bytes, export.sizes),
                (1 << 30, Some(exports()[1].sizes))
            );
            assert_eq!(export.description.as_deref(), Some("1 in words"));
            assert_eq!(export.has(export_flag::SEND_DF), status);
        }
        let (step, agreed) = negotiate(wishes("", NbdHeaders::Simple));
        assert!(matches!(step, NbdStep::Done(export) if export.name.as_deref() == Some("0")));
        assert_eq!(agreed.unwrap().export, 0, "the first is the default");
        let (step, _) = negotiate(NbdHandshakeOptions {
            list: true,
            ..wishes("", NbdHeaders::Simple)
        });
        assert!(matches!(step, NbdStep::Listed(names, _) if names.len() == 2 && names[1].0 == "1"));
    }

    /// The replies to invalid and unknown options.
    #[test]
    fn invalid_and_unknown_options_get_their_replies() {
        let check = |option: u32, data: &[u8], kind: u32| {
            let (mut offer, _) = NbdOffer::new(exports(), NbdTlsPolicy::Absent);
            let mut answer = Vec::new();
            offer.on_bytes(&[0, 0, 0, 3], &mut answer).unwrap();
            let bytes = negotiation::encode_option(option, data);
            offer.on_bytes(&bytes[..OPTION_BYTES], &mut answer).unwrap();
            offer.on_bytes(data, &mut answer).unwrap();
            let header = NbdOptionReply::parse(&answer).unwrap();
            assert_eq!((header.option, header.kind), (option, kind), "{option}");
        };
        check(option::STARTTLS, &[], reply::ERR_POLICY);
        check(99, b"whatever", reply::ERR_UNSUP);
        check(option::LIST, b"x", reply::ERR_INVALID);
        check(
            option::GO,
            &negotiation::encode_go("7", &[]),
            reply::ERR_UNKNOWN,
        );
        check(option::GO, &[0xff; 6], reply::ERR_INVALID);
        check(
            option::SET_META_CONTEXT,
            &negotiation::encode_meta_query("0", &[]),
            reply::ERR_INVALID,
        );
        check(option::ABORT, &[], reply::ACK);
    }

    /// The kernel's client doesn't request block sizes, but works with 4 KiB blocks if configured accordingly.
    #[test]
    fn clients_that_do_not_ask_get_exports_of_4_kib_blocks() {
        let (mut offer, _) = NbdOffer::new(exports(), NbdTlsPolicy::Absent);
        offer.on_bytes(&[0, 0, 0, 1], &mut Vec::new()).unwrap();
        let go = negotiation::encode_go("1", &[]);
        let (kind, step) = kinds(&mut offer, &[(option::GO, &go)])[0];
        assert_eq!(kind, reply::ACK);
        assert!(matches!(
            step,
            NbdOfferStep::Serve(NbdAgreement { export: 1, .. })
        ));
    }

    /// A client that queries each of many exports stays within the limit of options.
    #[test]
    fn many_exports_are_listed_in_one_handshake() {
        let exports: Vec<NbdOffered> = (0..300)
            .map(|number| NbdOffered {
                name: number.to_string(),
                ..exports()[0].clone()
            })
            .collect();
        let (mut offer, _) = NbdOffer::new(exports, NbdTlsPolicy::Absent);
        offer.on_bytes(&[0, 0, 0, 1], &mut Vec::new()).unwrap();
        let mut asked = vec![
            (option::STRUCTURED_REPLY, Vec::new()),
            (option::LIST, Vec::new()),
        ];
        for number in 0..300 {
            let name = number.to_string();
            asked.push((
                option::LIST_META_CONTEXT,
                negotiation::encode_meta_query(&name, &[]),
            ));
            for _ in 0..4 {
                asked.push((
                    option::INFO,
                    negotiation::encode_go(&name, &[info::BLOCK_SIZE]),
                ));
            }
        }
        let asked: Vec<(u32, &[u8])> = asked
            .iter()
            .map(|(kind, data)| (*kind, &data[..]))
            .collect();
        let answers = kinds(&mut offer, &asked);
        assert!(
            answers
                .iter()
                .all(|answer| *answer == (reply::ACK, NbdOfferStep::More))
        );
    }

    /// Sends options one by one; returns the kind of the last reply to each.
    fn kinds(offer: &mut NbdOffer, options: &[(u32, &[u8])]) -> Vec<(u32, NbdOfferStep)> {
        let kind = |(option, data): &(u32, &[u8])| {
            let mut answer = Vec::new();
            let bytes = negotiation::encode_option(*option, data);
            assert_eq!(
                offer.on_bytes(&bytes[..OPTION_BYTES], &mut answer),
                Ok(NbdOfferStep::More)
            );
            let step = offer.on_bytes(data, &mut answer).unwrap();
            let mut rest = &answer[..];
            let mut last = 0;
            while !rest.is_empty() {
                let reply = NbdOptionReply::parse(rest).unwrap();
                last = reply.kind;
                rest = &rest[20 + reply.len as usize..];
            }
            (last, step)
        };
        options.iter().map(kind).collect()
    }

    /// If TLS is required, only the options that lead to it are answered before it; what was negotiated before TLS is
    /// forgotten.
    #[test]
    fn tls_comes_first() {
        use NbdOfferStep::{Close, More, StartTls};
        let go = negotiation::encode_go("0", &[]);
        let meta = negotiation::encode_meta_query("0", &[allocation::CONTEXT]);
        let begun = |policy| {
            let (mut offer, _) = NbdOffer::new(exports(), policy);
            offer.on_bytes(&[0, 0, 0, 3], &mut Vec::new()).unwrap();
            offer
        };
        let mut offer = begun(NbdTlsPolicy::Required);
        let plain: [(u32, &[u8]); 6] = [
            (option::LIST, b""),
            (option::GO, &go),
            (option::INFO, &go),
            (option::EXTENDED_HEADERS, b""),
            (99, b"what"),
            (option::STARTTLS, b"x"),
        ];
        let mut expected = vec![(reply::ERR_TLS_REQD, More); 5];
        expected.push((reply::ERR_INVALID, More));
        assert_eq!(kinds(&mut offer, &plain), expected);
        let ways = [
            (option::STARTTLS, &b""[..]),
            (option::STARTTLS, b""),
            (option::LIST, b""),
        ];
        let expected = [
            (reply::ACK, StartTls),
            (reply::ERR_INVALID, More),
            (reply::ACK, More),
        ];
        assert_eq!(kinds(&mut offer, &ways), expected);
        let served = |headers, block_status| {
            (
                reply::ACK,
                NbdOfferStep::Serve(NbdAgreement {
                    export: 0,
                    headers,
                    block_status,
                }),
            )
        };
        assert_eq!(
            kinds(&mut offer, &[(option::GO, &go)]),
            [served(NbdHeaders::Simple, false)]
        );
        assert_eq!(
            kinds(&mut begun(NbdTlsPolicy::Required), &[(option::ABORT, b"")]),
            [(reply::ACK, Close)],
            "who leaves may leave"
        );

        let mut offer = begun(NbdTlsPolicy::Offered);
        let before: [(u32, &[u8]); 3] = [
            (option::STRUCTURED_REPLY, b""),
            (option::SET_META_CONTEXT, &meta),
            (option::STARTTLS, b""),
        ];
        assert_eq!(kinds(&mut offer, &before)[2], (reply::ACK, StartTls));
        assert_eq!(
            kinds(&mut offer, &[(option::GO, &go)]),
            [served(NbdHeaders::Simple, false)]
        );
        let mut offer = begun(NbdTlsPolicy::Offered);
        kinds(&mut offer, &before[..2]);
        assert_eq!(
            kinds(&mut offer, &[(option::GO, &go)]),
            [served(NbdHeaders::Structured, true)]
        );

        let mut offer = begun(NbdTlsPolicy::Required);
        let name = negotiation::encode_option(option::EXPORT_NAME, b"0");
        offer
            .on_bytes(&name[..OPTION_BYTES], &mut Vec::new())
            .unwrap();
        assert_eq!(
            offer.on_bytes(b"0", &mut Vec::new()),
            Err(NbdOfferError::InTheClear)
        );
    }

    /// Violations that end a connection.
    #[test]
    fn violations_end_the_connection() {
        let (mut offer, _) = NbdOffer::new(exports(), NbdTlsPolicy::Absent);
        let mut answer = Vec::new();
        assert_eq!(
            offer.on_bytes(&[0, 0, 0, 4], &mut answer),
            Err(NbdOfferError::Flags(4))
        );
        let (mut offer, _) = NbdOffer::new(exports(), NbdTlsPolicy::Absent);
        offer.on_bytes(&[0, 0, 0, 0], &mut answer).unwrap();
        let mut long = negotiation::encode_option(option::GO, &[]);
        long[12..].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(
            offer.on_bytes(&long, &mut answer),
            Err(NbdOfferError::Long(u32::MAX))
        );
        let (mut offer, _) = NbdOffer::new(exports(), NbdTlsPolicy::Absent);
        offer.on_bytes(&[0, 0, 0, 0], &mut answer).unwrap();
        let name = negotiation::encode_option(option::EXPORT_NAME, b"no");
        offer.on_bytes(&name[..16], &mut answer).unwrap();
        assert_eq!(
            offer.on_bytes(b"no", &mut answer),
            Err(NbdOfferError::NoExport("no".into()))
        );
        let (mut offer, _) = NbdOffer::new(exports(), NbdTlsPolicy::Absent);
        offer.on_bytes(&[0, 0, 0, 0], &mut answer).unwrap();
        assert!(matches!(
            offer.on_bytes(&[0; 16], &mut answer),
            Err(NbdOfferError::Malformed(_))
        ));
    }
}
