//! Who makes a run together, so that it goes on without those that are lost as long as somebody is left. Shared by the
//! loads of all jobs that run at once; asked by a host's thread when its host is gone.
//!
//! The rule: who was lost stays lost, so a company is for all runs of a point.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The conversations of a run, and the jobs on this machine.
#[derive(Debug)]
pub struct HostCompany {
    members: usize,
    lost: Mutex<BTreeSet<(String, u32)>>,
}

impl HostCompany {
    /// Of so many: each host of each job is one, and so is each job without hosts.
    pub fn new(members: usize) -> HostCompany {
        HostCompany {
            members,
            lost: Mutex::default(),
        }
    }

    /// A host is lost to the job in this lane; whether somebody is left.
    pub(super) fn lose(&self, host: &str, lane: u32) -> bool {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.insert((host.to_string(), lane));
        lost.len() < self.members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_until_the_last_is_lost() {
        let company = HostCompany::new(3);
        assert!(company.lose("a", 0));
        assert!(company.lose("a", 0), "it is lost once");
        assert!(company.lose("a", 1));
        assert!(!company.lose("b", 0));
    }
}
