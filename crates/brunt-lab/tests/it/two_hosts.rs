//! Two hosts with a link between them, and sockets on them, for tests of links and of faults.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use brunt_core::Clock;
use brunt_lab::link::Settings;
use brunt_lab::{Carrier, Host, Lab, LinkConfig};

/// Longer than anything here takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// After this time, packets that should be lost would have arrived.
pub const LOST: Duration = Duration::from_millis(300);

/// Whether the system supports links.
pub fn is_possible() -> bool {
    let possible = std::path::Path::new("/dev/net/tun").exists();
    if !possible {
        assert!(
            std::env::var("BRUNT_REQUIRE_ALL").is_err(),
            "needs /dev/net/tun"
        );
        println!("skipped: needs /dev/net/tun");
    }
    possible
}

pub fn lab(settings: [Settings; 2], mtu: u32, carrier: Carrier) -> (Lab, Host, Host) {
    let mut lab = Lab::new(["a", "b"], Clock::default()).unwrap();
    let between = ["a".to_string(), "b".to_string()];
    lab.add_link(&LinkConfig {
        name: "wire".into(),
        between,
        settings,
        mtu,
        seed: 7,
        carrier,
    })
    .unwrap();
    let (a, b) = (
        lab.host("a").unwrap().clone(),
        lab.host("b").unwrap().clone(),
    );
    (lab, a, b)
}

pub fn of(text: &str) -> Settings {
    let settings: Settings = toml::from_str(text).unwrap();
    settings.check().unwrap();
    settings
}

/// Waits for a condition; returns whether it became true.
pub fn becomes_true(holds: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !holds() {
        if begin.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Two connected UDP sockets.
pub fn pair(a: &Host, b: &Host) -> (UdpSocket, UdpSocket) {
    let [first, second] = [a, b].map(|host| {
        let socket = host.run(|| UdpSocket::bind((host.address(), 0))).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    });
    let addresses: [SocketAddr; 2] = [first.local_addr().unwrap(), second.local_addr().unwrap()];
    first.connect(addresses[1]).unwrap();
    second.connect(addresses[0]).unwrap();
    (first, second)
}

/// Whether a packet sent between these two sockets arrives. If `expected`, it may take any time.
pub fn arrives(from: &UdpSocket, to: &UdpSocket, expected: bool) -> bool {
    let wait = if expected { PATIENCE } else { LOST };
    to.set_read_timeout(Some(wait)).unwrap();
    from.send(b"probe").unwrap();
    to.recv(&mut [0; 16]).is_ok()
}

/// An open connection between two hosts: the first host's end, then the second's.
pub fn connection(a: &Host, b: &Host) -> (TcpStream, TcpStream) {
    let listener = b.run(|| TcpListener::bind((b.address(), 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let near = a
        .run(|| TcpStream::connect_timeout(&address, PATIENCE))
        .unwrap();
    let (far, _) = listener.accept().unwrap();
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (near, far)
}

pub fn config(name: &str, first: &str, second: &str, settings: &str) -> LinkConfig {
    LinkConfig {
        name: name.into(),
        between: [first.into(), second.into()],
        settings: [of(settings), of(settings)],
        mtu: 1500,
        seed: 7,
        carrier: Carrier::Brunt,
    }
}

/// A host's counter with this name in /proc/net/snmp or netstat.
pub fn counted(host: &Host, file: &str, name: &str) -> u64 {
    let text = host
        .run(|| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")))
        .unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut named = lines
        .chunks_exact(2)
        .flat_map(|pair| pair[0].split_whitespace().zip(pair[1].split_whitespace()));
    named
        .find(|(key, _)| *key == name)
        .map_or(0, |(_, value)| value.parse().unwrap())
}

/// Sends `bytes` of a pattern over TCP and checks that all of them arrive at the other end.
pub fn transfer(from: &Host, to: &Host, bytes: usize) {
    let listener = to.run(|| TcpListener::bind((to.address(), 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let pattern: Vec<u8> = (0..251u8).cycle().take(251 * 512).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut socket = from
                .run(|| TcpStream::connect_timeout(&address, PATIENCE))
                .unwrap();
            socket.set_write_timeout(Some(PATIENCE)).unwrap();
            let mut left = bytes;
            while left > 0 {
                let count = left.min(pattern.len());
                socket.write_all(&pattern[..count]).unwrap();
                left -= count;
            }
        });
        let (mut socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = vec![0; 1 << 20];
        let mut got = 0;
        loop {
            let count = socket.read(&mut buffer).unwrap();
            if count == 0 {
                break;
            }
            check(&buffer[..count], got, &pattern);
            got += count;
        }
        assert_eq!(got, bytes);
    });
}

/// Compares whole slices: comparing bytes would make the receiver the slowest part.
fn check(mut bytes: &[u8], at: usize, pattern: &[u8]) {
    let mut place = at % pattern.len();
    while !bytes.is_empty() {
        let count = bytes.len().min(pattern.len() - place);
        assert!(
            bytes[..count] == pattern[place..place + count],
            "behind byte {at}"
        );
        bytes = &bytes[count..];
        place = 0;
    }
}
