//! Events of a target that its operator should see at once, and the callback that receives them.

use std::fmt;
use std::sync::Arc;

use super::driver::ConnectionError;
use crate::scsi::DiskEvent;

/// An event that an operator should see at once; [`super::TargetStats`] counts it as well.
#[derive(Debug)]
pub enum TargetEvent<'a> {
    /// A login was answered with a status other than success.
    LoginRefused {
        /// The initiator's name; empty if it hasn't sent one.
        initiator: &'a str,
        /// Class and detail (RFC 7143, 11.13.5).
        status: u16,
    },
    /// A connection ended because its initiator violated the protocol or because of an internal error.
    ConnectionBroken {
        /// Number of the connection since the target's start.
        connection: u64,
        /// The reason.
        error: &'a ConnectionError,
    },
    /// A medium has changed or is failing.
    Disk {
        /// The LUN's target, if there are several targets.
        target: Option<&'a str>,
        /// The LUN.
        lun: u16,
        /// What happened.
        event: &'a DiskEvent,
    },
}

impl fmt::Display for TargetEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetEvent::LoginRefused { initiator, status } => {
                write!(
                    f,
                    "login of {initiator:?} refused with status {status:#06x}"
                )
            }
            TargetEvent::ConnectionBroken { connection, error } => {
                write!(f, "connection {connection}: {error}")
            }
            TargetEvent::Disk {
                target: Some(target),
                lun,
                event,
            } => {
                write!(f, "{target}, LUN {lun}: {event}")
            }
            TargetEvent::Disk {
                target: None,
                lun,
                event,
            } => write!(f, "LUN {lun}: {event}"),
        }
    }
}

/// Called for each [`TargetEvent`], on the thread where it happens, so it must not block for long. The default ignores
/// all events.
#[derive(Clone, Default)]
pub struct Listener(Option<Arc<Callback>>);

type Callback = dyn Fn(&TargetEvent<'_>) + Send + Sync;

impl Listener {
    /// A listener that calls `callback`.
    pub fn new(callback: impl Fn(&TargetEvent<'_>) + Send + Sync + 'static) -> Listener {
        Listener(Some(Arc::new(callback)))
    }

    pub(super) fn notify(&self, event: &TargetEvent<'_>) {
        if let Some(callback) = &self.0 {
            callback(event);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Listener"
        } else {
            "the server has no listener"
        })
    }
}
