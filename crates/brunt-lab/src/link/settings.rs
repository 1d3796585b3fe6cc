//! Settings for one direction of a link, as written in an experiment.
//!
//! Used by the rules ([`super::rules`]) and, if the experiment asks for netem, converted to netem's options. The rule:
//! zero means no impairment; every value is validated before the first packet.

use std::path::Path;
use std::time::Duration;

use brunt_core::share;
use brunt_core::units::format_size;
use brunt_core::{Size, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::distribution::{Distribution, DistributionError};
use super::loss::{Bursts, CORRELATION_MAX, LossModel};
use super::rate::BitRate;

/// Maximum delay and jitter: longer than the path to any storage, even on the Moon.
pub const DELAY_MAX: Duration = Duration::from_secs(10);
/// Maximum hold time of a FIN: TCP keeps retransmitting it for longer than this.
pub const SLOW_CLOSE_MAX: Duration = Duration::from_secs(60);
/// Minimum line rate, in bits per second.
pub const RATE_MIN: u64 = 1_000;
/// Maximum line rate, in bits per second; without a rate a link is as fast as the machine.
pub const RATE_MAX: u64 = 1_000_000_000_000;

/// Minimum default size of a line's queue, in bytes.
pub const QUEUE_BYTES_MIN: u64 = 1 << 20;
/// Maximum default size of a line's queue: half of the bytes that a direction can hold.
pub const QUEUE_BYTES_MAX: u64 = 256 << 20;

/// Settings for one direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// One-way delay, from the last bit sent to the last bit received.
    pub delay: Span,
    /// How much the delay varies; `jitter_shape` defines what the number means.
    pub jitter: Span,
    /// How the delay varies.
    pub jitter_shape: JitterShape,
    /// How the delay varies, as a table, instead of `jitter_shape`: netem's `distribution`. The jitter corresponds to
    /// a value of 8192.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// Whether packets keep their order under jitter: a packet that would overtake others arrives together with the
    /// one before it. If false, jitter reorders packets.
    pub keep_order: bool,
    /// Share of packets lost, each independently (Bernoulli).
    pub loss: f64,
    /// Distance between losses in packets, netem's `gap`: after a loss, the next `loss_gap - 1` packets are never
    /// lost. With `loss = 1.0`, exactly every `loss_gap`-th packet is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_gap: Option<u32>,
    /// How strongly a packet's loss probability depends on the preceding packet, netem's `correlation`: 0 to 0.99.
    #[serde(skip_serializing_if = "is_zero")]
    pub loss_correlation: f64,
    /// Bursty loss (Gilbert-Elliott model), instead of `loss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_bursts: Option<Bursts>,
    /// Share of packets in which one bit is flipped on the way, after all checksums.
    pub corrupt: f64,
    /// Share of packets that are marked as having met congestion (CE), among those whose sender supports it (ECT, RFC
    /// 3168); others pass unmarked and are counted.
    #[serde(skip_serializing_if = "is_zero")]
    pub ecn: f64,
    /// Share of packets delivered twice, 0 to 1.
    pub duplicate: f64,
    /// Share of packets held back by `reorder_by`, so that later ones overtake them.
    pub reorder: f64,
    /// How long packets chosen by `reorder` are held back. Such a packet is reordered if another one is sent within
    /// this time.
    pub reorder_by: Span,
    /// How long the end of a TCP connection (FIN) in this direction is held back, while the connection's data passes.
    #[serde(skip_serializing_if = "is_none")]
    pub slow_close: Span,
    /// Line rate in bits per second, including preamble, checksum and gap of each Ethernet frame; default: as fast as
    /// the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// Bytes that may queue at a rate-limited line; packets that don't fit are dropped and counted. Default: the
    /// larger of 1 MiB and what the line sends in twice its delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Size>,
    /// Maximum number of packets that may queue at a rate-limited line, in addition to `queue`; default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u32>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            delay: Span(Duration::ZERO),
            jitter: Span(Duration::ZERO),
            jitter_shape: JitterShape::Uniform,
            distribution: None,
            keep_order: true,
            loss: 0.0,
            loss_gap: None,
            loss_correlation: 0.0,
            loss_bursts: None,
            corrupt: 0.0,
            ecn: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: Span(Duration::from_millis(1)),
            slow_close: Span(Duration::ZERO),
            rate: None,
            queue: None,
            queue_packets: None,
        }
    }
}

/// Distribution of the delay variation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JitterShape {
    /// Uniform between `-jitter` and `+jitter`.
    #[default]
    Uniform,
    /// Normal with this standard deviation.
    Normal,
    /// Lomax (Pareto starting at zero) with this mean and shape 3: only adds delay, with a long tail.
    Pareto,
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct SettingsError {
    /// The key in the file.
    pub key: &'static str,
    /// The kind of mistake.
    pub kind: SettingsErrorKind,
    /// What is wrong, and what would be correct.
    pub what: String,
}

/// Kinds of [`SettingsError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsErrorKind {
    /// A number out of bounds.
    OutOfRange,
    /// Two mutually exclusive settings.
    Conflict,
    /// A setting that requires another one.
    Alone,
    /// A file that cannot be read, has not been read, or has invalid contents.
    File,
    /// A setting that the link's carrier doesn't support.
    Carrier,
}

fn is_none(span: &Span) -> bool {
    span.0.is_zero()
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

impl Settings {
    /// Reads the file that `distribution` names, if any; a relative path is resolved against `folder`, which is that
    /// of the experiment file. Call it before [`Settings::check`].
    ///
    /// # Errors
    /// The file cannot be read or doesn't contain a table.
    pub fn read_files(&mut self, folder: &Path) -> Result<(), DistributionError> {
        self.distribution
            .as_mut()
            .map_or(Ok(()), |distribution| distribution.read(folder))
    }

    /// Whether packets pass unmodified and without delay.
    pub fn is_clear(&self) -> bool {
        let Settings {
            delay,
            jitter,
            loss,
            loss_bursts,
            corrupt,
            ecn,
            duplicate,
            reorder,
            rate,
            ..
        } = self;
        let none = [loss, corrupt, ecn, duplicate, reorder]
            .into_iter()
            .all(|share| *share == 0.0);
        let at_once = [delay, jitter, &self.slow_close]
            .into_iter()
            .all(|span| span.0.is_zero());
        none && at_once && loss_bursts.is_none() && rate.is_none()
    }

    /// Whether the settings do nothing except, perhaps, limit the rate.
    pub fn is_at_most_a_line(&self) -> bool {
        Settings {
            rate: None,
            ..self.clone()
        }
        .is_clear()
    }

    /// The line's rate in bits per second, if any.
    pub fn rate_bits(&self) -> Option<u64> {
        self.rate.map(|rate| rate.0)
    }

    /// Bytes that may queue at the line: the configured value, or else the larger of 1 MiB and the bandwidth-delay
    /// product.
    pub fn queue_bytes(&self) -> u64 {
        let product = || {
            self.bandwidth_delay_bytes()
                .clamp(QUEUE_BYTES_MIN, QUEUE_BYTES_MAX)
        };
        self.queue.map_or_else(product, |queue| queue.0)
    }

    /// Bytes that the line sends during a round trip with the same delay in both directions. With a shorter queue, a
    /// single TCP connection may not fill the line.
    pub fn bandwidth_delay_bytes(&self) -> u64 {
        let (rate, delay) = (self.rate.map_or(0, |rate| rate.0), self.delay.0.as_nanos());
        u64::try_from(u128::from(rate) * delay * 2 / 8_000_000_000).unwrap_or(u64::MAX)
    }

    /// A warning if the configured queue is shorter than the bandwidth-delay product; the caller names the link.
    pub fn queue_warning(&self) -> Option<String> {
        let (queue, product) = (self.queue?.0, self.bandwidth_delay_bytes());
        (queue < product).then(|| {
            format!(
                "its queue of {} is shorter than its bandwidth-delay product of {}, so TCP may \
                 not fill the link; write queue = \"{}KiB\" or more",
                format_size(queue),
                format_size(product),
                product.div_ceil(1024)
            )
        })
    }

    /// Share of packets that the loss model loses in the long run, excluding queue drops.
    pub fn loss_share(&self) -> f64 {
        self.loss_model().share()
    }

    /// The loss model.
    pub fn loss_model(&self) -> LossModel {
        let share = self.loss;
        match (self.loss_bursts, self.loss_gap) {
            (Some(bursts), _) => LossModel::Bursts(bursts),
            (None, Some(gap)) => LossModel::Gap { share, gap },
            (None, None) if self.loss_correlation > 0.0 => LossModel::Correlated {
                share,
                correlation: self.loss_correlation,
            },
            (None, None) => LossModel::Each(share),
        }
    }

    /// Validates each value.
    ///
    /// # Errors
    /// The first invalid value, identified by its key.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.check_shares()?;
        self.check_loss()?;
        self.check_times()?;
        self.check_line()
    }

    fn check_shares(&self) -> Result<(), SettingsError> {
        let shares = [
            ("loss", self.loss),
            ("corrupt", self.corrupt),
            ("ecn", self.ecn),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
        ];
        let bursts = self.loss_bursts.iter().flat_map(|bursts| {
            [
                bursts.to_bad,
                bursts.to_good,
                bursts.loss_good,
                bursts.loss_bad,
            ]
            .map(|share| ("loss_bursts", share))
        });
        for (key, value) in shares.into_iter().chain(bursts) {
            if !(0.0..=1.0).contains(&value) {
                return wrong(key, SettingsErrorKind::OutOfRange, share::mistake(value));
            }
        }
        Ok(())
    }

    fn check_loss(&self) -> Result<(), SettingsError> {
        use SettingsErrorKind::{Alone, Conflict, OutOfRange};
        if let Some(bursts) = self.loss_bursts {
            if self.loss != 0.0 {
                return wrong(
                    "loss_bursts",
                    Conflict,
                    "loss is set as well; write only one of them",
                );
            }
            if bursts.to_bad + bursts.to_good == 0.0 {
                return wrong(
                    "loss_bursts",
                    Alone,
                    "the link never changes its state; write loss instead",
                );
            }
        }
        if !(0.0..=CORRELATION_MAX).contains(&self.loss_correlation) {
            let what = format!(
                "{} is not a correlation; write a number from 0 to {CORRELATION_MAX} or a percentage, such as 0.25 or \"25%\"",
                self.loss_correlation
            );
            return wrong("loss_correlation", OutOfRange, what);
        }
        if self.loss_gap.is_some_and(|gap| gap < 2) {
            return wrong(
                "loss_gap",
                OutOfRange,
                "write 2 or more; for losses without a gap, omit it",
            );
        }
        let correlated = self.loss_correlation > 0.0;
        if correlated && self.loss_gap.is_some() {
            return wrong(
                "loss_gap",
                Conflict,
                "loss_correlation is set as well; write only one of them",
            );
        }
        for (key, there) in [
            ("loss_gap", self.loss_gap.is_some()),
            ("loss_correlation", correlated),
        ] {
            if there && self.loss_bursts.is_some() {
                return wrong(
                    key,
                    Conflict,
                    "loss_bursts is set as well; write only one of them",
                );
            }
            if there && self.loss == 0.0 {
                let what = "needs loss, which is not set; add it (1.0 loses every packet that it \
                    applies to)";
                return wrong(key, Alone, what);
            }
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), SettingsError> {
        use SettingsErrorKind::{Alone, Conflict, File, OutOfRange};
        for (key, span) in [
            ("delay", self.delay),
            ("jitter", self.jitter),
            ("reorder_by", self.reorder_by),
        ] {
            if span.0 > DELAY_MAX {
                return wrong(
                    key,
                    OutOfRange,
                    format!("{span} is longer than {}", Span(DELAY_MAX)),
                );
            }
        }
        if self.slow_close.0 > SLOW_CLOSE_MAX {
            let what = format!(
                "{} is longer than {}",
                self.slow_close,
                Span(SLOW_CLOSE_MAX)
            );
            return wrong("slow_close", OutOfRange, what);
        }
        if self.reorder > 0.0 && self.reorder_by.0.is_zero() {
            return wrong("reorder_by", Alone, "a hold time of 0 s reorders nothing");
        }
        let Some(distribution) = &self.distribution else {
            return Ok(());
        };
        if self.jitter_shape != JitterShape::Uniform {
            return wrong(
                "distribution",
                Conflict,
                "jitter_shape is set as well; write only one of them",
            );
        }
        if self.jitter.0.is_zero() {
            let what = "needs jitter, which scales its values and is not set; add it";
            return wrong("distribution", Alone, what);
        }
        if distribution.table().is_none() {
            return wrong(
                "distribution",
                File,
                format!("{distribution} was not loaded"),
            );
        }
        Ok(())
    }

    fn check_line(&self) -> Result<(), SettingsError> {
        use SettingsErrorKind::OutOfRange;
        if let Some(BitRate(rate)) = self.rate
            && !(RATE_MIN..=RATE_MAX).contains(&rate)
        {
            let what = format!("{} is out of range; write 1kb/s to 1000Gb/s", BitRate(rate));
            return wrong("rate", OutOfRange, what);
        }
        if self.queue_bytes() < 9018 && self.rate.is_some() {
            return wrong(
                "queue",
                OutOfRange,
                "a queue smaller than one jumbo frame (9018 bytes) drops everything",
            );
        }
        if self.queue_packets == Some(0) {
            return wrong(
                "queue_packets",
                OutOfRange,
                "a queue of zero packets drops everything",
            );
        }
        Ok(())
    }
}

fn wrong(
    key: &'static str,
    kind: SettingsErrorKind,
    what: impl Into<String>,
) -> Result<(), SettingsError> {
    Err(SettingsError {
        key,
        kind,
        what: what.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each invalid value is reported with its key.
    #[test]
    fn invalid_settings_are_reported_by_key() {
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
        check(
            "loss_bursts = { to_bad = 0.0, to_good = 0.0 }",
            Some("loss_bursts"),
        );
        check(
            "loss = 0.1\nloss_bursts = { to_bad = 0.1, to_good = 0.5 }",
            Some("loss_bursts"),
        );
        check("loss_bursts = { to_bad = 0.01, to_good = 0.3 }", None);
        check("loss = 1.0\nloss_gap = 100", None);
        check("loss = 1.0\nloss_gap = 1", Some("loss_gap"));
        check("loss_gap = 100", Some("loss_gap"));
        check("loss = 0.01\nloss_correlation = 0.25", None);
        check(
            "loss = 0.01\nloss_correlation = 1.0",
            Some("loss_correlation"),
        );
        check("loss_correlation = 0.25", Some("loss_correlation"));
        check(
            "loss = 0.1\nloss_gap = 5\nloss_correlation = 0.25",
            Some("loss_gap"),
        );
        check(
            "loss_gap = 5\nloss_bursts = { to_bad = 0.1, to_good = 0.5 }",
            Some("loss_gap"),
        );
        check("ecn = 1.5", Some("ecn"));
        check("slow_close = '61s'", Some("slow_close"));
        check("jitter = '1ms'\ndistribution = 'paretonormal'", None);
        check("distribution = 'normal'", Some("distribution"));
        check(
            "jitter = '1ms'\njitter_shape = 'normal'\ndistribution = 'normal'",
            Some("distribution"),
        );
        check(
            "jitter = '1ms'\ndistribution = 'not-read.dist'",
            Some("distribution"),
        );
    }

    /// A line's default queue has enough room for TCP to fill the line.
    #[test]
    fn a_default_queue_lets_tcp_fill_the_line() {
        let check = |text: &str, bytes: u64| {
            assert_eq!(
                toml::from_str::<Settings>(text).unwrap().queue_bytes(),
                bytes,
                "{text}"
            );
        };
        check("", 1 << 20);
        check("rate = '1Gb/s'", 1 << 20);
        check("rate = '1Gb/s'\ndelay = '1ms'", 1 << 20);
        check("rate = '1Gb/s'\ndelay = '20ms'", 5_000_000);
        check("rate = '1Gb/s'\ndelay = '20ms'\nqueue = '64KiB'", 64 << 10);
        check("rate = '1000Gb/s'\ndelay = '10s'", 256 << 20);
        let warning = |text: &str| toml::from_str::<Settings>(text).unwrap().queue_warning();
        let short = warning("rate = '1Gb/s'\ndelay = '20ms'\nqueue = '1MiB'").unwrap();
        assert!(
            short.contains("1MiB is shorter") && short.contains("queue = \"4883KiB\""),
            "{short}"
        );
        for enough in [
            "rate = '1Gb/s'\ndelay = '20ms'",
            "rate = '1Gb/s'\ndelay = '1ms'\nqueue = '1MiB'",
        ] {
            assert_eq!(warning(enough), None, "{enough}");
        }
    }

    /// Only settings without any effect count as clear.
    #[test]
    fn only_settings_without_effect_are_clear() {
        let check = |text: &str, clear| {
            assert_eq!(
                toml::from_str::<Settings>(text).unwrap().is_clear(),
                clear,
                "{text}"
            );
        };
        check("", true);
        check("keep_order = false\nqueue = '2MiB'", true);
        for text in [
            "delay = '1us'",
            "jitter = '1us'",
            "loss = 0.1",
            "corrupt = 0.1",
            "duplicate = 0.1",
        ] {
            check(text, false);
        }
        for text in [
            "reorder = 0.1",
            "ecn = 0.1",
            "slow_close = '1s'",
            "rate = '1Gb/s'",
            "loss_bursts = { to_bad = 0.1, to_good = 0.5 }",
        ] {
            check(text, false);
        }
    }
}
