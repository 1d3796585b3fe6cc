//! The machine's own network, for a process inside a lab, whose networks lead nowhere else. It is used to reach
//! agents on other machines.
//!
//! The rule: only connections are made there; this process stays on its lab host.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::OnceLock;

use crate::sys;

/// The machine's network; set in a process inside a lab.
static NETWORK: OnceLock<OwnedFd> = OnceLock::new();

/// Keeps the network from which this process's lab was entered.
pub(crate) fn keep(network: OwnedFd) {
    // A process enters a lab once.
    let _ = NETWORK.set(network);
}

/// Runs `work` in the machine's network: on a separate thread in a lab, directly otherwise.
///
/// # Errors
/// `work` fails, or the thread may not enter the machine's network because the lab was not created by root.
pub fn run<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let Some(network) = NETWORK.get() else {
        return work();
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            sys::enter_network(network.as_fd())?;
            work()
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Makes the process that `command` will start use the machine's network.
///
/// # Errors
/// [`run`] fails, or the process is out of file descriptors.
pub fn place(command: &mut Command) -> io::Result<()> {
    // Checked first, because in the new process an error would look as if its program could not be started.
    run(|| Ok(()))?;
    if let Some(network) = NETWORK.get() {
        sys::enter_network_on_spawn(command, network.try_clone()?);
    }
    Ok(())
}
