//! The interface to code that receives a copy of all packets that enter a link, such as a capture.

use std::time::Duration;

use super::direction::Direction;

/// Receives the packets that enter a link, at their size on the wire and with complete checksums.
pub trait PacketWatcher: Send {
    /// A packet arrived at this time since 1970, going in this direction.
    fn on_packet(&mut self, direction: Direction, since_1970: Duration, packet: &[u8]);
    /// No more packets for now.
    fn on_pause(&mut self);
}
