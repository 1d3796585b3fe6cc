//! What a link does to packets, as written in an experiment, for one direction.
//!
//! Read by the rules ([`super::rules`]) and, where the experiment asks for it, turned into netem's
//! options. The rule: zero is nothing; every value is checked before a packet meets it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use brunt_core::{Size, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest delay and jitter: farther than any storage is away, the Moon included.
pub const DELAY_MAX: Duration = Duration::from_secs(10);
/// Slowest line, in bits a second.
pub const RATE_MIN: u64 = 1_000;
/// Fastest line, in bits a second; without a rate a link is as fast as the machine.
pub const RATE_MAX: u64 = 1_000_000_000_000;

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Time from the last bit sent to the last bit received.
    pub delay: Span,
    /// How much the delay varies; what the number means is `jitter_shape`'s matter.
    pub jitter: Span,
    /// How it varies.
    pub jitter_shape: JitterShape,
    /// Whether packets keep their order under jitter: one that would overtake arrives with the
    /// one before it. Without, jitter reorders.
    pub keep_order: bool,
    /// Share of packets lost, each for itself (Bernoulli).
    pub loss: f64,
    /// Loss in bursts instead (Gilbert-Elliott).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_bursts: Option<Bursts>,
    /// Share of packets in which one bit is flipped on the way, after all checksums.
    pub corrupt: f64,
    /// Share of packets that arrive twice.
    pub duplicate: f64,
    /// Share of packets held back by `reorder_by`, so that later ones overtake them.
    pub reorder: f64,
    /// How long those are held back. The packet is reordered when another is sent within it.
    pub reorder_by: Span,
    /// Bits a second of the line, preamble, checksum and gap of each Ethernet frame included; none: as
    /// fast as the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// Bytes that wait in front of a line with a rate; what comes on top is dropped and counted.
    pub queue: Size,
    /// Packets that wait there, if they are bounded as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u32>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            delay: Span(Duration::ZERO),
            jitter: Span(Duration::ZERO),
            jitter_shape: JitterShape::Uniform,
            keep_order: true,
            loss: 0.0,
            loss_bursts: None,
            corrupt: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: Span(Duration::from_millis(1)),
            rate: None,
            queue: Size(1 << 20),
            queue_packets: None,
        }
    }
}

/// The distribution of what jitter adds to the delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JitterShape {
    /// Evenly between `-jitter` and `+jitter`.
    #[default]
    Uniform,
    /// Normal with this standard deviation.
    Normal,
    /// Lomax (a Pareto that begins at zero) with this mean and shape 3: never early, seldom very late.
    Pareto,
}

/// The Gilbert-Elliott model: a line is good or bad, and changes with these probabilities at each packet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// Probability to turn from good to bad.
    pub to_bad: f64,
    /// Probability to turn from bad to good.
    pub to_good: f64,
    /// Share lost while good.
    #[serde(default)]
    pub loss_good: f64,
    /// Share lost while bad.
    #[serde(default = "one")]
    pub loss_bad: f64,
}

fn one() -> f64 {
    1.0
}

impl Bursts {
    /// Share lost in the long run.
    pub fn share(&self) -> f64 {
        let bad = self.to_bad / (self.to_bad + self.to_good);
        bad * self.loss_bad + (1.0 - bad) * self.loss_good
    }

    /// Losses a packet that come independently of each other: all of a burst count as one. Never more than
    /// the share lost.
    pub fn events(&self) -> f64 {
        let bad = self.to_bad / (self.to_bad + self.to_good);
        // A burst has a loss in it before it ends.
        let ends = self.to_good * (1.0 - self.loss_bad);
        let hits = if self.loss_bad > 0.0 { self.loss_bad / (self.loss_bad + ends) } else { 0.0 };
        let events = bad * self.to_good * hits + (1.0 - bad) * self.loss_good;
        // A line that never turns good again has one burst, of everything.
        if self.to_good == 0.0 { self.share() } else { events.min(self.share()) }
    }
}

/// A value that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct SettingsError {
    /// The key in the file.
    pub key: &'static str,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl Settings {
    /// Whether packets pass untouched and at once.
    pub fn is_clear(&self) -> bool {
        let Settings { delay, jitter, loss, loss_bursts, corrupt, duplicate, reorder, rate, .. } = self;
        let none = [loss, corrupt, duplicate, reorder].into_iter().all(|share| *share == 0.0);
        none && delay.0.is_zero() && jitter.0.is_zero() && loss_bursts.is_none() && rate.is_none()
    }

    /// Bits a second of the line, if it has a rate.
    pub fn rate_bits(&self) -> Option<u64> {
        self.rate.map(|rate| rate.0)
    }

    /// Share of packets lost on purpose in the long run, queue aside.
    pub fn loss_share(&self) -> f64 {
        self.loss_bursts.map_or(self.loss, |bursts| bursts.share())
    }

    /// Holds each value against its bounds.
    ///
    /// # Errors
    /// The first that is out of them, by its key.
    pub fn check(&self) -> Result<(), SettingsError> {
        let wrong = |key, what: String| Err(SettingsError { key, what });
        let shares = [
            ("loss", self.loss),
            ("corrupt", self.corrupt),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
        ];
        let bursts = self.loss_bursts.iter().flat_map(|bursts| {
            [bursts.to_bad, bursts.to_good, bursts.loss_good, bursts.loss_bad]
                .map(|share| ("loss_bursts", share))
        });
        for (key, share) in shares.into_iter().chain(bursts) {
            if !(0.0..=1.0).contains(&share) {
                return wrong(key, format!("{share} is no share; write 0 to 1, 0.01 for one in a hundred"));
            }
        }
        if let Some(bursts) = self.loss_bursts {
            if self.loss != 0.0 {
                return wrong("loss_bursts", "there is loss already; write one of the two".into());
            }
            if bursts.to_bad + bursts.to_good == 0.0 {
                return wrong("loss_bursts", "a line that never changes; write loss instead".into());
            }
        }
        for (key, span) in [("delay", self.delay), ("jitter", self.jitter), ("reorder_by", self.reorder_by)] {
            if span.0 > DELAY_MAX {
                return wrong(key, format!("{span} is longer than {}", Span(DELAY_MAX)));
            }
        }
        if self.reorder > 0.0 && self.reorder_by.0.is_zero() {
            return wrong("reorder_by", "packets held back for no time are not reordered".into());
        }
        if let Some(BitRate(rate)) = self.rate
            && !(RATE_MIN..=RATE_MAX).contains(&rate)
        {
            return wrong("rate", format!("{} is out of range; write 1kb/s to 1000Gb/s", BitRate(rate)));
        }
        if self.queue.0 < 9018 && self.rate.is_some() {
            return wrong("queue", "less than one jumbo frame (9018 bytes) lets nothing through".into());
        }
        if self.queue_packets == Some(0) {
            return wrong("queue_packets", "no place for a packet lets nothing through".into());
        }
        Ok(())
    }
}

/// Bits a second: `"100Mb/s"`, `"1Gb/s"`, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BitRate(pub u64);

/// What a bit rate may end in; decimal, as lines are sold.
const RATE_UNITS: [(&str, u64); 4] =
    [("gb/s", 1_000_000_000), ("mb/s", 1_000_000), ("kb/s", 1_000), ("b/s", 1)];

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = [("Gb/s", 1_000_000_000), ("Mb/s", 1_000_000), ("kb/s", 1_000), ("b/s", 1)];
        // Three decimals at most, and exact: else a smaller unit.
        let exact =
            |scale: u64| self.0 >= scale && (u128::from(self.0) * 1000).is_multiple_of(u128::from(scale));
        let (unit, scale) = written.into_iter().find(|(_, scale)| exact(*scale)).unwrap_or(("b/s", 1));
        write!(f, "{}{unit}", self.0 as f64 / scale as f64)
    }
}

impl FromStr for BitRate {
    type Err = String;
    fn from_str(text: &str) -> Result<BitRate, String> {
        // Storage counts in bytes: who writes "100MB/s" would get an eighth of what was meant.
        if text.trim_end().ends_with("B/s") {
            return Err(format!("'{text}' is in bytes, a line's rate is in bits; write \"8Mb/s\" for 1MB/s"));
        }
        let lower = text.trim().to_ascii_lowercase().replace("bit", "b");
        let mistake = || format!("'{text}' is no line rate; write \"100Mb/s\" or \"1Gb/s\"");
        let (unit, scale) = RATE_UNITS.iter().find(|(unit, _)| lower.ends_with(unit)).ok_or_else(mistake)?;
        let number: f64 = lower[..lower.len() - unit.len()].trim().parse().map_err(|_| mistake())?;
        let bits = number * *scale as f64;
        if bits.is_finite() && (0.0..1e18).contains(&bits) {
            Ok(BitRate(bits.round() as u64))
        } else {
            Err(mistake())
        }
    }
}

impl Serialize for BitRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BitRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BitRate, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for BitRate {
    fn schema_name() -> Cow<'static, str> {
        "BitRate".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Bits a second with a decimal unit: b/s, kb/s, Mb/s, Gb/s",
            "type": "string",
            "pattern": "^ *[0-9]+\\.?[0-9]* *[kKmMgG]?b(it)?/s *$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The goal: line rates are read as lines are sold, and written back to the bit.
    #[test]
    fn rates() {
        let check = |text: &str, bits| assert_eq!(text.parse(), Ok(BitRate(bits)), "{text}");
        check("100Mb/s", 100_000_000);
        check("1 Gbit/s", 1_000_000_000);
        check("1.5gb/s", 1_500_000_000);
        check("9600b/s", 9600);
        for bits in [1, 9600, 100_000_000, 1_500_000_000, 123_456_789] {
            assert_eq!(BitRate(bits).to_string().parse(), Ok(BitRate(bits)));
        }
        for text in ["100MB/s", "1 GB/s", "100B/s "] {
            assert!(text.parse::<BitRate>().unwrap_err().contains("in bytes"), "{text}");
        }
        for text in ["100", "fast", "-1Mb/s", "1e30Gb/s", "NaNb/s", ""] {
            assert!(text.parse::<BitRate>().is_err(), "{text}");
        }
    }

    /// The goal: each value that cannot be is answered by its key.
    #[test]
    fn impossible_settings() {
        let check = |text: &str, key: Option<&str>| {
            let settings: Settings = toml::from_str(text).unwrap();
            assert_eq!(settings.check().err().map(|error| error.key), key, "{text}");
        };
        check("", None);
        check("delay = '10ms'\nloss = 0.027\nrate = '1Gb/s'", None);
        check("loss = 2.7", Some("loss"));
        check("corrupt = -0.1", Some("corrupt"));
        check("duplicate = nan", Some("duplicate"));
        check("delay = '11s'", Some("delay"));
        check("reorder = 0.1\nreorder_by = '0'", Some("reorder_by"));
        check("rate = '1b/s'", Some("rate"));
        check("rate = '1Mb/s'\nqueue = 100", Some("queue"));
        check("queue_packets = 0", Some("queue_packets"));
        check("loss_bursts = { to_bad = 0.0, to_good = 0.0 }", Some("loss_bursts"));
        check("loss = 0.1\nloss_bursts = { to_bad = 0.1, to_good = 0.5 }", Some("loss_bursts"));
        check("loss_bursts = { to_bad = 0.01, to_good = 0.3 }", None);
    }

    /// The goal: only what does nothing counts as clear.
    #[test]
    fn clear() {
        let check = |text: &str, clear| {
            assert_eq!(toml::from_str::<Settings>(text).unwrap().is_clear(), clear, "{text}");
        };
        check("", true);
        check("keep_order = false\nqueue = '2MiB'", true);
        for text in ["delay = '1us'", "jitter = '1us'", "loss = 0.1", "corrupt = 0.1", "duplicate = 0.1"] {
            check(text, false);
        }
        for text in ["reorder = 0.1", "rate = '1Gb/s'", "loss_bursts = { to_bad = 0.1, to_good = 0.5 }"] {
            check(text, false);
        }
    }
}
