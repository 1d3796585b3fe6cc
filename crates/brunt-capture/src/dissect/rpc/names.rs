//! File names in NFS and MOUNT messages, with their handles. Called for every operation by the analyses, and by the
//! trace for NFSv4. The one rule: only a root's name is reported without its directory.

use brunt_core::sketch::spread;
use brunt_wire::net::IpAddress;
use brunt_wire::nfs::{FileHandle, mount, v3, v4};

use super::exchange::{Body, Exchange};
use crate::dissect::OwnPart;
use crate::operation::{FileKey, Operation, leads_on};

/// The current object while walking a compound.
#[derive(Clone, Copy)]
enum At<'a> {
    Nowhere,
    File(FileKey),
    /// The object that a name in a directory led to.
    Below(FileKey, &'a [u8]),
}

impl OwnPart for Exchange<'_> {
    #[inline]
    fn each_name(
        &self,
        operation: &Operation<'_>,
        tell: &mut impl FnMut(FileKey, Option<FileKey>, &[u8]),
    ) {
        each_name(operation, self.body, tell);
    }
}

/// Passes on the names that an operation reveals: the file, its directory, and its name there. The root of an export
/// has no directory, and its path on the server as its name.
#[inline]
fn each_name(
    operation: &Operation<'_>,
    body: &Body<'_>,
    tell: &mut impl FnMut(FileKey, Option<FileKey>, &[u8]),
) {
    let server = operation.peers.server.address;
    match body {
        Body::Nfs3 {
            args: Some(args),
            results: Some(results),
            ..
        } => {
            if let Some(file) = operation.summary.file {
                each_nfs3(server, file, args, &results.body, tell);
            }
        }
        Body::Nfs4 {
            call: Some(call),
            reply: Some(reply),
        } => each_nfs4(server, call, reply, tell),
        Body::Mount {
            args: Some(mount::Args::Mount(path)),
            results: Some(mount::Results::Mounted(root)),
            ..
        } => tell(FileKey::new(server, *root), None, path),
        _ => {}
    }
}

#[inline]
fn each_nfs3(
    server: IpAddress,
    dir: FileKey,
    args: &v3::Args<'_>,
    results: &v3::ResultBody<'_>,
    tell: &mut impl FnMut(FileKey, Option<FileKey>, &[u8]),
) {
    let key = |handle: FileHandle<'_>| FileKey::new(server, handle);
    match (args, results) {
        (v3::Args::Lookup { what }, v3::ResultBody::Lookup { object, .. })
            if leads_on(what.name) =>
        {
            tell(key(*object), Some(dir), what.name);
        }
        (
            v3::Args::Create { place, .. }
            | v3::Args::Mkdir { place, .. }
            | v3::Args::Symlink { place, .. }
            | v3::Args::Mknod { place, .. },
            v3::ResultBody::Created {
                object: Some(object),
                ..
            },
        ) => tell(key(*object), Some(dir), place.name),
        (v3::Args::Readdirplus { .. }, v3::ResultBody::Readdir { entries, .. }) => {
            for entry in entries.iter() {
                if let Some(handle) = entry.handle
                    && leads_on(entry.name)
                {
                    tell(key(handle), Some(dir), entry.name);
                }
            }
        }
        _ => {}
    }
}

/// Follows names from handle to handle: GETFH returns the handle of the object that a name led to.
fn each_nfs4(
    server: IpAddress,
    call: &v4::CompoundArgs<'_>,
    reply: &v4::CompoundResults<'_>,
    tell: &mut impl FnMut(FileKey, Option<FileKey>, &[u8]),
) {
    let key = |handle: FileHandle<'_>| FileKey::new(server, handle);
    // Placeholder for the root's handle until it is known.
    let root = key(FileHandle(b""));
    let (mut at, mut saved) = (At::Nowhere, At::Nowhere);
    for step in v4::Walk::new(call, Some(reply)) {
        let Some(result) = step.result.filter(|result| result.status == v4::Status::OK) else {
            return;
        };
        match (step.args, result.body) {
            (v4::Args::Putfh { object }, _) => at = At::File(key(object)),
            (v4::Args::Putrootfh | v4::Args::Putpubfh, _) => at = At::File(root),
            (v4::Args::Savefh, _) => saved = at,
            (v4::Args::Restorefh, _) => at = saved,
            (v4::Args::Lookupp, _) => at = At::Nowhere,
            (v4::Args::Lookup { name } | v4::Args::Create { name, .. }, _) => {
                at = down(at, name, tell)
            }
            (v4::Args::Open { claim, .. }, _) => {
                if let Some(name) = claim.name() {
                    at = down(at, name, tell);
                }
            }
            (v4::Args::Getfh, v4::ResultBody::Getfh { object }) => {
                match at {
                    At::Below(parent, name) => tell(key(object), Some(parent), name),
                    At::File(file) if file == root => {
                        for file in [root, key(object)] {
                            tell(file, None, b"");
                        }
                    }
                    _ => {}
                }
                at = At::File(key(object));
            }
            (v4::Args::Readdir { .. }, v4::ResultBody::Readdir { entries, .. }) => {
                let Some(parent) = place(at, tell) else {
                    continue;
                };
                for entry in entries.iter() {
                    if let Some(handle) = entry.attributes.parse().handle {
                        tell(key(handle), Some(parent), entry.name);
                    }
                }
            }
            _ => {}
        }
    }
}

fn down<'n>(
    at: At<'n>,
    name: &'n [u8],
    tell: &mut impl FnMut(FileKey, Option<FileKey>, &[u8]),
) -> At<'n> {
    place(at, tell).map_or(At::Nowhere, |parent| At::Below(parent, name))
}

/// The key of the current object, derived from the name if the handle is unknown.
fn place(at: At<'_>, tell: &mut impl FnMut(FileKey, Option<FileKey>, &[u8])) -> Option<FileKey> {
    match at {
        At::Nowhere => None,
        At::File(file) => Some(file),
        At::Below(parent, name) => {
            let place = FileKey(spread(parent.0 ^ twox_hash::XxHash3_64::oneshot(name)));
            tell(place, Some(parent), name);
            Some(place)
        }
    }
}
