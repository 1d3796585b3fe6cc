//! Finds out whether another process is ready, from its sockets in `/proc`: which address it listens on, and whether
//! it captures packets. Measurements start programs and wait for them this way, because the wording of the programs'
//! messages may change.
//!
//! The rule: a TCP or packet socket counts only if the process itself has it open.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::Child;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::BenchError;

/// Maximum time for a program to get ready.
const PATIENCE: Duration = Duration::from_secs(30);
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Reads everything that a program prints, in a thread, so that the program never waits for a full pipe.
pub fn drained(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text)
            .map(|_| text)
            .unwrap_or_default()
    })
}

/// Adds what a program printed before it ended to an error.
pub fn with_printed(error: &BenchError, printed: JoinHandle<String>) -> BenchError {
    let printed = printed.join().unwrap_or_default();
    BenchError::failed(format!("{error}: {}", printed.trim()))
}

/// Waits until `look`, called with a process's PID, finds that the process is ready.
///
/// # Errors
/// The process ended before it was ready, or takes too long to get ready.
pub fn wait_for<T>(
    child: &mut Child,
    what: &str,
    look: impl Fn(u32) -> Option<T>,
) -> Result<T, BenchError> {
    let begin = Instant::now();
    loop {
        if let Some(found) = look(child.id()) {
            return Ok(found);
        }
        if let Some(status) = child.try_wait().map_err(BenchError::failed)? {
            return Err(BenchError::failed(format!("{what} ended early: {status}")));
        }
        if begin.elapsed() > PATIENCE {
            return Err(BenchError::failed(format!(
                "{what} isn't ready after {PATIENCE:?}"
            )));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The address of an IPv4 socket on which a process accepts connections.
pub fn listens_on(pid: u32) -> Option<SocketAddrV4> {
    let own = inodes(pid);
    let text = fs::read_to_string(format!("/proc/{pid}/net/tcp")).ok()?;
    let mut listening = text.lines().skip(1).filter_map(listening);
    listening.find_map(|(address, inode)| own.contains(&inode).then_some(address))
}

/// Waits until a server listens on a path.
///
/// # Errors
/// The process ended before it was listening, or takes too long to get ready.
pub fn wait_for_path(child: &mut Child, what: &str, socket: &Path) -> Result<(), BenchError> {
    wait_for(child, what, |_| is_path_listening(socket).then_some(()))
}

/// Whether a server listens on a path. The path exists slightly before the server listens on it. A trial connection
/// would make nbdkit print an error.
fn is_path_listening(socket: &Path) -> bool {
    // __SO_ACCEPTCON in the fourth column (proc(5)).
    let end = format!(" {}", socket.display());
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mut lines = sockets.lines();
    lines.any(|line| line.ends_with(&end) && line.split(' ').nth(3) == Some("00010000"))
}

/// Whether a process receives the packets of some interface. The interface itself isn't checked: in a private network
/// namespace, `/sys` shows other interfaces.
pub fn is_capturing(pid: u32) -> Option<()> {
    let own = inodes(pid);
    let text = fs::read_to_string(format!("/proc/{pid}/net/packet")).ok()?;
    let mut bound = text.lines().skip(1).filter_map(bound);
    bound
        .any(|(index, inode)| index != 0 && own.contains(&inode))
        .then_some(())
}

/// The inodes of a process's sockets.
fn inodes(pid: u32) -> BTreeSet<u64> {
    let files = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let inode = |file: fs::DirEntry| {
        let target = fs::read_link(file.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?;
        inode.strip_suffix(']')?.parse().ok()
    };
    files.flatten().filter_map(inode).collect()
}

/// Address and inode from a line of `/proc/net/tcp` (proc_net_tcp.rst), if the socket is listening.
fn listening(line: &str) -> Option<(SocketAddrV4, u64)> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    // The kernel reads the address, which is in network byte order, as a number of this machine and prints that.
    let address = u32::from_str_radix(address, 16).ok()?.to_ne_bytes();
    let port = u16::from_str_radix(port, 16).ok()?;
    let inode = fields.get(9)?.parse().ok()?;
    let address = SocketAddrV4::new(Ipv4Addr::from(address), port);
    (*fields.get(3)? == LISTEN).then_some((address, inode))
}

/// Interface index and inode from a line of `/proc/net/packet` (proc_net(5)), if the socket is bound and receives.
fn bound(line: &str) -> Option<(u32, u64)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (index, inode) = (fields.get(4)?.parse().ok()?, fields.get(8)?.parse().ok()?);
    (*fields.get(5)? == "1").then_some((index, inode))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn an_address_is_found_once_its_process_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let text = fs::read_to_string("/proc/self/net/tcp").unwrap();
        let mut all = text.lines().skip(1).filter_map(listening);
        let expected = listener.local_addr().unwrap().to_string();
        assert!(all.any(|(address, inode)| {
            address.to_string() == expected && inodes(std::process::id()).contains(&inode)
        }));
        // Another process's socket.
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(listens_on(child.id()), None);
        child.kill().unwrap();
        let found = wait_for(&mut child, "sleep", listens_on);
        assert!(found.unwrap_err().to_string().contains("sleep ended early"));
    }

    /// Neither a mere path nor a socket connected to it counts as listening.
    #[test]
    fn only_a_listening_socket_counts_as_listening() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(is_path_listening(&path));
        let _client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        drop(listener);
        // Processes that other tests start have a copy of the listener until they execute their program.
        let end = Instant::now() + Duration::from_secs(60);
        while is_path_listening(&path) {
            assert!(Instant::now() < end, "it still counts as listening");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(path.exists());
    }

    #[test]
    fn a_packet_socket_counts_once_it_is_bound() {
        let line = "ffff8f4a0a 3      3    0003   4     1 0      0      48151";
        assert_eq!(bound(line), Some((4, 48151)));
        assert_eq!(bound(&line.replace("4     1", "0     0")), None);
        assert_eq!(
            bound("sk RefCnt Type Proto  Iface R Rmem   User   Inode"),
            None
        );
    }
}
