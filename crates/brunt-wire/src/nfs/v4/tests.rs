use super::*;
use crate::{Cursor, ParseError, rpc};

/// A real call and its reply, without record marks.
struct Golden {
    call: Vec<u8>,
    reply: Vec<u8>,
}

/// Compounds from a real capture (Linux 6.1 with 4.0, 4.1 and 4.2, and libnfs), one of each shape.
fn goldens() -> Vec<Golden> {
    let bytes = |text: &str| -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
            .collect()
    };
    include_str!("../../../testdata/nfs4-messages.hex")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (call, reply) = line.split_once(' ').unwrap();
            Golden {
                call: bytes(call),
                reply: bytes(reply),
            }
        })
        .collect()
}

fn body(message: &[u8]) -> &[u8] {
    match rpc::parse(message).unwrap() {
        rpc::RpcMessage::Call(call) => &message[call.body_at..],
        rpc::RpcMessage::Reply(reply) => &message[reply.body_at..],
    }
}

/// Every real message is parsed to its last byte and has the announced number of results, each for the requested
/// operation; no attribute is unknown.
#[test]
fn every_shape_parses_to_the_last_byte() {
    let mut seen = std::collections::BTreeSet::new();
    let mut minors = std::collections::BTreeSet::new();
    for golden in goldens() {
        let call = CompoundArgs::parse(&mut Cursor::new(body(&golden.call))).unwrap();
        let mut calls = call.operations();
        let asked: Vec<Args<'_>> = calls.by_ref().map(Result::unwrap).collect();
        assert_eq!(
            (asked.len() as u32, calls.rest()),
            (call.count, &[][..]),
            "{asked:?}"
        );
        let reply = CompoundResults::parse(&mut Cursor::new(body(&golden.reply))).unwrap();
        let mut replies = reply.operations();
        let answered: Vec<OpResult<'_>> = replies.by_ref().map(Result::unwrap).collect();
        assert_eq!(
            (answered.len() as u32, replies.rest()),
            (reply.count, &[][..]),
            "{answered:?}"
        );
        assert_eq!(answered.last().map(|last| last.status), Some(reply.status));
        minors.insert(call.minor_version);
        for step in Walk::new(&call, Some(&reply)) {
            seen.insert(step.args.op().unwrap());
            if let Some(OpResult {
                body: ResultBody::Getattr { attributes },
                ..
            }) = step.result
            {
                assert_eq!(attributes.parse().unparsed, None);
            }
            if let Some(OpResult {
                body: ResultBody::Readdir { entries, .. },
                ..
            }) = step.result
            {
                assert_eq!(entries.iter().count() as u32, entries.count());
                assert!(
                    entries
                        .iter()
                        .all(|entry| entry.attributes.parse().unparsed.is_none())
                );
            }
        }
    }
    assert_eq!(minors.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    assert!(seen.len() >= 30, "operations in the goldens: {seen:?}");
}

/// A message truncated at any byte is incomplete, never malformed, and reports how many bytes are needed.
#[test]
fn cut_anywhere_is_incomplete() {
    let incomplete = |error: ParseError, end: usize| match error {
        ParseError::Incomplete(need) => assert!(need > end, "{need} of {end}"),
        ParseError::Malformed(error) => panic!("cut at {end}: {error}"),
    };
    for golden in goldens() {
        let (call, reply) = (body(&golden.call), body(&golden.reply));
        for end in 0..call.len() {
            match CompoundArgs::parse(&mut Cursor::new(&call[..end])) {
                Ok(parsed) => parsed
                    .operations()
                    .filter_map(Result::err)
                    .for_each(|e| incomplete(e, end)),
                Err(error) => incomplete(error, end),
            }
        }
        for end in (0..reply.len()).filter(|end| *end < 1000 || reply.len() - end < 300) {
            match CompoundResults::parse(&mut Cursor::new(&reply[..end])) {
                Ok(parsed) => parsed
                    .operations()
                    .filter_map(Result::err)
                    .for_each(|e| incomplete(e, end)),
                Err(error) => incomplete(error, end),
            }
        }
    }
}

/// Changing any byte never causes a panic, and every iteration yields what was validated.
#[test]
fn damage_never_panics() {
    let mut random = 7u64;
    for golden in goldens() {
        for _ in 0..1000 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let mut call = body(&golden.call).to_vec();
            let mut reply = body(&golden.reply).to_vec();
            for bytes in [&mut call, &mut reply] {
                let at = (random >> 33) as usize % bytes.len();
                bytes[at] = (random >> 20) as u8;
            }
            let Ok(parsed) = CompoundArgs::parse(&mut Cursor::new(&call)) else {
                continue;
            };
            let answer = CompoundResults::parse(&mut Cursor::new(&reply)).ok();
            for step in Walk::new(&parsed, answer.as_ref()) {
                match step.result.map(|result| result.body) {
                    Some(ResultBody::Getattr { attributes }) => drop(attributes.parse()),
                    Some(ResultBody::Readdir { entries, .. }) => {
                        assert_eq!(entries.iter().count() as u32, entries.count());
                    }
                    _ => {}
                }
            }
        }
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Nothing is parsed after an unknown operation, in calls and in replies.
#[test]
fn unknown_operations_end_the_parsing() {
    // GETFH, number 99, GETFH.
    let bytes = words(&[0, 2, 3, 10, 99, 10]);
    let call = CompoundArgs::parse(&mut Cursor::new(&bytes)).unwrap();
    let asked: Vec<_> = call.operations().map(Result::unwrap).collect();
    assert_eq!(asked, [Args::Getfh, Args::Unknown(99)]);
    let bytes = words(&[0, 0, 3, 24, 0, 99, 0, 10, 0, 0]);
    let reply = CompoundResults::parse(&mut Cursor::new(&bytes)).unwrap();
    let answered: Vec<_> = reply
        .operations()
        .map(|result| result.unwrap().body)
        .collect();
    assert_eq!(answered, [ResultBody::Empty, ResultBody::Unknown]);
}

/// Known attributes before an unknown one are parsed, and the unknown one is reported.
#[test]
fn unknown_attributes_end_the_list() {
    // type (1), size (4), number 90, in three words; their values: 1, 4096, and eight bytes.
    let bytes = words(&[
        3,
        1 << 1 | 1 << 4,
        0,
        1 << (90 - 64),
        20,
        1,
        0,
        4096,
        7,
        7,
        0xffff,
    ]);
    let mut cur = Cursor::new(&bytes);
    let attributes = FileAttributes::read(&mut cur).unwrap();
    assert_eq!(
        cur.u32().unwrap(),
        0xffff,
        "the list was walked over as a whole"
    );
    let found = attributes.parse();
    assert_eq!(
        (found.kind, found.size, found.unparsed),
        (Some(1), Some(4096), Some(90))
    );
    assert_eq!(attributes.mask.iter().collect::<Vec<_>>(), [1, 4, 90]);
    assert!(attributes.mask.has(90) && !attributes.mask.has(89) && !attributes.mask.has(4000));
}

/// The current handle follows PUTFH, SAVEFH, LOOKUP, GETFH and RESTOREFH.
#[test]
fn handles_follow_the_operations_of_a_compound() {
    // PUTFH "abcd", SAVEFH, LOOKUP "x", GETFH, RESTOREFH, GETFH.
    let name = u32::from_be_bytes(*b"x\0\0\0");
    let handle = u32::from_be_bytes(*b"abcd");
    let other = u32::from_be_bytes(*b"efgh");
    let call = words(&[0, 1, 6, 22, 4, handle, 32, 15, 1, name, 10, 31, 10]);
    let reply = words(&[
        0, 0, 6, 22, 0, 32, 0, 15, 0, 10, 0, 4, other, 31, 0, 10, 0, 4, handle,
    ]);
    let call = CompoundArgs::parse(&mut Cursor::new(&call)).unwrap();
    let reply = CompoundResults::parse(&mut Cursor::new(&reply)).unwrap();
    let places: Vec<CurrentFile<'_>> = Walk::new(&call, Some(&reply))
        .map(|step| step.current)
        .collect();
    let at = |handle: &'static [u8]| CurrentFile::Handle(crate::nfs::FileHandle(handle));
    let expected = [
        CurrentFile::Unset,
        at(b"abcd"),
        at(b"abcd"),
        CurrentFile::Named,
        at(b"efgh"),
        at(b"abcd"),
    ];
    assert_eq!(places, expected);
}

/// CB_SEQUENCE and CB_RECALL are parsed; an operation that isn't parsed ends the list.
#[test]
fn callbacks_are_parsed_up_to_an_unparsed_operation() {
    let mut bytes = words(&[0, 1, 0, 3]);
    bytes.extend(words(&[
        11, 1, 2, 3, 4, 9, 0, 0, 1, 1, 5, 6, 7, 8, 1, 30, 31,
    ]));
    bytes.extend(words(&[4, 1, 2, 3, 4, 0, 4, 0x61626364]));
    bytes.extend(words(&[5, 1]));
    let callback = CallbackCompound::parse(&mut Cursor::new(&bytes)).unwrap();
    let names: Vec<_> = callback
        .operations()
        .map(|args| args.unwrap().name())
        .collect();
    assert_eq!(names, ["CB_SEQUENCE", "CB_RECALL", "CB_LAYOUTRECALL"]);
    for end in 0..bytes.len() - 8 {
        let cut = CallbackCompound::parse(&mut Cursor::new(&bytes[..end]));
        let error = cut.map(|c| c.operations().find_map(Result::err).expect("cut"));
        assert!(
            matches!(
                error,
                Ok(ParseError::Incomplete(_)) | Err(ParseError::Incomplete(_))
            ),
            "{end}"
        );
    }
}

#[test]
fn operation_numbers_and_names_are_unique() {
    for op in Op::ALL {
        assert_eq!(Op::from_number(*op as u32), Some(*op));
        assert_eq!(
            Op::ALL
                .iter()
                .filter(|other| other.name() == op.name())
                .count(),
            1
        );
    }
    assert_eq!(Op::ALL.len(), 74);
}
