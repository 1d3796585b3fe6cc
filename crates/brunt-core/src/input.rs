//! Opens user-named files, which may be pipes. Waiting for input ends when the program is asked to stop.
//!
//! All crates open such files here. The rule: never block inside open(2) or read(2), because these calls may resume
//! after a signal, and the flag that the signal handler sets would go unnoticed.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

/// Maximum delay in noticing a signal that another thread handled.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The flag that stops this process.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Once the flag is set, every wait for input or for output space ends, here and in other threads. Only the first call
/// has an effect.
pub fn stop_on(flag: Arc<AtomicBool>) {
    let _ = STOP.set(flag);
}

/// The flag of [`stop_on`], for waits that don't end on their own.
pub(crate) fn stop_flag() -> Option<Arc<AtomicBool>> {
    STOP.get().cloned()
}

/// The program was asked to stop while waiting for another process.
#[derive(Debug, thiserror::Error)]
#[error("interrupted while waiting for {0}")]
struct Stopped(&'static str);

/// The error of a read that ends because the program was asked to stop.
pub fn stopped() -> io::Error {
    io::Error::other(Stopped("input"))
}

/// The error of a write that ends because the program was asked to stop.
pub(crate) fn stopped_writing() -> io::Error {
    io::Error::other(Stopped("a reader"))
}

/// Whether an error means that a wait ended because the program was asked to stop.
pub fn is_stopped(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|source| source.is::<Stopped>())
}

/// A file opened for reading.
#[derive(Debug)]
pub struct InputFile {
    file: File,
    /// Whether a read may have to wait for another process.
    is_stream: bool,
    stop: Option<Arc<AtomicBool>>,
}

impl InputFile {
    /// Opens a file. Opening a named pipe doesn't wait for a writer; reading does.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> io::Result<InputFile> {
        let mut options = OpenOptions::new();
        InputFile::of(
            options
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(path)?,
        )
    }

    /// Standard input, without the buffer of [`io::stdin`].
    ///
    /// # Errors
    /// Standard input is closed.
    pub fn stdin() -> io::Result<InputFile> {
        InputFile::of(File::from(io::stdin().as_fd().try_clone_to_owned()?))
    }

    fn of(file: File) -> io::Result<InputFile> {
        let kind = file.metadata()?.file_type();
        Ok(InputFile {
            is_stream: kind.is_fifo() || kind.is_socket() || kind.is_char_device(),
            stop: stop_flag(),
            file,
        })
    }

    /// Waits until data or the end of the file is available.
    fn wait(&self) -> io::Result<()> {
        let timeout = POLL_INTERVAL.try_into().ok();
        loop {
            let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
            if self.stop.as_ref().is_some_and(is_set) {
                return Err(stopped());
            }
            match poll(
                &mut [PollFd::new(&self.file, PollFlags::IN)],
                timeout.as_ref(),
            ) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for InputFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if !self.is_stream {
            return self.file.read(bytes);
        }
        loop {
            self.wait()?;
            match self.file.read(bytes) {
                // Another reader of the pipe was faster.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

/// Reads a whole file.
///
/// # Errors
/// The file cannot be read, or the program was asked to stop ([`is_stopped`]).
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    InputFile::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a whole file as text.
///
/// # Errors
/// The file cannot be read or is not UTF-8, or the program was asked to stop ([`is_stopped`]).
pub fn read_to_string(path: &Path) -> io::Result<String> {
    io::read_to_string(InputFile::open(path)?)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A pipe's two ends: an input file and a writer.
    fn pipe() -> (InputFile, File) {
        let (reader, writer) = io::pipe().unwrap();
        let reader = std::os::fd::OwnedFd::from(reader);
        let writer = std::os::fd::OwnedFd::from(writer);
        let mut input = InputFile::of(File::from(reader)).unwrap();
        input.stop = Some(Arc::default());
        (input, File::from(writer))
    }

    /// Setting the flag ends a wait; data that arrived earlier is still read.
    #[test]
    fn a_flag_ends_a_wait() {
        let (mut input, mut writer) = pipe();
        let flag = input.stop.clone().unwrap();
        writer.write_all(b"ab").unwrap();
        let mut bytes = [0; 8];
        assert_eq!(input.read(&mut bytes).unwrap(), 2);
        let waiting = std::thread::spawn(move || input.read(&mut [0; 8]));
        flag.store(true, Ordering::Relaxed);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(is_stopped(&error), "{error}");
        assert!(!is_stopped(&ErrorKind::NotFound.into()));
    }

    #[test]
    fn a_pipe_without_writers_ends() {
        let (mut input, writer) = pipe();
        drop(writer);
        assert_eq!(input.read(&mut [0; 8]).unwrap(), 0);
    }
}
