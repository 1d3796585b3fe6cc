//! Counts an interface's packets and does nothing else: the baseline with which `brunt-bench capture --wire` compares
//! a capture. The one rule: it reads no packet, only the packet counts that the kernel writes into each block.

use std::io;
use std::time::Duration;

use super::ring::{self, Fanout, PacketRing, RingCounters};
use super::xdp::{self, Tap, XdpQueue};
use super::{LiveError, LiveOptions, Origin};

/// Interval for checking whether to stop.
const PATIENCE: Duration = Duration::from_millis(20);

/// A packet counter without any processing.
#[derive(Debug)]
pub struct PacketCounter {
    source: CountedSource,
}

#[derive(Debug)]
enum CountedSource {
    Ring(PacketRing),
    /// Packets are redirected until the tap is dropped.
    Queues {
        _tap: Tap,
        queues: Vec<XdpQueue>,
    },
}

impl PacketCounter {
    /// Opens an interface with one ring or, for `AF_XDP`, with its queues. Packets are counted from this moment on.
    ///
    /// # Errors
    /// The interface is missing or unavailable.
    pub fn open(interface: &str, options: &LiveOptions) -> Result<PacketCounter, LiveError> {
        let fail = |what: &'static str| {
            move |source: io::Error| LiveError::Io {
                interface: interface.to_string(),
                what,
                source,
            }
        };
        let source = match options.origin {
            Origin::Packet => {
                let ring = PacketRing::open(interface, 0, options, Fanout::Alone)?;
                ring.start(options).map_err(fail("attach the filter"))?;
                CountedSource::Ring(ring)
            }
            Origin::Xdp => {
                let (mut tap, queues) = xdp::open(interface, 0, options)?;
                tap.start().map_err(fail("attach an XDP program"))?;
                CountedSource::Queues { _tap: tap, queues }
            }
        };
        Ok(PacketCounter { source })
    }

    /// Counts until `stop` returns true and no packet is left.
    ///
    /// # Errors
    /// The interface disappeared.
    pub fn count(mut self, mut stop: impl FnMut() -> bool) -> io::Result<RingCounters> {
        loop {
            let is_over = stop();
            while self.skip() > 0 {}
            let more = match &self.source {
                CountedSource::Ring(ring) => ring::wait(std::iter::once(ring.fd()), PATIENCE)?,
                CountedSource::Queues { queues, .. } => {
                    ring::wait(queues.iter().map(XdpQueue::fd), PATIENCE)?
                }
            };
            if is_over && !more {
                break;
            }
        }
        let mut all = RingCounters::default();
        let mut add = |counters: &RingCounters| {
            all.seen += counters.seen;
            all.dropped += counters.dropped;
            all.offered += counters.offered;
        };
        match &mut self.source {
            CountedSource::Ring(ring) => {
                ring.count_drops()?;
                add(&ring.counters);
            }
            CountedSource::Queues { queues, .. } => {
                for queue in queues {
                    queue.count_drops()?;
                    add(&queue.counters);
                }
            }
        }
        Ok(all)
    }

    /// Counts the available packets and returns their number.
    fn skip(&mut self) -> u64 {
        match &mut self.source {
            CountedSource::Ring(ring) => ring.skip(),
            CountedSource::Queues { queues, .. } => queues.iter_mut().map(XdpQueue::skip).sum(),
        }
    }
}
