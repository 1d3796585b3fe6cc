//! Prometheus metrics: serves them for `capture`, `run`, `replay` and `target`, in the text format (version 0.0.4).
//! The figures of runs are written in [`run`], those of other commands next to the commands.
//!
//! The rule: viewers never slow down the measured work. `brunt_web::metrics` answers requests; the page is rendered on
//! request, on one of the server's threads.

pub mod histogram;
pub mod run;
#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use brunt_web::http::HttpServer;

use crate::cli::{Failure, Output};

/// Serves the output of `page` from a thread, and prints a note with the address.
///
/// # Errors
/// A thread could not be started.
pub fn serve(
    listener: Option<TcpListener>,
    output: &Output,
    page: impl Fn() -> String + Send + 'static,
) -> Result<Option<MetricsServer>, Failure> {
    let Some(listener) = listener else {
        return Ok(None);
    };
    let address = listener.local_addr().map_err(Failure::failed)?;
    let readings = Arc::new(Readings::default());
    let noted = Arc::clone(&readings);
    let page = move || {
        let page = page();
        noted.note(Instant::now());
        page
    };
    let server = brunt_web::metrics::serve(listener, page)
        .map_err(|error| Failure::failed(format!("cannot serve metrics: {error}")))?;
    output.note(format_args!("metrics at http://{address}/metrics"));
    Ok(Some(MetricsServer { server, readings }))
}

/// Maximum wait for the last scrape; Prometheus's usual intervals are 15 s and one minute.
const LAST_READING_MAX: Duration = Duration::from_secs(60);
/// How often to check for an interruption during that wait.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time allowed for sending a finished answer.
const ANSWER: Duration = Duration::from_millis(200);

/// A metrics server, which stops when dropped.
pub struct MetricsServer {
    server: HttpServer,
    readings: Arc<Readings>,
}

/// Stops the server. If the page is scraped regularly, first waits for another scrape, so that the final figures are
/// collected. Ctrl-C ends the wait. Doesn't wait if the page was read less than twice.
pub fn finish(server: Option<MetricsServer>, output: &Output) {
    let Some(MetricsServer { server, readings }) = server else {
        return;
    };
    if let Some(at_most) = readings.wanted() {
        output.note(format_args!(
            "waiting for the last metrics to be read, for at most {} s (Ctrl-C ends the wait)",
            at_most.as_secs().max(1)
        ));
        if readings.wait_for_next(at_most, output.interrupt_flag()) {
            std::thread::sleep(ANSWER);
        }
    }
    drop(server);
}

/// When the page was read.
#[derive(Default)]
struct Readings {
    state: Mutex<ReadingState>,
    read: Condvar,
}

#[derive(Clone, Copy, Default)]
struct ReadingState {
    count: u64,
    last: Option<Instant>,
    /// The longest time between two readings.
    pause_max: Option<Duration>,
}

impl Readings {
    fn lock(&self) -> MutexGuard<'_, ReadingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, now: Instant) {
        let mut state = self.lock();
        state.count += 1;
        let pause = state.last.map(|last| now.saturating_duration_since(last));
        state.pause_max = state.pause_max.max(pause);
        state.last = Some(now);
        self.read.notify_all();
    }

    /// Maximum wait for the next reading: twice the longest pause so far; `None` with fewer than two readings.
    fn wanted(&self) -> Option<Duration> {
        let pause = self.lock().pause_max?;
        Some((pause * 2).min(LAST_READING_MAX))
    }

    /// Waits for a reading after this call begins; returns whether there was one.
    fn wait_for_next(&self, at_most: Duration, stop: &AtomicBool) -> bool {
        let (begin, mut state) = (Instant::now(), self.lock());
        let before = state.count;
        while state.count == before {
            if begin.elapsed() >= at_most || stop.load(Ordering::Relaxed) {
                return false;
            }
            let waited = self.read.wait_timeout(state, POLL_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// The Prometheus type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A counter, which only increases until the program ends.
    Counter,
    /// A gauge, which goes up and down.
    Gauge,
    /// A histogram: cumulative counts by upper bound.
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

/// A page of metrics: the kind and help of each metric, followed by its samples.
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

    /// Adds a metric with one value and no labels.
    pub fn single(&mut self, name: &str, kind: MetricKind, help: &str, value: u64) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }

    /// Adds a sample of the metric that was begun last.
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
