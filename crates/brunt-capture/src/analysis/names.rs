//! Names of files by their place in a table, and paths built from them.

use std::collections::HashMap;

use brunt_core::prefetch;
use brunt_wire::net::IpAddress;
use serde::{Deserialize, Serialize};

use super::hot::Hot;
use crate::operation::FileKey;

/// Maximum depth of directories followed for a path.
const DEPTH_MAX: usize = 64;

/// Longest name, in bytes, that fits in its slot.
const INLINE: usize = 54;
/// A value of `len` that marks a longer name.
const LONG: u8 = u8::MAX;

/// A file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Name<'a> {
    /// The file's directory; `None` for the root of an export, whose name is its path.
    pub parent: Option<FileKey>,
    /// The name, or the path of an export.
    pub name: &'a [u8],
}

/// The deserialized form.
#[derive(Debug, Deserialize)]
pub struct StoredName {
    parent: Option<FileKey>,
    name: Box<[u8]>,
}

impl StoredName {
    /// The name of the file.
    pub fn as_name(&self) -> Name<'_> {
        Name {
            parent: self.parent,
            name: &self.name,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Unknown,
    Root,
    Child,
}

/// Fills one cache line. It owns no heap memory, so a name can be replaced without reading the old one. This matters
/// when more files are in use than fit in the table.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct Slot {
    parent: u64,
    kind: Kind,
    len: u8,
    bytes: [u8; INLINE],
}

const UNKNOWN: Slot = Slot {
    parent: 0,
    kind: Kind::Unknown,
    len: 0,
    bytes: [0; INLINE],
};

/// Names by place.
#[derive(Debug, Default)]
pub struct Names {
    slots: Vec<Slot>,
    /// Names that don't fit in their slot, which is marked `LONG`; stale if a shorter name has replaced them.
    long: HashMap<usize, Box<[u8]>>,
}

impl Names {
    /// Sets the name at a place.
    #[inline]
    pub fn set(&mut self, place: usize, name: &Name<'_>) {
        if self.slots.len() <= place {
            self.slots.resize(place + 1, UNKNOWN);
        }
        let slot = &mut self.slots[place];
        (slot.parent, slot.kind) = name
            .parent
            .map_or((0, Kind::Root), |parent| (parent.0, Kind::Child));
        match slot.bytes.get_mut(..name.name.len()) {
            Some(bytes) => {
                bytes.copy_from_slice(name.name);
                slot.len = name.name.len() as u8;
            }
            None => {
                slot.len = LONG;
                self.long.insert(place, name.name.into());
            }
        }
    }

    /// The name at a place.
    pub fn get(&self, place: usize) -> Option<Name<'_>> {
        let slot = self.slots.get(place)?;
        let parent = match slot.kind {
            Kind::Unknown => return None,
            Kind::Root => None,
            Kind::Child => Some(FileKey(slot.parent)),
        };
        let name = match slot.len {
            LONG => self.long.get(&place)?,
            len => &slot.bytes[..usize::from(len)],
        };
        Some(Name { parent, name })
    }

    /// Prefetches a place.
    #[inline]
    pub fn prefetch(&self, place: usize) {
        if let Some(slot) = self.slots.get(place) {
            prefetch(slot);
        }
    }
}

impl Hot {
    /// Stores a name that an operation revealed about a file on `server`.
    #[inline]
    pub(super) fn learn_of(
        &mut self,
        server: IpAddress,
        file: FileKey,
        parent: Option<FileKey>,
        name: &[u8],
    ) {
        if let Some(parent) = parent {
            return self.defer_name(file, parent, twox_hash::XxHash3_64::oneshot(name), name);
        }
        // Prefixed with the server, as in the output of `mount`.
        let mut export = format!("{server}:").into_bytes();
        // Without the root's final slash, because `path` adds it again if nothing follows it.
        export.extend_from_slice(name.strip_suffix(b"/").unwrap_or(name));
        self.store_deferred();
        let place = self.files.place(file.0);
        let hash = twox_hash::XxHash3_64::oneshot(&export) | 1;
        self.set_name(
            place,
            hash,
            &Name {
                parent: None,
                name: &export,
            },
        );
    }

    /// The path as far as it is known; the unknown part is shown as `…`.
    pub(super) fn path(&self, file: FileKey) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut at = Some(file);
        while let Some(key) = at {
            let name = self.name_of(key);
            let Some(name) = name.filter(|_| parts.len() < DEPTH_MAX) else {
                parts.push("…".into());
                break;
            };
            // Names are untrusted bytes: control characters must not reach a terminal.
            let text = String::from_utf8_lossy(name.name);
            parts.push(
                text.chars()
                    .map(|c| if c.is_control() { '\u{fffd}' } else { c })
                    .collect(),
            );
            at = name.parent;
        }
        if parts.len() == 1 && parts[0] == "…" {
            return format!("(handle {:016x})", file.0);
        }
        if parts.len() == 1 && parts[0].ends_with(':') {
            parts[0].push('/');
        }
        parts.reverse();
        parts.join("/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Short and long names replace each other; an unused place, or one beyond the end, has no name.
    #[test]
    fn short_and_long_names_replace_each_other() {
        let mut names = Names::default();
        let long = [b'l'; INLINE + 1];
        let cases: [(Option<u64>, &[u8]); 5] = [
            (None, b"srv:/"),
            (Some(7), &long),
            (Some(8), &long[..INLINE]),
            (Some(9), b""),
            (Some(7), &long),
        ];
        for (parent, name) in cases {
            let name = Name {
                parent: parent.map(FileKey),
                name,
            };
            names.set(3, &name);
            assert_eq!(
                (names.get(3), names.get(2), names.get(4)),
                (Some(name), None, None)
            );
        }
    }

    #[test]
    fn a_slot_fills_one_cache_line() {
        assert_eq!(size_of::<Slot>(), 64);
    }
}
