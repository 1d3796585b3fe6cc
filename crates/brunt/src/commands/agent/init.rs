//! `brunt agent init`: creates the certificates with which a controller and its agents authenticate each other.

use std::path::PathBuf;

use brunt_host::Authority;
use serde_json::json;

use crate::cli::{Done, Failure, Output};

/// Create the certificates with which agents and their controller authenticate each other
///
/// Creates a certificate authority in the folder, an identity for the controller, and one per host, named by the DNS
/// name or IP address that controllers use for the host. Existing files are kept. Copy agent-HOST.pem to its host.
/// Keep authority.pem, which can sign further certificates, and controller.pem here.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # identities for two hosts and for the controller\n  brunt agent init \
     certificates node7 node8\n\n  # another host with the same certificate authority\n  brunt agent init \
     certificates 10.0.0.9"
)]
pub struct InitArgs {
    /// Folder for the files; created if missing
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// DNS name or IP address of a host that an agent will run on
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<String>,
}

/// Creates the certificates and prints the paths of their files.
pub fn run(args: &InitArgs, output: &Output) -> Done {
    let failure = |error| Failure::failed(format!("{error}"));
    let authority = Authority::in_folder(&args.folder).map_err(failure)?;
    let controller = authority.controller().map_err(failure)?;
    output.line(format_args!(
        "{}: for the controller; pass it with --identity",
        controller.display()
    ));
    let mut files = Vec::new();
    for host in &args.hosts {
        let file = authority.agent(host).map_err(failure)?;
        output.line(format_args!(
            "{}: copy it to {host} and run: brunt agent --listen 0.0.0.0:7420 --identity FILE",
            file.display()
        ));
        files.push(json!({ "host": host, "file": file }));
    }
    output.object(&json!({ "controller": controller, "agents": files }));
    Ok(())
}
