//! Finds the file or folder that a URL names: asks the port mapper, mounts the export, looks the path up, creates the
//! file if requested, and reads its properties. Blocking, with one deadline for all of it.
//!
//! A URL doesn't say which part of its path is the export. The export is the longest path that the server mounts:
//! usually the file's directory, otherwise a folder above it. NFSv4.1 needs neither port mapper nor MOUNT: all
//! exports are in one tree, whose root is known.
//!
//! The one rule: an existing file is never truncated.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use brunt_block::attempts::{Attempted, AttemptsFailed, in_attempts};
use brunt_block::socket::Socket;
use brunt_wire::nfs::v3::{
    Args, Attributes, CreateHow, DirOp, FileType, Procedure, ResultBody, Results, SetAttributes,
    Status,
};
use brunt_wire::nfs::{DATA_BYTES_MAX, FileHandle, mount};
use brunt_wire::rpc::portmap::{
    PORTMAP_GETPORT, PORTMAP_PORT, PORTMAP_TCP, PORTMAP_VERSION, PortMapping, parse_port,
};
use brunt_wire::rpc::{PROGRAM_MOUNT, PROGRAM_NFS, PROGRAM_PORTMAP, Xid};

use crate::connect_error::NfsConnectError;
use crate::conversation::{GOODBYE_TIME, NfsCallee, NfsConversation, RpcProcedure, say_goodbye};
use crate::disk::NfsFile;
use crate::rpc::sys_credentials;
use crate::url::{NfsConfig, NfsVersion};
use crate::v41::{NfsClient, NfsFarewell, NfsGrant, NfsSeat};

/// NFSv4's port, which needs no port mapper (RFC 8881, 2.9.3).
const NFS_PORT: u16 = 2049;
/// Mode of a new file.
const MODE: u32 = 0o644;
/// Bits of ACCESS (RFC 1813, 3.3.4).
const ACCESS_READ: u32 = 0x01;
const ACCESS_MODIFY: u32 = 0x04;

/// A connection that is ready for calls.
#[derive(Debug)]
pub struct NfsConnection {
    /// The connection's socket.
    pub socket: Socket,
    /// With NFSv4.1, its session.
    pub session: Option<NfsGrant>,
    /// The file's size in bytes; 0 for a folder.
    pub size_bytes: u64,
    /// Number of failed attempts before this one.
    pub retries: u32,
    /// Why the last of those failed.
    pub trouble: Option<String>,
}

impl NfsConnection {
    /// Closes a connection that was not put on a ring, and ends its session.
    pub fn close(self, config: &NfsConfig) {
        if let Some(grant) = self.session {
            let credentials = sys_credentials(config.uid, config.gid);
            let farewell = NfsFarewell::new(grant, random_xid(), &credentials);
            say_goodbye(&self.socket, farewell, GOODBYE_TIME);
        }
    }
}

/// With NFSv4.1, the client of a device or load for up to `depth` calls at once; `None` with NFSv3.
pub fn client_of(config: &NfsConfig, depth: u32) -> Option<NfsClient> {
    let is_v41 = config.version == NfsVersion::V41;
    is_v41.then(|| NfsClient::new(depth, random_number()))
}

/// The file or folder that was found.
#[derive(Clone, Debug)]
pub struct NfsLookup {
    /// The file or folder, and the server's limits.
    pub file: NfsFile,
    /// Its file system and its number there.
    pub identity: (u64, u64),
    /// The path that was mounted; empty with NFSv4.1.
    pub export: String,
    /// The server's preferred sizes of one READ and one WRITE.
    pub preferred: (u32, u32),
}

impl NfsLookup {
    /// The export for messages, with a comma; empty with NFSv4.1, which mounts no export.
    pub(crate) fn export_text(&self) -> String {
        match &*self.export {
            "" => String::new(),
            export => format!("export {export}, "),
        }
    }
}

/// A random start for xids, so that two processes use different ones.
pub fn random_xid() -> Xid {
    Xid(random_number() as u32)
}

fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Finds the file, in as many attempts as fit into the configured timeout.
///
/// # Errors
/// See [`NfsConnectError`].
pub fn find(config: &NfsConfig) -> Result<(NfsConnection, NfsLookup), NfsConnectError> {
    let once = |time| Finder::new(config, None, time).find();
    let Attempted {
        value: (connection, found),
        retries,
        trouble,
    } = attempts(config, once)?;
    Ok((
        NfsConnection {
            retries,
            trouble,
            ..connection
        },
        found,
    ))
}

/// Another connection to a file that was found, in as many attempts as fit into the configured timeout.
///
/// # Errors
/// See [`NfsConnectError`].
pub fn connect(
    config: &NfsConfig,
    client: Option<&NfsClient>,
    file: &NfsFile,
) -> Result<NfsConnection, NfsConnectError> {
    let once = |time| connect_once(config, client, file, time);
    let Attempted {
        value,
        retries,
        trouble,
    } = attempts(config, once)?;
    Ok(NfsConnection {
        retries,
        trouble,
        ..value
    })
}

/// Another connection to a file that was found, in a single attempt, for callers with their own retry rule.
///
/// # Errors
/// See [`NfsConnectError`].
pub fn connect_once(
    config: &NfsConfig,
    client: Option<&NfsClient>,
    file: &NfsFile,
    limit: Duration,
) -> Result<NfsConnection, NfsConnectError> {
    let finder = Finder::new(config, client, limit);
    let mut nfs = finder.nfs()?;
    let attributes = finder.attributes(&mut nfs, &file.handle)?;
    finder.ready(nfs, attributes.size.get())
}

/// Finds the folder, in as many attempts as fit into the configured timeout.
///
/// # Errors
/// See [`NfsConnectError`].
pub fn find_folder(config: &NfsConfig) -> Result<NfsLookup, NfsConnectError> {
    let once = |time| Finder::new(config, None, time).find_folder();
    attempts(config, once).map(|attempted| attempted.value)
}

/// A connection for calls on the files of a folder, in a single attempt.
///
/// # Errors
/// See [`NfsConnectError`].
pub fn connect_to_folder(
    config: &NfsConfig,
    client: Option<&NfsClient>,
    limit: Duration,
) -> Result<NfsConnection, NfsConnectError> {
    let finder = Finder::new(config, client, limit);
    let nfs = finder.nfs()?;
    finder.ready(nfs, 0)
}

/// A connection to the NFS server for one call at a time, until the limit has passed.
///
/// # Errors
/// See [`NfsConnectError`].
pub fn converse(config: &NfsConfig, limit: Duration) -> Result<NfsConversation, NfsConnectError> {
    Finder::new(config, None, limit).nfs()
}

fn attempts<T>(
    config: &NfsConfig,
    once: impl FnMut(Duration) -> Result<T, NfsConnectError>,
) -> Result<Attempted<T, String>, NfsConnectError> {
    let attempted = in_attempts(config.timeout, NfsConnectError::is_of_the_network, once);
    let attempted = attempted.map_err(
        |AttemptsFailed {
             last,
             attempts,
             time,
         }| match attempts {
            1 => last.with_advice(config.reserved_port),
            _ => NfsConnectError::AttemptsFailed {
                attempts,
                time,
                last: Box::new(last),
            },
        },
    )?;
    let trouble = attempted.trouble.map(|trouble| trouble.to_string());
    Ok(Attempted {
        value: attempted.value,
        retries: attempted.retries,
        trouble,
    })
}

/// The search for a file, with a deadline.
struct Finder<'a> {
    config: &'a NfsConfig,
    /// With NFSv4.1, the client whose session a connection joins; `None` to create a client.
    client: Option<&'a NfsClient>,
    deadline: Instant,
    credentials: Vec<u8>,
}

impl<'a> Finder<'a> {
    fn new(config: &'a NfsConfig, client: Option<&'a NfsClient>, limit: Duration) -> Finder<'a> {
        let credentials = sys_credentials(config.uid, config.gid);
        Finder {
            config,
            client,
            deadline: Instant::now() + limit,
            credentials,
        }
    }

    fn dial(&self, port: u16) -> Result<NfsConversation, NfsConnectError> {
        let callee = NfsCallee {
            host: &self.config.host,
            reserved_port: self.config.reserved_port,
            credentials: &self.credentials,
        };
        NfsConversation::connect(callee, port, self.deadline, random_xid())
    }

    fn find(&self) -> Result<(NfsConnection, NfsLookup), NfsConnectError> {
        let (export, root, depth) = self.mount()?;
        let mut nfs = self.nfs()?;
        let handle = self.walk(&mut nfs, &root, depth)?;
        let attributes = self.sized(&mut nfs, &handle)?;
        self.check_access(&mut nfs, &handle)?;
        let (file, preferred) = self.limits(&mut nfs, &root, handle)?;
        let identity = (attributes.fsid.get(), attributes.fileid.get());
        let connection = self.ready(nfs, attributes.size.get())?;
        Ok((
            connection,
            NfsLookup {
                file,
                identity,
                export,
                preferred,
            },
        ))
    }

    fn find_folder(&self) -> Result<NfsLookup, NfsConnectError> {
        let (export, root, depth) = self.mount()?;
        let mut nfs = self.nfs()?;
        let handle = self.walk(&mut nfs, &root, depth)?;
        let attributes = self.attributes(&mut nfs, &handle)?;
        if attributes.kind() != FileType::Directory {
            let what = format!(
                "it is a {}, not a directory; omit the '/' at the end",
                kind_text(attributes.kind())
            );
            return Err(NfsConnectError::File(self.config.name(), what));
        }
        let (file, preferred) = self.limits(&mut nfs, &root, handle)?;
        Ok(NfsLookup {
            file,
            identity: (attributes.fsid.get(), attributes.fileid.get()),
            export,
            preferred,
        })
    }

    /// Asks the port mapper for a program's port.
    fn port_of(
        &self,
        [program, version]: [u32; 2],
        name: &'static str,
        option: &'static str,
    ) -> Result<u16, NfsConnectError> {
        let mut portmap = self.dial(PORTMAP_PORT)?;
        let mapping = PortMapping {
            program,
            version,
            protocol: PORTMAP_TCP,
            port: 0,
        };
        let getport = RpcProcedure {
            program: PROGRAM_PORTMAP,
            version: PORTMAP_VERSION,
            number: PORTMAP_GETPORT,
            name: "GETPORT",
        };
        let mut body = portmap.call(getport, |out| mapping.encode(out), 0)?;
        match parse_port(&mut body) {
            Ok(Some(port)) => Ok(port),
            Ok(None) => Err(NfsConnectError::NotRegistered(
                portmap.server().to_string(),
                name,
                option,
            )),
            Err(error) => Err(portmap.bad_results("GETPORT", error)),
        }
    }

    /// Mounts the longest part of the path that the server mounts: for a file, a folder above it; for a folder, that
    /// folder or one above it. Returns that path, its handle, and its number of components.
    ///
    /// NFSv4.1 has a single tree; the result is its root, which an empty handle represents.
    fn mount(&self) -> Result<(String, Vec<u8>, usize), NfsConnectError> {
        if self.config.version == NfsVersion::V41 {
            return Ok((String::new(), Vec::new(), 0));
        }
        let port = match self.config.mount_port {
            Some(port) => port,
            None => self.port_of([PROGRAM_MOUNT, 3], "MOUNT version 3", "mountport")?,
        };
        let mut service = self.dial(port)?;
        let mnt = RpcProcedure {
            program: PROGRAM_MOUNT,
            version: 3,
            number: 1,
            name: "MNT",
        };
        let mut first = None;
        let count = self.config.path.len() + usize::from(self.config.is_folder);
        for depth in (0..count).rev() {
            let path = self.config.path_text(depth);
            let args = mount::Args::Mount(path.as_bytes());
            let mut body = service.call(mnt, |out| args.encode(out), 0)?;
            match mount::parse_results(1, &mut body) {
                Ok(mount::Results::Mounted(FileHandle(root))) => {
                    return Ok((path, root.to_vec(), depth));
                }
                Ok(mount::Results::Failed(status)) => {
                    let server = service.server().to_string();
                    first.get_or_insert(NfsConnectError::Mount {
                        server,
                        path,
                        status,
                    });
                }
                Ok(mount::Results::Empty) => unreachable!("MNT has results"),
                Err(error) => return Err(service.bad_results("MNT", error)),
            }
        }
        Err(first.expect("a path has a component"))
    }

    /// A connection to the NFS server.
    fn nfs(&self) -> Result<NfsConversation, NfsConnectError> {
        let is_v41 = self.config.version == NfsVersion::V41;
        let port = match self.config.port {
            Some(port) => port,
            None if is_v41 => NFS_PORT,
            None => self.port_of([PROGRAM_NFS, 3], "NFS version 3", "port")?,
        };
        let mut nfs = self.dial(port)?;
        if is_v41 {
            let alone = || NfsSeat::new(1, random_number());
            nfs.sit_down(self.client.map_or_else(alone, NfsClient::seat))?;
        }
        Ok(nfs)
    }

    /// Sends a call that must succeed.
    fn succeed<'r>(
        &self,
        nfs: &'r mut NfsConversation,
        args: &Args<'_>,
        depth: usize,
    ) -> Result<ResultBody<'r>, NfsConnectError> {
        let server = nfs.server().to_string();
        match nfs.nfs(args)? {
            Results {
                status: Status::OK,
                body,
            } => Ok(body),
            Results { status, .. } => {
                let path = self.config.path_text(depth);
                Err(NfsConnectError::Status {
                    server,
                    version: self.config.version,
                    procedure: args.procedure(),
                    path,
                    status,
                })
            }
        }
    }

    /// Follows the components of the path below the root, and creates the last one if requested.
    fn walk(
        &self,
        nfs: &mut NfsConversation,
        root: &[u8],
        depth: usize,
    ) -> Result<Vec<u8>, NfsConnectError> {
        let count = self.config.path.len();
        let mut handle = root.to_vec();
        for (index, name) in self.config.path.iter().enumerate().skip(depth) {
            let place = DirOp {
                dir: FileHandle(&handle),
                name: name.as_bytes(),
            };
            let found = match self.look_up(nfs, place, index + 1) {
                Err(NfsConnectError::Status {
                    status: Status::NOENT,
                    ..
                }) if index + 1 == count && self.config.create_bytes.is_some() => {
                    self.create(nfs, place)?
                }
                other => other?,
            };
            handle = found;
        }
        Ok(handle)
    }

    fn look_up(
        &self,
        nfs: &mut NfsConversation,
        what: DirOp<'_>,
        depth: usize,
    ) -> Result<Vec<u8>, NfsConnectError> {
        match self.succeed(nfs, &Args::Lookup { what }, depth)? {
            ResultBody::Lookup { object, .. } => Ok(object.0.to_vec()),
            _ => unreachable!("LOOKUP returns a handle"),
        }
    }

    fn create(
        &self,
        nfs: &mut NfsConversation,
        place: DirOp<'_>,
    ) -> Result<Vec<u8>, NfsConnectError> {
        let attributes = SetAttributes {
            mode: Some(MODE),
            size: self.config.create_bytes,
            ..SetAttributes::default()
        };
        let create = Args::Create {
            place,
            how: CreateHow::Guarded(attributes),
        };
        let depth = self.config.path.len();
        let handle = match self.succeed(nfs, &create, depth) {
            Ok(ResultBody::Created { object, .. }) => object.map(|object| object.0.to_vec()),
            Ok(_) => unreachable!("CREATE creates"),
            // Another client created it first.
            Err(NfsConnectError::Status {
                status: Status::EXIST,
                ..
            }) => None,
            Err(error) => return Err(error),
        };
        match handle {
            Some(handle) => Ok(handle),
            None => self.look_up(nfs, place, depth),
        }
    }

    fn attributes(
        &self,
        nfs: &mut NfsConversation,
        handle: &[u8],
    ) -> Result<Attributes, NfsConnectError> {
        let getattr = Args::Getattr {
            object: FileHandle(handle),
        };
        match self.succeed(nfs, &getattr, self.config.path.len())? {
            ResultBody::Getattr { attributes } => Ok(*attributes),
            _ => unreachable!("GETATTR returns attributes"),
        }
    }

    /// The attributes of the file, which is extended first if requested.
    fn sized(
        &self,
        nfs: &mut NfsConversation,
        handle: &[u8],
    ) -> Result<Attributes, NfsConnectError> {
        let attributes = self.attributes(nfs, handle)?;
        if attributes.kind() != FileType::Regular {
            let what = format!(
                "it is a {}, not a regular file",
                kind_text(attributes.kind())
            );
            return Err(NfsConnectError::File(self.config.name(), what));
        }
        match self.config.create_bytes {
            Some(bytes) if bytes > attributes.size.get() => {
                let set = SetAttributes {
                    size: Some(bytes),
                    ..SetAttributes::default()
                };
                let setattr = Args::Setattr {
                    object: FileHandle(handle),
                    attributes: set,
                    guard: None,
                };
                self.succeed(nfs, &setattr, self.config.path.len())?;
                self.attributes(nfs, handle)
            }
            _ => Ok(attributes),
        }
    }

    /// Checks whether the server lets this user read and write.
    fn check_access(
        &self,
        nfs: &mut NfsConversation,
        handle: &[u8],
    ) -> Result<(), NfsConnectError> {
        let config = self.config;
        let wanted = if config.read_only {
            ACCESS_READ
        } else {
            ACCESS_READ | ACCESS_MODIFY
        };
        let call = Args::Access {
            object: FileHandle(handle),
            access: wanted,
        };
        let ResultBody::Access { access, .. } = self.succeed(nfs, &call, config.path.len())? else {
            unreachable!("ACCESS returns rights")
        };
        let missing = match wanted & !access {
            0 => return Ok(()),
            ACCESS_MODIFY => "write to it; use another user (uid= and gid=), or add read_only=yes",
            _ => "read it; use another user (uid= and gid=)",
        };
        let what = format!(
            "the server does not allow uid {}, gid {} to {missing}",
            config.uid, config.gid
        );
        Err(NfsConnectError::File(config.name(), what))
    }

    /// The server's limits, by FSINFO.
    fn limits(
        &self,
        nfs: &mut NfsConversation,
        root: &[u8],
        handle: Vec<u8>,
    ) -> Result<(NfsFile, (u32, u32)), NfsConnectError> {
        let (server, grant) = (nfs.server().to_string(), nfs.grant());
        // There may be several file systems below the root of NFSv4.1.
        let root = if grant.is_some() { &handle } else { root };
        let fsinfo = Args::Fsinfo {
            root: FileHandle(root),
        };
        let ResultBody::Fsinfo {
            read_max,
            read_preferred,
            write_max,
            write_preferred,
            ..
        } = self.succeed(nfs, &fsinfo, self.config.path.len())?
        else {
            unreachable!("FSINFO returns limits")
        };
        if read_max == 0 || write_max == 0 {
            let operation = Procedure::Fsinfo.name();
            return Err(NfsConnectError::Nonsense(
                server,
                operation,
                "rtmax or wtmax is 0",
            ));
        }
        let session = grant.map_or([DATA_BYTES_MAX; 2], |grant| {
            [grant.read_bytes_max, grant.write_bytes_max]
        });
        let read_bytes_max = read_max.min(DATA_BYTES_MAX).min(session[0]);
        let write_bytes_max = write_max.min(DATA_BYTES_MAX).min(session[1]);
        if read_bytes_max == 0 || write_bytes_max == 0 {
            let operation = "CREATE_SESSION";
            let what = "a session without room for data";
            return Err(NfsConnectError::Nonsense(server, operation, what));
        }
        Ok((
            NfsFile {
                handle,
                read_bytes_max,
                write_bytes_max,
            },
            (read_preferred, write_preferred),
        ))
    }

    fn ready(
        &self,
        nfs: NfsConversation,
        size_bytes: u64,
    ) -> Result<NfsConnection, NfsConnectError> {
        let (socket, seat) = nfs.into_socket()?;
        let session = seat.as_ref().and_then(NfsSeat::grant);
        if let (Some(client), Some(seat)) = (self.client, seat) {
            client.set_seat(seat);
        }
        Ok(NfsConnection {
            socket,
            session,
            size_bytes,
            retries: 0,
            trouble: None,
        })
    }
}

fn kind_text(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::BlockDevice => "block device",
        FileType::CharacterDevice => "character device",
        FileType::Symlink => "symbolic link",
        FileType::Socket => "socket",
        FileType::Fifo => "pipe",
        FileType::Other(_) => "file of an unknown type",
    }
}
