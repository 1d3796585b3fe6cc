//! Selects the I/O engine of a process's rings: io_uring, or threads with ordinary system calls if the kernel lacks
//! io_uring or forbids it. Used by [`super::Ring::new`], by `brunt doctor`, and by loads that choose their engine.
//!
//! The rule: whether io_uring works is tested once, in a child process. A seccomp filter may respond to
//! `io_uring_setup` with SIGSYS, which then kills only the child.

use std::io;
use std::sync::{LazyLock, OnceLock};

use brunt_core::IoEngine;

/// The environment variable with the engine of a process whose command line names none: `io_uring` or `threads`.
/// Child processes inherit it.
pub const ENGINE_VARIABLE: &str = "BRUNT_ENGINE";

/// The oldest kernel that Brunt is tested on, as major and minor number: that of Debian 12, which the tests boot as a
/// guest. Older kernels may work; `brunt doctor` reports them.
pub const KERNEL_MIN: (u32, u32) = (6, 1);

/// Why io_uring cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoIoUring {
    /// EPERM.
    #[error(
        "io_uring is disabled here: see sysctl kernel.io_uring_disabled, or the container's \
         seccomp profile (docker run --security-opt seccomp=unconfined)"
    )]
    Forbidden,
    /// ENOSYS.
    #[error(
        "io_uring is not available here: the kernel was built without it, or the container's \
         seccomp profile hides it (podman run --security-opt seccomp=unconfined)"
    )]
    Missing,
    /// The process that tried it was killed.
    #[error(
        "io_uring is not usable here: a seccomp filter kills processes that call it (signal {0})"
    )]
    Killed(i32),
    /// ENOMEM.
    #[error("not enough locked memory for a ring; raise ulimit -l")]
    LockedMemory,
    /// Another error.
    #[error("cannot set up io_uring (error {0})")]
    Other(i32),
}

impl NoIoUring {
    pub(super) fn of(errno: i32) -> NoIoUring {
        match errno {
            libc::EPERM | libc::EACCES => NoIoUring::Forbidden,
            libc::ENOSYS => NoIoUring::Missing,
            libc::ENOMEM => NoIoUring::LockedMemory,
            other => NoIoUring::Other(other),
        }
    }
}

/// The requested engine is unavailable or unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoEngineError {
    /// io_uring was requested but is unavailable.
    #[error("engine io_uring: {0}")]
    NoIoUring(#[from] NoIoUring),
    /// The environment variable names an unknown engine.
    #[error("{ENGINE_VARIABLE}={0}: unknown engine; use io_uring or threads")]
    Unknown(String),
}

/// Whether io_uring works here; tested once per process.
///
/// # Errors
/// Why io_uring doesn't work.
pub fn io_uring() -> Result<(), NoIoUring> {
    static TRIED: LazyLock<Result<(), NoIoUring>> = LazyLock::new(try_in_child);
    *TRIED
}

static STATED: OnceLock<IoEngine> = OnceLock::new();

/// Sets this process's engine for rings that don't choose their own. Call it before creating the first ring; only the
/// first call has an effect.
///
/// # Errors
/// The engine doesn't work here.
pub fn state_engine(engine: IoEngine) -> Result<(), IoEngineError> {
    check(engine)?;
    let _ = STATED.set(engine);
    Ok(())
}

/// The variable and its value for the environment of child processes, if the command line names an engine.
pub fn for_children() -> Option<(&'static str, &'static str)> {
    STATED.get().map(|engine| (ENGINE_VARIABLE, engine.name()))
}

/// The engine named by the command line ([`state_engine`]) or [`ENGINE_VARIABLE`], if any.
///
/// # Errors
/// The engine doesn't exist, or doesn't work here.
pub fn stated_engine() -> Result<Option<IoEngine>, IoEngineError> {
    static VARIABLE: LazyLock<Result<Option<IoEngine>, IoEngineError>> = LazyLock::new(|| {
        let Some(name) = std::env::var_os(ENGINE_VARIABLE).filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let name = name.to_string_lossy();
        let engine = IoEngine::of_name(&name).ok_or_else(|| IoEngineError::Unknown(name.into()))?;
        check(engine)?;
        Ok(Some(engine))
    });
    match STATED.get() {
        Some(engine) => Ok(Some(*engine)),
        None => VARIABLE.clone(),
    }
}

/// Why a process uses its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineOrigin {
    /// Named with [`state_engine`].
    #[error("as --engine says")]
    CommandLine,
    /// Named by [`ENGINE_VARIABLE`].
    #[error("as {ENGINE_VARIABLE} says")]
    Environment,
    /// No engine is named, and io_uring works.
    #[error("the default where the kernel supports it")]
    Default,
    /// No engine is named, and threads replace io_uring.
    #[error(transparent)]
    Fallback(NoIoUring),
}

/// The engine for rings whose config doesn't specify one, and why: the named one, otherwise io_uring if it works,
/// otherwise threads.
///
/// # Errors
/// See [`stated_engine`].
pub fn usual() -> Result<(IoEngine, EngineOrigin), IoEngineError> {
    let origin = match STATED.get() {
        Some(_) => EngineOrigin::CommandLine,
        None => EngineOrigin::Environment,
    };
    Ok(match (stated_engine()?, io_uring()) {
        (Some(engine), _) => (engine, origin),
        (None, Ok(())) => (IoEngine::IoUring, EngineOrigin::Default),
        (None, Err(why)) => (IoEngine::Threads, EngineOrigin::Fallback(why)),
    })
}

/// The engine returned by [`usual`].
///
/// # Errors
/// See [`stated_engine`].
pub fn usual_engine() -> Result<IoEngine, IoEngineError> {
    usual().map(|(engine, _)| engine)
}

/// Whether this engine works here.
///
/// # Errors
/// Why the engine doesn't work.
pub fn check(engine: IoEngine) -> Result<(), IoEngineError> {
    match engine {
        IoEngine::IoUring => Ok(io_uring()?),
        IoEngine::Threads => Ok(()),
    }
}

impl From<IoEngineError> for io::Error {
    fn from(error: IoEngineError) -> io::Error {
        let kind = match error {
            IoEngineError::NoIoUring(NoIoUring::Forbidden) => io::ErrorKind::PermissionDenied,
            IoEngineError::NoIoUring(NoIoUring::LockedMemory) => io::ErrorKind::OutOfMemory,
            IoEngineError::NoIoUring(_) => io::ErrorKind::Unsupported,
            IoEngineError::Unknown(_) => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}

/// Sets up a ring in a child process, which then exits.
fn try_in_child() -> Result<(), NoIoUring> {
    // 32 words: `struct io_uring_params` has 120 bytes (linux/io_uring.h).
    let parameters = [0u32; 32];
    let core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the child only makes system calls until it exits, on its own memory. The child ends without a signal
    // (flags 0), so code that waits for children of this process doesn't see it.
    unsafe {
        let child = libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0);
        if child == 0 {
            // No core dump of a child killed by SIGSYS.
            libc::syscall(
                libc::SYS_prlimit64,
                0,
                libc::RLIMIT_CORE,
                &raw const core,
                0,
            );
            let made = libc::syscall(libc::SYS_io_uring_setup, 8, parameters.as_ptr());
            let errno = if made >= 0 {
                0
            } else {
                *libc::__errno_location()
            };
            loop {
                libc::syscall(libc::SYS_exit_group, errno);
            }
        }
        if child < 0 {
            return Err(NoIoUring::Other(*libc::__errno_location()));
        }
        let mut status = 0;
        while libc::waitpid(child as libc::pid_t, &raw mut status, libc::__WALL) < 0 {
            let errno = *libc::__errno_location();
            if errno != libc::EINTR {
                return Err(NoIoUring::Other(errno));
            }
        }
        if libc::WIFSIGNALED(status) {
            return Err(NoIoUring::Killed(libc::WTERMSIG(status)));
        }
        match libc::WEXITSTATUS(status) {
            0 => Ok(()),
            errno => Err(NoIoUring::of(errno)),
        }
    }
}
