//! Runs a live capture from its first packet to its last: reads rings, passes on parcels.

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::merge::Merge;
use super::ring::{self, BLOCK_AGE, Fanout, PacketRing, ReadBlock, RingCounters, RingShape};
use super::xdp::{self, Tap, XdpQueue};
use super::{CapturePace, LiveError, LiveOptions, Origin};
use crate::operation::Sink;
use crate::parallel::{ParallelError, Parsers, Shares};
use crate::parcel::Pool;

/// Maximum wait for packets before checking whether to stop.
const PATIENCE: Duration = Duration::from_millis(50);
/// If a ring has no block ready, all packets captured up to this long ago have been read: twice the age limit of a
/// block, doubled again in case the kernel's timer is late.
pub(super) const LATE: Duration = Duration::from_millis(4 * BLOCK_AGE.as_millis() as u64);
/// Parcels in flight per `AF_XDP` queue, where a parcel may hold a single packet.
const XDP_PARCELS: usize = 256;
/// Interval for querying the kernel's drop counters.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// A source of packets: either kind of ring.
enum Source {
    Packet(PacketRing),
    Xdp(XdpQueue),
}

impl Source {
    fn read(&mut self) -> Option<ReadBlock> {
        match self {
            Source::Packet(ring) => ring.read(),
            Source::Xdp(queue) => queue.read(),
        }
    }

    fn counters(&self) -> RingCounters {
        match self {
            Source::Packet(ring) => ring.counters,
            Source::Xdp(queue) => queue.counters,
        }
    }

    fn count_drops(&mut self) -> std::io::Result<()> {
        match self {
            Source::Packet(ring) => ring.count_drops(),
            Source::Xdp(queue) => queue.count_drops(),
        }
    }

    fn fd(&self) -> &OwnedFd {
        match self {
            Source::Packet(ring) => ring.fd(),
            Source::Xdp(queue) => queue.fd(),
        }
    }
}

/// Rings on interfaces, ready for reading.
pub struct LiveCapture {
    rings: Vec<Source>,
    /// Interfaces whose packets are redirected.
    taps: Vec<Tap>,
    pool: Pool,
    /// Number of times that the reader had to wait for a free parcel because the parsers were behind.
    pool_waits: u64,
    names: Vec<String>,
    /// Packets that the interfaces had lost before the capture began.
    card_losses: u64,
    pace: CapturePace,
    /// Rings per interface, if each ring has a parser.
    parser_rings: Option<NonZeroUsize>,
}

/// The report of a capture's reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveReport {
    /// The counters of all rings, merged.
    pub counters: RingCounters,
    /// Number of times that the reader had to wait for a free parcel because the parsers were behind.
    pub pool_waits: u64,
    /// Packets that the interfaces lost before they reached a ring; whether they would have passed the filter is
    /// unknown.
    pub card_losses: u64,
    /// Bytes of `AF_PACKET` ring blocks that hold packets; zero with `AF_XDP`.
    pub ring_used_bytes: u64,
    /// Total bytes of the `AF_PACKET` rings; zero with `AF_XDP`.
    pub ring_bytes: u64,
}

/// Packets that the interfaces report as lost since they were created: dropped and overrun.
fn card_losses(names: &[String]) -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/net/dev") else {
        return 0;
    };
    let of = |line: &str| -> Option<u64> {
        let (name, counters) = line.split_once(':')?;
        if !names.iter().any(|other| other == name.trim()) {
            return None;
        }
        // bytes, packets, errors, dropped, overrun, ...
        let number = |at| counters.split_whitespace().nth(at)?.parse::<u64>().ok();
        Some(number(3)? + number(4)?)
    };
    text.lines().filter_map(of).sum()
}

fn io_error(interface: &str, what: &'static str, source: std::io::Error) -> LiveError {
    LiveError::Io {
        interface: interface.to_string(),
        what,
        source,
    }
}

/// Opens the `AF_XDP` queues of all interfaces; they don't receive packets yet.
fn open_queues(
    interfaces: &[String],
    options: &LiveOptions,
) -> Result<(Vec<Tap>, Vec<XdpQueue>), LiveError> {
    let (mut taps, mut all) = (Vec::new(), Vec::new());
    for (number, name) in (0u32..).zip(interfaces) {
        let (tap, queues) = xdp::open(name, number, options)?;
        taps.push(tap);
        all.extend(queues);
    }
    Ok((taps, all))
}

/// Opens the packet rings of all interfaces and attaches their filters: they capture from now on.
fn open_rings(interfaces: &[String], options: &LiveOptions) -> Result<Vec<PacketRing>, LiveError> {
    let mut rings: Vec<PacketRing> = Vec::new();
    for (number, name) in (0u32..).zip(interfaces) {
        let fanout = match options.rings {
            0 | 1 => Fanout::Alone,
            _ => Fanout::Begin,
        };
        let first = PacketRing::open(name, number, options, fanout)?;
        rings.push(first);
        for _ in 1..options.rings {
            let group = rings[rings.len() - 1]
                .group()
                .map_err(|source| io_error(name, "share the interface among rings", source))?;
            let ring = PacketRing::open(name, number, options, Fanout::Join(group))?;
            rings.push(ring);
        }
    }
    for ring in &rings {
        ring.start(options)
            .map_err(|source| io_error(&interfaces.join(", "), "attach the filter", source))?;
    }
    Ok(rings)
}

impl LiveCapture {
    /// Opens all interfaces, for use with `parsers` parsers. Packets are captured from this moment on.
    ///
    /// # Errors
    /// An interface is missing or unavailable; the message says what to do.
    pub fn open(
        interfaces: &[String],
        options: &LiveOptions,
        parsers: usize,
    ) -> Result<LiveCapture, LiveError> {
        let card_losses = card_losses(interfaces);
        let (mut taps, rings, parcels) = match options.origin {
            Origin::Xdp => {
                let (taps, queues) = open_queues(interfaces, options)?;
                let parcels = XDP_PARCELS * queues.len();
                (taps, queues.into_iter().map(Source::Xdp).collect(), parcels)
            }
            Origin::Packet => {
                let rings = open_rings(interfaces, options)?;
                // Each parcel holds at least one block, so there are never more parcels in flight than blocks.
                let blocks = RingShape::of(options.ring_bytes).block_count * rings.len();
                let rings: Vec<_> = rings.into_iter().map(Source::Packet).collect();
                (Vec::new(), rings, blocks + 1)
            }
        };
        // Started last, because it takes packets away from the host.
        for (tap, name) in taps.iter_mut().zip(interfaces) {
            let what = "attach an XDP program (another one may already be attached; see `ip link`)";
            tap.start().map_err(|source| io_error(name, what, source))?;
        }
        Ok(LiveCapture {
            rings,
            taps,
            pool: Pool::new(parcels, parsers, 0),
            pool_waits: 0,
            names: interfaces.to_vec(),
            card_losses,
            pace: options.pace,
            parser_rings: NonZeroUsize::new(options.rings).filter(|_| options.parser_per_ring),
        })
    }

    /// Number of parcels, for [`Parsers::start`].
    pub fn parcels(&self) -> usize {
        self.pool.count()
    }

    /// Total bytes of all rings, into which packets are captured.
    pub fn ring_bytes(&self, options: &LiveOptions) -> usize {
        let of = |source: &Source| match source {
            Source::Packet(_) => RingShape::of(options.ring_bytes).bytes(),
            Source::Xdp(queue) => queue.frame_bytes(),
        };
        self.rings.iter().map(of).sum()
    }

    /// Packets that the rings have dropped, as of the last query.
    pub fn packets_dropped(&self) -> u64 {
        self.rings.iter().map(|ring| ring.counters().dropped).sum()
    }

    /// The counters so far.
    pub fn report(&self) -> LiveReport {
        let card_losses = card_losses(&self.names).saturating_sub(self.card_losses);
        let mut report = LiveReport {
            pool_waits: self.pool_waits,
            card_losses,
            ..LiveReport::default()
        };
        for source in &self.rings {
            if let Source::Packet(ring) = source {
                let (used, all) = ring.occupancy();
                report.ring_used_bytes += used;
                report.ring_bytes += all;
            }
        }
        for counters in self.rings.iter().map(Source::counters) {
            report.counters.offered += counters.offered;
            report.counters.dropped += counters.dropped;
            report.counters.seen += counters.seen;
            report.counters.hardware_times += counters.hardware_times;
            report.counters.tags_restored += counters.tags_restored;
        }
        report
    }

    /// Reads until `keep_going` returns false, then drains the rings, so that everything captured until then is
    /// analysed. Calls `keep_going` at least a few times a second and once at the end, with the capture and its parsers.
    ///
    /// # Errors
    /// A parser failed. If an interface disappears, the capture ends, and the results so far are returned together
    /// with the error.
    pub fn run<S: Sink + Send + 'static>(
        mut self,
        mut parsers: Parsers<S>,
        mut keep_going: impl FnMut(&LiveCapture, &Parsers<S>) -> bool,
    ) -> Result<(Shares<S>, LiveReport, Option<LiveError>), ParallelError> {
        let mut merge = Merge::new(self.rings.len());
        if let Some(rings) = self.parser_rings {
            parsers.router().by_ring(rings);
        }
        let mut trouble = None;
        let mut asked = Instant::now();
        while keep_going(&self, &parsers) {
            match self.read_round(&mut merge, &mut parsers) {
                Ok(true) => {}
                Ok(false) => {
                    if let Err(source) = ring::wait(self.rings.iter().map(Source::fd), PATIENCE) {
                        trouble = Some(self.error(source));
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
            if asked.elapsed() >= ASK_EVERY {
                asked = Instant::now();
                self.count_drops();
                parsers.tell_time(merge.complete_ns());
            }
        }
        for source in &self.rings {
            if let Source::Packet(ring) = source {
                let _ = ring.stop();
            }
        }
        self.taps.iter_mut().for_each(Tap::stop);
        // The kernel releases the last blocks when they reach their age limit.
        let end = Instant::now() + 2 * LATE;
        while self.read_round(&mut merge, &mut parsers)? || Instant::now() < end {
            let _ = ring::wait(self.rings.iter().map(Source::fd), BLOCK_AGE);
        }
        (0..self.rings.len()).for_each(|ring| merge.quiet_until(ring, u64::MAX));
        self.deliver(&mut merge, &mut parsers)?;
        self.count_drops();
        // Called once more, so that these drops count in the last window.
        keep_going(&self, &parsers);
        let mut shares = parsers.finish()?;
        let report = self.report();
        shares.ledger.packets_dropped += report.counters.dropped;
        Ok((shares, report, trouble))
    }

    fn error(&self, source: std::io::Error) -> LiveError {
        io_error(&self.names.join(", "), "capture", source)
    }

    fn count_drops(&mut self) {
        for ring in &mut self.rings {
            // The wait reports a removed interface.
            let _ = ring.count_drops();
        }
    }

    /// Reads the available blocks; `false` if there were none.
    fn read_round<S: Sink + Send + 'static>(
        &mut self,
        merge: &mut Merge,
        parsers: &mut Parsers<S>,
    ) -> Result<bool, ParallelError> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut any = false;
        for (index, ring) in self.rings.iter_mut().enumerate() {
            match ring.read() {
                Some(block) => {
                    merge.push(index, block);
                    any = true;
                }
                None => {
                    let until = now.saturating_sub(LATE).as_nanos() as u64;
                    merge.quiet_until(index, self.pace.time(until));
                }
            }
        }
        self.deliver(merge, parsers)?;
        Ok(any)
    }

    fn deliver<S: Sink + Send + 'static>(
        &mut self,
        merge: &mut Merge,
        parsers: &mut Parsers<S>,
    ) -> Result<(), ParallelError> {
        let mut parcel = match self.pool.take_within(Duration::ZERO) {
            Some(parcel) => parcel,
            None => {
                self.pool_waits += 1;
                self.pool.take()
            }
        };
        match merge.drain(&mut parcel, parsers.router()) {
            Some(_) => parsers.deliver(parcel),
            None => Ok(()),
        }
    }
}
