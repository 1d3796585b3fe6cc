//! Reads the byte counters of an agent's interfaces for its controller, on a separate thread. The readings stay here until
//! the controller asks for them, so that they cause no traffic while it measures.
//!
//! The rule: the number of readings is bounded for runs of any length ([`ReadingLog`]), and two more are taken after
//! the order to finish.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use brunt_core::readings::ReadingLog;
use brunt_core::{Clock, Nanos};
use brunt_probe::{InterfaceBytes, InterfaceReader};
use brunt_protocol::{FromHost, InterfaceReading};

use crate::agent_thread::AgentThread;
use crate::clock::moved;

/// Initial time between two readings.
const PERIOD: Duration = Duration::from_millis(20);
/// Maximum number of readings that are kept.
const READINGS_MAX: usize = 256;

/// An order to the thread.
enum CountOrder {
    /// Forget all readings but the last; the next one is due at this time on this machine's clock.
    From(Nanos),
    /// Read twice more, and return all readings.
    Finish,
}

/// Interfaces that are being read. Dropping this ends the readings.
pub(crate) struct InterfaceCounting {
    orders: Sender<CountOrder>,
    counted: Receiver<FromHost>,
    _thread: AgentThread,
}

impl InterfaceCounting {
    /// Starts reading these interfaces; `shift_ns` is added to all times.
    ///
    /// # Errors
    /// The kernel doesn't have the counters, or the thread cannot be started.
    pub fn start(interfaces: Vec<String>, shift_ns: i64) -> std::io::Result<InterfaceCounting> {
        let reader = InterfaceReader::open(interfaces)?;
        let (orders, pending) = channel();
        let (sender, counted) = channel();
        let count = move || {
            let read = Counting::new(reader).work(&pending);
            let dated = |(at, bytes): (Nanos, InterfaceBytes)| InterfaceReading {
                at: moved(at, shift_ns),
                bytes,
            };
            // The receiver may be gone.
            let _ = sender.send(FromHost::Counted(read.into_iter().map(dated).collect()));
        };
        let thread = AgentThread::spawn("interfaces", count)?;
        Ok(InterfaceCounting {
            orders,
            counted,
            _thread: thread,
        })
    }

    /// Starts again: the next reading is due at this time on this machine's clock.
    pub fn begin_again(&self, first: Nanos) {
        let _ = self.orders.send(CountOrder::From(first));
    }

    /// Ends the readings; [`InterfaceCounting::counted`] returns them soon after.
    pub fn finish(&self) {
        let _ = self.orders.send(CountOrder::Finish);
    }

    /// The message with all readings, once.
    pub fn counted(&self) -> Option<FromHost> {
        self.counted.try_recv().ok()
    }
}

/// The state of the thread.
struct Counting {
    reader: InterfaceReader,
    clock: Clock,
    log: ReadingLog<InterfaceBytes>,
    /// When the first reading is due after a restart, if that is before the next periodic one.
    first: Nanos,
}

impl Counting {
    fn new(reader: InterfaceReader) -> Counting {
        let log = ReadingLog::new(PERIOD, READINGS_MAX);
        Counting {
            reader,
            clock: Clock::Monotonic,
            log,
            first: Nanos(0),
        }
    }

    /// Returns all readings once they are finished; none if the receiver is gone.
    fn work(mut self, orders: &Receiver<CountOrder>) -> Vec<(Nanos, InterfaceBytes)> {
        self.read();
        loop {
            let left = self.log.due(self.first).since(self.clock.now());
            match orders.recv_timeout(left) {
                Ok(CountOrder::From(first)) => {
                    let last = self.log.all().last().cloned();
                    self.log = ReadingLog::new(PERIOD, READINGS_MAX);
                    if let Some((at, bytes)) = last {
                        self.log.add(at, bytes);
                    }
                    self.first = first;
                }
                Ok(CountOrder::Finish) => return self.finish(),
                Err(RecvTimeoutError::Timeout) => self.read(),
                Err(RecvTimeoutError::Disconnected) => return Vec::new(),
            }
        }
    }

    fn read(&mut self) {
        let (at, bytes) = self.reader.read(&self.clock);
        self.log.add(at, bytes);
    }

    fn finish(mut self) -> Vec<(Nanos, InterfaceBytes)> {
        let mut all = self.log.all().to_vec();
        all.push(self.reader.read(&self.clock));
        std::thread::sleep(PERIOD);
        all.push(self.reader.read(&self.clock));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starting again keeps one earlier reading, and two readings follow the order to finish.
    #[test]
    fn readings_begin_and_end_as_ordered() {
        let counting = InterfaceCounting::start(vec!["lo".into(), "none".into()], 0).unwrap();
        let begin = Clock::Monotonic.now();
        counting.begin_again(begin);
        let end = Clock::Monotonic.now();
        counting.finish();
        let counted = counting.counted.recv().unwrap();
        let FromHost::Counted(readings) = counted else {
            panic!("{counted:?}")
        };
        let before = readings.iter().filter(|reading| reading.at < begin).count();
        let after = readings.iter().filter(|reading| reading.at > end).count();
        assert!(before <= 1 && after >= 2, "{readings:?}");
        let is_known = |reading: &InterfaceReading| {
            reading.bytes.len() == 2 && reading.bytes[0].is_some() && reading.bytes[1].is_none()
        };
        assert!(readings.iter().all(is_known), "{readings:?}");
        assert!(readings.is_sorted_by_key(|reading| reading.at));
    }
}
