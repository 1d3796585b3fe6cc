//! The frames that viewers receive: owned values, encoded as JSON, one per server-sent event. [`LiveFrame::encode`]
//! produces the bytes. `web/src/lib/frames.ts` has the same types for the page, and a test compares the names of both.
//!
//! The rule: times are seconds since the page's start, on the run's clock; figures that also appear in the report are
//! the same values, not computed a second time.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use brunt_core::Nanos;
use brunt_result::OpKind;
use brunt_result::summary::{Latencies, RunSummary};
use brunt_result::{RequestStatus, Stopped};
use brunt_study::experiment::{Experiment, Plan};
use serde::{Deserialize, Serialize};

use super::stretch::heat_bounds;

/// Maximum number of runs and points named in a plan; for larger experiments, only their number is sent.
const NAMED_MAX: usize = 2000;

/// A message to viewers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "kebab-case")]
pub enum LiveFrame {
    /// The first frame for each viewer.
    Plan(LivePlan),
    /// How the frames up to [`LiveFrame::Now`] were thinned.
    Past(LiveThinning),
    /// The frames after this one are live.
    Now,
    /// A run is being set up.
    RunBegins(LiveRun),
    /// A run's workers start; a rate search starts them several times.
    RunStarts {
        /// When.
        at_s: f64,
        /// Number of times that the workers started before in this run.
        trial: u32,
    },
    /// Figures of a segment of the run.
    Stretch(LiveStretch),
    /// A sample of a host's state.
    Sample(LiveSample),
    /// A fault began or ended.
    Fault(LiveFault),
    /// A run, or one of its concurrent jobs, has ended.
    RunEnds(LiveRunEnd),
    /// A line of the terminal.
    Note {
        /// When.
        at_s: f64,
        /// The text.
        text: String,
    },
    /// Frames were dropped here because this viewer was too slow.
    Lost {
        /// Number of frames that were dropped.
        frames: u64,
    },
    /// Events were dropped for all viewers because the page's thread fell behind.
    Missed {
        /// Number of events dropped since the start.
        events: u64,
    },
    /// The last frame.
    Ends(LiveEnd),
}

/// The planned experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LivePlan {
    /// The experiment's name.
    pub experiment: String,
    /// Description of the experiment.
    pub description: String,
    /// Version of the program.
    pub brunt: String,
    /// Folder to which results go.
    pub folder: String,
    /// The zero of all other times, in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// Number of planned runs.
    pub runs: u32,
    /// The point of each run, in run order; only the first ones if there are many.
    pub order: Vec<u32>,
    /// The points; only the first ones if there are many.
    pub points: Vec<LivePoint>,
    /// Faults of the experiment: name, kind and place of each.
    pub faults: Vec<[String; 3]>,
    /// Upper bounds of the heat map's rows, in microseconds; one more row lies above the last.
    pub heat_bounds_us: Vec<f64>,
}

/// A point of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LivePoint {
    /// Target, workload and the value on each axis.
    pub label: String,
    /// Duration of a run, if its load specifies it.
    pub stated_s: Option<f64>,
}

/// How the history so far was thinned for a viewer that joined late.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveThinning {
    /// Number of segments of the current run that were merged into one; 1 if none were.
    pub stretches_each: u32,
    /// Number of samples of each host that were merged into one.
    pub samples_each: u32,
    /// Number of frames for ended runs that are left out, the oldest first.
    pub runs_left_out: u64,
    /// Number of terminal lines that are left out, the oldest first.
    pub notes_left_out: u64,
    /// Number of samples that are left out because there are too many hosts.
    pub samples_left_out: u64,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveRun {
    /// Position of the run among all runs, from 0.
    pub order: u32,
    /// Number of runs.
    pub runs: u32,
    /// Index of the run's point.
    pub point: u32,
    /// Label of the run's point.
    pub label: String,
    /// Repetition of the point, from 0.
    pub repetition: u32,
    /// When the run's setup began.
    pub at_s: f64,
}

/// Figures of a segment of a run: at least a quarter of a second, or one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveStretch {
    /// When the segment began.
    pub start_s: f64,
    /// When the segment ended.
    pub end_s: f64,
    /// Number of segments that were merged into this one. Rates, counts, means and the heat map stay exact;
    /// percentiles are the highest of the merged percentiles, and the minimum is the lowest.
    pub of: u32,
    /// Requests that completed in time to count in the rate.
    pub completed: u64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Mean requests in flight over time, including those that have not completed.
    pub depth: f64,
    /// Response times of all kinds; `None` if nothing completed.
    pub response: Option<Latencies>,
    /// Figures of each kind of operation.
    pub kinds: Vec<LiveKind>,
    /// Unsuccessful requests by outcome.
    pub losses: BTreeMap<String, u64>,
    /// Attempts after the first.
    pub retries: u64,
    /// Requests that completed after the end of measuring.
    pub late: u64,
    /// Non-empty rows of the heat map: row and count.
    pub heat: Vec<(u16, u64)>,
}

/// Figures of one kind of operation in a segment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveKind {
    /// The operation.
    pub op: OpKind,
    /// Completed requests.
    pub completed: u64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Mean response time.
    pub mean_us: Option<f64>,
}

/// A host's state over an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveSample {
    /// The host's name.
    pub host: String,
    /// When the interval began.
    pub start_s: f64,
    /// When it ended.
    pub end_s: f64,
    /// Number of samples that were merged into this one: the values are means over their time.
    pub of: u32,
    /// The values.
    pub values: Vec<LiveValue>,
    /// Number of values that are left out because there are too many.
    pub left_out: u32,
}

/// What a sample's figures describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LiveSubject {
    /// The host.
    Machine,
    /// Processes on the host.
    Processes,
    /// Components of devices used by processes on the host.
    Devices,
}

impl LiveSample {
    /// The series that the sample belongs to: that of its host, of the host's processes, or of its devices. The
    /// series of a host have samples for about the same times, so merging samples of different series would give
    /// wrong means.
    pub fn series(&self) -> (String, LiveSubject) {
        let all = |probe: &str| self.values.iter().all(|value| value.0 == probe);
        let subject = match () {
            () if all("process") => LiveSubject::Processes,
            () if all("device") => LiveSubject::Devices,
            () => LiveSubject::Machine,
        };
        (self.host.clone(), subject)
    }
}

/// One figure of a host, such as `cpu`, `cpu0`, `busy_share` and its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveValue(pub String, pub String, pub String, pub f64);

/// A fault and its progress so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveFault {
    /// Index in the experiment's list.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: String,
    /// Name of the target, link or host.
    pub place: String,
    /// The fault's effect, as text.
    pub what: String,
    /// When the fault was injected.
    pub start_s: f64,
    /// Evidence that the fault was in effect.
    pub shown_by: String,
    /// When the fault was removed; `None` while it is active.
    pub end_s: Option<f64>,
    /// Evidence that the fault had ended.
    pub gone_by: String,
}

/// A completed run; its figures are those of `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveRunEnd {
    /// Position of the run among all runs, from 0.
    pub order: u32,
    /// Number of runs.
    pub runs: u32,
    /// Label of the run's point.
    pub label: String,
    /// Repetition of the point, from 0.
    pub repetition: u32,
    /// Whether the run is one of the concurrent jobs of a run.
    pub is_job: bool,
    /// Why the run ended.
    pub stopped: Stopped,
    /// Whether the run took place as planned.
    pub complete: bool,
    /// Measured time.
    pub measured_s: f64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Response times of all kinds.
    pub response: Option<Latencies>,
    /// Requests that did not succeed.
    pub losses: BTreeMap<String, u64>,
    /// First error.
    pub first_error: Option<String>,
    /// Reasons to doubt the figures.
    pub doubts: Vec<String>,
}

/// How the experiment ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveEnd {
    /// Why the experiment ended early, if it did.
    pub trouble: Option<String>,
    /// Folder of the results.
    pub folder: String,
    /// The results' report page, if there is one.
    pub report: Option<String>,
    /// Total number of viewers.
    pub viewers: u64,
    /// Number of frames that slow viewers missed.
    pub frames_lost: u64,
    /// Number of events that were dropped for all viewers.
    pub events_missed: u64,
}

/// How an experiment ended, for viewers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveEnding {
    /// Why the experiment ended early, if it did.
    pub trouble: Option<String>,
    /// The report page, if there is one.
    pub report: Option<String>,
}

/// Frames and events that viewers lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveLosses {
    /// Total number of viewers.
    pub viewers: u64,
    /// Number of frames that slow viewers missed.
    pub frames: u64,
    /// Number of events that were dropped for all viewers because the page's thread fell behind.
    pub events: u64,
}

impl LiveFrame {
    /// Encodes the frame as one server-sent event.
    ///
    /// # Panics
    /// Never: a frame is plain data.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = b"data: ".to_vec();
        serde_json::to_writer(&mut bytes, self).expect("a frame is plain data");
        // The JSON is on one line: line breaks in texts are escaped.
        bytes.extend_from_slice(b"\n\n");
        bytes
    }

    /// Decodes one line of a server-sent event, as produced by [`LiveFrame::encode`]; `None` if the line has no frame.
    ///
    /// # Errors
    /// The line's data is not a valid frame.
    pub fn decode(line: &str) -> Option<Result<LiveFrame, serde_json::Error>> {
        line.strip_prefix("data: ").map(serde_json::from_str)
    }

    /// Whether a viewer without this frame would display something wrong; such frames are the last to be dropped.
    pub fn is_key(&self) -> bool {
        !matches!(
            self,
            LiveFrame::Stretch(_) | LiveFrame::Sample(_) | LiveFrame::Note { .. }
        )
    }
}

impl LivePlan {
    /// The plan of a single run without an experiment. Times are relative to now.
    pub fn alone(name: &str, label: &str, brunt: &str) -> LivePlan {
        LivePlan {
            experiment: name.to_string(),
            brunt: brunt.to_string(),
            began_unix_ms: now_unix_ms(),
            runs: 1,
            order: vec![0],
            points: vec![LivePoint {
                label: label.to_string(),
                stated_s: None,
            }],
            heat_bounds_us: heat_bounds().map(|nanos| nanos as f64 / 1e3).collect(),
            ..LivePlan::default()
        }
    }

    /// The plan of an experiment whose results go to `folder`. Times are relative to now.
    pub fn of(experiment: &Experiment, plan: &Plan, brunt: &str, folder: &Path) -> LivePlan {
        // Each job of a run has a separate number, after the number of the whole run.
        let order = plan
            .runs
            .iter()
            .flat_map(|(point, _)| std::iter::once(*point).chain(plan.jobs_of(*point)));
        let order: Vec<u32> = order.map(|point| point as u32).collect();
        let points = plan.points.iter().take(NAMED_MAX).map(|point| LivePoint {
            label: point.label.clone(),
            stated_s: point
                .time()
                .filter(|_| point.part_of.is_none())
                .map(|time| time.as_secs_f64()),
        });
        let faults = experiment
            .fault
            .iter()
            .map(|fault| [fault.label(), fault.kind_name().to_string(), fault.place()]);
        LivePlan {
            experiment: experiment.name.clone(),
            description: experiment.description.clone(),
            brunt: brunt.to_string(),
            folder: folder.display().to_string(),
            began_unix_ms: now_unix_ms(),
            runs: order.len() as u32,
            order: order.into_iter().take(NAMED_MAX).collect(),
            points: points.collect(),
            faults: faults.collect(),
            heat_bounds_us: heat_bounds().map(|nanos| nanos as f64 / 1e3).collect(),
        }
    }
}

impl LiveRunEnd {
    /// The frame for a run's summary.
    pub fn of(info: &brunt_result::event::RunInfo, run: &RunSummary, is_job: bool) -> LiveRunEnd {
        LiveRunEnd {
            order: info.order,
            runs: info.runs,
            label: info.label.clone(),
            repetition: info.repetition,
            is_job,
            stopped: run.stopped,
            complete: run.is_complete(),
            measured_s: run.measured_s,
            requests_per_second: run.requests_per_second,
            bytes_per_second: run.bytes_per_second,
            response: run.response,
            losses: run.losses.clone(),
            first_error: run.first_error.clone(),
            doubts: run.doubts.clone(),
        }
    }
}

fn now_unix_ms() -> u64 {
    let since_1970 = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    since_1970.as_millis() as u64
}

/// Seconds since `zero`, with microsecond resolution; negative before it.
pub(super) fn seconds(at: Nanos, zero: Nanos) -> f64 {
    let micros = (i128::from(at.0) - i128::from(zero.0)) / 1000;
    micros as f64 / 1e6
}

/// Unsuccessful requests by outcome.
pub(super) fn losses(counts: &brunt_result::Counts) -> BTreeMap<String, u64> {
    let bad = RequestStatus::ALL
        .into_iter()
        .filter(|status| *status != RequestStatus::Good);
    let counted = bad.map(|status| (status.name().to_string(), counts.of(status)));
    counted.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All names in an object and in the objects nested in it.
    fn names(value: &serde_json::Value, found: &mut std::collections::BTreeSet<String>) {
        match value {
            serde_json::Value::Object(map) => map.iter().for_each(|(name, value)| {
                found.insert(name.clone());
                names(value, found);
            }),
            serde_json::Value::Array(list) => list.iter().for_each(|value| names(value, found)),
            _ => {}
        }
    }

    fn one_of_each() -> Vec<LiveFrame> {
        let at = Latencies {
            min_us: 1.0,
            mean_us: 1.0,
            p50_us: 1.0,
            p90_us: 1.0,
            p99_us: 1.0,
            p99_9_us: 1.0,
            p99_99_us: 1.0,
            max_us: 1.0,
        };
        let kind = LiveKind {
            op: OpKind::Read,
            completed: 1,
            requests_per_second: 1.0,
            mean_us: None,
        };
        let point = LivePoint {
            label: "disk w".into(),
            stated_s: None,
        };
        let value = LiveValue("cpu".into(), String::new(), "busy_share".into(), 0.5);
        let text = String::new;
        vec![
            LiveFrame::Plan(LivePlan {
                points: vec![point],
                ..LivePlan::default()
            }),
            LiveFrame::Past(LiveThinning::default()),
            LiveFrame::Now,
            LiveFrame::RunBegins(LiveRun {
                order: 0,
                runs: 1,
                point: 0,
                label: text(),
                repetition: 0,
                at_s: 0.0,
            }),
            LiveFrame::RunStarts {
                at_s: 0.0,
                trial: 0,
            },
            LiveFrame::Stretch(LiveStretch {
                response: Some(at),
                kinds: vec![kind],
                ..LiveStretch::default()
            }),
            LiveFrame::Sample(LiveSample {
                host: text(),
                start_s: 0.0,
                end_s: 1.0,
                of: 1,
                values: vec![value],
                left_out: 0,
            }),
            LiveFrame::Fault(LiveFault {
                index: 0,
                name: text(),
                kind: text(),
                place: text(),
                what: text(),
                start_s: 0.0,
                shown_by: text(),
                end_s: None,
                gone_by: text(),
            }),
            LiveFrame::RunEnds(LiveRunEnd {
                order: 0,
                runs: 1,
                label: text(),
                repetition: 0,
                is_job: false,
                stopped: Stopped::Done,
                complete: true,
                measured_s: 1.0,
                requests_per_second: 1.0,
                bytes_per_second: 1.0,
                response: None,
                losses: BTreeMap::new(),
                first_error: None,
                doubts: Vec::new(),
            }),
            LiveFrame::Note {
                at_s: 0.0,
                text: text(),
            },
            LiveFrame::Lost { frames: 1 },
            LiveFrame::Missed { events: 1 },
            LiveFrame::Ends(LiveEnd::default()),
        ]
    }

    /// If the page used another name, its value would be `undefined` without an error.
    #[test]
    fn the_page_knows_every_name() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/src/lib/frames.ts");
        let source = std::fs::read_to_string(path).expect("web/src/lib/frames.ts");
        for frame in one_of_each() {
            let value = serde_json::to_value(&frame).expect("JSON");
            let tag = value["frame"].as_str().expect("a tag");
            assert!(
                source.contains(&format!("frame: '{tag}'")),
                "{tag} is missing in {path}"
            );
            let mut found = std::collections::BTreeSet::new();
            names(&value, &mut found);
            for name in found {
                assert!(
                    source.contains(&format!("{name}: ")),
                    "{name} of {tag} is missing in {path}"
                );
            }
        }
        // A name on the page that is never sent is a mistake, too.
        let sent: Vec<String> = one_of_each()
            .iter()
            .map(|frame| String::from_utf8(frame.encode()).expect("text"))
            .collect();
        let fields = source
            .lines()
            .filter_map(|line| line.strip_prefix("  ")?.split_once(':'));
        let fields = fields.map(|(name, _)| name).filter(|name| {
            name.chars()
                .all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())
        });
        for name in fields {
            assert!(
                sent.iter()
                    .any(|text| text.contains(&format!("\"{name}\":"))),
                "nobody sends {name}"
            );
        }
    }

    /// A run's process can send its frames to the server that started it without losing precision.
    #[test]
    fn a_decoded_frame_equals_the_sent_one() {
        for frame in one_of_each() {
            let text = String::from_utf8(frame.encode()).expect("text");
            let read = LiveFrame::decode(text.lines().next().expect("a line")).expect("a frame");
            assert_eq!(read.expect("it is one"), frame);
        }
        assert!(LiveFrame::decode(": nothing new").is_none());
        assert!(LiveFrame::decode("data: {}").is_some_and(|read| read.is_err()));
    }

    #[test]
    fn seconds_are_counted_from_zero() {
        assert_eq!(seconds(Nanos(1_500_000_000), Nanos(1_000_000_000)), 0.5);
        assert_eq!(seconds(Nanos(1_000_000_000), Nanos(3_000_000_000)), -2.0);
    }
}
