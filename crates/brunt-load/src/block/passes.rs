//! Implements `stop.passes`, a limit that depends on the size of the region. Called while a run is prepared, once its
//! device is known.
//!
//! The rule: workers only see limits on requests and bytes.

use brunt_core::Size;

use super::workload::Workload;

impl Workload {
    /// Converts `stop.passes` over a region of this size into bytes, or into requests if no request moves data.
    pub(super) fn settle_passes(&mut self, region_bytes: u64) {
        let Some(passes) = self.stop.passes.take() else {
            return;
        };
        let mean = self.blocks.mean();
        let mut bytes = region_bytes.saturating_mul(u64::from(passes));
        if let Some(stride) = self.stride {
            bytes = ((bytes as f64 * stride.share(mean)) as u64).max(1);
        }
        if self.read > 0.0 || self.writes() {
            let fewer = self.stop.bytes.map_or(bytes, |stated| stated.0.min(bytes));
            self.stop.bytes = Some(Size(fewer));
        } else {
            // The number of blocks of mean size that fit. The factor keeps a rounding error from losing a block if a
            // whole number of them fits.
            let fit = bytes as f64 / mean * (1.0 + 2.0 * f64::EPSILON);
            let requests = (fit as u64).max(1);
            self.stop.requests = Some(
                self.stop
                    .requests
                    .map_or(requests, |stated| stated.min(requests)),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_become_bytes_or_requests() {
        let settled = |text: &str| {
            let mut workload: Workload = toml::from_str(text).unwrap();
            assert_eq!(workload.check(), Ok(()));
            workload.settle_passes(1 << 20);
            (workload.stop.bytes, workload.stop.requests)
        };
        assert_eq!(
            settled("stop = { passes = 3 }"),
            (Some(Size(3 << 20)), None)
        );
        assert_eq!(
            settled("stop = { passes = 3, bytes = \"1m\" }"),
            (Some(Size(1 << 20)), None)
        );
        let strided = "sequential = 1\nstride = { skip = \"12k\" }\nstop = { passes = 3 }";
        assert_eq!(settled(strided), (Some(Size(3 << 18)), None));
        assert_eq!(settled("stop = { requests = 7 }"), (None, Some(7)));
        assert_eq!(
            settled("read = 0.0\ntrim = 1.0\nstop = { passes = 1 }"),
            (None, Some(256))
        );
        assert_eq!(
            settled("read = 0.0\ntrim = 1.0\nstop = { passes = 1, requests = 9 }"),
            (None, Some(9))
        );
    }
}
