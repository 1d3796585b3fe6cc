//! Sizes and durations as users write them: `"8k"`, `"1.5GiB"`, `"10ms"`. A bare `k`, `M`, `G` or `T` is binary, as in
//! fio and dd; `kB`, `MB`, `GB`, `TB` are decimal.

use std::time::Duration;

/// Why a size or duration cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// No number at the start.
    #[error("'{0}' does not start with a number; write for example {1}")]
    NoNumber(String, &'static str),
    /// A unit that doesn't exist for this quantity.
    #[error("'{0}' has an unknown unit; use {1}")]
    UnknownUnit(String, &'static str),
    /// Possibly bits instead of bytes.
    #[error(
        "'{0}' reads as {1}bits; write {1} for binary units or {1}B for decimal ones, as in 4k and 4kB"
    )]
    Bits(String, char),
    /// Exceeds 64 bits, or is not a whole number of bytes or nanoseconds.
    #[error("'{0}' is out of range: it must be a whole number of {1} below 2^64")]
    OutOfRange(String, &'static str),
}

const SIZES: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
    ("p", 1 << 50),
    ("pib", 1 << 50),
    ("pb", 1_000_000_000_000_000),
    ("e", 1 << 60),
    ("eib", 1 << 60),
    ("eb", 1_000_000_000_000_000_000),
];

const TIMES: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Parses a size in bytes.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    parse(
        text,
        SIZES,
        "\"4k\" or \"1.5GiB\"",
        "B, k, KiB, kB, M, MiB, MB, G, GiB, GB, T, TiB, TB, P, PiB, PB, E, EiB, EB",
        "bytes",
    )
}

/// Parses a duration. A unit is required, so seconds cannot be mistaken for milliseconds; a bare `0` is accepted.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    parse(
        text,
        TIMES,
        "\"10ms\" or \"1.5s\"",
        "ns, us, ms, s, min, h, d",
        "nanoseconds",
    )
    .map(Duration::from_nanos)
}

fn parse(
    text: &str,
    table: &[(&str, u64)],
    example: &'static str,
    known: &'static str,
    grain: &'static str,
) -> Result<u64, UnitError> {
    let trimmed = text.trim();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let number = number.replace('_', "");
    let unit = unit.trim();
    if let [
        prefix @ (b'k' | b'K' | b'm' | b'M' | b'g' | b'G' | b't' | b'T'),
        b'b',
    ] = unit.as_bytes()
    {
        return Err(UnitError::Bits(text.to_string(), char::from(*prefix)));
    }
    let unit = unit.to_lowercase();
    if number.is_empty() || number.parse::<f64>().is_err() {
        return Err(UnitError::NoNumber(text.to_string(), example));
    }
    let Some(&(_, scale)) = table.iter().find(|(name, _)| *name == unit) else {
        return Err(UnitError::UnknownUnit(text.to_string(), known));
    };
    let out_of_range = || UnitError::OutOfRange(text.to_string(), grain);
    // Exact decimal arithmetic: 1.1T as a float would be off by a byte.
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let whole: u128 = if whole.is_empty() {
        0
    } else {
        whole.parse().map_err(|_| out_of_range())?
    };
    let power = 10u128
        .checked_pow(fraction.len() as u32)
        .ok_or_else(out_of_range)?;
    let part: u128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().map_err(|_| out_of_range())?
    };
    let scaled = whole
        .checked_mul(power)
        .and_then(|w| w.checked_add(part))
        .and_then(|w| w.checked_mul(u128::from(scale)))
        .ok_or_else(out_of_range)?;
    if scaled % power != 0 && scale == 1 {
        return Err(out_of_range());
    }
    u64::try_from(scaled / power).map_err(|_| out_of_range())
}

/// A rounded size for display: in the largest binary unit that gives at least 1, without decimals if whole (`4KiB`),
/// otherwise with one decimal (`1.5GiB`). Files and URLs use [`format_size_exact`].
pub fn format_size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut scale = 0;
    while scale + 1 < units.len() && bytes >> (10 * (scale + 1)) > 0 {
        scale += 1;
    }
    let unit = 1u64 << (10 * scale);
    if bytes.is_multiple_of(unit) {
        format!("{}{}", bytes / unit, units[scale])
    } else {
        format!("{:.1}{}", bytes as f64 / unit as f64, units[scale])
    }
}

/// An exact size that can be parsed back: the output of [`format_size`] if that is lossless (`1.5GiB`), otherwise a
/// whole number in the largest possible unit (`1280MiB`, `1000B`).
pub fn format_size_exact(bytes: u64) -> String {
    let short = format_size(bytes);
    if parse_size(&short) == Ok(bytes) {
        return short;
    }
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let whole = |scale: &usize| bytes.is_multiple_of(1 << (10 * scale));
    let scale = (0..units.len())
        .rev()
        .find(whole)
        .expect("every size is a whole number of bytes");
    format!("{}{}", bytes >> (10 * scale), units[scale])
}

/// An exact duration for display: in the largest of s, ms, us and ns that needs at most three decimals (`1.5s`,
/// `250us`).
pub fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let units: [(u128, &str); 4] = [
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    for (scale, unit) in units {
        if nanos >= scale && (nanos % scale * 1000).is_multiple_of(scale) {
            let (whole, thousandths) = (nanos / scale, nanos % scale * 1000 / scale);
            let decimals = format!("{thousandths:03}");
            return match decimals.trim_end_matches('0') {
                "" => format!("{whole}{unit}"),
                decimals => format!("{whole}.{decimals}{unit}"),
            };
        }
    }
    "0".to_string()
}

/// Rounds to a whole number and groups its digits: `1,234,567`.
pub fn format_grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with a noun that forms its plural with s: `1 run`, `1,200 runs`.
pub fn counted(number: usize, word: &str) -> String {
    format!(
        "{} {word}{}",
        format_grouped(number as f64),
        if number == 1 { "" } else { "s" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_count_of_one_is_singular() {
        let told = [0, 1, 2, 1200].map(|number| counted(number, "run"));
        assert_eq!(told, ["0 runs", "1 run", "2 runs", "1,200 runs"]);
    }

    #[test]
    fn sizes_have_the_same_meaning_as_in_fio_and_dd() {
        let check = |text, bytes| assert_eq!(parse_size(text), Ok(bytes), "{text}");
        check("0", 0);
        check("512", 512);
        check("8k", 8192);
        check("8 KiB", 8192);
        check("8kB", 8000);
        check("1.5GiB", 1_610_612_736);
        check("1.1T", 1_209_462_790_553);
        check("1_000", 1000);
        check("16P", 16 << 50);
        check("15EiB", 15 << 60);
        check("1EB", 1_000_000_000_000_000_000);
    }

    /// Errors state the mistake, and nothing is guessed.
    #[test]
    fn invalid_quantities_are_rejected() {
        assert!(matches!(parse_size("k"), Err(UnitError::NoNumber(..))));
        assert!(matches!(parse_size("-4k"), Err(UnitError::NoNumber(..))));
        assert!(matches!(parse_size("4q"), Err(UnitError::UnknownUnit(..))));
        for bits in ["4kb", "4 Kb", "1.5Mb", "1gb"] {
            assert!(
                matches!(parse_size(bits), Err(UnitError::Bits(..))),
                "{bits}"
            );
        }
        assert!(matches!(parse_size("1.2.3k"), Err(UnitError::NoNumber(..))));
        assert!(matches!(
            parse_size("99999999P"),
            Err(UnitError::OutOfRange(..))
        ));
        assert!(matches!(parse_size("0.5"), Err(UnitError::OutOfRange(..))));
        assert!(matches!(
            parse_duration("10"),
            Err(UnitError::UnknownUnit(..))
        ));
    }

    #[test]
    fn durations_are_parsed_with_their_units() {
        let check = |text, nanos| {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_nanos(nanos)),
                "{text}"
            )
        };
        check("0", 0);
        check("10us", 10_000);
        check("1.5 s", 1_500_000_000);
        check("2m", 120_000_000_000);
    }

    #[test]
    fn exact_sizes_parse_back_to_the_byte() {
        let check = |bytes, text: &str| assert_eq!(format_size_exact(bytes), text);
        check(0, "0B");
        check(1_342_177_280, "1280MiB");
        check(1_610_612_736, "1.5GiB");
        check(1000, "1000B");
        check((1 << 60) + (1 << 50), "1025PiB");
        let sizes = (0..64)
            .flat_map(|bit| [-1, 0, 1, 511].map(|more| (1u64 << bit).wrapping_add_signed(more)));
        for bytes in sizes.chain([u64::MAX, 5 << 60, 10_000_000_000]) {
            assert_eq!(
                parse_size(&format_size_exact(bytes)),
                Ok(bytes),
                "{}",
                format_size_exact(bytes)
            );
        }
    }

    /// Formatted sizes parse back to the intended values.
    #[test]
    fn values_are_formatted_for_display() {
        assert_eq!(format_size(0), "0B");
        assert_eq!(format_size(4096), "4KiB");
        assert_eq!(format_size(1_610_612_736), "1.5GiB");
        assert_eq!(format_size(u64::MAX), "16.0EiB");
        assert_eq!(format_size(1_342_177_280), "1.2GiB");
        assert_eq!(format_duration(Duration::ZERO), "0");
        assert_eq!(format_duration(Duration::from_micros(1500)), "1.5ms");
        assert_eq!(
            format_duration(Duration::from_nanos(1_000_000_001)),
            "1000000.001us"
        );
        assert_eq!(format_grouped(0.0), "0");
        assert_eq!(format_grouped(999.4), "999");
        assert_eq!(format_grouped(1_234_567.0), "1,234,567");
        assert_eq!(format_grouped(-123_456.0), "-123,456");
    }
}
