//! The columns of the terminal's table, 80 characters wide: rates, and times in units that suit their size. Columns are
//! always separated.

use brunt_result::statistics::Estimate;

/// Width of a row's label; a longer one has its own line.
pub(super) const LABEL: usize = 17;

/// One row. What is unknown is absent and shown as a dash.
pub(super) struct Cells<'a> {
    pub label: &'a str,
    pub requests_per_second: Option<Estimate>,
    pub bytes_per_second: Option<f64>,
    pub mean_us: Option<f64>,
    pub p50_us: Option<f64>,
    pub p99_us: Option<Estimate>,
    pub p99_9_us: Option<f64>,
    pub max_us: Option<f64>,
}

/// The two header lines.
pub(super) fn head() -> Vec<String> {
    let names = [
        "",
        "requests/s",
        "±",
        "MB/s",
        "mean",
        "p50",
        "p99",
        "±",
        "p99.9",
        "max",
    ];
    vec![
        format!("{:>width$}", "response time", width = LABEL + 35),
        line(names.map(String::from)),
    ]
}

/// A row.
pub(super) fn row(cells: &Cells<'_>) -> String {
    let dash = || "-".to_string();
    let time = |us: Option<f64>| us.map_or_else(dash, time);
    line([
        cells.label.to_string(),
        cells
            .requests_per_second
            .map_or_else(dash, |rate| count(rate.mean)),
        width(cells.requests_per_second),
        cells
            .bytes_per_second
            .map_or_else(dash, |bytes| digits(bytes / 1e6)),
        time(cells.mean_us),
        time(cells.p50_us),
        time(cells.p99_us.map(|p99| p99.mean)),
        width(cells.p99_us),
        time(cells.p99_9_us),
        time(cells.max_us),
    ])
}

fn line(cells: [String; 10]) -> String {
    let [
        label,
        rate,
        rate_width,
        bytes,
        mean,
        p50,
        p99,
        p99_width,
        p99_9,
        max,
    ] = cells;
    format!(
        "{label:<LABEL$}{rate:>10} {rate_width:>5} {bytes:>5} {mean:>6} {p50:>6} {p99:>6} {p99_width:>5} {p99_9:>6} {max:>6}"
    )
}

/// Half-width of an interval in percent of its mean, in at most five characters.
fn width(estimate: Option<Estimate>) -> String {
    let share = estimate.and_then(|estimate| estimate.relative_half_width());
    match share.map(|share| share * 100.0) {
        None => "-".into(),
        Some(percent) if percent > 999.0 => ">999%".into(),
        Some(percent) => format!("{percent:.0}%"),
    }
}

/// A rate per second, in at most nine characters.
pub(super) fn count(rate: f64) -> String {
    match rate {
        rate if rate < 9.95 => format!("{rate:.2}"),
        rate if rate < 999_999_999.0 => format!("{rate:.0}"),
        rate => format!("{:.0}M", rate / 1e6),
    }
}

/// Three significant digits, or all digits before the point.
fn digits(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// A time in microseconds, in a unit that suits its size; in at most six characters up to a day.
pub(super) fn time(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{}us", digits(us)),
        us if us < 999_500.0 => format!("{}ms", digits(us / 1e3)),
        us => format!("{}s", digits(us / 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_by_their_size() {
        let check = |us: f64, text: &str| assert_eq!(time(us), text, "{us}");
        check(1.5, "1.50us");
        check(12.34, "12.3us");
        check(350.4, "350us");
        check(999.7, "1.00ms");
        check(71_600.0, "71.6ms");
        check(1_680_000.0, "1.68s");
        check(86_400e6, "86400s");
    }

    #[test]
    fn columns_never_run_together() {
        let estimate = |mean: f64| {
            Some(Estimate {
                mean,
                low: Some(-mean * 800.0),
                high: Some(mean * 801.0),
                runs: 4,
            })
        };
        let names = brunt_result::op::TABLE.iter().map(|info| info.name);
        let longest = names.max_by_key(|name| name.len()).unwrap();
        for value in [0.0, 0.04, 9.96, 99_999.9, 123_456_789.0, 86_400e6 / 100.0] {
            let cells = Cells {
                label: &format!("  {longest}"),
                requests_per_second: estimate(value),
                bytes_per_second: Some(value),
                mean_us: Some(value),
                p50_us: Some(value),
                p99_us: estimate(value),
                p99_9_us: Some(value),
                max_us: Some(value),
            };
            let row = row(&cells);
            assert_eq!(row.split_whitespace().count(), 10, "{row}");
        }
    }
}
