//! Byte counters of other hosts' interfaces: requested by the experiment, read by the agents, converted to our clock by
//! the hosts' threads.
//!
//! The rule: each request for readings gets one answer, even if the host is lost.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use brunt_protocol::InterfaceReading;

use super::dates::Dates;
use crate::clock::ClockEstimate;
use crate::host_news::HostNews;

/// Maximum wait for readings, which agents send within 20 ms.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The readings of a host's interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedInterfaces {
    /// In order, with times on our clock.
    pub readings: Vec<InterfaceReading>,
    /// How far the times may be off.
    pub clock_error: Duration,
}

/// The pending answer to a request for readings.
#[derive(Debug)]
pub struct AwaitedCount(Receiver<CountedInterfaces>);

impl AwaitedCount {
    /// The two ends of a request: one for the host's thread, one for the caller.
    pub(super) fn new() -> (CountAnswer, AwaitedCount) {
        let (answer, counted) = sync_channel(1);
        (answer, AwaitedCount(counted))
    }

    /// Waits for the readings; `None` if the host was lost or doesn't answer.
    pub fn wait(self) -> Option<CountedInterfaces> {
        self.0.recv_timeout(ANSWER_MAX).ok()
    }
}

/// Receives the readings, once.
pub(super) type CountAnswer = SyncSender<CountedInterfaces>;

/// A request that is waiting for readings.
#[derive(Debug, Default)]
pub(super) struct HeldCount {
    answer: Option<CountAnswer>,
}

impl HeldCount {
    /// Records that the host was asked for its readings.
    pub fn ask(&mut self, answer: CountAnswer) {
        self.answer = Some(answer);
    }

    /// Handles readings; `estimate` is for the host's clock. Returns other messages unchanged.
    pub fn take(
        &mut self,
        news: HostNews,
        estimate: Option<ClockEstimate>,
        dates: &Dates,
    ) -> Option<HostNews> {
        let HostNews::Counted(mut readings) = news else {
            return Some(news);
        };
        let estimate = estimate?;
        for reading in &mut readings {
            reading.at = dates.ours(reading.at, estimate);
        }
        let counted = CountedInterfaces {
            readings,
            clock_error: estimate.offset.error(),
        };
        if let Some(waiting) = self.answer.take() {
            // The receiver may be gone.
            let _ = waiting.try_send(counted);
        }
        None
    }

    /// Handles the loss of the host: the closed channel informs the receiver.
    pub fn lose(&mut self) {
        self.answer = None;
    }
}
