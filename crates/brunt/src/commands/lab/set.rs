//! `brunt lab set`: changes a link of a running lab while packets are in flight.
//!
//! The rule: a change is recorded with the time at which it took effect; 'brunt lab list' and 'brunt lab down' show all.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use brunt_lab::LabError;
use brunt_lab::link::Settings;
use brunt_study::experiment::{LinkOptionError, LinkOptions};
use brunt_study::host::HostName;
use brunt_study::lab::{BuiltLab, directions};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::registry::Registry;
use super::standing::{Answer, Request};
use crate::cli::{Done, Failure, Output};

/// A lab that is being built answers once it is up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of changes kept; older ones are counted.
const CHANGES_MAX: usize = 1000;

/// Change a link of a running lab
///
/// Settings are those of [lab.links.NAME] in the experiment's file: delay, jitter, loss, rate, corrupt and others
/// (docs/experiments.md); the others of the link stay as they are. The change applies to packets that enter the link
/// from then on. It is recorded with its time, which 'brunt lab list' and 'brunt lab down' show.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # 50 ms each way, and 1 % of packets lost\n  brunt lab set wan delay=50ms loss=1%\n\n  # only \
                  packets that the server sends, in one of several labs\n  brunt lab set far wan rate=10Mb/s --from server\n\n  \
                  # as in the file again\n  brunt lab set wan --restore"
)]
pub struct SetArgs {
    /// Name of the link, preceded by the lab's if several are running, then settings
    #[arg(required = true, value_names = ["LAB", "LINK", "KEY=VALUE"], num_args = 1..)]
    words: Vec<String>,
    /// Only packets that this host sends over the link [default: both directions]
    #[arg(long, value_name = "HOST")]
    from: Option<String>,
    /// Return to the settings that the link had when the lab was started
    #[arg(long)]
    restore: bool,
}

/// What is to be changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkChangeRequest {
    /// Name of the link.
    pub link: String,
    /// Only packets that this host sends.
    pub from: Option<HostName>,
    /// The settings to change, as on the command line.
    pub options: Vec<String>,
    /// Whether to return to the settings at the start first.
    pub restore: bool,
}

/// A change that was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkChanged {
    /// When it took effect, in seconds since 1970.
    pub at_s: f64,
    /// Name of the link.
    pub link: String,
    /// The host whose packets it affects; both directions without one.
    pub from: Option<HostName>,
    /// The settings that were changed, as on the command line; none after `restore` alone.
    pub options: Vec<String>,
    /// Whether the link first returned to its settings at the start.
    pub restored: bool,
}

/// Why a link was not changed.
#[derive(Debug, thiserror::Error)]
enum NotChanged {
    #[error("unknown link '{link}'; the lab's links are {known}")]
    Unknown { link: String, known: String },
    #[error("link {link} does not end at '{from}'; it is between {one} and {other}")]
    OtherHost {
        link: String,
        from: HostName,
        one: HostName,
        other: HostName,
    },
    #[error("link {0} already has these settings")]
    Same(String),
    #[error(transparent)]
    Option(#[from] LinkOptionError),
    #[error(transparent)]
    Lab(#[from] LabError),
}

/// Asks the lab to change the link.
pub fn run(args: SetArgs, output: &Output) -> Done {
    let (settings, names): (Vec<String>, Vec<String>) =
        args.words.into_iter().partition(|word| word.contains('='));
    let (lab, link) = match names.as_slice() {
        [lab, link] => (Some(lab.as_str()), link),
        [link] => (None, link),
        _ => {
            let what = "name one link, and settings such as delay=50ms";
            return Err(Failure::usage(what).advise("see 'brunt lab set --help'"));
        }
    };
    if settings.is_empty() && !args.restore {
        return Err(Failure::usage("no settings").advise("write delay=50ms, or --restore"));
    }
    let request = LinkChangeRequest {
        link: link.clone(),
        from: args.from.as_deref().map(HostName::from),
        options: settings.into_iter().map(absolute).collect(),
        restore: args.restore,
    };
    let registry = Registry::open()?;
    let state = registry.find(lab)?;
    let answer = registry
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

/// A relative path of a distribution's file, as this process resolves it.
fn absolute(option: String) -> String {
    let file = option.strip_prefix("distribution=").map(Path::new);
    match file.filter(|file| file.is_file()).map(std::path::absolute) {
        Some(Ok(path)) => format!("distribution={}", path.display()),
        _ => option,
    }
}

impl LinkChanged {
    /// In a line.
    pub fn described(&self) -> String {
        let LinkChanged {
            link,
            from,
            options,
            ..
        } = self;
        let from = from
            .as_ref()
            .map_or(String::new(), |host| format!(" from {host}"));
        let options = options.join(" ");
        let what = match (self.restored, options.as_str()) {
            (true, "") => "as at the start".to_string(),
            (true, options) => format!("as at the start, then {options}"),
            (false, _) => options,
        };
        format!("link {link}{from}: {what}, at {}", self.at())
    }

    /// The time of day in UTC, with milliseconds.
    fn at(&self) -> String {
        let millis = (self.at_s * 1e3).round() as u64;
        let (seconds, millis) = (millis / 1000 % 86_400, millis % 1000);
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        format!(
            "{hours:02}:{minutes:02}:{:02}.{millis:03} UTC",
            seconds % 60
        )
    }
}

/// The links of a lab as they were at its start, and all changes since.
pub struct LinkChanges {
    at_start: BTreeMap<String, [Settings; 2]>,
    pub made: Vec<LinkChanged>,
    /// Older changes than those in `made`.
    pub older: usize,
}

impl LinkChanges {
    /// None so far.
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
            made: Vec::new(),
            older: 0,
        })
    }

    /// The answer to a request.
    pub fn answer(&mut self, request: &LinkChangeRequest, lab: &BuiltLab) -> Answer {
        match self.change(request, lab) {
            Ok(change) => {
                if self.made.len() == CHANGES_MAX {
                    self.made.remove(0);
                    self.older += 1;
                }
                self.made.push(change.clone());
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
        let LinkChangeRequest {
            link,
            from,
            options,
            restore,
        } = request;
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
        let mut base = current.clone();
        if *restore {
            let both = base.iter_mut().zip(at_start).zip(directions);
            let meant = both.filter(|(_, is_meant)| *is_meant);
            meant.for_each(|((now, start), _)| now.clone_from(start));
        }
        let wanted = LinkOptions::over(options, &base, directions)?;
        if wanted == current {
            return Err(NotChanged::Same(link.clone()));
        }
        lab.lab().change(link, wanted)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Ok(LinkChanged {
            at_s: now.unwrap_or_default().as_secs_f64(),
            link: link.clone(),
            from: from.clone(),
            options: options.clone(),
            restored: *restore,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_its_time() {
        let change = LinkChanged {
            at_s: 86_400.0 * 365.0 + 3723.0045,
            link: "wan".into(),
            from: Some(HostName::from("server")),
            options: vec!["delay=50ms".into()],
            restored: true,
        };
        assert_eq!(
            change.described(),
            "link wan from server: as at the start, then delay=50ms, at 01:02:03.005 UTC"
        );
    }
}
