//! Saves the packets that arrive at a bridge to a file on the bridge's machine: for `brunt bridge --capture`, and for
//! an agent whose host is in the network path of an experiment.
//!
//! The rule: the forwarding thread never waits for a disk; packets for which there was no room are counted.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brunt_capture::Ledger;
use brunt_capture::trace::Tell;
use brunt_capture::trace::pcap::{PacketFeed, PacketLane, PcapOptions, PcapStatus, PcapSummary};
use brunt_lab::link::{Direction, PacketWatcher};
use brunt_result::link::CaptureCounts;

/// Files of this kind record the interface by which each packet arrived.
const WITH_INTERFACES: &str = "pcapng";

/// A capture that has begun, and the watcher that feeds it.
pub type BegunCapture = (BridgeCapture, Box<dyn PacketWatcher>);

/// A capture that is being written.
pub struct BridgeCapture {
    path: PathBuf,
    lane: PacketLane,
    status: PcapStatus,
}

impl BridgeCapture {
    /// Creates a file for the packets of a bridge, and its watcher: pcapng with both interfaces if the name has that
    /// extension, otherwise pcap.
    ///
    /// # Errors
    /// The file exists already, or cannot be created.
    pub fn start(path: &Path, interfaces: &[String; 2], tell: Tell) -> io::Result<BegunCapture> {
        let is_ng = path
            .extension()
            .is_some_and(|extension| extension == WITH_INTERFACES);
        let interfaces = if is_ng {
            interfaces.to_vec()
        } else {
            Vec::new()
        };
        let options = PcapOptions {
            interfaces,
            tell,
            ..PcapOptions::new(path.to_path_buf())
        };
        let (lane, feed) = PacketLane::with_feed(options)?;
        let status = lane.status();
        Ok((
            BridgeCapture {
                path: path.to_path_buf(),
                lane,
                status,
            },
            Box::new(FeedWatcher(feed)),
        ))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Packets written so far, and packets lost.
    pub fn counts(&self) -> CaptureCounts {
        let (packets, lost) = self.status.packets();
        CaptureCounts { packets, lost }
    }

    /// Ends the file, after the watcher was dropped; also returns the error that cut it short, if any.
    pub fn finish(self) -> (PcapSummary, Option<io::Error>) {
        self.lane.finish(&mut Ledger::default())
    }
}

/// Passes packets to the file.
struct FeedWatcher(PacketFeed);

impl PacketWatcher for FeedWatcher {
    fn on_packet(&mut self, direction: Direction, since_1970: Duration, packet: &[u8]) {
        self.0.put(since_1970, direction as u32, packet);
    }

    fn on_pause(&mut self) {
        self.0.pass_on();
    }
}
