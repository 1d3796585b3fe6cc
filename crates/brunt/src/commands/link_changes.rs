//! Changes to a link's settings while packets are in flight: what `brunt lab set` and `brunt bridge set` send, and
//! the record of what was changed.
//!
//! The rule: a change is recorded with the time at which it took effect.

use std::path::Path;
use std::time::SystemTime;

use brunt_lab::link::Settings;
use brunt_study::experiment::{LinkOptionError, LinkOptions};
use serde::{Deserialize, Serialize};

use crate::cli::Failure;

/// Maximum number of changes kept; older ones are counted.
const CHANGES_MAX: usize = 1000;

/// A requested change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkChangeRequest {
    /// Name of the link.
    pub link: String,
    /// Limits the change to packets that this host sends, or that arrive at this interface of a bridge.
    pub from: Option<String>,
    /// The settings to change, as on the command line.
    pub options: Vec<String>,
    /// Whether to return to the initial settings first.
    pub restore: bool,
}

/// A change that was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkChanged {
    /// When it took effect, in seconds since 1970.
    pub at_s: f64,
    /// Name of the link.
    pub link: String,
    /// The host or interface whose packets are affected; `None` for both directions.
    pub from: Option<String>,
    /// The settings that were changed, as on the command line; none after `restore` alone.
    pub options: Vec<String>,
    /// Whether the link first returned to its initial settings.
    pub restored: bool,
}

/// Why settings cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum UnchangedSettings {
    /// The link already has the requested settings.
    #[error("link {0} already has these settings")]
    Same(String),
    /// An option is invalid.
    #[error(transparent)]
    Option(#[from] LinkOptionError),
}

impl LinkChangeRequest {
    /// Parses words of a command line: settings, and the names before them, which are also returned.
    ///
    /// # Errors
    /// No change is requested.
    pub fn parse(
        words: Vec<String>,
        from: Option<String>,
        restore: bool,
    ) -> Result<(Vec<String>, LinkChangeRequest), Failure> {
        let (options, names): (Vec<String>, Vec<String>) =
            words.into_iter().partition(|word| word.contains('='));
        if options.is_empty() && !restore {
            return Err(Failure::usage("no settings").advise("write delay=50ms, or --restore"));
        }
        let request = LinkChangeRequest {
            link: String::new(),
            from,
            options: options.into_iter().map(absolute).collect(),
            restore,
        };
        Ok((names, request))
    }

    /// The new settings of both directions, computed from the current and the initial ones.
    ///
    /// # Errors
    /// The settings are invalid, or the link already has them.
    pub fn wanted(
        &self,
        current: &[Settings; 2],
        at_start: &[Settings; 2],
        directions: [bool; 2],
    ) -> Result<[Settings; 2], UnchangedSettings> {
        let mut base = current.clone();
        if self.restore {
            let both = base.iter_mut().zip(at_start).zip(directions);
            let meant = both.filter(|(_, is_meant)| *is_meant);
            meant.for_each(|((now, start), _)| now.clone_from(start));
        }
        let wanted = LinkOptions::over(&self.options, &base, directions)?;
        match wanted == *current {
            true => Err(UnchangedSettings::Same(self.link.clone())),
            false => Ok(wanted),
        }
    }

    /// The record of this change, made at time `at`.
    pub fn made(&self, at: SystemTime) -> LinkChanged {
        let since = at.duration_since(SystemTime::UNIX_EPOCH);
        LinkChanged {
            at_s: since.unwrap_or_default().as_secs_f64(),
            link: self.link.clone(),
            from: self.from.clone(),
            options: self.options.clone(),
            restored: self.restore,
        }
    }
}

/// Makes the relative path of a distribution's file absolute: another process, in another folder, will open it.
fn absolute(option: String) -> String {
    let file = option.strip_prefix("distribution=").map(Path::new);
    match file.filter(|file| file.is_file()).map(std::path::absolute) {
        Some(Ok(path)) => format!("distribution={}", path.display()),
        _ => option,
    }
}

impl LinkChanged {
    /// The change as one line of text.
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

/// All changes to links since the start.
#[derive(Clone, Debug, Default)]
pub struct LinkChangeLog {
    /// The latest changes, in chronological order.
    pub made: Vec<LinkChanged>,
    /// Number of older changes that are not in `made`.
    pub older: usize,
}

impl LinkChangeLog {
    /// Adds a change.
    pub fn push(&mut self, change: LinkChanged) {
        if self.made.len() == CHANGES_MAX {
            self.made.remove(0);
            self.older += 1;
        }
        self.made.push(change);
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
            from: Some("server".into()),
            options: vec!["delay=50ms".into()],
            restored: true,
        };
        assert_eq!(
            change.described(),
            "link wan from server: as at the start, then delay=50ms, at 01:02:03.005 UTC"
        );
    }
}
