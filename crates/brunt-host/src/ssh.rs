//! Starts an agent through ssh: with the far host's own program if it is of this version, else with a copy of this one
//! that is gone from the far disk as soon as it runs.
//!
//! The far shell says with one line what it is about to do, so what a login script prints before it does no harm.
//! The rule: nothing is installed, opened or left on the far host. ssh's own configuration, keys and known hosts apply.

use std::fs::File;
use std::io::Read;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::remote::{AgentProcess, HostError};
use crate::session::plain;
use crate::stream::{MessageStream, StreamError, read_within, write_within};

/// The line behind which the agent speaks.
const BEGINS: &str = "brunt-agent-begins";
/// The line that asks for a copy, with the far machine's architecture.
const NEEDED: &str = "brunt-agent-needed";
/// What a login script may print before.
const CHATTER_BYTES_MAX: usize = 64 << 10;

/// What is read at once of the program that is copied.
const PART_BYTES: usize = 64 << 10;

/// What to start on the far host.
#[derive(Clone, Debug)]
pub(crate) struct SshStart<'a> {
    /// ssh, or what stands for it, with its arguments.
    pub ssh: &'a [String],
    /// As ssh takes it.
    pub destination: &'a str,
    /// A program that is there already, by its path; `None`: the one of this version, or a copy.
    pub program: Option<&'a str>,
    /// As the far program says its version.
    pub version: &'a str,
    /// Further arguments of the agent.
    pub arguments: &'a [String],
    /// The login has to be done in this time.
    pub login_max: Duration,
    /// And then the copy in this.
    pub copy_max: Duration,
}

/// Starts it; the agent's greeting is what comes next.
///
/// # Errors
/// ssh or the far shell fails; the text has what they said.
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
    // Nobody answers questions here; and a peer that is gone is noticed also while the copy is sent.
    command.args([
        "-o",
        "BatchMode=yes",
        "-o",
        "ServerAliveInterval=3",
        "-o",
        "ServerAliveCountMax=2",
    ]);
    command.args(["-T", "--", start.destination, &far_command(start, bytes)]);
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
                    // What ssh has taken may still be on its way.
                    None if left.is_zero() && copied => {
                        return Err(HostError::Slow(start.copy_max));
                    }
                    None if left.is_zero() => return Err(HostError::Silent(start.login_max)),
                    None => {}
                }
            }
        }
    }
}

/// Sends the program. A host that takes none of it for as long as a login may take is given up: it is frozen, or its disk is.
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

/// What the far shell runs. It stands between single quotes, so that it does not matter which shell that is; there are
/// none inside. The folder goes however it ends, also when nobody reads what it says.
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

/// A line of the far shell.
#[derive(Debug, PartialEq, Eq)]
enum FarLine {
    Begins,
    Needed(String),
    Other,
}

/// What came, as far as no line of it was taken.
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

    /// A host that takes the copy too slowly holds up nobody, and one that ends meanwhile is said to have ended.
    #[test]
    fn a_copy_has_its_time() {
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

    /// A host whose controller has gone keeps no folder for its copy, whenever that was.
    #[test]
    fn a_copy_that_nobody_sends_leaves_nothing() {
        let start = SshStart {
            ssh: &[],
            destination: "far",
            program: None,
            version: "brunt of another world",
            arguments: &[],
            login_max: Duration::ZERO,
            copy_max: Duration::ZERO,
        };
        // Nobody reads what it says; nobody sends anything; what was sent is no program.
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
    fn lines_are_found_behind_chatter() {
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
