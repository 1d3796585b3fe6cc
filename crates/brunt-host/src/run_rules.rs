//! Checks which news of a run a host may send, in which order, and which figures are possible: the controller's side,
//! without I/O. Used by [`crate::HostSession`].
//!
//! The rule: everything that passes these checks can be merged with other hosts' figures: the kinds are the load's,
//! the numbers are so small that their sums over all intervals and workers fit, and each worker's intervals are in
//! order.

use std::time::Duration;

use brunt_protocol::{JOURNAL_BYTES_MAX, REQUESTS_MAX, RecordEnd};
use brunt_result::{
    Cost, Figures, Interval, OpFigures, OpKind, Outcome, RequestRecord, RequestStatus,
};

/// More than any count or number of bytes that a worker can reach in a run: 2^53 bytes at 10 GB/s take ten days. The
/// sum over 2^10 workers doesn't overflow.
const NUMBER_MAX: u64 = 1 << 53;
/// More than any sum of a worker's latencies, each of which is at most a few centuries.
const NANOS_MAX: u128 = (u64::MAX as u128) << 48;
/// Longer than any wait of a worker.
const WAIT_MAX: Duration = Duration::from_secs(1 << 30);

/// What to expect from a host's part of a run, fixed before it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct HostPart {
    /// Number of workers on this host.
    pub workers: u32,
    /// Number of the host's first worker, counted across all hosts.
    pub first_worker: u32,
    /// The kinds of operations in the load.
    pub kinds: Vec<OpKind>,
    /// Whether the host keeps a request record.
    pub records: bool,
    /// Whether the workers keep journals of acknowledged writes.
    pub journals: bool,
}

/// A run on one host.
#[derive(Debug)]
pub(crate) struct RunRules {
    part: HostPart,
    /// The lowest valid index of each worker's next interval; `None` once the worker has ended.
    next: Vec<Option<u64>>,
    /// Totals of each worker's intervals.
    sums: Vec<Sums>,
    ready: bool,
    done: bool,
    /// Recorded requests that have not arrived yet, once their number has been announced.
    record: Option<u64>,
    /// Pieces of the record that were requested but have not arrived.
    asked: u32,
    /// Bytes of each worker's journal that have not arrived yet, once the lengths have been announced.
    journals: Option<Vec<u64>>,
    /// Parts of the journals that were requested but have not arrived.
    journal_asked: u32,
    /// Whether the run is being released.
    pub releasing: bool,
}

/// Why a host's news about its run is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunNewsError {
    /// A message out of order, such as a second announcement that the host is ready, or figures before it is ready.
    #[error("an unexpected message about a run")]
    Order,
    /// The worker doesn't exist, or has already ended.
    #[error("a message about worker {0}, which does not exist or has already ended")]
    Worker(u32),
    /// An interval that has already arrived, or that ends before it starts.
    #[error("interval {index} of worker {worker} out of order")]
    Interval {
        /// The worker.
        worker: u32,
        /// The interval's index.
        index: u64,
    },
    /// Operations that the load doesn't contain, or impossible numbers.
    #[error("impossible figures for the load of worker {0}")]
    Figures(u32),
    /// Requests of other hosts' workers or of other kinds, or more requests than announced.
    #[error("requests that don't belong to the host's record")]
    Record,
    /// Parts of other workers' journals, or parts of the wrong length.
    #[error("a part of a journal out of order")]
    Journal,
}

impl RunRules {
    /// Rules for this part of a run.
    pub fn new(part: HostPart) -> RunRules {
        let next = vec![Some(0); part.workers as usize];
        let sums = vec![Sums::default(); part.workers as usize];
        RunRules {
            part,
            next,
            sums,
            ready: false,
            done: false,
            record: None,
            asked: 0,
            journals: None,
            journal_asked: 0,
            releasing: false,
        }
    }

    /// Checks that all workers are waiting for the start for the first time.
    pub fn ready(&mut self) -> Result<(), RunNewsError> {
        match std::mem::replace(&mut self.ready, true) {
            false => Ok(()),
            true => Err(RunNewsError::Order),
        }
    }

    /// Checks an interval that arrived.
    pub fn interval(&mut self, worker: u32, interval: &Interval) -> Result<(), RunNewsError> {
        let next = self.next_of(worker)?;
        let index = interval.index;
        if index < *next || index >= NUMBER_MAX || interval.end < interval.start {
            return Err(RunNewsError::Interval { worker, index });
        }
        *next = index + 1;
        let sums = self.figures(worker, &interval.figures)?;
        let all = &mut self.sums[worker as usize];
        all.add(&sums);
        if all.are_possible() {
            Ok(())
        } else {
            Err(RunNewsError::Figures(worker))
        }
    }

    /// Checks the end of a worker.
    pub fn ended(&mut self, worker: u32, outcome: &Outcome) -> Result<(), RunNewsError> {
        self.next_of(worker)?;
        self.next[worker as usize] = None;
        let rates = [outcome.requests_per_second, outcome.bytes_per_second];
        let possible = |rate: &f64| (0.0..=NUMBER_MAX as f64).contains(rate);
        if !rates.iter().all(possible) || outcome.recording_wait > WAIT_MAX {
            return Err(RunNewsError::Figures(worker));
        }
        // A worker that never started reports no kinds.
        match outcome.figures.ops().len() {
            0 => Ok(()),
            _ => self.figures(worker, &outcome.figures).map(drop),
        }
    }

    /// Checks the number of requests that the host has recorded; it may be announced only before the end of the run.
    pub fn recorded(&mut self, end: &RecordEnd) -> Result<(), RunNewsError> {
        let early = self.next.iter().any(Option::is_some);
        if early || self.done || !self.part.records || self.record.is_some() {
            return Err(RunNewsError::Order);
        }
        if end.kept.max(end.lost) > NUMBER_MAX {
            return Err(RunNewsError::Record);
        }
        self.record = Some(end.kept);
        Ok(())
    }

    /// Records that a piece of the record is requested.
    pub fn ask_for_requests(&mut self) {
        self.asked += 1;
    }

    /// Checks a piece of the record that arrived.
    pub fn requests(&mut self, requests: &[RequestRecord]) -> Result<(), RunNewsError> {
        self.asked = self.asked.checked_sub(1).ok_or(RunNewsError::Order)?;
        let HostPart {
            workers,
            first_worker,
            kinds,
            ..
        } = &self.part;
        let own = |request: &RequestRecord| {
            request
                .worker
                .checked_sub(*first_worker)
                .is_some_and(|worker| worker < *workers)
                && kinds.contains(&request.op)
        };
        let left = self
            .record
            .and_then(|left| left.checked_sub(requests.len() as u64));
        let whole = (1..=REQUESTS_MAX).contains(&requests.len()) && requests.iter().all(own);
        self.record = Some(left.filter(|_| whole).ok_or(RunNewsError::Record)?);
        Ok(())
    }

    /// Checks the lengths of the workers' journals, which are announced when the workers have ended or one of them
    /// has failed.
    pub fn journals(&mut self, lengths: &[u64]) -> Result<(), RunNewsError> {
        if !self.ready || self.done || !self.part.journals || self.journals.is_some() {
            return Err(RunNewsError::Order);
        }
        let fit = |length: &u64| (1..=NUMBER_MAX).contains(length);
        if lengths.len() != self.part.workers as usize || !lengths.iter().all(fit) {
            return Err(RunNewsError::Journal);
        }
        self.journals = Some(lengths.to_vec());
        Ok(())
    }

    /// Records that a part of the journals is requested.
    pub fn ask_for_journal(&mut self) {
        self.journal_asked += 1;
    }

    /// Checks a part of the journals that arrived.
    pub fn journal(&mut self, worker: u32, bytes: &[u8]) -> Result<(), RunNewsError> {
        self.journal_asked = self
            .journal_asked
            .checked_sub(1)
            .ok_or(RunNewsError::Order)?;
        let left = self.journals.as_mut().ok_or(RunNewsError::Order)?;
        let first = left
            .iter()
            .position(|left| *left > 0)
            .ok_or(RunNewsError::Journal)?;
        let expected = left[first].min(JOURNAL_BYTES_MAX as u64);
        if (first, expected) != (worker as usize, bytes.len() as u64) {
            return Err(RunNewsError::Journal);
        }
        left[first] -= expected;
        Ok(())
    }

    /// Records that the run has ended.
    pub fn done(&mut self) -> Result<(), RunNewsError> {
        let early = self.next.iter().any(Option::is_some);
        match std::mem::replace(&mut self.done, true) || early {
            false => Ok(()),
            true => Err(RunNewsError::Order),
        }
    }

    /// Only workers of a ready run that have not ended may send news.
    fn next_of(&mut self, worker: u32) -> Result<&mut u64, RunNewsError> {
        if !self.ready {
            return Err(RunNewsError::Order);
        }
        self.next
            .get_mut(worker as usize)
            .and_then(Option::as_mut)
            .ok_or(RunNewsError::Worker(worker))
    }

    /// The totals of these figures, if they are possible.
    fn figures(&self, worker: u32, figures: &Figures) -> Result<Sums, RunNewsError> {
        let same = figures
            .ops()
            .map(|(kind, _)| kind)
            .eq(self.part.kinds.iter().copied());
        let whole = |op: &OpFigures| op.late <= op.completed && op.late_bytes <= op.bytes;
        let sums = Sums::of(figures);
        let possible = same && figures.ops().all(|(_, op)| whole(op)) && sums.are_possible();
        if possible {
            Ok(sums)
        } else {
            Err(RunNewsError::Figures(worker))
        }
    }
}

/// Totals over all kinds of operations; sums saturate.
#[derive(Clone, Debug, Default)]
struct Sums {
    /// Counts of requests and bytes; counts of latencies; costs.
    numbers: [u64; 14],
    statuses: [u64; RequestStatus::ALL.len()],
    /// Sums of latencies, and of the time that requests spent in flight.
    nanos: [u128; 3],
}

impl Sums {
    fn of(figures: &Figures) -> Sums {
        let in_flight = u128::from(figures.in_flight_nanos);
        let mut sums = Sums {
            statuses: figures.counts.by_status,
            nanos: [0, 0, in_flight],
            ..Sums::default()
        };
        let Cost {
            cpu_user_nanos,
            cpu_system_nanos,
            polling_nanos,
            is_partial: _,
            voluntary_switches,
            involuntary_switches,
            system_calls,
        } = figures.cost;
        let costs = [
            cpu_user_nanos,
            cpu_system_nanos,
            polling_nanos,
            voluntary_switches,
            involuntary_switches,
            system_calls,
        ];
        sums.numbers[8..].copy_from_slice(&costs);
        for (_, op) in figures.ops() {
            let OpFigures {
                completed,
                bytes,
                late,
                late_bytes,
                retries,
                timeouts,
                service,
                response,
            } = op;
            let latencies = [service.count(), response.count()];
            let numbers = [*completed, *bytes, *late, *late_bytes, *retries, *timeouts];
            let more = numbers.into_iter().chain(latencies);
            sums.numbers
                .iter_mut()
                .zip(more)
                .for_each(|(sum, more)| *sum = sum.saturating_add(more));
            let nanos = [service.sum_nanos(), response.sum_nanos()];
            sums.nanos
                .iter_mut()
                .zip(nanos)
                .for_each(|(sum, more)| *sum = sum.saturating_add(more));
        }
        sums
    }

    fn add(&mut self, more: &Sums) {
        let own = self.numbers.iter_mut().chain(&mut self.statuses);
        own.zip(more.numbers.iter().chain(&more.statuses))
            .for_each(|(sum, more)| *sum = sum.saturating_add(*more));
        self.nanos
            .iter_mut()
            .zip(more.nanos)
            .for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }

    fn are_possible(&self) -> bool {
        self.numbers
            .iter()
            .chain(&self.statuses)
            .all(|number| *number <= NUMBER_MAX)
            && self.nanos.iter().all(|nanos| *nanos <= NANOS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_core::{Histogram, Nanos};

    fn interval(index: u64) -> Interval {
        let figures = Figures::of_kinds(&[OpKind::Read]);
        Interval {
            index,
            start: Nanos(1),
            end: Nanos(2),
            figures,
            waiting: Histogram::default(),
        }
    }

    fn part(workers: u32) -> HostPart {
        HostPart {
            workers,
            first_worker: 4,
            kinds: vec![OpKind::Read],
            records: true,
            journals: true,
        }
    }

    fn ready() -> RunRules {
        let mut rules = RunRules::new(part(2));
        rules.ready().unwrap();
        rules
    }

    fn outcome() -> Outcome {
        Outcome {
            figures: Figures::of_kinds(&[OpKind::Read]),
            ..Outcome::interrupted()
        }
    }

    #[test]
    fn news_of_a_run_must_arrive_in_order() {
        let mut rules = RunRules::new(part(1));
        assert_eq!(rules.interval(0, &interval(0)), Err(RunNewsError::Order));
        let mut rules = ready();
        assert_eq!(rules.ready(), Err(RunNewsError::Order));
        assert_eq!(rules.interval(0, &interval(0)), Ok(()));
        // An interval without activity is not sent.
        assert_eq!(rules.interval(0, &interval(2)), Ok(()));
        assert_eq!(
            rules.interval(0, &interval(2)),
            Err(RunNewsError::Interval {
                worker: 0,
                index: 2
            })
        );
        let last = interval(u64::MAX);
        assert_eq!(
            rules.interval(1, &last),
            Err(RunNewsError::Interval {
                worker: 1,
                index: u64::MAX
            })
        );
        assert_eq!(
            rules.interval(2, &interval(0)),
            Err(RunNewsError::Worker(2))
        );
        assert_eq!(rules.ended(0, &outcome()), Ok(()));
        assert_eq!(
            rules.interval(0, &interval(9)),
            Err(RunNewsError::Worker(0))
        );
        assert_eq!(rules.done(), Err(RunNewsError::Order));
        let mut rules = ready();
        assert_eq!(
            [
                rules.ended(0, &outcome()),
                rules.ended(1, &Outcome::interrupted())
            ],
            [Ok(()); 2]
        );
        assert_eq!(
            [rules.done(), rules.done()],
            [Ok(()), Err(RunNewsError::Order)]
        );
    }

    /// A record arrives in requested pieces, from this host's workers, and never exceeds what was announced.
    #[test]
    fn a_record_never_exceeds_its_announcement() {
        let request = |worker| RequestRecord {
            worker,
            index: 0,
            op: OpKind::Read,
            offset: 0,
            len: 512,
            intended: Nanos(1),
            sent: None,
            completed: None,
            retries: 0,
            status: RequestStatus::Good,
        };
        let end = |kept| RecordEnd {
            kept,
            lost: 0,
            why: String::new(),
        };
        let ended = || {
            let mut rules = ready();
            (0..2).for_each(|worker| rules.ended(worker, &outcome()).unwrap());
            rules
        };
        assert_eq!(
            ready().recorded(&end(1)),
            Err(RunNewsError::Order),
            "workers have not ended"
        );
        assert_eq!(ended().recorded(&end(u64::MAX)), Err(RunNewsError::Record));
        let mut rules = ended();
        assert_eq!(
            [rules.recorded(&end(3)), rules.recorded(&end(3))],
            [Ok(()), Err(RunNewsError::Order)]
        );
        assert_eq!(rules.done(), Ok(()));
        assert_eq!(
            rules.requests(&[request(4)]),
            Err(RunNewsError::Order),
            "not requested"
        );
        rules.ask_for_requests();
        assert_eq!(rules.requests(&[request(4), request(5)]), Ok(()));
        let refused = |change: fn(RequestRecord) -> Vec<RequestRecord>| {
            let mut rules = ended();
            rules.recorded(&end(3)).unwrap();
            rules.ask_for_requests();
            assert_eq!(
                rules.requests(&change(request(5))),
                Err(RunNewsError::Record)
            );
        };
        refused(|_| Vec::new());
        refused(|one| vec![one; 4]);
        refused(|one| vec![RequestRecord { worker: 3, ..one }]);
        refused(|one| vec![RequestRecord { worker: 6, ..one }]);
        refused(|one| {
            vec![RequestRecord {
                op: OpKind::Write,
                ..one
            }]
        });
        let mut rules = RunRules::new(HostPart {
            records: false,
            ..part(0)
        });
        assert_eq!(
            rules.recorded(&end(0)),
            Err(RunNewsError::Order),
            "the part keeps no request record"
        );
    }

    /// Journals arrive part by part and worker by worker, with the announced lengths and only on request.
    #[test]
    fn journals_arrive_with_the_announced_lengths() {
        assert_eq!(
            RunRules::new(part(2)).journals(&[1, 1]),
            Err(RunNewsError::Order),
            "the workers are not ready yet"
        );
        for lengths in [&[1][..], &[1, 1, 1], &[1, 0], &[1, u64::MAX]] {
            assert_eq!(
                ready().journals(lengths),
                Err(RunNewsError::Journal),
                "{lengths:?}"
            );
        }
        let mut rules = ready();
        let most = JOURNAL_BYTES_MAX;
        let lengths = [most as u64 + 5, 7];
        assert_eq!(
            [rules.journals(&lengths), rules.journals(&lengths)],
            [Ok(()), Err(RunNewsError::Order)]
        );
        assert_eq!(
            rules.journal(0, &vec![0; most]),
            Err(RunNewsError::Order),
            "not requested"
        );
        let mut check = |worker, bytes, expected| {
            rules.ask_for_journal();
            assert_eq!(
                rules.journal(worker, &vec![0; bytes]),
                expected,
                "{worker} {bytes}"
            );
        };
        check(0, 5, Err(RunNewsError::Journal));
        check(1, 7, Err(RunNewsError::Journal));
        check(0, most, Ok(()));
        check(0, 6, Err(RunNewsError::Journal));
        check(0, 5, Ok(()));
        check(1, 7, Ok(()));
        check(1, 1, Err(RunNewsError::Journal));
        let mut rules = RunRules::new(HostPart {
            journals: false,
            ..part(0)
        });
        rules.ready().unwrap();
        assert_eq!(
            rules.journals(&[]),
            Err(RunNewsError::Order),
            "the part keeps no request record"
        );
    }

    #[test]
    fn figures_that_cannot_be_merged_are_refused() {
        let check = |change: fn(&mut Figures)| {
            let mut one = interval(0);
            change(&mut one.figures);
            assert_eq!(ready().interval(0, &one), Err(RunNewsError::Figures(0)));
        };
        check(|figures| *figures = Figures::of_kinds(&[OpKind::Write]));
        check(|figures| *figures = Figures::of_kinds(&[OpKind::Read, OpKind::Write]));
        check(|figures| figures.at(0).completed = u64::MAX);
        check(|figures| figures.at(0).late = 1);
        check(|figures| figures.counts.by_status[0] = u64::MAX);
        check(|figures| figures.cost.system_calls = u64::MAX);
        // Each figure is possible, but their sum is not.
        let mut rules = ready();
        let mut check = |index, bytes, expected| {
            let mut one = interval(index);
            one.figures.at(0).bytes = bytes;
            assert_eq!(rules.interval(0, &one), expected);
        };
        check(0, NUMBER_MAX - 1, Ok(()));
        check(1, 1, Ok(()));
        check(2, 1, Err(RunNewsError::Figures(0)));
        let outcomes = [
            Outcome {
                requests_per_second: -1.0,
                ..outcome()
            },
            Outcome {
                bytes_per_second: f64::INFINITY,
                ..outcome()
            },
            Outcome {
                recording_wait: Duration::MAX,
                ..outcome()
            },
        ];
        for outcome in outcomes {
            assert_eq!(
                ready().ended(0, &outcome),
                Err(RunNewsError::Figures(0)),
                "{outcome:?}"
            );
        }
    }
}
