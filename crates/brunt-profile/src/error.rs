//! Why functions can't be sampled.

use std::fs;
use std::io;

/// `perf_event_open` fails, for a reason that a user can remove or has to accept.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// EACCES or EPERM.
    #[error(
        "sampling functions is not permitted{}: run Brunt as root or with CAP_PERFMON, or set \
         kernel.perf_event_paranoid to -1; in a container, its seccomp profile must allow perf_event_open as \
         well",
        .paranoid.map_or(String::new(), |level| format!(" (kernel.perf_event_paranoid is {level})"))
    )]
    NotPermitted {
        /// `kernel.perf_event_paranoid`, if it can be read.
        paranoid: Option<i32>,
    },
    /// ENOENT, EOPNOTSUPP or ENOSYS.
    #[error("this kernel has no perf events (CONFIG_PERF_EVENTS), so functions can't be sampled")]
    Unsupported,
}

/// Profiling failed.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Expected where perf events are restricted: CPU times are still available.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// `perf_event_open` fails for another reason.
    #[error("cannot sample functions on processor {cpu}: {source}")]
    Event {
        /// The processor.
        cpu: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// A thread can't be started.
    #[error("cannot start the thread that reads samples: {0}")]
    Thread(#[source] io::Error),
}

// Linux's numbers are the same on all architectures that Brunt supports.
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;

impl ProfileError {
    /// The meaning of an error of `perf_event_open` on this processor.
    pub(crate) fn of_event(cpu: usize, source: io::Error) -> ProfileError {
        match source.raw_os_error() {
            Some(EPERM | EACCES) => {
                let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
                let paranoid = paranoid.ok().and_then(|text| text.trim().parse().ok());
                Unavailable::NotPermitted { paranoid }.into()
            }
            Some(ENOENT | EOPNOTSUPP | ENOSYS) => Unavailable::Unsupported.into(),
            _ => ProfileError::Event { cpu, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors that are expected on restricted machines are distinguished from all others.
    #[test]
    fn expected_refusals_are_distinguished() {
        let of = |number| ProfileError::of_event(0, io::Error::from_raw_os_error(number));
        for number in [EPERM, EACCES] {
            assert!(matches!(
                of(number),
                ProfileError::Unavailable(Unavailable::NotPermitted { .. })
            ));
        }
        for number in [ENOENT, ENOSYS, EOPNOTSUPP] {
            assert!(matches!(
                of(number),
                ProfileError::Unavailable(Unavailable::Unsupported)
            ));
        }
        const EMFILE: i32 = 24;
        assert!(matches!(of(EMFILE), ProfileError::Event { .. }));
        let said = Unavailable::NotPermitted { paranoid: Some(2) }.to_string();
        assert!(said.contains("(kernel.perf_event_paranoid is 2): run Brunt as root"));
    }
}
