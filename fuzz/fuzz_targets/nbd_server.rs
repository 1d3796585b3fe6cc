//! An NBD server with arbitrary client data: handshakes end, our own client's parsers accept its replies, and every
//! request that reaches a device lies within the export, in whole blocks.
#![no_main]

use brunt_block::{Op, open_url};
use brunt_store::nbd::server::offer::{NbdOffer, NbdOfferStep, NbdOffered, NbdTlsPolicy};
use brunt_store::nbd::server::requests::{NbdRequestHandler, NbdVerdict};
use brunt_wire::nbd::negotiation::NbdOptionReply;
use brunt_wire::nbd::{NbdBlockSizes, NbdHeaders, NbdReply, NbdRequest, export_flag};
use libfuzzer_sys::fuzz_target;

const SIZE: u64 = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let mut bytes = input;
    let (mut offer, _) = NbdOffer::new(exports(), NbdTlsPolicy::Offered);
    let mut answer = Vec::new();
    let agreement = loop {
        let Some((now, later)) = bytes.split_at_checked(offer.wants()) else {
            return;
        };
        bytes = later;
        answer.clear();
        match offer.on_bytes(now, &mut answer) {
            // Treat the following bytes as decrypted data.
            Ok(NbdOfferStep::More | NbdOfferStep::StartTls) => {}
            Ok(NbdOfferStep::Serve(agreement)) => break agreement,
            Ok(NbdOfferStep::Close) | Err(_) => return,
        }
        let mut rest = &answer[..];
        while !rest.is_empty() {
            let reply = NbdOptionReply::parse(rest).expect("an answer is a reply");
            rest = &rest[20 + reply.len as usize..];
        }
    };
    let backend = open_url("memory:1MiB").expect("a memory device");
    let requests = NbdRequestHandler::new(agreement, &exports()[agreement.export]);
    let headers = requests.headers();
    while let Ok((request, header_len, payload)) = NbdRequest::parse(bytes, headers) {
        let skip = header_len as u64 + payload;
        let is_reply = |bytes: &[u8]| {
            assert!(
                NbdReply::parse(bytes, headers).is_ok(),
                "an answer is a reply"
            )
        };
        match requests.judge(&request) {
            NbdVerdict::Run { op: Op::Flush, .. } | NbdVerdict::Nothing => {
                is_reply(&requests.done(request.cookie, request.offset));
            }
            NbdVerdict::Run { op, .. } => {
                assert!(request.offset + request.len <= SIZE, "{op:?} past the end");
                assert!(
                    (request.offset | request.len).is_multiple_of(512),
                    "{op:?} of a part of a block"
                );
                is_reply(&requests.data(request.cookie, request.offset, request.len.max(1) as u32));
            }
            NbdVerdict::Status => {
                assert!(headers > NbdHeaders::Simple, "status needs chunks");
                is_reply(&requests.status(&request, &*backend));
            }
            NbdVerdict::Refuse(error, words) => {
                is_reply(&requests.error(request.cookie, request.offset, error, words));
            }
            NbdVerdict::Leave => return,
        }
        let Some(rest) = usize::try_from(skip)
            .ok()
            .and_then(|skip| bytes.get(skip..))
        else {
            return;
        };
        bytes = rest;
    }
});

fn exports() -> Vec<NbdOffered> {
    let export = |name: &str, flags| NbdOffered {
        name: name.to_string(),
        description: "fuzzed".to_string(),
        size_bytes: SIZE,
        flags: export_flag::HAS_FLAGS | flags,
        sizes: NbdBlockSizes {
            minimum: 512,
            preferred: 4096,
            payload_max: 1 << 20,
        },
    };
    vec![
        export("0", export_flag::SEND_TRIM),
        export("1", export_flag::READ_ONLY),
    ]
}
