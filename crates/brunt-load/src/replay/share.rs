//! Divides the requests of a trace among several hosts that replay it together: every host reads the whole trace and
//! skips the requests of others.
//!
//! The rule: each request belongs to a single host, determined by its address in the trace, so that requests on the
//! same blocks go through the same host, in the order of the trace.

use brunt_core::sketch::spread;

use super::select::Selected;

/// Adjacent addresses mostly go to the same host, so only a request that crosses a stripe boundary may overlap
/// another host's.
const STRIPE_BYTES: u64 = 1 << 20;

/// One host's share of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Number of the host.
    pub index: u32,
    /// Total number of hosts.
    pub of: u32,
}

impl Share {
    /// The share of a single host, which is everything.
    pub const ALL: Share = Share { index: 0, of: 1 };

    /// Returns true if this host sends the request.
    pub fn has(self, request: &Selected) -> bool {
        let place = (request.offset / STRIPE_BYTES) ^ (u64::from(request.device) << 44);
        // Hashed, so that stripes at any regular distance are spread over all hosts.
        (spread(place) % u64::from(self.of)) as u32 == self.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_block::Op;

    /// Each request has one host, blocks stay together, and hosts have similar shares.
    #[test]
    fn each_request_has_one_host() {
        let mut counts = [0; 3];
        for stripe in 0..3000 {
            let at = |offset| Selected {
                time_ns: 0,
                response_ns: None,
                device: (stripe % 2) as u32,
                target: 0,
                op: Op::Read,
                offset: stripe * 8 * STRIPE_BYTES + offset,
                len: 512,
                fua: false,
                content: None,
            };
            let hosts = |offset| {
                (0..3).filter(move |index| {
                    Share {
                        index: *index,
                        of: 3,
                    }
                    .has(&at(offset))
                })
            };
            let host: Vec<u32> = hosts(0).collect();
            assert_eq!(host.len(), 1);
            assert!(hosts(STRIPE_BYTES - 512).eq(host.iter().copied()) && Share::ALL.has(&at(0)));
            counts[host[0] as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (900..1100).contains(count)),
            "{counts:?}"
        );
    }
}
