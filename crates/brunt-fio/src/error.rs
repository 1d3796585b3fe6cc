//! Errors in a job file: the location, the offending option, and how to correct it.

use std::fmt::{Display, Formatter};
use std::io;
use std::path::{Path, PathBuf};

use brunt_study::experiment::FileError;

use crate::remark::Remark;

/// A line in a job file, or the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The file as named on the command line or by `include`.
    pub file: PathBuf,
    /// The line, from 1; `None` for the file as a whole.
    pub line: Option<usize>,
}

impl Location {
    pub(crate) fn file(file: &Path) -> Location {
        Location {
            file: file.to_path_buf(),
            line: None,
        }
    }

    pub(crate) fn line(file: &Path, line: usize) -> Location {
        Location {
            file: file.to_path_buf(),
            line: Some(line),
        }
    }
}

impl Display for Location {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.file.display())?;
        self.line
            .map_or(Ok(()), |line| write!(formatter, ":{line}"))
    }
}

/// A job file that cannot be converted to an experiment.
#[derive(Debug, thiserror::Error)]
#[error("{location}: {cause}")]
pub struct FioError {
    /// The location of the problem.
    pub location: Location,
    /// The problem.
    #[source]
    pub cause: Cause,
}

/// The problem. The kind of error; match on this, not on the text.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not UTF-8.
    #[error("not a text file")]
    NotText,
    /// The file exceeds the size limit for job files.
    #[error("{bytes} bytes exceed the maximum size of a job file ({limit})")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Too many files include one another, possibly in a cycle.
    #[error("more than {limit} files include one another")]
    TooManyIncludes {
        /// The limit.
        limit: usize,
    },
    /// An error in an included file.
    #[error("include: {0}")]
    Include(#[source] Box<FioError>),
    /// The file contains no jobs, although it may contain global options.
    #[error("contains no job, that is, no section such as [job]")]
    NoJob,
    /// A line starts with `[` but is not a section name.
    #[error("a section header has the form [name]")]
    SectionName,
    /// `${` without `}`.
    #[error("'${{' without a matching '}}'")]
    UnclosedVariable,
    /// `${NAME}` is not set.
    #[error("environment variable {0} is not set")]
    UnknownVariable(String),
    /// The value is not a valid integer expression.
    #[error("cannot evaluate {0}; use numbers, + - * / and parentheses")]
    Expression(String),
    /// An option that an experiment cannot express.
    #[error("{option}: {why}{}", lines(more))]
    Loss {
        /// The offending option, or a job in brackets.
        option: String,
        /// Why.
        why: String,
        /// All losses after the first, in line order.
        more: Vec<Remark>,
    },
    /// All jobs use engines that cannot be imported.
    #[error("nothing to import: no job is a block workload")]
    NothingLeft,
    /// An option has a value that cannot be translated.
    #[error("{option}={value}: write {expected}")]
    Value {
        /// The option as written.
        option: String,
        /// Its value.
        value: String,
        /// What a valid value looks like.
        expected: &'static str,
    },
    /// A job creates its file but does not set its size.
    #[error("[{job}]: sets neither a size nor an existing file or device")]
    NoSize {
        /// The job.
        job: String,
    },
    /// A job for an NBD server doesn't set `uri`.
    #[error("[{job}]: engine nbd needs uri=, which is not set")]
    NoUri {
        /// The job.
        job: String,
    },
    /// A block size that no device supports.
    #[error("[{job}]: blocks of {bytes} bytes are not a multiple of 512")]
    BlockSize {
        /// The job.
        job: String,
        /// The size.
        bytes: u64,
    },
    /// Each option is valid, but the resulting experiment is not.
    #[error("the resulting experiment is invalid: {}", .0.one_line())]
    Experiment(#[source] Box<FileError>),
    /// A value that TOML cannot represent.
    #[error("cannot write the experiment: {0}")]
    Unwritable(#[from] toml::ser::Error),
}

/// Returns one line per option that cannot be imported.
fn lines(lost: &[Remark]) -> String {
    let line = |lost: &Remark| format!("\n  {}: {}: {}", lost.location, lost.key, lost.why);
    lost.iter().map(line).collect()
}

impl Cause {
    pub(crate) fn at(self, location: Location) -> FioError {
        FioError {
            location,
            cause: self,
        }
    }
}

impl FioError {
    /// What the user can do about it: a sentence that starts with a verb. It doesn't repeat the message.
    pub fn advice(&self) -> Option<&str> {
        match &self.cause {
            Cause::Include(inner) => inner.advice(),
            Cause::NotText => Some("give the path of a fio job file"),
            Cause::TooManyIncludes { .. } => {
                Some("remove the 'include' that includes its own file")
            }
            Cause::UnknownVariable(_) => {
                Some("set the variable before starting brunt, or write the value")
            }
            Cause::NoUri { .. } => {
                Some("add uri=nbd://host/export, or uri=nbd+unix:///export?socket=PATH")
            }
            Cause::NoSize { .. } => Some("add size=1g, or a filename"),
            Cause::Loss { .. } => {
                Some("change it, or pass --lossy to import the rest and list each loss")
            }
            Cause::BlockSize { .. } => Some("write a block size such as bs=4k"),
            Cause::Experiment(error) => error.help_text(),
            _ => None,
        }
    }
}
