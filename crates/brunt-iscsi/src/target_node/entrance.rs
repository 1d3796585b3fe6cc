//! Where a target listens, and how it treats those who come in: everything about connections to come that an operator
//! may change while it serves. Read by the thread of logins, by new connections and by SendTargets. The one rule: a
//! portal that stays keeps its socket, so that nobody who knocks while things change is turned away.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use brunt_block::socket::SocketOptions;

use crate::params::Wishes;

/// Where a target listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// Address and port; port 0 picks a free one.
    pub listen: SocketAddr,
    /// What discovery says instead (`host:port`), where initiators reach it under another address.
    pub advertise: Option<String>,
    /// Its portal group tag. Portals of one group lead to one target port; those of different groups to different ones.
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

/// Why portals do not open.
#[derive(Debug, thiserror::Error)]
pub enum PortalError {
    /// One of them.
    #[error("cannot listen on {portal}: {source}")]
    Listen {
        /// Its address.
        portal: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// There is none.
    #[error("a target needs a portal to listen on")]
    NoPortal,
}

/// Connections that the kernel holds until they are accepted; it takes less where net.core.somaxconn is less.
/// With the standard library's 128 a flood fills it between two turns of the thread of logins, and then everyone's
/// SYN is dropped: who knocks waits a second for TCP to send it again.
const BACKLOG: i32 = 4096;
/// How long a socket that is listened to no more may take to close.
const CLOSING: Duration = Duration::from_secs(1);

/// A portal with its socket.
#[derive(Clone, Debug)]
pub struct OpenPortal {
    /// With the port that was picked.
    pub portal: Portal,
    /// Where connections come from; it does not block.
    pub listener: Arc<TcpListener>,
    /// The address that was asked for.
    asked: SocketAddr,
}

impl OpenPortal {
    fn open(portal: &Portal) -> Result<OpenPortal, PortalError> {
        let open = || {
            let listener = TcpListener::bind(portal.listen)?;
            // Listening again only changes the backlog.
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
                asked: portal.listen,
            }),
            Err(source) => Err(PortalError::Listen {
                portal: portal.listen,
                source,
            }),
        }
    }
}

/// Portals whose sockets are open.
#[derive(Clone, Debug)]
pub struct OpenPortals(Vec<OpenPortal>);

impl OpenPortals {
    /// Opens these. What is open under the address that is asked for is taken over.
    ///
    /// # Errors
    /// There is no portal, or one cannot be listened on.
    pub fn open(wanted: &[Portal], before: &OpenPortals) -> Result<OpenPortals, PortalError> {
        if wanted.is_empty() {
            return Err(PortalError::NoPortal);
        }
        let mut free = before.0.clone();
        let take = |portal: &Portal| match free.iter().position(|door| door.asked == portal.listen)
        {
            None => OpenPortal::open(portal),
            Some(at) => {
                let mut door = free.remove(at);
                door.portal = Portal {
                    listen: door.portal.listen,
                    ..portal.clone()
                };
                Ok(door)
            }
        };
        wanted
            .iter()
            .map(take)
            .collect::<Result<_, _>>()
            .map(OpenPortals)
    }

    /// None yet.
    pub fn none() -> OpenPortals {
        OpenPortals(Vec::new())
    }

    /// Each portal, with the port that was picked.
    pub fn portals(&self) -> Vec<Portal> {
        self.0.iter().map(|door| door.portal.clone()).collect()
    }

    /// Each with its socket.
    pub fn doors(&self) -> &[OpenPortal] {
        &self.0
    }

    fn has(&self, listener: &Arc<TcpListener>) -> bool {
        self.0
            .iter()
            .any(|door| Arc::ptr_eq(&door.listener, listener))
    }
}

/// What holds for connections to come.
#[derive(Clone, Debug)]
pub struct Entrance {
    /// Where they come in.
    pub open: OpenPortals,
    /// What is negotiated for.
    pub wishes: Arc<Wishes>,
    /// Of connections in full feature phase.
    pub sockets: SocketOptions,
}

/// The entrance as it is now.
#[derive(Debug)]
pub struct CurrentEntrance(RwLock<Arc<Entrance>>);

impl CurrentEntrance {
    /// Begins like this.
    pub fn new(entrance: Entrance) -> CurrentEntrance {
        CurrentEntrance(RwLock::new(Arc::new(entrance)))
    }

    /// As it is.
    pub fn get(&self) -> Arc<Entrance> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another in its place. `wake` has the thread of logins look at it; when this returns, portals that are no
    /// more are closed, and their addresses free.
    pub fn replace(&self, next: Entrance, wake: impl FnOnce()) {
        let next = Arc::new(next);
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, Arc::clone(&next));
        drop(current);
        let left = before.open.0.iter().map(|door| &door.listener);
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

    /// What stays keeps its socket, whatever else is said of it; what is asked for twice is open twice.
    #[test]
    fn portals_are_taken_over() {
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
