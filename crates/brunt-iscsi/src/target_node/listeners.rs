//! Where a target listens and how it treats new connections: all settings for future connections that an operator may
//! change while the target serves. Read by the login thread, by new connections and by SendTargets. The one rule: a
//! portal that isn't removed keeps its socket, so that no connection attempt is refused during a change.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use brunt_block::socket::SocketOptions;

use crate::params::Preferences;

/// An address where a target listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// Address and port; port 0 selects a free port.
    pub listen: SocketAddr,
    /// The address that discovery reports instead (`host:port`), if initiators reach the portal at a different address.
    pub advertise: Option<String>,
    /// Portal group tag. Portals in the same group lead to the same target port, portals in different groups to
    /// different target ports.
    pub group: u16,
}

impl From<SocketAddr> for Portal {
    fn from(listen: SocketAddr) -> Portal {
        Portal {
            listen,
            advertise: None,
            group: 1,
        }
    }
}

/// Why portals couldn't be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortalError {
    /// The target can't listen on a portal's address.
    #[error("cannot listen on {portal}: {source}")]
    Listen {
        /// The portal's address.
        portal: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// No portals were given.
    #[error("no portal to listen on; a target needs at least one")]
    NoPortal,
}

/// Connections that the kernel queues until they are accepted; fewer if net.core.somaxconn is lower. With the
/// standard library's 128, a flood would fill the queue between two iterations of the login thread, and further SYNs
/// would be dropped; clients would then wait a second for TCP to resend them.
const BACKLOG: i32 = 4096;
/// How long to wait for an old listening socket to close.
const CLOSING: Duration = Duration::from_secs(1);

/// A portal with its socket.
#[derive(Clone, Debug)]
pub struct OpenPortal {
    /// The portal, with the port that was selected.
    pub portal: Portal,
    /// The non-blocking listening socket.
    pub listener: Arc<TcpListener>,
    /// The address that was configured.
    configured: SocketAddr,
}

impl OpenPortal {
    fn open(portal: &Portal) -> Result<OpenPortal, PortalError> {
        let open = || {
            let listener = TcpListener::bind(portal.listen)?;
            // Calling `listen` again only changes the backlog.
            rustix::net::listen(&listener, BACKLOG)?;
            listener.set_nonblocking(true)?;
            let portal = Portal {
                listen: listener.local_addr()?,
                ..portal.clone()
            };
            Ok((portal, Arc::new(listener)))
        };
        match open() {
            Ok((open, listener)) => Ok(OpenPortal {
                portal: open,
                listener,
                configured: portal.listen,
            }),
            Err(source) => Err(PortalError::Listen {
                portal: portal.listen,
                source,
            }),
        }
    }
}

/// Portals with open sockets.
#[derive(Clone, Debug)]
pub struct OpenPortals(Vec<OpenPortal>);

impl OpenPortals {
    /// Opens these portals, reusing sockets that are already open for a configured address.
    ///
    /// # Errors
    /// No portals were given, or the target can't listen on one of them.
    pub fn open(wanted: &[Portal], before: &OpenPortals) -> Result<OpenPortals, PortalError> {
        if wanted.is_empty() {
            return Err(PortalError::NoPortal);
        }
        let mut free = before.0.clone();
        let take = |portal: &Portal| match free
            .iter()
            .position(|open| open.configured == portal.listen)
        {
            None => OpenPortal::open(portal),
            Some(at) => {
                let mut open = free.remove(at);
                open.portal = Portal {
                    listen: open.portal.listen,
                    ..portal.clone()
                };
                Ok(open)
            }
        };
        wanted
            .iter()
            .map(take)
            .collect::<Result<_, _>>()
            .map(OpenPortals)
    }

    /// A list without portals.
    pub fn none() -> OpenPortals {
        OpenPortals(Vec::new())
    }

    /// The portals, with the ports that were selected.
    pub fn portals(&self) -> Vec<Portal> {
        self.0.iter().map(|open| open.portal.clone()).collect()
    }

    /// The portals with their sockets.
    pub fn as_slice(&self) -> &[OpenPortal] {
        &self.0
    }

    fn has(&self, listener: &Arc<TcpListener>) -> bool {
        self.0
            .iter()
            .any(|open| Arc::ptr_eq(&open.listener, listener))
    }
}

/// Settings for new connections.
#[derive(Clone, Debug)]
pub struct Listeners {
    /// The open portals.
    pub open: OpenPortals,
    /// The parameters to negotiate for.
    pub wishes: Arc<Preferences>,
    /// Socket options of connections in full-feature phase.
    pub sockets: SocketOptions,
}

/// The current listeners.
#[derive(Debug)]
pub struct CurrentListeners(RwLock<Arc<Listeners>>);

impl CurrentListeners {
    /// Creates a holder with these listeners.
    pub fn new(listeners: Listeners) -> CurrentListeners {
        CurrentListeners(RwLock::new(Arc::new(listeners)))
    }

    /// The current listeners.
    pub fn get(&self) -> Arc<Listeners> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the listeners. `wake` must wake the login thread; returns once removed portals are closed and their
    /// addresses free.
    pub fn replace(&self, next: Listeners, wake: impl FnOnce()) {
        let next = Arc::new(next);
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, Arc::clone(&next));
        drop(current);
        let left = before.open.0.iter().map(|open| &open.listener);
        let left: Vec<_> = left
            .filter(|one| !next.open.has(one))
            .map(Arc::downgrade)
            .collect();
        drop(before);
        wake();
        let deadline = Instant::now() + CLOSING;
        while left.iter().any(|one| one.strong_count() > 0) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any() -> Portal {
        SocketAddr::from(([127, 0, 0, 1], 0)).into()
    }

    /// A portal that isn't removed keeps its socket even if its other settings change; a portal that is configured
    /// twice is opened twice.
    #[test]
    fn a_portal_that_stays_keeps_its_socket() {
        let first = OpenPortals::open(&[any(), any()], &OpenPortals::none()).unwrap();
        let ports = |open: &OpenPortals| -> Vec<u16> {
            open.portals()
                .iter()
                .map(|portal| portal.listen.port())
                .collect()
        };
        assert_ne!(ports(&first)[0], ports(&first)[1]);
        let wanted = [
            Portal {
                group: 2,
                advertise: Some("a:1".into()),
                ..any()
            },
            any(),
            any(),
        ];
        let second = OpenPortals::open(&wanted, &first).unwrap();
        assert_eq!(ports(&second)[..2], ports(&first)[..]);
        assert_eq!(
            (second.portals()[0].group, second.portals()[1].group),
            (2, 1)
        );
        let taken: Portal = second.portals()[2].listen.into();
        assert!(matches!(
            OpenPortals::open(&[any(), taken], &first),
            Err(PortalError::Listen { .. })
        ));
        assert!(matches!(
            OpenPortals::open(&[], &first),
            Err(PortalError::NoPortal)
        ));
    }
}
