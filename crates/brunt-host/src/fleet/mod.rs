//! The other hosts of an experiment, as the side that runs it has them: connected once, asked for their clocks all the
//! time, and given runs by [`HostLoad`]. Each has a thread ([`keeper`]) that hears it.
//!
//! The rule: a host that dies, hangs or cannot be reached any more is known as lost within two seconds, also between runs.

mod company;
mod dates;
mod faults;
mod journals;
mod keeper;
mod load;
mod record;
mod roles;
mod target;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use brunt_lab::Host;
use brunt_protocol::FailureKind;

use crate::address::HostAddress;
use crate::identity::{Identity, IdentityError};
use crate::remote::{ConnectOptions, HostError};
use crate::tls::ControllerTls;
pub use company::HostCompany;
pub use faults::{FaultEnd, HostBridgeError};
use keeper::Keeper;
pub use load::{HostLoad, HostedTarget};
pub use roles::{FarRole, FarRoleError};
pub use target::{HostedUrl, TargetUrl};
pub use watch::{WatchEnd, WatchTask};

/// How long somebody's wish to stop may go unseen.
const LOOK: Duration = Duration::from_millis(20);
/// How long a copy of this program may take to a host.
const CONNECT_MAX: Duration = Duration::from_secs(60);
/// How long anything else may take until a host is reached, if hosts may not be silent for longer anyway.
const ANSWER_MAX: Duration = Duration::from_secs(8);
/// Who is asked each `keeper::ASK_EVERY` and does not answer for so long is lost: within two seconds.
pub const SILENCE_MAX: Duration = Duration::from_millis(1500);

/// A host, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlace {
    /// Where.
    pub address: HostAddress,
    /// Who we are, for an agent that listens: a file of `brunt agent init`.
    pub identity: Option<PathBuf>,
    /// ssh with its arguments.
    pub ssh: Vec<String>,
    /// The program on a host that ssh reaches; `None`: the one in its path if it is of this version, else a copy.
    pub program: Option<String>,
}

/// Why a host does not work for an experiment, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The experiment has no such host.
    #[error("there is no host {0}")]
    Unknown(String),
    /// Its identity cannot be used.
    #[error("host {host}: identity {source}")]
    Identity {
        /// Its name in the experiment.
        host: String,
        /// Why.
        source: IdentityError,
    },
    /// It is not reached, or was lost.
    #[error("host {host}: {source}")]
    Host {
        /// Its name in the experiment.
        host: String,
        /// Why.
        source: HostError,
    },
    /// Its clock was set, so that nobody knows when its requests were made.
    #[error(
        "host {0}: its clock was set while it was measured: stop whatever sets it, or let it slew the clock"
    )]
    ClockSet(String),
    /// Its workers do not end.
    #[error("host {0} did not end its run within {1:?}; does its device hang?")]
    Stuck(String, Duration),
    /// It would replay something else.
    #[error("host {0}: the trace at this path is not the one that is here: copy it to the host")]
    OtherTrace(String),
    /// They do not open what the experiment names.
    #[error(
        "no answer from {hosts} within {at_most:?} of being asked to open the target: does a device there hang?"
    )]
    Slow {
        /// Their names in the experiment.
        hosts: String,
        /// The limit.
        at_most: Duration,
    },
    /// It was lost in an earlier run, or between two: why.
    #[error("{0}")]
    Lost(String),
    /// There is no thread for it here.
    #[error("host {host}: no thread for it: {source}")]
    Thread {
        /// Its name in the experiment.
        host: String,
        /// Why.
        source: std::io::Error,
    },
}

impl FleetError {
    /// Whether the host only refused what it was asked for.
    fn is_refusal(&self) -> bool {
        let FleetError::Host {
            source: HostError::Failed { kind, .. },
            ..
        } = self
        else {
            return false;
        };
        matches!(
            kind,
            FailureKind::Refused | FailureKind::NotAllowed | FailureKind::Version
        )
    }
}

/// All hosts of an experiment. Dropping it ends their agents.
#[derive(Debug)]
pub struct Fleet {
    reach: Arc<Reach>,
    /// Those that were reached, once for each lane that needs them.
    keepers: Mutex<BTreeMap<(String, Lane), Keeper>>,
    /// Numbers of faults and roles, each given once.
    faults: AtomicU32,
    /// Targets that the experiment serves, by name, and by host where each has its own.
    served: Mutex<BTreeMap<(String, Option<String>), TargetUrl>>,
}

/// How hosts are reached.
#[derive(Debug)]
struct Reach {
    /// This program, as `brunt --version` prints it.
    program: String,
    places: BTreeMap<String, HostPlace>,
    /// A run goes on without a host that is lost.
    goes_on: bool,
    /// A host that does not answer for so long is.
    silence_max: Duration,
    /// The hosts of the lab, once it stands.
    lab: OnceLock<Vec<Host>>,
    /// The folder of all services, once they run.
    services: OnceLock<PathBuf>,
}

/// One of several conversations with a host: jobs that run at once have one each, in which a host has one run at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane(pub u32);

impl Fleet {
    /// Of these hosts by name. None is reached before a load needs it. With `goes_on` a run goes on without a host that is
    /// lost, as long as there is another; otherwise that ends the run.
    pub fn new(
        program: String,
        places: BTreeMap<String, HostPlace>,
        goes_on: bool,
        silence_max: Duration,
    ) -> Fleet {
        let reach = Arc::new(Reach {
            program,
            places,
            goes_on,
            silence_max,
            lab: OnceLock::new(),
            services: OnceLock::new(),
        });
        Fleet {
            reach,
            keepers: Mutex::default(),
            faults: AtomicU32::new(0),
            served: Mutex::default(),
        }
    }

    /// The lab stands, with these hosts: those of [`HostAddress::Lab`] can be reached.
    ///
    /// # Panics
    /// When that was said before.
    pub fn lab_stands(&self, hosts: Vec<Host>) {
        assert!(
            self.reach.lab.set(hosts).is_ok(),
            "an experiment has one lab"
        );
    }

    /// The services run, with their folders in this one: those of [`HostAddress::Guest`] can be reached.
    ///
    /// # Panics
    /// When that was said before.
    pub fn services_run(&self, folder: PathBuf) {
        assert!(
            self.reach.services.set(folder).is_ok(),
            "an experiment starts its services once"
        );
    }

    /// The URL of a target that the experiment serves, for loads of other hosts: known once that listens. Of one that each
    /// host has for itself, that of this host.
    pub fn served(&self, target: &str, host: Option<&str>) -> TargetUrl {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served
            .entry((target.to_string(), host.map(str::to_string)))
            .or_default()
            .clone()
    }

    fn next_fault(&self) -> u32 {
        self.faults.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether there are no hosts.
    pub fn is_empty(&self) -> bool {
        self.reach.places.is_empty()
    }

    /// Reaches those that were not yet, all at once, and compares clocks with them. `false` when `stop` was set meanwhile:
    /// whoever is reached after that is left again.
    ///
    /// # Errors
    /// One of them is not reached.
    pub fn connect(
        &self,
        names: &[String],
        lane: Lane,
        stop: &AtomicBool,
    ) -> Result<bool, FleetError> {
        let (sender, reached) = channel();
        for name in names
            .iter()
            .filter(|name| !self.keepers().contains_key(&((*name).clone(), lane)))
        {
            let (name, reach, sender) = (name.clone(), Arc::clone(&self.reach), sender.clone());
            let host = name.clone();
            let work = move || drop(sender.send((name.clone(), reach.reach(&name))));
            let thread = std::thread::Builder::new()
                .name(format!("reach {host}"))
                .spawn(work);
            thread.map_err(|source| FleetError::Thread { host, source })?;
        }
        drop(sender);
        let mut failure = None;
        loop {
            match reached.recv_timeout(LOOK) {
                Ok((name, Ok(keeper))) => drop(self.keepers().insert((name, lane), keeper)),
                Ok((_, Err(error))) => failure = failure.or(Some(error)),
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => return Ok(false),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // Those that were reached are kept whatever became of others: they are left all at once, which takes seconds where a
        // network is gone.
        failure.map_or(Ok(true), Err)
    }

    fn keepers(&self) -> MutexGuard<'_, BTreeMap<(String, Lane), Keeper>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The processes of agents that were started on this machine, on hosts of its lab: each with its host and lane.
    pub fn agents_here(&self) -> Vec<(String, Lane, u32)> {
        let keepers = self.keepers();
        let here = keepers
            .iter()
            .filter_map(|((host, lane), keeper)| Some((host.clone(), *lane, keeper.agent_here()?)));
        here.collect()
    }

    /// Has a host's thread do something.
    fn tell(&self, name: &str, lane: Lane, order: keeper::KeeperOrder) -> Result<(), FleetError> {
        let keepers = self.keepers();
        let keeper = keepers.get(&(name.to_string(), lane));
        keeper
            .ok_or_else(|| FleetError::Unknown(name.to_string()))?
            .tell(order);
        Ok(())
    }

    /// The shortest round trip of the host that is farthest.
    fn round_trip_max(&self, names: &[String], lane: Lane) -> Duration {
        let keepers = self.keepers();
        let keepers = names
            .iter()
            .filter_map(|name| keepers.get(&(name.clone(), lane)));
        keepers.map(Keeper::round_trip).max().unwrap_or_default()
    }
}

impl Reach {
    fn reach(&self, name: &str) -> Result<Keeper, FleetError> {
        let host = || name.to_string();
        let place = self
            .places
            .get(name)
            .ok_or_else(|| FleetError::Unknown(host()))?;
        let options = self.options(place).map_err(|source| FleetError::Identity {
            host: host(),
            source,
        })?;
        Keeper::connect(name, &place.address, &options, self.goes_on)
    }

    fn options(&self, place: &HostPlace) -> Result<ConnectOptions, IdentityError> {
        let tls = |file: &PathBuf| ControllerTls::new(&Identity::read(file)?);
        Ok(ConnectOptions {
            program: self.program.clone(),
            ssh: place.ssh.clone(),
            far_program: place.program.clone(),
            arguments: Vec::new(),
            tls: place.identity.as_ref().map(tls).transpose()?,
            lab_host: match &place.address {
                HostAddress::Lab { name } => self
                    .lab
                    .get()
                    .and_then(|hosts| hosts.iter().find(|host| host.name() == name))
                    .cloned(),
                _ => None,
            },
            services: self.services.get().cloned(),
            connect_max: CONNECT_MAX,
            answer_max: ANSWER_MAX.max(self.silence_max),
            silence_max: self.silence_max,
        })
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let keepers = self
            .keepers
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        // All are told before one is waited for.
        keepers.values_mut().for_each(Keeper::leave);
        keepers.clear();
    }
}
