//! Names of files from the replies that carry a name with a handle, and paths from those.

use brunt_wire::net::Address;
use brunt_wire::nfs::{FileHandle, mount, v3};

use super::hot::Hot;
use super::sketch::spread;
use crate::operation::{Body, FileKey, Operation};

/// Directories above a file that are followed.
const DEPTH_MAX: usize = 64;

/// How a file is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The directory it is in; none for the root of an export, whose name is its path.
    pub parent: Option<FileKey>,
    /// The name, or the path of an export.
    pub name: Box<[u8]>,
    /// A hash of both: the same name comes again and again, and need not be looked up to be known.
    hash: u64,
}

impl Hot {
    /// Looks for names that go with handles.
    pub(super) fn learn_names(&mut self, operation: &Operation<'_>) {
        let server = operation.peers.server.address;
        match &operation.body {
            Body::Nfs3 { args: Some(args), results: Some(results), .. } => {
                self.learn_nfs(server, args, &results.body);
            }
            Body::Mount {
                args: Some(mount::Args::Mount(path)),
                results: Some(mount::Results::Mounted(root)),
                ..
            } => {
                // With the server before it, as `mount` shows it.
                let mut export = format!("{server}:").into_bytes();
                export.extend_from_slice(path);
                self.learn(FileKey::new(server, *root), None, &export);
            }
            _ => {}
        }
    }

    #[inline]
    fn learn_nfs(&mut self, server: Address, args: &v3::Args<'_>, results: &v3::ResultBody<'_>) {
        let key = |handle: FileHandle<'_>| FileKey::new(server, handle);
        match (args, results) {
            (v3::Args::Lookup { what }, v3::ResultBody::Lookup { object, .. })
                if what.name != b"." && what.name != b".." =>
            {
                self.learn(key(*object), Some(key(what.dir)), what.name);
            }
            (
                v3::Args::Create { place, .. }
                | v3::Args::Mkdir { place, .. }
                | v3::Args::Symlink { place, .. }
                | v3::Args::Mknod { place, .. },
                v3::ResultBody::Created { object: Some(object), .. },
            ) => self.learn(key(*object), Some(key(place.dir)), place.name),
            (v3::Args::Readdirplus { dir, .. }, v3::ResultBody::Readdir { entries, .. }) => {
                let parent = key(*dir);
                for entry in entries.iter() {
                    if let Some(handle) = entry.handle
                        && entry.name != b"."
                        && entry.name != b".."
                    {
                        self.learn(key(handle), Some(parent), entry.name);
                    }
                }
            }
            _ => {}
        }
    }

    fn learn(&mut self, file: FileKey, parent: Option<FileKey>, name: &[u8]) {
        let hash = twox_hash::XxHash3_64::oneshot(name) ^ parent.map_or(0, |parent| spread(parent.0));
        let known = &mut self.files.entry(file.0).name;
        if known.as_ref().is_none_or(|known| known.hash != hash) {
            *known = Some(Name { parent, name: name.into(), hash });
        }
    }

    /// The path as far as it is known; what is not is shown as `…`.
    pub(super) fn path(&self, file: FileKey) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut at = Some(file);
        while let Some(key) = at {
            let name = self.files.get(key.0).and_then(|entry| entry.name.as_ref());
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
        parts.reverse();
        parts.join("/")
    }
}
