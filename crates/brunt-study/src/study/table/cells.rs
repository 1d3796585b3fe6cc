//! The columns of the terminal's table, which is 80 characters wide with the default percentiles: rates, and times in
//! units that suit their size. There is always a space between columns.

use brunt_result::percentile::Percentile;
use brunt_result::statistics::Estimate;

/// Width of a row's label; a longer label gets its own line.
pub(super) const LABEL: usize = 17;

/// One row. Unknown values are shown as a dash.
pub(super) struct Cells<'a> {
    pub label: &'a str,
    pub requests_per_second: Option<Estimate>,
    pub bytes_per_second: Option<f64>,
    pub mean_us: Option<f64>,
    /// A mean over runs, with its interval.
    pub p99_us: Option<Estimate>,
    /// Other percentiles.
    pub percentile_us: &'a dyn Fn(Percentile) -> Option<f64>,
    pub max_us: Option<f64>,
}

/// A value for each percentile; p99 also has the width of its interval if there is a column for it.
type PercentileCells = Vec<(String, Option<String>)>;

/// The columns for percentiles.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a>(pub &'a [Percentile]);

impl Columns<'_> {
    /// The two header lines.
    pub(super) fn head(self) -> Vec<String> {
        let rates = ["requests/s", "±", "MB/s"].map(String::from);
        let percentiles = self.0.iter().map(|one| {
            let width = (*one == Percentile::P99).then(|| "±".to_string());
            (one.to_string(), width)
        });
        let times = ("mean".to_string(), percentiles.collect(), "max".to_string());
        vec![
            format!("{:>width$}", "response time", width = LABEL + 35),
            self.line("", rates, times),
        ]
    }

    /// A row.
    pub(super) fn row(self, cells: &Cells<'_>) -> String {
        let dash = || "-".to_string();
        let time = |us: Option<f64>| us.map_or_else(dash, time);
        let rate = cells.requests_per_second;
        let bytes = cells.bytes_per_second;
        let rates = [
            rate.map_or_else(dash, |rate| count(rate.mean)),
            width(rate),
            bytes.map_or_else(dash, |bytes| digits(bytes / 1e6)),
        ];
        let percentiles = self.0.iter().map(|one| match *one == Percentile::P99 {
            true => (
                time(cells.p99_us.map(|p99| p99.mean)),
                Some(width(cells.p99_us)),
            ),
            false => (time((cells.percentile_us)(*one)), None),
        });
        let times = (
            time(cells.mean_us),
            percentiles.collect(),
            time(cells.max_us),
        );
        self.line(cells.label, rates, times)
    }

    /// Aligns a row: rates, then the mean, the percentiles with the width of p99's interval, and the maximum.
    fn line(
        self,
        label: &str,
        [rate, rate_width, bytes]: [String; 3],
        (mean, percentiles, max): (String, PercentileCells, String),
    ) -> String {
        let mut line = format!("{label:<LABEL$}{rate:>10} {rate_width:>5} {bytes:>5} {mean:>6}");
        for (one, (value, interval)) in self.0.iter().zip(percentiles) {
            let width = one.to_string().len().max(6);
            line += &format!(" {value:>width$}");
            line.extend(interval.map(|interval| format!(" {interval:>5}")));
        }
        line + &format!(" {max:>6}")
    }
}

/// Half the width of an interval; a single run has no interval, rather than one of zero width.
pub(super) fn half_width(estimate: &Estimate) -> Option<f64> {
    estimate.high.map(|high| high - estimate.mean)
}

/// Half-width of an interval, in percent of its mean, in at most five characters.
pub(super) fn width(estimate: Option<Estimate>) -> String {
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

/// Three significant digits, or all digits before the decimal point.
fn digits(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// A time in microseconds, in a unit that suits its size; at most six characters up to a day.
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
            for (names, columns) in [("50 99 99.9", 10), ("95 99.99 99.999999", 9)] {
                let percentiles: Vec<Percentile> =
                    names.split(' ').map(|name| name.parse().unwrap()).collect();
                let table = Columns(&percentiles);
                let row = table.row(&Cells {
                    label: &format!("  {longest}"),
                    requests_per_second: estimate(value),
                    bytes_per_second: Some(value),
                    mean_us: Some(value),
                    p99_us: estimate(value),
                    percentile_us: &|_| Some(value),
                    max_us: Some(value),
                });
                assert_eq!(row.split_whitespace().count(), columns, "{row}");
                let head = table.head().remove(1);
                assert_eq!(
                    head.split_whitespace().count(),
                    row.split_whitespace().count() - 1
                );
                // The longest label is one character too long for its column.
                let over = 2 + longest.len() - LABEL;
                assert_eq!(
                    head.chars().count() + over,
                    row.chars().count(),
                    "{head}\n{row}"
                );
            }
        }
    }
}
