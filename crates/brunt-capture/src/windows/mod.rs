//! Windows of a capture: each hour or day is analysed separately, so that a capture of several weeks shows what
//! happened when, and needs no more memory than a capture of an hour.
//!
//! ```text
//!   parser 0: WindowedAnalysis ──window's state──┐
//!   parser 1: WindowedAnalysis ──window's state──┴─► WindowCollector: merged ──► report, tables; whole capture
//! ```
//!
//! Windows begin at multiples of their length since 1970 (UTC). A packet belongs to the window of its time, an
//! operation to the window of its reply. The one rule: the counts of all windows add up to those of the whole
//! capture.

mod collector;
pub mod questions;
mod sink;
pub mod tables;

pub use collector::WindowCollector;
pub use sink::WindowedAnalysis;

use crate::analysis::Analysis;
use crate::ledger::Ledger;

/// The start and the end of a window, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WindowSpan {
    /// When the window begins.
    pub from_ns: u64,
    /// When the next window begins.
    pub until_ns: u64,
}

impl WindowSpan {
    /// The window of `width_ns` that contains a time.
    pub(crate) fn around(time_ns: u64, width_ns: u64) -> WindowSpan {
        let from_ns = time_ns - time_ns % width_ns;
        WindowSpan {
            from_ns,
            until_ns: from_ns.saturating_add(width_ns),
        }
    }
}

/// A window of the whole capture that has ended.
#[derive(Debug)]
pub struct CaptureWindow {
    /// When the window began and ended.
    pub span: WindowSpan,
    /// The analyses of the window.
    pub analysis: Analysis,
    /// The window's counters of captured and lost data ([`Ledger::since`]), without packets dropped by live rings.
    pub ledger: Ledger,
    /// Whether the capture ended before the window did.
    pub is_last: bool,
}

/// A pipeline's share of a window.
struct WindowShare {
    pipeline: usize,
    span: WindowSpan,
    analysis: Box<Analysis>,
    ledger: Ledger,
    /// When the pipeline's next window begins; `None` if the capture has ended.
    next_ns: Option<u64>,
}
