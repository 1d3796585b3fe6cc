//! Errors in a job file: the location, the offending option, and how to correct it.

use std::fmt::{Display, Formatter};
use std::io;
use std::path::{Path, PathBuf};

use brunt_study::experiment::FileError;

use crate::remark::Remark;

/// A line of a job file, or the file as a whole.
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

/// The problem. Match on this, not on the text.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is not UTF-8.
    #[error("it is not a text file")]
    NotText,
    /// It is larger than any job file.
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
    /// The file contains no jobs, at most global options.
    #[error("it contains no job, that is, no section such as [job]")]
    NoJob,
    /// A line starts with `[` but is not a section name.
    #[error("a section is written [name]")]
    SectionName,
    /// `${` without `}`.
    #[error("'${{' without a matching '}}'")]
    UnclosedVariable,
    /// `${NAME}` is not set.
    #[error("environment variable {0} is not set")]
    UnknownVariable(String),
    /// The value is not a valid integer expression.
    #[error("{0}: it cannot be computed; write numbers with + - * / and parentheses")]
    Expression(String),
    /// An option that an experiment cannot express.
    #[error("{option}: {why}{}", lines(more))]
    Loss {
        /// The offending option, or a job in brackets.
        option: String,
        /// Why.
        why: String,
        /// All others, in the order of their lines.
        more: Vec<Remark>,
    },
    /// All jobs use engines that cannot be imported.
    #[error("nothing is left to import: none of its jobs is a block workload")]
    NothingLeft,
    /// An option has a value that cannot be translated.
    #[error("{option}={value}: write {expected}")]
    Value {
        /// The option as written.
        option: String,
        /// Its value.
        value: String,
        /// The valid values.
        expected: &'static str,
    },
    /// A job creates its file but does not set its size.
    #[error("[{job}]: it sets neither a size nor a file or device that has one")]
    NoSize {
        /// The job.
        job: String,
    },
    /// A job for an NBD server sets no URI.
    #[error("[{job}]: engine nbd needs uri=, which is not set")]
    NoUri {
        /// The job.
        job: String,
    },
    /// A block size that no device has.
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
    /// A value that TOML cannot hold.
    #[error("the experiment cannot be written: {0}")]
    Unwritable(#[from] toml::ser::Error),
}

/// A line for each option that cannot be imported.
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
    /// What the user can do about it: a sentence that starts with a verb. Does not repeat the message.
    pub fn advice(&self) -> Option<&str> {
        match &self.cause {
            Cause::Include(inner) => inner.advice(),
            Cause::NotText => Some("give the path of a fio job file"),
            Cause::TooManyIncludes { .. } => {
                Some("remove the 'include' that includes its own file")
            }
            Cause::UnknownVariable(_) => Some("set it before brunt is started, or write the value"),
            Cause::NoUri { .. } => {
                Some("add uri=nbd://host/export, or uri=nbd+unix:///export?socket=PATH")
            }
            Cause::NoSize { .. } => Some("add size=1g, or a filename"),
            Cause::Loss { .. } => Some(
                "change it, or give --lossy: then the rest is imported, and each loss is listed",
            ),
            Cause::BlockSize { .. } => Some("write a block size such as bs=4k"),
            Cause::Experiment(error) => error.help_text(),
            _ => None,
        }
    }
}
