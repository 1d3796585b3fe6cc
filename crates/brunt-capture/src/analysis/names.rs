//! Names of files from the replies that carry a name with a handle, and paths from those.

use brunt_wire::net::Address;
use brunt_wire::nfs::{FileHandle, mount, v3, v4};

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

/// Where a compound is, as its operations lead it.
#[derive(Clone, Copy)]
enum At<'a> {
    Nowhere,
    File(FileKey),
    /// What this name in this directory led to.
    Below(FileKey, &'a [u8]),
}

impl Hot {
    /// Looks for names that go with handles.
    pub(super) fn learn_names(&mut self, operation: &Operation<'_>) {
        let server = operation.peers.server.address;
        match &operation.body {
            Body::Nfs3 { args: Some(args), results: Some(results), .. } => {
                self.learn_nfs(server, args, &results.body);
            }
            Body::Nfs4 { call: Some(call), reply: Some(reply) } => self.learn_compound(server, call, reply),
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

    /// Names lead from handle to handle: what a name led to is known by its handle once GETFH asked.
    fn learn_compound(&mut self, server: Address, call: &v4::Call<'_>, reply: &v4::Reply<'_>) {
        let key = |handle: FileHandle<'_>| FileKey::new(server, handle);
        // Stands for the root's handle until that is seen.
        let root = key(FileHandle(b""));
        let (mut at, mut saved) = (At::Nowhere, At::Nowhere);
        for step in v4::Walk::new(call, Some(reply)) {
            let Some(result) = step.result.filter(|result| result.status == v4::Status::OK) else { return };
            match (step.args, result.body) {
                (v4::Args::Putfh { object }, _) => at = At::File(key(object)),
                (v4::Args::Putrootfh | v4::Args::Putpubfh, _) => at = At::File(root),
                (v4::Args::Savefh, _) => saved = at,
                (v4::Args::Restorefh, _) => at = saved,
                (v4::Args::Lookupp, _) => at = At::Nowhere,
                (v4::Args::Lookup { name } | v4::Args::Create { name, .. }, _) => at = self.down(at, name),
                (v4::Args::Open { claim, .. }, _) => {
                    at = claim.name().map_or(at, |name| self.down(at, name));
                }
                (v4::Args::Getfh, v4::ResultBody::Getfh { object }) => {
                    match at {
                        At::Below(parent, name) => self.learn(key(object), Some(parent), name),
                        At::File(file) if file == root => {
                            // As `mount` shows it.
                            for file in [root, key(object)] {
                                self.learn(file, None, format!("{server}:").as_bytes());
                            }
                        }
                        _ => {}
                    }
                    at = At::File(key(object));
                }
                (v4::Args::Readdir { .. }, v4::ResultBody::Readdir { entries, .. }) => {
                    let Some(parent) = self.place(at) else { continue };
                    for entry in entries.iter() {
                        if let Some(handle) = entry.attributes.parse().handle {
                            self.learn(key(handle), Some(parent), entry.name);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn down<'n>(&mut self, at: At<'n>, name: &'n [u8]) -> At<'n> {
        self.place(at).map_or(At::Nowhere, |parent| At::Below(parent, name))
    }

    /// The key of where a compound is; made up from the name when no handle is known.
    fn place(&mut self, at: At<'_>) -> Option<FileKey> {
        match at {
            At::Nowhere => None,
            At::File(file) => Some(file),
            At::Below(parent, name) => {
                let place = FileKey(spread(parent.0 ^ twox_hash::XxHash3_64::oneshot(name)));
                self.learn(place, Some(parent), name);
                Some(place)
            }
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
