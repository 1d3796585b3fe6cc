//! Probe packets from one host of a link to the other, on a separate port, counted on arrival.
//!
//! The rule: results come from the hosts' sockets. A packet dropped because the receiving socket was full is not blamed
//! on the link.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use crate::{Host, sys};

/// Size of a small probe packet, and of the large ones that measure a line's rate.
const SMALL_BYTES: usize = 60;
const LARGE_BYTES: usize = 1392;
/// Ethernet, IP and UDP headers, plus a frame's overhead on the wire.
const HEADER_BYTES: usize = 42 + 24;
/// Number of small packets sent back to back, so that others can overtake one that is held back.
const BURST: u64 = 32;
/// Minimum time between two bursts: 32 000 packets per second.
const PACE: Duration = Duration::from_millis(1);
/// Share of a line's rate used by probes.
const LINE_SHARE: f64 = 0.1;
/// Requested buffer size of the receiving socket.
const RECEIVE_BYTES: i32 = 8 << 20;
/// Maximum number of travel times kept: those of the first packets to arrive.
const TIMES_MAX: usize = 4096;
/// How often the kernel's counters and the end condition are checked.
const COUNT_EVERY: Duration = Duration::from_millis(2);
/// ECN codepoint of an ECN-capable sender (RFC 3168, 5).
const ECT_0: u8 = 0b10;
/// Longest sleep between two polls.
const NAP: Duration = Duration::from_micros(200);

/// What a probe observed in one direction.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Seen {
    /// Packets with a known outcome: arrived, or overdue.
    pub(in super::super) known: u64,
    pub(in super::super) missing: u64,
    pub(in super::super) twice: u64,
    /// Packets that arrived after one that was sent later (RFC 4737).
    pub(in super::super) overtaken: u64,
    /// Damaged packets that the receiving host's checksums rejected.
    pub(in super::super) damaged: u64,
    /// Packets that arrived with a congestion mark, according to the receiving host's counters.
    pub(in super::super) marked: u64,
    /// Travel times in nanoseconds.
    times: Vec<u64>,
}

impl Seen {
    /// All packets arrived, with these travel times in nanoseconds.
    #[cfg(test)]
    pub(super) fn of_times(times: Vec<u64>) -> Seen {
        Seen {
            known: times.len() as u64,
            times,
            ..Seen::default()
        }
    }

    /// The travel time, in nanoseconds, that this share (0 to 1) of the packets stays below.
    pub(super) fn time(&self, share: f64) -> Option<u64> {
        let mut times = self.times.clone();
        let place = ((times.len().checked_sub(1)?) as f64 * share) as usize;
        Some(*times.select_nth_unstable(place).1)
    }

    /// Spread of the travel times of the middle 80 % of packets, in nanoseconds.
    pub(super) fn apart(&self) -> Option<u64> {
        Some(self.time(0.9)? - self.time(0.1)?)
    }

    /// Shortest travel time in nanoseconds.
    pub(super) fn least(&self) -> Option<u64> {
        self.times.iter().copied().min()
    }

    /// Number of packets with a travel time.
    pub(in super::super) fn arrived(&self) -> usize {
        self.times.len()
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Seen {
            known,
            missing,
            twice,
            overtaken,
            damaged,
            ..
        } = self;
        write!(
            f,
            "{known} probe packets, {missing} missing, {twice} duplicated, {overtaken} reordered, "
        )?;
        write!(f, "{damaged} damaged")?;
        if self.marked > 0 {
            write!(f, ", {} marked with congestion", self.marked)?;
        }
        match self.time(0.5) {
            Some(median) => write!(f, ", median latency {:.3} ms", median as f64 / 1e6),
            None => Ok(()),
        }
    }
}

/// A pair of sockets that sends packets in one direction.
pub(in super::super) struct Probe {
    from: UdpSocket,
    to: UdpSocket,
    /// The receiving host's counters: the RFC-defined ones, and Linux's own.
    snmp: File,
    netstat: Option<File>,
}

impl Probe {
    /// `capable`: the packets are ECN-capable.
    pub(in super::super) fn new(from: &Host, to: &Host, capable: bool) -> io::Result<Probe> {
        let open = |host: &Host| host.run(|| UdpSocket::bind((host.address(), 0)));
        // An open file keeps reporting that host's counters, whichever thread reads it.
        let snmp = to.run(|| File::open("/proc/thread-self/net/snmp"))?;
        let netstat = capable
            .then(|| to.run(|| File::open("/proc/thread-self/net/netstat")))
            .transpose()?;
        let (from, to) = (open(from)?, open(to)?);
        if capable {
            rustix::net::sockopt::set_ip_tos(&from, ECT_0)?;
        }
        from.connect(to.local_addr()?)?;
        to.connect(from.local_addr()?)?;
        from.set_nonblocking(true)?;
        to.set_nonblocking(true)?;
        sys::set_receive_buffer(to.as_fd(), RECEIVE_BYTES);
        Ok(Probe {
            from,
            to,
            snmp,
            netstat,
        })
    }

    /// Sends up to `packets` small packets and waits up to `wait` for each; stops early when `enough` returns true,
    /// or at `deadline`. The packets use a tenth of the capacity of a line with `line` bits per second.
    pub(in super::super) fn flood(
        &self,
        clock: &Clock,
        packets: u64,
        line: Option<u64>,
        wait: Duration,
        deadline: Nanos,
        mut enough: impl FnMut(&Seen) -> io::Result<bool>,
    ) -> io::Result<Seen> {
        let burst_bits = (BURST as usize * (SMALL_BYTES + HEADER_BYTES) * 8) as f64;
        let pace = line.map_or(PACE, |line| {
            PACE.max(Duration::from_secs_f64(
                burst_bits / (line as f64 * LINE_SHARE),
            ))
        });
        let damaged_before = self.checksum_errors()?;
        let marked_before = self.marks()?;
        let drops_before = sys::socket_drops(self.to.as_fd())?;
        let mut flood = Flood::default();
        let mut next = clock.now();
        let mut next_count = next;
        loop {
            let now = clock.now();
            if now >= next && (flood.sent.len() as u64) < packets {
                flood.send_burst(&self.from, clock)?;
                next = now.after(pace);
            }
            flood.receive(&self.to, clock)?;
            let now = clock.now();
            flood.settle(now, wait);
            let seen = &mut flood.seen;
            let last = seen.known >= packets || now >= deadline;
            if last || now >= next_count {
                let dropped = sys::socket_drops(self.to.as_fd())? - drops_before;
                seen.missing = flood.missing.saturating_sub(u64::from(dropped));
                seen.damaged = self.checksum_errors()?.saturating_sub(damaged_before);
                seen.marked = self.marks()?.saturating_sub(marked_before);
                next_count = now.after(COUNT_EVERY);
                if last || enough(seen)? {
                    return Ok(flood.seen);
                }
            }
            std::thread::sleep(next.since(now).min(NAP));
        }
    }

    /// Sends trains of packets. Returns the highest rate, in bits per second, measured from the start of a train to
    /// one of its packets, less `delay`. Waits up to `wait` for the first packet of a train, then up to `follow` for
    /// each further one. The highest rate counts, because only the line itself can slow down all trains.
    pub(super) fn quickest(
        &self,
        clock: &Clock,
        trains: u32,
        train: ProbeTrain,
        delay: Duration,
        [wait, follow]: [Duration; 2],
    ) -> io::Result<f64> {
        let mut packet = [0u8; LARGE_BYTES];
        let mut quickest = 0.0f64;
        let mut first = 0;
        for _ in 0..trains {
            let begin = clock.now();
            let mut sent = 0;
            for number in first..first + train.packets {
                packet[..8].copy_from_slice(&number.to_le_bytes());
                match self.from.send(&packet[..train.bytes]) {
                    Ok(_) => sent += 1,
                    Err(error) if is_full(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            let mut arrived = BTreeSet::new();
            // After the first packet, the others arrive as fast as the line allows, so the wait for lost ones is
            // short.
            let mut patience = wait;
            while (arrived.len() as u64) < sent && clock.now().since(begin) < patience {
                let Some(bytes) = receive(&self.to, &mut packet)? else {
                    std::thread::sleep(NAP / 10);
                    continue;
                };
                let number = number(&packet[..bytes]) as u64;
                // The packet is from an earlier train, or a duplicate.
                if bytes != train.bytes || number < first || !arrived.insert(number) {
                    continue;
                }
                // At least this many packets have already arrived, so the line is at least this fast.
                let so_far = clock.now().since(begin);
                patience = wait.min(so_far + follow);
                let took = so_far.saturating_sub(delay).as_secs_f64().max(1e-9);
                let bits = arrived.len() as f64 * (train.bytes + HEADER_BYTES) as f64 * 8.0;
                quickest = quickest.max(bits / took);
            }
            first += train.packets;
        }
        Ok(quickest)
    }

    /// Packets rejected so far because of the receiving host's IP, TCP and UDP checksums.
    fn checksum_errors(&self) -> io::Result<u64> {
        Ok(count_named(
            &read_again(&self.snmp)?,
            &["InHdrErrors", "InCsumErrors"],
        ))
    }

    /// Packets with a congestion mark received by the host so far; 0 if the probe is not ECN-capable.
    fn marks(&self) -> io::Result<u64> {
        let Some(netstat) = &self.netstat else {
            return Ok(0);
        };
        Ok(count_named(&read_again(netstat)?, &["InCEPkts"]))
    }
}

/// Small packets in flight, and the outcome of earlier ones.
#[derive(Default)]
struct Flood {
    /// Send time of each packet.
    sent: Vec<Nanos>,
    /// Number of arrivals of each packet.
    arrived: Vec<u8>,
    /// Number of packets, from the first on, whose outcome is known.
    settled: usize,
    /// Settled packets that have not arrived.
    missing: u64,
    /// Highest index among the packets that arrived.
    latest: Option<usize>,
    seen: Seen,
}

impl Flood {
    /// Sends a burst, or the part of it that the host accepts now.
    fn send_burst(&mut self, from: &UdpSocket, clock: &Clock) -> io::Result<()> {
        let mut packet = [0u8; SMALL_BYTES];
        for _ in 0..BURST {
            packet[..8].copy_from_slice(&(self.sent.len() as u64).to_le_bytes());
            match from.send(&packet) {
                Ok(_) => {
                    self.sent.push(clock.now());
                    self.arrived.push(0);
                }
                Err(error) if is_full(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives all packets that have arrived.
    fn receive(&mut self, to: &UdpSocket, clock: &Clock) -> io::Result<()> {
        let mut packet = [0u8; LARGE_BYTES];
        while let Some(bytes) = receive(to, &mut packet)? {
            let index = number(&packet[..bytes]);
            let Some(count) = self.arrived.get_mut(index).filter(|_| bytes == SMALL_BYTES) else {
                continue;
            };
            *count = count.saturating_add(1);
            if *count > 1 {
                self.seen.twice += 1;
                continue;
            }
            // The packet arrived after it was counted as missing.
            self.missing -= u64::from(index < self.settled);
            if self.seen.times.len() < TIMES_MAX {
                self.seen
                    .times
                    .push(clock.now().since(self.sent[index]).as_nanos() as u64);
            }
            self.seen.overtaken += u64::from(self.latest.is_some_and(|latest| index < latest));
            self.latest = self.latest.max(Some(index));
        }
        Ok(())
    }

    /// Counts packets that have not arrived within `wait` as missing.
    fn settle(&mut self, now: Nanos, wait: Duration) {
        while self.settled < self.sent.len()
            && (self.arrived[self.settled] > 0 || now.since(self.sent[self.settled]) > wait)
        {
            self.missing += u64::from(self.arrived[self.settled] == 0);
            self.settled += 1;
        }
        self.seen.known = self.settled as u64;
    }
}

/// Packets sent back to back.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeTrain {
    pub(super) packets: u64,
    pub(super) bytes: usize,
}

impl ProbeTrain {
    /// A train that occupies a line of this rate for about 25 ms and fits into half of a queue of `queue_bytes`.
    pub(super) fn for_line(rate: u64, queue_bytes: u64) -> ProbeTrain {
        let bytes = if rate < 1_000_000 {
            SMALL_BYTES
        } else {
            LARGE_BYTES
        };
        let of_time = rate / 40 / ((bytes + HEADER_BYTES) as u64 * 8);
        let of_queue = queue_bytes / 2 / (bytes + HEADER_BYTES) as u64;
        ProbeTrain {
            packets: of_time.min(of_queue).clamp(3, 32),
            bytes,
        }
    }

    /// How long a line of this rate takes to send the train.
    pub(super) fn time(&self, rate: u64) -> Duration {
        let bits = self.packets as f64 * (self.bytes + HEADER_BYTES) as f64 * 8.0;
        Duration::from_secs_f64(bits / rate as f64)
    }
}

fn number(packet: &[u8]) -> usize {
    packet
        .first_chunk()
        .map_or(usize::MAX, |bytes| u64::from_le_bytes(*bytes) as usize)
}

/// Receives a packet, if one has arrived.
fn receive(socket: &UdpSocket, packet: &mut [u8]) -> io::Result<Option<usize>> {
    match socket.recv(packet) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if is_full(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// No data, or no buffer space: try again later.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
        || error.raw_os_error() == Some(libc::ENOBUFS)
}

pub(in super::super) fn read_again(mut file: &File) -> io::Result<String> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Sums these counters of `/proc/net/snmp` or `/proc/net/netstat`: pairs of lines, the names and then the values.
fn count_named(text: &str, names: &[&str]) -> u64 {
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks_exact(2);
    let named = pairs.flat_map(|pair| pair[0].split_whitespace().zip(pair[1].split_whitespace()));
    named
        .filter(|(name, _)| names.contains(name))
        .filter_map(|(_, value)| value.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's checksum error counters are found by name, at any position.
    #[test]
    fn checksum_error_counters_are_found_by_name() {
        let text = "Ip: Forwarding InHdrErrors OutRequests\nIp: 1 3 900\n\
                    Udp: InDatagrams InCsumErrors MemErrors\nUdp: 7 5 0\nTcp: InCsumErrors\nTcp: 2\n";
        let errors = |text: &str| count_named(text, &["InHdrErrors", "InCsumErrors"]);
        assert_eq!(errors(text), 10);
        assert_eq!(errors(""), 0);
        assert_eq!(errors("Udp: InCsumErrors\nUdp:"), 0);
        // The names exist in the running kernel.
        let own = std::fs::read_to_string("/proc/self/net/snmp").unwrap();
        assert!(
            own.contains("InHdrErrors") && own.contains("InCsumErrors"),
            "{own}"
        );
        let own = std::fs::read_to_string("/proc/self/net/netstat").unwrap();
        assert!(own.contains("InCEPkts"), "{own}");
    }

    /// A train is long enough to stand out from late polling, and short enough for its queue.
    #[test]
    fn trains_fit_their_line() {
        let check = |rate, queue, packets, bytes| {
            let train = ProbeTrain::for_line(rate, queue);
            assert_eq!(
                (train.packets, train.bytes),
                (packets, bytes),
                "{rate} {queue}"
            );
        };
        check(1_000_000_000, 1 << 20, 32, LARGE_BYTES);
        check(1_000_000_000, 9018, 3, LARGE_BYTES);
        check(5_000_000, 1 << 20, 10, LARGE_BYTES);
        check(64_000, 1 << 20, 3, SMALL_BYTES);
        let time = ProbeTrain::for_line(5_000_000, 1 << 20).time(5_000_000);
        assert!((0.02..0.03).contains(&time.as_secs_f64()), "{time:?}");
    }
}
