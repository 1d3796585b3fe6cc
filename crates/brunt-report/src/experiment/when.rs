//! When an experiment ran, as text.

use crate::format::Unit;

/// "2026-11-28 19:42:38 UTC, took 3:20 min", from its begin and end in nanoseconds since 1970.
pub(super) fn span((began, ended): (i64, i64)) -> String {
    let took = Unit::Seconds.show(ended.saturating_sub(began).max(0) as f64 / 1e9);
    format!("{}, took {took}", moment(began))
}

/// Date and time (UTC) in the civil calendar (Hinnant, `civil_from_days`: years start in March, so that the leap day is
/// the last day of a year; 146,097 days are 400 years).
fn moment(unix_ns: i64) -> String {
    let seconds = unix_ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
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

    /// Compared with `date -u -d @SECONDS`.
    #[test]
    fn times_are_those_of_the_date_command() {
        let check = |seconds: i64, expected: &str| {
            assert_eq!(moment(seconds * 1_000_000_000), expected, "{seconds}");
        };
        check(0, "1970-01-01 00:00:00 UTC");
        check(951_782_399, "2000-02-28 23:59:59 UTC");
        check(951_782_400, "2000-02-29 00:00:00 UTC");
        check(1_795_894_958, "2026-11-28 19:42:38 UTC");
        let told = span((0, 90_000_000_000));
        assert_eq!(told, "1970-01-01 00:00:00 UTC, took 90 s");
    }
}
