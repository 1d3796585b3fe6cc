//! Formats numbers for display with three significant figures: `386 MB/s`, `1.24 ms`, `± 0.4 %`. The page's script
//! (`assets/page.js`) formats ticks and tooltips by the same rules.
//!
//! The rule: a unit defines what the stored number counts, and everything on a page is formatted here, so that a
//! quantity never appears in two different ways.

use brunt_core::units::format_grouped;
use serde::Serialize;

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A latency, in microseconds; shown as ns, µs, ms or s.
    Micros,
    /// A position on a timeline, in seconds; shown as seconds, or minutes and seconds.
    Seconds,
    /// Bytes; shown in binary units: block sizes, memory.
    Bytes,
    /// Bytes per second; shown in decimal units, as usual for networks and disks.
    BytesPerSecond,
    /// Events per second; shown with k and M.
    PerSecond,
    /// A share from 0 to 1; shown in percent.
    Share,
    /// A count, or a number without a unit.
    Count,
    /// A cumulative share as its number of nines (2 is 99 %); shown in percent.
    Nines,
}

impl Unit {
    /// Formats a value of this unit, or a dash if there is none.
    pub fn show_known(self, value: Option<f64>) -> String {
        value.map_or_else(|| "–".into(), |value| self.show(value))
    }

    /// Formats a value of this unit.
    pub fn show(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".into();
        }
        if value < 0.0 {
            return format!("−{}", self.show(-value));
        }
        match self {
            Unit::Micros => scaled(
                value * 1e3,
                &[(1.0, " ns"), (1e3, " µs"), (1e6, " ms"), (1e9, " s")],
            ),
            Unit::Seconds => seconds(value),
            Unit::Bytes => scaled(
                value,
                &[
                    (1.0, " B"),
                    (K, " KiB"),
                    (K * K, " MiB"),
                    (K * K * K, " GiB"),
                    (K * K * K * K, " TiB"),
                ],
            ),
            Unit::BytesPerSecond => scaled(
                value,
                &[
                    (1.0, " B/s"),
                    (1e3, " kB/s"),
                    (1e6, " MB/s"),
                    (1e9, " GB/s"),
                    (1e12, " TB/s"),
                ],
            ),
            Unit::PerSecond => scaled(
                value,
                &[(1.0, "/s"), (1e3, " k/s"), (1e6, " M/s"), (1e9, " G/s")],
            ),
            Unit::Share => format!("{} %", three(value * 100.0)),
            Unit::Count => count(value),
            Unit::Nines => nines(value),
        }
    }
}

const K: f64 = 1024.0;

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    // A value that rounds up to one of the next unit is written in that unit: 1.00 ms, not 1,000 µs.
    let step = units
        .windows(2)
        .map(|pair| pair[1].0 / pair[0].0)
        .next()
        .unwrap_or(1.0);
    let fits = |scale: f64| value / scale < step * 0.9995;
    let (scale, unit) = units
        .iter()
        .find(|(scale, _)| fits(*scale))
        .unwrap_or(&units[units.len() - 1]);
    format!("{}{unit}", three(value / scale))
}

/// Formats fractions with three significant figures, and whole numbers in full, with thousands separated.
pub fn three(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 {
        return grouped(value);
    }
    let size = value.abs();
    match size {
        _ if size >= 99.95 => grouped(value.round()),
        _ if size >= 9.995 => format!("{value:.1}"),
        _ if size >= 0.9995 => format!("{value:.2}"),
        _ if size >= 0.00095 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

/// Formats a whole number with commas, and a fraction like [`three`].
pub fn count(value: f64) -> String {
    if value == value.trunc() {
        grouped(value)
    } else {
        three(value)
    }
}

/// Uses a minus sign instead of a hyphen.
fn grouped(value: f64) -> String {
    format_grouped(value).replace('-', "−")
}

fn seconds(value: f64) -> String {
    if value < 120.0 {
        return format!("{} s", three(value));
    }
    let whole = value.round() as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02} h")
    } else {
        format!("{minutes}:{seconds:02} min")
    }
}

fn nines(value: f64) -> String {
    let share = 1.0 - 10f64.powf(-value);
    let decimals = (value.ceil() as usize).saturating_sub(2).clamp(0, 9);
    // A share below one is never rounded up to 100 %.
    let floor = 10f64.powi(decimals as i32);
    format!(
        "{:.decimals$} %",
        (share * 100.0 * floor + 1e-6).floor() / floor
    )
}

/// Formats the half-width of an interval as a share of its mean: "± 0.4 %".
pub fn plus_minus(share: f64) -> String {
    format!(
        "± {} %",
        if share * 100.0 >= 10.0 {
            three((share * 100.0).round())
        } else {
            format!("{:.1}", share * 100.0)
        }
    )
}

/// Returns a text with its first letter in upper case.
pub fn sentence_case(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

/// Formats seconds since 1970 as date and time (UTC) in the civil calendar (Hinnant, `civil_from_days`: years start in
/// March, so that the leap day is the last day of a year; 146,097 days are 400 years).
pub fn date_time(unix_s: i64) -> String {
    let (days, second) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    let day = days + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{date:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are from `date -u -d @SECONDS`.
    #[test]
    fn dates_around_leap_days_and_centuries() {
        let check = |seconds: i64, shown: &str| assert_eq!(date_time(seconds), shown, "{seconds}");
        check(-1, "1969-12-31 23:59:59 UTC");
        check(0, "1970-01-01 00:00:00 UTC");
        check(951_782_399, "2000-02-28 23:59:59 UTC");
        check(951_782_400, "2000-02-29 00:00:00 UTC");
        check(1_709_164_800, "2024-02-29 00:00:00 UTC");
        check(1_767_225_599, "2025-12-31 23:59:59 UTC");
        check(1_795_894_958, "2026-11-28 19:42:38 UTC");
        check(4_107_542_400, "2100-03-01 00:00:00 UTC");
    }

    /// Every unit changes its scale where a reader expects it, with three significant figures.
    #[test]
    fn numbers_for_people() {
        let check = |unit: Unit, value: f64, shown: &str| {
            assert_eq!(unit.show(value), shown, "{unit:?} {value}")
        };
        check(Unit::Micros, 0.25, "250 ns");
        check(Unit::Micros, 84.234, "84.2 µs");
        check(Unit::Micros, 999.97, "1.00 ms");
        check(Unit::Micros, 1243.0, "1.24 ms");
        check(Unit::Micros, 2_500_000.0, "2.50 s");
        check(Unit::BytesPerSecond, 386_123_456.0, "386 MB/s");
        check(Unit::Bytes, 4096.0, "4 KiB");
        check(Unit::Bytes, 1.5 * 1024.0 * 1024.0, "1.50 MiB");
        check(Unit::PerSecond, 20_123.0, "20.1 k/s");
        check(Unit::PerSecond, 12.0, "12/s");
        check(Unit::Share, 0.1234, "12.3 %");
        check(Unit::Count, 1_234_567.0, "1,234,567");
        check(Unit::Count, 0.5, "0.500");
        check(Unit::Seconds, 61.5, "61.5 s");
        check(Unit::Seconds, 3723.0, "1:02:03 h");
        check(Unit::Nines, 0.0, "0 %");
        check(Unit::Nines, 1.0, "90 %");
        check(Unit::Nines, 3.0, "99.9 %");
        check(Unit::Nines, 3.5, "99.96 %");
        check(Unit::Count, -3.0, "−3");
        check(Unit::Micros, f64::NAN, "–");
        assert_eq!(
            (plus_minus(0.0042), plus_minus(0.31)),
            ("± 0.4 %".into(), "± 31 %".into())
        );
    }
}
