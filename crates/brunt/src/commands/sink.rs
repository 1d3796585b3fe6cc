//! `brunt sink`: the other end of the `tcp` device, until it is told to stop.

use std::time::Duration;

use brunt_block::backends::tcp::{SinkConfig, SinkListener, TcpSink as Server};
use brunt_block::socket::SocketOptions;
use brunt_core::units::{format_size, parse_size};
use serde_json::json;

use super::role::Role;
use super::target::portals;
use crate::cli::{Done, Failure, Output};

/// How often the command looks whether it was told to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Answer the tcp device: throw away what is written, send zeros for what is read.
///
/// Prints its address on a line of its own, then serves until Ctrl-C or SIGTERM, and prints what it
/// did. With a device URL tcp://ADDRESS at the other end this measures the network alone, with
/// the transfer sizes of block requests.
#[derive(clap::Args)]
pub struct Sink {
    /// Where to listen; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5260")]
    portal: String,

    /// Size of each connection's send buffer; the kernel's choice otherwise.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    send_buffer: Option<u64>,

    /// Size of each connection's receive buffer; the kernel's choice otherwise.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    receive_buffer: Option<u64>,

    #[command(flatten)]
    role: Role,

    /// Let short messages wait for company (no TCP_NODELAY).
    #[arg(long)]
    delay: bool,

    /// Connections at once.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    max_connections: u16,
}

impl super::Subcommand for Sink {
    const NAME: &'static str = "sink";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt sink --portal 127.0.0.1:0",
            "On a free port, which is on the first line; then: brunt io read tcp://127.0.0.1:PORT --bs 64k",
        ),
        ("brunt sink --portal 0.0.0.0:5260 --receive-buffer 4MiB", "For another host"),
    ];

    fn run(self, output: &Output) -> Done {
        self.role.bind()?;
        let portal = portals(std::slice::from_ref(&self.portal))?[0];
        let listener = {
            let output = output.clone();
            SinkListener::new(move |what| output.note(what))
        };
        let sockets = SocketOptions {
            send_buffer_bytes: self.send_buffer.map(|bytes| bytes as usize),
            receive_buffer_bytes: self.receive_buffer.map(|bytes| bytes as usize),
            no_delay: !self.delay,
        };
        let config =
            SinkConfig { portal, sockets, connections_max: usize::from(self.max_connections), listener };
        let sink = Server::start(config).map_err(|error| {
            Failure::failed(format!("cannot listen on {portal}: {error}"))
                .advise("choose another --portal; port 0 picks a free one")
        })?;
        output.line(sink.address());
        if output.is_json() {
            // Standard output is for the one object at the end: the address goes beside it.
            output.note(format!("listening on {}", sink.address()));
        }
        while !output.is_interrupted() {
            std::thread::sleep(LOOK);
        }
        let address = sink.address().to_string();
        let stats = sink.shutdown();
        output.line(format_args!(
            "{} connections, {} requests, {} read, {} written; {} refused and {} broken connections",
            stats.connections,
            stats.requests,
            format_size(stats.sent_bytes),
            format_size(stats.received_bytes),
            stats.refused,
            stats.broken,
        ));
        output.object(&json!({
            "portals": [address],
            "connections": stats.connections,
            "requests": stats.requests,
            "data_in_bytes": stats.sent_bytes,
            "data_out_bytes": stats.received_bytes,
            "refused_connections": stats.refused,
            "broken_connections": stats.broken,
            "system_calls": stats.system_calls,
        }));
        Ok(())
    }
}
