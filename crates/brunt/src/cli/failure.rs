//! Command failures: what happened, how to fix it, and the exit status.

use std::fmt::Display;

use brunt_block::ring::engine::IoEngineError;
use brunt_study::experiment::FileError;

/// The failure of a command.
#[derive(Debug)]
pub struct Failure {
    pub(super) status: u8,
    pub(super) what: String,
    /// The offending lines of a file, with a marker.
    pub(super) excerpt: Option<String>,
    pub(super) advice: Option<String>,
}

impl Failure {
    /// The command failed, or the verdict was "worse": status 1.
    pub fn failed(what: impl Display) -> Failure {
        Failure {
            status: 1,
            what: what.to_string(),
            excerpt: None,
            advice: None,
        }
    }

    /// The command line or a file is wrong: status 2.
    pub fn usage(what: impl Display) -> Failure {
        Failure {
            status: 2,
            what: what.to_string(),
            excerpt: None,
            advice: None,
        }
    }

    /// The message and the advice, without the lines of a file.
    pub fn in_a_line(&self) -> String {
        match &self.advice {
            Some(advice) => format!("{}; {advice}", self.what),
            None => self.what.clone(),
        }
    }

    /// What happened.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What to do about it.
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// The same failure, prefixed with the flag's name.
    pub fn prefixed(mut self, flag: &str) -> Failure {
        self.what.insert_str(0, flag);
        self
    }

    /// The same failure with its location in a file: `at` takes the message and returns the error with the location.
    pub fn located(mut self, at: impl FnOnce(String) -> Box<FileError>) -> Failure {
        let error = at(self.what);
        (self.what, self.excerpt) = (error.one_line(), error.excerpt());
        self
    }

    /// Adds the offending lines of the file with a marker at the mistake, printed below the message.
    pub fn at(mut self, excerpt: Option<String>) -> Failure {
        self.excerpt = excerpt;
        self
    }

    /// What the user can do about it: a sentence starting with a verb.
    pub fn advise(mut self, advice: impl Display) -> Failure {
        self.advice = Some(advice.to_string());
        self
    }
}

impl From<IoEngineError> for Failure {
    fn from(error: IoEngineError) -> Failure {
        match error {
            IoEngineError::NoIoUring(_) => {
                Failure::failed(error).advise("use --engine threads, which needs no io_uring")
            }
            IoEngineError::Unknown(_) => Failure::usage(error),
        }
    }
}

impl From<Box<FileError>> for Failure {
    fn from(error: Box<FileError>) -> Failure {
        let advice = error.help_text().map(str::to_string);
        Failure {
            advice,
            ..Failure::usage(error.one_line()).at(error.excerpt())
        }
    }
}

impl From<brunt_fio::FioError> for Failure {
    fn from(error: brunt_fio::FioError) -> Failure {
        Failure {
            advice: error.advice().map(str::to_string),
            ..Failure::usage(&error)
        }
    }
}

/// The result of a command.
pub type Done = Result<(), Failure>;
