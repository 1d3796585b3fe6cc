//! Socket settings shared by the commands that serve connections.

use brunt_block::Congestion;
use brunt_block::socket::SocketOptions;
use brunt_core::units::parse_size;

/// Options for the sockets of a server's connections.
#[derive(clap::Args)]
pub struct Sockets {
    /// Socket send buffer of each connection [default: chosen by the kernel].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub send_buffer: Option<u64>,

    /// Socket receive buffer of each connection [default: chosen by the kernel].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub receive_buffer: Option<u64>,

    /// TCP congestion control of each connection, such as cubic [default: chosen by the kernel].
    #[arg(long, value_name = "NAME", value_parser = Congestion::usable)]
    pub congestion: Option<Congestion>,
}

impl Sockets {
    /// The options as given, with TCP_NODELAY set.
    pub fn options(&self) -> SocketOptions {
        SocketOptions {
            send_buffer_bytes: self.send_buffer.map(|bytes| bytes as usize),
            receive_buffer_bytes: self.receive_buffer.map(|bytes| bytes as usize),
            congestion: self.congestion,
            ..SocketOptions::default()
        }
    }
}
