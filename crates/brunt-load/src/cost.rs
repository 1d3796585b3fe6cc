//! What a worker itself costs: processor time, context switches and system calls of its own
//! thread, so that results can be printed beside the price of getting them. The summable and
//! storable form of `brunt_core::Cost`, with the ring's count beside it.

use serde::{Deserialize, Serialize};

/// Resources of one thread, as a total or a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Processor time in user mode.
    pub cpu_user_nanos: u64,
    /// Processor time in the kernel, on behalf of this thread.
    pub cpu_system_nanos: u64,
    /// The thread waited for something.
    pub voluntary_switches: u64,
    /// The thread was made to wait.
    pub involuntary_switches: u64,
    /// The ring's calls. The loop makes no others, but for one `getrusage` an interval and the
    /// writes of a verification journal.
    pub system_calls: u64,
}

impl Cost {
    /// The calling thread's so far; `system_calls` as told by its ring.
    pub fn of_this_thread(system_calls: u64) -> Cost {
        let used = brunt_core::cost::Cost::of_thread();
        Cost {
            cpu_user_nanos: used.user.as_nanos() as u64,
            cpu_system_nanos: used.system.as_nanos() as u64,
            voluntary_switches: used.voluntary_switches,
            involuntary_switches: used.involuntary_switches,
            system_calls,
        }
    }

    /// What was used since `earlier`.
    pub fn since(&self, earlier: &Cost) -> Cost {
        Cost {
            cpu_user_nanos: self.cpu_user_nanos.saturating_sub(earlier.cpu_user_nanos),
            cpu_system_nanos: self.cpu_system_nanos.saturating_sub(earlier.cpu_system_nanos),
            voluntary_switches: self.voluntary_switches - earlier.voluntary_switches,
            involuntary_switches: self.involuntary_switches - earlier.involuntary_switches,
            system_calls: self.system_calls - earlier.system_calls,
        }
    }

    /// Both together.
    pub fn add(&mut self, other: &Cost) {
        self.cpu_user_nanos += other.cpu_user_nanos;
        self.cpu_system_nanos += other.cpu_system_nanos;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        self.system_calls += other.system_calls;
    }

    /// Processor time of both modes.
    pub fn cpu_nanos(&self) -> u64 {
        self.cpu_user_nanos + self.cpu_system_nanos
    }

    /// Context switches of both kinds.
    pub fn switches(&self) -> u64 {
        self.voluntary_switches + self.involuntary_switches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The goal: work of this thread shows up here, and a pause shows up as a switch and not as work.
    #[test]
    fn work_is_counted() {
        let before = Cost::of_this_thread(3);
        let mut sum = 0u64;
        while Cost::of_this_thread(3).since(&before).cpu_nanos() < 5_000_000 {
            sum = std::hint::black_box(sum.wrapping_mul(31) + 1);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        let used = Cost::of_this_thread(10).since(&before);
        assert!(used.voluntary_switches >= 1);
        assert_eq!(used.system_calls, 7);
    }
}
