//! Runs of simultaneous jobs, as recorded by a study: the group's run has a number, and the runs of its jobs have the
//! following numbers.
//!
//! The rule: a job's run is part of the group's run, and is numbered after it.

use std::sync::Arc;

use brunt_load::load::{Finished, RunOrder};
use brunt_load::together::job_order;
use brunt_result::hosts::HostFigures;
use brunt_result::summary::RunSummary;
use brunt_result::{Interval, Outcome, RequestRecord};

use super::hosts;
use crate::experiment::Point;
use crate::observe::{Hub, JobEvent, RunInfo};
use brunt_result::event::Event;

/// The order for a run's load.
pub(super) fn order_of(info: &RunInfo) -> RunOrder {
    RunOrder {
        run: info.seed.wrapping_add(u64::from(info.order) << 32),
        order: Some(info.order),
        ..RunOrder::alone(info.seed)
    }
}

/// The run of a job, derived from the group's run.
pub(super) fn job_info(all: &RunInfo, index: usize, label: &str) -> RunInfo {
    let order = job_order(&order_of(all), index);
    RunInfo {
        order: order.order.unwrap_or(all.order),
        point: all.point + 1 + index as u32,
        label: label.to_string(),
        seed: order.seed,
        ..all.clone()
    }
}

/// The hosts of all jobs of a run, each with its job in its name.
pub(super) fn hosts_of_all(jobs: &[Point], finished: &[Finished]) -> Vec<HostFigures> {
    let of = |(job, finished): (&Point, &Finished)| {
        let named = |host: &HostFigures| HostFigures {
            name: format!("{} on {}", job.workload_name, host.name),
            ..host.clone()
        };
        finished
            .hosts
            .iter()
            .map(named)
            .collect::<Vec<HostFigures>>()
    };
    jobs.iter().zip(finished).flat_map(of).collect()
}

/// The summaries of the jobs' runs, from the jobs' own figures.
pub(super) fn summaries(
    all: &RunInfo,
    outcomes: &mut [Outcome],
    finished: Vec<Finished>,
) -> Vec<RunSummary> {
    let finished = finished
        .into_iter()
        .map(Some)
        .chain(std::iter::repeat_with(|| None));
    let summary = |(index, (outcome, finished)): (usize, (&mut Outcome, Option<Finished>))| {
        let info = job_info(all, index, "");
        let mut run = RunSummary::of(outcome, info.repetition, info.order, info.seed, None);
        if let Some(Finished {
            page_cache,
            replay,
            troubles,
            hosts,
            ..
        }) = finished
        {
            (run.page_cache, run.replay, run.troubles) = (page_cache, replay, troubles);
            hosts::add(&mut run, outcome, hosts);
        }
        if outcome.is_complete() && outcome.end <= outcome.start {
            run.doubts.push(
                "it was never measured: another job ended the run before (exit_all, ends_run)"
                    .into(),
            );
        }
        run
    };
    outcomes
        .iter_mut()
        .zip(finished)
        .enumerate()
        .map(summary)
        .collect()
}

/// Reports an interval of a job to observers.
pub(super) fn tell_interval(hub: &Hub, all: u32, job: usize, interval: &Interval) {
    hub.tell(&Event::Job(
        all + 1 + job as u32,
        JobEvent::Interval(Arc::new(interval.clone())),
    ));
}

/// Reports requests of a job to observers.
pub(super) fn tell_requests(hub: &Hub, all: u32, job: usize, batch: &[RequestRecord]) {
    hub.tell(&Event::Job(
        all + 1 + job as u32,
        JobEvent::Requests(batch.into()),
    ));
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use brunt_block::backends::memory::MemoryBackend;
    use std::io;
    use std::sync::Mutex;

    use crate::hooks::RunHooks;
    use crate::observe::Observer;

    const TEXT: &str = r#"
name = "at once"
repetitions = 4
[targets.disk]
url = "memory:1MiB"
[workloads.reader]
record_requests = true
stop = { requests = 300 }
[workloads.writer]
read = 0
stop = { requests = 100 }
[workloads.alone]
stop = { requests = 10 }
[together.mixed]
jobs = [{ workload = "reader", target = "disk" }, { workload = "writer", target = "disk" }]
"#;

    struct Keep(Arc<Mutex<Vec<Event>>>);
    impl Observer for Keep {
        fn event(&mut self, event: &Event) -> io::Result<()> {
            self.0.lock().unwrap().push(event.clone());
            Ok(())
        }
    }

    /// Each job has its own runs, and so has the group; numbers are unique, and observers see matching events.
    #[test]
    fn jobs_have_separate_runs() {
        let folder = tempfile::tempdir().unwrap();
        let experiment = Experiment::parse("x.toml", TEXT).unwrap();
        let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::new(1 << 20, 512).unwrap());
        let targets = BTreeMap::from([("disk".to_string(), memory)]);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let company = RunHooks {
            observers: vec![Box::new(Keep(Arc::clone(&seen)))],
            hooks: Vec::new(),
        };
        let study = Study::new(experiment, targets, "test", folder.path(), company);
        let summary = study.run(&AtomicBool::new(false)).unwrap();
        assert!(summary.complete, "{:?}", summary.trouble);
        let of = |label: &str| {
            summary
                .points
                .iter()
                .find(|point| point.label == label)
                .unwrap()
        };
        let (all, reader) = (of("disk mixed"), of("disk mixed/reader"));
        let writer = of("disk mixed/writer");
        assert_eq!(
            (&reader.part_of, &all.part_of),
            (&Some("disk mixed".to_string()), &None)
        );
        for index in 0..4 {
            let done = [all, reader, writer].map(|point| point.runs[index].completed());
            assert_eq!(done, [400, 300, 100]);
            let orders = [all, reader, writer].map(|point| point.runs[index].order);
            assert_eq!(orders, [orders[0], orders[0] + 1, orders[0] + 2]);
            let seeds = [all, reader, writer].map(|point| point.runs[index].seed);
            assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2]);
        }
        assert!(
            reader
                .requests_per_second
                .is_some_and(|rate| rate.runs == 4)
        );
        assert!(writer.response.is_some() && all.response_p99_us.is_some());
        let mut orders: Vec<u32> = summary
            .points
            .iter()
            .flat_map(|point| &point.runs)
            .map(|run| run.order)
            .collect();
        orders.sort_unstable();
        assert!(orders.into_iter().eq(0..16));
        let told = seen.lock().unwrap();
        for run in &reader.runs {
            let (mut intervals, mut requests, mut ends) = (0, 0, 0);
            for event in told.iter() {
                match event {
                    Event::Job(order, event) if *order == run.order => match event {
                        JobEvent::Interval(interval) => intervals += interval.figures.completed(),
                        JobEvent::Requests(batch) => requests += batch.len(),
                        JobEvent::RunEnds(info, ended, _) => {
                            assert_eq!((info.label.as_str(), &**ended), ("disk mixed/reader", run));
                            ends += 1;
                        }
                    },
                    _ => {}
                }
            }
            assert_eq!((intervals, requests, ends), (300, 300, 1));
        }
        assert!(
            told.iter()
                .all(|event| !matches!(event, Event::Requests(_))),
            "the writer records none"
        );
    }
}
