//! Sessions with a model of a cluster that answers in any order, loses connections, takes snapshots and refuses
//! requests.

use std::collections::BTreeMap;

use brunt_core::random::Random;
use brunt_wire::sheepdog::header::SheepdogSubject;
use brunt_wire::sheepdog::inode::{DATA_VDI_ID_OFFSET, parse_map};
use brunt_wire::sheepdog::{
    SheepdogInode, SheepdogOpcode, SheepdogRequest, SheepdogResponse, data_object, result,
};

use super::*;
use crate::sheepdog::device_errors;

const OBJECT: u64 = 1 << 20;
const OBJECTS: u64 = 4;
const NOW: Nanos = Nanos(1_000_000_000);

fn inode(vdi: u32) -> SheepdogInode {
    SheepdogInode {
        name: "disk".to_string(),
        tag: String::new(),
        is_snapshot: false,
        size_bytes: OBJECTS * OBJECT,
        copy_policy: 0,
        store_policy: 0,
        copies: 2,
        object_shift: 20,
        snapshot: 1,
        vdi,
        parent: 0,
    }
}

fn session(objects: &Arc<SheepdogObjects>) -> SheepdogSession {
    let config = SheepdogSessionConfig {
        depth: 8,
        timeout: Duration::from_secs(30),
        tries: 50,
        cache: false,
    };
    let mut session = SheepdogSession::new(config, Arc::clone(objects));
    session.attach(NOW);
    session
}

fn disk(map: Vec<u32>) -> Arc<SheepdogObjects> {
    Arc::new(SheepdogObjects::new(inode(7), map))
}

fn request(op: Op, offset: u64, len: u64) -> Request {
    let moves_data = matches!(op, Op::Read | Op::Write);
    let buf = if moves_data {
        Buf::zeroed(len as usize)
    } else {
        Buf::empty()
    };
    Request {
        tag: offset,
        op,
        offset,
        len,
        buf,
        force_unit_access: false,
    }
}

/// A message as received by a server: the request and its data.
#[derive(Clone, Debug)]
struct Message {
    request: SheepdogRequest,
    data: Vec<u8>,
}

impl Message {
    fn object(&self) -> (u64, u64, u32) {
        let SheepdogSubject::Object {
            object,
            cow_object,
            offset,
            ..
        } = self.request.subject
        else {
            panic!()
        };
        (object, cow_object, offset)
    }
}

fn pull(session: &mut SheepdogSession) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Some(out) = session.pull() {
        let request = SheepdogRequest::parse(&out.header).unwrap();
        let mut data = vec![0; out.zeros];
        data.extend(out.entry.iter().flatten());
        if let Some(SheepdogDataRange { task, start, len }) = out.data {
            data.extend(&session.data(task)[start..start + len]);
        }
        let carried = request.flags & flag::WRITE != 0;
        assert_eq!(
            data.len(),
            if carried {
                request.data_len as usize
            } else {
                0
            }
        );
        messages.push(Message { request, data });
    }
    messages
}

/// Passes in a response, like a driver.
fn answer(
    session: &mut SheepdogSession,
    message: &Message,
    result: u32,
    data: &[u8],
    now: Nanos,
) -> Result<(), SheepdogViolation> {
    let response = SheepdogResponse {
        id: message.request.id,
        data_len: data.len() as u32,
        result,
        vdi: 0,
    };
    if let SheepdogPayload::Task(range) = session.on_header(&response)? {
        session.data(range.task)[range.start..range.start + range.len].copy_from_slice(data);
    }
    session.on_response(&response, now)
}

fn retire(session: &mut SheepdogSession) -> Option<Completion> {
    let index = session.next_answered()?;
    Some(session.retire(index))
}

/// A write to a missing object creates the object, then records it in the inode; only then is the write answered and
/// the next one sent.
#[test]
fn an_object_is_written_before_the_inode_names_it() {
    let objects = disk(vec![0, 5, 7, 0]);
    let (mut one, mut other) = (session(&objects), session(&objects));
    let mut write = request(Op::Write, OBJECT + 512, 512);
    write.buf.fill(9);
    one.submit(write, NOW).unwrap();
    other.submit(request(Op::Write, OBJECT, 512), NOW).unwrap();
    let create = pull(&mut one);
    assert_eq!(create[0].request.opcode, SheepdogOpcode::CreateAndWriteObj);
    assert_eq!(
        create[0].request.flags,
        flag::WRITE | flag::COW | flag::DIRECT
    );
    assert_eq!(create[0].object(), (7 << 32 | 1, 5 << 32 | 1, 512));
    assert_eq!(create[0].data, [9; 512]);
    assert!(pull(&mut other).is_empty(), "it waits for the object");
    answer(&mut one, &create[0], result::SUCCESS, &[], NOW).unwrap();
    let record = pull(&mut one);
    assert_eq!(
        record[0].object(),
        (1 << 63 | 7 << 32, 0, DATA_VDI_ID_OFFSET + 4)
    );
    assert_eq!(parse_map(&record[0].data, 1), Ok(vec![7]));
    other.replan_parked(NOW);
    assert!(
        pull(&mut other).is_empty() && retire(&mut one).is_none(),
        "the inode does not have it yet"
    );
    answer(&mut one, &record[0], result::SUCCESS, &[], NOW).unwrap();
    assert_eq!(retire(&mut one).unwrap().result, Ok(()));
    other.replan_parked(NOW);
    let write = pull(&mut other);
    assert_eq!(
        (write[0].request.opcode, write[0].object().0),
        (SheepdogOpcode::WriteObj, 7 << 32 | 1)
    );
}

/// A thread's claims are released when it ends, fails or is cancelled.
#[test]
fn claims_are_released_when_a_session_ends() {
    let objects = disk(vec![0; 4]);
    let mut other = session(&objects);
    for end in 0..4 {
        let mut one = session(&objects);
        one.submit(request(Op::Write, 0, 512), NOW).unwrap();
        let sent = if end == 3 { Vec::new() } else { pull(&mut one) };
        other.submit(request(Op::Write, 512, 512), NOW).unwrap();
        assert!(pull(&mut other).is_empty());
        match end {
            0 => drop(one),
            1 => answer(&mut one, &sent[0], result::NO_SPACE, &[], NOW).unwrap(),
            2 => {
                one.detach();
                one.fail_all(DeviceError::Gone);
            }
            _ => one.cancel(0),
        }
        other.replan_parked(NOW);
        let sent = pull(&mut other);
        assert_eq!(
            sent[0].request.opcode,
            SheepdogOpcode::CreateAndWriteObj,
            "end {end}"
        );
        answer(&mut other, &sent[0], result::NO_SPACE, &[], NOW).unwrap();
        let refused = retire(&mut other).unwrap().result.unwrap_err();
        assert_eq!(device_errors::number_of(&refused), Some(result::NO_SPACE));
    }
}

/// The session waits for the removal of a dropped object and doesn't write to it before that; afterwards it reads as
/// zeros.
#[test]
fn a_dropped_object_is_gone_before_it_is_written_again() {
    let objects = disk(vec![7, 5, 0, 7]);
    let mut session = session(&objects);
    session
        .submit(request(Op::Unmap, 0, 3 * OBJECT), NOW)
        .unwrap();
    session.submit(request(Op::Write, 4096, 512), NOW).unwrap();
    let record = pull(&mut session);
    assert_eq!((record.len(), &record[0].data[..]), (1, &[0; 4][..]));
    answer(&mut session, &record[0], result::SUCCESS, &[], NOW).unwrap();
    let mut now = NOW;
    for _ in 0..3 {
        let probe = pull(&mut session);
        assert_eq!(
            (probe.len(), probe[0].request.opcode),
            (1, SheepdogOpcode::ReadObj)
        );
        answer(&mut session, &probe[0], result::SUCCESS, &[0; 512], now).unwrap();
        assert!(pull(&mut session).is_empty());
        now = session.deadline();
        session.on_time(now);
    }
    let probe = pull(&mut session);
    answer(&mut session, &probe[0], result::NO_OBJ, &[], now).unwrap();
    // The snapshot's object stays and is only removed from the inode. The third object never existed.
    let next = pull(&mut session);
    let of = |opcode| {
        next.iter()
            .find(|one| one.request.opcode == opcode)
            .unwrap()
    };
    assert_eq!(
        of(SheepdogOpcode::CreateAndWriteObj).object(),
        (7 << 32, 0, 4096)
    );
    assert_eq!(
        of(SheepdogOpcode::WriteObj).object().2,
        DATA_VDI_ID_OFFSET + 4
    );
    answer(
        &mut session,
        of(SheepdogOpcode::WriteObj),
        result::SUCCESS,
        &[],
        now,
    )
    .unwrap();
    let unmapped = retire(&mut session).unwrap();
    assert_eq!((unmapped.tag, unmapped.result), (0, Ok(())));
    let mut read = request(Op::Read, OBJECT, 512);
    read.buf.fill(0xaa);
    session.submit(read, now).unwrap();
    assert_eq!(retire(&mut session).unwrap().buf[..], [0; 512]);
}

/// Responses that don't match are reported, and the request waits for a new connection.
#[test]
fn responses_that_do_not_match_are_reported() {
    let check = |change: fn(&mut SheepdogResponse), expected: SheepdogViolation| {
        let mut session = session(&disk(vec![7; 4]));
        session.submit(request(Op::Read, 0, 4096), NOW).unwrap();
        let id = pull(&mut session)[0].request.id;
        let mut response = SheepdogResponse {
            id,
            data_len: 4096,
            result: result::SUCCESS,
            vdi: 0,
        };
        change(&mut response);
        assert_eq!(session.on_header(&response), Err(expected));
        session.detach();
        assert!(session.next_answered().is_none() && session.outstanding() == 1);
    };
    check(|response| response.id += 1, SheepdogViolation::Id);
    check(
        |response| response.id ^= 1 << INDEX_BITS,
        SheepdogViolation::Id,
    );
    check(
        |response| response.data_len = 4095,
        SheepdogViolation::Short,
    );
    check(|response| response.data_len = 4097, SheepdogViolation::Long);
    check(
        |response| (response.result, response.data_len) = (result::EIO, u32::MAX),
        SheepdogViolation::Long,
    );
}

/// Temporary refusals are retried on the same connection until the timeout; a message without a response ends the
/// connection.
#[test]
fn temporary_refusals_are_retried_until_the_timeout() {
    let mut session = session(&disk(vec![7; 4]));
    session.submit(request(Op::Write, 0, 512), NOW).unwrap();
    let mut now = NOW;
    let refused = loop {
        if let Some(retired) = retire(&mut session) {
            break retired.result.unwrap_err();
        }
        for message in pull(&mut session) {
            answer(&mut session, &message, result::HALT, &[], now).unwrap();
        }
        now = session.deadline().max(now);
        session.on_time(now);
    };
    assert_eq!(
        (device_errors::number_of(&refused), session.lost()),
        (Some(result::HALT), None)
    );
    assert!(now >= NOW.after(Duration::from_secs(30)) && session.counts().replays > 100);
    session.submit(request(Op::Read, 0, 512), now).unwrap();
    pull(&mut session);
    session.on_time(now.after(Duration::from_secs(31)));
    assert_eq!(session.lost(), Some(SheepdogLoss::NoAnswer));
}

/// Through a cache, writes are stable after a flush; a missing cache is noted once.
#[test]
fn through_a_cache_writes_are_stable_after_a_flush() {
    let config = SheepdogSessionConfig {
        depth: 2,
        timeout: Duration::from_secs(9),
        tries: 2,
        cache: true,
    };
    let mut session = SheepdogSession::new(config, disk(vec![7; 4]));
    session.attach(NOW);
    let write = Request {
        force_unit_access: true,
        ..request(Op::Write, 0, 512)
    };
    session.submit(write, NOW).unwrap();
    let sent = pull(&mut session);
    assert_eq!(sent[0].request.flags, flag::WRITE | flag::CACHE);
    answer(&mut session, &sent[0], result::SUCCESS, &[], NOW).unwrap();
    let flush = pull(&mut session);
    assert_eq!(flush[0].request.opcode, SheepdogOpcode::FlushVdi);
    answer(&mut session, &flush[0], result::INVALID_PARMS, &[], NOW).unwrap();
    assert_eq!(retire(&mut session).unwrap().result, Ok(()));
    assert!(session.counts().no_cache);
}

/// An in-memory cluster: objects, which are removed some time after being dropped, and the disk's inode.
#[derive(Default)]
struct Cluster {
    vdi: u32,
    objects: BTreeMap<u64, Vec<u8>>,
    /// The map of each VDI.
    maps: BTreeMap<u32, Vec<u32>>,
    /// Objects to be removed later.
    doomed: Vec<u64>,
}

impl Cluster {
    fn snapshot(&mut self) {
        let map = self.maps[&self.vdi].clone();
        self.vdi += 1;
        self.maps.insert(self.vdi, map);
    }

    fn serve(&mut self, message: &Message) -> (u32, Vec<u8>) {
        let (object, cow, offset) = message.object();
        let (offset, len) = (offset as usize, message.request.data_len as usize);
        let vdi = (object >> 32) as u32 & 0xff_ffff;
        let writes = message.request.flags & flag::WRITE != 0;
        if writes && vdi != self.vdi {
            return (result::READONLY, Vec::new());
        }
        match message.request.opcode {
            SheepdogOpcode::WriteObj if object >> 63 == 1 => {
                let index = (offset - DATA_VDI_ID_OFFSET as usize) / 4;
                let entry = parse_map(&message.data, 1).unwrap()[0];
                let map = self.maps.get_mut(&vdi).unwrap();
                let old = std::mem::replace(&mut map[index], entry);
                let named = data_object(entry, index as u32);
                assert!(
                    entry == 0 || self.objects.contains_key(&named),
                    "the inode names what is not there"
                );
                if old == vdi && entry == 0 {
                    self.doomed.push(data_object(vdi, index as u32));
                }
                return (result::SUCCESS, Vec::new());
            }
            SheepdogOpcode::CreateAndWriteObj => {
                assert!(
                    !self.doomed.contains(&object),
                    "it would go with the old one"
                );
                let cow =
                    (message.request.flags & flag::COW != 0).then(|| self.objects[&cow].clone());
                self.objects
                    .insert(object, cow.unwrap_or_else(|| vec![0; OBJECT as usize]));
            }
            _ => {}
        }
        let Some(bytes) = self.objects.get_mut(&object) else {
            return (result::NO_OBJ, Vec::new());
        };
        if writes {
            bytes[offset..offset + len].copy_from_slice(&message.data);
            return (result::SUCCESS, Vec::new());
        }
        (result::SUCCESS, bytes[offset..offset + len].to_vec())
    }
}

/// Two threads with concurrent requests, answered in any order, while connections break, the cluster refuses requests
/// and snapshots are taken: all acknowledged data is found, even by a client that reads the inode afterwards.
#[test]
fn nothing_acknowledged_is_lost() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut cluster = Cluster {
            vdi: 7,
            ..Cluster::default()
        };
        cluster.maps.insert(7, vec![0; OBJECTS as usize]);
        let objects = disk(vec![0; OBJECTS as usize]);
        let mut sessions = [session(&objects), session(&objects)];
        let mut flying: [Vec<Message>; 2] = [Vec::new(), Vec::new()];
        let block = OBJECT as usize / 16;
        let mut model = vec![0_u8; OBJECTS as usize * 16];
        let mut busy: BTreeMap<u64, (Op, u64, u8)> = BTreeMap::new();
        let mut now = NOW;
        for round in 0..400 {
            let which = random.below(2) as usize;
            now = now.after(Duration::from_millis(1));
            // Concurrent requests don't overlap, so the outcome is known.
            if round < 350 && sessions[which].room() > 0 {
                let op =
                    [Op::Read, Op::Write, Op::Unmap, Op::WriteZeroes][random.below(4) as usize];
                let first = random.below(model.len() as u64);
                let count = (1 + random.below(24)).min(model.len() as u64 - first);
                let overlaps = |(at, (_, other, _)): (&u64, &(Op, u64, u8))| {
                    let at = at / block as u64;
                    first < at + other && at < first + count
                };
                if !busy.iter().any(overlaps) {
                    let mut request = request(op, first * block as u64, count * block as u64);
                    let byte = 1 + random.below(255) as u8;
                    request.buf.fill(byte);
                    busy.insert(request.offset, (op, count, byte));
                    sessions[which].submit(request, now).unwrap();
                }
            }
            let sent = pull(&mut sessions[which]);
            flying[which].extend(sent);
            match random.below(60) {
                0 => cluster.snapshot(),
                1..3 => lose(
                    &mut sessions[which],
                    &mut flying[which],
                    &mut cluster,
                    &objects,
                    now,
                ),
                3..9 if !cluster.doomed.is_empty() => {
                    let gone = cluster.doomed.swap_remove(0);
                    cluster.objects.remove(&gone);
                }
                _ if !flying[which].is_empty() => {
                    let at = random.below(flying[which].len() as u64) as usize;
                    let message = flying[which].swap_remove(at);
                    let (result, data) = match random.below(12) {
                        0 => (result::NETWORK_ERROR, Vec::new()),
                        _ => cluster.serve(&message),
                    };
                    answer(&mut sessions[which], &message, result, &data, now).unwrap();
                }
                _ => now = now.after(PAUSE),
            }
            if sessions[which].lost().is_some() {
                lose(
                    &mut sessions[which],
                    &mut flying[which],
                    &mut cluster,
                    &objects,
                    now,
                );
            }
            sessions[which].on_time(now);
            sessions[which].replan_parked(now);
            while let Some(retired) = retire(&mut sessions[which]) {
                assert_eq!(retired.result, Ok(()), "seed {seed}");
                let (op, count, byte) = busy.remove(&retired.tag).unwrap();
                let first = retired.tag as usize / block;
                for (at, known) in model[first..first + count as usize].iter_mut().enumerate() {
                    match op {
                        Op::Read => assert_eq!(retired.buf[at * block], *known, "seed {seed}"),
                        Op::Write => *known = byte,
                        _ => *known = 0,
                    }
                }
            }
        }
        // The next client knows only the inode. Requests in flight may or may not have taken effect.
        let map = &cluster.maps[&cluster.vdi];
        for (at, known) in model.iter().enumerate() {
            let under_way = busy.iter().any(|(from, (op, count, _))| {
                *op != Op::Read
                    && (from / block as u64..from / block as u64 + count).contains(&(at as u64))
            });
            let owner = map[at / 16];
            let object = cluster.objects.get(&data_object(owner, at as u32 / 16));
            let found = object.map_or(0, |bytes| bytes[at % 16 * block]);
            assert!(under_way || found == *known, "seed {seed}, block {at}");
        }
    }
}

/// Loses the connection after some messages in flight were served. The next connection reads the disk's current state.
fn lose(
    session: &mut SheepdogSession,
    flying: &mut Vec<Message>,
    cluster: &mut Cluster,
    objects: &SheepdogObjects,
    now: Nanos,
) {
    for (at, message) in flying.drain(..).enumerate() {
        if at % 2 == 0 {
            cluster.serve(&message);
        }
    }
    session.detach();
    objects.replace(inode(cluster.vdi), cluster.maps[&cluster.vdi].clone());
    session.attach(now);
}
