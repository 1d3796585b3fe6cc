//! When an experiment ran, as text.

use crate::format::{Unit, date_time};

/// For example "2026-11-28 19:42:38 UTC, took 3:20 min", from the start and end in nanoseconds since 1970.
pub(super) fn span((began, ended): (i64, i64)) -> String {
    let took = Unit::Seconds.show(ended.saturating_sub(began).max(0) as f64 / 1e9);
    let began = date_time(began.div_euclid(1_000_000_000));
    format!("{began}, took {took}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_its_begin_and_its_length() {
        let told = span((0, 90_000_000_000));
        assert_eq!(told, "1970-01-01 00:00:00 UTC, took 90 s");
        let told = span((-1, 999_999_999));
        assert_eq!(told, "1969-12-31 23:59:59 UTC, took 1 s");
    }
}
