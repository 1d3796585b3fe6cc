//! The live view of a capture: counters since its start, and the hottest entries. A pipeline creates one view on
//! request; the views of several pipelines are merged. Cheap enough to create once per second.

use brunt_result::capture::Finding;
use brunt_wire::net::IpAddress;

use super::hot::HotLoad;
use super::{Analysis, OperationLatency, findings};
use crate::ledger::Ledger;
use crate::operation::{FileKey, Sink};
use crate::pipeline::Pipeline;

/// Entries per list.
const HOT: usize = 32;

/// Figures of one kind of operation since the start of the capture.
#[derive(Clone, Debug)]
pub struct OperationGlance {
    /// Its name.
    pub name: &'static str,
    /// Calls.
    pub calls: u64,
    /// Replies with an error status.
    pub errors: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// Its latency.
    pub latency: OperationLatency,
}

/// Counters since the start of a capture.
#[derive(Clone, Debug, Default)]
pub struct CaptureGlance {
    /// What was seen and what was lost.
    pub ledger: Ledger,
    /// Bytes buffered for incomplete data.
    pub kept_bytes: u64,
    /// Kinds of operations seen at least once.
    pub operations: Vec<OperationGlance>,
    /// Bytes read and written.
    pub data_bytes: [u64; 2],
    /// The files with the most operations, and their paths.
    pub files: Vec<(FileKey, String, HotLoad)>,
    /// The clients with the most operations.
    pub clients: Vec<(IpAddress, HotLoad)>,
    /// When the window covered by `files` and `clients` began, in nanoseconds since 1970; `None` without windows.
    pub window_ns: Option<u64>,
    /// The time of the last packet or call in that window, in nanoseconds since 1970.
    pub now_ns: u64,
    /// Findings of the current window, if requested. With several pipelines, each judges its connections separately.
    pub findings: Vec<Finding>,
}

/// Counters of past windows.
#[derive(Clone, Debug, Default)]
pub struct PastWindows {
    operations: Vec<OperationGlance>,
    data_bytes: [u64; 2],
    /// The counters at the end of the last past window.
    pub(crate) ledger: Ledger,
}

impl PastWindows {
    /// Adds a window that ended with these counters.
    pub(crate) fn add(&mut self, analysis: &Analysis, ledger: &Ledger) {
        add_operations(&mut self.operations, operations(analysis));
        for (mine, more) in self
            .data_bytes
            .iter_mut()
            .zip(analysis.all.rates.data_bytes())
        {
            *mine += more;
        }
        self.ledger = ledger.clone();
    }
}

/// A sink that contains analyses.
pub trait Analysed {
    /// The analyses of the current window.
    fn analysis(&self) -> &Analysis;

    /// The counters of earlier windows, and when the current window began, in nanoseconds since 1970. `None` without
    /// windows.
    fn past(&self) -> Option<(&PastWindows, u64)> {
        None
    }
}

impl Analysed for Analysis {
    fn analysis(&self) -> &Analysis {
        self
    }
}

impl<B> Analysed for (Analysis, B) {
    fn analysis(&self) -> &Analysis {
        &self.0
    }
}

/// The kinds of operations seen at least once.
fn operations(analysis: &Analysis) -> Vec<OperationGlance> {
    let seen = analysis.all.mix.iter().filter(|(_, o)| o.calls > 0);
    seen.map(|(name, o)| OperationGlance {
        name,
        calls: o.calls,
        errors: o.errors,
        bytes: o.bytes,
        latency: o.latency.clone(),
    })
    .collect()
}

/// Adds figures to those of the operation with the same name.
fn add_operations(all: &mut Vec<OperationGlance>, more: Vec<OperationGlance>) {
    for theirs in more {
        match all.iter_mut().find(|mine| mine.name == theirs.name) {
            Some(mine) => {
                mine.calls += theirs.calls;
                mine.errors += theirs.errors;
                mine.bytes += theirs.bytes;
                mine.latency.merge(&theirs.latency);
            }
            None => all.push(theirs),
        }
    }
}

/// The entries with the most operations.
fn heaviest<T>(mut all: Vec<(T, HotLoad)>) -> Vec<(T, HotLoad)> {
    let key = |entry: &(T, HotLoad)| std::cmp::Reverse(entry.1.operations);
    if all.len() > HOT {
        all.select_nth_unstable_by_key(HOT, key);
        all.truncate(HOT);
    }
    all.sort_by_key(key);
    all
}

impl CaptureGlance {
    /// The view of what a pipeline has seen so far.
    pub fn of<S: Sink + Analysed>(pipeline: &Pipeline<S>) -> CaptureGlance {
        let analysis = pipeline.sink().analysis();
        let hot = &analysis.all.hot;
        let mut seen = operations(analysis);
        let mut data_bytes = analysis.all.rates.data_bytes();
        let past = pipeline.sink().past();
        if let Some((past, _)) = past {
            add_operations(&mut seen, past.operations.clone());
            data_bytes = [0, 1].map(|way| data_bytes[way] + past.data_bytes[way]);
        }
        let files = hot.files.iter().filter(|(_, f)| f.load.operations > 0);
        CaptureGlance {
            ledger: pipeline.ledger().clone(),
            kept_bytes: pipeline.kept_bytes() as u64,
            operations: seen,
            data_bytes,
            files: heaviest(files.map(|(key, f)| (FileKey(key), f.load)).collect())
                .into_iter()
                .map(|(key, load)| (key, hot.path(key), load))
                .collect(),
            clients: heaviest(
                hot.clients
                    .iter()
                    .map(|(_, c)| (c.address, c.load))
                    .collect(),
            ),
            window_ns: past.map(|(_, from_ns)| from_ns),
            // A window may have no packets yet.
            now_ns: analysis
                .end_ns()
                .max(past.map_or(0, |(_, from_ns)| from_ns)),
            findings: Vec::new(),
        }
    }

    /// Like [`CaptureGlance::of`], with the findings so far, which take a few milliseconds to compute.
    pub fn with_findings<S: Sink + Analysed>(pipeline: &Pipeline<S>) -> CaptureGlance {
        let sink = pipeline.sink();
        let before = sink.past().map(|(past, _)| &past.ledger);
        let ledger = match before {
            Some(before) => pipeline.ledger().since(before),
            None => pipeline.ledger().clone(),
        };
        CaptureGlance {
            findings: findings::find(sink.analysis(), &ledger),
            ..CaptureGlance::of(pipeline)
        }
    }

    /// Adds another pipeline's view.
    pub fn merge(&mut self, other: CaptureGlance) {
        self.ledger.merge(&other.ledger);
        self.kept_bytes += other.kept_bytes;
        self.window_ns = self.window_ns.max(other.window_ns);
        self.now_ns = self.now_ns.max(other.now_ns);
        for finding in other.findings {
            if !self.findings.iter().any(|mine| mine.kind == finding.kind) {
                self.findings.push(finding);
            }
        }
        add_operations(&mut self.operations, other.operations);
        for (mine, theirs) in self.data_bytes.iter_mut().zip(other.data_bytes) {
            *mine += theirs;
        }
        for (key, path, load) in other.files {
            match self.files.iter_mut().find(|mine| mine.0 == key) {
                Some(mine) => mine.2.merge(&load),
                None => self.files.push((key, path, load)),
            }
        }
        self.files
            .sort_by_key(|file| std::cmp::Reverse(file.2.operations));
        for (address, load) in other.clients {
            match self.clients.iter_mut().find(|mine| mine.0 == address) {
                Some(mine) => mine.1.merge(&load),
                None => self.clients.push((address, load)),
            }
        }
        self.clients
            .sort_by_key(|client| std::cmp::Reverse(client.1.operations));
    }

    /// Total number of calls.
    pub fn calls(&self) -> u64 {
        self.operations
            .iter()
            .map(|operation| operation.calls)
            .sum()
    }

    /// Total number of failed operations.
    pub fn errors(&self) -> u64 {
        self.operations
            .iter()
            .map(|operation| operation.errors)
            .sum()
    }
}
