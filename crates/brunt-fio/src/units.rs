//! Parses numbers in fio's notation (fio(1), "Parameter types").
//!
//! With `kb_base=1024`, the default, `k` is 1024 and `KiB` is 1000: the names are swapped so that old job files keep
//! their meaning. With `kb_base=1000`, they have their standard meanings.

use std::time::Duration;

/// A size in bytes; `None` for zones (`8z`) and percentages (`10%`).
pub fn size(text: &str, kb_base: u64) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    if let Some(inner) = text.strip_prefix('(') {
        return inner
            .strip_suffix(')')
            .and_then(|inner| product(inner, kb_base));
    }
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = match text.strip_prefix("0x") {
        Some(hex) => return u64::from_str_radix(hex, 16).ok(),
        None => text.split_at(end),
    };
    let other_base = if kb_base == 1024 { 1000 } else { 1024 };
    let base: u64 = if unit.ends_with("ib") {
        other_base
    } else {
        kb_base
    };
    let power = match unit.trim_end_matches("ib").trim_end_matches(['b', 'i']) {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    digits
        .parse::<u64>()
        .ok()?
        .checked_mul(base.checked_pow(power)?)
}

/// Evaluates products such as `4k*10`, the only arithmetic that job files use in parentheses.
fn product(text: &str, kb_base: u64) -> Option<u64> {
    let mut product = 1u64;
    for factor in text.split('*') {
        product = product.checked_mul(size(factor, kb_base)?)?;
    }
    Some(product)
}

/// A time; `bare` is the unit of a number without one.
pub fn time(text: &str, bare: Duration) -> Option<Duration> {
    let text = text.trim().to_ascii_lowercase();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = match unit.trim() {
        "" => bare,
        "us" | "usec" => Duration::from_micros(1),
        "ms" | "msec" => Duration::from_millis(1),
        "s" | "sec" => Duration::from_secs(1),
        "m" | "min" => Duration::from_secs(60),
        "h" => Duration::from_secs(3600),
        "d" => Duration::from_secs(24 * 3600),
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number * unit.as_secs_f64()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that numbers have the same meaning as in fio 3.33.
    #[test]
    fn sizes_and_times_have_the_same_meaning_as_in_fio() {
        let check =
            |text: &str, base, expected| assert_eq!(size(text, base), expected, "{text} {base}");
        check("4096", 1024, Some(4096));
        check("4k", 1024, Some(4096));
        check("4K", 1000, Some(4000));
        check("4kb", 1024, Some(4096));
        check("4KiB", 1024, Some(4000));
        check("4KiB", 1000, Some(4096));
        check("4ki", 1024, Some(4096));
        check("1m", 1024, Some(1 << 20));
        check("2G", 1024, Some(2 << 30));
        check("0x1000", 1024, Some(4096));
        check("(4k*10)", 1024, Some(40960));
        check("(1k*1k)", 1000, Some(1_000_000));
        check("(4k*)", 1024, None);
        check("(4k", 1024, None);
        check("1z", 1024, None);
        check("30%", 1024, None);
        check("4x", 1024, None);
        check("", 1024, None);
        check("99999999999p", 1024, None);
        let check = |text: &str, expected| {
            assert_eq!(time(text, Duration::from_secs(1)), expected, "{text}")
        };
        check("30", Some(Duration::from_secs(30)));
        check("30s", Some(Duration::from_secs(30)));
        check("5m", Some(Duration::from_secs(300)));
        check("10ms", Some(Duration::from_millis(10)));
        check("7us", Some(Duration::from_micros(7)));
        check("1y", None);
        check("s", None);
    }
}
