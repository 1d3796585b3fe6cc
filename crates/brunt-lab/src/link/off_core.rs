//! Measures how long a thread was ready to run but had no core, according to the kernel's accounting. The emulator uses
//! it to estimate when the packet that woke it arrived.
//!
//! Called by [`super::driver`] after each sleep. The rule: on a kernel without this accounting (no CONFIG_SCHED_INFO)
//! the result is zero, and the line loses the time for which its thread waited for a core.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The counter of one thread: the second number of its `schedstat` (Documentation/scheduler/sched-stats.rst).
#[derive(Debug, Default)]
pub(super) struct OffCore {
    file: Option<File>,
    seen_nanos: u64,
}

impl OffCore {
    /// The counter of the calling thread.
    pub(super) fn of_this_thread() -> OffCore {
        let mut count = OffCore {
            file: File::open("/proc/thread-self/schedstat").ok(),
            seen_nanos: 0,
        };
        count.waited_nanos();
        count
    }

    /// Nanoseconds for which the thread waited for a core since the last call.
    pub(super) fn waited_nanos(&mut self) -> u64 {
        let Some(file) = &self.file else { return 0 };
        let mut text = [0; 64];
        let Ok(count) = file.read_at(&mut text, 0) else {
            return 0;
        };
        let Some(total) = second_figure(&text[..count]) else {
            return 0;
        };
        let waited = total.saturating_sub(self.seen_nanos);
        self.seen_nanos = total;
        waited
    }
}

fn second_figure(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text)
        .ok()?
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_is_parsed() {
        assert_eq!(second_figure(b"12 345 6\n"), Some(345));
        assert_eq!(second_figure(b""), None);
    }

    /// Waiting time is reported only once: in total, a thread waits no longer than it exists.
    #[test]
    fn waiting_time_is_reported_once() {
        let start = std::time::Instant::now();
        let mut count = OffCore::of_this_thread();
        let waited: u64 = (0..100).map(|_| count.waited_nanos()).sum();
        // The kernel measures waits with another clock, which may be slightly faster.
        let limit = start.elapsed().mul_f64(1.1);
        assert!(u128::from(waited) <= limit.as_nanos(), "{waited}");
    }
}
