use super::*;
use crate::nfs::mount;
use crate::{Cursor, ParseError, rpc};

struct Golden {
    program: u32,
    procedure: u32,
    call: Vec<u8>,
    reply: Vec<u8>,
}

/// Messages from a real capture: every procedure, with a success and, if it occurred, a failure.
fn goldens() -> Vec<Golden> {
    let bytes = |text: &str| {
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
            .collect()
    };
    include_str!("../../../testdata/nfs3-messages.hex")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            Golden {
                program: fields[0].parse().unwrap(),
                procedure: fields[1].parse().unwrap(),
                call: bytes(fields[2]),
                reply: bytes(fields[3]),
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

/// Every real message is parsed to its last byte, and is incomplete if truncated at any byte.
#[test]
fn every_procedure_parses_to_the_last_byte() {
    let mut seen = std::collections::BTreeSet::new();
    for golden in goldens() {
        let (call, reply) = (body(&golden.call), body(&golden.reply));
        if golden.program == rpc::PROGRAM_MOUNT {
            let mut cur = Cursor::new(call);
            mount::parse_args(golden.procedure, &mut cur).unwrap();
            assert_eq!(cur.rest(), [], "MOUNT {} call", golden.procedure);
            continue;
        }
        let procedure = Procedure::from_number(golden.procedure).unwrap();
        seen.insert(procedure);
        let mut cur = Cursor::new(call);
        let args = parse_args(procedure, &mut cur).unwrap();
        assert_eq!(cur.rest(), [], "{} call", procedure.name());
        assert_eq!(
            leading_handle(procedure, Cursor::new(call)),
            args.handle(),
            "{} call",
            procedure.name()
        );
        let mut cur = Cursor::new(reply);
        parse_results(procedure, &mut cur).unwrap();
        assert_eq!(cur.rest(), [], "{} reply", procedure.name());
        encodes_the_same(procedure, call, reply);
        for end in 0..call.len() {
            match parse_args(procedure, &mut Cursor::new(&call[..end])) {
                Err(ParseError::Incomplete(need)) => assert!(need > end),
                Ok(Args::Write { data, .. }) => assert!(data.bytes.len() <= data.len as usize),
                other => panic!("{} call cut at {end}: {other:?}", procedure.name()),
            }
        }
        for end in (0..reply.len()).filter(|end| *end < 1000 || reply.len() - end < 300) {
            match parse_results(procedure, &mut Cursor::new(&reply[..end])) {
                Err(ParseError::Incomplete(need)) => assert!(need > end),
                Ok(Results {
                    body: ResultBody::Read { data, .. },
                    ..
                }) => {
                    assert!(data.bytes.len() <= data.len as usize)
                }
                other => panic!("{} reply cut at {end}: {other:?}", procedure.name()),
            }
        }
    }
    assert_eq!(seen.len(), 22, "the goldens hold every procedure: {seen:?}");
}

/// Encoding a parsed message yields the bytes that other programs sent.
fn encodes_the_same(procedure: Procedure, call: &[u8], reply: &[u8]) {
    let mut bytes = Vec::new();
    let args = parse_args(procedure, &mut Cursor::new(call)).unwrap();
    assert_eq!(args.procedure(), procedure);
    args.encode(&mut bytes);
    assert_eq!(bytes, call, "{} call", procedure.name());
    bytes.clear();
    let results = parse_results(procedure, &mut Cursor::new(reply)).unwrap();
    results.encode(procedure, &mut bytes);
    assert_eq!(bytes, reply, "{} reply", procedure.name());
}

fn golden(procedure: Procedure) -> Golden {
    goldens()
        .into_iter()
        .find(|g| {
            g.program == rpc::PROGRAM_NFS
                && g.procedure == procedure as u32
                && body(&g.reply).get(3) == Some(&0)
        })
        .unwrap()
}

/// Changing any byte never causes a panic, and no length reaches beyond the message.
#[test]
fn damage_never_panics() {
    let mut random = 99u64;
    for golden in goldens().iter().filter(|g| g.program == rpc::PROGRAM_NFS) {
        let procedure = Procedure::from_number(golden.procedure).unwrap();
        for _ in 0..2000 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let mut call = body(&golden.call).to_vec();
            let mut reply = body(&golden.reply).to_vec();
            for bytes in [&mut call, &mut reply] {
                if let Some(at) = (!bytes.is_empty()).then(|| (random >> 33) as usize % bytes.len())
                {
                    bytes[at] = (random >> 20) as u8;
                }
            }
            let _ = parse_args(procedure, &mut Cursor::new(&call));
            if let Ok(Results {
                body: ResultBody::Readdir { entries, .. },
                ..
            }) = parse_results(procedure, &mut Cursor::new(&reply))
            {
                assert_eq!(entries.iter().count() as u32, entries.count());
            }
        }
    }
}

fn args(golden: &Golden) -> Args<'_> {
    let procedure = Procedure::from_number(golden.procedure).unwrap();
    parse_args(procedure, &mut Cursor::new(body(&golden.call))).unwrap()
}

fn results(golden: &Golden) -> ResultBody<'_> {
    let procedure = Procedure::from_number(golden.procedure).unwrap();
    parse_results(procedure, &mut Cursor::new(body(&golden.reply)))
        .unwrap()
        .body
}

/// Fields of real messages have the same values as in tshark.
#[test]
fn fields_have_the_values_that_tshark_shows() {
    let read = golden(Procedure::Read);
    let Args::Read {
        file,
        offset: 3239,
        count: 1,
    } = args(&read)
    else {
        panic!("{:?}", args(&read))
    };
    assert_eq!(file.0.len(), 28);
    let ResultBody::Read {
        attributes: Some(attributes),
        count: 0,
        eof: true,
        data,
    } = results(&read)
    else {
        panic!("{:?}", results(&read))
    };
    assert_eq!(
        (attributes.kind(), attributes.mode.get(), data.len),
        (FileType::Regular, 0o644, 0)
    );
    assert_eq!(
        (attributes.fileid.get(), attributes.mtime.nseconds.get()),
        (4143, 294131875)
    );

    let write = golden(Procedure::Write);
    let Args::Write {
        offset: 2422,
        count: 1,
        stable: StableHow::FileSync,
        data,
        ..
    } = args(&write)
    else {
        panic!("{:?}", args(&write))
    };
    assert_eq!((data.at, data.len, data.bytes), (52, 1, &b"r"[..]));
    let ResultBody::Write { wcc, count: 1, .. } = results(&write) else {
        panic!("{:?}", results(&write))
    };
    assert_eq!((wcc.before, wcc.after.unwrap().size.get()), (None, 2423));

    let create = golden(Procedure::Create);
    let Args::Create {
        place,
        how: CreateHow::Guarded(set),
    } = args(&create)
    else {
        panic!()
    };
    assert_eq!(
        (place.name, set.mode, set.size),
        (&b"file0_589.c"[..], Some(0o644), None)
    );

    let lookup = golden(Procedure::Lookup);
    assert!(matches!(args(&lookup), Args::Lookup { what } if what.name == b"file180_3c6.c"));
    assert!(
        matches!(results(&lookup), ResultBody::Lookup { attributes: Some(a), .. } if a.fileid.get() == 3605)
    );

    let fsinfo = golden(Procedure::Fsinfo);
    assert!(matches!(
        results(&fsinfo),
        ResultBody::Fsinfo {
            read_max: 1048576,
            ..
        }
    ));

    let plus = golden(Procedure::Readdirplus);
    let ResultBody::Readdir { entries, .. } = results(&plus) else {
        panic!()
    };
    assert_eq!(entries.iter().next().unwrap().name, b".");
    assert_eq!(
        entries
            .iter()
            .filter(|e| e.handle.is_some() && e.attributes.is_some())
            .count(),
        entries.count() as usize
    );
}
