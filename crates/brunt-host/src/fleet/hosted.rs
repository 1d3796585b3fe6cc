//! What several hosts are given to do together: which loads can be, how each is sent to them, and what its runs promise.
//!
//! To add a kind of load: a variant here, and how an agent makes it ready in [`crate::bench`]. The rule: whatever the kind,
//! a host gets text that its own table of loads reads.

use std::path::PathBuf;

use brunt_load::block::{self, BlockLoad};
use brunt_load::file::{self, FileLoad};
use brunt_load::load::{LoadInfo, RunOrder};
use brunt_load::replay::{self, ReplayLoad};
use brunt_load::{Load, LoadCommand, LoadCommandError, Workload};
use brunt_protocol::LoadStep;
use brunt_result::OpKind;
use brunt_result::choice::{EngineSetting, RingMode};

/// A load that hosts share, or that each of them has for itself.
#[derive(Clone, Debug)]
pub(super) enum Hosted {
    /// Requests to a device, of which each host makes its share.
    Blocks(Box<Workload>),
    /// A phase on a file system of each host's own.
    Files(FileLoad),
    /// A trace, of whose requests each host sends its share.
    Replay(Box<ReplayLoad>),
}

/// A load as it is wanted for one run.
#[derive(Clone, Debug)]
pub(super) struct OrderedLoad {
    /// For the table of loads.
    pub text: String,
    /// Its name among those that this describes.
    pub member: String,
    /// Its kinds of operations.
    pub kinds: Vec<OpKind>,
    /// It keeps a record of requests.
    pub records: bool,
    /// Where journals of acknowledged writes of all hosts go here, if it keeps some.
    pub journals: Option<PathBuf>,
    /// Of each worker.
    pub queue_depth: u32,
    /// What its workload says; the hosts know what that means there.
    pub engine: Option<EngineSetting>,
    /// `None` of a load without rings.
    pub ring: Option<RingMode>,
    /// A workload that can be told more than to stop.
    workload: Option<Box<Workload>>,
}

impl Hosted {
    /// Its line in the table of loads.
    pub fn kind(&self) -> &'static str {
        match self {
            Hosted::Blocks(_) => block::KIND,
            Hosted::Files(_) => file::KIND,
            Hosted::Replay(_) => replay::KIND,
        }
    }

    /// Names of its hosts.
    pub fn hosts(&self) -> &[String] {
        match self {
            Hosted::Blocks(workload) => &workload.hosts,
            Hosted::Files(load) => &load.settings().hosts,
            Hosted::Replay(load) => &load.workload().hosts,
        }
    }

    /// How many workers of each host report.
    pub fn workers_each(&self) -> u32 {
        match self {
            Hosted::Blocks(workload) => workload.workers,
            // It speaks for all of its threads.
            Hosted::Files(_) => 1,
            Hosted::Replay(load) => load.workload().workers,
        }
    }

    /// How many report in all.
    pub fn workers_of_all(&self) -> u32 {
        self.workers_each() * self.hosts().len() as u32
    }

    /// What there is to know of all hosts together.
    pub fn info(&self) -> LoadInfo {
        match self {
            Hosted::Blocks(workload) => {
                let workers = workload.workers_of_all();
                BlockLoad::new(Workload {
                    hosts: Vec::new(),
                    workers,
                    ..(**workload).clone()
                })
                .info()
            }
            Hosted::Files(load) => self.on_all(load.info()),
            Hosted::Replay(load) => self.on_all(load.info()),
        }
    }

    fn on_all(&self, info: LoadInfo) -> LoadInfo {
        LoadInfo {
            workers: info.workers * self.hosts().len() as u32,
            ..info
        }
    }

    /// For people.
    pub fn describe(&self) -> String {
        match self {
            Hosted::Blocks(workload) => workload.describe(&[]),
            Hosted::Files(load) => format!("{}, on {}", load.describe(), self.hosts().join(" + ")),
            Hosted::Replay(load) => format!("{}, on {}", load.describe(), self.hosts().join(" + ")),
        }
    }

    /// Where requests of a host begin that has this first worker: workers of one run have one seed.
    pub fn seed(&self, seed: u64, first_worker: u32) -> u64 {
        match self {
            Hosted::Blocks(_) | Hosted::Replay(_) => seed,
            Hosted::Files(_) => seed.wrapping_add(u64::from(first_worker) << 32),
        }
    }

    /// Whether all runs of a host share something that is made before the first and taken away after the last.
    pub fn has_folder(&self) -> bool {
        matches!(self, Hosted::Files(_))
    }

    /// How far a host goes before the first run: preparing a phase on a file system may take very long, and of a trace it is
    /// to be known that it is the same.
    pub fn first_step(&self) -> LoadStep {
        match self {
            Hosted::Blocks(_) => LoadStep::Run,
            Hosted::Files(_) | Hosted::Replay(_) => LoadStep::Open,
        }
    }

    /// For a run.
    pub fn ordered(&self, order: &RunOrder) -> OrderedLoad {
        match self {
            Hosted::Blocks(workload) => {
                let here = Workload {
                    hosts: Vec::new(),
                    ..(**workload).clone()
                };
                let mut workload = BlockLoad::new(here).ordered(order);
                let journals = journals_of(&mut workload);
                OrderedLoad {
                    journals,
                    text: workload.written(),
                    member: String::new(),
                    kinds: workload.kinds(),
                    records: workload.record_requests,
                    queue_depth: workload.queue_depth,
                    engine: workload.engine,
                    ring: Some(workload.ring),
                    workload: Some(Box::new(workload)),
                }
            }
            Hosted::Replay(load) => {
                let mut here = Workload {
                    hosts: Vec::new(),
                    queue_depth: order.depth.unwrap_or(load.workload().queue_depth),
                    engine: order.engine.or(load.workload().engine),
                    ring: order.ring.unwrap_or(load.info().ring),
                    ..load.workload().clone()
                };
                here.keep_journals_apart(order.order);
                let journals = journals_of(&mut here);
                OrderedLoad {
                    journals,
                    text: here.written(),
                    member: String::new(),
                    kinds: load.info().kinds,
                    records: here.record_requests,
                    queue_depth: here.queue_depth,
                    engine: here.engine,
                    ring: Some(here.ring),
                    workload: None,
                }
            }
            Hosted::Files(load) => OrderedLoad {
                text: load.written(),
                member: load.phase().name().to_string(),
                kinds: load.phase().kinds().to_vec(),
                records: false,
                journals: None,
                queue_depth: 1,
                engine: None,
                ring: None,
                workload: None,
            },
        }
    }
}

/// The folder of its journals, which is one of this machine: other hosts are not told of it.
fn journals_of(workload: &mut Workload) -> Option<PathBuf> {
    workload
        .verify
        .as_mut()
        .and_then(|verify| verify.journal.take())
}

impl OrderedLoad {
    /// Whether its workers can obey a command.
    pub fn check_command(&self, command: LoadCommand) -> Result<(), LoadCommandError> {
        match (&self.workload, command) {
            (Some(workload), command) => workload.check_command(command),
            (None, LoadCommand::Stop) => Ok(()),
            (None, LoadCommand::Rate(_)) => Err(LoadCommandError::NoRate),
            (None, LoadCommand::Depth(_)) => Err(LoadCommandError::NoDepth),
        }
    }
}
