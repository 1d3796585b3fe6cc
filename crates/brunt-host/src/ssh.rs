//! Starts an agent through ssh: with the remote host's own program if it has this version, otherwise with a copy of
//! this program that is deleted from the remote disk as soon as it runs.
//!
//! The remote shell announces its next action with a marker line, so that earlier output of login scripts does no harm.
//! The rule: nothing is installed, opened or left behind on the remote host. ssh's own configuration, keys and known
//! hosts apply.

use std::fs::File;
use std::io::Read;
use std::process::Command;
use std::time::{Duration, Instant};

use brunt_lab::outside;

use crate::agent_process::AgentProcess;
use crate::host_error::HostError;
use crate::plain::plain;
use crate::stream::{MessageStream, StreamError, read_within, write_within};

/// The line after which the agent's output begins.
const BEGINS: &str = "brunt-agent-begins";
/// The line that requests a copy and states the remote machine's architecture.
const NEEDED: &str = "brunt-agent-needed";
/// Maximum output of a login script before the marker line.
const CHATTER_BYTES_MAX: usize = 64 << 10;

/// Bytes read at a time from the program that is copied.
const PART_BYTES: usize = 64 << 10;

/// What to start on the remote host.
#[derive(Clone, Debug)]
pub(crate) struct SshStart<'a> {
    /// ssh or a replacement, with its arguments.
    pub ssh: &'a [String],
    /// The destination in ssh's syntax.
    pub destination: &'a str,
    /// The path of a program that is already on the host; `None` means the one in the host's PATH if it has this
    /// version, otherwise a copy.
    pub program: Option<&'a str>,
    /// The version, as printed by the remote program.
    pub version: &'a str,
    /// Additional arguments for the agent.
    pub arguments: &'a [String],
    /// Maximum time for the login.
    pub login_max: Duration,
    /// Maximum time for the copy that follows.
    pub copy_max: Duration,
}

/// Starts the agent, whose greeting follows on the stream.
///
/// # Errors
/// ssh or the remote shell fails; the error includes their output.
pub(crate) fn start(start: &SshStart<'_>) -> Result<(AgentProcess, MessageStream), HostError> {
    let own = std::env::current_exe().and_then(File::open);
    let mut own = own.map_err(|source| HostError::Os {
        what: "read this program",
        source,
    })?;
    let bytes = own
        .metadata()
        .map_err(|source| HostError::Os {
            what: "read this program",
            source,
        })?
        .len();
    let (ssh, options) = start.ssh.split_first().ok_or(HostError::NoSsh)?;
    let mut command = Command::new(ssh);
    command.args(options);
    // ssh cannot prompt here; a lost peer is detected even during the copy.
    command.args([
        "-o",
        "BatchMode=yes",
        "-o",
        "ServerAliveInterval=3",
        "-o",
        "ServerAliveCountMax=2",
    ]);
    command.args(["-T", "--", start.destination, &far_command(start, bytes)]);
    outside::place(&mut command).map_err(HostError::OutsideLab)?;
    let (mut process, output) = AgentProcess::spawn(command)?;
    let mut until = Instant::now() + start.login_max;
    let mut heard = Heard::default();
    let mut copied = false;
    loop {
        match heard.next_line() {
            Some(FarLine::Begins) => {
                return process
                    .stream(output, &heard.bytes)
                    .map(|stream| (process, stream));
            }
            Some(FarLine::Needed(machine)) => {
                if machine != std::env::consts::ARCH {
                    return Err(HostError::Machine {
                        theirs: machine,
                        ours: std::env::consts::ARCH,
                    });
                }
                until = Instant::now() + start.copy_max;
                send_program(&mut own, &mut process, start)?;
                copied = true;
            }
            Some(FarLine::Other) => {}
            None => {
                let left = until.saturating_duration_since(Instant::now());
                match read_within(&output, left)? {
                    Some(more) if more.is_empty() => return Err(process.ended(None)),
                    Some(more) if heard.seen + more.len() > CHATTER_BYTES_MAX => {
                        return Err(HostError::Chatter);
                    }
                    Some(more) => heard.push(&more),
                    // ssh may still be transmitting data that it has accepted.
                    None if left.is_zero() && copied => {
                        return Err(HostError::Slow(start.copy_max));
                    }
                    None if left.is_zero() => return Err(HostError::NotStarted(start.login_max)),
                    None => {}
                }
            }
        }
    }
}

/// Sends the program. A host that accepts no data for as long as a login may take has failed: the host or its disk is
/// frozen.
fn send_program(
    own: &mut File,
    process: &mut AgentProcess,
    start: &SshStart<'_>,
) -> Result<(), HostError> {
    let until = Instant::now() + start.copy_max;
    let mut stalled = Instant::now() + start.login_max;
    let mut buffer = vec![0; PART_BYTES];
    loop {
        let count = own.read(&mut buffer).map_err(|source| HostError::Os {
            what: "read this program",
            source,
        })?;
        let mut part = &buffer[..count];
        if part.is_empty() {
            return Ok(());
        }
        while !part.is_empty() {
            let now = Instant::now();
            if now >= until {
                return Err(HostError::Slow(start.copy_max));
            }
            if now >= stalled {
                return Err(HostError::Stalled(start.login_max));
            }
            match write_within(process.input()?, part, until.min(stalled) - now) {
                Ok(0) => {}
                Ok(count) => {
                    part = &part[count..];
                    stalled = Instant::now() + start.login_max;
                }
                Err(StreamError::Io { source, .. }) => return Err(process.ended(Some(source))),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The script for the remote shell. The script is passed in single quotes, so that it works with any shell, and
/// contains no single quotes itself. The folder is removed however the script ends, even if its output is not read.
fn far_command(start: &SshStart<'_>, bytes: u64) -> String {
    let arguments: String = start
        .arguments
        .iter()
        .map(|argument| format!(" {argument}"))
        .collect();
    let agent = format!("agent --stdio{arguments}");
    let script = match start.program {
        Some(program) => format!("echo {BEGINS}; exec {program} {agent}"),
        None => format!(
            "if [ \"$(brunt --version 2>/dev/null)\" = \"{version}\" ]; then echo {BEGINS}; exec brunt {agent}; fi; \
             trap \"exit 1\" HUP INT PIPE TERM; trap \"rm -rf \\\"\\$d\\\"\" EXIT; \
             d=$(mktemp -d \"${{TMPDIR:-/tmp}}/brunt-agent.XXXXXX\") || exit 1; \
             echo {NEEDED} $(uname -m); \
             head -c {bytes} >\"$d/brunt\"; \
             if [ $(wc -c <\"$d/brunt\") -eq {bytes} ] && chmod 700 \"$d/brunt\"; \
             then echo {BEGINS}; \"$d/brunt\" {agent} --remove-program; exit $?; else exit 1; fi",
            version = start.version,
        ),
    };
    debug_assert!(
        !script.contains('\''),
        "quotes are checked where the parts are read"
    );
    format!("exec sh -c '{script}'")
}

/// A line from the remote shell.
#[derive(Debug, PartialEq, Eq)]
enum FarLine {
    Begins,
    Needed(String),
    Other,
}

/// Received bytes whose lines have not been taken yet.
#[derive(Default)]
struct Heard {
    bytes: Vec<u8>,
    seen: usize,
}

impl Heard {
    fn push(&mut self, more: &[u8]) {
        self.seen += more.len();
        self.bytes.extend_from_slice(more);
    }

    fn next_line(&mut self) -> Option<FarLine> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.bytes.drain(..=end).collect();
        let line = String::from_utf8_lossy(&line);
        Some(match line.trim().split_once(' ') {
            None if line.trim() == BEGINS => FarLine::Begins,
            Some((NEEDED, machine)) => FarLine::Needed(plain(machine.trim())),
            _ => FarLine::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host that accepts the copy too slowly doesn't block callers, and a host that ends in the meantime is
    /// reported as ended.
    #[test]
    fn a_slow_copy_ends_with_its_time_limit() {
        let send = |program: &str, copy_max: Duration, login_max: Duration| {
            let mut command = Command::new("sh");
            command.args(["-c", program]);
            let (mut process, _output) = AgentProcess::spawn(command).unwrap();
            let mut own = File::open(std::env::current_exe().unwrap()).unwrap();
            let start = SshStart {
                ssh: &[],
                destination: "far",
                program: None,
                version: "brunt 1",
                arguments: &[],
                login_max,
                copy_max,
            };
            send_program(&mut own, &mut process, &start)
        };
        let (long, short) = (Duration::from_secs(120), Duration::from_millis(50));
        assert!(send("exec cat >/dev/null", long, long).is_ok());
        assert!(matches!(
            send("exec sleep 1000", short, long),
            Err(HostError::Slow(_))
        ));
        let frozen = "head -c 100000 >/dev/null; exec sleep 1000";
        assert!(matches!(
            send(frozen, long, short),
            Err(HostError::Stalled(_))
        ));
        let error = send("echo 'no space' >&2; exit 3", long, long).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the agent's connection ended (exit status: 3): no space"
        );
    }

    /// A controller that disappears at any time leaves no folder for the copy on the host.
    #[test]
    fn an_unfinished_copy_leaves_no_folder() {
        let start = SshStart {
            ssh: &[],
            destination: "far",
            program: None,
            version: "brunt of another world",
            arguments: &[],
            login_max: Duration::ZERO,
            copy_max: Duration::ZERO,
        };
        // Three cases: the output is not read, nothing is sent, or something other than a program is sent.
        for around in ["{} | :", "{} </dev/null", "echo 12345 | {}"] {
            let folder = tempfile::tempdir().unwrap();
            let mut command = Command::new("sh");
            let script = around.replace("{}", &far_command(&start, 6));
            command
                .args(["-c", &script])
                .env("TMPDIR", folder.path())
                .stdin(std::process::Stdio::null());
            let ended = command.output().unwrap();
            assert_eq!(
                std::fs::read_dir(folder.path()).unwrap().count(),
                0,
                "{script}: {ended:?}"
            );
        }
    }

    #[test]
    fn marker_lines_are_found_after_login_output() {
        let mut heard = Heard::default();
        heard.push(b"Welcome to node7\nbrunt-agent-needed \x1bx86_64\nbrunt-agent-beg");
        assert_eq!(heard.next_line(), Some(FarLine::Other));
        assert_eq!(heard.next_line(), Some(FarLine::Needed("x86_64".into())));
        assert_eq!(heard.next_line(), None);
        heard.push(b"ins\n\0\0\0\x02");
        assert_eq!(heard.next_line(), Some(FarLine::Begins));
        assert_eq!(heard.bytes, b"\0\0\0\x02");
    }
}
