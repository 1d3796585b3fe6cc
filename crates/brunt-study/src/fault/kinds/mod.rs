//! The table of faults: each kind has a file and a line here. Experiment files, their schema, the checks, the
//! schedule and `docs/faults.md` all use this table.

mod access;
mod bridge;
mod cpu;
mod disk;
mod freeze;
mod kill;
mod link;
mod member;
mod memory;
mod netem;
mod partition;
mod reset;
mod storage;
#[cfg(test)]
mod test_only;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeValue, Error, ValueDeserializer};

use super::kind::{Info, Kind};

pub(crate) use member::make_whole;

/// Defines [`FaultKind`] and [`KINDS`] from one line per kind.
macro_rules! kinds {
    ($($(#[$only:meta])* $module:ident::$config:ident,)*) => {
        /// The settings of one fault, by its kind.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum FaultKind {
            $($(#[$only])* #[doc = concat!("See `kinds/", stringify!($module), ".rs`.")] $config($module::$config),)*
        }

        impl FaultKind {
            /// The interface of the fault's kind.
            pub fn as_kind(&self) -> &dyn Kind {
                match self { $($(#[$only])* FaultKind::$config(config) => config,)* }
            }

            /// The interface of the fault's kind, mutable so that the content of files can be added.
            pub fn as_kind_mut(&mut self) -> &mut dyn Kind {
                match self { $($(#[$only])* FaultKind::$config(config) => config,)* }
            }

            /// The kind's entry in the table.
            pub fn entry(&self) -> &'static KindEntry {
                match self { $($(#[$only])* FaultKind::$config(_) => &$config,)* }
            }
        }

        $($(#[$only])* #[allow(non_upper_case_globals)]
        static $config: KindEntry = KindEntry {
            info: &$module::INFO,
            read: |value| Ok(FaultKind::$config($module::$config::deserialize(ValueDeserializer::from(value))?)),
            schema: |generator| $module::$config::json_schema(generator),
        };)*

        /// All kinds of faults.
        pub static KINDS: &[&KindEntry] = &[$($(#[$only])* &$config,)*];
    };
}

kinds! {
    storage::Storage,
    member::Member,
    cpu::Cpu,
    memory::Memory,
    link::LinkSet,
    netem::Netem,
    bridge::BridgeSet,
    partition::Partition,
    reset::Reset,
    access::Access,
    freeze::Freeze,
    kill::Kill,
    disk::Disk,
    #[cfg(test)] test_only::TestOnly,
}

/// A kind's entry in the table.
pub struct KindEntry {
    /// Its description.
    pub info: &'static Info,
    /// Reads the kind's keys.
    pub(super) read: fn(Spanned<DeValue<'_>>) -> Result<FaultKind, Error>,
    /// Describes the kind's keys.
    pub(super) schema: fn(&mut SchemaGenerator) -> Schema,
}

impl KindEntry {
    /// The key that selects this kind.
    pub fn name(&self) -> &'static str {
        self.info.keys[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::fault::entry::{COMMON_KEYS, FaultEntry};

    /// All kinds except those for tests.
    fn shipped() -> impl Iterator<Item = &'static KindEntry> {
        KINDS
            .iter()
            .copied()
            .filter(|kind| kind.name() != "test_only")
    }

    fn experiment(fault: &str) -> String {
        let member = "[memory:1MiB]";
        if fault.contains("host = ") {
            return format!(
                "name = \"x\"\n[hosts.array]\nssh = \"root@array\"\n[hosts.wire]\nssh = \"root@wire\"\n\
                 bridge = [\"eth0\", \"eth1\"]\n[targets.disk]\nurl = \"memory:1MiB\"\n\
                 [workloads.load]\nstop = {{ time = \"20s\" }}\n[[fault]]\n{fault}\n"
            );
        }
        format!(
            "name = \"x\"\n[lab]\nhosts = [\"client\", \"server\"]\n[lab.links.wan]\n\
             between = [\"client\", \"server\"]\n\
             [targets.disk]\nserve = \"memory:1MiB\"\nhost = \"server\"\n\
             [targets.array]\nurl = \"array:raid1,{member},{member}\"\n\
             [services.store]\nhost = \"server\"\ncommand = [\"sleep\", \"1000\"]\n\
             [workloads.load]\nstop = {{ time = \"20s\" }}\n[[fault]]\n{fault}\n"
        )
    }

    /// Names are unique and differ from common keys; every kind has help, declares its keys, and has an example that
    /// parses, passes its check, and stays the same when written out and read again.
    #[test]
    fn every_kind_has_help_and_a_valid_example() {
        for (index, kind) in KINDS.iter().enumerate() {
            let name = kind.name();
            assert!(
                KINDS[..index].iter().all(|other| other.name() != name),
                "{name} appears twice"
            );
            assert!(
                kind.info.keys.iter().all(|key| !COMMON_KEYS.contains(key)),
                "{name}"
            );
            assert!(
                !kind.info.help.is_empty() && !kind.info.proof.is_empty(),
                "{name}"
            );
            let schema = (kind.schema)(&mut SchemaGenerator::default());
            let mut known: Vec<&str> = schema
                .get("properties")
                .unwrap()
                .as_object()
                .unwrap()
                .keys()
                .map(String::as_str)
                .collect();
            let mut keys = kind.info.keys.to_vec();
            known.sort_unstable();
            keys.sort_unstable();
            assert_eq!(known, keys, "{name}");
            let text = experiment(kind.info.example);
            let parsed = Experiment::parse("x.toml", &text).unwrap_or_else(|error| {
                panic!("{name}: {} {:?}", error.one_line(), error.help_text());
            });
            let [fault] = parsed.fault.as_slice() else {
                panic!("{name}")
            };
            assert_eq!(fault.kind_name(), name);
            assert!(
                !fault.what().is_empty() && !fault.place().is_empty(),
                "{name}"
            );
            let written = toml::to_string(fault).unwrap();
            let json = serde_json::to_string(fault).unwrap();
            assert_eq!(
                *fault,
                toml::from_str::<FaultEntry>(&written).unwrap(),
                "{written}"
            );
            assert_eq!(
                *fault,
                serde_json::from_str::<FaultEntry>(&json).unwrap(),
                "{json}"
            );
            let original: toml::Table = toml::from_str(kind.info.example).unwrap();
            assert_eq!(
                toml::from_str::<toml::Table>(&written).unwrap(),
                original,
                "{name}"
            );
        }
    }

    /// `docs/faults.md` has every kind with its keys, effect, proof and example.
    #[test]
    fn the_documentation_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/faults.md");
        let text = std::fs::read_to_string(path).unwrap();
        for kind in shipped() {
            let keys: Vec<String> = kind
                .info
                .keys
                .iter()
                .map(|key| format!("`{key}`"))
                .collect();
            let row = format!(
                "| {} | {} | {} |",
                keys.join(", "),
                kind.info.help,
                kind.info.proof
            );
            assert!(
                text.contains(&row),
                "docs/faults.md lacks this line:\n{row}"
            );
            let example = format!("```toml\n[[fault]]\n{}\n```", kind.info.example);
            assert!(
                text.contains(&example),
                "docs/faults.md lacks this example:\n{example}"
            );
        }
        let rows = text.lines().filter(|line| line.starts_with("| `")).count();
        assert!(rows >= shipped().count(), "{rows} rows");
    }
}
