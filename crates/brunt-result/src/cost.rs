//! The cost of measuring: CPU time, context switches and system calls of the load generator's threads, printed with
//! the results. A load measures it; tables and summaries show it.

use serde::{Deserialize, Serialize};

/// Resources used by one or more threads, as a total or a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Processor time in user mode.
    pub cpu_user_nanos: u64,
    /// Processor time in the kernel on behalf of the threads.
    pub cpu_system_nanos: u64,
    /// Time spent polling for completions instead of sleeping: part of the processor time, unless other programs had
    /// the processor in the meantime.
    #[serde(default)]
    pub polling_nanos: u64,
    /// Whether the processor time excludes kernel threads because they could not be listed.
    #[serde(default)]
    pub is_partial: bool,
    /// Number of times that a thread waited for something.
    pub voluntary_switches: u64,
    /// Number of times that a thread was preempted.
    pub involuntary_switches: u64,
    /// System calls made for requests.
    pub system_calls: u64,
}

impl Cost {
    /// Resources used since `earlier`.
    pub fn since(&self, earlier: &Cost) -> Cost {
        Cost {
            cpu_user_nanos: self.cpu_user_nanos.saturating_sub(earlier.cpu_user_nanos),
            cpu_system_nanos: self
                .cpu_system_nanos
                .saturating_sub(earlier.cpu_system_nanos),
            polling_nanos: self.polling_nanos.saturating_sub(earlier.polling_nanos),
            is_partial: self.is_partial,
            voluntary_switches: self.voluntary_switches - earlier.voluntary_switches,
            involuntary_switches: self.involuntary_switches - earlier.involuntary_switches,
            system_calls: self.system_calls - earlier.system_calls,
        }
    }

    /// Adds another thread's resources.
    pub fn add(&mut self, other: &Cost) {
        self.cpu_user_nanos += other.cpu_user_nanos;
        self.cpu_system_nanos += other.cpu_system_nanos;
        self.polling_nanos += other.polling_nanos;
        self.is_partial |= other.is_partial;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        self.system_calls += other.system_calls;
    }

    /// Total processor time, user and kernel.
    pub fn cpu_nanos(&self) -> u64 {
        self.cpu_user_nanos + self.cpu_system_nanos
    }

    /// Context switches, voluntary and involuntary.
    pub fn switches(&self) -> u64 {
        self.voluntary_switches + self.involuntary_switches
    }
}
