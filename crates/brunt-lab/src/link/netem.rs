//! A link's settings as options of the kernel's own emulator, netem (tc-netem(8)), for experiments that
//! ask for it.
//!
//! The rule: what netem cannot do as stated is an error, not something near it. netem counts frames
//! without preamble and gap, and keeps no order under jitter.

use super::settings::{JitterShape, Settings, SettingsError};

// linux/pkt_sched.h, TCA_NETEM_*.
const REORDER: u16 = 3;
const CORRUPT: u16 = 4;
const LOSS: u16 = 5;
const RATE: u16 = 6;
const RATE64: u16 = 8;
const LATENCY64: u16 = 10;
const JITTER64: u16 = 11;
const LOSS_GILBERT_ELLIOTT: u16 = 2;
/// Packets that netem holds where no bound is stated: a second of 10 Gb/s.
const LIMIT_PACKETS: u32 = 1_000_000;

/// The value of netem's `TCA_OPTIONS`.
///
/// # Errors
/// A setting that netem does not have.
pub(crate) fn options(settings: &Settings) -> Result<Vec<u8>, SettingsError> {
    let refuse = |key, what: &str| Err(SettingsError { key, what: format!("netem {what}; leave out netem") });
    if !settings.jitter.0.is_zero() && settings.jitter_shape != JitterShape::Uniform {
        return refuse("jitter_shape", "is driven with uniform jitter only");
    }
    if !settings.jitter.0.is_zero() && settings.keep_order {
        return refuse("keep_order", "reorders under jitter: write keep_order = false");
    }
    if settings.reorder > 0.0 {
        return refuse("reorder", "sends packets ahead of their delay instead of holding them back");
    }
    if settings.rate.is_some() && settings.queue_packets.is_none() {
        return refuse("queue_packets", "bounds its queue in packets only: write queue_packets");
    }
    // struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter. The times are given in 64 bits below.
    let limit = settings.queue_packets.unwrap_or(LIMIT_PACKETS);
    let mut bytes = Vec::new();
    for field in [0, limit, probability(settings.loss), 0, probability(settings.duplicate), 0] {
        bytes.extend(field.to_ne_bytes());
    }
    attribute(&mut bytes, LATENCY64, &(settings.delay.0.as_nanos() as i64).to_ne_bytes());
    attribute(&mut bytes, JITTER64, &(settings.jitter.0.as_nanos() as i64).to_ne_bytes());
    // Probability and correlation.
    attribute(&mut bytes, REORDER, &[0; 8]);
    let corrupt = [probability(settings.corrupt), 0];
    attribute(&mut bytes, CORRUPT, &words(&corrupt));
    if let Some(rate) = settings.rate {
        let bytes_per_second = rate.0 / 8;
        // struct tc_netem_rate: rate, packet_overhead, cell_size, cell_overhead.
        attribute(&mut bytes, RATE, &words(&[u32::try_from(bytes_per_second).unwrap_or(u32::MAX), 0, 0, 0]));
        if bytes_per_second > u64::from(u32::MAX) {
            attribute(&mut bytes, RATE64, &bytes_per_second.to_ne_bytes());
        }
    }
    if let Some(bursts) = settings.loss_bursts {
        // struct tc_netem_gemodel: p, r, h (passes while bad), k1 (lost while good).
        let model = [bursts.to_bad, bursts.to_good, 1.0 - bursts.loss_bad, bursts.loss_good].map(probability);
        let mut nested = Vec::new();
        attribute(&mut nested, LOSS_GILBERT_ELLIOTT, &words(&model));
        attribute(&mut bytes, LOSS, &nested);
    }
    Ok(bytes)
}

/// A share as netem counts: of 2^32 - 1.
fn probability(share: f64) -> u32 {
    (share * f64::from(u32::MAX)).round() as u32
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The goal: what netem has no words for is refused by its key, the rest is written.
    #[test]
    fn refuses_what_netem_cannot() {
        let check = |text: &str, key: Option<&str>| {
            let settings: Settings = toml::from_str(text).unwrap();
            assert_eq!(options(&settings).err().map(|error| error.key), key, "{text}");
        };
        check("", None);
        check("delay = '10ms'\nloss = 0.01\ncorrupt = 0.001\nduplicate = 0.1", None);
        check("rate = '1Gb/s'", Some("queue_packets"));
        check("rate = '1Gb/s'\nqueue_packets = 100", None);
        check("reorder = 0.02", Some("reorder"));
        check("jitter = '1ms'", Some("keep_order"));
        check("jitter = '1ms'\nkeep_order = false", None);
        check("jitter = '1ms'\nkeep_order = false\njitter_shape = 'normal'", Some("jitter_shape"));
    }
}
