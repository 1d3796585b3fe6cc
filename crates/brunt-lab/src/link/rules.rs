//! Decides the fate of each packet in one direction of a link, as a state machine: a packet's time and length go in,
//! its fate comes out. The direction ([`super::lane`]) carries out the decision.
//!
//! A packet first waits for the line (rate and queue), then travels (delay, jitter, loss, corruption, duplication,
//! reordering). The rule: randomness depends only on the seed and the packet's number in its direction, so a repeated
//! run loses the same packets, whenever they are sent.

use std::collections::VecDeque;
use std::sync::Arc;

use brunt_core::{Nanos, random::Random};

use super::distribution::DistributionTable;
use super::loss::Loss;
use super::settings::{DELAY_MAX, JitterShape, Settings};

/// Overhead of an Ethernet frame on the wire: preamble 8, checksum 4, gap 12.
pub const FRAME_OVERHEAD_BYTES: u64 = 24;
/// Maximum line time, in nanoseconds, credited to a line whose thread had no core.
const BACK_NANOS_MAX: u64 = 10_000_000;
/// ECN was added later and has its own random sequence, so that all other random decisions stayed the same.
const ECN_CHANCE: u64 = 0x6563_6e00;

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFate {
    /// It arrives.
    Deliver(Delivery),
    /// The packet is lost on the way.
    Lost,
    /// The line's queue was full.
    QueueFull,
}

/// How a packet is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// When the packet's last bit arrives.
    pub due: Nanos,
    /// A random number that picks the bit to flip.
    pub corrupt: Option<u64>,
    /// Whether to set a congestion mark, if the packet is ECN-capable.
    pub mark: bool,
    /// Whether the packet arrives twice.
    pub duplicate: bool,
    /// Whether the packet is held back, so that others overtake it.
    pub held: bool,
}

impl Delivery {
    /// Whether the packet arrives once, intact and in order, so that it may stay together with its neighbours.
    pub fn is_plain(&self) -> bool {
        self.corrupt.is_none() && !self.mark && !self.duplicate && !self.held
    }
}

/// One direction's rules and their state.
#[derive(Clone, Debug)]
pub struct Rules {
    settings: Settings,
    /// The queue limit that follows from the settings.
    queue_bytes: u64,
    clear: bool,
    seed: u64,
    /// Packets seen.
    sequence: u64,
    loss: Loss,
    /// The table of a distribution, if one is set.
    table: Option<Arc<DistributionTable>>,
    /// When the line will have sent all queued packets.
    line_free: Nanos,
    /// When each queued packet will have been sent; only kept if the queue is limited in packets.
    departures: VecDeque<Nanos>,
    /// When the last in-order packet arrives.
    last_due: Nanos,
    line_time: LineTime,
}

/// How a line's time was used, how long packets were held to keep their order, and how many bytes queued at the line.
/// Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineTime {
    /// Time spent sending.
    pub sent: u64,
    /// Time idle although packets waited, because the thread didn't poll; excludes credited time.
    pub lost: u64,
    /// Total extra time that packets took to keep their order.
    pub ordered: u64,
    /// Peak number of bytes queued at the line when a packet arrived; `u64::MAX` if the queue was full.
    pub backlog_bytes: u64,
}

impl Rules {
    /// Requires validated settings.
    pub fn new(settings: Settings, seed: u64) -> Rules {
        let clear = settings.is_clear();
        let loss = Loss::new(settings.loss_model());
        let table = table(&settings);
        let departures = VecDeque::with_capacity(
            settings
                .queue_packets
                .map_or(0, |count| count.min(4096) as usize),
        );
        Rules {
            queue_bytes: settings.queue_bytes(),
            settings,
            clear,
            seed,
            sequence: 0,
            loss,
            table,
            line_free: Nanos(0),
            departures,
            last_due: Nanos(0),
            line_time: LineTime::default(),
        }
    }

    /// Applies new settings. Packets in flight keep their fate; later in-order packets arrive after them.
    pub fn change(&mut self, settings: Settings) {
        self.clear = settings.is_clear();
        self.loss.change(settings.loss_model());
        self.table = table(&settings);
        self.queue_bytes = settings.queue_bytes();
        self.settings = settings;
    }

    /// The current settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether packets pass unmodified and need no decision other than [`Rules::pass`].
    pub fn is_clear(&self) -> bool {
        self.clear
    }

    /// How the line's time was used since the last call.
    pub fn take_line_time(&mut self) -> LineTime {
        std::mem::take(&mut self.line_time)
    }

    /// Counts packets that passed without a decision.
    pub fn pass(&mut self, count: u64) {
        self.sequence += count;
    }

    /// The arrival time of an unimpaired packet that comes at `now` and keeps its order.
    pub fn behind(&mut self, now: Nanos) -> Nanos {
        let due = now.after(self.settings.delay.0).max(self.last_due);
        self.last_due = due;
        due
    }

    /// Decides about a packet of `frame_bytes`, including the Ethernet header,
    /// that arrived at `now`. Times never go backwards.
    pub fn on_packet(&mut self, now: Nanos, frame_bytes: u32) -> PacketFate {
        self.on_packet_since(now, now, frame_bytes)
    }

    /// Like [`Rules::on_packet`], for a packet that arrived after `looked`, when there was none, and no later than
    /// `now`. The line is assumed to have sent it as early as possible after `looked`, so that up to 10 ms of line
    /// time are not lost while the thread has no core. The line never sends it before `now`, however, so it arrives
    /// no earlier than a packet that comes at `now` to a link without a rate.
    pub fn on_packet_since(&mut self, looked: Nanos, now: Nanos, frame_bytes: u32) -> PacketFate {
        let mut random = Random::for_part(self.seed, self.sequence);
        self.sequence += 1;
        if self.clear {
            return PacketFate::Deliver(Delivery {
                due: now,
                corrupt: None,
                mark: false,
                duplicate: false,
                held: false,
            });
        }
        let Some(sent) = self.send(looked, now, frame_bytes) else {
            self.line_time.backlog_bytes = u64::MAX;
            return PacketFate::QueueFull;
        };
        // All draws are made in this order, needed or not, so that one setting doesn't change the effect of another on
        // a packet.
        let [loss, turn, corrupt, bit, duplicate, reorder] =
            std::array::from_fn(|_| random.next_u64());
        if self.loss.takes(unit(loss), unit(turn)) {
            return PacketFate::Lost;
        }
        let mut due = Nanos(sent.0.saturating_add(self.travel(&mut random)));
        let held = happens(reorder, self.settings.reorder);
        if held {
            due = due.after(self.settings.reorder_by.0);
        } else if self.settings.keep_order {
            self.line_time.ordered += self.last_due.0.saturating_sub(due.0);
            due = due.max(self.last_due);
            self.last_due = due;
        }
        PacketFate::Deliver(Delivery {
            due,
            corrupt: happens(corrupt, self.settings.corrupt).then_some(bit),
            mark: self.marks(),
            duplicate: happens(duplicate, self.settings.duplicate),
            held,
        })
    }

    /// Whether the packet that was just counted is marked.
    fn marks(&self) -> bool {
        let share = self.settings.ecn;
        share > 0.0 && Random::for_part(self.seed ^ ECN_CHANCE, self.sequence).unit() < share
    }

    /// When the line will have sent the packet; `None` if the packet doesn't fit into the queue.
    fn send(&mut self, looked: Nanos, now: Nanos, frame_bytes: u32) -> Option<Nanos> {
        let Some(rate) = self.settings.rate else {
            return Some(now);
        };
        let wire_bits = |bytes: u64| u128::from(bytes + FRAME_OVERHEAD_BYTES) * 8;
        let waiting =
            u128::from(self.line_free.0.saturating_sub(now.0)) * u128::from(rate.0) / 8_000_000_000;
        if waiting > 0 && waiting + u128::from(frame_bytes) > u128::from(self.queue_bytes) {
            return None;
        }
        if let Some(packets) = self.settings.queue_packets {
            while self.departures.front().is_some_and(|sent| *sent <= now) {
                self.departures.pop_front();
            }
            if self.departures.len() >= packets as usize {
                return None;
            }
        }
        // Rounded up: a line is never faster than stated.
        let nanos =
            (wire_bits(u64::from(frame_bytes)) * 1_000_000_000).div_ceil(u128::from(rate.0));
        let idle_since = self.line_free.0.max(looked.0.min(now.0));
        let arrived = looked.0.clamp(now.0.saturating_sub(BACK_NANOS_MAX), now.0);
        self.line_time.lost += arrived.saturating_sub(idle_since);
        self.line_time.sent += nanos as u64;
        self.line_time.backlog_bytes = self.line_time.backlog_bytes.max(waiting as u64);
        self.line_free = Nanos(self.line_free.0.max(arrived).saturating_add(nanos as u64));
        let sent = self.line_free.max(now);
        if self.settings.queue_packets.is_some() {
            self.departures.push_back(sent);
        }
        Some(sent)
    }

    /// Delay and jitter of one packet, in nanoseconds.
    fn travel(&self, random: &mut Random) -> u64 {
        let delay = self.settings.delay.0.as_nanos() as f64;
        if self.settings.jitter.0.is_zero() {
            return delay as u64;
        }
        let jitter = self.settings.jitter.0.as_nanos() as f64;
        if let Some(table) = &self.table {
            return bounded(delay + table.draw(random.next_u64()) * jitter);
        }
        let late = match self.settings.jitter_shape {
            JitterShape::Uniform => (2.0 * random.unit() - 1.0) * jitter,
            JitterShape::Normal => random.normal() * jitter,
            // Lomax with shape 3 and scale s has a mean of s / 2; this is the inverse of its distribution function.
            JitterShape::Pareto => 2.0 * jitter * (libm::cbrt(1.0 / (1.0 - random.unit())) - 1.0),
        };
        bounded(delay + late)
    }
}

/// Clamps a delay to 0 .. [`DELAY_MAX`].
fn bounded(nanos: f64) -> u64 {
    nanos.clamp(0.0, DELAY_MAX.as_nanos() as f64) as u64
}

fn table(settings: &Settings) -> Option<Arc<DistributionTable>> {
    settings.distribution.as_ref().map(|named| {
        named
            .table()
            .expect("validated settings contain their table")
    })
}

/// Whether an event of probability `share` occurs for this 64-bit draw.
#[inline]
fn happens(draw: u64, share: f64) -> bool {
    unit(draw) < share
}

/// Maps 64 random bits to [0, 1).
#[inline]
fn unit(draw: u64) -> f64 {
    ((draw >> 11) as f64) * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use statrs::distribution::{Binomial, DiscreteCDF};

    use super::*;

    fn of(text: &str) -> Settings {
        let settings: Settings = toml::from_str(text).unwrap();
        settings.check().unwrap();
        settings
    }

    /// Fates of packets that arrive `gap` nanoseconds apart.
    fn fates(text: &str, seed: u64, count: u64, gap: u64) -> Vec<PacketFate> {
        let mut rules = Rules::new(of(text), seed);
        (0..count)
            .map(|number| rules.on_packet(Nanos(number * gap), 1514))
            .collect()
    }

    fn delivery(verdict: &PacketFate) -> Option<Delivery> {
        match verdict {
            PacketFate::Deliver(delivery) => Some(*delivery),
            _ => None,
        }
    }

    /// A sender below the line's rate leaves no queue, even if it occasionally has to wait for a core; a sender that
    /// exceeds the line's rate does.
    #[test]
    fn a_queue_shows_whether_a_line_was_offered_more() {
        let check = |text: &str, gap: u64, late: &dyn Fn(u64) -> u64, expected: fn(u64) -> bool| {
            let mut rules = Rules::new(of(text), 1);
            for number in 0..2000 {
                let sent = Nanos(number * gap);
                rules.on_packet(sent.after(Duration::from_nanos(late(number))), 1442);
            }
            let LineTime { backlog_bytes, .. } = rules.take_line_time();
            assert!(expected(backlog_bytes), "{text} {gap}: {backlog_bytes}");
            assert_eq!(rules.take_line_time(), LineTime::default());
        };
        let line = "rate = \"10Mb/s\"";
        let punctual = |_| 0;
        check(line, 2_000_000, &punctual, |bytes| bytes == 0);
        // One packet in a hundred waits nine intervals for a core, and the next nine arrive together with it.
        let for_a_core = |number: u64| 2_000_000 * 9u64.saturating_sub(number % 100);
        check(line, 2_000_000, &for_a_core, |bytes| {
            (1..16 * 1514).contains(&bytes)
        });
        // Trains of 43 packets at two thirds of the rate: the sender had no core in between.
        let in_trains = |number: u64| 1_750_000 * (42 - number % 43);
        check(line, 1_750_000, &in_trains, |bytes| bytes > 16 * 1514);
        check(line, 1_000_000, &punctual, |bytes| bytes > 16 * 1514);
        // A full queue counts, however short it is.
        let short = "rate = \"10Mb/s\"\nqueue = \"10KiB\"";
        check(short, 1_000_000, &punctual, |bytes| bytes == u64::MAX);
        check(short, 2_000_000, &punctual, |bytes| bytes == 0);
    }

    /// Checks against bounds that a correct share exceeds only once in 10^6 tries.
    fn assert_share(what: &str, seen: u64, of: u64, share: f64) {
        let binomial = Binomial::new(share, of).unwrap();
        let (least, most) = (
            binomial.inverse_cdf(0.5e-6),
            binomial.inverse_cdf(1.0 - 0.5e-6),
        );
        assert!(
            (least..=most).contains(&seen),
            "{what}: {seen} of {of}, expected {least} to {most}"
        );
    }

    /// Each impairment affects its stated share of packets, both alone and combined with all others.
    #[test]
    fn shares_are_as_stated() {
        const COUNT: u64 = 200_000;
        let all = "loss = 0.027\ncorrupt = 0.0002\nduplicate = 0.01\nreorder = 0.02";
        let fates = fates(all, 42, COUNT, 1000);
        let delivered: Vec<Delivery> = fates.iter().filter_map(delivery).collect();
        let arrived = delivered.len() as u64;
        assert_share("lost", COUNT - arrived, COUNT, 0.027);
        let count = |of: fn(&Delivery) -> bool| {
            delivered.iter().filter(|delivery| of(delivery)).count() as u64
        };
        assert_share(
            "corrupted",
            count(|delivery| delivery.corrupt.is_some()),
            arrived,
            0.0002,
        );
        assert_share(
            "duplicated",
            count(|delivery| delivery.duplicate),
            arrived,
            0.01,
        );
        assert_share("held back", count(|delivery| delivery.held), arrived, 0.02);
    }

    /// The same seed loses the same packets, whenever they arrive and whatever else is configured; another seed loses
    /// others.
    #[test]
    fn losses_depend_only_on_the_seed_and_the_packets_number() {
        let lost = |text: &str, seed, gap| -> Vec<usize> {
            let fates = fates(text, seed, 20_000, gap);
            (0..fates.len())
                .filter(|index| fates[*index] == PacketFate::Lost)
                .collect()
        };
        let first = lost("loss = 0.05", 1, 100);
        assert_eq!(first, lost("loss = 0.05", 1, 12_345));
        assert_eq!(
            first,
            lost(
                "loss = 0.05\ndelay = '3ms'\njitter = '1ms'\nduplicate = 0.3",
                1,
                7
            )
        );
        assert_ne!(first, lost("loss = 0.05", 2, 100));
        // A higher share loses the same packets plus others.
        let more = lost("loss = 0.1", 1, 100);
        assert!(first.iter().all(|index| more.contains(index)) && more.len() > first.len());
    }

    /// Changing settings and back doesn't shift the random decisions about later packets.
    #[test]
    fn a_change_of_settings_does_not_shift_later_losses() {
        let mut changed = Rules::new(of(""), 9);
        let mut steady = Rules::new(of("loss = 0.2"), 9);
        changed.pass(500);
        for number in 0..500 {
            assert!(delivery(&changed.on_packet(Nanos(number), 100)).is_some());
        }
        for number in 0..1000 {
            steady.on_packet(Nanos(number), 100);
        }
        changed.change(of("loss = 0.2"));
        for number in 1000..3000 {
            assert_eq!(
                changed.on_packet(Nanos(number), 100),
                steady.on_packet(Nanos(number), 100)
            );
        }
    }

    /// Gilbert-Elliott loses the long-run share of its Markov chain, in bursts that last as long as the bad state.
    #[test]
    fn losses_come_in_bursts() {
        const COUNT: u64 = 400_000;
        let text = "loss_bursts = { to_bad = 0.01, to_good = 0.25 }";
        let fates = fates(text, 5, COUNT, 10);
        let lost: Vec<bool> = fates.iter().map(|fate| *fate == PacketFate::Lost).collect();
        let share = lost.iter().filter(|lost| **lost).count() as f64 / COUNT as f64;
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as u64;
        // The long-run share is 1/26, and a burst has 1/0.25 = 4 packets on average. The number of bursts varies:
        // about 3846 with a standard deviation of 61, so 10% are 6 standard deviations.
        assert!((share * 26.0 - 1.0).abs() < 0.1, "{share}");
        let length = share * COUNT as f64 / bursts as f64;
        assert!((length / 4.0 - 1.0).abs() < 0.1, "{length}");
        assert!((of(text).loss_share() - 1.0 / 26.0).abs() < 1e-12);
    }

    /// A line sends exactly at the stated rate, including frame overhead,
    /// and its queue holds the stated number of bytes.
    #[test]
    fn lines_have_a_rate_and_a_queue() {
        // 1538 bytes on the wire at 100 Mb/s: 123.04 us.
        let text = "rate = '100Mb/s'\nqueue = '15140B'";
        let burst = fates(text, 1, 100, 0);
        let due: Vec<u64> = burst
            .iter()
            .filter_map(delivery)
            .map(|delivery| delivery.due.0)
            .collect();
        let expected: Vec<u64> = (1..=due.len() as u64)
            .map(|number| number * 123_040)
            .collect();
        assert_eq!(due, expected);
        // 15140 bytes hold nine frames of 1538 being sent or queued, but not a tenth.
        assert_eq!(due.len(), 9);
        assert!(
            burst[due.len()..]
                .iter()
                .all(|fate| *fate == PacketFate::QueueFull)
        );
        // Later, the queue has room again, and an idle line starts immediately.
        let paced = fates(text, 1, 50, 200_000);
        for (number, fate) in paced.iter().enumerate() {
            assert_eq!(
                delivery(fate).unwrap().due,
                Nanos(number as u64 * 200_000 + 123_040)
            );
        }
        let bounded = fates("rate = '100Mb/s'\nqueue_packets = 3", 1, 10, 0);
        assert_eq!(bounded.iter().filter_map(delivery).count(), 3);
    }

    /// A busy line loses no time while the thread is away, sends no more than its rate, and no packet takes less than
    /// the delay; for longer absences, 10 ms are credited.
    #[test]
    fn a_busy_line_loses_no_time_while_the_thread_is_away() {
        // 1250 bytes on the wire take 10 us at 1 Gb/s. The packets of each 5 ms are found together.
        let mut rules = Rules::new(of("rate = '1Gb/s'\ndelay = '1ms'\nqueue = '10MiB'"), 1);
        let (mut sent, mut last) = (0u64, 0);
        for look in 1..=200u64 {
            let (looked, now) = (Nanos((look - 1) * 5_000_000), Nanos(look * 5_000_000));
            for _ in 0..500 {
                let delivery = delivery(&rules.on_packet_since(looked, now, 1226)).unwrap();
                assert!(
                    delivery.due.0 >= now.0 + 1_000_000,
                    "{delivery:?} at {now:?}"
                );
                (sent, last) = (sent + 1, delivery.due.0);
            }
        }
        assert_eq!((sent, last), (100_000, 1_001_000_000));
        let mut late = Rules::new(of("rate = '1Gb/s'"), 1);
        let due = |rules: &mut Rules| {
            delivery(&rules.on_packet_since(Nanos(0), Nanos(1_000_000_000), 1226))
                .unwrap()
                .due
        };
        let all: Vec<Nanos> = (0..1002).map(|_| due(&mut late)).collect();
        assert!(
            all[..1000].iter().all(|due| *due == Nanos(1_000_000_000)),
            "ten milliseconds are enough for a thousand packets"
        );
        assert_eq!(all[1001], Nanos(1_000_020_000));
        // Of the first second, all but the 10 ms of credit are lost.
        let expected = LineTime {
            sent: 10_020_000,
            lost: 990_000_000,
            ordered: 0,
            backlog_bytes: late.line_time.backlog_bytes,
        };
        assert_eq!(
            (late.take_line_time(), late.take_line_time()),
            (expected, LineTime::default())
        );
    }

    /// Jitter has the mean and spread of its shape, never makes packets early by more than the delay, and preserves
    /// order by default.
    #[test]
    fn jitter_has_the_mean_and_spread_of_its_shape() {
        let late = |shape: &str, order: bool| -> Vec<f64> {
            let text = format!(
                "delay = '10ms'\njitter = '1ms'\njitter_shape = '{shape}'\nkeep_order = {order}"
            );
            let fates = fates(&text, 3, 100_000, 1000);
            let due = fates
                .iter()
                .filter_map(delivery)
                .map(|delivery| delivery.due.0);
            due.enumerate()
                .map(|(number, due)| due as f64 - number as f64 * 1000.0 - 10e6)
                .collect()
        };
        let moments = |late: &[f64]| {
            let mean = late.iter().sum::<f64>() / late.len() as f64;
            let variance =
                late.iter().map(|late| (late - mean).powi(2)).sum::<f64>() / late.len() as f64;
            (mean / 1e6, variance.sqrt() / 1e6)
        };
        // Mean and standard deviation in units of the jitter; the standard deviation of a Lomax with shape 3 is sqrt(3)
        // times its mean.
        for (shape, mean, deviation, slack) in [
            ("uniform", 0.0, 1.0 / 3f64.sqrt(), 0.02),
            ("normal", 0.0, 1.0, 0.03),
            ("pareto", 1.0, 3f64.sqrt(), 0.4),
        ] {
            let (seen_mean, seen_deviation) = moments(&late(shape, false));
            assert!((seen_mean - mean).abs() < 0.05, "{shape}: mean {seen_mean}");
            assert!(
                (seen_deviation - deviation).abs() < slack,
                "{shape}: deviation {seen_deviation}"
            );
        }
        // To keep their order, packets wait; the wait is counted, and increases the mean.
        let mut rules = Rules::new(of("delay = '20ms'\njitter = '5ms'"), 3);
        let due = |number: u64| {
            delivery(&rules.on_packet(Nanos(number * 1_000_000), 100))
                .unwrap()
                .due
                .0
        };
        let all: u64 = (0..50_000)
            .map(due)
            .enumerate()
            .map(|(number, due)| due - number as u64 * 1_000_000)
            .sum();
        let waited = rules.take_line_time().ordered;
        assert!(
            ((all - waited) as f64 / 50_000e6 - 20.0).abs() < 0.1,
            "{all} {waited}"
        );
        assert!(waited > 50_000 * 1_500_000, "{waited}");
        for shape in ["uniform", "normal", "pareto"] {
            let ordered = late(shape, true);
            assert!(
                ordered.windows(2).all(|pair| pair[1] - pair[0] >= -1000.0),
                "{shape}"
            );
        }
    }

    /// For every table, delays have the table's mean and deviation, times the jitter.
    #[test]
    fn delays_have_the_moments_of_their_table() {
        let folder = std::env::temp_dir().join(format!("brunt-table-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(
            folder.join("two-peaks.dist"),
            "# measured\n-8192 -8000 -7000\n16384 16000 0",
        )
        .unwrap();
        for name in ["normal", "pareto", "paretonormal", "two-peaks.dist"] {
            let text = format!(
                "delay = '10ms'\njitter = '1ms'\nkeep_order = false\ndistribution = '{name}'"
            );
            let mut settings: Settings = toml::from_str(&text).unwrap();
            settings.read_files(&folder).unwrap();
            settings.check().unwrap();
            let table = settings.distribution.as_ref().unwrap().table().unwrap();
            let mut rules = Rules::new(settings, 3);
            const COUNT: u64 = 200_000;
            let late: Vec<f64> = (0..COUNT)
                .map(|number| {
                    let fate = rules.on_packet(Nanos(number * 1000), 1514);
                    (delivery(&fate).unwrap().due.0 as f64 - number as f64 * 1000.0 - 10e6) / 1e6
                })
                .collect();
            let mean = late.iter().sum::<f64>() / COUNT as f64;
            let deviation =
                (late.iter().map(|late| (late - mean).powi(2)).sum::<f64>() / COUNT as f64).sqrt();
            // Five standard errors of the mean; the error of the deviation is about the same for such tables.
            let slack = 5.0 * table.deviation() / (COUNT as f64).sqrt();
            assert!(
                (mean - table.mean()).abs() < slack,
                "{name}: {mean}, not {}",
                table.mean()
            );
            assert!(
                (deviation - table.deviation()).abs() < 2.0 * slack,
                "{name}: {deviation}"
            );
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// The same seed repeats the decisions of every loss, delay and mark model for the same packets, whenever they
    /// arrive; another seed doesn't.
    #[test]
    fn every_model_repeats_its_decisions_for_the_same_seed() {
        for text in [
            "loss = 0.3\nloss_gap = 5",
            "loss = 0.05\nloss_correlation = 0.5",
            "loss_bursts = { p = 0.02, r = 0.25, 1-h = 0.9, 1-k = 0.001 }",
            "ecn = 0.1",
            "delay = '10ms'\njitter = '1ms'\nkeep_order = false\ndistribution = 'paretonormal'",
        ] {
            // The effect on each packet, relative to its arrival time.
            let met = |seed, gap: u64| -> Vec<Option<(u64, bool)>> {
                let fates = fates(text, seed, 5_000, gap).into_iter().enumerate();
                let late = |(number, delivery): (u64, Delivery)| {
                    (delivery.due.0 - number * gap, delivery.mark)
                };
                fates
                    .map(|(number, fate)| delivery(&fate).map(|met| late((number as u64, met))))
                    .collect()
            };
            assert_eq!(met(1, 100), met(1, 12_345), "{text}");
            assert_ne!(met(1, 100), met(2, 100), "{text}");
        }
    }

    /// Congestion marks affect the stated share of packets and don't shift other random decisions.
    #[test]
    fn marks_affect_their_share_of_packets() {
        const COUNT: u64 = 100_000;
        let marked = fates("loss = 0.05\nduplicate = 0.1\necn = 0.2", 4, COUNT, 1000);
        let plain = fates("loss = 0.05\nduplicate = 0.1", 4, COUNT, 1000);
        let unmarked = |fate: &PacketFate| match fate {
            PacketFate::Deliver(delivery) => PacketFate::Deliver(Delivery {
                mark: false,
                ..*delivery
            }),
            other => *other,
        };
        assert!(marked.iter().map(unmarked).eq(plain));
        let delivered: Vec<Delivery> = marked.iter().filter_map(delivery).collect();
        let marks = delivered.iter().filter(|delivery| delivery.mark).count() as u64;
        assert_share("marked", marks, delivered.len() as u64, 0.2);
    }

    /// A held packet is late by the stated time, and delays no others.
    #[test]
    fn held_packets_are_overtaken() {
        let fates = fates(
            "delay = '1ms'\nreorder = 0.1\nreorder_by = '500us'",
            11,
            10_000,
            1000,
        );
        for (number, delivery) in fates.iter().filter_map(delivery).enumerate() {
            let late = if delivery.held { 1_500_000 } else { 1_000_000 };
            assert_eq!(delivery.due, Nanos(number as u64 * 1000 + late));
        }
    }
}
