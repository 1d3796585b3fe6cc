//! The targets that a process serves, and who may log in to each. Read by logins and SendTargets; changed by the
//! `target` command while sessions run. The one rule: a target keeps its [`LunMap`] throughout its life, regardless
//! of other changes, so existing and new sessions see the same units.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::chap::{ChapUser, Credentials};
use crate::scsi::LunMap;

/// A target served by a process.
#[derive(Clone)]
pub struct ServedTarget {
    /// The target's iSCSI name.
    pub name: String,
    /// The target's human-readable alias.
    pub alias: Option<String>,
    /// Users who may log in; empty: everyone.
    pub users: Vec<ChapUser>,
    /// The target's logical units.
    pub luns: Arc<LunMap>,
}

impl ServedTarget {
    /// Creates a target without authentication.
    pub fn new(name: impl Into<String>, luns: Arc<LunMap>) -> ServedTarget {
        ServedTarget {
            name: name.into(),
            alias: None,
            users: Vec::new(),
            luns,
        }
    }

    /// Adds a user who may log in; with `own`, the target also authenticates itself on request.
    ///
    /// # Errors
    /// The two secrets are the same.
    pub fn with_chap(
        mut self,
        initiator: Credentials,
        own: Option<Credentials>,
    ) -> Result<ServedTarget, SameSecret> {
        self.users = vec![chap_user(initiator, own)?];
        Ok(self)
    }

    fn is_called(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

impl std::fmt::Debug for ServedTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServedTarget({})", self.name)
    }
}

/// Both directions have the same secret, which would let an initiator without the secret log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CHAP: both directions have the same secret; use different ones")]
pub struct SameSecret;

/// Creates credentials for both directions.
///
/// # Errors
/// The two secrets are the same.
pub fn chap_user(initiator: Credentials, own: Option<Credentials>) -> Result<ChapUser, SameSecret> {
    if own
        .as_ref()
        .is_some_and(|own| own.secret.is_same(&initiator.secret))
    {
        return Err(SameSecret);
    }
    Ok(ChapUser { initiator, own })
}

/// All targets of a process.
#[derive(Debug)]
pub struct Directory {
    inner: RwLock<Entries>,
}

#[derive(Debug)]
struct Entries {
    targets: Vec<Arc<ServedTarget>>,
    discovery: Option<Vec<ChapUser>>,
}

impl Directory {
    /// Creates a directory of these targets. `discovery` lists who may run discovery; `None`: everyone, or the users of
    /// all targets if any target has users.
    ///
    /// # Panics
    /// Two targets have the same name.
    pub fn new(targets: Vec<ServedTarget>, discovery: Option<Vec<ChapUser>>) -> Directory {
        let targets = checked(targets);
        Directory {
            inner: RwLock::new(Entries { targets, discovery }),
        }
    }

    /// Replaces the targets and returns the removed ones.
    ///
    /// # Panics
    /// Two targets have the same name.
    pub fn replace(
        &self,
        targets: Vec<ServedTarget>,
        discovery: Option<Vec<ChapUser>>,
    ) -> Vec<Arc<ServedTarget>> {
        let targets = checked(targets);
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *inner, Entries { targets, discovery });
        let stays =
            |old: &Arc<ServedTarget>| inner.targets.iter().any(|new| new.is_called(&old.name));
        before
            .targets
            .into_iter()
            .filter(|old| !stays(old))
            .collect()
    }

    /// Finds a target by name.
    pub fn find(&self, name: &str) -> Option<Arc<ServedTarget>> {
        self.read()
            .targets
            .iter()
            .find(|target| target.is_called(name))
            .cloned()
    }

    /// All targets.
    pub fn targets(&self) -> Vec<Arc<ServedTarget>> {
        self.read().targets.clone()
    }

    /// Users who may run discovery; empty: everyone.
    pub fn discovery_users(&self) -> Vec<ChapUser> {
        let inner = self.read();
        match &inner.discovery {
            Some(users) => users.clone(),
            None => inner
                .targets
                .iter()
                .flat_map(|target| target.users.iter().cloned())
                .collect(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn checked(targets: Vec<ServedTarget>) -> Vec<Arc<ServedTarget>> {
    for (index, target) in targets.iter().enumerate() {
        assert!(
            !targets[..index]
                .iter()
                .any(|other| other.is_called(&target.name)),
            "duplicate target name"
        );
    }
    targets.into_iter().map(Arc::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str, secret: Option<&str>) -> ServedTarget {
        let target = ServedTarget::new(name, LunMap::new(Vec::new()));
        match secret {
            Some(secret) => target
                .with_chap(Credentials::new("u", secret), None)
                .unwrap(),
            None => target,
        }
    }

    /// Discovery requires the targets' users unless it has its own.
    #[test]
    fn discovery_requires_the_targets_users_unless_it_has_its_own() {
        let open = Directory::new(vec![target("iqn.a", None), target("iqn.b", None)], None);
        assert!(open.discovery_users().is_empty());
        let mixed = || {
            vec![
                target("iqn.a", None),
                target("iqn.b", Some("one")),
                target("iqn.c", Some("two")),
            ]
        };
        assert_eq!(Directory::new(mixed(), None).discovery_users().len(), 2);
        assert!(
            Directory::new(mixed(), Some(Vec::new()))
                .discovery_users()
                .is_empty()
        );
    }

    /// Names are matched regardless of case, and removed targets are returned.
    #[test]
    fn names_match_regardless_of_case_and_removed_targets_are_returned() {
        let directory = Directory::new(vec![target("iqn.a", None), target("iqn.b", None)], None);
        assert_eq!(directory.find("IQN.A").unwrap().name, "iqn.a");
        let gone = directory.replace(
            vec![target("iqn.b", Some("s")), target("iqn.c", None)],
            None,
        );
        assert_eq!(
            gone.iter()
                .map(|target| target.name.as_str())
                .collect::<Vec<_>>(),
            ["iqn.a"]
        );
        assert!(directory.find("iqn.a").is_none() && directory.find("iqn.c").is_some());
        assert_eq!(directory.find("iqn.b").unwrap().users.len(), 1);
    }

    #[test]
    fn secrets_of_the_two_directions_differ() {
        let same = || Credentials::new("x", "same");
        assert_eq!(chap_user(same(), Some(same())).unwrap_err(), SameSecret);
    }
}
