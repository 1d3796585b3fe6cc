//! The librados and librbd functions that a device needs, with the types of their headers (rados/librados.h and
//! rbd/librbd.h of Ceph 16), and an open image that uses them.
//!
//! The rule: handles are only used while [`RbdImage`] is open; librbd allows several threads to use an image
//! concurrently.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use super::url::RbdConfig;
use crate::library::LibraryError;
use crate::library::slots::{Library, LibraryOp, SlotToken};
use crate::library::time_limit::{CLOSING, within};
use brunt_block::library::{LibraryFile, Loaded, functions, once, text};

const RADOS: LibraryFile = LibraryFile {
    file: "librados.so.2",
    package: "librados2",
    needs: "Ceph 16",
};
const RBD: LibraryFile = LibraryFile {
    file: "librbd.so.1",
    package: "librbd1",
    needs: "Ceph 16",
};

/// Zeros that stay allocated (RBD_WRITE_ZEROES_FLAG_THICK_PROVISION).
const THICK_PROVISION: c_int = 1;

type Handle = *mut c_void;
type Callback = unsafe extern "C" fn(Handle, *mut c_void);

functions! {
    /// librados: a connection to a cluster, and one of its pools.
    Rados, None, {
        fn rados_create2(*mut Handle, *const c_char, *const c_char, u64) -> c_int;
        fn rados_conf_read_file(Handle, *const c_char) -> c_int;
        fn rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
        fn rados_connect(Handle) -> c_int;
        fn rados_shutdown(Handle);
        fn rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
        fn rados_ioctx_set_namespace(Handle, *const c_char);
        fn rados_ioctx_destroy(Handle);
    }
}

functions! {
    /// librbd: an image in a pool, and operations on it.
    Rbd, None, {
        fn rbd_version(*mut c_int, *mut c_int, *mut c_int);
        fn rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        fn rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        fn rbd_close(Handle) -> c_int;
        fn rbd_stat(Handle, *mut ImageStat, usize) -> c_int;
        fn rbd_get_features(Handle, *mut u64) -> c_int;
        fn rbd_config_image_list(Handle, *mut Setting, *mut c_int) -> c_int;
        fn rbd_config_image_list_cleanup(*mut Setting, c_int);
        fn rbd_aio_create_completion(*mut c_void, Callback, *mut Handle) -> c_int;
        fn rbd_aio_get_return_value(Handle) -> isize;
        fn rbd_aio_release(Handle);
        fn rbd_aio_read(Handle, u64, usize, *mut c_char, Handle) -> c_int;
        fn rbd_aio_write(Handle, u64, usize, *const c_char, Handle) -> c_int;
        fn rbd_aio_flush(Handle, Handle) -> c_int;
        fn rbd_aio_discard(Handle, u64, u64, Handle) -> c_int;
        fn rbd_aio_write_zeroes(Handle, u64, usize, Handle, c_int, c_int) -> c_int;
    }
}

/// `rbd_image_info_t`.
#[repr(C)]
struct ImageStat {
    size: u64,
    obj_size: u64,
    num_objs: u64,
    order: c_int,
    block_name_prefix: [c_char; 24],
    parent_pool: i64,
    parent_name: [c_char; 96],
}

/// `rbd_config_option_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Setting {
    name: *mut c_char,
    value: *mut c_char,
    source: c_int,
}

/// The functions of both libraries.
struct Ceph {
    rados: Rados,
    rbd: Rbd,
}

/// Loads the libraries, or returns those loaded before.
fn ceph() -> Result<&'static Ceph, LibraryError> {
    static CEPH: OnceLock<Ceph> = OnceLock::new();
    once(&CEPH, || {
        // Load librbd first: if both are missing, the error names the package that provides both.
        let (rbd, rados) = (Loaded::open(RBD)?, Loaded::open(RADOS)?);
        Ok(Ceph {
            rados: Rados::find(&rados)?,
            rbd: Rbd::find(&rbd)?,
        })
    })
}

/// An open image, with its own connection to the cluster.
pub(super) struct RbdImage {
    ceph: &'static Ceph,
    name: String,
    /// Null until opened.
    handles: Handles,
}

#[derive(Clone, Copy)]
struct Handles {
    cluster: Handle,
    pool: Handle,
    image: Handle,
}

// SAFETY: librados and librbd do their own locking; their handles are not bound to a thread.
unsafe impl Send for Handles {}
// SAFETY: as for `Send`.
unsafe impl Sync for Handles {}

/// Properties of an image.
pub(super) struct About {
    pub size_bytes: u64,
    pub object_bytes: u64,
    pub features: u64,
    /// The library's version.
    pub version: String,
    settings: Vec<(String, String)>,
}

impl About {
    /// The effective value of a setting, regardless of where it was set.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| &**value)
    }
}

impl RbdImage {
    /// Connects and opens the image. Blocks until the cluster responds, so call it on a thread that may be abandoned.
    pub fn open(config: &RbdConfig) -> Result<RbdImage, LibraryError> {
        let ceph = ceph()?;
        let handles = Handles {
            cluster: null_mut(),
            pool: null_mut(),
            image: null_mut(),
        };
        // Dropping this closes what was opened before a failure.
        let mut image = RbdImage {
            ceph,
            name: config.name(),
            handles,
        };
        image.connect(config)?;
        let (rados, rbd) = (&ceph.rados, &ceph.rbd);
        let at = &mut image.handles;
        let pool = text(&config.pool);
        // SAFETY: the cluster is connected; strings and the memory for the handle outlive the calls.
        let answer =
            unsafe { (rados.rados_ioctx_create)(at.cluster, pool.as_ptr(), &raw mut at.pool) };
        image.check(
            answer,
            || format!("find pool '{}'", config.pool),
            "list pools with 'ceph osd pool ls'",
        )?;
        let at = &mut image.handles;
        let (name, snapshot) = (text(&config.image), config.snapshot.as_deref().map(text));
        let snapshot = snapshot
            .as_ref()
            .map_or(null(), |snapshot| snapshot.as_ptr());
        let open = if config.is_read_only() {
            rbd.rbd_open_read_only
        } else {
            rbd.rbd_open
        };
        // SAFETY: the pool is open; strings (or null for no snapshot) and the memory for the handle outlive the calls.
        let answer = unsafe {
            if let Some(namespace) = &config.namespace {
                (rados.rados_ioctx_set_namespace)(at.pool, text(namespace).as_ptr());
            }
            open(at.pool, name.as_ptr(), &raw mut at.image, snapshot)
        };
        let advice = "list images with 'rbd ls' and snapshots with 'rbd snap ls'; read_only=yes \
            needs fewer rights";
        image.check(answer, || "open the image".to_string(), advice)?;
        Ok(image)
    }

    /// Connects to the cluster.
    fn connect(&mut self, config: &RbdConfig) -> Result<(), LibraryError> {
        let rados = &self.ceph.rados;
        let (cluster, user) = (
            text(&config.cluster),
            text(&format!("client.{}", config.id)),
        );
        let at = &mut self.handles.cluster;
        // SAFETY: strings and the memory for the handle outlive the call.
        let answer = unsafe { (rados.rados_create2)(at, cluster.as_ptr(), user.as_ptr(), 0) };
        self.check(
            answer,
            || {
                format!(
                    "create a client as client.{} of cluster '{}'",
                    config.id, config.cluster
                )
            },
            "",
        )?;
        let conf = config
            .conf
            .as_ref()
            .map(|path| text(&path.to_string_lossy()));
        let path = conf.as_ref().map_or(null(), |path| path.as_ptr());
        // SAFETY: the handle is open; the string (or null for the default locations) outlives the call.
        let answer = unsafe { (rados.rados_conf_read_file)(self.handles.cluster, path) };
        let what = || match &config.conf {
            Some(path) => format!("read the configuration {}", path.display()),
            None => "read the cluster's configuration in any of the usual places".to_string(),
        };
        self.check(
            answer,
            what,
            "give the path of the cluster's configuration with conf=PATH",
        )?;
        let seconds = config.timeout.as_secs_f64().ceil().to_string();
        for (key, value) in [
            ("client_mount_timeout", &*seconds),
            ("rados_mon_op_timeout", &*seconds),
            ("rbd_cache", if config.cache { "true" } else { "false" }),
            // Otherwise partial discards of objects are skipped, and unmapped blocks don't read as zeros.
            ("rbd_skip_partial_discard", "false"),
        ] {
            let (name, value) = (text(key), text(value));
            // SAFETY: the handle is open; both strings outlive the call.
            let answer = unsafe {
                (rados.rados_conf_set)(self.handles.cluster, name.as_ptr(), value.as_ptr())
            };
            self.check(answer, || format!("set {key}"), "")?;
        }
        // SAFETY: the handle is open and configured.
        let answer = unsafe { (rados.rados_connect)(self.handles.cluster) };
        let advice = "check that its monitors are up, know this user (id=), and that its keyring \
            is readable ('ceph -s')";
        self.check(answer, || "connect to the cluster".to_string(), advice)
    }

    /// Queries the image's properties.
    pub fn about(&self) -> Result<About, LibraryError> {
        let (rbd, image) = (&self.ceph.rbd, self.handles.image);
        let mut stat = ImageStat {
            size: 0,
            obj_size: 0,
            num_objs: 0,
            order: 0,
            block_name_prefix: [0; 24],
            parent_pool: 0,
            parent_name: [0; 96],
        };
        let (mut features, mut major, mut minor, mut extra) = (0, 0, 0, 0);
        // SAFETY: the image is open; the output variables outlive the calls, and `rbd_stat` gets the size of its
        // structure.
        let answers = unsafe {
            (rbd.rbd_version)(&mut major, &mut minor, &mut extra);
            [
                (rbd.rbd_stat)(image, &mut stat, size_of::<ImageStat>()),
                (rbd.rbd_get_features)(image, &mut features),
            ]
        };
        for answer in answers {
            self.check(answer, || "read the image's properties".to_string(), "")?;
        }
        Ok(About {
            size_bytes: stat.size,
            object_bytes: stat.obj_size,
            features,
            version: format!("{major}.{minor}.{extra}"),
            settings: self.settings()?,
        })
    }

    /// The effective librbd settings for this image.
    fn settings(&self) -> Result<Vec<(String, String)>, LibraryError> {
        const NONE: Setting = Setting {
            name: null_mut(),
            value: null_mut(),
            source: 0,
        };
        let rbd = &self.ceph.rbd;
        let mut list = vec![NONE; 256];
        loop {
            let mut count = list.len() as c_int;
            // SAFETY: the list has room for `count` entries, and both outlive the call.
            let answer = unsafe {
                (rbd.rbd_config_image_list)(self.handles.image, list.as_mut_ptr(), &mut count)
            };
            if answer == -libc::ERANGE && count as usize > list.len() {
                list.resize(count as usize, NONE);
                continue;
            }
            self.check(answer, || "list the image's settings".to_string(), "")?;
            // SAFETY: the library filled in this many entries, with NUL-terminated strings that it owns, and frees them
            // afterwards.
            return Ok(unsafe {
                let filled = list[..count as usize].iter();
                let settings = filled
                    .map(|one| (owned(one.name), owned(one.value)))
                    .collect();
                (rbd.rbd_config_image_list_cleanup)(list.as_mut_ptr(), count);
                settings
            });
        }
    }

    fn check(
        &self,
        answer: c_int,
        doing: impl FnOnce() -> String,
        advice: &'static str,
    ) -> Result<(), LibraryError> {
        if answer >= 0 {
            return Ok(());
        }
        let error = io::Error::from_raw_os_error(-answer);
        Err(LibraryError::Refused {
            name: self.name.clone(),
            doing: doing(),
            error,
            advice,
        })
    }
}

impl Drop for RbdImage {
    fn drop(&mut self) {
        let (handles, ceph) = (self.handles, self.ceph);
        // Every slot holds the image until the library has returned its operation, so no operation is in progress. If
        // the cluster doesn't respond, the thread is abandoned.
        within(CLOSING, move || {
            let Handles {
                cluster,
                pool,
                image,
            } = { handles };
            // SAFETY: each handle that is not null was opened and is closed once, after everything that was opened on
            // it.
            unsafe {
                if !image.is_null() {
                    (ceph.rbd.rbd_close)(image);
                }
                if !pool.is_null() {
                    (ceph.rados.rados_ioctx_destroy)(pool);
                }
                if !cluster.is_null() {
                    (ceph.rados.rados_shutdown)(cluster);
                }
            }
        });
    }
}

/// Called by librbd on one of its own threads when an operation has completed.
unsafe extern "C" fn ended(completion: Handle, token: *mut c_void) {
    let ceph = ceph().expect("callbacks come from a loaded library");
    // SAFETY: the completion belongs to the operation, which librbd is done with; it is released here, once. The token
    // is the one passed to `begin`, and librbd calls this once per operation.
    unsafe {
        let result = (ceph.rbd.rbd_aio_get_return_value)(completion);
        (ceph.rbd.rbd_aio_release)(completion);
        SlotToken::end(token.cast(), result as i64);
    }
}

// SAFETY: librbd calls `ended` exactly once for each operation that it accepted, once it is done with the operation's
// memory, and never for an operation that it refused.
unsafe impl Library for RbdImage {
    unsafe fn begin(
        &self,
        op: LibraryOp,
        offset: u64,
        memory: *mut u8,
        len: u64,
        token: *const SlotToken,
    ) -> Result<(), i32> {
        let (rbd, image) = (&self.ceph.rbd, self.handles.image);
        let mut completion = null_mut();
        // SAFETY: the output variable outlives the call. The library passes the token on to `ended` and does not access
        // it.
        let made = unsafe {
            (rbd.rbd_aio_create_completion)(token.cast_mut().cast(), ended, &raw mut completion)
        };
        if made < 0 {
            return Err(-made);
        }
        // SAFETY: the image is open as long as `self` exists. The caller guarantees that the memory is valid for `len`
        // bytes until the operation completes.
        let begun = unsafe {
            match op {
                LibraryOp::Read => {
                    (rbd.rbd_aio_read)(image, offset, len as usize, memory.cast(), completion)
                }
                LibraryOp::Write => {
                    (rbd.rbd_aio_write)(image, offset, len as usize, memory.cast(), completion)
                }
                LibraryOp::Flush => (rbd.rbd_aio_flush)(image, completion),
                LibraryOp::Discard => (rbd.rbd_aio_discard)(image, offset, len, completion),
                LibraryOp::Zero => (rbd.rbd_aio_write_zeroes)(
                    image,
                    offset,
                    len as usize,
                    completion,
                    THICK_PROVISION,
                    0,
                ),
            }
        };
        if begun < 0 {
            // SAFETY: the library refused the operation, so the completion is not released elsewhere.
            unsafe { (rbd.rbd_aio_release)(completion) };
            return Err(-begun);
        }
        Ok(())
    }

    /// Only reads return the number of bytes; other operations succeed completely or fail.
    fn moved(op: LibraryOp, len: u64, result: i64) -> u64 {
        if op == LibraryOp::Read {
            result as u64
        } else {
            len
        }
    }

    fn trouble(errno: i32) -> Option<&'static str> {
        match errno {
            libc::ESHUTDOWN => Some(
                "the cluster has added this client to its blocklist (see 'ceph osd blocklist ls')",
            ),
            libc::ENOSPC | libc::EDQUOT => Some("the cluster or the pool is full (see 'ceph df')"),
            _ => None,
        }
    }
}

/// Copies a string of the library.
///
/// # Safety
/// The pointer is null or refers to a NUL-terminated string.
unsafe fn owned(words: *const c_char) -> String {
    if words.is_null() {
        return String::new();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(words) }
        .to_string_lossy()
        .into_owned()
}
