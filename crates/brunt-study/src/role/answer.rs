//! One order to a role, and its answer, whatever carries the lines.
//!
//! The rule: whoever asks gives up after a time, but for the time that the role stands still because a fault says so.

use std::io;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use brunt_host::{FarRole, RoleLine};

use super::Role;
use crate::control::{self, Absence, Reply};

/// An order has to be answered in this time, also by a role whose machine has much else to do.
const ANSWER_TIME: Duration = Duration::from_secs(20);
/// How often somebody who waits for an answer looks whether the role stands still.
const FROZEN_LOOK: Duration = Duration::from_millis(10);

/// What carries lines to a role and back.
pub(super) trait Lines {
    /// Gives it a line. What came before for others is forgotten.
    fn say(&mut self, line: String) -> io::Result<()>;
    /// The next line that it says.
    fn hear(&mut self, at_most: Duration) -> Result<String, RecvTimeoutError>;
}

impl Lines for RoleLine<'_> {
    fn say(&mut self, line: String) -> io::Result<()> {
        RoleLine::say(self, line.as_bytes())
    }
    fn hear(&mut self, at_most: Duration) -> Result<String, RecvTimeoutError> {
        RoleLine::hear(self, at_most)
    }
}

impl Lines for &FarRole {
    fn say(&mut self, line: String) -> io::Result<()> {
        FarRole::say(self, line).map_err(io::Error::other)
    }
    fn hear(&mut self, at_most: Duration) -> Result<String, RecvTimeoutError> {
        FarRole::hear(self, at_most)
    }
}

/// Asks the role, which `takes_commands` or not, and waits.
///
/// # Errors
/// It is gone, takes no orders, or does not answer.
pub(super) fn answer(
    role: &dyn Role,
    takes_commands: bool,
    order: &control::Command,
    lines: &mut dyn Lines,
) -> io::Result<Reply> {
    if !takes_commands {
        let what = format!("{} takes no commands", role.name());
        return Err(io::Error::new(io::ErrorKind::Unsupported, what));
    }
    let line = serde_json::to_string(order).map_err(io::Error::other)?;
    lines.say(line + "\n")?;
    let mut begin = Instant::now();
    while begin.elapsed() < ANSWER_TIME {
        match lines.hear(FROZEN_LOOK) {
            // Further portals are said on lines of their own.
            Ok(line) => {
                if let Ok(answer) = serde_json::from_str(&line) {
                    return Ok(answer);
                }
            }
            // Given up now, its late answer would be taken for that to the next order.
            Err(RecvTimeoutError::Timeout) => {
                if matches!(role.state().away, Some((Absence::Frozen, _))) {
                    begin = Instant::now();
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        format!("{} does not answer commands", role.name()),
    ))
}
