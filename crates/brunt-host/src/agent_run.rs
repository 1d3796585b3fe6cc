//! The run of an agent: prepares a load, runs it, and forwards its workers' reports. Driven by [`crate::connection`],
//! on a separate thread, because opening a device may take longer than a controller waits for a clock reply.
//!
//! The rule: workers never wait for the controller. Their reports are accepted immediately; if the controller doesn't
//! read them, the connection ends (`StreamError::Full`), and the run with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel,
};
use std::time::Duration;

use brunt_core::Nanos;
use brunt_load::block::journal_store::JournalStore;
use brunt_load::collect::WorkerMessage;
use brunt_load::load::{Finished, MessageSender, RunOrder, RunPart, RunningLoad};
use brunt_load::{LoadCommand, LoadError};
use brunt_protocol::{Assignment, FromHost, HostReady, LoadStep, REQUESTS_MAX};

use crate::agent_state::{AgentState, AssignedLoad, WorkError};
use crate::agent_thread::AgentThread;
use crate::journals::StoredJournals;
use crate::spool::{RequestSpool, unnamed_file};

/// Capacity of the channel to the connection's thread, which drains it many times a second.
const NEWS_MAX: usize = 64;
/// Maximum time until an order is noticed.
const LOOK: Duration = Duration::from_millis(20);

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

/// A run, from its assignment to its release. Dropping it ends the run.
#[derive(Debug)]
pub(crate) struct AgentRun {
    orders: Sender<AgentOrder>,
    /// Dropped with the run, so that its thread doesn't block on a channel that is no longer read.
    news: Receiver<FromHost>,
    stop: Arc<AtomicBool>,
    thread: AgentThread,
}

impl AgentRun {
    /// Starts preparing the run.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn begin(
        assignment: Assignment,
        agent_state: &Arc<AgentState>,
    ) -> std::io::Result<AgentRun> {
        let (orders, told) = channel();
        let (sender, news) = sync_channel(NEWS_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let (agent_state, stopped) = (Arc::clone(agent_state), Arc::clone(&stop));
        let work = move || {
            let desk = Desk {
                agent_state: &agent_state,
                orders: &told,
                news: &sender,
                stop: &stopped,
            };
            let released = desk.work(&assignment).unwrap_or_else(|error| {
                let _ = sender.send(FromHost::Failed {
                    kind: error.kind(),
                    what: error.to_string(),
                });
                false
            });
            if released || desk.is_released() {
                let _ = sender.send(FromHost::Released);
            }
        };
        let thread = AgentThread::spawn("run", work)?;
        Ok(AgentRun {
            orders,
            news,
            stop,
            thread,
        })
    }

    /// Sends an order. It has no effect if the run has ended.
    pub fn tell(&self, order: AgentOrder) {
        if let AgentOrder::Release = order {
            self.stop.store(true, Ordering::Relaxed);
        }
        let _ = self.orders.send(order);
    }

    /// Whether the thread has ended. If [`FromHost::Released`] is not among its last messages, it panicked.
    pub fn is_over(&self) -> bool {
        self.thread.is_over()
    }

    /// The messages since the last call.
    pub fn news(&self) -> impl Iterator<Item = FromHost> {
        self.news.try_iter()
    }
}

impl Drop for AgentRun {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The shared state of a run's thread.
struct Desk<'a> {
    agent_state: &'a AgentState,
    orders: &'a Receiver<AgentOrder>,
    news: &'a SyncSender<FromHost>,
    stop: &'a AtomicBool,
}

/// A prepared run. Workers may block on a full inbox, so it is dropped first.
struct Working {
    inbox: Receiver<WorkerMessage<LoadError>>,
    load: Box<dyn RunningLoad>,
    /// The request record, if the load keeps one.
    record: Option<RequestSpool>,
    /// Journals of acknowledged writes, if the load keeps any.
    journal_store: Option<JournalStore>,
    /// The message to send when all workers are ready; `waiting` of them are not.
    ready: Option<HostReady>,
    waiting: u32,
    /// Whether its workers have been started.
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

impl Desk<'_> {
    /// Prepares the run and forwards reports until all workers have ended or the run is released; `true` in the latter
    /// case.
    fn work(&self, assignment: &Assignment) -> Result<bool, WorkError> {
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
            Err(LoadError::Interrupted) => return Ok(false),
            made => made?,
        };
        let record = if records { Some(new_record()?) } else { None };
        let ring = prepared.ring.filter(|ring| !ring.trials.is_empty());
        let (ready, waiting) = (
            Some(HostReady {
                notes,
                engine: prepared.engine,
                ring,
                trace: None,
            }),
            prepared.workers,
        );
        let mut working = Working {
            inbox,
            load,
            record,
            journal_store,
            ready,
            waiting,
            started: false,
        };
        match self.pass_on(&mut working) {
            Ok(PassedOn::All) => {}
            Ok(PassedOn::Released) => return Ok(true),
            Ok(PassedOn::Stopped) => return Ok(false),
            Err(error) => return self.fail(working, error),
        }
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
            let news = match working.inbox.recv_timeout(LOOK) {
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
                        .expect("only a load that records has a recording")
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

    /// There is no run to wait for: the load was only to be opened or closed.
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
                // The controller only requests these after they have been announced.
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
    fn is_released(&self) -> bool {
        self.orders
            .iter()
            .any(|order| matches!(order, AgentOrder::Release))
    }
}

/// Determines which of the run's workers are on this host.
///
/// # Errors
/// The run has fewer workers, or the device's workers are neither all of them nor exactly these.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AllowList;
    use crate::agent_thread::END_LOOK;
    use brunt_load::LOADS;
    use brunt_protocol::FailureKind;
    use brunt_result::{Outcome, RequestRecord};

    fn assignment(kind: &str, load: &str) -> Assignment {
        Assignment {
            run: 1,
            seed: 1,
            first_worker: 0,
            workers_of_all: 2,
            workers_on_device: 2,
            kind: kind.into(),
            load: load.into(),
            member: String::new(),
            step: LoadStep::Run,
            target: brunt_protocol::Secret(String::new()),
            overwrite: false,
            journals: false,
            joined: Vec::new(),
        }
    }

    /// Runs this load on this device, with an agent that may open `allow`. Returns all messages until the release.
    fn run(
        load: &str,
        target: &str,
        allow: &AllowList,
        change: impl FnOnce(&mut Assignment),
    ) -> Vec<FromHost> {
        let target = brunt_protocol::Secret(target.into());
        let mut assignment = Assignment {
            target,
            ..assignment("block", load)
        };
        change(&mut assignment);
        let agent_state = Arc::new(AgentState::new(
            Arc::new(allow.clone()),
            &[],
            1_000_000_000_000,
        ));
        let records = load.contains("record_requests");
        until_release(
            AgentRun::begin(assignment, &agent_state).unwrap(),
            records,
            LoadStep::Run,
        )
    }

    /// Starts the run when it is ready, and fetches the request record if there is one.
    fn until_release(run: AgentRun, records: bool, step: LoadStep) -> Vec<FromHost> {
        let mut said = Vec::new();
        loop {
            let before = said.len();
            said.extend(run.news());
            for news in &said[before..] {
                match news {
                    // Nothing more would follow.
                    FromHost::Ready(_) if step != LoadStep::Run => run.tell(AgentOrder::Release),
                    FromHost::Ready(_) => {
                        run.tell(AgentOrder::Start(brunt_core::Clock::Monotonic.now()))
                    }
                    FromHost::Recorded(_) => run.tell(AgentOrder::SendRequests),
                    FromHost::Requests(piece) if piece.is_empty() => run.tell(AgentOrder::Release),
                    FromHost::Requests(_) => run.tell(AgentOrder::SendRequests),
                    FromHost::Done { .. } if !records => run.tell(AgentOrder::Release),
                    FromHost::Failed { .. } => run.tell(AgentOrder::Release),
                    FromHost::Released => return said,
                    _ => {}
                }
            }
            std::thread::sleep(END_LOOK);
        }
    }

    const LOAD: &str = "workers = 2\nstop = { requests = 100 }";

    fn failure(said: &[FromHost]) -> (FailureKind, &str) {
        match &said[0] {
            FromHost::Failed { kind, what } => (*kind, what),
            other => panic!("{other:?}"),
        }
    }

    /// Ready first, then each worker's figures on the agent's clock, then the workers' ends, once each.
    #[test]
    fn a_run_reports_ready_then_figures_then_ends() {
        let before = brunt_core::Clock::Monotonic.now();
        let said = run(LOAD, "memory:1MiB", &AllowList::everything(), |_| {});
        assert!(matches!(said[0], FromHost::Ready(_)), "{said:?}");
        let ended: Vec<(u32, &Outcome)> = said
            .iter()
            .filter_map(|news| match news {
                FromHost::Ended { worker, outcome } => Some((*worker, &**outcome)),
                _ => None,
            })
            .collect();
        assert_eq!(ended.len(), 2);
        assert_eq!(
            ended
                .iter()
                .map(|(_, outcome)| outcome.figures.completed())
                .sum::<u64>(),
            100
        );
        for (_, outcome) in &ended {
            let shift = outcome.start.since(before).as_secs();
            assert!(
                (1000..1100).contains(&shift),
                "on a clock that is 1000 s ahead: {shift} s"
            );
        }
        assert!(
            matches!(
                said[said.len() - 2..],
                [FromHost::Done { .. }, FromHost::Released]
            ),
            "{said:?}"
        );
    }

    /// The record stays on the host until it is requested. Its times are on the host's clock, and its workers are
    /// numbered across all hosts.
    #[test]
    fn a_record_is_kept_until_it_is_asked_for() {
        let load = "record_requests = true\nverify = {}\nread = 0.5\nstop = { requests = 3001 }";
        let before = brunt_core::Clock::Monotonic.now();
        let said = run(
            load,
            "memory:1MiB",
            &AllowList::everything(),
            |assignment| {
                assignment.first_worker = 1;
            },
        );
        let end = said.iter().find_map(|news| match news {
            FromHost::Recorded(end) => Some(end.clone()),
            _ => None,
        });
        assert_eq!(
            end,
            Some(brunt_protocol::RecordEnd {
                kept: 1500,
                ..Default::default()
            })
        );
        let pieces: Vec<&Vec<RequestRecord>> = said
            .iter()
            .filter_map(|news| match news {
                FromHost::Requests(requests) => Some(requests),
                _ => None,
            })
            .collect();
        assert_eq!(
            pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>(),
            [1024, 476, 0]
        );
        let requests = pieces.into_iter().flatten();
        for (index, request) in requests.enumerate() {
            assert_eq!((request.worker, request.index), (1, index as u64));
            let shift = request.completed.unwrap().since(before).as_secs();
            assert!(
                (1000..1100).contains(&shift) && request.sent >= Some(request.intended),
                "{request:?}"
            );
        }
    }

    /// With half of the workers, the requests are that half's share, not those of a separate run.
    #[test]
    fn a_part_sends_its_share_of_the_requests() {
        let completed = |first| {
            let said = run(
                "stop = { requests = 101 }",
                "null:1MiB",
                &AllowList::everything(),
                |assignment| {
                    assignment.first_worker = first;
                },
            );
            said.iter()
                .map(|news| match news {
                    FromHost::Ended { outcome, .. } => outcome.figures.completed(),
                    _ => 0,
                })
                .sum::<u64>()
        };
        assert_eq!([completed(0), completed(1)], [51, 50]);
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        let mut held = vec![0; 1 << 20];
        held[510..512].copy_from_slice(b"\x55\xaa");
        std::fs::write(&disk, held).unwrap();
        let disk = disk.display().to_string();
        let all = AllowList::everything();
        let memory = AllowList::only(["memory:"], &[]).unwrap();
        let writes = format!("{LOAD}\nread = 0.5");
        let check = |load: &str, target: &str, allow: &AllowList, kind, words: &str| {
            let said = run(load, target, allow, |_| {});
            let (found, what) = failure(&said);
            assert!(
                found == kind && what.contains(words),
                "{words}: {found:?} {what}"
            );
        };
        check(LOAD, &disk, &memory, FailureKind::NotAllowed, "memory:");
        check(
            &writes,
            &disk,
            &all,
            FailureKind::NotAllowed,
            "an MBR partition table",
        );
        check(
            LOAD,
            "memory:4KiB?nonsense=1",
            &all,
            FailureKind::Refused,
            "no option",
        );
        check(
            "nonsense = 1",
            "memory:1MiB",
            &all,
            FailureKind::Refused,
            "unknown field",
        );
        check(
            &format!("{LOAD}\nblocks = [{{ size = \"4MiB\" }}]"),
            "memory:1MiB",
            &all,
            FailureKind::Refused,
            "region",
        );
        let journal = format!("{writes}\nverify = {{ journal = \"/tmp/never\" }}");
        check(
            &journal,
            "memory:1MiB",
            &all,
            FailureKind::Refused,
            "verify.journal",
        );
        let other = |change: fn(&mut Assignment)| {
            let said = run(LOAD, "memory:1MiB", &all, change);
            failure(&said).0
        };
        for kind in LOADS {
            let load = format!("hosts = [\"a\"]\n{}", kind.example);
            let said = run(&load, "memory:1MiB", &all, |assignment| {
                assignment.kind = kind.name.into();
            });
            let (found, what) = failure(&said);
            assert!(
                found == FailureKind::Refused && what.contains("hosts"),
                "{}: {what}",
                kind.name
            );
        }
        assert_eq!(
            other(|assignment| assignment.kind = "file".into()),
            FailureKind::Refused
        );
        assert_eq!(
            other(|assignment| assignment.kind = "nonsense".into()),
            FailureKind::Refused
        );
        assert_eq!(
            other(|assignment| assignment.first_worker = 1),
            FailureKind::Refused
        );
        assert_eq!(
            other(|assignment| assignment.first_worker = u32::MAX),
            FailureKind::Refused
        );
        assert_eq!(
            other(|assignment| assignment.workers_on_device = 0),
            FailureKind::Refused
        );
        let said = run(&writes, &disk, &all, |assignment| {
            assignment.overwrite = true
        });
        assert!(matches!(said[0], FromHost::Ready(_)), "{said:?}");
    }

    /// Phases on a file system share their folder from the first to the last, inside an allowed folder.
    #[test]
    fn phases_of_a_file_system_share_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        let there = || std::fs::read_dir(folder.path()).unwrap().count();
        let text = format!(
            "directory = \"{}\"\nphases = [\"write-blocks\", \"read-blocks\"]\nfile_size = \"1MiB\"",
            folder.path().display()
        );
        let allow = AllowList::only([folder.path().to_str().unwrap()], &[]).unwrap();
        let agent_state =
            |allow: &AllowList| Arc::new(AgentState::new(Arc::new(allow.clone()), &[], 0));
        let shared = agent_state(&allow);
        let said = |agent_state: &Arc<AgentState>, member: &str, step| {
            let assignment = Assignment {
                member: member.into(),
                step,
                ..assignment("file", &text)
            };
            until_release(
                AgentRun::begin(assignment, agent_state).unwrap(),
                false,
                step,
            )
        };
        let open = said(&shared, "write-blocks", LoadStep::Open);
        // In a virtual machine there is another note about the CPU.
        assert!(
            matches!(&open[..], [FromHost::Ready(ready), FromHost::Released] if ready.notes.len() >= 2)
        );
        assert_eq!(there(), 1);
        for phase in ["write-blocks", "read-blocks"] {
            let said = said(&shared, phase, LoadStep::Run);
            let completed = said.iter().find_map(|news| match news {
                FromHost::Ended { outcome, .. } => Some(outcome.figures.completed()),
                _ => None,
            });
            assert_eq!(completed, Some(128), "{said:?}");
            assert!(said.iter().any(|news| matches!(
                news,
                FromHost::Done {
                    page_cache: Some(_),
                    ..
                }
            )));
        }
        assert_eq!(there(), 1, "one folder for all");
        assert!(matches!(
            said(&shared, "", LoadStep::Close)[0],
            FromHost::Ready(_)
        ));
        assert_eq!(there(), 0, "nothing is left");
        assert_eq!(
            failure(&said(&shared, "seeks", LoadStep::Open)).0,
            FailureKind::Refused
        );
        let elsewhere = AllowList::only(["/proc"], &[]).unwrap();
        let refused = said(&agent_state(&elsewhere), "write-blocks", LoadStep::Open);
        assert_eq!(failure(&refused).0, FailureKind::NotAllowed);
        assert_eq!(there(), 0);
    }

    /// Dropping a run in progress ends its workers.
    #[test]
    fn a_dropped_run_ends() {
        let assignment = Assignment {
            run: 1,
            seed: 1,
            first_worker: 0,
            workers_of_all: 1,
            workers_on_device: 1,
            kind: "block".into(),
            load: "interval = \"10ms\"\nstop = { time = \"1h\" }".into(),
            member: String::new(),
            step: LoadStep::Run,
            target: brunt_protocol::Secret("memory:1MiB".into()),
            overwrite: false,
            journals: false,
            joined: Vec::new(),
        };
        let agent_state = Arc::new(AgentState::new(Arc::new(AllowList::everything()), &[], 0));
        let run = AgentRun::begin(assignment, &agent_state).unwrap();
        let wait = |wanted: fn(&FromHost) -> bool| {
            while !run.news().any(|news| wanted(&news)) {
                std::thread::sleep(END_LOOK);
            }
        };
        wait(|news| matches!(news, FromHost::Ready(_)));
        run.tell(AgentOrder::Start(brunt_core::Clock::Monotonic.now()));
        wait(|news| matches!(news, FromHost::Interval { .. }));
        drop(run);
        assert_eq!(agent_state.holders(), Some(1), "no worker has the device");
    }
}
