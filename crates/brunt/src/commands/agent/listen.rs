//! `brunt agent --listen`: an agent on a TCP port, for controllers with a certificate.

use brunt_host::{AgentListener, AgentTls, Identity};
use serde_json::json;

use super::ServeArgs;
use crate::cli::{Done, Failure, Output};
use crate::commands::target::address;

/// The agent port used in examples and manifests; not registered with IANA.
const PORT: u16 = 7420;

/// Serves until Ctrl-C or SIGTERM.
pub fn run(args: &ServeArgs, output: &Output) -> Done {
    let config = args.config()?;
    let (Some(listen), Some(identity)) = (&args.listen, &args.identity) else {
        return Err(Failure::usage("--listen needs --identity")
            .advise("create an identity with 'brunt agent init'"));
    };
    let at = address(listen, PORT).map_err(|failure| failure.prefixed("--listen "))?;
    let identity =
        Identity::read(identity).map_err(|error| Failure::usage(format!("--identity {error}")))?;
    let tls =
        AgentTls::new(&identity).map_err(|error| Failure::usage(format!("--identity {error}")))?;
    let listener = AgentListener::bind(at, tls, config).map_err(|error| {
        Failure::failed(format!("cannot listen on {at}: {error}"))
            .advise("choose another address; port 0 picks a free port")
    })?;
    output.line(listener.address());
    if output.is_json() {
        // With --json, standard output carries only the final object, so the address goes to standard error.
        output.note(format!("listening on {}", listener.address()));
    }
    let stats = listener.run(output.interrupt_flag(), |what| output.note(what));
    output.line(format_args!(
        "{} controller sessions; {} unauthenticated and {} excess connections refused",
        stats.controllers, stats.strangers, stats.refused
    ));
    output.object(&json!({
        "address": listener.address().to_string(),
        "controllers": stats.controllers,
        "strangers": stats.strangers,
        "refused": stats.refused,
    }));
    Ok(())
}
