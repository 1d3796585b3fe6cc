//! Applies the parts of a reloaded target file other than its targets: portals and their groups, and settings for
//! later connections. Called by `live`. The rule: a file that changes fixed keys is rejected before anything changes,
//! and the message names them.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::ErrorKind;
use std::time::Duration;

use brunt_iscsi::target_node::{OpenPortals, Portal, PortalError, TargetConfig, TargetServer};

use super::build::{self, Ports};
use super::file::{Misplaced, TargetFile};
use crate::cli::Failure;

/// The portals of a reloaded file, already open, and its settings.
pub struct Renewal {
    open: OpenPortals,
    config: TargetConfig,
    /// Groups of portals, with their initial states as in the file.
    pub ports: Ports,
    /// Groups whose initial state in the file differs from that in the old file; the new state is applied at once.
    pub renewed: Vec<u16>,
    /// The changes in words, for the operator.
    pub changes: Vec<String>,
}

impl Renewal {
    /// Checks a reloaded file against the old one, and opens its portals.
    ///
    /// # Errors
    /// The file contains a mistake, or changes a key that can't be changed.
    pub fn prepare(
        server: &TargetServer,
        before: &TargetFile,
        after: &TargetFile,
    ) -> Result<Renewal, Misplaced> {
        if before.alua != after.alua {
            let failure = Failure::usage("alua cannot be changed while the target is running")
                .advise("restart the target, or undo the change");
            return Err(Misplaced::at(&["alua"], failure));
        }
        let (old, ports) = (build::ports(before)?, build::ports(after)?);
        let mut config = TargetConfig::default();
        build::listeners(after, &mut config)?;
        let was_open = server.open_portals();
        let open = OpenPortals::open(&config.portals, &was_open)
            .map_err(|error| cannot_open(&config, error))?;
        let mut changes = differences(&was_open.portals(), &open.portals());
        let renewed: Vec<u16> = ports
            .groups
            .iter()
            .filter(|(id, words)| old.groups.get(id).is_some_and(|old| old != *words))
            .map(|(id, _)| *id)
            .collect();
        changes.extend(
            renewed
                .iter()
                .map(|id| format!("group {id} is {}", ports.groups[id])),
        );
        changes.extend(settings(before, after));
        Ok(Renewal {
            open,
            config,
            ports,
            renewed,
            changes,
        })
    }

    /// Applies the file's portals and settings to the server.
    pub fn apply(self, server: &TargetServer, grace: Duration) {
        server.renew_listeners(self.open, &self.config, grace);
    }
}

fn cannot_open(config: &TargetConfig, error: PortalError) -> Misplaced {
    let index = match &error {
        PortalError::Listen { portal, .. } => {
            config.portals.iter().position(|one| one.listen == *portal)
        }
        PortalError::NoPortal => None,
    };
    let is_taken = matches!(&error, PortalError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse);
    let mut failure = Failure::failed(error);
    if is_taken {
        failure = failure.advise(
            "choose a free address; if it overlaps an existing portal (all addresses, the same port), \
             first remove that portal in a separate reload",
        );
    }
    match index {
        Some(index) => Misplaced::at(&["portal", &index.to_string(), "listen"], failure),
        None => Misplaced::at(&["portal"], failure),
    }
}

fn differences(before: &[Portal], after: &[Portal]) -> Vec<String> {
    let at = |portals: &[Portal], one: &Portal| {
        portals
            .iter()
            .find(|portal| portal.listen == one.listen)
            .cloned()
    };
    let mut changes = Vec::new();
    for portal in after {
        match at(before, portal) {
            None => changes.push(format!(
                "portal {} of group {} added",
                portal.listen, portal.group
            )),
            Some(old) if old != *portal => {
                changes.push(format!("portal {} changed", portal.listen))
            }
            Some(_) => {}
        }
    }
    let gone = before.iter().filter(|portal| at(after, portal).is_none());
    changes.extend(gone.map(|portal| format!("portal {} removed", portal.listen)));
    let groups = |portals: &[Portal]| -> BTreeSet<u16> {
        portals.iter().map(|portal| portal.group).collect()
    };
    changes.extend(
        groups(before)
            .difference(&groups(after))
            .map(|group| format!("group {group} removed")),
    );
    changes
}

/// Names the changed settings, which apply to later connections.
fn settings(before: &TargetFile, after: &TargetFile) -> Option<String> {
    let mut names = Vec::new();
    let mut compare = |name: &'static str, differs: bool| names.extend(differs.then_some(name));
    compare("header_digest", before.header_digest != after.header_digest);
    compare("data_digest", before.data_digest != after.data_digest);
    compare("max_sessions", before.max_sessions != after.max_sessions);
    compare("send_buffer", before.send_buffer != after.send_buffer);
    compare(
        "receive_buffer",
        before.receive_buffer != after.receive_buffer,
    );
    compare("congestion", before.congestion != after.congestion);
    (!names.is_empty()).then(|| format!("{} changed for new connections", list(&names)))
}

fn list(names: &[impl Display]) -> String {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}
