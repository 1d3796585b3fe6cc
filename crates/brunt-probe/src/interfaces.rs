//! Reads the byte counters of chosen interfaces, for a count of what a host transfers during a run. Unlike the `network`
//! probe, it keeps the counters themselves, so no byte is lost between two readings.
//!
//! The rule: a counter that the kernel doesn't have is `None`, never zero.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use brunt_core::{Clock, Nanos};

use super::Probe;
use super::figures::Texts;
use super::network::Network;
use super::source::Source;

/// Bytes that each interface has sent and received since it was created, in the order of the names.
pub type InterfaceBytes = Vec<Option<[u64; 2]>>;

/// The counters of some interfaces of one network namespace.
pub struct InterfaceReader {
    source: Source,
    names: Vec<String>,
}

impl InterfaceReader {
    /// Reads these interfaces of the calling thread's network namespace, on any thread.
    ///
    /// # Errors
    /// The kernel does not have the counters.
    pub fn open(names: Vec<String>) -> io::Result<InterfaceReader> {
        let source = Source::open(Path::new("/proc/thread-self/net/dev"))?;
        Ok(InterfaceReader { source, names })
    }

    /// Returns the counters, and when they were read: halfway between the times before and after reading.
    pub fn read(&mut self, clock: &Clock) -> (Nanos, InterfaceBytes) {
        let before = clock.now();
        let read = self.source.read(clock);
        let at = before.after(clock.now().since(before) / 2);
        let bytes = match read {
            Ok(()) => bytes_of(self.source.text(), &self.names),
            Err(_) => vec![None; self.names.len()],
        };
        (at, bytes)
    }
}

/// Returns the counters of these interfaces in a text like that of `net/dev`.
fn bytes_of(text: Cow<'_, str>, names: &[String]) -> InterfaceBytes {
    let rows = Network::parse(&Texts(&[Some(text)])).unwrap_or_default();
    let of = |name: &String| {
        let row = rows.iter().find(|(known, _)| **known == **name);
        row.map(|(_, counters)| [counters[8], counters[0]])
    };
    names.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an interface has sent comes first, and an unknown interface or an unreadable text has no counters.
    #[test]
    fn an_interface_without_counters_has_no_bytes() {
        let text = "Inter-|   Receive                         |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop\n    \
                    lo:       7       1    0    0    0     0          0         0        7       1    0    0    0     0       0          0\n  \
                    eth0:1234567       9    0    0    0     0          0         0 18446744073709551615  8    0    0    0     0       0          0\n";
        let names = ["eth0", "eth1"].map(String::from);
        let expected = vec![Some([u64::MAX, 1234567]), None];
        assert_eq!(bytes_of(text.into(), &names), expected);
        assert_eq!(bytes_of("a\nb\nnonsense".into(), &names), [None, None]);
    }

    /// The loopback device of any kernel counts the same bytes in both directions, and they never become fewer.
    #[test]
    fn the_kernel_counts_the_bytes_of_loopback() {
        let mut reader = InterfaceReader::open(vec!["lo".into(), "none".into()]).unwrap();
        let clock = Clock::Monotonic;
        let (first, before) = reader.read(&clock);
        let (second, after) = reader.read(&clock);
        let (Some(before), Some(after)) = (before[0], after[0]) else {
            panic!("{before:?} {after:?}")
        };
        assert!(first <= second && before[0] <= after[0] && before[1] <= after[1]);
        assert_eq!(reader.read(&clock).1[1], None);
    }
}
