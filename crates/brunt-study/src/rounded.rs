//! Times in the notation of an experiment file, for messages that name a setting and a value.
//!
//! The rule: this is a leaf module, which imports nothing from this crate.

use std::time::Duration;

use brunt_core::Span;

/// A time as written in a file, rounded to at most three digits.
pub(crate) fn rounded(time: Duration) -> Span {
    let nanos = time.as_nanos() as u64;
    let unit = 10u64.pow(nanos.max(1).ilog10().saturating_sub(2));
    Span(Duration::from_nanos(nanos / unit * unit))
}
