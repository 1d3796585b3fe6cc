//! The table of roles: one line for each kind, with its file in this folder.

use super::kind::{Cast, PlannedRole, RoleInfo, RoleKind};
#[cfg(test)]
use super::test_only;
use super::{Serve, prober, service, sink, target, worker};

/// A kind's line of the table.
pub struct RoleEntry {
    /// What it is.
    pub info: &'static RoleInfo,
    /// A role of this kind that serves this, if it does.
    pub(super) serves: fn(&Serve) -> Option<Box<dyn RoleKind>>,
    /// Those of an experiment that no target asks for.
    pub(super) unasked: fn(&dyn Cast) -> Vec<PlannedRole>,
}

/// Makes the table from one line for each kind.
macro_rules! kinds {
    ($($(#[$only:meta])* $module:ident,)*) => {
        /// All kinds of roles. What several serve is served by the first.
        pub const ROLES: &[RoleEntry] = &[
            $($(#[$only])* RoleEntry { info: &$module::INFO, serves: $module::of, unasked: $module::unasked },)*
        ];
    };
}

kinds! {
    #[cfg(test)] test_only,
    sink,
    // Serves whatever no other does.
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
        .expect("a target serves whatever no other role does")
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
