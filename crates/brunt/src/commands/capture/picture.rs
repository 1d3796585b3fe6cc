//! A snapshot of a running capture: what the view, the metrics and the live page show.

use brunt_capture::{CaptureGlance, LiveReport};
use brunt_remote::MoveCounts;

use super::findings::FoundSoFar;
use super::health::CaptureHealth;

/// A snapshot of the capture.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Seconds since the start of the capture.
    pub at_s: f64,
    /// What the parsers have seen.
    pub glance: CaptureGlance,
    /// State and counters of the rings.
    pub live: LiveReport,
    /// Queued parcels, by parser.
    pub queued: Vec<u32>,
    /// Messages handled by the parsers.
    pub messages: u64,
    /// Parts being moved to an object store; `None` if they stay on this machine.
    pub moves: Option<MoveCounts>,
    /// Findings so far.
    pub found: FoundSoFar,
    /// The state of the capture itself.
    pub health: CaptureHealth,
}
