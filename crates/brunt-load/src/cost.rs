//! The cost of a worker itself: reads CPU time and context switches of its thread into plain result data,
//! together with the ring's count of system calls.

use brunt_result::Cost;

/// The calling thread's so far; `system_calls` as counted by its ring. The loop makes no others, but for one
/// `getrusage` an interval and the writes of a verification journal.
pub fn of_this_thread(system_calls: u64) -> Cost {
    let used = brunt_core::cost::ResourceUsage::of_thread();
    Cost {
        cpu_user_nanos: used.user.as_nanos() as u64,
        cpu_system_nanos: used.system.as_nanos() as u64,
        voluntary_switches: used.voluntary_switches,
        involuntary_switches: used.involuntary_switches,
        system_calls,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work of this thread shows up here, and a pause shows up as a switch and not as work.
    #[test]
    fn work_is_counted() {
        let before = of_this_thread(3);
        let mut sum = 0u64;
        while of_this_thread(3).since(&before).cpu_nanos() < 5_000_000 {
            sum = std::hint::black_box(sum.wrapping_mul(31) + 1);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        let used = of_this_thread(10).since(&before);
        assert!(used.voluntary_switches >= 1);
        assert_eq!(used.system_calls, 7);
    }
}
