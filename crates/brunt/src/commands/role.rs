//! Options of the commands that an experiment starts as roles, which end with the experiment.

use brunt_host::AllowList;

use crate::bound;
use crate::cli::{Done, Failure};
use crate::devices::{self, BACKENDS};

/// Arguments of a role.
#[derive(clap::Args)]
pub struct Role {
    /// The process that started this one; when it ends, so does this process.
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<i32>,

    /// What this process may open, in the syntax of an agent's '--allow', if it was started by an agent with limits.
    #[arg(long, hide = true, value_name = "WHAT", requires = "parent")]
    permit: Vec<String>,
}

impl Role {
    /// Asks the kernel to end this process when its parent ends.
    pub fn bind(&self) -> Done {
        let Some(parent) = self.parent else {
            return Ok(());
        };
        if !self.permit.is_empty() {
            let words = self.permit.iter().map(String::as_str);
            let allowed = AllowList::only(words, &BACKENDS).map_err(Failure::usage)?;
            devices::limit_to(allowed);
        }
        // If an agent's file was removed, its roles are started through a path in /proc, so set a readable process
        // name. It is only for display.
        let _ = std::fs::write("/proc/self/comm", "brunt");
        bound::end_with(parent).map_err(Failure::failed)
    }
}
