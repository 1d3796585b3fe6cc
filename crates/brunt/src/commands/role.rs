//! What commands have in common that an experiment starts as roles: they end with it.

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::cli::{Done, Failure};

/// Arguments of a role.
#[derive(clap::Args)]
pub struct Role {
    /// The process that started this one, and with which it ends.
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<i32>,
}

impl Role {
    /// Has the kernel end this process with its parent. SIGKILL, because a frozen process takes no other.
    pub fn bind(&self) -> Done {
        let Some(parent) = self.parent else { return Ok(()) };
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(Failure::failed)?;
        // It may have ended before that was said.
        if getppid().map(Pid::as_raw_nonzero).map(i32::from) != Some(parent) {
            return Err(Failure::failed(format!("process {parent}, which started this one, has ended")));
        }
        Ok(())
    }
}
