//! The thread of an agent's run: prepares a load, runs it, and forwards its workers' reports. Started by
//! [`crate::agent_run`].
//!
//! The rule: workers never wait for the controller. Workers' reports are accepted immediately; if the controller
//! doesn't read them, the connection ends (`StreamError::Full`), and the run with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::time::Duration;

use brunt_core::Nanos;
use brunt_load::block::journal_store::JournalStore;
use brunt_load::collect::WorkerMessage;
use brunt_load::load::{Finished, MessageSender, RunOrder, RunPart, RunningLoad};
use brunt_load::{LoadCommand, LoadError};
use brunt_protocol::{Assignment, FromHost, HostReady, LoadStep, REQUESTS_MAX};

use crate::agent_state::{AgentState, AssignedLoad, WorkError};
use crate::journals::StoredJournals;
use crate::spool::{RequestSpool, unnamed_file};

/// Maximum time until an order is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// An order to a run.
#[derive(Debug)]
pub(crate) enum AgentOrder {
    /// Start at this time on this machine's clock.
    Start(Nanos),
    /// Pass this command to the workers.
    Command(LoadCommand),
    /// Send the next requests of the record.
    SendRequests,
    /// Send the next part of the journals.
    SendJournal,
    /// End the run, and confirm that.
    Release,
}

/// The thread of a run: its orders, and where its news goes.
pub(crate) struct RunThread<'a> {
    pub agent_state: &'a AgentState,
    pub orders: &'a Receiver<AgentOrder>,
    pub news: &'a SyncSender<FromHost>,
    pub stop: &'a AtomicBool,
}

/// A prepared run. The inbox is dropped first, because workers may block while it is full.
struct Working {
    inbox: Receiver<WorkerMessage<LoadError>>,
    load: Box<dyn RunningLoad>,
    /// The request record, if the load keeps one.
    record: Option<RequestSpool>,
    /// Journals of acknowledged writes, if the load keeps any.
    journal_store: Option<JournalStore>,
    /// The message to send when all workers are ready; `waiting` of them aren't yet.
    ready: Option<HostReady>,
    waiting: u32,
    /// Whether the run's workers have been started.
    started: bool,
}

/// Why forwarding of the workers' reports ended.
enum PassedOn {
    /// All workers have ended.
    All,
    /// The run was released.
    Released,
    /// The connection is gone.
    Stopped,
}

impl RunThread<'_> {
    /// Prepares the run and forwards reports until all workers have ended (returns `false`) or the run is released
    /// (`true`).
    pub fn work(&self, assignment: &Assignment) -> Result<bool, WorkError> {
        if assignment.step == LoadStep::Close {
            self.agent_state.close(assignment)?;
            return self.stop_here(HostReady::default());
        }
        let AssignedLoad { load, on, notes } = self.agent_state.assigned(assignment)?;
        if load.is_opened() {
            let notes = load.open(&on, self.stop)?;
            if assignment.step == LoadStep::Open {
                return self.stop_here(HostReady {
                    notes,
                    engine: None,
                    ring: None,
                    trace: load.input_digest()?,
                });
            }
        }
        let Some(mut working) = self.prepare(assignment, AssignedLoad { load, on, notes })? else {
            return Ok(false);
        };
        match self.pass_on(&mut working) {
            Ok(PassedOn::All) => self.conclude(working),
            Ok(PassedOn::Released) => Ok(true),
            Ok(PassedOn::Stopped) => Ok(false),
            Err(error) => self.fail(working, error),
        }
    }

    /// Prepares the assigned load; `None` if it was interrupted.
    fn prepare(
        &self,
        assignment: &Assignment,
        assigned: AssignedLoad,
    ) -> Result<Option<Working>, WorkError> {
        let AssignedLoad { load, on, notes } = assigned;
        let (part, records) = (
            part_of(assignment, load.reporters())?,
            load.records_requests(),
        );
        let journal_store = assignment.journals.then(new_journal_store);
        let (run, alone) = (assignment.run, RunOrder::alone(assignment.seed));
        let order = RunOrder {
            run,
            part: Some(part),
            journal_store: journal_store.clone(),
            ..alone
        };
        let (messages, inbox) = MessageSender::new();
        let (prepared, load) = match load.prepare(&on, &order, messages, self.stop) {
            Err(LoadError::Interrupted) => return Ok(None),
            made => made?,
        };
        let record = if records { Some(new_record()?) } else { None };
        let ready = HostReady {
            notes,
            engine: prepared.engine,
            ring: prepared.ring.filter(|ring| !ring.trials.is_empty()),
            trace: None,
        };
        Ok(Some(Working {
            inbox,
            load,
            record,
            journal_store,
            ready: Some(ready),
            waiting: prepared.workers,
            started: false,
        }))
    }

    /// Reports the end of a run whose workers have all ended, and sends its record and journals on request.
    fn conclude(&self, working: Working) -> Result<bool, WorkError> {
        let Working {
            load,
            record,
            journal_store,
            ..
        } = working;
        let Finished {
            troubles,
            page_cache,
            replay_part: replay,
            ..
        } = load.finish();
        if let Some(record) = &record {
            let _ = self.news.send(FromHost::Recorded(record.end()));
        }
        let journals = journal_store
            .map(|journal_store| self.offer(journal_store))
            .transpose()?;
        let _ = self.news.send(FromHost::Done {
            troubles,
            page_cache,
            replay,
        });
        self.hand_over(record, journals, false)
    }

    /// Forwards workers' reports until all of them have ended.
    fn pass_on(&self, working: &mut Working) -> Result<PassedOn, WorkError> {
        loop {
            if self.obey(working) {
                return Ok(PassedOn::Released);
            }
            if self.stop.load(Ordering::Relaxed) {
                return Ok(PassedOn::Stopped);
            }
            let news = match working.inbox.recv_timeout(POLL_INTERVAL) {
                Ok(WorkerMessage::Ready) => {
                    working.waiting -= 1;
                    match working.ready.take_if(|_| working.waiting == 0) {
                        Some(ready) => FromHost::Ready(ready),
                        None => continue,
                    }
                }
                Ok(WorkerMessage::Interval(worker, interval)) => FromHost::Interval {
                    worker,
                    interval: self.agent_state.shifted_interval(interval),
                },
                Ok(WorkerMessage::Done(worker, result)) => FromHost::Ended {
                    worker,
                    outcome: self.agent_state.shifted_outcome((*result)?),
                },
                Ok(WorkerMessage::Requests(_, batch)) => {
                    working
                        .record
                        .as_mut()
                        .expect("only a load that keeps a record sends requests")
                        .push(&batch);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(PassedOn::All),
            };
            if self.news.send(news).is_err() {
                return Ok(PassedOn::Stopped);
            }
        }
    }

    /// Handles a failed worker. Reporting the failure ends the connection, so the journals of all workers are sent
    /// first.
    fn fail(&self, working: Working, error: WorkError) -> Result<bool, WorkError> {
        let Working {
            inbox,
            load,
            journal_store,
            started,
            ..
        } = working;
        // Unblocks workers that wait for space in the inbox, so that they can end.
        drop(inbox);
        drop(load);
        if let Some(journal_store) = journal_store.filter(|_| started)
            && self.hand_over(None, Some(self.offer(journal_store)?), true)?
        {
            return Ok(true);
        }
        Err(error)
    }

    /// Announces the lengths of all workers' journals.
    fn offer(&self, journal_store: JournalStore) -> Result<StoredJournals, WorkError> {
        let journals =
            StoredJournals::new(journal_store).map_err(|source| broken_journal("read", source))?;
        let _ = self
            .news
            .send(FromHost::Journals(journals.lengths().to_vec()));
        Ok(journals)
    }

    /// There is no run to wait for: the load only had to be opened or closed.
    fn stop_here(&self, ready: HostReady) -> Result<bool, WorkError> {
        let _ = self.news.send(FromHost::Ready(ready));
        Ok(false)
    }

    /// Sends the record and the journals in pieces, each on request, until the run is released (`true`) or the
    /// connection is gone; with `once`, only until all journals are sent.
    fn hand_over(
        &self,
        mut record: Option<RequestSpool>,
        mut journals: Option<StoredJournals>,
        once: bool,
    ) -> Result<bool, WorkError> {
        for order in self.orders {
            let news = match order {
                AgentOrder::Release => return Ok(true),
                AgentOrder::SendRequests => {
                    let Some(record) = &mut record else { continue };
                    let failed = |source| broken_record("read", source);
                    let requests = record.take(REQUESTS_MAX).map_err(failed)?;
                    let requests = requests
                        .into_iter()
                        .map(|one| self.agent_state.shifted_request(one))
                        .collect();
                    FromHost::Requests(requests)
                }
                AgentOrder::SendJournal => {
                    let part = journals.as_mut().map(StoredJournals::take).transpose();
                    let part = part
                        .map_err(|source| broken_journal("read", source))?
                        .flatten();
                    let Some((worker, bytes)) = part else {
                        continue;
                    };
                    FromHost::Journal { worker, bytes }
                }
                AgentOrder::Start(_) | AgentOrder::Command(_) => continue,
            };
            if self.news.send(news).is_err() {
                return Ok(false);
            }
            if once && journals.as_ref().is_none_or(StoredJournals::is_over) {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Carries out pending orders; returns whether the run was released.
    fn obey(&self, working: &mut Working) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(AgentOrder::Start(at)) => {
                    working.started = true;
                    working.load.start(at);
                }
                Ok(AgentOrder::Command(command)) => {
                    if let Err(error) = working.load.command(command) {
                        let _ = self.news.send(FromHost::Note(error.to_string()));
                    }
                }
                // The controller requests these only after they have been announced.
                Ok(AgentOrder::SendRequests | AgentOrder::SendJournal) => {}
                Ok(AgentOrder::Release) => return true,
                Err(TryRecvError::Empty) => return false,
                // The connection has ended.
                Err(TryRecvError::Disconnected) => {
                    self.stop.store(true, Ordering::Relaxed);
                    return false;
                }
            }
        }
    }

    /// Waits until the run is released, or the sender is gone.
    pub fn is_released(&self) -> bool {
        self.orders
            .iter()
            .any(|order| matches!(order, AgentOrder::Release))
    }
}

/// Determines which of the run's workers are on this host.
///
/// # Errors
/// These workers exceed the run's, or the device is used neither by exactly these workers nor by all of the run's.
fn part_of(assignment: &Assignment, workers: u32) -> Result<RunPart, WorkError> {
    let Assignment {
        first_worker,
        workers_of_all,
        workers_on_device,
        ..
    } = *assignment;
    let part = RunPart {
        first_worker,
        workers_of_all,
        workers_on_device,
    };
    let fits = first_worker
        .checked_add(workers)
        .is_some_and(|end| end <= workers_of_all);
    let shares = [workers, workers_of_all].contains(&workers_on_device);
    if fits && shares {
        Ok(part)
    } else {
        Err(WorkError::Part(part, workers))
    }
}

fn new_record() -> Result<RequestSpool, WorkError> {
    RequestSpool::create(&std::env::temp_dir()).map_err(|source| broken_record("make", source))
}

fn new_journal_store() -> JournalStore {
    JournalStore::new(Box::new(|| unnamed_file(&std::env::temp_dir(), "journal")))
}

fn broken_journal(what: &'static str, source: std::io::Error) -> WorkError {
    WorkError::Journals {
        what,
        folder: std::env::temp_dir(),
        source,
    }
}

fn broken_record(what: &'static str, source: std::io::Error) -> WorkError {
    WorkError::Record {
        what,
        folder: std::env::temp_dir(),
        source,
    }
}
