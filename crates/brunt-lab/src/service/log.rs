//! The output of a service: stored in a file up to a limit, with its last lines in memory, and searched for the line
//! that signals readiness.
//!
//! The rule: output is always read to the end, so that a service never has to wait for its keeper, and nothing is
//! stored beyond the limits.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::error::ServiceError;
use super::keeper::Event;

/// Maximum length of a line; longer ones are split.
const LINE_BYTES_MAX: usize = 1 << 16;
/// Number of last lines kept for error messages.
const LAST_LINES: usize = 6;
/// Maximum length of each of these lines, in characters.
const LAST_LETTERS: usize = 300;

/// The log of a service.
pub(super) struct Log {
    path: PathBuf,
    max: u64,
    inner: Mutex<Inner>,
    events: Sender<Event>,
}

struct Inner {
    file: File,
    written: u64,
    /// Whether the log has been reported as full or unwritable.
    over: bool,
    /// The text in the awaited line.
    awaited: Option<String>,
    last: VecDeque<String>,
}

impl Log {
    /// Appends to this file, up to a size of `max` bytes.
    pub fn open(path: &Path, max: u64, events: Sender<Event>) -> Result<Arc<Log>, ServiceError> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|source| ServiceError::Log {
            path: path.to_path_buf(),
            source,
        })?;
        // Existing contents are from before a restart.
        let written = file.metadata().map_or(0, |file| file.len());
        let inner = Inner {
            file,
            written,
            over: false,
            awaited: None,
            last: VecDeque::new(),
        };
        Ok(Arc::new(Log {
            path: path.to_path_buf(),
            max,
            inner: Mutex::new(inner),
            events,
        }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, a line that contains this text triggers [`Event::Line`].
    pub fn wait_for(&self, words: &str) {
        self.inner().awaited = Some(words.to_string());
    }

    /// The last lines, oldest first.
    pub fn last(&self) -> Vec<String> {
        self.inner().last.iter().cloned().collect()
    }

    /// Reads a pipe, on a thread that ends when all writers have closed it.
    pub fn read(self: &Arc<Self>, pipe: PipeReader) -> io::Result<JoinHandle<()>> {
        let log = Arc::clone(self);
        let work = move || {
            let (mut pipe, mut line) = (BufReader::new(pipe), Vec::new());
            while let Ok(1..) = pipe
                .by_ref()
                .take(LINE_BYTES_MAX as u64)
                .read_until(b'\n', &mut line)
            {
                log.add(&line);
                line.clear();
            }
        };
        std::thread::Builder::new().name("log".into()).spawn(work)
    }

    fn add(&self, line: &[u8]) {
        let mut inner = self.inner();
        let text = String::from_utf8_lossy(line);
        if inner
            .awaited
            .as_ref()
            .is_some_and(|words| text.contains(words.as_str()))
        {
            inner.awaited = None;
            let _ = self.events.send(Event::Line);
        }
        let text: String = text
            .trim()
            .chars()
            .filter(|one| !one.is_control())
            .take(LAST_LETTERS)
            .collect();
        if !text.is_empty() {
            if inner.last.len() == LAST_LINES {
                inner.last.pop_front();
            }
            inner.last.push_back(text);
        }
        if inner.over {
            return;
        }
        let room = usize::try_from(self.max.saturating_sub(inner.written)).unwrap_or(usize::MAX);
        let kept = &line[..line.len().min(room)];
        let trouble = match inner.file.write_all(kept) {
            Err(source) => Some(ServiceError::Log {
                path: self.path.clone(),
                source,
            }),
            Ok(()) if kept.len() < line.len() => Some(ServiceError::LogFull { max: self.max }),
            Ok(()) => None,
        };
        inner.written += kept.len() as u64;
        if let Some(trouble) = trouble {
            inner.over = true;
            let _ = self.events.send(Event::Trouble(trouble));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Output is kept up to the limit; exceeding it is reported once, and the last lines are still known.
    #[test]
    fn output_is_kept_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (sender, events) = channel();
        let log = Log::open(&path, 20, sender).unwrap();
        log.wait_for("rea");
        for line in [
            "starting\n",
            "ready now\n",
            "ready again\n",
            "x\n",
            "\x1b[2J\n",
        ] {
            log.add(line.as_bytes());
        }
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "starting\nready now\nr"
        );
        assert!(matches!(events.try_recv(), Ok(Event::Line)));
        assert!(matches!(
            events.try_recv(),
            Ok(Event::Trouble(ServiceError::LogFull { max: 20 }))
        ));
        assert!(events.try_recv().is_err());
        assert_eq!(
            log.last(),
            ["starting", "ready now", "ready again", "x", "[2J"]
        );
        (0..100).for_each(|_| log.add(&[b'y'; 1000]));
        assert_eq!(log.last().len(), LAST_LINES);
        assert!(log.last().iter().all(|line| line.len() == LAST_LETTERS));
    }

    /// A pipe is read to the end, even without a final line break.
    #[test]
    fn a_pipe_is_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (sender, _events) = channel();
        let log = Log::open(&path, 1 << 20, sender).unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        let reading = log.read(reader).unwrap();
        writer.write_all(&vec![b'x'; 3 * LINE_BYTES_MAX]).unwrap();
        drop(writer);
        reading.join().unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().len(),
            3 * LINE_BYTES_MAX as u64
        );
    }
}
