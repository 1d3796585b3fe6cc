//! Saves the packets that arrive at a bridge to a file on the bridge's machine.
//!
//! The rule: the forwarding thread never waits for a disk; packets that the file's writer can't take in time are left
//! out and counted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brunt_capture::Ledger;
use brunt_capture::trace::Notify;
use brunt_capture::trace::pcap::{
    PacketComments, PacketFeed, PacketLane, PcapOptions, PcapStatus, PcapSummary,
};
use brunt_host::{OpenedPacketSink, PacketSink, SavedPackets};
use brunt_lab::link::{Direction, PacketWatcher};
use brunt_result::link::CaptureCounts;

/// File name extension of the format that records the interface on which each packet arrived.
const WITH_INTERFACES: &str = "pcapng";

/// A started capture, and the watcher that feeds it.
pub type BegunCapture = (BridgeCapture, Box<dyn PacketWatcher>);

/// A capture in progress.
pub struct BridgeCapture {
    path: PathBuf,
    lane: PacketLane,
    status: PcapStatus,
    comments: PacketComments,
}

impl BridgeCapture {
    /// Creates a capture file for a bridge, and its watcher: pcapng with both interfaces if the name has that
    /// extension, otherwise pcap.
    ///
    /// # Errors
    /// The file already exists, or cannot be created.
    pub fn start(
        path: &Path,
        interfaces: &[String; 2],
        notify: Notify,
    ) -> io::Result<BegunCapture> {
        let is_ng = path
            .extension()
            .is_some_and(|extension| extension == WITH_INTERFACES);
        let interfaces = if is_ng {
            interfaces.to_vec()
        } else {
            Vec::new()
        };
        let comments = PacketComments::default();
        let options = PcapOptions {
            interfaces,
            tell: notify,
            comments: comments.clone(),
            ..PcapOptions::new(path.to_path_buf())
        };
        let (lane, feed) = PacketLane::with_feed(options)?;
        let status = lane.status();
        Ok((
            BridgeCapture {
                path: path.to_path_buf(),
                lane,
                status,
                comments,
            },
            Box::new(FeedWatcher(feed)),
        ))
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a handle for adding comments to packets in the file. Only the pcapng format supports comments.
    pub fn comments(&self) -> PacketComments {
        self.comments.clone()
    }

    /// Closes the file; call this after dropping the watcher. Also returns the error, if any, that ended the file
    /// early.
    pub fn finish(self) -> (PcapSummary, Option<io::Error>) {
        self.lane.finish(&mut Ledger::default())
    }
}

/// Creates the capture file for an agent's bridge (a `brunt_host::OpenPacketSink`).
///
/// # Errors
/// The file already exists, or cannot be created.
pub fn open(path: &Path, interfaces: &[String; 2]) -> io::Result<OpenedPacketSink> {
    // Notes about a full disk aren't needed: a full disk ends the file, and `finish` returns the error.
    let (capture, watcher) = BridgeCapture::start(path, interfaces, Arc::new(|_| {}))?;
    Ok((Box::new(capture), watcher))
}

impl PacketSink for BridgeCapture {
    fn counts(&self) -> CaptureCounts {
        let (packets, lost) = self.status.packets();
        CaptureCounts { packets, lost }
    }

    fn finish(self: Box<Self>) -> SavedPackets {
        let (summary, error) = BridgeCapture::finish(*self);
        SavedPackets {
            counts: CaptureCounts {
                packets: summary.packets,
                lost: summary.packets_lost,
            },
            error,
        }
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
