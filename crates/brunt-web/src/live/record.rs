//! The history of an experiment, for viewers that join late: the current run, how earlier runs ended, and the
//! terminal's lines.
//!
//! The rule: the history is bounded, however long the experiment. Series are thinned, lists drop their oldest
//! entries, and both are reported.

use std::collections::{BTreeMap, VecDeque};

use super::frame::{
    LiveEnd, LiveFault, LiveFrame, LivePlan, LiveRun, LiveRunEnd, LiveSample, LiveStretch,
    LiveSubject, LiveThinning,
};
use super::thinned::ThinnedSeries;

/// Segments of the current run.
const STRETCHES_MAX: usize = 600;
/// Maximum samples per series and number of series: each host has one series, plus another if its processes are
/// watched.
const SAMPLES_MAX: usize = 120;
const SERIES_MAX: usize = 32;
/// Faults of a run.
const FAULTS_MAX: usize = 200;
/// Completed runs.
const RUNS_MAX: usize = 1000;
/// Lines of the terminal.
const NOTES_MAX: usize = 500;

/// The history of an experiment.
pub struct LiveRecord {
    /// `None` until an experiment begins.
    plan: Option<LivePlan>,
    run: Option<LiveRun>,
    started: Option<LiveFrame>,
    stretches: ThinnedSeries<LiveStretch>,
    samples: BTreeMap<(String, LiveSubject), ThinnedSeries<LiveSample>>,
    samples_left_out: u64,
    faults: BTreeMap<u32, LiveFault>,
    ended: Newest<LiveRunEnd>,
    notes: Newest<LiveFrame>,
    missed: u64,
    end: Option<LiveEnd>,
}

/// A list that keeps its newest entries.
struct Newest<T> {
    items_max: usize,
    items: VecDeque<T>,
    left_out: u64,
}

impl<T> Newest<T> {
    fn new(items_max: usize) -> Newest<T> {
        Newest {
            items_max,
            items: VecDeque::new(),
            left_out: 0,
        }
    }

    fn push(&mut self, item: T) {
        if self.items.len() == self.items_max {
            self.items.pop_front();
            self.left_out += 1;
        }
        self.items.push_back(item);
    }
}

impl LiveRecord {
    /// An empty record, for a server without an experiment or before the first one.
    pub fn new(plan: impl Into<Option<LivePlan>>) -> LiveRecord {
        LiveRecord {
            plan: plan.into(),
            run: None,
            started: None,
            stretches: ThinnedSeries::new(STRETCHES_MAX),
            samples: BTreeMap::new(),
            samples_left_out: 0,
            faults: BTreeMap::new(),
            ended: Newest::new(RUNS_MAX),
            notes: Newest::new(NOTES_MAX),
            missed: 0,
            end: None,
        }
    }

    /// Records a frame.
    pub fn take(&mut self, frame: &LiveFrame) {
        match frame {
            LiveFrame::RunBegins(run) => {
                self.run = Some(run.clone());
                self.started = None;
                self.stretches = ThinnedSeries::new(STRETCHES_MAX);
                self.samples.clear();
                self.samples_left_out = 0;
                self.faults.clear();
            }
            LiveFrame::RunStarts { .. } => {
                self.started = Some(frame.clone());
                self.stretches = ThinnedSeries::new(STRETCHES_MAX);
            }
            LiveFrame::Stretch(stretch) => self.stretches.push(stretch.clone()),
            LiveFrame::Sample(sample) => self.sample(sample),
            LiveFrame::Fault(fault) => {
                if self.faults.len() < FAULTS_MAX || self.faults.contains_key(&fault.index) {
                    self.faults.insert(fault.index, fault.clone());
                }
            }
            LiveFrame::RunEnds(run) => self.ended.push(run.clone()),
            LiveFrame::Note { .. } => self.notes.push(frame.clone()),
            LiveFrame::Missed { events } => self.missed = *events,
            LiveFrame::Ends(end) => self.end = Some(end.clone()),
            // A new experiment begins.
            LiveFrame::Plan(plan) => *self = LiveRecord::new(plan.clone()),
            LiveFrame::Past(_) | LiveFrame::Now | LiveFrame::Lost { .. } => {}
        }
    }

    fn sample(&mut self, sample: &LiveSample) {
        let room = self.samples.len() < SERIES_MAX;
        let key = sample.series();
        match self.samples.get_mut(&key) {
            Some(series) => series.push(sample.clone()),
            None if room => {
                let mut series = ThinnedSeries::new(SAMPLES_MAX);
                series.push(sample.clone());
                self.samples.insert(key, series);
            }
            None => self.samples_left_out += 1,
        }
    }

    /// The whole record, as frames.
    pub fn past(&self) -> Vec<LiveFrame> {
        let thinning = LiveThinning {
            stretches_each: self.stretches.each(),
            samples_each: self
                .samples
                .values()
                .map(ThinnedSeries::each)
                .max()
                .unwrap_or(1),
            runs_left_out: self.ended.left_out,
            notes_left_out: self.notes.left_out,
            samples_left_out: self.samples_left_out,
        };
        let mut frames: Vec<LiveFrame> =
            self.plan.clone().map(LiveFrame::Plan).into_iter().collect();
        frames.push(LiveFrame::Past(thinning));
        frames.extend(self.notes.items.iter().cloned());
        // In this order, the segments follow the frame that begins their run.
        frames.extend(self.run.clone().map(LiveFrame::RunBegins));
        frames.extend(self.started.clone());
        frames.extend(self.faults.values().cloned().map(LiveFrame::Fault));
        frames.extend(
            self.stretches
                .parts()
                .iter()
                .cloned()
                .map(LiveFrame::Stretch),
        );
        let samples = self.samples.values().flat_map(|series| series.parts());
        frames.extend(samples.cloned().map(LiveFrame::Sample));
        frames.extend(self.ended.items.iter().cloned().map(LiveFrame::RunEnds));
        if self.missed > 0 {
            frames.push(LiveFrame::Missed {
                events: self.missed,
            });
        }
        frames.extend(self.end.clone().map(LiveFrame::Ends));
        frames.push(LiveFrame::Now);
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::LiveValue;
    use super::*;

    fn stretch(index: u32) -> LiveFrame {
        let start_s = f64::from(index);
        LiveFrame::Stretch(LiveStretch {
            start_s,
            end_s: start_s + 1.0,
            of: 1,
            completed: 1,
            requests_per_second: 1.0,
            ..LiveStretch::default()
        })
    }

    fn run(order: u32) -> LiveFrame {
        let label = "disk w".to_string();
        LiveFrame::RunBegins(LiveRun {
            order,
            runs: 2,
            point: 0,
            label,
            repetition: order,
            at_s: 0.0,
        })
    }

    fn sample(host: &str, start_s: f64, value: f64) -> LiveFrame {
        let value = LiveValue("cpu".into(), String::new(), "busy_share".into(), value);
        let (host, end_s) = (host.to_string(), start_s + 1.0);
        LiveFrame::Sample(LiveSample {
            host,
            start_s,
            end_s,
            of: 1,
            values: vec![value],
            left_out: 0,
        })
    }

    fn thinning(frames: &[LiveFrame]) -> LiveThinning {
        let found = frames.iter().find_map(|frame| match frame {
            LiveFrame::Past(thinning) => Some(thinning.clone()),
            _ => None,
        });
        found.expect("it is said")
    }

    /// The record stays short, however long the run, and reports everything that it dropped.
    #[test]
    fn the_past_is_bounded_and_reports_what_it_dropped() {
        let mut record = LiveRecord::new(LivePlan::default());
        assert_eq!(record.past().len(), 3);
        record.take(&run(0));
        for index in 0..5000 {
            record.take(&stretch(index));
            record.take(&sample(
                &format!("host {}", index % 40),
                f64::from(index),
                1.0,
            ));
            record.take(&LiveFrame::Note {
                at_s: 0.0,
                text: index.to_string(),
            });
        }
        let past = record.past();
        let said = thinning(&past);
        assert!(
            said.stretches_each >= 9 && said.samples_each >= 2,
            "{said:?}"
        );
        assert_eq!((said.notes_left_out, said.runs_left_out), (4500, 0));
        assert_eq!(said.samples_left_out, 8 * 125);
        let stretches = past.iter().filter_map(|frame| match frame {
            LiveFrame::Stretch(stretch) => Some(stretch),
            _ => None,
        });
        assert!(stretches.clone().count() <= STRETCHES_MAX);
        assert_eq!(
            stretches
                .clone()
                .map(|stretch| stretch.completed)
                .sum::<u64>(),
            5000
        );
        assert_eq!(
            stretches
                .max_by(|a, b| a.end_s.total_cmp(&b.end_s))
                .expect("some")
                .end_s,
            5000.0
        );
        assert!(past.len() < 5 + STRETCHES_MAX + NOTES_MAX + SERIES_MAX * SAMPLES_MAX);
        assert_eq!(past.last(), Some(&LiveFrame::Now));
    }

    /// A host's processes are sampled at the same times as the host, but in separate series.
    #[test]
    fn a_host_and_its_processes_have_separate_series() {
        let mut record = LiveRecord::new(LivePlan::default());
        for index in 0..SAMPLES_MAX as u32 {
            record.take(&sample("local", f64::from(index), 0.25));
            let value = LiveValue("process".into(), "runner".into(), "threads".into(), 3.0);
            let start_s = f64::from(index);
            record.take(&LiveFrame::Sample(LiveSample {
                host: "local".into(),
                start_s,
                end_s: start_s + 1.0,
                of: 1,
                values: vec![value],
                left_out: 0,
            }));
        }
        let past = record.past();
        assert_eq!(thinning(&past).samples_each, 1);
        assert_eq!(
            past.iter()
                .filter(|frame| matches!(frame, LiveFrame::Sample(_)))
                .count(),
            2 * SAMPLES_MAX
        );
    }

    /// Before the first experiment, the record is empty; each experiment starts with an empty record.
    #[test]
    fn another_experiment_starts_with_an_empty_record() {
        let mut record = LiveRecord::new(None);
        assert_eq!(
            record.past(),
            [LiveFrame::Past(thinning(&record.past())), LiveFrame::Now]
        );
        let plan = |name: &str| LivePlan {
            experiment: name.into(),
            ..LivePlan::default()
        };
        record.take(&LiveFrame::Plan(plan("first")));
        record.take(&run(0));
        record.take(&stretch(0));
        record.take(&LiveFrame::Ends(LiveEnd::default()));
        assert_eq!(record.past().len(), 6);
        record.take(&LiveFrame::Plan(plan("second")));
        let past = record.past();
        assert_eq!(
            (past.len(), &past[0]),
            (3, &LiveFrame::Plan(plan("second")))
        );
    }

    /// Each run, and each trial of a search, starts a new series.
    #[test]
    fn each_run_and_trial_starts_a_new_series() {
        let mut record = LiveRecord::new(LivePlan::default());
        record.take(&run(0));
        record.take(&LiveFrame::RunStarts {
            at_s: 0.0,
            trial: 0,
        });
        record.take(&stretch(0));
        record.take(&sample("local", 0.0, 1.0));
        let count = |record: &LiveRecord| {
            let past = record.past();
            let of = |is: fn(&LiveFrame) -> bool| past.iter().filter(|frame| is(frame)).count();
            (
                of(|frame| matches!(frame, LiveFrame::Stretch(_))),
                of(|frame| matches!(frame, LiveFrame::Sample(_))),
            )
        };
        assert_eq!(count(&record), (1, 1));
        record.take(&LiveFrame::RunStarts {
            at_s: 1.0,
            trial: 1,
        });
        assert_eq!(count(&record), (0, 1));
        record.take(&stretch(1));
        record.take(&run(1));
        assert_eq!(count(&record), (0, 0));
    }
}
