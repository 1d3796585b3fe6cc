//! Finds targets that share the same storage. Called before a run and by `--check=open`, once all targets are open.
//!
//! The rule: targets are rejected only if they certainly share storage. A note names targets that may share storage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brunt_block::{Backend, StorageId};
use brunt_iscsi::local_disk;
use brunt_study::experiment::Plan;

use crate::cli::{Failure, Output};

/// Rejects two targets on the same storage if they are used at the same time and at least one is written: the other
/// would read those writes, or report corruption. Targets used one after the other may share storage, for example an
/// array and one of its members.
pub(super) fn check(
    targets: &BTreeMap<String, Arc<dyn Backend>>,
    plan: &Plan,
    output: &Output,
) -> Result<(), Failure> {
    let is_written = |name: &str| plan.written.iter().any(|(written, _, _)| written == name);
    let at_once = |one: &str, other: &str| {
        let mut points = plan.points.iter();
        points.any(|point| point.is_on(one) && point.is_on(other))
    };
    // All devices of a target are on the same storage, whatever options they are opened with, so check any of them.
    let of_target = |name: &String| {
        let devices = plan.devices_of(name);
        let backend = devices.keys().find_map(|device| targets.get(device))?;
        Some((name.clone(), local_disk::with_names(backend.storage())))
    };
    let names: BTreeSet<&String> = plan
        .points
        .iter()
        .flat_map(|point| &point.targets)
        .collect();
    let targets: Vec<_> = names.into_iter().filter_map(of_target).collect();
    for (index, (name, storage)) in targets.iter().enumerate() {
        let shared = targets[..index]
            .iter()
            .filter(|(other, _)| (is_written(name) || is_written(other)) && at_once(name, other));
        for (other, other_storage) in shared {
            match relation(storage, other_storage) {
                Relation::Different => {}
                Relation::Alike(words) => output.note(format_args!(
                    "targets '{other}' and '{name}' may be the same storage ({words}), used at the same time, and at \
                     least one of them is written to"
                )),
                Relation::Same => {
                    return Err(Failure::usage(format!(
                        "targets '{other}' and '{name}' are the same storage, used at the same time, and at least one \
                         of them is written to"
                    ))
                    .advise(
                        "use one target for both, or different groups of 'together', which run one after the other",
                    ));
                }
            }
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Relation<'a> {
    Same,
    /// The property that suggests that storage is shared.
    Alike(&'a str),
    Different,
}

fn relation<'a>(one: &'a [StorageId], other: &[StorageId]) -> Relation<'a> {
    let pairs = || {
        one.iter()
            .flat_map(|one| other.iter().map(move |other| (one, other)))
    };
    if pairs().any(|(one, other)| one.overlaps(other)) {
        return Relation::Same;
    }
    let alike = pairs().find_map(|(one, other)| one.likeness(other));
    alike.map_or(Relation::Different, Relation::Alike)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_certain_matches_count_as_the_same_storage() {
        let remote = |name: &str| StorageId::Remote(name.into());
        let alike = |words: &str| StorageId::Alike(words.into());
        let check = |one: &[StorageId], other: &[StorageId], expected| {
            assert_eq!(relation(one, other), expected);
            assert_eq!(relation(other, one), expected);
        };
        let one = [remote("iscsi://a/t/1"), alike("x")];
        check(
            &one,
            &[remote("iscsi://b/t/1"), alike("x")],
            Relation::Alike("x"),
        );
        check(
            &one,
            &[remote("iscsi://b/t/1"), alike("y")],
            Relation::Different,
        );
        check(&one, &[alike("x"), remote("iscsi://a/t/1")], Relation::Same);
        check(&one, &[], Relation::Different);
    }
}
