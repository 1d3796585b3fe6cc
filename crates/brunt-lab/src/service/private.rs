//! Private folders for services whose programs have fixed paths, such as `/var/lib/glusterd`: each is created in the
//! service's own folder and mounted at that path on its host.
//!
//! Called by keepers on lab hosts, whose mounts are invisible elsewhere ([`crate::host`]). The rule: nothing is
//! created outside the service's folder, and mounts from before a restart stay as they are.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use rustix::mount::mount_bind;

use super::KeeperOrder;
use super::error::ServiceError;

/// The subfolder of the service's folder that holds its private folders.
const WITHIN: &str = "private";

/// Mounts all private folders of a service.
pub(super) fn mount_all(order: &KeeperOrder) -> Result<(), ServiceError> {
    order.private.iter().try_for_each(|path| {
        let failed = |source| ServiceError::Private {
            path: path.clone(),
            source,
        };
        let real = path.canonicalize().map_err(failed)?;
        let own = place(&order.folder, &real);
        if let Some(hidden) = hidden(&real, order) {
            return Err(ServiceError::PrivateHides {
                path: path.clone(),
                hidden,
            });
        }
        mount(&own, &real).map_err(failed)
    })
}

/// The private folder for this path.
fn place(folder: &Path, path: &Path) -> PathBuf {
    folder
        .join(WITHIN)
        .join(path.strip_prefix("/").unwrap_or(path))
}

/// A path that the keeper needs but that mounting over `path` would hide.
fn hidden(path: &Path, order: &KeeperOrder) -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    [order.folder.clone(), order.log.clone(), program]
        .into_iter()
        .find(|needed| needed.starts_with(path))
}

fn mount(own: &Path, path: &Path) -> io::Result<()> {
    let there = fs::metadata(path)?;
    if !there.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    fs::create_dir_all(own)?;
    let made = fs::metadata(own)?;
    if (made.dev(), made.ino()) == (there.dev(), there.ino()) {
        return Ok(());
    }
    fs::set_permissions(own, there.permissions())?;
    // A lab without root has a single user, who owns everything.
    let _ = chown(own, Some(there.uid()), Some(there.gid()));
    Ok(mount_bind(own, path)?)
}
