//! Kernel filters (classic BPF) for ports and snap length. Packets that a filter rejects are neither copied nor
//! counted.

use libc::sock_filter;

/// Maximum ports per filter: each costs two comparisons per packet.
pub const PORTS_MAX: usize = 32;

// Special offsets defined by the kernel: the packet's protocol, and the network header regardless of the link type.
const PROTOCOL: u32 = 0xffff_f000;
const NETWORK: u32 = 0xfff0_0000;

const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_INDEXED: u16 = 0x48;
/// X = 4 * (byte & 15): the length of an IPv4 header.
const LOAD_HEADER_LENGTH: u16 = 0xb1;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_SET: u16 = 0x45;
const RETURN: u16 = 0x06;

/// MPLS, and PPPoE session packets.
const TUNNEL_ETHER_TYPES: [u32; 3] = [0x8847, 0x8848, 0x8864];
/// IP in IP, IPv6 in IP, GRE, MPLS in IP.
const TUNNEL_PROTOCOLS: [u32; 4] = [4, 41, 47, 137];
/// VXLAN, its legacy port, GENEVE, MPLS in UDP.
const TUNNEL_PORTS: [u16; 4] = [4789, 8472, 6081, 6635];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    V4,
    Ports4,
    V6,
    Ports6,
    Accept,
    Reject,
    /// Continue with the following instruction.
    Next,
}

/// An instruction with unresolved jumps.
struct Step {
    code: u16,
    k: u32,
    yes: Label,
    no: Label,
}

/// A program that passes the first `snap` bytes of packets from or to one of `ports`, or of all packets if `ports` is
/// empty. Fragments pass regardless of their ports, and so do double-tagged and tunnelled packets, which the filter
/// does not look into.
///
/// # Panics
/// Panics if there are more than [`PORTS_MAX`] ports.
pub fn program(ports: &[u16], snap: u32) -> Vec<sock_filter> {
    assert!(ports.len() <= PORTS_MAX);
    let accept = sock_filter {
        code: RETURN,
        jt: 0,
        jf: 0,
        k: snap,
    };
    if ports.is_empty() {
        return vec![accept];
    }
    use Label::{Accept, Next, Ports4, Ports6, Reject, V4, V6};
    let mut steps = Vec::new();
    let mut marks = Vec::new();
    let step = |code, k, yes, no| Step { code, k, yes, no };
    let load = |code, k| step(code, k, Next, Next);
    let equal = |k, yes, no| step(JUMP_EQUAL, k, yes, no);
    steps.extend([
        load(LOAD_HALF, PROTOCOL),
        equal(0x0800, V4, Next),
        equal(0x86dd, V6, Next),
        equal(0x8100, Accept, Next),
    ]);
    steps.extend(TUNNEL_ETHER_TYPES.map(|ether_type| equal(ether_type, Accept, Next)));
    steps.push(equal(0x88a8, Accept, Reject));
    let ports: Vec<u16> = ports.iter().copied().chain(TUNNEL_PORTS).collect();
    let either = |steps: &mut Vec<Step>, code, at: u32| {
        for half in [0, 2] {
            steps.push(load(code, NETWORK + at + half));
            for (index, port) in ports.iter().enumerate() {
                let last = half == 2 && index + 1 == ports.len();
                steps.push(equal(
                    u32::from(*port),
                    Accept,
                    if last { Reject } else { Next },
                ));
            }
        }
    };
    marks.push((V4, steps.len()));
    steps.push(load(LOAD_BYTE, NETWORK + 9));
    steps.extend(TUNNEL_PROTOCOLS.map(|protocol| equal(protocol, Accept, Next)));
    steps.extend([equal(6, Ports4, Next), equal(17, Ports4, Reject)]);
    marks.push((Ports4, steps.len()));
    steps.extend([
        load(LOAD_HALF, NETWORK + 6),
        step(JUMP_SET, 0x1fff, Accept, Next),
        load(LOAD_HEADER_LENGTH, NETWORK),
    ]);
    either(&mut steps, LOAD_HALF_INDEXED, 0);
    marks.push((V6, steps.len()));
    steps.extend([load(LOAD_BYTE, NETWORK + 6), equal(44, Accept, Next)]);
    steps.extend(TUNNEL_PROTOCOLS.map(|protocol| equal(protocol, Accept, Next)));
    steps.extend([equal(6, Ports6, Next), equal(17, Ports6, Reject)]);
    marks.push((Ports6, steps.len()));
    either(&mut steps, LOAD_HALF, 40);
    resolve(steps, &marks, accept)
}

fn resolve(steps: Vec<Step>, marks: &[(Label, usize)], accept: sock_filter) -> Vec<sock_filter> {
    let accept_at = steps.len();
    let place = |label: Label, at: usize| match label {
        Label::Next => at + 1,
        Label::Accept => accept_at,
        Label::Reject => accept_at + 1,
        other => {
            marks
                .iter()
                .find(|(label, _)| *label == other)
                .expect("targets were marked above")
                .1
        }
    };
    let mut program: Vec<sock_filter> = steps
        .iter()
        .enumerate()
        .map(|(at, step)| {
            // 36 ports (32 plus 4 for tunnels) take 170 steps, so every jump distance fits in a byte.
            let distance = |label| u8::try_from(place(label, at) - at - 1).expect("a short jump");
            sock_filter {
                code: step.code,
                jt: distance(step.yes),
                jf: distance(step.no),
                k: step.k,
            }
        })
        .collect();
    program.push(accept);
    program.push(sock_filter {
        code: RETURN,
        jt: 0,
        jf: 0,
        k: 0,
    });
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets a program as the kernel would, on a packet without a link header.
    fn run(program: &[sock_filter], protocol: u32, packet: &[u8]) -> u32 {
        let (mut a, mut x, mut at) = (0u32, 0u32, 0usize);
        loop {
            let step = &program[at];
            at += 1;
            let place = |from: u32| (from - NETWORK) as usize;
            let half = |at: usize| {
                packet
                    .get(at..at + 2)
                    .map(|b| u32::from(u16::from_be_bytes([b[0], b[1]])))
            };
            let loaded = match step.code {
                RETURN => return step.k,
                JUMP_EQUAL => {
                    at += usize::from(if a == step.k { step.jt } else { step.jf });
                    continue;
                }
                JUMP_SET => {
                    at += usize::from(if a & step.k != 0 { step.jt } else { step.jf });
                    continue;
                }
                LOAD_HEADER_LENGTH => {
                    x = u32::from(packet[place(step.k)] & 15) * 4;
                    continue;
                }
                LOAD_HALF if step.k == PROTOCOL => Some(protocol),
                LOAD_HALF => half(place(step.k)),
                LOAD_HALF_INDEXED => half(place(step.k) + x as usize),
                LOAD_BYTE => packet.get(place(step.k)).map(|b| u32::from(*b)),
                code => panic!("instruction {code:#x}"),
            };
            // A load beyond the packet's end drops the packet.
            let Some(value) = loaded else { return 0 };
            a = value;
        }
    }

    /// Packets pass if either port matches, with IP options, over TCP and UDP, in IPv4 and IPv6; fragments, tagged
    /// packets and tunnels pass; everything else is rejected.
    #[test]
    fn matching_ports_fragments_tags_and_tunnels_pass_the_filter() {
        let v4 = |protocol: u8, words: u8, fragment: u16, ports: [u16; 2]| {
            let mut packet = vec![0u8; usize::from(words) * 4 + 8];
            packet[0] = 0x40 | words;
            packet[6..8].copy_from_slice(&fragment.to_be_bytes());
            packet[9] = protocol;
            let at = usize::from(words) * 4;
            packet[at..at + 2].copy_from_slice(&ports[0].to_be_bytes());
            packet[at + 2..at + 4].copy_from_slice(&ports[1].to_be_bytes());
            packet
        };
        let v6 = |next: u8, ports: [u16; 2]| {
            let mut packet = vec![0u8; 48];
            packet[0] = 0x60;
            packet[6] = next;
            packet[40..42].copy_from_slice(&ports[0].to_be_bytes());
            packet[42..44].copy_from_slice(&ports[1].to_be_bytes());
            packet
        };
        let many: Vec<u16> = (1..=PORTS_MAX as u16).map(|i| i * 100).collect();
        let check = |ports: &[u16], protocol: u32, packet: &[u8], passes: bool| {
            let expected = if passes { 96 } else { 0 };
            assert_eq!(
                run(&program(ports, 96), protocol, packet),
                expected,
                "{ports:?} {packet:?}"
            );
        };
        for ports in [&[2049][..], &[111, 2049, 20048], &[2049, 7]] {
            check(ports, 0x0800, &v4(6, 5, 0, [2049, 40000]), true);
            check(ports, 0x0800, &v4(17, 5, 0x4000, [40000, 2049]), true);
            check(ports, 0x0800, &v4(6, 15, 0, [40000, 2049]), true);
            check(ports, 0x0800, &v4(6, 5, 0, [40000, 2050]), false);
            check(ports, 0x0800, &v4(1, 5, 0, [2049, 2049]), false);
            check(ports, 0x0800, &v4(6, 5, 0x2001, [1, 2]), true);
            check(ports, 0x86dd, &v6(6, [2049, 9]), true);
            check(ports, 0x86dd, &v6(17, [9, 2049]), true);
            check(ports, 0x86dd, &v6(17, [9, 10]), false);
            check(ports, 0x86dd, &v6(44, [9, 10]), true);
            check(ports, 0x86dd, &v6(58, [2049, 10]), false);
            check(ports, 0x88a8, &[], true);
            check(ports, 0x0806, &[0; 28], false);
            // Tunnelled packets pass regardless of their content.
            check(ports, 0x0800, &v4(17, 5, 0, [40000, 4789]), true);
            check(ports, 0x86dd, &v6(17, [40000, 6081]), true);
            check(ports, 0x0800, &v4(47, 5, 0, [1, 2]), true);
            check(ports, 0x86dd, &v6(4, [1, 2]), true);
            check(ports, 0x8847, &[0; 28], true);
            check(ports, 0x8864, &[0; 28], true);
        }
        check(&many, 0x0800, &v4(6, 5, 0, [9, 3200]), true);
        check(&many, 0x86dd, &v6(6, [100, 9]), true);
        check(&many, 0x86dd, &v6(6, [101, 9]), false);
        check(&[], 0x0806, &[], true);
    }
}
