//! A pipeline's sink of analyses, which start from nothing in each window. The one rule: with windows, a packet costs
//! one additional comparison; everything else happens once per window.

use std::sync::mpsc::SyncSender;

use brunt_wire::net::NextHeader;

use super::{WindowShare, WindowSpan};
use crate::analysis::{Analysed, Analysis, PastWindows};
use crate::ledger::Ledger;
use crate::operation::{ChecksumRun, Operation, Sink};

/// Analyses of the whole capture, or of one window at a time.
#[derive(Debug)]
pub struct WindowedAnalysis {
    current: Analysis,
    until_ns: u64,
    feed: Option<Box<WindowFeed>>,
}

/// The state that a pipeline needs for changing windows.
#[derive(Debug)]
pub(super) struct WindowFeed {
    pub pipeline: usize,
    pub width_ns: u64,
    pub to: SyncSender<WindowShare>,
    /// The current window; `None` before the first packet.
    span: Option<WindowSpan>,
    /// When the captured part of the current window began.
    begun_ns: u64,
    /// The time of the packets at the end of the last batch.
    seen_ns: u64,
    past: PastWindows,
}

impl WindowFeed {
    pub fn new(pipeline: usize, width_ns: u64, to: SyncSender<WindowShare>) -> WindowFeed {
        WindowFeed {
            pipeline,
            width_ns,
            to,
            span: None,
            begun_ns: 0,
            seen_ns: 0,
            past: PastWindows::default(),
        }
    }
}

impl WindowedAnalysis {
    /// Analyses of the whole capture.
    pub fn whole(analysis: Analysis) -> WindowedAnalysis {
        WindowedAnalysis {
            current: analysis,
            until_ns: u64::MAX,
            feed: None,
        }
    }

    pub(super) fn of_windows(analysis: Analysis, feed: WindowFeed) -> WindowedAnalysis {
        WindowedAnalysis {
            current: analysis,
            // The first packet opens a window.
            until_ns: 0,
            feed: Some(Box::new(feed)),
        }
    }

    /// The analyses of the whole capture; with windows, the collector has those ([`super::WindowCollector::finish`]),
    /// and these are empty.
    pub fn into_analysis(self) -> Analysis {
        self.current
    }

    /// Ends the current window, if there is one, and opens the window that contains `next_ns`.
    fn change(&mut self, next_ns: Option<u64>, ledger: &Ledger) {
        let Some(feed) = &mut self.feed else { return };
        self.current.settle();
        let next = next_ns.map(|next_ns| WindowSpan::around(next_ns, feed.width_ns));
        let mut fresh = self.current.afresh();
        if let Some(span) = next {
            fresh.begin_at(span.from_ns);
        }
        let mut ended = std::mem::replace(&mut self.current, fresh);
        if let Some(span) = feed.span {
            if next_ns.is_some_and(|next_ns| next_ns >= span.until_ns) {
                ended.cover(feed.begun_ns, span.until_ns);
            } else if ended.end_ns() == 0 && feed.begun_ns > 0 {
                // The window had no packets, but at least the time when it began is known.
                ended.cover(feed.begun_ns, feed.begun_ns + 1);
            }
            let share_ledger = ledger.since(&feed.past.ledger);
            feed.past.add(&ended, ledger);
            // The collector no longer exists if the capture was abandoned.
            let _ = feed.to.send(WindowShare {
                pipeline: feed.pipeline,
                span,
                analysis: Box::new(ended),
                ledger: share_ledger,
                next_ns: next.map(|next| next.from_ns),
            });
            feed.begun_ns = match (next_ns, next) {
                // The clock went back to an earlier window, whose time before `next_ns` is already covered.
                (Some(next_ns), _) if next_ns < span.from_ns => next_ns,
                (_, next) => next.map_or(0, |next| next.from_ns),
            };
        } else {
            feed.begun_ns = next_ns.unwrap_or(0);
        }
        feed.span = next;
        self.until_ns = next.map_or(u64::MAX, |next| next.until_ns);
    }
}

impl Analysed for WindowedAnalysis {
    fn analysis(&self) -> &Analysis {
        &self.current
    }

    fn past(&self) -> Option<(&PastWindows, u64)> {
        let feed = self.feed.as_ref()?;
        Some((&feed.past, feed.span?.from_ns))
    }
}

impl<B> Analysed for (WindowedAnalysis, B) {
    fn analysis(&self) -> &Analysis {
        self.0.analysis()
    }

    fn past(&self) -> Option<(&PastWindows, u64)> {
        self.0.past()
    }
}

impl Sink for WindowedAnalysis {
    #[inline]
    fn on_operation(&mut self, operation: &Operation<'_>) {
        self.current.on_operation(operation);
    }

    #[inline]
    fn on_checksums(&mut self, run: &ChecksumRun<'_>) {
        self.current.on_checksums(run);
    }

    fn wants_checksums(&self) -> bool {
        self.current.wants_checksums()
    }

    #[inline]
    fn on_packet(&mut self, time_ns: u64, wire_len: u32) {
        self.current.on_packet(time_ns, wire_len);
    }

    fn on_not_understood(&mut self, next: NextHeader, wire_len: u32) {
        self.current.on_not_understood(next, wire_len);
    }

    #[inline]
    fn on_batch_end(&mut self, now_ns: u64, ledger: &Ledger) {
        self.current.on_batch_end(now_ns, ledger);
        // After a clock was set back, or after a wrong time far ahead, a window must not stay open for years. After a
        // quiet period, `now_ns` may be earlier than the window, so only a new `now_ns` counts.
        let Some(feed) = &mut self.feed else { return };
        let is_new = now_ns != std::mem::replace(&mut feed.seen_ns, now_ns);
        let back_ns = now_ns.saturating_add(feed.width_ns);
        if is_new && now_ns > 0 && feed.span.is_some_and(|span| back_ns < span.from_ns) {
            self.change(Some(now_ns), ledger);
        }
    }

    #[inline]
    fn window_until_ns(&self) -> u64 {
        self.until_ns
    }

    fn on_window_end(&mut self, now_ns: u64, ledger: &Ledger) {
        if now_ns >= self.until_ns {
            self.change(Some(now_ns), ledger);
        }
    }

    fn on_end(&mut self, ledger: &Ledger) {
        self.change(None, ledger);
    }
}
