//! Finds the listening socket on this machine that accepted a connection. A server that listens on all addresses can be
//! reached at `127.0.0.1`, `::1` and each address of the machine, and only the socket shows that it is the same server.
//!
//! The one rule: no answer unless exactly one socket can have accepted the connection.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

/// `TCP_LISTEN` in the socket tables.
const LISTENING: &str = "0A";

/// The inode of the socket that accepted this connection, if that socket was opened on this machine and in this network
/// namespace.
pub fn of(connection: &TcpStream) -> Option<u64> {
    let (own, peer) = (connection.local_addr().ok()?, connection.peer_addr().ok()?);
    let is_here = peer.ip().to_canonical().is_loopback() || own.ip() == peer.ip();
    if !is_here {
        return None;
    }
    let table = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).ok();
    // The table doesn't exist without IPv6.
    find(&table("tcp")?, &table("tcp6").unwrap_or_default(), peer)
}

/// Like [`of`], given the socket tables of IPv4 and IPv6.
fn find(tcp: &str, tcp6: &str, peer: SocketAddr) -> Option<u64> {
    let rows = tcp.lines().chain(tcp6.lines()).filter_map(listener);
    let listeners: Vec<(IpAddr, u64)> = rows
        .filter(|(address, _)| address.port() == peer.port())
        .map(|(address, inode)| (address.ip(), inode))
        .collect();
    let exact = peer.ip().to_canonical();
    let any = Ipv6Addr::UNSPECIFIED.into();
    // In the kernel's order of preference. A socket for all IPv6 addresses accepts IPv4 as well, unless another
    // socket does.
    let preferred: &[IpAddr] = match exact {
        IpAddr::V4(_) => &[exact, Ipv4Addr::UNSPECIFIED.into(), any],
        IpAddr::V6(_) => &[exact, any],
    };
    for address in preferred {
        let mut at = listeners.iter().filter(|(other, _)| other == address);
        match (at.next(), at.next()) {
            (Some((_, inode)), None) => return Some(*inode),
            (Some(_), Some(_)) => return None,
            (None, _) => {}
        }
    }
    None
}

/// Parses the address and inode from a listening socket's row: number, local and remote address, state, and six other
/// columns, the last of which is the inode.
fn listener(row: &str) -> Option<(SocketAddr, u64)> {
    let mut columns = row.split_ascii_whitespace().skip(1);
    let (address, _, state) = (columns.next()?, columns.next()?, columns.next()?);
    let inode = columns.nth(5)?.parse().ok()?;
    if state != LISTENING {
        return None;
    }
    let (ip, port) = address.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // 32-bit words, each printed as the number that its bytes represent in memory.
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok();
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?.to_ne_bytes()).into(),
        32 => {
            let mut bytes = [0; 16];
            for (index, part) in bytes.chunks_mut(4).enumerate() {
                part.copy_from_slice(&word(8 * index)?.to_ne_bytes());
            }
            IpAddr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some((SocketAddr::new(ip, port), inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    /// A table with rows of addresses, states and inodes.
    fn table(rows: &[(&str, &str, u64)]) -> String {
        let row = |(address, state, inode): &(&str, &str, u64)| {
            format!(
                "   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0000000000000000 100 0 0 10 0\n"
            )
        };
        HEAD.to_string() + &rows.iter().map(row).collect::<String>()
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_socket_on_all_addresses_accepts_for_each_of_them() {
        const ALL: &str = "00000000000000000000000000000000:2A39";
        const LOCAL: &str = "0100007F:2A39";
        let check =
            |tcp: &[(&str, &str, u64)], tcp6: &[(&str, &str, u64)], expected: [Option<u64>; 3]| {
                let found = ["127.0.0.1:10809", "127.0.0.2:10809", "[::1]:10809"]
                    .map(|peer| find(&table(tcp), &table(tcp6), peer.parse().unwrap()));
                assert_eq!(found, expected, "{tcp:?} {tcp6:?}");
            };
        check(&[], &[(ALL, "0A", 7)], [Some(7); 3]);
        check(&[("00000000:2A39", "0A", 5)], &[], [Some(5), Some(5), None]);
        let both = &[("00000000:2A39", "0A", 5), (LOCAL, "0A", 6)];
        check(both, &[(ALL, "0A", 7)], [Some(6), Some(5), Some(7)]);
        // A listener shared by two servers; a listener on a different port; an established connection.
        check(&[], &[(ALL, "0A", 7), (ALL, "0A", 8)], [None; 3]);
        check(&[("0100007F:2A38", "0A", 5)], &[], [None; 3]);
        check(&[(LOCAL, "01", 5)], &[], [None; 3]);
        check(
            &[("0100007F", "0A", 5), ("junk:2A39", "0A", 5)],
            &[],
            [None; 3],
        );
    }

    #[test]
    fn a_connection_leads_to_its_listener() {
        let connect = |listener: &TcpListener, host: &str| {
            let port = listener.local_addr().unwrap().port();
            of(&TcpStream::connect((host, port)).unwrap())
        };
        let [all, other] = [(); 2].map(|()| TcpListener::bind("0.0.0.0:0").unwrap());
        let found = connect(&all, "127.0.0.1");
        assert!(found.is_some());
        assert_eq!(connect(&all, "127.0.0.2"), found);
        assert_ne!(connect(&other, "127.0.0.1"), found);
    }
}
