//! Counts an interface's packets and does nothing else: the bare ring that `brunt-bench capture --wire` compares a
//! capture with. The one rule: it looks at no packet, only at the counts that the kernel leaves in each block.

use std::io;
use std::time::Duration;

use super::ring::{self, Fanout, PacketRing, RingCounters};
use super::xdp::{self, Tap, XdpQueue};
use super::{LiveError, LiveOptions, Origin};

/// How often the stop condition is checked.
const PATIENCE: Duration = Duration::from_millis(20);

/// A program that only counts.
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
    /// Opens an interface with one ring, or the queues of `AF_XDP`. Packets are counted from now on.
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
    /// The interface went away.
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

    /// Counts what is there; returns how much of it there was.
    fn skip(&mut self) -> u64 {
        match &mut self.source {
            CountedSource::Ring(ring) => ring.skip(),
            CountedSource::Queues { queues, .. } => queues.iter_mut().map(XdpQueue::skip).sum(),
        }
    }
}
