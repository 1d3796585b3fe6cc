//! `brunt agent init`: creates the certificates with which a controller and its agents authenticate each other.

use std::path::PathBuf;

use brunt_host::Authority;
use serde_json::json;

use crate::cli::{Done, Failure, Output};

/// Make the certificates by which agents and their controller know each other
///
/// Makes an authority in the folder, the controller's identity, and one for each host, which is its DNS name or IP
/// address as controllers will write it. What is there already is kept. Copy agent-HOST.pem to its host; keep authority.pem, which can
/// make more, and controller.pem here.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # one file for each of two hosts, and the controller's\n  brunt agent init certificates node7 node8\n\n  # another host of the same authority\n  brunt agent init certificates 10.0.0.9"
)]
pub struct InitArgs {
    /// Folder for the files; made if it is missing
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// DNS name or IP address of a host that an agent will run on
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<String>,
}

/// Creates the certificates and prints their files.
pub fn run(args: &InitArgs, output: &Output) -> Done {
    let failure = |error| Failure::failed(format!("{error}"));
    let authority = Authority::in_folder(&args.folder).map_err(failure)?;
    let controller = authority.controller().map_err(failure)?;
    output.line(format_args!(
        "{}: the controller's; name it with --identity",
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
