//! The members of a run, which continues after losing hosts as long as one member is left. Shared by the loads of all
//! jobs that run concurrently; a host's thread consults it when its host is lost.
//!
//! The rule: a lost member stays lost, so the same members serve all runs of a point.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The connections of a run, and the jobs on this machine.
#[derive(Debug)]
pub struct RunMembers {
    members: usize,
    lost: Mutex<BTreeSet<(String, u32)>>,
}

impl RunMembers {
    /// Each host of each job counts as one of the `members`, and so does each job without hosts.
    pub fn new(members: usize) -> RunMembers {
        RunMembers {
            members,
            lost: Mutex::default(),
        }
    }

    /// Marks a host as lost for the job in this lane; returns whether any member is left.
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
    fn a_run_continues_until_its_last_member_is_lost() {
        let members = RunMembers::new(3);
        assert!(members.lose("a", 0));
        assert!(members.lose("a", 0), "it is lost once");
        assert!(members.lose("a", 1));
        assert!(!members.lose("b", 0));
    }
}
