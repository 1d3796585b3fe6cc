//! The other hosts of an experiment, as its controller sees them: connected once, with clocks compared continuously,
//! and driven by [`HostLoad`]. Each host has a thread ([`host_thread`]) that communicates with it.
//!
//! The rule: a host that dies, hangs or becomes unreachable is detected as lost within two seconds, also between runs.

mod counting;
mod counting_orders;
mod dates;
mod error;
mod faults;
mod host_thread;
mod journals;
mod lane;
mod load;
mod members;
mod record;
mod roles;
mod target;
mod task;
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

use crate::address::HostAddress;
use crate::connect::ConnectOptions;
use crate::identity::{Identity, IdentityError};
use crate::tls::ControllerTls;
pub use counting::{AwaitedCount, CountedInterfaces};
pub use error::FleetError;
pub use faults::{FaultEnd, HostBridgeError};
use host_thread::HostThread;
pub use lane::Lane;
pub use load::{HostLoad, HostedTarget};
pub use members::RunMembers;
pub use roles::{FarRole, FarRoleError};
pub use target::{HostedUrl, TargetUrl};
pub use watch::{WatchEnd, WatchTask};

/// Maximum time until a request to stop is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum time to copy this program to a host.
const CONNECT_MAX: Duration = Duration::from_secs(60);
/// Maximum time for all other steps of connecting, unless hosts are allowed a longer silence.
const ANSWER_MAX: Duration = Duration::from_secs(8);
/// A host is contacted every `host_thread::ASK_EVERY` and is lost after this long without a reply, that is, within
/// two seconds.
pub const SILENCE_MAX: Duration = Duration::from_millis(1500);

/// A host, and how to connect to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlace {
    /// Its address.
    pub address: HostAddress,
    /// Our identity, for an agent that listens: a file created by `brunt agent init`.
    pub identity: Option<PathBuf>,
    /// The ssh command and its arguments.
    pub ssh: Vec<String>,
    /// The program on a host reached through ssh; `None` means the one in the host's PATH if it has this version,
    /// otherwise a copy of this program.
    pub program: Option<String>,
}

/// All other hosts of an experiment. Dropping this ends their agents.
#[derive(Debug)]
pub struct Fleet {
    reach: Arc<Reach>,
    /// The connected hosts, one entry per lane that needs the host.
    keepers: Mutex<BTreeMap<(String, Lane), HostThread>>,
    /// The next number for a fault or role; each is used only once.
    faults: AtomicU32,
    /// Targets that the experiment serves, by name, and by host if each host has its own target.
    served: Mutex<BTreeMap<(String, Option<String>), TargetUrl>>,
}

/// How to reach the hosts.
#[derive(Debug)]
struct Reach {
    /// This program, in the form printed by `brunt --version`.
    program: String,
    places: BTreeMap<String, HostPlace>,
    /// Whether a run continues without a lost host.
    survives_loss: bool,
    /// A host that doesn't reply for this long is lost.
    silence_max: Duration,
    /// The hosts of the lab, once the lab is running.
    lab: OnceLock<Vec<Host>>,
    /// The folder of all services, once these are running.
    services: OnceLock<PathBuf>,
}

impl Fleet {
    /// Creates a fleet of these named hosts. A host is connected only when a load needs it. With `survives_loss`, a run
    /// continues without a lost host as long as another is left; otherwise a loss ends the run.
    pub fn new(
        program: String,
        places: BTreeMap<String, HostPlace>,
        survives_loss: bool,
        silence_max: Duration,
    ) -> Fleet {
        let reach = Arc::new(Reach {
            program,
            places,
            survives_loss,
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

    /// Records that the lab is running with these hosts, so that hosts with [`HostAddress::Lab`] can be reached.
    ///
    /// # Panics
    /// This was called before.
    pub fn lab_started(&self, hosts: Vec<Host>) {
        assert!(
            self.reach.lab.set(hosts).is_ok(),
            "an experiment has one lab"
        );
    }

    /// Records that the services are running and that their folders are in `folder`, so that hosts with
    /// [`HostAddress::Guest`] can be reached.
    ///
    /// # Panics
    /// Panics if called more than once.
    pub fn services_run(&self, folder: PathBuf) {
        assert!(
            self.reach.services.set(folder).is_ok(),
            "an experiment starts its services once"
        );
    }

    /// The URL of a target that the experiment serves, for loads on other hosts; the URL becomes known once the
    /// target listens. If each host has its own target, returns the URL of `host`'s target.
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

    /// Connects in parallel to the hosts that aren't connected yet, and compares clocks with them. `false` if `stop`
    /// was set in the meantime: hosts connected after that are disconnected again.
    ///
    /// # Errors
    /// A host cannot be reached.
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
            match reached.recv_timeout(POLL_INTERVAL) {
                Ok((name, Ok(host_thread))) => {
                    drop(self.keepers().insert((name, lane), host_thread))
                }
                Ok((_, Err(error))) => failure = failure.or(Some(error)),
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => return Ok(false),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // Hosts that were reached stay connected even if others failed: later, all are disconnected together, which
        // takes seconds if a network is down.
        failure.map_or(Ok(true), Err)
    }

    fn keepers(&self) -> MutexGuard<'_, BTreeMap<(String, Lane), HostThread>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The PIDs of agents that were started on this machine for hosts in its lab, each with its host and lane.
    pub fn agents_here(&self) -> Vec<(String, Lane, u32)> {
        let keepers = self.keepers();
        let here = keepers.iter().filter_map(|((host, lane), host_thread)| {
            Some((host.clone(), *lane, host_thread.agent_here()?))
        });
        here.collect()
    }

    /// Sends an order to a host's thread.
    fn tell(
        &self,
        name: &str,
        lane: Lane,
        order: host_thread::HostThreadOrder,
    ) -> Result<(), FleetError> {
        let keepers = self.keepers();
        let host_thread = keepers.get(&(name.to_string(), lane));
        host_thread
            .ok_or_else(|| FleetError::Unknown(name.to_string()))?
            .tell(order);
        Ok(())
    }

    /// The maximum of the hosts' shortest round trips.
    fn round_trip_max(&self, names: &[String], lane: Lane) -> Duration {
        let keepers = self.keepers();
        let keepers = names
            .iter()
            .filter_map(|name| keepers.get(&(name.clone(), lane)));
        keepers
            .map(HostThread::round_trip)
            .max()
            .unwrap_or_default()
    }
}

impl Reach {
    fn reach(&self, name: &str) -> Result<HostThread, FleetError> {
        let host = || name.to_string();
        let place = self
            .places
            .get(name)
            .ok_or_else(|| FleetError::Unknown(host()))?;
        let options = self.options(place).map_err(|source| FleetError::Identity {
            host: host(),
            source,
        })?;
        HostThread::connect(name, &place.address, &options, self.survives_loss)
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
        // All threads are asked to end before any is waited for.
        keepers.values_mut().for_each(HostThread::leave);
        keepers.clear();
    }
}
