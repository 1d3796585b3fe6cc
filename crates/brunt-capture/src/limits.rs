//! Limits on a pipeline's memory and time. Each stage reads them when it is created. The one rule: everything that a
//! peer can make large has a limit here.

/// Resource limits of a pipeline. The defaults stay below 200 MB under any traffic.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum connections tracked at a time.
    pub connections: usize,
    /// Maximum calls waiting for their replies.
    pub calls_waiting: usize,
    /// Maximum time that calls wait, in nanoseconds of capture time.
    pub call_timeout_ns: u64,
    /// Maximum bytes buffered for incomplete data: out-of-order segments, beginnings of messages.
    pub kept_bytes: usize,
    /// The first record number and the step to the next: parallel pipelines assign distinct numbers.
    pub record_ids: (u64, u64),
}

impl Limits {
    /// The limits for pipeline `index` of `count`: each gets an equal share, so that all of them together stay within
    /// these limits (except for rounding).
    pub fn share(&self, index: usize, count: usize) -> Limits {
        let (first, step) = self.record_ids;
        Limits {
            connections: self.connections.div_ceil(count),
            calls_waiting: self.calls_waiting.div_ceil(count),
            kept_bytes: self.kept_bytes / count,
            record_ids: (first + index as u64 * step, step * count as u64),
            ..*self
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 16 << 10,
            calls_waiting: 64 << 10,
            call_timeout_ns: 60_000_000_000,
            kept_bytes: 48 << 20,
            record_ids: (0, 1),
        }
    }
}
