use crate::percentile::Percentile;
use crate::performability::{FailingComponent, FailingSystem, Performability};
use std::collections::BTreeMap;
use std::time::Duration;

use brunt_core::random::Random;
use brunt_core::{Histogram, IoEngine};

use super::*;
use crate::choice::{
    DepthChoice, DepthTrial, EngineChoice, EngineTrial, PageCache, RingChoice, RingMode, RingTrial,
};
use crate::degradation::{IntervalFigures, PhaseKind, over_runs, phases_over_runs};
use crate::experiment::InterleavedWith;
use crate::experiment::{
    ArrivalKind, CongestionSummary, ExperimentSummary, TargetKind, TargetSummary, WorkloadSummary,
};
use crate::impact::{
    ClientEvenness, ClientThroughput, ImpactIndex, ImpactKind, ImpactRatio, NoInterval,
    RobustnessIndexes, RunLeftOut,
};
use crate::link::{LinkCounts, LinkProof, LinkReport};
use crate::op::TABLE;
use crate::over_occurrences::recurring_over_runs;
use crate::phase_wait::{PhaseWait, WaitOutcome};
use crate::probe::ProbeRecord;
use crate::recurring::FaultOccurrence;
use crate::require::{RequiredUnit, RequirementOutcome, RequirementVerdict};
use crate::statistics::{Estimate, PointPrecision, PreciseFigure, Ratio};
use crate::sticky::StickyCost;
use crate::summary::{FORMAT, FaultSummary, Latencies, PointSummary};
use crate::transfer::{
    InterfaceTraffic, LinkTraffic, PhaseTransfer, RunTransfer, UnknownTraffic, WayBytes, efficiency,
};
use crate::wrong::{ErrorCause, Verified, WrongExtent};
use crate::{Cost, FirstError, OpKind, Outcome, RequestStatus, Stopped};

/// Makes values of every kind from a seed: numbers of any bit pattern, and arbitrary text.
struct Make(Random);

impl Make {
    fn count(&mut self) -> u64 {
        // All magnitudes are equally likely, and three numbers can be added without overflow.
        self.0.next_u64() >> (2 + self.0.below(62))
    }

    fn small(&mut self) -> u32 {
        self.0.below(1000) as u32
    }

    fn float(&mut self) -> f64 {
        loop {
            let value = f64::from_bits(self.0.next_u64());
            if value.is_finite() {
                return value;
            }
        }
    }

    fn nanos(&mut self) -> Nanos {
        Nanos(self.count())
    }

    fn text(&mut self) -> String {
        let letters = ['a', '"', '\\', '\n', '\u{0}', 'µ', '𝛑', ' ', '<'];
        (0..self.0.below(12))
            .map(|_| letters[self.0.below(letters.len() as u64) as usize])
            .collect()
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Make) -> T) -> Option<T> {
        self.0.chance(0.5).then(|| make(self))
    }

    fn list<T>(&mut self, mut make: impl FnMut(&mut Make) -> T) -> Vec<T> {
        (0..self.0.below(4)).map(|_| make(self)).collect()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.below(all.len() as u64) as usize]
    }

    fn kind(&mut self) -> OpKind {
        self.one_of(&TABLE).kind
    }

    fn figures(&mut self) -> Figures {
        let first = self.0.below(TABLE.len() as u64 - 3) as usize;
        let kinds: Vec<OpKind> = TABLE[first..][..3].iter().map(|info| info.kind).collect();
        let mut figures = Figures::of_kinds(&kinds);
        for slot in 0..2 {
            let op = figures.at(slot);
            (op.completed, op.bytes, op.late) = (self.count(), self.count(), self.count());
            (op.late_bytes, op.retries, op.timeouts) = (self.count(), self.count(), self.count());
            for _ in 0..self.0.below(50) {
                op.service.record(self.nanos());
                op.response.record(self.nanos());
            }
        }
        figures.counts.by_status = std::array::from_fn(|_| self.count());
        figures.in_flight_nanos = self.count();
        figures.cost = Cost {
            cpu_user_nanos: self.count(),
            cpu_system_nanos: self.count(),
            polling_nanos: self.count(),
            is_partial: false,
            voluntary_switches: self.count(),
            involuntary_switches: self.count(),
            system_calls: self.count(),
        };
        figures
    }

    fn request(&mut self) -> RequestRecord {
        RequestRecord {
            worker: self.small(),
            index: self.count(),
            op: self.kind(),
            offset: self.count(),
            len: self.count(),
            intended: self.nanos(),
            sent: self.maybe(Make::nanos),
            completed: self.maybe(Make::nanos),
            retries: self.small(),
            status: self.one_of(&RequestStatus::ALL),
        }
    }

    fn info(&mut self) -> RunInfo {
        RunInfo {
            order: self.small(),
            runs: self.small(),
            point: self.small(),
            label: self.text(),
            repetition: self.small(),
            seed: self.0.next_u64(),
            wall: SystemTime::UNIX_EPOCH + Duration::from_nanos(self.count()),
            ready: self.nanos(),
        }
    }

    fn sample(&mut self) -> Sample {
        let value = |make: &mut Make| SampleValue {
            probe: make.text().into(),
            instance: make.text().into(),
            metric: "busy_share".into(),
            value: make.float(),
        };
        let (host, start, end) = (self.text().into(), self.nanos(), self.nanos());
        Sample {
            host,
            start,
            end,
            values: self.list(value),
        }
    }

    fn fault(&mut self) -> FaultRecord {
        let gap = |make: &mut Make| FaultGap {
            from: make.nanos(),
            until: make.nanos(),
            shown: make.nanos(),
            shown_by: make.text(),
        };
        FaultRecord {
            index: self.small(),
            name: self.text(),
            kind: "link".into(),
            place: self.text(),
            what: self.text(),
            start: self.nanos(),
            shown: self.nanos(),
            shown_by: self.text(),
            end: self.maybe(Make::nanos),
            gone: self.maybe(Make::nanos),
            gone_by: self.text(),
            gaps: self.list(gap),
        }
    }

    fn outcome(&mut self) -> Outcome {
        let error = |make: &mut Make| FirstError {
            status: make.one_of(&RequestStatus::ALL),
            op: make.kind(),
            offset: make.count(),
            len: make.count(),
            text: make.text(),
        };
        Outcome {
            figures: self.figures(),
            start: self.nanos(),
            end: self.nanos(),
            requests_per_second: self.float(),
            bytes_per_second: self.float(),
            stopped: self.one_of(&[
                Stopped::Done,
                Stopped::Steady,
                Stopped::Interrupted,
                Stopped::DeviceGone,
                Stopped::HostLost,
            ]),
            first_error: self.maybe(error),
            began: self.nanos(),
            recording_wait: Duration::from_nanos(self.count()),
            causes: vec![ErrorCause {
                op: self.kind(),
                status: self.text(),
                cause: self.text(),
                count: self.count(),
            }],
            verified: Some(Verified {
                checked_bytes: self.count(),
                wrong_bytes: self.count(),
                extents: vec![WrongExtent {
                    offset: self.count(),
                    bytes: self.count(),
                    found: self.text(),
                }],
                more: true,
            }),
            common: None,
        }
    }

    fn link(&mut self) -> LinkReport {
        let counts = LinkCounts {
            packets: self.count(),
            lost: self.count(),
            ..LinkCounts::default()
        };
        LinkReport {
            there: counts,
            back: LinkCounts::default(),
            busy: self.float(),
            lived_nanos: self.count(),
            usual_priority: self.0.chance(0.5),
            captured: self.maybe(|make| crate::link::CaptureCounts {
                packets: make.count(),
                lost: make.count(),
            }),
        }
    }

    fn transfer(&mut self) -> RunTransfer {
        let link = LinkTraffic {
            there_bytes: self.count(),
            back_bytes: self.count(),
            idle_there_bytes_per_second: self.maybe(|make| make.count() as f64),
            idle_back_bytes_per_second: self.maybe(|make| make.count() as f64),
            delayed: self.0.chance(0.5),
        };
        let (start_s, end_s) = (self.count() as f64, self.count() as f64);
        let bytes = WayBytes {
            there: self.count(),
            back: self.count(),
        };
        let phase = PhaseTransfer {
            kind: self.one_of(&[PhaseKind::Before, PhaseKind::During]),
            faults: self.list(Make::text),
            start_s,
            end_s,
            useful_bytes: self.count(),
            links: BTreeMap::from([("wan".into(), bytes)]),
            interfaces: BTreeMap::from([("a:eth0".into(), self.count())]),
        };
        let links = BTreeMap::from([("wan".into(), link)]);
        let interface = InterfaceTraffic {
            sent_bytes: self.count(),
            sent_error_bytes: self.count(),
            received_bytes: self.count(),
            idle_sent_bytes_per_second: self.maybe(|make| make.count() as f64),
            idle_sent_error_bytes_per_second: self.maybe(|make| make.count() as f64),
        };
        let unknown = self.one_of(&[UnknownTraffic::NoAnswer, UnknownTraffic::NotRead]);
        RunTransfer {
            seconds: self.count() as f64,
            useful_bytes: self.count(),
            links,
            interfaces: BTreeMap::from([("a:eth0".into(), interface)]),
            unknown: BTreeMap::from([("a:eth1".into(), unknown)]),
            phases: vec![phase],
        }
    }

    fn run(&mut self) -> RunSummary {
        let outcome = self.outcome();
        let mut run = RunSummary::of(
            &outcome,
            self.small(),
            self.small(),
            self.count(),
            self.maybe(Make::float),
        );
        run.engine = self.maybe(|make| make.one_of(&IoEngine::ALL));
        run.page_cache = self.maybe(|make| PageCache {
            read_share: make.maybe(Make::float),
            flush_s: make.float(),
        });
        run.probes = self.maybe(|make| {
            let metrics = BTreeMap::from([(make.text(), make.float())]);
            let hosts = BTreeMap::from([(make.text(), metrics)]);
            ProbeRecord {
                samples: make.count(),
                notes: make.list(Make::text),
                hosts,
                ..Default::default()
            }
        });
        run.links = BTreeMap::from([(self.text(), self.link())]);
        run.link_proofs = BTreeMap::from([(
            self.text(),
            LinkProof {
                carrier: self.text(),
                set: [self.text(), self.text()],
                clear_round_trip_us: self.float(),
                round_trip_us: self.maybe(Make::float),
                loss: self.maybe(Make::float),
                bits_per_second: self.maybe(Make::float),
            },
        )]);
        run.health_waits_s = BTreeMap::from([(self.text(), self.float())]);
        run.transfer = self.maybe(Make::transfer);
        run.doubts = self.list(Make::text);
        run.troubles = self.list(Make::text);
        let record = FaultRecord {
            start: Nanos(4_000_000_000),
            end: Some(Nanos(6_000_000_000)),
            ..self.fault()
        };
        let series: Vec<IntervalFigures> = (0..10u64)
            .map(|second| IntervalFigures {
                start_s: second as f64,
                end_s: second as f64 + 1.0,
                requests: 1 + self.0.below(1000),
                bytes: self.0.below(1 << 40),
                failed: self.0.below(10),
                response_mean_us: self.maybe(|make| make.0.unit() * 1e3),
                response_p99_us: self.maybe(|make| make.0.unit() * 1e4),
                response_max_us: self.maybe(|make| make.0.unit() * 1e5),
                ..IntervalFigures::default()
            })
            .collect();
        run.faults = FaultSummary::of(&[record], Nanos(0), Nanos(10_000_000_000), &series);
        for fault in &mut run.faults {
            fault.occurrence = self.maybe(|make| FaultOccurrence {
                fault: make.text(),
                number: 1,
                count: 1,
            });
        }
        run.phases = FaultSummary::phases(&run.faults, &series);
        run
    }

    fn point(&mut self) -> PointSummary {
        let trial = |make: &mut Make| RingTrial {
            mode: make.one_of(&RingMode::ALL),
            requests_per_second: make.maybe(Make::float),
            error: make.maybe(Make::text),
        };
        let depth = |make: &mut Make| DepthTrial {
            queue_depth: make.small(),
            bytes_per_second: make.float(),
            kept: make.maybe(|make| make.small() > 1),
        };
        let runs = self.list(Make::run);
        let costs: Vec<_> = runs
            .iter()
            .flat_map(|run| &run.faults)
            .filter_map(|fault| fault.cost.clone())
            .collect();
        let outcome = self.outcome();
        let phases: Vec<&[_]> = runs.iter().map(|run| &run.phases[..]).collect();
        let performability = Performability::of(&self.system(), &phases);
        PointSummary {
            performability: Some(performability),
            normal: self.maybe(Make::text),
            sticky: self.maybe(Make::sticky),
            label: self.text(),
            target: self.text(),
            workload: self.text(),
            part_of: self.maybe(Make::text),
            axes: BTreeMap::from([(self.text(), self.text())]),
            notes: self.list(Make::text),
            engine: self.maybe(|make| EngineChoice {
                engine: make.one_of(&IoEngine::ALL),
                why: make.text(),
                trials: make.list(|make| EngineTrial {
                    engine: make.one_of(&IoEngine::ALL),
                    requests_per_second: make.maybe(Make::float),
                    error: make.maybe(Make::text),
                }),
            }),
            ring: RingChoice {
                mode: RingMode::Poll,
                why: self.text(),
                trials: self.list(trial),
            },
            depth: self.maybe(|make| DepthChoice {
                queue_depth: make.small(),
                trials: make.list(depth),
            }),
            requests_per_second: self.maybe(Make::estimate),
            bytes_per_second: self.maybe(Make::estimate),
            response_mean_us: self.maybe(Make::estimate),
            response_p99_us: self.maybe(Make::estimate),
            response_percentiles_us: BTreeMap::from([(Percentile::P99_9, self.float())]),
            response: Latencies::of(&outcome.figures.response()),
            service: Latencies::of(&outcome.figures.service()),
            line_bits_per_second: BTreeMap::from([(self.text(), self.float())]),
            precision: self.maybe(|make| PointPrecision {
                goal: make.float(),
                figure: PreciseFigure::ResponseMeanUs,
                reached: make.0.chance(0.5),
                half_width: make.maybe(Make::float),
                runs_wanted: make.maybe(|make| make.small() as usize),
            }),
            degradation: vec![over_runs(&self.text(), &costs)],
            recurring: recurring_over_runs(runs.iter()),
            phases: phases_over_runs(runs.iter().map(|run| &run.phases[..])),
            transfer: efficiency(&runs),
            runs,
        }
    }

    fn sticky(&mut self) -> StickyCost {
        StickyCost {
            faults: self.list(Make::text),
            normal: self.text(),
            rounds: self.small() as usize,
            baseline: self.maybe(Make::estimate),
            drop: self.maybe(Make::estimate),
            lost_requests_per_second: self.maybe(Make::estimate),
            response_mean_factor: self.maybe(Make::estimate),
            response_p99_factor: self.maybe(Make::estimate),
            failed_share_before: self.maybe(Make::estimate),
            failed_share: self.maybe(Make::estimate),
        }
    }

    fn system(&mut self) -> FailingSystem {
        FailingSystem {
            components: vec![FailingComponent {
                name: self.text(),
                faults: vec![self.text()],
                units: 2,
                mttf_s: 1e6,
                mttr_s: 1e3,
                repairs_at_once: 1,
            }],
            threshold: self.maybe(|_| "iops above 10".parse().expect("a threshold")),
        }
    }

    fn estimate(&mut self) -> Estimate {
        Estimate {
            mean: self.float(),
            low: self.maybe(Make::float),
            high: self.maybe(Make::float),
            runs: self.small() as usize,
        }
    }

    fn requirement(&mut self) -> RequirementOutcome {
        RequirementOutcome {
            required: self.text(),
            label: self.text(),
            bound: self.float(),
            figure: self.maybe(Make::estimate),
            unit: self.one_of(&[RequiredUnit::Micros, RequiredUnit::Share]),
            verdict: self.one_of(&[RequirementVerdict::Met, RequirementVerdict::Undecided]),
        }
    }

    fn indexes(&mut self) -> RobustnessIndexes {
        let ratio = |make: &mut Make| ImpactRatio {
            interval: make.maybe(|make| Ratio {
                ratio: make.float(),
                low: make.float(),
                high: make.float(),
            }),
            clients: make.small(),
            by_round: make.list(Make::float),
            missing: make.maybe(|make| make.one_of(&[NoInterval::NoRound, NoInterval::OneRound])),
        };
        let impact = |make: &mut Make| ImpactIndex {
            kind: make.one_of(&[ImpactKind::Parallelism, ImpactKind::Latency]),
            target: make.text(),
            workload: make.text(),
            axes: BTreeMap::from([(make.text(), make.text())]),
            op: make.maybe(Make::kind),
            at_once: make.small(),
            link_delay: make.maybe(Make::text),
            per_client: ratio(make),
            aggregate: ratio(make),
            rounds: make.small(),
            rounds_left_out: make.small(),
        };
        let client = |make: &mut Make| ClientThroughput {
            client: make.text(),
            target: make.text(),
            workload: make.text(),
            axes: BTreeMap::from([(make.text(), make.text())]),
            op: make.maybe(Make::kind),
            bytes_per_second: None,
        };
        let left_out = |make: &mut Make| RunLeftOut {
            point: make.text(),
            repetition: make.small(),
            absent: make.list(Make::text),
        };
        let evenness = |make: &mut Make| ClientEvenness {
            target: make.text(),
            workload: make.text(),
            axes: BTreeMap::from([(make.text(), make.text())]),
            op: make.maybe(Make::kind),
            at_once: make.small(),
            index: make.maybe(Make::estimate),
        };
        RobustnessIndexes {
            impacts: self.list(impact),
            clients: self.list(client),
            evenness: self.list(evenness),
            left_out: self.list(left_out),
            notes: self.list(Make::text),
        }
    }

    fn summary(&mut self) -> Summary {
        let target = |make: &mut Make| TargetSummary {
            kind: make.one_of(&[
                TargetKind::Device,
                TargetKind::Network,
                TargetKind::Directory,
            ]),
            place: make.text(),
            served: make.0.chance(0.5),
            host: make.maybe(Make::text),
            facts: make.list(Make::text),
        };
        let workload = |make: &mut Make| WorkloadSummary {
            kind: make.text(),
            description: make.text(),
            queue_depth: make.maybe(Make::small),
            arrival: make.one_of(&[
                ArrivalKind::Closed,
                ArrivalKind::Open,
                ArrivalKind::Search,
                ArrivalKind::Several,
            ]),
        };
        Summary {
            format: FORMAT,
            brunt: self.text(),
            complete: self.0.chance(0.5),
            trouble: self.maybe(Make::text),
            experiment: ExperimentSummary {
                name: self.text(),
                description: self.text(),
                seed: self.0.next_u64(),
                percentiles: vec![Percentile::P50],
                repetitions: self.small(),
                targets: BTreeMap::from([(self.text(), target(self))]),
                workloads: BTreeMap::from([(self.text(), workload(self))]),
                congestion: self.maybe(|make| CongestionSummary {
                    algorithm: make.text(),
                    chosen: make.0.chance(0.5),
                }),
                toml: self.text(),
            },
            points: self.list(Make::point),
            indexes: self.maybe(Make::indexes),
            requirements: self.list(Make::requirement),
            label: self.maybe(Make::text),
            interleaved: self.maybe(|make| InterleavedWith {
                id: make.text(),
                place: make.small(),
                results: make.list(Make::text),
            }),
            waits: self.list(Make::wait),
        }
    }

    fn wait(&mut self) -> PhaseWait {
        PhaseWait {
            phase: self.text(),
            repetition: self.small(),
            command: self.text(),
            waited_s: self.float(),
            outcome: self.one_of(&[
                WaitOutcome::Met,
                WaitOutcome::TimedOut,
                WaitOutcome::Interrupted,
                WaitOutcome::NotRun,
            ]),
        }
    }

    /// One event of each kind; a new kind has to be added here.
    fn events(&mut self) -> Vec<Event> {
        let mut waiting = Histogram::new();
        waiting.record(self.nanos());
        let interval = Interval {
            index: self.count(),
            start: self.nanos(),
            end: self.nanos(),
            figures: self.figures(),
            waiting,
        };
        let requests: Vec<RequestRecord> = self.list(Make::request);
        let all = vec![
            Event::Begins(self.summary().into()),
            Event::RunBegins(self.info().into()),
            Event::RunStarts(self.nanos()),
            Event::Interval(interval.clone().into()),
            Event::Requests(requests.clone().into()),
            Event::Sample(self.sample().into()),
            Event::Fault(self.fault().into()),
            Event::RunEnds(self.info().into(), self.run().into(), self.figures().into()),
            Event::Job(self.small(), JobEvent::Interval(interval.into())),
            Event::Job(self.small(), JobEvent::Requests(requests.into())),
            Event::Job(
                self.small(),
                JobEvent::RunEnds(self.info().into(), self.run().into(), self.figures().into()),
            ),
            Event::Ends(self.summary().into()),
        ];
        for (index, event) in all.iter().enumerate() {
            let place = match event {
                Event::Begins(_) => 0,
                Event::RunBegins(_) => 1,
                Event::RunStarts(_) => 2,
                Event::Interval(_) => 3,
                Event::Requests(_) => 4,
                Event::Sample(_) => 5,
                Event::Fault(_) => 6,
                Event::RunEnds(..) => 7,
                Event::Job(_, JobEvent::Interval(_)) => 8,
                Event::Job(_, JobEvent::Requests(_)) => 9,
                Event::Job(_, JobEvent::RunEnds(..)) => 10,
                Event::Ends(_) => 11,
            };
            assert_eq!(place, index);
        }
        all
    }
}

#[test]
fn every_event_is_the_same_again_when_it_was_sent() {
    for seed in 0..20 {
        let mut make = Make(Random::new(seed));
        for event in make.events() {
            let clock = ClockName(make.text().into());
            let sent = Envelope::new(clock, event);
            let bytes = sent.encode();
            let told = || {
                format!(
                    "seed {seed}: {}",
                    String::from_utf8_lossy(&bytes[..bytes.len().min(300)])
                )
            };
            let received =
                Envelope::decode(&bytes).unwrap_or_else(|error| panic!("{error}: {}", told()));
            assert!(received == sent && received.encode() == bytes, "{}", told());
            assert!(!bytes.contains(&b'\n'), "{}", told());
        }
    }
}

#[test]
fn an_outcome_is_the_same_again_when_it_was_sent() {
    for seed in 0..20 {
        let outcome = Make(Random::new(seed)).outcome();
        let text = serde_json::to_string(&outcome).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
    }
}

#[test]
fn what_is_no_event_is_refused_by_kind() {
    let envelope = Envelope::new(ClockName("monotonic".into()), Event::RunStarts(Nanos(7)));
    let text = String::from_utf8(envelope.encode()).unwrap();
    let decode = |text: &str| Envelope::decode(text.as_bytes()).unwrap_err();
    assert!(matches!(
        decode(&text.replace("\"version\":2", "\"version\":9")),
        EnvelopeError::Version(9)
    ));
    assert!(matches!(
        decode(&text.replace("run-starts", "run-stops")),
        EnvelopeError::Malformed(_)
    ));
    for end in 0..text.len() {
        assert!(
            matches!(decode(&text[..end]), EnvelopeError::Malformed(_)),
            "{end}"
        );
    }
}
