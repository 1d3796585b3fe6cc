//! Digests of a request stream, to check whether two traces, or a trace and its replay, are the
//! same. Shown by `brunt trace info`.
//!
//! The rule: one digest covers only what every format can express (order, device, operation,
//! address, length); a second one covers the times, in microseconds since the first request.

use std::hash::Hasher;

use serde::Serialize;
use twox_hash::XxHash3_64;

use crate::record::{BlockRequest, TraceOp};

/// The two digests, as 16 hexadecimal digits each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamDigest {
    /// Digest of the order of requests and of each request's device (numbered by first
    /// appearance), operation, address and length.
    pub requests: String,
    /// Digest of the times in whole microseconds since the first request.
    pub times: String,
}

/// Computes the digests: XXH3 of the requests' fields, little-endian.
pub struct DigestBuilder {
    requests: XxHash3_64,
    times: XxHash3_64,
    first_ns: Option<u64>,
    /// Fields buffered for the hashes, which are faster on long inputs.
    fields: Vec<u8>,
    since: Vec<u8>,
}

impl Default for DigestBuilder {
    fn default() -> DigestBuilder {
        DigestBuilder {
            requests: XxHash3_64::with_seed(0),
            times: XxHash3_64::with_seed(0),
            first_ns: None,
            fields: Vec::new(),
            since: Vec::new(),
        }
    }
}

impl DigestBuilder {
    /// Adds requests, in their order.
    pub fn add(&mut self, requests: &[BlockRequest]) {
        // Process short runs, so that their fields stay in the L1 cache.
        for run in requests.chunks(512) {
            self.fields.clear();
            self.since.clear();
            for request in run {
                let first = *self.first_ns.get_or_insert(request.time_ns);
                let since_us =
                    (i128::from(request.time_ns) - i128::from(first)).div_euclid(1000) as i64;
                self.since.extend_from_slice(&since_us.to_le_bytes());
                self.fields.extend_from_slice(&request.device.to_le_bytes());
                self.fields
                    .extend_from_slice(&code(request.op).to_le_bytes());
                self.fields
                    .extend_from_slice(&request.offset_bytes.to_le_bytes());
                self.fields
                    .extend_from_slice(&u64::from(request.len_bytes).to_le_bytes());
            }
            self.requests.write(&self.fields);
            self.times.write(&self.since);
        }
    }

    /// The digests of all requests so far.
    pub fn finish(&self) -> StreamDigest {
        let hex = |hash: &XxHash3_64| format!("{:016x}", hash.finish());
        StreamDigest {
            requests: hex(&self.requests),
            times: hex(&self.times),
        }
    }
}

/// The code of an operation in the digest; fixed, so that changes to the type don't affect it.
fn code(op: TraceOp) -> u32 {
    match op {
        TraceOp::Read => 0,
        TraceOp::Write => 1,
        TraceOp::Flush => 2,
        TraceOp::Unmap => 3,
        TraceOp::Other => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(requests: &[BlockRequest], cut: usize) -> StreamDigest {
        let mut builder = DigestBuilder::default();
        builder.add(&requests[..cut]);
        builder.add(&requests[cut..]);
        builder.finish()
    }

    #[test]
    fn digests_depend_on_every_field_but_not_on_the_start_time() {
        let requests: Vec<_> = (0..2000)
            .map(|index| BlockRequest::new(index * 1500, 0, TraceOp::Read, index * 512, 512))
            .collect();
        let whole = digest(&requests, 0);
        assert_eq!(
            (digest(&requests, 700), digest(&requests, 2000)),
            (whole.clone(), whole.clone())
        );
        let changed = |change: fn(&mut BlockRequest)| {
            let mut requests = requests.clone();
            change(&mut requests[1234]);
            digest(&requests, 0)
        };
        for other in [
            changed(|request| request.device = 1),
            changed(|request| request.op = TraceOp::Write),
            changed(|request| request.offset_bytes += 1),
            changed(|request| request.len_bytes += 1),
        ] {
            assert!(other.requests != whole.requests && other.times == whole.times);
        }
        let later = changed(|request| request.time_ns += 1000);
        assert!(later.requests == whole.requests && later.times != whole.times);
        let mut shifted = requests.clone();
        shifted
            .iter_mut()
            .for_each(|request| request.time_ns += 1 << 60);
        assert_eq!(digest(&shifted, 0), whole);
        let mut back = requests.clone();
        back.swap(3, 4);
        assert_ne!(digest(&back, 0).requests, whole.requests);
    }
}
