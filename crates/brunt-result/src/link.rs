//! What a link of the lab did to packets, as plain data: counted by `brunt-lab`, kept in summaries, shown on
//! pages.
//!
//! The rule: what was meant (loss, a full queue) and what was not (no buffer, a frame that a host's device had
//! no place for) stand apart. The second makes an experiment wrong.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A link that was busy for more of its life than this was probably what held an experiment back.
const BUSY_SHARE_MAX: f64 = 0.9;

/// What happened to packets in one direction of a link, up to some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LinkCounts {
    /// Packets of wire size that came in.
    pub packets: u64,
    /// Their bytes, Ethernet headers included.
    pub bytes: u64,
    /// Packets of wire size that were handed over, copies included.
    pub delivered: u64,
    /// Lost on purpose.
    pub lost: u64,
    /// Lost because their hosts are parted.
    pub parted: u64,
    /// Marked to have met congestion.
    pub ecn_marked: u64,
    /// To be marked, but their sender cannot take it: they passed unmarked.
    pub ecn_not_capable: u64,
    /// Resets of TCP connections that the link sent.
    pub tcp_resets: u64,
    /// Ends of TCP connections (FIN) that were held back.
    pub fins_held: u64,
    /// Packets of TCP connections of which there were too many to keep account of: they passed as if nothing were
    /// set.
    pub tcp_untracked: u64,
    /// Dropped because the queue in front of the line was full.
    pub queue_full: u64,
    /// Delivered with a flipped bit.
    pub corrupted: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Held back for others to overtake.
    pub held: u64,
    /// Frames that came in; fewer than packets where segments came in trains.
    pub frames_in: u64,
    /// Frames that went out.
    pub frames_out: u64,
    /// Not meant: the buffers of the direction were full.
    pub unmeant_no_buffer: u64,
    /// Not meant: the receiving host's device refused the frame.
    pub unmeant_refused: u64,
    /// Not meant: a host's device had no place for the frame, or its stack refused it.
    pub unmeant_device: u64,
    /// Nanoseconds by which packets with a due time were handed over late, added up.
    pub late_nanos: u64,
    /// The latest of them, in nanoseconds.
    pub late_nanos_max: u64,
    /// Most frames under way at once.
    pub queued_max: u64,
    /// Frames (packets, or trains of them) that went straight through the kernel, because nothing was to be
    /// done to them; none of the counts above knows of them.
    pub straight_frames: u64,
    /// Their bytes.
    pub straight_bytes: u64,
}

impl LinkCounts {
    /// What came since `earlier`; the largest of a kind stay those since the start.
    pub fn since(&self, earlier: &LinkCounts) -> LinkCounts {
        let since = |get: fn(&LinkCounts) -> u64| get(self).saturating_sub(get(earlier));
        LinkCounts {
            packets: since(|counts| counts.packets),
            bytes: since(|counts| counts.bytes),
            delivered: since(|counts| counts.delivered),
            lost: since(|counts| counts.lost),
            parted: since(|counts| counts.parted),
            ecn_marked: since(|counts| counts.ecn_marked),
            ecn_not_capable: since(|counts| counts.ecn_not_capable),
            tcp_resets: since(|counts| counts.tcp_resets),
            fins_held: since(|counts| counts.fins_held),
            tcp_untracked: since(|counts| counts.tcp_untracked),
            queue_full: since(|counts| counts.queue_full),
            corrupted: since(|counts| counts.corrupted),
            duplicated: since(|counts| counts.duplicated),
            held: since(|counts| counts.held),
            frames_in: since(|counts| counts.frames_in),
            frames_out: since(|counts| counts.frames_out),
            unmeant_no_buffer: since(|counts| counts.unmeant_no_buffer),
            unmeant_refused: since(|counts| counts.unmeant_refused),
            unmeant_device: since(|counts| counts.unmeant_device),
            late_nanos: since(|counts| counts.late_nanos),
            late_nanos_max: self.late_nanos_max,
            queued_max: self.queued_max,
            straight_frames: since(|counts| counts.straight_frames),
            straight_bytes: since(|counts| counts.straight_bytes),
        }
    }

    /// Packets that were lost though nobody asked for it.
    pub fn unmeant(&self) -> u64 {
        self.unmeant_no_buffer + self.unmeant_refused + self.unmeant_device
    }
}

/// What a link did, for a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkReport {
    /// From the first host to the second.
    pub there: LinkCounts,
    /// From the second to the first.
    pub back: LinkCounts,
    /// Share of the time in which its thread had work.
    pub busy: f64,
}

impl LinkReport {
    /// What came since `earlier`; the busy share is the latest.
    pub fn since(&self, earlier: &LinkReport) -> LinkReport {
        LinkReport {
            there: self.there.since(&earlier.there),
            back: self.back.since(&earlier.back),
            busy: self.busy,
        }
    }

    /// What makes figures of this link doubtful, in words for a report; empty when nothing does.
    pub fn trouble(&self) -> Vec<String> {
        let mut trouble = Vec::new();
        for (counts, way) in [(&self.there, "there"), (&self.back, "back")] {
            if counts.unmeant() > 0 {
                trouble.push(format!(
                    "{} packets {way} were lost that were not meant to be: {} for want of buffers, {} refused by the host, \
                     {} dropped by its device",
                    counts.unmeant(),
                    counts.unmeant_no_buffer,
                    counts.unmeant_refused,
                    counts.unmeant_device
                ));
            }
            if counts.tcp_untracked > 0 {
                trouble.push(format!(
                    "{} packets {way} passed as if nothing were set: there were more TCP connections than a link keeps \
                     account of",
                    counts.tcp_untracked
                ));
            }
        }
        if self.busy > BUSY_SHARE_MAX {
            trouble.push(format!(
                "the emulation of the link was busy for {:.0}% of the time: it, not what it emulates, may be the bottleneck",
                self.busy * 100.0
            ));
        }
        trouble
    }
}
