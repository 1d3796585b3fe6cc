//! How a host sends packets over a link: through the link's thread or, while no impairment is configured, directly
//! through the kernel over a parallel veth pair. A route selects the path, and changing it keeps connections open.
//!
//! The rule: packets bypass the thread only if the rules would pass them unchanged, so an unimpaired link costs no more
//! than a veth pair.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use crate::host::Host;
use crate::netlink::{Netlink, Route};

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Way {
    /// The sending host.
    host: Host,
    /// The address at the other end.
    neighbour: Ipv4Addr,
    /// The device of the link.
    device: u32,
    /// The end of the parallel veth pair, if there is one.
    straight: Option<u32>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    goes_straight: bool,
    /// Hosts reached through the neighbour.
    beyond: Vec<Ipv4Addr>,
}

impl Way {
    /// Once [`Way::take`] has been called, packets go through the link's device.
    pub(crate) fn new(host: Host, neighbour: Ipv4Addr, device: u32, straight: Option<u32>) -> Way {
        Way {
            host,
            neighbour,
            device,
            straight,
            state: Mutex::default(),
        }
    }

    /// Switches to the veth pair, if there is one, or to the link's device; returns whether this changes the path.
    pub(crate) fn take(&self, straight: bool) -> io::Result<bool> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let straight = straight && self.straight.is_some();
        let changes = state.goes_straight != straight;
        state.goes_straight = straight;
        self.lay(&state)?;
        Ok(changes)
    }

    /// Also routes packets for these hosts through the neighbour, which forwards them.
    pub(crate) fn lead_to(&self, beyond: Vec<Ipv4Addr>) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.beyond = beyond;
        self.lay(&state)
    }

    /// Replaces the routes.
    fn lay(&self, state: &State) -> io::Result<()> {
        let device = self
            .straight
            .filter(|_| state.goes_straight)
            .unwrap_or(self.device);
        let (source, congestion) = (self.host.address(), self.host.congestion());
        self.host.run(|| {
            let mut netlink = Netlink::open()?;
            netlink.set_route(&Route {
                device,
                to: self.neighbour,
                source,
                gateway: None,
                congestion,
            })?;
            for to in &state.beyond {
                let gateway = Some(self.neighbour);
                netlink.set_route(&Route {
                    device,
                    to: *to,
                    source,
                    gateway,
                    congestion,
                })?;
            }
            Ok(())
        })
    }
}
