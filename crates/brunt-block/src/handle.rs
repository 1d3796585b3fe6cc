//! What can be driven in a stack of layers while it runs: faults, retries, an array. The time line of
//! an experiment and a target's control channel find them by name.

use std::sync::Arc;

use crate::layers::array::ArrayControl;
use crate::layers::fault::FaultSwitch;
use crate::layers::retry::RetrySwitch;

/// One thing that can be driven.
#[derive(Clone, Debug)]
pub enum Handle {
    /// Faults of a layer.
    Faults(Arc<FaultSwitch>),
    /// Retries of a layer.
    Retries(Arc<RetrySwitch>),
    /// Members of an array.
    Array(Arc<ArrayControl>),
}

/// Handles with their names, the outermost first: `fault`, `retry`, and below an array's member 2
/// `2/fault`.
pub type Handles = Vec<(String, Handle)>;

/// The layer of that name: all of it, or what stands behind its last `/` where only one ends so.
pub fn find<'a, T>(layers: &'a [(String, T)], name: &str) -> Option<&'a T> {
    if let Some((_, layer)) = layers.iter().find(|(known, _)| known == name) {
        return Some(layer);
    }
    let mut ending = layers.iter().filter(|(known, _)| known.rsplit('/').next() == Some(name));
    match (ending.next(), ending.next()) {
        (Some((_, layer)), None) => Some(layer),
        _ => None,
    }
}
