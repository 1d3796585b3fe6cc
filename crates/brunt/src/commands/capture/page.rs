//! The live page of a capture (`--serve`): the watching thread's latest snapshot as a report that the browser reloads
//! every few seconds. The rule: pages are rendered on the server's thread, from a copy of the snapshot.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use brunt_capture::analysis::{HotLoad, Quantiles};
use brunt_report::capture::{LiveCapturePage, Source, live};
use brunt_report::format::date_time;
use brunt_report::page::{Notice, Tone};
use brunt_result::capture::{HotRow, IntervalRow, LatencyRow, OperationRow, Ranking, Report};
use serde_json::{Value, json};

use super::health::{self, facts};
use super::picture::Picture;

/// Length of the timeline in seconds.
const SECONDS: usize = 600;
/// Seconds between updates.
const REFRESH_S: u32 = 3;

/// The data shown on the live page.
#[derive(Clone, Default)]
pub struct LiveState {
    /// The interfaces.
    name: String,
    /// When the capture started, in nanoseconds since 1970.
    started_ns: u64,
    now: Picture,
    before: Picture,
    /// Rates during the last minutes, oldest first.
    intervals: VecDeque<IntervalRow>,
}

impl LiveState {
    /// A page for these interfaces without any data yet.
    pub fn of(name: String) -> LiveState {
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        LiveState {
            name,
            started_ns: started.unwrap_or_default().as_nanos() as u64,
            ..LiveState::default()
        }
    }

    /// Adds a snapshot.
    pub fn add(&mut self, picture: &Picture) {
        self.before = std::mem::replace(&mut self.now, picture.clone());
        let (now, before) = (&self.now.glance, &self.before.glance);
        let more = |now: u64, before: u64| now.saturating_sub(before);
        self.intervals.push_back(IntervalRow {
            from_s: self.before.at_s,
            width_s: self.now.at_s - self.before.at_s,
            operations: more(now.calls(), before.calls()),
            wire_bytes: more(now.ledger.wire_bytes, before.ledger.wire_bytes),
            read_bytes: more(now.data_bytes[0], before.data_bytes[0]),
            write_bytes: more(now.data_bytes[1], before.data_bytes[1]),
            errors: more(now.errors(), before.errors()),
        });
        if self.intervals.len() > SECONDS {
            self.intervals.pop_front();
        }
    }

    /// The page as HTML.
    pub fn html(&self) -> String {
        let covers = match self.now.glance.window_ns {
            Some(from_ns) => format!(
                "Files and clients are those of the window that began {}; all other figures cover the \
                 time since the start.",
                date_time((from_ns / 1_000_000_000) as i64)
            ),
            None => "Since the start of the capture.".into(),
        };
        let found = self.now.found.latest.iter().rev().map(|found| {
            let text = format!(
                "{}: {} {}",
                found.time(),
                found.finding.text,
                found.finding.advice
            );
            Notice::new(Tone::Warning, text)
        });
        let page = LiveCapturePage {
            refresh_s: REFRESH_S,
            description: covers,
            findings: found.collect(),
            health: facts(&self.now, &self.before),
        };
        let source = Source {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            trouble: Vec::new(),
        };
        brunt_report::html::render(&live(&self.report(), &source, &page))
    }

    /// The page's data as JSON.
    pub fn json(&self) -> String {
        let Ok(Value::Object(mut state)) = serde_json::to_value(self.report()) else {
            return "{}".into();
        };
        let found: Vec<Value> = self
            .now
            .found
            .latest
            .iter()
            .map(|found| found.json())
            .collect();
        let health = &self.now.health;
        let cpu: BTreeMap<_, _> = health
            .cpu
            .iter()
            .map(|(stage, spent)| (*stage, spent.as_secs_f64()))
            .collect();
        state.insert("findings".into(), Value::Array(found));
        state.insert(
            "health".into(),
            json!({
                "cpu_s": cpu,
                "compression_s": health.compression.as_secs_f64(),
                "checksum_estimated_s": health::checksum_time(self.now.glance.ledger.blocks_summed).as_secs_f64(),
                "memory_bytes": health.memory_bytes,
                "written_bytes": health.written_bytes,
                "ring_used_bytes": self.now.live.ring_used_bytes,
                "ring_bytes": self.now.live.ring_bytes,
                "queued_parcels": self.now.queued,
            }),
        );
        state.insert("window_ns".into(), json!(self.now.glance.window_ns));
        Value::Object(state).to_string()
    }

    fn report(&self) -> Report {
        let glance = &self.now.glance;
        let operations = glance.calls();
        let elapsed = self.now.at_s;
        let rate = |amount: f64| (elapsed > 0.0).then(|| amount / elapsed);
        let clients = glance
            .clients
            .iter()
            .map(|(address, load)| (address.to_string(), *load));
        let files = glance
            .files
            .iter()
            .map(|(_, path, load)| (path.clone(), *load));
        Report {
            start_ns: self.started_ns,
            duration_s: elapsed,
            valid: true,
            findings: Vec::new(),
            operations,
            operations_per_s: rate(operations as f64),
            wire_gbit_per_s: rate(glance.ledger.wire_bytes as f64 * 8e-9),
            by_operation: glance.operations.iter().map(operation_row).collect(),
            left_out: Vec::new(),
            profile: None,
            files: Some(ranking(files)),
            directories: None,
            clients: Some(ranking(clients)),
            pairs: None,
            intervals: self.intervals.iter().cloned().collect(),
            ledger: glance.ledger.named().collect(),
            sections: Vec::new(),
            rows: BTreeMap::new(),
        }
    }
}

fn operation_row(of: &brunt_capture::analysis::OperationGlance) -> OperationRow {
    let latency = &of.latency;
    OperationRow {
        name: Cow::Borrowed(of.name),
        calls: of.calls,
        replies: latency.count(),
        errors: of.errors,
        bytes: of.bytes,
        latency: (latency.count() > 0).then(|| LatencyRow {
            mean_ns: latency.sum_ns() / latency.count(),
            p50_ns: latency.quantile_ns(0.5),
            p90_ns: latency.quantile_ns(0.9),
            p99_ns: latency.quantile_ns(0.99),
            p999_ns: latency.quantile_ns(0.999),
            max_ns: latency.max_ns(),
            error_percent: brunt_capture::analysis::OperationLatency::ERROR_PERCENT,
        }),
    }
}

/// The heaviest entries; the list may be incomplete.
fn ranking(top: impl Iterator<Item = (String, HotLoad)>) -> Ranking {
    let top: Vec<HotRow> = top
        .map(|(name, load)| HotRow {
            name,
            operations: load.operations,
            bytes: load.bytes,
            time_ns: load.time_ns,
            latency: None,
        })
        .collect();
    Ranking {
        count: top.len() as u64,
        count_kind: brunt_result::capture::CountKind::AtLeast,
        forgotten: 0,
        undercount_max: 0,
        top25_operations_share: None,
        top25_bytes_share: None,
        top,
    }
}
