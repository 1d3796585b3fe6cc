//! Streams over real sockets: sent data arrives, and received data reaches its destination.

use super::*;
use crate::RingConfig;
use brunt_core::Nanos;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

/// All kinds of segments arrive complete and in order, although the total far exceeds what the socket accepts at once,
/// and lent buffers are returned only after they are sent.
#[test]
fn segments_arrive_in_order() {
    let ring = Ring::new(RingConfig::default()).unwrap();
    let (mut client, server) = pair();
    let data = pattern(3 << 20);
    let memory = Arc::new(SparseMemory::new(4 << 20).unwrap());
    memory.write(100, &data);
    let mut stream = Stream::new(&ring, server, 64 << 10).unwrap();
    let mut expected = Vec::new();
    let lent = stream.lend({
        let mut buf = Buf::zeroed(data.len());
        buf.copy_from_slice(&data);
        buf
    });
    for round in 0..700usize {
        stream.push_bytes(&data[round..round + 48]);
        expected.extend_from_slice(&data[round..round + 48]);
        stream.push_lent(lent, round, 1000);
        expected.extend_from_slice(&data[round..round + 1000]);
    }
    stream.push_zeros(200_001);
    expected.extend(std::iter::repeat_n(0, 200_001));
    stream.push_memory(&memory, 100, data.len());
    expected.extend_from_slice(&data);
    let mut buf = ring.pool().take(5000);
    buf.copy_from_slice(&data[..5000]);
    stream.push_buf(buf, 1, 4998);
    expected.extend_from_slice(&data[1..4999]);
    let total = expected.len();
    assert!(stream.reclaim(lent).is_none());
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; total];
        client.read_exact(&mut got).unwrap();
        got
    });
    while stream.queued_bytes() > 0 {
        stream.flush();
        ring.enter(Nanos::MAX).unwrap();
        stream.poll();
    }
    assert!(reader.join().unwrap() == expected);
    assert_eq!(stream.reclaim(lent).unwrap().len(), data.len());
}

/// A long buffer is sent in several calls, so that the progress of a slow peer is visible.
#[test]
fn a_call_sends_no_more_than_its_limit() {
    const PART: usize = 100_000;
    let ring = Ring::new(RingConfig::default()).unwrap();
    let (mut client, server) = pair();
    let data = pattern(1 << 20);
    let mut stream = Stream::new(&ring, server, 64 << 10).unwrap();
    stream.set_call_bytes_max(PART);
    let mut buf = Buf::zeroed(data.len());
    buf.copy_from_slice(&data);
    stream.push_buf(buf, 0, data.len());
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; 1 << 20];
        client.read_exact(&mut got).unwrap();
        got
    });
    while stream.queued_bytes() > 0 {
        let before = stream.queued_bytes();
        stream.flush();
        ring.enter(Nanos::MAX).unwrap();
        stream.poll();
        assert!(before - stream.queued_bytes() <= PART);
    }
    assert!(reader.join().unwrap() == data);
}

/// Headers arrive in `bytes` and payloads in their destinations, however the data is fragmented, and the peer's close
/// is reported after the last byte.
#[test]
fn payloads_reach_their_destinations() {
    let ring = Ring::new(RingConfig::default()).unwrap();
    let (mut client, server) = pair();
    let data = pattern(1 << 20);
    let sent = data.clone();
    let writer = std::thread::spawn(move || {
        for chunk in sent.chunks(77_777) {
            client.write_all(chunk).unwrap();
        }
    });
    let memory = Arc::new(SparseMemory::new(1 << 20).unwrap());
    let mut stream = Stream::new(&ring, server, 16 << 10).unwrap();
    // A 10-byte header, then a payload for each kind of destination in turn.
    let sizes = [100usize, 50_000, 300_000, 9_000, 400_000];
    let mut at = 0;
    let mut step = 0;
    let mut header_done = false;
    let mut ended = false;
    while !ended || step < sizes.len() {
        stream.arm();
        ring.enter(Nanos::MAX).unwrap();
        ended = stream.poll().ended;
        loop {
            if let Some(place) = stream.take_placed() {
                let payload = &data[at..at + sizes[step]];
                match place {
                    PayloadPlace::Buf(buf) => assert!(buf[3..3 + sizes[step]] == *payload),
                    PayloadPlace::Memory(_) => {
                        let mut got = vec![0; sizes[step]];
                        memory.read(4096, &mut got);
                        assert!(got == payload);
                    }
                    PayloadPlace::Discard => {}
                }
                at += sizes[step];
                step += 1;
                header_done = false;
            }
            if step == sizes.len() {
                let rest = stream.bytes().len();
                assert!(stream.bytes() == &data[at..at + rest]);
                at += rest;
                stream.consume(rest);
                break;
            }
            if !header_done && !stream.is_placing() && stream.bytes().len() >= 10 {
                assert!(stream.bytes()[..10] == data[at..at + 10]);
                stream.consume(10);
                at += 10;
                header_done = true;
                let (place, offset) = match step % 3 {
                    0 => (PayloadPlace::Buf(Buf::zeroed(sizes[step] + 3)), 3),
                    1 => (PayloadPlace::Memory(Arc::clone(&memory)), 4096),
                    _ => (PayloadPlace::Discard, 0),
                };
                stream.place(place, offset, sizes[step]);
                continue;
            }
            break;
        }
    }
    writer.join().unwrap();
    assert_eq!(at, data.len());
    assert_eq!(stream.ended(), Some(io::ErrorKind::UnexpectedEof));
}

/// A stream aborted while sending and placing returns all its buffers.
#[test]
fn an_aborted_stream_returns_all_its_buffers() {
    let ring = Ring::new(RingConfig::default()).unwrap();
    let (mut client, server) = pair();
    let mut stream = Stream::new(&ring, server, 16 << 10).unwrap();
    let lent = stream.lend(Buf::zeroed(8 << 20));
    stream.push_lent(lent, 0, 8 << 20);
    stream.place(PayloadPlace::Buf(Buf::zeroed(1 << 20)), 0, 1 << 20);
    client.write_all(&[7; 1000]).unwrap();
    stream.arm();
    stream.flush();
    ring.enter(Nanos::MAX).unwrap();
    assert!(stream.reclaim(lent).is_none());
    assert!(matches!(stream.abort(), Some(PayloadPlace::Buf(buf)) if buf.len() == 1 << 20));
    assert_eq!(stream.reclaim(lent).unwrap().len(), 8 << 20);
    assert_eq!(stream.queued_bytes(), 0);
    assert!(stream.poll().ended);
}

/// A stream dropped while sending and receiving leaves no request behind.
#[test]
fn a_stream_dropped_in_flight_leaves_no_request_behind() {
    let ring = Ring::new(RingConfig::default()).unwrap();
    for _ in 0..200 {
        let (client, server) = pair();
        let mut stream = Stream::new(&ring, server, 16 << 10).unwrap();
        stream.push_zeros(16 << 20);
        stream.arm();
        stream.flush();
        ring.enter(Nanos(0)).unwrap();
        drop(stream);
        drop(client);
    }
}

/// A Unix socket carries both directions, as TCP does.
#[test]
fn a_unix_socket_carries_both_directions() {
    let ring = Ring::new(RingConfig::default()).unwrap();
    let (mut far, near) = UnixStream::pair().unwrap();
    let mut stream = Stream::new(&ring, near, 64 << 10).unwrap();
    let data = pattern(50_000);
    far.write_all(&data).unwrap();
    let mut buf = ring.pool().take(data.len());
    buf.fill(0);
    stream.place(PayloadPlace::Buf(buf), 0, data.len());
    let placed = loop {
        stream.arm();
        ring.enter(Nanos::MAX).unwrap();
        stream.poll();
        if let Some(PayloadPlace::Buf(buf)) = stream.take_placed() {
            break buf;
        }
    };
    assert_eq!(placed[..], data[..]);
    stream.push_buf(placed, 0, 1000);
    while stream.queued_bytes() > 0 {
        stream.flush();
        ring.enter(Nanos::MAX).unwrap();
        stream.poll();
    }
    let mut back = [0; 1000];
    far.read_exact(&mut back).unwrap();
    assert_eq!(back[..], data[..1000]);
    drop(far);
    while !stream.poll().ended {
        stream.arm();
        ring.enter(Nanos::MAX).unwrap();
    }
}
