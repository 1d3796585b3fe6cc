//! The described workload as a [`Sequence`]: the generator's requests at the times given by the schedule or the
//! closed loop. Each worker has its own sequence.
//!
//! The rule: requests depend only on the seed, never on when they are taken or how they end.

use std::time::Duration;

use brunt_block::DeviceInfo;
use brunt_core::{Histogram, Nanos};
use brunt_result::RequestStatus;

use crate::block::arrival::ArrivalSchedule;
use crate::block::generator::{Area, Generator, Planned};
use crate::block::workload::{Arrival, Workload};
use crate::load::{RunPart, WorkloadError};
use crate::sequence::{Next, Sequence};

/// Identifies a worker of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerId {
    /// Number of the worker, from 0.
    pub worker: u32,
    /// Number of workers of the run.
    pub workers: u32,
    /// Number of workers that share its device, including itself; their numbers start at a multiple of this.
    pub on_device: u32,
    /// The run's seed, from which all sequences follow.
    pub seed: u64,
}

impl WorkerId {
    /// Returns the id of a worker, given its number within the part, which starts at 0.
    pub fn of(part: RunPart, worker: u32, seed: u64) -> WorkerId {
        WorkerId {
            worker: part.first_worker + worker,
            workers: part.workers_of_all,
            on_device: part.workers_on_device,
            seed,
        }
    }

    /// Returns the id of the only worker of a run.
    pub fn alone(seed: u64) -> WorkerId {
        WorkerId::of(RunPart::whole(1), 0, seed)
    }

    /// Returns this worker's share of a total.
    pub fn share(self, all: u64) -> u64 {
        crate::decisions::share(all, self.worker, self.workers)
    }

    /// Returns the part of a device that this worker uses.
    ///
    /// # Errors
    /// The workload does not fit the device.
    pub fn area(self, workload: &Workload, info: &DeviceInfo) -> Result<Area, WorkloadError> {
        let (start, len) = workload.check_device(info)?;
        let align = workload.alignment(info);
        let index = self.worker % self.on_device;
        Ok(Area::of_worker(
            start,
            len,
            align,
            index,
            self.on_device,
            workload.verify.is_some(),
        ))
    }
}

/// The requests of one worker of a described workload.
pub struct Synthetic {
    generator: Generator,
    pace: RequestPace,
    start: Nanos,
}

/// When requests are issued.
pub(crate) enum RequestPace {
    /// Whenever a slot is free.
    Closed,
    /// Whenever a slot is free, with pauses.
    Bursts(RequestBursts),
    /// At scheduled times.
    Open(ArrivalSchedule),
}

/// Bursts of a closed loop: a number of requests, then a pause after the last completion.
pub(crate) struct RequestBursts {
    requests: u64,
    pause: Duration,
    left: u64,
    resume: Nanos,
    /// Indexes of requests that have not completed.
    outstanding: Vec<u64>,
}

impl Synthetic {
    /// Creates the sequence of a worker that uses `area`.
    pub fn new(workload: &Workload, area: Area, id: WorkerId) -> Synthetic {
        Synthetic {
            generator: Generator::new(workload, area, id.seed, id.worker),
            pace: RequestPace::of(workload, id),
            start: Nanos(0),
        }
    }
}

impl RequestPace {
    /// Returns the pace of a worker.
    pub(crate) fn of(workload: &Workload, id: WorkerId) -> RequestPace {
        let WorkerId {
            worker,
            workers,
            seed,
            ..
        } = id;
        let bursts = workload.burst.filter(|burst| !burst.interval.0.is_zero());
        match (workload.arrival, bursts) {
            (Arrival::Open { rate, process, .. }, _) => RequestPace::Open(ArrivalSchedule::new(
                rate,
                process,
                workload.burst,
                seed,
                worker,
                workers,
            )),
            (Arrival::Closed {} | Arrival::Search { .. }, None) => RequestPace::Closed,
            (Arrival::Closed {} | Arrival::Search { .. }, Some(burst)) => {
                RequestPace::Bursts(RequestBursts {
                    requests: burst.requests,
                    pause: burst.interval.0,
                    left: burst.requests,
                    resume: Nanos(0),
                    outstanding: Vec::with_capacity(workload.queue_depth as usize),
                })
            }
        }
    }

    /// Returns the due time of the next request, which has this index, and counts it; the run began at `start`.
    ///
    /// # Errors
    /// The request is not due yet.
    #[inline(always)] // once per request
    pub(crate) fn take(&mut self, now: Nanos, start: Nanos, index: u64) -> Result<Nanos, Next> {
        match self {
            RequestPace::Closed => Ok(now),
            RequestPace::Open(schedule) => {
                let due = Nanos(start.0.saturating_add(schedule.due().0));
                if due > now {
                    return Err(Next::Later(due));
                }
                schedule.advance();
                Ok(due)
            }
            RequestPace::Bursts(bursts) => bursts.hold_back(now, index).map_or(Ok(now), Err),
        }
    }

    /// See [`Sequence::overdue`]; the run began at `start`.
    pub(crate) fn overdue(&self, now: Nanos, start: Nanos, ages: &mut Histogram) {
        if let RequestPace::Open(schedule) = self {
            schedule.overdue(Nanos(now.0.saturating_sub(start.0)), ages);
        }
    }

    /// Reports that a request ended.
    #[inline]
    pub(crate) fn completed(&mut self, index: u64) {
        if let RequestPace::Bursts(bursts) = self {
            bursts.outstanding.retain(|other| *other != index);
        }
    }

    /// See [`Sequence::set_rate`]; the run began at `start`.
    pub(crate) fn set_rate(&mut self, rate: f64, now: Nanos, start: Nanos) -> bool {
        match self {
            RequestPace::Open(schedule) => {
                schedule.set_rate(rate, Nanos(now.0.saturating_sub(start.0)));
                true
            }
            RequestPace::Closed | RequestPace::Bursts(_) => false,
        }
    }
}

impl Sequence for Synthetic {
    type Request = Planned;

    fn starts(&mut self, start: Nanos) {
        self.start = start;
    }

    #[inline(always)] // once per request, from a single call site
    fn next(&mut self, now: Nanos, place: &mut Planned) -> Next {
        let due = match self.pace.take(now, self.start, self.generator.index()) {
            Ok(due) => due,
            Err(wait) => return wait,
        };
        self.generator.next_request(place);
        Next::Due(due)
    }

    fn overdue(&self, now: Nanos, ages: &mut Histogram) {
        self.pace.overdue(now, self.start, ages);
    }

    #[inline]
    fn completed(&mut self, index: u64, _status: RequestStatus, _at: Nanos) {
        self.pace.completed(index);
    }

    fn set_rate(&mut self, rate: f64, now: Nanos) -> bool {
        self.pace.set_rate(rate, now, self.start)
    }
}

impl RequestBursts {
    /// If the next request has to wait, returns what to wait for; otherwise counts it in the burst as request
    /// `index`.
    #[inline(never)] // few closed loops have bursts
    fn hold_back(&mut self, now: Nanos, index: u64) -> Option<Next> {
        if self.left == 0 {
            if let Some(index) = self.outstanding.first() {
                return Some(Next::WaitFor(*index));
            }
            self.left = self.requests;
            self.resume = now.after(self.pause);
        }
        if now < self.resume {
            return Some(Next::Later(self.resume));
        }
        self.left -= 1;
        self.outstanding.push(index);
        None
    }
}
