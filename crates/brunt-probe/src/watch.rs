//! The subjects that a prober watches in addition to its own machine: lab hosts and served processes. Code that
//! starts a subject registers it here and keeps the returned guard; dropping the guard ends the watch.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// The network namespace whose counters are read.
#[derive(Clone, Debug)]
pub enum Network {
    /// The prober's own namespace.
    Own,
    /// The namespace of the process with this PID. Reading it needs no privileges.
    OfProcess(u32),
    /// This namespace (an open `/proc/PID/ns/net` or `/run/netns/NAME`). Entering it needs CAP_SYS_ADMIN over it.
    Namespace(Arc<OwnedFd>),
}

/// A watched subject.
#[derive(Clone, Debug)]
pub enum Subject {
    /// This machine.
    Machine {
        /// The machine's name in samples.
        host: Arc<str>,
        /// Whether the prober's network is the machine's own. In a lab, that network belongs to one of the lab's
        /// hosts, which are reported by name.
        with_network: bool,
    },
    /// A lab host on this machine: only its network is sampled, because figures of the machine are reported once, as
    /// the machine's.
    Host {
        /// The host's name in samples.
        host: Arc<str>,
        /// The network namespace of the host's interfaces.
        network: Network,
    },
    /// A process on this machine.
    Process {
        /// Name, in samples, of the host on which the process plays a role.
        host: Arc<str>,
        /// The process's instance in samples: `runner`, `target`.
        name: Arc<str>,
        /// The process's PID on this machine.
        pid: u32,
    },
}

impl Subject {
    /// Returns the host's name.
    pub fn host(&self) -> &Arc<str> {
        match self {
            Subject::Machine { host, .. }
            | Subject::Host { host, .. }
            | Subject::Process { host, .. } => host,
        }
    }
}

/// The list of watched subjects. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    list: Arc<Mutex<List>>,
}

#[derive(Debug, Default)]
struct List {
    /// Incremented by every change.
    version: u64,
    subjects: Vec<(u64, Subject)>,
}

/// A guard: dropping it ends the watch.
#[must_use = "dropping it ends the watch"]
#[derive(Debug)]
pub struct Watching {
    watch: Watch,
    id: u64,
}

impl Watch {
    /// Watches the network of a lab host.
    pub fn host(&self, host: &str, network: Network) -> Watching {
        self.add(Subject::Host {
            host: host.into(),
            network,
        })
    }

    /// Watches this machine, including its network.
    pub fn machine(&self, host: &str) -> Watching {
        self.add(Subject::Machine {
            host: host.into(),
            with_network: true,
        })
    }

    /// Watches one of our processes, such as a target.
    pub fn process(&self, host: &str, name: &str, pid: u32) -> Watching {
        self.add(Subject::Process {
            host: host.into(),
            name: name.into(),
            pid,
        })
    }

    pub(super) fn add(&self, subject: Subject) -> Watching {
        let id = self.change(|list| list.subjects.push((list.version, subject)));
        Watching {
            watch: self.clone(),
            id,
        }
    }

    /// Returns the list and its version, if that is different from `version`.
    pub(super) fn changed(&self, version: Option<u64>) -> Option<(u64, Vec<(u64, Subject)>)> {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        (version != Some(list.version)).then(|| (list.version, list.subjects.clone()))
    }

    fn change(&self, how: impl FnOnce(&mut List)) -> u64 {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.version += 1;
        how(&mut list);
        list.version
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.watch
            .change(|list| list.subjects.retain(|(id, _)| *id != self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A subject is watched until its guard is dropped.
    #[test]
    fn watching_ends_with_its_guard() {
        let watch = Watch::default();
        let (first, second) = (watch.process("a", "x", 1), watch.host("b", Network::Own));
        let (version, subjects) = watch.changed(None).unwrap();
        assert_eq!(
            subjects
                .iter()
                .map(|(_, subject)| &**subject.host())
                .collect::<Vec<_>>(),
            ["a", "b"]
        );
        assert!(watch.changed(Some(version)).is_none());
        drop(first);
        let (_, subjects) = watch.changed(Some(version)).unwrap();
        assert_eq!((subjects.len(), &**subjects[0].1.host()), (1, "b"));
        drop(second);
        assert!(watch.changed(None).unwrap().1.is_empty());
    }
}
