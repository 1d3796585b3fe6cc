use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect()
}

/// The first data packet of a real capture: a MOUNT NULL call over TCP.
fn mount_null_frame() -> Vec<u8> {
    include_bytes!("../../testdata/mount-null-call.frame").to_vec()
}

fn with_link(header: &str) -> Vec<u8> {
    let mut frame = hex(header);
    frame.extend(&mount_null_frame()[14..]);
    frame
}

#[test]
fn every_link_header_yields_the_same_segment() {
    let check = |link, frame: &[u8], vlan| {
        let Ok(Frame::Ip(ip)) = parse_frame(link, frame, frame.len() as u32) else {
            panic!("{link:?}")
        };
        assert_eq!(ip.source.to_string(), "10.99.0.2");
        assert_eq!(ip.destination.to_string(), "10.99.0.1");
        assert_eq!(ip.vlan, vlan);
        let Ok(IpPayload::Tcp(tcp)) = parse_transport(ip.protocol, ip.payload) else {
            panic!("{link:?}")
        };
        assert_eq!((tcp.source_port, tcp.destination_port), (605, 20048));
        assert_eq!((tcp.payload.bytes.len(), tcp.payload.wire_len), (72, 72));
        assert!(tcp.flags.ack() && !tcp.flags.syn());
    };
    check(LinkType::Ethernet, &mount_null_frame(), None);
    check(
        LinkType::Ethernet,
        &with_link("010203040506 0708090a0b0c 8100 2005 0800"),
        Some(5),
    );
    check(
        LinkType::Ethernet,
        &with_link("010203040506 0708090a0b0c 88a8 0064 8100 0fff 0800"),
        Some(4095),
    );
    check(
        LinkType::LinuxSll,
        &with_link("0000 0001 0006 0708090a0b0c 0000 0800"),
        None,
    );
    check(
        LinkType::LinuxSll2,
        &with_link("0800 0000 00000002 0001 00 06 0708090a0b0c 0000"),
        None,
    );
    check(LinkType::Raw, &with_link(""), None);
    check(LinkType::Null, &with_link("02000000"), None);
    // Ethernet padding is not payload.
    let mut padded = mount_null_frame();
    padded.extend([0; 9]);
    check(LinkType::Ethernet, &padded, None);
}

/// Bytes cut off by a snap length are reported as missing, and truncation at any byte never causes a panic.
#[test]
fn a_frame_cut_anywhere_never_panics() {
    let frame = mount_null_frame();
    for end in 0..frame.len() {
        let parsed = parse_frame(LinkType::Ethernet, &frame[..end], frame.len() as u32);
        if end < 34 {
            assert!(
                matches!(parsed, Err(ParseError::Incomplete(n)) if n > 0),
                "{end}: {parsed:?}"
            );
            continue;
        }
        let Ok(Frame::Ip(ip)) = parsed else {
            panic!("{end}: {parsed:?}")
        };
        match parse_transport(ip.protocol, ip.payload) {
            Ok(IpPayload::Tcp(tcp)) => {
                assert_eq!(tcp.payload.wire_len, 72);
                assert_eq!(tcp.payload.bytes.len(), end.saturating_sub(66));
            }
            Err(ParseError::Incomplete(_)) => assert!(end < 54),
            other => panic!("{end}: {other:?}"),
        }
    }
}

/// With any byte changed and any truncation, the fast path gives the same result as the general one, or declines the
/// packet.
#[test]
fn the_fast_path_matches_the_general_one() {
    let frame = mount_null_frame();
    let mut found = 0;
    let mut check = |frame: &[u8]| {
        let Some(plain) = parse_plain_tcp(LinkType::Ethernet, frame) else {
            return;
        };
        let long = parse_frame(LinkType::Ethernet, frame, frame.len() as u32);
        let Ok(Frame::Ip(ip)) = long else {
            panic!("{long:?}")
        };
        let transport = parse_transport(ip.protocol, ip.payload);
        assert_eq!(transport, Ok(IpPayload::Tcp(plain.tcp)));
        assert_eq!(
            (ip.macs, ip.source, ip.destination),
            (Some(plain.macs), plain.source, plain.destination)
        );
        assert_eq!((ip.vlan, ip.fragment), (None, None));
        found += 1;
    };
    for end in 0..=frame.len() {
        check(&frame[..end]);
    }
    for at in 0..60 {
        for byte in 0..=255 {
            let mut other = frame.clone();
            other[at] = byte;
            check(&other);
        }
    }
    assert!(found > 10_000, "{found}");
    assert_eq!(parse_plain_tcp(LinkType::Raw, &frame), None);
}

#[test]
fn ipv6_extension_headers_and_fragments_are_parsed() {
    let udp = "03e8 0801 000c 0000 11223344";
    let check = |headers: &str, next: &str, fragment, wire_len| {
        let body = hex(&format!("{headers} {udp}"));
        let mut packet = hex("60000000");
        packet.extend((body.len() as u16).to_be_bytes());
        packet.extend(hex(&format!(
            "{next} 40 fd00000000000000 0000000000000001 fd00000000000000 0000000000000002"
        )));
        packet.extend(&body);
        let Ok(Frame::Ip(ip)) = parse_frame(LinkType::Raw, &packet, packet.len() as u32) else {
            panic!("{headers}")
        };
        assert_eq!(ip.destination.to_string(), "fd00::2");
        assert_eq!(
            (ip.protocol, ip.fragment, ip.payload.wire_len),
            (17, fragment, wire_len)
        );
        for end in 0..packet.len() {
            let _ = parse_frame(LinkType::Raw, &packet[..end], packet.len() as u32);
        }
    };
    check("", "11", None, 12);
    check("1100 000000000000", "00", None, 12);
    check(
        "2b00 000000000000 1101 0000000000000000000000000000",
        "00",
        None,
        12,
    );
    let fragment = |offset, more| {
        Some(Fragment {
            identification: 7,
            offset,
            more,
        })
    };
    check("1100 0001 00000007", "2c", fragment(0, true), 12);
    check("1100 0010 00000007", "2c", fragment(16, false), 12);
    // A packet with a fragment header but only one fragment is not fragmented.
    check("1100 0000 00000007", "2c", None, 12);
}

#[test]
fn ipv4_fragments_are_recognized_and_bad_lengths_rejected() {
    let mut frame = mount_null_frame();
    frame[20] = 0x20;
    let Ok(Frame::Ip(ip)) = parse_frame(LinkType::Ethernet, &frame, 138) else {
        panic!()
    };
    assert!(matches!(
        ip.fragment,
        Some(Fragment {
            offset: 0,
            more: true,
            ..
        })
    ));
    frame[20..22].copy_from_slice(&[0, 185]);
    let Ok(Frame::Ip(ip)) = parse_frame(LinkType::Ethernet, &frame, 138) else {
        panic!()
    };
    assert!(matches!(
        ip.fragment,
        Some(Fragment {
            offset: 1480,
            more: false,
            ..
        })
    ));
    frame[16..18].copy_from_slice(&[0, 19]);
    assert!(matches!(
        parse_frame(LinkType::Ethernet, &frame, 138),
        Err(ParseError::Malformed(_))
    ));
    frame[14] = 0x43;
    assert!(matches!(
        parse_frame(LinkType::Ethernet, &frame, 138),
        Err(ParseError::Malformed(_))
    ));
    frame[14] = 0x75;
    assert!(matches!(
        parse_frame(LinkType::Ethernet, &frame, 138),
        Err(ParseError::Malformed(_))
    ));
}
