//! Shared by commands that an experiment starts as roles: they end with the experiment.

use brunt_host::AllowList;

use crate::bound;
use crate::cli::{Done, Failure};
use crate::devices::{self, BACKENDS};

/// Arguments of a role.
#[derive(clap::Args)]
pub struct Role {
    /// The process that started this one, and with which it ends.
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<i32>,

    /// What may be opened here, in the form of an agent's '--allow', if the process that started this one is an agent
    /// with limits.
    #[arg(long, hide = true, value_name = "WHAT", requires = "parent")]
    permit: Vec<String>,
}

impl Role {
    /// Asks the kernel to end this process with its parent.
    pub fn bind(&self) -> Done {
        let Some(parent) = self.parent else {
            return Ok(());
        };
        if !self.permit.is_empty() {
            let words = self.permit.iter().map(String::as_str);
            let allowed = AllowList::only(words, &BACKENDS).map_err(Failure::usage)?;
            devices::limit_to(allowed);
        }
        // An agent whose file was removed is started through a meaningless path. The process name is only for people.
        let _ = std::fs::write("/proc/self/comm", "brunt");
        bound::end_with(parent).map_err(Failure::failed)
    }
}
