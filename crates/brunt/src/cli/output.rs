//! Output of commands: text for people or one JSON object, and notes; also knows whether the user has interrupted the
//! command.
//!
//! The rule: everything is printed here, so a closed pipe ends the program quietly instead of with a panic, and a
//! single Ctrl-C ends a wait for the reader of a full pipe.

use std::fmt::Display;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brunt_core::input;
use brunt_core::output::OutputFile;
use indicatif::ProgressBar;
use serde_json::Value;
use signal_hook::SigId;
use signal_hook::consts::SIGHUP;

use crate::plain::Plain;

/// Size of each write of an answer, in bytes.
const ANSWER_BYTES: usize = 1 << 16;

/// Where a command prints, and whether the user has interrupted it.
#[derive(Clone)]
pub struct Output {
    json: bool,
    answered: Arc<AtomicBool>,
    interrupted: Arc<AtomicBool>,
    /// The handler through which SIGHUP interrupts the command.
    hangup: Option<SigId>,
    /// The progress bar at the bottom of the terminal; notes are printed above it.
    above: Arc<Mutex<Option<ProgressBar>>>,
    /// Called with each note that is printed.
    listener: Arc<Mutex<Option<NoteListener>>>,
}

/// Called with each note that is printed on the terminal.
pub type NoteListener = Box<dyn Fn(&str) + Send>;

impl Output {
    /// Prints objects if `json` is set, otherwise lines. Signals set `interrupted`; `hangup` is the id of the SIGHUP
    /// handler, which also does so.
    pub(super) fn new(json: bool, interrupted: Arc<AtomicBool>, hangup: Option<SigId>) -> Output {
        Output {
            json,
            answered: Arc::default(),
            interrupted,
            hangup,
            above: Arc::default(),
            listener: Arc::default(),
        }
    }

    /// Prints one line for people on standard output; does nothing with `--json`.
    pub fn line(&self, text: impl Display) {
        if !self.json {
            self.write(format_args!("{}\n", Plain(text)));
        }
    }

    /// Like [`Output::line`], but wrapped at spaces if standard output is a terminal that is too narrow. Further lines
    /// are indented slightly more than the first.
    pub fn wrapped(&self, text: &str) {
        let columns = rustix::termios::tcgetwinsize(io::stdout()).map(|size| size.ws_col);
        match columns {
            Ok(columns) if columns > 0 && text.chars().count() > usize::from(columns) => {
                let indent = " ".repeat(text.len() - text.trim_start().len() + 4);
                let options = textwrap::Options::new(columns.into())
                    .subsequent_indent(&indent)
                    .break_words(false);
                textwrap::wrap(text, options)
                    .into_iter()
                    .for_each(|line| self.line(line));
            }
            _ => self.line(text),
        }
    }

    /// Prints the single object of `--json`. Does nothing without `--json`, or if an object was already printed, so a
    /// failure after the results doesn't print a second one.
    pub fn object(&self, value: &Value) {
        if self.json && !self.answered.swap(true, Ordering::Relaxed) {
            self.write(format_args!("{value:#}\n"));
        }
    }

    /// Writes bytes unchanged (data read from a device, a completion script), with or without `--json`.
    pub fn bytes(&self, bytes: &[u8]) {
        // One thread writes at a time.
        let _lock = io::stdout().lock();
        end_if_closed(OutputFile::stdout().and_then(|mut file| file.write_all(bytes)));
    }

    /// A writer to standard output for an answer of any size, with or without `--json`. This answer replaces the
    /// single object of `--json`.
    pub fn answer(&self) -> AnswerWriter {
        self.answered.store(true, Ordering::Relaxed);
        let lock = io::stdout().lock();
        let file = match OutputFile::stdout() {
            Ok(file) => file,
            Err(error) => end(&error),
        };
        AnswerWriter(BufWriter::with_capacity(ANSWER_BYTES, file), lock)
    }

    /// Prints one line on standard error, for information beyond the answer.
    pub fn note(&self, text: impl Display) {
        if let Some(listener) = &*self.listener.lock().unwrap_or_else(PoisonError::into_inner) {
            listener(&text.to_string());
        }
        let write = || {
            let _ = print_error(&format!("brunt: {}\n", Plain(&text)));
        };
        match &*self.above.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Sets the progress bar above which notes are printed; `None` removes it.
    pub fn set_above(&self, bar: Option<ProgressBar>) {
        *self.above.lock().unwrap_or_else(PoisonError::into_inner) = bar;
    }

    /// Sets the listener that receives each note from now on; `None` removes it.
    pub fn listen(&self, listener: Option<NoteListener>) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = listener;
    }

    /// Whether `--json` was given.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether the user pressed Ctrl-C, sent SIGTERM or closed the terminal (SIGHUP); if so, stop, drain, and print
    /// what was measured. A second Ctrl-C or SIGTERM ends the program at once.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Has the same effect as Ctrl-C, for stop requests from the live page or from `brunt serve`.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
    }

    /// From now on, SIGHUP sets a separate flag instead of interrupting: for a service that reloads its configuration
    /// file.
    ///
    /// # Errors
    /// The handler can't be registered.
    pub fn divert_hangup(&self) -> io::Result<Arc<AtomicBool>> {
        let hung_up = Arc::new(AtomicBool::new(false));
        // Register the new handler first, so that SIGHUP always has one.
        signal_hook::flag::register(SIGHUP, hung_up.clone())?;
        if let Some(id) = self.hangup {
            signal_hook::low_level::unregister(id);
        }
        Ok(hung_up)
    }

    /// The flag behind [`Output::is_interrupted`], for loops that poll it themselves.
    pub fn interrupt_flag(&self) -> &Arc<AtomicBool> {
        &self.interrupted
    }

    fn write(&self, text: std::fmt::Arguments<'_>) {
        // Written at once: a line-buffered stream would make a system call per line.
        self.bytes(text.to_string().as_bytes());
    }
}

/// Writes to standard output in large pieces. If the reader has closed the pipe, the program ends.
pub struct AnswerWriter(
    BufWriter<OutputFile>,
    #[expect(dead_code, reason = "held")] StdoutLock<'static>,
);

impl AnswerWriter {
    /// Writes formatted text.
    pub fn put(&mut self, text: impl Display) {
        end_if_closed(write!(self.0, "{text}"));
    }
}

impl Drop for AnswerWriter {
    fn drop(&mut self) {
        end_if_closed(self.0.flush());
    }
}

/// Exits quietly when the reader of standard output is gone (`brunt … | head`).
fn end_if_closed(result: io::Result<()>) {
    if let Err(error) = result {
        end(&error);
    }
}

/// Exits because a write to standard output failed. If the user interrupted a wait for the reader, exits as after a
/// second Ctrl-C.
fn end(error: &io::Error) -> ! {
    if error.kind() != io::ErrorKind::BrokenPipe {
        let _ = print_error(&format!(
            "brunt: cannot write to standard output: {error}\n"
        ));
    }
    std::process::exit(if input::is_stopped(error) { 130 } else { 1 })
}

/// Prints on standard error. Stops waiting if the user interrupts while the reader is stalled.
fn print_error(text: &str) -> io::Result<()> {
    static GAVE_UP: AtomicBool = AtomicBool::new(false);
    if GAVE_UP.load(Ordering::Relaxed) {
        return Ok(());
    }
    let _lock = io::stderr().lock();
    let result = OutputFile::stderr().and_then(|mut file| file.write_all(text.as_bytes()));
    if result.as_ref().is_err_and(input::is_stopped) {
        GAVE_UP.store(true, Ordering::Relaxed);
    }
    result
}
