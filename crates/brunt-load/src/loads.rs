//! The table of loads: one line per kind that an experiment can use. To add a kind, create a folder whose load
//! implements [`crate::Load`], and [`crate::hosted::HostedLoad`] if other hosts can run it, and add its line here;
//! experiments, agents and `brunt schema` read this table.

use crate::kind::LoadKind;
use crate::{block, file, metadata, nfs, nfs_replay, replay, together};

/// All kinds of load.
pub const LOADS: &[LoadKind] = &[
    block::LINE,
    file::LINE,
    replay::LINE,
    nfs::LINE,
    nfs_replay::LINE,
    metadata::LINE,
    together::LINE,
    #[cfg(any(test, feature = "test-load"))]
    crate::sleep::LINE,
];

/// Looks up a kind by name.
pub fn load_kind(name: &str) -> Option<&'static LoadKind> {
    LOADS.iter().find(|kind| kind.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::LoadContext;
    use crate::load::RunOrder;

    #[test]
    fn each_line_is_whole() {
        let context = LoadContext::default();
        for (index, kind) in LOADS.iter().enumerate() {
            assert!(
                LOADS[index + 1..]
                    .iter()
                    .all(|other| other.name != kind.name),
                "{} twice",
                kind.name
            );
            assert!(!kind.help.is_empty());
            let loads = (kind.read)(kind.example, &context)
                .unwrap_or_else(|error| panic!("{}: {error}", kind.name));
            assert!(!loads.is_empty());
            for (_, load) in loads {
                assert_eq!(load.kind(), kind.name);
                assert!(!load.describe().is_empty() && !load.info().kinds.is_empty());
            }
            assert!(
                (kind.read)("nonsense = 1", &context).is_err(),
                "{}",
                kind.name
            );
            assert_eq!(load_kind(kind.name).unwrap().name, kind.name);
        }
    }

    /// A load sent to another host is parsed there as a load with the same description, without hosts.
    #[test]
    fn a_load_that_other_hosts_can_run_survives_being_sent() {
        let context = LoadContext::default();
        let mut sent = Vec::new();
        for kind in LOADS {
            let text = format!("hosts = [\"a\", \"b\"]\n{}", kind.example);
            // Loads that can't run on other hosts have no `hosts` key.
            let here = (kind.read)(kind.example, &context).unwrap();
            let hosted = (kind.read)(&text, &context).unwrap_or_default();
            for ((name, load), (_, here)) in hosted.into_iter().zip(here) {
                let (load, words) = (load.hosted().unwrap(), here.describe());
                assert_eq!(load.named_hosts(), ["a", "b"], "{}", kind.name);
                let ordered = load.for_host(&RunOrder::alone(1));
                assert_eq!(ordered.member, name, "{}", kind.name);
                let there = (kind.read)(&ordered.text, &context).unwrap();
                let (_, there) = there.into_iter().find(|(there, _)| *there == name).unwrap();
                assert_eq!(there.describe(), words, "{}", kind.name);
                let there = there.hosted().unwrap();
                assert!(there.check_sent().is_ok() && there.named_hosts().is_empty());
                assert_eq!(there.reporters(), load.reporters(), "{}", kind.name);
                sent.push(kind.name);
            }
        }
        sent.dedup();
        assert_eq!(sent, ["block", "file", "replay", "nfs", "metadata", "nap"]);
    }
}
