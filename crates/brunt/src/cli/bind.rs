//! Binds the sockets on which commands serve metrics, pages and the like.

use std::net::{SocketAddr, TcpListener};

use super::failure::Failure;

/// Listens at `address` to serve `what`, without accepting connections yet. Returns `None` if `address` is `None`.
///
/// # Errors
/// The address is in use or doesn't belong to this machine.
pub fn bind_for(what: &str, address: Option<SocketAddr>) -> Result<Option<TcpListener>, Failure> {
    let refused = |error, address| {
        Failure::failed(format!("cannot serve {what} at {address}: {error}"))
            .advise("choose another address, or port 0 for a free port")
    };
    address
        .map(|address| TcpListener::bind(address).map_err(|error| refused(error, address)))
        .transpose()
}
