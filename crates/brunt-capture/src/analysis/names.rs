//! Names of files by the places of a table, and paths from them.

use std::collections::HashMap;

use brunt_core::prefetch;
use brunt_wire::net::IpAddress;
use serde::{Deserialize, Serialize};

use super::hot::Hot;
use crate::operation::FileKey;

/// Directories above a file that are followed.
const DEPTH_MAX: usize = 64;

/// Bytes of a name that are kept in its place.
const INLINE: usize = 54;
/// Stands for the length of a longer one.
const LONG: u8 = u8::MAX;

/// How a file is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Name<'a> {
    /// The directory it is in; none for the root of an export, whose name is its path.
    pub parent: Option<FileKey>,
    /// The name, or the path of an export.
    pub name: &'a [u8],
}

/// The same as it is read.
#[derive(Debug, Deserialize)]
pub struct StoredName {
    parent: Option<FileKey>,
    name: Box<[u8]>,
}

impl StoredName {
    /// How the file is called.
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

/// One cache line. Nothing of it needs to be freed: a name is replaced without a look at the one before, which
/// matters where more files than the table holds take turns in it.
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
    /// Those that do not fit, of places whose slot says so; one is left behind where a shorter name came.
    long: HashMap<usize, Box<[u8]>>,
}

impl Names {
    /// Puts a name into a place, instead of the one that is there.
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

    /// The name in a place.
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

    /// Asks for a place before it is needed.
    #[inline]
    pub fn prefetch(&self, place: usize) {
        if let Some(slot) = self.slots.get(place) {
            prefetch(slot);
        }
    }
}

impl Hot {
    /// What an operation told of a file of `server`.
    #[inline]
    pub(super) fn learn_of(
        &mut self,
        server: IpAddress,
        file: FileKey,
        parent: Option<FileKey>,
        name: &[u8],
    ) {
        if let Some(parent) = parent {
            return self.tell(file, parent, twox_hash::XxHash3_64::oneshot(name), name);
        }
        // With the server before it, as `mount` shows it.
        let mut export = format!("{server}:").into_bytes();
        // The root's slash comes back in `path`, where nothing follows it.
        export.extend_from_slice(name.strip_suffix(b"/").unwrap_or(name));
        self.learn_told();
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

    /// The path as far as it is known; what is not is shown as `…`.
    pub(super) fn path(&self, file: FileKey) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut at = Some(file);
        while let Some(key) = at {
            let name = self.name_of(key);
            let Some(name) = name.filter(|_| parts.len() < DEPTH_MAX) else {
                parts.push("…".into());
                break;
            };
            // Names are a peer's bytes: nothing of them may reach a terminal's control codes.
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

    /// Short and long names replace each other; a place without one, or behind the last, has none.
    #[test]
    fn names_by_place() {
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
    fn sizes() {
        assert_eq!(size_of::<Slot>(), 64);
    }
}
