//! An export as a backend, and a thread's connections to it as a device.
//!
//! Several connections, whether of one thread or several, are used only if the server announces CAN_MULTI_CONN:
//! otherwise a write that was flushed on one connection need not be visible on another.
//!
//! The one rule: features that the server doesn't offer are listed in the device's notes, never emulated silently.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brunt_block::backends::{TRANSFER_BYTES_MAX, whole_blocks};
use brunt_block::device::Allocation;
use brunt_block::remote::{Opening, RemoteDevice, RemoteLink};
use brunt_block::table::{BackendEntry, OpenError, Opened, UrlOptions};
use brunt_block::{Backend, Device, DeviceError, DeviceInfo, ReconnectState, Ring, StorageId};
use brunt_wire::nbd::{allocation, export_flag};

use super::connect::{self, NbdConnection, NbdStatusAsker};
use super::connect_error::NbdConnectError;
use super::export::NbdExport;
use super::link::{NbdProtocol, Receiving};
use super::listener;
use super::session::{DEPTH_MAX, NbdSession, NbdSessionConfig};
use super::url::{NbdAddress, NbdConfig, OPTIONS};

/// The entries in the table of backends.
pub const NBD: BackendEntry = BackendEntry {
    name: "nbd",
    help: "an export of an NBD server, without a kernel driver",
    example: "nbd://127.0.0.1:10809/disk",
    options: OPTIONS,
    open: |place, options| open_entry("nbd", place, options),
    preview: |place, options| NbdConfig::parse("nbd", place, options).map(|_| None),
};

/// NBD with TLS.
pub const NBDS: BackendEntry = BackendEntry {
    name: "nbds",
    help: "an export of an NBD server over TLS 1.3; options as for nbd",
    example: "nbds://127.0.0.1:10809/disk?tls-certificates=/etc/pki/nbd",
    open: |place, options| open_entry("nbds", place, options),
    preview: |place, options| NbdConfig::parse("nbds", place, options).map(|_| None),
    ..NBD
};

/// NBD on a Unix socket.
pub const NBD_UNIX: BackendEntry = BackendEntry {
    name: "nbd+unix",
    help: "an export of an NBD server on a Unix socket; options as for nbd",
    example: "nbd+unix:///disk?socket=/tmp/nbd.sock",
    open: |place, options| open_entry("nbd+unix", place, options),
    preview: |place, options| NbdConfig::parse("nbd+unix", place, options).map(|_| None),
    ..NBD
};

/// NBD on a Unix socket, with TLS.
pub const NBDS_UNIX: BackendEntry = BackendEntry {
    name: "nbds+unix",
    help: "an export of an NBD server on a Unix socket over TLS 1.3; options as for nbd",
    example: "nbds+unix:///disk?socket=/tmp/nbd.sock&tls-certificates=/etc/pki/nbd",
    open: |place, options| open_entry("nbds+unix", place, options),
    preview: |place, options| NbdConfig::parse("nbds+unix", place, options).map(|_| None),
    ..NBD
};

fn open_entry(scheme: &'static str, place: &str, options: &mut UrlOptions) -> Opened {
    Ok(Arc::new(NbdBackend::open(NbdConfig::parse(
        scheme, place, options,
    )?)?))
}

/// Length of one block status query.
const STATUS_BYTES: u64 = 1 << 30;

/// An export that has been connected to, so its properties are known.
#[derive(Debug)]
pub struct NbdBackend {
    config: NbdConfig,
    info: DeviceInfo,
    export: NbdExport,
    storage: Vec<StorageId>,
    /// The connection from opening, for the first device.
    spare: Mutex<Option<NbdConnection>>,
    /// Number of connections used by devices.
    in_use: Arc<AtomicU32>,
    status: Mutex<StatusAsker>,
}

/// The connection for block status queries.
#[derive(Debug)]
enum StatusAsker {
    NotYet,
    There(Box<NbdStatusAsker>),
    /// The export has no block status, or a query failed.
    Never,
}

impl NbdBackend {
    /// Connects and reads the export's properties.
    ///
    /// # Errors
    /// See [`NbdConnectError`].
    pub fn open(config: NbdConfig) -> Result<NbdBackend, NbdConnectError> {
        let connection = connect::connect(&config)?;
        let export = connection.export.clone();
        let mut info = describe(&config, &export)?;
        if let Some(socket) = connection.socket.as_tcp() {
            config.sockets.apply(socket).map_err(|error| {
                NbdConnectError::Io(
                    config.address.clone(),
                    "setting its socket's options",
                    error,
                )
            })?;
            info.notes.extend(config.sockets.complaint(socket));
            info.facts.extend(config.sockets.facts(socket));
        }
        if connection.tls.is_some() {
            info.facts.push("TLS 1.3".to_string());
        }
        // If block status uses different headers, only a query shows whether the server supports it.
        let status =
            match config.status_headers == config.headers && export.allocation_context.is_none() {
                true => StatusAsker::Never,
                false => StatusAsker::NotYet,
            };
        Ok(NbdBackend {
            storage: storage(&config, &connection),
            config,
            info,
            export,
            spare: Mutex::new(Some(connection)),
            in_use: Arc::default(),
            status: Mutex::new(status),
        })
    }
}

/// Identifies the export by its URL, and by its server together with the server's name for it, because an address can
/// have several names, a socket several paths, a server on this machine several addresses, and a client may omit the
/// name of the default export. The protocol has no other way to distinguish servers.
fn storage(config: &NbdConfig, connection: &NbdConnection) -> Vec<StorageId> {
    let export = connection.export.name.as_ref().unwrap_or(&config.export);
    let mut ids = vec![StorageId::Remote(config.name())];
    let by_server = |server: &str| StorageId::Remote(format!("nbd {server} {export}"));
    match &config.address {
        NbdAddress::Tcp(..) => {
            let socket = connection.socket.as_tcp();
            if let Some(peer) = socket.and_then(|socket| socket.peer_addr().ok()) {
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                ids.push(by_server(&peer.to_string()));
            }
            let listener = socket.and_then(listener::of);
            ids.extend(listener.map(|inode| StorageId::Served {
                inode,
                name: export.clone(),
            }));
        }
        NbdAddress::Unix(path) => {
            let path = fs::canonicalize(path).ok();
            ids.extend(path.map(|path| by_server(&path.to_string_lossy())));
        }
    }
    let size_bytes = connection.export.size_bytes;
    ids.push(StorageId::Alike(format!(
        "NBD export '{export}', {size_bytes} bytes"
    )));
    ids
}

impl NbdBackend {
    /// Creates a link for a thread's device.
    fn link(&self, ring: &Ring, depth: u32) -> Result<RemoteLink<NbdProtocol>, NbdConnectError> {
        let config = &self.config;
        let spare = self
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let connection = match spare {
            Some(connection) => connection,
            None => connect::connect(config)?,
        };
        let block_bytes = self.info.block_bytes;
        let session_config = NbdSessionConfig {
            depth,
            block_bytes,
            timeout: config.timeout,
            tries: config.tries,
        };
        let first = connection.export.clone();
        let opening = Opening {
            session: NbdSession::new(session_config, first.clone()),
            protocol: NbdProtocol {
                config: config.clone(),
                block_bytes,
                first,
                receiving: Receiving::Header,
            },
            depth,
            connect_retries: connection.retries,
            connect_trouble: connection.trouble.clone(),
            connection,
        };
        let again = config.clone();
        let connect = move |limit| connect::connect_once(&again, limit);
        let reconnect = ReconnectState::up(config.reconnect, config.timeout, ring, connect);
        RemoteLink::new(opening, reconnect, ring).map_err(|error| {
            NbdConnectError::Io(config.address.clone(), "setting up its socket", error)
        })
    }
}

/// The properties of a device on this export.
fn describe(config: &NbdConfig, export: &NbdExport) -> Result<DeviceInfo, NbdConnectError> {
    let name = config.name();
    let minimum = export.block_bytes_min().max(512);
    let block_bytes = config.block_bytes.unwrap_or(minimum);
    let unusable = |what: String| NbdConnectError::Export(name.clone(), what);
    if block_bytes < minimum {
        return Err(unusable(format!(
            "block={block_bytes} is less than the server's minimum of {minimum} bytes"
        )));
    }
    let mut notes = Vec::new();
    let size_bytes = whole_blocks(export.size_bytes, block_bytes, &mut notes);
    let transfer = export
        .payload_max(block_bytes)
        .min(TRANSFER_BYTES_MAX / block_bytes * block_bytes);
    if size_bytes == 0 || transfer == 0 {
        return Err(unusable(format!(
            "an export of {} bytes is smaller than one block of {block_bytes} bytes",
            export.size_bytes
        )));
    }
    let mut facts = vec![export.words()];
    facts.extend(
        export
            .name
            .as_ref()
            .map(|name| format!("the server's name for the export: '{name}'")),
    );
    facts.extend(
        export
            .description
            .as_ref()
            .map(|text| format!("description: '{text}'")),
    );
    let read_only = config.read_only || export.has(export_flag::READ_ONLY);
    let has = |flag| export.has(flag);
    if !read_only {
        notes.extend(write_notes(export).map(str::to_string));
    }
    Ok(DeviceInfo {
        name: config.name(),
        block_bytes,
        size_bytes,
        physical_block_bytes: export
            .sizes
            .map_or(4096, |sizes| sizes.preferred)
            .max(block_bytes),
        buffer_align: 1,
        transfer_bytes_max: transfer,
        read_only,
        volatile_cache: has(export_flag::SEND_FLUSH) && !read_only,
        unmap: has(export_flag::SEND_TRIM) || has(export_flag::SEND_WRITE_ZEROES),
        facts,
        notes,
    })
}

/// Notes on how the server's writes differ from a disk's.
fn write_notes(export: &NbdExport) -> impl Iterator<Item = &'static str> {
    let has = |flag| export.has(flag);
    let durability = if !has(export_flag::SEND_FLUSH) {
        Some(
            "the server does not support FLUSH: when writes become stable is unknown, and flushes \
             do nothing",
        )
    } else if !has(export_flag::SEND_FUA) {
        Some("the server does not support FUA: a flush follows each FUA write instead")
    } else {
        None
    };
    let zeroes = (!has(export_flag::SEND_WRITE_ZEROES))
        .then_some("the server does not support WRITE_ZEROES: zeros are sent as data");
    let trim = has(export_flag::SEND_TRIM).then_some("trimmed blocks may not read as zeros");
    [durability, zeroes, trim].into_iter().flatten()
}

impl Backend for NbdBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn storage(&self) -> Vec<StorageId> {
        self.storage.clone()
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        if ring.config().iopoll {
            return Err(DeviceError::Unsupported.into()); // sockets are not polled
        }
        let count = self.config.connections;
        let depth = depth.div_ceil(count).clamp(1, DEPTH_MAX);
        // Released when the device is dropped or this function fails.
        let taken = InUse {
            all: Arc::clone(&self.in_use),
            count,
        };
        let before = self.in_use.fetch_add(count, Ordering::Relaxed);
        let several = before + count > 1;
        if several
            && !self.export.has(export_flag::CAN_MULTI_CONN)
            && !self.config.multi_conn_forced
        {
            return Err(OpenError::Refused(format!(
                "{}: the server does not set CAN_MULTI_CONN, so a connection may not see the \
                 writes of another; use one worker and one connection, or add multi_conn=yes to \
                 accept the risk",
                self.info.name
            )));
        }
        let links: Result<Vec<_>, _> = (0..count).map(|_| self.link(ring, depth)).collect();
        let device = RemoteDevice::new(self.info.clone(), links?, taken);
        Ok(Box::new(device))
    }

    fn allocation(&self, offset: u64) -> Option<(Allocation, u64)> {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*status, StatusAsker::NotYet) {
            *status = match NbdStatusAsker::connect(&self.config) {
                Ok(asker) => StatusAsker::There(Box::new(asker)),
                Err(_) => StatusAsker::Never,
            };
        }
        let StatusAsker::There(asker) = &mut *status else {
            return None;
        };
        let len = self.info.size_bytes.checked_sub(offset)?.min(STATUS_BYTES);
        match asker.ask(offset, len as u32) {
            Ok((flags, len)) => {
                // A hole that isn't known to read as zeros may contain anything, so it counts as mapped.
                let state = match flags & allocation::HOLE != 0 && flags & allocation::ZERO != 0 {
                    true => Allocation::Deallocated,
                    false => Allocation::Mapped,
                };
                Some((state, len))
            }
            Err(_) => {
                *status = StatusAsker::Never;
                None
            }
        }
    }
}

/// The connections of a device.
#[derive(Debug)]
struct InUse {
    all: Arc<AtomicU32>,
    count: u32,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.all.fetch_sub(self.count, Ordering::Relaxed);
    }
}
