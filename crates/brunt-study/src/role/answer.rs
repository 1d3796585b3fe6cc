//! One command to a role, and its reply, over any transport.
//!
//! The rule: waiting for a reply times out, except while a fault freezes the role.

use std::io;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use brunt_host::{FarRole, RoleLine};

use super::Role;
use crate::control::{self, Absence, Reply};

/// Time limit for a reply: generous enough for a role on a busy machine.
const ANSWER_TIME: Duration = Duration::from_secs(20);
/// Interval between checks whether the role is frozen, while waiting for a reply.
const FROZEN_POLL: Duration = Duration::from_millis(10);

/// Passes lines to a role and back.
pub(super) trait Lines {
    /// Sends a line to the role. Lines that were received earlier are discarded.
    fn say(&mut self, line: String) -> io::Result<()>;
    /// The next line from the role.
    fn next_line(&mut self, at_most: Duration) -> Result<String, RecvTimeoutError>;
}

impl Lines for RoleLine<'_> {
    fn say(&mut self, line: String) -> io::Result<()> {
        RoleLine::say(self, line.as_bytes())
    }
    fn next_line(&mut self, at_most: Duration) -> Result<String, RecvTimeoutError> {
        RoleLine::next_line(self, at_most)
    }
}

impl Lines for &FarRole {
    fn say(&mut self, line: String) -> io::Result<()> {
        FarRole::say(self, line).map_err(io::Error::other)
    }
    fn next_line(&mut self, at_most: Duration) -> Result<String, RecvTimeoutError> {
        FarRole::next_line(self, at_most)
    }
}

/// Sends a command to the role and waits for the reply. `takes_commands` says whether the role accepts commands.
///
/// # Errors
/// The role is gone, takes no commands, or does not answer.
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
        match lines.next_line(FROZEN_POLL) {
            // The role also prints lines about further portals, which are skipped.
            Ok(line) => {
                if let Ok(answer) = serde_json::from_str(&line) {
                    return Ok(answer);
                }
            }
            // Giving up on a frozen role would mean that its late reply is mistaken for the reply to the next
            // command, so the limit starts again.
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
