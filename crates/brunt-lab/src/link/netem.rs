//! A link's settings as options of the kernel's emulator, netem (tc-netem(8)), for experiments that ask for it.
//!
//! The rule: settings that netem cannot apply exactly are an error. netem's rate excludes preamble and gap, and netem
//! does not keep packets in order under jitter.

use super::settings::{JitterShape, Settings, SettingsError, SettingsErrorKind};

// linux/pkt_sched.h, TCA_NETEM_*.
const REORDER: u16 = 3;
const CORRUPT: u16 = 4;
const LOSS: u16 = 5;
const RATE: u16 = 6;
const RATE64: u16 = 8;
const LATENCY64: u16 = 10;
const JITTER64: u16 = 11;
const LOSS_GILBERT_ELLIOTT: u16 = 2;
/// NLA_F_NESTED of linux/netlink.h.
const NESTED: u16 = 0x8000;
/// Packets that netem holds if no limit is configured: one second at 10 Gb/s.
const LIMIT_PACKETS: u32 = 1_000_000;

/// The value of netem's `TCA_OPTIONS`.
///
/// # Errors
/// A setting that netem doesn't support.
pub(crate) fn options(settings: &Settings) -> Result<Vec<u8>, SettingsError> {
    check(settings)?;
    // struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter. The 64-bit attributes below set the times.
    let limit = settings.queue_packets.unwrap_or(LIMIT_PACKETS);
    let mut bytes = Vec::new();
    for field in [
        0,
        limit,
        probability(settings.loss),
        0,
        probability(settings.duplicate),
        0,
    ] {
        bytes.extend(field.to_ne_bytes());
    }
    attribute(
        &mut bytes,
        LATENCY64,
        &(settings.delay.0.as_nanos() as i64).to_ne_bytes(),
    );
    attribute(
        &mut bytes,
        JITTER64,
        &(settings.jitter.0.as_nanos() as i64).to_ne_bytes(),
    );
    // Probability and correlation, in that order.
    attribute(&mut bytes, REORDER, &[0; 8]);
    let corrupt = [probability(settings.corrupt), 0];
    attribute(&mut bytes, CORRUPT, &words(&corrupt));
    if let Some(rate) = settings.rate {
        let bytes_per_second = rate.0 / 8;
        // struct tc_netem_rate: rate, packet_overhead, cell_size, cell_overhead.
        attribute(
            &mut bytes,
            RATE,
            &words(&[u32::try_from(bytes_per_second).unwrap_or(u32::MAX), 0, 0, 0]),
        );
        if bytes_per_second > u64::from(u32::MAX) {
            attribute(&mut bytes, RATE64, &bytes_per_second.to_ne_bytes());
        }
    }
    if let Some(bursts) = settings.loss_bursts {
        // struct tc_netem_gemodel: p, r, h (passes while bad), k1 (lost while good).
        let model = [
            bursts.to_bad,
            bursts.to_good,
            1.0 - bursts.loss_bad,
            bursts.loss_good,
        ]
        .map(probability);
        let mut nested = Vec::new();
        attribute(&mut nested, LOSS_GILBERT_ELLIOTT, &words(&model));
        attribute(&mut bytes, LOSS | NESTED, &nested);
    }
    Ok(bytes)
}

/// Rejects settings that netem cannot apply exactly.
fn check(settings: &Settings) -> Result<(), SettingsError> {
    let refuse = |key, what: &str| {
        let what = format!("netem {what}; omit netem");
        Err(SettingsError {
            key,
            kind: SettingsErrorKind::Carrier,
            what,
        })
    };
    if !settings.jitter.0.is_zero() && settings.jitter_shape != JitterShape::Uniform {
        return refuse("jitter_shape", "supports uniform jitter only");
    }
    if !settings.jitter.0.is_zero() && settings.keep_order {
        return refuse(
            "keep_order",
            "reorders packets under jitter: write keep_order = false",
        );
    }
    if settings.distribution.is_some() {
        return refuse("distribution", "supports uniform jitter only");
    }
    if settings.loss_gap.is_some() {
        return refuse("loss_gap", "supports a gap for reordering only");
    }
    if settings.loss_correlation > 0.0 {
        return refuse(
            "loss_correlation",
            "loses far fewer packets than requested if losses are correlated",
        );
    }
    if settings.ecn > 0.0 {
        return refuse("ecn", "can only mark packets that it would otherwise drop");
    }
    if !settings.slow_close.0.is_zero() {
        return refuse("slow_close", "cannot impair individual connections");
    }
    if settings.reorder > 0.0 {
        return refuse(
            "reorder",
            "reorders by sending packets early instead of holding them back",
        );
    }
    if settings.rate.is_some() && settings.queue_packets.is_none() {
        return refuse(
            "queue_packets",
            "limits its queue only in packets: write queue_packets",
        );
    }
    Ok(())
}

/// A share in netem's unit, 1 / (2^32 - 1).
fn probability(share: f64) -> u32 {
    (share * f64::from(u32::MAX)).round() as u32
}

fn words(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

fn attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Settings that netem doesn't support are rejected, and the error names the key; the others are encoded.
    #[test]
    fn settings_that_netem_lacks_are_refused_by_key() {
        let check = |text: &str, key: Option<&str>| {
            let settings: Settings = toml::from_str(text).unwrap();
            assert_eq!(
                options(&settings).err().map(|error| error.key),
                key,
                "{text}"
            );
        };
        check("", None);
        check(
            "delay = '10ms'\nloss = 0.01\ncorrupt = 0.001\nduplicate = 0.1",
            None,
        );
        check("rate = '1Gb/s'", Some("queue_packets"));
        check("rate = '1Gb/s'\nqueue_packets = 100", None);
        check("reorder = 0.02", Some("reorder"));
        check("jitter = '1ms'", Some("keep_order"));
        check("jitter = '1ms'\nkeep_order = false", None);
        check(
            "jitter = '1ms'\nkeep_order = false\njitter_shape = 'normal'",
            Some("jitter_shape"),
        );
        check(
            "jitter = '1ms'\nkeep_order = false\ndistribution = 'normal'",
            Some("distribution"),
        );
        check("loss = 1.0\nloss_gap = 100", Some("loss_gap"));
        check(
            "loss = 0.1\nloss_correlation = 0.25",
            Some("loss_correlation"),
        );
        check("ecn = 0.1", Some("ecn"));
        check("slow_close = '1s'", Some("slow_close"));
    }

    /// `struct tc_netem_qopt` and the attributes after it, by kind.
    fn read(bytes: &[u8]) -> (Vec<u32>, BTreeMap<u16, Vec<u8>>) {
        let words = |bytes: &[u8]| -> Vec<u32> {
            bytes
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
                .collect()
        };
        let (fixed, mut rest) = bytes.split_at(24);
        let mut attributes = BTreeMap::new();
        while let [low, high, kind_low, kind_high, ..] = rest {
            let length = usize::from(u16::from_le_bytes([*low, *high]));
            attributes.insert(
                u16::from_le_bytes([*kind_low, *kind_high]),
                rest[4..length].to_vec(),
            );
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        }
        (words(fixed), attributes)
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
            .collect()
    }

    /// The request equals that of `tc qdisc replace dev lo root netem …` of iproute2 6.1 for the same settings (its
    /// TCA_OPTIONS, recorded with strace), except that times are in nanoseconds (TCA_NETEM_LATENCY64) instead of tc's
    /// ticks of 64.
    #[test]
    #[cfg(target_endian = "little")]
    fn netem_options_equal_those_of_tc() {
        let check = |text: &str, tc: &str| {
            let settings: Settings = toml::from_str(text).unwrap();
            let (mut ours, mut our_attributes) = read(&options(&settings).unwrap());
            let (mut theirs, their_attributes) = read(&hex(tc));
            let nanos = |bytes: Vec<u8>| i64::from_le_bytes(bytes.try_into().unwrap());
            let latency = nanos(our_attributes.remove(&LATENCY64).unwrap());
            assert_eq!(latency, settings.delay.0.as_nanos() as i64, "{text}");
            assert_eq!(latency / 64, i64::from(theirs[0]), "{text}: {theirs:?}");
            assert_eq!(
                nanos(our_attributes.remove(&JITTER64).unwrap()),
                0,
                "{text}"
            );
            (ours[0], theirs[0]) = (0, 0);
            assert_eq!(ours, theirs, "{text}");
            // Sent as zero here, omitted by tc.
            for silent in [REORDER, CORRUPT] {
                if our_attributes.get(&silent) == Some(&vec![0; 8]) {
                    our_attributes.remove(&silent);
                }
            }
            assert_eq!(our_attributes, their_attributes, "{text}");
        };
        // netem limit 500 delay 10ms loss 1% duplicate 0.5% corrupt 0.1% rate 100mbit
        check(
            "delay = '10ms'\nloss = 0.01\nduplicate = 0.005\ncorrupt = 0.001\nrate = '100Mb/s'\nqueue_packets = 500",
            "5a620200 f4010000 295c8f02 00000000 14ae4701 00000000 0c000400 37894100 00000000 \
             14000600 20bcbe00 00000000 00000000 00000000",
        );
        // netem limit 1000000 delay 0.5ms loss gemodel 1% 25% 0% 0.2% rate 40gbit
        check(
            "delay = '500us'\nrate = '40Gb/s'\nqueue_packets = 1000000\n\
             loss_bursts = { to_bad = 0.01, to_good = 0.25, loss_good = 0.002, loss_bad = 0.0 }",
            "841e0000 40420f00 00000000 00000000 00000000 00000000 18000580 14000200 295c8f02 00000040 ffffffff \
             6f128300 0c000800 00f2052a 01000000 14000600 ffffffff 00000000 00000000 00000000",
        );
    }
}
