//! Measures a worker's own cost: turns the CPU time and context switches of its thread, together with the ring's count
//! of system calls, into plain result data.

use brunt_result::Cost;

use crate::block::worker::RingUse;

/// Returns the calling thread's cost so far, including its ring's counts. The ring counts all system calls of the loop
/// except the few per interval that read resource usage, and the writes of a verification journal. CPU time of other
/// threads that work for the ring counts as system time, because they run almost entirely in the kernel.
pub fn of_this_thread(ring: RingUse) -> Cost {
    let used = brunt_core::cost::ResourceUsage::of_thread();
    Cost {
        cpu_user_nanos: used.user.as_nanos() as u64,
        cpu_system_nanos: used.system.as_nanos() as u64 + ring.cpu.workers_nanos.unwrap_or(0),
        polling_nanos: ring.cpu.polling_nanos,
        is_partial: ring.cpu.workers_nanos.is_none(),
        voluntary_switches: used.voluntary_switches,
        involuntary_switches: used.involuntary_switches,
        system_calls: ring.system_calls,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_block::RingCpu;

    /// Work of this thread is counted; a pause counts as a context switch, not as work.
    #[test]
    fn work_of_the_thread_is_counted_and_pauses_are_not() {
        let calls = |system_calls| RingUse {
            system_calls,
            cpu: RingCpu {
                workers_nanos: Some(1000 * system_calls),
                polling_nanos: 10 * system_calls,
            },
        };
        let before = of_this_thread(calls(3));
        let mut sum = 0u64;
        while of_this_thread(calls(3)).since(&before).cpu_nanos() < 5_000_000 {
            sum = std::hint::black_box(sum.wrapping_mul(31) + 1);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        let used = of_this_thread(calls(10)).since(&before);
        assert!(used.voluntary_switches >= 1);
        assert_eq!(used.system_calls, 7);
        assert!(used.cpu_system_nanos >= 7000, "other threads' time counts");
        assert_eq!((used.polling_nanos, used.is_partial), (70, false));
        let unknown = of_this_thread(RingUse {
            cpu: RingCpu::default(),
            ..calls(10)
        });
        assert!(unknown.since(&before).is_partial);
    }
}
