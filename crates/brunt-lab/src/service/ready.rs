//! Checks whether a service is ready: its port, its log line and its command, as configured.
//!
//! The rule: a condition that was once met is not checked again.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::WaitStatus;

use super::error::ending;
use super::{ReadyPurpose, ReadyWhen};

/// Time limit for a connection to be accepted or refused.
const CONNECT_TIME: Duration = Duration::from_millis(250);
/// Time between two attempts of a command.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(100);

/// The conditions that have not been met yet.
#[derive(Debug)]
pub(super) struct Lacking {
    /// A server has to listen on this address.
    port: Option<SocketAddr>,
    /// A line that contains this text has to be logged.
    line: Option<String>,
    /// A command has to succeed.
    command: bool,
    /// The command's name.
    name: &'static str,
    /// The command of a daemon has to return.
    returned: bool,
    attempt: Attempt,
}

/// An attempt of the command.
#[derive(Debug)]
enum Attempt {
    /// None yet.
    None,
    /// An attempt is running; contains how the previous one failed.
    Runs(Option<WaitStatus>),
    /// An attempt failed at this time.
    Failed(WaitStatus, Instant),
}

impl Lacking {
    /// All configured conditions.
    pub fn new(when: &ReadyWhen, address: SocketAddr, daemon: bool) -> Lacking {
        Lacking {
            port: when.port.map(|_| address),
            line: when.line.clone(),
            command: when.command.is_some(),
            name: match when.purpose {
                ReadyPurpose::Start => "its ready command",
                ReadyPurpose::Health => "the health command",
            },
            returned: daemon,
            attempt: Attempt::None,
        }
    }

    /// The awaited line was logged.
    pub fn line_seen(&mut self) {
        self.line = None;
    }

    /// The daemon's command returned with status 0.
    pub fn returned(&mut self) {
        self.returned = false;
    }

    /// Whether another attempt of the command is due; if so, it counts as started.
    pub fn attempt_is_due(&mut self) -> bool {
        let (is_due, failed) = match &self.attempt {
            Attempt::None => (self.command, None),
            Attempt::Runs(_) => (false, None),
            Attempt::Failed(status, at) => {
                let is_due = self.command && at.elapsed() >= ATTEMPT_PAUSE;
                (is_due, Some(*status))
            }
        };
        if is_due {
            self.attempt = Attempt::Runs(failed);
        }
        is_due
    }

    /// Processes the end of an attempt.
    pub fn attempt_ended(&mut self, status: WaitStatus) {
        if status.exit_status() == Some(0) {
            self.command = false;
        }
        self.attempt = Attempt::Failed(status, Instant::now());
    }

    /// Checks the port, and whether all conditions are met.
    pub fn is_nothing(&mut self) -> bool {
        if self
            .port
            .is_some_and(|at| TcpStream::connect_timeout(&at, CONNECT_TIME).is_ok())
        {
            self.port = None;
        }
        self.port.is_none() && self.line.is_none() && !self.command && !self.returned
    }

    /// Describes the unmet conditions.
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.port.map(|at| format!("no process listens on {at}")));
        parts.extend(
            self.line
                .as_ref()
                .map(|words| format!("it did not print '{words}'")),
        );
        if self.command {
            let name = self.name;
            parts.push(match &self.attempt {
                Attempt::None => format!("{name} was not started"),
                Attempt::Runs(None) => format!("{name} does not exit"),
                Attempt::Runs(Some(failed)) => {
                    let how = ending(failed);
                    format!("{name} {how}, and the next attempt has not finished")
                }
                Attempt::Failed(status, _) => format!("{name} {}", ending(status)),
            });
        }
        if self.returned {
            parts.push(
                "its command has not moved to the background; omit daemon if it does not"
                    .to_string(),
            );
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_service_is_ready_once_all_conditions_are_met() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let within = Duration::from_secs(1);
        let (line, command) = (Some("up".to_string()), Some(vec!["true".to_string()]));
        let when = ReadyWhen {
            port: Some(at.port()),
            line,
            command,
            purpose: ReadyPurpose::Start,
            within,
        };
        let mut lacking = Lacking::new(&when, at, true);
        assert!(lacking.describe().starts_with(&format!(
            "no process listens on {at}, it did not print 'up', its ready"
        )));
        assert!(
            !lacking.is_nothing() && !lacking.describe().contains("listens"),
            "{}",
            lacking.describe()
        );
        lacking.line_seen();
        lacking.returned();
        assert!(lacking.attempt_is_due() && !lacking.attempt_is_due() && !lacking.is_nothing());
        assert_eq!(lacking.describe(), "its ready command does not exit");
        // An attempt that was cut off does not hide how the previous one failed.
        let mut child = std::process::Command::new("false").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let ended = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        let (_, status) = ended.unwrap().unwrap();
        let _ = child.wait();
        lacking.attempt_ended(status);
        assert_eq!(
            lacking.describe(),
            "its ready command ended with exit status 1"
        );
        std::thread::sleep(ATTEMPT_PAUSE);
        assert!(lacking.attempt_is_due());
        let parts = lacking.describe();
        assert!(
            parts.starts_with("its ready command ended with exit status 1, and"),
            "{parts}"
        );
        let none = ReadyWhen {
            port: None,
            line: None,
            command: None,
            purpose: ReadyPurpose::Start,
            within,
        };
        assert!(Lacking::new(&none, at, false).is_nothing());
        let health = ReadyWhen {
            command: Some(vec!["true".to_string()]),
            purpose: ReadyPurpose::Health,
            ..none
        };
        let lacking = Lacking::new(&health, at, false).describe();
        assert_eq!(lacking, "the health command was not started");
    }
}
