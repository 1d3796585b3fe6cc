//! `brunt lab list`: lists the running labs.

use std::time::{Duration, SystemTime};

use brunt_core::units::format_duration;
use serde_json::json;

use super::super::registry::{Registry, State};
use super::server::{Answer, Description, Request};
use crate::cli::{Done, Output};

/// A lab that takes longer to answer is starting or stopping.
const PATIENCE: Duration = Duration::from_secs(2);

/// List running labs
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # names, hosts, links and targets\n  brunt lab list \n\n  # for scripts\n  brunt lab list --json"
)]
pub struct ListArgs {}

/// Asks each lab for its description.
pub fn run(_: &ListArgs, output: &Output) -> Done {
    let registry = Registry::labs()?;
    let mut labs = Vec::new();
    for state in registry.all()? {
        let description = match registry.ask(&state.name, &Request::Describe, PATIENCE) {
            Ok((Answer::Description(description), _)) => Some(description),
            _ => None,
        };
        print(&state, description.as_ref(), output);
        labs.push(json!({ "lab": state, "description": description }));
    }
    if labs.is_empty() {
        output.line("no running lab");
    }
    output.object(&json!({ "labs": labs }));
    Ok(())
}

fn print(state: &State, description: Option<&Description>, output: &Output) {
    let age = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH + Duration::from_secs(state.since_s));
    let age = format_duration(Duration::from_secs(
        age.unwrap_or_default().as_secs().max(1),
    ));
    let State {
        name, file, pid, ..
    } = state;
    let file = file.as_deref().map(|file| format!(", {}", file.display()));
    let file = file.unwrap_or_default();
    output.line(format_args!("{name}: up for {age}, process {pid}{file}"));
    let Some(description) = description else {
        output.line("  does not answer: it is starting or stopping");
        return;
    };
    let hosts: Vec<String> = description
        .hosts
        .iter()
        .map(|host| format!("{} {}", host.name, host.address))
        .collect();
    output.line(format_args!("  hosts: {}", hosts.join(", ")));
    let link = |link: &super::server::LinkDescription| {
        format!("{} ({} - {})", link.name, link.between[0], link.between[1])
    };
    let links: Vec<String> = description.links.iter().map(link).collect();
    output.line(format_args!(
        "  links: {}",
        if links.is_empty() {
            "none".to_string()
        } else {
            links.join(", ")
        }
    ));
    for (variable, url) in &description.targets {
        output.line(format_args!("  {variable}={url}"));
    }
    if description.older_changes > 0 {
        output.line(format_args!(
            "  {} older changes, not listed",
            description.older_changes
        ));
    }
    for change in &description.changes {
        output.line(format_args!("  changed: {}", change.described()));
    }
    for trouble in &description.trouble {
        output.line(format_args!("  {trouble}"));
    }
}
