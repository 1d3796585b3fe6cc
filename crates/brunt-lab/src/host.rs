//! Lab hosts: each has a network and a mount namespace, held by file descriptors. Threads enter a host; processes
//! start on it.
//!
//! The rule: a namespace disappears when no descriptor refers to it and no process runs in it; it has no name in the
//! file system that could be left behind. A mount on a host is visible only there, and disappears with it.

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

/// A machine of the lab; clones refer to the same machine.
#[derive(Clone, Debug)]
pub struct Host {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    address: Ipv4Addr,
    namespaces: Namespaces,
    /// The cores on which the host's processes run.
    cores: Mutex<CpuSet>,
    /// TCP congestion control for connections to and from this host, if different from the kernel's default.
    congestion: OnceLock<String>,
}

impl Host {
    /// Creates namespaces with the current mounts and nothing but a loopback device, which gets this address.
    pub(crate) fn new(name: &str, address: Ipv4Addr) -> io::Result<Host> {
        let made = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                sys::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS)?;
                let everywhere = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
                match mount_change("/", everywhere) {
                    // In a chroot(2), the root may not be a mount point; then it doesn't propagate mounts anyway.
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
                // Allow only the experiment's packets: those of IPv6 neighbour and router discovery would shift the
                // packet numbers that determine losses. Kernels without IPv6 have no such file.
                let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
                // Turns off reverse-path filtering, because packets may leave and arrive through different devices.
                // If /proc/sys is read-only (masked in a container), the system's setting stays; packets are then
                // dropped only if it demands strict filtering.
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
            thread.join().unwrap_or_else(|_| {
                Err(io::Error::other("the thread that creates a host panicked"))
            })
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

    /// Makes TCP use this congestion control on all routes added from now on, for every socket. This is an attribute
    /// of routes because only the initial namespace can make any algorithm the default.
    pub(crate) fn use_congestion(&self, algorithm: &str) {
        let set = self.inner.congestion.set(algorithm.to_string());
        assert!(
            set.is_ok(),
            "the congestion control of host {} is set once",
            self.inner.name
        );
    }

    pub(crate) fn congestion(&self) -> Option<&str> {
        self.inner.congestion.get().map(String::as_str)
    }

    /// The host's name in the experiment.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The address by which linked hosts reach this host.
    pub fn address(&self) -> Ipv4Addr {
        self.inner.address
    }

    /// Moves the calling thread to this host: the sockets and files that it opens and the threads and processes that it
    /// starts belong to the host. The working folder stays the same. There is no way back; end the thread instead.
    ///
    /// # Errors
    /// A system call fails, which doesn't happen in a lab that this process created.
    pub fn enter(&self) -> io::Result<()> {
        self.inner.namespaces.enter()
    }

    /// Restricts the processes that will be placed on this host to these cores.
    ///
    /// # Errors
    /// No core is given, or this process may not use one of them.
    pub fn pin_to(&self, cores: &[usize]) -> io::Result<()> {
        let usable = sched_getaffinity(None)?;
        let mut set = CpuSet::new();
        for core in cores {
            if *core >= CpuSet::MAX_CPU || !usable.is_set(*core) {
                let known: Vec<String> = (0..CpuSet::MAX_CPU)
                    .filter(|core| usable.is_set(*core))
                    .map(|core| core.to_string())
                    .collect();
                return Err(io::Error::other(format!(
                    "core {core} is not available to this process; available cores: {}",
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

    /// Like [`Host::enter`], and also restricts the thread, and those that it starts, to the host's cores.
    ///
    /// # Errors
    /// [`Host::enter`] fails.
    pub fn settle(&self) -> io::Result<()> {
        self.enter()?;
        Ok(sched_setaffinity(None, &self.cores())?)
    }

    /// Makes the process that `command` will start run on this host and its cores.
    ///
    /// # Errors
    /// The process is out of file descriptors.
    pub fn place(&self, command: &mut Command) -> io::Result<()> {
        sys::enter_on_spawn(command, self.inner.namespaces.try_clone()?, self.cores());
        Ok(())
    }

    /// Runs `work` on this host, in a separate thread.
    ///
    /// # Errors
    /// `work` fails, or the host cannot be entered.
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

    /// The network namespace, to read its counters.
    ///
    /// # Errors
    /// The process is out of file descriptors.
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
