//! `brunt sink`: serves the remote end of the `tcp` device, or NFS without data, until Ctrl-C or SIGTERM.

use std::time::Duration;

use brunt_block::backends::tcp;
use brunt_block::reception::ReceptionListener;
use brunt_block::sink::SinkConfig;
use brunt_block::socket::SocketOptions;
use brunt_core::units::format_size;
use brunt_nfs::server::{self, DISK, EXPORT};
use serde_json::json;

use super::engine::EngineFlag;
use super::role::Role;
use super::sockets::Sockets;
use super::target::address;
use crate::cli::{Done, Failure, Output};

/// Default ports.
const TCP_PORTAL: &str = "127.0.0.1:5260";
const NFS_PORTAL: &str = "127.0.0.1:2049";
const NFS_PORT: u16 = 2049;
/// How often to check whether the command should stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Serve the tcp device, or NFS: discard writes and answer reads with zeros
///
/// Prints its address, serves until Ctrl-C or SIGTERM, then prints its counters. With tcp://ADDRESS as the device on
/// the other host, this measures the network alone, with transfers the size of block requests. With --nfs, it
/// measures NFS clients: names and attributes are kept in memory, but data is not.
#[derive(clap::Args)]
pub struct Sink {
    /// Address to listen on; port 0 picks a free port [default: 127.0.0.1:5260, or port 2049 with --nfs]
    #[arg(long, value_name = "ADDRESS:PORT")]
    portal: Option<String>,

    /// Serve NFSv3 (with MOUNT and the port mapper on the same port) instead of the tcp device: the export /export
    /// contains the file disk of 1 GiB. The second line of output is the URL of that file
    #[arg(long)]
    nfs: bool,

    #[command(flatten)]
    sockets: Sockets,

    #[command(flatten)]
    engine: EngineFlag,

    #[command(flatten)]
    role: Role,

    /// Keep Nagle's algorithm enabled (do not set TCP_NODELAY).
    #[arg(long)]
    delay: bool,

    /// Maximum number of concurrent connections.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    max_connections: u16,
}

impl super::Subcommand for Sink {
    const NAME: &'static str = "sink";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt sink --portal 127.0.0.1:0",
            "listen on a free port (first line of output); then: brunt io read tcp://127.0.0.1:PORT --bs 64k",
        ),
        (
            "brunt sink --portal 0.0.0.0:5260 --receive-buffer 4MiB",
            "accept connections from other hosts",
        ),
        (
            "brunt sink --nfs",
            "an NFS server without data; then: brunt io read 'nfs://127.0.0.1/export/disk?port=2049&mountport=2049'",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        self.role.bind()?;
        self.engine.state()?;
        let (usual, port) = match self.nfs {
            true => (NFS_PORTAL, NFS_PORT),
            false => (TCP_PORTAL, tcp::PORT),
        };
        let portal = address(self.portal.as_deref().unwrap_or(usual), port)
            .map_err(|failure| failure.prefixed("--portal "))?;
        let listener = {
            let output = output.clone();
            ReceptionListener::new(move |what| output.note(what))
        };
        let sockets = SocketOptions {
            no_delay: !self.delay,
            ..self.sockets.options()
        };
        let config = SinkConfig {
            portal,
            sockets,
            connections_max: usize::from(self.max_connections),
            listener,
        };
        let started = match self.nfs {
            true => server::start(config),
            false => tcp::start_sink(config),
        };
        let sink = started.map_err(|error| {
            Failure::failed(format!("cannot listen on {portal}: {error}"))
                .advise("choose another --portal; port 0 picks a free one")
        })?;
        output.line(sink.address());
        if self.nfs {
            let (address, port) = (sink.address(), sink.address().port());
            output.line(format_args!(
                "nfs://{address}{EXPORT}/{DISK}?mountport={port}"
            ));
        }
        if output.is_json() {
            // With --json, standard output carries only the final object, so the address goes to standard error.
            output.note(format!("listening on {}", sink.address()));
        }
        while !output.is_interrupted() {
            std::thread::sleep(POLL_INTERVAL);
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
