//! Merges the pipelines' shares of each window on a dedicated thread. The one rule: a window is passed on once, when
//! every pipeline has left it; only if a pipeline lags behind by more than `WINDOWS_WAITING` windows, its late share
//! is passed on as a separate window.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::sink::WindowFeed;
use super::{CaptureWindow, WindowShare, WindowSpan, WindowedAnalysis};
use crate::analysis::Analysis;

/// Maximum window shares that wait for the thread, per pipeline. A pipeline that has another share to pass on waits.
const SHARES_WAITING: usize = 2;
/// Maximum windows that wait for slow parsers. Each is usually small, because the packets that are still queued for
/// the parsers take only a few megabytes in all.
const WINDOWS_WAITING: usize = 1024;
/// Minimum length of a window, so that creating a report takes less time than its window.
pub const WIDTH_MIN: Duration = Duration::from_secs(1);

/// Collects the windows of a capture.
#[derive(Debug)]
pub struct WindowCollector {
    thread: JoinHandle<Analysis>,
}

struct Collector<F> {
    each: F,
    /// When each pipeline's current window begins; `None` if the pipeline has ended.
    reached: Vec<Option<u64>>,
    waiting: BTreeMap<WindowSpan, CaptureWindow>,
    whole: Option<Analysis>,
}

impl WindowCollector {
    /// Starts a thread that calls `each` with every window that ends; windows are `width` long, but at least
    /// `WIDTH_MIN`. Returns the pipelines' sinks, which continue `analyses`.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn start(
        width: Duration,
        analyses: Vec<Analysis>,
        each: impl FnMut(&CaptureWindow) + Send + 'static,
    ) -> io::Result<(WindowCollector, Vec<WindowedAnalysis>)> {
        let count = analyses.len();
        let (to, from) = sync_channel(SHARES_WAITING * count);
        let width_ns = width.max(WIDTH_MIN).as_nanos() as u64;
        let sinks = (0..).zip(analyses).map(|(pipeline, analysis)| {
            let feed = WindowFeed::new(pipeline, width_ns, to.clone());
            WindowedAnalysis::of_windows(analysis, feed)
        });
        let sinks = sinks.collect();
        let collector = Collector {
            each,
            reached: vec![Some(0); count],
            waiting: BTreeMap::new(),
            whole: None,
        };
        let thread = std::thread::Builder::new()
            .name("windows".into())
            .spawn(move || collector.run(&from))?;
        Ok((WindowCollector { thread }, sinks))
    }

    /// Waits until the last window has been passed on; returns the analyses of the whole capture. Drop the sinks
    /// first.
    pub fn finish(self) -> Analysis {
        let joined = self.thread.join();
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl<F: FnMut(&CaptureWindow)> Collector<F> {
    fn run(mut self, from: &Receiver<WindowShare>) -> Analysis {
        while let Ok(share) = from.recv() {
            self.take(share);
        }
        while let Some((_, window)) = self.waiting.pop_first() {
            self.pass_on(window);
        }
        self.whole.unwrap_or_default()
    }

    fn take(&mut self, share: WindowShare) {
        self.reached[share.pipeline] = share.next_ns;
        let is_last = share.next_ns.is_none();
        match self.waiting.get_mut(&share.span) {
            Some(window) => {
                window.analysis.merge(*share.analysis);
                window.ledger.merge(&share.ledger);
                window.is_last |= is_last;
            }
            None => {
                let window = CaptureWindow {
                    span: share.span,
                    analysis: *share.analysis,
                    ledger: share.ledger,
                    is_last,
                };
                self.waiting.insert(share.span, window);
            }
        }
        let reached = self.reached.iter().flatten().min().copied();
        while let Some(entry) = self.waiting.first_entry() {
            let is_complete = reached.is_none_or(|reached| entry.key().until_ns <= reached);
            if !is_complete && self.waiting.len() <= WINDOWS_WAITING {
                break;
            }
            let (_, window) = self.waiting.pop_first().expect("the first window exists");
            self.pass_on(window);
        }
    }

    fn pass_on(&mut self, window: CaptureWindow) {
        // The capture may end right after a window does, so that the last one is empty.
        let is_nothing = window.is_last && window.ledger.packets == 0 && window.ledger.calls == 0;
        if !is_nothing {
            (self.each)(&window);
        }
        match &mut self.whole {
            Some(whole) => whole.merge(window.analysis),
            None => self.whole = Some(window.analysis),
        }
    }
}
