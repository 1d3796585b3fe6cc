//! Makes the runs of an experiment: every point as often as it says, interleaved, each written
//! down as soon as it is over. `brunt run` opens the targets and shows progress.
//!
//! The rule: whatever stops it, the runs that were finished stay on record, and the record says
//! that it is not all.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brunt_block::Backend;
use brunt_core::{Histogram, Size};
use brunt_load::workload::Arrival;
use brunt_load::{NoRecorder, Outcome, Session, SessionError};

use crate::experiment::{Experiment, Plan, Point};
use crate::statistics::Estimate;
use crate::summary::{FORMAT, Latencies, PointSummary, RunSummary, Summary};

/// Why an experiment ended early.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A run could not be made.
    #[error("{label}, repetition {repetition}: {source}")]
    Run {
        /// The point.
        label: String,
        /// From 0.
        repetition: usize,
        /// Why.
        source: SessionError,
    },
    /// The results could not be written.
    #[error("cannot write the results: {0}; what was measured before is kept")]
    Write(#[from] io::Error),
}

/// A study under way.
pub struct Study<'a> {
    plan: Plan,
    targets: BTreeMap<String, Arc<dyn Backend>>,
    folder: &'a Path,
    summary: Summary,
    /// Histograms of complete runs, by point: response and service.
    merged: Vec<(Histogram, Histogram)>,
}

impl<'a> Study<'a> {
    /// Of an experiment whose targets were opened, by name. Results go to `folder`, which exists.
    ///
    /// # Panics
    /// When a target is missing.
    pub fn new(
        experiment: Experiment,
        targets: BTreeMap<String, Arc<dyn Backend>>,
        version: &str,
        folder: &'a Path,
    ) -> Study<'a> {
        let plan = experiment.plan();
        let points = plan.points.iter().map(|point| empty(point, targets[&point.target].as_ref())).collect();
        let merged = plan.points.iter().map(|_| (Histogram::new(), Histogram::new())).collect();
        let brunt = version.to_string();
        let summary = Summary { format: FORMAT, brunt, complete: false, trouble: None, experiment, points };
        Study { plan, targets, folder, summary, merged }
    }

    /// Makes all runs, until `stop` is set. `progress` is told each run as it ends: how many are done,
    /// how many there are, the point's label, the run.
    ///
    /// # Errors
    /// With the trouble that ended it; the summary on disk has it too.
    pub fn run(
        mut self,
        stop: &AtomicBool,
        mut progress: impl FnMut(usize, usize, &str, &RunSummary),
    ) -> Result<Summary, StudyError> {
        self.summary.write(self.folder)?;
        let runs = std::mem::take(&mut self.plan.runs);
        for (order, (index, repetition)) in runs.iter().copied().enumerate() {
            if stop.load(Ordering::Relaxed) {
                self.summary.trouble = Some("interrupted".into());
                break;
            }
            let label = self.plan.points[index].label.clone();
            match self.one(index, repetition, order, stop) {
                Ok(run) => {
                    let complete = run.is_complete();
                    progress(order + 1, runs.len(), &label, &run);
                    if !complete {
                        self.summary.trouble = Some(match &run.first_error {
                            Some(error) => format!("{label}: {error}"),
                            None => "interrupted".into(),
                        });
                    }
                    self.summary.points[index].runs.push(run);
                    self.conclude(index);
                    let last = order + 1 == runs.len() || !complete;
                    self.summary.complete = last && self.summary.trouble.is_none();
                    self.summary.write(self.folder)?;
                    if !complete {
                        break;
                    }
                }
                Err(source) => {
                    let error = StudyError::Run { label, repetition, source };
                    self.summary.trouble = Some(error.to_string());
                    self.summary.write(self.folder)?;
                    return Err(error);
                }
            }
        }
        self.summary.write(self.folder)?;
        Ok(self.summary)
    }

    fn one(
        &mut self,
        index: usize,
        repetition: usize,
        order: usize,
        stop: &AtomicBool,
    ) -> Result<RunSummary, SessionError> {
        let point = &self.plan.points[index];
        let mut workload = point.workload.clone();
        if let Some(verify) = &mut workload.verify
            && let Some(folder) = &mut verify.journal
        {
            *folder = folder.join(format!("run-{order}"));
        }
        // The same requests for every point of a repetition: what differs is what is compared.
        let seed = self.summary.experiment.seed.wrapping_add(repetition as u64);
        let backend = Arc::clone(&self.targets[&point.target]);
        let mut session = Session::new(workload, backend, seed);
        session.run = seed.wrapping_add((order as u64) << 32);
        let (outcome, rate_found) = match session.workload.arrival {
            Arrival::Search { .. } => {
                let (answer, trials) = session.search(stop, &mut NoRecorder)?;
                // The trial at the answer, or the last one if none kept the promise.
                let at_answer = |trial: &brunt_load::session::Trial| Some(trial.rate) == answer && trial.kept;
                let chosen = trials.iter().position(at_answer).or(trials.len().checked_sub(1));
                match chosen.and_then(|index| trials.into_iter().nth(index)) {
                    Some(trial) => (trial.outcome, answer),
                    None => (Outcome::interrupted(), None),
                }
            }
            _ => (session.run(stop, &mut NoRecorder)?, None),
        };
        if outcome.is_complete() {
            self.merged[index].0.merge(&outcome.figures.response());
            self.merged[index].1.merge(&outcome.figures.service());
        }
        Ok(RunSummary::of(&outcome, repetition as u32, order as u32, seed, rate_found))
    }

    /// What the complete runs of a point say together.
    fn conclude(&mut self, index: usize) {
        let point = &mut self.summary.points[index];
        let complete: Vec<&RunSummary> = point.runs.iter().filter(|run| run.is_complete()).collect();
        let over = |get: &dyn Fn(&RunSummary) -> Option<f64>| {
            Estimate::of(&complete.iter().filter_map(|run| get(run)).collect::<Vec<f64>>())
        };
        let requests = over(&|run| Some(run.requests_per_second));
        let bytes = over(&|run| Some(run.bytes_per_second));
        let mean = over(&|run| run.response.map(|latencies| latencies.mean_us));
        let p99 = over(&|run| run.response.map(|latencies| latencies.p99_us));
        (point.requests_per_second, point.bytes_per_second) = (requests, bytes);
        (point.response_mean_us, point.response_p99_us) = (mean, p99);
        point.response = Latencies::of(&self.merged[index].0);
        point.service = Latencies::of(&self.merged[index].1);
    }
}

fn empty(point: &Point, backend: &dyn Backend) -> PointSummary {
    PointSummary {
        label: point.label.clone(),
        target: point.target.clone(),
        workload: point.workload_name.clone(),
        axes: point.axes.iter().map(|(axis, value)| (axis.to_string(), value.clone())).collect(),
        notes: backend.info().notes.clone(),
        requests_per_second: None,
        bytes_per_second: None,
        response_mean_us: None,
        response_p99_us: None,
        response: None,
        service: None,
        runs: Vec::new(),
    }
}

/// The table at the end of `brunt run`, 80 columns wide at the most.
pub fn table(summary: &Summary) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<33} {:>10} {:>5} {:>9} {:>9} {:>9}",
        "", "requests/s", "±", "MB/s", "mean us", "p99 us"
    )];
    for point in &summary.points {
        let label: String = match point.label.char_indices().nth(80) {
            Some((end, _)) => point.label[..end].to_string(),
            None => point.label.clone(),
        };
        // A long label has a line of its own.
        let label = if label.chars().count() > 33 {
            lines.push(label);
            String::new()
        } else {
            label
        };
        let Some(requests) = point.requests_per_second else {
            lines.push(format!("{label:<33} no complete run"));
            continue;
        };
        let width =
            requests.relative_half_width().map_or("-".into(), |share| format!("{:.0}%", share * 100.0));
        let bytes = point.bytes_per_second.map_or(0.0, |bytes| bytes.mean / 1e6);
        let (mean, p99) =
            point.response.map_or((f64::NAN, f64::NAN), |response| (response.mean_us, response.p99_us));
        lines.push(format!(
            "{label:<33} {:>10.0} {width:>5} {bytes:>9.1} {mean:>9.1} {p99:>9.1}",
            requests.mean
        ));
        let mut losses: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, count) in point.runs.iter().flat_map(|run| &run.losses) {
            *losses.entry(name).or_default() += count;
        }
        if !losses.is_empty() {
            let told: Vec<String> = losses.iter().map(|(name, count)| format!("{count} {name}")).collect();
            lines.push(format!("  losses: {}", told.join(", ")));
        }
    }
    lines
}

/// What `--check` says: what would run, how long, what would be written.
pub fn describe(experiment: &Experiment, plan: &Plan) -> Vec<String> {
    let (points, runs) = (plan.points.len(), plan.runs.len());
    let mut lines = vec![format!(
        "{}: {points} points, {} repetitions, {runs} runs (seed {})",
        experiment.name, experiment.repetitions, experiment.seed
    )];
    let (seconds, more) =
        (plan.time_min.as_secs(), if plan.open_ended { " and what runs without a time need" } else { "" });
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    lines.push(format!("takes about {hours}:{minutes:02}:{seconds:02}{more}"));
    for (name, url, allowed) in &plan.written {
        let what = match allowed {
            true => "is overwritten whatever it holds (allow_overwrite)",
            false => "is written; refused if it holds a file system or partition table",
        };
        lines.push(format!("target {name} ({url}) {what}"));
    }
    for point in &plan.points {
        let workload = &point.workload;
        let blocks: Vec<String> =
            workload.blocks.iter().map(|block| Size(block.size.0).to_string()).collect();
        lines.push(format!(
            "  {}: {} blocks, {:.0}% reads, depth {} x {}",
            point.label,
            blocks.join("/"),
            workload.read * 100.0,
            workload.queue_depth,
            workload.workers
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_block::backends::memory::MemoryBackend;

    const TEXT: &str = r#"
        name = "small"
        repetitions = 4
        [targets.memory]
        url = "memory:16MiB"
        [workloads.mixed]
        read = 0.5
        stop = { requests = 2000 }
        [sweep]
        queue_depth = [1, 16]
    "#;

    fn study(folder: &Path) -> Study<'_> {
        let experiment = Experiment::parse("small.toml", TEXT).unwrap();
        let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::new(16 << 20, 512).unwrap());
        Study::new(experiment, BTreeMap::from([("memory".into(), memory)]), "test", folder)
    }

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("brunt-study-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// The goal: every run is made once, and the file on disk tells all of it.
    #[test]
    fn an_experiment_from_end_to_end() {
        let folder = folder("whole");
        let mut told = Vec::new();
        let summary = study(&folder)
            .run(&AtomicBool::new(false), |done, all, label, _| told.push((done, all, label.to_string())))
            .unwrap();
        assert!(summary.complete && summary.trouble.is_none());
        assert_eq!(told.len(), 8);
        let read = Summary::read(&folder).unwrap();
        assert_eq!(read.experiment, summary.experiment);
        assert_eq!((read.complete, read.points.len()), (true, 2));
        for point in &read.points {
            assert_eq!(point.runs.len(), 4);
            assert_eq!(point.requests_per_second.unwrap().runs, 4);
            let all: u64 = point.runs.iter().map(|run| run.reads.completed + run.writes.completed).sum();
            assert_eq!(all, 8000);
            let longest =
                point.runs.iter().filter_map(|run| run.response).map(|r| r.max_us).fold(0.0, f64::max);
            assert_eq!(point.response.unwrap().max_us, longest);
        }
        assert!(table(&summary).iter().all(|line| line.chars().count() <= 80));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// The goal: an interrupted experiment is on record, and says that it is not all.
    #[test]
    fn an_interrupted_experiment() {
        let folder = folder("cut");
        let stop = AtomicBool::new(false);
        let summary =
            study(&folder).run(&stop, |done, _, _, _| stop.store(done == 3, Ordering::Relaxed)).unwrap();
        assert!(!summary.complete && summary.trouble.is_some());
        let read = Summary::read(&folder).unwrap();
        assert_eq!(read.points.iter().map(|point| point.runs.len()).sum::<usize>(), 3);
        assert!(!read.complete);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
