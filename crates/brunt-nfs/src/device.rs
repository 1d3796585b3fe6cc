//! A file on an NFS server as a backend, and one thread's connections to it as a device.
//!
//! The one rule: guarantees that the server doesn't give are listed in the device's notes, never emulated silently.

use std::sync::{Arc, Mutex, PoisonError};

use brunt_block::backends::{TRANSFER_BYTES_MAX, whole_blocks};
use brunt_block::open::DevicePreview;
use brunt_block::remote::{Opening, RemoteDevice, RemoteLink};
use brunt_block::table::{BackendEntry, OpenError, Opened, UrlOptions};
use brunt_block::{Backend, Device, DeviceError, DeviceInfo, ReconnectState, Ring, StorageId};
use brunt_core::units::format_size;

use crate::calls::DEPTH_MAX;
use crate::connect::{self, NfsConnection, NfsLookup, random_xid};
use crate::connect_error::NfsConnectError;
use crate::disk::{NfsDisk, NfsDiskConfig, NfsStability};
use crate::folder::NfsFolder;
use crate::protocol::NfsProtocol;
use crate::rpc::sys_credentials;
use crate::url::{NfsConfig, NfsVersion, OPTIONS};

/// The entry in the table of backends.
pub const NFS: BackendEntry = BackendEntry {
    name: "nfs",
    help: "a file on an NFS server, over NFSv3 or NFSv4.1 and TCP, without a kernel mount; with a '/' \
     at the end, a directory for nfs loads",
    example: "nfs://127.0.0.1/export/disk.img?create=yes&size=1GiB",
    options: OPTIONS,
    open: |place, options| open_entry(place, options),
    preview: |place, options| {
        let config = NfsConfig::parse(place, options)?;
        // An existing file may be longer.
        let known = |size_bytes| DevicePreview {
            size_bytes,
            block_bytes: config.block_bytes,
            read_only: config.read_only,
        };
        Ok(config.create_bytes.map(known))
    },
};

fn open_entry(place: &str, options: &mut UrlOptions) -> Opened {
    let mut config = NfsConfig::parse(place, options)?;
    // A folder has no blocks that could be overwritten: a load creates its own files there and writes only to them.
    config.read_only &= !(config.is_folder && options.is_spared());
    Ok(match config.is_folder {
        true => Arc::new(NfsFolder::open(config)?),
        false => Arc::new(NfsBackend::open(config)?),
    })
}

/// A file to which a connection was made, so its properties are known.
#[derive(Debug)]
pub struct NfsBackend {
    config: NfsConfig,
    info: DeviceInfo,
    found: NfsLookup,
    size_bytes: u64,
    stability: Arc<NfsStability>,
    /// The connection from opening, for the first device.
    spare: Mutex<Option<NfsConnection>>,
}

impl NfsBackend {
    /// Finds the file, or creates it, and reads its properties.
    ///
    /// # Errors
    /// See [`NfsConnectError`].
    pub fn open(config: NfsConfig) -> Result<NfsBackend, NfsConnectError> {
        let (connection, found) = connect::find(&config)?;
        let size_bytes = connection.size_bytes;
        let mut info = describe(&config, &found, size_bytes)?;
        if let Some(socket) = connection.socket.as_tcp() {
            let set = config.sockets.apply(socket);
            set.map_err(|error| {
                NfsConnectError::Io(config.server(), "setting its socket's options", error)
            })?;
            info.notes.extend(config.sockets.complaint(socket));
            info.facts.extend(config.sockets.facts(socket));
        }
        // A session has as many slots as its device has calls, which isn't known yet.
        let spare = match config.version {
            NfsVersion::V3 => Some(connection),
            NfsVersion::V41 => {
                connection.close(&config);
                None
            }
        };
        let spare = Mutex::new(spare);
        Ok(NfsBackend {
            config,
            info,
            found,
            size_bytes,
            stability: Arc::default(),
            spare,
        })
    }

    fn link(
        &self,
        ring: &Ring,
        depth: u32,
    ) -> Result<RemoteLink<NfsProtocol<NfsDisk>>, NfsConnectError> {
        let NfsBackend { config, found, .. } = self;
        let spare = self
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let client = connect::client_of(config, depth);
        let connection = match spare {
            Some(connection) => connection,
            None => connect::connect(config, client.as_ref(), &found.file)?,
        };
        let disk = NfsDiskConfig {
            depth,
            timeout: config.timeout,
            tries: config.tries,
            write_back: config.write_back,
            credentials: sys_credentials(config.uid, config.gid),
            first_xid: random_xid().0,
            client: client.clone(),
        };
        let opening = Opening {
            protocol: NfsProtocol::new(config.clone(), self.size_bytes),
            session: NfsDisk::new(disk, found.file.clone(), Arc::clone(&self.stability)),
            depth,
            connect_retries: connection.retries,
            connect_trouble: connection.trouble.clone(),
            connection,
        };
        let (again, file) = (config.clone(), found.file.clone());
        let connect = move |limit| connect::connect_once(&again, client.as_ref(), &file, limit);
        let reconnect = ReconnectState::up(config.reconnect, config.timeout, ring, connect);
        RemoteLink::new(opening, reconnect, ring)
            .map_err(|error| NfsConnectError::Io(config.server(), "setting up its socket", error))
    }
}

/// The properties of a device on this file.
fn describe(
    config: &NfsConfig,
    found: &NfsLookup,
    size_bytes: u64,
) -> Result<DeviceInfo, NfsConnectError> {
    let block_bytes = config.block_bytes;
    let mut notes = Vec::new();
    let whole_bytes = whole_blocks(size_bytes, block_bytes, &mut notes);
    if whole_bytes == 0 {
        let what = format!(
            "a file of {size_bytes} bytes is smaller than one block of {block_bytes} bytes; add \
             create=yes&size=1GiB to extend it"
        );
        return Err(NfsConnectError::File(config.name(), what));
    }
    let sizes = [found.file.read_bytes_max, found.file.write_bytes_max]
        .map(|bytes| format_size(bytes.into()));
    let preferred = [found.preferred.0, found.preferred.1].map(|bytes| format_size(bytes.into()));
    let mut facts = vec![format!(
        "{}: {}reads up to {} (preferred {}), writes up to {} ({})",
        config.version.name(),
        found.export_text(),
        sizes[0],
        preferred[0],
        sizes[1],
        preferred[1]
    )];
    if !config.read_only {
        facts.push(match config.write_back {
            true => "writes are UNSTABLE; a flush is a COMMIT of the whole file".to_string(),
            false => "all writes are FILE_SYNC".to_string(),
        });
        notes.push(format!(
            "{} cannot deallocate blocks; zeros are sent as data",
            config.version.name()
        ));
    }
    Ok(DeviceInfo {
        name: config.name(),
        block_bytes,
        size_bytes: whole_bytes,
        physical_block_bytes: 4096.max(block_bytes),
        buffer_align: 1,
        transfer_bytes_max: TRANSFER_BYTES_MAX / block_bytes * block_bytes,
        read_only: config.read_only,
        volatile_cache: config.write_back && !config.read_only,
        unmap: false,
        facts,
        notes,
    })
}

impl Backend for NfsBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn storage(&self) -> Vec<StorageId> {
        let (file_system, file) = self.found.identity;
        let size_bytes = self.info.size_bytes;
        vec![
            StorageId::Remote(format!(
                "nfs://{}/{file_system:x}:{file:x}",
                self.config.host
            )),
            // A server may have several names and addresses, so other URLs may name the same file.
            StorageId::Alike(format!(
                "NFS file {file:x} of file system {file_system:x}, {size_bytes} bytes"
            )),
        ]
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        if ring.config().iopoll {
            return Err(DeviceError::Unsupported.into()); // sockets are not polled
        }
        let count = self.config.connections;
        let depth = depth.div_ceil(count).clamp(1, DEPTH_MAX);
        let links: Result<Vec<_>, _> = (0..count).map(|_| self.link(ring, depth)).collect();
        Ok(Box::new(RemoteDevice::new(self.info.clone(), links?, ())))
    }
}
