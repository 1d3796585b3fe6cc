//! Turns events into frames. [`Witness`] receives events where they happen and returns at once; [`Feed`] processes
//! them on a separate thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use brunt_core::{Clock, Nanos};
use brunt_study::observe::{Event, FaultRecord, JobEvent, Observer, RunInfo, Sample};

use super::frame::{
    LiveEnd, LiveEnding, LiveFault, LiveFrame, LiveRun, LiveRunEnd, LiveSample, LiveValue, seconds,
};
use super::stretch::OpenStretch;
use super::viewers::Viewers;

/// Maximum number of values sent per sample; a machine with a hundred disks exceeds it.
const VALUES_MAX: usize = 400;

/// Input of the feed.
pub enum FeedMessage {
    /// An event of the experiment.
    Event(Event),
    /// A line that was printed on the terminal.
    Note(Nanos, String),
    /// The experiment has ended, and its results are written.
    Closes(LiveEnding),
}

/// Passes events to the feed, and counts those that don't fit.
pub struct Witness {
    feed: SyncSender<FeedMessage>,
    missed: Arc<AtomicU64>,
}

impl Witness {
    /// Sends to this channel.
    pub fn new(feed: SyncSender<FeedMessage>, missed: Arc<AtomicU64>) -> Witness {
        Witness { feed, missed }
    }

    /// Passes on a line that was printed on the terminal.
    pub fn note(&self, text: &str) {
        self.say(FeedMessage::Note(Clock::Monotonic.now(), text.to_string()));
    }

    fn say(&self, said: FeedMessage) {
        match self.feed.try_send(said) {
            Err(TrySendError::Full(_)) => {
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
            // After the end, the feed no longer listens.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
        }
    }
}

impl Observer for Witness {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            // Records of single requests are needed only for tables; a job's intervals are included in those of all
            // jobs.
            Event::Begins(_) | Event::Requests(_) | Event::Ends(_) => {}
            Event::Job(_, JobEvent::Interval(_) | JobEvent::Requests(_)) => {}
            _ => self.say(FeedMessage::Event(event.clone())),
        }
        Ok(())
    }
}

/// Creates frames from events and sends them to the viewers.
pub struct Feed {
    viewers: Arc<Viewers>,
    missed: Arc<AtomicU64>,
    missed_told: u64,
    zero: Nanos,
    open: OpenStretch,
    /// When the last interval ended.
    last: Nanos,
    /// Number of starts within the current run.
    trials: u32,
    folder: String,
}

impl Feed {
    /// Times are relative to `zero`; results go to `folder`.
    pub fn new(viewers: Arc<Viewers>, missed: Arc<AtomicU64>, zero: Nanos, folder: String) -> Feed {
        let open = OpenStretch::default();
        Feed {
            viewers,
            missed,
            missed_told: 0,
            zero,
            open,
            last: zero,
            trials: 0,
            folder,
        }
    }

    /// Processes a message; returns whether more can come.
    pub fn take(&mut self, said: FeedMessage) -> bool {
        let missed = self.missed.load(Ordering::Relaxed);
        if missed > self.missed_told {
            self.missed_told = missed;
            self.viewers.publish(&LiveFrame::Missed { events: missed });
        }
        match said {
            FeedMessage::Event(event) => self.event(&event),
            FeedMessage::Note(at, text) => {
                self.viewers.publish(&LiveFrame::Note {
                    at_s: seconds(at, self.zero),
                    text,
                });
            }
            FeedMessage::Closes(ending) => {
                let losses = self.viewers.losses(missed);
                self.viewers.publish(&LiveFrame::Ends(LiveEnd {
                    trouble: ending.trouble,
                    folder: self.folder.clone(),
                    report: ending.report,
                    viewers: losses.viewers,
                    frames_lost: losses.frames,
                    events_missed: losses.events,
                }));
                return false;
            }
        }
        true
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::RunBegins(info) => {
                self.open.clear();
                self.trials = 0;
                self.viewers.publish(&LiveFrame::RunBegins(self.run(info)));
            }
            Event::RunStarts(at) => {
                self.open.clear();
                let at_s = seconds(*at, self.zero);
                self.viewers.publish(&LiveFrame::RunStarts {
                    at_s,
                    trial: self.trials,
                });
                self.trials += 1;
            }
            Event::Interval(interval) => {
                self.last = interval.end;
                if let Some(stretch) = self.open.interval(interval, self.zero) {
                    self.viewers.publish(&LiveFrame::Stretch(stretch));
                }
            }
            Event::Sample(sample) => self
                .viewers
                .publish(&LiveFrame::Sample(self.sample(sample))),
            Event::Fault(record) => self.viewers.publish(&LiveFrame::Fault(self.fault(record))),
            Event::RunEnds(info, run, _) => {
                if let Some(stretch) = self.open.close(self.last, self.zero) {
                    self.viewers.publish(&LiveFrame::Stretch(stretch));
                }
                self.viewers
                    .publish(&LiveFrame::RunEnds(LiveRunEnd::of(info, run, false)));
            }
            Event::Job(_, JobEvent::RunEnds(info, run, _)) => {
                self.viewers
                    .publish(&LiveFrame::RunEnds(LiveRunEnd::of(info, run, true)));
            }
            Event::Begins(_) | Event::Requests(_) | Event::Job(..) | Event::Ends(_) => {}
        }
    }

    fn run(&self, info: &RunInfo) -> LiveRun {
        LiveRun {
            order: info.order,
            runs: info.runs,
            point: info.point,
            label: info.label.clone(),
            repetition: info.repetition,
            at_s: seconds(info.ready, self.zero),
        }
    }

    fn sample(&self, sample: &Sample) -> LiveSample {
        let values = sample.values.iter().take(VALUES_MAX);
        LiveSample {
            host: sample.host.to_string(),
            start_s: seconds(sample.start, self.zero),
            end_s: seconds(sample.end, self.zero),
            of: 1,
            values: values
                .map(|value| {
                    let (probe, instance) = (value.probe.to_string(), value.instance.to_string());
                    LiveValue(probe, instance, value.metric.to_string(), value.value)
                })
                .collect(),
            left_out: sample.values.len().saturating_sub(VALUES_MAX) as u32,
        }
    }

    fn fault(&self, record: &FaultRecord) -> LiveFault {
        LiveFault {
            index: record.index,
            name: record.name.clone(),
            kind: record.kind.to_string(),
            place: record.place.clone(),
            what: record.what.clone(),
            start_s: seconds(record.start, self.zero),
            shown_by: record.shown_by.clone(),
            end_s: record.end.map(|end| seconds(end, self.zero)),
            gone_by: record.gone_by.clone(),
        }
    }
}
