//! The events that a viewer of a live page receives.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// The frames from now on, until the server ends them.
pub struct LiveEvents(BufReader<TcpStream>);

impl LiveEvents {
    /// Connects to the page at this address.
    pub fn of(address: &str) -> LiveEvents {
        let mut socket = TcpStream::connect(address).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        write!(socket, "GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("it reads");
        LiveEvents(BufReader::new(socket))
    }
}

impl Iterator for LiveEvents {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).expect("a line in time") == 0 {
                return None;
            }
            if let Some(text) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(text).expect("JSON"));
            }
        }
    }
}
