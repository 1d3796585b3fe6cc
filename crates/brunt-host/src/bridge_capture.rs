//! What comes to a bridge, saved to a file on the bridge's machine: by `brunt bridge --capture`, and by an agent whose host is
//! in the wire of an experiment.
//!
//! The rule: the thread that forwards waits for no disk; packets for which there was no room are counted.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brunt_capture::Ledger;
use brunt_capture::trace::Tell;
use brunt_capture::trace::pcap::{PacketFeed, PacketLane, PcapOptions, PcapStatus, PcapSummary};
use brunt_lab::link::{Direction, PacketWatcher};
use brunt_result::link::CaptureCounts;

/// Files of this kind say of each packet by which interface it came.
const WITH_INTERFACES: &str = "pcapng";

/// A capture that has begun, and what sees the packets for it.
pub type BegunCapture = (BridgeCapture, Box<dyn PacketWatcher>);

/// A capture that is being written.
pub struct BridgeCapture {
    path: PathBuf,
    lane: PacketLane,
    status: PcapStatus,
}

impl BridgeCapture {
    /// Begins a file for the packets of a bridge, and what sees them: pcapng with both interfaces if its name ends so, otherwise
    /// pcap.
    ///
    /// # Errors
    /// It is there already, or cannot be made.
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

    /// Where it is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was written so far, and what is missing.
    pub fn counts(&self) -> CaptureCounts {
        let (packets, lost) = self.status.packets();
        CaptureCounts { packets, lost }
    }

    /// Ends the file, once what saw the packets is gone; and why it was not written to its end.
    pub fn finish(self) -> (PcapSummary, Option<io::Error>) {
        self.lane.finish(&mut Ledger::default())
    }
}

/// Hands packets to the file.
struct FeedWatcher(PacketFeed);

impl PacketWatcher for FeedWatcher {
    fn on_packet(&mut self, direction: Direction, since_1970: Duration, packet: &[u8]) {
        self.0.put(since_1970, direction as u32, packet);
    }

    fn on_pause(&mut self) {
        self.0.pass_on();
    }
}
