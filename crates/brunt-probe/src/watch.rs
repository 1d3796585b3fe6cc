//! What a prober watches besides its own machine: hosts of the lab, and served processes. Code that starts
//! one registers it here and keeps the returned guard; dropping the guard ends the watch.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// The network namespace whose counters are read.
#[derive(Clone, Debug)]
pub enum Network {
    /// The prober's own.
    Own,
    /// The one that this process lives in. Needs no privilege.
    OfProcess(u32),
    /// This one (`/proc/PID/ns/net`, `/run/netns/NAME`). Needs CAP_SYS_ADMIN over it.
    Namespace(Arc<OwnedFd>),
}

/// Somebody to watch.
#[derive(Clone, Debug)]
pub enum Subject {
    /// This machine.
    Machine {
        /// Its name in samples.
        host: Arc<str>,
        /// Whether the network that the prober finds itself in is the machine's own. In a lab it is one
        /// of the lab's hosts, who are told each by its name.
        with_network: bool,
    },
    /// A host of the lab on this machine: what is the machine's is told once, by the machine.
    Host {
        /// Its name in samples.
        host: Arc<str>,
        /// Where its interfaces are.
        network: Network,
    },
    /// A process on this machine.
    Process {
        /// The name in samples of the host it plays a role on.
        host: Arc<str>,
        /// Its instance in samples: `runner`, `target`.
        name: Arc<str>,
        /// Its number here.
        pid: u32,
    },
}

impl Subject {
    /// The host's name.
    pub fn host(&self) -> &Arc<str> {
        match self {
            Subject::Machine { host, .. }
            | Subject::Host { host, .. }
            | Subject::Process { host, .. } => host,
        }
    }
}

/// The list of those that are watched. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    list: Arc<Mutex<List>>,
}

#[derive(Debug, Default)]
struct List {
    /// Goes up with every change.
    version: u64,
    subjects: Vec<(u64, Subject)>,
}

/// Watching goes on until this is dropped.
#[must_use = "dropping it ends the watching"]
#[derive(Debug)]
pub struct Watching {
    watch: Watch,
    id: u64,
}

impl Watch {
    /// Watches the network of a lab's host.
    pub fn host(&self, host: &str, network: Network) -> Watching {
        self.add(Subject::Host {
            host: host.into(),
            network,
        })
    }

    /// Watches this machine, its network too.
    pub fn machine(&self, host: &str) -> Watching {
        self.add(Subject::Machine {
            host: host.into(),
            with_network: true,
        })
    }

    /// Watches a process of ours: a target, for example.
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

    /// The list when it is not of `version` any more, with its version.
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

    /// Who holds on is watched, and who lets go is not.
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
