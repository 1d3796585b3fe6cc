//! The sockets of what a command serves.

use std::net::{SocketAddr, TcpListener};

use super::failure::Failure;

/// Listens where `what` is to be served; nobody is answered yet. `None` where nobody asked for it.
///
/// # Errors
/// The address is taken or not this machine's.
pub fn bind_for(what: &str, address: Option<SocketAddr>) -> Result<Option<TcpListener>, Failure> {
    let refused = |error, address| {
        Failure::failed(format!("cannot serve {what} at {address}: {error}"))
            .advise("write another address, or port 0 for a free one")
    };
    address
        .map(|address| TcpListener::bind(address).map_err(|error| refused(error, address)))
        .transpose()
}
