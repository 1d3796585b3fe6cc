//! Metrics of what the program is doing, for Prometheus: where `capture`, `run`, `replay` and `target` serve them, and the
//! text format (version 0.0.4). What is exported is written where it is known: [`run`] here, the others beside their
//! commands.
//!
//! The rule: whoever is measured never waits for whoever looks. `brunt_web::metrics` answers; the page is made when it is
//! asked for, on a thread of the server's.

pub mod histogram;
pub mod run;
#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::net::TcpListener;

use brunt_web::http::HttpServer;

use crate::cli::{Failure, Output};

/// Serves what `page` makes, from a thread, and notes where.
///
/// # Errors
/// There is no thread to be had.
pub fn serve(
    listener: Option<TcpListener>,
    output: &Output,
    page: impl Fn() -> String + Send + 'static,
) -> Result<Option<HttpServer>, Failure> {
    let Some(listener) = listener else {
        return Ok(None);
    };
    let address = listener.local_addr().map_err(Failure::failed)?;
    let server = brunt_web::metrics::serve(listener, page)
        .map_err(|error| Failure::failed(format!("cannot serve metrics: {error}")))?;
    output.note(format_args!("metrics at http://{address}/metrics"));
    Ok(Some(server))
}

/// What a metric is to Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Grows until the program ends.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts below bounds.
    Histogram,
}

impl MetricKind {
    fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// Names and values of labels.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// A page of metrics: each with its kind and help, then its samples.
#[derive(Default)]
pub struct MetricsPage(String);

impl MetricsPage {
    /// Begins a metric; its samples follow.
    pub fn metric(&mut self, name: &str, kind: MetricKind, help: &str) {
        let _ = writeln!(
            self.0,
            "# HELP {name} {help}\n# TYPE {name} {}",
            kind.name()
        );
    }

    /// A metric with one value and no labels.
    pub fn single(&mut self, name: &str, kind: MetricKind, help: &str, value: u64) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }

    /// One sample of the metric that was begun last.
    pub fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{label}=\"");
            for c in text.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        let _ = writeln!(
            self.0,
            "{} {value}",
            if labels.is_empty() { "" } else { "}" }
        );
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}
