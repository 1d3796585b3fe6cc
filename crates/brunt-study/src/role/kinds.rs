//! The table of roles: each kind has a line here and a file in this folder.

use super::kind::{Cast, PlannedRole, RoleInfo, RoleKind};
#[cfg(test)]
use super::test_only;
use super::{Serve, prober, service, sink, target, worker};

/// A kind's entry in the table.
pub struct RoleEntry {
    /// Its description.
    pub info: &'static RoleInfo,
    /// A role of this kind that serves `serve`; `None` if the kind can't serve it.
    pub(super) serves: fn(&Serve) -> Option<Box<dyn RoleKind>>,
    /// Roles that exist without a target that requests them.
    pub(super) unasked: fn(&dyn Cast) -> Vec<PlannedRole>,
}

/// Makes the table from one line per kind.
macro_rules! kinds {
    ($($(#[$only:meta])* $module:ident,)*) => {
        /// All kinds of roles. If several kinds could serve something, the first of them does.
        pub const ROLES: &[RoleEntry] = &[
            $($(#[$only])* RoleEntry { info: &$module::INFO, serves: $module::of, unasked: $module::unasked },)*
        ];
    };
}

kinds! {
    #[cfg(test)] test_only,
    sink,
    // Serves everything that no other role serves.
    target,
    service,
    worker,
    prober,
}

/// The role that serves this.
pub fn serving(serve: &Serve) -> Box<dyn RoleKind> {
    ROLES
        .iter()
        .find_map(|entry| (entry.serves)(serve))
        .expect("a target serves everything that no other role serves")
}

/// All roles of an experiment.
pub fn planned(cast: &dyn Cast) -> Vec<PlannedRole> {
    let served = cast.served().into_iter();
    let served = served.map(|(name, serve, host)| PlannedRole {
        name,
        host,
        role: serving(serve),
    });
    served
        .chain(ROLES.iter().flat_map(|entry| (entry.unasked)(cast)))
        .collect()
}
