//! Limits of a pipeline's memory and time. Read by its stages when they are created. The one rule: everything
//! that a peer can make large has a limit here.

/// What a pipeline may use. The defaults stay below 200 MB under any traffic.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that are followed at a time.
    pub connections: usize,
    /// Calls that wait for their replies.
    pub calls_waiting: usize,
    /// How long they wait, in nanoseconds of the capture's time.
    pub call_timeout_ns: u64,
    /// Bytes kept of what is incomplete: segments out of order, heads of messages.
    pub kept_bytes: usize,
    /// The first record's number and the distance to the next: pipelines that work side by side give
    /// out different ones.
    pub record_ids: (u64, u64),
}

impl Limits {
    /// What pipeline `index` of `count` may use, so that all together keep to these limits.
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
