//! Sessions with servers that answer in every allowed way, and in some invalid ways.

use brunt_wire::nbd::export_flag::{HAS_FLAGS, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES};
use brunt_wire::nbd::transmission::{command_flag, encode_error, encode_hole};
use brunt_wire::nbd::{NbdChunk, NbdHeaders, NbdReply, errno};

use super::*;

const ALL: u16 = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES;
const NOW: Nanos = Nanos(1_000_000_000);

fn export(headers: NbdHeaders, flags: u16) -> NbdExport {
    NbdExport {
        size_bytes: 8 << 30,
        flags,
        headers,
        ..NbdExport::unknown()
    }
}

fn session(headers: NbdHeaders, flags: u16) -> NbdSession {
    let config = NbdSessionConfig {
        depth: 4,
        block_bytes: 512,
        timeout: Duration::from_secs(30),
        tries: 2,
    };
    let mut session = NbdSession::new(config, export(headers, flags));
    session.attach(export(headers, flags), NOW);
    session
}

fn request(op: Op, offset: u64, len: u64) -> Request {
    let moves_data = matches!(op, Op::Read | Op::Write);
    let buf = if moves_data {
        Buf::zeroed(len as usize)
    } else {
        Buf::empty()
    };
    Request {
        tag: 77,
        op,
        offset,
        len,
        buf,
        force_unit_access: false,
    }
}

/// Sends all ready commands and returns them as a server would parse them.
fn pull(session: &mut NbdSession) -> Vec<NbdRequest> {
    let headers = session.export().headers;
    std::iter::from_fn(|| session.pull())
        .map(|out| {
            let (request, len, payload) = NbdRequest::parse(&out.header, headers).unwrap();
            assert_eq!(len, out.header.len());
            assert_eq!(
                payload as usize,
                out.data.map_or(out.zeros, |data| data.len)
            );
            request
        })
        .collect()
}

fn retire(session: &mut NbdSession) -> Option<Completion> {
    let index = session.next_answered()?;
    Some(session.retire(index))
}

/// Passes in a server's reply, like a driver.
fn answer(
    session: &mut NbdSession,
    done: bool,
    request: &NbdRequest,
    chunk: NbdChunk,
    payload: &[u8],
) -> Result<(), NbdViolation> {
    let offset = (session.export().headers == NbdHeaders::Extended).then_some(request.offset);
    let reply = NbdReply::Chunk {
        done,
        cookie: request.cookie,
        offset,
        chunk,
    };
    match session.on_header(&reply)? {
        NbdPayload::Task(range) => {
            session.data(range.task)[range.start..range.start + range.len].copy_from_slice(payload);
            session.on_reply(&reply, &[], NOW)
        }
        NbdPayload::Short(len) => {
            assert_eq!(len, payload.len());
            session.on_reply(&reply, payload, NOW)
        }
    }
}

fn simple(session: &mut NbdSession, request: &NbdRequest, error: u32) -> Result<(), NbdViolation> {
    let reply = NbdReply::Simple {
        error,
        cookie: request.cookie,
    };
    session.on_header(&reply)?;
    session.on_reply(&reply, &[], NOW)
}

/// A read is assembled from parts that arrive in any order, including a hole.
#[test]
fn a_read_is_assembled_from_parts_in_any_order() {
    for headers in [NbdHeaders::Structured, NbdHeaders::Extended] {
        let mut session = session(headers, ALL);
        let mut read = request(Op::Read, 4096, 4096);
        read.buf.fill(0xaa);
        session.submit(read, NOW).unwrap();
        let sent = pull(&mut session);
        assert_eq!(
            (sent.len(), sent[0].command, sent[0].offset, sent[0].len),
            (1, NbdCommand::Read, 4096, 4096)
        );
        let part = |offset| NbdChunk::Data { offset, len: 1024 };
        answer(&mut session, false, &sent[0], part(7168), &[3; 1024]).unwrap();
        answer(&mut session, false, &sent[0], part(4096), &[1; 1024]).unwrap();
        let hole = encode_hole(5120, 2048);
        answer(&mut session, false, &sent[0], NbdChunk::Hole(12), &hole).unwrap();
        assert!(session.next_answered().is_none());
        answer(&mut session, true, &sent[0], NbdChunk::None, &[]).unwrap();
        let retired = retire(&mut session).unwrap();
        assert_eq!((retired.tag, retired.result), (77, Ok(())));
        let expected = [vec![1; 1024], vec![0; 2048], vec![3; 1024]].concat();
        assert_eq!(retired.buf[..], expected[..]);
        assert_eq!(session.outstanding(), 0);
    }
}

/// Every invalid reply is reported, and its request waits for a new connection.
#[test]
fn every_invalid_reply_is_reported() {
    let data = |offset, len| NbdChunk::Data { offset, len };
    type Reply<'a> = (bool, NbdChunk, &'a [u8]);
    let check = |replies: &[Reply<'_>], expected: NbdViolation| {
        let mut session = session(NbdHeaders::Structured, ALL);
        session.submit(request(Op::Read, 4096, 4096), NOW).unwrap();
        let sent = pull(&mut session);
        let mut result = Ok(());
        for (done, chunk, payload) in replies {
            assert_eq!(result, Ok(()), "before the last reply");
            result = answer(&mut session, *done, &sent[0], *chunk, payload);
        }
        assert_eq!(result, Err(expected));
        // The driver drops the connection; the request is still unanswered.
        session.detach();
        assert!(session.next_answered().is_none() && session.outstanding() == 1);
    };
    check(&[(true, data(4095, 4096), &[])], NbdViolation::Range);
    check(&[(true, data(0, 512), &[])], NbdViolation::Range);
    check(&[(true, data(u64::MAX, 512), &[])], NbdViolation::Range);
    check(&[(true, data(4096, 8192), &[])], NbdViolation::Range);
    let kib = [0; 1024];
    check(
        &[(false, data(4096, 1024), &kib), (false, data(5119, 2), &[])],
        NbdViolation::Overlap,
    );
    check(
        &[(false, data(4096, 1024), &kib), (true, NbdChunk::None, &[])],
        NbdViolation::Short,
    );
    check(&[(true, NbdChunk::None, &[])], NbdViolation::Short);
    check(
        &[(true, NbdChunk::Hole(12), &encode_hole(4096, 8192))],
        NbdViolation::Range,
    );
    check(
        &[(
            true,
            NbdChunk::BlockStatus {
                wide: false,
                len: 12,
            },
            &[],
        )],
        NbdViolation::Kind,
    );
    check(&[(true, NbdChunk::Other(99, 0), &[])], NbdViolation::Kind);
    check(
        &[(
            true,
            NbdChunk::Error {
                offset: None,
                len: 1 << 20,
            },
            &[],
        )],
        NbdViolation::Long,
    );

    let mut session = session(NbdHeaders::Structured, ALL);
    session.submit(request(Op::Write, 0, 512), NOW).unwrap();
    let mut sent = pull(&mut session);
    assert_eq!(
        answer(&mut session, true, &sent[0], data(0, 512), &[]),
        Err(NbdViolation::Kind)
    );
    sent[0].cookie ^= 1 << 16;
    assert_eq!(simple(&mut session, &sent[0], 0), Err(NbdViolation::Cookie));
    sent[0].cookie ^= 1 << 16;
    assert_eq!(simple(&mut session, &sent[0], 0), Ok(()));
    assert_eq!(
        simple(&mut session, &sent[0], 0),
        Err(NbdViolation::Cookie),
        "answered twice"
    );
    session.submit(request(Op::Read, 0, 512), NOW).unwrap();
    let sent = pull(&mut session);
    assert_eq!(
        simple(&mut session, &sent[0], 0),
        Err(NbdViolation::Kind),
        "a read in one piece"
    );
}

/// Errors contain the server's number and text with every header style; earlier data doesn't turn them into a success.
#[test]
fn errors_have_the_servers_number_and_text() {
    let mut session = session(NbdHeaders::Structured, ALL);
    session.submit(request(Op::Read, 0, 1024), NOW).unwrap();
    let sent = pull(&mut session);
    answer(
        &mut session,
        false,
        &sent[0],
        NbdChunk::Data {
            offset: 0,
            len: 512,
        },
        &[1; 512],
    )
    .unwrap();
    let words = encode_error(errno::IO, "sector 1 is bad");
    let payload = [words, 512_u64.to_be_bytes().to_vec()].concat();
    let chunk = NbdChunk::Error {
        offset: Some(true),
        len: payload.len() as u32,
    };
    answer(&mut session, false, &sent[0], chunk, &payload).unwrap();
    assert!(session.next_answered().is_none(), "the reply is not done");
    answer(&mut session, true, &sent[0], NbdChunk::None, &[]).unwrap();
    let error = retire(&mut session).unwrap().result.unwrap_err();
    assert_eq!(
        crate::nbd::device_errors::number_of(&error),
        Some(errno::IO)
    );
    assert_eq!(session.counts().words.as_deref(), Some("sector 1 is bad"));

    session.submit(request(Op::Write, 0, 512), NOW).unwrap();
    let sent = pull(&mut session);
    simple(&mut session, &sent[0], errno::NOSPC).unwrap();
    let error = retire(&mut session).unwrap().result.unwrap_err();
    assert_eq!(
        crate::nbd::device_errors::number_of(&error),
        Some(errno::NOSPC)
    );
}

/// The commands of a request depend on what the server supports.
#[test]
fn a_requests_commands_depend_on_what_the_server_supports() {
    let run = |headers, flags, op, len, fua| {
        let mut session = session(headers, flags);
        session
            .submit(
                Request {
                    force_unit_access: fua,
                    ..request(op, 1 << 20, len)
                },
                NOW,
            )
            .unwrap();
        let mut commands = Vec::new();
        loop {
            let sent = pull(&mut session);
            let Some(sent) = sent.first() else { break };
            commands.push((sent.command, sent.flags, sent.offset, sent.len));
            match headers {
                NbdHeaders::Simple => simple(&mut session, sent, 0).unwrap(),
                _ => answer(&mut session, true, sent, NbdChunk::None, &[]).unwrap(),
            }
        }
        (commands, retire(&mut session).map(|retired| retired.result))
    };
    let check = |headers, flags, op, len, fua, expected: &[(NbdCommand, u16, u64, u64)]| {
        assert_eq!(
            run(headers, flags, op, len, fua),
            (expected.to_vec(), Some(Ok(()))),
            "{op:?}"
        );
    };
    use NbdCommand::{Flush, Trim, Write, WriteZeroes};
    use NbdHeaders::{Extended, Simple};
    const AT: u64 = 1 << 20;
    check(
        Simple,
        ALL,
        Op::Write,
        512,
        true,
        &[(Write, command_flag::FUA, AT, 512)],
    );
    check(
        Simple,
        ALL & !SEND_FUA,
        Op::Write,
        512,
        true,
        &[(Write, 0, AT, 512), (Flush, 0, 0, 0)],
    );
    check(
        Simple,
        HAS_FLAGS,
        Op::Write,
        512,
        true,
        &[(Write, 0, AT, 512)],
    );
    check(Simple, ALL, Op::Flush, 0, false, &[(Flush, 0, 0, 0)]);
    check(Simple, HAS_FLAGS, Op::Flush, 0, false, &[]);
    let gib = 1 << 30;
    let two = [(Trim, 0, AT, gib), (Trim, 0, AT + gib, 512)];
    check(Simple, ALL, Op::Unmap, gib + 512, false, &two);
    check(
        Extended,
        ALL,
        Op::Unmap,
        gib + 512,
        false,
        &[(Trim, 0, AT, gib + 512)],
    );
    check(
        Simple,
        ALL & !SEND_TRIM,
        Op::Unmap,
        512,
        false,
        &[(WriteZeroes, 0, AT, 512)],
    );
    check(
        Simple,
        ALL,
        Op::WriteZeroes,
        512,
        false,
        &[(WriteZeroes, command_flag::NO_HOLE, AT, 512)],
    );
    let long = 33 << 20;
    let zeros = [
        (Write, 0, AT, 32 << 20),
        (Write, 0, AT + (32 << 20), 1 << 20),
    ];
    check(Simple, HAS_FLAGS, Op::WriteZeroes, long, false, &zeros);
    let refused = run(Simple, HAS_FLAGS, Op::Unmap, 512, false);
    assert_eq!(refused, (Vec::new(), Some(Err(DeviceError::Unsupported))));
}

/// Commands in flight are sent again on the next connection, in order, up to the maximum number of attempts; late ones
/// are counted.
#[test]
fn commands_in_flight_are_sent_again_on_the_next_connection() {
    let mut session = session(NbdHeaders::Simple, ALL);
    for offset in [0, 512, 1024] {
        session
            .submit(
                Request {
                    tag: offset,
                    ..request(Op::Write, offset, 512)
                },
                NOW,
            )
            .unwrap();
    }
    let sent = pull(&mut session);
    simple(&mut session, &sent[1], 0).unwrap();
    session.detach();
    assert_eq!(
        (session.counts().replays, session.deadline()),
        (2, Nanos(0))
    );
    assert_eq!(retire(&mut session).unwrap().tag, 512);
    session
        .submit(
            Request {
                tag: 9,
                ..request(Op::Write, 4096, 512)
            },
            NOW,
        )
        .unwrap();
    assert!(session.pull().is_none(), "there is no connection");
    session.cancel(9);
    let cancelled = retire(&mut session).unwrap();
    assert_eq!(
        cancelled.result,
        Err(DeviceError::refused(RefusalKind::Cancelled))
    );
    session.attach(export(NbdHeaders::Simple, ALL), NOW);
    let again = pull(&mut session);
    assert_eq!(
        again.iter().map(|one| one.offset).collect::<Vec<_>>(),
        [0, 1024]
    );
    assert!(
        again[0].cookie != sent[0].cookie,
        "an answer to the old one fits no new one"
    );
    session.on_time(NOW.after(Duration::from_secs(29)));
    assert_eq!(session.lost(), None);
    session.on_time(NOW.after(Duration::from_secs(30)));
    assert_eq!(
        (session.lost(), session.counts().timeouts),
        (Some(NbdLoss::NoAnswer), 2)
    );
    session.detach();
    let results = [retire(&mut session), retire(&mut session)].map(|one| one.unwrap().result);
    assert_eq!(
        results,
        [Err(DeviceError::TimedOut); 2],
        "two attempts are allowed"
    );
}

/// When a server shuts down, its requests wait for the next connection; if there is none, all of them fail.
#[test]
fn requests_of_a_server_that_shuts_down_wait_for_the_next_connection() {
    let mut session = session(NbdHeaders::Simple, ALL);
    session.submit(request(Op::Write, 0, 512), NOW).unwrap();
    let sent = pull(&mut session);
    simple(&mut session, &sent[0], errno::SHUTDOWN).unwrap();
    assert_eq!(session.lost(), Some(NbdLoss::ShuttingDown));
    assert!(session.pull().is_none() && session.next_answered().is_none());
    session.detach();
    session.fail_all(DeviceError::Gone);
    assert_eq!(retire(&mut session).unwrap().result, Err(DeviceError::Gone));
    assert_eq!(session.room(), 4);
}
