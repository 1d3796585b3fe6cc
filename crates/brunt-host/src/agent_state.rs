//! State shared by an agent's runs: permissions and open devices; also turns an assignment into a load on this host.
//! Used by [`crate::run_thread`].
//!
//! The rule: everything on this host that an assignment names is checked against the allow list before it is opened,
//! and a device that contains data is written only if that was permitted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brunt_block::backends::join::JoinedBackend;
use brunt_block::signature::{self, Signature, SignatureError};
use brunt_block::table::{BackendEntry, Permit, open_url_permitted};
use brunt_block::{Backend, OpenError};
use brunt_core::Nanos;
use brunt_load::load::{LoadTarget, RunPart};
use brunt_load::{
    HostedLoad, LoadContext, LoadError, ReadError, SharedInputs, WorkloadError, load_kind,
};
use brunt_protocol::{Assignment, FailureKind, JoinedTarget, Secret};
use brunt_result::{Interval, Outcome, RequestRecord};

use crate::allow::AllowList;
use crate::clock::moved;

/// Devices and file systems kept open across the runs of a connection; when full, all of them are closed first.
const OPEN_MAX: usize = 16;

/// State shared by runs.
pub(crate) struct AgentState {
    allow: Arc<AllowList>,
    backends: &'static [BackendEntry],
    /// Added to times on this host's clock.
    shift_ns: i64,
    open: Mutex<BTreeMap<DeviceKey, Arc<dyn Backend>>>,
    /// Loads whose runs share state on this host, kept until they are closed.
    kept: Mutex<BTreeMap<LoadKey, Vec<NamedHostedLoad>>>,
    /// The inputs for the loads of all runs: a trace is read only once.
    inputs: SharedInputs,
}

/// A load's kind and its description.
type LoadKey = (&'static str, String);

/// A load, and its name among the loads with the same description.
type NamedHostedLoad = (String, Arc<dyn HostedLoad>);

/// A URL, whether it will be written to, and whether its data may be lost.
type DeviceKey = (String, bool, bool);

/// A load that runs on this host.
pub(crate) struct AssignedLoad {
    pub load: Arc<dyn HostedLoad>,
    /// The load's target.
    pub on: LoadTarget,
    /// Remarks about the target for the user.
    pub notes: Vec<String>,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkError {
    #[error("unknown kind of load '{0}'")]
    Kind(String),
    #[error("{0}")]
    Read(#[from] ReadError),
    #[error("{0}")]
    Workload(#[from] WorkloadError),
    #[error("loads of kind '{0}' cannot run for a controller")]
    NotHere(&'static str),
    #[error("hosts: loads of kind '{0}' run on this host only, not for a controller")]
    NamesHosts(&'static str),
    #[error("loads of kind '{kind}' have no member '{member}'")]
    Member { kind: &'static str, member: String },
    #[error(
        "invalid share of the workers: {} workers from number {} on, of {} in total, {} of them on this device",
        .1, .0.first_worker, .0.workers_of_all, .0.workers_on_device
    )]
    Part(RunPart, u32),
    #[error("{0}")]
    Open(#[from] OpenError),
    #[error(
        "{name} contains {what}; to overwrite it, add to the experiment: allow_overwrite = \
         [\"URL\"]"
    )]
    Holds { name: String, what: Signature },
    #[error("cannot check {name} for existing data: {source}")]
    Look {
        name: String,
        source: SignatureError,
    },
    #[error("{0}")]
    Load(#[from] LoadError),
    #[error("cannot {what} the record of requests in {}: {source}; set the agent's TMPDIR to use \
        another folder", .folder.display())]
    Record {
        what: &'static str,
        folder: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot {what} the journals of acknowledged writes in {}: {source}; set the agent's \
        TMPDIR to use another folder", .folder.display())]
    Journals {
        what: &'static str,
        folder: PathBuf,
        source: std::io::Error,
    },
}

impl WorkError {
    pub fn kind(&self) -> FailureKind {
        match self {
            WorkError::Open(OpenError::NotAllowed { .. }) | WorkError::Holds { .. } => {
                FailureKind::NotAllowed
            }
            WorkError::Look { .. } | WorkError::Record { .. } | WorkError::Journals { .. } => {
                FailureKind::Broken
            }
            WorkError::Load(LoadError::Workload(_) | LoadError::Join(_)) => FailureKind::Refused,
            WorkError::Load(_) => FailureKind::Broken,
            _ => FailureKind::Refused,
        }
    }
}

impl AgentState {
    pub fn new(
        allow: Arc<AllowList>,
        backends: &'static [BackendEntry],
        shift_ns: i64,
    ) -> AgentState {
        AgentState {
            allow,
            backends,
            shift_ns,
            open: Mutex::default(),
            kept: Mutex::default(),
            inputs: SharedInputs::at_most(OPEN_MAX),
        }
    }

    /// The load of an assignment, after checking that it can run on other hosts, and its target.
    pub fn assigned(&self, assignment: &Assignment) -> Result<AssignedLoad, WorkError> {
        let load = self.read(assignment)?;
        let on = match load.drives_device() {
            false => LoadTarget::default(),
            true if assignment.joined.is_empty() => {
                let writes = load.changes_target("")?;
                LoadTarget::of(self.device(&assignment.target, assignment.overwrite, writes)?)
            }
            true => self.joined(&assignment.joined, &*load)?,
        };
        let notes = match &on.device {
            // A load that opens its target itself returns its own notes.
            Some(device) if !load.is_opened() => device.info().remarks().cloned().collect(),
            _ => Vec::new(),
        };
        Ok(AssignedLoad { load, on, notes })
    }

    /// Parses a load, or reuses the kept one with the same description.
    fn read(&self, assignment: &Assignment) -> Result<Arc<dyn HostedLoad>, WorkError> {
        let Assignment { kind, member, .. } = assignment;
        let kind = load_kind(kind).ok_or_else(|| WorkError::Kind(kind.clone()))?;
        let key = (kind.name, assignment.load.clone());
        let mut kept = self.kept();
        let loads = match kept.get(&key) {
            Some(loads) => loads.clone(),
            None => {
                let context = LoadContext {
                    targets: names(&assignment.joined),
                    inputs: self.inputs.clone(),
                };
                let mut loads = Vec::new();
                for (name, load) in (kind.read)(&assignment.load, &context)? {
                    let load = load.hosted().ok_or(WorkError::NotHere(kind.name))?;
                    if !load.named_hosts().is_empty() {
                        return Err(WorkError::NamesHosts(kind.name));
                    }
                    load.check_sent()?;
                    load.check_allowed(&*self.allow)?;
                    loads.push((name, load));
                }
                if loads.iter().any(|(_, load)| load.keeps_between_runs()) {
                    if kept.len() >= OPEN_MAX {
                        // This also drops everything that the kept loads created.
                        kept.clear();
                    }
                    kept.insert(key, loads.clone());
                }
                loads
            }
        };
        let wanted = loads.into_iter().find(|(name, _)| name == member);
        let (_, load) = wanted.ok_or_else(|| WorkError::Member {
            kind: kind.name,
            member: member.clone(),
        })?;
        Ok(load)
    }

    /// Combines several targets into one device, with each target's share.
    fn joined(
        &self,
        targets: &[JoinedTarget],
        load: &dyn HostedLoad,
    ) -> Result<LoadTarget, WorkError> {
        let (mut devices, mut changes) = (Vec::new(), Vec::new());
        for JoinedTarget {
            name,
            url,
            overwrite,
        } in targets
        {
            let writes = load.changes_target(name)?;
            devices.push(self.device(url, *overwrite, writes)?);
            changes.push(writes);
        }
        if let [device] = &devices[..] {
            return Ok(LoadTarget::of(Arc::clone(device)));
        }
        let joined = JoinedBackend::written_at(devices, |number| changes[number])
            .map_err(LoadError::from)?;
        Ok(LoadTarget {
            parts: joined.ranges(),
            ..LoadTarget::of(Arc::new(joined))
        })
    }

    /// Opens a device. A device that contains data is written only if that was permitted.
    fn device(
        &self,
        url: &Secret,
        overwrite: bool,
        writes: bool,
    ) -> Result<Arc<dyn Backend>, WorkError> {
        let url = &url.0;
        let key = (url.clone(), writes, overwrite);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = open.get(&key) {
            return Ok(Arc::clone(device));
        }
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        let permit: Arc<dyn Permit> = Arc::clone(&self.allow) as Arc<dyn Permit>;
        let device = open_url_permitted(url, self.backends, !writes, permit)?;
        if writes && !overwrite {
            let name = || device.info().name.clone();
            match signature::scan(device.as_ref()).map(|looked| looked.found) {
                Ok(None) => {}
                Ok(Some(what)) => return Err(WorkError::Holds { name: name(), what }),
                Err(source) => {
                    return Err(WorkError::Look {
                        name: name(),
                        source,
                    });
                }
            }
        }
        open.insert(key, Arc::clone(&device));
        Ok(device)
    }

    /// Removes resources shared by the runs of a load, if any.
    pub fn close(&self, assignment: &Assignment) -> Result<(), WorkError> {
        let Some(kind) = load_kind(&assignment.kind) else {
            return Ok(());
        };
        let loads = self.kept().remove(&(kind.name, assignment.load.clone()));
        Ok(loads
            .iter()
            .flatten()
            .try_for_each(|(_, load)| load.close())?)
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<LoadKey, Vec<NamedHostedLoad>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of references to an open device.
    #[cfg(test)]
    pub fn holders(&self) -> Option<usize> {
        self.open
            .lock()
            .unwrap()
            .values()
            .next()
            .map(Arc::strong_count)
    }

    fn shifted(&self, at: Nanos) -> Nanos {
        match at {
            // A worker that never started.
            Nanos(0) | Nanos::MAX => at,
            at => moved(at, self.shift_ns),
        }
    }

    pub fn shifted_interval(&self, mut interval: Box<Interval>) -> Box<Interval> {
        (interval.start, interval.end) = (self.shifted(interval.start), self.shifted(interval.end));
        interval
    }

    pub fn shifted_request(&self, request: RequestRecord) -> RequestRecord {
        let RequestRecord {
            intended,
            sent,
            completed,
            ..
        } = request;
        let shifted = |at: Option<Nanos>| at.map(|at| self.shifted(at));
        let (intended, sent, completed) =
            (self.shifted(intended), shifted(sent), shifted(completed));
        RequestRecord {
            intended,
            sent,
            completed,
            ..request
        }
    }

    pub fn shifted_outcome(&self, outcome: Outcome) -> Box<Outcome> {
        Box::new(Outcome {
            start: self.shifted(outcome.start),
            end: self.shifted(outcome.end),
            began: self.shifted(outcome.began),
            ..outcome
        })
    }
}

fn names(targets: &[JoinedTarget]) -> Vec<String> {
    targets.iter().map(|target| target.name.clone()).collect()
}
