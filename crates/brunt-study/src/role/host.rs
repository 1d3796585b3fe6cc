//! Where roles are started: this host, or another one of the lab. A role asks its place for an address to listen
//! on and has its command placed there; `brunt run` and the lab give places out.
//!
//! The rule: whoever starts a role knows no more of its host than this.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;

/// Where a role is started.
pub trait Place: Send + Sync {
    /// The host's name in messages and samples.
    fn host(&self) -> &str;

    /// Where roles on this host listen so that the experiment reaches them.
    fn address(&self) -> IpAddr;

    /// This program, on that host.
    ///
    /// # Errors
    /// It is not to be found.
    fn program(&self) -> io::Result<PathBuf> {
        std::env::current_exe()
    }

    /// Makes `command` run there.
    ///
    /// # Errors
    /// The host is not there any more.
    fn place(&self, command: &mut Command) -> io::Result<()>;
}

/// This host: roles listen on loopback.
#[derive(Clone, Copy, Debug)]
pub struct Here;

impl Place for Here {
    fn host(&self) -> &str {
        brunt_probe::LOCAL
    }

    fn address(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    }

    fn place(&self, _command: &mut Command) -> io::Result<()> {
        Ok(())
    }
}
