//! A VDI as a backend, and a thread's connections to it as a device.
//!
//! All threads of a process share the disk's object map, so any number of threads and connections is possible. Other
//! processes are excluded by the VDI's lock, if the cluster has locks.
//!
//! The one rule: guarantees that the store doesn't make are listed in the device's notes, never emulated silently.

use std::sync::{Arc, Mutex, PoisonError};

use brunt_block::backends::{TRANSFER_BYTES_MAX, whole_blocks};
use brunt_block::device::Allocation;
use brunt_block::remote::{Opening, RemoteDevice, RemoteLink};
use brunt_block::table::{BackendEntry, OpenError, Opened, UrlOptions};
use brunt_block::{Backend, Device, DeviceError, DeviceInfo, ReconnectState, Ring, StorageId};
use brunt_wire::sheepdog::SheepdogInode;

use super::connect::{self, SheepdogConnection, SheepdogLock};
use super::connect_error::SheepdogConnectError;
use super::link::SheepdogProtocol;
use super::objects::SheepdogObjects;
use super::session::{DEPTH_MAX, SheepdogSession, SheepdogSessionConfig};
use super::url::{OPTIONS, SheepdogConfig};

/// The entry in the table of backends.
pub const SHEEPDOG: BackendEntry = BackendEntry {
    name: "sheepdog",
    help: "a virtual disk (VDI) in a Sheepdog cluster, over its own protocol",
    example: "sheepdog://127.0.0.1:7000/disk",
    options: OPTIONS,
    open: |place, options| open_entry(place, options),
    preview: |place, options| SheepdogConfig::parse(place, options).map(|_| None),
};

fn open_entry(place: &str, options: &mut UrlOptions) -> Opened {
    Ok(Arc::new(SheepdogBackend::open(SheepdogConfig::parse(
        place, options,
    )?)?))
}

/// A disk that has been connected to, so its properties are known.
#[derive(Debug)]
pub struct SheepdogBackend {
    config: SheepdogConfig,
    info: DeviceInfo,
    objects: Arc<SheepdogObjects>,
    lock: Arc<HeldLock>,
    /// The connection from opening, for the first device.
    spare: Mutex<Option<SheepdogConnection>>,
}

impl SheepdogBackend {
    /// Connects, locks the VDI and reads its properties.
    ///
    /// # Errors
    /// See [`SheepdogConnectError`].
    pub fn open(config: SheepdogConfig) -> Result<SheepdogBackend, SheepdogConnectError> {
        let lock = if config.lock {
            SheepdogLock::Take
        } else {
            SheepdogLock::Without
        };
        let mut connection = connect::connect(&config, lock, None)?;
        let map = connection
            .map
            .take()
            .expect("a first connection reads the map");
        let objects = Arc::new(SheepdogObjects::new(connection.inode.clone(), map));
        // From here on, the lock is always released.
        let lock = Arc::new(HeldLock {
            config: config.clone(),
            objects: Arc::clone(&objects),
        });
        let mut info = describe(&config, &objects)?;
        if let Some(socket) = connection.socket.as_tcp() {
            config.sockets.apply(socket).map_err(|error| {
                SheepdogConnectError::Io(config.address(), "setting its socket's options", error)
            })?;
            info.notes.extend(config.sockets.complaint(socket));
            info.facts.extend(config.sockets.facts(socket));
        }
        Ok(SheepdogBackend {
            config,
            info,
            objects,
            lock,
            spare: Mutex::new(Some(connection)),
        })
    }
}

impl SheepdogBackend {
    /// Creates a link for a thread's device.
    fn link(
        &self,
        ring: &Ring,
        depth: u32,
    ) -> Result<RemoteLink<SheepdogProtocol>, SheepdogConnectError> {
        let SheepdogBackend {
            config, objects, ..
        } = self;
        let lock = if config.lock {
            SheepdogLock::Keep
        } else {
            SheepdogLock::Without
        };
        let spare = self
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let connection = match spare {
            Some(connection) => connection,
            None => connect::connect(config, lock, Some(objects.vdi()))?,
        };
        let SheepdogConfig {
            timeout,
            tries,
            cache,
            ..
        } = *config;
        let session_config = SheepdogSessionConfig {
            depth,
            timeout,
            tries,
            cache,
        };
        let setting_up =
            |error| SheepdogConnectError::Io(config.address(), "setting up its socket", error);
        let opening = Opening {
            session: SheepdogSession::new(session_config, Arc::clone(objects)),
            protocol: SheepdogProtocol::new(config, objects, ring).map_err(setting_up)?,
            depth,
            connect_retries: connection.retries,
            connect_trouble: connection.trouble.clone(),
            connection,
        };
        let (again, known) = (config.clone(), Arc::clone(objects));
        let connect = move |limit| connect::connect_once(&again, lock, Some(known.vdi()), limit);
        let reconnect = ReconnectState::up(config.reconnect, timeout, ring, connect);
        RemoteLink::new(opening, reconnect, ring).map_err(setting_up)
    }
}

/// The properties of a device on this disk.
fn describe(
    config: &SheepdogConfig,
    objects: &SheepdogObjects,
) -> Result<DeviceInfo, SheepdogConnectError> {
    let inode = objects.inode();
    let block_bytes = config.block_bytes;
    let mut notes = Vec::new();
    let size_bytes = whole_blocks(inode.size_bytes, block_bytes, &mut notes);
    if size_bytes == 0 {
        let what = format!(
            "a disk of {} bytes is smaller than one block of {block_bytes} bytes",
            inode.size_bytes
        );
        return Err(SheepdogConnectError::Vdi(config.name(), what));
    }
    let read_only = config.read_only || inode.is_snapshot;
    if !read_only {
        if config.cache {
            notes.push(
                "through the object cache, if the server has one: writes are stable after a flush"
                    .to_string(),
            );
        }
        notes.push(
            "durability of writes depends on the sheep: with -n, they acknowledge before writes \
             reach a disk"
                .to_string(),
        );
    }
    Ok(DeviceInfo {
        name: config.name(),
        block_bytes,
        size_bytes,
        physical_block_bytes: 4096.max(block_bytes),
        buffer_align: 1,
        transfer_bytes_max: TRANSFER_BYTES_MAX / block_bytes * block_bytes,
        read_only,
        volatile_cache: config.cache && !read_only,
        unmap: true,
        facts: facts(&inode, objects.allocated()),
        notes,
    })
}

fn facts(inode: &SheepdogInode, allocated: usize) -> Vec<String> {
    let redundancy = match inode.copy_policy {
        0 => format!("{} copies", inode.copies),
        policy => format!("erasure coded {}:{}", (policy >> 4) * 2, policy & 0x0f),
    };
    let objects = inode.objects_count();
    let object_mib = inode.object_bytes() >> 20;
    let mut facts = vec![format!(
        "Sheepdog: VDI {:x}, {redundancy}, objects of {object_mib} MiB, {allocated} of {objects} allocated",
        inode.vdi
    )];
    if inode.is_snapshot {
        facts.push(format!("snapshot {} '{}'", inode.snapshot, inode.tag));
    }
    if inode.parent != 0 {
        facts.push(format!("based on the snapshot VDI {:x}", inode.parent));
    }
    facts
}

impl Backend for SheepdogBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn storage(&self) -> Vec<StorageId> {
        vec![StorageId::Remote(self.info.name.clone())]
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        if ring.config().iopoll {
            return Err(DeviceError::Unsupported.into()); // sockets are not polled
        }
        let count = self.config.connections;
        let depth = depth.div_ceil(count).clamp(1, DEPTH_MAX);
        let links: Result<Vec<_>, _> = (0..count).map(|_| self.link(ring, depth)).collect();
        let device = RemoteDevice::new(self.info.clone(), links?, Arc::clone(&self.lock));
        Ok(Box::new(device))
    }

    fn allocation(&self, offset: u64) -> Option<(Allocation, u64)> {
        (offset < self.info.size_bytes).then(|| self.objects.allocation(offset))
    }
}

/// The VDI's lock, released with the last device.
#[derive(Debug)]
struct HeldLock {
    config: SheepdogConfig,
    objects: Arc<SheepdogObjects>,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if self.config.lock {
            // The error can no longer be reported; `dog vdi lock list` shows a remaining lock.
            let _ = connect::release(&self.config, &self.objects.all_vdis());
        }
    }
}
