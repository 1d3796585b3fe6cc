//! What happens to each packet of one direction of a link, as a state machine: a packet's time and
//! length in, its fate out. The driver ([`super::driver`]) does what it says.
//!
//! A packet first waits for its turn on the line (rate and queue), then travels (delay, jitter, loss,
//! corruption, duplication, holding back). The rule: chance follows from the seed and the packet's
//! number in its direction alone, so that the same packets are lost again, whenever they are sent.

use std::collections::VecDeque;

use brunt_core::{Nanos, random::Random};

use super::settings::{JitterShape, Settings};

/// What an Ethernet frame takes of a line on top of its bytes: preamble 8, checksum 4, gap 12.
pub const FRAME_OVERHEAD_BYTES: u64 = 24;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It arrives.
    Deliver(Delivery),
    /// It is lost on the way.
    Lost,
    /// The queue in front of the line was full.
    QueueFull,
}

/// How a packet arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// When its last bit does.
    pub due: Nanos,
    /// A random number that picks the bit to flip.
    pub corrupt: Option<u64>,
    /// It arrives twice.
    pub duplicate: bool,
    /// It is held back, for others to overtake.
    pub held: bool,
}

impl Delivery {
    /// It arrives once, whole and in its order: may travel together with its neighbours.
    pub fn is_plain(&self) -> bool {
        self.corrupt.is_none() && !self.duplicate && !self.held
    }
}

/// One direction's rules and their state.
#[derive(Clone, Debug)]
pub struct Rules {
    settings: Settings,
    clear: bool,
    seed: u64,
    /// Packets seen.
    sequence: u64,
    /// Gilbert-Elliott's state.
    bad: bool,
    /// When the line will have sent all that waits.
    line_free: Nanos,
    /// When each packet that waits will have been sent; kept only where packets are bounded.
    departures: VecDeque<Nanos>,
    /// When the last one in order arrives.
    last_due: Nanos,
}

impl Rules {
    /// For settings that were checked.
    pub fn new(settings: Settings, seed: u64) -> Rules {
        let clear = settings.is_clear();
        let departures =
            VecDeque::with_capacity(settings.queue_packets.map_or(0, |count| count.min(4096) as usize));
        Rules {
            settings,
            clear,
            seed,
            sequence: 0,
            bad: false,
            line_free: Nanos(0),
            departures,
            last_due: Nanos(0),
        }
    }

    /// From now on. Packets under way keep the fate they have; in order means behind them.
    pub fn change(&mut self, settings: Settings) {
        self.clear = settings.is_clear();
        if settings.loss_bursts.is_none() {
            self.bad = false;
        }
        self.settings = settings;
    }

    /// What holds now.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether packets pass untouched, so that they need no verdict but [`Rules::pass`].
    pub fn is_clear(&self) -> bool {
        self.clear
    }

    /// `count` packets passed without a verdict.
    pub fn pass(&mut self, count: u64) {
        self.sequence += count;
    }

    /// A packet of so many bytes, Ethernet header included, came at `now`. Times do not go back.
    pub fn on_packet(&mut self, now: Nanos, frame_bytes: u32) -> Verdict {
        let mut random = Random::for_part(self.seed, self.sequence);
        self.sequence += 1;
        if self.clear {
            return Verdict::Deliver(Delivery { due: now, corrupt: None, duplicate: false, held: false });
        }
        let Some(sent) = self.send(now, frame_bytes) else { return Verdict::QueueFull };
        // In this order for ever, each drawn whether needed or not: so that one setting does not
        // change what another does to a packet.
        let [loss, turn, corrupt, bit, duplicate, reorder] = std::array::from_fn(|_| random.next_u64());
        let settings = &self.settings;
        let lost = match settings.loss_bursts {
            None => happens(loss, settings.loss),
            Some(bursts) => {
                let share = if self.bad { bursts.loss_bad } else { bursts.loss_good };
                self.bad ^= happens(turn, if self.bad { bursts.to_good } else { bursts.to_bad });
                happens(loss, share)
            }
        };
        if lost {
            return Verdict::Lost;
        }
        let mut due = Nanos(sent.0.saturating_add(self.travel(&mut random)));
        let held = happens(reorder, self.settings.reorder);
        if held {
            due = due.after(self.settings.reorder_by.0);
        } else if self.settings.keep_order {
            due = due.max(self.last_due);
            self.last_due = due;
        }
        Verdict::Deliver(Delivery {
            due,
            corrupt: happens(corrupt, self.settings.corrupt).then_some(bit),
            duplicate: happens(duplicate, self.settings.duplicate),
            held,
        })
    }

    /// When the line has sent the packet; `None` when it does not fit into the queue.
    fn send(&mut self, now: Nanos, frame_bytes: u32) -> Option<Nanos> {
        let Some(rate) = self.settings.rate else { return Some(now) };
        let wire_bits = |bytes: u64| u128::from(bytes + FRAME_OVERHEAD_BYTES) * 8;
        let waiting = u128::from(self.line_free.0.saturating_sub(now.0)) * u128::from(rate.0) / 8_000_000_000;
        if waiting > 0 && waiting + u128::from(frame_bytes) > u128::from(self.settings.queue.0) {
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
        let nanos = (wire_bits(u64::from(frame_bytes)) * 1_000_000_000).div_ceil(u128::from(rate.0));
        let sent = Nanos(self.line_free.max(now).0.saturating_add(nanos as u64));
        self.line_free = sent;
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
        let late = match self.settings.jitter_shape {
            JitterShape::Uniform => (2.0 * random.unit() - 1.0) * jitter,
            JitterShape::Normal => random.normal() * jitter,
            // Lomax with shape 3 and scale s has the mean s / 2; inverse of its distribution function.
            JitterShape::Pareto => 2.0 * jitter * (libm::cbrt(1.0 / (1.0 - random.unit())) - 1.0),
        };
        (delay + late).clamp(0.0, super::settings::DELAY_MAX.as_nanos() as f64) as u64
    }
}

/// Whether something of probability `share` happens with this draw of 64 bits.
#[inline]
fn happens(draw: u64, share: f64) -> bool {
    ((draw >> 11) as f64) * (1.0 / (1u64 << 53) as f64) < share
}

#[cfg(test)]
mod tests {
    use statrs::distribution::{Binomial, DiscreteCDF};

    use super::*;

    fn of(text: &str) -> Settings {
        let settings: Settings = toml::from_str(text).unwrap();
        settings.check().unwrap();
        settings
    }

    /// Fates of packets that come `gap` nanoseconds apart.
    fn fates(text: &str, seed: u64, count: u64, gap: u64) -> Vec<Verdict> {
        let mut rules = Rules::new(of(text), seed);
        (0..count).map(|number| rules.on_packet(Nanos(number * gap), 1514)).collect()
    }

    fn delivery(verdict: &Verdict) -> Option<Delivery> {
        match verdict {
            Verdict::Deliver(delivery) => Some(*delivery),
            _ => None,
        }
    }

    /// Exact: what a fair coin of this share shows in all but one of 10^6 tries.
    fn assert_share(what: &str, seen: u64, of: u64, share: f64) {
        let binomial = Binomial::new(share, of).unwrap();
        let (least, most) = (binomial.inverse_cdf(0.5e-6), binomial.inverse_cdf(1.0 - 0.5e-6));
        assert!((least..=most).contains(&seen), "{what}: {seen} of {of}, expected {least} to {most}");
    }

    /// The goal: each kind of trouble meets its stated share of packets, alone and with all others.
    #[test]
    fn shares_are_as_stated() {
        const COUNT: u64 = 200_000;
        let all = "loss = 0.027\ncorrupt = 0.0002\nduplicate = 0.01\nreorder = 0.02";
        let fates = fates(all, 42, COUNT, 1000);
        let delivered: Vec<Delivery> = fates.iter().filter_map(delivery).collect();
        let arrived = delivered.len() as u64;
        assert_share("lost", COUNT - arrived, COUNT, 0.027);
        let count =
            |of: fn(&Delivery) -> bool| delivered.iter().filter(|delivery| of(delivery)).count() as u64;
        assert_share("corrupted", count(|delivery| delivery.corrupt.is_some()), arrived, 0.0002);
        assert_share("duplicated", count(|delivery| delivery.duplicate), arrived, 0.01);
        assert_share("held back", count(|delivery| delivery.held), arrived, 0.02);
    }

    /// The goal: the same seed loses the same packets, whenever they come and whatever else is set;
    /// another seed loses others.
    #[test]
    fn chance_follows_from_seed_and_number() {
        let lost = |text: &str, seed, gap| -> Vec<usize> {
            let fates = fates(text, seed, 20_000, gap);
            (0..fates.len()).filter(|index| fates[*index] == Verdict::Lost).collect()
        };
        let first = lost("loss = 0.05", 1, 100);
        assert_eq!(first, lost("loss = 0.05", 1, 12_345));
        assert_eq!(first, lost("loss = 0.05\ndelay = '3ms'\njitter = '1ms'\nduplicate = 0.3", 1, 7));
        assert_ne!(first, lost("loss = 0.05", 2, 100));
        // A higher share loses the same ones and more.
        let more = lost("loss = 0.1", 1, 100);
        assert!(first.iter().all(|index| more.contains(index)) && more.len() > first.len());
    }

    /// The goal: settings that change under way do not move the chance of later packets.
    #[test]
    fn a_change_does_not_shift_chance() {
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
            assert_eq!(changed.on_packet(Nanos(number), 100), steady.on_packet(Nanos(number), 100));
        }
    }

    /// The goal: Gilbert-Elliott loses the share that its chain has in the long run, in bursts as long
    /// as a bad state lasts.
    #[test]
    fn losses_come_in_bursts() {
        const COUNT: u64 = 400_000;
        let text = "loss_bursts = { to_bad = 0.01, to_good = 0.25 }";
        let fates = fates(text, 5, COUNT, 10);
        let lost: Vec<bool> = fates.iter().map(|fate| *fate == Verdict::Lost).collect();
        let share = lost.iter().filter(|lost| **lost).count() as f64 / COUNT as f64;
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as u64;
        // 1 / 26 in the long run; a burst of 1 / 0.25 packets. The number of bursts is what varies:
        // about 3846 with a standard deviation of 61, so that 6 of those are 10%.
        assert!((share * 26.0 - 1.0).abs() < 0.1, "{share}");
        let length = share * COUNT as f64 / bursts as f64;
        assert!((length / 4.0 - 1.0).abs() < 0.1, "{length}");
        assert!((of(text).loss_share() - 1.0 / 26.0).abs() < 1e-12);
    }

    /// The goal: a line sends as fast as stated and no faster, frames' overhead included, and its queue
    /// holds as many bytes as stated.
    #[test]
    fn lines_have_a_rate_and_a_queue() {
        // 1538 bytes on the wire at 100 Mb/s: 123.04 us.
        let text = "rate = '100Mb/s'\nqueue = '15140B'";
        let burst = fates(text, 1, 100, 0);
        let due: Vec<u64> = burst.iter().filter_map(delivery).map(|delivery| delivery.due.0).collect();
        let expected: Vec<u64> = (1..=due.len() as u64).map(|number| number * 123_040).collect();
        assert_eq!(due, expected);
        // 15140 bytes hold nine frames of 1538 on the line and before it, and no tenth.
        assert_eq!(due.len(), 9);
        assert!(burst[due.len()..].iter().all(|fate| *fate == Verdict::QueueFull));
        // Later there is place again, and an idle line starts at once.
        let paced = fates(text, 1, 50, 200_000);
        for (number, fate) in paced.iter().enumerate() {
            assert_eq!(delivery(fate).unwrap().due, Nanos(number as u64 * 200_000 + 123_040));
        }
        let bounded = fates("rate = '100Mb/s'\nqueue_packets = 3", 1, 10, 0);
        assert_eq!(bounded.iter().filter_map(delivery).count(), 3);
    }

    /// The goal: jitter has the mean and the spread that its shape states, never comes early by more
    /// than the delay, and keeps order unless told not to.
    #[test]
    fn jitter_has_its_shape() {
        let late = |shape: &str, order: bool| -> Vec<f64> {
            let text =
                format!("delay = '10ms'\njitter = '1ms'\njitter_shape = '{shape}'\nkeep_order = {order}");
            let fates = fates(&text, 3, 100_000, 1000);
            let due = fates.iter().filter_map(delivery).map(|delivery| delivery.due.0);
            due.enumerate().map(|(number, due)| due as f64 - number as f64 * 1000.0 - 10e6).collect()
        };
        let moments = |late: &[f64]| {
            let mean = late.iter().sum::<f64>() / late.len() as f64;
            let variance = late.iter().map(|late| (late - mean).powi(2)).sum::<f64>() / late.len() as f64;
            (mean / 1e6, variance.sqrt() / 1e6)
        };
        // Mean and standard deviation in units of the jitter; the Lomax with shape 3 has sqrt(3) times its mean.
        for (shape, mean, deviation, slack) in [
            ("uniform", 0.0, 1.0 / 3f64.sqrt(), 0.02),
            ("normal", 0.0, 1.0, 0.03),
            ("pareto", 1.0, 3f64.sqrt(), 0.4),
        ] {
            let (seen_mean, seen_deviation) = moments(&late(shape, false));
            assert!((seen_mean - mean).abs() < 0.05, "{shape}: mean {seen_mean}");
            assert!((seen_deviation - deviation).abs() < slack, "{shape}: deviation {seen_deviation}");
        }
        for shape in ["uniform", "normal", "pareto"] {
            let ordered = late(shape, true);
            assert!(ordered.windows(2).all(|pair| pair[1] - pair[0] >= -1000.0), "{shape}");
        }
    }

    /// The goal: a held packet arrives late by the stated time, and holds nobody else up.
    #[test]
    fn held_packets_are_overtaken() {
        let fates = fates("delay = '1ms'\nreorder = 0.1\nreorder_by = '500us'", 11, 10_000, 1000);
        for (number, delivery) in fates.iter().filter_map(delivery).enumerate() {
            let late = if delivery.held { 1_500_000 } else { 1_000_000 };
            assert_eq!(delivery.due, Nanos(number as u64 * 1000 + late));
        }
    }
}
