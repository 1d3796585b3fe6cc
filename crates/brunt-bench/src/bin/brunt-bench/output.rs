//! Where a benchmark prints: lines for people, or a JSON object.
//!
//! The rule: a closed pipe ends the program quietly rather than with a panic.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brunt_bench::{BenchError, BenchErrorKind, Console};
use serde_json::{Value, json};

/// Standard output and standard error.
#[derive(Clone)]
pub struct Terminal {
    json: bool,
    answered: Arc<AtomicBool>,
    interrupted: Arc<AtomicBool>,
}

impl Terminal {
    /// Creates an output that prints a single object with `json`, and lines otherwise; `interrupted` is set by
    /// signals.
    pub fn new(json: bool, interrupted: Arc<AtomicBool>) -> Terminal {
        Terminal {
            json,
            answered: Arc::default(),
            interrupted,
        }
    }

    /// Ends the program some time after an interruption, if it doesn't end by itself.
    pub fn end_if_interrupted(&self) {
        let output = self.clone();
        let end = move || std::process::exit(output.report("", &interruption()).into());
        if let Err(error) = brunt_bench::end_if_interrupted(Arc::clone(&self.interrupted), end) {
            self.print_note(&format_args!("cannot limit how long Ctrl-C takes: {error}"));
        }
    }

    /// Prints why a benchmark stopped; returns the exit status.
    pub fn report(&self, name: &str, error: &BenchError) -> u8 {
        self.object(&json!({ "error": error.what, "advice": error.advice }));
        let name = if name.is_empty() {
            ""
        } else {
            &format!(" {name}")
        };
        let _ = writeln!(io::stderr(), "brunt-bench{name}: {}", error.what);
        if let Some(advice) = &error.advice {
            let _ = writeln!(io::stderr(), "  help: {advice}");
        }
        match error.kind {
            BenchErrorKind::Failed => 1,
            BenchErrorKind::Usage => 2,
            BenchErrorKind::Interrupted => 130,
        }
    }

    /// A line for people; dropped with `--json`.
    pub fn line(&self, text: impl Display) {
        if !self.json {
            write(format_args!("{text}\n"));
        }
    }

    /// The object printed with `--json`. Dropped without `--json`, or if an object was already printed.
    pub fn object(&self, value: &Value) {
        if self.json && !self.answered.swap(true, Ordering::Relaxed) {
            write(format_args!("{value:#}\n"));
        }
    }
}

/// Written in one piece, because a line-buffered stream would make a system call per line.
fn write(text: std::fmt::Arguments<'_>) {
    let mut stdout = io::stdout();
    let text = text.to_string();
    if let Err(error) = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        if error.kind() != io::ErrorKind::BrokenPipe {
            let _ = writeln!(
                io::stderr(),
                "brunt-bench: cannot write to standard output: {error}"
            );
        }
        std::process::exit(1);
    }
}

impl Console for Terminal {
    fn print_line(&self, text: &dyn Display) {
        self.line(text);
    }

    fn print_note(&self, text: &dyn Display) {
        let _ = writeln!(io::stderr(), "brunt-bench: {text}");
    }

    fn print_object(&self, value: &Value) {
        self.object(value);
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// Why an interrupted benchmark stopped.
pub fn interruption() -> BenchError {
    BenchError::interrupted("interrupted: the output so far is complete")
}
