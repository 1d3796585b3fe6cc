//! Metrics of a running capture in Prometheus's text format (version 0.0.4), and the page they are
//! on. Counters run since the capture's start; names end in their unit.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_capture::analysis::Quantiles;

use super::watch::Picture;
use crate::cli::Failure;

/// Upper bounds of the latency histogram: 1.024 us times powers of four, up to 17 s.
const OCTAVES: std::ops::RangeInclusive<u32> = 0..=24;

/// Serves the page until it is dropped.
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `address`.
    pub fn start(address: SocketAddr, page: Arc<Mutex<String>>) -> Result<Server, Failure> {
        let server = tiny_http::Server::http(address)
            .map_err(|error| Failure::failed(format!("cannot serve metrics at {address}: {error}")))?;
        let address = server.server_addr().to_ip().unwrap_or(address);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    if let Ok(Some(request)) = server.recv_timeout(Duration::from_millis(100)) {
                        answer(request, &page);
                    }
                }
            })
            .map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
        Ok(Server { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(request: tiny_http::Request, page: &Mutex<String>) {
    // Whoever asked may have gone.
    let _ = if request.url() == "/metrics" {
        let text = page.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let kind = "Content-Type: text/plain; version=0.0.4; charset=utf-8";
        let header = kind.parse::<tiny_http::Header>().expect("a header");
        request.respond(tiny_http::Response::from_string(text).with_header(header))
    } else {
        request.respond(tiny_http::Response::from_string("see /metrics\n").with_status_code(404))
    };
}

/// One metric: its name, kind and help, then its samples.
struct Page(String);

impl Page {
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.metric(name, kind, help);
        let _ = writeln!(self.0, "{name} {value}");
    }
}

/// The page for a picture.
pub fn page(picture: &Picture) -> String {
    let mut page = Page(String::new());
    ledger(&mut page, picture);
    live(&mut page, picture);
    operations(&mut page, picture);
    page.0
}

fn ledger(page: &mut Page, picture: &Picture) {
    let glance = &picture.glance;
    // The ledger's own names say what is counted.
    if let Ok(serde_json::Value::Object(ledger)) = serde_json::to_value(&glance.ledger) {
        for (name, value) in &ledger {
            let (Some(value), words) = (value.as_u64(), name.replace('_', " ")) else { continue };
            if name == "calls_open" {
                page.single("brunt_capture_calls_open", "gauge", "Calls that wait for their reply.", value);
            } else {
                let help = format!("Loss ledger: {words} since the capture began.");
                page.single(&format!("brunt_capture_{name}_total"), "counter", &help, value);
            }
        }
    }
}

fn live(page: &mut Page, picture: &Picture) {
    let live = &picture.live;
    page.single(
        "brunt_capture_packets_offered_total",
        "counter",
        "Packets that passed the filter.",
        live.counters.offered,
    );
    page.single(
        "brunt_capture_pool_waits_total",
        "counter",
        "Times that no parcel was free.",
        live.pool_waits,
    );
    page.single(
        "brunt_capture_card_losses_total",
        "counter",
        "Packets that the interfaces lost before the ring.",
        live.card_losses,
    );
    page.single(
        "brunt_capture_kept_bytes",
        "gauge",
        "Bytes kept of what is incomplete.",
        picture.glance.kept_bytes,
    );
    page.single(
        "brunt_capture_messages_total",
        "counter",
        "Parcels and questions that parsers handled.",
        picture.messages,
    );
    page.metric("brunt_capture_queued_parcels", "gauge", "Parcels that wait for a parser.");
    for (index, queued) in picture.queued.iter().enumerate() {
        let _ = writeln!(page.0, "brunt_capture_queued_parcels{{parser=\"{index}\"}} {queued}");
    }
}

fn operations(page: &mut Page, picture: &Picture) {
    let glance = &picture.glance;
    type Value = fn(&brunt_capture::analysis::OperationGlance) -> u64;
    let by_operation: [(&str, &str, Value); 3] = [
        ("brunt_nfs_operations_total", "Operations called.", |o| o.calls),
        ("brunt_nfs_errors_total", "Operations that failed.", |o| o.errors),
        ("brunt_nfs_data_bytes_total", "Bytes of file data that moved.", |o| o.bytes),
    ];
    for (name, help, value) in by_operation {
        page.metric(name, "counter", help);
        for operation in &glance.operations {
            let _ = writeln!(page.0, "{name}{{operation=\"{}\"}} {}", operation.name, value(operation));
        }
    }
    let name = "brunt_nfs_latency_seconds";
    page.metric(name, "histogram", "From the call's first byte to the reply's.");
    for operation in &glance.operations {
        let (label, latency) = (format!("operation=\"{}\"", operation.name), &operation.latency);
        let below = latency.counts_below(OCTAVES.step_by(2).map(|octave| 1024 << octave));
        for (octave, below) in OCTAVES.step_by(2).zip(below) {
            let bound = f64::from(1u32 << octave) * 1.024e-6;
            let _ = writeln!(page.0, "{name}_bucket{{{label},le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(page.0, "{name}_bucket{{{label},le=\"+Inf\"}} {}", latency.count());
        let _ = writeln!(page.0, "{name}_sum{{{label}}} {}", latency.sum_ns() as f64 * 1e-9);
        let _ = writeln!(page.0, "{name}_count{{{label}}} {}", latency.count());
    }
}
