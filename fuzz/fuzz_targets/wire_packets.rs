//! Captured bytes: packet files, frames, transport headers, RPC, NFSv3 and NFSv4 messages.
#![no_main]

use brunt_block::backends::tcp::frame;
use brunt_wire::cursor::Cursor;
use brunt_wire::net::{self, Frame};
use brunt_wire::nfs::{mount, v3, v4};
use brunt_wire::pcap::{LinkType, PacketFile, PacketStep};
use brunt_wire::rpc;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut file = PacketFile::new();
    let mut rest = bytes;
    while let Ok(step) = file.next(rest) {
        let used = match step {
            PacketStep::Packet(used, packet) => {
                frame(packet.link, packet.bytes);
                used
            }
            PacketStep::Skip(used) => used,
            PacketStep::Incomplete(wanted) => {
                assert!(wanted > rest.len(), "incomplete, but it is all there");
                break;
            }
        };
        assert!(used > 0, "no progress");
        let Some(next) = rest.get(used..) else { break };
        rest = next;
    }
    if let Ok(header) = frame::Header::parse(bytes) {
        assert_eq!(
            header.encode(),
            bytes[..frame::HEADER_BYTES],
            "a raw header is what it was parsed from"
        );
    }
    message(bytes);
});

fn frame(link: LinkType, bytes: &[u8]) {
    let mut frame = net::parse_frame(link, bytes, bytes.len() as u32);
    for _ in 0..net::TUNNELS_MAX {
        let inner = match &frame {
            Ok(Frame::Ip(ip)) if ip.fragment.is_none() => {
                match net::parse_transport(ip.protocol, ip.payload) {
                    Ok(net::IpPayload::Udp(udp)) => {
                        net::open_udp(udp.destination_port, udp.payload)
                    }
                    Ok(net::IpPayload::Other(protocol)) => {
                        net::open_ip(protocol, ip.payload).ok().flatten()
                    }
                    _ => None,
                }
            }
            Ok(Frame::Other { next, payload }) => {
                assert_eq!(next.to_string().parse(), Ok(*next));
                net::open_frame(*next, *payload).ok().flatten()
            }
            _ => None,
        };
        let Some(inner) = inner else { return };
        frame = inner.parse();
    }
}

fn message(bytes: &[u8]) {
    match rpc::parse(bytes) {
        Ok(rpc::RpcMessage::Call(call)) => {
            let _ = (call.credentials.sys(), call.credentials.gss_service());
        }
        Ok(rpc::RpcMessage::Reply(_)) | Err(_) => {}
    }
    for procedure in v3::Procedure::ALL {
        let _ = v3::parse_args(procedure, &mut Cursor::new(bytes));
        if let Ok(results) = v3::parse_results(procedure, &mut Cursor::new(bytes)) {
            if let v3::ResultBody::Readdir { entries, .. } = &results.body {
                let _ = entries.iter().count();
            }
        }
    }
    for procedure in 0..6 {
        let _ = mount::parse_args(procedure, &mut Cursor::new(bytes));
        let _ = mount::parse_results(procedure, &mut Cursor::new(bytes));
    }
    compounds(bytes);
}

/// The same bytes as a call, as its reply, and as a callback.
fn compounds(bytes: &[u8]) {
    let reply = v4::CompoundResults::parse(&mut Cursor::new(bytes)).ok();
    if let Ok(call) = v4::CompoundArgs::parse(&mut Cursor::new(bytes)) {
        assert!(v4::Walk::new(&call, reply.as_ref()).count() <= call.count as usize);
    }
    for result in reply
        .iter()
        .flat_map(|reply| reply.operations())
        .map_while(Result::ok)
    {
        match result.body {
            v4::ResultBody::Getattr { attributes } => {
                let _ = attributes.parse();
            }
            v4::ResultBody::Readdir { entries, .. } => {
                assert_eq!(entries.iter().count() as u32, entries.count());
                for entry in entries.iter() {
                    let _ = entry.attributes.parse();
                }
            }
            v4::ResultBody::ReadPlus { segments, .. } => {
                let _ = segments.iter().count();
            }
            _ => {}
        }
    }
    if let Ok(callback) = v4::CallbackCompound::parse(&mut Cursor::new(bytes)) {
        assert!(callback.operations().count() <= callback.count as usize);
    }
}
