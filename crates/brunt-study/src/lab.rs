//! The lab of an experiment as it stands: built from `[lab]`, set for each run, looked at after it.
//! `brunt run` builds it inside a [`brunt_lab::stage`], puts targets on its hosts, and has it go along
//! with every run.
//!
//! The rule: each run meets links as its point says, with chance begun anew; a packet that was lost
//! though nobody asked for it makes the run void.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brunt_core::{Clock, random::Random};
pub use brunt_lab::link::Counts as LinkCounts;
use brunt_lab::link::{LinkReport, Settings};
use brunt_lab::{Host, Lab, LabError, LinkConfig};

use crate::experiment::{Experiment, LabEntry};
use crate::observe::{Companion, Hub, RunInfo};
use crate::probe::{Network, Watch, Watching};
use crate::role::Place;
use crate::summary::RunSummary;

/// A lab that stands. Clones are the same lab; it goes with the last of them.
#[derive(Clone)]
pub struct Standing {
    lab: Arc<Mutex<Lab>>,
    worker: Host,
    hosts: Vec<Host>,
}

impl Standing {
    /// Builds what `[lab]` describes.
    ///
    /// # Errors
    /// The machine refuses; the text says what to do.
    pub fn build(entry: &LabEntry, seed: u64) -> Result<Standing, LabError> {
        let mut lab = Lab::new(entry.hosts.iter().map(String::as_str), Clock::Monotonic)?;
        for (number, (name, link)) in entry.links.iter().enumerate() {
            lab.add_link(&LinkConfig {
                name: name.clone(),
                between: link.between.clone(),
                settings: link.settings(),
                mtu: link.mtu(),
                seed: link_seed(seed, number),
                carrier: link.carrier.carrier(),
            })?;
        }
        lab.route()?;
        for (name, cores) in &entry.cores {
            lab.host(name)?.keep_on(cores).map_err(|source| {
                let what = format!("keep host {name} on cores {cores:?}");
                LabError::System { what, source }
            })?;
        }
        let worker = lab.host(entry.worker())?.clone();
        let hosts = entry.hosts.iter().map(|name| lab.host(name).cloned()).collect::<Result<_, _>>()?;
        Ok(Standing { lab: Arc::new(Mutex::new(lab)), worker, hosts })
    }

    /// The calling thread, and all that it starts from now on, works on the workers' host and its cores.
    ///
    /// # Errors
    /// The kernel refuses, which it does not in a lab of one's own.
    pub fn enter(&self) -> io::Result<()> {
        self.worker.settle()
    }

    /// Where roles on this host are started.
    ///
    /// # Errors
    /// There is no such host.
    pub fn place(&self, host: &str) -> Result<Arc<dyn Place>, LabError> {
        Ok(Arc::new(OnHost(self.lab().host(host)?.clone())))
    }

    /// Has the network of every host watched by a prober.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn watched(&self, watch: &Watch) -> io::Result<Vec<Watching>> {
        let watched = |host: &Host| {
            let network = Network::Namespace(Arc::new(host.descriptor()?));
            Ok(watch.host(host.name(), network))
        };
        self.hosts.iter().map(watched).collect()
    }

    /// Sets the links for each run of this experiment.
    pub fn companion(&self, experiment: &Experiment) -> Box<dyn Companion> {
        let points = experiment.points().into_iter().map(|point| point.links).collect();
        Box::new(Links { standing: self.clone(), points, before: BTreeMap::new(), seen: BTreeMap::new() })
    }

    /// The lab itself, for faults of its links.
    pub fn lab(&self) -> MutexGuard<'_, Lab> {
        self.lab.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A host as a place for roles.
struct OnHost(Host);

impl Place for OnHost {
    fn host(&self) -> &str {
        self.0.name()
    }
    fn address(&self) -> IpAddr {
        IpAddr::V4(self.0.address())
    }
    fn place(&self, command: &mut Command) -> io::Result<()> {
        self.0.place(command)
    }
}

/// Goes along with each run.
struct Links {
    standing: Standing,
    /// Settings of each link, for each point.
    points: Vec<BTreeMap<String, [Settings; 2]>>,
    before: BTreeMap<String, LinkReport>,
    seen: BTreeMap<String, LinkReport>,
}

impl Links {
    fn reports(&self) -> Result<BTreeMap<String, LinkReport>, String> {
        let reports = self.standing.lab().reports().map_err(|error| error.to_string())?;
        Ok(reports.into_iter().collect())
    }
}

impl Companion for Links {
    fn begin(&mut self, run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), String> {
        let mut lab = self.standing.lab();
        for (number, (name, settings)) in self.points[run.point as usize].iter().enumerate() {
            let seed = link_seed(run.seed, number);
            lab.restart(name, settings.clone(), seed).map_err(|error| error.to_string())?;
        }
        drop(lab);
        self.before = self.reports()?;
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        self.seen = self.reports()?;
        for (name, report) in &mut self.seen {
            *report = report.since(&self.before.get(name).copied().unwrap_or_default());
            let unmeant = report.there.unmeant() + report.back.unmeant();
            if unmeant > 0 {
                return Err(format!("link {name}: {}", report.trouble().join("; ")));
            }
        }
        Ok(())
    }

    fn sum_up(&mut self, run: &mut RunSummary) {
        for (name, report) in &self.seen {
            run.doubts.extend(report.trouble().into_iter().map(|trouble| format!("link {name}: {trouble}")));
        }
        run.links = std::mem::take(&mut self.seen);
    }
}

/// Each link has its own chance.
fn link_seed(seed: u64, number: usize) -> u64 {
    Random::for_part(seed, 0x11 + number as u64).next_u64()
}
