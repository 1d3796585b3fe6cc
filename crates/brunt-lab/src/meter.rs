//! Counts the bytes that each link of a lab carries. It can be read at any rate: a read takes two system calls per
//! direction, and neither the links nor the lab wait for it.
//!
//! The rule: bytes are counted where a host sends them, with Ethernet headers, so bytes that a link loses are included.

use std::io;

use crate::link::{LinkDevice, LinkHandle};
use crate::netlink::Netlink;
use crate::wiring::Ends;

/// Reads the counters of all links. Once created, the meter is independent of the lab, and can be used on any thread.
pub struct Meter {
    links: Vec<Metered>,
}

/// A link and, if its thread doesn't see all bytes, the devices of its hosts.
struct Metered {
    handle: LinkHandle,
    devices: Option<[Device; 2]>,
}

/// A host's device, and a netlink socket in that host's namespace.
struct Device {
    netlink: Netlink,
    index: u32,
}

impl Meter {
    /// A meter of these links and of the device pairs that carry packets in parallel to their threads.
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

    /// Bytes since each link was created: from its first host to its second, and back.
    ///
    /// Packets carried by a link's thread are counted as on the wire. Packets that bypassed the thread, or that the
    /// kernel carries, may be trains of segments, whose headers count once per train.
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
