//! The thread that writes the tables: it receives events and writes rows. It only handles events, and has no access
//! to workers.
//!
//! The rule: after the first error nothing more is measured (the observer reports the error), but everything received
//! until then is still written as far as there is space, and lost rows are counted.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use brunt_core::{Clock, Histogram, Nanos};
use brunt_lake::{Batch, LakeError, Table, TableWriter, Workspace, WriterOptions};

use brunt_result::event::{Event, FaultRecord, JobEvent, RunInfo, Sample};
use brunt_result::summary::RunSummary;
use brunt_result::tables::histograms::Extent;
use brunt_result::tables::{
    RunOrigin, TABLES, degradation, environment, faults, histograms, indexes, intervals, phases,
    points, probes, profiles, replay, requests, runs, transfer,
};

use brunt_result::{Figures, Interval};

use super::room::Room;
use super::{Trouble, environment as gathered};

/// Interval between checks for rows that are due.
const TICK: Duration = Duration::from_millis(100);
/// Maximum time, plus one check interval, until rows of a small part are written to a file.
const AGE_MIN: Duration = Duration::from_millis(900);
/// Maximum time, plus one check interval, until rows of a full part are written to a file.
const AGE_MAX: Duration = Duration::from_secs(2);
/// Maximum memory for a table's open part, except for `requests`: a long run's memory grows by this much until its
/// parts are full.
const PART_BYTES_MAX: usize = 4 << 20;
/// Maximum time until a request is written to a file, even if there are few requests. Together with the time for
/// which workers hold requests, this loses less than the last second of requests if a run is killed.
const REQUESTS_AGE_MAX: Duration = Duration::from_millis(500);
/// Maximum number of samples from before a run's start that are held until the start is known; the oldest are dropped
/// first.
const SAMPLES_MAX: usize = 4096;

/// The tables' writers, and the state of the experiment.
pub struct ResultWriter {
    tables: Tables,
    text: String,
    run: Option<Run>,
    extent: Extent,
    /// For simultaneous jobs: the open extent of each job, by the number of the job's run.
    job_extents: BTreeMap<u32, Extent>,
    scratch: [Histogram; 2],
    /// Whether an interval has been received and is on disk.
    has_interval: bool,
    trouble: Trouble,
    error: Option<LakeError>,
    room: Room,
}

/// One writer for each of [`TABLES`].
struct Tables(Vec<TableWriter>);

/// The current run.
struct Run {
    info: Arc<RunInfo>,
    /// `None` until the workers start.
    moment: Option<RunOrigin>,
    /// Samples from before the workers' start.
    samples: Vec<Arc<Sample>>,
    /// Faults in effect.
    faults: Vec<Arc<FaultRecord>>,
}

impl Tables {
    fn of(&mut self, table: &Table) -> &mut Batch {
        self.0[place(table)].rows()
    }

    /// The rows of two tables, borrowed together.
    fn both(&mut self, first: &Table, second: &Table) -> [&mut Batch; 2] {
        let both = self.0.get_disjoint_mut([place(first), place(second)]);
        both.expect("two tables").map(TableWriter::rows)
    }
}

fn place(table: &Table) -> usize {
    TABLES
        .iter()
        .position(|known| known.name == table.name)
        .expect("every table is in TABLES")
}

impl ResultWriter {
    /// Creates empty tables.
    pub fn create(folder: &Path, text: &str, trouble: Trouble) -> io::Result<ResultWriter> {
        let room = Room::take(folder)?;
        // All tables are written by this thread, one after another.
        let workspace = Workspace::default();
        let create = |table: &'static Table| {
            let mut options = WriterOptions {
                age_min: AGE_MIN,
                age_max: AGE_MAX,
                bytes_max: PART_BYTES_MAX,
                workspace: workspace.clone(),
                ..WriterOptions::default()
            };
            if table.name == requests::TABLE.name {
                options.bytes_max = WriterOptions::default().bytes_max;
                (options.age_min, options.age_max) = (REQUESTS_AGE_MAX, REQUESTS_AGE_MAX);
            }
            TableWriter::create(folder, table, options)
        };
        let tables = TABLES
            .iter()
            .map(|table| create(table))
            .collect::<Result<_, _>>()
            .map_err(plain)?;
        Ok(ResultWriter {
            tables: Tables(tables),
            text: text.to_string(),
            run: None,
            extent: Extent::default(),
            job_extents: BTreeMap::new(),
            scratch: Default::default(),
            has_interval: false,
            trouble,
            error: None,
            room,
        })
    }

    /// Runs until the sender of `inbox` is dropped, then completes the tables.
    pub fn keep(mut self, inbox: &Receiver<Event>) -> io::Result<()> {
        loop {
            match inbox.recv_timeout(TICK) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.finish(),
            }
            if self.error.is_none()
                && let Err(error) = self.commit()
            {
                self.fail(error);
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Begins(summary) => {
                let [points, axes] = self.tables.both(&points::TABLE, &points::AXES);
                points::append(points, axes, &summary);
                gathered::append(self.tables.of(&environment::TABLE), &summary, &self.text);
            }
            Event::RunBegins(info) => {
                self.run = Some(Run {
                    info,
                    moment: None,
                    samples: Vec::new(),
                    faults: Vec::new(),
                })
            }
            Event::RunStarts(start) => self.start(start),
            Event::Interval(interval) => {
                if let Some(moment) = self.moment() {
                    self.keep_interval(&moment, &interval);
                    self.extent
                        .add(self.tables.of(&histograms::TABLE), &moment, &interval);
                }
            }
            Event::Requests(batch) => {
                if let Some(moment) = self.moment() {
                    requests::append(self.tables.of(&requests::TABLE), &moment, &batch);
                }
            }
            Event::Sample(sample) => match self.moment() {
                Some(moment) => probes::append(self.tables.of(&probes::TABLE), &moment, &sample),
                None => {
                    let Some(run) = &mut self.run else { return };
                    if run.samples.len() == SAMPLES_MAX {
                        run.samples.remove(0);
                    }
                    run.samples.push(sample);
                }
            },
            Event::Fault(fault) => {
                // A fault is reported once its effect is proven, and again when it is gone.
                let Some(run) = &mut self.run else { return };
                run.faults.retain(|open| open.index != fault.index);
                run.faults.push(fault);
            }
            Event::RunEnds(info, run, figures) => {
                self.end_run();
                self.sum_up(&info, &run, &figures);
            }
            Event::Job(run, event) => self.take_job(run, event),
            // The observer closes the queue after this event.
            Event::Ends(summary) => {
                let [all, clients] = self.tables.both(&indexes::TABLE, &indexes::CLIENTS);
                indexes::append(all, clients, &summary);
            }
        }
    }

    /// Handles an event of one of several jobs, whose run has the number `run`.
    fn take_job(&mut self, run: u32, event: JobEvent) {
        match event {
            JobEvent::RunEnds(info, run, figures) => self.sum_up(&info, &run, &figures),
            JobEvent::Interval(interval) => {
                let Some(moment) = self.moment().map(|moment| RunOrigin { run, ..moment }) else {
                    return;
                };
                self.keep_interval(&moment, &interval);
                let extent = self.job_extents.entry(run).or_default();
                extent.add(self.tables.of(&histograms::TABLE), &moment, &interval);
            }
            JobEvent::Requests(batch) => {
                let Some(moment) = self.moment().map(|moment| RunOrigin { run, ..moment }) else {
                    return;
                };
                requests::append(self.tables.of(&requests::TABLE), &moment, &batch);
            }
        }
    }

    fn keep_interval(&mut self, moment: &RunOrigin, interval: &Interval) {
        let [all, ops] = self.tables.both(&intervals::TABLE, &intervals::OPS);
        intervals::append(all, ops, moment, interval, &mut self.scratch);
    }

    /// Adds the rows about a run as a whole.
    fn sum_up(&mut self, info: &RunInfo, run: &RunSummary, figures: &Figures) {
        runs::append(self.tables.of(&runs::TABLE), info, run, figures);
        degradation::append(self.tables.of(&degradation::TABLE), info, run);
        phases::append(self.tables.of(&phases::TABLE), info, run);
        replay::append(self.tables.of(&replay::TABLE), info, run);
        transfer::append(self.tables.of(&transfer::TABLE), info, run);
        let [stacks, times] = self.tables.both(&profiles::TABLE, &profiles::TIMES);
        profiles::append(stacks, times, info, run);
    }

    /// Writes the rows that are only known at the end of a run, even if the end was not reported, as for an invalid run.
    fn end_run(&mut self) {
        // If the run ended before its start, times count from when it was prepared.
        if let Some(Run {
            info, moment: None, ..
        }) = &self.run
        {
            self.start(info.ready);
        }
        if let Some(Run {
            moment: Some(moment),
            faults,
            ..
        }) = self.run.take()
        {
            self.extent.end(self.tables.of(&histograms::TABLE), &moment);
            for (run, mut extent) in std::mem::take(&mut self.job_extents) {
                extent.end(
                    self.tables.of(&histograms::TABLE),
                    &RunOrigin { run, ..moment },
                );
            }
            let rows = self.tables.of(&faults::TABLE);
            faults
                .iter()
                .for_each(|fault| faults::append(rows, &moment, fault));
        }
    }

    fn moment(&self) -> Option<RunOrigin> {
        self.run.as_ref()?.moment
    }

    /// The workers start; in a rate search, they may have started before.
    fn start(&mut self, start: Nanos) {
        let Some(run) = &mut self.run else { return };
        match &mut run.moment {
            Some(moment) => {
                self.extent.end(self.tables.of(&histograms::TABLE), moment);
                moment.trial += 1;
            }
            None => {
                let moment = RunOrigin {
                    run: run.info.order,
                    trial: 0,
                    origin: start,
                };
                run.moment = Some(moment);
                let rows = self.tables.of(&probes::TABLE);
                run.samples
                    .drain(..)
                    .for_each(|sample| probes::append(rows, &moment, &sample));
            }
        }
    }

    /// Writes the rows that are due; with the first interval, all rows.
    fn commit(&mut self) -> Result<(), LakeError> {
        if !self.has_interval && !self.tables.of(&intervals::TABLE).is_empty() {
            self.tables.0.iter_mut().try_for_each(TableWriter::flush)?;
            self.has_interval = true;
        }
        let now = Clock::Monotonic.now();
        self.tables
            .0
            .iter_mut()
            .try_for_each(|table| table.commit(now))
    }

    /// Reports the first error, and releases the disk space reserved for completing the tables.
    fn fail(&mut self, error: LakeError) {
        self.room.give_back();
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        self.error = Some(error);
    }

    /// Completes every table as far as there is space, the largest one last.
    fn finish(mut self) -> io::Result<()> {
        self.end_run();
        let mut lost = Vec::new();
        let (requests, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.tables.0)
            .into_iter()
            .partition(|table| table.name() == requests::TABLE.name);
        for mut table in others.into_iter().chain(requests) {
            let done = match table.finish() {
                Err(error) if self.error.is_none() => {
                    self.fail(error);
                    table.finish()
                }
                other => other,
            };
            if done.is_err() {
                table.give_up_rows();
                lost.push(format!("{} of {}", table.written().rows_lost, table.name()));
            }
        }
        let Some(error) = self.error else {
            return Ok(());
        };
        let told = if lost.is_empty() {
            String::new()
        } else {
            format!("; rows lost: {}", lost.join(", "))
        };
        let error = plain(error);
        Err(io::Error::new(error.kind(), format!("{error}{told}")))
    }
}

fn plain(error: LakeError) -> io::Error {
    let kind = if error.is_full() {
        io::ErrorKind::StorageFull
    } else {
        io::ErrorKind::Other
    };
    io::Error::new(kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    use brunt_lake::read_table;
    use brunt_result::OpKind;

    fn rows(folder: &Path) -> usize {
        let mut rows = 0;
        read_table(folder, &intervals::TABLE, |batch| rows += batch.rows()).unwrap();
        rows
    }

    /// The first interval is on disk as soon as it has been reported, before a second interval or the end.
    #[test]
    fn the_first_interval_is_on_disk_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = ResultWriter::create(folder.path(), "", Trouble::default()).unwrap();
        let info = RunInfo {
            order: 0,
            runs: 1,
            point: 0,
            label: "t w".into(),
            repetition: 0,
            seed: 1,
            wall: SystemTime::UNIX_EPOCH,
            ready: Nanos(0),
        };
        writer.take(Event::RunBegins(Arc::new(info)));
        writer.take(Event::RunStarts(Nanos(0)));
        writer.commit().unwrap();
        assert_eq!(rows(folder.path()), 0);
        let figures = Figures::of_kinds(&[OpKind::Read]);
        let interval = Interval {
            index: 0,
            start: Nanos(0),
            end: Nanos(1_000_000),
            figures,
            waiting: Histogram::default(),
        };
        writer.take(Event::Interval(Arc::new(interval)));
        writer.commit().unwrap();
        assert_eq!(rows(folder.path()), 1);
    }
}
