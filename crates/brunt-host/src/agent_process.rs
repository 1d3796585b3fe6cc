//! The local process through which an agent is reached: ssh, or the agent itself.

use std::collections::VecDeque;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::host_error::HostError;
use crate::lines::keep_lines;
use crate::stream::MessageStream;

/// How long an agent may take to end after its controller has disconnected; then ssh, or the local process, is
/// killed.
const END_TIME: Duration = Duration::from_secs(3);
/// How long reading the last output of a process that has ended may take.
const CLOSING_TIME: Duration = Duration::from_millis(500);
/// Polling interval while waiting for a process to end.
const END_POLL: Duration = Duration::from_millis(5);

/// A process that connects to an agent: ssh, or the agent itself. Dropping this ends the process.
#[derive(Debug)]
pub(crate) struct AgentProcess {
    child: Child,
    input: Option<ChildStdin>,
    lines: Arc<Mutex<VecDeque<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl AgentProcess {
    /// Starts the process; also returns its standard output.
    pub fn spawn(mut command: Command) -> Result<(AgentProcess, OwnedFd), HostError> {
        use std::os::unix::process::CommandExt;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Ctrl-C must only reach this process, which ends the child when it is no longer needed.
        command.process_group(0);
        let mut child = command.spawn().map_err(|source| HostError::Os {
            what: "start the agent or ssh",
            source,
        })?;
        let lines = Arc::default();
        let kept = Arc::clone(&lines);
        let stderr = child.stderr.take().expect("piped");
        let reader = std::thread::spawn(move || keep_lines(BufReader::new(stderr), &kept));
        let output = child.stdout.take().expect("piped").into();
        let input = child.stdin.take();
        Ok((
            AgentProcess {
                child,
                input,
                lines,
                reader: Some(reader),
            },
            output,
        ))
    }

    /// The process's PID on this machine.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The process's standard input, while it isn't part of a stream yet.
    pub fn input(&mut self) -> Result<&mut ChildStdin, HostError> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.input.as_mut().ok_or_else(|| HostError::Os {
            what: "write to ssh",
            source: gone(),
        })
    }

    /// Returns the connection over the process's input and output, after `read` bytes of output were consumed.
    pub fn stream(&mut self, output: OwnedFd, read: &[u8]) -> Result<MessageStream, HostError> {
        self.input()?;
        let input = self.input.take().expect("it existed above");
        let mut stream = MessageStream::new(output, input.into());
        stream.begin_with(read);
        Ok(stream)
    }

    /// Called when the output has ended: returns an error with the exit status and the last lines.
    pub fn ended(&mut self, because: Option<io::Error>) -> HostError {
        drop(self.input.take());
        let status = self.wait(END_TIME);
        if let (None, Some(source)) = (status, because) {
            return HostError::Os {
                what: "write to ssh",
                source,
            };
        }
        // Normally, the last lines have been read already; a child process left behind may keep the pipe open
        // forever.
        let begin = Instant::now();
        while self
            .reader
            .as_ref()
            .is_some_and(|reader| !reader.is_finished())
            && begin.elapsed() < CLOSING_TIME
        {
            std::thread::sleep(END_POLL);
        }
        let lines = self
            .lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .cloned()
            .collect();
        HostError::Ended { status, lines }
    }

    fn wait(&mut self, at_most: Duration) -> Option<std::process::ExitStatus> {
        let begin = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if begin.elapsed() < at_most => std::thread::sleep(END_POLL),
                _ => return None,
            }
        }
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        drop(self.input.take());
        if self.wait(END_TIME).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
