//! `brunt lab set`: changes a link of a running lab while packets are in flight.
//!
//! The rule: a change is recorded with the time at which it took effect; 'brunt lab list' and 'brunt lab down' show
//! all changes.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use brunt_lab::LabError;
use brunt_lab::link::Settings;
use brunt_study::host::HostName;
use brunt_study::lab::{BuiltLab, directions};
use serde_json::json;

use super::super::link_changes::{
    LinkChangeLog, LinkChangeRequest, LinkChanged, UnchangedSettings,
};
use super::super::registry::Registry;
use super::server::{Answer, Request};
use crate::cli::{Done, Failure, Output};

/// A lab that is still being built answers only once it is up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Change a link of a running lab
///
/// The settings are those of [lab.links.NAME] in the experiment's file: delay, jitter, loss, rate, corrupt and others
/// (docs/experiments.md); settings that are not given stay as they are. The change applies to packets that enter the
/// link after it. 'brunt lab list' and 'brunt lab down' show all changes with their times.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # 50 ms each way, and 1 % packet loss\n  brunt lab set wan delay=50ms \
     loss=1%\n\n  # with several labs: only packets that the server sends\n  brunt lab set far wan rate=10Mb/s \
     --from server\n\n  # return to the file's settings\n  brunt lab set wan --restore"
)]
pub struct SetArgs {
    /// Name of the link, preceded by the lab's name if several labs are running, then settings
    #[arg(required = true, value_names = ["LAB", "LINK", "KEY=VALUE"], num_args = 1..)]
    words: Vec<String>,
    /// Only packets that this host sends over the link [default: both directions]
    #[arg(long, value_name = "HOST")]
    from: Option<String>,
    /// Return to the settings that the link had when the lab was started
    #[arg(long)]
    restore: bool,
}

/// Why a link was not changed.
#[derive(Debug, thiserror::Error)]
enum NotChanged {
    #[error("unknown link '{link}'; the lab's links are {known}")]
    Unknown { link: String, known: String },
    #[error("link {link} does not end at '{from}'; it connects {one} and {other}")]
    OtherHost {
        link: String,
        from: HostName,
        one: HostName,
        other: HostName,
    },
    #[error(transparent)]
    Settings(#[from] UnchangedSettings),
    #[error(transparent)]
    Lab(#[from] LabError),
}

/// Asks the lab to change the link.
pub fn run(args: SetArgs, output: &Output) -> Done {
    let (names, request) = LinkChangeRequest::parse(args.words, args.from, args.restore)?;
    let (lab, link) = match names.as_slice() {
        [lab, link] => (Some(lab.as_str()), link.clone()),
        [link] => (None, link.clone()),
        _ => {
            let what = "name one link, and settings such as delay=50ms";
            return Err(Failure::usage(what).advise("see 'brunt lab set --help'"));
        }
    };
    let request = LinkChangeRequest { link, ..request };
    let registry = Registry::labs()?;
    let state = registry.find(lab)?;
    let answer: (Answer, _) = registry
        .ask(&state.name, &Request::Set(request), PATIENCE)
        .map_err(|error| Failure::failed(format!("lab {} does not answer: {error}", state.name)))?;
    match answer.0 {
        Answer::Changed(change) => {
            output.line(format_args!("lab {}: {}", state.name, change.described()));
            output.object(&json!({ "lab": state.name, "changed": change }));
            Ok(())
        }
        Answer::Refused { what } => Err(Failure::usage(format!("lab {}: {what}", state.name))),
        _ => Err(Failure::failed(format!(
            "unexpected reply from lab {}",
            state.name
        ))),
    }
}

/// The links of a lab as they were at its start, and all changes since then.
pub struct LinkChanges {
    at_start: BTreeMap<String, [Settings; 2]>,
    pub log: LinkChangeLog,
}

impl LinkChanges {
    /// Starts with the current settings and no changes.
    ///
    /// # Errors
    /// A link's settings are unknown.
    pub fn new(lab: &BuiltLab) -> Result<LinkChanges, LabError> {
        let names: Vec<String> = lab.links().map(String::from).collect();
        let links = names.into_iter().map(|name| {
            let settings = lab.lab().settings(&name)?;
            Ok((name, settings))
        });
        Ok(LinkChanges {
            at_start: links.collect::<Result<_, LabError>>()?,
            log: LinkChangeLog::default(),
        })
    }

    /// Handles a request and returns the answer.
    pub fn answer(&mut self, request: &LinkChangeRequest, lab: &BuiltLab) -> Answer {
        match self.change(request, lab) {
            Ok(change) => {
                self.log.push(change.clone());
                Answer::Changed(change)
            }
            Err(error) => Answer::Refused {
                what: error.to_string(),
            },
        }
    }

    fn change(
        &self,
        request: &LinkChangeRequest,
        lab: &BuiltLab,
    ) -> Result<LinkChanged, NotChanged> {
        let LinkChangeRequest { link, from, .. } = request;
        let from = from.as_deref().map(HostName::from);
        let (Some(between), Some(at_start)) = (lab.between(link), self.at_start.get(link)) else {
            let known: Vec<&str> = lab.links().collect();
            let (link, known) = (link.clone(), known.join(", "));
            return Err(NotChanged::Unknown { link, known });
        };
        let directions = directions(between, from.as_ref()).ok_or_else(|| {
            let [one, other] = between.clone();
            NotChanged::OtherHost {
                link: link.clone(),
                from: from.clone().unwrap_or_default(),
                one,
                other,
            }
        })?;
        let current = lab.lab().settings(link)?;
        let wanted = request.wanted(&current, at_start, directions)?;
        lab.lab().change(link, wanted)?;
        Ok(request.made(SystemTime::now()))
    }
}
