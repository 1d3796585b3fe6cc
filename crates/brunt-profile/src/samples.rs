//! Samples of running code, on all processors, by perf events.
//!
//! The event is the kernel's CPU clock rather than a processor's cycle counter: virtual machines have it too, its
//! samples are proportional to time whatever the processor's frequency, and all results are comparable. Its weakness:
//! time with interrupts disabled counts for the function that enables them again.
//!
//! The rule: memory is bounded. Samples beyond the limits are counted as dropped.

use std::collections::HashMap;
use std::fs;

use brunt_core::Nanos;
use brunt_core::cpus::parse_cpu_list;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};

use crate::error::ProfileError;
use crate::processes::SampledProcesses;

/// Bytes of each processor's buffer in the kernel: over a second of samples with the deepest stacks at the default
/// rate, and what an unprivileged user may map (`kernel.perf_event_mlock_kb`).
const BUFFER_BYTES: usize = 256 << 10;
/// Maximum number of samples kept per recording, 16 bytes each: almost three hours of one busy processor at the default
/// rate.
const SAMPLES_MAX: usize = 1 << 21;
/// Maximum number of different stacks kept per recording, about 200 bytes each.
const STACKS_MAX: usize = 1 << 17;

/// `enum perf_callchain_context`: addresses from here on are marks. In a stack, innermost first, each mark says where
/// the addresses after it come from.
pub const MARK_MIN: u64 = -4095_i64 as u64;
/// Addresses of the kernel follow.
pub const MARK_KERNEL: u64 = -128_i64 as u64;
/// Addresses of the program follow.
pub const MARK_USER: u64 = -512_i64 as u64;

/// The buffers of all processors.
pub struct Rings(Vec<Sampler>);

impl Rings {
    /// Starts sampling on all processors.
    ///
    /// # Errors
    /// Sampling fails; see [`ProfileError`].
    pub fn open(hz: u32) -> Result<Rings, ProfileError> {
        let mut rings = Vec::new();
        for cpu in online() {
            let ring = Rings::on(cpu, hz);
            rings.push(ring.map_err(|source| ProfileError::of_event(cpu, source))?);
        }
        Ok(Rings(rings))
    }

    fn on(cpu: usize, hz: u32) -> std::io::Result<Sampler> {
        let flags = SampleFlag::TID | SampleFlag::TIME | SampleFlag::CALLCHAIN;
        let counter = Builder::new(Software::CPU_CLOCK)
            .any_pid()
            .one_cpu(cpu)
            .include_kernel()
            .exclude_idle(true)
            .sample(flags)
            .sample_frequency(u64::from(hz))
            .clockid(Clock::MONOTONIC)
            .enabled(true)
            .build()?;
        counter.sampled(BUFFER_BYTES)
    }

    /// Stores all samples that have arrived.
    pub fn drain(&mut self, into: &mut CpuSamples, processes: &mut SampledProcesses) {
        processes.begin_batch();
        for ring in &mut self.0 {
            while let Some(record) = ring.next_record() {
                match record.parse_record() {
                    Ok(Record::Sample(sample)) => {
                        let (pid, time) = (sample.pid(), sample.time());
                        let (Some(pid), Some(time)) = (pid, time) else {
                            into.dropped += 1;
                            continue;
                        };
                        let process = processes.index_of(pid);
                        into.add(Nanos(time), process, sample.callchain().unwrap_or_default());
                    }
                    Ok(Record::Lost(lost)) => into.lost += lost.lost,
                    Ok(Record::LostSamples(lost)) => into.lost += lost.lost,
                    Ok(_) => {}
                    Err(_) => into.dropped += 1,
                }
            }
        }
    }
}

/// The processors that are online; `0` if the kernel does not report it.
fn online() -> Vec<usize> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = parse_cpu_list(&text);
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// A stack of a process: addresses and marks, innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RawStack {
    /// Index of the process.
    pub process: u32,
    /// Addresses and marks.
    pub frames: Box<[u64]>,
}

/// The samples of a recording.
#[derive(Default)]
pub struct CpuSamples {
    /// Index of each stack.
    stacks: HashMap<RawStack, u32>,
    /// When each sample was taken, and its stack.
    taken: Vec<(Nanos, u32)>,
    /// Samples that did not fit in the kernel's buffer.
    pub lost: u64,
    /// Samples that were not kept here.
    pub dropped: u64,
}

impl CpuSamples {
    /// Adds a sample.
    fn add(&mut self, at: Nanos, process: u32, frames: &[u64]) {
        let stack = RawStack {
            process,
            frames: frames.into(),
        };
        let (next, is_full) = (self.stacks.len(), self.taken.len() >= SAMPLES_MAX);
        let index = match self.stacks.get(&stack) {
            _ if is_full => None,
            Some(index) => Some(*index),
            None if next >= STACKS_MAX => None,
            None => {
                self.stacks.insert(stack, next as u32);
                Some(next as u32)
            }
        };
        match index {
            Some(index) => self.taken.push((at, index)),
            None => self.dropped += 1,
        }
    }

    /// All stacks and the samples, each with its time and the index of its stack.
    pub fn into_parts(self) -> (Vec<RawStack>, Vec<(Nanos, u32)>) {
        let mut stacks: Vec<(RawStack, u32)> = self.stacks.into_iter().collect();
        stacks.sort_unstable_by_key(|(_, index)| *index);
        let stacks = stacks.into_iter().map(|(stack, _)| stack).collect();
        (stacks, self.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equal stacks are stored once; those that do not fit are counted.
    #[test]
    fn stacks_are_kept_once_and_bounded() {
        let mut samples = CpuSamples::default();
        for at in 0..3 {
            samples.add(Nanos(at), 0, &[MARK_USER, 1, 2]);
        }
        for stack in 0..STACKS_MAX as u64 {
            samples.add(Nanos(9), 1, &[MARK_USER, stack]);
        }
        assert_eq!(samples.dropped, 1);
        let (stacks, taken) = samples.into_parts();
        assert_eq!((stacks.len(), taken.len()), (STACKS_MAX, STACKS_MAX + 2));
        assert_eq!(stacks[0].frames[..], [MARK_USER, 1, 2]);
        assert_eq!(taken[2], (Nanos(2), 0));
    }
}
