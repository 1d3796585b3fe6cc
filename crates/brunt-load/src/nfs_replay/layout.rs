//! The tree of files that is created on the target before a replay, because the trace's calls need them.
//!
//! ```text
//! brunt-replay-5f0c…/root/…        what was below the root of the trace's export
//!                   /root-1/…      the same for another export
//!                   /unknown/d0 …  directories and files whose names were not captured
//! ```
//!
//! The rule: each object is in the tree once, and a directory precedes its entries.

use std::collections::{BTreeMap, HashMap};

use brunt_trace::nfs::NfsTrace;
use sha2::{Digest, Sha256};

use super::namespace::{NONE, Namespace, ObjectKind};

/// Placeholder for the unknown target of a symbolic link.
const UNKNOWN_TARGET: &[u8] = b"unknown";

/// What an entry of the tree was before the trace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Planted {
    Directory,
    File { size_bytes: u64 },
    Symlink { target: Vec<u8> },
    Fifo,
}

/// A directory, file or symbolic link of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlantedEntry {
    /// Index of its directory's entry; [`NONE`] for the top of the tree.
    pub(super) parent: u32,
    pub(super) name: Vec<u8>,
    pub(super) what: Planted,
    pub(super) mode: Option<u32>,
    pub(super) owner: Option<(u32, u32)>,
    /// Index of its object in the trace; [`NONE`] for a directory that exists only to hold others.
    pub(super) object: u32,
}

/// Another name of a file (a hard link).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlantedLink {
    pub(super) entry: u32,
    pub(super) parent: u32,
    pub(super) name: Vec<u8>,
}

/// The tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TreeLayout {
    pub(super) entries: Vec<PlantedEntry>,
    pub(super) links: Vec<PlantedLink>,
    /// Number of objects whose name is not known.
    pub(super) invented_names: u64,
    /// Number of objects of which only the name is known, so type and length are guesses.
    pub(super) only_named: u64,
    /// Number of files whose length is not known.
    pub(super) unknown_sizes: u64,
}

struct TreePlanter<'a> {
    trace: &'a NfsTrace,
    namespace: &'a Namespace,
    /// Objects and names by directory.
    children: BTreeMap<u32, Vec<(u32, u32)>>,
    entry_of: HashMap<u32, u32>,
    /// The directory for objects without a known name.
    unknown: Option<u32>,
    layout: TreeLayout,
}

impl TreeLayout {
    pub(super) fn of(trace: &NfsTrace, namespace: &Namespace) -> TreeLayout {
        let initial = (0..namespace.objects.len() as u32).filter(|id| namespace.is_initial(*id));
        let initial: Vec<u32> = initial.collect();
        let mut children: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for id in &initial {
            for (directory, name) in &namespace.objects[*id as usize].links {
                children.entry(*directory).or_default().push((*id, *name));
            }
        }
        let mut planter = TreePlanter {
            trace,
            namespace,
            children,
            entry_of: HashMap::new(),
            unknown: None,
            layout: TreeLayout::default(),
        };
        // Only exports without a name become tops of the tree: a named export is within another, such as `/home/user`
        // in `/home`, or any export in the NFSv4 tree.
        let is_root = |id: &&u32| {
            let object = &namespace.objects[**id as usize];
            object.is_root && object.links.is_empty()
        };
        for (number, id) in initial.iter().filter(is_root).enumerate() {
            let name = match number {
                0 => "root".to_string(),
                number => format!("root-{number}"),
            };
            planter.plant_below(*id, NONE, name.as_bytes());
        }
        // Objects without a name come first, because they may be the directories of others.
        for is_nameless in [true, false] {
            for id in &initial {
                let links = &namespace.objects[*id as usize].links;
                if !planter.entry_of.contains_key(id) && links.is_empty() == is_nameless {
                    planter.plant_unknown(*id);
                }
            }
        }
        planter.layout
    }

    /// Identifies the tree by its content, and by whether its files belong to the trace's owners and have data, in 16
    /// hexadecimal digits.
    pub(super) fn digest(&self, as_traced: bool, is_sparse: bool) -> String {
        let mut sha = Sha256::new();
        sha.update([u8::from(as_traced), u8::from(is_sparse)]);
        let mut text = |bytes: &[u8]| {
            sha.update((bytes.len() as u64).to_le_bytes());
            sha.update(bytes);
        };
        for entry in &self.entries {
            let (kind, size) = match &entry.what {
                Planted::Directory => (0u8, 0),
                Planted::File { size_bytes } => (1, *size_bytes),
                Planted::Symlink { target } => {
                    text(target);
                    (2, 0)
                }
                Planted::Fifo => (3, 0),
            };
            text(&entry.name);
            text(&entry.parent.to_le_bytes());
            text(&[kind]);
            text(&size.to_le_bytes());
            text(format!("{:?} {:?}", entry.mode, entry.owner).as_bytes());
        }
        for link in &self.links {
            text(&link.name);
            text(&[link.entry.to_le_bytes(), link.parent.to_le_bytes()].concat());
        }
        let hash = sha.finalize();
        hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the number of entries, counting hard links.
    pub(super) fn names(&self) -> u64 {
        (self.entries.len() + self.links.len()) as u64
    }
}

impl TreePlanter<'_> {
    fn plant(&mut self, id: u32, parent: u32, name: &[u8]) -> u32 {
        let object = &self.namespace.objects[id as usize];
        let layout = &mut self.layout;
        let what = match object.kind {
            ObjectKind::Directory => Planted::Directory,
            ObjectKind::Symlink => Planted::Symlink {
                target: match object.target {
                    Some(target) => self.trace.texts[target as usize].to_vec(),
                    None => UNKNOWN_TARGET.to_vec(),
                },
            },
            ObjectKind::Special => Planted::Fifo,
            ObjectKind::File | ObjectKind::Unknown => {
                layout.unknown_sizes += u64::from(object.size_bytes.is_none());
                Planted::File {
                    size_bytes: object.size_bytes.unwrap_or(object.read_to),
                }
            }
        };
        layout.only_named += u64::from(!object.has_handle);
        let entry = layout.entries.len() as u32;
        layout.entries.push(PlantedEntry {
            parent,
            name: name.to_vec(),
            what,
            mode: object.mode,
            owner: object.owner,
            object: id,
        });
        self.entry_of.insert(id, entry);
        entry
    }

    /// Adds an object, and everything below it, to the tree.
    fn plant_below(&mut self, id: u32, parent: u32, name: &[u8]) {
        let mut queue = vec![(id, parent, name.to_vec())];
        while let Some((id, parent, name)) = queue.pop() {
            if let Some(entry) = self.entry_of.get(&id) {
                // A directory has only one name, so only files get hard links.
                if self.layout.entries[*entry as usize].what != Planted::Directory {
                    self.layout.links.push(PlantedLink {
                        entry: *entry,
                        parent,
                        name,
                    });
                }
                continue;
            }
            let entry = self.plant(id, parent, &name);
            if self.layout.entries[entry as usize].what != Planted::Directory {
                continue;
            }
            let children = self.children.remove(&id).unwrap_or_default();
            if children.is_empty() && self.namespace.objects[id as usize].is_not_empty {
                self.invent_in(entry);
            }
            for (child, name) in children.into_iter().rev() {
                let name = self.trace.texts[name as usize].to_vec();
                queue.push((child, entry, name));
            }
        }
    }

    /// Adds a file that keeps a directory from being empty.
    fn invent_in(&mut self, parent: u32) {
        self.layout.invented_names += 1;
        self.layout.entries.push(PlantedEntry {
            parent,
            name: b"invented".to_vec(),
            what: Planted::File { size_bytes: 0 },
            mode: None,
            owner: None,
            object: NONE,
        });
    }

    fn plant_unknown(&mut self, id: u32) {
        let entries = &mut self.layout.entries;
        let place = *self.unknown.get_or_insert_with(|| {
            entries.push(PlantedEntry {
                parent: NONE,
                name: b"unknown".to_vec(),
                what: Planted::Directory,
                mode: None,
                owner: None,
                object: NONE,
            });
            entries.len() as u32 - 1
        });
        let letter = match self.namespace.objects[id as usize].kind {
            ObjectKind::Directory => 'd',
            ObjectKind::Symlink => 'l',
            _ => 'f',
        };
        let name = format!("{letter}{}", self.layout.invented_names);
        self.layout.invented_names += 1;
        self.plant_below(id, place, name.as_bytes());
    }
}
