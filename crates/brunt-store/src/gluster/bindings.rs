//! The libgfapi functions that a device needs, with the types of its header (glusterfs/api/glfs.h of GlusterFS 6 and
//! later), and an open file that uses them.
//!
//! In GlusterFS 6, the callbacks of asynchronous functions got two more arguments. The library has both versions under
//! the same names, so the functions are looked up by symbol version.
//!
//! The rule: handles are only used while [`GlusterFile`] is open; libgfapi allows several threads to use a file
//! concurrently.

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::thread;

use super::url::GlusterConfig;
use crate::library::LibraryError;
use crate::library::slots::{Library, LibraryOp, SlotToken};
use crate::library::time_limit::{CLOSING, within};
use brunt_block::library::{LibraryFile, Loaded, functions, once, text};

const GFAPI: LibraryFile = LibraryFile {
    file: "libgfapi.so.0",
    package: "libgfapi0",
    needs: "GlusterFS 6",
};

/// Log levels of the library (GF_LOG_NONE, GF_LOG_WARNING).
const LOG_NONE: c_int = 0;
const LOG_WARNING: c_int = 5;

type Handle = *mut c_void;
/// `glfs_io_cbk`: file, result, attributes before and after, the caller's pointer.
type Callback = unsafe extern "C" fn(Handle, isize, *mut c_void, *mut c_void, *mut c_void);

functions! {
    /// Volumes and files.
    Files, None, {
        fn glfs_new(*const c_char) -> Handle;
        fn glfs_set_volfile_server(Handle, *const c_char, *const c_char, c_int) -> c_int;
        fn glfs_set_xlator_option(Handle, *const c_char, *const c_char, *const c_char) -> c_int;
        fn glfs_set_logging(Handle, *const c_char, c_int) -> c_int;
        fn glfs_init(Handle) -> c_int;
        fn glfs_fini(Handle) -> c_int;
        fn glfs_open(Handle, *const c_char, c_int) -> Handle;
        fn glfs_close(Handle) -> c_int;
        fn glfs_lseek(Handle, i64, c_int) -> i64;
    }
}

functions! {
    /// Operations that complete through a callback.
    Operations, Some("GFAPI_6.0"), {
        fn glfs_pread_async(Handle, *mut c_void, usize, i64, c_int, Callback, *mut c_void) -> c_int;
        fn glfs_pwrite_async(Handle, *const c_void, c_int, i64, c_int, Callback, *mut c_void) -> c_int;
        fn glfs_fdatasync_async(Handle, Callback, *mut c_void) -> c_int;
        fn glfs_discard_async(Handle, i64, usize, Callback, *mut c_void) -> c_int;
        fn glfs_zerofill_async(Handle, i64, i64, Callback, *mut c_void) -> c_int;
    }
}

/// The library's functions.
struct Gfapi {
    files: Files,
    operations: Operations,
}

/// Loads the library, or returns the one loaded before.
fn gfapi() -> Result<&'static Gfapi, LibraryError> {
    static GFAPI_LOADED: OnceLock<Gfapi> = OnceLock::new();
    once(&GFAPI_LOADED, || {
        let library = Loaded::open(GFAPI)?;
        Ok(Gfapi {
            files: Files::find(&library)?,
            operations: Operations::find(&library)?,
        })
    })
}

/// An open file, with its own connections to the volume.
pub(super) struct GlusterFile {
    gfapi: &'static Gfapi,
    name: String,
    /// Null until opened.
    handles: Handles,
}

#[derive(Clone, Copy)]
struct Handles {
    volume: Handle,
    file: Handle,
}

// SAFETY: libgfapi does its own locking; its handles are not bound to a thread.
unsafe impl Send for Handles {}
// SAFETY: as for `Send`.
unsafe impl Sync for Handles {}

impl GlusterFile {
    /// Connects and opens the file. Blocks until the volume responds, so call it on a thread that may be abandoned.
    pub fn open(config: &GlusterConfig) -> Result<GlusterFile, LibraryError> {
        let gfapi = gfapi()?;
        let handles = Handles {
            volume: null_mut(),
            file: null_mut(),
        };
        // Dropping this closes what was opened before a failure.
        let mut file = GlusterFile {
            gfapi,
            name: config.name(),
            handles,
        };
        file.connect(config)?;
        let path = text(&config.path);
        let access = if config.read_only {
            libc::O_RDONLY
        } else {
            libc::O_RDWR
        };
        let direct = if config.cache { 0 } else { libc::O_DIRECT };
        // SAFETY: the volume's handle is valid; the string outlives the call.
        file.handles.file =
            unsafe { (gfapi.files.glfs_open)(file.handles.volume, path.as_ptr(), access | direct) };
        let advice = "give the path from the volume's root; create a file with 'truncate' on a \
            mounted volume";
        let answer = if file.handles.file.is_null() { -1 } else { 0 };
        file.check(answer, || format!("open '{}'", config.path), advice)?;
        Ok(file)
    }

    /// Creates a volume and connects to it.
    fn connect(&mut self, config: &GlusterConfig) -> Result<(), LibraryError> {
        let files = &self.gfapi.files;
        let volume = text(&config.volume);
        // SAFETY: the string outlives the call.
        self.handles.volume = unsafe { (files.glfs_new)(volume.as_ptr()) };
        let at = self.handles.volume;
        let answer = if at.is_null() { -1 } else { 0 };
        self.check(answer, || "begin".to_string(), "")?;
        let (host, log) = (
            text(&config.host),
            text(config.log.as_deref().unwrap_or("/dev/null")),
        );
        let level = if config.log.is_some() {
            LOG_WARNING
        } else {
            LOG_NONE
        };
        let behind = c"*-write-behind".as_ptr();
        let strict = if config.cache { c"off" } else { c"on" };
        // SAFETY: the volume's handle is valid; all strings outlive the calls.
        let answers = unsafe {
            [
                (files.glfs_set_volfile_server)(
                    at,
                    c"tcp".as_ptr(),
                    host.as_ptr(),
                    config.port.into(),
                ),
                (files.glfs_set_logging)(at, log.as_ptr(), level),
                // With O_DIRECT, writes are acknowledged only once they have reached the bricks.
                (files.glfs_set_xlator_option)(
                    at,
                    behind,
                    c"strict-O_DIRECT".as_ptr(),
                    strict.as_ptr(),
                ),
                // A write that failed in the background is remembered even after the flush that reported it.
                (files.glfs_set_xlator_option)(
                    at,
                    behind,
                    c"resync-failed-syncs-after-fsync".as_ptr(),
                    c"on".as_ptr(),
                ),
            ]
        };
        for answer in answers {
            self.check(answer, || "configure the client".to_string(), "")?;
        }
        // SAFETY: the volume's handle is valid and configured.
        let answer = unsafe { (files.glfs_init)(at) };
        let advice = "check that glusterd runs there and that the volume is started ('gluster \
            volume info'); details: log=FILE";
        self.check(
            answer,
            || format!("connect to volume '{}'", config.volume),
            advice,
        )
    }

    /// The file's length.
    pub fn size_bytes(&self) -> Result<u64, LibraryError> {
        // SAFETY: the file is open. Requests carry their own offsets and do not use the file's.
        let end = unsafe { (self.gfapi.files.glfs_lseek)(self.handles.file, 0, libc::SEEK_END) };
        self.check(
            if end < 0 { -1 } else { 0 },
            || "read the file's size".to_string(),
            "",
        )?;
        Ok(end as u64)
    }

    /// Turns a negative result into an error, whose code is in errno.
    fn check(
        &self,
        answer: c_int,
        doing: impl FnOnce() -> String,
        advice: &'static str,
    ) -> Result<(), LibraryError> {
        if answer >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        Err(LibraryError::Refused {
            name: self.name.clone(),
            doing: doing(),
            error,
            advice,
        })
    }
}

impl Drop for GlusterFile {
    fn drop(&mut self) {
        let (handles, gfapi) = (self.handles, self.gfapi);
        // Every slot holds the file until the library has returned its operation, so no operation is in progress. If
        // the volume doesn't respond, the thread is abandoned.
        within(CLOSING, move || {
            let file = { handles }.file;
            if !file.is_null() {
                // SAFETY: the handle was opened and is closed once.
                unsafe { (gfapi.files.glfs_close)(file) };
            }
            // `glfs_fini` waits up to ten seconds for frames that its translators lost, so run it in the background.
            thread::spawn(move || {
                let volume = { handles }.volume;
                if !volume.is_null() {
                    // SAFETY: the handle was created and is freed once, after its file.
                    unsafe { (gfapi.files.glfs_fini)(volume) };
                }
            });
        });
    }
}

/// The negative errno of this thread; never 0.
fn errno() -> i64 {
    match io::Error::last_os_error().raw_os_error() {
        None | Some(0) => -i64::from(libc::EIO),
        Some(errno) => -i64::from(errno),
    }
}

/// Called by libgfapi on one of its own threads when an operation has completed, with errno set if it failed.
unsafe extern "C" fn ended(
    _: Handle,
    result: isize,
    _: *mut c_void,
    _: *mut c_void,
    token: *mut c_void,
) {
    let result = if result < 0 { errno() } else { result as i64 };
    // SAFETY: the token is the one passed to `begin`, and libgfapi calls this once per operation.
    unsafe { SlotToken::end(token.cast(), result) };
}

// SAFETY: libgfapi calls `ended` exactly once for each operation that it accepted, once it is done with the operation's
// memory, and never for an operation that it refused.
unsafe impl Library for GlusterFile {
    unsafe fn begin(
        &self,
        op: LibraryOp,
        offset: u64,
        memory: *mut u8,
        len: u64,
        token: *const SlotToken,
    ) -> Result<(), i32> {
        let (operations, file) = (&self.gfapi.operations, self.handles.file);
        let (offset, token) = (offset as i64, token.cast_mut().cast());
        // SAFETY: the file is open as long as `self` exists. The caller guarantees that the memory is valid for `len`
        // bytes until the operation completes. The library passes the token on to `ended` and does not access it.
        let begun = unsafe {
            match op {
                LibraryOp::Read => (operations.glfs_pread_async)(
                    file,
                    memory.cast(),
                    len as usize,
                    offset,
                    0,
                    ended,
                    token,
                ),
                // Requests are at most TRANSFER_BYTES_MAX long.
                LibraryOp::Write => (operations.glfs_pwrite_async)(
                    file,
                    memory.cast(),
                    len as c_int,
                    offset,
                    0,
                    ended,
                    token,
                ),
                LibraryOp::Flush => (operations.glfs_fdatasync_async)(file, ended, token),
                LibraryOp::Discard => {
                    (operations.glfs_discard_async)(file, offset, len as usize, ended, token)
                }
                LibraryOp::Zero => {
                    (operations.glfs_zerofill_async)(file, offset, len as i64, ended, token)
                }
            }
        };
        if begun < 0 {
            Err(-errno() as i32)
        } else {
            Ok(())
        }
    }

    /// Reads and writes return the number of bytes; other operations succeed completely or fail.
    fn moved(op: LibraryOp, len: u64, result: i64) -> u64 {
        match op {
            LibraryOp::Read | LibraryOp::Write => result as u64,
            LibraryOp::Flush | LibraryOp::Discard | LibraryOp::Zero => len,
        }
    }

    fn trouble(errno: i32) -> Option<&'static str> {
        match errno {
            libc::ENOTCONN => {
                Some("too few of the volume's bricks are connected (see 'gluster volume status')")
            }
            libc::EROFS => Some("the volume has lost its quorum and refuses writes"),
            libc::ESTALE | libc::ENOENT => Some("the file was deleted or replaced on the volume"),
            _ => None,
        }
    }
}
