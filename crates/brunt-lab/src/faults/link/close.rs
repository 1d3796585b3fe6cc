//! Closes a TCP connection between two hosts and measures the time until the other side notices.
//!
//! Called by [`super::check`]. The rule: timing starts before the FIN is sent, so a delayed FIN never appears faster
//! than its delay.

use std::io::{self, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::Host;

/// Measures how long a connection's FIN takes from one host to the other.
pub(super) fn time(from: &Host, to: &Host, patience: Duration) -> io::Result<Duration> {
    let listener = to.run(|| TcpListener::bind((to.address(), 0)))?;
    let address = listener.local_addr()?;
    let near = from.run(|| TcpStream::connect_timeout(&address, patience))?;
    let (mut far, _) = listener.accept()?;
    far.set_read_timeout(Some(patience))?;
    let begin = Instant::now();
    near.shutdown(Shutdown::Write)?;
    match far.read(&mut [0])? {
        0 => Ok(begin.elapsed()),
        _ => Err(io::Error::other(
            "received data on a connection on which none was sent",
        )),
    }
}
