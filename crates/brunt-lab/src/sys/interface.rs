//! Reads frames from a network interface through a packet socket, with the time at which the kernel received them, and
//! writes frames; also queries interfaces.
//!
//! The rule: a VLAN tag that the kernel or the NIC removed from a frame is restored on reading.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use super::{check, ifreq, set_option, some_socket};
use crate::link::VNET_HEADER_BYTES;

/// A packet socket's header lacks the buffer count (virtio 0.9.5).
pub(super) const SOCKET_HEADER_BYTES: usize = 10;
/// Offset of a frame's VLAN tag, after both addresses, and its length.
pub(super) const TAG_AT: usize = VNET_HEADER_BYTES + 12;
pub(super) const TAG_BYTES: usize = 4;
const NEEDS_CHECKSUM: u8 = 1;

// linux/ethtool.h
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETH_FLAG_LRO: u32 = 1 << 15;
// linux/sockios.h
const SIOCGIFFLAGS: libc::c_ulong = 0x8913;
const SIOCGIFMTU: libc::c_ulong = 0x8921;
const SIOCGIFHWADDR: libc::c_ulong = 0x8927;
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// The result of reading a packet socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketRead {
    /// No frame available.
    Nothing,
    /// A frame of this length, including the virtio-net header of [`VNET_HEADER_BYTES`].
    Frame {
        /// Length.
        bytes: usize,
        /// When the kernel received the frame, since 1970.
        stamp: Option<Duration>,
    },
    /// A frame that cannot be delivered whole: too long, or with an offload that a virtio-net header cannot express.
    Unreadable,
    /// The interface is down or gone.
    Down,
}

/// Makes a packet socket receive frames for all destinations, with their tags and timestamps.
pub(crate) fn watch_interface(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let on: libc::c_int = 1;
    set_option(socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &on)?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)?;
    // SAFETY: zeros are a valid packet_mreq.
    let mut member = unsafe { std::mem::zeroed::<libc::packet_mreq>() };
    (member.mr_ifindex, member.mr_type) = (index as libc::c_int, libc::PACKET_MR_PROMISC as u16);
    // The membership ends with the socket.
    set_option(
        socket,
        libc::SOL_PACKET,
        libc::PACKET_ADD_MEMBERSHIP,
        &member,
    )
}

/// Reads a frame into `into`, which is longer than any frame.
pub(crate) fn read_packet(socket: RawFd, into: &mut [u8]) -> io::Result<PacketRead> {
    let (header, frame) = into.split_at_mut(VNET_HEADER_BYTES);
    header.fill(0);
    // The last bytes are reserved for a tag.
    let room = frame.len() - TAG_BYTES;
    let mut parts = [
        libc::iovec {
            iov_base: header.as_mut_ptr().cast(),
            iov_len: SOCKET_HEADER_BYTES,
        },
        libc::iovec {
            iov_base: frame.as_mut_ptr().cast(),
            iov_len: room,
        },
    ];
    let mut control = [0u64; 16];
    // SAFETY: zeros are a valid msghdr.
    let mut message = unsafe { std::mem::zeroed::<libc::msghdr>() };
    (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
    (message.msg_control, message.msg_controllen) =
        (control.as_mut_ptr().cast(), size_of_val(&control) as _);
    // SAFETY: everything that the message points to is in this stack frame or borrowed, and is as long as stated.
    let count = unsafe { libc::recvmsg(socket, &mut message, 0) };
    if count < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(PacketRead::Nothing),
            Some(libc::EINVAL) => Ok(PacketRead::Unreadable),
            Some(libc::ENETDOWN | libc::ENXIO) => Ok(PacketRead::Down),
            _ => Err(error),
        };
    }
    let (stamp, tag) = ancillary_data(&message);
    let bytes = (count as usize).saturating_sub(SOCKET_HEADER_BYTES) + VNET_HEADER_BYTES;
    if message.msg_flags & libc::MSG_TRUNC != 0 || bytes <= TAG_AT {
        return Ok(PacketRead::Unreadable);
    }
    let Some((kind, tag)) = tag else {
        return Ok(PacketRead::Frame { bytes, stamp });
    };
    into.copy_within(TAG_AT..bytes, TAG_AT + TAG_BYTES);
    put_back(into, kind, tag);
    Ok(PacketRead::Frame {
        bytes: bytes + TAG_BYTES,
        stamp,
    })
}

/// The kernel's ancillary data for a frame: its timestamp, and the tag that was removed from it.
fn ancillary_data(message: &libc::msghdr) -> (Option<Duration>, Option<(u16, u16)>) {
    let (mut stamp, mut tag) = (None, None);
    // SAFETY: recvmsg filled the message, and its control buffer lives as long as the message.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: the macros stay within the buffer; each value is read with the type that level and kind specify
        // (packet(7), socket(7)).
        unsafe {
            let data = libc::CMSG_DATA(next);
            match ((*next).cmsg_level, (*next).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let time = data.cast::<libc::timespec>().read_unaligned();
                    stamp = u64::try_from(time.tv_sec).ok().map(|seconds| {
                        Duration::new(seconds, (time.tv_nsec as u32).min(999_999_999))
                    });
                }
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                    let aux = data.cast::<libc::tpacket_auxdata>().read_unaligned();
                    tag = missing_tag(aux.tp_status, aux.tp_vlan_tpid, aux.tp_vlan_tci);
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(message, next);
        }
    }
    (stamp, tag)
}

/// The type and value of the VLAN tag that was removed from a frame, derived from what the kernel reports with the
/// frame; `None` if none was removed.
pub(super) fn missing_tag(status: u32, kind: u16, tag: u16) -> Option<(u16, u16)> {
    let kind = if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 {
        0x8100
    } else {
        kind
    };
    (status & libc::TP_STATUS_VLAN_VALID != 0).then_some((kind, tag))
}

/// Writes a tag into the gap after the addresses, and adjusts the offsets in the virtio-net header.
pub(super) fn put_back(buffer: &mut [u8], kind: u16, tag: u16) {
    buffer[TAG_AT..TAG_AT + 2].copy_from_slice(&kind.to_be_bytes());
    buffer[TAG_AT + 2..TAG_AT + 4].copy_from_slice(&tag.to_be_bytes());
    let (is_train, needs_checksum) = (buffer[1] != 0, buffer[0] & NEEDS_CHECKSUM != 0);
    // The length of all headers; the start of the checksum.
    for (at, is_set) in [(2, is_train), (6, needs_checksum)] {
        if is_set {
            let place =
                u16::from_ne_bytes([buffer[at], buffer[at + 1]]).saturating_add(TAG_BYTES as u16);
            buffer[at..at + 2].copy_from_slice(&place.to_ne_bytes());
        }
    }
}

/// Sends a frame, virtio-net header first, through the interface to which a packet socket is bound.
pub(crate) fn write_packet(socket: RawFd, frame: &[u8]) -> io::Result<()> {
    let (header, packet) = frame.split_at(VNET_HEADER_BYTES);
    let parts = [(&header[..SOCKET_HEADER_BYTES]), packet].map(|part| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast(),
        iov_len: part.len(),
    });
    // SAFETY: the kernel only reads the parts, which are borrowed and as long as stated.
    let count = unsafe { libc::writev(socket, parts.as_ptr(), parts.len() as libc::c_int) };
    if count < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Properties of an interface in the calling thread's namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceFacts {
    pub(crate) is_up: bool,
    pub(crate) is_ethernet: bool,
    pub(crate) mtu: u32,
}

/// Queries an interface.
pub(crate) fn interface_facts(name: &str) -> io::Result<InterfaceFacts> {
    let socket = some_socket()?;
    let ask = |request: libc::c_ulong| -> io::Result<libc::ifreq> {
        let mut answer = ifreq(name);
        // SAFETY: each of these requests reads the name and writes its answer into the request (netdevice(7)).
        check(unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &mut answer) })?;
        Ok(answer)
    };
    let (flags, address, mtu) = (ask(SIOCGIFFLAGS)?, ask(SIOCGIFHWADDR)?, ask(SIOCGIFMTU)?);
    // SAFETY: each request filled in the field that is read here.
    unsafe {
        Ok(InterfaceFacts {
            is_up: flags.ifr_ifru.ifru_flags & libc::IFF_UP as libc::c_short != 0,
            is_ethernet: address.ifr_ifru.ifru_hwaddr.sa_family == libc::ARPHRD_ETHER,
            mtu: mtu.ifr_ifru.ifru_mtu as u32,
        })
    }
}

/// Sets whether a device of the calling thread's namespace accepts TCP segments that still have to be split.
pub(crate) fn set_segmentation_offload(device: &str, on: bool) -> io::Result<()> {
    ethtool(device, ETHTOOL_STSO, on.into()).map(drop)
}

/// Whether an interface merges received segments irreversibly (large receive offload).
pub(crate) fn merges_for_good(device: &str) -> io::Result<bool> {
    Ok(ethtool(device, ETHTOOL_GFLAGS, 0)? & ETH_FLAG_LRO != 0)
}

/// Enables or disables large receive offload.
pub(crate) fn set_merging_for_good(device: &str, on: bool) -> io::Result<()> {
    let flags = ethtool(device, ETHTOOL_GFLAGS, 0)? & !ETH_FLAG_LRO;
    ethtool(
        device,
        ETHTOOL_SFLAGS,
        flags | if on { ETH_FLAG_LRO } else { 0 },
    )
    .map(drop)
}

/// Issues an ethtool command with one value; returns the resulting value.
fn ethtool(device: &str, command: u32, value: u32) -> io::Result<u32> {
    // struct ethtool_value.
    let mut value = [command, value];
    let mut request = ifreq(device);
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    let socket = some_socket()?;
    // SAFETY: the request and the eight bytes that it points to are in this stack frame.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &mut request) })?;
    Ok(value[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tag is restored to its place, and later offsets in the header are adjusted.
    #[test]
    fn a_vlan_tag_is_restored_to_its_place() {
        let mut buffer: Vec<u8> = (0..64).collect();
        let frame = buffer.clone();
        (buffer[0], buffer[1]) = (NEEDS_CHECKSUM, 1);
        for (at, value) in [(2, 54u16), (6, 34)] {
            buffer[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        }
        buffer.copy_within(TAG_AT..60, TAG_AT + TAG_BYTES);
        put_back(&mut buffer, 0x88a8, 0x2fff);
        assert_eq!(
            buffer[VNET_HEADER_BYTES..TAG_AT],
            frame[VNET_HEADER_BYTES..TAG_AT]
        );
        assert_eq!(buffer[TAG_AT..TAG_AT + 4], [0x88, 0xa8, 0x2f, 0xff]);
        assert_eq!(buffer[TAG_AT + 4..], frame[TAG_AT..60]);
        assert_eq!(
            (buffer[2..4].to_vec(), buffer[6..8].to_vec()),
            (58u16.to_ne_bytes().to_vec(), 38u16.to_ne_bytes().to_vec())
        );
        let mut plain: Vec<u8> = vec![0; 64];
        put_back(&mut plain, 0x8100, 1);
        assert!(plain[..VNET_HEADER_BYTES].iter().all(|byte| *byte == 0));
    }
}
