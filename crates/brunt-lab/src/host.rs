//! Hosts: a network and a mount namespace each, held by descriptors. Threads enter one, processes start in one.
//!
//! The rule: the namespaces disappear when no descriptor refers to them and no process runs in them; they have no
//! name in the file system that could be left behind. What is mounted on a host is seen there only, and goes with it.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::netlink::{DeviceConfig, Netlink};
use crate::sys::{self, Namespaces};

/// A machine of the lab; clones are the same machine.
#[derive(Clone, Debug)]
pub struct Host {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    address: Ipv4Addr,
    namespaces: Namespaces,
    /// Where its processes run.
    cores: Mutex<CpuSet>,
    /// What TCP to and from this host uses, if not the kernel's default.
    congestion: OnceLock<String>,
}

impl Host {
    /// New namespaces with nothing but a loopback device that has this address, and what is mounted here now.
    pub(crate) fn new(name: &str, address: Ipv4Addr) -> io::Result<Host> {
        let made = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                sys::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS)?;
                let everywhere = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
                match mount_change("/", everywhere) {
                    // The root of a chroot(2) need not be mounted, and has no say then in where mounts are seen.
                    Err(rustix::io::Errno::INVAL) | Ok(()) => {}
                    Err(error) => return Err(error.into()),
                }
                let own =
                    |kind| File::open(format!("/proc/thread-self/ns/{kind}")).map(OwnedFd::from);
                let root = open(
                    "/",
                    OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                    Mode::empty(),
                )?;
                let namespaces = Namespaces {
                    network: own("net")?,
                    mounts: own("mnt")?,
                    root,
                };
                // No packets but those of an experiment: IPv6 would look for neighbours and routers, and
                // move the numbers by which packets are lost. A kernel without IPv6 has no such file.
                let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
                // What goes and what comes may take different devices. Where /proc/sys is read-only (a container
                // that masks it) the system's setting stays, which only the strictest would trouble.
                for devices in ["all", "default"] {
                    let _ =
                        std::fs::write(format!("/proc/sys/net/ipv4/conf/{devices}/rp_filter"), "0");
                }
                let mut netlink = Netlink::open()?;
                let index = netlink.index_of("lo")?;
                netlink.set_up(index, &DeviceConfig::default())?;
                netlink.add_address(index, address)?;
                Ok(namespaces)
            });
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the thread that makes a host panicked")))
        });
        let namespaces = made?;
        let cores = Mutex::new(sched_getaffinity(None)?);
        Ok(Host {
            inner: Arc::new(Inner {
                name: name.to_string(),
                address,
                namespaces,
                cores,
                congestion: OnceLock::new(),
            }),
        })
    }

    /// Has TCP use this congestion control on every route that is laid from now on, whoever opens the socket. A route's
    /// attribute, because the kernel lets no namespace but the first one choose the default freely.
    pub(crate) fn use_congestion(&self, algorithm: &str) {
        let set = self.inner.congestion.set(algorithm.to_string());
        assert!(
            set.is_ok(),
            "the congestion control of host {} is said once",
            self.inner.name
        );
    }

    pub(crate) fn congestion(&self) -> Option<&str> {
        self.inner.congestion.get().map(String::as_str)
    }

    /// Its name in the experiment.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Where it is reached from hosts that have a link to it.
    pub fn address(&self) -> Ipv4Addr {
        self.inner.address
    }

    /// The calling thread works on this host from now on: sockets and files that it opens, threads and
    /// processes that it starts. It stays in its working folder. There is no way back; end the thread instead.
    ///
    /// # Errors
    /// The kernel refuses, which it does not in a lab of one's own.
    pub fn enter(&self) -> io::Result<()> {
        self.inner.namespaces.enter()
    }

    /// Keeps the processes that will be placed on this host on these cores.
    ///
    /// # Errors
    /// None, or one that this process may not use itself.
    pub fn keep_on(&self, cores: &[usize]) -> io::Result<()> {
        let usable = sched_getaffinity(None)?;
        let mut set = CpuSet::new();
        for core in cores {
            if *core >= CpuSet::MAX_CPU || !usable.is_set(*core) {
                let known: Vec<String> = (0..CpuSet::MAX_CPU)
                    .filter(|core| usable.is_set(*core))
                    .map(|core| core.to_string())
                    .collect();
                return Err(io::Error::other(format!(
                    "unknown core {core}; the cores are {}",
                    known.join(", ")
                )));
            }
            set.set(*core);
        }
        if cores.is_empty() {
            return Err(io::Error::other("the list of cores is empty"));
        }
        *self
            .inner
            .cores
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = set;
        Ok(())
    }

    fn cores(&self) -> CpuSet {
        *self
            .inner
            .cores
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Host::enter`], and the thread and those that it starts stay on the host's cores.
    ///
    /// # Errors
    /// As for [`Host::enter`].
    pub fn settle(&self) -> io::Result<()> {
        self.enter()?;
        Ok(sched_setaffinity(None, &self.cores())?)
    }

    /// The process that `command` will start runs on this host, on its cores.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn place(&self, command: &mut Command) -> io::Result<()> {
        sys::enter_on_spawn(command, self.inner.namespaces.try_clone()?, self.cores());
        Ok(())
    }

    /// Does something on this host, on its own thread that then ends.
    ///
    /// # Errors
    /// What `work` answers, or that the host cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter()?;
                work()
            });
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// The network namespace, for who looks at its counters.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.network().try_clone()
    }

    pub(crate) fn network(&self) -> &OwnedFd {
        &self.inner.namespaces.network
    }

    pub(crate) fn mounts(&self) -> &OwnedFd {
        &self.inner.namespaces.mounts
    }
}
