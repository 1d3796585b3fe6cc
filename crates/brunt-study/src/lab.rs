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
use brunt_lab::link::Settings;
use brunt_lab::{Host, Lab, LabError, LinkConfig};
use brunt_result::Outcome;
use brunt_result::link::LinkReport;

use crate::experiment::{Experiment, LabEntry};
use crate::hook::{HookError, HookErrorKind, RunHook};
use crate::observe::{Hub, RunInfo};
use crate::role::Place;
use crate::summary::RunSummary;
use brunt_probe::{Network, Watch, Watching};

/// A lab that stands. Clones are the same lab; it goes with the last of them.
#[derive(Clone)]
pub struct BuiltLab {
    lab: Arc<Mutex<Lab>>,
    worker: Host,
    hosts: Vec<Host>,
}

impl BuiltLab {
    /// Builds what `[lab]` describes.
    ///
    /// # Errors
    /// The machine refuses; the text says what to do.
    pub fn build(entry: &LabEntry, seed: u64) -> Result<BuiltLab, LabError> {
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
        Ok(BuiltLab { lab: Arc::new(Mutex::new(lab)), worker, hosts })
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
    pub fn hook(&self, experiment: &Experiment) -> Box<dyn RunHook> {
        let points = experiment.points().into_iter().map(|point| point.links).collect();
        Box::new(Links { lab: self.clone(), points, before: BTreeMap::new(), seen: BTreeMap::new() })
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
    lab: BuiltLab,
    /// Settings of each link, for each point.
    points: Vec<BTreeMap<String, [Settings; 2]>>,
    before: BTreeMap<String, LinkReport>,
    seen: BTreeMap<String, LinkReport>,
}

impl Links {
    fn reports(&self) -> Result<BTreeMap<String, LinkReport>, LabError> {
        Ok(self.lab.lab().reports()?.into_iter().collect())
    }
}

impl RunHook for Links {
    fn begin(&mut self, run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
        let mut lab = self.lab.lab();
        for (number, (name, settings)) in self.points[run.point as usize].iter().enumerate() {
            let seed = link_seed(run.seed, number);
            let restarted = lab.restart(name, settings.clone(), seed);
            restarted.map_err(|error| HookError::not_ready(format!("link {name}"), error))?;
        }
        drop(lab);
        self.before = self.reports().map_err(|error| HookError::not_ready("the lab's links", error))?;
        Ok(())
    }

    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        let unread = |error| HookError::new(HookErrorKind::Disturbed, "the lab's links").because(error);
        self.seen = self.reports().map_err(unread)?;
        for (name, report) in &mut self.seen {
            *report = report.since(&self.before.get(name).copied().unwrap_or_default());
            let unmeant = report.there.unmeant() + report.back.unmeant();
            if unmeant > 0 {
                let what = format!("link {name}: {}", report.trouble().join("; "));
                return Err(HookError::new(HookErrorKind::Disturbed, what));
            }
        }
        Ok(())
    }

    fn sum_up(&mut self, run: &mut RunSummary, _outcome: &Outcome) {
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
