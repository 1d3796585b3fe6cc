//! How much memory a workload uses, for a warning before it runs.

use super::blocks::grain_bytes;
use super::workload::Workload;

/// Bytes of a [`Ledger`](super::verify::Ledger) for each grain.
const LEDGER_BYTES: u64 = 8;

impl Workload {
    /// Returns the number of bytes that all workers together use for the data of outstanding requests and, with
    /// `verify`, for the expected content of `length` bytes of the device. Everything else is small and doesn't
    /// depend on sizes.
    pub fn memory_bytes(&self, length: u64) -> u64 {
        let depth = self
            .depth_search
            .map_or(self.queue_depth, |search| search.max.max(self.queue_depth));
        let requests = u64::from(self.workers).saturating_mul(u64::from(depth));
        let buffers = requests.saturating_mul(self.block_bytes_max());
        let grain = grain_bytes(self, self.align_bytes()).max(1);
        let ledgers = self.verify.as_ref().map_or(0, |_| length / grain);
        buffers.saturating_add(ledgers.saturating_mul(LEDGER_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::workload::VerifySettings;

    #[test]
    fn memory_includes_buffers_and_ledgers() {
        let mut workload = Workload {
            workers: 4,
            queue_depth: 32,
            ..Workload::default()
        };
        let buffers = 4 * 32 * workload.block_bytes_max();
        assert_eq!(workload.memory_bytes(1 << 30), buffers);
        workload.verify = Some(VerifySettings::default());
        let grains = (1 << 30) / workload.align_bytes();
        assert_eq!(workload.memory_bytes(1 << 30), buffers + 8 * grains);
    }
}
