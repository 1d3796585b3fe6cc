//! A folder of an NFS server as a backend: not a block device, but a place where a load makes other calls
//! ([`NfsFolder::operations`]).
//!
//! The one rule: this code changes nothing in the folder.

use brunt_block::remote::{Opening, RemoteDevice, RemoteLink};
use brunt_block::table::OpenError;
use brunt_block::{Backend, Device, DeviceError, DeviceInfo, ReconnectState, Ring, StorageId};
use brunt_core::units::format_size;
use brunt_wire::nfs::DATA_BYTES_MAX;
use std::any::Any;
use std::time::Duration;

use crate::calls::DEPTH_MAX;
use crate::connect::{self, NfsLookup, random_xid};
use crate::connect_error::NfsConnectError;
use crate::conversation::NfsConversation;
use crate::disk::NfsFile;
use crate::operations::{NfsOperations, NfsOperationsConfig, NfsPlan};
use crate::protocol::NfsProtocol;
use crate::rpc::sys_credentials;
use crate::url::{NfsConfig, NfsVersion};

/// A folder that was found.
#[derive(Debug)]
pub struct NfsFolder {
    config: NfsConfig,
    info: DeviceInfo,
    found: NfsLookup,
}

impl NfsFolder {
    /// Finds the folder.
    ///
    /// # Errors
    /// See [`NfsConnectError`].
    pub fn open(config: NfsConfig) -> Result<NfsFolder, NfsConnectError> {
        let found = connect::find_folder(&config)?;
        let sizes = [found.file.read_bytes_max, found.file.write_bytes_max];
        let [read, write] = sizes.map(|bytes| format_size(bytes.into()));
        let fact = format!(
            "{}: {}reads up to {read}, writes up to {write}",
            config.version.name(),
            found.export_text()
        );
        // A folder has no block capacity.
        let info = DeviceInfo {
            name: config.name(),
            block_bytes: 512,
            size_bytes: 0,
            physical_block_bytes: 4096,
            buffer_align: 1,
            transfer_bytes_max: DATA_BYTES_MAX,
            read_only: config.read_only,
            volatile_cache: false,
            unmap: false,
            facts: vec![fact],
            notes: Vec::new(),
        };
        Ok(NfsFolder {
            config,
            info,
            found,
        })
    }

    /// The folder's handle, and the server's limits.
    pub fn place(&self) -> &NfsFile {
        &self.found.file
    }

    /// The URL without its options.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// The version of NFS.
    pub fn version(&self) -> NfsVersion {
        self.config.version
    }

    /// The configured time limit for a call.
    pub fn timeout(&self) -> Duration {
        self.config.timeout
    }

    /// Number of connections per device.
    pub fn connections(&self) -> u32 {
        self.config.connections
    }

    /// A connection for one call at a time, whose calls must end within this time.
    ///
    /// # Errors
    /// See [`NfsConnectError`].
    pub fn converse(&self, limit: Duration) -> Result<NfsConversation, NfsConnectError> {
        connect::converse(&self.config, limit)
    }

    /// A device on this thread's ring whose requests are the calls of a plan, up to `depth` at once.
    ///
    /// # Errors
    /// The server doesn't answer, or this ring can't have sockets.
    pub fn operations<P: NfsPlan + Clone + 'static>(
        &self,
        plan: P,
        ring: &Ring,
        depth: u32,
    ) -> Result<Box<dyn Device>, OpenError> {
        if ring.config().iopoll {
            return Err(DeviceError::Unsupported.into()); // sockets are not polled
        }
        let count = self.config.connections;
        let depth = depth.div_ceil(count).clamp(1, DEPTH_MAX);
        let link = |_| self.link(plan.clone(), ring, depth);
        let links: Result<Vec<_>, _> = (0..count).map(link).collect();
        // The plan defines what offsets mean.
        let info = DeviceInfo {
            block_bytes: 1,
            size_bytes: u64::MAX,
            read_only: false,
            ..self.info.clone()
        };
        Ok(Box::new(RemoteDevice::new(info, links?, ())))
    }

    fn link<P: NfsPlan>(
        &self,
        plan: P,
        ring: &Ring,
        depth: u32,
    ) -> Result<RemoteLink<NfsProtocol<NfsOperations<P>>>, NfsConnectError> {
        let config = &self.config;
        let client = connect::client_of(config, depth);
        let connection = connect::connect_to_folder(config, client.as_ref(), config.timeout)?;
        let session = NfsOperationsConfig {
            depth,
            timeout: config.timeout,
            tries: config.tries,
            credentials: sys_credentials(config.uid, config.gid),
            read_bytes_max: self.found.file.read_bytes_max,
            first_xid: random_xid().0,
            client: client.clone(),
        };
        let opening = Opening {
            protocol: NfsProtocol::new(config.clone(), connection.size_bytes),
            session: NfsOperations::new(session, plan),
            depth,
            connect_retries: connection.retries,
            connect_trouble: connection.trouble.clone(),
            connection,
        };
        let again = config.clone();
        let connect = move |limit| connect::connect_to_folder(&again, client.as_ref(), limit);
        let reconnect = ReconnectState::up(config.reconnect, config.timeout, ring, connect);
        RemoteLink::new(opening, reconnect, ring)
            .map_err(|error| NfsConnectError::Io(config.server(), "setting up its socket", error))
    }
}

/// A folder was opened as a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a directory has no blocks")]
struct FolderAsDevice;

impl Backend for NfsFolder {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn storage(&self) -> Vec<StorageId> {
        let (file_system, file) = self.found.identity;
        vec![StorageId::Remote(format!(
            "nfs://{}/{file_system:x}:{file:x}",
            self.config.host
        ))]
    }

    fn open(&self, _ring: &Ring, _depth: u32) -> Result<Box<dyn Device>, OpenError> {
        Err(OpenError::Url {
            source: Box::new(FolderAsDevice),
            advice: "a workload with nfs = {} makes calls in a directory; for other workloads, \
                name a file: nfs://server/export/path/file",
        })
    }

    fn concrete(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
