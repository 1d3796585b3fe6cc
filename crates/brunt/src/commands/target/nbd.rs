//! The NBD side of `brunt target`: exports its LUNs to NBD clients. Starts and ends with the target. The rule: an
//! export uses the same backend as its LUN, so both sides see the same data; SCSI state above the backend
//! (reservations, access states) does not apply to NBD.

use std::path::PathBuf;
use std::sync::Arc;

use brunt_block::reception::{ListeningSocket, ReceptionListener};
use brunt_core::units::format_size;
use brunt_store::nbd::server::tls::NbdServerTls;
use brunt_store::nbd::server::{NbdMemoryLimits, NbdServed, NbdServer, NbdServerStats};
use serde_json::{Value, json};

use super::build;
use super::live::Live;
use crate::cli::{Failure, Output};

/// The port that IANA assigned to NBD.
const PORT: u16 = 10809;

/// Whether NBD clients must use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum NbdTlsMode {
    /// Clients without TLS are rejected.
    Require,
    /// Clients without TLS are served too.
    On,
}

/// The NBD flags of `brunt target`.
#[derive(Debug, clap::Args)]
pub struct NbdFlags {
    /// Also serve the LUNs over NBD, at this address (port 0 picks a free port) or Unix socket: export 0 is LUN 0 and
    /// the default. Without --nbd-tls, anyone who can connect may read and write.
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH")]
    nbd: Option<String>,

    /// Serve NBD over TLS 1.3, with server-cert.pem and server-key.pem from this folder (laid out as for nbdkit and
    /// QEMU).
    #[arg(long, value_name = "FOLDER", requires = "nbd")]
    nbd_tls: Option<PathBuf>,

    /// With --nbd-tls: reject NBD clients without TLS (require), or serve them too (on).
    #[arg(
        long,
        value_enum,
        default_value = "require",
        value_name = "MODE",
        requires = "nbd_tls"
    )]
    nbd_tls_mode: NbdTlsMode,

    /// With --nbd-tls: reject TLS clients that do not present a certificate signed by an authority in the folder's
    /// ca-cert.pem.
    #[arg(long, requires = "nbd_tls")]
    nbd_tls_verify_peer: bool,
}

/// The listening socket for NBD clients, its URL, and its encryption.
pub struct NbdListener {
    socket: ListeningSocket,
    url: String,
    tls: Option<NbdServerTls>,
}

impl NbdFlags {
    /// Reads the certificates and listens on the address of `--nbd`.
    ///
    /// # Errors
    /// A certificate is unusable, or the address is invalid or in use.
    pub fn listen(&self) -> Result<Option<NbdListener>, Failure> {
        let Some(text) = &self.nbd else {
            return Ok(None);
        };
        let required = self.nbd_tls_mode == NbdTlsMode::Require;
        let read =
            |folder: &PathBuf| NbdServerTls::read(folder, required, self.nbd_tls_verify_peer);
        let tls = self.nbd_tls.as_ref().map(read).transpose().map_err(|error| {
            Failure::failed(format!("--nbd-tls: {error}")).advise(
                "name a folder with server-cert.pem and server-key.pem, and ca-cert.pem for --nbd-tls-verify-peer",
            )
        })?;
        let mut listener = listen(text)?;
        if required && tls.is_some() {
            listener.url = listener.url.replacen("nbd", "nbds", 1);
        }
        Ok(Some(NbdListener { tls, ..listener }))
    }
}

/// Listens at the address given with `--nbd`, or at `unix:PATH`.
///
/// # Errors
/// The address is invalid or in use.
fn listen(text: &str) -> Result<NbdListener, Failure> {
    let failed = |error: std::io::Error, advice: &str| {
        Failure::failed(format!("--nbd: cannot listen on {text}: {error}")).advise(advice)
    };
    if let Some(path) = text.strip_prefix("unix:") {
        let advice = "name a path that does not exist, in a folder that does";
        let socket =
            ListeningSocket::unix(PathBuf::from(path)).map_err(|error| failed(error, advice))?;
        return Ok(NbdListener {
            socket,
            url: format!("nbd+unix:///?socket={path}"),
            tls: None,
        });
    }
    let advice = "write ADDRESS:PORT, such as 127.0.0.1:10809 or [::1]:0, or unix:PATH";
    let address =
        build::address(text, PORT).map_err(|failure| failure.prefixed("--nbd ").advise(advice))?;
    let advice = "choose another address; port 0 picks a free one";
    let socket = ListeningSocket::tcp(address).map_err(|error| failed(error, advice))?;
    let bound = socket.address().ok().flatten().unwrap_or(address);
    Ok(NbdListener {
        socket,
        url: format!("nbd://{bound}/"),
        tls: None,
    })
}

/// Serves all LUNs of a target, including those added later, and prints the URL.
///
/// # Errors
/// The server cannot be started.
pub fn serve(
    listener: NbdListener,
    live: &Arc<Live>,
    output: &Output,
) -> Result<NbdServer, Failure> {
    let catalog = Arc::clone(live);
    let heard = output.clone();
    let server = NbdServer::start(
        listener.socket,
        Arc::new(move || exports(&catalog)),
        listener.tls,
        brunt_block::socket::SocketOptions::default(),
        NbdMemoryLimits::default(),
        ReceptionListener::new(move |what| heard.note(format_args!("NBD {what}"))),
    )
    .map_err(|error| Failure::failed(format!("--nbd: {error}")))?;
    match output.is_json() {
        true => output.note(format!("listening on {}", listener.url)),
        false => output.line(&listener.url),
    }
    Ok(server)
}

/// The current LUNs, named by number, or by target and number if there are several targets.
fn exports(live: &Live) -> Vec<NbdServed> {
    let targets = live.server.targets();
    let mut exports = Vec::new();
    for target in &targets {
        for (lun, unit) in target.luns.units() {
            let name = match targets.len() {
                1 => lun.to_string(),
                _ => format!("{}/{lun}", target.name),
            };
            exports.push(NbdServed {
                name,
                description: format!(
                    "LUN {lun} of {}: {}",
                    target.name,
                    unit.backend().info().name
                ),
                backend: Arc::clone(unit.backend()),
                read_only: unit.options().read_only,
            });
        }
    }
    exports
}

/// The statistics as a line and as an object.
pub fn summary(stats: &NbdServerStats) -> (String, Value) {
    let line = format!(
        "NBD: {} connections, {} requests, {} read, {} written; {} errors, {} refused and {} broken connections, {} of them stuck",
        stats.connections,
        stats.requests,
        format_size(stats.sent_bytes),
        format_size(stats.received_bytes),
        stats.errors,
        stats.refused,
        stats.broken,
        stats.stuck,
    );
    let object = json!({
        "connections": stats.connections,
        "requests": stats.requests,
        "errors": stats.errors,
        "data_in_bytes": stats.sent_bytes,
        "data_out_bytes": stats.received_bytes,
        "refused_connections": stats.refused,
        "broken_connections": stats.broken,
        "stuck_connections": stats.stuck,
    });
    (line, object)
}
