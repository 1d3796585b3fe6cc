//! Writes to standard output and to user-named files, which may be full pipes without an active reader. Waiting for
//! space ends when the program is asked to stop.
//!
//! Commands send all output that may be long through this module. The rule: never block inside open(2) or write(2), for
//! the same reason as in [`crate::input`].

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::input::{POLL_INTERVAL, stop_flag, stopped_writing};

/// When poll(2) reports a pipe as writable, it accepts this many bytes without blocking (pipe(7), `PIPE_BUF`).
const PIECE_BYTES: usize = 4096;
/// How long to wait for a stalled reader if the program was asked to stop before it began to write; for example a pager
/// that shows the results of an interrupted run.
const PATIENCE: Duration = Duration::from_secs(10);

/// A file opened for writing.
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    /// Whether a write may have to wait for another process.
    is_stream: bool,
    stop: Option<Arc<AtomicBool>>,
    patience: Duration,
}

impl OutputFile {
    /// Creates a file, or empties it. A named pipe is opened once it has a reader.
    ///
    /// # Errors
    /// The file cannot be opened, or the program was asked to stop while waiting for a reader
    /// ([`crate::input::is_stopped`]).
    pub fn create(path: &Path) -> io::Result<OutputFile> {
        let stop = stop_flag();
        loop {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true);
            match options.custom_flags(libc::O_NONBLOCK).open(path) {
                // A pipe without a reader (fifo(7)).
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) && is_pipe(path) => {}
                opened => return OutputFile::of(opened?),
            }
            if is_set(stop.as_ref()) {
                return Err(stopped_writing());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Standard output, without the buffer of [`io::stdout`].
    ///
    /// # Errors
    /// Standard output is closed.
    pub fn stdout() -> io::Result<OutputFile> {
        OutputFile::of_stream(io::stdout().as_fd())
    }

    /// Standard error.
    ///
    /// # Errors
    /// Standard error is closed.
    pub fn stderr() -> io::Result<OutputFile> {
        OutputFile::of_stream(io::stderr().as_fd())
    }

    fn of_stream(stream: BorrowedFd<'_>) -> io::Result<OutputFile> {
        OutputFile::of(File::from(stream.try_clone_to_owned()?))
    }

    fn of(file: File) -> io::Result<OutputFile> {
        let kind = file.metadata()?.file_type();
        Ok(OutputFile {
            is_stream: kind.is_fifo() || kind.is_socket() || file.is_terminal(),
            stop: stop_flag(),
            patience: PATIENCE,
            file,
        })
    }

    /// Waits until there is space for a piece.
    fn wait(&self) -> io::Result<()> {
        let was_set = is_set(self.stop.as_ref());
        let begin = Instant::now();
        let timeout = POLL_INTERVAL.try_into().ok();
        loop {
            match poll(
                &mut [PollFd::new(&self.file, PollFlags::OUT)],
                timeout.as_ref(),
            ) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            if is_set(self.stop.as_ref()) && (!was_set || begin.elapsed() >= self.patience) {
                return Err(stopped_writing());
            }
        }
    }
}

fn is_set(flag: Option<&Arc<AtomicBool>>) -> bool {
    flag.is_some_and(|flag| flag.load(Ordering::Relaxed))
}

fn is_pipe(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_stream {
            return self.file.write(bytes);
        }
        let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
        loop {
            self.wait()?;
            match self.file.write(piece) {
                // Another writer to the pipe was faster.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return written,
            }
        }
    }

    /// Does nothing: output is unbuffered.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::input::is_stopped;

    /// A pipe's two ends: a reader and an output file.
    fn pipe() -> (io::PipeReader, OutputFile) {
        let (reader, writer) = io::pipe().unwrap();
        let mut output = OutputFile::of(File::from(OwnedFd::from(writer))).unwrap();
        output.stop = Some(Arc::default());
        (reader, output)
    }

    #[test]
    fn a_flag_ends_a_wait_for_room() {
        let (mut reader, mut output) = pipe();
        let flag = output.stop.clone().unwrap();
        let writing = std::thread::spawn(move || {
            let error = output.write_all(&[7; 1 << 20]).unwrap_err();
            (output, error)
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!writing.is_finished());
        flag.store(true, Ordering::Relaxed);
        let (mut output, error) = writing.join().unwrap();
        assert!(is_stopped(&error), "{error}");
        // Later writes wait for the reader, but not indefinitely.
        output.patience = Duration::from_millis(300);
        let mut bytes = vec![0; 1 << 15];
        reader.read_exact(&mut bytes).unwrap();
        output.write_all(&[8; 1 << 13]).unwrap();
        let error = output.write_all(&[9; 1 << 20]).unwrap_err();
        assert!(is_stopped(&error), "{error}");
    }

    #[test]
    fn a_slow_reader_gets_everything() {
        let (mut reader, mut output) = pipe();
        let sent: Vec<u8> = (0..1 << 20).map(|index| (index / 7) as u8).collect();
        let bytes = sent.clone();
        let writing = std::thread::spawn(move || output.write_all(&bytes));
        std::thread::sleep(Duration::from_millis(20));
        let mut received = Vec::new();
        reader.read_to_end(&mut received).unwrap();
        writing.join().unwrap().unwrap();
        assert!(received == sent);
    }

    #[test]
    fn a_closed_reader_is_a_broken_pipe() {
        let (reader, mut output) = pipe();
        drop(reader);
        let error = output.write_all(&[0; 1 << 20]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}
