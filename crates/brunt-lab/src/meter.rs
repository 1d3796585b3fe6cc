//! How many bytes each link of a lab carried, read as often as one likes: two system calls for each direction, and
//! neither the links nor the lab wait for it.
//!
//! The rule: bytes are counted where a host hands them over, with Ethernet headers, so also those that a link loses.

use std::io;

use crate::link::{LinkDevice, LinkHandle};
use crate::netlink::Netlink;
use crate::wiring::Ends;

/// Reads the counters of all links. It counts on its own once it was made, on any thread.
pub struct Meter {
    links: Vec<Metered>,
}

/// A link, and those devices of its hosts whose bytes its thread does not see, if there are any.
struct Metered {
    handle: LinkHandle,
    devices: Option<[Device; 2]>,
}

/// A device of a host, and a conversation with the kernel about that host's network.
struct Device {
    netlink: Netlink,
    index: u32,
}

impl Meter {
    /// Of these links and the pairs of devices that carry beside their threads.
    pub(crate) fn of<'a>(
        links: impl Iterator<Item = (LinkHandle, Option<&'a Ends>)>,
    ) -> io::Result<Meter> {
        let open = |device: &LinkDevice| {
            let netlink = device.host.run(Netlink::open)?;
            io::Result::Ok(Device {
                netlink,
                index: device.index,
            })
        };
        let metered = |(handle, beside): (LinkHandle, Option<&Ends>)| {
            let devices = match beside {
                Some(Ends {
                    devices: [first, second],
                    ..
                }) => Some([open(first)?, open(second)?]),
                None => None,
            };
            Ok(Metered { handle, devices })
        };
        let links: io::Result<Vec<Metered>> = links.map(metered).collect();
        Ok(Meter { links: links? })
    }

    /// The links' names, in the order of [`Meter::read`].
    pub fn links(&self) -> impl Iterator<Item = &str> {
        self.links.iter().map(|link| link.handle.name())
    }

    /// Bytes since each link was made: from its first host to its second, and back.
    ///
    /// Packets that a link's thread carried are counted as on the wire. What bypassed the thread, or is carried by the
    /// kernel, may be trains of segments, whose headers count once for a train.
    ///
    /// # Errors
    /// A device's counters cannot be read.
    pub fn read(&mut self) -> io::Result<Vec<[u64; 2]>> {
        self.links.iter_mut().map(Metered::read).collect()
    }
}

impl Metered {
    fn read(&mut self) -> io::Result<[u64; 2]> {
        let report = self.handle.report();
        let mut bytes = [report.there.bytes, report.back.bytes];
        for (bytes, device) in bytes.iter_mut().zip(self.devices.iter_mut().flatten()) {
            *bytes += device.netlink.stats(device.index)?.tx_bytes;
        }
        Ok(bytes)
    }
}
