//! Which engine does the requests of a process's rings: io_uring, or threads with ordinary system calls where the kernel
//! has no io_uring or forbids it. Asked by [`super::Ring::new`], by `brunt doctor`, and by loads that choose.
//!
//! The rule: whether io_uring works is tried in a child process, once. A seccomp filter may answer `io_uring_setup` with
//! SIGSYS, which only the child doesn't survive.

use std::io;
use std::sync::{LazyLock, OnceLock};

use brunt_core::IoEngine;

/// Chooses the engine of a process whose command line doesn't: `io_uring` or `threads`. Child processes inherit it.
pub const ENGINE_VARIABLE: &str = "BRUNT_ENGINE";

/// The oldest kernel that Brunt is tested on, as major and minor number: Debian 12's, which the tests start as a guest.
/// Older ones may work; `brunt doctor` says so when the kernel is older.
pub const KERNEL_MIN: (u32, u32) = (6, 1);

/// Why there is no io_uring here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoIoUring {
    /// EPERM.
    #[error(
        "io_uring is forbidden here: see sysctl kernel.io_uring_disabled, or the container's seccomp profile (docker \
         run --security-opt seccomp=unconfined)"
    )]
    Forbidden,
    /// ENOSYS.
    #[error(
        "there is no io_uring here: the kernel was built without it, or the container's seccomp profile hides it \
         (podman run --security-opt seccomp=unconfined)"
    )]
    Missing,
    /// The process that tried was killed.
    #[error(
        "io_uring is forbidden here: a seccomp filter kills processes that call it (signal {0})"
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

/// The process asked for an engine that it can't have, or for none that exists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoEngineError {
    /// io_uring was asked for.
    #[error("engine io_uring: {0}")]
    NoIoUring(#[from] NoIoUring),
    /// The environment names something else.
    #[error("{ENGINE_VARIABLE}={0}: no such engine; io_uring and threads exist")]
    Unknown(String),
}

/// Whether rings of io_uring can be made, tried once per process.
///
/// # Errors
/// Why not.
pub fn io_uring() -> Result<(), NoIoUring> {
    static TRIED: LazyLock<Result<(), NoIoUring>> = LazyLock::new(try_in_child);
    *TRIED
}

static STATED: OnceLock<IoEngine> = OnceLock::new();

/// Says which engine this process uses where nothing else does, before it makes its first ring. The first call counts.
///
/// # Errors
/// It doesn't work here.
pub fn state_engine(engine: IoEngine) -> Result<(), IoEngineError> {
    check(engine)?;
    let _ = STATED.set(engine);
    Ok(())
}

/// The variable, and its value, for the environment of processes that this one starts, if the command line names an
/// engine.
pub fn for_children() -> Option<(&'static str, &'static str)> {
    STATED.get().map(|engine| (ENGINE_VARIABLE, engine.name()))
}

/// The engine that the command line ([`state_engine`]) or [`ENGINE_VARIABLE`] names, if any.
///
/// # Errors
/// It doesn't exist, or doesn't work here.
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

/// Why a process has the engine that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineOrigin {
    /// [`state_engine`] named it.
    #[error("as --engine says")]
    CommandLine,
    /// [`ENGINE_VARIABLE`] names it.
    #[error("as {ENGINE_VARIABLE} says")]
    Environment,
    /// Nothing names one, and io_uring works.
    #[error("the default where the kernel allows it")]
    Default,
    /// Nothing names one, and threads replace io_uring.
    #[error(transparent)]
    Fallback(NoIoUring),
}

/// The engine of a ring whose maker doesn't care, and why: the stated one, otherwise io_uring where it works, otherwise
/// threads.
///
/// # Errors
/// As [`stated_engine`].
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

/// The engine of [`usual`].
///
/// # Errors
/// As [`stated_engine`].
pub fn usual_engine() -> Result<IoEngine, IoEngineError> {
    usual().map(|(engine, _)| engine)
}

/// Whether this engine works here.
///
/// # Errors
/// Why not.
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

/// Makes a ring in a child and lets go of it.
fn try_in_child() -> Result<(), NoIoUring> {
    // 32 words: `struct io_uring_params` has 120 bytes (linux/io_uring.h).
    let parameters = [0u32; 32];
    let core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a fork that makes system calls only until it exits, on memory of its own; without a signal at its end
    // (flags 0), so that nothing that waits for children of this process sees it.
    unsafe {
        let child = libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0);
        if child == 0 {
            // A core of a child that SIGSYS kills is of no use.
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
