//! Paths of files, from the names that operations tell of.

use brunt_wire::net::IpAddress;
use serde::{Deserialize, Serialize};

use super::hot::Hot;
use crate::operation::FileKey;

/// Directories above a file that are followed.
const DEPTH_MAX: usize = 64;

/// How a file is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// The directory it is in; none for the root of an export, whose name is its path.
    pub parent: Option<FileKey>,
    /// The name, or the path of an export.
    pub name: Box<[u8]>,
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
        self.set_name(place, hash, Name { parent: None, name: export.into() });
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
            let text = String::from_utf8_lossy(&name.name);
            parts.push(text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect());
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
