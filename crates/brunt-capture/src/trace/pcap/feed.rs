//! Feeds packets one by one to a packet lane, from a thread that must not block: `brunt bridge --capture`.
//!
//! The rule: packets that don't fit are counted with the lane's losses, and the feeder continues.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brunt_wire::pcap::LinkType;

use super::{OnLag, PacketLane, PacketTap, PcapOptions};
use crate::parcel::{Parcel, Pool, Router};
use crate::source::PacketRef;

/// Packets are passed on in pieces of at most this many bytes, with at most this many pieces in flight: 64 MiB.
const PIECE_BYTES: usize = 1 << 20;
const PIECES: usize = 64;
/// Pieces reserved to replace full ones: each pause passes on a piece that may be nearly empty, and pauses must not
/// use up all pieces.
const RESERVED: usize = PIECES / 2;

/// The sending side of a lane, for single Ethernet packets.
#[derive(Debug)]
pub struct PacketFeed {
    tap: PacketTap,
    pool: Pool,
    reserved: Vec<Parcel>,
    router: Router,
    /// The piece being filled, and the number of bytes filled; `None` only after the end.
    piece: Option<(Parcel, usize)>,
}

impl PacketLane {
    /// Starts the thread, with a feed for single packets.
    ///
    /// # Errors
    /// As for [`PacketLane::start`].
    pub fn with_feed(options: PcapOptions) -> io::Result<(PacketLane, PacketFeed)> {
        let lane = PacketLane::start(options, OnLag::Drop, PIECES)?;
        let feed = PacketFeed::new(lane.tap());
        Ok((lane, feed))
    }
}

impl PacketFeed {
    fn new(tap: PacketTap) -> PacketFeed {
        let (pool, router) = (Pool::new(PIECES, 1, PIECE_BYTES), Router::default());
        let piece = Some((pool.take(), 0));
        let reserved = (0..RESERVED).map(|_| pool.take()).collect();
        PacketFeed {
            tap,
            pool,
            reserved,
            router,
            piece,
        }
    }

    /// Adds an Ethernet packet with its capture time (since 1970).
    pub fn put(&mut self, since_1970: Duration, interface: u32, packet: &[u8]) {
        if self
            .piece
            .as_ref()
            .is_some_and(|(_, filled)| filled + packet.len() > PIECE_BYTES)
        {
            let next = self
                .pool
                .take_within(Duration::ZERO)
                .or_else(|| self.reserved.pop());
            self.hand_over(next);
        }
        let room = self
            .piece
            .as_mut()
            .filter(|(_, filled)| filled + packet.len() <= PIECE_BYTES);
        let Some((parcel, filled)) = room else {
            self.tap.state.packets_lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let chunk = parcel.chunk().expect("the pool was created with memory");
        chunk[*filled..][..packet.len()].copy_from_slice(packet);
        let (at, len) = (*filled as u32, packet.len() as u32);
        *filled += packet.len();
        let time_ns = since_1970.as_nanos() as u64;
        let packet = PacketRef {
            time_ns,
            at,
            len,
            wire_len: len,
            interface,
            region: 0,
            link: LinkType::Ethernet,
        };
        parcel.route(&mut self.router, packet, 0);
    }

    /// Passes on the current piece if there is an unreserved one to fill next.
    pub fn pass_on(&mut self) {
        if self.piece.as_ref().is_none_or(|(_, filled)| *filled == 0) {
            return;
        }
        while self.reserved.len() < RESERVED
            && let Some(back) = self.pool.take_within(Duration::ZERO)
        {
            self.reserved.push(back);
        }
        let next = self.pool.take_within(Duration::ZERO);
        self.hand_over(next);
    }

    /// Passes on the current piece if there is another one to fill next.
    fn hand_over(&mut self, next: Option<Parcel>) {
        if let Some(next) = next
            && let Some((parcel, _)) = self.piece.replace((next, 0))
        {
            self.tap.offer(&Arc::new(parcel));
        }
    }
}

impl Drop for PacketFeed {
    fn drop(&mut self) {
        if let Some((parcel, 1..)) = self.piece.take() {
            self.tap.offer(&Arc::new(parcel));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use crate::source::FileSource;

    /// While nothing can be written, pauses use up at most half of the pieces; the others are left for later packets.
    #[test]
    fn pauses_leave_room_for_later_packets() {
        let (to, from) = std::sync::mpsc::sync_channel(PIECES);
        let tap = PacketTap {
            to,
            state: Arc::default(),
            on_lag: OnLag::Drop,
        };
        let state = tap.state.clone();
        let mut feed = PacketFeed::new(tap);
        let mut put = |packets: usize, bytes: usize, pauses: bool| {
            for _ in 0..packets {
                feed.put(Duration::from_secs(1), 0, &vec![7; bytes]);
                if pauses {
                    feed.pass_on();
                }
            }
            state.packets_lost.load(Ordering::Relaxed)
        };
        assert_eq!(put(10 * PIECES, 60, true), 0);
        assert_eq!(put(RESERVED - 1, PIECE_BYTES, false), 0);
        assert!(
            put(PIECES, PIECE_BYTES, false) > 0,
            "packets that don't fit are counted"
        );
        drop(from);
    }

    /// Packets that arrive at a low rate, but without a pause of a second, are still written promptly: if the process
    /// is killed, only those of the last second are lost.
    #[test]
    fn a_slow_stream_is_written_promptly() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slow.pcap");
        let (lane, mut feed) = PacketLane::with_feed(PcapOptions::new(path.clone())).unwrap();
        let is_written = (0..400).any(|_| {
            feed.put(Duration::from_secs(1), 0, &[7; 60]);
            feed.pass_on();
            std::thread::sleep(Duration::from_millis(50));
            std::fs::metadata(&path).unwrap().len() > 0
        });
        assert!(is_written);
        drop(feed);
        lane.finish(&mut Ledger::default());
    }

    /// The file contains all packets that were added one by one, in order and complete, however they were divided
    /// into pieces.
    #[test]
    fn packets_reach_the_file_in_order_and_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fed.pcap");
        let (lane, mut feed) = PacketLane::with_feed(PcapOptions::new(path.clone())).unwrap();
        let packet = |number: usize| -> Vec<u8> {
            (0..60 + number * 37 % 9000)
                .map(|at| (at / 251 + at + number) as u8)
                .collect()
        };
        for number in 0..500 {
            feed.put(
                Duration::from_nanos(1_000_000_007 * number as u64),
                0,
                &packet(number),
            );
            // There are far more of these small pieces than the pool has, so the lane's thread may have to catch up
            // first.
            feed.pass_on();
            while feed.piece.as_ref().is_some_and(|(_, filled)| *filled > 0) {
                std::thread::sleep(Duration::from_millis(1));
                feed.pass_on();
            }
        }
        drop(feed);
        let (summary, error) = lane.finish(&mut Ledger::default());
        assert!(error.is_none());
        assert_eq!(
            (summary.packets + summary.packets_lost, summary.packets_lost),
            (500, 0)
        );
        let mut source = FileSource::open(&path).unwrap();
        let (mut batch, mut seen) = (crate::source::PacketBatch::default(), 0);
        while source.fill(&mut batch).unwrap() {
            for found in batch.packets() {
                assert_eq!(found.bytes, packet(seen));
                assert_eq!(found.time_ns, 1_000_000_007 * seen as u64);
                seen += 1;
            }
        }
        assert_eq!(seen, 500);
    }
}
