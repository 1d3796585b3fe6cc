//! Builds an experiment's lab with its targets, for a single command or for a lab that keeps running, and later
//! removes it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::Span;
use brunt_study::experiment::{Experiment, LabEntry};
use brunt_study::host::Hosts;
use brunt_study::lab::BuiltLab;
use brunt_study::role::{Role, RoleError};
use brunt_study::service::Services;
use brunt_study::startup::{Ground, serve, start_services};
use serde_json::json;

use super::super::experiment_file::read;
use crate::cli::{Done, Failure, Output};
use crate::lab;

/// Environment variables for a command.
pub type Variables = BTreeMap<String, String>;

/// An experiment that has a lab.
pub struct Plan {
    pub experiment: Experiment,
    pub hosts: Hosts,
}

impl Plan {
    pub fn read(file: &Path) -> Result<Plan, Failure> {
        let (experiment, _) = read(file)?;
        if experiment.lab.is_none() {
            let what = format!("{}: no [lab] section", file.display());
            return Err(Failure::usage(what).advise(
                "add a [lab] section, for example: [lab] hosts = [\"client\", \"server\"]",
            ));
        }
        let hosts = experiment.hosts().map_err(Failure::usage)?;
        Ok(Plan { experiment, hosts })
    }

    pub fn entry(&self) -> &LabEntry {
        self.experiment.lab.as_ref().expect("read() refuses others")
    }

    /// Builds everything. Afterwards, the calling thread is in the new namespaces, on the workers' host.
    pub fn build(&self, delay: Option<Duration>, output: &Output) -> Result<Built, Failure> {
        let (lab, scratch) = lab::enter(&self.experiment, self.entry(), &self.hosts)?;
        if let Some(delay) = delay {
            self.move_apart(&lab, delay)?;
        }
        let (mut roles, mut variables) = (Vec::new(), Variables::new());
        let ground = Ground::without_results(&self.hosts, Some(&lab), scratch);
        let interrupted = output.interrupt_flag();
        let services = start_services(&self.experiment, ground, None, interrupted)?;
        for name in self.experiment.targets.keys() {
            let (url, role) = serve(&self.experiment, name, &self.hosts, Some(&lab), None)?;
            roles.extend(role);
            let filled = |url: &str| {
                services
                    .as_ref()
                    .map_or(url.to_string(), |services| services.filled(url))
            };
            for (host, target) in self.experiment.as_opened(name) {
                match host {
                    None => variables.insert(variable(name), filled(&url)),
                    Some(host) => {
                        variables.insert(variable(&format!("{name}-{host}")), filled(&target.url))
                    }
                };
            }
        }
        roles.extend(services.iter().flat_map(Services::roles));
        Ok(Built {
            lab,
            roles,
            variables,
            _services: services,
        })
    }

    /// Sets the delay of every link, in each direction.
    fn move_apart(&self, lab: &BuiltLab, delay: Duration) -> Result<(), Failure> {
        let points = self.experiment.points();
        let links = points
            .first()
            .map(|point| point.links.clone())
            .unwrap_or_default();
        // Links outside the lab are left unchanged.
        let links = links.into_iter();
        for (name, mut settings) in links.filter(|(name, _)| lab.between(name).is_some()) {
            settings.iter_mut().for_each(|way| way.delay = Span(delay));
            lab.lab()
                .restart(&name, settings, self.experiment.seed)
                .map_err(Failure::usage)?;
        }
        Ok(())
    }
}

/// A running lab, its targets, and the variables with the targets' URLs.
pub struct Built {
    pub lab: BuiltLab,
    pub roles: Vec<Arc<dyn Role>>,
    pub variables: Variables,
    /// The services, which stop when this is dropped together with the lab.
    _services: Option<Services>,
}

/// The outcome of a lab.
pub struct LabEnding {
    /// Targets that ended early, and why.
    pub died: Vec<RoleError>,
    /// Unintended losses and delays of links, as messages.
    pub trouble: Vec<String>,
    /// The report of each link.
    pub links: serde_json::Map<String, serde_json::Value>,
}

impl Built {
    /// Stops the targets and collects the links' reports.
    pub fn end(&self) -> Result<LabEnding, Failure> {
        let died = self
            .roles
            .iter()
            .filter_map(|role| role.stop().err())
            .collect();
        let reports = self.lab.lab().reports().map_err(Failure::failed)?;
        let of_link = |(link, report): &(String, brunt_result::link::LinkReport)| {
            report
                .trouble()
                .into_iter()
                .map(|what| format!("link {link}: {what}"))
                .collect::<Vec<_>>()
        };
        let trouble = reports.iter().flat_map(of_link).collect();
        let links = reports
            .into_iter()
            .map(|(link, report)| (link, json!(report)))
            .collect();
        Ok(LabEnding {
            died,
            trouble,
            links,
        })
    }
}

impl LabEnding {
    /// All unintended events, as messages.
    pub fn all_trouble(&self) -> Vec<String> {
        self.died
            .iter()
            .map(ToString::to_string)
            .chain(self.trouble.iter().cloned())
            .collect()
    }
}

/// The name of the environment variable for a target, `BRUNT_TARGET_…`.
fn variable(target: &str) -> String {
    let word = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    format!(
        "BRUNT_TARGET_{}",
        target.chars().map(word).collect::<String>()
    )
}

/// Exits with the command's exit status, in the way a shell does.
pub fn end_as(name: &str, status: std::process::ExitStatus) -> Done {
    match status.code() {
        Some(0) => Ok(()),
        // The caller expects the command's own exit status.
        Some(code) => std::process::exit(code),
        None => Err(Failure::failed(format!("{name}: {status}"))),
    }
}

#[cfg(test)]
mod tests {
    /// The names of the variables are valid in a shell.
    #[test]
    fn a_target_variable_is_a_valid_shell_name() {
        assert_eq!(
            super::variable("tried-again 2"),
            "BRUNT_TARGET_TRIED_AGAIN_2"
        );
    }
}
