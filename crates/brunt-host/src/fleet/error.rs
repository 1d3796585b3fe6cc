//! Why a host cannot be used for an experiment, or can no longer be used.

use std::time::Duration;

use brunt_protocol::FailureKind;

use crate::host_error::HostError;
use crate::identity::IdentityError;

/// Why a host cannot be used for an experiment, or can no longer be used.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The experiment has no such host.
    #[error("unknown host {0}")]
    Unknown(String),
    /// The host's identity cannot be used.
    #[error("host {host}: identity {source}")]
    Identity {
        /// The host's name in the experiment.
        host: String,
        /// Why.
        source: IdentityError,
    },
    /// The host cannot be reached, or was lost.
    #[error("host {host}: {source}")]
    Host {
        /// The host's name in the experiment.
        host: String,
        /// Why.
        source: HostError,
    },
    /// The host's clock was set, so the times of its requests are unknown.
    #[error(
        "host {0}: its clock was set during the measurement; stop the program that sets it, or \
         have it slew the clock"
    )]
    ClockSet(String),
    /// The host's workers don't end.
    #[error("host {0} did not end its run within {1:?}; check whether its device hangs")]
    Stuck(String, Duration),
    /// The host's copy of the trace differs.
    #[error(
        "host {0}: the trace at this path differs from the one on this machine; copy it to the host"
    )]
    OtherTrace(String),
    /// The hosts don't open the experiment's target in time.
    #[error(
        "no reply from {hosts} within {at_most:?} after the request to open the target; check \
         whether a device there hangs"
    )]
    Slow {
        /// The hosts' names in the experiment.
        hosts: String,
        /// The limit.
        at_most: Duration,
    },
    /// The host was lost in an earlier run or between runs, for this reason.
    #[error("{0}")]
    Lost(String),
    /// The host's thread could not be started.
    #[error("host {host}: cannot start a thread for this host: {source}")]
    Thread {
        /// The host's name in the experiment.
        host: String,
        /// Why.
        source: std::io::Error,
    },
}

impl FleetError {
    /// Whether the host merely refused a request.
    pub(super) fn is_refusal(&self) -> bool {
        let FleetError::Host {
            source: HostError::Failed { kind, .. },
            ..
        } = self
        else {
            return false;
        };
        matches!(
            kind,
            FailureKind::Refused | FailureKind::NotAllowed | FailureKind::Version
        )
    }
}
