//! The table of loads: one line for each kind that an experiment can have. To add one: a file that implements
//! [`Load`], and its line here.

use std::sync::Arc;

use crate::load::{Load, WorkloadError};
use crate::{block, file, replay, together};

/// A kind of load.
pub struct LoadKind {
    /// Its name, as [`Load::kind`] says.
    pub name: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// A description of one, as in an experiment file.
    pub example: &'static str,
    /// Reads a description; some describe several loads.
    pub read: fn(&str) -> Result<Vec<NamedLoad>, ReadError>,
}

/// A load, with its name among those that one description makes.
pub type NamedLoad = (String, Arc<dyn Load>);

/// Why a load cannot be made of a description.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not TOML, or has a key that does not exist.
    #[error(transparent)]
    Text(#[from] Box<toml::de::Error>),
    /// It makes no sense.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

/// All kinds.
pub const LOADS: &[LoadKind] = &[
    LoadKind {
        name: block::KIND,
        help: "requests to a block device, below every cache",
        example: "read = 0.7\nqueue_depth = 8\nstop = { time = \"30s\" }",
        read: |text| {
            let workload: block::workload::Workload = toml::from_str(text).map_err(Box::new)?;
            workload.check()?;
            if !workload.hosts.is_empty() {
                return Err(elsewhere().into());
            }
            if workload.trace.is_some() {
                let what = "what replays a trace is a load of the kind `replay`".into();
                return Err(WorkloadError { key: "trace", what }.into());
            }
            Ok(vec![(
                String::new(),
                Arc::new(block::BlockLoad::new(workload)),
            )])
        },
    },
    LoadKind {
        name: file::KIND,
        help: "characters, blocks, seeks and names on a mounted file system, Bonnie's phases",
        example: "directory = \"/tmp\"\nphases = [\"write-blocks\", \"seeks\"]\nfile_size = \"1MiB\"",
        read: |text| {
            let settings: file::FileSystemLoad = toml::from_str(text).map_err(Box::new)?;
            settings.check()?;
            if !settings.hosts.is_empty() {
                return Err(elsewhere().into());
            }
            let named = |load: file::FileLoad| {
                (
                    load.phase().name().to_string(),
                    Arc::new(load) as Arc<dyn Load>,
                )
            };
            Ok(file::FileLoad::phases(&settings)
                .into_iter()
                .map(named)
                .collect())
        },
    },
    LoadKind {
        name: replay::KIND,
        help: "the requests of a block trace, at its times",
        example: "trace = \"requests.vscsi\"\nspeed = 2.0\nqueue_depth = 64",
        read: |text| {
            let workload: block::workload::Workload = toml::from_str(text).map_err(Box::new)?;
            workload.check()?;
            if workload.trace.is_none() {
                let what = "a replay needs the path of a trace".into();
                return Err(WorkloadError { key: "trace", what }.into());
            }
            Ok(vec![(
                String::new(),
                Arc::new(replay::ReplayLoad::new(workload, &[])),
            )])
        },
    },
    LoadKind {
        name: together::KIND,
        help: "several block loads or replays at once, each with figures of its own",
        example: "[[jobs]]\nname = \"reader\"\nworkload = { stop = { time = \"9s\" } }\n\
                  [[jobs]]\nname = \"writer\"\nstart_delay = \"3s\"\nworkload = { read = 0, stop = { time = \"6s\" } }",
        read: |text| {
            let settings: together::TogetherSettings = toml::from_str(text).map_err(Box::new)?;
            Ok(vec![(String::new(), Arc::new(settings.load()?))])
        },
    },
    #[cfg(any(test, feature = "test-load"))]
    crate::nap::KIND,
];

fn elsewhere() -> WorkloadError {
    WorkloadError {
        key: "hosts",
        what: "a load of this kind runs where it is read".into(),
    }
}

/// The kind of this name.
pub fn load_kind(name: &str) -> Option<&'static LoadKind> {
    LOADS.iter().find(|kind| kind.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_whole() {
        for (index, kind) in LOADS.iter().enumerate() {
            assert!(
                LOADS[index + 1..]
                    .iter()
                    .all(|other| other.name != kind.name),
                "{} twice",
                kind.name
            );
            assert!(!kind.help.is_empty());
            let loads =
                (kind.read)(kind.example).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
            assert!(!loads.is_empty());
            for (_, load) in loads {
                assert_eq!(load.kind(), kind.name);
                assert!(!load.describe().is_empty() && !load.info().kinds.is_empty());
            }
            assert!((kind.read)("nonsense = 1").is_err(), "{}", kind.name);
            assert_eq!(load_kind(kind.name).unwrap().name, kind.name);
        }
    }
}
