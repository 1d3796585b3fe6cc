//! A host's part of a run, from its assignment until nothing of it is left on the host: forwards its workers' reports,
//! with times converted to our clock. Driven by the host's thread ([`super::host_thread`]).
//!
//! The rule: the owner of a run always learns that it has ended, even if the host is lost: each worker ends once, and
//! so does the run.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use brunt_core::Nanos;
use brunt_load::LoadError;
use brunt_load::collect::WorkerMessage;
use brunt_load::load::MessageSender;
use brunt_protocol::Assignment;
use brunt_result::choice::{EngineChoice, PageCache, RingChoice};
use brunt_result::hosts::{HostFigures, HostLoss};
use brunt_result::{Figures, Interval, OpKind, Outcome, Stopped};

use super::dates::{Dates, dated_interval, dated_outcome};
use super::error::FleetError;
use super::journals::{FetchedJournals, WantedJournals};
use super::lane::Lane;
use super::members::RunMembers;
use super::record::FetchedRecord;
use crate::clock::ClockEstimate;
use crate::host_news::HostNews;
use crate::remote::RemoteHost;
use crate::run_rules::HostPart;

/// This long after a start, a few clock rounds have been completed.
const AFTER_START: Duration = Duration::from_secs(2);
/// A host's part of a run.
#[derive(Debug)]
pub(super) struct HostTask {
    /// The assignment sent to the host.
    pub assignment: Assignment,
    /// The workers of this part, and what they do.
    pub part: HostPart,
    /// The load's kind.
    pub kind: &'static str,
    /// Where the workers' journals go, if there are any.
    pub journals: Option<WantedJournals>,
    /// Where the workers' messages go, numbered across all workers.
    pub inbox: MessageSender,
    /// Notified once, when nothing of the run is left on the host.
    pub over: SyncSender<HostEnd>,
    /// The lane of the load's job, among jobs that run concurrently.
    pub lane: Lane,
    /// All members of the run.
    pub members: Arc<RunMembers>,
}

/// The outcome of a host's part of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HostEnd {
    /// Remarks for the user.
    pub notes: Vec<String>,
    /// Errors of the host's devices.
    pub troubles: Vec<String>,
    /// The host's figures, and how accurate its times are.
    pub figures: HostFigures,
    /// The engine that processed the host's requests.
    pub engine: Option<EngineChoice>,
    /// The ring mode, if it was measured.
    pub ring: Option<RingChoice>,
    /// A digest of the trace that the host replays.
    pub trace: Option<String>,
    /// The host's part of a replay.
    pub replay: Option<String>,
    /// The page cache's share, if the page cache was used.
    pub page_cache: Option<PageCache>,
    /// Bytes that the host's workers read.
    pub read_bytes: u64,
    /// Whether the host was ready to start.
    pub ready: bool,
}

/// A run that has not ended on this host.
pub(super) struct RunningTask {
    /// `None` once all workers have ended, because the collector waits until the last sender is dropped.
    inbox: Option<MessageSender>,
    kind: &'static str,
    over: SyncSender<HostEnd>,
    /// Workers that have not ended, with what they have reported.
    pub unfinished: Vec<Option<Reported>>,
    /// Whether all workers are waiting for the start.
    ready: bool,
    /// The start time, if one was given.
    pub start: Option<Nanos>,
    /// An estimate of the host's clock at the start, once clock rounds have followed it.
    pub at_start: Option<ClockEstimate>,
    /// A start time not yet sent to the host.
    pub starts: Option<Nanos>,
    lane: Lane,
    members: Arc<RunMembers>,
    /// The request record, if the load keeps one.
    pub record: Option<FetchedRecord>,
    /// The workers' journals, if they keep any.
    pub journals: Option<FetchedJournals>,
    /// Requests completed by the workers that have ended.
    completed: u64,
    /// Whether all workers have ended and the errors of their devices are known.
    pub done: bool,
    /// The deadline for ending the run, once it is being released.
    pub release: Option<Nanos>,
    /// Whether the release was sent to the host.
    pub released: bool,
    pub end: HostEnd,
}

/// What a worker has reported so far, which is all that is known about it if its host is lost.
#[derive(Clone, Debug, Default)]
pub(super) struct Reported {
    figures: Figures,
    /// From the start of the worker's first interval to the end of its last.
    time: Option<(Nanos, Nanos)>,
}

impl Reported {
    fn add(&mut self, interval: &Interval) {
        self.figures.merge(&interval.figures);
        let start = self.time.map_or(interval.start, |(start, _)| start);
        self.time = Some((start, interval.end));
    }

    /// The worker's outcome, as if it had ended with its last reported interval.
    fn outcome(self, stopped: Stopped) -> Outcome {
        let Some((start, end)) = self.time else {
            return Outcome {
                stopped,
                ..Outcome::interrupted()
            };
        };
        let mut outcome = Outcome {
            figures: self.figures,
            start,
            end,
            stopped,
            ..Outcome::interrupted()
        };
        outcome.rate_over_all_of_the_time();
        outcome
    }
}

impl RunningTask {
    /// The task's state before its host is ready, and what the host needs to prepare it.
    pub fn new(host: &str, task: HostTask) -> (RunningTask, Assignment, HostPart) {
        let HostTask {
            assignment,
            part,
            kind,
            journals,
            inbox,
            over,
            lane,
            members,
        } = task;
        let workers = part.workers;
        let figures = HostFigures {
            name: host.to_string(),
            workers,
            ..HostFigures::default()
        };
        let running = RunningTask {
            inbox: Some(inbox),
            kind,
            over,
            unfinished: vec![Some(Reported::default()); workers as usize],
            ready: false,
            start: None,
            at_start: None,
            starts: None,
            lane,
            members,
            record: part.records.then(FetchedRecord::default),
            journals: journals.map(FetchedJournals::new),
            completed: 0,
            done: false,
            release: None,
            released: false,
            end: HostEnd {
                figures,
                ..HostEnd::default()
            },
        };
        (running, assignment, part)
    }

    /// Handles a message about the run; `true` once nothing of the run is left on the host.
    pub fn take(&mut self, news: HostNews, estimate: Option<ClockEstimate>, dates: &Dates) -> bool {
        match (news, estimate) {
            (HostNews::Ready(ready), _) => {
                let engine = ready.engine;
                self.end.figures.engine = engine.as_ref().map(|choice| choice.engine);
                (self.end.engine, self.end.ring) = (engine, ready.ring);
                (self.end.notes, self.end.trace) = (ready.notes, ready.trace);
                self.end.ready = true;
                self.report_ready();
            }
            (HostNews::Interval(worker, interval), Some(estimate)) => {
                let interval = dated_interval(interval, &estimate);
                if let Some(reported) = &mut self.unfinished[worker as usize] {
                    reported.add(&interval);
                }
                self.send(WorkerMessage::Interval(worker, interval));
            }
            (HostNews::Ended(worker, outcome), Some(estimate)) => {
                self.completed += outcome.figures.completed();
                self.ended(worker as usize, Ok(dated_outcome(*outcome, &estimate)));
            }
            (HostNews::Recorded(end), _) => {
                if let Some(record) = &mut self.record {
                    record.announce(end);
                }
                self.release_collector();
            }
            (HostNews::Requests(mut requests), Some(estimate)) => {
                dates.requests(&mut requests, estimate);
                if let Some(record) = &mut self.record {
                    record.take(requests.len() as u64);
                }
                self.send(WorkerMessage::Requests(0, requests));
                self.release_collector();
            }
            (HostNews::Journals(lengths), _) => {
                if let Some(journals) = &mut self.journals {
                    journals.announce(lengths);
                }
            }
            (HostNews::Journal(worker, bytes), _) => {
                if let Some(journals) = &mut self.journals {
                    journals.take(worker, &bytes);
                }
                self.release_collector();
            }
            (HostNews::Done(troubles, page_cache, replay), _) => {
                (self.done, self.end.page_cache, self.end.replay) = (true, page_cache, replay);
                self.end.troubles.extend(troubles);
            }
            (HostNews::Note(note), _) => self.end.troubles.push(note),
            (HostNews::Released, _) => return true,
            _ => {}
        }
        false
    }

    /// Reports that all workers are waiting for the start.
    fn report_ready(&mut self) {
        self.ready = true;
        self.unfinished
            .iter()
            .for_each(|_| self.send(WorkerMessage::Ready));
    }

    /// Saves an estimate of the host's clock at the start before the rounds around it are discarded.
    pub fn save_start_estimate(&mut self, host: &RemoteHost, now: Nanos) {
        if let Some(start) = self
            .start
            .filter(|start| self.at_start.is_none() && start.after(AFTER_START) <= now)
        {
            self.at_start = host.monotonic().estimate(start);
        }
    }

    /// Records when a worker started; `theirs` is on the host's clock, and `estimate` is for that time.
    pub fn began(&mut self, theirs: Nanos, estimate: &ClockEstimate) {
        let Some(start) = self.start else { return };
        let began = estimate.to_ours(theirs);
        let after_us = (i128::from(began.0) - i128::from(start.0)) as f64 / 1e3;
        let figures = &mut self.end.figures;
        if figures
            .began_us
            .is_some_and(|earliest| earliest <= after_us)
        {
            return;
        }
        figures.began_us = Some(after_us);
        figures.clock_error_us = Some(estimate.offset.error().as_nanos() as f64 / 1e3);
        figures.clock_ahead_ns = Some([estimate.offset.low, estimate.offset.high]);
    }

    /// Ends the remaining workers when the host is lost. If the run has begun or continues without them, they end
    /// with what they had reported, otherwise with an error.
    pub fn fail(&mut self, error: FleetError, survives_loss: bool, now: Nanos) {
        // A rejected request is not a loss: the experiment or the host's limits are wrong.
        let survives_loss = survives_loss
            && !error.is_refusal()
            && self.members.lose(&self.end.figures.name, self.lane.0);
        let after_s = self
            .start
            .map_or(0.0, |start| now.since(start).as_secs_f64());
        self.end.figures.lost = Some(HostLoss {
            after_s,
            why: error.to_string(),
        });
        let stopped = if survives_loss {
            Stopped::Done
        } else {
            Stopped::HostLost
        };
        let mut why = (!survives_loss && self.start.is_none()).then(|| LoadError::Own {
            kind: self.kind,
            source: Box::new(error),
        });
        let is_error = why.is_some();
        if !is_error && !self.ready {
            self.report_ready();
        }
        for worker in 0..self.unfinished.len() {
            let Some(reported) = self.unfinished[worker].clone() else {
                continue;
            };
            let result = match is_error {
                true => Err(why.take().unwrap_or(LoadError::Interrupted)),
                false => Ok(reported.outcome(stopped)),
            };
            if let Ok(outcome) = &result {
                self.completed += outcome.figures.completed();
            }
            self.ended(worker, result);
        }
        // No more of the request record will arrive.
        let lost = self.end.figures.lost.as_ref().map(|lost| lost.why.clone());
        self.count_lost(lost.as_deref());
        self.count_journals(lost.as_deref());
        self.inbox = None;
    }

    /// Counts the missing journals, and leaves a note in place of each. A run that never began has nothing to verify.
    fn count_journals(&mut self, lost: Option<&str>) {
        let Some(journals) = self.journals.take().filter(|_| self.start.is_some()) else {
            return;
        };
        self.end.figures.journals_lost = journals.conclude(&self.end.figures.name, lost);
    }

    /// Counts the missing requests among those recorded.
    fn count_lost(&mut self, lost: Option<&str>) {
        let Some(record) = self.record.take().filter(|_| self.start.is_some()) else {
            return;
        };
        self.end.figures.requests_lost = record.lost(self.completed, lost);
    }

    /// Releases the collector once all workers have ended and the record and journals are complete.
    fn release_collector(&mut self) {
        let whole = self.record.as_ref().is_none_or(FetchedRecord::is_whole)
            && self.journals.as_ref().is_none_or(FetchedJournals::is_over);
        if whole && self.unfinished.iter().all(Option::is_none) {
            self.inbox = None;
            self.count_lost(None);
            self.count_journals(None);
        }
    }

    fn send(&self, message: WorkerMessage<LoadError>) {
        if let Some(inbox) = &self.inbox {
            inbox.send(message);
        }
    }

    fn ended(&mut self, worker: usize, result: Result<Outcome, LoadError>) {
        self.unfinished[worker] = None;
        if let Ok(outcome) = &result {
            let figures = &mut self.end.figures;
            figures.add(outcome);
            figures.failed += outcome.figures.counts.errors();
            if let Some(start) = self.start.filter(|_| outcome.end > outcome.start) {
                let after_s = outcome.end.since(start).as_secs_f64();
                figures.ended_s = Some(figures.ended_s.map_or(after_s, |last| last.max(after_s)));
            }
            if let (None, Some(error)) = (&figures.first_error, &outcome.first_error) {
                figures.first_error = Some(error.to_string());
            }
            self.end.read_bytes += outcome
                .figures
                .op(OpKind::Read)
                .map_or(0, |reads| reads.bytes);
        }
        self.send(WorkerMessage::Done(worker as u32, Box::new(result)));
        self.release_collector();
    }

    /// Reports that the run is over. The receiver may already be gone.
    pub fn conclude(mut self) {
        // If the run ended early, `release_collector` was never reached.
        self.count_journals(None);
        let _ = self.over.try_send(self.end);
    }
}
